//! What to count: PMUs of the machine, by the catalogue or as the user names events.

use std::collections::BTreeMap;

use pciescope_catalogue::{Catalogue, Event, Group, Kind, Metric, SysfsUnit, What};
use pciescope_core::record::Warning;
use pciescope_core::{Bdf, Below, Cpu, Function, Link};
use pciescope_hw::perf::{self, Pmu};
use pciescope_hw::{Root, ceiling, inventory, pci};

use super::session::{Counter, Instrument};

/// What the user asked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Ports, devices below them, or PMUs by name or pattern; empty for all.
    pub places: Vec<Place>,
    /// Events as perf writes them, patterns in the PMU's name allowed; empty for what the catalogue says.
    pub events: Vec<Named>,
    /// Metrics, groups of metrics or quantities of the catalogue; empty for the usual ones.
    pub metrics: Vec<String>,
}

/// Where to count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A root port, or a device whose root port is meant.
    Function(Bdf),
    /// PMUs by name; `*` and `?` stand for any letters and any letter.
    Pmus(String),
}

/// An event as it was typed: `dwc_rootport_*/rx_pcie_tlp_data_payload/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The PMU's name or pattern.
    pub pmus: String,
    /// What stands between the slashes.
    pub terms: String,
}

/// Why nothing can be counted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An event is wrong, or cannot be opened.
    #[error(transparent)]
    Counter(#[from] perf::Error),
    /// The machine's functions cannot be read.
    #[error(transparent)]
    Machine(#[from] pciescope_hw::Error),
    /// No PMU of a name.
    #[error("{pattern}: no PMU of this machine has such a name")]
    NoPmu {
        /// The name or pattern.
        pattern: String,
        /// Names that begin alike.
        alike: Vec<String>,
    },
    /// The machine has no PMU that the catalogue knows.
    #[error("there is no counter of PCIe ports or DRAM channels on this machine{}", unknown_words(*.unknown))]
    None {
        /// How many PMUs there are that the catalogue does not know.
        unknown: usize,
    },
    /// A function without counters.
    #[error("{bdf}: no counter counts for this function or its root port")]
    NotCounted {
        /// The function.
        bdf: Bdf,
    },
    /// A tree recorded on another machine.
    #[error("counters are not read: /sys is a recorded tree here")]
    Recorded,
    /// The kernel opens none of the counters.
    #[error("{first}")]
    Refused {
        /// The first reason, with its cause.
        first: String,
        /// What the user can do about it.
        hint: Option<String>,
    },
    /// No kind of PMU has such a metric.
    #[error("{name}: none of the PMUs chosen has such a metric, group of metrics or quantity")]
    NoMetric {
        /// The name.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
}

fn unknown_words(unknown: usize) -> String {
    if unknown == 0 { String::new() } else { format!(" ({unknown} other PMUs; name their events with -e)") }
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Counter(error) => error.hint(),
            Error::Machine(error) => error.hint(),
            Error::Refused { hint, .. } => hint.clone(),
            Error::Recorded => Some("leave out --root".to_owned()),
            Error::NoPmu { alike, .. } if !alike.is_empty() => {
                Some(format!("name one of {}, or all of them with a `*`", alike.join(", ")))
            }
            Error::NoPmu { .. } => Some("`pciescope stat --list` shows the PMUs that can be read here".to_owned()),
            Error::None { .. } => Some(
                "root ports of Synopsys DesignWare cores need the module rasdes_pmu (`modprobe rasdes_pmu`) or dwc_pcie_pmu, DRAM \
                 of a Yitian 710 drw_pmu, other machines their kernel's uncore drivers; virtual machines have none"
                    .to_owned(),
            ),
            Error::NotCounted { .. } => Some("`pciescope stat --list` shows what is counted for".to_owned()),
            Error::NoMetric { known, .. } => Some(format!("there are {}", known.join(", "))),
        }
    }
}

/// What a PMU is to the user, and what is to be shown of it.
#[derive(Debug, Clone)]
pub struct Panel {
    /// `port`, `channel` or `pmu`, as in a record's `instance`.
    pub scope: &'static str,
    /// What the catalogue knows of it; `None` for events that the user named.
    pub kind: Option<&'static Kind>,
    /// The root port.
    pub function: Option<Function>,
    /// The functions below the root port.
    pub below: Vec<Below>,
    /// The NUMA node.
    pub node: Option<u32>,
    /// The CPU on which it is counted, where the node does not tell it from another instance of its PMU.
    pub cpu: Option<Cpu>,
    /// What is counted.
    pub quantities: Vec<Counted>,
    /// What is worked out from it.
    pub metrics: Vec<Worked>,
    /// Events that are constants, in the catalogue's units; read once, and again when the link has another speed.
    pub constants: BTreeMap<String, f64>,
    /// Quantities that could not be counted, with the reason.
    pub missing: Vec<(String, String)>,
}

