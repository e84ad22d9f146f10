//! Where the CPU time of this process goes. Its threads are sampled some hundred times per second of their CPU time,
//! and the functions of the kernel and the files of user space that were found are counted. Time in which a thread sleeps is not sampled.
//!
//! Each CPU (or each given thread) has a ring of 128 KiB that the kernel writes 24 bytes per sample to. A thread that is not sampled itself
//! empties a ring when it is half full, every 2.7 s at 997 Hz; what finds no room is counted.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pciescope_core::{CpuList, HotSpot};
use perf_event_open_sys::bindings as perf;

use super::ring::{Mode, Ring, Tally};
use super::symbols::{Place, Symbols};
use super::{Error, sys};
use crate::Root;
use agree::{Agreed, agree, name, refusal};
use reader::Reader;

mod agree;
mod reader;

pciescope_core::named! {
    /// What makes the samples.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Kind {
        /// The CPU's counter of its cycles: sees code that has interrupts off too, on x86 and where the kernel has NMIs.
        Cycles => "cycles",
        /// A timer of the kernel's: works everywhere. Code that has interrupts off is not seen, and what turns them on again gets its samples.
        Clock => "cpu-clock",
    }
    /// perf's name of the event.
    fn name
}

impl Kind {
    fn event(self) -> (u32, u64) {
        match self {
            Kind::Cycles => (perf::PERF_TYPE_HARDWARE, perf::PERF_COUNT_HW_CPU_CYCLES.into()),
            Kind::Clock => (perf::PERF_TYPE_SOFTWARE, perf::PERF_COUNT_SW_CPU_CLOCK.into()),
        }
    }
}

/// How it is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// Samples per second of each thread's CPU time. 997 keeps no step with timers of 100, 250 or 1000 Hz.
    pub hz: u32,
    /// Upper limit of lines of a profile.
    pub top: usize,
    /// What makes the samples; `None`: cycles where they can be had, else the clock.
    pub kind: Option<Kind>,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { hz: 997, top: 10, kind: None }
    }
}

/// Which threads are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom<'t> {
    /// All of this process: those that there are, and those that they start.
    /// A thread started by another one while the sampler is opened may be missed. Takes a file per thread and CPU, so open it early.
    Process,
    /// Threads of this process by the kernel's numbers ([`super::thread_number`]), without what they start. Takes a file each.
    Threads(&'t [i32]),
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// Samples that were taken.
    pub samples: u64,
    /// Samples for which there was no room; they are in no percentage.
    pub lost: u64,
    /// CPU time of the sampled threads while they were sampled, in nanoseconds, as the kernel counted it.
    pub cpu_ns: u64,
    /// perf's name of what made them: `cycles`, `cpu-clock`.
    pub kind: &'static str,
    /// Samples per second of a thread's CPU time.
    pub hz: u32,
    /// What must be said of it, each a sentence.
    pub notes: Vec<String>,
    /// The functions and files with the most samples, from the top.
    pub spots: Vec<HotSpot>,
}

/// Threads that are sampled, or can be.
#[derive(Debug)]
pub struct Sampler {
    /// The events with rings, and those that write to the rings of these.
    owners: Arc<Vec<File>>,
    others: Vec<File>,
    agreed: Agreed,
    shared: Arc<Mutex<Drained>>,
    top: usize,
    /// What the kernel had counted when it was last asked.
    before: KernelCounts,
    _reader: Reader,
}

/// What the kernel has counted.
#[derive(Debug, Clone, Copy, Default)]
struct KernelCounts {
    running_ns: u64,
    /// On kernels before 6.0 always 0.
    lost: u64,
}

/// Rings with what was read from them.
#[derive(Debug, Default)]
struct Drained {
    rings: Vec<Ring>,
    tally: Tally,
    bytes: Vec<u8>,
}

impl Drained {
    fn drain(&mut self) {
        for ring in &mut self.rings {
            self.bytes.clear();
            ring.drain(&mut self.bytes);
            self.tally.add(&self.bytes, std::process::id());
        }
    }
}

