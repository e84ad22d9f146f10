//! A synthetic digitizer: `fake:digitizer?...`, for trying the program and its tests without a board.
//!
//! Its samples are those of docs/spec/sis8300.md. Its delays pass in real time, with lengths that the options set. Its
//! faults come when the options ask for them. Each time it is opened, it is a new board.

mod memory;
mod options;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pciescope_core::{Access, Bdf, Function, Link};

use self::memory::Memory;
pub use self::options::{KEYS, Model, Options};
use super::opened::failed;
use super::pieces::{pieces, whole};
use super::samples::Origin;
use super::{About, Costs, Daq, Digitizer, End, Setup, Span, Take, Trigger};
use crate::Error;

/// What the paths of synthetic boards begin with.
pub const PREFIX: &str = "fake:digitizer";

/// Of addresses and counts, as the driver has it.
const ALIGN: u64 = 16;
const CHANNELS: u16 = 10;
const CLOCK_HZ: u64 = 250_000_000;
const DEPTH: u32 = 4;
/// Fewest and most buffers of a ring, as the driver has it.
const RING_BUFFERS: (u32, u32) = (2, 64);
const RING_BYTES: usize = 1 << 20;

/// The synthetic board.
#[derive(Debug)]
pub struct Fake {
    options: Options,
    about: About,
    opened: Instant,
    memory: Memory,
    setup: Setup,
    run: Option<Acquisition>,
    acquisitions: u64,
    dmas: u64,
    costs: Costs,
    buffer: Vec<u8>,
    depth: u32,
    is_writable: bool,
}

/// An acquisition that was armed.
#[derive(Debug, Clone, Copy)]
struct Acquisition {
    sequence: u64,
    /// `None`: it never ends.
    end: Option<Instant>,
    is_stored: bool,
    /// Reads of the status register so far.
    polls: u64,
}

/// Whether a path names a synthetic board, and with what.
pub fn arguments(path: &Path) -> Option<&str> {
    match path.to_str()?.strip_prefix(PREFIX)? {
        "" => Some(""),
        rest => rest.strip_prefix('?'),
    }
}

impl Fake {
    /// Makes the board that `path` describes.
    ///
    /// # Errors [`Error::Lacks`] if an option is not understood, or a digitizer has no such way of access;
    /// [`Error::Source`] if an option asks for a refusal.
    pub fn open(path: &Path, how: &super::Options) -> Result<Self, Error> {
        let lacks = |what: &str, why: String, hint: Option<String>| Error::Lacks {
            path: path.to_owned(),
            what: what.to_owned(),
            why,
            hint,
        };
        let known = || {
            let keys: Vec<String> = KEYS.iter().map(|(key, what)| format!("{key} ({what})")).collect();
            Some(format!("its options are {}", keys.join(", ")))
        };
        let options: Options =
            arguments(path).unwrap_or_default().parse().map_err(|why| lacks("be opened", why, known()))?;
        let access = match how.access {
            Access::Read => Access::Read,
            Access::Mmap | Access::Ring => Access::Ring,
            other => {
                let hint = Some("a digitizer is read by read or ring".to_owned());
                return Err(lacks("be read so", format!("a digitizer has no {}", other.name()), hint));
            }
        };
        if options.refuse {
            return Err(failed(path, "open it".to_owned(), errno(libc::EACCES)));
        }
        let piece = if access == Access::Ring { RING_BYTES } else { options.chunk as usize };
        let bytes = if how.buffer_bytes == 0 { piece } else { how.buffer_bytes };
        let depth = if how.depth == 0 { DEPTH } else { how.depth.clamp(RING_BUFFERS.0, RING_BUFFERS.1) };
        let mut about = about(path.to_owned(), access, &options);
        if access == Access::Ring {
            about.take_depth(how.depth, depth);
        }
        Ok(Fake {
            about,
            opened: Instant::now(),
            memory: Memory::new(options.memory, options.seed, options.serial),
            setup: Setup { channels: 0x3ff, samples: 16, pretrigger: 0, divider: Some(3), trigger: Trigger::Now },
            run: None,
            acquisitions: 0,
            dmas: 0,
            costs: Costs::default(),
            buffer: vec![0; bytes.min(options.chunk as usize)],
            depth,
            is_writable: how.is_writable,
            options,
        })
    }

    fn failed(&self, what: &str, number: i32) -> Error {
        failed(&self.about.path, what.to_owned(), errno(number))
    }

    fn check(&self, at: u64, bytes: u64) -> Result<(), Error> {
        super::check_aligned(&self.about, at, bytes)?;
        match self.options.memory.checked_sub(at) {
            Some(left) if left >= bytes => Ok(()),
            left => Err(Error::Ended { path: self.about.path.clone(), at, got: left.unwrap_or(0), want: bytes }),
        }
    }

    /// How long the engine works on so many bytes.
    fn dma_time(&self, bytes: usize) -> Duration {
        match self.options.rate {
            0 => Duration::ZERO,
            rate => Duration::from_nanos((bytes as u128 * 1_000_000_000 / u128::from(rate)) as u64),
        }
    }

