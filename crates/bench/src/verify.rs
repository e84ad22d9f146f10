//! Counters held against workloads whose traffic is known by their own account.
//!
//! A counter is on before the workload starts and after it has ended, and everything between is compared: bytes with
//! bytes, not rates with rates, so that no window has to be cut out. What else moved meanwhile (other programs) stands beside it as
//! the idle rate and is not subtracted.

use std::time::{Duration, Instant};

use pciescope_core::Comparison;
use pciescope_hw::Root;
use pciescope_hw::daq::Daq;
use pciescope_hw::memory::Buffer;
use pciescope_hw::perf::{self, Event, Group, Pmu};

use crate::estimate::{Sample, estimate};
use crate::workload::fio::Job;
use crate::workload::memory::Generator;
use crate::workload::{self, Moved};

/// Which side of a workload a counter sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What comes from the device or out of memory.
    Read,
    /// What goes to the device or into memory.
    Write,
}

/// A counter that is on.
pub trait Counter {
    /// As tables show it.
    fn name(&self) -> &str;
    /// Which traffic it counts.
    fn side(&self) -> Side;
    /// Bytes per count.
    fn bytes_per_count(&self) -> f64;
    /// Its state now.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn sample(&mut self) -> Result<Sample, perf::Error>;
}

/// A counter read through perf: the sum of the events of one or more PMUs, all in the same unit.
#[derive(Debug)]
pub struct PerfCounter {
    name: String,
    side: Side,
    bytes_per_count: f64,
    groups: Vec<Group>,
}

impl PerfCounter {
    /// Opens and starts `events`, each on the first CPU of its PMU.
    ///
    /// # Errors
    /// As the kernel refuses the first that cannot be counted.
    pub fn open(
        root: &Root,
        name: String,
        side: Side,
        bytes_per_count: f64,
        events: &[(&Pmu, Event)],
    ) -> Result<Self, perf::Error> {
        let mut groups = Vec::new();
        for (pmu, event) in events {
            let group = Group::open(root, pmu, pmu.cpus.iter().next().unwrap_or(0), std::slice::from_ref(event))?;
            group.enable()?;
            groups.push(group);
        }
        Ok(PerfCounter { name, side, bytes_per_count, groups })
    }
}

impl Counter for PerfCounter {
    fn name(&self) -> &str {
        &self.name
    }
    fn side(&self) -> Side {
        self.side
    }
    fn bytes_per_count(&self) -> f64 {
        self.bytes_per_count
    }
    /// The sum of the counts, with the times of the event that ran least.
    fn sample(&mut self) -> Result<Sample, perf::Error> {
        let mut all = Sample { value: 0, enabled_ns: u64::MAX, running_ns: u64::MAX };
        for group in &mut self.groups {
            let reading = group.read()?.reading(0);
            all.value = all.value.wrapping_add(reading.value);
            all.enabled_ns = all.enabled_ns.min(reading.enabled_ns);
            all.running_ns = all.running_ns.min(reading.running_ns);
        }
        Ok(all)
    }
}

/// How to go about it.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Between two readings; several turns of perf's rotation.
    pub tick: Duration,
    /// How long the counters are watched before the workload.
    pub idle: Duration,
    /// The error that is allowed, in percent.
    pub tolerance_percent: f64,
    /// Whether the run shall end.
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
}

/// What one experiment gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Verified {
    /// A row per counter; counters of a side that the workload did not move are compared with 0 bytes and left out.
    pub rows: Vec<Comparison>,
    /// What moved before the workload, in bytes per second, in the rows' order.
    pub idle_bytes_per_s: Vec<f64>,
}

