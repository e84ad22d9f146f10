//! Handles the signal of a mapped page that cannot be read (SIGBUS): it replaces the page with zeros, and reports this
//! to the owner of the mapping.
//!
//! A signal handler belongs to the process, so a table of the process lists the mappings that it handles. A fault at
//! any other address goes to the handler that was installed before.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A mapping that is answered for; `start` 0: the place is free, 1: it is being filled.
struct Place {
    start: AtomicUsize,
    len: AtomicUsize,
    is_hit: AtomicBool,
}

/// More streams than a machine has devices.
const PLACES: usize = 256;
const FILLING: usize = 1;

#[expect(clippy::declare_interior_mutable_const, reason = "an initial value; every place of the table has its own")]
const FREE: Place = Place { start: AtomicUsize::new(0), len: AtomicUsize::new(0), is_hit: AtomicBool::new(false) };
static TABLE: [Place; PLACES] = [FREE; PLACES];

/// A mapping's place in the table, until dropped. It has to be dropped before the mapping.
#[derive(Debug)]
pub struct Guard(usize);

impl Guard {
    /// Answers for `len` bytes from `start` from now on.
    ///
    /// # Errors
    /// ENOMEM when 256 mappings are answered for.
    pub fn new(start: usize, len: usize) -> io::Result<Self> {
        install();
        for (index, place) in TABLE.iter().enumerate() {
            if place.start.compare_exchange(0, FILLING, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                place.is_hit.store(false, Ordering::Relaxed);
                place.len.store(len, Ordering::Relaxed);
                place.start.store(start, Ordering::Release);
                return Ok(Guard(index));
            }
        }
        Err(io::Error::from_raw_os_error(libc::ENOMEM))
    }

    /// Whether a page could not be read.
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
        if start > FILLING && address >= start && address - start < len && put_zeros(address) {
            place.is_hit.store(true, Ordering::Release);
            return;
        }
    }
    // SAFETY: the action of before was stored before this handler was set. The access faults again and finds it.
    unsafe { libc::sigaction(libc::SIGBUS, (*BEFORE.0.get()).as_ptr(), std::ptr::null_mut()) };
}

/// Puts a page of zeros where the page of `address` is.
fn put_zeros(address: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page lies in a mapping of ours that its owner is reading from; zeros may stand there.
    unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let start = std::ptr::without_provenance_mut(address - address % page);
        libc::mmap(start, page, libc::PROT_READ, flags, -1, 0) != libc::MAP_FAILED
    }
}
