//! The columns of every table that is made of records: CSV and Parquet write what [`COLUMNS`] says, in its order.
//!
//! docs/record.md explains each; a test compares its list with this one. An unknown value is `None`. A new column is
//! one entry here and one row there.

mod runs;
mod values;

use pciescope_core::{
    Cpu, Environment, Failure, Finding, Function, Histogram, Host, HotSpot, Instance, Kernel, Method, Metric, Record,
    Stream, Target, Warning,
};

use self::Get::{Bool, Decimal, Hex, List, Number, Text, Time, Whole, Words};
use self::Table::{Figures, Findings, Runs};
use self::runs::Totals;
pub use self::runs::{Gathered, micros};
use self::values::{
    bridges, buckets, check, device, distinct, evidence, figure, joined, json, kind, model, name, origin, positive,
    remedy, severity, text, unit, value,
};

/// What rows a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// One per histogram, metric and hot spot, and one per record that has nothing but an error.
    Figures,
    /// One per run: its machine, its plan, what its records are.
    Runs,
    /// One per finding, warning and error.
    Findings,
}

/// All tables.
pub const TABLES: [Table; 3] = [Figures, Runs, Findings];

/// A column of one or more tables.
pub struct Column {
    /// Its name, the same in CSV and Parquet.
    pub name: &'static str,
    /// The unit of its numbers; empty for texts, counts and numbers that name something.
    pub unit: &'static str,
    /// The tables that have it.
    pub tables: &'static [Table],
    /// Whether the rows of one record differ in it.
    pub is_own: bool,
    /// Its type, and the function from a row to its value.
    pub get: Get,
}

