//! Counters of hardware against what the kernel counted at the same port and time: hardware counts more, never less.

use pciescope_core::{Bdf, Evidence, Severity};

use super::case::{Case, Found, Unseen, Verdict, fine, found, not_applicable, not_checked};

/// What both counted at a root port in one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// The root port.
    pub bdf: Bdf,
    /// For how long, in seconds.
    pub seconds: f64,
    /// Bytes that hardware counted, Rx and Tx.
    pub hardware: [f64; 2],
    /// Bytes that the kernel counted at least, Rx and Tx; 0 where it counts nothing.
    pub kernel: [f64; 2],
}

const DIRECTIONS: [&str; 2] = ["Rx", "Tx"];
/// Data under way while the two are read one after the other, and a rounding of drivers, in bytes.
const SLACK_BYTES: f64 = 4e6;
/// So much more than hardware may the kernel count: headers that a network card makes itself (docs/accounting.md).
const MORE: f64 = 1.06;
/// Protocol and small packets at most double what the kernel counts, and requests of the other direction cost this part.
const PROTOCOL: f64 = 2.0;
const REQUESTS: f64 = 0.25;

/// What was counted at a port.
fn counted<'a>(case: &Case<'a>) -> Result<&'a Counted, Unseen> {
    let is_port = case.is_bridge() && case.function.path.is_empty();
    if !is_port {
        return not_applicable("it is not a root port");
    }
    let Some(all) = &case.machine.counted else {
        return not_checked("it needs a time to count in", "--watch 10s counts");
    };
    match all.iter().find(|one| one.bdf == case.bdf) {
        Some(one) => Ok(one),
        None => not_applicable("no hardware counter counts its payload"),
    }
}

/// `Tx: hardware 1.0 MB, kernel at least 2.0 MB`, as evidence.
fn evidence(one: &Counted, direction: usize) -> Vec<Evidence> {
    let mega = |bytes: f64| format!("{:.2} MB", bytes / 1e6);
    let text = format!("{} in {:.1} s", mega(one.hardware[direction]), one.seconds);
    let least = format!("at least {} in {:.1} s", mega(one.kernel[direction]), one.seconds);
    let seen = |source: &str, value: String| Evidence { source: source.to_owned(), value };
    vec![
        seen(&format!("hardware counter of {}", one.bdf), text),
        seen(&format!("kernel accounting of {}", one.bdf), least),
    ]
}

pub fn above(case: &Case) -> Verdict {
    let one = counted(case)?;
    let is_above = |at: &usize| one.kernel[*at] > MORE * one.hardware[*at] + SLACK_BYTES;
    let Some(at) = (0..2).find(is_above) else { return fine() };
    found(Found {
        severity: Severity::Warning,
        text: format!("{}: the kernel moved more than its hardware counter saw ({})", case.bdf, DIRECTIONS[at]),
        evidence: evidence(one, at),
        consequence: "that cannot be: the counter counts another port, in another unit, or not all of the time",
        remedy: "pciescope verify pcie compares the counter with known traffic",
    })
}

pub fn unseen(case: &Case) -> Verdict {
    let one = counted(case)?;
    let allowed = |at: usize| PROTOCOL * one.kernel[at] + REQUESTS * one.kernel[1 - at] + SLACK_BYTES;
    let Some(at) = (0..2).find(|at| one.hardware[*at] > allowed(*at)) else { return fine() };
    let rate = (one.hardware[at] - one.kernel[at]) / one.seconds.max(1e-9) / 1e6;
    found(Found {
        severity: Severity::Note,
        text: format!("{}: {rate:.0} MB/s that the kernel does not see ({})", case.bdf, DIRECTIONS[at]),
        evidence: evidence(one, at),
        consequence: "kernel accounting of this port is far too low: a driver in user space, a GPU, device to device",
        remedy: "rely on the hardware counters here: pciescope stat --source hardware",
    })
}
