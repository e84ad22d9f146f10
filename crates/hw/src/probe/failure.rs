//! The failures that all backends share, with one code and one text each.

use pciescope_core::record::Failure;
use pciescope_core::warning;
use pciescope_core::{Bdf, Warning};

fn failure(code: &str, text: String, hint: &str) -> Failure {
    Failure { code: code.to_owned(), text, hint: (!hint.is_empty()).then(|| hint.to_owned()) }
}

/// A register read all-ones where it may not.
pub fn all_ones(bdf: Bdf, place: &str, cpu: Option<u32>) -> Failure {
    let cpu = cpu.map(|c| format!(" from CPU {c}")).unwrap_or_default();
    failure(
        "all-ones",
        format!("{bdf}: {place} read all-ones{cpu}: no completion, an unimplemented register, or memory decoding off"),
        "if all-ones is a value this register may have, add --ones-ok; otherwise look at `pciescope list` and the kernel log",
    )
}

/// The device no longer answers.
pub fn removed(bdf: Bdf) -> Failure {
    Failure::removed(format!("{bdf}: the device no longer answers: it was removed or its link is down"))
}

/// The driver was unbound during the run.
pub fn unbound(bdf: Bdf) -> Failure {
    failure("unbound", format!("{bdf}: the driver was unbound during the run"), "")
}

/// The function was reset, or it or the machine slept.
pub fn reset(bdf: Bdf) -> Failure {
    failure(
        "reset",
        format!("{bdf}: the function was reset, or it or the machine slept, before the end of the run"),
        "",
    )
}

/// A CPU is not online, or went offline.
pub fn cpu_offline(bdf: Bdf, cpu: Option<u32>) -> Failure {
    let who = cpu.map(|c| format!("CPU {c}")).unwrap_or_else(|| "a CPU of the plan".to_owned());
    failure(
        "cpu-offline",
        format!("{bdf}: {who} is offline or went offline during the run"),
        "leave it out with --cpus, or bring it online",
    )
}

/// The user ended the run after so many samples.
pub fn interrupted(bdf: Bdf, done: u64) -> Failure {
    Failure::interrupted(format!("{bdf}: the run was ended after {done} samples"))
}

/// No interrupt came at all.
pub fn timeout(bdf: Bdf, timeout_ns: u64) -> Failure {
    failure(
        "timeout",
        format!("{bdf}: no interrupt came within {timeout_ns} ns of its trigger"),
        "try --raised-by retrigger to see whether the vector works at all, or a longer --timeout",
    )
}

/// The kernel or the device declined.
pub fn refused(bdf: Bdf, why: &str, hint: &str) -> Failure {
    Failure::refused(format!("{bdf}: {why}"), (!hint.is_empty()).then(|| hint.to_owned()))
}

/// A duration that a histogram cannot hold: counted, never clamped.
pub fn too_long(count: u64) -> Warning {
    warning::TOO_LONG.warn(format!(
        "{count} samples were longer than the histogram's buckets can hold; the figures are without them"
    ))
}

/// A function without extended configuration space was read at another offset than asked for.
pub fn no_extended_space(asked: u16, read: u64) -> Warning {
    warning::NO_EXTENDED_SPACE
        .warn(format!("the function has no configuration offset {asked:#x}; {read:#x} was read in its place"))
}
