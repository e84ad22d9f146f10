//! The statistics of one cell of both sides, each with its interval.

use std::borrow::Cow;
use std::rc::Rc;

use super::cells::{self, Run, SideCell};
use super::counts::Events;
use super::dist::{self, CORRELATION, Dist};
use super::interval::{Estimate, SideFigure, batch_error, batch_means, quantile};
use super::key::CellKey;
use super::limit::{Limit, parse_percentile};
use super::medians;
use super::values::grain;
use super::{ALPHA, Cell, Criteria, Need, Shape, Shift, Verdict};

/// Quantiles that a verdict is made of, with their names.
pub const TESTED: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
/// Quantiles by which the distributions of both sides are laid over each other.
const LAID_BY: [f64; 4] = [0.1, 0.25, 0.75, 0.9];
/// The form has not changed if a smaller share of the samples than this lies elsewhere.
const LEAST_DISPLACED: f64 = 0.02;

/// The statistics of a cell, and what limits need to know of them beside their values.
pub struct Figures {
    /// The cell. `Unclear` is all that is said of it yet.
    pub cell: Cell,
    /// The source of each statistic's interval, in the order of the cell. `None`: the statistic has no interval.
    pub estimates: Vec<Option<Estimate>>,
    /// Statistics that need more samples than there are.
    pub too_few: Vec<Cow<'static, str>>,
}

impl Figures {
    /// The statistics of `sides`; `parts` has the cells of a group by side, and none of a cell by itself.
    pub fn of(key: &CellKey, sides: [&SideCell; 2], parts: [Vec<&SideCell>; 2], criteria: &Criteria) -> Self {
        let [a, b] = sides;
        // A sum whose time is not known is no rate.
        let is_comparable = (a.ways == b.ways && a.unit == b.unit) || criteria.is_forced;
        let cell = Cell {
            key: key.clone(),
            merged: parts[0].len().max(1),
            is_overall: false,
            runs: sides.map(|side| side.runs.len()),
            counts: sides.map(|side| side.runs.iter().map(|run| run.values.count).sum()),
            unit: a.unit.to_owned(),
            shifts: Vec::new(),
            shape: None,
            verdict: if is_comparable { Verdict::Unclear } else { Verdict::Incomparable },
            is_worse: false,
        };
        let mut figures = Figures { cell, estimates: Vec::new(), too_few: Vec::new() };
        if !is_comparable {
            figures.cell.counts = [0; 2];
        } else if key.is_histogram {
            figures.add_histograms(sides, &parts, criteria);
        } else if key.is_loss() {
            figures.add(losses(key, sides), None);
        } else if let Some((shift, estimate)) = value(key, sides, figures.samples_and_runs(), criteria) {
            figures.add(shift, estimate);
        }
        figures.cell.shifts.shrink_to_fit();
        figures
    }

    fn add(&mut self, shift: Shift, estimate: Option<Estimate>) {
        self.cell.shifts.push(shift);
        self.estimates.push(estimate);
    }

    /// Samples of the smaller side, and runs of the larger.
    fn samples_and_runs(&self) -> (u64, usize) {
        let ([a, b], [runs_a, runs_b]) = (self.cell.counts, self.cell.runs);
        (a.min(b), runs_a.max(runs_b))
    }

