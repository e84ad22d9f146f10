//! Colours of text for a terminal. The code that writes the text decides whether to keep them: it removes them if the
//! stream is not a terminal, or if NO_COLOR is set.

use anstyle::{AnsiColor, Effects, Style};

/// What a piece of text is to a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Neither good nor bad.
    Plain,
    /// A heading.
    Strong,
    /// As it should be.
    Good,
    /// Doubtful.
    Doubt,
    /// Wrong, lost or failed.
    Bad,
    /// Beside the point.
    Dim,
}

/// A text in its tone.
pub(crate) fn paint(tone: Tone, text: &str) -> String {
    let style = match tone {
        Tone::Plain => Style::new(),
        Tone::Strong => Style::new().effects(Effects::BOLD),
        Tone::Good => AnsiColor::Green.on_default(),
        Tone::Doubt => AnsiColor::Yellow.on_default(),
        Tone::Bad => AnsiColor::Red.on_default().effects(Effects::BOLD),
        Tone::Dim => Style::new().effects(Effects::DIMMED),
    };
    format!("{style}{text}{style:#}")
}

/// A text without its tones.
pub(crate) fn without_colours(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}
