//! A panel: what is counted of one PMU on one CPU, and what it means to the user.

use std::collections::BTreeMap;

use pciescope_catalogue::{Event, Kind, Metric, SysfsUnit, What};
use pciescope_core::record::ACCOUNTING;
use pciescope_core::{Bdf, Below, Cpu, Function};
use pciescope_hw::perf::{self, By, Pmu};
use pciescope_hw::wait::now_ns;
use pciescope_hw::{Root, inventory, pci};

use super::machine::{Machine, Origin, below};
use super::session::{Counter, Instrument};

/// The meaning of a PMU for the user, and the figures to show of it.
#[derive(Debug, Clone, Default)]
pub struct Panel {
    /// `port`, `function`, `channel` or `pmu`, as in a record's `instance`.
    pub scope: &'static str,
    /// What the catalogue knows of it; `None` for events that the user named.
    pub kind: Option<&'static Kind>,
    /// Whose account it is; `None` where hardware counts.
    pub source: Option<&'static str>,
    /// The root port, or the function.
    pub function: Option<Function>,
    /// The functions below it.
    pub below: Vec<Below>,
    /// The NUMA node.
    pub node: Option<u32>,
    /// The CPU on which it is counted, where the node does not tell it from another instance of its PMU.
    pub cpu: Option<Cpu>,
    /// What is counted.
    pub quantities: Vec<Counted>,
    /// What is worked out from it.
    pub metrics: Vec<ResolvedMetric>,
    /// Events that are constants, in the catalogue's units; read once, and again when the link has another speed.
    pub constants: BTreeMap<String, f64>,
    /// Quantities that could not be counted, with the reason.
    pub missing: Vec<(String, String)>,
}

/// A metric with the events that its formula needs.
#[derive(Debug, Clone)]
pub struct ResolvedMetric {
    /// The metric.
    pub metric: &'static Metric,
    /// The events that it needs.
    pub events: Vec<String>,
    /// Its unit in records.
    pub unit: String,
}

/// A quantity with the counters that it is the sum of.
#[derive(Debug, Clone)]
pub struct Counted {
    /// The name in records.
    pub name: String,
    /// The unit in records.
    pub unit: String,
    /// The places of its counters in the instrument, each with what one count is in the unit.
    pub parts: Vec<(usize, f64)>,
    /// Whether the figure is the last value and not a difference.
    pub is_state: bool,
    /// Whether the true figure may be larger, even if the counters are exact.
    pub is_least: bool,
}

impl Panel {
    /// The panel of a PMU on a CPU, without anything that is counted.
    pub(super) fn new(machine: &Machine, pmu: &Pmu, cpu: u32, kind: Option<&'static Kind>) -> Self {
        let (function, below) = machine.port(pmu);
        let scope = match kind.map(|kind| kind.what) {
            Some(What::PcieRootPort) => "port",
            Some(What::DramChannel) => "channel",
            Some(What::PciFunction) => match &function {
                Some(function) if function.path.is_empty() && pci::is_bridge(function.class) => "port",
                _ => "function",
            },
            Some(What::PcieEndpoint | What::PcieStack | What::Dram | What::Fabric) | None => "pmu",
        };
        let node = machine.node(pmu, cpu, kind, function.as_ref());
        let source = (pmu.by == By::Kernel).then_some(ACCOUNTING);
        Panel { scope, kind, source, node, function, below, ..Panel::default() }
    }

