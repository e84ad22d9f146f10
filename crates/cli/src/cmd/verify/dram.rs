//! `pciescope verify dram`: the counters of DRAM channels against memory traffic of known size.

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context;
use pciescope_bench::verify::{self, Counter, Options, Side, Verified};
use pciescope_bench::workload::memory::{Generator, Pattern};
use pciescope_core::Cpu;
use pciescope_hw::perf::{self, Pmu};
use pciescope_hw::{environment, topology};
use pciescope_report::import::workload::{self, Amount, Direction};

use super::counters::{ByteEvents, bytes_of, kind_of, open};
use super::{Journal, percent};
use crate::cmd::output::{Output, OutputArgs};
use crate::cmd::{Ctx, Refusal};

/// The arguments of `pciescope verify dram`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope verify dram
  pciescope verify dram --node 0 --patterns rd --threads 8 --seconds 10
  pciescope verify dram --node 1 --with 'numactl --cpubind=1 --membind=1 bw_mem 4096M rd 2>&1'

Patterns, as bw_mem calls them: rd reads every word, fwr stores every word around the cache (no line
is read for ownership), cp copies that way. Threads are pinned to CPUs of the node; their memory is
bound to the node and touched before. `--with` runs lmbench's bw_mem instead and compares its rate
with that of the counters.")]
pub struct Args {
    /// NUMA node; if not given, all nodes one after the other
    #[arg(long, value_name = "N")]
    node: Option<u32>,

    /// What to do
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "rd,fwr,cp", value_enum)]
    patterns: Vec<PatternName>,

    /// Threads per node, on as many of its CPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 4)]
    threads: u32,

    /// Memory of each thread, in MiB: much more than its share of the caches
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 256)]
    size: u32,

    /// How long each pattern takes, in seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 5)]
    seconds: u32,

    /// The error that is allowed, in percent
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "2")]
    tolerance: f64,

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
    /// Store every word around the cache
    Fwr,
    /// Copy, storing around the cache
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

/// How long after the start of a command it is watched: its memory is touched by then.
const LEAD: Duration = Duration::from_secs(1);

/// A node with its CPUs and the PMUs of its channels.
struct Node {
    number: Option<u32>,
    cpus: Vec<u32>,
    pmus: Vec<Pmu>,
}

/// Runs the experiments.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let nodes = nodes(&args, ctx)?;
    let mut journal = Journal::new(ctx, Output::open(&args.output)?, "verify dram");
    let is_emulated = environment::hypervisor(&ctx.root).is_some();
    ctx.stop.catch_signals()?;
    let is_stopped = || ctx.stop.is_set();
    let options = Journal::options(args.tolerance, &is_stopped);
    for node in &nodes {
        if let Some(command) = &args.with {
            let verified = with(command, &args, ctx, node, &options)?;
            journal.put(&verified, None, is_emulated)?;
            continue;
        }
        for pattern in args.patterns.iter().take_while(|_| !ctx.stop.is_set()) {
            let cpus: Vec<u32> = node.cpus.iter().copied().take(args.threads as usize).collect();
            let bytes = (args.size as usize) << 20;
            let mut generator = Generator::new(pattern.pattern(), &cpus, node.number, bytes)?;
            let mut counters = open_all(ctx, node)?;
            let duration = Duration::from_secs(args.seconds.into());
            let verified = verify::memory(&mut generator, duration, &mut counters, &options)?;
            journal.put(&verified, None, is_emulated)?;
        }
    }
    journal.finish()
}

