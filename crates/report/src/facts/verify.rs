//! Counters compared with workloads of known traffic: whether they agree, and how large the errors are.

use pciescope_core::Comparison;

use super::conclusions::{Conclusions, Place, quoted};
use super::{Fact, Facts};
use crate::layout::{Left, Right, Rows};
use crate::model::Section;
use crate::style::{Tone, paint};
use crate::text::{clean, counted};

pub(super) fn facts(section: &Section) -> Facts {
    let rows: Vec<Comparison> = section.records.iter().filter_map(|record| Comparison::from_record(record)).collect();
    let right = rows.iter().filter(|row| row.is_right() == Some(true)).count();
    let wrong = rows.iter().filter(|row| row.is_right() == Some(false)).count();
    let mut facts = Facts::of(section, "Counters against workloads of known traffic");
    let of = rows.len();
    facts.lines.push(match (wrong, right) {
        (0, 0) => "no verdict: nothing says which error is allowed".to_owned(),
        (0, right) => format!("{}: {right} of {of} within what is allowed", paint(Tone::Good, "right")),
        (wrong, _) => format!("{}: {wrong} of {of} beyond what is allowed", paint(Tone::Bad, "WRONG")),
    });
    let errors = rows.iter().filter_map(|row| Some((row.error_percent()?, row)));
    if let Some((error, row)) = errors.max_by(|a, b| a.0.abs().total_cmp(&b.0.abs())) {
        let allowed = row.allowed_percent().map(|allowed| format!(", {allowed:.3} % allowed")).unwrap_or_default();
        let how = match row.rounding_percent {
            _ if row.is_scaled() => format!(", scaled from {:.1} % of the time", row.running * 100.0),
            Some(rounding) => format!(", of figures that are rounded to {rounding:.3} %"),
            None => ", exact".to_owned(),
        };
        facts.lines.push(format!("largest error {error:+.3} %{allowed}{how}"));
    }
    let largest = rows.iter().filter_map(Comparison::error_percent).max_by(|a, b| a.abs().total_cmp(&b.abs()));
    let largest = largest.map_or("-".to_owned(), |error| format!("{error:+.3} %"));
    let within =
        Fact::plain("Within what is allowed", format!("{right} of {}", right + wrong), "counters beside known traffic");
    facts.tiles = vec![
        Fact { tone: if wrong > 0 { Tone::Bad } else { Tone::Good }, ..within },
        Fact::plain("Largest error", largest, "of the workload's figure"),
    ];
    facts.mark_section(section);
    let columns = Rows::of(&rows).columns(&[
        ("Counter", 16, Left, &|row| clean(&row.counter)),
        ("Workload", 8, Left, &|row| clean(&row.workload)),
        ("Counted(MB)", 11, Right, &|row| format!("{:.2}", row.counter_bytes() / 1e6)),
        ("Moved(MB)", 9, Right, &|row| format!("{:.2}", row.workload_bytes / 1e6)),
        ("Error(%)", 8, Right, &|row| error(row)),
        ("Allowed", 7, Right, &|row| row.allowed_percent().map_or("-".to_owned(), |allowed| format!("{allowed:.2}"))),
        ("", 5, Left, &|row| verdict(row)),
    ]);
    facts.table = Some(columns.without_empty());
    facts
}

pub(super) fn conclude(out: &mut Conclusions, number: usize, section: &Section) {
    let place = Place::Section(number);
    let rows: Vec<Comparison> = section.records.iter().filter_map(|record| Comparison::from_record(record)).collect();
    let (mut right, mut open) = (Vec::new(), 0);
    for row in &rows {
        let error = row.error_percent();
        match (row.is_right(), error) {
            (Some(true), Some(error)) => right.push((error, row)),
            (Some(false), error) => {
                let off =
                    error.map_or("has no traffic to compare with".to_owned(), |error| format!("is {error:+.3} % off"));
                let allowed = row.allowed_percent().unwrap_or_default();
                let (workload, counter) = (quoted(&row.workload), quoted(&row.counter));
                out.doubt(2, place, format!("{workload}: {counter} {off}; {allowed:.3} % is allowed."));
                let text = if row.is_scaled() {
                    format!(
                        "Count {counter} with fewer events at once: it ran for {:.0} % of the time.",
                        row.running * 100.0
                    )
                } else {
                    format!("Do not rely on {counter} before `pciescope verify` agrees with it.")
                };
                out.advise(3, place, text);
            }
            _ => open += 1,
        }
    }
    if let Some((error, row)) = right.iter().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs())) {
        let what = format!("{}: {}", quoted(&row.workload), quoted(&row.counter));
        let of = if right.len() == rows.len() { String::new() } else { format!(" of {}", rows.len()) };
        out.good(
            number,
            format!(
                "{}{of} of a counter with known traffic within what is allowed; the largest error is {error:+.3} % ({what}; {:.3} % allowed).",
                counted(right.len(), "comparison"),
                row.allowed_percent().unwrap_or_default()
            ),
        );
    }
    if open > 0 {
        out.doubt(
            5,
            place,
            format!("{} of a counter with known traffic without a tolerance: no verdict.", counted(open, "comparison")),
        );
    }
}

/// The error in percent, with its sign.
pub(crate) fn error(row: &Comparison) -> String {
    row.error_percent().map_or("-".to_owned(), |error| format!("{error:+.3}"))
}

/// Whether the error is allowed, in a word.
pub(crate) fn verdict(row: &Comparison) -> String {
    match row.is_right() {
        Some(true) => "right",
        Some(false) => "WRONG",
        None => "-",
    }
    .to_owned()
}
