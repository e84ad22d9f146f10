//! Histograms of many (CPU, target) pairs, filled a line at a time.
//!
//! A pair sorts its values a few hundred at a time into batches of equal length, in the log's order. The histogram is the
//! sum of the batches, and their differences say how neighbouring values depend on each other.

use std::collections::{BTreeMap, HashMap, HashSet};

use pciescope_core::Histogram;
use pciescope_core::histogram::{MAX_PS, design_effect};

/// Values that are sorted together.
const CHUNK: u64 = 256;
/// Limit of the pairs of a CPU and an interrupt or BAR in a log: each becomes a record with its histograms.
pub const MAX_CELLS: usize = 65_536;
/// The pairs beyond these have one batch: the memory for batches has a bound.
const BATCHED_CELLS: usize = 4096;
/// At this number of batches, each two become one.
const MOST_BATCHES: usize = 20;
/// The values of a first batch.
const FIRST_BATCH: u64 = 1;
/// The number of batches from which the effect is computed, as for a run.
const BATCHES: usize = 10;
/// The longest duration in nanoseconds that a histogram takes.
pub const MAX_NS: u64 = MAX_PS / 1000;

/// One kind of duration of one pair.
struct Durations {
    /// Not in a batch yet.
    values_ns: Vec<u64>,
    batches: Vec<Histogram>,
    /// The values of a batch.
    length: u64,
    min: Extreme,
    max: Extreme,
}

/// A value and when it was taken.
#[derive(Clone, Copy)]
struct Extreme {
    value_ns: u64,
    at_ns: u64,
}

impl Durations {
    fn new(length: u64) -> Self {
        let [min, max] = [u64::MAX, 0].map(|value_ns| Extreme { value_ns, at_ns: u64::MAX });
        Durations { values_ns: Vec::new(), batches: Vec::new(), length, min, max }
    }

    #[inline(always)]
    fn add(&mut self, value_ns: u64, at_ns: u64) {
        if value_ns < self.min.value_ns {
            self.min = Extreme { value_ns, at_ns };
        }
        if value_ns > self.max.value_ns || self.max.at_ns == u64::MAX {
            self.max = Extreme { value_ns, at_ns };
        }
        self.values_ns.push(value_ns);
        if self.values_ns.len() as u64 == self.length.min(CHUNK) {
            self.file();
        }
    }

    /// Moves the values to the last batch, or to a new one.
    #[cold]
    fn file(&mut self) {
        self.values_ns.sort_unstable();
        let values =
            Histogram::of_ns(self.values_ns.drain(..)).expect("only durations that a histogram holds are added");
        match self.batches.last_mut() {
            Some(last) if last.count() < self.length => last.merge(&values),
            _ if values.is_empty() => {}
            _ => self.batches.push(values),
        }
        if self.batches.len() == MOST_BATCHES && self.batches[MOST_BATCHES - 1].count() == self.length {
            for at in 0..MOST_BATCHES / 2 {
                let second = self.batches.remove(at + 1);
                self.batches[at].merge(&second);
            }
            self.length *= 2;
        }
    }
}

/// The durations of every pair, `V` kinds of them.
pub struct Tally<const V: usize> {
    cells: HashMap<(u32, u32), [Durations; V]>,
    first_ns: u64,
}

impl<const V: usize> Default for Tally<V> {
    fn default() -> Self {
        Tally { cells: HashMap::new(), first_ns: u64::MAX }
    }
}

impl<const V: usize> Tally<V> {
    /// Adds one line. Each value is at most [`MAX_NS`].
    #[inline(always)]
    pub fn add(&mut self, at_ns: u64, cpu: u32, target: u32, values_ns: [u64; V]) {
        let known = self.cells.len();
        let cell = self.cells.entry((cpu, target)).or_insert_with(|| {
            // The first kind of duration is what the log measures.
            let length = |kind| if kind == 0 && known < BATCHED_CELLS { FIRST_BATCH } else { u64::MAX };
            std::array::from_fn(|kind| Durations::new(length(kind)))
        });
        self.first_ns = self.first_ns.min(at_ns);
        for (durations, value_ns) in cell.iter_mut().zip(values_ns) {
            durations.add(value_ns, at_ns);
        }
    }

    /// Whether the log named this pair.
    pub fn has(&self, pair: (u32, u32)) -> bool {
        self.cells.contains_key(&pair)
    }

    /// Whether there are more pairs than [`MAX_CELLS`].
    pub fn is_full(&self) -> bool {
        self.cells.len() > MAX_CELLS
    }

    /// Whether several tallies of one log together have more pairs than [`MAX_CELLS`].
    pub fn are_too_many(tallies: &[Self]) -> bool {
        let pairs: HashSet<_> = tallies.iter().flat_map(|tally| tally.cells.keys()).collect();
        pairs.len() > MAX_CELLS
    }

    /// What several tallies of one log hold, by pair, with the times of extremes since the log's first line.
    pub fn totals(tallies: Vec<Self>) -> Vec<((u32, u32), PairTotal<V>)> {
        let start_ns = tallies.iter().map(|tally| tally.first_ns).min().unwrap_or(0);
        let mut merged: BTreeMap<(u32, u32), Vec<[Durations; V]>> = BTreeMap::new();
        for (pair, mut cell) in tallies.into_iter().flat_map(|tally| tally.cells) {
            cell.iter_mut().for_each(Durations::file);
            merged.entry(pair).or_default().push(cell);
        }
        let total = |parts: Vec<[Durations; V]>| {
            let histograms = std::array::from_fn(|kind| {
                let mut all = Histogram::default();
                for part in parts.iter().map(|part| &part[kind]) {
                    let mut own = Histogram::default();
                    part.batches.iter().for_each(|batch| own.merge(batch));
                    own.min_at_ns = Some(part.min.at_ns.saturating_sub(start_ns));
                    own.max_at_ns = Some(part.max.at_ns.saturating_sub(start_ns));
                    all.merge(&own);
                }
                all
            });
            let batches: Vec<&Histogram> = parts.iter().flat_map(|part| &part[0].batches).collect();
            let is_batched = parts.iter().all(|part| part[0].length < u64::MAX);
            PairTotal { effect: effect(&batches).filter(|_| is_batched), histograms }
        };
        merged.into_iter().map(|(pair, parts)| (pair, total(parts))).collect()
    }
}

