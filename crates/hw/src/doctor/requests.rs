//! Checks: ordering, tags and time-outs of an endpoint's requests.

use pciescope_core::Severity;

use super::case::{Case, Found, Unseen, Verdict, fine, found, not_applicable};
use crate::express::{Express, PortType};

/// The capability of a function that masters the bus, with registers of its own.
fn requester<'a>(case: &Case<'a>) -> Result<Express<'a>, Unseen> {
    case.not_a_bridge()?;
    case.not_virtual()?;
    let express = case.express()?;
    if express.kind() == PortType::Endpoint { Ok(express) } else { not_applicable("it is not an endpoint") }
}

/// Why checks of Device Control 2 pass over a function.
const VERSION_1: &str = "its PCI Express capability is of version 1";

// Device Control (7.5.3.4).
const RELAXED_ORDERING: u16 = 1 << 4;
const EXTENDED_TAG: u16 = 1 << 8;
// Device Capabilities (7.5.3.3).
const EXTENDED_TAG_SUPPORTED: u32 = 1 << 5;
// Device Capabilities 2 (7.5.3.15).
const TIMEOUT_DISABLE_SUPPORTED: u32 = 1 << 4;
const ATOMIC_ROUTING: u32 = 1 << 6;
const ATOMIC_COMPLETER: u32 = 0b111 << 7;
const TEN_BIT_COMPLETER: u32 = 1 << 16;
const TEN_BIT_REQUESTER: u32 = 1 << 17;
// Device Control 2 (7.5.3.16).
const TIMEOUT_VALUE: u16 = 0xf;
const TIMEOUT_DISABLE: u16 = 1 << 4;
const ATOMIC_REQUESTER: u16 = 1 << 6;
const ATOMIC_EGRESS_BLOCKING: u16 = 1 << 7;
const TEN_BIT_ENABLE: u16 = 1 << 12;

pub fn relaxed_ordering(case: &Case) -> Verdict {
    let express = requester(case)?;
    let control = express.device_control();
    if control & RELAXED_ORDERING != 0 {
        return fine();
    }
    found(Found {
        severity: Severity::Note,
        text: format!("{} may not use relaxed ordering", case.bdf),
        evidence: vec![case.register("DevCtl", express.at + 8, control)],
        consequence: "its writes wait for each other in the root complex, which costs most on machines with several dies",
        remedy: format!(
            "setpci -s {} CAP_EXP+08.w=0010:0010, where the driver allows it (some kernels switch it off for root ports that mix up data)",
            case.bdf
        ),
    })
}

/// A round trip of a read over PCIe to DRAM, on the long side, in seconds.
const ROUND_TRIP_S: f64 = 1e-6;

pub fn extended_tags(case: &Case) -> Verdict {
    let express = requester(case)?;
    let (capabilities, control) = (express.device_capabilities(), express.device_control());
    if capabilities & EXTENDED_TAG_SUPPORTED == 0 {
        return not_applicable("it has 5-bit tags alone");
    }
    if control & EXTENDED_TAG != 0 {
        return fine();
    }
    let request = case.config.mrrs_bytes().unwrap_or(512);
    let rate = 32.0 * f64::from(request) / ROUND_TRIP_S / 1e9;
    found(Found {
        severity: Severity::Note,
        text: format!("{} uses 5-bit tags although it can use 8-bit ones", case.bdf),
        evidence: vec![
            case.register("DevCtl", express.at + 8, control),
            case.register("DevCap", express.at + 4, capabilities),
        ],
        consequence: format!(
            "32 reads at a time: at {request} bytes and 1 us each the device reads no more than {rate:.1} GB/s"
        ),
        remedy: "leave it: Linux switches them on, unless it knows that something above answers them wrongly (`journalctl -k -g 'Extended Tags'` names it), or a driver or the firmware switched them off since",
    })
}

