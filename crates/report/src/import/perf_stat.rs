//! What `perf stat` prints: the table, the lines of `-I`, and the separated values of `-x`, also per CPU (`-A`).

use std::collections::BTreeMap;

use pciescope_core::{Cpu, Method, Metric, Record, Warning};

use super::workload::bw_mem_rate;

/// What a text held.
#[derive(Default)]
pub struct Read {
    pub records: Vec<Record>,
    pub lines: u64,
    pub figures: u64,
    pub words: u64,
    pub malformed: u64,
    /// Line number and what is wrong.
    pub named: Vec<(u64, String)>,
    /// Every event that was counted, in the text's order; the intervals of `-I` added up.
    pub counted: Vec<Counted>,
    /// How long it all took, in seconds, where the text says.
    pub elapsed_s: Option<f64>,
}

/// An event's count over the whole text.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// As perf writes it.
    pub event: String,
    /// The sum; in bytes where perf gives a unit of bytes.
    pub value: f64,
    /// Whether perf has turned it into bytes.
    pub is_bytes: bool,
    /// The smallest share of the time that it ran, above 0 to 1.
    pub running: f64,
}

/// One event as counted.
#[derive(Debug, PartialEq)]
struct Figure {
    /// End of the interval of `-I`, in picoseconds, so that it can be a key.
    at_ps: Option<u64>,
    cpu: Option<u32>,
    event: String,
    unit: String,
    /// `None` where perf could not count it.
    value: Option<f64>,
    why_not: &'static str,
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
pub fn parse(text: &str) -> Read {
    let mut read = Read::default();
    let mut figures = Vec::new();
    for (number, line) in text.lines().enumerate() {
        read.lines += 1;
        match separated(line).or_else(|| columns(line)) {
            Some(figure) => figures.push(figure),
            None if starts_like_a_figure(line) => {
                read.malformed += 1;
                let shown: String = line.trim().chars().take(60).collect();
                read.named.push((number as u64 + 1, format!("{:?} is no counter", crate::text::clean(&shown))));
            }
            None => read.words += 1,
        }
    }
    read.figures = figures.len() as u64;
    read.elapsed_s = text.lines().find_map(elapsed);
    for figure in &figures {
        count(&mut read.counted, figure);
    }
    read.records = records(figures);
    read
}

/// `16.207362782 seconds time elapsed`.
fn elapsed(line: &str) -> Option<f64> {
    let seconds = line.trim().strip_suffix("seconds time elapsed")?;
    seconds.trim().replace(',', "").parse().ok()
}

/// Adds a figure to those of its event.
fn count(counted: &mut Vec<Counted>, figure: &Figure) {
    let Some(value) = figure.value else { return };
    let (value, unit) = base_unit(value, &figure.unit);
    let running = figure.counted_percent.filter(|percent| *percent > 0.0).unwrap_or(100.0) / 100.0;
    match counted.iter_mut().find(|counted| counted.event == figure.event) {
        Some(counted) => {
            counted.value += value;
            counted.running = counted.running.min(running);
        }
        None => counted.push(Counted { event: figure.event.clone(), value, is_bytes: unit == "bytes", running }),
    }
}

/// Elapsed, user and system time and the spread of `-r` follow the table and are figures of their own.
fn starts_like_a_figure(line: &str) -> bool {
    let line = line.trim();
    let is_figure = line.starts_with(|c: char| c.is_ascii_digit()) && bw_mem_rate(line).is_none();
    is_figure && !line.contains(" elapsed") && !line.contains("seconds ")
}

/// `value,unit,event,run time,percent,...` with the interval's end and the CPU before it, where asked for.
/// The separator is what follows the first value.
fn separated(line: &str) -> Option<Figure> {
    let line = line.trim();
    [',', ';', '\t', '|'].into_iter().find_map(|separator| separated_by(line, separator))
}

fn separated_by(line: &str, separator: char) -> Option<Figure> {
    let mut fields: Vec<&str> = line.split(separator).map(str::trim).collect();
    if fields.len() < 5 {
        return None;
    }
    // An interval's end has nine decimals, and a figure follows it, or a CPU and a figure.
    let is_value = |t: &str| t.parse::<f64>().is_ok() || NOT_COUNTED.iter().any(|n| n.0 == t);
    let mut at_ps = None;
    if fields[0].split_once('.').is_some_and(|(_, d)| d.len() == 9) && (is_value(fields[1]) || cpu(fields[1]).is_some())
    {
        at_ps = Some(seconds_to_ps(fields[0])?);
        fields.remove(0);
    }
    let on = cpu(fields[0]);
    if on.is_some() {
        fields.remove(0);
    }
    let [value, unit, event, _, percent, ..] = fields[..] else { return None };
    if !is_value(value) || !is_event(event) {
        return None;
    }
    let why_not = NOT_COUNTED.iter().find(|n| n.0 == value).map_or("", |n| n.1);
    Some(Figure {
        at_ps,
        cpu: on,
        event: event.to_owned(),
        unit: unit.to_owned(),
        value: value.parse().ok().filter(|v: &f64| v.is_finite()),
        why_not,
        counted_percent: percent.parse().ok(),
    })
}

/// `value [unit] event # remark (percent)` in columns; commas or blanks of the locale separate thousands.
fn columns(line: &str) -> Option<Figure> {
    let (figure, percent) = match line.split_once('#') {
        Some((figure, remark)) => (figure, percent(remark)),
        None => (line.split_once('(').map_or(line, |(f, _)| f), percent(line)),
    };
    let mut words: Vec<&str> = figure.split_whitespace().collect();
    let mut at_ps = None;
    if words.len() > 2 && words[0].split_once('.').is_some_and(|(_, d)| d.len() == 9) {
        at_ps = Some(seconds_to_ps(words.remove(0))?);
    }
    let on = words.first().and_then(|w| cpu(w));
    if on.is_some() {
        words.remove(0);
    }
    if let ["<not", rest, event, ..] = words[..] {
        let why_not = NOT_COUNTED.iter().find(|n| n.0.ends_with(rest)).map(|n| n.1)?;
        let (unit, event) = (String::new(), words.get(3).map_or(event, |last| last).to_owned());
        return Some(Figure { at_ps, cpu: on, event, unit, value: None, why_not, counted_percent: None });
    }
    let (value, unit, event) = match words[..] {
        [value, event] => (value, "", event),
        [value, unit, event] => (value, unit, event),
        _ => return None,
    };
    let value: f64 = value.replace([',', '\u{202f}', '\u{a0}'], "").parse().ok()?;
    if !is_event(event) || !value.is_finite() || unit == "+-" {
        return None;
    }
    let (event, unit) = (event.to_owned(), unit.to_owned());
    Some(Figure { at_ps, cpu: on, event, unit, value: Some(value), why_not: "", counted_percent: percent })
}

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
fn records(figures: Vec<Figure>) -> Vec<Record> {
    let mut groups: BTreeMap<(Option<u64>, Option<u32>), Vec<Figure>> = BTreeMap::new();
    for figure in figures {
        groups.entry((figure.at_ps, figure.cpu)).or_default().push(figure);
    }
    groups.into_iter().map(|((at_ps, on), figures)| record(at_ps, on, figures)).collect()
}

fn record(at_ps: Option<u64>, on: Option<u32>, figures: Vec<Figure>) -> Record {
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
            Some(value) => {
                let (value, unit) = base_unit(value, &figure.unit);
                record.metrics.insert(figure.event.clone(), Metric::of(value, &unit));
            }
            None => record.warnings.push(Warning {
                code: "not-counted".to_owned(),
                text: format!("{} was {}", figure.event, figure.why_not),
                hint: "count fewer events at once, or see `perf list` for what this machine has".to_owned(),
            }),
        }
        if let Some(percent) = figure.counted_percent.filter(|p| *p > 0.0 && *p < 99.995 && figure.value.is_some()) {
            record.warnings.push(Warning {
                code: "multiplexed".to_owned(),
                text: format!("{} was counted {percent} % of the time and scaled", figure.event),
                hint: "count fewer events at once for exact figures".to_owned(),
            });
        }
    }
    record
}

