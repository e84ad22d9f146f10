//! The CPUs on which a thread runs: pins the thread, and restores its CPUs afterwards.
//!
//! libc and not rustix or nix, because their CPU sets end at 1024 CPUs.

use std::io;
use std::marker::PhantomData;

use pciescope_core::{CpuList, cpulist::MAX_CPU};

use crate::probe::sys::current_cpu;

const MASK_WORDS: usize = MAX_CPU as usize / 64 + 1;
type Mask = [u64; MASK_WORDS];

/// What limits the number of threads, for hints.
pub const THREAD_LIMITS: &str = "the number of threads or their memory is limited: see `ulimit -u`, `ulimit -v`, and pids.max \
                                 and memory.max of the control group";

/// Holds this thread on a CPU, or on some; dropping it, on the same thread, puts the former affinity back. Threads that
/// are started meanwhile inherit it.
#[derive(Debug)]
pub struct Pinned {
    cpu: u32,
    former: Mask,
    /// Affinity is a thread's own, so this stays on its thread.
    thread: PhantomData<*const ()>,
}

impl Pinned {
    /// Moves this thread to `cpu` and makes sure that it arrived.
    ///
    /// # Errors
    /// EINVAL where the CPU is offline, does not exist or the cpuset does not allow it.
    pub fn to(cpu: u32) -> io::Result<Self> {
        let pinned = Pinned::by(&mask([cpu])?)?;
        match pinned.cpu {
            now if now == cpu => Ok(pinned),
            now => Err(io::Error::other(format!("asked for CPU {cpu}, came to run on CPU {now}"))),
        }
    }

    /// Holds this thread where it is.
    ///
    /// # Errors
    /// As [`Pinned::to`].
    pub fn here() -> io::Result<Self> {
        Pinned::to(current_cpu())
    }

    /// Lets this thread run on `cpus` only.
    ///
    /// # Errors EINVAL if none of them is online and allowed for this process. If only some are, another error names
    /// the missing ones; the kernel itself would silently use the others.
    pub fn on(cpus: &CpuList) -> io::Result<Self> {
        let pinned = Pinned::by(&mask(cpus.iter())?)?;
        let missing = cpus.minus(&list(&affinity()?));
        if missing.is_empty() {
            return Ok(pinned);
        }
        Err(io::Error::other(format!("CPUs {missing} are offline, or this process may not run there")))
    }

    fn by(mask: &Mask) -> io::Result<Self> {
        let former = affinity()?;
        set_affinity(mask)?;
        Ok(Pinned { cpu: current_cpu(), former, thread: PhantomData })
    }

    /// The CPU that the thread ran on when it was moved.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // If the CPUs of before are gone, the kernel has already given the thread others.
        let _ = set_affinity(&self.former);
    }
}

/// Those of `cpus` that are online and that the cpuset of this process has. A mask that taskset has set does not matter: a
/// process may widen it.
///
/// # Errors
/// EINVAL if there are none.
pub fn allowed(cpus: &CpuList) -> io::Result<CpuList> {
    // The kernel sets what it allows of a mask.
    let _pinned = Pinned::by(&mask(cpus.iter())?)?;
    affinity().map(|mask| list(&mask))
}

fn affinity() -> io::Result<Mask> {
    let mut mask = [0; MASK_WORDS];
    // SAFETY: the kernel writes at most the given number of bytes into our array; 0 is this thread.
    let ret = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of::<Mask>(), mask.as_mut_ptr()) };
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(mask) }
}

fn set_affinity(mask: &Mask) -> io::Result<()> {
    // SAFETY: the kernel reads the given number of bytes of our array; 0 is this thread.
    let ret = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of::<Mask>(), mask.as_ptr()) };
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn mask(cpus: impl IntoIterator<Item = u32>) -> io::Result<Mask> {
    let mut mask = [0u64; MASK_WORDS];
    for cpu in cpus {
        let word = mask.get_mut(cpu as usize / 64).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        *word |= 1 << (cpu % 64);
    }
    Ok(mask)
}

fn list(mask: &Mask) -> CpuList {
    (0..=MAX_CPU).filter(|cpu| mask[*cpu as usize / 64] >> (cpu % 64) & 1 == 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> io::Result<CpuList> {
        affinity().map(|mask| list(&mask))
    }

    fn own_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_pinned_thread_runs_where_it_is_told() {
        own_thread(|| {
            let before = now().unwrap();
            for cpu in before.iter() {
                let pinned = Pinned::to(cpu).unwrap();
                assert_eq!((pinned.cpu(), current_cpu()), (cpu, cpu));
            }
            assert_eq!(now().unwrap(), before);
            assert!(Pinned::to(MAX_CPU).is_err());
            assert!(Pinned::to(MAX_CPU + 1).is_err());
        });
    }

    #[test]
    fn the_cpus_of_a_process_are_not_those_of_its_mask() {
        own_thread(|| {
            let before = now().unwrap();
            let pinned = Pinned::here().unwrap();
            assert_eq!(allowed(&before).unwrap(), before);
            assert_eq!(now().unwrap(), [pinned.cpu()].into_iter().collect());
            let missing: CpuList = before.iter().chain([MAX_CPU]).collect();
            assert_eq!(allowed(&missing).unwrap(), before);
            assert!(allowed(&[MAX_CPU].into_iter().collect()).is_err());
        });
    }

    #[test]
    fn a_kept_thread_runs_on_its_cpus_and_gets_its_affinity_back() {
        own_thread(|| {
            let before = now().unwrap();
            for cpu in before.iter() {
                let one: CpuList = [cpu].into_iter().collect();
                let kept = Pinned::on(&one).unwrap();
                assert_eq!((current_cpu(), now().unwrap()), (cpu, one.clone()));
                // A thread started meanwhile inherits it.
                assert_eq!(std::thread::spawn(|| now().unwrap()).join().unwrap(), one);
                drop(kept);
                assert_eq!(now().unwrap(), before);
            }
        });
    }

    #[test]
    fn cpus_that_are_not_there_are_named_and_change_nothing() {
        own_thread(|| {
            let before = now().unwrap();
            let some: CpuList = [before.iter().next().unwrap(), MAX_CPU].into_iter().collect();
            let error = Pinned::on(&some).unwrap_err().to_string();
            assert!(error.contains(&format!("CPUs {MAX_CPU} ")), "{error}");
            assert_eq!(now().unwrap(), before);
            let none: CpuList = [MAX_CPU].into_iter().collect();
            assert_eq!(Pinned::on(&none).unwrap_err().raw_os_error(), Some(libc::EINVAL));
            assert_eq!(Pinned::on(&CpuList::default()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
            assert_eq!(now().unwrap(), before);
        });
    }
}
