//! Counts of events: losses, and rates of so few events that their number is compared.

use super::ALPHA;
use super::cells::{Run, SideCell};
use super::dist::CORRELATION;
use super::interval::normal;

/// Events of a side.
pub struct Events {
    /// Their number.
    pub count: f64,
    /// What they are counted in: samples, triggers, seconds.
    pub exposure: f64,
    /// So many come together and count as one.
    burst: f64,
}

impl Events {
    /// The losses of a side.
    pub fn lost(side: &SideCell) -> Self {
        let count = side.runs.iter().map(|run| run.values.sum).sum::<f64>().max(0.0);
        let exposure = side.runs.iter().map(|run| run.exposure).sum::<f64>().max(1.0);
        Events { count, exposure, burst: CORRELATION }
    }

    /// Those of a figure that is a rate of them, `grain` of its unit each. Where its runs, or the intervals of one run, lie
    /// farther apart than such bursts explain, the bursts are larger.
    pub fn of_rate(side: &SideCell, grain: f64) -> Self {
        let of_run = |run: &Run| (run.values.mean() * run.exposure / grain, run.exposure);
        // Counts, and the seconds in which they were counted.
        let parts: Vec<(f64, f64)> = match side.runs.as_slice() {
            [run] => run.values.list.iter().map(|(rate, seconds)| (rate * seconds / grain, *seconds)).collect(),
            _ => side.runs.iter().map(of_run).collect(),
        };
        let total = |of: fn(&(f64, f64)) -> f64| parts.iter().map(of).sum::<f64>();
        let (count, exposure) = (total(|part| part.0), total(|part| part.1));
        // A longer part has more of them. By chance alone both sums are equal in the mean.
        let rate = count / exposure;
        let squares = parts.iter().map(|(count, seconds)| (count - rate * seconds).powi(2)).sum::<f64>();
        let spread = squares / (rate * (exposure - total(|part| part.1 * part.1) / exposure));
        Events { count, exposure, burst: if spread.is_finite() { CORRELATION.max(spread) } else { CORRELATION } }
    }

    /// Whether there are so few independent events that the logarithm of their rate says little.
    pub fn are_few(&self) -> bool {
        self.count >= 0.0 && self.count / self.burst < 10.0
    }

    /// How probable rates as far apart as these are by chance, beyond a change of `margin`: Anscombe's root makes the
    /// difference of counts normal. `spread`: how far the true rates of runs may lie apart.
    pub fn p_of(&self, other: &Events, margin: f64, spread: f64) -> f64 {
        let burst = self.burst.max(other.burst);
        let root = |events: &Events| (events.count / burst + 0.375).sqrt();
        let variance = |events: &Events| 1.0 + spread * spread * events.count / burst;
        let z = |change: f64| {
            let ratio = other.exposure / self.exposure * change.max(0.0);
            2.0 * (root(other) - root(self) * ratio.sqrt()) / (variance(other) + ratio * variance(self)).sqrt()
        };
        let p = 2.0 * (1.0 - normal(z(1.0 + margin).max(-z(1.0 - margin)))).min(0.5);
        if p < ALPHA { p } else { 1.0 }
    }
}
