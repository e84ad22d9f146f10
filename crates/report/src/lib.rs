//! Turns records into files, tables, pages and pictures, and logs of other programs into records. It cannot measure.
//!
//! Every output is a pure function of records: the same records give the same text on every machine and at every time.
//! docs/record.md describes a record.
//!
//! # Where to change what
//!
//! - An output format: one file here, and `Kind` in crates/cli/src/cmd/report.rs.
//! - A column of CSV and Parquet files: `COLUMNS` in `columns.rs`, and its row in docs/record.md.
//! - What a measurement says (title, lines, tiles, table, conclusions): `facts/`, one file per kind. Terminal, Markdown and
//!   page print it. A limit that a figure is judged by: `facts/rules.rs`. Tests: crates/report/tests/all/summary.rs.
//! - What `compare` takes from a record: `compare/key.rs` and `values.rs`; another doubt: `doubts.rs`; a verdict:
//!   `alarms.rs`, a limit's: `rulings.rs`. Its statistics are in `statistics.rs`, `interval.rs`, `dist.rs` and
//!   docs/compare-method.md.
//! - A fact on a device's part of the page: `html/devices.rs`.
//! - Tables that a verb prints with `--all`: `table/`.
//! - A file format to import: `import/`, one file.
#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;

mod bins;
pub mod bounded;
mod chart;
pub mod columns;
pub mod compare;
mod counters;
pub mod csv;
mod drawing;
mod effects;
pub mod facts;
mod figures;
pub mod fold;
pub mod heat;
pub mod html;
pub mod import;
pub mod jsonl;
mod layout;
mod links;
mod losses;
pub mod model;
mod names;
pub mod parquet;
pub mod png;
pub mod print;
mod readout;
mod source;
mod style;
pub mod svg;
pub mod table;
pub mod text;
mod why;

pub use self::names::name_runs;

