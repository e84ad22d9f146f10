//! The counter board: the PCI function on which the models of root port and DRAM counters live.
//! docs/spec/counter-board.md.

mod line;

use pciescope_core::Bdf;
use serde_json::{Map, Value, json};

use self::line::InterruptLine;
use super::command::CommandError;
use super::config::{ConfigSpace, Identity};
use super::drw::{self, DrwBank};
use super::express::{self, Express};
use super::rasdes::{PAGE, RasdesBank, Shape};
use super::traffic::Traffic;
use super::words::{Words, parse_number};
use super::{Bus, Delivery, DeviceModel, Layout, Message, Wait, read_dwords};

/// Functions that the directory has room for.
pub const FUNCTIONS_MAX: usize = 48;
/// Sub-channels that the directory has room for.
pub const SUB_CHANNELS_MAX: usize = 32;
/// Interrupt lines.
pub const LINES_MAX: usize = 16;

const BAR_BYTES: u64 = 0x4_0000;
const ID: u32 = 0x5c0f_c0de;
const VERSION: u32 = 1;
const FOREIGN: u64 = 0x40;
const FUNCTIONS: u64 = 0x100;
const FUNCTION_BYTES: u64 = 16;
const SUB_CHANNELS: u64 = 0x800;
const SUB_CHANNEL_BYTES: u64 = 32;
const IDENTITY: Identity = Identity {
    vendor: 0x1234,
    device: 0x5c0f,
    subsystem_vendor: 0x1234,
    subsystem: 0x0001,
    class: 0xff_0000,
    revision: 1,
};
/// Bytes of a DRAM line.
const LINE: u64 = 64;
const KNOWN: &str = "ledger, reset, port, dram, foreign";

/// A PCI function of the machine that gets the block's registers.
struct Function {
    bdf: Bdf,
    vendor: u16,
    device: u16,
    shape: Shape,
    bank: RasdesBank,
    express: Express,
}

/// A DRAM sub-channel's PMU.
struct SubChannel {
    address: u64,
    die: u8,
    line: usize,
    bank: DrwBank,
}

/// The board.
pub struct CounterBoard {
    config: ConfigSpace,
    traffic: Traffic,
    functions: Vec<Function>,
    sub_channels: Vec<SubChannel>,
    lines: Vec<InterruptLine>,
    /// All lines come on the function's pin, not as messages.
    has_pin: bool,
    now_ns: u64,
}

/// Its configuration space, without MSI.
fn space(has_pin: bool) -> ConfigSpace {
    ConfigSpace::new(&IDENTITY, has_pin)
        .with_bar64(0, BAR_BYTES, false)
        .with_bar64(2, BAR_BYTES, false)
        .with_power_management()
}

impl CounterBoard {
    /// A board without functions and sub-channels.
    pub fn new(traffic: Traffic) -> Self {
        CounterBoard {
            config: space(false).with_msi(LINES_MAX as u16),
            traffic,
            functions: Vec::new(),
            sub_channels: Vec::new(),
            lines: Vec::new(),
            has_pin: false,
            now_ns: 0,
        }
    }

    /// The same board with an interrupt pin, which stands for all lines: a level, as hardware has it.
    pub fn with_pin(self) -> Self {
        CounterBoard { config: space(true), has_pin: true, ..self }
    }

    /// The seed's machine as far as QEMU allows: 18 root ports of Gen5, 16 sub-channels on 2 dies. Which bridges there
    /// are is the guest's part.
    pub fn seed_machine(traffic: Traffic) -> Self {
        let mut board = CounterBoard::new(traffic);
        for bdf in seed_ports() {
            let width = if bdf.bus == 0x98 || bdf.bus == 0xb0 { 16 } else { 4 };
            board = board.function(bdf, (0x1ded, 0x8000), Shape { width, ..Shape::default() });
        }
        for die in 0..2u64 {
            for channel in 0..4u64 {
                for half in 0..2u64 {
                    let address = die << 42 | (0x2100_0000 + channel * 0x200_0000 + half * 0x8_0000);
                    board = board.sub_channel(address, die as u8, (die * 4 + channel) as usize);
                }
            }
        }
        board
    }

