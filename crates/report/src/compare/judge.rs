//! Turns cells of two sides into verdicts, in three steps: the statistics of each single cell, then the limits that
//! apply to it, and last the alarms, for which the number of all tests must be known.

use pciescope_core::Record;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use pciescope_core::Histogram;

use super::cells::{self, Better, Block, Cell as Raw, Cells, Key, Run, Samples, Side, Text};
use super::dist::{self, CORRELATION, Dist};
use super::doubts;
use super::interval::{Estimate, Single, batch_error, batch_means, holm, quantile};
use super::limit::{Limit, parse_percentile};
use super::{ALPHA, Alone, Cell, Judgement, Need, Options, Ruling, Shape, Shift, Verdict};
use crate::{headline, model, table};

/// Quantiles that a verdict is made of, with their names.
const TESTED: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
/// Quantiles by which the distributions of both sides are laid over each other.
const LAID_BY: [f64; 4] = [0.1, 0.25, 0.75, 0.9];
/// The form has not changed if a smaller share of the samples than this lies elsewhere.
const LEAST_DISPLACED: f64 = 0.02;

/// The part of the error that each family of tests may use up: medians and values of groups, tails and forms of groups,
/// single cells. So a thousand single CPUs do not make the test of a group less sensitive, nor tails that of medians.
const SHARES: [f64; 3] = [0.5, 0.25, 0.25];

/// A cell, or a group of several, of both sides.
struct Pair<'p, 'r> {
    a: &'p Raw<'r>,
    b: &'p Raw<'r>,
    /// The cells of a group, of A and of B; none of a cell by itself.
    parts: Vec<(&'p Raw<'r>, &'p Raw<'r>)>,
}

impl<'p, 'r> Pair<'p, 'r> {
    fn of(a: &'p Raw<'r>, b: &'p Raw<'r>) -> Self {
        Pair { a, b, parts: Vec::new() }
    }
}

/// A cell that both sides have.
#[derive(Clone, Copy)]
struct Common<'p, 'r> {
    key: &'p Key,
    a: &'p Raw<'r>,
    b: &'p Raw<'r>,
}

/// The typical figure of a histogram: of both sides, and of each of their runs.
struct Typical {
    all: (f64, f64),
    runs: (Vec<f64>, Vec<f64>),
}

/// The statistics of a cell, and what limits need to know of them beside their values.
struct Figures {
    cell: Cell,
    /// What the interval of each statistic comes from, in the order of the cell. `None`: the statistic has no interval.
    estimates: Vec<Option<Estimate>>,
    /// Statistics that need more samples than there are.
    too_few: Vec<Cow<'static, str>>,
}

/// What the samples of a cell say.
#[derive(Default)]
struct Found {
    counts: (u64, u64),
    shifts: Vec<(Shift, Option<Estimate>)>,
    shape: Option<Shape>,
    too_few: Vec<Cow<'static, str>>,
}

/// A figure that passes a limit as it stands: cell and statistic by place, and how probable it is by chance.
type Exceeded = (usize, usize, f64);

/// Cells that were judged, with what exceeds each limit there.
struct Judged {
    cells: Vec<Cell>,
    /// Whether a verdict of them is made of a test.
    has_test: bool,
    exceeded: Vec<Vec<Exceeded>>,
}

impl Judged {
    fn new(rulings: &[Ruling]) -> Self {
        Judged { cells: Vec::new(), has_test: false, exceeded: vec![Vec::new(); rulings.len()] }
    }

    /// Adds a cell and checks the limits, of a part of a group (`is_summed`) not those on sums of losses. Returns whether its
    /// figures are comparable.
    fn add(&mut self, figures: Figures, is_summed: bool, rulings: &mut [Ruling]) -> bool {
        for (ruling, exceeded) in rulings.iter_mut().zip(&mut self.exceeded) {
            let found = ruling.check(&figures, is_summed);
            exceeded.extend(found.into_iter().map(|(statistic, p)| (self.cells.len(), statistic, p)));
        }
        let mut cell = figures.cell;
        self.has_test |= !cell.shifts.is_empty() || cell.shape.is_some();
        // Mostly they are those of the cell before, and are kept once: most cells have lost nothing.
        if let Some(before) = self.cells.last() {
            if before.unit == cell.unit {
                cell.unit = before.unit.clone();
            }
            if before.shifts == cell.shifts {
                cell.shifts = Rc::clone(&before.shifts);
            }
        }
        self.cells.push(cell);
        self.cells.last().is_some_and(|cell| cell.verdict != Verdict::Incomparable)
    }

    /// Adds others behind.
    fn extend(&mut self, others: Judged) {
        let before = self.cells.len();
        self.cells.extend(others.cells);
        for (exceeded, more) in self.exceeded.iter_mut().zip(others.exceeded) {
            exceeded.extend(more.into_iter().map(|(cell, statistic, p)| (before + cell, statistic, p)));
        }
    }
}

