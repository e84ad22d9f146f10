//! The medium: it may have any size, and only bytes that were written take memory.

use std::collections::HashMap;

/// Bytes are kept in pieces of this size.
const PIECE: usize = 64 << 10;

/// What bytes read as that were never written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// Zeros.
    #[default]
    Zeros,
    /// The pattern of this seed, see [`pattern`].
    Pattern(u64),
}

/// The 8 bytes at `offset` (a multiple of 8) of the pattern of a seed, as a little-endian number: SplitMix64's output for
/// the state `seed + (offset / 8 + 1) * 0x9e3779b97f4a7c15`. So every byte can be computed by itself.
pub fn pattern(seed: u64, offset: u64) -> u64 {
    let state = seed.wrapping_add((offset / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A piece that was written, in whole or in part.
#[derive(Clone, Debug)]
enum Stored {
    Zeros,
    Bytes(Box<[u8]>),
}

/// The bytes of a disk.
#[derive(Clone, Debug)]
pub(super) struct Store {
    size: u64,
    fill: Fill,
    pieces: HashMap<u64, Stored>,
    /// Where bytes are made that nobody wrote; always one piece long.
    scratch: Box<[u8]>,
    zeros: Box<[u8]>,
}

impl Store {
    pub(super) fn new(size: u64, fill: Fill) -> Self {
        let piece = || vec![0; PIECE].into_boxed_slice();
        Store { size, fill, pieces: HashMap::new(), scratch: piece(), zeros: piece() }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn fill(&self) -> Fill {
        self.fill
    }

    /// Bytes of memory that the medium takes.
    pub(super) fn stored(&self) -> u64 {
        self.pieces.values().filter(|piece| matches!(piece, Stored::Bytes(_))).count() as u64 * PIECE as u64
    }

    /// Hands `len` bytes from `offset` on to `take`, part by part, until it fails.
    pub(super) fn read<E>(
        &mut self,
        offset: u64,
        len: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for (number, from, to) in parts(offset, len) {
            let bytes = match (self.pieces.get(&number), self.fill) {
                (Some(Stored::Bytes(bytes)), _) => bytes,
                (Some(Stored::Zeros), _) | (None, Fill::Zeros) => &self.zeros,
                (None, Fill::Pattern(seed)) => {
                    // From the last multiple of 8 on.
                    let (first, end) = (from & !7, to.next_multiple_of(8));
                    make(seed, number * PIECE as u64 + first as u64, &mut self.scratch[first..end]);
                    &self.scratch
                }
            };
            take(&bytes[from..to])?;
        }
        Ok(())
    }

    /// Has `give` fill `len` bytes from `offset` on, part by part, until it fails.
    pub(super) fn write<E>(
        &mut self,
        offset: u64,
        len: u64,
        mut give: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for (number, from, to) in parts(offset, len) {
            give(&mut self.own(number)[from..to])?;
        }
        Ok(())
    }

    /// Makes `len` bytes from `offset` on zero.
    pub(super) fn write_zeros(&mut self, offset: u64, len: u64) {
        for (number, from, to) in parts(offset, len) {
            if to - from == PIECE {
                self.pieces.insert(number, Stored::Zeros);
            } else {
                self.own(number)[from..to].fill(0);
            }
        }
    }

    /// The bytes of a piece, in memory of their own.
    fn own(&mut self, number: u64) -> &mut [u8] {
        let piece = self.pieces.entry(number).or_insert_with(|| {
            let mut bytes = vec![0; PIECE].into_boxed_slice();
            if let Fill::Pattern(seed) = self.fill {
                make(seed, number * PIECE as u64, &mut bytes);
            }
            Stored::Bytes(bytes)
        });
        if matches!(piece, Stored::Zeros) {
            *piece = Stored::Bytes(vec![0; PIECE].into_boxed_slice());
        }
        match piece {
            Stored::Bytes(bytes) => bytes,
            // Cannot be: replaced above.
            Stored::Zeros => &mut [],
        }
    }
}

/// Fills `to`, a multiple of 8 bytes, with the pattern from `offset` on.
fn make(seed: u64, offset: u64, to: &mut [u8]) {
    for (word, at) in to.chunks_exact_mut(8).zip((offset..).step_by(8)) {
        word.copy_from_slice(&pattern(seed, at).to_le_bytes());
    }
}

/// The pieces that a range touches, and from where to where in each.
fn parts(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let (piece, end) = (PIECE as u64, offset + len);
    let first = offset / piece;
    (first..end.div_ceil(piece).max(first)).map(move |number| {
        let start = number * piece;
        (number, (offset.max(start) - start) as usize, (end.min(start + piece) - start) as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::delay::SplitMix64;

    fn read(store: &mut Store, offset: u64, len: u64) -> Vec<u8> {
        let mut all = Vec::new();
        let done: Result<(), ()> = store.read(offset, len, |part| {
            all.extend_from_slice(part);
            Ok(())
        });
        assert_eq!(done, Ok(()));
        all
    }

    fn write(store: &mut Store, offset: u64, bytes: &[u8]) {
        let mut rest = bytes;
        let done: Result<(), ()> = store.write(offset, bytes.len() as u64, |part| {
            let (now, later) = rest.split_at(part.len());
            part.copy_from_slice(now);
            rest = later;
            Ok(())
        });
        assert_eq!((done, rest.len()), (Ok(()), 0));
    }

    #[test]
    fn what_was_written_is_read_and_the_rest_is_as_before() {
        for fill in [Fill::Zeros, Fill::Pattern(7)] {
            let mut store = Store::new(1 << 40, fill);
            let near = (1 << 39) - 700;
            let before = read(&mut store, near - 100, 200_000);
            let bytes: Vec<u8> = (0..150_000u32).map(|n| (n ^ n >> 8) as u8).collect();
            write(&mut store, near, &bytes);
            let after = read(&mut store, near - 100, 200_000);
            assert_eq!(after[..100], before[..100]);
            assert_eq!(after[100..150_100], bytes);
            assert_eq!(after[150_100..], before[150_100..]);
            assert_eq!(store.stored(), 4 * PIECE as u64, "only what was touched takes memory");
        }
    }

    #[test]
    fn zeros_replace_whole_pieces_and_parts() {
        let mut store = Store::new(1 << 30, Fill::Pattern(1));
        write(&mut store, 0, &[1; 3 * PIECE]);
        store.write_zeros(512, 2 * PIECE as u64);
        assert_eq!(store.stored(), 2 * PIECE as u64);
        let bytes = read(&mut store, 0, 3 * PIECE as u64);
        assert!(bytes[..512].iter().chain(&bytes[2 * PIECE + 512..]).all(|byte| *byte == 1));
        assert!(bytes[512..2 * PIECE + 512].iter().all(|byte| *byte == 0));
        write(&mut store, PIECE as u64 + 3, &[9]);
        assert_eq!(read(&mut store, PIECE as u64, 5), [0, 0, 0, 9, 0]);
    }

    #[test]
    fn the_pattern_is_that_of_splitmix64() {
        let mut random = SplitMix64::new(42);
        let expected: Vec<u8> = (0..3 * PIECE / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
        let mut store = Store::new(1 << 30, Fill::Pattern(42));
        assert_eq!(read(&mut store, 0, 3 * PIECE as u64), expected);
        assert_eq!(read(&mut store, 65_531, 7), expected[65_531..65_538]);
        assert_eq!(pattern(42, 65_528).to_le_bytes(), expected[65_528..65_536]);
    }
}
