//! A transcript of `perf stat` around a workload of known traffic, as comparisons: what the seeds' authors did by hand.

use std::collections::BTreeMap;

use pciescope_core::{Comparison, Record};

use super::perf_stat::{Counted, Read};
use super::workload::{Amount, Direction, Moved};

/// What an event of a counter counts.
struct Meaning {
    direction: Direction,
    bytes_per_count: f64,
    /// The sub-channel's die, for DRAM counters: they see a share of the traffic each.
    die: Option<u32>,
}

/// The comparisons of every counter that saw a workload's traffic, with it.
pub fn records(perf: &Read, moved: &[Moved]) -> Vec<Record> {
    moved.iter().flat_map(|moved| compare(perf, moved)).map(|comparison| comparison.to_record()).collect()
}

fn compare(perf: &Read, moved: &Moved) -> Vec<Comparison> {
    let mut rows = Vec::new();
    // By die: each sub-channel's counts by its PMU's name.
    let mut dies: BTreeMap<u32, Vec<(String, Comparison)>> = BTreeMap::new();
    for counted in &perf.counted {
        let Some(meaning) = meaning(counted).filter(|meaning| meaning.direction == moved.direction) else { continue };
        let row = Comparison {
            counter: counted.event.clone(),
            count: counted.value,
            bytes_per_count: meaning.bytes_per_count,
            parts: 1.0,
            counter_s: perf.elapsed_s.unwrap_or(0.0),
            running: counted.running,
            ..of_workload(moved, perf.elapsed_s)
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
fn of_workload(moved: &Moved, elapsed_s: Option<f64>) -> Comparison {
    let workload = moved.name.clone();
    match moved.amount {
        Amount::Bytes { exact, printed, seconds } => Comparison {
            workload,
            workload_bytes: exact,
            printed_bytes: printed,
            workload_s: seconds,
            ..Comparison::default()
        },
        Amount::Rate(rate) => {
            let seconds = elapsed_s.unwrap_or(1.0);
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

/// What a counter's event means; `None` for events that count no bytes of a root port or of DRAM.
fn meaning(counted: &Counted) -> Option<Meaning> {
    let (pmu, rest) = counted.event.split_once('/')?;
    let event = rest.split(['/', ',']).next()?.to_ascii_lowercase();
    let is_scaled = |constant: f64| if counted.is_bytes { 1.0 } else { constant };
    let payload = match event.as_str() {
        "rx_pcie_tlp_data_payload" => Some(Direction::Read),
        "tx_pcie_tlp_data_payload" => Some(Direction::Write),
        _ => None,
    };
    if let Some(direction) = payload {
        // Raw units of 16 bytes in the downstream driver, bytes in the one of the kernel.
        let constant = if pmu.starts_with("pcie_bdf_") { 16.0 } else { 1.0 };
        return Some(Meaning { direction, bytes_per_count: is_scaled(constant), die: None });
    }
    let page = u64::from_str_radix(pmu.strip_prefix("ali_drw_")?, 16).ok()?;
    let direction = match event.strip_prefix("perf_").unwrap_or(&event) {
        "hif_rd" => Direction::Read,
        "hif_wr" | "hif_rmw" => Direction::Write,
        _ => return None,
    };
    Some(Meaning { direction, bytes_per_count: is_scaled(64.0), die: Some((page >> 30) as u32) })
}
