//! What programs use of a function: its disks, network interfaces, character devices. And the other way round: the function
//! that a name means.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pciescope_core::Bdf;

use crate::{Error, Root, block, pci};

/// The function that a text means: an address as `lspci -D` prints it, the name of a disk, an interface or another device
/// (`nvme0n1`, `eth0`, `mlx5_0`), its node below `/dev`, or a place of `/sys`.
///
/// # Errors
/// [`Error::NoSuchName`], or [`Error::Ambiguous`] for what lies on several functions, such as a RAID.
pub fn find(root: &Root, text: &str) -> Result<Bdf, Error> {
    if let Ok(bdf) = text.parse() {
        return Ok(bdf);
    }
    let all: BTreeSet<Bdf> = if text.starts_with("/sys/") {
        let at = root.path(text).canonicalize().unwrap_or_default();
        let innermost = at.iter().rev().find_map(|part| part.to_str()?.parse().ok());
        innermost.into_iter().collect()
    } else {
        let name = match text.strip_prefix("/dev/") {
            // A link such as /dev/disk/by-id/...
            Some(_) => root.path(text).canonicalize().unwrap_or_else(|_| text.into()),
            None => text.into(),
        };
        let name = name.file_name().filter(|_| text.starts_with("/dev/") || !text.contains('/'));
        let places = root.names(CLASSES).into_iter().zip(std::iter::repeat(name));
        let places = places.filter_map(|(class, name)| Some(Path::new(CLASSES).join(class).join(name?)));
        places.flat_map(|place| block::ways(root, &place, 0)).filter_map(|way| way.last().copied()).collect()
    };
    let mut all = all.into_iter();
    match (all.next(), all.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(Error::NoSuchName(text.to_owned())),
        (Some(one), Some(other)) => {
            let functions = [one, other].into_iter().chain(all).collect();
            Err(Error::Ambiguous { name: text.to_owned(), functions })
        }
    }
}

/// The node below `/dev` that a text means: that of the function that [`find`] takes it for. What is a path, or no function's
/// name, stays as it is.
///
/// # Errors
/// [`Error::Ambiguous`]; [`Error::NoNode`] for a function with no node, or several.
pub fn node_of(root: &Root, text: &Path) -> Result<PathBuf, Error> {
    let Some(name) = text.to_str().filter(|name| !name.contains('/') && !text.exists()) else {
        return Ok(text.to_owned());
    };
    let bdf = match find(root, name) {
        // It may be a file that is not there.
        Err(Error::NoSuchName(_)) => return Ok(text.to_owned()),
        other => other?,
    };
    let nodes: Vec<String> = of(root, bdf).into_iter().filter(|node| node.starts_with("/dev/")).collect();
    let own = nodes.iter().find(|node| node.ends_with(&format!("/{name}")));
    match (own, nodes.as_slice()) {
        (Some(node), _) | (None, [node]) => Ok(node.into()),
        _ => Err(Error::NoNode { name: name.to_owned(), nodes }),
    }
}

/// The names of a function's network interfaces and disks as the kernel has them, `eth0`, `nvme0n1`; where it has neither,
/// those of its character devices.
pub fn names(root: &Root, bdf: Bdf) -> Vec<String> {
    let Found { interfaces, disks, others } = Found::of(root, bdf);
    let has_others_only = interfaces.is_empty() && disks.is_empty();
    let nodes = disks.into_iter().chain(others.into_iter().filter(|_| has_others_only));
    let bare = |node: String| node.strip_prefix("/dev/").map_or(node.clone(), str::to_owned);
    interfaces.into_iter().chain(nodes.map(bare)).collect()
}

/// The names of this machine's disks, interfaces and controllers that [`find`] takes, without partitions. Nothing but folders
/// and links is looked at.
pub fn all(root: &Root) -> Vec<String> {
    let mut all = Vec::new();
    for class in ["block", "infiniband", "net", "nvme", "sis8300"] {
        let folder = Path::new(CLASSES).join(class);
        let names = root.names(&folder);
        for name in &names {
            let at = std::fs::read_link(root.path(folder.join(name))).unwrap_or_default();
            let mut above = at.iter().rev().skip(1).filter_map(|part| part.to_str());
            // A partition lies in its disk.
            let is_part = above.clone().next().is_some_and(|parent| names.iter().any(|name| name == parent));
            if !is_part && above.any(|part| part.parse::<Bdf>().is_ok()) {
                all.push(name.clone());
            }
        }
    }
    all
}

