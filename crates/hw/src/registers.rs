//! Registers that can be read at full rate without side effects: the default targets.
//!
//! Reading an arbitrary register can clear an interrupt cause, pop a FIFO or wait for a completion that never
//! comes, so an unknown device has no default: the user must name an offset and accept the side effects.

use pciescope_core::{BarOffset, Function};
use serde::Serialize;

/// How a table entry finds its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// These device IDs of this vendor.
    Ids(u16, &'static [u16]),
    /// Every function of this vendor with this base class.
    Vendor(u16, u8),
    /// Every virtio device with a modern interface: the offset counts from its common configuration, wherever that
    /// lies, and the BAR stands in its capability.
    Virtio,
    /// Every function of this class code (24 bits): the register is part of the class's standard.
    Class(u32),
}

/// A register that is safe to read again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SafeRegister {
    /// Which functions have it.
    #[serde(skip)]
    pub matches: Match,
    /// What it is, in words.
    pub name: &'static str,
    /// BAR number; [`safe_target`] puts it in for [`Match::Virtio`].
    pub bar: u8,
    /// Byte offset in the BAR, or for [`Match::Virtio`] in the table in its structure.
    pub offset: u64,
    /// Access width in bytes.
    pub width: u8,
    /// Mask and value: `read & mask == value` on a device that is what it says; `None` where nothing is fixed.
    #[serde(skip)]
    pub expect: Option<(u64, u64)>,
    /// Where the register's harmlessness is stated.
    pub source: &'static str,
    /// Whether the entry was checked against its source. An unchecked entry is only proposed, never used.
    pub verified: bool,
}

impl SafeRegister {
    /// Where it is.
    pub fn in_bar(&self) -> BarOffset {
        BarOffset { bar: self.bar, offset: self.offset }
    }
}

impl SafeRegister {
    /// Whether a value read from the register is what the device should answer.
    pub fn is_expected(&self, value: u64) -> bool {
        self.expect.is_none_or(|(mask, expected)| value & mask == expected)
    }
}

const INTEL: u16 = 0x8086;

// The lists are those of the drivers' own tables (Linux 6.12).

