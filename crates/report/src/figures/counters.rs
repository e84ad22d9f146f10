//! Counters over the intervals of a run: the traffic of the busiest ports, DRAM by node, errors. A run of one interval has
//! bars in place of lines.

use std::collections::BTreeMap;

use pciescope_core::joined;

use super::{Figure, drawn_few};
use crate::chart::{Bar, Bars, Chart, Times, TimesLine, number};
use crate::kept::Kept;
use crate::model::{self, Section};
use crate::table::counters::{ERRORS, RETRIES};
use crate::table::layout::{Columns, Left, Right, Rows};
use crate::text::{clean, figure};

/// So many of the busiest have a line of their own; the others are added up.
const MOST_LINES: usize = 6;
/// What moves less in the mean, in bytes per second, is idle.
pub(crate) const IDLE: f64 = 1000.0;
/// The axis of a chart reaches at least so far, in MB/s.
const LEAST: f64 = 0.1;
/// What a port carries.
pub(crate) const TRAFFIC: [&str; 2] = ["rx_bytes_per_s", "tx_bytes_per_s"];
/// What a channel carries.
const MEMORY: [&str; 2] = ["read_bytes_per_s", "write_bytes_per_s"];
/// Counts of a link's errors and of what came of them.
const EVENTS: [&[&str]; 3] = [&ERRORS, &RETRIES, &["recoveries"]];

/// The figures of a run in the order in which they matter.
pub fn of(section: &Section) -> Vec<Figure> {
    let sources = sources(section);
    let intervals = sources.iter().map(Source::count).max().unwrap_or(0);
    let mut figures = Vec::new();
    if intervals > 1 {
        figures.extend(over_time(&sources, ("rx", "Rx"), "PCIe, from the devices (Rx)"));
        figures.extend(over_time(&sources, ("tx", "Tx"), "PCIe, to the devices (Tx)"));
        figures.extend(memory_over_time(&sources));
        figures.extend(events_over_time(&sources));
    } else {
        figures.extend(by_port(&sources));
        figures.extend(memory(&sources));
    }
    figures
}

/// A port, a channel or another PMU with its intervals.
pub(crate) struct Source<'r> {
    pub name: String,
    pub node: Option<u32>,
    /// `port`, `channel` and others, as in records.
    pub scope: &'r str,
    /// The records that it is of.
    kept: Vec<&'r Kept>,
    /// What is known of each figure.
    figures: BTreeMap<&'r str, Known>,
    /// The least share of the time in which the counters of a figure ran, where that was not all.
    running: BTreeMap<&'r str, f64>,
}

/// What is known of a figure over all intervals: only what is finite.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// Values times seconds, and seconds.
    weighted: (f64, f64),
    most: Option<f64>,
    sum: f64,
    count: usize,
}

impl Source<'_> {
    /// The mean of a rate over the time in which it is known.
    pub fn mean(&self, name: &str) -> Option<f64> {
        let (sum, time) = self.figures.get(name)?.weighted;
        (time > 0.0).then(|| sum / time)
    }
    /// The largest of an interval.
    pub fn most(&self, name: &str) -> Option<f64> {
        self.figures.get(name)?.most
    }
    /// The sum over the intervals.
    pub fn sum(&self, name: &str) -> Option<f64> {
        let known = self.figures.get(name)?;
        (known.count > 0).then_some(known.sum)
    }
    /// How many points its course has.
    fn count(&self) -> usize {
        self.kept.iter().map(|one| one.series.as_ref().map_or(1, |series| series.points().len())).sum()
    }
    /// How many intervals a point of its course is the mean of.
    fn per_point(&self) -> usize {
        self.kept.iter().filter_map(|one| Some(one.series.as_ref()?.per_point())).max().unwrap_or(1)
    }
    /// Both directions together in the mean; 0 where neither is known.
    pub fn traffic(&self) -> f64 {
        self.mean("rx_bytes_per_s").unwrap_or(0.0) + self.mean("tx_bytes_per_s").unwrap_or(0.0)
    }
    pub fn is_port(&self) -> bool {
        self.figures.contains_key("rx_bytes_per_s") || self.figures.contains_key("tx_bytes_per_s")
    }
    fn is_channel(&self) -> bool {
        self.scope == "channel" && self.figures.contains_key("read_bytes_per_s")
    }
    /// The least share of the time in which the counters of these figures ran; `None` where that was all of it.
    pub fn running(&self, names: &[&str]) -> Option<f64> {
        names.iter().filter_map(|name| self.running.get(name).copied()).reduce(f64::min)
    }
    /// The name with `~` where one of these figures is estimated.
    fn title(&self, names: &[&str]) -> String {
        if self.running(names).is_some() { format!("~{}", self.name) } else { self.name.clone() }
    }
    /// The course of a figure: the ends of its intervals in seconds since the run's beginning, and its values.
    fn points(&self, name: &str, per: f64) -> Vec<(f64, Option<f64>)> {
        let mut points = Vec::with_capacity(self.count());
        for one in &self.kept {
            match (&one.series, one.interval) {
                (Some(series), _) => {
                    let joined = series.figure(name);
                    let value = |place| joined.and_then(|joined| joined.value(place));
                    points.extend(
                        series
                            .points()
                            .iter()
                            .enumerate()
                            .map(|(n, point)| (point.at, point.end_ns as f64 / 1e9, value(n))),
                    );
                }
                (None, Some(interval)) => {
                    let value = one.metrics.get(name).map(|figure| figure.value).filter(|value| value.is_finite());
                    points.push((one.at, interval.end_ns as f64 / 1e9, value));
                }
                (None, None) => {}
            }
        }
        points.sort_by_key(|point| point.0);
        points.into_iter().map(|(_, second, value)| (second, value.map(|value| value / per))).collect()
    }
}