pub fn ten_bit_tags(case: &Case) -> Verdict {
    let express = requester(case)?;
    let (Some(capabilities), Some(control)) = (express.device_capabilities_2(), express.device_control_2()) else {
        return not_applicable(VERSION_1);
    };
    let is_fast = case.function.link.is_some_and(|link| link.speed_gts >= 16.0);
    if capabilities & TEN_BIT_REQUESTER == 0 || !is_fast || case.function.path.is_empty() {
        return not_applicable("it has no 10-bit tags, or no link of 16 GT/s that would need them");
    }
    if control & TEN_BIT_ENABLE != 0 {
        return fine();
    }
    for port in case.above() {
        if port.express()?.device_capabilities_2().is_none_or(|able| able & TEN_BIT_COMPLETER == 0) {
            return not_applicable(format!("the port {} above it does not take 10-bit tags", port.bdf));
        }
    }
    found(Found {
        severity: Severity::Note,
        text: format!("{} does not use 10-bit tags although it and its path can", case.bdf),
        evidence: vec![
            case.register("DevCtl2", express.at + 0x28, control),
            case.register("DevCap2", express.at + 0x24, capabilities),
        ],
        consequence: "256 reads at a time instead of 768: long paths are not filled at 16 GT/s and above",
        remedy: format!(
            "look for 10-bit tags in {}; Linux leaves this bit as the firmware set it",
            case.machine.setup()
        ),
    })
}

pub fn completion_timeout(case: &Case) -> Verdict {
    if case.function.link.is_none() {
        return not_applicable("it has no link");
    }
    case.not_virtual()?;
    let express = case.express()?;
    if !matches!(express.kind(), PortType::Endpoint | PortType::RootPort) {
        return not_applicable("it is neither an endpoint nor a root port");
    }
    let (Some(capabilities), Some(control)) = (express.device_capabilities_2(), express.device_control_2()) else {
        return not_applicable(VERSION_1);
    };
    let is_root = express.kind() == PortType::RootPort;
    let (text, consequence) = if control & TIMEOUT_DISABLE != 0 && capabilities & TIMEOUT_DISABLE_SUPPORTED != 0 {
        let waits = if is_root { "the CPU that reads" } else { "the device" };
        ("never gives up a request", format!("a lost answer hangs {waits}, for good"))
    } else if control & TIMEOUT_VALUE == 1 {
        (
            "gives up a request after 50 to 100 us",
            "a slow answer, as of a device that wakes up, becomes an error and all-ones".to_owned(),
        )
    } else {
        return fine();
    };
    found(Found {
        severity: Severity::Warning,
        text: format!("{} {text}", case.bdf),
        evidence: vec![
            case.register("DevCtl2", express.at + 0x28, control),
            case.register("DevCap2", express.at + 0x24, capabilities),
        ],
        consequence,
        remedy: format!("setpci -s {} CAP_EXP+28.w=0000:001f (50 us to 50 ms, the default)", case.bdf),
    })
}

/// What a port does to an AtomicOp on its way up to memory (6.15.3); `None` where it lets it pass.
fn atomics_end_at(port: &Case) -> Result<Option<&'static str>, Unseen> {
    let express = port.express()?;
    let able = express.device_capabilities_2().unwrap_or(0);
    let control = express.device_control_2().unwrap_or(0);
    Ok(match express.kind() {
        PortType::RootPort if able & ATOMIC_COMPLETER == 0 => Some("carries out none"),
        PortType::Upstream | PortType::Downstream if able & ATOMIC_ROUTING == 0 => Some("passes none on"),
        PortType::Upstream if control & ATOMIC_EGRESS_BLOCKING != 0 => Some("is told to block them"),
        _ => None,
    })
}

pub fn atomics(case: &Case) -> Verdict {
    let express = requester(case)?;
    let Some(control) = express.device_control_2() else { return not_applicable(VERSION_1) };
    if control & ATOMIC_REQUESTER == 0 {
        return not_applicable("it may not send AtomicOps");
    }
    case.port()?;
    for port in case.above() {
        let Some(what) = atomics_end_at(&port)? else { continue };
        let above = port.express()?;
        return found(Found {
            severity: Severity::Warning,
            text: format!("{} may send AtomicOps, and the port {} above it {what}", case.bdf, port.bdf),
            evidence: vec![
                case.register("DevCtl2", express.at + 0x28, control),
                port.register("DevCap2", above.at + 0x24, above.device_capabilities_2().unwrap_or(0)),
                port.register("DevCtl2", above.at + 0x28, above.device_control_2().unwrap_or(0)),
            ],
            consequence: "an AtomicOp to the machine's memory ends as an error there: what waits for it fails",
            remedy: format!(
                "look for AtomicOps in {}, or move the card to a slot whose path has them; a driver that asks the kernel first (pci_enable_atomic_ops_to_root) does without",
                case.machine.setup()
            ),
        });
    }
    fine()
}
