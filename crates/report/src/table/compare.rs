//! Compares the hardware trigger and the software trigger of the same interrupt on the same CPU: the difference is the
//! share of the device and the link.

use pciescope_core::Histogram;
use pciescope_core::Record;
use pciescope_core::outcome::TRIGGER_TO_HANDLER;

use super::{Page, summary};
use crate::layout::{Right, Rows, ends};
use crate::model::{Section, cpu_of, target_id};
use crate::text::{device_name, us};

pub fn hardware_and_software(out: &mut Page, sections: &[Section]) {
    for hardware in sections.iter().filter(|s| s.test() == "irq-hardware" && s.has_control()) {
        let bdf = |s: &Section| s.first().device.as_ref().and_then(|d| d.bdf);
        let backend = |s: &Section| s.method().map(|m| m.backend.clone());
        // Of several runs of the control arm the last before or after counts: the one of the same run, else the last.
        for test in ["irq-retrigger", "irq-inject", "irq-loopback"] {
            let fits = |s: &&Section| s.test() == test && bdf(s) == bdf(hardware) && backend(s) == backend(hardware);
            let same_run = sections.iter().filter(fits).find(|s| s.first().run == hardware.first().run);
            if let Some(software) = same_run.or_else(|| sections.iter().rfind(fits)) {
                one(out, hardware, software);
            }
        }
    }
}

fn one(out: &mut Page, hardware: &Section, software: &Section) {
    let key = |r: &Record| Some((cpu_of(r)?, target_id(r).5, target_id(r).4));
    let hard = hardware.merged_by(TRIGGER_TO_HANDLER, key);
    // The interrupt number may differ between two runs, the vector does not.
    let soft = software.merged_by(TRIGGER_TO_HANDLER, |r| key(r).map(|k| (k.0, k.1, k.2.filter(|_| k.1.is_none()))));
    let rows: Vec<_> = hard
        .iter()
        .filter_map(|(k, h)| soft.get(&(k.0, k.1, k.2.filter(|_| k.1.is_none()))).map(|s| (*k, h, s)))
        .collect();
    if rows.is_empty() {
        return;
    }
    out.heading(&format!("Hardware minus Software Trigger ({})", software.test()));
    out.line(&format!("Device: {}", device_name(hardware.first())));
    out.line("Trigger to handler. The difference is the device's and the link's share; CPU and kernel are in both.");
    let difference =
        |a: Option<f64>, b: Option<f64>| a.zip(b).map_or("-".to_owned(), |(a, b)| format!("{:+.3}", (a - b) / 1e3));
    let median = |h: &Histogram| h.percentile_ns(50.0);
    let shown = ends(&rows, out.most(), |(_, h, _)| median(h).unwrap_or(f64::INFINITY));
    let columns = Rows::of(shown.iter().map(|place| &rows[*place])).columns(&[
        ("CPU", 5, Right, &|((cpu, ..), ..)| cpu.to_string()),
        ("Vector", 7, Right, &|((_, vector, irq), ..)| {
            vector.map(|v| v.to_string()).or(irq.map(|i| format!("i{i}"))).unwrap_or_default()
        }),
        ("HwMedian(us)", 12, Right, &|(_, h, _)| us(median(h))),
        ("SwMedian(us)", 12, Right, &|(_, _, s)| us(median(s))),
        ("PCIe share(us)", 14, Right, &|(_, h, s)| difference(median(h), median(s))),
        ("HwMean(us)", 10, Right, &|(_, h, _)| us(h.mean_ns())),
        ("SwMean(us)", 10, Right, &|(_, _, s)| us(s.mean_ns())),
        ("MeanDiff(us)", 12, Right, &|(_, h, s)| difference(h.mean_ns(), s.mean_ns())),
    ]);
    out.table(columns);
    summary::left_out(out, rows.len(), shown.len());
}
