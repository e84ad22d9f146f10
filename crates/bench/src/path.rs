//! Where the time goes, hop by hop: configuration reads from the root port down.

use pciescope_core::PathPlan;
use pciescope_core::record::Target;
use pciescope_hw::probe::Probe;

use crate::portion::Course;
use crate::run::{Error, Run};

/// Measures `plan` and writes one record per CPU and hop; hop 0 is the root port.
///
/// # Errors
/// [`Error::Probe`] if nothing could be measured (a record says so too), [`Error::Sink`] and [`Error::Raw`].
pub fn measure(plan: &PathPlan, probe: &mut dyn Probe, run: &mut Run<'_>) -> Result<(), Error> {
    let course = Course {
        test: "config-read",
        cpus: &plan.cpus,
        order: plan.order,
        count: plan.count,
        duration_ns: 0,
        target: &|outcome| Target {
            offset: Some(u64::from(plan.offset)),
            width: Some(4),
            hop: Some(outcome.index),
            hop_bdf: Some(outcome.hop.unwrap_or(plan.bdf)),
            ..Target::default()
        },
        complete: &|_, _| {},
    };
    course.run(run, &mut |portion, watch| probe.path(plan, portion, watch))
}
