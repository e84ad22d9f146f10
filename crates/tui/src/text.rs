//! Figures in few characters, and hostile strings made harmless.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Longer strings are cut first.
const LONGEST: usize = 200;

/// `text` with what could move the cursor, recolour the terminal, reorder or hide text replaced, and cut to 200 characters.
pub fn clean(text: &str) -> String {
    text.chars().take(LONGEST).map(|c| if is_harmful(c) { '\u{fffd}' } else { c }).collect()
}

fn is_harmful(c: char) -> bool {
    // Invisible and combining characters: terminals do not agree on their width.
    pciescope_core::text::is_harmful(c) || c.width().unwrap_or(0) == 0
}

/// Columns that `text` takes.
pub fn width(text: &str) -> u16 {
    u16::try_from(text.width()).unwrap_or(u16::MAX)
}

/// As much of `text` as fits into `columns`; what was cut ends with `~`.
pub fn fit(text: &str, columns: u16) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > usize::from(columns) {
            break;
        }
        used += wide;
        cut.push(c);
    }
    if columns > 0 {
        cut.push('~');
    }
    cut
}

/// A text in lines of at most `columns`, broken at blanks where there are some.
pub fn wrap(text: &str, columns: u16) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = vec![String::new()];
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let word = fit(word, columns);
        let line = lines.last_mut().expect("there is a line from the beginning");
        if line.is_empty() {
            *line = word;
        } else if width(line) + 1 + width(&word) <= columns {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(word);
        }
    }
    lines
}

/// A figure in at most 5 characters, three of them digits, with a decimal prefix: `999`, `1.23k`, `45.6M`, `789G`.
/// `?` for NaN and infinity.
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    if value < 0.0 {
        let text = short(-value);
        return if text == "0" { text } else { format!("-{text}") };
    }
    if value < 999.5 {
        return match value {
            // -0 too.
            0.0 => "0".to_owned(),
            v if v >= 99.95 || v.fract() == 0.0 => format!("{v:.0}"),
            v if v >= 9.995 => format!("{v:.1}"),
            v if v < 0.005 => "0.00".to_owned(),
            v => format!("{v:.2}"),
        };
    }
    let mut value = value;
    for prefix in ["k", "M", "G", "T", "P", "E"] {
        value /= 1e3;
        if value < 9.995 {
            return format!("{value:.2}{prefix}");
        } else if value < 99.95 {
            return format!("{value:.1}{prefix}");
        } else if value < 999.5 {
            return format!("{value:.0}{prefix}");
        }
    }
    "huge".to_owned()
}

/// A share in at most 4 characters: `24%`, `2.4%`, `>1k%`.
pub fn percent(value: f64) -> String {
    match value {
        v if !v.is_finite() => "?".to_owned(),
        v if v >= 999.5 => ">1k%".to_owned(),
        v if v <= -99.5 => "<0%".to_owned(),
        v if v >= 9.95 || v == 0.0 || v < 0.0 => format!("{v:.0}%"),
        v => format!("{v:.1}%"),
    }
}

/// Seconds as a clock: `00:01:23`, with tenths only where they are not 0 at the beginning of a run.
pub fn clock(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// An interval: `1 s`, `250 ms`.
pub fn period(ns: u64) -> String {
    match ns {
        n if n >= 1_000_000_000 && n % 1_000_000_000 == 0 => format!("{} s", n / 1_000_000_000),
        n if n >= 1_000_000_000 => format!("{:.1} s", n as f64 / 1e9),
        n => format!("{} ms", n / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_at_most_five_characters() {
        for (value, text) in [
            (0.0, "0"),
            (7.0, "7"),
            (0.25, "0.25"),
            (12.34, "12.3"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (45_600_000.0, "45.6M"),
            (3.5e9, "3.50G"),
            (99.96e9, "100G"),
            (-2e6, "-2.00M"),
            (f64::NAN, "?"),
            (f64::INFINITY, "?"),
            (f64::MAX, "huge"),
            (-0.0, "0"),
        ] {
            assert_eq!(short(value), text, "{value}");
        }
        assert_eq!(percent(2.44), "2.4%");
        assert_eq!(percent(24.4), "24%");
        assert_eq!(percent(f64::NAN), "?");
        assert_eq!(percent(1e30), ">1k%");
        assert_eq!(percent(-1e30), "<0%");
    }

    #[test]
    fn what_is_cut_says_so_and_wide_letters_are_not_halved() {
        assert_eq!(fit("abcdef", 6), "abcdef");
        assert_eq!(fit("abcdef", 4), "abc~");
        assert_eq!(fit("\u{6f22}\u{5b57}\u{6f22}", 4), "\u{6f22}~");
        assert_eq!(fit("abc", 0), "");
    }

    #[test]
    fn nothing_that_moves_a_cursor_or_hides_passes() {
        assert_eq!(clean("a\x1b[31m\u{202e}b\u{200b}c\u{301}\n"), "a\u{fffd}[31m\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}");
        assert_eq!(clean(&"x".repeat(1000)).len(), LONGEST);
    }

    #[test]
    fn texts_are_broken_at_blanks() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh", 4), ["abc~"]);
    }
}
