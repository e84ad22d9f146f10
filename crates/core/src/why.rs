//! Why the slowest samples of a measurement were slow, as `latency --why` finds it. docs/why.md has the method.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

crate::named! {
    /// What took the time of a slow sample.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Cause {
        /// The handler of another device's interrupt.
        Interrupt => "interrupt",
        /// The CPU's timer interrupt.
        Timer => "timer",
        /// An interrupt of another CPU, or of the CPU's own machinery.
        Ipi => "IPI",
        /// A softirq or tasklet.
        Softirq => "softirq",
        /// An item of a workqueue.
        Workqueue => "workqueue",
        /// Another thread had the CPU.
        Thread => "thread",
        /// Interrupts were switched off elsewhere on this CPU, so that the device's own came late.
        IrqsOff => "interrupts off",
        /// The CPU left an idle state.
        IdleExit => "idle exit",
        /// The CPU's frequency changed, or it was too hot.
        Frequency => "frequency",
        /// The firmware took the CPU (system management interrupt).
        Smi => "SMI",
        /// An interrupt that cannot be switched off.
        Nmi => "NMI",
        /// A machine check.
        MachineCheck => "machine check",
        /// The hypervisor took the CPU.
        Hypervisor => "hypervisor",
        /// All CPUs stood still at once, and nothing tells whether firmware or a hypervisor took them.
        Standstill => "SMI or hypervisor",
        /// A page fault of the measuring thread.
        PageFault => "page fault",
        /// The TLB was flushed.
        TlbFlush => "TLB flush",
        /// The measuring thread moved to another CPU.
        Migration => "migration",
        /// The IOMMU refused an access.
        IommuFault => "IOMMU fault",
        /// An error of a PCI Express link or device was reported (AER).
        LinkError => "link error",
        /// A PCI Express link changed.
        LinkChange => "link change",
        /// Nothing happened on the CPU: the device or the path to it was slow.
        Device => "device or path",
        /// The events of that time are lost.
        EvidenceLost => "evidence lost",
        /// Nothing tells.
        Unknown => "unknown",
    }
    /// Its name in tables and sentences.
    fn name
}

/// What the names of metrics begin with that count samples above `--above`.
const ABOVE: &str = "above_";

impl Cause {
    /// The metric that counts the samples above `--above` with this cause: `above_timer`.
    pub fn above(self) -> String {
        format!("{ABOVE}{}", self.name().to_lowercase().replace(' ', "_"))
    }
}

/// Whether a metric counts samples above a limit by their cause.
pub fn is_above(name: &str) -> bool {
    name.starts_with(ABOVE)
}

/// A part of a slow sample's time.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// What took it.
    pub cause: Cause,
    /// Whose it was: a handler's device, a thread, a softirq, a function of the kernel.
    pub name: Option<String>,
    /// How much of it, in nanoseconds.
    pub ns: f64,
}

/// A slow sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowSample {
    /// When it began, on the kernel's CLOCK_MONOTONIC, in nanoseconds.
    pub at_ns: u64,
    /// How long it took, in nanoseconds.
    pub value_ns: f64,
    /// What took it longer than a typical sample, the largest part first; there is one at least.
    pub parts: Vec<Part>,
}

impl SlowSample {
    /// What took most of it.
    pub fn cause(&self) -> Cause {
        self.parts.first().map_or(Cause::Unknown, |part| part.cause)
    }

    /// Its cause in words, and whose it was where that is known: `timer local_timer`.
    pub fn words(&self) -> String {
        let name = self.parts.first().and_then(|part| part.name.as_deref());
        name.map_or_else(|| self.cause().name().to_owned(), |name| format!("{} {name}", self.cause().name()))
    }
}

/// A percentile of slices that were looked at, and of the others between them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// Which, above 0 and below 100.
    pub percent: f64,
    /// Of slices that were looked at, in nanoseconds, in their order.
    pub with_ns: Vec<f64>,
    /// Of slices without that.
    pub without_ns: Vec<f64>,
}

/// Reads of the port above between the samples: what delays these too is neither the device nor its link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Control {
    /// How many there were.
    pub reads: u64,
    /// How many samples there were meanwhile.
    pub samples: u64,
    /// By how much the slowest ones that nothing on the CPU explains took longer than a typical one, in nanoseconds, slowest first.
    pub excess_ns: Vec<f64>,
}

/// Why the slowest samples of a CPU and target were slow.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Why {
    /// The slowest samples, slowest first.
    pub slowest: Vec<SlowSample>,
    /// The median of the samples, in nanoseconds: what a sample takes without a cause.
    pub typical_ns: f64,
    /// Events that the kernel told of on this CPU meanwhile.
    pub events: u64,
    /// Events that found no room.
    pub events_lost: u64,
    /// By how much the stamps of samples and of events may differ, in nanoseconds.
    pub clock_error_ns: f64,
    /// What looking costs, by percentile; none in a run of fewer than eight slices.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cost: Vec<Cost>,
    /// Reads for comparison, where the backend makes them.
    pub control: Option<Control>,
    /// Sources of evidence that this machine does not give, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub missing: Vec<String>,
}

/// Which samples are explained.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhyPlan {
    /// How many of the slowest, for each CPU and target.
    pub slowest: u32,
    /// And all that took longer than this, in nanoseconds, as far as there is room for them.
    pub above_ns: Option<u64>,
    /// The run ends after a sample that took longer than this, in nanoseconds.
    pub stop_above_ns: Option<u64>,
}
