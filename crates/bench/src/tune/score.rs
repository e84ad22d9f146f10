//! What a block is measured by: register reads, the number that a workload prints, or a law on the synthetic machine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pciescope_core::outcome::{LATENCY, TRIGGER_TO_HANDLER};
use pciescope_core::text::chain;
use pciescope_core::tune::Goal;
use pciescope_core::{Access, Bdf, CpuList, Function, IrqPlan, MmioPlan};
use pciescope_hw::memory::{BLOCK, Buffer};
use pciescope_hw::placement::Pinned;
use pciescope_hw::probe::{Probe, Slice, Watch};
use pciescope_hw::tune::{ErrorPlaces, TuneSession, fake};
use pciescope_hw::usage::Usage;
use pciescope_hw::wait::OwnGroup;
use pciescope_hw::{Root, daq};

use crate::soak::Beside;

use super::{BlockFigures, Random, Subject, Wanted};

/// What measures a block.
pub trait Scorer {
    /// Measures, from these CPUs or, without them, as it would anyway.
    ///
    /// # Errors
    /// Why there is no figure.
    fn score(&mut self, cpus: Option<&CpuList>, watch: &dyn Watch) -> Result<BlockFigures, String>;
    /// The time since the beginning, in nanoseconds.
    fn now_ns(&self) -> u64;
}

/// A machine of files, real or not: knobs by a session, the figure by a scorer.
pub struct TunedMachine<'m> {
    root: Root,
    counted: ErrorPlaces,
    /// Replays and other errors that counters of the link's ends have and AER has not.
    beside: Option<Beside>,
    session: Option<TuneSession>,
    scorer: &'m mut dyn Scorer,
    watch: &'m dyn Watch,
    duration_ns: u64,
}

impl<'m> TunedMachine<'m> {
    /// Errors of the function and the ports above it tell of harm; `duration_ns` is that of all, for the progress.
    pub fn new(
        root: &Root,
        function: &Function,
        session: TuneSession,
        scorer: &'m mut dyn Scorer,
        watch: &'m dyn Watch,
        duration_ns: u64,
    ) -> Self {
        let ends: Vec<Bdf> = function.path.last().copied().into_iter().chain(function.bdf).collect();
        TunedMachine {
            root: root.clone(),
            counted: ErrorPlaces::of(root, function),
            beside: Beside::open(root, &ends, false).filter(|_| root.is_live()),
            session: Some(session),
            scorer,
            watch,
            duration_ns,
        }
    }
}

impl Subject for TunedMachine<'_> {
    fn set(&mut self, wanted: &[Wanted]) -> Result<Option<String>, pciescope_hw::Error> {
        self.session.as_mut().map_or(Ok(None), |session| session.set(wanted))
    }
    fn block(&mut self) -> Result<BlockFigures, String> {
        self.watch.progress(self.now_ns() / 1_000_000, self.duration_ns / 1_000_000);
        let cpus = self.session.as_ref().and_then(TuneSession::cpus);
        self.scorer.score(cpus.as_ref(), self.watch)
    }
    fn errors(&mut self) -> BTreeMap<String, u64> {
        let mut all = self.counted.counts(&self.root);
        if let Some(beside) = &mut self.beside {
            beside.read();
            for event in beside.events() {
                *all.entry(format!("{} {}", event.bdf, event.event)).or_default() += event.count;
            }
        }
        all
    }
    fn now_ns(&self) -> u64 {
        self.scorer.now_ns()
    }
    fn is_stopped(&self) -> bool {
        self.watch.is_stopped()
    }
    fn end(&mut self) -> Result<Vec<String>, pciescope_hw::Error> {
        Ok(self.session.take().map(TuneSession::end).transpose()?.map(|put| put.left).unwrap_or_default())
    }
}

/// What is timed.
pub enum Timed {
    /// Reads of a register.
    Reads(MmioPlan),
    /// Interrupts, from the trigger to the handler.
    Interrupts(IrqPlan),
}

/// Blocks without a sample one after the other that make one without a figure.
const MOST_EMPTY: usize = 10;

/// Samples of a probe: the median decides, in nanoseconds.
pub struct Samples<'p> {
    /// The probe.
    pub probe: &'p mut dyn Probe,
    /// What is timed; its CPUs are those that measure, the first of them unless a setting says otherwise.
    pub what: Timed,
    /// The length of a block, in nanoseconds.
    pub block_ns: u64,
    /// When the experiment began.
    pub begun: Instant,
}

