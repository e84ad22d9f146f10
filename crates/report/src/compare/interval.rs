//! The distance of a figure of B from that of A, and how sure it is. docs/compare-method.md has its sources.

use std::cell::RefCell;
use std::rc::Rc;

use statrs::distribution::{Continuous, ContinuousCDF, Normal, StudentsT};

use super::dist::{Dist, RESOLUTION};

/// The weight of the assumed spread between runs, in runs of a side. It matters where runs are few.
const PRIOR: f64 = 2.0;

/// The two-sided quantile of the normal distribution (`freedom` infinite) or Student's t.
pub fn quantile(alpha: f64, freedom: f64) -> f64 {
    let share = 1.0 - alpha / 2.0;
    if !freedom.is_finite() {
        return Normal::standard().inverse_cdf(share);
    }
    let student = || StudentsT::new(0.0, 1.0, freedom.max(1.0)).map_or(f64::INFINITY, |t| refined(&t, share));
    // The same is asked for again and again, and takes 60 steps.
    LAST.with_borrow_mut(|last| match last.iter().find(|known| known.0 == (alpha, freedom)) {
        Some(known) => known.1,
        None => {
            let found = student();
            last.rotate_right(1);
            last[0] = ((alpha, freedom), found);
            found
        }
    })
}

thread_local! {
    /// What [`quantile`] found last: level and degrees of freedom, and the quantile.
    static LAST: RefCell<[((f64, f64), f64); 8]> = const { RefCell::new([((f64::NAN, f64::NAN), f64::NAN); 8]) };
}

/// The quantile by bisection: the library's own loses digits far out.
fn refined(t: &(impl ContinuousCDF<f64, f64> + Continuous<f64, f64>), share: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while t.cdf(high) < share && high < 1e9 {
        high *= 2.0;
    }
    let near = near(t, share, if high > 1.0 { high / 2.0 } else { 0.0 });
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        // No number lies between them.
        if middle == low || middle == high {
            break;
        }
        let is_low = match near {
            Some((from, _)) if middle < from => true,
            Some((_, to)) if middle > to => false,
            _ => t.cdf(middle) < share,
        };
        if is_low { low = middle } else { high = middle }
    }
    high
}

/// Where the quantile lies for certain: bisection need not compute what is outside. By Newton's method from `from` on, which
/// is below it: there the function is concave, so no step goes too far. `None` far out, where the distribution function has too few digits.
fn near(t: &(impl ContinuousCDF<f64, f64> + Continuous<f64, f64>), share: f64, from: f64) -> Option<(f64, f64)> {
    const FARTHEST: f64 = 1.0 - 1e-6;
    if share > FARTHEST {
        return None;
    }
    let mut at = from;
    for _ in 0..12 {
        let slope = t.pdf(at);
        let step = (t.cdf(at) - share) / slope;
        at -= step;
        if at.is_nan() || at <= 0.0 {
            return None;
        }
        // The next step would be the square of this one; the function has 13 digits.
        if step.abs() < 1e-7 * at {
            let off = 1e-10 * at + 1e-12 / slope;
            return Some((at - off, at + off));
        }
    }
    None
}

/// The figure of a side whose runs cannot speak for themselves, on a logarithmic scale.
#[derive(Debug, Clone)]
pub enum SideFigure {
    /// A quantile of a distribution.
    Quantile {
        /// The samples.
        dist: Rc<Dist>,
        /// Which, 0 to 1.
        share: f64,
    },
    /// A mean with its relative standard error and its degrees of freedom.
    Mean {
        /// The mean, above 0.
        value: f64,
        /// Relative standard error.
        error: f64,
        /// Degrees of freedom, infinite where the error counts as known.
        freedom: f64,
    },
    /// The geometric mean of a quantile over the cells of a group, each weighing the same.
    Cells {
        /// Its logarithm.
        log: f64,
        /// The possible error of that by chance of the samples alone, at [`KNOWN`].
        reach: f64,
    },
}

/// The level at which the reach of cells is taken together.
const KNOWN: f64 = 0.05;

