//! `pciescope latency path`: where the time goes, hop by hop.

use std::process::ExitCode;

use pciescope_core::plan::Plan;
use pciescope_core::{Order, PathPlan};
use pciescope_hw::probe::open::Need;

use super::mmio::{gap, gap_ns};
use super::task::{DeviceArgs, Job, WhyArgs, order};
use crate::cmd::device::Device;
use crate::cmd::output::{Output, OutputArgs};
use crate::cmd::{Ctx, Refusal};
use crate::values::{Time, number, positive};

/// The last offset of extended configuration space that holds 4 bytes.
const LAST_OFFSET: u64 = 0xffc;

/// The arguments of `pciescope latency path`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope latency path 0000:3b:00.0
  pciescope latency path 0000:3b:00.0 --cpus local --count 100k -o path.jsonl
  pciescope latency path --backend fake:hops=6

Configuration reads have no side effects, and the device keeps its driver.
Bridges use different logic for configuration reads and for memory reads, so
compare hops with hops, not with `latency mmio`.")]
pub struct Args {
    #[command(flatten)]
    device: DeviceArgs,

    /// Configuration offset to read; x86 reads offsets from 0x100 on as memory (ECAM)
    #[arg(long, value_name = "OFFSET", value_parser = number, default_value = "0x100")]
    offset: u64,

    /// Samples per CPU and hop
    #[arg(long, value_name = "N", value_parser = positive, default_value = "10k")]
    count: u64,

    /// Pause between two samples, such as 200ns
    #[arg(long, value_name = "TIME", value_parser = gap, default_value = "0")]
    gap: Time,

    /// Order of the CPUs: sequential, interleaved[:ROUNDS] or concurrent
    #[arg(long, value_name = "ORDER", value_parser = order, default_value = "interleaved")]
    order: Order,

    #[command(flatten)]
    why: WhyArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Measures.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let device = Device::find(ctx, args.device.bdf.as_ref(), &args.device.access)?;
    let plan = PathPlan {
        bdf: device.bdf,
        offset: config_offset(device.bdf, args.offset)?,
        count: args.count,
        gap_ns: gap_ns(args.gap),
        order: args.order,
        cpus: args.device.cpus(ctx, &device, Need::Path)?,
        why: args.why.plan(),
    };
    let task = Job {
        verb: "latency path",
        need: Need::Path,
        plan: Plan::Path(plan.clone()),
        alarms: args.why.alarms(),
        output: Output::open(&args.output, &[])?,
        experiment: &|probe, run| pciescope_bench::path::measure(&plan, probe, run),
    };
    task.carry_out(ctx, device, &args.device.access)
}

fn config_offset(bdf: pciescope_core::Bdf, offset: u64) -> Result<u16, Refusal> {
    if offset > LAST_OFFSET || offset % 4 != 0 {
        return Err(Refusal::new(
            format!("{bdf}: configuration offset {offset:#x} is not a multiple of 4 up to {LAST_OFFSET:#x}"),
            "0x100 is the first that is read as memory on x86; 0 holds the vendor and device ID",
        ));
    }
    Ok(offset as u16)
}
