//! What the control socket sets. docs/spec/sis8300.md, "Control".

use super::interrupts::Source;
use super::trigger::Lines;
use crate::device::command::{Command, CommandError};
use crate::device::faults::Faults;
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

/// Transfers that are to stop short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Short {
    pub(super) left: u64,
    pub(super) after: u64,
    pub(super) is_done: bool,
}

/// What the sources about the board leave open, its surroundings, and the faults that it alone has.
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
    /// Its link carries this part of what its lanes could.
    pub(super) slowness: u64,
    pub(super) clocks: Clocks,
    /// `None`: the model's own.
    pub(super) module_id: Option<u32>,
    pub(super) options: Option<u32>,
    /// How many of each [`Unit`] hang.
    pub(super) hangs: [u64; 3],
    pub(super) shorts: [Option<Short>; 2],
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
            slowness: 1,
            clocks: Clocks::default(),
            module_id: None,
            options: None,
            hangs: [0; 3],
            shorts: [None; 2],
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
    Set(Settings, Lines),
    Serial(u16),
    Lose {
        source: Source,
        count: u64,
        is_event: bool,
    },
    Spurious(u64),
    User,
    /// Power goes and comes back.
    PowerCycle,
}

impl Order {
    /// Understands a line; `faults`, `settings` and `lines` are the current ones.
    pub(super) fn parse(
        line: &str,
        faults: &Faults,
        mut settings: Settings,
        mut lines: Lines,
    ) -> Result<Order, CommandError> {
        const TRIGGER: &str = "rate, shot, mlvds, front or signal";
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut words =
            Words { command: words.first().copied().unwrap_or_default(), rest: words.get(1..).unwrap_or(&[]) };
        let mut order = None;
        match words.command {
            "trigger" => match words.word(TRIGGER)? {
                "rate" => order = Some(Order::TriggerRate(words.millihertz()?)),
                "shot" => {
                    let count = words.optional_number()?;
                    let gap = if words.rest.is_empty() { 0 } else { words.long_time("the time between them")? };
                    order = Some(Order::TriggerShots(count, gap));
                }
                "mlvds" => lines.mlvds = words.mask(0xff)?,
                "front" => lines.front = words.mask(0xf)?,
                "signal" => lines.has_signal = words.switch()?,
                word => return Err(words.wrong(word, TRIGGER)),
            },
            "clock" => set_clock(&mut words, &mut settings.clocks)?,
            "set" => set(&mut words, &mut settings)?,
            "module-id" => settings.module_id = words.register()?,
            "options" => settings.options = words.register()?,
            "serial" => {
                let expected = "a whole number below 65536";
                order = Some(Order::Serial(words.parsed("the number", expected, |word| word.parse().ok())?));
            }
            "lose" => {
                let source = words.choice("dma, dma-write, daq or user", &Source::ALL)?;
                let count = words.number("how many")?;
                order = Some(Order::Lose { source, count, is_event: words.takes("event") });
            }
            "spurious" => order = Some(Order::Spurious(words.optional_number()?)),
            "interrupt" => order = Some(words.choice("user", &[Order::User])?),
            "hang" => {
                let unit = words.unit()?;
                settings.hangs[unit as usize] = words.optional_number()?;
            }
            "short" => {
                let unit = words.unit()?;
                let short = settings.shorts.get_mut(unit as usize);
                let short = short.ok_or_else(|| words.wrong("daq", "dma or dma-write"))?;
                let left = words.number("how many")?;
                words.parsed("`after BYTES`", "`after`", |word| (word == "after").then_some(()))?;
                let after = words.number("after how many bytes")?;
                *short = Some(Short { left, after, is_done: !words.takes("silent") });
            }
            "power-cycle" => order = Some(Order::PowerCycle),
            _ => {
                let is_ones = (words.command, words.rest) == ("all-ones", &["on"]);
                return match Command::parse(if is_ones { "all-ones after 0" } else { line }, faults) {
                    // The latency endpoint alone shows another link than it has, and one that sleeps.
                    Ok(_) if matches!(words.command, "link" | "aspm-exit") => {
                        Err(CommandError::Unknown { word: words.command.to_owned(), known: KNOWN })
                    }
                    Err(CommandError::Unknown { word, .. }) => Err(CommandError::Unknown { word, known: KNOWN }),
                    parsed => parsed.map(Order::Common),
                };
            }
        }
        words.end()?;
        Ok(order.unwrap_or(Order::Set(settings, lines)))
    }
}

fn set_clock(words: &mut Words<'_>, clocks: &mut Clocks) -> Result<(), CommandError> {
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
    Ok(())
}

