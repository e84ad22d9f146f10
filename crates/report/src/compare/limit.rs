//! `--fail-if`: thresholds on the figures of a comparison, their grammar, and whether figures exceed them.

use std::fmt;
use std::str::FromStr;

use pciescope_core::loss::{self, Loss};

use super::interval::Estimate;
use super::key::CellKey;

/// The statistics of a histogram that a limit can name.
pub const STATISTICS: [&str; 8] = ["mean", "median", "p50", "p90", "p95", "p99", "p99.9", "p99.99"];

/// Why a limit could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a limit: {why}")]
pub struct BadLimit {
    /// What was given.
    pub text: String,
    /// What is wrong with it, and what would be right.
    pub why: String,
}

/// One limit: `[FIGURE.]NAME OP VALUE`, such as `p99 > +10%`, `median > 1500ns`, `loss > 0`, `speed < -5%`.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// As it was given.
    pub text: String,
    /// The histogram, where one is named (`trigger_to_handler.p99`).
    pub figure: Option<String>,
    /// The statistic or metric.
    pub name: String,
    /// Whether figures below the value exceed the limit, and not figures above it.
    pub is_below: bool,
    /// Whether the value itself exceeds the limit.
    pub is_inclusive: bool,
    /// The value.
    pub value: Bound,
    /// The unit of the figures that it can be compared with; `None` for any.
    pub unit: Option<&'static str>,
}

/// The kind of value that a figure is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// B over A less 1.
    Change(f64),
    /// B less A.
    Difference(f64),
    /// B.
    Absolute(f64),
}

/// Units by name: their factor, and the unit of the figures that they can be compared with, where it matters.
const UNITS: [(&str, f64, Option<&str>); 12] = [
    ("ps", 1e-3, Some("ns")),
    ("ns", 1.0, Some("ns")),
    ("us", 1e3, Some("ns")),
    ("ms", 1e6, Some("ns")),
    ("s", 1e9, Some("ns")),
    ("B/s", 1.0, Some("bytes/s")),
    ("kB/s", 1e3, Some("bytes/s")),
    ("MB/s", 1e6, Some("bytes/s")),
    ("GB/s", 1e9, Some("bytes/s")),
    ("GiB/s", 1_073_741_824.0, Some("bytes/s")),
    ("%", 1.0, Some("%")),
    ("", 1.0, None),
];

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Limit {
    type Err = BadLimit;

    fn from_str(text: &str) -> Result<Self, BadLimit> {
        let bad = |why: &str| BadLimit { text: text.to_owned(), why: why.to_owned() };
        let at =
            text.find(['<', '>']).ok_or_else(|| bad("write NAME > VALUE or NAME < VALUE, such as 'p99 > +10%'"))?;
        let (name, rest) = text.split_at(at);
        let is_inclusive = rest[1..].starts_with('=');
        let number = rest[1 + usize::from(is_inclusive)..].trim();
        let name = name.trim();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(bad("one name stands before the sign, such as p99, median, loss or speed"));
        }
        let (figure, name) = split_figure(name);
        let is_change = number.starts_with(['+', '-']);
        let end = number.find(|c: char| !(c.is_ascii_digit() || "+-.eE_".contains(c))).unwrap_or(number.len());
        // `1e9` is a number and `1GB/s` is not one with an exponent: what the number does not take is the unit.
        let (digits, unit) = number.split_at(end);
        let digits = digits.replace('_', "");
        let value: f64 =
            digits.parse().map_err(|_| bad("a number stands after the sign, such as +10%, 1500ns or 0"))?;
        let known = UNITS.iter().find(|known| known.0 == unit.trim());
        let &(_, factor, unit) = known.ok_or_else(|| {
            let names = UNITS.map(|known| known.0);
            bad(&format!("the unit is one of {}", names[..names.len() - 1].join(", ")))
        })?;
        if !value.is_finite() {
            return Err(bad("the number is too large"));
        }
        let value = match (is_change, unit) {
            (true, Some("%")) => Bound::Change(value / 100.0),
            (true, _) => Bound::Difference(value * factor),
            (false, _) => Bound::Absolute(value * factor),
        };
        let is_statistic = STATISTICS.contains(&name.as_str()) || parse_percentile(&name).is_some();
        match value {
            Bound::Absolute(_) if is_statistic && unit == Some("%") => {
                return Err(bad("a change has its sign: write +10% for ten percent more than A, -10% for less"));
            }
            Bound::Absolute(_) | Bound::Difference(_) if is_statistic && unit != Some("ns") => {
                return Err(bad("a time has its unit: ps, ns, us, ms or s"));
            }
            Bound::Absolute(value) if is_statistic && value <= 0.0 => {
                return Err(bad("a time to hold a latency against is above 0"));
            }
            _ => {}
        }
        Ok(Limit {
            text: text.trim().to_owned(),
            figure,
            name,
            is_below: rest.starts_with('<'),
            is_inclusive,
            value,
            unit,
        })
    }
}

