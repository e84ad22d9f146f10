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
