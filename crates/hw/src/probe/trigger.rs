//! How a device is made to send an interrupt from user space: which registers to write, for each family.
//!
//! Register numbers are those of the Linux drivers e1000e, igb and igc, of QEMU's docs/specs/edu.rst, and of
//! docs/spec/latency-endpoint.md. All registers are 4 bytes wide in BAR 0. Names and families are those of
//! kmod/pcilat/trigger.c, and a test compares both.

/// A write of `value` at byte `offset` of BAR 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// Byte offset.
    pub offset: u64,
    /// Four bytes.
    pub value: u32,
}

/// The kind of interrupt that VFIO was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// INTx.
    Intx,
    /// MSI.
    Msi,
    /// MSI-X.
    Msix,
}

/// What tells the device that its interrupt was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledge {
    /// A write, and a read of another register that waits for it.
    Write(Write, u64),
    /// A read that clears the cause.
    Read(u64),
}

pciescope_core::named! {
    /// A family of devices.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Trigger {
        /// Intel e1000 and e1000e from the 82540 on: interrupt cause set.
        E1000 => "ICS of e1000",
        /// Intel 82574: the same with MSI-X.
        E82574 => "ICS of 82574",
        /// Intel 82576 to I350, I210: extended interrupt cause set.
        Igb => "EICS of igb",
        /// Intel I225 and I226: the same with fewer vectors.
        Igc => "EICS of igc",
        /// QEMU's teaching device.
        Edu => "interrupt raise of edu",
        /// The endpoint of the lab.
        LatencyEndpoint => "TRIGGER of the latency endpoint",
    }
    /// Its name.
    fn name
}

/// Registers, or bits of them, each by the name that trigger.c gives it, and the list of them for the test.
macro_rules! registers {
    ($list:ident: $type:ty: $($name:ident = $value:expr),* $(,)?) => {
        $( const $name: $type = $value; )*
        #[cfg(test)]
        const $list: &[(&str, $type)] = &[$( (stringify!($name), $name) ),*];
    };
}

registers! { E1000: u64: E1000_ICR = 0x0c0, E1000_ITR = 0x0c4, E1000_ICS = 0x0c8, E1000_IMS = 0x0d0, E1000_IMC = 0x0d8 }
registers! { E1000_82574: u64: E1000_82574_EIAC = 0x0dc, E1000_82574_IVAR = 0x0e4, E1000_82574_EITR = 0x0e8 }
registers! {
    IGB: u64:
    IGB_ICR = 0x1500,
    IGB_ICS = 0x1504,
    IGB_IMS = 0x1508,
    IGB_IMC = 0x150c,
    IGB_GPIE = 0x1514,
    IGB_EICS = 0x1520,
    IGB_EIMS = 0x1524,
    IGB_EIMC = 0x1528,
    IGB_EIAC = 0x152c,
    IGB_EIAM = 0x1530,
    IGB_EICR = 0x1580,
    IGB_EITR = 0x1680,
}
registers! { EDU: u64: EDU_RAISE = 0x60, EDU_ACK = 0x64 }
registers! { LAB: u64: LAB_IRQ_ENABLE = 0x030, LAB_IRQ_ACK = 0x038, LAB_TRIGGER = 0x080 }

/// STATUS of the Intel families, and the ID of edu and of the lab's endpoint: reading them has no side effects.
const E1000_STATUS: u64 = 0x8;
const ID: u64 = 0x0;
registers! {
    BITS: u32:
    // Receive sequence error: the in-tree driver tests MSI with it.
    E1000_CAUSE_RXSEQ = 1 << 3,
    // The cause of vector 0 of the 82574: the first of two receive queues, two transmit queues, other.
    E1000_82574_CAUSE = 1 << 20,
    IGB_GPIE_NSICR = 1 << 0,
    IGB_GPIE_MSIX = 1 << 4,
    IGB_GPIE_PBA = 1 << 31,
    EDU_CAUSE = 1 << 0,
}

/// A family's devices, as the table of trigger.c has them.
struct Family {
    trigger: Trigger,
    vendor: u16,
    devices: &'static [u16],
    /// Bytes of BAR 0, from its start, that hold all registers.
    bytes: u64,
    /// MSI-X vectors that it can raise, as far as the device has them.
    vectors: u16,
}

