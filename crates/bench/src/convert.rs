//! Conversions by themselves: how fast each kernel is, against the memory's ceiling, and whether it is exact.
//!
//! Passes of a kernel and of the ceiling take turns on the same memory, so that other work on the machine affects both.
//! docs/convert.md says what counts.

mod exact;
mod settle;
mod spec;

use pciescope_core::warning;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::thread;
use std::time::Duration;

use pciescope_convert::{Conversion, Decimation, Isa, Store};
use pciescope_core::convert::{ConvertPlan, Kernel, TEST};
use pciescope_core::plan::Plan;
use pciescope_core::record::{Metric, Record};
use pciescope_core::{Cpu, Environment, Histogram, Identity, Sink};
use pciescope_hw::memory::ratio::{self, Ratio};
use pciescope_hw::memory::{Buffer, Pinned};
use pciescope_hw::placement::THREAD_LIMITS;
use pciescope_hw::{Root, check};

pub use self::spec::{Output, Spec, all};

use self::exact::Checked;
use self::settle::{Settled, Which, settle};
use crate::journal::{Journal, Summary};

/// Samples below which a size measures calls rather than conversions.
pub const SMALLEST: u64 = 1024;

/// A row whose quartiles are farther apart than this share of the median is doubtful, in percent.
const NOISY_PERCENT: f64 = 10.0;

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Task {
    /// The kernels.
    pub kernels: Vec<Spec>,
    /// Samples of input, each at least [`SMALLEST`].
    pub sizes: Vec<u64>,
    /// Instruction sets.
    pub isas: Vec<Isa>,
    /// Ways to store.
    pub stores: Vec<Store>,
    /// Threads, at least 1.
    pub threads: u32,
    /// The CPU of a single thread; where it happens to be if not given.
    pub cpu: Option<u32>,
    /// The longest time for a row.
    pub duration: Duration,
    /// What the user calls the run.
    pub label: Option<String>,
}

/// Why nothing was measured, or not to the end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The memory for samples and numbers cannot be allocated.
    #[error("cannot allocate {bytes} bytes of memory for {samples} samples")]
    Memory {
        /// Bytes of the buffer.
        bytes: u128,
        /// Samples of input.
        samples: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The thread cannot be held on its CPU.
    #[error("cannot measure on CPU {cpu}")]
    Cpu {
        /// The CPU.
        cpu: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A thread of the kernel or of the ceiling cannot be created.
    #[error("{kernel}: {why}")]
    Thread {
        /// The kernel's name.
        kernel: String,
        /// Which thread, and why.
        why: String,
    },
    /// The conversion was refused.
    #[error("{kernel}: {source}")]
    Refused {
        /// The kernel's name.
        kernel: String,
        /// By the crate that converts.
        source: pciescope_convert::Error,
    },
    /// A record could not be written.
    #[error(transparent)]
    Session(#[from] crate::Error),
}

impl Error {
    /// What the user can do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Memory { .. } => Some("give fewer samples with --samples".to_owned()),
            Error::Cpu { .. } => Some("give a CPU that is online and that this process may use".to_owned()),
            Error::Thread { .. } => Some(format!("take fewer with --threads; {THREAD_LIMITS}")),
            Error::Refused { .. } => Some("`pciescope convert --list` shows what is available".to_owned()),
            Error::Session(error) => error.hint(),
        }
    }
}

