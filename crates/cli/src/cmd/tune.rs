//! `pciescope tune`: which setting helps on this machine, measured and put back.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use pciescope_bench::tune::score::{
    CPU_PER_GB, Law, ReadoutDevice, SPEED, Samples, Scorer, Timed, TunedMachine, Workload,
};
use pciescope_bench::tune::{Candidate, TuneTask};
use pciescope_core::text::span;
use pciescope_core::tune::{Goal, Setting, Try, Verdict};
use pciescope_core::{Bdf, IrqPlan, IrqSource, MmioPlan, TunePlan};
use pciescope_hw::probe::open::{Backend, Need};
use pciescope_hw::tune::restore;
use pciescope_hw::tune::{FoundKnob, TuneSession, fake, knobs, names};
use pciescope_hw::{environment, nodes, pci};

use super::device::{AccessArgs, CpuChoice, Device, Reached, settle};
use super::latency::progress::Progress;
use super::latency::target::{TargetArgs, choose};
use super::output::{Output, OutputArgs};
use super::{Ctx, Refusal};
use crate::values::{self, FunctionName, Percent, Time, some_time};

/// The arguments of `pciescope tune`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo pciescope tune nvme0n1                     what can be set, and what not
  sudo pciescope tune nvme0n1 --try mrrs=512,4096 --score iops:max -- ./iops.sh
  sudo pciescope tune 3b:00.0 --try all --bind    by the latency of reads
  sudo pciescope tune eth0 --try irq-cpu=2,8 --score rate:max -- ./rate.sh
  pciescope tune nvme0n1 --backend fake --try all a synthetic machine

Each setting is measured against the present one, in blocks whose order is
drawn, until the answer is certain or the time is over. Everything is put back,
also after a kill: the next `tune` and `unbind --restore` do it. Nothing is made
permanent; the answer says how you do that. docs/tune.md has the method.

Exit codes: 0 if every setting is decided; 1 if one is harmful, or something was
not put back because others changed it; 2 if the experiment ended early.")]
pub struct Args {
    /// The function whose knobs they are
    #[arg(value_name = "BDF", value_parser = values::bdf)]
    function: FunctionName,

    /// What to try: a knob with its values (mrrs=512,4096), a knob with all (mrrs), or all; may be repeated
    #[arg(long = "try", value_name = "KNOB=VALUE,...", value_parser = tried)]
    tries: Vec<Try>,

    /// The figure that decides, without a command: mmio (the median of register reads), irq (of interrupts, to their handler), readout (the rate), cpu (the CPU time of a readout)
    #[arg(long, value_name = "FIGURE", default_value = "mmio", value_parser = FIGURES, conflicts_with = "score")]
    figure: String,

    /// The number that the command prints, or its place in JSON (jobs.0.read.iops), and whether max or min is better
    #[arg(long, value_name = "NAME:max|min", value_parser = score, requires = "command")]
    score: Option<(String, Goal)>,

    /// Show what would be changed, and change nothing
    #[arg(long, requires = "tries")]
    dry_run: bool,

    /// Also try what changes other devices or the whole machine meanwhile
    #[arg(long)]
    shared: bool,

    /// The smallest difference that matters
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = least)]
    least: Percent,

    /// End after this time, whatever is decided by then
    #[arg(long, value_name = "TIME", default_value = "2min", value_parser = some_time)]
    duration: Time,

    /// Draw the order of the blocks from this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Where it is kept what is to be put back [default: /var/lib/pciescope/restore]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// CPUs to read registers from: the first of them [default: local, else all]
    #[arg(long, value_name = "CPUS")]
    cpus: Option<CpuChoice>,

    #[command(flatten)]
    access: AccessArgs,

    #[command(flatten)]
    output: OutputArgs,

    /// The workload: it runs once for each block
    #[arg(last = true, value_name = "CMD", requires = "score")]
    command: Vec<OsString>,
}

fn tried(text: &str) -> Result<Try, String> {
    let (knob, values) = text.split_once('=').map_or((text, ""), |(knob, values)| (knob, values));
    if knob != ALL && names().all(|name| name != knob) {
        return Err(format!("{knob:?} is no knob; the knobs are all, {}", names().collect::<Vec<_>>().join(", ")));
    }
    let values: Vec<String> = values.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect();
    match text.contains('=') && (values.is_empty() || knob == ALL) {
        true => Err("write a knob and its values, such as mrrs=512,4096".to_owned()),
        false => Ok(Try { knob: knob.to_owned(), values }),
    }
}