/// Why an experiment gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The workload failed.
    #[error(transparent)]
    Workload(#[from] workload::Error),
    /// A counter failed.
    #[error(transparent)]
    Counter(#[from] perf::Error),
    /// The device that is read failed.
    #[error(transparent)]
    Device(#[from] pciescope_hw::Error),
    /// A counter never ran, or has gone backwards.
    #[error("{counter} {why}")]
    Implausible {
        /// As tables show it.
        counter: String,
        /// What is wrong.
        why: &'static str,
    },
}

impl Error {
    /// What the user can do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Workload(err) => err.hint(),
            Error::Counter(err) => err.hint(),
            Error::Device(err) => err.hint(),
            Error::Implausible { .. } => {
                Some("another user of the counter may hold or reset it; `pciescope stat -e` shows it alone".to_owned())
            }
        }
    }
}

/// A counter with what was read of it.
struct Watched<'c> {
    counter: &'c mut dyn Counter,
    samples: Vec<Sample>,
}

/// Reads all counters; the first failure is kept, and nothing is read after it.
struct Watch<'c> {
    all: Vec<Watched<'c>>,
    failed: Option<perf::Error>,
}

impl<'c> Watch<'c> {
    fn new(counters: &'c mut [Box<dyn Counter>]) -> Self {
        let watched = |counter: &'c mut Box<dyn Counter>| Watched { counter: &mut **counter, samples: Vec::new() };
        Watch { all: counters.iter_mut().map(watched).collect(), failed: None }
    }

    fn read(&mut self) {
        for watched in &mut self.all {
            match watched.counter.sample() {
                Ok(sample) if self.failed.is_none() => watched.samples.push(sample),
                Ok(_) => {}
                Err(err) => {
                    self.failed.get_or_insert(err);
                    return;
                }
            }
        }
    }

    /// Watches for the idle time; gives each counter's rate in bytes per second, and leaves its last sample as the first.
    fn idle(&mut self, options: &Options<'_>) -> Vec<f64> {
        let begin = Instant::now();
        self.read();
        while begin.elapsed() < options.idle && self.failed.is_none() && !(options.is_stopped)() {
            std::thread::sleep(options.tick.min(options.idle));
            self.read();
        }
        let rate = |watched: &mut Watched<'_>| {
            let took = |samples: &[Sample]| Some(samples.last()?.enabled_ns - samples.first()?.enabled_ns);
            let seconds = took(&watched.samples).filter(|ns| *ns > 0).map(|ns| ns as f64 / 1e9);
            let count = estimate(&watched.samples).map_or(0.0, |estimate| estimate.count);
            watched.samples.drain(..watched.samples.len().saturating_sub(1));
            seconds.map_or(0.0, |seconds| count * watched.counter.bytes_per_count() / seconds)
        };
        self.all.iter_mut().map(rate).collect()
    }

    fn compare(self, name: &str, moved: Moved, idle: Vec<f64>, options: &Options<'_>) -> Result<Verified, Error> {
        if let Some(failed) = self.failed {
            return Err(failed.into());
        }
        let mut verified = Verified { rows: Vec::new(), idle_bytes_per_s: Vec::new() };
        for (watched, idle) in self.all.into_iter().zip(idle) {
            let (workload_bytes, way) = match watched.counter.side() {
                Side::Read => (moved.read_bytes, "read"),
                Side::Write => (moved.written_bytes, "write"),
            };
            if workload_bytes == 0 {
                continue;
            }
            let counter = watched.counter.name().to_owned();
            let implausible = |why| Error::Implausible { counter: counter.clone(), why };
            let (Some(first), Some(last)) = (watched.samples.first(), watched.samples.last()) else {
                return Err(implausible("was never read"));
            };
            let never = last.running_ns == first.running_ns;
            let estimate = estimate(&watched.samples).ok_or_else(|| {
                implausible(if never { "never ran: something else holds it" } else { "went backwards" })
            })?;
            let bytes_per_count = watched.counter.bytes_per_count();
            let percent = |count: f64| count * bytes_per_count / workload_bytes as f64 * 100.0;
            let bound_percent = estimate.bound.filter(|_| estimate.running < 1.0).map(percent);
            verified.rows.push(Comparison {
                workload: format!("{name} {way}"),
                counter,
                workload_bytes: workload_bytes as f64,
                workload_s: moved.ns as f64 / 1e9,
                count: estimate.count,
                bytes_per_count,
                parts: 1.0,
                counter_s: (last.enabled_ns - first.enabled_ns) as f64 / 1e9,
                running: estimate.running,
                bound_percent,
                tolerance_percent: Some(options.tolerance_percent),
                ..Comparison::default()
            });
            verified.idle_bytes_per_s.push(idle);
        }
        Ok(verified)
    }
}

