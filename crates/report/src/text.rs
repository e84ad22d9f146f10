//! Text shared by the outputs: durations, counts, names of tests, and hostile strings made harmless.

pub use pciescope_core::text::{clean, cut, duration, first_of, rate, thousands};
use pciescope_core::{Bdf, Record, Target};

/// `text` for HTML and XML, in elements and in quoted attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A duration in microseconds with three decimals, as the tables print it; `-` where there is none.
pub fn us(ns: Option<f64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.3}", ns / 1e3))
}

/// Two durations: `487 to 590 ns`, `990 ns to 1.02 us`.
pub(crate) fn range(low_ns: f64, high_ns: f64) -> String {
    let (low, high) = (duration(low_ns), duration(high_ns));
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

/// A figure without a unit of its own: whole where it is, three decimals otherwise, an exponent where that is shorter.
pub fn figure(value: f64) -> String {
    if value.abs() >= 1e18 || (value != 0.0 && value.abs() < 1e-3) {
        format!("{value:e}")
    } else if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    }
}

/// Words in lines of so many columns, each behind `indent`.
pub fn wrapped(words: &str, width: usize, indent: &str) -> Vec<String> {
    crate::layout::wrap(words, width, indent, indent)
}

/// `1 port`, `2,000 ports`.
pub fn counted(count: usize, word: &str) -> String {
    format!("{} {word}{}", thousands(count as u64), if count == 1 { "" } else { "s" })
}

/// What a test measures, in words for a heading.
pub fn test_title(test: &str) -> String {
    match test {
        "mmio-read" => "Register read latency (round trip of a read)".to_owned(),
        "mmio-write" => "Register write cost (what a posted write costs the CPU, not its arrival)".to_owned(),
        "mmio-write-read" => "Register write then read back (round trip)".to_owned(),
        "config-read" => "Configuration read latency, hop by hop".to_owned(),
        "irq-hardware" => "Interrupt latency, triggered by the device".to_owned(),
        "irq-retrigger" => "Interrupt latency, re-raised by software (control arm: no PCIe in it)".to_owned(),
        "irq-inject" => "Interrupt latency, injected by software (control arm: no PCIe in it)".to_owned(),
        "irq-loopback" => "Interrupt latency, VFIO's own trigger (wake-up cost of user space alone)".to_owned(),
        "irq-import" => "Interrupt latency, imported log".to_owned(),
        "counters" => "Hardware counters".to_owned(),
        pciescope_core::readout::TEST | pciescope_core::readout::SUMMARY => "Readout".to_owned(),
        pciescope_core::convert::TEST => "Conversion of samples, in memory".to_owned(),
        "doctor" => "What spoils performance or a measurement".to_owned(),
        pciescope_core::change::TEST => "Links over time".to_owned(),
        pciescope_core::tune::TEST => "Settings against the present ones".to_owned(),
        pciescope_core::soak::TEST => "Errors of a link, with a bound".to_owned(),
        "perf-stat" => "Counters of perf stat".to_owned(),
        pciescope_core::comparison::TEST => "Counters against a workload of known traffic".to_owned(),
        other => clean(other),
    }
}

/// The target of a record in few characters: `b0`, `b0+0x10`, `h1`, `v3`, `i69`.
pub fn target_key(target: &Target, with_offset: bool) -> String {
    let mut key = String::new();
    if let Some(bar) = target.bar {
        key = format!("b{bar}");
        if let Some(offset) = target.offset.filter(|_| with_offset) {
            key += &format!("+{offset:#x}");
        }
        if let Some(width) = target.width.filter(|_| with_offset) {
            key += &format!("/{width}");
        }
    } else if let Some(hop) = target.hop {
        key = format!("h{hop}");
    } else if target.irq.is_some() || target.vector.is_some() {
        let parts: Vec<String> =
            target.irq.map(|i| format!("i{i}")).into_iter().chain(target.vector.map(|v| format!("v{v}"))).collect();
        key = parts.join("/");
    }
    key
}

/// The device of a record in words: address and name, or `(no device)`.
pub fn device_name(record: &Record) -> String {
    match &record.device {
        Some(f) => {
            let address = f.bdf.map(|b| format!("{b} ")).unwrap_or_default();
            clean(&format!("{address}{} [{:04x}:{:04x}]", f.name, f.vendor, f.device))
        }
        None => "(no device named)".to_owned(),
    }
}

/// A path of functions: `0000:00:01.0 > 0000:01:00.0`.
pub fn path(functions: &[Bdf]) -> String {
    functions.iter().map(Bdf::to_string).collect::<Vec<_>>().join(" > ")
}
