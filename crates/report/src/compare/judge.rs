//! From cells of two sides to verdicts.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use pciescope_core::{Histogram, Record};

use super::cells::{self, Better, Cell as Raw, Key, LOSSES, Run, Side};
use super::dist::{self, CORRELATION, Dist};
use super::doubts;
use super::interval::{Estimate, Single, batch_means, holm, quantile};
use super::limit::{Limit, Value, parse_percentile};
use super::{ALPHA, Alone, Cell, Judgement, Need, Options, Ruling, Shape, Shift, Verdict};

/// Quantiles that a verdict is made of, with their names.
const TESTED: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
/// The form has not changed if a smaller share of the samples than this lies elsewhere.
const LEAST_DISPLACED: f64 = 0.02;

/// The part of the error that each family of tests may use up: medians and values of groups, tails and forms of groups,
/// single cells. So a thousand single CPUs do not make the test of a group less sensitive, nor tails that of medians.
const SHARES: [f64; 3] = [0.5, 0.25, 0.25];

/// A test of a family: which cell, which statistic (`None` of the shape), how probable by chance.
struct Test {
    cell: usize,
    shift: Option<usize>,
    p: f64,
}

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

/// The cells of a group, of both sides.
fn parts<'p, 'r>(keys: &[&Key], left: &'p Side<'r>, right: &'p Side<'r>) -> Vec<(&'p Raw<'r>, &'p Raw<'r>)> {
    keys.iter().map(|key| (&left.cells[*key], &right.cells[*key])).collect()
}

/// The typical figure of a histogram: of both sides, of each of their runs, and the change between them.
struct Typical {
    all: (f64, f64),
    runs: (Vec<f64>, Vec<f64>),
    estimate: Option<Estimate>,
}

/// Collects statistics and tests while it goes through the cells one by one; it does not keep their samples.
struct Judge<'o> {
    options: &'o Options,
    cells: Vec<Cell>,
    /// Tests that may be alarms, and the sizes of the families ([`SHARES`]).
    tests: [Vec<Test>; 3],
    sizes: [usize; 3],
    rulings: Vec<Ruling>,
    /// For each limit, the figures that exceed it as they stand: cell, statistic, probability.
    exceeding: Vec<Vec<(usize, usize, f64)>>,
    /// Whether the current sum of losses is also part of a group's sum, which then says everything.
    is_summed: bool,
    /// Whether only B has these cells: only limits on B itself apply to them.
    is_alone: bool,
}

/// Compares two sides.
pub fn judge(a: &[Record], b: &[Record], options: &Options) -> Judgement {
    let (mut left, mut right) = (cells::side(a, false), cells::side(b, false));
    if is_moved(&left, &right) {
        (left, right) = (cells::side(a, true), cells::side(b, true));
    }
    cells::fill_losses(&mut left, &mut right);
    let keys: Vec<&Key> = left.cells.keys().filter(|key| right.cells.contains_key(*key)).collect();
    let groups = groups(&keys, &left, &right);
    let mut judge = Judge::new(options, false);
    for (key, members) in &groups {
        match members.as_slice() {
            [one] => judge.examine(one, Pair::of(&left.cells[*one], &right.cells[*one]), true),
            many => {
                let (a, b) = (together(many, &left), together(many, &right));
                judge.examine(key, Pair { a: &a, b: &b, parts: parts(many, &left, &right) }, true);
            }
        }
    }
    let single: BTreeSet<&Key> = groups.values().filter(|m| m.len() == 1).map(|m| m[0]).collect();
    let incomparable: BTreeSet<Key> =
        judge.cells.iter().filter(|cell| cell.verdict == Verdict::Incomparable).map(|cell| cell.key.clone()).collect();
    for key in keys.iter().filter(|key| !single.contains(**key)) {
        let group = key.merged();
        judge.is_summed = groups[&group].contains(key) && !incomparable.contains(&group);
        judge.examine(key, Pair::of(&left.cells[*key], &right.cells[*key]), false);
    }
    let only = |here: &Side, there: &Side| -> Vec<Key> {
        here.cells.keys().filter(|key| !there.cells.contains_key(key)).cloned().collect()
    };
    let (only_a, only_b) = (only(&left, &right), only(&right, &left));
    judge.missing(&only_a, &groups, &right);
    judge.alone(&only_b, &right);
    judge.decide();
    Judgement {
        options: options.clone(),
        doubts: doubts::doubts(a, b),
        only_a,
        only_b,
        not_numbers: left.not_numbers + right.not_numbers,
        cells: judge.cells,
        rulings: judge.rulings,
        runs: (left.runs.len(), right.runs.len()),
        records: (a.len(), b.len()),
    }
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
fn groups<'k>(keys: &[&'k Key], left: &Side, right: &Side) -> BTreeMap<Key, Vec<&'k Key>> {
    let mut groups: BTreeMap<Key, Vec<&Key>> = BTreeMap::new();
    for key in keys {
        groups.entry(key.merged()).or_default().push(key);
    }
    for members in groups.values_mut().filter(|members| members.len() > 1) {
        let most = |side: &Side| members.iter().map(|key| side.cells[*key].runs.len()).max().unwrap_or(0);
        let (in_a, in_b) = (most(left), most(right));
        let in_all: Vec<&Key> = members
            .iter()
            .copied()
            .filter(|key| left.cells[*key].runs.len() == in_a && right.cells[*key].runs.len() == in_b)
            .collect();
        if !in_all.is_empty() {
            *members = in_all;
        }
    }
    groups
}

