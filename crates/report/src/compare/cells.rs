//! Sorts records into cells. A cell is what was measured, on which target, from which CPU, for each run of a side.
//!
//! A machine of many CPUs and vectors has hundreds of thousands of cells. A [`Side`] keeps only its records in order; the
//! cells of one [`Block`] at a time are made of them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::ops::Deref;
use std::rc::Rc;

use pciescope_core::comparison::Comparison;
use pciescope_core::recording::Point;
use pciescope_core::{Histogram, Record, Target, comparison, convert, loss, outcome, readout};
use serde::{Serialize, Serializer};

use super::ALPHA;
use super::dist::CORRELATION;
use super::interval::quantile;
use crate::model::{self, Kind};
use crate::table::counters::is_amount;
use crate::text::clean;

/// A text that many keys share.
#[derive(Clone, PartialEq, Eq)]
pub struct Text(Rc<str>);

impl Text {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text(Rc::from(text))
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl Default for Text {
    fn default() -> Self {
        Text(Rc::from(""))
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        // Mostly it is the same one, or both are empty.
        let is_same = Rc::ptr_eq(&self.0, &other.0) || self.0.is_empty() && other.0.is_empty();
        if is_same { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is compared with what: cells of A and B with the same key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The function's address, or its name where it has none; empty where the records name none.
    pub device: Text,
    /// The record's test.
    pub test: Text,
    /// Name of the histogram or metric.
    pub figure: Text,
    /// Whether `figure` is a histogram.
    pub is_histogram: bool,
    /// BAR, offset, width, hop, vector, and the interrupt's number where there is no vector.
    pub place: Place,
    /// Anything else that tells targets apart: a PMU, a stream, a kernel.
    pub rest: Text,
    /// The CPU; `None` if the figure belongs to no CPU, or to all CPUs together.
    pub cpu: Option<u32>,
}

/// BAR, offset, width, hop, vector, interrupt.
pub type Place = (Option<u8>, Option<u64>, Option<u8>, Option<u16>, Option<u16>, Option<u32>);

impl Key {
    /// The key of all CPUs, and all vectors, together.
    pub fn merged(&self) -> Key {
        let place = (self.place.0, self.place.1, self.place.2, self.place.3, None, None);
        Key { place, cpu: None, ..self.clone() }
    }

    /// The target in few characters: `b0+0x10/4`, `h1`, `v3`, `dwc_rootport_10`; `-` where there is none.
    pub fn target(&self) -> String {
        let (bar, offset, width, hop, vector, irq) = self.place;
        let target = Target { bar, offset, width, hop, vector, irq, ..Target::default() };
        let mut text = crate::text::target_key(&target, true);
        if !self.rest.is_empty() {
            let _ = write!(text, "{}{}", if text.is_empty() { "" } else { " " }, clean(&self.rest));
        }
        if text.is_empty() { "-".to_owned() } else { text }
    }

    /// Device, test, target and figure in one line.
    pub fn title(&self) -> String {
        let parts = [clean(&self.device), clean(&self.test), self.target(), clean(&self.figure)];
        parts.into_iter().filter(|part| !part.is_empty() && part != "-").collect::<Vec<_>>().join(" ")
    }
}

/// The samples of a record.
#[derive(Debug, Clone, Copy)]
pub struct Samples<'r> {
    /// What they are.
    pub histogram: &'r Histogram,
    /// The design effect that the record states, and its degrees of freedom.
    stated: Option<(f64, f64)>,
    /// How many of them count as one.
    effect: f64,
}

impl Samples<'_> {
    /// How many of them count.
    pub fn effective(&self) -> f64 {
        self.histogram.count() as f64 / self.effect
    }
}

/// The values of a figure in the order of the file.
#[derive(Debug, Default, Clone)]
pub struct Values {
    /// Each with its weight; of a long series the means of several. The weight of an interval of a counter is its length in
    /// seconds, that of anything else 1.
    pub list: Vec<(f64, f64)>,
    sum: f64,
    count: u64,
    mean: f64,
    weight: f64,
}

impl Values {
    /// Adds a value that stands for `count` values; `weight` is that of all of them together.
    fn push(&mut self, value: f64, count: usize, weight: f64) {
        // Mostly it stays the only one.
        if self.list.is_empty() {
            self.list.reserve_exact(1);
        }
        self.list.push((value, weight));
        self.sum += value * count as f64;
        self.count += count as u64;
        self.join(value, weight);
    }

