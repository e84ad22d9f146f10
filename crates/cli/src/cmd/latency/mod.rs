//! `pciescope latency`: how long accesses and interrupts take.

use std::process::ExitCode;

use super::Ctx;

/// The arguments of `pciescope latency`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the chosen measurement.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let (_, _) = (args, ctx);
    anyhow::bail!("`pciescope latency` is not part of this build");
}
