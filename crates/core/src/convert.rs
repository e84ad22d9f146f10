//! Conversions measured by themselves: how fast, against which ceiling, and how exact.
//!
//! One record ([`TEST`]) is one row of the printed table: one kernel, one size, one instruction set, one way to store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The `test` field of a row's record. `Record::kernel` says what it is of; `Record::cpu` where it ran, with one thread.
///
/// Metrics (10^9 bytes to a GB; a pass converts the whole input once, and all figures are of the median pass):
/// - `samples` (1): samples of input. `values` (1): numbers of output.
/// - `bytes_read`, `bytes_written`, `bytes_moved` (bytes): input that a pass must read, output, both. All input counts
///   where a decimation touches every line of it (factors up to 32), else a line of 64 bytes for each sample taken. What
///   memory moves beyond that (lines that are read only to be written over) does not count.
/// - `duration` (ns): of a pass. `rate` (bytes/s): `bytes_moved` over `duration`. `samples_per_s` (1/s): of input.
/// - `ceiling` (bytes/s): rate of a loop that reads and writes as many bytes and does nothing else, in passes that took turns
///   with those of the kernel; with streaming or plain stores, whichever is faster. `ceiling_streaming` (1): 1 or 0.
///   `of_ceiling` (%).
/// - `passes` (1): timed. `batch` (1): passes between two stamps. `spread` (%): distance of the quartiles over the median.
///   `ceiling_spread` (%): the same of the ceiling.
/// - `largest_error` (ulp): distance from the reference, which is the exact value rounded once, over all 65,536 words.
///   `bound` (ulp): what the kernel promises. `wrong` (1): numbers beyond it, among those and the measured output.
/// - `checked` (1): numbers that were compared with the reference.
///
/// Histograms: `duration` and `ceiling`, a pass each.
pub const TEST: &str = "convert";

/// What a row of conversions is of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Kernel {
    /// Its name on the command line: `u16-cast-f32`, with `-d10` for a decimation by 10.
    pub name: String,
    /// `u16` or `i16`.
    pub sample: String,
    /// `cast`, `scale F=0.5 O=1`, `Q1.15 unsigned`, `Q3.13 signed`, `Q3.13 degrees`.
    pub operation: String,
    /// `f32` or `f64`.
    pub output: String,
    /// Every nth sample is converted, with this n.
    pub decimation: u64,
    /// The instruction set that was used: `scalar`, `avx2`, `avx512`, `neon`.
    pub isa: String,
    /// How the output was stored: `cached` or `streaming`.
    pub store: String,
    /// Threads.
    pub threads: u32,
}

/// A measurement of conversions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConvertPlan {
    /// Names of the kernels.
    pub kernels: Vec<String>,
    /// Samples of input.
    pub sizes: Vec<u64>,
    /// Instruction sets.
    pub isas: Vec<String>,
    /// Ways to store: `auto`, `cached`, `streaming`.
    pub stores: Vec<String>,
    /// Threads.
    pub threads: u32,
    /// The longest time for a row, in nanoseconds.
    pub duration_ns: u64,
}
