//! The right answer of a test with a disk: what the disk moved and did. The guest cannot change it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::wire::Status;

/// What commands ask for, as far as they are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Admin,
    Read,
    Write,
    Flush,
    WriteZeroes,
    Other,
}

const KINDS: [(Kind, &str); 6] = [
    (Kind::Admin, "admin"),
    (Kind::Read, "read"),
    (Kind::Write, "write"),
    (Kind::Flush, "flush"),
    (Kind::WriteZeroes, "write_zeroes"),
    (Kind::Other, "other"),
];

/// Everything that is counted for one disk, since it was made or `reset`.
#[derive(Clone, Debug, Default)]
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
    pub(super) commands: [u64; KINDS.len()],
    pub(super) completions: u64,
    /// By status type and code.
    errors: BTreeMap<u16, u64>,
    pub(super) media_errors: u64,
    pub(super) interrupts_raised: u64,
    pub(super) interrupts_sent: u64,
    pub(super) interrupts_undelivered: u64,
    /// How long the pipe was busy, at a rate.
    pub(super) busy_ns: u64,
    pub(super) enables: u64,
    pub(super) resets: u64,
    pub(super) violations: Vec<String>,
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
            KINDS.iter().map(|(kind, name)| ((*name).to_owned(), self.commands_of(*kind).into())).collect();
        let errors: Map<String, Value> =
            self.errors.iter().map(|(code, count)| (format!("{code:#05x}"), (*count).into())).collect();
        json!({
            "data_read_bytes": self.data_read_bytes, "data_written_bytes": self.data_written_bytes,
            "sqe_bytes": self.sqe_bytes, "cqe_bytes": self.cqe_bytes, "prp_bytes": self.prp_bytes,
            "admin_bytes": self.admin_bytes,
            "dma_write_bytes": self.dma_write_bytes, "dma_read_bytes": self.dma_read_bytes,
            "mmio_reads": self.mmio_reads, "mmio_read_bytes": self.mmio_read_bytes,
            "mmio_writes": self.mmio_writes, "mmio_write_bytes": self.mmio_write_bytes,
            "all_ones_reads": self.all_ones_reads, "dropped_writes": self.dropped_writes, "refused": self.refused,
            "config_reads": self.config_reads, "config_writes": self.config_writes,
            "doorbells": self.doorbells, "commands": commands, "completions": self.completions,
            "errors": errors, "errors_total": self.errors.values().sum::<u64>(), "media_errors": self.media_errors,
            "interrupts": {"raised": self.interrupts_raised, "sent": self.interrupts_sent,
                           "undelivered": self.interrupts_undelivered},
            "busy_ns": self.busy_ns, "enables": self.enables, "resets": self.resets, "violations": self.violations,
        })
    }
}
