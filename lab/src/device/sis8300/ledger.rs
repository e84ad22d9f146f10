//! The right answer of a test with a board: what the board sampled, moved and signalled. The guest cannot change it.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Sis8300;
use super::acquisition::{Acquisition, BLOCK_BYTES, BLOCK_SAMPLES, Phase};
use super::engine::Transfer;
use super::interrupts::Source;
use crate::device::upstream::Direction;

/// So many of the last acquisitions and transfers are kept one by one.
const LAST: usize = 64;
/// So many violations are kept.
const VIOLATIONS_MAX: usize = 32;

/// Transfers of one engine.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct DmaCount {
    pub(super) started: u64,
    pub(super) ended: u64,
    pub(super) bytes: u64,
    pub(super) busy_ns: u64,
    /// How much later than its time the end of each came: where this machine is too busy, and of the longest.
    pub(super) late_ns: u64,
    pub(super) late_max_ns: u64,
    pub(super) short: u64,
    pub(super) hung: u64,
    pub(super) aborted: u64,
    pub(super) ignored: u64,
}

/// An acquisition that began.
#[derive(Clone, Debug)]
struct Acquired {
    run: Acquisition,
    pretrigger: u32,
    /// When it ended, how many samples each channel stored, and whether by itself.
    end: Option<(u64, u64, bool)>,
}

/// A transfer that ended.
#[derive(Clone, Copy, Debug)]
struct Moved {
    direction: Direction,
    transfer: Transfer,
    end_ns: u64,
    end: &'static str,
}

/// Everything that is counted beside the ledger that all devices have.
#[derive(Clone, Debug, Default)]
pub(super) struct Books {
    pub(super) triggers_taken: u64,
    pub(super) triggers_missed: u64,
    begun: u64,
    ended: u64,
    aborted: u64,
    pub(super) acquisitions_hung: u64,
    last: VecDeque<Acquired>,
    /// Read engine and write engine.
    pub(super) dma: [DmaCount; 2],
    last_dma: VecDeque<Moved>,
    pub(super) unmapped_bytes: u64,
    violations: Vec<String>,
    violations_total: u64,
}

impl Books {
    pub(super) fn violation(&mut self, what: String) {
        self.violations_total += 1;
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(what);
        }
    }

    pub(super) fn begin(&mut self, run: &Acquisition, pretrigger: u32) {
        self.begun += 1;
        keep(&mut self.last, Acquired { run: *run, pretrigger, end: None });
    }

    pub(super) fn end(&mut self, number: u64, at_ns: u64, samples: u64, is_complete: bool) {
        *if is_complete { &mut self.ended } else { &mut self.aborted } += 1;
        if let Some(acquired) = self.last.iter_mut().rev().find(|acquired| acquired.run.number == number) {
            acquired.end = Some((at_ns, samples, is_complete));
        }
    }

    pub(super) fn dma_ended(&mut self, direction: Direction, transfer: &Transfer, end_ns: u64, end: &'static str) {
        keep(&mut self.last_dma, Moved { direction, transfer: *transfer, end_ns, end });
    }
}

fn keep<T>(list: &mut VecDeque<T>, item: T) {
    if list.len() == LAST {
        list.pop_front();
    }
    list.push_back(item);
}

impl Acquired {
    fn to_json(&self) -> Value {
        let Acquisition { number, cause, begun_ns, channels, blocks, start, .. } = self.run;
        let starts: Vec<u64> = start.iter().map(|block| u64::from(*block) * BLOCK_BYTES).collect();
        let (end_ns, stored, complete) =
            self.end.map_or((Value::Null, Value::Null, false.into()), |(at, samples, done)| {
                (at.into(), samples.into(), Value::from(done))
            });
        json!({"number": number, "trigger": cause.name(), "begun_ns": begun_ns, "end_ns": end_ns, "channels": channels,
               "samples": blocks * BLOCK_SAMPLES, "pretrigger": self.pretrigger, "stored": stored,
               "complete": complete, "start": starts})
    }
}

impl Moved {
    fn to_json(self) -> Value {
        let Transfer { host, card, len, moved, begun_ns, .. } = self.transfer;
        let direction = if self.direction == Direction::Up { "read" } else { "write" };
        json!({"engine": direction, "host": host, "card": card, "asked": len, "moved": moved, "begun_ns": begun_ns,
               "end_ns": self.end_ns, "end": self.end})
    }
}

impl Sis8300 {
    /// The answer to `ledger`.
    pub(super) fn to_json(&self) -> Value {
        let mut ledger = self.ledger.to_json(self.faults.is_removed());
        let books = &self.books;
        let phase = match self.sampler.phase {
            Phase::Idle => "idle",
            Phase::Armed(_) => "armed",
            Phase::Sampling(_) => "sampling",
            Phase::Flushing { .. } => "flushing",
        };
        let mut interrupts = Map::new();
        for source in Source::ALL {
            interrupts.insert(source.name().to_owned(), json!(self.interrupts.counts[source as usize]));
        }
        interrupts.insert("spurious".to_owned(), self.interrupts.spurious.into());
        interrupts.insert("sent".to_owned(), self.ledger.irq[0].sent.into());
        let reads = |word: u64| self.ledger.reads.at(0, word * 4, 4);
        let more = json!({
            "model": self.model.name(), "module_id": self.module_id(), "serial": self.serial, "seed": self.seed,
            "now_ns": self.now_ns, "phase": phase, "status_reads": reads(0x10), "dma_status_reads": reads(0x204),
            "acquisitions": {"begun": books.begun, "ended": books.ended, "aborted": books.aborted,
                             "hung": books.acquisitions_hung, "number": self.acquisitions,
                             "last": books.last.iter().map(Acquired::to_json).collect::<Value>()},
            "triggers": {"seen": self.generator.seen, "taken": books.triggers_taken, "missed": books.triggers_missed,
                         "millihertz": self.generator.millihertz()},
            "dma_read": books.dma[0], "dma_write": books.dma[1],
            "dmas": books.last_dma.iter().map(|moved| moved.to_json()).collect::<Value>(),
            "unmapped_bytes": books.unmapped_bytes, "stored_bytes": self.memory.stored(),
            "interrupts": interrupts,
            "violations": books.violations, "violations_total": books.violations_total,
        });
        if let (Value::Object(ledger), Value::Object(more)) = (&mut ledger, more) {
            ledger.extend(more);
        }
        ledger
    }
}
