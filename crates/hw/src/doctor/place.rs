//! Checks: the place of a device in the machine.

use pciescope_core::{CpuList, Severity};

use super::case::{AS_ROOT, Case, Found, SetUpBy, Verdict, fine, found, not_applicable, not_checked, seen, tried};
use crate::topology;

/// Why checks of places pass over a machine.
pub const ONE_NODE: &str = "the machine has no second NUMA node";
/// Why they pass over a function.
const NO_NODE: &str = "it is not known to belong to a NUMA node that has CPUs";

pub fn unknown(case: &Case) -> Verdict {
    let nodes = topology::nodes(&case.machine.environment.cpus).len();
    if nodes < 2 {
        return not_applicable(ONE_NODE);
    }
    if case.function.node.is_some() {
        return fine();
    }
    found(Found {
        severity: Severity::Warning,
        text: format!("{}: the firmware does not say to which of {nodes} NUMA nodes it belongs", case.bdf),
        evidence: vec![case.seen("numa_node")],
        consequence: "the kernel places its memory and interrupts anywhere, and nobody knows which CPUs are near",
        remedy: match case.machine.set_up_by() {
            SetUpBy::Guest => {
                "ask the host: with QEMU, a root port below a pxb-pcie of the device's node tells the guest"
            }
            SetUpBy::Board => "find the near CPUs in the table by node; numa-node-id in the device tree says it",
            SetUpBy::Computer => {
                "find the near CPUs in the table by node; a BIOS update or another PXM setting may help"
            }
        },
    })
}

pub fn without_cpus(case: &Case) -> Verdict {
    let nodes = topology::nodes(&case.machine.environment.cpus);
    case.not_a_bridge()?;
    let Some(node) = case.function.node.filter(|_| !nodes.is_empty()) else { return not_applicable(NO_NODE) };
    if nodes.iter().any(|(number, cpus)| *number == node && !cpus.is_empty()) {
        return fine();
    }
    found(Found {
        severity: Severity::Warning,
        text: format!("{} belongs to node {node}, of which no CPU is online", case.bdf),
        evidence: vec![case.seen("numa_node"), case.machine.seen("/sys/devices/system/cpu/online")],
        consequence: "every access crosses the interconnect between nodes",
        remedy: "bring a CPU of that node online (chcpu -e), or move the card to another slot",
    })
}

pub fn irq_remote(case: &Case) -> Verdict {
    let nodes = topology::nodes(&case.machine.environment.cpus);
    case.not_a_bridge()?;
    if nodes.len() < 2 {
        return not_applicable(ONE_NODE);
    }
    let Some((node, near)) = nodes.iter().find(|(number, _)| Some(*number) == case.function.node) else {
        return not_applicable(NO_NODE);
    };
    let (mut remote, mut evidence, mut all, mut is_hidden) = (Vec::new(), Vec::new(), 0, false);
    for irq in case.machine.root.names(case.path("msi_irqs")) {
        let file = ["effective_affinity_list", "smp_affinity_list"].into_iter().find_map(|file| {
            let path = format!("/proc/irq/{irq}/{file}");
            Some((case.machine.root.text(&path)?, path))
        });
        let Some((text, path)) = file else {
            is_hidden |= case.machine.root.exists(format!("/proc/irq/{irq}"));
            continue;
        };
        let Ok(cpus) = text.parse::<CpuList>() else { continue };
        // One that nobody has asked for goes nowhere.
        if cpus.is_empty() {
            continue;
        }
        all += 1;
        if cpus.iter().all(|cpu| !near.contains(cpu)) {
            remote.push(irq);
            // A device may have thousands.
            if evidence.len() < 3 {
                evidence.push(seen(&path, &text));
            }
        }
    }
    // A queue for each CPU has its vector there: some go far, and should. Fewer vectors than nodes are no such spread.
    let is_spread = remote.len() < all && all >= nodes.len();
    if all == 0 && is_hidden {
        return not_checked("the CPUs that its interrupts go to cannot be read", AS_ROOT);
    }
    if all == 0 {
        return not_applicable("it has no message-signalled interrupt in use");
    }
    if remote.is_empty() || is_spread {
        return fine();
    }
    evidence.push(case.seen("numa_node"));
    found(Found {
        severity: Severity::Warning,
        text: format!(
            "{} of {all} interrupts of {} go to CPUs of other nodes than its own, {node}",
            remote.len(),
            case.bdf
        ),
        evidence,
        consequence: "each interrupt and what it handles crosses the interconnect between nodes",
        remedy: tried(
            &format!(
                "echo {near} > /proc/irq/{}/smp_affinity_list, and so on; irqbalance may set it back, and a driver that manages its vectors itself refuses (EIO)",
                remote[0]
            ),
            case.bdf,
            &format!("--try irq-cpu={}", near.iter().next().unwrap_or(0)),
        ),
    })
}
