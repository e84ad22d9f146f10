//! Where the time goes, hop by hop: configuration reads from the root port down.

use pciescope_core::record::{Target, Warning};
use pciescope_core::{Order, PathPlan};
use pciescope_hw::probe::Probe;

use crate::portion::Course;
use crate::run::{Error, Run};

/// Measures `plan` and writes one record per CPU and hop; hop 0 is the root port.
///
/// # Errors
/// [`Error::Probe`] if nothing could be measured (a record says so too), [`Error::Sink`] and [`Error::Raw`].
pub fn measure(plan: &PathPlan, probe: &mut dyn Probe, run: &mut Run<'_>) -> Result<(), Error> {
    // Off x86, Linux takes `pci_lock` for each of them.
    let is_serial = run.is_arm && plan.order == Order::Concurrent && plan.cpus.len() > 1;
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
        complete: &|outcome, _| {
            outcome.warnings.extend(is_serial.then(|| Warning {
                code: "serialized".to_owned(),
                text: "the kernel lets one CPU at a time read configuration space on this architecture: the wait for the others is in the figures"
                    .to_owned(),
                hint: "leave out --order concurrent".to_owned(),
            }));
        },
    };
    course.run(run, &mut |portion, watch| probe.path(plan, portion, watch))
}
