//! Configuration reads through sysfs: needs no unbinding and no module, and includes a system call in each figure.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use pciescope_core::{Bdf, Function, PathPlan};

use super::resource::{folder, presence};
use super::userspace::{Job, Target, measure};
use super::{Probe, Sampled, Slice, Watch, failure};
use crate::{Error, Root};

/// The functions from the root port down to the measured one.
#[derive(Debug)]
pub struct Sysfs {
    bdf: Bdf,
    hops: Vec<Hop>,
    emulated: bool,
}

#[derive(Debug)]
struct Hop {
    bdf: Bdf,
    config: File,
}

impl Sysfs {
    /// Opens the configuration space of every function of the path.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn open(root: &Root, function: &Function, bdf: Bdf) -> Result<Self, Error> {
        let hops = function.path.iter().copied().chain([bdf]).map(|hop| {
            let path = folder(root, hop).join("config");
            match File::open(&path) {
                Ok(config) => Ok(Hop { bdf: hop, config }),
                Err(source) => Err(Error::Read { path, source }),
            }
        });
        Ok(Sysfs { bdf, hops: hops.collect::<Result<_, _>>()?, emulated: function.emulated.is_some() })
    }
}

/// Four bytes of a function's configuration space.
pub(super) struct ConfigRead<'a> {
    pub config: &'a File,
    pub offset: u64,
}

/// The configuration space of the port above a function, of which everybody may read the beginning; none on a root bus.
pub(super) fn above(root: &Root, function: &Function) -> Option<File> {
    File::open(folder(root, *function.path.last()?).join("config")).ok()
}

impl Target for ConfigRead<'_> {
    #[inline(always)]
    fn access(&self) -> (u64, bool) {
        let mut bytes = [0; 4];
        let read = self.config.read_at(&mut bytes, self.offset);
        (u32::from_le_bytes(bytes).into(), !matches!(read, Ok(4)) || bytes == [0xff; 4])
    }
}

impl Probe for Sysfs {
    fn backend(&self) -> &'static str {
        "sysfs"
    }

    fn bdf(&self) -> Bdf {
        self.bdf
    }

    fn path(&mut self, plan: &PathPlan, slice: &Slice, watch: &dyn Watch) -> Result<Sampled, Error> {
        let asked = u64::from(plan.offset);
        if asked % 4 != 0 || asked > 0xffc {
            let why = "a configuration read has 4 bytes at a multiple of 4 below 0x1000".to_owned();
            return Err(Error::Plan { bdf: self.bdf, field: "offset", value: format!("{asked:#x}"), why });
        }
        let targets: Vec<ConfigRead> = self
            .hops
            .iter()
            .map(|hop| {
                let wanted = ConfigRead { config: &hop.config, offset: asked };
                // A function with 256 bytes, or a user who may read 64 only: the identity is always there.
                if wanted.access().1 { ConfigRead { offset: 0, ..wanted } } else { wanted }
            })
            .collect();
        let gone = || self.hops.iter().find_map(|hop| presence(&hop.config, hop.bdf));
        let job = Job {
            backend: "sysfs",
            bdf: self.bdf,
            emulated: self.emulated,
            slice,
            gap_ns: plan.gap_ns,
            batch: 1,
            ones_ok: false,
            raw: plan.why.is_some(),
            control: None,
            place: &format!("configuration offset {asked:#x} or 0x0"),
            gone: &gone,
        };
        let mut sampled = measure(&targets, &job, watch)?;
        sampled.method.notes.push(
            "Coarse: each figure holds a pread system call and the kernel's lock around configuration space; the \
             calibration holds the stamps alone. Differences between hops are cleaner than the figures."
                .to_owned(),
        );
        for outcome in &mut sampled.outcomes {
            let hop = usize::from(outcome.index);
            outcome.hop = Some(self.hops[hop].bdf);
            if targets[hop].offset != asked {
                outcome.warnings.push(failure::no_extended_space(plan.offset, targets[hop].offset));
            }
        }
        Ok(sampled)
    }
}

#[cfg(test)]
mod tests {
    use pciescope_core::Order;
    use pciescope_core::outcome::LATENCY;

    use super::*;
    use crate::test::{Silent, Tree};

    /// A tree with a port of 4096 bytes and an endpoint of 256, as for conventional PCI.
    fn tree(first: [u8; 4]) -> (Tree, Function) {
        let tree = Tree::new();
        let (port, end): (Bdf, Bdf) = ("0000:00:01.0".parse().unwrap(), "0000:01:00.0".parse().unwrap());
        for (bdf, len) in [(port, 4096), (end, 256)] {
            let mut config = vec![0; len];
            config[..4].copy_from_slice(&first);
            tree.put(format!("sys/bus/pci/devices/{bdf}/config"), config);
        }
        (tree, Function { bdf: Some(end), path: vec![port], ..Function::default() })
    }

    fn run(first: [u8; 4]) -> Sampled {
        let (root, function) = tree(first);
        let bdf = function.bdf.unwrap();
        let plan = PathPlan {
            bdf,
            offset: 0x100,
            count: 500,
            gap_ns: 0,
            order: Order::Sequential,
            cpus: [crate::probe::sys::current_cpu()].into_iter().collect(),
            why: None,
        };
        let slice = Slice { cpus: plan.cpus.clone(), count: 500, duration_ns: 0 };
        Sysfs::open(&root, &function, bdf).unwrap().path(&plan, &slice, &Silent).unwrap()
    }

    #[test]
    fn every_hop_is_read_as_often_and_the_short_one_at_its_identity() {
        let sampled = run([0x86, 0x80, 1, 2]);
        assert_eq!(sampled.failure, None);
        assert_eq!(sampled.outcomes.len(), 2);
        assert!(sampled.outcomes.iter().all(|o| o.histograms[LATENCY].count() == 500));
        assert_eq!(sampled.outcomes[1].hop, Some("0000:01:00.0".parse().unwrap()));
        let codes = |i: usize| sampled.outcomes[i].warnings.iter().map(|w| w.code.as_str()).collect::<Vec<_>>();
        assert_eq!((codes(0), codes(1)), (vec![], vec!["no-extended-space"]));
        assert!(sampled.method.notes.iter().any(|note| note.starts_with("Coarse")));
    }

    #[test]
    fn a_device_that_does_not_answer_is_removed() {
        assert_eq!(run([0xff; 4]).failure.unwrap().code, "removed");
    }
}