/// Runs fio between two readings of the counters, and reads them meanwhile.
///
/// # Errors
/// See [`Error`]. A run that is stopped ends as if it were over, with what had been moved.
pub fn disk(job: &Job, counters: &mut [Box<dyn Counter>], options: &Options<'_>) -> Result<Verified, Error> {
    let mut watch = Watch::new(counters);
    let idle = watch.idle(options);
    let mut fio = job.start()?;
    while !fio.has_ended() {
        if (options.is_stopped)() {
            fio.stop();
        }
        std::thread::sleep(options.tick);
        watch.read();
    }
    let moved = fio.finish()?;
    watch.read();
    watch.compare("fio", moved, idle, options)
}

/// Reads a device from its beginning, again and again, between two readings of the counters, and reads them meanwhile.
///
/// # Errors
/// See [`Error`].
pub fn readout(
    mut daq: Box<dyn Daq>,
    buffer: &mut Buffer,
    bytes: usize,
    duration: Duration,
    counters: &mut [Box<dyn Counter>],
    options: &Options<'_>,
) -> Result<Verified, Error> {
    let mut watch = Watch::new(counters);
    let idle = watch.idle(options);
    let is_stopped = options.is_stopped;
    let moved = std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let (begin, mut read_bytes) = (Instant::now(), 0);
            while begin.elapsed() < duration && !is_stopped() {
                daq.read(0, &mut buffer.bytes_mut()[..bytes])?;
                read_bytes += bytes as u64;
            }
            Ok::<_, pciescope_hw::Error>(Moved { read_bytes, written_bytes: 0, ns: begin.elapsed().as_nanos() as u64 })
        });
        while !reader.is_finished() {
            std::thread::sleep(options.tick);
            watch.read();
        }
        reader.join()
    });
    let moved = moved.unwrap_or_else(|fault| std::panic::resume_unwind(fault))?;
    watch.read();
    watch.compare("readout", moved, idle, options)
}

/// Runs memory traffic between two readings of the counters, and reads them meanwhile.
///
/// # Errors
/// See [`Error`].
pub fn memory(
    generator: &mut Generator,
    duration: Duration,
    counters: &mut [Box<dyn Counter>],
    options: &Options<'_>,
) -> Result<Verified, Error> {
    let mut watch = Watch::new(counters);
    let idle = watch.idle(options);
    let name = generator.pattern().name();
    let moved = generator.run(duration, options.tick, options.is_stopped, &mut || watch.read())?;
    watch.read();
    watch.compare(name, moved, idle, options)
}

/// What the counters saw in a window of a workload that runs on around it.
pub struct Window<'c> {
    watch: Watch<'c>,
    idle: Vec<f64>,
}

/// Reads the counters before `begin` starts a workload that runs by itself, then for `window` in the middle of it, `lead` after its
/// start: how the seed's authors watched bw_mem.
///
/// # Errors
/// [`Error::Counter`]; what `begin` fails with.
pub fn window<'c, E: From<Error>>(
    lead: Duration,
    window: Duration,
    counters: &'c mut [Box<dyn Counter>],
    options: &Options<'_>,
    begin: &mut dyn FnMut() -> Result<(), E>,
) -> Result<Window<'c>, E> {
    let mut watch = Watch::new(counters);
    let idle = watch.idle(options);
    begin()?;
    std::thread::sleep(lead);
    watch.all.iter_mut().for_each(|watched| watched.samples.clear());
    watch.read();
    let begun = Instant::now();
    while begun.elapsed() < window && !(options.is_stopped)() {
        std::thread::sleep(options.tick.min(window));
        watch.read();
    }
    Ok(Window { watch, idle })
}

