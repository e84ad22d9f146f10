//! The list of capabilities by which the block is found.

use super::Shape;

const EXT_DATA_LINK_FEATURE: u32 = 0x0025;
pub(super) const EXT_VENDOR: u32 = 0x000b;
/// VSEC ID of the block.
const VSEC_ID: u16 = 0x0002;
/// VSEC revision of the block.
const VSEC_REV: u8 = 4;
/// Where the vendor-specific capability that is not ours lies, from the overlay's first byte.
pub(super) const FOREIGN_AT: usize = 0x20;
const FOREIGN_ID: u32 = 0x0001;
pub(super) const FOREIGN_BYTES: u32 = 0x18;
const EXT_CONTAINMENT: u32 = 0x001d;
/// Where Downstream Port Containment lies, from the overlay's first byte, and its status from there (7.9.14.4).
const CONTAINMENT_AT: usize = 0x10;
const CONTAINMENT_STATUS: usize = CONTAINMENT_AT + 8;

/// What the list of capabilities looks like.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) id: u16,
    pub(super) rev: u8,
    pub(super) has_foreign_first: bool,
    pub(super) is_looped: bool,
    /// DPC Status; `None` without that capability.
    pub(super) containment: Option<u16>,
}

impl Default for List {
    fn default() -> Self {
        List { id: VSEC_ID, rev: VSEC_REV, has_foreign_first: false, is_looped: false, containment: None }
    }
}

impl List {
    /// A register of the capabilities before the block, by its offset in the overlay.
    pub(super) fn read(&self, shape: &Shape, offset: usize) -> u32 {
        let after_first = if self.has_foreign_first { shape.first + FOREIGN_AT as u16 } else { shape.vsec };
        let containment_at = shape.first + CONTAINMENT_AT as u16;
        match (offset, self.containment) {
            (0, None) => EXT_DATA_LINK_FEATURE | 1 << 16 | u32::from(after_first) << 20,
            (0, Some(_)) => EXT_DATA_LINK_FEATURE | 1 << 16 | u32::from(containment_at) << 20,
            (CONTAINMENT_AT, Some(_)) => EXT_CONTAINMENT | 1 << 16 | u32::from(after_first) << 20,
            (CONTAINMENT_STATUS, Some(status)) => status.into(),
            (FOREIGN_AT, _) if self.has_foreign_first => EXT_VENDOR | 1 << 16 | u32::from(shape.vsec) << 20,
            _ if self.has_foreign_first && offset == FOREIGN_AT + 4 => {
                FOREIGN_ID | u32::from(VSEC_REV) << 16 | FOREIGN_BYTES << 20
            }
            _ => 0,
        }
    }
}
