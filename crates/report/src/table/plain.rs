//! Records of tests that have no table of their own: their histograms and figures by name.

use std::collections::BTreeMap;

use super::layout::{Columns, Left, Right, Rows};
use super::{Page, summary};
use crate::model::Section;
use crate::text::{clean, figure};

/// The end of an interval of an imported `perf stat -I`.
const INTERVAL_END: &str = "interval_end_ns";

/// A value and its unit.
type Amount<'a> = (f64, &'a str);

pub fn write(out: &mut Page, section: &Section) {
    let mut names: Vec<&String> = section.records.iter().flat_map(|r| r.histograms.keys()).collect();
    names.sort();
    names.dedup();
    let rows: Vec<_> = names.into_iter().map(|name| (clean(name), section.merged(name))).collect();
    summary::table(out, "Histograms", &rows);
    if let Some(columns) = figures(section) {
        out.heading("Figures");
        out.table(columns);
    }
}

/// The figures by name; `None` where there is none.
pub(crate) fn figures(section: &Section) -> Option<Columns> {
    let mut figures: BTreeMap<(String, Option<u32>, Option<String>), Vec<Amount>> = BTreeMap::new();
    for record in &section.records {
        // The ends of intervals are no figures to be averaged.
        for (name, metric) in record.metrics.iter().filter(|(name, _)| *name != INTERVAL_END) {
            let place = record.target.as_ref().and_then(|target| target.name.as_deref()).map(clean);
            let key = (clean(name), record.cpu.as_ref().map(|c| c.cpu), place);
            figures.entry(key).or_default().push((metric.value, &metric.unit));
        }
    }
    if figures.is_empty() {
        return None;
    }
    // Several records of one figure are its intervals: the sum of counts, the mean of anything else.
    let is_count = |values: &[Amount]| matches!(values[0].1, "1" | "bytes");
    let value = |values: &[Amount]| {
        let sum: f64 = values.iter().map(|v| v.0).sum();
        if is_count(values) { sum } else { sum / values.len() as f64 }
    };
    let columns = Rows::of(&figures).columns(&[
        ("CPU", 4, Right, &|((_, cpu, _), _)| cpu.map_or("-".to_owned(), |cpu| cpu.to_string())),
        ("Place", 5, Left, &|((.., place), _)| place.clone().unwrap_or_else(|| "-".to_owned())),
        ("Value", 14, Right, &|(_, values)| figure(value(values))),
        ("Unit", 8, Left, &|(_, values)| {
            let mean = if values.len() > 1 && !is_count(values) { " mean" } else { "" };
            clean(values[0].1) + mean
        }),
        ("Records", 7, Right, &|(_, values)| values.len().to_string()),
        ("Name", 4, Left, &|((name, ..), _)| name.clone()),
    ]);
    Some(columns.without_empty())
}
