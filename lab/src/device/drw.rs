//! The Driveway PMU of one DRAM sub-channel, register by register as docs/spec/drw.md has it.
//!
//! It counts the accesses that the traffic ledger has for the sub-channel, and the events that the `dram` commands of
//! the control socket add. Its clock is the board's. Between two calls nothing happens in the device; every call first
//! advances it to the given time.

mod command;
pub mod events;
mod pace;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use self::events::{HIF_RD, HIF_RD_OR_WR, HIF_RMW, HIF_WR};
use self::pace::Pace;
use super::traffic::{DramTotals, SubChannelTraffic};
use super::{for_each_dword, read_dwords};

/// Bytes of the register window.
pub const WINDOW: u64 = 0x1000;
/// Common counters of a sub-channel.
pub const COUNTERS: usize = 16;
/// Megatransfers per second of the memory unless set otherwise.
pub const DATA_RATE: u32 = 4000;
/// Bytes of one access of the host interface.
pub const LINE: u64 = 64;

const CNT_CTRL: u64 = 0xc00;
const CNT_CTRL_START: u32 = 1 << 0;
const CNT_CTRL_STOP: u32 = 1 << 1;
const CNT_CTRL_RST: u32 = 1 << 2;
const CNT_STATE: u64 = 0xc04;
const TEST_CTRL: u64 = 0xc08;
/// TEST_CTRL's number of common counter 0.
const TEST_COMMON: u32 = 19;
const CNT_PRELOAD: u64 = 0xc0c;
const CYCLE_CNT_HIGH: u64 = 0xc10;
const CYCLE_CNT_LOW: u64 = 0xc14;
const CYCLE_MASK: u64 = (1 << 56) - 1;
const EVENT_SEL: u64 = 0xc68;
const EVENT_SEL_END: u64 = EVENT_SEL + COUNTERS as u64;
const EVENT_SEL_ENABLE: u8 = 1 << 7;
const EVENT_SEL_EVENT: u8 = 0x3f;
const COMMON_COUNTER: u64 = 0xc78;
const COMMON_COUNTER_END: u64 = COMMON_COUNTER + 4 * COUNTERS as u64;
const OV_INTR_ENABLE_CTL: u64 = 0xcb8;
const OV_INTR_DISABLE_CTL: u64 = 0xcbc;
const OV_INTR_ENABLE_STATUS: u64 = 0xcc0;
const OV_INTR_CLR: u64 = 0xcc4;
const OV_INTR_STATUS: u64 = 0xcc8;
const OV_INTR_MASK: u32 = 0x00ff_ffff;
/// Status bit of common counter 0; below it are the bandwidth counters.
const OV_INTR_COMMON: usize = 8;

/// DMA reaches a counter's end at the earliest after so many events per nanosecond: 128 GB/s on one sub-channel.
const TRAFFIC_MAX_PER_NS: u64 = 2;
/// How often a counter near its end is looked at while DMA may move it, in nanoseconds.
const POLL_NS: u64 = 10_000_000;
/// With `torn on`, every nth read of a half of the cycle counter is followed by a carry. A driver that reads
/// high, low, high, and again while the highs differ, meets one in each of its readings and still comes to an end.
const TEAR_EVERY: u64 = 5;

/// What a common counter does at 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Limit {
    #[default]
    Wrap,
    Hold,
}

#[derive(Clone, Copy, Debug, Default)]
struct CommonCounter {
    value: u32,
    /// It passed its end and was held there.
    is_held: bool,
    selector: u8,
}

impl CommonCounter {
    fn is_enabled(&self) -> bool {
        self.selector & EVENT_SEL_ENABLE != 0
    }

    fn event(&self) -> u8 {
        self.selector & EVENT_SEL_EVENT
    }

    fn load(&mut self, value: u32) {
        self.value = value;
        self.is_held = false;
    }

    /// Counts `n` events and tells how many times the counter passed its end, and whether its status is set.
    fn count(&mut self, n: u64, limit: Limit) -> (u64, bool) {
        let to_end = u64::from(u32::MAX - self.value);
        if n <= to_end {
            self.value += n as u32;
            return (0, false);
        }
        let beyond = n - to_end - 1;
        match limit {
            Limit::Wrap => {
                self.value = beyond as u32;
                (1 + (beyond >> 32), true)
            }
            Limit::Hold => {
                self.value = u32::MAX;
                let passed = u64::from(!std::mem::replace(&mut self.is_held, true));
                (passed, true)
            }
        }
    }
}

