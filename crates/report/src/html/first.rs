//! The first screen: the answer in tiles, and the one chart that matters for what was measured.

use pciescope_core::{Histogram, Record, Severity, comparison::Comparison, convert, once};

use super::devices::{histogram, whole};
use super::{charts, safe};
use crate::chart::{Chart, Curve, Curves, Span, Spans};
use crate::figures;
use crate::figures::counters::{TRAFFIC, busiest, memory_of, sources};
use crate::losses;
use crate::model::{self, Host, Kind, Section};
use crate::readout::{Group, groups};
use crate::summary::{Conclusions, link_errors};
use crate::table::REFERENCES;
use crate::text::{counted, device_name, duration, figure, target_key, thousands};

/// So many measurements have a line in the chart.
const MOST_ROWS: usize = 16;

/// A figure of the first screen.
struct Tile {
    name: &'static str,
    value: String,
    about: String,
    tone: Tone,
}

#[derive(Clone, Copy, PartialEq)]
enum Tone {
    Plain,
    Good,
    Doubtful,
    Bad,
}

impl Tile {
    fn plain(name: &'static str, value: String, about: String) -> Tile {
        Tile { name, value, about, tone: Tone::Plain }
    }
    /// A count of which 0 is good and everything else bad, and whether all of it is known; `None` where nothing was counted.
    fn losses(name: &'static str, count: Option<(f64, bool)>, about: &str) -> Tile {
        let whole = |count: f64| thousands(count.max(0.0) as u64);
        let (value, about, tone) = match count {
            None => ("-".to_owned(), "not counted", Tone::Plain),
            Some((count, true)) => (whole(count), about, if count > 0.0 { Tone::Bad } else { Tone::Good }),
            Some((count, false)) if count > 0.0 => (format!(">={}", whole(count)), about, Tone::Bad),
            Some(_) => ("-".to_owned(), "not known: a count is no number", Tone::Doubtful),
        };
        Tile { name, value, about: about.to_owned(), tone }
    }
}

/// What the tiles and the chart are of.
struct First {
    tiles: Vec<Tile>,
    heading: String,
    chart: Option<Chart>,
    note: String,
}

/// Writes the tiles and the chart; nothing where the records hold no figure.
pub fn write(page: &mut String, sections: &[Section], hosts: &[Host], conclusions: &Conclusions) {
    let Some(mut first) = first(sections, hosts) else { return };
    first.tiles.push(verdict(sections, conclusions));
    page.push_str("<section class=\"card first\" id=\"first\">\n<div class=\"tiles\">\n");
    for tile in &first.tiles {
        let tone = match tile.tone {
            Tone::Plain => "",
            Tone::Good => " good",
            Tone::Doubtful => " doubtful",
            Tone::Bad => " bad",
        };
        *page += &format!(
            "<div class=\"tile{tone}\"><span>{}</span> <b>{}</b> <small>{}</small></div>\n",
            tile.name,
            safe(&tile.value),
            safe(&tile.about)
        );
    }
    page.push_str("</div>\n");
    if let Some(chart) = &first.chart {
        charts::write(page, &first.heading, chart, &first.note);
    }
    page.push_str("</section>\n");
}

fn first(sections: &[Section], hosts: &[Host]) -> Option<First> {
    let is_latency = |section: &&Section| is_latency(section) && !whole(section).is_empty();
    let latencies: Vec<&Section> = sections.iter().filter(is_latency).collect();
    if !latencies.is_empty() {
        return Some(latency(&latencies, hosts));
    }
    let of = |kind: Kind| sections.iter().find(move |section| model::kind(section.test()) == kind);
    let named = |test: &str| sections.iter().find(|section| section.test() == test);
    of(Kind::Readout)
        .and_then(readout)
        .or_else(|| of(Kind::Counters).and_then(counters))
        .or_else(|| of(Kind::Verify).and_then(verify))
        .or_else(|| named(convert::TEST).and_then(conversions))
        .or_else(|| named("doctor").map(doctor))
}

