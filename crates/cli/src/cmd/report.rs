//! `pciescope report`: records to pages.

use std::process::ExitCode;

use super::Ctx;

/// The arguments of `pciescope report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  pciescope report records.jsonl")]
pub struct Args {}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let (_, _) = (args, ctx);
    anyhow::bail!("`pciescope report` is not part of this build");
}