/// `trigger_to_handler.p99` is a histogram and a statistic, `p99.9` a statistic.
fn split_figure(name: &str) -> (Option<String>, String) {
    match name.split_once('.') {
        Some((figure, name)) if !figure.is_empty() && !name.is_empty() && parse_percentile(figure).is_none() => {
            (Some(figure.to_owned()), canonical(name))
        }
        _ => (None, canonical(name)),
    }
}

/// One name for what has several.
fn canonical(name: &str) -> String {
    let name = match name {
        "p999" => "p99.9",
        "p9999" => "p99.99",
        "losses" => "loss",
        other => other,
    };
    match parse_percentile(name).and(name.strip_prefix('p')).and_then(|percent| percent.parse::<f64>().ok()) {
        Some(50.0) => "median".to_owned(),
        // `p99.0` is p99.
        Some(percent) => format!("p{percent}"),
        None => name.to_owned(),
    }
}

/// The share that a percentile's name stands for: 0.99 of `p99`.
pub fn parse_percentile(name: &str) -> Option<f64> {
    if name == "median" {
        return Some(0.5);
    }
    let percent: f64 =
        name.strip_prefix('p').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))?.parse().ok()?;
    (percent > 0.0 && percent < 100.0).then(|| percent / 100.0)
}

impl Limit {
    /// Whether it is on B itself and not on the change from A.
    pub fn is_absolute(&self) -> bool {
        matches!(self.value, Bound::Absolute(_))
    }

    /// Whether it applies to this statistic of this cell. `statistic` is `value` for a metric.
    pub fn is_of(&self, key: &CellKey, statistic: &str) -> bool {
        if let Some(figure) = &self.figure {
            if **figure != *key.figure {
                return false;
            }
        }
        if key.is_histogram {
            return canonical(statistic) == self.name
                || (self.figure.is_none() && *self.name == *key.figure && statistic == "mean");
        }
        *self.name == *key.figure || (self.name == "loss" && loss::find(&key.figure).is_some_and(Loss::is_failure))
    }

    /// Whether it applies to any statistic of this cell.
    pub fn is_about(&self, key: &CellKey) -> bool {
        self.is_of(key, if self.is_statistic() { &self.name } else { "mean" })
    }

    fn is_statistic(&self) -> bool {
        parse_percentile(&self.name).is_some() || STATISTICS.contains(&self.name.as_str())
    }

    /// Whether records that have these names ([`super::names`]) have the figure that it limits.
    pub fn is_known(&self, names: &[String]) -> bool {
        let has = |name: &str| names.iter().any(|known| known == name);
        let is_statistic = self.is_statistic();
        match &self.figure {
            Some(figure) => is_statistic && has(&format!("{figure}.p99")),
            None if is_statistic => has("median"),
            None => has(&self.name) || has(&format!("{}.p99", self.name)),
        }
    }

    /// Whether its unit can be compared with figures in `unit`.
    pub fn fits(&self, unit: &str) -> bool {
        matches!(self.value, Bound::Change(_)) || self.unit.is_none_or(|own| own == unit)
    }

