//! Records of counters as they come: which ports, channels and PMUs count, their last figures, and what went wrong. Live
//! views (`top`, `serve`) are made of this.
//!
//! A file of records may be broken or hostile. [`Live::take`] leaves out what exceeds the limits here, and says so.

use crate::warning;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::traffic::{self, CountedBy, HardwarePorts};
use crate::{Below, Failure, Function, Record, Warning};

/// The most ports, channels and PMUs together.
const MOST_SOURCES: usize = 4096;
/// The most figures of one of them.
const MOST_FIGURES: usize = 512;
/// The most warnings.
const MOST_WARNINGS: usize = 200;
/// The most functions below a port.
const MOST_BELOW: usize = 256;

/// A figure of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// The value in its unit.
    pub value: f64,
    /// The share of the interval in which its counter ran, from 0 to 1, where the value is scaled to the whole.
    pub running: Option<f64>,
    /// Whether the true value may be larger.
    pub is_least: bool,
}

impl Figure {
    /// Both together.
    pub fn plus(self, other: Figure) -> Figure {
        Figure {
            value: self.value + other.value,
            running: self.running.or(other.running),
            is_least: self.is_least || other.is_least,
        }
    }
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
    /// What this and all earlier intervals counted of errors, by counter.
    counts: Counts,
    /// The errors of this interval alone.
    new_errors: Option<f64>,
}

/// Counts of errors by counter; intervals without errors share theirs.
type Counts = Arc<BTreeMap<&'static str, Figure>>;

/// Errors by these counts, each event once. The value may be larger where that of a count may.
fn errors_of<'f>(count: impl Fn(&str) -> Option<&'f Figure>, layer: Option<u8>) -> Option<Figure> {
    let value = |name: &str| count(name).map(|figure| figure.value);
    let value = match layer {
        Some(layer) => traffic::errors_of_layer(layer, value),
        None => traffic::errors(value),
    }?;
    let known: Vec<&Figure> = traffic::error_counters(layer).filter_map(&count).collect();
    Some(Figure {
        value,
        running: known.iter().find_map(|figure| figure.running),
        is_least: known.iter().any(|figure| figure.is_least),
    })
}

