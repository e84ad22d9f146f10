//! A run in slices: which CPUs measure how much, one call of the probe after the other.
//!
//! The experiments visit the CPUs in turn; the probes do not. So every backend interleaves in the same way. Each round
//! has its own median, and the spread of these medians distinguishes drift from topology. In sequential order the
//! record of a CPU is written before the next CPU begins.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pciescope_core::record::{Failure, Metric, Record, Target};
use pciescope_core::{CpuList, Order, Outcome, WhyPlan};
use pciescope_hw::probe::{Sampled, Slice, Watch};

use crate::error::{Error, refusal};
use crate::online::{Online, OnlineWatch};
use crate::run::Run;
use crate::totals::{Totals, asked};
use crate::why::{Alarms, Explainer};

/// Divides a run into slices.
pub(crate) fn slices(cpus: &CpuList, order: Order, count: u64, duration_ns: u64) -> Vec<Slice> {
    let rounds = match order {
        Order::Concurrent => return vec![Slice { cpus: cpus.clone(), count, duration_ns }],
        Order::Sequential => 1,
        // No round without a sample.
        Order::Interleaved { rounds } if count > 0 => u64::from(rounds.max(1)).min(count),
        Order::Interleaved { rounds } => u64::from(rounds.max(1)),
    };
    let calls = rounds * cpus.len() as u64;
    let share_ns = if duration_ns == 0 { 0 } else { (duration_ns / calls.max(1)).max(1) };
    let mut all = Vec::new();
    for round in 0..rounds {
        let count = count / rounds + u64::from(round < count % rounds);
        for cpu in cpus.iter() {
            all.push(Slice { cpus: CpuList::from_iter([cpu]), count, duration_ns: share_ns });
        }
    }
    all
}

/// The longest time and the largest number of samples of a slice whose samples are all kept until it ends.
const PIECE_NS: u64 = 1_000_000_000;
const PIECE: u64 = 500_000;

/// A slice in pieces of which all samples can be kept.
fn pieces(slice: Slice) -> impl Iterator<Item = Slice> {
    let Slice { cpus, count, duration_ns } = slice;
    let of = count.div_ceil(PIECE).max(duration_ns.div_ceil(PIECE_NS)).max(1);
    (0..of).map(move |piece| Slice {
        cpus: cpus.clone(),
        count: count / of + u64::from(piece < count % of),
        duration_ns: duration_ns.div_ceil(of),
    })
}

/// The watch of one slice: progress as thousandths of all slices.
pub(crate) struct SliceWatch<'a> {
    outer: &'a dyn Watch,
    position: u64,
    slices: u64,
    started: Instant,
    limit: Option<Duration>,
}

impl<'a> SliceWatch<'a> {
    pub fn new(outer: &'a dyn Watch, position: usize, slices: usize, duration_ns: u64) -> Self {
        let limit = (duration_ns > 0).then(|| Duration::from_nanos(duration_ns));
        SliceWatch { outer, position: position as u64, slices: slices as u64, started: Instant::now(), limit }
    }
}

impl Watch for SliceWatch<'_> {
    fn progress(&self, done: u64, total: u64) {
        let by_count = if total == 0 { 0.0 } else { done as f64 / total as f64 };
        let by_time = self.limit.map_or(0.0, |limit| self.started.elapsed().as_secs_f64() / limit.as_secs_f64());
        let thousandths = (by_count.max(by_time).min(1.0) * 1000.0) as u64;
        self.outer.progress(self.position * 1000 + thousandths, self.slices * 1000);
    }
    fn is_stopped(&self) -> bool {
        self.outer.is_stopped()
    }
}

/// What differs between the experiments that a schedule runs.
///
/// In each round an experiment measures a CPU once per arm; the records of a CPU's arms follow each other.
pub(crate) trait Experiment {
    /// The number of arms.
    fn arms(&self) -> usize {
        1
    }

    /// The `test` field of an arm's records.
    fn test(&self, arm: usize) -> &'static str;

    /// What a record names as measured.
    fn target(&self, outcome: &Outcome) -> Target;

    /// Calls the probe; `None` where there is no such arm.
    ///
    /// # Errors
    /// Outcomes of the probe for which nothing was measured.
    fn call(&mut self, arm: usize, slice: &Slice, watch: &dyn Watch) -> Result<Option<Sampled>, pciescope_hw::Error>;

    /// Adds what the experiment knows to finished outcomes, each with its arm. A CPU's outcomes come together.
    fn complete(&self, outcomes: &mut [(usize, Outcome)]);
}

/// One measurement over all slices; the probe is called for one after the other.
pub(crate) struct Schedule<'c> {
    pub cpus: &'c CpuList,
    pub order: Order,
    /// Samples per CPU and target; 0: as many as the time allows.
    pub count: u64,
    pub duration_ns: u64,
    /// Whether raw samples go to the sink.
    pub raw: bool,
    /// Which samples are explained, if any.
    pub why: Option<&'c WhyPlan>,
}

