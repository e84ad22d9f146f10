//! `pciescope verify dram`: the counters of DRAM channels against memory traffic of known size.

use std::io::{Read, Seek};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use pciescope_bench::counters::{self, Choice, Origin, Wanted};
use pciescope_bench::verify::{Counter, Experiment, Options, Side, Verified};
use pciescope_bench::workload::IsStopped;
use pciescope_bench::workload::memory::{Generator, Pattern};
use pciescope_core::Cpu;
use pciescope_hw::topology;
use pciescope_hw::wait::OwnGroup;
use pciescope_report::import::workload::{self, Amount, Direction};

use super::{Journal, seconds};
use crate::cmd::device::of_cpuset;
use crate::cmd::output::OutputArgs;
use crate::cmd::{Ctx, Refusal};
use crate::values::{Percent, Size, Time, memory, percent};

/// The arguments of `pciescope verify dram`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope verify dram
  pciescope verify dram --node 0 --patterns rd --threads 8 --duration 10s
  pciescope verify dram --with 'numactl -N 1 -m 1 bw_mem 4096M rd 2>&1' --node 1

The patterns have bw_mem's names: rd reads every word, fwr stores every word
with stores that bypass the cache (no line is read for ownership), cp copies
with such stores. Threads are pinned to CPUs of the node. Their memory is bound
to the node, and every page is touched before. `--with` runs lmbench's bw_mem
instead and compares its rate with that of the counters.")]
pub struct Args {
    /// NUMA node; if not given, all nodes one after the other
    #[arg(long, value_name = "NODE")]
    node: Option<u32>,

    /// The patterns to run
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "rd,fwr,cp", value_enum)]
    patterns: Vec<PatternName>,

    /// Threads per node, each on its own CPU; if not given, 4, or as many as the node has CPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,

    /// Memory of each thread: much more than its share of the caches
    #[arg(long, value_name = "SIZE", value_parser = of_thread, default_value = "256M")]
    size: Size,

    /// The time for each pattern
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "5s")]
    duration: Time,

    /// The allowed error
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "2%")]
    tolerance: Percent,

    /// Run this instead: a command that prints what bw_mem prints
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["patterns", "threads", "size"])]
    with: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

/// A pattern by bw_mem's word for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PatternName {
    /// Read every word
    Rd,
    /// Store every word with stores that bypass the cache
    Fwr,
    /// Copy with stores that bypass the cache
    Cp,
}

impl PatternName {
    fn pattern(self) -> Pattern {
        match self {
            PatternName::Rd => Pattern::Read,
            PatternName::Fwr => Pattern::Fill,
            PatternName::Cp => Pattern::Copy,
        }
    }
}

fn of_thread(text: &str) -> Result<Size, String> {
    memory(text, 1)
}

/// How long after the start of a command it is watched: its memory is touched by then.
const LEAD: Duration = Duration::from_secs(1);
/// So often it is looked at for its end.
const TICK: Duration = Duration::from_millis(20);

/// A node with its CPUs and the counters of its channels.
struct MemoryNode {
    number: Option<u32>,
    cpus: Vec<u32>,
    choice: Choice,
    /// All reads and all writes.
    counters: Vec<Counter>,
}

/// The metrics of both sides, and the word for each.
const SIDES: [(Side, &str, &str); 2] =
    [(Side::Read, "read_bytes_per_s", "read"), (Side::Write, "write_bytes_per_s", "write")];

/// Runs the experiments.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let nodes = nodes(&args, ctx)?;
    let cpus = nodes.iter().map(|node| pinned(&args, node, ctx)).collect::<Result<Vec<_>, _>>()?;
    if args.with.is_none() {
        fits(args.size.0, cpus.iter().map(Vec::len).max().unwrap_or(0), ctx)?;
    }
    let mut journal = Journal::open(ctx, &args.output, &[], "verify dram")?;
    let is_stopped = || ctx.stop.is_set();
    let options = Options { tolerance_percent: args.tolerance.0, is_stopped: &is_stopped };
    let duration = args.duration.duration();
    for (node, cpus) in nodes.iter().zip(&cpus).take_while(|_| !ctx.stop.is_set()) {
        let open = || Experiment::open(&ctx.root, &node.choice, &node.counters, options);
        if let Some(command) = &args.with {
            journal.put(with(command, open()?, duration, &is_stopped)?, None, (command, &node.counters))?;
            continue;
        }
        for pattern in args.patterns.iter().take_while(|_| !ctx.stop.is_set()) {
            let bytes = usize::try_from(args.size.0)?;
            let mut generator = Generator::new(pattern.pattern(), cpus, node.number, bytes)?;
            let name = generator.pattern().name();
            let verified = open()?.run(name, || generator.run(duration, &is_stopped))?;
            journal.put(verified, None, (name, &node.counters))?;
        }
    }
    journal.finish()
}