impl Scorer for Samples<'_> {
    fn score(&mut self, cpus: Option<&CpuList>, watch: &dyn Watch) -> Result<BlockFigures, String> {
        let (Timed::Reads(MmioPlan { cpus: own, .. }) | Timed::Interrupts(IrqPlan { cpus: own, .. })) = &self.what;
        let first = cpus.unwrap_or(own).iter().next().ok_or("no CPU to measure from")?;
        let slice = Slice { cpus: CpuList::from_iter([first]), count: 0, duration_ns: self.block_ns };
        // A host that stands still may leave a short block without a sample: that is no harm of a setting.
        for _ in 0..MOST_EMPTY {
            let (sampled, name) = match &self.what {
                Timed::Reads(plan) => (self.probe.mmio(plan, &slice, watch), LATENCY),
                Timed::Interrupts(plan) => (self.probe.irq(plan, &slice, watch), TRIGGER_TO_HANDLER),
            };
            let sampled = sampled.map_err(|error| chain(&error))?;
            if let Some(failure) = sampled.failure {
                return Err(failure.text);
            }
            let samples = sampled.outcomes.first().and_then(|outcome| outcome.histograms.get(name));
            if let Some((samples, score)) = samples.and_then(|samples| Some((samples, samples.middle_ns()?))) {
                let prices = samples.percentile_ns(99.0).map(|p99| ("p99", p99)).into_iter().collect();
                return Ok(BlockFigures { score, prices, ..BlockFigures::default() });
            }
        }
        Err("no sample".to_owned())
    }
    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }
}

/// A workload that prints its figure.
pub struct Workload {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The figure: a place in JSON such as `jobs.0.read.iops`, or any name for a number that stands alone.
    pub name: String,
    /// What it reads, if it is a readout of this program.
    pub readout: Option<ReadoutDevice>,
    /// The longest time of a run, in nanoseconds.
    pub most_ns: u64,
    /// When the experiment began.
    pub begun: Instant,
}

/// What a readout of this program reads.
pub struct ReadoutDevice {
    root: Root,
    node: PathBuf,
    /// Of a disk, as they were in the present state.
    first: Vec<u8>,
}

/// Where the records of a readout have their rate.
pub const SPEED: &str = "metrics.speed.value";
/// Where they have their CPU time.
pub const CPU_PER_GB: &str = "metrics.cpu_per_gb.value";
const WRONG: &str = "metrics.wrong.value";

impl ReadoutDevice {
    /// A node, whose first bytes every setting has to read alike.
    ///
    /// # Errors
    /// Why they cannot be read.
    pub fn new(root: &Root, node: PathBuf) -> Result<ReadoutDevice, String> {
        let device = ReadoutDevice { root: root.clone(), node, first: Vec::new() };
        Ok(ReadoutDevice { first: device.read()?, ..device })
    }

    /// Its first bytes, past the page cache where the file system has that; none of a digitizer, whose readout compares itself.
    fn read(&self) -> Result<Vec<u8>, String> {
        const MOST: u64 = 1 << 20;
        let open = |access| daq::open(&self.root, &self.node, &daq::Options { access, ..daq::Options::default() });
        let mut daq = open(Access::Direct).or_else(|_| open(Access::Read)).map_err(|error| chain(&error))?;
        let about = daq.about();
        let is_disk = matches!(about.kind, "block" | "file");
        let bytes = about.bytes.filter(|_| is_disk).unwrap_or(0).min(MOST) as usize / BLOCK * BLOCK;
        let mut buffer = Buffer::on_node(bytes, None).map_err(|error| error.to_string())?;
        let to = &mut buffer.bytes_mut()[..bytes];
        daq.read(0, to).map_err(|error| chain(&error))?;
        Ok(to.to_vec())
    }

    /// Bytes that are not as they have to be: those that the readout found, or of the first ones.
    fn differing(&self, out: &str) -> Result<u64, String> {
        let found = number(out, WRONG).unwrap_or(0.0) as u64;
        let now = self.read()?;
        Ok(found.max(now.iter().zip(&self.first).filter(|(now, first)| now != first).count() as u64))
    }
}

/// So often a run is looked at for its end.
const TICK: Duration = Duration::from_millis(5);

