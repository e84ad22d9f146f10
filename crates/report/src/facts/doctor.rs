//! What `doctor` found: counts and the worst first; then each kind of finding once, with all places where it stands. Notes
//! have a line each.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::{Bdf, Ended, Finding, Record, Severity, once};

use super::conclusions::{Conclusions, Place, are, quoted};
use super::{Fact, Facts, WIDTH};
use crate::layout::wrap;
use crate::model::{SYNTHETIC, Section, is_synthetic};
use crate::style::{Tone, paint};
use crate::text::{clean, counted, figure};

/// The test of the records of `doctor`.
pub(crate) const TEST: &str = "doctor";
/// The code of a warning that says what was not checked; its text begins with the check's name.
pub(crate) const NOT_CHECKED: &str = "not-checked";
/// The metric of the machine's record that says how many checks there were.
const CHECKS: &str = "checks";

/// From so many functions on with the same finding only the first is shown in full.
pub(crate) const SAME: usize = 3;

/// Upper limit of findings in the summary.
const WORST: usize = 3;
/// Upper limit of the places of a finding.
const PLACES: usize = 8;

/// The facts among those of other records.
pub(super) fn facts(section: &Section) -> Facts {
    let mut facts = Facts { title: summary(&section.records), ..Facts::default() };
    facts.mark(section.is_synthetic(), false, "");
    let kinds = Kinds::of(&section.records, kind);
    let bad = kinds.0.iter().filter(|kind| kind.finding.severity > Severity::Note);
    facts.lines.extend(bad.take(WORST).flat_map(|kind| line(kind, WIDTH)));
    facts.tiles = tiles(section);
    facts.below = Some("--all shows each finding with what was seen and what to do".to_owned());
    facts
}

fn tiles(section: &Section) -> Vec<Fact> {
    let findings = || section.records.iter().flat_map(|record| &record.findings).filter(|one| !one.silenced);
    let of = |name, severity, tone| {
        let own = || findings().filter(|finding| finding.severity == severity);
        let count = own().count();
        let which = once(own().map(|finding| clean(&finding.check))).join(", ");
        Fact { tone: if count == 0 { Tone::Good } else { tone }, ..Fact::plain(name, count.to_string(), which) }
    };
    let checks = section.sum("checks").map_or("-".to_owned(), figure);
    let functions = section.records.iter().filter(|record| record.device.is_some()).count();
    vec![
        of("Problems", Severity::Problem, Tone::Bad),
        of("Warnings", Severity::Warning, Tone::Doubt),
        of("Notes", Severity::Note, Tone::Plain),
        Fact::plain("Checks", checks, format!("of {functions} functions and the machine")),
    ]
}

/// Lines of a screen, less the two of the command and the next prompt.
const SCREEN: usize = 22;

