//! Sorts the records of a side into cells. A cell is what was measured, on which target, from which CPU, for each run.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::{Histogram, Record};

use super::dist::{CORRELATION, Dist};
use super::interval::weighted_mean;
use super::key::{self, CellKey, Name, RATIO};
use super::values::{self, Value};
use crate::model;

/// The samples of a record.
#[derive(Debug, Clone, Copy)]
pub struct Samples<'r> {
    /// What they are.
    pub histogram: &'r Histogram,
    /// The design effect that the record states, and its degrees of freedom.
    pub stated: Option<(f64, f64)>,
    /// How many of them count as one.
    pub effect: f64,
}

/// All of these samples as one distribution; `None` of none.
pub fn dist<'r: 's, 's>(samples: impl IntoIterator<Item = &'s Samples<'r>>) -> Option<Dist> {
    let (mut all, mut effective) = (Histogram::default(), 0.0);
    for one in samples {
        all.merge(one.histogram);
        effective += one.histogram.count() as f64 / one.effect;
    }
    Dist::of(&all, effective)
}

/// The values of a figure in the order of time.
#[derive(Debug, Default, Clone)]
pub struct Values {
    /// Each with its weight; of a long series the means of several. The weight of an interval of a counter is its length in
    /// seconds, that of anything else 1.
    pub list: Vec<(f64, f64)>,
    /// Their sum.
    pub sum: f64,
    /// How many.
    pub count: u64,
}

impl Values {
    /// Adds a value that stands for `count` values; `weight` is that of all of them together.
    fn push(&mut self, value: f64, count: usize, weight: f64) {
        self.list.push((value, weight));
        self.sum += value * count as f64;
        self.count += count as u64;
    }

    /// Adds others behind.
    pub fn extend(&mut self, other: &Values) {
        self.list.extend(&other.list);
        self.sum += other.sum;
        self.count += other.count;
    }

    /// Their mean by weight; 0 of none.
    pub fn mean(&self) -> f64 {
        weighted_mean(&self.list).0
    }
}

/// What one run says of a cell.
#[derive(Debug, Default)]
pub struct Run<'r> {
    /// The records' `run`.
    pub name: &'r str,
    /// Its histograms, to be added up.
    pub samples: Vec<Samples<'r>>,
    /// Its values.
    pub values: Values,
    /// The total that counts of losses refer to: interrupts triggered, or samples. Of what was counted over a time the
    /// seconds.
    pub exposure: f64,
    /// Relative standard error of the run's figure by what its rounds, repeats or passes say, of [`RATIO`] by what its run
    /// allowed; 0 where they say nothing.
    pub error: f64,
}

/// What may not differ: whether the device is emulated, the values made up, and how many accesses a sample holds.
type Comparable = (bool, bool, u32);

/// A cell of one side.
#[derive(Debug, Default)]
pub struct SideCell<'r> {
    /// The runs, ascending by name. There are few in a cell, and many cells.
    pub runs: Vec<Run<'r>>,
    /// The unit of the values.
    pub unit: &'r str,
    /// Ways of measuring that make figures incomparable where they differ.
    pub ways: BTreeSet<Comparable>,
    /// The clock's step as it is in a sample, in nanoseconds; 0 where not known.
    pub quantum_ns: f64,
}

impl<'r> SideCell<'r> {
    /// The run of this name, a new one where there is none.
    fn run(&mut self, name: &'r str) -> &mut Run<'r> {
        let at = self.runs.partition_point(|run| run.name < name);
        if self.runs.get(at).is_none_or(|run| run.name != name) {
            self.runs.reserve_exact(1);
            self.runs.insert(at, Run { name, ..Run::default() });
        }
        &mut self.runs[at]
    }

    /// The run of a record.
    fn run_of(&mut self, record: &'r Record, unit: &'r str) -> &mut Run<'r> {
        if self.unit.is_empty() {
            self.unit = unit;
        }
        let method = record.method.as_ref();
        let batch = method.map_or(1, |method| method.batch.max(1));
        self.ways.insert((model::is_emulated(record), method.is_some_and(|m| m.backend == "fake"), batch));
        let step = method.map_or(0.0, |method| method.quantum_ns / f64::from(batch));
        if step.is_finite() {
            self.quantum_ns = self.quantum_ns.max(step);
        }
        self.run(&record.run)
    }

