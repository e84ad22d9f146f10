//! Check: access control (ACS) sends peer-to-peer traffic through the root complex.

use pciescope_core::Severity;

use super::case::{Case, Found, Verdict, fine, found, not_applicable};
use crate::express::{self, EXT_ACS, PortType};

// ACS Control (7.7.11.3).
const REQUEST_REDIRECT: u16 = 1 << 2;
const COMPLETION_REDIRECT: u16 = 1 << 3;

fn redirects(port: &Case) -> bool {
    let control = express::extended(port.config, EXT_ACS).and_then(|at| port.config.word(at + 6)).unwrap_or(0);
    control & (REQUEST_REDIRECT | COMPLETION_REDIRECT) != 0
}

pub fn redirect(case: &Case) -> Verdict {
    // Root ports have nothing nearer than the root complex to turn round in.
    if !case.is_bridge() || case.express()?.kind() != PortType::Downstream {
        return not_applicable("it is not a downstream port of a switch");
    }
    let at = case.extended(EXT_ACS, "Access Control Services")?;
    if !redirects(case) {
        return fine();
    }
    let control = case.config.word(at + 6).unwrap_or(0);
    let is_used = |port: &Case| port.children().next().is_some();
    let used: Vec<Case> = case.parent().map_or_else(Vec::new, |switch| switch.children().filter(is_used).collect());
    if !is_used(case) || used.len() < 2 {
        return fine();
    }
    // Switching it off at one port alone helps no pair of devices.
    let ports: Vec<String> = used.iter().filter(|port| redirects(port)).map(|port| port.bdf.to_string()).collect();
    found(Found {
        severity: Severity::Warning,
        text: format!("the switch port {} sends peer-to-peer traffic through the root complex", case.bdf),
        evidence: vec![case.register("ACS Control", at + 6, control)],
        consequence: "two devices below the switch talk over the upstream link and the root port: slower, and they share it",
        remedy: format!(
            "boot with 'pci=disable_acs_redir={}'; what is below the switch is then one IOMMU group, not to be given to different guests",
            ports.join(";")
        ),
    })
}
