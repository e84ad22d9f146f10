//! How a device is made to send an interrupt from user space: which registers to write, for each family.
//!
//! Register numbers are those of the Linux drivers e1000e, igb and igc, of QEMU's docs/specs/edu.rst, and of
//! docs/spec/latency-endpoint.md. All registers are 4 bytes wide in BAR 0.

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
        /// The endpoint of the lab.
        LatencyEndpoint => "TRIGGER of the latency endpoint",
        /// QEMU's teaching device.
        Edu => "interrupt raise of edu",
        /// Intel 8254x to 8257x: interrupt cause set.
        E1000 => "ICS of e1000",
        /// Intel 82574: the same with MSI-X.
        E82574 => "ICS of 82574",
        /// Intel 82575 to I350, I210, I225 and I226: extended interrupt cause set.
        Igb => "EICS of igb and igc",
    }
    /// Its name.
    fn name
}

/// The cause "other": hardware does not set this bit by itself while the link is down.
const E1000_CAUSE: u32 = 1 << 3;
/// The vectors of an 82574 by their cause: receive queue 0, transmit queue 0, other.
const E82574_CAUSES: [u32; 3] = [1 << 20, 1 << 22, 1 << 24];

impl Trigger {
    /// The family of a device, if it is known.
    pub fn of(vendor: u16, device: u16) -> Option<Self> {
        Some(match (vendor, device) {
            (0x1234, 0x5c0e) => Trigger::LatencyEndpoint,
            (0x1234, 0x11e8) => Trigger::Edu,
            (0x8086, 0x10d3 | 0x10f6) => Trigger::E82574,
            (0x8086, 0x1000..=0x1028 | 0x105e..=0x1060 | 0x1075..=0x107d | 0x108b | 0x108c | 0x109a | 0x10b9) => {
                Trigger::E1000
            }
            (0x8086, 0x10a7 | 0x10a9 | 0x10d6 | 0x10c9 | 0x10e6..=0x10e8 | 0x1526 | 0x150a | 0x150d | 0x1518)
            | (0x8086, 0x150e..=0x1511 | 0x1516 | 0x1527 | 0x1521..=0x1524 | 0x1533..=0x1539 | 0x157b | 0x157c)
            | (0x8086, 0x15f2 | 0x15f3 | 0x15f8 | 0x3100 | 0x125b..=0x125f | 0x0d9f) => Trigger::Igb,
            _ => return None,
        })
    }

    /// How many vectors it can raise.
    pub fn vectors(self, kind: Kind) -> u16 {
        match (self, kind) {
            (Trigger::LatencyEndpoint, Kind::Msix) => 16,
            (Trigger::LatencyEndpoint, Kind::Msi) => 8,
            (Trigger::E82574, Kind::Msix) => 3,
            (Trigger::Igb, Kind::Msix) => 5,
            _ => 1,
        }
    }

    /// The writes that enable this vector.
    pub fn enable(self, vector: u16, kind: Kind) -> Vec<Write> {
        let write = |offset, value| Write { offset, value };
        match (self, kind) {
            (Trigger::LatencyEndpoint, _) => vec![write(0x30, 1 << vector)],
            (Trigger::Edu, _) => Vec::new(),
            // IMC all, EITR without a least interval, IVAR: vectors 0, 1, 2 for receive queue 0, transmit queue 0 and
            // other, each valid; IMS.
            (Trigger::E82574, Kind::Msix) => vec![
                write(0xd8, u32::MAX),
                write(0xe8 + 4 * u64::from(vector), 0),
                write(0xe4, 0x8 | (0x8 | 1) << 8 | (0x8 | 2) << 16),
                write(0xd0, E82574_CAUSES[usize::from(vector.min(2))]),
            ],
            (Trigger::E82574 | Trigger::E1000, _) => {
                vec![write(0xd8, u32::MAX), write(0xc4, 0), write(0xd0, E1000_CAUSE)]
            }
            // EIMC all, GPIE with several vectors, EITR without a least interval, EIMS.
            (Trigger::Igb, Kind::Msix) => vec![
                write(0x1528, u32::MAX),
                write(0x1514, 1 << 4),
                write(0x1680 + 4 * u64::from(vector), 0),
                write(0x1524, 1 << vector),
            ],
            // One vector: ICS 0x1504, IMS 0x1508, IMC 0x150c.
            (Trigger::Igb, _) => vec![write(0x150c, u32::MAX), write(0x1508, E1000_CAUSE)],
        }
    }

    /// The write that raises the vector.
    pub fn fire(self, vector: u16, kind: Kind) -> Write {
        let write = |offset, value| Write { offset, value };
        match (self, kind) {
            (Trigger::LatencyEndpoint, _) => write(0x80 + 4 * u64::from(vector), 1),
            (Trigger::Edu, _) => write(0x60, 1),
            (Trigger::E82574, Kind::Msix) => write(0xc8, E82574_CAUSES[usize::from(vector.min(2))]),
            (Trigger::E82574 | Trigger::E1000, _) => write(0xc8, E1000_CAUSE),
            (Trigger::Igb, Kind::Msix) => write(0x1520, 1 << vector),
            (Trigger::Igb, _) => write(0x1504, E1000_CAUSE),
        }
    }

    /// How the interrupt is acknowledged.
    pub fn acknowledge(self, vector: u16, kind: Kind) -> Acknowledge {
        let write = |offset, value| Write { offset, value };
        match (self, kind) {
            (Trigger::LatencyEndpoint, _) => Acknowledge::Write(write(0x38, 1 << vector), 0x0),
            (Trigger::Edu, _) => Acknowledge::Write(write(0x64, 1), 0x0),
            // With MSI-X a write of ones clears; the read waits for it. STATUS has no side effects.
            (Trigger::E82574, Kind::Msix) => {
                Acknowledge::Write(write(0xc0, E82574_CAUSES[usize::from(vector.min(2))]), 0x8)
            }
            (Trigger::E82574 | Trigger::E1000, _) => Acknowledge::Read(0xc0),
            (Trigger::Igb, Kind::Msix) => Acknowledge::Write(write(0x1580, 1 << vector), 0x8),
            (Trigger::Igb, _) => Acknowledge::Read(0x1500),
        }
    }

    /// The writes that disable its interrupts again.
    pub fn disable(self) -> Vec<Write> {
        let write = |offset, value| Write { offset, value };
        match self {
            Trigger::LatencyEndpoint => vec![write(0x30, 0), write(0x38, u32::MAX)],
            Trigger::Edu => vec![write(0x64, u32::MAX)],
            Trigger::E1000 | Trigger::E82574 => vec![write(0xd8, u32::MAX)],
            Trigger::Igb => vec![write(0x1528, u32::MAX), write(0x150c, u32::MAX)],
        }
    }

    /// How many bytes of BAR 0 hold all these registers.
    pub fn registers_end(self) -> u64 {
        match self {
            Trigger::LatencyEndpoint | Trigger::Edu | Trigger::E1000 | Trigger::E82574 => 0x1000,
            Trigger::Igb => 0x2000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Trigger; 5] = [Trigger::LatencyEndpoint, Trigger::Edu, Trigger::E1000, Trigger::E82574, Trigger::Igb];

    #[test]
    fn every_register_lies_in_what_is_mapped_and_is_aligned() {
        for trigger in ALL {
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
        for trigger in ALL {
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
        assert_eq!(Trigger::of(0x8086, 0x10c9), Some(Trigger::Igb));
        assert_eq!(Trigger::of(0x10ec, 0x8168), None);
    }
}
