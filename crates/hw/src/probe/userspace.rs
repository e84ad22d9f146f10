//! The timed loop of the backends without a kernel part. Its threads are pinned. They take a stamp before and after each
//! access and add the samples to histograms block by block.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

use pciescope_core::outcome::{CALIBRATION, LATENCY, Sample, SampleKind};
use pciescope_core::record::{Failure, Method, Metric};
use pciescope_core::{Bdf, CpuList, Histogram, Outcome};

use super::clock::{self, Scale, to_ticks};
use super::sys::{self, Locked, Pinned, RealTime};
use super::{Sampled, Slice, Watch, failure};
use crate::Error;

/// What is accessed in each sample.
pub trait Target: Sync {
    /// Makes one access; what it read, and whether that is the all-ones of a device that does not answer.
    fn access(&self) -> (u64, bool);

    /// Whether an access went to no device, because it was removed.
    fn is_gone(&self) -> bool {
        false
    }
}

/// What the loop does; the parts of a plan that all its callers share.
pub struct Job<'a> {
    /// The backend's name.
    pub backend: &'static str,
    /// The function, for texts.
    pub bdf: Bdf,
    /// Whether the function is an emulated one.
    pub emulated: bool,
    /// CPUs, count and time.
    pub slice: &'a Slice,
    /// Pause between two samples in nanoseconds.
    pub gap_ns: u32,
    /// Accesses between two stamps.
    pub batch: u32,
    /// Whether all-ones is a valid value.
    pub ones_ok: bool,
    /// Whether raw samples are kept.
    pub raw: bool,
    /// What is read beside the targets for comparison, once in [`CONTROL_EVERY`] samples; these are raw samples only.
    pub control: Option<&'a dyn Target>,
    /// What is read, for the text of a failure.
    pub place: &'a str,
    /// Asked a hundred times a second and after all-ones: why the device cannot be measured any more.
    pub gone: &'a (dyn Fn() -> Option<Failure> + Sync),
}

/// Samples of a block. The timed loop writes to the buffer of a block only.
const BLOCK: usize = 1024;
/// After so many samples comes a read for comparison.
const CONTROL_EVERY: usize = 10;
/// Empty stamp pairs on each CPU.
const CALIBRATIONS: usize = 10_000;
/// The longest time of a block, and so between two reports of progress, in nanoseconds.
const FILE_EVERY_NS: u64 = 20_000_000;

/// The start of an access, and the ticks to its end.
type Stamps = (u64, u64);

/// The figures of one CPU and one target so far.
#[derive(Default)]
struct Figures {
    latency: Histogram,
    calibration: Histogram,
    preempted: u64,
    /// Samples that the histogram could not hold.
    lost: u64,
    error: Option<Failure>,
}

/// What all threads of a slice share.
struct Shared<'a> {
    stop: AtomicBool,
    done: AtomicU64,
    begun: u64,
    scale: Scale,
    /// The scale of single reads.
    control: Scale,
    job: &'a Job<'a>,
    watch: &'a dyn Watch,
}

/// Measures `targets`, in turn within each CPU, as the job says: one thread per CPU, all at once. The calling thread
/// reports the progress.
///
/// # Errors
/// [`Error::Unsupported`] on a CPU without the stamps that are needed.
pub fn measure<T: Target>(targets: &[T], job: &Job, watch: &dyn Watch) -> Result<Sampled, Error> {
    let (bdf, backend) = (job.bdf, job.backend);
    clock::check().map_err(|why| Error::Unsupported { bdf, backend, what: "take stamps", why })?;
    let mut method =
        Method { batch: job.batch.max(1), gap_ns: job.gap_ns.into(), emulated: job.emulated, ..clock::method(backend) };
    let total = job.slice.count.saturating_mul((job.slice.cpus.iter().count() * targets.len()) as u64);
    let locked = Locked::now();
    let shared = Shared {
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
        begun: clock::start(),
        scale: Scale { hz: method.clock_hz, accesses: method.batch.into() },
        control: Scale { hz: method.clock_hz, accesses: 1 },
        job,
        watch,
    };
    watch.progress(0, total);
    let (workers, failure) = work(targets, &shared, total)?;
    let done = shared.done.load(Ordering::Relaxed);
    watch.progress(done, total);
    method.notes.extend(notes(workers.iter().all(|worker| worker.real_time)));
    method.notes.extend(locked.err().map(sys::not_locked));
    let mut sampled = gather(method, workers);
    sampled.begun = Some(shared.begun);
    sampled.failure = sampled.failure.or(failure);
    if sampled.failure.as_ref().is_some_and(Failure::is_interrupted) {
        sampled.failure = Some(failure::interrupted(bdf, done));
    }
    Ok(sampled)
}