const FAMILIES: [Family; 6] = [
    Family {
        trigger: Trigger::E1000,
        vendor: 0x8086,
        devices: &[
            0x100e, 0x1015, 0x1016, 0x1017, 0x101e, // 82540
            0x100f, 0x1011, 0x1026, 0x1027, 0x1028, // 82545
            0x1010, 0x1012, 0x101d, 0x1079, 0x107a, 0x107b, // 82546
            0x1013, 0x1014, 0x1018, 0x1076, 0x1077, 0x1078, 0x107c, // 82541
            0x1019, 0x101a, 0x1075, // 82547
            0x105e, 0x105f, 0x1060, 0x107d, 0x10b9, // 82571, 82572
            0x108b, 0x108c, 0x109a, 0x150c, // 82573, 82583
            0x1502, 0x1503, 0x153a, 0x153b, // 82579, I217
        ],
        bytes: 0x1000,
        vectors: 1,
    },
    Family { trigger: Trigger::E82574, vendor: 0x8086, devices: &[0x10d3, 0x10f6], bytes: 0x1000, vectors: 5 },
    Family {
        trigger: Trigger::Igb,
        vendor: 0x8086,
        devices: &[
            0x10c9, 0x10e6, 0x10e7, 0x10e8, 0x150a, 0x150d, 0x1518, 0x1526, // 82576
            0x150e, 0x150f, 0x1510, 0x1511, 0x1516, 0x1527, // 82580
            0x1521, 0x1522, 0x1523, 0x1524, // I350
            0x1533, 0x1534, 0x1535, 0x1536, 0x1537, 0x1538, 0x157b, 0x157c, // I210
            0x1539, // I211
        ],
        bytes: 0x2000,
        vectors: 25,
    },
    Family {
        trigger: Trigger::Igc,
        vendor: 0x8086,
        devices: &[0x0d9f, 0x15f2, 0x15f3, 0x15f8, 0x3100, 0x125b, 0x125c, 0x125d, 0x125e, 0x125f],
        bytes: 0x2000,
        vectors: 5,
    },
    Family { trigger: Trigger::Edu, vendor: 0x1234, devices: &[0x11e8], bytes: 0x1000, vectors: 1 },
    Family { trigger: Trigger::LatencyEndpoint, vendor: 0x1234, devices: &[0x5c0e], bytes: 0x1000, vectors: 16 },
];

/// A register of a vector.
fn of_vector(register: u64, vector: u16) -> u64 {
    register + 4 * u64::from(vector)
}

impl Trigger {
    /// The family of a device, if it is known.
    pub fn of(vendor: u16, device: u16) -> Option<Self> {
        let is_of = |family: &&Family| family.vendor == vendor && family.devices.contains(&device);
        FAMILIES.iter().find(is_of).map(|family| family.trigger)
    }

