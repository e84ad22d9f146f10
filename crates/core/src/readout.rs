//! A readout: bytes fetched from devices, converted, and what that cost.
//!
//! One record ([`TEST`]) is one row of the printed table: what one thread did with one device and one function. Each
//! group of devices that ran together has one more record ([`SUMMARY`]) with the figures of all of them: CPU
//! utilization, sum of rates, hot spots.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The `test` field of a row's record. `Record::stream` says what was read. `Record::interval` is from the start of the
/// first repeat to the end of the last, counted from the moment at which all threads were started.
///
/// Metrics, each left out where it is not known (means are over the repeats; `bytes/s` are of raw input, 10^6 to a MB):
/// - `size` (bytes): raw input of one repeat. `repeats` (1): N times cycles. `cycles` (1).
/// - `duration` (ns): (end - start) / repeats of one cycle, mean over cycles. `speed` (bytes/s): size / duration.
/// - `cv` (%): standard deviation of the repeats' durations over their mean.
/// - `setup`, `dma`, `wakeup`, `copy` (ns): of a repeat, as the driver counted. `convert` (ns): of a repeat.
/// - `acquire` (ns): mean time from arming to the end of the acquisition. `polls` (1): reads of the status register.
/// - `cpu_user`, `cpu_system` (ns): of the thread, whole row. `cpu_per_gb` (s/GB): both, over the raw gigabytes (10^9).
/// - `verified` (bytes): compared and found right. `wrong` (bytes): compared and found wrong.
/// - `ceiling` (bytes/s): what the link could carry at most. `of_ceiling` (%).
/// - `active_speed` (bytes/s): speed while all devices of the group were reading.
/// - `lost_interrupts`, `timeouts`, `short_dmas`, `stalls` (1), `stall` (ns).
///
/// Histograms: `duration` (each repeat), `acquire` (each cycle), where more than one was taken.
pub const TEST: &str = "readout";

/// The `test` field of a group's record. Metrics: `cpu` (%): busy share of all CPUs, from /proc/stat as the seed's tool
/// computes it, `cpu_top` (%): CPU time of the process over the elapsed time, as `top` shows it (100 is one logical CPU);
/// `speed` (bytes/s): sum of the rows of func_readout; `active_speed` (bytes/s): sum while all were active; `active` (ns).
/// `Record::hot_spots` holds the functions in which the time went.
pub const SUMMARY: &str = "readout-summary";

/// What a row of a readout is of.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stream {
    /// The device node or file; empty, and not written, of all devices together.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub path: String,
    /// What it is: `sis8300`, `block`, `char`, `file`; empty, and not written, of all devices together.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub kind: String,
    /// The board or file system in words, where known: `SIS8300-KU`.
    pub model: Option<String>,
    /// How it was read: `read`, `mmap`, `ring`, `direct` (pread with O_DIRECT), `io_uring`; empty, and not written, where
    /// it is not known.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub access: String,
    /// How the end of an acquisition was waited for: `poll`, `interrupt`; `None` where nothing was acquired.
    pub wait: Option<String>,
    /// The row's function as the seed's tool names it: `func_readout`, `func_sca`, ...; empty, and not written, of all
    /// together.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub function: String,
    /// Whether the function worked on each piece as it came, instead of on the whole afterwards (`--fuse`).
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_fused: bool,
    /// Samples of a repeat, 2 bytes each; 0, and not written, where it is not known.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub samples: u64,
    /// The most bytes that were handed over at a time: what came of `--block`. `None` where the data was kept whole.
    pub piece_bytes: Option<u64>,
    /// Buffers of the ring, or requests of io_uring in flight: what came of `--depth`. `None` for other accesses.
    pub depth: Option<u32>,
    /// What the bytes were compared with: `none`, `same` (a further reading), `pattern` (of function 100), `lab:SEED`.
    pub check: Option<String>,
    /// Cycle (triggered acquisition), from 0, where each has a record of its own; else `None`.
    pub cycle: Option<u64>,
    /// Conversion options where the function has them: `f=10 o=0 F=1 O=0`, `Q1.15`, and the instruction set.
    pub conversion: Option<String>,
    /// Devices that were read at the same time, this one counted; 0, and not written, where it is not known.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub devices: u32,
    /// Of a sweep: which of its measurements, `size`, `boards`, `function`, `cpu`; with the same `group` number for all
    /// rows that ran together.
    pub sweep: Option<String>,
    /// Numbers the groups of a run from 0: rows with one number ran at the same time.
    #[serde(default)]
    pub group: u32,
}

impl Stream {
    /// The function as tables name it: `func_sca+fused` where it worked on each piece as it came.
    pub fn function_name(&self) -> String {
        format!("{}{}", self.function, if self.is_fused { FUSED } else { "" })
    }
}

/// What the name of a function ends in, in tables, where it worked on each piece as it came.
const FUSED: &str = "+fused";

/// Whether a number stands for one that is not known.
pub(crate) fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