    /// Moves the mean. The mean of equal values is exactly that value.
    fn join(&mut self, value: f64, weight: f64) {
        self.weight += weight;
        if self.weight > 0.0 {
            self.mean += (value - self.mean) * (weight / self.weight);
        }
    }

    /// Adds others behind.
    pub fn extend(&mut self, other: &Values) {
        self.list.extend(&other.list);
        self.sum += other.sum;
        self.count += other.count;
        self.join(other.mean, other.weight);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }
    /// Their mean by weight; 0 of none.
    pub fn mean(&self) -> f64 {
        self.mean
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

/// Runs by name, ascending. A cell has few, and there are many cells: a map would be ten times as large.
#[derive(Debug, Default)]
pub struct Runs<'r>(Vec<(&'r str, Run<'r>)>);

impl<'r> Runs<'r> {
    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|known| known.0.cmp(name))
    }
    /// The run of this name.
    pub fn get(&self, name: &str) -> Option<&Run<'r>> {
        self.place(name).ok().map(|place| &self.0[place].1)
    }
    /// The same, new where it is not there.
    pub fn get_or_insert(&mut self, name: &'r str, new: impl FnOnce() -> Run<'r>) -> &mut Run<'r> {
        let place = self.place(name).unwrap_or_else(|place| {
            if self.0.len() == self.0.capacity() {
                self.0.reserve_exact(1 + self.0.len() / 4);
            }
            self.0.insert(place, (name, new()));
            place
        });
        &mut self.0[place].1
    }
    /// All of them with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'r str, &Run<'r>)> {
        self.0.iter().map(|(name, run)| (*name, run))
    }
    fn iter_mut(&mut self) -> impl Iterator<Item = (&'r str, &mut Run<'r>)> {
        self.0.iter_mut().map(|(name, run)| (*name, run))
    }
    /// Their names.
    pub fn keys(&self) -> impl Iterator<Item = &'r str> {
        self.0.iter().map(|run| run.0)
    }
    /// The runs alone.
    pub fn values(&self) -> impl Iterator<Item = &Run<'r>> {
        self.0.iter().map(|run| &run.1)
    }
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One cell of one side: its runs by name.
#[derive(Debug, Default)]
pub struct Cell<'r> {
    /// The runs, by the records' `run`.
    pub runs: Runs<'r>,
    /// The unit of the values.
    pub unit: &'r str,
    /// Ways of measuring that make figures incomparable where they differ, each once, ascending.
    pub ways: Vec<Way>,
    /// The clock's step as it is in a sample, in nanoseconds; 0 where not known.
    pub quantum_ns: f64,
}

/// What may not differ: whether the device is emulated, the values made up, and how many accesses a sample holds.
pub type Way = (bool, bool, u32);

/// The cells of a figure of one device and test. They follow each other in the order of keys, and all cells of a group are in
/// one block.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    /// As in [`Key`], as are the others.
    pub device: Text,
    /// The record's test.
    pub test: Text,
    /// Name of the histogram or metric.
    pub figure: Text,
    /// Whether `figure` is a histogram.
    pub is_histogram: bool,
}

impl Block {
    fn key(&self, (place, rest, cpu): &Spot) -> Key {
        let Block { device, test, figure, is_histogram } = self.clone();
        Key { device, test, figure, is_histogram, place: *place, rest: rest.clone(), cpu: *cpu }
    }

    /// Whether its figure counts losses.
    pub fn is_loss(&self) -> bool {
        !self.is_histogram && is_loss(&self.figure)
    }
}

/// What distinguishes the cells of a block: the rest of a [`Key`].
type Spot = (Place, Text, Option<u32>);

/// The cells of a block, of one side.
pub type Cells<'r> = BTreeMap<Key, Cell<'r>>;

