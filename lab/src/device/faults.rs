//! The faults and delays that the control socket sets, the same for every device.

use super::Wait;
use super::bus::{Bus, Message};
use super::delay::{Delay, Strikes};
use super::ledger::Ledger;

/// What a completion time-out takes unless set otherwise, in nanoseconds.
const COMPLETION_TIMEOUT_NS: u64 = 50_000_000;

/// Settings of the control socket, and how far they have gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub(super) read_delay: Delay,
    pub(super) write_delay: Delay,
    pub(super) config_delay: Delay,
    pub(super) irq_delay: Delay,
    /// What leaving L0s and L1 takes, by their bits of ASPM Control; `None` of a state that the link does not have.
    pub(super) aspm_exit_ns: [Option<u64>; 2],
    pub(super) lose: Strikes,
    pub(super) double: Strikes,
    pub(super) double_gap_ns: u64,
    /// Reads that are still answered.
    pub(super) reads_left: Option<u64>,
    /// Reads that are answered by all-ones; the ones after them are answered again.
    pub(super) ones_left: u64,
    pub(super) is_removed: bool,
    pub(super) completion_timeout_ns: Option<u64>,
}

impl Faults {
    /// Takes the device away, configuration space included.
    pub fn remove(&mut self) {
        self.is_removed = true;
    }

    /// Whether the device was taken away, configuration space included.
    pub fn is_removed(&self) -> bool {
        self.is_removed
    }

    /// Whether the BARs answer no more.
    pub fn is_gone(&self) -> bool {
        self.is_removed || self.reads_left == Some(0)
    }

    /// A read of a BAR: how long it waits, or `None` if the answer is all-ones. A read without an answer (`is_answered` is
    /// false) takes the completion time-out instead of a delay.
    pub fn admit_read(&mut self, is_answered: bool, ledger: &mut Ledger) -> Option<Wait> {
        if self.is_gone() {
            ledger.all_ones_reads += 1;
            return None;
        }
        if self.ones_left > 0 {
            self.ones_left -= 1;
            ledger.all_ones_reads += 1;
            return None;
        }
        if let Some(left) = &mut self.reads_left {
            *left -= 1;
        }
        if !is_answered {
            return Some(self.completion_timeout_ns.unwrap_or(COMPLETION_TIMEOUT_NS));
        }
        Some(wait(&mut self.read_delay, |time| ledger.read_delay.count(time)))
    }

    /// The states of ASPM that the link has, as ASPM Support of Link Capabilities.
    pub fn aspm_support(&self) -> u8 {
        self.aspm_exit_ns.iter().zip([1, 2]).map(|(exit, bit)| if exit.is_some() { bit } else { 0 }).sum()
    }

    /// How long a read waits for its link more, in the longer one of the states that `control` enables.
    pub fn leave_aspm(&self, control: u8, ledger: &mut Ledger) -> Wait {
        let enabled = self.aspm_exit_ns.iter().zip([1, 2]).filter(|(_, bit)| control & bit != 0);
        let Some(time) = enabled.filter_map(|(exit, _)| *exit).max() else { return 0 };
        ledger.aspm_exit.count(time);
        time
    }

    /// A write of a BAR: how long it waits, or `None` if the device does not take it.
    pub fn admit_write(&mut self, ledger: &mut Ledger) -> Option<Wait> {
        if self.is_gone() {
            ledger.dropped_writes += 1;
            return None;
        }
        Some(wait(&mut self.write_delay, |time| ledger.write_delay.count(time)))
    }

    /// An access to configuration space: how long it waits, or `None` if the device does not see it.
    pub fn admit_config(&mut self) -> Option<Wait> {
        (!self.is_removed).then(|| wait(&mut self.config_delay, |_| {}))
    }

    /// Sends the message of a raised vector, unless it is to be lost, and twice if it is to be doubled. Each message
    /// draws from the loss, and each that is not lost from the doubling and the delay.
    pub fn send(&mut self, vector: u16, ledger: &mut Ledger, bus: &mut dyn Bus) {
        let Some(irq) = ledger.irq.get_mut(usize::from(vector)) else { return };
        if self.lose.strikes_next() {
            irq.lost += 1;
            return;
        }
        let delay_ns = wait(&mut self.irq_delay, |time| ledger.irq_delay.count(time));
        bus.send(Message { vector, delay_ns, is_copy: false });
        if self.double.strikes_next() {
            bus.send(Message { vector, delay_ns: delay_ns + self.double_gap_ns, is_copy: true });
        }
    }
}

fn wait(delay: &mut Delay, count: impl FnOnce(u64)) -> Wait {
    let Some(time) = delay.next_ns() else { return 0 };
    count(time);
    time
}
