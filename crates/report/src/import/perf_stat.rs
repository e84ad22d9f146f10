//! What `perf stat` prints: the table, the lines of `-I`, and the separated values of `-x`, also per CPU (`-A`).

use pciescope_core::warning;
use std::collections::{BTreeMap, HashMap, HashSet};

use pciescope_core::{Cpu, Interval, Method, Metric, Record};

use super::Parsed;
use super::workload::bw_mem_rate;

/// Why a text is refused as a whole: a figure of it could be taken for another one.
#[derive(Debug, PartialEq)]
pub enum Refused {
    /// A number of a locale in which it may be a fraction or thousands.
    Locale { line: u64, text: String },
    /// A second reading of a counter, or a second table.
    Twice { line: u64, what: String },
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
    /// Whether perf has turned it into bytes.
    pub is_bytes: bool,
    /// The smallest share of the time that it ran, above 0 to 1.
    pub running: f64,
}

/// One event as counted.
#[derive(Debug, PartialEq)]
struct EventCount {
    /// End of the interval of `-I`, in picoseconds, so that it can be a key.
    at_ps: Option<u64>,
    cpu: Option<u32>,
    event: String,
    /// The control group of `-G` and `--for-each-cgroup`.
    cgroup: Option<String>,
    unit: String,
    /// Where perf could not count it: why not.
    value: Result<f64, &'static str>,
    /// How much of the time it was counted, in percent, where perf says.
    counted_percent: Option<f64>,
}

const NOT_COUNTED: [(&str, &str); 2] = [("<not counted>", "not counted"), ("<not supported>", "not supported")];

/// Whether this is what perf stat prints.
pub fn is_perf_stat(text: &str) -> bool {
    text.contains("Performance counter stats")
        || NOT_COUNTED.iter().any(|n| text.contains(n.0))
        || text.lines().any(|l| l.starts_with('#') && l.contains("counts") && l.contains("events"))
        || text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')).take(3).any(|l| separated(l).is_some())
}

/// Takes every line that is a figure, skips words, and names what is neither.
pub fn parse(text: &str) -> Result<Parsed, Refused> {
    let mut read = Parsed::default();
    let mut figures: Vec<EventCount> = Vec::new();
    let (mut seen, mut in_intervals) = (HashSet::new(), HashSet::new());
    let (mut tables, mut last_ps) = (0, None);
    for (number, line) in text.lines().enumerate() {
        read.lines += 1;
        let twice = |what: String| Err(Refused::Twice { line: number as u64 + 1, what });
        if line.contains("Performance counter stats for") {
            tables += 1;
            if tables > 1 {
                return twice("a second table of perf stat begins".to_owned());
            }
        }
        if is_of_locale(line) {
            let text = crate::text::clean(&line.trim().chars().take(60).collect::<String>());
            return Err(Refused::Locale { line: number as u64 + 1, text });
        }
        if let Some(seconds) = elapsed(line) {
            if read.elapsed_s.is_some() {
                return twice("a second time elapsed stands here".to_owned());
            }
            read.elapsed_s = Some(seconds);
        }
        match separated(line).or_else(|| columns(line)) {
            Some(figure) => {
                if !seen.insert((figure.at_ps, figure.cpu, figure.cgroup.clone(), figure.event.clone())) {
                    return twice(format!("{} was counted before", crate::text::clean(&figure.name())));
                }
                // The intervals of one run follow each other.
                if figure.at_ps.is_some() && figure.at_ps < last_ps {
                    return twice("the intervals of a second run begin".to_owned());
                }
                last_ps = figure.at_ps.or(last_ps);
                let name = (figure.cpu, figure.cgroup.clone(), figure.event.clone());
                if figure.at_ps.is_some() {
                    in_intervals.insert(name);
                } else if in_intervals.contains(&name) {
                    // The summary behind the intervals: their sum.
                    read.words += 1;
                    continue;
                }
                figures.push(figure);
            }
            None if starts_like_a_figure(line) => read.refuse(line, "is no counter"),
            None => read.words += 1,
        }
    }
    read.figures = figures.len() as u64;
    read.counted = count(&figures)?;
    read.records = records(figures, read.elapsed_s);
    Ok(read)
}

