//! The node of a SIS8300 digitizer's driver: ours (docs/sis8300.md), and that of ESS as far as it goes.
//!
//! [`Board`] is what both share: reading by pread(), the registers. The ring, the acquisition by our driver and that by the
//! ESS driver are files of their own.

mod acquire;
mod ess;
mod ring;
pub mod uapi;

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use pciescope_core::{Access, Bdf};

use self::ring::Ring;
use self::uapi::{
    Info, Reg, SIS8300_ALIGN, SIS8300_IOC_INFO, SIS8300_IOC_STATS, SIS8300_REG_READ, SIS8300_REG_WRITE, Stats,
};
use super::direct::copy;
use super::opened::{Opened, of_stream};
use super::pieces::{pieces, whole};
use super::{About, Costs, Daq, Digitizer, Options, Span, Take, check_aligned};
use crate::memory::Buffer;
use crate::probe::sys;
use crate::{Error, Root, pci};

/// The driver's name, ours and that of ESS.
const DRIVER: &str = "sis8300";

/// Bytes of a stream's buffer without a ring, unless the caller says otherwise: one DMA of our driver.
const PIECE: usize = 4 << 20;

// Registers, by word number; docs/spec/sis8300.md.
const ID: u32 = 0x00;
const SERIAL: u32 = 0x01;
const FIRMWARE_OPTIONS: u32 = 0x05;
const CONTROL: u32 = 0x10;

/// Of [`FIRMWARE_OPTIONS`]: the first SIS8300 has 1 GiB.
const OPTION_GIBIBYTE: u32 = 1 << 8;

/// A digitizer's node.
#[derive(Debug)]
pub struct Board {
    opened: Opened,
    /// `None`: the driver is that of ESS.
    info: Option<Info>,
    how: How,
    /// Acquisitions that this file armed, where the driver does not count.
    armed: u64,
    /// Reads of the status register since the last one was armed.
    polls: u64,
    /// Whether the last one may be under way still, where the driver lets it be when the file is closed.
    is_left_armed: bool,
}

impl Drop for Board {
    /// Our driver stops what a file has begun; that of ESS does not.
    fn drop(&mut self) {
        if self.is_left_armed {
            let _ = self.set_register(CONTROL, ess::STOP);
        }
    }
}

/// How its memory is read.
#[derive(Debug)]
enum How {
    Read(Buffer),
    Ring(Ring),
}

/// Whether a path is the node of a board: by the driver of its device number, not by its name.
pub fn is_board(root: &Root, path: &Path) -> bool {
    let Ok(meta) = std::fs::metadata(path) else { return false };
    if !meta.file_type().is_char_device() {
        return false;
    }
    let folder = format!("/sys/dev/char/{}:{}", libc::major(meta.rdev()), libc::minor(meta.rdev()));
    ["subsystem", "device/driver"]
        .iter()
        .any(|link| root.link_name(format!("{folder}/{link}")).as_deref() == Some(DRIVER))
}

impl Board {
    /// Opens a board's node.
    ///
    /// # Errors
    /// [`Error::Source`], or [`Error::Lacks`] where it cannot be read in this way.
    pub fn open(root: &Root, path: &Path, options: &Options) -> Result<Self, Error> {
        let mut opened = Opened::open(root, path, options)?;
        let info = info(&opened)?;
        match &info {
            Some(info) => describe(root, &mut opened.about, info),
            None => ess::describe(&mut opened)?,
        }
        opened.about.kind = "sis8300";
        opened.about.align = SIS8300_ALIGN.into();
        let how = match (options.access, &info) {
            (Access::Read, info) => {
                let note = match info {
                    Some(_) => "The driver copies a chunk while the next one moves (its parameter serial=1 does not).",
                    None => "The ESS driver moves a chunk and copies it, one after the other.",
                };
                opened.about.notes.push(note.to_owned());
                let bytes = if options.buffer_bytes == 0 { PIECE } else { options.buffer_bytes };
                let buffer = Buffer::on_node(whole(bytes, SIS8300_ALIGN.into()), options.node);
                How::Read(buffer.map_err(|err| opened.failed(format!("have a buffer of {bytes} bytes"), err))?)
            }
            (Access::Mmap | Access::Ring, Some(info)) => {
                opened.about.access = Access::Ring;
                let note =
                    "A ring hands its buffers over: without a conversion or a check the CPU touches none of the bytes.";
                opened.about.notes.push(note.to_owned());
                let ring = Ring::new(options, info);
                opened.about.take_depth(options.depth, ring.buffers());
                How::Ring(ring)
            }
            (Access::Mmap | Access::Ring, None) => {
                let why = "its driver is that of ESS, which has none".to_owned();
                let hint = Some("load pciescope's driver, or read it by read (-B 0)".to_owned());
                return Err(opened.lacks("be read by ring".to_owned(), why, hint));
            }
            (other, _) => {
                let why = "a digitizer is no disk".to_owned();
                let hint = Some("read it by read (-B 0) or ring (-B 1)".to_owned());
                return Err(opened.lacks(format!("be read by {}", other.name()), why, hint));
            }
        };
        Ok(Board { opened, info, how, armed: 0, polls: 0, is_left_armed: false })
    }

    fn check(&self, at: u64, bytes: u64) -> Result<(), Error> {
        self.opened.check(at, bytes)?;
        let left = self.opened.about.bytes.unwrap_or(u64::MAX).saturating_sub(at);
        if left < bytes { Err(self.opened.ended(at, left, bytes)) } else { Ok(()) }
    }

    /// Reads a register by its word number.
    fn register(&self, word: u32) -> Result<u32, Error> {
        register(&self.opened, word)
    }

