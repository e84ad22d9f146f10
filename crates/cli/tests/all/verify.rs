//! `pciescope verify` without hardware: what it refuses, and what it says to do about it.

use crate::common::{folder, run};

/// Exit code 2, the text, and a hint.
fn refused(line: &str, text: &str, hint: &str) {
    let ended = run(line).expect_code(2);
    assert!(ended.stderr.contains(text), "{line}: {}", ended.stderr);
    let said = ended.stderr.lines().find(|line| line.starts_with("hint: "));
    assert!(said.is_some_and(|said| said.contains(hint)), "{line}: {}", ended.stderr);
    assert!(ended.stdout.is_empty(), "{line}: {}", ended.stdout);
}

#[test]
fn a_target_that_holds_something_is_not_written_to() {
    // Next to the test, since temporary folders may lie in memory and so on no disk.
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(file.path(), "not blank").unwrap();
    let line = format!("verify pcie --write {}", file.path().display());
    if run(&line).stderr.contains("lies on no disk") {
        eprintln!("skipped: {} lies on no disk (overlay, memory, network)", file.path().display());
    } else {
        refused(&line, "not blank", "--destroy-data");
    }
    assert_eq!(std::fs::read(file.path()).unwrap(), b"not blank");
}

/// A file that is zero where file systems begin, and has data behind.
#[test]
fn a_file_with_data_at_its_end_is_not_written_to() {
    use std::os::unix::fs::FileExt;
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.as_file().write_all_at(b"precious", 2 << 20).unwrap();
    let line = format!("verify pcie {} --write", file.path().display());
    if run(&line).stderr.contains("lies on no disk") {
        eprintln!("skipped: {} lies on no disk (overlay, memory, network)", file.path().display());
    } else {
        refused(&line, "not blank", "--destroy-data");
    }
}

#[test]
fn more_threads_than_cpus_are_refused() {
    let root = folder("verify-threads");
    pciescope_support::tree::Tree::pmu("ali_drw-7.3").write(&root);
    let cpus = root.join("sys/devices/system/cpu");
    std::fs::create_dir_all(&cpus).unwrap();
    std::fs::write(cpus.join("online"), "0-7\n").unwrap();
    let line = format!("--root {} verify dram --threads 64", root.display());
    refused(&line, "--threads 64: all nodes: 8 CPUs, one for each thread", "--threads 8");
}

#[test]
fn a_pmu_or_machine_without_counters_is_told() {
    // A machine with one CPU and nothing else.
    let root = tempfile::tempdir().unwrap();
    let cpus = root.path().join("sys/devices/system/cpu");
    std::fs::create_dir_all(&cpus).unwrap();
    std::fs::write(cpus.join("online"), "0\n").unwrap();
    refused(&format!("--root {} verify dram", root.path().display()), "no DRAM counter", "drw_pmu");
    refused("verify pcie /proc/self/stat --tolerance none", "--tolerance", "verify pcie --help");
    let ended = run("verify pcie /nonexistent").expect_code(2);
    assert!(ended.stderr.contains("/nonexistent"), "{}", ended.stderr);
}
