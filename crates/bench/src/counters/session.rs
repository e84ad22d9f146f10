//! Open counters and their readings: what was counted since the last time, instance by instance.

use std::sync::Arc;

use pciescope_hw::Root;
use pciescope_hw::account::{Accounts, Count, Doubt};
use pciescope_hw::perf::{self, By, Delta, Event, Group, Pmu, Reading};
use pciescope_hw::synthetic::Synthetic;
use pciescope_hw::wait::now_ns;

use super::error::Error;
use super::tally::Tally;

/// One PMU on one CPU with the events to count there.
#[derive(Debug, Clone)]
pub struct Instrument {
    /// The PMU.
    pub pmu: Pmu,
    /// The CPU, one of those that the PMU names.
    pub cpu: u32,
    /// What to count.
    pub counters: Vec<Counter>,
}

/// An event with what is known of it.
#[derive(Debug, Clone)]
pub struct Counter {
    /// The event.
    pub event: Event,
    /// How many the hardware can count per second; `None` where that is not known, or has no limit.
    pub most_per_s: Option<f64>,
}

/// An instrument with what was read of it.
struct Watched {
    instrument: Instrument,
    /// In the order of its counters, as are the refusals.
    tallies: Vec<Tally>,
    refused: Vec<Option<perf::Error>>,
    gone: Option<perf::Error>,
    /// The hardware's counters that have reached their end ([`Pmu::saturated`]).
    saturated: Vec<(u64, u32, u64)>,
    /// The folder of its PMU at the start ([`Pmu::inode`]).
    inode: Option<u64>,
    /// What was doubtful about a function's account since the interval began.
    doubts: Vec<Doubt>,
}

impl Watched {
    fn is_account(&self) -> bool {
        self.instrument.pmu.by == By::Kernel
    }

    /// Adds what was counted between two readings.
    fn count(&mut self, kept: &Polled, before: &mut [u64], from_ns: u64, to_ns: u64) {
        for ((counter, tally), before) in self.instrument.counters.iter().zip(&mut self.tallies).zip(before) {
            // Without such a counter there is no figure, and not a zero.
            let Some(value) = kept.value(&self.instrument.pmu, &counter.event, to_ns) else { continue };
            let at = |value, ns| Reading { value, enabled_ns: ns, running_ns: ns };
            tally.add(Delta::between(at(*before, from_ns), at(value, to_ns), None), value);
            *before = value;
        }
    }
}

/// What is read without perf: the kernel's accounts, and all of a synthetic machine.
struct Polled {
    accounts: Accounts,
    machine: Option<Arc<Synthetic>>,
}

impl Polled {
    fn open(root: &Root, at_ns: u64) -> Polled {
        let machine = root.machine().cloned();
        machine.iter().for_each(|machine| machine.advance(at_ns));
        Polled { accounts: Accounts::open(root), machine }
    }

    fn read(&mut self, at_ns: u64) {
        self.machine.iter().for_each(|machine| machine.advance(at_ns));
        self.accounts.read();
    }

    /// What an event counted since some moment; `None` where nothing counts it.
    fn value(&self, pmu: &Pmu, event: &Event, at_ns: u64) -> Option<u64> {
        match (pmu.by, &self.machine) {
            (By::Kernel, _) => self.accounts.value(pmu.bdf?, Count::of(event.config)?),
            (By::Hardware, machine) => Some(machine.as_ref()?.count(&pmu.name, &event.terms, at_ns)),
        }
    }
}

/// What is polled, with its last reading.
struct LastReading {
    polled: Polled,
    /// When it was, on CLOCK_MONOTONIC.
    at_ns: u64,
    /// What each counter of each instrument showed.
    last: Vec<Vec<u64>>,
}

/// A group with its last reading.
struct Open {
    group: Group,
    /// The place of its instrument.
    instrument: usize,
    /// The places of its events among the instrument's counters.
    places: Vec<usize>,
    last: Vec<Reading>,
}

/// Counters that are open. Each call of [`Session::read`] adds to the tallies since [`Session::begin_interval`].
#[derive(Default)]
pub struct Session {
    all: Vec<Watched>,
    groups: Vec<Open>,
    /// From the start on, where anything is read without perf.
    kept: Option<LastReading>,
    /// Whether all of it is synthetic.
    is_synthetic: bool,
    /// Whether this thread goes to the CPU of the group that is read.
    follows: bool,
    /// Where it is, if it was let there.
    stays: Option<perf::Stay>,
}

