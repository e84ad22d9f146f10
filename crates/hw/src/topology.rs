//! The CPUs of the machine and their places.

use std::collections::BTreeSet;
use std::path::PathBuf;

use pciescope_core::{Cpu, CpuList};

use crate::{Error, Root};

const CPUS: &str = "/sys/devices/system/cpu";

/// The CPUs that are online.
///
/// # Errors
/// [`Error::Read`] or [`Error::Parse`] if the kernel's list cannot be understood.
pub fn online(root: &Root) -> Result<CpuList, Error> {
    list(root, PathBuf::from(CPUS).join("online"))
}

/// The online CPUs by number, each with node, package, L3, core and thread as far as the machine says.
///
/// # Errors
/// As for [`online`]. What is missing for a single CPU becomes `None`.
pub fn cpus(root: &Root) -> Result<Vec<Cpu>, Error> {
    Ok(online(root)?.iter().map(|cpu| place(root, cpu)).collect())
}

/// The NUMA nodes with the online CPUs of each, by number; empty on a kernel without NUMA.
pub fn nodes(cpus: &[Cpu]) -> Vec<(u32, CpuList)> {
    let mut numbers: Vec<u32> = cpus.iter().filter_map(|cpu| cpu.node).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let members = |node| cpus.iter().filter(|cpu| cpu.node == Some(node)).map(|cpu| cpu.cpu).collect();
    numbers.into_iter().map(|node| (node, members(node))).collect()
}

/// How many clusters of cores an Arm machine describes: cores that share a cache or an interconnect's port.
pub fn clusters(root: &Root) -> usize {
    // x86 calls what shares an L2 cache a cluster.
    if root.text("/proc/sys/kernel/arch").is_none_or(|arch| arch != "aarch64") {
        return 0;
    }
    let folder = |cpu: u32| PathBuf::from(CPUS).join(format!("cpu{cpu}/topology"));
    let cluster = |cpu: u32| list(root, folder(cpu).join("cluster_cpus_list")).ok()?.iter().next();
    online(root).map_or(0, |cpus| cpus.iter().filter_map(cluster).collect::<BTreeSet<u32>>().len())
}

fn place(root: &Root, number: u32) -> Cpu {
    let at = PathBuf::from(CPUS).join(format!("cpu{number}"));
    // Before Linux 5.3 the list of a core's threads had only the second name.
    let threads = list(root, at.join("topology/core_cpus_list"))
        .or_else(|_| list(root, at.join("topology/thread_siblings_list")))
        .ok();
    Cpu {
        cpu: number,
        node: root.names(&at).iter().find_map(|name| name.strip_prefix("node")?.parse().ok()),
        // -1 on machines whose firmware does not say.
        package: root.number(at.join("topology/physical_package_id")).map(|package| package as u32),
        l3: l3(root, &at).and_then(|shared| shared.iter().next()),
        core: threads.as_ref().and_then(|threads| threads.iter().next()),
        thread: threads.and_then(|threads| Some(threads.iter().position(|cpu| cpu == number)? as u32)),
    }
}

/// The CPUs that share the L3 cache; `None` where the machine has none or does not describe it.
fn l3(root: &Root, cpu: &std::path::Path) -> Option<CpuList> {
    let cache = cpu.join("cache");
    let index = root.names(&cache).into_iter().find(|index| root.number(cache.join(index).join("level")) == Some(3))?;
    list(root, cache.join(index).join("shared_cpu_list")).ok()
}

fn list(root: &Root, at: PathBuf) -> Result<CpuList, Error> {
    let text = root.read(&at)?;
    text.parse().map_err(|_| Error::Parse { path: root.path(at), text, what: "a list of CPUs" })
}
