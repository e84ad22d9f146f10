//! Sorts the records of a side into cells. A cell is what was measured, on which target, from which CPU, for each run.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::{Histogram, Record};

use super::dist::{CORRELATION, Dist};
use super::interval::weighted_mean;
use super::key::{self, CellKey, RATIO};
use super::values::{self, Value};
use crate::model::{self, Kind};

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
    /// The runs, by the records' `run`.
    pub runs: BTreeMap<&'r str, Run<'r>>,
    /// The unit of the values.
    pub unit: &'r str,
    /// Ways of measuring that make figures incomparable where they differ.
    pub ways: BTreeSet<Comparable>,
    /// The clock's step as it is in a sample, in nanoseconds; 0 where not known.
    pub quantum_ns: f64,
}

impl<'r> SideCell<'r> {
    /// The run of a record.
    fn run(&mut self, record: &'r Record, unit: &'r str) -> &mut Run<'r> {
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
        self.runs.entry(&record.run).or_default()
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
            for (name, run) in &cell.runs {
                let into = all.runs.entry(name).or_default();
                into.samples.extend(&run.samples);
                into.values.extend(&run.values);
                into.exposure += run.exposure;
                into.error = into.error.max(run.error);
            }
        }
        all
    }

    /// Adds a loss of 0 for each run of `measured` that this cell of losses does not have.
    fn fill(&mut self, measured: &SideCell<'r>) {
        if self.runs.is_empty() {
            (self.unit, self.quantum_ns) = ("1", measured.quantum_ns);
            self.ways.clone_from(&measured.ways);
        }
        for (name, run) in &measured.runs {
            self.runs.entry(name).or_insert_with(|| {
                let samples = run.samples.iter().map(|samples| samples.histogram.count()).sum::<u64>() as f64;
                let exposure = if run.exposure > 0.0 { run.exposure } else { samples.max(1.0) };
                let mut run = Run { exposure, ..Run::default() };
                run.values.push(0.0, 1, 1.0);
                run
            });
        }
    }
}

/// The cells of a side.
pub type Cells<'r> = BTreeMap<CellKey, SideCell<'r>>;

/// The cells of a target and CPU by their figure: whether it is a histogram, and its name.
type ByFigure<'r> = BTreeMap<(bool, &'r str), SideCell<'r>>;

/// One side.
#[derive(Debug, Default)]
pub struct Side<'r> {
    /// By target and CPU: the keys have no figure.
    measured: BTreeMap<CellKey, ByFigure<'r>>,
    /// Figures that were no numbers, or losses below 0, and were left out.
    pub not_numbers: u64,
    /// Histograms of which nothing says how many samples count.
    pub unordered: u64,
    /// The losses among these: it is not known whether there were any.
    pub unknown_losses: BTreeSet<CellKey>,
    /// Its runs.
    pub runs: BTreeSet<&'r str>,
    /// Functions by the name that keys have: vendor and device.
    pub devices: BTreeMap<String, (u16, u16)>,
    /// Device and test of what was not measured, or not to the end; the device is empty if it is not known.
    errors: BTreeSet<(String, String)>,
}

