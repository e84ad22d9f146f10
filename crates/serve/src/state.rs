//! The last reading of everything, its history, and sums that only grow. Records go in, [`Feed`] and families of samples
//! come out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hyper::body::Bytes;
use pciescope_core::plan::Plan;
use pciescope_core::record::{Failure, Instance, Warning};
use pciescope_core::{Record, Sink};
use tokio::sync::broadcast;

use crate::feed::{self, Channel, Device, Feed, HISTORY, Other, Port, Reading, Status};
use crate::series::{self, Family, Rule};

/// The `test` of the records that count.
const TEST: &str = "counters";
/// So many events wait for a client that reads slowly; it is told to begin anew after that.
const EVENTS: usize = 16;
/// So many warnings of a reading are kept.
const WARNINGS: usize = 100;

/// What a client of the event stream is told.
#[derive(Debug, Clone)]
pub enum Event {
    /// A reading, as JSON.
    Reading(Arc<str>),
    /// What there is changed: ports, channels, devices or the status.
    Changed,
}

/// What the server is to call itself.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// The machine's name.
    pub host: String,
    /// What the user calls this run.
    pub label: Option<String>,
    /// The time between two readings.
    pub interval: Duration,
}

/// All that the server knows. It is shared between the thread that reads and those that answer.
#[derive(Debug)]
pub struct State {
    setup: Setup,
    held: Mutex<Held>,
    /// [`Feed`] as JSON and the version that it is of: who reads slowly shares it with all others.
    written: Mutex<(u64, Bytes)>,
    events: broadcast::Sender<Event>,
}

/// What is kept.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) status: Status,
    /// Goes up with each change.
    version: u64,
    pub(crate) instances: BTreeMap<Key, One>,
    /// Families by name: what each is does not depend on the instance.
    pub(crate) families: BTreeMap<String, Family>,
    pub(crate) devices: Vec<Device>,
    readings: VecDeque<Reading>,
    last: Vec<Record>,
    pub(crate) warnings: Vec<Warning>,
    /// What could not be opened at the beginning of the run.
    not_counted: Vec<Warning>,
    pub(crate) count: u64,
    pub(crate) late: u64,
    pub(crate) refused: u64,
    pub(crate) last_at: Option<Instant>,
    /// The length of the intervals of this run, as it was asked for.
    planned_s: Option<f64>,
}

/// Scope, node, name and CPU: the order in which instances are shown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    scope: u8,
    node: Option<u32>,
    name: String,
    cpu: Option<u32>,
}

/// An instance: a port, a channel or another PMU.
#[derive(Debug, Default)]
pub(crate) struct One {
    pub(crate) record: Record,
    pub(crate) id: String,
    pub(crate) sums: BTreeMap<String, f64>,
    /// Seconds by family and state.
    pub(crate) states: BTreeMap<String, BTreeMap<String, f64>>,
    pub(crate) gauges: BTreeMap<String, f64>,
    /// Sums of events that a user named, by their terms and unit.
    pub(crate) named: BTreeMap<(String, String), f64>,
    pub(crate) running: f64,
    pub(crate) saturated: u64,
    /// Whether it was in the last reading, without an error.
    pub(crate) is_up: bool,
    pub(crate) error: Option<Failure>,
    /// What becomes of each figure.
    rules: BTreeMap<String, Rule>,
    /// The figures that are errors.
    errors: BTreeSet<String>,
    link_bytes_per_s: Option<f64>,
    peak_bytes_per_s: Option<f64>,
}

impl One {
    /// What is known of the piece of hardware.
    pub(crate) fn instance(&self) -> &Instance {
        self.record.instance.as_ref().expect("only records with an instance are kept")
    }

    /// The CPU, where that tells it from another instance of its PMU.
    pub(crate) fn cpu(&self) -> Option<u32> {
        cpu(&self.record)
    }

