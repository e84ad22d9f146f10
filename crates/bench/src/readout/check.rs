//! Compares the read data with what it should be, outside of the timed window.

use std::fmt;

use pciescope_hw::daq::samples::Origin;

/// The bytes of function 100's pattern come round after so many, as the seed's tool has it (CHAR_MAX).
const PATTERN: u64 = 127;

/// Fills `to` with the pattern, its first byte at address `at` of the card.
pub(super) fn fill_pattern(at: u64, to: &mut [u8]) {
    let phase = at % PATTERN;
    for (number, byte) in (phase..).zip(to) {
        *byte = (number % PATTERN) as u8;
    }
}

/// The properties of a virtual board's acquisition that its samples depend on.
#[derive(Debug, Clone)]
pub(super) struct Lab {
    pub seed: u64,
    pub serial: u32,
    /// 0: memory that no acquisition has reached.
    pub acquisition: u64,
    /// The channels that are on, by number.
    pub channels: Vec<u8>,
    /// Samples per channel.
    pub samples: u64,
}

impl Lab {
    /// Fills `to` with the content of card memory from byte `at` on.
    fn fill(&self, at: u64, to: &mut [u8]) {
        let origin = |channel| Origin { seed: self.seed, serial: self.serial, acquisition: self.acquisition, channel };
        // Memory that was never written is one channel without end.
        if self.acquisition == 0 {
            return origin(0).fill(at, to);
        }
        let of_channel = (self.samples * 2).max(1);
        let (mut at, mut rest) = (at, to);
        while !rest.is_empty() {
            let (place, first) = (at / of_channel, at % of_channel);
            let len = usize::try_from(of_channel - first).map_or(rest.len(), |len| len.min(rest.len()));
            let (part, later) = rest.split_at_mut(len);
            match self.channels.get(place as usize) {
                Some(channel) => origin(*channel).fill(first, part),
                // Behind the last channel there is nothing of this acquisition.
                None => part.fill(0),
            }
            (at, rest) = (at + len as u64, later);
        }
    }
}

/// What a reading has to be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expected<'e> {
    Bytes(&'e [u8]),
    Pattern,
    Lab(&'e Lab),
}

/// A byte that is not as it has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wrong {
    pub at: u64,
    pub found: u8,
    pub expected: u8,
}

impl fmt::Display for Wrong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "at byte {:#x} {:#04x} instead of {:#04x}", self.at, self.found, self.expected)
    }
}

/// What a comparison found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Finding {
    /// Bytes.
    pub right: u64,
    /// Bytes.
    pub wrong: u64,
    pub first: Option<Wrong>,
}

impl Finding {
    pub fn merge(&mut self, other: &Finding) {
        self.right += other.right;
        self.wrong += other.wrong;
        self.first = self.first.or(other.first);
    }
}

/// Compared at once; an even number, so that a sample is never cut.
const PART: usize = 64 << 10;

/// Compares a reading, or a piece of one that begins at byte `at` of it, with what it should be.
pub(super) fn compare(expected: Expected<'_>, at: u64, found: &[u8]) -> Finding {
    let mut finding = Finding::default();
    let mut scratch = vec![0; PART.min(found.len())];
    for (number, part) in found.chunks(PART).enumerate() {
        let from = at + (number * PART) as u64;
        let scratch = &mut scratch[..part.len()];
        let wanted: &[u8] = match expected {
            Expected::Bytes(bytes) => &bytes[from as usize..from as usize + part.len()],
            Expected::Pattern => {
                fill_pattern(from, scratch);
                scratch
            }
            Expected::Lab(lab) => {
                lab.fill(from, scratch);
                scratch
            }
        };
        if wanted == part {
            finding.right += part.len() as u64;
            continue;
        }
        for (place, (expected, found)) in (from..).zip(wanted.iter().zip(part)) {
            if expected == found {
                finding.right += 1;
                continue;
            }
            finding.wrong += 1;
            finding.first.get_or_insert(Wrong { at: place, found: *found, expected: *expected });
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use pciescope_core::Check;

    use super::*;

    #[test]
    fn a_check_is_parsed() {
        assert_eq!("lab:7".parse(), Ok(Check::Lab { seed: 7 }));
        assert_eq!("lab".parse(), Ok(Check::Lab { seed: 1 }));
        assert_eq!("same".parse(), Ok(Check::Same));
        for bad in ["", "lab:x", "same:1", "crc"] {
            assert!(bad.parse::<Check>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_wrong_byte_is_counted_and_the_first_is_named() {
        let mut data = vec![0; 3 * PART + 20];
        fill_pattern(0, &mut data);
        assert_eq!((data[126], data[127], data[254]), (126, 0, 0));
        let all = compare(Expected::Pattern, 0, &data);
        assert_eq!((all.right, all.wrong, all.first), (data.len() as u64, 0, None));
        data[PART + 3] ^= 1;
        data[2 * PART] ^= 0x80;
        let found = compare(Expected::Pattern, 0, &data);
        assert_eq!((found.right, found.wrong), (data.len() as u64 - 2, 2));
        assert_eq!(found.first.map(|wrong| wrong.at), Some(PART as u64 + 3));
        // A piece in the middle has the same answer.
        let piece = compare(Expected::Pattern, PART as u64, &data[PART..PART + 10]);
        assert_eq!((piece.wrong, piece.first), (1, found.first));
        let good = data.clone();
        assert_eq!(compare(Expected::Bytes(&good), 7, &data[7..]).wrong, 0);
    }

    #[test]
    fn samples_of_the_lab_lie_channel_by_channel() {
        let lab = Lab { seed: 1, serial: 1234, acquisition: 3, channels: vec![0, 2, 9], samples: 48 };
        let mut memory = vec![0; 3 * 96];
        lab.fill(0, &mut memory);
        let sample = |acquisition, channel, i: u64| {
            let mut sample = [0; 2];
            Origin { seed: 1, serial: 1234, acquisition, channel }.fill(2 * i, &mut sample);
            sample
        };
        for (place, channel, i) in [(0, 0, 0), (47, 0, 47), (48, 2, 0), (100, 9, 4), (143, 9, 47)] {
            assert_eq!(memory[2 * place..2 * place + 2], sample(3, channel, i), "sample {place}");
        }
        // From any place on.
        let mut part = vec![0; 20];
        lab.fill(94, &mut part);
        assert_eq!(part, memory[94..114]);
        let untouched = Lab { acquisition: 0, ..lab };
        untouched.fill(200, &mut part);
        assert_eq!(part[..2], sample(0, 0, 100));
    }
}
