//! The product: one record is one JSON line. docs/record.md describes every field.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_with::skip_serializing_none;

use crate::readout::is_zero;
use crate::{
    Bdf, Change, Checked, Cpu, Environment, Finding, Function, Histogram, HotSpot, Kernel, Plan, Recording, Soak,
    Stream, Tune, Why,
};

/// The version of the record's schema; a reader refuses any other. The next one is 3: versions before the first release
/// wrote 2.
pub const SCHEMA: u32 = 1;

/// One result, complete in itself: what was measured, on what, from where, how, and what came out.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Names the run: the same for every record of one invocation, 16 hexadecimal digits.
    pub run: String,
    /// When the record was completed: RFC 3339, UTC.
    pub time: String,
    /// The command, for example `latency mmio`.
    pub verb: String,
    /// What the user calls this run (`--label`), so that several can be told apart in one page.
    pub label: Option<String>,
    /// What was done: `mmio-read`, `mmio-write`, `mmio-write-read`, `config-read`, `irq-hardware`,
    /// `irq-retrigger`, `irq-inject`, `irq-loopback`; `environment` for the first record of a run.
    pub test: String,
    /// The function measured.
    pub device: Option<Function>,
    /// What on the device.
    pub target: Option<Target>,
    /// The CPU it was measured from, with its place in the machine.
    pub cpu: Option<Cpu>,
    /// What hardware counted.
    pub instance: Option<Instance>,
    /// What was read, of a row of a readout.
    pub stream: Option<Stream>,
    /// What converted, of a row of conversions.
    pub kernel: Option<Kernel>,
    /// Where the time went, the largest part first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub hot_spots: Vec<HotSpot>,
    /// The time that the figures are of, where they are of a part of the run or of all of it.
    pub interval: Option<Interval>,
    /// How the figures came about.
    pub method: Option<Method>,
    /// Histograms by name; see [`crate::outcome`] for the names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub histograms: BTreeMap<String, Histogram>,
    /// Single figures by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub metrics: BTreeMap<String, Metric>,
    /// What changed, of a record of `watch`; its `interval` is the time of the state before.
    pub change: Option<Change>,
    /// How errors of a link were looked for, of the record of `soak`.
    pub soak: Option<Box<Soak>>,
    /// Knobs and what their settings did, of the record of `tune`.
    pub tune: Option<Box<Tune>>,
    /// Why the slowest samples were slow (`latency --why`).
    pub why: Option<Box<Why>>,
    /// The machine; in the first record of a run.
    pub environment: Option<Environment>,
    /// What the run was to do; in the first record of a run.
    pub plan: Option<Plan>,
    /// What is doubtful about the figures, each with what to do.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub warnings: Vec<Warning>,
    /// What `doctor` found.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub findings: Vec<Finding>,
    /// How each check of `doctor` ended here.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub checks: Vec<Checked>,
    /// Why it was not measured, or not to its end. Figures taken before stand.
    pub error: Option<Failure>,
    /// All intervals of its counting instance, where a reader folded the later ones into it. No file has it.
    #[serde(skip)]
    pub recording: Option<Box<Recording>>,
}

impl Record {
    /// The first record of a run: the machine, what is doubtful about it, and the plan. [`crate::Identity::mark`] completes it.
    pub fn first(environment: Environment, plan: Plan, warnings: Vec<Warning>) -> Self {
        Record {
            test: "environment".to_owned(),
            environment: Some(environment),
            plan: Some(plan),
            warnings,
            ..Record::default()
        }
    }

    /// Whether the fake backend made the figures up.
    pub fn is_synthetic(&self) -> bool {
        self.method.as_ref().is_some_and(|method| method.backend == "fake")
            || self.environment.as_ref().is_some_and(Environment::is_synthetic)
    }
}

/// What on a device was measured. Only the fields that apply are there.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// BAR number.
    pub bar: Option<u8>,
    /// Byte offset in the BAR or in configuration space.
    pub offset: Option<u64>,
    /// Access width in bytes.
    pub width: Option<u8>,
    /// Interrupt vector of the device, from 0.
    pub vector: Option<u16>,
    /// Linux interrupt number of the vector, where known.
    pub irq: Option<u32>,
    /// Hop number on the path: 0 is the root port.
    pub hop: Option<u16>,
    /// The function at that hop.
    pub hop_bdf: Option<Bdf>,
    /// What is read, in words ("STATUS, read only").
    pub name: Option<String>,
}

impl Target {
    /// Where in a BAR it is; `None` where that is not known.
    pub fn in_bar(&self) -> Option<BarOffset> {
        Some(BarOffset { bar: self.bar?, offset: self.offset? })
    }
}

/// A place in a BAR, in every text `BAR0+0x10`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BarOffset {
    /// BAR number.
    pub bar: u8,
    /// Offset in bytes.
    pub offset: u64,
}

impl fmt::Display for BarOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BAR{}+{:#x}", self.bar, self.offset)
    }
}

/// The [`Instance::source`] of what the kernel itself counted of a PCI function. Its bytes are a lower bound.
pub const ACCOUNTING: &str = "kernel accounting";

