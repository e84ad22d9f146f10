//! What the user looks at, and how keys change it.

use pciescope_core::{Bdf, Record};
use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use crate::model::Model;
use crate::theme::Theme;
use crate::tree::{self, Row};

/// The longest filter.
const FILTER: usize = 80;

/// Where the records come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// This machine, read every so many nanoseconds.
    Live {
        /// The time between two readings.
        interval_ns: u64,
    },
    /// A file of records.
    Replay {
        /// Its name.
        name: String,
        /// How many times faster than it was recorded.
        speed: f64,
        /// Whether all of it was shown.
        has_ended: bool,
    },
}

/// One screen of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// The tree of PCIe with the channels below it.
    Overview,
    /// Link states and errors by port.
    Links,
    /// DRAM channels by die.
    Dram,
    /// Counters without a table of their own.
    Counters,
    /// Everything that is doubtful.
    Warnings,
}

impl View {
    /// All in the order of Tab, each with its key and title.
    pub const ALL: [(View, char, &'static str); 5] = [
        (View::Overview, '1', "Overview"),
        (View::Links, '2', "Links"),
        (View::Dram, '3', "DRAM"),
        (View::Counters, '4', "Counters"),
        (View::Warnings, '5', "Warnings"),
    ];
}

pciescope_core::named! {
    /// What ports are sorted by, in the order of the key.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Sort {
        /// The traffic in the mean over all intervals that are kept: rows seldom change their places.
        Busiest => "busiest",
        /// The address.
        Address => "address",
        /// What arrives.
        Rx => "rx",
        /// What leaves.
        Tx => "tx",
        /// Both together.
        Total => "rx+tx",
        /// The fuller direction's share of the link.
        Share => "% of link",
        /// Errors since the beginning.
        Errors => "errors",
    }
    /// Its name, as the foot line shows it.
    fn name
}

impl Sort {
    fn moved(self, by: usize) -> Sort {
        Sort::ALL[(self as usize + by) % Sort::ALL.len()]
    }
}

/// What a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowId {
    /// A function.
    Function(Bdf),
    /// The place of a source without an address.
    Source(usize),
}

/// What the caller has to do after a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action {
    /// Nothing: not even to draw.
    Nothing,
    /// Draw.
    Draw,
    /// Draw everything again: another program may have written to the terminal.
    Redraw,
    /// End.
    Quit,
    /// End as Ctrl-C ends a program.
    Interrupt,
    /// Give the terminal back and stop, as Ctrl-Z does.
    Suspend,
    /// Stop or continue a replay. Counters are still read.
    Pause(bool),
    /// Take the next interval of a replay.
    Step,
    /// Replay at this multiple of the recorded speed.
    Speed(f64),
    /// Read the machine's functions again.
    Refresh,
}

/// Everything that a screen is made of.
#[derive(Debug, Clone)]
pub struct State {
    /// What the records say.
    pub model: Model,
    /// What the terminal can show.
    pub theme: Theme,
    /// Where the records come from.
    pub origin: Origin,
    /// Intervals that were left out because the terminal was too slow.
    pub skipped: u64,
    /// For how many seconds no interval has come, where one was due.
    pub stale_s: Option<u64>,
    /// What the user should know now.
    pub notice: Option<String>,
    /// The screen.
    pub view: View,
    /// The port that fills the screen.
    pub zoom: Option<RowId>,
    /// Whether help is shown.
    pub is_help: bool,
    /// What names must contain.
    pub filter: String,
    /// Whether keys go to the filter.
    pub is_typing: bool,
    /// The order of the ports.
    pub sort: Sort,
    /// Whether the order is turned around.
    pub is_reversed: bool,
    /// Whether devices below ports are shown.
    pub shows_devices: bool,
    /// Whether functions without counters are shown.
    pub shows_all: bool,
    /// The interval that is shown while the screen is paused.
    pub paused: Option<u64>,
    /// The chosen row.
    pub selected: Option<RowId>,
    /// Lines scrolled past in views whose rows cannot be selected.
    pub scroll: u16,
    is_stepping: bool,
}

