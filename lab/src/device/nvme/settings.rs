//! What the control socket sets. docs/spec/lab-disk.md, "Control".

use std::num::NonZeroU64;

use crate::device::command::CommandError;

const KNOWN: &str = "ledger, rate, fail, remove or reset";

/// A command, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Ledger,
    /// Bytes per second; `None`: as fast as this machine can.
    Rate(Option<NonZeroU64>),
    /// Every nth read or write fails; `None`: none does.
    Fail(Option<NonZeroU64>),
    Remove,
    Reset,
}

impl Order {
    pub(super) fn parse(line: &str) -> Result<Order, CommandError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let missing = |what| Err(CommandError::Missing { command: words.first().unwrap_or(&"disk").to_string(), what });
        let (order, used) = match words[..] {
            [] => return missing(KNOWN),
            ["ledger", ..] => (Order::Ledger, 1),
            ["remove", ..] => (Order::Remove, 1),
            ["reset", ..] => (Order::Reset, 1),
            ["rate"] => return missing("bytes per second, or none,"),
            ["rate", "none", ..] => (Order::Rate(None), 2),
            ["rate", rate, ..] => (Order::Rate(Some(parse_rate(rate)?)), 2),
            ["fail"] => return missing("`every N` or `none`"),
            ["fail", "none", ..] => (Order::Fail(None), 2),
            ["fail", "every"] => return missing("the distance"),
            ["fail", "every", every, ..] => {
                let every = every.parse().map_err(|_| wrong("fail", every, "a whole number from 1 to 2^64 - 1"))?;
                (Order::Fail(Some(every)), 3)
            }
            ["fail", word, ..] => return Err(wrong("fail", word, "`every` or `none`")),
            [word, ..] => return Err(wrong("disk", word, KNOWN)),
        };
        match words.get(used) {
            None => Ok(order),
            Some(word) => Err(CommandError::Extra { command: words[0].to_owned(), word: (*word).to_owned() }),
        }
    }
}

fn wrong(command: &str, word: &str, expected: &'static str) -> CommandError {
    CommandError::Word { command: command.to_owned(), word: word.to_owned(), expected }
}

/// Bytes per second: a whole number, with kB, MB or GB of 1000, 10^6 or 10^9.
fn parse_rate(word: &str) -> Result<NonZeroU64, CommandError> {
    let units = [("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000), ("B", 1)];
    let (digits, factor) = units
        .iter()
        .find_map(|(suffix, factor)| word.strip_suffix(suffix).map(|digits| (digits, *factor)))
        .unwrap_or((word, 1));
    let rate = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).and_then(NonZeroU64::new);
    rate.ok_or_else(|| wrong("rate", word, "a rate above 0, in whole bytes, kB, MB or GB per second, like 542MB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_understood() {
        let number = |n| NonZeroU64::new(n);
        for (line, order) in [
            ("ledger", Order::Ledger),
            (" remove ", Order::Remove),
            ("reset", Order::Reset),
            ("rate none", Order::Rate(None)),
            ("rate 1", Order::Rate(number(1))),
            ("rate 7B", Order::Rate(number(7))),
            ("rate 20kB", Order::Rate(number(20_000))),
            ("rate 542MB", Order::Rate(number(542_000_000))),
            ("rate 3GB", Order::Rate(number(3_000_000_000))),
            ("fail every 3", Order::Fail(number(3))),
            ("fail none", Order::Fail(None)),
        ] {
            assert_eq!(Order::parse(line), Ok(order), "{line}");
        }
    }

    #[test]
    fn a_refusal_says_which_word_and_why() {
        let rate = "is not a rate above 0, in whole bytes, kB, MB or GB per second, like 542MB";
        for (line, refusal) in [
            ("", "disk: ledger, rate, fail, remove or reset is missing".to_owned()),
            ("rat", "disk: `rat` is not ledger, rate, fail, remove or reset".to_owned()),
            ("ledger now", "ledger: `now` is one word too many".to_owned()),
            ("rate", "rate: bytes per second, or none, is missing".to_owned()),
            ("rate 0", format!("rate: `0` {rate}")),
            ("rate 5.5MB", format!("rate: `5.5MB` {rate}")),
            ("rate -1", format!("rate: `-1` {rate}")),
            ("rate 18446744073709551615GB", format!("rate: `18446744073709551615GB` {rate}")),
            ("rate 5MB 6", "rate: `6` is one word too many".to_owned()),
            ("fail", "fail: `every N` or `none` is missing".to_owned()),
            ("fail every", "fail: the distance is missing".to_owned()),
            ("fail every 0", "fail: `0` is not a whole number from 1 to 2^64 - 1".to_owned()),
            ("fail often", "fail: `often` is not `every` or `none`".to_owned()),
            ("fail every 3 4", "fail: `4` is one word too many".to_owned()),
        ] {
            assert_eq!(Order::parse(line).map_err(|err| err.to_string()), Err(refusal), "{line}");
        }
    }
}
