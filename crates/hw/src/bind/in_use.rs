//! Whether the machine needs a function's driver: file systems, swap or addresses depend on it.

use std::path::Path;

use pciescope_core::{Bdf, Function};

use crate::{Root, pci};

/// Why the function should stay with its driver; empty if there is no reason.
pub fn in_use(root: &Root, function: &Function) -> Vec<String> {
    let Some(bdf) = function.bdf else { return Vec::new() };
    if function.driver.is_none() {
        return Vec::new();
    }
    let mut reasons = disks(root, bdf);
    reasons.extend(networks(root, bdf));
    if root.number(pci::folder(bdf).join("sriov_numvfs")).unwrap_or(0) > 0 {
        reasons.push("its virtual functions (SR-IOV) are on and would vanish".to_owned());
    }
    if root.number(pci::folder(bdf).join("boot_vga")) == Some(1) {
        reasons.push("it is the display that the machine booted with".to_owned());
    }
    reasons
}

/// The members of a class folder whose devices lie below the function.
fn members(root: &Root, class: &str, bdf: Bdf) -> Vec<String> {
    let is_below = |name: &String| leads_through(root, Path::new(class).join(name), &bdf.to_string());
    root.names(class).into_iter().filter(is_below).collect()
}

/// Whether a link's target has a folder of this name on its way.
fn leads_through(root: &Root, link: impl AsRef<Path>, folder: &str) -> bool {
    match std::fs::read_link(root.path(link)) {
        Ok(target) => target.iter().any(|part| part == folder),
        Err(_) => false,
    }
}

const BLOCK: &str = "/sys/class/block";

/// Mounted file systems and swap on the function's disks, with what is stacked on them (LVM, RAID, LUKS).
fn disks(root: &Root, bdf: Bdf) -> Vec<String> {
    let mut disks = members(root, BLOCK, bdf);
    disks.extend(multipath_disks(root, bdf));
    uses(root, disks)
}

/// Mounted file systems and swap on one disk or partition, with what is stacked on it.
pub(crate) fn of_disk(root: &Root, name: &str) -> Vec<String> {
    uses(root, vec![name.to_owned()])
}

fn uses(root: &Root, mut disks: Vec<String>) -> Vec<String> {
    let mut next = 0;
    while let Some(disk) = disks.get(next) {
        let holders = root.names(format!("{BLOCK}/{disk}/holders"));
        let new: Vec<String> = holders.into_iter().filter(|holder| !disks.contains(holder)).collect();
        disks.extend(new);
        next += 1;
    }
    let mounts = mounts(root);
    let mut reasons: Vec<String> = disks.iter().filter_map(|disk| usage(root, disk, &mounts)).collect();
    if !disks.is_empty() && mounts.iter().any(|mount| mount.kind == "zfs") {
        reasons.push(format!("a ZFS pool is mounted, and pciescope cannot find out whether it is on {}", disks[0]));
    }
    reasons
}

/// With native multipath an NVMe namespace lies below a virtual subsystem that links to its controllers.
fn multipath_disks(root: &Root, bdf: Bdf) -> Vec<String> {
    let subsystems = "/sys/class/nvme-subsystem";
    let mut disks = Vec::new();
    for subsystem in root.names(subsystems) {
        let folder = Path::new(subsystems).join(&subsystem);
        let has_it = root.names(&folder).iter().any(|name| leads_through(root, folder.join(name), &bdf.to_string()));
        if has_it {
            let is_in = |name: &String| leads_through(root, Path::new(BLOCK).join(name), &subsystem);
            disks.extend(root.names(BLOCK).into_iter().filter(is_in));
        }
    }
    disks
}

struct Mount {
    number: String,
    point: String,
    kind: String,
    source: String,
}

/// /proc/self/mountinfo: `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS`.
fn mounts(root: &Root) -> Vec<Mount> {
    let text = root.text("/proc/self/mountinfo").unwrap_or_default();
    let parse = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(2);
        let mut right = right.split(' ');
        Some(Mount {
            number: left.next()?.to_owned(),
            point: left.nth(1)?.to_owned(),
            kind: right.next()?.to_owned(),
            source: right.next()?.to_owned(),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// What a disk or partition is in use for.
fn usage(root: &Root, disk: &str, mounts: &[Mount]) -> Option<String> {
    let number = root.text(format!("{BLOCK}/{disk}/dev"));
    let mut names = vec![format!("/dev/{disk}")];
    names.extend(root.text(format!("{BLOCK}/{disk}/dm/name")).map(|name| format!("/dev/mapper/{name}")));
    // Btrfs mounts have a number of their own: there the source's name tells.
    let is_it = |mount: &&Mount| Some(&mount.number) == number.as_ref() || names.contains(&mount.source);
    if let Some(mount) = mounts.iter().find(is_it) {
        return Some(format!("{disk} is mounted at {}", mount.point));
    }
    let swaps = root.text("/proc/swaps").unwrap_or_default();
    let is_swap = swaps.lines().filter_map(|line| line.split_whitespace().next()).any(|s| names.iter().any(|n| n == s));
    is_swap.then(|| format!("{disk} is used for swap"))
}

const NET: &str = "/sys/class/net";

/// Network interfaces of the function that carry addresses, themselves or by a bond, bridge or VLAN on them.
fn networks(root: &Root, bdf: Bdf) -> Vec<String> {
    let mut reasons = Vec::new();
    for own in members(root, NET, bdf) {
        let mut stack = vec![own.clone()];
        let mut next = 0;
        while let Some(interface) = stack.get(next) {
            let uppers = root.names(format!("{NET}/{interface}"));
            let uppers = uppers.iter().filter_map(|name| name.strip_prefix("upper_").map(str::to_owned));
            let new: Vec<String> = uppers.filter(|upper| !stack.contains(upper)).collect();
            stack.extend(new);
            next += 1;
        }
        for interface in stack {
            if let Some(why) = address(root, &interface) {
                let way = if interface == own { String::new() } else { format!(" on {own}") };
                reasons.push(format!("network interface {interface}{way} {why}"));
            }
        }
    }
    reasons
}

/// Whether an interface has addresses. Its routes tell: each address of an interface that is up makes a route.
fn address(root: &Root, interface: &str) -> Option<String> {
    let routes = root.text("/proc/net/route").unwrap_or_default();
    let mut destinations = routes.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        (fields.next()? == interface).then(|| fields.next())?
    });
    if destinations.clone().any(|destination| destination == "00000000") {
        return Some("carries the default route".to_owned());
    }
    if destinations.next().is_some() {
        return Some("is up with an IPv4 address".to_owned());
    }
    // Address, index, prefix length, scope, flags, name; every interface that is up has one of link scope, 20.
    let addresses = root.text("/proc/net/if_inet6").unwrap_or_default();
    let mut lines = addresses.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let has_global = lines.any(|fields| fields.get(5) == Some(&interface) && fields.get(3) != Some(&"20"));
    has_global.then(|| "is up with an IPv6 address".to_owned())
}
