//! What is known of a link: whether there is one, how it runs, what its ends can do, whether its state means anything, and
//! which link of a path carries least. Everything that shows or judges a link has it from here.

use std::path::Path;

use pciescope_core::{Bdf, Function, Link, PathLink};

use crate::config::Config;
use crate::express::{self, Express};
use crate::{Root, ceiling, environment, pci};

/// Speeds in GT/s in the order of their codes, from 1 (7.5.3.6, Supported Link Speeds).
pub const SPEEDS: [f64; 6] = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];

/// The link of a function's port: above an endpoint or upstream port, below a root or downstream port. A width of 0 is no
/// link. `None` where the function has no such port. A virtual function has that of its physical function.
pub fn load(root: &Root, bdf: Bdf, config: &Config) -> Option<Link> {
    match physical(root, bdf) {
        Some(physical) => own(root, physical, &Config::load(root, physical)),
        None => own(root, bdf, config),
    }
}

/// The same link later: configuration space is not read again, and no device is woken.
pub fn again(root: &Root, bdf: Bdf, before: &Link) -> Option<Link> {
    let now = shown(root, physical(root, bdf).unwrap_or(bdf))?;
    let link = Link { speed_gts: now.speed_gts, width: now.width, ..*before };
    // A port that had no link has one when something is below it; its speed and width do not tell.
    let is_empty = before.width == 0 && is_port(root, bdf) && below(root, bdf).is_none();
    Some(if is_empty || link.width > link.max_width { none(link) } else { link })
}

/// The link that carries least between the root port and a function, its own included: the wire's bytes count. Nominal links,
/// and those that a hypervisor invents, are left out.
pub fn of_path<'a>(function: &Function, known: impl Fn(Bdf) -> Option<&'a Function>) -> Option<PathLink> {
    let of = |function: &Function, is_own: bool| {
        let link = function.link.filter(|link| link.is_known() && function.has_link_above())?;
        let is_invented = !is_own && function.emulated.is_some();
        let bdf = function.bdf.filter(|_| !is_invented)?;
        Some(PathLink { bdf, speed_gts: link.speed_gts, width: link.width })
    };
    let above = function.path.iter().rev().filter_map(|bdf| of(known(*bdf)?, false));
    of(function, true).into_iter().chain(above).min_by(|one, other| rate(one).total_cmp(&rate(other)))
}

/// The bytes per second that a link of a path carries in one direction.
pub fn rate(link: &PathLink) -> f64 {
    ceiling::wire_bytes_per_s(link.speed_gts, link.width).unwrap_or(0.0)
}

/// The physical function of a virtual one, several fields of which are reserved.
pub(crate) fn physical(root: &Root, bdf: Bdf) -> Option<Bdf> {
    root.link_name(pci::folder(bdf).join("physfn"))?.parse().ok()
}

fn none(link: Link) -> Link {
    Link { speed_gts: 0.0, width: 0, ..link }
}

fn own(root: &Root, bdf: Bdf, config: &Config) -> Option<Link> {
    let link = able(root, bdf, config)?;
    // A port that reports whether its data link layer is up (7.5.3.6, 7.5.3.8) knows it better than its speed and width;
    // one that does not report it, and has nothing below it, shows the lowest speed without a link.
    let port = Express::of(config).filter(Express::leads_down);
    let is_empty = || link.speed_gts == NOMINAL_GTS && below(root, bdf).is_none();
    let is_dead = port.is_some_and(|port| match port.is_data_link_active() {
        // A hypervisor may show a speed without the layer.
        Some(is_active) => !is_active && (environment::hypervisor(root).is_none() || is_empty()),
        None => is_empty(),
    });
    let is_impossible = link.speed_gts == 0.0 || link.width > link.max_width;
    let link = if is_dead || is_impossible { none(link) } else { link };
    Some(Link { is_nominal: is_nominal(root, bdf, &link), ..link })
}

/// What sysfs shows, with the highest speed that the link's capabilities state: before Linux 6.13 the kernel takes it from
/// Link Capabilities 2 alone, whatever Max Link Speed says.
fn able(root: &Root, bdf: Bdf, config: &Config) -> Option<Link> {
    let mut link = shown(root, bdf)?;
    let code = Express::of(config).map_or(0, |express| express.link_capabilities() & 0xf);
    if let Some(stated) = (code as usize).checked_sub(1).and_then(|place| SPEEDS.get(place)) {
        link.max_speed_gts = link.max_speed_gts.min(*stated);
    }
    Some(link)
}

/// Speed and width now and at most, as sysfs shows them.
pub(crate) fn shown(root: &Root, bdf: Bdf) -> Option<Link> {
    let at = pci::folder(bdf);
    let speed = |file: &str| parse_speed(&root.text(at.join(file))?);
    let width = |file: &str| root.number(at.join(file)).and_then(|lanes| u8::try_from(lanes).ok());
    // 255 is how the kernel shows a width that the capability does not state.
    let max_width = width("max_link_width").filter(|lanes| (1..=32).contains(lanes))?;
    let link = Link { max_speed_gts: speed("max_link_speed")?, max_width, ..Link::default() };
    let now = speed("current_link_speed").zip(width("current_link_width").filter(|lanes| (1..=32).contains(lanes)));
    Some(now.map_or(link, |(speed_gts, width)| Link { speed_gts, width, ..link }))
}

