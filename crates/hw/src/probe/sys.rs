//! The system calls of the probes behind safe functions.
//!
//! libc and not rustix or nix, because neither has sched_setscheduler.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Once;
use std::time::Duration;

pub use crate::placement::Pinned;

/// -1 becomes the error of errno.
pub fn checked(ret: libc::c_int) -> io::Result<libc::c_int> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

/// The CPU this thread runs on now.
pub fn current_cpu() -> u32 {
    // SAFETY: has no arguments; fails only on kernels without the call, which predate all that we run on.
    unsafe { libc::sched_getcpu() as u32 }
}

/// Involuntary context switches of this thread since it began.
///
/// # Errors
/// Those of getrusage, which do not occur with good arguments.
pub fn involuntary_switches() -> io::Result<u64> {
    // SAFETY: an all-zero rusage is valid, and the kernel writes no more than one.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        checked(libc::getrusage(libc::RUSAGE_THREAD, &mut usage))?;
        usage
    };
    Ok(usage.ru_nivcsw as u64)
}

/// Keeps all pages of the process in memory until dropped; says why not where it is not allowed.
#[derive(Debug)]
pub struct Locked(());

impl Locked {
    /// Locks what is mapped now.
    ///
    /// # Errors
    /// EPERM or ENOMEM without CAP_IPC_LOCK or above the limit.
    pub fn now() -> io::Result<Self> {
        // SAFETY: changes how pages are kept, not what they hold.
        checked(unsafe { libc::mlockall(libc::MCL_CURRENT) })?;
        Ok(Locked(()))
    }
}

/// What a record says where memory could not be locked.
pub fn not_locked(error: io::Error) -> String {
    format!("Memory could not be locked ({error}): a page fault may fall into a sample.")
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::munlockall() };
    }
}

/// Runs this thread under SCHED_FIFO until dropped.
#[derive(Debug)]
pub struct RealTime {
    policy: libc::c_int,
    priority: libc::sched_param,
}

impl RealTime {
    /// Priority 50: above ordinary threads and below the kernel's own real-time work.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_NICE or a limit that allows it.
    pub fn now() -> io::Result<Self> {
        let mut priority = libc::sched_param { sched_priority: 0 };
        // SAFETY: 0 is this thread; the structure is ours.
        let policy = checked(unsafe { libc::sched_getscheduler(0) })?;
        // SAFETY: as above.
        checked(unsafe { libc::sched_getparam(0, &mut priority) })?;
        let fifo = libc::sched_param { sched_priority: 50 };
        // SAFETY: as above.
        checked(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &fifo) })?;
        Ok(RealTime { policy, priority })
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::sched_setscheduler(0, self.policy, &self.priority) };
    }
}

/// A mapping of a device's or a file's memory.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is used by volatile accesses only.
unsafe impl Send for Mapping {}
// SAFETY: as above; what simultaneous accesses mean is the device's affair.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes from `offset` (a multiple of the page) of a file, shared.
    ///
    /// # Errors
    /// Those of mmap.
    pub fn new(file: &File, offset: u64, len: usize, writable: bool) -> io::Result<Self> {
        let access = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, file.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Mapping { start, len })
    }

    /// How many bytes are mapped.
    #[allow(clippy::len_without_is_empty, reason = "the kernel makes no empty mapping")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The address of byte `offset`.
    ///
    /// # Panics
    /// If `len` bytes from there do not lie inside.
    pub fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "{offset} + {len} lies outside");
        // SAFETY: the offset lies inside the mapping, as just checked.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever borrowed from it is gone.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Bytes of a page.
