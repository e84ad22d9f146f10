//! The experiments: a plan and a probe in, records out.
//!
//! An experiment decides in which portions the probe measures, adds what a reader needs to judge the figures (the
//! machine, floors, warnings, spread over rounds) and hands each record to a [`pciescope_core::Sink`] as soon as it is
//! complete, so that a killed run keeps what it had. It prints nothing and writes no file.
#![forbid(unsafe_code)]

pub mod convert;
pub mod counters;
pub mod estimate;
pub mod irq;
pub mod mmio;
mod online;
pub mod path;
mod portion;
pub mod readout;
pub mod run;
mod steal;
pub mod verify;
pub mod workload;

pub use run::{Error, Identity, RawSink, Run, Setup, Summary};
