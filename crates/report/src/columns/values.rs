//! What stands in a column: values that no field of a record holds as they are.

use std::collections::BTreeSet;

use pciescope_core::histogram::Bucket;
use pciescope_core::{BarOffset, Cpu, Environment, Evidence, Function, Record, Severity};

use super::{Item, Row};
use crate::model::is_emulation;

/// 0 is unknown.
pub(super) fn positive(value: u64) -> Option<u64> {
    (value > 0).then_some(value)
}

/// Each once, in order, with blanks between.
pub(super) fn joined(texts: impl Iterator<Item = impl AsRef<str>>) -> Option<String> {
    let each: BTreeSet<String> = texts.map(|text| text.as_ref().to_owned()).collect();
    Some(each.into_iter().collect::<Vec<_>>().join(" "))
}

/// The value as a record has it: readers have functions for JSON.
pub(super) fn json(value: &impl serde::Serialize) -> Option<String> {
    serde_json::to_string(value).ok()
}

/// Where the figures of a record come from, the least real sign first; `None` where it says nothing of its own.
pub(super) fn origin(record: &Record) -> Option<&'static str> {
    let (method, device) = (record.method.as_ref(), record.device.as_ref());
    let backend = method.map(|method| method.backend.as_str());
    let is_made_up = |device: &Function| device.emulated.as_deref() == Some("it is synthetic");
    let is_synthetic = record.environment.as_ref().is_some_and(Environment::is_synthetic);
    match backend {
        Some("fake") => Some("synthetic"),
        _ if is_synthetic || device.is_some_and(is_made_up) => Some("synthetic"),
        _ if is_emulation(method, device) => Some("emulated"),
        Some("import") => Some("imported"),
        _ => (method.is_some() || device.is_some()).then_some("measured"),
    }
}

pub(super) fn device(row: &Row) -> Option<String> {
    let bdf = match row.item {
        Item::Finding(finding) => finding.bdf,
        _ => row.function()?.bdf,
    };
    bdf.map(|bdf| bdf.to_string())
}

/// The kind of a device: its four numbers, else what a readout says of it.
pub(super) fn model(row: &Row) -> Option<String> {
    if let Some(device) = row.function() {
        let numbers = [device.vendor, device.device, device.subsystem_vendor, device.subsystem_device];
        return Some(numbers.map(|number| format!("{number:04x}")).join(":"));
    }
    let stream = row.stream()?;
    Some(stream.model.clone().unwrap_or_else(|| stream.kind.clone()))
}

pub(super) fn bridges(row: &Row) -> Option<String> {
    let bridges: Vec<String> = row.function()?.path.iter().map(ToString::to_string).collect();
    Some(bridges.join(" "))
}

pub(super) fn buckets(row: &Row, of: fn(Bucket) -> u64) -> Option<Vec<u64>> {
    Some(row.histogram()?.buckets().map(of).collect())
}

pub(super) fn evidence<'a>(row: &Row<'a>, of: fn(&Evidence) -> &str) -> Option<Vec<&'a str>> {
    let seen = row.finding().map_or(&[][..], |finding| &finding.evidence);
    Some(seen.iter().map(of).collect())
}

pub(super) fn kind<'a>(row: &'a Row<'a>) -> Option<&'a str> {
    Some(match row.item {
        Item::Histogram(..) => "histogram",
        Item::Metric(..) => "metric",
        Item::HotSpot(_) => "hot spot",
        Item::Finding(_) => "finding",
        Item::Warning(_) => "warning",
        Item::Error(_) => "error",
        Item::Totals(_) => "run",
    })
}

pub(super) fn name(row: &Row) -> Option<String> {
    match row.item {
        Item::Histogram(name, _) | Item::Metric(name, _) => Some(name.to_owned()),
        Item::HotSpot(spot) => Some(format!("{} {}", spot.object, spot.symbol)),
        _ => None,
    }
}

/// What the row measured, in words that are the same on each machine: the test, the target, the name.
pub(super) fn figure(row: &Row) -> Option<String> {
    let name = name(row)?;
    let mut words = vec![row.record.test.clone()];
    if let Some(target) = row.target() {
        let width = target.width.map_or_else(|| "?".to_owned(), |width| width.to_string());
        let place = target.bar.map(|bar| BarOffset { bar, offset: target.offset.unwrap_or(0) });
        words.extend(place.map(|place| format!("{place}/{width}")));
        words.extend(target.hop.map(|hop| format!("hop {hop}")));
        words.extend(target.vector.map(|vector| format!("vector {vector}")));
        words.extend(target.name.clone().filter(|_| row.record.test == pciescope_core::comparison::TEST));
    }
    if let Some(stream) = row.stream() {
        let texts = [Some(stream.function_name()), Some(stream.access.clone())];
        words.extend(texts.into_iter().chain([stream.wait.clone(), stream.conversion.clone()]).flatten());
        words.extend(positive(stream.samples).map(|samples| format!("{samples} samples")));
        words.extend(positive(stream.devices.into()).map(|devices| format!("{devices} devices")));
        words.extend(stream.sweep.clone());
    }
    if let Some(kernel) = row.kernel() {
        let threads = format!("{} threads", kernel.threads);
        words.extend([kernel.name.clone(), kernel.isa.clone(), kernel.store.clone(), threads]);
        words.extend(row.record.metrics.get("samples").map(|samples| format!("{} samples", samples.value)));
    }
    words.push(name);
    words.retain(|word| !word.is_empty());
    Some(words.join(" "))
}

pub(super) fn unit<'a>(row: &'a Row<'a>) -> Option<&'a str> {
    match row.item {
        Item::Histogram(..) => Some("ns"),
        Item::Metric(_, metric) => Some(&metric.unit),
        Item::HotSpot(_) => Some("%"),
        _ => None,
    }
}

pub(super) fn value(row: &Row) -> Option<f64> {
    match row.item {
        Item::Metric(_, metric) => Some(metric.value),
        Item::HotSpot(spot) => Some(spot.percent),
        _ => None,
    }
}

pub(super) fn check<'a>(row: &'a Row<'a>) -> Option<&'a str> {
    match row.item {
        Item::Finding(finding) => Some(&finding.check),
        Item::Warning(warning) => Some(&warning.code),
        Item::Error(failure) => Some(&failure.code),
        _ => None,
    }
}

pub(super) fn severity<'a>(row: &'a Row<'a>) -> Option<&'a str> {
    let severity = match row.item {
        Item::Finding(finding) => finding.severity,
        Item::Warning(_) => Severity::Warning,
        _ => Severity::Problem,
    };
    Some(match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Problem => "problem",
    })
}

pub(super) fn text<'a>(row: &'a Row<'a>) -> Option<&'a str> {
    match row.item {
        Item::Finding(finding) => Some(&finding.text),
        Item::Warning(warning) => Some(&warning.text),
        Item::Error(failure) => Some(&failure.text),
        _ => None,
    }
}

pub(super) fn remedy<'a>(row: &'a Row<'a>) -> Option<&'a str> {
    match row.item {
        Item::Finding(finding) => Some(&finding.remedy),
        Item::Warning(warning) => Some(&warning.hint),
        Item::Error(failure) => failure.hint.as_deref(),
        _ => None,
    }
}

/// The number of groups that the machine's CPUs fall into; `None` where no CPU's is known.
pub(super) fn distinct(row: &Row, of: fn(&Cpu) -> Option<u32>) -> Option<u64> {
    let groups: BTreeSet<u32> = row.environment()?.cpus.iter().filter_map(of).collect();
    positive(groups.len() as u64)
}
