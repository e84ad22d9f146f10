//! A text that has what `perf stat` prints: first what each line is, by its own signs, then the counts.

use std::collections::{BTreeMap, HashMap, HashSet};

use pciescope_core::{Cpu, Interval, Method, Metric, Record, Target, warning};

use super::Parsed;
use super::perf_line::{self, CountPlace, EventCount, NOT_COUNTED, PerfLine, base_unit};
use super::workload::is_figure_of_workload;
use crate::text::clean;

/// Why a text is refused as a whole: a figure of it could be taken for another one.
#[derive(Debug, PartialEq)]
pub enum Refused {
    /// A number of a locale in which it may be a fraction or thousands.
    Locale { line: u64, text: String },
    /// A second reading of a counter, or a second table.
    Twice { line: u64, what: String },
    /// Something stands before each line of perf.
    Prefix { line: u64, text: String },
    /// More events than [`MAX_EVENTS`].
    TooMany,
}

/// How many events a text may name; the same event in another control group is another one. perf knows a few thousand.
pub const MAX_EVENTS: usize = 65_536;

/// An event's count over the whole text.
#[derive(Debug, Clone, PartialEq)]
pub struct EventTotal {
    /// As perf writes it.
    pub event: String,
    /// The control group it was counted in; such a count is a part of the traffic.
    pub cgroup: Option<String>,
    /// The sum; in bytes where perf gives a unit of bytes.
    pub value: f64,
    /// By how much it may be off, because perf printed so many decimals.
    pub rounding: f64,
    /// Whether perf has turned it into bytes.
    pub is_bytes: bool,
    /// The smallest share of the time that it ran, above 0 to 1.
    pub running: f64,
    /// Whether it was not counted in some interval or place.
    pub is_partial: bool,
}

