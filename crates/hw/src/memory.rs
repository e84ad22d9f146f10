//! Memory traffic of known size: reads, non-temporal fills and copies of a buffer on a chosen NUMA node.
//!
//! Each pass moves exactly the buffer's bytes, as lmbench's bw_mem does with `rd`, `fwr` and `cp`. Fills and copies use
//! stores that bypass the cache (MOVNTDQ on x86-64, STNP on arm64). So each stored byte is written to DRAM once, and no
//! line is read first for ownership. Reads come from DRAM if the buffer is larger than the caches.

pub mod ratio;

use std::io;
use std::ptr::NonNull;

pub use crate::placement::Pinned;

/// Buffers are multiples of this many bytes.
pub const BLOCK: usize = 4096;

/// Memory of one's own, touched, on one NUMA node where one was named.
#[derive(Debug)]
pub struct Buffer {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the value alone; nothing about it is bound to a thread.
unsafe impl Send for Buffer {}
// SAFETY: shared references only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Maps `len` bytes, rounded up to [`BLOCK`], on NUMA node `node`, or where the kernel likes, and touches every page.
    ///
    /// # Errors
    /// ENOMEM; EINVAL where the node does not exist or has no memory; ENOSYS on a kernel without NUMA where one is named.
    pub fn on_node(len: usize, node: Option<u32>) -> io::Result<Self> {
        let len = len.max(1).checked_next_multiple_of(BLOCK).ok_or(io::ErrorKind::OutOfMemory)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping where the kernel likes.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast::<u8>()).ok_or_else(io::Error::last_os_error)?;
        let mut buffer = Buffer { address, len };
        if let Some(node) = node {
            buffer.bind(node)?;
        }
        // SAFETY: our own mapping; a refusal changes nothing but the page size.
        let _ = unsafe { libc::madvise(address.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        fill(&mut buffer, 0);
        Ok(buffer)
    }

    /// Bytes.
    #[expect(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Its content.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is readable, `len` bytes long, and lives as long as the value.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.len) }
    }

    /// Its content, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above and writable; the mutable borrow of the value keeps others away.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.len) }
    }

    /// As samples of 16 bits, signed or not.
    pub fn samples(&self) -> &[u16] {
        // SAFETY: readable, aligned to a page, a multiple of 2 bytes long; every value is one.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr().cast(), self.len / 2) }
    }

    /// As samples of 16 bits to be written.
    pub fn samples_mut(&mut self) -> &mut [u16] {
        // SAFETY: ours alone, aligned to a page, a multiple of 2 bytes long; every value is one.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr().cast(), self.len / 2) }
    }

    /// As single-precision figures to be written.
    pub fn singles_mut(&mut self) -> &mut [f32] {
        // SAFETY: ours alone, aligned to a page, a multiple of 4 bytes long; every value is one.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr().cast(), self.len / 4) }
    }

    /// As double-precision figures to be written.
    pub fn doubles_mut(&mut self) -> &mut [f64] {
        // SAFETY: ours alone, aligned to a page, a multiple of 8 bytes long; every value is one.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr().cast(), self.len / 8) }
    }

    /// As lines of the cache.
    pub fn lines(&self) -> &[ratio::Line] {
        // SAFETY: readable, aligned to a page, a multiple of 64 bytes long; every value is one.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr().cast(), self.len / ratio::LINE) }
    }

    /// As lines of the cache to be written.
    pub fn lines_mut(&mut self) -> &mut [ratio::Line] {
        // SAFETY: ours alone, aligned to a page, a multiple of 64 bytes long; every value is one.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr().cast(), self.len / ratio::LINE) }
    }

    /// All pages on `node` and nowhere else; none is there yet.
    fn bind(&mut self, node: u32) -> io::Result<()> {
        const WORDS: usize = 16;
        let mut mask = [0u64; WORDS];
        let word = mask.get_mut(node as usize / 64).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        *word = 1 << (node % 64);
        // The kernel reads one bit less than it is told.
        let bits = 64 * WORDS as libc::c_ulong + 1;
        // SAFETY: the kernel reads `bits` bits of our array and changes the policy of our mapping alone.
        let ret = unsafe {
            let start = self.address.as_ptr();
            libc::syscall(libc::SYS_mbind, start, self.len, libc::MPOL_BIND, mask.as_ptr(), bits, 0)
        };
        if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn words(&self) -> &[u64] {
        // SAFETY: the mapping is readable, aligned to a page, and a multiple of 8 bytes long.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr().cast(), self.len / 8) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it is left.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.len) };
    }
}

