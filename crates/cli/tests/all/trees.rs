//! Refusals that need a machine: recorded trees stand in for it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Ended, folder, pciescope};

const BDF: &str = "0000:02:00.0";

/// A machine with 4 CPUs and one function of these IDs, bound to `driver`, with 64 KiB of BAR 0.
fn machine(name: &str, ids: (&str, &str), driver: Option<&str>, lockdown: &str) -> PathBuf {
    let root = folder(name);
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let device = format!("sys/bus/pci/devices/{BDF}");
    write("sys/devices/system/cpu/online", "0-3\n");
    write("sys/kernel/security/lockdown", lockdown);
    for (file, text) in [("vendor", ids.0), ("device", ids.1), ("class", "0x020000"), ("numa_node", "-1")] {
        write(&format!("{device}/{file}"), &format!("{text}\n"));
    }
    let resource = "0x00000000fe000000 0x00000000fe00ffff 0x0000000000040200\n".to_owned()
        + &"0x0000000000000000 0x0000000000000000 0x0000000000000000\n".repeat(5);
    write(&format!("{device}/resource"), &resource);
    if let Some(driver) = driver {
        fs::create_dir_all(root.join(format!("sys/bus/pci/drivers/{driver}"))).unwrap();
        std::os::unix::fs::symlink(format!("../../drivers/{driver}"), root.join(format!("{device}/driver"))).unwrap();
    }
    root
}

fn at(root: &Path, line: &str) -> Ended {
    let mut args = vec!["--root", root.to_str().unwrap()];
    args.extend(line.split_whitespace());
    pciescope(&args)
}

const NONE: &str = "[none] integrity confidentiality\n";
const INTEGRITY: &str = "none [integrity] confidentiality\n";

#[test]
fn an_unknown_device_is_refused_until_the_user_names_a_register_and_accepts_what_it_does() {
    let root = machine("unknown", ("0xbeef", "0x0001"), None, NONE);
    let ended = at(&root, &format!("latency mmio {BDF} --count 1")).expect_code(2);
    assert!(ended.stderr.contains("(beef:0001, class 020000) has no register that is known"), "{}", ended.stderr);
    assert!(ended.stderr.contains("hint: name one with --bar and --offset"), "{}", ended.stderr);
    let ended = at(&root, &format!("latency mmio {BDF} --count 1 --offset 0x10")).expect_code(2);
    assert!(ended.stderr.contains("bytes at BAR0+0x10 does is not known"), "{}", ended.stderr);
    // Past the check of the target: now only the backend is missing.
    let line = format!("latency mmio {BDF} --count 1 --offset 0x10 --accept-side-effects --backend kmod");
    assert!(!at(&root, &line).expect_code(2).stderr.contains("not known"));
}

#[test]
fn a_read_wider_than_the_safe_register_takes_in_what_is_not_known() {
    let root = machine("wide", ("0x8086", "0x1533"), None, NONE);
    let line = format!("latency mmio {BDF} --count 1 --backend kmod");
    let ended = at(&root, &format!("{line} --width 8")).expect_code(2);
    assert!(ended.stderr.contains("what reading 8 bytes at BAR0+0x8 does is not known"), "{}", ended.stderr);
    for harmless in ["--width 2", "--width 8 --accept-side-effects"] {
        let ended = at(&root, &format!("{line} {harmless}")).expect_code(2);
        assert!(!ended.stderr.contains("is not known"), "{harmless}: {}", ended.stderr);
    }
}

#[test]
fn a_device_of_another_driver_is_named_with_every_reason_and_the_way_out() {
    let root = machine("other", ("0x8086", "0x1533"), Some("igb"), NONE);
    let ended = at(&root, &format!("latency mmio {BDF} --count 1")).expect_code(2);
    for text in ["kmod: the function is bound to igb", "vfio: ", "hint: add --bind to hand it over"] {
        assert!(ended.stderr.contains(text), "{text:?} is missing in {}", ended.stderr);
    }
    assert_eq!(ended.stdout, "");
}

#[test]
fn a_device_in_use_is_not_to_be_bound_before_its_use_has_ended() {
    let root = machine("in-use", ("0x8086", "0x1533"), Some("igb"), NONE);
    fs::write(root.join(format!("sys/bus/pci/devices/{BDF}/boot_vga")), "1\n").unwrap();
    let ended = at(&root, &format!("latency mmio {BDF} --count 1")).expect_code(2);
    let hint = "hint: it is in use (it is the display that the machine booted with): stop that first, then add --bind";
    assert!(ended.stderr.contains(hint), "{}", ended.stderr);
}

#[test]
fn binding_without_the_module_says_how_to_get_it() {
    let root = machine("no-module", ("0x8086", "0x1533"), Some("igb"), NONE);
    let ended = at(&root, &format!("latency mmio {BDF} --count 1 --bind")).expect_code(2);
    assert!(ended.stderr.contains("pcilat") && ended.stderr.contains("hint: `modprobe pcilat`"), "{}", ended.stderr);
}

