//! Interrupt latency: CPUs compared, per CPU, per interrupt, per CPU and interrupt, and per group of CPUs.

use pciescope_core::outcome::{ENTRY_TO_ACK, TRIGGER_TO_HANDLER};

use super::{Page, summary};
use crate::model::{Section, target_from, target_id};
use crate::text::target_key;

const LEGEND: [&str; 6] = [
    "1. trigger_to_handler_us",
    "   Time from the stamp before the trigger to the first stamp in the interrupt handler.",
    "   It includes the trigger's own way to the device, delivery and dispatch.",
    "2. entry_to_ack_us",
    "   Time inside the handler from its first stamp until the device's acknowledge completes.",
    "   Keeping the sample is not in it.",
];

pub fn write(out: &mut Page, section: &Section, with_legend: bool) {
    summary::total(out, section, TRIGGER_TO_HANDLER);
    if with_legend {
        out.heading("Metrics Measured");
        for line in LEGEND {
            out.line(line);
        }
    }
    let title = "CPU Performance Comparison (lower is better)";
    summary::comparison(out, section, TRIGGER_TO_HANDLER, title, "Trig");
    summary::comparison(out, section, ENTRY_TO_ACK, "CPU Acknowledge Comparison (lower is better)", "Ack");
    summary::table(out, "Per-CPU Latency", &summary::per_cpu(section, TRIGGER_TO_HANDLER));
    summary::table(out, "Per-CPU Entry-to-Ack Latency", &summary::per_cpu(section, ENTRY_TO_ACK));
    summary::table(out, "Per-IRQ Latency", &per_irq(section, TRIGGER_TO_HANDLER));
    summary::table(out, "Per-IRQ Entry-to-Ack Latency", &per_irq(section, ENTRY_TO_ACK));
    summary::table(out, "Per CPU+IRQ Latency", &summary::per_cpu_and_target(section, TRIGGER_TO_HANDLER, false));
    summary::groups(out, section, TRIGGER_TO_HANDLER, "Latency (trigger to handler)", |_| true);
}

/// Keyed by the Linux interrupt number, with the vector where both are known.
fn per_irq(section: &Section, name: &str) -> Vec<(String, pciescope_core::Histogram)> {
    let key = |target: &pciescope_core::Target| match (target.irq, target.vector) {
        (Some(irq), Some(vector)) => format!("{irq} (v{vector})"),
        (Some(irq), None) => irq.to_string(),
        _ => target_key(target, false),
    };
    section.merged_by(name, |r| Some(target_id(r))).into_iter().map(|(id, h)| (key(&target_from(&id)), h)).collect()
}
