//! A run in portions: which CPUs measure how much, one call of the probe after the other.
//!
//! The experiments visit the CPUs in turn; the probes do not. So every backend interleaves in the same way. Each round
//! has its own median, and the spread of these medians distinguishes drift from topology. In sequential order the
//! record of a CPU is written before the next CPU begins.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pciescope_core::histogram::design_effect;
use pciescope_core::outcome::{DESIGN_BATCHES, DESIGN_EFFECT, LATENCY, Sample, SampleKind, TRIGGER_TO_HANDLER};
use pciescope_core::record::{Failure, Method, Metric, Target, Warning};
use pciescope_core::{CpuList, Histogram, Order, Outcome};
use pciescope_hw::probe::{Portion, Taken, Watch};

use crate::online::{Online, OnlineWatch};
use crate::run::{Error, Run, chain};

/// Divides a run into portions.
pub(crate) fn portions(cpus: &CpuList, order: Order, count: u64, duration_ns: u64) -> Vec<Portion> {
    let rounds = match order {
        Order::Concurrent => return vec![Portion { cpus: cpus.clone(), count, duration_ns }],
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
            all.push(Portion { cpus: CpuList::from_iter([cpu]), count, duration_ns: share_ns });
        }
    }
    all
}

/// The `order` field of a record.
pub(crate) fn order_name(order: Order) -> String {
    match order {
        Order::Sequential => "sequential".to_owned(),
        Order::Interleaved { .. } => "interleaved".to_owned(),
        Order::Concurrent => "concurrent".to_owned(),
    }
}

/// The watch of one portion: progress as thousandths of all portions.
pub(crate) struct PortionWatch<'a> {
    outer: &'a dyn Watch,
    position: u64,
    portions: u64,
    started: Instant,
    limit: Option<Duration>,
}

impl<'a> PortionWatch<'a> {
    pub fn new(outer: &'a dyn Watch, position: usize, portions: usize, duration_ns: u64) -> Self {
        let limit = (duration_ns > 0).then(|| Duration::from_nanos(duration_ns));
        PortionWatch { outer, position: position as u64, portions: portions as u64, started: Instant::now(), limit }
    }
}

impl Watch for PortionWatch<'_> {
    fn progress(&self, done: u64, total: u64) {
        let by_count = if total == 0 { 0.0 } else { done as f64 / total as f64 };
        let by_time = self.limit.map_or(0.0, |limit| self.started.elapsed().as_secs_f64() / limit.as_secs_f64());
        let thousandths = (by_count.max(by_time).min(1.0) * 1000.0) as u64;
        self.outer.progress(self.position * 1000 + thousandths, self.portions * 1000);
    }
    fn is_stopped(&self) -> bool {
        self.outer.is_stopped()
    }
}

/// The results of several portions together.
#[derive(Default)]
pub(crate) struct Collected {
    pub method: Option<Method>,
    outcomes: BTreeMap<(u32, u16), Gathered>,
}

#[derive(Default)]
struct Gathered {
    outcome: Outcome,
    medians_ns: Vec<f64>,
    /// What is measured, in batches of portions.
    batches: Batches,
    /// The raw samples of that in batches, where one portion has them all.
    raw: Vec<Histogram>,
}

/// Portions in batches of equal length, at most [`MOST_BATCHES`]: a run may have 10,000 rounds on each of many CPUs.
#[derive(Default)]
struct Batches {
    all: Vec<Histogram>,
    /// Portions that a batch holds, as a power of two.
    doublings: u32,
    portions: u64,
}

/// When there are so many batches, each two become one.
const MOST_BATCHES: usize = 64;

impl Batches {
    fn add(&mut self, portion: &Histogram) {
        match self.all.last_mut() {
            Some(last) if self.portions % (1 << self.doublings) != 0 => last.merge(portion),
            _ => self.all.push(portion.clone()),
        }
        self.portions += 1;
        if self.all.len() == MOST_BATCHES && self.portions % (1 << self.doublings) == 0 {
            let pairs = self.all.chunks(2).map(|pair| {
                let mut both = pair[0].clone();
                pair[1..].iter().for_each(|other| both.merge(other));
                both
            });
            self.all = pairs.collect();
            self.doublings += 1;
        }
    }
}

/// The histogram of what is measured.
fn main_of(outcome: &Outcome) -> Option<(&Histogram, SampleKind)> {
    let named = |name, kind| outcome.histograms.get(name).map(|histogram| (histogram, kind));
    named(LATENCY, SampleKind::Latency).or_else(|| named(TRIGGER_TO_HANDLER, SampleKind::TriggerToHandler))
}

