//! Durations without loss of the tail: a log-linear histogram with exact smallest, largest and sum.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_with::skip_serializing_none;

use crate::Error;

/// Durations below this many picoseconds have a bucket each; above, every power of two has half as many buckets.
/// 2048 keeps every duration to three significant digits, as HdrHistogram does with the same edges.
const LINEAR: u64 = 2048;
/// The longest duration a histogram holds, in picoseconds: one hour.
pub const MAX_PS: u64 = 3_600 * 1_000_000_000_000;

/// A log-linear (HDR) histogram of durations in picoseconds, mergeable, with nothing trimmed.
///
/// Picoseconds, because a tick of a 2.6 GHz counter is 385 ps: rounding to nanoseconds would falsify the cost
/// of a stamp pair. Percentiles are exact to 0.1 % of their value; smallest, largest, sum and count are exact.
///
/// The bucket edges are HdrHistogram's, but only buckets that hold something are kept: a dense array up to an hour
/// takes 350 KB, and a machine of 1000 CPUs and a device of 64 vectors make 128,000 histograms in one run.
#[derive(Debug, Clone)]
pub struct Histogram {
    /// Lower edge and count of the buckets that hold anything, ascending.
    filled: Vec<(u64, u64)>,
    count: u64,
    sum_ps: u128,
    min_ps: u64,
    max_ps: u64,
    /// When the smallest value was taken, in nanoseconds since the run's start, where the probe says.
    pub min_at_ns: Option<u64>,
    /// When the largest value was taken, in nanoseconds since the run's start, where the probe says.
    pub max_at_ns: Option<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            filled: Vec::new(),
            count: 0,
            sum_ps: 0,
            min_ps: u64::MAX,
            max_ps: 0,
            min_at_ns: None,
            max_at_ns: None,
        }
    }
}

/// The width of the bucket that takes `value_ps`, as a power of two.
fn width_bits(value_ps: u64) -> u32 {
    if value_ps < LINEAR { 0 } else { value_ps.ilog2() + 1 - LINEAR.ilog2() }
}

/// The lower edge of the bucket that takes `value_ps`.
fn low_edge(value_ps: u64) -> u64 {
    value_ps >> width_bits(value_ps) << width_bits(value_ps)
}

/// The largest duration in the bucket with this lower edge.
fn high_edge(low_ps: u64) -> u64 {
    low_ps + ((1 << width_bits(low_ps)) - 1)
}

impl Histogram {
    /// A histogram of these durations, each in nanoseconds.
    pub fn of_ns(values: impl IntoIterator<Item = u64>) -> Result<Self, Error> {
        let mut histogram = Histogram::default();
        for value in values {
            histogram.record_ps(value.saturating_mul(1000), 1)?;
        }
        Ok(histogram)
    }

    /// Adds `count` durations of `value_ps` picoseconds. A duration over [`MAX_PS`] is refused, never clamped.
    pub fn record_ps(&mut self, value_ps: u64, count: u64) -> Result<(), Error> {
        if value_ps > MAX_PS {
            return Err(Error::TooLong { value_ps, max_ps: MAX_PS });
        }
        if count == 0 {
            return Ok(());
        }
        let low = low_edge(value_ps);
        let filled = &mut self.filled;
        match filled.last_mut() {
            Some(last) if last.0 == low => last.1 = last.1.saturating_add(count),
            Some(last) if last.0 > low => match filled.binary_search_by_key(&low, |b| b.0) {
                Ok(place) => filled[place].1 = filled[place].1.saturating_add(count),
                Err(place) => filled.insert(place, (low, count)),
            },
            _ => filled.push((low, count)),
        }
        self.count = self.count.saturating_add(count);
        self.sum_ps = self.sum_ps.saturating_add(u128::from(value_ps) * u128::from(count));
        self.min_ps = self.min_ps.min(value_ps);
        self.max_ps = self.max_ps.max(value_ps);
        Ok(())
    }

    /// Adds one duration, and when it was measured: the times of the smallest and largest are kept.
    ///
    /// # Errors
    /// As for [`Histogram::record_ps`].
    pub fn record_ps_at(&mut self, value_ps: u64, at_ns: u64) -> Result<(), Error> {
        let is_first = self.is_empty();
        let (is_min, is_max) = (is_first || value_ps < self.min_ps, is_first || value_ps > self.max_ps);
        self.record_ps(value_ps, 1)?;
        if is_min {
            self.min_at_ns = Some(at_ns);
        }
        if is_max {
            self.max_at_ns = Some(at_ns);
        }
        Ok(())
    }

