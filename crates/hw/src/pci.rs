//! PCI functions as sysfs describes them. Reads only; [`crate::bind`] writes.

use std::path::{Path, PathBuf};

use pci_ids::FromId;
use pciescope_core::{Bar, Bdf, Function};

use crate::config::Config;
use crate::{Error, Root, environment, link, nodes, registers};

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

/// The functions of a machine, by address, and those of which the files could not be understood.
#[derive(Debug, Default)]
pub struct Functions {
    /// All but those.
    pub all: Vec<Function>,
    /// The address of each function that is left out, and why it is.
    pub left_out: Vec<(Bdf, Error)>,
}

/// All functions of the machine; none on a machine without PCI.
///
/// A function that is removed while it is read is left out without a word.
pub fn functions(root: &Root) -> Functions {
    let guest = environment::hypervisor(root);
    let mut functions = Functions::default();
    for bdf in addresses(root) {
        match load(root, bdf, guest.as_deref()) {
            Ok(function) => functions.all.push(function),
            Err(Error::NoSuchFunction { .. }) => {}
            Err(_) if !root.exists(folder(bdf)) => {}
            Err(error) => functions.left_out.push((bdf, error)),
        }
    }
    let all = &functions.all;
    let known = |bdf: Bdf| all.binary_search_by_key(&Some(bdf), |one| one.bdf).ok().map(|place| &all[place]);
    let links: Vec<_> = all.iter().map(|function| link::of_path(function, known)).collect();
    functions.all.iter_mut().zip(links).for_each(|(function, path_link)| function.path_link = path_link);
    functions
}

/// One function.
///
/// # Errors
/// [`Error::NoSuchFunction`], or [`Error::Read`] or [`Error::Parse`] if its files cannot be understood.
pub fn function(root: &Root, bdf: Bdf) -> Result<Function, Error> {
    let guest = environment::hypervisor(root);
    let mut function = load(root, bdf, guest.as_deref())?;
    let above: Vec<Function> = function.path.iter().filter_map(|bdf| load(root, *bdf, guest.as_deref()).ok()).collect();
    function.path_link = link::of_path(&function, |bdf| above.iter().find(|one| one.bdf == Some(bdf)));
    Ok(function)
}

/// [`function`], where it is known already whether the machine is a guest.
pub(crate) fn load(root: &Root, bdf: Bdf, guest: Option<&str>) -> Result<Function, Error> {
    let at = folder(bdf);
    if !root.exists(&at) {
        return Err(Error::NoSuchFunction(bdf));
    }
    let id = |file: &str| id(root, bdf, file);
    let (vendor, device) = (id("vendor")? as u16, id("device")? as u16);
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
        link: link::load(root, bdf, &config),
        mps_bytes: None,
        mrrs_bytes: None,
        path_link: None,
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
    // A virtual function's own payload fields are reserved: those of its physical function hold (PCIe, SR-IOV).
    let payload = link::physical(root, bdf).map_or(config, |physical| Config::load(root, physical));
    let (mps, mrrs) = match &mut function.link {
        Some(link) => (&mut link.mps_bytes, &mut link.mrrs_bytes),
        None => (&mut function.mps_bytes, &mut function.mrrs_bytes),
    };
    (*mps, *mrrs) = (payload.mps_bytes(), payload.mrrs_bytes());
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
    let maker = maker(vendor);
    match pci_ids::Device::from_vid_pid(vendor, device) {
        Some(known) => format!("{maker} {}", known.name()),
        None => format!("{maker} Device {device:04x}"),
    }
}

/// A vendor in words, or the number of one that the list does not know.
pub fn maker(vendor: u16) -> String {
    pci_ids::Vendor::from_id(vendor).map_or_else(|| format!("Vendor {vendor:04x}"), |known| known.name().to_owned())
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

/// The driver that a function is bound to.
pub fn driver(root: &Root, bdf: Bdf) -> Option<String> {
    root.link_name(folder(bdf).join("driver"))
}

/// One of the function's files of IDs: `vendor`, `device`, `class` and the like, hexadecimal.
///
/// # Errors
/// A file that cannot be read, or has no such number.
pub fn id(root: &Root, bdf: Bdf, file: &str) -> Result<u32, Error> {
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

/// The bridges above a function in its own domain, from the root port down, from where its folder really lies. Reads no
/// configuration space.
pub fn path(root: &Root, bdf: Bdf) -> Vec<Bdf> {
    let mut way = way(root, folder(bdf));
    way.pop();
    way
}

/// The function right above, also one that a host bridge hangs at, as those of Intel VMD do.
pub fn parent(root: &Root, bdf: Bdf) -> Option<Bdf> {
    let target = std::fs::read_link(root.path(folder(bdf))).ok()?;
    target.parent()?.iter().rev().find_map(|part| part.to_str()?.parse().ok())
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
    fn names_what_the_list_does_not_know_by_number() {
        assert_eq!(name(0x8086, 0x10d3), "Intel Corporation 82574L Gigabit Network Connection");
        assert_eq!(name(0xf00d, 0x1234), "Vendor f00d Device 1234");
        assert_eq!(class_name(0x010802), "Non-Volatile memory controller");
        assert_eq!(class_name(0xee0000), "Class ee00");
    }
}
