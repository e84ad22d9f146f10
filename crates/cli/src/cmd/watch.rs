//! `pciescope watch`: records every change of links, and says why.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::Context;
use pciescope_bench::counters::Host;
use pciescope_bench::on::{Bounds, Commands, Rule};
use pciescope_bench::watch::{self, WatchTask};
use pciescope_core::{Warning, WatchPlan, warning};
use pciescope_hw::probe::open::Backend;
use pciescope_hw::wait::Woken;
use pciescope_hw::watch::{Links, LiveLinks, Script};
use pciescope_hw::{environment, pci};
use signal_hook::consts::SIGHUP;

use super::doctor::count::Wait;
use super::output::{Form, Output, OutputArgs};
use super::registers::{self, Registers};
use super::ring::RecordRing;
use super::stat::machine;
use super::{Ctx, ENDING, Refusal, Stop};
use crate::values::{self, FunctionName, Size, Time, some_time};

/// The shortest time between samples, in nanoseconds.
const SHORTEST_NS: u64 = 1_000_000;

/// The arguments of `pciescope watch`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo pciescope watch                      all links until Ctrl-C
  sudo pciescope watch 3b:00.0 -I 100ms     a function and the ports above it
  sudo pciescope watch -o links.jsonl       and keep the changes
  sudo pciescope watch --clear-lbms         see each change between two samples
                                            (before Linux 6.13)
  sudo pciescope watch --on 'lost=logger \"$PCIESCOPE_FUNCTION $PCIESCOPE_TO\"'
                                            log links that became slower
  pciescope watch --backend fake --duration 1h   an hour of a synthetic machine,
                                            in three seconds
  pciescope report links.jsonl -o links.html     a page with a timeline

It watches speed, width, ASPM, power states, slots, containment (DPC), error
counts (AER) and drivers, and prints each change with its cause and with what
the link carries less than at best. It reads registers only of functions that
are awake, writes none, and wakes no device. A change that comes back between
two samples is seen by bits of Link Status, if they were clear before; else the
output says for how long it could not have been seen. With --clear-lbms it
writes one: it clears Link Bandwidth Management Status, which no exit puts back.
docs/watch.md has the rules.

Events of --on: any, lost (a link carries less than at best, and not to save
power); what changed: link, presence, power, aspm, slot, dpc, errors, driver,
gap; or why: enumeration, software, autonomous, reliability, hot-plug,
kernel-hold, power-saving, unknown. Variables tell COMMAND what happened
(PCIESCOPE_FUNCTION, _DEVICE, _FROM, _TO, _CAUSE and others). It runs for a
minute at most, and each rule's command at most every ten seconds.

SIGHUP opens the file of -o anew, after a log rotation moved it away.

Exit codes: 0 if no link lost bandwidth; 1 if one did; 2 if there is no link.")]
pub struct Args {
    /// Watch these functions and the ports above them; everything if none is named
    #[arg(value_name = "BDF", value_parser = values::bdf)]
    functions: Vec<FunctionName>,

    /// Time between samples, such as 100ms
    #[arg(short = 'I', long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Time,

    /// End after this time, such as 8h
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    duration: Option<Time>,

    /// Run COMMAND at each change that is EVENT; can be repeated
    #[arg(long, value_name = "EVENT=COMMAND", value_parser = rule)]
    on: Vec<Rule>,

    /// Clear LBMS at ports that show it (root, before Linux 6.13): a sticky bit, which cannot be set again
    #[arg(long)]
    clear_lbms: bool,

    /// Keep the records in files in DIR, delete the oldest, and tell what changed since the last run
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    ring: Option<PathBuf>,

    /// How much the files in DIR may have together
    #[arg(long, value_name = "SIZE", default_value = "64M", requires = "ring", value_parser = ring_size)]
    ring_size: Size,

    /// Open registers for the recorder that is at the other end of the standard input
    #[arg(long, hide = true)]
    registers_helper: bool,

    /// Which machine: auto is this one, fake a synthetic one whose hour passes in three seconds
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = machine)]
    backend: Backend,

    #[command(flatten)]
    output: OutputArgs,
}

/// Parses the time between two samples.
pub(super) fn interval(text: &str) -> Result<Time, String> {
    values::interval(text, SHORTEST_NS)
}

fn ring_size(text: &str) -> Result<Size, String> {
    values::memory(text, 1)
}

fn rule(text: &str) -> Result<Rule, String> {
    let events = watch::events();
    match text.split_once('=') {
        Some((event, _)) if !events.contains(&event) => {
            Err(format!("there is no event '{event}'; events: {}", events.join(", ")))
        }
        Some((event, command)) if !command.is_empty() => {
            Ok(Rule { event: event.to_owned(), command: command.to_owned() })
        }
        _ => Err("write an event and a command, such as 'lost=logger a link lost bandwidth'".to_owned()),
    }
}

/// Waits as [`Wait`] does; SIGHUP opens the file anew, unless the terminal has gone.
struct Watching {
    wait: Wait,
    moved: Stop,
    has_terminal: bool,
}

