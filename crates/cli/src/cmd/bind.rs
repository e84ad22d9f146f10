//! `pciescope bind`: hand a device over.

use std::process::ExitCode;

use super::Ctx;

/// The arguments of `pciescope bind`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  pciescope bind 0000:02:00.0")]
pub struct Args {}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let (_, _) = (args, ctx);
    anyhow::bail!("`pciescope bind` is not part of this build");
}
