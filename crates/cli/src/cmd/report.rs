//! `pciescope report`: records to tables, pages and pictures.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use pciescope_core::text::thousands;
use pciescope_core::{Record, Sink};
use pciescope_report::columns::Table;
use pciescope_report::fold::Folder;
use pciescope_report::print::{markdown, picture, terminal};
use pciescope_report::{csv, facts, html, jsonl, name_runs, parquet, png, svg, table};

use super::files::{self, Destination, Opened};
use super::output::stdout;
use super::{Ctx, Refusal};

/// The arguments of `pciescope report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope report run.jsonl                  the answers, in the terminal
  pciescope report run.jsonl --all            with every table
  pciescope report run.jsonl -o report.html   a page that needs no network
  pciescope report before.jsonl after.jsonl -o both.html -o both.png
  pciescope report run.jsonl --csv | column -s, -t
  pciescope report *.jsonl -o all.parquet     for DuckDB, polars and pandas

The extension of a FILE after -o decides what it becomes: .html, .png (the
first chart of that page), .svg (all charts and heat maps), .md (the answers,
for issues and wikis), .txt (tables), .csv, .jsonl (all records in one file).
For DuckDB, polars and pandas: .parquet has the figures, .runs.parquet machine
and plan of each run, .findings.parquet what doctor found (docs/record.md has
queries). CSV, Parquet and JSON lines are written while the
records are read, so they need little memory for files of any size.")]
pub struct Args {
    /// Record files, as the measurements write them; `-` is the standard input
    #[arg(required_unless_present = "files0_from", value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Read the names of more record files from FILE, a NUL byte after each; `-` is the standard input
    #[arg(long, value_name = "FILE")]
    files0_from: Option<PathBuf>,

    /// Go on where a file or line cannot be read; write to FILE what was left out and why, as JSON lines
    #[arg(long, value_name = "FILE")]
    left_out: Option<PathBuf>,

    /// Write a page, picture or table to FILE; its extension selects the format; may be repeated
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,

    /// Replace FILE even if it is a file of records (.jsonl); other files are replaced without this option
    #[arg(long)]
    overwrite: bool,

    /// Print comma-separated values, one line per histogram and figure
    #[arg(long)]
    csv: bool,

    /// Print the answers too when writing to a file
    #[arg(long)]
    table: bool,

    /// Print the conclusions and every table, with all rows
    #[arg(long)]
    all: bool,
}

/// What can be made of records.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// What needs all records at once.
    Whole(Whole),
    /// What is written while the records are read.
    Stream(Stream),
}

#[derive(Debug, Clone, Copy)]
enum Whole {
    Html,
    Svg,
    Png,
    Text,
    Markdown,
}

#[derive(Debug, Clone, Copy)]
enum Stream {
    Csv,
    Parquet(Table),
    Records,
}

impl Kind {
    fn of(path: &Path) -> anyhow::Result<Self> {
        let name = path.file_name().and_then(|name| name.to_str()).map(str::to_ascii_lowercase).unwrap_or_default();
        let extension = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        match extension.as_deref() {
            Some("html" | "htm") => Ok(Kind::Whole(Whole::Html)),
            Some("svg") => Ok(Kind::Whole(Whole::Svg)),
            Some("png") => Ok(Kind::Whole(Whole::Png)),
            Some("txt") => Ok(Kind::Whole(Whole::Text)),
            Some("md") => Ok(Kind::Whole(Whole::Markdown)),
            Some("csv") => Ok(Kind::Stream(Stream::Csv)),
            Some("parquet") if name.ends_with(".runs.parquet") => Ok(Kind::Stream(Stream::Parquet(Table::Runs))),
            Some("parquet") if name.ends_with(".findings.parquet") => {
                Ok(Kind::Stream(Stream::Parquet(Table::Findings)))
            }
            Some("parquet") => Ok(Kind::Stream(Stream::Parquet(Table::Figures))),
            Some("jsonl") => Ok(Kind::Stream(Stream::Records)),
            _ => Err(Refusal::new(
                format!("{}: the extension says nothing about what to write", path.display()),
                "end the name in .html, .svg, .png, .csv, .parquet, .runs.parquet, .findings.parquet, .md, .txt or .jsonl",
            )
            .into()),
        }
    }
}

impl Whole {
    fn render(self, records: &[Record], options: &table::Options) -> anyhow::Result<Vec<u8>> {
        if matches!(self, Whole::Svg | Whole::Png) && picture::is_empty(records) {
            return Err(Refusal::new(
                "the records hold nothing that a picture shows: no latencies, counters, readouts, conversions, links or settings",
                "write a page (.html) or the tables (.txt) in its place",
            )
            .into());
        }
        Ok(match self {
            Whole::Html => html::render(records).into_bytes(),
            Whole::Svg => svg::render(records).into_bytes(),
            Whole::Png => png::render(records)?,
            Whole::Markdown => markdown::render(records).into_bytes(),
            Whole::Text => text(records, options).into_bytes(),
        })
    }
}

impl Stream {
    fn sink(self, out: Box<dyn Write + Send>, is_file: bool) -> io::Result<Box<dyn Sink>> {
        Ok(match self {
            Stream::Csv if is_file => Box::new(csv::Writer::of_file(out)),
            Stream::Csv => Box::new(csv::Writer::new(out).for_terminal(io::stdout().is_terminal())),
            Stream::Parquet(table) => Box::new(parquet::Writer::new(table, out)?),
            Stream::Records => Box::new(jsonl::Writer::new(out)),
        })
    }
}