impl SideFigure {
    /// A quantile of each of several cells as one figure. All samples of fast and slow CPUs together have no typical
    /// figure: it would lie in the gap between both. The cells of the CPUs have one each. `None` if a cell has too few
    /// samples for an interval; that depends only on their number, not on their values.
    pub fn of_cells(cells: impl Iterator<Item = SideFigure>) -> Option<Self> {
        // Chance moves each cell by itself, so squares add up (Zou and Donner's method, of a sum of many). Of a cell whose
        // figure lies at one end of a gap only one side is far, and which one is chance: the farther side counts for both.
        let (mut count, mut log, mut squares) = (0.0, 0.0, 0.0);
        for cell in cells {
            let (low, high) = cell.reach(KNOWN);
            count += 1.0;
            log += cell.value().ln();
            squares += low.max(high).powi(2);
        }
        let (log, reach) = (log / count, squares.sqrt() / count);
        (log.is_finite() && reach.is_finite()).then_some(SideFigure::Cells { log, reach })
    }

    /// The figure.
    pub fn value(&self) -> f64 {
        match self {
            SideFigure::Quantile { dist, share } => dist.quantile_ns(*share),
            SideFigure::Mean { value, .. } => *value,
            SideFigure::Cells { log, .. } => log.exp(),
        }
    }

    /// How far the logarithm of the figure may be too high and too low by chance of the samples alone.
    fn reach(&self, alpha: f64) -> (f64, f64) {
        match self {
            SideFigure::Quantile { dist, share } => {
                let value = self.value();
                let (low, high) = dist.quantile_bounds_ns(*share, quantile(alpha, f64::INFINITY));
                let far = |bound: Option<f64>| bound.map_or(f64::INFINITY, |bound| (bound / value).ln().abs());
                (far(low), far(high))
            }
            SideFigure::Mean { error, freedom, .. } => {
                both(if *error > 0.0 { quantile(alpha, *freedom) * error } else { 0.0 })
            }
            // A mean of cells is normal long before the cells are, and few samples a cell have no bounds far out.
            SideFigure::Cells { reach, .. } => {
                both(reach * quantile(alpha, f64::INFINITY) / quantile(KNOWN, f64::INFINITY))
            }
        }
    }

    /// The variance of the logarithm by chance of the samples alone; infinite where the samples do not reach.
    fn variance(&self) -> f64 {
        let (low, high) = self.reach(0.3173);
        ((low + high) / 2.0).powi(2)
    }
}

/// A figure of both sides, with what is known of its spread.
#[derive(Debug, Clone)]
pub enum Estimate {
    /// One run a side, or runs too short for this figure, taken together.
    Singles {
        /// A's and B's.
        sides: [SideFigure; 2],
        /// Relative standard deviation between runs that is assumed, of A and of B.
        spread: [f64; 2],
    },
    /// Several runs of at least one side: the run is the unit.
    Runs {
        /// Means of the logarithms of A's and of B's runs.
        logs: [f64; 2],
        /// How sure each mean is.
        errors: [Error; 2],
        /// The variance of each mean by the assumed spread alone; `None` where the runs refute it.
        assumed: [Option<f64>; 2],
    },
}

/// How sure the mean of a side's runs is.
#[derive(Debug, Clone, Copy)]
pub struct Error {
    /// The variance of the mean.
    variance: f64,
    /// Degrees of freedom of that.
    freedom: f64,
}

impl Error {
    /// The error of the difference of two means whose variances need not be equal: Welch and Satterthwaite.
    fn of_difference(self, other: Error) -> Error {
        let variance = self.variance + other.variance;
        let parts = [self, other].map(|one| one.variance.powi(2) / one.freedom).iter().sum::<f64>();
        let freedom = if parts > 0.0 { variance.powi(2) / parts } else { self.freedom + other.freedom };
        Error { variance, freedom }
    }

    /// How far the mean may lie from the true one, with probability 1 - `alpha`.
    fn reach(self, alpha: f64) -> f64 {
        quantile(alpha, self.freedom) * self.variance.sqrt()
    }
}