    fn family(self) -> &'static Family {
        FAMILIES.iter().find(|family| family.trigger == self).expect("every trigger has its family")
    }

    /// How many vectors it can raise.
    pub fn vectors(self, kind: Kind) -> u16 {
        match (self, kind) {
            (_, Kind::Msix) | (Trigger::LatencyEndpoint, Kind::Msi) => self.family().vectors,
            _ => 1,
        }
    }

    /// The writes that enable this vector.
    pub fn enable(self, vector: u16, kind: Kind) -> Vec<Write> {
        let write = |offset, value| Write { offset, value };
        match (self, kind) {
            (Trigger::LatencyEndpoint, _) => vec![write(LAB_IRQ_ENABLE, 1 << vector)],
            (Trigger::Edu, _) => Vec::new(),
            (Trigger::E82574, Kind::Msix) => vec![
                write(E1000_IMC, u32::MAX),
                write(E1000_82574_EIAC, 0),
                write(of_vector(E1000_82574_EITR, vector), 0),
                // Vector v is valid, and named, in field v.
                write(E1000_82574_IVAR, (0x8 | u32::from(vector)) << (4 * vector)),
                write(E1000_IMS, E1000_82574_CAUSE << vector),
            ],
            (Trigger::E82574 | Trigger::E1000, _) => {
                vec![write(E1000_IMC, u32::MAX), write(E1000_ITR, 0), write(E1000_IMS, E1000_CAUSE_RXSEQ)]
            }
            (Trigger::Igb | Trigger::Igc, Kind::Msix) => vec![
                write(IGB_EIMC, u32::MAX),
                write(IGB_GPIE, IGB_GPIE_NSICR | IGB_GPIE_MSIX | IGB_GPIE_PBA),
                write(IGB_EIAC, 0),
                write(IGB_EIAM, 0),
                write(of_vector(IGB_EITR, vector), 0),
                write(IGB_EIMS, 1 << vector),
            ],
            (Trigger::Igb | Trigger::Igc, _) => {
                vec![write(IGB_IMC, u32::MAX), write(IGB_IMS, E1000_CAUSE_RXSEQ)]
            }
        }
    }

    /// The write that raises the vector.
    pub fn fire(self, vector: u16, kind: Kind) -> Write {
        let write = |offset, value| Write { offset, value };
        match (self, kind) {
            (Trigger::LatencyEndpoint, _) => write(of_vector(LAB_TRIGGER, vector), 1),
            (Trigger::Edu, _) => write(EDU_RAISE, EDU_CAUSE),
            (Trigger::E82574, Kind::Msix) => write(E1000_ICS, E1000_82574_CAUSE << vector),
            (Trigger::E82574 | Trigger::E1000, _) => write(E1000_ICS, E1000_CAUSE_RXSEQ),
            (Trigger::Igb | Trigger::Igc, Kind::Msix) => write(IGB_EICS, 1 << vector),
            (Trigger::Igb | Trigger::Igc, _) => write(IGB_ICS, E1000_CAUSE_RXSEQ),
        }
    }

    /// How the interrupt is acknowledged.
    pub fn acknowledge(self, vector: u16, kind: Kind) -> Acknowledge {
        let write = |offset, value| Write { offset, value };
        match (self, kind) {
            (Trigger::LatencyEndpoint, _) => Acknowledge::Write(write(LAB_IRQ_ACK, 1 << vector), ID),
            (Trigger::Edu, _) => Acknowledge::Write(write(EDU_ACK, EDU_CAUSE), ID),
            // With MSI-X a write of ones clears; the read waits for it.
            (Trigger::E82574, Kind::Msix) => {
                Acknowledge::Write(write(E1000_ICR, E1000_82574_CAUSE << vector), E1000_STATUS)
            }
            (Trigger::E82574 | Trigger::E1000, _) => Acknowledge::Read(E1000_ICR),
            (Trigger::Igb | Trigger::Igc, Kind::Msix) => Acknowledge::Write(write(IGB_EICR, 1 << vector), E1000_STATUS),
            (Trigger::Igb | Trigger::Igc, _) => Acknowledge::Read(IGB_ICR),
        }
    }

    /// The writes that disable its interrupts again.
    pub fn disable(self) -> Vec<Write> {
        let write = |offset, value| Write { offset, value };
        match self {
            Trigger::LatencyEndpoint => vec![write(LAB_IRQ_ENABLE, 0), write(LAB_IRQ_ACK, u32::MAX)],
            Trigger::Edu => vec![write(EDU_ACK, u32::MAX)],
            Trigger::E1000 | Trigger::E82574 => vec![write(E1000_IMC, u32::MAX)],
            Trigger::Igb | Trigger::Igc => vec![write(IGB_EIMC, u32::MAX), write(IGB_IMC, u32::MAX)],
        }
    }

    /// How many bytes of BAR 0 hold all these registers.
    pub fn registers_end(self) -> u64 {
        self.family().bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Registers that the module alone knows, and why.
    const ONLY_IN_THE_MODULE: [(&str, &str); 1] =
        [("EDU_STATUS", "the module's handler asks who pulled a shared line; vfio-pci's does that for user space")];

    const TRIGGER_C: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kmod/pcilat/trigger.c");

    fn all() -> impl Iterator<Item = Trigger> {
        FAMILIES.iter().map(|family| family.trigger)
    }

    /// A number of trigger.c: hexadecimal, decimal, `BIT(n)`, `SZ_4K`; of a register of vectors that of vector 0.
    fn number(text: &str) -> Option<u64> {
        let text = text.trim().trim_start_matches('(');
        let digits = |text: &str| text.chars().take_while(char::is_ascii_alphanumeric).collect::<String>();
        if let Some(bit) = text.strip_prefix("BIT(") {
            return Some(1 << digits(bit).parse::<u32>().ok()?);
        }
        match (text.strip_prefix("0x"), text.strip_prefix("SZ_")) {
            (Some(hex), _) => u64::from_str_radix(&digits(hex), 16).ok(),
            (_, Some(size)) => Some(size.strip_suffix('K')?.parse::<u64>().ok()? * 1024),
            _ => digits(text).parse().ok(),
        }
    }

    /// The constants of trigger.c.
    fn defines(source: &str) -> BTreeMap<String, u64> {
        let define = |line: &str| {
            let (name, value) = line.strip_prefix("#define ")?.trim().split_once(char::is_whitespace)?;
            Some((name.trim_end_matches("(v)").to_owned(), number(value).unwrap_or_else(|| panic!("{line}"))))
        };
        source.lines().filter_map(define).collect()
    }

    #[test]
    fn the_module_names_the_same_registers_and_bits() {
        let source = std::fs::read_to_string(TRIGGER_C).unwrap();
        let mut theirs = defines(&source);
        theirs.retain(|name, _| !name.ends_with("_VECTORS"));
        for (name, why) in ONLY_IN_THE_MODULE {
            assert!(theirs.remove(name).is_some(), "{name} is no difference: {why}");
        }
        let registers = [E1000, E1000_82574, IGB, EDU, LAB].into_iter().flatten().copied();
        let bits = BITS.iter().map(|&(name, value)| (name, u64::from(value)));
        let ours: BTreeMap<String, u64> = registers.chain(bits).map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(ours, theirs);
        for list in [E1000, E1000_82574, IGB, EDU, LAB] {
            assert!(list.is_sorted_by_key(|&(_, offset)| offset), "not in the order of the data sheet: {list:x?}");
        }
    }

    #[test]
    fn the_module_has_the_same_families() {
        let source = std::fs::read_to_string(TRIGGER_C).unwrap();
        let names = defines(&source);
        let table = source.split_once("pcilat_trigger triggers[] = {").unwrap().1.split_once("\n};").unwrap().0;
        let field = |entry: &str, name: &str| {
            let value = entry.split_once(&format!(".{name} = "))?.1.split_once(",\n")?.0.to_owned();
            names.get(&value).copied().or_else(|| number(&value))
        };
        let theirs: Vec<_> = table
            .split("}, {")
            .map(|entry| {
                let devices = entry.split_once(".devices = (const u16[]){").unwrap().1.split_once('}').unwrap().0;
                let without_comments =
                    devices.split("/*").map(|part| part.split_once("*/").map_or(part, |part| part.1));
                let devices: Vec<u64> = without_comments
                    .flat_map(|part| part.split(','))
                    .filter_map(number)
                    .take_while(|&id| id != 0)
                    .collect();
                let field = |name| field(entry, name).unwrap_or_else(|| panic!("no {name} in {entry}"));
                (field("vendor"), devices, field("regs_size"), field("vectors"))
            })
            .collect();
        let ours: Vec<_> = FAMILIES
            .iter()
            .map(|family| {
                let devices = family.devices.iter().copied().map(u64::from).collect();
                (family.vendor.into(), devices, family.bytes, family.vectors.into())
            })
            .collect();
        assert_eq!(ours, theirs);
    }

    #[test]
    fn every_register_lies_in_what_is_mapped_and_is_aligned() {
        for trigger in all() {
            for kind in [Kind::Intx, Kind::Msi, Kind::Msix] {
                for vector in 0..trigger.vectors(kind) {
                    let mut offsets: Vec<u64> = trigger.enable(vector, kind).iter().map(|w| w.offset).collect();
                    offsets.push(trigger.fire(vector, kind).offset);
                    offsets.extend(trigger.disable().iter().map(|w| w.offset));
                    match trigger.acknowledge(vector, kind) {
                        Acknowledge::Write(write, flush) => offsets.extend([write.offset, flush]),
                        Acknowledge::Read(offset) => offsets.push(offset),
                    }
                    assert!(offsets.iter().all(|o| o % 4 == 0 && *o < trigger.registers_end()), "{trigger:?}");
                }
            }
        }
    }

    #[test]
    fn vectors_of_a_device_have_triggers_of_their_own() {
        for trigger in all() {
            let all: Vec<Write> =
                (0..trigger.vectors(Kind::Msix)).map(|vector| trigger.fire(vector, Kind::Msix)).collect();
            assert!(all.iter().enumerate().all(|(i, one)| !all[..i].contains(one)), "{trigger:?}: {all:?}");
        }
    }

    #[test]
    fn the_endpoint_follows_its_page() {
        let endpoint = Trigger::of(0x1234, 0x5c0e).unwrap();
        assert_eq!(endpoint.fire(15, Kind::Msix), Write { offset: 0xbc, value: 1 });
        assert_eq!(endpoint.enable(15, Kind::Msix), [Write { offset: 0x30, value: 0x8000 }]);
        assert_eq!(endpoint.acknowledge(15, Kind::Msix), Acknowledge::Write(Write { offset: 0x38, value: 0x8000 }, 0));
        assert_eq!(Trigger::of(0x8086, 0x10d3), Some(Trigger::E82574));
        assert_eq!(Trigger::of(0x8086, 0x1521).map(|trigger| trigger.vectors(Kind::Msix)), Some(25));
        assert_eq!(Trigger::of(0x8086, 0x10c9), Some(Trigger::Igb));
        assert_eq!(Trigger::of(0x10ec, 0x8168), None);
    }
}
