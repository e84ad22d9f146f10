//! The first screen: the answer in tiles, and the one chart that matters for what was measured.

use pciescope_core::outcome::INJECTED;
use pciescope_core::{Histogram, Record, change, convert, once, soak, tune};

use super::data::references;
use super::{charts, safe};
use crate::chart::{Chart, Curve, Curves, Span, Spans};
use crate::compare;
use crate::facts::latency::{headline, main_histogram, main_samples, tiles};
use crate::facts::{self, Conclusions, Fact};
use crate::figures;
use crate::losses;
use crate::model::{self, Host, Kind, Section};
use crate::style::Tone;
use crate::text::{device_name, duration, target_key};

/// Upper limit of the measurements in the chart.
const MOST_ROWS: usize = 16;

/// Heading, chart and note of the first screen, for a picture; `None` where it has no chart.
pub(crate) fn chart(records: &[Record]) -> Option<(String, Chart, String)> {
    let sections = model::sections(records);
    let first = first(&sections, &model::hosts(records))?;
    Some((first.heading, first.chart?, first.note))
}

/// What the tiles and the chart are of.
struct FirstScreen {
    tiles: Vec<Fact>,
    heading: String,
    chart: Option<Chart>,
    note: String,
}

/// Writes the tiles and the chart; nothing where the records hold no figure.
pub fn write(page: &mut String, sections: &[Section], hosts: &[Host], conclusions: &Conclusions) {
    let Some(mut first) = first(sections, hosts) else { return };
    first.tiles.push(conclusions.tile(sections));
    page.push_str("<section class=\"card first\" id=\"first\">\n<div class=\"tiles\">\n");
    for tile in &first.tiles {
        let tone = match tile.tone {
            Tone::Good => " good",
            Tone::Doubt => " doubtful",
            Tone::Bad => " bad",
            Tone::Plain | Tone::Strong | Tone::Dim => "",
        };
        *page += &format!(
            "<div class=\"tile{tone}\"><span>{}</span> <b>{}</b> <small>{}</small></div>\n",
            tile.name,
            safe(&tile.value),
            safe(&tile.note)
        );
    }
    page.push_str("</div>\n");
    if let Some(chart) = &first.chart {
        charts::write(page, &first.heading, chart, &first.note);
    }
    page.push_str("</section>\n");
}

fn first(sections: &[Section], hosts: &[Host]) -> Option<FirstScreen> {
    let is_latency = |section: &&Section| is_latency(section) && !main_samples(section).is_empty();
    let latencies: Vec<&Section> = sections.iter().filter(is_latency).collect();
    if !latencies.is_empty() {
        return Some(latency(&latencies, hosts));
    }
    let of = |kind: Kind| sections.iter().find(move |section| model::kind(section.test()) == kind);
    let named = |test: &str| sections.iter().find(|section| section.test() == test);
    let wanted = [
        of(Kind::Readout),
        of(Kind::Counters),
        of(Kind::Verify),
        named(convert::TEST),
        named(soak::TEST),
        named(tune::TEST),
        named(change::TEST),
        named("doctor"),
    ];
    wanted.into_iter().flatten().find_map(|section| {
        let tiles = facts::of(section, &[]).tiles;
        let figure = figures::of(section).into_iter().find(|figure| figure.chart.is_some());
        let (heading, chart, note) =
            figure.map_or_else(Default::default, |figure| (figure.heading, figure.chart, figure.note));
        (!tiles.is_empty()).then_some(FirstScreen { tiles, heading, chart, note })
    })
}

fn is_latency(section: &Section) -> bool {
    matches!(model::kind(section.test()), Kind::Mmio | Kind::Path | Kind::Irq)
}

/// The run in a word: its label, or when it was where it has none.
fn run(section: &Section) -> String {
    let first = section.first();
    first.label.clone().unwrap_or_else(|| first.time.clone())
}

