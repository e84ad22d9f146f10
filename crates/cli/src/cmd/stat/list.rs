//! `pciescope stat --list`: what can be counted on this machine. Opens nothing.

use std::io::{self, Write};
use std::process::ExitCode;

use pciescope_bench::counters::{Error, Machine, Place};

use super::Ctx;

/// Prints every PMU that counts for hardware outside the cores, with what it stands at and how many events it has.
pub fn run(ctx: &Ctx, places: &[Place]) -> anyhow::Result<ExitCode> {
    let machine = Machine::load(&ctx.root);
    machine.check(places)?;
    let mut out = io::stdout().lock();
    let mut shown = 0;
    for (pmu, kind) in &machine.pmus {
        // PMUs without a mask count for processes and CPUs.
        if (kind.is_none() && pmu.cpus.is_empty()) || !machine.is_at(pmu, places) {
            continue;
        }
        shown += 1;
        let what = kind.map_or("not in the catalogue: name its events with -e", |kind| kind.title.as_str());
        let at = pmu.function().map_or_else(String::new, |bdf| format!("{bdf}  "));
        writeln!(out, "{:<24}  {at}{what}; {} events, CPU {}", pmu.name, pmu.events.len(), pmu.cpus)?;
        let (_, below) = machine.port(pmu);
        for below in below {
            writeln!(out, "{:<24}  below it {} {}", "", below.bdf, below.name)?;
        }
    }
    out.flush()?;
    if shown == 0 {
        return Err(Error::None { unknown: machine.pmus.len() }.into());
    }
    Ok(ExitCode::SUCCESS)
}