    /// Replaces sum, smallest and largest, which are computed from the buckets, by exact values (the kernel module
    /// keeps them in addition to its buckets).
    ///
    /// # Errors
    /// [`Error::TooLong`] if `max_ps` is over [`MAX_PS`].
    pub fn set_exact(&mut self, sum_ps: u128, min_ps: u64, max_ps: u64) -> Result<(), Error> {
        if max_ps > MAX_PS {
            return Err(Error::TooLong { value_ps: max_ps, max_ps: MAX_PS });
        }
        (self.sum_ps, self.min_ps, self.max_ps) = (sum_ps, min_ps, max_ps);
        Ok(())
    }

    /// Adds every duration of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        add(&mut self.filled, other.filled.iter().copied());
        self.count = self.count.saturating_add(other.count);
        self.sum_ps = self.sum_ps.saturating_add(other.sum_ps);
        if other.count() > 0 {
            if other.min_ps < self.min_ps {
                (self.min_ps, self.min_at_ns) = (other.min_ps, other.min_at_ns);
            }
            if other.max_ps > self.max_ps || self.max_at_ns.is_none() && other.max_ps == self.max_ps {
                (self.max_ps, self.max_at_ns) = (other.max_ps, other.max_at_ns);
            }
        }
    }

    /// How many durations were recorded.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Whether no duration was recorded.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }
    /// The smallest duration in nanoseconds, exact; `None` when empty.
    pub fn min_ns(&self) -> Option<f64> {
        (!self.is_empty()).then_some(self.min_ps as f64 / 1e3)
    }
    /// The largest duration in nanoseconds, exact; `None` when empty.
    pub fn max_ns(&self) -> Option<f64> {
        (!self.is_empty()).then_some(self.max_ps as f64 / 1e3)
    }
    /// The arithmetic mean in nanoseconds, exact; `None` when empty.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.sum_ps as f64 / self.count() as f64 / 1e3)
    }
    /// The sum of all durations in picoseconds, exact.
    pub fn sum_ps(&self) -> u128 {
        self.sum_ps
    }
    /// The median in nanoseconds, to 0.1 %; `None` of fewer than 10 samples, as [`percentile_ns`](Self::percentile_ns).
    pub fn median_ns(&self) -> Option<f64> {
        self.percentile_ns(50.0)
    }
    /// The duration in the middle, of however few samples: to compute with, not to show as a median. `None` when empty.
    pub fn middle_ns(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.value_at(50.0))
    }

    /// The duration that `percent` of the samples do not exceed, in nanoseconds, to 0.1 %.
    ///
    /// `None` if there are too few samples: a percentile p needs 10/(1-p) samples (p99 needs 1000), and the
    /// median 10. A histogram of fewer samples still has its smallest and largest.
    pub fn percentile_ns(&self, percent: f64) -> Option<f64> {
        let above = 1.0 - percent / 100.0;
        let needed = if percent <= 50.0 { 10.0 } else { 10.0 / above };
        // 1 - 0.999 is a little more than 0.001 in binary: without the tolerance 10,000 samples would not do for p99.9.
        (self.count() as f64 >= needed * (1.0 - 1e-9)).then(|| self.value_at(percent))
    }

    /// The upper edge of the bucket that holds the sample of this rank, within smallest and largest.
    fn value_at(&self, percent: f64) -> f64 {
        let rank = percent / 100.0 * self.count() as f64;
        // 0.999 * 10,000 may come out a hair above 9990 in binary, and the rank one too high.
        let rank = ((rank * (1.0 - 1e-12)).ceil() as u64).max(1);
        let mut below = 0u64;
        let mut low_ps = None;
        for bucket in self.filled.iter() {
            low_ps = Some(bucket.0);
            below = below.saturating_add(bucket.1);
            if below >= rank {
                break;
            }
        }
        let ps = low_ps.map_or(0, high_edge);
        // Not `clamp`: a forged file may have its smallest above its largest.
        ps.min(self.max_ps).max(self.min_ps) as f64 / 1e3
    }

    /// How many durations lie at or below `ns` nanoseconds, to the width of a bucket.
    pub fn count_up_to_ns(&self, ns: f64) -> u64 {
        let ps = (ns * 1e3).clamp(0.0, MAX_PS as f64) as u64;
        self.filled.iter().take_while(|b| b.0 <= ps).fold(0, |sum, b| b.1.saturating_add(sum))
    }

    /// The buckets that hold anything, ascending: lower and upper edge in picoseconds (both inclusive) and count.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.filled.iter().map(|&(low_ps, count)| Bucket { low_ps, high_ps: high_edge(low_ps), count })
    }
}