    /// One DMA to `to`, which is over at `end`.
    fn dma(&mut self, at: u64, to: &mut [u8], end: Instant) -> Result<(), Error> {
        self.dmas += 1;
        let o = &self.options;
        if o.gone_after != 0 && self.dmas > o.gone_after {
            return Err(self.failed(&format!("read {} bytes from {at:#x}", to.len()), libc::ENODEV));
        }
        if self.dmas == o.timeout {
            self.costs.timeouts += 1;
            return Err(self.failed(&format!("read {} bytes from {at:#x}", to.len()), libc::ETIMEDOUT));
        }
        if self.dmas == o.short {
            self.costs.short_dmas += 1;
            return Err(self.failed(&format!("read {} bytes from {at:#x}", to.len()), libc::EIO));
        }
        let begun = Instant::now();
        self.memory.read(at, to);
        if let Some(byte) = to.first_mut().filter(|_| self.dmas == o.wrong) {
            *byte ^= 1;
        }
        self.costs.copy_ns += nanos(begun.elapsed());
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        self.costs.wakeup_ns += nanos(Instant::now().saturating_duration_since(end));
        self.costs.setup_ns += self.options.setup_ns;
        self.costs.dma_ns += nanos(self.dma_time(to.len()));
        self.costs.dma_bytes += to.len() as u64;
        Ok(())
    }

