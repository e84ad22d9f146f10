//! Bounds on a bit error ratio that hold whenever one stops. docs/soak.md has the proof.

use statrs::function::gamma::gamma_ur;

/// The share of soaks that may claim too much.
pub const ALPHA: f64 = 0.05;

/// The share that is spent where exactly `errors` were seen: over all numbers of errors the shares come to `alpha`.
fn share(errors: u64, alpha: f64) -> f64 {
    let errors = errors as f64;
    alpha / ((errors + 1.0) * (errors + 2.0))
}

/// The expected number of errors of which so few or fewer come with this probability: half the quantile of chi-squared with
/// `2 (errors + 1)` degrees of freedom.
fn expected(errors: u64, probability: f64) -> f64 {
    let errors = errors as f64;
    let (mut low, mut high) = (0.0, errors + 20.0 * (errors + 1.0).sqrt() + 50.0);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if gamma_ur(errors + 1.0, middle) > probability { low = middle } else { high = middle }
    }
    high
}

/// The upper bound times the bits: after so many errors the ratio is below this over the bits without one. One-sided, for any
/// moment of the stop; 3.69 without an error.
pub fn upper(errors: u64, alpha: f64) -> f64 {
    expected(errors, share(errors, alpha))
}

/// The lower bound times all bits; 0 without an error.
pub fn lower(errors: u64, alpha: f64) -> f64 {
    errors.checked_sub(1).map_or(0.0, |before| expected(before, 1.0 - share(before, alpha)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from 0 to 1, 53 bits each: xorshift64*.
    struct Random(u64);
    impl Random {
        fn next(&mut self) -> f64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
        }
        /// Bits until the next error, where an error comes in one bit on average.
        fn wait(&mut self) -> f64 {
            -(1.0 - self.next()).ln()
        }
    }

    const SOAKS: usize = 10_000;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // Chi-squared, 95 %, 2 and 8 degrees of freedom: 5.991 and 15.507.
        assert!((expected(0, 0.05) - 5.991 / 2.0).abs() < 1e-3 && (expected(3, 0.05) - 15.507 / 2.0).abs() < 1e-3);
        assert!((upper(0, ALPHA) - 40f64.ln()).abs() < 1e-9, "{}", upper(0, ALPHA));
        assert!(lower(0, ALPHA) == 0.0 && (lower(1, ALPHA) + (1.0 - ALPHA / 2.0).ln()).abs() < 1e-9);
        let spent: f64 = (0..100_000).map(|errors| share(errors, ALPHA)).sum();
        assert!((spent - ALPHA).abs() < 1e-6, "{spent}");
        assert!((1..3000).all(|errors| upper(errors, ALPHA) > upper(errors - 1, ALPHA)));
    }

    #[test]
    fn the_truth_is_below_the_bound_of_19_in_20_soaks_of_any_length() {
        let mut random = Random(1);
        // As in a soak: errors of one interval count once, and its bits for nothing.
        const INTERVALS: usize = 500;
        for errors in [0.3, 1.0, 3.0, 10.0, 100.0] {
            let chance = 1.0 - (-errors / INTERVALS as f64).exp();
            let mut held = 0;
            for _ in 0..SOAKS {
                let hits = (0..INTERVALS).filter(|_| random.next() < chance).count();
                let clear = errors * (INTERVALS - hits) as f64 / INTERVALS as f64;
                held += usize::from(upper(hits as u64, ALPHA) >= clear);
            }
            assert!(held >= SOAKS * 945 / 1000, "{errors}: {held} of {SOAKS}");
        }
    }

    #[test]
    fn who_stops_at_the_best_moment_claims_too_much_in_at_most_1_of_20() {
        let mut random = Random(2);
        // The bound that is asked for is the true ratio. It is claimed if after some error, before the next, the bits suffice.
        let needed: Vec<f64> = (0..=100).map(|errors| upper(errors, ALPHA)).collect();
        let claims = (0..SOAKS).filter(|_| {
            let mut bits = 0.0;
            needed.iter().any(|needed| {
                bits += random.wait();
                bits > *needed
            })
        });
        let claims = claims.count();
        // Bounds for a fixed length, 3.00 without an error, would claim in 2,800 of them.
        assert!((100..=SOAKS * 55 / 1000).contains(&claims), "{claims} of {SOAKS}");
        let fixed: Vec<f64> = (0..=100).map(|errors| expected(errors, ALPHA)).collect();
        let wrong = (0..SOAKS).filter(|_| {
            let mut bits = 0.0;
            fixed.iter().any(|needed| {
                bits += random.wait();
                bits > *needed
            })
        });
        assert!(wrong.count() > SOAKS / 5);
    }
}
