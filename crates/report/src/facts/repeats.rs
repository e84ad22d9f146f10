//! Several runs of one command that was counted: the mean of each figure, and how far the runs spread.

use std::collections::HashMap;

use pciescope_core::{Metric, Record};

use super::Facts;
use super::counters::{View, below, value};
use crate::counters::{CHANNEL, INTERRUPTS, Id, PORT, Row, rows};
use crate::layout::{Left, Right, Rows};
use crate::model;
use crate::text::{clean, counted, figure};

/// Mean and spread of the runs of one command, each a run of the records, in the order of their first records.
pub(crate) fn repeats(records: &[Record]) -> Facts {
    let mut runs: Vec<(&str, Vec<&Record>)> = Vec::new();
    for record in records.iter().filter(|record| record.instance.is_some()) {
        match runs.iter_mut().find(|(run, _)| **run == *record.run) {
            Some((_, own)) => own.push(record),
            None => runs.push((&record.run, vec![record])),
        }
    }
    // All runs together: a node that only one run has is told apart too.
    let all: Vec<&Record> = runs.iter().flat_map(|(_, own)| own.iter().copied()).collect();
    let names: HashMap<Id, String> = rows(&all).iter().map(|row| (row.id(), row.name())).collect();
    let mut times = Vec::new();
    // By row and name of figure.
    let mut order: Vec<(Id, String)> = Vec::new();
    let mut figures: HashMap<(Id, String), Repeated> = HashMap::new();
    for (_, own) in &runs {
        let all = rows(own);
        times.push(all.iter().map(|row| row.seconds).fold(0.0, f64::max));
        let view = View::of(&all);
        let mut put = |row: &Row, name: &str, words: &str, unit: &str, value: f64| {
            let is_least = row.metrics.get(name).is_some_and(|metric| metric.at_least);
            let is_account = unit == "MB/s" && model::counted_by(row.record).is_accounting();
            let mark = if is_least || is_account { ">=" } else { "" };
            let key = (row.id(), name.to_owned());
            if !figures.contains_key(&key) {
                order.push(key.clone());
            }
            let device =
                Some(below(row)).filter(|text| !text.is_empty()).map_or(String::new(), |text| format!(" ({text})"));
            let new = |key: &(Id, String)| {
                let row = names.get(&key.0).cloned().unwrap_or_else(|| row.name());
                (format!("{row} {words}{device}"), unit.to_owned(), Vec::new(), mark)
            };
            figures.entry(key).or_insert_with_key(new).2.push(value);
        };
        for row in view.links.iter().chain(&view.memory) {
            for (name, words) in SPREAD {
                if let Some(rate) = value(row, name) {
                    put(row, name, words, "MB/s", rate / 1e6);
                }
            }
        }
        let is_named = |row: &&Row| row.instance.scope == "pmu" || !(row.has_any(&PORT) || row.has_any(&CHANNEL));
        // Functions that moved nothing have interrupts all the same: noise beside the traffic of others.
        let is_noise = |name: &str| INTERRUPTS.contains(&name) && !view.links.is_empty();
        for row in all.iter().filter(is_named) {
            for (name, Metric { value, unit, .. }) in row.metrics.iter().filter(|(name, _)| !is_noise(name)) {
                put(row, name, &clean(name), unit, *value);
            }
        }
    }
    let (mean, spread) = mean_and_spread(&times);
    let mut facts = Facts { title: format!("{} of the command", counted(runs.len(), "run")), ..Facts::default() };
    facts.lines.push(format!("elapsed {mean:.4} s +- {spread:.2} % (standard deviation)"));
    let (is_synthetic, is_emulated) = (records.iter().any(model::is_synthetic), records.iter().any(model::is_emulated));
    if figures.values().any(|figure| !figure.3.is_empty()) {
        facts.lines.push(">= marks a lower bound: kernel accounting, or a counter that reached its end".to_owned());
    }
    facts.mark(is_synthetic, is_emulated, model::EMULATED);
    let rows = order.iter().filter_map(|key| {
        let (name, unit, values, mark) = figures.get(key)?;
        let is_quiet = values.iter().all(|value| *value == 0.0);
        (!is_quiet).then(|| (name, unit, values, mark, mean_and_spread(values)))
    });
    let show = |value: f64, unit: &str, mark: &str| match unit {
        "MB/s" => format!("{mark}{value:.2}"),
        _ => format!("{mark}{}", figure(value)),
    };
    let end = |values: &[f64], of: fn(f64, f64) -> f64| values.iter().copied().reduce(of).unwrap_or(f64::NAN);
    let columns = Rows::of(rows).columns(&[
        ("Mean", 14, Right, &|(_, unit, _, mark, (mean, _))| show(*mean, unit, mark)),
        ("+-(%)", 6, Right, &|(.., (_, spread))| format!("{spread:.2}")),
        ("Min", 12, Right, &|(_, unit, values, mark, _)| show(end(values, f64::min), unit, mark)),
        ("Max", 12, Right, &|(_, unit, values, mark, _)| show(end(values, f64::max), unit, mark)),
        ("Unit", 5, Left, &|(_, unit, ..)| clean(unit)),
        ("What", 4, Left, &|(name, ..)| (*name).clone()),
    ]);
    facts.table = (!columns.rows().is_empty()).then_some(columns);
    facts
}

/// The words of a figure, its unit, its values, one for each run in which it has one, and the mark of a lower bound.
type Repeated = (String, String, Vec<f64>, &'static str);

/// The rates whose spread is shown, in words.
const SPREAD: [(&str, &str); 4] = [
    ("rx_bytes_per_s", "Rx"),
    ("tx_bytes_per_s", "Tx"),
    ("read_bytes_per_s", "read"),
    ("write_bytes_per_s", "written"),
];

/// The mean, and the standard deviation of one value in percent of it; 0 for a single value.
fn mean_and_spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    if values.len() < 2 || mean == 0.0 {
        return (mean, 0.0);
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, variance.sqrt() / mean.abs() * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_that_of_a_sample() {
        assert_eq!(mean_and_spread(&[2.0]), (2.0, 0.0));
        let (mean, spread) = mean_and_spread(&[9.0, 11.0]);
        assert!(mean == 10.0 && (spread - 14.142_135).abs() < 1e-5, "{spread}");
    }
}
