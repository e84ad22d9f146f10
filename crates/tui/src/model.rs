//! What records say, kept by interval and by what counted: the last intervals, and what went wrong.

use std::collections::{BTreeMap, VecDeque};

use pciescope_catalogue::is_state;
use pciescope_core::outcome::LATENCY;
use pciescope_core::{Bdf, Below, Failure, Function, Record, Warning};

/// So many intervals are kept: as many as the widest history shows, and to go back to while paused.
pub const KEPT: usize = 256;
/// More of anything than a machine has is a broken or hostile file; it is counted and left out.
const MOST_SOURCES: usize = 4096;
const MOST_FIGURES: usize = 512;
const MOST_WARNINGS: usize = 200;
const MOST_BELOW: usize = 256;

/// The counts that are errors of a link.
pub const ERRORS: [&str; 3] = ["layer1_errors", "layer2_errors", "layer3_errors"];

/// A figure of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// The value in its unit.
    pub value: f64,
    /// Whether it is scaled to the whole interval: the counter ran for a part of it.
    pub is_scaled: bool,
    /// Whether the true value may be larger.
    pub is_least: bool,
}

/// An interval of a run.
#[derive(Debug, Clone, Default)]
pub struct Span {
    /// Counted over everything that was taken, from 0.
    pub number: u64,
    run: String,
    /// Nanoseconds since the run's beginning.
    pub start_ns: u64,
    /// Nanoseconds since the run's beginning.
    pub end_ns: u64,
    /// When it was completed, as the records say it.
    pub time: String,
}

/// What a source counted in an interval.
#[derive(Debug, Clone)]
struct Point {
    span: u64,
    /// In the order of the source's names.
    figures: Vec<Option<Figure>>,
    /// Errors of this and all earlier intervals.
    errors: Option<Figure>,
}

/// What counts: a root port, a DRAM channel, a sum of channels, or anything else by name.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// `port`, `channel`, `die`, `total` or `pmu`, as in records.
    pub scope: String,
    /// The PMU's name.
    pub pmu: Option<String>,
    /// The NUMA node.
    pub node: Option<u32>,
    /// The CPU on which it was counted, where that tells instances apart.
    pub cpu: Option<u32>,
    /// The root port.
    pub port: Option<Function>,
    /// What is below the root port.
    pub below: Vec<Below>,
    /// Since which interval nothing counts, and why.
    pub failure: Option<(u64, Failure)>,
    /// The last doubts about its figures.
    pub warnings: Vec<Warning>,
    names: Vec<(String, String)>,
    points: VecDeque<Point>,
}

impl Source {
    fn point(&self, span: u64) -> Option<&Point> {
        let place = self.points.binary_search_by_key(&span, |point| point.span).ok()?;
        self.points.get(place)
    }

    /// A figure of an interval.
    pub fn figure(&self, name: &str, span: u64) -> Option<Figure> {
        let place = self.names.iter().position(|(one, _)| one == name)?;
        self.point(span)?.figures.get(place).copied().flatten()
    }

    /// The first of these figures that is there.
    pub fn value(&self, name: &str, span: u64) -> Option<f64> {
        self.figure(name, span).map(|figure| figure.value)
    }

    /// All figures of an interval with names and units, in the order of the names.
    pub fn figures(&self, span: u64) -> Vec<(&str, &str, Figure)> {
        let Some(point) = self.point(span) else { return Vec::new() };
        let named = self.names.iter().zip(&point.figures);
        let mut all: Vec<_> =
            named.filter_map(|((name, unit), figure)| Some((name.as_str(), unit.as_str(), (*figure)?))).collect();
        all.sort_by_key(|(name, ..)| *name);
        all
    }

    /// Errors up to an interval.
    pub fn errors(&self, span: u64) -> Option<Figure> {
        self.point(span)?.errors
    }

    /// Whether it was counted in an interval.
    pub fn is_counted(&self, span: u64) -> bool {
        self.point(span).is_some_and(|point| point.figures.iter().any(Option::is_some))
    }

    /// Why nothing is counted in an interval, where that was said.
    pub fn failure(&self, span: u64) -> Option<&Failure> {
        self.failure.as_ref().filter(|(since, _)| span >= *since).map(|(_, failure)| failure)
    }

