//! The slowest samples of a section by what took their time.

use std::collections::BTreeMap;

use pciescope_core::outcome::{LATENCY, TRIGGER_TO_HANDLER};
use pciescope_core::why::{Cause, SlowSample};
use pciescope_core::{CpuList, Histogram, Record, Why};

use crate::layout::{Columns, Left, Right, Rows};
use crate::model::{Section, cpu_of};
use crate::text::{clean, thousands, us};

/// The samples of one cause.
pub(crate) struct ByCause {
    pub cause: Cause,
    /// The name that most of them have, and how many other names there are.
    pub name: Option<(String, usize)>,
    /// Largest first, in nanoseconds.
    pub values_ns: Vec<f64>,
    pub cpus: CpuList,
    /// p99.99 and worst of the other samples; `None` where that is not among the explained ones.
    pub without: [Option<f64>; 2],
}

/// The explained samples of a section, slowest first, each with its CPU; those below the last are not known of every CPU.
pub(crate) fn explained<'s>(section: &'s Section) -> (Vec<(Option<u32>, &'s SlowSample)>, f64) {
    let own = section.records.iter().filter_map(|record| Some((cpu_of(record), record.why.as_deref()?)));
    let floor = |why: &Why| why.slowest.last().map_or(0.0, |last| last.value_ns);
    let known_from = own.clone().map(|(_, why)| floor(why)).fold(0.0, f64::max);
    let mut all: Vec<_> = own.flat_map(|(cpu, why)| why.slowest.iter().map(move |sample| (cpu, sample))).collect();
    all.sort_by(|a, b| b.1.value_ns.total_cmp(&a.1.value_ns));
    (all, known_from)
}

fn samples(record: &Record) -> Option<&Histogram> {
    record.histograms.get(LATENCY).or_else(|| record.histograms.get(TRIGGER_TO_HANDLER))
}

/// Whether it names nothing that somebody could mend.
fn is_open(cause: Cause) -> bool {
    matches!(cause, Cause::EvidenceLost | Cause::Standstill | Cause::Unknown)
}

/// By cause, the most frequent first; those that nothing names last.
pub(crate) fn groups(section: &Section) -> Vec<ByCause> {
    let (all, known_from) = explained(section);
    let explained_of = section.records.iter().filter(|record| record.why.is_some());
    let count: u64 = explained_of.filter_map(|record| samples(record)).map(Histogram::count).sum();
    let mut by_cause: BTreeMap<Cause, Vec<(Option<u32>, &SlowSample)>> = BTreeMap::new();
    for one in &all {
        by_cause.entry(one.1.cause()).or_default().push(*one);
    }
    let group = |(cause, own): (Cause, Vec<(Option<u32>, &SlowSample)>)| {
        let mut names = BTreeMap::<&str, usize>::new();
        for name in own.iter().filter_map(|(_, sample)| sample.parts.first()?.name.as_deref()) {
            *names.entry(name).or_default() += 1;
        }
        let others: Vec<f64> =
            all.iter().filter(|(_, one)| one.cause() != cause).map(|(_, one)| one.value_ns).collect();
        let left = count.saturating_sub(own.len() as u64);
        // The place of p99.99 from the top.
        let place = left - (left as f64 * 0.9999).ceil().min(left as f64) as u64;
        let known = |place: u64| others.get(place as usize).copied().filter(|ns| *ns >= known_from);
        let most = names.iter().max_by_key(|(_, times)| **times).map(|(name, _)| clean(name));
        ByCause {
            cause,
            name: most.map(|name| (name, names.len() - 1)),
            values_ns: own.iter().map(|(_, sample)| sample.value_ns).collect(),
            cpus: own.iter().filter_map(|(cpu, _)| *cpu).collect(),
            without: [known(place), known(0)],
        }
    };
    let mut groups: Vec<ByCause> = by_cause.into_iter().map(group).collect();
    groups.sort_by_key(|group| (is_open(group.cause), std::cmp::Reverse(group.values_ns.len())));
    groups
}

/// A row for each cause. What the tail would be without it stands where there `is_room`.
pub(crate) fn table(section: &Section, is_room: bool) -> Option<Columns> {
    let groups = groups(section);
    let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let columns = Rows::of(&groups).columns(&[
        ("Cause", 12, Left, &|group| group.cause.name().to_owned()),
        ("Whose", 16, Left, &|group| match &group.name {
            Some((name, 0)) => name.clone(),
            Some((name, others)) => format!("{name} and {others} more"),
            None => "-".to_owned(),
        }),
        ("Samples", 7, Right, &|group| thousands(group.values_ns.len() as u64)),
        ("Typical(us)", 11, Right, &|group| us(group.values_ns.get(group.values_ns.len() / 2).copied())),
        ("Worst(us)", 9, Right, &|group| us(group.values_ns.first().copied())),
        ("CPUs", 4, Right, &|group| dash(group.cpus.to_string())),
        ("P99.99 without(us)", 10, Right, &|group| us(group.without[0].filter(|_| is_room))),
        ("Worst without(us)", 10, Right, &|group| us(group.without[1].filter(|_| is_room))),
    ]);
    (!groups.is_empty()).then(|| columns.without_empty())
}
