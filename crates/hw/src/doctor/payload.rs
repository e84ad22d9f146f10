//! Sizes of payloads and read requests.

use pciescope_core::Severity;

use super::case::{Case, Found, Unseen, Verdict, fine, found, not_applicable, not_checked, tried};
use crate::express::{Express, PortType};

/// Header, sequence number, LCRC and framing of a memory write with a 64-bit address, in bytes, up to 32 GT/s.
const PER_TLP: f64 = 26.0;

/// The capability, where the function's own payload fields count: those of a virtual function are reserved (9.3.5.4).
fn express<'a>(case: &Case<'a>) -> Result<Express<'a>, Unseen> {
    case.not_virtual()?;
    case.express()
}

/// A size of Device Control; the codes 6 and 7 are reserved (7.5.3.4).
fn size(bytes: Option<u16>, case: &Case) -> Result<u16, Unseen> {
    let why = || not_checked(format!("Device Control of {} has a reserved size", case.bdf), "lspci -vv shows it");
    bytes.map_or_else(why, Ok)
}

/// Not for bridges, nor for what is built into the root complex.
pub(super) fn on_a_link(case: &Case) -> Result<(), Unseen> {
    case.not_a_bridge()?;
    if case.function.link.is_none() { not_applicable("it has no link") } else { Ok(()) }
}

pub fn mismatch(case: &Case) -> Verdict {
    let express = express(case)?;
    let port = case.port()?;
    let above = port.express()?;
    let (own, ports) = (size(case.config.mps_bytes(), case)?, size(port.config.mps_bytes(), &port)?);
    let request = size(case.config.mrrs_bytes(), case)?;
    // pci=pcie_bus_perf: a function may take less than its port where it never asks for more at once.
    if own == ports || (own < ports && request <= own) {
        return fine();
    }
    let (larger, smaller) = if own > ports { ("function", "port") } else { ("port", "function") };
    found(Found {
        severity: Severity::Problem,
        text: format!("{} has a payload size of {own} bytes, the port {} above it one of {ports}", case.bdf, port.bdf),
        evidence: vec![
            case.register("DevCtl", express.at + 8, express.device_control()),
            port.register("DevCtl", above.at + 8, above.device_control()),
        ],
        consequence: format!("the {smaller} drops what the {larger} sends in full: malformed TLP, a fatal error"),
        remedy: "boot with pci=pcie_bus_safe, or re-plug the device so that the kernel sets it up anew",
    })
}

pub fn low(case: &Case) -> Verdict {
    on_a_link(case)?;
    let own = express(case)?;
    let now = size(case.config.mps_bytes(), case)?;
    let mut evidence = vec![case.register("DevCtl", own.at + 8, own.device_control())];
    evidence.push(case.register("DevCap", own.at + 4, own.device_capabilities()));
    for port in case.above() {
        let express = port.express()?;
        evidence.push(port.register("DevCap", express.at + 4, express.device_capabilities()));
    }
    let mut most = own.payload_most();
    for mate in case.family().filter(|mate| !mate.is_virtual()) {
        most = mate.express_if_readable().map_or(most, |express| most.min(express.payload_passed()));
    }
    let Some(most) = most.filter(|most| now < *most) else { return fine() };
    let efficiency = |payload: u16| f64::from(payload) / (f64::from(payload) + PER_TLP) * 100.0;
    found(Found {
        severity: Severity::Warning,
        text: format!("{} sends payloads of {now} bytes; all below its root port can do {most}", case.bdf),
        evidence,
        consequence: format!(
            "of what the link carries {:.0} % is payload; it would be {:.0} %",
            efficiency(now),
            efficiency(most)
        ),
        remedy: tried(
            &format!(
                "boot with pci=pcie_bus_safe (the largest that all below the root port can do), or look for Max Payload Size in {}",
                case.machine.setup()
            ),
            case.bdf,
            &format!("--try mps={most} --score NAME:max -- CMD"),
        ),
    })
}

/// What the kernel and firmware leave a device with, unless somebody set less.
const USUAL_REQUEST: u16 = 512;

pub fn read_request(case: &Case) -> Verdict {
    case.not_a_bridge()?;
    let express = express(case)?;
    if express.kind() != PortType::Endpoint {
        return not_applicable("it is not an endpoint");
    }
    let size = size(case.config.mrrs_bytes(), case)?;
    if size >= USUAL_REQUEST {
        return fine();
    }
    // pci=pcie_bus_perf: a function that takes less than a port above sends must not ask for more than it takes.
    if case.config.mps_bytes().is_some_and(|own| case.above().any(|port| port.config.mps_bytes() > Some(own))) {
        return fine();
    }
    found(Found {
        severity: Severity::Warning,
        text: format!("{} reads at most {size} bytes per request", case.bdf),
        evidence: vec![case.register("DevCtl", express.at + 8, express.device_control())],
        consequence: "reads by the device need more requests, and its tags run out before the link is full",
        remedy: tried(
            &format!(
                "setpci -s {} CAP_EXP+08.w=2000:7000 (512 bytes); with pci=pcie_bus_perf the kernel sets it to the payload size at boot",
                case.bdf
            ),
            case.bdf,
            "--try mrrs=512,4096",
        ),
    })
}