impl Session {
    /// Opens what can be opened of `instruments`; what cannot is in [`Session::refused`]. Nothing counts yet.
    ///
    /// # Errors
    /// [`Error::Recorded`].
    pub fn open(root: &Root, instruments: Vec<Instrument>) -> Result<Self, Error> {
        let is_synthetic = root.machine().is_some();
        let needs_perf = !is_synthetic && instruments.iter().any(|instrument| instrument.pmu.by == By::Hardware);
        if needs_perf && !root.is_live() {
            return Err(Error::Recorded);
        }
        let mut session = Session { is_synthetic, ..Session::default() };
        for (number, instrument) in instruments.into_iter().enumerate() {
            let mut refused: Vec<Option<perf::Error>> = instrument.counters.iter().map(|_| None).collect();
            if instrument.pmu.by == By::Hardware && !is_synthetic {
                let events: Vec<Event> = instrument.counters.iter().map(|counter| counter.event.clone()).collect();
                let packed = Group::open_packed(root, &instrument.pmu, instrument.cpu, &events);
                for (group, places) in packed.groups {
                    let last = vec![Reading::default(); places.len()];
                    session.groups.push(Open { group, instrument: number, places, last });
                }
                packed.refused.into_iter().for_each(|(place, error)| refused[place] = Some(error));
            }
            session.all.push(Watched {
                tallies: vec![Tally::default(); instrument.counters.len()],
                refused,
                gone: None,
                saturated: Vec::new(),
                inode: None,
                doubts: Vec::new(),
                instrument,
            });
        }
        // Those of one CPU behind each other.
        session.groups.sort_by_key(|open| open.group.cpu());
        Ok(session)
    }

    /// The instruments in the order in which they were given.
    pub fn instruments(&self) -> impl Iterator<Item = &Instrument> {
        self.all.iter().map(|one| &one.instrument)
    }

    /// An instrument by its place.
    pub fn instrument(&self, place: usize) -> &Instrument {
        &self.all[place].instrument
    }

    /// Whether anything is open.
    pub fn is_open(&self) -> bool {
        !self.groups.is_empty() || self.all.iter().any(|one| self.is_polled(one))
    }

    /// Whether an instrument is read without perf.
    fn is_polled(&self, one: &Watched) -> bool {
        self.is_synthetic || one.is_account()
    }

    /// Whether the counts are those of a synthetic machine.
    pub fn is_synthetic(&self) -> bool {
        self.is_synthetic
    }

    /// From now on each group is read on its own CPU, as perf does: a call to another CPU keeps two busy, since the caller
    /// waits for it in a loop. Where this process may not run on a CPU, such calls are made. [`Session::stop`] gives the thread its
    /// CPUs back.
    pub fn follow_cpus(&mut self) {
        self.follows = true;
    }

    /// Why a counter could not be opened; `None` where it is open.
    pub fn refused(&self, instrument: usize, counter: usize) -> Option<&perf::Error> {
        self.all[instrument].refused[counter].as_ref()
    }

