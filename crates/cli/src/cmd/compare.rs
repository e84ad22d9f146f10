//! `pciescope compare`: compares two sides of records.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pciescope_core::{Record, once};
use pciescope_report::compare::{self, Criteria, Judgement, Limit, Names};
use pciescope_report::jsonl;

use super::output::{Out, stdout};
use super::{Ctx, Refusal};
use crate::values::{Percent, percent};

/// The arguments of `pciescope compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope compare before.jsonl after.jsonl
  pciescope compare --base a1.jsonl,a2.jsonl --new b1.jsonl,b2.jsonl
  pciescope compare both.jsonl --by label --pick before,after
  pciescope compare main.jsonl new.jsonl --fail-if 'p99 > +10%'
  pciescope compare a.jsonl b.jsonl -j | jq 'select(.is_worse)'

A limit is [HISTOGRAM.]NAME OP VALUE. NAME is mean, median, p90, p99, p99.9 and
the like, loss (all counts of losses), or a metric such as speed or
rx_bytes_per_s. OP is >, >=, < or <=. A VALUE with a sign is a change from A
(+10%, -5%, +50ns). A VALUE without one is compared with B itself (1500ns,
2GB/s, 0). A limit is exceeded if the whole 95 % interval lies beyond it; a
count has no interval and is compared directly.

Exit codes: 0 every limit held, or no limit was set (with any verdict); 1 a
limit was exceeded; 2 nothing could be compared, a limit applies to nothing, or
B did not measure what a limit names.")]
pub struct Args {
    /// The record files of A and of B (with --by, files that have both); `-` is the standard input
    #[arg(value_name = "FILE", required_unless_present_all = ["base", "new"], conflicts_with_all = ["base", "new"])]
    files: Vec<PathBuf>,

    /// The record files of A, separated by commas: several runs show how much runs differ
    #[arg(long, value_name = "FILES", value_delimiter = ',', requires = "new")]
    base: Vec<PathBuf>,

    /// The record files of B, separated by commas
    #[arg(long, value_name = "FILES", value_delimiter = ',', requires = "base")]
    new: Vec<PathBuf>,

    /// Distinguish A and B by the records' label or run, not by the file
    #[arg(long, value_name = "FIELD", value_parser = ["label", "run"])]
    by: Option<String>,

    /// Which label or run is A and which is B, if there are more than two
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1..=2, requires = "by")]
    pick: Vec<String>,

    /// Ignore a change of up to this share of A
    #[arg(long, value_name = "PERCENT", default_value = "2%", value_parser = percent)]
    margin: Percent,

    /// The standard deviation between runs to assume if there are too few runs to measure it
    #[arg(long, value_name = "PERCENT", default_value = "0.5%", value_parser = percent)]
    run_spread: Percent,

    /// Fail (exit code 1) if this limit is exceeded; may be repeated
    #[arg(long, value_name = "LIMIT")]
    fail_if: Vec<Limit>,

    /// Compare limits with the figures alone, without their intervals
    #[arg(long, requires = "fail_if")]
    strict: bool,

    /// Compare even runs that were measured in incomparable ways
    #[arg(long)]
    anyway: bool,

    /// Show every cell and statistic
    #[arg(long)]
    all: bool,

    /// Write JSON lines instead of the table: a summary, then every cell and limit
    #[arg(short, long)]
    json: bool,
}

/// Both sides, and what they are called.
struct Sides {
    a: Vec<Record>,
    b: Vec<Record>,
    names: Names,
}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let sides = match &args.by {
        Some(field) => by_field(&args, field, ctx)?,
        None => by_file(&args, ctx)?,
    };
    let criteria = Criteria {
        margin: args.margin.0 / 100.0,
        spread: args.run_spread.0 / 100.0,
        is_forced: args.anyway,
        limits: args.fail_if,
        is_strict: args.strict,
    };
    refuse_unknown(&criteria.limits, &sides)?;
    let judgement = compare::compare(&sides.a, &sides.b, &criteria);
    if judgement.cells.is_empty() {
        return Err(nothing_common(&judgement).into());
    }
    let (text, mut out): (String, Out) = match (args.json, args.all) {
        (true, _) => (compare::lines(&judgement), Box::new(io::stdout())),
        (false, true) => (compare::render(&judgement, &sides.names, true), Box::new(stdout())),
        (false, false) => (compare::brief(&judgement, &sides.names), Box::new(stdout())),
    };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    end(&judgement, ctx)
}