/// The design effect: how many samples of a run count as one independent sample. It is 1 if all samples are
/// independent. It is computed from batches of the run in the order of time. For each decile of all samples, each batch
/// has a share of samples below this decile. The effect is the variance of these shares divided by the variance that
/// independent samples would have, at the decile with the largest ratio (for two modes this decile lies between them).
/// It has `batches.len() - 1` degrees of freedom. `None` for fewer than 3 batches with a sample, and if all samples are
/// equal.
pub fn design_effect(batches: &[Histogram]) -> Option<f64> {
    let batches: Vec<&Histogram> = batches.iter().filter(|batch| !batch.is_empty()).collect();
    if batches.len() < 3 {
        return None;
    }
    let mut all = Histogram::default();
    batches.iter().for_each(|batch| all.merge(batch));
    let count = all.count() as f64;
    let mut edges_ps = Vec::new();
    let (mut below, mut wanted) = (0.0, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9].into_iter().peekable());
    for bucket in all.buckets() {
        below += bucket.count as f64 / count;
        if wanted.next_if(|share| below >= *share - 1e-9).is_some() {
            while wanted.next_if(|share| below >= *share - 1e-9).is_some() {}
            edges_ps.push((bucket.low_ps, below));
        }
    }
    let of_edge = |(low_ps, share): (u64, f64)| {
        let variance = share * (1.0 - share);
        let spread: f64 = batches
            .iter()
            .map(|batch| {
                let below = batch
                    .buckets()
                    .take_while(|bucket| bucket.low_ps <= low_ps)
                    .map(|bucket| bucket.count)
                    .sum::<u64>();
                batch.count() as f64 * (below as f64 / batch.count() as f64 - share).powi(2)
            })
            .sum();
        (variance > 1e-6).then(|| spread / variance / (batches.len() - 1) as f64)
    };
    edges_ps.into_iter().filter_map(of_edge).reduce(f64::max)
}

/// Adds ascending buckets to ascending ones. Most are there already, so that nothing moves.
fn add(all: &mut Vec<(u64, u64)>, more: impl Iterator<Item = (u64, u64)>) {
    let (mut place, mut new) = (0, Vec::new());
    for (low, count) in more {
        // Mostly it is one of the next. The first, and those of the tail, are far.
        let is_below = |bucket: &(u64, u64)| bucket.0 < low;
        let near = all.len().min(place + 8);
        place += all[place..near].partition_point(is_below);
        if place == near {
            place += all[place..].partition_point(is_below);
        }
        match all.get_mut(place) {
            Some(bucket) if bucket.0 == low => bucket.1 = bucket.1.saturating_add(count),
            _ => new.push((low, count)),
        }
    }
    // From the end on, so that each bucket moves once.
    let mut old = all.len();
    all.resize(old + new.len(), (0, 0));
    for at in (0..all.len()).rev() {
        match new.last() {
            None => break,
            Some(last) if old > 0 && all[old - 1].0 > last.0 => {
                old -= 1;
                all[at] = all[old];
            }
            Some(last) => {
                all[at] = *last;
                new.pop();
            }
        }
    }
}

/// One bucket of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Smallest duration the bucket takes, in picoseconds.
    pub low_ps: u64,
    /// Largest duration the bucket takes, in picoseconds.
    pub high_ps: u64,
    /// How many durations it holds.
    pub count: u64,
}

