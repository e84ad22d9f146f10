//! The commands of the control socket: text to meaning. docs/spec/latency-endpoint.md, "Control".

use thiserror::Error;

use super::delay::{Delay, SplitMix64, Strikes};
use super::faults::Faults;
use super::words::{Words, parse_scaled};

/// The longest delay, in nanoseconds: QEMU takes a device for dead that does not answer for 5 s.
pub const DELAY_MAX_NS: u64 = 2_000_000_000;
/// Least distance of a doubled message from the first unless set otherwise, in nanoseconds.
pub const DOUBLE_GAP_NS: u64 = 200_000;

const KNOWN: &str = "ledger, read-delay, write-delay, config-delay, irq-delay, aspm-exit, irq-lose, irq-double, \
                     all-ones, remove, completion-timeout, link, reset";
const TIME: &str = "a time of at most 2000 ms, in whole ns, us or ms, like 20us";

/// A command, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Show the ledger.
    Ledger,
    /// The faults and delays that are set from now on.
    Faults(Box<Faults>),
    /// Go away at once, configuration space included.
    Remove,
    /// Show the link at this generation, on so many lanes; `None` as the device was made.
    Link(Option<(u8, u8)>),
    /// Settings, ledger and registers as at the start.
    Reset,
}

/// What is wrong with a command, in one line.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CommandError {
    /// The first word is no command of the device.
    #[error("unknown command `{word}`; known are {known}")]
    Unknown {
        /// The word.
        word: String,
        /// The device's commands.
        known: &'static str,
    },
    /// What is wrong with the words of a command that is known, or that there are none.
    #[error("{0}")]
    Words(String),
}

impl CommandError {
    pub(super) fn missing(command: &str, what: &str) -> Self {
        CommandError::Words(format!("{command}: {what} is missing"))
    }

    pub(super) fn extra(command: &str, word: &str) -> Self {
        CommandError::Words(format!("{command}: `{word}` is one word too many"))
    }

    pub(super) fn wrong(command: &str, word: &str, expected: &str) -> Self {
        CommandError::Words(format!("{command}: `{word}` is not {expected}"))
    }
}

impl Command {
    /// Understands one line for a device on which `faults` are set.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &str, faults: &Faults) -> Result<Command, CommandError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let empty = || CommandError::Words(format!("empty command; known are {KNOWN}"));
        let (command, rest) = words.split_first().ok_or_else(empty)?;
        let mut words = Words { command, rest };
        let mut set = Box::new(faults.clone());
        let mut parsed = None;
        match *command {
            "ledger" => parsed = Some(Command::Ledger),
            "read-delay" => set.read_delay = words.delay()?,
            "write-delay" => set.write_delay = words.delay()?,
            "config-delay" => set.config_delay = words.delay()?,
            "irq-delay" => set.irq_delay = words.delay()?,
            "aspm-exit" => match words.choice("l0s, l1 or none", &[Some(0), Some(1), None])? {
                Some(state) => set.aspm_exit_ns[state] = Some(words.time("a time")?),
                None => set.aspm_exit_ns = [None; 2],
            },
            "irq-lose" => set.lose = words.strikes()?,
            "irq-double" => (set.double, set.double_gap_ns) = (words.strikes()?, words.gap()?),
            "all-ones" => (set.reads_left, set.ones_left) = words.all_ones()?,
            "remove" => parsed = Some(Command::Remove),
            "completion-timeout" => set.completion_timeout_ns = Some(words.time("a time")?),
            "link" => parsed = Some(Command::Link(words.link()?)),
            "reset" => parsed = Some(Command::Reset),
            word => return Err(CommandError::Unknown { word: word.to_owned(), known: KNOWN }),
        }
        words.end()?;
        Ok(parsed.unwrap_or(Command::Faults(set)))
    }
}

