//! The figures of one function and one thread: a row of the table before it becomes a record.

use std::ops::Add;

use pciescope_core::{Histogram, joined};
use pciescope_hw::daq::Costs;

use super::check::{Check, Finding};

/// Some repeats of a cycle, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lap {
    pub cycle: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    pub bytes: u64,
}

/// The most laps that are kept; with more, two neighbours become one.
const LAPS: usize = 1 << 16;

/// The times at which the bytes came. If there are too many cycles to keep all, only the first are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Laps {
    kept: Vec<Lap>,
    is_full: bool,
}

impl Laps {
    /// The laps of several rows of one function, in the order of their cycles.
    pub fn joined<'l>(all: impl Iterator<Item = &'l Laps>) -> Laps {
        let mut joined = Laps::default();
        all.flat_map(|laps| &laps.kept).for_each(|lap| joined.push(*lap));
        joined
    }

    #[cfg(test)]
    fn all(&self) -> &[Lap] {
        &self.kept
    }

    fn push(&mut self, lap: Lap) {
        if self.is_full {
            return;
        }
        if self.kept.len() >= LAPS {
            let joined = self.kept.chunks(2).flat_map(|pair| match pair {
                [one, other] if one.cycle == other.cycle => {
                    vec![Lap { end_ns: other.end_ns, bytes: one.bytes + other.bytes, ..*one }]
                }
                pair => pair.to_vec(),
            });
            self.kept = joined.collect();
            // This made little room; further attempts would make less.
            self.is_full = self.kept.len() > LAPS - LAPS / 8;
        }
        self.kept.push(lap);
    }
}

/// One function of one device: one cycle, or all of them added up. Times are of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    /// As the table shows it.
    pub function: String,
    pub conversion: Option<String>,
    /// Whether it worked on the pieces as they came.
    pub is_fused: bool,
    /// The most bytes that came at a time; 0 where the data is kept whole.
    pub piece_bytes: usize,
    /// What the bytes are compared with, where any are read.
    pub check: Option<Check>,
    /// Where each cycle has a row of its own.
    pub cycle: Option<u64>,
    /// Whether bytes come from the device in it.
    pub is_reading: bool,
    /// Bytes of raw input of a repeat.
    pub bytes: u64,
    pub cycles: u64,
    pub repeats: u64,
    /// Beginning of the first repeat and end of the last one.
    pub start_ns: u64,
    pub end_ns: u64,
    /// From the first repeat of each cycle to the end of its last, checks between them left out.
    pub busy_ns: u64,
    /// Each repeat.
    pub durations: Histogram,
    /// Each single read of a piece, of devices that are read one piece after the other.
    pub reads: Histogram,
    /// Sum of the squares of the repeats' durations, in ns².
    pub squares: f64,
    /// Of the conversion, in all repeats.
    pub convert_ns: Option<u64>,
    pub costs: Option<Costs>,
    /// Each cycle's time from arming to the end.
    pub acquire: Histogram,
    pub polls: Option<u64>,
    /// User and system time of the thread, in nanoseconds.
    pub cpu_ns: Option<(u64, u64)>,
    pub finding: Finding,
    pub laps: Laps,
}

impl Row {
    /// A repeat of cycle `cycle` has ended; the first of a cycle begins it.
    pub fn repeat(&mut self, cycle: u64, start_ns: u64, end_ns: u64) {
        if self.repeats == 0 {
            self.start_ns = start_ns;
        }
        self.end_ns = end_ns;
        self.repeats += 1;
        let ns = end_ns.saturating_sub(start_ns);
        // A repeat of more than an hour is in the sums, but too long for a histogram.
        let _ = self.durations.record_ps(ns.saturating_mul(1000), 1);
        self.squares += (ns as f64) * (ns as f64);
        if self.is_reading {
            self.laps.push(Lap { cycle, start_ns, end_ns, bytes: self.bytes });
        }
    }

    /// What transfers of this row cost.
    pub fn add_costs(&mut self, costs: Option<Costs>) {
        self.costs = joined(self.costs, costs, add);
    }

    /// Mean duration of a repeat in nanoseconds; `None` where none ended.
    pub fn duration_ns(&self) -> Option<f64> {
        (self.repeats > 0).then(|| self.busy_ns as f64 / self.repeats as f64)
    }

