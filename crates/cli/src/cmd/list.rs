//! `pciescope list`: what is here, and what can be measured on it. Reads only.

pub mod text;

use std::io::{self, Write};
use std::process::ExitCode;

use pciescope_core::{Environment, Function};
use pciescope_hw::config::Config;
use pciescope_hw::probe::open::{Availability, Backend, backends};
use pciescope_hw::registers::{self, SafeRegister};
use pciescope_hw::{check, environment, floor, nodes, pci, topology};
use pciescope_report::table::SYNTHETIC;
use serde_json::{Value, json};

use super::Ctx;
use super::output::columns;
use super::stat::machine;
use crate::values;

/// The arguments of `pciescope list`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope list                    every PCI function, a line each
  pciescope list 0000:02:00.0       one function: what can be measured on it
  pciescope list nvme0n1 eth0       the same by the name of a disk or interface
  pciescope list --tree             how the functions are connected
  pciescope list -d 144d:           the functions of a vendor
  pciescope list -s 17:             the functions on a bus
  pciescope list --show-cpus        the CPUs and their NUMA nodes and cores
  pciescope list -j | jq 'select(.function)'  one JSON object a line")]
pub struct Args {
    /// Show these functions in detail instead of the table of all
    #[arg(value_name = "BDF", value_parser = values::bdf)]
    functions: Vec<values::FunctionName>,

    /// Print JSON, one object a line
    #[arg(short, long)]
    json: bool,

    /// Draw each function below its port, as a tree
    #[arg(short, long, conflicts_with_all = ["functions", "json", "all", "show_cpus"])]
    tree: bool,

    /// Only these IDs, in hexadecimal: VENDOR:DEVICE, either may be left out
    #[arg(short, long, value_name = "VENDOR:DEVICE", value_parser = ids, conflicts_with = "functions")]
    device: Option<Ids>,

    /// Only these addresses, as lspci -s takes them: DOMAIN:BUS:DEVICE.FUNCTION, any part may be left out or *
    #[arg(short, long, value_name = "SLOT", value_parser = slot, conflicts_with = "functions")]
    slot: Option<SlotFilter>,

    /// Which machine: auto is this one, fake a synthetic one with traffic, to try the program
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = machine)]
    backend: Backend,

    /// Print every column: payload size, vectors, root port, target, backends
    #[arg(long)]
    all: bool,

    /// Show every CPU with its NUMA node, package, L3 cache, core and thread
    #[arg(long)]
    show_cpus: bool,
}

/// `-d` as typed; `None` for any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ids {
    vendor: Option<u16>,
    device: Option<u16>,
}

fn ids(text: &str) -> Result<Ids, String> {
    const HOW: &str = "write VENDOR:DEVICE in hexadecimal, for example 8086:1563 or 8086:";
    let id = |text: &str| match text {
        "" | "*" => Ok(None),
        digits if digits.len() <= 4 => u16::from_str_radix(digits, 16).map(Some).map_err(|_| HOW.to_owned()),
        _ => Err(HOW.to_owned()),
    };
    let (vendor, device) = text.split_once(':').ok_or(HOW)?;
    Ok(Ids { vendor: id(vendor)?, device: id(device)? })
}

/// `-s` as typed; `None` for any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SlotFilter {
    domain: Option<u32>,
    bus: Option<u32>,
    device: Option<u32>,
    function: Option<u32>,
}

fn slot(text: &str) -> Result<SlotFilter, String> {
    const HOW: &str = "write DOMAIN:BUS:DEVICE.FUNCTION in hexadecimal, for example 17:00.0, 17: or .1";
    let part = |text: &str, most: u32| match text {
        "" | "*" => Ok(None),
        digits => match u32::from_str_radix(digits, 16) {
            Ok(number) if number <= most => Ok(Some(number)),
            _ => Err(HOW.to_owned()),
        },
    };
    let (place, function) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = place.rsplit(':');
    let device = part(parts.next().unwrap_or_default(), 0x1f)?;
    let bus = part(parts.next().unwrap_or_default(), 0xff)?;
    let domain = part(parts.next().unwrap_or_default(), u32::MAX)?;
    if text.is_empty() || parts.next().is_some() {
        return Err(HOW.to_owned());
    }
    Ok(SlotFilter { domain, bus, device, function: part(function, 7)? })
}

impl Args {
    /// Whether a function passes the filters.
    fn wants(&self, function: &Function) -> bool {
        let is = |wanted: Option<u32>, own: u32| wanted.is_none_or(|wanted| wanted == own);
        let ids = self.device.unwrap_or(Ids { vendor: None, device: None });
        let slot = self.slot.unwrap_or_default();
        ids.vendor.is_none_or(|vendor| vendor == function.vendor)
            && ids.device.is_none_or(|device| device == function.device)
            && function.bdf.is_some_and(|bdf| {
                is(slot.domain, bdf.domain)
                    && is(slot.bus, bdf.bus.into())
                    && is(slot.device, bdf.device.into())
                    && is(slot.function, bdf.function.into())
            })
    }
}

