//! Whether the machine needs a function's driver: file systems, swap or addresses depend on it.

use std::path::Path;

use pciescope_core::{Bdf, Function};

use crate::{Root, pci};

/// A reason to leave a function with its driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The reason.
    pub why: String,
    /// What to do first, where the machine itself needs the function: then no hint may offer to take it anyway.
    pub first: Option<String>,
}

impl From<String> for Use {
    fn from(why: String) -> Self {
        Use { why, first: None }
    }
}

/// The reasons in one line.
pub fn in_words(uses: &[Use]) -> String {
    uses.iter().map(|each| each.why.as_str()).collect::<Vec<_>>().join("; ")
}

/// Why the function should stay with its driver; empty if there is no reason.
pub fn in_use(root: &Root, function: &Function) -> Vec<Use> {
    let Some(bdf) = function.bdf else { return Vec::new() };
    if function.driver.is_none() {
        return Vec::new();
    }
    let mut reasons = disks(root, bdf);
    reasons.extend(virtio(root, bdf));
    reasons.extend(networks(root, bdf).into_iter().map(Use::from));
    if root.number(pci::folder(bdf).join("sriov_numvfs")).unwrap_or(0) > 0 {
        reasons.push("its virtual functions (SR-IOV) are on and would vanish".to_owned().into());
    }
    if root.number(pci::folder(bdf).join("boot_vga")) == Some(1) {
        reasons.push("it is the display that the machine booted with".to_owned().into());
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
fn disks(root: &Root, bdf: Bdf) -> Vec<Use> {
    let mut disks = members(root, BLOCK, bdf);
    disks.extend(multipath_disks(root, bdf));
    uses(root, disks)
}

/// Mounted file systems and swap on one disk or partition, with what is stacked on it.
pub(crate) fn of_disk(root: &Root, name: &str) -> Vec<Use> {
    uses(root, vec![name.to_owned()])
}

fn uses(root: &Root, mut disks: Vec<String>) -> Vec<Use> {
    let mut next = 0;
    while let Some(disk) = disks.get(next) {
        let holders = root.names(format!("{BLOCK}/{disk}/holders"));
        let new: Vec<String> = holders.into_iter().filter(|holder| !disks.contains(holder)).collect();
        disks.extend(new);
        next += 1;
    }
    let mounts = mounts(root);
    let mut reasons: Vec<Use> = disks.iter().filter_map(|disk| usage(root, disk, &mounts)).collect();
    let zfs = mounts.iter().filter(|mount| mount.kind == "zfs").min_by_key(|mount| mount.rank());
    if let (Some(disk), Some(mount)) = (disks.first(), zfs) {
        let why = format!("a ZFS pool is mounted, and pciescope cannot find out whether it is on {disk}");
        reasons.push(Use { why, first: mount.first() });
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

impl Mount {
    /// How much the machine needs it: 0 the most, 2 not at all.
    fn rank(&self) -> u8 {
        match self.point.as_str() {
            "/" | "/usr" => 0,
            point if point.starts_with("/boot") || point == "/efi" => 1,
            _ => 2,
        }
    }

    /// As [`Use::first`].
    fn first(&self) -> Option<String> {
        match self.rank() {
            0 => Some("start the machine from another disk first".to_owned()),
            1 => Some(self.unmount()),
            _ => None,
        }
    }

    fn unmount(&self) -> String {
        format!("`umount {}` first", self.point)
    }
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
fn usage(root: &Root, disk: &str, mounts: &[Mount]) -> Option<Use> {
    let number = root.text(format!("{BLOCK}/{disk}/dev"));
    let mut names = vec![format!("/dev/{disk}")];
    names.extend(root.text(format!("{BLOCK}/{disk}/dm/name")).map(|name| format!("/dev/mapper/{name}")));
    // Btrfs mounts have a number of their own: there the source's name tells.
    let is_it = |mount: &&Mount| Some(&mount.number) == number.as_ref() || names.contains(&mount.source);
    if let Some(mount) = mounts.iter().filter(is_it).min_by_key(|mount| mount.rank()) {
        return Some(Use { why: format!("{disk} is mounted at {}", mount.point), first: mount.first() });
    }
    let swaps = root.text("/proc/swaps").unwrap_or_default();
    let mut swaps = swaps.lines().filter_map(|line| line.split_whitespace().next());
    let swap = swaps.find(|swap| names.iter().any(|name| name == swap))?;
    Some(Use { why: format!("{disk} is used for swap"), first: Some(format!("`swapoff {swap}` first")) })
}

/// Virtio devices whose use shows neither as a disk nor as an interface, by their ID (virtio 1.2, section 5).
fn virtio(root: &Root, bdf: Bdf) -> Vec<Use> {
    let folder = pci::folder(bdf);
    let usage = |name: String| {
        let device = folder.join(name.strip_prefix("virtio").map(|_| &name)?);
        if !root.exists(device.join("driver")) {
            return None;
        }
        let of_guest = |what: &str| {
            let first = Some("measure another function".to_owned());
            Some(Use { why: format!("it is {what} of this guest"), first })
        };
        match root.number(device.join("device"))? {
            3 => of_guest("the console"),
            5 => of_guest("the memory balloon"),
            9 => carried(root, "9p", root.text(device.join("mount_tag"))),
            19 => of_guest("the socket (vsock)"),
            24 => of_guest("a part of the memory"),
            // Only Linux 6.9 and newer say which one has which tag.
            26 => carried(root, "virtiofs", None),
            _ => None,
        }
    };
    root.names(&folder).into_iter().filter_map(usage).collect()
}

/// The mounted file system of a kind that a device carries: the one whose source is its tag, any where that is not known.
fn carried(root: &Root, kind: &str, tag: Option<String>) -> Option<Use> {
    // The kernel ends the tag with a zero byte, and mountinfo has blanks in octal.
    let tag = tag.as_deref().map(|tag| tag.trim_end_matches('\0'));
    let is_its =
        |mount: &&Mount| mount.kind == kind && tag.is_none_or(|tag| mount.source == tag || mount.source.contains('\\'));
    let mounts = mounts(root);
    let mount = mounts.iter().filter(is_its).min_by_key(|mount| mount.rank())?;
    Some(Use {
        why: format!("it carries the {kind} file system at {}", mount.point),
        first: Some(mount.first().unwrap_or_else(|| mount.unmount())),
    })
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
