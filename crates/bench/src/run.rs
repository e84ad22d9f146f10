//! What experiments on one function share: the function, its machine, and what is known of each CPU.

use pciescope_core::warning;
use std::collections::BTreeMap;
use std::time::Instant;

use pciescope_core::outcome::{LATENCY, Sample, TRIGGER_TO_HANDLER};
use pciescope_core::plan::Plan;
use pciescope_core::record::{Failure, Method, Metric, Record, Target, Warning};
use pciescope_core::{Cpu, Environment, Function, Identity, Outcome, Sink};
use pciescope_hw::Root;
use pciescope_hw::probe::failure;
use pciescope_hw::probe::{Sampled, Watch};
use pciescope_hw::usage::CpuTime;

use crate::error::{Error, refusal};
use crate::journal::{Journal, Summary};
use crate::online::Online;
use crate::why::Alarms;

/// What a run is about.
#[derive(Debug, Clone)]
pub struct Setup {
    /// What the records have in common. A fixed time means that the machine is a synthetic one.
    pub identity: Identity,
    /// The function that is measured.
    pub function: Function,
    /// The machine as it is now.
    pub environment: Environment,
    /// Properties of the machine or the function that make figures doubtful.
    pub warnings: Vec<Warning>,
    /// What the run is to do.
    pub plan: Plan,
}

/// A run that goes on: adds the function and its doubts to every record.
pub struct Run<'a> {
    pub(crate) root: &'a Root,
    pub(crate) watch: &'a dyn Watch,
    pub(crate) function: Function,
    pub(crate) started: Instant,
    /// The machine is an arm64 one: Linux does some things in another way there.
    pub(crate) is_arm: bool,
    cpus: BTreeMap<u32, Cpu>,
    cpu_time_at_start: BTreeMap<u32, CpuTime>,
    /// What runs at slow samples, if anything.
    pub alarms: Option<Alarms>,
    journal: Journal<'a>,
    /// Samples of all calls of the probe so far.
    samples: u64,
}

impl<'a> Run<'a> {
    /// Begins a run: writes the record of the environment.
    ///
    /// # Errors
    /// [`Error::Sink`] if it cannot be written: better now than after an hour.
    pub fn start(setup: Setup, root: &'a Root, watch: &'a dyn Watch, sink: &'a mut dyn Sink) -> Result<Self, Error> {
        let journal = Journal::new(setup.identity, sink);
        let cpus = setup.environment.cpus.iter().map(|cpu| (cpu.cpu, cpu.clone())).collect();
        // The machine's own figures are not those of a synthetic one.
        let cpu_time_at_start = if journal.is_live() { CpuTime::per_cpu(root) } else { BTreeMap::new() };
        let mut run = Run {
            root,
            watch,
            function: setup.function,
            started: Instant::now(),
            is_arm: setup.environment.machine == "aarch64",
            cpus,
            cpu_time_at_start,
            alarms: None,
            journal,
            samples: 0,
        };
        run.put(Record::first(setup.environment, setup.plan, setup.warnings))?;
        Ok(run)
    }

    /// Ends the run.
    ///
    /// # Errors
    /// [`Error::Sink`] if the sink cannot finish.
    pub fn finish(self) -> Result<Summary, Error> {
        self.journal.finish()
    }

    /// The CPU's place in the machine, as far as the environment knows it.
    fn cpu(&self, number: u32) -> Cpu {
        self.cpus.get(&number).cloned().unwrap_or(Cpu { cpu: number, ..Cpu::default() })
    }

    /// Completes a record and writes it.
    pub(crate) fn put(&mut self, mut record: Record) -> Result<(), Error> {
        record.device = Some(self.function.clone());
        self.journal.put(record)
    }

    /// Writes the figures of one CPU and target as a record.
    pub(crate) fn put_outcome(
        &mut self,
        test: &str,
        target: Target,
        method: &Method,
        mut outcome: Outcome,
    ) -> Result<(), Error> {
        if let Some(stolen) = self.stolen_ns(outcome.cpu) {
            if stolen > 0 {
                outcome
                    .warnings
                    .push(warning::STEAL.warn("the hypervisor took time from the CPU during the run (steal_ns)"));
            }
            outcome.metrics.insert("steal_ns".to_owned(), Metric::ns(stolen as f64));
        }
        outcome.warnings.extend(doubts(test, method, &outcome));
        self.put(Record {
            test: test.to_owned(),
            target: Some(target),
            cpu: Some(self.cpu(outcome.cpu)),
            method: Some(method.clone()),
            histograms: outcome.histograms,
            metrics: outcome.metrics,
            why: outcome.why.map(Box::new),
            warnings: outcome.warnings,
            error: outcome.error,
            ..Record::default()
        })
    }

