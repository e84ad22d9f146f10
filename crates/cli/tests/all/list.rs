//! `list`, and the refusals of `bind`, on trees of several kinds of machine: tests/sysfs/NAME.tar.gz.
//!
//! What the program answers is compared with tests/sysfs/NAME.expected, word for word. After a change that is
//! meant, `UPDATE=1 cargo test -p pciescope-cli --test all list::` writes those files anew; the review is their diff.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::read::GzDecoder;
use tempfile::TempDir;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sysfs")
}

/// The machine of tests/sysfs/NAME.tar.gz.
pub fn unpack(name: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let file = File::open(fixtures().join(format!("{name}.tar.gz"))).unwrap();
    tar::Archive::new(GzDecoder::new(file)).unpack(folder.path()).unwrap();
    folder
}

/// A command with its answer, as a person would paste it from a terminal of 80 columns.
fn session(root: &Path, line: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_pciescope"))
        .arg("--root")
        .arg(root)
        .args(line.split_whitespace())
        .env("COLUMNS", "80")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().replace(root.to_str().unwrap(), "ROOT");
    let is_table = ["", "list"].contains(&line) || (line.starts_with("list -") && !line.contains("--all"));
    for shown in text(&output.stdout).lines().filter(|_| is_table) {
        assert!(shown.chars().count() <= 80, "{line}: {shown}");
    }
    let code = output.status.code().map_or_else(|| "killed".to_owned(), |code| code.to_string());
    let typed = format!("pciescope {line}");
    format!("$ {}\n{}{}exit {code}\n\n", typed.trim_end(), text(&output.stdout), text(&output.stderr))
}

