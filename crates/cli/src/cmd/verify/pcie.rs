//! `pciescope verify pcie`: the payload counters of a disk's root port against fio.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pciescope_bench::counters::Place;
use pciescope_bench::verify::{Experiment, Options, Side};
use pciescope_bench::workload;
use pciescope_bench::workload::fio::{Job, Way};
use pciescope_hw::block::{self, Disk};
use pciescope_hw::nodes;

use super::{Journal, payload, seconds};
use crate::cmd::output::OutputArgs;
use crate::cmd::{Ctx, Refusal};
use crate::values::{Percent, Time, percent};

/// The arguments of `pciescope verify pcie`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope verify pcie /dev/nvme0n1
  pciescope verify pcie /mnt/fast/file --duration 1min -o verify.jsonl
  pciescope verify pcie /dev/nvme1n1 --write
  pciescope verify pcie /dev/nvme0n1 -- --rate=200m

fio reads; with --write it also writes, and then reads and writes together. By
default it uses four processes with 64 requests of 1 MiB each and bypasses the
page cache; options after `--` change this. A port with only one time-based
counter counts the two directions in turn; the table then has the share of the
time and a bound of the error.")]
pub struct Args {
    /// The disk that fio reads and writes, by node, name or address, or a file on it
    #[arg(value_name = "DEV")]
    device: PathBuf,

    /// Also write, and then read and write together; this overwrites the contents of the target
    #[arg(long)]
    write: bool,

    /// Write even if the disk holds data
    #[arg(long, requires = "write")]
    destroy_data: bool,

    /// The time for each experiment
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "20s")]
    duration: Time,

    /// The allowed error
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1%")]
    tolerance: Percent,

    /// The PMU, if it is not the one of the disk's root port
    #[arg(long, value_name = "PMU")]
    pmu: Option<String>,

    /// The program fio
    #[arg(long, value_name = "FILE", default_value = "fio")]
    fio: PathBuf,

    #[command(flatten)]
    output: OutputArgs,

    /// More options for fio, after `--`
    #[arg(last = true, value_name = "OPTION")]
    more: Vec<String>,
}

/// Runs the experiments.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let target = &*nodes::node_of(&ctx.root, &args.device)?;
    let disk = Disk::of(&ctx.root, target)?;
    if args.write {
        refuse_to_destroy(&args, target, ctx, &disk)?;
    }
    let place = place(&args, &disk)?;
    let ways: &[(Way, &[Side])] =
        &[(Way::Read, &[Side::Read]), (Way::Write, &[Side::Write]), (Way::Both, &[Side::Read, Side::Write])];
    let ways = if args.write { ways } else { &ways[..1] };
    let counted = ways.iter().map(|(_, sides)| payload(ctx, place.clone(), sides)).collect::<Result<Vec<_>, _>>()?;
    let mut journal = Journal::open(ctx, &args.output, &[target], "verify pcie")?;
    let is_stopped = || ctx.stop.is_set();
    let options = Options { tolerance_percent: args.tolerance.0, is_stopped: &is_stopped };
    let seconds = whole_seconds(args.duration);
    for ((way, _), (choice, counters)) in ways.iter().zip(&counted).take_while(|_| !ctx.stop.is_set()) {
        if ctx.terminal {
            ctx.note(&format!("{}: fio {} for {} s", choice.instruments[0].pmu.name, way.name(), seconds));
        }
        let mut job = Job::new(target, *way, seconds);
        job.program.clone_from(&args.fio);
        job.more.clone_from(&args.more);
        let experiment = Experiment::open(&ctx.root, choice, counters, options)?;
        // A signal while the counters were opened: fio would not know of it.
        if ctx.stop.is_set() {
            break;
        }
        let verified = experiment.run("fio", || job.run(&is_stopped))?;
        let load = format!("fio {}", way.name());
        journal.put(verified, choice.panels[0].function.as_ref(), (&load, counters))?;
    }
    journal.finish()
}

/// fio's `--runtime`: a part of a second is rounded up.
fn whole_seconds(time: Time) -> u32 {
    u32::try_from(time.0.div_ceil(1_000_000_000)).unwrap_or(u32::MAX)
}

/// A disk or file that holds something is not written to by mistake. A file system that is not mounted is something too.
fn refuse_to_destroy(args: &Args, target: &Path, ctx: &Ctx, disk: &Disk) -> anyhow::Result<()> {
    if args.destroy_data {
        return Ok(());
    }
    let mut holds = if disk.is_whole { disk.holds(&ctx.root) } else { Vec::new() };
    holds.extend(block::contents(target)?);
    if holds.is_empty() {
        return Ok(());
    }
    let (target, why) = (target.display().to_string(), holds.join("; "));
    Err(workload::Error::Destructive { target, why }.into())
}

/// Where the payload is counted: at the PMU that was named, or at the disk's root port.
fn place(args: &Args, disk: &Disk) -> anyhow::Result<Place> {
    match (&args.pmu, disk.way.first()) {
        (Some(pmu), _) => Ok(Place::Pmus(pmu.clone())),
        (None, Some(port)) => Ok(Place::Function(*port)),
        (None, None) => {
            let text = format!("{} is not on PCIe", disk.name);
            Err(Refusal::new(text, "name a disk that is, or its port's PMU with --pmu").into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_second_is_rounded_up() {
        for (ns, seconds) in [(1_000_000_000, 1), (1_900_000_000, 2), (1_000_000_001, 2), (60_000_000_000, 60)] {
            assert_eq!(whole_seconds(Time(ns)), seconds);
        }
        assert_eq!(whole_seconds(Time(u64::MAX)), u32::MAX);
    }
}
