//! The driver's DMA buffers, mapped: the engine fills one buffer while the program uses another, and nothing is copied.

use std::io;

use super::call;
use super::uapi::{
    Info, RingNext, RingSetup, RingStart, SIS8300_DMA_ALIGN, SIS8300_IOC_RING_NEXT, SIS8300_IOC_RING_SETUP,
    SIS8300_IOC_RING_START, SIS8300_IOC_RING_STOP, SIS8300_RING_BUFFERS_MAX, SIS8300_RING_BUFFERS_MIN,
};
use crate::Error;
use crate::daq::opened::Opened;
use crate::daq::pieces::{Window, pieces, whole};
use crate::daq::{Options, Span, Take};
use crate::probe::sys::{self, Mapping};

/// Buffers unless the caller says otherwise: one is filled, one is worked on, and two absorb delays.
const DEPTH: u32 = 4;
/// Bytes of a buffer unless the caller says otherwise: long beside the engine's pause between two, short beside a
/// processor's cache.
const BUFFER: usize = 1 << 20;
/// How much longer than for a DMA is waited for a buffer, in milliseconds: the driver is to say first what is wrong.
const PATIENCE_MS: u32 = 10_000;
const NONE: u64 = u64::MAX;

/// The ring of one open file.
#[derive(Debug)]
pub struct Ring {
    buffers: u32,
    /// Bytes of each buffer, whatever a stream asks for: to make and map other buffers takes milliseconds.
    buffer_bytes: usize,
    timeout_ms: u32,
    mapped: Option<Mapped>,
}

#[derive(Debug)]
struct Mapped {
    mapping: Mapping,
    stride: usize,
}

/// A ring that runs; dropping it ends that, whatever way the stream went.
struct Running<'a>(&'a Opened);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // SAFETY: the request has no argument.
        let _ = unsafe { sys::ioctl(&self.0.file, SIS8300_IOC_RING_STOP, &mut 0u64) };
    }
}

impl Ring {
    /// Without buffers yet.
    pub fn new(options: &Options, info: &Info) -> Self {
        let asked = if options.depth == 0 { DEPTH } else { options.depth };
        let most = if options.buffer_bytes == 0 { BUFFER } else { options.buffer_bytes };
        Ring {
            buffers: asked.clamp(SIS8300_RING_BUFFERS_MIN, SIS8300_RING_BUFFERS_MAX),
            buffer_bytes: whole(most.min(info.chunk_bytes as usize), SIS8300_DMA_ALIGN.into()),
            timeout_ms: info.dma_timeout_ms.saturating_add(PATIENCE_MS).min(3_600_000),
            mapped: None,
        }
    }

    /// How many buffers it has.
    pub fn buffers(&self) -> u32 {
        self.buffers
    }

    /// Hands over the bytes of a span.
    pub fn stream(&mut self, opened: &Opened, span: Span, take: Take<'_>) -> Result<(), Error> {
        let Span { at, bytes, passes, piece } = span;
        if bytes == 0 || passes == 0 {
            return Ok(());
        }
        let align = u64::from(SIS8300_DMA_ALIGN);
        let window = Window::new(at, bytes, align);
        self.make(opened)?;
        let (buffers, buffer_bytes, timeout_ms) = (self.buffers, self.buffer_bytes, self.timeout_ms);
        let mapped = self.mapped.as_ref().expect("it was just made");
        let mut start = RingStart {
            size: size_of::<RingStart>() as u32,
            address: window.start,
            bytes: window.bytes,
            passes,
            ..RingStart::default()
        };
        // SAFETY: the request's argument is this structure, which holds no address.
        unsafe { call(opened, SIS8300_IOC_RING_START, &mut start, "start its ring")? };
        let running = Running(opened);
        let mut release = NONE;
        for (number, due) in pieces(window.start, window.bytes, passes, buffer_bytes).enumerate() {
            let next = next(opened, release, timeout_ms)?;
            let is_due = (next.number, next.address, next.bytes as usize) == (number as u64, due.at, due.len);
            if !is_due {
                let came = format!(
                    "its buffer {number} is to hold {} bytes from {:#x}, and buffer {} with {} bytes from {:#x} came",
                    due.len, due.at, next.number, next.bytes, next.address
                );
                return Err(opened.failed("follow its ring".to_owned(), io::Error::other(came)));
            }
            let asked = window.asked(due.at, due.len);
            let offset = mapped.stride * (number % buffers as usize) + asked.start;
            // SAFETY: inside the mapping, which outlives the call; the driver leaves the buffer alone until it is released.
            let came =
                unsafe { std::slice::from_raw_parts(mapped.mapping.at(offset, asked.len()).as_ptr(), asked.len()) };
            for part in came.chunks(piece.max(1)) {
                if take(part).is_break() {
                    return Ok(());
                }
            }
            release = next.number;
        }
        drop(running);
        Ok(())
    }

    /// Makes and maps the buffers, unless that was done.
    pub fn make(&mut self, opened: &Opened) -> Result<(), Error> {
        if self.mapped.is_some() {
            return Ok(());
        }
        let mut setup = RingSetup {
            size: size_of::<RingSetup>() as u32,
            buffers: self.buffers,
            buffer_bytes: self.buffer_bytes as u32,
            ..RingSetup::default()
        };
        let what = format!("have a ring of {} buffers of {} bytes", self.buffers, self.buffer_bytes);
        // SAFETY: the request's argument is this structure, which holds no address.
        unsafe { call(opened, SIS8300_IOC_RING_SETUP, &mut setup, &what)? };
        let stride = setup.stride as usize;
        if stride < self.buffer_bytes {
            let why = io::Error::other(format!("the driver keeps {stride} bytes for each"));
            return Err(opened.failed(what, why));
        }
        let mapping = Mapping::new(&opened.file, 0, stride * self.buffers as usize, false)
            .map_err(|err| opened.failed("map its ring".to_owned(), err))?;
        self.mapped = Some(Mapped { mapping, stride });
        Ok(())
    }
}

/// Gives back the buffers up to `release` and waits for the next full one.
fn next(opened: &Opened, release: u64, timeout_ms: u32) -> Result<RingNext, Error> {
    let mut next = RingNext { size: size_of::<RingNext>() as u32, timeout_ms, release, ..RingNext::default() };
    // SAFETY: the request's argument is this structure, which holds no address.
    unsafe { call(opened, SIS8300_IOC_RING_NEXT, &mut next, "have the next buffer of its ring")? };
    Ok(next)
}
