//! The slowest samples: a bar for each, in the colours of what took its time.

use pciescope_core::why::Cause;

use super::{Figure, drawn_first};
use crate::chart::{Bar, Bars, SERIES};
use crate::model::Section;
use crate::text::{clean, duration};
use crate::why::{explained, table};

/// Nothing where no sample was explained.
pub fn of(section: &Section) -> Vec<Figure> {
    let (all, _) = explained(section);
    let Some(table) = table(section, true) else { return Vec::new() };
    let mut sums: Vec<(Cause, f64)> = Vec::new();
    for part in all.iter().flat_map(|(_, sample)| &sample.parts) {
        match sums.iter_mut().find(|(cause, _)| *cause == part.cause) {
            Some((_, sum)) => *sum += part.ns,
            None => sums.push((part.cause, part.ns)),
        }
    }
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    // The last colour is that of all others.
    let series = |cause: Cause| sums.iter().position(|one| one.0 == cause).unwrap_or(0).min(SERIES.len() - 1);
    let name = |place: usize| match sums.len() > SERIES.len() && place + 1 == SERIES.len() {
        true => "others".to_owned(),
        false => sums.get(place).map_or_else(String::new, |(cause, _)| cause.name().to_owned()),
    };
    let bars = all.iter().map(|(cpu, sample)| {
        let parts = sample.parts.iter().map(|part| {
            let whose = part.name.as_ref().map(|name| format!(" {}", clean(name))).unwrap_or_default();
            (series(part.cause), part.ns / 1e3, format!("{}{whose}: {}", part.cause.name(), duration(part.ns)))
        });
        let cpu = cpu.map(|cpu| format!(", CPU {cpu}")).unwrap_or_default();
        Bar {
            label: format!("{:.6} s{cpu}", sample.at_ns as f64 / 1e9),
            parts: parts.collect(),
            mark: None,
            figure: duration(sample.value_ns),
        }
    });
    let chart = Bars {
        across: "us".to_owned(),
        bars: bars.collect(),
        series: (0..sums.len().min(SERIES.len())).map(name).collect(),
        mark: None,
    };
    let (chart, left_out) = drawn_first(chart, ", slowest first");
    let note = format!("{left_out}A bar is a sample, named by the moment on the kernel's clock (CLOCK_MONOTONIC).");
    vec![Figure { heading: "The slowest samples by cause".to_owned(), note, chart, table, is_digest: false }]
}
