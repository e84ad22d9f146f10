//! What `doctor` found, for a person: by device from the root port down, then the machine, the worst first; then what
//! was silenced and what could not be checked, and a line with the counts.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::{Bdf, Ended, Finding, Record, Severity};

use super::layout::wrap;
use super::{Block, Page, WIDTH};
use crate::model::Section;
use crate::text::{self, clean, path};

/// The test of the records of `doctor`.
pub(crate) const TEST: &str = "doctor";
/// The code of a warning that says what was not checked; its text begins with the check's name.
pub(crate) const NOT_CHECKED: &str = "not-checked";
/// The metric of the machine's record that says how many checks there were.
const CHECKS: &str = "checks";

/// From so many functions on with the same finding only the first is shown in full.
const SAME: usize = 3;

pub(super) fn heading(out: &mut Page, section: &Section) {
    out.blocks.push(Block::Section(format!("{}, {}", text::test_title(TEST), clean(&section.first().time))));
}

pub(super) fn write(out: &mut Page, section: &Section) {
    for piece in pieces(&section.records, WIDTH) {
        match piece {
            Piece::Heading(title) => out.heading(&title),
            Piece::Line(line) => out.fixed(&line),
        }
    }
}

/// The same as text of at most `width` columns where words allow; ends with a newline.
pub fn text(records: &[Record], width: usize) -> String {
    let records: Vec<&Record> = records.iter().filter(|record| &*record.test == TEST).collect();
    let mut text = String::new();
    for piece in pieces(&records, width) {
        match piece {
            Piece::Heading(title) => {
                let lines = wrap(&title, width, "", "  ");
                text += if text.is_empty() { "" } else { "\n" };
                text += &lines.join("\n");
            }
            Piece::Line(line) => text += line.trim_end(),
        }
        text.push('\n');
    }
    text
}

enum Piece {
    Heading(String),
    Line(String),
}

fn pieces(records: &[&Record], width: usize) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut ordered = records.to_vec();
    // Devices as they hang together; the machine has no path and comes last.
    ordered.sort_by_key(|record| (record.device.is_none(), place(record)));
    let same = alike(&ordered);
    let mut shown = BTreeSet::new();
    for record in &ordered {
        let mut findings: Vec<&Finding> = record.findings.iter().filter(|finding| !finding.silenced).collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings.retain(|finding| {
            let others = same.get(&kind(finding)).map_or(0, Vec::len);
            others <= SAME || shown.insert(kind(finding))
        });
        if findings.is_empty() {
            continue;
        }
        pieces.push(Piece::Heading(title(record)));
        for (number, finding) in findings.into_iter().enumerate() {
            if number > 0 {
                pieces.push(Piece::Line(String::new()));
            }
            one(&mut pieces, finding, same.get(&kind(finding)).map_or(&[][..], Vec::as_slice), width);
        }
    }
    for (title, lines) in
        [("Silenced", silenced_lines(&ordered, width)), ("Not checked", not_checked_lines(&ordered, width))]
    {
        if !lines.is_empty() {
            pieces.push(Piece::Heading(title.to_owned()));
            pieces.extend(lines.into_iter().map(Piece::Line));
        }
    }
    pieces.push(Piece::Line(String::new()));
    pieces.extend(summary_lines(records, width).into_iter().map(Piece::Line));
    pieces
}

/// Where a function is: the bridges above, and itself.
fn place(record: &Record) -> Vec<String> {
    let Some(device) = &record.device else { return Vec::new() };
    device.path.iter().chain(&device.bdf).map(|bdf| format!("{bdf:>16}")).collect()
}

fn title(record: &Record) -> String {
    let Some(device) = &record.device else { return "The machine".to_owned() };
    let mut place = device.path.clone();
    place.extend(device.bdf);
    let driver = device.driver.as_deref().map(|driver| format!(", driver {driver}")).unwrap_or_default();
    clean(&format!("{}: {}{driver}", path(&place), device.name))
}

/// What makes findings of several functions the same: all but addresses.
pub(crate) fn kind(finding: &Finding) -> (String, Severity, String) {
    let is_address = |word: &&str| word.trim_end_matches([',', ';', ':']).parse::<Bdf>().is_ok();
    let words: Vec<&str> = finding.text.split(' ').filter(|word| !is_address(word)).collect();
    (finding.check.clone(), finding.severity, words.join(" "))
}

/// The functions of each kind of finding that is not silenced.
fn alike(records: &[&Record]) -> BTreeMap<(String, Severity, String), Vec<String>> {
    let mut all: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for finding in records.iter().flat_map(|record| &record.findings).filter(|finding| !finding.silenced) {
        if let Some(bdf) = finding.bdf {
            all.entry(kind(finding)).or_default().push(bdf.to_string());
        }
    }
    all
}

fn one(pieces: &mut Vec<Piece>, finding: &Finding, same: &[String], width: usize) {
    let mark = match finding.severity {
        Severity::Problem => "!! problem",
        Severity::Warning => "!  warning",
        Severity::Note => "-  note   ",
    };
    pieces.push(Piece::Line(format!("{mark}  {}", clean(&finding.check))));
    let own = finding.bdf.map(|bdf| bdf.to_string()).unwrap_or_default();
    let others: Vec<&str> = same.iter().map(String::as_str).filter(|bdf| *bdf != own).collect();
    let others = if same.len() > SAME { others.join(", ") } else { String::new() };
    pieces.extend(in_full(finding, ("also at", &others), width).into_iter().map(Piece::Line));
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

#[cfg(test)]
mod tests {
    use pciescope_core::Record;

    use super::*;

    #[test]
    fn hostile_words_do_not_reach_the_terminal() {
        let shown = |check: &str, words: &str| {
            let finding = Finding { check: check.into(), text: words.into(), ..Finding::default() };
            text(&[Record { test: TEST.into(), findings: vec![finding], ..Record::default() }], 80)
        };
        let text = shown("x\x1b[2J", "a\nb\x07");
        assert!(!text.contains(['\x1b', '\x07']), "{text:?}");
        assert_eq!(text.lines().count(), shown("x", "a b").lines().count(), "{text}");
    }
}