/// What a line is.
#[derive(Debug, PartialEq)]
enum LineKind {
    /// The table begins; its counts are the mean of so many runs.
    Table { runs: Option<u64> },
    /// The table ends; how long it took in seconds.
    Elapsed(f64),
    /// Counts.
    Counts(Vec<EventCount>),
    /// A number of a locale in which it may be a fraction or thousands.
    Locale,
    /// The table begins, behind something else.
    Prefix(String),
    /// It begins as a figure does, and is none that import knows.
    Stray(&'static str),
    /// Anything else: words, blanks, lines of a workload or of a shell.
    Words,
}

const TABLE: &str = "Performance counter stats for";

/// Whether a text has what perf stat prints.
pub fn is_perf_stat(text: &str) -> bool {
    let is_sign = |kind: &LineKind| match kind {
        LineKind::Table { .. } | LineKind::Prefix(_) => true,
        LineKind::Counts(counts) => counts.iter().any(|one| one.has_sign()),
        _ => false,
    };
    NOT_COUNTED.iter().any(|known| text.contains(known.0))
        || text.lines().any(|line| line.starts_with('#') && line.contains("counts") && line.contains("events"))
        || kinds(text).iter().any(is_sign)
}

/// Takes every line that is a figure, skips words, and names what is neither.
pub fn parse(text: &str) -> Result<Parsed, Refused> {
    let mut read = Parsed::default();
    let mut figures: Vec<EventCount> = Vec::new();
    let (mut seen, mut in_intervals) = (HashSet::new(), HashSet::new());
    let (mut tables, mut last_ps) = (0, None);
    for (kind, line) in kinds(text).into_iter().zip(text.lines()) {
        read.lines += 1;
        let number = read.lines;
        let twice = |what: String| Err(Refused::Twice { line: number, what });
        let counts = match kind {
            LineKind::Table { runs } => {
                tables += 1;
                if tables > 1 {
                    return twice("a second table of perf stat begins".to_owned());
                }
                read.mean_of = runs.or(read.mean_of);
                read.words += 1;
                continue;
            }
            LineKind::Elapsed(seconds) => {
                if read.elapsed_s.is_some() {
                    return twice("a second time elapsed stands here".to_owned());
                }
                read.elapsed_s = Some(seconds);
                read.words += 1;
                continue;
            }
            LineKind::Locale => return Err(Refused::Locale { line: number, text: beginning(line) }),
            LineKind::Prefix(text) => return Err(Refused::Prefix { line: number, text }),
            LineKind::Stray(why) => {
                read.refuse(line, why);
                continue;
            }
            LineKind::Words => {
                read.words += 1;
                continue;
            }
            LineKind::Counts(counts) => counts,
        };
        for figure in counts {
            if !seen.insert((figure.at_ps, figure.place.clone(), figure.cgroup.clone(), figure.event.clone())) {
                return twice(format!("{} was counted before", clean(&figure.name())));
            }
            // The intervals of one run follow each other.
            if figure.at_ps.is_some() && figure.at_ps < last_ps {
                return twice("the intervals of a second run begin".to_owned());
            }
            last_ps = figure.at_ps.or(last_ps);
            if figure.is_mean {
                read.mean_of = read.mean_of.or(Some(0));
            }
            let name = (figure.place.clone(), figure.cgroup.clone(), figure.event.clone());
            if figure.at_ps.is_some() {
                in_intervals.insert(name);
            } else if in_intervals.contains(&name) {
                // The summary behind the intervals: their sum.
                read.words += 1;
                continue;
            }
            figures.push(figure);
        }
    }
    read.figures = figures.len() as u64;
    read.counted = count(&figures)?;
    read.records = records(figures, read.elapsed_s);
    Ok(read)
}

/// The beginning of a line, for messages.
fn beginning(line: &str) -> String {
    clean(&line.trim().chars().take(60).collect::<String>())
}

/// A line that may go on in the next one, as mail and terminals break it.
struct Open {
    text: String,
    /// Its place among the kinds.
    at: usize,
    is_count: bool,
    has_group: bool,
}

/// What each line is. Lines of perf that were broken are put together again: the first part is then what they are.
fn kinds(text: &str) -> Vec<LineKind> {
    let is_of_interval = |line: &str| matches!(perf_line::columns(line, false), Some(PerfLine::Counts(counts)) if counts[0].at_ps.is_some());
    let is_bare = !text.lines().any(|line| line.trim_start().starts_with(TABLE) || is_of_interval(line));
    let mut state = PerfText { is_bare, in_table: is_bare, ..PerfText::default() };
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let mut kinds: Vec<LineKind> = Vec::new();
    let mut open: Option<Open> = None;
    for line in text.lines() {
        let kind = state.kind(line);
        if let (LineKind::Words | LineKind::Stray(_), Some(before)) = (&kind, &open) {
            if let Some((text, whole)) = before.joined(line, &state, widest) {
                kinds[before.at] = whole;
                kinds.push(LineKind::Words);
                open = Some(Open { text, at: before.at, is_count: true, has_group: before.has_group });
                continue;
            }
        }
        let is_open = match kind {
            LineKind::Counts(_) | LineKind::Stray(_) => true,
            LineKind::Words => state.in_table && !state.is_bare && !line.trim().is_empty(),
            _ => false,
        };
        let (is_count, has_group) = match &kind {
            LineKind::Counts(counts) => (true, counts[0].cgroup.is_some()),
            _ => (false, false),
        };
        open = match open {
            // The rest of a row may begin with a line of blanks.
            Some(before) if !line.is_empty() && line.trim().is_empty() => {
                Some(Open { text: before.text + line, ..before })
            }
            // An object of -j may be broken more than once.
            Some(before)
                if before.text.starts_with("{\"")
                    && !before.is_count
                    && !line.starts_with('{')
                    && before.text.len() < 4096 =>
            {
                Some(Open { text: before.text + line, ..before })
            }
            _ => is_open.then(|| Open { text: line.to_owned(), at: kinds.len(), is_count, has_group }),
        };
        kinds.push(kind);
    }
    kinds
}

impl Open {
    /// What this and the next line are together, if it is a line of perf.
    fn joined(&self, line: &str, state: &PerfText, widest: usize) -> Option<(String, LineKind)> {
        if line.trim().is_empty() {
            return None;
        }
        let is_end = line.trim_start().starts_with(['(', '[', '#']) && !self.text.contains('#');
        let is_cut = self.text.matches(['(', '[']).count() > self.text.matches([')', ']']).count();
        let is_full = widest >= 60 && self.text.chars().count() % widest == 0;
        if self.is_count && !is_end && !is_cut && !is_full && !line.trim_start().starts_with(['(', '[']) {
            return None;
        }
        let text = format!("{}{line}", self.text);
        let whole = state.clone().kind(&text);
        let LineKind::Counts(counts) = &whole else { return None };
        let has_group = counts.iter().any(|one| one.cgroup.is_some());
        (!self.is_count || !has_group || self.has_group || is_end).then_some((text, whole))
    }
}

/// Where in a text a line stands.
#[derive(Default, Clone)]
struct PerfText {
    /// The text has no header of a table and no intervals: any line may be of a table.
    is_bare: bool,
    in_table: bool,
    /// The columns of `perf iostat`, below their header.
    ports: Vec<String>,
    /// Below a header of `--metric-only`: lines have a time and figures that perf worked out.
    is_metric_only: bool,
}

impl PerfText {
    fn kind(&mut self, line: &str) -> LineKind {
        let words = line.trim();
        if words.is_empty() {
            return LineKind::Words;
        }
        if let Some((before, after)) = line.split_once(TABLE) {
            if !before.trim().is_empty() && after.trim_end().ends_with(':') {
                return LineKind::Prefix(beginning(before));
            }
            if before.trim().is_empty() {
                self.in_table = true;
                let runs = after.rsplit_once('(').and_then(|(_, runs)| runs.split_once(" runs)")?.0.parse().ok());
                return LineKind::Table { runs };
            }
        }
        if let Some((seconds, _)) = words.split_once("seconds time elapsed") {
            self.in_table = self.is_bare;
            let first = seconds.split_ascii_whitespace().next().unwrap_or_default();
            return match first.parse() {
                Ok(seconds) => LineKind::Elapsed(seconds),
                Err(_) if first.starts_with(|c: char| c.is_ascii_digit()) => LineKind::Locale,
                Err(_) => LineKind::Words,
            };
        }
        if let Some(ports) = perf_line::iostat_header(line) {
            self.ports = ports;
            return LineKind::Words;
        }
        if words.starts_with('#') && !line.starts_with(' ') {
            let names = words.trim_start_matches('#').trim_start();
            self.is_metric_only = names.starts_with("time ") && !names.contains("counts");
            return LineKind::Words;
        }
        let ports = || perf_line::iostat(line, &self.ports).filter(|_| !self.ports.is_empty());
        if let Some(own) = perf_line::json(line).or_else(|| perf_line::separated(line)).or_else(ports) {
            return match own {
                PerfLine::Counts(counts) => LineKind::Counts(counts),
                PerfLine::Locale => LineKind::Locale,
                PerfLine::Metric => LineKind::Words,
            };
        }
        let is_metric = |word: &str| word.trim_end_matches('%').parse::<f64>().is_ok();
        match perf_line::columns(line, self.in_table) {
            Some(PerfLine::Counts(counts)) if self.in_table || counts.iter().any(EventCount::has_sign) => {
                LineKind::Counts(counts)
            }
            Some(PerfLine::Counts(_)) => LineKind::Stray("stands outside the table of perf"),
            Some(PerfLine::Locale) if self.in_table => LineKind::Locale,
            Some(PerfLine::Metric) => LineKind::Words,
            _ if self.is_metric_only && words.split_ascii_whitespace().all(is_metric) => LineKind::Words,
            _ => LineKind::of_stray(words),
        }
    }
}

impl LineKind {
    /// A line that is none of perf's.
    fn of_stray(words: &str) -> LineKind {
        let is_time = ["seconds user", "seconds sys"].iter().any(|end| words.contains(end));
        let is_object =
            words.starts_with("{\"") && (words.contains("\"counter-value") || words.starts_with("{\"interval\""));
        let is_figure = words.starts_with(|c: char| c.is_ascii_digit()) || words.starts_with("<not ") || is_object;
        if is_figure && !is_time && !is_figure_of_workload(words) {
            LineKind::Stray("is no counter")
        } else {
            LineKind::Words
        }
    }
}

impl EventCount {
    /// Whether the line alone shows that it is perf's, without a table around it.
    fn has_sign(&self) -> bool {
        self.at_ps.is_some() || self.is_separate
    }
}

/// Adds up the figures of each event, in the text's order.
fn count(figures: &[EventCount]) -> Result<Vec<EventTotal>, Refused> {
    let mut counted: Vec<EventTotal> = Vec::new();
    let mut places: HashMap<(&str, Option<&str>), usize> = HashMap::new();
    let mut is_partial = HashSet::new();
    for figure in figures {
        let name = (figure.event.as_str(), figure.cgroup.as_deref());
        if figure.value.is_err() {
            is_partial.insert(name);
        }
        let value = figure.value.unwrap_or(0.0);
        let (factor, unit) = base_unit(&figure.unit);
        let (value, rounding) = (value * factor, figure.rounding * factor);
        let running = figure.counted_percent.filter(|percent| *percent > 0.0).unwrap_or(100.0) / 100.0;
        let place = *places.entry(name).or_insert(counted.len());
        match counted.get_mut(place) {
            Some(counted) => {
                counted.value += value;
                counted.rounding += rounding;
                counted.is_bytes |= unit == "bytes";
                counted.running = counted.running.min(running);
            }
            None if place >= MAX_EVENTS => return Err(Refused::TooMany),
            None => counted.push(EventTotal {
                event: figure.event.clone(),
                cgroup: figure.cgroup.clone(),
                value,
                rounding,
                is_bytes: unit == "bytes",
                running,
                is_partial: false,
            }),
        }
    }
    for (name, place) in places {
        counted[place].is_partial = is_partial.contains(&name);
    }
    Ok(counted)
}

/// One record per interval and place, in time order.
fn records(figures: Vec<EventCount>, elapsed_s: Option<f64>) -> Vec<Record> {
    let mut groups: BTreeMap<(Option<u64>, Option<CountPlace>), Vec<EventCount>> = BTreeMap::new();
    for figure in figures {
        groups.entry((figure.at_ps, figure.place.clone())).or_default().push(figure);
    }
    let mut last = (0, 0);
    let mut one = |((at_ps, place), figures): ((Option<u64>, Option<CountPlace>), Vec<EventCount>)| {
        let interval = match at_ps {
            // An interval begins where the one before ends; several places have the same.
            Some(at_ps) => {
                let end_ns = at_ps / 1000;
                if end_ns > last.1 {
                    last = (last.1, end_ns);
                }
                Some(Interval { start_ns: last.0, end_ns })
            }
            None => elapsed_s.map(|seconds| Interval { start_ns: 0, end_ns: (seconds * 1e9).round() as u64 }),
        };
        Record { interval, ..record(at_ps, place, figures) }
    };
    groups.into_iter().map(&mut one).collect()
}

fn record(at_ps: Option<u64>, place: Option<CountPlace>, figures: Vec<EventCount>) -> Record {
    let (cpu, name) = match place {
        Some(CountPlace::Cpu(cpu)) => (Some(Cpu { cpu, ..Cpu::default() }), None),
        Some(CountPlace::Named(name)) => (None, Some(name)),
        None => (None, None),
    };
    let mut record = Record {
        test: "perf-stat".to_owned(),
        cpu,
        target: name.map(|name| Target { name: Some(name), ..Target::default() }),
        method: Some(Method { backend: "import".to_owned(), notes: vec![NOTE.to_owned()], ..Method::default() }),
        ..Record::default()
    };
    if let Some(at_ps) = at_ps {
        record.metrics.insert("interval_end_ns".to_owned(), Metric::ns(at_ps as f64 / 1e3));
    }
    for figure in figures {
        match figure.value {
            Ok(value) => {
                let (factor, unit) = base_unit(&figure.unit);
                record.metrics.insert(figure.name(), Metric::of(value * factor, unit));
            }
            Err(why_not) => record.warnings.push(warning::NOT_COUNTED.hinted(
                format!("{} was {why_not}", figure.name()),
                "count fewer events at once, or see `perf list` for what this machine has",
            )),
        }
        if let Some(percent) = figure.counted_percent.filter(|p| *p > 0.0 && *p < 99.995 && figure.value.is_ok()) {
            record.warnings.push(warning::MULTIPLEXED.hinted(
                format!("{} was counted {percent} % of the time and scaled", figure.name()),
                "count fewer events at once for exact figures",
            ));
        }
    }
    record
}

const NOTE: &str = "imported from the output of perf stat";

#[cfg(test)]
mod tests;
