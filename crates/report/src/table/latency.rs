//! Latency in all its tables: CPUs compared, per CPU, per target, per CPU and target, per group of CPUs; a path hop by hop.

use pciescope_core::outcome::{ENTRY_TO_ACK, LATENCY};
use pciescope_core::{Histogram, Record, Target};

use super::{Page, summary};
use crate::facts::latency::{main_histogram, main_part, per_cpu, with_steps};
use crate::layout::{Left, Right, Rows};
use crate::model::{self, Kind, Section, target_from, target_id};
use crate::text::{target_key, us};

const LEGEND: [&str; 6] = [
    "1. trigger_to_handler_us",
    "   Time from the stamp before the trigger to the first stamp in the interrupt handler.",
    "   It includes the trigger's own way to the device, delivery and dispatch.",
    "2. entry_to_ack_us",
    "   Time inside the handler from its first stamp until the device's acknowledge completes.",
    "   Keeping the sample is not in it.",
];

pub(super) fn write(out: &mut Page, section: &Section, with_legend: bool) {
    let (name, kind, offsets) = (main_histogram(section), model::kind(section.test()), section.has_many_offsets());
    let (what, place, part_of) = match section.test() {
        "mmio-write" => ("Register Write Cost", if offsets { "Register" } else { "BAR" }, ""),
        "mmio-write-read" => ("Register Write-Read-Back Latency", if offsets { "Register" } else { "BAR" }, ""),
        "config-read" => ("Configuration Read Latency", "Hop", ", last hop"),
        _ if kind == Kind::Irq => ("Latency", "IRQ", ""),
        _ => ("IOMem Read Latency", if offsets { "Register" } else { "BAR" }, ""),
    };
    summary::total(out, section, name);
    if with_legend {
        out.heading("Metrics Measured");
        LEGEND.iter().for_each(|line| out.line(line));
    }
    if kind == Kind::Path {
        hops(out, section);
    } else if section.cpus().len() > 1 {
        let mut below = None;
        let columns = per_cpu(section, None, Some(out.most()), &mut below);
        out.heading("CPUs compared");
        out.table(columns);
        below.iter().for_each(|line| out.line(&format!("  ({line})")));
    }
    // Mixing hops would say nothing: CPUs are compared by the whole way, to the last hop.
    let part = main_part(section);
    summary::table(out, &format!("Per-CPU {what}{part_of}"), &summary::per_cpu(&part, name));
    summary::table(out, "Per-CPU Entry-to-Ack Latency", &summary::per_cpu(section, ENTRY_TO_ACK));
    if kind != Kind::Path {
        summary::table(out, &format!("Per-{place} {what}"), &per_target(section, name, offsets));
        summary::table(out, "Per-IRQ Entry-to-Ack Latency", &per_target(section, ENTRY_TO_ACK, offsets));
    }
    let per_both = summary::per_cpu_and_target(section, name, offsets);
    summary::table(out, &format!("Per CPU+{place} {what}"), &per_both);
    let trigger = if kind == Kind::Irq { " (trigger to handler)" } else { "" };
    summary::groups(out, &part, name, &format!("{what}{part_of}{trigger}"));
}

/// An interrupt has its number in Linux, with the vector where both are known. A BAR alone is named by its number, as the
/// original scripts do.
fn per_target(section: &Section, name: &str, offsets: bool) -> Vec<(String, Histogram)> {
    let key = |target: &Target| match (target.irq, target.vector) {
        (Some(irq), Some(vector)) => format!("{irq} (v{vector})"),
        (Some(irq), None) => irq.to_string(),
        _ if offsets => target_key(target, true),
        _ => target_key(target, false).trim_start_matches('b').to_owned(),
    };
    section.merged_by(name, |r| Some(target_id(r))).into_iter().map(|(id, h)| (key(&target_from(&id)), h)).collect()
}

fn hops(out: &mut Page, section: &Section) {
    let hop = |record: &Record| record.target.as_ref().and_then(|target| Some((target.hop?, target.hop_bdf)));
    let hops = section.merged_by(LATENCY, hop);
    if hops.is_empty() {
        return;
    }
    out.heading("Hop by hop, from the root port down (Step: median against the hop above)");
    let medians = with_steps(hops.values().map(|h| h.percentile_ns(50.0)));
    let columns = Rows::of(hops.iter().zip(medians)).columns(&[
        ("Hop", 4, Right, &|(((hop, _), _), _)| hop.to_string()),
        ("Function", 12, Left, &|(((_, bdf), _), _)| bdf.map(|bdf| bdf.to_string()).unwrap_or_default()),
        ("Samples", 7, Right, &|((_, h), _)| h.count().to_string()),
        ("Min(us)", 7, Right, &|((_, h), _)| us(h.min_ns())),
        ("Mean(us)", 8, Right, &|((_, h), _)| us(h.mean_ns())),
        ("Median(us)", 10, Right, &|((_, h), _)| us(h.percentile_ns(50.0))),
        ("Step(us)", 8, Right, &|(_, (_, step))| step.clone()),
        ("P95(us)", 7, Right, &|((_, h), _)| us(h.percentile_ns(95.0))),
        ("P99(us)", 7, Right, &|((_, h), _)| us(h.percentile_ns(99.0))),
        ("Worst(us)", 9, Right, &|((_, h), _)| us(h.max_ns())),
    ]);
    out.table(columns);
}
