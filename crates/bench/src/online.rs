//! Whether the CPUs of a plan stay online. A probe that works on one CPU does not notice when another goes offline.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use pciescope_core::CpuList;
use pciescope_hw::probe::Watch;
use pciescope_hw::{Root, topology};

/// How often the kernel's list is read.
const POLL: Duration = Duration::from_millis(50);

/// Watches the CPUs of a plan.
pub(crate) struct Online<'a> {
    /// `None` for a synthetic machine, whose CPUs the kernel does not know.
    root: Option<&'a Root>,
    cpus: &'a CpuList,
    seen: Mutex<Seen>,
}

struct Seen {
    at: Option<Instant>,
    gone: Option<u32>,
}

impl<'a> Online<'a> {
    pub fn new(root: Option<&'a Root>, cpus: &'a CpuList) -> Self {
        Online { root, cpus, seen: Mutex::new(Seen { at: None, gone: None }) }
    }

    /// A CPU of the plan that is not online any more.
    pub fn gone(&self) -> Option<u32> {
        let root = self.root?;
        let mut seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if seen.gone.is_none() && seen.at.is_none_or(|at| at.elapsed() >= POLL) {
            seen.at = Some(Instant::now());
            // A list that cannot be read does not count as a CPU offline.
            seen.gone = topology::online(root).ok().and_then(|online| self.cpus.minus(&online).iter().next());
        }
        seen.gone
    }
}

/// A watch that also ends the probe's call when a CPU has gone.
pub(crate) struct OnlineWatch<'a> {
    pub outer: &'a dyn Watch,
    pub online: &'a Online<'a>,
}

impl Watch for OnlineWatch<'_> {
    fn progress(&self, done: u64, total: u64) {
        self.outer.progress(done, total);
    }
    fn is_stopped(&self) -> bool {
        self.outer.is_stopped() || self.online.gone().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_goes_is_noticed_and_stays_gone() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let list = root.path("/sys/devices/system/cpu/online");
        std::fs::create_dir_all(list.parent().unwrap()).unwrap();
        std::fs::write(&list, "0-3\n").unwrap();
        let cpus: CpuList = "1,3".parse().unwrap();
        let online = Online::new(Some(&root), &cpus);
        assert_eq!(online.gone(), None);
        std::fs::write(&list, "0-2\n").unwrap();
        std::thread::sleep(POLL);
        assert_eq!(online.gone(), Some(3));
        std::fs::write(&list, "0-3\n").unwrap();
        std::thread::sleep(POLL);
        assert_eq!(online.gone(), Some(3));
        assert_eq!(Online::new(None, &cpus).gone(), None);
    }
}
