//! What one port, function, channel or other PMU has counted, and how the page shows it.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_catalogue::Kind;
use pciescope_core::live::Source;
use pciescope_core::{Failure, Record, traffic};

use crate::feed::{self, Channel, Other, Port, Reading};
use crate::series::{self, Rule};

/// What a source has counted since the server started.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) sums: BTreeMap<String, f64>,
    /// Seconds by family and state.
    pub(crate) states: BTreeMap<String, BTreeMap<String, f64>>,
    /// Figures of the last reading by family.
    pub(crate) gauges: BTreeMap<String, f64>,
    /// Sums of events that a user named, by their terms and unit.
    pub(crate) named: BTreeMap<(String, String), f64>,
    pub(crate) saturated: u64,
    /// The least share of the last interval in which a counter ran; `None` where it was not read.
    pub(crate) running: Option<f64>,
    /// Whether a counter ever ran for a part of an interval only: then its sums are estimates for good.
    pub(crate) is_estimated: bool,
    /// What becomes of each figure.
    pub(crate) rules: BTreeMap<String, Rule>,
    /// The figures that are errors.
    pub(crate) errors: BTreeSet<String>,
}

/// A source with its sums.
#[derive(Clone, Copy)]
pub(crate) struct Instance<'i> {
    pub(crate) source: &'i Source,
    pub(crate) sums: &'i Sums,
}

impl Sums {
    /// The source is not in the reading that begins.
    pub(crate) fn rest(&mut self) {
        self.running = None;
        self.gauges.clear();
    }
}

impl Instance<'_> {
    /// The PMU's name; empty where it has none.
    pub(crate) fn pmu(&self) -> &str {
        self.source.pmu.as_deref().unwrap_or_default()
    }

    /// Its name in readings.
    pub(crate) fn id(&self) -> String {
        let Source { scope, port, node, cpu, .. } = self.source;
        let bdf = port.as_ref().and_then(|port| port.bdf).filter(|_| matches!(scope.as_str(), "port" | "function"));
        let name = match (bdf, node) {
            (Some(bdf), _) if self.source.is_accounting() => format!("{bdf} kernel"),
            (Some(bdf), _) => bdf.to_string(),
            (None, Some(node)) => format!("{}@{node}", self.pmu()),
            (None, None) => self.pmu().to_owned(),
        };
        cpu.map_or_else(|| name.clone(), |cpu| format!("{name} CPU {cpu}"))
    }

    fn error(&self) -> Option<Failure> {
        self.source.failure.as_ref().map(|(_, failure)| failure.clone())
    }

    /// What counted, by the catalogue.
    fn kind(&self) -> Option<&'static Kind> {
        series::kind(&self.source.scope, self.pmu(), self.sums.rules.keys().map(String::as_str))
    }

    pub(crate) fn port(&self) -> Port {
        let device = self.source.port.clone().unwrap_or_default();
        Port {
            id: self.id(),
            bdf: device.bdf,
            pmu: self.source.pmu.clone(),
            source: self.source.origin.clone(),
            name: device.name,
            driver: device.driver,
            devices: device.devices,
            node: self.source.node,
            link: device.link,
            possible: None,
            ceiling_bytes_per_s: self.source.latest("link_bytes_per_s"),
            below: self.source.below.clone(),
            error: self.error(),
            is_emulated: self.source.is_emulated,
            counts_errors: !self.sums.errors.is_empty(),
            is_second: false,
        }
    }

    pub(crate) fn channel(&self) -> Channel {
        Channel {
            id: self.id(),
            pmu: self.pmu().to_owned(),
            node: self.source.node,
            cpu: self.source.cpu,
            place: self.place(),
            peak_bytes_per_s: self.source.latest("peak_bytes_per_s"),
            error: self.error(),
            is_emulated: self.source.is_emulated,
        }
    }

    pub(crate) fn other(&self) -> Other {
        Other {
            id: self.id(),
            pmu: self.pmu().to_owned(),
            node: self.source.node,
            cpu: self.source.cpu,
            title: self.kind().map(|kind| kind.title.clone()),
            error: self.error(),
            is_emulated: self.source.is_emulated,
        }
    }

    /// Where a channel sits, as far as its PMU's name tells.
    pub(crate) fn place(&self) -> BTreeMap<String, u64> {
        let mut place = self.kind().map(|kind| kind.place(self.pmu())).unwrap_or_default();
        place.retain(|word, _| matches!(word.as_str(), "socket" | "die" | "channel" | "sub_channel"));
        place
    }

    /// Enters what the page shows of a record.
    pub(crate) fn show(&self, record: &Record, reading: &mut Reading) {
        let metric = |name: &str| record.metrics.get(name).filter(|metric| metric.value.is_finite());
        let rate = |name: &str| {
            let seconds = record.interval.map(|interval| interval.seconds()).filter(|seconds| *seconds > 0.0);
            let by_rate = metric(&format!("{name}_bytes_per_s")).map(|metric| metric.value);
            by_rate.or_else(|| Some(metric(&format!("{name}_bytes"))?.value / seconds?))
        };
        let share = |name: &str| metric(name).map(|metric| metric.value / 100.0);
        let running = self.sums.running.filter(|running| *running < 1.0);
        match self.source.scope.as_str() {
            "port" | "function" => {
                let states = record.metrics.iter().filter_map(|(name, metric)| {
                    let Rule::State(_, state, factor) = self.sums.rules.get(name)? else { return None };
                    Some((state.clone(), metric.value * factor))
                });
                let is_error = |(name, metric): &(&String, &pciescope_core::Metric)| {
                    self.sums.errors.contains(*name) && metric.value > 0.0 && metric.value.is_finite()
                };
                let errors = record.metrics.iter().filter(is_error);
                let error_count = self.source.new_errors();
                let port = feed::PortReading {
                    rx: rate("rx"),
                    tx: rate("tx"),
                    rx_share: share("rx_link_share"),
                    tx_share: share("tx_link_share"),
                    states: states.collect(),
                    errors: errors.map(|(name, metric)| (name.clone(), metric.value)).collect(),
                    error_count,
                    is_idle: traffic::is_idle([rate("rx"), rate("tx")], error_count),
                    running,
                    at_least: !self.source.is_accounting() && record.metrics.values().any(|metric| metric.at_least),
                };
                let is_port = self.source.is_at_root();
                let all = if is_port { &mut reading.ports } else { &mut reading.functions };
                all.insert(self.id(), port);
            }
            "channel" => {
                let (read, write, peak_share) = (rate("read"), rate("write"), share("peak_share"));
                reading.channels.insert(self.id(), feed::ChannelReading { read, write, peak_share, running });
            }
            _ => {
                let finite = record.metrics.iter().filter(|(_, metric)| metric.value.is_finite());
                let figures = finite.map(|(name, metric)| (name.clone(), metric.value)).collect();
                reading.others.insert(self.id(), figures);
            }
        }
    }
}
