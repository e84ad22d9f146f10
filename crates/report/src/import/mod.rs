//! Foreign logs to records: the text logs of the original pcilat driver, what `perf stat` prints, and the readout tool of
//! the SIS8300 boards.

mod interrupt;
mod iomem;
mod lines;
mod number;
mod perf_line;
mod perf_stat;
mod signs;
mod tally;
mod threads;
mod verify;
pub mod workload;

use pciescope_core::warning;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::SystemTime;

use pciescope_core::{Cpu, Histogram, Identity, Method, Metric, Record, outcome};

use self::lines::LogLine;
use self::perf_stat::{EventTotal, Refused};
use self::tally::Tally;
use self::verify::Compared;
use self::workload::{Amount, Traffic, Workloads};
use crate::text::{clean, thousands};
use crate::{Error, bounded, source};

pciescope_core::named! {
    /// A kind of foreign log.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Format {
        /// `handler_entry_ns trigger_to_handler_ns entry_to_ack_ns cpu irq`, one interrupt a line.
        Interrupt => "interrupt",
        /// `timestamp_ns latency_ns cpu bar`, one register read a line.
        Iomem => "iomem",
        /// What `perf stat` prints, also with `-I`, `-x`, `-j` and by CPU, socket and the like.
        PerfStat => "perf-stat",
        /// What `sis8300drv_threads` prints.
        Threads => "sis8300-threads",
    }
    /// As it is written on the command line.
    fn name
}

/// An imported log.
#[derive(Debug)]
pub struct Imported {
    /// What the log was.
    pub format: Format,
    /// The records, one per CPU and target (for perf one per interval and CPU).
    pub records: Vec<Record>,
    /// Lines read.
    pub lines: u64,
    /// Lines that became samples or figures.
    pub samples: u64,
    /// Headers, status lines and comments, which were skipped.
    pub words: u64,
    /// Lines that should have been samples and are not.
    pub malformed: u64,
}

/// Reads a log; `-` is standard input. Without `format` the log's beginning decides.
///
/// # Errors
/// [`Error::Read`]; [`Error::UnknownFormat`] where the beginning fits no format; [`Error::NoSample`] where no line did.
pub fn read(path: &Path, format: Option<Format>, identity: &Identity) -> Result<Imported, Error> {
    read_beside(path, format, identity, None)
}

/// As [`read`], with a separate file of what a workload printed while `perf stat` counted (fio's report, or bw_mem's
/// line). If the log has both, for example because `perf stat` ran the workload, the text is found there.
///
/// # Errors
/// As [`read`]; [`Error::Locale`] and [`Error::Twice`] for text of perf that can be read in two ways; [`Error::NoWorkload`] where `workload` holds none, or none of the counted events sees its traffic.
pub fn read_beside(
    path: &Path,
    format: Option<Format>,
    identity: &Identity,
    workload: Option<&Path>,
) -> Result<Imported, Error> {
    let fail = |source| Error::Read { path: path.to_owned(), source };
    let is_file = match std::fs::metadata(path) {
        _ if path == Path::new("-") => false,
        Ok(kind) if kind.is_dir() => return Err(fail(io::ErrorKind::IsADirectory.into())),
        kind => kind.map_err(fail)?.is_file(),
    };
    let mut source = source::open(path).map_err(fail)?;
    let mut head = Vec::new();
    let mut detected = None;
    for length in HEADS {
        let missing = length - head.len() as u64;
        (&mut source.input).take(missing).read_to_end(&mut head).map_err(fail)?;
        detected = format.or_else(|| detect(&head));
        if detected.is_some() || (head.len() as u64) < length {
            break;
        }
    }
    let named = |found: signs::Other| Error::NotALog {
        path: path.to_owned(),
        line: found.line,
        why: found.why,
        is_certain: found.is_certain,
    };
    if matches!(detected, None | Some(Format::Interrupt | Format::Iomem)) {
        signs::latency_log(&plain(&head), format.is_some()).map_err(named)?;
    }
    let format = detected.ok_or_else(|| Error::UnknownFormat { path: path.to_owned() })?;
    let rest = io::Cursor::new(head).chain(source.input);
    // A regular file is opened again by every thread; anything else is read on from where it is.
    let file = source.start.filter(|_| is_file).map(|start| (path, start));
    let mut imported = match format {
        Format::Interrupt => log(path, file, rest, format, interrupt::meaning, interrupt::record),
        Format::Iomem => log(path, file, rest, format, iomem::meaning, iomem::record),
        Format::PerfStat => perf(path, rest, workload),
        Format::Threads => threads(path, rest),
    }?;
    let now = SystemTime::now();
    imported.records.iter_mut().for_each(|record| identity.mark(record, now));
    Ok(imported)
}

/// How much of a log is read to find out what it is: more where the first does not tell.
const HEADS: [u64; 2] = [64 << 10, 8 << 20];