/// A piece of hardware that counts, several that were added up, or what else counts for it.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Instance {
    /// What it counts for: `port` (a PCIe root port), `function` (another PCI function with all below it), `channel` (a DRAM
    /// channel or sub-channel), `die` and `total` (sums of channels), `pmu` (anything else).
    pub scope: String,
    /// The source of the counts: [`ACCOUNTING`] for the kernel; absent if hardware counted.
    pub source: Option<String>,
    /// The name of the PMU in sysfs; of a sum none. Of the kernel's account `kernel_` and the function's address.
    pub pmu: Option<String>,
    /// The NUMA node it belongs to, where known.
    pub node: Option<u32>,
    /// How many PMUs a sum adds up.
    pub parts: Option<u32>,
    /// The functions below a root port, bridges left out.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub below: Vec<Below>,
}

impl Instance {
    /// Whether the kernel counted, and not hardware: the bytes are a lower bound.
    pub fn is_accounting(&self) -> bool {
        self.source.as_deref() == Some(ACCOUNTING)
    }
}

/// A function below a root port.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Below {
    /// Its address.
    pub bdf: Bdf,
    /// Vendor and device in words.
    pub name: String,
    /// The bound driver; `None` where there is none.
    pub driver: Option<String>,
    /// The names that programs use of its devices: `nvme0n1`, `eth0`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub devices: Vec<String>,
}

/// A time within a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Its beginning, in nanoseconds since the run's.
    pub start_ns: u64,
    /// Its end, in nanoseconds since the run's beginning.
    pub end_ns: u64,
}

impl Interval {
    /// Its length in seconds.
    pub fn seconds(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }
}

/// How a figure came about.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Method {
    /// `kmod`, `vfio`, `resource`, `sysfs`, `fake` or `import`.
    pub backend: String,
    /// The clock: `tsc`, `cntvct`, `monotonic-raw`; empty, and not written, where it is not known.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub clock: String,
    /// Ticks of the clock per second; 0, and not written, where it is not known.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub clock_hz: u64,
    /// The smallest step of the clock, in nanoseconds; 0, and not written, where it is not known.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub quantum_ns: f64,
    /// Accesses between two stamps; 0, and not written, where it is not known.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub batch: u32,
    /// Pause between two samples, in nanoseconds.
    pub gap_ns: u64,
    /// Order of the CPUs: `sequential`, `interleaved`, `concurrent`; empty, and not written, where it is not known.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub order: String,
    /// Whether interrupts were off while the access was timed.
    pub irqs_off: bool,
    /// Whether the device is emulated (or the machine a guest in which it cannot be told): then the figure
    /// is the cost of an exit to the emulator, not of PCIe.
    pub emulated: bool,
    /// Limits and remarks of this way of measuring, each a sentence.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

/// A single figure with its unit.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// The figure; NaN, written as null, where it is not finite.
    #[serde(deserialize_with = "finite_or_nan")]
    pub value: f64,
    /// Its unit: `1` for a count, `ns`, `bytes`, `bytes/s`, `%`.
    pub unit: String,
    /// The share of the time in which its counter ran, above 0 to below 1: the figure is scaled to the whole. `None`
    /// where nothing was scaled.
    pub running: Option<f64>,
    /// Whether the true figure may be larger: a counter of it reached its end, or it is a lower bound by what counts it.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub at_least: bool,
}

/// A number, or null for one that JSON cannot hold.
pub(crate) fn finite_or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

impl Metric {
    /// A figure in a unit.
    pub fn of(value: f64, unit: &str) -> Self {
        Metric { value, unit: unit.to_owned(), ..Metric::default() }
    }
    /// A count of things.
    pub fn count(value: u64) -> Self {
        Metric::of(value as f64, "1")
    }
    /// A duration in nanoseconds.
    pub fn ns(value: f64) -> Self {
        Metric::of(value, "ns")
    }
}

/// Something that makes a figure doubtful.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// A short stable name, such as `emulated-device`, for scripts and for silencing.
    pub code: String,
    /// What was found, with the evidence.
    pub text: String,
    /// What to do about it.
    pub hint: String,
}

/// Why something could not be measured.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// A short stable name: `all-ones`, `removed`, `unbound`, `cpu-offline`, `interrupted`, `timeout`, `refused`,
    /// `too-slow`.
    pub code: String,
    /// The failure in words: which device, what, which value, why.
    pub text: String,
    /// What the user can do, where there is something.
    pub hint: Option<String>,
}

impl Failure {
    const INTERRUPTED: &str = "interrupted";
    const TOO_SLOW: &str = "too-slow";

    /// The kernel, the device or the backend declined.
    pub fn refused(text: impl Into<String>, hint: Option<String>) -> Failure {
        Failure { code: "refused".to_owned(), text: text.into(), hint }
    }

    /// The device no longer answers.
    pub fn removed(text: impl Into<String>) -> Failure {
        Failure { code: "removed".to_owned(), text: text.into(), hint: None }
    }

    /// The user ended the run, so `text` names what was not done.
    pub fn interrupted(text: impl Into<String>) -> Failure {
        Failure { code: Failure::INTERRUPTED.to_owned(), text: text.into(), hint: None }
    }

    /// A sample took longer than the user allows, which ends the run.
    pub fn too_slow(text: impl Into<String>) -> Failure {
        Failure { code: Failure::TOO_SLOW.to_owned(), text: text.into(), hint: None }
    }

    /// Whether that ended the run.
    pub fn is_too_slow(&self) -> bool {
        self.code == Failure::TOO_SLOW
    }

    /// Whether the user ended the run.
    pub fn is_interrupted(&self) -> bool {
        self.code == Failure::INTERRUPTED
    }
}