fn score(text: &str) -> Result<(String, Goal), String> {
    let parts = text.rsplit_once(':').filter(|(name, _)| !name.is_empty());
    let goal = |word: &str| Goal::ALL.into_iter().find(|goal| goal.name() == word);
    let parsed = parts.and_then(|(name, word)| Some((name.to_owned(), goal(word)?)));
    parsed.ok_or_else(|| {
        "write a name and which way is better, such as rate:max or jobs.0.read.lat_ns.mean:min".to_owned()
    })
}

fn least(text: &str) -> Result<Percent, String> {
    match values::percent(text)? {
        Percent(percent) if percent > 0.0 && percent < 100.0 => Ok(Percent(percent)),
        _ => Err("it is above 0 and below 100, such as 1%".to_owned()),
    }
}

/// Stands for every knob.
const ALL: &str = "all";

/// What is tried, and the same as the records have it.
#[derive(Default)]
struct Choice {
    tries: Vec<Try>,
    candidates: Vec<Candidate>,
}

const FIGURES: [&str; 4] = ["mmio", "irq", "readout", "cpu"];

/// The readout that measures a block: this program, so that it takes the CPUs of a workload and leaves nothing behind.
fn readout(ctx: &Ctx, bdf: Bdf) -> anyhow::Result<(Vec<OsString>, PathBuf)> {
    let name = nodes::names(&ctx.root, bdf).into_iter().next().unwrap_or_else(|| bdf.to_string());
    let node = ctx.root.path(nodes::node_of(&ctx.root, &PathBuf::from(name))?);
    let words = [std::env::current_exe()?.into(), "--root".into(), ctx.root.path("/").into(), "readout".into()];
    let words = words.into_iter().chain([node.clone().into(), "-q".into(), "--json".into()]).collect();
    Ok((words, node))
}

