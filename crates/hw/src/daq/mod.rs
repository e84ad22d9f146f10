//! Devices that data is read out of: digitizers by their driver, block devices, any character device, plain files.
//!
//! One file per kind or way of access. A [`Daq`] belongs to one thread; several may be open on one device.

mod direct;
pub mod fake;
mod mmap;
mod opened;
mod pieces;
mod read;
pub mod samples;
pub mod sis8300;
#[cfg(test)]
mod tests;
mod uring;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pciescope_core::{Access, Function};

use crate::{Error, Root};

/// How a source of data is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// How it is read. [`Access::Mmap`] of a digitizer is [`Access::Ring`].
    pub access: Access,
    /// Whether it is written to, too.
    pub is_writable: bool,
    /// Bytes of each buffer that [`Daq::stream`] reads into; 0: a good default.
    pub buffer_bytes: usize,
    /// Buffers or requests in flight; 0: a good default.
    pub depth: u32,
    /// The NUMA node of the buffers; `None`: where the kernel likes.
    pub node: Option<u32>,
}

/// Opens a device node or file. What it is follows from its type and, for a device, from its driver, never from its name.
///
/// # Errors
/// [`Error::Source`] where it cannot be opened, [`Error::Lacks`] where it cannot be read in this way.
pub fn open(root: &Root, path: &Path, options: &Options) -> Result<Box<dyn Daq>, Error> {
    if fake::arguments(path).is_some() {
        return Ok(Box::new(fake::Fake::open(path, options)?));
    }
    if sis8300::is_board(root, path) {
        return Ok(Box::new(sis8300::Board::open(root, path, options)?));
    }
    match options.access {
        Access::Read => Ok(Box::new(read::Reader::open(root, path, options)?)),
        Access::Mmap => Ok(Box::new(mmap::Mapped::open(root, path, options)?)),
        Access::Direct => Ok(Box::new(direct::Direct::open(root, path, options)?)),
        Access::IoUring => Ok(Box::new(uring::Uring::open(root, path, options)?)),
        Access::Ring => {
            let why = "it is not a digitizer of the sis8300 driver";
            Err(Error::lacks(path, "be read by ring", why, "read it by mmap, direct, io_uring or read"))
        }
    }
}

/// Refuses addresses and lengths that are no multiples of the device's alignment.
fn check_aligned(about: &About, at: u64, bytes: u64) -> Result<(), Error> {
    let align = about.align;
    if at % align == 0 && bytes % align == 0 {
        return Ok(());
    }
    let why = format!("it moves multiples of {align} bytes at multiples of {align}");
    Err(Error::lacks(&about.path, format!("move {bytes} bytes at {at:#x}"), why, format!("round both to {align}")))
}

/// What a source of data is.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The node or file as it was given.
    pub path: PathBuf,
    /// `sis8300`, `block`, `char`, `file`.
    pub kind: &'static str,
    /// The board or disk in words: `SIS8300-KU firmware 10.01 serial 3`.
    pub model: Option<String>,
    /// Register 0x01 of a digitizer: the samples of a virtual one follow from it.
    pub serial: Option<u32>,
    /// How it is read.
    pub access: Access,
    /// The PCIe function that the bytes come from, with its link, where there is one. `None` where they may come from the
    /// page cache, too: the link's ceiling says nothing then.
    pub function: Option<Function>,
    /// The functions from the root port down to it, where it is on PCI; the slowest link on the way limits it.
    pub way: Vec<Function>,
    /// Bytes that can be read; `None` where it has no end (a character device).
    pub bytes: Option<u64>,
    /// Addresses and lengths of transfers are multiples of this, in bytes.
    pub align: u64,
    /// Buffers of its ring or requests in flight, where the way of access has such: what came of [`Options::depth`].
    pub depth: Option<u32>,
    /// What must be said of figures taken this way, each a sentence.
    pub notes: Vec<String>,
}

impl About {
    /// Says how many buffers or requests there are, and that it is not what was asked for (0: whatever suits).
    fn take_depth(&mut self, asked: u32, taken: u32) {
        self.depth = Some(taken);
        if asked != 0 && asked != taken {
            self.notes.push(format!("A depth of {asked} was asked for; {taken} is what can be had."));
        }
    }
}

