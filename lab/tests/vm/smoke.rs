//! The guest itself: every kernel boots with the standard machine, commands and their results come through, and what
//! goes wrong is told apart from what a test finds.

use std::time::{Duration, Instant};

use pciescope_lab::vm::{Accel, Kernel, LabError, Vm, standard_machine};
use serde_json::{Value, json};

use crate::say;
use crate::support::guest::Guest;
use crate::support::harness::booted;
use crate::support::is_arm64;

fn boot(kernel: Kernel) -> Vm {
    let vm = Vm::builder().kernel(kernel).devices(standard_machine()).boot().unwrap_or_else(|error| {
        panic!("the lab failed: {error}\nhint: {}", error.hint().unwrap_or("see the serial log"));
    });
    booted(vm.boot_time());
    say!("{} booted in {:.1} s by {:?}", vm.release(), vm.boot_time().as_secs_f64(), vm.accel());
    vm
}

/// The vendor and device ids that `lspci -n` must show, by the machine's names.
const STANDARD: [(&str, &str); 6] = [
    ("e1000e0", "8086:10d3"),
    ("igb0", "8086:10c9"),
    ("nvme0", "1b36:0010"),
    ("edu0", "1234:11e8"),
    ("edu1", "1234:11e8"),
    ("ivshmem0", "1af4:1110"),
];

/// Every device of the standard machine is in its place.
pub fn the_standard_machine_is_there(vm: &Guest) {
    assert_eq!(vm.must("uname -r"), vm.release());
    let listed = vm.must("lspci -D -n");
    for (name, ids) in STANDARD {
        let address = vm.address(name);
        let line = listed.lines().find(|line| line.starts_with(&address)).unwrap_or_default();
        assert!(line.contains(ids), "{name} at {address} is not {ids}:\n{listed}");
    }
    // The switch: edu1 lies three levels below the root bus.
    let path = vm.must(&format!("readlink -f /sys/bus/pci/devices/{}", vm.address("edu1")));
    assert_eq!(path.matches("0000:").count(), 5, "{path}");
}

pub fn a_command_gives_output_errors_and_status() {
    let mut vm = boot(Kernel::V6_12);
    let output = vm.run("printf 'a\\nb'; echo oops >&2; exit 3").unwrap();
    assert_eq!((output.status, output.stdout.as_str(), output.stderr.as_str()), (3, "a\nb", "oops\n"));

    the_kernel_measures_no_clock(&vm);
    commands_run_side_by_side(&vm);
    a_signal_reaches_the_command(&vm);
    files_go_both_ways(&vm);
    a_device_can_be_unplugged(&vm);
    a_wedged_command_is_named(&vm);
    a_warning_of_the_kernel_is_found(&vm);

    a_guest_that_dies_is_the_labs_failure(&vm);
    let folder = vm.keep_files().to_owned();
    drop(vm);
    assert!(folder.join("serial.log").exists());
    std::fs::remove_dir_all(folder).unwrap();
}

/// Beside other work a guest would measure wrong rates. An arm64 guest reads the rate from a register.
fn the_kernel_measures_no_clock(vm: &Vm) {
    if vm.accel() != Accel::Tcg || is_arm64() {
        return;
    }
    let log = vm.run("dmesg").unwrap().stdout;
    let given =
        log.split_once(" tsc_early_khz=").and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<u64>().ok());
    let khz = given.unwrap_or_else(|| panic!("the kernel was told no rate of its TSC:\n{log}"));
    // Of the processor, where that could not be measured, or of the TSC beside it.
    let taken = format!("tsc: Detected {}.{:03} MHz", khz / 1000, khz % 1000);
    assert!(log.contains(&taken), "the kernel did not take the rate of its TSC from the lab, {khz} kHz:\n{log}");
    assert!(log.contains("preset value.. "), "it did not take that of its delay loop:\n{log}");
    assert!(!log.contains("calibrate_delay"), "it measured its delay loop:\n{log}");
}