    /// Adds metrics of the catalogue: those that `is_chosen` takes, and the events of these `names`.
    pub(super) fn add_metrics(
        &mut self,
        machine: &Machine,
        instrument: &mut Instrument,
        is_chosen: &dyn Fn(&Kind, &Metric) -> bool,
        names: &[String],
    ) {
        let Some(kind) = self.kind else { return };
        let resolve = |metric: &'static Metric| {
            let (events, unit) = (metric.events().into_iter().collect(), metric.unit.text.clone());
            ResolvedMetric { metric, events, unit }
        };
        self.metrics = kind.metrics.iter().filter(|metric| is_chosen(kind, metric)).map(resolve).collect();
        let mut needed: Vec<String> = Vec::new();
        for name in self.metrics.iter().flat_map(|resolved| &resolved.events).chain(names) {
            if kind.events.contains_key(name) && !needed.contains(name) {
                needed.push(name.clone());
            }
        }
        for name in needed {
            if let Err(why) = self.add(machine, instrument, &kind.events[&name]) {
                self.missing.push((name, why));
            }
        }
    }

    /// Adds each interrupt vector that a function's account has.
    pub(super) fn add_vectors(&mut self, instrument: &mut Instrument) {
        let pmu = instrument.pmu.clone();
        for name in pmu.events.keys().filter(|name| pmu.by == By::Kernel && name.starts_with("irq_")) {
            let Ok(event) = pmu.event(name) else { continue };
            let parts = vec![(instrument.place_of(event, None), 1.0)];
            let (name, unit) = (name.clone(), "1".to_owned());
            self.quantities.push(Counted { name, unit, parts, is_state: false, is_least: false });
        }
    }

    /// Adds an event of the catalogue to what is counted, or reads it at once where it is a constant.
    fn add(&mut self, machine: &Machine, instrument: &mut Instrument, of: &'static Event) -> Result<(), String> {
        let pmu = &instrument.pmu;
        let names: Vec<&str> = pmu.events.keys().map(String::as_str).collect();
        let formats: Vec<&str> = pmu.formats.keys().map(String::as_str).collect();
        let all = of.terms(&names, &formats).ok_or("the driver does not have this event")?;
        let mut events = Vec::new();
        for terms in all.iter().flat_map(|terms| each(of, terms, self.function.as_ref())) {
            if let Some(lacking) = self.kind.and_then(|kind| kind.lacks(&terms)) {
                return Err(lacking.text.clone());
            }
            let event = pmu.event(&terms).map_err(|error| error.to_string())?;
            if let Some(why) = pmu.harm(event.config) {
                return Err(why.to_owned());
            }
            events.push(event);
        }
        let value = |event: &perf::Event, count: f64| {
            let sysfs = event.scale.map(|scale| SysfsUnit { scale, unit: event.unit.as_deref() });
            let unit = event.unit.as_deref().unwrap_or_default();
            of.value(count, sysfs).ok_or_else(|| format!("its unit {unit:?} in sysfs is not one of {}", of.unit.text))
        };
        if of.is_state && of.shares.is_some() {
            // A constant is read once and takes no turn from what is counted.
            let count = constant(&machine.root, pmu, instrument.cpu, &events).map_err(|error| error.to_string())?;
            self.constants.insert(of.name.clone(), value(&events[0], count as f64)?);
            return Ok(());
        }
        let mut parts = Vec::new();
        for event in events {
            let one = value(&event, 1.0)?;
            let most = self.kind.and_then(|kind| machine.most_per_s(kind, of, self.function.as_ref(), one));
            parts.push((instrument.place_of(event, most), one));
        }
        let (name, unit) = (of.name.clone(), of.unit.text.clone());
        self.quantities.push(Counted { name, unit, parts, is_state: of.is_state, is_least: of.is_least });
        Ok(())
    }

    /// Reads the port's link and driver and the functions below it again: a slot may have been filled, a driver bound, a link
    /// trained anew. Reads no configuration space and wakes no device. Returns true if anything changed.
    pub(super) fn refresh(&mut self, root: &Root, endpoints: &[(Vec<Bdf>, Below)], instrument: &Instrument) -> bool {
        let Some(bdf) = self.function.as_ref().and_then(|port| port.bdf) else { return false };
        let below = below(endpoints, bdf);
        let is_other_below = !below.clone().eq(&self.below);
        if is_other_below {
            self.below = below.cloned().collect();
        }
        let Some(port) = &mut self.function else { return is_other_below };
        let mut now = port.clone();
        now.driver = pci::driver(root, bdf);
        if let Some(link) = now.link.and_then(|before| inventory::link(root, bdf, &before)) {
            now.link = Some(link);
        }
        let is_other_speed = now.link.map(|link| link.speed_gts) != port.link.map(|link| link.speed_gts);
        let is_other = is_other_below || now != *port;
        *port = now;
        if is_other_speed {
            self.renew_constants(root, instrument);
        }
        is_other
    }

    /// Reads constants again: the period of a port's clock depends on the link's speed.
    fn renew_constants(&mut self, root: &Root, instrument: &Instrument) {
        let (Some(kind), false) = (self.kind, self.constants.is_empty()) else { return };
        let (machine, mut instrument) = (Machine::load(root, Origin::Hardware), instrument.clone());
        for name in std::mem::take(&mut self.constants).into_keys() {
            let Some(event) = kind.events.get(&name) else { continue };
            // Without it, what needs it has no figure.
            let _ = self.add(&machine, &mut instrument, event);
        }
    }
}

