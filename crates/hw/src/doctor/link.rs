//! Links against what their ends can do.

use std::collections::BTreeSet;

use pciescope_core::{Bdf, Evidence, Function, Link, Severity};

use super::case::{Case, Found, Unseen, Verdict, fine, found, not_applicable, not_checked};
use super::registers::Express;
use crate::{ceiling, pci};

/// Why checks of links pass over a function.
pub const NONE_ABOVE: &str = "no link leads up from it";

/// The link above a function as its own end sees it, the port at the other end, and what that can do.
fn link_above<'a>(case: &Case<'a>) -> Result<(Link, Case<'a>, Link), Unseen> {
    let Some(now) = case.function.link.filter(|_| pci::has_link_above(case.function)) else {
        return not_applicable(NONE_ABOVE);
    };
    let port = case.port()?;
    let Some(above) = port.function.link else { return not_applicable("the port above it shows no link") };
    if now.width == 0 {
        return not_applicable("its link is down");
    }
    Ok((now, port, above))
}

fn seen(case: &Case, port: &Case, what: &str) -> Vec<Evidence> {
    let (now, most) = (format!("current_link_{what}"), format!("max_link_{what}"));
    vec![case.seen(&now), case.seen(&most), port.seen(&most)]
}

/// `3.9 of 15.8 GB/s`: what a link carries as it is, of what it would.
fn share(now: (f64, u8), most: (f64, u8)) -> String {
    let rate = |(speed, lanes)| ceiling::wire_bytes_per_s(speed, lanes).unwrap_or(0.0) / 1e9;
    format!("it carries {:.1} of {:.1} GB/s in each direction", rate(now), rate(most))
}

/// Base classes of displays, and of what a card has beside one: sound; serial buses (USB-C, I2C).
const DISPLAY: u32 = 0x03;
const BESIDE_DISPLAY: [u32; 2] = [0x04, 0x0c];

/// Whether the link is that of a display, which slows it down while it is idle, without a fault: one of the card's
/// functions is a display, or the card begins with a switch that has this display alone below it.
fn is_of_display(case: &Case) -> bool {
    let slot = |bdf: Bdf| (bdf.domain, bdf.bus, bdf.device);
    let is_display = |function: &Function| function.class >> 16 == DISPLAY;
    if !case.is_bridge() {
        return case.machine.functions().any(|(bdf, other)| slot(bdf) == slot(case.bdf) && is_display(other));
    }
    let below: Vec<(Bdf, &Function)> = case
        .machine
        .functions()
        .filter(|(_, function)| function.path.contains(&case.bdf) && !pci::is_bridge(function.class))
        .collect();
    let displays: BTreeSet<_> =
        below.iter().filter(|(_, function)| is_display(function)).map(|(bdf, _)| slot(*bdf)).collect();
    let is_of_card = |function: &Function| is_display(function) || BESIDE_DISPLAY.contains(&(function.class >> 16));
    displays.len() == 1 && below.iter().all(|(_, function)| is_of_card(function))
}

pub fn speed(case: &Case) -> Verdict {
    let (now, port, above) = link_above(case)?;
    let (speed, lanes) = pci::both_ends_can(&now, &above);
    if now.speed_gts >= speed {
        return fine();
    }
    let (severity, remedy) = if is_of_display(case) {
        (
            Severity::Note,
            "look again under load: some GPUs slow an idle link down by themselves; otherwise reseat the card and check the riser",
        )
    } else {
        (
            Severity::Problem,
            "reseat the card, check riser, cable and the slot's speed in the firmware setup; `setpci` and link-target show a speed that is set",
        )
    };
    found(Found {
        severity,
        text: format!(
            "the link of {} runs at {} GT/s; it and the port {} above it can do {speed} GT/s",
            case.bdf, now.speed_gts, port.bdf
        ),
        evidence: seen(case, &port, "speed"),
        consequence: share((now.speed_gts, now.width), (speed, now.width.min(lanes))),
        remedy: remedy.to_owned(),
    })
}

pub fn width(case: &Case) -> Verdict {
    let (now, port, above) = link_above(case)?;
    let (_, lanes) = pci::both_ends_can(&now, &above);
    if now.width >= lanes {
        return fine();
    }
    found(Found {
        severity: Severity::Problem,
        text: format!(
            "the link of {} runs on x{}; it and the port {} above it can do x{lanes}",
            case.bdf, now.width, port.bdf
        ),
        evidence: seen(case, &port, "width"),
        consequence: share((now.speed_gts, now.width), (now.speed_gts, lanes)),
        remedy: "reseat the card, check the slot's bifurcation and the cable; a lane that stays missing is a broken contact",
    })
}