    /// Whether any interval has such a figure.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|(one, _)| one == name)
    }

    /// Names of all figures ever seen.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|(name, _)| name.as_str())
    }

    /// Payload of a link, in either direction: then it belongs into the tree of PCIe.
    pub fn is_port(&self) -> bool {
        self.scope == "port" || self.has("rx_bytes_per_s") || self.has("tx_bytes_per_s")
    }

    /// A channel of memory, not a sum of some.
    pub fn is_channel(&self) -> bool {
        !self.is_port() && !self.is_sum() && (self.scope == "channel" || self.has("read_bytes_per_s"))
    }

    /// A sum of channels.
    pub fn is_sum(&self) -> bool {
        matches!(self.scope.as_str(), "die" | "total")
    }

    /// The share of a link's ceiling that a direction (`rx`, `tx`) has, in percent.
    pub fn share(&self, direction: &str, span: u64) -> Option<f64> {
        let stated = self.value(&format!("{direction}_link_share"), span);
        stated.or_else(|| {
            let ceiling = self.value("link_bytes_per_s", span).filter(|ceiling| *ceiling > 0.0)?;
            Some(self.value(&format!("{direction}_bytes_per_s"), span)? / ceiling * 100.0)
        })
    }

    /// The shares of time in states of the link, the largest first.
    pub fn states(&self, span: u64) -> Vec<(&str, f64)> {
        let mut states: Vec<_> = self
            .figures(span)
            .into_iter()
            .filter(|(name, _, _)| is_state(name))
            .map(|(name, _, figure)| (name.trim_end_matches("_share"), figure.value))
            .collect();
        states.sort_by(|one, other| other.1.total_cmp(&one.1));
        states
    }
}

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
    /// Why the last batch is not whole or not there.
    pub failure: Option<Failure>,
    /// Medians of the batches.
    pub medians: VecDeque<Option<f64>>,
}

/// Everything that was taken from records, and the inventory of the machine.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// What counts, in the order in which it came.
    pub sources: Vec<Source>,
    /// Devices that are probed.
    pub probes: Vec<Probe>,
    /// Every warning once, in the order in which they came.
    pub warnings: Vec<Warning>,
    /// The machine in a few words, where the records say it.
    pub machine: Option<String>,
    /// Whether figures are of an emulator or a guest.
    pub is_emulated: bool,
    /// Why nothing counts: what is missing, and what to do.
    pub no_counters: Option<Failure>,
    /// Records of other verbs, and what did not fit.
    pub passed_over: u64,
    spans: VecDeque<Span>,
    inventory: Option<BTreeMap<Bdf, Function>>,
    known: BTreeMap<Bdf, Function>,
    by_key: BTreeMap<String, usize>,
}

impl Model {
    /// The machine's functions as they are now; without them the tree is made of what records name.
    pub fn set_functions(&mut self, functions: Vec<Function>) {
        self.inventory = Some(functions.into_iter().filter_map(|function| Some((function.bdf?, function))).collect());
    }

    /// Functions by address: the machine's where it was looked at, else those that records name.
    pub fn functions(&self) -> &BTreeMap<Bdf, Function> {
        self.inventory.as_ref().unwrap_or(&self.known)
    }

    /// The intervals that are kept, the oldest first.
    pub fn spans(&self) -> &VecDeque<Span> {
        &self.spans
    }

    /// The interval of a number, as far as it is kept.
    pub fn span(&self, number: u64) -> Option<&Span> {
        self.spans.iter().find(|span| span.number == number)
    }

    /// The number of the last interval.
    pub fn last(&self) -> Option<u64> {
        self.spans.back().map(|span| span.number)
    }

    /// A figure over the intervals up to one, for a history.
    pub fn history(&self, upto: u64, value: impl Fn(u64) -> Option<f64>) -> Vec<Option<f64>> {
        self.spans.iter().map(|span| span.number).filter(|number| *number <= upto).map(value).collect()
    }

    /// Takes a record.
    pub fn take(&mut self, record: &Record) {
        for warning in &record.warnings {
            self.warn(warning);
        }
        if let Some(environment) = &record.environment {
            let parts = [environment.product.as_deref(), Some(environment.kernel.as_str())];
            let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
            if !parts.is_empty() {
                self.machine = Some(parts.join(", "));
            }
            self.is_emulated |= environment.hypervisor.is_some();
        }
        if record.instance.is_some() && record.interval.is_some() {
            self.count(record);
        } else if record.test == "mmio-read" {
            self.probe(record);
        } else if record.test != "environment" {
            self.passed_over += 1;
        }
    }

    fn warn(&mut self, warning: &Warning) {
        if self.warnings.len() < MOST_WARNINGS && !self.warnings.contains(warning) {
            self.warnings.push(warning.clone());
        }
    }