/// What fits a screen of 24 lines: each kind of finding in full, or else a line or two for each check that found something,
/// the worst first. Ends with a newline.
pub fn short(records: &[Record], width: usize) -> String {
    let records: Vec<&Record> = records.iter().filter(|record| &*record.test == TEST).collect();
    let head = head(&records, width);
    let mut last = vec![String::new()];
    // Of all that keeps a check from looking, the user can lift one at once.
    let warnings = || records.iter().flat_map(|record| &record.warnings);
    if let Some(root) = warnings().find(|warning| warning.hint.contains("as root (")) {
        last.push(format!("to check more: {}", clean(&root.hint)));
    }
    last.push(paint(Tone::Dim, "--all or --only NAME shows evidence, effect and cure, and what was not checked"));
    let room = SCREEN.saturating_sub(head.len() + last.len());
    let mut found = sections(&Kinds::of(&records, kind), width);
    if found.len() > room {
        found = lines_of_checks(&records, width, room);
    }
    head.into_iter().chain(found).chain(last).map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// A line or two for each check that found something, in `room` lines.
fn lines_of_checks(records: &[&Record], width: usize, room: usize) -> Vec<String> {
    let mut kinds = Kinds::of(records, |finding| (finding.check.clone(), finding.severity, String::new()));
    // What is wrong with the machine is wrong with each device.
    kinds.0.sort_by_key(|kind| std::cmp::Reverse((kind.finding.severity, kind.places.is_empty(), kind.places.len())));
    let mut lines = Vec::new();
    for (number, kind) in kinds.0.iter().enumerate() {
        let (own, left) = (line(kind, width), kinds.0.len() - number);
        if lines.len() + own.len() + usize::from(left > 1) > room {
            lines.push(format!("   and findings of {}", counted(left, "other check")));
            break;
        }
        lines.extend(own);
    }
    lines
}

/// The counts, and whether the machine is a synthetic one.
fn head(records: &[&Record], width: usize) -> Vec<String> {
    let mut lines = summary_lines(records, width);
    lines.iter_mut().for_each(|line| *line = paint(Tone::Strong, line));
    if records.iter().any(|record| is_synthetic(record)) {
        lines.push(paint(Tone::Doubt, &format!("  {SYNTHETIC}")));
    }
    lines
}

/// The findings of records as text of at most `width` columns where words allow, each kind in full. Ends with a newline.
pub fn text(records: &[Record], width: usize) -> String {
    let records: Vec<&Record> = records.iter().filter(|record| &*record.test == TEST).collect();
    let mut lines = head(&records, width);
    lines.extend(sections(&Kinds::of(&records, kind), width));
    for (title, own) in
        [("Silenced", silenced_lines(&records, width)), ("Not checked", not_checked_lines(&records, width))]
    {
        if !own.is_empty() {
            lines.extend([String::new(), paint(Tone::Strong, title)]);
            lines.extend(own);
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Problems and warnings in full, notes in a line or two.
fn sections(kinds: &Kinds, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for (severity, title) in [(Severity::Problem, "Problems"), (Severity::Warning, "Warnings")] {
        let own: Vec<&FindingKind> = kinds.0.iter().filter(|kind| kind.finding.severity == severity).collect();
        if !own.is_empty() {
            lines.extend([String::new(), paint(Tone::Strong, title)]);
        }
        for (number, kind) in own.into_iter().enumerate() {
            if number > 0 {
                lines.push(String::new());
            }
            whole(&mut lines, kind, width);
        }
    }
    let notes: Vec<&FindingKind> = kinds.0.iter().filter(|kind| kind.finding.severity == Severity::Note).collect();
    if !notes.is_empty() {
        lines.extend([String::new(), paint(Tone::Strong, "Notes (--all has what was seen and what to do)")]);
    }
    lines.extend(notes.into_iter().flat_map(|kind| line(kind, width)));
    lines
}

/// Findings that say the same of several functions.
pub(crate) struct FindingKind<'r> {
    pub finding: &'r Finding,
    /// The functions; none for the machine.
    pub places: Vec<String>,
    /// Name and driver of the first.
    name: String,
}

impl FindingKind<'_> {
    /// How many functions more than the first there are.
    fn more(&self) -> String {
        match self.places.len() {
            0 | 1 => String::new(),
            many => format!(" (and {} more)", many - 1),
        }
    }
}

/// The kinds of findings that are not silenced, the worst first, and those of more functions before those of fewer.
pub(crate) struct Kinds<'r>(pub Vec<FindingKind<'r>>);

impl<'r> Kinds<'r> {
    /// Findings with the same key are of one kind.
    pub fn of<K: PartialEq>(records: &[&'r Record], key: impl Fn(&Finding) -> K) -> Self {
        let mut kinds: Vec<FindingKind> = Vec::new();
        let mut keys = Vec::new();
        for record in records {
            for finding in record.findings.iter().filter(|finding| !finding.silenced) {
                let key = key(finding);
                let place = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
                    keys.push(key);
                    let device = record.device.as_ref();
                    let driver = device.and_then(|device| device.driver.as_deref());
                    let driver = driver.map(|driver| format!(", driver {driver}")).unwrap_or_default();
                    let name = device.map(|device| clean(&format!("{}{driver}", device.name))).unwrap_or_default();
                    kinds.push(FindingKind { finding, places: Vec::new(), name });
                    kinds.len() - 1
                });
                kinds[place].places.extend(finding.bdf.map(|bdf| bdf.to_string()));
            }
        }
        kinds.sort_by_key(|kind| std::cmp::Reverse((kind.finding.severity, kind.places.len())));
        Kinds(kinds)
    }
}

fn mark(severity: Severity) -> String {
    match severity {
        Severity::Problem => paint(Tone::Bad, "!!"),
        Severity::Warning => paint(Tone::Doubt, "! "),
        Severity::Note => "- ".to_owned(),
    }
}

/// A finding in as few lines as it takes.
fn line(kind: &FindingKind, width: usize) -> Vec<String> {
    let check = clean(&kind.finding.check);
    let words = format!("{check}: {}{}", clean(&kind.finding.text), kind.more());
    let mut lines = wrap(&words, width, "   ", "   ");
    if let Some(first) = lines.first_mut() {
        *first = format!("{} {}", mark(kind.finding.severity), first.trim_start());
    }
    lines
}

