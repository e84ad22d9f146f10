//! Latencies: median, tail and worst, what was lost, the CPUs at both ends, and how that compares with known figures.

use pciescope_core::outcome::{ENTRY_TO_ACK, LATENCY, TRIGGER_TO_HANDLER};
use pciescope_core::{Bdf, Histogram, Record};

use super::{Answer, headed, label_unreal};
use crate::losses;
use crate::model::{Section, cpu_of};
use crate::style::{Tone, paint};
use crate::summary::FAR_FROM_BEST;
use crate::table::layout::{Columns, Left, Right, Rows, bar_of};
use crate::table::path::with_steps;
use crate::text::{clean, counted, duration, thousands, us};

/// A table of more rows than this has its ends only.
const MOST_ROWS: usize = 16;
/// So many rows of each end.
const END: usize = 6;
/// Characters of a bar.
const BAR: usize = 8;

/// Register reads and writes.
pub(super) fn mmio(section: &Section) -> Answer {
    let all = section.merged(LATENCY);
    let (what, cost) = match section.test() {
        "mmio-write" => ("Register writes", "what a posted write costs the CPU; it says nothing of the arrival"),
        "mmio-write-read" => ("Register writes and reads behind them", ""),
        _ => ("Register reads", ""),
    };
    let mut answer = Answer::new(&format!(
        "{}: {}",
        headed(section, &format!("{what} of {}", target(section))),
        samples(section, &all)
    ));
    answer.line(figures(section, &all));
    ends(&mut answer, section, LATENCY, |_| true);
    match references(section, &all) {
        Some(words) => answer.line(words),
        None if !cost.is_empty() => answer.line(cost),
        None => {}
    }
    label_unreal(&mut answer, section);
    answer.table = Some(per_cpu(section, LATENCY, &mut answer.below));
    answer
}

/// Configuration reads hop by hop.
pub(super) fn path(section: &Section) -> Answer {
    let hop = |record: &Record| record.target.as_ref().and_then(|target| Some((target.hop?, target.hop_bdf)));
    let hops = section.merged_by(LATENCY, hop);
    let all = section.merged(LATENCY);
    let last = hops.keys().next_back().map(|key| key.0);
    let is_last = |record: &Record| hop(record).map(|key| key.0) == last;
    let of_last = hops.values().next_back().cloned().unwrap_or_default();
    let heading = format!("Configuration reads to {}, {}", device(section), counted(hops.len(), "hop"));
    let mut answer = Answer::new(&format!("{}: {}", headed(section, &heading), samples(section, &all)));
    answer.line(format!("last hop: {}", figures(section, &of_last)));
    let named = |key: &(u16, Option<Bdf>)| key.1.map_or_else(|| format!("hop {}", key.0), |bdf| bdf.to_string());
    let medians: Vec<(String, f64)> = hops.iter().filter_map(|(key, h)| Some((named(key), h.median_ns()?))).collect();
    let steps = medians.windows(2).map(|pair| (pair[1].1 - pair[0].1, &pair[0].0, &pair[1].0));
    if let Some((step, above, below)) = steps.max_by(|a, b| a.0.total_cmp(&b.0)) {
        answer.line(format!("largest step: {} from {above} to {below}", duration(step)));
    }
    ends(&mut answer, section, LATENCY, is_last);
    label_unreal(&mut answer, section);
    let columns = Rows::of(with_steps(&hops, Histogram::median_ns)).columns(&[
        ("Hop", 3, Right, &|((hop, _), ..)| hop.to_string()),
        ("Function", 12, Left, &|((_, bdf), ..)| bdf.map(|bdf| bdf.to_string()).unwrap_or_default()),
        ("Samples", 8, Right, &|(_, h, _)| h.count().to_string()),
        ("Median(us)", 8, Right, &|(_, h, _)| us(h.median_ns())),
        ("Step(us)", 8, Right, &|(.., step)| step.clone()),
        ("P99(us)", 8, Right, &|(_, h, _)| us(h.percentile_ns(99.0))),
        ("Worst(us)", 8, Right, &|(_, h, _)| us(h.max_ns())),
    ]);
    answer.table = Some(columns.without_empty());
    answer
}

