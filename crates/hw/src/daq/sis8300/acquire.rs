//! Acquisitions by our driver, with the wait by polling that any driver of the family can serve.

use std::io;
use std::time::{Duration, Instant};

use super::uapi::{
    Arm, End as UapiEnd, SIS8300_CLOCK_INTERNAL, SIS8300_CLOCK_KEEP, SIS8300_IOC_ARM, SIS8300_IOC_DISARM,
    SIS8300_IOC_SETUP, SIS8300_IOC_WAIT_END, SIS8300_TRIGGER_MLVDS, SIS8300_TRIGGER_NOW, Setup as UapiSetup,
};
use super::{Board, CONTROL, call};
use crate::Error;
use crate::daq::{Digitizer, End, Setup, Trigger};
use crate::probe::sys;

/// Of [`CONTROL`]: sampling (bit 0), armed (1), logic busy (4), FIFO not empty (5). The seed's tool looks at the first two
/// alone, and so may read before the last samples have reached the memory.
pub const AT_WORK: u32 = 0x33;
/// What a board that is gone reads as.
pub const GONE: u32 = u32::MAX;
/// Of the lab's boards: acquisitions begun, and what tells such a board; docs/spec/sis8300.md.
const LAB_BEGUN: u32 = 0x4fe;
const LAB: u32 = 0x4ff;
const LAB_BOARD: u32 = 0x5c1e_8300;
/// Between two looks, as the seed's tool does.
const PAUSE: Duration = Duration::from_micros(1);

const RANGES: &str = "channels are 0 to 9, the samples of all fit into its memory, at most 2046 lie before the trigger, the \
                      divider is 2 to 32, backplane lines are 0 to 7";

const WAIT: &str = "wait for the end of its acquisition";

impl Digitizer for Board {
    fn setup(&mut self, setup: &Setup) -> Result<u64, Error> {
        if self.info.is_none() {
            return super::ess::setup(self, setup);
        }
        if self.armed > 0 {
            // What was waited for by polling is still under way for a driver that missed the interrupt.
            // SAFETY: the request has no argument.
            let _ = unsafe { sys::ioctl(&self.opened.file, SIS8300_IOC_DISARM, &mut 0u64) };
        }
        let mut to = to_uapi(setup);
        // SAFETY: the request's argument is this structure, which holds no address.
        let done = unsafe { call(&self.opened, SIS8300_IOC_SETUP, &mut to, &format!("be set up ({setup:?})")) };
        match done {
            Err(Error::Source { path, what, source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
                Err(Error::Source { path, what, source, hint: Some(RANGES.to_owned()) })
            }
            done => done.map(|()| to.samples),
        }
    }

    fn arm(&mut self) -> Result<u64, Error> {
        if self.info.is_none() {
            return super::ess::arm(self);
        }
        let mut arm = Arm { size: size_of::<Arm>() as u32, ..Arm::default() };
        // SAFETY: the request's argument is this structure, which holds no address.
        unsafe { call(&self.opened, SIS8300_IOC_ARM, &mut arm, "arm")? };
        (self.armed, self.polls) = (arm.sequence, 0);
        Ok(arm.sequence)
    }

    fn wait_interrupt(&mut self, timeout_ms: u32) -> Result<End, Error> {
        if self.info.is_none() {
            return super::ess::wait(self, timeout_ms);
        }
        let limit = Instant::now() + Duration::from_millis(timeout_ms.into());
        loop {
            let left = limit.saturating_duration_since(Instant::now()).as_millis().max(1) as u32;
            let mut end = UapiEnd { size: size_of::<UapiEnd>() as u32, timeout_ms: left, ..UapiEnd::default() };
            // SAFETY: the request's argument is this structure, which holds no address.
            match unsafe { sys::ioctl(&self.opened.file, SIS8300_IOC_WAIT_END, &mut end) } {
                Ok(_) => {
                    return Ok(End {
                        sequence: end.sequence,
                        time_ns: end.time_ns,
                        wakeup_ns: end.wakeup_ns,
                        // The driver polls where it misses interrupts; of a wait that times out it does not say how often.
                        polls: self.polls + u64::from(end.polls),
                        is_interrupt_lost: end.lost_interrupt != 0,
                    });
                }
                // A signal takes nothing of the time.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.opened.failed(WAIT.to_owned(), error)),
            }
        }
    }

    fn wait_poll(&mut self, timeout_ms: u32) -> Result<End, Error> {
        let limit = Instant::now() + Duration::from_millis(timeout_ms.into());
        if self.armed == 0 {
            let error = io::Error::from_raw_os_error(libc::ENODATA);
            return Err(self.opened.failed(WAIT.to_owned(), error));
        }
        loop {
            let is_last = Instant::now() >= limit;
            let status = self.register(CONTROL)?;
            self.polls += 1;
            let errno = match status {
                GONE => libc::ENODEV,
                status if status & AT_WORK == 0 => {
                    self.is_left_armed = false;
                    let (sequence, polls) = (self.armed, self.polls);
                    return Ok(End { sequence, time_ns: now_ns(), polls, ..End::default() });
                }
                _ if is_last => libc::ETIMEDOUT,
                _ => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
            };
            let error = io::Error::from_raw_os_error(errno);
            return Err(self.opened.failed(WAIT.to_owned(), error));
        }
    }

    fn begun(&mut self) -> Result<Option<u64>, Error> {
        match self.register(LAB)? {
            LAB_BOARD => Ok(Some(self.register(LAB_BEGUN)?.into())),
            _ => Ok(None),
        }
    }
}

/// What the driver is asked for.
pub fn to_uapi(setup: &Setup) -> UapiSetup {
    let (clock, divider) = match setup.divider {
        Some(divider) => (SIS8300_CLOCK_INTERNAL, divider),
        None => (SIS8300_CLOCK_KEEP, 0),
    };
    let (trigger, trigger_lines) = match setup.trigger {
        Trigger::Now => (SIS8300_TRIGGER_NOW, 0),
        // The driver refuses a line that does not exist.
        Trigger::Backplane(line) => (SIS8300_TRIGGER_MLVDS, 1u32.checked_shl(line.into()).unwrap_or(1 << 31)),
    };
    UapiSetup {
        size: size_of::<UapiSetup>() as u32,
        channels: setup.channels.into(),
        samples: setup.samples,
        pretrigger: setup.pretrigger,
        clock,
        divider,
        trigger,
        trigger_lines,
        ..UapiSetup::default()
    }
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
