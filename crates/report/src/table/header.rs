//! The text above and below the figures of a section: machine, device, method, references, losses.

use pciescope_core::{Environment, Function, Method, Record, once};

use super::{Block, Page, WIDTH, summary};
use crate::facts::REFERENCES;
use crate::losses;
use crate::model::{self, EMULATED, SYNTHETIC, Section};
use crate::text::{clean, device_name, duration, path, test_title, thousands};

/// One line or two per machine.
pub fn machines(out: &mut Page, records: &[Record]) {
    for environment in model::environments(records) {
        for line in machine(environment) {
            out.line(&line);
        }
    }
}

fn machine(e: &Environment) -> Vec<String> {
    let mut who: Vec<String> =
        [e.product.as_deref(), e.cpu_model.as_deref()].into_iter().flatten().map(clean).collect();
    who.push(format!("{} CPUs", e.cpus.len()));
    who.push(clean(&format!("Linux {} {}", e.kernel, e.machine)));
    let mut state = Vec::new();
    state.extend(e.clocksource.as_deref().map(|c| format!("clock source {c}")));
    if !e.governors.is_empty() {
        state.push(format!("governor {}", e.governors.join("/")));
    }
    if !e.idle_states.is_empty() {
        state.push(format!("idle states {}", e.idle_states.join(" ")));
    }
    state.extend(e.aspm_policy.as_deref().map(|p| format!("ASPM {p}")));
    state.extend(e.lockdown.as_deref().map(|l| format!("lockdown {l}")));
    state.push(if e.iommu_groups > 0 { format!("IOMMU on ({} groups)", e.iommu_groups) } else { "no IOMMU".into() });
    state.extend(e.steal_ns.filter(|s| *s > 0).map(|s| format!("stolen {}", duration(s as f64))));
    let mut lines = wrapped("Machine: ", &who);
    lines.extend(wrapped("         ", &state.iter().map(|s| clean(s)).collect::<Vec<_>>()));
    lines.extend(e.hypervisor.as_deref().map(|h| clean(&format!("         a guest: {h}"))));
    lines
}

/// The title of a section, with `emulated` where its figures are not those of hardware, and the label of the run.
pub fn title(out: &mut Page, section: &Section, emulated: &str) {
    out.blocks.push(Block::Section(test_title(section.test())));
    if section.is_emulated() {
        out.line(emulated);
    }
    if section.is_synthetic() {
        out.line(SYNTHETIC);
    }
    if let Some(label) = &section.first().label {
        out.line(&format!("Run:    {}", clean(label)));
    }
}

/// Heading of a section: what was measured, on what, how.
pub fn section(out: &mut Page, section: &Section) {
    let first = section.first();
    title(out, section, EMULATED);
    if first.device.is_some() {
        out.line(&format!("Device: {}", device_name(first)));
    }
    if let Some(function) = &first.device {
        for line in place(function) {
            out.line(&line);
        }
    }
    targets(out, section);
    if let Some(method) = section.method() {
        for line in how(method) {
            out.line(&line);
        }
    }
    summary::calibration(out, section);
    references(out, section);
    rounds(out, section);
}

/// How far the medians of the rounds of one CPU lie apart: drift and noise that one median hides.
fn rounds(out: &mut Page, section: &Section) {
    let metric = |r: &Record, name: &str| r.metrics.get(name).map(|m| m.value);
    let spreads = section.records.iter().filter_map(|r| {
        let (low, middle) = (metric(r, "round_median_min_ns")?, metric(r, "round_median_ns")?);
        let high = metric(r, "round_median_max_ns")?;
        (middle > 0.0 && metric(r, "rounds")? > 1.0).then_some((high - low) / middle * 100.0)
    });
    if let (Some(spread), Some((_, rounds))) = (spreads.reduce(f64::max), section.range("rounds")) {
        out.line(&format!("Rounds: {rounds:.0}; the medians of one CPU's rounds lie at most {spread:.1} % apart"));
    }
}

fn place(f: &Function) -> Vec<String> {
    let mut lines = Vec::new();
    let mut parts = Vec::new();
    if let Some(link) = &f.link {
        let full = !link.is_known() || link.speed_gts >= link.max_speed_gts && link.width >= link.max_width;
        let best = if full {
            String::new()
        } else {
            format!(" (the device can {} GT/s x{})", link.max_speed_gts, link.max_width)
        };
        parts.push(format!("link {}{best}", f.link_words().unwrap_or_default()));
        parts.extend(link.mps_bytes.map(|b| format!("MPS {b} bytes")));
    }
    parts.extend(f.node.map(|n| format!("NUMA node {n}")));
    parts.extend(f.driver.as_deref().map(|d| format!("driver {}", clean(d))));
    if !parts.is_empty() {
        lines.push(format!("        {}", parts.join(", ")));
    }
    if !f.path.is_empty() {
        lines.push(format!("        below {}", path(&f.path)));
    }
    lines
}

