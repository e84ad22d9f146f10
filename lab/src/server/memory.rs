//! The guest's memory as the client shares it, and DMA into it.

use std::fs::File;

use rustix::io::Errno;
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

use crate::device::DmaError;

struct Mapping {
    address: u64,
    region: MmapRegion,
    is_writable: bool,
}

/// Every range that the client mapped for DMA and gave a file for.
#[derive(Default)]
pub(super) struct Memory {
    mappings: Vec<Mapping>,
}

impl Memory {
    /// Maps `size` bytes of `file` from `offset` on at `address`. Refuses what passes the end of memory or of the file,
    /// and what overlaps another mapping.
    pub(super) fn map(
        &mut self,
        address: u64,
        size: u64,
        offset: u64,
        file: File,
        is_writable: bool,
    ) -> Result<(), Errno> {
        let len = usize::try_from(size).map_err(|_| Errno::INVAL)?;
        let end = address.checked_add(size).ok_or(Errno::INVAL)?;
        if self.mappings.iter().any(|m| address < m.address + m.region.size() as u64 && m.address < end) {
            return Err(Errno::EXIST);
        }
        let region = MmapRegion::from_file(FileOffset::new(file, offset), len).map_err(|_| Errno::INVAL)?;
        self.mappings.push(Mapping { address, region, is_writable });
        Ok(())
    }

    /// Takes away every mapping that lies inside the range, as the protocol has it.
    pub(super) fn unmap(&mut self, address: u64, size: u64) {
        let end = address.saturating_add(size);
        self.mappings.retain(|m| m.address < address || m.address + m.region.size() as u64 > end);
    }

    pub(super) fn clear(&mut self) {
        self.mappings.clear();
    }

    /// The mapping that `address` is in, how far in, and how many bytes follow there.
    fn find(&self, address: u64) -> Option<(&Mapping, usize, usize)> {
        let mapping = self
            .mappings
            .iter()
            .find(|m| address.checked_sub(m.address).is_some_and(|at| at < m.region.size() as u64))?;
        let at = (address - mapping.address) as usize;
        Some((mapping, at, mapping.region.size() - at))
    }

    /// Whether all of the range is mapped, and writable if `to_write`.
    fn check(&self, address: u64, len: usize, to_write: bool) -> Result<(), DmaError> {
        let unmapped = DmaError::Unmapped { address, len };
        let (mut next, mut left) = (address, len);
        while left > 0 {
            let (mapping, _, room) = self.find(next).ok_or(unmapped)?;
            if to_write && !mapping.is_writable {
                return Err(DmaError::ReadOnly { address, len });
            }
            left -= room.min(left);
            next = next.checked_add(room as u64).ok_or(unmapped)?;
        }
        Ok(())
    }

    pub(super) fn read(&self, address: u64, to: &mut [u8]) -> Result<(), DmaError> {
        let unmapped = DmaError::Unmapped { address, len: to.len() };
        self.check(address, to.len(), false)?;
        let (mut next, mut rest) = (address, to);
        while !rest.is_empty() {
            let (mapping, at, room) = self.find(next).ok_or(unmapped)?;
            let (part, after) = rest.split_at_mut(room.min(rest.len()));
            let slice = mapping.region.get_slice(at, part.len()).map_err(|_| unmapped)?;
            slice.read_slice(part, 0).map_err(|_| unmapped)?;
            next += part.len() as u64;
            rest = after;
        }
        Ok(())
    }

    pub(super) fn write(&self, address: u64, from: &[u8]) -> Result<(), DmaError> {
        let unmapped = DmaError::Unmapped { address, len: from.len() };
        self.check(address, from.len(), true)?;
        let (mut next, mut rest) = (address, from);
        while !rest.is_empty() {
            let (mapping, at, room) = self.find(next).ok_or(unmapped)?;
            let (part, after) = rest.split_at(room.min(rest.len()));
            let slice = mapping.region.get_slice(at, part.len()).map_err(|_| unmapped)?;
            slice.write_slice(part, 0).map_err(|_| unmapped)?;
            next += part.len() as u64;
            rest = after;
        }
        Ok(())
    }
}