    fn read_chunks(&mut self, at: u64, to: &mut [u8]) -> Result<(), Error> {
        let mut at = at;
        for part in to.chunks_mut(self.options.chunk as usize) {
            let end = Instant::now() + Duration::from_nanos(self.options.setup_ns) + self.dma_time(part.len());
            self.dma(at, part, end)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// The engine fills one buffer while the last ones are worked on, as long as one is free.
    fn ring(&mut self, list: impl Iterator<Item = super::pieces::Piece>, take: Take<'_>) -> Result<(), Error> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut freed: Vec<Instant> = vec![Instant::now(); self.depth as usize];
        let mut idle = Instant::now();
        let mut done = Ok(());
        for (number, one) in list.enumerate() {
            let slot = number % freed.len();
            if freed[slot] > idle && number >= freed.len() {
                self.costs.stalls += 1;
                self.costs.stall_ns += nanos(freed[slot] - idle);
            }
            idle = idle.max(freed[slot]) + self.dma_time(one.len);
            done = self.dma(one.at, &mut buffer[..one.len], idle);
            if done.is_err() || take(&buffer[..one.len]).is_break() {
                break;
            }
            freed[slot] = Instant::now();
        }
        self.buffer = buffer;
        done
    }

    /// Puts the samples of an acquisition that has ended into the memory.
    fn store(&mut self, run: Acquisition) {
        if run.is_stored {
            return;
        }
        let bytes = self.setup.samples * 2;
        let on = (0..CHANNELS).filter(|channel| self.setup.channels >> channel & 1 == 1);
        for (number, channel) in on.enumerate() {
            let (seed, serial) = (self.options.seed, self.options.serial);
            let origin = Origin { seed, serial, acquisition: run.sequence, channel: channel as u8 };
            self.memory.store(number as u64 * bytes, bytes, origin);
        }
        self.run = Some(Acquisition { is_stored: true, ..run });
    }

    fn wait(&mut self, timeout_ms: u32, is_poll: bool) -> Result<End, Error> {
        const WHAT: &str = "wait for the end of the acquisition";
        let run = self.run.ok_or_else(|| self.failed(WHAT, libc::ENODATA))?;
        if self.options.gone_after != 0 && self.dmas >= self.options.gone_after {
            return Err(self.failed(WHAT, libc::ENODEV));
        }
        let limit = Instant::now() + Duration::from_millis(timeout_ms.into());
        let is_lost = !is_poll && self.options.lose != 0 && run.sequence % self.options.lose == 0;
        let mut polls = run.polls;
        let seen = match run.end.filter(|end| *end <= limit) {
            Some(_) if is_lost => limit,
            Some(end) => end,
            None => limit,
        };
        if is_poll {
            while Instant::now() < seen {
                polls += 1;
                std::thread::sleep(Duration::from_micros(1));
            }
            polls += 1;
        } else {
            std::thread::sleep(seen.saturating_duration_since(Instant::now()));
        }
        let run = Acquisition { polls, ..run };
        self.run = Some(run);
        if run.end.is_none_or(|end| end > limit) {
            return Err(self.failed(WHAT, libc::ETIMEDOUT));
        }
        self.store(run);
        self.costs.lost_interrupts += u64::from(is_lost);
        let wakeup_ns = nanos(Instant::now().saturating_duration_since(seen));
        let time_ns = monotonic_ns().saturating_sub(wakeup_ns);
        Ok(End { sequence: run.sequence, time_ns, wakeup_ns, polls, is_interrupt_lost: is_lost })
    }
}

impl Daq for Fake {
    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), Error> {
        self.check(at, to.len() as u64)?;
        self.read_chunks(at, to)
    }

    fn stream(&mut self, span: Span, take: Take<'_>) -> Result<(), Error> {
        let Span { at, bytes, passes, piece } = span;
        self.check(at, bytes)?;
        let list = pieces(at, bytes, passes, whole(piece.min(self.buffer.len()), ALIGN));
        if self.about.access == Access::Ring {
            return self.ring(list, take);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut done = Ok(());
        for one in list {
            done = self.read_chunks(one.at, &mut buffer[..one.len]);
            if done.is_err() || take(&buffer[..one.len]).is_break() {
                break;
            }
        }
        self.buffer = buffer;
        done
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<(), Error> {
        if !self.is_writable {
            return Err(self.failed(&format!("write {} bytes to {at:#x}", from.len()), libc::EBADF));
        }
        self.check(at, from.len() as u64)?;
        self.memory.write(at, from);
        std::thread::sleep(self.dma_time(from.len()));
        Ok(())
    }

    fn costs(&mut self) -> Result<Option<Costs>, Error> {
        Ok(Some(std::mem::take(&mut self.costs)))
    }

    fn digitizer(&mut self) -> Option<&mut dyn Digitizer> {
        Some(self)
    }
}

impl Digitizer for Fake {
    fn setup(&mut self, setup: &Setup) -> Result<u64, Error> {
        const WHAT: &str = "set the acquisition up";
        if self.options.busy {
            return Err(self.failed(WHAT, libc::EBUSY));
        }
        let block = self.options.model.block_samples();
        let samples = setup.samples.max(1).checked_next_multiple_of(block).unwrap_or(u64::MAX);
        let channels = u64::from(setup.channels.count_ones());
        let is_good = setup.channels != 0
            && setup.channels >> CHANNELS == 0
            && setup.samples > 0
            && setup.pretrigger <= 2046
            && setup.divider.is_none_or(|divider| (2..=32).contains(&divider))
            && !matches!(setup.trigger, Trigger::Backplane(8..))
            && samples.checked_mul(2 * channels).is_some_and(|bytes| bytes <= self.options.memory);
        if !is_good {
            return Err(self.failed(WHAT, libc::EINVAL));
        }
        self.setup = Setup { samples, ..*setup };
        self.run = None;
        Ok(samples)
    }

    fn arm(&mut self) -> Result<u64, Error> {
        const WHAT: &str = "arm";
        if self.options.busy {
            return Err(self.failed(WHAT, libc::EBUSY));
        }
        if self.options.gone_after != 0 && self.dmas >= self.options.gone_after {
            return Err(self.failed(WHAT, libc::ENODEV));
        }
        self.acquisitions += 1;
        let period_ns = 1_000_000_000 / self.options.trigger_hz;
        let now_ns = nanos(self.opened.elapsed());
        let begin_ns = match self.setup.trigger {
            Trigger::Now => now_ns,
            Trigger::Backplane(_) => (now_ns / period_ns + 1) * period_ns,
        };
        let sampled_ns = self.setup.samples * u64::from(self.setup.divider.unwrap_or(3)) * 1_000_000_000 / CLOCK_HZ;
        let end = self.opened + Duration::from_nanos(begin_ns + sampled_ns);
        let end = Some(end).filter(|_| self.acquisitions != self.options.hang);
        self.run = Some(Acquisition { sequence: self.acquisitions, end, is_stored: false, polls: 0 });
        Ok(self.acquisitions)
    }

    fn wait_interrupt(&mut self, timeout_ms: u32) -> Result<End, Error> {
        self.wait(timeout_ms, false)
    }

    fn wait_poll(&mut self, timeout_ms: u32) -> Result<End, Error> {
        self.wait(timeout_ms, true)
    }
}

fn about(path: PathBuf, access: Access, options: &Options) -> About {
    let speed_gts = options.model.speed_gts();
    let bdf: Option<Bdf> = format!("0000:{:02x}:00.0", options.slot).parse().ok();
    let function = Function {
        bdf,
        vendor: 0x1796,
        device: options.model.device(),
        class: 0x118000,
        name: format!("Struck {}", options.model.name()),
        driver: Some("fake".to_owned()),
        link: Some(Link {
            speed_gts,
            width: 4,
            max_speed_gts: speed_gts,
            max_width: 4,
            mps_bytes: Some(256),
            mrrs_bytes: Some(512),
            is_nominal: false,
        }),
        emulated: Some("it is synthetic".to_owned()),
        ..Function::default()
    };
    About {
        path,
        kind: "sis8300",
        model: Some(format!("{} firmware 10.01 serial {}", options.model.name(), options.serial)),
        serial: Some(options.serial),
        access,
        way: vec![function.clone()],
        function: Some(function),
        bytes: Some(options.memory),
        align: ALIGN,
        depth: None,
        notes: vec!["It is synthetic: its figures say nothing about any hardware.".to_owned()],
    }
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests;
