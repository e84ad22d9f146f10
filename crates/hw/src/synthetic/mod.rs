//! A synthetic machine with traffic: `--backend fake` of all verbs that count.
//!
//! It is a folder of files as sysfs and procfs would show them, so that all code that reads a machine can read this one
//! too: the kernel's accounts come from its files. The counts of hardware are computed when they are read
//! ([`Synthetic::count`]). Both follow from the same traffic ([`traffic`]). The folder is removed with its last
//! [`Root`].

mod files;
pub(crate) mod key;
mod traffic;

use std::io;
use std::sync::Arc;

use tempfile::TempDir;

use crate::Root;
use crate::probe::fake::Options;
use crate::wait::now_ns;

/// The machine.
#[derive(Debug)]
pub struct Synthetic {
    folder: TempDir,
    /// When its traffic began, on CLOCK_MONOTONIC.
    begun_ns: u64,
    /// Whether the link of the second disk repairs errors.
    is_sick: bool,
    /// Where its traffic began, in the seconds of its waves: machines of one kind are not busy at the same time.
    ahead_s: f64,
}

impl Synthetic {
    /// A machine whose traffic begins now.
    ///
    /// # Errors
    /// When no folder can be made for its files, or no file.
    pub fn root(options: &Options) -> io::Result<Root> {
        let folder = tempfile::Builder::new().prefix("pciescope-fake-").tempdir()?;
        files::make(folder.path(), options)?;
        let is_sick = options.host.is_none() || options.replays;
        let machine = Synthetic { folder, begun_ns: now_ns(), is_sick, ahead_s: (options.salt() % 100) as f64 };
        machine.advance(machine.begun_ns);
        Ok(Root::synthetic(Arc::new(machine)))
    }

    /// Where its files are.
    pub(crate) fn path(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Brings the files in which the kernel counts to a moment of CLOCK_MONOTONIC.
    pub fn advance(&self, at_ns: u64) {
        // A file that cannot be written keeps its last count.
        let _ = files::advance(self.folder.path(), self.seconds(at_ns), self.is_sick);
    }

    /// What an event of a PMU of hardware has counted up to a moment, in what the driver counts in.
    pub fn count(&self, pmu: &str, terms: &str, at_ns: u64) -> u64 {
        traffic::count(pmu, terms, self.seconds(at_ns), self.is_sick)
    }

    /// Since the traffic began.
    fn seconds(&self, at_ns: u64) -> f64 {
        self.ahead_s + at_ns.saturating_sub(self.begun_ns) as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use pciescope_core::Bdf;

    use super::*;
    use crate::account::{Accounts, Count};
    use crate::perf;

    /// What hardware counts is never less than what the kernel counts, and not much more where the kernel sees all.
    #[test]
    fn hardware_counts_what_the_kernel_counts_and_a_little_more() {
        let root = Synthetic::root(&Options::default()).unwrap();
        let machine = root.machine().unwrap();
        let start = machine.begun_ns;
        let mut accounts = Accounts::open(&root);
        let second = start + 1_000_000_000;
        machine.advance(second);
        accounts.read();
        for port in ["0000:00:02.0", "0000:00:03.0", "0000:80:01.0"] {
            let port: Bdf = port.parse().unwrap();
            let pmus = perf::pmus(&root);
            let pmu = pmus.iter().find(|pmu| pmu.function() == Some(port)).unwrap();
            for (event, count) in [("rx_pcie_tlp_data_payload", Count::Rx), ("tx_pcie_tlp_data_payload", Count::Tx)] {
                let hardware = machine.count(&pmu.name, event, second) - machine.count(&pmu.name, event, start);
                let kernel = accounts.value(port, count).unwrap();
                let ratio = hardware as f64 / kernel as f64;
                assert!((1.0..1.1).contains(&ratio) && kernel > 1_000_000, "{port} {event}: {hardware} and {kernel}");
            }
        }
        // The traffic of this one is device to device: the kernel knows nothing of it.
        let gpu: Bdf = "0000:80:02.0".parse().unwrap();
        assert_eq!(accounts.value(gpu, Count::Rx), None);
        assert!(accounts.value(gpu, Count::Interrupts).is_some());
        assert_eq!(accounts.take_doubts(), []);
    }

    #[test]
    fn its_folder_goes_with_it() {
        let root = Synthetic::root(&Options::default()).unwrap();
        let path = root.path("/");
        let other = root.clone();
        drop(root);
        assert!(path.exists() && !other.is_live());
        drop(other);
        assert!(!path.exists());
    }

    #[test]
    fn counts_never_fall() {
        let root = Synthetic::root(&Options::default()).unwrap();
        let machine = root.machine().unwrap();
        for pmu in perf::pmus(&root) {
            for event in pmu.events.keys().filter(|event| *event != "one_cycle") {
                let mut last = 0;
                for step in 0..200 {
                    let now = machine.count(&pmu.name, event, machine.begun_ns + step * 100_000_000);
                    assert!(now >= last, "{}/{event}/ fell from {last} to {now}", pmu.name);
                    last = now;
                }
            }
        }
    }
}
