//! What every part of pciescope agrees on: addresses, CPU lists, topology, plans, histograms and records.
//!
//! This crate does no input or output and holds no unsafe code. A figure has its unit in its type or in
//! the suffix of its name (`_ns`, `_ps`, `_bytes`, `_hz`); MB is 10^6 bytes.
//!
//! # Where to change what
//!
//! - A field of a record: its type here, docs/record.md, and limits and patterns in `schema.rs`. Then write
//!   docs/record.schema.json anew (crates/report/tests/all/schema.rs says how).
//! - The meaning of a field: a new schema, with `SCHEMA` in `record.rs`, docs/record.md, and from the first release on a
//!   conversion of the old one.
//! - A function of `readout` (`-A`): `Work` in `readout.rs`, and crates/bench/src/readout/plan.rs.
#![forbid(unsafe_code)]

pub mod address;
pub mod change;
pub mod comparison;
pub mod convert;
pub mod cpulist;
pub mod environment;
pub mod finding;
pub mod histogram;
pub mod identity;
pub mod live;
pub mod loss;
pub mod named;
pub mod outcome;
pub mod plan;
pub mod readout;
pub mod record;
pub mod recording;
pub mod schema;
pub mod sink;
pub mod soak;
pub mod text;
pub mod topology;
pub mod traffic;
pub mod tune;
pub mod warning;
pub mod why;

pub use address::Bdf;
pub use change::Change;
pub use comparison::Comparison;
pub use convert::{ConvertPlan, Kernel};
pub use cpulist::CpuList;
pub use environment::{Environment, Firmware, Host, Slot};
pub use finding::{Checked, Ended, Evidence, Finding, Severity};
pub use histogram::Histogram;
pub use identity::Identity;
pub use live::Live;
pub use outcome::Outcome;
pub use plan::{IrqPlan, IrqSource, MmioPlan, MmioTest, Order, PathPlan, Plan, SoakPlan, StatPlan, WatchPlan};
pub use readout::{Access, Acquisition, HotSpot, ReadoutPlan, Stream, WaitMode, Work};
pub use record::{BarOffset, Below, Failure, Instance, Interval, Method, Metric, Record, Target, Warning};
pub use recording::Recording;
pub use sink::Sink;
pub use soak::Soak;
pub use topology::{Bar, Cpu, Device, DeviceErrors, Function, Link, LinkState, Location, PathLink, WatchedLink};
pub use tune::{Tune, TunePlan};
pub use why::{Why, WhyPlan};

/// What there is of the two; where there are both, what `join` makes of them.
pub fn joined<T>(one: Option<T>, other: Option<T>, join: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(join(one, other)),
        (one, other) => one.or(other),
    }
}

/// Each once, in the order of their first.
pub fn once<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    all.into_iter().for_each(|one| {
        if !kept.contains(&one) {
            kept.push(one);
        }
    });
    kept
}

/// A refusal by this crate: text that could not be understood, or a value outside its range.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A PCI address was not of the form `DDDD:BB:DD.F` or `BB:DD.F`, hexadecimal.
    #[error("{text:?} is not a PCI address")]
    Bdf {
        /// What was given.
        text: String,
    },
    /// A CPU list was not of the form `0-3,8`.
    #[error("{text:?} is not a CPU list: {why}")]
    CpuList {
        /// What was given.
        text: String,
        /// Which part of it is wrong.
        why: String,
    },
    /// A duration is too long for a histogram.
    #[error("{value_ps} ps is longer than a histogram can hold ({max_ps} ps)")]
    TooLong {
        /// The value, in picoseconds.
        value_ps: u64,
        /// The longest value a histogram takes, in picoseconds.
        max_ps: u64,
    },
}

impl Error {
    /// What the user can do about it, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::Bdf { .. } => Some("use the form of lspci -D, for example 0000:02:00.0"),
            Error::CpuList { .. } => Some("use taskset form, for example 0-3,8"),
            Error::TooLong { .. } => None,
        }
    }
}
