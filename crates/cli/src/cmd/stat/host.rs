//! The command that runs while counters count, and the signals meanwhile.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use pciescope_bench::counters::Host;
use pciescope_hw::wait::{Waiter, Woken, now_ns};
use signal_hook::consts::SIGTERM;

use super::Refusal;
use crate::cmd::{Ctx, ENDING, Stop, wake_on};

/// The signals that end a run, caught once for all its commands.
pub struct Signals {
    stop: Stop,
    /// Kept open: each signal that comes writes to it.
    wake: UnixStream,
}

impl Signals {
    /// Catches signals from now on.
    ///
    /// # Errors
    /// When the kernel refuses the handlers.
    pub fn catch(ctx: &Ctx) -> io::Result<Self> {
        ctx.stop.catch_signals()?;
        let wake = wake_on(&ENDING)?;
        wake.set_nonblocking(true)?;
        Ok(Signals { stop: ctx.stop.clone(), wake })
    }
}

/// The command, or nothing.
pub struct Command<'s> {
    words: Vec<OsString>,
    /// How long it may run, in nanoseconds.
    duration_ns: Option<u64>,
    child: Option<Child>,
    /// When it is ended, on CLOCK_MONOTONIC.
    end_ns: Option<u64>,
    waiter: Waiter,
    signals: &'s Signals,
}

impl<'s> Command<'s> {
    /// Starts nothing.
    ///
    /// # Errors
    /// When too many files are open.
    pub fn new(signals: &'s Signals, words: Vec<OsString>, duration_ns: Option<u64>) -> io::Result<Self> {
        let mut waiter = Waiter::default();
        waiter.watch_signals(OwnedFd::from(signals.wake.try_clone()?));
        Ok(Command { words, duration_ns, child: None, end_ns: None, waiter, signals })
    }

    /// Ends the command, if it still runs. Gives its exit code if it had ended by itself.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn stop(&mut self) -> io::Result<Option<u8>> {
        self.end_ns = Some(0);
        self.finish()
    }

    /// Waits for the command and gives its exit code; `None` where there was none. When its time is over it gets SIGTERM,
    /// as from `perf stat --timeout`; its exit code then says nothing, and the answer is `None` too.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn finish(&mut self) -> io::Result<Option<u8>> {
        let (mut end_ns, mut is_over) = (self.end_ns, false);
        while self.child.is_some() && self.until(end_ns)? != Woken::Child {
            (end_ns, is_over) = (None, true);
            self.child.iter().for_each(|child| tell(child, SIGTERM));
        }
        let Some(mut child) = self.child.take() else { return Ok(None) };
        let status = child.wait()?;
        Ok((!is_over).then(|| code(status)))
    }
}

/// As shells have it: the exit code, or 128 and the signal.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(u8::MAX)
}

fn tell(child: &Child, signal: i32) {
    // It may have ended meanwhile.
    let _ = pciescope_hw::wait::signal(child, signal);
}

impl Host for Command<'_> {
    fn begin(&mut self) -> io::Result<()> {
        let Some((program, arguments)) = self.words.split_first() else { return Ok(()) };
        let child = std::process::Command::new(program)
            .args(arguments)
            .spawn()
            .map_err(|err| io::Error::new(err.kind(), Refusal::of_command(&err)))?;
        self.waiter.watch_child(&child)?;
        self.end_ns = self.duration_ns.map(|ns| now_ns().saturating_add(ns));
        // A signal from before the start has not reached the command, whoever sent it.
        let sent = self.signals.stop.take_sent();
        if let Some(signal) = sent.or(self.signals.stop.signal()) {
            tell(&child, i32::from(signal));
        }
        self.child = Some(child);
        Ok(())
    }

    fn until(&mut self, deadline_ns: Option<u64>) -> io::Result<Woken> {
        loop {
            match self.waiter.until(deadline_ns)? {
                Woken::Signal if self.signals.stop.is_set() => match &self.child {
                    // The run ends with the command: what it does until then is counted.
                    Some(child) => {
                        let mut byte = [0; 64];
                        let _ = io::Read::read(&mut &self.signals.wake, &mut byte);
                        // The terminal has sent its own to the command as well.
                        if let Some(signal) = self.signals.stop.take_sent() {
                            tell(child, i32::from(signal));
                        }
                    }
                    None => return Ok(Woken::Signal),
                },
                // A signal that does not end the run, such as that of a stopped and continued terminal.
                Woken::Signal => {}
                other => return Ok(other),
            }
        }
    }
}
