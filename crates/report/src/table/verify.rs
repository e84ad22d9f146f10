//! Counters compared with workloads of known traffic: once with the arithmetic that people do by hand, and once
//! exactly.

use pciescope_core::Comparison;

use super::Page;
use crate::facts::verify::{error, verdict};
use crate::layout::{Left, Right, Rows};
use crate::model::Section;
use crate::text::{clean, thousands};

pub(super) fn write(out: &mut Page, section: &Section) {
    let rows: Vec<Comparison> = section.records.iter().filter_map(|record| Comparison::from_record(record)).collect();
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
    let of = |amount: f64, decimals: usize, is_rate: bool| {
        if is_rate { format!("{amount:.decimals$}") } else { amount.to_string() }
    };
    let two = |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.2}"));
    let rows = rows.iter().map(|row| (row, ByHand::of(row)));
    out.table(Rows::of(rows).columns(&[
        ("Counter", 20, Left, &|(row, _)| clean(&row.counter)),
        ("Count", 13, Right, &|(row, _)| thousands(row.count.round() as u64)),
        ("x B", 6, Right, &|(row, _)| {
            let parts = if row.parts > 1.0 { format!("{}x", row.parts) } else { String::new() };
            format!("{parts}{}", row.bytes_per_count)
        }),
        ("Counter(MB)", 11, Right, &|(_, hand)| of(hand.counter, 3, hand.is_rate)),
        ("Workload(MB)", 12, Right, &|(_, hand)| {
            of(hand.workload, 2, hand.is_rate) + if hand.is_rate { "/s" } else { "" }
        }),
        ("Diff(%)", 7, Right, &|(_, hand)| two(hand.diff)),
        ("MB/s", 8, Right, &|(_, hand)| two(hand.rate)),
    ]));
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
    let percent = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
    let columns = Rows::of(rows).columns(&[
        ("Counter", 20, Left, &|row| clean(&row.counter)),
        ("Workload", 10, Left, &|row| clean(&row.workload)),
        ("Counter(MB)", 11, Right, &|row| format!("{:.3}", row.counter_bytes() / 1e6)),
        ("Workload(MB)", 12, Right, &|row| format!("{:.3}", row.workload_bytes / 1e6)),
        ("Error(%)", 8, Right, &|row| error(row)),
        ("Running(%)", 10, Right, &|row| {
            let is_exact = !row.is_scaled() && row.rounding_percent.is_none();
            if is_exact { "exact".to_owned() } else { format!("{:.2}", row.running * 100.0) }
        }),
        ("Rounding(%)", 11, Right, &|row| percent(row.rounding_percent)),
        ("Bound(%)", 8, Right, &|row| percent(row.bound_percent)),
        ("Allowed(%)", 10, Right, &|row| percent(row.allowed_percent())),
        ("Verdict", 7, Left, &|row| verdict(row)),
    ]);
    out.table(columns.without_empty());
}