    /// Raw input over the mean duration, in bytes per second.
    pub fn speed(&self) -> Option<f64> {
        self.duration_ns().filter(|ns| *ns > 0.0).map(|ns| self.bytes as f64 / ns * 1e9)
    }

    /// Standard deviation of the repeats' durations over their mean, in percent.
    pub fn cv_percent(&self) -> Option<f64> {
        let count = self.durations.count() as f64;
        let mean = self.durations.mean_ns().filter(|mean| *mean > 0.0 && count > 1.0)?;
        let variance = (self.squares - count * mean * mean).max(0.0) / (count - 1.0);
        Some(variance.sqrt() / mean * 100.0)
    }

    /// Adds a later cycle of the same function.
    pub fn merge(&mut self, other: Row) {
        self.piece_bytes = self.piece_bytes.max(other.piece_bytes);
        if self.repeats == 0 {
            self.start_ns = other.start_ns;
        }
        if other.repeats > 0 {
            self.end_ns = other.end_ns;
        }
        self.cycles += other.cycles;
        self.repeats += other.repeats;
        self.busy_ns += other.busy_ns;
        self.durations.merge(&other.durations);
        self.reads.merge(&other.reads);
        self.squares += other.squares;
        self.convert_ns = joined(self.convert_ns, other.convert_ns, u64::add);
        self.add_costs(other.costs);
        self.acquire.merge(&other.acquire);
        self.polls = joined(self.polls, other.polls, u64::add);
        self.cpu_ns = joined(self.cpu_ns, other.cpu_ns, |one, more| (one.0 + more.0, one.1 + more.1));
        self.finding.merge(&other.finding);
        for lap in other.laps.kept {
            self.laps.push(lap);
        }
    }
}

fn add(one: Costs, more: Costs) -> Costs {
    Costs {
        setup_ns: one.setup_ns + more.setup_ns,
        dma_ns: one.dma_ns + more.dma_ns,
        wakeup_ns: one.wakeup_ns + more.wakeup_ns,
        copy_ns: one.copy_ns + more.copy_ns,
        dma_bytes: one.dma_bytes + more.dma_bytes,
        lost_interrupts: one.lost_interrupts + more.lost_interrupts,
        timeouts: one.timeouts + more.timeouts,
        short_dmas: one.short_dmas + more.short_dmas,
        stalls: one.stalls + more.stalls,
        stall_ns: one.stall_ns + more.stall_ns,
    }
}

/// The time in which all devices were read, and the bytes that each moved in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Active {
    pub ns: u64,
    /// In the order of the devices.
    pub bytes: Vec<f64>,
}

impl Active {
    /// What the device at this place moved in the time, in bytes per second; `None` where there was no such time.
    pub fn speed(&self, place: usize) -> Option<f64> {
        let bytes = self.bytes.get(place).filter(|_| self.ns > 0)?;
        Some(bytes / self.ns as f64 * 1e9)
    }
}

/// Of each cycle, the time from the first moment at which all had begun to the first at which one had finished. A repeat
/// that lies in it in part counts by that part.
pub(super) fn active(devices: &[&Laps]) -> Active {
    let mut active = Active { ns: 0, bytes: vec![0.0; devices.len()] };
    let cycles = devices.iter().filter_map(|laps| laps.kept.last().map(|lap| lap.cycle)).min();
    let mut rest: Vec<&[Lap]> = devices.iter().map(|laps| laps.kept.as_slice()).collect();
    for cycle in 0..=cycles.unwrap_or(0) {
        // Laps are in the order of their cycles.
        let of_cycle = |rest: &mut &[Lap]| {
            let all: &[Lap] = rest;
            let from = all.partition_point(|lap| lap.cycle < cycle);
            let to = all.partition_point(|lap| lap.cycle <= cycle);
            *rest = &all[to..];
            all[from..to].to_vec()
        };
        let laps: Vec<Vec<Lap>> = rest.iter_mut().map(of_cycle).collect();
        let start = laps.iter().map(|laps| laps.first().map_or(u64::MAX, |lap| lap.start_ns)).max().unwrap_or(u64::MAX);
        let end = laps.iter().map(|laps| laps.last().map_or(0, |lap| lap.end_ns)).min().unwrap_or(0);
        if end <= start {
            continue;
        }
        active.ns += end - start;
        for (bytes, laps) in active.bytes.iter_mut().zip(&laps) {
            *bytes += laps.iter().map(|lap| part(lap, start, end)).sum::<f64>();
        }
    }
    active
}

