//! The parameter block, as the tool of the seed prints it.

use pciescope_core::{Access, Plan, ReadoutPlan, Work};

use super::{Group, Row};
use crate::text::clean;

/// What a readout was to do, as lines of name and value. A parameter in which the groups differ shows all its values.
pub(crate) fn parameters(groups: &[Group], run: Option<&Plan>) -> Vec<String> {
    let mut lines: Vec<(&str, Vec<String>)> = Vec::new();
    for group in groups {
        for (name, value) in of_group(group, run) {
            match lines.iter_mut().find(|line| line.0 == name) {
                Some(line) if line.1.contains(&value) => {}
                Some(line) => line.1.push(value),
                None => lines.push((name, vec![value])),
            }
        }
    }
    if lines.is_empty() {
        return Vec::new();
    }
    // Those that only some of the groups have come where the tool has them: before the last.
    lines.sort_by_key(|line| NAMES.iter().position(|name| *name == line.0));
    let block = lines.into_iter().map(|(name, values)| format!(" {name:<16}{}", values.join(", ")));
    std::iter::once("Parameters:".to_owned()).chain(block).collect()
}

/// The parameters that sis8300drv_threads prints, in its order.
pub(crate) const NAMES: [&str; 13] = [
    "function",
    "access",
    "nsamples",
    "nbytes_raw",
    "nbytes",
    "nreads",
    "dec_offset",
    "dec_factor",
    "scale_offset",
    "scale_factor",
    "loop",
    "daq_intr",
    "ndevices",
];

fn of_group(group: &Group, run: Option<&Plan>) -> Vec<(&'static str, String)> {
    let records = || group.rows.iter().chain(&group.summary);
    let own = records().find_map(|row| plan(row.record.plan.as_ref()));
    let run = plan(run);
    let plan = own.or(run);
    let stream = group.stream();
    let mut values = Vec::new();
    let mut add = |name: &'static str, value: Option<String>| values.extend(value.map(|value| (name, value)));
    add("function", functions(group, own, run));
    add("access", access(&stream.access).or_else(|| plan.and_then(|plan| access(plan.access.name()))));
    let bytes = |bytes: u64| format!("{bytes} b ({:.1} MB)", bytes as f64 / 1e6);
    let samples = if stream.samples > 0 { Some(stream.samples) } else { plan.map(|plan| plan.samples) };
    if let Some(samples) = samples.filter(|samples| *samples > 0) {
        add("nsamples", Some(samples.to_string()));
        add("nbytes_raw", Some(bytes(samples.saturating_mul(2))));
        add("nbytes", Some(bytes(samples.saturating_mul(4))));
    }
    let cycles = records().find_map(|row| row.metric("cycles"));
    let repeats = records().find_map(|row| Some(row.metric("repeats")? / cycles.unwrap_or(1.0).max(1.0)));
    let repeats = plan.map(|plan| plan.repeats as f64).or(repeats);
    add("nreads", repeats.map(|repeats| format!("{repeats:.0}")));
    if let Some(plan) = plan {
        add("dec_offset", Some(plan.decimation_offset.to_string()));
        add("dec_factor", Some(plan.decimation_factor.to_string()));
        add("scale_offset", Some(format!("{:.6}", plan.scale_offset)));
        add("scale_factor", Some(format!("{:.6}", plan.scale_factor)));
        // Printed where something was acquired, and where by interrupt, as the tool's later version has it.
        add("loop", (plan.cycles > 0).then(|| plan.cycles.to_string()));
    }
    add("daq_intr", (stream.wait.as_deref() == Some("interrupt")).then(|| "1".to_owned()));
    add("ndevices", Some(group.devices()).filter(|devices| *devices > 0).map(|devices| devices.to_string()));
    values
}

fn plan(plan: Option<&Plan>) -> Option<&ReadoutPlan> {
    match plan? {
        Plan::Readout(plan) => Some(plan),
        _ => None,
    }
}

/// The number of `-A`: what the group was asked for, else what its rows did, else what the run was asked for.
fn functions(group: &Group, own: Option<&ReadoutPlan>, run: Option<&ReadoutPlan>) -> Option<String> {
    let listed = |plan: Option<&ReadoutPlan>| {
        let numbers = plan?.functions.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        (!numbers.is_empty()).then_some(numbers)
    };
    let number = |row: &Row| Work::ALL.into_iter().find(|work| work.row_name() == row.stream.function);
    let mut works: Vec<u8> = group.rows.iter().chain(&group.summary).filter_map(number).map(Work::number).collect();
    works.sort_unstable();
    works.dedup();
    listed(own).or_else(|| match works.as_slice() {
        [one] | [0, one] => Some(one.to_string()),
        _ => listed(run),
    })
}

/// 0 and 1 as the tool's; others by their names.
fn access(name: &str) -> Option<String> {
    match name {
        "" => None,
        name if name == Access::Read.name() => Some("0".to_owned()),
        name if name == Access::Mmap.name() || name == Access::Ring.name() => Some("1".to_owned()),
        name => Some(clean(name)),
    }
}
