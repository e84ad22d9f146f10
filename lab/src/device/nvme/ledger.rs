//! The right answer of a test with a disk: what the disk moved and did. The guest cannot change it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::wire::Status;

pciescope_core::named! {
    /// What commands ask for, as far as they are counted apart.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Kind {
        Admin => "admin",
        Read => "read",
        Write => "write",
        Flush => "flush",
        WriteZeroes => "write_zeroes",
        Other => "other",
    }
    fn name
}

/// Everything that is counted for one disk, since it was made or `reset`.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Ledger {
    /// Bytes of read commands that reached the guest's memory.
    pub(super) data_read_bytes: u64,
    /// Bytes of write commands that were fetched from the guest's memory.
    pub(super) data_written_bytes: u64,
    pub(super) sqe_bytes: u64,
    pub(super) cqe_bytes: u64,
    pub(super) prp_bytes: u64,
    /// What Identify and Get Log Page wrote.
    pub(super) admin_bytes: u64,
    /// All of the above that went into memory, and what failed on its way.
    pub(super) dma_write_bytes: u64,
    pub(super) dma_read_bytes: u64,
    pub(super) mmio_reads: u64,
    pub(super) mmio_read_bytes: u64,
    pub(super) mmio_writes: u64,
    pub(super) mmio_write_bytes: u64,
    pub(super) all_ones_reads: u64,
    pub(super) dropped_writes: u64,
    pub(super) refused: u64,
    pub(super) config_reads: u64,
    pub(super) config_writes: u64,
    pub(super) doorbells: u64,
    #[serde(skip)]
    pub(super) commands: [u64; Kind::ALL.len()],
    pub(super) completions: u64,
    /// By status type and code.
    #[serde(skip)]
    errors: BTreeMap<u16, u64>,
    pub(super) media_errors: u64,
    pub(super) interrupts: MessageCounts,
    /// How long the pipe was busy, at a rate.
    pub(super) busy_ns: u64,
    pub(super) enables: u64,
    pub(super) resets: u64,
    pub(super) violations: Vec<String>,
}

/// Messages of all vectors.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct MessageCounts {
    pub(super) raised: u64,
    pub(super) sent: u64,
    pub(super) undelivered: u64,
}

/// So many violations are kept.
const VIOLATIONS_MAX: usize = 32;

impl Ledger {
    pub(super) fn count(&mut self, kind: Kind) {
        self.commands[kind as usize] += 1;
    }

    pub(super) fn count_status(&mut self, status: Status) {
        self.completions += 1;
        if status != Status::SUCCESS {
            *self.errors.entry(status.code()).or_default() += 1;
        }
    }

    pub(super) fn violation(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(what);
        }
    }

    pub(super) fn commands_of(&self, kind: Kind) -> u64 {
        self.commands[kind as usize]
    }

    /// The fields of the answer to `ledger`.
    pub(super) fn to_json(&self) -> Value {
        let commands: Map<String, Value> =
            Kind::ALL.iter().map(|kind| (kind.name().to_owned(), self.commands_of(*kind).into())).collect();
        let errors: Map<String, Value> =
            self.errors.iter().map(|(code, count)| (format!("{code:#05x}"), (*count).into())).collect();
        let mut ledger = json!(self);
        ledger["commands"] = commands.into();
        ledger["errors"] = errors.into();
        ledger["errors_total"] = self.errors.values().sum::<u64>().into();
        ledger
    }
}