/// Compares two sides. With `is_brief` the judgement has only the cells that speak for a group, with the same verdicts; limits
/// need the others.
pub(crate) fn judge(a: &[&Record], b: &[&Record], options: &Options, is_brief: bool) -> Judgement {
    let (mut left, mut right) = (cells::side(a, false), cells::side(b, false));
    if is_moved(&left, &right) {
        (left, right) = (cells::side(a, true), cells::side(b, true));
    }
    let mut rulings: Vec<Ruling> = options.limits.iter().map(Ruling::of).collect();
    let (mut overall, mut single) = (Judged::new(&rulings), Judged::new(&rulings));
    let (mut only_a, mut only_b) = (Vec::new(), Vec::new());
    // The raw cells of a block are freed before the next block, and the samples of a cell before the next cell.
    for block in left.blocks().chain(right.blocks()).collect::<BTreeSet<Block>>() {
        let (of_a, of_b) = cells::of_both(&block, &left, &right);
        let common = of_a.iter().filter_map(|(key, a)| Some(Common { key, a, b: of_b.get(key)? }));
        let common: Vec<Common> = common.collect();
        let groups = groups(&common);
        let mut comparable = BTreeSet::new();
        for (key, members) in &groups {
            let figures = match members.as_slice() {
                [one] => figures(one.key, &Pair::of(one.a, one.b), true, options),
                many => {
                    let (a, b) = (together(many.iter().map(|one| one.a)), together(many.iter().map(|one| one.b)));
                    let parts = many.iter().map(|one| (one.a, one.b)).collect();
                    figures(key, &Pair { a: &a, b: &b, parts }, true, options)
                }
            };
            if overall.add(figures, false, &mut rulings) {
                comparable.insert(key);
            }
        }
        for one in &common {
            // For the groups it only matters whether there is any test of a single cell.
            if is_brief && single.has_test {
                break;
            }
            let group = one.key.merged();
            let members = &groups[&group];
            // The only one of a group was judged with the groups.
            if members.len() == 1 && members[0].key == one.key {
                continue;
            }
            // Limits are checked on the sum of losses of the group instead, where it has one.
            let is_member = || members.binary_search_by(|member| member.key.cmp(one.key)).is_ok();
            let is_summed = !rulings.is_empty() && comparable.contains(&group) && is_member();
            let figures = figures(one.key, &Pair::of(one.a, one.b), false, options);
            single.add(figures, is_summed, &mut rulings);
        }
        let only = |here: &Cells, there: &Cells| -> Vec<Key> {
            here.keys().filter(|key| !there.contains_key(key)).cloned().collect()
        };
        let (in_a, in_b) = (only(&of_a, &of_b), only(&of_b, &of_a));
        for ruling in &mut rulings {
            ruling.find_missing(&in_a, &groups, &right);
            ruling.check_alone(&in_b, &of_b, options);
        }
        only_a.extend(in_a);
        only_b.extend(in_b);
    }
    overall.extend(single);
    let Judged { mut cells, exceeded, .. } = overall;
    for (ruling, exceeded) in rulings.iter_mut().zip(exceeded) {
        ruling.find_unknown(&right);
        ruling.decide(exceeded, options.is_strict);
    }
    raise_alarms(&mut cells);
    cells.retain(|cell| cell.is_overall || !is_brief);
    Judgement {
        options: options.clone(),
        unreal: unreal(a, b),
        doubts: doubts::doubts(a, b),
        only_a,
        only_b,
        not_numbers: left.not_numbers + right.not_numbers,
        unordered: left.unordered + right.unordered,
        cells,
        rulings,
        runs: (left.runs.len(), right.runs.len()),
        records: (count(a), count(b)),
    }
}

/// The line that says so where a side is of a synthetic machine or of emulated devices.
fn unreal(a: &[&Record], b: &[&Record]) -> Option<&'static str> {
    let any = |is: fn(&Record) -> bool| a.iter().chain(b).any(|record| is(record));
    if any(model::is_synthetic) {
        return Some(table::SYNTHETIC);
    }
    any(model::is_emulated).then_some(table::EMULATED)
}

/// How many records these stand for.
fn count(kept: &[&Record]) -> usize {
    kept.iter().map(|one| one.count()).sum()
}

/// Whether both sides measured one device of the same kind at different addresses: another slot, or another host.
fn is_moved(left: &Side, right: &Side) -> bool {
    let one =
        |side: &Side| (side.devices.len() == 1).then(|| side.devices.first_key_value().map(|(k, v)| (k.clone(), *v)));
    match (one(left).flatten(), one(right).flatten()) {
        (Some((here, kind)), Some((there, other))) => here != there && kind == other && kind != (0, 0),
        _ => false,
    }
}

