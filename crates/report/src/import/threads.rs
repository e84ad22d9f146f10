//! The output of `sis8300drv_threads`: parameter block, rows of seven columns, CPU utilization. Below it there may be
//! lines of `perf report`, and the remark on CPU time that people add.
//!
//! Neighbouring rows are from devices that ran together: a block of parameters, a header or another line begins a new
//! group. A block applies to the group after it. Later groups take samples and repeats from it if their figures agree.

use pciescope_core::warning;
use pciescope_core::{
    Access, HotSpot, Interval, Method, Metric, Plan, ReadoutPlan, Record, Stream, WaitMode, Warning, Work, readout,
};

use super::Parsed;
use crate::readout::PARAMETERS;
use crate::text::clean;

/// A row as printed.
#[derive(Debug, PartialEq)]
struct ReadoutRow {
    /// Its line, from 1.
    line: u64,
    function: String,
    path: String,
    size_mb: f64,
    start_ms: f64,
    end_ms: f64,
    duration_ms: f64,
    speed_mb_s: f64,
}

/// What stands in a parameter block.
#[derive(Debug, Default, Clone)]
struct Parameters {
    function: Option<u8>,
    access: Option<u8>,
    samples: Option<u64>,
    repeats: Option<u64>,
    decimation_offset: Option<u64>,
    decimation_factor: Option<u64>,
    scale_offset: Option<f64>,
    scale_factor: Option<f64>,
    cycles: Option<u64>,
    is_interrupt: bool,
    devices: Option<u32>,
}

/// Rows that ran together, and what stands around them.
#[derive(Debug, Default)]
struct RowGroup {
    /// The block before them.
    own: Option<Parameters>,
    rows: Vec<ReadoutRow>,
    cpu: Option<f64>,
    cpu_top: Option<f64>,
    spots: Vec<HotSpot>,
}

/// Half of the last digit that the tool prints.
const ROUNDING: f64 = 0.05;

/// Whether this is what the tool prints.
pub fn is_threads(text: &str) -> bool {
    let has_block = || {
        let mut lines = text.lines().skip_while(|line| line.trim() != "Parameters:");
        lines.next().is_some() && lines.next().is_some_and(|line| parameter(line).is_some())
    };
    text.lines().any(|line| is_header(line) || matches!(row(line), Some(Ok(_)))) || has_block()
}

/// Takes every line that is the tool's or perf's, skips words, and names what is neither.
pub fn parse(text: &str) -> Parsed {
    let mut read = Parsed::default();
    let mut groups: Vec<RowGroup> = Vec::new();
    // Whether a row may join the last group, and whether a parameter belongs to its block.
    let (mut is_open, mut in_block) = (false, false);
    for line in text.lines() {
        read.lines += 1;
        if line.trim() == "Parameters:" {
            groups.push(RowGroup { own: Some(Parameters::default()), ..RowGroup::default() });
            (is_open, in_block) = (true, true);
            read.words += 1;
        } else if let (true, Some((name, value))) = (in_block, parameter(line)) {
            let own = groups.last_mut().and_then(|group| group.own.as_mut());
            match own.and_then(|own| own.take(name, value)) {
                Some(()) => read.figures += 1,
                None => read.refuse(line, "is no such parameter"),
            }
        } else if is_header(line) {
            if !groups.last().is_some_and(|group| group.own.is_some() && group.rows.is_empty()) {
                groups.push(RowGroup::default());
            }
            (is_open, in_block) = (true, false);
            read.words += 1;
        } else if let Some(row) = row(line) {
            match row {
                Ok(row) => {
                    if !is_open {
                        groups.push(RowGroup::default());
                    }
                    (is_open, in_block) = (true, false);
                    let row = ReadoutRow { line: read.lines, ..row };
                    if let Some(group) = groups.last_mut() {
                        group.rows.push(row);
                    }
                    read.figures += 1;
                }
                Err(why) => read.refuse(line, why),
            }
        } else {
            in_block = false;
            // Lines between a block and its header do not separate them.
            is_open &= groups.last().is_some_and(|group| group.rows.is_empty());
            if groups.last_mut().is_some_and(|group| group.around(line)) {
                read.figures += 1;
            } else {
                read.words += 1;
            }
        }
    }
    let mut known = Parameters::default();
    let mut number = 0;
    for group in groups {
        if let Some(own) = &group.own {
            known = own.clone();
        }
        let records = group.records(number, &known);
        number += u32::from(!records.is_empty());
        read.records.extend(records);
    }
    read
}

