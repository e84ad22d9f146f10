//! Where records go: a table, JSON lines or CSV as they are shown, a file of records and one of raw samples beside them.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::NonEmptyStringValueParser;
use pciescope_core::outcome::{Sample, SampleKind};
use pciescope_core::{Record, Sink};
use pciescope_report::{csv, jsonl, table};

use super::Refusal;

/// The options of all measurements that say where the results go.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Print the records, one JSON object a line, as they are completed
    #[arg(short, long, conflicts_with = "csv")]
    pub json: bool,

    /// Print comma-separated values, one line per histogram and figure
    #[arg(long)]
    pub csv: bool,

    #[command(flatten)]
    pub file: FileArgs,

    /// Show every row of long tables
    #[arg(long)]
    pub all: bool,
}

/// The options of every verb that writes records to a file.
#[derive(Debug, clap::Args)]
pub struct FileArgs {
    /// Write the records (JSON lines) to FILE too; it is created before anything is measured
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Replace FILE if it exists
    #[arg(long)]
    pub overwrite: bool,

    /// What to call this run: records, tables and pages carry it
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub label: Option<String>,
}

impl FileArgs {
    /// Creates the file, if one is asked for.
    ///
    /// # Errors
    /// A file that holds something already or cannot be created.
    pub fn create(&self) -> anyhow::Result<Option<File>> {
        self.output.as_deref().map(|path| create(path, self.overwrite)).transpose()
    }
}

type Out = Box<dyn Write>;

/// How a verb shows its records, whatever its options are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// JSON lines.
    Json,
    /// One line per figure, with this between the fields.
    Csv(u8),
    /// Tables of the whole run at its end; every row of long ones if `all`.
    Tables {
        /// Show every row of long tables.
        all: bool,
    },
    /// A table for each interval as it comes, followed by an empty line if there are `several`; warnings at the end.
    Intervals {
        /// Whether more than one interval is expected.
        several: bool,
    },
    /// The findings of `doctor`, as wide as the terminal.
    Findings,
}

/// The sinks of a run.
pub struct Output {
    /// What the user calls the run.
    pub label: Option<String>,
    file: Option<jsonl::Writer<File>>,
    raw: Option<RawFile>,
    shown: Shown,
}

/// What is shown.
enum Shown {
    Json(jsonl::Writer<Out>),
    Csv(Box<csv::Writer<Out>>),
    /// Tables in a form, with the records that are shown at the end.
    Table(Out, Form, Vec<Record>),
}

/// So many records of intervals are kept for their warnings and errors.
const NOTICES: usize = 1000;

impl Output {
    /// Opens what the options ask for, so that a mistake shows before the measurement.
    ///
    /// # Errors
    /// A file that exists already or cannot be created.
    pub fn open(args: &OutputArgs) -> anyhow::Result<Self> {
        let file = args.file.create()?;
        let form = match (args.json, args.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv(b','),
            _ => Form::Tables { all: args.all },
        };
        Ok(Output::new(form, Box::new(io::stdout()), file, args.file.label.clone()))
    }

    /// The same, with a file for raw samples.
    ///
    /// # Errors
    /// As for [`Output::open`].
    pub fn with_raw(args: &OutputArgs, raw: Option<&Path>) -> anyhow::Result<Self> {
        let output = Output::open(args)?;
        Ok(Output { raw: raw.map(|path| RawFile::create(path, args.file.overwrite)).transpose()?, ..output })
    }

    /// Shows records in `form` on `out`, and writes them to `file` too.
    pub fn new(form: Form, out: Out, file: Option<File>, label: Option<String>) -> Self {
        let shown = match form {
            Form::Json => Shown::Json(jsonl::Writer::new(out)),
            Form::Csv(separator) => Shown::Csv(Box::new(csv::Writer::with_separator(out, separator))),
            tables => Shown::Table(out, tables, Vec::new()),
        };
        Output { label, file: file.map(jsonl::Writer::new), raw: None, shown }
    }

    /// Whether warnings are shown in words.
    pub fn is_table(&self) -> bool {
        matches!(self.shown, Shown::Table(..))
    }
}

impl Sink for Output {
    fn put(&mut self, record: &Record) -> io::Result<()> {
        self.put_all(std::slice::from_ref(record))
    }

    fn put_all(&mut self, records: &[Record]) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.put_all(records)?;
        }
        match &mut self.shown {
            Shown::Json(writer) => writer.put_all(records),
            Shown::Csv(writer) => writer.put_all(records),
            Shown::Table(out, Form::Intervals { several }, kept) => {
                let room = NOTICES.saturating_sub(kept.len());
                let telling = records.iter().filter(|record| !record.warnings.is_empty() || record.error.is_some());
                kept.extend(telling.take(room).cloned());
                let counted: Vec<Record> = records.iter().filter(|record| record.instance.is_some()).cloned().collect();
                if counted.is_empty() {
                    return Ok(());
                }
                out.write_all(table::interval(&counted).as_bytes())?;
                if *several {
                    out.write_all(b"\n")?;
                }
                out.flush()
            }
            Shown::Table(_, _, kept) => {
                kept.extend_from_slice(records);
                Ok(())
            }
        }
    }

    fn put_samples(&mut self, samples: &[Sample]) -> io::Result<()> {
        self.raw.as_mut().map_or(Ok(()), |raw| raw.put(samples))
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.finish()?;
        }
        match &mut self.shown {
            Shown::Json(writer) => writer.finish(),
            Shown::Csv(writer) => writer.finish(),
            Shown::Table(out, form, kept) => {
                let text = match form {
                    Form::Intervals { .. } => table::notices(kept),
                    Form::Findings => table::doctor(kept, width()),
                    form => table::render(kept, &table::Options { all: *form == Form::Tables { all: true } }),
                };
                out.write_all(text.as_bytes())?;
                out.flush()
            }
        }
    }
}

/// The columns of the terminal, within what reads well.
fn width() -> usize {
    console::Term::stdout().size_checked().map_or(80, |(_, columns)| usize::from(columns).clamp(40, 120))
}

/// Creates a file for results. One that holds something is data and is not replaced without being told to;
/// devices, pipes and empty files are taken as they are.
fn create(path: &Path, overwrite: bool) -> anyhow::Result<File> {
    let holds_data = path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0);
    if holds_data && !overwrite {
        return Err(Refusal::new(
            format!("{} exists", path.display()),
            "give another name, or replace it with --overwrite",
        )
        .into());
    }
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path);
    file.with_context(|| format!("cannot create {}", path.display()))
}

/// Raw samples as text: one line each, in the order of time.
struct RawFile {
    out: BufWriter<File>,
}

impl RawFile {
    /// Creates the file and writes its heading.
    fn create(path: &Path, overwrite: bool) -> anyhow::Result<Self> {
        let mut out = BufWriter::with_capacity(1 << 20, create(path, overwrite)?);
        writeln!(out, "at_ns,value_ps,cpu,index,kind")
            .and_then(|()| out.flush())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(RawFile { out })
    }

    /// Writes samples.
    fn put(&mut self, samples: &[Sample]) -> io::Result<()> {
        for Sample { at_ns, value_ps, cpu, index, kind } in samples {
            let kind = match kind {
                SampleKind::Latency => "latency",
                SampleKind::TriggerToHandler => "trigger-to-handler",
                SampleKind::EntryToAck => "entry-to-ack",
            };
            writeln!(self.out, "{at_ns},{value_ps},{cpu},{index},{kind}")?;
        }
        self.out.flush()
    }
}
