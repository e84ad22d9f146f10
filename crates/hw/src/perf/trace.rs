//! Tracepoints of the whole machine: what the kernel writes about them, as it happens.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::ring::{Ring, lost, record, u32_at, u64_at};
use super::sys;
use crate::{Root, topology};

/// Each CPU's ring has this many bytes: some hundred hits.
const RING: usize = 16 << 10;

/// Tracepoints that are open on every CPU that is online.
#[derive(Debug)]
pub(crate) struct Tracepoints {
    _events: Vec<File>,
    rings: Vec<Ring>,
}

/// What they gave since the last time.
#[derive(Debug, Default)]
pub(crate) struct Hits {
    /// The time on CLOCK_MONOTONIC in nanoseconds, and the bytes that the format describes; by time.
    pub hits: Vec<(u64, Vec<u8>)>,
    /// How many found no room.
    pub lost: u64,
}

impl Tracepoints {
    /// Opens those that have these numbers in tracefs. `ready` becomes readable when one is hit.
    ///
    /// # Errors
    /// EACCES or EPERM without CAP_PERFMON, EMFILE where too many files are open.
    pub fn open(root: &Root, ids: &[u64], ready: &OwnedFd) -> io::Result<Tracepoints> {
        // One file for each of them and each CPU.
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        let (mut events, mut rings) = (Vec::<File>::new(), Vec::new());
        for cpu in topology::online(root).map_err(io::Error::other)?.iter() {
            let first = events.len();
            for id in ids {
                let event = sys::trace(*id, cpu)?;
                match events.get(first) {
                    Some(owner) => sys::write_to_ring_of(&event, owner)?,
                    None => {
                        rings.push(Ring::of(&event, RING)?);
                        epoll::add(ready, &event, EventData::new_u64(0), EventFlags::IN)?;
                    }
                }
                events.push(event);
            }
        }
        Ok(Tracepoints { _events: events, rings })
    }

    /// What came since the last time.
    pub fn take(&mut self) -> Hits {
        let (mut all, mut bytes) = (Hits::default(), Vec::new());
        for ring in &mut self.rings {
            bytes.clear();
            ring.drain(&mut bytes);
            all.add(&bytes);
        }
        all.hits.sort_by_key(|(at_ns, _)| *at_ns);
        all
    }
}

impl Hits {
    /// Adds a ring's records. What cannot be understood is lost.
    pub fn add(&mut self, mut bytes: &[u8]) {
        while let Some((head, body, rest)) = record(bytes) {
            if head.kind == PERF_RECORD_SAMPLE {
                let hit = || Some((u64_at(body, 0)?, body.get(12..)?.get(..u32_at(body, 8)? as usize)?.to_vec()));
                match hit() {
                    Some(hit) => self.hits.push(hit),
                    None => self.lost += 1,
                }
            }
            self.lost += lost(head.kind, body).unwrap_or(1);
            bytes = rest;
        }
        self.lost += u64::from(!bytes.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use perf_event_open_sys::bindings::{PERF_RECORD_LOST, PERF_RECORD_THROTTLE};

    use super::super::ring::tests::record;
    use super::*;

    fn hit(at_ns: u64, raw: &[u8], said: u32) -> Vec<u8> {
        record(PERF_RECORD_SAMPLE, 1, &[&at_ns.to_ne_bytes()[..], &said.to_ne_bytes(), raw].concat())
    }

    #[test]
    fn hits_have_their_time_and_bytes_and_losses_are_counted() {
        let lost = [7u64.to_ne_bytes(), 5u64.to_ne_bytes()].concat();
        let mut hits = Hits::default();
        hits.add(&[hit(9, b"abcd", 4), record(PERF_RECORD_LOST, 0, &lost), hit(3, b"ef..", 2)].concat());
        hits.add(&record(PERF_RECORD_THROTTLE, 0, &[0; 24]));
        assert_eq!((hits.hits.as_slice(), hits.lost), (&[(9, b"abcd".to_vec()), (3, b"ef".to_vec())][..], 5));
        // More bytes than there are, a cut record, a record of a loss without its number.
        hits.add(&hit(1, b"abcd", 5));
        hits.add(&hit(1, b"abcd", 4)[..20]);
        hits.add(&record(PERF_RECORD_LOST, 0, &[0; 8]));
        assert_eq!((hits.hits.len(), hits.lost), (2, 8));
    }
}
