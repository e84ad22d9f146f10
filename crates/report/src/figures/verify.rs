//! Counters compared with known traffic: the error of each, and the allowed error.

use pciescope_core::Comparison;

use super::{Figure, drawn_few};
use crate::chart::{Bar, Bars};
use crate::layout::{Left, Right, Rows};
use crate::model::Section;
use crate::text::clean;

/// One chart with a bar for each comparison.
pub fn of(section: &Section) -> Vec<Figure> {
    let rows = section.records.iter().filter_map(|record| Comparison::from_record(record));
    let rows: Vec<(f64, Comparison)> = rows.filter_map(|row| Some((row.error_percent()?, row))).collect();
    let table = Rows::of(&rows).columns(&[
        ("Workload", 12, Left, &|(_, row)| clean(&row.workload)),
        ("Counter", 12, Left, &|(_, row)| clean(&row.counter)),
        ("Error(%)", 8, Right, &|(error, _)| format!("{error:+.3}")),
        ("Allowed(%)", 10, Right, &|(_, row)| {
            row.allowed_percent().map_or("-".to_owned(), |allowed| format!("{allowed:.3}"))
        }),
    ]);
    let mut bars = Vec::new();
    for (error, row) in &rows {
        let label = clean(&format!("{}: {}", row.workload, row.counter));
        let words = format!("{label}: {error:+.3} %");
        bars.push(Bar {
            label,
            parts: vec![(if row.is_right() == Some(false) { 3 } else { 0 }, error.abs(), words)],
            mark: row.allowed_percent().map(|allowed| (allowed, format!("allowed: {allowed:.3} %"))),
            figure: format!("{error:+.3}"),
        });
    }
    if bars.is_empty() {
        return Vec::new();
    }
    let table = table.without_empty();
    let mark = bars.iter().any(|bar| bar.mark.is_some()).then(|| "what is allowed".to_owned());
    let chart = Bars { across: "% off, without sign".to_owned(), bars, mark, ..Bars::default() };
    let (chart, note) = drawn_few(chart, "");
    vec![Figure { heading: "Counters against known traffic".to_owned(), note, chart, table, is_digest: false }]
}