fn is_header(line: &str) -> bool {
    line.split(',').map(str::trim).eq([
        "func",
        "dev",
        "size [MB]",
        "start [ms]",
        "end [ms]",
        "dur [ms]",
        "speed [MB/s]",
    ])
}

/// A line that begins as a row does: the row, or what it lacks.
fn row(line: &str) -> Option<Result<ReadoutRow, &'static str>> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    if fields.len() < 2 || !fields[0].starts_with("func_") || fields[0].contains(char::is_whitespace) {
        return None;
    }
    let [function, path, figures @ ..] = fields.as_slice() else { return None };
    let figures: Vec<f64> =
        figures.iter().filter_map(|f| f.parse().ok()).filter(|f: &f64| f.is_finite() && *f >= 0.0).collect();
    let (5, [size_mb, start_ms, end_ms, duration_ms, speed_mb_s]) = (fields.len() - 2, figures.as_slice()) else {
        return Some(Err("has not five figures behind function and device"));
    };
    if end_ms < start_ms {
        return Some(Err("ends before it starts"));
    }
    Some(Ok(ReadoutRow {
        line: 0,
        function: (*function).to_owned(),
        path: (*path).to_owned(),
        size_mb: *size_mb,
        start_ms: *start_ms,
        end_ms: *end_ms,
        duration_ms: *duration_ms,
        speed_mb_s: *speed_mb_s,
    }))
}

/// ` nreads          30`: one name and its value; of sizes the bytes.
fn parameter(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    let (name, value) = (words.next()?, words.next()?);
    let rest: Vec<&str> = words.collect();
    let is_size = rest.first() == Some(&"b");
    ((rest.is_empty() || is_size) && PARAMETERS.contains(&name)).then_some((name, value))
}

impl Parameters {
    /// `None` if the parameter cannot have this value.
    fn take(&mut self, name: &str, value: &str) -> Option<()> {
        let finite = || value.parse().ok().filter(|v: &f64| v.is_finite());
        match name {
            "function" => self.function = Some(value.parse().ok()?),
            "access" => self.access = Some(value.parse().ok()?),
            "nsamples" => self.samples = Some(value.parse().ok().filter(|n| *n <= u64::MAX / 4)?),
            "nreads" => self.repeats = Some(value.parse().ok()?),
            "dec_offset" => self.decimation_offset = Some(value.parse().ok()?),
            "dec_factor" => self.decimation_factor = Some(value.parse().ok()?),
            "scale_offset" => self.scale_offset = Some(finite()?),
            "scale_factor" => self.scale_factor = Some(finite()?),
            "loop" => self.cycles = Some(value.parse().ok()?),
            "daq_intr" => self.is_interrupt = value.parse::<u64>().ok()? != 0,
            "ndevices" => self.devices = Some(value.parse().ok()?),
            // The sizes follow from the samples.
            _ => drop(value.parse::<u64>().ok()?),
        }
        Some(())
    }
    fn access(&self) -> Access {
        if self.access == Some(1) { Access::Mmap } else { Access::Read }
    }
    fn wait(&self) -> WaitMode {
        if self.is_interrupt { WaitMode::Interrupt } else { WaitMode::Poll }
    }
    /// The plan, where the block says all of it.
    fn plan(&self, devices: Vec<String>) -> Option<Plan> {
        Some(Plan::Readout(ReadoutPlan {
            devices,
            samples: self.samples?,
            repeats: self.repeats?,
            decimation_offset: self.decimation_offset?,
            decimation_factor: self.decimation_factor?,
            scale_offset: self.scale_offset?,
            scale_factor: self.scale_factor?,
            access: self.access(),
            functions: vec![self.function?],
            cycles: self.cycles.unwrap_or(0),
            wait: self.wait(),
            ..ReadoutPlan::default()
        }))
    }
}