fn is_latency(section: &Section) -> bool {
    matches!(model::kind(section.test()), Kind::Mmio | Kind::Path | Kind::Irq)
}

/// The run in a word: its label, or its id where it has none.
fn run(section: &Section) -> String {
    section.first().label.as_ref().unwrap_or(&section.first().run).to_string()
}

/// What was measured, independent of the run.
fn measure(section: &Section) -> String {
    let device = section.first().device.as_ref().map(|f| f.bdf.map_or_else(|| f.name.clone(), |bdf| bdf.to_string()));
    format!("{} {}", device.unwrap_or_default(), section.test()).trim().to_owned()
}

/// What runs must have in common to be set against each other: what was measured, on which machine and device, and how.
#[derive(Clone, PartialEq)]
struct Way {
    measure: String,
    host: Option<usize>,
    kind: Option<(u16, u16)>,
    backend: String,
    batch: u32,
    is_emulated: bool,
}

fn way(section: &Section, hosts: &[Host]) -> Way {
    let first = section.first();
    let method = first.method.as_ref();
    Way {
        measure: measure(section),
        host: model::host_of(hosts, &first.run),
        kind: first.device.as_ref().map(|device| (device.vendor, device.device)),
        backend: method.map(|method| method.backend.clone()).unwrap_or_default(),
        batch: method.map_or(1, |method| method.batch.max(1)),
        is_emulated: section.is_emulated(),
    }
}

fn latency(sections: &[&Section], hosts: &[Host]) -> First {
    // Registers are what one asks for first.
    let rank = |section: &Section| match model::kind(section.test()) {
        Kind::Mmio => 0,
        Kind::Irq => 1,
        _ => 2,
    };
    let best = sections.iter().map(|section| rank(section)).min().unwrap_or(0);
    let lead = sections.iter().find(|section| rank(section) == best).unwrap_or(&sections[0]);
    let same: Vec<&&Section> = sections.iter().filter(|section| way(section, hosts) == way(lead, hosts)).collect();
    let last = same.last().copied().unwrap_or(lead);
    let (now, before) = (whole(last), (same.len() > 1).then(|| whole(lead)));
    let named = |about: String| if same.len() > 1 { format!("{}, {about}", run(last)) } else { about };
    let change = |of: &dyn Fn(&Histogram) -> Option<f64>| {
        let (now, before) = (of(&now), before.as_ref().and_then(of));
        match (now, before) {
            (Some(now), Some(before)) if before > 0.0 => {
                format!("{} {} ({:+.1} %)", run(lead), duration(before), (now / before - 1.0) * 100.0)
            }
            _ => String::new(),
        }
    };
    let time = |ns: Option<f64>| ns.map_or("-".to_owned(), duration);
    let about = |of: &dyn Fn(&Histogram) -> Option<f64>, alone: String| {
        let change = change(of);
        if change.is_empty() { alone } else { change }
    };
    let p99 = |h: &Histogram| h.percentile_ns(99.0);
    let few = if p99(&now).is_none() { "too few samples".to_owned() } else { "1 in 100 took longer".to_owned() };
    let lost = losses::total(sections.iter().copied());
    let middle = if now.median_ns().is_none() { "too few samples".to_owned() } else { named(measure(last)) };
    let tiles = vec![
        Tile::plain("Median", time(now.median_ns()), about(&Histogram::median_ns, middle)),
        Tile::plain("p99", time(p99(&now)), about(&p99, few)),
        Tile::plain(
            "Worst",
            time(now.max_ns()),
            about(&Histogram::max_ns, format!("of {} samples", thousands(now.count()))),
        ),
        Tile::losses("Lost", lost, if sections.len() > 1 { "of all measurements" } else { "samples, interrupts" }),
    ];
    let (heading, chart, note) = latency_chart(sections, hosts, lead, &same);
    First { tiles, heading, chart: Some(chart), note }
}

