//! Checks: links that enter power-saving states (ASPM).

use pciescope_core::{Bdf, Evidence, Severity};

use super::case::{Case, Found, Machine, Verdict, fine, found, not_applicable, tried};
use super::link;
use crate::config::Aspm;
use crate::express::{self, EXT_ARI};

/// The states that are on at both ends of the link above a function, and where they were read.
struct Ends {
    /// The port above; `None` where that cannot be found out.
    port: Option<Aspm>,
    /// The device below: what all its functions have on.
    device: Option<Aspm>,
    evidence: Vec<Evidence>,
}

/// A function's own setting.
fn setting(case: &Case, evidence: &mut Vec<Evidence>) -> Option<Aspm> {
    let express = case.express_if_readable()?;
    evidence.push(case.register("LnkCtl", express.at + 0x10, express.link_control()));
    case.config.aspm()
}

fn ends(case: &Case) -> Ends {
    let mut evidence = Vec::new();
    let port = case.parent().and_then(|port| setting(&port, &mut evidence));
    // Function 0 alone decides for a device with ARI (7.5.3.7); for others what all functions have on. Those of a virtual
    // function are reserved.
    let has_ari = express::extended(case.config, EXT_ARI).is_some();
    let numbers = if has_ari { 0..=0 } else { 0..=7 };
    let device = if has_ari { 0 } else { case.bdf.device };
    let mates = numbers.map(|function| Bdf { device, function, ..case.bdf });
    let mates = mates.filter_map(|bdf| Case::of(case.machine, bdf)).filter(|mate| !mate.is_virtual());
    let settings: Vec<Aspm> = mates.filter_map(|mate| setting(&mate, &mut evidence)).collect();
    let common = settings.into_iter().reduce(|one, other| Aspm { l0s: one.l0s && other.l0s, l1: one.l1 && other.l1 });
    // Readable without root, at the lower end of a link only: what the kernel switched on for the link.
    let is_on = |file: &str| case.machine.root.number(case.path(file)).map(|on| on == 1);
    let by_kernel = || {
        let (l0s, l1) = (is_on("link/l0s_aspm"), is_on("link/l1_aspm"));
        (l0s.is_some() || l1.is_some()).then(|| Aspm { l0s: l0s == Some(true), l1: l1 == Some(true) })
    };
    if common.is_none() && by_kernel().is_some() {
        evidence.extend([case.seen("link/l0s_aspm"), case.seen("link/l1_aspm")]);
    }
    Ends { port, device: common.or_else(by_kernel), evidence }
}

/// The states that the link above a function enters, in words: L1 needs both ends, L0s is for each direction alone. Empty for a
/// link that stays awake; `None` where that cannot be found out.
fn states(case: &Case, ends: &Ends) -> Option<String> {
    let (port, device) = (ends.port.or(ends.device)?, ends.device.or(ends.port)?);
    let above = case.parent().map(|port| port.bdf.to_string()).unwrap_or_default();
    let l0s = match (port.l0s, device.l0s) {
        (true, true) => Some("L0s".to_owned()),
        (true, false) => Some(format!("L0s at {above} alone")),
        (false, true) => Some(format!("L0s at {} alone", case.bdf)),
        (false, false) => None,
    };
    let l1 = (port.l1 && device.l1).then(|| "L1".to_owned());
    Some(l0s.into_iter().chain(l1).collect::<Vec<_>>().join(" and "))
}

/// The function whose folder `link` switches off a sleeping link at this function, above it or below; `None` where no link
/// there sleeps.
pub(super) fn sleeper(case: &Case) -> Option<Bdf> {
    let lower = if case.function.has_link_above() { Case::of(case.machine, case.bdf) } else { case.children().next() }?;
    states(&lower, &ends(&lower)).filter(|states| !states.is_empty())?;
    Some(lower.bdf)
}

pub fn enabled(case: &Case) -> Verdict {
    if !case.function.has_link_above() {
        return not_applicable(link::NONE_ABOVE);
    }
    let ends = ends(case);
    let Some(states) = states(case, &ends) else {
        case.express()?;
        return fine();
    };
    if states.is_empty() {
        return fine();
    }
    found(Found {
        severity: Severity::Warning,
        text: format!("the link of {} may sleep between reads: ASPM {states}", case.bdf),
        evidence: ends.evidence,
        consequence: "the first access after a pause waits until the link is awake: up to some microseconds for L0s, tens for L1",
        remedy: tried(
            "boot with pcie_aspm.policy=performance, or write 0 to the files l0s_aspm and l1_aspm in the function's folder `link` in sysfs",
            case.bdf,
            if states.contains("L1") { "--try aspm-l1=off" } else { "--try aspm-l0s=off" },
        ),
    })
}

const POLICY: &str = "/sys/module/pcie_aspm/parameters/policy";

pub fn policy(machine: &Machine) -> Verdict {
    machine.file(POLICY)?;
    let Some(policy) = machine.environment.aspm_policy.as_deref().filter(|policy| policy.starts_with("power")) else {
        return fine();
    };
    found(Found {
        severity: Severity::Warning,
        text: format!("the kernel's ASPM policy is {policy}"),
        evidence: vec![machine.seen(POLICY)],
        consequence: "links sleep as deep as they can between accesses, those of devices plugged in later too",
        remedy: format!("echo performance > {POLICY}, or boot with pcie_aspm.policy=performance"),
    })
}