fn whole(lines: &mut Vec<String>, kind: &FindingKind, width: usize) {
    let finding = kind.finding;
    let at = match kind.places.as_slice() {
        [] => String::new(),
        [one] => format!("  {one} {}", kind.name),
        many => format!("  {} functions", many.len()),
    };
    let check = clean(&finding.check);
    let mut heading = wrap(&clean(at.trim()), width, &format!("   {check}  "), "           ").into_iter();
    let first = heading.next().unwrap_or_default();
    let behind = first.get(3 + check.len()..).unwrap_or_default();
    lines.push(format!("{} {}{behind}", mark(finding.severity), paint(Tone::Strong, &check)));
    lines.extend(heading);
    let unique: BTreeSet<&str> = kind.places.iter().map(String::as_str).filter(|_| kind.places.len() > 1).collect();
    let more = unique.len().saturating_sub(PLACES);
    let named: Vec<&str> = unique.into_iter().take(PLACES).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    lines.extend(in_full(finding, ("at", &format!("{}{more}", named.join(", "))), width));
}

/// What makes findings of several functions the same: all but addresses.
pub(crate) fn kind(finding: &Finding) -> (String, Severity, String) {
    let is_address = |word: &&str| word.trim_end_matches([',', ';', ':']).parse::<Bdf>().is_ok();
    let words: Vec<&str> = finding.text.split(' ').filter(|word| !is_address(word)).collect();
    (finding.check.clone(), finding.severity, words.join(" "))
}

/// What was found, what was seen, its effect and what to do; then the functions `at` which it was, where they are given.
pub(crate) fn in_full(finding: &Finding, at: (&str, &str), width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut put = |label: &str, text: &str| {
        let (first, next) = (format!("   {label:<8}"), " ".repeat(11));
        lines.extend(wrap(&clean(text), width, &first, &next));
    };
    put("", &finding.text);
    for (number, seen) in finding.evidence.iter().enumerate() {
        let value = if seen.value.trim().is_empty() { "(empty)" } else { &seen.value };
        put(if number == 0 { "seen" } else { "" }, &format!("{}: {value}", seen.source));
    }
    put("effect", &finding.consequence);
    put("do", &finding.remedy);
    if !at.1.is_empty() {
        put(at.0, at.1);
    }
    lines
}

fn at(finding: &Finding) -> String {
    finding.bdf.map(|bdf| format!("@{bdf}")).unwrap_or_default()
}

/// What was silenced, and by whom and why. Empty where nothing was.
pub(crate) fn silenced_lines(records: &[&Record], width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for finding in records.iter().flat_map(|record| &record.findings).filter(|finding| finding.silenced) {
        // Whoever silenced it left the reason as the last evidence.
        let why = finding.evidence.last().map(|seen| format!(" ({}: {})", seen.source, seen.value)).unwrap_or_default();
        let line = clean(&format!("{}{}{why}", finding.check, at(finding)));
        lines.extend(wrap(&line, width, "   ", "     "));
    }
    lines
}

/// The checks that could not look, with how often, by why and what to do. Empty where all could.
pub(crate) fn not_checked_lines(records: &[&Record], width: usize) -> Vec<String> {
    // By why and what to do: the checks, and where.
    type Unchecked<'r> = (BTreeSet<&'r str>, BTreeSet<String>);
    let mut reasons: BTreeMap<(&str, &str), Unchecked> = BTreeMap::new();
    for record in records {
        for (check, why, hint) in unchecked(record) {
            let (checks, places) = reasons.entry((why, hint)).or_default();
            checks.insert(check);
            places.extend(record.device.as_ref().and_then(|device| device.bdf).map(|bdf| bdf.to_string()));
        }
    }
    let mut lines = Vec::new();
    for ((why, hint), (checks, places)) in reasons {
        let names: Vec<&str> = checks.into_iter().collect();
        let at = match places.len() {
            0 => String::new(),
            1..=SAME => format!(" at {}", places.into_iter().collect::<Vec<_>>().join(", ")),
            many => format!(" at {many} functions"),
        };
        let line = clean(&format!("{}{at}: {why}", names.join(", ")));
        lines.extend(wrap(&line, width, "?  ", "   "));
        lines.extend(wrap(&clean(hint), width, "   do      ", &" ".repeat(11)));
    }
    lines
}

/// Check, reason and remedy of what a record says was not checked.
fn unchecked(record: &Record) -> impl Iterator<Item = (&str, &str, &str)> {
    let warnings = record.warnings.iter().filter(|warning| warning.code == NOT_CHECKED);
    warnings.map(|warning| {
        let (check, why) = warning.text.split_once(": ").unwrap_or((&warning.text, ""));
        (check, why, warning.hint.as_str())
    })
}

/// The summary: what was found, then how the other checks ended.
pub(crate) fn summary_lines(records: &[&Record], width: usize) -> Vec<String> {
    let summary = summary(records);
    let (found, others) = summary.split_once("; ").unwrap_or((&summary, ""));
    let mut lines = wrap(found, width, "", "  ");
    lines.extend(wrap(others, width, "  ", "  ").into_iter().filter(|line| !line.trim().is_empty()));
    lines
}

