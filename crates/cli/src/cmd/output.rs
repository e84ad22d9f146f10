//! Where records go: a table, JSON lines or CSV as they are shown, a file of records and one of raw samples beside them.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::NonEmptyStringValueParser;
use indicatif::ProgressBar;
use pciescope_core::outcome::{Sample, SampleKind};
use pciescope_core::{Record, Sink};
use pciescope_report::print::terminal;
use pciescope_report::{csv, jsonl, table};

use super::files::{self, Destination, Opened};
use super::ring::RecordRing;

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

    /// Print every table, with all rows, not only the answer
    #[arg(long)]
    pub all: bool,
}

impl OutputArgs {
    /// What the options ask for; `words` where they ask for words.
    pub fn form(&self, words: Form) -> Form {
        match (self.json, self.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv(b','),
            _ => words,
        }
    }
}

/// The options of every verb that writes records to a file.
#[derive(Debug, clap::Args)]
pub struct FileArgs {
    /// Also write the records (JSON lines) to FILE; the file is created before the measurement
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Replace FILE if it exists
    #[arg(long)]
    pub overwrite: bool,

    /// A name for this run, shown in records, tables and pages
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub label: Option<String>,
}

impl FileArgs {
    /// Creates the file, if one is asked for. `inputs` are what the verb reads.
    ///
    /// # Errors
    /// A file that is one of the inputs, that holds something already, or that cannot be created.
    pub fn create(&self, inputs: &[&Path]) -> anyhow::Result<Option<Opened>> {
        let output: Vec<&Path> = self.output.as_deref().into_iter().collect();
        files::refuse_same(&output, inputs)?;
        self.output.as_deref().map(|path| files::create(path, self.overwrite)).transpose()
    }
}

/// The place for the output that is shown.
pub type Out = Box<dyn Write>;

/// How a verb shows its records, independent of the names of its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// JSON lines.
    Json,
    /// One line per figure, with this between the fields.
    Csv(u8),
    /// The answer and one table at the run's end; every table if `all`.
    Tables {
        /// Every table with all rows.
        all: bool,
    },
    /// A row for each port with traffic of each interval as it comes, or with `all` its tables; warnings at the end.
    Intervals {
        /// Every table with all rows.
        all: bool,
    },
    /// A line for each change of a link as it comes, and the answer at the end.
    Changes {
        /// Every table with all rows.
        all: bool,
    },
    /// Mean and spread of several runs.
    Repeats,
    /// What sis8300drv_threads prints.
    Threads,
    /// The findings of `doctor`, as wide as the terminal.
    Findings {
        /// How much of each.
        detail: Detail,
    },
}

/// How much of its findings `doctor` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// A line for each check that found something.
    Short,
    /// Each kind of finding in full, with the functions that it is about.
    Kinds,
    /// Each finding in full, device by device, notes too.
    Each,
}

impl Form {
    /// The standard output, with colours where the form has some and the terminal wants them.
    pub fn out(self) -> Out {
        match self {
            Form::Json | Form::Csv(_) => Box::new(io::stdout()),
            _ => Box::new(stdout()),
        }
    }
}

/// The sinks of a run.
pub struct Output {
    /// What the user calls the run.
    pub label: Option<String>,
    file: Option<Kept>,
    /// The file's name, where it can be opened anew.
    path: Option<PathBuf>,
    raw: Option<RawFile>,
    shown: Shown,
    files: OutputFiles,
    /// What shows the progress on the terminal, to be taken away before the results.
    pub progress: Option<ProgressBar>,
}

/// Where records are kept.
enum Kept {
    File(jsonl::Writer<File>),
    Ring(Box<RecordRing>),
}

/// The files of a run, and whether they may replace the old ones: a run that is refused, or ends before it has measured
/// anything, keeps the old files.
#[derive(Default)]
struct OutputFiles {
    places: Vec<Destination>,
    has_figures: bool,
    has_error: bool,
}

impl OutputFiles {
    /// Takes note of what was written.
    fn note(&mut self, records: &[Record]) {
        for record in records {
            self.has_error |= record.error.is_some();
            self.has_figures |= !record.metrics.is_empty() || record.histograms.values().any(|one| !one.is_empty());
        }
    }

    /// The run has ended as it should.
    fn finish(&mut self) -> io::Result<()> {
        if !self.has_figures && self.has_error {
            return Ok(());
        }
        self.places.iter_mut().try_for_each(|place| {
            place
                .keep()
                .map_err(|err| io::Error::new(err.kind(), format!("cannot replace {}: {err}", place.path().display())))
        })
    }
}

impl Drop for OutputFiles {
    fn drop(&mut self) {
        if self.has_figures {
            // What was measured before the run failed. That failure is told; a second one would say no more.
            let _ = self.finish();
        }
    }
}

