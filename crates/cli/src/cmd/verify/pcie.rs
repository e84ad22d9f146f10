//! `pciescope verify pcie`: the payload counters of a disk's root port against fio.

use std::path::PathBuf;
use std::process::ExitCode;

use pciescope_bench::verify::{self, Counter, Side};
use pciescope_bench::workload;
use pciescope_bench::workload::fio::{Job, Way};
use pciescope_core::Bdf;
use pciescope_hw::block::{self, Disk};
use pciescope_hw::pci;
use pciescope_hw::perf::{self, Pmu};

use super::counters::{bytes_of, open, port_of};
use super::{Journal, percent};
use crate::cmd::output::{Output, OutputArgs};
use crate::cmd::{Ctx, Refusal};

/// The arguments of `pciescope verify pcie`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope verify pcie --target /dev/nvme0n1
  pciescope verify pcie --target /mnt/fast/file --seconds 60 -o verify.jsonl
  pciescope verify pcie --target /dev/nvme1n1 --write
  pciescope verify pcie --target /dev/nvme0n1 -- --rate=200m

fio reads, and with --write also writes and mixes both: four processes of 64 requests of 1 MiB around
the page cache, unless options after `--` say otherwise. If both directions are counted at once on a
port with one time-based counter, they take turns; the table then has the share of the time and a
bound of the error.")]
pub struct Args {
    /// The disk or the file that fio works on
    #[arg(long, value_name = "DISK")]
    target: PathBuf,

    /// Also write, and read and write at once; what the target holds is overwritten
    #[arg(long)]
    write: bool,

    /// Write even if the disk holds data
    #[arg(long, requires = "write")]
    destroy_data: bool,

    /// How long each experiment takes, in seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 20)]
    seconds: u32,

    /// The error that is allowed, in percent
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1")]
    tolerance: f64,

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
    let disk = Disk::of(&ctx.root, &args.target)?;
    if args.write {
        refuse_to_destroy(&args, ctx, &disk)?;
    }
    let pmu = find_pmu(&args, ctx, &disk)?;
    let port = port_of(&pmu);
    let function = port.and_then(|port| pci::function(&ctx.root, port).ok());
    let is_emulated = function.as_ref().is_some_and(|function| function.emulated.is_some());
    let mut journal = Journal::new(ctx, Output::open(&args.output)?, "verify pcie");
    ctx.stop.catch_signals()?;
    let is_stopped = || ctx.stop.is_set();
    let options = Journal::options(args.tolerance, &is_stopped);
    let ways: &[Way] = if args.write { &[Way::Read, Way::Write, Way::Both] } else { &[Way::Read] };
    for way in ways.iter().take_while(|_| !ctx.stop.is_set()) {
        if ctx.terminal {
            ctx.note(&format!("{}: fio {} for {} s", pmu.name, way.name(), args.seconds));
        }
        let mut job = Job::new(&args.target, *way, args.seconds);
        job.program.clone_from(&args.fio);
        job.more.clone_from(&args.more);
        let mut counters = open_for(ctx, &pmu, *way)?;
        let verified = verify::disk(&job, &mut counters, &options)?;
        journal.put(&verified, function.as_ref(), is_emulated)?;
    }
    journal.finish()
}

/// A disk or file that holds something is not written to by mistake. A file system that is not mounted is something too.
fn refuse_to_destroy(args: &Args, ctx: &Ctx, disk: &Disk) -> anyhow::Result<()> {
    if args.destroy_data {
        return Ok(());
    }
    let mut holds = if disk.is_whole { disk.holds(&ctx.root) } else { Vec::new() };
    if !block::is_blank(&args.target)? {
        holds.push("its first MiB is not blank".to_owned());
    }
    if holds.is_empty() {
        return Ok(());
    }
    let (target, why) = (args.target.display().to_string(), holds.join("; "));
    Err(workload::Error::Destructive { target, why }.into())
}

fn find_pmu(args: &Args, ctx: &Ctx, disk: &Disk) -> anyhow::Result<Pmu> {
    if let Some(name) = &args.pmu {
        return Ok(perf::named(&ctx.root, name)?);
    }
    let port: Bdf = *disk.way.first().ok_or_else(|| {
        let name = &disk.name;
        Refusal::new(format!("{name} is not on PCIe"), "name a disk that is, or its port's PMU with --pmu")
    })?;
    pmu_of_port(ctx, &disk.name, port)
}

/// The PMU that counts the payload through a root port; `below` is what is to be read or written.
///
/// # Errors
/// There is none.
pub fn pmu_of_port(ctx: &Ctx, below: &str, port: Bdf) -> anyhow::Result<Pmu> {
    let pmus = perf::pmus(&ctx.root);
    let found = pmus.into_iter().find(|pmu| port_of(pmu) == Some(port) && bytes_of(pmu, "rx_bytes_per_s").is_some());
    Ok(found.ok_or_else(|| {
        Refusal::new(
            format!("{below}: its root port {port} has no payload counter"),
            "`pciescope stat --list` shows the counters; ports of DesignWare cores need the driver rasdes_pmu or dwc_pcie_pmu",
        )
    })?)
}

/// The counters that see this way's traffic, started.
fn open_for(ctx: &Ctx, pmu: &Pmu, way: Way) -> anyhow::Result<Vec<Box<dyn Counter>>> {
    let sides: &[(Side, &str)] = match way {
        Way::Read => &[(Side::Read, "rx_bytes_per_s")],
        Way::Write => &[(Side::Write, "tx_bytes_per_s")],
        Way::Both => &[(Side::Read, "rx_bytes_per_s"), (Side::Write, "tx_bytes_per_s")],
    };
    let mut counters = Vec::new();
    for (side, metric) in sides {
        let bytes = bytes_of(pmu, metric).ok_or_else(|| {
            Refusal::new(format!("{}: it does not count {metric}", pmu.name), "name another PMU with --pmu")
        })?;
        let name = bytes.events.iter().map(ToString::to_string).collect::<Vec<_>>().join("+");
        counters.push(open(&ctx.root, name, *side, &[(pmu, bytes)])?);
    }
    Ok(counters)
}
