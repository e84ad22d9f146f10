//! The table of findings: one row for each thing that `doctor` found.

use pciescope_core::{Finding, Record, Severity};

use super::table::Get::{Bool, List, Text, Time, Whole};
use super::table::{Column, Leaf, Rows, micros, text};

/// A row: a finding of a record.
pub struct Row<'r> {
    number: u64,
    record: &'r Record,
    finding: &'r Finding,
}

/// The table.
pub struct Findings;

impl Rows for Findings {
    type Row<'r> = Row<'r>;

    fn rows(number: u64, record: &Record) -> Vec<Row<'_>> {
        record.findings.iter().map(|finding| Row { number, record, finding }).collect()
    }

    fn weight(_: &Row) -> usize {
        0
    }

    fn columns<'r>() -> Vec<Column<Row<'r>>> {
        vec![
            ("record", Whole(64, |row: &Row| Some(row.number))),
            ("run", Text(|row: &Row| Some(row.record.run.clone()))),
            ("time", Time(|row: &Row| micros(&row.record.time))),
            ("label", Text(|row: &Row| row.record.label.clone())),
            ("check", Text(|row: &Row| Some(row.finding.check.clone()))),
            ("severity", Text(|row: &Row| Some(severity(row.finding.severity).to_owned()))),
            ("silenced", Bool(|row: &Row| Some(row.finding.silenced))),
            ("device", Text(|row: &Row| Some(row.finding.bdf?.to_string()))),
            ("text", Text(|row: &Row| Some(row.finding.text.clone()))),
            ("consequence", Text(|row: &Row| text(&row.finding.consequence))),
            ("remedy", Text(|row: &Row| text(&row.finding.remedy))),
            (
                "evidence",
                List(vec![
                    (
                        "source",
                        Leaf::Text(|row: &Row| {
                            Some(row.finding.evidence.iter().map(|seen| seen.source.clone()).collect())
                        }),
                    ),
                    (
                        "value",
                        Leaf::Text(|row: &Row| {
                            Some(row.finding.evidence.iter().map(|seen| seen.value.clone()).collect())
                        }),
                    ),
                ]),
            ),
        ]
    }
}

/// As the records write it.
fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Problem => "problem",
    }
}
