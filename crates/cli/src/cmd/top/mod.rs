//! `pciescope top`: a live view, full screen, of this machine or of a file of records.
//!
//! Threads send what they have over one channel; the main thread draws when something came, and sleeps otherwise.

mod live;
mod probe;
mod replay;
mod screen;
mod view;
mod worker;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::ArgGroup;
use pciescope_bench::counters::{self, Origin as Source, Place, Wanted};
use pciescope_core::{Bdf, Failure, Function, Record, WatchedLink, WhyPlan};
use pciescope_hw::probe::open::Backend;
use pciescope_tui::ratatui::crossterm::event::{self, KeyEvent, MouseEvent, MouseEventKind};
use pciescope_tui::{Origin, State, Theme};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use self::replay::{Command, Flaw};
use self::screen::Screen;
use self::view::View;
use self::worker::Worker;
use super::stat::{Events, events, interval, place, places, source};
use super::{Ctx, Refusal, recorded, wake_on};
use crate::cmd::device::backend;
use crate::values::{self, Time};

/// The signals that end `top`. SIGQUIT is one of them: it would leave the terminal on the other screen.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
/// Events that wait for a slow terminal; further intervals are left out and counted.
const ROOM: usize = 64;
/// The columns of a page of text without a terminal.
const PAGE_COLUMNS: u16 = 120;
/// The most lines of a page of text.
const PAGE_LINES: u16 = 5000;
/// Of each batch of the probe the slowest read is explained.
const LAST_SLOW: WhyPlan = WhyPlan { slowest: 1, above_ns: None, stop_above_ns: None };
/// The shortest time between two batches of the probe, so that they are no load.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// The arguments of `pciescope top`.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("probed").args(["probe", "backend"]).multiple(true))]
#[command(after_help = "\
Examples:
  pciescope top                                   this machine, every second
  pciescope top -I 250ms 0000:3b:00.0             one port, four times a second
  pciescope top --metric bandwidth,states,errors  with the states of the links
  pciescope top --probe 0000:3b:00.0              with a device's latency
  pciescope top --probe 0000:3b:00.0 --probe-why  and why its last slow read was
  pciescope stat -I 1s -j -o run.jsonl            record now ...
  pciescope top --replay run.jsonl --speed 10     ... and watch it later
  ssh host pciescope stat -I 1s -j | pciescope top --replay -
  pciescope top -b -n 1                           one screen as text

`?` shows the keys. The terminal needs 30 columns and 6 lines. NO_COLOR turns
colours off; without a UTF-8 locale top draws in ASCII. docs/top.md describes
the views.")]
pub struct Args {
    /// Root ports, devices below them, or PMUs (`*` and `?` allowed); all if none is given
    #[arg(value_name = "BDF|PMU", value_parser = place, conflicts_with = "replay")]
    places: Vec<Place>,

    /// The time between two readings, such as 250ms or 2s
    #[arg(short = 'I', long, value_name = "TIME", value_parser = interval, default_value = "1s", conflicts_with = "delay")]
    interval: Time,

    /// The interval in the form of top: a number without a unit is seconds
    #[arg(short, long, value_name = "TIME", value_parser = delay, hide = true)]
    delay: Option<Time>,

    /// Metrics, groups of them (bandwidth, states, traffic, errors, efficiency) or events, as `stat` takes them
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', conflicts_with = "replay")]
    metric: Vec<String>,

    /// Events in perf's syntax instead of metrics, as `stat` takes them; the view Counters shows them
    #[arg(short, long = "event", value_name = "EVENT,...", value_parser = events, conflicts_with_all = ["metric", "replay"])]
    events: Vec<Events>,

    /// Whose counts to use: those of hardware, of the kernel (a lower bound of each function's payload), or both
    #[arg(long, value_name = "SOURCE", default_value = "all", value_parser = source, conflicts_with = "replay")]
    source: Source,

    /// Also measure the register latency of this device, in small batches, once an interval but at most once a second
    #[arg(long, value_name = "BDF", value_parser = values::bdf, conflicts_with = "replay")]
    probe: Option<values::FunctionName>,

    /// Also say why the last slow read of the probe was slow (docs/why.md)
    #[arg(long, requires = "probed", conflicts_with = "replay")]
    probe_why: bool,

    /// How to reach the device of --probe: auto, kmod, vfio, resource, sysfs; or fake[:OPTION,...], a synthetic machine with traffic
    #[arg(long, value_name = "BACKEND", value_parser = backend, conflicts_with = "replay")]
    backend: Option<Backend>,

    /// Show the records of FILE, written by `stat -I -j`, at the speed of the recording; `-` reads stdin, `sample` is built in
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,