fn targets(out: &mut Page, section: &Section) {
    let names = once(section.records.iter().filter_map(|r| r.target.as_ref()).filter_map(|target| {
        let bar = target.bar?;
        let offset = target.offset.map(|o| format!(" offset {o:#x}")).unwrap_or_default();
        let width = target.width.map(|w| format!(", {w} bytes wide")).unwrap_or_default();
        let name = target.name.as_deref().map(|n| format!(": {}", clean(n))).unwrap_or_default();
        Some(format!("BAR{bar}{offset}{width}{name}"))
    }));
    for (i, name) in names.iter().enumerate() {
        out.line(&format!("{} {name}", if i == 0 { "Target:" } else { "       " }));
    }
}

fn how(m: &Method) -> Vec<String> {
    let mut parts = vec![format!("backend {}", clean(&m.backend))];
    if m.clock_hz > 0 {
        parts.push(format!(
            "clock {} {:.3} MHz, quantum {:.3} ns",
            clean(&m.clock),
            m.clock_hz as f64 / 1e6,
            m.quantum_ns
        ));
    } else if !m.clock.is_empty() {
        parts.push(format!("clock {}", clean(&m.clock)));
    }
    if m.batch > 1 {
        parts.push(format!("{} accesses per sample", m.batch));
    }
    if m.gap_ns > 0 {
        parts.push(format!("gap {}", duration(m.gap_ns as f64)));
    }
    if !m.order.is_empty() {
        parts.push(format!("CPUs {}", clean(&m.order)));
    }
    parts.push(format!("interrupts {}", if m.irqs_off { "off around each access" } else { "on" }));
    if m.backend == "import" {
        parts.pop();
    }
    let mut lines = wrapped("Method: ", &parts);
    lines.extend(m.notes.iter().map(|note| format!("        {}", clean(note))));
    lines
}

/// Parts behind a label, with commas between, broken before 100 columns and indented as the label is wide.
fn wrapped(label: &str, parts: &[String]) -> Vec<String> {
    let mut lines = vec![label.to_owned()];
    for (i, part) in parts.iter().enumerate() {
        let comma = if i + 1 < parts.len() { "," } else { "" };
        let length = lines.last().map_or(0, |l| l.chars().count());
        if i > 0 && length + part.chars().count() + 2 > WIDTH {
            lines.push(" ".repeat(label.len()));
        }
        if let Some(line) = lines.last_mut() {
            let space = if line.ends_with(' ') { "" } else { " " };
            *line += &format!("{space}{part}{comma}");
        }
    }
    lines
}

fn references(out: &mut Page, section: &Section) {
    let mut label = "References:";
    for (metric, words, remark) in REFERENCES {
        let Some((low, high)) = section.range(metric) else { continue };
        // Published figures are a band where the sources differ.
        let high = if metric == "best_published_ns" {
            section.range("best_published_high_ns").map_or(high, |r| r.1)
        } else {
            high
        };
        let value = if (high - low) > low * 0.001 {
            format!("{:.3} to {:.3} us", low / 1e3, high / 1e3)
        } else {
            format!("{:.3} us", low / 1e3)
        };
        out.line(&format!("{label:<11} {words:<14} {value:>17}  ({remark})"));
        label = "";
    }
}

/// Triggers against handled interrupts, and what was lost.
pub fn losses(out: &mut Page, section: &Section) {
    let mut line = String::new();
    if let (Some(triggers), Some(handled)) = (section.sum("triggers"), section.sum("handled")) {
        line = format!("{} triggers, {} handled; ", thousands(triggers as u64), thousands(handled as u64));
    }
    if !line.is_empty() || !section.loss_counts().is_empty() {
        out.line("");
        lost(out, section, &line, "");
    }
}

/// What was lost behind `counts`, what is doubtful with `remark` behind it. If nothing was lost, the table says so, because
/// silence would read as success.
pub fn lost(out: &mut Page, section: &Section, counts: &str, remark: &str) {
    let known = section.loss_counts();
    if known.is_empty() && counts.is_empty() {
        return;
    }
    let none = || if known.iter().all(|count| count.is_known) { "none" } else { "not known" }.to_owned();
    out.line(&format!("Losses: {counts}{}", losses::words(known, true).unwrap_or_else(none)));
    if let Some(doubtful) = losses::words(known, false) {
        out.line(&format!("Doubts: {doubtful}{remark}"));
    }
}
