//! Histograms of many (CPU, target) pairs, filled a line at a time.
//!
//! The counters are the buckets of [`Histogram`] in pages of one power of two each: adding a value is a few
//! instructions, and a pair takes only the pages that its values lie in.

use std::collections::{BTreeMap, HashMap, HashSet};

use pciescope_core::Histogram;
use pciescope_core::histogram::{MAX_PS, design_effect};

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
/// The pairs beyond these have no batches: the memory for them has a bound.
const BATCHED_CELLS: usize = 4096;
/// With so many batches each two become one.
const MOST_BATCHES: usize = 20;
/// The values of a first batch.
const FIRST_BATCH: u64 = 16;
/// A batch has at most so many buckets; of more, each two become one.
const BATCH_BUCKETS: usize = 2048;
/// So many batches say how neighbouring values depend on each other, as those of a run do.
const BATCHES: usize = 10;
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
    course: Course,
}

/// What was counted after equal numbers of values: the difference of two is a batch of neighbouring values.
#[derive(Default)]
struct Course {
    /// Buckets in ascending order with their counts up to then.
    counted: Vec<Vec<(u32, u64)>>,
    /// How many values lie between two of these.
    length: u64,
    /// The number of values at which the next is taken; 0 is never.
    next: u64,
    /// How often neighbouring buckets became one, as a power of two.
    shift: u32,
}

impl Course {
    #[cold]
    fn take(&mut self, pages: &[Option<Box<[u64; PAGE]>>]) {
        let counted = loop {
            match filled(pages, self.shift) {
                counted if counted.len() > BATCH_BUCKETS => self.shift += 1,
                counted => break counted,
            }
        };
        self.counted.push(counted);
        if self.counted.len() == MOST_BATCHES {
            let mut number = 0;
            self.counted.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.length *= 2;
        }
        self.next += self.length;
    }

    /// The batches, the last of them up to what the pages hold.
    fn batches(&self, pages: &[Option<Box<[u64; PAGE]>>]) -> Vec<Histogram> {
        let end = filled(pages, self.shift);
        let mut before: HashMap<u32, u64> = HashMap::new();
        let mut batches = Vec::new();
        for counted in self.counted.iter().chain([&end]) {
            // Earlier ones have finer buckets; `1 << shift` of the finest have one number here.
            let mut now: HashMap<u32, u64> = HashMap::new();
            for (bucket, count) in counted {
                *now.entry(bucket >> self.shift << self.shift).or_default() += count;
            }
            let mut batch = Histogram::default();
            for (bucket, count) in now.iter().filter(|now| before.get(now.0) != Some(now.1)) {
                let (page, place) = (*bucket as usize / PAGE, *bucket as usize % PAGE);
                let more = count - before.get(bucket).copied().unwrap_or(0);
                batch.record_ps(low_ps(page, place), more).expect(FITS);
            }
            batches.push(batch);
            before = now;
        }
        batches
    }
}

const FITS: &str = "add() takes only durations that a histogram holds";

/// The buckets that hold anything, ascending, with the first of each `1 << shift` neighbours as their name.
fn filled(pages: &[Option<Box<[u64; PAGE]>>], shift: u32) -> Vec<(u32, u64)> {
    let mut filled: Vec<(u32, u64)> = Vec::new();
    for (page, counts) in pages.iter().enumerate() {
        for (place, &count) in counts.iter().flat_map(|counts| counts.iter().enumerate()).filter(|c| *c.1 > 0) {
            let bucket = ((page * PAGE + place) as u32) >> shift << shift;
            match filled.last_mut() {
                Some(last) if last.0 == bucket => last.1 += count,
                _ => filled.push((bucket, count)),
            }
        }
    }
    filled
}

