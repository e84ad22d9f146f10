//! Everything that touches the machine: sysfs, topology, driver binding, and the probes.
//!
//! All system `unsafe` of the project lives here. Every reader of files takes a [`Root`], so that a test can
//! hand it a tree that was recorded on another machine.
//!
//! # Where to change what
//!
//! - `pci`, `config`, `topology`, `environment`, `inventory`, `nodes`: what the machine has.
//! - `bind`: drivers of functions. `registers`: the table of safe registers. `link`: what is known of a link; `floor`,
//!   `ceiling`: what it can do.
//! - `probe`: the backends that take samples, each one file or folder. `probe/open.rs` judges which of them can measure
//!   a function, also for `list`.
//! - `probe/trigger.rs`: a device that can raise its own interrupt, together with kmod/pcilat/trigger.c.
//! - `daq`: what `readout` reads from, each one file with its `open`, and the ways to read (`-B`, also in
//!   crates/cli/src/cmd/readout/options.rs).
//! - `synthetic`: a machine with traffic that does not exist (`--backend fake` of `stat`, `top` and `serve`).
//! - `perf`: counters and hot spots. `account`: what the kernel itself counted, each source one file.
//! - `watch`: links over time: what changed, and why.
//! - `tune`: the knobs of a device, each a row of `tune/table.rs`, and how they are put back.
//! - `doctor`: each check is a function and its line in `CHECKS`, with tests/doctor/CHECK.fires and .quiet
//!   (docs/doctor.md). A check that is also a warning of measurements has `warns_as` there and its code in
//!   docs/record.md.

pub mod account;
pub mod bind;
pub mod block;
pub mod ceiling;
pub mod check;
pub mod config;
pub mod daq;
pub mod doctor;
pub mod environment;
pub mod error;
mod express;
pub mod floor;
mod guard;
mod header;
pub mod host;
pub mod inventory;
mod kept;
pub mod link;
pub mod memory;
pub mod nodes;
pub mod pci;
pub mod perf;
pub mod placement;
pub mod probe;
pub mod registers;
pub mod signals;
pub mod synthetic;
pub mod sysfs;
pub mod topology;
pub mod tune;
pub mod usage;
pub mod wait;
pub mod watch;
pub mod why;

pub use error::Error;
pub use sysfs::Root;

#[cfg(test)]
mod test;