/// Several cells of a side as one.
fn together<'r>(keys: &[&Key], side: &Side<'r>) -> Raw<'r> {
    let mut all = Raw::default();
    for key in keys {
        let cell = &side.cells[*key];
        all.unit.clone_from(&cell.unit);
        all.ways.extend(&cell.ways);
        all.quantum_ns = all.quantum_ns.max(cell.quantum_ns);
        for (name, run) in &cell.runs {
            let into: &mut Run = all.runs.entry(name).or_default();
            into.histograms.extend(&run.histograms);
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
            passed: Vec::new(),
            unproven: Vec::new(),
            alone: Vec::new(),
            missing: Vec::new(),
        }
    }
}

impl<'o> Judge<'o> {
    fn new(options: &'o Options, is_alone: bool) -> Self {
        Judge {
            options,
            cells: Vec::new(),
            tests: [Vec::new(), Vec::new(), Vec::new()],
            sizes: [0; 3],
            rulings: options.limits.iter().map(Ruling::of).collect(),
            exceeding: vec![Vec::new(); options.limits.len()],
            is_summed: false,
            is_alone,
        }
    }

    /// Notes cells that a limit names and that B did not measure. B may have measured other CPUs or vectors of the same
    /// target, unless B has an error record there.
    fn missing(&mut self, only_a: &[Key], groups: &BTreeMap<Key, Vec<&Key>>, right: &Side) {
        for (ruling, limit) in self.rulings.iter_mut().zip(&self.options.limits) {
            let is_missing =
                |key: &&Key| limit.is_about(key) && (!groups.contains_key(&key.merged()) || right.has_error(key));
            ruling.missing = only_a.iter().filter(is_missing).cloned().collect();
        }
    }

    /// Checks the cells that only B has against the limits on B itself.
    fn alone(&mut self, only_b: &[Key], right: &Side) {
        if self.options.limits.is_empty() {
            return;
        }
        let mut judge = Judge::new(self.options, true);
        for key in only_b {
            judge.examine(key, Pair::of(&right.cells[key], &right.cells[key]), false);
        }
        for ((ruling, exceeding), by) in self.rulings.iter_mut().zip(judge.exceeding).zip(judge.rulings) {
            ruling.checked += by.checked;
            ruling.undecided += by.undecided;
            let of = |(cell, place, p): (usize, usize, f64)| {
                let (cell, shift) = (&judge.cells[cell], &judge.cells[cell].shifts[place]);
                let (name, unit) = (shift.name.clone(), cell.unit.clone());
                Alone { key: cell.key.clone(), name, unit, value: shift.b, p, is_proven: false }
            };
            ruling.alone = exceeding.into_iter().map(of).collect();
        }
    }