impl Panel {
    /// Looks at the port's link and driver and at what is below it again: a slot is filled, a driver bound, a link trained anew.
    /// Reads no configuration space and wakes nothing. Gives whether something is another.
    pub(super) fn look(&mut self, root: &Root, endpoints: &[(Vec<Bdf>, Below)], instrument: &Instrument) -> bool {
        let Some(bdf) = self.function.as_ref().and_then(|port| port.bdf) else { return false };
        let below = endpoints.iter().filter(|(path, _)| path.contains(&bdf)).map(|(_, below)| below);
        let is_other_below = !below.clone().eq(&self.below);
        if is_other_below {
            self.below = below.cloned().collect();
        }
        let Some(port) = &mut self.function else { return is_other_below };
        let mut now = port.clone();
        now.driver = pci::driver(root, bdf);
        if let (Some(link), Some(before)) = (inventory::link(root, bdf), now.link) {
            now.link = Some(Link { mps_bytes: before.mps_bytes, mrrs_bytes: before.mrrs_bytes, ..link });
        }
        let is_other_speed = now.link.map(|link| link.speed_gts) != port.link.map(|link| link.speed_gts);
        let is_other = is_other_below || now != *port;
        *port = now;
        if is_other_speed {
            self.renew_constants(root, instrument);
        }
        is_other
    }

    /// Reads constants again: the period of a port's clock goes with the link's speed.
    fn renew_constants(&mut self, root: &Root, instrument: &Instrument) {
        let (Some(kind), false) = (self.kind, self.constants.is_empty()) else { return };
        let names = std::mem::take(&mut self.constants).into_keys();
        let Ok(machine) = Machine::load(root) else { return };
        for name in names {
            let Some(event) = kind.events.get(&name) else { continue };
            // Without it, what needs it has no figure.
            let _ = add(root, &machine, &instrument.pmu, instrument.cpu, event, self, &mut Vec::new());
        }
    }
}

/// A metric, taken apart once.
#[derive(Debug, Clone)]
pub struct Worked {
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
    /// Whether the last value is the figure, and no difference.
    pub is_state: bool,
}

/// What is to be opened, with the panel of each instrument in the same place.
#[derive(Debug, Default)]
pub struct Choice {
    /// What to open.
    pub instruments: Vec<Instrument>,
    /// What it means.
    pub panels: Vec<Panel>,
    /// What the user named and is not there; empty unless [`choose_present`] decided.
    pub absent: Vec<Warning>,
}

impl Choice {
    /// Names the CPU of those instances of a PMU that have a node in common: all of them under `numa=off`, and two sockets in
    /// one node.
    fn tell_apart(mut self, machine: &Machine) -> Self {
        let keys: Vec<_> =
            self.instruments.iter().zip(&self.panels).map(|(one, panel)| (one.pmu.name.clone(), panel.node)).collect();
        for ((panel, instrument), key) in self.panels.iter_mut().zip(&self.instruments).zip(&keys) {
            if keys.iter().filter(|other| *other == key).count() > 1 {
                let known = machine.cpus.iter().find(|cpu| cpu.cpu == instrument.cpu);
                panel.cpu = Some(known.cloned().unwrap_or(Cpu { cpu: instrument.cpu, ..Cpu::default() }));
            }
        }
        self
    }
}

/// Decides what to count.
///
/// # Errors
/// [`Error`], before anything is opened.
pub fn choose(root: &Root, wanted: &Wanted) -> Result<Choice, Error> {
    let machine = Machine::load(root)?;
    let choice =
        if wanted.events.is_empty() { by_catalogue(root, &machine, wanted) } else { by_name(root, &machine, wanted) };
    Ok(choice?.tell_apart(&machine))
}

/// Decides what to count of what is there now: places and metrics that are not are left out, and named in [`Choice::absent`].
///
/// # Errors
/// [`Error`], before anything is opened: the first reason, where nothing of what the user named is left.
pub fn choose_present(root: &Root, wanted: &Wanted) -> Result<Choice, Error> {
    let machine = Machine::load(root)?;
    let (left, mut lacking) = machine.narrow(wanted);
    // An empty list would stand for everything.
    let is_nothing_left = (left.places.is_empty() && !wanted.places.is_empty())
        || (left.metrics.is_empty() && !wanted.metrics.is_empty());
    if is_nothing_left && !lacking.is_empty() {
        return Err(lacking.swap_remove(0));
    }
    let choice =
        if left.events.is_empty() { by_catalogue(root, &machine, &left) } else { by_name(root, &machine, &left) };
    Ok(Choice { absent: lacking.iter().map(absence).collect(), ..choice?.tell_apart(&machine) })
}

