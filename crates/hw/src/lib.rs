//! Everything that touches the machine: sysfs, topology, driver binding, and the probes.
//!
//! All system `unsafe` of the project lives here. Every reader of files takes a [`Root`], so that a test can
//! hand it a tree that was recorded on another machine.

pub mod bind;
pub mod block;
pub mod ceiling;
pub mod check;
pub mod config;
pub mod daq;
pub mod doctor;
pub mod environment;
pub mod error;
pub mod floor;
#[cfg(test)]
mod header;
pub mod inventory;
pub mod memory;
pub mod pci;
pub mod perf;
pub mod placement;
pub mod probe;
pub mod registers;
pub mod survey;
pub mod sysfs;
pub mod topology;
pub mod usage;
pub mod wait;

pub use error::Error;
pub use sysfs::Root;