/// `16.207362782 seconds time elapsed`, with `-r` the mean `0.02267 +- 0.00176 seconds time elapsed  ( +-  7.77% )`.
fn elapsed(line: &str) -> Option<f64> {
    let (seconds, _) = line.split_once("seconds time elapsed")?;
    seconds.split_ascii_whitespace().next()?.parse().ok()
}

/// Whether the line's number is written so that it may be a fraction or thousands: `167,98 msec`, `14.901 page-faults`,
/// `16,207 seconds time elapsed`, `0,53,msec,task-clock` and a share of `100,00`.
fn is_of_locale(line: &str) -> bool {
    let line = line.trim();
    if !line.starts_with(|c: char| c.is_ascii_digit()) || bw_mem_rate(line).is_some() {
        return false;
    }
    let first = line.split([' ', '\t', ';', '|']).next().unwrap_or_default();
    if line.contains("seconds time elapsed") {
        return first.parse::<f64>().is_err();
    }
    let fields = fields(line, ',');
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // Values divided by commas have no blank up to the event; a table's line has.
    let at = fields.iter().position(|field| is_event(field)).unwrap_or(0);
    if fields.len() >= 5 && at > 0 && !fields[..at].iter().any(|field| field.contains(char::is_whitespace)) {
        // Values divided by commas: a unit that is a number, or a share of whole percent, with its decimals behind.
        let from = usize::from(is_end(fields[0]));
        return (is_number(fields[from]) && is_number(fields[from + 1]) && cpu(fields[from]).is_none())
            || (share(&fields[at..]).is_none()
                && fields[at..].windows(2).any(|two| is_number(two[0]) && two[1].len() == 2 && is_number(two[1])));
    }
    // The first word, and behind an interval's end the next: letters behind it are no number of any locale.
    let mut words = line.split_ascii_whitespace();
    let mut first = words.next().unwrap_or_default();
    if is_end(first) && line.split_ascii_whitespace().count() > 2 {
        first = words.next().unwrap_or_default();
    }
    let digits = first.split([';', '|']).next().unwrap_or_default();
    let has_mark = digits.contains(|c: char| !c.is_ascii_alphanumeric());
    let is_figure = digits.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_punctuation() || !b.is_ascii())
        && digits.starts_with(|c: char| c.is_ascii_digit());
    is_figure && has_mark && words.any(is_event) | first.contains([';', '|']) && number(digits).is_none()
}

/// A number as perf's table has it: two decimals, or six, never three. Groups of three digits may be divided by commas, by
/// apostrophes or by blanks of the locale.
fn number(text: &str) -> Option<f64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if decimals.len() == 3 || decimals.is_empty() || !decimals.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut groups = whole.split([',', '\'', '\u{2019}', '\u{202f}', '\u{2009}', '\u{a0}']);
    let first = groups.next()?;
    let mut digits = first.to_owned();
    for group in groups {
        if group.len() != 3 || first.len() > 3 {
            return None;
        }
        digits.push_str(group);
    }
    let is_digits = !first.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_digits.then(|| format!("{digits}.{decimals}").parse().ok()).flatten()
}

/// Whether this is the end of an interval of `-I`: seconds with nine decimals.
fn is_end(text: &str) -> bool {
    text.split_once('.').is_some_and(|(_, decimals)| decimals.len() == 9)
}