pub fn page_bytes() -> u64 {
    // SAFETY: has no side effects.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

/// A counter that the kernel raises and we wait for.
#[derive(Debug)]
pub struct EventFd(File);

impl EventFd {
    /// A new counter at 0 whose reads do not block.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn new() -> io::Result<Self> {
        // SAFETY: makes a descriptor and touches nothing.
        let fd = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the descriptor was just made and nobody else has it.
        Ok(EventFd(File::from(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Its descriptor, for handing to the kernel.
    pub fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The counter, which is 0 afterwards.
    ///
    /// # Errors
    /// Those of read, EAGAIN (counter 0) aside.
    pub fn take(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        match io::Read::read(&mut &self.0, &mut count) {
            Ok(_) => Ok(u64::from_ne_bytes(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Whether the counter is raised within `timeout`. A signal ends the wait early with `false`.
    ///
    /// # Errors
    /// Those of ppoll, EINTR aside.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let mut poll = libc::pollfd { fd: self.raw(), events: libc::POLLIN, revents: 0 };
        let time = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos() as libc::c_long,
        };
        // SAFETY: one structure of ours for one descriptor of ours.
        match checked(unsafe { libc::ppoll(&mut poll, 1, &time, std::ptr::null()) }) {
            Ok(ready) => Ok(ready > 0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// An ioctl with a structure of ours that the kernel reads, writes or both.
///
/// # Safety
/// `request` has to be one whose argument is a `T`, or what a `T` begins, and every address in it has to be good for
/// what the kernel does with it.
pub unsafe fn ioctl<T>(file: &File, request: libc::Ioctl, argument: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the caller's promise.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), request, std::ptr::from_mut(argument)) })
}

/// A thread whose system call can be interrupted.
#[derive(Debug, Clone, Copy)]
pub struct Interruptible(libc::pthread_t);

// SAFETY: pthread_t is an integer or an address that is only handed to pthread_kill.
unsafe impl Send for Interruptible {}

/// The signal that interrupts the system call. Nothing else uses it, and its handler does nothing.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 7
}

extern "C" fn nothing(_: libc::c_int) {}

impl Interruptible {
    /// Makes this thread interruptible. All other signals go to other threads, so that they do not end its system call.
    ///
    /// # Errors
    /// Those of sigaction and pthread_sigmask, which do not occur with good arguments.
    pub fn this_thread() -> io::Result<Self> {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // SAFETY: an all-zero sigaction is valid; the handler is a function that does nothing, without
            // SA_RESTART, so that the system call ends with EINTR.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = nothing as *const () as libc::sighandler_t;
                libc::sigaction(signal(), &action, std::ptr::null_mut());
            }
        });
        // SAFETY: the set is ours, and only this thread's mask changes.
        let failed = unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::sigdelset(&mut all, signal());
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut())
        };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: has no arguments.
        Ok(Interruptible(unsafe { libc::pthread_self() }))
    }

    /// Ends the system call that the thread is in; to be repeated until the thread says that it is out, because the
    /// call may not have begun.
    ///
    /// # Safety
    /// The thread must not have been joined.
    pub unsafe fn interrupt(self) {
        // SAFETY: the caller's promise; a thread that has ended but is not joined gives ESRCH.
        unsafe { libc::pthread_kill(self.0, signal()) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_call_that_waits_is_ended_by_the_signal() {
        let (send, receive) = mpsc::channel();
        let begun = Instant::now();
        let thread = std::thread::spawn(move || {
            send.send(Interruptible::this_thread().unwrap()).unwrap();
            let never = EventFd::new().unwrap();
            never.wait(Duration::from_secs(20)).unwrap()
        });
        let target = receive.recv().unwrap();
        while !thread.is_finished() {
            // SAFETY: it is joined below.
            unsafe { target.interrupt() };
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!thread.join().unwrap());
        assert!(begun.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn an_event_counter_is_taken_once() {
        let event = EventFd::new().unwrap();
        assert!(!event.wait(Duration::ZERO).unwrap());
        for _ in 0..3 {
            io::Write::write_all(&mut &event.0, &1u64.to_ne_bytes()).unwrap();
        }
        assert!(event.wait(Duration::ZERO).unwrap());
        assert_eq!((event.take().unwrap(), event.take().unwrap()), (3, 0));
    }

    #[test]
    #[should_panic(expected = "lies outside")]
    fn an_address_past_the_mapping_is_never_handed_out() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        Mapping::new(&file, 0, 4096, true).unwrap().at(4093, 4);
    }
}
