//! Hardware counters: the traffic in total and at the busiest port, then a row for each port with traffic and for
//! memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pciescope_core::recording::Total;
use pciescope_core::{Bdf, Instance, Record, traffic};

use super::conclusions::{Conclusions, Place, are, labelled, largest};
use super::rules::BUSY;
use super::{Fact, Facts, WIDTH};
use crate::counters::{CHANNEL, PORT, Row, others, rows, states};
use crate::figures::counters::{MEMORY, TRAFFIC, memory_of, sources};
use crate::layout::{Columns, Left, Right, Rows};
use crate::model::{self, Section, source_name};
use crate::style::{Tone, paint};
use crate::text::{clean, counted, cut, figure, first_of, rate, thousands};

/// Rows below a heading before it is written again.
const HEAD_EVERY: usize = 20;
/// The facts of a whole run.
pub(super) fn facts(section: &Section) -> Facts {
    let all = rows(&section.records);
    let view = View::of(&all);
    let seconds: f64 = all.iter().map(|row| row.seconds).fold(0.0, f64::max);
    let intervals = all.iter().map(|row| row.intervals).max().unwrap_or(0);
    let of = if intervals > 1 { format!(", {} intervals", thousands(intervals as u64)) } else { String::new() };
    let title = view.title(&format!("over {seconds:.3} s{of}"));
    let mut facts = Facts::of(section, &title);
    view.say(&mut facts, section);
    facts.tiles = view.tiles(section);
    facts.mark_section(section);
    let busy = view.columns(true);
    // What was asked for by name is what the user wants to see.
    let named = states(&all).or_else(|| others(&all));
    facts.table = if busy.rows().is_empty() { named } else { Some(busy) };
    let idle = view.idle();
    let hidden = [(idle, "idle port"), (view.folded(), "function below a port")].into_iter().filter(|(n, _)| *n > 0);
    let hidden: Vec<String> = hidden.map(|(count, word)| counted_first(count, word)).collect();
    facts.below = (!hidden.is_empty()).then(|| format!("not shown without --all: {}", hidden.join(", ")));
    facts
}

/// The rows of each interval as it comes.
#[derive(Debug, Default)]
pub struct Intervals {
    /// Lines since the last heading; `None` before the first.
    lines: Option<usize>,
}

impl Intervals {
    /// The rows of one interval's records: ports with traffic, memory, and what was asked for by name; one line that says
    /// so where nothing moves. Ends with a newline.
    pub fn next(&mut self, records: &[Record]) -> String {
        let end_s = records.iter().filter_map(|record| record.interval).map(|interval| interval.end_ns).max();
        let all = rows(&records.iter().collect::<Vec<_>>());
        let time = format!("{:.3}", end_s.unwrap_or(0) as f64 / 1e9);
        let is = |what: fn(&Record) -> bool| records.iter().any(what);
        let unreal = match (is(model::is_synthetic), is(model::is_emulated)) {
            (true, _) => " SYNTHETIC",
            (false, true) => " EMULATED",
            (false, false) => "",
        };
        let view = View::of(&all);
        let mut lines = Vec::new();
        let columns = view.columns(false);
        if !columns.rows().is_empty() {
            let mut table = columns.lines().into_iter();
            let head = table.next().unwrap_or_default();
            if self.lines.is_none_or(|lines| lines >= HEAD_EVERY) {
                lines.push(paint(Tone::Dim, &format!("{:>8}  {head}{unreal}", "Time(s)")));
                self.lines = Some(0);
            }
            lines.extend(table.enumerate().map(|(number, row)| match number {
                0 => format!("{time:>8}  {row}"),
                _ => format!("{:>8}  {row}", ""),
            }));
        } else {
            let idle = if view.idle() > 0 { format!("  {}", counted(view.idle(), "idle port")) } else { String::new() };
            lines.push(paint(Tone::Dim, &format!("{time:>8}{idle}{unreal}")));
        }
        for table in [states(&all), others(&all)].into_iter().flatten() {
            lines.extend(table.lines());
        }
        self.lines = self.lines.map(|before| before + lines.len());
        lines.into_iter().map(|line| line + "\n").collect()
    }
}

/// The rows of a table of traffic.
pub(super) struct View<'a, 'r> {
    /// Root ports and functions on a root bus by address: each byte is in one of them.
    pub(super) links: Vec<&'a Row<'r>>,
    /// What counted the same bytes again: the kernel where hardware did, and functions below a port.
    again: Vec<&'a Row<'r>>,
    /// Dies and their total, or channels where there is no sum of them.
    pub(super) memory: Vec<&'a Row<'r>>,
}

