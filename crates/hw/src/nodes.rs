//! What programs use of a function: its disks, network interfaces, character devices.

use std::path::{Path, PathBuf};

use pciescope_core::Bdf;

use crate::{Root, pci};

/// No device of interest lies deeper below its function (a disk of a SATA port is at 7).
const DEEPEST: usize = 8;
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
    let mut found = Found::default();
    look(root, &pci::folder(bdf), 0, &mut found);
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

fn look(root: &Root, folder: &Path, depth: usize, found: &mut Found) {
    for name in root.names(folder) {
        let at = folder.join(&name);
        // Links lead elsewhere; what is below another function is that one's.
        let is_folder = root.path(&at).symlink_metadata().is_ok_and(|meta| meta.is_dir());
        if !is_folder || name.parse::<Bdf>().is_ok() {
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
}
