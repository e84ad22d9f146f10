//! `pciescope soak`: bounds the bit error ratio of a link.

use std::ffi::OsString;
use std::process::ExitCode;

use pciescope_bench::soak::{self, Beside, SoakTask};
use pciescope_bench::watch::WatchTask;
use pciescope_core::soak::{Detector, LinkEnd, SoakEnd};
use pciescope_core::text::span;
use pciescope_core::{Bdf, WatchPlan};
use pciescope_hw::probe::open::Backend;
use pciescope_hw::watch::{Links, LiveLinks, Script, proof};
use pciescope_hw::{environment, pci};
use pciescope_report::compare::{BadLimit, Limit};
use pciescope_report::print::terminal::soak_sentence;

use super::latency::progress::bar;
use super::output::{Form, Output, OutputArgs};
use super::stat::host::{Command, Signals};
use super::stat::machine;
use super::watch::interval;
use super::{Ctx, Refusal};
use crate::values::{self, FunctionName, Time, some_time};

/// The arguments of `pciescope soak`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo pciescope soak 3b:00.0 --below 1e-15      until the bound is reached
  sudo pciescope soak nvme0 -- fio job.fio       while fio runs
  sudo pciescope soak nvme0 --load readout --duration 8h -o soak.jsonl
  sudo pciescope soak 3b:00.0 --prove --below 1e-12   first make errors, and see
                                                 that each is counted
  pciescope soak 3b:00.0 --duration 8h --fail-if 'bit_errors > 2'
  pciescope soak 00:02.0 --backend fake --duration 1h   a synthetic machine

It watches the link above the function, counts the errors that both of its ends
report, and says below which bit error ratio the link is, with 95 % confidence.
The bound holds at any moment of the stop. Bits are those of all lanes, idle
symbols too: the link is tested without a load as well. docs/soak.md has the
method, and what the counters cannot show.

A limit of --fail-if is NAME OP VALUE, as `compare` has it: NAME is a figure of
its record, such as bit_errors, intervals_with_errors or bit_error_ratio_below.

Exit codes: 0 if the bound is reached, or without --below if no error was seen;
1 if errors were seen and it is not; 2 if nothing can be said. With --fail-if: 1
if a limit was exceeded, 2 if it applies to nothing, and errors that no limit
refuses are none. A command that fails ends it with its own code.")]
pub struct Args {
    /// The function whose link is tested, or a port: the link below it
    #[arg(value_name = "BDF", value_parser = values::bdf)]
    function: FunctionName,

    /// End when the bit error ratio is below this one, such as 1e-15, or cannot be within --duration
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    below: Option<f64>,

    /// End after this time, such as 8h
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    duration: Option<Time>,

    /// Fail (exit code 1) if this limit is exceeded at the end; may be repeated
    #[arg(long, value_name = "LIMIT", value_parser = limit)]
    fail_if: Vec<Limit>,

    /// The load: none, config (reads of the Vendor ID) or readout (of the function's disk)
    #[arg(long, value_name = "LOAD", default_value = "none", value_parser = ["none", "config", "readout"], conflicts_with = "command")]
    load: String,

    /// First make correctable errors, by RAS D.E.S. of the port or by aer_inject, and see that each is counted
    #[arg(long)]
    prove: bool,

    /// Time between samples, such as 100ms: errors of one interval count as one
    #[arg(short = 'I', long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Time,

    /// Which machine: auto is this one, fake a synthetic one whose hour passes in three seconds
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = machine)]
    backend: Backend,

    #[command(flatten)]
    output: OutputArgs,

    /// Soak while this command runs
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio: f64 = text.parse().map_err(|_| "it is a number such as 1e-15".to_owned())?;
    if ratio > 0.0 && ratio < 1.0 { Ok(ratio) } else { Err("it is above 0 and below 1, such as 1e-15".to_owned()) }
}

