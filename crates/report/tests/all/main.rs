//! The tests of records and of what is made of them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod compare;
mod counters;
mod golden;
mod import;
mod losses;
mod page;
mod parquet;
mod readout;
mod reports;
mod schema;
mod summary;
mod threads;
mod transcripts;

#[path = "../sample/mod.rs"]
mod sample;