pub fn limited(case: &Case) -> Verdict {
    let (now, port, above) = link_above(case)?;
    let (speed, lanes) = pci::both_ends_can(&now, &above);
    // A port that could do more than its card is no fault; a card in too small a slot is worth a word.
    if speed >= now.max_speed_gts && lanes >= now.max_width {
        return fine();
    }
    let mut evidence = seen(case, &port, "speed");
    evidence.extend(seen(case, &port, "width"));
    found(Found {
        severity: Severity::Note,
        text: format!(
            "{} can do {} GT/s x{}, the port {} above it only {} GT/s x{}",
            case.bdf, now.max_speed_gts, now.max_width, port.bdf, above.max_speed_gts, above.max_width
        ),
        evidence,
        consequence: share((speed, lanes), (now.max_speed_gts, now.max_width)),
        remedy: "a faster or wider slot would use what the card can do",
    })
}

/// Speeds in GT/s in the order of their codes, from 1 (7.5.3.6, Supported Link Speeds).
const SPEEDS: [f64; 6] = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];

const NO_PORT_DOWN: &str = "it is neither a root port nor a downstream port of a switch";

/// The capability of a port whose link leads down.
fn leading_down<'a>(case: &Case<'a>) -> Result<Express<'a>, Unseen> {
    if !case.is_bridge() {
        return not_applicable(NO_PORT_DOWN);
    }
    let express = case.express()?;
    if express.leads_down() { Ok(express) } else { not_applicable(NO_PORT_DOWN) }
}

pub fn target(case: &Case) -> Verdict {
    let express = leading_down(case)?;
    let (Some(control), Some(link)) = (express.link_control_2(), case.function.link) else {
        return not_applicable("it has no link whose speed can be set");
    };
    // 7.5.3.19, Target Link Speed; 0 is what ports of the first generation have there.
    let code_of = |gts: f64| SPEEDS.iter().position(|speed| *speed == gts).map(|place| place + 1);
    let Some(&speed) = usize::from(control & 0xf).checked_sub(1).and_then(|place| SPEEDS.get(place)) else {
        return fine();
    };
    let Some(code) = code_of(link.max_speed_gts).filter(|_| speed < link.max_speed_gts) else { return fine() };
    found(Found {
        severity: Severity::Warning,
        text: format!(
            "the port {} is told to train to {speed} GT/s at most; it can do {} GT/s",
            case.bdf, link.max_speed_gts
        ),
        evidence: vec![case.register("LnkCtl2", express.at + 0x30, control), case.seen("max_link_speed")],
        consequence: "its link stays that slow whatever is plugged in",
        remedy: format!(
            "set the slot's speed to auto in the firmware setup; until the next boot: setpci -s {} CAP_EXP+30.w={code}:f, then CAP_EXP+10.w=20:20 (retrains the link)",
            case.bdf
        ),
    })
}

/// Link Capabilities: Link Bandwidth Notification (7.5.3.6).
const NOTIFIES: u32 = 1 << 21;
/// Link Status: Link Bandwidth Management Status (7.5.3.8). The port sets it when it has retrained its link, told to or to
/// mend one that is unreliable, and keeps it until it is written.
const RETRAINED: u16 = 1 << 14;

pub fn retrained(case: &Case) -> Verdict {
    let express = leading_down(case)?;
    if express.link_capabilities() & NOTIFIES == 0 {
        return not_applicable("it does not say when its link retrains");
    }
    // The port service of that number (include/linux/pcieport_if.h; Linux 6.13 and later have it again) clears the bit.
    let folder = case.machine.root.names(pci::folder(case.bdf));
    if folder.iter().any(|name| name.contains(":pcie") && name.ends_with("10")) {
        return not_checked(
            "the kernel's bandwidth controller clears the bit that says so",
            "look at replay-growth and link-speed: a link that retrains by itself shows there too",
        );
    }
    let Some((earlier, time)) = case.machine.earlier else {
        return not_checked("it needs two readings", "--watch 10s reads twice");
    };
    let Some(before) = earlier.link_status.get(&case.bdf) else {
        return not_checked("its Link Status was not there at the first reading", "watch once more");
    };
    if before & RETRAINED != 0 {
        return not_checked(
            "it retrained its link before, and nobody has cleared the bit that says so",
            format!("setpci -s {} CAP_EXP+12.w=4000:4000 clears it; then watch once more", case.bdf),
        );
    }
    let now = express.link_status();
    if now & RETRAINED == 0 {
        return fine();
    }
    found(Found {
        severity: Severity::Warning,
        text: format!("the port {} retrained its link in {:.1} s of watching", case.bdf, time.as_secs_f64()),
        evidence: vec![case.register("LnkSta", express.at + 0x12, now)],
        consequence: "nothing passes meanwhile; a port does it when it was told to, or to mend an unreliable link, which it may leave slower or narrower",
        remedy: format!(
            "setpci -s {} CAP_EXP+12.w=4000:4000 clears it; if it comes back by itself, reseat the card, check riser, cable and cooling",
            case.bdf
        ),
    })
}
