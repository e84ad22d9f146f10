//! The tests of the screens.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod any;
mod screens;

#[path = "../sample/mod.rs"]
mod sample;
