//! The tests of the program, which drive it as a user does.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod compare;
mod completions;
mod convert;
mod doctor;
mod endings;
mod errors;
mod help;
mod kmod_makefile;
mod lab;
mod latency;
mod layers;
mod list;
mod machines;
mod man;
mod memory;
mod outputs;
mod readout;
mod refusals;
mod reg;
mod report;
mod serve;
mod serve_flood;
mod soak;
mod stat;
mod top;
mod trees;
mod tune;
mod tune_noise;
mod tutorial;
mod verify;
mod watch;

mod common;
#[path = "../../../tui/tests/sample/mod.rs"]
mod sample;