/// The common cells by what they belong to. With several runs, a group has only the cells that all runs have: a CPU
/// that only some runs measured must not look like a change.
fn groups<'p, 'r>(common: &[Common<'p, 'r>]) -> BTreeMap<Key, Vec<Common<'p, 'r>>> {
    let mut groups: BTreeMap<Key, Vec<Common>> = BTreeMap::new();
    for one in common {
        groups.entry(one.key.merged()).or_default().push(*one);
    }
    for members in groups.values_mut().filter(|members| members.len() > 1) {
        let runs = |one: &Common| (one.a.runs.len(), one.b.runs.len());
        let most = members.iter().map(runs).fold((0, 0), |most, own| (most.0.max(own.0), most.1.max(own.1)));
        if members.iter().any(|one| runs(one) == most) {
            members.retain(|one| runs(one) == most);
        }
    }
    groups
}

/// Several cells of a side as one.
fn together<'p, 'r: 'p>(cells: impl Iterator<Item = &'p Raw<'r>>) -> Raw<'r> {
    let mut all = Raw::default();
    for cell in cells {
        all.unit = cell.unit;
        cell.ways.iter().for_each(|way| cells::add_way(&mut all.ways, *way));
        all.quantum_ns = all.quantum_ns.max(cell.quantum_ns);
        for (name, run) in cell.runs.iter() {
            let into = all.runs.get_or_insert(name, Run::default);
            into.samples.extend(&run.samples);
            into.values.extend(&run.values);
            into.exposure += run.exposure;
            into.error = into.error.max(run.error);
        }
    }
    all
}