/// e1000 and e1000e: 82542 to 82547, 82571 to 82583, I217 to I219.
const E1000: &[u16] = &[
    0x0d4c, 0x0d4d, 0x0d4e, 0x0d4f, 0x0d53, 0x0d55, 0x0dc5, 0x0dc6, 0x0dc7, 0x0dc8, 0x1000, 0x1001, 0x1004, 0x1008,
    0x1009, 0x100c, 0x100d, 0x100e, 0x100f, 0x1010, 0x1011, 0x1012, 0x1013, 0x1014, 0x1015, 0x1016, 0x1017, 0x1018,
    0x1019, 0x101a, 0x101d, 0x101e, 0x1026, 0x1027, 0x1028, 0x1049, 0x104a, 0x104b, 0x104c, 0x104d, 0x105e, 0x105f,
    0x1060, 0x1075, 0x1076, 0x1077, 0x1078, 0x1079, 0x107a, 0x107b, 0x107c, 0x107d, 0x107e, 0x107f, 0x108a, 0x108b,
    0x108c, 0x1096, 0x1098, 0x1099, 0x109a, 0x10a4, 0x10a5, 0x10b5, 0x10b9, 0x10ba, 0x10bb, 0x10bc, 0x10bd, 0x10bf,
    0x10c0, 0x10c2, 0x10c3, 0x10c4, 0x10c5, 0x10cb, 0x10cc, 0x10cd, 0x10ce, 0x10d3, 0x10d5, 0x10d9, 0x10da, 0x10de,
    0x10df, 0x10e5, 0x10ea, 0x10eb, 0x10ef, 0x10f0, 0x10f5, 0x10f6, 0x1501, 0x1502, 0x1503, 0x150c, 0x1525, 0x153a,
    0x153b, 0x1559, 0x155a, 0x156f, 0x1570, 0x15a0, 0x15a1, 0x15a2, 0x15a3, 0x15b7, 0x15b8, 0x15b9, 0x15bb, 0x15bc,
    0x15bd, 0x15be, 0x15d6, 0x15d7, 0x15d8, 0x15df, 0x15e0, 0x15e1, 0x15e2, 0x15e3, 0x15f4, 0x15f5, 0x15f9, 0x15fa,
    0x15fb, 0x15fc, 0x1a1c, 0x1a1d, 0x1a1e, 0x1a1f, 0x294c, 0x2e6e, 0x550a, 0x550b, 0x550c, 0x550d, 0x550e, 0x550f,
    0x5510, 0x5511, 0x57a0, 0x57a1, 0x57b3, 0x57b4, 0x57b5, 0x57b6, 0x57b7, 0x57b8, 0x57b9, 0x57ba,
];
/// igb: 82575, 82576, 82580, i350, i354, i210, i211.
const IGB: &[u16] = &[
    0x0438, 0x043a, 0x043c, 0x0440, 0x10a7, 0x10a9, 0x10c9, 0x10d6, 0x10e6, 0x10e7, 0x10e8, 0x150a, 0x150d, 0x150e,
    0x150f, 0x1510, 0x1511, 0x1516, 0x1518, 0x1521, 0x1522, 0x1523, 0x1524, 0x1526, 0x1527, 0x1533, 0x1536, 0x1537,
    0x1538, 0x1539, 0x157b, 0x157c, 0x1f40, 0x1f41, 0x1f45,
];
/// igc: i225 and i226.
const IGC: &[u16] = &[
    0x0d9f, 0x125b, 0x125c, 0x125d, 0x125e, 0x125f, 0x15f2, 0x15f3, 0x15f7, 0x15f8, 0x3100, 0x3101, 0x3102, 0x5502,
    0x5503,
];
/// ixgbe: 82598, 82599, X540, X550.
const IXGBE: &[u16] = &[
    0x10b6, 0x10c6, 0x10c7, 0x10c8, 0x10db, 0x10dd, 0x10e1, 0x10ec, 0x10f1, 0x10f4, 0x10f7, 0x10f8, 0x10f9, 0x10fb,
    0x10fc, 0x1507, 0x1508, 0x150b, 0x1514, 0x1517, 0x151c, 0x1528, 0x1529, 0x152a, 0x154a, 0x154d, 0x154f, 0x1557,
    0x1558, 0x1560, 0x1563, 0x15aa, 0x15ab, 0x15ac, 0x15ad, 0x15ae, 0x15b0, 0x15c2, 0x15c3, 0x15c4, 0x15c6, 0x15c7,
    0x15c8, 0x15ce, 0x15d1, 0x15e4, 0x15e5,
];

/// i40e: 700 series and X722.
const I40E: &[u16] = &[
    0x0cf8, 0x0d58, 0x101f, 0x104e, 0x104f, 0x1572, 0x1580, 0x1581, 0x1583, 0x1584, 0x1585, 0x1586, 0x1587, 0x1588,
    0x1589, 0x158a, 0x158b, 0x15ff, 0x37ce, 0x37cf, 0x37d0, 0x37d1, 0x37d2, 0x37d3,
];
/// ice: E810, E822 and E823.
const ICE: &[u16] = &[
    0x124c, 0x124d, 0x124e, 0x124f, 0x151d, 0x1591, 0x1592, 0x1593, 0x1599, 0x159a, 0x159b, 0x188a, 0x188b, 0x188c,
    0x188d, 0x188e, 0x1890, 0x1891, 0x1892, 0x1893, 0x1894, 0x1897, 0x1898, 0x1899, 0x189a,
];
/// mlx5: Connect-IB to ConnectX-8 with their virtual functions, BlueField.
const MLX5: &[u16] = &[
    0x1011, 0x1012, 0x1013, 0x1014, 0x1015, 0x1016, 0x1017, 0x1018, 0x1019, 0x101a, 0x101b, 0x101c, 0x101d, 0x101e,
    0x101f, 0x1021, 0x1023, 0xa2d2, 0xa2d3, 0xa2d6, 0xa2dc, 0xa2df,
];
/// r8169: those with PCI Express, whose registers are in BAR 2.
const R8169: &[u16] = &[0x2502, 0x2600, 0x3000, 0x8125, 0x8126, 0x8136, 0x8161, 0x8162, 0x8168];

