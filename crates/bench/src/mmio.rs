//! Register latency from every CPU.

use pciescope_core::warning;
use std::collections::BTreeMap;

use pciescope_core::outcome::LATENCY;
use pciescope_core::record::{BarOffset, Failure, Metric, Target, Warning};
use pciescope_core::{MmioPlan, MmioTest, Order, Outcome, PathPlan};
use pciescope_hw::floor;
use pciescope_hw::probe::{Probe, Sampled, Slice, Watch};
use pciescope_hw::registers::{self, SafeRegister};

use crate::error::Error;
use crate::run::Run;
use crate::schedule::{Experiment, Schedule, SliceWatch, slices};
use pciescope_core::text::chain;

/// Configuration reads of the parent bridge per CPU: enough for a median, short beside the run.
const PARENT_READS: u64 = 100;
/// The first offset that goes by ECAM on x86.
const ECAM_OFFSET: u16 = 0x100;

/// Measures `plan` and writes one record per CPU.
///
/// Reads the target twice beforehand (`check_reads` in the records): a value that is all-ones ends the run before it
/// begins, one that changes or is not what the table expects is a warning. Configuration reads of the bridge above
/// give `parent_config_rtt_ns`, where the probe can take them.
///
/// # Errors
/// [`Error::Probe`] if nothing could be measured (a record says so too), [`Error::Sink`] and [`Error::Raw`].
pub fn measure(plan: &MmioPlan, probe: &mut dyn Probe, run: &mut Run<'_>) -> Result<(), Error> {
    let test = plan.test.name();
    let safe = registers::safe_read(&run.function, plan.bar, plan.offset, plan.width);
    let register = safe.filter(|_| plan.test == MmioTest::Read);
    let check = match check_target(plan, register.as_ref(), probe) {
        Ok(check) => check,
        Err(err) => return Err(run.refuse(test, err)),
    };
    if let Some(failure) = check.failure {
        return run.put_failure(test, failure);
    }
    let parent = Parent::measure(plan, probe, run);
    let floors = floors(plan, run);
    let target = Target {
        bar: Some(plan.bar),
        offset: Some(plan.offset),
        width: Some(plan.width),
        name: register.map(|register| register.name.to_owned()),
        ..Target::default()
    };
    let schedule = Schedule {
        cpus: &plan.cpus,
        order: plan.order,
        count: plan.count,
        duration_ns: plan.duration_ns,
        raw: plan.raw,
        why: plan.why.as_ref(),
    };
    schedule.run(run, &mut Accesses { plan, target, check, parent, floors, probe })
}

struct Accesses<'p> {
    plan: &'p MmioPlan,
    target: Target,
    check: TargetCheck,
    parent: Parent,
    floors: BTreeMap<String, Metric>,
    probe: &'p mut dyn Probe,
}

impl Experiment for Accesses<'_> {
    fn test(&self, _: usize) -> &'static str {
        self.plan.test.name()
    }

    fn target(&self, _: &Outcome) -> Target {
        self.target.clone()
    }

    fn call(&mut self, _: usize, slice: &Slice, watch: &dyn Watch) -> Result<Option<Sampled>, pciescope_hw::Error> {
        let mut sampled = self.probe.mmio(self.plan, slice, watch)?;
        sampled.method.notes.extend(self.parent.note.clone());
        Ok(Some(sampled))
    }

    fn complete(&self, outcomes: &mut [(usize, Outcome)]) {
        for (_, outcome) in outcomes {
            outcome.metrics.extend(self.floors.clone());
            outcome.metrics.insert("check_reads".to_owned(), Metric::count(self.check.reads));
            if let Some(rtt_ns) = self.parent.by_cpu.get(&outcome.cpu) {
                outcome.metrics.insert("parent_config_rtt_ns".to_owned(), Metric::ns(*rtt_ns));
            }
            outcome.warnings.extend(self.check.warnings.iter().cloned());
        }
    }
}

/// The results of two reads of the target before the run.
#[derive(Default)]
struct TargetCheck {
    reads: u64,
    warnings: Vec<Warning>,
    failure: Option<Failure>,
}

