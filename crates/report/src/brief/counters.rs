//! Hardware counters: the traffic in total and at the busiest port, then a row for each port with traffic and for
//! memory.

use std::collections::HashMap;

use pciescope_core::{Metric, Record, traffic};

use super::{Answer, WIDTH, headed, label_unreal};
use crate::model::{self, Section};
use crate::style::{Tone, paint};
use crate::table::counters::{CHANNEL, Id, PORT, Row, others, rows, states};
use crate::table::layout::{Columns, Left, Right, Rows};
use crate::text::{clean, counted, cut, figure, thousands};

/// So many rows stand below a heading before it is written again.
const HEAD_EVERY: usize = 20;
/// The answer of a whole run.
pub(super) fn answer(section: &Section) -> Answer {
    let all = rows(&section.records);
    let view = View::of(&all);
    let seconds: f64 = all.iter().map(|row| row.seconds).fold(0.0, f64::max);
    let intervals = all.iter().map(|row| row.intervals).max().unwrap_or(0);
    let of = if intervals > 1 { format!(", {} intervals", thousands(intervals as u64)) } else { String::new() };
    let title = view.title(&format!("over {seconds:.3} s{of}"));
    let mut answer = Answer::new(&headed(section, &title));
    view.say(&mut answer);
    label_unreal(&mut answer, section);
    let busy = view.columns(true);
    // What was asked for by name is what the user wants to see.
    let named = states(&all).or_else(|| others(&all));
    answer.table = if busy.rows().is_empty() { named } else { Some(busy) };
    let idle = view.idle();
    let hidden = [(idle, "idle port"), (view.folded(), "function below a port")].into_iter().filter(|(n, _)| *n > 0);
    let hidden: Vec<String> = hidden.map(|(count, word)| counted_first(count, word)).collect();
    answer.below = (!hidden.is_empty()).then(|| format!("not shown without --all: {}", hidden.join(", ")));
    answer
}

/// The rows of each interval as it comes.
#[derive(Debug, Default)]
pub struct Intervals {
    /// Rows below the last heading; `None` before the first.
    rows: Option<usize>,
}

impl Intervals {
    /// The rows of one interval's records: ports with traffic, memory, how many ports are idle, and what was asked for by
    /// name. Ends with a newline.
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
            if self.rows.is_none_or(|rows| rows >= HEAD_EVERY) {
                lines.push(paint(Tone::Dim, &format!("{:>8}  {head}{unreal}", "Time(s)")));
                self.rows = Some(0);
            }
            lines.extend(table.enumerate().map(|(number, row)| match number {
                0 => format!("{time:>8}  {row}"),
                _ => format!("{:>8}  {row}", ""),
            }));
        } else {
            lines.push(paint(Tone::Dim, &format!("{time:>8} s{unreal}")));
        }
        if view.idle() > 0 {
            lines.push(paint(Tone::Dim, &format!("{:>8}  {}", "", counted(view.idle(), "idle port"))));
        }
        for table in [states(&all), others(&all)].into_iter().flatten() {
            lines.extend(table.lines());
        }
        self.rows = Some(self.rows.unwrap_or(0) + lines.len());
        lines.into_iter().map(|line| line + "\n").collect()
    }
}

/// The rows of a table of traffic.
struct View<'a, 'r> {
    /// Root ports and functions on a root bus by address: each byte is in one of them.
    links: Vec<&'a Row<'r>>,
    /// What counted the same bytes again: the kernel where hardware did, and functions below a port.
    again: Vec<&'a Row<'r>>,
    /// Dies and their total, or channels where there is no sum of them.
    memory: Vec<&'a Row<'r>>,
}

