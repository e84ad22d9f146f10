//! Histograms of many (CPU, target) pairs, filled a line at a time.
//!
//! The counters are the buckets of [`Histogram`] in pages of one power of two each: adding a value is a few
//! instructions, and a pair takes only the pages that its values lie in.

use std::collections::{HashMap, HashSet};

use pciescope_core::Histogram;
use pciescope_core::histogram::MAX_PS;

/// Buckets per power of two; as many as [`Histogram`] has.
const PAGE: usize = 1024;
/// Pages for every duration up to [`MAX_PS`].
const PAGES: usize = MAX_PS.ilog2() as usize - 9 + 1;
/// How many values a pair keeps as they are before it gets pages: a log of very many pairs has few values each.
const LOOSE: usize = 256;
/// Slots of the direct-mapped table in front of the hash map.
const SLOTS: usize = 4096;
/// How many pairs of a CPU and an interrupt or BAR a log may have: each becomes a record with its histograms.
pub const MAX_CELLS: usize = 65_536;
/// The longest duration in nanoseconds that a histogram takes.
pub const MAX_NS: u64 = MAX_PS / 1000;

/// One kind of duration of one pair.
#[derive(Default)]
struct Counters {
    loose: Vec<u64>,
    pages: Vec<Option<Box<[u64; PAGE]>>>,
    count: u64,
    sum_ns: u128,
    min: Extreme,
    max: Extreme,
}

/// A value and when it was taken.
#[derive(Default, Clone, Copy)]
struct Extreme {
    value_ns: u64,
    at_ns: u64,
}

impl Counters {
    #[inline(always)]
    fn add(&mut self, value_ns: u64, at_ns: u64) {
        if self.count == 0 || value_ns < self.min.value_ns {
            self.min = Extreme { value_ns, at_ns };
        }
        if self.count == 0 || value_ns > self.max.value_ns {
            self.max = Extreme { value_ns, at_ns };
        }
        self.count += 1;
        self.sum_ns += u128::from(value_ns);
        if self.pages.is_empty() {
            self.loose.push(value_ns);
            if self.loose.len() > LOOSE {
                self.open_pages();
            }
        } else {
            self.count_up(value_ns);
        }
    }

    #[cold]
    fn open_pages(&mut self) {
        self.pages.resize_with(PAGES, || None);
        for value_ns in std::mem::take(&mut self.loose) {
            self.count_up(value_ns);
        }
    }

    #[inline(always)]
    fn count_up(&mut self, value_ns: u64) {
        let ps = value_ns * 1000;
        // Pages 0 and 1 have buckets of 1 ps; each page above has buckets twice as wide as the one below.
        let page = (ps | (PAGE as u64 - 1)).ilog2() as usize - 9;
        let shift = page.saturating_sub(1);
        let counts = self.pages[page].get_or_insert_with(|| Box::new([0; PAGE]));
        counts[(ps >> shift) as usize % PAGE] += 1;
    }

    fn histogram(&self, start_ns: u64) -> Histogram {
        let mut histogram = Histogram::default();
        let fits = "add() takes only durations that a histogram holds";
        for &value_ns in &self.loose {
            histogram.record_ps(value_ns * 1000, 1).expect(fits);
        }
        for (page, counts) in self.pages.iter().enumerate() {
            let Some(counts) = counts else { continue };
            let shift = page.saturating_sub(1);
            let base = if page == 0 { 0 } else { PAGE };
            for (place, &count) in counts.iter().enumerate().filter(|c| *c.1 > 0) {
                // The last bucket may reach beyond an hour: its lower edge does not.
                histogram.record_ps(((base + place) as u64) << shift, count).expect(fits);
            }
        }
        if self.count > 0 {
            let (sum, min, max) = (self.sum_ns * 1000, self.min.value_ns * 1000, self.max.value_ns * 1000);
            histogram.set_exact(sum, min, max).expect(fits);
            histogram.min_at_ns = Some(self.min.at_ns.saturating_sub(start_ns));
            histogram.max_at_ns = Some(self.max.at_ns.saturating_sub(start_ns));
        }
        histogram
    }
}

