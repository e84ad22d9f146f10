//! Links against what their ends can do.

use std::collections::BTreeSet;

use pciescope_core::{Bdf, Evidence, Function, Link, LinkState, Severity};

use super::case::{Case, Found, SetUpBy, Unseen, Verdict, fine, found, not_applicable, not_checked};
use crate::ceiling;
use crate::express::Express;
use crate::link::{self, SPEEDS};

/// Why checks of links pass over a function.
pub const NONE_ABOVE: &str = "no link leads up from it";

/// Why they pass over a link whose state is a form.
const NOMINAL: &str = "its link is nominal: a tunnel, or the inside of a chip";

/// The link above a function as its own end sees it, the port at the other end, and what that can do.
fn link_above<'a>(case: &Case<'a>) -> Result<(Link, Case<'a>, Link), Unseen> {
    let Some(now) = case.function.link.filter(|_| case.function.has_link_above()) else {
        return not_applicable(NONE_ABOVE);
    };
    let port = case.port()?;
    let Some(above) = port.function.link else { return not_applicable("the port above it shows no link") };
    match case.function.link_state() {
        _ if above.is_nominal => not_applicable(NOMINAL),
        Some(LinkState::Nominal) => not_applicable(NOMINAL),
        Some(LinkState::Up) => Ok((now, port, above)),
        _ => not_applicable("the state of its link is not known"),
    }
}

fn seen(case: &Case, port: &Case, what: &str) -> Vec<Evidence> {
    let (now, most) = (format!("current_link_{what}"), format!("max_link_{what}"));
    vec![case.seen(&now), case.seen(&most), port.seen(&most)]
}

/// The GB/s that a link carries in one direction.
fn gigabytes(speed: f64, lanes: u8) -> f64 {
    ceiling::wire_bytes_per_s(speed, lanes).unwrap_or(0.0) / 1e9
}

/// `3.9 of 15.8 GB/s`: what a link carries as it is, of what it would.
fn share(now: (f64, u8), most: (f64, u8)) -> String {
    format!("it carries {:.1} of {:.1} GB/s in each direction", gigabytes(now.0, now.1), gigabytes(most.0, most.1))
}

/// The speed that a port is told to stay at, in GT/s, and its register (7.5.3.19, Target Link Speed); `None` where it is
/// not told to stay below what it can do.
fn told(port: &Case) -> Option<(f64, Evidence)> {
    let express = port.express_if_readable().filter(Express::leads_down)?;
    let (control, link) = (express.link_control_2()?, port.function.link.filter(|link| !link.is_nominal)?);
    // 0 is what ports of the first generation have there.
    let speed = *usize::from(control & 0xf).checked_sub(1).and_then(|place| SPEEDS.get(place))?;
    (speed < link.max_speed_gts).then(|| (speed, port.register("LnkCtl2", express.at + 0x30, control)))
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
        .filter(|(_, function)| function.path.contains(&case.bdf) && !function.is_bridge())
        .collect();
    let displays: BTreeSet<_> =
        below.iter().filter(|(_, function)| is_display(function)).map(|(bdf, _)| slot(*bdf)).collect();
    let is_of_card = |function: &Function| is_display(function) || BESIDE_DISPLAY.contains(&(function.class >> 16));
    displays.len() == 1 && below.iter().all(|(_, function)| is_of_card(function))
}

pub fn speed(case: &Case) -> Verdict {
    let (now, port, above) = link_above(case)?;
    let (speed, lanes) = now.both_ends_can(&above);
    if now.speed_gts >= speed {
        return fine();
    }
    let told = told(&port).filter(|(told, _)| *told == now.speed_gts);
    let is_of_display = is_of_display(case);
    let mut evidence = seen(case, &port, "speed");
    let remedy = match told {
        Some((_, register)) => {
            evidence.push(register);
            format!("the port {} is told to stay at that speed: see link-target first", port.bdf)
        }
        None if is_of_display => format!(
            "look again under load: some GPUs slow an idle link down by themselves; one that stays slow: {}, check the riser",
            case.machine.reseat()
        ),
        None => format!(
            "{}, check riser and cable, and the slot's speed in {}",
            case.machine.reseat(),
            case.machine.setup()
        ),
    };
    found(Found {
        severity: if is_of_display { Severity::Note } else { Severity::Problem },
        text: format!("the link of {} runs at {} of {speed} GT/s", case.bdf, now.speed_gts),
        evidence,
        consequence: share((now.speed_gts, now.width), (speed, now.width.min(lanes))),
        remedy,
    })
}

pub fn width(case: &Case) -> Verdict {
    let (now, port, above) = link_above(case)?;
    let (_, lanes) = now.both_ends_can(&above);
    if now.width >= lanes {
        return fine();
    }
    // Boards with a device tree often wire fewer lanes than their chips have, and nothing tells.
    let is_board = case.machine.set_up_by() == SetUpBy::Board;
    found(Found {
        severity: if is_board { Severity::Note } else { Severity::Problem },
        text: format!("the link of {} runs on {} of {lanes} lanes", case.bdf, now.width),
        evidence: seen(case, &port, "width"),
        consequence: share((now.speed_gts, now.width), (now.speed_gts, lanes)),
        remedy: format!(
            "{}, check the cable and the slot's bifurcation; a lane that stays missing is a bad contact, or the board or adapter does not wire it",
            case.machine.reseat()
        ),
    })
}