impl<'a, 'r> View<'a, 'r> {
    fn of(all: &'a [Row<'r>]) -> Self {
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

    /// What moved in all, and where most of it did.
    fn say(&self, answer: &mut Answer) {
        if !self.links.is_empty() {
            // The sum of none is -0. A sum with a lower bound is one.
            let sum = |name: &str| {
                let is_bound = self.links.iter().any(|row| row.metrics.get(name).is_some_and(|metric| metric.at_least));
                let total = self.links.iter().filter_map(|row| value(row, name)).sum::<f64>() + 0.0;
                format!("{}{}", if is_bound { ">=" } else { "" }, megabytes(total))
            };
            let busiest = self.busy().filter_map(|row| Some((share(row)?, row))).max_by(|a, b| a.0.total_cmp(&b.0));
            answer.line(format!(
                "PCIe: Rx {}, Tx {} at {} of {}",
                sum("rx_bytes_per_s"),
                sum("tx_bytes_per_s"),
                self.busy().count(),
                counted(self.links.len(), "port"),
            ));
            if let Some((share, row)) = busiest {
                answer.line(format!("busiest {}: {} of its link", row.name(), ceiling(share)));
            }
        }
        if let Some(total) = self.total() {
            let rates = MEMORY.map(|name| value(total, name));
            let part = |rate: Option<f64>| rate.map_or_else(|| "not known".to_owned(), megabytes);
            let peak = value(total, "peak_share").map(|share| format!(", {} of the peak", ceiling(share)));
            if rates.iter().any(Option::is_some) {
                answer.line(format!(
                    "DRAM: read {}, written {}{}",
                    part(rates[0]),
                    part(rates[1]),
                    peak.unwrap_or_default()
                ));
            }
        } else if self.memory.iter().any(|row| row.has_any(&MEMORY)) {
            answer.line("DRAM: the total is not known: there is no sum of all channels");
        }
        let errors_of = |rows: &[&'a Row<'r>]| -> Vec<(f64, &'a Row<'r>)> {
            rows.iter().map(|row| (errors(row).unwrap_or(0.0), *row)).filter(|(count, _)| *count > 0.0).collect()
        };
        if self.links.iter().any(|row| errors(row).is_some()) {
            let bad = errors_of(&self.links);
            let bad = if bad.is_empty() { errors_of(&self.again) } else { bad };
            let most = bad.iter().max_by(|a, b| a.0.total_cmp(&b.0));
            answer.line(match most {
                None => paint(Tone::Good, "no link error"),
                Some((_, row)) => {
                    let count = figure(bad.iter().map(|(count, _)| count).sum());
                    paint(Tone::Bad, &format!("{count} link errors, most at {}", row.name()))
                }
            });
        }
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
            ("Rx,Rd MB/s", 10, Right, &|(row, _, [from, _], ..)| rate(row, from)),
            ("Tx,Wr MB/s", 10, Right, &|(row, _, [_, to], ..)| rate(row, to)),
            ("Of max %", 8, Right, &|(.., share, _, _)| share.map_or("-".to_owned(), |share| format!("{share:.1}"))),
            ("Errors", 6, Right, &|(.., errors, _)| errors.map_or("-".to_owned(), figure)),
            ("What", 4, Left, &|(.., what)| what.clone()),
        ])
    }
}

/// Columns that are left for the devices below a port.
const WHAT: usize = WIDTH - 10 - (12 + 10 + 10 + 8 + 6 + 5 * 2);

fn value(row: &Row, name: &str) -> Option<f64> {
    row.metrics.get(name).map(|metric| metric.value).filter(|value| value.is_finite())
}

/// A rate in MB/s, `~` before one that was scaled to the whole time.
fn rate(row: &Row, name: &str) -> String {
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

/// The first device below a port, and how many more there are. The domain is left out where it is the first.
fn below(row: &Row) -> String {
    let Some(first) = row.instance.below.first() else {
        let is_function = row.instance.scope == "function";
        return if is_function { row.driver() } else { String::new() };
    };
    let bdf = first.bdf.to_string();
    let bdf = without_domain(&bdf);
    let name = first.driver.as_deref().unwrap_or(&first.name);
    let more = match row.instance.below.len() {
        1 => String::new(),
        several => format!(" +{}", several - 1),
    };
    format!("{bdf} {}{more}", clean(name))
}

/// An address without its domain where that is 0.
fn without_domain(name: &str) -> &str {
    name.strip_prefix("0000:").unwrap_or(name)
}

fn ceiling(percent: f64) -> String {
    format!("{percent:.1} %")
}

fn megabytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e9 => format!("{:.2} GB/s", bytes / 1e9),
        bytes => format!("{:.2} MB/s", bytes / 1e6),
    }
}

/// `2 functions below a port`: the first word has the plural.
fn counted_first(count: usize, words: &str) -> String {
    let (first, rest) = words.split_once(' ').filter(|(first, _)| *first == "function").unwrap_or((words, ""));
    format!("{} {rest}", counted(count, first)).trim_end().to_owned()
}

