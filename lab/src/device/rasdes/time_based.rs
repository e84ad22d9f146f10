//! The time-based engine: one measurement at a time, of time in a link state or of payload. docs/spec/rasdes.md,
//! "Time-based analysis".

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::traffic::PortTotals;

/// Report: the constant length of a core clock's cycle.
pub const ONE_CYCLE: u8 = 0x00;
/// Report: payload that left, in units of 16 bytes.
pub const TX_PAYLOAD: u8 = 0x20;
/// Report: payload that arrived, in units of 16 bytes.
pub const RX_PAYLOAD: u8 = 0x21;
/// Bytes of one unit of the payload reports.
const PAYLOAD_UNIT: u64 = 16;
/// Length of a cycle of the auxiliary clock, in picoseconds: 25 MHz.
pub const AUX_CYCLE_PS: u64 = 40_000;

pciescope_core::named! {
    /// States of the link whose time can be measured, as `port PORT states` names them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum State {
        /// Transmitter in L0s.
        TxL0s => "TX_L0S",
        /// Receiver in L0s.
        RxL0s => "RX_L0S",
        /// Active.
        L0 => "L0",
        /// L1 on the core clock.
        L1 => "L1",
        /// L1.1.
        L11 => "L1_1",
        /// L1.2.
        L12 => "L1_2",
        /// Configuration and Recovery.
        CfgRcvry => "CFG_RCVRY",
        /// L1 on the auxiliary clock.
        L1Aux => "L1_AUX",
        /// Both directions in L0s.
        TxRxL0s => "TX_RX_L0S",
    }
    /// As the control socket has it.
    fn name
}

impl State {
    fn of_report(report: u8, variant: Variant) -> Option<State> {
        Some(match (report, variant) {
            (0x01, _) => State::TxL0s,
            (0x02, _) => State::RxL0s,
            (0x03, _) => State::L0,
            (0x04, _) => State::L1,
            (0x05, _) => State::L11,
            (0x06, _) => State::L12,
            (0x07, _) => State::CfgRcvry,
            (0x08, Variant::Seed) | (0x09, Variant::Old) => State::L1Aux,
            (0x09, Variant::Seed) | (0x08, Variant::Old) => State::TxRxL0s,
            _ => return None,
        })
    }

    fn is_on_aux_clock(self) -> bool {
        matches!(self, State::L11 | State::L12 | State::L1Aux)
    }
}

/// Which of reports 0x08 and 0x09 is which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// 0x08 is L1 on the auxiliary clock, 0x09 L0s of both directions.
    #[default]
    Seed,
    /// The other way round.
    Old,
}

/// What the data do when software stops a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    /// They stay until the next start.
    #[default]
    Hold,
    /// They become 0.
    Zero,
}

/// Shares of time in the states, in percent.
pub type Shares = [u8; State::ALL.len()];

/// All of the time in L0.
pub const ALL_L0: Shares = [0, 0, 100, 0, 0, 0, 0, 0, 0];

/// What the control socket sets.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Shares of time, in the order of [`State::ALL`].
    pub shares: Shares,
    /// Of reports 0x08 and 0x09.
    pub variant: Variant,
    /// Of the data at a stop.
    pub stop: Stop,
    /// Bits of the data that there are, 32 to 64.
    pub width: u32,
    /// Whether what is counted shows only after a half of the data has been read.
    pub is_torn: bool,
    /// Reports that stay 0.
    pub absent: Vec<u8>,
    /// Generation of the link, 1 to 6.
    pub generation: u8,
}

impl Settings {
    /// As at the start, with a link of this generation.
    pub fn new(generation: u8) -> Self {
        let (variant, stop) = (Variant::default(), Stop::default());
        Settings { shares: ALL_L0, variant, stop, width: 64, is_torn: false, absent: Vec::new(), generation }
    }
}

/// Length of a cycle of the core clock, in picoseconds.
pub fn core_cycle_ps(generation: u8) -> u64 {
    match generation {
        0 | 1 => 8_000,
        2 => 4_000,
        3 => 2_000,
        _ => 1_000,
    }
}

#[derive(Clone, Debug)]
struct Measurement {
    report: u8,
    ends_at: Option<u64>,
    /// Of the next unit, in parts that depend on the report.
    begun: u128,
}

/// The engine of one function.
#[derive(Clone, Debug)]
pub struct TimeBased {
    /// What the control socket set.
    pub settings: Settings,
    report: u8,
    duration: u8,
    run: Option<Measurement>,
    data: u64,
    /// Counted, but not shown before a half of the data has been read.
    hidden: u64,
    starts: u64,
    restarts: u64,
    counted: BTreeMap<u8, u64>,
}

const START: u32 = 1 << 0;
const DURATION_AFTER_RESET: u8 = 1;

/// Nanoseconds of a fixed duration; `None` where software stops the measurement.
fn duration_ns(select: u8) -> Option<u64> {
    Some(match select {
        1 => 1_000_000,
        2 => 10_000_000,
        3 => 100_000_000,
        4 => 1_000_000_000,
        5 => 2_000_000_000,
        6 => 4_000_000_000,
        0xff => 4_000,
        _ => return None,
    })
}

