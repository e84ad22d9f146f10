//! Configuration reads hop by hop: where on the way to the device the time goes.

use std::collections::BTreeMap;

use pciescope_core::outcome::LATENCY;
use pciescope_core::{Bdf, Histogram, Record};

use super::layout::{Left, Right, Rows};
use super::{Page, summary};
use crate::model::{Section, cpu_of};
use crate::text::us;

pub(super) fn write(out: &mut Page, section: &Section) {
    summary::total(out, section, LATENCY);
    let hop = |r: &Record| r.target.as_ref().and_then(|t| Some((t.hop?, t.hop_bdf)));
    hops(out, &section.merged_by(LATENCY, hop));
    // Mixing hops would say nothing: CPUs are compared by the whole way, to the last hop.
    let last = section.records.iter().filter_map(|r| hop(r)).map(|h| h.0).max();
    let is_last = |r: &Record| hop(r).map(|h| h.0) == last;
    let per_cpu: Vec<_> = section
        .merged_by(LATENCY, |r| cpu_of(r).filter(|_| is_last(r)))
        .into_iter()
        .map(|(cpu, h)| (cpu.to_string(), h))
        .collect();
    summary::table(out, "Per-CPU Configuration Read Latency, last hop", &per_cpu);
    let per_both: Vec<_> = section
        .merged_by(LATENCY, |r| Some((cpu_of(r)?, hop(r)?)))
        .into_iter()
        .map(|((cpu, (hop, _)), h)| (format!("c{cpu}/h{hop}"), h))
        .collect();
    summary::table(out, "Per CPU+Hop Configuration Read Latency", &per_both);
    summary::groups(out, section, LATENCY, "Configuration Read Latency, last hop", is_last);
}

fn hops(out: &mut Page, hops: &BTreeMap<(u16, Option<Bdf>), Histogram>) {
    if hops.is_empty() {
        return;
    }
    out.heading("Hop by hop, from the root port down (Step: median against the hop above)");
    let medians = with_steps(hops.values().map(|h| h.percentile_ns(50.0)));
    let columns = Rows::of(hops.iter().zip(medians)).columns(&[
        ("Hop", 4, Right, &|(((hop, _), _), _)| hop.to_string()),
        ("Function", 12, Left, &|(((_, bdf), _), _)| bdf.map(|bdf| bdf.to_string()).unwrap_or_default()),
        ("Count", 7, Right, &|((_, h), _)| h.count().to_string()),
        ("Min(us)", 7, Right, &|((_, h), _)| us(h.min_ns())),
        ("Avg(us)", 7, Right, &|((_, h), _)| us(h.mean_ns())),
        ("P50(us)", 7, Right, &|((_, h), _)| us(h.percentile_ns(50.0))),
        ("Step(us)", 8, Right, &|(_, (_, step))| step.clone()),
        ("P95(us)", 7, Right, &|((_, h), _)| us(h.percentile_ns(95.0))),
        ("P99(us)", 7, Right, &|((_, h), _)| us(h.percentile_ns(99.0))),
        ("Max(us)", 7, Right, &|((_, h), _)| us(h.max_ns())),
    ]);
    out.table(columns);
}

/// Medians from hop to hop, each with by how much it lies above the one before, in us.
pub(crate) fn with_steps(medians: impl Iterator<Item = Option<f64>>) -> impl Iterator<Item = (Option<f64>, String)> {
    let mut above = None;
    medians.map(move |median| {
        let known = std::mem::replace(&mut above, median).zip(median);
        (median, known.map_or("-".to_owned(), |(above, median): (f64, f64)| format!("{:+.3}", (median - above) / 1e3)))
    })
}