    /// Adds a function with the vendor and device that it is to show.
    ///
    /// # Panics
    /// There are [`FUNCTIONS_MAX`] already, or this one; its domain has more than 16 bits; the overlay's first byte
    /// or the block's place is no multiple of 4 from 0x100 on, or the block does not fit behind the list.
    pub fn function(mut self, bdf: Bdf, (vendor, device): (u16, u16), shape: Shape) -> Self {
        assert!(self.functions.len() < FUNCTIONS_MAX, "the directory has room for {FUNCTIONS_MAX} functions");
        assert!(self.functions.iter().all(|function| function.bdf != bdf), "{bdf} is there already");
        assert!(bdf.domain <= 0xffff, "{bdf}: the directory has 16 bits for a domain");
        assert!(shape.is_sound(), "{bdf}: no such overlay: {shape:x?}");
        let bank = RasdesBank::new(self.traffic.port(bdf), shape);
        self.functions.push(Function { bdf, vendor, device, shape, bank, express: Express::default() });
        self
    }

    /// Adds a sub-channel, named after its address as the drivers do: 0x2100_0000 is `21000`.
    ///
    /// # Panics
    /// There are [`SUB_CHANNELS_MAX`] already, or this one, or the line is not below [`LINES_MAX`].
    pub fn sub_channel(mut self, address: u64, die: u8, line: usize) -> Self {
        let name = format!("{:x}", address >> 12);
        assert!(
            self.sub_channels.len() < SUB_CHANNELS_MAX,
            "the directory has room for {SUB_CHANNELS_MAX} sub-channels"
        );
        assert!(self.sub_channels.iter().all(|sub| sub.bank.name() != name), "{name} is there already");
        assert!(line < LINES_MAX, "{name}: there are {LINES_MAX} lines");
        self.lines.resize_with(self.lines.len().max(line + 1), InterruptLine::default);
        let bank = DrwBank::new(self.traffic.sub_channel(die, &name));
        self.sub_channels.push(SubChannel { address, die, line, bank });
        self
    }

    /// The functions, with the vendor and device that each is to show.
    pub fn functions(&self) -> impl Iterator<Item = (Bdf, u16, u16)> {
        self.functions.iter().map(|function| (function.bdf, function.vendor, function.device))
    }

    fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        let now_ns = self.now_ns;
        self.functions.iter_mut().for_each(|function| function.bank.advance(now_ns));
        self.sub_channels.iter_mut().for_each(|sub| sub.bank.advance(now_ns));
        self.look_at_lines();
    }

    /// Messages for the lines that have gone high.
    fn look_at_lines(&mut self) {
        for (number, line) in self.lines.iter_mut().enumerate() {
            let is_asserted = self.sub_channels.iter().any(|sub| sub.line == number && sub.bank.is_asserted());
            line.look(is_asserted);
        }
    }

    fn send(&mut self, bus: &mut dyn Bus) {
        for (vector, line) in (0..).zip(&mut self.lines) {
            if line.take_message() {
                bus.send(Message { vector, delay_ns: 0, is_copy: false });
            }
        }
    }

    /// Reads BAR 0's directory, dword by dword.
    fn read_directory(&self, offset: u64) -> u32 {
        match offset {
            0x000 => ID,
            0x004 => VERSION,
            0x008 => self.functions.len() as u32,
            0x00c => self.sub_channels.len() as u32,
            0x010 => self.lines.len() as u32,
            FOREIGN..0x80 => {
                self.lines.get(((offset - FOREIGN) / 4) as usize).map_or(0, |line| u32::from(line.is_foreign()))
            }
            FUNCTIONS..0x400 => {
                let (index, field) = ((offset - FUNCTIONS) / FUNCTION_BYTES, (offset - FUNCTIONS) % FUNCTION_BYTES);
                self.functions.get(index as usize).map_or(0, |function| function.entry(field))
            }
            SUB_CHANNELS..0xc00 => {
                let offset = offset - SUB_CHANNELS;
                let (index, field) = (offset / SUB_CHANNEL_BYTES, offset % SUB_CHANNEL_BYTES);
                self.sub_channels.get(index as usize).map_or(0, |sub| sub.entry(index, field))
            }
            _ => 0,
        }
    }

    fn read_bar0(&mut self, offset: u64, to: &mut [u8]) {
        if offset < PAGE {
            read_dwords(offset, to, PAGE, |register| self.read_directory(register));
            return;
        }
        let now_ns = self.now_ns;
        match self.functions.get_mut((offset / PAGE - 1) as usize) {
            Some(function) if offset % PAGE < express::BYTES => {
                read_dwords(offset % PAGE, to, express::BYTES, |register| function.express.read(register as usize));
            }
            Some(function) => function.bank.read(now_ns, offset % PAGE, to),
            None => to.fill(0),
        }
    }

    fn write_bar0(&mut self, offset: u64, from: &[u8]) {
        if offset >= PAGE {
            let now_ns = self.now_ns;
            if let Some(function) = self.functions.get_mut((offset / PAGE - 1) as usize) {
                match offset % PAGE {
                    at @ 0..express::BYTES => function.express.write(at as usize, from),
                    at => function.bank.write(now_ns, at, from),
                }
            }
            return;
        }
        // Of each register, bit 0 is in the first byte.
        for (index, value) in from.iter().enumerate() {
            let at = offset + index as u64;
            if (FOREIGN..0x80).contains(&at) && at % 4 == 0 && value & 1 != 0 {
                self.lines.get_mut(((at - FOREIGN) / 4) as usize).into_iter().for_each(InterruptLine::clear_foreign);
            }
        }
    }

    fn write_bar2(&mut self, offset: u64, from: &[u8]) {
        let now_ns = self.now_ns;
        let Some(sub) = self.sub_channels.get_mut((offset / drw::WINDOW) as usize) else { return };
        let (line, offset) = (sub.line, offset % drw::WINDOW);
        sub.bank.write(now_ns, offset, from);
        if DrwBank::is_answer(offset, from.len()) {
            self.lines.get_mut(line).into_iter().for_each(InterruptLine::answer);
        }
    }

    fn command_ports(&mut self, words: &[&str]) -> Result<(), CommandError> {
        let missing = || CommandError::missing("port", "a root port's address, or all");
        let (name, rest) = words.split_first().ok_or_else(missing)?;
        let is_all = *name == "all";
        let bdf = name.parse::<Bdf>().ok();
        if !is_all && !self.functions.iter().any(|function| Some(function.bdf) == bdf) {
            let known = self.functions.iter().map(|function| function.bdf.to_string());
            return Err(absent("port", "root port", name, known));
        }
        let mut of_name = self.functions.iter_mut().filter(|function| is_all || Some(function.bdf) == bdf);
        of_name.try_for_each(|function| match rest {
            ["express", rest @ ..] => function.express.command(rest),
            _ => function.bank.command(self.now_ns, rest),
        })
    }

    fn command_dram(&mut self, words: &[&str]) -> Result<(), CommandError> {
        let now_ns = self.now_ns;
        match *words {
            ["data-rate", rate] => {
                let parsed = rate.parse().ok().filter(|rate| (1..=100_000).contains(rate));
                let rate =
                    parsed.ok_or_else(|| CommandError::wrong("dram", rate, "a data rate in MT/s, from 1 to 100000"))?;
                self.sub_channels.iter_mut().for_each(|sub| sub.bank.set_data_rate(now_ns, rate));
            }
            ["split", "none"] => self.traffic.set_split(None),
            ["split", word] => {
                let address = parse_number(word).filter(|address| address % LINE == 0);
                let expected = "an address at a line of 64 bytes, or none";
                address.ok_or_else(|| CommandError::wrong("dram", word, expected))?;
                self.traffic.set_split(address);
            }
            [command @ ("data-rate" | "split")] => {
                let what = if command == "split" { "an address" } else { "a data rate" };
                return Err(CommandError::missing(&format!("dram {command}"), what));
            }
            ["data-rate" | "split", _, extra, ..] => return Err(CommandError::extra("dram", extra)),
            [name, ref rest @ ..] => {
                let is_all = name == "all";
                if !is_all && !self.sub_channels.iter().any(|sub| sub.bank.name() == name) {
                    let known = self.sub_channels.iter().map(|sub| sub.bank.name().to_owned());
                    return Err(absent("dram", "sub-channel", name, known));
                }
                let of_name = |sub: &&mut SubChannel| is_all || sub.bank.name() == name;
                for sub in self.sub_channels.iter_mut().filter(of_name) {
                    sub.bank.command(now_ns, rest)?;
                }
            }
            [] => return Err(CommandError::missing("dram", "a sub-channel, all, data-rate or split")),
        }
        Ok(())
    }

    fn command_foreign(&mut self, words: &[&str]) -> Result<(), CommandError> {
        let mut words = Words { command: "foreign", rest: words };
        let word = words.word("a line")?;
        words.end()?;
        let count = self.lines.len();
        let line = word.parse::<usize>().ok().and_then(|number| self.lines.get_mut(number));
        line.ok_or_else(|| absent("foreign", "line", word, (0..count).map(|n| n.to_string())))?.assert_foreign();
        Ok(())
    }

    fn restart(&mut self) {
        for function in &mut self.functions {
            function.bank.reset();
            function.express = Express::default();
        }
        self.sub_channels.iter_mut().for_each(|sub| sub.bank.reset());
        self.lines.iter_mut().for_each(|line| *line = InterruptLine::default());
        self.traffic.set_split(None);
    }

    fn ledger(&self) -> Value {
        let ports: Map<String, Value> =
            self.functions.iter().map(|function| (function.bdf.to_string(), function.bank.ledger())).collect();
        let dram: Map<String, Value> =
            self.sub_channels.iter().map(|sub| (sub.bank.name().to_owned(), sub.bank.ledger())).collect();
        let lines: Vec<Value> = self.lines.iter().map(InterruptLine::ledger).collect();
        json!({"ports": ports, "dram": dram, "lines": lines, "now_ns": self.now_ns})
    }
}