/// What a side has of a device and a test.
#[derive(Debug, Default)]
struct Measured<'r> {
    /// Name and kind of each figure that has a cell, ascending.
    figures: Vec<(Text, bool)>,
    /// The records in the order of the file.
    spots: BTreeMap<Spot, Vec<&'r Record>>,
}

impl Measured<'_> {
    /// Notes that there are cells of a figure.
    fn has(&mut self, name: &str, is_histogram: bool) {
        let order = |known: &(Text, bool)| (known.0.as_str(), known.1).cmp(&(name, is_histogram));
        if let Err(place) = self.figures.binary_search_by(order) {
            self.figures.insert(place, (Text::from(name), is_histogram));
        }
    }
}

/// One side.
#[derive(Debug, Default)]
pub struct Side<'r> {
    /// By device and test.
    measured: BTreeMap<(Text, Text), Measured<'r>>,
    /// Figures that were no numbers, or losses below 0, and were left out.
    pub not_numbers: u64,
    /// Histograms of which nothing says how many samples count.
    pub unordered: u64,
    /// The losses among these: it is not known whether there were any.
    pub unknown_losses: BTreeSet<Key>,
    /// Its runs, with how many records each has.
    pub runs: BTreeMap<&'r str, usize>,
    /// Functions by the name that keys have.
    pub devices: BTreeMap<String, (u16, u16)>,
    /// Device and test of what was not measured, or not to the end; the device is empty if it is not known.
    errors: BTreeSet<(String, String)>,
    /// The texts of keys.
    texts: BTreeSet<Rc<str>>,
}

impl<'r> Side<'r> {
    /// Whether records say that something went wrong with the test and device of a cell.
    pub fn has_error(&self, key: &Key) -> bool {
        let has = |device: &str| self.errors.contains(&(device.to_owned(), key.test.to_string()));
        has(&key.device) || has("")
    }

    /// The blocks that it has cells of, ascending.
    pub fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        self.measured.iter().flat_map(|((device, test), measured)| {
            measured.figures.iter().map(|(figure, is_histogram)| Block {
                device: device.clone(),
                test: test.clone(),
                figure: figure.clone(),
                is_histogram: *is_histogram,
            })
        })
    }

    /// The cells of a block.
    pub fn cells(&self, block: &Block) -> Cells<'r> {
        let measured = self.measured.get(&(block.device.clone(), block.test.clone()));
        let spots = measured.iter().flat_map(|measured| &measured.spots);
        let mut cells: Cells = spots
            .map(|(spot, records)| (block.key(spot), cell(block, records)))
            .filter(|(_, cell)| !cell.runs.is_empty())
            .collect();
        take_effects(&mut cells);
        cells
    }

    /// Puts a 0 into the cells `keys` of losses where the side measured the same without counting any.
    fn fill_losses(&self, block: &Block, cells: &mut Cells<'r>, keys: &BTreeSet<Key>) {
        let Some(measured) = self.measured.get(&(block.device.clone(), block.test.clone())) else { return };
        for key in keys {
            // Nothing is missing where all runs of the side counted.
            if cells.get(key).is_some_and(|cell| cell.runs.len() == self.runs.len()) {
                continue;
            }
            let Some(records) = measured.spots.get(&(key.place, key.rest.clone(), key.cpu)) else { continue };
            // Metrics know the total that losses refer to; histograms have only the samples.
            let (histograms, metrics): (Vec<_>, Vec<_>) = measured.figures.iter().partition(|figure| figure.1);
            for (name, is_histogram) in metrics.into_iter().chain(histograms) {
                let other = Block { figure: name.clone(), is_histogram: *is_histogram, ..block.clone() };
                let other = if other == *block { Cell::default() } else { cell(&other, records) };
                if !other.runs.is_empty() {
                    fill(cells.entry(key.clone()).or_default(), other);
                }
            }
        }
    }
}

