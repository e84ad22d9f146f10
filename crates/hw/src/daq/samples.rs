//! The numbers that a virtual board stores: docs/spec/sis8300.md, "Samples of the virtual board".

/// Where numbers come from: one channel of one acquisition of one board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The board's setting.
    pub seed: u64,
    /// Register 0x01.
    pub serial: u32,
    /// From 1; 0 for memory that nothing was stored in.
    pub acquisition: u64,
    /// From 0.
    pub channel: u8,
}

impl Origin {
    /// Writes bytes of the samples into `to`, beginning with byte `first` of the first sample.
    pub fn fill(&self, first: u64, to: &mut [u8]) {
        let key = self.key();
        let (mut word, skip) = (first / 8, (first % 8) as usize);
        let (head, rest) = to.split_at_mut(to.len().min((8 - skip) % 8));
        if !head.is_empty() {
            let len = head.len();
            head.copy_from_slice(&number(key, word)[skip..skip + len]);
            word += 1;
        }
        let mut words = rest.chunks_exact_mut(8);
        for part in &mut words {
            part.copy_from_slice(&number(key, word));
            word += 1;
        }
        let tail = words.into_remainder();
        tail.copy_from_slice(&number(key, word)[..tail.len()]);
    }

    fn key(&self) -> u64 {
        let board = mix(mix(self.seed.wrapping_add(STEP)).wrapping_add(self.serial.into()));
        let which = self.acquisition.wrapping_mul(16).wrapping_add(self.channel.into());
        mix(board.wrapping_add(which))
    }
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn number(key: u64, word: u64) -> [u8; 8] {
    mix(key.wrapping_add(word.wrapping_mul(STEP))).to_le_bytes()
}

fn mix(mut x: u64) -> u64 {
    x ^= x >> 32;
    x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ x >> 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ORIGIN: Origin = Origin { seed: 1, serial: 3, acquisition: 7, channel: 9 };

    /// Computed by hand from the page's text, in another language.
    #[test]
    fn the_first_samples_are_those_of_the_page() {
        let mut bytes = [0; 16];
        ORIGIN.fill(0, &mut bytes);
        let samples: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        assert_eq!(samples, EXPECTED);
    }

    const EXPECTED: [u16; 8] = [0x533c, 0x360c, 0x59b1, 0x0c18, 0x0751, 0x591c, 0x23bb, 0x3b34];

    proptest! {
        #[test]
        fn a_part_is_what_the_whole_has_there(first in 0usize..100, len in 0usize..100) {
            let mut whole = [0; 200];
            ORIGIN.fill(0, &mut whole);
            let mut part = vec![0; len];
            ORIGIN.fill(first as u64, &mut part);
            prop_assert_eq!(&part, &whole[first..first + len]);
        }
    }
}
