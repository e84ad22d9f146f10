//! Conversions by themselves: a table for each size, a row for each kernel, instruction set and way to store.

use std::collections::BTreeMap;

use pciescope_core::{Kernel, Record};

use super::Page;
use crate::layout::{Columns, Left, Right, Rows};
use crate::model::Section;
use crate::text::{clean, thousands};

pub fn write(out: &mut Page, section: &Section) {
    out.line("GB/s:   bytes read and written by a pass over 10^9 and its median time; lines that memory reads only");
    out.line(
        "        to write over them do not count. Ceiling: a loop that moves as many bytes and does nothing else.",
    );
    let mut sizes: BTreeMap<u64, Vec<(&Record, &Kernel)>> = BTreeMap::new();
    for record in &section.records {
        if let (Some(kernel), Some(samples)) = (&record.kernel, record.metrics.get("samples")) {
            sizes.entry(samples.value as u64).or_default().push((record, kernel));
        }
    }
    for (samples, rows) in sizes {
        out.heading(&format!("{} samples", thousands(samples)));
        out.table(columns(&rows));
    }
    let wrong = section.records.iter().filter(|record| record.metrics.get("wrong").is_some_and(|m| m.value > 0.0));
    match wrong.count() {
        0 => {}
        count => {
            out.line("");
            out.line(&format!("WRONG: {count} of {} rows deviate from the reference.", section.records.len()));
        }
    }
}

fn columns(rows: &[(&Record, &Kernel)]) -> Columns {
    let cell = |record: &Record, name: &str, per: f64, decimals: usize| {
        let value = record.metrics.get(name).map(|metric| metric.value / per);
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
    };
    let threads = |threads: u32| if threads == 1 { "-".to_owned() } else { threads.to_string() };
    let columns = Rows::of(rows).columns(&[
        ("Kernel", 18, Left, &|(_, kernel)| clean(&kernel.name)),
        ("ISA", 6, Left, &|(_, kernel)| clean(&kernel.isa)),
        ("Store", 9, Left, &|(_, kernel)| clean(&kernel.store)),
        ("Threads", 7, Right, &|(_, kernel)| threads(kernel.threads)),
        ("Time(us)", 9, Right, &|(record, _)| cell(record, "duration", 1e3, 2)),
        ("GS/s", 6, Right, &|(record, _)| cell(record, "samples_per_s", 1e9, 2)),
        ("GB/s", 7, Right, &|(record, _)| cell(record, "rate", 1e9, 2)),
        ("Ceiling", 7, Right, &|(record, _)| cell(record, "ceiling", 1e9, 2)),
        ("of it(%)", 8, Right, &|(record, _)| cell(record, "of_ceiling", 1.0, 1)),
        ("Spread(%)", 9, Right, &|(record, _)| cell(record, "spread", 1.0, 1)),
        ("Error(ULP)", 10, Right, &|(record, _)| cell(record, "largest_error", 1.0, 0)),
        ("Operation", 9, Left, &|(_, kernel)| clean(&kernel.operation)),
    ]);
    columns.without_empty()
}

#[cfg(test)]
mod tests {
    use pciescope_core::{Metric, Record, convert};

    use crate::table::{Options, render};

    use super::*;

    fn row(name: &str, samples: f64, wrong: f64) -> Record {
        let metric = |name: &str, value: f64| (name.to_owned(), Metric::of(value, ""));
        Record {
            run: "1".to_owned(),
            verb: "convert".to_owned(),
            test: convert::TEST.to_owned(),
            kernel: Some(Kernel {
                name: name.to_owned(),
                isa: "avx2".to_owned(),
                store: "streaming".to_owned(),
                threads: 1,
                ..Kernel::default()
            }),
            metrics: BTreeMap::from([
                metric("samples", samples),
                metric("duration", 2.5e6),
                metric("rate", 27.7e9),
                metric("ceiling", 28.5e9),
                metric("of_ceiling", 97.19),
                metric("largest_error", 3.0 * wrong),
                metric("wrong", wrong),
            ]),
            ..Record::default()
        }
    }

    #[test]
    fn each_size_has_a_table_and_each_kernel_a_row() {
        let records =
            [row("u16-cast-f32", 30e6, 0.0), row("\x1b[31mi16", 30e6, 0.0), row("u16-cast-f32", 16384.0, 0.0)];
        let text = render(&records, &Options::default());
        let heads: Vec<&str> = text.lines().filter(|line| line.ends_with(" samples")).collect();
        assert_eq!(heads, ["16,384 samples", "30,000,000 samples"], "{text}");
        let words: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.contains("streaming"))
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(words[1], ["u16-cast-f32", "avx2", "streaming", "2500.00", "27.70", "28.50", "97.2", "0"], "{text}");
        assert_eq!(words[2][0], "\u{fffd}[31mi16");
        assert!(!text.contains("WRONG") && !text.contains("Threads"), "{text}");
    }

    #[test]
    fn a_wrong_kernel_is_named_so() {
        let text = render(&[row("a", 2e3, 1.0), row("b", 2e3, 0.0)], &Options::default());
        assert!(text.contains("WRONG: 1 of 2 rows deviate from the reference."), "{text}");
        assert!(text.lines().any(|line| line.starts_with("a ") && line.trim_end().ends_with(" 3")), "{text}");
    }
}
