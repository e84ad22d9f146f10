//! Tracepoints of the whole machine: what the kernel writes about them, as it happens.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use pciescope_core::CpuList;
use perf_event_open_sys::bindings::PERF_RECORD_SAMPLE;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::ring::{Ring, lost, record, u32_at, u64_at};
use super::sys;

/// Tracepoints that are open on some CPUs.
#[derive(Debug)]
pub(crate) struct Tracepoints {
    events: Vec<File>,
    rings: Vec<(u32, Ring)>,
}

/// What they gave since the last time.
#[derive(Debug, Default)]
pub(crate) struct Hits {
    /// The time on CLOCK_MONOTONIC in nanoseconds, and the bytes that the format describes; by time.
    pub hits: Vec<(u64, Vec<u8>)>,
    /// How many found no room.
    pub lost: u64,
}

/// A record of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'r> {
    /// A hit: its time on CLOCK_MONOTONIC in nanoseconds, and the bytes that the format describes.
    Hit(u64, &'r [u8]),
    /// So many hits found no room here.
    Lost(u64),
}

impl Tracepoints {
    /// Opens those that have these numbers in tracefs, on each of the CPUs with a ring of so many bytes. `ready` becomes readable
    /// when one is hit; without it, nobody is woken.
    ///
    /// # Errors
    /// The number of the one that cannot be opened, and EACCES or EPERM without CAP_PERFMON, EMFILE where too many files are open.
    pub fn open(
        ids: &[u64],
        cpus: &CpuList,
        ring: usize,
        ready: Option<&OwnedFd>,
    ) -> Result<Tracepoints, (u64, io::Error)> {
        // One file for each of them and each CPU.
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        let (mut events, mut rings) = (Vec::<File>::new(), Vec::new());
        for cpu in cpus.iter() {
            let first = events.len();
            for id in ids {
                let opened = sys::trace(*id, cpu, ready.is_some()).and_then(|event| {
                    match events.get(first) {
                        Some(owner) => sys::write_to_ring_of(&event, owner)?,
                        None => {
                            rings.push((cpu, Ring::of(&event, ring)?));
                            if let Some(ready) = ready {
                                epoll::add(ready, &event, EventData::new_u64(0), EventFlags::IN)?;
                            }
                        }
                    }
                    Ok(event)
                });
                events.push(opened.map_err(|error| (*id, error))?);
            }
        }
        Ok(Tracepoints { events, rings })
    }

    /// The CPUs that have a ring, and its bytes.
    pub fn rings(&self) -> impl Iterator<Item = (u32, usize)> {
        self.rings.iter().map(|(cpu, ring)| (*cpu, ring.size()))
    }

    /// Lets them tell, or has them be silent, when they cost nothing.
    ///
    /// # Errors
    /// Those of the ioctl.
    pub fn enable(&self, is_on: bool) -> io::Result<()> {
        self.events.iter().try_for_each(if is_on { sys::enable } else { sys::disable })
    }

    /// Moves what came since the last time to the end of the bytes of each CPU.
    pub fn drain(&mut self, to: &mut BTreeMap<u32, Vec<u8>>) {
        for (cpu, ring) in &mut self.rings {
            ring.drain(to.entry(*cpu).or_default());
        }
    }

    /// What came since the last time.
    pub fn take(&mut self) -> Hits {
        let (mut all, mut bytes) = (Hits::default(), Vec::new());
        for (_, ring) in &mut self.rings {
            bytes.clear();
            ring.drain(&mut bytes);
            all.add(&bytes);
        }
        all.hits.sort_by_key(|(at_ns, _)| *at_ns);
        all
    }
}

/// The records of a ring in their order. What cannot be understood is lost.
pub(crate) fn pieces(mut bytes: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    std::iter::from_fn(move || {
        while let Some((head, body, rest)) = record(bytes) {
            bytes = rest;
            if head.kind == PERF_RECORD_SAMPLE {
                let hit = || Some(Piece::Hit(u64_at(body, 0)?, body.get(12..)?.get(..u32_at(body, 8)? as usize)?));
                return Some(hit().unwrap_or(Piece::Lost(1)));
            }
            if let lost @ 1.. = lost(head.kind, body).unwrap_or(1) {
                return Some(Piece::Lost(lost));
            }
        }
        (!std::mem::take(&mut bytes).is_empty()).then_some(Piece::Lost(1))
    })
}

impl Hits {
    /// Adds a ring's records.
    pub fn add(&mut self, bytes: &[u8]) {
        for piece in pieces(bytes) {
            match piece {
                Piece::Hit(at_ns, raw) => self.hits.push((at_ns, raw.to_vec())),
                Piece::Lost(lost) => self.lost += lost,
            }
        }
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
