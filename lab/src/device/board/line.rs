//! One interrupt line of the board: a level for the models, messages to the guest.

use serde_json::{Value, json};

/// A line with its foreign source and its part of the ledger.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InterruptLine {
    is_foreign: bool,
    /// The level when it was last looked at.
    is_high: bool,
    /// A message is to be sent.
    is_due: bool,
    messages: u64,
    undelivered: u64,
    foreign: u64,
}

impl InterruptLine {
    /// Takes the level of its sub-channels; a line that has gone high has a message to send.
    pub(super) fn look(&mut self, is_asserted: bool) {
        let is_high = is_asserted || self.is_foreign;
        self.is_due |= is_high && !self.is_high;
        self.is_high = is_high;
    }

    /// A source was written to with a register that may have taken the level away: if it did not, that is a message.
    pub(super) fn answer(&mut self) {
        self.is_high = false;
    }

    /// The foreign source asserts the line. One that does so already is heard again.
    pub(super) fn assert_foreign(&mut self) {
        self.is_foreign = true;
        self.is_high = false;
        self.foreign += 1;
    }

    pub(super) fn clear_foreign(&mut self) {
        self.is_foreign = false;
        self.answer();
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    pub(super) fn is_high(&self) -> bool {
        self.is_high
    }

    pub(super) fn has_message(&self) -> bool {
        self.is_due
    }

    pub(super) fn take_message(&mut self) -> bool {
        std::mem::take(&mut self.is_due)
    }

    pub(super) fn delivered(&mut self, sent: bool) {
        *(if sent { &mut self.messages } else { &mut self.undelivered }) += 1;
    }

    /// All quiet; the ledger stays.
    pub(super) fn reset(&mut self) {
        (self.is_foreign, self.is_high, self.is_due) = (false, false, false);
    }

    pub(super) fn ledger(&self) -> Value {
        json!({"messages": self.messages, "undelivered": self.undelivered, "foreign": self.foreign})
    }
}
