//! The samples of one CPU and target over all calls of a probe: their sum, and the spread of the rounds.

use pciescope_core::warning;
use std::collections::BTreeMap;

use pciescope_core::histogram::design_effect;
use pciescope_core::outcome::{DESIGN_BATCHES, DESIGN_EFFECT, LATENCY, Sample, SampleKind, TRIGGER_TO_HANDLER};
use pciescope_core::record::{Method, Metric};
use pciescope_core::{CpuList, Histogram, Order, Outcome};
use pciescope_hw::probe::Sampled;

/// Sums by CPU and target.
#[derive(Default)]
pub(crate) struct Totals {
    /// Of the first call.
    pub method: Option<Method>,
    all: BTreeMap<(u32, u16), Sum>,
}

#[derive(Default)]
struct Sum {
    outcome: Outcome,
    medians_ns: Vec<f64>,
    /// What is measured, in batches of slices.
    batches: Batches,
    /// The raw samples of that in batches, where one slice has them all.
    raw: Vec<Histogram>,
}

/// Slices in batches of equal length, at most [`MOST_BATCHES`]: a run may have 10,000 rounds on each of many CPUs.
#[derive(Default)]
struct Batches {
    all: Vec<Histogram>,
    /// Slices that a batch holds, as a power of two.
    doublings: u32,
    slices: u64,
}

/// At this number of batches, each two become one.
const MOST_BATCHES: usize = 64;