/// Refuses more memory than is free: the kernel would end this program, or another one.
fn fits(bytes: u64, threads: usize, ctx: &Ctx) -> anyhow::Result<()> {
    let text = ctx.root.text("/proc/meminfo").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let wanted = bytes.saturating_mul(threads as u64);
    // A tenth is left to others.
    let Some(free) = kib.map(|kib| kib * 1024 / 10 * 9).filter(|free| *free < wanted) else { return Ok(()) };
    let (wanted, mib) = (wanted >> 20, (free / threads.max(1) as u64) >> 20);
    let text = format!("{threads} threads need {wanted} MiB of memory, {} MiB are free", free >> 20);
    Err(Refusal::new(text, format!("take --size {}M, or fewer threads; a small size measures the caches", mib.max(1)))
        .into())
}

/// Threads per node, unless the user says so.
const THREADS: usize = 4;

/// The CPUs of a node to which threads are pinned; none for a command of the user's.
fn pinned(args: &Args, node: &MemoryNode, ctx: &Ctx) -> anyhow::Result<Vec<u32>> {
    if args.with.is_some() {
        return Ok(Vec::new());
    }
    let cpus: Vec<u32> = of_cpuset(ctx, &node.cpus.iter().copied().collect()).iter().collect();
    let place = node.place();
    match args.threads.map(|threads| threads as usize) {
        _ if cpus.is_empty() => {
            let text = format!("{place}: the cpuset of this process has none of its CPUs");
            Err(Refusal::new(text, "name another node with --node, or start from a wider cpuset").into())
        }
        Some(threads) if threads > cpus.len() => {
            let text = format!("--threads {threads}: {place}: {} CPUs, one for each thread", cpus.len());
            Err(Refusal::new(text, format!("take --threads {}, or leave it out", cpus.len())).into())
        }
        threads => Ok(cpus.into_iter().take(threads.unwrap_or(THREADS)).collect()),
    }
}

/// The nodes to work on, each with the channels that serve it.
fn nodes(args: &Args, ctx: &Ctx) -> anyhow::Result<Vec<MemoryNode>> {
    let cpus = topology::cpus(&ctx.root)?;
    let metrics = SIDES.map(|(_, metric, _)| metric.to_owned()).into();
    let choice = match counters::choose(&ctx.root, &Wanted { metrics, origin: Origin::Hardware, ..Wanted::default() }) {
        Err(counters::Error::None { .. } | counters::Error::NoMetric { .. }) => Choice::default(),
        other => other?,
    };
    let (side, metric, _) = SIDES[0];
    let is_dram = |number: &usize| choice.panels[*number].kind.is_some_and(|kind| kind.what.is_dram());
    let counts = |number: &usize| is_dram(number) && Counter::of_panel(&choice, *number, side, metric).is_some();
    let channels: Vec<usize> = (0..choice.panels.len()).filter(counts).collect();
    if channels.is_empty() {
        return Err(Refusal::new(
            "no DRAM counter of this machine is known",
            "`pciescope stat --list` shows the counters; a Yitian 710 needs the driver drw_pmu or alibaba_uncore_drw_pmu",
        )
        .into());
    }
    let mut nodes: Vec<MemoryNode> = topology::nodes(&cpus)
        .into_iter()
        .filter(|(number, _)| args.node.is_none_or(|wanted| *number == wanted))
        .filter_map(|(number, list)| {
            let own = |channel: &usize| node_of(&choice, *channel, &cpus) == Some(number);
            let own: Vec<usize> = channels.iter().copied().filter(own).collect();
            (!own.is_empty()).then(|| node(Some(number), list.iter().collect(), choice.only(&own)))
        })
        .collect();
    if nodes.is_empty() && args.node.is_none() {
        // Nothing tells which channels belong to which node: all of them serve all of memory.
        nodes.push(node(None, cpus.iter().map(|cpu| cpu.cpu).collect(), choice.only(&channels)));
    }
    if nodes.is_empty() {
        let wanted = args.node.unwrap_or_default();
        return Err(Refusal::new(
            format!("NUMA node {wanted}: no DRAM counter belongs to it"),
            "`pciescope stat --list` shows the counters; leave out --node to take all",
        )
        .into());
    }
    Ok(nodes)
}

/// The node whose memory a channel is: as its driver or its name says where there is such a node, else that of the CPU that
/// reads it.
fn node_of(choice: &Choice, channel: usize, cpus: &[Cpu]) -> Option<u32> {
    let has = |node: &u32| cpus.iter().any(|cpu| cpu.node == Some(*node));
    let reader = || cpus.iter().find(|cpu| cpu.cpu == choice.instruments[channel].cpu)?.node;
    choice.panels[channel].node.filter(has).or_else(reader)
}

/// A node with its two counters; one that not all channels have is left out.
fn node(number: Option<u32>, cpus: Vec<u32>, choice: Choice) -> MemoryNode {
    let channels = choice.panels.len();
    let mut node = MemoryNode { number, cpus, choice, counters: Vec::new() };
    let (place, choice) = (node.place(), &node.choice);
    let mut counters = Vec::new();
    for (side, metric, word) in SIDES {
        let of_channel = |channel| Counter::of_panel(choice, channel, side, metric);
        let Some(all) = (0..channels).map(of_channel).collect::<Option<Vec<Counter>>>() else { continue };
        let name = format!("{place}, {channels} channels, {word}");
        let panels = (0..channels).collect();
        counters.extend(all.into_iter().next().map(|one| Counter { name, panels, ..one }));
    }
    node.counters = counters;
    node
}

