//! The rows of the PCIe tree: root ports with what is below them, sorted and filtered.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;

use pciescope_core::live::Source;
use pciescope_core::{Bdf, Function, Link, joined, traffic};

use crate::model::Model;
use crate::state::{RowId, Sort, State};

/// A row of the tree.
#[derive(Debug, Clone)]
pub struct Row {
    /// What the row is about.
    pub id: RowId,
    /// The place in [`Live::sources`](pciescope_core::Live::sources) of what counts for it.
    pub source: Option<usize>,
    /// 0 for a root port.
    pub depth: usize,
    /// Whether a later row has the same parent.
    pub has_next: bool,
}

/// A port, or a function on a root bus, with the rows below it.
struct Subtree {
    key: f64,
    address: (u8, Option<Bdf>, String),
    rows: Vec<Row>,
}

/// The rows in the order in which they are shown.
pub fn rows(state: &State, span: u64) -> Vec<Row> {
    let model = &state.model;
    let functions = model.functions();
    let sources = || model.live.sources.iter().enumerate();
    let mut ports: Vec<(usize, &Source)> = sources().filter(|(_, source)| source.is_port()).collect();
    // The kernel's account of a port comes after what hardware counts there.
    ports.sort_by_key(|(_, source)| source.is_accounting());
    let accounts: BTreeMap<Bdf, usize> = sources()
        .filter(|(_, source)| source.is_function())
        .filter_map(|(place, source)| Some((source.port.as_ref()?.bdf?, place)))
        .collect();
    let mut children: BTreeMap<Bdf, Vec<Bdf>> = BTreeMap::new();
    for (bdf, function) in functions {
        // Unknown bridges are skipped: records leave switches out, and a tree may have gaps.
        if let Some(above) = function.path.iter().rev().find(|above| functions.contains_key(*above) && *above != bdf) {
            children.entry(*above).or_default().push(*bdf);
        }
    }
    let shows_all = state.shows_all || (ports.is_empty() && accounts.is_empty());
    let mut groups: Vec<Subtree> = Vec::new();
    let mut seen: BTreeSet<Bdf> = BTreeSet::new();
    for (place, source) in &ports {
        let bdf = source.port.as_ref().and_then(|port| port.bdf);
        let id = bdf.map_or(RowId::Source(*place), RowId::Function);
        // A PMU that is no port may stand at a port's address.
        let is_second = bdf.is_some_and(|bdf| !seen.insert(bdf));
        let id = if is_second { RowId::Source(*place) } else { id };
        let row = Row { id, source: Some(*place), depth: 0, has_next: false };
        if is_second && source.is_accounting() {
            // What the devices below have in rows of their own needs no third row.
            let is_below = |one: &Bdf| functions.get(one).zip(bdf).is_some_and(|(one, bdf)| one.path.contains(&bdf));
            if !tells(source, span) || (state.shows_devices && accounts.keys().any(is_below)) {
                continue;
            }
            if let Some(first) = groups.iter_mut().find(|group| group.address.1 == bdf) {
                first.rows.insert(1, row);
                continue;
            }
        }
        let mut rows = vec![row];
        if let Some(bdf) = bdf.filter(|_| state.shows_devices && !is_second) {
            descend(bdf, 1, (&children, &accounts), &mut seen, &mut rows);
        }
        groups.push(Subtree { key: key(state, source, span), address: (0, bdf, name(source)), rows });
    }
    for (bdf, function) in functions {
        let own = accounts.get(bdf).copied();
        let is_root = !function.path.iter().any(|above| functions.contains_key(above) && above != bdf);
        if is_root && (shows_all || own.is_some()) && seen.insert(*bdf) {
            let mut rows = vec![Row { id: RowId::Function(*bdf), source: own, depth: 0, has_next: false }];
            if state.shows_devices {
                descend(*bdf, 1, (&children, &accounts), &mut seen, &mut rows);
            }
            let key = own.map_or(f64::NEG_INFINITY, |place| key(state, &model.live.sources[place], span));
            groups.push(Subtree { key, address: (1, Some(*bdf), String::new()), rows });
        }
    }
    for group in &mut groups {
        filter(state, group);
    }
    groups.retain(|group| !group.rows.is_empty());
    if state.sort == Sort::Address {
        groups.sort_by(|one, other| (one.address.1, &one.address).cmp(&(other.address.1, &other.address)));
    } else {
        groups.sort_by(|one, other| other.key.total_cmp(&one.key).then_with(|| one.address.cmp(&other.address)));
    }
    if state.is_reversed {
        groups.reverse();
    }
    groups.into_iter().flat_map(|group| group.rows).collect()
}

/// Whether the kernel's account of a port has something to say beside what hardware counted: a device moved bytes, or
/// reported errors.
fn tells(source: &Source, span: u64) -> bool {
    let is_more = |name: &str| source.value(name, span).is_some_and(|value| value > 0.0);
    ["rx_bytes_per_s", "tx_bytes_per_s", "aer_errors"].into_iter().any(is_more)
}

/// Adds what is below a function, by `of` its functions and their accounts; each function once, however the paths lie.
fn descend(
    bdf: Bdf,
    depth: usize,
    of: (&BTreeMap<Bdf, Vec<Bdf>>, &BTreeMap<Bdf, usize>),
    seen: &mut BTreeSet<Bdf>,
    rows: &mut Vec<Row>,
) {
    let (children, accounts) = of;
    // No machine has buses this deep: the file is broken.
    if depth > 256 {
        return;
    }
    let below: Vec<Bdf> = children.get(&bdf).into_iter().flatten().copied().filter(|one| seen.insert(*one)).collect();
    for (place, one) in below.iter().enumerate() {
        let source = accounts.get(one).copied();
        rows.push(Row { id: RowId::Function(*one), source, depth, has_next: place + 1 < below.len() });
        descend(*one, depth + 1, of, seen, rows);
    }
}

