//! Probes: what takes samples from a device.

pub mod clock;
pub mod failure;
pub mod fake;
pub mod guard;
pub mod interrupts;
pub mod kmod;
pub mod open;
pub mod register;
pub mod resource;
pub mod sys;
pub mod sysfs;
pub mod trigger;
pub mod turns;
pub mod userspace;
pub mod vfio;

use pciescope_core::outcome::Sample;
use pciescope_core::record::{Failure, Method};
use pciescope_core::{Bdf, IrqPlan, MmioPlan, Outcome, PathPlan};

use crate::Error;

/// What a run reports to and asks while it goes on; called from the thread that runs the probe.
pub trait Watch: Sync {
    /// So many of so many samples are taken (`total` 0: the run is limited by time alone).
    fn progress(&self, done: u64, total: u64);
    /// Whether the user wants the run to end now. A probe looks at least ten times a second.
    fn is_stopped(&self) -> bool;
}

/// What a run yields. A run that ended early has `failure` and keeps what was taken before.
#[derive(Debug, Clone, Default)]
pub struct Taken {
    /// How the samples were taken.
    pub method: Method,
    /// Figures per CPU and target, in the plan's order.
    pub outcomes: Vec<Outcome>,
    /// Raw samples in the order of time, where the plan asked for them.
    pub samples: Vec<Sample>,
    /// Raw samples that were taken but overwritten before they were read.
    pub samples_lost: u64,
    /// Why the run ended before its plan was done.
    pub failure: Option<Failure>,
}

/// A way to take samples from one function.
///
/// A backend that lacks a test answers [`Error::Unsupported`]; the default methods do. An `Err` means that nothing
/// was measured; a run that began returns `Ok` with [`Taken::failure`].
pub trait Probe {
    /// The backend's name: `kmod`, `vfio`, `resource`, `sysfs`, `fake`.
    fn backend(&self) -> &'static str;
    /// The function it is opened on.
    fn bdf(&self) -> Bdf;

    /// Times register accesses from every CPU of the plan.
    ///
    /// # Guarantees
    /// - Each sample covers exactly `plan.batch` accesses of the target, made by the CPU it is filed under.
    /// - Nothing is allocated, logged or formatted between two accesses.
    /// - Nothing is subtracted: the empty stamp pair's histogram stands beside the latency's.
    fn mmio(&mut self, plan: &MmioPlan, watch: &dyn Watch) -> Result<Taken, Error> {
        let _ = (plan, watch);
        Err(self.lacks("time register accesses"))
    }

    /// Times configuration reads of every function from the root port down; one [`Outcome`] per CPU and hop.
    fn path(&mut self, plan: &PathPlan, watch: &dyn Watch) -> Result<Taken, Error> {
        let _ = (plan, watch);
        Err(self.lacks("time configuration reads"))
    }

    /// Times interrupts; one [`Outcome`] per CPU and vector.
    fn irq(&mut self, plan: &IrqPlan, watch: &dyn Watch) -> Result<Taken, Error> {
        let _ = (plan, watch);
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
