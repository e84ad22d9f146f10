//! Uses the node of the ESS driver: registers, reads, and the wait for the interrupt.
//!
//! This code does not program the clock chips: the setup has to keep the clock. It was not tested with that driver; its
//! ioctls were tested on our driver's node, which has them too.

use std::io;
use std::time::{Duration, Instant};

use super::acquire::{AT_WORK, GONE, now_ns};
use super::uapi::{SIS8300_WAIT, SIS8300_WAIT_DAQ, SIS8300_WAIT_OK, SIS8300_WAIT_RELEASED, SIS8300_WAIT_TIMEOUT, Wait};
use super::{Board, CONTROL, FIRMWARE_OPTIONS, ID, OPTION_GIBIBYTE, SERIAL, call, model, register};
use crate::Error;
use crate::daq::opened::Opened;
use crate::daq::{End, Setup, Trigger};

// Registers, by word number; docs/spec/sis8300.md.
const SAMPLE_CONTROL: u32 = 0x11;
const BACKPLANE: u32 = 0x12;
const START_BLOCK: u32 = 0x120;
const LENGTH: u32 = 0x12a;
const PRETRIGGER: u32 = 0x12b;

const CHANNELS: u32 = 10;
const EXTERNAL_TRIGGER: u32 = 1 << 11;
const START_NOW: u32 = 1;
const START_ARMED: u32 = 2;
/// For the control register: no more sampling.
pub const STOP: u32 = 4;
const PRETRIGGER_MAX: u32 = 2046;
/// Until what was stopped has come to rest.
const REST: Duration = Duration::from_secs(1);

/// What the registers tell of the board.
pub fn describe(opened: &mut Opened) -> Result<(), Error> {
    let (id, serial) = (register(opened, ID)?, register(opened, SERIAL)?);
    if id == GONE {
        return Err(opened.failed("read a register".to_owned(), io::Error::from_raw_os_error(libc::ENODEV)));
    }
    opened.about.model = Some(model(id, serial));
    opened.about.serial = Some(serial & 0xffff);
    opened.about.bytes = Some(match id >> 16 {
        0x8300 if register(opened, FIRMWARE_OPTIONS)? & OPTION_GIBIBYTE == 0 => 512 << 20,
        0x8300 => 1 << 30,
        _ => 2 << 30,
    });
    opened
        .about
        .notes
        .push("Its driver is that of ESS: times of DMA, wake-up and copy are not known apart.".to_owned());
    Ok(())
}

/// Sets the board up by its registers; the clock stays as it is.
pub fn setup(board: &mut Board, setup: &Setup) -> Result<u64, Error> {
    let refuse = |why: &str, hint: Option<&str>| {
        board.opened.lacks(format!("be set up ({setup:?})"), why.to_owned(), hint.map(str::to_owned))
    };
    if setup.divider.is_some() {
        let hint = "set the clock with its own tools and keep it, or load pciescope's driver";
        return Err(refuse(
            "its driver is that of ESS, and pciescope cannot set the clock through this driver",
            Some(hint),
        ));
    }
    let is_ku = board.register(ID)? >> 16 == 0x8303;
    let block = if is_ku { 32 } else { 16 };
    let on = u64::from(setup.channels.count_ones());
    let samples = setup.samples.checked_next_multiple_of(block).unwrap_or(u64::MAX);
    let bytes = samples.checked_mul(2 * on);
    if on == 0 || setup.channels >> CHANNELS != 0 {
        return Err(refuse("its channels are 0 to 9, at least one", None));
    }
    if setup.samples == 0 || bytes.is_none_or(|bytes| bytes > board.opened.about.bytes.unwrap_or(0)) {
        return Err(refuse("so many samples do not fit into its memory", None));
    }
    if setup.pretrigger > PRETRIGGER_MAX {
        return Err(refuse("at most 2046 samples lie before the trigger", None));
    }
    let (control, lines) = match setup.trigger {
        Trigger::Now => (0, None),
        Trigger::Backplane(line @ 0..8) => (EXTERNAL_TRIGGER, Some(1u32 << line)),
        Trigger::Backplane(_) => return Err(refuse("the backplane has lines 0 to 7", None)),
    };
    stop(board)?;
    if let Some(lines) = lines {
        let outputs = board.register(BACKPLANE)? & 0xffff_0000;
        board.set_register(BACKPLANE, outputs | lines << 8)?;
    }
    let blocks = (samples / 16) as u32;
    let mut start = 0;
    for channel in (0..CHANNELS).filter(|channel| setup.channels >> channel & 1 == 1) {
        board.set_register(START_BLOCK + channel, start)?;
        start += blocks;
    }
    board.set_register(LENGTH, blocks - 1)?;
    board.set_register(PRETRIGGER, setup.pretrigger)?;
    board.set_register(SAMPLE_CONTROL, control | !u32::from(setup.channels) & 0x3ff)?;
    Ok(samples)
}