/// The lower edge of a bucket. The last bucket may reach beyond an hour: its lower edge does not.
fn low_ps(page: usize, place: usize) -> u64 {
    let base = if page == 0 { 0 } else { PAGE };
    ((base + place) as u64) << page.saturating_sub(1)
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
            if self.count == self.course.next {
                self.course.take(&self.pages);
            }
        }
    }

    #[cold]
    fn open_pages(&mut self) {
        self.pages.resize_with(PAGES, || None);
        for (value_ns, number) in std::mem::take(&mut self.loose).into_iter().zip(1..) {
            self.count_up(value_ns);
            if number == self.course.next {
                self.course.take(&self.pages);
            }
        }
    }

    /// The values in batches, in the log's order; none for a pair that keeps none.
    fn batches(&self) -> Vec<Histogram> {
        if self.course.next == 0 {
            return Vec::new();
        }
        if !self.pages.is_empty() {
            return self.course.batches(&self.pages);
        }
        let batch = |values: &[u64]| Histogram::of_ns(values.iter().copied()).expect(FITS);
        self.loose.chunks(self.loose.len().div_ceil(BATCHES).max(1)).map(batch).collect()
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
        for &value_ns in &self.loose {
            histogram.record_ps(value_ns * 1000, 1).expect(FITS);
        }
        for (page, counts) in self.pages.iter().enumerate() {
            let Some(counts) = counts else { continue };
            for (place, &count) in counts.iter().enumerate().filter(|c| *c.1 > 0) {
                histogram.record_ps(low_ps(page, place), count).expect(FITS);
            }
        }
        if self.count > 0 {
            let (sum, min, max) = (self.sum_ns * 1000, self.min.value_ns * 1000, self.max.value_ns * 1000);
            histogram.set_exact(sum, min, max).expect(FITS);
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
            let mut cell: [Counters; V] = std::array::from_fn(|_| Counters::default());
            if self.cells.len() < BATCHED_CELLS {
                // The first kind of duration is what the log measures.
                cell[0].course = Course { length: FIRST_BATCH, next: FIRST_BATCH, ..Course::default() };
            }
            self.cells.push((pair, cell));
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

    /// What several tallies of one log hold, by pair, with the times of extremes since the log's first line.
    pub fn totals(tallies: &[Self]) -> Vec<((u32, u32), Total<V>)> {
        let start_ns = tallies.iter().map(|t| t.first_ns).min().unwrap_or(0);
        let mut merged: BTreeMap<(u32, u32), Vec<&[Counters; V]>> = BTreeMap::new();
        for (pair, counters) in tallies.iter().flat_map(|t| &t.cells) {
            merged.entry(*pair).or_default().push(counters);
        }
        let total = |parts: Vec<&[Counters; V]>| {
            let mut histograms: [Histogram; V] = std::array::from_fn(|_| Histogram::default());
            for part in &parts {
                for (histogram, counters) in histograms.iter_mut().zip(*part) {
                    histogram.merge(&counters.histogram(start_ns));
                }
            }
            let batches: Vec<Histogram> = parts.iter().flat_map(|part| part[0].batches()).collect();
            Total { effect: effect(&batches, histograms[0].count()), histograms }
        };
        merged.into_iter().map(|(pair, parts)| (pair, total(parts))).collect()
    }
}

/// What a pair has.
pub struct Total<const V: usize> {
    /// Each kind of duration.
    pub histograms: [Histogram; V],
    /// How many neighbouring values of the first kind count as one, and from how many batches that is known.
    pub effect: Option<(f64, usize)>,
}

/// Makes at most [`BATCHES`] of about equal length of them, and asks how they differ; `None` where some are missing.
fn effect(batches: &[Histogram], count: u64) -> Option<(f64, usize)> {
    if batches.iter().map(Histogram::count).sum::<u64>() != count {
        return None;
    }
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
            let [(pair, Total { histograms: [got], .. })] = &Tally::totals(&[tally])[..] else { panic!("one pair") };
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
                let batches: Vec<Histogram> = tallies
                    .iter()
                    .flat_map(|tally| tally.cells[..].iter())
                    .flat_map(|cell| cell.1[0].batches())
                    .collect();
                assert_eq!(batches.iter().map(Histogram::count).sum::<u64>(), count);
                assert!(batches.len() <= MOST_BATCHES * parts, "{count}: {}", batches.len());
                assert!(batches.len() >= 9.min(count as usize), "{count}: {}", batches.len());
                let medians: Vec<f64> =
                    batches.iter().filter(|b| !b.is_empty()).filter_map(Histogram::median_ns).collect();
                assert!(medians.is_sorted(), "{count}: {medians:?}");
                // Values that only rise: each batch is of one size, and as many samples count as one.
                let effect = Tally::totals(&tallies)[0].1.effect;
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
        assert!(tally.cells[0].1[0].course.counted.iter().all(|counted| counted.len() <= BATCH_BUCKETS));
        let (effect, _) = Tally::totals(&[tally])[0].1.effect.unwrap();
        assert!(effect < 4.0, "{effect}");
    }
}