/// A limit of a figure itself: nothing is there that it could have changed from.
fn limit(text: &str) -> Result<Limit, String> {
    let limit: Limit = text.parse().map_err(|why: BadLimit| why.why)?;
    let is_known = limit.figure.is_none() && soak::figures().contains(&limit.name);
    match limit.is_absolute() {
        true if is_known && limit.fits(if limit.name == "uncounted_ns" { "ns" } else { "1" }) => Ok(limit),
        true => Err(format!("a limit of a soak is of one of {}, without a unit", soak::figures().join(", "))),
        false => Err("a soak has nothing to be compared with: write the value without a sign".to_owned()),
    }
}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let ctx = &ctx.on(&args.backend)?;
    let bdf = ctx.function(&args.function)?;
    if !ctx.root.exists(pci::folder(bdf)) {
        return Err(pciescope_hw::Error::NoSuchFunction(bdf).into());
    }
    let (link, below) = link(ctx, bdf);
    let is_fake = matches!(args.backend, Backend::Fake(_));
    let addresses: Vec<Bdf> = [link].into_iter().chain(below.iter().copied().take(1)).collect();
    let blind_by = |bdf| if is_fake { None } else { proof::blind(&ctx.root, bdf) };
    let ends: Vec<LinkEnd> = addresses.iter().map(|bdf| LinkEnd { bdf: *bdf, blind_by: blind_by(*bdf) }).collect();
    let seen: Vec<Bdf> = ends.iter().filter(|end| end.blind_by.is_none()).map(|end| end.bdf).collect();
    if seen.is_empty() {
        let why: Vec<String> =
            ends.iter().map(|end| format!("{}: {}", end.bdf, end.blind_by.as_deref().unwrap_or_default())).collect();
        let hint = format!("run it as root; `pciescope doctor {bdf}` says more of AER");
        return Err(Refusal::new(format!("no error of this link can be seen: {}", why.join("; ")), hint).into());
    }
    let command = load(ctx, &args, bdf)?;
    let signals = Signals::catch(ctx)?;
    let file = args.output.file.create(&[])?;
    let form = args.output.form(Form::Changes { all: args.output.all });
    let mut output = Output::new(form, form.out(), file, args.output.file.label.clone());
    let proof = match args.prove {
        false => (Detector::NotProven, None),
        true if is_fake => {
            return Err(Refusal::new("errors cannot be made on a synthetic machine", "leave --prove out").into());
        }
        true => match proof::prove(&ctx.root, link, &below, &seen, &|| ctx.stop.is_set()) {
            Ok(proof) => (proof.detector, Some(proof.words)),
            Err((why, hint)) => return Err(Refusal::new(why, hint).into()),
        },
    };
    let (mut links, backend): (Box<dyn Links>, _) = match &args.backend {
        Backend::Fake(options) => (Box::new(Script::synthetic(&ctx.root, options, &addresses)), "fake"),
        Backend::Auto | Backend::Real(_) => (Box::new(LiveLinks::new(&ctx.root, &addresses)), "sysfs"),
    };
    let (interval_ns, duration_ns) = (args.interval.0, args.duration.map(|time| time.0));
    let watch = WatchTask {
        plan: WatchPlan { functions: addresses, interval_ns, duration_ns, clear_lbms: false },
        environment: environment::read(&ctx.root),
        label: args.output.file.label.clone(),
        backend,
        ..WatchTask::default()
    };
    let bar = bar(ctx, "{msg}");
    let mut is_told = false;
    let mut told = |record: &pciescope_core::Record, needed_ns: Option<f64>| {
        let needed = needed_ns.map(|ns| format!("; the bound needs {} more", span(ns as u64))).unwrap_or_default();
        bar.set_message(soak_sentence(record) + &needed);
        if let (false, Some(ns)) = (is_told, needed_ns) {
            is_told = true;
            ctx.note(&format!("the bound needs {}, if no error comes", span(ns as u64)));
        }
    };
    let beside = if is_fake { None } else { Beside::open(&ctx.root, &watch.plan.functions, true) };
    let words = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let task = SoakTask { watch, below: args.below, command: words, ends, proof, beside, told: &mut told };
    let mut host = Command::new(&signals, command, None)?;
    let ended = soak::run(links.as_mut(), task, &mut host, &mut output);
    bar.finish_and_clear();
    let code = host.stop()?;
    let record = ended?;
    if let Some(code) = ctx.stop.exit_code().or(code.filter(|code| *code != 0 && args.load == "none")) {
        return Ok(ExitCode::from(code));
    }
    let has_errors = record.metrics["intervals_with_errors"].value > 0.0;
    let has_bound = record.metrics.contains_key("bit_error_ratio_below");
    let is_reached = record.soak.is_some_and(|soak| soak.ended == SoakEnd::Reached);
    let figure = |limit: &Limit| record.metrics.get(&limit.name).map(|metric| metric.value);
    let exceeded = |limit: &&Limit| figure(limit).and_then(|value| limit.is_exceeded(0.0, value)) == Some(true);
    let exceeded: Vec<String> = args.fail_if.iter().filter(exceeded).map(|limit| format!("'{limit}'")).collect();
    if !exceeded.is_empty() {
        ctx.note(&format!("exceeded: {}", exceeded.join(", ")));
    }
    let missing = args.fail_if.iter().find(|limit| figure(limit).is_none());
    if let Some(limit) = missing {
        ctx.note(&format!("'{limit}' applies to no figure"));
    }
    Ok(ExitCode::from(match (args.below, has_errors) {
        _ if !exceeded.is_empty() => 1,
        _ if !has_bound || missing.is_some() => 2,
        (Some(_), _) if is_reached => 0,
        (None, false) => 0,
        (None, true) if !args.fail_if.is_empty() => 0,
        (_, true) => 1,
        (Some(_), false) => 2,
    }))
}