impl Words<'_> {
    fn permille(&mut self) -> Result<u16, CommandError> {
        self.parsed("how many of 1000", "a whole number from 0 to 1000", |word| {
            word.parse().ok().filter(|permille| *permille <= 1000)
        })
    }

    fn random(&mut self) -> Result<SplitMix64, CommandError> {
        Ok(SplitMix64::new(self.number("the seed")?))
    }

    fn time(&mut self, what: &'static str) -> Result<u64, CommandError> {
        self.parsed(what, TIME, parse_time)
    }

    /// `as-made`, or a generation and lanes.
    fn link(&mut self) -> Result<Option<(u8, u8)>, CommandError> {
        if self.takes("as-made") {
            return Ok(None);
        }
        let expected = "`as-made` or a generation from 1 to 6";
        let generation = self.parsed("`as-made`, or a generation and lanes", expected, |word| {
            word.parse().ok().filter(|generation| (1..=6).contains(generation))
        })?;
        let width = self.parsed("the number of lanes", "a number of lanes that a link can have", |word| {
            word.parse().ok().filter(|width| [1, 2, 4, 8, 12, 16, 32].contains(width))
        })?;
        Ok(Some((generation, width)))
    }

    fn delay(&mut self) -> Result<Delay, CommandError> {
        match self.word("none, fixed, once, list, two-peak or random")? {
            "none" => Ok(Delay::None),
            "fixed" => Ok(Delay::Fixed(self.time("the delay")?)),
            "once" => Ok(Delay::Once(self.time("the delay")?)),
            "list" => {
                let list = self.word("the list of delays")?;
                let time = |word| parse_time(word).ok_or_else(|| self.wrong(word, TIME));
                let times = list.split(',').map(time).collect::<Result<_, _>>()?;
                Ok(Delay::List { times, next: 0 })
            }
            "two-peak" => Ok(Delay::TwoPeak {
                first: self.time("the first peak")?,
                second: self.time("the second peak")?,
                permille: self.permille()?,
                random: self.random()?,
            }),
            "random" => {
                let (min, max) = (self.time("the shortest delay")?, self.time("the longest delay")?);
                if min > max {
                    let command = self.command;
                    return Err(CommandError::Words(format!("{command}: {min} ns to {max} ns is not a range")));
                }
                Ok(Delay::Random { min, max, random: self.random()? })
            }
            word => Err(self.wrong(word, "none, fixed, once, list, two-peak or random")),
        }
    }

    fn strikes(&mut self) -> Result<Strikes, CommandError> {
        match self.word("none, every or random")? {
            "none" => Ok(Strikes::None),
            "every" => match self.number("the distance")? {
                0 => Err(self.wrong("0", "a distance of 1 or more")),
                every => Ok(Strikes::Every { every, passed: 0 }),
            },
            "random" => Ok(Strikes::Random { permille: self.permille()?, random: self.random()? }),
            word => Err(self.wrong(word, "none, every or random")),
        }
    }

    /// `gap T`, or nothing.
    fn gap(&mut self) -> Result<u64, CommandError> {
        match self.next() {
            None => Ok(DOUBLE_GAP_NS),
            Some("gap") => self.time("the distance of the second message"),
            Some(word) => Err(self.wrong(word, "`gap`")),
        }
    }

    /// Reads until the device goes away, and reads that are answered by all-ones.
    fn all_ones(&mut self) -> Result<(Option<u64>, u64), CommandError> {
        match self.word("`after N`, `next N` or `off`")? {
            "off" => Ok((None, 0)),
            "after" => Ok((Some(self.number("the number of reads")?), 0)),
            "next" => Ok((None, self.number("the number of reads")?)),
            word => Err(self.wrong(word, "`after`, `next` or `off`")),
        }
    }
}