/// Runs the verb.
pub fn run(mut args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let ctx = &ctx.on(&args.access.backend)?;
    let bdf = ctx.function(&args.function)?;
    let is_fake = matches!(args.access.backend, Backend::Fake(_));
    if is_fake && !args.command.is_empty() {
        let text = "a synthetic machine takes no workload: it would run on this one";
        return Err(Refusal::new(text, "leave it out").into());
    }
    if is_fake {
        fake::make(&ctx.root, bdf).context("cannot write the files of the synthetic machine")?;
    }
    let folder = restore::folder(&ctx.root, args.state_dir.as_deref());
    let mut read = None;
    if !is_fake && args.score.is_none() && matches!(&*args.figure, "readout" | "cpu") {
        let (command, node) = readout(ctx, bdf)?;
        (args.command, read) = (command, Some(node));
    }
    // What an earlier experiment left makes all figures those of another machine.
    let is_shown = args.tries.is_empty() || args.dry_run;
    let mut is_left = match put_back(ctx, &folder) {
        Err(error) if is_shown => {
            ctx.note(&format!("whether something is to be put back is not known: {error:#}"));
            false
        }
        other => other?,
    };
    let found = knobs(&ctx.root, bdf, &pci::function(&ctx.root, bdf)?);
    let choice = choose_settings(ctx, &args, &found)?;
    let mut task = TuneTask {
        plan: plan(&args, bdf, choice.tries),
        environment: environment::read(&ctx.root),
        function: pci::function(&ctx.root, bdf)?,
        label: args.output.file.label.clone(),
        backend: if is_fake { "fake" } else { "sysfs" }.to_owned(),
        knobs: found.iter().map(|one| one.knob.clone()).collect(),
        candidates: choice.candidates,
    };
    if is_shown {
        return show(ctx, &args, task);
    }
    if task.candidates.is_empty() {
        return Err(Refusal::new(format!("{bdf}: no setting is left to try"), LIST).into());
    }
    let read = read.map(|node| ReadoutDevice::new(&ctx.root, node)).transpose().map_err(anyhow::Error::msg)?;
    ctx.stop.catch_signals()?;
    let mut output = Output::open(&args.output, &[])?;
    let plan = task.plan.clone();
    let block_ns = (plan.duration_ns / (task.candidates.len() as u64 + 1) / 250).clamp(2_000_000, 250_000_000);
    let (mut reached, mut timed) = (None, None);
    if args.command.is_empty() && !is_fake {
        let mut device = Device::find(ctx, Some(&args.function), &args.access)?;
        let local = device.cpus(&CpuChoice::Local).ok();
        let cpus = match (&args.cpus, local) {
            (None, Some(local)) => local,
            (choice, _) => device.cpus(choice.as_ref().unwrap_or(&CpuChoice::All))?,
        };
        let (what, need) = match &*args.figure {
            "irq" => {
                // Each after the last one's acknowledge.
                let plan = IrqPlan { bdf, vectors: vec![0], cpus, timeout_ns: 100_000_000, ..IrqPlan::default() };
                (Timed::Interrupts(plan), Need::Irq(IrqSource::Hardware))
            }
            _ => (Timed::Reads(MmioPlan { cpus, ..choose(&device.function, &TargetArgs::default())? }), Need::Mmio),
        };
        let at = device.reach(ctx, &args.access, need)?;
        task.backend = at.probe.backend().to_owned();
        (reached, timed) = (Some(at), Some(what));
        (task.function, task.environment) = (device.function, environment::read(&ctx.root));
    } else if !is_fake {
        task.backend = "workload".to_owned();
    }
    let progress = Progress::new(ctx, "tune");
    let ended = (|| {
        let session = TuneSession::begin(&ctx.root, bdf, &folder, found)?;
        let begun = Instant::now();
        let mut scorer: Box<dyn Scorer> = match (timed, reached.as_mut()) {
            (Some(what), Some(Reached { probe, .. })) => {
                Box::new(Samples { probe: probe.as_mut(), what, block_ns, begun })
            }
            _ if is_fake => Box::new(Law::new(&ctx.root, bdf, plan.goal, plan.seed)),
            _ => {
                let name = match (&*plan.figure, &read) {
                    ("readout", Some(_)) => SPEED,
                    ("cpu", Some(_)) => CPU_PER_GB,
                    (name, _) => name,
                };
                let (name, most_ns) = (name.to_owned(), plan.duration_ns);
                Box::new(Workload { command: args.command.clone(), name, readout: read, most_ns, begun })
            }
        };
        let mut machine =
            TunedMachine::new(&ctx.root, &task.function, session, scorer.as_mut(), &progress, plan.duration_ns);
        pciescope_bench::tune::run(&mut machine, task, &mut output)
    })();
    progress.clear();
    let restored = reached.map_or(Ok(Vec::new()), Reached::give_back);
    let (record, _) = settle(bdf, ended.map_err(Into::into), restored, &mut |note| ctx.note(note))?;
    let tune = record.tune.unwrap_or_default();
    is_left |= !tune.notes.is_empty();
    if let Some(failure) = &record.error {
        ctx.complain(std::slice::from_ref(failure));
        return Ok(ExitCode::from(ctx.stop.exit_code().filter(|_| failure.is_interrupted()).unwrap_or(2)));
    }
    let is_harmful = tune.effects.iter().any(|effect| effect.verdict == Verdict::Harmful);
    Ok(ExitCode::from(u8::from(is_harmful || is_left)))
}

/// Puts back what a killed experiment left, and says it. Whether something was named that others changed.
///
/// # Errors
/// As for [`restore::restore`].
pub fn put_back(ctx: &Ctx, folder: &std::path::Path) -> anyhow::Result<bool> {
    let Some((owner, put)) = restore::restore(&ctx.root, folder)? else { return Ok(false) };
    ctx.note(&format!("{}: an earlier experiment (process {}) was not put back by itself", owner.bdf, owner.pid));
    put.restored.iter().for_each(|line| ctx.note(line));
    // That is no note which --quiet may hide.
    put.left.iter().for_each(|line| super::say(&format!("pciescope: {line}\n")));
    Ok(!put.left.is_empty())
}

impl Args {
    /// Whether what an experiment left in the default folder is put back first.
    pub fn puts_back_settings(&self) -> bool {
        self.state_dir.is_none()
    }
}

/// Says what a killed experiment left, if it left anything.
pub fn say_what_is_left(ctx: &Ctx) {
    if let Some(left) = restore::left(&ctx.root, &restore::folder(&ctx.root, None)) {
        super::say(&format!("pciescope: {left}; `pciescope unbind --restore` puts it back\n"));
    }
}