/// The cells of a block, of both sides. Programs write a count of losses only where there is one: where one side counted
/// losses and the other measured the same without counting any, that one has a 0.
pub fn of_both<'r>(block: &Block, left: &Side<'r>, right: &Side<'r>) -> (Cells<'r>, Cells<'r>) {
    let (mut of_left, mut of_right) = (left.cells(block), right.cells(block));
    if block.is_loss() {
        let keys: BTreeSet<Key> = of_left.keys().chain(of_right.keys()).cloned().collect();
        left.fill_losses(block, &mut of_left, &keys);
        right.fill_losses(block, &mut of_right, &keys);
    }
    (of_left, of_right)
}

/// Adds a 0 to a cell of losses for each run of `measured` that has none.
fn fill<'r>(cell: &mut Cell<'r>, measured: Cell<'r>) {
    let exposure = |run: &Run| {
        let samples = run.samples.iter().map(|s| s.histogram.count()).sum::<u64>() as f64;
        if run.exposure > 0.0 { run.exposure } else { samples.max(1.0) }
    };
    if cell.runs.is_empty() {
        cell.unit = "1";
        cell.quantum_ns = measured.quantum_ns;
        cell.ways = measured.ways;
    }
    for (name, run) in measured.runs.iter() {
        cell.runs.get_or_insert(name, || {
            let mut values = Values::default();
            values.push(0.0, 1, 1.0);
            Run { values, exposure: exposure(run), ..Run::default() }
        });
    }
}

/// Whether a figure counts losses: more is worse, and 0 is no reason to show a row.
pub fn is_loss(figure: &str) -> bool {
    loss::find(figure).is_some()
}

/// Figures of readouts and conversions that are compared: larger is better.
const RATES: [&str; 5] = ["speed", "active_speed", "rate", "samples_per_s", "of_ceiling"];
/// The same: smaller is better.
const COSTS: [&str; 13] = [
    "duration",
    "setup",
    "dma",
    "wakeup",
    "copy",
    "convert",
    "acquire",
    "stall",
    "cpu_user",
    "cpu_system",
    "cpu_per_gb",
    "cpu",
    "cpu_top",
];

/// The figure of a counter beside a workload of known traffic: what it counted over what the workload moved.
pub const RATIO: &str = "ratio";

/// Whether a cell's figure is [`RATIO`].
pub fn is_ratio(key: &Key) -> bool {
    &*key.test == comparison::TEST && key.figure == RATIO
}

/// Which direction of a figure is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Durations and costs.
    Lower,
    /// Rates.
    Higher,
    /// Counts of losses.
    Fewer,
    /// A counter's share of what it should have counted: the nearer to 1.
    Nearer,
    /// Traffic: neither.
    Neither,
}

/// Which direction of a cell's figure is the better one.
pub fn better(key: &Key) -> Better {
    let name = key.figure.as_str();
    if key.is_histogram {
        Better::Lower
    } else if is_loss(name) {
        Better::Fewer
    } else if is_ratio(key) {
        Better::Nearer
    } else if is_bench(&key.test) && RATES.contains(&name) {
        Better::Higher
    } else if is_bench(&key.test) && COSTS.contains(&name) {
        Better::Lower
    } else {
        Better::Neither
    }
}

fn is_bench(test: &str) -> bool {
    test == readout::TEST || test == readout::SUMMARY || test == convert::TEST
}

/// Sorts records into a side. With `by_kind` functions are named by vendor and device, not by address.
pub fn side<'r>(records: &[&'r Record], by_kind: bool) -> Side<'r> {
    let mut side = Side::default();
    for record in records {
        *side.runs.entry(&record.run).or_default() += record.count();
        let Some(device) = device(record, by_kind) else { continue };
        if let Some(function) = &record.device {
            side.devices.entry(device.clone()).or_insert((function.vendor, function.device));
        }
        if record.error.is_some() {
            side.errors.insert((device.clone(), record.test.to_string()));
        }
        if &*record.test == "environment" {
            continue;
        }
        side.add(record, &device);
    }
    side
}

fn device(record: &Record, by_kind: bool) -> Option<String> {
    let Some(function) = &record.device else {
        return Some(record.stream.as_ref().map(|stream| stream.path.clone()).unwrap_or_default());
    };
    let kind = || format!("{:04x}:{:04x}", function.vendor, function.device);
    Some(match function.bdf {
        Some(bdf) if !by_kind => bdf.to_string(),
        _ => kind(),
    })
}