/// A sampler's rings are of this many bytes, where the user may lock so much.
const RING: usize = 128 << 10;

impl Sampler {
    /// Prepares sampling of `whom`; [`Sampler::start`] begins it.
    ///
    /// # Errors
    /// [`Error::Permission`] where this user may not even sample its own program in user space, [`Error::Absent`] on a kernel
    /// without perf events, [`Error::Files`] where too many files are open, [`Error::Call`] for anything else, such as no thread to sample.
    pub fn open(root: &Root, whom: Whom<'_>, sampling: &Sampling) -> Result<Self, Error> {
        let agreed = agree(root, whom, sampling)?;
        let refuse = |source| refusal(root, agreed.kind, source);
        // The reader's thread starts before anything is sampled that could hand it down.
        let reader = Reader::spawn().map_err(refuse)?;
        let (threads, cpus) = match whom {
            Whom::Threads(threads) => (threads.to_vec(), vec![None]),
            Whom::Process => (own_threads(root, reader.number), online(root)),
        };
        let mut opened = RingEvents::default();
        for cpu in cpus {
            for thread in &threads {
                opened.add(&agreed.sampled, *thread, cpu).map_err(refuse)?;
            }
        }
        if opened.owners.is_empty() {
            return Err(refuse(io::Error::from_raw_os_error(libc::ESRCH)));
        }
        let RingEvents { owners, others, rings, .. } = opened;
        let (owners, shared) = (Arc::new(owners), Arc::new(Mutex::new(Drained { rings, ..Drained::default() })));
        let mut reader = reader;
        reader.begin(Arc::clone(&owners), Arc::clone(&shared));
        Ok(Sampler {
            owners,
            others,
            agreed,
            shared,
            top: sampling.top,
            before: KernelCounts::default(),
            _reader: reader,
        })
    }

    /// Samples from now on.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn start(&self) -> Result<(), Error> {
        self.each("start sampling", sys::enable)
    }

    /// No longer samples; what was sampled is kept.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn stop(&self) -> Result<(), Error> {
        self.each("stop sampling", sys::disable)
    }

    fn each(&self, what: &'static str, call: impl Fn(&File) -> io::Result<()>) -> Result<(), Error> {
        for event in self.owners.iter().chain(&self.others) {
            call(event).map_err(|source| Error::Call { event: name(self.agreed.kind), what, source })?;
        }
        Ok(())
    }

    /// What makes the samples.
    pub fn kind(&self) -> Kind {
        self.agreed.kind
    }

    /// What was sampled since this was last called, with names. It costs time of its own, so stop first.
    pub fn take(&mut self, symbols: &mut Symbols) -> Profile {
        let tally = {
            let mut shared = locked(&self.shared);
            shared.drain();
            std::mem::take(&mut shared.tally)
        };
        let now = self.counted();
        let before = std::mem::replace(&mut self.before, now);
        // A record of a loss is only written when there is room again, so the count knows more.
        let lost = now.lost.saturating_sub(before.lost).max(tally.lost);
        let mut profile = Profile {
            samples: tally.samples(),
            lost,
            cpu_ns: now.running_ns.saturating_sub(before.running_ns),
            kind: self.agreed.kind.name(),
            hz: self.agreed.sampled.hz as u32,
            notes: self.agreed.notes.clone(),
            spots: Vec::new(),
        };
        profile.note_losses(&tally, self.agreed.sampled.is_user_only);
        symbols.look_again();
        profile.spots = spots(&tally.spots, self.top, |mode, address| symbols.place(mode, address));
        profile.notes.extend(symbols.notes().iter().cloned());
        profile
    }

    /// What all events have counted since they were opened. One that cannot be read counts nothing.
    fn counted(&self) -> KernelCounts {
        let mut counted = KernelCounts::default();
        for event in self.owners.iter().chain(&self.others) {
            let (_, running_ns, lost) = sys::counts(event).unwrap_or_default();
            counted.running_ns += running_ns;
            counted.lost += lost.unwrap_or(0);
        }
        counted
    }
}