    /// Whether B's figure itself, without its interval, exceeds it; `None` for a change from 0, which has no size.
    pub fn is_exceeded(&self, a: f64, b: f64) -> Option<bool> {
        let (figure, value) = match self.value {
            Bound::Absolute(value) => (b, value),
            Bound::Difference(value) => (b - a, value),
            Bound::Change(value) if a > 0.0 => (b / a - 1.0, value),
            Bound::Change(_) => return (a == b).then_some(false),
        };
        let is_beyond = if self.is_below { figure < value } else { figure > value };
        Some(is_beyond || self.is_inclusive && figure == value)
    }

    /// How probable the figures are by chance while the true one keeps the limit; 1 where an interval of 95 % does not
    /// exclude that.
    pub fn probability(&self, estimate: &Estimate) -> f64 {
        let [a, _] = estimate.values();
        let change = |ratio: f64| if ratio > 0.0 { ratio.ln() } else { f64::NEG_INFINITY };
        match self.value {
            Bound::Change(value) => estimate.p_beyond(change(1.0 + value), self.is_below),
            Bound::Difference(value) => estimate.p_beyond(change(1.0 + value / a), self.is_below),
            Bound::Absolute(value) => estimate.p_own_beyond(change(value), self.is_below),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str) -> Limit {
        text.parse().unwrap_or_else(|err| panic!("{err}"))
    }

    #[test]
    fn a_sign_makes_it_a_change() {
        assert_eq!(limit("p99 > +10%").value, Bound::Change(0.1));
        assert_eq!(limit("speed<-5%").value, Bound::Change(-0.05));
        assert_eq!(limit("median > 1500ns").value, Bound::Absolute(1500.0));
        assert_eq!(limit("mean >= +1.5us").value, Bound::Difference(1500.0));
        assert_eq!(limit("rate < 20GB/s").value, Bound::Absolute(20e9));
        assert_eq!(limit("cpu > 80%").value, Bound::Absolute(80.0));
        assert_eq!(limit("loss > 0").value, Bound::Absolute(0.0));
        assert!(limit("mean >= +1.5us").is_inclusive && limit("speed < -5%").is_below);
    }

    #[test]
    fn a_histogram_may_be_named() {
        let one = limit("trigger_to_handler.p99.9 > +10%");
        assert_eq!((one.figure.as_deref(), one.name.as_str()), (Some("trigger_to_handler"), "p99.9"));
        assert_eq!((limit("p99.9 > +1%").figure, limit("p999 > +1%").name.as_str()), (None, "p99.9"));
        assert_eq!(limit("p50 > +1%").name, "median");
        for (written, meant) in [("p99.0", "p99"), ("p50.00", "median"), ("p99.90", "p99.9"), ("p09", "p9")] {
            assert_eq!(limit(&format!("{written} > +1%")).name, meant);
            assert_eq!(limit(&format!("latency.{written} > +1%")).name, meant);
        }
    }

    #[test]
    fn says_what_is_wrong_with_a_limit() {
        for (bad, why) in [
            ("", "write NAME > VALUE"),
            ("p99 10%", "write NAME > VALUE"),
            ("> 10%", "one name"),
            ("p99 of it > 10%", "one name"),
            ("p99 > 10%", "write +10%"),
            ("p99 > +", "a number"),
            ("p99 > much", "a number"),
            ("p99 > 10parsec", "the unit is one of"),
            ("p99 > 1500", "a time has its unit"),
            ("median > 0ns", "above 0"),
            ("loss > 1e999", "too large"),
        ] {
            let text = bad.parse::<Limit>().unwrap_err().to_string();
            assert!(text.contains(why), "{bad}: {text}");
        }
    }

    #[test]
    fn figures_without_an_interval_are_held_as_they_stand() {
        assert_eq!(limit("loss > 0").is_exceeded(0.0, 1.0), Some(true));
        assert_eq!(limit("loss > 0").is_exceeded(5.0, 0.0), Some(false));
        assert_eq!(limit("loss > +10%").is_exceeded(0.0, 1.0), None);
        assert_eq!(limit("speed <= -5%").is_exceeded(100.0, 95.0), Some(true));
    }
}