    /// Adds the quantiles and the mean of histograms, and how these lie to each other.
    fn add_histograms(&mut self, sides: [&SideCell; 2], parts: &[Vec<&SideCell>; 2], criteria: &Criteria) {
        let [Some(a), Some(b)] = sides.map(Dists::of) else { return };
        let dists = [a, b];
        self.cell.counts = dists.each_ref().map(|side| side.all.count());
        let samples_and_runs = (self.samples_and_runs().0, dists[0].runs.len().max(dists[1].runs.len()));
        let spread = sides.map(|side| {
            let error = side.runs.iter().map(|run| run.error).fold(0.0, f64::max);
            criteria.spread.hypot(error) / (side.runs.len() as f64).sqrt()
        });
        let quantum = sides[0].quantum_ns.max(sides[1].quantum_ns);
        let estimate = |[a, b]: [Vec<SideFigure>; 2]| match (a.as_slice(), b.as_slice()) {
            ([a], [b]) => Some(Estimate::Singles { sides: [a.clone(), b.clone()], spread }),
            _ => Estimate::of_runs(&a, &b, criteria.spread),
        };
        let mut typical = dists.each_ref().map(|side| Typical {
            all: side.all.quantile_ns(0.5),
            runs: side.runs.iter().map(|run| run.quantile_ns(0.5)).collect(),
        });
        for (name, share) in statistics(&criteria.limits) {
            let of_cells =
                if share == Some(0.5) { parts.each_ref().map(|cells| medians::of_runs(cells)) } else { [None, None] };
            if let [Some(a), Some(b)] = of_cells {
                let of_cells = [a, b];
                let of_runs = of_cells.each_ref().map(|side| side.iter().map(SideFigure::value).collect::<Vec<_>>());
                if let Some(estimate) = estimate(of_cells) {
                    let ([a, b], [runs_a, runs_b]) = (estimate.values(), of_runs);
                    typical = [Typical { all: a, runs: runs_a }, Typical { all: b, runs: runs_b }];
                    let shift = shift(name, &estimate, quantum, samples_and_runs, criteria);
                    self.add(Shift { is_of_cells: true, ..shift }, Some(estimate));
                    continue;
                }
            }
            let is_supported = |dist: &Rc<Dist>| share.is_none_or(|share| supports(dist, share));
            if !dists.iter().all(|side| is_supported(&side.all)) {
                self.too_few.push(name);
                continue;
            }
            let mut runs = dists.iter().flat_map(|side| &side.runs);
            let are_runs = runs.clone().count() > 2 && runs.all(is_supported);
            let singles = |runs: &[Rc<Dist>]| runs.iter().map(|dist| single(dist, share)).collect::<Vec<_>>();
            let best = are_runs.then(|| estimate(dists.each_ref().map(|side| singles(&side.runs)))).flatten();
            let best = best.unwrap_or_else(|| Estimate::Singles {
                sides: dists.each_ref().map(|side| single(&side.all, share)),
                spread,
            });
            self.add(shift(name, &best, quantum, samples_and_runs, criteria), Some(best));
        }
        let median = self.cell.shifts.iter().position(|shift| shift.name == TESTED[0].0);
        let median = median.and_then(|at| self.estimates[at].as_ref());
        self.cell.shape = Some(shape(&dists, &typical, median, quantum, criteria));
    }
}

/// The distributions of a side: of each run, and of all together.
struct Dists {
    runs: Vec<Rc<Dist>>,
    all: Rc<Dist>,
}

impl Dists {
    /// `None` of no samples.
    fn of(side: &SideCell) -> Option<Self> {
        let runs: Vec<_> = side.runs.iter().filter_map(|run| cells::dist(&run.samples)).map(Rc::new).collect();
        let all = match runs.as_slice() {
            [one] => Rc::clone(one),
            _ => Rc::new(cells::dist(side.runs.iter().flat_map(|run| &run.samples))?),
        };
        Some(Dists { runs, all })
    }
}

/// The typical figure of a side's histograms: of all together, and of each run.
struct Typical {
    all: f64,
    runs: Vec<f64>,
}

