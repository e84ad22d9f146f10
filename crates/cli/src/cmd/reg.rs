//! `pciescope reg`: device registers.

use std::process::ExitCode;

use super::Ctx;

/// The arguments of `pciescope reg`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  pciescope reg ")]
pub struct Args {}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let (_, _) = (args, ctx);
    anyhow::bail!("`pciescope reg` is not part of this build");
}
