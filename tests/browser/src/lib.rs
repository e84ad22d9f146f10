//! The pages in a real browser: what the tests in `tests/` share. They need Chromium, so `cargo test` passes over them;
//! `make browser-test` sets it up and runs them.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod browser;
mod stage;

use std::path::PathBuf;
use std::process::Command;

pub use browser::Browser;
pub use stage::Stage;

/// The widths that pages are looked at: a small laptop and a telephone, in CSS pixels.
pub const SIZES: [(u32, u32); 2] = [(1280, 900), (390, 844)];

/// The folder of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize().unwrap()
}

/// Where screenshots and printed pages go: `target/screenshots`, to be looked at by people.
#[must_use]
pub fn pictures() -> PathBuf {
    let folder = repository().join("target/screenshots");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The program: what the environment's `PCIESCOPE` names, or the one that was built beside this test.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn program() -> PathBuf {
    let beside = || {
        let test = std::env::current_exe().unwrap();
        test.parent().unwrap().parent().unwrap().join("pciescope")
    };
    let program = std::env::var_os("PCIESCOPE").map_or_else(beside, PathBuf::from);
    assert!(program.is_file(), "{} is not there: run make browser-test", program.display());
    program
}

/// Runs the program and hands back what it printed.
///
/// # Panics
/// When it fails.
pub fn pciescope(arguments: &[&str]) -> String {
    let output = Command::new(program()).args(arguments).output().unwrap();
    assert!(output.status.success(), "pciescope {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
