//! Everything that the screens show: counters, probes, functions, and what went wrong.

use std::collections::{BTreeMap, VecDeque};

use pciescope_core::outcome::LATENCY;
use pciescope_core::why::SlowSample;
use pciescope_core::{Bdf, Failure, Function, Live, Record, WatchedLink};

/// The intervals that are kept: as many as the widest history shows. While paused, the user can go back to them.
const KEPT: usize = 256;
/// The most functions that are taken from records, and the most probes.
const MOST_FUNCTIONS: usize = 4096;
const MOST_PROBES: usize = 64;

/// A device whose latency is measured beside the counting.
#[derive(Debug, Clone, Default)]
pub struct Probe {
    /// The function.
    pub bdf: Option<Bdf>,
    /// What is read: `BAR0+0x8 STATUS`.
    pub target: String,
    /// The backend, and whether its figures are an emulator's.
    pub backend: String,
    /// Whether the figures are the cost of an exit to an emulator.
    pub is_emulated: bool,
    /// Samples of the last batch.
    pub count: u64,
    /// Median of the last batch, in nanoseconds.
    pub p50_ns: Option<f64>,
    /// 99th percentile of the last batch, in nanoseconds.
    pub p99_ns: Option<f64>,
    /// Largest of the last batch, in nanoseconds.
    pub max_ns: Option<f64>,
    /// The last slow sample: when its record was written, how long it took and why; where causes are looked for.
    pub slow: Option<(String, SlowSample)>,
    /// Why the last batch is not whole or not there.
    pub failure: Option<Failure>,
    /// Medians of the batches.
    pub medians: VecDeque<Option<f64>>,
}

/// Everything that was taken from records, and the inventory of the machine.
#[derive(Debug, Clone)]
pub struct Model {
    /// What counts; its warnings are those of all records.
    pub live: Live,
    /// Devices that are probed.
    pub probes: Vec<Probe>,
    /// The machine in a few words, where the records say it.
    pub machine: Option<String>,
    /// Whether figures are of an emulator or a guest.
    pub is_emulated: bool,
    /// Why nothing counts: what is missing, and what to do.
    pub no_counters: Option<Failure>,
    /// How many records were left out: those of other verbs, and those above the limits.
    pub passed_over: u64,
    /// What the recorder has kept of links, by the function that has the link.
    pub watched: BTreeMap<Bdf, WatchedLink>,
    inventory: Option<BTreeMap<Bdf, Function>>,
    known: BTreeMap<Bdf, Function>,
}

impl Default for Model {
    fn default() -> Self {
        Model {
            live: Live::new(KEPT),
            probes: Vec::new(),
            machine: None,
            is_emulated: false,
            no_counters: None,
            passed_over: 0,
            watched: BTreeMap::new(),
            inventory: None,
            known: BTreeMap::new(),
        }
    }
}

impl Model {
    /// Takes the machine's functions. Without them the tree shows the functions that records name.
    pub fn set_functions(&mut self, functions: Vec<Function>) {
        self.inventory = Some(functions.into_iter().filter_map(|function| Some((function.bdf?, function))).collect());
    }

    /// Functions by address: those of the machine if they were read, else those that records name.
    pub fn functions(&self) -> &BTreeMap<Bdf, Function> {
        self.inventory.as_ref().unwrap_or(&self.known)
    }

    /// What the recorder has kept of a function's link, which is that of the port above where there is one.
    pub fn watched(&self, bdf: Bdf) -> Option<&WatchedLink> {
        let port = || self.functions().get(&bdf)?.path.last().copied();
        self.watched.get(&bdf).or_else(|| self.watched.get(&port()?))
    }

    /// Takes a record.
    pub fn take(&mut self, record: &Record) {
        if let Some(environment) = &record.environment {
            let host = environment.host.as_ref().map(|host| host.name.as_str());
            // What is made up has no product.
            let product = environment.product.as_deref().filter(|_| !environment.is_synthetic());
            let parts = [host, product, Some(environment.kernel.as_str())];
            let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).take(2).collect();
            if !parts.is_empty() {
                self.machine = Some(parts.join(", "));
            }
            self.is_emulated |= environment.hypervisor.is_some();
        }
        if record.instance.is_some() && record.interval.is_some() {
            self.count(record);
            return;
        }
        record.warnings.iter().for_each(|warning| self.live.warn(warning));
        if record.test == "mmio-read" {
            self.probe(record);
        } else if record.test != "environment" {
            self.passed_over += 1;
        }
    }

    /// Takes a record of counters, and the functions that it names.
    fn count(&mut self, record: &Record) {
        let Some((place, has_changed)) = self.live.take(record) else {
            self.passed_over += 1;
            return;
        };
        if !has_changed {
            return;
        }
        let source = &self.live.sources[place];
        let path: Vec<Bdf> = source.port.iter().filter_map(|port| port.bdf).collect();
        let below = source.below.iter().map(|below| Function {
            bdf: Some(below.bdf),
            name: below.name.clone(),
            driver: below.driver.clone(),
            devices: below.devices.clone(),
            path: path.clone(),
            ..Function::default()
        });
        for function in source.port.clone().into_iter().chain(below) {
            if let Some(bdf) = function.bdf.filter(|_| self.known.len() < MOST_FUNCTIONS) {
                self.known.insert(bdf, function);
            }
        }
    }

    /// Takes a record of register latency.
    fn probe(&mut self, record: &Record) {
        let Some(function) = &record.device else { return };
        let place = self.probes.iter().position(|probe| probe.bdf == function.bdf);
        let place = match place {
            Some(place) => place,
            None if self.probes.len() < MOST_PROBES => {
                self.probes.push(Probe { bdf: function.bdf, ..Probe::default() });
                self.probes.len() - 1
            }
            None => {
                self.passed_over += 1;
                return;
            }
        };
        let probe = &mut self.probes[place];
        if let Some(target) = &record.target {
            let place = target.in_bar().map(|place| format!("{place} ")).unwrap_or_default();
            probe.target = format!("{place}{}", target.name.as_deref().unwrap_or("")).trim().into();
        }
        if let Some(method) = &record.method {
            probe.backend.clone_from(&method.backend);
            probe.is_emulated = method.emulated;
        }
        let latency = record.histograms.get(LATENCY);
        probe.count = latency.map_or(0, |histogram| histogram.count());
        probe.p50_ns = latency.and_then(|histogram| histogram.median_ns());
        probe.p99_ns = latency.and_then(|histogram| histogram.percentile_ns(99.0));
        probe.max_ns = latency.and_then(|histogram| histogram.max_ns());
        if let Some(slowest) = record.why.as_ref().and_then(|why| why.slowest.first()) {
            probe.slow = Some((record.time.clone(), slowest.clone()));
        }
        probe.failure.clone_from(&record.error);
        probe.medians.push_back(probe.p50_ns);
        if probe.medians.len() > KEPT {
            probe.medians.pop_front();
        }
    }
}
