//! The clock that the figures are taken by.

use pciescope_core::Severity;

use super::case::{Found, Machine, Verdict, WITH_PROC, fine, found, not_applicable, not_checked, seen};

const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

pub fn source(machine: &Machine) -> Verdict {
    let expected = match machine.environment.machine.as_str() {
        "x86_64" => "tsc",
        "aarch64" => "arch_sys_counter",
        other => return not_applicable(format!("no clock source is known to be the best of a machine {other:?}")),
    };
    machine.file(SOURCE)?;
    let Some(source) = machine.environment.clocksource.as_deref().filter(|source| *source != expected) else {
        return fine();
    };
    let available = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    found(Found {
        severity: Severity::Warning,
        text: format!("the kernel's clock source is {source}, not {expected}"),
        evidence: vec![machine.seen(SOURCE), machine.seen(available)],
        consequence: "reading the time is slow, a system call or worse, and the CPU's counter may not be trusted",
        remedy: "look for `clocksource` in the kernel log: the kernel may have found the CPU's counter unstable",
    })
}

pub fn unstable(machine: &Machine) -> Verdict {
    if machine.environment.machine != "x86_64" {
        return not_applicable("only x86 has a time stamp counter");
    }
    let cpuinfo = machine.root.text("/proc/cpuinfo").unwrap_or_default();
    let Some(line) = cpuinfo.lines().find(|line| line.starts_with("flags")) else {
        return not_checked("/proc/cpuinfo shows no flags", WITH_PROC);
    };
    let has = |flag: &str| line.split_whitespace().any(|word| word == flag);
    let missing: Vec<&str> = ["constant_tsc", "nonstop_tsc"].into_iter().filter(|flag| !has(flag)).collect();
    let cmdline = machine.environment.cmdline.as_deref().unwrap_or_default();
    let option = cmdline.split_whitespace().find(|word| matches!(*word, "notsc" | "tsc=unstable"));
    let (text, evidence) = match option {
        Some(option) => (
            format!("the kernel was told not to trust the time stamp counter ({option})"),
            seen("/proc/cmdline", option),
        ),
        None if missing.is_empty() => return fine(),
        None => (
            format!("the time stamp counter may vary or stop: the CPU lacks {}", missing.join(" and ")),
            seen("/proc/cpuinfo, flags", &format!("without {}", missing.join(", "))),
        ),
    };
    found(Found {
        severity: Severity::Warning,
        text,
        evidence: vec![evidence],
        consequence: "a number of ticks is not a duration in time: every latency is doubtful",
        remedy: "in a guest, have the host pass the flags on (QEMU: -cpu host,+invtsc); otherwise measure on another machine",
    })
}
