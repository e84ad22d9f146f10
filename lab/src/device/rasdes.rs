//! The RAS D.E.S. block of one PCI function, and the list of capabilities that it is found by. docs/spec/rasdes.md.
//!
//! It counts the traffic that the traffic ledger has for the port, and the events that the control socket adds. Its
//! clock is the board's; every access first advances the block to the given time.

pub mod command;
pub mod events;
mod inject;
mod list;
pub mod time_based;

use serde_json::{Map, Value, json};

use self::command::Direction;
use self::events::{Counters, PortEvent};
use self::inject::Injection;
use self::list::{EXT_VENDOR, FOREIGN_AT, FOREIGN_BYTES, List};
use self::time_based::{Settings, TimeBased};
use super::traffic::{PortTotals, PortTraffic};
use super::{for_each_dword, read_dwords};

/// Bytes of a function's configuration page.
pub const PAGE: u64 = 0x1000;

const VSEC_BYTES: usize = 0x100;

const EVENT_COUNTER_CONTROL: usize = 0x08;
const EVENT_COUNTER_DATA: usize = 0x0c;
const TIME_BASED_CONTROL: usize = 0x10;
const TIME_BASED_DATA_LOW: usize = 0x14;
const TIME_BASED_DATA_HIGH: usize = 0x18;
/// Registers that make the link do something: SD_CONTROL1, SD_CONTROL2 and equalization control.
const DESTRUCTIVE: [usize; 5] = [0xa0, 0xa4, 0xd0, 0xd4, 0xd8];
const SD_STATUS_L1LANE: usize = 0xb0;
const SD_STATUS_L3FC: usize = 0xc0;
const L1LANE_DETECTED: u32 = 1 << 17;
const L1LANE_RX_VALID: u32 = 1 << 18;
const L1LANE_ELECTRICAL_IDLE: u32 = 3 << 19;
const L3FC_PICK: u32 = 0x7f;

const STATUS: u32 = 1 << 7;
/// No more different violations than this are kept.
const VIOLATIONS_MAX: usize = 32;
const NANOS: u128 = 1_000_000_000;

/// What a function is like; a reset of the board comes back to this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// First byte of the overlay, where the list of capabilities goes on.
    pub first: u16,
    /// Where the block lies.
    pub vsec: u16,
    /// Generation of the link.
    pub generation: u8,
    /// Lanes of the link.
    pub width: u8,
}

impl Default for Shape {
    /// A Gen5 x4 link; the block is the second capability of the overlay.
    fn default() -> Self {
        Shape { first: 0x200, vsec: 0x300, generation: 5, width: 4 }
    }
}

impl Shape {
    /// Whether the list and the block fit into configuration space, and do not overlap.
    pub fn is_sound(&self) -> bool {
        let (first, vsec) = (usize::from(self.first), usize::from(self.vsec));
        let is_aligned = first % 4 == 0 && vsec % 4 == 0;
        let list_end = first + FOREIGN_AT + FOREIGN_BYTES as usize;
        is_aligned && first >= 0x100 && list_end <= vsec && vsec + VSEC_BYTES <= PAGE as usize
    }
}

/// Steady payload: bytes collected since the last whole TLP, and the part of a byte.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    per_second: u64,
    begun: u128,
}

#[derive(Clone, Copy, Debug)]
struct Agent {
    every: u64,
    reads: u64,
}

/// The block of one function.
#[derive(Clone, Debug)]
pub struct RasdesBank {
    traffic: PortTraffic,
    shape: Shape,
    /// Device time that the state below is of, in nanoseconds.
    at_ns: u64,
    /// The traffic ledger at the start.
    base: PortTotals,
    /// Traffic that has been counted, the control socket's included.
    seen: PortTotals,
    /// Traffic of the control socket.
    own: PortTotals,
    rx: Stream,
    tx: Stream,
    list: List,
    width: u8,
    is_gone: bool,
    /// Reads of data that are still to be answered by all-ones.
    mute_reads: u64,
    agent: Option<Agent>,
    /// EVENT_SELECT.
    select: u16,
    /// LANE_SELECT.
    lane: u8,
    counters: Counters,
    time_based: TimeBased,
    injection: Injection,
    l1lane: u32,
    l3fc: u32,
    viewport_moves: u64,
    violations: Vec<String>,
}

