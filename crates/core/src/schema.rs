//! The record as JSON Schema (draft 2020-12): docs/record.schema.json, made of the types and of what their types do not say.
//!
//! It describes what is written today. It is open: it allows fields that it does not know, because a reader ignores
//! them.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use crate::histogram::{Histogram, Wire};
use crate::record::SCHEMA;
use crate::{Bdf, CpuList, Record};

impl JsonSchema for Bdf {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Bdf".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Domain, bus, device and function of a PCI function, as `lspci -D` prints them.",
            "type": "string",
            "pattern": "^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\\.[0-7]$",
        })
    }
}

impl JsonSchema for CpuList {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CpuList".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "CPU numbers, as `0-3,8`.",
            "type": "string",
            "pattern": "^([0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*)?$",
        })
    }
}

impl JsonSchema for Histogram {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Histogram".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Wire>()
    }
}

/// Words of units; a unit is one of them, or several joined by `*` and `/`.
const UNITS: &str =
    "1|%|bits|bytes|kB|MB|GB|KiB|MiB|GiB|s|ms|us|ns|ps|cycle|cycles|day|ulp|Joules|Bytes|byte|B|KB|sec|seconds";

/// What a field's type does not say: type, field, keywords that are added. The test fails if such a field no longer
/// exists.
fn refinements() -> Vec<(&'static str, &'static str, Value)> {
    let code = json!({ "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$" });
    let some = json!({ "minLength": 1 });
    let at_least_one = json!({ "minimum": 1 });
    let share = json!({ "exclusiveMinimum": 0, "exclusiveMaximum": 1 });
    let unit = json!({ "pattern": format!("^({UNITS})([*/]({UNITS}))*$") });
    let one_of = |words: &[&str]| json!({ "enum": words });
    // Written as text, because a file of another version may hold a word that this one does not know.
    let same_as = |kind: &str| json!({ "$ref": format!("#/$defs/{kind}") });
    let check = json!({ "pattern": "^(none|same|pattern|lab:[0-9]+)$" });
    vec![
        ("", "schema", json!({ "const": SCHEMA })),
        ("", "run", json!({ "pattern": "^[0-9a-f]{16}$" })),
        (
            "",
            "time",
            json!({ "pattern": "^[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9](\\.[0-9]+)?Z$" }),
        ),
        ("", "verb", some.clone()),
        ("", "label", some.clone()),
        ("", "test", code.clone()),
        ("Bar", "number", json!({ "maximum": 5 })),
        ("Failure", "code", code.clone()),
        ("Checked", "check", code.clone()),
        ("Checked", "why", some.clone()),
        ("Finding", "check", code.clone()),
        ("Function", "class", json!({ "maximum": 0xff_ffff })),
        ("Histogram", "sum_ps", json!({ "pattern": "^[0-9]{1,39}$" })),
        ("HotSpot", "percent", json!({ "type": ["number", "null"], "minimum": 0, "maximum": 100 })),
        ("Instance", "scope", one_of(&["port", "function", "channel", "die", "total", "pmu"])),
        ("Instance", "source", some.clone()),
        ("Instance", "parts", at_least_one.clone()),
        ("Kernel", "isa", one_of(&["scalar", "avx2", "avx512", "neon"])),
        ("Kernel", "output", one_of(&["f32", "f64"])),
        ("Kernel", "sample", one_of(&["u16", "i16"])),
        ("Kernel", "store", one_of(&["cached", "streaming"])),
        ("Kernel", "decimation", at_least_one.clone()),
        ("Kernel", "threads", at_least_one.clone()),
        ("Link", "speed_gts", json!({ "minimum": 0 })),
        ("Link", "max_speed_gts", json!({ "minimum": 0 })),
        ("Location", "bar", json!({ "maximum": 5 })),
        ("Method", "backend", some.clone()),
        ("Method", "batch", at_least_one.clone()),
        ("Method", "clock", some.clone()),
        ("Method", "clock_hz", at_least_one.clone()),
        ("Method", "quantum_ns", json!({ "exclusiveMinimum": 0 })),
        ("Method", "order", one_of(&["sequential", "interleaved", "concurrent"])),
        ("Metric", "value", json!({ "type": ["number", "null"] })),
        ("Metric", "unit", unit),
        ("Metric", "running", share),
        ("ReadoutPlan", "check", check.clone()),
        ("Acquisition", "channels", json!({ "pattern": "^[0-9](-[0-9])?(,[0-9](-[0-9])?)*$" })),
        ("Acquisition", "divider", json!({ "minimum": 2, "maximum": 32 })),
        ("Acquisition", "trigger", json!({ "pattern": "^(now|backplane:[0-7])$" })),
        ("Stream", "path", some.clone()),
        ("Stream", "kind", one_of(&["sis8300", "block", "char", "file"])),
        ("Stream", "access", same_as("Access")),
        ("Stream", "wait", same_as("WaitMode")),
        ("Stream", "function", some),
        ("Stream", "samples", at_least_one.clone()),
        ("Stream", "piece_bytes", at_least_one.clone()),
        ("Stream", "depth", at_least_one.clone()),
        ("Stream", "devices", at_least_one),
        ("Stream", "check", check),
        ("Stream", "sweep", one_of(&["boards", "size", "function", "cpu"])),
        ("Target", "bar", json!({ "maximum": 5 })),
        ("Target", "width", one_of_numbers(&[1, 2, 4, 8])),
        ("Warning", "code", code),
    ]
}

