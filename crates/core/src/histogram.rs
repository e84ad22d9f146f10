//! Durations without loss of the tail: a log-linear histogram with exact smallest, largest and sum.

use hdrhistogram::Histogram as Hdr;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Error;

/// Three significant digits: every duration is kept to 0.1 % of itself.
const DIGITS: u8 = 3;
/// The longest duration a histogram holds, in picoseconds: one hour.
pub const MAX_PS: u64 = 3_600 * 1_000_000_000_000;

/// The percentiles that a summary shows where the count supports them.
pub const PERCENTILES: [f64; 7] = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999];

/// A log-linear (HDR) histogram of durations in picoseconds, mergeable, with nothing trimmed.
///
/// Picoseconds, because a tick of a 2.6 GHz counter is 385 ps: rounding to nanoseconds would falsify the cost
/// of a stamp pair. Percentiles are exact to 0.1 % of their value; smallest, largest, sum and count are exact.
#[derive(Debug, Clone)]
pub struct Histogram {
    hdr: Hdr<u64>,
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
            hdr: Hdr::new_with_bounds(1, MAX_PS, DIGITS).expect("the bounds are constants that the crate accepts"),
            sum_ps: 0,
            min_ps: u64::MAX,
            max_ps: 0,
            min_at_ns: None,
            max_at_ns: None,
        }
    }
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
        self.hdr.record_n(value_ps, count).map_err(|_| Error::TooLong { value_ps, max_ps: MAX_PS })?;
        self.sum_ps += u128::from(value_ps) * u128::from(count);
        self.min_ps = self.min_ps.min(value_ps);
        self.max_ps = self.max_ps.max(value_ps);
        Ok(())
    }

    /// Replaces what the buckets say of sum, smallest and largest by values known exactly (the kernel module
    /// keeps them beside its buckets).
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
        self.hdr.add(&other.hdr).expect("all histograms have the same bounds");
        self.sum_ps += other.sum_ps;
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
        self.hdr.len()
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
    /// The median in nanoseconds, to 0.1 %; `None` when empty.
    pub fn median_ns(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.value_at(50.0))
    }

    /// The duration that `percent` of the samples do not exceed, in nanoseconds, to 0.1 %.
    ///
    /// `None` where the count cannot support it: a percentile p needs 10/(1-p) samples (p99 needs 1000), and the
    /// median 10. A histogram of fewer samples still has its smallest and largest.
    pub fn percentile_ns(&self, percent: f64) -> Option<f64> {
        let above = 1.0 - percent / 100.0;
        let needed = if percent <= 50.0 { 10.0 } else { 10.0 / above };
        // 1 - 0.999 is a little more than 0.001 in binary: without the tolerance 10,000 samples would not do for p99.9.
        (self.count() as f64 >= needed * (1.0 - 1e-9)).then(|| self.value_at(percent))
    }

    fn value_at(&self, percent: f64) -> f64 {
        let ps = self.hdr.value_at_percentile(percent);
        ps.clamp(self.min_ps, self.max_ps) as f64 / 1e3
    }

    /// How many durations lie at or below `ns` nanoseconds, to the width of a bucket.
    pub fn count_up_to_ns(&self, ns: f64) -> u64 {
        let ps = (ns * 1e3).clamp(0.0, MAX_PS as f64) as u64;
        self.hdr.count_between(0, ps)
    }

    /// The buckets that hold anything, ascending: lower and upper edge in picoseconds (both inclusive) and count.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.hdr.iter_recorded().map(|step| {
            let value = step.value_iterated_to();
            Bucket {
                low_ps: self.hdr.lowest_equivalent(value),
                high_ps: self.hdr.highest_equivalent(value),
                count: step.count_at_value(),
            }
        })
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
#[derive(Serialize, Deserialize)]
struct Wire {
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    min_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    mean_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    p50_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    p99_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    p999_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    max_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    min_at_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    max_at_ns: Option<u64>,
    /// Decimal text: a sum can pass 2^53, which JSON readers in other languages would round.
    sum_ps: String,
    min_ps: u64,
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
            p99_ns: self.percentile_ns(99.0),
            p999_ns: self.percentile_ns(99.9),
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
        for (low_ps, count) in wire.buckets {
            histogram.record_ps(low_ps, count).map_err(D::Error::custom)?;
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
