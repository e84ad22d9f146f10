//! Where the server's records come from: counters, as long as there are any, or a file.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use pciescope_bench::counters::{self, Host, Task, Wanted};
use pciescope_core::CpuList;
use pciescope_core::plan::StatPlan;
use pciescope_core::record::Warning;
use pciescope_hw::wait::{Waiter, Woken, now_ns};
use pciescope_hw::{Root, environment, perf, topology};
use pciescope_serve::State;
use pciescope_serve::replay::Step;

use super::LOOK_NS;
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
    /// Counts. Where nothing can be counted it says why, and looks again later: a module may be loaded meanwhile. When a
    /// PMU comes, all counters are opened anew; sums go on where they were. Of what the user named, only what is there is counted.
    pub fn count(&self, wanted: &Wanted) {
        while !self.stop.is_set() {
            let known = perf::present(&self.root);
            match self.run(wanted, known) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    let hint = error.chain().find_map(hint_of);
                    self.state.set_status("none", Some(format!("{error:#}")), hint);
                }
            }
            // An error of this wait comes back at once, and would be a busy loop.
            if !self.stop.is_set() && self.rest(now_ns() + LOOK_NS).is_err() {
                return;
            }
        }
    }

    /// One run of counters, until the program ends, all of them are gone, or there are more (true).
    fn run(&self, wanted: &Wanted, known: BTreeSet<(String, u64)>) -> anyhow::Result<bool> {
        let choice = counters::choose_present(&self.root, wanted)?;
        let absent = choice.absent.clone();
        let plan = StatPlan { interval_ns: Some(self.interval_ns.unwrap_or(1_000_000_000)), ..StatPlan::default() };
        let task = Task { choice, plan, environment: environment::read(&self.root), label: self.label.clone() };
        let root = self.root.clone();
        let state = Arc::clone(&self.state);
        self.state.set_status("counting", None, None);
        let online = topology::online(&root).unwrap_or_default();
        let look = now_ns() + LOOK_NS;
        let mut watch = Watch { feeder: self, wanted, known, online, absent, look, has_more: false };
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

/// Waits for a run of counters, and ends it when there are PMUs, or what the user named, that were not there at its beginning.
struct Watch<'f> {
    feeder: &'f Feeder,
    wanted: &'f Wanted,
    /// Those that were there at the beginning. One that went and came back is another.
    known: BTreeSet<(String, u64)>,
    /// The CPUs that were online at the last look: with one that goes, its events end for good.
    online: CpuList,
    /// What the user named and was not there.
    absent: Vec<Warning>,
    look: u64,
    has_more: bool,
}

impl Watch<'_> {
    /// Whether a PMU came, a CPU, or what was named and not there: a device below a port comes without a PMU of its own.
    fn sees_more(&mut self) -> bool {
        let root = &self.feeder.root;
        let online = topology::online(root).unwrap_or_default();
        let has_new_cpu = !online.minus(&self.online).is_empty();
        self.online = online;
        let is_there = |now: Vec<Warning>| self.absent.iter().any(|before| !now.contains(before));
        has_new_cpu
            || !perf::present(root).is_subset(&self.known)
            || (!self.absent.is_empty() && counters::absent(root, self.wanted).is_ok_and(is_there))
    }
}

impl Host for Watch<'_> {
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn until(&mut self, deadline_ns: Option<u64>) -> io::Result<Woken> {
        loop {
            if self.feeder.stop.is_set() {
                return Ok(Woken::Signal);
            }
            let now = now_ns();
            if now >= self.look {
                self.look = now + LOOK_NS;
                self.has_more = self.sees_more();
                if self.has_more {
                    return Ok(Woken::Signal);
                }
            }
            if deadline_ns.is_some_and(|deadline| now >= deadline) {
                return Ok(Woken::Time);
            }
            self.feeder.waiter.until(Some(deadline_ns.map_or(self.look, |deadline| deadline.min(self.look))))?;
        }
    }
}
