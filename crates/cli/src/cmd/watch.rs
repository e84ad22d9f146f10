//! `pciescope watch`: records every change of links, and says why.

use std::process::ExitCode;

use pciescope_bench::watch::{self, WatchTask};
use pciescope_core::{Warning, WatchPlan, warning};
use pciescope_hw::probe::open::Backend;
use pciescope_hw::watch::{Links, LiveLinks, Script};
use pciescope_hw::{config, environment, pci};

use super::Ctx;
use super::doctor::count::Wait;
use super::output::{Form, Output, OutputArgs};
use super::stat::machine;
use crate::values::{self, FunctionName, Time, some_time};

/// The shortest time between samples, in nanoseconds.
const SHORTEST_NS: u64 = 1_000_000;

/// The arguments of `pciescope watch`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo pciescope watch                      all links until Ctrl-C
  sudo pciescope watch 3b:00.0 -I 100ms     a function and the ports above it
  sudo pciescope watch -o links.jsonl       and keep the changes
  pciescope watch --backend fake --duration 1h   an hour of a synthetic machine,
                                            in three seconds
  pciescope report links.jsonl -o links.html     a page with a timeline

It watches speed, width, ASPM, power states, slots, containment (DPC), error
counts (AER) and drivers, and prints each change with its cause and with what
the link carries less than at best. It reads registers only of functions that
are awake, writes none, and wakes no device. A change that comes back between
two samples is seen by bits of Link Status, if they were clear before; else the
output says for how long it could not have been seen. docs/watch.md has the
rules.

Exit codes: 0 if no link lost bandwidth; 1 if one did; 2 if there is no link.")]
pub struct Args {
    /// Watch these functions and the ports above them; everything if none is named
    #[arg(value_name = "BDF", value_parser = values::bdf)]
    functions: Vec<FunctionName>,

    /// Time between samples, such as 100ms
    #[arg(short = 'I', long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Time,

    /// End after this time, such as 8h
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    duration: Option<Time>,

    /// Which machine: auto is this one, fake a synthetic one whose hour passes in three seconds
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = machine)]
    backend: Backend,

    #[command(flatten)]
    output: OutputArgs,
}

fn interval(text: &str) -> Result<Time, String> {
    values::interval(text, SHORTEST_NS)
}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    ctx.stop.catch_signals()?;
    let ctx = &ctx.on(&args.backend)?;
    let functions = ctx.functions(&args.functions)?;
    for bdf in &functions {
        if !ctx.root.exists(pci::folder(*bdf)) {
            return Err(pciescope_hw::Error::NoSuchFunction(*bdf).into());
        }
    }
    let (mut links, backend): (Box<dyn Links>, _) = match &args.backend {
        Backend::Fake(options) => (Box::new(Script::synthetic(&ctx.root, options, &functions)), "fake"),
        Backend::Auto | Backend::Real(_) => (Box::new(LiveLinks::new(&ctx.root, &functions)), "sysfs"),
    };
    let file = args.output.file.create(&[])?;
    let form = match (args.output.json, args.output.csv) {
        (true, _) => Form::Json,
        (_, true) => Form::Csv(b','),
        _ => Form::Changes { all: args.output.all },
    };
    let mut output = Output::new(form, form.out(), file, args.output.file.label.clone());
    let plan =
        WatchPlan { functions, interval_ns: args.interval.0, duration_ns: args.duration.map(|duration| duration.0) };
    let task = WatchTask {
        plan,
        environment: environment::read(&ctx.root),
        label: args.output.file.label.clone(),
        backend,
        warnings: unseen(ctx, backend),
    };
    if ctx.terminal && args.duration.is_none() {
        ctx.note("watching links until Ctrl-C; times are UTC");
    }
    let mut host = Wait::new(ctx)?;
    let summary = watch::run(links.as_mut(), task, &mut host, &mut output)?;
    if summary.links == 0 {
        ctx.note("there is no link to watch");
        ctx.hint("`pciescope list` shows the functions and their links");
        return Ok(ExitCode::from(2));
    }
    Ok(match ctx.stop.exit_code() {
        Some(code) => ExitCode::from(code),
        None => ExitCode::from(u8::from(summary.lost_bytes > 0.0)),
    })
}

/// What cannot be seen without privilege.
fn unseen(ctx: &Ctx, backend: &str) -> Option<Warning> {
    if backend == "fake" {
        return None;
    }
    // A bridge that is awake: its file ends after 64 bytes.
    let is_short = |bdf| {
        let status = ctx.root.text(pci::folder(bdf).join("power/runtime_status"));
        let is_awake = status.is_none_or(|status| status == "active" || status == "unsupported");
        is_awake.then(|| config::Config::load(&ctx.root, bdf)).is_some_and(|config| config.limit().is_some())
    };
    let first = pci::addresses(&ctx.root).into_iter().next()?;
    is_short(first).then(|| {
        warning::NOT_CHECKED.hinted(
            "watch: registers cannot be read without root: it has speed and width from sysfs alone, so that causes, slots, containment and changes between two samples are not seen",
            "run it as root (sudo)",
        )
    })
}
