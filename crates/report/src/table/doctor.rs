//! What `doctor` found, for a person: by device from the root port down, then the machine, the worst first; then what
//! was silenced and what could not be checked, and a line with the counts.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::{Finding, Record, Severity};

use super::{Block, Page, WIDTH};
use crate::facts::doctor::{Kinds, SAME, TEST, in_full, kind, not_checked_lines, silenced_lines, summary_lines};
use crate::layout::wrap;
use crate::model::Section;
use crate::text::{self, clean, path};

pub(super) fn heading(out: &mut Page, section: &Section) {
    out.blocks.push(Block::Section(format!("{}, {}", text::test_title(TEST), clean(&section.first().time))));
}

pub(super) fn write(out: &mut Page, section: &Section) {
    out.blocks.extend(blocks(&section.records, WIDTH));
}

/// The same as text of at most `width` columns where words allow; ends with a newline.
pub fn text(records: &[Record], width: usize) -> String {
    let records: Vec<&Record> = records.iter().filter(|record| &*record.test == TEST).collect();
    let mut text = String::new();
    for block in blocks(&records, width) {
        match block {
            Block::Heading(title) => {
                text += if text.is_empty() { "" } else { "\n" };
                text += &wrap(&title, width, "", "  ").join("\n");
            }
            Block::Fixed(line) => text += line.trim_end(),
            _ => {}
        }
        text.push('\n');
    }
    text
}

fn blocks(records: &[&Record], width: usize) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut ordered = records.to_vec();
    // Devices as they hang together; the machine has no path and comes last.
    ordered.sort_by_key(|record| (record.device.is_none(), place(record)));
    let same: BTreeMap<_, Vec<String>> =
        Kinds::of(&ordered, kind).0.into_iter().map(|one| (kind(one.finding), one.places)).collect();
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
        blocks.push(Block::Heading(title(record)));
        for (number, finding) in findings.into_iter().enumerate() {
            if number > 0 {
                blocks.push(Block::Fixed(String::new()));
            }
            one(&mut blocks, finding, same.get(&kind(finding)).map_or(&[][..], Vec::as_slice), width);
        }
    }
    for (title, lines) in
        [("Silenced", silenced_lines(&ordered, width)), ("Not checked", not_checked_lines(&ordered, width))]
    {
        if !lines.is_empty() {
            blocks.push(Block::Heading(title.to_owned()));
            blocks.extend(lines.into_iter().map(Block::Fixed));
        }
    }
    blocks.push(Block::Fixed(String::new()));
    blocks.extend(summary_lines(records, width).into_iter().map(Block::Fixed));
    blocks
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

fn one(blocks: &mut Vec<Block>, finding: &Finding, same: &[String], width: usize) {
    let mark = match finding.severity {
        Severity::Problem => "!! problem",
        Severity::Warning => "!  warning",
        Severity::Note => "-  note   ",
    };
    blocks.push(Block::Fixed(format!("{mark}  {}", clean(&finding.check))));
    let own = finding.bdf.map(|bdf| bdf.to_string()).unwrap_or_default();
    let others: Vec<&str> = same.iter().map(String::as_str).filter(|bdf| *bdf != own).collect();
    let others = if same.len() > SAME { others.join(", ") } else { String::new() };
    blocks.extend(in_full(finding, ("also at", &others), width).into_iter().map(Block::Fixed));
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