/// Arms, or starts where nothing is to trigger it.
pub fn arm(board: &mut Board) -> Result<u64, Error> {
    stop(board)?;
    board.is_left_armed = true;
    let is_triggered = board.register(SAMPLE_CONTROL)? & (EXTERNAL_TRIGGER | EXTERNAL_TRIGGER >> 1) != 0;
    board.set_register(CONTROL, if is_triggered { START_ARMED } else { START_NOW })?;
    (board.armed, board.polls) = (board.armed + 1, 0);
    Ok(board.armed)
}

fn stop(board: &Board) -> Result<(), Error> {
    board.set_register(CONTROL, STOP)?;
    let stopped = at_rest(Instant::now() + REST, || board.register(CONTROL))?;
    stopped.map_err(|errno| board.opened.failed("stop".to_owned(), io::Error::from_raw_os_error(errno)))
}

/// Reads the status until the board is at rest, at least once; ENODEV if the board is gone, ETIMEDOUT after the limit.
fn at_rest(limit: Instant, mut status: impl FnMut() -> Result<u32, Error>) -> Result<Result<(), i32>, Error> {
    loop {
        let is_last = Instant::now() >= limit;
        match status()? {
            GONE => return Ok(Err(libc::ENODEV)),
            status if status & AT_WORK == 0 => return Ok(Ok(())),
            _ if is_last => return Ok(Err(libc::ETIMEDOUT)),
            _ => {}
        }
    }
}

/// Waits for the interrupt by the driver's own call. It forgets, as it begins, an end that came before: then the register
/// tells.
pub fn wait(board: &mut Board, timeout_ms: u32) -> Result<End, Error> {
    let mut wait = Wait { timeout_ms: timeout_ms.max(1), r#type: SIS8300_WAIT_DAQ, status: 0 };
    let what = "wait for the end of its acquisition".to_owned();
    // SAFETY: the request's argument is this structure, which holds no address.
    unsafe { call(&board.opened, SIS8300_WAIT, &mut wait, &what)? };
    // The interrupt comes when sampling ends: the last samples may be in the FIFO still.
    let rest = if wait.status == SIS8300_WAIT_OK { REST } else { Duration::ZERO };
    let end = match wait.status {
        SIS8300_WAIT_OK | SIS8300_WAIT_TIMEOUT => at_rest(Instant::now() + rest, || {
            board.polls += 1;
            board.register(CONTROL)
        })?,
        SIS8300_WAIT_RELEASED => Err(libc::ENODEV),
        _ => Err(libc::EIO),
    };
    if let Err(errno) = end {
        return Err(board.opened.failed(what, io::Error::from_raw_os_error(errno)));
    }
    board.is_left_armed = false;
    let is_interrupt_lost = wait.status == SIS8300_WAIT_TIMEOUT;
    let (sequence, polls) = (board.armed, board.polls);
    Ok(End { sequence, time_ns: now_ns(), polls, is_interrupt_lost, ..End::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `at_rest` makes of these values, one a look, the last for ever; with the number of looks.
    fn looked(limit: Instant, values: &[u32]) -> (Result<(), i32>, usize) {
        let mut looks = 0;
        let look = || {
            looks += 1;
            Ok(values[(looks - 1).min(values.len() - 1)])
        };
        (at_rest(limit, look).unwrap(), looks)
    }

    #[test]
    fn an_acquisition_is_over_when_its_last_samples_have_left_the_fifo() {
        let now = Instant::now();
        let later = now + Duration::from_secs(60);
        // Logic busy and FIFO not empty (0x30), FIFO not empty (0x20); 0x80 is the memory, which is ready.
        assert_eq!(looked(later, &[0x30, 0x20, 0x20, 0x80]), (Ok(()), 4));
        assert_eq!(looked(later, &[0x20, GONE]), (Err(libc::ENODEV), 2));
        // At the limit it looks once.
        assert_eq!(looked(now, &[0]), (Ok(()), 1));
        assert_eq!(looked(now, &[0x20, 0]), (Err(libc::ETIMEDOUT), 1));
    }
}