impl RowGroup {
    /// Takes a line that belongs to rows; returns true if it was one. A second remark is of another run.
    fn around(&mut self, line: &str) -> bool {
        if let (None, Some(cpu)) = (self.cpu, utilization(line)) {
            self.cpu = Some(cpu);
        } else if let (None, Some(top)) = (self.cpu_top, remark(line)) {
            self.cpu_top = Some(top);
        } else if let Some(spot) = hot_spot(line) {
            self.spots.push(spot);
        } else {
            return false;
        }
        true
    }

    fn records(&self, number: u32, known: &Parameters) -> Vec<Record> {
        let mut paths: Vec<String> = self.rows.iter().map(|row| row.path.clone()).collect();
        paths.sort_unstable();
        paths.dedup();
        let mut plan = self.own.as_ref().and_then(|own| own.plan(paths.clone()));
        let common = Stream {
            access: self.own.as_ref().map(|own| own.access().name().to_owned()).unwrap_or_default(),
            wait: self.own.as_ref().filter(|own| own.cycles > Some(0)).map(|own| own.wait().name().to_owned()),
            devices: if paths.is_empty() { known.devices.unwrap_or(0) } else { paths.len() as u32 },
            group: number,
            ..Stream::default()
        };
        let mut records = Vec::new();
        for (place, row) in self.rows.iter().enumerate() {
            let is_same = |other: &&ReadoutRow| other.function == row.function && other.path == row.path;
            let before = self.rows[..place].iter().filter(is_same).count() as u64;
            let several = self.rows.iter().filter(is_same).count() > 1;
            let stream = Stream { cycle: several.then_some(before), ..common.clone() };
            records.push(Record { plan: plan.take(), ..row.record(stream, known) });
        }
        let mut metrics = std::collections::BTreeMap::new();
        let percents = [("cpu", self.cpu.map(|share| share * 100.0)), ("cpu_top", self.cpu_top)];
        for (name, value) in percents {
            metrics.extend(value.map(|value| (name.to_owned(), Metric::of(value, "%"))));
        }
        if !metrics.is_empty() || !self.spots.is_empty() {
            let function = known.function.and_then(|n| Work::ALL.into_iter().find(|work| work.number() == n));
            let stream = Stream {
                function: function
                    .filter(|_| self.rows.is_empty())
                    .map(|work| work.row_name().to_owned())
                    .unwrap_or_default(),
                samples: known.samples.unwrap_or(0),
                ..common
            };
            let stream = Some(stream);
            let hot_spots = self.spots.clone();
            records.push(Record { plan: plan.take(), stream, metrics, hot_spots, ..blank(readout::SUMMARY) });
        }
        records
    }
}

fn blank(test: &str) -> Record {
    let method = Method { backend: "import".to_owned(), notes: vec![NOTE.to_owned()], ..Method::default() };
    Record { test: test.to_owned(), method: Some(method), ..Record::default() }
}

const NOTE: &str = "imported from the output of sis8300drv_threads: figures have one decimal, and only means";