    /// `port`, `channel` or `pmu`.
    pub(crate) fn scope(&self) -> &str {
        &self.instance().scope
    }
}

impl State {
    /// Nothing is known yet.
    pub fn new(setup: Setup) -> Self {
        let status = Status { state: "starting".to_owned(), ..Status::default() };
        let held = Held { status, version: 1, ..Held::default() };
        // Nothing is written of version 0.
        State { setup, held: Mutex::new(held), written: Mutex::default(), events: broadcast::Sender::new(EVENTS) }
    }

    /// A thread that panicked while it held the lock has left whole values: they are set one by one.
    pub(crate) fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time between two readings.
    pub fn interval(&self) -> Duration {
        self.setup.interval
    }

    /// What is told from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    fn tell(&self, event: Event) {
        // Without clients there is nobody to tell.
        let _ = self.events.send(event);
    }

    /// Says whether something counts, and if not, why.
    pub fn set_status(&self, state: &str, text: Option<String>, hint: Option<String>) {
        let status = Status { state: state.to_owned(), text, hint };
        let mut held = self.held();
        if held.status == status {
            return;
        }
        if !matches!(status.state.as_str(), "counting" | "replaying") {
            held.instances.values_mut().for_each(One::rest);
        }
        held.status = status;
        held.version += 1;
        drop(held);
        self.tell(Event::Changed);
    }

    /// Takes the inventory of the machine.
    pub fn set_devices(&self, devices: Vec<Device>) {
        let mut held = self.held();
        if held.devices == devices {
            return;
        }
        held.devices = devices;
        held.version += 1;
        drop(held);
        self.tell(Event::Changed);
    }

    /// Takes the records of one interval, or the first record of a run. Records that count nothing are passed over.
    pub fn put_all(&self, records: &[Record]) {
        let mut held = self.held();
        held.version += 1;
        for record in records.iter().filter(|record| record.test == "environment") {
            held.begin(record);
        }
        let counts = |record: &&Record| record.test == TEST && record.instance.is_some();
        let Some(first) = records.iter().find(counts) else { return };
        let seconds = first.interval.map_or(0.0, |interval| interval.seconds());
        let known = held.instances.len();
        let mut has_changed = held.status.state == "starting";
        if has_changed {
            held.status.state = "counting".to_owned();
        }
        let mut reading = Reading { time_ms: now_ms(), seconds, ..Reading::default() };
        held.instances.values_mut().for_each(One::rest);
        held.warnings = held.not_counted.clone();
        let mut counted: BTreeMap<Key, &str> = BTreeMap::new();
        for record in records.iter().filter(counts) {
            // Two drivers of one port count the same: that is not to be added up twice.
            let key = record.instance.as_ref().and_then(|instance| key(record, instance));
            match key.map(|key| *counted.entry(key).or_insert(pmu(record))) {
                Some(first) if first != pmu(record) => held.doubled(record, first),
                _ => has_changed |= held.put(record, &mut reading),
            }
        }
        has_changed |= held.instances.len() != known;
        // A file may hold a plan of no length.
        if let Some(planned) = held.planned_s.filter(|planned| *planned > 0.0 && seconds > 1.5 * planned) {
            held.late = held.late.saturating_add((seconds / planned).round() as u64 - 1);
        }
        held.count += 1;
        held.last_at = Some(Instant::now());
        held.last = records.iter().filter(counts).cloned().collect();
        let text = serde_json::to_string(&reading).unwrap_or_default();
        if held.readings.len() == HISTORY {
            held.readings.pop_front();
        }
        held.readings.push_back(reading);
        drop(held);
        if has_changed {
            self.tell(Event::Changed);
        }
        self.tell(Event::Reading(text.into()));
    }

    /// The records of the last interval.
    pub fn records(&self) -> Vec<Record> {
        self.held().last.clone()
    }

    /// Everything, for the page.
    pub fn feed(&self) -> Feed {
        self.feed_of(&self.held())
    }

    /// Everything as JSON: the same bytes for all who ask until something changes.
    pub(crate) fn json(&self) -> serde_json::Result<Bytes> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let held = self.held();
        if written.0 != held.version {
            let (version, feed) = (held.version, self.feed_of(&held));
            // The thread that counts is not to wait for megabytes of text.
            drop(held);
            *written = (version, serde_json::to_vec(&feed)?.into());
        }
        Ok(written.1.clone())
    }

    fn feed_of(&self, held: &Held) -> Feed {
        let mut feed = Feed {
            schema: 1,
            host: self.setup.host.clone(),
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            label: self.setup.label.clone(),
            interval_s: held.planned_s.unwrap_or(self.setup.interval.as_secs_f64()),
            now_ms: now_ms(),
            status: held.status.clone(),
            warnings: held.warnings.clone(),
            devices: held.devices.clone(),
            readings: held.readings.iter().cloned().collect(),
            ..Feed::default()
        };
        for one in held.instances.values() {
            match one.scope() {
                "port" => feed.ports.push(one.port()),
                "channel" => feed.channels.push(one.channel()),
                _ => feed.others.push(one.other()),
            }
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

impl Held {
    /// The first record of a run.
    fn begin(&mut self, record: &Record) {
        self.not_counted = record.warnings.clone();
        self.planned_s = match &record.plan {
            Some(Plan::Stat(plan)) => plan.interval_ns.map(|ns| ns as f64 / 1e9),
            _ => None,
        };
    }

    /// Takes the record of an instance; says whether what is known of it changed.
    /// Says that a port is counted by another PMU already.
    fn doubled(&mut self, record: &Record, first: &str) {
        let bdf = record.device.as_ref().and_then(|device| device.bdf).map(|bdf| bdf.to_string()).unwrap_or_default();
        let warning = Warning {
            code: "counted-twice".to_owned(),
            text: format!("{bdf}: {} counts what {first} counts, and is left out", pmu(record)),
            hint: "unload one of the two drivers, or name the PMUs that are to be counted".to_owned(),
        };
        if self.warnings.len() < WARNINGS && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn put(&mut self, record: &Record, reading: &mut Reading) -> bool {
        let Some(instance) = &record.instance else { return false };
        for warning in &record.warnings {
            if self.warnings.len() < WARNINGS && !self.warnings.contains(warning) {
                self.warnings.push(warning.clone());
            }
        }
        let Some(key) = key(record, instance) else { return false };
        let one = self.instances.entry(key).or_default();
        let has_changed = one.is_other(record);
        if has_changed {
            one.become_of(record);
        }
        one.error.clone_from(&record.error);
        one.is_up = record.error.is_none();
        let seconds = record.interval.map_or(0.0, |interval| interval.seconds());
        for (name, metric) in &record.metrics {
            // A record of a file may hold anything: a sum that has met NaN never leaves it.
            if !metric.value.is_finite() {
                self.refused += 1;
                continue;
            }
            let scope = &instance.scope;
            if !one.rules.contains_key(name) {
                let pmu = instance.pmu.as_deref().unwrap_or_default();
                let kind = series::kind(scope, pmu, record.metrics.keys().map(String::as_str));
                if kind.is_some_and(|kind| series::is_error(kind, name)) {
                    one.errors.insert(name.clone());
                }
                one.rules.insert(name.clone(), series::rule(scope, kind, name));
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
        let value = |name: &str| record.metrics.get(name).map(|metric| metric.value).filter(|value| value.is_finite());
        one.link_bytes_per_s = value("link_bytes_per_s");
        one.peak_bytes_per_s = value("peak_bytes_per_s");
        let shares = record.metrics.values().filter_map(|metric| metric.running).filter(|share| share.is_finite());
        one.running = shares.fold(1.0, f64::min);
        one.saturated += u64::from(record.metrics.values().any(|metric| metric.at_least));
        if record.error.is_none() {
            one.show(record, reading);
        }
        has_changed
    }
}

/// The PMU of a record; empty where it has none.
fn pmu(record: &Record) -> &str {
    record.instance.as_ref().and_then(|instance| instance.pmu.as_deref()).unwrap_or_default()
}

/// Which instance a record is of; `None` for sums of channels, which a reader adds up better.
fn key(record: &Record, instance: &Instance) -> Option<Key> {
    let pmu = instance.pmu.clone();
    let bdf = record.device.as_ref().and_then(|device| device.bdf);
    let (scope, name) = match instance.scope.as_str() {
        "port" => (0, bdf.map(|bdf| bdf.to_string()).or(pmu)?),
        "channel" => (1, pmu?),
        "pmu" => (2, pmu?),
        _ => return None,
    };
    Some(Key { scope, node: instance.node, name, cpu: cpu(record) })
}

/// The CPU on which a record was counted, where that tells instances of its PMU apart.
fn cpu(record: &Record) -> Option<u32> {
    record.cpu.as_ref().map(|cpu| cpu.cpu)
}

impl One {
    /// It is not in the reading that begins.
    fn rest(&mut self) {
        self.is_up = false;
        self.gauges.clear();
    }

    /// Whether a record says something else of the hardware than the one before.
    fn is_other(&self, record: &Record) -> bool {
        self.record.instance != record.instance
            || self.record.device != record.device
            || self.error != record.error
            || self.id.is_empty()
    }

    fn become_of(&mut self, record: &Record) {
        self.record = Record {
            device: record.device.clone(),
            instance: record.instance.clone(),
            cpu: record.cpu.clone(),
            ..Record::default()
        };
        let instance = self.instance();
        let pmu = instance.pmu.clone().unwrap_or_default();
        let bdf = self.record.device.as_ref().and_then(|device| device.bdf);
        self.id = match (instance.scope.as_str(), bdf, instance.node) {
            ("port", Some(bdf), _) => bdf.to_string(),
            (_, _, Some(node)) => format!("{pmu}@{node}"),
            _ => pmu,
        };
        if let Some(cpu) = self.cpu() {
            self.id += &format!(" CPU {cpu}");
        }
    }

    fn port(&self) -> Port {
        let device = self.record.device.clone().unwrap_or_default();
        Port {
            id: self.id.clone(),
            bdf: device.bdf,
            pmu: self.instance().pmu.clone(),
            name: device.name,
            driver: device.driver,
            node: self.instance().node,
            link: device.link,
            ceiling_bytes_per_s: self.link_bytes_per_s,
            below: self.instance().below.clone(),
            error: self.error.clone(),
        }
    }

    fn channel(&self) -> Channel {
        Channel {
            id: self.id.clone(),
            pmu: self.instance().pmu.clone().unwrap_or_default(),
            node: self.instance().node,
            cpu: self.cpu(),
            place: self.place(),
            peak_bytes_per_s: self.peak_bytes_per_s,
            error: self.error.clone(),
        }
    }

    fn other(&self) -> Other {
        let pmu = self.instance().pmu.clone().unwrap_or_default();
        let kind = series::kind("pmu", &pmu, self.rules.keys().map(String::as_str));
        let title = kind.map(|kind| kind.title.clone());
        let error = self.error.clone();
        Other { id: self.id.clone(), pmu, node: self.instance().node, cpu: self.cpu(), title, error }
    }

    /// Where a channel sits, as far as its PMU's name tells.
    pub(crate) fn place(&self) -> BTreeMap<String, u64> {
        let pmu = self.instance().pmu.as_deref().unwrap_or_default();
        let kind = series::kind(self.scope(), pmu, self.rules.keys().map(String::as_str));
        let mut place = kind.map(|kind| kind.place(pmu)).unwrap_or_default();
        place.retain(|word, _| matches!(word.as_str(), "socket" | "die" | "channel" | "sub_channel"));
        place
    }

    /// Enters what the page shows of a record.
    fn show(&self, record: &Record, reading: &mut Reading) {
        let metric = |name: &str| record.metrics.get(name).filter(|metric| metric.value.is_finite());
        let rate = |name: &str| {
            let seconds = record.interval.map(|interval| interval.seconds()).filter(|seconds| *seconds > 0.0);
            let by_rate = metric(&format!("{name}_bytes_per_s")).map(|metric| metric.value);
            by_rate.or_else(|| Some(metric(&format!("{name}_bytes"))?.value / seconds?))
        };
        let share = |name: &str| metric(name).map(|metric| metric.value / 100.0);
        let running = (self.running < 1.0).then_some(self.running);
        match self.scope() {
            "port" => {
                let states = record.metrics.iter().filter_map(|(name, metric)| {
                    let Rule::State(_, state, factor) = self.rules.get(name)? else { return None };
                    Some((state.clone(), metric.value * factor))
                });
                let is_error = |(name, metric): &(&String, &pciescope_core::Metric)| {
                    self.errors.contains(*name) && metric.value > 0.0 && metric.value.is_finite()
                };
                let errors = record.metrics.iter().filter(is_error);
                let port = feed::PortReading {
                    rx: rate("rx"),
                    tx: rate("tx"),
                    rx_share: share("rx_link_share"),
                    tx_share: share("tx_link_share"),
                    states: states.collect(),
                    errors: errors.map(|(name, metric)| (name.clone(), metric.value)).collect(),
                    running,
                    at_least: record.metrics.values().any(|metric| metric.at_least),
                };
                reading.ports.insert(self.id.clone(), port);
            }
            "channel" => {
                let (read, write, peak_share) = (rate("read"), rate("write"), share("peak_share"));
                reading.channels.insert(self.id.clone(), feed::ChannelReading { read, write, peak_share, running });
            }
            _ => {
                let finite = record.metrics.iter().filter(|(_, metric)| metric.value.is_finite());
                let figures = finite.map(|(name, metric)| (name.clone(), metric.value)).collect();
                reading.others.insert(self.id.clone(), figures);
            }
        }
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pciescope_core::Function;

    #[test]
    fn a_port_with_two_drivers_is_counted_once() {
        let of = |pmu: &str| Record {
            test: TEST.to_owned(),
            device: Some(Function { bdf: "0000:10:00.0".parse().ok(), ..Function::default() }),
            instance: Some(Instance { scope: "port".to_owned(), pmu: Some(pmu.to_owned()), ..Instance::default() }),
            ..Record::default()
        };
        let state = State::new(Setup::default());
        for _ in 0..2 {
            state.put_all(&[of("dwc_rootport_1000"), of("pcie_bdf_100000")]);
            let held = state.held();
            assert_eq!(held.instances.values().map(|one| pmu(&one.record)).collect::<Vec<_>>(), ["dwc_rootport_1000"]);
            assert_eq!(held.warnings.len(), 1);
            assert!(held.warnings[0].text.contains("pcie_bdf_100000"), "{:?}", held.warnings);
        }
        // The other one goes on where the first is gone.
        state.put_all(&[of("pcie_bdf_100000")]);
        assert_eq!(
            state.held().instances.values().map(|one| pmu(&one.record)).collect::<Vec<_>>(),
            ["pcie_bdf_100000"]
        );
        assert!(state.held().warnings.is_empty());
    }

    #[test]
    fn all_who_ask_share_one_text_until_something_changes() {
        let state = State::new(Setup::default());
        let device = Device {
            bdf: "0000:02:00.0".parse().unwrap(),
            name: String::new(),
            class: String::new(),
            driver: None,
            node: None,
            port: None,
            link: None,
            is_downtrained: None,
            errors: None,
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