    fn examine(&mut self, key: &Key, pair: Pair, is_overall: bool) {
        let (a, b) = (pair.a, pair.b);
        let cell = Cell {
            key: key.clone(),
            merged: pair.parts.len().max(1),
            is_overall,
            runs: (a.runs.len(), b.runs.len()),
            counts: (0, 0),
            unit: a.unit.clone(),
            shifts: Vec::new(),
            shape: None,
            verdict: Verdict::Unclear,
            is_worse: false,
        };
        self.cells.push(cell);
        if a.ways != b.ways && !self.options.is_forced {
            self.last().verdict = Verdict::Incomparable;
            for (ruling, limit) in self.rulings.iter_mut().zip(&self.options.limits) {
                ruling.undecided += usize::from(limit.is_about(key));
            }
            return;
        }
        if key.is_histogram {
            self.histograms(key, &pair);
        } else if LOSSES.contains(&key.figure.as_str()) {
            self.losses(key, a, b);
        } else {
            self.values(key, a, b);
        }
    }

    fn last(&mut self) -> &mut Cell {
        let place = self.cells.len() - 1;
        &mut self.cells[place]
    }

    fn histograms(&mut self, key: &Key, pair: &Pair) {
        let (a, b, options) = (pair.a, pair.b, self.options);
        let (runs_a, runs_b) = (dists(a), dists(b));
        let (Some(all_a), Some(all_b)) = (merged(&runs_a, a), merged(&runs_b, b)) else { return };
        self.last().counts = (all_a.count(), all_b.count());
        let spread = |side: &Raw| {
            let error = side.runs.values().map(|run| run.error).fold(0.0, f64::max);
            options.spread.hypot(error) / (side.runs.len() as f64).sqrt()
        };
        let spread = (spread(a), spread(b));
        let quantum = a.quantum_ns.max(b.quantum_ns);
        let mut wanted: Vec<(String, Option<f64>, bool)> =
            TESTED.iter().map(|(name, share)| ((*name).to_owned(), Some(*share), true)).collect();
        wanted.push(("mean".to_owned(), None, false));
        // 99.9 / 100 is not 0.999 in binary.
        let is_same = |x: Option<f64>, y: Option<f64>| x.zip(y).is_some_and(|(x, y)| (x - y).abs() < 1e-9);
        for limit in &options.limits {
            let share = parse_percentile(&limit.name);
            if share.is_some() && !wanted.iter().any(|known| is_same(known.1, share)) {
                wanted.push((limit.name.clone(), share, false));
            }
        }
        let median = |dist: &Rc<Dist>| dist.quantile_ns(0.5);
        let medians = |runs: &[Rc<Dist>]| runs.iter().map(median).collect::<Vec<_>>();
        let mut typical = Typical {
            all: (median(&all_a), median(&all_b)),
            runs: (medians(&runs_a), medians(&runs_b)),
            estimate: None,
        };
        let estimate = |a: &[Single], b: &[Single]| match (a, b) {
            ([a], [b]) => Some(Estimate::Singles { a: a.clone(), b: b.clone(), spread }),
            _ => Estimate::of_runs(a, b, options.spread),
        };
        for (name, share, is_tested) in wanted {
            let is_median = share == Some(0.5);
            let counts = (all_a.count().min(all_b.count()), runs_a.len().max(runs_b.len()));
            if is_median {
                if let Some((of_a, of_b)) = by_cell(&pair.parts, 0.5) {
                    if let Some(estimate) = estimate(&of_a, &of_b) {
                        self.shift(key, name, &estimate, quantum, counts, is_tested);
                        self.mark_of_cells();
                        let values = |runs: &[Single]| runs.iter().map(Single::value).collect();
                        typical = Typical {
                            all: estimate.values(),
                            runs: (values(&of_a), values(&of_b)),
                            estimate: Some(estimate),
                        };
                        continue;
                    }
                }
            }
            let is_supported = |dist: &Dist| share.is_none_or(|share| supports(dist, share));
            if !is_supported(&all_a) || !is_supported(&all_b) {
                self.undecided(key, &name);
                continue;
            }
            let are_runs = runs_a.len() + runs_b.len() > 2 && runs_a.iter().chain(&runs_b).all(|d| is_supported(d));
            let of_runs = |runs: &[Rc<Dist>]| runs.iter().map(|dist| single(dist, share)).collect::<Vec<_>>();
            let of_all = || Estimate::Singles { a: single(&all_a, share), b: single(&all_b, share), spread };
            let found = if are_runs { estimate(&of_runs(&runs_a), &of_runs(&runs_b)) } else { None };
            let found = found.unwrap_or_else(of_all);
            self.shift(key, name, &found, quantum, counts, is_tested);
            if is_median {
                typical.estimate = Some(found);
            }
        }
        self.shape(&runs_a, &runs_b, (&all_a, &all_b), &typical, quantum);
    }