/// The exit code, and why it is not 0.
fn end(judgement: &Judgement, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    if judgement.is_failed() {
        let exceeded = judgement.rulings.iter().filter(|ruling| ruling.is_failed());
        let limits: Vec<String> = exceeded.map(|ruling| format!("'{}'", ruling.limit)).collect();
        ctx.note(&format!("exceeded: {}", limits.join(", ")));
        return Ok(ExitCode::from(1));
    }
    if !judgement.is_comparable() {
        ctx.note("nothing could be compared: the sides were measured in ways that make their figures incomparable");
        ctx.hint("measure both sides in the same way, or use --anyway to compare them");
        return Ok(ExitCode::from(2));
    }
    let missing = judgement.rulings.iter().find_map(|ruling| Some((ruling, ruling.missing.first()?)));
    if let Some((ruling, key)) = missing {
        let more = match ruling.missing.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        ctx.note(&format!("'{}': not measured in B: {}{more}", ruling.limit, key.title()));
        ctx.hint("measure in B what A measured, or name in the limit what both have");
        return Ok(ExitCode::from(2));
    }
    if let Some(ruling) = judgement.rulings.iter().find(|ruling| ruling.checked == 0) {
        ctx.note(&format!("'{}' applies to no figure", ruling.limit));
        ctx.hint(
            "a percentile p needs 10/(1-p) samples on both sides (p99: 1000); a change needs a figure in A; both sides \
             must be measured in the same way (or use --anyway)",
        );
        return Ok(ExitCode::from(2));
    }
    Ok(ExitCode::SUCCESS)
}

fn by_file(args: &Args, ctx: &Ctx) -> anyhow::Result<Sides> {
    let (base, new) = match args.files.as_slice() {
        [] => (args.base.clone(), args.new.clone()),
        [a, b] => (vec![a.clone()], vec![b.clone()]),
        files => {
            let what = if files.len() == 1 { "one file is" } else { "more than two files are" };
            return Err(Refusal::new(
                format!("{what} not A and B"),
                "give two files, several with --base A1,A2 --new B1,B2, or tell the runs of one file apart with --by label",
            )
            .into());
        }
    };
    let is_input = |path: &PathBuf| path.as_path() == Path::new("-");
    if base.iter().chain(&new).filter(|path| is_input(path)).count() > 1 {
        return Err(Refusal::new("the standard input can be read once only", "give one of the sides as a file").into());
    }
    let place = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    if let Some(path) = base.iter().find(|path| new.iter().any(|other| place(other) == place(path))) {
        ctx.note(&format!("{} is on both sides: a file does not differ from itself", path.display()));
    }
    let name = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let names = Names { a: name(&base), b: name(&new) };
    Ok(Sides { a: read(&base, ctx)?, b: read(&new, ctx)?, names })
}

fn by_field(args: &Args, field: &str, ctx: &Ctx) -> anyhow::Result<Sides> {
    let files: Vec<PathBuf> = args.files.iter().chain(&args.base).chain(&args.new).cloned().collect();
    let records = read(&files, ctx)?;
    let value = |record: &Record| match field {
        "run" => Some(record.run.clone()),
        _ => record.label.clone(),
    };
    let known = once(records.iter().filter_map(value));
    let picked = if args.pick.is_empty() { known.clone() } else { args.pick.clone() };
    let [a, b] = picked.as_slice() else {
        let names = if known.is_empty() { "none".to_owned() } else { quoted(&known) };
        return Err(Refusal::new(
            format!("A and B are two values of {field}, and these records have {}: {names}", known.len()),
            "name them with --pick A,B; a run gets its label by --label when it measures",
        )
        .into());
    };
    if let Some(missing) = [a, b].into_iter().find(|name| !known.contains(name)) {
        return Err(Refusal::new(
            format!("no record has the {field} {missing:?}"),
            format!("these have: {}", if known.is_empty() { "none".to_owned() } else { quoted(&known) }),
        )
        .into());
    }
    if a == b {
        return Err(Refusal::new(
            format!("A and B are the same: both are the {field} {a:?}"),
            format!("name two of these: {}", quoted(&known)),
        )
        .into());
    }
    let names = Names { a: format!("{field} {a}"), b: format!("{field} {b}") };
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for record in records {
        match value(&record) {
            Some(name) if name == *a => left.push(record),
            Some(name) if name == *b => right.push(record),
            _ => {}
        }
    }
    Ok(Sides { a: left, b: right, names })
}

fn quoted(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    names.iter().take(SHOWN).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ") + more
}

fn read(paths: &[PathBuf], ctx: &Ctx) -> anyhow::Result<Vec<Record>> {
    let jsonl::Contents { records, remarks } = jsonl::fold_files(paths)?;
    for remark in &remarks {
        ctx.note(remark);
    }
    Ok(records)
}

/// A limit on a figure that no record has is a mistake: it would never fail.
fn refuse_unknown(limits: &[Limit], sides: &Sides) -> Result<(), Refusal> {
    if limits.is_empty() {
        return Ok(());
    }
    let names = compare::names(&sides.a, &sides.b);
    match limits.iter().find(|limit| !limit.is_known(&names)) {
        Some(limit) => Err(Refusal::new(
            format!("'{limit}': no figure of these records has that name"),
            format!("these have: {}", names.join(", ")),
        )),
        None => Ok(()),
    }
}

/// Why the sides have nothing in common, with what each side has.
fn nothing_common(judgement: &Judgement) -> Refusal {
    let first =
        |keys: &[compare::CellKey]| keys.first().map_or_else(|| "no figure".to_owned(), compare::CellKey::title);
    let (a, b) = (first(&judgement.only_a), first(&judgement.only_b));
    Refusal::new(
        format!("A and B have nothing in common: A has {a}, B {b}"),
        "cells are matched by device, test, target and CPU; measure the same on both sides",
    )
}
