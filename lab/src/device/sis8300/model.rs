//! Which boards there are, and what tells them apart.

use crate::device::config::Link;

pciescope_core::named! {
    /// Which board it is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Model {
        /// The first one, with a Virtex-5.
        Sis8300 => "SIS8300",
        /// SIS8300-L.
        L => "SIS8300L",
        /// SIS8300-L2.
        L2 => "SIS8300L2",
        /// SIS8300-KU.
        Ku => "SIS8300KU",
    }
    /// The name that people use.
    fn name
}

impl Model {
    /// The device number; L and L2 share theirs.
    pub fn device(self) -> u16 {
        match self {
            Model::Sis8300 => 0x0018,
            Model::L | Model::L2 => 0x0019,
            Model::Ku => 0x0024,
        }
    }

    pub(super) fn class(self) -> u32 {
        match self {
            Model::Sis8300 => 0x07_8000,
            Model::L | Model::L2 => 0xff_0000,
            Model::Ku => 0x07_0000,
        }
    }

    /// Register 0x00: board, firmware version and revision.
    pub fn module_id(self) -> u32 {
        match self {
            Model::Sis8300 => 0x8300_1400,
            Model::L => 0x8301_1002,
            Model::L2 => 0x8302_1809,
            Model::Ku => 0x8303_1001,
        }
    }

    /// Register 0x05.
    pub(super) fn options(self) -> u32 {
        match self {
            Model::Sis8300 => 0x0000_0102,
            Model::L | Model::L2 => 0xc109_0152,
            Model::Ku => 0x0000_0052,
        }
    }

    /// The link of a real one: four lanes of Gen1, or of Gen3 for the KU; payloads of up to 256 bytes.
    pub fn link(self) -> Link {
        let generation = if self == Model::Ku { 3 } else { 1 };
        Link { generation, width: 4, max_generation: generation, max_width: 4, max_payload: 1 }
    }
}
