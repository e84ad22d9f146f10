//! Lines of `perf iostat`, one for each root port.

use super::{CountPlace, EventCount, PerfLine, half_of_last_digit, is_end, seconds_to_ps};

/// The columns of `perf iostat` on x86, which its separated values do not name. Its MB are of 2^20 bytes.
pub const INBOUND: [&str; 4] = ["Inbound Read", "Inbound Write", "Outbound Read", "Outbound Write"];

/// The columns that the header of `perf iostat` names.
pub fn header(line: &str) -> Option<Vec<String>> {
    let (_, columns) = line
        .trim_end()
        .split_once("port ")
        .filter(|(before, _)| before.trim_start_matches('#').split_whitespace().all(|word| word == "time"))?;
    let columns: Vec<String> = columns.strip_suffix("(MB)")?.split("(MB)").map(|name| name.trim().to_owned()).collect();
    (columns.len() > 1 && columns.iter().filter(|name| !name.is_empty()).all(|name| name.contains("bound")))
        .then_some(columns)
}

/// A line of a port below such a header.
pub fn iostat(line: &str, columns: &[String]) -> Option<PerfLine> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (at_ps, words) = match words.split_first()? {
        (end, rest) if is_end(end) => (Some(seconds_to_ps(end)?), rest),
        _ => (None, &words[..]),
    };
    let (name, values) = words.split_first()?;
    port(name, at_ps, values, columns).map(PerfLine::Counts)
}

/// The counts of a port; `None` if the line is not of one.
pub fn port(name: &str, at_ps: Option<u64>, values: &[&str], columns: &[impl AsRef<str>]) -> Option<Vec<EventCount>> {
    let is_hex = |text: &str, digits: usize| text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
    let is_port = match name.split([':', '.']).collect::<Vec<_>>()[..] {
        [domain, bus] => is_hex(domain, 4) && is_hex(bus, 2),
        [domain, bus, device, function] => {
            is_hex(domain, 4) && is_hex(bus, 2) && is_hex(device, 2) && is_hex(function, 1)
        }
        _ => false,
    };
    let values = values.strip_suffix(&[""]).unwrap_or(values);
    let columns: Vec<&str> = columns.iter().map(AsRef::as_ref).filter(|name| !name.is_empty()).collect();
    if !is_port || values.len() != columns.len() {
        return None;
    }
    let count = |(event, text): (&str, &&str)| {
        Some(EventCount {
            at_ps,
            place: Some(CountPlace::Named(name.to_owned())),
            event: event.to_owned(),
            cgroup: None,
            unit: "MiB".to_owned(),
            value: Ok(text.parse().ok().filter(|value: &f64| value.is_finite())?),
            rounding: if text.contains('.') { half_of_last_digit(text) } else { 0.5 },
            counted_percent: None,
            is_mean: false,
            is_separate: true,
        })
    };
    columns.into_iter().zip(values).map(count).collect()
}
