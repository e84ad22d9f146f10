//! Links over time: which link lost how much, when and why; then the changes, and what may have been missed.

use std::collections::BTreeMap;

use pciescope_core::change::{Cause, Change, Subject, TEST as WATCH};
use pciescope_core::text::span;
use pciescope_core::{Record, once};

use super::conclusions::{Conclusions, Place};
use super::{Fact, Facts};
use crate::layout::{Columns, Left, Right, Rows};
use crate::links::{LinkRow, bdf, bytes, changes, links, name};
use crate::model::{self, Section, metric};
use crate::style::{Tone, paint};
use crate::text::{clean, counted, rate, thousands};

pub(crate) const TEST: &str = WATCH;

/// Upper limit of links in the first lines, and of the last changes in the table.
const LINKS: usize = 2;
const CHANGES: usize = 15;

pub(super) fn facts(section: &Section) -> Facts {
    let (links, changes): (Vec<LinkRow>, Vec<_>) = (links(section), changes(section).collect());
    let times: u64 = changes.iter().map(|(_, change)| change.times).sum();
    let of_links: u64 = changes.iter().filter(|(_, change)| change.of == Subject::Link).map(|one| one.1.times).sum();
    let end_ns = section.records.iter().filter_map(|record| record.interval).map(|one| one.end_ns).max();
    let mut facts = Facts::of(
        section,
        &format!(
            "{} over {}: {}",
            counted(links.len(), "link"),
            span(end_ns.unwrap_or(0)),
            counted(of_links as usize, "change")
        ),
    );
    let losing = || links.iter().filter(|link| link.lost_bytes > 0.0);
    for link in losing().take(LINKS) {
        facts.lines.push(paint(Tone::Bad, &lost(link, &changes)));
    }
    match losing().count() {
        0 => facts.lines.push(paint(Tone::Good, "no link lost bandwidth")),
        many if many > LINKS => facts.lines.push(format!("and {}", counted(many - LINKS, "other link"))),
        _ => {}
    }
    let causes = by_cause(&changes);
    if !causes.is_empty() {
        facts.lines.push(format!("changes by cause: {}", causes.join(", ")));
    }
    let others = times - of_links;
    if others > 0 {
        facts.lines.push(format!("and {}", counted(others as usize, "other change")));
    }
    facts.tiles = tiles(section, &links, of_links);
    facts.mark_section(section);
    let shown = &changes[changes.len().saturating_sub(CHANGES)..];
    if !shown.is_empty() {
        facts.table = Some(columns(shown));
    }
    facts.below =
        (changes.len() > CHANGES).then(|| format!("the last {CHANGES} of {}; --all shows all", changes.len()));
    facts
}

/// `0000:00:02.0 (nvme0n1) lost 21.3 TB in 31 min 0 s; worst at 0:20:00: 32 GT/s x4 -> 8 GT/s x4 (reliability)`.
fn lost(link: &LinkRow, changes: &[(&Record, &Change)]) -> String {
    let bdf = bdf(link.record);
    let below = metric(link.record, "below_best_ns").unwrap_or(0.0);
    let worst = changes
        .iter()
        .filter(|(record, change)| record.device.as_ref().and_then(|f| f.bdf) == bdf && change.of == Subject::Link)
        .max_by(|one, other| {
            let lost = |record: &Record| metric(record, "lost_bytes_per_s").unwrap_or(0.0);
            lost(one.0).total_cmp(&lost(other.0))
        });
    let why = worst.map(|(record, change)| {
        let cause = change.cause.map_or("unknown", Cause::name);
        clean(&format!("; worst at {}: {} ({cause})", stamp(record), what(change).trim_start_matches("link ")))
    });
    let why = why.unwrap_or_default();
    format!("{} lost {} in {}{why}", name(link.record), bytes(link.lost_bytes), span(below as u64))
}

/// `link 32 GT/s x4 -> 8 GT/s x4, 3 changes`.
fn what(change: &Change) -> String {
    let (of, to) = (change.of.name(), &change.to);
    let times = if change.times > 1 { format!(", {} changes", thousands(change.times)) } else { String::new() };
    match &change.from {
        None => format!("runs at {to}"),
        Some(_) if change.is_between() => format!("{of} changed in between, {to}{times}"),
        Some(from) => format!("{of} {from} -> {to}{times}"),
    }
}

/// How often each cause was, the most frequent first.
fn by_cause(changes: &[(&Record, &Change)]) -> Vec<String> {
    let mut causes: BTreeMap<Cause, u64> = BTreeMap::new();
    for (_, change) in changes.iter().filter(|(_, change)| change.of == Subject::Link) {
        *causes.entry(change.cause.unwrap_or(Cause::Unknown)).or_default() += change.times;
    }
    let mut causes: Vec<(Cause, u64)> = causes.into_iter().collect();
    causes.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    causes.into_iter().map(|(cause, times)| format!("{} {}", thousands(times), cause.name())).collect()
}

/// What each loss says, and what to do about it.
pub(super) fn conclude(out: &mut Conclusions, number: usize, section: &Section) {
    let (links, changes): (Vec<LinkRow>, Vec<_>) = (links(section), changes(section).collect());
    let (place, is_losing) = (Place::Section(number), |link: &&LinkRow| link.lost_bytes > 0.0);
    for link in links.iter().filter(is_losing) {
        out.doubt(1, place, format!("{}.", lost(link, &changes)));
        let own = bdf(link.record);
        let causes = changes.iter().filter(|(record, change)| bdf(record) == own && change.of == Subject::Link);
        for cause in once(causes.filter_map(|(_, change)| change.cause)) {
            let own = own.map_or_else(String::new, |bdf| bdf.to_string());
            out.advise(1, place, remedy(cause).replace("BDF", &own));
        }
    }
    if !links.is_empty() && !links.iter().any(|link| is_losing(&link)) {
        out.good(number, format!("No link of {} lost bandwidth.", links.len()));
    }
}