/// The type of a column, with the function from a row to the value.
pub enum Get {
    /// UTF-8 that the record has; an empty text is unknown.
    Text(for<'a> fn(&'a Row<'a>) -> Option<&'a str>),
    /// UTF-8 that is composed.
    Words(for<'a> fn(&'a Row<'a>) -> Option<String>),
    /// RFC 3339: microseconds since 1970 in Parquet.
    Time(for<'a> fn(&'a Row<'a>) -> Option<&'a str>),
    /// True or false.
    Bool(for<'a> fn(&'a Row<'a>) -> Option<bool>),
    /// A whole number of so many bits that is never negative.
    Whole(i8, for<'a> fn(&'a Row<'a>) -> Option<u64>),
    /// The same, as texts have it in hexadecimal: `0x10`, or as many digits as four bits each make.
    Hex(i8, for<'a> fn(&'a Row<'a>) -> Option<u64>),
    /// Any number; one that is not finite is unknown.
    Number(for<'a> fn(&'a Row<'a>) -> Option<f64>),
    /// A whole number of up to 38 digits.
    Decimal(for<'a> fn(&'a Row<'a>) -> Option<u128>),
    /// A list of structs with these fields, equally many of each. CSV leaves it out.
    List(&'static [(&'static str, Leaf)]),
}

/// A field of a list's structs; `None` where there is no list.
pub enum Leaf {
    /// Whole numbers of 64 bits.
    Whole(for<'a> fn(&'a Row<'a>) -> Option<Vec<u64>>),
    /// UTF-8.
    Text(for<'a> fn(&'a Row<'a>) -> Option<Vec<&'a str>>),
}

/// A row: what it is of, and the record that it is from.
#[derive(Clone, Copy)]
pub struct Row<'r> {
    /// The record's number among all, from 0.
    pub number: u64,
    /// The record; of a run, what its first records say of all.
    pub record: &'r Record,
    /// The file that it is from; empty where it is not from one.
    pub file: &'r str,
    /// What the row is of.
    pub item: Item<'r>,
}

/// What a row is of.
#[derive(Clone, Copy)]
pub enum Item<'r> {
    /// A histogram and its name.
    Histogram(&'r str, &'r Histogram),
    /// A metric and its name.
    Metric(&'r str, &'r Metric),
    /// A function in which samples of a profile fell.
    HotSpot(&'r HotSpot),
    /// What `doctor` found.
    Finding(&'r Finding),
    /// A warning of a measurement.
    Warning(&'r Warning),
    /// Why it was not measured, or not to its end.
    Error(&'r Failure),
    /// A run.
    Totals(&'r Totals),
}

impl Table {
    /// The columns that it has, in order.
    pub fn columns(self) -> impl Iterator<Item = &'static Column> {
        COLUMNS.iter().filter(move |column| column.tables.contains(&self))
    }

    /// The rows of a record in it. Runs have none: only all of their records make one ([`Gathered`]).
    pub fn rows<'r>(self, number: u64, record: &'r Record, file: &'r str) -> Vec<Row<'r>> {
        let mut items = Vec::new();
        match self {
            Figures => {
                items.extend(record.histograms.iter().map(|(name, one)| Item::Histogram(name, one)));
                items.extend(record.metrics.iter().map(|(name, one)| Item::Metric(name, one)));
                items.extend(record.hot_spots.iter().map(Item::HotSpot));
                items.extend(record.error.as_ref().filter(|_| items.is_empty()).map(Item::Error));
            }
            Findings => {
                items.extend(record.findings.iter().map(Item::Finding));
                items.extend(record.warnings.iter().map(Item::Warning));
                items.extend(record.error.as_ref().map(Item::Error));
            }
            Runs => {}
        }
        items.into_iter().map(|item| Row { number, record, file, item }).collect()
    }
}

const ALL: &[Table] = &TABLES;
const OF_RECORDS: &[Table] = &[Figures, Findings];
const F: &[Table] = &[Figures];
const R: &[Table] = &[Runs];
const N: &[Table] = &[Findings];

const fn column(name: &'static str, unit: &'static str, tables: &'static [Table], get: Get) -> Column {
    Column { name, unit, tables, is_own: false, get }
}

/// A column in which the rows of one record differ.
const fn own(name: &'static str, unit: &'static str, tables: &'static [Table], get: Get) -> Column {
    Column { is_own: true, ..column(name, unit, tables, get) }
}

/// Every column.
pub const COLUMNS: &[Column] = &[
    column("run", "", ALL, Text(|row| Some(&row.record.run))),
    column("time", "", OF_RECORDS, Time(|row| Some(&row.record.time))),
    column("verb", "", ALL, Text(|row| Some(&row.record.verb))),
    column("test", "", OF_RECORDS, Text(|row| Some(&row.record.test))),
    column("backend", "", F, Text(|row| Some(&row.method()?.backend))),
    column("record", "", OF_RECORDS, Whole(64, |row| Some(row.number))),
    column("label", "", ALL, Text(|row| row.record.label.as_deref())),
    column("file", "", ALL, Text(|row| Some(row.file))),
    // How it was measured.
    column("origin", "", F, Text(|row| origin(row.record))),
    column("batch", "", F, Whole(32, |row| positive(row.method()?.batch.into()))),
    column("order", "", F, Text(|row| Some(&row.method()?.order))),
    column("gap_ns", "ns", F, Whole(64, |row| Some(row.method()?.gap_ns))),
    column("irqs_off", "", F, Bool(|row| Some(row.method()?.irqs_off))),
    column("quantum_ns", "ns", F, Number(|row| Some(row.method()?.quantum_ns).filter(|step| *step > 0.0))),
    // On what.
    column("device", "", OF_RECORDS, Words(device)),
    column("device_name", "", F, Text(|row| Some(&row.function()?.name))),
    column("model", "", F, Words(model)),
    column("vendor_id", "", F, Hex(16, |row| Some(row.function()?.vendor.into()))),
    column("device_id", "", F, Hex(16, |row| Some(row.function()?.device.into()))),
    column("driver", "", F, Text(|row| row.function()?.driver.as_deref())),
    column("device_node", "", F, Whole(32, |row| row.function()?.node.map(u64::from))),
    column("link", "", F, Words(|row| row.function()?.link_words())),
    column("bridges", "", F, Words(bridges)),
    column("bar", "", F, Whole(8, |row| row.target()?.bar.map(u64::from))),
    column("offset", "", F, Hex(64, |row| row.target()?.offset)),
    column("width", "bytes", F, Whole(8, |row| row.target()?.width.map(u64::from))),
    column("vector", "", F, Whole(16, |row| row.target()?.vector.map(u64::from))),
    column("irq", "", F, Whole(32, |row| row.target()?.irq.map(u64::from))),
    column("hop", "", F, Whole(16, |row| row.target()?.hop.map(u64::from))),
    column("hop_bdf", "", F, Words(|row| Some(row.target()?.hop_bdf?.to_string()))),
    column("target", "", F, Text(|row| row.target()?.name.as_deref())),
    column("cpu", "", F, Whole(32, |row| Some(row.cpu()?.cpu.into()))),
    column("node", "", F, Whole(32, |row| row.cpu()?.node.map(u64::from))),
    column("package", "", F, Whole(32, |row| row.cpu()?.package.map(u64::from))),
    column("l3", "", F, Whole(32, |row| row.cpu()?.l3.map(u64::from))),
    column("core", "", F, Whole(32, |row| row.cpu()?.core.map(u64::from))),
    column("thread", "", F, Whole(32, |row| row.cpu()?.thread.map(u64::from))),
    column("pmu", "", F, Text(|row| row.instance()?.pmu.as_deref())),
    column("scope", "", F, Text(|row| Some(&row.instance()?.scope))),
    column("source", "", F, Text(|row| row.instance()?.source.as_deref())),
    column("pmu_node", "", F, Whole(32, |row| row.instance()?.node.map(u64::from))),
    column("start_ns", "ns", F, Whole(64, |row| Some(row.record.interval?.start_ns))),
    column("end_ns", "ns", F, Whole(64, |row| Some(row.record.interval?.end_ns))),
    column("path", "", F, Text(|row| Some(&row.stream()?.path))),
    column("access", "", F, Text(|row| Some(&row.stream()?.access))),
    column("wait", "", F, Text(|row| row.stream()?.wait.as_deref())),
    column("function", "", F, Text(|row| Some(&row.stream()?.function))),
    column("is_fused", "", F, Bool(|row| Some(row.stream()?.is_fused))),
    column("conversion", "", F, Text(|row| row.stream()?.conversion.as_deref())),
    column("samples", "", F, Whole(64, |row| positive(row.stream()?.samples))),
    column("cycle", "", F, Whole(64, |row| row.stream()?.cycle)),
    column("devices", "", F, Whole(32, |row| positive(row.stream()?.devices.into()))),
    column("sweep", "", F, Text(|row| row.stream()?.sweep.as_deref())),
    column("group", "", F, Whole(32, |row| Some(row.stream()?.group.into()))),
    column("piece_bytes", "bytes", F, Whole(64, |row| row.stream()?.piece_bytes)),
    column("depth", "", F, Whole(32, |row| row.stream()?.depth.map(u64::from))),
    column("compared_with", "", F, Text(|row| row.stream()?.check.as_deref())),
    column("convert_kernel", "", F, Text(|row| Some(&row.kernel()?.name))),
    column("isa", "", F, Text(|row| Some(&row.kernel()?.isa))),
    column("store", "", F, Text(|row| Some(&row.kernel()?.store))),
    column("threads", "", F, Whole(32, |row| Some(row.kernel()?.threads.into()))),
    // What came out.
    column("error", "", F, Text(|row| Some(&row.record.error.as_ref()?.code))),
    column("error_text", "", F, Text(|row| Some(&row.record.error.as_ref()?.text))),
    column("warnings", "", F, Words(|row| joined(row.record.warnings.iter().map(|warning| &warning.code)))),
    own("kind", "", OF_RECORDS, Text(kind)),
    own("figure", "", F, Words(figure)),
    own("name", "", F, Words(name)),
    own("unit", "", F, Text(unit)),
    own("value", "", F, Number(value)),
    own("running", "", F, Number(|row| row.metric()?.running)),
    own("at_least", "", F, Bool(|row| Some(row.metric()?.at_least))),
    own("count", "", F, Whole(64, |row| Some(row.histogram()?.count()))),
    own("min", "ns", F, Number(|row| row.histogram()?.min_ns())),
    own("mean", "ns", F, Number(|row| row.histogram()?.mean_ns())),
    own("p50", "ns", F, Number(|row| row.histogram()?.percentile_ns(50.0))),
    own("p90", "ns", F, Number(|row| row.histogram()?.percentile_ns(90.0))),
    own("p95", "ns", F, Number(|row| row.histogram()?.percentile_ns(95.0))),
    own("p99", "ns", F, Number(|row| row.histogram()?.percentile_ns(99.0))),
    own("p999", "ns", F, Number(|row| row.histogram()?.percentile_ns(99.9))),
    own("p9999", "ns", F, Number(|row| row.histogram()?.percentile_ns(99.99))),
    own("max", "ns", F, Number(|row| row.histogram()?.max_ns())),
    own("min_at_ns", "ns", F, Whole(64, |row| row.histogram()?.min_at_ns)),
    own("max_at_ns", "ns", F, Whole(64, |row| row.histogram()?.max_at_ns)),
    own("sum_ps", "ps", F, Decimal(|row| Some(row.histogram()?.sum_ps()))),
    own("buckets", "ps", F, List(BUCKETS)),
    // Findings, warnings and errors.
    own("check", "", N, Text(check)),
    own("severity", "", N, Text(severity)),
    own("silenced", "", N, Bool(|row| Some(row.finding().is_some_and(|finding| finding.silenced)))),
    own("text", "", N, Text(text)),
    own("consequence", "", N, Text(|row| Some(&row.finding()?.consequence))),
    own("remedy", "", N, Text(remedy)),
    own("evidence", "", N, List(EVIDENCE)),
    // Runs.
    column("first_time", "", R, Time(|row| Some(&row.totals()?.first_time))),
    column("last_time", "", R, Time(|row| Some(&row.totals()?.last_time))),
    column("records", "", R, Whole(64, |row| Some(row.totals()?.records))),
    column("last_record", "", R, Whole(64, |row| Some(row.totals()?.last_record))),
    column("errors", "", R, Whole(64, |row| Some(row.totals()?.errors))),
    column("origins", "", R, Words(|row| joined(row.totals()?.origins.iter().copied()))),
    column("record_ids", "", R, List(RECORD_IDS)),
    column("checked", "", R, Words(|row| json(&row.totals()?.checked.iter().collect::<Vec<_>>()))),
    column("tool", "", R, Text(|row| Some(&row.environment()?.tool))),
    column("kernel", "", R, Text(|row| Some(&row.environment()?.kernel))),
    column("machine", "", R, Text(|row| Some(&row.environment()?.machine))),
    column("host", "", R, Text(|row| Some(&row.host()?.name))),
    column("host_id", "", R, Text(|row| row.host()?.id.as_deref())),
    column("serial", "", R, Text(|row| row.host()?.serial.as_deref())),
    column("bios_version", "", R, Text(|row| row.environment()?.bios_version.as_deref())),
    column("bios_date", "", R, Text(|row| row.environment()?.bios_date.as_deref())),
    column("product", "", R, Text(|row| row.environment()?.product.as_deref())),
    column("cpu_model", "", R, Text(|row| row.environment()?.cpu_model.as_deref())),
    column("cpus", "", R, Whole(32, |row| Some(row.environment()?.cpus.len() as u64))),
    column("nodes", "", R, Whole(32, |row| distinct(row, |cpu| cpu.node))),
    column("packages", "", R, Whole(32, |row| distinct(row, |cpu| cpu.package))),
    column("cmdline", "", R, Text(|row| row.environment()?.cmdline.as_deref())),
    column("clocksource", "", R, Text(|row| row.environment()?.clocksource.as_deref())),
    column("governors", "", R, Words(|row| Some(row.environment()?.governors.join(" ")))),
    column("idle_states", "", R, Words(|row| Some(row.environment()?.idle_states.join(" ")))),
    column("aspm_policy", "", R, Text(|row| row.environment()?.aspm_policy.as_deref())),
    column("lockdown", "", R, Text(|row| row.environment()?.lockdown.as_deref())),
    column("iommu_groups", "", R, Whole(32, |row| Some(row.environment()?.iommu_groups.into()))),
    column("hypervisor", "", R, Text(|row| row.environment()?.hypervisor.as_deref())),
    column("steal_ns", "ns", R, Whole(64, |row| row.environment()?.steal_ns)),
    column("environment", "", R, Words(|row| json(row.environment()?))),
    column("plan", "", R, Words(|row| json(row.record.plan.as_ref()?))),
];

const BUCKETS: &[(&str, Leaf)] = &[
    ("low_ps", Leaf::Whole(|row| buckets(row, |bucket| bucket.low_ps))),
    ("high_ps", Leaf::Whole(|row| buckets(row, |bucket| bucket.high_ps))),
    ("count", Leaf::Whole(|row| buckets(row, |bucket| bucket.count))),
];

const RECORD_IDS: &[(&str, Leaf)] = &[("id", Leaf::Whole(|row| Some(row.totals()?.record_ids.clone())))];

const EVIDENCE: &[(&str, Leaf)] = &[
    ("source", Leaf::Text(|row| evidence(row, |seen| &seen.source))),
    ("value", Leaf::Text(|row| evidence(row, |seen| &seen.value))),
];

impl<'r> Row<'r> {
    fn method(&self) -> Option<&'r Method> {
        self.record.method.as_ref()
    }
    fn function(&self) -> Option<&'r Function> {
        self.record.device.as_ref()
    }
    fn target(&self) -> Option<&'r Target> {
        self.record.target.as_ref()
    }
    fn cpu(&self) -> Option<&'r Cpu> {
        self.record.cpu.as_ref()
    }
    fn instance(&self) -> Option<&'r Instance> {
        self.record.instance.as_ref()
    }
    fn stream(&self) -> Option<&'r Stream> {
        self.record.stream.as_ref()
    }
    fn kernel(&self) -> Option<&'r Kernel> {
        self.record.kernel.as_ref()
    }
    fn environment(&self) -> Option<&'r Environment> {
        self.record.environment.as_ref()
    }
    fn host(&self) -> Option<&'r Host> {
        self.environment()?.host.as_ref()
    }
    fn metric(&self) -> Option<&'r Metric> {
        if let Item::Metric(_, metric) = self.item { Some(metric) } else { None }
    }
    fn finding(&self) -> Option<&'r Finding> {
        if let Item::Finding(finding) = self.item { Some(finding) } else { None }
    }
    fn totals(&self) -> Option<&'r Totals> {
        if let Item::Totals(totals) = self.item { Some(totals) } else { None }
    }
    /// Its histogram, where it is of one.
    pub fn histogram(&self) -> Option<&'r Histogram> {
        if let Item::Histogram(_, histogram) = self.item { Some(histogram) } else { None }
    }
}
