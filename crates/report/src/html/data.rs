//! Heat maps: the charts below each as SVG, and the figures that heat.js draws from, as compact JSON that cannot end its
//! script element.
//!
//! Histograms of cells are rebinned to a whole number of bins per octave, so many that the page stays small, and the page
//! says how many. Percentiles, smallest, largest and mean come from the full histogram.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use pciescope_core::{Cpu, Histogram};

use super::{charts, first};
use crate::bins::{RESOLUTIONS, bins};
use crate::chart::Curves;
use crate::facts::REFERENCES;
use crate::heat::{self, CpuGroup, Places};
use crate::model::{self, Kind, Section, target_id};

/// How many bins all histograms of a page may have together before they are made coarser.
const MOST_BINS: usize = 30_000;
/// From how many cells on they come without histograms and with four digits: a page of 1000 CPUs by 64 vectors stays
/// below 8 MB. The records have all.
const MANY_CELLS: usize = 20_000;

/// A heat map.
pub struct Map {
    name: &'static str,
    words: &'static str,
    /// Ascending.
    cpus: Vec<u32>,
    places: Places,
    targets: Vec<String>,
    cells: Vec<Option<Histogram>>,
    all: Histogram,
    /// Of a path: a histogram for each target, for hops are not mixed.
    rows: Vec<Histogram>,
}

/// Writes the headings of a section's maps, and histogram and tail of all samples; of a path those of each hop.
pub fn write(page: &mut String, number: usize, section: &Section, maps: &[Map]) {
    for (place, map) in maps.iter().enumerate() {
        let by = match map.targets.first().and_then(|target| target.chars().next()) {
            Some('b') => "BAR",
            Some('h') => "hop",
            Some('i') => "interrupt",
            Some('v') => "vector",
            _ => "target",
        };
        let head = format!("<div class=\"map\" data-section=\"{number}\" data-map=\"{place}\">");
        *page +=
            &format!("{head}\n<h3>{}, CPU by {by}</h3>\n<div class=\"heat\"></div>\n<div class=\"pair\">\n", map.words);
        let lines = match map.rows.as_slice() {
            [] | [_] => vec![(String::new(), map.all.clone())],
            rows => map.targets.iter().cloned().zip(rows.iter().cloned()).collect(),
        };
        for (is_tail, what) in [(false, "Histogram"), (true, "Tail")] {
            let marks = references(section).map(|(words, ns)| (words.to_owned(), ns)).collect();
            let lines = first::overlaid(lines.clone());
            charts::write_below_cell(page, what, Curves { lines, marks, is_tail, ..Curves::default() });
        }
        page.push_str("</div>\n</div>\n");
    }
}