/// What a schedule has measured so far.
struct Progress<'p, 'r> {
    schedule: &'p Schedule<'p>,
    experiment: &'p mut dyn Experiment,
    run: &'p mut Run<'r>,
    why: Option<Explainer<'p>>,
    /// By arm.
    totals: Vec<Totals>,
    /// Arms and CPUs that the probe refused after others had their turn, each with the reason.
    failed: BTreeMap<(usize, u32), Failure>,
}

impl Schedule<'_> {
    /// Measures, and writes the records of a CPU as soon as its last slice is done.
    ///
    /// # Errors
    /// [`Error::Probe`] if the probe refuses the first slice; [`Error::Sink`] and [`Error::Raw`].
    pub fn run(&self, run: &mut Run<'_>, experiment: &mut dyn Experiment) -> Result<(), Error> {
        let alarms = run.alarms.take();
        let ran = self.run_all(run, experiment, alarms.as_ref());
        let warnings = alarms.map(Alarms::finish).unwrap_or_default();
        if !warnings.is_empty() {
            run.put(Record { test: experiment.test(0).to_owned(), warnings, ..Record::default() })?;
        }
        ran
    }

    fn run_all(
        &self,
        run: &mut Run<'_>,
        experiment: &mut dyn Experiment,
        alarms: Option<&Alarms>,
    ) -> Result<(), Error> {
        let arms = experiment.arms();
        let share_ns = if self.duration_ns == 0 { 0 } else { (self.duration_ns / arms as u64).max(1) };
        let mut all = slices(self.cpus, self.order, self.count, share_ns);
        if self.why.is_some() {
            all = all.into_iter().flat_map(pieces).collect();
        }
        let online = Online::new(run.real_root(), self.cpus);
        let outer = OnlineWatch { outer: run.watch, online: &online };
        let totals = (0..arms).map(|_| Totals::default()).collect();
        let why = self.why.map(|plan| Explainer::new(plan, run.real_root(), self.cpus, alarms));
        let mut progress = Progress { schedule: self, experiment, run, why, totals, failed: BTreeMap::new() };
        for (position, slice) in all.iter().enumerate() {
            let mut ending = progress.run.ending(&online);
            for arm in 0..arms {
                if ending.is_none() && slice.cpus.iter().any(|cpu| !progress.failed.contains_key(&(arm, cpu))) {
                    let watch = SliceWatch::new(&outer, position * arms + arm, all.len() * arms, slice.duration_ns);
                    ending = progress.call(arm, slice, &watch, &online)?;
                }
            }
            let rest: CpuList = all[position + 1..].iter().flat_map(|slice| slice.cpus.iter()).collect();
            match ending {
                None => progress.write(&slice.cpus.minus(&rest))?,
                Some(failure) => {
                    let unfinished: CpuList = slice.cpus.iter().chain(rest.iter()).collect();
                    return progress.write_ended(&unfinished, failure);
                }
            }
        }
        Ok(())
    }
}

impl Progress<'_, '_> {
    /// Measures a slice. Returns why the run must end.
    fn call(
        &mut self,
        arm: usize,
        slice: &Slice,
        watch: &dyn Watch,
        online: &Online<'_>,
    ) -> Result<Option<Failure>, Error> {
        let begin_ns = self.run.started.elapsed().as_nanos() as u64;
        if let Some(why) = &mut self.why {
            why.begin(arm, &slice.cpus);
        }
        let called = self.experiment.call(arm, slice, watch);
        if let Some(why) = &mut self.why {
            why.end(arm, called.as_ref().ok().and_then(Option::as_ref));
        }
        let mut sampled = match called {
            Ok(Some(sampled)) => sampled,
            Ok(None) => return Ok(None),
            Err(err) if self.totals.iter().all(|totals| totals.method.is_none()) => {
                return Err(self.run.refuse(self.experiment.test(arm), err));
            }
            Err(err) => {
                self.fail(arm, slice, &refusal(&err));
                return Ok(None);
            }
        };
        if !self.schedule.raw {
            sampled.samples_lost = 0;
        }
        note_raw_lost(&mut sampled);
        self.run.add_samples(&sampled);
        let mut ending = sampled.failure.take().map(|failure| self.run.stopped_by(failure, online));
        // The other CPUs may still get their interrupts.
        if let Some(failure) = ending.take_if(|failure| failure.code == TIMEOUT) {
            for outcome in sampled.outcomes.iter_mut().filter(|outcome| outcome.error.is_none()) {
                if asked(outcome) < slice.count as f64 {
                    outcome.error = Some(failure.clone());
                }
            }
            if sampled.outcomes.iter().all(|outcome| outcome.error.is_none()) {
                self.fail(arm, slice, &failure);
            }
        }
        ending = ending.or_else(|| self.why.as_mut().and_then(Explainer::ending));
        let samples = self.totals[arm].add(sampled, begin_ns, self.schedule.order);
        if self.schedule.raw {
            self.run.put_raw(&samples)?;
        }
        Ok(ending)
    }

    fn fail(&mut self, arm: usize, slice: &Slice, failure: &Failure) {
        self.failed.extend(slice.cpus.iter().map(|cpu| ((arm, cpu), failure.clone())));
    }

