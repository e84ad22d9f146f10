//! `pciescope doctor`: finds what harms performance or a measurement, and says what to do about it. Reads only.

pub mod count;
mod silence;

use pciescope_core::warning;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use pciescope_bench::counters::Host as _;
use pciescope_core::{Bdf, Environment, Finding, Function, Identity, Metric, Record, Severity, Sink, Warning};
use pciescope_hw::doctor::{self, CHECKS, Check, Counted, Examined, Machine, Readings, Unseen};
use pciescope_hw::probe::open::Backend;
use pciescope_hw::wait::now_ns;
use pciescope_hw::{Root, environment};

use super::output::{Detail, FileArgs, Form, Output};
use super::stat::machine;
use super::{Ctx, Refusal, recorded};
use crate::values;
use silence::Silences;

/// The arguments of `pciescope doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope doctor                         on one screen; sudo allows more
  sudo pciescope doctor 0000:3b:00.0       a function, the bridges above it, and
                                           the machine
  pciescope doctor --watch 60s             also what grows within a minute
  pciescope doctor --only link-width,aspm  only these checks
  pciescope doctor --silence link-width@3b:00.0='new riser is ordered'
  pciescope doctor --list                  all checks, with what they read

A silence file has one NAME[@BDF] a line, followed by the reason. A line that
begins with # is a comment. doctor always reads /etc/pciescope/doctor.conf if it
exists.

Exit codes: 0 if there are at most notes; 1 if there is a warning or a problem
that is not silenced; 2 if there is none, but a check named by --only looked at
nothing (it lacks permission, or there is nothing that it could look at).")]
pub struct Args {
    /// Check these functions and the bridges above them; all functions if none is named
    #[arg(value_name = "BDF", value_parser = values::bdf)]
    functions: Vec<values::FunctionName>,

    /// Print all checks with what they read
    #[arg(long, conflicts_with_all = ["functions", "watch", "output", "json", "only", "skip", "silence", "silence_file"])]
    list: bool,

    /// Run only these checks
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = check)]
    only: Vec<&'static Check>,

    /// Skip these checks
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = check)]
    skip: Vec<&'static Check>,

    /// Silence this check's findings, all or those of one function; they are counted, and stay in the records
    #[arg(long, value_name = "NAME[@BDF][=REASON]")]
    silence: Vec<String>,

    /// Also read a silence file
    #[arg(long, value_name = "FILE")]
    silence_file: Vec<PathBuf>,

    /// Read the counts twice, TIME apart, and report counts that grew
    #[arg(long, value_name = "TIME", value_parser = values::some_time)]
    watch: Option<values::Time>,

    /// A recorded tree as it was TIME before, so that nothing waits
    #[arg(long, value_name = "DIR", hide = true, requires = "watch")]
    watch_root: Option<PathBuf>,

    /// Which machine: auto is this one, fake a synthetic one with traffic, to try the program
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = machine)]
    backend: Backend,

    /// Print the records, one JSON object a line
    #[arg(short, long)]
    json: bool,

    /// Print every finding in full, device by device, notes too
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    file: FileArgs,
}