/// The statistics that are made of a histogram: the quantiles by their share, and the mean.
fn statistics(limits: &[Limit]) -> Vec<(Cow<'static, str>, Option<f64>)> {
    let mut wanted: Vec<(Cow<'static, str>, Option<f64>)> =
        TESTED.iter().map(|(name, share)| (Cow::Borrowed(*name), Some(*share))).collect();
    wanted.push((Cow::Borrowed("mean"), None));
    // 99.9 / 100 is not 0.999 in binary.
    let is_same = |x: Option<f64>, y: Option<f64>| x.zip(y).is_some_and(|(x, y)| (x - y).abs() < 1e-9);
    for limit in limits {
        let share = parse_percentile(&limit.name);
        if share.is_some() && !wanted.iter().any(|known| is_same(known.1, share)) {
            wanted.push((Cow::Owned(limit.name.clone()), share));
        }
    }
    wanted
}

/// A quantile of a distribution; without `share` its mean.
fn single(dist: &Rc<Dist>, share: Option<f64>) -> SideFigure {
    match share {
        Some(share) => SideFigure::Quantile { dist: Rc::clone(dist), share },
        None => {
            let value = dist.mean_ns().max(1e-3);
            let error = dist.deviation_ns() / value / dist.effective().sqrt();
            SideFigure::Mean { value, error, freedom: f64::INFINITY }
        }
    }
}

/// Whether a distribution has samples enough for a quantile, as everywhere in pciescope: 10/(1-p), and 10 for the median.
fn supports(dist: &Dist, share: f64) -> bool {
    let needed = if share <= 0.5 { 10.0 } else { 10.0 / (1.0 - share) };
    dist.count() as f64 >= needed * (1.0 - 1e-9)
}

/// A statistic with its interval; `quantum` is the clock's step.
fn shift(
    name: Cow<'static, str>,
    estimate: &Estimate,
    quantum: f64,
    samples_and_runs: (u64, usize),
    criteria: &Criteria,
) -> Shift {
    let [a, b] = estimate.values();
    let margin = criteria.margin.max(quantum / a).min(1e6);
    let (low, high) = estimate.bounds(ALPHA);
    let (up, down) = ((1.0 + margin).ln(), (1.0 - margin).max(0.0).ln());
    let is_same = low >= down && high <= up;
    let percent = |log: f64| Some(log.exp() - 1.0).filter(|change| change.is_finite());
    Shift {
        change: percent(estimate.change()),
        low: percent(low).filter(|_| low.is_finite()),
        high: percent(high),
        margin,
        need: (!is_same).then(|| need(estimate, (low, high), up, samples_and_runs)),
        ..plain(name, [a, b], is_same, estimate.p_beyond(up, false).min(estimate.p_beyond(down, true)))
    }
}

/// A statistic without an interval.
fn plain(name: Cow<'static, str>, [a, b]: [f64; 2], is_same: bool, p: f64) -> Shift {
    Shift {
        name,
        a,
        b,
        change: (a > 0.0).then(|| b / a - 1.0),
        low: None,
        high: None,
        margin: 0.0,
        verdict: if is_same { Verdict::Same } else { Verdict::Unclear },
        p,
        need: None,
        is_of_cells: false,
    }
}

/// The name of the only statistic of a metric.
const VALUE: Cow<'static, str> = Cow::Borrowed("value");

/// What would bring the interval to one side of the margin.
fn need(estimate: &Estimate, (low, high): (f64, f64), margin: f64, (samples, runs): (u64, usize)) -> Need {
    // As far from the margin as the change is, and not less than a quarter of the margin.
    let gap = (estimate.change().abs() - margin).abs();
    if gap < margin / 4.0 {
        return Need::Margin;
    }
    let half = (high - low) / 2.0;
    if !half.is_finite() {
        return Need::Samples(samples.saturating_mul(10).max(1000));
    }
    let floor = estimate.floor(ALPHA);
    if floor < gap {
        let times = (half * half - floor * floor).max(0.0) / (gap * gap - floor * floor);
        return Need::Samples((samples as f64 * times.max(1.0) * 1.1).ceil() as u64);
    }
    Need::Runs(((half / gap).powi(2) * runs as f64 * 1.1).ceil().clamp(runs as f64 + 1.0, 1e6) as u64)
}

/// How the distributions lie to each other; `median` is the estimate of the medians' change.
fn shape(
    dists: &[Dists; 2],
    typical: &[Typical; 2],
    median: Option<&Estimate>,
    quantum: f64,
    criteria: &Criteria,
) -> Shape {
    let [a, b] = dists.each_ref().map(|side| &*side.all);
    // A distance that the margin and the spread of runs explain is not a difference of shape.
    let jump = median.map_or(0.0, |estimate| match estimate {
        Estimate::Singles { .. } => estimate.floor(ALPHA),
        Estimate::Runs { .. } => (estimate.bounds(ALPHA).1 - estimate.change()).min(1.0),
    });
    let allowed = (1.0 + criteria.margin) * jump.exp() - 1.0;
    let apart = |a: &Dist, b: &Dist, moved: f64| {
        let down = dist::displaced(b, a, moved.recip(), allowed, quantum);
        (dist::displaced(a, b, moved, allowed, quantum), down)
    };
    // Between two modes a sample more in one of them decides where the median lies. So the distributions are laid over each
    // other as each of several quantiles says, and as they are: only what none of these explains is another form.
    let by_quantile = LAID_BY.map(|share| b.quantile_ns(share) / a.quantile_ns(share));
    let all = by_quantile.into_iter().chain([typical[1].all / typical[0].all, 1.0]).map(|moved| apart(a, b, moved));
    let (up, down) = all.min_by(|x, y| x.0.max(x.1).total_cmp(&y.0.max(y.1))).unwrap_or_default();
    let distance = up.max(down);
    // Runs of one side that lie as far from each other are no reason for an alarm.
    let within = dists.iter().zip(typical).filter(|(side, _)| side.runs.len() > 1).flat_map(|(side, typical)| {
        let runs = side.runs.iter().zip(&typical.runs);
        runs.map(|(run, own)| apart(run, &side.all, typical.all / own)).map(|(up, down)| up.max(down))
    });
    let is_large = distance >= LEAST_DISPLACED && distance > within.fold(0.0, f64::max);
    let p = if is_large { (2.0 * dist::kolmogorov(distance, a.effective(), b.effective())).min(1.0) } else { 1.0 };
    Shape {
        displaced: if up >= down { up } else { -down },
        p: if p < ALPHA { p } else { 1.0 },
        superiority: dist::superiority(a, b),
        is_alarm: false,
    }
}

/// The counts of losses of both sides.
fn losses(key: &CellKey, sides: [&SideCell; 2]) -> Shift {
    let [a, b] = sides.map(Events::lost);
    // Wrong data is no matter of chance.
    let is_wrong = &*key.figure == "wrong" && a.count == 0.0 && b.count > 0.0;
    let p = if is_wrong { 0.0 } else { a.p_of(&b, 0.0, 0.0) };
    let is_same = a.count == b.count && (b.exposure / a.exposure - 1.0).abs() < 1e-9 || a.count + b.count == 0.0;
    plain(VALUE, [a.count, b.count], is_same, p)
}

/// The only statistic of values, with what its interval comes from.
fn value(
    key: &CellKey,
    sides: [&SideCell; 2],
    samples_and_runs: (u64, usize),
    criteria: &Criteria,
) -> Option<(Shift, Option<Estimate>)> {
    let of_runs = sides.map(SideCell::means);
    let both = sides.map(|side| side.mean().unwrap_or_default());
    // A figure that stands alone says nothing about its own spread.
    let (assumed, alone) = (criteria.spread, 2.0 * criteria.spread);
    let grain = grain(key, sides[0].unit);
    if let Some([a, b]) = grain.map(|grain| sides.map(|side| Events::of_rate(side, grain))) {
        if a.are_few() || b.are_few() {
            return Some((plain(VALUE, both, both[0] == both[1], a.p_of(&b, criteria.margin, alone)), None));
        }
    }
    // The runs state how far their ratios may lie apart, so the assumed spread of runs does not apply.
    let allowed = sides.iter().flat_map(|side| &side.runs).map(|run| run.error).fold(0.0, f64::max);
    let allowed = (key.is_ratio() && allowed > 0.0).then_some(allowed);
    if of_runs.iter().flatten().any(|value| *value <= 0.0) {
        return Some((around_zero(sides, both, allowed, assumed), None));
    }
    let single = |run: &Run| {
        let value = run.values.mean();
        if allowed.is_some() {
            return (SideFigure::Mean { value, error: 0.0, freedom: f64::INFINITY }, 0.0);
        }
        // By chance alone the number of events varies so much, and where nothing shows how they follow each other, more.
        let by_chance = |burst: f64| grain.map_or(0.0, |grain| (burst * grain / (value * run.exposure)).sqrt());
        let (error, freedom, is_shown) = match batch_means(&run.values.list) {
            Some((error, freedom)) => {
                let error = (error / value).max(by_chance(1.0));
                (error, freedom, error > 0.0)
            }
            None => (run.error.hypot(by_chance(CORRELATION)), f64::INFINITY, run.error > 0.0),
        };
        (SideFigure::Mean { value, error, freedom }, if is_shown { assumed } else { alone })
    };
    let [(a, spread_a), (b, spread_b)] = sides.map(|side| side.runs.iter().map(single).unzip::<_, _, Vec<_>, Vec<_>>());
    let estimate = match (a.as_slice(), b.as_slice()) {
        ([a], [b]) => {
            let spread = [spread_a[0], spread_b[0]].map(|spread| allowed.unwrap_or(spread));
            Some(Estimate::Singles { sides: [a.clone(), b.clone()], spread })
        }
        _ => Estimate::of_runs(&a, &b, allowed.unwrap_or(assumed)),
    }?;
    Some((shift(VALUE, &estimate, 0.0, samples_and_runs, criteria), Some(estimate)))
}

/// Values that have no logarithm: their difference, by the t test of Welch. `both` are the means of the sides.
fn around_zero(sides: [&SideCell; 2], both: [f64; 2], allowed: Option<f64>, spread: f64) -> Shift {
    let values = sides.map(|side| match side.runs.as_slice() {
        [run] => run.values.list.clone(),
        _ => side.means().into_iter().map(|mean| (mean, 1.0)).collect(),
    });
    let is_equal = values.iter().flatten().all(|(value, _)| *value == both[0]);
    // A share of nearly nothing is noise: what is assumed of the spread is that of 1 % then.
    let least = if sides[0].unit == "%" { 1.0 } else { 0.0 };
    let larger = both[0].abs().max(both[1].abs()).max(least);
    // A ratio of 0 is a dead counter; the possible error of a ratio of 1 is known.
    let [(a_error, a_freedom), (b_error, b_freedom)] = values.map(|values| match (batch_error(&values), allowed) {
        (Some((error, freedom)), _) if error > 0.0 => (error.hypot(spread * larger), freedom),
        (_, Some(allowed)) => (allowed, f64::INFINITY),
        _ => (2.0 * spread * larger, f64::INFINITY),
    });
    let t = (both[1] - both[0]).abs() / a_error.hypot(b_error);
    // The level at which the interval no longer holds 0.
    let freedom = a_freedom.min(b_freedom);
    let is_out = |alpha: f64| t > quantile(alpha, freedom);
    let levels = (1..=12).map(|n| 10f64.powi(-n) / 2.0).take_while(|alpha| is_out(*alpha));
    let p = if is_out(ALPHA) { levels.last().unwrap_or(ALPHA) } else { 1.0 };
    plain(VALUE, both, is_equal, p)
}
