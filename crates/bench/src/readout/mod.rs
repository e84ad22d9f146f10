//! Readouts: a thread for each device reads bytes and converts them; the records show how long that takes and what it
//! costs.
//!
//! `plan.rs` says what to read from which device, `worker.rs` is the work of a thread, `row.rs` its figures, `check.rs`
//! compares the data, `record.rs` makes the records, `sweep.rs` is the seed's campaign. Nothing here depends on a kind
//! of device: each is a [`pciescope_hw::daq::Daq`].

mod check;
mod group;
mod plan;
mod record;
mod row;
pub mod sweep;
mod worker;

pub use check::Check;
pub use group::{Host, Task, measure};
pub use plan::{Board, Group, Opener, ReadoutOptions, Source, work};
