//! Records that the program wrote: each has to be what docs/record.schema.json says of one, and is read as a record only then.

use std::sync::OnceLock;

use jsonschema::Validator;
use pciescope_core::Record;
use serde_json::Value;

static SCHEMA: &str = include_str!("../../../../docs/record.schema.json");

/// The records of JSON lines.
#[track_caller]
pub fn parse(text: &str) -> Vec<Record> {
    text.lines().map(of_line).collect()
}

/// The record of a line.
#[track_caller]
pub fn of_line(line: &str) -> Record {
    static VALIDATOR: OnceLock<Validator> = OnceLock::new();
    let validator = VALIDATOR.get_or_init(|| {
        let schema: Value = serde_json::from_str(SCHEMA).expect("the schema is JSON");
        jsonschema::draft202012::new(&schema).expect("the schema is one")
    });
    let value: Value = serde_json::from_str(line).unwrap_or_else(|err| panic!("{err}: {line}"));
    let faults: Vec<String> =
        validator.iter_errors(&value).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
    assert!(faults.is_empty(), "not as docs/record.schema.json says: {faults:#?}\n{line}");
    serde_json::from_value(value).unwrap_or_else(|err| panic!("{err}: {line}"))
}
