//! The answer to a scrape: OpenMetrics 1.0, or Prometheus' older text format 0.0.4.
//!
//! They differ in that OpenMetrics names a family without `_total` and `_info`, knows the type `info`, has UNIT lines, and
//! ends with `# EOF`. docs/serve.md lists the families.

mod devices;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use crate::instance::Instance;
use crate::series::{Family, Type};
use crate::state::{Inner, State};

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `application/openmetrics-text; version=1.0.0`.
    OpenMetrics,
    /// `text/plain; version=0.0.4`.
    Text,
}

/// Longer values of labels are cut here, in characters: a name comes from a device or a user.
const LONGEST: usize = 160;

impl Format {
    /// What a client asks for by its `Accept` header. OpenMetrics where it is named with at least as much weight as the
    /// text format, as Prometheus does.
    pub fn asked(accept: &str) -> Format {
        let weight = |wanted: &str| {
            let ranges = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let name = parts.next()?;
                let parameters: BTreeMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
                let is_version = wanted != "application/openmetrics-text"
                    || parameters.get("version").is_none_or(|version| version.trim_matches('"') == "1.0.0");
                let weight = parameters.get("q").map_or(Some(1.0), |q| q.parse::<f64>().ok())?;
                (name.eq_ignore_ascii_case(wanted) && is_version).then_some(weight)
            });
            ranges.fold(0.0, f64::max)
        };
        let open = weight("application/openmetrics-text");
        if open > 0.0 && open >= weight("text/plain") { Format::OpenMetrics } else { Format::Text }
    }

    /// The `Content-Type` of the answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Families as they are written.
struct Writer {
    out: String,
    format: Format,
}

impl Writer {
    fn family(&mut self, family: &Family) {
        let Family { name, of, unit, help } = family;
        let is_open = self.format == Format::OpenMetrics;
        let suffix = match of {
            Type::Counter if !is_open => "_total",
            Type::Info if !is_open => "_info",
            _ => "",
        };
        let of = match of {
            Type::Counter => "counter",
            Type::Info if is_open => "info",
            Type::Gauge | Type::Info => "gauge",
        };
        let _ = writeln!(self.out, "# HELP {name}{suffix} {}", escaped_help(help, is_open));
        let _ = writeln!(self.out, "# TYPE {name}{suffix} {of}");
        if is_open && !unit.is_empty() {
            let _ = writeln!(self.out, "# UNIT {name} {unit}");
        }
    }

    fn sample(&mut self, family: &Family, labels: &str, value: f64) {
        let suffix = match family.of {
            Type::Counter => "_total",
            Type::Info => "_info",
            Type::Gauge => "",
        };
        self.out.push_str(&family.name);
        self.out.push_str(suffix);
        if !labels.is_empty() {
            let _ = write!(self.out, "{{{labels}}}");
        }
        let _ = match value {
            value if value.is_nan() => writeln!(self.out, " NaN"),
            value if value.is_infinite() => writeln!(self.out, " {}Inf", if value > 0.0 { '+' } else { '-' }),
            value => writeln!(self.out, " {value}"),
        };
    }

    /// A family with its samples; one without samples is left out.
    fn all(&mut self, family: &Family, samples: impl IntoIterator<Item = (String, f64)>) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_some() {
            self.family(family);
            samples.for_each(|(labels, value)| self.sample(family, &labels, value));
        }
    }

    fn one(&mut self, name: &str, of: Type, unit: &'static str, help: &str, value: f64) {
        self.all(&Family::new(name, of, unit, help), [(String::new(), value)]);
    }
}

fn escaped_help(help: &str, is_open: bool) -> String {
    let escaped = help.replace('\\', "\\\\").replace('\n', "\\n");
    if is_open { escaped.replace('"', "\\\"") } else { escaped }
}

/// A label with a value that may hold anything.
pub(crate) fn label(into: &mut String, name: &str, value: &str) {
    if !into.is_empty() {
        into.push(',');
    }
    let _ = write!(into, "{name}=\"");
    for c in value.chars().take(LONGEST) {
        match c {
            '\\' => into.push_str("\\\\"),
            '"' => into.push_str("\\\""),
            // No terminal or page is to act on what a device calls itself.
            c if c.is_control() => into.push(char::REPLACEMENT_CHARACTER),
            c => into.push(c),
        }
    }
    into.push('"');
}

