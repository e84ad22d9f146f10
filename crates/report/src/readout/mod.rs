//! Records of readouts put in order: rows, the groups of rows that ran together, and what a group's parameters were.
//!
//! docs/record.md describes the records of a readout. An unknown figure stays unknown: no row gets a 0 that was not
//! measured.

mod parameters;

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::{Interval, Record, Stream, Work, once, readout};

use crate::model::Section;
use crate::text::{clean, counted};

pub(crate) use self::parameters::{NAMES as PARAMETERS, parameters};

/// The empty stream of a record without one.
static UNKNOWN: Stream = Stream {
    path: String::new(),
    kind: String::new(),
    model: None,
    access: String::new(),
    wait: None,
    function: String::new(),
    is_fused: false,
    samples: 0,
    piece_bytes: None,
    depth: None,
    check: None,
    cycle: None,
    conversion: None,
    devices: 0,
    sweep: None,
    group: 0,
};

/// How many functions of a profile are listed.
pub(crate) const MOST_SPOTS: usize = 5;
/// The row that reads; every other converts what it read, or writes.
pub(crate) const READS: &str = "func_readout";

/// Stages of a repeat: metric, words.
pub(crate) const STAGES: [(&str, &str); 5] =
    [("setup", "setup"), ("dma", "DMA"), ("wakeup", "wake-up"), ("copy", "copy"), ("convert", "conversion")];

/// A row of the table: what one thread did with one device and one function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'r> {
    pub record: &'r Record,
    pub stream: &'r Stream,
}

impl<'r> Row<'r> {
    pub fn new(record: &'r Record) -> Self {
        Row { record, stream: record.stream.as_ref().unwrap_or(&UNKNOWN) }
    }
    /// A metric, where it is known and a number.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.record.metrics.get(name).map(|metric| metric.value).filter(|value| value.is_finite())
    }
    pub fn interval(&self) -> Option<Interval> {
        self.record.interval
    }
    /// The function, `-` where the record does not name it.
    pub fn function(&self) -> String {
        named(&self.stream.function_name())
    }
    /// The device's path, `-` where the record does not name it.
    pub fn device(&self) -> String {
        named(&self.stream.path)
    }
    /// The raw bytes of one repeat.
    pub fn size(&self) -> Option<f64> {
        self.metric("size").or((self.stream.samples > 0).then_some(self.stream.samples as f64 * 2.0))
    }
    /// Whether bytes come from the device in it, or go there.
    pub fn is_reading(&self) -> bool {
        let function = self.stream.function.as_str();
        function == READS || self.stream.is_fused || function == Work::WritePattern.row_name()
    }
    /// The board or file system, of a board without what tells it from others of its kind.
    pub fn model(&self) -> &'r str {
        let model = self.stream.model.as_deref().unwrap_or("");
        match model.split_whitespace().next() {
            Some(board) if board.starts_with("SIS8300") => board.trim_end_matches([',', ';', ':']),
            _ => model,
        }
    }
}

fn named(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { clean(text) }
}

/// Rows that ran together, with what belongs to all of them.
#[derive(Debug)]
pub(crate) struct Group<'r> {
    pub rows: Vec<Row<'r>>,
    pub summary: Option<Row<'r>>,
}

/// The groups of a section in the order of their first records.
pub(crate) fn groups<'r>(section: &Section<'r>) -> Vec<Group<'r>> {
    let mut groups: Vec<Group> = Vec::new();
    let mut places: BTreeMap<(Option<&str>, u32), usize> = BTreeMap::new();
    let mut last = None;
    for record in &section.records {
        let row = Row::new(record);
        let key = match (&record.stream, last) {
            // A summary that does not say of which group is that of the rows before it.
            (None, Some(last)) => last,
            _ => (row.stream.sweep.as_deref(), row.stream.group),
        };
        last = Some(key);
        let place = *places.entry(key).or_insert_with(|| {
            groups.push(Group { rows: Vec::new(), summary: None });
            groups.len() - 1
        });
        if &*record.test == readout::SUMMARY {
            groups[place].summary = Some(row);
        } else {
            groups[place].rows.push(row);
        }
    }
    groups
}

