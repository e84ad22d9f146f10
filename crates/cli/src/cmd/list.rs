//! `pciescope list`: what is here.

use std::process::ExitCode;

use super::Ctx;

/// The arguments of `pciescope list`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  pciescope list ")]
pub struct Args {}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let (_, _) = (args, ctx);
    anyhow::bail!("`pciescope list` is not part of this build");
}