impl RasdesBank {
    /// The block of the function whose traffic this is. What moved before now does not count.
    pub fn new(traffic: PortTraffic, shape: Shape) -> Self {
        let base = traffic.totals();
        RasdesBank {
            traffic,
            shape,
            at_ns: 0,
            base,
            seen: PortTotals::default(),
            own: PortTotals::default(),
            rx: Stream::default(),
            tx: Stream::default(),
            list: List::default(),
            width: shape.width,
            is_gone: false,
            mute_reads: 0,
            agent: None,
            select: 0,
            lane: 0,
            counters: Counters::default(),
            time_based: TimeBased::new(Settings::new(shape.generation)),
            injection: Injection::default(),
            l1lane: 0,
            l3fc: 0,
            viewport_moves: 0,
            violations: Vec::new(),
        }
    }

    /// Settings, registers and ledger as at the start, when nothing is steady. (No reset of the function itself comes
    /// here: all registers are sticky.)
    pub fn reset(&mut self) {
        *self = RasdesBank::new(self.traffic.clone(), self.shape);
    }

    /// Reads the function's configuration page at `now_ns`. Each register of which a byte is covered is read once.
    pub fn read(&mut self, now_ns: u64, offset: u64, to: &mut [u8]) {
        self.advance(now_ns);
        to.fill(0xff);
        if !self.is_gone {
            read_dwords(offset, to, PAGE, |register| self.read_register(register));
        }
    }

    /// Writes the function's configuration page at `now_ns`; bytes of a register that are not covered stay.
    pub fn write(&mut self, now_ns: u64, offset: u64, from: &[u8]) {
        self.advance(now_ns);
        for_each_dword(offset, from.len(), PAGE, |register, skip, at, len| {
            let mut value = [0; 4];
            value[skip..skip + len].copy_from_slice(&from[at..at + len]);
            let bytes = std::array::from_fn(|byte| (skip..skip + len).contains(&byte).then_some(value[byte]));
            if !self.is_gone {
                self.write_register(register, bytes);
            }
        });
    }

    /// When a measurement of fixed duration ends, on the device's clock.
    pub fn next_work(&self) -> Option<u64> {
        self.time_based.ends_at()
    }

    /// Lets time pass until `now_ns`: steady payload, time in link states, and what the traffic ledger has had meanwhile.
    pub fn advance(&mut self, now_ns: u64) {
        if let Some(end) = self.time_based.ends_at().filter(|end| *end <= now_ns) {
            self.pass_until(end);
            self.time_based.finish();
        }
        self.pass_until(now_ns);
    }