fn one_of_numbers(numbers: &[u64]) -> Value {
    json!({ "enum": numbers })
}

/// The whole document.
///
/// # Panics
/// If a field that it says more of is no longer there: this file has to follow the types.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut root = settings.into_generator().into_root_schema_for::<Record>().to_value();
    tidy(&mut root);
    for (kind, field, more) in refinements() {
        let place = match kind {
            "" => format!("/properties/{field}"),
            kind => format!("/$defs/{kind}/properties/{field}"),
        };
        let found = root.pointer_mut(&place).and_then(Value::as_object_mut);
        let found = found.unwrap_or_else(|| panic!("{kind}.{field} is refined and is not in the types"));
        let Value::Object(more) = more else { continue };
        found.extend(more);
    }
    let mut all = Map::new();
    all.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    all.insert("title".to_owned(), json!("A record of pciescope"));
    if let Value::Object(root) = root {
        all.extend(root.into_iter().filter(|(key, _)| key != "$schema" && key != "title"));
    }
    Value::Object(all)
}

/// Leaves out what says nothing: null of a field that is not written when it is not known, defaults, names of Rust's types.
fn tidy(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(tidy),
        Value::Object(all) => {
            all.remove("default");
            if let Some(Value::String(words)) = all.get_mut("description") {
                // Words for readers of Rust become words for readers of JSON.
                *words = words.replace("`None`", "absent").replace("[`", "`").replace("`]", "`");
            }
            let is_rust = |format: &str| ["uint", "int", "double", "float"].iter().any(|name| format.starts_with(name));
            if let Some(format) = all.get("format").and_then(Value::as_str).filter(|format| is_rust(format)) {
                if format == "uint32" {
                    all.insert("maximum".to_owned(), json!(u32::MAX));
                }
                all.remove("format");
            }
            let required: Vec<Value> = all.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
            if let Some(Value::Object(fields)) = all.get_mut("properties") {
                for (_, field) in fields.iter_mut().filter(|(name, _)| !required.iter().any(|one| one == *name)) {
                    not_null(field);
                }
            }
            all.values_mut().for_each(tidy);
        }
        _ => {}
    }
}

/// A field that may be left out is never null.
fn not_null(field: &mut Value) {
    let Some(field) = field.as_object_mut() else { return };
    if let Some(Value::Array(kinds)) = field.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [one] = kinds.as_slice() {
            let one = one.clone();
            field.insert("type".to_owned(), one);
        }
    }
    if let Some(Value::Array(any)) = field.get_mut("anyOf") {
        any.retain(|one| one.get("type").is_none_or(|kind| kind != "null"));
        if let [Value::Object(one)] = any.as_slice() {
            let one = one.clone();
            field.remove("anyOf");
            field.extend(one);
        }
    }
}