/// Mean and spread of the runs of one command, each a run of the records, in the order of their first records. Ends with a
/// newline.
pub fn repeats(records: &[Record]) -> String {
    let mut runs: Vec<(&str, Vec<&Record>)> = Vec::new();
    for record in records.iter().filter(|record| record.instance.is_some()) {
        match runs.iter_mut().find(|(run, _)| **run == *record.run) {
            Some((_, own)) => own.push(record),
            None => runs.push((&record.run, vec![record])),
        }
    }
    // All runs together: a node that only one run has is told apart too.
    let all: Vec<&Record> = runs.iter().flat_map(|(_, own)| own.iter().copied()).collect();
    let names: HashMap<Id, String> = rows(&all).iter().map(|row| (row.id(), row.name())).collect();
    let mut times = Vec::new();
    // By row and name of figure: its words, its unit, and its values, one for each run in which it has one.
    let mut order: Vec<(Id, String)> = Vec::new();
    let mut figures: HashMap<(Id, String), (String, String, Vec<f64>)> = HashMap::new();
    for (_, own) in &runs {
        let all = rows(own);
        times.push(all.iter().map(|row| row.seconds).fold(0.0, f64::max));
        let view = View::of(&all);
        let mut put = |row: &Row, name: &str, words: &str, unit: &str, value: f64| {
            let key = (row.id(), name.to_owned());
            if !figures.contains_key(&key) {
                order.push(key.clone());
            }
            let new = |key: &(Id, String)| {
                let row = names.get(&key.0).cloned().unwrap_or_else(|| row.name());
                (format!("{row} {words}"), unit.to_owned(), Vec::new())
            };
            figures.entry(key).or_insert_with_key(new).2.push(value);
        };
        for row in view.links.iter().chain(&view.memory) {
            for (name, words) in SPREAD {
                if let Some(rate) = value(row, name) {
                    put(row, name, words, "MB/s", rate / 1e6);
                }
            }
        }
        let is_named = |row: &&Row| row.instance.scope == "pmu" || !(row.has_any(&PORT) || row.has_any(&CHANNEL));
        for row in all.iter().filter(is_named) {
            for (name, Metric { value, unit, .. }) in &row.metrics {
                put(row, name, &clean(name), unit, *value);
            }
        }
    }
    let (mean, spread) = mean_and_spread(&times);
    let mut answer = Answer::new(&format!("{} of the command", counted(runs.len(), "run")));
    answer.line(format!("elapsed {mean:.4} s +- {spread:.2} % (standard deviation)"));
    if records.iter().any(model::is_synthetic) {
        answer.line(paint(Tone::Doubt, crate::table::SYNTHETIC));
    } else if records.iter().any(model::is_emulated) {
        answer.line(paint(Tone::Doubt, crate::table::EMULATED));
    }
    let rows = order.iter().filter_map(|key| {
        let (name, unit, values) = figures.get(key)?;
        let is_quiet = values.iter().all(|value| *value == 0.0);
        (!is_quiet).then(|| (name, unit, values, mean_and_spread(values)))
    });
    let show = |value: f64, unit: &str| if unit == "MB/s" { format!("{value:.2}") } else { figure(value) };
    let columns = Rows::of(rows).columns(&[
        ("Mean", 14, Right, &|(_, unit, _, (mean, _))| show(*mean, unit)),
        ("+-(%)", 6, Right, &|(.., (_, spread))| format!("{spread:.2}")),
        ("Min", 12, Right, &|(_, unit, values, _)| show(values.iter().copied().fold(f64::INFINITY, f64::min), unit)),
        ("Max", 12, Right, &|(_, unit, values, _)| {
            show(values.iter().copied().fold(f64::NEG_INFINITY, f64::max), unit)
        }),
        ("Unit", 5, Left, &|(_, unit, ..)| clean(unit)),
        ("What", 4, Left, &|(name, ..)| (*name).clone()),
    ]);
    answer.table = (!columns.rows().is_empty()).then_some(columns);
    answer.text()
}

/// What memory moves.
const MEMORY: [&str; 2] = ["read_bytes_per_s", "write_bytes_per_s"];

/// The rates whose spread is shown, in words.
const SPREAD: [(&str, &str); 4] = [
    ("rx_bytes_per_s", "Rx"),
    ("tx_bytes_per_s", "Tx"),
    ("read_bytes_per_s", "read"),
    ("write_bytes_per_s", "written"),
];

/// The mean, and the standard deviation of one value in percent of it; 0 for a single value.
fn mean_and_spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    if values.len() < 2 || mean == 0.0 {
        return (mean, 0.0);
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, variance.sqrt() / mean.abs() * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_that_of_a_sample() {
        assert_eq!(mean_and_spread(&[2.0]), (2.0, 0.0));
        let (mean, spread) = mean_and_spread(&[9.0, 11.0]);
        assert!(mean == 10.0 && (spread - 14.142_135).abs() < 1e-5, "{spread}");
    }
}