/// As it stands in a record: the summary for people and jq, the buckets for programs.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Histogram")]
pub(crate) struct Wire {
    /// How many durations.
    count: u64,
    /// The smallest, exact.
    min_ns: Option<f64>,
    /// The arithmetic mean, exact.
    mean_ns: Option<f64>,
    /// Median and percentiles, to 0.1 %; present only if there are enough samples.
    p50_ns: Option<f64>,
    p90_ns: Option<f64>,
    p95_ns: Option<f64>,
    p99_ns: Option<f64>,
    p999_ns: Option<f64>,
    /// p99.99.
    p9999_ns: Option<f64>,
    /// The largest, exact.
    max_ns: Option<f64>,
    /// When the smallest was taken, since the run's start, where known.
    min_at_ns: Option<u64>,
    /// When the largest was taken, since the run's start, where known.
    max_at_ns: Option<u64>,
    /// Decimal text: a sum can pass 2^53, which JSON readers in other languages would round.
    sum_ps: String,
    /// The smallest, exact; 0 of an empty histogram.
    min_ps: u64,
    /// The largest, exact.
    max_ps: u64,
    /// Pairs of a bucket's lower edge in picoseconds and its count.
    buckets: Vec<(u64, u64)>,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Wire {
            count: self.count(),
            min_ns: self.min_ns(),
            mean_ns: self.mean_ns(),
            p50_ns: self.percentile_ns(50.0),
            p90_ns: self.percentile_ns(90.0),
            p95_ns: self.percentile_ns(95.0),
            p99_ns: self.percentile_ns(99.0),
            p999_ns: self.percentile_ns(99.9),
            p9999_ns: self.percentile_ns(99.99),
            max_ns: self.max_ns(),
            min_at_ns: self.min_at_ns,
            max_at_ns: self.max_at_ns,
            sum_ps: self.sum_ps.to_string(),
            min_ps: if self.is_empty() { 0 } else { self.min_ps },
            max_ps: self.max_ps,
            buckets: self.buckets().map(|b| (b.low_ps, b.count)).collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let wire = Wire::deserialize(deserializer)?;
        let mut histogram = Histogram::default();
        let mut buckets = wire.buckets;
        // As all are written.
        let is_ready =
            buckets.iter().all(|&(low_ps, count)| low_ps <= MAX_PS && low_ps == low_edge(low_ps) && count > 0)
                && buckets.is_sorted_by(|one, next| one.0 < next.0);
        if is_ready {
            histogram.count = buckets.iter().fold(0, |sum, bucket| bucket.1.saturating_add(sum));
            // A list grows by doubling, and a file has many.
            buckets.shrink_to_fit();
            histogram.filled = buckets;
        } else {
            // Descending ones would be put before all others one by one.
            buckets.sort_by_key(|bucket| bucket.0.min(MAX_PS + 1));
            for (low_ps, count) in buckets {
                histogram.record_ps(low_ps, count).map_err(D::Error::custom)?;
            }
        }
        if histogram.count() != wire.count {
            return Err(D::Error::custom(format!(
                "the buckets hold {} samples, the count says {}",
                histogram.count(),
                wire.count
            )));
        }
        if wire.count > 0 {
            let sum = wire.sum_ps.parse().map_err(D::Error::custom)?;
            histogram.set_exact(sum, wire.min_ps, wire.max_ps).map_err(D::Error::custom)?;
        }
        histogram.min_at_ns = wire.min_at_ns;
        histogram.max_at_ns = wire.max_at_ns;
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_needs_ten_samples() {
        for count in [0, 1, 9, 10] {
            let histogram = Histogram::of_ns(std::iter::repeat_n(5, count)).unwrap();
            assert_eq!(histogram.median_ns(), (count == 10).then_some(5.0), "{count} samples");
            assert_eq!(histogram.middle_ns(), (count > 0).then_some(5.0), "{count} samples");
        }
    }
    use proptest::prelude::*;

    /// Nearest-rank percentile of the samples themselves: what the histogram has to reproduce.
    fn exact(sorted: &[u64], percent: f64) -> u64 {
        let rank = (percent / 100.0 * sorted.len() as f64).ceil().max(1.0) as usize;
        sorted[rank - 1]
    }

    #[test]
    fn shows_a_percentile_only_where_the_count_supports_it() {
        let mut h = Histogram::of_ns(0..9_999).unwrap();
        assert!(h.percentile_ns(99.0).is_some());
        assert!(h.percentile_ns(99.9).is_none());
        h.record_ps(1, 1).unwrap();
        assert!(h.percentile_ns(99.9).is_some());
        assert!(Histogram::default().percentile_ns(50.0).is_none());
        assert!(Histogram::default().min_ns().is_none());
    }

    #[test]
    fn a_record_sums_up_with_the_percentiles_of_the_table() {
        let json = |count: u64| serde_json::to_value(Histogram::of_ns((1..=count).map(|n| n * n)).unwrap()).unwrap();
        let whole = json(100_000);
        for (name, percent) in
            [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999)]
        {
            let got = whole[format!("{name}_ns")].as_f64().unwrap();
            assert!((got / (percent * 1e5_f64).powi(2) - 1.0).abs() < 1e-3, "{name} is {got}");
        }
        // 1000 samples support p99 and no more.
        let few = json(1000);
        assert!(few.get("p99_ns").is_some() && few.get("p999_ns").is_none() && few.get("p9999_ns").is_none());
    }

