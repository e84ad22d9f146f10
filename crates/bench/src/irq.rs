//! Interrupt latency per CPU and vector, with a control arm that leaves PCIe out.
//!
//! The difference of hardware and control arm, on the same vector and CPU, is the time that the PCIe path and the
//! device add.

use pciescope_core::warning;
use std::collections::BTreeMap;

use pciescope_core::outcome::{LATENCY, TRIGGER_TO_HANDLER};
use pciescope_core::record::{Metric, Target, Warning};
use pciescope_core::{CpuList, IrqPlan, IrqSource, MmioPlan, Order, Outcome};
use pciescope_hw::Error as ProbeError;
use pciescope_hw::probe::{Probe, Sampled, Slice, Watch};
use pciescope_hw::registers::{SafeRegister, safe_target};

use crate::error::Error;
use crate::run::Run;
use crate::schedule::{Experiment, Schedule};

/// The control arms that can be measured beside the hardware's interrupts, the nearest to them first.
const CONTROLS: [IrqSource; 3] = [IrqSource::Retrigger, IrqSource::Inject, IrqSource::Loopback];
/// Register reads per CPU beside the interrupts: enough for a median.
const READS: u64 = 200;

/// Up to this many interrupts of a call, single samples are kept for a moment, also if nobody asked for them: they say
/// how neighbours depend on each other.
const KEPT: u64 = 100_000;

/// The number of the arm that has no PCIe.
const CONTROL: usize = 1;

/// Measures `plan` and writes one record per CPU and vector.
///
/// With `with_control` and the source [`IrqSource::Hardware`] each CPU is measured again with the first software
/// source that the backend has, and the hardware's records hold the difference of the medians. Where the device has a
/// safe register, it is read beside the interrupts from the same CPU.
///
/// # Errors
/// [`Error::Probe`] if nothing could be measured (a record says so too), [`Error::Sink`] and [`Error::Raw`].
pub fn measure(plan: &IrqPlan, with_control: bool, probe: &mut dyn Probe, run: &mut Run<'_>) -> Result<(), Error> {
    let schedule = Schedule {
        cpus: &plan.cpus,
        order: plan.order,
        count: plan.count,
        duration_ns: plan.duration_ns,
        raw: plan.raw,
        why: plan.why.as_ref(),
    };
    let mut interrupts = Interrupts {
        plan,
        with_control: with_control && plan.source == IrqSource::Hardware,
        is_arm: run.is_arm,
        register: safe_target(&run.function),
        reads_ns: BTreeMap::new(),
        control: None,
        has_hardware: true,
        lacking: Vec::new(),
        probe,
    };
    schedule.run(run, &mut interrupts)
}

/// The two arms, and the sources that they turned out to have.
struct Interrupts<'p> {
    plan: &'p IrqPlan,
    with_control: bool,
    /// Software raises interrupts through the queue of the interrupt translation service there.
    is_arm: bool,
    register: Option<SafeRegister>,
    /// Medians of reads of that register by CPU; `None` where it could not be read.
    reads_ns: BTreeMap<u32, Option<f64>>,
    /// The control arm's source: `None` before its first call, `Some(None)` if the backend has none.
    control: Option<Option<IrqSource>>,
    has_hardware: bool,
    /// The refusals of sources that do not exist here.
    lacking: Vec<ProbeError>,
    probe: &'p mut dyn Probe,
}

impl Experiment for Interrupts<'_> {
    fn arms(&self) -> usize {
        1 + usize::from(self.with_control)
    }

    fn test(&self, arm: usize) -> &'static str {
        match self.control.flatten() {
            Some(control) if arm == CONTROL => control.name(),
            _ => self.plan.source.name(),
        }
    }

    fn target(&self, outcome: &Outcome) -> Target {
        Target { vector: Some(outcome.index), irq: outcome.irq, ..Target::default() }
    }

    fn call(&mut self, arm: usize, slice: &Slice, watch: &dyn Watch) -> Result<Option<Sampled>, ProbeError> {
        let sampled = if arm == CONTROL { self.control(slice, watch)? } else { self.own(slice, watch)? };
        if arm + 1 == self.arms() {
            self.read(slice, watch);
        }
        Ok(sampled)
    }

    fn complete(&self, outcomes: &mut [(usize, Outcome)]) {
        let median = |outcome: &Outcome| outcome.histograms.get(TRIGGER_TO_HANDLER)?.median_ns();
        let controls = outcomes.iter().filter(|(arm, _)| *arm == CONTROL);
        let controls_ns: BTreeMap<(u32, u16), f64> =
            controls.filter_map(|(_, outcome)| Some(((outcome.cpu, outcome.index), median(outcome)?))).collect();
        for (arm, outcome) in outcomes {
            if *arm == CONTROL {
                outcome.warnings.extend(self.no_hardware());
                continue;
            }
            if let Some(read_ns) = self.reads_ns.get(&outcome.cpu).copied().flatten() {
                outcome.metrics.insert("mmio_read_median_ns".to_owned(), Metric::ns(read_ns));
            }
            if self.with_control {
                let control_ns = controls_ns.get(&(outcome.cpu, outcome.index)).copied();
                self.compare(outcome, median(outcome), control_ns);
            }
        }
    }
}

