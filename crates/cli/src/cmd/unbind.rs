//! `pciescope unbind`: give a device back.

use std::process::ExitCode;

use super::Ctx;

/// The arguments of `pciescope unbind`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  pciescope unbind 0000:02:00.0")]
pub struct Args {}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let (_, _) = (args, ctx);
    anyhow::bail!("`pciescope unbind` is not part of this build");
}