impl Ruling {
    fn of(limit: &Limit) -> Self {
        Ruling {
            limit: limit.clone(),
            checked: 0,
            undecided: 0,
            exceeded: Vec::new(),
            unproven: Vec::new(),
            alone: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Checks the statistics of a cell against the limit. Gives those that pass it as they stand, by place, and how probable
    /// each is by chance. `is_summed`: the cell is a part of a group, which answers for the sum of the losses.
    fn check(&mut self, figures: &Figures, is_summed: bool) -> Vec<(usize, f64)> {
        let (limit, cell) = (&self.limit, &figures.cell);
        let key = &cell.key;
        if cell.verdict == Verdict::Incomparable {
            self.undecided += usize::from(limit.is_about(key));
            return Vec::new();
        }
        self.undecided += figures.too_few.iter().filter(|name| limit.is_of(key, name)).count();
        let unit = if key.is_histogram { "ns" } else { cell.unit.as_str() };
        let is_sum = limit.is_absolute() && cells::is_loss(&key.figure);
        let mut exceeded = Vec::new();
        if !limit.fits(unit) || (is_sum && is_summed) {
            return exceeded;
        }
        for (place, (shift, estimate)) in cell.shifts.iter().zip(&figures.estimates).enumerate() {
            match limit.is_of(key, &shift.name).then(|| limit.is_exceeded(shift.a, shift.b)) {
                None => {}
                Some(None) => self.undecided += 1,
                Some(Some(is_exceeded)) => {
                    self.checked += 1;
                    if is_exceeded {
                        exceeded.push((place, estimate.as_ref().map_or(0.0, |estimate| limit.probability(estimate))));
                    }
                }
            }
        }
        exceeded
    }

    /// Notes cells of a block that the limit speaks of and that B did not measure. Other CPUs or vectors of what B did measure are a
    /// matter of taste, unless B says that something went wrong there.
    fn find_missing(&mut self, only_a: &[Key], groups: &BTreeMap<Key, Vec<Common>>, right: &Side) {
        let is_missing =
            |key: &&Key| self.limit.is_about(key) && (!groups.contains_key(&key.merged()) || right.has_error(key));
        let missing: Vec<Key> = only_a.iter().filter(is_missing).cloned().collect();
        self.missing.extend(missing);
    }

    /// Notes losses of B that are no numbers: they were not measured, whatever else of B is.
    fn find_unknown(&mut self, right: &Side) {
        let unknown = right.unknown_losses.iter().filter(|key| self.limit.is_about(key));
        let unknown: Vec<Key> = unknown.filter(|key| !self.missing.contains(key)).cloned().collect();
        self.missing.extend(unknown);
    }

    /// Checks the cells of a block that only B has against a limit on B itself.
    fn check_alone(&mut self, only_b: &[Key], right: &Cells, options: &Options) {
        if !self.limit.is_absolute() {
            return;
        }
        for key in only_b {
            let figures = figures(key, &Pair::of(&right[key], &right[key]), false, options);
            for (place, p) in self.check(&figures, false) {
                let (cell, shift) = (&figures.cell, &figures.cell.shifts[place]);
                let (name, unit) = (shift.name.to_string(), cell.unit.to_string());
                self.alone.push(Alone { key: key.clone(), name, unit, value: shift.b, p, is_proven: false });
            }
        }
    }

    /// Tells what is proven from what is not, once it is known how many figures the limit was checked against.
    fn decide(&mut self, exceeded: Vec<Exceeded>, is_strict: bool) {
        let checked = self.checked as f64;
        let is_proven = |p: f64| is_strict || p <= ALPHA / checked;
        self.alone.iter_mut().for_each(|alone| alone.is_proven = is_proven(alone.p));
        for (cell, statistic, p) in exceeded {
            let list = if is_proven(p) { &mut self.exceeded } else { &mut self.unproven };
            list.push((cell, statistic));
        }
    }
}

/// The statistics of a cell of both sides; `Unclear` is all that is said of it yet.
fn figures(key: &Key, pair: &Pair, is_overall: bool, options: &Options) -> Figures {
    let (a, b) = (pair.a, pair.b);
    // A sum whose time is not known is no rate.
    let is_comparable = (a.ways == b.ways && a.unit == b.unit) || options.is_forced;
    let found = if !is_comparable {
        Found::default()
    } else if key.is_histogram {
        histograms(pair, options)
    } else if cells::is_loss(&key.figure) {
        losses(key, a, b)
    } else {
        values(key, a, b, options)
    };
    let (shifts, estimates): (Vec<Shift>, _) = found.shifts.into_iter().unzip();
    let cell = Cell {
        key: key.clone(),
        merged: pair.parts.len().max(1),
        is_overall,
        runs: (a.runs.len(), b.runs.len()),
        counts: found.counts,
        unit: Text::from(a.unit),
        shifts: shifts.into(),
        shape: found.shape,
        verdict: if is_comparable { Verdict::Unclear } else { Verdict::Incomparable },
        is_worse: false,
    };
    Figures { cell, estimates, too_few: found.too_few }
}

/// The quantiles and the mean of histograms, and how these lie to each other.
fn histograms(pair: &Pair, options: &Options) -> Found {
    let (a, b) = (pair.a, pair.b);
    let (Some((runs_a, all_a)), Some((runs_b, all_b))) = (dists(a), dists(b)) else { return Found::default() };
    let mut found = Found { counts: (all_a.count(), all_b.count()), ..Found::default() };
    let spread = |side: &Raw| {
        let error = side.runs.values().map(|run| run.error).fold(0.0, f64::max);
        options.spread.hypot(error) / (side.runs.len() as f64).sqrt()
    };
    let spread = (spread(a), spread(b));
    let quantum = a.quantum_ns.max(b.quantum_ns);
    let counts = (all_a.count().min(all_b.count()), runs_a.len().max(runs_b.len()));
    let estimate = |a: &[Single], b: &[Single]| match (a, b) {
        ([a], [b]) => Some(Estimate::Singles { a: a.clone(), b: b.clone(), spread }),
        _ => Estimate::of_runs(a, b, options.spread),
    };
    let median = |dist: &Rc<Dist>| dist.quantile_ns(0.5);
    let medians = |runs: &[Rc<Dist>]| runs.iter().map(median).collect::<Vec<_>>();
    let mut typical = Typical { all: (median(&all_a), median(&all_b)), runs: (medians(&runs_a), medians(&runs_b)) };
    for (name, share) in statistics(&options.limits) {
        let of_cells = if share == Some(0.5) { by_cell(&pair.parts, 0.5) } else { None };
        if let Some((of_a, of_b)) = of_cells {
            if let Some(estimate) = estimate(&of_a, &of_b) {
                let values = |runs: &[Single]| runs.iter().map(Single::value).collect();
                typical = Typical { all: estimate.values(), runs: (values(&of_a), values(&of_b)) };
                let shift = Shift { is_of_cells: true, ..shift(name, &estimate, quantum, counts, options) };
                found.shifts.push((shift, Some(estimate)));
                continue;
            }
        }
        let is_supported = |dist: &Dist| share.is_none_or(|share| supports(dist, share));
        if !is_supported(&all_a) || !is_supported(&all_b) {
            found.too_few.push(name);
            continue;
        }
        let are_runs = runs_a.len() + runs_b.len() > 2 && runs_a.iter().chain(&runs_b).all(|d| is_supported(d));
        let of_runs = |runs: &[Rc<Dist>]| runs.iter().map(|dist| single(dist, share)).collect::<Vec<_>>();
        let of_all = || Estimate::Singles { a: single(&all_a, share), b: single(&all_b, share), spread };
        let best = if are_runs { estimate(&of_runs(&runs_a), &of_runs(&runs_b)) } else { None };
        let best = best.unwrap_or_else(of_all);
        found.shifts.push((shift(name, &best, quantum, counts, options), Some(best)));
    }
    let of_median = found.shifts.iter().find(|(shift, _)| shift.name == TESTED[0].0);
    let of_median = of_median.and_then(|(_, estimate)| estimate.as_ref());
    found.shape = Some(shape((&runs_a, &runs_b), (&all_a, &all_b), &typical, of_median, quantum, options));
    found
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

/// A statistic with its interval.
fn shift(name: Cow<'static, str>, estimate: &Estimate, quantum: f64, counts: (u64, usize), options: &Options) -> Shift {
    let (a, b) = estimate.values();
    let margin = options.margin.max(quantum / a).min(1e6);
    let (low, high) = estimate.bounds(ALPHA);
    let (up, down) = ((1.0 + margin).ln(), (1.0 - margin).max(0.0).ln());
    let is_same = low >= down && high <= up;
    let p = estimate.p_beyond(up, false).min(estimate.p_beyond(down, true));
    let percent = |log: f64| Some(log.exp() - 1.0).filter(|change| change.is_finite());
    let need = (!is_same).then(|| need(estimate, low, high, up, counts));
    Shift {
        name,
        a,
        b,
        change: percent(estimate.change()),
        low: percent(low).filter(|_| low.is_finite()),
        high: percent(high),
        margin,
        verdict: if is_same { Verdict::Same } else { Verdict::Unclear },
        p,
        need,
        is_of_cells: false,
    }
}

/// A figure that has no interval.
fn plain(a: f64, b: f64, is_same: bool, p: f64) -> Shift {
    Shift {
        name: Cow::Borrowed("value"),
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

/// How the distributions lie to each other; `median` is the estimate of the medians' change.
fn shape(
    (runs_a, runs_b): (&[Rc<Dist>], &[Rc<Dist>]),
    (all_a, all_b): (&Rc<Dist>, &Rc<Dist>),
    typical: &Typical,
    median: Option<&Estimate>,
    quantum: f64,
    options: &Options,
) -> Shape {
    // A distance that the margin and the spread of runs explain is not a difference of shape.
    let jump = median.map_or(0.0, |estimate| match estimate {
        Estimate::Singles { .. } => estimate.floor(ALPHA),
        Estimate::Runs { .. } => (estimate.bounds(ALPHA).1 - estimate.change()).min(1.0),
    });
    let allowed = (1.0 + options.margin) * jump.exp() - 1.0;
    let apart = |a: &Dist, b: &Dist, moved: f64| {
        let down = dist::displaced(b, a, moved.recip(), allowed, quantum);
        (dist::displaced(a, b, moved, allowed, quantum), down)
    };
    let (of_a, of_b) = typical.all;
    // Between two modes a sample more in one of them decides where the median lies. So the distributions are laid over each
    // other as each of several quantiles says, and as they are: only what none of these explains is another form.
    let by_quantile = LAID_BY.map(|share| all_b.quantile_ns(share) / all_a.quantile_ns(share));
    let all = by_quantile.into_iter().chain([of_b / of_a, 1.0]).map(|moved| apart(all_a, all_b, moved));
    let (up, down) = all.min_by(|a, b| a.0.max(a.1).total_cmp(&b.0.max(b.1))).unwrap_or_default();
    let distance = up.max(down);
    // Runs of one side that lie as far from each other are no reason for an alarm.
    let within = |runs: &[Rc<Dist>], values: &[f64], all: &Dist, value: f64| {
        let far = runs.iter().zip(values).map(|(run, own)| apart(run, all, value / own));
        if runs.len() < 2 { 0.0 } else { far.map(|(up, down)| up.max(down)).fold(0.0, f64::max) }
    };
    let own = within(runs_a, &typical.runs.0, all_a, of_a).max(within(runs_b, &typical.runs.1, all_b, of_b));
    let is_large = distance >= LEAST_DISPLACED && distance > own;
    let p =
        if is_large { (2.0 * dist::kolmogorov(distance, all_a.effective(), all_b.effective())).min(1.0) } else { 1.0 };
    let p = if p < ALPHA { p } else { 1.0 };
    Shape {
        displaced: if up >= down { up } else { -down },
        p,
        superiority: dist::superiority(all_a, all_b),
        is_alarm: false,
    }
}

fn losses(key: &Key, a: &Raw, b: &Raw) -> Found {
    let (left, right) = (Events::lost(a), Events::lost(b));
    let p = left.p_of(&right, 0.0, 0.0);
    // Wrong data is no matter of chance.
    let p = if key.figure == "wrong" && left.count == 0.0 && right.count > 0.0 { 0.0 } else { p };
    let is_same = left.count == right.count && (right.exposure / left.exposure - 1.0).abs() < 1e-9
        || left.count + right.count == 0.0;
    Found { counts: counts(a, b), shifts: vec![(plain(left.count, right.count, is_same, p), None)], ..Found::default() }
}

/// Events of a side.
struct Events {
    count: f64,
    /// What they are counted in: samples, triggers, seconds.
    exposure: f64,
    /// So many come together and count as one.
    burst: f64,
}

impl Events {
    fn lost(side: &Raw) -> Self {
        let count = side.runs.values().map(|run| run.values.sum()).sum::<f64>().max(0.0);
        let exposure = side.runs.values().map(|run| run.exposure).sum::<f64>().max(1.0);
        Events { count, exposure, burst: CORRELATION }
    }

    /// Those of a figure that is a rate of them, `grain` of its unit each. Where its runs, or the intervals of one run, lie
    /// farther apart than such bursts explain, the bursts are larger.
    fn of_rate(side: &Raw, grain: f64) -> Self {
        let of_run = |run: &Run| (run.values.mean() * run.exposure / grain, run.exposure);
        // Counts, and the seconds in which they were counted.
        let parts: Vec<(f64, f64)> = match side.runs.values().next() {
            Some(run) if side.runs.len() == 1 => {
                run.values.list.iter().map(|(rate, seconds)| (rate * seconds / grain, *seconds)).collect()
            }
            _ => side.runs.values().map(of_run).collect(),
        };
        let total = |of: fn(&(f64, f64)) -> f64| parts.iter().map(of).sum::<f64>();
        let (count, exposure) = (total(|part| part.0), total(|part| part.1));
        // A longer part has more of them. By chance alone both sums are equal in the mean.
        let rate = count / exposure;
        let squares = parts.iter().map(|(count, seconds)| (count - rate * seconds).powi(2)).sum::<f64>();
        let spread = squares / (rate * (exposure - total(|part| part.1 * part.1) / exposure));
        Events { count, exposure, burst: if spread.is_finite() { CORRELATION.max(spread) } else { CORRELATION } }
    }

    /// How probable rates as far apart as these are by chance, beyond a change of `margin`: Anscombe's root makes the
    /// difference of counts normal. `spread`: how far the true rates of runs may lie apart.
    fn p_of(&self, other: &Events, margin: f64, spread: f64) -> f64 {
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

/// Values of A and of B.
fn counts(a: &Raw, b: &Raw) -> (u64, u64) {
    let values = |side: &Raw| side.runs.values().map(|run| run.values.count()).sum();
    (values(a), values(b))
}

/// Where a side counted fewer independent events, its logarithm says little: their number is compared.
const FEW_EVENTS: f64 = 10.0;

fn values(key: &Key, a: &Raw, b: &Raw, options: &Options) -> Found {
    let mut found = Found { counts: counts(a, b), ..Found::default() };
    let runs = |side: &Raw| side.runs.values().map(|run| run.values.mean()).collect::<Vec<f64>>();
    let (runs_a, runs_b) = (runs(a), runs(b));
    // A figure that stands alone says nothing about its own spread.
    let (assumed, alone) = (options.spread, 2.0 * options.spread);
    let grain = cells::grain(key, a.unit);
    let events = grain.map(|grain| (Events::of_rate(a, grain), Events::of_rate(b, grain)));
    let is_few = |events: &Events| events.count >= 0.0 && events.count / events.burst < FEW_EVENTS;
    if let Some((left, right)) = events.filter(|(left, right)| is_few(left) || is_few(right)) {
        let (mean_a, mean_b) = (mean(&runs_a), mean(&runs_b));
        let p = left.p_of(&right, options.margin, alone);
        found.shifts.push((plain(mean_a, mean_b, mean_a == mean_b, p), None));
        return found;
    }
    // The runs state how far their ratios may lie apart, so the assumed spread of runs does not apply.
    let allowed = a.runs.values().chain(b.runs.values()).map(|run| run.error).fold(0.0, f64::max);
    let allowed = (cells::is_ratio(key) && allowed > 0.0).then_some(allowed);
    if runs_a.iter().chain(&runs_b).any(|value| *value <= 0.0) {
        found.shifts.push((around_zero(a, b, allowed, assumed), None));
        return found;
    }
    let single = |run: &Run| {
        let value = run.values.mean();
        if allowed.is_some() {
            return (Single::Mean { value, error: 0.0, freedom: f64::INFINITY }, 0.0);
        }
        // By chance alone the number of events varies so much, and where nothing shows how they follow each other, more.
        let by_chance = |burst: f64| grain.map_or(0.0, |grain| (burst * grain / (value * run.exposure)).sqrt());
        match batch_means(&run.values.list) {
            Some((error, freedom)) => {
                let error = (error / value).max(by_chance(1.0));
                (Single::Mean { value, error, freedom }, if error > 0.0 { assumed } else { alone })
            }
            None => {
                let error = run.error.hypot(by_chance(CORRELATION));
                let spread = if run.error > 0.0 { assumed } else { alone };
                (Single::Mean { value, error, freedom: f64::INFINITY }, spread)
            }
        }
    };
    let singles = |side: &Raw| side.runs.values().map(single).unzip::<_, _, Vec<_>, Vec<_>>();
    let ((mut left, spread_a), (mut right, spread_b)) = (singles(a), singles(b));
    let estimate = if left.len() + right.len() > 2 {
        Estimate::of_runs(&left, &right, allowed.unwrap_or(assumed))
    } else {
        left.pop().zip(right.pop()).map(|(a, b)| {
            let spread = (allowed.unwrap_or(spread_a[0]), allowed.unwrap_or(spread_b[0]));
            Estimate::Singles { a, b, spread }
        })
    };
    if let Some(estimate) = estimate {
        let counts = (found.counts.0.min(found.counts.1), runs_a.len().max(runs_b.len()));
        found.shifts.push((shift(Cow::Borrowed("value"), &estimate, 0.0, counts, options), Some(estimate)));
    }
    found
}

/// Values that have no logarithm: their difference, by the t test of Welch.
fn around_zero(a: &Raw, b: &Raw, allowed: Option<f64>, spread: f64) -> Shift {
    let of_runs = |side: &Raw| mean(&side.runs.values().map(|run| run.values.mean()).collect::<Vec<_>>());
    let values = |side: &Raw| {
        let runs: Vec<(f64, f64)> = side.runs.values().map(|run| (run.values.mean(), 1.0)).collect();
        if runs.len() > 1 { runs } else { side.runs.values().flat_map(|run| run.values.list.clone()).collect() }
    };
    let (left, right) = (values(a), values(b));
    let (mean_a, mean_b) = (of_runs(a), of_runs(b));
    let is_equal = left.iter().chain(&right).all(|(value, _)| *value == mean_a);
    // A share of nearly nothing is noise: what is assumed of the spread is that of 1 % then.
    let larger = mean_a.abs().max(mean_b.abs()).max(if a.unit == "%" { 1.0 } else { 0.0 });
    // A ratio of 0 is a dead counter; the possible error of a ratio of 1 is known.
    let known = |values: &[(f64, f64)]| match (batch_error(values), allowed) {
        (Some((error, freedom)), _) if error > 0.0 => (error.hypot(spread * larger), freedom),
        (_, Some(allowed)) => (allowed, f64::INFINITY),
        _ => (2.0 * spread * larger, f64::INFINITY),
    };
    let ((a_error, a_freedom), (b_error, b_freedom)) = (known(&left), known(&right));
    let t = (mean_b - mean_a).abs() / a_error.hypot(b_error);
    // The level at which the interval no longer holds 0.
    let freedom = a_freedom.min(b_freedom);
    let is_out = |alpha: f64| t > quantile(alpha, freedom);
    let p = if is_out(ALPHA) {
        (1..=12).map(|n| 10f64.powi(-n) / 2.0).take_while(|alpha| is_out(*alpha)).last().unwrap_or(ALPHA)
    } else {
        1.0
    };
    plain(mean_a, mean_b, is_equal, p)
}

/// A test of a family: which cell, which statistic (`None` of the shape), how probable by chance.
struct Test {
    cell: usize,
    shift: Option<usize>,
    p: f64,
}

/// The tests of the cells by family ([`SHARES`]): how many there are, and those that may be an alarm.
fn tests(cells: &[Cell]) -> [(usize, Vec<Test>); 3] {
    let mut tests = [const { (0, Vec::new()) }; 3];
    for (place, cell) in cells.iter().enumerate() {
        let is_tested = |shift: &Shift| !cell.key.is_histogram || TESTED.iter().any(|(name, _)| shift.name == *name);
        let of_shifts = cell.shifts.iter().enumerate().filter(|(_, shift)| is_tested(shift));
        let of_shifts = of_shifts.map(|(at, shift)| (Some(at), shift.p));
        for (shift, p) in of_shifts.chain(cell.shape.map(|shape| (None, shape.p))) {
            let family = match (cell.is_overall, shift) {
                (true, Some(0)) => 0,
                (true, _) => 1,
                (false, _) => 2,
            };
            let (count, possible) = &mut tests[family];
            *count += 1;
            possible.extend((p < 1.0).then_some(Test { cell: place, shift, p }));
        }
    }
    tests
}

/// Verdicts of all cells, once the sizes of the families are known.
fn raise_alarms(cells: &mut [Cell]) {
    let tests = tests(cells);
    let used: f64 = SHARES.iter().zip(&tests).filter(|(_, (count, _))| *count > 0).map(|(share, _)| share).sum();
    for ((size, tests), share) in tests.into_iter().zip(SHARES) {
        let alpha = ALPHA * share / used;
        let found: Vec<f64> = tests.iter().map(|test| test.p).collect();
        for (test, _) in tests.iter().zip(holm(&found, size, alpha)).filter(|(_, is_alarm)| *is_alarm) {
            let cell = &mut cells[test.cell];
            match test.shift {
                Some(place) => {
                    let better = cells::better(&cell.key);
                    let shift = &mut Rc::make_mut(&mut cell.shifts)[place];
                    shift.verdict = direction(better, shift.b > shift.a);
                    shift.need = None;
                }
                None => cell.shape.iter_mut().for_each(|shape| shape.is_alarm = true),
            }
        }
    }
    for cell in cells {
        if cell.verdict != Verdict::Incomparable {
            cell.verdict = verdict(cell);
        }
        let is_far =
            |cell: &Cell| cell.shifts.first().is_some_and(|shift| (shift.b - 1.0).abs() > (shift.a - 1.0).abs());
        cell.is_worse = match cells::better(&cell.key) {
            Better::Fewer => cell.verdict == Verdict::More,
            Better::Nearer => cell.verdict.is_alarm() && is_far(cell),
            _ => cell.verdict == Verdict::Slower,
        };
    }
}

/// The verdict of a cell by its statistics.
fn verdict(cell: &Cell) -> Verdict {
    let mut alarms = cell.shifts.iter().map(|shift| shift.verdict).filter(|verdict| verdict.is_alarm());
    match (alarms.next(), cell.shape) {
        (Some(first), _) => {
            if alarms.all(|other| other == first) {
                first
            } else {
                Verdict::Differs
            }
        }
        (None, Some(shape)) if shape.is_alarm => Verdict::Differs,
        _ => cell.shifts.first().map_or(Verdict::Unclear, |shift| shift.verdict),
    }
}

fn direction(better: Better, is_more: bool) -> Verdict {
    match (better, is_more) {
        (Better::Lower, true) | (Better::Higher, false) => Verdict::Slower,
        (Better::Lower, false) | (Better::Higher, true) => Verdict::Faster,
        (_, true) => Verdict::More,
        (_, false) => Verdict::Less,
    }
}

/// One distribution per run, and all runs of the side as one; `None` of no samples.
fn dists(side: &Raw) -> Option<(Vec<Rc<Dist>>, Rc<Dist>)> {
    // Thousands of cells may be one run here: their samples are added up once.
    let runs = side.runs.values().filter(|run| !run.samples.is_empty());
    let runs: Vec<(Cow<Histogram>, f64)> =
        runs.map(|run| (together_of(&run.samples), effective(&run.samples))).collect();
    let dist =
        |(histogram, effective): &(Cow<Histogram>, f64)| Dist::of(histogram).map(|d| d.with_effective(*effective));
    let of_runs: Vec<Rc<Dist>> = runs.iter().filter_map(dist).map(Rc::new).collect();
    let all = match of_runs.as_slice() {
        [one] => Rc::clone(one),
        _ => {
            let mut all = Histogram::default();
            runs.iter().for_each(|run| all.merge(&run.0));
            let effective = side.runs.values().flat_map(|run| &run.samples).map(Samples::effective).sum();
            Rc::new(dist(&(Cow::Owned(all), effective))?)
        }
    };
    Some((of_runs, all))
}

/// All of these samples as one histogram.
fn together_of<'r>(samples: &[Samples<'r>]) -> Cow<'r, Histogram> {
    match samples {
        [one] => Cow::Borrowed(one.histogram),
        many => Cow::Owned(many.iter().fold(Histogram::default(), |mut all, one| {
            all.merge(one.histogram);
            all
        })),
    }
}

/// How many of them count.
fn effective(samples: &[Samples]) -> f64 {
    samples.iter().map(Samples::effective).sum()
}

/// All of these samples as one distribution.
pub(crate) fn dist(samples: &[Samples]) -> Option<Dist> {
    Dist::of(&together_of(samples)).map(|dist| dist.with_effective(effective(samples)))
}

/// A quantile of each run of A and of B, taken of each cell by itself.
fn by_cell(parts: &[(&Raw, &Raw)], share: f64) -> Option<(Vec<Single>, Vec<Single>)> {
    let (a, b) = parts.iter().copied().unzip::<_, _, Vec<_>, Vec<_>>();
    Some((headline::of_runs(&a, share)?, headline::of_runs(&b, share)?))
}

fn single(dist: &Rc<Dist>, share: Option<f64>) -> Single {
    match share {
        Some(share) => Single::Quantile { dist: Rc::clone(dist), share },
        None => Single::Mean {
            value: dist.mean_ns().max(1e-3),
            error: dist.deviation_ns() / dist.mean_ns().max(1e-3) / dist.effective().sqrt(),
            freedom: f64::INFINITY,
        },
    }
}

/// Whether a distribution has samples enough for a quantile, as everywhere in pciescope: 10/(1-p), and 10 for the median.
fn supports(dist: &Dist, share: f64) -> bool {
    let needed = if share <= 0.5 { 10.0 } else { 10.0 / (1.0 - share) };
    dist.count() as f64 >= needed * (1.0 - 1e-9)
}

/// What would bring the interval to one side of the margin.
fn need(estimate: &Estimate, low: f64, high: f64, margin: f64, (samples, runs): (u64, usize)) -> Need {
    // As far from the margin as the change is, and not less than a quarter of the margin.
    let gap = (estimate.change().abs() - margin).abs();
    if gap < margin / 4.0 {
        return Need::Margin;
    }
    let half = (high - low) / 2.0;
    let floor = estimate.floor(ALPHA);
    if !half.is_finite() {
        return Need::Samples(samples.saturating_mul(10).max(1000));
    }
    let chance = (half * half - floor * floor).max(0.0);
    if floor < gap {
        let times = chance / (gap * gap - floor * floor);
        return Need::Samples((samples as f64 * times.max(1.0) * 1.1).ceil() as u64);
    }
    Need::Runs(((half / gap).powi(2) * runs as f64 * 1.1).ceil().clamp(runs as f64 + 1.0, 1e6) as u64)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / (values.len() as f64).max(1.0)
}

/// The distribution function of the normal distribution.
fn normal(z: f64) -> f64 {
    use statrs::distribution::{ContinuousCDF, Normal};
    Normal::standard().cdf(z)
}
