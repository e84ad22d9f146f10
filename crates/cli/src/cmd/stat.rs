//! `pciescope stat`: bandwidth, link states and errors from counters of hardware and of the kernel, by port, function and
//! channel.

pub mod host;
mod list;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::builder::NonEmptyStringValueParser;
use pciescope_bench::counters::{self, Host as _, Named, Origin, Place, Task, Wanted};
use pciescope_core::outcome::Sample;
use pciescope_core::plan::StatPlan;
use pciescope_core::{Bdf, Failure, Record, Sink};
use pciescope_hw::probe::open::Backend;
use pciescope_hw::{Root, environment, nodes};

use self::host::{Command, Signals};
use super::device::backend;
use super::output::{FileArgs, Form, Out, Output};
use super::{Ctx, Refusal};
use crate::values::{self, Time, positive, some_time};

/// The shortest time between readings, in nanoseconds.
const SHORTEST_NS: u64 = 1_000_000;

/// The arguments of `pciescope stat`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope stat                               everything until Ctrl-C
  pciescope stat -I 1s -n 10                   ten times, every second
  pciescope stat fio job.fio                   while a command runs
  pciescope stat -r 5 3b:00.0 -- fio job.fio   five times, at one device's port
  pciescope stat --warmup 1 -r 5 fio job.fio   and once before, uncounted
  pciescope stat --metric states 0000:00:02.0  how long a link is in each state
  pciescope stat -I 10ms -j -o run.jsonl -e rx_pcie_tlp_data_payload
  pciescope stat --source kernel -I 1s         what the kernel itself counted
  pciescope stat --backend fake -I 1s          a synthetic machine, to try it
  pciescope stat --list                        what can be counted here

Rx is what arrives at the root port (a device writes memory), Tx leaves it.
Rd and Wr are reads and writes of memory. Every PMU is counted separately, even
if names are similar. `~` before a figure says that its counter shared hardware
with others, ran for a part of the time, and was scaled to the whole time. With
a command the output goes to the standard error, and the exit code is that of
the command, unless --duration ended it. `--` before the command may be left
out. docs/method.md, \"Counters\", says more.")]
pub struct Args {
    /// Root ports, devices below them by address or name (nvme0n1, eth0), or PMUs (`*` and `?` allowed); all if none is given
    #[arg(value_name = "BDF|PMU", value_parser = place)]
    places: Vec<Place>,

    /// Events as perf writes them (PMU/EVENT/, `*` allowed in the PMU's name), or by name at every PMU that has them; the catalogue's usual ones if none is given
    #[arg(short, long = "event", value_name = "EVENT,...", value_parser = events)]
    events: Vec<Events>,

    /// Metrics, groups of them (bandwidth, states, traffic, errors, efficiency), events of the catalogue, or `vectors`
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', conflicts_with = "events", value_parser = NonEmptyStringValueParser::new())]
    metric: Vec<String>,

    /// Whose counts to use: those of hardware, of the kernel (a lower bound of each function's payload), or both
    #[arg(long, value_name = "SOURCE", default_value = "all", value_parser = source)]
    source: Origin,

    /// Where to count: auto is this machine, fake a synthetic one with traffic, to try the program
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = machine)]
    backend: Backend,

    /// Read and show the counters each time this interval ends, such as 10ms or 2s
    #[arg(short = 'I', long, alias = "interval-print", value_name = "TIME", value_parser = interval)]
    interval: Option<Time>,

    /// End after N intervals; without -I an interval is a second
    #[arg(short = 'n', long, alias = "interval-count", value_name = "N", value_parser = positive)]
    intervals: Option<u64>,

    /// End after this time, such as 10s; a command that still runs then gets SIGTERM, and the exit code is 0
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    duration: Option<Time>,

    /// Run the command N times; the table has mean and spread
    #[arg(short = 'r', long, value_name = "N", value_parser = positive, requires = "command", conflicts_with_all = ["interval", "intervals", "duration"])]
    repeat: Option<u64>,

    /// First run the command N times without counting, to fill caches
    #[arg(long, value_name = "N", value_parser = positive, requires = "command")]
    warmup: Option<u64>,

    /// Everything is counted anyway: for perf's users
    #[arg(short = 'a', long = "all-cpus", hide = true)]
    _all_cpus: bool,

    /// List what can be counted on this machine, and count nothing
    #[arg(long, conflicts_with_all = ["events", "metric", "interval", "intervals", "duration", "json", "csv", "separator", "output", "command"])]
    list: bool,

    #[command(flatten)]
    output: OutputArgs,

    /// Count while this command runs
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Args {
    /// The time between two readings; `None` where the run is one interval.
    fn interval(&self) -> Option<Time> {
        self.interval.or(self.intervals.map(|_| Time(1_000_000_000)))
    }
}

/// What `-o` does here, other than elsewhere.
const FILE: &str = "With -j, --csv or -x: write that output to FILE and print nothing. Otherwise: print the table, and \
                    write the records (JSON lines) to FILE";

