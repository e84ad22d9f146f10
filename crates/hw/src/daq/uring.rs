//! io_uring: several reads are in flight while the program uses the oldest one.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

use io_uring::{IoUring, opcode, types};

use super::direct::{self, Align, copy};
use super::opened::{Opened, of_stream};
use super::pieces::{Window, pieces, whole};
use super::{About, Daq, Options, Span, Take};
use crate::memory::Buffer;
use crate::{Error, Root};

/// Bytes of a request unless the caller says otherwise.
const PIECE: usize = 512 << 10;
/// Requests in flight unless the caller says otherwise.
const DEPTH: u32 = 8;
/// More make no device faster.
const DEPTH_MAX: u32 = 1024;
/// Of a request: its length has 32 bits, and the kernel reads no more than 2 GiB in one go.
const PIECE_MAX: usize = 1 << 30;

/// A source that is read by io_uring.
pub struct Uring {
    opened: Opened,
    align: Align,
    /// Each request's part of the buffer.
    piece: usize,
    requests: Vec<Request>,
    ring: IoUring,
    /// Whether the kernel knows the buffer beforehand.
    is_registered: bool,
    /// Of the buffer.
    base: NonNull<u8>,
    /// Dropped after the ring: the kernel writes to it while requests are in flight.
    _buffer: Buffer,
}

// SAFETY: the addresses are those of the value's own buffer, but for those of a caller's, which are never used after the
// call; nothing here is bound to a thread.
unsafe impl Send for Uring {}

/// One read and what has come of it.
#[derive(Debug, Clone, Copy)]
struct Request {
    at: u64,
    /// Where the first byte goes.
    to: NonNull<u8>,
    /// Whether that lies in the buffer that the kernel knows.
    is_fixed: bool,
    /// How much the buffer takes.
    len: usize,
    /// How much has to come.
    least: usize,
    got: usize,
    is_flying: bool,
    /// errno, where it failed.
    error: Option<i32>,
}

impl Uring {
    /// Opens a file or device, past the page cache where it can be read so.
    pub fn open(root: &Root, path: &Path, options: &Options) -> Result<Self, Error> {
        let (mut opened, align) = match direct::open(root, path, options) {
            Ok(direct) => direct,
            Err(Error::Lacks { what, why, .. }) if what.contains("O_DIRECT") => {
                let mut opened = Opened::open(root, path, options)?;
                opened.about.notes.push(format!("It goes through the page cache: O_DIRECT is not possible ({why})."));
                (opened, Align { memory: 1, offset: 1 })
            }
            Err(error) => return Err(error),
        };
        if opened.is_sequential() {
            let why = "it cannot seek, and requests at the same time would change places".to_owned();
            return Err(opened.lacks("be read by io_uring".to_owned(), why, Some("read it by read".to_owned())));
        }
        let depth = if options.depth == 0 { DEPTH } else { options.depth.min(DEPTH_MAX) };
        opened.about.take_depth(options.depth, depth);
        let asked = if options.buffer_bytes == 0 { PIECE } else { options.buffer_bytes };
        let piece = whole(asked.min(PIECE_MAX), align.offset.max(4096));
        let buffer = match piece.checked_mul(depth as usize) {
            Some(bytes) => Buffer::on_node(bytes.max(direct::HUGE), options.node),
            None => Err(io::ErrorKind::OutOfMemory.into()),
        };
        let mut buffer = buffer.map_err(|err| opened.failed(format!("have {depth} buffers of {piece} bytes"), err))?;
        let ring = new_ring(depth).map_err(|err| refused(&opened, err))?;
        let is_registered = register(&ring, &buffer);
        if !is_registered {
            opened.about.notes.push("The buffers could not be registered (ulimit -l).".to_owned());
        }
        let base = NonNull::new(buffer.bytes_mut().as_mut_ptr()).expect("a slice has an address");
        let idle =
            Request { at: 0, to: base, is_fixed: false, len: 0, least: 0, got: 0, is_flying: false, error: None };
        let requests = vec![idle; depth as usize];
        Ok(Uring { opened, align, piece, requests, ring, is_registered, base, _buffer: buffer })
    }