/// Adds up the figures of each event, in the text's order.
fn count(figures: &[EventCount]) -> Result<Vec<EventTotal>, Refused> {
    let mut counted: Vec<EventTotal> = Vec::new();
    let mut places: HashMap<(&str, Option<&str>), usize> = HashMap::new();
    for figure in figures {
        let Ok(value) = figure.value else { continue };
        let (value, unit) = base_unit(value, &figure.unit);
        let running = figure.counted_percent.filter(|percent| *percent > 0.0).unwrap_or(100.0) / 100.0;
        let place = *places.entry((&figure.event, figure.cgroup.as_deref())).or_insert(counted.len());
        match counted.get_mut(place) {
            Some(counted) => {
                counted.value += value;
                counted.running = counted.running.min(running);
            }
            None if place >= MAX_EVENTS => return Err(Refused::TooMany),
            None => counted.push(EventTotal {
                event: figure.event.clone(),
                cgroup: figure.cgroup.clone(),
                value,
                is_bytes: unit == "bytes",
                running,
            }),
        }
    }
    Ok(counted)
}

/// Elapsed, user and system time and the spread of `-r` follow the table and are figures of their own.
fn starts_like_a_figure(line: &str) -> bool {
    let line = line.trim();
    let is_figure = line.starts_with(|c: char| c.is_ascii_digit()) && bw_mem_rate(line).is_none();
    is_figure && !line.contains(" elapsed") && !line.contains("seconds ")
}

impl EventCount {
    /// The event, and the control group that it was counted in.
    fn name(&self) -> String {
        match &self.cgroup {
            Some(cgroup) => format!("{} in {cgroup}", self.event),
            None => self.event.clone(),
        }
    }
}

/// `value,unit,event,run time,percent,...` with the interval's end and the CPU before it, where asked for. Behind the event
/// may stand the control group and the spread of `-r`.
/// The separator is what follows the first value.
fn separated(line: &str) -> Option<EventCount> {
    let line = line.trim();
    [',', ';', '\t', '|'].into_iter().find_map(|separator| separated_by(line, separator))
}

/// The fields of a line. The terms of an event, `cpu/event=0x3c,umask=0x00/`, are one.
fn fields(line: &str, separator: char) -> Vec<&str> {
    let is_term = |text: &str| text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let mut fields = Vec::new();
    let mut rest = line;
    while let Some((field, after)) = rest.split_once(separator) {
        let is_open = is_term(field.trim_start()) && field.matches('/').count() == 1 && !field.ends_with('/');
        // Up to the field with the closing slash, where nothing but terms lies between.
        let mut end = field.len();
        for term in after.split(separator).take_while(|term| is_open && is_term(term)) {
            end += separator.len_utf8() + term.len();
            if let Some((_, modifier)) = term.split_once('/') {
                let is_end = modifier.bytes().all(|b| b.is_ascii_alphabetic());
                end = if is_end { end } else { field.len() };
                break;
            }
        }
        let has_closed = rest[..end].matches('/').count() == 2;
        let end = if has_closed { end } else { field.len() };
        fields.push(rest[..end].trim());
        match rest[end..].strip_prefix(separator) {
            Some(next) => rest = next,
            None => return fields,
        }
    }
    fields.push(rest.trim());
    fields
}

fn separated_by(line: &str, separator: char) -> Option<EventCount> {
    let mut fields = fields(line, separator);
    if fields.len() < 5 {
        return None;
    }
    // An interval's end has nine decimals, and a figure follows it, or a CPU and a figure.
    let is_value = |t: &str| t.parse::<f64>().is_ok() || NOT_COUNTED.iter().any(|n| n.0 == t);
    let mut at_ps = None;
    if is_end(fields[0]) && (is_value(fields[1]) || cpu(fields[1]).is_some()) {
        at_ps = Some(seconds_to_ps(fields[0])?);
        fields.remove(0);
    }
    let on = cpu(fields[0]);
    if on.is_some() {
        fields.remove(0);
    }
    let [value, unit, event, ..] = fields[..] else { return None };
    let (cgroup, percent) = share(&fields[2..])?;
    if !is_value(value) || !is_event(event) {
        return None;
    }
    let number = value.parse().ok().filter(|number: &f64| number.is_finite());
    let why_not = NOT_COUNTED.iter().find(|n| n.0 == value).map_or("not a number", |n| n.1);
    Some(EventCount {
        at_ps,
        cpu: on,
        event: event.to_owned(),
        cgroup,
        unit: unit.to_owned(),
        value: number.ok_or(why_not),
        counted_percent: Some(percent),
    })
}