/// The options that say where the results go.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output", mut_arg("output", |output| output.help(FILE)))]
pub struct OutputArgs {
    /// Print the records, one JSON object a line, as they are completed
    #[arg(short, long, conflicts_with_all = ["csv", "separator"])]
    pub json: bool,

    /// Print comma-separated values, one line per figure
    #[arg(long, conflicts_with = "separator")]
    pub csv: bool,

    /// The same with SEP between the fields
    #[arg(short = 'x', long = "field-separator", value_name = "SEP", value_parser = separator)]
    pub separator: Option<u8>,

    #[command(flatten)]
    pub file: FileArgs,

    /// Print every table, with idle ports and each channel
    #[arg(long)]
    pub all: bool,
}

impl OutputArgs {
    /// Opens everything, so that a mistake shows before anything is counted. Beside a command the standard output is the
    /// command's.
    fn open(&self, args: &Args) -> anyhow::Result<Output> {
        let mut file = self.file.create(&[])?;
        let form = match self.separator.or(self.csv.then_some(b',')) {
            Some(separator) => Form::Csv(separator),
            None if self.json => Form::Json,
            None if args.repeat.is_some() => Form::Repeats,
            None if args.interval().is_some() => Form::Intervals { all: self.all },
            None => Form::Tables { all: self.all },
        };
        let is_text = !matches!(form, Form::Json | Form::Csv(_));
        let mut place = None;
        let out: Out = match file.take_if(|_| !is_text) {
            Some(opened) => {
                place = Some(opened.place);
                Box::new(opened.file)
            }
            None if !args.command.is_empty() && is_text => Box::new(anstream::AutoStream::auto(io::stderr())),
            None if !args.command.is_empty() => Box::new(io::stderr()),
            None => form.out(),
        };
        Ok(Output::new(form, out, file, self.file.label.clone()).with_place(place))
    }
}

/// Parses `--source`.
pub fn source(text: &str) -> Result<Origin, String> {
    match text {
        "all" => Ok(Origin::All),
        "hardware" => Ok(Origin::Hardware),
        "kernel" => Ok(Origin::Kernel),
        _ => Err("it is all, hardware or kernel".to_owned()),
    }
}

/// The events of one `-e`.
#[derive(Debug, Clone)]
pub struct Events(pub Vec<Named>);

/// Parses one `-e`.
pub fn events(text: &str) -> Result<Events, String> {
    counters::parse_events(text).map(Events)
}

/// Parses a place to count at.
pub fn place(text: &str) -> Result<Place, String> {
    let is_path = text.starts_with("/dev/") || text.starts_with("/sys/");
    match text.parse() {
        Ok(bdf) => Ok(Place::Function(bdf)),
        Err(_) if text.contains('/') && !is_path => Err("name events with -e".to_owned()),
        // A function's account has its address in its name.
        Err(_) if text.contains(':') && !is_path && !text.starts_with("kernel_") => {
            Err("not a PCI address; use the form of lspci -D, for example 0000:02:00.0".to_owned())
        }
        Err(_) => Ok(Place::Pmus(text.to_owned())),
    }
}

/// The places with the functions that are named by their disks, interfaces or paths. A PMU of that name comes first.
///
/// # Errors
/// A name of several functions, and a path of none.
pub fn places(ctx: &Ctx, places: &[Place]) -> Result<Vec<Place>, pciescope_hw::Error> {
    let find = |place: &Place| match place {
        Place::Pmus(name) if !name.contains(['*', '?']) && !ctx.root.exists(Path::new(PMUS).join(name)) => {
            match nodes::find(&ctx.root, name) {
                Ok(bdf) => Ok(Place::Function(bdf)),
                // It may be the PMU of a function's account, which is no folder, or come later.
                Err(pciescope_hw::Error::NoSuchName(_)) if !name.contains('/') => Ok(place.clone()),
                Err(err) => Err(err),
            }
        }
        _ => Ok(place.clone()),
    };
    places.iter().map(find).collect()
}

/// Where the kernel shows PMUs.
pub const PMUS: &str = "/sys/bus/event_source/devices";

/// Parses the machine on which to count.
pub fn machine(text: &str) -> Result<Backend, String> {
    match backend(text)? {
        Backend::Real(_) => Err("it is auto (this machine) or fake (a synthetic one)".to_owned()),
        machine => Ok(machine),
    }
}

/// Parses the time between two readings.
pub fn interval(text: &str) -> Result<Time, String> {
    values::interval(text, SHORTEST_NS)
}

fn separator(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii_punctuation() || *byte == b'\t' => Ok(*byte),
        b"\\t" => Ok(b'\t'),
        _ => Err("it is one character such as , or ;".to_owned()),
    }
}

