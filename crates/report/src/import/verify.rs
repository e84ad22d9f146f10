//! Turns a transcript of `perf stat` with a workload of known traffic into comparisons, as the authors of the seeds did
//! by hand. Like is compared with like: all parts of a sum, the same number of runs; what cannot be compared is said.

use std::collections::BTreeMap;

use pciescope_catalogue::{Catalogue, Event, Input, Kind};
use pciescope_core::{Comparison, Record};

use super::Parsed;
use super::perf_stat::EventTotal;
use super::workload::{Amount, Direction, Traffic};

/// What came of the workloads of a text.
#[derive(Default)]
pub struct Compared {
    /// A comparison for every counter that saw a workload's traffic.
    pub records: Vec<Record>,
    /// Why a workload, or a counter that sees such traffic, was left out.
    pub left: Vec<String>,
}

/// Compares every workload with every counter that saw its traffic.
pub fn compare(perf: &Parsed, workloads: &[Traffic]) -> Compared {
    let mut compared = Compared::default();
    for traffic in workloads {
        let (rows, left) = rows(perf, traffic);
        if rows.is_empty() && left.is_empty() {
            compared.left.push(format!("no counted event sees the traffic of {}", traffic.name));
        }
        compared.records.extend(rows.iter().map(Comparison::to_record));
        compared.left.extend(left);
    }
    compared
}

/// Whether a workload says a rate, and the text not how long it was counted: the two cannot be compared.
pub fn lacks_elapsed(perf: &Parsed, traffic: &[Traffic]) -> bool {
    perf.elapsed_s.is_none() && traffic.iter().any(|traffic| matches!(traffic.amount, Amount::Rate { .. }))
}

/// The counts of one PMU with the same parameters.
struct Instance<'a> {
    kind: &'a Kind,
    pmu: &'a str,
    /// Each count with the event's name.
    counts: Vec<(&'a str, &'a EventTotal)>,
}

/// Channels with what each counted.
type Channels<'a> = Vec<(&'a Instance<'a>, Comparison)>;

/// The comparisons of a workload, and why others were not made.
fn rows(perf: &Parsed, traffic: &Traffic) -> (Vec<Comparison>, Vec<String>) {
    let (mut rows, mut left) = (Vec::new(), Vec::new());
    if lacks_elapsed(perf, std::slice::from_ref(traffic)) {
        return (rows, vec!["the text has no \"seconds time elapsed\", which a rate needs".to_owned()]);
    }
    match perf.mean_of {
        Some(0) if traffic.runs > 1 => {}
        Some(0) => {
            left.push(format!("perf prints the mean of several runs, and the text has one report of {}", traffic.name))
        }
        Some(runs) if runs != traffic.runs => left.push(format!(
            "perf prints the mean of {runs} runs, and the text has {} of {}",
            crate::text::counted(traffic.runs as usize, "report"),
            traffic.name
        )),
        _ => {}
    }
    if !left.is_empty() {
        return (rows, left);
    }
    let moved = of_workload(traffic, perf);
    // DRAM's channels see a part each; by kind and die: each row by its PMU.
    let mut channels: BTreeMap<(&str, Option<u64>), Channels<'_>> = BTreeMap::new();
    let instances = instances(&perf.counted);
    for instance in &instances {
        match instance.row(traffic.direction, &moved) {
            None => {}
            Some(Err(why)) => left.push(why),
            Some(Ok(row)) if instance.kind.what.is_dram() => {
                let die = instance.kind.place(instance.pmu).get("die").copied();
                channels.entry((&instance.kind.id, die)).or_default().push((instance, row));
            }
            Some(Ok(row)) => rows.push(row),
        }
    }
    // A sum without one of its parts is none.
    if !left.is_empty() {
        channels.retain(|(kind, _), _| {
            !instances
                .iter()
                .any(|one| one.kind.id == *kind && one.row(traffic.direction, &moved).is_some_and(|row| row.is_err()))
        });
    }
    for ((_, die), channels) in channels {
        let parts = channels.len();
        let counter = match (die, &channels[..]) {
            (Some(die), _) => format!("die {die}, {parts} sub-channels"),
            (None, [(_, row)]) => row.counter.clone(),
            (None, _) => {
                let names = channels.iter().map(|(instance, _)| instance.pmu);
                let common = names.reduce(common_beginning).unwrap_or_default();
                format!("{}, sum of {parts} PMUs", common.trim_end_matches(|c: char| c == '_' || c.is_ascii_digit()))
            }
        };
        let mut sum = Comparison { counter, count: 0.0, rounding_percent: None, ..channels[0].1.clone() };
        for (_, channel) in &channels {
            // In one kind the parts have one unit, but perf may have scaled some to bytes.
            sum.count += channel.counter_bytes() / sum.bytes_per_count;
            sum.running = sum.running.min(channel.running);
            sum.rounding_percent = pciescope_core::joined(sum.rounding_percent, channel.rounding_percent, |a, b| a + b);
        }
        // By hand people take one of the equal channels of a die for all.
        if die.is_some() {
            rows.extend(channels.into_iter().map(|(_, channel)| Comparison { parts: parts as f64, ..channel }));
        }
        rows.push(sum);
    }
    // Each row has its own side so far.
    for row in &mut rows {
        let both = pciescope_core::joined(row.rounding_percent, moved.rounding_percent, |a, b| a + b);
        // Three decimals of an error do not show less.
        row.rounding_percent = both.filter(|percent| percent.is_finite() && *percent >= 0.0005);
    }
    (rows, left)
}