impl<'a, 'r> View<'a, 'r> {
    pub(super) fn of(all: &'a [Row<'r>]) -> Self {
        let is_port = |row: &&Row| {
            row.has_any(&PORT) || errors(row).is_some() || (row.instance.scope == "port" && row.record.error.is_some())
        };
        let has_sum = all.iter().any(|row| row.instance.scope == "total");
        let is_memory = |row: &&Row| row.has_any(&CHANNEL) && !(has_sum && row.instance.scope == "channel");
        let hardware = model::hardware_ports(all.iter().map(|row| row.record));
        let (links, again) =
            all.iter().filter(is_port).partition(|row| hardware.counts_once(model::counted_by(row.record)));
        View { links, again, memory: all.iter().filter(is_memory).collect() }
    }

    fn busy(&self) -> impl Iterator<Item = &&'a Row<'r>> {
        self.links.iter().filter(|row| !is_idle(row))
    }

    fn idle(&self) -> usize {
        self.links.iter().filter(|row| is_idle(row)).count()
    }

    /// Whether a row that counts the same bytes again tells something new: what the kernel counted beside hardware, and
    /// functions that share a port.
    fn is_telling(&self, row: &Row) -> bool {
        let is_endpoint = |row: &Row| row.instance.scope == "function" && row.instance.below.is_empty();
        let port = |row: &Row| row.record.device.as_ref().and_then(|device| device.path.first().copied());
        let shares = || {
            let busy = self.again.iter().filter(|other| is_endpoint(other) && !is_idle(other));
            busy.filter(|other| port(other) == port(row)).count() > 1
        };
        !is_idle(row) && (row.instance.scope != "function" || (is_endpoint(row) && shares()))
    }

    /// Functions with traffic that have no row of their own.
    fn folded(&self) -> usize {
        self.again.iter().filter(|row| !is_idle(row) && !self.is_telling(row)).count()
    }

    /// What all memory did: a die is only a part of it.
    fn total(&self) -> Option<&Row<'r>> {
        match self.memory.as_slice() {
            [one] => Some(*one),
            several => several.iter().copied().find(|row| row.instance.scope == "total"),
        }
    }

    /// Who counted, and for how long.
    fn title(&self, time: &str) -> String {
        let by_kernel = self.links.iter().filter(|row| row.instance.is_accounting()).count();
        match by_kernel {
            0 => format!("Counters {time}"),
            all if all == self.links.len() => format!("Kernel accounting {time}: a lower bound (>=) of the payload"),
            some => format!("Counters {time}; {} by kernel accounting, a lower bound (>=)", counted(some, "port")),
        }
    }

    /// The sum of a rate over all ports: `>=` before one that has a lower bound in it, `~` before one that is estimated.
    fn sum(&self, name: &str) -> String {
        let metrics = || self.links.iter().filter_map(|row| row.metrics.get(name));
        let bound = if metrics().any(|metric| metric.at_least) { ">=" } else { "" };
        let estimated = if self.is_estimated(name) { "~" } else { "" };
        // The sum of none is -0.
        let total = metrics().map(|metric| metric.value).filter(|value| value.is_finite()).sum::<f64>() + 0.0;
        format!("{bound}{estimated}{}", rate(total))
    }

    fn is_estimated(&self, name: &str) -> bool {
        self.links.iter().filter_map(|row| row.metrics.get(name)).any(|metric| metric.running.is_some())
    }

    /// The port that uses most of its link, and how much in percent.
    fn busiest(&self) -> Option<(f64, &Row<'r>)> {
        self.busy().filter_map(|row| Some((share(row)?, *row))).max_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// What moved in all, and where most of it did.
    fn say(&self, facts: &mut Facts, section: &Section) {
        if !self.links.is_empty() {
            let (rx, tx, busy) = (self.sum(TRAFFIC[0]), self.sum(TRAFFIC[1]), self.busy().count());
            facts.lines.push(format!("PCIe: Rx {rx}, Tx {tx} at {busy} of {}", counted(self.links.len(), "port")));
            let busiest = self.busiest();
            facts.lines.extend(busiest.map(|(share, row)| format!("busiest {}: {share:.1} % of its link", row.name())));
        }
        if let Some(total) = self.total() {
            let rates = MEMORY.map(|name| value(total, name));
            let [read, written] = rates.map(|known| known.map_or_else(|| "not known".to_owned(), rate));
            let peak =
                value(total, "peak_share").map(|share| format!(", {share:.1} % of the peak")).unwrap_or_default();
            if rates.iter().any(Option::is_some) {
                facts.lines.push(format!("DRAM: read {read}, written {written}{peak}"));
            }
        } else if self.memory.iter().any(|row| row.has_any(&MEMORY)) {
            facts.lines.push("DRAM: the total is not known: there is no sum of all channels".to_owned());
        }
        let errors = link_errors(section);
        if let Some((record, most)) = errors.iter().max_by(|a, b| a.1.total_cmp(&b.1)) {
            facts.lines.push(match *most > 0.0 {
                false => paint(Tone::Good, "no link error"),
                true => {
                    let count = figure(errors.iter().map(|(_, count)| count).sum());
                    paint(Tone::Bad, &format!("{count} link errors, most at {}", source_name(record)))
                }
            });
        }
    }

    /// The figures of the first screen: of ports, else of memory.
    fn tiles(&self, section: &Section) -> Vec<Fact> {
        let took_turns = "estimated: counters took turns";
        if self.links.iter().any(|row| row.has_any(&TRAFFIC)) {
            let about = |name| if self.is_estimated(name) { took_turns } else { "mean, all ports" };
            let of = |title, name| Fact::plain(title, self.sum(name), about(name));
            let busiest = match self.busiest() {
                Some((share, row)) => (format!("{share:.1} %"), format!("of its link, {}", row.name())),
                None => ("-".to_owned(), format!("{} of {} ports without traffic", self.idle(), self.links.len())),
            };
            let errors = link_errors(section).into_iter().map(|(_, count)| count).reduce(|a, b| a + b);
            return vec![
                of("From devices (Rx)", TRAFFIC[0]),
                of("To devices (Tx)", TRAFFIC[1]),
                Fact::plain("Busiest port", busiest.0, busiest.1),
                Fact::losses("Link errors", errors.map(|sum| (sum, true)), "all ports"),
            ];
        }
        let sources = sources(section);
        let nodes = memory_of(section, &sources);
        let tile = |title: &'static str, name: &str| {
            let sum = nodes.iter().map(|node| node.mean(name)).reduce(|a, b| Some(a? + b?)).flatten();
            let is_estimated = sources.iter().any(|source| source.running(&[name]).is_some());
            let note = match nodes.iter().map(|node| node.lacks(name)).sum::<usize>() {
                _ if !nodes.iter().any(|node| node.has(name)) => "not counted".to_owned(),
                0 if is_estimated => took_turns.to_owned(),
                0 => "mean, all channels".to_owned(),
                lacks => format!("no sum: {} without a figure", counted(lacks, "channel")),
            };
            let mark = if is_estimated { "~" } else { "" };
            Fact::plain(title, sum.map_or("-".to_owned(), |sum| format!("{mark}{}", rate(sum))), note)
        };
        if nodes.is_empty() { Vec::new() } else { vec![tile("DRAM read", MEMORY[0]), tile("DRAM written", MEMORY[1])] }
    }

    /// One row for each port with traffic and for memory; `beside` adds what counted the same bytes again.
    fn columns(&self, beside: bool) -> Columns {
        let mut rows: Vec<&Row> = self.busy().copied().collect();
        if beside {
            rows.extend(self.again.iter().filter(|row| self.is_telling(row)));
        }
        // The kernel's count of a port stands below that of hardware.
        rows.sort_by_key(|row| (row.bdf().is_none(), row.bdf(), row.instance.is_accounting()));
        let mut before = None;
        let links = rows.into_iter().map(|row| {
            let is_second = row.bdf().is_some() && row.bdf() == before;
            before = row.bdf();
            let name = if is_second && row.instance.is_accounting() { "  kernel".to_owned() } else { row.name() };
            let error = row.record.error.as_ref().map(|error| format!("error: {}", clean(&error.code)));
            let what = cut(&error.unwrap_or_else(|| below(row)), WHAT);
            (row, name, ["rx_bytes_per_s", "tx_bytes_per_s"], share(row), errors(row), what)
        });
        let memory = self.memory.iter().map(|row| {
            let what = match (row.instance.scope.as_str(), row.instance.parts) {
                ("channel", _) => "channel".to_owned(),
                (_, Some(parts)) => counted(parts as usize, "channel"),
                _ => String::new(),
            };
            let name = match row.instance.scope.as_str() {
                "die" | "total" => format!("DRAM {}", row.name()),
                _ => row.name(),
            };
            (*row, name, ["read_bytes_per_s", "write_bytes_per_s"], value(row, "peak_share"), None, what)
        });
        Rows::of(links.chain(memory)).columns(&[
            ("Where", 12, Left, &|(_, name, ..)| name.clone()),
            ("Rx,Rd MB/s", 10, Right, &|(row, _, [from, _], ..)| rate_cell(row, from)),
            ("Tx,Wr MB/s", 10, Right, &|(row, _, [_, to], ..)| rate_cell(row, to)),
            ("Of max %", 8, Right, &|(.., share, _, _)| share.map_or("-".to_owned(), |share| format!("{share:.1}"))),
            ("Errors", 6, Right, &|(.., errors, _)| errors.map_or("-".to_owned(), figure)),
            ("What", 4, Left, &|(.., what)| what.clone()),
        ])
    }
}

