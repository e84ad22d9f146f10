//! The `port` commands of the control socket: text to meaning. docs/spec/counter-board.md, "Control".

use super::super::command::CommandError;
use super::super::words::{Words, parse_number};
use super::events::{Event, LANES, Limit};
use super::time_based::{Shares, State, Stop, Variant};

const KNOWN: &str = "traffic, rate, event, set, tba-set, states, variant, stop, limit, width, torn, absent, \
                     absent-report, agent, firmware, gone, back, mute, vsec or link";
const NUMBER: &str = "a whole number below 2^64";

/// A way through the port, seen from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What arrives.
    Rx,
    /// What leaves.
    Tx,
}

/// A command to one port, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortCommand {
    /// Payload bytes at once.
    Traffic(Direction, u64),
    /// Payload bytes per second from now on.
    Rate(Direction, u64),
    /// An event on a lane, so many times.
    Happen(Event, u8, u64),
    /// A counter's value.
    Set(Event, u8, u32),
    /// The time-based data's value.
    SetData(u64),
    /// Shares of time in link states.
    States(Shares),
    /// Which of reports 0x08 and 0x09 is which.
    Variant(Variant),
    /// The time-based data after a stop.
    Stop(Stop),
    /// Narrow counters at their end.
    Limit(Limit),
    /// Bits of the time-based data.
    Width(u32),
    /// Halves of the time-based data that do not fit together.
    Torn(bool),
    /// These cannot be enabled; none: all can.
    Absent(Vec<Event>),
    /// These reports stay 0; none: all count.
    AbsentReport(Vec<u8>),
    /// Every nth read of EVENT_COUNTER_DATA finds the viewport moved.
    Agent(Option<u64>),
    /// These are enabled.
    Firmware(Vec<Event>),
    /// Whether the function answers all-ones.
    Gone(bool),
    /// So many reads of counters' data are answered by all-ones.
    Mute(u64),
    /// VSEC revision.
    VsecRev(u8),
    /// VSEC ID.
    VsecId(u16),
    /// Whether another vendor-specific capability comes first.
    ForeignFirst(bool),
    /// Whether the list of capabilities ends in its beginning.
    Loop(bool),
    /// Generation and width of the link.
    Link(u8, u8),
}

impl PortCommand {
    /// Understands the words after `port PORT`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(words: &[&str]) -> Result<PortCommand, CommandError> {
        let mut words = Words { command: "port", rest: words };
        let command = words.word(KNOWN)?;
        let parsed = match command {
            "traffic" => PortCommand::Traffic(words.direction()?, words.count()?),
            "rate" => PortCommand::Rate(words.direction()?, words.count()?),
            "event" => {
                let (event, n) = (words.event()?, words.count()?);
                PortCommand::Happen(event, words.lane(event)?, n)
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
                PortCommand::Set(event, words.lane(event)?, value)
            }
            "tba-set" => PortCommand::SetData(words.count()?),
            "states" => PortCommand::States(shares(words.word("shares of time, such as L0=70,L1=30")?)?),
            "variant" => PortCommand::Variant(words.choice("seed or old", &[Variant::Seed, Variant::Old])?),
            "stop" => PortCommand::Stop(words.choice("hold or zero", &[Stop::Hold, Stop::Zero])?),
            "limit" => PortCommand::Limit(words.choice("saturate or wrap", &[Limit::Saturate, Limit::Wrap])?),
            "width" => {
                let expected = "a number of bits from 32 to 64";
                PortCommand::Width(words.in_range(32, 64, expected)? as u32)
            }
            "torn" => PortCommand::Torn(words.switch()?),
            "absent" => PortCommand::Absent(match words.word("events, or none")? {
                "none" => Vec::new(),
                list => events(list)?,
            }),
            "absent-report" => PortCommand::AbsentReport(match words.word("reports, or none")? {
                "none" => Vec::new(),
                list => list.split(',').map(report).collect::<Result<_, _>>()?,
            }),
            "agent" => PortCommand::Agent(match words.word("`every N` or `off`")? {
                "off" => None,
                "every" => Some(words.in_range(1, u64::MAX, "a distance of 1 or more")?),
                word => return Err(wrong(word, "`every N` or `off`")),
            }),
            "firmware" => PortCommand::Firmware(events(words.word("events")?)?),
            "gone" => PortCommand::Gone(true),
            "back" => PortCommand::Gone(false),
            "mute" => PortCommand::Mute(words.count()?),
            "vsec" => match words.word("rev, id, foreign-first or loop")? {
                "rev" => PortCommand::VsecRev(words.in_range(0, 15, "a revision from 0 to 15")? as u8),
                "id" => PortCommand::VsecId(words.in_range(0, 0xffff, "a VSEC ID from 0 to 0xffff")? as u16),
                "foreign-first" => PortCommand::ForeignFirst(words.switch()?),
                "loop" => PortCommand::Loop(words.switch()?),
                word => return Err(wrong(word, "rev, id, foreign-first or loop")),
            },
            "link" => {
                let generation = words.in_range(1, 6, "a generation from 1 to 6")?;
                let lanes = words.parsed("the link's width", "1, 2, 4, 8 or 16 lanes", |word| {
                    word.parse().ok().filter(|lanes| [1, 2, 4, 8, 16].contains(lanes))
                })?;
                PortCommand::Link(generation as u8, lanes)
            }
            word => return Err(wrong(word, KNOWN)),
        };
        words.end()?;
        Ok(parsed)
    }
}

fn wrong(word: &str, expected: &'static str) -> CommandError {
    CommandError::wrong("port", word, expected)
}

fn event(word: &str) -> Result<Event, CommandError> {
    let select = parse_number(word).filter(|_| word.starts_with("0x")).and_then(|select| u16::try_from(select).ok());
    select.and_then(Event::new).ok_or_else(|| wrong(word, "an event of docs/spec/rasdes.md, such as 0x201"))
}

fn events(list: &str) -> Result<Vec<Event>, CommandError> {
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

    fn event(&mut self) -> Result<Event, CommandError> {
        event(self.word("an event")?)
    }

    /// `lane L`, or nothing, which is lane 0.
    fn lane(&mut self, event: Event) -> Result<u8, CommandError> {
        match self.next() {
            None => Ok(0),
            Some("lane") if !event.is_per_lane() => Err(wrong("lane", "for an event that is common to all lanes")),
            Some("lane") => Ok(self.in_range(0, u64::from(LANES) - 1, "a lane from 0 to 15")? as u8),
            Some(word) => Err(wrong(word, "`lane L`")),
        }
    }
}
