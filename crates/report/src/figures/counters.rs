//! Counters over the intervals of a run: the traffic of the busiest ports, DRAM by node, errors. A run of one interval has
//! bars in place of lines.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::{Record, joined, traffic};

use super::{Figure, drawn_few};
use crate::chart::{Bar, Bars, Chart, Times, TimesLine, number};
use crate::counters::{Row, rows};
use crate::layout::{Columns, Left, Right, Rows};
use crate::model::{self, Section};
use crate::text::{counted, figure};

/// Upper limit of the busiest with a line of their own; the others are added up.
const MOST_LINES: usize = 6;
/// The axis of a chart reaches at least so far, in MB/s.
const LEAST: f64 = 0.1;
/// What a port carries.
pub(crate) const TRAFFIC: [&str; 2] = ["rx_bytes_per_s", "tx_bytes_per_s"];
/// What a channel carries.
pub(crate) const MEMORY: [&str; 2] = ["read_bytes_per_s", "write_bytes_per_s"];
/// Errors of a link by layer, as [`traffic`] counts them.
const LAYERS: [(u8, &str); 4] =
    [(1, "layer 1 errors"), (2, "layer 2 errors"), (3, "layer 3 errors"), (0, "reported errors")];
/// What comes of errors.
const REPAIRS: [&str; 3] = ["naks", "retries", "recoveries"];

/// The figures of a run in the order in which they matter.
pub fn of(section: &Section) -> Vec<Figure> {
    let sources = sources(section);
    let memory = memory_of(section, &sources);
    let intervals = sources.iter().map(Row::count).max().unwrap_or(0);
    let mut figures = Vec::new();
    if intervals > 1 {
        figures.extend(over_time(&sources, ("rx", "Rx"), "PCIe, from the devices (Rx)"));
        figures.extend(over_time(&sources, ("tx", "Tx"), "PCIe, to the devices (Tx)"));
        figures.extend(memory_over_time(&memory));
        figures.extend(events_over_time(&sources));
    } else {
        figures.extend(by_port(&sources));
        figures.extend(memory_by_node(&memory));
    }
    figures
}

impl Row<'_> {
    /// How many points its course has.
    fn count(&self) -> usize {
        self.records.iter().map(|record| record.points().len()).sum()
    }
    /// How many intervals a point of its course is the mean of.
    fn per_point(&self) -> usize {
        self.records.iter().map(|record| record.per_point()).max().unwrap_or(1)
    }
    /// Both directions together in the mean; 0 where neither is known.
    fn traffic(&self) -> f64 {
        self.mean("rx_bytes_per_s").unwrap_or(0.0) + self.mean("tx_bytes_per_s").unwrap_or(0.0)
    }
    /// The name with `~` where one of these figures is estimated.
    fn title(&self, names: &[&str]) -> String {
        let mark = if self.running(names).is_some() { "~" } else { "" };
        mark.to_owned() + &self.name()
    }
    /// The course of a figure: the ends of its intervals in seconds since the run's beginning, and its values.
    fn points(&self, name: &str, per: f64) -> Vec<(f64, Option<f64>)> {
        let pieces = self.pieces(name).into_iter();
        pieces.map(|piece| (piece.end, piece.value.map(|value| value / per))).collect()
    }
    /// The course of the errors of a layer of its link.
    fn errors_of_layer(&self, layer: u8) -> Vec<(f64, Option<f64>)> {
        let names = traffic::error_counters(Some(layer)).filter(|name| self.metrics.contains_key(name));
        let courses: BTreeMap<&str, Vec<(f64, Option<f64>)>> =
            names.map(|name| (name, self.points(name, 1.0))).collect();
        let ends = courses.values().next().into_iter().flatten().map(|point| point.0);
        let count = |place: usize| traffic::errors_of_layer(layer, |name| courses.get(name)?[place].1);
        ends.enumerate().map(|(place, end)| (end, count(place))).collect()
    }
    /// The same with the beginnings of its intervals.
    fn pieces(&self, name: &str) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(self.count());
        for record in &self.records {
            pieces.extend(record.points().iter().enumerate().map(|(place, point)| {
                let end = point.end_ns as f64 / 1e9;
                Piece { start: end - point.seconds * point.count as f64, end, value: record.value_at(name, place) }
            }));
        }
        pieces.sort_by(|one, other| one.end.total_cmp(&other.end));
        pieces
    }
}