/// The nodes to work on, each with the channels that serve it.
fn nodes(args: &Args, ctx: &Ctx) -> anyhow::Result<Vec<Node>> {
    let cpus = topology::cpus(&ctx.root)?;
    let counts =
        |pmu: &Pmu| kind_of(pmu).is_some_and(|kind| kind.what.is_dram()) && bytes_of(pmu, "read_bytes_per_s").is_some();
    let pmus: Vec<Pmu> = perf::pmus(&ctx.root).into_iter().filter(counts).collect();
    if pmus.is_empty() {
        return Err(Refusal::new(
            "no DRAM counter of this machine is known",
            "`pciescope stat --list` shows the counters; a Yitian 710 needs the driver drw_pmu or alibaba_uncore_drw_pmu",
        )
        .into());
    }
    let of_pmu = |pmu: &Pmu| node_of(pmu, &cpus);
    let mut nodes: Vec<Node> = topology::nodes(&cpus)
        .into_iter()
        .map(|(number, list)| Node {
            number: Some(number),
            cpus: list.iter().collect(),
            pmus: pmus.iter().filter(|pmu| of_pmu(pmu) == Some(number)).cloned().collect(),
        })
        .filter(|node| args.node.is_none_or(|wanted| node.number == Some(wanted)) && !node.pmus.is_empty())
        .collect();
    if nodes.is_empty() && args.node.is_none() {
        // Nothing tells which channels belong to which node: all of them serve all of memory.
        nodes.push(Node { number: None, cpus: cpus.iter().map(|cpu| cpu.cpu).collect(), pmus });
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

/// The node whose memory a PMU counts: as its driver says, as its name says, or that of the CPU that reads it.
fn node_of(pmu: &Pmu, cpus: &[Cpu]) -> Option<u32> {
    let named = || kind_of(pmu)?.place(&pmu.name).get("die").and_then(|die| u32::try_from(*die).ok());
    let has = |node: &u32| cpus.iter().any(|cpu| cpu.node == Some(*node));
    let reader = || pmu.cpus.iter().next().and_then(|number| cpus.iter().find(|cpu| cpu.cpu == number)?.node);
    pmu.die.filter(has).or_else(|| named().filter(has)).or_else(reader)
}

/// Two counters: all reads and all writes of the node's channels.
fn open_all(ctx: &Ctx, node: &Node) -> anyhow::Result<Vec<Box<dyn Counter>>> {
    let mut counters = Vec::new();
    for (side, metric, word) in [(Side::Read, "read_bytes_per_s", "read"), (Side::Write, "write_bytes_per_s", "write")]
    {
        let parts: Vec<(&Pmu, ByteEvents)> =
            node.pmus.iter().filter_map(|pmu| Some((pmu, bytes_of(pmu, metric)?))).collect();
        if parts.len() != node.pmus.len() {
            continue;
        }
        let place = node.number.map_or("all nodes".to_owned(), |number| format!("node {number}"));
        let name = format!("{place}, {} channels, {word}", parts.len());
        counters.push(open(&ctx.root, name, side, &parts)?);
    }
    Ok(counters)
}

/// Runs a bw_mem of the user's and compares its rate with the counters', in a window in its middle as the seed did.
fn with(command: &str, args: &Args, ctx: &Ctx, node: &Node, options: &Options<'_>) -> anyhow::Result<Verified> {
    let mut counters = open_all(ctx, node)?;
    let mut child = None;
    let mut begin = || -> anyhow::Result<()> {
        let started = Command::new("sh").args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        child = Some(started.with_context(|| format!("cannot start {command:?}"))?);
        Ok(())
    };
    let window = Duration::from_secs(args.seconds.into());
    let seen = verify::window(LEAD, window, &mut counters, options, &mut begin);
    let Some(mut child) = child else {
        seen?;
        anyhow::bail!("{command}: was not started");
    };
    if seen.is_err() || ctx.stop.is_set() {
        // Nobody waits for its figures any more; one that has ended needs no end.
        let _ = child.kill();
    }
    let seen = seen.inspect_err(|_| drop(child.wait()))?;
    let had_ended = child.try_wait()?.is_some();
    let output = child.wait_with_output()?;
    let refuse = |why: String, hint: &str| Refusal::new(format!("{command}: {why}"), hint);
    if !output.status.success() {
        return Err(refuse(format!("ended with {}", output.status), "try it by itself").into());
    }
    if had_ended {
        return Err(refuse(
            format!("ended within {} s, while it was being watched", (LEAD + window).as_secs()),
            "give it more memory to go through, or watch for less with --seconds",
        )
        .into());
    }
    // bw_mem prints its figures to the standard error; whoever redirects it has them here.
    let text = format!("$ {command}\n{}", String::from_utf8_lossy(&output.stdout));
    let moved = workload::parse(&text).into_iter().find_map(|moved| match moved.amount {
        Amount::Rate(rate) => Some((moved.name, moved.direction, rate)),
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
    Ok(seen.against(&name, side, rate, options)?)
}
