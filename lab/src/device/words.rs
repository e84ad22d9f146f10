//! The words of a command of the control socket, taken one by one: what the devices' parsers share.

use super::command::CommandError;

/// What a time may end in, in nanoseconds.
pub(super) const TIMES: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// The words that follow a command's name.
pub(super) struct Words<'a> {
    command: &'a str,
    rest: std::vec::IntoIter<&'a str>,
}

impl<'a> Words<'a> {
    /// The words of a line after its first, which is the command's name; `None` for a line without words.
    pub fn of(line: &'a str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let command = words.next()?;
        Some(Words::after(command, words))
    }

    /// These words, of a command of this name.
    pub fn after(command: &'a str, words: impl IntoIterator<Item = &'a str>) -> Self {
        Words { command, rest: words.into_iter().collect::<Vec<_>>().into_iter() }
    }

    /// The command's name.
    pub fn command(&self) -> &'a str {
        self.command
    }

    /// The words that are left.
    pub fn rest(&self) -> &[&'a str] {
        self.rest.as_slice()
    }

    /// The next word; `what` says what it should be.
    pub fn word(&mut self, what: &'static str) -> Result<&'a str, CommandError> {
        self.rest.next().ok_or_else(|| CommandError::Missing { command: self.command.to_owned(), what })
    }

    /// The next word, where there is one.
    pub fn optional(&mut self) -> Option<&'a str> {
        self.rest.next()
    }

    /// Takes the next word if it is this one; returns true if it was.
    pub fn takes(&mut self, word: &str) -> bool {
        let is_next = self.rest().first() == Some(&word);
        if is_next {
            self.rest.next();
        }
        is_next
    }

    /// Refuses a word too many.
    pub fn end(&mut self) -> Result<(), CommandError> {
        match self.rest.next() {
            None => Ok(()),
            Some(word) => Err(CommandError::Extra { command: self.command.to_owned(), word: word.to_owned() }),
        }
    }

    /// The refusal of a word that is not what is expected.
    pub fn wrong(&self, word: &str, expected: &'static str) -> CommandError {
        CommandError::Word { command: self.command.to_owned(), word: word.to_owned(), expected }
    }

    /// A whole number.
    pub fn number(&mut self, what: &'static str) -> Result<u64, CommandError> {
        let word = self.word(what)?;
        number(word).ok_or_else(|| self.wrong(word, "a whole number below 2^64"))
    }

    /// A whole number in a range, which `expected` describes.
    pub fn in_range(&mut self, min: u64, max: u64, expected: &'static str) -> Result<u64, CommandError> {
        let word = self.word(expected)?;
        number(word).filter(|value| (min..=max).contains(value)).ok_or_else(|| self.wrong(word, expected))
    }

    /// One of several words, written `this, that or other` in `expected`; each stands for a value.
    pub fn choice<T: Copy>(&mut self, expected: &'static str, values: &[T]) -> Result<T, CommandError> {
        let word = self.word(expected)?;
        let mut known = expected.split(", ").flat_map(|part| part.split(" or "));
        let index = known.position(|known| known == word);
        index.and_then(|index| values.get(index).copied()).ok_or_else(|| self.wrong(word, expected))
    }

    /// `on` or `off`.
    pub fn switch(&mut self) -> Result<bool, CommandError> {
        self.choice("on or off", &[true, false])
    }
}

/// A whole number below 2^64, decimal or after `0x` hexadecimal, without a sign.
pub(super) fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        // `from_str_radix` and `parse` alone would take a sign.
        Some(hex) if hex.starts_with(|c: char| c.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16).ok(),
        None if word.starts_with(|c: char| c.is_ascii_digit()) => word.parse().ok(),
        _ => None,
    }
}

/// A whole number with one of these units or without, in the unit of factor 1. Of two units that fit, the first counts.
pub(super) fn scaled(word: &str, units: &[(&str, u64)]) -> Option<u64> {
    let with_unit = units.iter().find_map(|(unit, factor)| Some((word.strip_suffix(unit)?, *factor)));
    let (digits, factor) = with_unit.unwrap_or((word, 1));
    digits.parse::<u64>().ok()?.checked_mul(factor)
}