/// Runs one worker on each CPU, and reports the progress meanwhile. Also why they were stopped, if so.
fn work<T: Target>(targets: &[T], shared: &Shared, total: u64) -> Result<(Vec<CpuWorker>, Option<Failure>), Error> {
    let (bdf, backend) = (shared.job.bdf, shared.job.backend);
    let cpus: Vec<u32> = shared.job.slice.cpus.iter().collect();
    let (barrier, are_all_there) = (Barrier::new(cpus.len()), Mutex::new(false));
    std::thread::scope(|scope| {
        // Each thread holds one end until it ends.
        let (alive, ended) = channel::<()>();
        // Those that there are wait for this, and do not begin if one cannot be created.
        let mut gate = are_all_there.lock().unwrap_or_else(PoisonError::into_inner);
        let threads: Result<Vec<_>, Error> = cpus
            .iter()
            .map(|&cpu| {
                let (barrier, are_all_there, alive) = (&barrier, &are_all_there, alive.clone());
                let thread = std::thread::Builder::new().spawn_scoped(scope, move || {
                    let _alive = alive;
                    let mut worker = CpuWorker::new(cpu, targets.len());
                    if *are_all_there.lock().unwrap_or_else(PoisonError::into_inner) {
                        barrier.wait();
                        worker.run(targets, shared);
                    }
                    worker
                });
                let what = || format!("start a thread for CPU {cpu}");
                let hint = Some(crate::placement::THREAD_LIMITS);
                thread.map_err(|source| Error::call(bdf, backend, what(), source, hint))
            })
            .collect();
        *gate = threads.is_ok();
        drop(gate);
        drop(alive);
        let threads = threads?;
        let mut failure = None;
        while ended.recv_timeout(Duration::from_millis(10)) == Err(RecvTimeoutError::Timeout) {
            shared.watch.progress(shared.done.load(Ordering::Relaxed), total);
            if failure.is_none() && !shared.stop.load(Ordering::Relaxed) {
                failure = shared.why_stop();
                shared.stop.fetch_or(failure.is_some(), Ordering::Relaxed);
            }
        }
        let workers = threads.into_iter().map(|thread| thread.join().expect("a worker does not panic")).collect();
        Ok((workers, failure))
    })
}

impl Shared<'_> {
    /// Why the run must not go on: the device, or the user.
    fn why_stop(&self) -> Option<Failure> {
        let interrupted = || self.watch.is_stopped().then(|| failure::interrupted(self.job.bdf, 0));
        (self.job.gone)().or_else(interrupted)
    }
}

fn notes(is_real_time: bool) -> [String; 2] {
    [
        "User space with interrupts on: a sample that an interrupt or another thread fell into is kept.".to_owned(),
        if is_real_time {
            "The measuring threads ran under SCHED_FIFO and paused between blocks of samples, so that the kernel's \
             limit for real-time threads did not fall into one."
        } else {
            "SCHED_FIFO was not permitted: other threads may have run within samples."
        }
        .to_owned(),
    ]
}

/// The figures of all workers, and their samples in the order of time.
fn gather(method: Method, workers: Vec<CpuWorker>) -> Sampled {
    let clock_doubt = clock::doubt(method.clock_hz, clock::measured_hz());
    let mut sampled = Sampled { method, ..Sampled::default() };
    for worker in workers {
        sampled.samples.extend(worker.samples);
        sampled.failure = sampled.failure.or(worker.failure);
        let figures = (0..).zip(worker.figures);
        sampled.outcomes.extend(figures.map(|(index, figures)| {
            let mut outcome = figures.into_outcome(worker.cpu, index);
            outcome.warnings.extend(clock_doubt.clone());
            outcome
        }));
    }
    sampled.samples.sort_by_key(|sample| sample.at_ns);
    sampled
}

/// One measuring thread and its CPU.
struct CpuWorker {
    cpu: u32,
    /// By target.
    figures: Vec<Figures>,
    samples: Vec<Sample>,
    failure: Option<Failure>,
    real_time: bool,
    buffer: Vec<Stamps>,
    /// Reads for comparison of the same block.
    controls: Vec<Stamps>,
}

/// Why a block ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockEnd {
    /// The buffer is full, or the block has taken its longest time.
    Full,
    /// The slice's time is over, or the run is to stop.
    Over,
    /// All-ones at this target; the sample is not in the buffer.
    Ones(usize),
    /// The thread is no longer on its CPU.
    Moved,
}