impl Batches {
    fn add(&mut self, slice: &Histogram) {
        match self.all.last_mut() {
            Some(last) if self.slices % (1 << self.doublings) != 0 => last.merge(slice),
            _ => self.all.push(slice.clone()),
        }
        self.slices += 1;
        if self.all.len() == MOST_BATCHES && self.slices % (1 << self.doublings) == 0 {
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

/// The number of samples that an outcome has had its time for. At a fixed rate, times without a trigger are part of it.
pub(crate) fn asked(outcome: &Outcome) -> f64 {
    if let Some(latency) = outcome.histograms.get(LATENCY) {
        return latency.count() as f64;
    }
    let count = |name| outcome.metrics.get(name).map_or(0.0, |metric| metric.value);
    ["triggers", "missed", "merged"].into_iter().map(count).sum()
}

/// Number of batches of raw samples.
const BATCHES: usize = 10;

/// The raw samples of an outcome in batches; none where not all of them are there.
fn batches(samples: &[Sample], outcome: &Outcome) -> Vec<Histogram> {
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

impl Totals {
    /// Adds a slice that began `offset_ns` after the run; hands back its raw samples with times of the run.
    pub fn add(&mut self, mut sampled: Sampled, offset_ns: u64, order: Order) -> Vec<Sample> {
        shift(&mut sampled, offset_ns);
        let method = self.method.get_or_insert(sampled.method);
        method.order = order_name(order);
        for outcome in sampled.outcomes {
            let total = self.all.entry((outcome.cpu, outcome.index)).or_default();
            if order == Order::Sequential && !sampled.samples.is_empty() {
                // Of several slices, each is a batch by itself.
                let is_first = total.medians_ns.is_empty();
                total.raw = if is_first { batches(&sampled.samples, &outcome) } else { Vec::new() };
            }
            if let Some((histogram, _)) = main_of(&outcome) {
                total.batches.add(histogram);
                total.medians_ns.extend(histogram.middle_ns());
            }
            total.merge(outcome);
        }
        sampled.samples
    }

    /// Takes the finished outcomes of these CPUs out, by CPU and target.
    pub fn take(&mut self, cpus: &CpuList) -> Vec<Outcome> {
        let keys: Vec<_> = self.all.keys().copied().filter(|(cpu, _)| cpus.contains(*cpu)).collect();
        keys.iter().filter_map(|key| self.all.remove(key)).map(Sum::finish).collect()
    }
}

impl Sum {
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
                // Counts add up; any other figure is that of the last slice.
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
        if let Some(effect) = design_effect(batches) {
            self.outcome.metrics.insert(DESIGN_EFFECT.to_owned(), Metric::of(effect, "1"));
            self.outcome.metrics.insert(DESIGN_BATCHES.to_owned(), Metric::count(batches.len() as u64));
        }
        let is_empty = main_of(&self.outcome).is_some() && asked(&self.outcome) == 0.0;
        if is_empty && self.outcome.error.is_none() {
            self.outcome.warnings.push(warning::NO_SAMPLES.warn("the time was over before the first sample"));
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
            self.outcome
                .warnings
                .push(warning::DRIFT.warn(
                    "the rounds' medians differ by more than a tenth (round_median_min_ns, round_median_max_ns)",
                ));
        }
        self.outcome
    }
}

/// The `order` field of a record.
fn order_name(order: Order) -> String {
    match order {
        Order::Sequential => "sequential".to_owned(),
        Order::Interleaved { .. } => "interleaved".to_owned(),
        Order::Concurrent => "concurrent".to_owned(),
    }
}

/// Makes times since a call of the probe began times since the run began, `offset_ns` before.
fn shift(sampled: &mut Sampled, offset_ns: u64) {
    for histogram in sampled.outcomes.iter_mut().flat_map(|outcome| outcome.histograms.values_mut()) {
        for at_ns in [&mut histogram.min_at_ns, &mut histogram.max_at_ns].into_iter().flatten() {
            *at_ns = at_ns.saturating_add(offset_ns);
        }
    }
    for sample in &mut sampled.samples {
        sample.at_ns = sample.at_ns.saturating_add(offset_ns);
    }
}

#[cfg(test)]
mod tests {
    use pciescope_core::record::Failure;

    use super::*;

    fn cpus(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    fn sampled(cpu: u32, values_ns: impl IntoIterator<Item = u64>) -> Sampled {
        let mut latency = Histogram::of_ns(values_ns).unwrap();
        latency.max_at_ns = Some(5);
        let outcome = Outcome {
            cpu,
            histograms: BTreeMap::from([(LATENCY.to_owned(), latency)]),
            metrics: BTreeMap::from([("lost".to_owned(), Metric::count(2))]),
            ..Outcome::default()
        };
        Sampled { outcomes: vec![outcome], ..Sampled::default() }
    }

    #[test]
    fn samples_that_resemble_their_neighbours_count_less() {
        let rounds = |of: &dyn Fn(u64, u64) -> u64| {
            let mut all = Totals::default();
            for round in 0..5 {
                let mut one = sampled(3, 100..101);
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
            let mut all = Totals::default();
            let mut one = sampled(3, values.iter().copied());
            one.outcomes[0].error = error;
            all.add(one, 0, Order::Sequential);
            let codes = all.take(&cpus("3")).remove(0).warnings.into_iter().map(|warning| warning.code);
            codes.collect::<Vec<_>>()
        };
        assert_eq!(finished(&[], None), ["no-samples"]);
        assert!(finished(&[100], None).is_empty());
        let failure = Failure::removed("");
        assert!(finished(&[], Some(failure)).is_empty(), "the error says why");
    }

    #[test]
    fn rounds_are_merged_and_their_spread_is_kept() {
        let mut all = Totals::default();
        all.add(sampled(3, 100..120), 0, Order::Interleaved { rounds: 2 });
        all.add(sampled(3, 200..220), 1000, Order::Interleaved { rounds: 2 });
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

    #[test]
    fn times_without_a_trigger_are_part_of_the_count() {
        let counts = [("triggers", 70), ("missed", 20), ("merged", 10), ("late", 5), ("lost", 3), ("handled", 67)];
        let metrics = counts.map(|(name, count)| (name.to_owned(), Metric::count(count)));
        assert_eq!(asked(&Outcome { metrics: metrics.into(), ..Outcome::default() }), 100.0);
        assert_eq!(asked(&Outcome::default()), 0.0);
    }
}
