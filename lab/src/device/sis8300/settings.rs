//! What the control socket sets. docs/spec/sis8300.md, "Control".

use super::interrupts::Source;
use crate::device::command::{Command, CommandError};
use crate::device::words::{Words, parse_number, parse_scaled};

const KNOWN: &str = "ledger, remove, reset, power-cycle, all-ones, trigger, clock, set, module-id, options, serial, lose, spurious, hang, \
                     short, interrupt, read-delay, write-delay, config-delay, irq-delay, irq-lose, irq-double, \
                     completion-timeout";

/// Frequencies of the clocks from outside, in Hz; 0: not connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clocks {
    pub(super) rtm2: u64,
    pub(super) tclka: u64,
    pub(super) tclkb: u64,
    pub(super) front: u64,
    pub(super) sma: u64,
    pub(super) multiplier: u64,
}

/// Which events the status register keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Latch {
    /// All.
    #[default]
    Always,
    /// Those that were enabled when they happened.
    Enabled,
}

/// When a message goes out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MessageRule {
    /// When the pin would go up.
    #[default]
    Edge,
    /// Also for each enabled event while it is up.
    Each,
}

/// When DAQ done comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DaqDone {
    /// When the FIFO is empty.
    #[default]
    AfterFlush,
    /// When sampling ends.
    BeforeFlush,
    /// Not at all: this firmware has no such interrupt.
    Absent,
}

/// What a DMA beyond the card's memory does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PastEnd {
    /// Zeros come.
    #[default]
    Zeros,
    /// The memory begins anew.
    Wrap,
    /// It ends there, as if done.
    Stop,
}

/// What a start does to an engine that runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Restart {
    /// Nothing.
    #[default]
    Ignore,
    /// The new transfer takes the old one's place.
    Restart,
}

/// What 0x120 to 0x129 show while the sample logic is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BusyBlocks {
    /// How far it has come.
    #[default]
    Progress,
    /// What was latched.
    Start,
    /// All-ones.
    Ones,
}

/// What the sources about the board leave open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) latch: Latch,
    pub(super) rule: MessageRule,
    pub(super) daq_done: DaqDone,
    pub(super) past_end: PastEnd,
    pub(super) restart: Restart,
    pub(super) busy_blocks: BusyBlocks,
    /// What the FIFO takes to reach the memory.
    pub(super) flush_ns: u64,
    /// Whether card addresses and lengths of DMA lose their last 6 bits.
    pub(super) is_aligned: bool,
    /// Whether a 0 in a DMA control register ends the transfer.
    pub(super) has_stop: bool,
    /// The time from a read request of the write engine to its completion.
    pub(super) round_trip_ns: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            latch: Latch::default(),
            rule: MessageRule::default(),
            daq_done: DaqDone::default(),
            past_end: PastEnd::default(),
            restart: Restart::default(),
            busy_blocks: BusyBlocks::default(),
            flush_ns: 2_000,
            is_aligned: true,
            has_stop: true,
            round_trip_ns: 1_000,
        }
    }
}

/// Which of the things that can hang or stop short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    DmaRead,
    DmaWrite,
    Daq,
}

/// A command, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// One that every device has.
    Common(Command),
    /// Pulses in 1000 s; 0: none.
    TriggerRate(u64),
    /// So many single pulses, and the time between them.
    TriggerShots(u64, u64),
    TriggerMlvds(u8),
    TriggerFront(u8),
    TriggerSignal(bool),
    Clocks(Clocks),
    Set(Settings),
    /// `None`: the model's own.
    ModuleId(Option<u32>),
    Options(Option<u32>),
    Serial(u16),
    Lose {
        source: Source,
        count: u64,
        is_event: bool,
    },
    Spurious(u64),
    User,
    Hang(Unit, u64),
    Short {
        unit: Unit,
        count: u64,
        after: u64,
        is_done: bool,
    },
    AllOnes(bool),
    /// Power goes and comes back.
    PowerCycle,
}

