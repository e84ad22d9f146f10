//! Latencies: median, tail and worst, what was lost, the CPUs at both ends, and how that compares with known figures.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::outcome::{ENTRY_TO_ACK, LATENCY, TRIGGER_TO_HANDLER};
use pciescope_core::{Bdf, Histogram, Record};

use super::conclusions::{Conclusions, Place, largest, quoted, who};
use super::rules::{FAR_FROM_BEST, FEW_SAMPLES, LONG_TAIL, UNEVEN_NODES};
use super::{Fact, Facts, why};
use crate::layout::{Columns, Left, Right, Rows, bar_of, ends};
use crate::losses;
use crate::model::{self, Headline, Kind, LossCount, Section, cpu_of, target_of};
use crate::style::{Tone, paint};
use crate::text::{clean, counted, duration, figure, range, target_key, thousands, us};

/// A table of more rows than this has its ends only.
const MOST_ROWS: usize = 16;
/// Upper limit of rows at each end.
const END: usize = 6;
/// Characters of a bar.
const BAR: usize = 8;

/// The histogram whose figures come first.
pub(crate) fn main_histogram(section: &Section) -> &'static str {
    if model::kind(section.test()) == Kind::Irq { TRIGGER_TO_HANDLER } else { LATENCY }
}

fn hop(record: &Record) -> Option<u16> {
    record.target.as_ref().and_then(|target| target.hop)
}

/// What the first figures are of: of a path the last hop, the device itself. A median over different hops would describe
/// none of them.
pub(crate) fn main_part<'s, 'r>(section: &'s Section<'r>) -> Cow<'s, Section<'r>> {
    if model::kind(section.test()) != Kind::Path {
        return Cow::Borrowed(section);
    }
    let name = main_histogram(section);
    let measured = |record: &&&Record| record.histograms.get(name).is_some_and(|h| !h.is_empty());
    let last = section.records.iter().filter(measured).filter_map(|record| hop(record)).max();
    let mut part = section.clone();
    part.records.retain(|record| last.is_none() || hop(record) == last);
    Cow::Owned(part)
}

/// The samples of the first figures, of all CPUs together.
pub(crate) fn main_samples(section: &Section) -> Histogram {
    main_part(section).merged(main_histogram(section))
}

/// The median in which every CPU weighs the same, as `compare` has it.
pub(crate) fn headline(section: &Section) -> Option<Headline> {
    section.asked.headline.get_or_init(|| Headline::of(&main_part(section), main_histogram(section))).clone()
}

/// The medians of the fastest and of the slowest CPU, where they differ: `487 to 590 ns by CPU`.
fn by_cpu(headline: &Headline) -> Option<String> {
    let [(_, low), .., (_, high)] = headline.by_cpu.as_slice() else { return None };
    (duration(*low) != duration(*high)).then(|| format!("{} by CPU", range(*low, *high)))
}

/// Whether a section is the control arm of another one, whose facts name it: where the difference means something.
pub(super) fn is_control(section: &Section, sections: &[&Section]) -> bool {
    let is_arm = matches!(section.test(), "irq-retrigger" | "irq-inject" | "irq-loopback");
    let is_hardware = |other: &&&Section| other.test() == "irq-hardware" && other.first().run == section.first().run;
    is_arm && sections.iter().find(is_hardware).is_some_and(|hardware| hardware.has_control())
}

