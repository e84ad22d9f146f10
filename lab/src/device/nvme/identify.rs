//! What Identify and Get Log Page return. NVM Express Base Specification 1.4, sections 5.15.2 and 5.14.1.

use super::ledger::{Kind, Ledger};
use super::{BLOCK_BYTES, IO_QUEUES, SUBSYSTEM_VENDOR, VENDOR, VERSION};

/// Bytes of every structure of Identify.
pub(super) const IDENTIFY_BYTES: usize = 4096;
/// Largest transfer of a command, as log2 of pages: 2 MiB.
pub(super) const MDTS: u8 = 9;
/// Asynchronous Event Request commands that are held, less 1.
pub(super) const AERL: u8 = 3;
/// Entries of the error log, less 1. It is always empty.
const ELPE: u8 = 0;
/// Kelvin at which the disk says it is hot, and too hot.
const WARNING_KELVIN: u16 = 343;
const CRITICAL_KELVIN: u16 = 353;
const TEMPERATURE_KELVIN: u16 = 310;

/// Namespace Identification Descriptor types (figure 245).
const NIDT_EUI64: u8 = 1;
const NIDT_NGUID: u8 = 2;

/// A structure that is filled in by offset.
struct Page(Vec<u8>);

impl Page {
    fn new(len: usize) -> Self {
        Page(vec![0; len])
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Text, padded with spaces to `len`.
    fn text(&mut self, at: usize, len: usize, text: &str) {
        self.0[at..at + len].fill(b' ');
        self.put(at, &text.as_bytes()[..text.len().min(len)]);
    }
}

/// Which disk it is: several in a guest must not look like one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) serial: u32,
    pub(super) blocks: u64,
}

impl Who {
    pub(super) fn serial_number(self) -> String {
        format!("PCIESCOPE{:08}", self.serial)
    }

    /// EUI-64 and NGUID are of the locally administered kind.
    fn eui64(self) -> [u8; 8] {
        (0x025c_1000_0000_0000 | u64::from(self.serial)).to_be_bytes()
    }

    fn nguid(self) -> [u8; 16] {
        let mut nguid = [0; 16];
        nguid[..4].copy_from_slice(b"PSLD");
        nguid[8..].copy_from_slice(&self.eui64());
        nguid
    }

    /// Identify Controller (figure 247).
    pub(super) fn controller(self) -> Vec<u8> {
        let mut page = Page::new(IDENTIFY_BYTES);
        page.put(0, &VENDOR.to_le_bytes());
        page.put(2, &SUBSYSTEM_VENDOR.to_le_bytes());
        page.text(4, 20, &self.serial_number());
        page.text(24, 40, "pciescope lab NVMe disk");
        page.text(64, 8, "1");
        page.put(77, &[MDTS]);
        page.put(80, &VERSION.to_le_bytes());
        // CNTRLTYPE: an I/O controller.
        page.put(111, &[1]);
        // ACL: abort commands at a time, less 1.
        page.put(258, &[3]);
        page.put(259, &[AERL]);
        // FRMW: one slot for firmware, read-only.
        page.put(260, &[1 << 1 | 1]);
        // LPA: the log of command effects, and offsets into logs.
        page.put(261, &[1 << 1 | 1 << 2]);
        page.put(262, &[ELPE]);
        page.put(266, &WARNING_KELVIN.to_le_bytes());
        page.put(268, &CRITICAL_KELVIN.to_le_bytes());
        page.put(512, &[0x66, 0x44]);
        page.put(516, &1u32.to_le_bytes());
        // ONCS: Write Zeroes.
        page.put(520, &(1u16 << 3).to_le_bytes());
        // VWC: there is a cache to flush, of all namespaces too.
        page.put(525, &[0b111]);
        let name = format!("nqn.2014.org.nvmexpress:uuid:5c100000-0000-4000-8000-{:012x}", self.serial);
        page.put(768, name.as_bytes());
        // PSD0: 25 W at most.
        page.put(2048, &2500u16.to_le_bytes());
        page.0
    }

    /// Identify Namespace (figure 245).
    pub(super) fn namespace(self) -> Vec<u8> {
        let mut page = Page::new(IDENTIFY_BYTES);
        [0, 8, 16].into_iter().for_each(|at| page.put(at, &self.blocks.to_le_bytes()));
        page.put(104, &self.nguid());
        page.put(120, &self.eui64());
        // LBAF0: no metadata, blocks of 512 bytes.
        page.put(128, &(BLOCK_BYTES.trailing_zeros() << 16).to_le_bytes());
        page.0
    }

    /// Namespace Identification Descriptor list (figure 249).
    pub(super) fn descriptors(self) -> Vec<u8> {
        let mut page = Page::new(IDENTIFY_BYTES);
        page.put(0, &[NIDT_EUI64, 8]);
        page.put(4, &self.eui64());
        page.put(12, &[NIDT_NGUID, 16]);
        page.put(16, &self.nguid());
        page.0
    }
}

/// Active namespace ID list: those above `after`. There is one namespace.
pub(super) fn namespaces(after: u32) -> Vec<u8> {
    let mut page = Page::new(IDENTIFY_BYTES);
    if after == 0 {
        page.put(0, &1u32.to_le_bytes());
    }
    page.0
}

/// A log page, if there is one of this identifier.
pub(super) fn log_page(id: u8, ledger: &Ledger) -> Option<Vec<u8>> {
    match id {
        0x01 => Some(vec![0; 64 * (usize::from(ELPE) + 1)]),
        0x02 => Some(health(ledger)),
        0x03 => {
            let mut page = Page::new(512);
            page.put(0, &[1]);
            page.text(8, 8, "1");
            Some(page.0)
        }
        0x05 => Some(effects()),
        _ => None,
    }
}

/// SMART / Health Information (figure 196).
fn health(ledger: &Ledger) -> Vec<u8> {
    let mut page = Page::new(512);
    let thousands = |bytes: u64| u128::from(bytes.div_ceil(512_000)).to_le_bytes();
    page.put(1, &TEMPERATURE_KELVIN.to_le_bytes());
    page.put(3, &[100, 10]);
    page.put(32, &thousands(ledger.data_read_bytes));
    page.put(48, &thousands(ledger.data_written_bytes));
    page.put(64, &u128::from(ledger.commands_of(Kind::Read)).to_le_bytes());
    page.put(80, &u128::from(ledger.commands_of(Kind::Write)).to_le_bytes());
    page.put(160, &u128::from(ledger.media_errors).to_le_bytes());
    page.0
}

/// Commands Supported and Effects (figure 202): which commands are served, and which change the medium.
fn effects() -> Vec<u8> {
    const SUPPORTED: u32 = 1;
    const CHANGES_CONTENT: u32 = 1 << 1;
    let mut page = Page::new(4096);
    for opcode in [0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c] {
        page.put(4 * opcode, &SUPPORTED.to_le_bytes());
    }
    for (opcode, effect) in [(0x00, 0), (0x01, CHANGES_CONTENT), (0x02, 0), (0x08, CHANGES_CONTENT)] {
        page.put(1024 + 4 * opcode, &(SUPPORTED | effect).to_le_bytes());
    }
    page.0
}

/// Result of the feature Number of Queues, whatever is asked for.
pub(super) fn queue_counts() -> u32 {
    u32::from(IO_QUEUES - 1) << 16 | u32::from(IO_QUEUES - 1)
}
