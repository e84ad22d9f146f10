//! The timed loop of the backends without a kernel part: pinned threads, stamps around each access, figures filed
//! between blocks of samples.

use std::cell::Cell;
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pciescope_core::outcome::{CALIBRATION, LATENCY, Sample, SampleKind};
use pciescope_core::record::{Failure, Method, Metric};
use pciescope_core::{Bdf, Histogram, Order, Outcome};

use super::clock::{self, Scale};
use super::sys::{self, Locked, Pinned, RealTime};
use super::turns::{Turn, name, turns};
use super::{Watch, failure};
use crate::Error;

/// What is accessed in each sample.
pub trait Target: Sync {
    /// Makes one access; what it read, and whether that is the all-ones of a device that does not answer.
    fn access(&self) -> (u64, bool);
}

/// What the loop does; the parts of a plan that all its callers share.
pub struct Job<'a> {
    /// The function, for texts.
    pub bdf: Bdf,
    /// The CPUs in the plan's order.
    pub cpus: &'a [u32],
    /// Their order.
    pub order: Order,
    /// Samples per CPU and target; 0 where only time limits.
    pub count: u64,
    /// Ends the run at this age in nanoseconds; 0: no limit.
    pub duration_ns: u64,
    /// Pause between two samples in nanoseconds.
    pub gap_ns: u32,
    /// Accesses between two stamps.
    pub batch: u32,
    /// Whether all-ones is a good value.
    pub ones_ok: bool,
    /// Whether raw samples are kept.
    pub raw: bool,
    /// What is read, for the text of a failure.
    pub place: &'a str,
    /// Looked at ten times a second and after all-ones: why the device cannot be measured any more.
    pub gone: &'a (dyn Fn() -> Option<Failure> + Sync),
}

/// What came out.
#[derive(Debug, Default)]
pub struct Measured {
    /// One per CPU and target, CPU by CPU.
    pub outcomes: Vec<Outcome>,
    /// Raw samples in the order of time.
    pub samples: Vec<Sample>,
    /// Why it ended early.
    pub failure: Option<Failure>,
    /// Ticks per second of the clock.
    pub hz: u64,
    /// Remarks for [`Method::notes`].
    pub notes: Vec<String>,
}

impl Measured {
    /// How these figures came about.
    pub fn method(&mut self, backend: &str, job: &Job, emulated: bool) -> Method {
        Method {
            backend: backend.to_owned(),
            clock: clock::NAME.to_owned(),
            clock_hz: self.hz,
            quantum_ns: 1e9 / self.hz.max(1) as f64,
            batch: job.batch.max(1),
            gap_ns: job.gap_ns.into(),
            order: name(job.order),
            irqs_off: false,
            emulated,
            notes: std::mem::take(&mut self.notes),
        }
    }
}

/// Samples between two filings. The buffer is all the timed loop writes to.
const BLOCK: usize = 1024;
/// Empty stamp pairs on each CPU.
const CALIBRATIONS: usize = 10_000;
/// The longest stretch between two filings, and so between two looks at the progress.
const FILE_EVERY_NS: u64 = 20_000_000;

/// The start of an access, and the ticks to its end.
type Stamps = (u64, u64);

/// The figures of one CPU and one target while they grow.
struct Figures {
    latency: Histogram,
    calibration: Histogram,
    preempted: u64,
    /// Samples that the histogram could not hold.
    lost: u64,
    error: Option<Failure>,
}

/// What all threads of a run share.
struct Shared<'a> {
    stop: AtomicBool,
    done: AtomicU64,
    total: u64,
    begun: u64,
    scale: Scale,
    hz: u64,
    job: &'a Job<'a>,
    watch: &'a dyn Watch,
}

