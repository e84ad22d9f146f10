//! Interrupt latency per CPU and vector, with a control arm that leaves PCIe out.
//!
//! The difference of hardware and control arm, on the same vector and CPU, is the time that the PCIe path and the
//! device add.

use std::collections::BTreeMap;

use pciescope_core::outcome::{LATENCY, TRIGGER_TO_HANDLER};
use pciescope_core::record::{Failure, Metric, Target, Warning};
use pciescope_core::{Bdf, CpuList, IrqPlan, IrqSource, MmioPlan, Order, Outcome};
use pciescope_hw::probe::{Portion, Probe, Taken, Watch};
use pciescope_hw::registers::{SafeRegister, safe_target};

use crate::online::{Online, OnlineWatch};
use crate::portion::{PortionWatch, batches, note_effect, note_raw_lost, order_name, refusal, shift};
use crate::run::{Error, Run};

/// The control arms that can be measured beside the hardware's interrupts, the nearest to them first.
const CONTROLS: [IrqSource; 3] = [IrqSource::Retrigger, IrqSource::Inject, IrqSource::Loopback];
/// Register reads per CPU beside the interrupts: enough for a median.
const READS: u64 = 200;

/// Of so many interrupts of a CPU the single samples are kept for a moment, also if nobody asked for them: they say how
/// neighbours depend on each other.
const KEPT: u64 = 100_000;

/// Measures `plan` and writes one record per CPU and vector.
///
/// With `with_control` and the source [`IrqSource::Hardware`] each CPU is measured again with the first software
/// source that the backend has, and the hardware's records hold the difference of the medians. Where the device has a
/// safe register, it is read beside the interrupts from the same CPU.
///
/// # Errors
/// [`Error::Probe`] if nothing could be measured (a record says so too), [`Error::Sink`] and [`Error::Raw`].
pub fn measure(plan: &IrqPlan, with_control: bool, probe: &mut dyn Probe, run: &mut Run<'_>) -> Result<(), Error> {
    let register = safe_target(&run.function);
    let mut arms = Arms { plan, is_arm: run.is_arm, control: None, has_hardware: true, lacking: Vec::new() };
    let with_control = with_control && plan.source == IrqSource::Hardware;
    let steps = plan.cpus.len() * if with_control { 2 } else { 1 };
    let mut left = plan.cpus.clone();
    let online = Online::new(run.real_root(), &plan.cpus);
    let outer = OnlineWatch { outer: run.watch, online: &online };
    for (position, cpu) in plan.cpus.iter().enumerate() {
        if let Some(failure) = run.ending(&online) {
            return run.put_failure(plan.source.name(), left_out(failure, &left));
        }
        let mut step = position * steps / plan.cpus.len();
        let begin_ns = run.started.elapsed().as_nanos() as u64;
        let watch = PortionWatch::new(&outer, step, steps, 0);
        let mut hardware = match arms.first(cpu, with_control, probe, &watch) {
            Ok(taken) => taken,
            Err(err) if position == 0 => return Err(run.refuse(plan.source.name(), err)),
            Err(err) => Some(dropped_out(cpu, &err)),
        };
        step += 1;
        explain(hardware.as_mut(), run, &online);
        let ended = hardware.as_ref().and_then(|taken| taken.failure.clone()).filter(ends_the_run);
        let mut control = None;
        if with_control && ended.is_none() {
            let watch = PortionWatch::new(&outer, step, steps, 0);
            control = match arms.control(cpu, probe, &watch) {
                Ok(taken) => taken,
                // If neither arm exists, the refusal of the hardware's is the one to show.
                Err(err) if hardware.is_none() => {
                    let err = arms.lacking.pop().unwrap_or(err);
                    return Err(run.refuse(plan.source.name(), err));
                }
                Err(err) => Some(dropped_out(cpu, &err)),
            };
        }
        explain(control.as_mut(), run, &online);
        let ended = ended.or_else(|| control.as_ref()?.failure.clone().filter(ends_the_run));
        let read_ns = register.and_then(|register| read_median(plan.bdf, &register, cpu, probe, run.watch));
        let medians = control.as_ref().map(medians).unwrap_or_default();
        if let Some(taken) = hardware {
            put_arm(run, (plan.source, plan.count), taken, begin_ns, &|outcome| {
                if let Some(read_ns) = read_ns {
                    outcome.metrics.insert("mmio_read_median_ns".to_owned(), Metric::ns(read_ns));
                }
                if with_control {
                    compare(outcome, &medians, &arms);
                }
            })?;
        }
        if let (Some(taken), Some(source)) = (control, arms.control) {
            let lacks_hardware = arms.no_hardware();
            put_arm(run, (source, plan.count), taken, begin_ns, &|outcome| {
                outcome.warnings.extend(lacks_hardware.clone())
            })?;
        }
        left = left.minus(&CpuList::from_iter([cpu]));
        if let Some(failure) = ended {
            if left.is_empty() {
                return Ok(());
            }
            return run.put_failure(plan.source.name(), left_out(failure, &left));
        }
    }
    Ok(())
}