/// What transfers cost since it was last asked, as far as the driver counts it. All times in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Costs {
    /// Programming the engine.
    pub setup_ns: u64,
    /// The engine at work, from its start to its interrupt.
    pub dma_ns: u64,
    /// From the interrupt to the waiting thread.
    pub wakeup_ns: u64,
    /// From the driver's buffer to ours.
    pub copy_ns: u64,
    /// Bytes that the engine moved; more than were asked for where the alignment makes it so.
    pub dma_bytes: u64,
    /// Interrupts that never came, and ends that were found without them.
    pub lost_interrupts: u64,
    /// Transfers that did not end in time.
    pub timeouts: u64,
    /// Transfers that stopped before their end.
    pub short_dmas: u64,
    /// Times that the engine waited for a free buffer.
    pub stalls: u64,
    /// How long it waited.
    pub stall_ns: u64,
}

/// Which bytes a stream hands over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The address of the first.
    pub at: u64,
    /// How many.
    pub bytes: u64,
    /// How often all of them.
    pub passes: u64,
    /// The most bytes of a piece. The last of a pass may be shorter, and a driver's own buffers may be smaller.
    pub piece: usize,
}

/// Takes the pieces of a stream.
pub type Take<'t> = &'t mut dyn FnMut(&[u8]) -> ControlFlow<()>;

/// A source of data that was opened.
pub trait Daq: Send {
    /// What it is.
    fn about(&self) -> &About;

    /// Makes what streams need and opening did not, such as the buffers of a ring, so that no stream takes the time for it.
    ///
    /// # Errors
    /// As for [`Daq::read`].
    fn prepare(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Reads exactly `to.len()` bytes from address `at` into a buffer of the caller's.
    ///
    /// # Errors
    /// What the device or the system said, with the path; a source that ends before names both lengths.
    fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), Error>;

    /// Hands over the bytes of a span in order, while the next ones are on their way where the way of access can. A piece
    /// is only valid in the call. `take` ends the stream early with `Break`.
    ///
    /// # Errors
    /// As for [`Daq::read`].
    fn stream(&mut self, span: Span, take: Take<'_>) -> Result<(), Error>;

    /// Writes to address `at`, where the device and the way it was opened allow it.
    ///
    /// # Errors
    /// As for [`Daq::read`].
    fn write(&mut self, at: u64, from: &[u8]) -> Result<(), Error>;

    /// What its transfers cost since the last call; `None` where the driver does not tell.
    ///
    /// # Errors
    /// [`Error::Source`].
    fn costs(&mut self) -> Result<Option<Costs>, Error> {
        Ok(None)
    }

    /// Its acquisition, where it has one.
    fn digitizer(&mut self) -> Option<&mut dyn Digitizer> {
        None
    }
}

/// What an acquisition is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Bit n: channel n.
    pub channels: u16,
    /// Samples of each channel; rounded up to the board's block.
    pub samples: u64,
    /// Samples before the trigger.
    pub pretrigger: u32,
    /// `None`: left as it is. Else the internal clock of 250 MHz divided by this.
    pub divider: Option<u32>,
    /// What starts it.
    pub trigger: Trigger,
}

/// What starts an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// Arming.
    Now,
    /// A rising edge on this line of the backplane, 0 to 7.
    Backplane(u8),
}

/// How the end of an acquisition came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct End {
    /// Number of the acquisition on its board.
    pub sequence: u64,
    /// CLOCK_MONOTONIC when the driver learnt of it, in nanoseconds.
    pub time_ns: u64,
    /// From then to the waiting thread's being awake, in nanoseconds.
    pub wakeup_ns: u64,
    /// Reads of the status register since it was armed, those of waits that timed out too.
    pub polls: u64,
    /// Whether its interrupt never came.
    pub is_interrupt_lost: bool,
}

/// A board that acquires.
pub trait Digitizer {
    /// Sets up; answers with the samples per channel that it will take.
    ///
    /// # Errors
    /// A value outside the board's range, or another file holds the board.
    fn setup(&mut self, setup: &Setup) -> Result<u64, Error>;

    /// Arms; answers with the acquisition's number.
    ///
    /// # Errors
    /// As above.
    fn arm(&mut self) -> Result<u64, Error>;

    /// Waits for the end with the thread asleep until the interrupt, at most `timeout_ms`.
    ///
    /// # Errors
    /// [`Error`] that names the time-out, or the board's end.
    fn wait_interrupt(&mut self, timeout_ms: u32) -> Result<End, Error>;

    /// Waits by reading the status register by ioctl from user space, with 1 us of sleep between, as the seed's tool does.
    ///
    /// # Errors
    /// As above.
    fn wait_poll(&mut self, timeout_ms: u32) -> Result<End, Error>;

    /// Acquisitions that a virtual board of the lab began since it was made, on whose number its samples depend. Unlike those
    /// that were armed, they had a trigger. `None`: it is no such board.
    ///
    /// # Errors
    /// [`Error::Source`].
    fn begun(&mut self) -> Result<Option<u64>, Error> {
        Ok(None)
    }
}