/// What to do about a link that lost bandwidth by a cause.
fn remedy(cause: Cause) -> &'static str {
    match cause {
        Cause::Reliability => {
            "BDF: reseat the card, check riser, cable and cooling; `pciescope doctor BDF --watch 60s` counts what it repairs."
        }
        Cause::KernelHold => "BDF: the link failed to train: reseat the card, check riser and cable.",
        Cause::Software | Cause::HotPlug => "BDF: find out who sets it: the kernel's log at that time says more.",
        Cause::Containment => {
            "BDF: an uncorrectable error was contained: `pciescope doctor BDF`, and the kernel's log."
        }
        Cause::Autonomous => "BDF: hardware may be told to leave its speed alone: HASD in Link Control 2.",
        _ => "BDF: `pciescope doctor BDF` shows what it is now.",
    }
}

fn tiles(section: &Section, links: &[LinkRow], changes: u64) -> Vec<Fact> {
    let lost: f64 = links.iter().map(|link| link.lost_bytes).sum();
    let losing = links.iter().filter(|link| link.lost_bytes > 0.0).count();
    let tone = if losing > 0 { Tone::Bad } else { Tone::Good };
    let unseen = section.sum("unseen_ns").unwrap_or(0.0) / section.sum("watched_ns").unwrap_or(0.0).max(1.0);
    vec![
        Fact { tone, ..Fact::plain("Lost", bytes(lost), counted(losing, "link")) },
        Fact::plain("Changes", thousands(changes), format!("of {}", counted(links.len(), "link"))),
        Fact::losses("Errors", section.losses("link_errors"), "reported by both ends"),
        Fact::plain("Unseen", format!("{:.1} %", unseen * 100.0), "of the time a short change leaves no trace"),
    ]
}

/// A table of changes.
pub(crate) fn columns(changes: &[(&Record, &Change)]) -> Columns {
    Rows::of(changes).columns(&[
        ("Time", 8, Right, &|(record, _)| stamp(record)),
        ("Function", 12, Left, &|(record, _)| bdf(record).map_or("machine".to_owned(), |bdf| bdf.to_string())),
        ("Change", 6, Left, &|(_, change)| match change.of {
            // Counts are long, and the one before stands a row above.
            Subject::Errors => clean(&format!("errors now {}", change.to)),
            _ => clean(what(change).trim_start_matches("link ")),
        }),
        ("Cause", 5, Left, &|(_, change)| change.cause.map_or("-", Cause::name).to_owned()),
        ("Lost", 4, Right, &|(record, _)| {
            metric(record, "lost_bytes_per_s").filter(|lost| *lost > 0.0).map_or("-".to_owned(), rate)
        }),
    ])
}

/// A change as it comes: `13:02:11  0000:00:02.0  link 32 GT/s x4 -> 8 GT/s x4: reliability (LBMS was set); ...`. Of a state at
/// the start only what is below the ability of both ends. Ends with a newline; empty for other records.
pub fn line(record: &Record) -> String {
    let Some(change) = &record.change else { return String::new() };
    if change.is_start() && change.evidence.is_empty() {
        return String::new();
    }
    let evidence =
        if change.evidence.is_empty() { String::new() } else { format!(" ({})", change.evidence.join(", ")) };
    let cause = change.cause.map(|cause| format!(": {}", cause.name())).unwrap_or_default();
    let mut parts = vec![format!("{}{cause}{evidence}", what(change))];
    let lost = metric(record, "lost_bytes_per_s").filter(|lost| *lost > 0.0);
    parts.extend(lost.map(|lost| format!("{} less than at best", rate(lost))));
    for (end, word) in [("port", "of the port"), ("device", "of the device")] {
        let count = |name: String| metric(record, &name);
        let (before, now) = (count(format!("{end}_errors_before")), count(format!("{end}_errors")));
        let more = before.zip(now).map(|(before, now)| now - before).filter(|more| *more > 0.0);
        parts.extend(more.map(|more| format!("{} errors more {word}", thousands(more as u64))));
    }
    parts.extend(change.may_have_missed.then(|| "others may have been missed before".to_owned()));
    // Of a state that was there when the watch began nobody knows how long the one before lasted.
    if let Some(interval) = record.interval.filter(|interval| interval.end_ns > interval.start_ns) {
        parts.push(format!("after {}", span(interval.end_ns.saturating_sub(interval.start_ns))));
    }
    let tone = match (change.of, lost.is_some()) {
        (Subject::Link, true) => Tone::Bad,
        (Subject::Link, _) if !change.is_start() => Tone::Plain,
        (Subject::Link | Subject::Containment | Subject::Errors | Subject::Gap, _) => Tone::Doubt,
        _ => Tone::Plain,
    };
    let said = paint(tone, &clean(&parts.join("; ")));
    format!("{:>8}  {}  {said}\n", stamp(record), name(record))
}

/// When it was: the time of day in UTC; of the fake backend, whose time passes faster, since the start.
pub(crate) fn stamp(record: &Record) -> String {
    let seconds = record.interval.map_or(0, |interval| interval.end_ns / 1_000_000_000);
    match (model::is_synthetic(record), record.time.get(11..19)) {
        (false, Some(time)) => time.to_owned(),
        _ => format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}
