//! One line of comma-separated values per histogram; metrics-only records give one line per metric.
//!
//! The header is fixed: columns are only ever added at the end. Durations are nanoseconds. An empty field means
//! "does not apply" or "too few samples for this percentile".

use std::borrow::Cow;
use std::io::{self, Write};

use pciescope_core::{Record, Sink, Stream};

use crate::text::clean;

/// A column: its name, and what is in it of a record; `None` where the lines of a record differ in it.
type Column = (&'static str, Option<fn(&Record) -> String>);

/// The columns, in order; docs/record.md says what each means.
const COLUMNS: [Column; 55] = [
    ("run", Some(|r| r.run.clone())),
    ("time", Some(|r| r.time.clone())),
    ("verb", Some(|r| r.verb.clone())),
    ("test", Some(|r| r.test.clone())),
    ("backend", Some(|r| some(r.method.as_ref().map(|method| &method.backend)))),
    ("emulated", Some(|r| crate::model::is_emulation(r.method.as_ref(), r.device.as_ref()).to_string())),
    ("device", Some(|r| some(r.device.as_ref().and_then(|device| device.bdf)))),
    ("vendor_id", Some(|r| some(r.device.as_ref().map(|device| format!("{:04x}", device.vendor))))),
    ("device_id", Some(|r| some(r.device.as_ref().map(|device| format!("{:04x}", device.device))))),
    ("bar", Some(|r| some(r.target.as_ref().and_then(|target| target.bar)))),
    ("offset", Some(|r| some(r.target.as_ref().and_then(|target| Some(format!("{:#x}", target.offset?)))))),
    ("width", Some(|r| some(r.target.as_ref().and_then(|target| target.width)))),
    ("vector", Some(|r| some(r.target.as_ref().and_then(|target| target.vector)))),
    ("irq", Some(|r| some(r.target.as_ref().and_then(|target| target.irq)))),
    ("hop", Some(|r| some(r.target.as_ref().and_then(|target| target.hop)))),
    ("hop_bdf", Some(|r| some(r.target.as_ref().and_then(|target| target.hop_bdf)))),
    ("cpu", Some(|r| some(r.cpu.as_ref().map(|cpu| cpu.cpu)))),
    ("node", Some(|r| some(r.cpu.as_ref().and_then(|cpu| cpu.node)))),
    ("package", Some(|r| some(r.cpu.as_ref().and_then(|cpu| cpu.package)))),
    ("l3", Some(|r| some(r.cpu.as_ref().and_then(|cpu| cpu.l3)))),
    ("thread", Some(|r| some(r.cpu.as_ref().and_then(|cpu| cpu.thread)))),
    ("name", None),
    ("unit", None),
    ("count", None),
    ("min", None),
    ("mean", None),
    ("p50", None),
    ("p95", None),
    ("p99", None),
    ("p999", None),
    ("p9999", None),
    ("max", None),
    ("error", Some(|r| some(r.error.as_ref().map(|error| &error.code)))),
    ("label", Some(|r| some(r.label.as_ref()))),
    ("pmu", Some(|r| some(r.instance.as_ref().and_then(|instance| instance.pmu.as_ref())))),
    ("scope", Some(|r| some(r.instance.as_ref().map(|instance| &instance.scope)))),
    ("start_ns", Some(|r| some(r.interval.map(|interval| interval.start_ns)))),
    ("end_ns", Some(|r| some(r.interval.map(|interval| interval.end_ns)))),
    ("running", None),
    ("at_least", None),
    ("path", Some(|r| some(r.stream.as_ref().map(|stream| &stream.path)))),
    ("access", Some(|r| some(r.stream.as_ref().map(|stream| &stream.access)))),
    ("wait", Some(|r| some(r.stream.as_ref().and_then(|stream| stream.wait.as_ref())))),
    ("function", Some(|r| some(r.stream.as_ref().map(Stream::function_name)))),
    ("samples", Some(|r| some(r.stream.as_ref().map(|stream| stream.samples).filter(|samples| *samples > 0)))),
    ("cycle", Some(|r| some(r.stream.as_ref().and_then(|stream| stream.cycle)))),
    ("conversion", Some(|r| some(r.stream.as_ref().and_then(|stream| stream.conversion.as_ref())))),
    ("devices", Some(|r| some(r.stream.as_ref().map(|stream| stream.devices).filter(|devices| *devices > 0)))),
    ("sweep", Some(|r| some(r.stream.as_ref().and_then(|stream| stream.sweep.as_ref())))),
    ("group", Some(|r| some(r.stream.as_ref().map(|stream| stream.group)))),
    ("piece_bytes", Some(|r| some(r.stream.as_ref().and_then(|stream| stream.piece_bytes)))),
    ("depth", Some(|r| some(r.stream.as_ref().and_then(|stream| stream.depth)))),
    ("check", Some(|r| some(r.stream.as_ref().and_then(|stream| stream.check.as_ref())))),
    ("source", Some(|r| some(r.instance.as_ref().and_then(|instance| instance.source.as_ref())))),
    ("pmu_node", Some(|r| some(r.instance.as_ref().and_then(|instance| instance.node)))),
];

/// The names of the columns.
pub const HEADER: [&str; COLUMNS.len()] = {
    let (mut names, mut place) = ([""; COLUMNS.len()], 0);
    while place < names.len() {
        names[place] = COLUMNS[place].0;
        place += 1;
    }
    names
};

/// A sink that writes the header before the first record and flushes after each.
pub struct Writer<W: Write> {
    out: W,
    text: Vec<u8>,
    separator: u8,
    has_header: bool,
    is_file: bool,
    is_terminal: bool,
}

/// A file is written in pieces of so many bytes.
const PIECE: usize = 256 << 10;

impl<W: Write> Writer<W> {
    /// A sink onto `out`.
    pub fn new(out: W) -> Self {
        Writer::with_separator(out, b',')
    }
    /// A sink onto `out` with another separator than a comma.
    pub fn with_separator(out: W, separator: u8) -> Self {
        Writer { out, text: Vec::new(), separator, has_header: false, is_file: false, is_terminal: false }
    }
    /// The same for a file that nobody reads before it is complete: it is written in large pieces.
    pub fn of_file(out: W) -> Self {
        Writer { is_file: true, ..Writer::new(out) }
    }
    /// The same for a terminal: names cannot move its cursor or recolour it.
    pub fn for_terminal(self, is_terminal: bool) -> Self {
        Writer { is_terminal, ..self }
    }
    fn head(&mut self) {
        if !self.has_header {
            self.has_header = true;
            put(&mut self.text, HEADER, self.separator);
            end(&mut self.text);
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        if self.is_terminal {
            let text = String::from_utf8_lossy(&self.text);
            let is_form = |c: &str| c == "\n" || c.as_bytes() == [self.separator];
            let shown = |c: char| {
                let c = c.to_string();
                if is_form(&c) { c } else { clean(&c) }
            };
            self.out.write_all(text.chars().map(shown).collect::<String>().as_bytes())?;
        } else {
            self.out.write_all(&self.text)?;
        }
        self.text.clear();
        self.out.flush()
    }
}

impl<W: Write> Sink for Writer<W> {
    fn put(&mut self, record: &Record) -> io::Result<()> {
        self.head();
        lines(record, &mut self.text, self.separator);
        if self.is_file && self.text.len() < PIECE { Ok(()) } else { self.flush() }
    }
    fn finish(&mut self) -> io::Result<()> {
        self.head();
        self.flush()
    }
}

/// Appends fields, each with the separator behind it.
fn put<'f>(text: &mut Vec<u8>, fields: impl IntoIterator<Item = &'f str>, separator: u8) {
    for field in fields {
        if field.bytes().any(|byte| byte == separator || matches!(byte, b'"' | b'\n' | b'\r')) {
            text.push(b'"');
            text.extend(field.replace('"', "\"\"").into_bytes());
            text.push(b'"');
        } else {
            text.extend(field.as_bytes());
        }
        text.push(separator);
    }
}

/// Ends a line: no separator stands behind its last field.
fn end(text: &mut Vec<u8>) {
    text.pop();
    text.push(b'\n');
}

/// All records as one text.
pub fn render(records: &[Record]) -> String {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    for record in records {
        writer.put(record).expect("writing to memory cannot fail");
    }
    writer.finish().expect("writing to memory cannot fail");
    drop(writer);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The name, the unit, the figures, `running` and `at_least` of a line: the columns in which lines differ.
type Own = [String; 13];

/// Appends the lines of a record. What they share is made once.
fn lines(record: &Record, text: &mut Vec<u8>, separator: u8) {
    // What stands before each of a line's own fields, and behind the last.
    let mut shared = vec![Vec::new()];
    for (_, of) in COLUMNS {
        match (of, shared.last_mut()) {
            (Some(of), Some(part)) => put(part, [&*harmless(of(record).into())], separator),
            _ => shared.push(Vec::new()),
        }
    }
    let mut line = |own: Own| {
        let mut own = own.into_iter();
        for part in &shared {
            text.extend(part);
            own.next().into_iter().for_each(|field| put(text, [&*harmless(field.into())], separator));
        }
        end(text);
    };
    for (name, h) in &record.histograms {
        let mut own = Own::default();
        let p = |percent| number(h.percentile_ns(percent));
        own[..3].clone_from_slice(&[name.clone(), "ns".to_owned(), h.count().to_string()]);
        own[3..5].clone_from_slice(&[number(h.min_ns()), number(h.mean_ns())]);
        own[5..11].clone_from_slice(&[p(50.0), p(95.0), p(99.0), p(99.9), p(99.99), number(h.max_ns())]);
        line(own);
    }
    // A figure has no distribution: its value stands in the mean's column.
    let figure = |name: String, unit: &str, value: f64| {
        let mut own = Own::default();
        (own[0], own[1], own[4]) = (name, unit.to_owned(), number(Some(value)));
        own
    };
    for (name, m) in &record.metrics {
        let mut own = figure(name.clone(), &m.unit, m.value);
        (own[11], own[12]) = (number(m.running), some(m.at_least.then_some(true)));
        line(own);
    }
    for spot in &record.hot_spots {
        line(figure(format!("hot spot {} {}", spot.object, spot.symbol), "%", spot.percent));
    }
    let is_empty = record.histograms.is_empty() && record.metrics.is_empty() && record.hot_spots.is_empty();
    if is_empty && record.error.is_some() {
        line(Own::default());
    }
}

/// A field that no spreadsheet runs: before one that starts like a formula an apostrophe keeps it text.
fn harmless(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.starts_with(['=', '@', '\t', '\r']) || (text.starts_with(['+', '-']) && text.parse::<f64>().is_err()) {
        return Cow::Owned(format!("'{text}"));
    }
    text
}

fn some(value: Option<impl ToString>) -> String {
    value.map(|v| v.to_string()).unwrap_or_default()
}

/// Three decimals are picoseconds where the unit is nanoseconds; whole numbers stay whole.
fn number(value: Option<f64>) -> String {
    value.map(crate::text::figure).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_control_characters() {
        let label = "a\u{1b}[31mb\u{9b}2Jc,\"d\u{202e}".to_owned();
        let record = Record {
            label: Some(label.clone()),
            metrics: [("m".to_owned(), pciescope_core::Metric::count(1))].into(),
            ..Record::default()
        };
        let shown = |is_terminal: bool, separator: u8| {
            let mut bytes = Vec::new();
            let mut writer = Writer::with_separator(&mut bytes, separator).for_terminal(is_terminal);
            writer.put(&record).unwrap();
            drop(writer);
            String::from_utf8(bytes).unwrap()
        };
        assert!(shown(false, b',').contains(&label.replace('"', "\"\"")));
        for separator in [b',', b'\t'] {
            let text = shown(true, separator);
            assert!(text.contains("a\u{fffd}[31mb\u{fffd}2Jc,\"\"d\u{fffd}"), "{text:?}");
            assert!(text.chars().all(|c| !c.is_control() || c == '\n' || c == char::from(separator)), "{text:?}");
            assert_eq!(text.lines().count(), 2);
        }
    }
}
