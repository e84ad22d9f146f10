//! Histograms in bins of equal width on a logarithmic axis: what charts and the page's data block draw from.

use std::collections::BTreeMap;

use pciescope_core::Histogram;

/// Bins per octave, finest first: 1.1 % of a value each to 19 %.
pub const RESOLUTIONS: [u32; 5] = [64, 32, 16, 8, 4];

/// Counts by bin. Bin `b` takes what lies from 2^(b/n) to 2^((b+1)/n) picoseconds for n bins per octave; 0 ps goes with
/// 1 ps.
pub fn bins(h: &Histogram, per_octave: u32) -> BTreeMap<i64, u64> {
    let mut bins = BTreeMap::new();
    for bucket in h.buckets() {
        let middle = (bucket.low_ps + (bucket.high_ps - bucket.low_ps) / 2).max(1);
        let bin = ((middle as f64).log2() * f64::from(per_octave)).floor() as i64;
        let count: &mut u64 = bins.entry(bin).or_default();
        *count = count.saturating_add(bucket.count);
    }
    bins
}

/// The lower end of a bin, in nanoseconds.
pub fn edge_ns(bin: i64, per_octave: u32) -> f64 {
    (bin as f64 / f64::from(per_octave)).exp2() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rebinning_keeps_every_sample() {
        let h = Histogram::of_ns([0, 1, 5, 5, 1000, 3_600_000_000_000]).unwrap();
        for per_octave in RESOLUTIONS {
            assert_eq!(bins(&h, per_octave).values().sum::<u64>(), 6);
        }
        let bin = bins(&Histogram::of_ns([1000]).unwrap(), 64).into_keys().next().unwrap();
        assert!(edge_ns(bin, 64) <= 1001.0 && edge_ns(bin + 1, 64) >= 999.0);
    }
}
