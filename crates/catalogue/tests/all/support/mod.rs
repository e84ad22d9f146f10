//! Golden sysfs trees, and the checker that holds files of the catalogue against them.

use std::collections::BTreeMap;

use pciescope_catalogue::{Catalogue, Event, Kind, SysfsUnit};

/// A PMU as the kernel shows it, from `tests/sysfs/pmu/NAME.tree`.
pub struct Tree {
    pub name: String,
    /// The id of the kind that it is to be taken for.
    pub kind: String,
    pub pmu: String,
    pub identifier: Option<String>,
    pub formats: BTreeMap<String, String>,
    /// Everything in `events/`, `.scale` and `.unit` included.
    pub events: BTreeMap<String, String>,
}

/// All golden trees, by name.
pub fn trees() -> Vec<Tree> {
    let files = std::fs::read_dir(pciescope_support::tests().join("sysfs/pmu")).unwrap();
    let files = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = files.filter_map(|name| Some(name.strip_suffix(".tree")?.to_owned())).collect();
    names.sort();
    names.into_iter().map(tree).collect()
}

fn tree(name: String) -> Tree {
    let machine = pciescope_support::tree::Tree::pmu(&name);
    assert!(!machine.kind.is_empty() && !machine.from.is_empty(), "{name}");
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap().trim().to_owned();
    // By PMU, then by path in its folder.
    let mut pmus: BTreeMap<&str, BTreeMap<&str, String>> = BTreeMap::new();
    for (path, content) in &machine.files {
        let (pmu, file) = path.strip_prefix("/sys/bus/event_source/devices/").unwrap().split_once('/').unwrap();
        pmus.entry(pmu).or_default().insert(file, text(content));
    }
    assert_eq!(pmus.len(), 1, "{name}: one PMU in a tree");
    let (pmu, files) = pmus.pop_first().unwrap();
    assert!(files["type"].parse::<u32>().is_ok());
    let folder = |folder: &str| {
        files.iter().filter_map(|(file, text)| Some((file.strip_prefix(folder)?.to_owned(), text.clone()))).collect()
    };
    Tree {
        kind: machine.kind.clone(),
        pmu: pmu.to_owned(),
        identifier: files.get("identifier").cloned(),
        formats: folder("format/"),
        events: folder("events/"),
        name,
    }
}

impl Tree {
    pub fn event_names(&self) -> Vec<&str> {
        let is_extra = |name: &&String| name.ends_with(".scale") || name.ends_with(".unit");
        self.events.keys().filter(|name| !is_extra(name)).map(String::as_str).collect()
    }

    pub fn format_names(&self) -> Vec<&str> {
        self.formats.keys().map(String::as_str).collect()
    }

    pub fn terms(&self, event: &Event) -> Option<Vec<String>> {
        event.terms(&self.event_names(), &self.format_names())
    }

    /// What is wrong with terms in perf's syntax: an event or parameter that the PMU does not have, a value that does not
    /// fit, a parameter that the event asks for and does not get.
    fn wrong_terms(&self, terms: &str) -> Option<String> {
        let mut asked: Vec<&str> = Vec::new();
        let mut given: Vec<&str> = Vec::new();
        for term in terms.split(',') {
            match term.split_once('=') {
                None => match self.events.get(term) {
                    None => return Some(format!("there is no event {term}")),
                    Some(text) => asked.extend(text.split(',').filter_map(|term| term.strip_suffix("=?"))),
                },
                Some((parameter, value)) => {
                    let Some(format) = self.formats.get(parameter) else {
                        return Some(format!("there is no parameter {parameter}"));
                    };
                    let digits = value.strip_prefix("0x").map_or((value, 10), |digits| (digits, 16));
                    let value = u64::from_str_radix(digits.0, digits.1).unwrap();
                    if 64 - value.leading_zeros() > bits(format) {
                        return Some(format!("{term} does not fit into {format}"));
                    }
                    given.push(parameter);
                }
            }
        }
        asked.iter().find(|asked| !given.contains(asked)).map(|asked| format!("{terms} needs {asked}"))
    }
}

impl Tree {
    /// The words `config` to `config3` that terms in perf's syntax stand for.
    fn config(&self, terms: &str) -> [u64; 4] {
        let mut config = [0; 4];
        for term in terms.split(',') {
            let Some((parameter, value)) = term.split_once('=') else {
                config.iter_mut().zip(self.config(&self.events[term])).for_each(|(word, more)| *word |= more);
                continue;
            };
            // lane=? is for the user to say.
            let digits = value.strip_prefix("0x").map_or((value, 10), |digits| (digits, 16));
            let Ok(value) = u64::from_str_radix(digits.0, digits.1) else { continue };
            let format = self.formats.get(parameter).map_or("config:0-63", String::as_str);
            let (word, ranges) =
                if parameter.starts_with("config") { (parameter, "0-63") } else { format.split_once(':').unwrap() };
            let word = word.strip_prefix("config").unwrap().parse().unwrap_or(0);
            let mut left = value;
            for bit in ranges.split(',').flat_map(range) {
                let word: &mut u64 = &mut config[word];
                *word |= (left & 1) << bit;
                left >>= 1;
            }
        }
        config
    }
}