/// So many batches are made of raw samples.
const BATCHES: usize = 10;

/// The raw samples of an outcome in batches; none where not all of them are there.
pub(crate) fn batches(samples: &[Sample], outcome: &Outcome) -> Vec<Histogram> {
    let Some((histogram, kind)) = main_of(outcome) else { return Vec::new() };
    let is_own = |sample: &&Sample| (sample.cpu, sample.index, sample.kind) == (outcome.cpu, outcome.index, kind);
    let own: Vec<u64> = samples.iter().filter(is_own).map(|sample| sample.value_ps).collect();
    if own.len() as u64 != histogram.count() || own.len() < BATCHES {
        return Vec::new();
    }
    let batch = |values: &[u64]| {
        let mut batch = Histogram::default();
        values.iter().try_for_each(|value| batch.record_ps(*value, 1)).map(|()| batch)
    };
    own.chunks(own.len().div_ceil(BATCHES)).filter_map(|values| batch(values).ok()).collect()
}

/// Says how many neighbouring samples count as one, where the batches allow it.
pub(crate) fn note_effect(outcome: &mut Outcome, batches: &[Histogram]) {
    if let Some(effect) = design_effect(batches) {
        outcome.metrics.insert(DESIGN_EFFECT.to_owned(), Metric::of(effect, "1"));
        outcome.metrics.insert(DESIGN_BATCHES.to_owned(), Metric::count(batches.len() as u64));
    }
}

impl Collected {
    /// Adds a portion that began `offset_ns` after the run; hands back its raw samples with times of the run.
    pub fn add(&mut self, mut taken: Taken, offset_ns: u64, order: Order) -> Vec<Sample> {
        shift(&mut taken, offset_ns);
        let method = self.method.get_or_insert(taken.method);
        method.order = order_name(order);
        for outcome in taken.outcomes {
            let gathered = self.outcomes.entry((outcome.cpu, outcome.index)).or_default();
            if order == Order::Sequential && !taken.samples.is_empty() {
                gathered.raw = batches(&taken.samples, &outcome);
            }
            if let Some((histogram, _)) = main_of(&outcome) {
                gathered.batches.add(histogram);
            }
            gathered.medians_ns.extend(outcome.histograms.get(LATENCY).and_then(|latency| latency.middle_ns()));
            gathered.merge(outcome);
        }
        taken.samples
    }

    /// Takes the finished outcomes of these CPUs out, by CPU and target.
    pub fn take(&mut self, cpus: &CpuList) -> Vec<Outcome> {
        let keys: Vec<_> = self.outcomes.keys().copied().filter(|(cpu, _)| cpus.contains(*cpu)).collect();
        keys.iter().filter_map(|key| self.outcomes.remove(key)).map(Gathered::finish).collect()
    }
}

impl Gathered {
    fn merge(&mut self, other: Outcome) {
        let own = &mut self.outcome;
        (own.cpu, own.index) = (other.cpu, other.index);
        own.hop = own.hop.or(other.hop);
        own.irq = own.irq.or(other.irq);
        for (name, histogram) in other.histograms {
            own.histograms.entry(name).or_default().merge(&histogram);
        }
        for (name, metric) in other.metrics {
            match own.metrics.get_mut(&name) {
                // Counts add up; any other figure is that of the last portion.
                Some(sum) if metric.unit == "1" && sum.unit == "1" => sum.value += metric.value,
                _ => {
                    own.metrics.insert(name, metric);
                }
            }
        }
        for warning in other.warnings {
            if !own.warnings.iter().any(|known| known.code == warning.code) {
                own.warnings.push(warning);
            }
        }
        if own.error.is_none() {
            own.error = other.error;
        }
    }

