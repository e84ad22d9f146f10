//! `pciescope readout`: data out of digitizers, disks and files, and what converting it costs.

pub mod options;
mod setup;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::ProgressBar;

use pciescope_bench::readout::{self, Group, Host, Task};
use pciescope_hw::nodes;

pub use options::Args;

use super::conclusion::conclude;
use super::latency::progress::bar;
use super::output::Output;
use super::{Ctx, Stop};

/// Reads.
pub fn run(mut args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    for device in &mut args.devices {
        *device = nodes::node_of(&ctx.root, device)?;
    }
    // A file that was named by mistake is not to be left behind.
    setup::refuse_nonsense(&args)?;
    let inputs: Vec<&Path> = args.devices.iter().map(PathBuf::as_path).collect();
    let output = Output::open(&args.output.output, &inputs)?;
    run_with(args, output, ctx)
}

/// Runs the verb with an output of the caller's.
pub fn run_with(args: Args, mut output: Output, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let open = |path: &Path, options: &pciescope_hw::daq::Options| pciescope_hw::daq::open(&ctx.root, path, options);
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
    let watcher = Watcher { ctx, stop: ctx.stop.clone(), bar: bar(ctx, "{msg}"), last: Mutex::default() };
    output.progress = Some(watcher.bar.clone());
    let summary = readout::measure(&ctx.root, task, &watcher, &mut output);
    watcher.bar.finish_and_clear();
    let summary = summary?;
    Ok(conclude(ctx, &summary, output.is_table()))
}

/// Tells the run of signals, and the user on a terminal what is under way.
struct Watcher<'w> {
    ctx: &'w Ctx,
    stop: Stop,
    /// The rate while a group reads.
    bar: ProgressBar,
    /// Bytes and nanoseconds at the last call.
    last: Mutex<(u64, u64)>,
}

/// How often the rate is shown.
const PERIOD: Duration = Duration::from_millis(500);

impl Host for Watcher<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }

    fn period(&self) -> Option<Duration> {
        self.ctx.terminal.then_some(PERIOD)
    }

    fn moved(&self, bytes: u64, ns: u64) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = |bytes: u64, ns: u64| bytes as f64 / 1e6 / (ns.max(1) as f64 / 1e9);
        let now = rate(bytes.saturating_sub(last.0), ns.saturating_sub(last.1));
        *last = (bytes, ns);
        let (mean, gigabytes) = (rate(bytes, ns), bytes as f64 / 1e9);
        self.bar.set_message(format!("{now:.1} MB/s now, {mean:.1} MB/s since the start, {gigabytes:.3} GB read"));
        self.bar.tick();
    }

    fn begin(&self, number: usize, of: usize, group: &Group) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = (0, 0);
        self.bar.finish_and_clear();
        self.bar.reset();
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
