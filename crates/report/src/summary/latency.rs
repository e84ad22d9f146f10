//! Conclusions from latencies: losses, medians, tails, NUMA nodes.

use pciescope_core::Record;
use std::collections::BTreeSet;

use pciescope_core::outcome;

use super::verdict::{Conclusions, Place, is_real, largest, quoted, who};
use crate::losses::{self, LossCount};
use crate::model::{self, Kind, Section, cpu_of, target_of};
use crate::text::{duration, figure, target_key, thousands};

/// From how many times the best published figure on a median is doubtful.
pub(crate) const FAR_FROM_BEST: f64 = 1.5;
/// From how many times the median on the slowest sample is doubtful.
const LONG_TAIL: f64 = 10.0;
/// The fewest samples that say something of the slowest 1 %.
const FEW: u64 = 1000;
/// From which ratio of medians on NUMA nodes are told apart.
const UNEVEN: f64 = 1.10;
/// The histogram that a section of latencies is judged by.
fn main_histogram(section: &Section) -> &'static str {
    if model::kind(section.test()) == Kind::Irq { outcome::TRIGGER_TO_HANDLER } else { outcome::LATENCY }
}

/// Losses of all sections: one sentence where nothing is lost, one for each section where something is.
pub(super) fn lost(out: &mut Conclusions, sections: &[Section]) {
    let mut whole: Vec<(usize, String, u64)> = Vec::new();
    for (number, section) in sections.iter().enumerate() {
        if model::kind(section.test()) == Kind::Readout {
            continue;
        }
        let of = section.sum("triggers").map_or_else(|| section.merged(main_histogram(section)).count(), |n| n as u64);
        if losses::total([section]) == Some((0.0, true)) && of > 0 {
            whole.push((number, format!("{} {}", who(section), quoted(section.test())), of));
        }
        for count in losses::of(section).iter().filter(|count| count.sum > 0.0) {
            one_loss(out, number, section, count, of);
        }
    }
    if let [(number, name, of)] = whole.as_slice() {
        out.good(*number, format!("{name}: none of {} samples was lost.", thousands(*of)));
    } else if let Some((number, ..)) = whole.first() {
        // What a file says may be anything, and its sum more than fits.
        let all = whole.iter().fold(0, |all: u64, (_, _, of)| all.saturating_add(*of));
        let names: BTreeSet<&str> = whole.iter().map(|(_, name, _)| name.as_str()).collect();
        let mut listed = names.iter().take(3).copied().collect::<Vec<_>>().join(", ");
        if names.len() > 3 {
            listed += &format!(" and {} more", names.len() - 3);
        }
        let count = whole.len();
        out.good(*number, format!("None of {} samples of {count} measurements was lost: {listed}.", thousands(all)));
    }
}

fn one_loss(out: &mut Conclusions, number: usize, section: &Section, count: &LossCount, of: u64) {
    let LossCount { loss, sum, .. } = count;
    let words = loss.words;
    let percent = sum / of.max(1) as f64 * 100.0;
    let digits = if percent < 0.01 { 4 } else { 2 };
    let share = if of > 0 { format!(" of {} ({percent:.digits$} %)", thousands(of)) } else { String::new() };
    let place = Place::Section(number);
    let rank = if loss.is_failure() { 2 } else { 5 };
    out.doubt(rank, place, format!("{} {}: {} {words}{share}.", who(section), quoted(section.test()), figure(*sum)));
    if let Some((most, record)) = largest(&section.records, loss.name).filter(|_| loss.is_failure()) {
        let key = target_key(&target_of(record), false);
        let cpu = cpu_of(record).map(|cpu| format!(" CPU {cpu}")).unwrap_or_default();
        let spot = format!("{cpu} {key}");
        if !spot.trim().is_empty() {
            let text = format!(
                "{}: measure{} again: {} {words} there, the most.",
                who(section),
                spot.trim_end(),
                figure(most)
            );
            out.advise(3, place, text);
        }
    }
}

