//! The kinds of PMUs, what they count, and what is worked out from it.

use serde::Deserialize;

use crate::{Error, Formula, Unit};

/// What a PMU stands at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A PCIe port of the root complex, or an endpoint's own block.
    RootPort,
    /// Several PCIe ports together: a stack, a core, a root complex.
    PcieComplex,
    /// A DRAM channel or sub-channel.
    DramChannel,
    /// The fabric between cores, memory and devices.
    Fabric,
}

/// What a caller sees of a PMU.
pub struct Seen<'s> {
    /// Its name in sysfs.
    pub name: &'s str,
    /// Its file `identifier`.
    pub identifier: Option<&'s str>,
    /// The machine's CPU as perf's tables name it: `GenuineIntel-6-8F`, vendor, family, model.
    pub cpu: Option<&'s str>,
    /// Whether `events/` has an event of this name.
    pub has_event: &'s dyn Fn(&str) -> bool,
}

impl std::fmt::Debug for Seen<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seen").field("name", &self.name).field("identifier", &self.identifier).finish_non_exhaustive()
    }
}

/// A kind of PMU.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// A short name, that of its file.
    pub id: String,
    /// In words.
    pub title: String,
    /// What it stands at.
    pub what: What,
    /// Where the knowledge comes from.
    pub source: String,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// Terms without which the PMU counts nothing, such as `port=0x1`, with what they choose.
    pub requires: Vec<String>,
    /// What it counts.
    pub quantities: Vec<Quantity>,
    /// What can be worked out, its own and those that all of its [`What`] share, as far as it has the quantities.
    pub metrics: Vec<Metric>,
    names: Vec<String>,
    identifiers: Vec<String>,
    cpus: Vec<String>,
    events: Vec<String>,
    without: Vec<String>,
}

/// Something that is counted, under the name that it has in all kinds.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantity {
    /// The name: `rx_bytes`, `read_bytes`.
    pub name: String,
    /// Ways to count it, in perf's terms: the first whose events the PMU has. A way's terms are added up.
    pub ways: Vec<Vec<String>>,
    /// The unit of the figure.
    pub unit: Unit,
    /// The unit as it is written.
    pub unit_name: String,
    /// What one count is in the unit, where sysfs has no `.scale`.
    pub per_count: f64,
    /// How many can happen per second at most, where hardware has a limit that does not depend on the machine.
    pub text: String,
    /// Of quantities with the same word here only one is counted at a time; perf takes turns.
    pub exclusive: Option<String>,
    /// Whether the count is a state and no sum: a clock's period.
    pub is_state: bool,
    /// Why the figure may be wrong, where nobody has verified it.
    pub unverified: Option<String>,
}

/// Something worked out.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Its name: `rx_bytes_per_s`.
    pub name: String,
    /// How.
    pub formula: Formula,
    /// The unit of the figure.
    pub unit: Unit,
    /// The unit as it is written.
    pub unit_name: String,
    /// In words.
    pub text: String,
    /// Metrics of one group belong into one table: `bandwidth`, `states`, `errors`.
    pub group: String,
    /// Why the figure may be wrong, where nobody has verified it.
    pub unverified: Option<String>,
}

