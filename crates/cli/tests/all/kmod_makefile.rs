//! `make -C kmod` on a machine without the headers of its kernel: the first thing many a user sees.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ended, folder};

/// A copy of the Makefile with what a build leaves, and no sources.
fn built(name: &str) -> PathBuf {
    let at = folder(name);
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kmod/Makefile"), at.join("Makefile")).unwrap();
    fs::create_dir(at.join("pcilat")).unwrap();
    for file in ["pcilat/main.o", "pcilat/pcilat.ko", "pcilat/.main.o.cmd", "pcilat/main.c", "Module.symvers"] {
        fs::write(at.join(file), "").unwrap();
    }
    at
}

fn make(at: &Path, line: &str) -> Ended {
    let mut make = Command::new("make");
    // Of a make that runs this test.
    make.env_remove("MAKEFLAGS").env_remove("MFLAGS").env_remove("KDIR").env("LC_ALL", "C");
    Ended::of(make.arg("-C").arg(at).args(line.split_whitespace()).output().unwrap())
}

#[test]
fn missing_headers_are_named_with_what_to_do() {
    let at = built("kmod-no-headers");
    let ended = make(&at, "KDIR=/nonexistent/build").expect_code(2);
    assert!(
        ended.stderr.starts_with("pciescope: no kernel headers in /nonexistent/build\nhint: KDIR is "),
        "{}",
        ended.stderr
    );
    // Where the running kernel has none either, the hint is the package; elsewhere make goes on to build.
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let release = release.trim();
    if !Path::new(&format!("/lib/modules/{release}/build/Makefile")).exists() {
        let ended = make(&at, "").expect_code(2);
        let want = format!(
            "pciescope: no headers of the running kernel in /lib/modules/{release}/build\n\
             hint: apt-get install linux-headers-{release}\n"
        );
        assert!(ended.stderr.starts_with(&want), "{}", ended.stderr);
    }
}

#[test]
fn clean_needs_no_headers_and_keeps_the_sources() {
    let at = built("kmod-clean");
    make(&at, "clean KDIR=/nonexistent/build").expect_code(0);
    let mut left: Vec<_> = fs::read_dir(at.join("pcilat")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["main.c"]);
    assert!(!at.join("Module.symvers").exists());
}
