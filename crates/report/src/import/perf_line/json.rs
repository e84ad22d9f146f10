//! Objects of `-j`.

use super::{CountPlace, EventCount, NOT_COUNTED, PerfLine, half_of_last_digit};

/// A line of `-j`.
pub fn json(line: &str) -> Option<PerfLine> {
    let line = line.trim();
    if !line.starts_with('{') || !line.contains("\"event\"") && !line.contains("\"metric-") {
        return None;
    }
    let all: serde_json::Value = serde_json::from_str(line).ok()?;
    let text = |name: &str| all.get(name).and_then(serde_json::Value::as_str);
    let figure = |name: &str| all.get(name).and_then(|value| value.as_f64().or_else(|| value.as_str()?.parse().ok()));
    let Some(event) = text("event").filter(|event| !event.is_empty()) else { return Some(PerfLine::Metric) };
    let counted = text("counter-value")?;
    let value = match NOT_COUNTED.iter().find(|known| known.0 == counted) {
        Some((_, why)) => Err(*why),
        None => Ok(counted.parse().ok().filter(|value: &f64| value.is_finite())?),
    };
    let named = ["core", "cache", "cluster", "die", "socket", "node", "thread"].into_iter().find_map(text);
    let cpu = figure("cpu").map(|cpu| CountPlace::Cpu(cpu as u32));
    let unit = text("unit").unwrap_or_default();
    // Six decimals, of a count too.
    let rounding = if unit.is_empty() { 0.0 } else { half_of_last_digit(counted) };
    Some(PerfLine::Counts(vec![EventCount {
        at_ps: figure("interval").map(|seconds| (seconds * 1e9).round() as u64 * 1000),
        place: cpu.or_else(|| named.map(|name| CountPlace::Named(name.to_owned()))),
        event: event.to_owned(),
        cgroup: text("cgroup").filter(|name| !name.is_empty()).map(str::to_owned),
        unit: unit.to_owned(),
        value,
        rounding,
        counted_percent: figure("pcnt-running"),
        is_mean: figure("variance").is_some(),
        is_separate: true,
    }]))
}
