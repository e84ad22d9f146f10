//! Configuration space as sysfs hands it out, and what its capabilities say.

use pciescope_core::{Bdf, Location};

use crate::Root;
use crate::pci::folder;

const HEADER_LEN: usize = 64;
const STATUS: usize = 0x06;
const STATUS_CAP_LIST: u16 = 1 << 4;
const CAPABILITY_LIST: usize = 0x34;
const CAP_MSI: u8 = 0x05;
const CAP_VENDOR: u8 = 0x09;
const CAP_PCIE: u8 = 0x10;
const CAP_MSIX: u8 = 0x11;

// struct virtio_pci_cap, virtio 1.2, 4.1.4.
const VIRTIO_CFG_TYPE: usize = 3;
const VIRTIO_BAR: usize = 4;
const VIRTIO_OFFSET: usize = 8;
const VIRTIO_LENGTH: usize = 12;
const VIRTIO_PCI_CAP_COMMON_CFG: u8 = 1;

/// ASPM states that are switched on in a Link Control register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aspm {
    /// L0s.
    pub l0s: bool,
    /// L1.
    pub l1: bool,
}

/// A part of a BAR that belongs to MSI-X: the table, or the pending bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MsixPart {
    /// Where it begins.
    pub at: Location,
    /// How long it is.
    pub bytes: u64,
}

/// The bytes of a function's configuration space that could be read.
#[derive(Debug, Clone, Default)]
pub struct Config {
    bytes: Vec<u8>,
    /// How the function slept, so that nobody could answer; `None` for one that was awake.
    sleep: Option<&'static str>,
}

impl Config {
    /// The file `config` of a function; empty where it cannot be read.
    pub fn load(root: &Root, bdf: Bdf) -> Config {
        let bytes = std::fs::read(root.path(folder(bdf).join("config"))).unwrap_or_default();
        // After the bytes: the kernel wakes a device for them where it can.
        let is = |file: &str, state: &str| root.text(folder(bdf).join(file)).is_some_and(|text| text == state);
        let sleep =
            [("power_state", "D3cold", "in D3cold"), ("power/runtime_status", "suspended", "while nobody uses it")];
        let sleep = sleep.into_iter().find(|(file, state, _)| is(file, state)).map(|(.., words)| words);
        Config { bytes, sleep }
    }

    /// Takes bytes that were read elsewhere.
    pub fn parse(bytes: &[u8]) -> Config {
        Config { bytes: bytes.to_vec(), sleep: None }
    }

    /// Why the capabilities are not known; `None` where they are.
    pub fn limit(&self) -> Option<String> {
        match self.bytes.len() {
            0 => Some("configuration space cannot be read".to_owned()),
            _ if self.is_asleep() => {
                Some(format!("configuration space reads as all-ones: it sleeps {}", self.sleep.unwrap_or_default()))
            }
            1..=64 => Some("only the first 64 bytes of configuration space can be read without root".to_owned()),
            _ if self.is_gone() => Some("configuration space reads as all-ones: removed or powered down".to_owned()),
            _ => None,
        }
    }

    /// Whether nothing of it could be read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether more than the 256 bytes of conventional PCI could be read.
    pub fn has_extended(&self) -> bool {
        self.bytes.len() > 256
    }

    /// Whether the function answers with all-ones, as after a surprise removal. Its IDs alone do not say so: those of
    /// every virtual function read FFFFh (PCIe, SR-IOV).
    pub fn is_gone(&self) -> bool {
        !self.is_empty() && self.bytes.iter().take(HEADER_LEN).all(|&byte| byte == 0xff)
    }

    /// Whether it answers with all-ones because it sleeps.
    pub fn is_asleep(&self) -> bool {
        self.sleep.is_some() && self.is_gone()
    }

