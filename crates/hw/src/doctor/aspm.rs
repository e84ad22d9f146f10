//! Checks: links that enter power-saving states (ASPM).

use pciescope_core::Severity;

use super::case::{Case, Found, Machine, Verdict, fine, found, not_applicable};
use super::link;
use crate::config::Aspm;
use crate::pci;

/// The states that are on at this end of its link; `None` where that cannot be found out.
fn states(case: &Case) -> Option<Aspm> {
    if let Some(states) = case.config.aspm() {
        return Some(states);
    }
    // Readable without root, at the lower end of a link only.
    let is_on = |file: &str| case.machine.root.number(case.path(file)).map(|on| on == 1);
    let (l0s, l1) = (is_on("link/l0s_aspm"), is_on("link/l1_aspm"));
    (l0s.is_some() || l1.is_some()).then(|| Aspm { l0s: l0s == Some(true), l1: l1 == Some(true) })
}

pub fn enabled(case: &Case) -> Verdict {
    if !pci::has_link_above(case.function) {
        return not_applicable(link::NONE_ABOVE);
    }
    let (mut on, mut evidence, mut is_known) = (Vec::new(), Vec::new(), false);
    for end in case.parent().iter().chain([case]) {
        let Some(states) = states(end) else { continue };
        is_known = true;
        let words = match (states.l0s, states.l1) {
            (true, true) => "L0s and L1",
            (true, false) => "L0s",
            (false, true) => "L1",
            (false, false) => continue,
        };
        on.push(format!("{} {words}", end.bdf));
        match end.express_if_readable() {
            Some(express) => evidence.push(end.register("LnkCtl", express.at + 0x10, express.link_control())),
            None => evidence.extend([end.seen("link/l0s_aspm"), end.seen("link/l1_aspm")]),
        }
    }
    if !is_known {
        case.express()?;
    }
    if on.is_empty() {
        return fine();
    }
    found(Found {
        severity: Severity::Warning,
        text: format!("the link may sleep between reads: ASPM is on at {}", on.join(", ")),
        evidence,
        consequence: "the first access after a pause waits until the link is awake: up to some microseconds for L0s, tens for L1",
        remedy: "boot with pcie_aspm.policy=performance, or write 0 to the files l0s_aspm and l1_aspm in the function's folder `link` in sysfs",
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