/// `16.0 GT/s PCIe` and older `8 GT/s`; `None` for `Unknown`.
pub(crate) fn parse_speed(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok().filter(|speed| *speed > 0.0)
}

/// What tunnels and the inside of chips state.
const NOMINAL_GTS: f64 = SPEEDS[0];

/// Whether a link's state is a form: it leads through a tunnel, or from one part of a chip to another.
fn is_nominal(root: &Root, bdf: Bdf, link: &Link) -> bool {
    if link.speed_gts != NOMINAL_GTS {
        return false;
    }
    let mut above = pci::path(root, bdf);
    let (port, lower) =
        if above.len() % 2 == 1 { (above.pop().unwrap_or(bdf), Some(bdf)) } else { (bdf, below(root, bdf)) };
    let is_tunnel_below = lower.is_some_and(|lower| is_tunnel(root, lower));
    let is_tunnel_above = is_tunnel(root, port);
    if is_tunnel_above && is_tunnel_below {
        return true;
    }
    let config = Config::load(root, port);
    let Some(able_port) = able(root, port, &config) else { return false };
    // A user without privilege sees the speed that old kernels show.
    let is_slow = able_port.max_speed_gts <= NOMINAL_GTS || is_tunnel_above && Express::of(&config).is_none();
    let is_removable = |bdf: Bdf| root.text(pci::folder(bdf).join("removable")).is_some_and(|text| text == "removable");
    let is_tunnelled = || {
        is_tunnel_above
            || is_tunnel_below
            || lower.is_some_and(is_removable)
            || above.iter().any(|bdf| is_tunnel(root, *bdf))
    };
    is_slow && (is_tunnelled() || lower.is_some_and(|lower| is_in_chip(root, &above, (port, &able_port), lower)))
}

/// Whether a link runs inside a chip: switch, port and function of one maker, one lane at 2.5 GT/s at most between the last
/// two, and a faster link above the switch.
fn is_in_chip(root: &Root, above: &[Bdf], (port, able_port): (Bdf, &Link), lower: Bdf) -> bool {
    let can = |bdf: Bdf| able(root, bdf, &Config::load(root, bdf));
    let is_least = |link: &Link| link.max_speed_gts <= NOMINAL_GTS && link.max_width == 1;
    above.last().is_some_and(|switch| {
        is_of_one_maker(root, &[*switch, port, lower])
            && is_least(able_port)
            && can(lower).is_some_and(|lower| is_least(&lower))
            && can(*switch).is_some_and(|switch| switch.max_speed_gts > NOMINAL_GTS)
    })
}

/// Whether functions have the same vendor.
pub(crate) fn is_of_one_maker(root: &Root, functions: &[Bdf]) -> bool {
    let vendor = |bdf: &Bdf| pci::id(root, *bdf, "vendor").ok();
    functions.iter().all(|bdf| vendor(bdf).is_some() && vendor(bdf) == functions.first().and_then(vendor))
}

/// AMD's ports to its USB4 routers, which have no capability that says so.
const USB4_PORTS: [(u16, u16); 2] = [(0x1022, 0x14ef), (0x1022, 0x150a)];
/// Intel's mark of what belongs to Thunderbolt (PCI_VSEC_ID_INTEL_TBT in include/linux/pci_ids.h).
const INTEL: u16 = 0x8086;
const THUNDERBOLT: u16 = 0x1234;

/// Whether a function belongs to Thunderbolt or USB4: by its IDs, its name, or Intel's capability.
fn is_tunnel(root: &Root, bdf: Bdf) -> bool {
    let id = |file: &str| pci::id(root, bdf, file).ok().and_then(|id| u16::try_from(id).ok());
    let (Some(vendor), Some(device)) = (id("vendor"), id("device")) else { return false };
    let name = pci::name(vendor, device);
    let is_marked = || {
        let config = Config::load(root, bdf);
        express::extended_all(&config)
            .any(|(id, at)| id == express::EXT_VENDOR && config.word(at + 4) == Some(THUNDERBOLT))
    };
    USB4_PORTS.contains(&(vendor, device))
        || ["Thunderbolt", "USB4"].iter().any(|word| name.contains(word))
        || vendor == INTEL && is_marked()
}

/// Whether a function is a port whose link leads down.
fn is_port(root: &Root, bdf: Bdf) -> bool {
    pci::id(root, bdf, "class").is_ok_and(pci::is_bridge) && pci::path(root, bdf).len() % 2 == 0
}

/// Whether the kernel clears a port's Link Bandwidth Management Status by itself: a driver of the port's service of bandwidth
/// control does (Linux 6.13 and later). Older kernels show the service, and have no driver for it.
pub(crate) fn is_cleared_by_kernel(root: &Root, bdf: Bdf) -> bool {
    let folder = pci::folder(bdf);
    let is_service = |name: &String| name.contains(":pcie") && name.ends_with("10");
    root.names(&folder).iter().any(|name| is_service(name) && root.exists(folder.join(name).join("driver")))
}

/// The first function below a bridge.
fn below(root: &Root, bdf: Bdf) -> Option<Bdf> {
    root.names(Path::new(&pci::folder(bdf))).iter().find_map(|name| name.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_forms_of_a_speed() {
        assert_eq!(parse_speed("16.0 GT/s PCIe"), Some(16.0));
        assert_eq!(parse_speed("8 GT/s"), Some(8.0));
        assert_eq!(parse_speed("Unknown"), None);
        assert_eq!(parse_speed("Unknown speed"), None);
    }
}