impl Function {
    fn entry(&self, field: u64) -> u32 {
        match field {
            0x0 => self.bdf.domain << 16 | u32::from(self.bdf.bus) << 8 | u32::from(self.bdf.devfn()),
            0x4 => u32::from(self.device) << 16 | u32::from(self.vendor),
            0x8 => self.shape.first.into(),
            _ => 0,
        }
    }
}

impl SubChannel {
    fn entry(&self, index: u64, field: u64) -> u32 {
        match field {
            0x00 => self.address as u32,
            0x04 => (self.address >> 32) as u32,
            0x08 => (index * drw::WINDOW) as u32,
            0x0c => self.line as u32,
            0x10 => self.die.into(),
            _ => 0,
        }
    }
}

/// The 18 root ports; QEMU's host bridge has the place of the first.
fn seed_ports() -> impl Iterator<Item = Bdf> {
    let x4 = [0x00, 0x10, 0x30, 0x80].into_iter().flat_map(|bus| (0..4).map(move |device| (bus, device)));
    x4.chain([(0x98, 0), (0xb0, 0)]).map(|(bus, device)| {
        let device = if (bus, device) == (0, 0) { 4 } else { device };
        Bdf { domain: 0, bus, device, function: 0 }
    })
}

fn absent(command: &str, what: &str, word: &str, known: impl Iterator<Item = String>) -> CommandError {
    let known: Vec<String> = known.collect();
    let known = if known.is_empty() { "none".to_owned() } else { format!("{} and all", known.join(", ")) };
    CommandError::Words(format!("{command}: no {what} is called `{word}`; there are {known}"))
}

impl DeviceModel for CounterBoard {
    fn layout(&self) -> Layout {
        let msi = if self.has_pin { 0 } else { LINES_MAX as u16 };
        Layout { bars: [BAR_BYTES, 0, BAR_BYTES, 0, 0, 0], intx: self.has_pin, msi, msix: 0 }
    }

    fn config_read(&mut self, offset: u64, to: &mut [u8]) -> Wait {
        self.config.read(offset, to);
        0
    }