    /// Says of the last statistic that it is the mean of those of the cells.
    fn mark_of_cells(&mut self) {
        if let Some(shift) = self.last().shifts.last_mut() {
            shift.is_of_cells = true;
        }
    }

    /// Puts a statistic into the cell, and its tests into the family.
    fn shift(
        &mut self,
        key: &Key,
        name: String,
        estimate: &Estimate,
        quantum: f64,
        counts: (u64, usize),
        is_tested: bool,
    ) {
        let (a, b) = estimate.values();
        let margin = self.options.margin.max(quantum / a).min(1e6);
        let (low, high) = estimate.bounds(ALPHA);
        let (up, down) = ((1.0 + margin).ln(), (1.0 - margin).max(0.0).ln());
        let is_same = low >= down && high <= up;
        let p = estimate.p_beyond(up, false).min(estimate.p_beyond(down, true));
        let percent = |log: f64| Some(log.exp() - 1.0).filter(|change| change.is_finite());
        let need = (!is_same).then(|| need(estimate, low, high, up, counts));
        let shift = Shift {
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
        };
        self.check_limits(key, &shift, |limit| limit.probability(estimate));
        let place = self.last().shifts.len();
        self.last().shifts.push(shift);
        if is_tested {
            self.test(Some(place), p);
        }
    }

    fn test(&mut self, shift: Option<usize>, p: f64) {
        let cell = self.cells.len() - 1;
        let family = match (self.cells[cell].is_overall, shift) {
            (true, Some(0)) => 0,
            (true, _) => 1,
            (false, _) => 2,
        };
        self.sizes[family] += 1;
        if p < 1.0 {
            self.tests[family].push(Test { cell, shift, p });
        }
    }

    fn shape(
        &mut self,
        runs_a: &[Rc<Dist>],
        runs_b: &[Rc<Dist>],
        (all_a, all_b): (&Rc<Dist>, &Rc<Dist>),
        typical: &Typical,
        quantum: f64,
    ) {
        // A distance that the margin and the spread of runs explain is not a difference of shape.
        let jump = typical.estimate.as_ref().map_or(0.0, |estimate| match estimate {
            Estimate::Singles { .. } => estimate.floor(ALPHA),
            Estimate::Runs { .. } => (estimate.bounds(ALPHA).1 - estimate.change()).min(1.0),
        });
        let allowed = (1.0 + self.options.margin) * jump.exp() - 1.0;
        let apart = |a: &Dist, b: &Dist, moved: f64| {
            let down = dist::displaced(b, a, moved.recip(), allowed, quantum);
            (dist::displaced(a, b, moved, allowed, quantum), down)
        };
        let (of_a, of_b) = typical.all;
        let (up, down) = apart(all_a, all_b, of_b / of_a);
        let distance = up.max(down);
        // Runs of one side that lie as far from each other are no reason for an alarm.
        let within = |runs: &[Rc<Dist>], values: &[f64], all: &Dist, value: f64| {
            let far = runs.iter().zip(values).map(|(run, own)| apart(run, all, value / own));
            if runs.len() < 2 { 0.0 } else { far.map(|(up, down)| up.max(down)).fold(0.0, f64::max) }
        };
        let own = within(runs_a, &typical.runs.0, all_a, of_a).max(within(runs_b, &typical.runs.1, all_b, of_b));
        let is_large = distance >= LEAST_DISPLACED && distance > own;
        let p = if is_large {
            (2.0 * dist::kolmogorov(distance, all_a.effective(), all_b.effective())).min(1.0)
        } else {
            1.0
        };
        let p = if p < ALPHA { p } else { 1.0 };
        self.last().shape = Some(Shape {
            displaced: if up >= down { up } else { -down },
            p,
            superiority: dist::superiority(all_a, all_b),
            is_alarm: false,
        });
        self.test(None, p);
    }

