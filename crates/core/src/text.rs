//! Figures and names as every output writes them, and hostile strings made harmless.

use std::error::Error;

/// `text` with every control character replaced, so that a name cannot move the cursor of a terminal, recolour
/// it or forge a line.
pub fn clean(text: &str) -> String {
    only(text, char::REPLACEMENT_CHARACTER, |c| !is_harmful(c))
}

/// `text` as printable ASCII, `?` in place of every other character.
pub fn ascii(text: &str) -> String {
    only(text, '?', |c| matches!(c, ' '..='~'))
}

/// A name of a device, driver or program reduced to `A-Z a-z 0-9 . _ / : -`, `_` in place of every other character, so that
/// it is one word for every program.
pub fn word(text: &str) -> String {
    only(text, '_', |c| c.is_ascii_alphanumeric() || "._/:-".contains(c))
}

fn only(text: &str, instead: char, is_fit: impl Fn(char) -> bool) -> String {
    text.chars().map(|c| if is_fit(c) { c } else { instead }).collect()
}

/// Whether a character controls the terminal, ends a line, or reorders the text around it, so that a line reads as another.
pub fn is_harmful(c: char) -> bool {
    let reorders =
        matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{061c}');
    c.is_control() || reorders || matches!(c, '\u{2028}' | '\u{2029}')
}

/// An error and its causes: `cannot read x: permission denied`.
pub fn chain(err: &dyn Error) -> String {
    let mut text = err.to_string();
    let mut cause = err.source();
    while let Some(err) = cause {
        text.push_str(": ");
        text.push_str(&err.to_string());
        cause = err.source();
    }
    text
}

/// A text of at most `width` characters, `~` in place of what is cut off.
pub fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width - 1).chain(['~']).collect(),
    }
}

/// The first of several names, and how many more there are: `eth0 +1`; `None` where there is none.
pub fn first_of(names: &[String]) -> Option<String> {
    let more = if names.len() > 1 { format!(" +{}", names.len() - 1) } else { String::new() };
    names.first().map(|first| format!("{}{more}", clean(first)))
}

/// A duration with the unit that keeps it readable: `812 ns`, `2.36 us`, `1.20 ms`; `?` for NaN and infinity.
pub fn duration(ns: f64) -> String {
    match ns.abs() {
        n if !n.is_finite() => "?".to_owned(),
        n if n < 10.0 => format!("{ns:.2} ns"),
        n if n < 999.5 => format!("{ns:.0} ns"),
        n if n < 999.995e3 => format!("{:.2} us", ns / 1e3),
        n if n < 999.995e6 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// A long time in its two largest units: `12.3 s`, `2 min 3 s`, `3 h 20 min`, `5 d 2 h`.
pub fn span(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        0..60 => format!("{:.1} s", ns as f64 / 1e9),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// A rate in bytes per second, with the unit that keeps it readable: `812.4 MB/s`, `3.21 GB/s`.
pub fn rate(bytes_per_s: f64) -> String {
    match bytes_per_s {
        rate if rate >= 999.95e6 => format!("{:.2} GB/s", rate / 1e9),
        rate => format!("{:.1} MB/s", rate / 1e6),
    }
}

/// A number with its thousands apart: `1,234,567`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(clean("a\x1b[31m\nb\u{202e}c"), "a\u{fffd}[31m\u{fffd}b\u{fffd}c");
        assert_eq!(ascii("a\x1b[31m\nb\u{202e}\u{e4}\x7f~"), "a?[31m?b???~");
        assert_eq!(word("nvme0n1 $(rm -rf /)\n`x`;\u{e4}"), "nvme0n1___rm_-rf_/___x___");
    }

    #[test]
    fn figures_are_readable() {
        for (ns, text) in [(1.5, "1.50 ns"), (999.6, "1.00 us"), (2_358.0, "2.36 us"), (2e9, "2.00 s"), (f64::NAN, "?")]
        {
            assert_eq!(duration(ns), text);
        }
        for (bytes_per_s, text) in [(0.0, "0.0 MB/s"), (812.44e6, "812.4 MB/s"), (999.96e6, "1.00 GB/s")] {
            assert_eq!(rate(bytes_per_s), text);
        }
        for (seconds, text) in [(12, "12.0 s"), (123, "2 min 3 s"), (12_000, "3 h 20 min"), (439_200, "5 d 2 h")] {
            assert_eq!(span(seconds * 1_000_000_000), text);
        }
        for (n, text) in [(1_234_567, "1,234,567"), (999, "999")] {
            assert_eq!(thousands(n), text);
        }
    }

    #[test]
    fn an_error_is_told_with_all_its_causes() {
        let cause = std::io::Error::other(std::io::Error::other("inner"));
        assert_eq!(chain(&cause), "inner");
        assert_eq!(cut("abcdef", 4), "abc~");
    }
}