impl<'r> Group<'r> {
    /// Any of its records, for what all have in common.
    pub fn first(&self) -> Option<Row<'r>> {
        self.rows.first().copied().or(self.summary)
    }
    pub fn stream(&self) -> &'r Stream {
        self.first().map_or(&UNKNOWN, |row| row.stream)
    }
    pub fn sweep(&self) -> Option<&'r str> {
        self.stream().sweep.as_deref()
    }
    /// A metric of the whole group.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.summary.and_then(|summary| summary.metric(name))
    }
    /// The rows that read, of all cycles.
    pub fn reading(&self) -> impl Iterator<Item = Row<'r>> + '_ {
        self.rows.iter().copied().filter(Row::is_reading)
    }
    /// How many devices ran together.
    pub fn devices(&self) -> usize {
        match self.stream().devices {
            0 => self.paths().len(),
            devices => devices as usize,
        }
    }
    /// The devices' paths, each once, in the order of the rows.
    pub fn paths(&self) -> Vec<&'r str> {
        once(self.rows.iter().map(|row| row.stream.path.as_str()).filter(|path| !path.is_empty()))
    }
    /// The devices in words: `5x SIS8300-L2 + 1x SIS8300-KU`, a single one with its path.
    pub fn set(&self) -> String {
        let mut models: Vec<(&str, Vec<&str>)> = Vec::new();
        for row in &self.rows {
            let model = row.model();
            let place = models.iter().position(|known| known.0 == model).unwrap_or_else(|| {
                models.push((model, Vec::new()));
                models.len() - 1
            });
            if !models[place].1.contains(&row.stream.path.as_str()) {
                models[place].1.push(&row.stream.path);
            }
        }
        models.sort_by_key(|model| std::cmp::Reverse(model.1.len()));
        match models.as_slice() {
            [] => match self.devices() {
                0 => "-".to_owned(),
                devices => counted(devices, "device"),
            },
            [("", paths)] if paths.len() == 1 => named(paths[0]),
            [(model, paths)] if paths.len() == 1 => clean(&format!("1x {model} ({})", paths[0])),
            models => {
                let part = |(model, paths): &(&str, Vec<&str>)| match *model {
                    "" => counted(paths.len(), "device"),
                    model => clean(&format!("{}x {model}", paths.len())),
                };
                models.iter().map(part).collect::<Vec<_>>().join(" + ")
            }
        }
    }
    /// The functions, each once; that of reading only where there is no other.
    pub fn work(&self, functions: &Functions) -> String {
        let mut names: Vec<String> = Vec::new();
        for row in self.rows.iter().chain(self.summary.iter().filter(|_| self.rows.is_empty())) {
            let name = functions.name(row);
            if name != "-" && !names.contains(&name) {
                names.push(name);
            }
        }
        if names.len() > 1 {
            names.retain(|name| name != READS);
        }
        if names.is_empty() { "-".to_owned() } else { names.join(" ") }
    }
    /// The raw bytes of one repeat, by its first row that says so.
    pub fn size(&self) -> Option<f64> {
        self.rows.iter().chain(&self.summary).find_map(Row::size)
    }
    /// The rate of each reading device: its bytes over their time. Where each acquisition has a row (`--each`) that is
    /// not the mean of the rows' rates; the summary's `speed` is defined in the same way.
    pub fn rates(&self) -> Vec<(&'r str, f64)> {
        let mut sums: Vec<(&str, f64, f64)> = Vec::new();
        // Fused conversions read once each; the first speaks for the device.
        let first = self.reading().next().map(|row| row.stream.function.as_str());
        for row in self.reading().filter(|row| Some(row.stream.function.as_str()) == first) {
            let Some(speed) = row.metric("speed").filter(|speed| *speed > 0.0) else { continue };
            let bytes = row.size().unwrap_or(1.0) * row.metric("repeats").unwrap_or(1.0);
            match sums.iter_mut().find(|sum| sum.0 == row.stream.path) {
                Some(sum) => (sum.1, sum.2) = (sum.1 + bytes, sum.2 + bytes / speed),
                None => sums.push((&row.stream.path, bytes, bytes / speed)),
            }
        }
        let rates = sums.into_iter().map(|(path, bytes, seconds)| (path, bytes / seconds));
        rates.filter(|rate| rate.1.is_finite()).collect()
    }
    /// The sum of the devices' rates: as measured, or added up here.
    pub fn sum(&self) -> Option<f64> {
        let rates = self.rates();
        self.metric("speed").or_else(|| (!rates.is_empty()).then(|| rates.iter().map(|rate| rate.1).sum()))
    }
    /// What the devices' links could carry together, where that is known of each.
    pub fn ceiling(&self) -> Option<f64> {
        let mut sum = 0.0;
        let rates = self.rates();
        for (path, _) in &rates {
            sum += self.reading().filter(|row| row.stream.path == *path).find_map(|row| row.metric("ceiling"))?;
        }
        (!rates.is_empty()).then_some(sum)
    }
    /// From the first start to the last end, in nanoseconds.
    pub fn elapsed_ns(&self) -> Option<f64> {
        let own = self.summary.and_then(|summary| summary.interval());
        let intervals = self.rows.iter().filter_map(Row::interval);
        let whole = own.or_else(|| {
            intervals.reduce(|a, b| Interval { start_ns: a.start_ns.min(b.start_ns), end_ns: a.end_ns.max(b.end_ns) })
        })?;
        let elapsed = whole.end_ns.checked_sub(whole.start_ns)?;
        (elapsed > 0).then_some(elapsed as f64)
    }
    /// CPU time of all threads in percent of one CPU: in user space, in the kernel.
    pub fn cpu_percent(&self) -> (Option<f64>, Option<f64>) {
        let elapsed = self.elapsed_ns();
        let share = |name: &str| {
            let times: Vec<f64> = self.rows.iter().filter_map(|row| row.metric(name)).collect();
            let sum = (!times.is_empty()).then(|| times.iter().sum::<f64>());
            Some(sum? / elapsed? * 100.0)
        };
        (share("cpu_user"), share("cpu_system"))
    }
}