/// `54 checks of 8 functions and the machine: 1 problem, no warning, 2 notes, 1 silenced; 40 fine, 3 not checked`.
pub(crate) fn summary(records: &[&Record]) -> String {
    let functions = records.iter().filter(|record| record.device.is_some()).count();
    let checks = records.iter().find_map(|record| record.metrics.get(CHECKS)).map_or(0.0, |metric| metric.value);
    let findings = || records.iter().flat_map(|record| &record.findings);
    let count = |severity| findings().filter(|finding| !finding.silenced && finding.severity == severity).count();
    let silenced = findings().filter(|finding| finding.silenced).count();
    let unchecked: BTreeSet<&str> =
        records.iter().flat_map(|record| unchecked(record)).map(|(check, ..)| check).collect();
    let idle = for_nothing(records);
    let number = |count: usize, noun: &str| match count {
        0 => format!("no {noun}"),
        1 => format!("1 {noun}"),
        many => format!("{many} {noun}s"),
    };
    let mut parts = vec![
        number(count(Severity::Problem), "problem"),
        number(count(Severity::Warning), "warning"),
        number(count(Severity::Note), "note"),
    ];
    if silenced > 0 {
        parts.push(format!("{silenced} silenced"));
    }
    let others =
        [(fine(records, &unchecked), "fine"), (unchecked.len(), "not checked"), (idle, "with nothing to look at")];
    let others = others.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let others = others.collect::<Vec<_>>().join(", ");
    let what = match functions {
        0 => "the machine".to_owned(),
        many => format!("{} and the machine", number(many, "function")),
    };
    let others = if others.is_empty() { others } else { format!("; {others}") };
    format!("{} of {what}: {}{others}", number(checks as usize, "check"), parts.join(", "))
}

/// How many checks looked, found nothing, and could look everywhere.
fn fine(records: &[&Record], unchecked: &BTreeSet<&str>) -> usize {
    let all = || records.iter().flat_map(|record| &record.checks);
    let of = |ended| all().filter(move |one| one.ended == ended).map(|one| one.check.as_str()).collect::<BTreeSet<_>>();
    of(Ended::Fine).difference(&of(Ended::Found)).filter(|check| !unchecked.contains(*check)).count()
}

/// How many checks are for nothing that is here.
fn for_nothing(records: &[&Record]) -> usize {
    let all = || records.iter().flat_map(|record| &record.checks);
    let is_idle = |ended| ended == Ended::NotApplicable;
    let idle: BTreeSet<&str> = all().filter(|one| is_idle(one.ended)).map(|one| one.check.as_str()).collect();
    let busy: BTreeSet<&str> = all().filter(|one| !is_idle(one.ended)).map(|one| one.check.as_str()).collect();
    idle.difference(&busy).count()
}

pub(super) fn conclude(out: &mut Conclusions, number: usize, section: &Section) {
    let place = Place::Section(number);
    let all = || section.records.iter().flat_map(|record| &record.findings);
    let mut worst: Vec<_> = all().filter(|f| !f.silenced && f.severity != Severity::Note).collect();
    worst.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    for finding in &worst {
        let about = finding.bdf.map(|bdf| bdf.to_string()).filter(|bdf| !finding.text.contains(bdf.as_str()));
        let about = about.map(|bdf| format!("{bdf}: ")).unwrap_or_default();
        let (word, rank) = if finding.severity == Severity::Problem { ("Problem", 1) } else { ("Warning", 4) };
        out.doubt(
            rank,
            place,
            format!("{word} {} by doctor: {about}{}", quoted(&finding.check), quoted(&finding.text)),
        );
        if !finding.remedy.is_empty() {
            out.advise(rank + 1, place, format!("{about}{}", quoted(&finding.remedy)));
        }
    }
    let silenced = all().filter(|finding| finding.silenced).count();
    // Such a warning begins with the name of its check.
    let warnings = section.records.iter().flat_map(|record| &record.warnings).filter(|w| w.code == "not-checked");
    let blind: BTreeSet<&str> = warnings.map(|w| w.text.split(':').next().unwrap_or_default()).collect();
    let checks = section.sum("checks").map(|checks| format!(" in {checks:.0} checks")).unwrap_or_default();
    let found = format!("doctor found no problem and nothing to warn of{checks}");
    match (worst.is_empty(), blind.len(), silenced) {
        (true, 0, 0) => out.good(number, format!("{found}.")),
        (true, blind, silenced) => {
            out.doubt(6, place, format!("{found}; {blind} could not look everywhere, {silenced} silenced."));
        }
        (false, 0, _) => {}
        (false, blind, _) => {
            out.doubt(6, place, format!("{} of doctor could not look everywhere.", counted(blind, "check")));
        }
    }
    if silenced > 0 {
        out.doubt(6, place, format!("{} silenced by the user of doctor.", are(silenced, "finding", "is")));
    }
}
