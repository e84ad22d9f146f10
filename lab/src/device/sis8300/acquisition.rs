//! The sample logic: armed, sampling, flushing. Registers 0x10, 0x11 and 0x120 to 0x12b.

use super::trigger::{Generator, PULSE_NS};
use super::{CHANNELS, Model};

/// Bytes of a block of card memory: 16 samples.
pub(super) const BLOCK_BYTES: u64 = 32;
pub(super) const BLOCK_SAMPLES: u64 = 16;
/// Register 0x11: internal and external trigger.
const INTERNAL: u32 = 1 << 10;
const EXTERNAL: u32 = 1 << 11;
/// Registers 0x100 to 0x109: the channel takes part in the internal trigger.
const CHANNEL_TRIGGER: u32 = 1 << 26;

pciescope_core::named! {
    /// What began an acquisition.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Cause {
        Now => "now",
        Signal => "signal",
        Mlvds => "mlvds",
        Front => "front",
    }
    fn name
}

/// An acquisition that began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acquisition {
    pub(super) number: u64,
    pub(super) cause: Cause,
    pub(super) begun_ns: u64,
    /// `None`: it never ends by itself.
    pub(super) end_ns: Option<u64>,
    /// Channels that store, by bit.
    pub(super) channels: u32,
    /// Blocks of each.
    pub(super) blocks: u64,
    /// First blocks.
    pub(super) start: [u32; CHANNELS],
}

impl Acquisition {
    /// Whether two channels store into the same blocks.
    pub(super) fn overlaps(&self) -> bool {
        let mut first: Vec<u64> = (0..CHANNELS)
            .filter(|channel| self.channels >> channel & 1 != 0)
            .map(|channel| self.start[channel].into())
            .collect();
        first.sort_unstable();
        first.windows(2).any(|pair| pair[1] - pair[0] < self.blocks)
    }
}

/// What the sample logic does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Idle,
    /// Since when.
    Armed(u64),
    Sampling(Acquisition),
    /// The FIFO runs empty until then; `is_end`: of an acquisition that came to its end.
    Flushing {
        until_ns: u64,
        run: Acquisition,
        is_end: bool,
    },
}

/// Its registers and state.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    pub(super) model: Model,
    /// 0x11.
    pub(super) control: u32,
    /// 0x12 and 0x13 as written.
    pub(super) mlvds: u32,
    pub(super) front: u32,
    /// 0x100 to 0x109.
    pub(super) triggers: [u32; CHANNELS],
    /// 0x120 to 0x129 as written.
    pub(super) start: [u32; CHANNELS],
    /// What was latched, and then the blocks behind the last ones that were stored.
    pub(super) actual: [u32; CHANNELS],
    /// 0x12a as written.
    pub(super) length: u32,
    /// 0x12b.
    pub(super) pretrigger: u32,
    pub(super) phase: Phase,
}

impl Sampler {
    pub(super) fn new(model: Model) -> Self {
        Sampler {
            model,
            control: 0,
            mlvds: 0,
            front: 0,
            triggers: [0; CHANNELS],
            start: [0; CHANNELS],
            actual: [0; CHANNELS],
            length: 0,
            pretrigger: 0,
            phase: Phase::Idle,
        }
    }

    /// What 0x10 shows, without the state of the memory.
    pub(super) fn status(&self) -> u32 {
        match self.phase {
            Phase::Idle => 0,
            Phase::Armed(_) => 0b10,
            Phase::Sampling(_) => 0b11_0001,
            Phase::Flushing { .. } => 0b11_0000,
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        matches!(self.phase, Phase::Sampling(_) | Phase::Flushing { .. })
    }

    pub(super) fn write_start(&mut self, channel: usize, value: u32) {
        self.start[channel] = match self.model {
            Model::Sis8300 => value & 0x00ff_ffff,
            Model::L | Model::L2 => value & 0x03ff_ffff,
            Model::Ku => value & 0x03ff_fffe,
        };
    }

    /// Blocks that each channel stores.
    pub(super) fn blocks(&self) -> u64 {
        match self.model {
            Model::Ku => u64::from(self.length | 1) + 1,
            _ => u64::from(self.length) + 1,
        }
    }

    /// The start command or a trigger latches the first blocks (a trigger: those of the arming).
    pub(super) fn latch(&mut self) {
        self.actual = self.start;
    }

    /// Channels that store, by bit.
    pub(super) fn channels(&self) -> u32 {
        !self.control & 0x3ff
    }

    /// What a pulse of the generator would start: the cause, and how long after its rise.
    pub(super) fn trigger(&self, generator: &Generator) -> Option<(Cause, u64)> {
        let lines = generator.lines;
        let is_armed_by_channel = |channel: usize| self.triggers[channel] & CHANNEL_TRIGGER != 0;
        if self.control & INTERNAL != 0 && lines.has_signal && (0..CHANNELS).any(is_armed_by_channel) {
            return Some((Cause::Signal, 0));
        }
        if self.control & EXTERNAL == 0 {
            return None;
        }
        let mlvds = self.mlvds >> 8 & u32::from(lines.mlvds);
        let front = self.front >> 8 & u32::from(lines.front) & 0xf;
        // Of several lines the first edge counts, and a pulse rises before it falls.
        let edges = [(Cause::Mlvds, mlvds, self.mlvds & 0xff), (Cause::Front, front, self.front >> 12 & 0xf)];
        let rising = edges.iter().find(|(_, lines, falling)| lines & !falling != 0);
        let falling = edges.iter().find(|(_, lines, falling)| lines & falling != 0);
        rising.map(|edge| (edge.0, 0)).or(falling.map(|edge| (edge.0, PULSE_NS)))
    }
}
