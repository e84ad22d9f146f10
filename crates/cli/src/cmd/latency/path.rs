//! `pciescope latency path`: where the time goes, hop by hop.

use std::process::ExitCode;

use pciescope_core::plan::Plan;
use pciescope_core::{Order, PathPlan};
use pciescope_hw::probe::open::Need;

use super::machine::{DeviceArgs, Machine, carry_out, order};
use super::mmio::gap_ns;
use super::output::{Output, OutputArgs};
use crate::args::{number, positive};
use crate::cmd::{Ctx, Refusal};

/// The last offset of extended configuration space that holds 4 bytes.
const LAST_OFFSET: u64 = 0xffc;

/// The arguments of `pciescope latency path`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope latency path 0000:3b:00.0
  pciescope latency path 0000:3b:00.0 --cpus local --count 100k -o path.jsonl
  pciescope latency path --backend fake:hops=6

Configuration reads have no side effects and need no unbinding: the production driver stays. Bridges answer them by
other logic than memory reads, so compare hops with hops, not with `latency mmio`.")]
pub struct Args {
    #[command(flatten)]
    device: DeviceArgs,

    /// Configuration offset to read; from 0x100 on x86 reads it as memory (ECAM)
    #[arg(long, value_name = "OFFSET", value_parser = number, default_value = "0x100")]
    offset: u64,

    /// Samples per CPU and hop
    #[arg(long, value_name = "N", value_parser = positive, default_value = "10k")]
    count: u64,

    /// Pause between two samples, such as 200ns
    #[arg(long, value_name = "TIME", value_parser = gap_ns, default_value = "0")]
    gap: u32,

    /// Order of the CPUs: sequential, interleaved[:ROUNDS] or concurrent
    #[arg(long, value_name = "ORDER", value_parser = order, default_value = "interleaved")]
    order: Order,

    #[command(flatten)]
    output: OutputArgs,
}

/// Measures.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let machine = Machine::find(ctx, &args.device)?;
    let plan = PathPlan {
        bdf: machine.bdf,
        offset: config_offset(machine.bdf, args.offset)?,
        count: args.count,
        gap_ns: args.gap,
        order: args.order,
        cpus: machine.cpus(&args.device.cpus)?,
    };
    let mut output = Output::open(&args.output)?;
    let mut opened = machine.open(ctx, &args.device, Need::Path)?;
    let setup = machine.setup("latency path", Plan::Path(plan.clone()));
    carry_out(ctx, setup, &mut output, None, &mut |run| {
        pciescope_bench::path::measure(&plan, opened.probe.as_mut(), run)
    })
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
