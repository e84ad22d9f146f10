//! Rings of commands and completions in the guest's memory. NVM Express Base Specification 1.4, section 4.1.

use std::collections::VecDeque;

use super::wire::{CQE_BYTES, Completion, SQE_BYTES};

/// The guest puts commands in, the controller takes them out.
#[derive(Clone, Debug)]
pub(super) struct SubmissionQueue {
    base: u64,
    entries: u16,
    pub(super) head: u16,
    tail: u16,
    /// The completion queue it answers into.
    pub(super) completions: u16,
    /// When the guest last moved the tail, on the device's clock.
    pub(super) rung_ns: u64,
}

impl SubmissionQueue {
    pub(super) fn new(base: u64, entries: u16, completions: u16) -> Self {
        SubmissionQueue { base, entries, head: 0, tail: 0, completions, rung_ns: 0 }
    }

    /// The guest's doorbell. `false`: no such entry.
    #[must_use]
    pub(super) fn ring(&mut self, tail: u32, now_ns: u64) -> bool {
        match u16::try_from(tail) {
            Ok(tail) if tail < self.entries => {
                (self.tail, self.rung_ns) = (tail, now_ns);
                true
            }
            _ => false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Where the next command lies.
    pub(super) fn next_address(&self) -> u64 {
        self.base.wrapping_add(u64::from(self.head) * SQE_BYTES as u64)
    }

    /// The next command was taken.
    pub(super) fn advance(&mut self) {
        self.head = if self.head + 1 == self.entries { 0 } else { self.head + 1 };
    }
}

/// The controller puts completions in, the guest takes them out.
#[derive(Clone, Debug)]
pub(super) struct CompletionQueue {
    base: u64,
    entries: u16,
    head: u16,
    tail: u16,
    phase: bool,
    /// Where it interrupts, if it does.
    pub(super) vector: Option<u16>,
    /// Completions for which there was no room.
    pub(super) waiting: VecDeque<Completion>,
}

impl CompletionQueue {
    pub(super) fn new(base: u64, entries: u16, vector: Option<u16>) -> Self {
        CompletionQueue { base, entries, head: 0, tail: 0, phase: true, vector, waiting: VecDeque::new() }
    }

    /// The guest's doorbell. `false`: no such entry.
    #[must_use]
    pub(super) fn ring(&mut self, head: u32) -> bool {
        match u16::try_from(head) {
            Ok(head) if head < self.entries => {
                self.head = head;
                true
            }
            _ => false,
        }
    }

    fn following(&self) -> u16 {
        if self.tail + 1 == self.entries { 0 } else { self.tail + 1 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.following() == self.head
    }

    /// Whether the guest has not taken everything yet.
    pub(super) fn is_pending(&self) -> bool {
        self.head != self.tail
    }

    /// Where the next completion goes, and its phase.
    pub(super) fn next(&self) -> (u64, bool) {
        (self.base.wrapping_add(u64::from(self.tail) * CQE_BYTES as u64), self.phase)
    }

    /// The next completion was written.
    pub(super) fn advance(&mut self) {
        self.tail = self.following();
        self.phase ^= self.tail == 0;
    }
}