    /// Takes a record of counters.
    fn count(&mut self, record: &Record) {
        let span = self.open_span(record);
        let Some(place) = self.place(record) else {
            self.passed_over += 1;
            return;
        };
        for function in record.device.iter().chain(&self.below(record)) {
            if let Some(bdf) = function.bdf.filter(|_| self.known.len() < MOST_SOURCES) {
                self.known.insert(bdf, function.clone());
            }
        }
        let source = &mut self.sources[place];
        source.port.clone_from(&record.device);
        source.warnings.clone_from(&record.warnings);
        if let Some(instance) = &record.instance {
            source.below = instance.below.iter().take(MOST_BELOW).cloned().collect();
        }
        match &record.error {
            Some(failure) => source.failure = Some((span, failure.clone())),
            // What came back counts again.
            None => source.failure = None,
        }
        for (name, metric) in &record.metrics {
            if !source.has(name) && source.names.len() < MOST_FIGURES {
                source.names.push((name.clone(), metric.unit.clone()));
            }
        }
        let figure = |name: &str| {
            record.metrics.get(name).map(|metric| Figure {
                value: metric.value,
                is_scaled: metric.running.is_some(),
                is_least: metric.at_least,
            })
        };
        let figures: Vec<Option<Figure>> = source.names.iter().map(|(name, _)| figure(name)).collect();
        // A second record of the same interval and source replaces the first: they cannot be added up.
        if source.points.back().is_some_and(|point| point.span == span) {
            source.points.pop_back();
        }
        let before = source.points.back().and_then(|point| point.errors);
        let errors =
            before.into_iter().chain(ERRORS.iter().filter_map(|name| figure(name))).reduce(|sum, one| Figure {
                value: sum.value + one.value,
                is_scaled: sum.is_scaled || one.is_scaled,
                is_least: sum.is_least || one.is_least,
            });
        source.points.push_back(Point { span, figures, errors });
        if source.points.len() > KEPT {
            source.points.pop_front();
        }
    }

    /// The functions below a port as the record names them.
    fn below(&self, record: &Record) -> Vec<Function> {
        let Some(instance) = &record.instance else { return Vec::new() };
        let path: Vec<Bdf> = record.device.iter().filter_map(|port| port.bdf).collect();
        let function = |below: &Below| Function {
            bdf: Some(below.bdf),
            name: below.name.clone(),
            driver: below.driver.clone(),
            path: path.clone(),
            ..Function::default()
        };
        instance.below.iter().take(MOST_BELOW).map(function).collect()
    }

    /// The interval of a record; a new one where the last is another.
    fn open_span(&mut self, record: &Record) -> u64 {
        let interval = record.interval.unwrap_or_default();
        if let Some(last) = self.spans.back() {
            if last.end_ns == interval.end_ns && last.run == record.run {
                return last.number;
            }
        }
        let number = self.last().map_or(0, |last| last + 1);
        self.spans.push_back(Span {
            number,
            run: record.run.clone(),
            start_ns: interval.start_ns,
            end_ns: interval.end_ns,
            time: record.time.clone(),
        });
        if self.spans.len() > KEPT {
            self.spans.pop_front();
        }
        number
    }

    /// Where a record's source stands; `None` where there are too many.
    fn place(&mut self, record: &Record) -> Option<usize> {
        let instance = record.instance.as_ref()?;
        let bdf = record.device.as_ref().and_then(|port| port.bdf);
        let cpu = record.cpu.as_ref().map(|cpu| cpu.cpu);
        let key = format!("{:?} {:?} {:?} {bdf:?} {cpu:?}", instance.scope, instance.pmu, instance.node);
        if let Some(place) = self.by_key.get(&key) {
            return Some(*place);
        }
        if self.sources.len() >= MOST_SOURCES {
            return None;
        }
        self.sources.push(Source {
            scope: instance.scope.clone(),
            pmu: instance.pmu.clone(),
            node: instance.node,
            cpu,
            ..Source::default()
        });
        self.by_key.insert(key, self.sources.len() - 1);
        Some(self.sources.len() - 1)
    }

    /// Takes a record of register latency.
    fn probe(&mut self, record: &Record) {
        let Some(function) = &record.device else { return };
        let place = self.probes.iter().position(|probe| probe.bdf == function.bdf);
        let place = match place {
            Some(place) => place,
            None if self.probes.len() < 64 => {
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
            let place = target.bar.map(|bar| format!("BAR{bar}+{:#x} ", target.offset.unwrap_or(0)));
            probe.target =
                format!("{}{}", place.unwrap_or_default(), target.name.as_deref().unwrap_or("")).trim().into();
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
        probe.failure.clone_from(&record.error);
        probe.medians.push_back(probe.p50_ns);
        if probe.medians.len() > KEPT {
            probe.medians.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pciescope_core::{Instance, Interval, Metric};

    fn record(second: u64, errors: f64) -> Record {
        Record {
            instance: Some(Instance { scope: "port".to_owned(), ..Instance::default() }),
            interval: Some(Interval { start_ns: second, end_ns: second + 1 }),
            metrics: [("layer2_errors".to_owned(), Metric::of(errors, "1"))].into(),
            ..Record::default()
        }
    }

    #[test]
    fn a_second_record_of_an_interval_counts_its_errors_once() {
        let mut model = Model::default();
        for (second, errors) in [(0, 2.0), (1, 3.0), (1, 4.0)] {
            model.take(&record(second, errors));
        }
        assert_eq!(model.sources[0].errors(1).map(|figure| figure.value), Some(6.0));
        // Also where the interval is the first.
        let mut model = Model::default();
        model.take(&record(0, 5.0));
        model.take(&record(0, 5.0));
        assert_eq!(model.sources[0].errors(0).map(|figure| figure.value), Some(5.0));
    }
}
