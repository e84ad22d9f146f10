//! Histograms as distributions: quantiles by rank, the share of one that lies beyond the other, and the probability
//! that a sample of one is larger than a sample of the other.

use pciescope_core::Histogram;

/// Samples behind one sample that counts, at least. Neighbours in a run resemble each other (a timer tick, a refresh, a busy
/// core), and a histogram does not keep their order: 10 is what a first-order autocorrelation of 0.82 costs the mean,
/// (1 + r) / (1 - r). Where the record knows its design effect, that counts if it is larger. docs/compare-method.md.
pub const CORRELATION: f64 = 10.0;

/// The relative width of a bucket of a histogram: 2^-10. No quantile is known better.
pub const RESOLUTION: f64 = 1.0 / 1024.0;

/// A histogram with its running counts.
#[derive(Debug, Clone)]
pub struct Dist {
    /// Lower and upper edge in picoseconds, and how many samples lie in this bucket or below.
    buckets: Vec<(u64, u64, u64)>,
    count: u64,
    effective: f64,
    mean_ps: f64,
    deviation_ps: f64,
}

impl Dist {
    /// The distribution that a histogram holds, of which so many samples count; `None` of an empty one.
    pub fn of(histogram: &Histogram, effective: f64) -> Option<Self> {
        let mean_ps = histogram.mean_ns()? * 1e3;
        let max_ps = (histogram.max_ns()? * 1e3) as u64;
        let (mut count, mut squares, mut buckets) = (0u64, 0.0, Vec::new());
        for bucket in histogram.buckets() {
            count = count.saturating_add(bucket.count);
            let off = (bucket.low_ps as f64 + bucket.high_ps as f64) / 2.0 - mean_ps;
            squares += off * off * bucket.count as f64;
            buckets.push((bucket.low_ps, bucket.high_ps.min(max_ps.max(bucket.low_ps)), count));
        }
        Some(Dist { buckets, count, effective, mean_ps, deviation_ps: (squares / count as f64).sqrt() })
    }

    /// Samples.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Samples that count once neighbours are taken into account; at least 1.
    pub fn effective(&self) -> f64 {
        self.effective.max(1.0)
    }
    /// The mean in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        self.mean_ps / 1e3
    }
    /// The standard deviation in nanoseconds.
    pub fn deviation_ns(&self) -> f64 {
        self.deviation_ps / 1e3
    }

    /// The duration that the share `share` (0 to 1) of the samples does not exceed, in nanoseconds: the upper edge of its
    /// bucket, as everywhere in pciescope, and at least 1 ps, so that it has a logarithm.
    pub fn quantile_ns(&self, share: f64) -> f64 {
        let rank = ((share * self.count as f64 * (1.0 - 1e-12)).ceil() as u64).clamp(1, self.count);
        let place = self.buckets.partition_point(|bucket| bucket.2 < rank).min(self.buckets.len() - 1);
        self.buckets[place].1.max(1) as f64 / 1e3
    }

    /// Lowest and highest value that the quantile at `share` can have, `z` standard errors of its rank to both sides, in
    /// nanoseconds. The rank of a quantile is binomial for every distribution, so this needs no assumption on its
    /// form. An end is `None` where the samples do not reach so far.
    pub fn quantile_bounds_ns(&self, share: f64, z: f64) -> (Option<f64>, Option<f64>) {
        let effective = self.effective();
        let off = z * (share * (1.0 - share) / effective).sqrt() + 0.5 / effective;
        let low = (share - off > 0.0).then(|| self.quantile_ns(share - off));
        let high = (share + off < 1.0).then(|| self.quantile_ns(share + off));
        (low, high)
    }
}

/// The share of the samples of `b` that lie above those of `a` by more than the factor `1 + allowed` and `quantum_ns`, from
/// 0 to 1, after their typical figures, which lie `moved` (B over A) apart, were laid over each other. That is the
/// one-sided distance of Kolmogorov and Smirnov of the forms alone. The figures' own interval says how far they lie
/// apart.
pub fn displaced(a: &Dist, b: &Dist, moved: f64, allowed: f64, quantum_ns: f64) -> f64 {
    let factor = moved * (1.0 + allowed);
    let (a_count, b_count) = (a.count as f64, b.count as f64);
    // Samples of B up to the reach, a bucket that it cuts counted whole. The reach only grows.
    let (mut rest, mut up_to) = (b.buckets.iter().peekable(), 0);
    let shares = a.buckets.iter().map(|&(_, high, count)| {
        let reach = (high as f64 + 1.0) * factor + quantum_ns * 1e3;
        while let Some(bucket) = rest.next_if(|bucket| bucket.0 as f64 <= reach) {
            up_to = bucket.2;
        }
        count as f64 / a_count - up_to as f64 / b_count
    });
    shares.fold(0.0, f64::max)
}

