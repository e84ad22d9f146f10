//! `pciescope import`: foreign logs to records.

use std::process::ExitCode;

use super::Ctx;

/// The arguments of `pciescope import`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  pciescope import log.txt")]
pub struct Args {}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let (_, _) = (args, ctx);
    anyhow::bail!("`pciescope import` is not part of this build");
}
