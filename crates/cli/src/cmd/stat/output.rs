//! Where the records of counters go.

use std::fs::File;
use std::io::{self, Write};

use pciescope_core::{Record, Sink};
use pciescope_report::{csv, jsonl, table};

use super::OutputArgs;
use crate::cmd::output::create;

type Out = Box<dyn Write>;

/// The sinks of a run.
pub struct Output {
    file: Option<jsonl::Writer<File>>,
    shown: Shown,
}

/// What is shown, and where.
enum Shown {
    Json(jsonl::Writer<Out>),
    Csv(Box<csv::Writer<Out>>),
    /// Tables: with an interval one for each as it comes. Warnings are shown at the end.
    Table {
        out: Out,
        has_intervals: bool,
        notices: Vec<Record>,
    },
}

impl Output {
    /// Opens everything, so that a mistake shows before anything is counted. Beside a command the standard output is the
    /// command's.
    ///
    /// # Errors
    /// A file that exists already or cannot be created.
    pub fn open(args: &OutputArgs, has_command: bool, has_intervals: bool) -> anyhow::Result<Self> {
        let mut file = args.output.as_deref().map(|path| create(path, args.overwrite)).transpose()?;
        let is_table = !args.json && args.separator.is_none();
        let out: Out = match file.take_if(|_| !is_table) {
            Some(file) => Box::new(file),
            None if has_command => Box::new(io::stderr()),
            None => Box::new(io::stdout()),
        };
        let shown = match args.separator {
            Some(separator) => Shown::Csv(Box::new(csv::Writer::with_separator(out, separator))),
            None if args.json => Shown::Json(jsonl::Writer::new(out)),
            None => Shown::Table { out, has_intervals, notices: Vec::new() },
        };
        Ok(Output { file: file.map(jsonl::Writer::new), shown })
    }
}

/// So many records are kept for their warnings and errors.
const NOTICES: usize = 1000;

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
            Shown::Table { out, has_intervals, notices } => {
                let room = NOTICES.saturating_sub(notices.len());
                let telling = records.iter().filter(|record| !record.warnings.is_empty() || record.error.is_some());
                notices.extend(telling.take(room).cloned());
                let counted: Vec<Record> = records.iter().filter(|record| record.instance.is_some()).cloned().collect();
                if counted.is_empty() {
                    return Ok(());
                }
                let text = table::interval(&counted);
                out.write_all(text.as_bytes())?;
                if *has_intervals {
                    out.write_all(b"\n")?;
                }
                out.flush()
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.finish()?;
        }
        match &mut self.shown {
            Shown::Json(writer) => writer.finish(),
            Shown::Csv(writer) => writer.finish(),
            Shown::Table { out, notices, .. } => {
                out.write_all(table::notices(notices).as_bytes())?;
                out.flush()
            }
        }
    }
}