/// What was measured, independent of the run.
fn measure(section: &Section) -> String {
    let device = section.first().device.as_ref().map(|f| f.bdf.map_or_else(|| f.name.clone(), |bdf| bdf.to_string()));
    format!("{} {}", device.unwrap_or_default(), section.test()).trim().to_owned()
}

/// What runs must have in common to be set against each other: what was measured, on which machine and device, and how.
#[derive(Clone, PartialEq)]
struct Comparable {
    measure: String,
    host: Option<usize>,
    kind: Option<(u16, u16)>,
    backend: String,
    batch: u32,
    is_emulated: bool,
}

fn setup(section: &Section, hosts: &[Host]) -> Comparable {
    let first = section.first();
    let method = first.method.as_ref();
    Comparable {
        measure: measure(section),
        host: model::host_of(hosts, &first.run),
        kind: first.device.as_ref().map(|device| (device.vendor, device.device)),
        backend: method.map(|method| method.backend.clone()).unwrap_or_default(),
        batch: method.map_or(1, |method| method.batch.max(1)),
        is_emulated: section.is_emulated(),
    }
}

fn latency(sections: &[&Section], hosts: &[Host]) -> FirstScreen {
    // Registers are what one asks for first.
    let rank = |section: &Section| match model::kind(section.test()) {
        Kind::Mmio => 0,
        Kind::Irq => 1,
        _ => 2,
    };
    let best = sections.iter().map(|section| rank(section)).min().unwrap_or(0);
    let lead = sections.iter().find(|section| rank(section) == best).unwrap_or(&sections[0]);
    let same: Vec<&&Section> = sections.iter().filter(|section| setup(section, hosts) == setup(lead, hosts)).collect();
    // Two runs of the same are before and after. Of more the first stands for all.
    let is_pair = same.len() == 2;
    let last = same.last().copied().filter(|_| is_pair).unwrap_or(lead);
    let before = is_pair.then(|| (run(lead), *lead));
    let about = if same.len() > 1 { format!("{}, {}", run(last), measure(last)) } else { measure(last) };
    let mut tiles = tiles(last, before.as_ref().map(|(run, section)| (run.as_str(), *section)), &about);
    let what = if sections.len() > 1 { "of all measurements" } else { "samples, interrupts" };
    tiles.push(Fact::losses("Lost", losses::total(sections.iter().copied()), what));
    let (heading, chart, note) = latency_chart(sections, hosts, lead, &same);
    FirstScreen { tiles, heading, chart: Some(chart), note }
}

