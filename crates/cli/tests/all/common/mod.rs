//! Driving the program as a user does.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use pciescope_core::Record;

// The suites on virtual hardware look at records in the same way.
#[path = "../../../../../lab/tests/vm/support/records.rs"]
mod records;
pub use records::parse;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_pciescope");

/// How a run of the program ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; -1 if a signal killed it.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn of(output: Output) -> Self {
        Ended {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("the program prints UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("the program prints UTF-8"),
        }
    }

    /// The standard output as records.
    pub fn records(&self) -> Vec<Record> {
        parse(&self.stdout)
    }

    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}

/// Runs the program without a terminal.
pub fn pciescope(args: &[&str]) -> Ended {
    let output = Command::new(PROGRAM).args(args).stdin(Stdio::null()).output().expect("the program was built");
    Ended::of(output)
}

/// Runs the program with words separated by spaces.
pub fn run(line: &str) -> Ended {
    pciescope(&line.split_whitespace().collect::<Vec<_>>())
}

/// A folder of this test's own, empty.
pub fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("cargo's folder for tests can be written");
    path
}

/// What a folder holds.
pub fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
