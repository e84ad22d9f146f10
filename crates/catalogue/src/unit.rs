//! Units and what they are made of, so that formulas can be checked before any hardware is asked.

use std::fmt;

/// What a figure is a measure of: powers of bytes, seconds and clock cycles. A count of things has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dimension {
    /// Power of bytes.
    pub bytes: i8,
    /// Power of seconds.
    pub seconds: i8,
    /// Power of clock cycles.
    pub cycles: i8,
}

impl Dimension {
    /// Of the product of two figures.
    pub fn times(self, other: Self) -> Self {
        Dimension {
            bytes: self.bytes.saturating_add(other.bytes),
            seconds: self.seconds.saturating_add(other.seconds),
            cycles: self.cycles.saturating_add(other.cycles),
        }
    }

    /// Of one over the figure.
    pub fn inverse(self) -> Self {
        Dimension {
            bytes: self.bytes.saturating_neg(),
            seconds: self.seconds.saturating_neg(),
            cycles: self.cycles.saturating_neg(),
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [("bytes", self.bytes), ("s", self.seconds), ("cycles", self.cycles)];
        let part = |wanted: bool| {
            let powers = named.iter().filter(move |(_, power)| *power != 0 && (*power > 0) == wanted);
            let words = powers.map(|(name, power)| match power.unsigned_abs() {
                1 => (*name).to_owned(),
                more => format!("{name}^{more}"),
            });
            words.collect::<Vec<_>>()
        };
        let (above, below) = (part(true), part(false));
        f.write_str(&if above.is_empty() { "1".to_owned() } else { above.join("*") })?;
        below.iter().try_for_each(|word| write!(f, "/{word}"))
    }
}

/// A unit: a dimension, and how many of its base unit (byte, second, cycle, one) it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// As the file writes it: `bytes/s`, `%`, `ps/cycle`.
    pub text: String,
    /// What it measures.
    pub dimension: Dimension,
    /// How many base units it is: 0.01 for `%`, 1e-12 for `ps`.
    pub factor: f64,
}

impl Unit {
    /// Parses words joined by `*` and `/`: `bytes/s`, `1/cycle`, `%`. What follows a `/` divides. `None` for a word
    /// that is not one of `1 % bytes B kB MB GB KiB MiB GiB s ms us ns ps cycle cycles`, in one of the spellings that
    /// drivers use.
    pub fn parse(text: &str) -> Option<Self> {
        let mut unit = Unit { text: text.to_owned(), dimension: Dimension::default(), factor: 1.0 };
        for (at, part) in text.split('/').enumerate() {
            for word in part.split('*') {
                let (dimension, factor) = word_of(word.trim())?;
                let (dimension, factor) =
                    if at == 0 { (dimension, factor) } else { (dimension.inverse(), 1.0 / factor) };
                unit.dimension = unit.dimension.times(dimension);
                unit.factor *= factor;
            }
        }
        Some(unit)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn word_of(word: &str) -> Option<(Dimension, f64)> {
    let one = Dimension::default();
    let (bytes, seconds) = (Dimension { bytes: 1, ..one }, Dimension { seconds: 1, ..one });
    Some(match word {
        "1" => (one, 1.0),
        "%" => (one, 0.01),
        "bytes" | "Bytes" | "byte" | "B" => (bytes, 1.0),
        "kB" | "KB" => (bytes, 1e3),
        "MB" => (bytes, 1e6),
        "GB" => (bytes, 1e9),
        "KiB" => (bytes, 1024.0),
        "MiB" => (bytes, 1024.0 * 1024.0),
        "GiB" => (bytes, 1024.0 * 1024.0 * 1024.0),
        "s" | "sec" | "seconds" => (seconds, 1.0),
        "ms" => (seconds, 1e-3),
        "us" => (seconds, 1e-6),
        "ns" => (seconds, 1e-9),
        "ps" => (seconds, 1e-12),
        "cycle" | "cycles" => (Dimension { cycles: 1, ..one }, 1.0),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_several_words() {
        for (text, shown, factor) in [
            ("1", "1", 1.0),
            ("%", "1", 0.01),
            ("bytes/s", "bytes/s", 1.0),
            ("MiB", "bytes", 1_048_576.0),
            ("ps/cycle", "s/cycles", 1e-12),
            ("cycles/ns", "cycles/s", 1e9),
            ("bytes*cycles/s/s", "bytes*cycles/s^2", 1.0),
            ("1/s", "1/s", 1.0),
        ] {
            let unit = Unit::parse(text).unwrap();
            assert_eq!((unit.dimension.to_string().as_str(), unit.to_string().as_str()), (shown, text));
            assert!((unit.factor / factor - 1.0).abs() < 1e-12, "{text}: {}", unit.factor);
        }
        for text in ["", "bit", "bytes per s", "/s", "b"] {
            assert_eq!(Unit::parse(text), None, "{text:?}");
        }
    }
}