impl Scorer for Workload {
    fn score(&mut self, cpus: Option<&CpuList>, watch: &dyn Watch) -> Result<BlockFigures, String> {
        let (program, arguments) = self.command.split_first().ok_or("no workload")?;
        let program = Path::new(program);
        let fail = |error: std::io::Error| format!("{}: {error}", program.display());
        // Files, not pipes: output of any length never stops it.
        let (mut stdout, mut stderr) = (tempfile::tempfile().map_err(fail)?, tempfile::tempfile().map_err(fail)?);
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        command.stdout(stdout.try_clone().map_err(fail)?).stderr(stderr.try_clone().map_err(fail)?);
        // What it starts inherits the CPUs.
        let pinned = cpus.map(Pinned::on).transpose().map_err(fail)?;
        let (begun, before) = (Instant::now(), Usage::children());
        let mut group = OwnGroup::start(&mut command).map_err(fail)?;
        drop(pinned);
        let status = loop {
            if let Some(status) = group.status().map_err(fail)? {
                break status;
            }
            if watch.is_stopped() || begun.elapsed().as_nanos() as u64 > self.most_ns {
                return Err(format!("{} did not end in time", program.display()));
            }
            std::thread::sleep(TICK);
        };
        let text = |file: &mut std::fs::File| {
            let mut bytes = Vec::new();
            let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let out = text(&mut stdout);
        let differing = self.readout.as_ref().map_or(Ok(0), |device| device.differing(&out))?;
        // A readout of wrong data fails, and has its figures.
        if !status.success() && differing == 0 {
            let said = text(&mut stderr);
            let last = said.lines().last().unwrap_or("no word");
            return Err(format!("{} ended with {status}: {last}", program.display()));
        }
        let score = number(&out, &self.name)?;
        let own = || Ok(Usage::children().since(&before).total_ns as f64);
        let cpu = self.readout.as_ref().map_or_else(own, |_| number(&out, CPU_PER_GB))?;
        Ok(BlockFigures { score, prices: vec![("cpu", cpu)], differing })
    }
    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }
}

/// The figure in what a workload printed: the place of that name in JSON (in the last document that has it), or the one number
/// that stands in the text.
///
/// # Errors
/// No number, several, or no such place.
pub fn number(text: &str, name: &str) -> Result<f64, String> {
    // fio may write notes before its JSON.
    let json = if text.starts_with('{') { Some(text) } else { text.find("\n{").map(|at| &text[at..]) };
    if let Some(json) = json {
        let place = format!("/{}", name.replace('~', "~0").replace('/', "~1").replace('.', "/"));
        let documents: Result<Vec<serde_json::Value>, _> =
            serde_json::Deserializer::from_str(json).into_iter().collect();
        let documents = documents.map_err(|error| format!("it printed {error}"))?;
        let found = documents.iter().rev().find_map(|document| document.pointer(&place)?.as_f64());
        return found.ok_or_else(|| format!("its JSON has no number at {name}"));
    }
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers.as_slice() {
        [number] => Ok(*number),
        [] => Err("it printed no number".to_owned()),
        more => Err(format!("it printed {} numbers, not one", more.len())),
    }
}

/// The synthetic machine: its registers change the figure by a law, noise and drift come on top. A block takes 100 ms of a time
/// that passes at once.
pub struct Law {
    root: Root,
    bdf: Bdf,
    goal: Goal,
    random: Random,
    blocks: u64,
}

impl Law {
    /// A latency, or a rate where more is better. The noise is that of the seed.
    pub fn new(root: &Root, bdf: Bdf, goal: Goal, seed: u64) -> Law {
        Law { root: root.clone(), bdf, goal, random: Random::new(seed), blocks: 0 }
    }
}

impl Scorer for Law {
    fn score(&mut self, _: Option<&CpuList>, _: &dyn Watch) -> Result<BlockFigures, String> {
        self.blocks += 1;
        // A latency is the inverse of the rate. Half a percent of noise, and a slow wave of one.
        let wave = (self.blocks as f64 / 300.0).sin() * 0.01;
        let sign = if self.goal == Goal::Max { 1.0 } else { -1.0 };
        let log = wave + 0.005 * self.random.normal() + sign * fake::law(&self.root, self.bdf);
        let tail = 1.4 * (0.02 * self.random.normal()).exp();
        let score = 1000.0 * log.exp();
        Ok(BlockFigures { score, prices: vec![("p99", score * tail)], ..BlockFigures::default() })
    }
    fn now_ns(&self) -> u64 {
        self.blocks * 100_000_000
    }
}