    fn config_write(&mut self, offset: u64, from: &[u8]) -> Wait {
        // There is no PCI Express capability, and with that no function-level reset.
        let _ = self.config.write(offset, from);
        0
    }

    fn bar_read(&mut self, now_ns: u64, bar: u8, offset: u64, to: &mut [u8]) -> Wait {
        to.fill(0xff);
        if !self.decodes(bar, offset, to.len()) {
            return 0;
        }
        self.now_ns = self.now_ns.max(now_ns);
        if bar == 0 {
            self.read_bar0(offset, to);
        } else {
            let now_ns = self.now_ns;
            match self.sub_channels.get_mut((offset / drw::WINDOW) as usize) {
                Some(sub) => sub.bank.read(now_ns, offset % drw::WINDOW, to),
                None => to.fill(0),
            }
            self.look_at_lines();
        }
        0
    }

    fn bar_write(&mut self, now_ns: u64, bar: u8, offset: u64, from: &[u8], bus: &mut dyn Bus) -> Wait {
        if !self.decodes(bar, offset, from.len()) {
            return 0;
        }
        self.now_ns = self.now_ns.max(now_ns);
        if bar == 0 {
            self.write_bar0(offset, from);
        } else {
            self.write_bar2(offset, from);
        }
        self.look_at_lines();
        self.send(bus);
        0
    }

    /// A line's message only says that something happened, so every source is checked for each message.
    fn merges_messages(&self) -> bool {
        true
    }

    fn may_deliver(&mut self, _message: &Message) -> Delivery {
        if self.config.can_interrupt() { Delivery::Now } else { Delivery::Never }
    }

    fn delivered(&mut self, message: &Message, sent: bool) {
        if let Some(line) = self.lines.get_mut(usize::from(message.vector)) {
            line.delivered(sent);
        }
    }

    fn intx(&self) -> bool {
        self.has_pin && self.lines.iter().any(InterruptLine::is_high)
    }

    /// The blocks' registers are sticky; those of the Driveway PMUs are not.
    fn reset(&mut self) {
        let now_ns = self.now_ns;
        self.config.reset();
        self.sub_channels.iter_mut().for_each(|sub| sub.bank.function_reset(now_ns));
        self.lines.iter_mut().for_each(InterruptLine::reset);
    }

    fn next_work(&self) -> Option<u64> {
        if self.lines.iter().any(InterruptLine::has_message) {
            return Some(self.now_ns);
        }
        let ports = self.functions.iter().filter_map(|function| function.bank.next_work());
        let dram = self.sub_channels.iter().filter_map(|sub| sub.bank.next_work(self.now_ns));
        ports.chain(dram).min()
    }

    fn work(&mut self, now_ns: u64, bus: &mut dyn Bus) {
        self.advance(now_ns);
        self.send(bus);
    }

    fn set_clock(&mut self, now_ns: u64) {
        self.advance(now_ns);
    }

    fn command(&mut self, line: &str) -> Result<Value, CommandError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words {
            ["ledger"] => {
                self.advance(self.now_ns);
                return Ok(self.ledger());
            }
            ["reset"] => self.restart(),
            ["port", ref rest @ ..] => self.command_ports(rest)?,
            ["dram", ref rest @ ..] => self.command_dram(rest)?,
            ["foreign", ref rest @ ..] => self.command_foreign(rest)?,
            [command @ ("ledger" | "reset"), word, ..] => return Err(CommandError::extra(command, word)),
            _ => {
                let word = words.first().copied().unwrap_or_default().to_owned();
                return Err(CommandError::Unknown { word, known: KNOWN });
            }
        }
        self.look_at_lines();
        Ok(Value::Null)
    }
}

impl CounterBoard {
    /// Whether an access hits a BAR that the guest has enabled.
    fn decodes(&self, bar: u8, offset: u64, len: usize) -> bool {
        let is_inside = offset.checked_add(len as u64).is_some_and(|end| end <= BAR_BYTES);
        is_inside && matches!(bar, 0 | 2) && self.config.is_memory_enabled()
    }
}

#[cfg(test)]
mod tests;
