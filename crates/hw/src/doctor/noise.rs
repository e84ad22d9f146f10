//! Checks: events that take a CPU away for a short time.

use pciescope_core::Severity;

use super::case::{AS_ROOT, Found, Machine, Verdict, WITH_PROC, fine, found, not_applicable, not_checked, seen};
use super::kernel::LOCKDOWN;
use super::place::ONE_NODE;
use super::readings::{MSR, smi as read_smi};
use crate::{topology, usage, why};

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

const TRACING: &str = "/sys/kernel/tracing";

pub fn slow_causes(machine: &Machine) -> Verdict {
    if !machine.root.exists(TRACING) {
        return not_applicable(format!("there is no {TRACING}: `latency --why` has no tracepoints"));
    }
    let events = format!("{TRACING}/events");
    if machine.root.names(&events).is_empty() {
        return not_checked(format!("{events} cannot be read"), AS_ROOT);
    }
    let lacking = why::lacking(machine.root);
    let (mut text, mut evidence) = (Vec::new(), Vec::new());
    if !lacking.is_empty() {
        text.push(format!("it cannot read {} of its {} main tracepoints", lacking.len(), why::MAIN_POINTS));
        evidence.push(seen(&events, &format!("not there: {}", lacking.join(", "))));
        evidence.extend(machine.root.exists(LOCKDOWN).then(|| machine.seen(LOCKDOWN)));
    }
    // Nobody is beside a single CPU to see it stand still.
    if machine.environment.cpus.len() == 1 {
        text.push("one CPU is online, and no other sees it stand still".to_owned());
        evidence.push(machine.seen("/sys/devices/system/cpu/online"));
    }
    if text.is_empty() {
        return fine();
    }
    found(Found {
        severity: Severity::Note,
        text: format!("`latency --why` names fewer causes here: {}", text.join("; ")),
        evidence,
        consequence: "slow samples that these would explain are called unknown, or by what remains",
        remedy: "measure on a kernel with CONFIG_FTRACE, without lockdown=confidentiality, with two CPUs or more",
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
