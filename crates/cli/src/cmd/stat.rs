//! `pciescope stat`: bandwidth, link states and errors from counters of hardware and of the kernel, by port, function and
//! channel.

mod host;
mod list;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use pciescope_bench::counters::{self, Named, Origin, Place, Task, Wanted};
use pciescope_core::plan::StatPlan;
use pciescope_hw::environment;
use pciescope_hw::probe::open::Backend;

use self::host::Command;
use super::device::backend;
use super::output::{FileArgs, Form, Output};
use super::{Ctx, Refusal};
use crate::args::{positive, time_ns};

/// The shortest time between readings, in nanoseconds.
const SHORTEST_NS: u64 = 1_000_000;

/// The arguments of `pciescope stat`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope stat                               everything until Ctrl-C
  pciescope stat -I 1000 --count 10            ten times, every second
  pciescope stat 0000:3b:00.0 -- fio job.fio   the root port of one device while fio runs
  pciescope stat --metric states 0000:00:02.0  how long the link is in which state
  pciescope stat -I 10 -j -o run.jsonl -e 'dwc_rootport_*/rx_pcie_tlp_data_payload/'
  pciescope stat --source kernel -I 1000       what the kernel itself counted
  pciescope stat --backend fake -I 1000        a synthetic machine, to try all of this anywhere
  pciescope stat --list                        what can be counted here

Rx is what arrives at the root port (a device writes memory), Tx what leaves it. Every PMU is counted
by itself, even if names are alike. Counters that took turns on the same hardware are scaled; the
table shows for how much of the time they ran. With a command the output goes to the standard error,
and the exit code is the command's. docs/method.md, \"Counters\", has the rest.")]
pub struct Args {
    /// Root ports, devices below them, or PMUs (`*` and `?` allowed); all if none is given
    #[arg(value_name = "BDF|PMU", value_parser = place)]
    places: Vec<Place>,

    /// Events as perf writes them, `*` allowed in the PMU's name; the catalogue's usual ones if none is given
    #[arg(short, long = "event", value_name = "PMU/EVENT/,...", value_parser = events)]
    events: Vec<Events>,

    /// Metrics, groups of them (bandwidth, states, traffic, errors, efficiency), events of the catalogue, or `vectors`
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', conflicts_with = "events", value_parser = NonEmptyStringValueParser::new())]
    metric: Vec<String>,

    /// Whose counts: hardware's, the kernel's (a lower bound of the payload of each function), or both
    #[arg(long, value_name = "SOURCE", default_value = "all", value_parser = source)]
    source: Origin,

    /// Where to count: auto is this machine, fake a synthetic one with traffic, to try the program
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = machine)]
    backend: Backend,

    /// Read and show every so many milliseconds (or a time with its unit: 10ms, 2s)
    #[arg(short = 'I', long, value_name = "MS", value_parser = interval)]
    interval: Option<u64>,

    /// End after so many intervals
    #[arg(long, value_name = "N", value_parser = positive, requires = "interval")]
    count: Option<u64>,

    /// End after this time, such as 10s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<u64>,

    /// Show what can be counted on this machine, and count nothing
    #[arg(long)]
    list: bool,

    #[command(flatten)]
    output: OutputArgs,

    /// Count while this command runs
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// What `-o` does here, other than elsewhere.
const FILE: &str = "Write to FILE: with -j or -x instead of printing, else the records beside the table";

/// The options that say where the results go.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output", mut_arg("output", |output| output.help(FILE)))]
pub struct OutputArgs {
    /// Print the records, one JSON object a line, as they are completed
    #[arg(short, long, conflicts_with = "separator")]
    pub json: bool,

    /// Print one line per figure with SEP between the fields, `-x,` for CSV
    #[arg(short = 'x', long = "csv", value_name = "SEP", value_parser = separator)]
    pub separator: Option<u8>,

    #[command(flatten)]
    pub file: FileArgs,
}

