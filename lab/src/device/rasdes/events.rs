//! The events of the block, and one counter of each. docs/spec/rasdes.md, "Events".

use std::fmt;

/// Lanes that have counters of their own.
pub const LANES: u8 = 16;
/// Groups of events.
const GROUPS: usize = 8;
/// Event codes of a group.
const CODES: usize = 32;

/// Event codes by group.
const KNOWN: [&[u8]; GROUPS] = [
    &[0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a],
    &[0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0c, 0x0d],
    &[0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07],
    &[0x00, 0x01, 0x02, 0x03, 0x04, 0x05],
    &[0x00, 0x01],
    &[0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d],
    &[0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06],
    &[
        0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11,
        0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19,
    ],
];

/// An event of the block: group and code, printed `0xGEE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortEvent(u16);

impl PortEvent {
    /// The event that EVENT_SELECT's bits stand for, if there is one.
    pub fn new(select: u16) -> Option<PortEvent> {
        let codes = KNOWN.get(usize::from(select >> 8))?;
        u8::try_from(select & 0xff).ok().filter(|code| codes.contains(code)).map(|_| PortEvent(select))
    }

    /// All events, by number.
    pub fn all() -> impl Iterator<Item = PortEvent> + Clone {
        (0..GROUPS)
            .flat_map(|group| KNOWN[group].iter().map(move |code| PortEvent((group as u16) << 8 | u16::from(*code))))
    }

    /// As in EVENT_SELECT.
    pub fn select(self) -> u16 {
        self.0
    }

    /// Whether each lane has a counter of it.
    pub fn is_per_lane(self) -> bool {
        matches!(self.0 >> 8, 0 | 4)
    }

    /// Bits of its counter.
    pub fn width(self) -> u32 {
        match self.0 >> 8 {
            0 | 4 => 4,
            1..=3 => 8,
            _ => 32,
        }
    }

    /// Its counter's highest value.
    pub fn max(self) -> u32 {
        u32::MAX >> (32 - self.width())
    }
}

impl fmt::Display for PortEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#05x}", self.0)
    }
}

/// What a counter of 4 or 8 bits does at its end; those of 32 bits wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// It stays at its highest value.
    #[default]
    Saturate,
    /// It begins again at 0.
    Wrap,
}

/// One counter, with its part of the ledger.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortCounter {
    /// What EVENT_COUNTER_DATA shows.
    pub value: u32,
    /// Whether it counts.
    pub is_on: bool,
    /// Whether the silicon lacks it: it cannot be enabled.
    pub is_absent: bool,
    /// Every occurrence.
    pub happened: u64,
    /// Occurrences while it counted.
    pub counted: u64,
    /// Those of them that found it at its end.
    pub lost: u64,
}

impl PortCounter {
    fn count(&mut self, n: u64, event: PortEvent, limit: Limit) {
        self.happened = self.happened.saturating_add(n);
        if !self.is_on {
            return;
        }
        self.counted = self.counted.saturating_add(n);
        let max = event.max();
        if limit == Limit::Saturate && event.width() < 32 {
            let taken = n.min(u64::from(max - self.value.min(max)));
            self.lost = self.lost.saturating_add(n - taken);
            self.value += taken as u32;
        } else {
            self.value = self.value.wrapping_add(n as u32) & max;
        }
    }
}

/// The counters of one function.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Where the counters of an event begin.
    first: [[Option<u16>; CODES]; GROUPS],
    all: Vec<(PortEvent, u8, PortCounter)>,
    /// What the narrow ones do at their end.
    pub limit: Limit,
}

impl Default for Counters {
    fn default() -> Self {
        let mut first = [[None; CODES]; GROUPS];
        let mut all = Vec::new();
        for event in PortEvent::all() {
            let (group, code) = (usize::from(event.0 >> 8), usize::from(event.0 & 0xff));
            first[group][code] = Some(all.len() as u16);
            let lanes = if event.is_per_lane() { LANES } else { 1 };
            all.extend((0..lanes).map(|lane| (event, lane, PortCounter::default())));
        }
        Counters { first, all, limit: Limit::default() }
    }
}

impl Counters {
    /// The counter that a viewport's pick stands for; the lane of an event that is common to all is ignored.
    pub fn pick(&mut self, select: u16, lane: u8) -> Option<&mut PortCounter> {
        let (group, code) = (usize::from(select >> 8), usize::from(select & 0xff));
        let first = *self.first.get(group)?.get(code)?;
        let event = PortEvent(select);
        let index = usize::from(first?) + if event.is_per_lane() { usize::from(lane % LANES) } else { 0 };
        self.all.get_mut(index).map(|(_, _, counter)| counter)
    }

    /// An event happens `n` times on `lane`, which means nothing where it is common to all.
    pub fn happen(&mut self, event: PortEvent, lane: u8, n: u64) {
        let limit = self.limit;
        if let Some(counter) = self.pick(event.0, lane).filter(|_| n > 0) {
            counter.count(n, event, limit);
        }
    }

    /// All counters with their event and lane.
    pub fn iter(&self) -> impl Iterator<Item = &(PortEvent, u8, PortCounter)> {
        self.all.iter()
    }

    /// All counters.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut (PortEvent, u8, PortCounter)> {
        self.all.iter_mut()
    }
}
