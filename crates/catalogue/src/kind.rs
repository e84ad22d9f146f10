//! What the catalogue knows of one kind of PMU.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::Bdf;
use serde::Deserialize;

use crate::formula::{Formula, Input};
use crate::pattern::{Bits, Pattern};
use crate::unit::Unit;

pciescope_core::named! {
    /// What the hardware behind one PMU is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum What {
        /// One root port of PCIe.
        PcieRootPort => "PCIe root port",
        /// One endpoint of PCIe, also seen from the host: rx is device to host.
        PcieEndpoint => "PCIe endpoint",
        /// A controller, stack or root complex with several root ports.
        PcieStack => "PCIe controller",
        /// A channel or sub-channel of DRAM, or the controller of one.
        DramChannel => "DRAM channel",
        /// All memory of a socket or node at once.
        Dram => "memory",
        /// A fabric or mesh that carries both.
        Fabric => "fabric",
        /// One PCI function with all that is below it, by what the kernel itself counted.
        PciFunction => "PCI function",
    }
    /// In words, singular.
    fn text
}

impl What {
    /// Whether it counts DRAM: its figures go by `read_` and `write_`.
    pub fn is_dram(self) -> bool {
        matches!(self, What::DramChannel | What::Dram)
    }
}

pciescope_core::named! {
    /// What a metric is about.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Group {
        /// Bytes per second, and as part of what is possible.
        Bandwidth => "bandwidth",
        /// Time in the states of a link or of DRAM.
        States => "states",
        /// Transactions and packets per second.
        Traffic => "traffic",
        /// Errors and retries.
        Errors => "errors",
        /// How well the hardware is used: page hits, turnarounds, latency.
        Efficiency => "efficiency",
    }
    /// Its name, as a file has it.
    fn text
}

/// A kind of PMU: one file of the catalogue.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// Its name, that of the file.
    pub id: String,
    /// A line for people.
    pub title: String,
    /// What one instance counts.
    pub what: What,
    /// Where the facts are from.
    pub sources: Vec<String>,
    /// Limits that a reader of the figures should know, each a sentence.
    pub notes: Vec<String>,
    /// What is not proven of the whole file, in words.
    pub unverified: Option<String>,
    /// Its events by the catalogue's names, which are the same for all kinds.
    pub events: BTreeMap<String, Event>,
    /// The metrics, in the order in which they are shown.
    pub metrics: Vec<Metric>,
    /// Parameters without which an event counts nothing.
    pub requires: Vec<Require>,
    pub(crate) names: Vec<Pattern>,
    pub(crate) identifiers: Vec<String>,
    pub(crate) with: Vec<String>,
    pub(crate) without: Vec<String>,
    pub(crate) place: BTreeMap<String, Bits>,
}

/// Parameters of which one has to be given, by the user or by the reader.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Require {
    /// Names in the PMU's `format/`: one of them has to be in the event's terms.
    pub one_of: Vec<String>,
    /// Why, and what to give.
    pub text: String,
}

/// An event of a kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The catalogue's name for it.
    pub name: String,
    /// Names in sysfs by which drivers and versions of them call it, the newest first. `a + b`: both are counted and added up.
    pub names: Vec<String>,
    /// The event by parameters of `format/`, for a PMU that has none of the names: `event=0x05,umask=0xcf`.
    pub encoding: Option<String>,
    /// Parameters to add to a name, for drivers that ask for them: `lane=0`.
    pub parameters: Option<String>,
    /// A parameter that counts instances: the event is opened once for each and the counts are added up. `lane`: as many as
    /// the link has lanes.
    pub each: Option<String>,
    /// Its unit.
    pub unit: Unit,
    /// How much of the unit one count is, where sysfs does not say.
    pub per_count: f64,
    /// The unit that `.unit` means, where a driver's word for it is wrong.
    pub sysfs_unit: Option<Unit>,
    /// Width of the hardware's counter in bits, where known; the driver may make more of it.
    pub width: Option<u8>,
    /// Whether the value is a state and not a sum: no differences are taken of it.
    pub is_state: bool,
    /// Whether the count is a lower bound of the quantity.
    pub is_least: bool,
    /// Events of the same PMU with the same word here take turns at one counter, unless they are the same event.
    pub shares: Option<String>,
    /// What it counts, a line.
    pub text: String,
    /// Its source, if it is not only from the kind's sources.
    pub source: Option<String>,
    /// What is not proven of it, in words.
    pub unverified: Option<String>,
}

/// The files `events/NAME.scale` and `events/NAME.unit`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SysfsUnit<'a> {
    /// What one count is in `unit`.
    pub scale: f64,
    /// `B`, `MiB`; `None` where there is a scale alone, which then multiplies the catalogue's unit.
    pub unit: Option<&'a str>,
}

/// Something worked out of events.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Its name, the same for all kinds that have it.
    pub name: String,
    /// What it is worked out by, as the file has it.
    pub text_of_formula: String,
    /// Its unit.
    pub unit: Unit,
    /// What it is about.
    pub group: Group,
    /// What it says, a line.
    pub text: String,
    /// What is not proven of it, in words.
    pub unverified: Option<String>,
    pub(crate) formula: Formula,
}

impl Kind {
    /// Whether a PMU of this name, with this identifier and these events in sysfs, is of this kind.
    pub fn is(&self, pmu: &str, identifier: Option<&str>, events: &[impl AsRef<str>]) -> bool {
        let has = |name: &String| events.iter().any(|event| event.as_ref() == name);
        self.names.iter().any(|pattern| pattern.numbers(pmu).is_some())
            && (self.identifiers.is_empty()
                || identifier.is_some_and(|own| self.identifiers.iter().any(|one| one == own)))
            && (self.with.is_empty() || self.with.iter().any(has))
            && !self.without.iter().any(has)
    }

