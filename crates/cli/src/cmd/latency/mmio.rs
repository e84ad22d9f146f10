//! `pciescope latency mmio`: how long a register access takes from every CPU.

use std::path::PathBuf;
use std::process::ExitCode;

use pciescope_core::plan::Plan;
use pciescope_core::{MmioPlan, Order};
use pciescope_hw::probe::open::Need;

use super::target::{TargetArgs, choose};
use super::task::{DeviceArgs, Job, WhyArgs, order};
use crate::cmd::Ctx;
use crate::cmd::device::Device;
use crate::cmd::output::{Output, OutputArgs};
use crate::values::{Time, positive, some_time, time};

/// Samples per CPU where neither a count nor a time is given: enough for p99.99.
const COUNT: u64 = 100_000;

/// The arguments of `pciescope latency mmio`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope latency mmio 0000:3b:00.0 --bind
  pciescope latency mmio 0000:3b:00.0 --cpus node:1 --count 10M -o run.jsonl
  pciescope latency mmio 3b:00.0 --bar 2 --offset 0x1000 --accept-side-effects
  pciescope latency mmio 0000:3b:00.0 --duration 1min --order interleaved:20
  pciescope latency mmio --backend fake:delay=20us

The default target is a register that is known to be harmless to read. A CPU
cannot see when a write arrives: `--test write` measures how long the write
occupies the CPU, and `--test write-read` measures a read that waits for a
write before it.")]
pub struct Args {
    #[command(flatten)]
    device: DeviceArgs,

    #[command(flatten)]
    target: TargetArgs,

    /// Accept all-ones as a value of this register (otherwise it ends the run)
    #[arg(long)]
    ones_ok: bool,

    /// Samples per CPU, such as 10k or 1M [default: 100k, or as many as --duration allows]
    #[arg(long, value_name = "N", value_parser = positive)]
    count: Option<u64>,

    /// End the run after this time, such as 10s
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    duration: Option<Time>,

    /// Pause between two samples, such as 200ns
    #[arg(long, value_name = "TIME", value_parser = gap, default_value = "0")]
    gap: Time,

    /// Accesses between two stamps: gives the mean if the clock is coarse, but hides the tail
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 1)]
    accesses: u32,

    /// Order of the CPUs: sequential, interleaved[:ROUNDS] or concurrent
    #[arg(long, value_name = "ORDER", value_parser = order, default_value = "interleaved")]
    order: Order,

    /// Write every sample to FILE as comma-separated values
    #[arg(long, value_name = "FILE")]
    raw: Option<PathBuf>,

    #[command(flatten)]
    why: WhyArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Parses a pause between two samples.
pub fn gap(text: &str) -> Result<Time, String> {
    match time(text)? {
        Time(ns) if ns > u32::MAX.into() => Err(format!("the longest gap is {} ns", u32::MAX)),
        gap => Ok(gap),
    }
}

/// A pause as plans have it.
pub fn gap_ns(gap: Time) -> u32 {
    u32::try_from(gap.0).expect("`gap` took nothing longer")
}

/// Measures.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let device = Device::find(ctx, args.device.bdf.as_ref(), &args.device.access)?;
    let duration_ns = args.duration.map_or(0, |time| time.0);
    let plan = MmioPlan {
        count: args.count.unwrap_or(if duration_ns > 0 { 0 } else { COUNT }),
        duration_ns,
        gap_ns: gap_ns(args.gap),
        batch: args.accesses,
        order: args.order,
        cpus: args.device.cpus(ctx, &device, Need::Mmio)?,
        ones_ok: args.ones_ok,
        raw: args.raw.is_some(),
        why: args.why.plan(),
        ..choose(&device.function, &args.target)?
    };
    let task = Job {
        verb: "latency mmio",
        need: Need::Mmio,
        plan: Plan::Mmio(plan.clone()),
        alarms: args.why.alarms(),
        output: Output::with_raw(&args.output, args.raw.as_deref())?,
        experiment: &|probe, run| pciescope_bench::mmio::measure(&plan, probe, run),
    };
    task.carry_out(ctx, device, &args.device.access)
}