/// Everything that is known of one function.
pub struct Entry {
    function: Function,
    target: Option<SafeRegister>,
    backends: Vec<Availability>,
    /// Disks, network interfaces and character devices.
    nodes: Vec<String>,
    /// Why it does not answer, in a word or two; `None` where it does.
    silence: Option<&'static str>,
}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let ctx = &ctx.on(&args.backend)?;
    let environment = environment::read(&ctx.root);
    let all = ctx.inventory();
    let mut shown = Vec::new();
    for bdf in ctx.functions(&args.functions)? {
        let known = all.iter().find(|function| function.bdf == Some(bdf));
        shown.push(known.cloned().ok_or(pciescope_hw::Error::NoSuchFunction(bdf))?);
    }
    let is_detailed = !shown.is_empty();
    let chosen = if is_detailed { shown } else { all.iter().filter(|one| args.wants(one)).cloned().collect() };
    let entry = |function: Function| Entry {
        target: registers::safe_target(&function),
        backends: backends(&ctx.root, &function),
        nodes: function.bdf.map(|bdf| nodes::of(&ctx.root, bdf)).unwrap_or_default(),
        silence: function.bdf.and_then(|bdf| Config::load(&ctx.root, bdf).silence()),
        function,
    };
    let entries: Vec<Entry> = chosen.into_iter().map(entry).collect();

    let mut out = io::BufWriter::new(io::stdout().lock());
    // What is piped is not cut: a name is to be found whole.
    let width = columns().unwrap_or(usize::MAX);
    if args.json {
        print_json(&mut out, ctx, &environment, &entries, args.show_cpus)?;
    } else if is_detailed {
        mark(&mut out, &environment)?;
        for entry in &entries {
            let warnings = check::warnings(&ctx.root, &environment, Some(&entry.function));
            text::detail(&mut out, &environment, &all, entry, &warnings, width)?;
        }
    } else if args.tree {
        mark(&mut out, &environment)?;
        let parents = all.iter().filter_map(|one| Some((one.bdf?, pci::parent(&ctx.root, one.bdf?)?))).collect();
        text::tree(&mut out, &all, &entries, &parents, width)?;
    } else {
        match args.device.is_some() || args.slot.is_some() {
            // As of lspci: the functions alone.
            true => mark(&mut out, &environment)?,
            false => {
                let why = topology::cpus(&ctx.root).err().map(|err| format!("{:#}", anyhow::Error::from(err)));
                text::machine(&mut out, &environment, why.as_deref())?;
                text::controllers(&mut out, &ctx.root)?;
            }
        }
        match args.all {
            true => text::every_column(&mut out, &all, &entries)?,
            false => text::functions(&mut out, &all, &entries, width)?,
        }
    }
    if args.show_cpus && !args.json {
        text::cpus(&mut out, &environment.cpus)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The line that tells a synthetic machine from a real one.
fn mark(out: &mut impl Write, environment: &Environment) -> io::Result<()> {
    if environment.is_synthetic() { writeln!(out, "{SYNTHETIC}\n") } else { Ok(()) }
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
            "target": entry.target,
            "candidate": registers::candidate(&entry.function),
            "backends": entry.backends,
            "nodes": entry.nodes,
            "floor": floor_json(&entry.function),
            "warnings": check::function_warnings(&ctx.root, environment, &entry.function),
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn floor_json(function: &Function) -> Option<Value> {
    let wire = floor::of(function, 4)?;
    let (low, high) = floor::best_published(floor::switches_on(&function.path));
    Some(json!({
        "wire_ns": wire.total_ns(),
        "best_published_ns": [low, high],
        "source": floor::BEST_SOURCE,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_those_of_lspci() {
        assert_eq!(ids("8086:1563"), Ok(Ids { vendor: Some(0x8086), device: Some(0x1563) }));
        assert_eq!(ids(":1563"), Ok(Ids { vendor: None, device: Some(0x1563) }));
        for bad in ["", "8086", "80861:", "x:", "1:2:3"] {
            assert!(ids(bad).is_err(), "{bad:?} was taken");
        }
        let any = SlotFilter::default();
        assert_eq!(slot("17:"), Ok(SlotFilter { bus: Some(0x17), ..any }));
        assert_eq!(slot("00.1"), Ok(SlotFilter { device: Some(0), function: Some(1), ..any }));
        assert_eq!(slot(".1"), Ok(SlotFilter { function: Some(1), ..any }));
        assert_eq!(slot("10000:e2:*.*"), Ok(SlotFilter { domain: Some(0x10000), bus: Some(0xe2), ..any }));
        for bad in ["", "20.0", "100:", "00.8", "1:2:3:4", "g:"] {
            assert!(slot(bad).is_err(), "{bad:?} was taken");
        }
    }
}
