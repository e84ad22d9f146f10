//! Where the time goes, hop by hop: configuration reads from the root port down.

use pciescope_core::record::Target;
use pciescope_core::warning;
use pciescope_core::{Order, Outcome, PathPlan};
use pciescope_hw::probe::{Probe, Sampled, Slice, Watch};

use crate::error::Error;
use crate::run::Run;
use crate::schedule::{Experiment, Schedule};

/// Measures `plan` and writes one record per CPU and hop; hop 0 is the root port.
///
/// # Errors
/// [`Error::Probe`] if nothing could be measured (a record says so too), [`Error::Sink`] and [`Error::Raw`].
pub fn measure(plan: &PathPlan, probe: &mut dyn Probe, run: &mut Run<'_>) -> Result<(), Error> {
    // Off x86, Linux takes `pci_lock` for each of them.
    let is_serial = run.is_arm && plan.order == Order::Concurrent && plan.cpus.len() > 1;
    let (cpus, order, count, why) = (&plan.cpus, plan.order, plan.count, plan.why.as_ref());
    let schedule = Schedule { cpus, order, count, duration_ns: 0, raw: false, why };
    schedule.run(run, &mut Hops { plan, is_serial, probe })
}

struct Hops<'p> {
    plan: &'p PathPlan,
    /// The kernel lets one CPU at a time read.
    is_serial: bool,
    probe: &'p mut dyn Probe,
}

impl Experiment for Hops<'_> {
    fn test(&self, _: usize) -> &'static str {
        "config-read"
    }

    fn target(&self, outcome: &Outcome) -> Target {
        Target {
            offset: Some(u64::from(self.plan.offset)),
            width: Some(4),
            hop: Some(outcome.index),
            hop_bdf: Some(outcome.hop.unwrap_or(self.plan.bdf)),
            ..Target::default()
        }
    }

    fn call(&mut self, _: usize, slice: &Slice, watch: &dyn Watch) -> Result<Option<Sampled>, pciescope_hw::Error> {
        self.probe.path(self.plan, slice, watch).map(Some)
    }

    fn complete(&self, outcomes: &mut [(usize, Outcome)]) {
        for (_, outcome) in outcomes.iter_mut().filter(|_| self.is_serial) {
            outcome.warnings.push(warning::SERIALIZED.warn("the kernel lets one CPU at a time read configuration space on this architecture: the wait for the others is in the figures"));
        }
    }
}