fn common_beginning<'a>(one: &'a str, other: &'a str) -> &'a str {
    let same = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    one.get(..same).unwrap_or_default()
}

/// The counted events by PMU and parameters. perf's text has neither the PMU's events nor its identifier: the kind is found
/// by the PMU's name and the event's. A control group's count is a part of the traffic.
fn instances(counted: &[EventTotal]) -> Vec<Instance<'_>> {
    let mut instances: Vec<Instance<'_>> = Vec::new();
    let mut places = BTreeMap::new();
    for total in counted.iter().filter(|counted| counted.cgroup.is_none()) {
        let Some((pmu, rest)) = total.event.split_once('/') else { continue };
        let terms = rest.split('/').next().unwrap_or_default();
        let (name, parameters) = terms.split_once(',').unwrap_or((terms, ""));
        let Some(kind) = Catalogue::builtin().find(pmu, None, &[name]) else { continue };
        let place = *places.entry((pmu, &*kind.id, parameters)).or_insert(instances.len());
        if place == instances.len() {
            instances.push(Instance { kind, pmu, counts: Vec::new() });
        }
        instances[place].counts.push((name, total));
    }
    instances
}

impl Instance<'_> {
    /// What it counted one way beside what moved; `None` if it counts no bytes of this way, and why it cannot be compared.
    fn row(&self, direction: Direction, moved: &Comparison) -> Option<Result<Comparison, String>> {
        let metrics = match direction {
            Direction::Read => ["rx_bytes_per_s", "read_bytes_per_s"],
            Direction::Write => ["tx_bytes_per_s", "write_bytes_per_s"],
        };
        let metric = metrics.into_iter().find_map(|name| self.kind.metric(name))?;
        let events: Vec<&Event> = metric.events().iter().filter_map(|name| self.kind.events.get(name)).collect();
        let used: Vec<(&str, &EventTotal)> =
            self.counts.iter().filter(|(name, _)| events.iter().any(|event| is_part(event, name))).copied().collect();
        let (_, first) = used.first()?;
        if let Some((_, partial)) = used.iter().find(|(_, total)| total.is_partial) {
            return Some(Err(format!("{} was not counted all the time", partial.event)));
        }
        // Where perf scaled by the kernel's files, its figure is in bytes already.
        let event = events.iter().find(|event| is_part(event, used[0].0))?;
        let per_count = if first.is_bytes { 1.0 } else { event.per_count * event.unit.factor };
        let value = |name: &str| match name {
            "seconds" => Input::Value(1.0),
            name => self.kind.events.get(name).map_or(Input::Unknown, |event| self.value(event)),
        };
        let Some(bytes) = metric.value(&value).map(|value| value * metric.unit.factor) else {
            let needed: Vec<&str> = events.iter().filter_map(|event| event.names.first()).map(String::as_str).collect();
            let names: Vec<&str> = used.iter().map(|used| used.0).collect();
            let (needed, names, pmu) = (needed.join(" + "), names.join(" + "), self.pmu);
            return Some(Err(format!("{pmu}: this traffic is {needed}, and only {names} was counted")));
        };
        let counter = match used[..] {
            [(_, total)] => total.event.clone(),
            _ => {
                let names: Vec<&str> = used.iter().map(|used| used.0).collect();
                first.event.replacen(names[0], &names.join("+"), 1)
            }
        };
        let rounding: f64 =
            used.iter().map(|(_, total)| total.rounding * if total.is_bytes { 1.0 } else { per_count }).sum();
        Some(Ok(Comparison {
            counter,
            count: bytes / per_count,
            bytes_per_count: per_count,
            parts: 1.0,
            running: used.iter().map(|(_, total)| total.running).fold(1.0, f64::min),
            rounding_percent: Some(rounding / moved.workload_bytes * 100.0),
            ..moved.clone()
        }))
    }

    /// An event's value in its unit, the sum of its parts; the parts may have several names.
    fn value(&self, event: &Event) -> Input {
        if !self.counts.iter().any(|(name, _)| is_part(event, name)) {
            return Input::Absent;
        }
        let count = |part: &str| self.counts.iter().find(|(name, _)| part.trim().eq_ignore_ascii_case(name));
        let sum = |names: &String| {
            names
                .split('+')
                .map(|part| {
                    let (_, total) = count(part)?;
                    Some(if total.is_bytes { total.value / event.unit.factor } else { total.value * event.per_count })
                })
                .sum::<Option<f64>>()
        };
        event.names.iter().find_map(sum).into()
    }
}

