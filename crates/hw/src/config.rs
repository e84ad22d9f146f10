//! Configuration space as sysfs hands it out, and what its capabilities say.

use pciescope_core::Bdf;

use crate::Root;
use crate::pci::folder;

const STATUS: usize = 0x06;
const STATUS_CAP_LIST: u16 = 1 << 4;
const CAPABILITY_LIST: usize = 0x34;
const CAP_MSI: u8 = 0x05;
const CAP_PCIE: u8 = 0x10;
const CAP_MSIX: u8 = 0x11;

/// ASPM states that are switched on in a Link Control register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aspm {
    /// L0s.
    pub l0s: bool,
    /// L1.
    pub l1: bool,
}

/// The bytes of a function's configuration space that could be read.
#[derive(Debug, Clone, Default)]
pub struct Config {
    bytes: Vec<u8>,
}

impl Config {
    /// The file `config` of a function; empty where it cannot be read.
    pub fn load(root: &Root, bdf: Bdf) -> Config {
        Config { bytes: std::fs::read(root.path(folder(bdf).join("config"))).unwrap_or_default() }
    }

    /// Takes bytes that were read elsewhere.
    pub fn parse(bytes: &[u8]) -> Config {
        Config { bytes: bytes.to_vec() }
    }

    /// Why the capabilities are not known; `None` where they are.
    pub fn limit(&self) -> Option<String> {
        match self.bytes.len() {
            0 => Some("configuration space cannot be read".to_owned()),
            1..=64 => Some("only the first 64 bytes of configuration space can be read without root".to_owned()),
            _ if self.is_gone() => Some("configuration space reads as all-ones: removed or powered down".to_owned()),
            _ => None,
        }
    }

    /// Whether the function answers with all-ones, as after a surprise removal.
    pub fn is_gone(&self) -> bool {
        self.bytes.len() >= 4 && self.bytes[..4] == [0xff; 4]
    }

    /// MSI-X vectors that the function has; 0 where it has none or is not known.
    pub fn msix_vectors(&self) -> u16 {
        self.capability(CAP_MSIX).and_then(|at| self.word(at + 2)).map_or(0, |control| (control & 0x7ff) + 1)
    }

    /// MSI vectors that the function asks for; 0 where it has none or is not known.
    pub fn msi_vectors(&self) -> u16 {
        // Multiple Message Capable is an exponent; 6 and 7 are reserved.
        let exponent = self.capability(CAP_MSI).and_then(|at| self.word(at + 2)).map(|control| control >> 1 & 7);
        exponent.filter(|exponent| *exponent <= 5).map_or(0, |exponent| 1 << exponent)
    }

    /// Maximum payload size in force, in bytes.
    pub fn mps_bytes(&self) -> Option<u16> {
        self.device_control().and_then(|control| size(control >> 5))
    }

    /// Maximum read request size in force, in bytes.
    pub fn mrrs_bytes(&self) -> Option<u16> {
        self.device_control().and_then(|control| size(control >> 12))
    }

    /// The ASPM states that this end of its link has switched on.
    pub fn aspm(&self) -> Option<Aspm> {
        let control = self.capability(CAP_PCIE).and_then(|at| self.word(at + 0x10))?;
        Some(Aspm { l0s: control & 1 != 0, l1: control & 2 != 0 })
    }

    fn device_control(&self) -> Option<u16> {
        self.capability(CAP_PCIE).and_then(|at| self.word(at + 8))
    }

    fn word(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes([*self.bytes.get(at)?, *self.bytes.get(at + 1)?]))
    }

    /// The place of a capability. The list is the device's word: it may point anywhere and run in a circle.
    fn capability(&self, id: u8) -> Option<usize> {
        if self.is_gone() || self.word(STATUS)? & STATUS_CAP_LIST == 0 {
            return None;
        }
        let mut at = usize::from(self.bytes.get(CAPABILITY_LIST)? & 0xfc);
        for _ in 0..48 {
            if at < 0x40 {
                return None;
            }
            if *self.bytes.get(at)? == id {
                return Some(at);
            }
            at = usize::from(self.bytes.get(at + 1)? & 0xfc);
        }
        None
    }
}

/// The coding of payload sizes: 128 bytes times two to the power of the field; 6 and 7 are reserved.
fn size(field: u16) -> Option<u16> {
    let exponent = field & 7;
    (exponent <= 5).then(|| 128 << exponent)
}
