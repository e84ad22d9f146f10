//! The CPUs of the machine and their places.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use pciescope_core::{Cpu, CpuList};

use crate::environment::machine;
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
    let mut cpus: Vec<Cpu> = online(root)?.iter().map(|cpu| place(root, cpu)).collect();
    let packages: BTreeMap<u32, Option<u32>> = cpus.iter().map(|cpu| (cpu.cpu, cpu.package)).collect();
    for cpu in &mut cpus {
        cpu.l3 = l3(root, cpu.cpu).filter(|shared| is_in_a_package(shared, &packages)).and_then(|s| s.iter().next());
    }
    Ok(cpus)
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
    if machine(root) != "aarch64" {
        return 0;
    }
    let folder = |cpu: u32| PathBuf::from(CPUS).join(format!("cpu{cpu}/topology"));
    // -1 where the firmware describes no cluster; then the CPU is alone in its list.
    let has_none = |cpu: u32| root.text(folder(cpu).join("cluster_id")).is_some_and(|id| id.starts_with('-'));
    let cluster = |cpu: u32| list(root, folder(cpu).join("cluster_cpus_list")).ok()?.iter().next();
    online(root).map_or(0, |cpus| {
        cpus.iter().filter(|&cpu| !has_none(cpu)).filter_map(cluster).collect::<BTreeSet<u32>>().len()
    })
}

/// What sysfs says of a CPU, without its L3 cache.
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
        l3: None,
        core: threads.as_ref().and_then(|threads| threads.iter().next()),
        thread: threads.and_then(|threads| Some(threads.iter().position(|cpu| cpu == number)? as u32)),
    }
}

/// The CPUs that share the L3 cache; `None` where the machine has none or does not describe it.
fn l3(root: &Root, cpu: u32) -> Option<CpuList> {
    let cache = PathBuf::from(CPUS).join(format!("cpu{cpu}/cache"));
    let index = root.names(&cache).into_iter().find(|index| root.number(cache.join(index).join("level")) == Some(3))?;
    list(root, cache.join(index).join("shared_cpu_list")).ok()
}

/// Whether these CPUs are in one package. A cache that spans several is none: Linux on arm64 says of a cache that the
/// firmware does not describe that all CPUs share it.
fn is_in_a_package(shared: &CpuList, packages: &BTreeMap<u32, Option<u32>>) -> bool {
    let known: BTreeSet<u32> = shared.iter().filter_map(|cpu| packages.get(&cpu).copied().flatten()).collect();
    known.len() <= 1
}

fn list(root: &Root, at: PathBuf) -> Result<CpuList, Error> {
    let text = root.read(&at)?;
    text.parse().map_err(|_| Error::Parse { path: root.path(at), text, what: "a list of CPUs" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::Tree;

    /// A machine of two clusters with two CPUs each; `files` are changes to it.
    fn arm(files: &[(&str, &str)]) -> Tree {
        let tree = Tree::of(&[("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n")]);
        tree.put(format!("{CPUS}/online"), "0-3\n");
        for cpu in 0..4 {
            let mates = if cpu < 2 { "0-1\n" } else { "2-3\n" };
            tree.put(format!("{CPUS}/cpu{cpu}/topology/cluster_cpus_list"), mates);
            tree.put(format!("{CPUS}/cpu{cpu}/topology/cluster_id"), if cpu < 2 { "0\n" } else { "54\n" });
        }
        files.iter().for_each(|(path, text)| tree.put(path, text));
        tree
    }

    #[test]
    fn a_cache_that_spans_packages_is_none() {
        let at = |cpu: u32, file: &str| format!("{CPUS}/cpu{cpu}/{file}");
        // The packages, the CPUs that share the cache, and what is said of it.
        let ones = [0; 4].map(Some);
        for (packages, shared, wanted) in [
            (["0", "0", "0", "0"], "0-3", ones),
            (["0", "0", "1", "1"], "0-3", [None; 4]),
            // A machine that does not say its packages.
            (["-1", "-1", "-1", "-1"], "0-3", ones),
            (["0", "0", "1", "1"], "mates", [Some(0), Some(0), Some(2), Some(2)]),
        ] {
            let mut files = Vec::new();
            for cpu in 0..4 {
                let mates = if cpu < 2 { "0-1" } else { "2-3" };
                files.push((at(cpu, "topology/physical_package_id"), packages[cpu as usize]));
                files.push((at(cpu, "cache/index3/level"), "3"));
                files.push((at(cpu, "cache/index3/shared_cpu_list"), if shared == "mates" { mates } else { shared }));
            }
            let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            let root = arm(&files);
            let l3: Vec<Option<u32>> = cpus(&root).unwrap().iter().map(|cpu| cpu.l3).collect();
            assert_eq!(l3, wanted, "packages {packages:?}, shared by {shared}");
        }
    }

    #[test]
    fn clusters_are_counted_on_an_arm_also_if_the_kernel_does_not_name_the_architecture() {
        let root = arm(&[("/proc/sys/kernel/arch", "aarch64\n")]);
        assert_eq!(clusters(&root), 2);
        let root = arm(&[]);
        assert_eq!(clusters(&root), 2);
        let root = arm(&[("/proc/sys/kernel/arch", "x86_64\n")]);
        assert_eq!(clusters(&root), 0);
    }

    #[test]
    fn cpus_that_are_in_no_cluster_are_not_counted_as_clusters() {
        let own = |cpu: u32| {
            let at = format!("{CPUS}/cpu{cpu}/topology");
            [(format!("{at}/cluster_id"), "-1\n".to_owned()), (format!("{at}/cluster_cpus_list"), format!("{cpu}\n"))]
        };
        for (alone, wanted) in [(0..4, 0), (2..4, 1)] {
            let files: Vec<(String, String)> = alone.clone().flat_map(own).collect();
            let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            let root = arm(&files);
            assert_eq!(clusters(&root), wanted, "{alone:?}");
        }
    }
}
