//! Transfers of the disk: through the bus, into its own ledger and into that of its root port.

use crate::device::bus::Bus;
use crate::device::traffic::PortTraffic;

use super::ledger::Ledger;
use super::wire::Status;

/// Pages of the controller, in bytes (CC.MPS = 0).
pub(super) const PAGE: u64 = 4096;
/// Bytes of an entry of a PRP list.
const ENTRY: u64 = 8;

/// A stretch of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) len: u64,
}

/// The way to the guest's memory.
pub(super) struct Dma<'a> {
    pub(super) bus: &'a mut dyn Bus,
    pub(super) port: &'a PortTraffic,
    pub(super) ledger: &'a mut Ledger,
}

impl Dma<'_> {
    /// Reads all of `to`.
    pub(super) fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), Status> {
        self.bus.read_memory(address, to).map_err(|_| Status::DATA_TRANSFER_ERROR)?;
        self.entered_read(address, to.len() as u64);
        Ok(())
    }

    /// Writes all of `from`.
    pub(super) fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Status> {
        self.bus.write_memory(address, from).map_err(|_| Status::DATA_TRANSFER_ERROR)?;
        self.entered_write(address, from.len() as u64);
        Ok(())
    }

    /// Writes `from` into ranges, which are as long together.
    pub(super) fn scatter(&mut self, ranges: &[Range], from: &[u8]) -> Result<(), Status> {
        let mut rest = from;
        for range in ranges {
            let (now, later) = rest.split_at(rest.len().min(range.len as usize));
            self.write(range.address, now)?;
            rest = later;
        }
        Ok(())
    }

    /// Enters a transfer from memory that went over the bus directly.
    pub(super) fn entered_read(&mut self, address: u64, len: u64) {
        self.ledger.dma_read_bytes += len;
        self.port.dma_read(address, len);
    }

    /// Enters a transfer to memory that went over the bus directly.
    pub(super) fn entered_write(&mut self, address: u64, len: u64) {
        self.ledger.dma_write_bytes += len;
        self.port.dma_write(address, len);
    }

    /// The memory that PRPs describe (NVMe 1.4, section 4.3), neighbours joined. PRP lists are fetched: exactly the entries
    /// that the transfer needs.
    pub(super) fn ranges(&mut self, prp1: u64, prp2: u64, len: u64) -> Result<Vec<Range>, Status> {
        let mut ranges = Ranges(Vec::new());
        if prp1 % 4 != 0 {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        let first = len.min(PAGE - prp1 % PAGE);
        ranges.push(prp1, first);
        let mut left = len - first;
        if left == 0 {
            return Ok(ranges.0);
        }
        if left <= PAGE {
            ranges.push(page(prp2)?, left);
            return Ok(ranges.0);
        }
        let mut list = prp2;
        if list % ENTRY != 0 {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        while left > 0 {
            let (room, needed) = ((PAGE - list % PAGE) / ENTRY, left.div_ceil(PAGE));
            let count = room.min(needed);
            let mut entries = [0; PAGE as usize];
            let entries = &mut entries[..(count * ENTRY) as usize];
            self.read(list, entries)?;
            self.ledger.prp_bytes += count * ENTRY;
            // Where the list goes on, its last entry in a page points to the next one.
            let is_continued = needed > room;
            for (index, entry) in entries.chunks_exact(ENTRY as usize).enumerate() {
                let entry = entry.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
                if is_continued && index as u64 + 1 == count {
                    list = page(entry)?;
                } else {
                    let now = left.min(PAGE);
                    ranges.push(page(entry)?, now);
                    left -= now;
                }
            }
        }
        Ok(ranges.0)
    }
}

/// An entry that has to be the start of a page.
fn page(entry: u64) -> Result<u64, Status> {
    if entry % PAGE == 0 { Ok(entry) } else { Err(Status::PRP_OFFSET_INVALID) }
}

struct Ranges(Vec<Range>);

impl Ranges {
    fn push(&mut self, address: u64, len: u64) {
        match self.0.last_mut() {
            Some(last) if last.address.wrapping_add(last.len) == address => last.len += len,
            _ => self.0.push(Range { address, len }),
        }
    }
}