/// What is shown.
enum Shown {
    Json(jsonl::Writer<Out>),
    Csv(Box<csv::Writer<Out>>),
    /// Tables in a form, with the records that are shown at the end.
    Table(Out, Form, Vec<Record>),
    /// Rows or tables of intervals, with the records that have warnings or errors.
    Intervals {
        out: Out,
        all: bool,
        rows: terminal::Intervals,
        kept: Vec<Record>,
    },
}

/// The most changes of links that the answer at the end is made of; the file has all.
const MOST_CHANGES: usize = 10_000;

/// The most records of intervals that are kept for their warnings and errors.
const NOTICES: usize = 1000;

impl Output {
    /// Opens what the options ask for, so that a mistake shows before the measurement. `inputs` are what the verb reads.
    ///
    /// # Errors
    /// A file that is one of the inputs, that exists already, or that cannot be created.
    pub fn open(args: &OutputArgs, inputs: &[&Path]) -> anyhow::Result<Self> {
        let file = args.file.create(inputs)?;
        let form = args.form(Form::Tables { all: args.all });
        Ok(Output::new(form, form.out(), file, args.file.label.clone()))
    }

    /// Opens what the options ask for, and a file for raw samples.
    ///
    /// # Errors
    /// As for [`Output::open`].
    pub fn with_raw(args: &OutputArgs, raw: Option<&Path>) -> anyhow::Result<Self> {
        // Nothing is opened while one of the two is refused.
        let both: Vec<&Path> = args.file.output.as_deref().into_iter().chain(raw).collect();
        files::refuse_same(&both, &[])?;
        if let Some(raw) = raw.filter(|_| !args.file.overwrite) {
            files::refuse_to_replace(raw)?;
        }
        let mut output = Output::open(args, &[])?;
        if let Some(path) = raw {
            let (raw, place) = RawFile::create(path, args.file.overwrite)?;
            output.raw = Some(raw);
            output.files.places.push(place);
        }
        Ok(output)
    }

    /// Shows records in `form` on `out`, and writes them to `file` too.
    pub fn new(form: Form, out: Out, file: Option<Opened>, label: Option<String>) -> Self {
        let shown = match form {
            Form::Json => Shown::Json(jsonl::Writer::new(out)),
            Form::Csv(separator) => Shown::Csv(Box::new(csv::Writer::with_separator(out, separator))),
            Form::Intervals { all } => {
                Shown::Intervals { out, all, rows: terminal::Intervals::default(), kept: Vec::new() }
            }
            tables => Shown::Table(out, tables, Vec::new()),
        };
        let (file, place) = file.map(|Opened { file, place }| (Kept::File(jsonl::Writer::new(file)), place)).unzip();
        let path = place.as_ref().map(|place: &Destination| place.path().to_owned());
        let files = OutputFiles { places: place.into_iter().collect(), ..OutputFiles::default() };
        Output { label, file, path, raw: None, shown, files, progress: None }
    }

    /// Keeps the records in a ring.
    pub fn with_ring(mut self, ring: Option<RecordRing>) -> Self {
        self.file = ring.map(|ring| Kept::Ring(Box::new(ring))).or(self.file);
        self
    }

    /// Takes the place of `out` where that is a file, which gets its name at the end.
    pub fn with_place(mut self, place: Option<Destination>) -> Self {
        self.files.places.extend(place);
        self
    }

    /// Whether warnings are shown in words.
    pub fn is_table(&self) -> bool {
        matches!(self.shown, Shown::Table(..) | Shown::Intervals { .. })
    }
}

impl Output {
    /// Shows records as they come, where the form does.
    fn show(&mut self, records: &[Record]) -> io::Result<()> {
        match &mut self.shown {
            Shown::Json(writer) => writer.put_all(records),
            Shown::Csv(writer) => writer.put_all(records),
            Shown::Intervals { out, all, rows, kept } => {
                let room = NOTICES.saturating_sub(kept.len());
                let telling = records.iter().filter(|record| !record.warnings.is_empty() || record.error.is_some());
                kept.extend(telling.take(room).cloned());
                let counted: Vec<Record> = records.iter().filter(|record| record.instance.is_some()).cloned().collect();
                if counted.is_empty() {
                    return Ok(());
                }
                let text = match all {
                    true => table::interval(&counted) + "\n",
                    false => rows.next(&counted),
                };
                out.write_all(text.as_bytes())?;
                out.flush()
            }
            Shown::Table(out, Form::Changes { .. }, kept) => {
                kept.extend(records.iter().cloned());
                let dropped = kept.len().saturating_sub(MOST_CHANGES);
                kept.drain(..dropped);
                let lines: String = records.iter().map(terminal::change_line).collect();
                out.write_all(lines.as_bytes())?;
                out.flush()
            }
            Shown::Table(_, _, kept) => {
                kept.extend_from_slice(records);
                Ok(())
            }
        }
    }