/// BAR, offset, width, hop, vector and interrupt, and the CPU, of a record.
fn place(record: &Record) -> (Place, Option<u32>) {
    let target = record.target.as_ref();
    let place = target.map(|t| (t.bar, t.offset, t.width, t.hop, t.vector, t.irq.filter(|_| t.vector.is_none())));
    // A readout's and a conversion's CPU is where the thread happened to run.
    let has_cpu = !is_bench(&record.test) && model::kind(&record.test) != Kind::Counters;
    (place.unwrap_or_default(), record.cpu.as_ref().map(|cpu| cpu.cpu).filter(|_| has_cpu))
}

fn rest(record: &Record) -> String {
    let mut parts: Vec<String> = Vec::new();
    if let Some(instance) = &record.instance {
        parts.extend(instance.pmu.clone().or_else(|| Some(instance.scope.clone())));
        // A function has its address. Sockets, and several instances on a node, name their PMUs alike.
        let is_function = record.device.as_ref().is_some_and(|function| function.bdf.is_some());
        let cpu = record.cpu.as_ref().map(|cpu| cpu.cpu).filter(|_| instance.pmu.is_some());
        parts.extend(instance.node.filter(|_| !is_function).map(|node| format!("node {node}")));
        parts.extend(cpu.filter(|_| !is_function).map(|cpu| format!("CPU {cpu}")));
    }
    if let Some(stream) = &record.stream {
        let more = (stream.devices > 1).then(|| format!("{} devices", stream.devices));
        let words = [Some(stream.function_name()), Some(stream.access.clone()), stream.wait.clone()];
        parts.extend(words.into_iter().flatten().filter(|word| !word.is_empty()));
        parts.extend((stream.samples > 0).then(|| format!("{} samples", stream.samples)));
        parts.extend(stream.conversion.clone());
        parts.extend(more);
        parts.extend(stream.sweep.as_ref().map(|sweep| format!("sweep {sweep}")));
    }
    if let Some(kernel) = &record.kernel {
        let samples = record.metrics.get("samples").map(|samples| format!("{} samples", samples.value));
        parts.extend([kernel.name.clone(), kernel.operation.clone(), kernel.isa.clone(), kernel.store.clone()]);
        parts.extend(samples);
        parts.extend((kernel.threads > 1).then(|| format!("{} threads", kernel.threads)));
    }
    if parts.is_empty() && matches!(model::kind(&record.test), Kind::Other | Kind::Verify) {
        parts.extend(record.target.as_ref().and_then(|target| target.name.clone()));
    }
    parts.join(" ")
}

impl<'r> Side<'r> {
    fn text(&mut self, text: &str) -> Text {
        if let Some(known) = self.texts.get(text) {
            return Text(Rc::clone(known));
        }
        let new: Rc<str> = Rc::from(text);
        self.texts.insert(Rc::clone(&new));
        Text(new)
    }

    /// Takes a record and notes which figures it has.
    fn add(&mut self, record: &'r Record, device: &str) {
        let (device, test, rest) = (self.text(device), self.text(&record.test), self.text(&rest(record)));
        let (place, cpu) = place(record);
        let spot = (place, rest, cpu);
        let measured = self.measured.entry((device.clone(), test.clone())).or_default();
        let mut unknown: Vec<&str> = Vec::new();
        if model::kind(&record.test) == Kind::Verify {
            match ratio(record) {
                Some(value) if value.value.is_finite() => measured.has(RATIO, false),
                Some(_) => self.not_numbers += 1,
                None => {}
            }
        } else {
            let is_unordered = stated_effect(record).is_none();
            for name in histograms(record).map(|one| one.0) {
                measured.has(name, true);
                self.unordered += u64::from(is_unordered);
            }
            for (name, _, total) in record.totals().filter(|(name, ..)| is_compared(record, name)) {
                let is_below = total.range.0 < 0.0 && is_loss(name);
                let values = || {
                    (0..)
                        .zip(&*record.points())
                        .filter_map(|(at, point)| Some((record.value_at(name, at)?, point.count)))
                        .collect::<Vec<_>>()
                };
                let below: usize =
                    if is_below { values().iter().filter(|one| one.0 < 0.0).map(|one| one.1).sum() } else { 0 };
                self.not_numbers += (total.not_finite + below) as u64;
                if is_loss(name) && (total.not_finite > 0 || is_below) {
                    unknown.push(name);
                }
                if total.known() > 0 && (!is_below || values().iter().any(|one| one.0 >= 0.0)) {
                    measured.has(name, false);
                }
            }
        }
        measured.spots.entry(spot.clone()).or_default().push(record);
        for name in unknown {
            let figure = self.text(name);
            let block = Block { device: device.clone(), test: test.clone(), figure, is_histogram: false };
            self.unknown_losses.insert(block.key(&spot));
        }
    }
}

