//! Error injection: which errors a port makes on purpose, and which of its own counters count them.
//! docs/spec/rasdes.md, "Error injection".

use super::super::traffic::PortTotals;
use super::events::PortEvent;

/// First register.
pub const FIRST: usize = 0x30;
/// First byte past the last register.
pub const END: usize = 0x90;

const EINJ0: usize = 0x34;
const EINJ6_TLP: usize = 0x8c;
const GROUPS: usize = 7;
/// Bits that exist in EINJ0 to EINJ5.
const WRITABLE: [u32; 6] = [0x0fff, 0x1fff_01ff, 0x03ff, 0x07ff, 0x1fff_77ff, 0x01ff];
/// Width of TYPE, which begins at bit 8.
const TYPE_BITS: [u32; 6] = [4, 1, 2, 3, 3, 1];
const EINJ6_TLP_WRITABLE: u32 = 0x0fff;
/// EINJ2's type whose count counts.
const NAK_DLLP: u32 = 2;

/// The registers from EINJ_ENABLE on.
#[derive(Clone, Debug, Default)]
pub struct Injection {
    enable: u32,
    registers: [u32; (END - EINJ0) / 4],
    /// Errors made in what the port sends, and in what it receives.
    pub made: [u64; 2],
}

/// Which packets an error goes into: those that the port sends, or receives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Into {
    Tx,
    Rx,
}

/// Events that the port itself counts for an error of this group and type.
fn seen(group: usize, kind: u32) -> (Into, &'static [u16]) {
    match (group, kind) {
        // A TLP that the other side refuses: it sends a Nak, and the TLP is sent again.
        (0, 0x0) | (1, 0) => (Into::Tx, &[0x205, 0x207]),
        // The other side misses an Ack and sends again what had arrived.
        (0, 0x1) | (2, 0) => (Into::Rx, &[0x606]),
        // The other side loses its place in the stream and asks for a recovery.
        (0, 0x4) | (3, _) => (Into::Tx, &[0x107, 0x500]),
        (0, 0x8) => (Into::Rx, &[0x200, 0x201, 0x206]),
        (0, 0xb) => (Into::Rx, &[0x302]),
        (2, NAK_DLLP) => (Into::Rx, &[0x206]),
        (5, 1) => (Into::Tx, &[0x605]),
        // Seen by the other side alone.
        _ => (Into::Tx, &[]),
    }
}

impl Injection {
    /// The register at `offset`, from [`FIRST`] to before [`END`].
    pub fn read(&self, offset: usize) -> u32 {
        match offset {
            FIRST => self.enable,
            _ => self.registers[(offset - EINJ0) / 4],
        }
    }

    /// Writes the register at `offset`; errors that are to be made now go to `happen`.
    pub fn write(&mut self, offset: usize, value: u32, mut happen: impl FnMut(PortEvent, u64)) {
        if offset != FIRST {
            let index = (offset - EINJ0) / 4;
            let last = if offset == EINJ6_TLP { EINJ6_TLP_WRITABLE } else { u32::MAX };
            self.registers[index] = value & WRITABLE.get(index).unwrap_or(&last);
            return;
        }
        self.enable = value & ((1 << GROUPS) - 1);
        for group in 0..GROUPS {
            let Some(count) = self.count(group).filter(|_| self.is_enabled(group)) else { continue };
            let (into, events) = self.seen(group);
            self.made[into as usize] += u64::from(count);
            events.iter().filter_map(|select| PortEvent::new(*select)).for_each(|event| happen(event, count.into()));
            // Its count has run out.
            self.enable &= !(1 << group);
            self.registers[self.count_at(group)] &= !0xff;
        }
    }

    /// Errors without a count go into every packet that passes.
    pub fn pass(&self, moved: &PortTotals, mut happen: impl FnMut(PortEvent, u64)) {
        for group in (0..GROUPS).filter(|group| self.is_enabled(*group)) {
            let (into, events) = self.seen(group);
            let packets = if into == Into::Tx { moved.tx_tlps() } else { moved.rx_tlps() };
            events.iter().filter_map(|select| PortEvent::new(*select)).for_each(|event| happen(event, packets));
        }
    }

    fn is_enabled(&self, group: usize) -> bool {
        self.enable >> group & 1 != 0
    }

    fn count_at(&self, group: usize) -> usize {
        if group < TYPE_BITS.len() { group } else { (EINJ6_TLP - EINJ0) / 4 }
    }

    fn kind(&self, group: usize) -> u32 {
        TYPE_BITS.get(group).map_or(0, |bits| self.registers[group] >> 8 & ((1 << bits) - 1))
    }

    fn seen(&self, group: usize) -> (Into, &'static [u16]) {
        seen(group, self.kind(group))
    }

    /// How many errors to make; `None` without end.
    fn count(&self, group: usize) -> Option<u8> {
        let is_counted = group != 2 || self.kind(group) == NAK_DLLP;
        let count = (self.registers[self.count_at(group)] & 0xff) as u8;
        (is_counted && count != 0).then_some(count)
    }
}
