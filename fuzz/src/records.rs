//! A file of records of any schema, in every output that is made of records.

use std::path::Path;

use pciescope_core::Sink;
use pciescope_report::print::{markdown, terminal};
use pciescope_report::{compare, csv, facts, html, jsonl, table};

pub fn run(data: &[u8]) {
    let Ok(contents) = jsonl::parse_records(data, Path::new("input")) else { return };
    let records = contents.records;
    let _ = terminal::render(&records);
    let _ = table::render(&records, &table::Options::default());
    let _ = facts::text(&records, 80);
    let _ = markdown::render(&records);
    let _ = html::render(&records);
    let _ = compare::compare(&records, &records, &compare::Criteria::default());
    let mut writer = csv::Writer::with_separator(Vec::new(), b',');
    let _ = writer.put_all(&records);
    // What is written is read again.
    let mut again = jsonl::Writer::new(Vec::new());
    if !records.is_empty() && again.put_all(&records).is_ok() {
        let bytes = again.into_inner();
        let read = jsonl::parse_records(bytes.as_slice(), Path::new("again"));
        assert!(read.is_ok_and(|read| read.records.len() == records.len()), "a record that was written is not read");
    }
}