/// Reads the target twice, unless the test only writes: the register's reads may have side effects then.
fn check_target(
    plan: &MmioPlan,
    register: Option<&SafeRegister>,
    probe: &mut dyn Probe,
) -> Result<TargetCheck, pciescope_hw::Error> {
    if plan.test == MmioTest::Write {
        return Ok(TargetCheck::default());
    }
    let first = probe.read(plan.bar, plan.offset, plan.width)?;
    let second = probe.read(plan.bar, plan.offset, plan.width)?;
    let place = format!("{}: {}", plan.bdf, BarOffset { bar: plan.bar, offset: plan.offset });
    let mut check = TargetCheck { reads: 2, ..TargetCheck::default() };
    let ones = all_ones(plan.width);
    // A run that writes all-ones may leave them for the next one.
    let ones_ok = plan.ones_ok || (plan.test == MmioTest::WriteRead && plan.value & ones == ones);
    if [first, second].contains(&ones) && !ones_ok {
        check.failure = Some(Failure {
            code: "all-ones".to_owned(),
            text: format!("{place} reads {ones:#x}: the device is gone, asleep or does not decode it"),
            hint: Some("see `pciescope list`; if all-ones is a value of this register, add --ones-ok".to_owned()),
        });
        return Ok(check);
    }
    if first != second {
        check.warnings.push(
            warning::UNSTABLE_REGISTER
                .warn(format!("{place} read {first:#x} and then {second:#x}: reading may have side effects")),
        );
    }
    if let Some(register) = register.filter(|register| !register.is_expected(first)) {
        check.warnings.push(warning::UNEXPECTED_VALUE.warn(format!(
            "{place} read {first:#x}, which is not what {} holds by {}",
            register.name, register.source
        )));
    }
    Ok(check)
}

fn all_ones(width: u8) -> u64 {
    u64::MAX >> (64 - 8 * u32::from(width.clamp(1, 8)))
}

/// The configuration round trip to the bridge above the function, by CPU.
#[derive(Default)]
struct Parent {
    by_cpu: BTreeMap<u32, f64>,
    note: Option<String>,
}

impl Parent {
    fn measure(plan: &MmioPlan, probe: &mut dyn Probe, run: &Run<'_>) -> Parent {
        if run.function.path.is_empty() {
            return Parent { note: Some("there is no bridge above the function".to_owned()), ..Parent::default() };
        }
        let path = PathPlan {
            bdf: plan.bdf,
            offset: ECAM_OFFSET,
            count: PARENT_READS,
            gap_ns: 0,
            order: Order::Sequential,
            cpus: plan.cpus.clone(),
            why: None,
        };
        let index = (run.function.path.len() - 1) as u16;
        let mut by_cpu = BTreeMap::new();
        for (position, slice) in slices(&path.cpus, path.order, path.count, 0).iter().enumerate() {
            let watch = SliceWatch::new(run.watch, position, path.cpus.len(), 0);
            let sampled = match probe.path(&path, slice, &watch) {
                Ok(sampled) => sampled,
                Err(err) => {
                    let note = format!("the round trip to the bridge above was not measured: {}", chain(&err));
                    return Parent { note: Some(note), by_cpu };
                }
            };
            let parent = sampled.outcomes.iter().find(|outcome| outcome.index == index);
            let latency = parent.and_then(|parent| parent.histograms.get(LATENCY));
            if let (Some(parent), Some(median)) = (parent, latency.and_then(|latency| latency.middle_ns())) {
                by_cpu.insert(parent.cpu, median);
            }
            if sampled.failure.is_some() {
                break;
            }
        }
        Parent { by_cpu, note: None }
    }
}

/// The wire's floor and the best published figure, for reads over a link that is known.
fn floors(plan: &MmioPlan, run: &Run<'_>) -> BTreeMap<String, Metric> {
    let mut floors = BTreeMap::new();
    if run.function.link.is_none() || plan.test == MmioTest::Write {
        return floors;
    }
    let switches = floor::switches_on(&run.function.path);
    if let Some(wire) = floor::of(&run.function, plan.width) {
        floors.insert("floor_wire_ns".to_owned(), Metric::ns(wire.total_ns()));
    }
    let (best, worst) = floor::best_published(switches);
    floors.insert("best_published_ns".to_owned(), Metric::ns(best));
    if worst > best {
        floors.insert("best_published_high_ns".to_owned(), Metric::ns(worst));
    }
    floors
}

#[cfg(test)]
mod tests {
    use pciescope_core::Bdf;

    use super::*;

    /// A register that reads all-ones.
    struct Ones;

    impl Probe for Ones {
        fn backend(&self) -> &'static str {
            "test"
        }

        fn bdf(&self) -> Bdf {
            "0000:01:00.0".parse().unwrap()
        }

        fn read(&mut self, _: u8, _: u64, width: u8) -> Result<u64, pciescope_hw::Error> {
            Ok(all_ones(width))
        }
    }

    #[test]
    fn all_ones_before_the_run_end_it_unless_it_writes_them() {
        for (test, value, fails) in [
            (MmioTest::Read, u64::MAX, true),
            (MmioTest::WriteRead, 0x7fff_ffff, true),
            (MmioTest::WriteRead, 0xffff_ffff, false),
            (MmioTest::WriteRead, u64::MAX, false),
        ] {
            let plan = MmioPlan { test, value, ..MmioPlan::reads(Ones.bdf(), 0, 0, 4) };
            let check = check_target(&plan, None, &mut Ones).unwrap();
            assert_eq!(check.failure.is_some(), fails, "{test:?} {value:#x}");
        }
    }
}