/// Interrupts, beside the arm that leaves PCIe out. `sections` are those of the run.
pub(super) fn irq(section: &Section, sections: &[&Section]) -> Answer {
    let all = section.merged(TRIGGER_TO_HANDLER);
    let control = sections.iter().copied().find(|other| super::is_control(other, sections));
    let what = match section.test() {
        "irq-hardware" | "irq-import" => "Interrupts",
        _ => "Interrupts raised by software",
    };
    let triggers = match (section.sum("triggers"), section.sum("handled")) {
        (Some(sent), Some(handled)) => {
            format!("{} triggers, {} handled", thousands(sent as u64), thousands(handled as u64))
        }
        _ => samples(section, &all),
    };
    let mut answer =
        Answer::new(&format!("{}: {triggers}", headed(section, &format!("{what} of {}", device(section)))));
    answer.line(format!("trigger to handler: {}", figures(section, &all)));
    ends(&mut answer, section, TRIGGER_TO_HANDLER, |_| true);
    let mut parts = Vec::new();
    if let Some(median) = section.merged(ENTRY_TO_ACK).median_ns() {
        parts.push(format!("handler to acknowledge: {}", duration(median)));
    }
    let software = control.and_then(|control| Some((control.test(), control.merged(TRIGGER_TO_HANDLER).median_ns()?)));
    if let (Some((test, software)), Some(hardware)) = (software, all.median_ns()) {
        let arm = test.trim_start_matches("irq-");
        let (share, software) = (duration(hardware - software), duration(software));
        parts.push(format!("PCIe and device: {share} ({arm} {software})"));
    }
    if !parts.is_empty() {
        answer.line(parts.join("; "));
    }
    label_unreal(&mut answer, section);
    answer.table = Some(interrupts(section, control, &mut answer.below));
    answer
}

/// The device, by its address where it has one.
fn device(section: &Section) -> String {
    match &section.first().device {
        Some(function) => function.bdf.map_or_else(|| clean(&function.name), |bdf| bdf.to_string()),
        None => "an unnamed device".to_owned(),
    }
}

/// The device with the register, where there is one only.
fn target(section: &Section) -> String {
    let device = device(section);
    let register = section.first().target.as_ref().filter(|_| !section.has_many_offsets());
    let place = register.and_then(|target| Some((target.bar?, target.offset?)));
    place.map_or_else(|| device.clone(), |(bar, offset)| format!("{device} BAR{bar}+{offset:#x}"))
}

/// How many samples from how many CPUs.
fn samples(section: &Section, all: &Histogram) -> String {
    let cpus = section.cpus();
    let from = match cpus.as_slice() {
        [] => String::new(),
        [one] => format!(" from CPU {}", one.cpu),
        many => format!(" from {} CPUs", many.len()),
    };
    format!("{} samples{from}", thousands(all.count()))
}

/// Median, tail, worst, and what was lost.
fn figures(section: &Section, all: &Histogram) -> String {
    let figure = |name: &str, ns: Option<f64>| ns.map(|ns| format!("{name} {}", duration(ns)));
    let known =
        [figure("median", all.median_ns()), figure("p99", all.percentile_ns(99.0)), figure("worst", all.max_ns())];
    let known: Vec<String> = known.into_iter().flatten().collect();
    let known = if known.is_empty() { "nothing was measured".to_owned() } else { known.join(", ") };
    match losses::painted(&losses::of(section)) {
        Some(lost) => format!("{known}; {lost}"),
        None => known,
    }
}

/// The CPUs with the lowest and the highest median.
fn ends(answer: &mut Answer, section: &Section, name: &str, is_wanted: impl Fn(&Record) -> bool) {
    if let [(fast, low), .., (slow, high)] = section.medians_by_cpu(name, is_wanted).as_slice() {
        let more = if *low > 0.0 { format!(" ({:+.0} %)", (high / low - 1.0) * 100.0) } else { String::new() };
        answer.line(format!(
            "fastest CPU {fast}: {} in the median; slowest CPU {slow}: {}{more}",
            duration(*low),
            duration(*high)
        ));
    }
}

/// The verdict against the wire's floor and the best published figure.
fn references(section: &Section, all: &Histogram) -> Option<String> {
    let median = all.median_ns()?;
    let is_real = !section.is_emulated() && !section.is_synthetic();
    if let Some((floor, _)) = section.range("floor_wire_ns").filter(|(floor, _)| median < *floor && is_real) {
        let words = format!("invalid: the median is below the wire's floor of {}", duration(floor));
        return Some(paint(Tone::Bad, &words));
    }
    let (best, _) = section.range("best_published_ns").filter(|(best, _)| *best > 0.0)?;
    let high = section.range("best_published_high_ns").map_or(best, |range| range.1);
    let band = if high > best { format!("{best:.0} ns ({best:.0} to {high:.0})") } else { duration(best) };
    let times = median / best;
    let words = format!("{times:.2} times {band}, the best published for as many hops");
    Some(match is_real {
        true if times < FAR_FROM_BEST => format!("{}: {words}", paint(Tone::Good, "good")),
        true => format!("{}: {words}", paint(Tone::Doubt, "slow")),
        false => words,
    })
}