    /// The events of hardware that are open.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        let all = self.all.iter().filter(|one| !one.is_account());
        let all = all.flat_map(|one| one.instrument.counters.iter().zip(&one.refused));
        all.filter(|(_, why)| why.is_none()).map(|(counter, _)| &counter.event)
    }

    /// Every refusal.
    pub fn refusals(&self) -> impl Iterator<Item = &perf::Error> {
        self.all.iter().flat_map(|one| &one.refused).flatten()
    }

    /// Why an instrument no longer answers; `None` while it does.
    pub fn gone(&self, instrument: usize) -> Option<&perf::Error> {
        self.all[instrument].gone.as_ref()
    }

    /// Whether any instrument still answers.
    pub fn is_alive(&self) -> bool {
        let has_group = self.groups.iter().any(|open| self.all[open.instrument].gone.is_none());
        has_group || self.all.iter().any(|one| self.is_polled(one) && one.gone.is_none())
    }

    /// Whether any open counter had to share its hardware since the interval began.
    pub fn is_multiplexed(&self) -> bool {
        self.all.iter().flat_map(|one| &one.tallies).any(|tally| tally.running().is_some())
    }

    /// Lets everything count and takes the first reading: an interval begins here. To let hundreds of groups count takes its
    /// time, so what they count meanwhile belongs to no interval: the first ones would have counted for longer than the last.
    pub fn start(&mut self, root: &Root) {
        for one in &mut self.all {
            one.saturated = if one.is_account() { Vec::new() } else { one.instrument.pmu.saturated(root) };
            one.inode = one.instrument.pmu.inode(root);
        }
        // This takes longest, so it comes before any counter of hardware runs.
        if self.all.iter().any(|one| self.is_polled(one)) {
            let at_ns = now_ns();
            let polled = Polled::open(root, at_ns);
            let value = |one: &Watched, counter: &Counter| polled.value(&one.instrument.pmu, &counter.event, at_ns);
            let first = |one: &Watched| -> Vec<u64> {
                one.instrument.counters.iter().map(|counter| value(one, counter).unwrap_or(0)).collect()
            };
            let last = self.all.iter().map(first).collect();
            self.kept = Some(LastReading { polled, at_ns, last });
        }
        for open in &mut self.groups {
            let started = open.group.read().map(|values| {
                for (at, reading) in open.last.iter_mut().enumerate() {
                    *reading = values.reading(at);
                }
            });
            if let Err(error) = started.and_then(|()| open.group.enable()) {
                self.all[open.instrument].gone.get_or_insert(error);
            }
        }
        self.read();
        // What this thread starts next, such as the user's command, runs where the caller was allowed to run.
        self.stays = None;
        self.begin_interval();
    }

    /// Stops everything; counts stay readable.
    pub fn stop(&mut self) {
        self.stays = None;
        for open in &mut self.groups {
            // One that cannot be stopped is closed soon.
            let _ = open.group.disable();
        }
    }

    /// Begins an interval with empty tallies.
    pub fn begin_interval(&mut self) {
        for one in &mut self.all {
            one.tallies.fill(Tally::default());
            one.doubts.clear();
        }
    }

    /// Reads everything once: hardware's counters without allocating, then the kernel's accounts.
    pub fn read(&mut self) {
        let mut at = None;
        for open in &mut self.groups {
            let one = &mut self.all[open.instrument];
            if one.gone.is_some() {
                continue;
            }
            let cpu = open.group.cpu();
            // Once per CPU: where it was not let there, it is not tried again for each group.
            if self.follows && at.replace(cpu) != Some(cpu) && self.stays.as_ref().map(perf::Stay::cpu) != Some(cpu) {
                self.stays = None;
                self.stays = perf::stay_on(cpu).ok();
            }
            match open.group.read() {
                Ok(values) => {
                    for (at, (place, last)) in open.places.iter().zip(&mut open.last).enumerate() {
                        let (now, counter) = (values.reading(at), &one.instrument.counters[*place]);
                        let value = if counter.event.is_snapshot { 0 } else { last.value };
                        let delta = Delta::between(Reading { value, ..*last }, now, counter.most_per_s);
                        one.tallies[*place].add(delta, now.value);
                        *last = now;
                    }
                }
                Err(error) => one.gone = Some(error),
            }
        }
        self.poll();
    }

    fn poll(&mut self) {
        let Some(LastReading { polled, at_ns, last }) = &mut self.kept else { return };
        // A synthetic machine's files and counters are of one moment; those of a real one are read until the second.
        let now = now_ns();
        polled.read(now);
        let now = if self.is_synthetic { now } else { now_ns() };
        let from_ns = std::mem::replace(at_ns, now);
        let doubts = polled.accounts.take_doubts();
        for (one, before) in self.all.iter_mut().zip(last) {
            if (self.is_synthetic || one.is_account()) && one.gone.is_none() {
                one.count(polled, before, from_ns, *at_ns);
                one.doubts.extend(doubts.iter().filter(|doubt| one.instrument.pmu.bdf == Some(doubt.bdf)).cloned());
            }
        }
    }

    /// Checks whether the PMUs are still there, and which of their counters have reached their end since the last check. Closes
    /// the events of those that are gone: a driver may wait for that before it registers a PMU for what came back. Reads files,
    /// so it is not for every reading.
    pub fn refresh(&mut self, root: &Root) {
        for one in self.all.iter_mut().filter(|one| one.gone.is_none()) {
            let pmu = &one.instrument.pmu;
            if one.inode != pmu.inode(root) || !pmu.is_present(root) {
                one.gone = Some(perf::Error::Gone(pmu.name.clone()));
                continue;
            }
            if one.is_account() {
                continue;
            }
            let now = pmu.saturated(root);
            for (tally, counter) in one.tallies.iter_mut().zip(&one.instrument.counters) {
                let times = |all: &[(u64, u32, u64)]| {
                    let mut all = all.iter();
                    all.find(|end| pmu.is_event_counter(counter.event.config, end.0, end.1)).map_or(0, |end| end.2)
                };
                tally.at_least |= times(&now) > times(&one.saturated);
            }
            one.saturated = now;
        }
        self.groups.retain(|open| self.all[open.instrument].gone.is_none());
    }

    /// What was doubtful about a function's account in this interval.
    pub fn account_doubts(&self, instrument: usize) -> &[Doubt] {
        &self.all[instrument].doubts
    }

    /// The tallies of an instrument, in the order of its counters.
    pub fn tallies(&self, instrument: usize) -> &[Tally] {
        &self.all[instrument].tallies
    }
}
