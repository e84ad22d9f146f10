//! Records to a Prometheus exporter and a live web page.
//!
//! Reads nothing but records and what it is handed of the machine's inventory: it cannot measure, and no request changes
//! anything.
#![forbid(unsafe_code)]

mod access;
mod answer;
pub mod config;
pub mod feed;
pub mod metrics;
pub mod page;
mod reload;
pub mod replay;
mod series;
pub mod server;
pub mod state;

pub use server::{Options, Server};
pub use state::{Setup, State};