/// Of `event[,control group][,spread %],run time,percent,...` the control group and the percent, which has two decimals.
fn share(fields: &[&str]) -> Option<(Option<String>, f64)> {
    let is_share = |text: &str| text.split_once('.').is_some_and(|(_, decimals)| decimals.len() == 2);
    let is_run = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_spread = |text: &str| text.strip_suffix('%').is_some_and(|spread| spread.trim().parse::<f64>().is_ok());
    let (cgroup, percent) = match fields.get(1..)? {
        [run, percent, ..] if is_run(run) && is_share(percent) => (None, percent),
        [spread, run, percent, ..] if is_spread(spread) && is_run(run) && is_share(percent) => (None, percent),
        [cgroup, run, percent, ..] if is_run(run) && is_share(percent) => (Some(*cgroup), percent),
        [cgroup, spread, run, percent, ..] if is_spread(spread) && is_run(run) && is_share(percent) => {
            (Some(*cgroup), percent)
        }
        _ => return None,
    };
    Some((cgroup.filter(|name| !name.is_empty()).map(str::to_owned), percent.parse().ok()?))
}

/// `value [unit] event # remark (percent)` in columns; commas or blanks of the locale separate thousands.
fn columns(line: &str) -> Option<EventCount> {
    let (figure, percent) = match line.split_once('#') {
        Some((figure, remark)) => (figure, percent(remark)),
        None => (line.split_once('(').map_or(line, |(f, _)| f), percent(line)),
    };
    // Blanks of the locale divide thousands, not words.
    let mut words: Vec<&str> = figure.split_ascii_whitespace().collect();
    let mut at_ps = None;
    if words.len() > 2 && is_end(words[0]) {
        at_ps = Some(seconds_to_ps(words.remove(0))?);
    }
    let on = words.first().and_then(|w| cpu(w));
    if on.is_some() {
        words.remove(0);
    }
    if let ["<not", rest, event, ..] = words[..] {
        let why_not = NOT_COUNTED.iter().find(|n| n.0.ends_with(rest)).map(|n| n.1)?;
        let (_, event, cgroup) = of_columns(event, &words[3..])?;
        let (event, unit) = (event.to_owned(), String::new());
        return Some(EventCount { at_ps, cpu: on, event, cgroup, unit, value: Err(why_not), counted_percent: None });
    }
    let [value, first, ref rest @ ..] = words[..] else { return None };
    let (unit, event, cgroup) = of_columns(first, rest)?;
    let value = number(value).filter(|value| is_event(event) && value.is_finite() && unit != "+-")?;
    let (event, unit) = (event.to_owned(), unit.to_owned());
    Some(EventCount { at_ps, cpu: on, event, cgroup, unit, value: Ok(value), counted_percent: percent })
}

/// Of `[unit] event [control group]` in columns the three. A word before an event of a PMU, or a known one, is a unit.
fn of_columns<'a>(first: &'a str, rest: &[&'a str]) -> Option<(&'a str, &'a str, Option<String>)> {
    let is_unit = |unit: &str| UNITS.iter().any(|known| known.0 == unit) || unit == "+-";
    match *rest {
        [] => Some(("", first, None)),
        [event] if is_unit(first) || event.find('/').is_some_and(|at| at > 0 && event.ends_with('/')) => {
            Some((first, event, None))
        }
        [cgroup] => Some(("", first, Some(cgroup.to_owned()))),
        [event, cgroup] if is_unit(first) => Some((first, event, Some(cgroup.to_owned()))),
        _ => None,
    }
}

