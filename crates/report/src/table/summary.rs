//! The table that all sections share: one row per key with count, smallest, mean, percentiles and largest.

use pciescope_core::{Histogram, outcome};

use super::{Page, SHOWN_ENDS};
use crate::layout::{Right, Rows, ends};
use crate::model::{GROUPINGS, Grouping, Section, cpu_of, target_from, target_id};
use crate::text::{target_key, thousands, us};

/// Writes a heading and one row per key, in the order given.
pub fn table(out: &mut Page, title: &str, rows: &[(String, Histogram)]) {
    if rows.is_empty() {
        return;
    }
    out.heading(title);
    let shown = ends(rows, out.most(), |(_, h)| h.median_ns().unwrap_or(f64::INFINITY));
    let columns = Rows::of(shown.iter().map(|place| &rows[*place])).columns(&[
        ("Key", 12, Right, &|(key, _)| key.clone()),
        ("Samples", 7, Right, &|(_, h)| h.count().to_string()),
        ("Min(us)", 7, Right, &|(_, h)| us(h.min_ns())),
        ("Mean(us)", 8, Right, &|(_, h)| us(h.mean_ns())),
        ("Median(us)", 10, Right, &|(_, h)| us(h.percentile_ns(50.0))),
        ("P95(us)", 7, Right, &|(_, h)| us(h.percentile_ns(95.0))),
        ("P99(us)", 7, Right, &|(_, h)| us(h.percentile_ns(99.0))),
        ("P99.9(us)", 7, Right, &|(_, h)| us(h.percentile_ns(99.9))),
        ("P99.99(us)", 7, Right, &|(_, h)| us(h.percentile_ns(99.99))),
        ("Worst(us)", 9, Right, &|(_, h)| us(h.max_ns())),
    ]);
    out.table(columns.without_empty());
    left_out(out, rows.len(), shown.len());
}

/// Says how many rows were left out, if any were.
pub fn left_out(out: &mut Page, of: usize, shown: usize) {
    if shown < of {
        out.line(&format!(
            "  (the {SHOWN_ENDS} fastest and {SHOWN_ENDS} slowest of {of} rows by median; --all shows every row)"
        ));
    }
}

/// Rows keyed by CPU number.
pub fn per_cpu(section: &Section, name: &str) -> Vec<(String, Histogram)> {
    section.per_cpu(name).into_iter().map(|(cpu, h)| (cpu.to_string(), h)).collect()
}

/// Rows keyed by CPU number and target.
pub fn per_cpu_and_target(section: &Section, name: &str, with_offset: bool) -> Vec<(String, Histogram)> {
    let rows = section.merged_by(name, |r| Some((cpu_of(r)?, target_id(r)))).into_iter();
    rows.map(|((cpu, id), h)| (format!("c{cpu}/{}", target_key(&target_from(&id), with_offset)), h)).collect()
}

/// One table per way of grouping in which the measured CPUs differ. A way that groups them just as an earlier one
/// does (one node per package) says so instead.
pub fn groups(out: &mut Page, section: &Section, name: &str, what: &str) {
    let cpus = section.cpus();
    let device_node = section.first().device.as_ref().and_then(|d| d.node);
    let mut written: Vec<&Grouping> = Vec::new();
    for grouping in GROUPINGS.iter().filter(|g| g.count(&cpus) > 1) {
        if let Some(same) = written.iter().find(|w| w.parts(&cpus) == grouping.parts(&cpus)) {
            out.line(&format!("  (per {}: the same groups as per {})", grouping.title, same.title));
            continue;
        }
        written.push(grouping);
        let rows: Vec<_> = section
            .by_place(name, grouping.place)
            .into_iter()
            .map(|(group, h)| {
                let mark = if grouping.title == "NUMA node" && device_node == Some(group) { " (dev)" } else { "" };
                (format!("{}{group}{mark}", grouping.prefix), h)
            })
            .collect();
        table(out, &format!("Per {} {what}", grouping.title), &rows);
    }
}

/// `Total samples: 4,000` over every record of the section.
pub fn total(out: &mut Page, section: &Section, name: &str) {
    let counts = section.records.iter().filter_map(|r| r.histograms.get(name)).map(Histogram::count);
    let count = counts.fold(0, u64::saturating_add);
    out.line("");
    out.line(&format!("Total samples: {}", thousands(count)));
}

/// What the empty stamp pair cost; it is shown, never subtracted.
pub fn calibration(out: &mut Page, section: &Section) {
    let per_cpu = section.per_cpu(outcome::CALIBRATION);
    let medians: Vec<f64> = per_cpu.values().filter_map(|h| h.median_ns()).collect();
    let all = section.merged(outcome::CALIBRATION);
    let (Some(median), Some(max)) = (all.median_ns(), all.max_ns()) else { return };
    let low = medians.iter().copied().fold(f64::INFINITY, f64::min);
    let high = medians.iter().copied().fold(0.0, f64::max);
    let spread = if high - low >= 0.05 { format!(" (CPUs {low:.1} to {high:.1})") } else { String::new() };
    out.line(&format!("Calibration: empty stamp pair, median {median:.1} ns{spread}, max {max:.1} ns; not subtracted"));
}