impl State {
    /// The first screen.
    pub fn new(theme: Theme, origin: Origin) -> Self {
        State {
            model: Model::default(),
            theme,
            origin,
            skipped: 0,
            stale_s: None,
            notice: None,
            view: View::Overview,
            zoom: None,
            is_help: false,
            filter: String::new(),
            is_typing: false,
            sort: Sort::Busiest,
            is_reversed: false,
            shows_devices: true,
            shows_all: false,
            paused: None,
            selected: None,
            scroll: 0,
            is_stepping: false,
        }
    }

    /// Takes the records of an interval.
    pub fn take(&mut self, records: &[Record]) {
        for record in records {
            self.model.take(record);
        }
        let oldest = self.model.live.spans().front().map(|span| span.number);
        if let (Some(at), Some(last), Some(oldest)) = (self.paused, self.model.live.last(), oldest) {
            // What the user looks at may have become too old to be kept.
            self.paused = Some(if self.is_stepping { last } else { at.max(oldest) });
            self.is_stepping = false;
        }
    }

    /// The number of the interval that is shown; without one nothing was counted yet.
    pub fn shown(&self) -> Option<u64> {
        self.paused.filter(|number| self.model.live.span(*number).is_some()).or(self.model.live.last())
    }

    /// Whether the screen stands still.
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// The rows of the tree, and the place of the chosen one.
    pub(crate) fn rows(&self) -> (Vec<Row>, usize) {
        let rows = tree::rows(self, self.shown().unwrap_or(0));
        let place = self.selected.and_then(|id| rows.iter().position(|row| row.id == id)).unwrap_or(0);
        (rows, place)
    }

    fn has_rows(&self) -> bool {
        matches!(self.view, View::Overview | View::Links) && self.zoom.is_none() && !self.is_help
    }

    fn go(&mut self, by: isize) {
        if !self.has_rows() {
            self.scroll = self.scroll.saturating_add_signed(by.clamp(-10_000, 10_000) as i16).min(10_000);
            return;
        }
        let (rows, place) = self.rows();
        let place = place.saturating_add_signed(by).min(rows.len().saturating_sub(1));
        self.selected = rows.get(place).map(|row| row.id);
    }

    /// Changes the state as the mouse asks: a click chooses a row, a click on the chosen row zooms on it, the wheel scrolls.
    /// `size` is that of the terminal.
    pub fn mouse(&mut self, mouse: MouseEvent, size: (u16, u16)) -> Action {
        match mouse.kind {
            MouseEventKind::ScrollUp => self.moved(-1),
            MouseEventKind::ScrollDown => self.moved(1),
            MouseEventKind::Down(MouseButton::Left) => {
                let Some(id) = crate::draw::row_at(self, size, mouse.row) else { return Action::Nothing };
                if self.selected == Some(id) {
                    return self.enter();
                }
                self.selected = Some(id);
                Action::Draw
            }
            MouseEventKind::Down(MouseButton::Right) => self.back(),
            _ => Action::Nothing,
        }
    }