/// Reads a register that perf shows as an event.
fn constant(root: &Root, pmu: &Pmu, cpu: u32, events: &[perf::Event]) -> Result<u64, perf::Error> {
    if let Some(machine) = root.machine() {
        return Ok(machine.count(&pmu.name, &events[0].terms, now_ns()));
    }
    if !root.is_live() {
        // The numbers of a recorded tree are other PMUs' here.
        return Err(perf::Error::Gone(events[0].to_string()));
    }
    let mut group = perf::Group::open(root, pmu, cpu, events)?;
    group.enable()?;
    let values = group.read()?;
    Ok(values.values[0])
}

/// An event that counts per lane is opened once for each lane of the link.
fn each(of: &Event, terms: &str, port: Option<&Function>) -> Vec<String> {
    match of.each.as_deref() {
        Some("lane") => {
            let lanes = port.and_then(|port| port.link).map_or(1, |link| link.max_width.max(1));
            (0..lanes).map(|lane| format!("{terms},lane={lane}")).collect()
        }
        _ => vec![terms.to_owned()],
    }
}

impl Instrument {
    /// The place of an event among the counters; several quantities may be made of one.
    pub(super) fn place_of(&mut self, event: perf::Event, most_per_s: Option<f64>) -> usize {
        let known = self.counters.iter().position(|counter| counter.event.config == event.config);
        known.unwrap_or_else(|| {
            self.counters.push(Counter { event, most_per_s });
            self.counters.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use pciescope_core::Link;

    use super::super::selection::{Wanted, choose};
    use super::*;

    #[test]
    fn a_port_is_shown_as_it_is_now() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let (port, card): (Bdf, Bdf) = ("0000:10:00.0".parse().unwrap(), "0000:11:00.0".parse().unwrap());
        let at = |bdf: Bdf, file: &str| folder.path().join(format!("sys/bus/pci/devices/{bdf}/{file}"));
        let write = |file: &str, text: &str| std::fs::write(at(port, file), text).unwrap();
        std::fs::create_dir_all(at(port, "power")).unwrap();
        for (file, text) in [("max_link_speed", "16.0 GT/s PCIe"), ("max_link_width", "4"), ("current_link_width", "4")]
        {
            write(file, text);
        }
        write("current_link_speed", "2.5 GT/s PCIe");
        let link = Link {
            speed_gts: 2.5,
            width: 4,
            max_speed_gts: 16.0,
            max_width: 4,
            mps_bytes: Some(256),
            mrrs_bytes: None,
            is_nominal: false,
        };
        let function = Function { bdf: Some(port), link: Some(link), ..Function::default() };
        let tree = pciescope_support::tree::pmu("rasdes_pmu");
        let choice = choose(&Root::at(tree.path()), &Wanted::default()).unwrap();
        let instrument = &choice.instruments[0];
        let mut panel = choice.panels[0].clone();
        (panel.function, panel.below) = (Some(function), Vec::new());
        assert!(!panel.refresh(&root, &[], instrument), "all is as it was");
        let below = Below { bdf: card, name: "card".to_owned(), driver: Some("nvme".to_owned()), devices: Vec::new() };
        let elsewhere = (vec![card], Below { bdf: port, name: String::new(), driver: None, devices: Vec::new() });
        let endpoints = [(vec![port], below.clone()), elsewhere];
        assert!(panel.refresh(&root, &endpoints, instrument), "a slot was filled");
        assert_eq!(panel.below, [below]);
        write("current_link_speed", "16.0 GT/s PCIe");
        assert!(panel.refresh(&root, &endpoints, instrument), "the link is quicker");
        let now = panel.function.as_ref().unwrap().link.unwrap();
        assert_eq!((now.speed_gts, now.mps_bytes), (16.0, Some(256)), "the payload size is not read again");
        write("power/runtime_status", "suspended");
        write("current_link_speed", "Unknown");
        assert!(!panel.refresh(&root, &endpoints, instrument), "a port that sleeps is left alone");
    }
}
