//! Programs that tests use and that a machine may lack.

use std::env;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Says that a test does nothing, and why. With PCIESCOPE_NO_SKIP=1, as `.ci/run` sets it, the test fails.
pub fn skip(why: &str) {
    // eprintln would reach nobody: the output of a test that passes is not shown.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
    assert!(env::var_os("PCIESCOPE_NO_SKIP").is_none_or(|value| value != "1"), "skipped: {why}: tools/setup tests");
}

/// Whether a program is installed. If it is not, the test is skipped.
pub fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    let tried = command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if tried.is_err() {
        skip(&format!("no {program}"));
    }
    tried.is_ok()
}

/// A program of the lab's root folder, such as promtool, run with the folder's libraries. If there is none, the test is
/// skipped.
pub fn of_the_lab(program: &str) -> Option<Command> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    let root = env::var_os("PCIESCOPE_LAB_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(cache?.join("pciescope/lab-root")))?;
    let path = root.join("usr/bin").join(program);
    if !path.exists() {
        skip(&format!("no {program} at {}: lab/setup-root makes it", path.display()));
        return None;
    }
    let mut command = Command::new(root.join("lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(root.join("usr/lib/x86_64-linux-gnu")).arg(path);
    Some(command)
}