    /// Adds the spread of the rounds, and what it says of neighbouring samples.
    fn finish(mut self) -> Outcome {
        let batches = if self.raw.is_empty() { &self.batches.all } else { &self.raw };
        note_effect(&mut self.outcome, batches);
        let is_empty = main_of(&self.outcome).is_some_and(|(histogram, _)| histogram.count() == 0);
        if is_empty && self.outcome.error.is_none() {
            self.outcome.warnings.push(Warning {
                code: "no-samples".to_owned(),
                text: "the time was over before the first sample".to_owned(),
                hint: "give more time with --duration, fewer CPUs, or fewer rounds (--order interleaved:1)".to_owned(),
            });
        }
        let rounds = self.medians_ns.len();
        if rounds < 2 {
            return self.outcome;
        }
        self.medians_ns.sort_by(f64::total_cmp);
        let (low, high) = (self.medians_ns[0], self.medians_ns[rounds - 1]);
        let middle = (self.medians_ns[(rounds - 1) / 2] + self.medians_ns[rounds / 2]) / 2.0;
        let metrics = &mut self.outcome.metrics;
        metrics.insert("rounds".to_owned(), Metric::count(rounds as u64));
        metrics.insert("round_median_min_ns".to_owned(), Metric::ns(low));
        metrics.insert("round_median_ns".to_owned(), Metric::ns(middle));
        metrics.insert("round_median_max_ns".to_owned(), Metric::ns(high));
        // A tenth is well above what a quiet machine shows between rounds and below what a hop costs.
        if high - low > middle * 0.1 {
            self.outcome.warnings.push(Warning {
                code: "drift".to_owned(),
                // The same text for every CPU, so that a table shows it once; the figures are in the metrics.
                text: "the rounds' medians differ by more than a tenth (round_median_min_ns, round_median_max_ns)"
                    .to_owned(),
                hint: "measure longer or on a quieter machine before CPUs are compared".to_owned(),
            });
        }
        self.outcome
    }
}

/// One measurement over all portions; the probe is called for one after the other.
pub(crate) struct Course<'c> {
    /// The `test` field of the records.
    pub test: &'c str,
    pub cpus: &'c CpuList,
    pub order: Order,
    /// Samples per CPU and target; 0: as many as the time allows.
    pub count: u64,
    pub duration_ns: u64,
    /// What the records name as measured.
    pub target: &'c dyn Fn(&Outcome) -> Target,
    /// Adds what the experiment knows to an outcome that is finished.
    pub complete: &'c dyn Fn(&mut Outcome, &mut Method),
}

impl Course<'_> {
    /// Measures, and writes the records of a CPU as soon as its last portion is done.
    ///
    /// # Errors
    /// [`Error::Probe`] if the probe refuses the first portion; [`Error::Sink`] and [`Error::Raw`].
    pub fn run(
        &self,
        run: &mut Run<'_>,
        call: &mut dyn FnMut(&Portion, &dyn Watch) -> Result<Taken, pciescope_hw::Error>,
    ) -> Result<(), Error> {
        let all = portions(self.cpus, self.order, self.count, self.duration_ns);
        let mut collected = Collected::default();
        let online = Online::new(run.real_root(), self.cpus);
        // CPUs that the probe refused after others had their turn, each with the reason.
        let mut failed: BTreeMap<u32, Failure> = BTreeMap::new();
        for (position, portion) in all.iter().enumerate() {
            let begin_ns = run.started.elapsed().as_nanos() as u64;
            let outer = OnlineWatch { outer: run.watch, online: &online };
            let watch = PortionWatch::new(&outer, position, all.len(), portion.duration_ns);
            let mut ending = run.ending(&online);
            if ending.is_none() && portion.cpus.iter().any(|cpu| !failed.contains_key(&cpu)) {
                match call(portion, &watch) {
                    Ok(mut taken) => {
                        note_raw_lost(&mut taken);
                        run.add_samples(&taken);
                        ending = taken.failure.clone().map(|failure| run.stopped_by(failure, &online));
                        let samples = collected.add(taken, begin_ns, self.order);
                        run.put_raw(&samples)?;
                    }
                    Err(err) if position == 0 => return Err(run.refuse(self.test, err)),
                    Err(err) => {
                        let failure = refusal(&err);
                        failed.extend(portion.cpus.iter().map(|cpu| (cpu, failure.clone())));
                    }
                }
            }
            let rest: CpuList = all[position + 1..].iter().flat_map(|portion| portion.cpus.iter()).collect();
            match ending {
                None => self.write(run, &mut collected, &portion.cpus.minus(&rest), &failed)?,
                Some(failure) => {
                    let unfinished: CpuList = portion.cpus.iter().chain(rest.iter()).collect();
                    return self.write_ended(run, &mut collected, &unfinished, failure);
                }
            }
        }
        Ok(())
    }

    /// Writes the records of CPUs that are done.
    fn write(
        &self,
        run: &mut Run<'_>,
        collected: &mut Collected,
        done: &CpuList,
        failed: &BTreeMap<u32, Failure>,
    ) -> Result<(), Error> {
        let mut outcomes = collected.take(done);
        for cpu in done.iter().filter(|cpu| failed.contains_key(cpu)) {
            if !outcomes.iter().any(|outcome| outcome.cpu == cpu) {
                outcomes.push(Outcome { cpu, ..Outcome::default() });
            }
        }
        for mut outcome in outcomes {
            if outcome.error.is_none() {
                outcome.error = failed.get(&outcome.cpu).cloned();
            }
            self.put(run, collected, outcome)?;
        }
        Ok(())
    }

    /// Writes the results of a run that ended before its time.
    fn write_ended(
        &self,
        run: &mut Run<'_>,
        collected: &mut Collected,
        unfinished: &CpuList,
        failure: Failure,
    ) -> Result<(), Error> {
        let mut has_said_why = false;
        let mut missing = unfinished.clone();
        for mut outcome in collected.take(unfinished) {
            missing = missing.minus(&CpuList::from_iter([outcome.cpu]));
            let count = outcome.histograms.get(LATENCY).map_or(0, |latency| latency.count());
            if outcome.error.is_none() && (self.count == 0 || count < self.count) {
                outcome.error = Some(failure.clone());
            }
            has_said_why |= outcome.error.is_some();
            self.put(run, collected, outcome)?;
        }
        if has_said_why && missing.is_empty() {
            return Ok(());
        }
        let text =
            if missing.is_empty() { failure.text } else { format!("{} (not measured: CPU {missing})", failure.text) };
        run.put_failure(self.test, Failure { text, ..failure })
    }

    fn put(&self, run: &mut Run<'_>, collected: &Collected, mut outcome: Outcome) -> Result<(), Error> {
        let mut method = collected.method.clone().unwrap_or_default();
        (self.complete)(&mut outcome, &mut method);
        run.put_outcome(self.test, (self.target)(&outcome), &method, outcome)
    }
}

