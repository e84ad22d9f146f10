//! Conversions alone: how near they come to the rate of the memory, and whether they are right; a row for each kernel,
//! a rate for each size.

use pciescope_core::Record;
use std::collections::BTreeMap;

use pciescope_core::Kernel;

use super::conclusions::{Conclusions, Place, are, largest, quoted};
use super::{Fact, Facts};
use crate::layout::{Align, Columns};
use crate::model::{Section, metric};
use crate::style::{Tone, paint};
use crate::text::{clean, counted, thousands};

pub(super) fn facts(section: &Section) -> Facts {
    let all: Vec<(&Record, &Kernel)> =
        section.records.iter().filter_map(|record| Some((*record, record.kernel.as_ref()?))).collect();
    let mut sizes: Vec<u64> = all.iter().filter_map(|(record, _)| Some(metric(record, "samples")? as u64)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    // Small inputs are converted by fewer threads.
    let threads = || all.iter().map(|(_, kernel)| kernel.threads);
    let on = match (threads().min().unwrap_or(1), threads().max().unwrap_or(1)) {
        (1, 1) => "1 thread".to_owned(),
        (low, high) if low == high => format!("{high} threads"),
        (low, high) => format!("{low} to {high} threads"),
    };
    let names: std::collections::BTreeSet<&str> = all.iter().map(|(_, kernel)| kernel.name.as_str()).collect();
    let mut facts = Facts::of(section, &format!("Conversion of samples: {}, {on}", counted(names.len(), "kernel")));
    for size in sizes.iter().rev().take(2) {
        let of_size = all.iter().filter(|(record, _)| metric(record, "samples") == Some(*size as f64));
        let shares: Vec<(f64, &str)> = of_size
            .filter_map(|(record, kernel)| Some((metric(record, "of_ceiling")?, kernel.name.as_str())))
            .collect();
        let low = shares.iter().min_by(|a, b| a.0.total_cmp(&b.0));
        if let (Some(low), Some(high)) = (low, shares.iter().max_by(|a, b| a.0.total_cmp(&b.0))) {
            // The ceiling is a loop over as many bytes: for few of them that of a cache.
            let share = match (format!("{:.0}", low.0), format!("{:.0}", high.0)) {
                (low, high) if low == high => format!("{low} %"),
                (low, high) => format!("{low} to {high} %"),
            };
            facts.lines.push(format!(
                "{} samples: {share} of a loop that only moves the bytes (least: {})",
                thousands(*size),
                clean(low.1)
            ));
        }
    }
    let judged = all.iter().filter_map(|(record, _)| metric(record, "wrong"));
    let (rows, wrong) = judged.fold((0, 0), |(rows, wrong), value| (rows + 1, wrong + usize::from(value > 0.0)));
    facts.lines.push(match wrong {
        0 => format!(
            "{}: {} with exact arithmetic",
            paint(Tone::Good, "right"),
            if rows == 1 { "the row agrees".to_owned() } else { format!("all {rows} rows agree") }
        ),
        wrong => paint(Tone::Bad, &format!("WRONG: {wrong} of {rows} rows deviate from exact arithmetic")),
    });
    facts.mark_section(section);
    facts.table = Some(columns(&all, &sizes));
    facts.tiles = tiles(section);
    facts
}

fn tiles(section: &Section) -> Vec<Fact> {
    let rates = section.records.iter().filter_map(|record| Some((metric(record, "rate")?, *record)));
    let Some((rate, best)) = rates.max_by(|a, b| a.0.total_cmp(&b.0)) else { return Vec::new() };
    let of_it = metric(best, "of_ceiling").map_or("-".to_owned(), |share| format!("{share:.1} %"));
    let name = best.kernel.as_ref().map_or(String::new(), |kernel| format!("{}, {}", kernel.name, kernel.isa));
    vec![
        Fact::plain("Fastest", format!("{:.2} GB/s", rate / 1e9), name),
        Fact::plain("Of the ceiling", of_it, "a loop that only moves as much"),
        Fact::losses("Wrong", section.losses("wrong"), "values that deviate"),
    ]
}

/// The largest number of sizes that have columns of their own in 80 columns.
const MOST_SIZES: usize = 2;

fn columns(all: &[(&Record, &Kernel)], sizes: &[u64]) -> Columns {
    let (l, r) = (Align::Left, Align::Right);
    let shown = &sizes[sizes.len().saturating_sub(MOST_SIZES)..];
    let title = |size: u64| match size {
        size if size % 1_000_000 == 0 => format!("{}M", size / 1_000_000),
        size => size.to_string(),
    };
    let titles: Vec<(String, String)> =
        shown.iter().map(|size| (format!("{}: GB/s", title(*size)), "of max(%)".to_owned())).collect();
    let mut heads = vec![("Kernel", 18, l), ("ISA", 6, l), ("Store", 6, l)];
    heads.extend(titles.iter().flat_map(|(rate, share)| [(rate.as_str(), 8, r), (share.as_str(), 6, r)]));
    let mut columns = Columns::new(&heads);
    let mut order: Vec<(&str, &str, &str)> = Vec::new();
    let mut cells: BTreeMap<(&str, &str, &str, u64), (String, String)> = BTreeMap::new();
    // Where the size alone decides how is stored, that is no other row.
    let kind = |(record, kernel): &(&Record, &Kernel)| {
        (kernel.name.clone(), kernel.isa.clone(), metric(record, "samples").map(|samples| samples as u64))
    };
    let mut kinds: Vec<_> = all.iter().map(kind).collect();
    kinds.sort_unstable();
    let has_stores = kinds.windows(2).any(|pair| pair[0] == pair[1]);
    for (record, kernel) in all {
        let store = if has_stores { kernel.store.as_str() } else { "" };
        let key = (kernel.name.as_str(), kernel.isa.as_str(), store);
        if !order.contains(&key) {
            order.push(key);
        }
        let Some(size) = metric(record, "samples") else { continue };
        let cell = |name: &str, per: f64, digits: usize| {
            metric(record, name).map_or("-".to_owned(), |value| format!("{:.digits$}", value / per))
        };
        cells.insert((key.0, key.1, key.2, size as u64), (cell("rate", 1e9, 2), cell("of_ceiling", 1.0, 1)));
    }
    for (name, isa, store) in order {
        let mut row = vec![clean(name), clean(isa), if store.is_empty() { "-".to_owned() } else { clean(store) }];
        for size in shown {
            let (rate, share) = cells.remove(&(name, isa, store, *size)).unwrap_or(("-".to_owned(), "-".to_owned()));
            row.extend([rate, share]);
        }
        columns.row(row);
    }
    columns.drop_empty();
    columns
}

pub(super) fn conclude(out: &mut Conclusions, number: usize, section: &Section) {
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
