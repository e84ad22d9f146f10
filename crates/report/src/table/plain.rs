//! Records of tests that have no table of their own: their histograms and figures by name.

use std::collections::BTreeMap;

use super::layout::{Align, Columns};
use super::{Page, summary};
use crate::model::Section;
use crate::text::{clean, figure};

/// A value and its unit.
type Figure<'a> = (f64, &'a str);

pub fn write(out: &mut Page, section: &Section) {
    let mut names: Vec<&str> = section.records.iter().flat_map(|r| r.histograms.keys()).collect();
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
    let mut figures: BTreeMap<(String, Option<u32>), Vec<Figure>> = BTreeMap::new();
    for record in &section.records {
        for (name, metric) in record.metrics.iter() {
            let key = (clean(name), record.cpu.as_deref().map(|c| c.cpu));
            figures.entry(key).or_default().push((metric.value, metric.unit));
        }
    }
    if figures.is_empty() {
        return None;
    }
    let r = Align::Right;
    let mut columns = Columns::new(&[
        ("CPU", 4, r),
        ("Value", 14, r),
        ("Unit", 8, Align::Left),
        ("Records", 7, r),
        ("Name", 4, Align::Left),
    ]);
    for ((name, cpu), values) in &figures {
        // Several records of one figure are its intervals: the sum of counts, the mean of anything else.
        let sum: f64 = values.iter().map(|v| v.0).sum();
        let unit = values[0].1;
        let is_count = unit == "1" || unit == "bytes";
        let value = if is_count { sum } else { sum / values.len() as f64 };
        let value = figure(value);
        let unit = if is_count {
            clean(unit)
        } else if values.len() > 1 {
            format!("{} mean", clean(unit))
        } else {
            clean(unit)
        };
        let cpu = cpu.map_or("-".to_owned(), |c| c.to_string());
        columns.row(vec![cpu, value, unit, values.len().to_string(), name.clone()]);
    }
    columns.drop_empty();
    Some(columns)
}