/// What a pair has.
pub struct PairTotal<const V: usize> {
    /// Each kind of duration.
    pub histograms: [Histogram; V],
    /// How many neighbouring values of the first kind count as one, and from how many batches that is known.
    pub effect: Option<(f64, usize)>,
}

/// Makes at most [`BATCHES`] of about equal length of them, and asks how they differ.
fn effect(batches: &[&Histogram]) -> Option<(f64, usize)> {
    let count: u64 = batches.iter().map(|batch| batch.count()).sum();
    let mut whole = vec![Histogram::default(); BATCHES];
    let mut before = 0;
    for batch in batches {
        let middle = before + batch.count() / 2;
        before += batch.count();
        let place = u128::from(middle) * BATCHES as u128 / u128::from(count.max(1));
        whole[(place as usize).min(BATCHES - 1)].merge(batch);
    }
    whole.retain(|batch| !batch.is_empty());
    let longer = if are_alike(&whole) { LONGER } else { 1.0 };
    Some((design_effect(&whole)? * longer, whole.len()))
}

/// What the effect of a log is multiplied by if its batches depend on each other too: of a random walk, the variance of the
/// mean over what ten independent batches would give.
const LONGER: f64 = 20.0;

/// Whether neighbouring batches are alike (von Neumann's ratio at the median). Of ten independent batches about one set in
/// twenty-five is.
fn are_alike(batches: &[Histogram]) -> bool {
    let mut all = Histogram::default();
    batches.iter().for_each(|batch| all.merge(batch));
    let Some(middle) = all.middle_ns() else { return false };
    let share = |batch: &Histogram| batch.count_up_to_ns(middle) as f64 / batch.count() as f64;
    let shares: Vec<f64> = batches.iter().map(share).collect();
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let steps: f64 = shares.windows(2).map(|two| (two[1] - two[0]).powi(2)).sum();
    let spread: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
    shares.len() > 5 && steps < spread
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counts_as_a_histogram_does(values in proptest::collection::vec(prop_oneof![0u64..3, 0..5000u64, 0..=MAX_NS], 1..600)) {
            let mut tally = Tally::<1>::default();
            for (at, &v) in values.iter().enumerate() { tally.add(100 + at as u64, 1, 2, [v]); }
            let [(pair, PairTotal { histograms: [got], .. })] = &Tally::totals(vec![tally])[..] else { panic!("one pair") };
            prop_assert_eq!(*pair, (1, 2));
            let mut want = Histogram::of_ns(values.iter().copied()).unwrap();
            let (min, max) = (values.iter().min().unwrap(), values.iter().max().unwrap());
            want.min_at_ns = values.iter().position(|v| v == min).map(|at| at as u64);
            want.max_at_ns = values.iter().position(|v| v == max).map(|at| at as u64);
            prop_assert_eq!(serde_json::to_string(got).unwrap(), serde_json::to_string(&want).unwrap());
        }
    }

    /// The batches hold what the log held, in its order, for every length and number of parts.
    #[test]
    fn batches_are_the_log_in_its_order() {
        for count in [1u64, 9, 10, 255, 256, 257, 1000, 20_000, 300_000] {
            for parts in [1, 3] {
                let mut tallies: Vec<Tally<1>> = (0..parts).map(|_| Tally::default()).collect();
                for n in 0..count {
                    let part = (n * parts as u64 / count) as usize;
                    tallies[part].add(n, 1, 2, [1000 + n * 1000 / count]);
                }
                let mut batches: Vec<Histogram> = Vec::new();
                for cell in tallies.iter_mut().flat_map(|tally| tally.cells.values_mut()) {
                    cell[0].file();
                    batches.extend(cell[0].batches.iter().cloned());
                }
                assert_eq!(batches.iter().map(Histogram::count).sum::<u64>(), count);
                assert!(batches.len() <= MOST_BATCHES * parts, "{count}: {}", batches.len());
                assert!(batches.len() >= 9.min(count as usize), "{count}: {}", batches.len());
                let medians: Vec<f64> =
                    batches.iter().filter(|b| !b.is_empty()).filter_map(Histogram::median_ns).collect();
                assert!(medians.is_sorted(), "{count}: {medians:?}");
                // Values that only rise: each batch is of one size, and as many samples count as one.
                let effect = Tally::totals(tallies)[0].1.effect;
                if count >= 1000 {
                    let (effect, batches) = effect.unwrap();
                    assert!(
                        effect > count as f64 / 12.0 && (8..=10).contains(&batches),
                        "{count}: {effect}, {batches}"
                    );
                }
            }
        }
        // Values without an order, and of very many sizes.
        let mut tally = Tally::<1>::default();
        let mut random = 1u64;
        for n in 0..200_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            tally.add(n, 1, 2, [(random >> 33) % 1_000_000_000]);
        }
        let (effect, _) = Tally::totals(vec![tally])[0].1.effect.unwrap();
        assert!(effect < 4.0, "{effect}");
    }
}