/// What counted, in the order of the records.
pub(crate) fn sources<'r>(section: &Section<'r>) -> Vec<Source<'r>> {
    let mut sources: Vec<Source> = Vec::new();
    let mut places: BTreeMap<(&str, String, Option<u32>), usize> = BTreeMap::new();
    let hardware = model::hardware_ports(section.records.iter().copied());
    for record in section.records.iter().copied() {
        let (Some(instance), Some(interval)) = (&record.instance, record.interval) else { continue };
        // What counted the same bytes again would be added up twice.
        if record.device.is_some() && !model::is_link(record, &hardware) {
            continue;
        }
        let (name, cpu) = (name(record), record.cpu.as_deref().map(|cpu| cpu.cpu));
        let place =
            *places.entry((instance.scope.as_str(), name.clone(), cpu.or(instance.node))).or_insert_with(|| {
                sources.push(Source {
                    name,
                    node: instance.node,
                    scope: &instance.scope,
                    kept: Vec::new(),
                    figures: BTreeMap::new(),
                    running: BTreeMap::new(),
                });
                sources.len() - 1
            });
        let source = &mut sources[place];
        source.kept.push(record);
        let mut put = |name: &'r str, one: Known, running: Option<f64>| {
            let known = source.figures.entry(name).or_default();
            known.weighted = (known.weighted.0 + one.weighted.0, known.weighted.1 + one.weighted.1);
            known.most = known.most.into_iter().chain(one.most).reduce(f64::max);
            (known.sum, known.count) = (known.sum + one.sum, known.count + one.count);
            if let Some(running) = running.filter(|running| *running < 1.0) {
                let least = source.running.entry(name).or_insert(running);
                *least = least.min(running);
            }
        };
        if let Some(series) = &record.series {
            for (name, joined) in series.figures() {
                let (sum, count) = joined.finite;
                let most = joined.most.map(|most| most.0);
                put(name, Known { weighted: joined.weighted, most, sum, count }, joined.running);
            }
            continue;
        }
        for (name, figure) in record.metrics.iter() {
            let one = match figure.value {
                value if value.is_finite() => {
                    let seconds = interval.seconds();
                    Known { weighted: (value * seconds, seconds), most: Some(value), sum: value, count: 1 }
                }
                _ => Known::default(),
            };
            put(name, one, figure.running);
        }
    }
    sources
}

fn name(record: &Kept) -> String {
    let bdf = record.device.as_deref().and_then(|device| device.bdf).map(|bdf| bdf.to_string());
    let instance = record.instance.as_deref();
    let pmu = || instance.and_then(|instance| instance.pmu.as_deref()).map(clean);
    let scope = || instance.map_or(String::new(), |instance| clean(&instance.scope));
    bdf.or_else(pmu).unwrap_or_else(scope)
}

/// MB/s, or GB/s where figures are large: bytes per second of the unit, and its name.
fn unit(most: f64) -> (f64, &'static str) {
    if most >= 10e9 { (1e9, "GB/s") } else { (1e6, "MB/s") }
}

fn mega(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{:.2}", value / 1e6))
}

