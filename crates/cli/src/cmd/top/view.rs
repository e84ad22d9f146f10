//! What `top` does with each event: it draws the screen, or prints pages.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use pciescope_core::{Failure, MmioTest, Record};
use pciescope_tui::{Action, Origin, State, page};
use signal_hook::consts::SIGINT;

use super::replay::{Command, Flaw};
use super::screen::{self, Screen};
use super::{Input, PAGE_LINES, Sources, with_hint};
use crate::cmd::{Ctx, Refusal, Stop};

/// The shortest time between two screens.
const SHORTEST_FRAME: Duration = Duration::from_millis(50);
/// How often the view looks for what sends no event: silence, and a thread that panicked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Figures are stale after three intervals without a new one, and no sooner than after this time.
const STALE_AFTER: Duration = Duration::from_secs(3);

/// What to do after an event.
enum Next {
    Wait,
    Draw,
    Renew,
    Suspend,
    End(ExitCode),
}

/// The screen or the pages, fed by what threads send.
pub(super) struct View {
    pub(super) state: State,
    pub(super) came: Receiver<Input>,
    pub(super) skipped: Arc<AtomicU64>,
    pub(super) stop: Stop,
    pub(super) sources: Sources,
    /// Intervals received.
    pub(super) spans: u64,
    /// When the last of them came.
    pub(super) heard: Instant,
    pub(super) count: Option<u64>,
    /// The file of a replay, as messages name it.
    pub(super) file: Option<PathBuf>,
    /// What was wrong at the end of a replay.
    pub(super) flaw: Option<Flaw>,
}

impl View {
    /// Draws after each event, until the user quits.
    pub(super) fn show(&mut self, screen: &mut Screen) -> anyhow::Result<ExitCode> {
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
    pub(super) fn print(&mut self, columns: u16, ctx: &Ctx) -> anyhow::Result<ExitCode> {
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
            Input::Watched(watched) => self.state.model.watched = watched,
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
