//! The `port` commands of the control socket: text to meaning. docs/spec/counter-board.md, "Control".

use super::super::command::CommandError;
use super::super::words::{Words, parse_number};
use super::events::{LANES, Limit, PortEvent};
use super::time_based::{Shares, State, Stop, Variant};
use super::{Agent, RasdesBank};

const KNOWN: &str = "traffic, rate, event, set, tba-set, states, variant, stop, limit, width, torn, absent, \
                     absent-report, agent, firmware, gone, back, mute, vsec, dpc or link";
const NUMBER: &str = "a whole number below 2^64";

/// A way through the port, seen from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What arrives.
    Rx,
    /// What leaves.
    Tx,
}

impl RasdesBank {
    /// Carries out a `port` command at `now_ns`; `words` are those after the port's name. A command that is refused changes
    /// nothing.
    ///
    /// # Errors
    /// What is wrong with the words.
    pub fn command(&mut self, now_ns: u64, words: &[&str]) -> Result<(), CommandError> {
        self.advance(now_ns);
        let mut words = Words { command: "port", rest: words };
        let mut changed = self.clone();
        changed.change(&mut words)?;
        words.end()?;
        changed.advance(now_ns);
        *self = changed;
        Ok(())
    }

    fn change(&mut self, words: &mut Words<'_>) -> Result<(), CommandError> {
        let settings = &mut self.time_based.settings;
        match words.word(KNOWN)? {
            "traffic" => {
                let (direction, bytes) = (words.direction()?, words.count()?);
                self.enter(direction, bytes, bytes.div_ceil(self.traffic.link().0.into()));
            }
            "rate" => {
                let (direction, per_second) = (words.direction()?, words.count()?);
                self.set_rate(direction, per_second);
            }
            "event" => {
                let (event, n) = (words.event()?, words.count()?);
                self.counters.happen(event, words.lane(event)?, n);
            }
            "set" => {
                let (event, word) = (words.event()?, words.word("a value")?);
                let value = parse_number(word).ok_or_else(|| wrong(word, NUMBER))?;
                let value = u32::try_from(value).ok().filter(|value| *value <= event.max());
                let expected = match event.width() {
                    4 => "a number below 2^4, which is what this counter holds",
                    8 => "a number below 2^8, which is what this counter holds",
                    _ => "a number below 2^32, which is what this counter holds",
                };
                let value = value.ok_or_else(|| wrong(word, expected))?;
                let counter = self.counters.pick(event.select(), words.lane(event)?);
                counter.into_iter().for_each(|counter| counter.value = value);
            }
            "tba-set" => self.time_based.set_data(words.count()?),
            "states" => settings.shares = shares(words.word("shares of time, such as L0=70,L1=30")?)?,
            "variant" => settings.variant = words.choice("seed or old", &[Variant::Seed, Variant::Old])?,
            "stop" => settings.stop = words.choice("hold or zero", &[Stop::Hold, Stop::Zero])?,
            "limit" => self.counters.limit = words.choice("saturate or wrap", &[Limit::Saturate, Limit::Wrap])?,
            "width" => settings.width = words.in_range(32, 64, "a number of bits from 32 to 64")? as u32,
            "torn" => self.time_based.set_torn(words.switch()?),
            "absent" => match words.word("events, or none")? {
                "none" => self.set_absent(&[]),
                list => self.set_absent(&events(list)?),
            },
            "absent-report" => match words.word("reports, or none")? {
                "none" => settings.absent.clear(),
                list => settings.absent.extend(list.split(',').map(report).collect::<Result<Vec<_>, _>>()?),
            },
            "agent" => {
                self.agent = match words.word("`every N` or `off`")? {
                    "off" => None,
                    "every" => Some(Agent { every: words.in_range(1, u64::MAX, "a distance of 1 or more")?, reads: 0 }),
                    word => return Err(wrong(word, "`every N` or `off`")),
                }
            }
            "firmware" => {
                let events = events(words.word("events")?)?;
                let of_them = self.counters.iter_mut().filter(|(event, _, _)| events.contains(event));
                of_them.for_each(|(_, _, counter)| counter.is_on = !counter.is_absent);
            }
            "gone" => self.is_gone = true,
            "back" => self.is_gone = false,
            "mute" => self.mute_reads = words.count()?,
            "vsec" => match words.word("rev, id, foreign-first or loop")? {
                "rev" => self.list.rev = words.in_range(0, 15, "a revision from 0 to 15")? as u8,
                "id" => self.list.id = words.in_range(0, 0xffff, "a VSEC ID from 0 to 0xffff")? as u16,
                "foreign-first" => self.list.has_foreign_first = words.switch()?,
                "loop" => self.list.is_looped = words.switch()?,
                word => return Err(wrong(word, "rev, id, foreign-first or loop")),
            },
            "dpc" => {
                self.list.containment = match words.word("DPC Status, or none")? {
                    "none" => None,
                    word => {
                        let status = parse_number(word).and_then(|status| u16::try_from(status).ok());
                        Some(status.ok_or_else(|| wrong(word, "a number below 2^16, or none"))?)
                    }
                }
            }
            "link" => {
                let generation = words.in_range(1, 6, "a generation from 1 to 6")?;
                self.width = words.parsed("the link's width", "1, 2, 4, 8 or 16 lanes", |word| {
                    word.parse().ok().filter(|lanes| [1, 2, 4, 8, 16].contains(lanes))
                })?;
                self.time_based.set_generation(generation as u8);
            }
            word => return Err(wrong(word, KNOWN)),
        }
        Ok(())
    }
}

