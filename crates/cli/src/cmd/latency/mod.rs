//! `pciescope latency`: how long accesses and interrupts take.

mod irq;
mod mmio;
mod path;
pub mod progress;
pub mod target;
mod task;

use std::process::ExitCode;

use super::Ctx;

/// The arguments of `pciescope latency`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope latency path 0000:3b:00.0
  pciescope latency mmio 0000:3b:00.0 --bind -o run.jsonl
  pciescope latency irq 0000:3b:00.0 --cpus local --bind
  pciescope latency mmio --backend fake          try it without hardware")]
pub struct Args {
    /// What to measure.
    #[command(subcommand)]
    what: LatencyVerb,
}

/// What to measure.
#[derive(Debug, clap::Subcommand)]
enum LatencyVerb {
    /// Register reads (or writes) from every CPU
    Mmio(mmio::Args),
    /// Configuration reads of every hop from the root port down to the device
    Path(path::Args),
    /// Interrupts: trigger to handler and handler to acknowledge, per CPU and vector
    Irq(irq::Args),
}

/// Runs the chosen measurement.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    match args.what {
        LatencyVerb::Mmio(args) => mmio::run(args, ctx),
        LatencyVerb::Path(args) => path::run(args, ctx),
        LatencyVerb::Irq(args) => irq::run(args, ctx),
    }
}