/// What counts: a root port, a function, a DRAM channel, a sum of channels, or another PMU.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// `port`, `function`, `channel`, `die`, `total` or `pmu`, as in records.
    pub scope: String,
    /// The source of the counts, as in records; `None` if hardware counts.
    pub origin: Option<String>,
    /// The PMU's name; of a port the one that counted last.
    pub pmu: Option<String>,
    /// The NUMA node.
    pub node: Option<u32>,
    /// The CPU on which it was counted, where that tells instances of its PMU apart.
    pub cpu: Option<u32>,
    /// The root port, or the function.
    pub port: Option<Function>,
    /// The functions below it, bridges left out.
    pub below: Vec<Below>,
    /// Since which interval nothing counts, and why.
    pub failure: Option<(u64, Failure)>,
    /// The last doubts about its figures.
    pub warnings: Vec<Warning>,
    /// Whether its figures are an emulator's or a guest's.
    pub is_emulated: bool,
    /// Whether its figures are made up.
    pub is_synthetic: bool,
    /// Figures ever seen, with their units.
    names: Vec<(String, String)>,
    points: VecDeque<Point>,
    /// What the intervals before the last point counted of errors.
    before: Counts,
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

    /// The value of a figure of an interval.
    pub fn value(&self, name: &str, span: u64) -> Option<f64> {
        self.figure(name, span).map(|figure| figure.value)
    }

    /// The finite value of a figure in the last interval in which this source was read.
    pub fn latest(&self, name: &str) -> Option<f64> {
        self.value(name, self.points.back()?.span).filter(|value| value.is_finite())
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

    /// Errors of the link up to an interval.
    pub fn errors(&self, span: u64) -> Option<Figure> {
        let counts = &self.point(span)?.counts;
        errors_of(|name| counts.get(name), None)
    }

    /// What the counters of errors have counted since the beginning, the largest first, without those that are 0. Several
    /// counters see the same error.
    pub fn error_counts(&self, span: u64) -> Vec<(&'static str, Figure)> {
        let counts = self.point(span).map(|point| Arc::clone(&point.counts)).unwrap_or_default();
        let mut seen: Vec<(&str, Figure)> = counts.iter().map(|(name, figure)| (*name, *figure)).collect();
        seen.retain(|(_, figure)| figure.value > 0.0);
        seen.sort_by(|one, other| other.1.value.total_cmp(&one.1.value));
        seen
    }

    /// Errors of the link up to the last interval in which this source was read.
    pub fn latest_errors(&self) -> Option<f64> {
        Some(self.errors(self.points.back()?.span)?.value)
    }

    /// Errors of the link in the last interval in which this source was read. A counter that shows an event later than
    /// another one adds none.
    pub fn new_errors(&self) -> Option<f64> {
        self.points.back()?.new_errors
    }

    /// Errors of one layer of the link in an interval.
    pub fn layer_errors(&self, layer: u8, span: u64) -> Option<Figure> {
        let names = traffic::error_counters(Some(layer));
        let counts: BTreeMap<&str, Figure> = names.filter_map(|name| Some((name, self.figure(name, span)?))).collect();
        errors_of(|name| counts.get(name), Some(layer))
    }

    /// Whether next to nothing passed it in an interval, and it had no error.
    pub fn is_idle(&self, span: u64) -> bool {
        let rates = ["rx_bytes_per_s", "tx_bytes_per_s"].map(|name| self.value(name, span));
        traffic::is_idle(rates, self.point(span).and_then(|point| point.new_errors))
    }

    /// Who counts here.
    pub fn counted_by(&self) -> CountedBy<'_> {
        let scope = if self.is_port() { "port" } else { self.scope.as_str() };
        CountedBy { scope, origin: self.origin.as_deref(), function: self.port.as_ref() }
    }

    /// Whether it was read in an interval, without an error.
    pub fn is_up(&self, span: u64) -> bool {
        self.point(span).is_some() && self.failure(span).is_none()
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

    /// Whether the kernel counted, and not hardware: the bytes are a lower bound.
    pub fn is_accounting(&self) -> bool {
        self.counted_by().is_accounting()
    }

    /// Whether it is a function by itself, below a port or on a root bus.
    pub fn is_function(&self) -> bool {
        self.scope == "function"
    }

    /// Whether it counts the payload of a link: then it belongs into the tree of PCIe.
    pub fn is_port(&self) -> bool {
        !self.is_function() && (self.scope == "port" || self.has("rx_bytes_per_s") || self.has("tx_bytes_per_s"))
    }

    /// Whether it is a root port, or a function on a root bus: nothing above it counts the same.
    pub fn is_at_root(&self) -> bool {
        self.is_port() || (self.is_function() && self.port.as_ref().is_some_and(|port| port.path.is_empty()))
    }

    /// Whether it is a channel of memory, not a sum of some.
    pub fn is_channel(&self) -> bool {
        !self.is_port()
            && !self.is_function()
            && !self.is_sum()
            && (self.scope == "channel" || self.has("read_bytes_per_s"))
    }

    /// Whether it is a sum of channels.
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

    /// Takes what a record says of the hardware; returns true if anything changed.
    fn become_of(&mut self, record: &Record, span: u64) -> bool {
        let instance = record.instance.as_ref();
        let below = instance.map_or(&[][..], |instance| &instance.below[..instance.below.len().min(MOST_BELOW)]);
        let pmu = instance.and_then(|instance| instance.pmu.as_ref());
        let failure = self.failure.as_ref().map(|(_, failure)| failure);
        let has_changed = self.points.is_empty()
            || self.port != record.device
            || self.below != below
            || self.pmu.as_ref() != pmu
            || failure != record.error.as_ref();
        if has_changed {
            self.port.clone_from(&record.device);
            self.below = below.to_vec();
            self.pmu = pmu.cloned();
        }
        self.failure = record.error.clone().map(|failure| (span, failure));
        self.warnings.clone_from(&record.warnings);
        self.is_synthetic = record.is_synthetic();
        self.is_emulated = record.method.as_ref().is_some_and(|method| method.emulated)
            || record.device.as_ref().is_some_and(|device| device.emulated.is_some());
        has_changed
    }

    /// Takes the figures of an interval. A second record of the same interval replaces the first.
    fn count(&mut self, record: &Record, span: u64, kept: usize) {
        for (name, metric) in &record.metrics {
            if !self.has(name) && self.names.len() < MOST_FIGURES {
                self.names.push((name.clone(), metric.unit.clone()));
            }
        }
        let figure = |name: &str| {
            let metric = record.metrics.get(name)?;
            Some(Figure { value: metric.value, running: metric.running, is_least: metric.at_least })
        };
        let figures: Vec<Option<Figure>> = self.names.iter().map(|(name, _)| figure(name)).collect();
        match self.points.back() {
            Some(point) if point.span == span => drop(self.points.pop_back()),
            Some(point) => self.before = Arc::clone(&point.counts),
            None => {}
        }
        let mut counts = Arc::clone(&self.before);
        for name in traffic::error_counters(None) {
            let Some(now) = figure(name) else { continue };
            // A count that is no number may be any.
            let now = if now.value.is_finite() { now } else { Figure { value: 0.0, is_least: true, ..now } };
            let sum = counts.get(name).map_or(now, |sum| sum.plus(now));
            if counts.get(name) != Some(&sum) {
                Arc::make_mut(&mut counts).insert(name, sum);
            }
        }
        let errors = |counts: &Counts| errors_of(|name| counts.get(name), None).map(|errors| errors.value);
        let is_counted = traffic::error_counters(None).any(|name| figure(name).is_some());
        let new_errors = errors(&counts).filter(|_| is_counted).map(|now| now - errors(&self.before).unwrap_or(0.0));
        self.points.push_back(Point { span, figures, counts, new_errors });
        if self.points.len() > kept {
            self.points.pop_front();
        }
    }
}