    /// Replay N times as fast
    #[arg(long, value_name = "N", value_parser = speed, requires = "replay", default_value = "1")]
    speed: f64,

    /// Print each interval as text, as `top -b` does; a replay then prints without waiting
    #[arg(short, long)]
    batch: bool,

    /// End after N intervals
    #[arg(short = 'n', long, alias = "iterations", value_name = "N", value_parser = values::positive)]
    intervals: Option<u64>,

    /// Print one page of text and end: -b -n 1
    #[arg(long, conflicts_with_all = ["intervals", "batch"])]
    once: bool,

    /// Columns of a page of text [default: the terminal's, else 120]
    #[arg(short = 'w', long, alias = "width", value_name = "N", value_parser = clap::value_parser!(u16).range(30..=1000))]
    columns: Option<u16>,

    /// Draw with ASCII only, in any locale
    #[arg(long)]
    ascii: bool,
}

fn delay(text: &str) -> Result<Time, String> {
    match values::time(text)? {
        Time(ns) if !(1_000_000..=86_400_000_000_000).contains(&ns) => Err("take 1ms to 24h".to_owned()),
        time => Ok(time),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (1.0 / 64.0..=1024.0).contains(&speed) => Ok(speed),
        _ => Err("give a factor from 0.015625 to 1024".to_owned()),
    }
}

/// A variable of the environment; `--no-color` is NO_COLOR.
pub fn variable(name: &str) -> Option<String> {
    let is_off = name == "NO_COLOR" && anstream::ColorChoice::global() == anstream::ColorChoice::Never;
    if is_off { Some("1".to_owned()) } else { std::env::var(name).ok() }
}

/// What threads send to the main thread.
enum Input {
    /// A key was pressed.
    Key(KeyEvent),
    /// A button or the wheel of the mouse.
    Mouse(MouseEvent),
    /// The terminal's size changed.
    Resized,
    /// Keys can no longer be read.
    Deaf(io::Error),
    /// Records of an interval.
    Records(Vec<Record>),
    /// The machine's functions.
    Functions(Vec<Function>),
    /// What the recorder has kept of links.
    Watched(BTreeMap<Bdf, WatchedLink>),
    /// Nothing is counted, or no longer.
    NotCounted(Failure),
    /// A replay ended, with what was wrong at its end.
    Ended(Option<Flaw>),
    /// A signal came.
    Signal,
}

/// Runs the verb.
pub fn run(args: Args, ctx: &Ctx) -> anyhow::Result<ExitCode> {
    let ctx = &ctx.on(args.backend.as_ref().unwrap_or(&Backend::Auto))?;
    let is_text = args.batch || args.once;
    let count = if args.once { Some(1) } else { args.intervals };
    let has_terminal = io::stdout().is_terminal();
    if !is_text && !has_terminal {
        return Err(Refusal::new(
            "top needs a terminal on stdout",
            "`pciescope top -b` prints screens as text, `pciescope stat -I 1s` tables and records",
        )
        .into());
    }
    if !is_text && std::env::var("TERM").is_ok_and(|term| term == "dumb") {
        let hint = "set TERM to the terminal's type, or print screens as text with `pciescope top -b`";
        return Err(Refusal::new("top cannot draw on a dumb terminal (TERM=dumb)", hint).into());
    }
    let mut theme = Theme::of_environment(variable);
    theme.has_unicode &= !args.ascii;
    let (events, came) = sync_channel(ROOM);
    // A file may be a pipe without a writer: a signal has to end the program while it waits for the first record.
    let speed = (!is_text).then_some(args.speed);
    let replay = args.replay.as_deref().map(|path| replay::start(path, speed, events.clone())).transpose()?;
    ctx.stop.catch(&ENDING)?;
    // Other programs may have written to the terminal while this one was stopped.
    let wake = wake_on(&[&ENDING[..], &[SIGCONT]].concat())?;
    let interval_ns = args.delay.unwrap_or(args.interval).0;
    let skipped = Arc::new(AtomicU64::new(0));
    let origin = match &args.replay {
        Some(path) => {
            let name = path.file_name().map_or_else(|| "-".to_owned(), |name| name.to_string_lossy().into_owned());
            Origin::Replay { name, speed: args.speed, has_ended: false }
        }
        None => Origin::Live { interval_ns },
    };
    let mut view = View {
        state: State::new(theme, origin),
        came,
        skipped: Arc::clone(&skipped),
        stop: ctx.stop.clone(),
        sources: Sources::default(),
        spans: 0,
        heard: Instant::now(),
        count,
        file: args.replay.as_deref().map(|path| replay::name(path).to_owned()),
        flaw: None,
    };
    view.sources = match replay {
        Some(replay) => Sources { replay: Some(replay), ..Sources::default() },
        None => sources(&args, ctx, interval_ns, &mut view.state, &events, skipped)?,
    };
    watch(wake, events.clone())?;
    if is_text {
        let columns = args.columns.or_else(|| screen::size().filter(|_| has_terminal).map(|(columns, _)| columns));
        return view.print(columns.unwrap_or(PAGE_COLUMNS), ctx);
    }
    let mut screen = Screen::open().map_err(|err| {
        let hint = "`pciescope top -b` prints screens as text";
        anyhow::Error::from(Refusal::new(format!("cannot open the terminal: {err}"), hint))
    })?;
    listen(events)?;
    view.show(&mut screen)
}