impl CpuWorker {
    fn new(cpu: u32, targets: usize) -> Self {
        CpuWorker {
            cpu,
            figures: (0..targets).map(|_| Figures::default()).collect(),
            samples: Vec::new(),
            failure: None,
            real_time: false,
            buffer: Vec::with_capacity(BLOCK),
            controls: Vec::with_capacity(BLOCK / CONTROL_EVERY + 1),
        }
    }

    fn run<T: Target>(&mut self, targets: &[T], shared: &Shared) {
        let real_time = RealTime::now();
        self.real_time = real_time.is_ok();
        match Pinned::to(self.cpu) {
            Ok(_pinned) => self.take(targets, shared),
            Err(error) => self.fail(not_pinned(shared.job.bdf, self.cpu, &error), shared),
        }
    }

    /// Ends the whole run, and the figures of this CPU.
    fn fail(&mut self, why: Failure, shared: &Shared) {
        self.figures.iter_mut().for_each(|figures| figures.error = Some(why.clone()));
        self.failure = Some(why);
        shared.stop.store(true, Ordering::Relaxed);
    }

    /// Blocks of samples until the slice's count or time is used up.
    fn take<T: Target>(&mut self, targets: &[T], shared: &Shared) {
        let (job, hz) = (shared.job, shared.scale.hz);
        let calibration = calibrate(&mut self.buffer, hz);
        self.figures.iter_mut().for_each(|figures| figures.calibration = calibration.clone());
        let preempted = involuntary_switches();
        // The threads, and each one's calibration, have their own time.
        let until = match job.slice.duration_ns {
            0 => u64::MAX,
            ns => clock::start().saturating_add(to_ticks(ns, hz)),
        };
        let mut left = match job.slice.count {
            0 => u64::MAX,
            count => count.saturating_mul(targets.len() as u64),
        };
        let pace = Pace::default();
        while left > 0 && !shared.stop.load(Ordering::Relaxed) {
            let room = (BLOCK as u64).min(left) as usize;
            let begun = clock::start();
            let from = pace.next.get();
            let end = fill((&mut self.buffer, &mut self.controls), room, targets, &pace, shared, self.cpu, until);
            if targets.iter().any(Target::is_gone) {
                // Nothing says which of the block's accesses still reached the device.
                self.buffer.clear();
                self.controls.clear();
                self.fail(failure::removed(job.bdf), shared);
                break;
            }
            left -= self.buffer.len() as u64;
            self.file(from, shared);
            // Asked here too: with real-time threads on every CPU the calling thread may not come to it in time.
            if shared.watch.is_stopped() && !shared.stop.swap(true, Ordering::Relaxed) {
                self.failure = Some(failure::interrupted(job.bdf, 0));
            }
            match end {
                BlockEnd::Full => {}
                BlockEnd::Over => break,
                BlockEnd::Ones(target) => {
                    let why = (job.gone)().unwrap_or_else(|| failure::all_ones(job.bdf, job.place, Some(self.cpu)));
                    self.figures[target].error = Some(why.clone());
                    self.failure = Some(why);
                    shared.stop.store(true, Ordering::Relaxed);
                    break;
                }
                BlockEnd::Moved => {
                    self.fail(failure::cpu_offline(job.bdf, Some(self.cpu)), shared);
                    break;
                }
            }
            if self.real_time {
                breathe(begun, hz);
            }
        }
        self.figures[0].preempted = involuntary_switches().saturating_sub(preempted);
    }

    /// Moves a block from the buffer to the histograms; `from` is the target of its first sample.
    fn file(&mut self, from: usize, shared: &Shared) {
        let targets = self.figures.len();
        for (number, &(start, ticks)) in self.buffer.iter().enumerate() {
            let target = (from + number) % targets;
            let figures = &mut self.figures[target];
            let (ps, at_ns) = (shared.scale.ps(ticks), shared.scale.at_ns(start.saturating_sub(shared.begun)));
            if figures.latency.record_ps_at(ps, at_ns).is_err() {
                let why = failure::refused(shared.job.bdf, &format!("an access took {ps} ps, over an hour"), "");
                figures.error = Some(why);
                figures.lost += 1;
                continue;
            }
            if shared.job.raw {
                let (cpu, index) = (self.cpu, target as u16);
                self.samples.push(Sample { at_ns, value_ps: ps, cpu, index, kind: SampleKind::Latency });
            }
        }
        for &(start, ticks) in &self.controls {
            let (value_ps, at_ns) = (shared.control.ps(ticks), shared.scale.at_ns(start.saturating_sub(shared.begun)));
            self.samples.push(Sample { at_ns, value_ps, cpu: self.cpu, index: 0, kind: SampleKind::Control });
        }
        self.controls.clear();
        shared.done.fetch_add(self.buffer.len() as u64, Ordering::Relaxed);
        self.buffer.clear();
    }
}

