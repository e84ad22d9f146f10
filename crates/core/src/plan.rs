//! What a measurement is to do: the typed options of a command, checked and given meaning.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{Bdf, ConvertPlan, CpuList, ReadoutPlan, TunePlan, WhyPlan};

crate::named! {
    /// The three register tests. They measure different things and are never mixed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum MmioTest {
        /// Round trip of a non-posted read: what people mean by PCIe latency.
        Read => "mmio-read",
        /// What a posted write costs the CPU that issues it; it says nothing about arrival.
        Write => "mmio-write",
        /// A write and a read behind it of the same register: a read that ordering delays.
        WriteRead => "mmio-write-read",
    }
    /// The `test` field of a record.
    fn name
}

/// In which order the CPUs measure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// One CPU after the other, each to its end.
    #[default]
    Sequential,
    /// Round robin: each CPU takes its share in every round, so that drift does not look like topology.
    Interleaved {
        /// How many rounds; at least 1.
        rounds: u32,
    },
    /// All CPUs at once: latency under the others' load.
    Concurrent,
}

/// Any plan, as the first record of a run holds it: enough to repeat the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Plan {
    /// Register accesses.
    Mmio(MmioPlan),
    /// Configuration reads hop by hop.
    Path(PathPlan),
    /// Interrupts.
    Irq(IrqPlan),
    /// Hardware counters.
    Stat(StatPlan),
    /// A readout.
    Readout(ReadoutPlan),
    /// Conversions by themselves.
    Convert(ConvertPlan),
    /// Links over time.
    Watch(WatchPlan),
    /// A bound on the errors of a link.
    Soak(SoakPlan),
    /// Settings against the present ones.
    Tune(TunePlan),
}

/// A watch over links.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WatchPlan {
    /// The functions to watch, with the ports above them; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub functions: Vec<Bdf>,
    /// The time between samples, in nanoseconds.
    pub interval_ns: u64,
    /// The longest time, in nanoseconds; `None` for as long as nobody ends it.
    pub duration_ns: Option<u64>,
    /// Whether Link Bandwidth Management Status (PCIe 6.0, 7.5.3.8) is cleared after each sample that shows it.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub clear_lbms: bool,
}

/// A soak of a link.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SoakPlan {
    /// The function whose link it is, and how it is watched.
    #[serde(flatten)]
    pub watch: WatchPlan,
    /// The bit error ratio to go below; `None` for as low as the time allows.
    pub below: Option<f64>,
    /// The command that makes the load, word by word.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub command: Vec<String>,
}

/// A reading of hardware counters.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatPlan {
    /// The events as perf writes them, each instance by itself.
    pub events: Vec<String>,
    /// The time between readings, in nanoseconds; `None` for one reading at the end.
    pub interval_ns: Option<u64>,
    /// How many intervals; `None` for as many as come.
    pub count: Option<u64>,
    /// The longest time, in nanoseconds.
    pub duration_ns: Option<u64>,
    /// The command that ran meanwhile, word by word.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub command: Vec<String>,
}

/// A register latency measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MmioPlan {
    /// The function to measure.
    pub bdf: Bdf,
    /// What is done in each sample.
    pub test: MmioTest,
    /// BAR number, 0 to 5.
    pub bar: u8,
    /// Byte offset in the BAR; a multiple of `width`.
    pub offset: u64,
    /// Access width in bytes: 1, 2, 4 or 8.
    pub width: u8,
    /// What the write tests write.
    pub value: u64,
    /// Samples per CPU; 0 means as many as `duration_ns` allows, which then is not 0.
    pub count: u64,
    /// Ends the run after this many nanoseconds even if `count` is not reached; 0 means no limit.
    pub duration_ns: u64,
    /// Pause between two samples, in nanoseconds.
    pub gap_ns: u32,
    /// Accesses between two stamps; a sample is their mean. 1 keeps every access apart; more is for coarse clocks.
    pub batch: u32,
    /// The order of the CPUs.
    pub order: Order,
    /// The CPUs to measure from.
    pub cpus: CpuList,
    /// Whether all-ones is a value this register may have; otherwise the first all-ones read ends the run.
    pub ones_ok: bool,
    /// Whether every raw sample is kept beside the histograms.
    pub raw: bool,
    /// Which samples are explained, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<WhyPlan>,
}

impl MmioPlan {
    /// Reads of `width` bytes at `offset` of a BAR, one after the other without a pause and each between its own stamps.
    /// From which CPUs and how often is for the caller to say: no CPU and 0 here.
    pub fn reads(bdf: Bdf, bar: u8, offset: u64, width: u8) -> Self {
        MmioPlan {
            bdf,
            test: MmioTest::Read,
            bar,
            offset,
            width,
            value: 0,
            count: 0,
            duration_ns: 0,
            gap_ns: 0,
            batch: 1,
            order: Order::Sequential,
            cpus: CpuList::default(),
            ones_ok: false,
            raw: false,
            why: None,
        }
    }
}

/// A measurement of configuration reads hop by hop, from the root port down to the function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathPlan {
    /// The function at the end of the path.
    pub bdf: Bdf,
    /// Configuration offset to read, 4 bytes. 0x100 reaches ECAM on x86; lower offsets go by ports 0xcf8/0xcfc.
    pub offset: u16,
    /// Samples per CPU and hop.
    pub count: u64,
    /// Pause between two samples, in nanoseconds.
    pub gap_ns: u32,
    /// The order of the CPUs; within a CPU the hops alternate sample by sample.
    pub order: Order,
    /// The CPUs to measure from.
    pub cpus: CpuList,
    /// Which samples are explained, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<WhyPlan>,
}

crate::named! {
    /// What raises the interrupt that is timed.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum IrqSource {
        /// A register write makes the device send it: the whole path, PCIe included.
        #[default]
        Hardware => "irq-hardware",
        /// The interrupt controller is asked to raise the vector again: the control arm, without PCIe.
        Retrigger => "irq-retrigger",
        /// `irq_inject_interrupt`, where the kernel has it: a second control arm.
        Inject => "irq-inject",
        /// VFIO's own eventfd trigger: wake-up cost of user space alone.
        Loopback => "irq-loopback",
    }
    /// The `test` field of a record.
    fn name
}

/// An interrupt latency measurement: every chosen vector on every chosen CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IrqPlan {
    /// The function to measure.
    pub bdf: Bdf,
    /// What raises the interrupts.
    pub source: IrqSource,
    /// Vector numbers from 0; empty means all that the device has.
    pub vectors: Vec<u16>,
    /// The CPUs that handle the interrupts, one at a time.
    pub cpus: CpuList,
    /// The order of the CPUs: sequential or interleaved.
    #[serde(default)]
    pub order: Order,
    /// The CPU that triggers; `None` means the CPU that also handles.
    pub trigger_cpu: Option<u32>,
    /// Samples per CPU and vector; 0 means as many as `duration_ns` allows, which then is not 0.
    pub count: u64,
    /// Ends the run after this many nanoseconds even if `count` is not reached; 0 means no limit. CPUs and vectors share
    /// the time equally.
    #[serde(default)]
    pub duration_ns: u64,
    /// 0: the next trigger follows the last acknowledge. Otherwise triggers stand on absolute times this many
    /// nanoseconds apart, and those missed, merged and late are counted.
    pub interval_ns: u64,
    /// How long to wait for an interrupt before it counts as lost, in nanoseconds.
    pub timeout_ns: u64,
    /// Whether every raw sample is kept beside the histograms.
    pub raw: bool,
    /// Which samples are explained, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<WhyPlan>,
}
