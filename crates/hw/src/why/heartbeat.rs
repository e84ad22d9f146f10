//! A thread on a CPU that does not measure: it reads the counter without a pause, so that its gaps show when all CPUs stood
//! still, and empties the rings. It waits for nothing: a hypervisor that delays timers must not look like one that stops CPUs.

use crate::perf::Tracepoints;
use crate::placement;
use crate::probe::clock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The rings are emptied after so long, in nanoseconds.
const DRAIN_NS: u64 = 10_000_000;
/// A longer time without a beat is a gap, in nanoseconds.
pub(super) const GAP_NS: u64 = 20_000;

/// What a slice's hits usually have room in: so many rings, and so many gaps.
const ROOM: usize = 1;
const MOST_GAPS: usize = 1 << 16;

/// What it brings back.
#[derive(Debug, Default)]
pub(super) struct Beaten {
    pub rings: Option<Tracepoints>,
    /// What the rings held, by CPU.
    pub bytes: BTreeMap<u32, Vec<u8>>,
    /// Times without a beat, on the counter of [`clock`].
    pub gaps: Vec<(u64, u64)>,
    /// Times in which it emptied the rings, and could not beat.
    pub busy: Vec<(u64, u64)>,
    /// Whether it had a CPU that does not measure.
    pub is_alone: bool,
}

#[derive(Debug)]
pub(super) struct Heartbeat {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Beaten>>,
}

impl Heartbeat {
    /// Starts it on this CPU, or anywhere if there is none for it.
    pub fn start(cpu: Option<u32>, rings: Option<Tracepoints>) -> Heartbeat {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = std::thread::spawn(move || beat(&over, cpu, rings));
        Heartbeat { is_over, thread: Some(thread) }
    }

    pub fn stop(mut self) -> Beaten {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().expect("it is taken here only").join().expect("it does not panic")
    }
}

fn beat(over: &AtomicBool, cpu: Option<u32>, mut rings: Option<Tracepoints>) -> Beaten {
    let pinned = cpu.and_then(|cpu| placement::Pinned::to(cpu).ok());
    let hz = clock::measured_hz();
    let (longest, drain) = (clock::to_ticks(GAP_NS, hz), clock::to_ticks(DRAIN_NS, hz));
    // Memory that grows is moved, which interrupts every CPU of the program and waits for it; the module lets none in.
    let room = |(cpu, size): (u32, usize)| (cpu, Vec::with_capacity(ROOM * size));
    let mut bytes: BTreeMap<u32, Vec<u8>> = rings.iter().flat_map(Tracepoints::rings).map(room).collect();
    let (mut gaps, mut busy) = (Vec::with_capacity(MOST_GAPS), Vec::with_capacity(MOST_GAPS));
    let mut last = clock::start();
    let mut drained = last;
    while !over.load(Ordering::Relaxed) {
        // No `pause` between two readings: QEMU's translator leaves the guest at each, and waits there for what the measured
        // CPU holds.
        if pinned.is_none() {
            // On a CPU that measures, it must not stand in the way, and its gaps say nothing.
            std::thread::sleep(Duration::from_nanos(DRAIN_NS));
        }
        let now = clock::start();
        if now - last > longest && pinned.is_some() {
            gaps.push((last, now));
        }
        last = now;
        if let Some(rings) = rings.as_mut().filter(|_| now - drained > drain) {
            rings.drain(&mut bytes);
            last = clock::start();
            drained = last;
            if last - now > longest {
                busy.push((now, last));
            }
        }
    }
    if let Some(rings) = &mut rings {
        rings.drain(&mut bytes);
    }
    Beaten { rings, bytes, gaps, busy, is_alone: pinned.is_some() }
}
