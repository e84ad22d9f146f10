//! Functions, links and CPUs as the machine describes them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_with::skip_serializing_none;

use crate::Bdf;

/// A logical CPU and its place.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    /// Linux CPU number.
    pub cpu: u32,
    /// NUMA node; `None` where the machine does not say.
    pub node: Option<u32>,
    /// Physical package (socket).
    pub package: Option<u32>,
    /// The lowest CPU that shares the last-level (L3) cache, as the cache's name.
    pub l3: Option<u32>,
    /// The lowest CPU of the same core, as the core's name.
    pub core: Option<u32>,
    /// 0 for the first hardware thread of a core, 1 for its sibling, and so on.
    pub thread: Option<u32>,
}

/// A PCI function.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Function {
    /// Its address.
    pub bdf: Option<Bdf>,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Subsystem vendor ID.
    #[serde(default)]
    pub subsystem_vendor: u16,
    /// Subsystem ID.
    #[serde(default)]
    pub subsystem_device: u16,
    /// Class code: 24 bits, base class, sub-class, programming interface.
    pub class: u32,
    /// Vendor and device in words, from the PCI ID list, or the numbers where it does not know them.
    pub name: String,
    /// The bound driver; `None` where there is none.
    pub driver: Option<String>,
    /// The names that programs use of its devices: `nvme0n1`, `eth0`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub devices: Vec<String>,
    /// NUMA node; `None` where the firmware does not say.
    pub node: Option<u32>,
    /// Memory and I/O windows that are assigned.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub bars: Vec<Bar>,
    /// Link above the function; `None` for integrated endpoints and conventional PCI.
    pub link: Option<Link>,
    /// The bridges above, from the root port down; empty on a root bus.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub path: Vec<Bdf>,
    /// MSI-X vectors that the function has; 0 means none.
    #[serde(default)]
    pub msix_vectors: u16,
    /// MSI vectors that the function has; 0 means none.
    #[serde(default)]
    pub msi_vectors: u16,
    /// Where a virtio device has its common configuration, as its capability says; `None` for other devices, and
    /// where the capability cannot be read.
    pub virtio_common: Option<Location>,
    /// IOMMU group; `None` without an IOMMU.
    pub iommu_group: Option<u32>,
    /// Why payload sizes and vector counts are not known (a user without privilege reads only 64 bytes of
    /// configuration space); `None` where they are.
    pub limited: Option<String>,
    /// Why the function is taken for an emulated one; `None` where it looks real.
    pub emulated: Option<String>,
}

/// A place in a window of a function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Location {
    /// BAR number, 0 to 5.
    pub bar: u8,
    /// Byte offset in the BAR.
    pub offset: u64,
}

/// A window of a function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bar {
    /// BAR number, 0 to 5.
    pub number: u8,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Whether it is memory (otherwise I/O ports).
    pub is_memory: bool,
    /// Whether it takes 64-bit addresses.
    pub is_64bit: bool,
    /// Whether it is marked prefetchable (which does not mean that it is cached).
    pub is_prefetchable: bool,
}

/// A PCI Express link as negotiated and as possible.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// Transfer rate now, in GT/s.
    pub speed_gts: f64,
    /// Lanes now.
    pub width: u8,
    /// Highest transfer rate of this end, in GT/s.
    pub max_speed_gts: f64,
    /// Most lanes of this end.
    pub max_width: u8,
    /// Maximum payload size in force, in bytes, where known.
    pub mps_bytes: Option<u16>,
    /// Maximum read request size in force, in bytes, where known.
    pub mrrs_bytes: Option<u16>,
}

impl Link {
    /// The transfer rate in GT/s and the lanes that both ends can do, where the link is up and has less; `other` is the link
    /// as its other end has it.
    pub fn possible(&self, other: &Link) -> Option<(f64, u8)> {
        let (speed, lanes) = (self.max_speed_gts.min(other.max_speed_gts), self.max_width.min(other.max_width));
        (self.width > 0 && (self.speed_gts < speed || self.width < lanes)).then_some((speed, lanes))
    }
}

/// A PCI function with a link, with what the kernel says of it at any time and without a counter.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Device {
    /// Its address.
    pub bdf: Bdf,
    /// The inode of its folder in sysfs: another inode is another function at the same address. Not written.
    #[serde(skip)]
    pub inode: Option<u64>,
    /// Vendor and device in words.
    pub name: String,
    /// Its class in words, such as `Non-Volatile memory controller`.
    pub class: String,
    /// The bound driver.
    pub driver: Option<String>,
    /// The names that programs use of its devices: `nvme0n1`, `eth0`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// The NUMA node, where the firmware says it.
    pub node: Option<u32>,
    /// The bridges above, from the root port down. Written as `port`, the root port alone.
    #[serde(rename = "port", serialize_with = "root_port", skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<Bdf>,
    /// Its link; a width of 0 is a link that is down. Of a function that sleeps as it was last seen.
    pub link: Link,
    /// Whether the link is up, but slower or narrower than both of its ends can do; `None` where it has no end above.
    pub is_downtrained: Option<bool>,
    /// Errors by severity (AER); `None` where the kernel keeps no account.
    pub errors: Option<DeviceErrors>,
}

fn root_port<S: Serializer>(path: &[Bdf], serializer: S) -> Result<S::Ok, S::Error> {
    path.first().serialize(serializer)
}

/// Errors that a function reported since the kernel found it, by the kernel's names (`RxErr`, `BadTLP`); those that are 0
/// are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DeviceErrors {
    /// Errors that the hardware corrected.
    pub correctable: BTreeMap<String, u64>,
    /// Errors that lost a transaction.
    pub nonfatal: BTreeMap<String, u64>,
    /// Errors that lost the link.
    pub fatal: BTreeMap<String, u64>,
}
