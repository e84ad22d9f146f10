//! Conclusions from readouts and conversions.

use pciescope_core::Record;
use std::collections::BTreeSet;

use pciescope_core::readout;

use super::verdict::{Conclusions, Place, are, labelled, largest, megabytes, metric, quoted};
use crate::losses::{self, LossCount};
use crate::model::{self, Section};
use crate::text::figure;

/// From which share of its link's ceiling on a readout is good, and below which it is doubtful, in percent.
pub(crate) const FAST: f64 = 80.0;
pub(crate) const SLOW: f64 = 50.0;
/// Above which standard deviation over the mean repeats vary, in percent.
pub(crate) const UNSTEADY: f64 = 5.0;

pub(super) fn read_out(out: &mut Conclusions, number: usize, section: &Section) {
    let place = Place::Section(number);
    let rows: Vec<&Record> = section.records.iter().copied().filter(|record| &*record.test == readout::TEST).collect();
    let device = |record: &Record| labelled(&quoted(record.stream.as_ref().map_or("", |stream| &stream.path)), record);
    let (verified, wrong) = (section.sum("verified"), section.sum("wrong"));
    if let Some((_, record)) = largest(&rows, "wrong").filter(|(most, _)| *most > 0.0) {
        let of = verified.unwrap_or_default() + wrong.unwrap_or_default();
        let count = wrong.unwrap_or_default();
        out.doubt(
            0,
            place,
            format!("{} of {} compared bytes are wrong, most from {}.", figure(count), figure(of), device(record)),
        );
        out.advise(
            1,
            place,
            format!("{}: do not use these data before the wrong bytes are explained.", device(record)),
        );
    } else if let Some(verified) = verified.filter(|verified| *verified > 0.0) {
        out.good(
            number,
            format!("All {} that were compared are right, from {}.", megabytes(verified), who_reads(&rows)),
        );
    } else if verified.is_some() {
        out.doubt(
            5,
            place,
            format!("{}: no byte was compared, so nothing is known of their being right.", who_reads(&rows)),
        );
    }
    for LossCount { loss, sum, .. } in losses::of(section).iter().filter(|count| count.sum > 0.0) {
        let most = largest(&rows, loss.name);
        let from = most.map(|(_, record)| format!(", most at {}", device(record))).unwrap_or_default();
        let rank = if loss.is_failure() { 2 } else { 5 };
        out.doubt(rank, place, format!("Readout: {} {}{from}.", figure(*sum), loss.words));
    }
    if losses::total([section]) == Some((0.0, true)) {
        out.good(number, format!("Readout of {}: no interrupt, transfer or acquisition was lost.", who_reads(&rows)));
    }
    if section.records.iter().any(|record| model::is_emulated(record)) {
        return;
    }
    ceilings(out, number, &rows, &device);
    if let Some((cv, record)) = largest(&rows, "cv").filter(|(cv, _)| *cv > UNSTEADY) {
        out.doubt(
            5,
            place,
            format!(
                "{}: repeats vary by {cv:.1} % (standard deviation; up to {UNSTEADY:.0} % is steady).",
                device(record)
            ),
        );
    }
}

/// Rates of reading against the links' ceilings.
fn ceilings(out: &mut Conclusions, number: usize, rows: &[&Record], device: &dyn Fn(&Record) -> String) {
    let shares: Vec<(f64, &Record)> =
        rows.iter().filter_map(|record| Some((metric(record, "of_ceiling")?, *record))).collect();
    let low = shares.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let (Some((low, slowest)), Some((high, fastest))) = (low, shares.iter().max_by(|a, b| a.0.total_cmp(&b.0))) else {
        return;
    };
    let rate =
        |record: &Record| metric(record, "speed").map(|speed| format!("{:.1} MB/s, ", speed / 1e6)).unwrap_or_default();
    let place = Place::Section(number);
    if *high > 100.0 {
        out.doubt(
            0,
            place,
            format!("{}: {}{high:.1} % of its link's ceiling: invalid.", device(fastest), rate(fastest)),
        );
    }
    if *low < SLOW {
        out.doubt(
            5,
            place,
            format!(
                "{}: {}{low:.1} % of its link's ceiling, the least; below {SLOW:.0} % something else limits.",
                device(slowest),
                rate(slowest)
            ),
        );
    } else if *low >= FAST && *high <= 100.0 {
        out.good(
            number,
            format!(
                "Every readout reaches {FAST:.0} % of its link's ceiling or more; the least is {}: {}{low:.1} %.",
                device(slowest),
                rate(slowest)
            ),
        );
    }
}

fn who_reads(rows: &[&Record]) -> String {
    let paths: BTreeSet<&str> = rows.iter().filter_map(|record| Some(record.stream.as_ref()?.path.as_str())).collect();
    match (paths.first(), paths.len()) {
        (Some(one), 1) => quoted(one),
        (Some(one), count) => format!("{} and {} more", quoted(one), count - 1),
        (None, _) => "the device".to_owned(),
    }
}

pub(super) fn conversions(out: &mut Conclusions, number: usize, section: &Section) {
    let wrong = section.records.iter().filter(|record| metric(record, "wrong").is_some_and(|wrong| wrong > 0.0));
    let judged = section.records.iter().filter(|record| metric(record, "wrong").is_some()).count();
    let count = wrong.clone().count();
    for record in wrong.take(3) {
        let name = record.kernel.as_ref().map(|kernel| quoted(&kernel.name)).unwrap_or_default();
        let ulp = metric(record, "largest_error").unwrap_or(f64::NAN);
        out.doubt(
            0,
            Place::Section(number),
            format!("Conversion {name}: farther from its reference than promised, by {ulp} ulp."),
        );
    }
    if judged > 0 && count == 0 {
        let ulp = largest(&section.records, "largest_error")
            .map(|(ulp, _)| format!("; the largest error is {ulp} ulp"))
            .unwrap_or_default();
        out.good(number, format!("{} with the reference, none deviates{ulp}.", are(judged, "conversion", "agree")));
    }
}