    /// Shows what is shown at the end.
    fn show_end(&mut self) -> io::Result<()> {
        match &mut self.shown {
            Shown::Json(writer) => writer.finish(),
            Shown::Csv(writer) => writer.finish(),
            Shown::Intervals { out, kept, .. } => {
                out.write_all(terminal::warnings(kept).as_bytes())?;
                out.flush()
            }
            Shown::Table(out, form, kept) => {
                let text = match form {
                    Form::Repeats => terminal::repeats(kept) + &terminal::warnings(kept),
                    Form::Threads => table::threads(kept),
                    Form::Findings { detail: Detail::Each } => table::doctor(kept, width()),
                    Form::Findings { detail: Detail::Short } => terminal::doctor_short(kept, width()),
                    Form::Findings { detail: Detail::Kinds } => terminal::doctor(kept, width()),
                    Form::Tables { all: true } | Form::Changes { all: true } => {
                        table::render(kept, &table::Options { all: true })
                    }
                    _ => terminal::answer(kept),
                };
                out.write_all(text.as_bytes())?;
                out.flush()
            }
        }
    }
}

impl Sink for Output {
    fn put(&mut self, record: &Record) -> io::Result<()> {
        self.put_all(std::slice::from_ref(record))
    }

    fn put_all(&mut self, records: &[Record]) -> io::Result<()> {
        match &mut self.file {
            Some(Kept::File(file)) => file.put_all_or_none(records)?,
            Some(Kept::Ring(ring)) => ring.put_all_or_none(records)?,
            None => {}
        }
        // Figures count as kept once they are in the file, or where there is none, once they are shown.
        let is_written = self.file.is_some();
        if is_written {
            self.files.note(records);
        }
        self.show(records)?;
        if !is_written {
            self.files.note(records);
        }
        Ok(())
    }

    fn put_samples(&mut self, samples: &[Sample]) -> io::Result<()> {
        self.raw.as_mut().map_or(Ok(()), |raw| raw.put(samples))
    }

    /// Where there is no room for a new file, as the old one was not moved, records go on into that, and nothing is lost.
    fn renew(&mut self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        // Of a file that replaces another one: it gets its name now.
        self.files.finish()?;
        match files::create(path, false) {
            Ok(Opened { file, place }) => {
                self.file = Some(Kept::File(jsonl::Writer::new(file)));
                self.files.places = vec![place];
            }
            Err(err) => super::say(&format!("pciescope: records go on into the file that is open: {err:#}\n")),
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.progress.iter().for_each(ProgressBar::finish_and_clear);
        if let Some(Kept::File(file)) = &mut self.file {
            file.finish()?;
        }
        let shown = self.show_end();
        self.files.finish()?;
        shown
    }
}

/// The columns of the terminal, within limits in which text is easy to read; 80 without a terminal.
pub fn width() -> usize {
    columns().map_or(80, |columns| columns.clamp(40, 120))
}

/// The columns of the terminal; without one those of the variable COLUMNS, if it has a number.
pub fn columns() -> Option<usize> {
    let of_terminal = console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
    of_terminal.or_else(|| std::env::var("COLUMNS").ok()?.parse().ok()).filter(|columns| *columns > 0)
}

/// The standard output. Colours reach it if it is a terminal, unless NO_COLOR or CLICOLOR=0 is set.
pub fn stdout() -> impl Write + 'static {
    anstream::AutoStream::auto(io::stdout())
}

/// Raw samples as text: one line each, in the order of time.
struct RawFile {
    out: BufWriter<File>,
}

impl RawFile {
    /// Creates the file and writes its heading.
    fn create(path: &Path, overwrite: bool) -> anyhow::Result<(Self, Destination)> {
        let Opened { file, place } = files::create(path, overwrite)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        writeln!(out, "at_ns,value_ps,cpu,index,kind")
            .and_then(|()| out.flush())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok((RawFile { out }, place))
    }

    /// Writes samples.
    fn put(&mut self, samples: &[Sample]) -> io::Result<()> {
        for Sample { at_ns, value_ps, cpu, index, kind } in samples {
            let kind = match kind {
                SampleKind::Latency => "latency",
                SampleKind::TriggerToHandler => "trigger-to-handler",
                SampleKind::EntryToAck => "entry-to-ack",
                SampleKind::Control => "control",
            };
            writeln!(self.out, "{at_ns},{value_ps},{cpu},{index},{kind}")?;
        }
        self.out.flush()
    }
}