/// Measures `targets` (in turn within each CPU) as the job says; the calling thread reports the progress.
///
/// # Errors
/// [`Error::Unsupported`] on a CPU without the stamps that are needed.
pub fn measure<T: Target>(
    backend: &'static str,
    targets: &[T],
    job: &Job,
    watch: &dyn Watch,
) -> Result<Measured, Error> {
    clock::check().map_err(|why| Error::Unsupported { bdf: job.bdf, backend, what: "take stamps", why })?;
    let measured_hz = clock::measured_hz();
    let hz = clock::stated_hz().unwrap_or(measured_hz);
    let list = turns(job.order, job.cpus.len(), job.count, job.duration_ns);
    let locked = Locked::now();
    let shared = Shared {
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
        total: job.count * (job.cpus.len() * targets.len()) as u64,
        begun: clock::start(),
        scale: Scale { hz, accesses: job.batch.max(1).into() },
        hz,
        job,
        watch,
    };
    watch.progress(0, shared.total);
    let groups: Vec<&[Turn]> = match job.order {
        Order::Concurrent => list.chunks(1).collect(),
        _ => vec![&list],
    };
    let barrier = Barrier::new(groups.len());
    let mut failure = None;
    let workers: Vec<Worker> = std::thread::scope(|scope| {
        let threads: Vec<_> = groups
            .iter()
            .map(|turns| {
                let (shared, barrier) = (&shared, &barrier);
                scope.spawn(move || {
                    let mut worker = Worker::new(job.cpus.len() * targets.len());
                    barrier.wait();
                    worker.run(turns, targets, shared);
                    worker
                })
            })
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(10));
            watch.progress(shared.done.load(Ordering::Relaxed), shared.total);
            if failure.is_none() && !shared.stop.load(Ordering::Relaxed) {
                failure = (job.gone)();
                if failure.is_none() && watch.is_stopped() {
                    failure = Some(failure::interrupted(job.bdf, 0));
                }
                if failure.is_some() {
                    shared.stop.store(true, Ordering::Relaxed);
                }
            }
        }
        threads.into_iter().map(|thread| thread.join().expect("a worker does not panic")).collect()
    });
    let done = shared.done.load(Ordering::Relaxed);
    watch.progress(done, shared.total);
    let mut measured = Measured { hz, ..gather(workers, job, targets.len()) };
    measured.failure = measured.failure.or(failure);
    if measured.failure.as_ref().is_some_and(|why| why.code == "interrupted") {
        measured.failure = Some(failure::interrupted(job.bdf, done));
    }
    measured.notes.push(format!(
        "User space with interrupts on: a sample that an interrupt or another thread fell into is kept; the clock \
         counts {measured_hz} Hz by CLOCK_MONOTONIC_RAW, {:+.0} ppm from what was used.",
        clock::ppm(hz, measured_hz).abs()
    ));
    if let Err(error) = locked {
        measured.notes.push(format!("Memory could not be locked ({error}): a page fault may fall into a sample."));
    }
    Ok(measured)
}

/// Puts what the threads have together, in the plan's order.
fn gather(workers: Vec<Worker>, job: &Job, targets: usize) -> Measured {
    let mut measured = Measured::default();
    let mut merged: Vec<Option<Figures>> = (0..job.cpus.len() * targets).map(|_| None).collect();
    let mut real_time = true;
    for worker in workers {
        real_time &= worker.real_time;
        measured.samples.extend(worker.samples);
        measured.failure = measured.failure.or(worker.failure);
        for (slot, figures) in merged.iter_mut().zip(worker.figures) {
            if figures.is_some() {
                *slot = figures;
            }
        }
    }
    measured.samples.sort_by_key(|sample| sample.at_ns);
    measured.outcomes = (0..)
        .zip(merged)
        .map(|(number, figures): (usize, _)| {
            let mut outcome =
                Outcome { cpu: job.cpus[number / targets], index: (number % targets) as u16, ..Outcome::default() };
            if let Some(figures) = figures {
                outcome.histograms.insert(LATENCY.to_owned(), figures.latency);
                outcome.histograms.insert(CALIBRATION.to_owned(), figures.calibration);
                outcome.metrics.insert("preempted".to_owned(), Metric::count(figures.preempted));
                outcome.metrics.insert("samples_lost".to_owned(), Metric::count(figures.lost));
                outcome.error = figures.error;
            }
            outcome
        })
        .collect();
    measured.notes.push(
        if real_time {
            "The measuring threads ran under SCHED_FIFO and paused between blocks of samples, so that the kernel's \
             limit for real-time threads did not fall into one."
        } else {
            "SCHED_FIFO was not permitted: other threads may have run within samples."
        }
        .to_owned(),
    );
    measured
}

/// One measuring thread.
struct Worker {
    figures: Vec<Option<Figures>>,
    samples: Vec<Sample>,
    failure: Option<Failure>,
    real_time: bool,
    buffer: Vec<Stamps>,
}

/// Why a block ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Full, or time to file.
    Full,
    /// The turn's time is over, or the run is to stop.
    Over,
    /// All-ones at this target; the sample is not in the buffer.
    Ones(usize),
    /// The thread is no longer on its CPU.
    Moved,
}

impl Worker {
    fn new(slots: usize) -> Self {
        Worker {
            figures: (0..slots).map(|_| None).collect(),
            samples: Vec::new(),
            failure: None,
            real_time: false,
            buffer: Vec::with_capacity(BLOCK),
        }
    }