    /// Takes the outcomes of these CPUs out: CPU by CPU, and arm by arm within each.
    fn take(&mut self, cpus: &CpuList) -> Vec<(usize, Outcome)> {
        let mut outcomes = Vec::new();
        for cpu in cpus.iter() {
            let only = CpuList::from_iter([cpu]);
            for (arm, totals) in self.totals.iter_mut().enumerate() {
                let taken = totals.take(&only);
                for mut outcome in taken {
                    self.why.iter_mut().for_each(|why| why.finish(arm, &mut outcome));
                    outcomes.push((arm, outcome));
                }
            }
        }
        outcomes
    }

    /// Writes the records of CPUs that are done.
    fn write(&mut self, done: &CpuList) -> Result<(), Error> {
        let mut outcomes = self.take(done);
        for ((arm, cpu), failure) in self.failed.iter().filter(|((_, cpu), _)| done.contains(*cpu)) {
            let mut own = outcomes.iter_mut().filter(|(of, outcome)| (of, outcome.cpu) == (arm, *cpu)).peekable();
            if own.peek().is_none() {
                let outcome = Outcome { cpu: *cpu, error: Some(failure.clone()), ..Outcome::default() };
                outcomes.push((*arm, outcome));
                continue;
            }
            own.for_each(|(_, outcome)| _ = outcome.error.get_or_insert_with(|| failure.clone()));
        }
        self.put(outcomes)
    }

    /// Writes the results of a run that ended before its time.
    fn write_ended(&mut self, unfinished: &CpuList, failure: Failure) -> Result<(), Error> {
        let count = self.schedule.count;
        let mut outcomes = self.take(unfinished);
        for (_, outcome) in outcomes.iter_mut().filter(|(_, outcome)| outcome.error.is_none()) {
            if count == 0 || asked(outcome) < count as f64 {
                outcome.error = Some(failure.clone());
            }
        }
        let missing = unfinished.minus(&outcomes.iter().map(|(_, outcome)| outcome.cpu).collect());
        let has_said_why = outcomes.iter().any(|(_, outcome)| outcome.error.is_some());
        self.put(outcomes)?;
        if has_said_why && missing.is_empty() {
            return Ok(());
        }
        let text =
            if missing.is_empty() { failure.text } else { format!("{} (not measured: CPU {missing})", failure.text) };
        self.run.put_failure(self.experiment.test(0), Failure { text, ..failure })
    }

    fn put(&mut self, mut outcomes: Vec<(usize, Outcome)>) -> Result<(), Error> {
        self.experiment.complete(&mut outcomes);
        for (arm, outcome) in outcomes {
            let method = self.totals[arm].method.clone().unwrap_or_default();
            self.run.put_outcome(self.experiment.test(arm), self.experiment.target(&outcome), &method, outcome)?;
        }
        Ok(())
    }
}

/// The code of the failure that concerns one CPU only.
const TIMEOUT: &str = "timeout";

/// Puts the count of raw samples that were overwritten into the slice's (first) outcome.
fn note_raw_lost(sampled: &mut Sampled) {
    if let (Some(outcome), 1..) = (sampled.outcomes.first_mut(), sampled.samples_lost) {
        outcome.metrics.insert("raw_samples_lost".to_owned(), Metric::count(sampled.samples_lost));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    #[test]
    fn every_sample_asked_for_is_in_exactly_one_slice() {
        for (count, rounds) in [(1000, 7), (3, 5), (1, 1), (10, 10)] {
            let all = slices(&cpus("0-2"), Order::Interleaved { rounds }, count, 0);
            for cpu in 0..3 {
                let sum: u64 = all.iter().filter(|p| p.cpus.contains(cpu)).map(|p| p.count).sum();
                assert_eq!(sum, count, "CPU {cpu}, {count} in {rounds} rounds");
            }
            assert!(all.iter().all(|p| p.count > 0), "0 would mean no limit");
        }
    }

    #[test]
    fn rounds_go_through_all_cpus_before_the_next_begins() {
        let order: Vec<String> =
            slices(&cpus("0,4"), Order::Interleaved { rounds: 2 }, 10, 0).iter().map(|p| p.cpus.to_string()).collect();
        assert_eq!(order, ["0", "4", "0", "4"]);
    }

    #[test]
    fn time_is_shared_and_never_becomes_no_limit() {
        let all = slices(&cpus("0-3"), Order::Sequential, 0, 1_000_000);
        assert!(all.iter().all(|p| p.duration_ns == 250_000), "{all:?}");
        let tiny = slices(&cpus("0-3"), Order::Interleaved { rounds: 5 }, 0, 3);
        assert_eq!(tiny.len(), 20);
        assert!(tiny.iter().all(|p| p.duration_ns == 1), "{tiny:?}");
    }

    #[test]
    fn concurrent_is_one_slice() {
        let all = slices(&cpus("0-3"), Order::Concurrent, 10, 20);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].count, all[0].duration_ns, all[0].cpus.len()), (10, 20, 4));
    }
}
