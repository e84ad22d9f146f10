//! The terminal: switches to the full screen, and restores it however the program ends.

use std::io::{self, BufWriter, Stdout, Write, stdout};
use std::panic;
use std::sync::{Arc, Mutex};

use pciescope_tui::ratatui::backend::CrosstermBackend;
use pciescope_tui::ratatui::crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use pciescope_tui::ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use pciescope_tui::ratatui::crossterm::{cursor, execute, terminal};
use pciescope_tui::ratatui::layout::Rect;
use pciescope_tui::ratatui::{Terminal, TerminalOptions, Viewport};
use pciescope_tui::{State, draw};

/// What is drawn on a terminal that does not know its size: a serial console has none until `stty cols 100 rows 40` gives it one.
const USUAL: Rect = Rect::new(0, 0, 80, 24);

/// The terminal's columns and lines; `None` where it does not know.
pub fn size() -> Option<(u16, u16)> {
    terminal::size().ok().filter(|(columns, lines)| *columns > 0 && *lines > 0)
}

/// What is drawn on: the terminal's columns and lines, or the usual ones.
pub fn size_or_usual() -> (u16, u16) {
    size().unwrap_or((USUAL.width, USUAL.height))
}

/// The terminal while it is ours. Dropping it gives it back, also while a panic unwinds.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    is_ours: bool,
    last_words: LastWords,
}

impl Screen {
    /// Takes the terminal: other screen, no cursor, keys one by one and not shown.
    ///
    /// # Errors
    /// When the terminal refuses; it is as it was then.
    pub fn open() -> io::Result<Screen> {
        let backend = CrosstermBackend::new(BufWriter::with_capacity(1 << 16, stdout()));
        let terminal = match size() {
            Some(_) => Terminal::new(backend)?,
            None => Terminal::with_options(backend, TerminalOptions { viewport: Viewport::Fixed(USUAL) })?,
        };
        let mut screen = Screen { terminal, is_ours: false, last_words: LastWords::keep() };
        screen.enter()?;
        Ok(screen)
    }

    /// Takes the terminal, again after [`Screen::leave`].
    ///
    /// # Errors
    /// When the terminal refuses.
    pub fn enter(&mut self) -> io::Result<()> {
        // Before the first change: what fails half-way is put back by drop.
        self.is_ours = true;
        enable_raw_mode()?;
        execute!(self.terminal.backend_mut(), EnterAlternateScreen, EnableMouseCapture, cursor::Hide)?;
        self.terminal.clear()
    }

    /// Gives the terminal back as it was. Errors are ignored: there is nothing left to try.
    pub fn leave(&mut self) {
        if std::mem::take(&mut self.is_ours) {
            let _ = execute!(self.terminal.backend_mut(), DisableMouseCapture, LeaveAlternateScreen, cursor::Show);
            let _ = disable_raw_mode();
        }
    }

    /// Draws what changed.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self, state: &State) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame, state))?;
        self.terminal.backend_mut().flush()
    }

    /// Forgets the contents of the terminal, so that the next drawing draws everything. It also sets up the terminal
    /// again, because its settings may have changed.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn renew(&mut self) -> io::Result<()> {
        self.leave();
        self.enter()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
        self.last_words.say();
    }
}

/// Keeps the message of a panic until the terminal is given back: on the alternate screen it would be lost, and on ours
/// it would destroy the picture.
struct LastWords {
    kept: Arc<Mutex<Vec<String>>>,
}

impl LastWords {
    fn keep() -> LastWords {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let ours = Arc::clone(&kept);
        panic::set_hook(Box::new(move |info| {
            if let Ok(mut kept) = ours.lock() {
                kept.push(info.to_string());
            }
        }));
        LastWords { kept }
    }

    fn say(&self) {
        // The default hook is back before anything is said. While a panic unwinds hooks cannot be changed, and need not be.
        if !std::thread::panicking() {
            drop(panic::take_hook());
        }
        for text in self.kept.lock().map(|mut kept| std::mem::take(&mut *kept)).unwrap_or_default() {
            crate::cmd::say(&format!("pciescope: {text}\n"));
        }
    }
}