impl Estimate {
    /// The estimate from the runs of both sides; `spread` is the assumed relative standard deviation between runs.
    pub fn of_runs(a: &[SideFigure], b: &[SideFigure], spread: f64) -> Option<Self> {
        let sides = [a, b];
        let of_sides = sides.map(|side| side.iter().map(|run| run.value().ln()).collect::<Vec<f64>>());
        let logs = of_sides.each_ref().map(|logs| logs.iter().sum::<f64>() / logs.len() as f64);
        let runs = of_sides.clone();
        // The assumed and the measured spread, each with its weight: one run is all assumption, ten are none. Each side
        // has its own: ten calm runs of A say nothing about how far two wild ones of B lie from each other.
        let prior = if spread > 0.0 { PRIOR } else { 0.0 };
        let between = |at: usize| {
            let side = sides[at];
            let freedom = prior + side.len().checked_sub(1)? as f64;
            let sampling = side.iter().map(SideFigure::variance).sum::<f64>() / side.len() as f64;
            let assumed = if prior > 0.0 { prior * (spread * spread + sampling) } else { 0.0 };
            let squares = of_sides[at].iter().map(|log| (log - logs[at]).powi(2)).sum::<f64>();
            // Runs that lie farther apart than assumed refute the assumption, so it does not reduce their spread.
            let own = squares / (freedom - prior).max(1.0);
            (freedom > 0.0).then(|| Error { variance: own.max((assumed + squares) / freedom), freedom })
        };
        let of_sides = [between(0), between(1)];
        // A single run without an assumption is taken to be like those of the other side.
        let errors = [of_sides[0].or(of_sides[1])?, of_sides[1].or(of_sides[0])?];
        let of_mean = |at: usize| Error { variance: errors[at].variance / sides[at].len() as f64, ..errors[at] };
        let errors = [of_mean(0), of_mean(1)];
        // Where no side's runs lie farther apart than assumed, the interval is not wider than the assumption alone makes it.
        let assumed = [0, 1].map(|at: usize| {
            let side = sides[at];
            let sampling = side.iter().map(SideFigure::variance).sum::<f64>() / side.len() as f64;
            let of_run = spread * spread + sampling;
            let squares = runs[at].iter().map(|log| (log - logs[at]).powi(2)).sum::<f64>();
            let own = squares / side.len().saturating_sub(1).max(1) as f64;
            (spread > 0.0 && own <= of_run).then_some(of_run / side.len() as f64)
        });
        let is_known = errors.iter().all(|error| error.variance.is_finite()) && logs.iter().all(|log| log.is_finite());
        is_known.then_some(Estimate::Runs { logs, errors, assumed })
    }

    /// The figures of A and B.
    pub fn values(&self) -> [f64; 2] {
        match self {
            Estimate::Singles { sides, .. } => sides.each_ref().map(SideFigure::value),
            Estimate::Runs { logs, .. } => logs.map(f64::exp),
        }
    }

    /// The logarithm of B's figure over A's.
    pub fn change(&self) -> f64 {
        let [a, b] = self.values();
        (b / a).ln()
    }

    /// The interval of that logarithm which holds the true one with probability 1 - `alpha`.
    pub fn bounds(&self, alpha: f64) -> (f64, f64) {
        let reach = match self {
            Estimate::Singles { sides, spread } => {
                // Zou and Donner: from the sides' own intervals, which need not be symmetric, to that of the difference.
                let [(a_low, a_high), (b_low, b_high)] = sides.each_ref().map(|side| side.reach(alpha));
                let runs = quantile(alpha, f64::INFINITY) * spread[0].hypot(spread[1]);
                (b_low.hypot(a_high).hypot(runs), b_high.hypot(a_low).hypot(runs))
            }
            Estimate::Runs { errors: [a, b], assumed: [of_a, of_b], .. } => {
                let assumed = of_a.zip(*of_b).map(|(a, b)| a + b);
                both(at_most(a.of_difference(*b).reach(alpha), assumed, alpha))
            }
        };
        around(self.change(), reach)
    }