/// What the latencies of a section are compared with, in ns.
pub fn references<'s>(section: &'s Section) -> impl Iterator<Item = (&'static str, f64)> + 's {
    REFERENCES.iter().filter_map(|reference| Some((reference.1, section.range(reference.0)?.0)))
}

/// The data block of these sections and their maps.
pub fn json(sections: &[Section], maps: &[Vec<Map>]) -> String {
    let cells: usize = maps.iter().flatten().map(|map| map.cells.len()).sum();
    let share = if cells > MANY_CELLS { 0 } else { MOST_BINS / maps.iter().flatten().count().max(1) };
    let mut out = format!("{{\"perOctave\":{},\"leastSpan\":{},\"palette\":[", RESOLUTIONS[0], heat::LEAST_SPAN);
    list(&mut out, heat::PALETTE, |out, [r, g, b]| push(out, format_args!("[{r},{g},{b}]")));
    out.push_str("],\"sections\":[");
    list(&mut out, sections.iter().zip(maps), |out, (section, maps)| one_section(out, section, maps, share));
    out.push_str("]}");
    out
}

/// The maps of a section.
pub fn maps(section: &Section) -> Vec<Map> {
    let mut maps = Vec::new();
    for (name, words) in heat::names(section) {
        let (mut cells, targets) = heat::cells(section, name);
        let cpus: BTreeSet<u32> = cells.keys().map(|k| k.1).collect();
        if cells.is_empty() {
            continue;
        }
        let all = section.merged(name);
        let mut ordered = Vec::with_capacity(targets.len() * cpus.len());
        for (key, _) in &targets {
            ordered.extend(cpus.iter().map(|cpu| cells.remove(&(*key, *cpu))));
        }
        let is_path = model::kind(section.test()) == Kind::Path;
        let mut by_target = if is_path { section.merged_by(name, |r| Some(target_id(r))) } else { BTreeMap::new() };
        let rows = targets.iter().filter_map(|(key, _)| by_target.remove(key)).collect();
        let targets = targets.into_iter().map(|t| t.1).collect();
        let places = heat::places(section, &cpus);
        maps.push(Map { name, words, cpus: cpus.into_iter().collect(), places, targets, cells: ordered, all, rows });
    }
    maps
}

/// No bins at all, where `most_bins` is 0.
fn one_section(out: &mut String, section: &Section, maps: &[Map], most_bins: usize) {
    // Maps of the same kind of test share their colours.
    let kind = format!("{:?}", model::kind(section.test()));
    push(
        out,
        format_args!(
            "{{\"test\":{},\"scale\":{},\"emulated\":{},\"places\":{{",
            text(section.test()),
            text(&kind),
            section.is_emulated()
        ),
    );
    list(out, section.cpus(), |out, cpu: &Cpu| {
        push(out, format_args!("\"{}\":[", cpu.cpu));
        list(out, [cpu.node, cpu.package, cpu.l3, cpu.core, cpu.thread], |out, place| match place {
            Some(place) => push(out, format_args!("{place}")),
            None => out.push_str("null"),
        });
        out.push(']');
    });
    out.push_str("},\"maps\":[");
    list(out, maps, |out, map| one_map(out, map, most_bins));
    out.push_str("]}");
}

fn one_map(out: &mut String, map: &Map, most_bins: usize) {
    let cells = || map.cells.iter().flatten();
    // Of many cells the first ones show that all do not fit.
    let fits = |per_octave: &u32| {
        let rest = cells().try_fold(most_bins, |rest, h| rest.checked_sub(bins(h, *per_octave).len()));
        rest.is_some()
    };
    let per_octave = RESOLUTIONS.into_iter().find(fits).unwrap_or(RESOLUTIONS[RESOLUTIONS.len() - 1]);
    push(
        out,
        format_args!(
            "{{\"name\":{},\"words\":{},\"perOctave\":{per_octave},\"cpus\":[",
            text(map.name),
            text(map.words)
        ),
    );
    list(out, &map.cpus, |out, cpu| push(out, format_args!("{cpu}")));
    out.push_str("],\"order\":[");
    list(out, &map.places.cpus, |out, cpu| push(out, format_args!("{}", map.cpus.partition_point(|one| one < cpu))));
    out.push_str("],\"strips\":[");
    list(out, &map.places.strips, |out, strip| {
        out.push('[');
        list(out, strip, |out, CpuGroup { from, to, words }| {
            push(out, format_args!("[{from},{to},["));
            list(out, words, |out, words| out.push_str(&text(words)));
            out.push_str("]]");
        });
        out.push(']');
    });
    out.push_str("],\"cores\":[");
    list(out, &map.places.cores, |out, (from, to)| push(out, format_args!("[{from},{to}]")));
    out.push_str("],\"targets\":[");
    list(out, &map.targets, |out, target| out.push_str(&text(target)));
    out.push_str("],\"all\":");
    histogram(out, &map.all, 0, 5);
    out.push_str(",\"rows\":[");
    list(out, &map.rows, |out, row| histogram(out, row, 0, 5));
    out.push_str("],\"cells\":[");
    list(out, &map.cells, |out, cell| match cell {
        Some(h) if most_bins == 0 => histogram(out, h, 0, 4),
        Some(h) => histogram(out, h, per_octave, 5),
        None => out.push('0'),
    });
    out.push_str("]}");
}

/// `[count, min, mean, p50, p90, p95, p99, p99.9, p99.99, max, [first bin, count, step to the next, count, ...]]`;
/// 0 stands for a percentile that the count does not support. Without bins where there are to be 0 in an octave.
fn histogram(out: &mut String, h: &Histogram, per_octave: u32, digits: i32) {
    push(out, format_args!("[{}", h.count()));
    let figures = [h.min_ns(), h.mean_ns()]
        .into_iter()
        .chain([50.0, 90.0, 95.0, 99.0, 99.9, 99.99].map(|p| h.percentile_ns(p)))
        .chain([h.max_ns()]);
    for figure in figures {
        push(out, format_args!(",{}", short(figure.unwrap_or(0.0), digits)));
    }
    out.push_str(",[");
    let mut last = 0;
    let bins = if per_octave == 0 { BTreeMap::new() } else { bins(h, per_octave) };
    list(out, bins, |out, (bin, count)| {
        push(out, format_args!("{},{count}", bin - last));
        last = bin;
    });
    out.push_str("]]");
}

/// With this number of significant digits: five are more than a histogram keeps.
fn short(ns: f64, digits: i32) -> String {
    if ns == 0.0 || !ns.is_finite() {
        return "0".to_owned();
    }
    let digits = (digits - 1 - ns.abs().log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{ns:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A JSON string that holds neither `<` nor `&`: no `</script>` and no `<!--` can appear in the page.
fn text(text: &str) -> String {
    let quoted = serde_json::to_string(&crate::text::clean(text)).unwrap_or_else(|_| "\"\"".to_owned());
    quoted.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn list<T>(out: &mut String, items: impl IntoIterator<Item = T>, mut one: impl FnMut(&mut String, T)) {
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        one(out, item);
    }
}

fn push(out: &mut String, text: std::fmt::Arguments) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_five_digits() {
        for (ns, want) in [
            (0.0, "0"),
            (812.34567, "812.35"),
            (1.0, "1"),
            (123_456_789.0, "123456789"),
            (0.385, "0.385"),
            (f64::NAN, "0"),
        ] {
            assert_eq!(short(ns, 5), want);
        }
    }

    #[test]
    fn no_string_can_end_the_script() {
        assert_eq!(text("</script>&"), "\"\\u003c/script\\u003e\\u0026\"");
    }
}