impl ReadoutRow {
    fn record(&self, stream: Stream, known: &Parameters) -> Record {
        // The block says how many samples it was, where the row's rounded size agrees.
        let samples = known.samples.filter(|samples| (*samples as f64 * 2e-6 - self.size_mb).abs() <= ROUNDING + 1e-9);
        let size = samples.map_or(self.size_mb * 1e6, |samples| samples as f64 * 2.0);
        let contradicted =
            known.repeats.filter(|repeats| *repeats > 0).map(|repeats| self.contradiction(repeats as f64, size));
        let mut metrics = std::collections::BTreeMap::new();
        metrics.insert("size".to_owned(), Metric::of(size, "bytes"));
        metrics.insert("duration".to_owned(), Metric::ns(self.duration_ms * 1e6));
        metrics.insert("speed".to_owned(), Metric::of(self.speed_mb_s * 1e6, "bytes/s"));
        if let (Some(repeats), Some(None)) = (known.repeats, &contradicted) {
            metrics.insert("repeats".to_owned(), Metric::count(repeats));
            metrics.insert("cycles".to_owned(), Metric::count(1));
        }
        let ns = |ms: f64| (ms * 1e6).round() as u64;
        let kind = if self.path.contains("sis8300") { "sis8300" } else { "char" };
        Record {
            stream: Some(Stream {
                path: self.path.clone(),
                kind: kind.to_owned(),
                function: self.function.clone(),
                samples: samples.unwrap_or((size / 2.0) as u64),
                ..stream
            }),
            interval: Some(Interval { start_ns: ns(self.start_ms), end_ns: ns(self.end_ms) }),
            metrics,
            warnings: contradicted.flatten().into_iter().collect(),
            ..blank(readout::TEST)
        }
    }

    /// Whether duration and speed follow from start, end and repeats, as far as one decimal says.
    fn contradiction(&self, repeats: f64, size: f64) -> Option<Warning> {
        let elapsed = self.end_ms - self.start_ms;
        let duration = elapsed / repeats;
        let speed = |elapsed: f64| size * repeats / elapsed / 1e3;
        let is_duration = (duration - self.duration_ms).abs() <= ROUNDING + 2.0 * ROUNDING / repeats + 1e-9;
        let least = speed(elapsed + 2.0 * ROUNDING) - ROUNDING - 1e-9;
        let shortest = elapsed - 2.0 * ROUNDING;
        let is_speed =
            self.speed_mb_s >= least && (shortest <= 0.0 || self.speed_mb_s <= speed(shortest) + ROUNDING + 1e-9);
        (!is_duration || !is_speed).then(|| warning::INCONSISTENT_ROW.warn(format!(
                "line {}: {} {}: {repeats} repeats from {} to {} ms take {duration:.3} ms each at {:.1} MB/s; the row says \
                 {} ms and {} MB/s",
                self.line,
                clean(&self.function),
                clean(&self.path),
                self.start_ms,
                self.end_ms,
                speed(elapsed),
                self.duration_ms,
                self.speed_mb_s
            )))
    }
}

/// `CPU utilization was : 0.117 (46.8 %)`: the busy share of all CPUs.
fn utilization(line: &str) -> Option<f64> {
    let (_, value) = line.trim().strip_prefix("CPU utilization was")?.split_once(':')?;
    value.split_whitespace().next()?.parse().ok().filter(|share: &f64| (0.0..=1.0).contains(share))
}

/// `~17% CPU time to readout data`: a note of what top showed.
fn remark(line: &str) -> Option<f64> {
    let (value, rest) = line.trim().strip_prefix('~')?.split_once('%')?;
    rest.trim_start().starts_with("CPU time").then_some(())?;
    value.trim().parse().ok().filter(|percent: &f64| percent.is_finite() && *percent >= 0.0)
}

/// `  15.82%  command  [kernel.kallsyms]  [k] symbol`, as perf report prints it.
fn hot_spot(line: &str) -> Option<HotSpot> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [percent, _, object, kind @ ("[k]" | "[.]"), symbol @ ..] = words.as_slice() else { return None };
    let percent: f64 = percent.strip_suffix('%')?.parse().ok().filter(|p: &f64| (0.0..=100.0).contains(p))?;
    let object = if object.starts_with("[kernel") { "[kernel]" } else { object };
    (!symbol.is_empty()).then(|| HotSpot {
        percent,
        object: object.to_owned(),
        symbol: symbol.join(" "),
        is_kernel: *kind == "[k]",
    })
}