impl TimeBased {
    /// An engine as at power-on.
    pub fn new(settings: Settings) -> Self {
        TimeBased {
            settings,
            report: 0,
            duration: DURATION_AFTER_RESET,
            run: None,
            data: 0,
            hidden: 0,
            starts: 0,
            restarts: 0,
            counted: BTreeMap::new(),
        }
    }

    /// TIME_BASED_ANALYSIS_CONTROL.
    pub fn control(&self) -> u32 {
        u32::from(self.report) << 24 | u32::from(self.duration) << 8 | u32::from(self.run.is_some())
    }

    /// Writes TIME_BASED_ANALYSIS_CONTROL, and says what of that the specification leaves open.
    pub fn write_control(&mut self, now_ns: u64, value: u32) -> Option<String> {
        let (report, duration) = ((value >> 24) as u8, (value >> 8) as u8);
        let (before, duration_before) = (self.report, self.duration);
        (self.report, self.duration) = (report, duration);
        match (&self.run, value & START != 0) {
            (None, true) => self.start(now_ns),
            (_, false) => self.stop(),
            (Some(_), true) => {
                self.restarts += 1;
                if report != before {
                    return Some(format!("REPORT_SELECT {before:#04x} became {report:#04x} during a measurement"));
                }
                if duration != duration_before {
                    return Some(format!("DURATION_SELECT {duration_before} became {duration} during a measurement"));
                }
            }
        }
        let is_known = duration == 0 || duration_ns(duration).is_some();
        (value & START != 0 && !is_known).then(|| format!("DURATION_SELECT {duration} is reserved"))
    }

    fn start(&mut self, now_ns: u64) {
        self.starts += 1;
        let ends_at = duration_ns(self.duration).map(|ns| now_ns.saturating_add(ns));
        self.run = Some(Measurement { report: self.report, ends_at, begun: 0 });
        (self.data, self.hidden) = (0, 0);
        self.show_cycle();
    }

    fn stop(&mut self) {
        self.run = None;
        self.show_hidden();
        if self.settings.stop == Stop::Zero {
            self.data = 0;
        }
    }

    /// When the measurement ends by itself.
    pub fn ends_at(&self) -> Option<u64> {
        self.run.as_ref()?.ends_at
    }

    /// The measurement has reached its end.
    pub fn finish(&mut self) {
        self.run = None;
        self.show_hidden();
    }

    /// Reads one half of the data. In one of each two accesses to a value that grows, it has grown in between.
    pub fn read_half(&mut self, is_high: bool) -> u32 {
        let data = self.data & u64::MAX >> (64 - self.settings.width);
        self.show_hidden();
        if is_high { (data >> 32) as u32 } else { data as u32 }
    }

    /// Puts a value into the data.
    pub fn set_data(&mut self, value: u64) {
        (self.data, self.hidden) = (value, 0);
    }

    /// A new link speed.
    pub fn set_generation(&mut self, generation: u8) {
        self.settings.generation = generation;
        self.show_cycle();
    }

    /// What is counted shows at once from now on, or only after a read.
    pub fn set_torn(&mut self, is_torn: bool) {
        self.settings.is_torn = is_torn;
        self.show_hidden();
    }

    fn show_cycle(&mut self) {
        let is_cycle = self.run.as_ref().is_some_and(|run| run.report == ONE_CYCLE);
        if is_cycle && !self.settings.absent.contains(&ONE_CYCLE) {
            self.data = core_cycle_ps(self.settings.generation);
        }
    }

    fn show_hidden(&mut self) {
        self.data = self.data.wrapping_add(std::mem::take(&mut self.hidden));
    }

    /// `ns` nanoseconds pass, in which `moved` passed the port.
    pub fn pass(&mut self, ns: u64, moved: &PortTotals) {
        let Some(run) = &mut self.run else { return };
        if self.settings.absent.contains(&run.report) {
            return;
        }
        // Parts that come, and parts of a whole unit.
        let (parts, unit) = match (run.report, State::of_report(run.report, self.settings.variant)) {
            (TX_PAYLOAD, _) => (u128::from(moved.tx_payload), u128::from(PAYLOAD_UNIT)),
            (RX_PAYLOAD, _) => (u128::from(moved.rx_payload), u128::from(PAYLOAD_UNIT)),
            (_, Some(state)) => {
                let cycle =
                    if state.is_on_aux_clock() { AUX_CYCLE_PS } else { core_cycle_ps(self.settings.generation) };
                let share = self.settings.shares[state as usize];
                (u128::from(ns) * 1_000 * u128::from(share), u128::from(cycle) * 100)
            }
            _ => return,
        };
        run.begun += parts;
        let units = (run.begun / unit) as u64;
        run.begun %= unit;
        let report = run.report;
        if units > 0 {
            let counted = self.counted.entry(report).or_default();
            *counted = counted.saturating_add(units);
            self.hidden = self.hidden.wrapping_add(units);
        }
        if !self.settings.is_torn {
            self.show_hidden();
        }
    }

    /// The engine's part of the ledger.
    pub fn ledger(&self) -> Value {
        let reports: Map<String, Value> =
            self.counted.iter().map(|(code, units)| (format!("{code:#04x}"), json!({"counted": units}))).collect();
        json!({"starts": self.starts, "restarts": self.restarts, "running": self.run.is_some(), "reports": reports})
    }
}
