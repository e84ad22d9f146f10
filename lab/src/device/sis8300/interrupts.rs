//! The interrupt logic: registers 0x220 to 0x223.

use serde::Serialize;

use super::settings::{Latch, MessageRule};

pciescope_core::named! {
    /// What interrupts, with its bit.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Source {
        DmaRead => "dma",
        DmaWrite => "dma-write",
        Daq => "daq",
        User => "user",
    }
    fn name
}

impl Source {
    fn bit(self) -> u32 {
        match self {
            Source::DmaRead => 1 << 0,
            Source::DmaWrite => 1 << 1,
            Source::Daq => 1 << 14,
            Source::User => 1 << 15,
        }
    }
}

/// Bits that there are.
const BITS: u32 = 0xc003;

/// Interrupts of one source.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Count {
    /// What happened.
    pub(super) raised: u64,
    /// What was not latched, or whose message was kept back, by `lose`.
    pub(super) lost: u64,
    /// What happened while its enable bit was 0.
    pub(super) disabled: u64,
}

/// The losses that were asked for of a source.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    left: u64,
    /// The event itself, not only its message.
    is_event: bool,
}

/// The state of the logic.
#[derive(Clone, Debug, Default)]
pub(super) struct Interrupts {
    pub(super) enable: u32,
    pub(super) status: u32,
    /// Latched bits that were made not to count for the pin.
    muted: u32,
    /// The pin is up without a reason until the status is read.
    is_spurious: bool,
    was_high: bool,
    /// Messages that have to go out.
    pub(super) pending: u32,
    losses: [Loss; 4],
    pub(super) counts: [Count; 4],
    pub(super) spurious: u64,
}

impl Interrupts {
    /// The state of registers after a reset. What is to be lost, and what was counted, stays.
    pub(super) fn reset(&mut self) {
        (self.enable, self.status, self.muted, self.is_spurious, self.was_high) = (0, 0, 0, false, false);
        self.pending = 0;
    }

    /// What was counted, and what is to be lost, as at the start. The registers stay.
    pub(super) fn forget(&mut self) {
        (self.losses, self.counts, self.spurious) = Default::default();
    }

    pub(super) fn level(&self) -> bool {
        self.is_spurious || self.status & self.enable & !self.muted != 0
    }

    /// Something happened.
    pub(super) fn raise(&mut self, source: Source, latch: Latch, rule: MessageRule) {
        let (bit, count) = (source.bit(), &mut self.counts[source as usize]);
        count.raised += 1;
        let is_enabled = self.enable & bit != 0;
        count.disabled += u64::from(!is_enabled);
        if !is_enabled && latch == Latch::Enabled {
            return;
        }
        let loss = &mut self.losses[source as usize];
        let is_lost = loss.left > 0;
        if is_lost {
            loss.left -= 1;
            count.lost += 1;
            if loss.is_event {
                return;
            }
            self.muted |= bit & !self.status;
        } else {
            self.muted &= !bit;
        }
        self.status |= bit;
        if self.was_high && is_enabled && !is_lost && rule == MessageRule::Each {
            self.pending += 1;
        }
        self.settle();
    }

    /// The next interrupts of a source get lost: their message, or the event itself.
    pub(super) fn lose(&mut self, source: Source, left: u64, is_event: bool) {
        self.losses[source as usize] = Loss { left, is_event };
    }

    /// An interrupt without a reason.
    pub(super) fn raise_spurious(&mut self) {
        self.spurious += 1;
        self.is_spurious = true;
        if self.was_high {
            self.pending += 1;
        }
        self.settle();
    }

    /// A read of the status.
    pub(super) fn read_status(&mut self) -> u32 {
        self.is_spurious = false;
        self.settle();
        self.status
    }

    /// A write of the enable register: bit n sets, bit n + 16 clears. What is in both is cleared.
    pub(super) fn write_enable(&mut self, value: u32) {
        self.enable = (self.enable | value & BITS) & !(value >> 16);
        self.settle();
    }

    pub(super) fn clear(&mut self, value: u32) {
        self.status &= !value;
        self.muted &= self.status;
        self.settle();
    }

    /// Checks the pin once more: a message goes out if it is up.
    pub(super) fn refresh(&mut self) {
        self.pending += u32::from(self.level());
        self.was_high = self.level();
    }

    /// A message goes out when the pin goes up.
    fn settle(&mut self) {
        let level = self.level();
        self.pending += u32::from(level && !self.was_high);
        self.was_high = level;
    }
}
