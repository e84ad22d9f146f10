//! One file of the catalogue: read, looked up, checked.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::extends;
use crate::formula::{Formula, INPUTS, Meaning};
use crate::kind::{Event, Group, Kind, Metric, Require, What, assignments, parts};
use crate::pattern::{Bits, Pattern};
use crate::unit::Unit;

/// What is wrong with a file, and where in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {at}{text}")]
pub struct Problem {
    /// The file.
    pub file: String,
    /// `event NAME: `, `metric NAME: `, or empty.
    pub at: String,
    /// What is wrong.
    pub text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    what: What,
    #[serde(rename = "match")]
    matches: Match,
    #[serde(default)]
    place: BTreeMap<String, String>,
    sources: Vec<String>,
    #[serde(default)]
    notes: Vec<String>,
    unverified: Option<String>,
    #[serde(default)]
    requires: Vec<Require>,
    #[serde(default)]
    event: BTreeMap<String, FileEvent>,
    #[serde(default)]
    metric: Vec<FileMetric>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Match {
    names: Vec<String>,
    #[serde(default)]
    identifiers: Vec<String>,
    #[serde(default)]
    with: Vec<String>,
    #[serde(default)]
    without: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileEvent {
    #[serde(default)]
    names: Vec<String>,
    encoding: Option<String>,
    parameters: Option<String>,
    each: Option<String>,
    unit: String,
    #[serde(default = "one")]
    per_count: f64,
    sysfs_unit: Option<String>,
    width: Option<u8>,
    #[serde(default)]
    state: bool,
    #[serde(default)]
    least: bool,
    shares: Option<String>,
    text: String,
    source: Option<String>,
    unverified: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileMetric {
    name: String,
    formula: String,
    unit: String,
    group: Group,
    text: String,
    unverified: Option<String>,
}

fn one() -> f64 {
    1.0
}

/// Collects what is wrong, so that a file's author sees all of it at once.
struct Problems<'f> {
    file: &'f str,
    all: Vec<Problem>,
}

impl Problems<'_> {
    fn add(&mut self, at: &str, text: impl Into<String>) {
        let at = if at.is_empty() { String::new() } else { format!("{at}: ") };
        self.all.push(Problem { file: self.file.to_owned(), at, text: text.into() });
    }
}

/// Reads the file `id`.toml. `base` gives the text of another file by its id.
pub(crate) fn parse<'t>(id: &str, text: &str, base: impl Fn(&str) -> Option<&'t str>) -> Result<Kind, Vec<Problem>> {
    let name = format!("{id}.toml");
    let mut problems = Problems { file: &name, all: Vec::new() };
    let file: File = match extends::read(text, base) {
        Ok(file) => file,
        Err(error) => {
            problems.add("", error.trim());
            return Err(problems.all);
        }
    };
    let names: Vec<Pattern> = patterns(&file, &mut problems);
    let place = places(&file, &names, &mut problems);
    if file.sources.is_empty() {
        problems.add("", "no source is named");
    }
    let events: BTreeMap<String, Event> = file
        .event
        .into_iter()
        .filter_map(|(name, event)| Some((name.clone(), build_event(name, event, &mut problems)?)))
        .collect();
    for (known, event) in same_names(&events) {
        problems.add(&format!("event {event}"), format!("has a name that {known} has too"));
    }
    let metrics = build_metrics(file.metric, &events, &mut problems);
    let kind = Kind {
        id: id.to_owned(),
        title: file.title,
        what: file.what,
        sources: file.sources,
        notes: file.notes,
        unverified: file.unverified,
        events,
        metrics,
        requires: file.requires,
        names,
        identifiers: file.matches.identifiers,
        with: file.matches.with,
        without: file.matches.without,
        place,
    };
    if problems.all.is_empty() { Ok(kind) } else { Err(problems.all) }
}

fn patterns(file: &File, problems: &mut Problems<'_>) -> Vec<Pattern> {
    if file.matches.names.is_empty() {
        problems.add("", "match.names is empty");
    }
    let parsed: Vec<_> = file.matches.names.iter().map(|text| Pattern::parse(text)).collect();
    parsed.into_iter().filter_map(|pattern| pattern.map_err(|why| problems.add("match", why)).ok()).collect()
}

