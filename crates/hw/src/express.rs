//! Configuration space by the names of its registers: PCI Express Base Specification 6.0, chapter 7.

use crate::config::Config;

const CAP_PCIE: u8 = 0x10;

/// Extended capability: Access Control Services (7.7.11).
pub const EXT_ACS: u16 = 0x000d;
/// Extended capability: Advanced Error Reporting (7.8.4).
pub const EXT_AER: u16 = 0x0001;
/// Extended capability: Resizable BAR (7.8.6).
pub const EXT_RESIZABLE_BAR: u16 = 0x0015;
/// Extended capability: one of the vendor's own (7.9.5).
pub const EXT_VENDOR: u16 = 0x000b;
/// Extended capability: Alternative Routing-ID Interpretation (7.8.8).
pub const EXT_ARI: u16 = 0x000e;

/// The offset of an extended capability.
pub fn extended(config: &Config, id: u16) -> Option<usize> {
    extended_all(config).find(|(own, _)| *own == id).map(|(_, at)| at)
}

/// The extended capabilities and their offsets. The list is the device's word: it may point anywhere and run in a circle.
pub fn extended_all(config: &Config) -> impl Iterator<Item = (u16, usize)> + '_ {
    let header = |at: usize| config.long(at).filter(|header| !matches!(*header, 0 | u32::MAX));
    let next = move |at: &usize| Some((header(*at)? >> 20) as usize & 0xffc).filter(|at| *at >= 0x100);
    // Each has 8 bytes at least.
    let places = std::iter::successors(Some(0x100), next).take((4096 - 256) / 8);
    places.map_while(move |at| Some((header(at)? as u16, at)))
}

/// What a PCI Express function is (7.5.3.2, Device/Port Type).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortType {
    /// An endpoint, or one integrated into the root complex.
    Endpoint,
    /// A root port.
    RootPort,
    /// The port of a switch that leads up.
    Upstream,
    /// A port of a switch that leads down.
    Downstream,
    /// A bridge to or from conventional PCI, or an event collector.
    Other,
}

/// The PCI Express capability of a function (7.5.3).
#[derive(Clone, Copy)]
pub struct Express<'a> {
    config: &'a Config,
    /// Its offset.
    pub at: usize,
}

impl<'a> Express<'a> {
    /// The capability; `None` where there is none or it cannot be read.
    pub fn of(config: &'a Config) -> Option<Self> {
        Some(Express { config, at: config.capability(CAP_PCIE)? })
    }

    /// The function's kind.
    pub fn kind(&self) -> PortType {
        match self.word(0x02) >> 4 & 0xf {
            0 | 1 | 9 => PortType::Endpoint,
            4 => PortType::RootPort,
            5 => PortType::Upstream,
            6 => PortType::Downstream,
            _ => PortType::Other,
        }
    }

    /// Whether its link leads down, from a root port or a downstream port.
    pub fn leads_down(&self) -> bool {
        matches!(self.kind(), PortType::RootPort | PortType::Downstream)
    }

    /// The capability's version; from 2 on it has the second set of registers.
    fn version(&self) -> u16 {
        self.word(0x02) & 0xf
    }

    /// Device Capabilities.
    pub fn device_capabilities(&self) -> u32 {
        self.long(0x04)
    }
    /// Device Control.
    pub fn device_control(&self) -> u16 {
        self.word(0x08)
    }
    /// Device Status.
    pub fn device_status(&self) -> u16 {
        self.word(0x0a)
    }
    /// Link Control.
    pub fn link_control(&self) -> u16 {
        self.word(0x10)
    }
    /// Link Capabilities.
    pub fn link_capabilities(&self) -> u32 {
        self.long(0x0c)
    }
    /// Whether the data link layer is up (7.5.3.6, 7.5.3.8); `None` for a port that does not report it.
    pub fn is_data_link_active(&self) -> Option<bool> {
        (self.link_capabilities() & 1 << 20 != 0).then(|| self.link_status() & 1 << 13 != 0)
    }
    /// Whether a device may be plugged in below while the machine runs (7.5.3.2, 7.5.3.9).
    pub fn is_hot_plug(&self) -> bool {
        self.has_slot() && self.long(0x14) & 1 << 6 != 0
    }
    /// Whether the port leads to a slot (7.5.3.2).
    pub fn has_slot(&self) -> bool {
        self.word(0x02) & 1 << 8 != 0
    }
    /// Link Status.
    pub fn link_status(&self) -> u16 {
        self.word(0x12)
    }
    /// Device Capabilities 2; `None` in a capability of version 1.
    pub fn device_capabilities_2(&self) -> Option<u32> {
        (self.version() >= 2).then(|| self.long(0x24))
    }
    /// Device Control 2; `None` in a capability of version 1.
    pub fn device_control_2(&self) -> Option<u16> {
        (self.version() >= 2).then(|| self.word(0x28))
    }
    /// Link Control 2; `None` in a capability of version 1.
    pub fn link_control_2(&self) -> Option<u16> {
        (self.version() >= 2).then(|| self.word(0x30))
    }

    /// The largest payload that it can take, in bytes; `None` for a reserved code.
    pub fn payload_most(&self) -> Option<u16> {
        let code = self.device_capabilities() & 7;
        (code <= 5).then(|| 128 << code)
    }

    /// Largest payload that may come this way, in bytes: 128 at a switch port where something may be plugged in that takes no more,
    /// as Linux counts it (pcie_find_smpss).
    pub fn payload_passed(&self) -> Option<u16> {
        let is_open = self.kind() == PortType::Downstream && self.is_hot_plug();
        if is_open { Some(128) } else { self.payload_most() }
    }

    fn word(&self, offset: usize) -> u16 {
        self.config.word(self.at + offset).unwrap_or(0)
    }
    fn long(&self, offset: usize) -> u32 {
        self.config.long(self.at + offset).unwrap_or(0)
    }
}