/// A refusal or failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be opened or read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file; `-` is standard input.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file could not be created or written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file; `-` is standard output.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A line of a record file is not a record.
    #[error("{}:{line}: not a record: {why}", path.display())]
    BadRecord {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The last line of a record file is not whole.
    #[error("{}:{line}: the last record is unfinished and was left out (the run was killed?)", path.display())]
    Unfinished {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A line is longer than [`bounded::LONGEST_LINE`].
    #[error("{}:{line}: a line is longer than {} MiB", path.display(), bounded::LONGEST_LINE >> 20)]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A record comes from another version of pciescope.
    #[error("{}:{line}: the record has schema {schema}; this pciescope reads schema {known}", path.display())]
    OtherSchema {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The record's schema.
        schema: u64,
        /// The schema this program reads.
        known: u32,
    },
    /// A picture would be too large for any viewer.
    #[error("the picture would be {width} by {height} pixels")]
    TooLarge {
        /// Pixels across.
        width: u64,
        /// Pixels down.
        height: u64,
    },
    /// The beginning of a log fits no format that can be imported.
    #[error("{}: the beginning is not a log that pciescope can import", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// A log holds no line of its format.
    #[error("{}: holds no line of format {format}{}", path.display(), first.as_ref().map(|f| format!(" ({f})")).unwrap_or_default())]
    NoSample {
        /// The file.
        path: PathBuf,
        /// The format as on the command line.
        format: &'static str,
        /// The first line of numbers that was not one.
        first: Option<String>,
    },
    /// The numbers of a text cannot be a log of latencies.
    #[error("{}:{line}: {why}", path.display())]
    NotALog {
        /// The file.
        path: PathBuf,
        /// The line that shows it, from 1.
        line: u64,
        /// What it shows.
        why: String,
        /// Whether the text names another program.
        is_certain: bool,
    },
    /// A file that should say what a workload moved does not, or no counted event sees that traffic.
    #[error("{}: {}", path.display(), if left.is_empty() { "holds neither a report of fio nor a line of bw_mem with its command".to_owned() } else { left.join("; ") })]
    NoWorkload {
        /// The file.
        path: PathBuf,
        /// Why what is there cannot be compared.
        left: Vec<String>,
        /// How many workloads it reports on.
        found: usize,
    },
    /// A workload reports a rate, but the counts of perf stat do not say how long they took.
    #[error("{}: cannot compare: bw_mem prints a rate, but the text of perf stat has no \"seconds time elapsed\"", path.display())]
    NoElapsed {
        /// The file.
        path: PathBuf,
    },
    /// A log has more pairs of a CPU and an interrupt or BAR than an import takes.
    #[error("{}: the log has more than {bound} pairs of a CPU and an interrupt or BAR, the bound of an import", path.display())]
    TooManyCells {
        /// The file.
        path: PathBuf,
        /// How many it may have.
        bound: usize,
    },
    /// A text of perf names more events than an import takes.
    #[error("{}: the text names more than {bound} events, the bound of an import", path.display())]
    TooManyEvents {
        /// The file.
        path: PathBuf,
        /// How many it may name.
        bound: usize,
    },
    /// A number in perf's text may be a fraction or thousands.
    #[error("{}:{line}: {text:?}: the number is of another locale than C, so it may be a fraction or thousands", path.display())]
    Locale {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// Its beginning.
        text: String,
    },
    /// Each line of perf's text has something before it.
    #[error("{}:{line}: {text:?} stands before what perf printed", path.display())]
    Prefix {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What stands there.
        text: String,
    },
    /// A text has two readings of one counter, or two tables, and does not say which is meant.
    #[error("{}:{line}: {what}: it is not clear which reading is meant", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What stands there a second time.
        what: String,
    },
    /// A file holds no record at all.
    #[error("{}: holds no record", path.display())]
    NoRecord {
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    /// What the user can do about it, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::BadRecord { .. } => Some(
                "a record file holds one JSON record a line; turn foreign logs into records with `pciescope import`",
            ),
            Error::OtherSchema { schema: 2, .. } => {
                Some("a version before the first release wrote it: measure again, or read it with that version")
            }
            Error::OtherSchema { .. } => Some("read it with a pciescope as new as the one that wrote it"),
            Error::NoRecord { .. } => Some("the run that should have written it ended before its first record"),
            Error::UnknownFormat { .. } => Some(
                "import reads logs of pcilat, and what `perf stat` and sis8300drv_threads print: `pciescope import --help`",
            ),
            Error::NoSample { .. } => Some("`pciescope import --help` says what the lines of each format are"),
            Error::NotALog { is_certain: true, .. } => {
                Some("import reads no histograms of other programs; `pciescope import --help` says what it reads")
            }
            Error::NotALog { .. } => Some("if it is a log of pcilat, say so with --format interrupt or --format iomem"),
            Error::NoWorkload { found: 0, left, .. } if left.is_empty() => {
                Some("import reads fio's report (text, JSON, terse), and bw_mem's command line with its figures")
            }
            Error::NoWorkload { found: 0, .. } => None,
            Error::Prefix { .. } => Some("remove it from each line, for example with `cut` or `sed`"),
            Error::NoWorkload { .. } => Some(
                "count rx_pcie_tlp_data_payload for reads and tx_... for writes; hif_rd, and hif_wr with hif_rmw, for DRAM",
            ),
            Error::NoElapsed { .. } => {
                Some("keep the line \"seconds time elapsed\" that perf stat prints below its table")
            }
            Error::TooManyCells { .. } => {
                Some("see whether it is a log of interrupts or register reads; else split it")
            }
            Error::TooManyEvents { .. } => Some("see whether it is what `perf stat` printed; else split it"),
            Error::Locale { .. } => Some("LC_ALL=C: run `LC_ALL=C perf stat ...` and import what that prints"),
            Error::Twice { .. } => Some(
                "import each run of perf stat by itself, with the workload that it counted; of two rows of one run keep the one that is meant (perf adds up channels unless --no-merge is given)",
            ),
            Error::TooLarge { .. } => Some("draw fewer runs at a time, or write SVG"),
            Error::Read { .. } | Error::Write { .. } | Error::Unfinished { .. } | Error::TooLong { .. } => None,
        }
    }
}
