//! The command that runs while counters count, and the signals meanwhile.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use pciescope_bench::counters::Host;
use pciescope_hw::wait::{Waiter, Woken};

use super::Refusal;
use crate::cmd::{Ctx, ENDING, Stop, wake_on};

/// The command, or nothing.
pub struct Command {
    words: Vec<OsString>,
    child: Option<Child>,
    waiter: Waiter,
    stop: Stop,
    /// Kept open: each signal that comes writes to it.
    wake: UnixStream,
    is_told: bool,
}

impl Command {
    /// Catches signals from now on; starts nothing.
    ///
    /// # Errors
    /// When the kernel refuses the handlers.
    pub fn new(ctx: &Ctx, words: Vec<OsString>) -> anyhow::Result<Self> {
        ctx.stop.catch_signals()?;
        let wake = wake_on(&ENDING)?;
        wake.set_nonblocking(true)?;
        let mut waiter = Waiter::default();
        waiter.watch_signals(OwnedFd::from(wake.try_clone()?));
        Ok(Command { words, child: None, waiter, stop: ctx.stop.clone(), wake, is_told: false })
    }

    /// Waits for the command and gives its exit code; `None` where there was none.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn finish(&mut self) -> io::Result<Option<u8>> {
        let Some(mut child) = self.child.take() else { return Ok(None) };
        if !self.is_told && self.stop.is_set() {
            tell(&child, &self.stop);
        }
        child.wait().map(|status| Some(code(status)))
    }
}

/// As shells have it: the exit code, or 128 and the signal.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Hands the signal on to the command. A terminal has sent Ctrl-C to it already; a second one changes nothing.
fn tell(child: &Child, stop: &Stop) {
    if let Some(signal) = stop.signal() {
        // It may have ended meanwhile.
        let _ = pciescope_hw::wait::signal(child, i32::from(signal));
    }
}

impl Host for Command {
    fn begin(&mut self) -> io::Result<()> {
        let Some((program, arguments)) = self.words.split_first() else { return Ok(()) };
        let child = std::process::Command::new(program)
            .args(arguments)
            .spawn()
            .map_err(|err| io::Error::new(err.kind(), Refusal::of_command(&err)))?;
        self.waiter.watch_child(&child)?;
        self.child = Some(child);
        Ok(())
    }

    fn until(&mut self, deadline_ns: Option<u64>) -> io::Result<Woken> {
        loop {
            match self.waiter.until(deadline_ns)? {
                Woken::Signal if self.stop.is_set() => match &self.child {
                    // The run ends with the command: what it does until then is counted.
                    Some(child) => {
                        let mut byte = [0; 64];
                        let _ = io::Read::read(&mut &self.wake, &mut byte);
                        tell(child, &self.stop);
                        self.is_told = true;
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