/// A file that is written while the records are read.
struct Growing {
    path: PathBuf,
    /// Where it grows until it is whole; `None` for the standard output.
    place: Option<Destination>,
    sink: Box<dyn Sink>,
}

impl Growing {
    fn create(path: &Path, kind: Stream) -> anyhow::Result<Self> {
        let failed = || format!("cannot write {}", path.display());
        if path == Path::new("-") {
            return Ok(Growing { path: path.to_owned(), place: None, sink: kind.sink(Box::new(io::stdout()), false)? });
        }
        let Opened { file, place } = files::replacement(path).with_context(failed)?;
        Ok(Growing { path: path.to_owned(), place: Some(place), sink: kind.sink(Box::new(file), true)? })
    }

    fn finish(mut self) -> anyhow::Result<()> {
        let failed = || cannot_write(&self.path);
        self.sink.finish().with_context(failed)?;
        self.place.as_mut().map_or(Ok(()), Destination::keep).with_context(failed)
    }
}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    // Mistakes in the names show before minutes of reading.
    let mut outputs = Vec::new();
    for path in &args.output {
        outputs.push((path.clone(), Kind::of(path)?));
    }
    if args.csv {
        outputs.push((PathBuf::from("-"), Kind::Stream(Stream::Csv)));
    }
    let written: Vec<PathBuf> =
        outputs.iter().map(|(path, _)| path.clone()).filter(|path| path != Path::new("-")).collect();
    let inputs = inputs(&args)?;
    let names: Vec<&Path> = outputs.iter().map(|(path, _)| path.as_path()).chain(args.left_out.as_deref()).collect();
    files::refuse_same(&names, &inputs.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    for (path, kind) in &outputs {
        if matches!(kind, Kind::Stream(Stream::Records)) && !args.overwrite {
            files::refuse_to_replace(path)?;
        }
    }
    let (mut growing, mut whole) = (Vec::new(), Vec::new());
    for (path, kind) in outputs {
        match kind {
            Kind::Stream(kind) => growing.push(Growing::create(&path, kind)?),
            Kind::Whole(kind) => whole.push((path, kind)),
        }
    }
    let is_table = args.table || (growing.is_empty() && whole.is_empty());
    // What is written while records are read needs none of them, the others all but the intervals of counters, which are folded.
    let (mut folder, mut files) = (Folder::default(), HashMap::new());
    let mut take = |path: &Path, record: Record| -> anyhow::Result<()> {
        for file in &mut growing {
            file.sink.begin_file(path);
            file.sink.put(&record).with_context(|| cannot_write(&file.path))?;
        }
        if is_table || !whole.is_empty() {
            if !files.contains_key(&record.run) {
                files.insert(record.run.clone(), path.into());
            }
            folder.add(record);
        }
        Ok(())
    };
    if let Some(path) = &args.left_out {
        let mut left_out = Vec::new();
        jsonl::each_readable(&inputs, &mut take, |one| -> anyhow::Result<()> {
            serde_json::to_writer(&mut left_out, one)?;
            left_out.push(b'\n');
            Ok(())
        })?;
        write(path, &left_out)?;
    } else {
        for remark in &jsonl::each(&inputs, &mut take)? {
            ctx.note(remark);
        }
    }
    let mut records = folder.finish();
    name_runs(&mut records, &files);
    growing.into_iter().try_for_each(Growing::finish)?;
    for (path, kind) in &whole {
        write(path, &kind.render(&records, &table::Options { all: args.all })?)?;
    }
    if is_table && args.all {
        write(Path::new("-"), text(&records, &table::Options { all: true }).as_bytes())?;
    } else if is_table {
        let mut out = stdout();
        out.write_all(terminal::render(&records).as_bytes())?;
        out.flush()?;
    }
    // A script has the file; a person wants to see that there is one.
    for path in written.iter().filter(|_| ctx.terminal) {
        let bytes = path.metadata().map_or(0, |meta| meta.len());
        ctx.note(&format!("{}: {} kB", path.display(), thousands(bytes.div_ceil(1000))));
    }
    Ok(ExitCode::SUCCESS)
}

/// The files of the command line, and those that a file names.
fn inputs(args: &Args) -> anyhow::Result<Vec<PathBuf>> {
    let mut inputs = args.files.clone();
    if let Some(list) = &args.files0_from {
        let mut names = Vec::new();
        jsonl::open(list)?.read_to_end(&mut names).with_context(|| format!("cannot read {}", list.display()))?;
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        inputs.extend(names.map(|name| PathBuf::from(OsStr::from_bytes(name))));
    }
    Ok(inputs)
}

fn cannot_write(path: &Path) -> String {
    match path == Path::new("-") {
        true => "cannot write the standard output".to_owned(),
        false => format!("cannot write {}", path.display()),
    }
}

/// What the records allow to conclude, then the tables.
fn text(records: &[Record], options: &table::Options) -> String {
    format!("{}{}", facts::text(records, 100), table::render(records, options))
}

/// Writes a file, which gets its name when it is whole, or the standard output for `-`.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if path == Path::new("-") {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        return Ok(out.flush()?);
    }
    files::write(path, bytes)
}
