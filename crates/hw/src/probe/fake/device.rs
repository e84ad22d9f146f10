//! The registers of the synthetic device: docs/spec/latency-endpoint.md without what needs a clock or interrupts.

use pciescope_core::Bdf;

use super::super::register;
use super::machine::{BAR0_BYTES, BAR2_BYTES};
use crate::Error;

/// Registers, memory and counters.
#[derive(Debug, Clone)]
pub struct FakeDevice {
    scratch: u64,
    memory: Vec<u8>,
    reads: u64,
    writes: u64,
    events: u16,
    scratch_written: bool,
    ones_after: u64,
}

/// All-ones of a width in bytes.
pub fn ones(width: u8) -> u64 {
    u64::MAX >> (64 - 8 * u32::from(width))
}

impl FakeDevice {
    /// A device after reset that reads all-ones after `ones_after` reads (0: never).
    pub fn new(ones_after: u64) -> Self {
        FakeDevice {
            scratch: 0,
            memory: vec![0; BAR2_BYTES as usize],
            reads: 0,
            writes: 0,
            events: 0,
            scratch_written: false,
            ones_after,
        }
    }

    /// Refuses an access that the device does not have.
    pub fn check(&self, bdf: Bdf, bar: u8, offset: u64, width: u8) -> Result<(), Error> {
        let len = match bar {
            0 => BAR0_BYTES,
            2 => BAR2_BYTES,
            _ => {
                let why = "the device has BAR 0 and BAR 2".to_owned();
                return Err(Error::Plan { bdf, field: "BAR", value: bar.to_string(), why });
            }
        };
        register::check(bdf, bar, offset, width, len)
    }

    /// Reads a checked place.
    pub fn read(&mut self, bar: u8, offset: u64, width: u8) -> u64 {
        self.reads += 1;
        if self.ones_after > 0 && self.reads > self.ones_after {
            return ones(width);
        }
        if bar == 2 {
            let mut bytes = [0; 8];
            let from = offset as usize;
            bytes[..usize::from(width)].copy_from_slice(&self.memory[from..from + usize::from(width)]);
            return u64::from_le_bytes(bytes);
        }
        let part = |register: u64| register >> (8 * (offset & 7)) & ones(width);
        match offset & !7 {
            0x000 => part(0x0000_0001_5c0e_1a7e),
            0x008 => part(self.scratch),
            0x010 => part(self.reads),
            0x018 => part(self.writes),
            0x020 if offset == 0x24 => ones(width),
            0x020 => {
                self.events = self.events.wrapping_add(1);
                u64::from(self.events) << 16 & ones(width) | u64::from(std::mem::take(&mut self.scratch_written))
            }
            0x1000..=0x1ff8 => (0..u64::from(width)).fold(0, |value, i| {
                let o = offset + i;
                value | ((o ^ o >> 8) & 0xff) << (8 * i)
            }),
            _ => 0,
        }
    }

    /// Writes a checked place.
    pub fn write(&mut self, bar: u8, offset: u64, width: u8, value: u64) {
        if self.ones_after > 0 && self.reads > self.ones_after {
            return;
        }
        self.writes += 1;
        let value = value & ones(width);
        if bar == 2 {
            let from = offset as usize;
            self.memory[from..from + usize::from(width)].copy_from_slice(&value.to_le_bytes()[..usize::from(width)]);
        } else if offset & !7 == 8 {
            let shift = 8 * (offset & 7);
            self.scratch = self.scratch & !(ones(width) << shift) | value << shift;
            self.scratch_written = true;
        }
    }
}
