//! `pciescope top`: a live view, full screen, of this machine or of a file of records.
//!
//! Threads send what they have over one channel; the main thread draws when something came, and sleeps otherwise.

mod live;
mod probe;
mod replay;
mod screen;
mod worker;

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use pciescope_bench::counters::{self, Origin as Source, Place, Wanted};
use pciescope_core::{Bdf, Failure, Function, MmioTest, Record};
use pciescope_hw::pci;
use pciescope_hw::probe::open::Backend;
use pciescope_tui::ratatui::crossterm::event::{self, KeyEvent, MouseEvent, MouseEventKind};
use pciescope_tui::{Action, Origin, State, Theme, page};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use self::replay::{Command, Flaw};
use self::screen::Screen;
use self::worker::Worker;
use super::stat::{Events, events, interval, place, source};
use super::{Ctx, Refusal, Stop, wake_on};
use crate::cmd::device::backend;
use crate::values::{self, Time};

/// The signals that end `top`. SIGQUIT is one of them: it would leave the terminal on the other screen.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
/// Events that wait for a slow terminal; further intervals are left out and counted.
const ROOM: usize = 64;
/// The shortest time between two screens.
const SHORTEST_FRAME: Duration = Duration::from_millis(50);
/// How often the view looks for what sends no event: silence, and a thread that panicked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Figures are stale after three intervals without a new one, and no sooner than after this time.
const STALE_AFTER: Duration = Duration::from_secs(3);
/// The columns of a page of text without a terminal.
const PAGE_COLUMNS: u16 = 120;
/// The most lines of a page of text.
const PAGE_LINES: u16 = 5000;
/// The shortest time between two batches of the probe, so that they are no load.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// The arguments of `pciescope top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pciescope top                                   this machine, every second
  pciescope top -I 250ms 0000:3b:00.0             one port, four times a second
  pciescope top --metric bandwidth,states,errors  with the states of the links
  pciescope top --probe 0000:3b:00.0              with a device's latency
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
    probe: Option<Bdf>,

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
    let mut theme = Theme::of_environment(|name| std::env::var(name).ok());
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
    state.model.set_functions(pci::functions(&ctx.root)?);
    let mut sources = Sources::default();
    let (ask, asked) = channel();
    live::watch_functions(&ctx.root, asked, events.clone())?;
    sources.refresh = Some(ask);
    let named = args.events.iter().flat_map(|events| events.0.iter().cloned()).collect();
    let (places, metrics, origin) = (args.places.clone(), args.metric.clone(), args.source);
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
        sources.probing = Some(probe::start(ctx, args.probe, backend, every, events.clone())?);
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

/// What to do after an event.
enum Next {
    Wait,
    Draw,
    Renew,
    Suspend,
    End(ExitCode),
}

struct View {
    state: State,
    came: Receiver<Input>,
    skipped: Arc<AtomicU64>,
    stop: Stop,
    sources: Sources,
    /// Intervals received.
    spans: u64,
    /// When the last of them came.
    heard: Instant,
    count: Option<u64>,
    /// The file of a replay, as messages name it.
    file: Option<PathBuf>,
    /// What was wrong at the end of a replay.
    flaw: Option<Flaw>,
}

impl View {
    /// Draws after each event, until the user quits.
    fn show(&mut self, screen: &mut Screen) -> anyhow::Result<ExitCode> {
        screen.draw(&self.state)?;
        let mut drawn = Instant::now();
        let mut is_due = false;
        loop {
            let wait = if is_due { SHORTEST_FRAME.saturating_sub(drawn.elapsed()) } else { LOOK_EVERY };
            match self.came.recv_timeout(wait) {
                Ok(event) => match self.event(event)? {
                    Next::Wait => {}
                    Next::Draw => is_due = true,
                    Next::Renew => {
                        screen.renew()?;
                        is_due = true;
                    }
                    Next::Suspend => {
                        screen.leave();
                        pciescope_hw::wait::suspend()?;
                        screen.enter()?;
                        is_due = true;
                    }
                    Next::End(code) => return Ok(code),
                },
                Err(RecvTimeoutError::Timeout) => is_due |= self.look()?,
                Err(RecvTimeoutError::Disconnected) => return Ok(ExitCode::SUCCESS),
            }
            if is_due && drawn.elapsed() >= SHORTEST_FRAME {
                screen.draw(&self.state)?;
                (drawn, is_due) = (Instant::now(), false);
            }
        }
    }