/// Columns that are left for the devices below a port.
const WHAT: usize = WIDTH - 10 - (12 + 10 + 10 + 8 + 6 + 5 * 2);

pub(super) fn value(row: &Row, name: &str) -> Option<f64> {
    row.metrics.get(name).map(|metric| metric.value).filter(|value| value.is_finite())
}

/// A rate in MB/s, `~` before one that was scaled to the whole time.
fn rate_cell(row: &Row, name: &str) -> String {
    let is_scaled = row.metrics.get(name).is_some_and(|metric| metric.running.is_some() && metric.value > 0.0);
    let mark = if is_scaled { "~" } else { "" };
    row.cell(name, |value| format!("{mark}{:.2}", value / 1e6))
}

/// How much of its link the busier direction of a port uses, in percent.
fn share(row: &Row) -> Option<f64> {
    ["rx_link_share", "tx_link_share"].iter().filter_map(|name| value(row, name)).reduce(f64::max)
}

/// Link errors; `None` where nobody counts them.
fn errors(row: &Row) -> Option<f64> {
    traffic::errors(|name| value(row, name))
}

fn is_idle(row: &Row) -> bool {
    let rates = ["rx_bytes_per_s", "tx_bytes_per_s"].map(|name| value(row, name));
    traffic::is_idle(rates, errors(row)) && row.record.error.is_none()
}