/// `sections` are those of the run.
pub(super) fn facts(section: &Section, sections: &[&Section]) -> Facts {
    let name = main_histogram(section);
    let (all, headline) = (section.merged(name), headline(section));
    let control = sections.iter().copied().find(|other| is_control(other, sections)).filter(|_| name != LATENCY);
    let hops = section.merged_by(LATENCY, |record| Some((hop(record)?, record.target.as_ref()?.hop_bdf)));
    let median_of = |key: &Hop| {
        let mut part = section.clone();
        part.records.retain(|record| hop(record) == Some(key.0));
        Headline::of(&part, LATENCY).map(|headline| headline.median_ns)
    };
    let medians: Vec<(Hop, Option<f64>)> = hops.keys().map(|key| (*key, median_of(key))).collect();
    let (what, prefix) = match section.test() {
        "mmio-write" => (format!("Register writes of {}", target(section)), ""),
        "mmio-write-read" => (format!("Register writes and reads behind them of {}", target(section)), ""),
        "config-read" => {
            (format!("Configuration reads to {}, {}", device(section), counted(hops.len(), "hop")), "last hop: ")
        }
        "irq-hardware" | "irq-import" => (format!("Interrupts of {}", device(section)), "trigger to handler: "),
        test if test.starts_with("irq-") => {
            (format!("Interrupts raised by software of {}", device(section)), "trigger to handler: ")
        }
        _ => (format!("Register reads of {}", target(section)), ""),
    };
    let mut facts = Facts::of(section, &what);
    facts.title += &format!(": {}", how_many(section, &all));
    facts.lines = figures(section, headline.as_ref());
    facts.lines[0].insert_str(0, prefix);
    facts.lines.extend(largest_step(&medians));
    match model::kind(section.test()) {
        Kind::Irq => facts.lines.extend(shares(section, control)),
        Kind::Path => {}
        _ => facts.lines.extend(compared(section, headline.as_ref())),
    }
    facts.lines.extend(why::lines(section));
    facts.more = crate::why::table(section, false);
    facts.mark_section(section);
    facts.table = Some(if hops.is_empty() {
        per_cpu(section, control, None, &mut facts.below)
    } else {
        per_hop(&hops, &medians)
    });
    facts
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
    let place = register.and_then(|target| target.in_bar());
    place.map_or_else(|| device.clone(), |place| format!("{device} {place}"))
}

/// Of triggered interrupts how many were handled, else how many samples from how many CPUs.
fn how_many(section: &Section, all: &Histogram) -> String {
    if let (Some(sent), Some(handled)) = (section.sum("triggers"), section.sum("handled")) {
        return format!("{} triggers, {} handled", thousands(sent as u64), thousands(handled as u64));
    }
    let cpus = section.cpus();
    let from = match cpus.as_slice() {
        [] => String::new(),
        [one] => format!(" from CPU {}", one.cpu),
        many => format!(" from {} CPUs", many.len()),
    };
    format!("{} samples{from}", thousands(all.count()))
}

/// The median with its range by CPU; then tail and worst, the CPUs at both ends, and what was lost.
fn figures(section: &Section, headline: Option<&Headline>) -> Vec<String> {
    let all = main_samples(section);
    let figure = |name: &str, ns: Option<f64>| ns.map(|ns| format!("{name} {}", duration(ns)));
    let median = figure("median", headline.map(|headline| headline.median_ns));
    let rest = [figure("p99", all.percentile_ns(99.0)), figure("worst", all.max_ns())].into_iter().flatten();
    let lost = losses::painted(section.loss_counts());
    let joined =
        |parts: Vec<String>| if parts.is_empty() { "nothing was measured".to_owned() } else { parts.join(", ") };
    let by_cpu = headline.and_then(|headline| Some((headline.by_cpu.as_slice(), by_cpu(headline)?)));
    let (first, second) = match by_cpu {
        Some(([(fast, low), .., (slow, high)], spread)) => {
            let more = if *low > 0.0 { format!(" ({:+.0} %)", (high / low - 1.0) * 100.0) } else { String::new() };
            let ends = format!("fastest CPU {fast}, slowest CPU {slow}{more}");
            (median.map(|median| format!("{median}; {spread}")), format!("{}; {ends}", joined(rest.collect())))
        }
        _ => (None, joined(median.into_iter().chain(rest).collect())),
    };
    first.into_iter().chain([[second].into_iter().chain(lost).collect::<Vec<_>>().join("; ")]).collect()
}

/// A hop: its number, and the function where it is known.
type Hop = (u16, Option<Bdf>);

/// The hop that adds most to the median.
fn largest_step(medians: &[(Hop, Option<f64>)]) -> Option<String> {
    let named = |(hop, bdf): &Hop| bdf.map_or_else(|| format!("hop {hop}"), |bdf| bdf.to_string());
    let known: Vec<(String, f64)> = medians.iter().filter_map(|(key, ns)| Some((named(key), (*ns)?))).collect();
    let steps = known.windows(2).map(|pair| (pair[1].1 - pair[0].1, &pair[0].0, &pair[1].0));
    let (step, above, below) = steps.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(match step > 0.0 {
        true => format!("largest step: {} from {above} to {below}", duration(step)),
        false => "no hop takes longer than the one before".to_owned(),
    })
}