/// What software can change, and what a function reset clears.
#[derive(Clone, Debug, Default)]
struct Registers {
    is_running: bool,
    test: u32,
    cycle: u64,
    counters: [CommonCounter; COUNTERS],
    ov_enable: u32,
    ov_status: u32,
    /// Status bits of wraps that have not appeared yet, with the reads of the status that each still waits for.
    late: Vec<(u32, u64)>,
}

/// What the control socket can change.
#[derive(Clone, Debug)]
struct Settings {
    limit: Limit,
    /// Reads of the status before the bit of a wrap appears; 0: it is there with the wrap.
    lag: u64,
    is_torn: bool,
    /// Reads of the halves of the cycle counter since `torn on`.
    half_reads: u64,
    rates: BTreeMap<u8, Pace>,
    cycles: Pace,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            limit: Limit::default(),
            lag: 0,
            is_torn: false,
            half_reads: 0,
            rates: BTreeMap::new(),
            cycles: Pace::new(cycles_per_second(DATA_RATE)),
        }
    }
}

/// The truth, which nothing in the guest can change.
#[derive(Clone, Debug, Default)]
struct Ledger {
    happened: BTreeMap<u8, u64>,
    /// By event and counter.
    counted: BTreeMap<(u8, usize), u64>,
    cycles: u64,
    overflows: u64,
    resets: u64,
    starts: u64,
    stops: u64,
}

/// The controller's clock is an eighth of the data rate.
fn cycles_per_second(megatransfers: u32) -> u64 {
    u64::from(megatransfers) * 1_000_000 / 8
}

/// The PMU of one sub-channel.
#[derive(Clone)]
pub struct DrwBank {
    traffic: SubChannelTraffic,
    /// What of it has been counted.
    seen: DramTotals,
    /// Device time that the state below is of, in nanoseconds.
    at_ns: u64,
    registers: Registers,
    settings: Settings,
    ledger: Ledger,
}

impl DrwBank {
    /// The PMU of the sub-channel whose account this is. What it had before now does not count.
    pub fn new(traffic: SubChannelTraffic) -> Self {
        let seen = traffic.totals();
        DrwBank {
            traffic,
            seen,
            at_ns: 0,
            registers: Registers::default(),
            settings: Settings::default(),
            ledger: Ledger::default(),
        }
    }

    /// The sub-channel's name, such as `21000`.
    pub fn name(&self) -> &str {
        self.traffic.name()
    }

    /// Settings, registers and ledger as at the start. Time goes on.
    pub fn reset(&mut self) {
        self.seen = self.traffic.totals();
        self.registers = Registers::default();
        self.settings = Settings::default();
        self.ledger = Ledger::default();
    }

    /// Registers as at power-on; settings and ledger stay.
    pub fn function_reset(&mut self, now_ns: u64) {
        self.advance(now_ns);
        self.registers = Registers::default();
    }

    /// The memory's data rate in MT/s from now on.
    pub fn set_data_rate(&mut self, now_ns: u64, megatransfers: u32) {
        self.advance(now_ns);
        self.settings.cycles = Pace::new(cycles_per_second(megatransfers));
    }

    /// Reads the window at `now_ns`. Each register of which a byte is covered is read once; where there is none, and
    /// past the window, bytes are 0.
    pub fn read(&mut self, now_ns: u64, offset: u64, to: &mut [u8]) {
        self.advance(now_ns);
        to.fill(0);
        read_dwords(offset, to, WINDOW, |register| self.read_register(register));
    }

    /// Writes the window at `now_ns`. Registers are written whole: what covers one only in part is ignored.
    pub fn write(&mut self, now_ns: u64, offset: u64, from: &[u8]) {
        self.advance(now_ns);
        for_each_dword(offset, from.len(), WINDOW, |register, _, at, len| {
            if let Ok(value) = <[u8; 4]>::try_from(&from[at..at + len]) {
                self.write_register(register, u32::from_le_bytes(value));
            }
        });
    }

    /// Whether it holds its interrupt line high.
    pub fn is_asserted(&self) -> bool {
        self.registers.ov_status & self.registers.ov_enable != 0
    }

    /// Whether a write of this place is to a register with which software answers the interrupt: after one of these
    /// a line that is still high fires again.
    pub fn is_answer(offset: u64, len: usize) -> bool {
        let mut is_answer = false;
        for_each_dword(offset, len, WINDOW, |register, _, _, _| {
            is_answer |= matches!(register, OV_INTR_ENABLE_CTL | OV_INTR_DISABLE_CTL | OV_INTR_CLR);
        });
        is_answer
    }