/// A point of a course: from when to when, in seconds since the run's beginning, and what is known of it.
struct Piece {
    start: f64,
    end: f64,
    value: Option<f64>,
}

/// What counted; of what counted the same bytes only one, because they are added up.
pub(crate) fn sources<'r>(section: &Section<'r>) -> Vec<Row<'r>> {
    let hardware = model::hardware_ports(section.records.iter().copied());
    let counts_once = |record: &Record| record.device.is_none() || hardware.counts_once(model::counted_by(record));
    let records = section.records.iter().copied().filter(|one| one.interval.is_some() && counts_once(one));
    rows(&records.collect::<Vec<_>>())
}

/// MB/s, or GB/s where figures are large: bytes per second of the unit, and its name.
fn unit(most: f64) -> (f64, &'static str) {
    if most >= 10e9 { (1e9, "GB/s") } else { (1e6, "MB/s") }
}

fn mega(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{:.2}", value / 1e6))
}

/// The ports with traffic, the busiest first, and how many have none.
pub(crate) fn busiest<'s, 'r>(sources: &'s [Row<'r>]) -> (Vec<&'s Row<'r>>, usize) {
    let ports: Vec<&Row> = sources.iter().filter(|source| source.has_any(&TRAFFIC)).collect();
    let mut busy: Vec<&Row> =
        ports.iter().copied().filter(|port| !traffic::is_idle([Some(port.traffic()), None], None)).collect();
    busy.sort_by(|a, b| b.traffic().total_cmp(&a.traffic()));
    let idle = ports.len() - busy.len();
    (busy, idle)
}

/// What the points of a long run are.
fn thinned<'s>(sources: impl IntoIterator<Item = &'s Row<'s>>) -> Option<String> {
    let per = sources.into_iter().map(Row::per_point).max().filter(|per| *per > 1)?;
    Some(format!("A point is the mean of {per} intervals; the table is of all of them."))
}

/// What was left out, and what marks mean.
fn note(idle: usize, others: usize, sources: &[&Row], names: &[&str]) -> String {
    let mut parts = Vec::new();
    if others > 0 {
        parts.push(format!("The {MOST_LINES} busiest have a line each; {others} others are added up."));
    }
    match idle {
        0 => {}
        1 => parts.push("1 port had no traffic.".to_owned()),
        idle => parts.push(format!("{idle} ports had no traffic.")),
    }
    if let Some(least) = sources.iter().filter_map(|source| source.running(names)).reduce(f64::min) {
        parts
            .push(format!("~: estimated, the counters took turns and ran {:.0} % of the time or more.", least * 100.0));
    }
    parts.extend(thinned(sources.iter().copied()));
    parts.join(" ")
}

fn over_time(sources: &[Row], (way, word): (&str, &str), heading: &str) -> Option<Figure> {
    let metric = format!("{way}_bytes_per_s");
    let (busy, idle) = busiest(sources);
    let (mean, most) = (format!("{word} mean(MB/s)"), format!("{word} most(MB/s)"));
    let share = format!("{word} most(% of link)");
    let of_link = |port: &Row| port.most(&format!("{way}_link_share")).map(|share| format!("{share:.1}"));
    let table = Rows::of(&busy).columns(&[
        ("Port", 12, Left, &|port| port.title(&[&metric])),
        (&mean, 9, Right, &|port| mega(port.mean(&metric))),
        (&most, 9, Right, &|port| mega(port.most(&metric))),
        (&share, 7, Right, &|port| of_link(port).unwrap_or_else(|| "-".to_owned())),
    ]);
    let (per, unit) = unit(busy.iter().filter_map(|port| port.most(&metric)).fold(0.0, f64::max));
    let own = busy.len().min(MOST_LINES);
    let mut lines: Vec<TimesLine> = busy[..own]
        .iter()
        .map(|port| TimesLine { name: port.title(&[&metric]), points: port.points(&metric, per) })
        .collect();
    if busy.len() > own {
        lines.push(sum(&format!("{} others", busy.len() - own), &busy[own..], &metric, per, false));
    }
    (!busy.is_empty()).then(|| Figure {
        heading: heading.to_owned(),
        note: note(idle, busy.len() - own, &busy, &[&metric]),
        chart: Some(Chart::Times(Times { up: unit.to_owned(), lines, least: LEAST * 1e6 / per })),
        table: table.without_empty(),
        is_digest: false,
    })
}

