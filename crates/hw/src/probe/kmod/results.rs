//! What the module holds after a run, as histograms, samples and counts.

use pciescope_core::warning;
use std::fs::File;
use std::io::Read as _;

use pciescope_core::outcome::CALIBRATION;
use pciescope_core::record::{Failure, Metric};
use pciescope_core::{Histogram, Outcome, Warning};

use super::super::clock::Scale;
use super::super::failure;
use super::super::interrupts::Counts;
use super::uapi::*;

/// What the module holds after a run.
#[derive(Default)]
pub(super) struct KernelRun {
    pub status: Status,
    pub slots: Vec<(Slot, Vec<KernelHistogram>)>,
    pub records: Vec<Record>,
    pub lost: u64,
    pub failure: Option<Failure>,
}

/// A histogram with what made it doubtful.
pub(super) struct KernelHistogram {
    pub histogram: Histogram,
    /// Values that no bucket holds.
    pub beyond: u64,
    pub warnings: Vec<Warning>,
}

/// The module's ring of raw records, read while the run goes on so that it need not hold them all.
pub(super) struct Ring {
    wanted: bool,
    buffer: Vec<u8>,
    pub records: Vec<Record>,
}

impl Ring {
    pub fn new(wanted: bool) -> Self {
        Ring { wanted, buffer: vec![0; if wanted { 1 << 20 } else { 0 }], records: Vec::new() }
    }

    /// Reads the records that are there. It stops at an error; the module counts records that are overwritten.
    pub fn drain(&mut self, mut file: &File) {
        const BYTES: usize = size_of::<Record>();
        while self.wanted {
            let Ok(len) = file.read(&mut self.buffer) else { return };
            self.records.extend(self.buffer[..len].chunks_exact(BYTES).map(parse_record));
            if len < self.buffer.len() {
                return;
            }
        }
    }
}

/// One record of the ring, in the machine's byte order.
pub(super) fn parse_record(bytes: &[u8]) -> Record {
    let part = |from: usize, len: usize| &bytes[from..from + len];
    Record {
        at: u64::from_ne_bytes(part(0, 8).try_into().expect("eight bytes")),
        value: u32::from_ne_bytes(part(8, 4).try_into().expect("four bytes")),
        cpu: u16::from_ne_bytes(part(12, 2).try_into().expect("two bytes")),
        kind_index: u16::from_ne_bytes(part(14, 2).try_into().expect("two bytes")),
    }
}

/// The bucket of a value in ticks, as the header defines it. Values that are too long go to the last one.
pub(super) fn bucket_of(ticks: u64) -> u32 {
    if ticks >> PCILAT_HIST_MAX_BITS != 0 {
        return PCILAT_HIST_BUCKETS - 1;
    }
    if ticks < 2 << PCILAT_HIST_SUB_BITS {
        return ticks as u32;
    }
    let shift = ticks.ilog2() - PCILAT_HIST_SUB_BITS;
    (shift << PCILAT_HIST_SUB_BITS) + (ticks >> shift) as u32
}

/// The middle of a bucket, in ticks: exact below 2^(SUB_BITS + 1).
pub(super) fn middle_of(bucket: u32) -> u64 {
    let shift = (bucket >> PCILAT_HIST_SUB_BITS).saturating_sub(1);
    let low = u64::from(bucket - (shift << PCILAT_HIST_SUB_BITS)) << shift;
    low + (1 << shift) / 2
}

/// The module's figures as a histogram of picoseconds per access.
pub(super) fn to_histogram(summary: &Summary, first: u32, buckets: &[u64], scale: Scale) -> KernelHistogram {
    let mut histogram = Histogram::default();
    let mut warnings = Vec::new();
    let mut beyond = summary.overflow;
    for (bucket, &count) in (first..).zip(buckets) {
        let middle = middle_of(bucket).clamp(summary.min, summary.max);
        if histogram.record_ps(scale.ps(middle), count).is_err() {
            beyond += count;
        }
    }
    if histogram.count() + beyond != summary.count {
        warnings.push(warning::INCONSISTENT_COUNTS.warn(format!(
            "the module counted {} samples, its buckets hold {}",
            summary.count,
            histogram.count()
        )));
    }
    if beyond > 0 {
        warnings.push(failure::too_long(beyond));
    }
    if !histogram.is_empty() {
        let sum = u128::from(summary.sum_high) << 64 | u128::from(summary.sum_low);
        if beyond == 0 {
            // Cannot fail: all values are in buckets, so they are within bounds, and `max` is one of them.
            let _ = histogram.set_exact(scale.ps_wide(sum), scale.ps(summary.min), scale.ps(summary.max));
        }
        histogram.min_at_ns = Some(scale.at_ns(summary.min_at));
        histogram.max_at_ns = Some(scale.at_ns(summary.max_at));
    }
    KernelHistogram { histogram, beyond, warnings }
}

/// An outcome with the histograms that a kind of run has.
pub(super) fn to_outcome(slot: &Slot, fetched: Vec<KernelHistogram>, names: [&str; 3]) -> Outcome {
    let mut outcome = Outcome { cpu: slot.cpu, index: slot.index as u16, ..Outcome::default() };
    let mut lost = slot.samples_lost;
    for (name, KernelHistogram { histogram, beyond, warnings }) in names.into_iter().zip(fetched) {
        if !name.is_empty() {
            outcome.histograms.insert(name.to_owned(), histogram);
            outcome.warnings.extend(warnings);
            lost += if name == CALIBRATION { 0 } else { beyond };
        }
    }
    outcome.metrics.insert("samples_lost".to_owned(), Metric::count(lost));
    outcome
}

pub(super) fn counts(slot: &Slot) -> Counts {
    let Slot { triggers, handled, lost, extra, wrong_cpu, late, missed, merged, .. } = *slot;
    let Slot { warmup_triggers, warmup_handled, .. } = *slot;
    Counts { triggers, handled, lost, extra, wrong_cpu, late, missed, merged, warmup_triggers, warmup_handled }
}
