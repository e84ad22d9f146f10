//! Reads samples from the kernel's ring buffers: which code the CPU executed, and how many samples were lost.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::{self as perf, perf_event_mmap_page};

use crate::probe::sys::{Mapping, page_bytes};

/// What a sampled instruction belongs to, as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Mode {
    /// The kernel or a module.
    Kernel,
    /// This program.
    User,
    /// A hypervisor below us.
    Hypervisor,
    /// A guest above us.
    Guest,
    /// Another process: our child.
    Foreign,
    /// The kernel does not say.
    Unknown,
}

impl Mode {
    fn of(misc: u16) -> Self {
        match u32::from(misc) & perf::PERF_RECORD_MISC_CPUMODE_MASK {
            perf::PERF_RECORD_MISC_KERNEL => Mode::Kernel,
            perf::PERF_RECORD_MISC_USER => Mode::User,
            perf::PERF_RECORD_MISC_HYPERVISOR => Mode::Hypervisor,
            perf::PERF_RECORD_MISC_GUEST_KERNEL | perf::PERF_RECORD_MISC_GUEST_USER => Mode::Guest,
            _ => Mode::Unknown,
        }
    }
}

/// What the records of all rings add up to.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Samples by mode and address of the instruction.
    pub spots: HashMap<(Mode, u64), u64>,
    /// Samples for which a ring had no room.
    pub lost: u64,
    /// Times that the kernel stopped an event because its samples took too long.
    pub throttled: u64,
    /// Bytes that are no records.
    pub unread: u64,
}

impl Tally {
    pub fn samples(&self) -> u64 {
        self.spots.values().sum()
    }

    /// Adds up records. Samples hold the address, process and thread ([`SAMPLE_TYPE`]); those of a process other than `process`
    /// are counted apart. Unknown records are skipped; those that cannot be skipped are counted.
    pub fn add(&mut self, mut bytes: &[u8], process: u32) {
        while let Some((head, body, rest)) = record(bytes) {
            let understood = match head.kind {
                perf::PERF_RECORD_SAMPLE => self.sample(head.misc, body, process),
                perf::PERF_RECORD_THROTTLE => {
                    self.throttled += 1;
                    Some(())
                }
                kind => lost(kind, body).map(|lost| self.lost += lost),
            };
            if understood.is_none() {
                self.unread += (bytes.len() - rest.len()) as u64;
            }
            bytes = rest;
        }
        self.unread += bytes.len() as u64;
    }

    fn sample(&mut self, misc: u16, body: &[u8], process: u32) -> Option<()> {
        let (address, of) = (u64_at(body, 0)?, u32_at(body, 8)?);
        let mode = match Mode::of(misc) {
            // The kernel's functions are the same, whoever called them.
            Mode::Kernel => Mode::Kernel,
            _ if of != process => Mode::Foreign,
            mode => mode,
        };
        *self.spots.entry((mode, address)).or_default() += 1;
        Some(())
    }
}

/// What each sample holds, in this order: the address, the process' and the thread's numbers.
pub(super) const SAMPLE_TYPE: u64 = (perf::PERF_SAMPLE_IP | perf::PERF_SAMPLE_TID) as u64;

/// What stands before each record.
pub(super) struct Head {
    pub kind: u32,
    misc: u16,
}

/// The first record: its head, its body, and the bytes behind it. `None` where it is cut or has no length.
pub(super) fn record(bytes: &[u8]) -> Option<(Head, &[u8], &[u8])> {
    const HEAD: usize = size_of::<perf::perf_event_header>();
    let head = Head { kind: u32_at(bytes, 0)?, misc: u16_at(bytes, 4)? };
    let (record, rest) = bytes.split_at_checked(u16_at(bytes, 6)?.into())?;
    Some((head, record.get(HEAD..)?, rest))
}

