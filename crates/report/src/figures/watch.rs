//! Links over time: a row of states for each link, with its errors.

use std::collections::BTreeMap;

use pciescope_core::change::{Cause, Change, Subject};
use pciescope_core::{Bdf, Record};

use super::{Figure, MOST_BARS};
use crate::chart::{BandRow, Bands, Chart};
use crate::links::{LinkRow, bdf, changes, link_columns, links, name};
use crate::model::{Section, metric};
use crate::text::{clean, rate};

/// Series of the bands.
const BEST: usize = 0;
const BELOW: usize = 1;
const SAVING: usize = 2;
const NONE: usize = 7;

/// The timeline of all links, those that lost most first.
pub fn of(section: &Section) -> Vec<Figure> {
    let links = links(section);
    let end_ns = section.records.iter().filter_map(|record| record.interval).map(|one| one.end_ns).max().unwrap_or(0);
    let mut states: BTreeMap<Option<Bdf>, Vec<(&Record, &Change)>> = BTreeMap::new();
    let mut errors: BTreeMap<Option<Bdf>, Vec<(f64, String)>> = BTreeMap::new();
    let all = section.records.iter().filter_map(|record| Some((*record, record.change.as_ref()?)));
    for (record, change) in all.filter(|(_, change)| change.of == Subject::Link && !change.is_between()) {
        states.entry(bdf(record)).or_default().push((record, change));
    }
    for (record, change) in changes(section).filter(|(_, change)| change.of == Subject::Errors) {
        let (Some(function), Some(interval)) = (&record.device, record.interval) else { continue };
        // Those of a function below a port belong to the port's link.
        let port = function.path.last().filter(|port| states.contains_key(&Some(**port))).copied().or(function.bdf);
        let words = clean(&format!("{}: {} -> {}", name(record), change.from.as_deref().unwrap_or(""), change.to));
        errors.entry(port).or_default().push((interval.end_ns as f64 / 1e9, words));
    }
    let rows: Vec<BandRow> =
        links.iter().take(MOST_BARS).map(|link| row(link, &states, &errors, end_ns as f64 / 1e9)).collect();
    let has_marks = rows.iter().any(|row| !row.marks.is_empty());
    let mut series = vec![String::new(); 8];
    for (place, word) in [(BEST, "best state seen"), (BELOW, "below it"), (SAVING, "power saving"), (NONE, "no link")] {
        if rows.iter().any(|row| row.bands.iter().any(|band| band.2 == place)) {
            series[place] = word.to_owned();
        }
    }
    let mark = has_marks.then(|| "errors".to_owned());
    let chart = Bands { end_s: end_ns as f64 / 1e9, rows, series, mark };
    vec![Figure {
        heading: "Links over time".to_owned(),
        note: "The figure behind a row is what the link carried less in the end than in its best state.".to_owned(),
        chart: Some(Chart::Bands(chart)),
        table: link_columns(&links),
        is_digest: false,
    }]
}

fn row(
    link: &LinkRow,
    states: &BTreeMap<Option<Bdf>, Vec<(&Record, &Change)>>,
    errors: &BTreeMap<Option<Bdf>, Vec<(f64, String)>>,
    end_s: f64,
) -> BandRow {
    let bdf = bdf(link.record);
    let own = states.get(&bdf).map(Vec::as_slice).unwrap_or_default();
    let at = |record: &Record| record.interval.map_or(0.0, |interval| interval.end_ns as f64 / 1e9);
    let lost = |record: &Record| metric(record, "lost_bytes_per_s").unwrap_or(0.0);
    let bands = own.iter().enumerate().map(|(place, (record, change))| {
        let to = own.get(place + 1).map_or(end_s, |next| at(next.0));
        let series = match change.cause {
            _ if change.to == "no link" => NONE,
            Some(Cause::PowerSaving) if lost(record) > 0.0 => SAVING,
            _ if lost(record) > 0.0 => BELOW,
            _ => BEST,
        };
        let cause = change.cause.map(|cause| format!(": {}", cause.name())).unwrap_or_default();
        (at(record), to, series, clean(&format!("{}{cause}", change.to)))
    });
    let last = own.last().map_or(0.0, |(record, _)| lost(record));
    BandRow {
        label: name(link.record),
        bands: bands.collect(),
        marks: errors.get(&bdf).cloned().unwrap_or_default(),
        figure: if last > 0.0 { format!("-{}", rate(last)) } else { String::new() },
    }
}