/// The durations of every pair, `V` kinds of them.
pub struct Tally<const V: usize> {
    cells: Vec<((u32, u32), [Counters; V])>,
    places: HashMap<(u32, u32), usize>,
    /// Pair and place of the last cell that fell into the slot.
    slots: Vec<((u32, u32), usize)>,
    first_ns: u64,
    is_full: bool,
}

impl<const V: usize> Default for Tally<V> {
    fn default() -> Self {
        let empty = ((u32::MAX, u32::MAX), usize::MAX);
        Tally {
            cells: Vec::new(),
            places: HashMap::new(),
            slots: vec![empty; SLOTS],
            first_ns: u64::MAX,
            is_full: false,
        }
    }
}

impl<const V: usize> Tally<V> {
    /// Adds one line. Each value is at most [`MAX_NS`].
    #[inline(always)]
    pub fn add(&mut self, at_ns: u64, cpu: u32, target: u32, values_ns: [u64; V]) {
        let pair = (cpu, target);
        let slot = (cpu as usize * 67 + target as usize) % SLOTS;
        let place = if self.slots[slot].0 == pair && self.slots[slot].1 != usize::MAX {
            self.slots[slot].1
        } else {
            self.find(pair, slot)
        };
        self.first_ns = self.first_ns.min(at_ns);
        for (counters, value_ns) in self.cells[place].1.iter_mut().zip(values_ns) {
            counters.add(value_ns, at_ns);
        }
    }

    #[cold]
    fn find(&mut self, pair: (u32, u32), slot: usize) -> usize {
        if self.cells.len() >= MAX_CELLS && !self.places.contains_key(&pair) {
            // The sample goes anywhere: whoever finds the tally full refuses it as a whole.
            self.is_full = true;
            return 0;
        }
        let place = *self.places.entry(pair).or_insert_with(|| {
            self.cells.push((pair, std::array::from_fn(|_| Counters::default())));
            self.cells.len() - 1
        });
        self.slots[slot] = (pair, place);
        place
    }

    /// Whether a pair beyond [`MAX_CELLS`] came: what it holds is then no longer right.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether several tallies of one log together have more pairs than [`MAX_CELLS`].
    pub fn are_too_many(tallies: &[Self]) -> bool {
        let pairs = || tallies.iter().flat_map(|tally| tally.places.keys());
        tallies.iter().any(Self::is_full)
            || (pairs().count() > MAX_CELLS && pairs().collect::<HashSet<_>>().len() > MAX_CELLS)
    }

    /// The histograms of several tallies of one log by pair, with the times of extremes since the log's first line.
    pub fn histograms(tallies: &[Self]) -> Vec<((u32, u32), [Histogram; V])> {
        let start_ns = tallies.iter().map(|t| t.first_ns).min().unwrap_or(0);
        let mut merged: std::collections::BTreeMap<(u32, u32), [Histogram; V]> = Default::default();
        for (pair, counters) in tallies.iter().flat_map(|t| &t.cells) {
            let all = merged.entry(*pair).or_insert_with(|| std::array::from_fn(|_| Histogram::default()));
            for (histogram, counters) in all.iter_mut().zip(counters) {
                histogram.merge(&counters.histogram(start_ns));
            }
        }
        merged.into_iter().collect()
    }
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
            let [(pair, [got])] = &Tally::histograms(&[tally])[..] else { panic!("one pair") };
            prop_assert_eq!(*pair, (1, 2));
            let mut want = Histogram::of_ns(values.iter().copied()).unwrap();
            let (min, max) = (values.iter().min().unwrap(), values.iter().max().unwrap());
            want.min_at_ns = values.iter().position(|v| v == min).map(|at| at as u64);
            want.max_at_ns = values.iter().position(|v| v == max).map(|at| at as u64);
            prop_assert_eq!(serde_json::to_string(got).unwrap(), serde_json::to_string(&want).unwrap());
        }
    }
}