    /// Writes a register by its word number.
    fn set_register(&self, word: u32, value: u32) -> Result<(), Error> {
        let mut reg = Reg { offset: word, data: value };
        // SAFETY: the request's argument is this structure, which holds no address.
        unsafe { call(&self.opened, SIS8300_REG_WRITE, &mut reg, "write a register") }
    }
}

/// An ioctl on a board, begun again after a signal.
///
/// # Safety
/// As for [`sys::ioctl`].
unsafe fn call<T>(opened: &Opened, request: libc::Ioctl, argument: &mut T, what: &str) -> Result<(), Error> {
    loop {
        // SAFETY: the caller's promise.
        match unsafe { sys::ioctl(&opened.file, request, argument) } {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(opened.failed(what.to_owned(), error)),
        }
    }
}

fn register(opened: &Opened, word: u32) -> Result<u32, Error> {
    let mut reg = Reg { offset: word, data: 0 };
    // SAFETY: the request's argument is this structure, which holds no address.
    unsafe { call(opened, SIS8300_REG_READ, &mut reg, "read a register")? };
    Ok(reg.data)
}

/// What our driver tells of the board; `None` where the driver does not know the question.
fn info(opened: &Opened) -> Result<Option<Info>, Error> {
    let mut info = Info { size: size_of::<Info>() as u32, ..Info::default() };
    // SAFETY: the request's argument is this structure, which holds no address.
    match unsafe { ioctl_of(&opened.file, SIS8300_IOC_INFO, &mut info) } {
        Ok(()) => Ok(Some(info)),
        // The ESS driver answers unknown requests so.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => Ok(None),
        Err(error) => Err(opened.failed("ask what it is".to_owned(), error)),
    }
}

/// # Safety
/// As for [`sys::ioctl`].
unsafe fn ioctl_of<T>(file: &File, request: libc::Ioctl, argument: &mut T) -> io::Result<()> {
    // SAFETY: the caller's promise.
    unsafe { sys::ioctl(file, request, argument) }.map(|_| ())
}

fn describe(root: &Root, about: &mut About, info: &Info) {
    let (device, function) = (info.devfn >> 3, info.devfn & 7);
    let address = format!("{:04x}:{:02x}:{device:02x}.{function}", info.domain, info.bus);
    if let Some(found) = address.parse::<Bdf>().ok().and_then(|bdf| pci::function(root, bdf).ok()) {
        about.function = Some(found);
    }
    about.model = Some(model(info.module_id, info.serial));
    about.serial = Some(info.serial & 0xffff);
    about.bytes = Some(info.memory_bytes);
}

/// The board in words, from registers 0x00 and 0x01.
fn model(id: u32, serial: u32) -> String {
    let board = match id >> 16 {
        0x8300 => "SIS8300".to_owned(),
        0x8301 => "SIS8300-L".to_owned(),
        0x8302 => "SIS8300-L2".to_owned(),
        0x8303 => "SIS8300-KU".to_owned(),
        other => format!("board {other:04x}"),
    };
    format!("{board} firmware {:x}.{:02x} serial {}", id >> 8 & 0xff, id & 0xff, serial & 0xffff)
}

/// The driver's figures in the words of all sources.
fn costs_of(stats: &Stats) -> Costs {
    Costs {
        // Handing the buffer to the engine and taking it back is part of getting it to work.
        setup_ns: stats.setup_ns + stats.map_ns,
        dma_ns: stats.dma_ns,
        wakeup_ns: stats.wakeup_ns,
        copy_ns: stats.copy_ns,
        dma_bytes: stats.dma_bytes,
        lost_interrupts: stats.lost_interrupts,
        timeouts: stats.timeouts,
        short_dmas: stats.short_dmas,
        stalls: stats.stalls,
        stall_ns: stats.stall_ns,
    }
}

impl Daq for Board {
    fn about(&self) -> &About {
        &self.opened.about
    }

    fn prepare(&mut self) -> Result<(), Error> {
        match &mut self.how {
            How::Ring(ring) => ring.make(&self.opened),
            How::Read(_) => Ok(()),
        }
    }

    fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), Error> {
        if matches!(self.how, How::Ring(_)) {
            return copy(self, at, to);
        }
        self.check(at, to.len() as u64)?;
        check_aligned(&self.opened.about, at, to.len() as u64)?;
        self.opened.fill(at, to)
    }

    fn stream(&mut self, span: Span, take: Take<'_>) -> Result<(), Error> {
        let Span { at, bytes, passes, piece } = span;
        self.check(at, bytes)?;
        let buffer = match &mut self.how {
            How::Ring(ring) => return ring.stream(&self.opened, span, take),
            How::Read(buffer) => buffer,
        };
        check_aligned(&self.opened.about, at, bytes)?;
        for one in pieces(at, bytes, passes, whole(piece.min(buffer.len()), SIS8300_ALIGN.into())) {
            let to = &mut buffer.bytes_mut()[..one.len];
            self.opened.fill(one.at, to).map_err(|err| of_stream(err, at, bytes))?;
            if take(to).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<(), Error> {
        self.check(at, from.len() as u64)?;
        check_aligned(&self.opened.about, at, from.len() as u64)?;
        self.opened.put(at, from)
    }

    fn costs(&mut self) -> Result<Option<Costs>, Error> {
        if self.info.is_none() {
            return Ok(None);
        }
        let mut stats = Stats { size: size_of::<Stats>() as u32, reset: 1, ..Stats::default() };
        // SAFETY: the request's argument is this structure, which holds no address.
        unsafe { call(&self.opened, SIS8300_IOC_STATS, &mut stats, "ask what its transfers cost")? };
        Ok(Some(costs_of(&stats)))
    }

    fn digitizer(&mut self) -> Option<&mut dyn Digitizer> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