impl Watching {
    fn new(ctx: &Ctx, has_file: bool) -> io::Result<Self> {
        let (moved, is_renewed) = (Stop::default(), |signal: &i32| has_file && *signal == SIGHUP);
        let (renewing, ending): (Vec<i32>, Vec<i32>) = ENDING.into_iter().partition(is_renewed);
        moved.catch(&renewing)?;
        ctx.stop.catch(&ending)?;
        Ok(Watching { wait: Wait::new(ctx)?, moved, has_terminal: has_terminal() })
    }
}

/// Whether this process has a terminal that could hang up.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

impl Host for Watching {
    fn until(&mut self, deadline_ns: Option<u64>) -> io::Result<Woken> {
        loop {
            match self.wait.woken(deadline_ns)? {
                Woken::Signal if self.moved.number().swap(0, Ordering::SeqCst) != 0 => {
                    if !self.has_terminal || has_terminal() {
                        return Ok(Woken::Moved);
                    }
                    self.wait.stop.number().store(SIGHUP as usize, Ordering::SeqCst);
                }
                Woken::Signal if !self.wait.stop.is_set() => {}
                woken => return Ok(woken),
            }
        }
    }
}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    if args.registers_helper {
        registers::connected()
            .and_then(|socket| registers::serve(&ctx.root, &socket))
            .context("cannot open registers for the recorder")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut host = Watching::new(ctx, args.output.file.output.is_some())?;
    let ctx = &ctx.on(&args.backend)?;
    let functions = ctx.functions(&args.functions)?;
    for bdf in &functions {
        if !ctx.root.exists(pci::folder(*bdf)) {
            return Err(pciescope_hw::Error::NoSuchFunction(*bdf).into());
        }
    }
    let (mut links, backend, warnings): (Box<dyn Links>, _, _) = match &args.backend {
        Backend::Fake(options) => (Box::new(Script::synthetic(&ctx.root, options, &functions)), "fake", None),
        Backend::Auto | Backend::Real(_) => {
            let mut machine = LiveLinks::new(&ctx.root, &functions);
            if let Some(registers) = Registers::connect(&ctx.root) {
                machine = machine.with_opener(Box::new(registers));
            }
            if args.clear_lbms {
                machine.may_clear_lbms().map_err(|(why, hint)| Refusal::new(why, hint))?;
            }
            let unseen = machine.is_blind().then(unseen).or_else(|| machine.without_events().map(untold));
            (Box::new(machine), "sysfs", unseen)
        }
    };
    let ring = args.ring.as_deref().map(|folder| RecordRing::open(folder, args.ring_size.0)).transpose()?;
    let environment = environment::read(&ctx.root);
    let former = ring.as_ref().map(|ring| ring.former(environment.boot_id.as_deref())).transpose();
    let former = former.context("cannot read the records of the last run")?.unwrap_or_default();
    let file = args.output.file.create(&[])?;
    let form = args.output.form(Form::Changes { all: args.output.all });
    let mut output = Output::new(form, form.out(), file, args.output.file.label.clone()).with_ring(ring);
    let (interval_ns, duration_ns) = (args.interval.0, args.duration.map(|duration| duration.0));
    let task = WatchTask {
        plan: WatchPlan { functions, interval_ns, duration_ns, clear_lbms: args.clear_lbms },
        environment,
        label: args.output.file.label.clone(),
        backend,
        warnings,
        former,
        commands: (!args.on.is_empty()).then(|| Commands::start(args.on, Bounds::USUAL, say_failed)),
    };
    if ctx.terminal && args.duration.is_none() {
        ctx.note("watching links until Ctrl-C; times are UTC");
    }
    if let Some(events) = links.ready() {
        host.wait.waiter.watch_events(events.try_clone_to_owned()?);
    }
    let summary = watch::run(links.as_mut(), task, &mut host, &mut output)?;
    if summary.links == 0 {
        ctx.note("there is no link to watch");
        ctx.hint("`pciescope list` shows the functions and their links");
        return Ok(ExitCode::from(2));
    }
    Ok(match ctx.stop.exit_code() {
        Some(code) => ExitCode::from(code),
        None => ExitCode::from(u8::from(summary.lost_bytes > 0.0)),
    })
}

fn say_failed(warning: &Warning) {
    super::say(&format!("pciescope: {}\n", warning.text));
}

/// That there are samples alone, where the kernel could tell more.
fn untold(why: String) -> Warning {
    warning::NOT_CHECKED.hinted(
        format!("watch: the kernel's tracepoints cannot be read ({why}), so that it has samples alone"),
        "run it as root (sudo), with tracefs mounted at /sys/kernel/tracing",
    )
}

/// What cannot be seen without privilege.
fn unseen() -> Warning {
    warning::NOT_CHECKED.hinted(
        "watch: registers cannot be read without root: it has speed and width from sysfs alone, so that causes, slots, containment and changes between two samples are not seen",
        "run it as root (sudo), or with the helper of its service (docs/watch.md)",
    )
}