/// What the user named and is not there now, as in [`Choice::absent`]. Opens nothing, and reads no configuration space.
///
/// # Errors
/// [`Error::Machine`].
pub fn absent(root: &Root, wanted: &Wanted) -> Result<Vec<Warning>, Error> {
    let (_, lacking) = Machine::load(root)?.narrow(wanted);
    Ok(lacking.iter().map(absence).collect())
}

fn absence(error: &Error) -> Warning {
    let text = crate::run::chain(error);
    let hint = "what else was named is counted; this will be once it is there".to_owned();
    Warning { code: "absent".to_owned(), text, hint }
}

/// The PMUs of this machine with what the catalogue knows of them.
#[derive(Debug)]
pub struct Machine {
    /// All PMUs.
    pub pmus: Vec<(Pmu, Option<&'static Kind>)>,
    root: Root,
    /// Every function with the bridges above it. Their configuration is read of those that are shown only: on a large
    /// machine that of all takes longer than counting.
    paths: Vec<(Bdf, Vec<Bdf>)>,
    cpus: Vec<Cpu>,
    is_guest: bool,
}

impl Machine {
    /// Reads the PMUs and the functions of the machine.
    ///
    /// # Errors
    /// [`Error::Machine`].
    pub fn load(root: &Root) -> Result<Self, Error> {
        let catalogue = Catalogue::builtin();
        let kind = |pmu: &Pmu| {
            let events: Vec<&str> = pmu.events.keys().map(String::as_str).collect();
            catalogue.find(&pmu.name, pmu.identifier.as_deref(), &events)
        };
        let pmus: Vec<_> =
            perf::pmus(root).into_iter().map(|pmu| (kind(&pmu), pmu)).map(|(kind, pmu)| (pmu, kind)).collect();
        Ok(Machine {
            pmus,
            root: root.clone(),
            paths: pci::addresses(root).into_iter().map(|bdf| (bdf, pci::path(root, bdf))).collect(),
            is_guest: pciescope_hw::environment::hypervisor(root).is_some(),
            cpus: pciescope_hw::topology::cpus(root).unwrap_or_default(),
        })
    }

    /// The root port and the functions below it, bridges left out.
    pub fn port(&self, pmu: &Pmu) -> (Option<Function>, Vec<Below>) {
        let Some(bdf) = pmu.function() else { return (None, Vec::new()) };
        // One that goes away meanwhile, or cannot be understood, is left out.
        let load = |bdf: Bdf| pci::function(&self.root, bdf).ok();
        let below = self.paths.iter().filter(|(_, path)| path.contains(&bdf)).filter_map(|(below, _)| load(*below));
        let below = below.filter(|function| !pci::is_bridge(function.class));
        let below = below
            .filter_map(|function| Some(Below { bdf: function.bdf?, name: function.name, driver: function.driver }));
        let below = below.collect();
        (load(bdf), below)
    }

    /// The NUMA node of a PMU on a CPU: as it says, as its port says, else that of the CPU on which it is counted.
    fn node(&self, pmu: &Pmu, cpu: u32, port: Option<&Function>) -> Option<u32> {
        // The in-tree driver of a Yitian 710 has no file `die`; the second die's windows lie from 0x400_0000_0000 up.
        let by_name = || u32::from_str_radix(pmu.name.strip_prefix("ali_drw_")?, 16).ok().map(|page| page >> 30);
        let by_port = || port.and_then(|port| port.node);
        let by_cpu = || self.cpus.iter().find(|known| known.cpu == cpu)?.node;
        pmu.die.or_else(by_port).or_else(by_name).or_else(by_cpu)
    }

    /// How many counts, each worth `one` in base units, the hardware can make per second; `None` where nobody knows, and in
    /// a guest, whose emulated links and memory have no limit.
    fn most_per_s(&self, kind: &Kind, event: &Event, port: Option<&Function>, one: f64) -> Option<f64> {
        if self.is_guest || event.unit.text != "bytes" {
            return None;
        }
        match kind.what {
            What::PcieRootPort => {
                let link = port?.link?;
                // A little more than all lanes at the highest speed, whatever is negotiated now.
                Some(ceiling::wire_bytes_per_s(link.max_speed_gts, link.max_width)? * 1.05 / one)
            }
            // Twice the fastest memory that the part takes (DDR5-4400 on 4 bytes).
            What::DramChannel if kind.id == "ali_drw" => Some(2.0 * 4400e6 * 4.0 / one),
            _ => None,
        }
    }