/// Runs the verb. With a command the exit code is the command's; without one, or where --duration ended it, 2 where a
/// counter went away.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let ctx = &ctx.on(&args.backend)?;
    if args.list {
        return list::run(ctx, &places(ctx, &args.places)?, args.source, matches!(args.backend, Backend::Fake(_)));
    }
    let wanted = Wanted {
        places: places(ctx, &args.places)?,
        events: args.events.iter().flat_map(|events| events.0.clone()).collect(),
        metrics: args.metric.clone(),
        origin: args.source,
    };
    let choice = counters::choose(&ctx.root, &wanted).map_err(of_a_word)?;
    let output = args.output.open(&args)?;
    let words = args.command.iter().map(|word| word.to_string_lossy().into_owned());
    let plan = StatPlan {
        events: Vec::new(),
        interval_ns: args.interval().map(|time| time.0),
        count: args.intervals,
        duration_ns: args.duration.map(|time| time.0),
        command: words.collect(),
    };
    let mut runs = Runs { output, failures: Vec::new(), is_last: false };
    let times = args.repeat.unwrap_or(1);
    let mut code = None;
    let signals = Signals::catch(ctx)?;
    let command = || Command::new(&signals, args.command.clone(), plan.duration_ns);
    for _ in 0..args.warmup.unwrap_or(0) {
        let mut command = command()?;
        command.begin().with_context(|| format!("cannot start {}", plan.command[0]))?;
        if let Some(failed) = command.finish()?.filter(|code| *code != 0) {
            ctx.note(&format!("the command failed in a warm-up run, with exit code {failed}: nothing was counted"));
            return Ok(ExitCode::from(failed));
        }
        if let Some(code) = ctx.stop.exit_code() {
            return Ok(ExitCode::from(code));
        }
    }
    for number in 1..=times {
        let task = Task {
            choice: choice.clone(),
            plan: plan.clone(),
            environment: environment::read(&ctx.root),
            label: runs.output.label.clone(),
        };
        runs.is_last = number == times;
        let mut command = command()?;
        let measured = counters::measure(&ctx.root, task, &mut command, &mut runs);
        // The command's end is waited for whatever became of the counters.
        let ended = command.finish();
        runs.failures.extend(measured?.failures);
        code = ended?;
        if ctx.stop.is_set() || code.is_some_and(|code| code != 0) || !runs.failures.is_empty() {
            break;
        }
    }
    if !runs.is_last {
        runs.output.finish()?;
    }
    ctx.complain(&runs.failures);
    Ok(match code {
        Some(code) => ExitCode::from(code),
        None if !runs.failures.is_empty() => ExitCode::from(2),
        None => ctx.stop.exit_code().map_or(ExitCode::SUCCESS, ExitCode::from),
    })
}

/// The output of all runs: only the last one ends it.
struct Runs {
    output: Output,
    failures: Vec<Failure>,
    is_last: bool,
}

impl Sink for Runs {
    fn put(&mut self, record: &Record) -> io::Result<()> {
        self.output.put(record)
    }
    fn put_all(&mut self, records: &[Record]) -> io::Result<()> {
        self.output.put_all(records)
    }
    fn put_samples(&mut self, samples: &[Sample]) -> io::Result<()> {
        self.output.put_samples(samples)
    }
    fn finish(&mut self) -> io::Result<()> {
        if self.is_last { self.output.finish() } else { Ok(()) }
    }
}

/// A word that is nothing at all may be meant as a command, whose program is not there.
fn of_a_word(error: counters::Error) -> anyhow::Error {
    match error {
        counters::Error::NoPmu { pattern, alike } if alike.is_empty() && !pattern.contains(['*', '?']) => Refusal::new(
            format!("{pattern}: neither a PCI address, nor a device or PMU of this machine, nor a program in PATH"),
            "`pciescope stat --list` shows the PMUs; a program elsewhere is given by its path, as in `-- ./fio`",
        )
        .into(),
        error => error.into(),
    }
}

/// Whether a word before the command is a place to count at, and not the command: an address, a pattern, a device or a PMU
/// of this machine; else anything that is no program.
pub fn is_place(word: &OsStr, root: &Path) -> bool {
    let Some(text) = word.to_str() else { return false };
    let is_named = text.parse::<Bdf>().is_ok() || text.contains(['*', '?']);
    let root = Root::at(root);
    let is_here = || root.exists(Path::new(PMUS).join(text)) || nodes::find(&root, text).is_ok();
    // Nothing else with a slash is a place: it is the path of a program, there or not.
    match text.starts_with("/dev/") || text.starts_with("/sys/") {
        true => true,
        false => !text.contains('/') && (is_named || is_here() || !is_program(text)),
    }
}

/// Whether the shell would find a program of this name.
fn is_program(name: &str) -> bool {
    let is_executable =
        |path: &Path| path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| is_executable(&folder.join(name)))
}

impl Refusal {
    /// Why the command does not run; who runs it says which one.
    fn of_command(err: &io::Error) -> Self {
        Refusal::new(err.to_string(), "give a command that the shell would find")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_one_character() {
        assert_eq!(separator(","), Ok(b','));
        assert_eq!(separator("\\t"), Ok(b'\t'));
        for bad in ["", ",,", "a", "\n"] {
            assert!(separator(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn a_place_is_an_address_or_a_name() {
        assert!(matches!(place("02:00.0"), Ok(Place::Function(_))));
        assert!(matches!(place("ali_drw_*"), Ok(Place::Pmus(_))));
        for bad in ["0000:zz:00.0", "a/b/"] {
            assert!(place(bad).is_err(), "{bad:?} was taken");
        }
    }
}