#[test]
fn under_lockdown_the_way_out_is_vfio() {
    let root = machine("locked", ("0x8086", "0x1533"), Some("igb"), INTEGRITY);
    let ended = at(&root, &format!("latency mmio {BDF} --count 1 --bind --backend kmod")).expect_code(2);
    assert!(ended.stderr.contains("under lockdown") && ended.stderr.contains("--backend vfio"), "{}", ended.stderr);
    let ended = at(&root, &format!("latency mmio {BDF} --count 1 --bind")).expect_code(2);
    assert!(ended.stderr.contains("vfio-pci"), "{}", ended.stderr);
}

#[test]
fn a_machine_that_does_not_know_its_nodes_has_no_local_cpus() {
    let root = machine("no-node", ("0x8086", "0x1533"), None, NONE);
    let ended = at(&root, &format!("latency path {BDF} --cpus local")).expect_code(2);
    assert!(ended.stderr.contains("does not say which CPUs are near it\nhint: "), "{}", ended.stderr);
    let ended = at(&root, &format!("latency path {BDF} --cpus 4")).expect_code(2);
    assert!(ended.stderr.contains("CPU 4 is not online\nhint: the online CPUs are 0-3"), "{}", ended.stderr);
}

#[test]
fn virtio_is_measured_where_its_capability_says_and_a_user_without_privilege_is_told_why_not() {
    let root = machine("virtio", ("0x1af4", "0x1041"), Some("virtio-pci"), NONE);
    let mut config = vec![0; 256];
    config[0..4].copy_from_slice(&[0xf4, 0x1a, 0x41, 0x10]);
    (config[6], config[0x34]) = (0x10, 0x40);
    // Vendor-specific, the last, 16 bytes: common configuration at BAR0+0x2000, 0x38 bytes.
    config[0x40..0x50].copy_from_slice(&[9, 0, 16, 1, 0, 0, 0, 0, 0, 0x20, 0, 0, 0x38, 0, 0, 0]);
    let file = root.join(format!("sys/bus/pci/devices/{BDF}/config"));
    fs::write(&file, &config).unwrap();
    let shown = at(&root, &format!("list {BDF}")).expect_code(0).stdout;
    assert!(shown.contains("num_queues at BAR0+0x2012, 2 bytes (virtio 1.2, 4.1.4.3"), "{shown}");
    // Past the check of the target: only the backend is missing; and what is not 2 bytes wide is not the register.
    let line = format!("latency mmio {BDF} --count 1 --backend kmod --offset 0x2012");
    assert!(at(&root, &line).expect_code(2).stderr.contains("kmod"));
    assert!(at(&root, &format!("{line} --width 4")).expect_code(2).stderr.contains("is not known"));

    fs::write(&file, &config[..64]).unwrap();
    let shown = at(&root, &format!("list {BDF}")).expect_code(0).stdout;
    assert!(shown.contains("unknown: only the first 64 bytes of configuration space can be read"), "{shown}");
    let refused = at(&root, &format!("latency mmio {BDF} --count 1")).expect_code(2).stderr;
    assert!(refused.contains("hint: its safe register cannot be found: only the first 64 bytes"), "{refused}");
}

#[test]
fn threads_that_cannot_be_created_end_the_run_by_an_error() {
    let root = machine("threads", ("0x8086", "0x10d3"), None, NONE);
    let mut config = vec![0x86, 0x80, 0xd3, 0x10];
    config.resize(64, 0);
    fs::write(root.join(format!("sys/bus/pci/devices/{BDF}/config")), config).unwrap();
    let cpus = std::thread::available_parallelism().unwrap().get().min(4);
    fs::write(root.join("sys/devices/system/cpu/online"), format!("0-{}\n", cpus - 1)).unwrap();
    // Stacks in an address space of 1 GiB that has room for some of them: the threads that there are must not wait for the others.
    let ended = [100, 200, 300, 400, 600, 800, 1200].map(|stack_mib: u32| {
        let mut command = std::process::Command::new("sh");
        command.args([
            "-c",
            "ulimit -v 1000000; exec timeout -s KILL 30 \"$@\"",
            "sh",
            crate::common::PROGRAM,
            "--root",
        ]);
        command.arg(&root).args([
            "latency",
            "path",
            BDF,
            "--backend",
            "sysfs",
            "--order",
            "concurrent",
            "--count",
            "5",
        ]);
        Ended::of(command.env("RUST_MIN_STACK", (stack_mib << 20).to_string()).output().unwrap())
    });
    assert!(ended.iter().all(|ended| matches!(ended.code, 0 | 2)), "{ended:#?}");
    let refused = ended.iter().filter(|ended| ended.code == 2);
    let texts: Vec<_> = refused.map(|ended| &ended.stderr).collect();
    assert!(!texts.is_empty());
    for text in texts {
        assert!(text.contains("start a thread for CPU ") && text.contains("pids.max"), "{text}");
    }
}

#[test]
fn a_folder_that_is_no_machine_is_refused_by_name() {
    let root = folder("no-machine");
    for verb in ["", "list", "stat --list"] {
        let ended = at(&root, verb).expect_code(2);
        assert!(ended.stdout.is_empty() && ended.stderr.contains("neither sys nor proc"), "{ended:?}");
    }
}