fn set(words: &mut Words<'_>, settings: &mut Settings) -> Result<(), CommandError> {
    const NAMES: &str =
        "latch, message, daq-done, past-end, restart, busy-blocks, flush, align, stop, round-trip or slowness";
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
        "restart" => settings.restart = words.choice("ignore or restart", &[Restart::Ignore, Restart::Restart])?,
        "busy-blocks" => {
            let choices = [BusyBlocks::Progress, BusyBlocks::Start, BusyBlocks::Ones];
            settings.busy_blocks = words.choice("progress, start or ones", &choices)?;
        }
        "flush" => settings.flush_ns = words.long_time("the time")?,
        "align" => settings.is_aligned = words.choice("64 or any", &[true, false])?,
        "stop" => settings.has_stop = words.switch()?,
        "round-trip" => settings.round_trip_ns = words.long_time("the time")?.max(1),
        "slowness" => settings.slowness = words.number("a number")?.max(1),
        word => return Err(words.wrong(word, NAMES)),
    }
    Ok(())
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
    use crate::device::sis8300::trigger::Generator;

    fn before() -> Settings {
        Settings { module_id: Some(7), ..Settings::default() }
    }

    fn parse(line: &str) -> Result<Order, String> {
        let parsed = Order::parse(line, &Faults::default(), before(), Generator::default().lines);
        parsed.map_err(|err| err.to_string())
    }

    #[test]
    fn every_command_is_understood() {
        let lines = Generator::default().lines;
        let set = |settings| Order::Set(settings, lines);
        let on_lines = |lines| Order::Set(before(), lines);
        let faults = |reads_left| Order::Common(Command::Faults(Box::new(Faults { reads_left, ..Faults::default() })));
        let hangs = |hangs| set(Settings { hangs, ..before() });
        let shorts = |shorts| set(Settings { shorts, ..before() });
        for (line, order) in [
            ("ledger", Order::Common(Command::Ledger)),
            (" remove ", Order::Common(Command::Remove)),
            ("all-ones after 3", faults(Some(3))),
            ("all-ones on", faults(Some(0))),
            ("all-ones off", faults(None)),
            ("power-cycle", Order::PowerCycle),
            ("trigger rate 14", Order::TriggerRate(14_000)),
            ("trigger rate 0.05", Order::TriggerRate(50)),
            ("trigger rate off", Order::TriggerRate(0)),
            ("trigger shot", Order::TriggerShots(1, 0)),
            ("trigger shot 5 2ms", Order::TriggerShots(5, 2_000_000)),
            ("trigger mlvds 0x81", on_lines(Lines { mlvds: 0x81, ..lines })),
            ("trigger front 15", on_lines(Lines { front: 15, ..lines })),
            ("trigger signal off", on_lines(Lines { has_signal: false, ..lines })),
            (
                "clock sma 100000000",
                set(Settings { clocks: Clocks { sma: 100_000_000, ..Clocks::default() }, ..before() }),
            ),
            ("set latch enabled", set(Settings { latch: Latch::Enabled, ..before() })),
            ("set message each", set(Settings { rule: MessageRule::Each, ..before() })),
            ("set daq-done none", set(Settings { daq_done: DaqDone::Absent, ..before() })),
            ("set daq-done before-flush", set(Settings { daq_done: DaqDone::BeforeFlush, ..before() })),
            ("set past-end wrap", set(Settings { past_end: PastEnd::Wrap, ..before() })),
            ("set restart restart", set(Settings { restart: Restart::Restart, ..before() })),
            ("set busy-blocks ones", set(Settings { busy_blocks: BusyBlocks::Ones, ..before() })),
            ("set flush 3us", set(Settings { flush_ns: 3_000, ..before() })),
            ("set align any", set(Settings { is_aligned: false, ..before() })),
            ("set stop off", set(Settings { has_stop: false, ..before() })),
            ("set round-trip 2us", set(Settings { round_trip_ns: 2_000, ..before() })),
            ("set slowness 20", set(Settings { slowness: 20, ..before() })),
            ("module-id 0x12345678", set(Settings { module_id: Some(0x1234_5678), ..before() })),
            ("module-id default", set(Settings { module_id: None, ..before() })),
            ("options 3", set(Settings { options: Some(3), ..before() })),
            ("serial 77", Order::Serial(77)),
            ("lose dma 3", Order::Lose { source: Source::DmaRead, count: 3, is_event: false }),
            ("lose daq 1 event", Order::Lose { source: Source::Daq, count: 1, is_event: true }),
            ("spurious", Order::Spurious(1)),
            ("spurious 4", Order::Spurious(4)),
            ("interrupt user", Order::User),
            ("hang dma", hangs([1, 0, 0])),
            ("hang daq 2", hangs([0, 0, 2])),
            ("short dma 1 after 4096", shorts([Some(Short { left: 1, after: 4096, is_done: true }), None])),
            ("short dma-write 2 after 0 silent", shorts([None, Some(Short { left: 2, after: 0, is_done: false })])),
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
            ("aspm-exit none", format!("unknown command `aspm-exit`; known are {KNOWN}")),
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
