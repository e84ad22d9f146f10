//! Turns a transcript of `perf stat` with a workload of known traffic into comparisons, as the authors of the seeds did
//! by hand.

use std::collections::BTreeMap;

use pciescope_catalogue::{Catalogue, Event};
use pciescope_core::{Comparison, Record};

use super::Parsed;
use super::perf_stat::EventTotal;
use super::workload::{Amount, Direction, Traffic};

/// What an event of a counter counts.
struct Meaning {
    direction: Direction,
    bytes_per_count: f64,
    /// The sub-channel's die, for DRAM counters: they see a share of the traffic each.
    die: Option<u32>,
}

/// The comparisons of every counter that saw a workload's traffic, with it.
pub fn records(perf: &Parsed, traffic: &[Traffic]) -> Vec<Record> {
    traffic.iter().flat_map(|traffic| compare(perf, traffic)).map(|comparison| comparison.to_record()).collect()
}

/// Whether a workload says a rate, and the text not how long it was counted: the two cannot be compared.
pub fn lacks_elapsed(perf: &Parsed, traffic: &[Traffic]) -> bool {
    perf.elapsed_s.is_none() && traffic.iter().any(|traffic| matches!(traffic.amount, Amount::Rate(_)))
}

fn compare(perf: &Parsed, traffic: &Traffic) -> Vec<Comparison> {
    if lacks_elapsed(perf, std::slice::from_ref(traffic)) {
        return Vec::new();
    }
    let mut rows = Vec::new();
    // By die: each sub-channel's counts by its PMU's name.
    let mut dies: BTreeMap<u32, Vec<(String, Comparison)>> = BTreeMap::new();
    // A control group's count is a part of the traffic.
    for counted in perf.counted.iter().filter(|counted| counted.cgroup.is_none()) {
        let Some(meaning) = meaning(counted).filter(|meaning| meaning.direction == traffic.direction) else { continue };
        let row = Comparison {
            counter: counted.event.clone(),
            count: counted.value,
            bytes_per_count: meaning.bytes_per_count,
            parts: 1.0,
            counter_s: perf.elapsed_s.unwrap_or(0.0),
            running: counted.running,
            ..of_workload(traffic, perf.elapsed_s)
        };
        let Some(die) = meaning.die else {
            rows.push(row);
            continue;
        };
        let pmu = counted.event.split('/').next().unwrap_or_default();
        let channels = dies.entry(die).or_default();
        match channels.iter_mut().find(|channel| channel.0 == pmu) {
            Some((_, channel)) => {
                // Writes and read-modify-writes are two events of one traffic.
                channel.count += row.count;
                channel.running = channel.running.min(row.running);
                let event = counted.event.split('/').nth(1).unwrap_or_default();
                channel.counter = format!("{}+{event}/", channel.counter.trim_end_matches('/'));
            }
            None => channels.push((pmu.to_owned(), row)),
        }
    }
    for (die, channels) in dies {
        let parts = channels.len();
        let mut sum =
            Comparison { counter: format!("die {die}, {parts} sub-channels"), count: 0.0, ..channels[0].1.clone() };
        for (_, channel) in channels {
            sum.count += channel.count;
            sum.running = sum.running.min(channel.running);
            rows.push(Comparison { parts: parts as f64, ..channel });
        }
        rows.push(sum);
    }
    rows
}

/// The workload's side. A rate holds for the time that the counters were on: the workload runs on around them.
fn of_workload(traffic: &Traffic, elapsed_s: Option<f64>) -> Comparison {
    let workload = traffic.name.clone();
    match traffic.amount {
        Amount::Bytes { exact, printed, seconds } => Comparison {
            workload,
            workload_bytes: exact,
            printed_bytes: printed,
            workload_s: seconds,
            ..Comparison::default()
        },
        Amount::Rate(rate) => {
            let seconds = elapsed_s.unwrap_or_default();
            Comparison {
                workload,
                workload_bytes: rate * seconds,
                printed_bytes: Some(rate),
                prints_rate: true,
                workload_s: seconds,
                ..Comparison::default()
            }
        }
    }
}

/// What a counter's event means; `None` for events that count no bytes of a port or of DRAM. perf's text has neither the PMU's
/// events nor its identifier: the kind is found by the PMU's name and the event's.
fn meaning(counted: &EventTotal) -> Option<Meaning> {
    let (pmu, rest) = counted.event.split_once('/')?;
    let name = rest.split(['/', ',']).next()?;
    let kind = Catalogue::builtin().find(pmu, None, &[name])?;
    // Names may be sums, `hif_wr + hif_rmw`: each of them counts.
    let is_it = |event: &Event| {
        event.names.iter().flat_map(|known| known.split('+')).any(|known| known.trim().eq_ignore_ascii_case(name))
    };
    let feeds =
        |event: &Event, metric: &str| kind.metric(metric).is_some_and(|metric| metric.events().contains(&event.name));
    let (event, direction) = kind.events.values().filter(|event| is_it(event)).find_map(|event| {
        if feeds(event, "rx_bytes_per_s") || feeds(event, "read_bytes_per_s") {
            Some((event, Direction::Read))
        } else if feeds(event, "tx_bytes_per_s") || feeds(event, "write_bytes_per_s") {
            Some((event, Direction::Write))
        } else {
            None
        }
    })?;
    // Where perf scaled by the kernel's files, its figure is in bytes already.
    let bytes_per_count = if counted.is_bytes { 1.0 } else { event.per_count * event.unit.factor };
    let die = kind.place(pmu).get("die").and_then(|die| u32::try_from(*die).ok());
    Some(Meaning { direction, bytes_per_count, die: die.filter(|_| kind.what.is_dram()) })
}