const LIST: &str = "`pciescope tune BDF` lists the knobs, each with its values or the reason";

fn plan(args: &Args, function: Bdf, tries: Vec<Try>) -> TunePlan {
    let goal = if args.figure == "readout" { Goal::Max } else { Goal::Min };
    let (figure, goal) = args.score.clone().unwrap_or_else(|| (args.figure.clone(), goal));
    TunePlan {
        function,
        tries,
        figure,
        goal,
        least_percent: args.least.0,
        duration_ns: args.duration.0,
        seed: args.seed,
        shared: args.shared,
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
    }
}

/// The settings to try. One that was named and is refused ends the run; of `all` it is left out, and named.
fn choose_settings(ctx: &Ctx, args: &Args, found: &[FoundKnob]) -> anyhow::Result<Choice> {
    let mut choice = Choice::default();
    let of_all = |one: &Try| -> Vec<(Try, bool)> {
        let every =
            || found.iter().map(|knob| (Try { knob: knob.knob.name.clone(), values: Vec::new() }, true)).collect();
        if one.knob == ALL { every() } else { vec![(one.clone(), false)] }
    };
    let place = |name: &str| found.iter().position(|one| one.knob.name == name);
    for (one, is_of_all) in args.tries.iter().flat_map(of_all) {
        let number = place(&one.knob);
        let chosen = number.ok_or("this device or machine does not have it".to_owned());
        let (number, values) =
            match chosen.and_then(|number| Ok((number, values(args, &found[number], &one, is_of_all)?))) {
                Ok(chosen) => chosen,
                Err(why) if is_of_all => {
                    ctx.note(&format!("left out: {}: {why}", one.knob));
                    continue;
                }
                Err(why) => return Err(Refusal::new(format!("{}: {why}", one.knob), LIST).into()),
            };
        let group = if one.knob == "numa" { place("cpu") } else { None };
        choice.candidates.extend(values.iter().map(|value| Candidate {
            wanted: vec![(number, value.clone())],
            settings: vec![found[number].setting(value)],
            group: group.unwrap_or(number),
        }));
        choice.tries.push(Try { knob: one.knob, values });
    }
    Ok(choice)
}

/// The values of a knob that are set against the present one, or why there are none.
fn values(args: &Args, found: &FoundKnob, one: &Try, is_of_all: bool) -> Result<Vec<String>, String> {
    let has_workload = !args.command.is_empty();
    let why = match &*one.knob {
        "numa" if !has_workload => Some("one CPU measures: try cpu"),
        "irq-cpu" if args.figure == "irq" => Some("interrupts are timed on the CPU that measures: try cpu"),
        _ if is_of_all && found.is_by_name => Some("it disturbs the device: name it"),
        _ if found.is_by_name && !has_workload => {
            Some("it disturbs the device: measure by a command or --figure readout")
        }
        _ => None,
    };
    let mut values = if one.values.is_empty() { found.tries.clone() } else { one.values.clone() };
    let refused = found.refusal(args.shared).or(why.map(str::to_owned));
    if let Some(why) = refused.or_else(|| values.iter().find_map(|value| found.refuses(value))) {
        return Err(why);
    }
    values.retain(|value| found.knob.value.as_ref() != Some(value));
    let now = found.knob.value.as_deref().unwrap_or("-");
    let none = || format!("it is {now} already, and every other value is set against that");
    if values.is_empty() { Err(none()) } else { Ok(values) }
}

/// Shows the knobs, or with `--dry-run` what would be changed.
fn show(ctx: &Ctx, args: &Args, task: TuneTask) -> anyhow::Result<ExitCode> {
    let would_set =
        |setting: &Setting| format!("would set {} from {} to {}", setting.knob, setting.present, setting.value);
    let mut lines: Vec<String> = task.candidates.iter().flat_map(|one| &one.settings).map(would_set).collect();
    lines.push(format!("for {} at most, and put everything back; nothing was changed", span(task.plan.duration_ns)));
    pciescope_bench::tune::list(task, &mut Output::open(&args.output, &[])?)?;
    lines.iter().filter(|_| args.dry_run).for_each(|line| ctx.note(line));
    Ok(ExitCode::SUCCESS)
}