/// What formulas may use beside quantities, with units.
pub const INPUTS: [(&str, &str); 5] = [
    // The time that was measured.
    ("seconds", "s"),
    // The payload that the link can carry at most, one way.
    ("link_bytes_per_s", "bytes/s"),
    // What the channel can carry at most.
    ("peak_bytes_per_s", "bytes/s"),
    // The transfers per second that the channel's clock stands for.
    ("data_rate", "1/s"),
    // The period of the link's auxiliary clock, where the platform says.
    ("aux_cycle", "s/cycles"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KindFile {
    id: String,
    title: String,
    what: What,
    source: String,
    names: Vec<String>,
    #[serde(default)]
    identifiers: Vec<String>,
    #[serde(default)]
    cpus: Vec<String>,
    #[serde(default)]
    events: Vec<String>,
    #[serde(default)]
    without: Vec<String>,
    #[serde(default)]
    notes: Vec<String>,
    #[serde(default)]
    requires: Vec<String>,
    #[serde(default)]
    quantity: Vec<QuantityEntry>,
    #[serde(default)]
    metric: Vec<MetricEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuantityEntry {
    name: String,
    /// A way is a term or a list of terms to be added.
    ways: Vec<Way>,
    unit: String,
    #[serde(default = "one")]
    per_count: f64,
    #[serde(default)]
    text: String,
    exclusive: Option<String>,
    #[serde(default)]
    state: bool,
    unverified: Option<String>,
}

fn one() -> f64 {
    1.0
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Way {
    One(String),
    Sum(Vec<String>),
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct MetricEntry {
    name: String,
    formula: String,
    unit: String,
    text: String,
    group: String,
    unverified: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsFile {
    what: Vec<What>,
    metric: Vec<MetricEntry>,
}

/// Metrics that all kinds of one place share, with the file each comes from.
pub struct Shared(Vec<(String, What, MetricEntry)>);

pub fn shared(files: &[(&str, &str)]) -> Result<Shared, Error> {
    let mut all = Vec::new();
    for (file, text) in files {
        let parsed: MetricsFile = toml(file, text)?;
        for what in parsed.what {
            all.extend(parsed.metric.iter().map(|metric| ((*file).to_owned(), what, metric.clone())));
        }
    }
    Ok(Shared(all))
}

fn toml<T: for<'d> Deserialize<'d>>(file: &str, text: &str) -> Result<T, Error> {
    toml::from_str(text).map_err(|err| Error::File { file: file.to_owned(), why: err.to_string().trim().to_owned() })
}

impl Kind {
    /// Reads a file and adds the shared metrics whose quantities it has.
    pub(crate) fn parse(file: &str, text: &str, shared: &Shared) -> Result<Kind, Error> {
        let parsed: KindFile = toml(file, text)?;
        let wrong = |name: &str, why: String| Error::Entry { file: file.to_owned(), name: name.to_owned(), why };
        let mut kind = Kind {
            id: parsed.id,
            title: parsed.title,
            what: parsed.what,
            source: parsed.source,
            notes: parsed.notes,
            requires: parsed.requires,
            quantities: Vec::new(),
            metrics: Vec::new(),
            names: parsed.names,
            identifiers: parsed.identifiers,
            cpus: parsed.cpus,
            events: parsed.events,
            without: parsed.without,
        };
        for entry in parsed.quantity {
            let name = entry.name.clone();
            if kind.quantity(&name).is_some() || INPUTS.iter().any(|input| input.0 == name) {
                return Err(wrong(&name, "the name is used twice".to_owned()));
            }
            if !(entry.per_count.is_finite() && entry.per_count > 0.0) {
                return Err(wrong(&name, format!("per_count {} is not above 0", entry.per_count)));
            }
            if entry.ways.is_empty() {
                return Err(wrong(&name, "it has no way to be counted".to_owned()));
            }
            let unit = Unit::parse(&entry.unit).ok_or_else(|| wrong(&name, format!("{:?} is no unit", entry.unit)))?;
            let ways = entry.ways.into_iter().map(|way| match way {
                Way::One(term) => vec![term],
                Way::Sum(terms) => terms,
            });
            kind.quantities.push(Quantity {
                name,
                ways: ways.collect(),
                unit,
                unit_name: entry.unit,
                per_count: entry.per_count,
                text: entry.text,
                exclusive: entry.exclusive,
                is_state: entry.state,
                unverified: entry.unverified,
            });
        }
        for entry in &parsed.metric {
            let metric = kind.metric_of(entry).map_err(|why| wrong(&entry.name, why))?;
            kind.metrics.push(metric);
        }
        for (from, what, entry) in &shared.0 {
            let formula = Formula::parse(&entry.formula).map_err(|why| Error::Entry {
                file: from.clone(),
                name: entry.name.clone(),
                why,
            })?;
            let has_all = formula.names().iter().all(|name| kind.unit_of(name).is_some());
            if *what == kind.what && has_all && !kind.metrics.iter().any(|metric| metric.name == entry.name) {
                let in_file = |why| Error::Entry { file: from.clone(), name: entry.name.clone(), why };
                let metric = kind.metric_of(entry).map_err(in_file)?;
                kind.metrics.push(metric);
            }
        }
        Ok(kind)
    }

    fn metric_of(&self, entry: &MetricEntry) -> Result<Metric, String> {
        if self.metrics.iter().any(|metric| metric.name == entry.name) {
            return Err("the name is used twice".to_owned());
        }
        let formula = Formula::parse(&entry.formula)?;
        let unit = Unit::parse(&entry.unit).ok_or_else(|| format!("{:?} is no unit", entry.unit))?;
        let got = formula.unit(&|name| self.unit_of(name))?;
        if !got.is_like(unit) {
            return Err(format!("the formula gives {got}, not {}", entry.unit));
        }
        Ok(Metric {
            name: entry.name.clone(),
            formula,
            unit,
            unit_name: entry.unit.clone(),
            text: entry.text.clone(),
            group: entry.group.clone(),
            unverified: entry.unverified.clone(),
        })
    }

    fn unit_of(&self, name: &str) -> Option<Unit> {
        let input = INPUTS.iter().find(|input| input.0 == name).and_then(|input| Unit::parse(input.1));
        input.or_else(|| self.quantity(name).map(|quantity| quantity.unit))
    }

    /// What it counts under this name.
    pub fn quantity(&self, name: &str) -> Option<&Quantity> {
        self.quantities.iter().find(|quantity| quantity.name == name)
    }

    /// Whether a PMU is of this kind: its name, and where the file says so its identifier, the machine's CPU, and which
    /// events it has and has not.
    pub fn fits(&self, seen: &Seen<'_>) -> bool {
        let any = |patterns: &[String], text: Option<&str>| {
            patterns.is_empty() || text.is_some_and(|text| patterns.iter().any(|pattern| matches(pattern, text)))
        };
        self.names.iter().any(|pattern| matches(pattern, seen.name))
            && any(&self.identifiers, seen.identifier)
            && any(&self.cpus, seen.cpu)
            && self.events.iter().all(|event| (seen.has_event)(event))
            && !self.without.iter().any(|event| (seen.has_event)(event))
    }
}

/// Whether a text fits a pattern: `*` stands for any letters, `#` for one or more decimal or hexadecimal digits.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.chars().next() {
        None => text.is_empty(),
        Some('*') => {
            (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| matches(&pattern[1..], &text[at..]))
        }
        Some('#') => {
            let digits = text.bytes().take_while(u8::is_ascii_hexdigit).count();
            (1..=digits).any(|at| matches(&pattern[1..], &text[at..]))
        }
        Some(letter) => text.strip_prefix(letter).is_some_and(|rest| matches(&pattern[letter.len_utf8()..], rest)),
    }
}

impl Quantity {
    /// The terms whose counts are to be added up: the first way of which the PMU has all events. A way of encodings only
    /// (`config=...`, or parameters of `format/`) always fits.
    pub fn choose(&self, has_event: &dyn Fn(&str) -> bool) -> Option<&[String]> {
        // The first part of a term is the event's name where it is no assignment.
        let is_there = |term: &String| {
            let first = term.split(',').next().unwrap_or_default();
            first.contains('=') || has_event(first)
        };
        self.ways.iter().find(|way| way.iter().all(is_there)).map(Vec::as_slice)
    }

    /// A count in base units (bytes, seconds, cycles, 1). What sysfs says of the event wins over the catalogue: its scale with
    /// its unit, where both are there and the unit fits this quantity.
    pub fn value(&self, count: f64, sysfs_scale: Option<f64>, sysfs_unit: Option<&str>) -> f64 {
        let said = sysfs_unit.and_then(Unit::parse).filter(|unit| unit.is_like(self.unit));
        match (sysfs_scale, said) {
            (Some(scale), Some(unit)) => count * scale * unit.factor(),
            _ => count * self.per_count * self.unit.factor(),
        }
    }
}

impl Metric {
    /// The quantities and inputs it is made of.
    pub fn needs(&self) -> Vec<&str> {
        self.formula.names()
    }

    /// Its figure in its own unit, from quantities and inputs in base units; `None` where one is missing, or it would be divided by
    /// 0.
    pub fn eval(&self, value: &dyn Fn(&str) -> Option<f64>) -> Option<f64> {
        self.formula.eval(value).map(|figure| figure / self.unit.factor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_know_digits_from_letters() {
        assert!(matches("dwc_rootport_#", "dwc_rootport_13018"));
        assert!(!matches("uncore_imc_#", "uncore_imc_free_running_0"));
        assert!(!matches("uncore_imc_#", "uncore_imc_"));
        assert!(matches("hisi_sccl#_ddrc#*", "hisi_sccl1_ddrc0_1"));
        assert!(matches("a*", "a") && !matches("a", "ab"));
    }

    #[test]
    fn sysfs_wins_where_it_says_scale_and_unit() {
        let quantity = Quantity {
            name: "read_bytes".to_owned(),
            ways: vec![vec!["cas_count_read".to_owned()]],
            unit: Unit::parse("bytes").unwrap(),
            unit_name: "bytes".to_owned(),
            per_count: 64.0,
            text: String::new(),
            exclusive: None,
            is_state: false,
            unverified: None,
        };
        assert_eq!(quantity.value(2.0, None, None), 128.0);
        assert_eq!(quantity.value(1.0, Some(6.103515625e-5), Some("MiB")), 64.0);
        assert_eq!(quantity.value(2.0, Some(16.0), Some("B")), 32.0);
        // A scale in another unit is none of ours.
        assert_eq!(quantity.value(2.0, Some(16.0), Some("s")), 128.0);
        assert_eq!(quantity.value(2.0, Some(16.0), None), 128.0);
    }
}
