//! The groups of a run, one after the other: all threads of a group start together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use pciescope_core::record::{Failure, Warning};
use pciescope_core::{Environment, Metric, Sink};
use pciescope_hw::Root;
use pciescope_hw::daq::{Daq, Options};
use pciescope_hw::perf::{Profile, Sampler, Sampling, Symbols, Whom};
use pciescope_hw::usage::{CpuTime, Usage};
use pciescope_hw::wait::now_ns;

use super::plan::{Group, Opener, ReadoutOptions, Source};
use super::record::{Context, Writer};
use super::row::{Active, Laps, active};
use super::worker::{self, Gate, WorkerArgs, WorkerResult};
use crate::error::Error;
use crate::journal::Summary;

/// What is to be done.
pub struct Task<'t> {
    /// All devices, by their first mention.
    pub devices: Vec<Source>,
    /// What runs at the same time, in order.
    pub groups: Vec<Group>,
    /// How to go about it.
    pub options: ReadoutOptions,
    /// The machine as it is now.
    pub environment: Environment,
    /// Properties of the machine and the devices that make figures doubtful.
    pub warnings: Vec<Warning>,
    /// What the user calls the run.
    pub label: Option<String>,
    /// Opens the devices, for each group anew.
    pub open: &'t Opener<'t>,
}

/// What a run asks and tells its caller.
pub trait Host: Sync {
    /// Whether the run shall end.
    fn is_stopped(&self) -> bool;
    /// Group `number` of `of` begins.
    fn begin(&self, number: usize, of: usize, group: &Group);
    /// How often [`Host::moved`] is called; `None` for never. The thread that calls waits meanwhile and reads nothing.
    fn period(&self) -> Option<Duration> {
        None
    }
    /// All devices of the group together have read so many bytes, so many nanoseconds after they began.
    fn moved(&self, _bytes: u64, _ns: u64) {}
}

/// Carries out the groups, and writes the records of each when it has ended: its devices in their order, each with its
/// functions in theirs, then the summary.
///
/// # Errors
/// [`Error::Sink`]. Failures of a device are in its records and in the summary.
pub fn measure(root: &Root, task: Task<'_>, host: &dyn Host, sink: &mut dyn Sink) -> Result<Summary, Error> {
    let mut writer = Writer::begin(sink, &task)?;
    for (number, group) in task.groups.iter().enumerate() {
        if host.is_stopped() {
            break;
        }
        host.begin(number, task.groups.len(), group);
        let taken = carry_out(root, &task, group, host);
        let context = Context { task: &task, group, number: number as u32 };
        writer.group(&context, taken)?;
    }
    writer.finish(host.is_stopped())
}

/// What a group gave.
pub(super) struct Outcome {
    /// In the order of the group's devices.
    pub taken: Vec<WorkerResult>,
    /// Just before the threads were started.
    pub origin_ns: u64,
    pub active: Active,
    /// Figures of the summary.
    pub metrics: BTreeMap<String, Metric>,
    /// Where the time went, if that was asked for.
    pub profile: Option<Result<Profile, pciescope_hw::perf::Error>>,
}

fn carry_out(root: &Root, task: &Task<'_>, group: &Group, host: &dyn Host) -> Outcome {
    let sources: Vec<&Source> = group.devices.iter().filter_map(|place| task.devices.get(*place)).collect();
    let opened: Vec<Result<Box<dyn Daq>, Failure>> = sources.iter().map(|source| open(task, group, source)).collect();
    let gate = Gate::default();
    let is_stopped = || host.is_stopped();
    let moved = AtomicU64::new(0);
    let (mut origin_ns, mut before, mut sampler) = (0, None, None);
    let taken: Vec<WorkerResult> = thread::scope(|scope| {
        let (ready, is_ready) = channel();
        // Each thread of a device holds one end until it ends.
        let (alive, ended) = channel::<()>();
        let threads: Vec<_> = opened
            .into_iter()
            .zip(&sources)
            .map(|(daq, source)| {
                let (ready, alive, gate, is_stopped, moved) =
                    (ready.clone(), alive.clone(), &gate, &is_stopped, &moved);
                daq.and_then(|daq| {
                    let args = WorkerArgs { daq, source, group, options: &task.options, gate, is_stopped, moved };
                    let thread = thread::Builder::new().spawn_scoped(scope, move || {
                        let _alive = alive;
                        worker::run(args, ready)
                    });
                    thread.map_err(|error| not_started(&error))
                })
            })
            .collect();
        drop(ready);
        drop(alive);
        // A thread that panics before it is ready drops its end.
        let running = threads.iter().filter(|thread| thread.is_ok()).count();
        let _ = is_ready.iter().take(running).count();
        // The threads of the devices are all there by now.
        sampler = task.options.hot_spots.map(|top| sampler_of(root, top));
        before = Some((CpuTime::load(root).ok(), Usage::process()));
        origin_ns = now_ns();
        gate.open();
        if let Some(period) = host.period() {
            while ended.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                host.moved(moved.load(Ordering::Relaxed), now_ns() - origin_ns);
            }
        }
        let end = |thread: Result<thread::ScopedJoinHandle<'_, WorkerResult>, Failure>| {
            let taken = thread.and_then(|thread| thread.join().map_err(|_| panicked()));
            taken.unwrap_or_else(|failure| WorkerResult { failure: Some((0, failure)), ..WorkerResult::default() })
        };
        threads.into_iter().map(end).collect()
    });
    let elapsed_ns = now_ns() - origin_ns;
    let after = (CpuTime::load(root).ok(), Usage::process());
    let profile = sampler.map(|sampler| {
        let mut sampler: Sampler = sampler?;
        sampler.stop()?;
        Ok(sampler.take(&mut Symbols::of(root)))
    });
    let mut metrics = BTreeMap::new();
    let mut put = |name: &str, value: Option<f64>, unit: &str| {
        metrics.extend(value.map(|value| (name.to_owned(), Metric::of(value, unit))));
    };
    if let Some((machine, process)) = before {
        let machine = machine.and_then(|machine| Some(after.0.as_ref()?.since(&machine)));
        put("cpu", machine.and_then(|machine| machine.busy_percent()), "%");
        // Comparing is ours, not the readout's.
        let checking_ns: u64 = taken.iter().map(|taken| taken.checking_ns).sum();
        let used_ns = after.1.since(&process).total_ns.saturating_sub(checking_ns);
        // The last comparison comes after the last row's end, so it is not part of the time either.
        let last_end_ns = taken.iter().flat_map(|taken| &taken.rows).map(|row| row.end_ns).max();
        let span_ns = last_end_ns.map_or(elapsed_ns, |end_ns| end_ns.saturating_sub(origin_ns).min(elapsed_ns));
        put("cpu_top", (span_ns > 0).then(|| used_ns as f64 / span_ns as f64 * 100.0), "%");
    }
    let laps: Vec<Laps> = taken.iter().map(WorkerResult::laps).collect();
    let active = if laps.len() > 1 { active(&laps.iter().collect::<Vec<_>>()) } else { Active::default() };
    Outcome { taken, origin_ns, active, metrics, profile }
}