    fn losses(&mut self, key: &Key, a: &Raw, b: &Raw) {
        let sum = |side: &Raw| side.runs.values().flat_map(|run| &run.values).sum::<f64>().max(0.0);
        let exposure = |side: &Raw| side.runs.values().map(|run| run.exposure).sum::<f64>().max(1.0);
        let (a_lost, b_lost) = (sum(a), sum(b));
        let ratio = exposure(b) / exposure(a);
        // Losses come in bursts: they count as a tenth. Anscombe's root makes their difference normal.
        let root = |count: f64| (count / CORRELATION + 0.375).sqrt();
        let z = 2.0 * (root(b_lost) - root(a_lost) * ratio.sqrt()) / (1.0 + ratio).sqrt();
        let p = 2.0 * (1.0 - normal(z.abs()));
        // Wrong data is no matter of chance.
        let p = if key.figure == "wrong" && a_lost == 0.0 && b_lost > 0.0 { 0.0 } else { p };
        let is_same = a_lost == b_lost && (ratio - 1.0).abs() < 1e-9 || a_lost + b_lost == 0.0;
        let shift = Shift {
            name: "value".to_owned(),
            a: a_lost,
            b: b_lost,
            change: (a_lost > 0.0).then(|| b_lost / a_lost - 1.0),
            low: None,
            high: None,
            margin: 0.0,
            verdict: if is_same { Verdict::Same } else { Verdict::Unclear },
            p: if p < ALPHA { p } else { 1.0 },
            need: None,
            is_of_cells: false,
        };
        let p = shift.p;
        self.counted(a, b);
        self.check_limits(key, &shift, |limit| f64::from(u8::from(limit.is_passed(a_lost, b_lost) != Some(true))));
        self.last().shifts.push(shift);
        self.test(Some(0), p);
    }

    fn counted(&mut self, a: &Raw, b: &Raw) {
        let values = |side: &Raw| side.runs.values().map(|run| run.values.len() as u64).sum();
        self.last().counts = (values(a), values(b));
    }

    fn values(&mut self, key: &Key, a: &Raw, b: &Raw) {
        self.counted(a, b);
        let runs = |side: &Raw| side.runs.values().map(|run| mean(&run.values)).collect::<Vec<f64>>();
        let (runs_a, runs_b) = (runs(a), runs(b));
        // The runs state how far their ratios may lie apart, so the assumed spread of runs does not apply.
        let allowed = a.runs.values().chain(b.runs.values()).map(|run| run.error).fold(0.0, f64::max);
        let allowed = (cells::is_ratio(key) && allowed > 0.0).then_some(allowed);
        if runs_a.iter().chain(&runs_b).any(|value| *value <= 0.0) {
            return self.around_zero(key, a, b, allowed);
        }
        let single = |run: &Run| {
            let value = mean(&run.values);
            if allowed.is_some() {
                return Single::Mean { value, error: 0.0, freedom: f64::INFINITY };
            }
            match batch_means(&run.values) {
                Some((error, freedom)) => Single::Mean { value, error: error / value, freedom },
                None => Single::Mean { value, error: run.error, freedom: f64::INFINITY },
            }
        };
        let singles = |side: &Raw| side.runs.values().map(single).collect::<Vec<_>>();
        let (mut left, mut right) = (singles(a), singles(b));
        // A figure that stands alone says nothing about its own spread.
        let alone = |run: &Single| matches!(run, Single::Mean { error, .. } if *error == 0.0);
        let assumed = self.options.spread;
        let spread = |run: &Single| allowed.unwrap_or(assumed * if alone(run) { 2.0 } else { 1.0 });
        let estimate = if left.len() + right.len() > 2 {
            Estimate::of_runs(&left, &right, allowed.unwrap_or(assumed))
        } else {
            left.pop().zip(right.pop()).map(|(a, b)| {
                let spread = (spread(&a), spread(&b));
                Estimate::Singles { a, b, spread }
            })
        };
        let counts = self.last().counts;
        if let Some(estimate) = estimate {
            let counts = (counts.0.min(counts.1), runs_a.len().max(runs_b.len()));
            self.shift(key, "value".to_owned(), &estimate, 0.0, counts, true);
        }
    }

