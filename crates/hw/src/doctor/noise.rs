//! Checks: events that take a CPU away for a short time.

use pciescope_core::Severity;

use super::case::{Found, Machine, Verdict, WITH_PROC, fine, found, not_applicable, not_checked, seen};
use super::place::ONE_NODE;
use super::readings::{MSR, smi as read_smi};
use crate::{topology, usage};

pub fn smi(machine: &Machine) -> Verdict {
    let Some(cpuinfo) = machine.root.text("/proc/cpuinfo") else {
        return not_checked("/proc/cpuinfo cannot be read", WITH_PROC);
    };
    if !cpuinfo.contains("GenuineIntel") {
        return not_applicable("the CPUs are not Intel's");
    }
    let now = match read_smi(machine.root) {
        Ok(now) => now,
        Err(why) => {
            return not_checked(format!("{MSR}: {why}"), "modprobe msr, and run it as root");
        }
    };
    let register = format!("{MSR}, register 0x34");
    let before = machine.earlier.and_then(|(earlier, time)| Some((earlier.smi?, time)));
    let (severity, text) = match before {
        // The register has 32 bits and starts anew.
        Some((before, time)) if now != before => {
            let grown = (now as u32).wrapping_sub(before as u32);
            (Severity::Warning, format!("{grown} system management interrupts in {:.1} s", time.as_secs_f64()))
        }
        Some(_) => return fine(),
        None if now > 0 => (Severity::Note, format!("{now} system management interrupts since the last reset")),
        None => return fine(),
    };
    found(Found {
        severity,
        text,
        evidence: vec![seen(&register, &now.to_string())],
        consequence: "the firmware stops all CPUs for tens to hundreds of microseconds, and no program sees it",
        remedy: match before {
            Some(_) => {
                "switch off USB legacy support, power capping and memory error polling in the firmware setup".to_owned()
            }
            None => "firmware causes some while it boots; --watch 60s shows whether they go on".to_owned(),
        },
    })
}

/// Below this share of all time, in percent, stolen time is not worth a word.
const STEAL_PERCENT: f64 = 0.1;

pub fn steal(machine: &Machine) -> Verdict {
    let Ok(now) = usage::CpuTime::load(machine.root) else {
        return not_checked("/proc/stat does not say", WITH_PROC);
    };
    let before = machine.earlier.and_then(|(earlier, _)| earlier.cpu_time).unwrap_or_default();
    let since = if machine.earlier.is_some() { "while it was watched" } else { "since boot" };
    let spent = now.since(&before);
    let percent = spent.stolen_percent().unwrap_or(0.0);
    if percent < STEAL_PERCENT {
        return fine();
    }
    let (stolen, all) = (spent.steal_ns / usage::STAT_TICK_NS, spent.total_ns() / usage::STAT_TICK_NS);
    found(Found {
        severity: Severity::Warning,
        text: format!("the hypervisor took {percent:.1} % of the CPUs' time {since}"),
        evidence: vec![seen("/proc/stat, line cpu, 8th figure", &format!("{stolen} of {all} ticks"))],
        consequence: "a sample in which the CPU was away is as long as its absence",
        remedy: "pin the virtual CPUs to CPUs of their own, or measure on bare metal",
    })
}

pub fn nmi_watchdog(machine: &Machine) -> Verdict {
    let path = "/proc/sys/kernel/nmi_watchdog";
    if machine.file(path)? != "1" {
        return fine();
    }
    found(Found {
        severity: Severity::Note,
        text: "the NMI watchdog is on",
        evidence: vec![machine.seen(path)],
        consequence: "it takes one hardware counter of each CPU and interrupts every few seconds, interrupts off or not",
        remedy: "sysctl kernel.nmi_watchdog=0 for the time of the measurement",
    })
}

pub fn numa_balancing(machine: &Machine) -> Verdict {
    let path = "/proc/sys/kernel/numa_balancing";
    let nodes = topology::nodes(&machine.environment.cpus).len();
    if nodes < 2 {
        return not_applicable(ONE_NODE);
    }
    if machine.file(path)? == "0" {
        return fine();
    }
    found(Found {
        severity: Severity::Note,
        text: format!("the kernel moves pages between {nodes} nodes by itself"),
        evidence: vec![machine.seen(path)],
        consequence: "page faults while a buffer is in use, and its node may change during a run",
        remedy: "sysctl kernel.numa_balancing=0, and place memory by hand (numactl)",
    })
}