    /// Whether a PMU of this kind could have this name. A record has the name alone; [`Kind::is`] decides on a machine.
    pub fn has_name(&self, pmu: &str) -> bool {
        self.names.iter().any(|pattern| pattern.numbers(pmu).is_some())
    }

    /// Where the PMU of this name sits, by words: `domain bus device function` of a port, `socket die channel sub_channel`
    /// of DRAM, else the numbers in its name.
    pub fn place(&self, pmu: &str) -> BTreeMap<String, u64> {
        let Some(numbers) = self.names.iter().find_map(|pattern| pattern.numbers(pmu)) else {
            return BTreeMap::new();
        };
        if self.place.is_empty() {
            return numbers;
        }
        let of = |bits: &Bits| numbers.get(&bits.field).map(|number| bits.of(*number));
        self.place.iter().filter_map(|(word, bits)| Some((word.clone(), of(bits)?))).collect()
    }

    /// The PCI function that the PMU of this name counts for, where its name tells.
    pub fn bdf(&self, pmu: &str) -> Option<Bdf> {
        let place = self.place(pmu);
        let [domain, bus, device, function] = ["domain", "bus", "device", "function"].map(|word| place.get(word));
        format!("{:04x}:{:02x}:{:02x}.{:x}", domain?, bus?, device?, function?).parse().ok()
    }

    /// The metrics that a PMU with these events and parameters in sysfs can give.
    pub fn metrics_for(&self, events: &[impl AsRef<str>], formats: &[impl AsRef<str>]) -> Vec<&Metric> {
        let has = |name: &str| self.events.get(name).is_some_and(|event| event.terms(events, formats).is_some());
        self.metrics.iter().filter(|metric| metric.formula.is_possible(&has)).collect()
    }

    /// A metric by its name.
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }

    /// What an event with these terms lacks to count anything: `port=` of hisi_pcie, for example.
    pub fn lacks(&self, terms: &str) -> Option<&Require> {
        let given = |name: &String| {
            terms.split(',').any(|term| term.split_once('=').is_some_and(|(given, _)| given.trim() == name))
        };
        self.requires.iter().find(|require| !require.one_of.iter().any(given))
    }

    /// What is not proven of a metric: of itself, of the events it needs, of the kind.
    pub fn unverified<'a>(&'a self, metric: &'a Metric) -> Vec<&'a str> {
        let needs = metric.events();
        let of_events = needs.iter().filter_map(|name| self.events.get(name)?.unverified.as_deref());
        metric.unverified.as_deref().into_iter().chain(of_events).chain(self.unverified.as_deref()).collect()
    }
}

impl Event {
    /// What to open, in perf's syntax: the first of [`Event::names`] that the PMU has, else [`Event::encoding`] if the PMU
    /// has all of its parameters, each with [`Event::parameters`]. Where there are several, their counts are to be added
    /// up. `None` where the PMU does not have the event.
    pub fn terms(&self, events: &[impl AsRef<str>], formats: &[impl AsRef<str>]) -> Option<Vec<String>> {
        let has_event = |name: &str| events.iter().any(|event| event.as_ref() == name);
        let is_raw = |word: &str| matches!(word, "config" | "config1" | "config2" | "config3");
        let has_format = |(name, _): (&str, &str)| is_raw(name) || formats.iter().any(|format| format.as_ref() == name);
        let named = || self.names.iter().find(|names| parts(names).all(has_event));
        let encoded = || self.encoding.as_ref().filter(|all| parts(all).all(|one| assignments(one).all(has_format)));
        let with_parameters = |terms: &str| match &self.parameters {
            Some(parameters) => format!("{terms},{parameters}"),
            None => terms.to_owned(),
        };
        Some(parts(named().or_else(encoded)?).map(with_parameters).collect())
    }

    /// A count in [`Event::unit`]. What sysfs says wins over [`Event::per_count`]. `None` where sysfs names a unit that is
    /// not known or not one of this event's kind: no guess is made.
    pub fn value(&self, count: f64, sysfs: Option<SysfsUnit<'_>>) -> Option<f64> {
        let Some(SysfsUnit { scale, unit }) = sysfs else { return Some(count * self.per_count) };
        // A scale alone says how much of something one count is; the catalogue says of what.
        let Some(unit) = unit.map(str::trim).filter(|unit| !unit.is_empty()) else { return Some(count * scale) };
        let unit = self.sysfs_unit.clone().or_else(|| Unit::parse(unit));
        let unit = unit.filter(|unit| unit.dimension == self.unit.dimension)?;
        Some(count * scale * unit.factor / self.unit.factor)
    }
}

/// The parts of `a + b`, whose counts are added up.
pub(crate) fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split('+').map(str::trim)
}

/// `a=1,b=2` as pairs; a name alone has the value 1, as perf has it.
pub(crate) fn assignments(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(',').map(|term| {
        let (name, value) = term.split_once('=').unwrap_or((term, "1"));
        (name.trim(), value.trim())
    })
}

impl Metric {
    /// The events to open for it, those of `present(...)` included.
    pub fn events(&self) -> BTreeSet<String> {
        let (mut needed, mut optional) = self.formula.events();
        needed.append(&mut optional);
        needed
    }

    /// The inputs beside events that it needs, by the names of [`crate::INPUTS`].
    pub fn inputs(&self) -> BTreeSet<String> {
        self.formula.inputs()
    }

    /// Its value in [`Metric::unit`]. `input` is asked for events, in their unit ([`Event::value`]), and for inputs. `None`
    /// where something is absent or not known, or where it would divide by zero.
    pub fn value(&self, input: &dyn Fn(&str) -> Input) -> Option<f64> {
        self.formula.value(input).map(|value| value / self.unit.factor)
    }
}