    /// Values that have no logarithm: their difference, by the t test of Welch.
    fn around_zero(&mut self, key: &Key, a: &Raw, b: &Raw, allowed: Option<f64>) {
        let values = |side: &Raw| {
            let runs: Vec<f64> = side.runs.values().map(|run| mean(&run.values)).collect();
            if runs.len() > 1 { runs } else { side.runs.values().flat_map(|run| run.values.clone()).collect() }
        };
        let (left, right) = (values(a), values(b));
        let (mean_a, mean_b) = (mean(&left), mean(&right));
        let is_equal = left.iter().chain(&right).all(|value| *value == mean_a);
        // A ratio of 0 is a dead counter; the possible error of a ratio of 1 is known.
        let known = |values: &[f64]| batch_means(values).or(allowed.map(|error| (error, f64::INFINITY)));
        let errors = known(&left).zip(known(&right));
        let p = errors.map_or(1.0, |((a_error, a_freedom), (b_error, b_freedom))| {
            let error = a_error.hypot(b_error);
            let t = (mean_b - mean_a).abs() / error;
            // The level at which the interval no longer holds 0.
            let freedom = a_freedom.min(b_freedom);
            let is_out = |alpha: f64| t > quantile(alpha, freedom);
            if error > 0.0 && is_out(ALPHA) {
                (1..=12).map(|n| 10f64.powi(-n) / 2.0).take_while(|alpha| is_out(*alpha)).last().unwrap_or(ALPHA)
            } else {
                1.0
            }
        });
        let shift = Shift {
            name: "value".to_owned(),
            a: mean_a,
            b: mean_b,
            change: (mean_a > 0.0).then(|| mean_b / mean_a - 1.0),
            low: None,
            high: None,
            margin: 0.0,
            verdict: if is_equal { Verdict::Same } else { Verdict::Unclear },
            p,
            need: None,
            is_of_cells: false,
        };
        self.check_limits(key, &shift, |limit| f64::from(u8::from(limit.is_passed(mean_a, mean_b) != Some(true))));
        self.last().shifts.push(shift);
        self.test(Some(0), p);
    }

    /// Checks a statistic against the limits that name it.
    fn check_limits(&mut self, key: &Key, shift: &Shift, probability: impl Fn(&Limit) -> f64) {
        let (cell, place) = (self.cells.len() - 1, self.cells[self.cells.len() - 1].shifts.len());
        let unit = if key.is_histogram { "ns" } else { self.cells[cell].unit.as_str() };
        for (at, limit) in self.options.limits.iter().enumerate() {
            let is_absolute = matches!(limit.value, Value::Absolute(_));
            let is_sum = is_absolute && LOSSES.contains(&key.figure.as_str());
            if !limit.is_of(key, &shift.name)
                || !limit.fits(unit)
                || (is_sum && self.is_summed)
                || (self.is_alone && !is_absolute)
            {
                continue;
            }
            match limit.is_passed(shift.a, shift.b) {
                None => self.rulings[at].undecided += 1,
                Some(is_passed) => {
                    self.rulings[at].checked += 1;
                    if is_passed {
                        self.exceeding[at].push((cell, place, probability(limit)));
                    }
                }
            }
        }
    }