impl Figures {
    fn into_outcome(self, cpu: u32, index: u16) -> Outcome {
        Outcome {
            cpu,
            index,
            histograms: [(LATENCY.to_owned(), self.latency), (CALIBRATION.to_owned(), self.calibration)].into(),
            metrics: [
                ("preempted".to_owned(), Metric::count(self.preempted)),
                ("samples_lost".to_owned(), Metric::count(self.lost)),
            ]
            .into(),
            error: self.error,
            ..Outcome::default()
        }
    }
}

/// What one block leaves to the next.
#[derive(Default)]
struct Pace {
    /// The target that is next: a block may end between two targets.
    next: Cell<usize>,
    /// When the gap after the last sample is over. A gap may be longer than a block.
    ready_at: Cell<u64>,
}

/// The timed loop. Between the stamps there are the accesses and nothing else; between two samples there is no
/// allocation (the buffers have room), no formatting, and no system call but that of a read for comparison.
#[inline(never)]
fn fill<T: Target>(
    (buffer, controls): (&mut Vec<Stamps>, &mut Vec<Stamps>),
    room: usize,
    targets: &[T],
    pace: &Pace,
    shared: &Shared,
    cpu: u32,
    until: u64,
) -> BlockEnd {
    let job = shared.job;
    let (batch, gap) = (job.batch.max(1), to_ticks(job.gap_ns.into(), shared.scale.hz));
    let file_at = clock::start().saturating_add(to_ticks(FILE_EVERY_NS, shared.scale.hz));
    if sys::current_cpu() != cpu {
        return BlockEnd::Moved;
    }
    while buffer.len() < room {
        let mut now = clock::start();
        while now < pace.ready_at.get() && now < file_at && now < until && !shared.stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
            now = clock::start();
        }
        if now >= until || shared.stop.load(Ordering::Relaxed) {
            return BlockEnd::Over;
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
            return BlockEnd::Ones(number);
        }
        if on.is_some_and(|on| on != cpu & 0xfff) {
            return BlockEnd::Moved;
        }
        buffer.push((start, end.wrapping_sub(start)));
        pace.next.set(if number + 1 == targets.len() { 0 } else { number + 1 });
        pace.ready_at.set(end.saturating_add(gap));
        if let Some(control) = job.control.filter(|_| buffer.len() % CONTROL_EVERY == 0) {
            let start = clock::start();
            control.access();
            controls.push((start, clock::end().0.wrapping_sub(start)));
        }
    }
    BlockEnd::Full
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

/// Sleeps for a sixteenth of the block's time, so that other threads get the CPU, then waits until it runs again.
fn breathe(begun: u64, hz: u64) {
    let ns = Scale { hz, accesses: 1 }.at_ns(clock::start().saturating_sub(begun));
    std::thread::sleep(Duration::from_nanos((ns / 16).max(1_000)));
    let awake = clock::start();
    while clock::start().wrapping_sub(awake) < to_ticks(20_000, hz) {
        std::hint::spin_loop();
    }
}

/// Involuntary context switches of this thread.
fn involuntary_switches() -> u64 {
    sys::involuntary_switches().unwrap_or(0)
}

/// Whether the kernel says that a CPU is online. Where it says nothing, a refusal means that it is not.
fn is_online(cpu: u32) -> bool {
    let online = crate::Root::at("/").read("/sys/devices/system/cpu/online");
    online.is_ok_and(|list| list.trim().parse::<CpuList>().is_ok_and(|list| list.contains(cpu)))
}

/// Why a thread did not get onto its CPU.
pub(super) fn not_pinned(bdf: Bdf, cpu: u32, error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::EINVAL) if is_online(cpu) => failure::refused(
            bdf,
            &format!("this process may not run on CPU {cpu}, which is online: its cpuset does not have it"),
            "leave it out with --cpus, or run in another cpuset (control group, container)",
        ),
        Some(libc::EINVAL) => failure::cpu_offline(bdf, Some(cpu)),
        _ => failure::refused(bdf, &format!("the thread could not be moved to CPU {cpu}: {error}"), ""),
    }
}

#[cfg(test)]
mod tests;