/// How many were lost by a record of this kind; `None` where it is cut.
pub(super) fn lost(kind: u32, body: &[u8]) -> Option<u64> {
    match kind {
        // The event's number, then how many.
        perf::PERF_RECORD_LOST => u64_at(body, 8),
        perf::PERF_RECORD_LOST_SAMPLES => u64_at(body, 0),
        _ => Some(0),
    }
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// The buffer that the kernel writes an event's records to.
#[derive(Debug)]
pub(super) struct Ring {
    map: Mapping,
    /// Where the records begin, behind the page of heads.
    start: usize,
    /// A power of two.
    size: usize,
}

impl Ring {
    /// Maps a ring of at least a page and at most `most` bytes, smaller where the user may not lock so much memory.
    ///
    /// # Errors
    /// Those of mmap for a ring of one page.
    pub fn of(event: &File, most: usize) -> io::Result<Self> {
        let page = page_bytes() as usize;
        let mut size = most.max(page).next_power_of_two();
        loop {
            match Mapping::new(event, 0, page + size, true) {
                Ok(map) => return Ok(Ring { map, start: page, size }),
                Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM)) && size > page => {
                    size /= 2
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Bytes that it holds.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Moves all that was written so far to the end of `to`.
    pub fn drain(&mut self, to: &mut Vec<u8>) {
        let head = self.word(offset_of!(perf_event_mmap_page, data_head)).load(Ordering::Acquire);
        let tail = self.word(offset_of!(perf_event_mmap_page, data_tail));
        let begin = tail.load(Ordering::Relaxed);
        for (at, len) in pieces(begin, head, self.size) {
            let from = self.map.at(self.start + at, len);
            // SAFETY: the bytes lie inside the mapping, as at() has checked, and the kernel leaves those between tail and
            // head alone until the tail is moved, which is below.
            to.extend_from_slice(unsafe { std::slice::from_raw_parts(from.as_ptr(), len) });
        }
        tail.store(head, Ordering::Release);
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        let at = self.map.at(offset, 8).cast::<u64>();
        // SAFETY: inside the mapping and aligned to 8; both sides use it as an atomic word, and it lives as long as the map.
        unsafe { AtomicU64::from_ptr(at.as_ptr()) }
    }
}

/// Where in a ring of `size` bytes those from `tail` to `head` lie: one piece, or two where they go round its end. None where they cannot lie there.
fn pieces(tail: u64, head: u64, size: usize) -> impl Iterator<Item = (usize, usize)> {
    let len = usize::try_from(head.wrapping_sub(tail)).ok().filter(|len| *len <= size).unwrap_or(0);
    let at = (tail & (size as u64 - 1)) as usize;
    let first = len.min(size - at);
    [(at, first), (0, len - first)].into_iter().filter(|(_, len)| *len > 0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A record as the kernel writes it.
    pub fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = (8 + body.len()) as u16;
        [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes(), body].concat()
    }

    pub fn sample(misc: u32, address: u64, process: u32) -> Vec<u8> {
        let body = [&address.to_ne_bytes()[..], &process.to_ne_bytes(), &(process + 1).to_ne_bytes()].concat();
        record(perf::PERF_RECORD_SAMPLE, misc as u16, &body)
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn samples_are_counted_by_mode_and_address() {
        let exact = perf::PERF_RECORD_MISC_EXACT_IP;
        let bytes = [
            sample(perf::PERF_RECORD_MISC_USER, 0x1000, 7),
            sample(perf::PERF_RECORD_MISC_USER | exact, 0x1000, 7),
            sample(perf::PERF_RECORD_MISC_KERNEL, u64::MAX, 7),
            sample(perf::PERF_RECORD_MISC_KERNEL, u64::MAX, 8),
            sample(perf::PERF_RECORD_MISC_USER, 0x1000, 8),
            sample(perf::PERF_RECORD_MISC_HYPERVISOR, 1, 7),
            sample(perf::PERF_RECORD_MISC_GUEST_USER, 2, 7),
            sample(0, 3, 7),
        ]
        .concat();
        let mut tally = Tally::default();
        tally.add(&bytes, 7);
        let of = |mode, address| tally.spots.get(&(mode, address)).copied().unwrap_or(0);
        assert_eq!(of(Mode::User, 0x1000), 2);
        assert_eq!(of(Mode::Kernel, u64::MAX), 2);
        assert_eq!(of(Mode::Foreign, 0x1000), 1);
        assert_eq!((of(Mode::Hypervisor, 1), of(Mode::Guest, 2), of(Mode::Unknown, 3)), (1, 1, 1));
        assert_eq!((tally.samples(), tally.lost, tally.throttled, tally.unread), (8, 0, 0, 0));
    }

    #[test]
    fn what_was_lost_or_throttled_is_counted_and_other_records_are_passed_over() {
        let bytes = [
            record(perf::PERF_RECORD_LOST, 0, &words(&[99, 5])),
            record(perf::PERF_RECORD_LOST_SAMPLES, 0, &words(&[4])),
            record(perf::PERF_RECORD_THROTTLE, 0, &words(&[1, 2, 3])),
            record(perf::PERF_RECORD_UNTHROTTLE, 0, &words(&[1, 2, 3])),
            record(4711, 0xffff, &words(&[1; 9])),
            record(perf::PERF_RECORD_COMM, 0, b""),
            sample(perf::PERF_RECORD_MISC_USER, 1, 7),
        ]
        .concat();
        let mut tally = Tally::default();
        tally.add(&bytes, 7);
        assert_eq!((tally.samples(), tally.lost, tally.throttled, tally.unread), (1, 9, 1, 0));
    }

    #[test]
    fn records_that_are_cut_or_have_no_length_end_the_reading_and_are_counted() {
        let good = sample(perf::PERF_RECORD_MISC_USER, 1, 7);
        let short = record(perf::PERF_RECORD_SAMPLE, 2, &[0; 8]);
        for (bad, unread) in [
            (vec![0; 8], 8),
            (vec![0xff; 24], 24),
            (good[..good.len() - 1].to_vec(), good.len() as u64 - 1),
            (vec![9, 0, 0], 3),
            (record(perf::PERF_RECORD_LOST, 0, &[0; 8]), 16),
            (short, 16),
        ] {
            let mut tally = Tally::default();
            tally.add(&[good.clone(), bad.clone()].concat(), 7);
            assert_eq!((tally.samples(), tally.lost, tally.unread), (1, 0, unread), "{bad:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_at_all_are_too_much(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
            let mut tally = Tally::default();
            tally.add(&bytes, 7);
        }

        #[test]
        fn the_pieces_of_a_ring_are_all_bytes_between_tail_and_head(tail: u64, len in 0u64..=64) {
            let ring: Vec<u8> = (0..64).collect();
            let head = tail.wrapping_add(len);
            let got: Vec<u8> = pieces(tail, head, 64).flat_map(|(at, len)| ring[at..at + len].to_vec()).collect();
            let want: Vec<u8> = (0..len).map(|n| (tail.wrapping_add(n) % 64) as u8).collect();
            proptest::prop_assert_eq!(got, want);
        }
    }

    #[test]
    fn heads_that_cannot_be_give_nothing() {
        assert_eq!(pieces(0, 65, 64).count(), 0);
        assert_eq!(pieces(10, 9, 64).count(), 0);
    }
}