/// Measures each kernel at each size with each instruction set and way to store, and hands a record of each to the
/// sink. `progress` gets the name of the row that begins, the number of rows before it, and the number of all rows.
///
/// # Errors
/// See [`Error`]. A run that is stopped ends with a record that says so.
pub fn measure(
    root: &Root,
    environment: Environment,
    task: &Task,
    is_stopped: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(&str, usize, usize),
    sink: &mut dyn Sink,
) -> Result<Summary, Error> {
    let pinned = match (task.threads, task.cpu) {
        (1, Some(cpu)) => Some(Pinned::to(cpu).map_err(|source| Error::Cpu { cpu, source })?),
        // Without it the kernel may move the thread; the spread would show it.
        (1, None) => Pinned::here().ok(),
        _ => None,
    };
    let place = |cpu: u32| environment.cpus.iter().find(|known| known.cpu == cpu).cloned();
    let cpu = pinned.as_ref().map(|pinned| place(pinned.cpu()).unwrap_or(Cpu { cpu: pinned.cpu(), ..Cpu::default() }));
    let mut run = Session { cpu, journal: Journal::new(Identity::new("convert", task.label.clone()), sink) };
    run.begin(root, environment, task)?;
    let rows = task.sizes.len() * task.kernels.len() * task.isas.len() * task.stores.len();
    let mut done = 0;
    for &samples in &task.sizes {
        let mut memory = Memory::new(task, samples)?;
        for spec in &task.kernels {
            for (&isa, &store) in task.isas.iter().flat_map(|isa| task.stores.iter().map(move |store| (isa, store))) {
                let row = Trial::new(spec, isa, store, task.threads)?;
                progress(&row.kernel(samples as usize).name, done, rows);
                let figures = row.measure(&mut memory, samples as usize, task.duration, is_stopped)?;
                if is_stopped() {
                    run.journal.interrupted(TEST)?;
                    return Ok(run.journal.finish()?);
                }
                run.put(&row, samples as usize, figures)?;
                done += 1;
            }
        }
    }
    Ok(run.journal.finish()?)
}

/// Input and output. Every page is touched, and asked to be huge.
struct Memory {
    from: Buffer,
    to: Buffer,
}

impl Memory {
    fn new(task: &Task, samples: u64) -> Result<Self, Error> {
        let buffer = |bytes: u128| {
            let refused = |source| Error::Memory { bytes, samples, source };
            // Half of the address space is more than any machine has; the kernel refuses what it does not have.
            let len = isize::try_from(bytes).map_err(|_| refused(io::ErrorKind::OutOfMemory.into()))?;
            Buffer::on_node(len as usize, None).map_err(refused)
        };
        let written = |spec: &Spec| u128::from(samples) / spec.decimation as u128 * spec.output.size() as u128;
        let mut from = buffer(u128::from(samples) * 2)?;
        let to = buffer(task.kernels.iter().map(written).max().unwrap_or(0))?;
        // No zeros: they are written faster than other values on some CPUs (crates/hw/src/memory/ratio.rs).
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for four in from.samples_mut().chunks_mut(4) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            four.iter_mut().enumerate().for_each(|(place, sample)| *sample = (state >> (16 * place)) as u16);
        }
        Ok(Memory { from, to })
    }
}

/// A row of the table, before it was measured.
struct Trial<'s> {
    spec: &'s Spec,
    conversion: Conversion,
    store: Store,
    threads: u32,
}

/// What was measured of a row.
struct Figures {
    kernel: Settled,
    /// None where the size is below a step of the ceiling's loop.
    ceiling: Option<(Settled, ratio::Store, usize)>,
    checked: Checked,
}

impl<'s> Trial<'s> {
    fn new(spec: &'s Spec, isa: Isa, store: Store, threads: u32) -> Result<Self, Error> {
        let conversion = || {
            let conversion = Conversion::new(spec.sample, spec.operation)?.with_isa(isa)?.with_store(store);
            conversion.with_decimation(Decimation { offset: 0, factor: spec.decimation })
        };
        let conversion = conversion().map_err(|source| Error::Refused { kernel: spec.name(), source })?;
        Ok(Trial { spec, conversion, store, threads })
    }

    fn kernel(&self, samples: usize) -> Kernel {
        let written = self.conversion.output_len(samples) * self.spec.output.size();
        let can_stream = matches!(self.conversion.isa(), Isa::Avx2 | Isa::Avx512);
        let is_streaming = self.store.is_streaming(written);
        Kernel {
            name: self.spec.name(),
            sample: self.spec.sample_name().to_owned(),
            operation: self.spec.operation_text(),
            output: self.spec.output.name().to_owned(),
            decimation: self.spec.decimation as u64,
            isa: self.conversion.isa().name().to_owned(),
            store: if is_streaming && can_stream { "streaming" } else { "cached" }.to_owned(),
            threads: self.threads(samples) as u32,
        }
    }

