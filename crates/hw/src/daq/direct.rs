//! pread() with O_DIRECT: it bypasses the page cache and reads from the device.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;

use super::opened::{Opened, of_stream};
use super::pieces::{Window, pieces, whole};
use super::{About, Daq, Options, Span, Take};
use crate::memory::{BLOCK, Buffer};
use crate::{Error, Root};

/// Bytes of a piece unless the caller says otherwise. Tried on a virtual disk: 512 KiB 0.10 s of CPU time per GB, 1 MiB
/// 0.04, 4 MiB 0.02 and the highest rate.
const PIECE: usize = 4 << 20;
/// No buffer is shorter: one that huge pages fit into reaches the disk in few segments. A buffer of 1 MiB in pages of 4 KiB
/// cost 0.09 s of CPU time per GB there.
pub const HUGE: usize = 4 << 20;

/// What transfers past the page cache have to be multiples of, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Align {
    /// The address in memory.
    pub memory: u64,
    /// Offset and length.
    pub offset: u64,
}

impl Align {
    /// Whether the kernel takes this memory and these addresses as they are.
    pub fn fits(&self, at: u64, memory: &[u8]) -> bool {
        let address = memory.as_ptr().addr() as u64;
        at % self.offset == 0 && memory.len() as u64 % self.offset == 0 && address % self.memory == 0
    }
}

/// A source that is read past the page cache.
#[derive(Debug)]
pub struct Direct {
    opened: Opened,
    align: Align,
    piece: usize,
    buffer: Buffer,
}

/// Opens past the page cache.
pub fn open(root: &Root, path: &std::path::Path, options: &Options) -> Result<(Opened, Align), Error> {
    let why_not = |why: &str| Error::lacks(path, "be read with O_DIRECT", why, "read it by read or mmap");
    let mut opened = match Opened::open_with(root, path, options, libc::O_DIRECT) {
        Err(Error::Source { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
            return Err(why_not("its file system does not have it"));
        }
        opened => opened?,
    };
    if opened.about.kind == "char" {
        return Err(why_not("it is neither a block device nor a file"));
    }
    let align = align_of(&opened.file, opened.about.kind == "block").ok_or_else(|| why_not("this file cannot"))?;
    opened.about.align = align.offset;
    opened.about.function = opened.about.way.last().cloned();
    Ok((opened, align))
}

/// What the kernel says the alignment is; where it says nothing, that of the disk's blocks, or a page for a file.
fn align_of(file: &File, is_block: bool) -> Option<Align> {
    if let Some(told) = align_by_statx(file) {
        return told;
    }
    let offset = match is_block {
        true => rustix::fs::ioctl_blksszget(file).map_or(BLOCK as u64, u64::from),
        false => BLOCK as u64,
    };
    Some(Align { memory: offset, offset })
}

/// `None`: the kernel or file system does not tell; `Some(None)`: it cannot be read so.
fn align_by_statx(file: &File) -> Option<Option<Align>> {
    // SAFETY: an all-zero statx is valid, and the kernel writes no more than one; the empty path names the file itself.
    let stat = unsafe {
        let mut stat: libc::statx = std::mem::zeroed();
        let ret = libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &mut stat);
        if ret < 0 {
            return None;
        }
        stat
    };
    if stat.stx_mask & libc::STATX_DIOALIGN == 0 {
        return None;
    }
    let (memory, offset) = (u64::from(stat.stx_dio_mem_align), u64::from(stat.stx_dio_offset_align));
    Some((memory > 0 && offset > 0).then_some(Align { memory, offset }))
}

impl Direct {
    /// Opens it, with a buffer of its own for streams and for what is not aligned.
    pub fn open(root: &Root, path: &std::path::Path, options: &Options) -> Result<Self, Error> {
        let (mut opened, align) = open(root, path, options)?;
        let bytes = if options.buffer_bytes == 0 { PIECE } else { options.buffer_bytes };
        let piece = whole(bytes, align.offset);
        let buffer = Buffer::on_node(piece.max(HUGE), options.node)
            .map_err(|err| opened.failed(format!("have a buffer of {bytes} bytes"), err))?;
        opened.about.notes.push("A read and the work on its bytes follow each other; they do not overlap.".to_owned());
        Ok(Direct { opened, align, piece, buffer })
    }
}

impl Daq for Direct {
    fn about(&self) -> &About {
        &self.opened.about
    }

    fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), Error> {
        self.opened.check(at, to.len() as u64)?;
        let whole = to.len() - (to.len() as u64 % self.align.offset) as usize;
        let (body, tail) = to.split_at_mut(whole);
        if self.align.fits(at, body) { self.opened.fill(at, body) } else { copy(self, at, body) }
            .and_then(|()| copy(self, at + whole as u64, tail))
            .map_err(|err| of_stream(err, at, to.len() as u64))
    }

    fn stream(&mut self, span: Span, take: Take<'_>) -> Result<(), Error> {
        let Span { at, bytes, passes, piece } = span;
        self.opened.check(at, bytes)?;
        let window = Window::new(at, bytes, self.align.offset);
        let size = whole(piece.min(self.piece), self.align.offset);
        for one in pieces(window.start, window.bytes, passes, size) {
            let asked = window.asked(one.at, one.len);
            // The last block of a file may be there in part.
            let to = &mut self.buffer.bytes_mut()[..one.len];
            self.opened.fill_at_least(one.at, to, asked.end).map_err(|err| of_stream(err, at, bytes))?;
            for part in to[asked].chunks(piece.max(1)) {
                if take(part).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<(), Error> {
        if !self.align.fits(at, from) {
            super::check_aligned(&self.opened.about, at, from.len() as u64)?;
            let why = format!("the buffer does not begin at a multiple of {} bytes", self.align.memory);
            return Err(self.opened.lacks(format!("be written with O_DIRECT at {at:#x}"), why, None));
        }
        self.opened.put(at, from)
    }
}

/// Reads by the source's own buffers what its caller's cannot take.
pub fn copy(daq: &mut dyn Daq, at: u64, to: &mut [u8]) -> Result<(), Error> {
    let mut done = 0;
    let span = Span { at, bytes: to.len() as u64, passes: 1, piece: usize::MAX };
    daq.stream(span, &mut |piece| {
        to[done..done + piece.len()].copy_from_slice(piece);
        done += piece.len();
        ControlFlow::Continue(())
    })
}