    /// Lets time pass until `now_ns`: steady events, cycles, and what the traffic ledger has had meanwhile. A time
    /// that is already past changes nothing but the traffic.
    pub fn advance(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.at_ns);
        self.at_ns = self.at_ns.max(now_ns);
        if passed > 0 {
            let cycles = self.settings.cycles.pass(passed);
            self.count_cycles(cycles);
            let mut rates = std::mem::take(&mut self.settings.rates);
            rates.iter_mut().for_each(|(event, pace)| self.happen(*event, pace.pass(passed)));
            self.settings.rates = rates;
        }
        let totals = self.traffic.totals();
        let before = std::mem::replace(&mut self.seen, totals);
        self.happen(HIF_RD, totals.hif_rd.saturating_sub(before.hif_rd));
        self.happen(HIF_WR, totals.hif_wr.saturating_sub(before.hif_wr));
        self.happen(HIF_RMW, totals.hif_rmw.saturating_sub(before.hif_rmw));
    }

    /// When a counter with an enabled interrupt will reach its end if nothing changes, in nanoseconds of the device's
    /// clock, or when to look whether DMA has moved it there. `None` where no interrupt can come.
    pub fn next_work(&self, now_ns: u64) -> Option<u64> {
        if !self.registers.is_running {
            return None;
        }
        let due = |(number, counter): (usize, &CommonCounter)| {
            let bit = 1 << (OV_INTR_COMMON + number);
            let is_armed = self.registers.ov_enable & !self.registers.ov_status & bit != 0;
            if !is_armed || !counter.is_enabled() {
                return None;
            }
            let left = u64::from(u32::MAX - counter.value) + 1;
            let steady = self.until(counter.event(), left).map(|ns| self.at_ns.saturating_add(ns));
            // Half the way may be the steady events'.
            let poll = (counter.event() <= HIF_RMW)
                .then(|| now_ns.saturating_add((left / (2 * TRAFFIC_MAX_PER_NS)).max(POLL_NS)));
            steady.into_iter().chain(poll).min()
        };
        self.registers.counters.iter().enumerate().filter_map(due).min()
    }

    /// The truth as of the last call that was given a time, and what the registers say beside it.
    pub fn ledger(&self) -> Value {
        let ledger = &self.ledger;
        let mut events = Map::new();
        for (&code, happened) in &ledger.happened {
            let of_event = ledger.counted.range((code, 0)..=(code, COUNTERS));
            let counted: Map<_, _> = of_event.map(|((_, counter), n)| (counter.to_string(), json!(n))).collect();
            events.insert(events::name(code), json!({"happened": happened, "counted": counted}));
        }
        let counters = || self.registers.counters.iter().enumerate().filter(|(_, counter)| counter.is_enabled());
        let enabled: Map<_, _> =
            counters().map(|(number, counter)| (number.to_string(), json!(events::name(counter.event())))).collect();
        let values: Map<_, _> =
            counters().map(|(number, counter)| (number.to_string(), json!(counter.value))).collect();
        json!({"events": events, "cycles": ledger.cycles, "overflows": ledger.overflows, "resets": ledger.resets,
               "starts": ledger.starts, "stops": ledger.stops, "running": self.registers.is_running,
               "enabled": enabled, "values": values, "late": self.registers.late.len(),
               "asserted": self.is_asserted()})
    }

    fn read_register(&mut self, register: u64) -> u32 {
        match register {
            CNT_STATE => u32::from(self.registers.is_running),
            TEST_CTRL => self.registers.test,
            CYCLE_CNT_HIGH | CYCLE_CNT_LOW => self.read_cycle_half(register == CYCLE_CNT_HIGH),
            EVENT_SEL..EVENT_SEL_END => {
                let first = (register - EVENT_SEL) as usize;
                u32::from_le_bytes(std::array::from_fn(|n| self.registers.counters[first + n].selector))
            }
            COMMON_COUNTER..COMMON_COUNTER_END => {
                self.registers.counters[((register - COMMON_COUNTER) / 4) as usize].value
            }
            OV_INTR_ENABLE_STATUS => self.registers.ov_enable,
            OV_INTR_STATUS => {
                let status = self.registers.ov_status;
                self.show_late(1);
                status
            }
            _ => 0,
        }
    }

    /// So many reads of the status have passed: sets the bits that waited for no more, all of them without `lag`.
    fn show_late(&mut self, reads: u64) {
        let has_lag = self.settings.lag > 0;
        let Registers { late, ov_status, .. } = &mut self.registers;
        late.retain_mut(|(bit, left)| {
            *left = left.saturating_sub(reads);
            let is_late = has_lag && *left > 0;
            if !is_late {
                *ov_status |= *bit;
            }
            is_late
        });
    }

    fn read_cycle_half(&mut self, is_high: bool) -> u32 {
        let cycle = self.registers.cycle;
        if self.settings.is_torn {
            if self.settings.half_reads % TEAR_EVERY == 0 {
                self.count_cycles((1 << 32) - (cycle & u64::from(u32::MAX)));
            }
            self.settings.half_reads += 1;
        }
        if is_high { (cycle >> 32) as u32 } else { cycle as u32 }
    }

    fn write_register(&mut self, register: u64, value: u32) {
        let registers = &mut self.registers;
        match register {
            CNT_CTRL => self.control(value),
            TEST_CTRL => registers.test = value,
            CNT_PRELOAD => {
                let number = registers.test.checked_sub(TEST_COMMON).map(|number| number as usize);
                if let Some(counter) = number.and_then(|number| registers.counters.get_mut(number)) {
                    counter.load(value);
                }
            }
            EVENT_SEL..EVENT_SEL_END => {
                let first = (register - EVENT_SEL) as usize;
                for (counter, byte) in registers.counters[first..first + 4].iter_mut().zip(value.to_le_bytes()) {
                    counter.selector = byte & (EVENT_SEL_ENABLE | EVENT_SEL_EVENT);
                }
            }
            OV_INTR_ENABLE_CTL => registers.ov_enable |= value & OV_INTR_MASK,
            OV_INTR_DISABLE_CTL => registers.ov_enable &= !value,
            OV_INTR_CLR => registers.ov_status &= !value,
            _ => {}
        }
    }

    fn control(&mut self, value: u32) {
        if value & CNT_CTRL_RST != 0 {
            self.ledger.resets += 1;
            self.registers.cycle = 0;
            self.registers.counters.iter_mut().for_each(|counter| counter.load(0));
        }
        if value & CNT_CTRL_START != 0 {
            self.ledger.starts += 1;
            self.registers.is_running = true;
        }
        if value & CNT_CTRL_STOP != 0 {
            self.ledger.stops += 1;
            self.registers.is_running = false;
        }
    }

    fn count_cycles(&mut self, n: u64) {
        if self.registers.is_running {
            self.registers.cycle = self.registers.cycle.wrapping_add(n) & CYCLE_MASK;
            self.ledger.cycles = self.ledger.cycles.saturating_add(n);
        }
    }

    /// An event happens `n` times: every counter that is set to it counts.
    fn happen(&mut self, event: u8, n: u64) {
        if n == 0 {
            return;
        }
        let happened = self.ledger.happened.entry(event).or_default();
        *happened = happened.saturating_add(n);
        if self.registers.is_running {
            for (number, counter) in self.registers.counters.iter_mut().enumerate() {
                if !counter.is_enabled() || counter.event() != event {
                    continue;
                }
                let counted = self.ledger.counted.entry((event, number)).or_default();
                *counted = counted.saturating_add(n);
                let (overflows, is_set) = counter.count(n, self.settings.limit);
                self.ledger.overflows += overflows;
                let bit = u32::from(is_set) << (OV_INTR_COMMON + number);
                if is_set && self.settings.lag > 0 {
                    self.registers.late.push((bit, self.settings.lag));
                } else {
                    self.registers.ov_status |= bit;
                }
            }
        }
        if [HIF_RD, HIF_WR, HIF_RMW].contains(&event) {
            self.happen(HIF_RD_OR_WR, n);
        }
    }

    /// Nanoseconds from the last advance until an event has happened `n` times by the steady rates.
    fn until(&self, event: u8, n: u64) -> Option<u64> {
        let adds = |code: u8| code == event || (event == HIF_RD_OR_WR && (HIF_WR..=HIF_RMW).contains(&code));
        let paces = || self.settings.rates.iter().filter(|(code, _)| adds(**code)).map(|(_, pace)| pace);
        // One rate alone takes at least as long as all together.
        let mut late = paces().filter_map(|pace| pace.until(n)).min()?;
        if paces().count() > 1 {
            let mut early = 0;
            while early < late {
                let middle = early + (late - early) / 2;
                let events: u128 = paces().map(|pace| u128::from(pace.events_in(middle))).sum();
                if events < u128::from(n) { early = middle + 1 } else { late = middle }
            }
        }
        Some(late)
    }
}
