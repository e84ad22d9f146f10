//! Functions, links and CPUs as the machine describes them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bdf;

/// A logical CPU and its place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    /// Linux CPU number.
    pub cpu: u32,
    /// NUMA node; `None` where the machine does not say.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<u32>,
    /// Physical package (socket).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub package: Option<u32>,
    /// The lowest CPU that shares the last-level (L3) cache, as the cache's name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub l3: Option<u32>,
    /// The lowest CPU of the same core, as the core's name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub core: Option<u32>,
    /// 0 for the first hardware thread of a core, 1 for its sibling, and so on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thread: Option<u32>,
}

/// A PCI function.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Function {
    /// Its address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
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
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver: Option<String>,
    /// NUMA node; `None` where the firmware does not say.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<u32>,
    /// Memory and I/O windows that are assigned.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub bars: Vec<Bar>,
    /// Link above the function; `None` for integrated endpoints and conventional PCI.
    #[serde(skip_serializing_if = "Option::is_none", default)]
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
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub virtio_common: Option<Location>,
    /// IOMMU group; `None` without an IOMMU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub iommu_group: Option<u32>,
    /// Why payload sizes and vector counts are not known (a user without privilege reads only 64 bytes of
    /// configuration space); `None` where they are.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limited: Option<String>,
    /// Why the function is taken for an emulated one; `None` where it looks real.
    #[serde(skip_serializing_if = "Option::is_none", default)]
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
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mps_bytes: Option<u16>,
    /// Maximum read request size in force, in bytes, where known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mrrs_bytes: Option<u16>,
}
