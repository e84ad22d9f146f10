//! `pciescope lab`: the virtual hardware.

use std::process::ExitCode;

use super::Ctx;

/// The arguments of `pciescope lab`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  pciescope lab shell")]
pub struct Args {}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let (_, _) = (args, ctx);
    anyhow::bail!("`pciescope lab` is not part of this build");
}