/// The cell of a block that these records have. It has no run if they have no such figure.
fn cell<'r>(block: &Block, records: &[&'r Record]) -> Cell<'r> {
    let mut cell = Cell::default();
    let name = block.figure.as_str();
    // A counter whose device changed has several recordings: its values are put in the order of time.
    let is_folded = records.iter().any(|record| record.recording.is_some());
    let mut values: Vec<(u64, &Record, Value)> = Vec::new();
    for &record in records {
        if block.is_histogram {
            let Some((_, histogram)) = histograms(record).find(|one| one.0 == name) else { continue };
            let stated = stated_effect(record);
            // The effect has what the rounds say.
            let error = if stated.is_some() { 0.0 } else { rounds(record).unwrap_or(0.0) };
            let run = run_of(&mut cell, record, "ns");
            run.samples.push(Samples { histogram, stated, effect: CORRELATION });
            run.error = run.error.max(error);
        } else if model::kind(&record.test) == Kind::Verify {
            values.extend(ratio(record).map(|value| (0, record, value)));
        } else if let Some((_, unit, _)) = record.totals().find(|total| total.0 == name && is_compared(record, name)) {
            for (at, point) in record.points().iter().enumerate() {
                let value = record.value_at(name, at).map(|value| of_point(record, name, unit, value, point));
                values.extend(value.map(|value| (point.end_ns, record, value)));
            }
        }
    }
    if is_folded {
        values.sort_by_key(|value| value.0);
    }
    let is_loss = block.is_loss();
    for (_, record, value) in
        values.into_iter().filter(|(.., one)| one.value.is_finite() && !(is_loss && one.value < 0.0))
    {
        let run = run_of(&mut cell, record, value.unit);
        run.values.push(value.value, value.count, value.weight);
        run.exposure += value.exposure;
        run.error = run.error.max(value.error);
    }
    cell
}

/// A value of a figure.
struct Value<'r> {
    value: f64,
    unit: &'r str,
    /// The number of values that it stands for.
    count: usize,
    /// The weight of all of them together.
    weight: f64,
    /// As in [`Run`], as is `error`.
    exposure: f64,
    error: f64,
}

/// The run of a record in a cell.
fn run_of<'s, 'r>(cell: &'s mut Cell<'r>, record: &'r Record, unit: &'r str) -> &'s mut Run<'r> {
    if cell.unit.is_empty() {
        cell.unit = unit;
    }
    let method = record.method.as_ref();
    let batch = method.map_or(1, |method| method.batch.max(1));
    add_way(&mut cell.ways, (model::is_emulated(record), method.is_some_and(|m| m.backend == "fake"), batch));
    let step = method.map_or(0.0, |method| method.quantum_ns / f64::from(batch));
    if step.is_finite() && step > cell.quantum_ns {
        cell.quantum_ns = step;
    }
    cell.runs.get_or_insert(&record.run, Run::default)
}

/// Adds a way to others, where it is new.
pub fn add_way(ways: &mut Vec<Way>, way: Way) {
    if let Err(place) = ways.binary_search(&way) {
        if ways.is_empty() {
            ways.reserve_exact(1);
        }
        ways.insert(place, way);
    }
}

