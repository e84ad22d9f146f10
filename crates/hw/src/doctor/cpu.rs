//! Checks: idle states and clock frequencies of CPUs.

use std::io::Read;

use pciescope_core::Severity;

use super::case::{Found, Machine, Verdict, fine, found, not_applicable, seen, tried};
use crate::environment;

/// From this exit latency on an idle state counts as deep, in microseconds.
const DEEP_US: u64 = 10;
/// Idle states of CPU 0.
const IDLE_STATES: &str = "/sys/devices/system/cpu/cpu0/cpuidle";
const DMA_LATENCY: &str = "/dev/cpu_dma_latency";

/// The longest wake-up that is allowed now, in microseconds; `None` where it cannot be read. To open the file asks for
/// nothing, which is taken back when it is closed (Documentation/power/pm_qos_interface.rst).
fn allowed_us(machine: &Machine) -> Option<u64> {
    let mut bytes = [0; 4];
    std::fs::File::open(machine.root.path(DMA_LATENCY)).ok()?.read_exact(&mut bytes).ok()?;
    u64::try_from(i32::from_le_bytes(bytes)).ok()
}

pub fn deep_idle(machine: &Machine) -> Verdict {
    let states = environment::idle_states(machine.root);
    if states.is_empty() && machine.root.names(IDLE_STATES).is_empty() {
        return not_applicable(format!("there is no {IDLE_STATES}"));
    }
    if !states.iter().any(|state| state.exit_us >= DEEP_US) {
        return fine();
    }
    let allowed = allowed_us(machine);
    let is_entered = |exit_us: u64| exit_us >= DEEP_US && allowed.is_none_or(|allowed| exit_us <= allowed);
    let deep: Vec<String> = states
        .into_iter()
        .filter(|state| is_entered(state.exit_us))
        .map(|state| format!("{} ({} us to leave)", state.name, state.exit_us))
        .collect();
    if deep.is_empty() {
        return fine();
    }
    let mut evidence = vec![seen("/sys/devices/system/cpu/cpu0/cpuidle/state*/latency", &deep.join(", "))];
    if let Some(allowed) = allowed {
        evidence.push(seen(DMA_LATENCY, &format!("{allowed} us")));
    }
    found(Found {
        severity: Severity::Warning,
        text: format!("deep idle states are on: {}", deep.join(", ")),
        evidence,
        consequence: "an interrupt to a sleeping CPU waits that long, and package states slow the root complex too",
        remedy: tried(
            "hold /dev/cpu_dma_latency at 0 or boot with cpuidle.off=1 (Intel: intel_idle.max_cstate=1)",
            "BDF",
            "--shared --try idle-latency=0",
        ),
    })
}

pub fn governor(machine: &Machine) -> Verdict {
    if machine.environment.governors.is_empty() {
        return not_applicable("no CPU has a frequency governor");
    }
    let slow: Vec<&str> =
        machine.environment.governors.iter().map(String::as_str).filter(|name| *name != "performance").collect();
    if slow.is_empty() {
        return fine();
    }
    found(Found {
        severity: Severity::Warning,
        text: format!("the frequency governor is {}", slow.join(", ")),
        evidence: vec![seen(
            "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
            &machine.environment.governors.join(", "),
        )],
        consequence: "clocks follow the load with a delay: the first samples are slower than the last",
        remedy: tried("cpupower frequency-set -g performance", "BDF", "--shared --try governor=performance"),
    })
}

pub fn boost(machine: &Machine) -> Verdict {
    let no_turbo = "/sys/devices/system/cpu/intel_pstate/no_turbo";
    let boost = "/sys/devices/system/cpu/cpufreq/boost";
    let (path, remedy) = if machine.root.number(no_turbo) == Some(0) {
        (no_turbo, format!("echo 1 > {no_turbo} for the time of a comparison"))
    } else if machine.root.number(boost) == Some(1) {
        (boost, format!("echo 0 > {boost} for the time of a comparison"))
    } else if machine.root.exists(no_turbo) || machine.root.exists(boost) {
        return fine();
    } else {
        return not_applicable(format!("there is neither {no_turbo} nor {boost}"));
    };
    found(Found {
        severity: Severity::Note,
        text: "CPUs may run above their nominal clock",
        evidence: vec![machine.seen(path)],
        consequence: "the clock depends on temperature and on how many CPUs are busy, and figures with it",
        remedy,
    })
}

pub fn smt(machine: &Machine) -> Verdict {
    let path = "/sys/devices/system/cpu/smt/active";
    if machine.file(path)? != "1" {
        return fine();
    }
    found(Found {
        severity: Severity::Note,
        text: "two or more threads share each core (SMT)",
        evidence: vec![machine.seen(path)],
        consequence: "a busy sibling slows the measuring thread",
        remedy: "keep the siblings of measuring CPUs idle (`pciescope list --show-cpus` shows them), or echo off > /sys/devices/system/cpu/smt/control",
    })
}

pub fn isolation(machine: &Machine) -> Verdict {
    let (isolated, nohz) = ("/sys/devices/system/cpu/isolated", "/sys/devices/system/cpu/nohz_full");
    machine.file(isolated)?;
    // Without CPUs the kernel writes an empty line, or `(null)`.
    let has_cpus = |path: &str| machine.root.text(path).is_some_and(|text| text.trim() != "(null)");
    if has_cpus(isolated) && has_cpus(nohz) {
        return fine();
    }
    let text = match (has_cpus(isolated), has_cpus(nohz)) {
        (false, false) => "no CPU is kept free of other work",
        (false, true) => "CPUs without a tick are not isolated from the scheduler",
        (true, _) => "isolated CPUs still have the timer's tick",
    };
    found(Found {
        severity: Severity::Note,
        text: text.to_owned(),
        evidence: vec![machine.seen(isolated), machine.seen(nohz)],
        consequence: "the far tail of a latency holds the scheduler's and the timer's work",
        remedy: "boot with isolcpus=LIST nohz_full=LIST rcu_nocbs=LIST and measure on those CPUs (--cpus LIST)",
    })
}

pub fn throttle(machine: &Machine) -> Verdict {
    let (mut sum, mut hot, mut first, mut is_counted) = (0_u64, 0, None, false);
    for cpu in &machine.environment.cpus {
        let path = format!("/sys/devices/system/cpu/cpu{}/thermal_throttle/core_throttle_count", cpu.cpu);
        let Some(count) = machine.root.number(&path) else { continue };
        is_counted = true;
        if count == 0 {
            continue;
        }
        sum = sum.saturating_add(count);
        hot += 1;
        first = first.or_else(|| Some(machine.seen(&path)));
    }
    if !is_counted {
        return not_applicable("no CPU has a thermal_throttle/core_throttle_count");
    }
    let Some(first) = first else { return fine() };
    found(Found {
        severity: Severity::Warning,
        text: format!("{hot} CPUs were slowed down by heat {sum} times since boot"),
        evidence: vec![first],
        consequence: "a run under load gets slower as it goes on",
        remedy: "check cooling and power limits (turbostat shows both)",
    })
}
