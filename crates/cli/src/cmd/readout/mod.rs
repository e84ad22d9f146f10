//! `pciescope readout`: data out of digitizers, disks and files, and what converting it costs.

pub mod options;
mod setup;

use std::process::ExitCode;

use pciescope_bench::readout::{self, Group, Host, Task};

pub use options::Args;

use super::conclusion::conclude;
use super::output::Output;
use super::{Ctx, Stop};

/// Reads.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    // A file that was named by mistake is not to be left behind.
    setup::refuse_nonsense(&args)?;
    let output = Output::open(&args.output.output)?;
    run_with(args, output, ctx)
}

/// The same with an output of the caller's.
pub fn run_with(args: Args, mut output: Output, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let open = |path: &std::path::Path, options: &pciescope_hw::daq::Options| {
        pciescope_hw::daq::open(&ctx.root, path, options)
    };
    let wanted = setup::prepare(&args, ctx, &open)?;
    ctx.stop.catch_signals()?;
    let task = Task {
        devices: wanted.devices,
        groups: wanted.groups,
        options: wanted.options,
        environment: wanted.environment,
        warnings: wanted.warnings,
        label: output.label.clone(),
        open: &open,
    };
    let watcher = Watcher { ctx, stop: ctx.stop.clone() };
    let summary = readout::measure(&ctx.root, task, &watcher, &mut output)?;
    Ok(conclude(ctx, &summary, output.is_table()))
}

/// Tells the run of signals, and the user on a terminal what is under way.
struct Watcher<'w> {
    ctx: &'w Ctx,
    stop: Stop,
}

impl Host for Watcher<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }

    fn begin(&self, number: usize, of: usize, group: &Group) {
        if !self.ctx.terminal || of < 2 {
            return;
        }
        let (plan, number) = (&group.plan, number + 1);
        let what = group.sweep.unwrap_or("readout");
        let cycles = if plan.cycles > 0 { format!(", {} acquisitions", plan.cycles) } else { String::new() };
        self.ctx.note(&format!(
            "{number} of {of}: {what}: {} devices, {} samples, {} times{cycles}",
            group.devices.len(),
            plan.samples,
            plan.repeats
        ));
    }
}