    /// The interval of the logarithm of B's figure itself.
    pub fn own_bounds(&self, alpha: f64) -> (f64, f64) {
        let reach = match self {
            Estimate::Singles { sides: [_, b], spread } => {
                let (low, high) = b.reach(alpha);
                let runs = quantile(alpha, f64::INFINITY) * spread[1];
                (low.hypot(runs), high.hypot(runs))
            }
            Estimate::Runs { errors: [_, b], assumed: [_, of_b], .. } => both(at_most(b.reach(alpha), *of_b, alpha)),
        };
        around(self.values()[1].ln(), reach)
    }

    /// The part of an interval's half width that stays even with more samples in as many runs.
    pub fn floor(&self, alpha: f64) -> f64 {
        match self {
            Estimate::Singles { spread, .. } => {
                quantile(alpha, f64::INFINITY) * spread[0].hypot(spread[1]) + RESOLUTION
            }
            Estimate::Runs { .. } => f64::INFINITY,
        }
    }

    /// How probable figures as far apart as these are by chance if the true change does not exceed `limit` (or, with
    /// `is_below`, does not fall below it): 1 where an interval of 95 % does not exclude it.
    pub fn p_beyond(&self, limit: f64, is_below: bool) -> f64 {
        p_of(|alpha| is_beyond(self.bounds(alpha), limit, is_below))
    }

    /// The same for the logarithm of B's own figure.
    pub fn p_own_beyond(&self, limit: f64, is_below: bool) -> f64 {
        p_of(|alpha| is_beyond(self.own_bounds(alpha), limit, is_below))
    }
}

/// A reach, and not more than a variance that is taken as known gives.
fn at_most(reach: f64, known: Option<f64>, alpha: f64) -> f64 {
    known.map_or(reach, |variance| reach.min(quantile(alpha, f64::INFINITY) * variance.sqrt()))
}

/// The same reach below and above.
fn both(reach: f64) -> (f64, f64) {
    (reach, reach)
}

/// The interval of a logarithm that may be too high and too low by so much; no figure is known better than a bucket.
fn around(log: f64, (low, high): (f64, f64)) -> (f64, f64) {
    (log - low - RESOLUTION, log + high + RESOLUTION)
}

/// Whether the whole interval lies above the limit, or with `is_below` below it.
fn is_beyond((low, high): (f64, f64), limit: f64, is_below: bool) -> bool {
    if is_below { high < limit - 1e-9 } else { low > limit + 1e-9 }
}

/// The smallest level at which the interval excludes a limit, by bisection of its logarithm; 1 where it does not at 5 %.
fn p_of(excludes: impl Fn(f64) -> bool) -> f64 {
    if !excludes(0.05) {
        return 1.0;
    }
    let (mut low, mut high) = (-30.0, 0.05f64.ln());
    if excludes(f64::exp(low)) {
        return 0.0;
    }
    for _ in 0..24 {
        let middle = (low + high) / 2.0;
        if excludes(f64::exp(middle)) { high = middle } else { low = middle }
    }
    high.exp()
}

/// As [`batch_error`], `None` of fewer than three values.
pub fn batch_means(values: &[(f64, f64)]) -> Option<(f64, f64)> {
    batch_error(values).filter(|_| values.len() > 2)
}

/// The standard error of a mean of values, each with its weight, in the order in which they were taken, and its degrees of
/// freedom, by the means of up to ten batches (neighbours resemble each other; means of long batches do so less). A batch of
/// more weight is surer of its mean. `None` of fewer than two values.
pub fn batch_error(values: &[(f64, f64)]) -> Option<(f64, f64)> {
    if values.len() < 2 {
        return None;
    }
    let batches = values.len().min(10);
    let batch = |at: usize| &values[at * values.len() / batches..(at + 1) * values.len() / batches];
    let means: Vec<(f64, f64)> = (0..batches).map(|at| weighted_mean(batch(at))).collect();
    let (mean, weight) = weighted_mean(&means);
    let squares: f64 = means.iter().map(|(value, weight)| weight * (value - mean).powi(2)).sum();
    Some(((squares / (batches - 1) as f64 / weight).sqrt(), (batches - 1) as f64))
}

/// The mean of values, each with its weight, and the sum of the weights; 0 of none. The mean of equal values is exactly that
/// value: then nothing shows an error.
pub fn weighted_mean(values: &[(f64, f64)]) -> (f64, f64) {
    values.iter().fold((0.0, 0.0), |(mean, sum), (value, weight)| {
        let sum = sum + weight;
        (if sum > 0.0 { mean + (value - mean) * (weight / sum) } else { mean }, sum)
    })
}

