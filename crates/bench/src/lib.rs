//! The experiments: a plan and a probe in, records out.
//!
//! An experiment decides in which slices the probe measures. It adds what a reader needs to judge the figures: the
//! machine, floors, warnings, the spread over rounds. It hands each record to a [`pciescope_core::Sink`] as soon as it
//! is complete, so that a killed run keeps the records until then. It prints nothing and writes no file.
//!
//! # Where to change what
//!
//! - `counters`: the experiment of `stat`. `convert`: that of `convert`; a kernel is added in `convert/spec.rs` and
//!   bench/convert/peers.c.
//! - `workload`: a workload of known traffic for `verify`, one file each.
//! - `readout`: `sweep.rs` has the measurements of the campaign, with their table and chart in
//!   crates/report/src/readout/figures.rs. `record.rs` has the figures, with crates/report/src/table/readout.rs,
//!   docs/record.md and docs/readout.md.
#![forbid(unsafe_code)]

pub mod convert;
pub mod counters;
pub mod error;
pub mod irq;
pub mod journal;
pub mod mmio;
pub mod on;
mod online;
pub mod path;
pub mod readout;
pub mod run;
mod schedule;
pub mod soak;
mod totals;
pub mod tune;
pub mod verify;
pub mod watch;
pub mod why;
pub mod workload;

pub use error::Error;
pub use journal::{Journal, Summary};
pub use run::{Run, Setup};
