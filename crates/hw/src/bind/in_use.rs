//! Whether a function may be taken from its driver. Each kind of function has its own proof that it is free (docs/cli.md has
//! the list); what is of no such kind counts as in use.

use std::collections::BTreeSet;
use std::path::Path;

use pciescope_core::{Bdf, Function};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::{Root, pci};

/// A reason to leave a function with its driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The reason.
    pub why: String,
    /// What to do first, where something better than to stop what uses it is known.
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

/// Drivers that do nothing with a function of their own accord: only an open node uses it.
const IDLE_DRIVERS: &[&str] = &["vfio-pci", "pci-stub", "uio_pci_generic", "igb_uio", "pcilat", "sis8300"];

/// Why the function should stay with its driver; empty if it is proven to be free.
pub fn in_use(root: &Root, function: &Function) -> Vec<Use> {
    let (Some(bdf), Some(driver)) = (function.bdf, function.driver.as_deref()) else { return Vec::new() };
    let mut reasons = Vec::new();
    let disks = disks(root, bdf);
    match (function.class >> 16, virtio(root, bdf)) {
        // Mass storage, and network.
        (0x01, _) => reasons.extend(uses(root, disks.clone())),
        (0x02, _) => {}
        (_, Some(virtio)) => reasons.extend(virtio.reason(root)),
        // Displays and accelerators: what uses them has opened a node.
        (0x03 | 0x12, None) => {}
        (_, None) if IDLE_DRIVERS.contains(&driver) => {}
        (_, None) => {
            let why = format!("the driver {driver} has it, and nothing tells whether that needs it");
            reasons.push(Use {
                why,
                first: Some("take a function without a driver, a disk, a network card or a GPU".to_owned()),
            });
        }
    }
    reasons.extend(networks(root, bdf));
    reasons.extend(open_nodes(root, function, driver, &disks));
    if root.number(pci::folder(bdf).join("sriov_numvfs")).unwrap_or(0) > 0 {
        reasons.push("its virtual functions (SR-IOV) are on and would vanish".to_owned().into());
    }
    if root.number(pci::folder(bdf).join("boot_vga")) == Some(1) {
        reasons.push("it is the display that the machine booted with".to_owned().into());
    }
    reasons
}

/// The nodes of the function, and of the disks on it, that processes have open.
fn open_nodes(root: &Root, function: &Function, driver: &str, disks: &[String]) -> Vec<Use> {
    let Some(bdf) = function.bdf else { return Vec::new() };
    let mut nodes = BTreeSet::new();
    nodes_below(&root.path(pci::folder(bdf)), 0, &mut nodes);
    nodes.extend(disks.iter().map(|disk| format!("/dev/{disk}")));
    nodes.extend(function.iommu_group.filter(|_| driver == "vfio-pci").map(|group| format!("/dev/vfio/{group}")));
    match driver {
        // Its nodes are not in sysfs.
        "nvidia" => {
            let about = root.text(format!("/proc/driver/nvidia/gpus/{bdf}/information")).unwrap_or_default();
            let minor = about.lines().find_map(|line| line.strip_prefix("Device Minor:"));
            nodes.insert(format!("/dev/nvidia{}", minor.unwrap_or("0").trim()));
        }
        "amdgpu" => drop(nodes.insert("/dev/kfd".to_owned())),
        _ => {}
    }
    if nodes.is_empty() {
        return Vec::new();
    }
    let mut open = BTreeSet::new();
    for process in root.names("/proc").into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
        for file in root.names(format!("/proc/{process}/fd")) {
            let target = std::fs::read_link(root.path(format!("/proc/{process}/fd/{file}"))).unwrap_or_default();
            if let Some(node) = target.to_str().filter(|target| nodes.contains(*target)) {
                let name = root.text(format!("/proc/{process}/comm")).unwrap_or_default();
                open.insert((node.to_owned(), process.clone(), name));
            }
        }
    }
    let why = |(node, process, name): (String, String, String)| format!("{node} is open in process {process} ({name})");
    open.into_iter().map(|each| Use::from(why(each))).collect()
}

/// The device nodes of what lies below a folder of /sys/devices.
fn nodes_below(folder: &Path, depth: usize, nodes: &mut BTreeSet<String>) {
    if folder.join("dev").exists() {
        let about = std::fs::read_to_string(folder.join("uevent")).unwrap_or_default();
        nodes.extend(about.lines().find_map(|line| line.strip_prefix("DEVNAME=")).map(|name| format!("/dev/{name}")));
    }
    // A SCSI disk lies eight folders below its controller.
    const DEEPEST: usize = 10;
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().filter(|_| depth < DEEPEST);
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        nodes_below(&entry.path(), depth + 1, nodes);
    }
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