impl Order {
    /// Understands a line; `settings` and `clocks` are the current ones.
    pub(super) fn parse(line: &str, settings: &Settings, clocks: &Clocks) -> Result<Order, CommandError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut words =
            Words { command: words.first().copied().unwrap_or_default(), rest: words.get(1..).unwrap_or(&[]) };
        let order = match words.command {
            "trigger" => trigger(&mut words)?,
            "clock" => Order::Clocks(set_clock(&mut words, *clocks)?),
            "set" => Order::Set(set(&mut words, *settings)?),
            "module-id" => Order::ModuleId(words.register()?),
            "options" => Order::Options(words.register()?),
            "serial" => {
                let expected = "a whole number below 65536";
                Order::Serial(words.parsed("the number", expected, |word| word.parse().ok())?)
            }
            "lose" => lose(&mut words)?,
            "spurious" => Order::Spurious(words.optional_number()?),
            "interrupt" => words.choice("user", &[Order::User])?,
            "hang" => Order::Hang(words.unit()?, words.optional_number()?),
            "short" => short(&mut words)?,
            "power-cycle" => Order::PowerCycle,
            "all-ones" if words.rest == ["on"] => return Ok(Order::AllOnes(true)),
            "all-ones" if words.rest == ["off"] => return Ok(Order::AllOnes(false)),
            _ => {
                return match Command::parse(line) {
                    // The latency endpoint alone shows another link than it has.
                    Ok(Command::Link(_)) => Err(CommandError::Unknown { word: "link".to_owned(), known: KNOWN }),
                    Err(CommandError::Unknown { word, .. }) => Err(CommandError::Unknown { word, known: KNOWN }),
                    parsed => parsed.map(Order::Common),
                };
            }
        };
        words.end()?;
        Ok(order)
    }
}

fn trigger(words: &mut Words<'_>) -> Result<Order, CommandError> {
    Ok(match words.word("rate, shot, mlvds, front or signal")? {
        "rate" => Order::TriggerRate(words.millihertz()?),
        "shot" => {
            let count = words.optional_number()?;
            let gap = if words.rest.is_empty() { 0 } else { words.long_time("the time between them")? };
            Order::TriggerShots(count, gap)
        }
        "mlvds" => Order::TriggerMlvds(words.mask(0xff)?),
        "front" => Order::TriggerFront(words.mask(0xf)?),
        "signal" => Order::TriggerSignal(words.switch()?),
        word => return Err(words.wrong(word, "rate, shot, mlvds, front or signal")),
    })
}

fn set_clock(words: &mut Words<'_>, mut clocks: Clocks) -> Result<Clocks, CommandError> {
    const NAMES: &str = "rtm2, tclka, tclkb, front, sma or multiplier";
    let name = words.word(NAMES)?;
    let hertz = words.number("the frequency in Hz")?;
    *match name {
        "rtm2" => &mut clocks.rtm2,
        "tclka" => &mut clocks.tclka,
        "tclkb" => &mut clocks.tclkb,
        "front" => &mut clocks.front,
        "sma" => &mut clocks.sma,
        "multiplier" => &mut clocks.multiplier,
        word => return Err(words.wrong(word, NAMES)),
    } = hertz;
    Ok(clocks)
}

fn set(words: &mut Words<'_>, mut settings: Settings) -> Result<Settings, CommandError> {
    const NAMES: &str = "latch, message, daq-done, past-end, restart, busy-blocks, flush, align, stop or round-trip";
    match words.word(NAMES)? {
        "latch" => settings.latch = words.choice("always or enabled", &[Latch::Always, Latch::Enabled])?,
        "message" => settings.rule = words.choice("edge or each", &[MessageRule::Edge, MessageRule::Each])?,
        "daq-done" => {
            let choices = [DaqDone::AfterFlush, DaqDone::BeforeFlush, DaqDone::Absent];
            settings.daq_done = words.choice("after-flush, before-flush or none", &choices)?;
        }
        "past-end" => {
            let choices = [PastEnd::Zeros, PastEnd::Wrap, PastEnd::Stop];
            settings.past_end = words.choice("zeros, wrap or stop", &choices)?;
        }
        "restart" => {
            settings.restart = words.choice("ignore or restart", &[Restart::Ignore, Restart::Restart])?;
        }
        "busy-blocks" => {
            let choices = [BusyBlocks::Progress, BusyBlocks::Start, BusyBlocks::Ones];
            settings.busy_blocks = words.choice("progress, start or ones", &choices)?;
        }
        "flush" => settings.flush_ns = words.long_time("the time")?,
        "align" => settings.is_aligned = words.choice("64 or any", &[true, false])?,
        "stop" => settings.has_stop = words.switch()?,
        "round-trip" => settings.round_trip_ns = words.long_time("the time")?.max(1),
        word => return Err(words.wrong(word, NAMES)),
    }
    Ok(settings)
}