    /// Changes the state as a key asks.
    pub fn key(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Nothing;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Action::Interrupt,
                KeyCode::Char('z') => Action::Suspend,
                KeyCode::Char('l') => Action::Redraw,
                _ => Action::Nothing,
            };
        }
        self.notice = None;
        if self.is_typing {
            return self.typed(key.code);
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::F(10) => Action::Quit,
            KeyCode::Esc => self.back(),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => {
                self.is_help = !self.is_help;
                self.scroll = 0;
                Action::Draw
            }
            KeyCode::Up | KeyCode::Char('k') => self.moved(-1),
            KeyCode::Down | KeyCode::Char('j') => self.moved(1),
            KeyCode::PageUp => self.moved(-10),
            KeyCode::PageDown => self.moved(10),
            KeyCode::Home | KeyCode::Char('g') => self.moved(-10_000),
            KeyCode::End | KeyCode::Char('G') => self.moved(10_000),
            KeyCode::Char('p' | ' ') => self.pause(),
            KeyCode::Right | KeyCode::Char('.') => self.later(),
            KeyCode::Left | KeyCode::Char(',') => self.earlier(),
            KeyCode::Char('+' | '=') => self.speed(2.0),
            KeyCode::Char('-') => self.speed(0.5),
            KeyCode::F(5) => Action::Refresh,
            _ if self.is_help => {
                self.is_help = false;
                Action::Draw
            }
            KeyCode::Enter => self.enter(),
            KeyCode::Char('/') | KeyCode::F(4) => {
                self.is_typing = true;
                Action::Draw
            }
            KeyCode::Char('s' | '>') | KeyCode::F(6) => self.sorted(1),
            KeyCode::Char('<') => self.sorted(Sort::ALL.len() - 1),
            KeyCode::Char('r') => self.turned(|state| state.is_reversed = !state.is_reversed),
            KeyCode::Char('t') => self.turned(|state| state.shows_devices = !state.shows_devices),
            KeyCode::Char('a') => self.turned(|state| state.shows_all = !state.shows_all),
            KeyCode::Tab => self.next_view(1),
            KeyCode::BackTab => self.next_view(View::ALL.len() - 1),
            KeyCode::Char(c) => match View::ALL.iter().find(|(_, key, _)| *key == c) {
                Some((view, ..)) => self.show(*view),
                None => Action::Nothing,
            },
            _ => Action::Nothing,
        }
    }

    fn typed(&mut self, code: KeyCode) -> Action {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filter.chars().count() < FILTER && !c.is_control() => self.filter.push(c),
            KeyCode::Up => return self.moved(-1),
            KeyCode::Down => return self.moved(1),
            _ => return Action::Nothing,
        }
        Action::Draw
    }

    fn turned(&mut self, turn: impl Fn(&mut State)) -> Action {
        turn(self);
        Action::Draw
    }

    fn moved(&mut self, by: isize) -> Action {
        self.go(by);
        Action::Draw
    }

    fn sorted(&mut self, by: usize) -> Action {
        self.sort = self.sort.moved(by);
        Action::Draw
    }

    fn show(&mut self, view: View) -> Action {
        (self.view, self.zoom, self.scroll) = (view, None, 0);
        Action::Draw
    }

    fn next_view(&mut self, by: usize) -> Action {
        let place = View::ALL.iter().position(|(view, ..)| *view == self.view).unwrap_or(0);
        self.show(View::ALL[(place + by) % View::ALL.len()].0)
    }

    /// Goes back one step: from help, a zoomed port or a filter, else to the overview.
    fn back(&mut self) -> Action {
        if self.is_help {
            self.is_help = false;
        } else if self.zoom.is_some() {
            self.zoom = None;
        } else if !self.filter.is_empty() {
            self.filter.clear();
        } else {
            self.view = View::Overview;
        }
        self.scroll = 0;
        Action::Draw
    }

    fn enter(&mut self) -> Action {
        if self.zoom.take().is_none() && self.has_rows() {
            let (rows, place) = self.rows();
            self.zoom = rows.get(place).map(|row| row.id);
            self.selected = self.zoom;
        }
        self.scroll = 0;
        Action::Draw
    }

    fn pause(&mut self) -> Action {
        self.paused = match self.paused {
            Some(_) => None,
            None => Some(self.model.live.last().unwrap_or(0)),
        };
        Action::Pause(self.paused.is_some())
    }

    fn later(&mut self) -> Action {
        let (Some(at), last) = (self.paused, self.model.live.last()) else { return self.pause() };
        if last.is_some_and(|last| at < last) {
            self.paused = Some(at + 1);
            return Action::Draw;
        }
        if matches!(self.origin, Origin::Replay { has_ended: false, .. }) {
            self.is_stepping = true;
            return Action::Step;
        }
        Action::Nothing
    }

    fn earlier(&mut self) -> Action {
        let Some(at) = self.paused else {
            let action = self.pause();
            self.paused = self.paused.map(|at| self.before(at));
            return action;
        };
        self.paused = Some(self.before(at));
        Action::Draw
    }

    fn before(&self, at: u64) -> u64 {
        let oldest = self.model.live.spans().front().map_or(0, |span| span.number);
        at.saturating_sub(1).max(oldest)
    }

    fn speed(&mut self, by: f64) -> Action {
        match &mut self.origin {
            Origin::Replay { speed, .. } => {
                *speed = (*speed * by).clamp(1.0 / 64.0, 1024.0);
                Action::Speed(*speed)
            }
            Origin::Live { .. } => Action::Nothing,
        }
    }
}