/// Reads every word once; the sum keeps the compiler from leaving reads out.
pub fn read(from: &Buffer) -> u64 {
    let mut sums = [0u64; 8];
    for line in from.words().chunks_exact(8) {
        for (sum, word) in sums.iter_mut().zip(line) {
            *sum = sum.wrapping_add(*word);
        }
    }
    std::hint::black_box(sums.iter().fold(0, |sum, word| sum.wrapping_add(*word)))
}

/// Stores `value` into every word once, around the cache.
pub fn fill(to: &mut Buffer, value: u64) {
    let end = to.len;
    for at in (0..end).step_by(16) {
        // SAFETY: the length is a multiple of 16, and the mapping is aligned to 16 and writable.
        unsafe { store(to.address.as_ptr().add(at), [value; 2]) };
    }
    fence();
}

/// Copies every word once, storing around the cache.
///
/// # Panics
/// Where the two are not of one length.
pub fn copy(from: &Buffer, to: &mut Buffer) {
    assert_eq!(from.len, to.len, "a copy is between buffers of one length");
    for (number, pair) in from.words().chunks_exact(2).enumerate() {
        // SAFETY: as many pairs of 16 bytes as the target has, which is aligned to 16 and writable.
        unsafe { store(to.address.as_ptr().add(16 * number), [pair[0], pair[1]]) };
    }
    fence();
}

/// Stores 16 bytes without taking the line into the cache.
///
/// # Safety
/// `to` is aligned to 16 bytes, and 16 bytes from there are writable.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn store(to: *mut u8, words: [u64; 2]) {
    use std::arch::x86_64::{_mm_set_epi64x, _mm_stream_si128};
    // SAFETY: SSE2 is part of x86-64; the caller answers for the address.
    unsafe { _mm_stream_si128(to.cast(), _mm_set_epi64x(words[1] as i64, words[0] as i64)) };
}

/// Stores 16 bytes with the hint that they will not be needed again.
///
/// # Safety
/// `to` is aligned to 16 bytes, and 16 bytes from there are writable.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn store(to: *mut u8, words: [u64; 2]) {
    // SAFETY: the caller answers for the address; nothing else changes.
    unsafe {
        std::arch::asm!("stnp {low}, {high}, [{to}]", low = in(reg) words[0], high = in(reg) words[1], to = in(reg) to,
            options(nostack, preserves_flags));
    }
}

/// Non-temporal stores have left the CPU when this returns.
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_reaches_every_word_and_a_copy_all_of_them() {
        let mut from = Buffer::on_node(3 * BLOCK - 5, None).unwrap();
        assert_eq!(from.len(), 3 * BLOCK);
        fill(&mut from, 7);
        assert!(from.words().iter().all(|word| *word == 7));
        assert_eq!(read(&from), 7 * (3 * BLOCK as u64) / 8);
        let mut to = Buffer::on_node(3 * BLOCK, None).unwrap();
        assert_eq!(read(&to), 0);
        copy(&from, &mut to);
        assert_eq!(to.words(), from.words());
        to.bytes_mut()[9] = 0xff;
        assert_eq!(to.words()[1], 0xff07);
        assert_eq!((to.bytes().len(), to.bytes()[9]), (3 * BLOCK, 0xff));
    }

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        for node in [777, 100_000] {
            let refused = Buffer::on_node(BLOCK, Some(node)).unwrap_err();
            assert!(matches!(refused.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EPERM)), "{refused}");
        }
    }
}
