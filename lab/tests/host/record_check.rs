//! The check through which every record of the suites goes: what is not as docs/record.schema.json says ends the test. Needs
//! no virtual hardware.

use std::panic::catch_unwind;

use serde_json::{Value, json};

#[path = "../vm/support/records.rs"]
#[allow(dead_code)]
mod records;

/// A record of a run, with a histogram.
fn sound() -> Value {
    let text = include_str!("../../../tests/records/demo.jsonl");
    serde_json::from_str(text.lines().find(|line| line.contains("\"buckets\"")).unwrap()).unwrap()
}

/// What the check says of a record, where it does not take it.
fn refusal(record: &Value) -> Option<String> {
    let line = record.to_string();
    let why = catch_unwind(|| records::of_line(&line)).err()?;
    Some(why.downcast_ref::<String>().expect("a panic with words").clone())
}

#[test]
fn a_record_that_the_program_writes_is_taken() {
    let text = include_str!("../../../tests/records/demo.jsonl");
    assert_eq!(records::parse(text).len(), text.lines().count());
    assert_eq!(refusal(&sound()), None);
}

/// Each of these is read as a record: only the schema says that it is none.
#[test]
fn a_record_that_only_the_schema_objects_to_is_refused_with_its_fault() {
    for (place, value) in [
        ("/run", json!("a run")),
        ("/time", json!("yesterday")),
        ("/schema", json!(2)),
        ("/target/width", json!(3)),
        ("/metrics/samples_lost/unit", json!("furlongs")),
    ] {
        let mut record = sound();
        *record.pointer_mut(place).unwrap_or_else(|| panic!("no {place}")) = value;
        assert!(serde_json::from_value::<pciescope_core::Record>(record.clone()).is_ok(), "{place}");
        let why = refusal(&record).unwrap_or_else(|| panic!("{place} was taken"));
        assert!(why.contains("not as docs/record.schema.json says") && why.contains(place), "{place}: {why}");
        let lines = format!("{}\n{record}\n", sound());
        assert!(catch_unwind(|| records::parse(&lines)).is_err(), "{place} was taken as the second of two");
    }
}
