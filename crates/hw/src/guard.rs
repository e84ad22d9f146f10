//! Handles the signal of a mapped page that is not there (SIGBUS): it replaces the page, and reports this to the owner of
//! the mapping. Where a device went away the new page is all-ones, which is what the bus would have answered.
//!
//! A signal handler belongs to the process, so a table of the process lists the mappings that it handles. A fault at
//! any other address goes to the handler that was installed before.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

/// A mapping that is answered for; `start` 0: the place is free, 1: it is being filled.
struct Entry {
    start: AtomicUsize,
    len: AtomicUsize,
    /// What the bytes of a page are that takes the place of one.
    fill: AtomicU8,
    is_hit: AtomicBool,
}

/// More streams than a machine has devices.
const PLACES: usize = 256;
const FILLING: usize = 1;

static TABLE: [Entry; PLACES] = [const {
    let (start, len) = (AtomicUsize::new(0), AtomicUsize::new(0));
    Entry { start, len, fill: AtomicU8::new(0), is_hit: AtomicBool::new(false) }
}; PLACES];

/// A mapping's place in the table, until dropped. It has to be dropped before the mapping.
#[derive(Debug)]
pub struct Guard(usize);

impl Guard {
    /// Answers for `len` bytes from `start` from now on, with pages of `fill`.
    ///
    /// # Errors
    /// ENOMEM when 256 mappings are answered for.
    pub fn new(start: usize, len: usize, fill: u8) -> io::Result<Self> {
        install();
        for (index, place) in TABLE.iter().enumerate() {
            if place.start.compare_exchange(0, FILLING, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                place.is_hit.store(false, Ordering::Relaxed);
                place.len.store(len, Ordering::Relaxed);
                place.fill.store(fill, Ordering::Relaxed);
                place.start.store(start, Ordering::Release);
                return Ok(Guard(index));
            }
        }
        Err(io::Error::from_raw_os_error(libc::ENOMEM))
    }

    /// Whether a page was not there.
    pub fn was_hit(&self) -> bool {
        TABLE[self.0].is_hit.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        TABLE[self.0].start.store(0, Ordering::Release);
    }
}

/// What had the signal before us; written once, before our handler can run.
struct Before(std::cell::UnsafeCell<std::mem::MaybeUninit<libc::sigaction>>);
// SAFETY: written under the Once below before the handler is there, and only read after that.
unsafe impl Sync for Before {}
static BEFORE: Before = Before(std::cell::UnsafeCell::new(std::mem::MaybeUninit::uninit()));

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an all-zero sigaction is valid. The old action is read before ours is set, so that the handler finds it.
        // The handler calls nothing but mmap, sigaction and atomics, which are safe in a signal handler.
        unsafe {
            libc::sigaction(libc::SIGBUS, std::ptr::null(), (*BEFORE.0.get()).as_mut_ptr());
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_bus_error as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        }
    });
}

extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands a good siginfo to a handler with SA_SIGINFO; SIGBUS has an address.
    let address = unsafe { (*info).si_addr() }.addr();
    for place in &TABLE {
        let (start, len) = (place.start.load(Ordering::Acquire), place.len.load(Ordering::Relaxed));
        if start > FILLING
            && address >= start
            && address - start < len
            && put_page(address, place.fill.load(Ordering::Relaxed))
        {
            place.is_hit.store(true, Ordering::Release);
            return;
        }
    }
    // SAFETY: the action of before was stored before this handler was set. The access faults again and finds it.
    unsafe { libc::sigaction(libc::SIGBUS, (*BEFORE.0.get()).as_ptr(), std::ptr::null_mut()) };
}

/// Puts a page of this byte where the page of `address` is.
fn put_page(address: usize, fill: u8) -> bool {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    // SAFETY: the page lies in a mapping that its owner is accessing and has said so, so nothing else is overwritten; the
    // fill stays inside the page that was just mapped.
    unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let start = std::ptr::without_provenance_mut(address - address % page);
        let mapped = libc::mmap(start, page, access, flags, -1, 0);
        if mapped != libc::MAP_FAILED && fill != 0 {
            std::ptr::write_bytes(mapped.cast::<u8>(), fill, page);
        }
        mapped != libc::MAP_FAILED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::sys::Mapping;

    #[test]
    fn a_page_that_went_away_reads_all_ones_and_is_noticed() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mapping = Mapping::new(&file, 0, 8192, true).unwrap();
        let at = mapping.at(4096 + 8, 4).cast::<u32>();
        let guard = Guard::new(mapping.at(0, 8192).as_ptr().addr(), 8192, 0xff).unwrap();
        // SAFETY: inside the mapping, aligned.
        let read = || unsafe { at.as_ptr().read_volatile() };
        assert_eq!((read(), guard.was_hit()), (0, false));
        file.set_len(0).unwrap();
        assert_eq!((read(), guard.was_hit()), (u32::MAX, true));
    }
}