const NOTE: &str = "imported from the output of perf stat";

/// perf's units in ours: bytes, nanoseconds, counts.
fn base_unit(value: f64, unit: &str) -> (f64, String) {
    let (factor, base) = match unit {
        "" => (1.0, "1"),
        "Bytes" | "B" => (1.0, "bytes"),
        "KiB" => (1024.0, "bytes"),
        "MiB" => (1_048_576.0, "bytes"),
        "GiB" => (1_073_741_824.0, "bytes"),
        "KB" => (1e3, "bytes"),
        "MB" => (1e6, "bytes"),
        "GB" => (1e9, "bytes"),
        "msec" => (1e6, "ns"),
        "ns" => (1.0, "ns"),
        other => (1.0, other),
    };
    (value * factor, base.to_owned())
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
        let read = parse(TABLE);
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
        let read = parse(text);
        assert_eq!((read.figures, read.records.len()), (3, 2));
        assert_eq!(read.records[1].metrics["interval_end_ns"].value, 2_000_234_567.0);
        let read = parse("CPU0               1,234      cycles\nCPU1               5,678      cycles\n");
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
            let read = parse(line);
            assert_eq!(read.records.len(), 1, "{line}");
            let record = &read.records[0];
            assert_eq!(record.metrics["cycles"].value, 1234.0, "{line}");
            assert_eq!(record.metrics.get("interval_end_ns").map(|m| m.value), at, "{line}");
            assert_eq!(record.cpu.as_ref().map(|c| c.cpu), cpu, "{line}");
        }
        let read = parse("<not counted>,,cycles,0,0.00,,");
        assert_eq!(read.records[0].warnings[0].code, "not-counted");
    }

    #[test]
    fn names_what_is_no_counter() {
        let read = parse("# started on x\n1234 5678 9 10 11\nwords\n");
        assert_eq!((read.figures, read.malformed, read.words), (0, 1, 2));
        assert!(!is_perf_stat("100 200 300 1 69\n"));
    }
}