fn check(name: &str, lines: &[&str]) {
    let tree = unpack(name);
    let answer: String = lines.iter().map(|line| session(tree.path(), line)).collect();
    let path = fixtures().join(format!("{name}.expected"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &answer).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    for (number, (line, wanted)) in answer.lines().zip(expected.lines()).enumerate() {
        assert_eq!(line, wanted, "{name}.expected, line {}", number + 1);
    }
    assert_eq!(answer.len(), expected.len(), "{name}.expected is shorter or longer than the answer");
}

#[test]
fn a_list_of_cpus_that_is_not_understood_is_named() {
    let tree = unpack("server-2s");
    std::fs::write(tree.path().join("sys/devices/system/cpu/online"), "0-99999\n").unwrap();
    let answer = session(tree.path(), "list --all");
    let line = answer.lines().find(|line| line.starts_with("CPUs ")).unwrap();
    assert!(line.starts_with("CPUs     unknown: ") && line.contains("99999"), "{line}");
}

#[test]
fn two_socket_server_with_a_switch_and_a_downtrained_gpu() {
    check(
        "server-2s",
        &[
            "",
            "list",
            "list --tree",
            "list -d 144d:",
            "list -s 17: --all",
            "list -d ffff:",
            "list 17:00.0 17:10.0",
            "list ens2f0 /sys/class/net/ens2f0",
            "list ens9",
            "list 9a:00.0 9b:00.0",
            "list 10000:e3:00.0 4c:00.0",
            "list --show-cpus",
            "list 00:03.0",
            "bind 17:00.0",
            "bind 4b:00.0",
            "bind 16:02.0",
            "bind 4c:00.0 --driver vfio-pci",
            "bind 10000:e3:00.0 --driver vfio-pci",
            "bind 97:01.0 --force --take-in-use",
            "unbind",
            "unbind 17:00.1",
            "unbind --restore",
        ],
    );
}

#[test]
fn arm64_server_without_smt_and_without_l3_description() {
    let lines = [
        "list",
        "list 0004:01:00.0 0009:01:00.0",
        "bind 0009:01:00.0",
        "doctor --all",
        "stat --list",
        "top --once --ascii",
    ];
    check("arm64-128c", &lines);
}

#[test]
fn desktop_without_root_says_what_it_cannot_see() {
    check("desktop-user", &["list", "list 01:00.0 00:02.0", "bind 00:02.0"]);
}

#[test]
fn qemu_guest_whose_devices_are_all_emulated() {
    check("qemu-q35", &["list", "list 01:00.0 05:00.0 00:05.0", "list --show-cpus"]);
}

/// Recorded in guests of the lab: `lab run --arch arm64 --counters`, once by UEFI and ACPI, once with `--device-tree`.
#[test]
fn arm64_guests_described_by_acpi_and_by_a_device_tree() {
    for name in ["virt-acpi", "virt-devicetree"] {
        check(name, &["list", "list --show-cpus", "doctor", "stat --list", "top --once --ascii"]);
    }
}

/// The same with `--iommu`: an SMMU translates, and vfio-pci is loaded.
#[test]
fn arm64_guest_behind_an_smmu() {
    check("virt-smmu", &["list", "list 01:00.0", "doctor"]);
}

#[test]
fn machine_without_pci() {
    check("board-no-pci", &["", "list", "list --show-cpus", "list 00:00.0"]);
}

#[test]
fn the_program_alone_shows_the_machine_on_one_screen() {
    let begun = std::time::Instant::now();
    let screen = crate::common::run("--backend fake").expect_code(0);
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    let lines: Vec<&str> = screen.stdout.lines().collect();
    assert!(lines.len() <= 23 && lines.iter().all(|line| line.chars().count() <= 80), "{}", screen.stdout);
    for words in [
        "0000:03:00.0 nvme1n1: 16 GT/s x4 of 32 GT/s x4",
        "1 problem (link-speed)",
        "node 1 (CPUs 4-7): GPUs 82:00.0; network eth0 eth1",
        "SYNTHETIC",
        "0000:00:02.0 ",
        "hardware counters: 4 root ports, 4 DRAM channels",
        "pciescope doctor --backend fake ",
    ] {
        assert!(screen.stdout.contains(words), "{words}:\n{}", screen.stdout);
    }
    let refused = crate::common::run("--backend fake list").expect_code(2);
    assert!(refused.stderr.contains("write it behind the command"), "{}", refused.stderr);
}

#[test]
fn json_has_one_object_a_line_for_machine_cpus_and_functions() {
    let tree = unpack("server-2s");
    let output = Command::new(env!("CARGO_BIN_EXE_pciescope"))
        .arg("--root")
        .arg(tree.path())
        .args(["list", "-j", "--show-cpus"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().filter(|line| line.get("environment").is_some()).count(), 1);
    assert_eq!(lines.iter().filter(|line| line.get("cpu").is_some()).count(), 64);
    let gpu = lines.iter().find(|line| line["function"]["bdf"] == "0000:9b:00.0").unwrap();
    let function: pciescope_core::Function = serde_json::from_value(gpu["function"].clone()).unwrap();
    assert_eq!(function.path.len(), 3);
    assert_eq!(function.link.unwrap().speed_gts, 2.5);
    assert_eq!(function.bars.iter().map(|bar| bar.number).collect::<Vec<_>>(), [0, 1, 3]);
    let codes = |line: &serde_json::Value| -> Vec<String> {
        line["warnings"].as_array().unwrap().iter().map(|w| w["code"].as_str().unwrap().to_owned()).collect()
    };
    // Its link is slow and narrow: one warning for each.
    assert_eq!(codes(gpu), ["link-downtrained", "link-downtrained", "aspm", "node-unknown"]);
    assert_eq!(codes(&lines[0]), ["deep-idle", "governor", "irqbalance"]);
}

#[test]
fn lists_the_machine_it_runs_on() {
    let output = Command::new(env!("CARGO_BIN_EXE_pciescope")).args(["list", "--show-cpus"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(output.stdout).unwrap().contains("CPUs     0"));
}

#[test]
fn a_tree_explains_only_the_marks_that_it_has() {
    let tree = crate::common::run("list --backend fake --tree").expect_code(0).stdout;
    let table = crate::common::run("list --backend fake --all").expect_code(0).stdout;
    assert!(table.contains("\n? not readable"), "{table}");
    assert!(!tree.contains("not readable") && tree.contains("0000:03:00.0"), "{tree}");
}
