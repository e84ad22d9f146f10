//! Counters compared with workloads of known traffic: whether they agree, and how large the errors are.

use pciescope_core::Comparison;

use super::{Answer, headed, label_unreal};
use crate::model::Section;
use crate::style::{Tone, paint};
use crate::table::layout::{Left, Right, Rows};
use crate::table::verify::{error, verdict};
use crate::text::clean;

pub(super) fn answer(section: &Section) -> Answer {
    let rows: Vec<Comparison> = section.records.iter().filter_map(|record| Comparison::from_record(record)).collect();
    let right = rows.iter().filter(|row| row.is_right() == Some(true)).count();
    let wrong = rows.iter().filter(|row| row.is_right() == Some(false)).count();
    let mut answer = Answer::new(&headed(section, "Counters against workloads of known traffic"));
    let of = rows.len();
    answer.line(match (wrong, right) {
        (0, 0) => "no verdict: nothing says which error is allowed".to_owned(),
        (0, right) => format!("{}: {right} of {of} within what is allowed", paint(Tone::Good, "right")),
        (wrong, _) => format!("{}: {wrong} of {of} beyond what is allowed", paint(Tone::Bad, "WRONG")),
    });
    let errors = rows.iter().filter_map(|row| Some((row.error_percent()?, row)));
    if let Some((error, row)) = errors.max_by(|a, b| a.0.abs().total_cmp(&b.0.abs())) {
        let allowed = row.allowed_percent().map(|allowed| format!(", {allowed:.3} % allowed")).unwrap_or_default();
        let how = if row.is_scaled() {
            format!(", scaled from {:.1} % of the time", row.running * 100.0)
        } else {
            ", exact".to_owned()
        };
        answer.line(format!("largest error {error:+.3} %{allowed}{how}"));
    }
    label_unreal(&mut answer, section);
    let columns = Rows::of(&rows).columns(&[
        ("Counter", 16, Left, &|row| clean(&row.counter)),
        ("Workload", 8, Left, &|row| clean(&row.workload)),
        ("Counted(MB)", 11, Right, &|row| format!("{:.2}", row.counter_bytes() / 1e6)),
        ("Moved(MB)", 9, Right, &|row| format!("{:.2}", row.workload_bytes / 1e6)),
        ("Error(%)", 8, Right, &|row| error(row)),
        ("Allowed", 7, Right, &|row| row.allowed_percent().map_or("-".to_owned(), |allowed| format!("{allowed:.2}"))),
        ("", 5, Left, &|row| verdict(row)),
    ]);
    answer.table = Some(columns.without_empty());
    answer
}
