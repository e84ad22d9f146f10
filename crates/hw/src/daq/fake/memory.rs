//! The card memory of a synthetic board. It stores only the origin of its bytes, so that gigabytes take no memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::daq::samples::Origin;

#[derive(Debug, Clone)]
enum Content {
    Samples(Origin),
    Written(Arc<[u8]>),
}

#[derive(Debug, Clone)]
struct Region {
    end: u64,
    /// Address of the content's first byte, which may lie before the region.
    first: u64,
    content: Content,
}

/// See the module's description.
#[derive(Debug)]
pub struct Memory {
    /// By first address; they follow each other without holes.
    regions: BTreeMap<u64, Region>,
}

impl Memory {
    /// `bytes` bytes that nothing was stored in.
    pub fn new(bytes: u64, seed: u64, serial: u32) -> Self {
        let content = Content::Samples(Origin { seed, serial, acquisition: 0, channel: 0 });
        Memory { regions: BTreeMap::from([(0, Region { end: bytes, first: 0, content })]) }
    }

    /// Stores `bytes` bytes of samples at `at`.
    pub fn store(&mut self, at: u64, bytes: u64, origin: Origin) {
        self.insert(at, bytes, Content::Samples(origin));
    }

    /// Stores bytes at `at`.
    pub fn write(&mut self, at: u64, from: &[u8]) {
        self.insert(at, from.len() as u64, Content::Written(from.into()));
    }

    /// Reads from `at`, where there have to be so many bytes.
    pub fn read(&self, at: u64, to: &mut [u8]) {
        let mut done = 0;
        while done < to.len() {
            let at = at + done as u64;
            let Some((_, region)) = self.regions.range(..=at).next_back().filter(|(_, region)| region.end > at) else {
                return;
            };
            let len = (region.end - at).min((to.len() - done) as u64) as usize;
            let (part, from) = (&mut to[done..done + len], at - region.first);
            match &region.content {
                Content::Samples(origin) => origin.fill(from, part),
                Content::Written(bytes) => part.copy_from_slice(&bytes[from as usize..from as usize + len]),
            }
            done += len;
        }
    }

    fn insert(&mut self, at: u64, bytes: u64, content: Content) {
        if bytes == 0 {
            return;
        }
        let end = at + bytes;
        self.split(at);
        self.split(end);
        let covered: Vec<u64> = self.regions.range(at..end).map(|(start, _)| *start).collect();
        for start in covered {
            self.regions.remove(&start);
        }
        self.regions.insert(at, Region { end, first: at, content });
    }

    /// Makes a region begin at `at`, unless `at` is the end of all.
    fn split(&mut self, at: u64) {
        let Some((_, region)) = self.regions.range_mut(..at).next_back() else { return };
        if region.end > at {
            let rest = region.clone();
            region.end = at;
            self.regions.insert(at, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: usize = 4096;

    proptest! {
        #[test]
        fn it_reads_what_a_plain_array_would(
            steps in proptest::collection::vec((0usize..SIZE, 0usize..600, proptest::bool::ANY), 0..12),
            at in 0usize..SIZE, len in 0usize..SIZE,
        ) {
            let mut memory = Memory::new(SIZE as u64, 1, 2);
            let mut plain = vec![0; SIZE];
            Origin { seed: 1, serial: 2, acquisition: 0, channel: 0 }.fill(0, &mut plain);
            for (number, (at, len, is_written)) in steps.into_iter().enumerate() {
                let part = &mut plain[at..(at + len).min(SIZE)];
                if is_written {
                    part.fill(number as u8);
                    memory.write(at as u64, part);
                } else {
                    let origin = Origin { seed: 1, serial: 2, acquisition: number as u64 + 1, channel: 3 };
                    origin.fill(0, part);
                    memory.store(at as u64, part.len() as u64, origin);
                }
            }
            let expected = &plain[at..(at + len).min(SIZE)];
            let mut read = vec![0; expected.len()];
            memory.read(at as u64, &mut read);
            prop_assert_eq!(read, expected);
        }
    }
}
