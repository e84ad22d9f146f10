//! What acquisitions do to the board as a whole: triggers, the memory, interrupts, the chained transfer.
//! docs/spec/sis8300.md, "Acquisition".

use super::acquisition::{Acquisition, BLOCK_BYTES, BLOCK_SAMPLES, Cause, Phase};
use super::interrupts::Source;
use super::settings::{DaqDone, Unit};
use super::{CHANNELS, FIFO_BYTES, Sis8300, registers, samples, take};

impl Sis8300 {
    /// Brings everything but transfers up to `now_ns`.
    pub(super) fn advance(&mut self, now_ns: u64) {
        while let Some(at) = self.next_event().filter(|at| *at <= now_ns) {
            self.tally(at);
            match self.sampler.phase {
                Phase::Armed(_) => {
                    if let Some((cause, _)) = self.sampler.trigger(&self.generator) {
                        self.books.triggers_taken += 1;
                        self.begin(cause, at);
                    }
                }
                Phase::Sampling(run) => self.end(run, at),
                Phase::Flushing { run, is_end, .. } => self.flushed(&run, is_end, at),
                Phase::Idle => return,
            }
        }
        self.tally(now_ns);
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// When the sample logic next does something by itself.
    pub(super) fn next_event(&self) -> Option<u64> {
        match self.sampler.phase {
            Phase::Idle => None,
            Phase::Armed(since) => {
                let (_, delay) = self.sampler.trigger(&self.generator)?;
                Some(self.generator.next_ns(since.saturating_sub(delay))?.saturating_add(delay))
            }
            Phase::Sampling(run) => run.end_ns,
            Phase::Flushing { until_ns, .. } => Some(until_ns),
        }
    }

    /// Counts the pulses of the generator up to `at_ns`: those are missed that would have started an armed board.
    pub(super) fn tally(&mut self, at_ns: u64) {
        let new = self.generator.count_until(at_ns);
        let is_wanted = new > 0 && self.sampler.trigger(&self.generator).is_some();
        if is_wanted && !matches!(self.sampler.phase, Phase::Armed(_)) {
            self.books.triggers_missed += new;
        }
    }

    pub(super) fn begin(&mut self, cause: Cause, at_ns: u64) {
        self.acquisitions += 1;
        let blocks = self.sampler.blocks();
        let duration = self.clock.duration_ns(blocks * BLOCK_SAMPLES, &self.settings.clocks);
        let mut end_ns = duration.map(|duration| at_ns.saturating_add(duration));
        if take(&mut self.settings.hangs[Unit::Daq as usize]) {
            end_ns = None;
            self.books.acquisitions_hung += 1;
        } else if duration.is_none() {
            self.books.violation(format!("acquisition {} began without a sample clock", self.acquisitions));
        }
        let run = Acquisition {
            number: self.acquisitions,
            cause,
            begun_ns: at_ns,
            end_ns,
            channels: self.sampler.channels(),
            blocks,
            start: self.sampler.actual,
        };
        if run.overlaps() {
            self.books.violation(format!("acquisition {}: channels overlap in the memory", run.number));
        }
        self.books.begin(&run, self.sampler.pretrigger);
        self.sampler.phase = Phase::Sampling(run);
    }

    /// Sampling ended by itself.
    pub(super) fn end(&mut self, run: Acquisition, at_ns: u64) {
        self.store(&run, run.blocks * BLOCK_BYTES - FIFO_BYTES.min(run.blocks * BLOCK_BYTES));
        self.set_actual(&run, run.blocks);
        self.books.end(run.number, at_ns, run.blocks * BLOCK_SAMPLES, true);
        let until_ns = at_ns.saturating_add(self.settings.flush_ns);
        self.sampler.phase = Phase::Flushing { until_ns, run, is_end: true };
        if self.settings.daq_done == DaqDone::BeforeFlush {
            self.raise(Source::Daq);
        }
    }

    /// The FIFO is empty: all is in the memory.
    pub(super) fn flushed(&mut self, run: &Acquisition, is_end: bool, at_ns: u64) {
        self.sampler.phase = Phase::Idle;
        if !is_end {
            return;
        }
        self.store(run, run.blocks * BLOCK_BYTES);
        if self.settings.daq_done == DaqDone::AfterFlush {
            self.raise(Source::Daq);
        }
        if self.words[registers::CHAIN] & 1 != 0 {
            self.start_read(at_ns);
        }
    }

    /// The first `bytes` of each channel are in the memory.
    pub(super) fn store(&mut self, run: &Acquisition, bytes: u64) {
        for channel in (0..CHANNELS).filter(|channel| run.channels >> channel & 1 != 0) {
            let key = samples::key(self.seed, self.serial, run.number, channel as u64);
            self.memory.store_samples(key, u64::from(run.start[channel]) * BLOCK_BYTES, bytes);
        }
    }

    pub(super) fn set_actual(&mut self, run: &Acquisition, blocks: u64) {
        let most = (self.memory.size() / BLOCK_BYTES).max(1);
        for channel in (0..CHANNELS).filter(|channel| run.channels >> channel & 1 != 0) {
            self.sampler.actual[channel] = ((u64::from(run.start[channel]) + blocks) % most) as u32;
        }
    }

    /// Stops the sample logic: what was sampled reaches the memory, and nobody is told.
    pub(super) fn stop_sampling(&mut self, now_ns: u64) {
        match self.sampler.phase {
            Phase::Idle => {}
            Phase::Armed(_) => self.sampler.phase = Phase::Idle,
            Phase::Sampling(run) => {
                let samples = self.clock.samples_in(now_ns.saturating_sub(run.begun_ns), &self.settings.clocks);
                let blocks = (samples / BLOCK_SAMPLES).min(run.blocks);
                self.store(&run, blocks * BLOCK_BYTES);
                self.set_actual(&run, blocks);
                self.books.end(run.number, now_ns, blocks * BLOCK_SAMPLES, false);
                let until_ns = now_ns.saturating_add(self.settings.flush_ns);
                self.sampler.phase = Phase::Flushing { until_ns, run, is_end: false };
            }
            Phase::Flushing { until_ns, run, is_end } => {
                if is_end {
                    self.store(&run, run.blocks * BLOCK_BYTES);
                }
                self.sampler.phase = Phase::Flushing { until_ns, run, is_end: false };
            }
        }
    }

    /// A write of the acquisition control register.
    pub(super) fn control_sampling(&mut self, now_ns: u64, value: u32) {
        if value & 4 != 0 {
            self.stop_sampling(now_ns);
        }
        if value & 3 == 0 {
            return;
        }
        if self.sampler.is_busy() {
            self.books.violation(format!("0x10 <- {value:#x} while the sample logic is busy"));
            return;
        }
        self.sampler.latch();
        if value & 1 != 0 {
            self.begin(Cause::Now, now_ns);
        } else {
            self.sampler.phase = Phase::Armed(now_ns);
        }
    }
}