fn wrong(word: &str, expected: &'static str) -> CommandError {
    CommandError::wrong("port", word, expected)
}

fn event(word: &str) -> Result<PortEvent, CommandError> {
    let select = parse_number(word).filter(|_| word.starts_with("0x")).and_then(|select| u16::try_from(select).ok());
    select.and_then(PortEvent::new).ok_or_else(|| wrong(word, "an event of docs/spec/rasdes.md, such as 0x201"))
}

fn events(list: &str) -> Result<Vec<PortEvent>, CommandError> {
    list.split(',').map(event).collect()
}

fn report(word: &str) -> Result<u8, CommandError> {
    let code = parse_number(word).and_then(|code| u8::try_from(code).ok());
    let is_known = |code: &u8| matches!(code, 0x00..=0x09 | 0x10..=0x18 | 0x20..=0x23);
    code.filter(is_known).ok_or_else(|| wrong(word, "a report of docs/spec/rasdes.md, such as 0x21"))
}

/// What is not given goes to L0.
fn shares(list: &str) -> Result<Shares, CommandError> {
    let mut shares = [None; State::ALL.len()];
    for word in list.split(',') {
        let parsed = word.split_once('=').and_then(|(name, percent)| {
            let state = State::ALL.into_iter().find(|state| state.name() == name)?;
            let percent = parse_number(percent).and_then(|percent| u8::try_from(percent).ok())?;
            Some((state as usize, percent)).filter(|(state, _)| shares[*state].is_none())
        });
        let expected = "a state's share, each state once, such as L1_2=30; the states are TX_L0S, RX_L0S, L0, L1, L1_1, \
                        L1_2, CFG_RCVRY, L1_AUX and TX_RX_L0S";
        let (state, percent) = parsed.ok_or_else(|| wrong(word, expected))?;
        shares[state] = Some(percent);
    }
    let mut shares = shares.map(Option::unwrap_or_default);
    let sum: u32 = shares.iter().map(|percent| u32::from(*percent)).sum();
    let rest = 100u32.checked_sub(sum).ok_or_else(|| wrong(list, "shares of 100 percent or less together"))?;
    shares[State::L0 as usize] += rest as u8;
    Ok(shares)
}

impl Words<'_> {
    fn count(&mut self) -> Result<u64, CommandError> {
        self.parsed("a number", NUMBER, parse_number)
    }

    fn in_range(&mut self, min: u64, max: u64, expected: &'static str) -> Result<u64, CommandError> {
        self.parsed(expected, expected, |word| parse_number(word).filter(|value| (min..=max).contains(value)))
    }

    fn direction(&mut self) -> Result<Direction, CommandError> {
        self.choice("rx or tx", &[Direction::Rx, Direction::Tx])
    }

    fn event(&mut self) -> Result<PortEvent, CommandError> {
        event(self.word("an event")?)
    }

    /// `lane L`, or nothing, which is lane 0.
    fn lane(&mut self, event: PortEvent) -> Result<u8, CommandError> {
        match self.next() {
            None => Ok(0),
            Some("lane") if !event.is_per_lane() => Err(wrong("lane", "for an event that is common to all lanes")),
            Some("lane") => Ok(self.in_range(0, u64::from(LANES) - 1, "a lane from 0 to 15")? as u8),
            Some(word) => Err(wrong(word, "`lane L`")),
        }
    }
}