impl MemoryNode {
    /// As tables and messages call it.
    fn place(&self) -> String {
        self.number.map_or("all nodes".to_owned(), |number| format!("node {number}"))
    }
}

/// Runs the user's bw_mem and compares its rate with that of the counters, in a window in its middle as the seed did.
/// Nothing is compared if the run shall end before bw_mem has.
fn with(
    command: &str,
    mut experiment: Experiment,
    window: Duration,
    is_stopped: IsStopped,
) -> anyhow::Result<Vec<Verified>> {
    let Some(beside) = run_beside(command, is_stopped, || experiment.watch(window))? else { return Ok(Vec::new()) };
    let refuse = |why: String, hint: &str| Refusal::new(format!("{command}: {why}"), hint);
    if !beside.status.success() {
        return Err(refuse(format!("ended with {}", beside.status), "try it by itself").into());
    }
    if beside.ended_before {
        return Err(refuse(
            format!("ended within {} s, while it was being watched", (LEAD + window).as_secs()),
            "give it more memory to go through, or watch for less with --duration",
        )
        .into());
    }
    // bw_mem prints its figures to the standard error; whoever redirects it has them here.
    let text = format!("$ {command}\n{}", beside.said);
    let moved = workload::parse(&text).traffic.into_iter().find_map(|moved| match moved.amount {
        Amount::Rate { rate, .. } => Some((moved.name, moved.direction, rate)),
        Amount::Bytes { .. } => None,
    });
    let Some((name, direction, rate)) = moved else {
        return Err(refuse(
            "its standard output has no line of bw_mem's (megabytes, megabytes a second)".to_owned(),
            "bw_mem prints to the standard error: add 2>&1; the command must name the test, rd or fwr",
        )
        .into());
    };
    let side = match direction {
        Direction::Read => Side::Read,
        Direction::Write => Side::Write,
    };
    Ok(experiment.compare_rate(&name, side, rate)?)
}

/// How a command ended beside which something was watched.
struct Beside {
    status: ExitStatus,
    /// Whether it ended before the watch did.
    ended_before: bool,
    /// Its standard output.
    said: String,
}

/// Runs a command, and beside it `watch` after [`LEAD`]. `None` if the run shall end before the command has: then the
/// command is killed with all that it started. A terminal's Ctrl-C does not reach it.
fn run_beside(
    command: &str,
    is_stopped: IsStopped,
    watch: impl FnOnce() -> Result<(), pciescope_bench::Error>,
) -> anyhow::Result<Option<Beside>> {
    let fail = || format!("cannot start {command:?}");
    // A file, not a pipe: an output of any length never stops it.
    let mut output = tempfile::tempfile().with_context(fail)?;
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(output.try_clone().with_context(fail)?);
    let mut group = OwnGroup::start(&mut shell).with_context(fail)?;
    let begin = Instant::now();
    while begin.elapsed() < LEAD && !is_stopped() {
        std::thread::sleep(TICK);
    }
    watch()?;
    let mut status = group.status()?;
    let ended_before = status.is_some();
    let status = loop {
        if is_stopped() {
            return Ok(None);
        }
        if let Some(status) = status {
            break status;
        }
        std::thread::sleep(TICK);
        status = group.status()?;
    };
    let mut bytes = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut bytes)?;
    Ok(Some(Beside { status, ended_before, said: String::from_utf8_lossy(&bytes).into_owned() }))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_command_that_runs_to_its_end_is_heard() {
        let beside = run_beside("sleep 1.5; echo done; exit 3", &|| false, || Ok(())).unwrap().unwrap();
        assert_eq!((beside.status.code(), beside.ended_before, beside.said.as_str()), (Some(3), false, "done\n"));
        let beside = run_beside("echo early", &|| false, || Ok(())).unwrap().unwrap();
        assert_eq!((beside.status.code(), beside.ended_before, beside.said.as_str()), (Some(0), true, "early\n"));
    }

    /// A signal before, in or after the watch is no failure of the command.
    #[test]
    fn a_run_that_is_stopped_ends_the_command_and_refuses_nothing() {
        let begin = Instant::now();
        for in_watch in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let alive = folder.path().join("alive");
            let command = format!("while sleep 0.05; do echo x >>{}; done & wait", alive.display());
            let is_stopped = AtomicBool::new(!in_watch);
            let watch = || {
                is_stopped.store(true, Ordering::Relaxed);
                Ok(())
            };
            let beside = run_beside(&command, &|| is_stopped.load(Ordering::Relaxed), watch).unwrap();
            assert!(beside.is_none());
            let size = || std::fs::metadata(&alive).map_or(0, |meta| meta.len());
            let before = size();
            std::thread::sleep(Duration::from_millis(300));
            assert_eq!(size(), before, "what the command started runs on");
        }
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
}
