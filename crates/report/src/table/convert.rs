//! Conversions by themselves: a table for each size, a row for each kernel, instruction set and way to store.

use std::collections::BTreeMap;

use pciescope_core::Kernel;

use super::Page;
use super::layout::{Align, Columns};
use crate::kept::Kept;
use crate::model::Section;
use crate::text::{clean, thousands};

pub fn write(out: &mut Page, section: &Section) {
    out.line("GB/s:   bytes read and written by a pass over 10^9 and its median time; lines that memory reads only");
    out.line(
        "        to write over them do not count. Ceiling: a loop that moves as many bytes and does nothing else.",
    );
    let mut sizes: BTreeMap<u64, Vec<(&Kept, &Kernel)>> = BTreeMap::new();
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

fn columns(rows: &[(&Kept, &Kernel)]) -> Columns {
    let (l, r) = (Align::Left, Align::Right);
    let mut columns = Columns::new(&[
        ("Kernel", 18, l),
        ("ISA", 6, l),
        ("Store", 9, l),
        ("Threads", 7, r),
        ("Time(us)", 9, r),
        ("GS/s", 6, r),
        ("GB/s", 7, r),
        ("Ceiling", 7, r),
        ("of it(%)", 8, r),
        ("Spread(%)", 9, r),
        ("Error(ULP)", 10, r),
        ("Operation", 9, l),
    ]);
    for (record, kernel) in rows {
        let cell = |name: &str, per: f64, decimals: usize| {
            let value = record.metrics.get(name).map(|metric| metric.value / per);
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
        };
        columns.row(vec![
            clean(&kernel.name),
            clean(&kernel.isa),
            clean(&kernel.store),
            if kernel.threads == 1 { "-".to_owned() } else { kernel.threads.to_string() },
            cell("duration", 1e3, 2),
            cell("samples_per_s", 1e9, 2),
            cell("rate", 1e9, 2),
            cell("ceiling", 1e9, 2),
            cell("of_ceiling", 1.0, 1),
            cell("spread", 1.0, 1),
            cell("largest_error", 1.0, 0),
            clean(&kernel.operation),
        ]);
    }
    columns.drop_empty();
    columns
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
