//! The clock distribution: which clock the ADCs sample with. Registers 0x40 to 0x42, and the chips behind them.

use super::settings::Clocks;

/// The on-board oscillator.
pub(super) const INTERNAL_HZ: u64 = 250_000_000;
/// What a transfer of 24 bits to a chip takes.
const SPI_NS: u64 = 2_000;

const COMMAND: u32 = 3 << 30;
const COMMAND_ACCESS: u32 = 1 << 30;
const READ: u32 = 1 << 23;
const BUSY: u32 = 1 << 31;
/// What 0x41 shows beside data and busy: function level and sync clock select.
const FUNCTION: u32 = 3 << 28;

/// AD9510: the reset of all other registers, in that of the serial port.
const SERIAL_PORT: usize = 0x00;
const SOFT_RESET: u32 = 1 << 5;
/// AD9510: "update registers" brings what was written into effect.
const UPDATE: usize = 0x5a;
/// AD9510: divider of OUT7 and its bypass, which the ADCs' clocks are taken to follow.
const DIVIDER: usize = 0x56;
const BYPASS: usize = 0x57;

/// A chip's registers.
#[derive(Clone, Debug)]
struct Chip {
    written: [u8; 256],
    /// What is in effect.
    active: [u8; 256],
}

impl Chip {
    fn ad9510() -> Self {
        let mut written = [0; 256];
        // Serial port: long instructions; dividers of OUT2 and OUT6: 4, of OUT3 and OUT7: 8, as the data sheet has them.
        written[0] = 0x10;
        (written[0x4c], written[0x4e], written[0x54], written[0x56]) = (0x11, 0x33, 0x11, 0x33);
        Chip { written, active: written }
    }

    fn ad9268() -> Self {
        let mut written = [0; 256];
        (written[0x00], written[0x01]) = (0x18, 0x32);
        Chip { written, active: written }
    }
}

/// The clocks of a board.
#[derive(Clone, Debug)]
pub(super) struct ClockTree {
    /// Register 0x40.
    pub(super) mux: u32,
    dividers: [Chip; 2],
    converters: [Chip; 5],
    /// What 0x41 shows.
    spi: u32,
    spi_until: u64,
    converter: u32,
    converter_until: u64,
}

impl Default for ClockTree {
    fn default() -> Self {
        ClockTree {
            mux: 0,
            dividers: [Chip::ad9510(), Chip::ad9510()],
            converters: std::array::from_fn(|_| Chip::ad9268()),
            spi: 1 << 29,
            spi_until: 0,
            converter: 0,
            converter_until: 0,
        }
    }
}

impl ClockTree {
    /// Register 0x41.
    pub(super) fn read_spi(&self, now_ns: u64) -> u32 {
        self.spi | if now_ns < self.spi_until { BUSY } else { 0 }
    }

    /// Register 0x41. `false`: it was busy, and the write is lost.
    pub(super) fn write_spi(&mut self, now_ns: u64, value: u32) -> bool {
        if now_ns < self.spi_until {
            return false;
        }
        self.spi = value & FUNCTION | self.spi & 0xff;
        if value & COMMAND != COMMAND_ACCESS {
            return true;
        }
        self.spi_until = now_ns + SPI_NS;
        let chip = &mut self.dividers[(value >> 24 & 1) as usize];
        let at = (value >> 8 & 0xff) as usize;
        if value & READ != 0 {
            self.spi = self.spi & FUNCTION | u32::from(chip.written[at]);
        } else if at == SERIAL_PORT && value & SOFT_RESET != 0 {
            *chip = Chip::ad9510();
        } else if at == UPDATE {
            // The bit clears itself.
            if value & 1 != 0 {
                chip.active = chip.written;
            }
        } else {
            chip.written[at] = value as u8;
        }
        true
    }

    /// Register 0x48.
    pub(super) fn read_converter(&self, now_ns: u64) -> u32 {
        self.converter | if now_ns < self.converter_until { BUSY } else { 0 }
    }

    /// Register 0x48. `false`: it was busy, and the write is lost.
    pub(super) fn write_converter(&mut self, now_ns: u64, value: u32) -> bool {
        if now_ns < self.converter_until {
            return false;
        }
        if value & BUSY != 0 {
            // The synchronisation of the chips.
            return true;
        }
        self.converter_until = now_ns + SPI_NS;
        self.converter = value & 0x0700_0000;
        let Some(chip) = self.converters.get_mut((value >> 24 & 7) as usize) else { return true };
        let at = (value >> 8 & 0xff) as usize;
        if value & READ != 0 {
            self.converter |= u32::from(chip.written[at]);
        } else if !matches!(at, 0x01 | 0x02 | 0xff) {
            chip.written[at] = value as u8;
        }
        true
    }

    /// The divider that is in effect, 1 to 32.
    pub(super) fn divider(&self) -> u32 {
        let chip = &self.dividers[0].active;
        if chip[BYPASS] & 0x80 != 0 {
            return 1;
        }
        let cycles = chip[DIVIDER];
        u32::from(cycles >> 4) + u32::from(cycles & 0xf) + 2
    }

    /// The frequency before the divider, in Hz; 0 where no clock is connected.
    pub(super) fn source_hz(&self, clocks: &Clocks) -> u64 {
        let mux_a = match self.mux & 3 {
            0 => clocks.rtm2,
            1 => clocks.tclkb,
            2 => clocks.tclka,
            _ => INTERNAL_HZ,
        };
        match self.mux >> 8 & 3 {
            0 => mux_a,
            1 => clocks.multiplier,
            2 => clocks.front,
            _ => clocks.sma,
        }
    }

    /// What so many samples take, in nanoseconds; `None`: there is no clock.
    pub(super) fn duration_ns(&self, samples: u64, clocks: &Clocks) -> Option<u64> {
        let hz = u128::from(self.source_hz(clocks));
        let cycles = u128::from(samples) * u128::from(self.divider()) * 1_000_000_000;
        u64::try_from(cycles.checked_add(hz.checked_sub(1)?)? / hz).ok()
    }

    /// How many samples fit into a time.
    pub(super) fn samples_in(&self, ns: u64, clocks: &Clocks) -> u64 {
        let cycles = u128::from(ns) * u128::from(self.source_hz(clocks)) / 1_000_000_000;
        (cycles / u128::from(self.divider())) as u64
    }
}