/// Which sources there are, as the first CPU finds out.
struct Arms<'p> {
    plan: &'p IrqPlan,
    /// Software raises interrupts through the queue of the interrupt translation service there.
    is_arm: bool,
    control: Option<IrqSource>,
    has_hardware: bool,
    /// The refusals of sources that do not exist here.
    lacking: Vec<pciescope_hw::Error>,
}

impl Arms<'_> {
    fn call(
        &self,
        source: IrqSource,
        cpu: u32,
        probe: &mut dyn Probe,
        watch: &dyn Watch,
    ) -> Result<Taken, pciescope_hw::Error> {
        let vectors = self.plan.vectors.len() as u64;
        // The kernel module would allocate its ring for them.
        let is_kept = probe.backend() != "kmod" && self.plan.count.saturating_mul(vectors) <= KEPT;
        let mut taken =
            probe.irq(&IrqPlan { source, raw: self.plan.raw || is_kept, ..self.plan.clone() }, cpu, watch)?;
        for outcome in &mut taken.outcomes {
            let batches = batches(&taken.samples, outcome);
            note_effect(outcome, &batches);
        }
        if !self.plan.raw {
            (taken.samples, taken.samples_lost) = (Vec::new(), 0);
        }
        Ok(taken)
    }

    /// The arm of the plan; `None` if it is the hardware's, does not exist and a control arm is wanted.
    fn first(
        &mut self,
        cpu: u32,
        with_control: bool,
        probe: &mut dyn Probe,
        watch: &dyn Watch,
    ) -> Result<Option<Taken>, pciescope_hw::Error> {
        if !self.has_hardware {
            return Ok(None);
        }
        match self.call(self.plan.source, cpu, probe, watch) {
            Err(err @ pciescope_hw::Error::Unsupported { .. }) if with_control => {
                self.has_hardware = false;
                self.lacking.push(err);
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// The control arm; `None` if the backend has none.
    fn control(
        &mut self,
        cpu: u32,
        probe: &mut dyn Probe,
        watch: &dyn Watch,
    ) -> Result<Option<Taken>, pciescope_hw::Error> {
        if let Some(source) = self.control {
            return self.call(source, cpu, probe, watch).map(Some);
        }
        let mut last = None;
        for source in CONTROLS {
            match self.call(source, cpu, probe, watch) {
                Err(err @ pciescope_hw::Error::Unsupported { .. }) => last = Some(err),
                other => {
                    self.control = Some(source);
                    return other.map(Some);
                }
            }
        }
        match last {
            Some(err) if !self.has_hardware => Err(err),
            _ => Ok(None),
        }
    }

    /// The note in the control's records if there is nothing to control.
    fn no_hardware(&self) -> Option<Warning> {
        let err = self.lacking.first()?;
        Some(Warning {
            code: "no-hardware-trigger".to_owned(),
            text: format!("{err}; these interrupts come from software and leave PCIe out"),
            hint: "take a device that can raise its own interrupts, see docs/method.md".to_owned(),
        })
    }
}

/// A CPU whose turn the probe refused after others had theirs.
fn dropped_out(cpu: u32, err: &pciescope_hw::Error) -> Taken {
    let outcome = Outcome { cpu, error: Some(refusal(err)), ..Outcome::default() };
    Taken { outcomes: vec![outcome], ..Taken::default() }
}

/// The medians from trigger to handler by vector.
fn medians(taken: &Taken) -> BTreeMap<u16, f64> {
    let median = |outcome: &Outcome| outcome.histograms.get(TRIGGER_TO_HANDLER)?.median_ns();
    taken.outcomes.iter().filter_map(|outcome| Some((outcome.index, median(outcome)?))).collect()
}

/// Adds the control's median and the difference to an outcome of the hardware.
fn compare(outcome: &mut Outcome, control: &BTreeMap<u16, f64>, arms: &Arms<'_>) {
    if arms.control.is_none() {
        outcome.warnings.push(Warning {
            code: "no-control-arm".to_owned(),
            text: "the backend cannot raise these interrupts by software: the share of PCIe is not known".to_owned(),
            hint: "the kernel module has a control arm: --backend kmod --bind".to_owned(),
        });
        return;
    }
    let own = outcome.histograms.get(TRIGGER_TO_HANDLER).and_then(|histogram| histogram.median_ns());
    let Some(control) = control.get(&outcome.index) else { return };
    outcome.metrics.insert("control_median_ns".to_owned(), Metric::ns(*control));
    if arms.is_arm && arms.control != Some(IrqSource::Loopback) {
        outcome.warnings.push(Warning {
            code: "control-differs".to_owned(),
            text: "the kernel raises interrupts through the command queue of Arm's interrupt translation service and waits for it: \
                   the difference to the device's own is not the share of PCIe"
                .to_owned(),
            hint: "compare runs of the device's own interrupts; --backend vfio has a control arm without that queue"
                .to_owned(),
        });
    } else if let Some(own) = own {
        outcome.metrics.insert("hardware_minus_control_ns".to_owned(), Metric::ns(own - control));
    }
}

/// The median of reads of the safe register from the CPU that handles; `None` where it cannot be read.
fn read_median(bdf: Bdf, register: &SafeRegister, cpu: u32, probe: &mut dyn Probe, watch: &dyn Watch) -> Option<f64> {
    let reads = MmioPlan::reads(bdf, register.bar, register.offset, register.width);
    let portion = Portion { cpus: CpuList::from_iter([cpu]), count: READS, duration_ns: 0 };
    // The interrupts' measurement does not fail without this figure.
    let taken = probe.mmio(&reads, &portion, watch).ok().filter(|taken| taken.failure.is_none())?;
    taken.outcomes.first()?.histograms.get(LATENCY)?.median_ns()
}

/// How many of the plan's interrupts a vector has had its time for.
fn asked(outcome: &Outcome) -> f64 {
    // At a fixed rate, times without a trigger are part of the count.
    let count = |name| outcome.metrics.get(name).map_or(0.0, |metric| metric.value);
    ["triggers", "missed", "merged"].into_iter().map(count).sum()
}

/// Writes the records of one arm on one CPU, of which `count` triggers per vector were asked.
fn put_arm(
    run: &mut Run<'_>,
    (source, count): (IrqSource, u64),
    mut taken: Taken,
    begin_ns: u64,
    complete: &dyn Fn(&mut Outcome),
) -> Result<(), Error> {
    note_raw_lost(&mut taken);
    taken.method.order = order_name(Order::Sequential);
    shift(&mut taken, begin_ns);
    run.put_raw(&taken.samples)?;
    let mut has_said_why = false;
    for mut outcome in taken.outcomes {
        if outcome.error.is_none() && asked(&outcome) < count as f64 {
            outcome.error.clone_from(&taken.failure);
        }
        has_said_why |= outcome.error.is_some();
        complete(&mut outcome);
        let target = Target { vector: Some(outcome.index), irq: outcome.irq, ..Target::default() };
        run.put_outcome(source.name(), target, &taken.method, outcome)?;
    }
    match taken.failure {
        Some(failure) if !has_said_why => run.put_failure(source.name(), failure),
        _ => Ok(()),
    }
}

/// Replaces the stop by its cause: a CPU that went offline.
fn explain(taken: Option<&mut Taken>, run: &mut Run<'_>, online: &Online<'_>) {
    if let Some(taken) = taken {
        run.add_samples(taken);
        taken.failure = taken.failure.take().map(|failure| run.stopped_by(failure, online));
    }
}

/// A failure that the other CPUs would meet too.
fn ends_the_run(failure: &Failure) -> bool {
    failure.code != "timeout"
}

/// The failure that ended a run, with the CPUs that had no turn.
fn left_out(failure: Failure, left: &CpuList) -> Failure {
    Failure { text: format!("{} (not measured: CPU {left})", failure.text), ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_without_a_trigger_are_part_of_the_count() {
        let counts = [("triggers", 70), ("missed", 20), ("merged", 10), ("late", 5), ("lost", 3), ("handled", 67)];
        let metrics = counts.map(|(name, count)| (name.to_owned(), Metric::count(count)));
        assert_eq!(asked(&Outcome { metrics: metrics.into(), ..Outcome::default() }), 100.0);
        assert_eq!(asked(&Outcome::default()), 0.0);
    }
}