fn parse_time(word: &str) -> Option<u64> {
    let time = parse_scaled(word, &[("ns", 1), ("us", 1_000), ("ms", 1_000_000)])?;
    (time <= DELAY_MAX_NS).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before() -> Faults {
        let lose = Strikes::Every { every: 7, passed: 0 };
        Faults {
            read_delay: Delay::Fixed(7),
            lose,
            reads_left: Some(7),
            ones_left: 7,
            aspm_exit_ns: [Some(7); 2],
            ..Faults::default()
        }
    }

    fn set(change: impl FnOnce(&mut Faults)) -> Command {
        let mut faults = Box::new(before());
        change(&mut faults);
        Command::Faults(faults)
    }

    #[test]
    fn every_form_of_every_command_is_understood() {
        let random = || SplitMix64::new(7);
        let double = Strikes::Every { every: 2, passed: 0 };
        let doubled = |gap_ns| set(|faults| (faults.double, faults.double_gap_ns) = (double.clone(), gap_ns));
        let ones = |left, ones| set(|faults| (faults.reads_left, faults.ones_left) = (left, ones));
        let cases = [
            ("ledger", Command::Ledger),
            ("  remove ", Command::Remove),
            ("reset", Command::Reset),
            ("read-delay none", set(|faults| faults.read_delay = Delay::None)),
            ("read-delay fixed 20000", set(|faults| faults.read_delay = Delay::Fixed(20_000))),
            ("read-delay once 3ms", set(|faults| faults.read_delay = Delay::Once(3_000_000))),
            ("write-delay fixed 20us", set(|faults| faults.write_delay = Delay::Fixed(20_000))),
            ("config-delay fixed 0", set(|faults| faults.config_delay = Delay::Fixed(0))),
            ("irq-delay fixed 2000ms", set(|faults| faults.irq_delay = Delay::Fixed(2_000_000_000))),
            (
                "read-delay list 1,2us,3ns",
                set(|faults| faults.read_delay = Delay::List { times: vec![1, 2_000, 3], next: 0 }),
            ),
            (
                "read-delay two-peak 20us 50us 100 7",
                set(|faults| {
                    faults.read_delay =
                        Delay::TwoPeak { first: 20_000, second: 50_000, permille: 100, random: random() }
                }),
            ),
            (
                "irq-delay random 1us 1us 7",
                set(|faults| faults.irq_delay = Delay::Random { min: 1000, max: 1000, random: random() }),
            ),
            ("irq-lose none", set(|faults| faults.lose = Strikes::None)),
            ("irq-lose every 10", set(|faults| faults.lose = Strikes::Every { every: 10, passed: 0 })),
            (
                "irq-lose random 1000 7",
                set(|faults| faults.lose = Strikes::Random { permille: 1000, random: random() }),
            ),
            ("irq-double every 2", doubled(DOUBLE_GAP_NS)),
            ("irq-double every 2 gap 1ms", doubled(1_000_000)),
            ("aspm-exit l0s 0", set(|faults| faults.aspm_exit_ns[0] = Some(0))),
            ("aspm-exit l1 40us", set(|faults| faults.aspm_exit_ns[1] = Some(40_000))),
            ("aspm-exit none", set(|faults| faults.aspm_exit_ns = [None; 2])),
            ("all-ones after 100", ones(Some(100), 0)),
            ("all-ones next 3", ones(None, 3)),
            ("all-ones off", ones(None, 0)),
            ("completion-timeout 5ms", set(|faults| faults.completion_timeout_ns = Some(5_000_000))),
            ("link 1 2", Command::Link(Some((1, 2)))),
            ("link as-made", Command::Link(None)),
        ];
        for (line, command) in cases {
            assert_eq!(Command::parse(line, &before()), Ok(command), "{line}");
        }
    }

    #[test]
    fn a_refusal_says_which_word_and_why() {
        let time = "is not a time of at most 2000 ms, in whole ns, us or ms, like 20us";
        let cases = [
            ("", format!("empty command; known are {KNOWN}")),
            ("leger", format!("unknown command `leger`; known are {KNOWN}")),
            ("ledger now", "ledger: `now` is one word too many".to_owned()),
            ("read-delay", "read-delay: none, fixed, once, list, two-peak or random is missing".to_owned()),
            ("read-delay often", "read-delay: `often` is not none, fixed, once, list, two-peak or random".to_owned()),
            ("read-delay fixed", "read-delay: the delay is missing".to_owned()),
            ("read-delay fixed -1", format!("read-delay: `-1` {time}")),
            ("read-delay fixed 1.5us", format!("read-delay: `1.5us` {time}")),
            ("read-delay fixed us", format!("read-delay: `us` {time}")),
            ("read-delay fixed 2001ms", format!("read-delay: `2001ms` {time}")),
            ("read-delay fixed 18446744073709551615ms", format!("read-delay: `18446744073709551615ms` {time}")),
            ("read-delay fixed 1 2", "read-delay: `2` is one word too many".to_owned()),
            ("read-delay list 1,,2", format!("read-delay: `` {time}")),
            ("read-delay two-peak 1 2 1001 7", "read-delay: `1001` is not a whole number from 0 to 1000".to_owned()),
            ("read-delay two-peak 1 2 10", "read-delay: the seed is missing".to_owned()),
            ("read-delay random 2us 1us 7", "read-delay: 2000 ns to 1000 ns is not a range".to_owned()),
            ("irq-lose every 0", "irq-lose: `0` is not a distance of 1 or more".to_owned()),
            ("irq-lose every x", "irq-lose: `x` is not a whole number below 2^64".to_owned()),
            ("irq-lose every 2 gap 1ms", "irq-lose: `gap` is one word too many".to_owned()),
            ("irq-double every 2 gap", "irq-double: the distance of the second message is missing".to_owned()),
            ("irq-double every 2 1ms", "irq-double: `1ms` is not `gap`".to_owned()),
            ("aspm-exit l2 1", "aspm-exit: `l2` is not l0s, l1 or none".to_owned()),
            ("aspm-exit l1", "aspm-exit: a time is missing".to_owned()),
            ("aspm-exit none 1", "aspm-exit: `1` is one word too many".to_owned()),
            ("all-ones", "all-ones: `after N`, `next N` or `off` is missing".to_owned()),
            ("all-ones 5", "all-ones: `5` is not `after`, `next` or `off`".to_owned()),
            ("all-ones after", "all-ones: the number of reads is missing".to_owned()),
            ("completion-timeout", "completion-timeout: a time is missing".to_owned()),
            ("link", "link: `as-made`, or a generation and lanes is missing".to_owned()),
            ("link 7 1", "link: `7` is not `as-made` or a generation from 1 to 6".to_owned()),
            ("link 3", "link: the number of lanes is missing".to_owned()),
            ("link 3 5", "link: `5` is not a number of lanes that a link can have".to_owned()),
        ];
        for (line, refusal) in cases {
            assert_eq!(Command::parse(line, &Faults::default()).map_err(|err| err.to_string()), Err(refusal), "{line}");
        }
    }
}
