//! The result in plain words: a few sentences per section, for the head of a page and the end of a demonstration.

mod counters;
mod doctor;
mod latency;
mod readout;
mod verdict;

use pciescope_core::{Histogram, Record, outcome};

use crate::losses;
use crate::model::{self, Kind, Section};
use crate::text::{device_name, duration, thousands};

pub(crate) use self::counters::link_errors;
pub(crate) use self::latency::FAR_FROM_BEST;
pub(crate) use self::readout::{FAST, SLOW, UNSTEADY};
pub use self::verdict::{Conclusions, Place, Statement, conclude, rules, text};

/// The sentences about one section, most important first; empty where it has no latencies.
pub fn sentences(section: &Section) -> Vec<String> {
    match model::kind(section.test()) {
        Kind::Mmio => mmio(section),
        Kind::Path => path(section),
        Kind::Irq => irq(section),
        Kind::Readout => crate::table::readout::sentences(section),
        Kind::Verify | Kind::Counters | Kind::Other => Vec::new(),
    }
}

fn mmio(section: &Section) -> Vec<String> {
    let all = section.merged(outcome::LATENCY);
    let what = match section.test() {
        "mmio-write" => "A register write costs the CPU",
        "mmio-write-read" => "A register write and the read behind it take",
        _ => "A register read takes",
    };
    let mut sentences = typical(section, &all, what, outcome::LATENCY);
    if let (Some((best, _)), Some(median)) = (section.range("best_published_ns"), all.median_ns()) {
        let times = median / best;
        if times >= 1.5 && !section.is_emulated() {
            sentences.push(format!(
                "The median is {times:.1} times the best published figure for as many hops ({}): look at the warnings.",
                duration(best)
            ));
        }
    }
    sentences.extend(told_losses(section));
    sentences
}

fn irq(section: &Section) -> Vec<String> {
    let arrival = section.merged(outcome::TRIGGER_TO_HANDLER);
    let mut sentences =
        typical(section, &arrival, "From trigger to handler an interrupt takes", outcome::TRIGGER_TO_HANDLER);
    let acknowledge = section.merged(outcome::ENTRY_TO_ACK);
    if let Some(median) = acknowledge.median_ns() {
        sentences.push(format!("From the handler's entry to the acknowledge: {} in the median.", duration(median)));
    }
    sentences.extend(told_losses(section));
    sentences
}

fn path(section: &Section) -> Vec<String> {
    let hops = section.merged_by(outcome::LATENCY, |r| r.target.as_ref().and_then(|t| Some((t.hop?, t.hop_bdf))));
    let medians: Vec<(String, f64)> = hops
        .iter()
        .filter_map(|((hop, bdf), h)| Some((bdf.map_or(format!("hop {hop}"), |b| b.to_string()), h.median_ns()?)))
        .collect();
    let (Some(first), Some(last)) = (medians.first(), medians.last()) else { return Vec::new() };
    let mut sentences = vec![format!(
        "A configuration read of {} takes {} in the median, of {} {}.",
        first.0,
        duration(first.1),
        last.0,
        duration(last.1)
    )];
    let steps = medians.windows(2).map(|w| (w[1].1 - w[0].1, &w[0].0, &w[1].0));
    if let Some((step, above, below)) = steps.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|_| medians.len() > 2) {
        sentences.push(format!("The largest step is {} from {above} to {below}.", duration(step)));
    }
    sentences
}

fn typical(section: &Section, all: &Histogram, what: &str, name: &str) -> Vec<String> {
    let Some(max) = all.max_ns() else { return Vec::new() };
    let Some(median) = all.median_ns() else {
        return vec![format!("{} samples are too few for a median; the slowest was {}.", all.count(), duration(max))];
    };
    let tail = [(99.99, "1 in 10,000"), (99.9, "1 in 1000"), (99.0, "1 in 100")]
        .iter()
        .find_map(|(p, words)| Some(format!("{words} is over {}, ", duration(all.percentile_ns(*p)?))))
        .unwrap_or_default();
    let count = thousands(all.count());
    let mut sentences = vec![format!(
        "{what} {} in the median of {count} samples; {tail}the slowest was {}.",
        duration(median),
        duration(max)
    )];
    if let [fast, .., slow] = section.medians_by_cpu(name, |_| true).as_slice() {
        let slower = (slow.1 / fast.1 - 1.0) * 100.0;
        sentences.push(format!(
            "CPU {} is the fastest ({}), CPU {} the slowest ({}, {slower:+.0} %).",
            fast.0,
            duration(fast.1),
            slow.0,
            duration(slow.1)
        ));
    }
    sentences
}

fn told_losses(section: &Section) -> Option<String> {
    let counts = losses::of(section);
    let failed = match losses::words(&counts, true) {
        Some(bad) => Some(format!("Not everything arrived: {bad}.")),
        None => losses::total([section]).filter(|total| total.1).map(|_| "Nothing was lost.".to_owned()),
    };
    let doubtful = losses::words(&counts, false).map(|words| format!("Doubtful: {words}."));
    let sentences: Vec<String> = failed.into_iter().chain(doubtful).collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// The whole result as text for a terminal: a heading per section and its sentences.
pub fn render(records: &[Record]) -> String {
    let mut text = String::new();
    for section in &model::sections(records) {
        let words = sentences(section);
        if words.is_empty() {
            continue;
        }
        let emulated = if section.is_emulated() { " (emulated)" } else { "" };
        text += &format!("{}: {}{emulated}\n", section.test(), device_name(section.first()));
        for sentence in words {
            text += &format!("  {sentence}\n");
        }
    }
    text
}