    /// Writes that nothing was measured: failure is data.
    pub(crate) fn put_failure(&mut self, test: &str, failure: Failure) -> Result<(), Error> {
        self.put(Record { test: test.to_owned(), error: Some(failure), ..Record::default() })
    }

    /// Writes the refusal of a probe as a record and hands it back for `main` to print.
    pub(crate) fn refuse(&mut self, test: &str, err: pciescope_hw::Error) -> Error {
        match self.put_failure(test, refusal(&err)) {
            Ok(()) => Error::Probe(err),
            Err(sink) => sink,
        }
    }

    /// The machine's tree if the records are of this machine, not of a synthetic one.
    pub(crate) fn real_root(&self) -> Option<&'a Root> {
        self.journal.is_live().then_some(self.root)
    }

    /// Why a call of the probe was told to stop: the user, or a CPU that went offline.
    pub(crate) fn stopped_by(&self, failure: Failure, online: &Online<'_>) -> Failure {
        match (online.gone(), self.function.bdf) {
            (Some(cpu), Some(bdf)) if failure.is_interrupted() && !self.watch.is_stopped() => {
                failure::cpu_offline(bdf, Some(cpu))
            }
            // The probe knows of its own call only.
            (_, Some(bdf)) if failure.is_interrupted() => failure::interrupted(bdf, self.samples),
            _ => failure,
        }
    }

    /// Why the run must end, noticed between two calls of the probe.
    pub(crate) fn ending(&self, online: &Online<'_>) -> Option<Failure> {
        let is_over = self.watch.is_stopped() || online.gone().is_some();
        is_over.then(|| self.stopped_by(self.interrupted(), online))
    }

    /// The user's wish to end, noticed between two calls of the probe.
    fn interrupted(&self) -> Failure {
        let who = self.function.bdf.map(|bdf| format!("{bdf}: ")).unwrap_or_default();
        Failure::interrupted(format!("{who}the run was ended by the user"))
    }

    /// Counts the samples of a call of the probe.
    pub(crate) fn add_samples(&mut self, sampled: &Sampled) {
        let of = |outcome: &Outcome| {
            let name = [LATENCY, TRIGGER_TO_HANDLER].into_iter().find(|name| outcome.histograms.contains_key(*name));
            name.map_or(0, |name| outcome.histograms[name].count())
        };
        self.samples += sampled.outcomes.iter().map(of).sum::<u64>();
    }

    /// Hands raw samples on.
    pub(crate) fn put_raw(&mut self, samples: &[Sample]) -> Result<(), Error> {
        if samples.is_empty() { Ok(()) } else { self.journal.put_samples(samples) }
    }

    /// Time stolen from a CPU since the run began; `None` where the kernel does not say.
    fn stolen_ns(&self, cpu: u32) -> Option<u64> {
        let before = self.cpu_time_at_start.get(&cpu)?;
        Some(CpuTime::per_cpu(self.root).get(&cpu)?.since(before).steal_ns)
    }
}

/// Warnings that follow from the figures themselves.
fn doubts(test: &str, method: &Method, outcome: &Outcome) -> Vec<Warning> {
    let figure = outcome.histograms.get(LATENCY).or_else(|| outcome.histograms.get(TRIGGER_TO_HANDLER));
    let Some(median) = figure.and_then(|histogram| histogram.middle_ns()) else { return Vec::new() };
    let batch = f64::from(method.batch.max(1));
    // Samples that are shorter than a step are 0: the median is less than a step then.
    let is_shorter = median <= 0.0;
    let share = if is_shorter { 1.0 } else { method.quantum_ns / batch / median };
    // docs/method.md, "Clocks": below half a percent the clock's step does not show in the figures.
    if share <= 0.005 {
        return Vec::new();
    }
    let text = if is_shorter {
        format!("at least half of the samples are shorter than the clock's step of {:.1} ns", method.quantum_ns)
    } else {
        format!("the clock's step of {:.1} ns is more than half a percent of the median", method.quantum_ns)
    };
    // Only tests of registers take several accesses for a sample.
    let hint = if test.starts_with("mmio-") {
        // A power of two, so that CPUs that differ a little get the same advice.
        let batch = ((share * batch / 0.005).ceil().max(2.0) as u64).next_power_of_two();
        format!("for the mean take --accesses {batch}; the tail needs single samples")
    } else {
        "every percentile is a whole number of steps; the mean of many samples is finer".to_owned()
    };
    vec![warning::COARSE_CLOCK.hinted(text, hint)]
}