/// The places of the rows that are shown: all, or of many those with the lowest and the highest median.
fn shown(rows: &[(u32, Histogram)], below: &mut Option<String>) -> Vec<usize> {
    let mut places: Vec<usize> = (0..rows.len()).collect();
    if rows.len() > MOST_ROWS {
        let median = |place: usize| rows[place].1.median_ns().unwrap_or(f64::INFINITY);
        places.sort_by(|a, b| median(*a).total_cmp(&median(*b)));
        places.drain(END..rows.len() - END);
        *below = Some(format!("the {END} fastest and {END} slowest of {} CPUs; --all shows every one", rows.len()));
    }
    places
}

/// The NUMA node of a CPU of the section.
fn node(section: &Section, cpu: u32) -> String {
    let known = section.cpus().into_iter().find(|known| known.cpu == cpu);
    known.and_then(|known| known.node).map_or_else(|| "-".to_owned(), |node| node.to_string())
}

fn per_cpu(section: &Section, name: &str, below: &mut Option<String>) -> Columns {
    let rows: Vec<(u32, Histogram)> = section.merged_by(name, cpu_of).into_iter().collect();
    let medians = || rows.iter().filter_map(|(_, h)| h.median_ns());
    let (best, worst) = (medians().fold(f64::INFINITY, f64::min), medians().fold(0.0, f64::max));
    let above = |median: f64| format!("{:.1}", (median / best - 1.0) * 100.0);
    let shown = shown(&rows, below);
    let columns = Rows::of(shown.into_iter().map(|place| &rows[place])).columns(&[
        ("CPU", 4, Right, &|(cpu, _)| cpu.to_string()),
        ("Node", 4, Right, &|(cpu, _)| node(section, *cpu)),
        ("Samples", 7, Right, &|(_, h)| h.count().to_string()),
        ("Median(us)", 10, Right, &|(_, h)| us(h.median_ns())),
        ("P99(us)", 8, Right, &|(_, h)| us(h.percentile_ns(99.0))),
        ("P99.9(us)", 9, Right, &|(_, h)| us(h.percentile_ns(99.9))),
        ("Worst(us)", 9, Right, &|(_, h)| us(h.max_ns())),
        ("+(%)", 5, Right, &|(_, h)| h.median_ns().filter(|_| best > 0.0).map_or("-".to_owned(), above)),
        ("", BAR, Left, &|(_, h)| h.median_ns().map_or_else(String::new, |median| bar_of(median, worst, BAR))),
    ]);
    columns.without_empty()
}

fn interrupts(section: &Section, control: Option<&Section>, below: &mut Option<String>) -> Columns {
    let rows: Vec<(u32, Histogram)> = section.merged_by(TRIGGER_TO_HANDLER, cpu_of).into_iter().collect();
    let acknowledge = section.merged_by(ENTRY_TO_ACK, cpu_of);
    let software = control.map(|control| control.merged_by(TRIGGER_TO_HANDLER, cpu_of)).unwrap_or_default();
    let other = |cpu: &u32| software.get(cpu).and_then(|h| h.median_ns());
    let share = |(own, other): (f64, f64)| format!("{:+.3}", (own - other) / 1e3);
    let shown = shown(&rows, below);
    let columns = Rows::of(shown.into_iter().map(|place| &rows[place])).columns(&[
        ("CPU", 4, Right, &|(cpu, _)| cpu.to_string()),
        ("Node", 4, Right, &|(cpu, _)| node(section, *cpu)),
        ("Samples", 7, Right, &|(_, h)| h.count().to_string()),
        ("Median(us)", 10, Right, &|(_, h)| us(h.median_ns())),
        ("P99(us)", 8, Right, &|(_, h)| us(h.percentile_ns(99.0))),
        ("Worst(us)", 9, Right, &|(_, h)| us(h.max_ns())),
        ("Ack(us)", 7, Right, &|(cpu, _)| us(acknowledge.get(cpu).and_then(|h| h.median_ns()))),
        ("PCIe share(us)", 14, Right, &|(cpu, h)| h.median_ns().zip(other(cpu)).map_or("-".to_owned(), share)),
    ]);
    columns.without_empty()
}
