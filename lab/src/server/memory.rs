//! The guest's memory as the client shares it, and DMA into it.

use std::fs::File;
use std::ops::Range;

use rustix::io::Errno;
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory, VolatileSlice};

use crate::device::DmaError;

struct Mapping {
    address: u64,
    region: MmapRegion,
    is_writable: bool,
}

/// Every range that the client mapped for DMA and gave a file for.
#[derive(Default)]
pub(super) struct GuestMemory {
    mappings: Vec<Mapping>,
}

impl GuestMemory {
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
        let end = address.checked_add(size).filter(|end| *end > address).ok_or(Errno::INVAL)?;
        if self.mappings.iter().any(|m| address < m.address + m.region.size() as u64 && m.address < end) {
            return Err(Errno::EXIST);
        }
        // Beyond the file's end there is a signal, not memory.
        let file_len = file.metadata().map_err(|_| Errno::INVAL)?.len();
        if offset.checked_add(size).is_none_or(|end| end > file_len) {
            return Err(Errno::INVAL);
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
        self.each(address, to.len(), false, |slice, part| slice.read_slice(&mut to[part], 0))
    }

    pub(super) fn write(&self, address: u64, from: &[u8]) -> Result<(), DmaError> {
        self.each(address, from.len(), true, |slice, part| slice.write_slice(&from[part], 0))
    }

    /// Calls `with` with the memory that each part of a transfer lies in.
    fn each<E>(
        &self,
        address: u64,
        len: usize,
        is_write: bool,
        mut with: impl FnMut(VolatileSlice<'_>, Range<usize>) -> Result<(), E>,
    ) -> Result<(), DmaError> {
        let unmapped = DmaError::Unmapped { address, len };
        self.check(address, len, is_write)?;
        let mut done = 0;
        while done < len {
            let (mapping, at, room) = self.find(address + done as u64).ok_or(unmapped)?;
            let part = room.min(len - done);
            let slice = mapping.region.get_slice(at, part).map_err(|_| unmapped)?;
            with(slice, done..done + part).map_err(|_| unmapped)?;
            done += part;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    /// A file of 8 KiB whose bytes are all `fill`.
    fn file(fill: u8) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[fill; 0x2000]).unwrap();
        file
    }

    fn content(mut file: &File) -> Vec<u8> {
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_transfer_crosses_neighbouring_mappings() {
        let (low, high) = (file(1), file(2));
        let mut memory = GuestMemory::default();
        assert_eq!(memory.map(0x2000, 0x1000, 0x1000, high.try_clone().unwrap(), true), Ok(()));
        assert_eq!(memory.map(0x1000, 0x1000, 0, low.try_clone().unwrap(), true), Ok(()));
        let mut bytes = [0; 4];
        assert_eq!(memory.read(0x1ffe, &mut bytes), Ok(()));
        assert_eq!(bytes, [1, 1, 2, 2]);
        assert_eq!(memory.write(0x1ffe, &[5, 6, 7, 8]), Ok(()));
        assert_eq!(content(&low)[0xffe..0x1002], [5, 6, 1, 1]);
        assert_eq!(content(&high)[0xffe..0x1002], [2, 2, 7, 8]);
    }

    #[test]
    fn what_is_not_mapped_or_read_only_is_left_alone() {
        let backing = file(1);
        let mut memory = GuestMemory::default();
        assert_eq!(memory.map(0x1000, 0x1000, 0, backing.try_clone().unwrap(), true), Ok(()));
        assert_eq!(memory.map(0x2000, 0x1000, 0x1000, backing.try_clone().unwrap(), false), Ok(()));
        let unmapped = |address, len| Err(DmaError::Unmapped { address, len });
        assert_eq!(memory.read(0xfff, &mut [0; 2]), unmapped(0xfff, 2));
        assert_eq!(memory.write(0x2fff, &[0; 2]), Err(DmaError::ReadOnly { address: 0x2fff, len: 2 }));
        assert_eq!(memory.write(0x1ffe, &[9; 4]), Err(DmaError::ReadOnly { address: 0x1ffe, len: 4 }));
        assert_eq!(memory.read(0x2fff, &mut [0; 2]), unmapped(0x2fff, 2));
        assert_eq!(memory.read(u64::MAX, &mut [0; 2]), unmapped(u64::MAX, 2));
        assert_eq!(memory.read(u64::MAX, &mut []), Ok(()));
        assert!(content(&backing).iter().all(|byte| *byte == 1), "a refused write wrote nothing");
    }

    #[test]
    fn mappings_that_cannot_be_are_refused() {
        let mut memory = GuestMemory::default();
        assert_eq!(memory.map(0x1000, 0x1000, 0, file(1), true), Ok(()));
        let mut map = |address, size, offset| memory.map(address, size, offset, file(1), true);
        assert_eq!(map(0x1fff, 0x1000, 0), Err(Errno::EXIST));
        assert_eq!(map(0, 0x1001, 0), Err(Errno::EXIST));
        assert_eq!(map(u64::MAX, 0x1000, 0), Err(Errno::INVAL));
        assert_eq!(map(0x10_0000, u64::MAX, 0), Err(Errno::INVAL));
        assert_eq!(map(0x10_0000, 0, 0), Err(Errno::INVAL));
        assert_eq!(map(0x10_0000, 0x1000, 0x2000), Err(Errno::INVAL), "beyond the file's end");
        assert_eq!(map(0x10_0000, 0x1000, u64::MAX), Err(Errno::INVAL));
    }

    #[test]
    fn unmapping_takes_what_lies_in_the_range() {
        let mut memory = GuestMemory::default();
        for address in [0x1000, 0x2000, 0x3000] {
            assert_eq!(memory.map(address, 0x1000, 0, file(1), true), Ok(()));
        }
        memory.unmap(0x2000, 0x2000);
        assert_eq!(memory.read(0x1000, &mut [0; 0x1000]), Ok(()));
        assert!(memory.read(0x2000, &mut [0]).is_err() && memory.read(0x3000, &mut [0]).is_err());
        memory.unmap(0, u64::MAX);
        assert!(memory.read(0x1000, &mut [0]).is_err());
    }
}
