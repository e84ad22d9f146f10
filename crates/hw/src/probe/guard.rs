//! Handles the removal of a mapped device during an access: the kernel unmaps the pages and the access raises SIGBUS.
//! Here the access finds a page of all-ones instead, as the bus would have answered, and the run ends with the failure
//! that happened.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A range of addresses that belongs to a device.
struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
    is_gone: AtomicBool,
}

/// How many mappings can be guarded at once; a program measures one device, with six BARs.
const RANGES: usize = 16;
static TABLE: [Range; RANGES] =
    [const { Range { start: AtomicUsize::new(0), end: AtomicUsize::new(0), is_gone: AtomicBool::new(false) } }; RANGES];

/// Guards a mapping until it is dropped, which has to be before the mapping is.
#[derive(Debug)]
pub struct Guard(usize);

impl Guard {
    /// Guards `len` bytes from `start`. `None` if the table is full: a removal then kills the program.
    pub fn new(start: *const u8, len: usize) -> Option<Self> {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(install);
        let start = start as usize;
        TABLE.iter().enumerate().find_map(|(number, range)| {
            // `start` 1 is no mapping's address: it reserves the place until `end` is written.
            range.start.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).ok()?;
            range.is_gone.store(false, Ordering::Relaxed);
            range.end.store(start + len, Ordering::Relaxed);
            range.start.store(start, Ordering::Release);
            Some(Guard(number))
        })
    }

    /// Whether an access found its page gone.
    pub fn is_gone(&self) -> bool {
        TABLE[self.0].is_gone.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        TABLE[self.0].end.store(0, Ordering::Relaxed);
        TABLE[self.0].start.store(0, Ordering::Release);
    }
}

fn install() {
    // SAFETY: an all-zero sigaction is valid; the handler does only what a signal handler may: atomics and raw
    // system calls.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands a handler with SA_SIGINFO a valid siginfo, which has an address for SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    for range in &TABLE {
        let start = range.start.load(Ordering::Acquire);
        if start > 1 && (start..range.end.load(Ordering::Relaxed)).contains(&address) {
            // SAFETY: sysconf only reads a number.
            let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
            // SAFETY: the page lies in a mapping of a device that is guarded, so nothing of ours is overwritten;
            // the fill stays inside the page that was just mapped.
            let mapped = unsafe {
                let place = (address & !(page - 1)) as *mut libc::c_void;
                let (access, flags) =
                    (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
                let mapped = libc::mmap(place, page, access, flags, -1, 0);
                if mapped != libc::MAP_FAILED {
                    std::ptr::write_bytes(mapped.cast::<u8>(), 0xff, page);
                }
                mapped
            };
            if mapped != libc::MAP_FAILED {
                range.is_gone.store(true, Ordering::Relaxed);
                return;
            }
        }
    }
    // The address is not ours: the access is repeated and kills the program, as without this handler.
    // SAFETY: puts the default back.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
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
        let guard = Guard::new(mapping.at(0, 8192).as_ptr(), 8192).unwrap();
        // SAFETY: inside the mapping, aligned.
        let read = || unsafe { at.as_ptr().read_volatile() };
        assert_eq!((read(), guard.is_gone()), (0, false));
        file.set_len(0).unwrap();
        assert_eq!((read(), guard.is_gone()), (u32::MAX, true));
    }
}