    /// The PMUs whose name fits.
    fn named(&self, pattern: &str) -> Result<Vec<&Pmu>, Error> {
        let found: Vec<&Pmu> = self.pmus.iter().map(|(pmu, _)| pmu).filter(|pmu| fits(pattern, &pmu.name)).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let stem = pattern.trim_end_matches(['*', '?', '_']);
        let alike =
            self.pmus.iter().map(|(pmu, _)| &pmu.name).filter(|name| !stem.is_empty() && name.starts_with(stem));
        Err(Error::NoPmu { pattern: pattern.to_owned(), alike: alike.take(4).cloned().collect() })
    }

    /// Whether a PMU is at one of the places.
    fn is_wanted(&self, pmu: &Pmu, places: &[Place]) -> bool {
        places.is_empty()
            || places.iter().any(|place| match place {
                Place::Pmus(pattern) => fits(pattern, &pmu.name),
                Place::Function(bdf) => pmu.function().is_some_and(|port| self.is_at(*bdf, port)),
            })
    }

    /// Whether a function is the port or is below it.
    fn is_at(&self, bdf: Bdf, port: Bdf) -> bool {
        bdf == port || self.paths.iter().any(|(one, path)| *one == bdf && path.contains(&port))
    }

    /// The PMUs at these places that the catalogue knows.
    fn known(&self, places: &[Place]) -> Vec<(&Pmu, &'static Kind)> {
        let known = self.pmus.iter().filter_map(|(pmu, kind)| Some((pmu, (*kind)?)));
        known.filter(|(pmu, _)| self.is_wanted(pmu, places)).collect()
    }

    /// Leaves out places and metrics that are not there, and says why.
    fn narrow(&self, wanted: &Wanted) -> (Wanted, Vec<Error>) {
        let mut left = wanted.clone();
        let mut lacking = Vec::new();
        let mut keep = |refusal: Option<Error>| {
            let is_kept = refusal.is_none();
            lacking.extend(refusal);
            is_kept
        };
        left.places.retain(|place| keep(self.check(std::slice::from_ref(place)).err()));
        // Where no place is left, none of its metrics is missed for itself.
        if left.places.is_empty() == wanted.places.is_empty() {
            let known = self.known(&left.places);
            left.metrics.retain(|name| keep(no_metric(&known, name)));
        }
        (left, lacking)
    }