/// Whether an event has this name, or it is a part of it: `hif_wr + hif_rmw`.
fn is_part(event: &Event, name: &str) -> bool {
    event.names.iter().flat_map(|names| names.split('+')).any(|part| part.trim().eq_ignore_ascii_case(name))
}

/// The workload's side. A rate holds for the time that the counters were on: the workload runs on around them. If perf has
/// the mean of several runs, so has this.
fn of_workload(traffic: &Traffic, perf: &Parsed) -> Comparison {
    let workload = traffic.name.clone();
    let counter_s = perf.elapsed_s.unwrap_or_default();
    let blank = Comparison { workload, counter_s, ..Comparison::default() };
    let runs = if perf.mean_of.is_some() { traffic.runs as f64 } else { 1.0 };
    match traffic.amount {
        Amount::Bytes { exact, rounding, printed, seconds: [longest, all] } => Comparison {
            workload_bytes: exact / runs,
            printed_bytes: printed.map(|bytes| bytes / runs),
            // Groups run one after the other, unless there was no time for it; so do the runs of -r.
            workload_s: if runs > 1.0 || counter_s > 0.0 && all <= counter_s { all / runs } else { longest },
            rounding_percent: Some(rounding / exact * 100.0),
            ..blank
        },
        Amount::Rate { rate, rounding } => Comparison {
            workload_bytes: rate * counter_s,
            printed_bytes: Some(rate),
            prints_rate: true,
            workload_s: counter_s,
            rounding_percent: Some(rounding / rate * 100.0),
            ..blank
        },
    }
}
