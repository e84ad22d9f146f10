//! What hardware and the kernel count at the root ports while `--watch` waits.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use pciescope_bench::counters::{self, Host, Task, Wanted};
use pciescope_core::Record;
use pciescope_core::plan::StatPlan;
use pciescope_hw::doctor::Counted;
use pciescope_hw::environment;
use pciescope_hw::wait::{Waiter, Woken};
use pciescope_report::jsonl;

use super::Ctx;
use crate::cmd::{ENDING, Stop, wake_on};

/// Where a recorded tree has the records of `stat` that were written at the same time.
const RECORDED: &str = "/counted.jsonl";

/// Waits for times, and for the signals that end the program.
pub struct Wait {
    /// What wakes it up.
    pub waiter: Waiter,
    signals: UnixStream,
    /// Set by a signal that ends the program.
    pub stop: Stop,
}

impl Wait {
    /// Signals must be caught already.
    ///
    /// # Errors
    /// When the kernel refuses the handlers.
    pub fn new(ctx: &Ctx) -> io::Result<Self> {
        let (mut waiter, signals) = (Waiter::default(), wake_on(&ENDING)?);
        signals.set_nonblocking(true)?;
        waiter.watch_signals(signals.try_clone()?.into());
        Ok(Wait { waiter, signals, stop: ctx.stop.clone() })
    }

    /// Waits until a time or any signal.
    ///
    /// # Errors
    /// As [`Waiter::until`].
    pub fn woken(&mut self, deadline_ns: Option<u64>) -> io::Result<Woken> {
        // One that ends the program ends every wait, the next one too.
        if self.stop.is_set() {
            return Ok(Woken::Signal);
        }
        let woken = self.waiter.until(deadline_ns)?;
        // What told of it is taken, so that the next wait is one. Nothing is there where the call was interrupted.
        let _ = self.signals.read(&mut [0; 64]);
        Ok(woken)
    }
}

impl Host for Wait {
    fn until(&mut self, deadline_ns: Option<u64>) -> io::Result<Woken> {
        loop {
            match self.woken(deadline_ns)? {
                // One that does not end the program, such as that of a stopped and continued terminal.
                Woken::Signal if !self.stop.is_set() => {}
                other => return Ok(other),
            }
        }
    }
}

/// Counts for a time, or until a signal; `None` where nothing could be counted, without having waited.
pub fn count(ctx: &Ctx, ns: u64, host: &mut Wait) -> Option<Vec<Counted>> {
    let metrics = ["rx_bytes_per_s", "tx_bytes_per_s"].map(str::to_owned).into();
    let choice = counters::choose(&ctx.root, &Wanted { metrics, ..Wanted::default() }).ok()?;
    // Without hardware counters of a port there is nothing to compare.
    choice.panels.iter().find(|panel| panel.scope == "port" && panel.source.is_none())?;
    let plan = StatPlan { duration_ns: Some(ns), ..StatPlan::default() };
    let task = Task { choice, plan, environment: environment::read(&ctx.root), label: None };
    let mut kept = Vec::<Record>::new();
    counters::measure(&ctx.root, task, host, &mut kept).ok()?;
    Some(counters::beside(&kept))
}

/// What a recorded tree has of it.
pub fn recorded(ctx: &Ctx) -> Option<Vec<Counted>> {
    let path = ctx.root.path(RECORDED);
    path.exists().then(|| jsonl::read_records(&path).ok()).flatten().map(|read| counters::beside(&read.records))
}
