//! Foreign logs to records: the text logs of the original pcilat driver, what `perf stat` prints, and the readout tool of
//! the SIS8300 boards.

mod interrupt;
mod iomem;
mod lines;
mod number;
mod perf_stat;
mod tally;
mod threads;
mod verify;
pub mod workload;

use pciescope_core::warning;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::SystemTime;

use pciescope_core::{Cpu, Histogram, Identity, Method, Metric, Record, outcome};

use self::lines::LogLine;
use self::perf_stat::{EventTotal, Refused};
use self::tally::Tally;
use crate::text::{clean, thousands};
use crate::{Error, bounded};

pciescope_core::named! {
    /// A kind of foreign log.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Format {
        /// `handler_entry_ns trigger_to_handler_ns entry_to_ack_ns cpu irq`, one interrupt a line.
        Interrupt => "interrupt",
        /// `timestamp_ns latency_ns cpu bar`, one register read a line.
        Iomem => "iomem",
        /// What `perf stat` prints, also with `-I` and `-x`.
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
    let is_stdin = path == Path::new("-");
    let file = if is_stdin { None } else { Some(File::open(path).map_err(fail)?) };
    let is_regular = match &file {
        Some(file) => {
            let kind = file.metadata().map_err(fail)?.file_type();
            if kind.is_dir() {
                return Err(fail(io::ErrorKind::IsADirectory.into()));
            }
            kind.is_file()
        }
        None => false,
    };
    let mut input: Box<dyn io::Read> = match file {
        Some(file) => Box::new(file),
        None => Box::new(io::stdin().lock()),
    };
    let mut head = Vec::new();
    (&mut input).take(HEAD).read_to_end(&mut head).map_err(fail)?;
    if head.starts_with(lines::BOM) {
        head.drain(..lines::BOM.len());
    }
    let format = format.or_else(|| detect(&head)).ok_or_else(|| Error::UnknownFormat { path: path.to_owned() })?;
    let rest = io::Cursor::new(head).chain(input);
    // A regular file is opened again by every thread; anything else is read on from where it is.
    let file = is_regular.then_some(path);
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

/// How much of a log is read to find out what it is.
const HEAD: u64 = 64 << 10;

/// What a log is, by its first lines; `None` where nothing fits.
fn detect(head: &[u8]) -> Option<Format> {
    let text = String::from_utf8_lossy(head);
    if perf_stat::is_perf_stat(&text) {
        return Some(Format::PerfStat);
    }
    if threads::is_threads(&text) {
        return Some(Format::Threads);
    }
    text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        if fields.is_empty() || !fields.iter().all(|f| f.bytes().all(|b| b.is_ascii_digit())) {
            return None;
        }
        match fields.len() {
            5 => Some(Format::Interrupt),
            4 => Some(Format::Iomem),
            _ => None,
        }
    })
}

fn log<const F: usize, const V: usize>(
    path: &Path,
    file: Option<&Path>,
    rest: impl io::Read,
    format: Format,
    meaning: fn([u64; F]) -> LogLine<V>,
    record: fn(u32, [Histogram; V]) -> Record,
) -> Result<Imported, Error> {
    let parts = match file {
        Some(file) => lines::read_file(file, meaning),
        None => lines::read(rest, meaning).map(|part| vec![part]),
    };
    let mut parts = parts.map_err(|source| Error::Read { path: path.to_owned(), source })?;
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
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn threads(path: &Path, input: impl io::Read) -> Result<Imported, Error> {
    let parsed = threads::parse(&text(path, input)?);
    if parsed.records.is_empty() {
        return Err(parsed.no_sample(path, Format::Threads));
    }
    Ok(parsed.imported(path, Format::Threads))
}

/// Refuses a text with several runs of bw_mem, or several reports of one fio: which of them the counters saw is not known.
fn one_workload(path: &Path, text: &str) -> Result<(), Error> {
    let twice = |what: String| Err(Error::Twice { path: path.to_owned(), line: 1, what });
    match workload::bw_mem_lines(text) {
        0 | 1 if workload::is_repeated_fio(text) => {
            twice("the text holds several reports of one fio (--status-interval)".to_owned())
        }
        0 | 1 => Ok(()),
        lines => twice(format!("the text holds {lines} results of bw_mem")),
    }
}

fn perf(path: &Path, input: impl io::Read, workload: Option<&Path>) -> Result<Imported, Error> {
    let counted = text(path, input)?;
    let mut parsed = perf_stat::parse(&counted).map_err(|refused| match refused {
        Refused::Locale { line, text } => Error::Locale { path: path.to_owned(), line, text },
        Refused::Twice { line, what } => Error::Twice { path: path.to_owned(), line, what },
        Refused::TooMany => Error::TooManyEvents { path: path.to_owned(), bound: perf_stat::MAX_EVENTS },
    })?;
    if parsed.figures == 0 {
        return Err(parsed.no_sample(path, Format::PerfStat));
    }
    let (file, printed) = match workload {
        None => (path, counted),
        Some(file) => {
            let opened = File::open(file).map_err(|source| Error::Read { path: file.to_owned(), source })?;
            (file, text(file, opened)?)
        }
    };
    one_workload(file, &printed)?;
    let traffic = workload::parse(&printed);
    let compared = verify::records(&parsed, &traffic);
    let no_elapsed = verify::lacks_elapsed(&parsed, &traffic).then(|| Error::NoElapsed { path: path.to_owned() });
    if compared.is_empty() && workload.is_some() {
        return Err(no_elapsed.unwrap_or(Error::NoWorkload { path: file.to_owned(), found: traffic.len() }));
    }
    parsed.records.extend(compared);
    let mut imported = parsed.imported(path, Format::PerfStat);
    if let (Some(first), Some(error)) = (imported.records.first_mut(), no_elapsed) {
        let hint = error.hint().unwrap_or_default().to_owned();
        first.warnings.push(warning::NO_ELAPSED.hinted(error.to_string(), hint));
    }
    Ok(imported)
}