fn latency_chart(sections: &[&Section], hosts: &[Host], lead: &Section, same: &[&&Section]) -> (String, Chart, String) {
    if same.len() < sections.len() {
        return spans(sections, hosts);
    }
    if same.len() > 1 {
        let lines = overlaid(same.iter().map(|section| (run(section), whole(section))).collect());
        let heading = format!("{}: the runs over each other", measure(lead));
        return (heading, Chart::Curves(Curves { lines, ..Curves::default() }), String::new());
    }
    if model::kind(lead.test()) == Kind::Path {
        return hops(lead);
    }
    let marks = REFERENCES.iter().filter_map(|r| Some((r.1.to_owned(), lead.range(r.0)?.0))).collect();
    let lines = vec![Curve { name: String::new(), histogram: whole(lead) }];
    let heading = format!("{}: all CPUs together", measure(lead));
    (heading, Chart::Curves(Curves { lines, marks, is_tail: false }), String::new())
}

/// Histograms with their names; of more than eight the first and the last ones, for more no one tells apart.
pub(super) fn overlaid(mut all: Vec<(String, Histogram)>) -> Vec<Curve> {
    if all.len() > 8 {
        let tail = all.split_off(all.len() - 4);
        all.truncate(4);
        all.extend(tail);
    }
    all.into_iter().map(|(name, histogram)| Curve { name, histogram }).collect()
}

fn span(label: String, h: &Histogram, series: usize) -> Option<Span> {
    let (median, max) = (h.median_ns()?, h.max_ns()?);
    let min = h.min_ns()?;
    Some(Span { label, min, median, p99: h.percentile_ns(99.0), max, series, figure: duration(median) })
}

const READ_SPANS: &str = "The mark is the median, which stands at the end; the bar reaches from the fastest sample to p99, \
                          the line to the slowest.";

fn spans(sections: &[&Section], hosts: &[Host]) -> (String, Chart, String) {
    let runs = once(sections.iter().map(|section| run(section)));
    let mut ways: Vec<Way> = Vec::new();
    for way in sections.iter().map(|section| way(section, hosts)) {
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    let place = |section: &Section| ways.iter().position(|known| *known == way(section, hosts));
    // Where one thing was measured in several ways, the run tells them apart.
    let label = |section: &Section| match ways.iter().filter(|way| way.measure == measure(section)).count() {
        1 => measure(section),
        _ => format!("{} ({})", measure(section), run(section)),
    };
    // The runs of a measurement are one below the other.
    let mut ordered: Vec<&&Section> = sections.iter().collect();
    ordered.sort_by_key(|section| place(section));
    let is_compared = ordered.windows(2).any(|pair| place(pair[0]) == place(pair[1]));
    let rows: Vec<Span> = ordered
        .iter()
        .filter_map(|section| {
            let place = runs.iter().position(|name| *name == run(section)).unwrap_or(0);
            span(label(section), &whole(section), if is_compared { place } else { 0 })
        })
        .collect();
    let left = rows.len().saturating_sub(MOST_ROWS);
    let more = if left > 0 { format!(" {left} more stand below.") } else { String::new() };
    let series = if is_compared { runs } else { Vec::new() };
    let chart = Spans { series, rows: rows.into_iter().take(MOST_ROWS).collect() };
    ("Latency of each measurement".to_owned(), Chart::Spans(chart), format!("{READ_SPANS}{more}"))
}

/// The hops of a path below each other: they are never mixed.
fn hops(section: &Section) -> (String, Chart, String) {
    let target = |record: &Record| record.target.as_ref().map(|t| (t.hop, t.hop_bdf, target_key(t, false)));
    let rows = section.merged_by(histogram(section), target).into_iter().filter_map(|((_, bdf, key), h)| {
        let label = bdf.map_or(key.clone(), |bdf| format!("{key} {bdf}"));
        span(label, &h, 0)
    });
    let chart = Spans { series: Vec::new(), rows: rows.take(MOST_ROWS).collect() };
    let heading = format!("Configuration reads on the way to {}, hop by hop", device_name(section.first()));
    (heading, Chart::Spans(chart), READ_SPANS.to_owned())
}

/// The first chart of a section's figures.
fn leading(section: &Section) -> (String, Option<Chart>, String) {
    let figure = figures::of(section).into_iter().find(|figure| figure.chart.is_some());
    figure.map_or((String::new(), None, String::new()), |figure| (figure.heading, figure.chart, figure.note))
}

fn mega(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| {
        if value >= 1e9 { format!("{:.2} GB/s", value / 1e9) } else { format!("{:.1} MB/s", value / 1e6) }
    })
}