/// What tells sources apart, in the order in which they are listed: ports, functions, channels, other PMUs, sums; then by node,
/// name and CPU. A port with an address is the same port whichever of its PMUs counts, and another one where the kernel does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    rank: u8,
    scope: String,
    node: Option<u32>,
    name: String,
    cpu: Option<u32>,
    origin: Option<String>,
}

impl Key {
    fn of(record: &Record) -> Option<Key> {
        let instance = record.instance.as_ref()?;
        let scope = instance.scope.clone();
        let rank = ["port", "function", "channel", "pmu"].iter().position(|one| *one == scope).unwrap_or(4) as u8;
        let bdf = record.device.as_ref().and_then(|port| port.bdf).map(|bdf| bdf.to_string());
        let name = bdf.filter(|_| rank < 2).or_else(|| instance.pmu.clone()).unwrap_or_default();
        let (node, origin) = (instance.node, instance.source.clone());
        Some(Key { rank, scope, node, name, cpu: record.cpu.as_ref().map(|cpu| cpu.cpu), origin })
    }
}

/// Everything that counts, with its last intervals.
#[derive(Debug, Clone)]
pub struct Live {
    /// What counts, in the order in which it came: a source keeps its place.
    pub sources: Vec<Source>,
    /// Warnings, each once, in the order in which they came.
    pub warnings: Vec<Warning>,
    /// How many intervals are kept.
    kept: usize,
    spans: VecDeque<Span>,
    places: BTreeMap<Key, usize>,
}

impl Default for Live {
    /// Keeps the last interval alone.
    fn default() -> Self {
        Live::new(1)
    }
}

impl Live {
    /// Nothing counts yet; `kept` intervals will be kept, 1 at least.
    pub fn new(kept: usize) -> Live {
        let (sources, warnings) = (Vec::new(), Vec::new());
        Live { sources, warnings, kept, spans: VecDeque::new(), places: BTreeMap::new() }
    }

    /// The intervals that are kept, the oldest first.
    pub fn spans(&self) -> &VecDeque<Span> {
        &self.spans
    }

    /// The interval of a number, if it is kept.
    pub fn span(&self, number: u64) -> Option<&Span> {
        self.spans.iter().find(|span| span.number == number)
    }

    /// The number of the last interval.
    pub fn last(&self) -> Option<u64> {
        self.spans.back().map(|span| span.number)
    }

    /// A figure over the intervals up to one.
    pub fn history(&self, upto: u64, value: impl Fn(u64) -> Option<f64>) -> Vec<Option<f64>> {
        self.spans.iter().map(|span| span.number).filter(|number| *number <= upto).map(value).collect()
    }

    /// The places of the sources: ports by address, then functions, then channels, then the others.
    pub fn places(&self) -> impl Iterator<Item = usize> {
        self.places.values().copied()
    }

    /// Root ports, and functions on a root bus, whose bytes can be added up. For a port with hardware counters their
    /// bytes are used, else the kernel's account.
    pub fn links(&self) -> impl Iterator<Item = &Source> {
        let hardware = self.hardware_ports();
        self.sources.iter().filter(move |one| one.is_at_root() && hardware.counts_once(one.counted_by()))
    }

    /// The ports of which hardware counts the traffic.
    pub fn hardware_ports(&self) -> HardwarePorts {
        HardwarePorts::among(self.sources.iter().map(Source::counted_by))
    }

    /// Adds a warning that is not there yet.
    pub fn warn(&mut self, warning: &Warning) {
        if self.warnings.len() < MOST_WARNINGS && !self.warnings.contains(warning) {
            self.warnings.push(warning.clone());
        }
    }

