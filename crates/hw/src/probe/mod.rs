//! Probes: what takes samples from a device.
//!
//! In one call a probe measures one [`Slice`]: a number of samples, or a time, from given CPUs. The caller
//! (crates/bench) decides the order of the CPUs and the number of rounds, in the same way for every backend.

pub mod clock;
pub mod failure;
pub mod fake;
pub mod interrupts;
pub mod kmod;
pub mod open;
pub mod register;
pub mod resource;
pub mod sys;
pub mod sysfs;
pub mod trigger;
pub mod userspace;
pub mod vfio;

use std::collections::HashMap;
use std::sync::Arc;

use pciescope_core::outcome::Sample;
use pciescope_core::record::{Failure, Method};
use pciescope_core::{Bdf, CpuList, IrqPlan, MmioPlan, Outcome, PathPlan};

use crate::Error;
use crate::why::Seen;

/// What a probe reports to and asks during a call; it is called from threads of the probe too.
pub trait Watch: Sync {
    /// `done` of `total` samples are taken (`total` is 0 where time alone limits).
    fn progress(&self, done: u64, total: u64);
    /// Whether the user wants the run to end now. A probe asks at least ten times a second.
    fn is_stopped(&self) -> bool;
}

/// The part of a plan that one call measures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The CPUs that measure; if there are several, all at once.
    pub cpus: CpuList,
    /// Samples per CPU and target; 0 means as many as `duration_ns` allows, which then is not 0.
    pub count: u64,
    /// Ends the slice after this many nanoseconds even if `count` is not reached; 0 means no limit.
    pub duration_ns: u64,
}

impl Slice {
    /// The CPU of a slice for interrupts: one device has one affinity per vector.
    ///
    /// # Errors
    /// [`Error::Plan`] if there is not exactly one.
    fn only_cpu(&self, bdf: Bdf) -> Result<u32, Error> {
        let mut cpus = self.cpus.iter();
        if let (Some(cpu), None) = (cpus.next(), cpus.next()) {
            return Ok(cpu);
        }
        let why = "an interrupt is handled by one CPU at a time".to_owned();
        Err(Error::Plan { bdf, field: "CPUs", value: self.cpus.to_string(), why })
    }
}

/// The result of a call of a probe. A slice that ended early has `failure`, and keeps the samples until then.
#[derive(Debug, Clone, Default)]
pub struct Sampled {
    /// How the samples were taken. The caller, who decides the order of the CPUs, adds it.
    pub method: Method,
    /// Figures per CPU and target, CPU by CPU.
    pub outcomes: Vec<Outcome>,
    /// Raw samples in the order of time, where the plan asked for them.
    pub samples: Vec<Sample>,
    /// The address of the kernel's code that an interrupt met, by CPU and time of the sample, where the backend knows it.
    pub interrupted: HashMap<(u32, u64), u64>,
    /// What the CPUs did meanwhile, of a synthetic machine.
    pub seen: Option<Arc<Seen>>,
    /// Raw samples that were taken but overwritten before they were read.
    pub samples_lost: u64,
    /// The clock of [`clock`] at the moment to which the times of the samples refer; `None` where that is not known.
    pub begun: Option<u64>,
    /// Why the slice ended before it was done.
    pub failure: Option<Failure>,
}

/// A way to take samples from one function.
///
/// # Errors
/// A backend that lacks a test answers [`Error::Unsupported`]; the default methods do. Every `Err` means that nothing
/// was measured. A slice that began returns `Ok`, with [`Sampled::failure`] if it did not come to its end.
pub trait Probe {
    /// The backend's name: `kmod`, `vfio`, `resource`, `sysfs`, `fake`.
    fn backend(&self) -> &'static str;
    /// The function that the probe was opened on.
    fn bdf(&self) -> Bdf;

    /// Times register accesses. The slice replaces the plan's CPUs, order, count and time.
    ///
    /// # Guarantees
    /// - Each sample covers exactly `plan.batch` accesses of the target, made by the CPU of its [`Outcome`].
    /// - Between two accesses nothing is allocated, logged or formatted.
    /// - Nothing is subtracted: the empty stamp pair has a separate histogram.
    /// - The call ends within 0.1 s after [`Watch::is_stopped`] became true, and keeps the samples taken until then.
    fn mmio(&mut self, plan: &MmioPlan, slice: &Slice, watch: &dyn Watch) -> Result<Sampled, Error> {
        let _ = (plan, slice, watch);
        Err(self.lacks("time register accesses"))
    }

    /// Times configuration reads of every function from the root port down; one [`Outcome`] per CPU and hop. The
    /// slice replaces the plan's CPUs, order and count.
    ///
    /// # Guarantees
    /// As for [`Probe::mmio`]; the hops of a CPU alternate sample by sample.
    fn path(&mut self, plan: &PathPlan, slice: &Slice, watch: &dyn Watch) -> Result<Sampled, Error> {
        let _ = (plan, slice, watch);
        Err(self.lacks("time configuration reads"))
    }

    /// Times interrupts of every vector of the plan, handled on the slice's only CPU; one [`Outcome`] per vector. The
    /// slice replaces the plan's CPUs, order, count and time; the vectors share its time equally.
    ///
    /// # Guarantees
    /// - Interrupts that were lost, doubled or handled on another CPU are counted ([`interrupts::Counts`]).
    /// - When the call returns, the device is quiet and the interrupts' affinity is what it was.
    fn irq(&mut self, plan: &IrqPlan, slice: &Slice, watch: &dyn Watch) -> Result<Sampled, Error> {
        let _ = (plan, slice, watch);
        Err(self.lacks("time interrupts"))
    }

    /// Reads a register once: `width` bytes at `offset` of `bar`.
    fn read(&mut self, bar: u8, offset: u64, width: u8) -> Result<u64, Error> {
        let _ = (bar, offset, width);
        Err(self.lacks("read registers"))
    }

    /// Writes a register once.
    fn write(&mut self, bar: u8, offset: u64, width: u8, value: u64) -> Result<(), Error> {
        let _ = (bar, offset, width, value);
        Err(self.lacks("write registers"))
    }

    /// The refusal of a test that this backend does not have.
    fn lacks(&self, what: &'static str) -> Error {
        Error::Unsupported { bdf: self.bdf(), backend: self.backend(), what, why: "it has no such test".to_owned() }
    }
}
