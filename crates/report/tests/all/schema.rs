//! docs/record.schema.json against the types, and records against it: a second reading of the format that shares no code
//! with the first. After a wanted change: `UPDATE_GOLDEN=1 cargo test -p pciescope-report --test all schema::`, then read the diff.

use std::path::{Path, PathBuf};

use jsonschema::Validator;
use pciescope_core::Identity;
use pciescope_report::{import, jsonl};
use serde_json::{Value, json};

use crate::sample::readout;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn file() -> PathBuf {
    root().join("docs/record.schema.json")
}

fn validator() -> Validator {
    jsonschema::draft202012::new(&serde_json::from_slice(&std::fs::read(file()).unwrap()).unwrap()).unwrap()
}

/// What the schema has against a record.
fn faults(validator: &Validator, record: &Value) -> Vec<String> {
    validator.iter_errors(record).map(|fault| format!("{}: {fault}", fault.instance_path())).collect()
}

/// The JSON lines of records as they are written today.
fn lines(records: &[pciescope_core::Record]) -> Vec<Value> {
    let mut writer = jsonl::Writer::new(Vec::new());
    pciescope_core::Sink::put_all(&mut writer, records).unwrap();
    let text = String::from_utf8(writer.into_inner()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_file_is_what_the_types_say() {
    let got = format!("{:#}\n", pciescope_core::schema::document());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(file(), &got).unwrap();
    }
    let want = std::fs::read_to_string(file()).unwrap_or_default();
    let differs = want.lines().zip(got.lines()).position(|(want, got)| want != got);
    assert!(
        want == got,
        "docs/record.schema.json:{} is not what the types say; if the types are right, write it anew with \
         `UPDATE_GOLDEN=1 cargo test -p pciescope-report --test all schema::`, and say in docs/record.md what changed",
        differs.map_or(0, |line| line + 1)
    );
}

#[test]
fn every_record_of_the_tests_is_as_the_schema_says() {
    let validator = validator();
    let mut seen = 0;
    let mut check = |name: &str, records: Vec<Value>| {
        for (number, record) in records.iter().enumerate() {
            let faults = faults(&validator, record);
            assert!(faults.is_empty(), "{name}, record {}: {faults:#?}", number + 1);
            seen += 1;
        }
    };
    let demo = std::fs::read_to_string(root().join("tests/records/demo.jsonl")).unwrap();
    check("demo.jsonl", demo.lines().map(|line| serde_json::from_str(line).unwrap()).collect());
    check("the sample", lines(&jsonl::read_records(Path::new(jsonl::SAMPLE)).unwrap().records));
    let identity = Identity {
        run: "00000000000000c1".to_owned(),
        verb: "import".to_owned(),
        label: None,
        time: Some("2026-11-21T10:00:00Z".to_owned()),
    };
    for entry in std::fs::read_dir(root().join("tests/transcripts")).unwrap() {
        let path = entry.unwrap().path();
        if let Ok(log) = import::read(&path, None, &identity) {
            check(&path.display().to_string(), lines(&log.records));
        }
    }
    check("readouts", lines(&readout::run()));
    check("a sweep", lines(&readout::sweep()));
    assert!(seen > 700, "only {seen} records were there to look at");
}

/// A record with a value of every kind that the schema looks at.
fn sound() -> Value {
    json!({
        "schema": 1, "run": "00000000000000a1", "time": "2026-11-21T09:00:00.125Z", "verb": "latency mmio",
        "test": "mmio-read",
        "device": { "bdf": "10000:e1:1f.7", "vendor": 32902, "device": 4307, "subsystem_vendor": 0,
            "subsystem_device": 0, "class": 131072, "name": "x", "msix_vectors": 0, "msi_vectors": 0,
            "path": ["0000:00:1c.0"] },
        "target": { "bar": 0, "offset": 8, "width": 4 },
        "cpu": { "cpu": 3, "node": 0 },
        "instance": { "scope": "port" },
        "stream": { "function": "func_sca", "is_fused": true, "samples": 16, "check": "lab:1", "group": 0 },
        "method": { "backend": "kmod", "batch": 1, "order": "sequential", "gap_ns": 0, "irqs_off": true, "emulated": false },
        "histograms": { "latency": { "count": 2, "min_ns": 1.0, "mean_ns": 1.5, "max_ns": 2.0, "sum_ps": "3000",
            "min_ps": 1000, "max_ps": 2000, "buckets": [[1000, 1], [2000, 1]] } },
        "metrics": { "rate": { "value": 5, "unit": "bytes/s" }, "lost": { "value": null, "unit": "1" },
            "share": { "value": 99.5, "unit": "%", "running": 0.5, "at_least": true } },
        "interval": { "start_ns": 0, "end_ns": 18446744073709551615_u64 },
        "findings": [{ "check": "link-width", "severity": "warning", "text": "x", "consequence": "y", "remedy": "z" }],
        "warnings": [{ "code": "guest", "text": "x", "hint": "y" }],
        "error": { "code": "all-ones", "text": "x" },
        "plan": { "mmio": { "bdf": "0000:01:00.0", "test": "read", "bar": 0, "offset": 0, "width": 4, "value": 0,
            "count": 1, "duration_ns": 0, "gap_ns": 0, "batch": 1, "order": { "interleaved": { "rounds": 2 } },
            "cpus": "0-3,8", "ones_ok": false, "raw": false } },
    })
}

#[test]
fn a_sound_record_and_fields_to_come_are_taken() {
    let validator = validator();
    assert_eq!(faults(&validator, &sound()), [""; 0]);
    let mut later = sound();
    for place in ["", "/device", "/metrics/rate", "/histograms/latency", "/plan/mmio", "/findings/0"] {
        let object = later.pointer_mut(place).and_then(Value::as_object_mut).unwrap();
        object.insert("field_of_a_later_version".to_owned(), json!({ "a": [1] }));
    }
    assert_eq!(faults(&validator, &later), [""; 0]);
}

#[test]
fn every_mutation_is_found() {
    let validator = validator();
    let cases = [
        ("/schema", json!(2)),
        ("/schema", json!("1")),
        ("/run", json!("00000000000000A1")),
        ("/run", json!("a1")),
        ("/time", json!("yesterday")),
        ("/time", json!("2026-11-21T09:00:00+01:00")),
        ("/verb", json!("")),
        ("/test", json!("mmio read")),
        ("/label", json!(null)),
        ("/device/bdf", json!("00:1c.0")),
        ("/device/bdf", json!("0000:00:20.0")),
        ("/device/bdf", json!("0000:00:1c.8")),
        ("/device/path/0", json!("root")),
        ("/device/vendor", json!(65536)),
        ("/device/class", json!(16777216)),
        ("/device/msix_vectors", json!(-1)),
        ("/target/bar", json!(6)),
        ("/target/width", json!(3)),
        ("/target/offset", json!(-8)),
        ("/cpu/cpu", json!("3")),
        ("/cpu/cpu", json!(1.5)),
        ("/instance/scope", json!("socket")),
        ("/stream/function", json!("")),
        ("/stream/samples", json!(0)),
        ("/stream/check", json!("lab")),
        ("/stream/is_fused", json!("yes")),
        ("/method/batch", json!(0)),
        ("/method/order", json!("random")),
        ("/method/clock_hz", json!(0)),
        ("/histograms/latency/count", json!(-1)),
        ("/histograms/latency/sum_ps", json!(3000)),
        ("/histograms/latency/sum_ps", json!("3e3")),
        ("/histograms/latency/buckets", json!([[1000, 1, 1]])),
        ("/histograms/latency/buckets", json!([[1000]])),
        ("/histograms/latency/buckets", json!([[1000, -1]])),
        ("/metrics/rate/value", json!("5")),
        ("/metrics/rate/unit", json!("furlongs")),
        ("/metrics/rate/unit", json!("bytes/")),
        ("/metrics/share/running", json!(1.5)),
        ("/interval/start_ns", json!(-1)),
        ("/findings/0/severity", json!("fatal")),
        ("/warnings/0/code", json!("Guest!")),
        ("/error/text", json!(7)),
        ("/plan", json!({ "cooking": {} })),
        ("/plan/mmio/test", json!("peek")),
        ("/plan/mmio/cpus", json!("0-")),
        ("/plan/mmio/order", json!({ "interleaved": {} })),
        ("/hot_spots", json!([{ "percent": 101, "object": "a", "symbol": "b", "is_kernel": true }])),
    ];
    for (place, value) in cases {
        let mut record = sound();
        let (parent, field) = place.rsplit_once('/').unwrap();
        match record.pointer_mut(parent).unwrap() {
            Value::Array(all) => all[field.parse::<usize>().unwrap()] = value.clone(),
            object => object[field] = value.clone(),
        }
        let found: Vec<String> =
            validator.iter_errors(&record).map(|fault| fault.instance_path().to_string()).collect();
        // A plan is one of several: what is wrong in one is reported of all.
        let is_it = |at: &String| at.starts_with(place) || at == "/plan" && place.starts_with("/plan");
        assert!(found.iter().any(is_it), "{place} = {value} was taken: {found:?}");
    }
    for place in
        ["/schema", "/run", "/time", "/verb", "/test", "/metrics/rate/unit", "/metrics/rate/value", "/warnings/0/hint"]
            .into_iter()
            .chain(["/histograms/latency/buckets", "/device/vendor", "/interval/end_ns", "/findings/0/remedy"])
    {
        let mut record = sound();
        let (parent, field) = place.rsplit_once('/').unwrap();
        record.pointer_mut(parent).and_then(Value::as_object_mut).unwrap().remove(field).unwrap();
        let faults = faults(&validator, &record);
        assert!(faults.iter().any(|fault| fault.contains(&format!("{field:?}"))), "without {place}: {faults:?}");
    }
}