fn latency_chart(sections: &[&Section], hosts: &[Host], lead: &Section, same: &[&&Section]) -> (String, Chart, String) {
    if same.len() < sections.len() {
        return spans(sections, hosts);
    }
    if same.len() > 1 {
        let lines = overlaid(same.iter().map(|section| (run(section), main_samples(section))).collect());
        let mut curves = Curves { lines, is_cut: true, ..Curves::default() };
        let mut heading = format!("{}: the runs over each other", measure(lead));
        if let [a, b] = same {
            let judgement = compare::judge(&a.records, &b.records, &compare::Criteria::default());
            heading = compare::headline(&judgement).unwrap_or(heading);
            curves.medians = [a, b].iter().filter_map(|one| Some(headline(one)?.median_ns)).collect();
        }
        let note = curves.beyond().unwrap_or_default();
        return (heading, Chart::Curves(curves), note);
    }
    if model::kind(lead.test()) == Kind::Path {
        return hops(lead);
    }
    let marks = references(lead).map(|(words, ns)| (words.to_owned(), ns)).collect();
    let lines = vec![Curve { name: String::new(), histogram: main_samples(lead) }];
    let heading = format!("{}: all CPUs together", measure(lead));
    (heading, Chart::Curves(Curves { lines, marks, ..Curves::default() }), String::new())
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

fn span(label: String, h: &Histogram, median: f64, more: String) -> Option<Span> {
    let (min, max) = (h.min_ns()?, h.max_ns()?);
    Some(Span { label, min, median, p99: h.percentile_ns(99.0), max, figure: duration(median), more })
}

const READ_SPANS: &str = "The mark is the median, which stands at the end; the bar reaches from the fastest sample to p99, \
                          the line to the slowest.";

fn spans(sections: &[&Section], hosts: &[Host]) -> (String, Chart, String) {
    let mut setups: Vec<Comparable> = Vec::new();
    for setup in sections.iter().map(|section| setup(section, hosts)) {
        if !setups.contains(&setup) {
            setups.push(setup);
        }
    }
    let place = |section: &Section| setups.iter().position(|known| *known == setup(section, hosts));
    let count = |of: &dyn Fn(&Section) -> String, section: &Section| {
        sections.iter().filter(|other| of(other) == of(section)).count()
    };
    let test = |section: &Section| format!("{}, {}", run(section), section.test());
    let are_apart = sections.iter().all(|section| count(&measure, section) == 1);
    let are_named = sections.iter().all(|section| section.first().label.is_some());
    // In as few words as tell the rows apart: what was measured, else the run, else both.
    let label = |section: &Section| match () {
        () if are_apart => measure(section),
        () if are_named && count(&run, section) == 1 => run(section),
        () if are_named && count(&test, section) == 1 => test(section),
        () => format!("{}, {}", run(section), measure(section)),
    };
    // The runs of a measurement are one below the other.
    let mut ordered: Vec<&Section> = sections.to_vec();
    ordered.sort_by_key(|section| place(section));
    let rows: Vec<Span> = ordered
        .iter()
        .filter_map(|section| {
            let plain = ordered.iter().find(|other| place(other) == place(section) && injected(other) == Some(0.0));
            let more = added(section, plain.copied()).unwrap_or_default();
            span(label(section), &main_samples(section), headline(section)?.median_ns, more)
        })
        .collect();
    let left = rows.len().saturating_sub(MOST_ROWS);
    let mut more = if left > 0 { format!(" {left} more stand below.") } else { String::new() };
    if rows.iter().any(|row| row.more.contains("seen")) {
        more += " Seen of what was injected: by how much the fastest sample took longer.";
    }
    let chart = Spans { rows: rows.into_iter().take(MOST_ROWS).collect() };
    let of = match once(sections.iter().map(|section| measure(section))).as_slice() {
        [one] => one.clone(),
        _ => "each measurement".to_owned(),
    };
    (format!("Latency of {of}"), Chart::Spans(chart), format!("{READ_SPANS}{more}"))
}

/// What the lab's device added to each access at least, in nanoseconds, where the records know it.
fn injected(section: &Section) -> Option<f64> {
    section.range(INJECTED).map(|range| range.0)
}

/// What was added to a measurement, and how much of it is seen beside the same one to which nothing was: by the fastest
/// samples, which nothing else disturbed.
fn added(section: &Section, plain: Option<&Section>) -> Option<String> {
    let injected = injected(section).filter(|ns| *ns > 0.0)?;
    let seen = plain.and_then(|plain| Some(main_samples(section).min_ns()? - main_samples(plain).min_ns()?));
    let seen = seen.map_or_else(String::new, |seen| format!(", seen {}", duration(seen)));
    Some(format!("injected {}{seen}", duration(injected)))
}

/// The hops of a path below each other: they are never mixed.
fn hops(section: &Section) -> (String, Chart, String) {
    let target = |record: &Record| record.target.as_ref().map(|t| (t.hop, t.hop_bdf, target_key(t, false)));
    let rows = section.merged_by(main_histogram(section), target).into_iter().filter_map(|((_, bdf, key), h)| {
        let label = bdf.map_or(key.clone(), |bdf| format!("{key} {bdf}"));
        span(label, &h, h.median_ns()?, String::new())
    });
    let chart = Spans { rows: rows.take(MOST_ROWS).collect() };
    let heading = format!("Configuration reads on the way to {}, hop by hop", device_name(section.first()));
    (heading, Chart::Spans(chart), READ_SPANS.to_owned())
}
