//! The tests of the conversion.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod reference;
mod refusals;
mod shapes;
mod values;
