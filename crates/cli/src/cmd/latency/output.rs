//! Where the records go: a table, JSON lines or CSV on the standard output, and a file of records beside it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Stdout, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::NonEmptyStringValueParser;
use pciescope_core::outcome::{Sample, SampleKind};
use pciescope_core::{Record, Sink};
use pciescope_report::{csv, jsonl, table};

use crate::cmd::Refusal;

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

    /// Write the records (JSON lines) to FILE too; it is created before anything is measured
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Replace FILE if it exists
    #[arg(long)]
    pub overwrite: bool,

    /// What to call this run: records, tables and pages carry it
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub label: Option<String>,

    /// Show every row of long tables
    #[arg(long)]
    pub all: bool,
}

/// The sinks of a run.
pub struct Output {
    /// What the user calls the run.
    pub label: Option<String>,
    file: Option<jsonl::Writer<File>>,
    stdout: Printed,
}

/// What the standard output shows.
enum Printed {
    /// Tables, when the run is over.
    Table(Vec<Record>, table::Options),
    Json(jsonl::Writer<Stdout>),
    Csv(Box<csv::Writer<Stdout>>),
}

impl Output {
    /// Opens everything, so that a mistake shows before the measurement.
    ///
    /// # Errors
    /// A file that exists already or cannot be created.
    pub fn open(args: &OutputArgs) -> anyhow::Result<Self> {
        let file = args.output.as_deref().map(|path| create(path, args.overwrite)).transpose()?;
        let stdout = match (args.json, args.csv) {
            (true, _) => Printed::Json(jsonl::Writer::new(io::stdout())),
            (_, true) => Printed::Csv(Box::new(csv::Writer::new(io::stdout()))),
            _ => Printed::Table(Vec::new(), table::Options { all: args.all }),
        };
        Ok(Output { label: args.label.clone(), file: file.map(jsonl::Writer::new), stdout })
    }

    /// Whether warnings stand on the standard output in words.
    pub fn is_table(&self) -> bool {
        matches!(self.stdout, Printed::Table(..))
    }
}

impl Sink for Output {
    fn put(&mut self, record: &Record) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.put(record)?;
        }
        match &mut self.stdout {
            Printed::Table(records, _) => {
                records.push(record.clone());
                Ok(())
            }
            Printed::Json(writer) => writer.put(record),
            Printed::Csv(writer) => writer.put(record),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.finish()?;
        }
        match &mut self.stdout {
            Printed::Table(records, options) => {
                let mut out = io::stdout().lock();
                out.write_all(table::render(records, options).as_bytes())?;
                out.flush()
            }
            Printed::Json(writer) => writer.finish(),
            Printed::Csv(writer) => writer.finish(),
        }
    }
}

/// Creates a file for results. One that holds something is data and is not replaced without being told to;
/// devices, pipes and empty files are taken as they are.
pub fn create(path: &Path, overwrite: bool) -> anyhow::Result<File> {
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
pub struct RawFile {
    out: BufWriter<File>,
}

impl RawFile {
    /// Creates the file and writes its heading.
    ///
    /// # Errors
    /// As for the records' file.
    pub fn create(path: &Path, overwrite: bool) -> anyhow::Result<Self> {
        let mut out = BufWriter::with_capacity(1 << 20, create(path, overwrite)?);
        writeln!(out, "at_ns,value_ps,cpu,index,kind")
            .and_then(|()| out.flush())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(RawFile { out })
    }

    /// Writes samples.
    pub fn put(&mut self, samples: &[Sample]) -> io::Result<()> {
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