/// The first device below a port by its name, else by its address, and how many more there are. The domain 0 is left out.
pub(super) fn below(row: &Row) -> String {
    let all: Vec<String> = row.instance.below.iter().flat_map(|below| below.devices.clone()).collect();
    let Some(first) = row.instance.below.first() else {
        return if row.instance.scope == "function" { row.called() } else { String::new() };
    };
    let bdf = first.bdf.to_string();
    let bdf = without_domain(&bdf);
    let words = first.driver.as_deref().unwrap_or(&first.name);
    let more = match row.instance.below.len() {
        1 => String::new(),
        several => format!(" +{}", several - 1),
    };
    first_of(&all).unwrap_or_else(|| format!("{bdf} {}{more}", clean(words)))
}

/// An address without its domain where that is 0.
fn without_domain(name: &str) -> &str {
    name.strip_prefix("0000:").unwrap_or(name)
}

/// `2 functions below a port`: the first word has the plural.
fn counted_first(count: usize, words: &str) -> String {
    let (first, rest) = words.split_once(' ').filter(|(first, _)| *first == "function").unwrap_or((words, ""));
    format!("{} {rest}", counted(count, first)).trim_end().to_owned()
}

pub(super) fn conclude(out: &mut Conclusions, number: usize, section: &Section) {
    let place = Place::Section(number);
    let name = |record: &Record| labelled(&source_name(record), record);
    // All figures of each record together.
    let all = |record: &Record| {
        record.totals().fold(Total::default(), |mut all, (.., total)| {
            all.add(&total);
            all
        })
    };
    let totals: Vec<(Total, &Record)> = section.records.iter().map(|record| (all(record), *record)).collect();
    let shares = totals.iter().filter_map(|(total, record)| Some((total.least?, *record)));
    let total: usize = totals.iter().map(|one| one.0.count).sum();
    // Of equal ones the first in the file.
    match shares.min_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((least, record)) => {
            let scaled: usize = totals.iter().map(|one| one.0.scaled).sum();
            out.doubt(
                4,
                place,
                format!(
                    "{scaled} of {total} counted figures are scaled: the counters ran for a part of the time, {} for {:.1} %, the least.",
                    name(record),
                    least * 100.0
                ),
            );
            out.advise(
                5,
                place,
                "Count fewer events at once: what is scaled misses what happened while it did not run.".to_owned(),
            );
        }
        None if total > 0 => {
            out.good(number, format!("{} counted for the whole time, none is scaled.", are(total, "figure", "is")))
        }
        None => {}
    }
    let is_account = |record: &Record| record.instance.as_ref().is_some_and(Instance::is_accounting);
    let limits: usize = totals.iter().filter(|(_, record)| !is_account(record)).map(|one| one.0.bounds).sum();
    if limits > 0 {
        out.doubt(
            3,
            place,
            format!("{} only known from below: a counter reached its end.", are(limits, "counted figure", "is")),
        );
        out.advise(5, place, "Read counters more often (a shorter -I): some reached their end.".to_owned());
    }
    judge_errors(out, number, section, &name);
    for (what, names) in
        [("link's ceiling", ["rx_link_share", "tx_link_share"]), ("DRAM peak", ["peak_share", "peak_share"])]
    {
        let busiest =
            names.iter().filter_map(|name| largest(&section.records, name)).max_by(|a, b| a.0.total_cmp(&b.0));
        let Some((share, record)) = busiest else { continue };
        let words = format!("{} uses {share:.1} % of its {what}, the most of all", name(record));
        let limit = BUSY.limit;
        if share > 100.0 {
            out.doubt(0, place, format!("{words}: more than it can carry, invalid."));
        } else if share > limit {
            out.doubt(5, place, format!("{words}: above {limit} % little is left."));
        } else {
            out.good(number, format!("{words}; up to {limit} % is good."));
        }
    }
}