/// Samples all threads of this process from now on.
fn sampler_of(root: &Root, top: usize) -> Result<Sampler, pciescope_hw::perf::Error> {
    let sampler = Sampler::open(root, Whom::Process, &Sampling { top, ..Sampling::default() })?;
    sampler.start()?;
    Ok(sampler)
}

fn open(task: &Task<'_>, group: &Group, source: &Source) -> Result<Box<dyn Daq>, Failure> {
    let options = &task.options;
    let options = Options {
        access: group.plan.access,
        is_writable: group.plan.functions.contains(&pciescope_core::Work::WritePattern.number()),
        buffer_bytes: if options.is_fused { options.fused_piece(source) } else { options.piece.unwrap_or(0) },
        depth: options.depth,
        node: source.node,
    };
    (task.open)(&source.path, &options).map_err(|err| worker::failure(&err))
}

/// The device whose thread could not be created; the others are read.
fn not_started(error: &std::io::Error) -> Failure {
    let text = format!("the thread of the device could not be created: {error}");
    Failure::refused(text, Some(pciescope_hw::placement::THREAD_LIMITS.to_owned()))
}

fn panicked() -> Failure {
    let text = "the thread of the device ended by a fault of this program".to_owned();
    Failure::refused(text, Some("please report it, with the command".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use pciescope_core::ReadoutPlan;
    use pciescope_hw::daq::{About, Costs, Span, Take, Trigger};

    use super::*;
    use crate::readout::plan::Board;

    /// A device that ends its thread.
    #[derive(Default)]
    struct Faulty(About);

    impl Daq for Faulty {
        fn about(&self) -> &About {
            &self.0
        }

        fn read(&mut self, _: u64, _: &mut [u8]) -> Result<(), pciescope_hw::Error> {
            Ok(())
        }

        fn stream(&mut self, _: Span, _: Take<'_>) -> Result<(), pciescope_hw::Error> {
            Ok(())
        }

        fn write(&mut self, _: u64, _: &[u8]) -> Result<(), pciescope_hw::Error> {
            Ok(())
        }

        fn costs(&mut self) -> Result<Option<Costs>, pciescope_hw::Error> {
            panic!("a fault of this program")
        }
    }

    struct Quiet;

    impl Host for Quiet {
        fn is_stopped(&self) -> bool {
            false
        }

        fn begin(&self, _: usize, _: usize, _: &Group) {}
    }

    #[test]
    fn a_thread_that_ends_before_it_is_ready_holds_up_nobody() {
        let (tell, told) = channel();
        // Left behind if it hangs.
        thread::spawn(move || {
            let root = Root::at("/");
            let open = |path: &std::path::Path, options: &Options| match path.to_str() {
                Some("faulty") => Ok(Box::new(Faulty::default()) as Box<dyn Daq>),
                _ => pciescope_hw::daq::open(&Root::at("/"), path, options),
            };
            let paths = ["fake:digitizer?rate=0", "faulty", "fake:digitizer?rate=0&slot=7"].map(PathBuf::from);
            let devices = paths.map(|path| Source::survey(&open, &path, &Options::default()).unwrap());
            let plan = ReadoutPlan { samples: 1000, repeats: 1, functions: vec![0], ..ReadoutPlan::default() };
            let task = Task {
                devices: devices.into(),
                groups: vec![Group { sweep: None, devices: vec![0, 1, 2], plan }],
                options: ReadoutOptions {
                    check: None,
                    is_all_checked: false,
                    is_each: false,
                    is_fused: false,
                    piece: None,
                    depth: 0,
                    board: Board { channels: 1, divider: None, trigger: Trigger::Now },
                    timeout_ms: 1000,
                    hot_spots: None,
                    min_bytes_per_s: None,
                    isa: None,
                },
                environment: Environment::default(),
                warnings: Vec::new(),
                label: None,
                open: &open,
            };
            let outcome = carry_out(&root, &task, &task.groups[0], &Quiet);
            let _ = tell.send(outcome.taken.iter().map(|taken| taken.failure.is_some()).collect::<Vec<_>>());
        });
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(vec![false, true, false]));
    }
}
