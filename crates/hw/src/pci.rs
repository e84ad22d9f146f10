//! PCI functions as sysfs describes them. Reads only; [`crate::bind`] writes.

use std::path::{Path, PathBuf};

use pci_ids::FromId;
use pciescope_core::{Bar, Bdf, Function, Link};

use crate::config::Config;
use crate::{Error, Root, environment, nodes, registers};

const DEVICES: &str = "/sys/bus/pci/devices";
/// Vendor and device of the lab's endpoint (docs/spec/endpoint.md); QEMU's vendor ID.
const LAB_ENDPOINT: (u16, u16) = (0x1234, 0x5c0e);

/// The folder of a function in sysfs, as an absolute path for [`Root`].
pub fn folder(bdf: Bdf) -> PathBuf {
    PathBuf::from(DEVICES).join(bdf.to_string())
}

/// The addresses of all functions, in ascending order; empty on a machine without PCI.
pub fn addresses(root: &Root) -> Vec<Bdf> {
    let mut all: Vec<Bdf> = root.names(DEVICES).iter().filter_map(|name| name.parse().ok()).collect();
    all.sort();
    all
}

/// All functions of the machine, by address; empty on a machine without PCI.
///
/// A function that is removed while it is read is left out.
///
/// # Errors
/// [`Error::Read`] or [`Error::Parse`] for a function whose files cannot be understood.
pub fn functions(root: &Root) -> Result<Vec<Function>, Error> {
    let guest = environment::hypervisor(root);
    let mut all = Vec::new();
    for bdf in addresses(root) {
        match load(root, bdf, guest.as_deref()) {
            Ok(function) => all.push(function),
            Err(Error::NoSuchFunction { .. }) => {}
            Err(_) if !root.exists(folder(bdf)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// One function.
///
/// # Errors
/// [`Error::NoSuchFunction`], or [`Error::Read`] or [`Error::Parse`] if its files cannot be understood.
pub fn function(root: &Root, bdf: Bdf) -> Result<Function, Error> {
    load(root, bdf, environment::hypervisor(root).as_deref())
}

/// [`function`], where it is known already whether the machine is a guest.
pub(crate) fn load(root: &Root, bdf: Bdf, guest: Option<&str>) -> Result<Function, Error> {
    let at = folder(bdf);
    if !root.exists(&at) {
        return Err(Error::NoSuchFunction(bdf));
    }
    let id = |file: &str| id(root, bdf, file);
    let (vendor, device) = (id("vendor")? as u16, id("device")? as u16);
    // A virtual function's own payload fields are reserved: those of its physical function hold (PCIe, SR-IOV).
    let physical = root.link_name(at.join("physfn")).and_then(|name| name.parse::<Bdf>().ok());
    let config = Config::load(root, bdf);
    let mut function = Function {
        bdf: Some(bdf),
        vendor,
        device,
        subsystem_vendor: id("subsystem_vendor").unwrap_or(0) as u16,
        subsystem_device: id("subsystem_device").unwrap_or(0) as u16,
        class: id("class")?,
        name: name(vendor, device),
        driver: driver(root, bdf),
        devices: nodes::names(root, bdf),
        // -1 is what the kernel shows where the firmware says nothing.
        node: root.number(at.join("numa_node")).map(|node| node as u32),
        bars: bars(root, bdf)?,
        link: link(root, bdf),
        path: path(root, bdf),
        msix_vectors: config.msix_vectors(),
        msi_vectors: config.msi_vectors(),
        virtio_common: registers::is_virtio(vendor, device)
            .then(|| config.virtio_common(registers::VIRTIO_COMMON_LEN))
            .flatten(),
        iommu_group: root.link_name(at.join("iommu_group")).and_then(|name| name.parse().ok()),
        limited: config.limit(),
        emulated: None,
    };
    if let Some(link) = &mut function.link {
        let payload = physical.map_or(config, |physical| Config::load(root, physical));
        link.mps_bytes = payload.mps_bytes();
        link.mrrs_bytes = payload.mrrs_bytes();
    }
    function.emulated = environment::emulated(guest, &function);
    Ok(function)
}

/// Whether a function may get its IOMMU group only when a driver probes it: so does Linux before 6.15 with IOMMUs that
/// are not x86's.
pub(crate) fn is_grouped_by_probe(root: &Root) -> bool {
    environment::iommus(root).iter().any(|kind| !kind.starts_with("Intel") && !kind.starts_with("AMD"))
}

/// Vendor and device in words, or the numbers of what the list does not know.
pub(crate) fn name(vendor: u16, device: u16) -> String {
    if (vendor, device) == LAB_ENDPOINT {
        return "pciescope lab endpoint".to_owned();
    }
    let maker = match pci_ids::Vendor::from_id(vendor) {
        Some(known) => known.name().to_owned(),
        None => format!("Vendor {vendor:04x}"),
    };
    match pci_ids::Device::from_vid_pid(vendor, device) {
        Some(known) => format!("{maker} {}", known.name()),
        None => format!("{maker} Device {device:04x}"),
    }
}

/// A class code of 24 bits in words, such as `Non-Volatile memory controller`.
pub fn class_name(class: u32) -> String {
    let (base, sub) = ((class >> 16) as u8, (class >> 8) as u8);
    let named = pci_ids::Class::from_id(base)
        .and_then(|class| class.subclasses().find(|subclass| subclass.id() == sub).map(|s| s.name().to_owned()));
    match (named, pci_ids::Class::from_id(base)) {
        (Some(name), _) => name,
        (None, Some(class)) => class.name().to_owned(),
        (None, None) => format!("Class {:04x}", class >> 8),
    }
}

/// Whether a class code is that of a PCI-to-PCI bridge.
pub fn is_bridge(class: u32) -> bool {
    class >> 8 == 0x0604
}

/// Whether the function's link leads up to the last bridge of its path, as those of endpoints and of a switch's
/// upstream port do; the link of a root or downstream port leads down.
pub fn has_link_above(function: &Function) -> bool {
    // From the root port down: port, upstream port, downstream port, upstream port ...
    function.link.is_some() && function.path.len() % 2 == 1
}

/// The transfer rate in GT/s and the lanes that both ends of a link can do.
pub fn both_ends_can(one: &Link, other: &Link) -> (f64, u8) {
    (one.max_speed_gts.min(other.max_speed_gts), one.max_width.min(other.max_width))
}

/// Whether a link is up, but slower or narrower than both ends can do.
pub fn is_downtrained(below: &Link, above: &Link) -> bool {
    let (speed, width) = both_ends_can(below, above);
    below.width > 0 && (below.speed_gts < speed || below.width < width)
}

/// The driver that a function is bound to.
pub fn driver(root: &Root, bdf: Bdf) -> Option<String> {
    root.link_name(folder(bdf).join("driver"))
}

/// One of the function's files of IDs: `vendor`, `device`, `class` and the like, hexadecimal.
pub(crate) fn id(root: &Root, bdf: Bdf, file: &str) -> Result<u32, Error> {
    let at = folder(bdf).join(file);
    let text = root.read(&at)?;
    u32::from_str_radix(text.trim_start_matches("0x"), 16).map_err(|_| Error::Parse {
        path: root.path(at),
        text,
        what: "a hexadecimal number",
    })
}

// include/linux/ioport.h; sysfs shows the flags as they are.
const IORESOURCE_IO: u64 = 0x100;
const IORESOURCE_MEM: u64 = 0x200;
const IORESOURCE_PREFETCH: u64 = 0x2000;
const IORESOURCE_MEM_64: u64 = 0x10_0000;
const IORESOURCE_UNSET: u64 = 0x2000_0000;

/// The assigned BARs from the file `resource`: a line of start, end and flags for each of BAR 0 to 5, more after.
fn bars(root: &Root, bdf: Bdf) -> Result<Vec<Bar>, Error> {
    let at = folder(bdf).join("resource");
    let text = root.read(&at)?;
    let mut bars = Vec::new();
    for (number, line) in text.lines().take(6).enumerate() {
        let Some(bar) = parse_bar(number as u8, line) else {
            return Err(Error::Parse { path: root.path(&at), text: line.to_owned(), what: "start, end and flags" });
        };
        // Bridges have two BARs; what follows on their first lines is empty.
        if bar.size_bytes > 0 {
            bars.push(bar);
        }
    }
    Ok(bars)
}

/// One line of `resource`; a size of 0 stands for a BAR that is missing or not assigned.
fn parse_bar(number: u8, line: &str) -> Option<Bar> {
    let mut fields = line.split_whitespace().map(|field| u64::from_str_radix(field.trim_start_matches("0x"), 16).ok());
    let (start, end, flags) = (fields.next()??, fields.next()??, fields.next()??);
    let is_assigned = flags & (IORESOURCE_IO | IORESOURCE_MEM) != 0 && flags & IORESOURCE_UNSET == 0 && end >= start;
    Some(Bar {
        number,
        size_bytes: if is_assigned { (end - start).checked_add(1)? } else { 0 },
        is_memory: flags & IORESOURCE_MEM != 0,
        is_64bit: flags & IORESOURCE_MEM_64 != 0,
        is_prefetchable: flags & IORESOURCE_PREFETCH != 0,
    })
}

/// The link of the function's own port: above an endpoint or upstream port, below a root or downstream port.
/// A width of 0 now means that the link is down.
pub(crate) fn link(root: &Root, bdf: Bdf) -> Option<Link> {
    let at = folder(bdf);
    let speed = |file: &str| parse_speed(&root.text(at.join(file))?);
    let width = |file: &str| root.number(at.join(file)).and_then(|lanes| u8::try_from(lanes).ok());
    // 255 is how the kernel shows a width that the capability does not state.
    let max_width = width("max_link_width").filter(|lanes| (1..=32).contains(lanes))?;
    Some(Link {
        speed_gts: speed("current_link_speed").unwrap_or(0.0),
        width: width("current_link_width").filter(|lanes| *lanes <= 32).unwrap_or(0),
        max_speed_gts: speed("max_link_speed")?,
        max_width,
        mps_bytes: None,
        mrrs_bytes: None,
    })
}

/// `16.0 GT/s PCIe` and older `8 GT/s`; `None` for `Unknown`.
fn parse_speed(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok().filter(|speed| *speed > 0.0)
}

/// The bridges above a function in its own domain, from the root port down, from where its folder really lies. Reads no
/// configuration space.
pub fn path(root: &Root, bdf: Bdf) -> Vec<Bdf> {
    let mut way = way(root, folder(bdf));
    way.pop();
    way
}

/// The functions on the way to where a link of sysfs leads, from the root port down, in the domain of the last.
pub(crate) fn way(root: &Root, link: impl AsRef<Path>) -> Vec<Bdf> {
    let Ok(target) = std::fs::read_link(root.path(link)) else { return Vec::new() };
    let mut way = Vec::new();
    for part in target.iter().filter_map(|part| part.to_str()) {
        if part.starts_with("pci") {
            // A host bridge: what stands before it, as Intel VMD, is not a port on this domain's path.
            way.clear();
        } else if let Ok(address) = part.parse::<Bdf>() {
            way.push(address);
        }
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_bars_as_the_kernel_prints_them() {
        let bar = |line: &str| parse_bar(0, line);
        let memory = bar("0x000000c6b00000 0x000000c6b07fff 0x0000000000140204").unwrap();
        assert_eq!(
            (memory.size_bytes, memory.is_memory, memory.is_64bit, memory.is_prefetchable),
            (0x8000, true, true, false)
        );
        let ports = bar("0x0000000000003070 0x0000000000003077 0x0000000000040101").unwrap();
        assert_eq!((ports.size_bytes, ports.is_memory), (8, false));
        // Missing, and present but not assigned.
        assert_eq!(bar("0x0 0x0 0x0").unwrap().size_bytes, 0);
        assert_eq!(bar("0x0 0xfffff 0x20040200").unwrap().size_bytes, 0);
        // An end below the start or around all of the address space does not overflow.
        assert_eq!(bar("0x10 0x0 0x40200").unwrap().size_bytes, 0);
        assert_eq!(bar("0x0 0xffffffffffffffff 0x40200"), None);
        for bad in ["", "0x0 0x0", "zero 0x0 0x0"] {
            assert_eq!(bar(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn reads_both_forms_of_a_speed() {
        assert_eq!(parse_speed("16.0 GT/s PCIe"), Some(16.0));
        assert_eq!(parse_speed("8 GT/s"), Some(8.0));
        assert_eq!(parse_speed("Unknown"), None);
        assert_eq!(parse_speed("Unknown speed"), None);
    }

    #[test]
    fn names_what_the_list_does_not_know_by_number() {
        assert_eq!(name(0x8086, 0x10d3), "Intel Corporation 82574L Gigabit Network Connection");
        assert_eq!(name(0xf00d, 0x1234), "Vendor f00d Device 1234");
        assert_eq!(class_name(0x010802), "Non-Volatile memory controller");
        assert_eq!(class_name(0xee0000), "Class ee00");
    }

    #[test]
    fn a_link_is_downtrained_only_below_what_both_ends_can_do() {
        let link = |speed_gts, width, max_speed_gts, max_width| Link {
            speed_gts,
            width,
            max_speed_gts,
            max_width,
            ..Link::default()
        };
        let port = link(8.0, 4, 16.0, 16);
        assert!(!is_downtrained(&link(8.0, 4, 8.0, 4), &port));
        assert!(is_downtrained(&link(5.0, 4, 8.0, 4), &port));
        assert!(is_downtrained(&link(8.0, 2, 8.0, 4), &port));
        // Down is not downtrained.
        assert!(!is_downtrained(&link(0.0, 0, 8.0, 4), &port));
    }
}
