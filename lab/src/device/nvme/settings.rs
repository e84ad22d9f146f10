//! What the control socket sets. docs/spec/lab-disk.md, "Control".

use std::num::NonZeroU64;

use crate::device::command::CommandError;
use crate::device::words::{Words, parse_scaled};

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
        let (command, rest) = words.split_first().ok_or_else(|| CommandError::missing("disk", KNOWN))?;
        let mut words = Words { command, rest };
        let order = match *command {
            "ledger" => Order::Ledger,
            "remove" => Order::Remove,
            "reset" => Order::Reset,
            "rate" if words.takes("none") => Order::Rate(None),
            "rate" => {
                let expected = "a rate above 0, in whole bytes, kB, MB or GB per second, like 542MB";
                Order::Rate(Some(words.parsed("bytes per second, or none,", expected, parse_rate)?))
            }
            "fail" => match words.word("`every N` or `none`")? {
                "none" => Order::Fail(None),
                "every" => {
                    let expected = "a whole number from 1 to 2^64 - 1";
                    Order::Fail(Some(words.parsed("the distance", expected, |word| word.parse().ok())?))
                }
                word => return Err(words.wrong(word, "`every` or `none`")),
            },
            word => return Err(CommandError::wrong("disk", word, KNOWN)),
        };
        words.end()?;
        Ok(order)
    }
}

/// Bytes per second: a whole number, with kB, MB or GB of 1000, 10^6 or 10^9.
fn parse_rate(word: &str) -> Option<NonZeroU64> {
    let units = [("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000), ("B", 1)];
    parse_scaled(word, &units).and_then(NonZeroU64::new)
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
