//! Registers of a function's PCI Express capability that the board answers in place of QEMU's function, bit by bit.
//! docs/spec/counter-board.md, "Link registers".

use super::command::CommandError;
use super::words::{Words, parse_number};

/// The dwords of the capability that can be replaced, by their offset: link, slot, link 2, the capabilities of both
/// links and of the device, and Device Control.
pub const DWORDS: [usize; 7] = [0x10, 0x18, 0x30, 0x0c, 0x2c, 0x04, 0x08];
/// Bits that software clears by writing 1, in the same order: LBMS and LABS; the slot's events.
const CLEARED: [u32; 7] = [0xc000 << 16, 0x011f << 16, 0, 0, 0, 0, 0];
/// Bits that software sets: the payload size, where it is one that the port was told to answer.
const WRITTEN: [u32; 7] = [0, 0, 0, 0, 0, 0, 0x00e0];
/// Bytes that they take at the beginning of the function's configuration page: value and mask of each.
pub const BYTES: u64 = 8 * DWORDS.len() as u64;

/// What one function shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Express {
    values: [u32; DWORDS.len()],
    masks: [u32; DWORDS.len()],
}

impl Express {
    /// The dword at an offset of the page.
    pub fn read(&self, offset: usize) -> u32 {
        let of = if offset % 8 == 0 { &self.values } else { &self.masks };
        of.get(offset / 8).copied().unwrap_or(0)
    }

    /// A write of the guest to the register that the page's byte stands for: it clears what is cleared by writing 1, and
    /// sets what software sets.
    pub fn write(&mut self, offset: usize, from: &[u8]) {
        for (at, byte) in from.iter().enumerate() {
            let (place, shift) = ((offset + at) / 8, (offset + at) % 8 * 8);
            if let (Some(value), true) = (self.values.get_mut(place), shift < 32) {
                let set = WRITTEN[place] & 0xff << shift;
                *value =
                    *value & !(u32::from(*byte) << shift & CLEARED[place]) & !set | u32::from(*byte) << shift & set;
            }
        }
    }

    /// `OFFSET VALUE MASK`: in the bits of MASK the dword at OFFSET shows VALUE; the other bits stay as they were told.
    /// `plain`: everything is the function's own again.
    pub fn command(&mut self, rest: &[&str]) -> Result<(), CommandError> {
        let mut words = Words { command: "port express", rest };
        if words.takes("plain") {
            *self = Express::default();
            return words.end();
        }
        let number = |word: &str| parse_number(word).and_then(|number| u32::try_from(number).ok());
        let place = words.parsed("an offset", "0x04, 0x08, 0x0c, 0x10, 0x18, 0x2c or 0x30", |word| {
            DWORDS.iter().position(|known| number(word) == Some(*known as u32))
        })?;
        let value = words.parsed("a value", "a number below 2^32", number)?;
        let mask = words.parsed("a mask", "a number below 2^32", number)?;
        words.end()?;
        self.values[place] = self.values[place] & !mask | value & mask;
        self.masks[place] |= mask;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_it_was_told_and_clears_what_is_written() {
        let mut express = Express::default();
        express.command(&["0x10", "0xc0430000", "0xc3ff0000"]).unwrap();
        express.command(&["0x30", "1", "0xf"]).unwrap();
        assert_eq!([0, 4, 8, 12, 16, 20].map(|at| express.read(at)), [0xc043_0000, 0xc3ff_0000, 0, 0, 1, 0xf]);
        // A later command leaves other bits alone.
        express.command(&["0x10", "0x00420000", "0x03ff0000"]).unwrap();
        assert_eq!(express.read(0), 0xc042_0000);
        // The guest clears LBMS, and nothing else.
        express.write(2, &0x4001u16.to_le_bytes());
        assert_eq!(express.read(0), 0x8042_0000);
        // It sets the payload size, one byte of Device Control.
        express.command(&["0x08", "0x20", "0xe0"]).unwrap();
        express.write(48, &0x5fu16.to_le_bytes());
        assert_eq!((express.read(48), express.read(52)), (0x40, 0xe0));
        express.command(&["plain"]).unwrap();
        assert_eq!(express, Express::default());
        for bad in [vec![], vec!["0x12", "0", "0"], vec!["0x10", "0"], vec!["0x10", "0", "x"], vec!["plain", "x"]] {
            assert!(express.command(&bad).is_err(), "{bad:?}");
        }
    }
}