/// Units that perf and the kernel's PMUs write, each in ours: bytes, nanoseconds.
#[rustfmt::skip]
const UNITS: [(&str, f64, &str); 15] = [
    ("Bytes", 1.0, "bytes"), ("B", 1.0, "bytes"), ("KB", 1e3, "bytes"), ("MB", 1e6, "bytes"), ("GB", 1e9, "bytes"),
    ("KiB", 1024.0, "bytes"), ("MiB", 1_048_576.0, "bytes"), ("GiB", 1_073_741_824.0, "bytes"), ("msec", 1e6, "ns"),
    ("ns", 1.0, "ns"), ("Joules", 1.0, "Joules"), ("Watts", 1.0, "Watts"), ("C", 1.0, "C"), ("MHz", 1.0, "MHz"),
    ("GHz", 1.0, "GHz"),
];

/// `(83.31%)` at the end of a line: the share of the time that a multiplexed event was counted.
fn percent(text: &str) -> Option<f64> {
    let (_, rest) = text.rsplit_once('(')?;
    rest.trim_end().strip_suffix("%)")?.trim().parse().ok()
}

fn cpu(text: &str) -> Option<u32> {
    text.strip_prefix("CPU")?.parse().ok()
}

fn is_event(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text != "elapsed"
        && text != "user"
        && text != "sys"
}

fn seconds_to_ps(text: &str) -> Option<u64> {
    let (seconds, decimals) = text.split_once('.')?;
    let digits: u64 = decimals.parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000_000)?.checked_add(digits.checked_mul(1000)?)
}

/// One record per interval and CPU, in time order.
fn records(figures: Vec<EventCount>, elapsed_s: Option<f64>) -> Vec<Record> {
    let mut groups: BTreeMap<(Option<u64>, Option<u32>), Vec<EventCount>> = BTreeMap::new();
    for figure in figures {
        groups.entry((figure.at_ps, figure.cpu)).or_default().push(figure);
    }
    let mut last = (0, 0);
    let mut one = |((at_ps, on), figures): ((Option<u64>, Option<u32>), Vec<EventCount>)| {
        let interval = match at_ps {
            // An interval begins where the one before ends; several CPUs have the same.
            Some(at_ps) => {
                let end_ns = at_ps / 1000;
                if end_ns > last.1 {
                    last = (last.1, end_ns);
                }
                Some(Interval { start_ns: last.0, end_ns })
            }
            None => elapsed_s.map(|seconds| Interval { start_ns: 0, end_ns: (seconds * 1e9).round() as u64 }),
        };
        Record { interval, ..record(at_ps, on, figures) }
    };
    groups.into_iter().map(&mut one).collect()
}