    /// Several cells of a side as one.
    pub fn together<'p>(cells: impl IntoIterator<Item = &'p SideCell<'r>>) -> Self
    where
        'r: 'p,
    {
        let mut all = SideCell::default();
        for cell in cells {
            all.unit = cell.unit;
            all.ways.extend(&cell.ways);
            all.quantum_ns = all.quantum_ns.max(cell.quantum_ns);
            for run in &cell.runs {
                let into = all.run(run.name);
                into.samples.extend(&run.samples);
                into.values.extend(&run.values);
                into.exposure += run.exposure;
                into.error = into.error.max(run.error);
            }
        }
        all
    }

    /// The mean of each run's values.
    pub fn means(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.values.mean()).collect()
    }

    /// The mean of these; `None` without a run.
    pub fn mean(&self) -> Option<f64> {
        (!self.runs.is_empty()).then(|| self.means().iter().sum::<f64>() / self.runs.len() as f64)
    }

    /// Adds a loss of 0 for each run of `measured` that this cell of losses does not have.
    fn fill(&mut self, measured: &SideCell<'r>) {
        if self.runs.is_empty() {
            (self.unit, self.quantum_ns) = ("1", measured.quantum_ns);
            self.ways.clone_from(&measured.ways);
        }
        for run in &measured.runs {
            let own = self.run(run.name);
            if own.values.count == 0 {
                let samples = run.samples.iter().map(|samples| samples.histogram.count()).sum::<u64>() as f64;
                own.exposure = if run.exposure > 0.0 { run.exposure } else { samples.max(1.0) };
                own.values.push(0.0, 1, 1.0);
            }
        }
    }
}

/// The cells of a figure on one side.
pub type Cells<'r> = BTreeMap<CellKey, SideCell<'r>>;

/// Records by target and CPU: the keys have no figure.
type Targets<'r> = BTreeMap<CellKey, Vec<&'r Record>>;

/// A figure: whether it is a histogram, and its name.
pub type FigureName<'r> = (bool, &'r str);

/// One side. A machine of many CPUs and vectors has hundreds of thousands of cells, so a side has only its records, and the
/// cells of one figure at a time are made of them.
#[derive(Debug, Default)]
pub struct Side<'r> {
    targets: Targets<'r>,
    /// The figures that are compared; metrics before histograms.
    pub figures: BTreeSet<FigureName<'r>>,
    /// Figures that were no numbers, or losses below 0, and were left out.
    pub not_numbers: u64,
    /// Histograms of which nothing says how many samples count.
    pub unordered: u64,
    /// The losses among these: it is not known whether there were any.
    pub unknown_losses: BTreeSet<CellKey>,
    /// Its runs.
    pub runs: BTreeSet<&'r str>,
    /// Functions by the name that keys have: vendor and device.
    pub devices: BTreeMap<Name, (u16, u16)>,
    /// Device and test of what was not measured, or not to the end; the device is empty if it is not known.
    errors: BTreeSet<(Name, Name)>,
}