/// The disks and partitions of a function, with the heads of multipath.
fn disks(root: &Root, bdf: Bdf) -> Vec<String> {
    let mut disks = members(root, BLOCK, bdf);
    disks.extend(multipath_disks(root, bdf));
    disks
}

/// What one disk or partition is in use for.
pub(crate) fn of_disk(root: &Root, name: &str) -> Vec<Use> {
    uses(root, vec![name.to_owned()])
}

/// What disks are in use for: mounts and swap, on them and on what is stacked on them (LVM, RAID, LUKS), and whoever else in
/// the kernel has one of them for itself.
fn uses(root: &Root, own: Vec<String>) -> Vec<Use> {
    let (mut disks, mut next) = (own.clone(), 0);
    while let Some(disk) = disks.get(next) {
        let holders = root.names(format!("{BLOCK}/{disk}/holders"));
        let new: Vec<String> = holders.into_iter().filter(|holder| !disks.contains(holder)).collect();
        disks.extend(new);
        next += 1;
    }
    let mounts = mounts(root);
    let mut reasons: Vec<Use> = disks.iter().filter_map(|disk| usage(root, disk, &mounts)).collect();
    if reasons.is_empty() {
        let holders = |disk: &String| root.names(format!("{BLOCK}/{disk}/holders"));
        let held =
            own.iter().flat_map(|disk| holders(disk).into_iter().map(move |one| format!("{one} is made of {disk}")));
        reasons.extend(held.map(Use::from));
    }
    let held: Vec<Held> = own.iter().map(|disk| Held::of(root, disk)).collect();
    if reasons.is_empty() {
        let exclusive = own.iter().zip(&held).filter(|(_, held)| **held == Held::Yes);
        let why = |disk| format!("{disk} is held by the kernel: a file system, a pool or a target is on it");
        reasons.extend(exclusive.map(|(disk, _)| Use::from(why(disk))));
    }
    let zfs = mounts.iter().filter(|mount| mount.kind == "zfs").min_by_key(|mount| mount.rank());
    if let (Some((disk, _)), Some(mount)) = (own.iter().zip(&held).find(|(_, held)| **held == Held::Unknown), zfs) {
        let why = format!("a ZFS pool is mounted, and pciescope cannot find out whether it is on {disk}");
        reasons.push(Use { why, first: mount.first() });
    }
    reasons
}

/// Whether somebody has a disk for himself: then it cannot be opened with O_EXCL (open(2)). ZFS, btrfs, nvmet and LIO name no
/// holder and show in nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Yes,
    No,
    Unknown,
}

impl Held {
    fn of(root: &Root, disk: &str) -> Held {
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::open(root.path(format!("/dev/{disk}")), flags, Mode::empty()) {
            Ok(_) | Err(Errno::NOMEDIUM | Errno::NXIO) => Held::No,
            Err(Errno::BUSY) => Held::Yes,
            Err(_) => Held::Unknown,
        }
    }
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
            _ => Some(self.unmount()),
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

/// A virtio device, by its ID (virtio 1.2, section 5).
struct Virtio {
    id: u64,
    tag: Option<String>,
}

fn virtio(root: &Root, bdf: Bdf) -> Option<Virtio> {
    let folder = pci::folder(bdf);
    let name = root.names(&folder).into_iter().find(|name| name.starts_with("virtio"))?;
    let device = folder.join(name);
    let id = root.number(device.join("device")).filter(|_| root.exists(device.join("driver")))?;
    Some(Virtio { id, tag: root.text(device.join("mount_tag")) })
}

impl Virtio {
    /// Why it is never taken, for the kinds whose use shows in no node, disk or interface.
    fn reason(&self, root: &Root) -> Option<Use> {
        let what = match self.id {
            // Network, disk and entropy; SCSI, GPU and input show in their nodes.
            1 | 2 | 4 | 8 | 16 | 18 => return None,
            3 => "the console".to_owned(),
            5 => "the memory balloon".to_owned(),
            9 => self.carried(root, "9p"),
            19 => "the socket (vsock)".to_owned(),
            24 => "a part of the memory".to_owned(),
            26 => self.carried(root, "virtiofs"),
            id => format!("a virtio device of kind {id}"),
        };
        Some(Use { why: format!("it is {what} of this guest"), first: Some("measure another function".to_owned()) })
    }

