//! The signals that this process gets: those that it ignores since its start, and whether a process sent one.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whether this process ignores a signal. `nohup` and the `&` of a script start programs so.
///
/// # Errors
/// EINVAL for a number that is not a signal.
pub fn is_ignored(number: i32) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is given; the kernel writes the present one into our variable.
    if unsafe { libc::sigaction(number, ptr::null(), action.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded and filled it, and all zeros are valid too.
    Ok(unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

/// From now on a signal leaves its number in `last` instead of ending the program. It also leaves it in `sent` if a
/// process sent it; the kernel sends those of a terminal to the whole process group, so that children have them too.
///
/// # Errors
/// When the kernel refuses the handler.
pub fn catch(number: i32, last: Arc<AtomicUsize>, sent: Arc<AtomicUsize>) -> io::Result<()> {
    let note = move |info: &libc::siginfo_t| {
        // As the kernel's SI_FROMUSER.
        if info.si_code <= 0 {
            sent.store(number as usize, Ordering::SeqCst);
        }
        last.store(number as usize, Ordering::SeqCst);
    };
    // SAFETY: the handler only stores to atomics, which is safe in a signal handler.
    unsafe { signal_hook_registry::register_sigaction(number, note) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_a_process_sent_is_told_from_one_of_the_kernel() {
        let (last, sent) = (Arc::default(), Arc::default());
        // Nothing else here uses these two.
        let [ours, timer] = [libc::SIGUSR1, libc::SIGALRM];
        for number in [ours, timer] {
            catch(number, Arc::clone(&last), Arc::clone(&sent)).unwrap();
            assert!(!is_ignored(number).unwrap());
        }
        let seen = || (last.load(Ordering::SeqCst), sent.load(Ordering::SeqCst));
        // SAFETY: both only make the kernel send a signal, for which there is a handler.
        unsafe { libc::raise(ours) };
        assert_eq!(seen(), (ours as usize, ours as usize));
        // SAFETY: as above.
        unsafe { libc::alarm(1) };
        while seen().0 != timer as usize {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(seen().1, ours as usize);
    }

    #[test]
    fn an_ignored_signal_is_known() {
        // SAFETY: nothing here waits for this signal.
        unsafe { libc::signal(libc::SIGUSR2, libc::SIG_IGN) };
        assert!(is_ignored(libc::SIGUSR2).unwrap());
        assert!(is_ignored(0).is_err());
    }
}
