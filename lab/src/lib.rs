//! The virtual hardware: register-level device models served over vfio-user, and the guest that runs beside them.
//!
//! Nothing here may know how the drivers and probes work: models are written from `docs/spec/`, and this crate
//! imports no other crate of ours but `pciescope-core`.

// In one place: the TSC is read where a guest is told its rate.
#![deny(unsafe_code)]

pub mod control;
pub mod device;
mod error;
pub mod server;
pub mod vm;

pub use error::Error;
pub use server::Served;