/// The figure that groups are sorted by, the largest first. Groups without one come last.
fn key(state: &State, source: &Source, span: u64) -> f64 {
    let sum = |one: Option<f64>, other: Option<f64>| joined(one, other, f64::add);
    let value = match state.sort {
        Sort::Address => None,
        Sort::Busiest => {
            let both = |number| sum(source.value("rx_bytes_per_s", number), source.value("tx_bytes_per_s", number));
            // By time: intervals may differ in length, and a file may have some of none.
            let spans = state.model.live.spans().iter().filter(|one| one.number <= span);
            let known = spans.filter_map(|one| {
                let seconds = one.end_ns.saturating_sub(one.start_ns).max(1) as f64 / 1e9;
                Some((both(one.number).filter(|value| value.is_finite())?, seconds))
            });
            let (total, time) =
                known.fold((0.0, 0.0), |(total, time), (value, seconds)| (total + value * seconds, time + seconds));
            // Idle ports stand in the order of their addresses.
            (time > 0.0)
                .then(|| total / time)
                .map(|mean| if traffic::is_idle([Some(mean), None], None) { 0.0 } else { mean })
        }
        Sort::Rx => source.value("rx_bytes_per_s", span),
        Sort::Tx => source.value("tx_bytes_per_s", span),
        Sort::Total => sum(source.value("rx_bytes_per_s", span), source.value("tx_bytes_per_s", span)),
        Sort::Share => [source.share("rx", span), source.share("tx", span)].into_iter().flatten().reduce(f64::max),
        Sort::Errors => source.errors(span).map(|errors| errors.value),
    };
    value.filter(|value| !value.is_nan()).unwrap_or(f64::NEG_INFINITY)
}

/// Applies the filter. A port that matches keeps all rows below it. Below another port the rows that match stay, with the
/// bridges above them.
fn filter(state: &State, group: &mut Subtree) {
    let words: Vec<String> = state.filter.split_whitespace().map(str::to_lowercase).collect();
    if words.is_empty() {
        return;
    }
    let fits: Vec<bool> = group
        .rows
        .iter()
        .map(|row| {
            let text = describe(&state.model, row).to_lowercase();
            words.iter().all(|word| text.contains(word.as_str()))
        })
        .collect();
    if fits.first() == Some(&true) {
        return;
    }
    let mut keep = vec![false; group.rows.len()];
    for (place, _) in fits.iter().enumerate().filter(|(_, fits)| **fits) {
        keep[place] = true;
        let mut depth = group.rows[place].depth;
        for above in (0..place).rev() {
            if group.rows[above].depth < depth {
                depth = group.rows[above].depth;
                keep[above] = true;
            }
        }
    }
    let mut keep = keep.into_iter();
    group.rows.retain(|_| keep.next().unwrap_or(false));
}

/// Everything about a row that a filter looks at.
fn describe(model: &Model, row: &Row) -> String {
    let source = row.source.and_then(|place| model.live.sources.get(place));
    let function = match row.id {
        RowId::Function(bdf) => model.functions().get(&bdf),
        RowId::Source(_) => None,
    };
    let mut text = String::new();
    if let RowId::Function(bdf) = row.id {
        text += &bdf.to_string();
    }
    for function in function.into_iter().chain(source.and_then(|source| source.port.as_ref())) {
        let driver = function.driver.as_deref().unwrap_or("");
        text += &format!(
            " {} {} {driver} [{:04x}:{:04x}]",
            function.devices.join(" "),
            function.name,
            function.vendor,
            function.device
        );
        if let Some(node) = function.node {
            text += &format!(" node{node}");
        }
    }
    if let Some(source) = source {
        text += &format!(" {}", name(source));
        if let Some(node) = source.node {
            text += &format!(" node{node}");
        }
    }
    text
}

/// What a source is called where it has no address.
pub fn name(source: &Source) -> String {
    if source.is_accounting() {
        return "kernel".to_owned();
    }
    let cpu = source.cpu.map_or_else(String::new, |cpu| format!(" CPU {cpu}"));
    match &source.pmu {
        Some(pmu) => format!("{pmu}{cpu}"),
        None => source.scope.clone(),
    }
}

/// The name beside all others: with the node where another source has the name too.
pub fn full_name(model: &Model, source: &Source) -> String {
    let is_twin = |other: &Source| {
        other.scope == source.scope && other.pmu == source.pmu && other.node != source.node && !other.is_accounting()
    };
    match source.node {
        Some(node) if source.pmu.is_some() && model.live.sources.iter().any(is_twin) => {
            format!("{} node {node}", name(source))
        }
        _ => name(source),
    }
}

/// The link of a function with what both of its ends can do, where that is more; the ends are those that the model knows.
pub fn link(model: &Model, function: &Function) -> Option<(Link, Option<(f64, u8)>)> {
    let link = function.link?;
    let functions = model.functions();
    // A path has ports in pairs: root port, upstream port; downstream port, upstream port. An odd one is the lower end of
    // its link.
    let other = if function.has_link_above() {
        functions.get(function.path.last()?).and_then(|above| above.link)
    } else {
        let is_below =
            |one: &&Function| one.path.len() == function.path.len() + 1 && one.path.last().copied() == function.bdf;
        functions.values().find(is_below).and_then(|below| below.link)
    };
    Some((link, other.and_then(|other| link.possible(&other))))
}