/// What a log is, by its first lines; `None` where nothing fits.
fn detect(head: &[u8]) -> Option<Format> {
    let text = plain(head);
    if perf_stat::is_perf_stat(&text) {
        return Some(Format::PerfStat);
    }
    if threads::is_threads(&text) {
        return Some(Format::Threads);
    }
    match signs::numbers(&text).next()?.1.len() {
        5 => Some(Format::Interrupt),
        4 => Some(Format::Iomem),
        _ => None,
    }
}

/// A text as it was before a terminal's colours and a pager's marks.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if !text.contains('\u{1b}') {
        return text.into_owned();
    }
    let mut plain = String::new();
    for (number, part) in text.split('\u{1b}').enumerate() {
        let rest = match part.strip_prefix('[') {
            _ if number == 0 => part,
            // A control sequence ends with its first letter.
            Some(code) => code.find(|c: char| matches!(c, '@'..='~')).map_or("", |end| &code[end + 1..]),
            // A title ends with a bell; other sequences have one or two characters.
            None if part.starts_with(']') => part.split_once('\u{7}').map_or("", |(_, rest)| rest),
            None => part.strip_prefix(['(', ')']).unwrap_or(part).get(1..).unwrap_or_default(),
        };
        plain.push_str(rest);
    }
    plain
}

fn log<const F: usize, const V: usize>(
    path: &Path,
    file: Option<(&Path, u64)>,
    rest: impl io::Read,
    format: Format,
    meaning: fn([u64; F]) -> LogLine<V>,
    record: fn(u32, [Histogram; V]) -> Record,
) -> Result<Imported, Error> {
    let parts = match file {
        Some((file, start)) => lines::read_file(file, start, meaning),
        None => lines::read(rest, meaning).map(|part| vec![part]),
    };
    let mut parts = parts.map_err(|source| Error::Read { path: path.to_owned(), source })?;
    // A last line without its end may have lost digits: the CPU and target that it names must be in other lines, too.
    let pair = parts.last().and_then(|part| part.unfinished.as_ref()).map(|row| (row.cpu as u32, row.target as u32));
    let is_known = pair.is_some_and(|pair| parts.iter().any(|part| part.tally.has(pair)));
    if let Some(part) = parts.last_mut() {
        part.finish(is_known);
    }
    let mut parsed = Parsed::default();
    for part in &mut parts {
        parsed.named.extend(part.named.drain(..).map(|(line, why)| (parsed.lines + line, why)));
        parsed.lines += part.lines;
        parsed.figures += part.samples;
        parsed.words += part.words;
        parsed.malformed += part.malformed;
    }
    if parsed.figures == 0 {
        return Err(parsed.no_sample(path, format));
    }
    let tallies: Vec<Tally<V>> = parts.iter_mut().map(|p| std::mem::take(&mut p.tally)).collect();
    if Tally::are_too_many(&tallies) {
        return Err(Error::TooManyCells { path: path.to_owned(), bound: tally::MAX_CELLS });
    }
    for ((cpu, target), total) in Tally::totals(tallies) {
        let mut record = Record {
            cpu: Some(Cpu { cpu, ..Cpu::default() }),
            method: Some(method(format)),
            ..record(target, total.histograms)
        };
        if let Some((effect, batches)) = total.effect {
            record.metrics.insert(outcome::DESIGN_EFFECT.to_owned(), Metric::of(effect, "1"));
            record.metrics.insert(outcome::DESIGN_BATCHES.to_owned(), Metric::count(batches as u64));
        }
        parsed.records.push(record);
    }
    if let Some(first) = parsed.records.first_mut() {
        first.metrics.insert("malformed_lines".to_owned(), Metric::count(parsed.malformed));
    }
    Ok(parsed.imported(path, format))
}

fn method(format: Format) -> Method {
    Method {
        backend: "import".to_owned(),
        clock: "nanoseconds of the log".to_owned(),
        batch: 1,
        notes: vec![format!("imported from a log of format {}; how it was measured is not known", format.name())],
        ..Method::default()
    }
}

/// What a log held.
#[derive(Default)]
struct Parsed {
    records: Vec<Record>,
    lines: u64,
    /// Samples; counters; rows, parameters and lines of a profile.
    figures: u64,
    words: u64,
    malformed: u64,
    /// Line number and what is wrong.
    named: Vec<(u64, String)>,
    /// Of perf: every event that was counted, in the text's order; the intervals of `-I` added up.
    counted: Vec<EventTotal>,
    /// Of perf: how long it all took, in seconds, where the text says.
    elapsed_s: Option<f64>,
    /// Of perf: its figures are the mean of so many runs (`-r`); 0 where the text does not say how many.
    mean_of: Option<u64>,
}