fn lose(words: &mut Words<'_>) -> Result<Order, CommandError> {
    let source = words.choice("dma, dma-write, daq or user", &Source::ALL)?;
    Ok(Order::Lose { source, count: words.number("how many")?, is_event: words.takes("event") })
}

fn short(words: &mut Words<'_>) -> Result<Order, CommandError> {
    let unit = words.unit()?;
    if unit == Unit::Daq {
        return Err(words.wrong("daq", "dma or dma-write"));
    }
    let count = words.number("how many")?;
    words.parsed("`after BYTES`", "`after`", |word| (word == "after").then_some(()))?;
    let after = words.number("after how many bytes")?;
    Ok(Order::Short { unit, count, after, is_done: !words.takes("silent") })
}

impl Words<'_> {
    fn optional_number(&mut self) -> Result<u64, CommandError> {
        if self.rest.is_empty() { Ok(1) } else { self.number("a number") }
    }

    fn unit(&mut self) -> Result<Unit, CommandError> {
        self.choice("dma, dma-write or daq", &[Unit::DmaRead, Unit::DmaWrite, Unit::Daq])
    }

    fn register(&mut self) -> Result<Option<u32>, CommandError> {
        if self.takes("default") {
            return Ok(None);
        }
        let expected = "a number of 32 bits, like 0x83021809, or default";
        self.parsed("a number, or default,", expected, |word| parse_number(word)?.try_into().ok().map(Some))
    }

    fn mask(&mut self, most: u8) -> Result<u8, CommandError> {
        self.parsed("the lines, by bit,", "a mask of the lines that there are, like 0x1", |word| {
            u8::try_from(parse_number(word)?).ok().filter(|mask| *mask <= most)
        })
    }

    fn long_time(&mut self, what: &'static str) -> Result<u64, CommandError> {
        let expected = "a time of at most an hour, in whole ns, us, ms or s, like 20us";
        self.parsed(what, expected, |word| {
            let time = parse_scaled(word, &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)])?;
            (time <= 3_600_000_000_000).then_some(time)
        })
    }

    /// A rate in Hz with up to 3 decimals, or `off`.
    fn millihertz(&mut self) -> Result<u64, CommandError> {
        let word = self.word("pulses per second, or off,")?;
        if word == "off" {
            return Ok(0);
        }
        let (whole, part) = word.split_once('.').unwrap_or((word, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let whole = whole.parse::<u64>().ok().filter(|whole| *whole <= 1_000_000);
        let part = (part.len() <= 3 && digits(part)).then(|| format!("{part:0<3}").parse::<u64>().unwrap_or(0));
        let rate =
            whole.zip(part).map(|(whole, part)| whole * 1000 + part).filter(|rate| (1..=1_000_000_000).contains(rate));
        rate.ok_or_else(|| self.wrong(word, "a rate from 0.001 to 1000000 per second, like 14, or off"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Order, String> {
        Order::parse(line, &Settings::default(), &Clocks::default()).map_err(|err| err.to_string())
    }

    #[test]
    fn every_command_is_understood() {
        let settings = Settings::default();
        for (line, order) in [
            ("ledger", Order::Common(Command::Ledger)),
            (" remove ", Order::Common(Command::Remove)),
            ("all-ones after 3", Order::Common(Command::AllOnes(Some(3)))),
            ("all-ones on", Order::AllOnes(true)),
            ("all-ones off", Order::AllOnes(false)),
            ("power-cycle", Order::PowerCycle),
            ("trigger rate 14", Order::TriggerRate(14_000)),
            ("trigger rate 0.05", Order::TriggerRate(50)),
            ("trigger rate off", Order::TriggerRate(0)),
            ("trigger shot", Order::TriggerShots(1, 0)),
            ("trigger shot 5 2ms", Order::TriggerShots(5, 2_000_000)),
            ("trigger mlvds 0x81", Order::TriggerMlvds(0x81)),
            ("trigger front 15", Order::TriggerFront(15)),
            ("trigger signal off", Order::TriggerSignal(false)),
            ("clock sma 100000000", Order::Clocks(Clocks { sma: 100_000_000, ..Clocks::default() })),
            ("set latch enabled", Order::Set(Settings { latch: Latch::Enabled, ..settings })),
            ("set message each", Order::Set(Settings { rule: MessageRule::Each, ..settings })),
            ("set daq-done none", Order::Set(Settings { daq_done: DaqDone::Absent, ..settings })),
            ("set daq-done before-flush", Order::Set(Settings { daq_done: DaqDone::BeforeFlush, ..settings })),
            ("set past-end wrap", Order::Set(Settings { past_end: PastEnd::Wrap, ..settings })),
            ("set restart restart", Order::Set(Settings { restart: Restart::Restart, ..settings })),
            ("set busy-blocks ones", Order::Set(Settings { busy_blocks: BusyBlocks::Ones, ..settings })),
            ("set flush 3us", Order::Set(Settings { flush_ns: 3_000, ..settings })),
            ("set align any", Order::Set(Settings { is_aligned: false, ..settings })),
            ("set stop off", Order::Set(Settings { has_stop: false, ..settings })),
            ("set round-trip 2us", Order::Set(Settings { round_trip_ns: 2_000, ..settings })),
            ("module-id 0x12345678", Order::ModuleId(Some(0x1234_5678))),
            ("module-id default", Order::ModuleId(None)),
            ("options 3", Order::Options(Some(3))),
            ("serial 77", Order::Serial(77)),
            ("lose dma 3", Order::Lose { source: Source::DmaRead, count: 3, is_event: false }),
            ("lose daq 1 event", Order::Lose { source: Source::Daq, count: 1, is_event: true }),
            ("spurious", Order::Spurious(1)),
            ("spurious 4", Order::Spurious(4)),
            ("interrupt user", Order::User),
            ("hang dma", Order::Hang(Unit::DmaRead, 1)),
            ("hang daq 2", Order::Hang(Unit::Daq, 2)),
            ("short dma 1 after 4096", Order::Short { unit: Unit::DmaRead, count: 1, after: 4096, is_done: true }),
            (
                "short dma-write 2 after 0 silent",
                Order::Short { unit: Unit::DmaWrite, count: 2, after: 0, is_done: false },
            ),
        ] {
            assert_eq!(parse(line), Ok(order), "{line}");
        }
    }

    #[test]
    fn a_refusal_says_which_word_and_why() {
        let rate = "is not a rate from 0.001 to 1000000 per second, like 14, or off";
        for (line, refusal) in [
            ("leger", format!("unknown command `leger`; known are {KNOWN}")),
            ("link 1 2", format!("unknown command `link`; known are {KNOWN}")),
            ("trigger", "trigger: rate, shot, mlvds, front or signal is missing".to_owned()),
            ("trigger rate 0", format!("trigger: `0` {rate}")),
            ("trigger rate 1.2345", format!("trigger: `1.2345` {rate}")),
            ("trigger rate 1000001", format!("trigger: `1000001` {rate}")),
            ("trigger rate .5", format!("trigger: `.5` {rate}")),
            ("trigger rate 1 2", "trigger: `2` is one word too many".to_owned()),
            ("trigger front 0x10", "trigger: `0x10` is not a mask of the lines that there are, like 0x1".to_owned()),
            ("clock sma", "clock: the frequency in Hz is missing".to_owned()),
            ("clock tclk 5", "clock: `tclk` is not rtm2, tclka, tclkb, front, sma or multiplier".to_owned()),
            ("set latch never", "set: `never` is not always or enabled".to_owned()),
            (
                "set flush 2h",
                "set: `2h` is not a time of at most an hour, in whole ns, us, ms or s, like 20us".to_owned(),
            ),
            ("module-id x", "module-id: `x` is not a number of 32 bits, like 0x83021809, or default".to_owned()),
            ("serial 65536", "serial: `65536` is not a whole number below 65536".to_owned()),
            ("lose irq 1", "lose: `irq` is not dma, dma-write, daq or user".to_owned()),
            ("lose dma", "lose: how many is missing".to_owned()),
            ("lose dma 1 message", "lose: `message` is one word too many".to_owned()),
            ("short daq 1 after 5", "short: `daq` is not dma or dma-write".to_owned()),
            ("short dma 1", "short: `after BYTES` is missing".to_owned()),
            ("interrupt dma", "interrupt: `dma` is not user".to_owned()),
            ("all-ones maybe", "all-ones: `maybe` is not `after`, `next` or `off`".to_owned()),
        ] {
            assert_eq!(parse(line), Err(refusal), "{line}");
        }
    }
}