/// Vendor ID of virtio devices.
const VIRTIO: u16 = 0x1af4;
/// Offset of num_queues in struct virtio_pci_common_cfg (virtio 1.2, 4.1.4.3).
const VIRTIO_NUM_QUEUES: u64 = 0x12;
/// How much of the common configuration must be there, in bytes: up to the end of num_queues.
pub(crate) const VIRTIO_COMMON_LEN: u32 = 0x14;

/// Whether these are the IDs of a virtio device: transitional or modern (virtio 1.2, 4.1.2).
pub fn is_virtio(vendor: u16, device: u16) -> bool {
    vendor == VIRTIO && (0x1000..=0x107f).contains(&device)
}

const DRIVER_FLUSH: &str = "Linux reads STATUS to flush posted writes (drivers/net/ethernet/intel)";

/// What most entries have: 4 bytes at the beginning of BAR 0 that hold no fixed value, checked against the source. Each entry
/// says what it is and what differs.
const ENTRY: SafeRegister = SafeRegister {
    matches: Match::Ids(0, &[]),
    name: "",
    bar: 0,
    offset: 0x0,
    width: 4,
    expect: None,
    source: "",
    verified: true,
};

/// The table; entries by ID stand before those by class and win.
pub const SAFE: &[SafeRegister] = &[
    SafeRegister {
        matches: Match::Ids(0x1234, &[0x5c0e]),
        name: "ID",
        expect: Some((0xffff_ffff, 0x5c0e_1a7e)),
        source: "docs/spec/latency-endpoint.md",
        ..ENTRY
    },
    SafeRegister {
        matches: Match::Ids(0x1234, &[0x11e8]),
        name: "identification",
        // 0xRRrr00ed: major and minor version above.
        expect: Some((0xffff, 0x00ed)),
        source: "QEMU docs/specs/edu.rst",
        ..ENTRY
    },
    SafeRegister {
        matches: Match::Ids(0x1af4, &[0x1110]),
        name: "IVPosition",
        offset: 0x8,
        source: "QEMU docs/specs/ivshmem-spec.rst: read-only, 0 for ivshmem-plain",
        ..ENTRY
    },
    SafeRegister { matches: Match::Ids(INTEL, E1000), name: "STATUS", offset: 0x8, source: DRIVER_FLUSH, ..ENTRY },
    SafeRegister { matches: Match::Ids(INTEL, IGB), name: "STATUS", offset: 0x8, source: DRIVER_FLUSH, ..ENTRY },
    SafeRegister { matches: Match::Ids(INTEL, IGC), name: "STATUS", offset: 0x8, source: DRIVER_FLUSH, ..ENTRY },
    SafeRegister { matches: Match::Ids(INTEL, IXGBE), name: "STATUS", offset: 0x8, source: DRIVER_FLUSH, ..ENTRY },
    SafeRegister {
        matches: Match::Ids(INTEL, I40E),
        name: "GLGEN_STAT",
        offset: 0xb_612c,
        source: "Linux reads GLGEN_STAT to flush posted writes (i40e_osdep.h: i40e_flush)",
        ..ENTRY
    },
    SafeRegister {
        matches: Match::Ids(INTEL, ICE),
        name: "GLGEN_STAT",
        offset: 0xb_612c,
        source: "Linux reads GLGEN_STAT to flush posted writes (ice_osdep.h: ice_flush)",
        ..ENTRY
    },
    SafeRegister {
        matches: Match::Ids(0x15b3, MLX5),
        name: "fw_rev",
        source: "Linux mlx5/driver.h, fw_rev_maj: firmware revision in the initialization segment",
        ..ENTRY
    },
    SafeRegister {
        matches: Match::Ids(0x10ec, R8169),
        name: "ChipCmd",
        bar: 2,
        offset: 0x37,
        width: 1,
        source: "Linux reads ChipCmd to flush posted writes (r8169_main.c: rtl_pci_commit)",
        ..ENTRY
    },
    SafeRegister {
        matches: Match::Virtio,
        name: "num_queues",
        offset: VIRTIO_NUM_QUEUES,
        width: 2,
        source: "virtio 1.2, 4.1.4.3, common configuration: num_queues, read only for the driver",
        ..ENTRY
    },
    SafeRegister {
        matches: Match::Class(0x01_0802),
        // VS rather than CAP: 4 bytes go where 8-byte reads would be split.
        name: "VS",
        offset: 0x8,
        source: "NVM Express Base Specification, controller properties: VS, read only",
        ..ENTRY
    },
    SafeRegister {
        matches: Match::Class(0x0c_0330),
        name: "CAPLENGTH and HCIVERSION",
        source: "xHCI specification, host controller capability registers: read only",
        ..ENTRY
    },
    SafeRegister {
        matches: Match::Class(0x01_0601),
        name: "CAP",
        bar: 5,
        source: "AHCI specification, generic host control: HBA capabilities, read only; ABAR is BAR5",
        ..ENTRY
    },
    SafeRegister {
        matches: Match::Ids(0x10ee, &[0x9034, 0x9038, 0x903f, 0x9048, 0x8038, 0x7038]),
        name: "XDMA identifier",
        expect: Some((0xfff0_0000, 0x1fc0_0000)),
        source: "Xilinx PG195, H2C channel identifier; a design may put a BAR of its own first",
        verified: false,
        ..ENTRY
    },
    SafeRegister {
        matches: Match::Vendor(0x10de, 0x03),
        name: "PMC_BOOT_0",
        source: "NVIDIA open-gpu-doc, manuals/ampere/ga100/dev_boot, and open-gpu-kernel-modules, dev_pmc.h of gh100: \
                 NV_PMC_BOOT_0, chip identifier, read only",
        ..ENTRY
    },
];