impl Interrupts<'_> {
    fn measure(&mut self, source: IrqSource, slice: &Slice, watch: &dyn Watch) -> Result<Sampled, ProbeError> {
        let samples = slice.count.saturating_mul(self.plan.vectors.len() as u64);
        // The kernel module would allocate its ring for them.
        let is_kept = self.plan.order == Order::Sequential && self.probe.backend() != "kmod";
        let raw = self.plan.raw || is_kept && slice.count > 0 && samples <= KEPT;
        self.probe.irq(&IrqPlan { source, raw, ..self.plan.clone() }, slice, watch)
    }

    /// The arm of the plan; `None` if it is the hardware's, does not exist and a control arm is wanted.
    fn own(&mut self, slice: &Slice, watch: &dyn Watch) -> Result<Option<Sampled>, ProbeError> {
        if !self.has_hardware {
            return Ok(None);
        }
        match self.measure(self.plan.source, slice, watch) {
            Err(err @ ProbeError::Unsupported { .. }) if self.with_control => {
                self.has_hardware = false;
                self.lacking.push(err);
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// The control arm; `None` if the backend has none. If neither arm exists, the refusal of the hardware's is the one
    /// to show.
    fn control(&mut self, slice: &Slice, watch: &dyn Watch) -> Result<Option<Sampled>, ProbeError> {
        if let Some(known) = self.control {
            return known.map(|source| self.measure(source, slice, watch)).transpose();
        }
        for source in CONTROLS {
            match self.measure(source, slice, watch) {
                Err(ProbeError::Unsupported { .. }) => {}
                other => {
                    self.control = Some(Some(source));
                    return other.map(Some);
                }
            }
        }
        self.control = Some(None);
        self.lacking.pop().map_or(Ok(None), Err)
    }

    /// Reads the safe register from the slice's CPU, once in a run. The interrupts' measurement does not fail without
    /// this figure.
    fn read(&mut self, slice: &Slice, watch: &dyn Watch) {
        let Some(register) = self.register else { return };
        for cpu in slice.cpus.iter() {
            if self.reads_ns.contains_key(&cpu) {
                continue;
            }
            let reads = MmioPlan::reads(self.plan.bdf, register.bar, register.offset, register.width);
            let slice = Slice { cpus: CpuList::from_iter([cpu]), count: READS, duration_ns: 0 };
            let sampled = self.probe.mmio(&reads, &slice, watch).ok().filter(|sampled| sampled.failure.is_none());
            let latency = sampled.as_ref().and_then(|sampled| sampled.outcomes.first()?.histograms.get(LATENCY));
            self.reads_ns.insert(cpu, latency.and_then(|latency| latency.median_ns()));
        }
    }

    /// The note in the control's records if there is nothing to control.
    fn no_hardware(&self) -> Option<Warning> {
        let err = self.lacking.first()?;
        Some(
            warning::NO_HARDWARE_TRIGGER.warn(format!("{err}; these interrupts come from software and leave PCIe out")),
        )
    }

    /// Adds the control's median and the difference to an outcome of the hardware.
    fn compare(&self, outcome: &mut Outcome, own_ns: Option<f64>, control_ns: Option<f64>) {
        if self.control == Some(None) {
            outcome.warnings.push(
                warning::NO_CONTROL_ARM
                    .warn("the backend cannot raise these interrupts by software: the share of PCIe is not known"),
            );
        }
        let Some(control_ns) = control_ns else { return };
        outcome.metrics.insert("control_median_ns".to_owned(), Metric::ns(control_ns));
        if self.is_arm && self.control != Some(Some(IrqSource::Loopback)) {
            outcome.warnings.push(warning::CONTROL_DIFFERS.warn("the kernel raises interrupts through the command queue of Arm's interrupt translation service and waits for it: \
                       the difference to the device's own is not the share of PCIe"));
        } else if let Some(own_ns) = own_ns {
            outcome.metrics.insert("hardware_minus_control_ns".to_owned(), Metric::ns(own_ns - control_ns));
        }
    }
}