    /// Why the function does not answer, in a word or two; `None` where it does, and where that cannot be read.
    pub fn silence(&self) -> Option<&'static str> {
        self.is_gone().then(|| if self.is_asleep() { "asleep" } else { "no answer" })
    }

    /// MSI-X vectors that the function has; 0 where it has none or is not known.
    pub fn msix_vectors(&self) -> u16 {
        self.capability(CAP_MSIX).and_then(|at| self.word(at + 2)).map_or(0, |control| (control & 0x7ff) + 1)
    }

    /// Where the MSI-X table and its pending bits lie; nothing where the function has none or is not known.
    pub fn msix_parts(&self) -> impl Iterator<Item = MsixPart> + '_ {
        let vectors = u64::from(self.msix_vectors());
        // Bits of the table and of the pending bits for each vector. Both are rows of 8 bytes.
        self.capability(CAP_MSIX).into_iter().flat_map(move |capability| {
            [(4, 128), (8, 1)].into_iter().filter_map(move |(register, bits)| {
                let place = self.long(capability + register)?;
                let at = Location { bar: (place & 7) as u8, offset: u64::from(place & !7) };
                Some(MsixPart { at, bytes: (vectors * bits).next_multiple_of(64) / 8 })
            })
        })
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

    /// Where a virtio device has its common configuration, which must be `len` bytes long at least; `None` where it is
    /// not said. Only of use for a function that is known to be virtio: the capability is every vendor's own.
    pub fn virtio_common(&self, len: u32) -> Option<Location> {
        let common = self.capabilities().filter(|&(id, _)| id == CAP_VENDOR).find_map(|(_, at)| {
            let is_common = *self.bytes.get(at + VIRTIO_CFG_TYPE)? == VIRTIO_PCI_CAP_COMMON_CFG;
            // A device may offer several; the driver takes the first it can use. Values above 5 are reserved.
            let bar = *self.bytes.get(at + VIRTIO_BAR)?;
            (is_common && bar <= 5 && self.long(at + VIRTIO_LENGTH)? >= len).then_some((bar, at))
        });
        let (bar, at) = common?;
        Some(Location { bar, offset: u64::from(self.long(at + VIRTIO_OFFSET)?) })
    }

    fn device_control(&self) -> Option<u16> {
        self.capability(CAP_PCIE).and_then(|at| self.word(at + 8))
    }

    /// Two bytes at an offset; `None` past what could be read.
    pub(crate) fn word(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes([*self.bytes.get(at)?, *self.bytes.get(at + 1)?]))
    }

    /// Four bytes at an offset; `None` past what could be read.
    pub(crate) fn long(&self, at: usize) -> Option<u32> {
        Some(u32::from(self.word(at)?) | u32::from(self.word(at + 2)?) << 16)
    }

    /// The place of the first capability of a kind.
    pub(crate) fn capability(&self, id: u8) -> Option<usize> {
        self.capabilities().find(|capability| capability.0 == id).map(|capability| capability.1)
    }

    /// The capabilities and their places. The list is the device's word: it may point anywhere and run in a circle.
    fn capabilities(&self) -> impl Iterator<Item = (u8, usize)> + '_ {
        let has_list = !self.is_gone() && self.word(STATUS).is_some_and(|status| status & STATUS_CAP_LIST != 0);
        let place = |at: usize| Some(usize::from(self.bytes.get(at)? & 0xfc)).filter(|&at| at >= 0x40);
        let first = if has_list { place(CAPABILITY_LIST) } else { None };
        std::iter::successors(first, move |&at| place(at + 1)).take(48).map_while(|at| Some((*self.bytes.get(at)?, at)))
    }
}