/// A label with several values, joined by commas. Of those that do not fit `...` says that there are more.
fn list(into: &mut String, name: &str, values: &[impl AsRef<str>]) {
    const MORE: &str = "...";
    let mut joined = String::new();
    for (number, value) in values.iter().map(AsRef::as_ref).enumerate() {
        let is_last = number + 1 == values.len();
        let len = joined.chars().count() + usize::from(number > 0) + value.chars().count();
        let room = LONGEST - if is_last { 0 } else { MORE.len() + 1 };
        joined += if number > 0 { "," } else { "" };
        if len > room {
            joined += MORE;
            break;
        }
        joined += value;
    }
    label(into, name, &joined);
}

/// The labels of an instance, by its scope.
fn labels(one: &Instance<'_>) -> String {
    let mut all = String::with_capacity(120);
    let node = one.source.node.map_or_else(String::new, |node| node.to_string());
    let port = one.source.port.as_ref();
    let bdf = port.and_then(|port| port.bdf).map(|bdf| bdf.to_string());
    if one.source.is_function() {
        label(&mut all, "device", &bdf.unwrap_or_default());
        label(&mut all, "driver", port.and_then(|port| port.driver.as_deref()).unwrap_or_default());
        let root = port.and_then(|port| port.path.first());
        label(&mut all, "port", &root.map_or_else(String::new, |root| root.to_string()));
    } else if one.source.scope == "port" {
        let mut below: Vec<String> = one.source.below.iter().map(|below| below.bdf.to_string()).collect();
        below.sort();
        let mut drivers: Vec<&str> = one.source.below.iter().filter_map(|below| below.driver.as_deref()).collect();
        drivers.sort_unstable();
        drivers.dedup();
        label(&mut all, "port", &bdf.unwrap_or_else(|| one.id()));
        list(&mut all, "device", &below);
        list(&mut all, "driver", &drivers);
    } else {
        label(&mut all, "pmu", one.pmu());
    }
    label(&mut all, "numa_node", &node);
    label_cpu(&mut all, one);
    label_source(&mut all, one);
    if one.source.scope == "channel" {
        for (word, number) in one.place() {
            label(&mut all, &word, &number.to_string());
        }
    }
    marks(&mut all, one);
    all
}

/// What a reader must know of the figures of an instance: made up, an emulator's, or scaled to the whole time. What is neither has
/// no such label.
fn marks(into: &mut String, one: &Instance<'_>) {
    if one.source.is_synthetic {
        label(into, "synthetic", "true");
    }
    if one.source.is_emulated {
        label(into, "emulated", "true");
    }
    if one.sums.is_estimated {
        label(into, "estimated", "true");
    }
}

/// The labels of the families about counting itself.
fn pmu_labels(one: &Instance<'_>) -> String {
    let mut all = String::new();
    label(&mut all, "pmu", one.pmu());
    label(&mut all, "numa_node", &one.source.node.map_or_else(String::new, |node| node.to_string()));
    label_cpu(&mut all, one);
    all
}

/// Who counted, where that was not hardware: then the bytes are a lower bound.
fn label_source(into: &mut String, one: &Instance<'_>) {
    if let Some(source) = &one.source.origin {
        label(into, "source", source);
    }
}

/// The CPU of one of several instances that have PMU and node in common.
fn label_cpu(into: &mut String, one: &Instance<'_>) {
    if let Some(cpu) = one.source.cpu {
        label(into, "cpu", &cpu.to_string());
    }
}

fn more(labels: &str, name: &str, value: &str) -> String {
    let mut all = labels.to_owned();
    label(&mut all, name, value);
    all
}

/// What the server counts of itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Own {
    /// Scrapes that were answered before.
    pub scrapes: u64,
    /// Connections that were closed at once because there were too many.
    pub refused: u64,
    /// Event streams that are open.
    pub streams: usize,
    /// Whether the configuration's files changed to what could not be used.
    pub has_stale_config: bool,
}

/// The answer to a scrape that began at `start`.
pub fn write(state: &State, format: Format, start: Instant, counts: Own) -> String {
    let inner = state.inner();
    let mut writer = Writer { out: String::with_capacity(64 * 1024), format };
    hardware(&mut writer, &inner);
    counting(&mut writer, &inner);
    devices::write(&mut writer, &inner);
    own(&mut writer, state, &inner, counts);
    drop(inner);
    let help = "Time that this answer took to make.";
    let took = start.elapsed().as_secs_f64();
    writer.one("pciescope_scrape_duration_seconds", Type::Gauge, "seconds", help, took);
    if format == Format::OpenMetrics {
        writer.out.push_str("# EOF\n");
    }
    writer.out
}