/// The distribution function of the normal distribution.
pub fn normal(z: f64) -> f64 {
    Normal::standard().cdf(z)
}

#[cfg(test)]
mod tests {
    use super::super::dist::CORRELATION;
    use super::*;

    #[test]
    fn a_quantile_is_that_of_bisection_alone() {
        let bisected = |t: &StudentsT, share: f64| {
            let (mut low, mut high) = (0.0, 1.0);
            while t.cdf(high) < share && high < 1e9 {
                high *= 2.0;
            }
            for _ in 0..60 {
                let middle = (low + high) / 2.0;
                if t.cdf(middle) < share { low = middle } else { high = middle }
            }
            high
        };
        for alpha in [0.3173, 0.1, 0.05, 0.025, 0.01, 1e-3, 1e-5, 3e-6, 1e-9] {
            for step in 0..400 {
                let freedom = 1.0 + f64::from(step * step) / 777.0;
                let t = StudentsT::new(0.0, 1.0, freedom).unwrap();
                let share = 1.0 - alpha / 2.0;
                assert_eq!(refined(&t, share), bisected(&t, share), "{alpha} {freedom}");
            }
        }
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        assert!((quantile(0.05, f64::INFINITY) - 1.959_964).abs() < 1e-5);
        assert!((quantile(0.05, 8.0) - 2.306_004).abs() < 1e-5);
        // Four degrees of freedom have a distribution function in closed form.
        assert!((quantile(1e-6, 4.0) - 49.459).abs() < 0.01);
    }

    /// Runs whose figures have these logarithms.
    fn runs(logs: [f64; 3]) -> [SideFigure; 3] {
        logs.map(|log| SideFigure::Mean { value: log.exp(), error: 0.0, freedom: f64::INFINITY })
    }

    #[test]
    fn an_interval_from_runs_is_that_of_the_t_test() {
        // Means 1 and 2, both variances 0.01, 4 degrees: 1 +- 2.776 * 0.1 * sqrt(2/3).
        let estimate = Estimate::of_runs(&runs([0.9, 1.0, 1.1]), &runs([1.9, 2.0, 2.1]), 0.0).unwrap();
        let (low, high) = estimate.bounds(0.05);
        let reach = 2.776_445 * 0.1 * (2.0f64 / 3.0).sqrt() + RESOLUTION;
        assert!((low - (1.0 - reach)).abs() < 1e-4 && (high - (1.0 + reach)).abs() < 1e-4, "{low} {high}");
        // And the level at which it touches a limit is that limit's probability.
        let p = estimate.p_beyond(low, false);
        assert!((p - 0.05).abs() < 1e-4 || p == 1.0, "{p}");
        assert!(estimate.p_beyond(0.5, false) < 0.05);
        assert_eq!(estimate.p_beyond(1.1, false), 1.0);
    }

    #[test]
    fn one_more_run_like_the_others_never_widens_an_interval() {
        let spread = 0.01;
        let run = |log: f64| SideFigure::Mean { value: log.exp(), error: 0.0, freedom: f64::INFINITY };
        let width = |a: usize, b: usize| {
            let (a, b) = (vec![run(1.0); a], vec![run(1.02); b]);
            let estimate = match (a.as_slice(), b.as_slice()) {
                ([_], [_]) => Estimate::Singles { sides: [run(1.0), run(1.02)], spread: [spread; 2] },
                _ => Estimate::of_runs(&a, &b, spread).unwrap(),
            };
            let (low, high) = estimate.bounds(0.05);
            high - low
        };
        for a in 1..8 {
            for b in 1..8 {
                assert!(width(a + 1, b) < width(a, b) && width(a, b + 1) < width(a, b), "{a} and {b} runs");
            }
        }
        // Runs that lie farther apart than assumed do.
        let wild = [run(1.0), run(1.2)];
        let estimate = Estimate::of_runs(&wild, &[run(1.02)], spread).unwrap();
        assert!(estimate.bounds(0.05).1 - estimate.bounds(0.05).0 > width(1, 1));
    }