    /// A carrier of file systems, with the place of one that is mounted. Only Linux 6.9 and newer know the tag of a virtiofs.
    fn carried(&self, root: &Root, kind: &str) -> String {
        let tag = self.tag.as_deref().map(|tag| tag.trim_end_matches('\0'));
        let is_its = |mount: &&Mount| {
            mount.kind == kind && tag.is_none_or(|tag| mount.source == tag || mount.source.contains('\\'))
        };
        let mounts = mounts(root);
        match mounts.iter().filter(is_its).min_by_key(|mount| mount.rank()) {
            Some(mount) => format!("the carrier of the {kind} file system at {}", mount.point),
            None => format!("a carrier of {kind} file systems"),
        }
    }
}

const NET: &str = "/sys/class/net";

/// Interfaces of the function that are up and carry addresses, connections or other interfaces (bond, bridge, VLAN).
fn networks(root: &Root, bdf: Bdf) -> Vec<Use> {
    let mut reasons = Vec::new();
    for own in members(root, NET, bdf) {
        // IFF_UP, if_arp.h
        if root.number(format!("{NET}/{own}/flags")).is_some_and(|flags| flags & 1 == 0) {
            continue;
        }
        let (mut stack, mut next) = (vec![own.clone()], 0);
        while let Some(interface) = stack.get(next) {
            let folder = format!("{NET}/{interface}");
            let names =
                root.names(&folder).into_iter().filter_map(|name| name.strip_prefix("upper_").map(str::to_owned));
            let uppers = names.chain(root.link_name(format!("{folder}/master")));
            let new: Vec<String> = uppers.filter(|upper| !stack.contains(upper)).collect();
            stack.extend(new);
            next += 1;
        }
        let way = |interface: &String| if *interface == own { String::new() } else { format!(" on {own}") };
        let carries = stack.iter().filter_map(|interface| {
            Some(format!("network interface {interface}{} {}", way(interface), traffic(root, interface)?))
        });
        let mut carries: Vec<Use> = carries.map(Use::from).collect();
        if let (true, Some(upper)) = (carries.is_empty(), stack.get(1)) {
            carries.push(format!("network interface {own} is a part of {upper}").into());
        }
        reasons.extend(carries);
    }
    reasons
}

/// What an interface that is up is used for.
fn traffic(root: &Root, interface: &str) -> Option<String> {
    let routes = root.text("/proc/net/route").unwrap_or_default();
    let mut destinations = routes.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        (fields.next()? == interface).then(|| fields.next())?
    });
    if destinations.clone().any(|destination| destination == "00000000") {
        return Some("carries the default route".to_owned());
    }
    // An address of a network makes a route; one of a single host (/32) does not.
    if destinations.next().is_some() || (root.is_live() && has_ipv4(interface)) {
        return Some("is up with an IPv4 address".to_owned());
    }
    // Address, index, prefix length, scope, flags, name; every interface that is up has one of link scope, 20.
    let addresses = root.text("/proc/net/if_inet6").unwrap_or_default();
    let own: Vec<Vec<&str>> = addresses.lines().map(|line| line.split_whitespace().collect()).collect();
    let own: Vec<&Vec<&str>> = own.iter().filter(|fields| fields.get(5) == Some(&interface)).collect();
    if own.iter().any(|fields| fields[3] != "20") {
        return Some("is up with an IPv6 address".to_owned());
    }
    let connections = root.text("/proc/net/tcp6").unwrap_or_default();
    let is_connected = own.iter().any(|fields| connections.lines().any(|line| is_connection_from(line, fields[0])));
    is_connected.then(|| "carries a TCP connection".to_owned())
}

/// Whether a line of /proc/net/tcp6 is of an established connection whose local address is this one of /proc/net/if_inet6. The
/// kernel writes one as four numbers of the CPU's byte order, the other as it goes over the wire.
fn is_connection_from(line: &str, address: &str) -> bool {
    const ESTABLISHED: &str = "01";
    let mut fields = line.split_whitespace().skip(1);
    let (Some(local), Some(state)) = (fields.next(), fields.nth(1)) else { return false };
    let words =
        address.as_bytes().chunks(8).filter_map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok());
    let here: String = words.map(|word| format!("{:08X}", u32::from_ne_bytes(word.to_be_bytes()))).collect();
    state == ESTABLISHED && local.split(':').next() == Some(&here)
}

/// Whether an interface of this machine has an IPv4 address.
fn has_ipv4(interface: &str) -> bool {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` is written, and freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return true;
    }
    let (mut next, mut has) = (list, false);
    // SAFETY: the list and its strings live until freeifaddrs; getifaddrs(3) ends it with null.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: as above.
        let (name, family) = unsafe { (std::ffi::CStr::from_ptr(entry.ifa_name), entry.ifa_addr.as_ref()) };
        has |= name.to_bytes() == interface.as_bytes()
            && family.is_some_and(|address| i32::from(address.sa_family) == libc::AF_INET);
        next = entry.ifa_next;
    }
    // SAFETY: it is of getifaddrs, and no reference into it is left.
    unsafe { libc::freeifaddrs(list) };
    has
}