/// Histograms that say something about the way of measuring and not about what is measured.
fn is_control(name: &str) -> bool {
    name == outcome::CALIBRATION || name == "ceiling"
}

/// The histograms of a record that are compared.
fn histograms(record: &Record) -> impl Iterator<Item = (&str, &Histogram)> {
    let is_bare = model::kind(&record.test) == Kind::Verify;
    let all = record.histograms.iter().map(|(name, histogram)| (name.as_str(), histogram));
    all.filter(move |(name, h)| !is_bare && !is_control(name) && !h.is_empty())
}

/// The design effect that a record states, and its degrees of freedom.
fn stated_effect(record: &Record) -> Option<(f64, f64)> {
    let metric = |name: &str| record.metrics.get(name).map(|m| m.value).filter(|v| v.is_finite() && *v >= 0.0);
    let (effect, batches) = (metric(outcome::DESIGN_EFFECT)?, metric(outcome::DESIGN_BATCHES)?);
    (batches >= 3.0).then_some((effect, batches - 1.0))
}

/// Says of all samples how many count as one. A few rounds of one CPU estimate their effect badly, and those of all CPUs of a
/// run well: the mean of all counts, larger by what so many rounds can be wrong (an interval from it is to be as wide as
/// Student's), and a CPU's own where that is larger still.
fn take_effects<'r>(cells: &mut Cells<'r>) {
    let mut of_runs: BTreeMap<(&'r str, Key), (f64, f64)> = BTreeMap::new();
    let place = |run: &'r str, key: &Key| (run, key.merged());
    for (key, cell) in cells.iter() {
        for (run, own) in cell.runs.iter() {
            for (effect, freedom) in own.samples.iter().filter_map(|samples| samples.stated) {
                let sum = of_runs.entry(place(run, key)).or_default();
                *sum = (sum.0 + effect * freedom, sum.1 + freedom);
            }
        }
    }
    if of_runs.is_empty() {
        return;
    }
    let student = |freedom: f64| quantile(ALPHA, freedom);
    let mean = |(sum, freedom): (f64, f64)| sum / freedom * (student(freedom) / student(f64::INFINITY)).powi(2);
    let means: BTreeMap<(&str, Key), f64> = of_runs.into_iter().map(|(place, sums)| (place, mean(sums))).collect();
    for (key, cell) in cells {
        for (run, own) in cell.runs.iter_mut() {
            let Some(mean) = means.get(&place(run, key)) else { continue };
            for samples in &mut own.samples {
                let stated = samples.stated.map_or(0.0, |(effect, _)| effect);
                samples.effect = CORRELATION.max(*mean).max(stated);
            }
        }
    }
}

/// The relative standard error of a figure by the medians of its rounds: from their range, as control charts do.
fn rounds(record: &Record) -> Option<f64> {
    /// Expected range of so many normal values in standard deviations, from 2 on.
    const RANGE: [f64; 9] = [1.128, 1.693, 2.059, 2.326, 2.534, 2.704, 2.847, 2.970, 3.078];
    let metric = |name: &str| record.metrics.get(name).map(|m| m.value).filter(|v| v.is_finite() && *v > 0.0);
    let (rounds, middle) = (metric("rounds")?, metric("round_median_ns")?);
    let range = metric("round_median_max_ns")? - metric("round_median_min_ns")?;
    let expected = *RANGE.get((rounds as usize).checked_sub(2)?.min(RANGE.len() - 1))?;
    Some((range / expected / rounds.sqrt() / middle).max(0.0))
}

/// Of a counter beside a workload only the ratio is kept: the moved bytes, and with them the count, differ from run to
/// run.
fn ratio(record: &Record) -> Option<Value<'_>> {
    let known = Comparison::from_record(record)?;
    let value = known.counter_bytes() / known.workload_bytes;
    // The allowed error is taken as an interval of 95 %.
    let error = known.allowed_percent().unwrap_or(0.0) / 100.0 / 1.96;
    Some(Value { value, unit: "1", count: 1, weight: 1.0, exposure: 0.0, error })
}

