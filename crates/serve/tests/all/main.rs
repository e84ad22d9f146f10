//! The tests of the exporter.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod http;
mod metrics;
mod page;
mod unit;

mod support;
