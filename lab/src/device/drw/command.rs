//! The `dram` commands of docs/spec/counter-board.md, from the word behind the sub-channel on.

use super::pace::Pace;
use super::{COUNTERS, CYCLE_MASK, DrwBank, Limit, events};
use crate::device::command::CommandError;
use crate::device::words::{Words, parse_number};

const FORMS: &str = "add, rate, set, limit, lag or torn";
const EVENT: &str = "an event's name, or a code from 0 to 0x3f";
const NUMBER: &str = "a whole number below 2^64";
const VALUE: &str = "a counter and a value";

impl DrwBank {
    /// Carries out a command at `now_ns`.
    ///
    /// # Errors
    /// What was wrong with it; nothing has changed then.
    pub fn command(&mut self, now_ns: u64, words: &[&str]) -> Result<(), CommandError> {
        self.advance(now_ns);
        let mut words = Words { command: "dram", rest: words };
        let mut changed = self.clone();
        changed.change(now_ns, &mut words)?;
        words.end()?;
        *self = changed;
        Ok(())
    }

    fn change(&mut self, now_ns: u64, words: &mut Words<'_>) -> Result<(), CommandError> {
        match words.word(FORMS)? {
            "add" => {
                let event = words.parsed("an event and a number", EVENT, events::parse)?;
                let n = words.parsed("an event and a number", NUMBER, parse_number)?;
                self.happen(event, n);
            }
            "rate" => {
                let event = words.parsed("an event and a number per second", EVENT, events::parse)?;
                let per_second = words.parsed("an event and a number per second", NUMBER, parse_number)?;
                self.settings.rates.insert(event, Pace::new(per_second));
            }
            "set" if words.takes("cycle") => {
                let below = |word: &str| parse_number(word).filter(|value| *value <= CYCLE_MASK);
                self.registers.cycle = words.parsed(VALUE, "a number below 2^56", below)?;
            }
            "set" => {
                let counter = |word: &str| word.parse::<usize>().ok().filter(|number| *number < COUNTERS);
                let number = words.parsed(VALUE, "a counter from 0 to 15, or `cycle`", counter)?;
                let value = words.parsed(VALUE, "a number below 2^32", |word| parse_number(word)?.try_into().ok())?;
                self.registers.counters[number].load(value);
            }
            "limit" => self.settings.limit = words.choice("wrap or hold", &[Limit::Wrap, Limit::Hold])?,
            "lag" => {
                self.settings.lag = words.parsed("a number of reads", NUMBER, parse_number)?;
                self.show_late(0);
            }
            "torn" => (self.settings.is_torn, self.settings.half_reads) = (words.switch()?, 0),
            "power-cycle" => self.function_reset(now_ns),
            word => return Err(words.wrong(word, FORMS)),
        }
        Ok(())
    }
}
