//! What `doctor` found, for a person: by device from the root port down, then the machine, the worst first; then what
//! was silenced and what could not be checked, and a line with the counts.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::{Finding, Record, Severity};

use super::{Block, Page, WIDTH};
use crate::facts::doctor::{SAME, TEST, in_full, kind, not_checked_lines, silenced_lines, summary_lines};
use crate::layout::wrap;
use crate::model::Section;
use crate::text::{self, clean, path};

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