pub fn limited(case: &Case) -> Verdict {
    let (now, port, above) = link_above(case)?;
    let (speed, lanes) = now.both_ends_can(&above);
    // A port that could do more than its card is no fault; a card in too small a slot is worth a word.
    if speed >= now.max_speed_gts && lanes >= now.max_width {
        return fine();
    }
    let mut evidence = seen(case, &port, "speed");
    evidence.extend(seen(case, &port, "width"));
    found(Found {
        severity: Severity::Note,
        text: format!(
            "{} can do {} GT/s x{}, its slot {} GT/s x{}",
            case.bdf, now.max_speed_gts, now.max_width, above.max_speed_gts, above.max_width
        ),
        evidence,
        consequence: share((speed, lanes), (now.max_speed_gts, now.max_width)),
        remedy: "a faster or wider slot, if there is one, would use what the card can do".to_owned(),
    })
}

/// Whether a link has 16 lanes and one maker's switch, port and function at its ends: the inside of a chipset or card, where
/// the state is not what the link carries.
fn is_inside(case: &Case, now: &Link, above: &Link) -> bool {
    let ends: Vec<Bdf> = case.function.path.iter().rev().take(2).copied().chain([case.bdf]).collect();
    now.max_width == 16 && above.max_width == 16 && ends.len() == 3 && link::is_of_one_maker(case.machine.root, &ends)
}

pub fn path_limited(case: &Case) -> Verdict {
    case.not_a_bridge()?;
    case.not_virtual()?;
    let (now, _, above) = link_above(case)?;
    if is_inside(case, &now, &above) {
        return not_applicable("its link is the inside of a chipset or card");
    }
    let Some(least) = case.function.path_link.filter(|least| least.bdf != case.bdf) else { return fine() };
    // Of a link that could run faster, link-speed and link-width speak.
    let Some(narrow) = Case::of(case.machine, least.bdf) else { return fine() };
    let is_downtrained = |link: &Link| narrow.parent().and_then(|port| link.possible(&port.function.link?)).is_some();
    let own = now.both_ends_can(&above);
    if gigabytes(own.0, own.1) <= link::rate(&least) / 1e9 || narrow.function.link.as_ref().is_some_and(is_downtrained)
    {
        return fine();
    }
    let mut evidence = vec![case.seen("current_link_speed"), case.seen("current_link_width")];
    evidence.extend([narrow.seen("current_link_speed"), narrow.seen("current_link_width")]);
    found(Found {
        severity: Severity::Note,
        text: format!(
            "the path of {} has only {} GT/s x{} at {}, its slot {} GT/s x{}",
            case.bdf, least.speed_gts, least.width, least.bdf, own.0, own.1
        ),
        evidence,
        consequence: format!(
            "{}, and shares them with all behind {}",
            share((least.speed_gts, least.width), own),
            least.bdf
        ),
        remedy: "use a slot of the CPU, not one behind a chipset or switch; `pciescope list --tree` shows the links",
    })
}

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
    let Some(link) = case.function.link.filter(|_| express.link_control_2().is_some()) else {
        return not_applicable("it has no link whose speed can be set");
    };
    if link.is_nominal {
        return not_applicable(NOMINAL);
    }
    let Some((speed, register)) = told(case) else { return fine() };
    let mut evidence = vec![register, case.seen("max_link_speed")];
    // What the kernel's pcie_failed_link_retrain() leaves: it lifts the hold of one switch alone (ASM2824).
    let ends =
        case.children().find_map(|below| Some((below.function.link?.max_speed_gts.min(link.max_speed_gts), below)));
    let held = ends.filter(|(both, _)| speed == SPEEDS[0] && *both > speed);
    let (mut effect, mut first) = ("its link stays that slow whatever is plugged in".to_owned(), String::new());
    if let Some((both, below)) = held {
        evidence.push(below.seen("max_link_speed"));
        effect = format!("its link stays that slow, and both ends can do {both} GT/s");
        first = format!(
            "Linux 6.5 and later hold a port at 2.5 GT/s after its link failed to come up, and do not let go \
             (journalctl -k -g 'retraining non-functional' shows it): {}, check riser and cable, then start the machine \
             anew. If the kernel says nothing: ",
            case.machine.reseat()
        );
    }
    let code = SPEEDS.iter().position(|speed| *speed == link.max_speed_gts).map_or(0, |place| place + 1);
    found(Found {
        severity: Severity::Warning,
        text: format!("the port {} is told to stay at {speed} of {} GT/s", case.bdf, link.max_speed_gts),
        evidence,
        consequence: effect,
        remedy: format!(
            "{first}first find out why: kernel or firmware may have lowered it because the link fails when it is faster (journalctl -k -g retraining), and then a system disk below it may be lost. If nothing below is needed to run: set the speed in {}; until the next boot: setpci -s {} CAP_EXP+30.w={code}:f, then CAP_EXP+10.w=20:20 (retrains the link)",
            case.machine.setup(),
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
    if link::is_cleared_by_kernel(case.machine.root, case.bdf) {
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