impl<'r> Side<'r> {
    /// Sorts records into a side. With `by_kind` functions are named by vendor and device, not by address.
    pub fn of(records: &[&'r Record], by_kind: bool) -> Self {
        let mut side = Side::default();
        let mut by_target: BTreeMap<CellKey, Vec<&'r Record>> = BTreeMap::new();
        for &record in records {
            let key = CellKey::of(record, by_kind);
            side.runs.insert(&record.run);
            if let Some(function) = &record.device {
                side.devices.entry(key.device.clone()).or_insert((function.vendor, function.device));
            }
            if record.error.is_some() {
                side.errors.insert((key.device.clone(), record.test.clone()));
            }
            if record.test != "environment" {
                by_target.entry(key).or_default().push(record);
            }
        }
        for (key, records) in by_target {
            let cells = side.by_figure(&key, &records);
            side.measured.insert(key, cells);
        }
        side
    }

    /// The cells of records that measured the same target from the same CPU.
    fn by_figure(&mut self, key: &CellKey, records: &[&'r Record]) -> ByFigure<'r> {
        let mut cells = ByFigure::new();
        let mut values: BTreeMap<&'r str, Vec<(&'r Record, Value<'r>)>> = BTreeMap::new();
        for &record in records {
            let stated = values::stated_effect(record);
            // The effect has what the rounds say.
            let error = if stated.is_some() { 0.0 } else { values::error_of_rounds(record).unwrap_or(0.0) };
            for (name, histogram) in values::histograms(record) {
                self.unordered += u64::from(stated.is_none());
                let run = cells.entry((true, name)).or_default().run(record, "ns");
                run.samples.push(Samples { histogram, stated, effect: CORRELATION });
                run.error = run.error.max(error);
            }
            if model::kind(&record.test) == Kind::Verify {
                let ratio = Value::of_ratio(record);
                self.not_numbers += u64::from(ratio.as_ref().is_some_and(|ratio| !ratio.value.is_finite()));
                values.entry(RATIO).or_default().extend(ratio.map(|ratio| (record, ratio)));
                continue;
            }
            for (name, unit, total) in record.totals().filter(|total| key::is_compared(record, total.0)) {
                let all = Value::all_of(record, name, unit);
                let is_loss = key::is_loss(name);
                let below = all.iter().filter(|value| is_loss && value.value < 0.0).map(|value| value.count);
                self.not_numbers += (total.not_finite + below.sum::<usize>()) as u64;
                if is_loss && (total.not_finite > 0 || total.range.0 < 0.0) {
                    self.unknown_losses.insert(key.with(name, false));
                }
                values.entry(name).or_default().extend(all.into_iter().map(|value| (record, value)));
            }
        }
        for (name, mut values) in values {
            // A counter whose device changed has several recordings.
            values.sort_by_key(|(_, value)| value.end_ns);
            let is_known = |value: &Value| value.value.is_finite() && !(key::is_loss(name) && value.value < 0.0);
            for (record, value) in values.into_iter().filter(|(_, value)| is_known(value)) {
                let run = cells.entry((false, name)).or_default().run(record, value.unit);
                run.values.push(value.value, value.count, value.weight);
                run.exposure += value.exposure;
                run.error = run.error.max(value.error);
            }
        }
        cells
    }

    /// Puts a 0 where this side measured without a loss that `other` counted: programs write a count of losses only where
    /// there is one.
    pub fn fill_losses(&mut self, other: &Side<'r>) {
        for (key, cells) in &mut self.measured {
            let theirs = other.measured.get(key).into_iter().flat_map(BTreeMap::keys);
            let losses = cells.keys().chain(theirs).filter(|(is_histogram, name)| !is_histogram && key::is_loss(name));
            for loss in losses.copied().collect::<BTreeSet<_>>() {
                let mut cell = cells.remove(&loss).unwrap_or_default();
                // Metrics come first: they know the total that losses refer to, and histograms have only the samples.
                cells.values().for_each(|measured| cell.fill(measured));
                if !cell.runs.is_empty() {
                    cells.insert(loss, cell);
                }
            }
        }
    }

    /// Takes the cells out of the side.
    pub fn take_cells(&mut self) -> Cells<'r> {
        let measured = std::mem::take(&mut self.measured).into_iter();
        let mut cells: Cells = measured
            .flat_map(|(key, cells)| {
                cells.into_iter().map(move |((is_histogram, name), cell)| (key.with(name, is_histogram), cell))
            })
            .collect();
        values::set_effects(&mut cells);
        cells
    }

    /// The figures that it has cells of: whether it is a histogram, and its name.
    pub fn figures(&self) -> BTreeSet<(bool, &'r str)> {
        self.measured.values().flat_map(BTreeMap::keys).copied().collect()
    }

    /// Whether records say that something went wrong with the test and device of a cell.
    pub fn has_error(&self, key: &CellKey) -> bool {
        ["", &key.device].iter().any(|device| self.errors.contains(&((*device).to_owned(), key.test.clone())))
    }
}
