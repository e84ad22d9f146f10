//! Register latency: per CPU, per BAR, per CPU and BAR, and per group of CPUs.

use pciescope_core::outcome::LATENCY;

use super::{Page, summary};
use crate::model::{Section, target_from, target_id};
use crate::text::target_key;

pub fn write(out: &mut Page, section: &Section) {
    let what = match section.test() {
        "mmio-write" => "Register Write Cost",
        "mmio-write-read" => "Register Write-Read-Back Latency",
        _ => "IOMem Read Latency",
    };
    let offsets = section.has_many_offsets();
    let place = if offsets { "Register" } else { "BAR" };
    summary::total(out, section, LATENCY);
    summary::comparison(out, section, LATENCY, "CPU Performance Comparison (lower is better)", "");
    summary::table(out, &format!("Per-CPU {what}"), &summary::per_cpu(section, LATENCY));
    let per_target: Vec<_> = section
        .merged_by(LATENCY, |r| Some(target_id(r)))
        .into_iter()
        .map(|(id, h)| {
            // A BAR alone is named by its number, as the original scripts do.
            let key = target_key(&target_from(&id), offsets);
            (if offsets { key } else { key.trim_start_matches('b').to_owned() }, h)
        })
        .collect();
    summary::table(out, &format!("Per-{place} {what}"), &per_target);
    let per_both = summary::per_cpu_and_target(section, LATENCY, offsets);
    summary::table(out, &format!("Per CPU+{place} {what}"), &per_both);
    summary::groups(out, section, LATENCY, what, |_| true);
}