/// The ports with traffic, the busiest first, and how many have none.
pub(crate) fn busiest<'s, 'r>(sources: &'s [Source<'r>]) -> (Vec<&'s Source<'r>>, usize) {
    let ports: Vec<&Source> = sources.iter().filter(|source| source.is_port()).collect();
    let mut busy: Vec<&Source> = ports.iter().copied().filter(|port| port.traffic() >= IDLE).collect();
    busy.sort_by(|a, b| b.traffic().total_cmp(&a.traffic()));
    let idle = ports.len() - busy.len();
    (busy, idle)
}

/// What the points of a long run are.
fn thinned<'s>(sources: impl IntoIterator<Item = &'s Source<'s>>) -> Option<String> {
    let per = sources.into_iter().map(Source::per_point).max().filter(|per| *per > 1)?;
    Some(format!("A point is the mean of {per} intervals; the table is of all of them."))
}

/// What was left out, and what marks mean.
fn note(idle: usize, others: usize, sources: &[&Source], names: &[&str]) -> String {
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

fn over_time(sources: &[Source], (way, word): (&str, &str), heading: &str) -> Option<Figure> {
    let metric = format!("{way}_bytes_per_s");
    let (busy, idle) = busiest(sources);
    let (mean, most) = (format!("{word} mean(MB/s)"), format!("{word} most(MB/s)"));
    let share = format!("{word} most(% of link)");
    let of_link = |port: &Source| port.most(&format!("{way}_link_share")).map(|share| format!("{share:.1}"));
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
        lines.push(sum(&format!("{} others", busy.len() - own), &busy[own..], &metric, per));
    }
    (!busy.is_empty()).then(|| Figure {
        heading: heading.to_owned(),
        note: note(idle, busy.len() - own, &busy, &[&metric]),
        chart: Some(Chart::Times(Times { up: unit.to_owned(), lines, least: LEAST * 1e6 / per })),
        table: table.without_empty(),
        is_digest: false,
    })
}

/// Several sources as one line, by the ends of their intervals.
fn sum(name: &str, sources: &[&Source], metric: &str, per: f64) -> TimesLine {
    let mut sums: BTreeMap<u64, Option<f64>> = BTreeMap::new();
    for (second, value) in sources.iter().flat_map(|source| source.points(metric, per)) {
        let sum = sums.entry((second * 1e9).round() as u64).or_default();
        *sum = joined(*sum, value, |sum, value| sum + value);
    }
    let points = sums.into_iter().map(|(ns, value)| (ns as f64 / 1e9, value)).collect();
    TimesLine { name: name.to_owned(), points }
}

/// The channels of each node.
fn nodes<'s, 'r>(sources: &'s [Source<'r>]) -> BTreeMap<Option<u32>, Vec<&'s Source<'r>>> {
    let mut nodes: BTreeMap<Option<u32>, Vec<&Source>> = BTreeMap::new();
    for channel in sources.iter().filter(|source| source.is_channel()) {
        nodes.entry(channel.node).or_default().push(channel);
    }
    nodes
}

fn called(node: Option<u32>, channels: &[&Source]) -> String {
    let name = node.map_or("node not known".to_owned(), |node| format!("node {node}"));
    if channels.iter().any(|channel| channel.running(&MEMORY).is_some()) { format!("~{name}") } else { name }
}

fn memory_over_time(sources: &[Source]) -> Option<Figure> {
    let nodes = nodes(sources);
    let mut lines = Vec::new();
    let add = |channels: &[&Source], name: &str| channels.iter().filter_map(|one| one.mean(name)).reduce(|a, b| a + b);
    let most = nodes.values().flat_map(|channels| {
        ["read_bytes_per_s", "write_bytes_per_s"]
            .map(|name| channels.iter().filter_map(|one| one.most(name)).sum::<f64>())
    });
    let (per, unit) = unit(most.fold(0.0, f64::max));
    for (node, channels) in &nodes {
        let name = called(*node, channels);
        for way in ["read", "write"] {
            lines.push(sum(&format!("{name} {way}"), channels, &format!("{way}_bytes_per_s"), per));
        }
    }
    let table = Rows::of(&nodes).columns(&[
        ("DRAM", 8, Left, &|(node, channels)| called(**node, channels)),
        ("Channels", 8, Right, &|(_, channels)| channels.len().to_string()),
        ("Read mean(MB/s)", 9, Right, &|(_, channels)| mega(add(channels, "read_bytes_per_s"))),
        ("Write mean(MB/s)", 9, Right, &|(_, channels)| mega(add(channels, "write_bytes_per_s"))),
    ]);
    let all: Vec<&Source> = nodes.values().flatten().copied().collect();
    (!lines.is_empty()).then(|| Figure {
        heading: "DRAM".to_owned(),
        note: note(0, 0, &all, &MEMORY),
        chart: Some(Chart::Times(Times { up: unit.to_owned(), lines, least: LEAST * 1e6 / per })),
        table,
        is_digest: false,
    })
}