    /// Takes a record of an instance. Gives the place of its source, and whether what is known of the hardware changed;
    /// `None` where there are too many sources, and where another PMU counted the same port in this interval: two drivers
    /// count the same, and sums would be twice as large. A warning says which one is left out.
    pub fn take(&mut self, record: &Record) -> Option<(usize, bool)> {
        let key = Key::of(record)?;
        let span = self.open_span(record);
        let pmu = record.instance.as_ref().and_then(|instance| instance.pmu.as_deref()).unwrap_or_default();
        let place = match self.places.get(&key) {
            Some(place) => {
                let source = &self.sources[*place];
                let first = source.pmu.as_deref().unwrap_or_default();
                if source.point(span).is_some() && first != pmu {
                    let warning = warning::COUNTED_TWICE
                        .warn(format!("{}: {pmu} counts what {first} counts, and is left out", key.name));
                    self.warn(&warning);
                    return None;
                }
                *place
            }
            None if self.sources.len() >= MOST_SOURCES => return None,
            None => {
                let (scope, node, cpu, origin) = (key.scope.clone(), key.node, key.cpu, key.origin.clone());
                self.sources.push(Source { scope, node, cpu, origin, ..Source::default() });
                self.places.insert(key, self.sources.len() - 1);
                self.sources.len() - 1
            }
        };
        record.warnings.iter().for_each(|warning| self.warn(warning));
        let source = &mut self.sources[place];
        let has_changed = source.become_of(record, span);
        source.count(record, span, self.kept);
        Some((place, has_changed))
    }

    /// The number of a record's interval; a new one where the last is another.
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
        if self.spans.len() > self.kept {
            self.spans.pop_front();
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ACCOUNTING;
    use crate::{Instance, Interval, Metric};

    fn record(pmu: &str, second: u64, errors: f64) -> Record {
        Record {
            device: Some(Function { bdf: "0000:10:00.0".parse().ok(), ..Function::default() }),
            instance: Some(Instance { scope: "port".to_owned(), pmu: Some(pmu.to_owned()), ..Instance::default() }),
            interval: Some(Interval { start_ns: second, end_ns: second + 1 }),
            metrics: [("layer2_errors".to_owned(), Metric::of(errors, "1"))].into(),
            ..Record::default()
        }
    }

    #[test]
    fn a_second_record_of_an_interval_counts_its_errors_once() {
        let mut live = Live::new(8);
        for (second, errors) in [(0, 2.0), (1, 3.0), (1, 4.0)] {
            live.take(&record("pmu", second, errors));
        }
        assert_eq!(live.sources[0].errors(1).map(|figure| figure.value), Some(6.0));
        // Also where the interval is the first.
        let mut live = Live::new(8);
        live.take(&record("pmu", 0, 5.0));
        live.take(&record("pmu", 0, 5.0));
        assert_eq!(live.sources[0].errors(0).map(|figure| figure.value), Some(5.0));
    }

    #[test]
    fn the_kernels_account_of_a_port_stands_beside_its_hardware_counters() {
        let mut live = Live::new(1);
        let mut account = record("kernel_0000:10:00.0", 0, 2.0);
        account.instance.as_mut().unwrap().source = Some(ACCOUNTING.to_owned());
        live.take(&record("dwc_rootport_1000", 0, 1.0));
        assert_eq!(live.take(&account), Some((1, true)));
        assert!(live.warnings.is_empty(), "{:?}", live.warnings);
        assert_eq!(live.places().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(live.sources.iter().map(Source::is_accounting).collect::<Vec<_>>(), [false, true]);
        account.instance.as_mut().unwrap().scope = "function".to_owned();
        assert_eq!(live.take(&account), Some((2, true)));
        assert!(live.sources[2].is_function() && !live.sources[2].is_port());
    }

    #[test]
    fn a_port_with_two_drivers_is_counted_once() {
        let mut live = Live::new(1);
        for second in 0..2 {
            let one = live.take(&record("dwc_rootport_1000", second, 1.0));
            assert_eq!((one, live.take(&record("pcie_bdf_100000", second, 1.0))), (Some((0, second == 0)), None));
            assert_eq!(live.sources[0].pmu.as_deref(), Some("dwc_rootport_1000"));
            assert_eq!(live.warnings.len(), 1);
            assert!(live.warnings[0].text.contains("pcie_bdf_100000"), "{:?}", live.warnings);
        }
        // The other one goes on where the first is gone.
        assert_eq!(live.take(&record("pcie_bdf_100000", 2, 1.0)), Some((0, true)));
        assert_eq!(live.sources[0].pmu.as_deref(), Some("pcie_bdf_100000"));
    }
}