    /// How many threads convert so many samples, and move as many bytes for the ceiling.
    fn threads(&self, samples: usize) -> usize {
        self.conversion.threads(samples, self.spec.output.size(), self.threads as usize)
    }

    /// Bytes that a pass over so many samples reads, and bytes that it writes.
    fn bytes(&self, samples: usize) -> (usize, usize) {
        let values = self.conversion.output_len(samples);
        let read = if self.spec.is_dense() { 2 * samples } else { ratio::LINE * values };
        (read, values * self.spec.output.size())
    }

    fn measure(
        &self,
        memory: &mut Memory,
        samples: usize,
        duration: Duration,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Figures, Error> {
        let (read, written) = self.bytes(samples);
        let ratio = Ratio::of(self.spec.bytes_read_per_value(), self.spec.output.size());
        let (from_lines, to_lines) = (read / ratio::LINE, written / ratio::LINE);
        let (moved_from, moved_to) = ratio.bytes(from_lines, to_lines);
        let threads = self.threads(samples);
        let mut store = ratio::Store::Streaming;
        let failed = RefCell::new(None);
        let mut pass = |which: Which| {
            // The figures of a row without all its threads are thrown away: the rest of the row may do nothing.
            if failed.borrow().is_some() {
                return;
            }
            let done = match which {
                Which::Kernel => self.convert(memory, samples),
                Which::Ceiling(store) => {
                    let (from, to) = (&memory.from.lines()[..from_lines], &mut memory.to.lines_mut()[..to_lines]);
                    ceiling(ratio, from, to, store, threads).map_err(|why| self.not_started(why))
                }
            };
            *failed.borrow_mut() = done.err();
        };
        let has_ceiling = moved_from > 0;
        if has_ceiling {
            store = settle::faster(&mut pass);
        }
        let is_over = || is_stopped() || failed.borrow().is_some();
        let (kernel, ceiling) = settle(duration, has_ceiling.then_some(store), &is_over, &mut pass);
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
        // The memory now holds the output of the ceiling's loop.
        self.convert(memory, samples)?;
        let mut checked = exact::every_word(self.spec, &self.conversion);
        checked.output(self.spec, &memory.from.samples()[..samples], &mut memory.to);
        Ok(Figures { kernel, ceiling: ceiling.map(|settled| (settled, store, moved_from + moved_to)), checked })
    }

    fn not_started(&self, why: String) -> Error {
        Error::Thread { kernel: self.spec.name(), why }
    }

    fn convert(&self, memory: &mut Memory, samples: usize) -> Result<(), Error> {
        let (from, threads) = (&memory.from.samples()[..samples], self.threads as usize);
        let converted = match (self.spec.output, threads) {
            (Output::F32, 1) => self.conversion.to_f32(from, memory.to.singles_mut()),
            (Output::F64, 1) => self.conversion.to_f64(from, memory.to.doubles_mut()),
            (Output::F32, _) => self.conversion.to_f32_parallel(from, memory.to.singles_mut(), threads),
            (Output::F64, _) => self.conversion.to_f64_parallel(from, memory.to.doubles_mut(), threads),
        };
        match converted {
            Err(error @ pciescope_convert::Error::Thread { .. }) => Err(self.not_started(error.to_string())),
            converted => {
                converted.expect("the buffer was made for the largest output");
                Ok(())
            }
        }
    }
}

/// A pass of the ceiling, by as many threads as the conversion takes. Says which thread could not be created, and why.
fn ceiling(
    ratio: Ratio,
    from: &[ratio::Line],
    to: &mut [ratio::Line],
    store: ratio::Store,
    threads: usize,
) -> Result<(), String> {
    if threads == 1 {
        ratio::pass(ratio, from, to, store);
        return Ok(());
    }
    let (read, write) = ratio.lines();
    let steps = (from.len() / read).min(to.len() / write).div_ceil(threads).max(1);
    thread::scope(|scope| {
        let mut parts = from.chunks(steps * read).zip(to.chunks_mut(steps * write));
        let own = parts.next();
        for (thread, (from, to)) in (1..).zip(parts) {
            let started = thread::Builder::new().spawn_scoped(scope, move || ratio::pass(ratio, from, to, store));
            started.map_err(|error| format!("cannot start thread {thread} of {threads} threads: {error}"))?;
        }
        if let Some((from, to)) = own {
            ratio::pass(ratio, from, to, store);
        }
        Ok(())
    })
}

/// A run that goes on.
struct Session<'a> {
    /// The CPU of the records.
    cpu: Option<Cpu>,
    journal: Journal<'a>,
}