impl<'r> Side<'r> {
    /// Sorts records into a side. With `by_kind` functions are named by vendor and device, not by address.
    pub fn of(records: &[&'r Record], by_kind: bool) -> Self {
        let mut side = Side::default();
        for &record in records {
            let key = CellKey::of(record, by_kind);
            side.runs.insert(&record.run);
            if let Some(function) = &record.device {
                side.devices.entry(key.device.clone()).or_insert((function.vendor, function.device));
            }
            if record.error.is_some() {
                side.errors.insert((key.device.clone(), key.test.clone()));
            }
            if record.test != "environment" {
                side.add(&key, record);
                side.targets.entry(key).or_default().push(record);
            }
        }
        side
    }

    /// Notes the figures of a record, and which of their values are no numbers.
    fn add(&mut self, key: &CellKey, record: &'r Record) {
        let is_unordered = values::stated_effect(record).is_none();
        for (name, _) in values::histograms(record) {
            self.figures.insert((true, name));
            self.unordered += u64::from(is_unordered);
        }
        if let Some(ratio) = Value::of_ratio(record) {
            self.figures.insert((false, RATIO));
            self.not_numbers += u64::from(!ratio.value.is_finite());
        }
        for (name, _, total) in record.totals().filter(|total| key::is_compared(record, total.0)) {
            self.figures.insert((false, name));
            let is_below = key::is_loss(name) && total.range.0 < 0.0;
            let values = if is_below { Value::all_of(record, name) } else { Vec::new() };
            let below = values.iter().filter(|value| value.value < 0.0).map(|value| value.count).sum::<usize>();
            self.not_numbers += (total.not_finite + below) as u64;
            if is_below || (key::is_loss(name) && total.not_finite > 0) {
                self.unknown_losses.insert(key.with(name, false));
            }
        }
    }

    /// The cells of a figure.
    pub fn cells(&self, figure: FigureName<'r>) -> Cells<'r> {
        cells_of(&self.targets, figure)
    }

    /// Puts a 0 into the cells `keys` of losses where this side measured the same without counting any: programs write a
    /// count of losses only where there is one.
    pub fn fill_losses(&self, cells: &mut Cells<'r>, keys: &BTreeSet<CellKey>) {
        for key in keys {
            // Nothing is missing where all runs of the side counted.
            if cells.get(key).is_some_and(|cell| cell.runs.len() == self.runs.len()) {
                continue;
            }
            let Some(records) = self.targets.get(&key.with("", false)) else { continue };
            // Metrics come first: they know the total that losses refer to, and histograms have only the samples.
            for figure in self.figures.iter().filter(|figure| **figure != (false, &*key.figure)) {
                let measured = cell(records, *figure);
                if !measured.runs.is_empty() {
                    cells.entry(key.clone()).or_default().fill(&measured);
                }
            }
        }
    }

    /// Whether records say that something went wrong with the test and device of a cell.
    pub fn has_error(&self, key: &CellKey) -> bool {
        let has = |device: Name| self.errors.contains(&(device, key.test.clone()));
        has(key.device.clone()) || has("".into())
    }
}

/// The cells of the histogram `name`.
pub fn of_histogram<'r>(records: &[&'r Record], name: &'r str) -> Cells<'r> {
    let mut targets = Targets::new();
    for &record in records.iter().filter(|record| record.histograms.contains_key(name)) {
        targets.entry(CellKey::of(record, false)).or_default().push(record);
    }
    cells_of(&targets, (true, name))
}

fn cells_of<'r>(targets: &Targets<'r>, figure: FigureName<'r>) -> Cells<'r> {
    let name: Name = figure.1.into();
    let of = |key: &CellKey| CellKey { figure: name.clone(), is_histogram: figure.0, ..key.clone() };
    let all = targets.iter().map(|(key, records)| (key, cell(records, figure)));
    let all = all.filter(|(_, cell)| !cell.runs.is_empty());
    let mut cells = all.map(|(key, cell)| (of(key), cell)).collect();
    values::set_effects(&mut cells);
    cells
}

/// The cell of a figure that these records of one target and CPU have. It has no run if they have no such figure.
fn cell<'r>(records: &[&'r Record], (is_histogram, name): FigureName<'r>) -> SideCell<'r> {
    let mut cell = SideCell::default();
    if is_histogram {
        for &record in records {
            let Some((_, histogram)) = values::histograms(record).find(|one| one.0 == name) else { continue };
            let stated = values::stated_effect(record);
            // The effect has what the rounds say.
            let error = if stated.is_some() { 0.0 } else { values::error_of_rounds(record).unwrap_or(0.0) };
            let run = cell.run_of(record, "ns");
            run.samples.push(Samples { histogram, stated, effect: CORRELATION });
            run.error = run.error.max(error);
        }
        return cell;
    }
    let values = records.iter().flat_map(|&record| Value::all_of(record, name).into_iter().map(move |v| (record, v)));
    let is_known = |value: &Value| value.value.is_finite() && !(key::is_loss(name) && value.value < 0.0);
    let mut values: Vec<(&Record, Value)> = values.filter(|(_, value)| is_known(value)).collect();
    // A counter whose device changed has several recordings.
    values.sort_by_key(|(_, value)| value.end_ns);
    for (record, value) in values {
        let run = cell.run_of(record, value.unit);
        run.values.push(value.value, value.count, value.weight);
        run.exposure += value.exposure;
        run.error = run.error.max(value.error);
    }
    cell
}