/// `8-15` as numbers.
fn range(text: &str) -> std::ops::RangeInclusive<u32> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    low.parse().unwrap()..=high.parse().unwrap()
}

/// How many bits a parameter has: `config:0-7,32-37` 14.
fn bits(format: &str) -> u32 {
    let (_, ranges) = format.split_once(':').unwrap();
    ranges.split(',').map(|bits| range(bits).count() as u32).sum()
}

/// What is wrong with these files of a catalogue, compared with these trees, each finding a line.
pub fn check(files: &[(&str, &str)], trees: &[Tree]) -> Vec<String> {
    let catalogue = match Catalogue::parse(files) {
        Ok(catalogue) => catalogue,
        Err(problems) => return problems.iter().map(ToString::to_string).collect(),
    };
    let mut wrong = Vec::new();
    for tree in trees {
        let takes = |kind: &&Kind| kind.is(&tree.pmu, tree.identifier.as_deref(), &tree.event_names());
        let taken: Vec<&str> = catalogue.kinds().iter().filter(takes).map(|kind| kind.id.as_str()).collect();
        if taken != [tree.kind.as_str()] {
            wrong.push(format!("tree {}: taken for {taken:?}, not {}", tree.name, tree.kind));
        }
    }
    for kind in catalogue.kinds() {
        let own: Vec<&Tree> = trees.iter().filter(|tree| tree.kind == kind.id).collect();
        if own.is_empty() {
            wrong.push(format!("{}: there is no golden tree of it", kind.id));
        }
        check_kind(kind, &own, &mut |finding| wrong.push(format!("{}: {finding}", kind.id)));
    }
    wrong
}

fn check_kind(kind: &Kind, trees: &[&Tree], wrong: &mut dyn FnMut(String)) {
    for event in kind.events.values() {
        check_event(event, trees, &mut |finding| wrong(format!("event {}: {finding}", event.name)));
    }
    for metric in &kind.metrics {
        let is_possible = |tree: &&Tree| {
            let possible = kind.metrics_for(&tree.event_names(), &tree.format_names());
            possible.iter().any(|possible| possible.name == metric.name)
        };
        if !trees.iter().any(is_possible) {
            wrong(format!("metric {}: no golden tree has the events of it", metric.name));
        }
    }
    for parameter in kind.requires.iter().flat_map(|require| &require.one_of) {
        if !trees.iter().all(|tree| tree.formats.contains_key(parameter)) {
            wrong(format!("requires: there is no parameter {parameter}"));
        }
    }
}

fn check_event(event: &Event, trees: &[&Tree], wrong: &mut dyn FnMut(String)) {
    if !trees.iter().any(|tree| tree.terms(event).is_some()) {
        wrong("no golden tree has it, by name or by encoding".to_owned());
    }
    for name in event.names.iter().flat_map(|names| names.split('+')).map(str::trim) {
        if !trees.iter().any(|tree| tree.events.contains_key(name)) {
            wrong(format!("no golden tree has the name {name}"));
        }
    }
    for tree in trees {
        for (names, encoding) in event.names.iter().zip(event.encoding.iter().cycle()) {
            for (name, encoding) in names.split('+').zip(encoding.split('+')) {
                let (name, encoding) = (name.trim(), encoding.trim());
                let is_valid = tree.wrong_terms(encoding).is_none();
                if tree.events.contains_key(name) && is_valid && tree.config(name) != tree.config(encoding) {
                    wrong(format!("tree {}: {name} is {}, not {encoding}", tree.name, tree.events[name]));
                }
            }
        }
        let encodings = event.encoding.iter().flat_map(|all| all.split('+')).map(|one| one.trim().to_owned());
        for terms in tree.terms(event).unwrap_or_default().into_iter().chain(encodings) {
            let terms = match &event.each {
                Some(parameter) => format!("{terms},{parameter}=0"),
                None => terms,
            };
            if let Some(finding) = tree.wrong_terms(&terms) {
                wrong(format!("tree {}: {finding}", tree.name));
            }
            let name = terms.split(',').next().unwrap();
            let extra = |what: &str| tree.events.get(&format!("{name}.{what}"));
            let scale = extra("scale").map(|scale| scale.parse().unwrap());
            let sysfs = scale.map(|scale| SysfsUnit { scale, unit: extra("unit").map(String::as_str) });
            if event.value(1.0, sysfs).is_none() {
                wrong(format!("tree {}: {name} is in another unit", tree.name));
            }
        }
    }
}
