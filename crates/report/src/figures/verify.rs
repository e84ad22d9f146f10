//! Counters compared with known traffic: the error of each, and the allowed error.

use super::{Figure, drawn_few};
use crate::chart::{Bar, Bars};
use crate::model::Section;
use crate::table::layout::{Align, Columns};
use crate::text::clean;

/// One chart with a bar for each comparison.
pub fn of(section: &Section) -> Vec<Figure> {
    let (l, r) = (Align::Left, Align::Right);
    let mut table = Columns::new(&[("Workload", 12, l), ("Counter", 12, l), ("Error(%)", 8, r), ("Allowed(%)", 10, r)]);
    let mut bars = Vec::new();
    for row in section.records.iter().filter_map(|record| record.comparison()) {
        let (Some(error), allowed) = (row.error_percent(), row.allowed_percent()) else { continue };
        let label = clean(&format!("{}: {}", row.workload, row.counter));
        let words = format!("{label}: {error:+.3} %");
        table.row(vec![
            clean(&row.workload),
            clean(&row.counter),
            format!("{error:+.3}"),
            allowed.map_or("-".to_owned(), |allowed| format!("{allowed:.3}")),
        ]);
        bars.push(Bar {
            label,
            parts: vec![(if row.is_right() == Some(false) { 3 } else { 0 }, error.abs(), words)],
            mark: allowed.map(|allowed| (allowed, format!("allowed: {allowed:.3} %"))),
            figure: format!("{error:+.3}"),
        });
    }
    if bars.is_empty() {
        return Vec::new();
    }
    table.drop_empty();
    let mark = bars.iter().any(|bar| bar.mark.is_some()).then(|| "what is allowed".to_owned());
    let chart = Bars { across: "% off, without sign".to_owned(), bars, mark, ..Bars::default() };
    let (chart, note) = drawn_few(chart, "");
    vec![Figure { heading: "Counters against known traffic".to_owned(), note, chart, table, is_digest: false }]
}