/// The function that has the link, which is the port where it is seen, and all functions below it, the next one first. No
/// register is read for it.
fn link(ctx: &Ctx, bdf: Bdf) -> (Bdf, Vec<Bdf>) {
    let path = pci::path(&ctx.root, bdf);
    let is_bridge = pci::id(&ctx.root, bdf, "class").is_ok_and(pci::is_bridge);
    // Of a switch every other port leads down.
    let leads_down = is_bridge && path.len() % 2 == 0;
    let link = path.last().copied().filter(|_| !leads_down).unwrap_or(bdf);
    let all = pci::addresses(&ctx.root).into_iter().map(|bdf| (pci::path(&ctx.root, bdf), bdf));
    let mut below: Vec<_> = all.filter(|(path, _)| path.contains(&link)).collect();
    below.sort_by_key(|(path, _)| path.len());
    (link, below.into_iter().map(|(_, bdf)| bdf).collect())
}

/// The command that makes the load.
fn load(ctx: &Ctx, args: &Args, bdf: Bdf) -> anyhow::Result<Vec<OsString>> {
    if matches!(args.backend, Backend::Fake(_)) && args.load != "none" {
        return Err(Refusal::new(
            "a synthetic machine takes no load: its commands would run on this one",
            "leave --load out",
        )
        .into());
    }
    let (verb, target) = match args.load.as_str() {
        "config" => ("latency path --offset 0", bdf.to_string()),
        "readout" => {
            let disk = pciescope_hw::nodes::names(&ctx.root, bdf)
                .into_iter()
                .find(|name| ctx.root.exists(format!("/sys/class/block/{name}")));
            let disk =
                disk.ok_or_else(|| Refusal::new(format!("{bdf} has no disk to read"), "--load config, or -- CMD"))?;
            ("readout", format!("/dev/{disk}"))
        }
        _ => return Ok(args.command.clone()),
    };
    let own = std::env::current_exe()?;
    let script = format!("while \"$0\" --quiet {verb} \"$1\" >/dev/null; do :; done");
    Ok(vec!["/bin/sh".into(), "-c".into(), script.into(), own.into(), target.into()])
}