const CLASSES: &str = "/sys/class";
/// No device of interest lies deeper below its function (a disk of a SATA port is at 7).
const DEEPEST: usize = 8;
/// Folders in which no device is.
const NO_DEVICES: [&str; 2] = ["power", "msi_irqs"];
/// Subsystems whose devices say nothing of the function, or whose nodes other devices of it stand for.
const LEFT_OUT: [&str; 13] = [
    "usb",
    "nvme-generic",
    "hwmon",
    "thermal",
    "bsg",
    "scsi_generic",
    "scsi_device",
    "i2c-dev",
    "drm_dp_aux_dev",
    "mei",
    "watchdog",
    "rtc",
    "ptp",
];

/// The names of network interfaces, and the nodes of whole disks and character devices, of a function: `eth0`,
/// `/dev/nvme0n1`. A controller's own node is left out where it has disks.
pub fn of(root: &Root, bdf: Bdf) -> Vec<String> {
    let found = Found::of(root, bdf);
    let mut all = found.interfaces;
    all.extend(if found.disks.is_empty() { found.others } else { found.disks });
    all
}

#[derive(Default)]
struct Found {
    interfaces: Vec<String>,
    disks: Vec<String>,
    others: Vec<String>,
}

impl Found {
    fn of(root: &Root, bdf: Bdf) -> Found {
        let mut found = Found::default();
        look(root, &pci::folder(bdf), 0, &mut found);
        found
    }
}

fn look(root: &Root, folder: &Path, depth: usize, found: &mut Found) {
    let Ok(entries) = std::fs::read_dir(root.path(folder)) else { return };
    // Links lead elsewhere; what is below another function is that one's.
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut names: Vec<String> = folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    for name in names {
        let at = folder.join(&name);
        if NO_DEVICES.contains(&name.as_str()) || name.parse::<Bdf>().is_ok() {
            continue;
        }
        if folder.ends_with("net") {
            found.interfaces.push(name);
            continue;
        }
        let subsystem = root.link_name(at.join("subsystem")).unwrap_or_default();
        if LEFT_OUT.contains(&subsystem.as_str()) {
            continue;
        }
        if let Some(node) = node(root, &at) {
            if subsystem == "block" {
                found.disks.push(node);
                // Its partitions are below.
                continue;
            }
            found.others.push(node);
        }
        if depth < DEEPEST {
            look(root, &at, depth + 1, found);
        }
    }
}

