//! The card's memory. Samples of acquisitions are not stored but computed when they are read. Only data that DMA wrote
//! takes memory, in pieces of 64 KiB.

use std::collections::{BTreeMap, HashMap};

use super::samples;

const PIECE: usize = 64 << 10;

/// Where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// Samples of a key, the first of them at card address `base`.
    Samples { key: u64, base: u64 },
    /// What DMA wrote.
    Written,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    end: u64,
    source: Content,
}

/// The bytes of a card.
#[derive(Debug)]
pub(super) struct CardMemory {
    size: u64,
    /// By their first bytes, without gaps from 0 to `size`.
    spans: BTreeMap<u64, Extent>,
    pieces: HashMap<u64, Box<[u8]>>,
}

impl CardMemory {
    /// A card of `size` bytes that nothing was stored in: `key` is that of acquisition 0, channel 0.
    pub(super) fn new(size: u64, key: u64) -> Self {
        let spans = BTreeMap::from([(0, Extent { end: size, source: Content::Samples { key, base: 0 } })]);
        CardMemory { size, spans, pieces: HashMap::new() }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of this machine's memory that it takes.
    pub(super) fn stored(&self) -> u64 {
        self.pieces.len() as u64 * PIECE as u64
    }

    /// Samples of `key` now lie from `base` on, up to `len` bytes; what passes the card's end is lost.
    pub(super) fn store_samples(&mut self, key: u64, base: u64, len: u64) {
        let end = base.saturating_add(len).min(self.size);
        self.put(base, end, Content::Samples { key, base });
        if !self.pieces.is_empty() {
            let piece = PIECE as u64;
            self.pieces.retain(|number, _| number * piece < base || (number + 1) * piece > end);
        }
    }

    /// DMA writes `from` at `address`; what passes the card's end is lost.
    pub(super) fn write(&mut self, address: u64, from: &[u8]) {
        let end = address.saturating_add(from.len() as u64).min(self.size);
        let (mut at, mut rest) = (address, from);
        while at < end {
            let (number, within) = (at / PIECE as u64, (at % PIECE as u64) as usize);
            let len = (end - at).min((PIECE - within) as u64) as usize;
            let piece = self.pieces.entry(number).or_insert_with(|| vec![0; PIECE].into_boxed_slice());
            piece[within..within + len].copy_from_slice(&rest[..len]);
            rest = &rest[len..];
            at += len as u64;
        }
        self.put(address, end, Content::Written);
    }

    /// Reads; zeros past the card's end.
    pub(super) fn read(&self, address: u64, to: &mut [u8]) {
        let end = address.saturating_add(to.len() as u64).min(self.size).max(address);
        let (inside, outside) = to.split_at_mut((end - address) as usize);
        outside.fill(0);
        let (mut at, mut rest) = (address, inside);
        while !rest.is_empty() {
            // The spans have no gaps: there is one that begins at or before `at`.
            let Some((_, span)) = self.spans.range(..=at).next_back() else { return rest.fill(0) };
            let (now, later) = rest.split_at_mut(((span.end - at).min(rest.len() as u64)) as usize);
            match span.source {
                Content::Samples { key, base } => samples::fill(key, at - base, now),
                Content::Written => self.read_written(at, now),
            }
            at += now.len() as u64;
            rest = later;
        }
    }

    fn read_written(&self, address: u64, to: &mut [u8]) {
        let (mut at, mut rest) = (address, to);
        while !rest.is_empty() {
            let within = (at % PIECE as u64) as usize;
            let (now, later) = rest.split_at_mut(rest.len().min(PIECE - within));
            match self.pieces.get(&(at / PIECE as u64)) {
                Some(piece) => now.copy_from_slice(&piece[within..within + now.len()]),
                None => now.fill(0),
            }
            at += now.len() as u64;
            rest = later;
        }
    }

    /// `start` to before `end` now comes from `source`.
    fn put(&mut self, start: u64, end: u64, source: Content) {
        if start >= end {
            return;
        }
        self.split(start);
        self.split(end);
        let inside: Vec<u64> = self.spans.range(start..end).map(|(first, _)| *first).collect();
        for first in inside {
            self.spans.remove(&first);
        }
        let (mut first, mut end) = (start, end);
        if source == Content::Written {
            // Neighbours join: a pattern comes in pieces of 64 bytes.
            if let Some((&before, span)) = self.spans.range(..first).next_back() {
                if span.end == first && span.source == source {
                    first = before;
                }
            }
            if let Some(after) = self.spans.get(&end).copied().filter(|span| span.source == source) {
                self.spans.remove(&end);
                end = after.end;
            }
        }
        self.spans.insert(first, Extent { end, source });
    }

    /// Makes a span begin at `at`.
    fn split(&mut self, at: u64) {
        let Some((&first, span)) = self.spans.range_mut(..at).next_back() else { return };
        if first < at && at < span.end {
            let later = *span;
            span.end = at;
            self.spans.insert(at, later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(memory: &CardMemory, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xaa; len];
        memory.read(address, &mut bytes);
        bytes
    }

    fn made(key: u64, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        samples::fill(key, offset, &mut bytes);
        bytes
    }

    #[test]
    fn what_came_last_is_read() {
        let mut memory = CardMemory::new(1 << 20, 7);
        memory.store_samples(8, 0x1000, 0x1000);
        memory.store_samples(9, 0x1800, 0x400);
        memory.write(0x1bf0, &[5; 0x20]);
        memory.write(0x1c10, &[6; 0x10]);
        let all = read(&memory, 0xff0, 0x1100);
        assert_eq!(all[..0x10], made(7, 0xff0, 0x10));
        assert_eq!(all[0x10..0x810], made(8, 0, 0x800));
        assert_eq!(all[0x810..0xc00], made(9, 0, 0x3f0));
        assert_eq!(all[0xc00..0xc20], [5; 0x20]);
        assert_eq!(all[0xc20..0xc30], [6; 0x10]);
        assert_eq!(all[0xc30..0x1010], made(8, 0xc20, 0x3e0));
        assert_eq!(all[0x1010..], made(7, 0x2000, 0xf0));
        assert_eq!(memory.stored(), PIECE as u64);
        assert_eq!(memory.spans.len(), 6, "neighbours that were written are one: {:?}", memory.spans);
        memory.store_samples(3, 0, 1 << 20);
        assert_eq!((memory.stored(), memory.spans.len()), (0, 1));
    }

    #[test]
    fn the_end_is_the_end() {
        let mut memory = CardMemory::new(0x1000, 1);
        memory.store_samples(2, 0xfc0, 0x1000);
        memory.write(0xff0, &[9; 0x100]);
        let tail = read(&memory, 0xfc0, 0x80);
        assert_eq!(tail[..0x30], made(2, 0, 0x30));
        assert_eq!(tail[0x30..0x40], [9; 0x10]);
        assert_eq!(tail[0x40..], [0; 0x40]);
        assert_eq!(read(&memory, 0x2000, 16), [0; 16]);
        assert_eq!(read(&memory, u64::MAX, 16), [0; 16]);
        memory.store_samples(2, 0x5000, 64);
        memory.write(0x5000, &[1; 64]);
        assert_eq!(read(&memory, 0xff0, 16), [9; 16]);
    }
}
