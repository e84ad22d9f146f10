//! The words of a control socket's command, taken one after the other.

use super::command::CommandError;

/// What is left of a command's words.
pub(super) struct Words<'a> {
    /// The command's first word, which every refusal begins with.
    pub(super) command: &'a str,
    /// The words that nobody took yet.
    pub(super) rest: &'a [&'a str],
}

impl<'a> Words<'a> {
    /// The next word, if there is one.
    pub(super) fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// The next word, which is missing as `what`.
    pub(super) fn word(&mut self, what: &'static str) -> Result<&'a str, CommandError> {
        self.next().ok_or_else(|| CommandError::missing(self.command, what))
    }

    /// Whether the next word is this one, which is then taken.
    pub(super) fn takes(&mut self, word: &str) -> bool {
        let is_next = self.rest.first() == Some(&word);
        self.rest = &self.rest[usize::from(is_next)..];
        is_next
    }

    /// The refusal of a word.
    pub(super) fn wrong(&self, word: &str, expected: &'static str) -> CommandError {
        CommandError::wrong(self.command, word, expected)
    }

    /// Refuses a word that is left.
    pub(super) fn end(&self) -> Result<(), CommandError> {
        self.rest.first().map_or(Ok(()), |word| Err(CommandError::extra(self.command, word)))
    }

    /// What the next word means; where it means nothing, it is not `expected`.
    pub(super) fn parsed<T>(
        &mut self,
        what: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, CommandError> {
        let word = self.word(what)?;
        parse(word).ok_or_else(|| self.wrong(word, expected))
    }

    /// A decimal number.
    pub(super) fn number(&mut self, what: &'static str) -> Result<u64, CommandError> {
        self.parsed(what, "a whole number below 2^64", |word| word.parse().ok())
    }

    /// One of some words, which `expected` lists as `this, that or other`, by its value.
    pub(super) fn choice<T: Clone>(&mut self, expected: &'static str, values: &[T]) -> Result<T, CommandError> {
        self.parsed(expected, expected, |word| {
            let index = expected.split(", ").flat_map(|words| words.split(" or ")).position(|known| known == word);
            values.get(index?).cloned()
        })
    }

    /// `on` or `off`.
    pub(super) fn switch(&mut self) -> Result<bool, CommandError> {
        self.choice("on or off", &[true, false])
    }
}

/// A number, decimal or as `0x1f`, and without the sign that `parse` would take.
pub(super) fn parse_number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(hex) if hex.starts_with(|c: char| c.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16).ok(),
        None if word.starts_with(|c: char| c.is_ascii_digit()) => word.parse().ok(),
        _ => None,
    }
}

/// A whole number with one of these units behind it, or none.
pub(super) fn parse_scaled(word: &str, units: &[(&str, u64)]) -> Option<u64> {
    let with_unit = |(unit, factor): &(&str, u64)| Some((word.strip_suffix(unit)?, *factor));
    let (digits, factor) = units.iter().find_map(with_unit).unwrap_or((word, 1));
    digits.parse::<u64>().ok()?.checked_mul(factor)
}