impl OutputArgs {
    /// Opens everything, so that a mistake shows before anything is counted. Beside a command the standard output is the
    /// command's.
    fn open(&self, has_command: bool, several: bool) -> anyhow::Result<Output> {
        let mut file = self.file.create()?;
        let form = match self.separator {
            Some(separator) => Form::Csv(separator),
            None if self.json => Form::Json,
            None => Form::Intervals { several },
        };
        let out: Box<dyn Write> = match file.take_if(|_| !matches!(form, Form::Intervals { .. })) {
            Some(file) => Box::new(file),
            None if has_command => Box::new(io::stderr()),
            None => Box::new(io::stdout()),
        };
        Ok(Output::new(form, out, file, self.file.label.clone()))
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
    match text.parse() {
        Ok(bdf) => Ok(Place::Function(bdf)),
        Err(_) if text.contains('/') => Err("name events with -e".to_owned()),
        // A function's account has its address in its name.
        Err(_) if text.contains(':') && !text.starts_with("kernel_") => {
            Err("not a PCI address; use the form of lspci -D, for example 0000:02:00.0".to_owned())
        }
        Err(_) => Ok(Place::Pmus(text.to_owned())),
    }
}

/// Parses the machine on which to count.
pub fn machine(text: &str) -> Result<Backend, String> {
    match backend(text)? {
        Backend::Real(_) => Err("counters are of this machine (auto) or of a synthetic one (fake)".to_owned()),
        machine => Ok(machine),
    }
}

/// A number alone is milliseconds, as perf has it.
pub fn interval(text: &str) -> Result<u64, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let ns = if is_number { time_ns(&format!("{text}ms"))? } else { time_ns(text)? };
    if ns < SHORTEST_NS { Err("the shortest interval is 1 ms".to_owned()) } else { Ok(ns) }
}

fn duration(text: &str) -> Result<u64, String> {
    match time_ns(text)? {
        0 => Err("it must be longer than 0".to_owned()),
        ns => Ok(ns),
    }
}

fn separator(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii_punctuation() || *byte == b'\t' => Ok(*byte),
        b"\\t" => Ok(b'\t'),
        _ => Err("it is one character such as , or ;".to_owned()),
    }
}

/// Runs the verb. With a command the exit code is the command's; without one 2 where a counter went away.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let ctx = &ctx.on(&args.backend)?;
    if args.list {
        return list::run(ctx, &args.places, args.source);
    }
    let wanted = Wanted {
        places: args.places,
        events: args.events.into_iter().flat_map(|events| events.0).collect(),
        metrics: args.metric,
        origin: args.source,
    };
    let choice = counters::choose(&ctx.root, &wanted)?;
    let mut output = args.output.open(!args.command.is_empty(), args.interval.is_some())?;
    let words = args.command.iter().map(|word| word.to_string_lossy().into_owned());
    let plan = StatPlan {
        events: Vec::new(),
        interval_ns: args.interval,
        count: args.count,
        duration_ns: args.duration,
        command: words.collect(),
    };
    let task = Task { choice, plan, environment: environment::read(&ctx.root), label: output.label.clone() };
    let mut command = Command::new(ctx, args.command)?;
    let measured = counters::measure(&ctx.root, task, &mut command, &mut output);
    // The command's end is waited for whatever became of the counters.
    let code = command.finish();
    let summary = measured?;
    for failure in &summary.failures {
        ctx.note(&failure.text);
        if let Some(hint) = &failure.hint {
            ctx.hint(hint);
        }
    }
    Ok(match code? {
        Some(code) => ExitCode::from(code),
        None if !summary.failures.is_empty() => ExitCode::from(2),
        None => ctx.stop.exit_code().map_or(ExitCode::SUCCESS, ExitCode::from),
    })
}

impl Refusal {
    /// A refusal about the command that is to run.
    fn of_command(command: &std::ffi::OsStr, err: &io::Error) -> Self {
        Refusal::new(
            format!("cannot start {}: {err}", command.to_string_lossy()),
            "give a command that the shell would find",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_milliseconds_unless_they_say_otherwise() {
        assert_eq!(interval("10"), Ok(10_000_000));
        assert_eq!(interval("2s"), Ok(2_000_000_000));
        for bad in ["", "0", "500us", "-1", "1x"] {
            assert!(interval(bad).is_err(), "{bad:?} was taken");
        }
        assert!(duration("0").is_err());
    }

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
