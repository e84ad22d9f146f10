//! Open counters and their readings: what was counted since the last time, instance by instance.

use std::fmt;

use pciescope_hw::Root;
use pciescope_hw::perf::{self, Delta, Event, Group, Pmu, Reading};

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

/// A group with its last reading.
struct Open {
    group: Group,
    instrument: usize,
    /// The places of its events among the instrument's counters.
    places: Vec<usize>,
    last: Vec<Reading>,
}

/// Counters that are open. Each call of [`Session::read`] adds to the tallies since [`Session::begin_interval`].
pub struct Session {
    instruments: Vec<Instrument>,
    groups: Vec<Open>,
    tallies: Vec<Vec<Tally>>,
    refused: Vec<Vec<Option<perf::Error>>>,
    gone: Vec<Option<perf::Error>>,
    saturated: Vec<Vec<(u64, u32, u64)>>,
    /// The folders of each instrument's PMU and PCI function at the start ([`Pmu::inodes`](perf::Pmu::inodes)).
    inodes: Vec<[Option<u64>; 2]>,
    /// Whether this thread goes to the CPU of the group that is read.
    follows: bool,
    /// Where it is, if it was let there.
    stays: Option<perf::Stay>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("instruments", &self.instruments).finish_non_exhaustive()
    }
}

impl Session {
    /// Opens what can be opened of `instruments`; what cannot is in [`Session::refused`]. Nothing counts yet.
    ///
    /// # Errors
    /// [`Error::Recorded`].
    pub fn open(root: &Root, instruments: Vec<Instrument>) -> Result<Self, Error> {
        if !root.is_live() {
            return Err(Error::Recorded);
        }
        let mut session = Session {
            groups: Vec::new(),
            tallies: instruments.iter().map(|i| vec![Tally::default(); i.counters.len()]).collect(),
            refused: instruments.iter().map(|i| i.counters.iter().map(|_| None).collect()).collect(),
            gone: instruments.iter().map(|_| None).collect(),
            saturated: Vec::new(),
            inodes: Vec::new(),
            follows: false,
            stays: None,
            instruments,
        };
        for (number, instrument) in session.instruments.iter().enumerate() {
            let events: Vec<Event> = instrument.counters.iter().map(|counter| counter.event.clone()).collect();
            let packed = Group::open_packed(root, &instrument.pmu, instrument.cpu, &events);
            for (group, places) in packed.groups {
                let last = vec![Reading::default(); places.len()];
                session.groups.push(Open { group, instrument: number, places, last });
            }
            for (place, error) in packed.refused {
                session.refused[number][place] = Some(error);
            }
        }
        // Those of one CPU behind each other.
        session.groups.sort_by_key(|open| open.group.cpu());
        Ok(session)
    }

    /// The instruments in the order in which they were given.
    pub fn instruments(&self) -> &[Instrument] {
        &self.instruments
    }

    /// How many groups are open: so many system calls is a reading.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// From now on each group is read on its own CPU, as perf does: a call to another CPU keeps two busy, since the caller
    /// waits for it in a loop. Where this process may not run on a CPU, such calls are made. [`Session::stop`] gives the thread its
    /// CPUs back.
    pub fn follow_cpus(&mut self) {
        self.follows = true;
    }

    /// Why a counter could not be opened; `None` where it is open.
    pub fn refused(&self, instrument: usize, counter: usize) -> Option<&perf::Error> {
        self.refused[instrument][counter].as_ref()
    }

    /// The events that are open.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        let all = self.instruments.iter().zip(&self.refused);
        let open = all.flat_map(|(one, refused)| one.counters.iter().zip(refused).filter(|(_, why)| why.is_none()));
        open.map(|(counter, _)| &counter.event)
    }

    /// Every refusal.
    pub fn refusals(&self) -> impl Iterator<Item = &perf::Error> {
        self.refused.iter().flatten().flatten()
    }

    /// Why an instrument no longer answers; `None` while it does.
    pub fn gone(&self, instrument: usize) -> Option<&perf::Error> {
        self.gone[instrument].as_ref()
    }

    /// Whether any instrument still answers.
    pub fn is_alive(&self) -> bool {
        self.groups.iter().any(|open| self.gone[open.instrument].is_none())
    }

    /// Whether any open counter had to share its hardware since the interval began.
    pub fn is_multiplexed(&self) -> bool {
        self.tallies.iter().flatten().any(|tally| tally.running().is_some())
    }

    /// Begins an interval: lets everything count from now on and takes the first reading.
    pub fn start(&mut self, root: &Root) {
        self.begin_interval();
        self.saturated = self.instruments.iter().map(|i| i.pmu.saturated(root)).collect();
        self.inodes = self.instruments.iter().map(|i| i.pmu.inodes(root)).collect();
        for open in &mut self.groups {
            let started = open.group.read().map(|values| keep(&mut open.last, &values));
            if let Err(error) = started.and_then(|()| open.group.enable()) {
                self.gone[open.instrument].get_or_insert(error);
            }
        }
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
        for tally in self.tallies.iter_mut().flatten() {
            *tally = Tally::default();
        }
    }

    /// Reads everything once, without allocating.
    pub fn read(&mut self) {
        let mut at = None;
        for open in &mut self.groups {
            if self.gone[open.instrument].is_some() {
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
                    let counters = &self.instruments[open.instrument].counters;
                    let tallies = &mut self.tallies[open.instrument];
                    for (at, place) in open.places.iter().enumerate() {
                        let now = values.reading(at);
                        let counter = &counters[*place];
                        let before = Reading {
                            value: if counter.event.is_snapshot { 0 } else { open.last[at].value },
                            ..open.last[at]
                        };
                        let delta = Delta::between(before, now, counter.most_per_s);
                        tallies[*place].add(delta, now.value);
                        open.last[at] = now;
                    }
                }
                Err(error) => self.gone[open.instrument] = Some(error),
            }
        }
    }

    /// Checks whether the PMUs are still there, and which of their counters have reached their end since the last check. Closes
    /// the events of those that are gone: a driver may wait for that before it registers a PMU for what came back. Reads files,
    /// so it is not for every reading.
    pub fn refresh(&mut self, root: &Root) {
        for (number, instrument) in self.instruments.iter().enumerate() {
            if self.gone[number].is_some() {
                continue;
            }
            let before = self.inodes[number];
            let is_other =
                before.iter().zip(instrument.pmu.inodes(root)).any(|(was, now)| was.is_some() && *was != now);
            if is_other || !instrument.pmu.is_present(root) {
                self.gone[number] = Some(perf::Error::Gone { event: instrument.pmu.name.clone() });
                continue;
            }
            let now = instrument.pmu.saturated(root);
            let before = &self.saturated[number];
            for (place, counter) in instrument.counters.iter().enumerate() {
                let times = |all: &[(u64, u32, u64)]| {
                    all.iter()
                        .find(|one| instrument.pmu.is_event_counter(counter.event.config, one.0, one.1))
                        .map_or(0, |one| one.2)
                };
                if times(&now) > times(before) {
                    self.tallies[number][place].at_least = true;
                }
            }
            self.saturated[number] = now;
        }
        self.groups.retain(|open| self.gone[open.instrument].is_none());
    }

    /// The tallies of an instrument, in the order of its counters.
    pub fn tallies(&self, instrument: usize) -> &[Tally] {
        &self.tallies[instrument]
    }
}

fn keep(last: &mut [Reading], values: &perf::Values<'_>) {
    for (at, reading) in last.iter_mut().enumerate() {
        *reading = values.reading(at);
    }
}