/// What hardware counted.
fn hardware(writer: &mut Writer, inner: &Inner) {
    let all: Vec<(Instance<'_>, String)> = inner.instances().map(|one| (one, labels(&one))).collect();
    for family in inner.families.values() {
        let name = &family.name;
        writer.family(family);
        for (one, labels) in &all {
            if let Some(value) = one.sums.sums.get(name).or_else(|| one.sums.gauges.get(name)) {
                writer.sample(family, labels, *value);
            }
            for (state, seconds) in one.sums.states.get(name).into_iter().flatten() {
                writer.sample(family, &more(labels, "state", state), *seconds);
            }
            if name == "pciescope_pmu_events" {
                for ((event, unit), value) in &one.sums.named {
                    let mut labels = more(&more(&pmu_labels(one), "event", event), "unit", unit);
                    marks(&mut labels, one);
                    writer.sample(family, &labels, *value);
                }
            }
        }
    }
    // One line a port: the kernel's only where no hardware counts.
    let hardware = inner.live.hardware_ports();
    let is_first = |one: &Instance<'_>| one.source.scope == "port" && !hardware.is_second(one.source.counted_by());
    let help = "Errors of the link, each event once, however many of its counters see it.";
    writer.all(
        &Family::new("pciescope_port_errors", Type::Counter, "", help),
        all.iter()
            .filter(|(one, _)| is_first(one))
            .filter_map(|(one, labels)| Some((labels.clone(), one.source.latest_errors()?))),
    );
    let ports = inner.instances().filter(is_first);
    let help = "A root port with counters: its name, its own driver and the PMU that counts for it.";
    writer.all(
        &Family::new("pciescope_port", Type::Info, "", help),
        ports.map(|one| {
            let device = one.source.port.as_ref();
            let mut all = String::new();
            let bdf = device.and_then(|device| device.bdf).map_or_else(|| one.id(), |bdf| bdf.to_string());
            label(&mut all, "port", &bdf);
            label(&mut all, "name", device.map_or("", |device| device.name.as_str()));
            label(&mut all, "port_driver", device.and_then(|device| device.driver.as_deref()).unwrap_or_default());
            label(&mut all, "pmu", one.pmu());
            label_source(&mut all, &one);
            (all, 1.0)
        }),
    );
}

/// How well it was counted.
fn counting(writer: &mut Writer, inner: &Inner) {
    // A PMU may be there twice: as a channel, and with events that a user named.
    let by_pmu = |value: &dyn Fn(&Instance<'_>) -> Option<f64>, join: fn(f64, f64) -> f64| {
        let mut all: BTreeMap<String, f64> = BTreeMap::new();
        for one in inner.instances().filter(|one| !one.source.is_accounting()) {
            if let Some(value) = value(&one) {
                all.entry(pmu_labels(&one)).and_modify(|before| *before = join(*before, value)).or_insert(value);
            }
        }
        all
    };
    let help = "Whether the PMU was read in the last interval.";
    let up = by_pmu(&|one| Some(f64::from(u8::from(one.sums.running.is_some()))), f64::max);
    writer.all(&Family::new("pciescope_pmu_up", Type::Gauge, "", help), up);
    let help = "Least share of the last interval in which a counter of this PMU ran. Below 1 its figures are scaled to the whole.";
    let running = by_pmu(&|one| one.sums.running, f64::min);
    writer.all(&Family::new("pciescope_pmu_running_ratio", Type::Gauge, "ratio", help), running);
    let help = "Intervals in which a counter of the hardware reached its end: its sum is at least what is shown.";
    let saturated = by_pmu(&|one| Some(one.sums.saturated as f64), |one, other| one + other);
    writer.all(&Family::new("pciescope_pmu_saturated_intervals", Type::Counter, "", help), saturated);
    let mut codes: BTreeMap<&str, u32> = BTreeMap::new();
    inner.live.warnings.iter().for_each(|warning| *codes.entry(&warning.code).or_default() += 1);
    let help = "Warnings of the last reading by their code (docs/record.md, Codes).";
    writer.all(
        &Family::new("pciescope_reading_warnings", Type::Gauge, "", help),
        codes.into_iter().map(|(code, count)| (more("", "code", code), f64::from(count))),
    );
}

/// The server about itself.
fn own(writer: &mut Writer, state: &State, inner: &Inner, counts: Own) {
    let version = more("", "version", env!("CARGO_PKG_VERSION"));
    writer.all(&Family::new("pciescope_build", Type::Info, "", "The program."), [(version, 1.0)]);
    let interval = state.interval_s(inner);
    let age = inner.last_at.map(|at| at.elapsed().as_secs_f64());
    // Two late readings are one too many.
    let is_fresh = age.is_some_and(|age| age < 3.0 * interval.max(0.1) + 1.0);
    let is_counting = matches!(inner.status.state.as_str(), "counting" | "replaying");
    let success = is_fresh && is_counting && inner.instances().any(|one| one.sums.running.is_some());
    let help = "Whether the last reading of the counters came in time and had figures.";
    writer.one("pciescope_reading_success", Type::Gauge, "", help, f64::from(u8::from(success)));
    if let Some(age) = age {
        writer.one("pciescope_reading_age_seconds", Type::Gauge, "seconds", "Time since the last reading.", age);
    }
    let help = "Time between two readings, as asked for.";
    writer.one("pciescope_reading_interval_seconds", Type::Gauge, "seconds", help, interval);
    writer.one("pciescope_readings", Type::Counter, "", "Readings of the counters.", inner.count as f64);
    let help = "Readings that did not take place at their time. Nothing is lost by that: the next one has what was counted meanwhile.";
    writer.one("pciescope_readings_missed", Type::Counter, "", help, inner.late as f64);
    let help = "Figures that were left out of a sum: not a number, negative, or past the end of numbers.";
    writer.one("pciescope_figures_refused", Type::Counter, "", help, inner.refused as f64);
    writer.one("pciescope_scrapes", Type::Counter, "", "Answers to scrapes before this one.", counts.scrapes as f64);
    let help = "Connections that were closed at once because there were too many.";
    writer.one("pciescope_connections_refused", Type::Counter, "", help, counts.refused as f64);
    let help = "Event streams that are open: pages that watch.";
    writer.one("pciescope_event_streams", Type::Gauge, "", help, counts.streams as f64);
    let help = "Whether users, tokens and certificates are those of the configuration's files; 0 where these could not be read again.";
    let is_fresh = f64::from(u8::from(!counts.has_stale_config));
    writer.one("pciescope_web_config_last_reload_successful", Type::Gauge, "", help, is_fresh);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_the_one_that_was_asked_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        for (accept, format) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            (prometheus, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("application/openmetrics-text; version=2.0.0", Format::Text),
            ("application/openmetrics-text;q=0.2, text/plain;q=0.9", Format::Text),
            ("application/openmetrics-text;q=0", Format::Text),
            ("application/openmetrics-text;q=x", Format::Text),
        ] {
            assert_eq!(Format::asked(accept), format, "{accept:?}");
        }
    }

    #[test]
    fn labels_hold_whatever_a_device_calls_itself() {
        let mut all = String::new();
        label(&mut all, "name", "a\"b\\c\nd\u{1b}[2J<script>");
        assert_eq!(all, "name=\"a\\\"b\\\\c\u{fffd}d\u{fffd}[2J<script>\"");
        let mut long = String::new();
        label(&mut long, "name", &"x".repeat(100_000));
        assert!(long.len() < 200);
    }

    #[test]
    fn a_list_is_cut_between_its_entries_and_says_so() {
        let all: Vec<String> = (0..16).map(|number| format!("0000:{:02x}:00.{}", number / 8, number % 8)).collect();
        for (count, want) in [(0, String::new()), (1, all[0].clone()), (12, all[..12].join(","))] {
            let mut into = String::new();
            list(&mut into, "device", &all[..count]);
            assert_eq!(into, format!("device=\"{want}\""));
        }
        let mut into = String::new();
        list(&mut into, "device", &all);
        assert_eq!(into, format!("device=\"{},...\"", all[..12].join(",")));
        // One name alone may be too long.
        let mut into = String::new();
        list(&mut into, "driver", &["x".repeat(200)]);
        assert_eq!(into, "driver=\"...\"");
    }
}
