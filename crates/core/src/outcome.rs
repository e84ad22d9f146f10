//! What a probe hands back: figures of one CPU and one target, before they become a record.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::{Failure, Metric, Warning};
use crate::{Bdf, Histogram, Why};

/// The name of the histogram of the measured latency: register, configuration or write latency.
pub const LATENCY: &str = "latency";
/// The name of the histogram from an interrupt's trigger to its handler's first stamp.
pub const TRIGGER_TO_HANDLER: &str = "trigger_to_handler";
/// The name of the histogram from the handler's first stamp to the end of the device's acknowledge.
pub const ENTRY_TO_ACK: &str = "entry_to_ack";
/// The name of the histogram of the empty stamp pair on the same CPU in the same interrupt state.
pub const CALIBRATION: &str = "calibration";
/// Name of the figure that a device of the lab added to each access at least, in nanoseconds.
pub const INJECTED: &str = "injected_ns";

/// The name of the metric that says how many neighbouring samples count as one: [`crate::histogram::design_effect`].
pub const DESIGN_EFFECT: &str = "design_effect";
/// The name of the metric that says from how many batches that was estimated.
pub const DESIGN_BATCHES: &str = "design_batches";

/// The figures of one CPU for one target (a BAR offset, a hop or a vector).
///
/// Nothing is subtracted from the histograms: [`CALIBRATION`] is a separate histogram.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The CPU that measured (for interrupts: the CPU that handled).
    pub cpu: u32,
    /// Vector number, or hop number from the root port (0) down; 0 for a register.
    pub index: u16,
    /// The function at this hop; `None` means the plan's own.
    pub hop: Option<Bdf>,
    /// Linux interrupt number of the vector, where known.
    pub irq: Option<u32>,
    /// Histograms by name: [`LATENCY`] or the two of an interrupt, and [`CALIBRATION`].
    pub histograms: BTreeMap<String, Histogram>,
    /// Counts and rates: `triggers`, `handled`, `lost`, `extra`, `wrong_cpu`, `merged`, `late`, `samples_lost` ...
    pub metrics: BTreeMap<String, Metric>,
    /// Why the slowest samples were slow, where that was asked for.
    pub why: Option<Why>,
    /// What is doubtful about these figures.
    pub warnings: Vec<Warning>,
    /// Why this CPU or target was not measured, or not to its end. What was taken before stands.
    pub error: Option<Failure>,
}

/// One raw sample, as the ring of the kernel module keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// When it was taken, in nanoseconds since the run's start.
    pub at_ns: u64,
    /// The duration, in picoseconds.
    pub value_ps: u64,
    /// The CPU it was taken on.
    pub cpu: u32,
    /// Vector or hop number.
    pub index: u16,
    /// What was timed; see [`SampleKind`].
    pub kind: SampleKind,
}

/// What a raw sample timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampleKind {
    /// A register or configuration access.
    Latency,
    /// From trigger to handler entry.
    TriggerToHandler,
    /// From handler entry to acknowledge.
    EntryToAck,
    /// A configuration read of the port above, for comparison.
    Control,
}
