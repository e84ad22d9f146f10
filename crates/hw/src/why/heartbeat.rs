//! A thread on a CPU that does not measure: it empties the rings, and its pauses show when all CPUs stood still.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pciescope_core::CpuList;

use crate::perf::Tracepoints;
use crate::placement;
use crate::probe::clock;
use crate::probe::sys::RealTime;

/// The time between two beats.
const BEAT: Duration = Duration::from_micros(200);
/// The rings are emptied after so many beats.
const BEATS: u32 = 50;
/// A longer time without a beat is a gap, in nanoseconds.
pub(super) const GAP_NS: u64 = 500_000;

/// What it brings back.
#[derive(Debug, Default)]
pub(super) struct Beaten {
    pub rings: Option<Tracepoints>,
    /// What the rings held, by CPU.
    pub bytes: BTreeMap<u32, Vec<u8>>,
    /// Times without a beat, on the counter of [`clock`].
    pub gaps: Vec<(u64, u64)>,
    /// Whether it had a CPU that does not measure.
    pub is_alone: bool,
}

#[derive(Debug)]
pub(super) struct Heartbeat {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Beaten>>,
}

impl Heartbeat {
    /// Starts it on one of these CPUs, or anywhere if there are none.
    pub fn start(cpus: &CpuList, rings: Option<Tracepoints>) -> Heartbeat {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, cpu) = (is_over.clone(), cpus.iter().next());
        let thread = std::thread::spawn(move || beat(&over, cpu, rings));
        Heartbeat { is_over, thread: Some(thread) }
    }

    pub fn stop(mut self) -> Beaten {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().expect("it is taken here only").join().expect("it does not panic")
    }
}

fn beat(over: &AtomicBool, cpu: Option<u32>, mut rings: Option<Tracepoints>) -> Beaten {
    // Without these it beats less regularly, and its gaps are longer than those of others: no sample has such a one.
    let pinned = cpu.and_then(|cpu| placement::Pinned::to(cpu).ok());
    let _first = pinned.as_ref().map(|_| RealTime::now());
    let hz = clock::measured_hz();
    let longest = (u128::from(GAP_NS) * u128::from(hz) / 1_000_000_000) as u64;
    let (mut bytes, mut gaps) = (BTreeMap::new(), Vec::new());
    let (mut last, mut beats) = (clock::start(), 0);
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(BEAT);
        beats += 1;
        let now = clock::start();
        if now - last > longest {
            gaps.push((last, now));
        }
        last = now;
        if let Some(rings) = rings.as_mut().filter(|_| beats % BEATS == 0) {
            rings.drain(&mut bytes);
            // What that took is no gap.
            last = clock::start();
        }
    }
    if let Some(rings) = &mut rings {
        rings.drain(&mut bytes);
    }
    Beaten { rings, bytes, gaps, is_alone: pinned.is_some() }
}
