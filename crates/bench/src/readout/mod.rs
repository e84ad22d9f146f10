//! Readouts: bytes fetched from devices by a thread each, converted, and what that cost.
//!
//! `plan.rs` has what is read of what, `worker.rs` what a thread does, `row.rs` its figures, `check.rs` whether the data is
//! right, `record.rs` the records, `sweep.rs` the seed's campaign. Nothing here knows a device: all come as
//! [`pciescope_hw::daq::Daq`].

mod check;
mod group;
mod plan;
mod record;
mod row;
pub mod sweep;
mod worker;

pub use group::{Host, Task, measure};
pub use pciescope_core::Check;
pub use plan::{Board, Group, Opener, ReadoutOptions, Source, work};