    fn pass_until(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.at_ns);
        self.at_ns = self.at_ns.max(now_ns);
        for direction in [Direction::Rx, Direction::Tx] {
            self.pass_stream(direction, passed);
        }
        let now = self.totals();
        let moved = now.since(&self.seen);
        self.seen = now;
        self.time_based.pass(passed, &moved);
        if moved == PortTotals::default() {
            return;
        }
        let counters = &mut self.counters;
        let (rx, tx) = (moved.rx_tlps(), moved.tx_tlps());
        let counts = [
            (0x600, rx),
            (0x601, rx),
            (0x602, tx),
            (0x603, tx),
            (0x700, moved.tx_mwr),
            (0x701, moved.tx_mrd),
            (0x702, moved.tx_cfgwr),
            (0x703, moved.tx_cfgrd),
            (0x707, moved.tx_cpld),
            (0x70b, moved.rx_mwr),
            (0x70c, moved.rx_mrd),
            (0x711, moved.rx_cpl),
            (0x712, moved.rx_cpld),
        ];
        for (select, n) in counts {
            PortEvent::new(select).into_iter().for_each(|event| counters.happen(event, 0, n));
        }
        self.injection.pass(&moved, |event, n| counters.happen(event, 0, n));
    }

    /// Everything that passed the port since the start.
    fn totals(&self) -> PortTotals {
        self.traffic.totals().since(&self.base).plus(&self.own)
    }

    /// Steady payload comes in whole TLPs.
    fn pass_stream(&mut self, direction: Direction, ns: u64) {
        let mps = self.traffic.link().0;
        let stream = self.stream(direction);
        if stream.per_second == 0 {
            return;
        }
        stream.begun += u128::from(stream.per_second) * u128::from(ns);
        let tlp = u128::from(mps) * NANOS;
        let tlps = (stream.begun / tlp) as u64;
        stream.begun %= tlp;
        self.enter(direction, tlps.saturating_mul(mps.into()), tlps);
    }

    /// The collected rest goes as a shorter TLP; the remaining part of a byte is dropped.
    fn set_rate(&mut self, direction: Direction, per_second: u64) {
        let stream = self.stream(direction);
        let rest = (stream.begun / NANOS) as u64;
        *stream = Stream { per_second, begun: 0 };
        self.enter(direction, rest, u64::from(rest > 0));
    }

    fn stream(&mut self, direction: Direction) -> &mut Stream {
        match direction {
            Direction::Rx => &mut self.rx,
            Direction::Tx => &mut self.tx,
        }
    }

    fn enter(&mut self, direction: Direction, bytes: u64, tlps: u64) {
        let moved = match direction {
            Direction::Rx => PortTotals { rx_payload: bytes, rx_mwr: tlps, ..PortTotals::default() },
            Direction::Tx => PortTotals { tx_payload: bytes, tx_cpld: tlps, ..PortTotals::default() },
        };
        self.own = self.own.plus(&moved);
    }

    fn set_absent(&mut self, events: &[PortEvent]) {
        for (event, _, counter) in self.counters.iter_mut() {
            if events.is_empty() {
                counter.is_absent = false;
            } else if events.contains(event) {
                (counter.is_absent, counter.is_on, counter.value) = (true, false, 0);
            }
        }
    }

    /// The truth as of the last access or command.
    pub fn ledger(&self) -> Value {
        let mut ledger = self.totals().to_json();
        let mut events = Map::new();
        for (event, lane, counter) in self.counters.iter().filter(|(_, _, counter)| counter.happened > 0) {
            let name = if event.is_per_lane() { format!("{event}.{lane}") } else { event.to_string() };
            let value = json!({"happened": counter.happened, "counted": counter.counted, "lost": counter.lost});
            events.insert(name, value);
        }
        ledger["events"] = events.into();
        ledger["tba"] = self.time_based.ledger();
        ledger["injected"] = json!({"tx": self.injection.made[0], "rx": self.injection.made[1]});
        ledger["viewport_moves"] = self.viewport_moves.into();
        ledger["violations"] = json!(self.violations);
        ledger
    }

    fn read_register(&mut self, register: u64) -> u32 {
        let register = register as usize;
        let (first, vsec) = (usize::from(self.shape.first), usize::from(self.shape.vsec));
        match register.checked_sub(vsec).filter(|offset| *offset < VSEC_BYTES) {
            Some(offset) => self.read_block(offset),
            None => register.checked_sub(first).map_or(0, |offset| self.list.read(&self.shape, offset)),
        }
    }

    fn read_block(&mut self, offset: usize) -> u32 {
        let is_data = [EVENT_COUNTER_DATA, TIME_BASED_DATA_LOW, TIME_BASED_DATA_HIGH].contains(&offset);
        if is_data && self.mute_reads > 0 {
            self.mute_reads -= 1;
            return u32::MAX;
        }
        match offset {
            0x00 => {
                let next = if self.list.is_looped { self.shape.first } else { 0 };
                EXT_VENDOR | 1 << 16 | u32::from(next) << 20
            }
            0x04 => u32::from(self.list.id) | u32::from(self.list.rev) << 16 | (VSEC_BYTES as u32) << 20,
            EVENT_COUNTER_CONTROL => {
                let is_on = self.counters.pick(self.select, self.lane).is_some_and(|counter| counter.is_on);
                u32::from(self.select) << 16 | u32::from(self.lane) << 8 | if is_on { STATUS } else { 0 }
            }
            EVENT_COUNTER_DATA => {
                self.let_agent_in();
                self.counters.pick(self.select, self.lane).map_or(0, |counter| counter.value)
            }
            TIME_BASED_CONTROL => self.time_based.control(),
            TIME_BASED_DATA_LOW => self.time_based.read_half(false),
            TIME_BASED_DATA_HIGH => self.time_based.read_half(true),
            inject::FIRST..inject::END => self.injection.read(offset),
            SD_STATUS_L1LANE => {
                let is_up = self.l1lane < u32::from(self.width);
                self.l1lane | if is_up { L1LANE_DETECTED | L1LANE_RX_VALID } else { L1LANE_ELECTRICAL_IDLE }
            }
            SD_STATUS_L3FC => self.l3fc,
            _ => 0,
        }
    }

    /// Writes a dword of the page; bytes that are `None` were not covered.
    fn write_register(&mut self, register: u64, bytes: [Option<u8>; 4]) {
        let Some(offset) = (register as usize).checked_sub(self.shape.vsec.into()) else { return };
        let merged = |before: u32| {
            let before = before.to_le_bytes();
            u32::from_le_bytes(std::array::from_fn(|byte| bytes[byte].unwrap_or(before[byte])))
        };
        match offset {
            EVENT_COUNTER_CONTROL => self.write_viewport(bytes),
            TIME_BASED_CONTROL => {
                let violation = self.time_based.write_control(self.at_ns, merged(self.time_based.control()));
                self.violate(violation);
            }
            inject::FIRST..inject::END => {
                let value = merged(self.injection.read(offset));
                let counters = &mut self.counters;
                self.injection.write(offset, value, |event, n| counters.happen(event, 0, n));
            }
            SD_STATUS_L1LANE => self.l1lane = merged(self.l1lane) & 0xf,
            SD_STATUS_L3FC => self.l3fc = merged(self.l3fc) & L3FC_PICK,
            _ if DESTRUCTIVE.contains(&offset) => {
                self.violate(Some(format!("offset {offset:#04x} of the block was written: it acts on the link")));
            }
            _ => {}
        }
    }

    /// The pick comes first: what the same write clears or enables is what it picks.
    fn write_viewport(&mut self, bytes: [Option<u8>; 4]) {
        let [command, lane, code, group] = bytes;
        if let Some(lane) = lane {
            self.lane = lane & 0xf;
        }
        if let Some(code) = code {
            self.select = self.select & 0xff00 | u16::from(code);
        }
        if let Some(group) = group {
            self.select = self.select & 0x00ff | u16::from(group & 0xf) << 8;
        }
        let Some(command) = command else { return };
        let picked = self.counters.pick(self.select, self.lane);
        match command & 3 {
            1 => picked.into_iter().for_each(|counter| counter.value = 0),
            3 => self.counters.iter_mut().for_each(|(_, _, counter)| counter.value = 0),
            _ => {}
        }
        let picked = self.counters.pick(self.select, self.lane);
        match command >> 2 & 7 {
            1 => picked.into_iter().for_each(|counter| counter.is_on = false),
            3 => picked.into_iter().for_each(|counter| counter.is_on = !counter.is_absent),
            5 => self.counters.iter_mut().for_each(|(_, _, counter)| counter.is_on = false),
            7 => self.counters.iter_mut().for_each(|(_, _, counter)| counter.is_on = !counter.is_absent),
            _ => {}
        }
    }

    /// The second agent picks another event, for purposes of its own.
    fn let_agent_in(&mut self) {
        let Some(agent) = &mut self.agent else { return };
        agent.reads += 1;
        if agent.reads % agent.every == 0 {
            self.viewport_moves += 1;
            let start = self.viewport_moves as usize % PortEvent::all().count();
            let mut others = PortEvent::all().cycle().skip(start).map(PortEvent::select);
            self.select = others.find(|other| *other != self.select).unwrap_or_default();
        }
    }

    fn violate(&mut self, violation: Option<String>) {
        if let Some(text) =
            violation.filter(|text| self.violations.len() < VIOLATIONS_MAX && !self.violations.contains(text))
        {
            self.violations.push(text);
        }
    }
}

#[cfg(test)]
mod tests;
