//! Where a thread runs and where its memory comes from: held on CPUs, near a device, and put back afterwards.

use std::io;
use std::marker::PhantomData;
use std::path::Path;

use pciescope_core::{Bdf, CpuList, cpulist::MAX_CPU};

use crate::probe::sys::{MASK_WORDS, Mask, affinity, set_affinity};
use crate::{Root, pci};

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

/// The CPUs that this thread may run on.
///
/// # Errors
/// EINVAL on a kernel for more CPUs than [`MAX_CPU`].
pub fn allowed() -> io::Result<CpuList> {
    affinity().map(|mask| list(&mask))
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

/// The CPUs of a NUMA node that are online; `None` where there is no such node. A node of memory alone has an empty set.
pub fn cpus_of_node(root: &Root, node: u32) -> Option<CpuList> {
    root.read(format!("/sys/devices/system/node/node{node}/cpulist")).ok()?.parse().ok()
}

/// The CPUs next to a PCI function, and its NUMA node where the firmware names one. Without a node all CPUs are
/// next to it. `None` where there is no such function, or the kernel does not say.
pub fn cpus_of_function(root: &Root, bdf: Bdf) -> Option<(CpuList, Option<u32>)> {
    cpus_of_device(root, &pci::folder(bdf))
}

/// [`cpus_of_function`] of any folder of a device in sysfs that has `numa_node` or `local_cpulist`.
pub fn cpus_of_device(root: &Root, folder: &Path) -> Option<(CpuList, Option<u32>)> {
    // -1 is no number here: the firmware says nothing.
    let node = root.number(folder.join("numa_node")).and_then(|node| u32::try_from(node).ok());
    let local = || root.text(folder.join("local_cpulist"))?.parse().ok();
    let cpus: CpuList = node.and_then(|node| cpus_of_node(root, node)).or_else(local)?;
    Some((cpus, node))
}

/// Has this thread's new memory, and the page cache that it fills, come from one NUMA node; dropping it, on the same thread, puts the
/// former policy back. Memory that is there already stays where it is.
#[derive(Debug)]
pub struct Near {
    mode: libc::c_int,
    nodes: [u64; NODE_WORDS],
    thread: PhantomData<*const ()>,
}

/// The kernel knows at most 1024 nodes.
const NODE_WORDS: usize = 16;
/// The kernel reads one bit less than it is told.
const NODE_BITS: libc::c_ulong = 64 * NODE_WORDS as libc::c_ulong + 1;

impl Near {
    /// Prefers `node`: where it has no memory left, the kernel takes what is nearest.
    ///
    /// # Errors
    /// EINVAL where the node does not exist, has no memory, or is not allowed to this process; ENOSYS on a kernel without NUMA.
    pub fn to(node: u32) -> io::Result<Self> {
        let mut former = Near { mode: 0, nodes: [0; NODE_WORDS], thread: PhantomData };
        // SAFETY: the kernel writes one int and at most NODE_BITS - 1 bits; no address is asked about.
        let ret = unsafe {
            let nodes = former.nodes.as_mut_ptr();
            libc::syscall(libc::SYS_get_mempolicy, &raw mut former.mode, nodes, NODE_BITS - 1, 0usize, 0)
        };
        // Nothing was changed yet, so nothing is to be put back.
        let former = std::mem::ManuallyDrop::new(former);
        if ret < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut nodes = [0u64; NODE_WORDS];
        let word = nodes.get_mut(node as usize / 64).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        *word = 1 << (node % 64);
        policy(libc::MPOL_PREFERRED, &nodes)?;
        Ok(std::mem::ManuallyDrop::into_inner(former))
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        let _ = policy(self.mode, &self.nodes);
    }
}

fn policy(mode: libc::c_int, nodes: &[u64; NODE_WORDS]) -> io::Result<()> {
    // SAFETY: the kernel reads NODE_BITS - 1 bits of our array; this thread's policy for new pages alone changes.
    let ret = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, nodes.as_ptr(), NODE_BITS) };
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::sys::current_cpu;

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

    #[test]
    fn a_devices_cpus_are_its_nodes_or_else_those_that_the_kernel_calls_local() {
        let folder = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let root = Root::at(folder.path());
        let bdf: Bdf = "0000:07:00.0".parse().unwrap();
        assert_eq!(cpus_of_function(&root, bdf), None);
        put("sys/bus/pci/devices/0000:07:00.0/numa_node", "-1\n");
        assert_eq!(cpus_of_function(&root, bdf), None);
        put("sys/bus/pci/devices/0000:07:00.0/local_cpulist", "0-7\n");
        assert_eq!(cpus_of_function(&root, bdf), Some(("0-7".parse().unwrap(), None)));
        put("sys/bus/pci/devices/0000:07:00.0/numa_node", "1\n");
        put("sys/devices/system/node/node1/cpulist", "4-7\n");
        assert_eq!(cpus_of_function(&root, bdf), Some(("4-7".parse().unwrap(), Some(1))));
        put("sys/devices/system/node/node2/cpulist", "\n");
        assert_eq!(cpus_of_node(&root, 2), Some(CpuList::default()));
        assert_eq!(cpus_of_node(&root, 3), None);
    }

    #[test]
    fn a_node_that_is_there_is_preferred_until_dropped_and_others_are_refused() {
        own_thread(|| {
            let mode = || {
                let mut mode: libc::c_int = -1;
                // SAFETY: the kernel writes one int; no nodes and no address are asked about.
                let ret = unsafe {
                    let none = std::ptr::null_mut::<u64>();
                    libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, none, 0usize, 0usize, 0)
                };
                (ret == 0).then_some(mode)
            };
            let before = mode();
            match Near::to(0) {
                Ok(near) => {
                    assert_eq!(mode(), Some(libc::MPOL_PREFERRED));
                    drop(near);
                    assert_eq!(mode(), before);
                }
                Err(error) => assert!(matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)), "{error}"),
            }
            for node in [777, 100_000] {
                let refused = Near::to(node).unwrap_err();
                assert!(matches!(refused.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EPERM)), "{refused}");
            }
            assert_eq!(mode(), before);
        });
    }
}