/// Names the rows' functions, with their options where one function has several.
pub(crate) struct Functions<'r>(BTreeMap<(&'r str, bool), BTreeSet<Option<&'r str>>>);

impl<'r> Functions<'r> {
    pub fn of(groups: &[Group<'r>]) -> Self {
        let mut all: BTreeMap<_, BTreeSet<Option<&str>>> = BTreeMap::new();
        for stream in groups.iter().flat_map(|group| &group.rows).map(|row| row.stream) {
            all.entry((stream.function.as_str(), stream.is_fused)).or_default().insert(stream.conversion.as_deref());
        }
        Functions(all)
    }
    pub fn name(&self, row: &Row) -> String {
        let key = (row.stream.function.as_str(), row.stream.is_fused);
        let options = self.0.get(&key).filter(|options| options.len() > 1);
        match (options, &row.stream.conversion) {
            (Some(_), Some(conversion)) => format!("{} {}", row.function(), clean(conversion)),
            _ => row.function(),
        }
    }
}

/// A figure as the tables print it: `-` where there is none.
pub(crate) fn cell(value: Option<f64>, decimals: usize) -> String {
    value.filter(|value| value.is_finite()).map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// Nanoseconds as milliseconds; bytes as 10^6 bytes.
pub(crate) fn millions(value: Option<f64>, decimals: usize) -> String {
    cell(value.map(|value| value / 1e6), decimals)
}

/// A size in words: `60.0 MB`.
pub(crate) fn megabytes(bytes: Option<f64>) -> String {
    format!("{} MB", millions(bytes, 1))
}