    /// Refuses places at which nothing counts.
    fn check(&self, places: &[Place]) -> Result<(), Error> {
        for place in places {
            match place {
                Place::Pmus(pattern) => drop(self.named(pattern)?),
                Place::Function(bdf) => {
                    if !self.paths.iter().any(|(one, _)| one == bdf) {
                        return Err(pciescope_hw::Error::NoSuchFunction { bdf: *bdf }.into());
                    }
                    if !self.pmus.iter().any(|(pmu, _)| self.is_wanted(pmu, std::slice::from_ref(place))) {
                        return Err(Error::NotCounted { bdf: *bdf });
                    }
                }
            }
        }
        Ok(())
    }
}

/// The CPUs on which a PMU is counted: each of its mask is an instance by itself (a package), and without a mask the first.
fn cpus(pmu: &Pmu) -> Vec<u32> {
    if pmu.cpus.is_empty() { vec![0] } else { pmu.cpus.iter().collect() }
}

fn by_catalogue(root: &Root, machine: &Machine, wanted: &Wanted) -> Result<Choice, Error> {
    machine.check(&wanted.places)?;
    let known = machine.known(&wanted.places);
    if known.is_empty() {
        return Err(Error::None { unknown: machine.pmus.len() });
    }
    if let Some(error) = wanted.metrics.iter().find_map(|name| no_metric(&known, name)) {
        return Err(error);
    }
    let mut choice = Choice::default();
    for (pmu, kind) in known {
        for cpu in cpus(pmu) {
            let (counters, panel) = panel(root, machine, pmu, kind, cpu, &wanted.metrics);
            if counters.is_empty() && panel.constants.is_empty() {
                continue;
            }
            choice.instruments.push(Instrument { pmu: pmu.clone(), cpu, counters });
            choice.panels.push(panel);
        }
    }
    Ok(choice)
}

/// Refuses a metric that none of these PMUs has.
fn no_metric(known: &[(&Pmu, &'static Kind)], name: &str) -> Option<Error> {
    if known.iter().any(|(_, kind)| has_metric(kind, name)) {
        return None;
    }
    let mut all: Vec<String> = known.iter().flat_map(|(_, kind)| metric_names(kind)).collect();
    all.sort();
    all.dedup();
    Some(Error::NoMetric { name: name.to_owned(), known: all })
}

/// Whether the user named this metric, or its group.
fn is_named(metric: &Metric, name: &str) -> bool {
    metric.name == name || metric.group.text() == name
}

fn has_metric(kind: &Kind, name: &str) -> bool {
    kind.events.contains_key(name) || kind.metrics.iter().any(|metric| is_named(metric, name))
}

/// Groups and metrics; events are too many to name.
fn metric_names(kind: &Kind) -> impl Iterator<Item = String> + '_ {
    kind.metrics.iter().flat_map(|metric| [metric.group.text().to_owned(), metric.name.clone()])
}

/// Whether a metric is shown unless others are named: bandwidth and errors, but for what would cost every port a turn
/// (CCIX) or a counter for each lane.
fn is_usual(kind: &Kind, metric: &Metric) -> bool {
    let is_per_lane = |name: &String| kind.events.get(name).is_some_and(|event| event.each.is_some());
    matches!(metric.group, Group::Bandwidth | Group::Errors)
        && !metric.name.contains("ccix")
        && !metric.events().iter().any(is_per_lane)
}

/// What of a PMU is counted and shown.
fn panel(
    root: &Root,
    machine: &Machine,
    pmu: &Pmu,
    kind: &'static Kind,
    cpu: u32,
    names: &[String],
) -> (Vec<Counter>, Panel) {
    let (function, below) = machine.port(pmu);
    let is_chosen = |metric: &&Metric| match names {
        [] => is_usual(kind, metric),
        names => names.iter().any(|name| is_named(metric, name)),
    };
    let worked = |metric: &'static Metric| {
        let (events, unit) = (metric.events().into_iter().collect(), metric.unit.text.clone());
        Worked { metric, events, unit }
    };
    let metrics: Vec<Worked> = kind.metrics.iter().filter(is_chosen).map(worked).collect();
    let mut needed: Vec<String> = Vec::new();
    for name in metrics.iter().flat_map(|worked| worked.events.clone()).chain(names.iter().cloned()) {
        if kind.events.contains_key(&name) && !needed.contains(&name) {
            needed.push(name);
        }
    }
    let mut panel = Panel {
        scope: match kind.what {
            What::PcieRootPort => "port",
            What::DramChannel => "channel",
            What::PcieEndpoint | What::PcieStack | What::Dram | What::Fabric => "pmu",
        },
        kind: Some(kind),
        node: machine.node(pmu, cpu, function.as_ref()),
        cpu: None,
        function,
        below,
        quantities: Vec::new(),
        metrics,
        constants: BTreeMap::new(),
        missing: Vec::new(),
    };
    let mut counters: Vec<Counter> = Vec::new();
    for name in needed {
        let event = &kind.events[&name];
        if let Err(why) = add(root, machine, pmu, cpu, event, &mut panel, &mut counters) {
            panel.missing.push((name, why));
        }
    }
    (counters, panel)
}

/// Adds an event of the catalogue to what is counted, or reads it at once where it is a constant.
fn add(
    root: &Root,
    machine: &Machine,
    pmu: &Pmu,
    cpu: u32,
    of: &'static Event,
    panel: &mut Panel,
    counters: &mut Vec<Counter>,
) -> Result<(), String> {
    let names: Vec<&str> = pmu.events.keys().map(String::as_str).collect();
    let formats: Vec<&str> = pmu.formats.keys().map(String::as_str).collect();
    let all = of.terms(&names, &formats).ok_or("the driver does not have this event")?;
    let mut events = Vec::new();
    for terms in &all {
        for terms in each(of, terms, panel.function.as_ref()) {
            if let Some(lacking) = panel.kind.and_then(|kind| kind.lacks(&terms)) {
                return Err(lacking.text.clone());
            }
            let event = pmu.event(&terms).map_err(|error| error.to_string())?;
            if let Some(why) = pmu.harm(event.config) {
                return Err(why.to_owned());
            }
            events.push(event);
        }
    }
    let value = |event: &perf::Event, count: f64| {
        let sysfs = event.scale.map(|scale| SysfsUnit { scale, unit: event.unit.as_deref() });
        let unit = event.unit.as_deref().unwrap_or_default();
        of.value(count, sysfs).ok_or_else(|| format!("its unit {unit:?} in sysfs is not one of {}", of.unit.text))
    };
    if of.is_state && of.shares.is_some() {
        // A constant is read once and takes no turn from what is counted.
        let count = constant(root, pmu, cpu, &events).map_err(|error| error.to_string())?;
        panel.constants.insert(of.name.clone(), value(&events[0], count as f64)?);
        return Ok(());
    }
    let mut parts = Vec::new();
    for event in events {
        let one = value(&event, 1.0)?;
        let most = panel.kind.and_then(|kind| machine.most_per_s(kind, of, panel.function.as_ref(), one));
        parts.push((place_of(counters, event, most), one));
    }
    panel.quantities.push(Counted { name: of.name.clone(), unit: of.unit.text.clone(), parts, is_state: of.is_state });
    Ok(())
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

/// The place of an event among the counters; several quantities may be made of one.
fn place_of(counters: &mut Vec<Counter>, event: perf::Event, most_per_s: Option<f64>) -> usize {
    let known = counters.iter().position(|counter| counter.event.config == event.config);
    known.unwrap_or_else(|| {
        counters.push(Counter { event, most_per_s });
        counters.len() - 1
    })
}

/// Reads a register that perf shows as an event.
fn constant(root: &Root, pmu: &Pmu, cpu: u32, events: &[perf::Event]) -> Result<u64, perf::Error> {
    if !root.is_live() {
        // The numbers of a recorded tree are other PMUs' here.
        return Err(perf::Error::Gone { event: events[0].to_string() });
    }
    let mut group = perf::Group::open(root, pmu, cpu, events)?;
    group.enable()?;
    let values = group.read()?;
    Ok(values.values[0])
}

fn by_name(_root: &Root, machine: &Machine, wanted: &Wanted) -> Result<Choice, Error> {
    machine.check(&wanted.places)?;
    let mut choice = Choice::default();
    for named in &wanted.events {
        for pmu in machine.named(&named.pmus)? {
            if !machine.is_wanted(pmu, &wanted.places) {
                continue;
            }
            let event = pmu.event(&named.terms)?;
            if let Some(why) = pmu.harm(event.config) {
                return Err(perf::Error::Harmful { event: event.to_string(), why }.into());
            }
            for cpu in cpus(pmu) {
                let place = choice.instruments.iter().position(|one| one.pmu.name == pmu.name && one.cpu == cpu);
                let place = place.unwrap_or_else(|| {
                    let (function, below) = machine.port(pmu);
                    choice.instruments.push(Instrument { pmu: pmu.clone(), cpu, counters: Vec::new() });
                    choice.panels.push(Panel {
                        scope: "pmu",
                        kind: None,
                        node: machine.node(pmu, cpu, function.as_ref()),
                        cpu: None,
                        function,
                        below,
                        quantities: Vec::new(),
                        metrics: Vec::new(),
                        constants: BTreeMap::new(),
                        missing: Vec::new(),
                    });
                    choice.instruments.len() - 1
                });
                let quantities = &mut choice.panels[place].quantities;
                if quantities.iter().any(|quantity| quantity.name == event.terms) {
                    continue;
                }
                let part = place_of(&mut choice.instruments[place].counters, event.clone(), None);
                quantities.push(Counted {
                    name: event.terms.clone(),
                    unit: event.unit.clone().filter(|_| event.scale.is_some()).unwrap_or_else(|| "1".to_owned()),
                    parts: vec![(part, event.scale.unwrap_or(1.0))],
                    is_state: event.is_snapshot,
                });
            }
        }
    }
    if choice.instruments.is_empty() {
        return Err(Error::None { unknown: machine.pmus.len() });
    }
    Ok(choice)
}

/// Parses what stands behind `-e`: events as perf writes them, apart by commas, braces around groups passed over.
///
/// # Errors
/// Which event is wrong, and why.
pub fn parse_events(text: &str) -> Result<Vec<Named>, String> {
    let mut all = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        rest = rest.trim_start_matches(['{', ' ']);
        let Some((pmus, behind)) = rest.split_once('/') else {
            return Err(format!("{rest:?} is no event of a PMU: write PMU/EVENT/"));
        };
        let Some((terms, behind)) = behind.split_once('/') else {
            return Err(format!("{rest:?}: the second / of PMU/EVENT/ is missing"));
        };
        if pmus.is_empty() || terms.trim().is_empty() || pmus.contains(',') {
            return Err(format!("{:?} is no event of a PMU: write PMU/EVENT/", format!("{pmus}/{terms}/")));
        }
        all.push(Named { pmus: pmus.to_owned(), terms: terms.trim().to_owned() });
        let behind = behind.trim_start_matches('}');
        rest = match behind.strip_prefix(',') {
            Some(more) => more,
            None if behind.trim().is_empty() => "",
            None => {
                return Err(format!("{behind:?} behind {pmus}/{terms}/: modifiers mean nothing for these counters"));
            }
        };
    }
    if all.is_empty() { Err("write PMU/EVENT/".to_owned()) } else { Ok(all) }
}

/// Whether a name fits a pattern: `*` stands for any letters, `?` for one.
pub fn fits(pattern: &str, name: &str) -> bool {
    let mut chars = pattern.chars();
    match chars.next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = chars.as_str();
            name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| fits(rest, &name[at..]))
        }
        Some(letter) => {
            let mut of = name.chars();
            of.next().is_some_and(|first| letter == '?' || letter == first) && fits(chars.as_str(), of.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is chosen on a tree of tests/sysfs/pmu.
    fn chosen(tree: &str, wanted: &Wanted) -> Result<Choice, Error> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sysfs/pmu").join(tree);
        choose(&Root::at(folder), wanted)
    }

    /// The events of the first instrument.
    fn events_of(choice: &Choice) -> Vec<String> {
        choice.instruments[0].counters.iter().map(|counter| counter.event.terms.clone()).collect()
    }

    #[test]
    fn a_root_port_has_both_directions_and_its_errors() {
        let choice = chosen("rasdes_pmu", &Wanted::default()).unwrap();
        let events = events_of(&choice);
        for event in ["rx_pcie_tlp_data_payload", "tx_pcie_tlp_data_payload", "lcrc_error", "completion_timeout"] {
            assert!(events.iter().any(|one| one == event), "{event} is missing in {events:?}");
        }
        // None per lane, no state of the link, no CCIX.
        assert!(!events.iter().any(|one| one.contains("lane") || one == "L0" || one.contains("ccix")), "{events:?}");
        assert_eq!(choice.panels[0].scope, "port");
        assert!(choice.panels[0].missing.is_empty(), "{:?}", choice.panels[0].missing);
    }

    #[test]
    fn the_in_tree_driver_is_asked_for_nothing_that_harms_it() {
        for tree in ["dwc_rootport-6.12", "dwc_rootport-7.3"] {
            let choice = chosen(tree, &Wanted::default()).unwrap();
            assert_eq!(events_of(&choice).len(), 2, "{tree}: payload alone: {:?}", events_of(&choice));
            assert!(choice.panels[0].missing.iter().any(|(name, _)| name == "lcrc_error"), "{tree}");
        }
        let named = Named { pmus: "dwc_rootport_13018".to_owned(), terms: "type=0x1,eventid=0x201,lane=0".to_owned() };
        let wanted = Wanted { events: vec![named], ..Wanted::default() };
        let error = chosen("dwc_rootport-7.3", &wanted).unwrap_err();
        assert!(error.to_string().contains("corrupt"), "{error}");
    }

    #[test]
    fn raw_units_of_the_seed_become_bytes() {
        let choice = chosen("rasdes_pmu-seed", &Wanted::default()).unwrap();
        let rx = choice.panels[0].quantities.iter().find(|quantity| quantity.name == "rx_bytes").unwrap();
        assert_eq!(rx.parts[0].1, 16.0);
        let upstream = chosen("rasdes_pmu", &Wanted::default()).unwrap();
        let rx = upstream.panels[0].quantities.iter().find(|quantity| quantity.name == "rx_bytes").unwrap();
        assert_eq!(rx.parts[0].1, 1.0);
    }

    #[test]
    fn instances_of_a_pmu_without_a_node_are_told_apart_by_their_cpu() {
        // The tree says nothing of CPUs, as `numa=off` says nothing of nodes.
        let choice = chosen("uncore_imc-spr", &Wanted::default()).unwrap();
        let cpus: Vec<_> = choice.panels.iter().map(|panel| panel.cpu.as_ref().map(|cpu| cpu.cpu)).collect();
        assert_eq!(cpus, [Some(0), Some(28)]);
        let mut machine = Machine::load(&Root::at("/no/such/root")).unwrap();
        machine.cpus = [(0, 0), (28, 1)].map(|(cpu, node)| Cpu { cpu, node: Some(node), ..Cpu::default() }).into();
        let mut by_node = choice;
        for (panel, instrument) in by_node.panels.iter_mut().zip(&by_node.instruments) {
            (panel.cpu, panel.node) = (None, machine.node(&instrument.pmu, instrument.cpu, None));
        }
        let nodes: Vec<_> = by_node.panels.iter().map(|panel| panel.node).collect();
        assert_eq!(nodes, [Some(0), Some(1)]);
        assert!(by_node.tell_apart(&machine).panels.iter().all(|panel| panel.cpu.is_none()));
        assert!(chosen("ali_drw-7.3", &Wanted::default()).unwrap().panels.iter().all(|panel| panel.cpu.is_none()));
    }

    #[test]
    fn dram_is_read_in_one_group_of_events_per_sub_channel() {
        let choice = chosen("ali_drw-7.3", &Wanted::default()).unwrap();
        let mut events = events_of(&choice);
        events.sort();
        assert_eq!(events, ["cycle", "hif_rd", "hif_rmw", "hif_wr"]);
        assert_eq!(choice.panels[0].scope, "channel");
        let writes = choice.panels[0].quantities.iter().find(|quantity| quantity.name == "write_bytes").unwrap();
        assert_eq!(writes.parts.iter().map(|part| part.1).collect::<Vec<_>>(), [64.0, 64.0]);
    }

    #[test]
    fn what_is_not_there_is_refused_with_what_there_is() {
        let wanted = |metric: &str| Wanted { metrics: vec![metric.to_owned()], ..Wanted::default() };
        let error = chosen("ali_drw-7.3", &wanted("rx_bytes_per_s")).unwrap_err();
        assert!(error.hint().unwrap().contains("read_bytes_per_s"), "{error}");
        let places = |name: &str| Wanted { places: vec![Place::Pmus(name.to_owned())], ..Wanted::default() };
        assert!(matches!(chosen("ali_drw-7.3", &places("ali_drv_*")), Err(Error::NoPmu { .. })));
        assert!(chosen("ali_drw-7.3", &places("ali_drw_*")).is_ok());
        let error = chosen("../no-such-tree", &Wanted::default()).unwrap_err();
        assert!(matches!(error, Error::None { unknown: 0 }) && error.hint().unwrap().contains("rasdes_pmu"), "{error}");
    }

    #[test]
    fn of_what_was_named_only_what_is_there_is_counted_and_the_rest_is_said() {
        let present = |places: &[&str], metrics: &[&str]| {
            let wanted = Wanted {
                places: places.iter().map(|name| Place::Pmus((*name).to_owned())).collect(),
                metrics: metrics.iter().map(|name| (*name).to_owned()).collect(),
                ..Wanted::default()
            };
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sysfs/pmu/ali_drw-7.3");
            choose_present(&Root::at(folder), &wanted)
        };
        let all = present(&["ali_drw_*"], &[]).unwrap();
        assert!(all.absent.is_empty() && !all.instruments.is_empty());
        let some = present(&["gone_1", "ali_drw_*", "gone_2"], &["rx_bytes_per_s", "read_bytes_per_s"]).unwrap();
        assert_eq!(some.instruments.len(), all.instruments.len());
        let told: Vec<&str> = some.absent.iter().map(|warning| warning.text.as_str()).collect();
        for (told, name) in told.iter().zip(["gone_1", "gone_2", "rx_bytes_per_s"]) {
            assert!(told.contains(name), "{told}");
        }
        assert_eq!(told.len(), 3, "{told:?}");
        // Nothing that was named is there: that is not everything.
        assert!(
            matches!(present(&["gone_1", "gone_2"], &[]), Err(Error::NoPmu { pattern, .. }) if pattern == "gone_1")
        );
        assert!(matches!(present(&[], &["rx_bytes_per_s"]), Err(Error::NoMetric { .. })));
    }

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
        };
        let function = Function { bdf: Some(port), link: Some(link), ..Function::default() };
        let choice = chosen("rasdes_pmu", &Wanted::default()).unwrap();
        let instrument = &choice.instruments[0];
        let mut panel = choice.panels[0].clone();
        (panel.function, panel.below) = (Some(function), Vec::new());
        assert!(!panel.look(&root, &[], instrument), "all is as it was");
        let below = Below { bdf: card, name: "card".to_owned(), driver: Some("nvme".to_owned()) };
        let elsewhere = (vec![card], Below { bdf: port, name: String::new(), driver: None });
        let endpoints = [(vec![port], below.clone()), elsewhere];
        assert!(panel.look(&root, &endpoints, instrument), "a slot was filled");
        assert_eq!(panel.below, [below]);
        write("current_link_speed", "16.0 GT/s PCIe");
        assert!(panel.look(&root, &endpoints, instrument), "the link is quicker");
        let now = panel.function.as_ref().unwrap().link.unwrap();
        assert_eq!((now.speed_gts, now.mps_bytes), (16.0, Some(256)), "the payload size is not looked at again");
        write("power/runtime_status", "suspended");
        write("current_link_speed", "Unknown");
        assert!(!panel.look(&root, &endpoints, instrument), "a port that sleeps is left alone");
    }

    fn named(pmus: &str, terms: &str) -> Named {
        Named { pmus: pmus.to_owned(), terms: terms.to_owned() }
    }

    #[test]
    fn events_are_taken_as_perf_takes_them() {
        assert_eq!(
            parse_events("dwc_rootport_10/decode_error,lane=3/").unwrap(),
            [named("dwc_rootport_10", "decode_error,lane=3")]
        );
        assert_eq!(
            parse_events("{a_*/x/,b/config=0x2,config1=3/},c/y/").unwrap(),
            [named("a_*", "x"), named("b", "config=0x2,config1=3"), named("c", "y")]
        );
        for bad in ["", "cycles", "a/b", "/b/", "a//", "a/b/u", "a/b/,cycles"] {
            assert!(parse_events(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn patterns_stand_for_letters() {
        assert!(fits("dwc_rootport_*", "dwc_rootport_10"));
        assert!(fits("ali_drw_2?000", "ali_drw_21000"));
        assert!(!fits("ali_drw_2", "ali_drw_21000"));
        assert!(fits("*", "") && !fits("?", ""));
    }
}