/// The register that a read test takes when the user names none; `None` for an unknown device, for one whose BAR is
/// missing or too small, and where the table's entry is not verified ([`candidate`]).
pub fn safe_target(function: &Function) -> Option<SafeRegister> {
    SAFE.iter().filter(|register| register.verified).find_map(|register| of(register, function))
}

/// The safe register that a read of `width` bytes at a place covers, if the read covers nothing else; otherwise `None`.
pub fn safe_read(function: &Function, bar: u8, offset: u64, width: u8) -> Option<SafeRegister> {
    safe_target(function).filter(|safe| (safe.bar, safe.offset) == (bar, offset) && width <= safe.width)
}

/// A register that is said to be harmless, but was not checked against a source: a proposal for a user who then
/// names its offset, never a default.
pub fn candidate(function: &Function) -> Option<SafeRegister> {
    SAFE.iter().filter(|register| !register.verified).find_map(|register| of(register, function))
}

/// Why the function's safe register is not known although there is one: where it is stands in configuration space,
/// and that cannot be read.
pub fn hidden(function: &Function) -> Option<&str> {
    function.limited.as_deref().filter(|_| is_virtio(function.vendor, function.device))
}

/// The register as this function has it: `None` if it is another device's, or lies in no memory BAR.
fn of(register: &SafeRegister, function: &Function) -> Option<SafeRegister> {
    let is_same = match register.matches {
        Match::Ids(vendor, devices) => function.vendor == vendor && devices.contains(&function.device),
        Match::Vendor(vendor, base) => function.vendor == vendor && function.class >> 16 == u32::from(base),
        Match::Virtio => is_virtio(function.vendor, function.device),
        Match::Class(class) => function.class == class,
    };
    let mut found = Some(*register).filter(|_| is_same)?;
    if register.matches == Match::Virtio {
        let common = function.virtio_common?;
        found.bar = common.bar;
        found.offset = register.offset.checked_add(common.offset)?;
    }
    let end = found.offset.checked_add(u64::from(found.width))?;
    let is_inside = function.bars.iter().any(|bar| bar.number == found.bar && bar.is_memory && bar.size_bytes >= end);
    // The place of virtio's is the device's word.
    (is_inside && found.offset % u64::from(found.width) == 0).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pciescope_core::{Bar, Location};

    fn device(vendor: u16, device: u16, class: u32, bar: u8, size_bytes: u64) -> Function {
        let bars = vec![Bar { number: bar, size_bytes, is_memory: true, ..Bar::default() }];
        Function { vendor, device, class, bars, ..Function::default() }
    }

    #[test]
    fn knows_devices_by_id_and_by_class() {
        let offset = |function| safe_target(&function).map(|register| (register.bar, register.offset, register.width));
        assert_eq!(offset(device(0x1234, 0x5c0e, 0xff0000, 0, 0x10000)), Some((0, 0, 4)));
        assert_eq!(offset(device(0x8086, 0x10d3, 0x020000, 0, 0x20000)), Some((0, 8, 4)));
        assert_eq!(offset(device(0x8086, 0x1572, 0x020000, 0, 0x80_0000)), Some((0, 0xb_612c, 4)));
        assert_eq!(offset(device(0x8086, 0x159b, 0x020000, 0, 0x200_0000)), Some((0, 0xb_612c, 4)));
        assert_eq!(offset(device(0x15b3, 0x1017, 0x020000, 0, 0x200_0000)), Some((0, 0, 4)));
        assert_eq!(offset(device(0x10ec, 0x8168, 0x020000, 2, 0x1000)), Some((2, 0x37, 1)));
        assert_eq!(offset(device(0x144d, 0xa80a, 0x010802, 0, 0x4000)), Some((0, 8, 4)));
        assert_eq!(offset(device(0x1022, 0x7901, 0x010601, 5, 0x800)), Some((5, 0, 4)));
        assert_eq!(offset(device(0x10de, 0x2335, 0x030200, 0, 0x100_0000)), Some((0, 0, 4)));
        assert_eq!(offset(device(0x1022, 0x149c, 0x0c0330, 0, 0x100000)), Some((0, 0, 4)));
    }

    #[test]
    fn has_no_default_for_unknown_unverified_or_unmapped_registers() {
        // An XDMA design may put anything behind BAR0.
        let xdma = device(0x10ee, 0x9038, 0x058000, 0, 0x10000);
        assert_eq!(safe_target(&xdma), None);
        assert!(candidate(&xdma).is_some());
        assert_eq!(safe_target(&device(0x14e4, 0x1750, 0x020000, 0, 0x10000)), None);
        // Too small a BAR, another BAR, and I/O ports.
        assert_eq!(safe_target(&device(0x8086, 0x10d3, 0x020000, 0, 8)), None);
        assert_eq!(safe_target(&device(0x8086, 0x10d3, 0x020000, 2, 0x20000)), None);
        let mut ports = device(0x8086, 0x100e, 0x020000, 0, 0x40);
        ports.bars[0].is_memory = false;
        assert_eq!(safe_target(&ports), None);
    }

    #[test]
    fn virtio_has_its_register_where_its_capability_says() {
        let at = |ids: u16, common| {
            let mut function = device(0x1af4, ids, 0x020000, 4, 0x4000);
            function.virtio_common = common;
            safe_target(&function).map(|register| (register.bar, register.offset, register.width))
        };
        let common = |bar, offset| Some(Location { bar, offset });
        // A modern and a transitional one.
        assert_eq!(at(0x1041, common(4, 0x1000)), Some((4, 0x1012, 2)));
        assert_eq!(at(0x1000, common(4, 0)), Some((4, 0x12, 2)));
        // Without a capability, in a BAR that is not there, past its end, unaligned, and too large to be true.
        for lie in [None, common(2, 0), common(4, 0x3fee), common(4, 1), common(4, u64::MAX)] {
            assert_eq!(at(0x1041, lie), None, "{lie:?}");
        }
        // The same vendor's ivshmem and QEMU's xHCI are no virtio.
        assert_eq!(at(0x1110, common(4, 0)), None);
        assert_eq!(at(0x1080, common(4, 0)), None);
    }

    #[test]
    fn every_entry_is_aligned_and_names_its_source() {
        for register in SAFE {
            assert!(register.offset % u64::from(register.width) == 0, "{}", register.name);
            assert!(matches!(register.width, 1 | 2 | 4 | 8) && register.bar <= 5, "{}", register.name);
            assert!(!register.source.is_empty(), "{}", register.name);
        }
    }

    #[test]
    fn tells_a_foreign_answer_from_the_expected_one() {
        let endpoint = safe_target(&device(0x1234, 0x5c0e, 0xff0000, 0, 0x10000)).unwrap();
        assert!(endpoint.is_expected(0x5c0e_1a7e) && !endpoint.is_expected(0xffff_ffff));
        let edu = safe_target(&device(0x1234, 0x11e8, 0x00ff00, 0, 0x100000)).unwrap();
        assert!(edu.is_expected(0x0100_00ed) && !edu.is_expected(0));
    }
}
