//! The tests of the catalogue, one program.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod checker;
mod meaning;

mod support;