impl Profile {
    /// In user space alone it is not known how many samples to expect.
    fn note_losses(&mut self, tally: &Tally, is_user_only: bool) {
        let expected = self.cpu_ns as f64 * f64::from(self.hz) / 1e9;
        let part = (self.samples + self.lost) as f64 / expected;
        if expected >= 100.0 && part < 0.8 && !is_user_only {
            self.notes.push(format!(
                "{:.0} % of the samples came that {:.1} s of CPU time should have given: the machine's timer or counter is \
                 late, as that of a guest without a CPU of its own is",
                100.0 * part,
                self.cpu_ns as f64 / 1e9
            ));
        }
        let mut note = |count: u64, what: &str| {
            if count > 0 {
                self.notes.push(format!("{count} {what}"));
            }
        };
        note(self.lost, "samples were lost: the rings were full");
        note(tally.throttled, "times the kernel paused sampling, since it took too much time");
        note(tally.unread, "bytes from the kernel were not understood");
    }
}

/// The functions and files with the most samples.
fn spots(samples: &HashMap<(Mode, u64), u64>, top: usize, mut place: impl FnMut(Mode, u64) -> Place) -> Vec<HotSpot> {
    let all: u64 = samples.values().sum();
    let mut places: BTreeMap<Place, u64> = BTreeMap::new();
    for ((mode, address), count) in samples {
        *places.entry(place(*mode, *address)).or_default() += count;
    }
    let mut places: Vec<(Place, u64)> = places.into_iter().collect();
    // Equal ones stay in the order of their names.
    places.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    places.truncate(top);
    let spot = |(place, count): (Place, u64)| HotSpot {
        percent: 100.0 * count as f64 / all as f64,
        object: place.object,
        symbol: place.symbol,
        is_kernel: place.is_kernel,
    };
    places.into_iter().map(spot).collect()
}

fn locked(shared: &Mutex<Drained>) -> MutexGuard<'_, Drained> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Events and rings in the making.
#[derive(Debug, Default)]
struct RingEvents {
    owners: Vec<File>,
    others: Vec<File>,
    rings: Vec<Ring>,
    /// Which of the owners has a CPU's ring.
    of_cpu: HashMap<u32, usize>,
}

impl RingEvents {
    /// One thread on one CPU; a thread that has ended, or a CPU that has gone, is nothing.
    fn add(&mut self, sampled: &sys::Sampled, thread: i32, cpu: Option<u32>) -> io::Result<()> {
        let event = match sys::sample(sampled, thread, cpu) {
            Ok(event) => event,
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV)) => return Ok(()),
            Err(error) => return Err(error),
        };
        match cpu.and_then(|cpu| self.of_cpu.get(&cpu)) {
            Some(owner) => {
                sys::write_to_ring_of(&event, &self.owners[*owner])?;
                self.others.push(event);
            }
            None => {
                let ring = Ring::of(&event, RING)?;
                self.of_cpu.extend(cpu.map(|cpu| (cpu, self.owners.len())));
                self.owners.push(event);
                self.rings.push(ring);
            }
        }
        Ok(())
    }
}

fn own_threads(root: &Root, without: i32) -> Vec<i32> {
    let all = root.names("/proc/self/task");
    let mut threads: Vec<i32> =
        all.iter().filter_map(|name| name.parse().ok()).filter(|thread| *thread != without).collect();
    // The oldest first: its events own the rings, and it lives longest.
    threads.sort_unstable();
    threads
}

fn online(root: &Root) -> Vec<Option<u32>> {
    let online = root.text("/sys/devices/system/cpu/online").and_then(|text| text.parse::<CpuList>().ok());
    match online.filter(|cpus| !cpus.is_empty()) {
        Some(cpus) => cpus.iter().map(Some).collect(),
        None => vec![Some(0)],
    }
}

#[cfg(test)]
mod tests;
