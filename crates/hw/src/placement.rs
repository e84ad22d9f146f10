//! Where a thread runs: held on CPUs, and put back afterwards.

use std::io;
use std::marker::PhantomData;

use pciescope_core::{CpuList, cpulist::MAX_CPU};

use crate::probe::sys::{MASK_WORDS, Mask, affinity, set_affinity};

/// Holds this thread on a set of CPUs; dropping it, on the same thread, puts the former affinity back.
#[derive(Debug)]
pub struct Kept {
    former: Mask,
    /// Affinity is a thread's own, so this stays on its thread.
    thread: PhantomData<*const ()>,
}

impl Kept {
    /// Lets this thread run on `cpus` only. Threads that it starts from now on inherit that.
    ///
    /// # Errors
    /// EINVAL where none of them is online and allowed to this process; another error, with their numbers, where only some are:
    /// the kernel alone would take the rest in silence.
    pub fn on(cpus: &CpuList) -> io::Result<Self> {
        let former = affinity()?;
        let mask = mask(cpus)?;
        set_affinity(&mask)?;
        let kept = Kept { former, thread: PhantomData };
        let missing = cpus.minus(&list(&affinity()?));
        if missing.is_empty() {
            return Ok(kept);
        }
        Err(io::Error::other(format!("CPUs {missing} are offline, or this process may not run there")))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // If the CPUs of before are gone, the kernel has already given the thread others.
        let _ = set_affinity(&self.former);
    }
}

fn mask(cpus: &CpuList) -> io::Result<Mask> {
    let mut mask = [0u64; MASK_WORDS];
    for cpu in cpus.iter() {
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
    use crate::probe::sys::current_cpu;

    fn allowed() -> io::Result<CpuList> {
        affinity().map(|mask| list(&mask))
    }

    fn own_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_kept_thread_runs_on_its_cpus_and_gets_its_affinity_back() {
        own_thread(|| {
            let before = allowed().unwrap();
            for cpu in before.iter() {
                let one: CpuList = [cpu].into_iter().collect();
                let kept = Kept::on(&one).unwrap();
                assert_eq!((current_cpu(), allowed().unwrap()), (cpu, one.clone()));
                // A thread started meanwhile inherits it.
                assert_eq!(std::thread::spawn(|| allowed().unwrap()).join().unwrap(), one);
                drop(kept);
                assert_eq!(allowed().unwrap(), before);
            }
        });
    }

    #[test]
    fn cpus_that_are_not_there_are_named_and_change_nothing() {
        own_thread(|| {
            let before = allowed().unwrap();
            let some: CpuList = [before.iter().next().unwrap(), MAX_CPU].into_iter().collect();
            let error = Kept::on(&some).unwrap_err().to_string();
            assert!(error.contains(&format!("CPUs {MAX_CPU} ")), "{error}");
            assert_eq!(allowed().unwrap(), before);
            let none: CpuList = [MAX_CPU].into_iter().collect();
            assert_eq!(Kept::on(&none).unwrap_err().raw_os_error(), Some(libc::EINVAL));
            assert_eq!(Kept::on(&CpuList::default()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
            assert_eq!(allowed().unwrap(), before);
        });
    }
}
