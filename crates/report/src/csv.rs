//! One line of comma-separated values per histogram; metrics-only records give one line per metric.
//!
//! The header is fixed: columns are only ever added at the end. Durations are nanoseconds. An empty field means
//! "does not apply" or "too few samples for this percentile".

use std::borrow::Cow;
use std::io::{self, Write};

use pciescope_core::{Metric, Record, Sink, Stream};

/// The columns, in order; docs/record.md says what each means.
pub const HEADER: [&str; 54] = [
    "run",
    "time",
    "verb",
    "test",
    "backend",
    "emulated",
    "device",
    "vendor_id",
    "device_id",
    "bar",
    "offset",
    "width",
    "vector",
    "irq",
    "hop",
    "hop_bdf",
    "cpu",
    "node",
    "package",
    "l3",
    "thread",
    "name",
    "unit",
    "count",
    "min",
    "mean",
    "p50",
    "p95",
    "p99",
    "p999",
    "p9999",
    "max",
    "error",
    "label",
    "pmu",
    "scope",
    "start_ns",
    "end_ns",
    "running",
    "at_least",
    "path",
    "access",
    "wait",
    "function",
    "samples",
    "cycle",
    "conversion",
    "devices",
    "sweep",
    "group",
    "piece_bytes",
    "depth",
    "check",
    "source",
];

/// A sink that writes the header before the first record and flushes after each.
pub struct Writer<W: Write> {
    out: W,
    text: Vec<u8>,
    separator: u8,
    has_header: bool,
    is_file: bool,
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
        Writer { out, text: Vec::new(), separator, has_header: false, is_file: false }
    }
    /// The same for a file that nobody reads before it is complete: it is written in large pieces.
    pub fn of_file(out: W) -> Self {
        Writer { is_file: true, ..Writer::new(out) }
    }
    fn head(&mut self) {
        if !self.has_header {
            self.has_header = true;
            put(&mut self.text, HEADER, self.separator);
            end(&mut self.text);
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.text)?;
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

/// Appends the lines of a record. What they share is made once.
fn lines(record: &Record, text: &mut Vec<u8>, separator: u8) {
    let shared = shared(record);
    let [before, between, behind] =
        [&shared[..NAME], &shared[NAME + 11..RUNNING], &shared[RUNNING + 2..]].map(|part| {
            let mut text = Vec::new();
            put(&mut text, part.iter().map(String::as_str), separator);
            text
        });
    let mut line = |name: &str, figures: [String; 10], metric: Option<&Metric>| {
        text.extend(&before);
        put(text, [&*harmless(name.into())], separator);
        put(text, figures.map(|figure| harmless(figure.into())).iter().map(|figure| &**figure), separator);
        text.extend(&between);
        let running = number(metric.and_then(|metric| metric.running));
        let at_least = some(metric.filter(|metric| metric.at_least).map(|metric| metric.at_least));
        put(text, [&*running, &at_least], separator);
        text.extend(&behind);
        end(text);
    };
    for (name, h) in &record.histograms {
        let p = |percent| number(h.percentile_ns(percent));
        let figures = [
            "ns".to_owned(),
            h.count().to_string(),
            number(h.min_ns()),
            number(h.mean_ns()),
            p(50.0),
            p(95.0),
            p(99.0),
            p(99.9),
            p(99.99),
            number(h.max_ns()),
        ];
        line(name, figures, None);
    }
    // A figure has no distribution: its value stands in the mean's column.
    for (name, m) in &record.metrics {
        let mut figures: [String; 10] = Default::default();
        figures[0] = m.unit.clone();
        figures[3] = number(Some(m.value));
        line(name, figures, Some(m));
    }
    for spot in &record.hot_spots {
        let mut figures: [String; 10] = Default::default();
        figures[0] = "%".to_owned();
        figures[3] = number(Some(spot.percent));
        line(&format!("hot spot {} {}", spot.object, spot.symbol), figures, None);
    }
    let is_empty = record.histograms.is_empty() && record.metrics.is_empty() && record.hot_spots.is_empty();
    if is_empty && record.error.is_some() {
        line("", Default::default(), None);
    }
}

/// The places of the fields that differ among the lines of a record: the name, ten figures behind it, and two marks.
const NAME: usize = 21;
const RUNNING: usize = NAME + 10 + 7;

/// The fields that all lines of a record share; the others are empty.
fn shared(record: &Record) -> Vec<String> {
    let (device, method) = (record.device.as_ref(), record.method.as_ref());
    let target = record.target.clone().unwrap_or_default();
    let cpu = record.cpu.clone().unwrap_or_default();
    let mut fields = vec![
        record.run.clone(),
        record.time.clone(),
        record.verb.clone(),
        record.test.clone(),
        method.map(|m| m.backend.clone()).unwrap_or_default(),
        crate::model::is_emulation(record.method.as_ref(), record.device.as_ref()).to_string(),
        some(device.and_then(|d| d.bdf)),
        device.map(|d| format!("{:04x}", d.vendor)).unwrap_or_default(),
        device.map(|d| format!("{:04x}", d.device)).unwrap_or_default(),
        some(target.bar),
        target.offset.map(|o| format!("{o:#x}")).unwrap_or_default(),
        some(target.width),
        some(target.vector),
        some(target.irq),
        some(target.hop),
        some(target.hop_bdf),
        some(record.cpu.as_ref().map(|c| c.cpu)),
        some(cpu.node),
        some(cpu.package),
        some(cpu.l3),
        some(cpu.thread),
    ];
    debug_assert_eq!(fields.len(), NAME);
    fields.resize(NAME + 11, String::new());
    fields.push(record.error.as_ref().map(|e| e.code.clone()).unwrap_or_default());
    fields.push(record.label.clone().unwrap_or_default());
    let instance = record.instance.as_ref();
    fields.push(instance.and_then(|instance| instance.pmu.clone()).unwrap_or_default());
    fields.push(instance.map(|instance| instance.scope.clone()).unwrap_or_default());
    fields.push(some(record.interval.map(|interval| interval.start_ns)));
    fields.push(some(record.interval.map(|interval| interval.end_ns)));
    debug_assert_eq!(fields.len(), RUNNING);
    fields.resize(RUNNING + 2, String::new());
    let stream = record.stream.as_ref();
    let text = |of: fn(&Stream) -> &str| stream.map(|stream| of(stream).to_owned()).unwrap_or_default();
    let known = |number: Option<u64>| some(number.filter(|number| *number > 0));
    let optional =
        |of: fn(&Stream) -> &Option<String>| stream.and_then(|stream| of(stream).clone()).unwrap_or_default();
    fields.push(text(|stream| &stream.path));
    fields.push(text(|stream| &stream.access));
    fields.push(optional(|stream| &stream.wait));
    fields.push(stream.map(Stream::function_name).unwrap_or_default());
    fields.push(known(stream.map(|stream| stream.samples)));
    fields.push(some(stream.and_then(|stream| stream.cycle)));
    fields.push(optional(|stream| &stream.conversion));
    fields.push(known(stream.map(|stream| stream.devices.into())));
    fields.push(optional(|stream| &stream.sweep));
    fields.push(some(stream.map(|stream| stream.group)));
    fields.push(some(stream.and_then(|stream| stream.piece_bytes)));
    fields.push(some(stream.and_then(|stream| stream.depth)));
    fields.push(optional(|stream| &stream.check));
    fields.push(instance.and_then(|instance| instance.source.clone()).unwrap_or_default());
    fields.into_iter().map(|field| harmless(field.into()).into_owned()).collect()
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