    #[test]
    fn an_interval_from_unequal_sides_is_that_of_welch() {
        // Variances 0.01 and 1 of 3 runs each: of the difference 1.01/3, with 1.01^2 / (0.01^2/2 + 1/2) = 2.04 degrees.
        let (a, b) = (runs([0.9, 1.0, 1.1]), runs([1.0, 2.0, 3.0]));
        let estimate = Estimate::of_runs(&a, &b, 0.0).unwrap();
        let reach = |freedom: f64, variance: f64| quantile(0.05, freedom) * (variance / 3.0).sqrt() + RESOLUTION;
        let (low, high) = estimate.bounds(0.05);
        let wide = reach(1.01f64.powi(2) / (0.01f64.powi(2) / 2.0 + 0.5), 1.01);
        assert!((low - (1.0 - wide)).abs() < 1e-6 && (high - (1.0 + wide)).abs() < 1e-6, "{low} {high} {wide}");
        // B's own figure knows nothing of A's runs.
        let (low, high) = estimate.own_bounds(0.05);
        assert!((low - (2.0 - reach(2.0, 1.0))).abs() < 1e-6 && (high - (2.0 + reach(2.0, 1.0))).abs() < 1e-6);
        assert!(Estimate::of_runs(&a, &b[..1], 0.0).is_some() && Estimate::of_runs(&a[..1], &b[..1], 0.0).is_none());
    }

    #[test]
    fn cells_are_one_figure_with_the_error_of_their_mean() {
        let median = |histogram: pciescope_core::Histogram| {
            let dist = Dist::of(&histogram, histogram.count() as f64 / CORRELATION).unwrap();
            SideFigure::Quantile { dist: Rc::new(dist), share: 0.5 }
        };
        let quantile = |ns: u64, width: u64| {
            let values = (0..100_000u64).map(|n| ns + n % width);
            median(pciescope_core::Histogram::of_ns(values).unwrap())
        };
        let cells = [quantile(1000, 200), quantile(4000, 800), quantile(1000, 200), quantile(4000, 800)];
        let all = SideFigure::of_cells(cells.iter().cloned()).unwrap();
        // The roots of 1100 and 4400.
        assert!((all.value() / 2200.0 - 1.0).abs() < 2e-3, "{}", all.value());
        // Four equal errors make half of one, of the farther side.
        let (one, four) = (cells[0].reach(0.05), all.reach(0.05));
        let farther = one.0.max(one.1);
        assert!((four.0 / farther - 0.5).abs() < 0.05 && four.0 == four.1, "{one:?} {four:?}");
        assert!((all.reach(0.01).0 / four.0 - 2.5758 / 1.96).abs() < 1e-3);
        // A cell too short for an interval leaves none of the whole.
        let short = median(pciescope_core::Histogram::of_ns(1..=20).unwrap());
        assert!(SideFigure::of_cells(cells.into_iter().chain([short])).is_none());
        assert!(SideFigure::of_cells(std::iter::empty()).is_none());
    }

    #[test]
    fn batches_of_neighbours_that_move_together_have_the_larger_error() {
        let slow: Vec<(f64, f64)> = (0..100).map(|n| (f64::from(n / 10 % 2), 1.0)).collect();
        let fast: Vec<(f64, f64)> = (0..100).map(|n| (f64::from(n % 2), 1.0)).collect();
        assert!(batch_means(&slow).unwrap().0 > 0.1 && batch_means(&fast).unwrap().0 < 1e-9);
        assert!(batch_means(&[(1.0, 1.0), (2.0, 1.0)]).is_none());
        // An interval of a tenth of a second says next to nothing beside three of 10 s, and its unit is of no matter.
        let end =
            |unit: f64| batch_means(&[(1.0, 10.0 * unit), (1.0, 10.0 * unit), (1.0, 10.0 * unit), (0.0, 0.1 * unit)]);
        assert!(end(1.0).unwrap().0 < 0.05 && (end(1.0).unwrap().0 - end(60.0).unwrap().0).abs() < 1e-9);
    }
}
