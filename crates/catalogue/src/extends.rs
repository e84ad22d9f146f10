//! `extends = "ID"`: what a file does not say is as in the file ID.toml.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Reads a file. `base` gives the text of the file of an id.
pub(crate) fn read<'t, T: DeserializeOwned>(text: &str, base: impl Fn(&str) -> Option<&'t str>) -> Result<T, String> {
    let table = |text: &str| text.parse::<Table>().map_err(|error| error.to_string());
    let mut own = table(text)?;
    let Some(id) = own.remove("extends") else {
        // Only the text knows the line of a mistake.
        return own.try_into().or_else(|_| toml::from_str(text)).map_err(|error| error.to_string());
    };
    let id = id.as_str().ok_or("extends is not a text")?;
    let mut whole = table(base(id).ok_or_else(|| format!("extends: there is no {id}.toml"))?)?;
    if whole.contains_key("extends") {
        return Err(format!("extends: {id}.toml extends another file itself"));
    }
    merge(&mut whole, own);
    whole.try_into().map_err(|error| error.to_string())
}

/// Enters what a file says into what it extends: tables field by field, metrics by name. `""` takes away.
fn merge(base: &mut Table, own: Table) {
    for (key, value) in own {
        match (base.get_mut(&key), value) {
            (_, Value::String(text)) if text.is_empty() => drop(base.remove(&key)),
            (Some(Value::Table(base)), Value::Table(own)) => merge(base, own),
            (Some(Value::Array(base)), Value::Array(own)) if key == "metric" => merge_metrics(base, own),
            (_, value) => drop(base.insert(key, value)),
        }
    }
}

/// A metric of a known name changes that one, another is added. A metric without a formula goes.
fn merge_metrics(base: &mut Vec<Value>, own: Vec<Value>) {
    for value in own {
        let known = base.iter_mut().find(|one| one.get("name").is_some() && one.get("name") == value.get("name"));
        match (known, value) {
            (Some(Value::Table(base)), Value::Table(own)) => merge(base, own),
            (_, value) => base.push(value),
        }
    }
    base.retain(|one| one.get("formula").is_some());
}