/// The node of a device, as its kernel's name for it says.
fn node(root: &Root, folder: &Path) -> Option<String> {
    let text = root.text(folder.join("uevent"))?;
    let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some(PathBuf::from("/dev").join(name).to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::Tree;

    /// A device below the function: its subsystem, and its node where it has one.
    fn device(tree: &Tree, path: &str, subsystem: &str, node: Option<&str>) {
        let at = format!("sys/bus/pci/devices/0000:02:00.0/{path}");
        tree.link(format!("{at}/subsystem"), format!("/sys/class/{subsystem}"));
        let text = node.map_or_else(String::new, |name| format!("MAJOR=1\nMINOR=2\nDEVNAME={name}\n"));
        tree.put(format!("{at}/uevent"), text);
    }

    fn of_function(devices: &[(&str, &str, Option<&str>)]) -> Vec<String> {
        let tree = Tree::new();
        devices.iter().for_each(|(path, subsystem, node)| device(&tree, path, subsystem, *node));
        of(&tree, "0000:02:00.0".parse().unwrap())
    }

    #[test]
    fn disks_stand_for_their_controller() {
        let nvme = [
            ("nvme/nvme0", "nvme", Some("nvme0")),
            ("nvme/nvme0/ng0n1", "nvme-generic", Some("ng0n1")),
            ("nvme/nvme0/nvme0n1", "block", Some("nvme0n1")),
            ("nvme/nvme0/nvme0n1/nvme0n1p1", "block", Some("nvme0n1p1")),
        ];
        assert_eq!(of_function(&nvme), ["/dev/nvme0n1"]);
        assert_eq!(of_function(&nvme[..1]), ["/dev/nvme0"]);
        let sata = [
            ("ata1/host0/target0:0:0/0:0:0:0/block/sda", "block", Some("sda")),
            ("ata1/host0/target0:0:0/0:0:0:0/bsg/0:0:0:0", "bsg", Some("bsg/0:0:0:0")),
        ];
        assert_eq!(of_function(&sata), ["/dev/sda"]);
    }

    #[test]
    fn interfaces_and_boards_have_their_names() {
        assert_eq!(of_function(&[("net/eth0", "net", None), ("net/eth1", "net", None)]), ["eth0", "eth1"]);
        assert_eq!(of_function(&[("sis8300/sis8300-6", "sis8300", Some("sis8300-6"))]), ["/dev/sis8300-6"]);
        assert_eq!(of_function(&[("usb1", "usb", Some("bus/usb/001/001"))]), Vec::<String>::new());
        // A function behind a bridge belongs to itself.
        assert_eq!(of_function(&[("0000:03:00.0/net/eth0", "net", None)]), Vec::<String>::new());
    }

    #[test]
    fn the_names_to_choose_from_are_whole_devices_of_functions() {
        let tree = Tree::new();
        let below = "../../../devices/pci0000:00/0000:00:02.0";
        for (class, name, target) in [
            ("block", "nvme0n1", format!("{below}/nvme/nvme0/nvme0n1")),
            ("block", "nvme0n1p1", format!("{below}/nvme/nvme0/nvme0n1/nvme0n1p1")),
            ("block", "vda", format!("{below}/virtio0/block/vda")),
            ("block", "dm-0", "../../devices/virtual/block/dm-0".to_owned()),
            ("nvme", "nvme0", format!("{below}/nvme/nvme0")),
            ("net", "lo", "../../devices/virtual/net/lo".to_owned()),
            ("net", "eth0", format!("{below}/net/eth0")),
        ] {
            tree.link(format!("sys/class/{class}/{name}"), target);
        }
        assert_eq!(all(&tree), ["nvme0n1", "vda", "eth0", "nvme0"]);
    }

    #[test]
    fn a_function_is_found_by_every_name_of_it() {
        let tree = Tree::new();
        let at = |bdf: &str| format!("../../../devices/pci0000:00/{bdf}");
        for (class, name, target) in [
            ("block", "nvme0n1", at("0000:00:02.0/0000:02:00.0/nvme/nvme0/nvme0n1")),
            ("nvme", "nvme0", at("0000:00:02.0/0000:02:00.0/nvme/nvme0")),
            ("block", "sda", at("0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda")),
            ("block", "dm-0", "../../devices/virtual/block/dm-0".to_owned()),
            ("block", "md0", "../../devices/virtual/block/md0".to_owned()),
            ("net", "eth0", at("0000:00:03.0/0000:03:00.0/net/eth0")),
            ("net", "eth1", at("0000:00:03.0/0000:03:00.1/net/eth1")),
            ("net", "bond0", "../../devices/virtual/net/bond0".to_owned()),
            ("net", "lo", "../../devices/virtual/net/lo".to_owned()),
            ("infiniband", "mlx5_0", at("0000:00:03.0/0000:03:00.0/infiniband/mlx5_0")),
        ] {
            tree.link(format!("sys/class/{class}/{name}"), target.replacen("../../../", "../../", 1));
        }
        for (stack, below) in
            [("block/dm-0/slaves", "sda"), ("block/md0/slaves", "sda"), ("block/md0/slaves", "nvme0n1")]
        {
            tree.folder(format!("sys/devices/virtual/{stack}/{below}"));
        }
        for (name, bdf) in [("eth0", "0000:03:00.0"), ("eth1", "0000:03:00.1")] {
            tree.folder(format!("sys/devices/pci0000:00/0000:00:03.0/{bdf}/net/{name}"));
            tree.link(
                format!("sys/devices/virtual/net/bond0/lower_{name}"),
                at(&format!("0000:00:03.0/{bdf}/net/{name}")),
            );
        }
        for (name, wanted) in [
            ("0000:02:00.0", Ok("0000:02:00.0")),
            ("02:00.0", Ok("0000:02:00.0")),
            ("nvme0n1", Ok("0000:02:00.0")),
            ("nvme0", Ok("0000:02:00.0")),
            ("/dev/nvme0n1", Ok("0000:02:00.0")),
            ("/sys/class/net/eth1", Ok("0000:03:00.1")),
            ("/sys/devices/pci0000:00/0000:00:03.0", Ok("0000:00:03.0")),
            ("dm-0", Ok("0000:00:17.0")),
            ("mlx5_0", Ok("0000:03:00.0")),
            ("md0", Err("several PCI functions: 0000:00:17.0, 0000:02:00.0")),
            ("bond0", Err("several PCI functions: 0000:03:00.0, 0000:03:00.1")),
            ("lo", Err("no PCI function")),
            ("eth9", Err("no PCI function")),
            ("..", Err("no PCI function")),
            ("../eth0", Err("no PCI function")),
            ("/etc/eth0", Err("no PCI function")),
            ("", Err("no PCI function")),
        ] {
            let found = find(&tree, name).map(|bdf| bdf.to_string()).map_err(|err| err.to_string());
            match (&found, wanted) {
                (Ok(bdf), Ok(wanted)) => assert_eq!(bdf, wanted, "{name}"),
                (Err(err), Err(wanted)) => assert!(err.contains(wanted), "{name}: {err}"),
                _ => panic!("{name}: {found:?}"),
            }
        }
    }
}
