//! `pciescope stat --list`: what can be counted on this machine. Opens nothing.

use std::io::{self, Write};
use std::process::ExitCode;

use pciescope_bench::counters::{Error, Machine, Origin, Place};
use pciescope_core::record::ACCOUNTING;
use pciescope_hw::account::Sources;
use pciescope_hw::perf::{By, Pmu};
use pciescope_report::table::SYNTHETIC;
use pciescope_report::text;

use super::Ctx;

/// Prints every PMU that counts for hardware outside the cores, with its place and the number of its events. Then it
/// prints each function with the kernel's counts for it, and the names of the PMUs that count for processes and CPUs.
pub fn run(ctx: &Ctx, places: &[Place], origin: Origin, is_synthetic: bool) -> anyhow::Result<ExitCode> {
    let machine = Machine::load(&ctx.root, origin);
    machine.check(places)?;
    let mut out = io::stdout().lock();
    if is_synthetic {
        writeln!(out, "{SYNTHETIC}\n")?;
    }
    let mut shown = 0;
    for (pmu, kind) in machine.pmus.iter().filter(|(pmu, _)| pmu.by == By::Hardware) {
        if is_other(pmu, kind.is_some()) || !machine.is_at(pmu, places) {
            continue;
        }
        shown += 1;
        let what = kind.map_or("not in the catalogue: name its events with -e", |kind| kind.title.as_str());
        let at = pmu.function().map_or_else(String::new, |bdf| format!("{bdf}  "));
        writeln!(out, "{:<24}  {at}{what}; {}, CPU {}", pmu.name, text::counted(pmu.events.len(), "event"), pmu.cpus)?;
        let (_, below) = machine.port(pmu);
        for below in below {
            writeln!(out, "{:<24}  below it {} {}", "", below.bdf, below.name)?;
        }
    }
    // The names of events once for all PMUs that have the same.
    let mut alike: Vec<(Vec<&String>, Vec<&str>)> = Vec::new();
    for (pmu, _) in machine
        .pmus
        .iter()
        .filter(|(pmu, kind)| pmu.by == By::Hardware && !is_other(pmu, kind.is_some()) && machine.is_at(pmu, places))
    {
        let events: Vec<&String> = pmu.events.keys().collect();
        match alike.iter_mut().find(|(known, _)| *known == events) {
            Some((_, pmus)) => pmus.push(&pmu.name),
            None => alike.push((events, vec![&pmu.name])),
        }
    }
    for (events, pmus) in alike.iter().filter(|(events, _)| !events.is_empty()) {
        let more = if pmus.len() > 1 { format!(" and {} more", pmus.len() - 1) } else { String::new() };
        writeln!(out, "\nevents of {}{more}, for -e:", pmus[0])?;
        let names = events.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ");
        for line in text::wrapped(&names, 80, "  ") {
            writeln!(out, "{line}")?;
        }
    }
    let accounts = machine.pmus.iter().filter(|(pmu, _)| pmu.by == By::Kernel && machine.is_at(pmu, places));
    let mut is_first = true;
    for (bdf, sources) in accounts.filter_map(|(pmu, _)| Some((pmu.bdf?, machine.sources.get(&pmu.bdf?)?))) {
        if std::mem::take(&mut is_first) {
            let gap = if shown > 0 { "\n" } else { "" };
            writeln!(out, "{gap}{ACCOUNTING}, lower bound (--source kernel):")?;
        }
        shown += 1;
        writeln!(out, "{bdf}  {}", counted(sources))?;
        for (name, why) in &sources.left_out {
            writeln!(out, "{:<12}  not {name}: {why}", "")?;
        }
    }
    let others: Vec<&str> = machine
        .pmus
        .iter()
        .filter(|(pmu, kind)| is_other(pmu, kind.is_some()) && places.is_empty())
        .map(|(pmu, _)| pmu.name.as_str())
        .collect();
    if !others.is_empty() {
        writeln!(out, "\nother PMUs of this machine, of CPUs and processes: {}", others.join(", "))?;
    }
    out.flush()?;
    if shown == 0 {
        return Err(Error::None { unknown: machine.pmus.len() }.into());
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a PMU counts for processes and CPUs: it has no mask, or is arm64's arm_spe, which samples cores and has one. One
/// that the catalogue knows is never such.
fn is_other(pmu: &Pmu, is_known: bool) -> bool {
    !is_known && (pmu.cpus.is_empty() || pmu.name.starts_with("arm_spe"))
}

/// What the kernel counts of a function, in words: `nvme0n1, 9 interrupt vectors, error reports`.
fn counted(sources: &Sources) -> String {
    let mut words = sources.devices.clone();
    if sources.vectors > 0 {
        words.push(format!("{} interrupt vector{}", sources.vectors, if sources.vectors == 1 { "" } else { "s" }));
    }
    if sources.has_errors {
        words.push("error reports".to_owned());
    }
    words.join(", ")
}