/// Makes times since a call of the probe began times since the run began, `offset_ns` before.
pub(crate) fn shift(taken: &mut Taken, offset_ns: u64) {
    for histogram in taken.outcomes.iter_mut().flat_map(|outcome| outcome.histograms.values_mut()) {
        for at_ns in [&mut histogram.min_at_ns, &mut histogram.max_at_ns].into_iter().flatten() {
            *at_ns = at_ns.saturating_add(offset_ns);
        }
    }
    for sample in &mut taken.samples {
        sample.at_ns = sample.at_ns.saturating_add(offset_ns);
    }
}

/// Puts the count of raw samples that were overwritten into the portion's (first) outcome.
pub(crate) fn note_raw_lost(taken: &mut Taken) {
    if let (Some(outcome), 1..) = (taken.outcomes.first_mut(), taken.samples_lost) {
        outcome.metrics.insert("raw_samples_lost".to_owned(), Metric::count(taken.samples_lost));
    }
}

/// What a record says of a probe's refusal.
pub(crate) fn refusal(err: &pciescope_hw::Error) -> Failure {
    if let pciescope_hw::Error::Lost(failure) = err {
        return failure.clone();
    }
    Failure { code: "refused".to_owned(), text: chain(err), hint: err.hint() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    #[test]
    fn every_sample_asked_for_is_in_exactly_one_portion() {
        for (count, rounds) in [(1000, 7), (3, 5), (1, 1), (10, 10)] {
            let all = portions(&cpus("0-2"), Order::Interleaved { rounds }, count, 0);
            for cpu in 0..3 {
                let sum: u64 = all.iter().filter(|p| p.cpus.contains(cpu)).map(|p| p.count).sum();
                assert_eq!(sum, count, "CPU {cpu}, {count} in {rounds} rounds");
            }
            assert!(all.iter().all(|p| p.count > 0), "0 would mean no limit");
        }
    }

    #[test]
    fn rounds_go_through_all_cpus_before_the_next_begins() {
        let order: Vec<String> = portions(&cpus("0,4"), Order::Interleaved { rounds: 2 }, 10, 0)
            .iter()
            .map(|p| p.cpus.to_string())
            .collect();
        assert_eq!(order, ["0", "4", "0", "4"]);
    }

    #[test]
    fn time_is_shared_and_never_becomes_no_limit() {
        let all = portions(&cpus("0-3"), Order::Sequential, 0, 1_000_000);
        assert!(all.iter().all(|p| p.duration_ns == 250_000), "{all:?}");
        let tiny = portions(&cpus("0-3"), Order::Interleaved { rounds: 5 }, 0, 3);
        assert_eq!(tiny.len(), 20);
        assert!(tiny.iter().all(|p| p.duration_ns == 1), "{tiny:?}");
    }

    #[test]
    fn concurrent_is_one_portion() {
        let all = portions(&cpus("0-3"), Order::Concurrent, 10, 20);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].count, all[0].duration_ns, all[0].cpus.len()), (10, 20, 4));
    }

    fn taken(cpu: u32, values_ns: impl IntoIterator<Item = u64>) -> Taken {
        let mut latency = Histogram::of_ns(values_ns).unwrap();
        latency.max_at_ns = Some(5);
        let outcome = Outcome {
            cpu,
            histograms: BTreeMap::from([(LATENCY.to_owned(), latency)]),
            metrics: BTreeMap::from([("lost".to_owned(), Metric::count(2))]),
            ..Outcome::default()
        };
        Taken { outcomes: vec![outcome], ..Taken::default() }
    }

    #[test]
    fn samples_that_resemble_their_neighbours_count_less() {
        let rounds = |of: &dyn Fn(u64, u64) -> u64| {
            let mut all = Collected::default();
            for round in 0..5 {
                let mut one = taken(3, 100..101);
                let values = (0..1000).map(|n| of(round, n));
                one.outcomes[0].histograms.insert(LATENCY.to_owned(), Histogram::of_ns(values).unwrap());
                all.add(one, 0, Order::Interleaved { rounds: 5 });
            }
            all.take(&cpus("3")).remove(0).metrics
        };
        let calm = rounds(&|round, n| 500 + (n * 7919 + round * 31) % 97);
        assert_eq!(calm[DESIGN_BATCHES].value, 5.0);
        assert!(calm[DESIGN_EFFECT].value < 2.0, "{}", calm[DESIGN_EFFECT].value);
        // Each round has a level of its own: 5000 samples say no more than 5.
        let levels = rounds(&|round, n| 500 + 100 * round + n % 7);
        assert!(levels[DESIGN_EFFECT].value > 500.0, "{}", levels[DESIGN_EFFECT].value);
    }

    #[test]
    fn ten_thousand_rounds_are_few_batches_of_equal_length() {
        let mut batches = Batches::default();
        for round in 0..10_000 {
            batches.add(&Histogram::of_ns([round]).unwrap());
        }
        let counts: Vec<u64> = batches.all.iter().map(Histogram::count).collect();
        let (last, whole) = counts.split_last().unwrap();
        assert!((32..MOST_BATCHES).contains(&counts.len()), "{counts:?}");
        assert!(whole.iter().all(|count| *count == 256) && *last <= 256, "{counts:?}");
        assert_eq!(counts.iter().sum::<u64>(), 10_000);
    }

    #[test]
    fn an_outcome_without_samples_says_so() {
        let finished = |values: &[u64], error: Option<Failure>| {
            let mut all = Collected::default();
            let mut one = taken(3, values.iter().copied());
            one.outcomes[0].error = error;
            all.add(one, 0, Order::Sequential);
            let codes = all.take(&cpus("3")).remove(0).warnings.into_iter().map(|warning| warning.code);
            codes.collect::<Vec<_>>()
        };
        assert_eq!(finished(&[], None), ["no-samples"]);
        assert!(finished(&[100], None).is_empty());
        let failure = Failure { code: "removed".to_owned(), text: String::new(), hint: None };
        assert!(finished(&[], Some(failure)).is_empty(), "the error says why");
    }

    #[test]
    fn rounds_are_merged_and_their_spread_is_kept() {
        let mut all = Collected::default();
        all.add(taken(3, 100..120), 0, Order::Interleaved { rounds: 2 });
        all.add(taken(3, 200..220), 1000, Order::Interleaved { rounds: 2 });
        let merged = all.take(&cpus("3")).remove(0);
        assert_eq!(merged.histograms[LATENCY].count(), 40);
        assert_eq!(merged.histograms[LATENCY].max_at_ns, Some(1005));
        assert_eq!(merged.metrics["lost"].value, 4.0);
        assert_eq!(merged.metrics["rounds"].value, 2.0);
        let (low, high) = (merged.metrics["round_median_min_ns"].value, merged.metrics["round_median_max_ns"].value);
        assert!((low - 109.0).abs() < 2.0 && (high - 209.0).abs() < 2.0, "{low} {high}");
        assert_eq!(merged.warnings[0].code, "drift");
        assert!(all.take(&cpus("3")).is_empty());
    }
}