fn record(at_ps: Option<u64>, on: Option<u32>, figures: Vec<EventCount>) -> Record {
    let mut record = Record {
        test: "perf-stat".to_owned(),
        cpu: on.map(|cpu| Cpu { cpu, ..Cpu::default() }),
        method: Some(Method { backend: "import".to_owned(), notes: vec![NOTE.to_owned()], ..Method::default() }),
        ..Record::default()
    };
    if let Some(at_ps) = at_ps {
        record.metrics.insert("interval_end_ns".to_owned(), Metric::ns(at_ps as f64 / 1e3));
    }
    for figure in figures {
        match figure.value {
            Ok(value) => {
                let (value, unit) = base_unit(value, &figure.unit);
                record.metrics.insert(figure.name(), Metric::of(value, unit));
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

/// A value in our units: bytes, nanoseconds, counts.
fn base_unit(value: f64, unit: &str) -> (f64, &str) {
    match UNITS.iter().find(|known| known.0 == unit) {
        Some((_, factor, base)) => (value * factor, base),
        None => (value, if unit.is_empty() { "1" } else { unit }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "
 Performance counter stats for 'sleep 1':

              1.04 msec task-clock                       #    0.001 CPUs utilized
                 1      context-switches                 #  961.538 /sec
         1,234,567      cycles                           #    1.187 GHz                         (83.31%)
            356.81 MiB  uncore_imc_0/cas_count_read/
     <not counted>      branches                                                                (0.00%)
   <not supported>      LLC-loads

       1.001234567 seconds time elapsed

       0.001000000 seconds user
       0.000000000 seconds sys

";

    #[test]
    fn reads_the_table() {
        let read = parse(TABLE).unwrap();
        assert_eq!((read.figures, read.malformed, read.records.len()), (6, 0, 1), "{:?}", read.named);
        let record = &read.records[0];
        assert_eq!(record.metrics["cycles"], Metric::of(1_234_567.0, "1"));
        assert_eq!(record.metrics["task-clock"].value.round(), 1_040_000.0);
        assert_eq!(record.metrics["task-clock"].unit, "ns");
        assert_eq!(record.metrics["uncore_imc_0/cas_count_read/"].value, 356.81 * 1_048_576.0);
        let codes: Vec<_> = record.warnings.iter().map(|w| w.code.as_str()).collect();
        assert_eq!(codes, ["multiplexed", "not-counted", "not-counted"]);
        assert!(record.warnings[2].text.contains("LLC-loads was not supported"));
    }

    #[test]
    fn reads_intervals_and_cpus() {
        let text = "#           time             counts unit events
     1.000123456          1,000      cycles
     1.000123456          2,000      instructions   #    2.00  insn per cycle
     2.000234567          3,000      cycles
";
        assert!(is_perf_stat(text));
        let read = parse(text).unwrap();
        assert_eq!((read.figures, read.records.len()), (3, 2));
        assert_eq!(read.records[1].metrics["interval_end_ns"].value, 2_000_234_567.0);
        let read = parse("CPU0               1,234      cycles\nCPU1               5,678      cycles\n").unwrap();
        assert_eq!(read.records[1].cpu.as_ref().unwrap().cpu, 1);
    }

    #[test]
    fn reads_separated_values() {
        for (line, at, cpu) in [
            ("1234,,cycles,1000000,100.00,1.187,GHz", None, None),
            ("1.000123456,1234,,cycles,1000000,100.00,,", Some(1_000_123_456.0), None),
            ("1.000123456;CPU7;1234;;cycles;1000000;100.00;;", Some(1_000_123_456.0), Some(7)),
            ("CPU7,1234,,cycles,1000000,50.00,,", None, Some(7)),
        ] {
            assert!(is_perf_stat(line), "{line}");
            let read = parse(line).unwrap();
            assert_eq!(read.records.len(), 1, "{line}");
            let record = &read.records[0];
            assert_eq!(record.metrics["cycles"].value, 1234.0, "{line}");
            assert_eq!(record.metrics.get("interval_end_ns").map(|m| m.value), at, "{line}");
            assert_eq!(record.cpu.as_ref().map(|c| c.cpu), cpu, "{line}");
        }
        let read = parse("<not counted>,,cycles,0,0.00,,").unwrap();
        assert_eq!(read.records[0].warnings[0].code, "not-counted");
    }

    #[test]
    fn names_what_is_no_counter() {
        let read = parse("# started on x\n1234 5678 9 10 11\nwords\n").unwrap();
        assert_eq!((read.figures, read.malformed, read.words), (0, 1, 2));
        assert!(!is_perf_stat("100 200 300 1 69\n"));
    }

    #[test]
    fn a_number_of_another_locale_is_read_right_or_refused() {
        for line in [
            "            167,98 msec task-clock                #    0,9 CPUs utilized",
            "            14.901      page-faults               #   88,7 K/sec",
            "     1,000123456          1.000      cycles",
            "     1.000123456          1.000      cycles",
            "0,53,msec,task-clock,932612,100,00,0,041,CPUs utilized",
            "0,53;msec;task-clock;932612;100,00;0,041;CPUs utilized",
            "536910432,,cycles,16207362782,50,00,,",
            "536910432,,cycles,0,50%,16207362782,50,00,,",
            "      16,207362782 seconds time elapsed",
        ] {
            let refused = parse(line).err();
            assert!(matches!(refused, Some(Refused::Locale { line: 1, .. })), "{line}: {refused:?}");
        }
        for gap in [',', '\'', '\u{2019}', '\u{202f}', '\u{a0}'] {
            let read = parse(&format!("   14{gap}883      page-faults   #  88 K/sec\n")).unwrap();
            assert_eq!(read.records[0].metrics["page-faults"], Metric::of(14_883.0, "1"), "{gap:?}");
        }
    }

    #[test]
    fn the_spread_of_repeats_and_control_groups_are_told_from_the_share() {
        for (line, name) in [
            ("536910432,,rx/p/,0.50%,16207362782,50.00,,", "rx/p/"),
            ("536910432,,rx/p/,user.slice,16207362782,50.00,,", "rx/p/ in user.slice"),
            ("536910432,,rx/p/,user.slice,0.50%,16207362782,50.00,,", "rx/p/ in user.slice"),
        ] {
            let read = parse(line).unwrap();
            assert_eq!(read.counted[0].running, 0.5, "{line}");
            assert_eq!(read.records[0].metrics[name].value, 536_910_432.0, "{line}");
            assert_eq!(read.records[0].warnings[0].code, "multiplexed", "{line}");
        }
        let both =
            "10,,cycles,a,1,100.00,,\n20,,cycles,b,1,100.00,,\n 30  cycles  c  (50.00%)\n 1.50 msec task-clock c\n";
        let read = parse(both).unwrap();
        let metrics = &read.records[0].metrics;
        let values = ["cycles in a", "cycles in b", "cycles in c", "task-clock in c"].map(|name| metrics[name].value);
        assert_eq!((values, read.counted.len()), ([10.0, 20.0, 30.0, 1.5e6], 4));
        let repeated = "  60  page-faults  #  67.526 K/sec  ( +-  0.96% )\n  0.022 +- 0.00176 seconds time elapsed  ( +-  7.77% )\n";
        assert_eq!(parse(repeated).unwrap().elapsed_s, Some(0.022));
    }

    #[test]
    fn a_second_reading_of_a_counter_is_refused() {
        for (text, line) in [
            ("10,,cycles,1,100.00,,\n20,,cycles,1,100.00,,\n".to_owned(), 2),
            (" 10  cycles\n 20  cycles\n".to_owned(), 2),
            (format!("{TABLE}{}", TABLE.replace("cycles", "other")), 17),
            ("1.000000001,1,,a,1,100.00,,\n2.000000001,1,,a,1,100.00,,\n1.000000002,1,,a,1,100.00,,\n".to_owned(), 3),
            ("  1  a\n  1.5 seconds time elapsed\n  1  b\n  1.5 seconds time elapsed\n".to_owned(), 4),
        ] {
            let refused = parse(&text).err();
            assert!(matches!(refused, Some(Refused::Twice { line: at, .. }) if at == line), "{text}: {refused:?}");
        }
    }

    /// Names are found in a table: with a search through all of them, so many would take minutes.
    #[test]
    fn events_have_a_bound() {
        let text = |count: usize| (0..count).map(|n| format!("{n},,ev{n},1000,100.00,,\n")).collect::<String>();
        let read = parse(&text(MAX_EVENTS)).unwrap();
        assert_eq!(read.counted.len(), MAX_EVENTS);
        assert_eq!((read.counted[7].event.as_str(), read.counted[7].value), ("ev7", 7.0));
        assert_eq!(parse(&text(MAX_EVENTS + 1)).err(), Some(Refused::TooMany));
    }
}