/// Several sources as one line. `is_whole`: where one of them has no figure there is no sum.
fn sum(name: &str, sources: &[&Row], metric: &str, per: f64, is_whole: bool) -> TimesLine {
    let courses: Vec<Vec<Piece>> = sources.iter().map(|source| source.pieces(metric)).collect();
    let add = |sum: Option<f64>, value: Option<f64>| match is_whole {
        true => Some(sum? + value?),
        false => joined(sum, value, |sum, value| sum + value),
    };
    let coarsest = sources.iter().map(|source| source.per_point()).enumerate().max_by_key(|(_, per)| *per);
    let Some((coarsest, points_of)) = coarsest else { return TimesLine { name: name.to_owned(), points: Vec::new() } };
    let points = if points_of > 1 {
        // Points are means of several intervals, and not of the same ones in all courses: those of the coarsest course are
        // the bins of all.
        let bins = &courses[coarsest];
        let mut sums: Vec<Option<f64>> = vec![if is_whole { Some(0.0) } else { None }; bins.len()];
        for course in &courses {
            for (sum, value) in sums.iter_mut().zip(binned(bins, course)) {
                *sum = add(*sum, value);
            }
        }
        bins.iter().zip(sums).map(|(bin, sum)| (bin.end, sum.map(|sum| sum / per))).collect()
    } else {
        // Intervals that end together, by their nanoseconds: how many have a figure, and the sum.
        let mut sums: BTreeMap<u64, (usize, f64)> = BTreeMap::new();
        for piece in courses.iter().flatten() {
            let sum = sums.entry((piece.end * 1e9).round() as u64).or_default();
            if let Some(value) = piece.value {
                *sum = (sum.0 + 1, sum.1 + value);
            }
        }
        let least = if is_whole { sources.len() } else { 1 };
        let value = |(known, sum): (usize, f64)| (known >= least).then_some(sum / per);
        sums.into_iter().map(|(ns, sum)| (ns as f64 / 1e9, value(sum))).collect()
    };
    TimesLine { name: name.to_owned(), points }
}

/// The mean of a course in each bin, by time; `None` where less than half of a bin is known.
fn binned(bins: &[Piece], course: &[Piece]) -> Vec<Option<f64>> {
    let mut first = 0;
    let mut means = Vec::with_capacity(bins.len());
    for bin in bins {
        // Bins and pieces come nearly in the order of time; a piece may reach into the next bin.
        while course.get(first).is_some_and(|piece| piece.end <= bin.start) {
            first += 1;
        }
        let (mut sum, mut seconds) = (0.0, 0.0);
        for piece in course[first..].iter().take_while(|piece| piece.start < 2.0 * bin.end - bin.start) {
            let overlap = piece.end.min(bin.end) - piece.start.max(bin.start);
            if let Some(value) = piece.value.filter(|_| overlap > 0.0) {
                (sum, seconds) = (sum + value * overlap, seconds + overlap);
            }
        }
        means.push((seconds > 0.499 * (bin.end - bin.start)).then(|| sum / seconds));
    }
    means
}

/// The memory of a node: its channels.
pub(crate) struct Memory<'s, 'r> {
    node: Option<u32>,
    channels: Vec<&'s Row<'r>>,
    /// Channels that have no figure at all.
    silent: usize,
}

impl Memory<'_, '_> {
    /// How many channels lack a figure that others of the machine have.
    pub fn lacks(&self, name: &str) -> usize {
        self.silent + self.channels.iter().filter(|channel| channel.mean(name).is_none()).count()
    }
    /// The sum of the channels' means; `None` where a channel has none.
    pub fn mean(&self, name: &str) -> Option<f64> {
        if self.lacks(name) > 0 {
            return None;
        }
        self.channels.iter().filter_map(|channel| channel.mean(name)).reduce(|a, b| a + b)
    }
    /// Whether any channel has the figure.
    pub fn has(&self, name: &str) -> bool {
        self.channels.iter().any(|channel| channel.mean(name).is_some())
    }
    fn count(&self) -> usize {
        self.channels.len() + self.silent
    }
    fn name(&self) -> String {
        let name = self.node.map_or("node not known".to_owned(), |node| format!("node {node}"));
        if self.channels.iter().any(|channel| channel.running(&MEMORY).is_some()) { format!("~{name}") } else { name }
    }
}

