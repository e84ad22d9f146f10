//! Functions, links and CPUs as the machine describes them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_with::skip_serializing_none;

use crate::Bdf;
use crate::change::Cause;

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
    /// Link of the function's port; `None` for integrated endpoints and conventional PCI.
    pub link: Option<Link>,
    /// Maximum payload size and maximum read request size in force, in bytes, of a function without a link, such as one
    /// that is built into the root complex.
    pub mps_bytes: Option<u16>,
    /// See [`Function::mps_bytes`].
    pub mrrs_bytes: Option<u16>,
    /// The link that carries least between the root port and the function, its own included; `None` where none is known.
    pub path_link: Option<PathLink>,
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
    /// Whether the state is a form and says nothing about what the link carries: so a tunnel through USB4 or Thunderbolt
    /// and the inside of a chip show 2.5 GT/s (USB4 2.0, 11.2.1).
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_nominal: bool,
}

impl Link {
    /// Whether its state says what it carries: it is up, and not nominal.
    pub fn is_known(&self) -> bool {
        self.width > 0 && !self.is_nominal
    }

    /// The transfer rate in GT/s and the lanes that both ends of the link can do.
    pub fn both_ends_can(&self, other: &Link) -> (f64, u8) {
        (self.max_speed_gts.min(other.max_speed_gts), self.max_width.min(other.max_width))
    }

    /// The same, where the link is up, but slower or narrower.
    pub fn possible(&self, other: &Link) -> Option<(f64, u8)> {
        let (speed, width) = self.both_ends_can(other);
        let is_worse = self.speed_gts < speed || self.width < width;
        (self.is_known() && !other.is_nominal && is_worse).then_some((speed, width))
    }
}

/// What is known of a function's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// It is up, and its [`Link`] says how.
    Up,
    /// [`Link::is_nominal`].
    Nominal,
    /// A port has no link: nothing is plugged in.
    Absent,
    /// A link leads up, and its state cannot be read: the hypervisor hides it, or the function does not answer.
    Unknown,
}

impl LinkState {
    /// In a word; `None` for a link that is up.
    pub fn word(self) -> Option<&'static str> {
        match self {
            LinkState::Up => None,
            LinkState::Nominal => Some("nominal"),
            LinkState::Absent => Some("no link"),
            LinkState::Unknown => Some("unknown"),
        }
    }
}

impl Function {
    /// Whether the function's link leads up to the last bridge of its path, as those of endpoints and of a switch's
    /// upstream port do; the link of a root or downstream port leads down.
    pub fn has_link_above(&self) -> bool {
        // From the root port down: port, upstream port, downstream port, upstream port ...
        self.link.is_some() && self.path.len() % 2 == 1
    }

    /// Whether its class is that of a PCI-to-PCI bridge.
    pub fn is_bridge(&self) -> bool {
        self.class >> 8 == 0x0604
    }

    /// Its link in words: `16 GT/s x4`, or what is known instead; `None` without one.
    pub fn link_words(&self) -> Option<String> {
        let (link, state) = (self.link?, self.link_state()?);
        Some(state.word().map_or_else(|| format!("{} GT/s x{}", link.speed_gts, link.width), str::to_owned))
    }

    /// What is known of its link; `None` without one.
    pub fn link_state(&self) -> Option<LinkState> {
        Some(match self.link? {
            Link { width: 0, .. } if self.is_bridge() && !self.has_link_above() => LinkState::Absent,
            Link { width: 0, .. } => LinkState::Unknown,
            Link { is_nominal: true, .. } => LinkState::Nominal,
            _ => LinkState::Up,
        })
    }
}

/// The link of a function's path that carries least.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathLink {
    /// The function at its lower end.
    pub bdf: Bdf,
    /// Its transfer rate now, in GT/s.
    pub speed_gts: f64,
    /// Its lanes now.
    pub width: u8,
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
    /// What a recorder has kept of its link; `None` where there is none.
    pub watched: Option<WatchedLink>,
}

/// What the recorder, `watch` as a service, has kept of a link in the last 7 days.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WatchedLink {
    /// Changes by cause.
    pub causes: BTreeMap<&'static str, u64>,
    /// What it could have carried more in its best state, in bytes; power saving left out.
    pub lost_bytes: f64,
    /// When it last changed, in seconds since 1970; `None` if it did not.
    pub changed_s: Option<u64>,
    /// That change in words: from what, to what, and why; empty without one.
    pub last: String,
    /// The worst change in words: when, what, and why; empty without one.
    pub worst: String,
}

impl WatchedLink {
    /// Changes that nobody asked for: without those for hot-plug, power saving and software.
    pub fn unasked(&self) -> u64 {
        self.causes.iter().filter(|(cause, _)| Cause::UNASKED.map(Cause::name).contains(cause)).map(|(_, n)| n).sum()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_could_be_better_only_up_to_what_both_ends_can_do() {
        let link = |speed_gts, width, max_speed_gts, max_width| Link {
            speed_gts,
            width,
            max_speed_gts,
            max_width,
            ..Link::default()
        };
        let port = link(8.0, 4, 16.0, 16);
        for (below, better) in [
            (link(8.0, 4, 8.0, 4), None),
            (link(5.0, 4, 8.0, 4), Some((8.0, 4))),
            (link(8.0, 2, 8.0, 4), Some((8.0, 4))),
            // No link is no slow one, and what a nominal one states is no speed.
            (link(0.0, 0, 8.0, 4), None),
            (Link { is_nominal: true, ..link(2.5, 1, 8.0, 4) }, None),
        ] {
            assert_eq!(below.possible(&port), better, "{below:?}");
        }
    }
}