/// A function of the kernel, or a file of user space, in which samples of a profile fell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HotSpot {
    /// Its part of all samples, in percent; NaN, written as null, where it is not finite.
    #[serde(deserialize_with = "crate::record::finite_or_nan")]
    pub percent: f64,
    /// `[kernel]`, a module's name in brackets, or the file of the program or library.
    pub object: String,
    /// Its name, or its address in hexadecimal where it has none; in user space the file's name again.
    pub symbol: String,
    /// Whether it ran in the kernel.
    pub is_kernel: bool,
}

crate::named! {
    /// How a device is read.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Access {
        /// read() into a buffer of ours: `-B 0`.
        #[default]
        Read => "read",
        /// Memory mapped: a file's pages, or the driver's buffer. `-B 1` where the device has no ring.
        Mmap => "mmap",
        /// The driver's DMA buffers, mapped and handed over one by one: `-B 1` of a digitizer.
        Ring => "ring",
        /// pread() with O_DIRECT.
        Direct => "direct",
        /// io_uring with O_DIRECT where the file system has it.
        #[serde(rename = "io_uring")]
        IoUring => "io_uring",
    }
    /// The name in records and on the command line.
    fn name
}

crate::named! {
    /// How the end of an acquisition is waited for.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum WaitMode {
        /// The status register is read by ioctl with 1 us of sleep between, as the seed's tool does.
        #[default]
        Poll => "poll",
        /// The thread sleeps until the board's interrupt.
        Interrupt => "interrupt",
    }
    /// The name in records.
    fn name
}

crate::named! {
    /// A function of a readout, with the name and number (`-A`) of the seed's tool.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Work {
        /// 0: read only.
        Readout => "func_readout",
        /// 1: decimation and scaling.
        DecimateScale => "func_decsca",
        /// 2: decimation.
        Decimate => "func_dec",
        /// 3: scaling.
        Scale => "func_sca",
        /// 4: cast to f32.
        Cast => "func_no_decsca",
        /// 5: unsigned fixed point to f64.
        UnsignedF64 => "func_umn2double",
        /// 6: signed fixed point to f64, in degrees.
        SignedF64 => "func_smn2double",
        /// 7: unsigned fixed point to f32.
        UnsignedF32 => "func_umn2float",
        /// 8: signed fixed point to f32.
        SignedF32 => "func_smn2float",
        /// 99: all conversions, one after the other.
        All = 99 => "func_all",
        /// 100: write a pattern to the card's memory.
        WritePattern = 100 => "func_writepatt",
    }
    /// The name in the table, as the seed's tool prints it; of [`Work::All`] none of its rows has.
    fn row_name
}

impl Work {
    /// The number of `-A`.
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// A readout.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReadoutPlan {
    /// The device nodes and files.
    pub devices: Vec<String>,
    /// Samples to read per repeat, 2 bytes each.
    pub samples: u64,
    /// Repeats per cycle: `-N`.
    pub repeats: u64,
    /// More of them until this time is over, in nanoseconds; `None`: no more.
    pub least_ns: Option<u64>,
    /// `-o`, in samples.
    pub decimation_offset: u64,
    /// `-f`, at least 1.
    pub decimation_factor: u64,
    /// `-O`.
    pub scale_offset: f64,
    /// `-F`.
    pub scale_factor: f64,
    /// `-B`.
    pub access: Access,
    /// The numbers of `-A`, in order.
    pub functions: Vec<u8>,
    /// Triggered acquisitions: `-l`; 0: one pass without arming.
    pub cycles: u64,
    /// `-i`.
    pub wait: WaitMode,
    /// `--block` as asked, in bytes; `None`: as much at a time as suits.
    pub block: Option<u64>,
    /// `--depth` as asked; `None`: as many as suit.
    pub depth: Option<u32>,
    /// `--check`: `none`, `same`, `pattern`, `lab:SEED`; `None`: as suits the device.
    pub check: Option<String>,
    /// Whether every repeat is compared: `--check-all`.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_all_checked: bool,
    /// Whether conversions take the pieces as they come: `--fuse`.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_fused: bool,
    /// Whether each acquisition has a record of its own: `--each`.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_each: bool,
    /// How boards acquire, where they do.
    pub acquisition: Option<Acquisition>,
}

/// How boards acquire, for `-l`.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Acquisition {
    /// The channels that are on, from 0, as `0-9`; each gets its share of the samples.
    pub channels: String,
    /// Divider of the internal clock of 250 MHz; `None`: the clock is left as it is (`--divider keep`).
    pub divider: Option<u32>,
    /// What starts it: `now`, or `backplane:LINE`.
    pub trigger: String,
    /// The longest wait for its end, in milliseconds.
    pub timeout_ms: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_the_seed_tools() {
        let numbers: Vec<u8> = Work::ALL.iter().map(|work| work.number()).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 99, 100]);
        assert_eq!(Work::Cast.row_name(), "func_no_decsca");
    }
}