/// Whether a metric of a record is compared.
fn is_compared(record: &Record, name: &str) -> bool {
    let is_loss = is_loss(name);
    let is_wanted = match model::kind(&record.test) {
        Kind::Mmio | Kind::Path | Kind::Irq => is_loss,
        _ if is_bench(&record.test) => is_loss || RATES.contains(&name) || COSTS.contains(&name),
        _ => is_own(name, |name| record.total(name).is_some()),
    };
    is_wanted && !record.histograms.contains_key(name)
}

/// A value of a metric at a point.
fn of_point<'r>(record: &'r Record, name: &str, unit: &'r str, value: f64, point: &Point) -> Value<'r> {
    // Intervals may differ in length: sums become rates, and a longer interval counts for more.
    let is_timed = is_counted(&record.test) && point.seconds > 0.0 && !is_loss(name);
    let (unit, is_sum) = as_rate(name, unit, is_timed);
    let together = point.count as f64 * if is_timed { point.seconds } else { 1.0 };
    let samples = || record.histograms.iter().filter(|one| !is_control(one.0)).map(|one| one.1.count()).max();
    let exposure = match record.metrics.get("triggers") {
        _ if is_timed || point.count > 1 => together,
        Some(triggers) => triggers.value,
        None => samples().unwrap_or(0) as f64,
    };
    Value {
        value: if is_sum { value / point.seconds } else { value },
        unit,
        count: point.count,
        weight: together,
        exposure: if exposure.is_finite() && exposure > 0.0 { exposure } else { 1.0 },
        error: lone_error(record, name),
    }
}

/// Whether a figure says something by itself: a sum over a time says the same as its rate.
fn is_own(name: &str, has: impl Fn(&str) -> bool) -> bool {
    name != "interval_end_ns" && !has(&format!("{name}_per_s"))
}

/// Whether a test counts over a time.
fn is_counted(test: &str) -> bool {
    model::kind(test) == Kind::Counters || test == "perf-stat"
}

/// The unit in which a figure is compared, and whether it is divided by the time: sums of intervals become rates.
fn as_rate<'u>(name: &str, unit: &'u str, is_timed: bool) -> (&'u str, bool) {
    const RATES: [(&str, &str); 5] =
        [("1", "1/s"), ("bytes", "bytes/s"), ("cycles", "cycles/s"), ("ns", "ns/s"), ("Joules", "Joules/s")];
    let is_sum = is_timed && is_amount(name, unit) && name != "interval_end_ns";
    match RATES.iter().find(|rate| is_sum && rate.0 == unit) {
        Some((_, rate)) => (rate, true),
        None => (unit, false),
    }
}

/// How much of a rate's unit one event is, where a figure is a rate of events: 1 of counts, and of bytes the largest
/// payload of a packet.
pub fn grain(key: &Key, unit: &str) -> Option<f64> {
    match unit {
        "1/s" if is_counted(&key.test) => Some(1.0),
        "bytes/s" if is_counted(&key.test) => Some(4096.0),
        _ => None,
    }
}

/// The relative standard error of a figure that is itself a mean of repeats or a median of passes; 0 if its record does
/// not say it.
fn lone_error(record: &Record, name: &str) -> f64 {
    let metric = |name: &str| record.metrics.get(name).map(|m| m.value).filter(|v| v.is_finite() && *v > 0.0);
    let of = |spread: f64, count: f64| spread / 100.0 * (CORRELATION / count).sqrt().min(1.0);
    match (&*record.test, name) {
        (readout::TEST, "speed" | "duration" | "active_speed") => {
            metric("cv").zip(metric("repeats")).map_or(0.0, |(cv, repeats)| of(cv, repeats))
        }
        // The distance of the quartiles is 1.349 standard deviations, and a median's error 1.253 of a mean's.
        (convert::TEST, "rate" | "samples_per_s" | "of_ceiling" | "duration") => {
            metric("spread").zip(metric("passes")).map_or(0.0, |(spread, passes)| of(spread / 1.349 * 1.253, passes))
        }
        _ => 0.0,
    }
}
