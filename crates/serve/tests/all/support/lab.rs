//! Programs of the lab's root folder (Prometheus and promtool), for tests here and of the program.

use std::path::PathBuf;
use std::process::Command;

/// A program of the lab's root folder, run with the folder's libraries; `None`, and a loud word, where there is none.
pub fn of_the_lab(program: &str) -> Option<Command> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let root = std::env::var_os("PCIESCOPE_LAB_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(cache?.join("pciescope/lab-root")))?;
    let path = root.join("usr/bin").join(program);
    if !path.exists() {
        eprintln!("LEFT OUT: there is no {}: lab/setup-root makes it", path.display());
        return None;
    }
    let mut command = Command::new(root.join("lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(root.join("usr/lib/x86_64-linux-gnu")).arg(path);
    Some(command)
}
