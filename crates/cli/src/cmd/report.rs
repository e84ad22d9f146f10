//! `pciescope report`: records to tables, pages and pictures.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use pciescope_core::{Record, Sink};
use pciescope_report::{csv, html, jsonl, png, svg, table};

use super::{Ctx, Refusal};

/// The arguments of `pciescope report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope report run.jsonl                          the tables, in the terminal
  pciescope report run.jsonl -o report.html           a page that works without a network
  pciescope report before.jsonl after.jsonl -o both.html --png both.png
  pciescope report run.jsonl --csv - | column -s, -t

What a FILE after -o becomes is decided by its extension: .html, .svg, .png, .csv, .txt (tables), .jsonl (all
records in one file).")]
pub struct Args {
    /// Record files, as the measurements write them; `-` is the standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Write a page, picture or table to FILE, as its extension says; may be repeated
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,

    /// Write the heat maps as PNG
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,

    /// Write the heat maps as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write comma-separated values, one line per histogram and figure; `-` is the standard output
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Print the tables even though something is written to a file
    #[arg(long)]
    table: bool,

    /// Show every row of long tables
    #[arg(long)]
    all: bool,
}

/// What can be made of records.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Html,
    Svg,
    Png,
    Csv,
    Text,
    Records,
}

impl Kind {
    fn of(path: &Path) -> anyhow::Result<Self> {
        let extension = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        match extension.as_deref() {
            Some("html" | "htm") => Ok(Kind::Html),
            Some("svg") => Ok(Kind::Svg),
            Some("png") => Ok(Kind::Png),
            Some("csv") => Ok(Kind::Csv),
            Some("txt") => Ok(Kind::Text),
            Some("jsonl") => Ok(Kind::Records),
            _ => Err(Refusal::new(
                format!("{}: the extension says nothing about what to write", path.display()),
                "end the name in .html, .svg, .png, .csv, .txt or .jsonl",
            )
            .into()),
        }
    }

    fn render(self, records: &[Record], options: &table::Options) -> anyhow::Result<Vec<u8>> {
        Ok(match self {
            Kind::Html => html::render(records).into_bytes(),
            Kind::Svg => svg::render(records).into_bytes(),
            Kind::Png => png::render(records)?,
            Kind::Csv => csv::render(records).into_bytes(),
            Kind::Text => table::render(records, options).into_bytes(),
            Kind::Records => {
                let mut writer = jsonl::Writer::new(Vec::new());
                for record in records {
                    writer.put(record)?;
                }
                writer.into_inner()
            }
        })
    }
}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    // Mistakes in the names show before minutes of reading.
    let mut outputs = Vec::new();
    for path in &args.output {
        outputs.push((path.clone(), Kind::of(path)?));
    }
    let named = [(args.png, Kind::Png), (args.svg, Kind::Svg), (args.csv, Kind::Csv)];
    outputs.extend(named.into_iter().filter_map(|(path, kind)| Some((path?, kind))));
    for (path, _) in &outputs {
        refuse_input(path, &args.files)?;
    }
    let contents = jsonl::read_files(&args.files)?;
    for remark in &contents.remarks {
        ctx.note(remark);
    }
    let options = table::Options { all: args.all };
    for (path, kind) in &outputs {
        let bytes = kind.render(&contents.records, &options)?;
        write(path, &bytes)?;
    }
    if args.table || outputs.is_empty() {
        write(Path::new("-"), table::render(&contents.records, &options).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a file whole, or the standard output for `-`.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if path == Path::new("-") {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        return Ok(out.flush()?);
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Records are the product; a report must not be written over them.
fn refuse_input(path: &Path, files: &[PathBuf]) -> anyhow::Result<()> {
    let Ok(place) = path.canonicalize() else { return Ok(()) };
    if path.is_file() && files.iter().any(|file| file.canonicalize().is_ok_and(|file| file == place)) {
        return Err(Refusal::new(
            format!("{} is one of the record files and would be overwritten", path.display()),
            "give the report another name",
        )
        .into());
    }
    Ok(())
}
