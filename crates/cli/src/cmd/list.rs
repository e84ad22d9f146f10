//! `pciescope list`: what is here, and what can be measured on it. Reads only.

mod text;

use std::io::{self, Write};
use std::process::ExitCode;

use pciescope_core::{Bdf, Environment, Function};
use pciescope_hw::probe::open::{Availability, backends};
use pciescope_hw::registers::{self, SafeRegister};
use pciescope_hw::{check, environment, floor, pci};
use serde_json::{Value, json};

use super::Ctx;
use crate::args;

/// The arguments of `pciescope list`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope list                    every PCI function in a table
  pciescope list 0000:02:00.0       one function, with what would spoil its latency
  pciescope list --cpus             the CPUs and their places
  pciescope list -j | jq .function  one JSON object a line")]
pub struct Args {
    /// Show these functions in detail instead of the table of all
    #[arg(value_name = "BDF", value_parser = args::bdf)]
    functions: Vec<Bdf>,

    /// Print JSON, one object a line
    #[arg(short, long)]
    json: bool,

    /// Show every CPU with its NUMA node, package, L3 cache, core and thread
    #[arg(long)]
    cpus: bool,
}

/// Everything that is known of one function.
struct Entry {
    function: Function,
    target: Option<SafeRegister>,
    backends: Vec<Availability>,
}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let environment = environment::read(&ctx.root);
    let all = pci::functions(&ctx.root)?;
    let mut shown = Vec::new();
    for bdf in &args.functions {
        let known = all.iter().find(|function| function.bdf == Some(*bdf));
        shown.push(known.cloned().ok_or(pciescope_hw::Error::NoSuchFunction { bdf: *bdf })?);
    }
    let is_detailed = !shown.is_empty();
    let chosen = if is_detailed { shown } else { all.clone() };
    let entry = |function: Function| Entry {
        target: registers::safe_target(&function),
        backends: backends(&ctx.root, &function),
        function,
    };
    let entries: Vec<Entry> = chosen.into_iter().map(entry).collect();

    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.json {
        print_json(&mut out, ctx, &environment, &entries, args.cpus)?;
    } else if is_detailed {
        for entry in &entries {
            let warnings = check::warnings(&ctx.root, &environment, Some(&entry.function));
            text::detail(&mut out, &environment, &all, entry, &warnings)?;
        }
    } else {
        text::machine(&mut out, &environment)?;
        text::functions(&mut out, &all, &entries)?;
    }
    if args.cpus && !args.json {
        text::cpus(&mut out, &environment.cpus)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// One object a line: the machine, its CPUs where asked for, then the functions.
fn print_json(
    out: &mut impl Write,
    ctx: &Ctx,
    environment: &Environment,
    entries: &[Entry],
    cpus: bool,
) -> anyhow::Result<()> {
    writeln!(
        out,
        "{}",
        json!({
            "environment": environment,
            "warnings": check::machine_warnings(&ctx.root, environment),
        })
    )?;
    if cpus {
        for cpu in &environment.cpus {
            writeln!(out, "{}", json!({ "cpu": cpu }))?;
        }
    }
    for entry in entries {
        let line = json!({
            "function": entry.function,
            "class_name": pci::class_name(entry.function.class),
            "target": entry.target.map(target_json),
            "candidate": registers::candidate(&entry.function).map(target_json),
            "backends": entry.backends,
            "floor": floor_json(&entry.function),
            "warnings": check::function_warnings(&ctx.root, environment, &entry.function),
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn target_json(register: SafeRegister) -> Value {
    json!({
        "name": register.name,
        "bar": register.bar,
        "offset": register.offset,
        "width": register.width,
        "source": register.source,
        "verified": register.verified,
    })
}

fn floor_json(function: &Function) -> Option<Value> {
    if function.class >> 16 == 0x06 {
        return None;
    }
    let switches = floor::switches_on(&function.path);
    let link = function.link?;
    let wire = floor::wire_floor(link.speed_gts, link.width, 4, switches)?;
    let (low, high) = floor::best_published(switches);
    Some(json!({
        "wire_ns": wire.total_ns(),
        "best_published_ns": [low, high],
        "source": floor::BEST_SOURCE,
    }))
}