fn counters(section: &Section) -> Option<First> {
    let sources = sources(section);
    let (busy, idle) = busiest(&sources);
    let add = |name: &str| sources.iter().filter(|s| s.is_port()).filter_map(|s| s.mean(name)).reduce(|a, b| a + b);
    let is_estimated = |names: &[&str]| sources.iter().any(|source| source.running(names).is_some());
    let mark =
        |name: &str, value: String| if is_estimated(&[name]) && value != "-" { format!("~{value}") } else { value };
    let about = |name: &str, what: &str| {
        if is_estimated(&[name]) { "estimated: counters took turns".to_owned() } else { format!("mean, {what}") }
    };
    let mut tiles = Vec::new();
    if sources.iter().any(|source| source.is_port()) {
        for (title, name) in ["From devices (Rx)", "To devices (Tx)"].into_iter().zip(TRAFFIC) {
            tiles.push(Tile::plain(title, mark(name, mega(add(name))), about(name, "all ports")));
        }
        tiles.push(match busy.first() {
            Some(port) => {
                let estimated = if port.running(&TRAFFIC).is_some() { "~" } else { "" };
                Tile::plain("Busiest port", format!("{estimated}{}", mega(Some(port.traffic()))), port.name.clone())
            }
            None => Tile::plain("Busiest port", "none".to_owned(), format!("{idle} ports without traffic")),
        });
        let known = link_errors(section).into_iter().map(|(_, count)| count);
        tiles.push(Tile::losses("Link errors", known.reduce(|a, b| a + b).map(|sum| (sum, true)), "all ports"));
    }
    let memory = memory_of(section, &sources);
    if !memory.is_empty() && tiles.len() < 4 {
        for (title, name) in [("DRAM read", "read_bytes_per_s"), ("DRAM written", "write_bytes_per_s")] {
            let sum = memory.iter().map(|node| node.mean(name)).reduce(|a, b| Some(a? + b?)).flatten();
            let lacks = memory.iter().map(|node| node.lacks(name)).sum::<usize>();
            let words = match lacks {
                _ if !memory.iter().any(|node| node.has(name)) => "not counted".to_owned(),
                0 => about(name, "all channels"),
                lacks => format!("no sum: {} without a figure", counted(lacks, "channel")),
            };
            tiles.push(Tile::plain(title, mark(name, mega(sum)), words));
        }
    }
    let (heading, chart, note) = leading(section);
    (!tiles.is_empty()).then_some(First { tiles, heading, chart, note })
}

fn readout(section: &Section) -> Option<First> {
    let groups = groups(section);
    let best: &Group = groups
        .iter()
        .filter(|group| group.sum().is_some())
        .max_by(|a, b| a.sum().partial_cmp(&b.sum()).unwrap_or(std::cmp::Ordering::Equal))?;
    let rates = best.rates();
    let slowest = rates.iter().map(|rate| rate.1).reduce(f64::min);
    let devices = best.devices();
    let together = if devices == 1 { "1 device".to_owned() } else { format!("{devices} devices together") };
    let tiles = vec![
        Tile::plain("Rate", mega(best.sum()), together),
        Tile::plain("Slowest device", mega(slowest), "of these".to_owned()),
        match best.ceiling().zip(best.sum()) {
            Some((ceiling, sum)) if ceiling > 0.0 => {
                Tile::plain("Of the ceiling", format!("{:.1} %", sum / ceiling * 100.0), mega(Some(ceiling)))
            }
            _ => Tile::plain("Of the ceiling", "-".to_owned(), "ceiling not known".to_owned()),
        },
        Tile::losses("Wrong bytes", section.losses("wrong"), "of those compared"),
        Tile::losses("Lost", losses::total([section]), "interrupts, transfers"),
    ];
    let (heading, chart, note) = leading(section);
    Some(First { tiles, heading, chart, note })
}

