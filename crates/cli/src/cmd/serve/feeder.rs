//! The source of the server's records: counters, or a file.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use pciescope_bench::counters::{self, Host, Origin, Task, Wanted};
use pciescope_core::CpuList;
use pciescope_core::plan::StatPlan;
use pciescope_core::record::Warning;
use pciescope_hw::wait::{Waiter, Woken, now_ns};
use pciescope_hw::{Root, account, environment, perf, topology};
use pciescope_serve::State;
use pciescope_serve::replay::Step;

use super::REFRESH_NS;
use crate::cmd::{Stop, hint_of};

/// Hands records to the server's state until the program is to end.
pub struct Feeder {
    pub root: Root,
    pub state: Arc<State>,
    pub stop: Stop,
    pub waiter: Waiter,
    pub label: Option<String>,
    /// As it was typed.
    pub interval_ns: Option<u64>,
}

impl Feeder {
    /// Counts. Where nothing can be counted, the status says why, and the next refresh tries again: a module may have been
    /// loaded. When a PMU appears, all counters are opened again and the sums continue. Named ports and PMUs that are absent
    /// are skipped; they are added when they appear.
    pub fn count(&self, wanted: &Wanted) {
        while !self.stop.is_set() {
            let known = present(&self.root, wanted.origin);
            match self.run(wanted, known) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    let hint = error.chain().find_map(hint_of);
                    self.state.set_status("none", Some(format!("{error:#}")), hint);
                }
            }
            // An error would return at once each time: a busy loop.
            if !self.stop.is_set() && self.rest(now_ns() + REFRESH_NS).is_err() {
                return;
            }
        }
    }

    /// One run of counters, until the program ends or all PMUs are gone (false), or until there is more to count (true).
    fn run(&self, wanted: &Wanted, known: BTreeSet<(String, u64)>) -> anyhow::Result<bool> {
        let choice = counters::choose_present(&self.root, wanted)?;
        let absent = choice.absent.clone();
        let plan = StatPlan { interval_ns: Some(self.interval_ns.unwrap_or(1_000_000_000)), ..StatPlan::default() };
        let task = Task { choice, plan, environment: environment::read(&self.root), label: self.label.clone() };
        let root = self.root.clone();
        let state = Arc::clone(&self.state);
        self.state.set_status("counting", None, None);
        let online = topology::online(&root).unwrap_or_default();
        let refresh_ns = now_ns() + REFRESH_NS;
        let mut watch = Watch { feeder: self, wanted, known, online, absent, refresh_ns, has_more: false };
        let summary = counters::measure(&root, task, &mut watch, &mut &*state)?;
        match summary.failures.last().filter(|_| !watch.has_more && !watch.feeder.stop.is_set()) {
            Some(failure) => anyhow::bail!("{}", failure.text),
            None => Ok(watch.has_more),
        }
    }

    /// Waits until a time or a signal.
    fn rest(&self, until_ns: u64) -> io::Result<()> {
        while !self.stop.is_set() && now_ns() < until_ns {
            self.waiter.until(Some(until_ns))?;
        }
        Ok(())
    }

    /// Shows the records of a file, one interval after the other.
    pub fn replay(&self, steps: &[Step]) {
        self.state.set_status("replaying", None, None);
        for step in steps {
            self.state.put_all(&step.records);
            let is_first = step.lasts.is_zero();
            let lasts = self.interval_ns.filter(|_| !is_first).unwrap_or(step.lasts.as_nanos() as u64);
            if self.stop.is_set() || self.rest(now_ns().saturating_add(lasts)).is_err() {
                return;
            }
        }
        self.state.set_status("ended", Some("the file is at its end".to_owned()), None);
    }
}

/// What counts on this machine, each with the inode of its folder: PMUs, and functions with the kernel's accounts.
fn present(root: &Root, origin: Origin) -> BTreeSet<(String, u64)> {
    let mut all = if origin == Origin::Kernel { BTreeSet::new() } else { perf::present(root) };
    if origin != Origin::Hardware {
        all.append(&mut account::present(root));
    }
    all
}

/// Waits for a run of counters, and ends it when a PMU or a CPU appears, or something that the user named appears or goes.
struct Watch<'f> {
    feeder: &'f Feeder,
    wanted: &'f Wanted,
    /// The PMUs that were there at the beginning, and still are.
    known: BTreeSet<(String, u64)>,
    /// The CPUs online at the last refresh. The events of a CPU that goes offline end for good.
    online: CpuList,
    /// What the user named and was absent.
    absent: Vec<Warning>,
    /// When the next refresh is due.
    refresh_ns: u64,
    has_more: bool,
}

impl Watch<'_> {
    /// Whether a PMU or a CPU has appeared, or something that was named has appeared or gone. A device below a port appears
    /// without a PMU of its own.
    fn sees_more(&mut self) -> bool {
        let root = &self.feeder.root;
        let online = topology::online(root).unwrap_or_default();
        let has_new_cpu = !online.minus(&self.online).is_empty();
        self.online = online;
        // One whose device goes is forgotten: it may come back as the same while somebody else has events of it.
        let present = present(root, self.wanted.origin);
        let has_lost = !self.known.is_subset(&present);
        self.known.retain(|one| present.contains(one));
        has_new_cpu
            || present != self.known
            || ((has_lost || !self.absent.is_empty()) && counters::absent(root, self.wanted) != self.absent)
    }
}

impl Host for Watch<'_> {
    fn until(&mut self, deadline_ns: Option<u64>) -> io::Result<Woken> {
        loop {
            if self.feeder.stop.is_set() {
                return Ok(Woken::Signal);
            }
            let now = now_ns();
            if now >= self.refresh_ns {
                self.refresh_ns = now + REFRESH_NS;
                self.has_more = self.sees_more();
                if self.has_more {
                    return Ok(Woken::Signal);
                }
            }
            if deadline_ns.is_some_and(|deadline| now >= deadline) {
                return Ok(Woken::Time);
            }
            self.feeder
                .waiter
                .until(Some(deadline_ns.map_or(self.refresh_ns, |deadline| deadline.min(self.refresh_ns))))?;
        }
    }
}