/// The links of a section, each with its errors, where it counts any. What hardware and the kernel counted at one port are
/// not added: the kernel's account counts where hardware found nothing. An account of a port has what the functions below
/// it reported.
pub(crate) fn link_errors<'r>(section: &Section<'r>) -> Vec<(&'r Record, f64)> {
    let bdf = |record: &Record| record.device.as_ref().and_then(|device| device.bdf);
    let is_function = |record: &Record| record.instance.as_ref().is_some_and(|instance| instance.scope == "function");
    let hardware = model::hardware_ports(section.records.iter().copied());
    let ports: BTreeSet<Bdf> =
        section.records.iter().copied().filter(|record| !is_function(record)).filter_map(bdf).collect();
    let mut links: Vec<(&Record, [BTreeMap<&str, f64>; 2])> = Vec::new();
    let mut places = HashMap::new();
    for record in section.records.iter().copied() {
        let path = record.device.as_ref().map_or(&[][..], |device| &device.path);
        if is_function(record) && path.iter().any(|above| ports.contains(above)) {
            continue;
        }
        let finite = |name: &str| record.total(name).filter(|total| total.known() > 0).map(|total| total.finite);
        let pmu =
            record.instance.as_ref().map(|instance| (&instance.pmu, instance.node)).filter(|_| bdf(record).is_none());
        let place = *places.entry((bdf(record), pmu, record.label.as_deref())).or_insert_with(|| {
            links.push((record, Default::default()));
            links.len() - 1
        });
        let known = &mut links[place].1[usize::from(hardware.is_second(model::counted_by(record)))];
        for name in traffic::error_counters(None) {
            if let Some(count) = finite(name) {
                *known.entry(name).or_default() += count;
            }
        }
    }
    let count = |sums: [BTreeMap<&str, f64>; 2]| {
        let [first, second] = sums.map(|counts| traffic::errors(|name| counts.get(name).copied()));
        first.filter(|count| *count != 0.0).or(second).or(first)
    };
    links.into_iter().filter_map(|(record, sums)| Some((record, count(sums)?))).collect()
}

fn judge_errors(out: &mut Conclusions, number: usize, section: &Section, name: &dyn Fn(&Record) -> String) {
    let links = link_errors(section);
    let ports: BTreeMap<String, f64> = links.iter().fold(BTreeMap::new(), |mut ports, (record, count)| {
        *ports.entry(name(record)).or_default() += count;
        ports
    });
    for (port, count) in ports.iter().filter(|(_, count)| **count > 0.0) {
        out.doubt(3, Place::Section(number), format!("{port}: {} link errors were counted.", figure(*count)));
        out.advise(
            4,
            Place::Section(number),
            format!("{port}: look at the link below it, slot, riser and cable: it repeats or loses packets."),
        );
    }
    if !ports.is_empty() && ports.values().all(|count| *count == 0.0) {
        out.good(number, format!("No link error was counted at {}.", counted(ports.len(), "port")));
    }
}