fn check(name: &str) -> Result<&'static Check, String> {
    doctor::find(name).ok_or_else(|| "no such check; `pciescope doctor --list` shows them".to_owned())
}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    if args.list {
        list(&mut io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    // A signal must leave neither an unfinished file nor the synthetic machine behind.
    ctx.stop.catch_signals()?;
    let ctx = &ctx.on(&args.backend)?;
    let silences = Silences::read(ctx, &args.silence, &args.silence_file)?;
    let checks = chosen(&args)?;
    let inputs: Vec<&Path> = args.silence_file.iter().map(PathBuf::as_path).collect();
    let file = args.file.create(&inputs)?;
    let is_named = !args.only.is_empty() || !args.functions.is_empty();
    let detail = match args.all {
        true => Detail::Each,
        false if is_named => Detail::Kinds,
        false => Detail::Short,
    };
    let form = if args.json { Form::Json } else { Form::Findings { detail } };
    let mut output = Output::new(form, form.out(), file, args.file.label.clone());
    let functions = ctx.inventory();
    let subjects = subjects(&functions, &ctx.functions(&args.functions)?)?;

    let (earlier, counted) = match args.watch {
        Some(time) => {
            let (readings, time, counted) = watch(ctx, &args, &subjects, time.duration())?;
            (Some((readings, time)), Some(counted))
        }
        None => (None, None),
    };
    if let Some(code) = ctx.stop.exit_code() {
        return Ok(ExitCode::from(code));
    }
    let environment = environment::read(&ctx.root);
    let mut machine = Machine::new(&ctx.root, &environment, functions);
    machine.earlier = earlier.as_ref().map(|(readings, time)| (readings, *time));
    machine.counted = counted;
    machine.watched = recorded::read(&ctx.root);
    let examined = doctor::examine(&machine, &subjects, &checks);
    let mut findings: Vec<Finding> = examined.iter().flat_map(Examined::findings).collect();
    for finding in &mut findings {
        silences.apply(finding);
    }
    let is_sick = |finding: &Finding| finding.severity > Severity::Note && !finding.silenced;
    let is_found = findings.iter().any(is_sick);
    let blind = if args.only.is_empty() { Vec::new() } else { blind(&checks, &examined) };
    let functions = subjects.iter().filter_map(|bdf| machine.function(*bdf).cloned()).collect();
    let mut records = records(&args, environment.clone(), functions, findings, &examined, checks.len());
    if let Some(first) = records.first_mut() {
        if let Some((_, time)) = &earlier {
            first.metrics.insert("watched_ns".to_owned(), Metric::ns(time.as_nanos() as f64));
        }
        // That it could not look stands at each function; that it is for none of them would stand nowhere.
        first.warnings.extend(blind.iter().filter(|one| one.is_for_nothing).map(Blind::warning));
    }
    if let Some(code) = ctx.stop.exit_code() {
        return Ok(ExitCode::from(code));
    }
    output.put_all(&records)?;
    output.finish()?;
    // The text has said it; records are for programs.
    for one in blind.iter().filter(|_| args.json) {
        ctx.note(&format!("not checked: {}: {}", one.check, one.why));
        ctx.hint(&one.remedy);
    }
    Ok(ExitCode::from(match (is_found, blind.is_empty()) {
        (true, _) => 1,
        (false, false) => 2,
        (false, true) => 0,
    }))
}

/// What all checks find on a machine, without what is silenced, the worst first; and how many could not look everywhere.
///
/// # Errors
/// A silence file that cannot be understood.
pub fn findings(ctx: &Ctx, environment: &Environment, functions: &[Function]) -> anyhow::Result<(Vec<Finding>, usize)> {
    let silences = Silences::read(ctx, &[], &[] as &[PathBuf])?;
    let subjects = subjects(functions, &[])?;
    let machine = Machine::new(&ctx.root, environment, functions.to_vec());
    let examined = doctor::examine(&machine, &subjects, &CHECKS.iter().collect::<Vec<_>>());
    let mut findings: Vec<Finding> = examined.iter().flat_map(Examined::findings).collect();
    findings.iter_mut().for_each(|finding| silences.apply(finding));
    findings.retain(|finding| !finding.silenced);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let unseen = examined.iter().filter(|one| matches!(one.verdict, Err(Unseen::NotChecked { .. })));
    let unseen: BTreeSet<&str> = unseen.map(|one| one.check.name).collect();
    Ok((findings, unseen.len()))
}

/// A check that looked at nothing: its silence is no good news to one who asked for it.
struct Blind {
    check: &'static str,
    why: String,
    remedy: String,
    /// Whether there is nothing that it is for, rather than something that it could not look at.
    is_for_nothing: bool,
}

impl Blind {
    fn warning(&self) -> Warning {
        not_checked(self.check, &self.why, &self.remedy)
    }
}

/// The most reasons that are given why a check does not apply.
const REASONS: usize = 3;

/// The checks that looked at nothing.
fn blind(checks: &[&'static Check], examined: &[Examined]) -> Vec<Blind> {
    let mut all = Vec::new();
    for check in checks {
        let own: Vec<&Examined> = examined.iter().filter(|one| one.check.name == check.name).collect();
        if own.iter().any(|one| one.has_looked()) {
            continue;
        }
        let unseen = || own.iter().filter_map(|one| one.verdict.as_ref().err());
        let could_not = unseen().find_map(|unseen| match unseen {
            Unseen::NotChecked { why, remedy } => Some((why.clone(), remedy.clone())),
            Unseen::NotApplicable { .. } => None,
        });
        let is_for_nothing = could_not.is_none();
        let (why, remedy) = could_not.unwrap_or_else(|| {
            let remedy = format!("it looks at: {}", check.looks_at);
            (nothing_to_look_at(check, unseen()), remedy)
        });
        all.push(Blind { check: check.name, why, remedy, is_for_nothing });
    }
    all
}

/// Why there is nothing that a check is for.
fn nothing_to_look_at<'a>(check: &Check, unseen: impl Iterator<Item = &'a Unseen>) -> String {
    let (mut whys, mut subjects) = (BTreeSet::new(), 0);
    for one in unseen {
        subjects += 1;
        if let Unseen::NotApplicable { why } = one {
            whys.insert(why.as_str());
        }
    }
    let more = if whys.len() > REASONS { ", ..." } else { "" };
    let whys = whys.into_iter().take(REASONS).collect::<Vec<_>>().join(", or ");
    match subjects {
        _ if check.is_of_machine() => whys,
        0 => "there is no PCI function".to_owned(),
        1 => format!("it does not apply to the function: {whys}"),
        many => format!("it applies to none of {many} functions: {whys}{more}"),
    }
}

/// All checks, for a person.
fn list(out: &mut impl Write) -> io::Result<()> {
    for check in CHECKS {
        let subject = if check.is_of_machine() { "machine " } else { "function" };
        writeln!(out, "{:<19} {subject}  {}", check.name, check.looks_at)?;
    }
    writeln!(out, "\n{} checks; docs/doctor.md says more", CHECKS.len())
}

fn chosen(args: &Args) -> anyhow::Result<Vec<&'static Check>> {
    let has = |list: &[&'static Check], check: &Check| list.iter().any(|other| other.name == check.name);
    let is_chosen = |check: &&Check| (args.only.is_empty() || has(&args.only, check)) && !has(&args.skip, check);
    let checks: Vec<&'static Check> = CHECKS.iter().filter(is_chosen).collect();
    if checks.is_empty() {
        return Err(Refusal::new("--skip leaves no check", "`pciescope doctor --list` shows all").into());
    }
    Ok(checks)
}

/// The functions to look at, by address: those named with the bridges above them, or all.
fn subjects(functions: &[Function], named: &[Bdf]) -> anyhow::Result<Vec<Bdf>> {
    let mut subjects = Vec::new();
    for bdf in named {
        let known = functions.iter().find(|function| function.bdf == Some(*bdf));
        let function = known.ok_or(pciescope_hw::Error::NoSuchFunction(*bdf))?;
        subjects.extend(&function.path);
        subjects.push(*bdf);
    }
    if named.is_empty() {
        subjects.extend(functions.iter().filter_map(|function| function.bdf));
    }
    subjects.sort();
    subjects.dedup();
    Ok(subjects)
}

/// A first reading of what counts up, how long ago it was made, and what counters counted since. A signal ends the wait.
fn watch(
    ctx: &Ctx,
    args: &Args,
    subjects: &[Bdf],
    time: Duration,
) -> anyhow::Result<(Readings, Duration, Vec<Counted>)> {
    if let Some(recorded) = &args.watch_root {
        let counted = count::recorded(ctx).unwrap_or_default();
        return Ok((Readings::take(&Root::at(recorded), subjects), time, counted));
    }
    let mut wait = count::Wait::new(ctx)?;
    let (begin, end_ns) = (Instant::now(), now_ns().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
    let readings = Readings::take(&ctx.root, subjects);
    if ctx.terminal {
        ctx.note(&format!("watching for {:.1} s", time.as_secs_f64()));
    }
    let counted = count::count(ctx, time.as_nanos() as u64, &mut wait).unwrap_or_default();
    // Where nothing was counted nobody has waited.
    wait.until(Some(end_ns))?;
    Ok((readings, begin.elapsed(), counted))
}

/// The machine's record with the environment, then one for each function.
fn records(
    args: &Args,
    environment: Environment,
    functions: Vec<Function>,
    findings: Vec<Finding>,
    examined: &[Examined],
    checks: usize,
) -> Vec<Record> {
    let record = |bdf: Option<Bdf>| Record {
        test: "doctor".to_owned(),
        findings: findings.iter().filter(|finding| finding.bdf == bdf).cloned().collect(),
        warnings: examined.iter().filter(|one| one.bdf == bdf).filter_map(warning).collect(),
        checks: examined.iter().filter(|one| one.bdf == bdf).map(Examined::ended).collect(),
        ..Record::default()
    };
    let mut machine = record(None);
    machine.metrics.insert("checks".to_owned(), Metric::count(checks as u64));
    machine.environment = Some(environment);
    let of = |function: Function| Record { device: Some(function.clone()), ..record(function.bdf) };
    let mut records: Vec<Record> = std::iter::once(machine).chain(functions.into_iter().map(of)).collect();
    let (identity, now) = (Identity::new("doctor", args.file.label.clone()), SystemTime::now());
    records.iter_mut().for_each(|record| identity.mark(record, now));
    records
}

fn warning(one: &Examined) -> Option<Warning> {
    match &one.verdict {
        Err(Unseen::NotChecked { why, remedy }) => Some(not_checked(one.check.name, why, remedy)),
        _ => None,
    }
}

fn not_checked(check: &str, why: &str, remedy: &str) -> Warning {
    warning::NOT_CHECKED.hinted(format!("{check}: {why}"), remedy.to_owned())
}