/// Errors, retries and recoveries of the ports that had any.
fn events_over_time(sources: &[Source]) -> Option<Figure> {
    let mut table = Columns::new(&[("Port", 12, Left), ("What", 14, Left), ("Count", 7, Right)]);
    let mut lines = Vec::new();
    for source in sources {
        for name in EVENTS.concat() {
            let Some(count) = source.sum(name).filter(|count| *count > 0.0) else { continue };
            let words = name.replace('_', " ");
            let title = source.title(&[name]);
            table.row(vec![title.clone(), words.clone(), figure(count)]);
            if lines.len() < 2 * MOST_LINES {
                lines.push(TimesLine { name: format!("{title} {words}"), points: source.points(name, 1.0) });
            }
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

fn by_port(sources: &[Source]) -> Option<Figure> {
    let (busy, idle) = busiest(sources);
    let table = Rows::of(&busy).columns(&[
        ("Port", 12, Left, &|port| port.title(&TRAFFIC)),
        ("Rx(MB/s)", 9, Right, &|port| mega(port.mean(TRAFFIC[0]))),
        ("Tx(MB/s)", 9, Right, &|port| mega(port.mean(TRAFFIC[1]))),
    ]);
    let (per, unit) = unit(busy.iter().map(|port| port.traffic()).fold(0.0, f64::max));
    let mut bars = Vec::new();
    for port in &busy {
        let (rx, tx) = (port.mean("rx_bytes_per_s"), port.mean("tx_bytes_per_s"));
        let part = |place, word: &str, value: Option<f64>| {
            Some((place, value? / per, format!("{} {word}: {} MB/s", port.name, mega(value))))
        };
        bars.push(Bar {
            label: port.title(&TRAFFIC),
            parts: [part(3, "Rx", rx), part(0, "Tx", tx)].into_iter().flatten().collect(),
            mark: None,
            figure: number(port.traffic() / per),
        });
    }
    // The colours' places: Tx is the first, Rx the fourth.
    let series = ["Tx, to the device", "", "", "Rx, from the device"].map(str::to_owned).to_vec();
    let chart = Bars { across: unit.to_owned(), series, bars, mark: None };
    let (chart, note) = drawn_few(chart, &note(idle, 0, &busy, &TRAFFIC));
    (!busy.is_empty()).then(|| Figure { heading: "PCIe by root port".to_owned(), note, chart, table, is_digest: false })
}

fn memory(sources: &[Source]) -> Option<Figure> {
    let nodes = nodes(sources);
    let rate = |channels: &[&Source], name: &str| channels.iter().filter_map(|one| one.mean(name)).reduce(|a, b| a + b);
    let rates: Vec<(String, usize, Option<f64>, Option<f64>)> = nodes
        .iter()
        .map(|(node, channels)| {
            let (read, write) = (rate(channels, "read_bytes_per_s"), rate(channels, "write_bytes_per_s"));
            (called(*node, channels), channels.len(), read, write)
        })
        .collect();
    let table = Rows::of(&rates).columns(&[
        ("DRAM", 8, Left, &|(name, ..)| name.clone()),
        ("Channels", 8, Right, &|(_, channels, ..)| channels.to_string()),
        ("Read(MB/s)", 9, Right, &|(.., read, _)| mega(*read)),
        ("Write(MB/s)", 9, Right, &|(.., write)| mega(*write)),
    ]);
    let both = |row: &(String, usize, Option<f64>, Option<f64>)| row.2.unwrap_or(0.0) + row.3.unwrap_or(0.0);
    let (per, unit) = unit(rates.iter().map(both).fold(0.0, f64::max));
    let mut bars = Vec::new();
    for row in &rates {
        let (name, _, read, write) = row;
        let part = |place, word: &str, value: &Option<f64>| {
            Some((place, (*value)? / per, format!("{name} {word}: {} MB/s", mega(*value))))
        };
        bars.push(Bar {
            label: name.clone(),
            parts: [part(0, "read", read), part(1, "written", write)].into_iter().flatten().collect(),
            mark: None,
            figure: number(both(row) / per),
        });
    }
    let series = ["read", "written"].map(str::to_owned).to_vec();
    let (chart, note) = drawn_few(Bars { across: unit.to_owned(), series, bars, mark: None }, "");
    (!rates.is_empty()).then(|| Figure { heading: "DRAM by node".to_owned(), note, chart, table, is_digest: false })
}
