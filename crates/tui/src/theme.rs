//! What a terminal can show: letters beyond ASCII, and colours.

use ratatui::style::{Color, Modifier, Style};

/// What may be used in drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    /// Blocks, lines and letters beyond ASCII.
    pub has_unicode: bool,
    /// Colours; without them there is bold, dim and reversed text only.
    pub has_colour: bool,
}

impl Theme {
    /// What the environment says: a UTF-8 locale (LC_ALL, LC_CTYPE, LANG, the first that is set), NO_COLOR (as
    /// no-color.org has it: set and not empty) and TERM. The kernel's own console has no partial blocks.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Theme {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let term = set("TERM").unwrap_or_default();
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| set(name)).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        Theme {
            has_unicode: (locale.contains("utf-8") || locale.contains("utf8")) && term != "linux",
            has_colour: set("NO_COLOR").is_none() && !term.ends_with("-m") && !term.starts_with("vt1"),
        }
    }

    fn colour(self, colour: Color) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// Headings.
    pub fn title(self) -> Style {
        self.colour(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// The line of column names.
    pub fn columns(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
    }

    /// Less important text.
    pub fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Errors.
    pub fn bad(self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Warnings.
    pub fn doubtful(self) -> Style {
        self.colour(Color::Yellow)
    }

    /// The selected row: a mark stands before it, and its colours stay.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The mark before that row.
    pub fn marker(self) -> (&'static str, Style) {
        (if self.has_unicode { "\u{25b6}" } else { ">" }, self.title())
    }

    /// Where the next letter goes.
    pub fn cursor(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A bar: green, from 60 % yellow, from 90 % red.
    pub fn bar(self, percent: f64) -> Style {
        self.colour(match percent {
            p if p >= 90.0 => Color::Red,
            p if p >= 60.0 => Color::Yellow,
            _ => Color::Green,
        })
    }

    /// History. Plain blue is next to invisible on most dark terminals.
    pub fn history(self) -> Style {
        self.colour(Color::Cyan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn theme(variables: &[(&str, &str)]) -> (bool, bool) {
        let of = |name: &str| variables.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned());
        let theme = Theme::of_environment(of);
        (theme.has_unicode, theme.has_colour)
    }

    #[test]
    fn locale_and_terminal_decide() {
        assert_eq!(theme(&[("LANG", "en_GB.UTF-8"), ("TERM", "xterm-256color")]), (true, true));
        assert_eq!(theme(&[("LANG", "C.utf8"), ("NO_COLOR", "1")]), (true, false));
        assert_eq!(theme(&[("LANG", "en_GB.UTF-8"), ("NO_COLOR", "")]), (true, true));
        assert_eq!(theme(&[("LANG", "en_GB.UTF-8"), ("LC_ALL", "C")]), (false, true));
        assert_eq!(theme(&[]), (false, true));
        assert_eq!(theme(&[("LANG", "en_GB.UTF-8"), ("TERM", "linux")]), (false, true));
        assert_eq!(theme(&[("TERM", "vt100")]), (false, false));
    }
}
