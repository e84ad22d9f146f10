//! The state of the server: the last readings, and sums that only grow. It takes records, and gives a [`Feed`] and
//! families of samples.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hyper::body::Bytes;
use pciescope_core::plan::Plan;
use pciescope_core::{Bdf, Device, Link, Live, Record, Sink, Warning};
use tokio::sync::broadcast;

use crate::feed::{Feed, HISTORY, Possible, Reading, Status};
use crate::instance::{Instance, Sums};
use crate::series::{self, Family, Rule};

/// The `test` of the records that count.
const TEST: &str = "counters";
/// Events that wait for a slow client. One that misses more is told to read the state again.
const EVENTS: usize = 16;

/// What a client of the event stream is told.
#[derive(Debug, Clone)]
pub enum Event {
    /// A reading, as JSON.
    Reading(Arc<str>),
    /// What there is changed: ports, channels, devices or the status.
    Changed,
}

/// How the server presents itself.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// The machine's name.
    pub host: String,
    /// What the user calls this run.
    pub label: Option<String>,
    /// The time between two readings as the user asked for it; `None`: as the run's plan has it, or a second.
    pub interval: Option<Duration>,
}

/// All that the server knows, shared by the thread that counts and the threads that answer.
#[derive(Debug)]
pub struct State {
    setup: Setup,
    inner: Mutex<Inner>,
    /// [`Feed`] as JSON and its version. All readers share the same bytes.
    written: Mutex<(u64, Bytes)>,
    events: broadcast::Sender<Event>,
}

/// What is known, behind the lock.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) status: Status,
    /// Goes up with each change.
    version: u64,
    /// What counts, with the figures and warnings of the last reading.
    pub(crate) live: Live,
    /// The sums of each source of [`Live::sources`], by its place.
    sums: Vec<Sums>,
    /// Families by name: what each is does not depend on the instance.
    pub(crate) families: BTreeMap<String, Family>,
    pub(crate) devices: Vec<Device>,
    readings: VecDeque<Reading>,
    last: Vec<Record>,
    /// What could not be opened at the beginning of the run.
    not_counted: Vec<Warning>,
    pub(crate) count: u64,
    pub(crate) late: u64,
    pub(crate) refused: u64,
    pub(crate) last_at: Option<Instant>,
    /// The length of the intervals of this run, as it was asked for.
    planned_s: Option<f64>,
    /// The machine of the records, where they name it.
    host: Option<String>,
}

impl State {
    /// Nothing is known yet.
    pub fn new(setup: Setup) -> Self {
        let status = Status { state: "starting".to_owned(), ..Status::default() };
        let inner = Inner { status, version: 1, ..Inner::default() };
        // Nothing is written of version 0.
        State { setup, inner: Mutex::new(inner), written: Mutex::default(), events: broadcast::Sender::new(EVENTS) }
    }

    /// Ignores a panic of another thread that had the lock: each value that it set is whole.
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives the events from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    fn tell(&self, event: Event) {
        // An error means that there is no client.
        let _ = self.events.send(event);
    }

    /// Sets whether something counts, and if not, why.
    pub fn set_status(&self, state: &str, text: Option<String>, hint: Option<String>) {
        let status = Status { state: state.to_owned(), text, hint };
        let mut inner = self.inner();
        if inner.status == status {
            return;
        }
        if !matches!(status.state.as_str(), "counting" | "replaying") {
            inner.sums.iter_mut().for_each(Sums::rest);
        }
        inner.status = status;
        inner.version += 1;
        drop(inner);
        self.tell(Event::Changed);
    }

    /// Takes the inventory of the machine.
    pub fn set_devices(&self, devices: Vec<Device>) {
        let mut inner = self.inner();
        if inner.devices == devices {
            return;
        }
        inner.devices = devices;
        inner.version += 1;
        drop(inner);
        self.tell(Event::Changed);
    }

    /// Takes the records of one interval, or the first record of a run. Records that count nothing are skipped.
    pub fn put_all(&self, records: &[Record]) {
        let mut inner = self.inner();
        inner.version += 1;
        for record in records.iter().filter(|record| record.test == "environment") {
            inner.begin(record);
        }
        let counts = |record: &&Record| record.test == TEST && record.instance.is_some();
        let Some(first) = records.iter().find(counts) else { return };
        let seconds = first.interval.map_or(0.0, |interval| interval.seconds());
        let mut has_changed = inner.status.state == "starting";
        if has_changed {
            inner.status.state = "counting".to_owned();
        }
        let mut reading = Reading { time_ms: now_ms(), seconds, ..Reading::default() };
        inner.sums.iter_mut().for_each(Sums::rest);
        inner.live.warnings = inner.not_counted.clone();
        for record in records.iter().filter(counts) {
            has_changed |= inner.put(record, &mut reading);
        }
        // A file may hold a plan of no length.
        if let Some(planned) = inner.planned_s.filter(|planned| *planned > 0.0 && seconds > 1.5 * planned) {
            inner.late = inner.late.saturating_add((seconds / planned).round() as u64 - 1);
        }
        inner.count += 1;
        inner.last_at = Some(Instant::now());
        inner.last = records.iter().filter(counts).cloned().collect();
        let text = serde_json::to_string(&reading).unwrap_or_default();
        if inner.readings.len() == HISTORY {
            inner.readings.pop_front();
        }
        inner.readings.push_back(reading);
        drop(inner);
        if has_changed {
            self.tell(Event::Changed);
        }
        self.tell(Event::Reading(text.into()));
    }