/// The coding of payload sizes: 128 bytes times two to the power of the field; 6 and 7 are reserved.
fn size(field: u16) -> Option<u16> {
    let exponent = field & 7;
    (exponent <= 5).then(|| 128 << exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header whose list runs 0x40 (MSI, 8 vectors), 0x60 (PCI Express), 0x90 (MSI-X, 64 vectors).
    fn endpoint() -> Vec<u8> {
        let mut bytes = vec![0; 256];
        bytes[0..4].copy_from_slice(&[0x86, 0x80, 0xd3, 0x10]);
        bytes[STATUS] = 0x10;
        bytes[CAPABILITY_LIST] = 0x40;
        bytes[0x40..0x44].copy_from_slice(&[CAP_MSI, 0x60, 3 << 1, 0]);
        bytes[0x60..0x62].copy_from_slice(&[CAP_PCIE, 0x90]);
        // Device Control: MPS 256 (1), MRRS 4096 (5); Link Control: L1.
        bytes[0x68..0x6a].copy_from_slice(&(1u16 << 5 | 5 << 12).to_le_bytes());
        bytes[0x70] = 2;
        bytes[0x90..0x94].copy_from_slice(&[CAP_MSIX, 0, 63, 0x80]);
        bytes
    }

    #[test]
    fn reads_vectors_payload_sizes_and_aspm() {
        let config = Config::parse(&endpoint());
        assert_eq!((config.msi_vectors(), config.msix_vectors()), (8, 64));
        assert_eq!((config.mps_bytes(), config.mrrs_bytes()), (Some(256), Some(4096)));
        assert_eq!(config.aspm(), Some(Aspm { l0s: false, l1: true }));
        assert_eq!(config.limit(), None);
    }

    #[test]
    fn finds_the_table_of_msix_and_its_pending_bits() {
        let mut bytes = endpoint();
        bytes[0x94..0x98].copy_from_slice(&0x0000_2003u32.to_le_bytes());
        bytes[0x98..0x9c].copy_from_slice(&0x0000_3801u32.to_le_bytes());
        let part = |bar, offset, bytes| MsixPart { at: Location { bar, offset }, bytes };
        let parts = |bytes: &[u8]| Config::parse(bytes).msix_parts().collect::<Vec<_>>();
        assert_eq!(parts(&bytes), [part(3, 0x2000, 64 * 16), part(1, 0x3800, 8)]);
        // One vector has a whole row of pending bits, 65 have two.
        bytes[0x92] = 0;
        assert_eq!(parts(&bytes), [part(3, 0x2000, 16), part(1, 0x3800, 8)]);
        bytes[0x92] = 64;
        assert_eq!(parts(&bytes), [part(3, 0x2000, 65 * 16), part(1, 0x3800, 16)]);
        // Where configuration space ends too early, or there is none.
        assert_eq!(parts(&bytes[..0x9a]), [part(3, 0x2000, 65 * 16)]);
        assert_eq!(parts(&bytes[..64]), []);
        assert_eq!(parts(&[]), []);
    }

    /// A virtio device as QEMU lays it out: the notify area first, then a common configuration that is too short, one
    /// in a reserved BAR, and the real one.
    pub(crate) fn virtio() -> Vec<u8> {
        let mut bytes = vec![0; 256];
        bytes[0..4].copy_from_slice(&[0xf4, 0x1a, 0x41, 0x10]);
        bytes[STATUS] = 0x10;
        bytes[CAPABILITY_LIST] = 0x40;
        for (at, next, cfg_type, bar, offset, length) in [
            (0x40_usize, 0x50, 2, 4, 0x3000_u32, 0x1000_u32),
            (0x50, 0x60, 1, 4, 0x100, 0x10),
            (0x60, 0x70, 1, 7, 0x200, 0x38),
            (0x70, 0, 1, 4, 0x1_1000, 0x38),
        ] {
            bytes[at..at + 5].copy_from_slice(&[CAP_VENDOR, next, 16, cfg_type, bar]);
            bytes[at + VIRTIO_OFFSET..at + VIRTIO_OFFSET + 4].copy_from_slice(&offset.to_le_bytes());
            bytes[at + VIRTIO_LENGTH..at + VIRTIO_LENGTH + 4].copy_from_slice(&length.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn finds_the_common_configuration_of_virtio() {
        let whole = virtio();
        assert_eq!(Config::parse(&whole).virtio_common(0x14), Some(Location { bar: 4, offset: 0x1_1000 }));
        assert_eq!(Config::parse(&whole).virtio_common(0x39), None);
        // Not to the end of the capability, nor to the list, nor where there is none.
        assert_eq!(Config::parse(&whole[..0x7e]).virtio_common(0x14), None);
        assert_eq!(Config::parse(&whole[..64]).virtio_common(0x14), None);
        assert_eq!(Config::parse(&endpoint()).virtio_common(0x14), None);
    }

    #[test]
    fn says_why_it_knows_nothing() {
        let short = Config::parse(&endpoint()[..64]);
        assert_eq!((short.msi_vectors(), short.msix_vectors(), short.mps_bytes()), (0, 0, None));
        assert!(short.limit().unwrap().contains("64 bytes"));
        assert!(Config::default().limit().unwrap().contains("cannot be read"));
        let gone = Config::parse(&[0xff; 256]);
        assert_eq!((gone.msi_vectors(), gone.msix_vectors(), gone.aspm()), (0, 0, None));
        assert!(gone.limit().unwrap().contains("all-ones"));
    }

    #[test]
    fn a_virtual_function_answers_though_its_ids_read_all_ones() {
        let mut bytes = endpoint();
        bytes[..4].fill(0xff);
        let config = Config::parse(&bytes);
        assert_eq!((config.is_gone(), config.limit(), config.msix_vectors()), (false, None, 64));
        assert!(Config::parse(&[0xff; 4]).is_gone() && !Config::default().is_gone());
    }

    #[test]
    fn a_list_that_lies_ends() {
        let mut circle = endpoint();
        circle[0x41] = 0x40;
        assert_eq!(Config::parse(&circle).msix_vectors(), 0);
        let mut outside = endpoint();
        outside.truncate(0x92);
        assert_eq!(Config::parse(&outside).msix_vectors(), 0);
        let mut header = endpoint();
        header[CAPABILITY_LIST] = 0x10;
        assert_eq!(Config::parse(&header).msi_vectors(), 0);
        let mut reserved = endpoint();
        reserved[0x42] = 7 << 1;
        reserved[0x69] = 0x70;
        assert_eq!((Config::parse(&reserved).msi_vectors(), Config::parse(&reserved).mrrs_bytes()), (0, None));
    }
}