/// The channels of each node; none if no channel has a rate.
pub(crate) fn memory_of<'s, 'r>(section: &Section<'r>, sources: &'s [Row<'r>]) -> Vec<Memory<'s, 'r>> {
    let mut nodes: BTreeMap<Option<u32>, Memory> = BTreeMap::new();
    let empty = |node| Memory { node, channels: Vec::new(), silent: 0 };
    let channels: Vec<&Row> = sources.iter().filter(|source| source.instance.scope == "channel").collect();
    if !channels.iter().any(|channel| MEMORY.iter().any(|name| channel.mean(name).is_some())) {
        return Vec::new();
    }
    for channel in &channels {
        nodes.entry(channel.instance.node).or_insert_with(|| empty(channel.instance.node)).channels.push(channel);
    }
    let mut silent = BTreeSet::new();
    for record in section.silent.iter().copied() {
        let Some(instance) = record.instance.as_ref().filter(|instance| instance.scope == "channel") else {
            continue;
        };
        let cpu = model::cpu_of(record);
        let is_known = channels.iter().any(|channel| {
            channel.instance.node == instance.node
                && channel.instance.pmu == instance.pmu
                && model::cpu_of(channel.record) == cpu
        });
        if !is_known && silent.insert((instance.node, &instance.pmu, cpu)) {
            nodes.entry(instance.node).or_insert_with(|| empty(instance.node)).silent += 1;
        }
    }
    nodes.into_values().collect()
}

/// Which nodes have no sum, and why.
fn lacking(memory: &[Memory]) -> Option<String> {
    let of = |node: &Memory| {
        let lacks =
            MEMORY.iter().filter(|name| memory.iter().any(|other| other.has(name))).map(|name| node.lacks(name));
        let lacks = lacks.max().filter(|lacks| *lacks > 0)?;
        let verb = if lacks == 1 { "has" } else { "have" };
        Some(format!("{}: no sum, {} {verb} no figure.", node.name(), counted(lacks, "channel")))
    };
    Some(memory.iter().filter_map(of).collect::<Vec<_>>().join(" ")).filter(|words| !words.is_empty())
}

fn memory_over_time(memory: &[Memory]) -> Option<Figure> {
    let most = memory
        .iter()
        .flat_map(|node| MEMORY.map(|name| node.channels.iter().filter_map(|one| one.most(name)).sum::<f64>()));
    let (per, unit) = unit(most.fold(0.0, f64::max));
    let mut lines = Vec::new();
    for node in memory {
        for (way, metric) in ["read", "write"].into_iter().zip(MEMORY) {
            if node.lacks(metric) == 0 {
                lines.push(sum(&format!("{} {way}", node.name()), &node.channels, metric, per, true));
            }
        }
    }
    let table = Rows::of(memory).columns(&[
        ("DRAM", 8, Left, &|node| node.name()),
        ("Channels", 8, Right, &|node| node.count().to_string()),
        ("Read mean(MB/s)", 9, Right, &|node| mega(node.mean(MEMORY[0]))),
        ("Write mean(MB/s)", 9, Right, &|node| mega(node.mean(MEMORY[1]))),
    ]);
    let all: Vec<&Row> = memory.iter().flat_map(|node| &node.channels).copied().collect();
    let notes = [Some(note(0, 0, &all, &MEMORY)).filter(|note| !note.is_empty()), lacking(memory)];
    (!memory.is_empty()).then(|| Figure {
        heading: "DRAM".to_owned(),
        note: notes.into_iter().flatten().collect::<Vec<_>>().join(" "),
        chart: (!lines.is_empty())
            .then(|| Chart::Times(Times { up: unit.to_owned(), lines, least: LEAST * 1e6 / per })),
        table,
        is_digest: false,
    })
}

/// Errors, retries and recoveries of the ports that had any.
fn events_over_time(sources: &[Row]) -> Option<Figure> {
    let mut table = Columns::new(&[("Port", 12, Left), ("What", 14, Left), ("Count", 7, Right)]);
    let mut lines = Vec::new();
    for source in sources {
        let mut put =
            |names: &[&str], words: &str, count: Option<f64>, points: &dyn Fn() -> Vec<(f64, Option<f64>)>| {
                let Some(count) = count.filter(|count| *count > 0.0) else { return };
                let title = source.title(names);
                table.row(vec![title.clone(), words.to_owned(), figure(count)]);
                if lines.len() < 2 * MOST_LINES {
                    lines.push(TimesLine { name: format!("{title} {words}"), points: points() });
                }
            };
        for (layer, words) in LAYERS {
            let names: Vec<&str> = traffic::error_counters(Some(layer)).collect();
            let count = traffic::errors_of_layer(layer, |name| source.sum(name));
            put(&names, words, count, &|| source.errors_of_layer(layer));
        }
        for name in REPAIRS {
            put(&[name], name, source.sum(name), &|| source.points(name, 1.0));
        }
    }
    (!lines.is_empty()).then(|| Figure {
        heading: "Errors and retries by interval".to_owned(),
        note: thinned(sources).unwrap_or_default(),
        chart: Some(Chart::Times(Times { up: "events in an interval".to_owned(), lines, least: 1.0 })),
        table,
        is_digest: false,
    })
}

fn by_port(sources: &[Row]) -> Option<Figure> {
    let (busy, idle) = busiest(sources);
    let table = Rows::of(&busy).columns(&[
        ("Port", 12, Left, &|port| port.title(&TRAFFIC)),
        ("Rx(MB/s)", 9, Right, &|port| mega(port.mean(TRAFFIC[0]))),
        ("Tx(MB/s)", 9, Right, &|port| mega(port.mean(TRAFFIC[1]))),
    ]);
    let rates = |port: &&Row| (port.name(), port.title(&TRAFFIC), TRAFFIC.map(|name| port.mean(name)));
    let rows: Vec<Rates> = busy.iter().map(rates).collect();
    // The colours' places: Tx is the first, Rx the fourth.
    let series = ["Tx, to the device", "", "", "Rx, from the device"];
    let (chart, note) = two_parts(&rows, [(3, "Rx"), (0, "Tx")], &series, &note(idle, 0, &busy, &TRAFFIC));
    (!busy.is_empty()).then(|| Figure { heading: "PCIe by root port".to_owned(), note, chart, table, is_digest: false })
}

fn memory_by_node(memory: &[Memory]) -> Option<Figure> {
    let table = Rows::of(memory).columns(&[
        ("DRAM", 8, Left, &|node| node.name()),
        ("Channels", 8, Right, &|node| node.count().to_string()),
        ("Read(MB/s)", 9, Right, &|node| mega(node.mean(MEMORY[0]))),
        ("Write(MB/s)", 9, Right, &|node| mega(node.mean(MEMORY[1]))),
    ]);
    let rows: Vec<Rates> =
        memory.iter().map(|node| (node.name(), node.name(), MEMORY.map(|name| node.mean(name)))).collect();
    let note = lacking(memory).unwrap_or_default();
    let (chart, note) = two_parts(&rows, [(0, "read"), (1, "written")], &["read", "written"], &note);
    (!rows.is_empty()).then(|| Figure { heading: "DRAM by node".to_owned(), note, chart, table, is_digest: false })
}

/// A bar's name, its label, and the rates of its two parts.
type Rates = (String, String, [Option<f64>; 2]);

/// A bar of two stacked rates for each row; `parts` are their colours and words.
fn two_parts(rows: &[Rates], parts: [(usize, &str); 2], series: &[&str], note: &str) -> (Option<Chart>, String) {
    let sum = |rates: &[Option<f64>; 2]| rates.iter().flatten().sum::<f64>();
    let (per, unit) = unit(rows.iter().map(|row| sum(&row.2)).fold(0.0, f64::max));
    let bar = |(name, label, rates): &Rates| {
        let part = |(rate, (colour, word)): (&Option<f64>, (usize, &str))| {
            Some((colour, (*rate)? / per, format!("{name} {word}: {} MB/s", mega(*rate))))
        };
        let parts = rates.iter().zip(parts).filter_map(part).collect();
        Bar { label: label.clone(), parts, mark: None, figure: number(sum(rates) / per) }
    };
    let series = series.iter().map(|name| (*name).to_owned()).collect();
    drawn_few(Bars { across: unit.to_owned(), series, bars: rows.iter().map(bar).collect(), mark: None }, note)
}
