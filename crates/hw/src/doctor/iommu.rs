//! Whether DMA is translated.

use pciescope_core::Severity;

use super::case::{Found, Machine, Verdict, fine, found, not_applicable, not_checked, seen, tried};

const GROUPS: &str = "/sys/kernel/iommu_groups";

pub fn translates(machine: &Machine) -> Verdict {
    if !machine.root.exists(GROUPS) {
        return not_applicable(format!("there is no {GROUPS}"));
    }
    let groups = machine.root.names(GROUPS);
    let (mut strict, mut lazy) = (Vec::new(), Vec::new());
    for group in &groups {
        let path = format!("{GROUPS}/{group}/type");
        let Some(kind) = machine.root.text(&path) else { continue };
        match kind.as_str() {
            "DMA" => strict.push(seen(&path, &kind)),
            "DMA-FQ" => lazy.push(seen(&path, &kind)),
            _ => {}
        }
    }
    let is_known = groups.iter().any(|group| machine.root.exists(format!("{GROUPS}/{group}/type")));
    if !groups.is_empty() && !is_known {
        return not_checked("the kernel does not say of what type its IOMMU groups are", "Linux 5.11 and later do");
    }
    let (severity, consequence) = if strict.is_empty() {
        (Severity::Note, "a page that the IOMMU's cache does not hold costs a walk of the page tables")
    } else {
        (
            Severity::Warning,
            "in a strict group each unmapping waits for the IOMMU; in any, a page that its cache does not hold costs a walk",
        )
    };
    let text = format!(
        "the IOMMU translates the DMA of {} of {} groups: {} strict (DMA), {} lazy (DMA-FQ)",
        strict.len() + lazy.len(),
        groups.len(),
        strict.len(),
        lazy.len()
    );
    // What weighs more comes first.
    let Some(first) = strict.into_iter().chain(lazy).next() else { return fine() };
    let mut evidence = vec![first];
    if machine.root.exists("/proc/cmdline") {
        evidence.push(machine.seen("/proc/cmdline"));
    }
    found(Found {
        severity,
        text,
        evidence,
        consequence: consequence.to_owned(),
        remedy: tried(
            "boot with iommu.passthrough=1 for devices of trusted drivers; or measure with it and say so (records keep the command line)",
            "BDF",
            "--try iommu=identity --figure readout",
        ),
    })
}