/// What of an interrupt is the handler's, and what PCIe's: the rest beside an arm that leaves PCIe out.
fn shares(section: &Section, control: Option<&Section>) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(acknowledge) = Headline::of(section, ENTRY_TO_ACK) {
        parts.push(format!("handler to acknowledge: {}", duration(acknowledge.median_ns)));
    }
    let median = |section: &Section| headline(section).map(|headline| headline.median_ns);
    let both = control.and_then(|control| Some((control.test(), median(control)?, median(section)?)));
    if let Some((test, software, hardware)) = both {
        let arm = test.trim_start_matches("irq-");
        let (share, software) = (duration(hardware - software), duration(software));
        parts.push(format!("PCIe and device: {share} ({arm} {software})"));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// How the median compares with the wire's floor and with the best published figure, and how good that is. Figures that
/// are not of hardware are not judged.
fn references(part: &Section, median: f64) -> Vec<(Tone, String)> {
    let is_real = part.is_real();
    let floor = part.range("floor_wire_ns").filter(|(floor, _)| median < *floor && is_real);
    let floor = floor.map(|(floor, _)| (Tone::Bad, format!("below the wire's floor of {}", duration(floor))));
    let best = part.range("best_published_ns").filter(|(best, _)| *best > 0.0).map(|(best, _)| {
        // Published figures are a band where the sources differ.
        let high = part.range("best_published_high_ns").map_or(best, |range| range.1);
        let band = if high > best { format!("{best:.0} ns ({best:.0} to {high:.0})") } else { duration(best) };
        let times = median / best;
        let far = match times {
            _ if times >= 2.0 => format!("{times:.1} times"),
            _ if times >= 1.0 => format!("{:.0} % above", (times - 1.0) * 100.0),
            _ => format!("{:.0} % below", (1.0 - times) * 100.0),
        };
        let tone = match is_real {
            true if times < FAR_FROM_BEST.limit => Tone::Good,
            true => Tone::Doubt,
            false => Tone::Plain,
        };
        (tone, format!("{far} the best published figure for as many hops, {band}"))
    });
    floor.into_iter().chain(best).collect()
}

/// The first of the references, the wire's floor and the link in a line; what is not of hardware has only the link. Of a
/// posted write what its figure stands for.
fn compared(section: &Section, headline: Option<&Headline>) -> Option<String> {
    let first = headline.and_then(|headline| references(section, headline.median_ns).into_iter().next());
    let first = first.filter(|(tone, _)| *tone != Tone::Plain).map(|(tone, words)| match tone {
        Tone::Bad => paint(tone, &format!("invalid: the median is {words}")),
        Tone::Good => format!("{}: {words}", paint(tone, "good")),
        _ => format!("{}: {words}", paint(tone, "slow")),
    });
    let cost = "what a posted write costs the CPU; it says nothing of the arrival";
    let first = first.or_else(|| (section.test() == "mmio-write").then(|| cost.to_owned()));
    let floor = section.range("floor_wire_ns").filter(|_| section.is_real());
    let floor = floor.map(|(floor, _)| format!("wire's floor {}", duration(floor)));
    let link = section.first().device.as_ref().and_then(|device| device.link).filter(|link| link.width > 0);
    let link = link.map(|link| {
        let most = (link.max_speed_gts, link.max_width);
        let of = if most == (link.speed_gts, link.width) {
            String::new()
        } else {
            format!(" (of {} GT/s x{})", most.0, most.1)
        };
        format!("link {} GT/s x{}{of}", link.speed_gts, link.width)
    });
    let parts: Vec<String> = first.into_iter().chain(floor).chain(link).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The NUMA node of a CPU of the section.
fn node(section: &Section, cpu: u32) -> String {
    let known = section.cpus().into_iter().find(|known| known.cpu == cpu);
    known.and_then(|known| known.node).map_or_else(|| "-".to_owned(), |node| node.to_string())
}

/// A row for each CPU; of interrupts beside the arm that leaves PCIe out. Of more than `most` rows so many of each end are
/// shown; where it is not given, as many as a screen has, or a row for each NUMA node.
pub(crate) fn per_cpu(
    section: &Section,
    control: Option<&Section>,
    most: Option<(usize, usize)>,
    below: &mut Option<String>,
) -> Columns {
    let name = main_histogram(section);
    let is_irq = name == TRIGGER_TO_HANDLER;
    let rows: Vec<(u32, Histogram)> = section.per_cpu(name).into_iter().collect();
    let acknowledge = section.per_cpu(ENTRY_TO_ACK);
    let software = control.map(|control| control.per_cpu(name)).unwrap_or_default();
    let medians = || rows.iter().filter_map(|(_, h)| h.median_ns());
    let (best, worst) = (medians().fold(f64::INFINITY, f64::min), medians().fold(0.0, f64::max));
    if let Some(columns) = per_node(section, name).filter(|_| most.is_none() && rows.len() > MOST_ROWS && !is_irq) {
        *below = Some(format!("each NUMA node of {} CPUs; --all shows every CPU", rows.len()));
        return columns;
    }
    let (most, end) = most.unwrap_or((MOST_ROWS, END));
    let shown = ends(&rows, (most, end), |(_, h)| h.median_ns().unwrap_or(f64::INFINITY));
    if shown.len() < rows.len() {
        *below = Some(format!("the {end} fastest and {end} slowest of {} CPUs; --all shows every one", rows.len()));
    }
    let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let above = |h: &Histogram| h.median_ns().filter(|_| best > 0.0 && !is_irq).map(|m| (m / best - 1.0) * 100.0);
    let bar = |h: &Histogram| h.median_ns().filter(|_| !is_irq).map(|median| bar_of(median, worst, BAR));
    let share = |cpu: &u32, h: &Histogram| {
        let software = software.get(cpu).and_then(|h| h.median_ns());
        h.median_ns().zip(software).map(|(own, other)| format!("{:+.3}", (own - other) / 1e3))
    };
    let columns = Rows::of(shown.into_iter().map(|place| &rows[place])).columns(&[
        ("CPU", 4, Right, &|(cpu, _)| cpu.to_string()),
        ("Node", 4, Right, &|(cpu, _)| node(section, *cpu)),
        ("Samples", 7, Right, &|(_, h)| thousands(h.count())),
        ("Median(us)", 10, Right, &|(_, h)| us(h.median_ns())),
        ("P99(us)", 8, Right, &|(_, h)| us(h.percentile_ns(99.0))),
        ("P99.9(us)", 9, Right, &|(_, h)| us(h.percentile_ns(99.9).filter(|_| !is_irq))),
        ("Worst(us)", 9, Right, &|(_, h)| us(h.max_ns())),
        ("+(%)", 5, Right, &|(_, h)| dash(above(h).map(|percent| format!("{percent:.1}")))),
        ("", BAR, Left, &|(_, h)| dash(bar(h))),
        ("Ack(us)", 7, Right, &|(cpu, _)| us(acknowledge.get(cpu).and_then(|h| h.median_ns()))),
        ("PCIe share(us)", 14, Right, &|(cpu, h)| dash(share(cpu, h))),
    ]);
    columns.without_empty()
}

/// A row for each NUMA node, where there are several.
fn per_node(section: &Section, name: &str) -> Option<Columns> {
    let nodes: BTreeSet<Option<u32>> = section.cpus().iter().map(|cpu| cpu.node).collect();
    let part = |node: &u32| {
        let mut part = section.clone();
        part.records.retain(|record| record.cpu.as_ref().is_some_and(|cpu| cpu.node == Some(*node)));
        part
    };
    let parts: Vec<(u32, Section)> =
        nodes.iter().copied().collect::<Option<Vec<u32>>>()?.into_iter().map(|node| (node, part(&node))).collect();
    let rows = parts.iter().map(|(node, part)| (node, Headline::of(part, name), part.merged(name)));
    let end = |found: Option<&(u32, f64)>| {
        found.map_or_else(|| "-".to_owned(), |(cpu, ns)| format!("{} (CPU {cpu})", us(Some(*ns))))
    };
    let columns = Rows::of(rows).columns(&[
        ("Node", 4, Right, &|(node, ..)| node.to_string()),
        ("CPUs", 4, Right, &|(_, headline, _)| {
            headline.as_ref().map_or(0, |headline| headline.by_cpu.len()).to_string()
        }),
        ("Samples", 9, Right, &|(.., h)| thousands(h.count())),
        ("Median(us)", 10, Right, &|(_, headline, _)| us(headline.as_ref().map(|headline| headline.median_ns))),
        ("P99(us)", 8, Right, &|(.., h)| us(h.percentile_ns(99.0))),
        ("Worst(us)", 9, Right, &|(.., h)| us(h.max_ns())),
        ("Fastest(us)", 15, Right, &|(_, headline, _)| {
            end(headline.as_ref().and_then(|headline| headline.by_cpu.first()))
        }),
        ("Slowest(us)", 15, Right, &|(_, headline, _)| {
            end(headline.as_ref().and_then(|headline| headline.by_cpu.last()))
        }),
    ]);
    (parts.len() > 1).then_some(columns)
}

fn per_hop(hops: &BTreeMap<Hop, Histogram>, medians: &[(Hop, Option<f64>)]) -> Columns {
    let columns = Rows::of(hops.iter().zip(with_steps(medians.iter().map(|one| one.1)))).columns(&[
        ("Hop", 3, Right, &|(((hop, _), _), _)| hop.to_string()),
        ("Function", 12, Left, &|(((_, bdf), _), _)| bdf.map(|bdf| bdf.to_string()).unwrap_or_default()),
        ("Samples", 8, Right, &|((_, h), _)| thousands(h.count())),
        ("Median(us)", 8, Right, &|(_, (median, _))| us(*median)),
        ("Step(us)", 8, Right, &|(_, (_, step))| step.clone()),
        ("P99(us)", 8, Right, &|((_, h), _)| us(h.percentile_ns(99.0))),
        ("Worst(us)", 8, Right, &|((_, h), _)| us(h.max_ns())),
    ]);
    columns.without_empty()
}

/// The headline of a section, and all samples of it.
type Whole = (Option<Headline>, Histogram);

/// The figures of the first screen, with what changed since `before`, a run with its name. `about` says what was measured.
pub(crate) fn tiles(now: &Section, before: Option<(&str, &Section)>, about: &str) -> Vec<Fact> {
    let whole = |section: &Section| -> Whole { (headline(section), main_samples(section)) };
    let (now, before) = (whole(now), before.map(|(name, section)| (name, whole(section))));
    let tile = |name: &'static str, of: &dyn Fn(&Whole) -> Option<f64>, note: String| {
        let change = before.as_ref().and_then(|(run, old)| Some((run, of(old).filter(|ns| *ns > 0.0)?, of(&now)?)));
        let change =
            change.map(|(run, old, new)| format!("{run} {} ({:+.1} %)", duration(old), (new / old - 1.0) * 100.0));
        Fact::plain(name, of(&now).map_or_else(|| "-".to_owned(), duration), change.unwrap_or(note))
    };
    let spread = now.0.as_ref().map(|headline| by_cpu(headline).map_or(String::new(), |spread| spread + ", "));
    let few = || "too few samples".to_owned();
    let p99 = now.1.percentile_ns(99.0).map(|_| "1 in 100 took longer".to_owned());
    vec![
        tile("Median", &|all| Some(all.0.as_ref()?.median_ns), spread.map_or_else(few, |spread| spread + about)),
        tile("p99", &|all| all.1.percentile_ns(99.0), p99.unwrap_or_else(few)),
        tile("Worst", &|all| all.1.max_ns(), format!("of {} samples", thousands(now.1.count()))),
    ]
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
        for count in section.loss_counts().iter().filter(|count| count.sum > 0.0) {
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
        let cpu = cpu_of(record).map(|cpu| format!(" CPU {cpu}")).unwrap_or_default();
        let spot = format!("{cpu} {}", target_key(&target_of(record), false));
        let (spot, most) = (spot.trim_end(), figure(most));
        if !spot.is_empty() {
            out.advise(3, place, format!("{}: measure{spot} again: {most} {words} there, the most.", who(section)));
        }
    }
}

pub(super) fn conclude(out: &mut Conclusions, number: usize, section: &Section) {
    let part = &main_part(section);
    let place = Place::Section(number);
    let all = part.merged(main_histogram(part));
    let hop = part.records.iter().find_map(|record| record.target.as_ref()).and_then(|target| {
        let bdf = target.hop_bdf.map(|bdf| format!(" ({bdf})")).unwrap_or_default();
        Some(format!(" hop {}{bdf}", target.hop?))
    });
    let subject = format!("{} {}{}", who(part), quoted(part.test()), hop.unwrap_or_default());
    let few = FEW_SAMPLES.limit as u64;
    if all.count() > 0 && all.count() < few {
        let count = all.count();
        out.doubt(6, place, format!("{subject}: {count} samples say nothing of the slowest 1 % (1,000 would)."));
        out.advise(7, place, format!("{subject}: measure again with --count {few} or more."));
    }
    why::conclude(out, number, section, &subject);
    let (Some(Headline { median_ns: median, .. }), Some(max), true) = (headline(part), all.max_ns(), part.is_real())
    else {
        return;
    };
    for (tone, words) in references(part, median) {
        let (words, limit) = (format!("{subject}: the median of {} is {words}", duration(median)), FAR_FROM_BEST.limit);
        match tone {
            Tone::Bad => out.doubt(0, place, format!("{words}: invalid.")),
            Tone::Good => out.good(number, format!("{words}; below {limit} is good.")),
            _ => out.doubt(4, place, format!("{words}; from {limit} on something costs time.")),
        }
    }
    if median > 0.0 && all.count() >= few {
        let (times, limit) = (max / median, LONG_TAIL.limit);
        let (count, max) = (thousands(all.count()), duration(max));
        let words = format!("{subject}: the slowest of {count} samples took {max}, {times:.1} times the median");
        if times < limit {
            out.good(number, format!("{words}; below {limit} is good."));
        } else {
            out.doubt(5, place, format!("{words}; from {limit} on the tail is long."));
        }
    }
    nodes(out, number, part, &subject);
}

/// Which NUMA node's CPUs to use, where it matters.
fn nodes(out: &mut Conclusions, number: usize, section: &Section, subject: &str) {
    let by_node = section.by_place(main_histogram(section), |cpu| cpu.node);
    let enough = by_node.iter().filter(|(_, h)| h.count() as f64 >= FEW_SAMPLES.limit);
    let mut medians: Vec<(f64, u32)> = enough.filter_map(|(node, h)| Some((h.median_ns()?, *node))).collect();
    medians.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(fast), Some(slow)) = (medians.first(), medians.last()) else { return };
    // A difference of one step of the clock does not count.
    let methods = section.records.iter().filter_map(|record| record.method.as_ref());
    let step = methods.map(|m| m.quantum_ns / f64::from(m.batch.max(1))).filter(|step| step.is_finite());
    let is_seen = slow.0 - fast.0 > step.fold(0.0, f64::max);
    let (more, limit) = ((slow.0 / fast.0 - 1.0) * 100.0, UNEVEN_NODES.limit);
    if fast.0 > 0.0 && more >= limit && is_seen {
        out.advise(
            6,
            Place::Section(number),
            format!(
                "{subject}: use CPUs of NUMA node {}: median {} there, {} on node {} ({more:.0} % more; from {limit} % on).",
                fast.1,
                duration(fast.0),
                duration(slow.0),
                slow.1
            ),
        );
    }
}

/// Medians from hop to hop, each with by how much it lies above the one before, in us.
pub(crate) fn with_steps(medians: impl Iterator<Item = Option<f64>>) -> impl Iterator<Item = (Option<f64>, String)> {
    let mut above = None;
    medians.map(move |median| {
        let known = std::mem::replace(&mut above, median).zip(median);
        (median, known.map_or("-".to_owned(), |(above, median): (f64, f64)| format!("{:+.3}", (median - above) / 1e3)))
    })
}
