//! Checks: devices that do not answer, emulated devices, guests.

use pciescope_core::Severity;

use super::case::{AS_ROOT, Case, Found, Machine, Verdict, fine, found, not_applicable, not_checked, seen};

pub fn not_answering(case: &Case) -> Verdict {
    if case.config.is_empty() {
        return not_checked("configuration space cannot be read", AS_ROOT);
    }
    if !case.config.is_gone() {
        return fine();
    }
    if case.config.is_asleep() {
        case.readable()?;
    }
    found(Found {
        severity: Severity::Problem,
        text: format!("{} does not answer: its configuration space reads all-ones", case.bdf),
        evidence: vec![case.register("Vendor and Device ID", 0, 0xffff_ffff_u32), case.seen("power_state")],
        consequence: "it is gone, powered down, or its link is down; nothing of it can be used",
        remedy: "look into the kernel log; remove it (echo 1 > remove in its folder) and write 1 to /sys/bus/pci/rescan",
    })
}

/// Classes whose latency nobody measures: bridges of all kinds.
const BRIDGE: u32 = 0x06;

pub fn emulated(case: &Case) -> Verdict {
    if case.function.class >> 16 == BRIDGE {
        return not_applicable("it is a bridge");
    }
    let Some(why) = &case.function.emulated else { return fine() };
    let severity = if why.contains("cannot be told") { Severity::Note } else { Severity::Warning };
    let ids = format!("{:04x}:{:04x}", case.function.vendor, case.function.device);
    let subsystem = format!("{:04x}:{:04x}", case.function.subsystem_vendor, case.function.subsystem_device);
    found(Found {
        severity,
        text: format!("{}: {why}", case.bdf),
        evidence: vec![
            seen(&format!("IDs of {}", case.bdf), &ids),
            seen(&format!("subsystem IDs of {}", case.bdf), &subsystem),
        ],
        consequence: "an access costs an exit to the hypervisor, thousands of cycles, and no link carries it",
        remedy: "read the figures as the cost of an exit to the emulator, not as PCIe; measure a real device on bare metal",
    })
}

pub fn guest(machine: &Machine) -> Verdict {
    let Some(why) = &machine.environment.hypervisor else {
        // What would show a guest has to be there before its absence says anything.
        machine.file("/proc/cpuinfo")?;
        return fine();
    };
    found(Found {
        severity: Severity::Warning,
        text: "the machine is a guest",
        evidence: vec![seen("CPU flags, DMI, device tree, host bridge", why)],
        consequence: "times include the host's other work; the host may invent links and errors",
        remedy: "the hypervisor can take a CPU away in the middle of a sample; measure on bare metal, or pin the virtual CPUs",
    })
}