    fn undecided(&mut self, key: &Key, name: &str) {
        for (at, limit) in self.options.limits.iter().enumerate() {
            let is_wanted = !self.is_alone || matches!(limit.value, Value::Absolute(_));
            if limit.is_of(key, name) && is_wanted {
                self.rulings[at].undecided += 1;
            }
        }
    }

    /// Verdicts, once the sizes of the families are known.
    fn decide(&mut self) {
        let used: f64 = SHARES.iter().zip(self.sizes).filter(|(_, size)| *size > 0).map(|(share, _)| share).sum();
        for ((tests, size), share) in self.tests.iter().zip(self.sizes).zip(SHARES) {
            let alpha = ALPHA * share / used;
            let found: Vec<f64> = tests.iter().map(|test| test.p).collect();
            for (test, is_alarm) in tests.iter().zip(holm(&found, size, alpha)) {
                let cell = &mut self.cells[test.cell];
                match (test.shift, is_alarm) {
                    (Some(place), true) => {
                        let better = cells::better(&cell.key);
                        let shift = &mut cell.shifts[place];
                        shift.verdict = direction(better, shift.b > shift.a);
                        shift.need = None;
                    }
                    (None, true) => cell.shape.iter_mut().for_each(|shape| shape.is_alarm = true),
                    (_, false) => {}
                }
            }
        }
        for cell in &mut self.cells {
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
        for (ruling, exceeding) in self.rulings.iter_mut().zip(&self.exceeding) {
            let is_proven = |p: f64| self.options.is_strict || p <= ALPHA / ruling.checked as f64;
            ruling.alone.iter_mut().for_each(|alone| alone.is_proven = is_proven(alone.p));
            for &(cell, place, p) in exceeding {
                let is_proven = self.options.is_strict || p <= ALPHA / ruling.checked as f64;
                let list = if is_proven { &mut ruling.passed } else { &mut ruling.unproven };
                list.push((cell, place));
            }
        }
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

/// One distribution per run.
fn dists(side: &Raw) -> Vec<Rc<Dist>> {
    side.runs.values().filter_map(|run| Dist::of(&sum(&run.histograms))).map(Rc::new).collect()
}

fn sum(histograms: &[&Histogram]) -> Histogram {
    match histograms {
        [one] => (*one).clone(),
        many => many.iter().fold(Histogram::default(), |mut all, one| {
            all.merge(one);
            all
        }),
    }
}

/// All runs of a side as one distribution.
fn merged(runs: &[Rc<Dist>], side: &Raw) -> Option<Rc<Dist>> {
    if let [one] = runs {
        return Some(Rc::clone(one));
    }
    let all: Vec<&Histogram> = side.runs.values().flat_map(|run| run.histograms.iter().copied()).collect();
    Dist::of(&sum(&all)).map(Rc::new)
}

/// A quantile of each run of A and of B, taken of each cell by itself; `None` of less than two cells, and where a run lacks a
/// cell or a cell samples.
fn by_cell(parts: &[(&Raw, &Raw)], share: f64) -> Option<(Vec<Single>, Vec<Single>)> {
    if parts.len() < 2 {
        return None;
    }
    let side = |cells: Vec<&Raw>| -> Option<Vec<Single>> {
        let names = || cells[0].runs.keys();
        if cells.iter().any(|cell| !cell.runs.keys().eq(names())) {
            return None;
        }
        let quantile = |histograms: &[&Histogram]| {
            Dist::of(&sum(histograms)).map(|dist| Single::Quantile { dist: Rc::new(dist), share })
        };
        names()
            .map(|name| Single::of_cells(cells.iter().filter_map(|cell| quantile(&cell.runs[name].histograms))))
            .collect()
    };
    let (a, b) = parts.iter().copied().unzip::<_, _, Vec<_>, Vec<_>>();
    Some((side(a)?, side(b)?))
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