/// The last hop of a path: a median over different hops would describe none of them.
pub(super) fn path(out: &mut Conclusions, number: usize, section: &Section) {
    let hop = |record: &Record| record.target.as_ref().and_then(|target| target.hop);
    let measured = |record: &&&Record| record.histograms.get(outcome::LATENCY).is_some_and(|h| !h.is_empty());
    let last = section.records.iter().filter(measured).filter_map(|record| hop(record)).max();
    let Some(last) = last else { return latency(out, number, section, "") };
    let records: Vec<&Record> = section.records.iter().copied().filter(|record| hop(record) == Some(last)).collect();
    let bdf = records.iter().find_map(|record| record.target.as_ref()?.hop_bdf);
    let name = bdf.map_or_else(|| format!(" hop {last}"), |bdf| format!(" hop {last} ({bdf})"));
    latency(out, number, &Section { records, silent: Vec::new(), plan: section.plan }, &name);
}

/// `part` says which part of the section is judged, where it is not the whole.
pub(super) fn latency(out: &mut Conclusions, number: usize, section: &Section, part: &str) {
    let (name, place) = (main_histogram(section), Place::Section(number));
    let all = section.merged(name);
    let subject = format!("{} {}{part}", who(section), quoted(section.test()));
    if all.count() > 0 && all.count() < FEW {
        out.doubt(
            6,
            place,
            format!("{subject}: {} samples say nothing of the slowest 1 % (1,000 would).", all.count()),
        );
        out.advise(7, place, format!("{subject}: measure again with --count {FEW} or more."));
    }
    let (Some(median), Some(max), true) = (all.median_ns(), all.max_ns(), is_real(section)) else { return };
    if let Some((floor, _)) = section.range("floor_wire_ns").filter(|(floor, _)| median < *floor) {
        let text = format!(
            "{subject}: the median of {} is below the wire's floor of {}: invalid.",
            duration(median),
            duration(floor)
        );
        out.doubt(0, place, text);
    }
    if let Some((best, _)) = section.range("best_published_ns").filter(|(best, _)| *best > 0.0) {
        let times = median / best;
        let words = format!(
            "{subject}: the median of {} is {times:.2} times the best published figure for as many hops ({})",
            duration(median),
            duration(best)
        );
        if times < FAR_FROM_BEST {
            out.good(number, format!("{words}; below {FAR_FROM_BEST} is good."));
        } else {
            out.doubt(4, place, format!("{words}; from {FAR_FROM_BEST} on something costs time."));
        }
    }
    if median > 0.0 && all.count() >= FEW {
        let times = max / median;
        let words = format!(
            "{subject}: the slowest of {} samples took {}, {times:.1} times the median",
            thousands(all.count()),
            duration(max)
        );
        if times < LONG_TAIL {
            out.good(number, format!("{words}; below {LONG_TAIL} is good."));
        } else {
            out.doubt(5, place, format!("{words}; from {LONG_TAIL} on the tail is long."));
        }
    }
    nodes(out, number, section, &subject, name);
}

/// Which NUMA node's CPUs to use, where it matters.
fn nodes(out: &mut Conclusions, number: usize, section: &Section, subject: &str, name: &str) {
    let by_node = section.merged_by(name, |record| record.cpu.as_ref()?.node);
    let enough = by_node.iter().filter(|(_, h)| h.count() >= FEW);
    let mut medians: Vec<(f64, u32)> = enough.filter_map(|(node, h)| Some((h.median_ns()?, *node))).collect();
    medians.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(fast), Some(slow)) = (medians.first(), medians.last()) else { return };
    // A difference of one step of the clock does not count.
    let methods = section.records.iter().filter_map(|record| record.method.as_ref());
    let step = methods.map(|m| m.quantum_ns / f64::from(m.batch.max(1))).filter(|step| step.is_finite());
    let is_seen = slow.0 - fast.0 > step.fold(0.0, f64::max);
    if fast.0 > 0.0 && slow.0 / fast.0 >= UNEVEN && is_seen {
        out.advise(
            6,
            Place::Section(number),
            format!(
                "{subject}: use CPUs of NUMA node {}: median {} there, {} on node {} ({:.0} % more; from 10 % on).",
                fast.1,
                duration(fast.0),
                duration(slow.0),
                slow.1,
                (slow.0 / fast.0 - 1.0) * 100.0
            ),
        );
    }
}