impl Session<'_> {
    fn begin(&mut self, root: &Root, environment: Environment, task: &Task) -> Result<(), Error> {
        let plan = ConvertPlan {
            kernels: task.kernels.iter().map(Spec::name).collect(),
            sizes: task.sizes.clone(),
            isas: task.isas.iter().map(|isa| isa.name().to_owned()).collect(),
            stores: task.stores.iter().map(|store| spec::store_name(*store).to_owned()).collect(),
            threads: task.threads,
            duration_ns: u64::try_from(task.duration.as_nanos()).unwrap_or(u64::MAX),
        };
        let warnings = check::machine_warnings(root, &environment);
        Ok(self.journal.put(Record::first(environment, Plan::Convert(plan), warnings))?)
    }

    fn put(&mut self, row: &Trial<'_>, samples: usize, figures: Figures) -> Result<(), Error> {
        let kernel = row.kernel(samples);
        if figures.checked.wrong > 0 {
            let Checked { wrong, largest_error, .. } = figures.checked;
            self.journal.summary.failed_checks.push(format!(
                "{} ({}, {}): {wrong} numbers are not the reference's, by up to {largest_error} ULP",
                kernel.name, kernel.isa, kernel.store
            ));
        }
        let (metrics, histograms) = metrics(row, samples, &figures);
        let spread = |name: &str| metrics.get(name).map_or(0.0, |metric| metric.value);
        let mut warnings = Vec::new();
        if spread("spread") > NOISY_PERCENT || spread("ceiling_spread") > NOISY_PERCENT {
            // The same words for every row, so that tables say it once.
            warnings.push(
                warning::NOISY
                    .warn(format!("the quartiles of a row's passes are more than {NOISY_PERCENT} % apart (spread)")),
            );
        }
        Ok(self.journal.put(Record {
            test: TEST.to_owned(),
            cpu: self.cpu.clone(),
            kernel: Some(kernel),
            metrics,
            histograms,
            warnings,
            ..Record::default()
        })?)
    }
}

type Named<T> = BTreeMap<String, T>;

