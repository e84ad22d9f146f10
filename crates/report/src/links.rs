//! Links that were watched: what each came to, and how each changed.

use pciescope_core::change::Change;
use pciescope_core::text::span;
use pciescope_core::{Bdf, Record};

use crate::layout::{Columns, Left, Right, Rows};
use crate::model::{Section, metric};
use crate::text::{first_of, thousands};

/// What a link came to, by its last record.
pub(crate) struct LinkRow<'r> {
    pub record: &'r Record,
    pub lost_bytes: f64,
}

/// The links, those that lost most first.
pub(crate) fn links<'r>(section: &Section<'r>) -> Vec<LinkRow<'r>> {
    let totals = section.records.iter().filter(|record| record.metrics.contains_key("changes"));
    let mut rows: Vec<LinkRow> =
        totals.map(|record| LinkRow { record, lost_bytes: metric(record, "lost_bytes").unwrap_or(0.0) }).collect();
    rows.sort_by(|one, other| other.lost_bytes.total_cmp(&one.lost_bytes));
    rows
}

/// The changes, states at the start left out, in the order of the file.
pub(crate) fn changes<'r>(section: &Section<'r>) -> impl Iterator<Item = (&'r Record, &'r Change)> {
    let all = section.records.iter().filter_map(|record| Some((*record, record.change.as_ref()?)));
    all.filter(|(_, change)| !change.is_start())
}

/// A table of links.
pub(crate) fn link_columns(links: &[LinkRow]) -> Columns {
    let time = |row: &LinkRow, name: &str| match metric(row.record, name).unwrap_or(0.0) {
        0.0 => "-".to_owned(),
        ns => span(ns as u64),
    };
    Rows::of(links).columns(&[
        ("Link", 12, Left, &|row| name(row.record)),
        ("Changes", 7, Right, &|row| thousands(metric(row.record, "changes").unwrap_or(0.0) as u64)),
        ("Below best", 10, Right, &|row| time(row, "below_best_ns")),
        ("Lost", 4, Right, &|row| if row.lost_bytes > 0.0 { bytes(row.lost_bytes) } else { "-".to_owned() }),
        ("Errors", 6, Right, &|row| thousands(metric(row.record, "link_errors").unwrap_or(0.0) as u64)),
        ("Asleep", 6, Right, &|row| time(row, "asleep_ns")),
        ("Unseen", 6, Right, &|row| time(row, "unseen_ns")),
    ])
}

pub(crate) fn bdf(record: &Record) -> Option<Bdf> {
    record.device.as_ref()?.bdf
}

/// Address, and the name that programs use of the function or of the one below it.
pub(crate) fn name(record: &Record) -> String {
    let Some(bdf) = bdf(record) else { return "machine".to_owned() };
    let below = record.instance.iter().flat_map(|instance| &instance.below).find_map(|one| first_of(&one.devices));
    let device = record.device.as_ref().and_then(|function| first_of(&function.devices)).or(below);
    device.map_or_else(|| bdf.to_string(), |device| format!("{bdf} ({device})"))
}

/// `812.4 MB`, `3.21 TB`.
pub(crate) fn bytes(bytes: f64) -> String {
    match bytes {
        n if n >= 999.95e9 => format!("{:.2} TB", n / 1e12),
        n if n >= 999.95e6 => format!("{:.2} GB", n / 1e9),
        n => format!("{:.1} MB", n / 1e6),
    }
}
