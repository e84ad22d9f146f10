//! A confidence sequence: an interval for a mean that holds at every moment at once, so that who stops at the best one is
//! not wrong more often. docs/tune.md has the formula and its sources.

/// The weight of the prior on the mean in units of the noise: 1 over its variance. Small, for effects well above the noise.
const PRIOR: f64 = 0.1;

/// Differences, taken up one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sequence {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// The sum of the squares of their distances from the mean.
    squares: f64,
}

impl Sequence {
    /// Takes up the next one.
    pub fn push(&mut self, difference: f64) {
        self.count += 1;
        let from = difference - self.mean;
        self.mean += from / self.count as f64;
        self.squares += from * (difference - self.mean);
    }

    /// Where the mean is, with the probability `1 - alpha` at all moments together. `None` while that may be anywhere.
    pub fn interval(&self, alpha: f64) -> Option<(f64, f64)> {
        let n = self.count as f64;
        // Differences that all agree say nothing until a fair coin would hardly have made them agree: the order of each
        // comparison is one, and without an effect a figure of few digits may well be the same again and again.
        if n < (2.0 / alpha).log2().ceil() {
            return None;
        }
        let most = (1.0 / alpha).powf(2.0 / n) * ((n + PRIOR) / PRIOR).powf(1.0 / n);
        let rest = 1.0 - most * PRIOR / (n + PRIOR);
        if rest <= 0.0 {
            return None;
        }
        let half = ((most - 1.0) / rest * self.squares / n).sqrt();
        Some((self.mean - half, self.mean + half))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::Random;

    fn of(differences: impl IntoIterator<Item = f64>) -> Sequence {
        let mut sequence = Sequence::default();
        differences.into_iter().for_each(|one| sequence.push(one));
        sequence
    }

    /// The ratio of likelihoods whose bound the interval is, as docs/tune.md has it.
    fn evidence(differences: &[f64], mean: f64) -> f64 {
        let n = differences.len() as f64;
        let sum: f64 = differences.iter().map(|one| one - mean).sum();
        let squares: f64 = differences.iter().map(|one| (one - mean).powi(2)).sum();
        let rest = squares - sum * sum / (n + PRIOR);
        (PRIOR / (n + PRIOR)).sqrt() * (squares / rest).powf(n / 2.0)
    }

    #[test]
    fn the_ends_are_where_the_evidence_reaches_its_bound() {
        let mut random = Random::new(3);
        let differences: Vec<f64> = (0..25).map(|_| 0.4 + random.normal()).collect();
        for alpha in [0.05, 0.001] {
            let (low, high) = of(differences.iter().copied()).interval(alpha).unwrap();
            for end in [low, high] {
                assert!((evidence(&differences, end) * alpha - 1.0).abs() < 1e-9, "{end}");
            }
        }
    }

    #[test]
    fn too_few_and_a_run_of_equal_ones_say_nothing() {
        // 2 / 0.01 is between 2 to the power of 7 and of 8.
        assert_eq!(of([0.5; 7]).interval(0.01), None);
        assert_eq!(of([0.5; 8]).interval(0.01), Some((0.5, 0.5)));
    }

    #[test]
    fn the_mean_leaves_it_in_at_most_so_many_sequences_at_any_moment() {
        const RUNS: usize = 4_000;
        for heavy in [false, true] {
            let mut random = Random::new(7);
            let mut left = 0;
            for _ in 0..RUNS {
                let mut sequence = Sequence::default();
                left += usize::from((0..150).any(|_| {
                    let mut one = random.normal();
                    if heavy && random.next() < 0.05 {
                        one *= 20.0;
                    }
                    sequence.push(one);
                    sequence.interval(0.05).is_some_and(|(low, high)| low > 0.0 || high < 0.0)
                }));
            }
            // 5 % of 4,000 are 200, and three standard deviations are 41.
            assert!(left <= 241, "{left}");
        }
    }
}