/// What a record of the row holds; the names are those of `pciescope_core::convert`.
fn metrics(row: &Trial<'_>, samples: usize, figures: &Figures) -> (Named<Metric>, Named<Histogram>) {
    let (read, written) = row.bytes(samples);
    let moved = (read + written) as f64;
    let duration = figures.kernel.median_ns();
    let (mut metrics, mut histograms) = (BTreeMap::new(), BTreeMap::new());
    let mut put = |name: &str, value: f64, unit: &str| drop(metrics.insert(name.to_owned(), Metric::of(value, unit)));
    put("samples", samples as f64, "1");
    put("values", row.conversion.output_len(samples) as f64, "1");
    put("bytes_read", read as f64, "bytes");
    put("bytes_written", written as f64, "bytes");
    put("bytes_moved", moved, "bytes");
    put("passes", figures.kernel.passes() as f64, "1");
    put("batch", figures.kernel.batch as f64, "1");
    let rate = moved / duration * 1e9;
    if duration > 0.0 {
        put("duration", duration, "ns");
        put("rate", rate, "bytes/s");
        put("samples_per_s", samples as f64 / duration * 1e9, "1/s");
        put("spread", figures.kernel.spread_percent(), "%");
        histograms.insert("duration".to_owned(), figures.kernel.histogram());
    }
    if let Some((settled, store, moved)) = &figures.ceiling {
        let ceiling = *moved as f64 / settled.median_ns() * 1e9;
        if ceiling.is_finite() {
            put("ceiling", ceiling, "bytes/s");
            put("ceiling_streaming", f64::from(*store == ratio::Store::Streaming), "1");
            put("of_ceiling", rate / ceiling * 100.0, "%");
            put("ceiling_spread", settled.spread_percent(), "%");
            histograms.insert("ceiling".to_owned(), settled.histogram());
        }
    }
    let checked = &figures.checked;
    put("largest_error", checked.largest_error as f64, "ulp");
    put("bound", exact::BOUND as f64, "ulp");
    put("wrong", checked.wrong as f64, "1");
    put("checked", checked.checked as f64, "1");
    (metrics, histograms)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn task() -> Task {
        Task {
            kernels: all(10)[..2].to_vec(),
            sizes: vec![SMALLEST],
            isas: vec![Isa::Scalar],
            stores: vec![Store::Auto],
            threads: 1,
            cpu: None,
            duration: Duration::ZERO,
            label: None,
        }
    }

    #[test]
    fn a_number_that_is_wrong_is_a_failed_check() {
        let (task, mut kept) = (task(), Vec::<Record>::new());
        let mut run = Session { cpu: None, journal: Journal::new(Identity::new("convert", None), &mut kept) };
        let row = Trial::new(&task.kernels[0], Isa::Scalar, Store::Auto, 1).unwrap();
        let mut memory = Memory::new(&task, SMALLEST).unwrap();
        for wrong in [0, 3] {
            let mut figures = row.measure(&mut memory, SMALLEST as usize, Duration::ZERO, &|| false).unwrap();
            figures.checked.wrong += wrong;
            run.put(&row, SMALLEST as usize, figures).unwrap();
        }
        let summary = run.journal.finish().unwrap();
        assert_eq!(summary.failed_checks.len(), 1, "{:?}", summary.failed_checks);
        assert!(summary.failed_checks[0].starts_with("u16-cast-f32 (scalar, cached): 3 numbers are not"));
        assert_eq!(kept[1].metrics["wrong"].value, 3.0);
    }

    #[test]
    fn a_run_that_is_stopped_says_so_and_keeps_what_it_had() {
        let (root, mut kept) = (Root::at("/nonexistent"), Vec::<Record>::new());
        let rows = Cell::new(0);
        // Ended by the user while the second row is measured.
        let is_stopped = || rows.get() == 2;
        let mut progress = |_: &str, done: usize, of: usize| {
            assert_eq!((done, of), (rows.get(), 2));
            rows.set(rows.get() + 1);
        };
        let summary = measure(&root, Environment::default(), &task(), &is_stopped, &mut progress, &mut kept).unwrap();
        let tests: Vec<&str> = kept.iter().map(|record| record.test.as_str()).collect();
        assert_eq!(tests, ["environment", TEST, TEST]);
        assert!(kept[1].metrics.contains_key("rate"));
        assert_eq!(kept[2].error.as_ref().map(|failure| failure.code.as_str()), Some("interrupted"));
        assert_eq!((summary.failures.len(), summary.records), (1, 3));
    }

    #[test]
    fn threads_share_the_ceiling_and_leave_nothing_out() {
        let ratio = Ratio::of(2, 4);
        let from: Vec<ratio::Line> = (1..=1001).map(|number| ratio::Line([number; 8])).collect();
        for threads in [1, 2, 3, 2000] {
            let mut to = vec![ratio::Line([0; 8]); 2003];
            ceiling(ratio, &from, &mut to, ratio::Store::Streaming, threads).unwrap();
            assert!(to[..2002].chunks(2).zip(&from).all(|(pair, line)| pair == [*line; 2]), "{threads} threads");
            assert_eq!(to[2002], ratio::Line([0; 8]));
        }
    }
}