fn part(lap: &Lap, start: u64, end: u64) -> f64 {
    let (from, to) = (lap.start_ns.max(start), lap.end_ns.min(end));
    if to <= from || lap.end_ns == lap.start_ns {
        return 0.0;
    }
    lap.bytes as f64 * (to - from) as f64 / (lap.end_ns - lap.start_ns) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(repeats: &[(u64, u64)]) -> Row {
        let mut row = Row { is_reading: true, bytes: 1000, cycles: 1, ..Row::default() };
        for (start, end) in repeats {
            row.repeat(0, *start, *end);
        }
        row.busy_ns = row.end_ns - row.start_ns;
        row
    }

    #[test]
    fn duration_and_speed_are_the_seed_tools() {
        // 96.51 ms and 621.7 MB/s of its first table.
        let mut row = Row { bytes: 60_000_000, ..Row::default() };
        let (start, end) = (300_000, 2_895_600_000);
        for number in 0..30 {
            row.repeat(0, start + number * 96_510_000, start + (number + 1) * 96_510_000);
        }
        row.busy_ns = end - start;
        assert!((row.duration_ns().unwrap() / 1e6 - 96.51).abs() < 0.005);
        assert!((row.speed().unwrap() / 1e6 - 621.7).abs() < 0.05);
        assert_eq!(row.cv_percent(), Some(0.0));
    }

    #[test]
    fn spread_is_that_of_the_repeats() {
        let row = row(&[(0, 1000), (1000, 2200), (2200, 3000)]);
        // 1000, 1200, 800: mean 1000, standard deviation 200.
        assert!((row.cv_percent().unwrap() - 20.0).abs() < 1e-9);
        assert_eq!(row.duration_ns(), Some(1000.0));
    }

    #[test]
    fn cycles_add_up_and_keep_their_pauses_out() {
        let mut all = row(&[(0, 100), (100, 200)]);
        let mut later = row(&[(10_000, 10_200), (10_200, 10_400)]);
        later.polls = Some(5);
        all.merge(later);
        assert_eq!((all.start_ns, all.end_ns, all.repeats, all.cycles), (0, 10_400, 4, 2));
        assert_eq!((all.duration_ns(), all.polls), (Some(150.0), Some(5)));
        assert_eq!(all.laps.all().len(), 4);
    }

    #[test]
    fn the_active_time_is_that_of_all() {
        // One from 0 to 400, the other from 100 to 300: 200 ns, in which each moves its share.
        let (one, other) = (row(&[(0, 200), (200, 400)]), row(&[(100, 200), (200, 300)]));
        let active = active(&[&one.laps, &other.laps]);
        assert_eq!(active, Active { ns: 200, bytes: vec![1000.0, 2000.0] });
        let late = row(&[(500, 600)]);
        assert_eq!(super::active(&[&one.laps, &late.laps]).ns, 0);
        assert_eq!(super::active(&[&one.laps, &Laps::default()]).ns, 0);
    }

    #[test]
    fn more_laps_than_are_kept_lose_no_bytes() {
        let mut row = Row { is_reading: true, bytes: 10, ..Row::default() };
        for number in 0..3 * LAPS as u64 {
            row.repeat(0, number * 10, number * 10 + 10);
        }
        assert!(row.laps.all().len() <= LAPS);
        assert_eq!(row.laps.all().iter().map(|lap| lap.bytes).sum::<u64>(), 30 * LAPS as u64);
    }

    #[test]
    fn cycles_that_cannot_be_joined_are_kept_up_to_a_bound() {
        let mut row = Row { is_reading: true, bytes: 10, ..Row::default() };
        for number in 0..3 * LAPS as u64 {
            row.repeat(number, number * 10, number * 10 + 10);
        }
        assert!((LAPS..=LAPS + 1).contains(&row.laps.all().len()));
        assert!(row.laps.all().iter().zip(0..).all(|(lap, cycle)| lap.cycle == cycle && lap.bytes == 10));
        assert_eq!(row.repeats, 3 * LAPS as u64);
    }
}