fn places(file: &File, names: &[Pattern], problems: &mut Problems<'_>) -> BTreeMap<String, Bits> {
    let fields: BTreeSet<&str> = names.iter().flat_map(Pattern::fields).collect();
    let mut places = BTreeMap::new();
    for (word, text) in &file.place {
        match Bits::parse(text) {
            Some(bits) if fields.contains(bits.field.as_str()) => drop(places.insert(word.clone(), bits)),
            Some(bits) => problems.add("place", format!("{word}: no name has a field {}", bits.field)),
            None => problems.add("place", format!("{word}: {text} is not FIELD, FIELD[BIT] or FIELD[LOW:HIGH]")),
        }
    }
    places
}

fn build_event(name: String, event: FileEvent, problems: &mut Problems<'_>) -> Option<Event> {
    let at = format!("event {name}");
    if INPUTS.iter().any(|(input, ..)| *input == name) {
        problems.add(&at, "has the name of an input");
    }
    if event.names.is_empty() && event.encoding.is_none() {
        problems.add(&at, "has neither a name nor an encoding");
    }
    if !(event.per_count.is_finite() && event.per_count > 0.0) {
        problems.add(&at, format!("per_count {} is not a positive number", event.per_count));
    }
    if event.text.trim().is_empty() {
        problems.add(&at, "has no text");
    }
    for text in event.encoding.iter().chain(&event.parameters).flat_map(|text| parts(text)) {
        for (parameter, value) in assignments(text) {
            let digits = value.strip_prefix("0x").map_or((value, 10), |digits| (digits, 16));
            if parameter.is_empty() || u64::from_str_radix(digits.0, digits.1).is_err() {
                problems.add(&at, format!("{parameter}={value} is not PARAMETER=NUMBER"));
            }
        }
    }
    let Some(unit) = Unit::parse(&event.unit) else {
        problems.add(&at, format!("{} is not a unit", event.unit));
        return None;
    };
    let sysfs_unit = event.sysfs_unit.as_deref().map(|text| (text, Unit::parse(text)));
    if let Some((text, parsed)) = &sysfs_unit {
        if parsed.as_ref().is_none_or(|parsed| parsed.dimension != unit.dimension) {
            problems.add(&at, format!("sysfs_unit {text} is not a unit of {}", unit.dimension));
        }
    }
    Some(Event {
        name,
        names: event.names,
        encoding: event.encoding,
        parameters: event.parameters,
        each: event.each,
        unit,
        per_count: event.per_count,
        sysfs_unit: sysfs_unit.and_then(|(_, parsed)| parsed),
        width: event.width,
        is_state: event.state,
        is_least: event.least,
        shares: event.shares,
        text: event.text,
        source: event.source,
        unverified: event.unverified,
    })
}

/// Events that share a name in sysfs: one count would be shown under two names.
fn same_names(events: &BTreeMap<String, Event>) -> Vec<(String, String)> {
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    let mut same = Vec::new();
    for event in events.values() {
        for name in &event.names {
            if let Some(before) = known.insert(name, &event.name) {
                same.push((before.to_owned(), event.name.clone()));
            }
        }
    }
    same
}

fn build_metrics(
    metrics: Vec<FileMetric>,
    events: &BTreeMap<String, Event>,
    problems: &mut Problems<'_>,
) -> Vec<Metric> {
    let mut built: Vec<Metric> = Vec::new();
    for metric in metrics {
        let at = format!("metric {}", metric.name);
        if events.contains_key(&metric.name) || built.iter().any(|before| before.name == metric.name) {
            problems.add(&at, "its name is taken");
            continue;
        }
        if metric.text.trim().is_empty() {
            problems.add(&at, "has no text");
        }
        let Some(unit) = Unit::parse(&metric.unit) else {
            problems.add(&at, format!("{} is not a unit", metric.unit));
            continue;
        };
        let meaning = |name: &str| {
            let event = || events.get(name).map(|event| Meaning::Event(&event.unit));
            let before = || built.iter().find(|before| before.name == name);
            let input = || INPUTS.iter().find(|(input, ..)| *input == name).and_then(|(_, unit, _)| Unit::parse(unit));
            event()
                .or_else(|| before().map(|before| Meaning::Formula(&before.formula)))
                .or_else(|| input().map(Meaning::Input))
        };
        match Formula::parse(&metric.formula, &meaning) {
            Err(why) => problems.add(&at, format!("{}: {why}", metric.formula)),
            Ok(formula) if formula.dimension() != unit.dimension => {
                problems.add(&at, format!("{} is in {}, not in {unit}", metric.formula, formula.dimension()));
            }
            Ok(formula) => built.push(Metric {
                name: metric.name,
                text_of_formula: metric.formula,
                unit,
                group: metric.group,
                text: metric.text,
                unverified: metric.unverified,
                formula,
            }),
        }
    }
    built
}