    fn run<T: Target>(&mut self, turns: &[Turn], targets: &[T], shared: &Shared) {
        let real_time = RealTime::now();
        self.real_time = real_time.is_ok();
        for turn in turns {
            if shared.stop.load(Ordering::Relaxed) {
                break;
            }
            let cpu = shared.job.cpus[turn.position];
            match Pinned::to(cpu) {
                Ok(_pinned) => self.take(turn, cpu, targets, shared),
                Err(error) => self.fail(turn.position, targets.len(), not_pinned(shared.job.bdf, cpu, &error), shared),
            }
        }
    }

    /// Ends the whole run, and the figures of the CPU at `position`.
    fn fail(&mut self, position: usize, targets: usize, why: Failure, shared: &Shared) {
        for slot in &mut self.figures[position * targets..(position + 1) * targets] {
            slot.get_or_insert_with(Figures::new).error = Some(why.clone());
        }
        self.failure = Some(why);
        shared.stop.store(true, Ordering::Relaxed);
    }

    /// One turn: blocks of samples until its count or time is used up.
    fn take<T: Target>(&mut self, turn: &Turn, cpu: u32, targets: &[T], shared: &Shared) {
        let first = turn.position * targets.len();
        if self.figures[first].is_none() {
            let calibration = calibrate(&mut self.buffer, shared.hz);
            for slot in &mut self.figures[first..first + targets.len()] {
                *slot = Some(Figures { calibration: calibration.clone(), ..Figures::new() });
            }
        }
        let preempted = involuntary_switches();
        let until = match turn.until_ns {
            u64::MAX => u64::MAX,
            ns => shared.begun.saturating_add(to_ticks(ns, shared.hz)),
        };
        let mut left = match turn.count {
            0 => u64::MAX,
            count => count.saturating_mul(targets.len() as u64),
        };
        let pace = Pace::default();
        while left > 0 && !shared.stop.load(Ordering::Relaxed) {
            let room = (BLOCK as u64).min(left) as usize;
            let begun = clock::start();
            let from = pace.next.get();
            let end = fill(&mut self.buffer, room, targets, &pace, shared, cpu, until);
            left -= self.buffer.len() as u64;
            self.file(from, first, targets.len(), cpu, shared);
            // Asked here too: with real-time threads on every CPU the calling thread may not come to it in time.
            if shared.watch.is_stopped() && !shared.stop.swap(true, Ordering::Relaxed) {
                self.failure = Some(failure::interrupted(shared.job.bdf, 0));
            }
            match end {
                End::Full => {}
                End::Over => break,
                End::Ones(target) => {
                    let job = shared.job;
                    let why = (job.gone)().unwrap_or_else(|| failure::all_ones(job.bdf, job.place, Some(cpu)));
                    self.fail(turn.position, targets.len(), why.clone(), shared);
                    let others = (first..first + targets.len()).filter(|slot| *slot != first + target);
                    others.for_each(|slot| self.figures[slot].as_mut().expect("made above").error = None);
                    break;
                }
                End::Moved => {
                    let why = failure::cpu_offline(shared.job.bdf, Some(cpu));
                    self.fail(turn.position, targets.len(), why, shared);
                    break;
                }
            }
            if self.real_time {
                breathe(begun, shared.hz);
            }
        }
        let preempted = involuntary_switches().saturating_sub(preempted);
        self.figures[first].as_mut().expect("made above").preempted += preempted;
    }

    /// Moves a block from the buffer to the histograms.
    fn file(&mut self, from: usize, first: usize, targets: usize, cpu: u32, shared: &Shared) {
        for (number, &(start, ticks)) in self.buffer.iter().enumerate() {
            let target = (from + number) % targets;
            let figures = self.figures[first + target].as_mut().expect("made by take");
            let (ps, at_ns) = (shared.scale.ps(ticks), shared.scale.at_ns(start.saturating_sub(shared.begun)));
            let (low, high) = (figures.latency.min_ns(), figures.latency.max_ns());
            if figures.latency.record_ps(ps, 1).is_err() {
                let why = failure::refused(shared.job.bdf, &format!("an access took {ps} ps, over an hour"), "");
                figures.error = Some(why);
                figures.lost += 1;
                continue;
            }
            if figures.latency.min_ns() != low {
                figures.latency.min_at_ns = Some(at_ns);
            }
            if figures.latency.max_ns() != high {
                figures.latency.max_at_ns = Some(at_ns);
            }
            if shared.job.raw {
                let index = target as u16;
                self.samples.push(Sample { at_ns, value_ps: ps, cpu, index, kind: SampleKind::Latency });
            }
        }
        shared.done.fetch_add(self.buffer.len() as u64, Ordering::Relaxed);
        self.buffer.clear();
    }
}