impl Parsed {
    /// Does not take the line that was read last.
    fn refuse(&mut self, line: &str, why: &str) {
        self.malformed += 1;
        let shown: String = line.trim().chars().take(60).collect();
        self.named.push((self.lines, format!("{:?} {why}", clean(&shown))));
    }

    /// The lines that were not taken, by file and number.
    fn placed(&self, path: &Path) -> Vec<String> {
        let named = self.named.iter().take(lines::NAMED);
        named.map(|(line, why)| format!("{}:{line}: {why}", path.display())).collect()
    }

    /// The refusal of a text that holds nothing of its format.
    fn no_sample(&self, path: &Path, format: Format) -> Error {
        let first = self.placed(path).into_iter().next();
        Error::NoSample { path: path.to_owned(), format: format.name(), first }
    }

    /// The log; its first record says where lines were not taken.
    fn imported(mut self, path: &Path, format: Format) -> Imported {
        let named = self.placed(path);
        if let (Some(first), true) = (self.records.first_mut(), self.malformed > 0) {
            let (path, count) = (path.display(), thousands(self.malformed));
            let text = format!("{path}: {count} lines were not taken: {}", named.join("; "));
            first.warnings.push(warning::MALFORMED_LINES.warn(text));
        }
        let Parsed { records, lines, figures: samples, words, malformed, .. } = self;
        Imported { format, records, lines, samples, words, malformed }
    }
}

/// All of a file's text.
fn text(path: &Path, input: impl io::Read) -> Result<String, Error> {
    let bytes = bounded::text(input).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    Ok(plain(&bytes))
}

fn threads(path: &Path, input: impl io::Read) -> Result<Imported, Error> {
    let parsed = threads::parse(&text(path, input)?);
    if parsed.records.is_empty() {
        return Err(parsed.no_sample(path, Format::Threads));
    }
    Ok(parsed.imported(path, Format::Threads))
}

/// Refuses a text with several runs of bw_mem, or several reports of one fio: which of them the counters saw is not known.
fn one_workload(path: &Path, text: &str, traffic: &[Traffic], mean_of: Option<u64>) -> Result<(), Error> {
    let twice = |what: String| Err(Error::Twice { path: path.to_owned(), line: 1, what });
    let rates = traffic.iter().find(|traffic| matches!(traffic.amount, Amount::Rate { .. }));
    match rates.map_or(1, |traffic| traffic.runs) {
        1 if workload::is_repeated_fio(text) => {
            twice("the text holds several reports of one fio (--status-interval)".to_owned())
        }
        lines if lines > 1 && mean_of.is_none() => twice(format!("the text holds {lines} results of bw_mem")),
        _ => Ok(()),
    }
}

fn perf(path: &Path, input: impl io::Read, workload: Option<&Path>) -> Result<Imported, Error> {
    let counted = text(path, input)?;
    let mut parsed = perf_stat::parse(&counted).map_err(|refused| match refused {
        Refused::Locale { line, text } => Error::Locale { path: path.to_owned(), line, text },
        Refused::Twice { line, what } => Error::Twice { path: path.to_owned(), line, what },
        Refused::Prefix { line, text } => Error::Prefix { path: path.to_owned(), line, text },
        Refused::TooMany => Error::TooManyEvents { path: path.to_owned(), bound: perf_stat::MAX_EVENTS },
    })?;
    if parsed.figures == 0 {
        return Err(parsed.no_sample(path, Format::PerfStat));
    }
    let (file, printed) = match workload {
        None => (path, counted),
        Some(file) => {
            let opened = source::open(file).map_err(|source| Error::Read { path: file.to_owned(), source })?;
            (file, text(file, opened.input)?)
        }
    };
    let Workloads { traffic, unread } = workload::parse(&printed);
    one_workload(file, &printed, &traffic, parsed.mean_of)?;
    let Compared { records, mut left } = verify::compare(&parsed, &traffic);
    let no_elapsed = verify::lacks_elapsed(&parsed, &traffic).then(|| Error::NoElapsed { path: path.to_owned() });
    left.splice(..0, unread.into_iter().map(|(line, why)| format!("{}:{line}: {why}", file.display())));
    if records.is_empty() && workload.is_some() {
        return Err(no_elapsed.unwrap_or_else(|| Error::NoWorkload {
            path: file.to_owned(),
            left,
            found: traffic.len(),
        }));
    }
    parsed.records.extend(records);
    let mut imported = parsed.imported(path, Format::PerfStat);
    if let Some(first) = imported.records.first_mut() {
        if let Some(error) = no_elapsed {
            let hint = error.hint().unwrap_or_default().to_owned();
            first.warnings.push(warning::NO_ELAPSED.hinted(error.to_string(), hint));
        } else if !left.is_empty() {
            first.warnings.push(warning::NOT_COMPARED.warn(left.join("; ")));
        }
    }
    Ok(imported)
}
