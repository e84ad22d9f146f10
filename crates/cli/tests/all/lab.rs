//! `pciescope lab` as far as it needs no guest: its refusals, and the control of a device that this test serves.

use std::process::Command;

use crate::common::{Ended, PROGRAM, folder, pciescope};
use pciescope_lab::Served;
use pciescope_lab::device::LatencyEndpoint;
use pciescope_lab::device::config::Link;

#[test]
fn control_commands_reach_the_device_and_its_answers_are_printed() {
    // A socket's path has at most 107 bytes: not in cargo's folder.
    let folder = tempfile::tempdir().unwrap();
    let served = Served::spawn(LatencyEndpoint::new(&Link::default()), folder.path(), "ep0").unwrap();
    let socket = served.control_socket.to_str().unwrap();
    let set = pciescope(&["lab", "ctl", socket, "read-delay", "fixed", "20us"]).expect_code(0);
    assert_eq!(set.stdout.trim(), "{\"ok\":true}");
    let ledger = pciescope(&["lab", "ctl", socket, "ledger"]).expect_code(0);
    let ledger: serde_json::Value = serde_json::from_str(&ledger.stdout).unwrap();
    assert_eq!(ledger["read_delay_ns"]["count"], 0);
    let refused = pciescope(&["lab", "ctl", socket, "read-delay", "often"]).expect_code(69);
    assert!(refused.stderr.starts_with("pciescope: the device refused `read-delay often`: "), "{}", refused.stderr);
}

#[test]
fn a_socket_without_a_device_is_named() {
    let socket = folder("ctl").join("none.ctl");
    let ended = pciescope(&["lab", "ctl", socket.to_str().unwrap(), "ledger"]).expect_code(69);
    assert!(ended.stderr.contains("none.ctl") && ended.stderr.contains("No such file"), "{}", ended.stderr);
}

#[test]
fn a_lab_without_its_root_folder_fails_with_a_code_of_its_own_and_says_how_to_make_it() {
    let output = Command::new(PROGRAM)
        .args(["lab", "run", "--", "true"])
        .env("PCIESCOPE_LAB_ROOT", "/nonexistent")
        .output()
        .unwrap();
    let ended = Ended::of(output).expect_code(69);
    assert!(ended.stderr.contains("/nonexistent is missing") && ended.stderr.contains("hint: make setup"), "{ended:?}");
}

#[test]
fn a_control_command_for_no_endpoint_is_refused_before_the_guest_boots() {
    let line = ["lab", "run", "--endpoints", "1", "--device-control", "ep7 ledger", "--", "true"];
    let ended = pciescope(&line).expect_code(2);
    assert!(ended.stderr.contains("no device is named \"ep7\"\nhint: the devices are ep0"), "{}", ended.stderr);
    let line = ["lab", "run", "--device-control", "ep0 dance", "--", "true"];
    let ended = pciescope(&line).expect_code(69);
    assert!(ended.stderr.contains("\"ep0 dance\"") && ended.stderr.contains("the device refused"), "{}", ended.stderr);
}

#[test]
fn the_board_and_its_disk_take_control_commands_where_there_are_counters() {
    let line = ["lab", "run", "--counters", "--device-control", "board port 10:03.0 dance", "--", "true"];
    let ended = pciescope(&line).expect_code(69);
    assert!(ended.stderr.contains("port: `dance` is not traffic, rate, event"), "{}", ended.stderr);
    let line = ["lab", "run", "--counters", "--device-control", "disk7 ledger", "--", "true"];
    let ended = pciescope(&line).expect_code(2);
    assert!(ended.stderr.contains("hint: the devices are ep0, ep1, disk0, board"), "{}", ended.stderr);
    let line = ["lab", "run", "--device-control", "board ledger", "--", "true"];
    assert!(pciescope(&line).expect_code(2).stderr.contains("no device is named \"board\""));
}
