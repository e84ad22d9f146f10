//! Conversions alone: the rate of each, compared with the loop that only moves the same number of bytes.

use std::collections::BTreeMap;

use super::{Figure, drawn_few};
use crate::chart::{Bar, Bars, number};
use crate::layout::{Left, Right, Rows};
use crate::model::{Section, metric};
use crate::text::{clean, thousands};

/// A chart for each number of samples.
pub fn of(section: &Section) -> Vec<Figure> {
    let mut sizes: BTreeMap<u64, Vec<Bar>> = BTreeMap::new();
    for record in &section.records {
        let figure = |name: &str| metric(record, name);
        let (Some(kernel), Some(samples), Some(rate)) = (&record.kernel, figure("samples"), figure("rate")) else {
            continue;
        };
        let threads = if kernel.threads > 1 { format!(", {} threads", kernel.threads) } else { String::new() };
        let label = clean(&format!("{}, {}, {}{threads}", kernel.name, kernel.isa, kernel.store));
        let words = format!("{label}: {:.2} GB/s", rate / 1e9);
        let ceiling = figure("ceiling").map(|ceiling| (ceiling / 1e9, format!("ceiling: {:.2} GB/s", ceiling / 1e9)));
        sizes.entry(samples as u64).or_default().push(Bar {
            label,
            parts: vec![(0, rate / 1e9, words)],
            mark: ceiling,
            figure: number(rate / 1e9),
        });
    }
    let one = |(samples, bars): (u64, Vec<Bar>)| {
        let table = Rows::of(&bars).columns(&[
            ("Conversion", 20, Left, &|bar| bar.label.clone()),
            ("GB/s", 7, Right, &|bar| format!("{:.2}", bar.parts[0].1)),
            ("Ceiling", 7, Right, &|bar| bar.mark.as_ref().map_or("-".to_owned(), |mark| format!("{:.2}", mark.0))),
        ]);
        let table = table.without_empty();
        let mark = bars.iter().any(|bar| bar.mark.is_some());
        let mark = mark.then(|| "a loop that moves as many bytes and does nothing else".to_owned());
        let chart = Bars { across: "GB/s read and written".to_owned(), bars, mark, ..Bars::default() };
        let (chart, note) = drawn_few(chart, "");
        let heading = format!("Rate of conversions, {} samples", thousands(samples));
        Figure { heading, note, chart, table, is_digest: false }
    };
    sizes.into_iter().map(one).collect()
}
