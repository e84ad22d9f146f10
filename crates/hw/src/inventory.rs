//! What can be read of every function with a link, repeatedly and without a counter: link, driver and the kernel's
//! counts of errors (AER). It reads configuration space once, of a device that is awake, and wakes none.

use std::collections::BTreeMap;

use pciescope_core::{Bdf, Below, Device, DeviceErrors, Link};

use crate::config::Config;
use crate::{Root, link, nodes, pci};

/// Every function with a link, by address. `before` is what the last call gave: names are not looked up again, and a
/// function that sleeps keeps its link.
pub fn read(root: &Root, before: &[Device]) -> Vec<Device> {
    let known: BTreeMap<Bdf, &Device> = before.iter().map(|device| (device.bdf, device)).collect();
    let read = |bdf: Bdf| one(root, bdf, known.get(&bdf).copied());
    let mut all: Vec<Device> = pci::addresses(root).into_iter().filter_map(read).collect();
    let links: BTreeMap<Bdf, Link> = all.iter().map(|device| (device.bdf, device.link)).collect();
    for device in &mut all {
        // From the root port down: port, upstream port, downstream port. With an odd number above, the link leads up.
        let above = device.path.last().filter(|_| device.path.len() % 2 == 1).and_then(|above| links.get(above));
        device.is_downtrained = above.map(|above| device.link.possible(above).is_some());
    }
    all
}

fn one(root: &Root, bdf: Bdf, before: Option<&Device>) -> Option<Device> {
    let at = pci::folder(bdf);
    let inode = root.inode(&at);
    let before = before.filter(|before| before.inode == inode);
    let link = match (before.map(|before| before.link), is_asleep(root, bdf)) {
        (Some(link), true) => Some(link),
        (Some(link), false) => link::again(root, bdf, &link),
        (None, true) => link::load(root, bdf, &Config::default()),
        (None, false) => link::load(root, bdf, &Config::load(root, bdf)),
    }?;
    let (name, class) = match before {
        Some(before) => (before.name.clone(), before.class.clone()),
        None => (name(root, bdf)?, pci::class_name(pci::id(root, bdf, "class").ok()?)),
    };
    Some(Device {
        bdf,
        inode,
        name,
        class,
        driver: pci::driver(root, bdf),
        devices: nodes::names(root, bdf),
        node: root.number(at.join("numa_node")).and_then(|node| u32::try_from(node).ok()),
        path: pci::path(root, bdf),
        link,
        is_downtrained: None,
        errors: errors(root, bdf),
        watched: None,
    })
}

/// The link of a function as it is now; `None` for one that sleeps or is gone.
pub fn link(root: &Root, bdf: Bdf, before: &Link) -> Option<Link> {
    if is_asleep(root, bdf) { None } else { link::again(root, bdf, before) }
}

/// Every function but bridges, each with the bridges above it, from the root port down.
pub fn endpoints(root: &Root) -> Vec<(Vec<Bdf>, Below)> {
    let endpoint = |bdf: Bdf| {
        if pci::is_bridge(pci::id(root, bdf, "class").ok()?) {
            return None;
        }
        let (driver, devices) = (pci::driver(root, bdf), nodes::names(root, bdf));
        Some((pci::path(root, bdf), Below { bdf, name: name(root, bdf)?, driver, devices }))
    };
    pci::addresses(root).into_iter().filter_map(endpoint).collect()
}

/// Newer kernels wake a device to read its link.
fn is_asleep(root: &Root, bdf: Bdf) -> bool {
    root.text(pci::folder(bdf).join("power/runtime_status")).is_some_and(|status| status == "suspended")
}

fn name(root: &Root, bdf: Bdf) -> Option<String> {
    let id = |file| pci::id(root, bdf, file).ok().map(|id| id as u16);
    Some(pci::name(id("vendor")?, id("device")?))
}

fn errors(root: &Root, bdf: Bdf) -> Option<DeviceErrors> {
    let counts = |file| error_counts(root, bdf, file);
    Some(DeviceErrors { correctable: counts(CORRECTABLE)?, nonfatal: counts(NONFATAL)?, fatal: counts(FATAL)? })
}

/// The kernel's accounts of errors in a function's folder.
pub(crate) const CORRECTABLE: &str = "aer_dev_correctable";
pub(crate) const NONFATAL: &str = "aer_dev_nonfatal";
pub(crate) const FATAL: &str = "aer_dev_fatal";

/// The kernel's counts of the error messages that a root port got, whoever sent them, in the same order.
pub(crate) const MESSAGES: [&str; 3] =
    ["aer_rootport_total_err_cor", "aer_rootport_total_err_nonfatal", "aer_rootport_total_err_fatal"];

