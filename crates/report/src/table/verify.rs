//! Counters compared with workloads of known traffic: once with the arithmetic that people do by hand, and once
//! exactly.

use pciescope_core::Comparison;

use super::layout::{Align, Columns};
use super::{Block, Page};
use crate::model::Section;
use crate::text::{clean, thousands};

pub fn write(out: &mut Page, section: &Section) {
    let rows: Vec<Comparison> = section.records.iter().filter_map(|record| record.comparison()).collect();
    by_hand(out, &rows);
    exactly(out, &rows);
    if rows.iter().any(|row| row.is_right() == Some(false)) {
        out.line("");
        out.line("WRONG: an error exceeds what is allowed.");
    }
}

/// Count times bytes in megabytes, beside what the workload prints.
fn by_hand(out: &mut Page, rows: &[Comparison]) {
    out.heading("By hand: count x bytes, in MB (10^6 bytes)");
    let (l, r) = (Align::Left, Align::Right);
    let mut columns = Columns::new(&[
        ("Counter", 20, l),
        ("Count", 13, r),
        ("x B", 6, r),
        ("Counter(MB)", 11, r),
        ("Workload(MB)", 12, r),
        ("Diff(%)", 7, r),
        ("MB/s", 8, r),
    ]);
    for row in rows {
        let hand = ByHand::of(row);
        let factor = if row.parts > 1.0 {
            format!("{}x{}", row.parts, row.bytes_per_count)
        } else {
            row.bytes_per_count.to_string()
        };
        let workload = if hand.is_rate { format!("{:.2}/s", hand.workload) } else { hand.workload.to_string() };
        columns.row(vec![
            clean(&row.counter),
            thousands(row.count.round() as u64),
            factor,
            if hand.is_rate { format!("{:.3}", hand.counter) } else { hand.counter.to_string() },
            workload,
            hand.diff.map_or("-".to_owned(), |diff| format!("{diff:.2}")),
            hand.rate.map_or("-".to_owned(), |rate| format!("{rate:.2}")),
        ]);
    }
    out.table(columns);
}

/// The arithmetic of a person with a calculator, digits cut off where they end.
struct ByHand {
    counter: f64,
    workload: f64,
    diff: Option<f64>,
    rate: Option<f64>,
    is_rate: bool,
}

impl ByHand {
    fn of(row: &Comparison) -> ByHand {
        let mega = row.counter_bytes() / 1e6;
        // A workload that prints a rate, as bw_mem does, is compared with what the counter saw in one second or so.
        let is_rate = row.prints_rate;
        if is_rate {
            let (counter, workload) = (cut(mega, 3), row.printed_bytes.unwrap_or(0.0) / 1e6);
            let diff = (workload > 0.0).then(|| (counter - workload) / workload * 100.0);
            return ByHand { counter, workload, diff, rate: None, is_rate };
        }
        let (counter, workload) = (mega.floor(), (row.printed_bytes.unwrap_or(row.workload_bytes) / 1e6).floor());
        let diff = (workload > 0.0).then(|| cut((counter - workload).abs() / workload * 100.0, 2));
        let seconds = cut(row.counter_s, 1);
        let rate = (seconds > 0.0).then(|| cut(counter / seconds, 2));
        ByHand { counter, workload, diff, rate, is_rate }
    }
}

/// Cuts digits off.
fn cut(value: f64, decimals: i32) -> f64 {
    let power = 10f64.powi(decimals);
    (value * power).trunc() / power
}

fn exactly(out: &mut Page, rows: &[Comparison]) {
    out.heading("Exactly: by all digits, rates over the counters' own time");
    let (l, r) = (Align::Left, Align::Right);
    let mut columns = Columns::new(&[
        ("Counter", 20, l),
        ("Workload", 10, l),
        ("Counter(MB)", 11, r),
        ("Workload(MB)", 12, r),
        ("Error(%)", 8, r),
        ("Running(%)", 10, r),
        ("Bound(%)", 8, r),
        ("Allowed(%)", 10, r),
        ("Verdict", 7, l),
    ]);
    let percent = |value: Option<f64>, decimals: usize| value.map_or("-".to_owned(), |v| format!("{v:.decimals$}"));
    for row in rows {
        let verdict = match row.is_right() {
            Some(true) => "right",
            Some(false) => "WRONG",
            None => "-",
        };
        columns.row(vec![
            clean(&row.counter),
            clean(&row.workload),
            format!("{:.3}", row.counter_bytes() / 1e6),
            format!("{:.3}", row.workload_bytes / 1e6),
            row.error_percent().map_or("-".to_owned(), |error| format!("{error:+.3}")),
            if row.is_scaled() { format!("{:.2}", row.running * 100.0) } else { "exact".to_owned() },
            percent(row.bound_percent, 3),
            percent(row.allowed_percent(), 3),
            verdict.to_owned(),
        ]);
    }
    columns.drop_empty();
    out.blocks.push(Block::Table(columns));
}