impl Window<'_> {
    /// Holds what was seen against a rate one way, in bytes per second.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn against(self, name: &str, side: Side, bytes_per_s: f64, options: &Options<'_>) -> Result<Verified, Error> {
        let seconds = |watched: &Watched<'_>| {
            Some((watched.samples.last()?.enabled_ns - watched.samples.first()?.enabled_ns) as f64 / 1e9)
        };
        let window_s = self.watch.all.first().and_then(seconds).unwrap_or(0.0);
        let (bytes, ns) = ((bytes_per_s * window_s) as u64, (window_s * 1e9) as u64);
        let moved = match side {
            Side::Read => Moved { read_bytes: bytes, written_bytes: 0, ns },
            Side::Write => Moved { read_bytes: 0, written_bytes: bytes, ns },
        };
        let mut verified = self.watch.compare(name, moved, self.idle, options)?;
        for row in &mut verified.rows {
            (row.prints_rate, row.printed_bytes) = (true, Some(bytes_per_s));
            // The name says which way already.
            name.clone_into(&mut row.workload);
        }
        Ok(verified)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::rc::Rc;

    use super::*;
    use crate::workload::fio::Way;

    /// Counts `rate` a millisecond of its own, which is a call.
    struct Steady {
        name: &'static str,
        side: Side,
        rate: u64,
        at: Rc<Cell<u64>>,
        share: u64,
    }

    impl Counter for Steady {
        fn name(&self) -> &str {
            self.name
        }
        fn side(&self) -> Side {
            self.side
        }
        fn bytes_per_count(&self) -> f64 {
            16.0
        }
        fn sample(&mut self) -> Result<Sample, perf::Error> {
            self.at.set(self.at.get() + 1);
            let (at, running) = (self.at.get(), self.at.get() * self.share);
            Ok(Sample { value: running * self.rate, enabled_ns: at * 100, running_ns: running })
        }
    }

    const OPTIONS: Options<'_> = Options {
        tick: Duration::from_millis(2),
        idle: Duration::from_millis(1),
        tolerance_percent: 1.0,
        is_stopped: &|| false,
    };

    /// A fio that says it moved so many bytes.
    fn fio(folder: &Path, read: u64, written: u64) -> Job {
        let program = folder.join("fio");
        let json = format!(
            r#"{{"jobs":[{{"error":0,"read":{{"io_bytes":{read},"runtime":20}},"write":{{"io_bytes":{written},"runtime":20}}}}]}}"#
        );
        std::fs::write(&program, format!("#!/bin/sh\nsleep 0.02\ncat <<'END'\n{json}\nEND\n")).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        Job { program, ..Job::new(Path::new("/dev/null"), Way::Both, 1) }
    }

    fn counters(share: u64) -> (Vec<Box<dyn Counter>>, Rc<Cell<u64>>) {
        let at = Rc::new(Cell::new(0));
        let steady =
            |name, side| Box::new(Steady { name, side, rate: 10, at: Rc::clone(&at), share }) as Box<dyn Counter>;
        (vec![steady("port/rx/", Side::Read), steady("port/tx/", Side::Write)], at)
    }

    #[test]
    fn each_counter_is_held_against_its_side() {
        let folder = tempfile::tempdir().unwrap();
        let (mut counters, _) = counters(100);
        let verified = disk(&fio(folder.path(), 16_000, 0), &mut counters, &OPTIONS).unwrap();
        assert_eq!(verified.rows.len(), 1, "nothing was written, so the Tx counter says nothing");
        let row = &verified.rows[0];
        assert_eq!((row.counter.as_str(), row.workload.as_str()), ("port/rx/", "fio read"));
        assert_eq!((row.workload_bytes, row.bytes_per_count, row.running), (16_000.0, 16.0, 1.0));
        assert_eq!(row.bound_percent, None);
        // Counts in steps of 1000 a reading, two counters taking turns: the first sample is the last of the idle time.
        assert!(row.count > 0.0 && row.count % 1000.0 == 0.0, "{row:?}");
        assert!(verified.idle_bytes_per_s[0] > 0.0);
    }

    #[test]
    fn what_a_device_gave_is_held_against_its_port() {
        let path = Path::new("fake:digitizer?rate=0");
        let daq = || pciescope_hw::daq::open(&Root::at("/"), path, &Default::default()).unwrap();
        let (mut counters, _) = counters(100);
        let mut buffer = Buffer::on_node(4096, None).unwrap();
        let ms = Duration::from_millis(10);
        let verified = readout(daq(), &mut buffer, 4096, ms, &mut counters, &OPTIONS).unwrap();
        assert_eq!(verified.rows.len(), 1);
        let row = &verified.rows[0];
        assert_eq!((row.workload.as_str(), row.counter.as_str()), ("readout read", "port/rx/"));
        assert!(row.workload_bytes >= 4096.0 && row.workload_bytes % 4096.0 == 0.0, "{row:?}");
        let gone =
            pciescope_hw::daq::open(&Root::at("/"), Path::new("fake:digitizer?gone-after=1"), &Default::default());
        let failed = readout(gone.unwrap(), &mut buffer, 4096, ms, &mut counters, &OPTIONS).unwrap_err();
        assert!(matches!(failed, Error::Device(_)) && failed.to_string().contains("gone-after"), "{failed}");
    }

    #[test]
    fn a_scaled_counter_has_its_share_and_bound() {
        let folder = tempfile::tempdir().unwrap();
        let (mut counters, _) = counters(50);
        let verified = disk(&fio(folder.path(), 16_000, 16_000), &mut counters, &OPTIONS).unwrap();
        assert_eq!(verified.rows.len(), 2);
        for row in &verified.rows {
            assert_eq!(row.running, 0.5);
            assert!(row.bound_percent.is_some_and(|bound| bound < 1e-6), "a steady rate has no spread: {row:?}");
        }
    }

    #[test]
    fn a_wrong_counter_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let (mut counters, _) = counters(100);
        let verified = disk(&fio(folder.path(), 1_000_000_000, 0), &mut counters, &OPTIONS).unwrap();
        assert_eq!(verified.rows[0].is_right(), Some(false));
    }

    #[test]
    fn a_rate_is_held_against_a_window_in_its_middle() {
        let (mut counters, at) = counters(100);
        let ms = Duration::from_millis;
        let mut begun_at = 0;
        let mut begin = || {
            begun_at = at.get();
            Ok::<(), Error>(())
        };
        let window = window(ms(5), ms(20), &mut counters, &OPTIONS, &mut begin).unwrap();
        assert!(begun_at > 0, "the idle time comes first");
        // 1000 counts of 16 bytes every 100 ns, two counters taking turns.
        let verified = window.against("bw_mem rd", Side::Read, 1.6e11, &OPTIONS).unwrap();
        let row = &verified.rows[0];
        assert_eq!((row.workload.as_str(), row.counter.as_str(), verified.rows.len()), ("bw_mem rd", "port/rx/", 1));
        assert_eq!(row.printed_bytes, Some(1.6e11));
        assert!(row.error_percent().is_some_and(|error| error.abs() < 0.01), "{row:?}");
    }

    #[test]
    fn a_counter_that_never_ran_is_no_zero() {
        let folder = tempfile::tempdir().unwrap();
        let (mut counters, _) = counters(0);
        let refused = disk(&fio(folder.path(), 16_000, 0), &mut counters, &OPTIONS).unwrap_err();
        assert_eq!(refused.to_string(), "port/rx/ never ran: something else holds it");
    }
}