impl Figures {
    fn new() -> Self {
        Figures { latency: Histogram::default(), calibration: Histogram::default(), preempted: 0, lost: 0, error: None }
    }
}

/// What goes on from block to block.
#[derive(Default)]
struct Pace {
    /// The target that is next: a block may end between two targets.
    next: Cell<usize>,
    /// When the gap after the last sample is over. A gap may be longer than a block.
    ready_at: Cell<u64>,
}

/// The timed loop. Between the stamps there are the accesses and nothing else; between two samples there is no
/// allocation (the buffer has room), no system call and no formatting.
#[inline(never)]
fn fill<T: Target>(
    buffer: &mut Vec<Stamps>,
    room: usize,
    targets: &[T],
    pace: &Pace,
    shared: &Shared,
    cpu: u32,
    until: u64,
) -> End {
    let job = shared.job;
    let (batch, gap) = (job.batch.max(1), to_ticks(job.gap_ns.into(), shared.hz));
    let file_at = clock::start().saturating_add(to_ticks(FILE_EVERY_NS, shared.hz));
    if sys::current_cpu() != cpu {
        return End::Moved;
    }
    while buffer.len() < room {
        let mut now = clock::start();
        while now < pace.ready_at.get() && now < file_at && now < until && !shared.stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
            now = clock::start();
        }
        if now >= until || shared.stop.load(Ordering::Relaxed) {
            return End::Over;
        }
        if now >= file_at {
            break;
        }
        let number = pace.next.get();
        let target = &targets[number];
        let mut ones = false;
        let start = clock::start();
        for _ in 0..batch {
            ones |= target.access().1;
        }
        let (end, on) = clock::end();
        if ones && !job.ones_ok {
            return End::Ones(number);
        }
        if on.is_some_and(|on| on != cpu & 0xfff) {
            return End::Moved;
        }
        buffer.push((start, end.wrapping_sub(start)));
        pace.next.set(if number + 1 == targets.len() { 0 } else { number + 1 });
        pace.ready_at.set(end.saturating_add(gap));
    }
    End::Full
}

/// The empty stamp pair on this CPU.
fn calibrate(buffer: &mut Vec<Stamps>, hz: u64) -> Histogram {
    let mut histogram = Histogram::default();
    let scale = Scale { hz, accesses: 1 };
    let mut left = CALIBRATIONS;
    while left > 0 {
        buffer.clear();
        for _ in 0..left.min(BLOCK) {
            let start = clock::start();
            let (end, _) = clock::end();
            buffer.push((start, end.wrapping_sub(start)));
        }
        left -= buffer.len();
        for &(_, ticks) in buffer.iter() {
            // A pair that took over an hour would say nothing about the pair.
            let _ = histogram.record_ps(scale.ps(ticks), 1);
        }
    }
    buffer.clear();
    histogram
}

/// The empty stamp pair on the CPU this thread is pinned to.
pub(super) fn calibration(hz: u64) -> Histogram {
    calibrate(&mut Vec::with_capacity(BLOCK), hz)
}

/// Gives the CPU away for a sixteenth of the block's time, then waits until it is awake again.
fn breathe(begun: u64, hz: u64) {
    let ns = Scale { hz, accesses: 1 }.at_ns(clock::start().saturating_sub(begun));
    std::thread::sleep(Duration::from_nanos((ns / 16).max(1_000)));
    let awake = clock::start();
    while clock::start().wrapping_sub(awake) < to_ticks(20_000, hz) {
        std::hint::spin_loop();
    }
}

/// How often this thread was taken off its CPU against its will.
fn involuntary_switches() -> u64 {
    sys::involuntary_switches().unwrap_or(0)
}

fn to_ticks(ns: u64, hz: u64) -> u64 {
    u64::try_from(u128::from(ns) * u128::from(hz) / 1_000_000_000).unwrap_or(u64::MAX)
}

/// Why a thread did not get onto its CPU.
pub(super) fn not_pinned(bdf: Bdf, cpu: u32, error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::EINVAL) => failure::cpu_offline(bdf, Some(cpu)),
        _ => failure::refused(bdf, &format!("the thread could not be moved to CPU {cpu}: {error}"), ""),
    }
}

#[cfg(test)]
mod tests;
