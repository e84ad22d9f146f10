//! Hardware counters through perf: which PMUs the machine has, and reading their counts.
//!
//! A PMU is opened by its `type` number and one CPU of its `cpumask`, so instances with similar names stay separate
//! (perf itself strips a numeric suffix and adds them up). The catalogue, not this module, knows what events mean.
//! docs/pmu.md describes our own drivers' PMUs.

mod delta;
mod error;
mod event;
mod format;
mod functions;
mod group;
mod pmu;
mod ring;
mod sample;
mod symbols;
mod sys;
mod trace;
mod tracefs;

pub use delta::{Delta, Doubt};
pub use error::Error;
pub use event::{Config, Event};
pub use format::Field;
pub use group::{Group, Packed, Reading, Values};
pub use pmu::{By, Named, Pmu, named, pmus, present};
pub use sample::{Kind, Profile, Sampler, Sampling, Whom};
pub use symbols::Symbols;
pub use sys::thread_number;
pub(crate) use trace::{Hits, Piece, Tracepoints, pieces};
pub(crate) use tracefs::Format;

pub use crate::memory::Pinned as Stay;

/// Holds this thread on a CPU, as [`crate::probe`] does, until the value is dropped: a counter is read there without a call to
/// another CPU.
///
/// # Errors
/// EINVAL where the CPU is offline, or this process may not run there.
pub fn stay_on(cpu: u32) -> std::io::Result<Stay> {
    Stay::to(cpu)
}