fn commands_run_side_by_side(vm: &Vm) {
    let start = Instant::now();
    let meet = |own: &str, other: &str| format!("touch /tmp/{own}; until [ -e /tmp/{other} ]; do sleep 0.05; done");
    let (first, second) = (vm.start(&meet("a", "b")).unwrap(), vm.start(&meet("b", "a")).unwrap());
    assert!(first.wait().unwrap().is_success());
    assert!(second.wait().unwrap().is_success());
    say!("two commands that wait for each other took {:?}", start.elapsed());
}

fn a_signal_reaches_the_command(vm: &Vm) {
    let sleep = vm.start("exec sleep 1000").unwrap();
    sleep.signal("INT").unwrap();
    assert_eq!(sleep.wait().unwrap().status, 128 + 2);
}

fn files_go_both_ways(vm: &Vm) {
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    vm.push_file("/tmp/some/file's name", &bytes).unwrap();
    assert_eq!(vm.pull_file("/tmp/some/file's name").unwrap(), bytes);
    assert!(matches!(vm.pull_file("/tmp/absent"), Err(LabError::Setup { status: 1, .. })));
}

fn a_device_can_be_unplugged(vm: &Vm) {
    let address = vm.address_of("edu0").unwrap();
    vm.must(&format!("test -e /sys/bus/pci/devices/{address}")).unwrap();
    vm.unplug("edu0").unwrap();
    assert_eq!(vm.run(&format!("test -e /sys/bus/pci/devices/{address}")).unwrap().status, 1);
    let refused = vm.qmp("device_del", json!({ "id": "edu0" })).unwrap_err().to_string();
    assert!(refused.contains("edu0"), "{refused}");
    assert!(vm.qmp("query-status", Value::Null).unwrap()["running"].as_bool().unwrap());
}

fn a_wedged_command_is_named(vm: &Vm) {
    let wedged = vm.run_within("sleep 1000 # wedged", Duration::from_secs(1)).unwrap_err();
    assert!(matches!(wedged, LabError::Timeout { .. }));
    assert!(wedged.to_string().contains("`sleep 1000 # wedged`"), "{wedged}");
    assert!(vm.must("echo alive").is_ok(), "the channel outlives a command that hangs");
}

fn a_warning_of_the_kernel_is_found(vm: &Vm) {
    vm.check_kernel_log().unwrap();
    let mark = vm.console_mark();
    vm.must("echo '<4>WARNING: CPU: 0 PID: 1 at the smoke test' >/dev/kmsg").unwrap();
    let faults = vm.check_kernel_log().unwrap_err();
    assert!(faults.contains("at the smoke test"), "{faults}");
    assert!(vm.console_since(mark).unwrap().contains("at the smoke test"), "the serial log has it too");
}

fn a_guest_that_dies_is_the_labs_failure(vm: &Vm) {
    let error = vm.run("echo c >/proc/sysrq-trigger").unwrap_err();
    assert!(matches!(error, LabError::Ended { .. }), "{error}");
    assert!(vm.check_kernel_log().unwrap_err().contains("Kernel panic"));
}

pub fn set_up_that_fails_says_what_failed() {
    let error = Vm::builder().cpus(1).module("no_such_module").boot().unwrap_err();
    let LabError::Ended { log: Some(log), .. } = &error else { panic!("{error}") };
    let serial = std::fs::read_to_string(log).unwrap();
    assert!(serial.contains("no_such_module"), "{serial}");
    std::fs::remove_dir_all(log.parent().unwrap()).unwrap();
}

/// vfio takes QEMU's devices and those that this side serves.
pub fn vfio_takes_emulated_and_served_devices(vm: &Guest) {
    for name in ["edu0", "lab0"] {
        let bdf = vm.address(name);
        let device = format!("/sys/bus/pci/devices/{bdf}");
        vm.must(&format!("echo vfio-pci >{device}/driver_override && echo {bdf} >/sys/bus/pci/drivers_probe"));
        assert_eq!(vm.must(&format!("basename $(readlink {device}/driver)")), "vfio-pci");
        vm.must(&format!("test -c /dev/vfio/$(basename $(readlink {device}/iommu_group))"));
        vm.must(&format!("echo {bdf} >{device}/driver/unbind; echo >{device}/driver_override"));
    }
}