    /// Starts, or goes on with, the request of a slot.
    fn submit(&mut self, slot: usize) -> io::Result<()> {
        let request = self.requests[slot];
        let (len, at) = ((request.len - request.got) as u32, request.at + request.got as u64);
        // SAFETY: what has come so far lies inside the request's memory.
        let to = unsafe { request.to.add(request.got) }.as_ptr();
        let file = types::Fd(self.opened.file.as_raw_fd());
        let entry = match request.is_fixed {
            true => opcode::ReadFixed::new(file, to, len, 0).offset(at).build(),
            false => opcode::Read::new(file, to, len).offset(at).build(),
        };
        // SAFETY: the memory is this request's alone. Its slot of our buffer is not handed out while it is in flight, and
        // a caller's buffer is borrowed until nothing is: `Drop` and every way out of `stream` and `read` wait for that.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) };
        // The queue has a place for every slot.
        pushed.map_err(io::Error::other)?;
        self.requests[slot].is_flying = true;
        Ok(())
    }

    /// Hands what was pushed to the kernel, and takes what has come; waits for one where `is_waiting`.
    fn turn(&mut self, is_waiting: bool) -> io::Result<()> {
        match self.ring.submit_and_wait(usize::from(is_waiting)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The completion queue is full or memory is short: what is there has to be taken first.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => {}
            done => _ = done?,
        }
        let mut again = Vec::new();
        for entry in self.ring.completion() {
            let slot = entry.user_data() as usize;
            let request = &mut self.requests[slot];
            request.is_flying = false;
            match entry.result() {
                result if result > 0 => {
                    request.got += result as usize;
                    if request.got < request.least {
                        again.push(slot);
                    }
                }
                0 => {}
                result if matches!(-result, libc::EINTR | libc::EAGAIN) => again.push(slot),
                // What is left of a file's last block does not begin at a block.
                result if -result == libc::EINVAL && request.got > 0 => {}
                result => request.error = Some(-result),
            }
        }
        for slot in again {
            self.submit(slot)?;
        }
        Ok(())
    }

    /// Waits until nothing is in flight.
    fn drain(&mut self) {
        while self.requests.iter().any(|request| request.is_flying) {
            if self.turn(true).is_err() {
                // The ring itself is broken: the kernel may still write. Nothing is as bad as freed memory under a DMA.
                std::process::abort();
            }
        }
    }

    /// Reads a range piece by piece, into `into` or else into the slots, and hands each over in its turn.
    fn run(&mut self, span: Span, into: Option<NonNull<u8>>, take: Take<'_>) -> Result<(), Error> {
        let Span { at, bytes, passes, piece } = span;
        let window = Window::new(at, bytes, self.align.offset);
        let size = whole(piece.min(self.piece), self.align.offset).min(self.piece);
        let fail = |this: &Self, err| this.opened.failed("work with io_uring".to_owned(), err);
        let mut list = pieces(window.start, window.bytes, passes, size);
        let (mut begun, mut done) = (0usize, 0usize);
        let depth = self.requests.len();
        loop {
            while begun - done < depth {
                let Some(one) = list.next() else { break };
                let slot = begun % depth;
                let to = match into {
                    // SAFETY: the caller's buffer is as long as the range.
                    Some(start) => unsafe { start.add((one.at - at) as usize) },
                    // SAFETY: the buffer has a part for every slot.
                    None => unsafe { self.base.add(slot * self.piece) },
                };
                self.requests[slot] = Request {
                    at: one.at,
                    to,
                    is_fixed: self.is_registered && into.is_none(),
                    len: one.len,
                    least: window.asked(one.at, one.len).end,
                    got: 0,
                    is_flying: false,
                    error: None,
                };
                self.submit(slot).map_err(|err| fail(self, err))?;
                begun += 1;
            }
            if begun == done {
                return Ok(());
            }
            let slot = done % depth;
            // What was pushed is handed to the kernel before the work on what has come.
            self.turn(self.requests[slot].is_flying).map_err(|err| fail(self, err))?;
            let request = self.requests[slot];
            if request.is_flying {
                continue;
            }
            if let Some(errno) = request.error {
                let (len, at) = (request.len - request.got, request.at + request.got as u64);
                return Err(self.opened.failed(format!("read {len} bytes from {at:#x}"), errno_of(errno)));
            }
            if request.got < request.least {
                let ended = self.opened.ended(request.at, request.got as u64, request.least as u64);
                return Err(of_stream(ended, at, bytes));
            }
            if into.is_none() {
                let asked = window.asked(request.at, request.len);
                // SAFETY: the slot's part of the buffer, of which so much has come; its request has come back, so that
                // nobody writes there.
                let came = unsafe { std::slice::from_raw_parts(request.to.add(asked.start).as_ptr(), asked.len()) };
                for part in came.chunks(piece.max(1)) {
                    if take(part).is_break() {
                        return Ok(());
                    }
                }
            }
            done += 1;
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        self.drain();
    }
}

impl Daq for Uring {
    fn about(&self) -> &About {
        &self.opened.about
    }

    fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), Error> {
        self.opened.check(at, to.len() as u64)?;
        self.drain();
        let (len, whole) = (to.len() as u64, to.len() - (to.len() as u64 % self.align.offset) as usize);
        let (body, tail) = to.split_at_mut(whole);
        let done = if self.align.fits(at, body) {
            let into = NonNull::from(&mut *body).cast();
            let body_of = Span { at, bytes: body.len() as u64, passes: 1, piece: usize::MAX };
            let done = self.run(body_of, Some(into), &mut |_| ControlFlow::Continue(()));
            self.drain();
            done
        } else {
            copy(self, at, body)
        };
        done.and_then(|()| copy(self, at + whole as u64, tail)).map_err(|err| of_stream(err, at, len))
    }

    fn stream(&mut self, span: Span, take: Take<'_>) -> Result<(), Error> {
        self.opened.check(span.at, span.bytes)?;
        // A call before may have ended by a panic of `take`.
        self.drain();
        let done = self.run(span, None, take);
        self.drain();
        done
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<(), Error> {
        super::check_aligned(&self.opened.about, at, from.len() as u64)?;
        self.opened.put(at, from)
    }
}

/// With task work only where the thread asks for it, which older kernels do not know.
fn new_ring(depth: u32) -> io::Result<IoUring> {
    match IoUring::builder().setup_coop_taskrun().build(depth) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(depth),
        ring => ring,
    }
}

fn register(ring: &IoUring, buffer: &Buffer) -> bool {
    // The kernel takes no more than 1 GiB in one piece.
    if buffer.len() > 1 << 30 {
        return false;
    }
    let whole = libc::iovec { iov_base: buffer.bytes().as_ptr().cast_mut().cast(), iov_len: buffer.len() };
    // SAFETY: the buffer outlives the ring, as the order of fields has it.
    unsafe { ring.submitter().register_buffers(&[whole]) }.is_ok()
}

fn refused(opened: &Opened, error: io::Error) -> Error {
    let lacks =
        |why: &str, hint: &str| opened.lacks("be read by io_uring".to_owned(), why.to_owned(), Some(hint.to_owned()));
    match error.raw_os_error() {
        Some(libc::ENOSYS) => lacks("this kernel has none", "read it by direct, mmap or read"),
        Some(libc::EPERM | libc::EACCES) => lacks(
            "this machine does not allow it",
            "`sysctl kernel.io_uring_disabled` shows it (0: all may), containers forbid it by seccomp; else read it by direct",
        ),
        _ => opened.failed("have an io_uring".to_owned(), error),
    }
}

fn errno_of(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}
