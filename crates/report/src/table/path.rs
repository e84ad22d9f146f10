//! Configuration reads hop by hop: where on the way to the device the time goes.

use std::collections::BTreeMap;

use pciescope_core::outcome::LATENCY;
use pciescope_core::{Bdf, Histogram};

use super::layout::{Align, Columns};
use super::{Page, summary};
use crate::kept::Kept;
use crate::model::{Section, cpu_of};
use crate::text::us;

pub fn write(out: &mut Page, section: &Section) {
    summary::total(out, section, LATENCY);
    let hop = |r: &Kept| r.target.as_deref().and_then(|t| Some((t.hop?, t.hop_bdf)));
    hops(out, &section.merged_by(LATENCY, hop));
    // Mixing hops would say nothing: CPUs are compared by the whole way, to the last hop.
    let last = section.records.iter().filter_map(|r| hop(r)).map(|h| h.0).max();
    let is_last = |r: &Kept| hop(r).map(|h| h.0) == last;
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
    let r = Align::Right;
    let mut columns = Columns::new(&[
        ("Hop", 4, r),
        ("Function", 12, Align::Left),
        ("Count", 7, r),
        ("Min(us)", 7, r),
        ("Avg(us)", 7, r),
        ("P50(us)", 7, r),
        ("Step(us)", 8, r),
        ("P95(us)", 7, r),
        ("P99(us)", 7, r),
        ("Max(us)", 7, r),
    ]);
    let mut above: Option<f64> = None;
    for ((hop, bdf), h) in hops {
        let median = h.percentile_ns(50.0);
        let step = above.zip(median).map_or("-".to_owned(), |(a, m)| format!("{:+.3}", (m - a) / 1e3));
        above = median;
        columns.row(vec![
            hop.to_string(),
            bdf.map(|b| b.to_string()).unwrap_or_default(),
            h.count().to_string(),
            us(h.min_ns()),
            us(h.mean_ns()),
            us(median),
            step,
            us(h.percentile_ns(95.0)),
            us(h.percentile_ns(99.0)),
            us(h.max_ns()),
        ]);
    }
    out.table(columns);
}