    /// The records of the last interval.
    pub fn records(&self) -> Vec<Record> {
        self.inner().last.clone()
    }

    /// The time between two readings.
    pub(crate) fn interval_s(&self, inner: &Inner) -> f64 {
        let asked = self.setup.interval.map(|interval| interval.as_secs_f64());
        asked.or(inner.planned_s).unwrap_or(1.0)
    }

    /// Everything, for the page.
    pub fn feed(&self) -> Feed {
        self.feed_of(&self.inner())
    }

    /// Everything as JSON: the same bytes for all readers until something changes.
    pub(crate) fn json(&self) -> serde_json::Result<Bytes> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = self.inner();
        if written.0 != inner.version {
            let (version, feed) = (inner.version, self.feed_of(&inner));
            // The thread that counts must not wait for megabytes of text.
            drop(inner);
            *written = (version, serde_json::to_vec(&feed)?.into());
        }
        Ok(written.1.clone())
    }

    fn feed_of(&self, inner: &Inner) -> Feed {
        let mut feed = Feed {
            schema: 1,
            host: inner.host.clone().unwrap_or_else(|| self.setup.host.clone()),
            is_synthetic: inner.live.sources.iter().any(|source| source.is_synthetic),
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            label: self.setup.label.clone(),
            interval_s: self.interval_s(inner),
            now_ms: now_ms(),
            status: inner.status.clone(),
            warnings: inner.live.warnings.clone(),
            devices: inner.devices.clone(),
            paths: paths(&inner.devices),
            readings: inner.readings.iter().cloned().collect(),
            ..Feed::default()
        };
        for one in inner.instances() {
            match one.source.scope.as_str() {
                "port" => feed.ports.push(one.port()),
                // Without a root port above it, it stands where a port would.
                "function" if one.source.is_at_root() => feed.ports.push(one.port()),
                "function" => feed.functions.push(one.port()),
                "channel" => feed.channels.push(one.channel()),
                _ => feed.others.push(one.other()),
            }
        }
        let hardware = inner.live.hardware_ports();
        let second = inner.instances().filter(|one| hardware.is_second(one.source.counted_by())).map(|one| one.id());
        let second: BTreeSet<String> = second.collect();
        for port in &mut feed.ports {
            port.is_second = second.contains(&port.id);
            let below = inner.links_below(port.bdf);
            let possible = port.link.and_then(|link| below.into_iter().find_map(|other| link.possible(&other)));
            port.possible = possible.map(|(speed_gts, width)| Possible { speed_gts, width });
        }
        feed
    }
}

impl Sink for &State {
    fn put(&mut self, record: &Record) -> io::Result<()> {
        State::put_all(self, std::slice::from_ref(record));
        Ok(())
    }

    fn put_all(&mut self, records: &[Record]) -> io::Result<()> {
        State::put_all(self, records);
        Ok(())
    }
}