    #[test]
    fn refuses_what_it_cannot_hold() {
        let mut h = Histogram::default();
        assert_eq!(h.record_ps(MAX_PS + 1, 1), Err(Error::TooLong { value_ps: MAX_PS + 1, max_ps: MAX_PS }));
        assert!(h.is_empty());
        h.record_ps(MAX_PS, 1).unwrap();
        assert_eq!(h.max_ns(), Some(MAX_PS as f64 / 1e3));
    }

    #[test]
    fn a_record_whose_count_disagrees_with_its_buckets_is_refused() {
        let json = serde_json::to_string(&Histogram::of_ns([5, 6]).unwrap()).unwrap();
        let forged = json.replace("\"count\":2", "\"count\":3");
        assert!(serde_json::from_str::<Histogram>(&forged).unwrap_err().to_string().contains("count says 3"));
    }

    #[test]
    fn buckets_may_come_in_any_order() {
        let next = |edge: &u64| Some(high_edge(*edge) + 1).filter(|next| *next <= MAX_PS);
        let edges: Vec<u64> = std::iter::successors(Some(0), next).collect();
        let mut whole = Histogram::default();
        edges.iter().for_each(|&edge| whole.record_ps(edge, 1).unwrap());
        let mut descending = serde_json::to_value(&whole).unwrap();
        descending["buckets"].as_array_mut().unwrap().reverse();
        let read: Histogram = serde_json::from_value(descending).unwrap();
        assert!(read.buckets().eq(whole.buckets()));
    }

    proptest! {
        #[test]
        fn keeps_every_sample_to_a_thousandth(mut ps in proptest::collection::vec(0u64..10_000_000_000, 1..400)) {
            let mut h = Histogram::default();
            for &v in &ps { h.record_ps(v, 1).unwrap(); }
            ps.sort_unstable();
            prop_assert_eq!(h.count(), ps.len() as u64);
            prop_assert_eq!(h.min_ns(), Some(ps[0] as f64 / 1e3));
            prop_assert_eq!(h.max_ns(), Some(ps[ps.len() - 1] as f64 / 1e3));
            let sum: u128 = ps.iter().map(|&v| u128::from(v)).sum();
            prop_assert_eq!(h.mean_ns(), Some(sum as f64 / ps.len() as f64 / 1e3));
            for percent in [50.0, 90.0] {
                if let Some(got) = h.percentile_ns(percent) {
                    let want = exact(&ps, percent) as f64 / 1e3;
                    prop_assert!((got - want).abs() <= want * 1e-3 + 1e-3, "p{} is {} instead of {}", percent, got, want);
                }
            }
        }

        #[test]
        fn agrees_with_hdr_histogram(ps in proptest::collection::vec(prop_oneof![0u64..5000, 0..10_000_000u64, 0..=MAX_PS], 10..300)) {
            let mut peer = hdrhistogram::Histogram::<u64>::new_with_bounds(1, MAX_PS, 3).unwrap();
            let mut h = Histogram::default();
            for &v in &ps { h.record_ps(v, 1).unwrap(); peer.record(v).unwrap(); }
            for b in h.buckets() {
                prop_assert_eq!((peer.lowest_equivalent(b.high_ps), peer.highest_equivalent(b.low_ps)), (b.low_ps, b.high_ps));
                prop_assert_eq!(peer.count_at(b.low_ps), b.count);
            }
            let (min, max) = (*ps.iter().min().unwrap(), *ps.iter().max().unwrap());
            for percent in [1.0, 50.0, 90.0, 95.0, 99.0, 99.9] {
                let want = peer.value_at_percentile(percent).clamp(min, max) as f64 / 1e3;
                prop_assert_eq!(h.value_at(percent), want, "p{}", percent);
            }
        }

        #[test]
        fn merging_equals_recording_everything_in_one(a in proptest::collection::vec(0u64..1u64<<40, 0..200),
                                                      b in proptest::collection::vec(0u64..1u64<<40, 0..200)) {
            let fill = |values: &[u64]| { let mut h = Histogram::default(); for &v in values { h.record_ps(v, 1).unwrap(); } h };
            let mut merged = fill(&a);
            merged.merge(&fill(&b));
            let whole = fill(&[a, b].concat());
            prop_assert_eq!(serde_json::to_string(&merged).unwrap(), serde_json::to_string(&whole).unwrap());
        }

        #[test]
        fn survives_a_record_file(ps in proptest::collection::vec(0u64..MAX_PS, 0..200)) {
            let mut h = Histogram::default();
            for &v in &ps { h.record_ps(v, 1).unwrap(); }
            let text = serde_json::to_string(&h).unwrap();
            let back: Histogram = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(serde_json::to_string(&back).unwrap(), text);
        }
    }
}