    /// Prints a page for each interval.
    fn print(&mut self, columns: u16, ctx: &Ctx) -> anyhow::Result<ExitCode> {
        let mut out = io::stdout().lock();
        let mut printed = 0;
        // Without counters there is no interval: print a page for each batch of the probe, or one page and end.
        let counts = |view: &View| view.sources.counting.is_some() || view.sources.replay.is_some();
        if !counts(self) && self.sources.probing.is_none() {
            write!(out, "{}", page(&self.state, columns, PAGE_LINES))?;
            return Ok(ExitCode::SUCCESS);
        }
        loop {
            let event = match self.came.recv_timeout(LOOK_EVERY) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => {
                    self.look()?;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let is_figure = |record: &Record| record.test == MmioTest::Read.name();
            let is_batch = matches!(&event, Input::Records(records) if counts(self) || records.iter().any(is_figure));
            let has_ended = matches!(event, Input::Ended(_) | Input::NotCounted(_));
            if let Input::NotCounted(failure) = &event {
                // After the first page an error says why no more come; before it the page itself does.
                let Failure { text, hint, .. } = failure.clone();
                if printed > 0 {
                    return Err(Refusal { text, hint }.into());
                }
            }
            let next = self.event(event)?;
            let is_page = is_batch && (self.spans > printed || !counts(self));
            if is_page || (has_ended && printed == 0) {
                writeln!(out, "{}", page(&self.state, columns, PAGE_LINES))?;
                out.flush()?;
                printed = self.spans.max(printed + 1);
            }
            match next {
                Next::End(code) => return Ok(code),
                _ if has_ended => break,
                _ if !counts(self) && self.count.is_some_and(|count| printed >= count) => break,
                _ => {}
            }
        }
        match self.flaw.take() {
            Some(Flaw::Bad(text)) => return Err(Refusal { text, hint: None }.into()),
            Some(Flaw::Torn(text)) => ctx.note(&text),
            None => {}
        }
        Ok(ExitCode::SUCCESS)
    }

    /// A replay that ended and had nothing to show: not of counters, or of a command that failed (`ssh HOST ... | top`).
    fn nothing(&self) -> Option<Refusal> {
        let file = self.file.as_ref().filter(|_| self.spans == 0)?;
        let text = match &self.flaw {
            Some(flaw) => format!("{}; no record before it counts ports or channels", flaw.text()),
            None => format!("{}: no record of it counts ports or channels", file.display()),
        };
        Some(Refusal::new(text, "`pciescope stat -I 1s -j -o FILE` writes such records"))
    }

    /// Notices what sends no event: a thread that panicked, and that intervals no longer come. Returns whether the screen changes.
    fn look(&mut self) -> anyhow::Result<bool> {
        if self.sources.have_panicked() {
            anyhow::bail!("a thread ended unexpectedly");
        }
        let length_s = match &self.state.origin {
            // Nothing more comes, or intervals come when the user asks for them.
            Origin::Replay { has_ended: true, .. } => f64::INFINITY,
            Origin::Replay { .. } if self.state.is_paused() => f64::INFINITY,
            Origin::Live { .. } if self.state.model.no_counters.is_some() => f64::INFINITY,
            Origin::Live { .. } if self.sources.counting.is_none() => f64::INFINITY,
            Origin::Live { interval_ns } => *interval_ns as f64 / 1e9,
            Origin::Replay { speed, .. } => {
                let span = self.state.model.live.last().and_then(|number| self.state.model.live.span(number));
                span.map_or(0.0, |span| span.end_ns.saturating_sub(span.start_ns) as f64 / 1e9 / speed)
            }
        };
        let silent_s = self.heard.elapsed().as_secs_f64();
        let stale_s = (silent_s > (3.0 * length_s).max(STALE_AFTER.as_secs_f64())).then_some(silent_s as u64);
        Ok(std::mem::replace(&mut self.state.stale_s, stale_s) != stale_s)
    }

    /// Applies an event to the state.
    fn event(&mut self, event: Input) -> anyhow::Result<Next> {
        if let Some(code) = self.stop.exit_code() {
            return Ok(Next::End(ExitCode::from(code)));
        }
        self.look()?;
        self.state.skipped = self.skipped.load(Ordering::Relaxed);
        match event {
            Input::Key(key) => {
                let action = self.state.key(key);
                return Ok(self.act(action));
            }
            Input::Mouse(mouse) => {
                let action = self.state.mouse(mouse, screen::size_or_usual());
                return Ok(self.act(action));
            }
            Input::Resized => {}
            Input::Signal => return Ok(Next::Renew),
            Input::Deaf(err) => {
                return Err(Refusal::new(format!("cannot read keys: {err}"), "top reads keys from /dev/tty").into());
            }
            Input::Records(records) => {
                let before = self.state.model.live.last();
                self.state.take(&records);
                if self.state.model.live.last() != before {
                    self.spans += 1;
                    (self.heard, self.state.stale_s) = (Instant::now(), None);
                }
                if self.spans > 0 && self.count.is_some_and(|count| self.spans >= count) {
                    return Ok(Next::End(ExitCode::SUCCESS));
                }
            }
            Input::Functions(functions) => self.state.model.set_functions(functions),
            Input::NotCounted(failure) => self.state.model.no_counters = Some(with_hint(failure)),
            Input::Ended(flaw) => {
                self.flaw = flaw;
                if let Some(nothing) = self.nothing() {
                    return Err(nothing.into());
                }
                if let Origin::Replay { has_ended, .. } = &mut self.state.origin {
                    *has_ended = true;
                }
                let notice = self.flaw.as_ref().map(|flaw| flaw.text().to_owned());
                (self.state.notice, self.state.stale_s) = (notice, None);
            }
        }
        Ok(Next::Draw)
    }

    fn act(&mut self, action: Action) -> Next {
        match action {
            Action::Nothing => return Next::Wait,
            Action::Draw => {}
            Action::Redraw => return Next::Renew,
            Action::Quit => return Next::End(ExitCode::SUCCESS),
            Action::Interrupt => return Next::End(ExitCode::from(128 + SIGINT as u8)),
            Action::Suspend => return Next::Suspend,
            Action::Pause(is_paused) => {
                // The next interval of a replay is due after the pause; counters are read all the while.
                if self.sources.replay.is_some() {
                    self.heard = Instant::now();
                }
                self.sources.command(Command::Pause(is_paused));
            }
            Action::Step => self.sources.command(Command::Step),
            Action::Speed(speed) => self.sources.command(Command::Speed(speed)),
            Action::Refresh => {
                if let Some(refresh) = &self.sources.refresh {
                    let _ = refresh.send(());
                }
                return Next::Wait;
            }
        }
        Next::Draw
    }
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