/// One of these accounts, without what is 0: a name and a number a line, and their sum, left out here, as
/// `TOTAL_ERR_COR` or its like. `None` where the kernel keeps no account.
pub(crate) fn error_counts(root: &Root, bdf: Bdf, file: &str) -> Option<BTreeMap<String, u64>> {
    let text = root.text(pci::folder(bdf).join(file))?;
    let count = |line: &str| {
        let (name, count) = line.rsplit_once(char::is_whitespace)?;
        let count: u64 = count.parse().ok()?;
        (count > 0 && !name.starts_with("TOTAL")).then(|| (name.trim().to_owned(), count))
    };
    Some(text.lines().filter_map(count).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::Tree;

    const PORT: &str = "0000:00:02.0";
    const DISK: &str = "0000:02:00.0";

    fn write(tree: &Tree, bdf: &str, files: &[(&str, &str)]) {
        let at = pci::folder(bdf.parse().unwrap());
        files.iter().for_each(|(name, text)| tree.put(at.join(name), format!("{text}\n")));
    }

    /// A port and a disk below it, as sysfs shows them.
    fn machine() -> Tree {
        let tree = Tree::new();
        for (bdf, way, class) in [(PORT, PORT, "0x060400"), (DISK, &format!("{PORT}/{DISK}"), "0x010802")] {
            tree.folder(format!("sys/devices/pci0000:00/{way}"));
            tree.link(pci::folder(bdf.parse().unwrap()), format!("../../../devices/pci0000:00/{way}"));
            let (speed, ids) = ("16.0 GT/s PCIe", [("vendor", "0x1b36"), ("device", "0x0010")]);
            write(&tree, bdf, &ids);
            write(&tree, bdf, &[("class", class), ("numa_node", "-1"), ("power/runtime_status", "active")]);
            write(&tree, bdf, &[("current_link_speed", speed), ("max_link_speed", speed)]);
            write(&tree, bdf, &[("current_link_width", "4"), ("max_link_width", "4")]);
        }
        write(&tree, DISK, &[("aer_dev_correctable", "RxErr 0\nBadTLP 7\nTOTAL_ERR_COR 7")]);
        write(
            &tree,
            DISK,
            &[("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL 0"), ("aer_dev_fatal", "nonsense\nSDES x\nDLP 1")],
        );
        tree
    }

    #[test]
    fn links_and_errors_of_a_machine_without_counters() {
        let root = machine();
        let all = read(&root, &[]);
        assert_eq!(all.len(), 2);
        let (port, disk) = (&all[0], &all[1]);
        assert_eq!((port.is_downtrained, disk.is_downtrained, disk.node), (None, Some(false), None));
        assert_eq!(disk.path, [port.bdf]);
        assert_eq!(port.errors, None);
        let errors = disk.errors.as_ref().unwrap();
        assert_eq!(errors.correctable, BTreeMap::from([("BadTLP".to_owned(), 7)]));
        assert_eq!(errors.fatal, BTreeMap::from([("DLP".to_owned(), 1)]));
        assert!(errors.nonfatal.is_empty());
    }

    #[test]
    fn a_link_that_came_up_narrow_is_seen_and_a_sleeper_is_left_alone() {
        let root = machine();
        let before = read(&root, &[]);
        write(&root, DISK, &[("current_link_width", "1")]);
        assert_eq!(read(&root, &before)[1].is_downtrained, Some(true));
        // A device in D3cold reads all-ones, or is woken.
        write(&root, DISK, &[("power/runtime_status", "suspended"), ("current_link_width", "63")]);
        assert_eq!(read(&root, &before)[1].link.width, 4);
        assert_eq!(link(&root, DISK.parse().unwrap(), &before[1].link), None);
    }

    #[test]
    fn another_function_at_the_same_address_has_its_own_name() {
        let root = machine();
        let before = read(&root, &[]);
        let disk = format!("sys/devices/pci0000:00/{PORT}/{DISK}");
        std::fs::rename(root.path(&disk), root.path("gone")).unwrap();
        root.folder(disk);
        write(&root, DISK, &[("vendor", "0x8086"), ("device", "0x10d3"), ("class", "0x020000")]);
        write(&root, DISK, &[("max_link_speed", "2.5 GT/s PCIe"), ("max_link_width", "1")]);
        let now = read(&root, &before);
        assert_ne!(now[1].name, before[1].name);
        assert_eq!((now[1].class.as_str(), &now[0]), (pci::class_name(0x02_0000).as_str(), &before[0]));
    }

    #[test]
    fn endpoints_are_told_with_what_is_above_them() {
        let root = machine();
        root.link(pci::folder(DISK.parse().unwrap()).join("driver"), "../drivers/nvme");
        let all = endpoints(&root);
        assert_eq!(all.len(), 1);
        let (path, below) = &all[0];
        assert_eq!((path.as_slice(), below.bdf.to_string().as_str()), ([PORT.parse().unwrap()].as_slice(), DISK));
        assert_eq!(below.driver.as_deref(), Some("nvme"));
    }
}