fn verify(section: &Section) -> Option<First> {
    let rows: Vec<Comparison> = section.records.iter().filter_map(|record| Comparison::from_record(record)).collect();
    let right = rows.iter().filter(|row| row.is_right() == Some(true)).count();
    let judged = rows.iter().filter(|row| row.is_right().is_some()).count();
    let largest = rows.iter().filter_map(Comparison::error_percent).max_by(|a, b| a.abs().total_cmp(&b.abs()));
    let tone = if right < judged { Tone::Bad } else { Tone::Good };
    let tiles = vec![
        Tile {
            name: "Within what is allowed",
            value: format!("{right} of {judged}"),
            about: "counters beside known traffic".to_owned(),
            tone,
        },
        Tile::plain(
            "Largest error",
            largest.map_or("-".to_owned(), |error| format!("{error:+.3} %")),
            "of the workload's figure".to_owned(),
        ),
    ];
    let (heading, chart, note) = leading(section);
    (!rows.is_empty()).then_some(First { tiles, heading, chart, note })
}

fn conversions(section: &Section) -> Option<First> {
    let rates = section.records.iter().filter_map(|r| Some((r.metrics.get("rate")?.value, *r)));
    let best = rates.filter(|(rate, _)| rate.is_finite()).max_by(|a, b| a.0.total_cmp(&b.0))?;
    let of_it = best.1.metrics.get("of_ceiling").map_or("-".to_owned(), |share| format!("{:.1} %", share.value));
    let name = best.1.kernel.as_ref().map_or(String::new(), |kernel| format!("{}, {}", kernel.name, kernel.isa));
    let tiles = vec![
        Tile::plain("Fastest", format!("{:.2} GB/s", best.0 / 1e9), name),
        Tile::plain("Of the ceiling", of_it, "a loop that only moves as much".to_owned()),
        Tile::losses("Wrong", section.losses("wrong"), "values that deviate"),
    ];
    let (heading, chart, note) = leading(section);
    Some(First { tiles, heading, chart, note })
}

fn doctor(section: &Section) -> First {
    let findings = || section.records.iter().flat_map(|record| &record.findings).filter(|one| !one.silenced);
    let count = |severity| findings().filter(|finding| finding.severity == severity).count();
    let one = |name, severity, tone| {
        let count = count(severity);
        let tone = if count == 0 { Tone::Good } else { tone };
        Tile { name, value: count.to_string(), about: String::new(), tone }
    };
    let checks = section.sum("checks").map_or("-".to_owned(), figure);
    let functions = section.records.iter().filter(|record| record.device.is_some()).count();
    let tiles = vec![
        one("Problems", Severity::Problem, Tone::Bad),
        one("Warnings", Severity::Warning, Tone::Doubtful),
        one("Notes", Severity::Note, Tone::Plain),
        Tile::plain("Checks", checks, format!("of {functions} functions and the machine")),
    ];
    First { tiles, heading: String::new(), chart: None, note: String::new() }
}

/// What the rules conclude, in a word or two.
fn verdict(sections: &[Section], conclusions: &Conclusions) -> Tile {
    let doubts = conclusions.doubtful.len();
    let count = match doubts {
        0 => "nothing doubtful".to_owned(),
        1 => "1 doubt, below".to_owned(),
        more => format!("{more} doubts, below"),
    };
    let real = |section: &Section| !section.is_emulated() && !section.is_synthetic();
    let (value, tone) = if sections.iter().any(Section::is_synthetic) {
        ("made up".to_owned(), Tone::Doubtful)
    } else if sections.iter().any(Section::is_emulated) && !sections.iter().any(real) {
        ("EMULATED".to_owned(), Tone::Doubtful)
    } else if doubts > 0 {
        ("doubtful".to_owned(), Tone::Doubtful)
    } else if conclusions.good.is_empty() {
        ("none".to_owned(), Tone::Plain)
    } else {
        ("good".to_owned(), Tone::Good)
    };
    Tile { name: "Verdict", value, about: count, tone }
}
