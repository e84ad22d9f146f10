//! What tests of several crates share: trees of machines, and programs that may be missing.
#![allow(clippy::unwrap_used, reason = "tests")]

pub mod facts;
pub mod tools;
pub mod tree;

use std::path::{Path, PathBuf};

/// The repository's folder tests/.
pub fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