impl Inner {
    /// The ports, functions, channels and other PMUs with their sums. Sums of channels are left out: a reader adds up better.
    pub(crate) fn instances(&self) -> impl Iterator<Item = Instance<'_>> {
        let all =
            self.live.places().map(|place| Instance { source: &self.live.sources[place], sums: &self.sums[place] });
        all.filter(|one| is_instance(&one.source.scope))
    }

    /// The links of the functions right below a port, as sysfs or else the records have them.
    fn links_below(&self, port: Option<Bdf>) -> Vec<Link> {
        let is_below = |path: &[Bdf]| port.is_some() && path.last().copied() == port;
        let functions = self.live.sources.iter().filter_map(|source| source.port.as_ref());
        let recorded = functions.filter(|one| is_below(&one.path)).filter_map(|one| one.link);
        self.devices.iter().filter(|one| is_below(&one.path)).map(|one| one.link).chain(recorded).collect()
    }

    /// The first record of a run.
    fn begin(&mut self, record: &Record) {
        let host = record.environment.as_ref().and_then(|environment| environment.host.as_ref());
        self.host = host.map(|host| host.name.clone());
        self.not_counted = record.warnings.clone();
        self.planned_s = match &record.plan {
            Some(Plan::Stat(plan)) => plan.interval_ns.map(|ns| ns as f64 / 1e9),
            _ => None,
        };
    }

    /// Takes the record of an instance; returns true if what is known of it changed.
    fn put(&mut self, record: &Record, reading: &mut Reading) -> bool {
        let Some((place, has_changed)) = self.live.take(record) else { return false };
        self.sums.resize_with(self.live.sources.len(), Sums::default);
        let (source, one) = (&self.live.sources[place], &mut self.sums[place]);
        if !is_instance(&source.scope) {
            return false;
        }
        let pmu = source.pmu.as_deref().unwrap_or_default();
        let seconds = record.interval.map_or(0.0, |interval| interval.seconds());
        for (name, metric) in &record.metrics {
            // A record of a file may hold anything: a sum that has met NaN never leaves it.
            if !metric.value.is_finite() {
                self.refused += 1;
                continue;
            }
            if !one.rules.contains_key(name) {
                let kind = series::kind(&source.scope, pmu, record.metrics.keys().map(String::as_str));
                if kind.is_some_and(|kind| series::is_error(kind, name)) {
                    one.errors.insert(name.clone());
                }
                one.rules.insert(name.clone(), series::rule(&source.scope, kind, name));
            }
            let rule = &one.rules[name];
            let add = |sum: &mut f64, value: f64| {
                let is_sum = value >= 0.0 && (*sum + value).is_finite();
                if is_sum {
                    *sum += value;
                }
                u64::from(!is_sum)
            };
            let family = match rule {
                Rule::Sum(family, factor) => {
                    self.refused += add(one.sums.entry(family.name.clone()).or_default(), metric.value * *factor);
                    family
                }
                Rule::Rate(family, factor) => {
                    let value = metric.value * *factor * seconds;
                    self.refused += add(one.sums.entry(family.name.clone()).or_default(), value);
                    family
                }
                Rule::State(family, state, factor) => {
                    let states = one.states.entry(family.name.clone()).or_default();
                    self.refused += add(states.entry(state.clone()).or_default(), metric.value * *factor * seconds);
                    family
                }
                Rule::Gauge(family, factor) => {
                    one.gauges.insert(family.name.clone(), metric.value * *factor);
                    family
                }
                Rule::Named(family) => {
                    let sum = one.named.entry((name.clone(), metric.unit.clone())).or_default();
                    self.refused += add(sum, metric.value);
                    family
                }
                Rule::Nothing => continue,
            };
            if !self.families.contains_key(&family.name) {
                self.families.insert(family.name.clone(), family.clone());
            }
        }
        // A lower bound is no counter at its end.
        let has_end = !source.is_accounting();
        one.saturated += u64::from(has_end && record.metrics.values().any(|metric| metric.at_least));
        if record.error.is_none() {
            let shares = record.metrics.values().filter_map(|metric| metric.running).filter(|share| share.is_finite());
            let running = shares.fold(1.0, f64::min);
            one.running = Some(running);
            one.is_estimated |= running < 1.0;
            Instance { source, sums: one }.show(record, reading);
        }
        has_changed
    }
}

/// Whether a scope is a piece of hardware, not a sum of some.
fn is_instance(scope: &str) -> bool {
    matches!(scope, "port" | "function" | "channel" | "pmu")
}

/// What lies between root ports and devices: where nothing does a device's root port says it all.
fn paths(devices: &[Device]) -> BTreeMap<String, Vec<Bdf>> {
    let behind = devices.iter().filter(|device| device.path.len() > 1);
    behind.map(|device| (device.bdf.to_string(), device.path.clone())).collect()
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_ask_share_one_text_until_something_changes() {
        let state = State::new(Setup::default());
        let device = Device {
            bdf: "0000:02:00.0".parse().unwrap(),
            inode: None,
            name: String::new(),
            class: String::new(),
            driver: None,
            devices: Vec::new(),
            node: None,
            path: Vec::new(),
            link: Link::default(),
            is_downtrained: None,
            errors: None,
            watched: None,
        };
        let first = state.json().unwrap();
        assert!(first.starts_with(b"{\"schema\":1"));
        let mut last = first.as_ptr();
        let mut kept = vec![first];
        let changes: [&dyn Fn(); 3] =
            [&|| state.set_status("none", None, None), &|| state.set_devices(vec![device.clone()]), &|| {
                state.put_all(&[])
            }];
        for change in changes {
            assert_eq!(state.json().unwrap().as_ptr(), last);
            change();
            let now = state.json().unwrap();
            assert_ne!(now.as_ptr(), last);
            last = now.as_ptr();
            kept.push(now);
        }
        assert!(String::from_utf8_lossy(&kept[3]).contains("0000:02:00.0"));
    }
}