/// The probability that a sample of `b` is larger than one of `a`, ties counted half: exact to a bucket.
pub fn superiority(a: &Dist, b: &Dist) -> f64 {
    let (mut wins, mut a_below, mut place) = (0.0, 0u64, 0);
    let mut b_before = 0u64;
    for &(low, _, b_up_to) in &b.buckets {
        let here = (b_up_to - b_before) as f64;
        b_before = b_up_to;
        while place < a.buckets.len() && a.buckets[place].0 < low {
            a_below = a.buckets[place].2;
            place += 1;
        }
        let ties = a.buckets.get(place).filter(|bucket| bucket.0 == low).map_or(0, |bucket| bucket.2 - a_below);
        wins += here * (a_below as f64 + ties as f64 / 2.0);
    }
    wins / a.count as f64 / b.count as f64
}

/// The probability that two samples of one distribution, of these effective sizes, are as far apart as `distance`
/// (Kolmogorov's limit with Stephens' correction for small samples).
pub fn kolmogorov(distance: f64, a_effective: f64, b_effective: f64) -> f64 {
    let root = (a_effective * b_effective / (a_effective + b_effective)).sqrt();
    let lambda = (root + 0.12 + 0.11 / root) * distance;
    if lambda < 0.3 {
        return 1.0;
    }
    let term = |j: i32| 2.0 * if j % 2 == 1 { 1.0 } else { -1.0 } * (-2.0 * f64::from(j * j) * lambda * lambda).exp();
    (1..=20).map(term).sum::<f64>().clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(histogram: &Histogram) -> Option<Dist> {
        Dist::of(histogram, histogram.count() as f64 / CORRELATION)
    }

    fn dist(ns: impl IntoIterator<Item = u64>) -> Dist {
        of(&Histogram::of_ns(ns).unwrap()).unwrap()
    }

    #[test]
    fn an_empty_histogram_is_no_distribution() {
        assert!(of(&Histogram::default()).is_none());
    }

    #[test]
    fn quantiles_are_those_of_the_histogram() {
        let histogram = Histogram::of_ns((1..=10_000).map(|n| 500 + n % 97)).unwrap();
        let dist = of(&histogram).unwrap();
        for percent in [50.0, 90.0, 99.0, 99.9] {
            assert_eq!(Some(dist.quantile_ns(percent / 100.0)), histogram.percentile_ns(percent), "p{percent}");
        }
    }

    #[test]
    fn a_bound_beyond_the_samples_is_not_known() {
        let few = dist(1..=100);
        assert_eq!(few.quantile_bounds_ns(0.99, 2.0).1, None);
        assert!(few.quantile_bounds_ns(0.99, 2.0).0.is_some());
        assert!(dist((0..100_000).map(|n| n % 1000)).quantile_bounds_ns(0.99, 2.0).1.is_some());
    }

    #[test]
    fn superiority_is_that_of_all_pairs() {
        let (a, b) = ([1u64, 2, 2, 5, 9], [2u64, 3, 9, 9]);
        let mut wins = 0.0;
        for x in a {
            for y in b {
                wins += if y > x {
                    1.0
                } else if y == x {
                    0.5
                } else {
                    0.0
                };
            }
        }
        assert_eq!(superiority(&dist(a), &dist(b)), wins / 20.0);
        assert_eq!(superiority(&dist(a), &dist(a)), 0.5);
    }

    #[test]
    fn only_the_form_is_displaced() {
        let modes = |low: u64, high: u64| dist((0..1000).map(move |n| if n % 10 < 7 { low } else { high } + n % 7));
        let a = modes(1000, 1100);
        let displaced = |a: &Dist, b: &Dist, allowed, quantum| {
            displaced(a, b, b.quantile_ns(0.5) / a.quantile_ns(0.5), allowed, quantum)
        };
        assert_eq!(displaced(&a, &modes(1200, 1320), 0.02, 0.0), 0.0, "all of it moved by a fifth");
        let apart = displaced(&a, &modes(1000, 1200), 0.02, 0.0);
        assert!((apart - 0.3).abs() < 0.01, "{apart}: the upper mode moved");
        assert_eq!(displaced(&modes(1000, 1200), &a, 0.02, 0.0), 0.0, "the other direction");
        assert_eq!(displaced(&a, &modes(1000, 1115), 0.02, 0.0), 0.0, "the margin explains it");
        assert_eq!(displaced(&a, &modes(1000, 1200), 0.02, 100.0), 0.0, "the clock's step explains it");
    }

    #[test]
    fn kolmogorov_has_the_tabulated_quantile() {
        // 1.358 / sqrt(n) is the 5 % point of the limit.
        let n = 1e8;
        assert!((kolmogorov(1.358 / (n / 2.0f64).sqrt(), n, n) - 0.05).abs() < 1e-3);
        assert_eq!(kolmogorov(0.0, 10.0, 10.0), 1.0);
    }
}