/// Starts what reads this machine.
fn sources(
    args: &Args,
    ctx: &Ctx,
    interval_ns: u64,
    state: &mut State,
    events: &SyncSender<Input>,
    skipped: Arc<AtomicU64>,
) -> anyhow::Result<Sources> {
    state.model.set_functions(ctx.inventory());
    state.model.watched = recorded::read(&ctx.root);
    let mut sources = Sources::default();
    let (ask, asked) = channel();
    live::watch_functions(&ctx.root, asked, events.clone())?;
    sources.refresh = Some(ask);
    let named = args.events.iter().flat_map(|events| events.0.iter().cloned()).collect();
    let (places, metrics, origin) = (places(ctx, &args.places)?, args.metric.clone(), args.source);
    let wanted = Wanted { places, events: named, metrics, origin };
    // What the user named is counted, or the program refuses.
    let is_named = !(args.places.is_empty() && args.metric.is_empty() && args.events.is_empty());
    match counters::choose(&ctx.root, &wanted) {
        Ok(choice) => {
            sources.counting = Some(live::count(&ctx.root, choice, interval_ns, events.clone(), skipped)?);
        }
        Err(err) if is_named => return Err(err.into()),
        Err(err) => state.model.no_counters = Some(with_hint(live::failure(&err.into()))),
    }
    let backend = args.backend.clone().unwrap_or_default();
    if args.probe.is_some() || matches!(backend, Backend::Fake(_)) {
        let every = Duration::from_nanos(interval_ns).max(PROBE_EVERY);
        let why = args.probe_why.then_some(LAST_SLOW);
        sources.probing = Some(probe::start(ctx, args.probe.as_ref(), backend, (every, why), events.clone())?);
    }
    Ok(sources)
}

/// Adds to a failure how to see what can be counted.
fn with_hint(mut failure: Failure) -> Failure {
    let list = "`pciescope stat --list` shows what can be counted";
    failure.hint = Some(match failure.hint {
        Some(hint) => format!("{list}; {hint}"),
        None => list.to_owned(),
    });
    failure
}

/// What sends records; dropping it ends all of it.
#[derive(Default)]
struct Sources {
    counting: Option<Worker>,
    probing: Option<Worker>,
    refresh: Option<Sender<()>>,
    replay: Option<Sender<Command>>,
}

impl Sources {
    fn have_panicked(&mut self) -> bool {
        [&mut self.counting, &mut self.probing].into_iter().flatten().any(Worker::has_panicked)
    }

    fn command(&self, command: Command) {
        if let Some(replay) = &self.replay {
            // A replay that has ended takes no commands.
            let _ = replay.send(command);
        }
    }
}

/// Sends an event for each signal.
fn watch(mut wake: UnixStream, events: SyncSender<Input>) -> io::Result<()> {
    let work = move || {
        let mut byte = [0; 1];
        while matches!(wake.read(&mut byte), Ok(1)) && events.send(Input::Signal).is_ok() {}
    };
    thread::Builder::new().name("signals".to_owned()).spawn(work).map(drop)
}

/// Sends keys and changes of the terminal's size.
fn listen(events: SyncSender<Input>) -> io::Result<()> {
    let work = move || {
        loop {
            let event = match event::read() {
                Ok(event::Event::Key(key)) => Input::Key(key),
                // A mouse that only moves asks for nothing.
                Ok(event::Event::Mouse(mouse)) if !matches!(mouse.kind, MouseEventKind::Moved) => Input::Mouse(mouse),
                Ok(event::Event::Resize(..)) => Input::Resized,
                Ok(_) => continue,
                Err(err) => {
                    let _ = events.send(Input::Deaf(err));
                    return;
                }
            };
            if events.send(event).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".to_owned()).spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_seconds_and_speeds_factors() {
        assert_eq!(delay("0.5"), Ok(Time(500_000_000)));
        assert_eq!(speed("10"), Ok(10.0));
        for bad in ["", "0", "-1", "nan", "inf", "1e9"] {
            assert!(delay(bad).is_err() && speed(bad).is_err(), "{bad:?} was taken");
        }
    }
}
