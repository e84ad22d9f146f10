//! `pciescope stat` without hardware: the kernel's own clock stands in for a counter, recorded trees for machines.

use crate::common::{Ended, folder, parse, pciescope, run};

/// The kernel's clock as an event: it is counted wherever counting is allowed.
const CLOCK: &str = "software/config=0/";

fn tree(name: &str, line: &str) -> Ended {
    let root = pciescope_support::tree::pmu(name);
    let mut args = vec!["--root", root.path().to_str().unwrap(), "stat"];
    args.extend(line.split_whitespace());
    pciescope(&args)
}

/// Whether this machine lets this user count at all. Where it does not, the refusal is what is tested.
fn can_count() -> bool {
    let ended = run(&format!("stat -e {CLOCK} --duration 1ms"));
    if ended.code != 0 {
        assert_eq!(ended.code, 2, "{}", ended.stderr);
        assert!(ended.stderr.contains("software/config=0/: "), "{}", ended.stderr);
    }
    ended.code == 0
}

#[test]
fn a_command_ends_the_count_and_its_exit_code_is_ours() {
    if !can_count() {
        return;
    }
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        let ended = pciescope(&["stat", "-e", CLOCK, "--", "sh", "-c", script]).expect_code(code);
        assert!(ended.stdout.is_empty(), "the standard output is the command's: {}", ended.stdout);
        assert!(ended.stderr.contains("software CPU 0 config=0"), "{}", ended.stderr);
    }
    let ended = pciescope(&["stat", "-e", CLOCK, "--", "echo", "hello"]).expect_code(0);
    assert_eq!(ended.stdout, "hello\n");
    let ended = pciescope(&["stat", "-e", CLOCK, "--", "/no/such/program"]).expect_code(2);
    assert!(ended.stderr.contains("cannot start /no/such/program"), "{}", ended.stderr);
}

#[test]
fn a_command_needs_no_separator_and_may_be_repeated() {
    if !can_count() {
        return;
    }
    let ended = pciescope(&["stat", "-e", CLOCK, "sh", "-c", "echo -j; exit 3"]).expect_code(3);
    assert_eq!(ended.stdout, "-j\n");
    let ended = pciescope(&["stat", "-r", "3", "-e", CLOCK, "echo", "x"]).expect_code(0);
    assert_eq!(ended.stdout, "x\nx\nx\n");
    for words in ["3 runs of the command", "elapsed 0.0", "+-", "software CPU 0 config=0"] {
        assert!(ended.stderr.contains(words), "{words:?} is missing in {}", ended.stderr);
    }
    let ended = pciescope(&["stat", "-r", "2", "-e", CLOCK, "-j", "true"]).expect_code(0);
    let runs: std::collections::BTreeSet<String> = parse(&ended.stderr).into_iter().map(|record| record.run).collect();
    assert_eq!(runs.len(), 2, "each is a run by itself: {}", ended.stderr);
    // One that fails ends them.
    let ended = pciescope(&["stat", "-r", "3", "-e", CLOCK, "sh", "-c", "echo x; exit 4"]).expect_code(4);
    assert_eq!(ended.stdout, "x\n");
}

#[test]
fn intervals_follow_each_other_and_each_is_a_record() {
    if !can_count() {
        return;
    }
    let ended = run(&format!("stat -e {CLOCK} -I 100 --intervals 3 -j --label here")).expect_code(0);
    let records = ended.records();
    assert_eq!(records.len(), 4);
    assert_eq!(records[0].test, "environment");
    assert_eq!(records[3].label.as_deref(), Some("here"));
    let times: Vec<_> = records[1..].iter().map(|record| record.interval.unwrap()).collect();
    assert_eq!(times[0].start_ns, 0);
    assert!(times.windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns), "{times:?}");
    assert!(times[2].end_ns >= 300_000_000, "{times:?}");
    assert!(records[1..].iter().all(|record| record.instance.as_ref().unwrap().pmu.as_deref() == Some("software")));
    // Of all intervals together: a busy machine may hold the program up between the clock and the counter.
    let count: f64 = records[1..].iter().map(|record| record.metrics["config=0"].value).sum();
    let length: f64 = records[1..].iter().map(|record| record.interval.unwrap().seconds() * 1e9).sum();
    assert!(count > 0.5 * length && count < 1.5 * length, "{count} ns in {length} ns");
}

#[test]
fn the_command_of_intervals_may_run_on_every_cpu_that_the_program_may() {
    if !can_count() {
        return;
    }
    let allowed = |text: &str| text.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap().to_owned();
    let here = allowed(&std::fs::read_to_string("/proc/thread-self/status").unwrap());
    for more in [&["-I", "100"][..], &["-n", "3"], &[]] {
        let line = [&["stat", "-e", CLOCK], more, &["--", "grep", "Cpus_allowed_list", "/proc/self/status"]].concat();
        assert_eq!(allowed(&pciescope(&line).expect_code(0).stdout), here, "{line:?}");
    }
}

#[test]
fn records_and_fields_go_to_the_file_that_was_named() {
    if !can_count() {
        return;
    }
    let at = folder("stat-files");
    let file = |name: &str| at.join(name).to_str().unwrap().to_owned();
    let count = |more: &[&str]| pciescope(&[&["stat", "-e", CLOCK, "-I", "10", "--intervals", "2"], more].concat());
    let ended = count(&["-j", "-o", &file("a.jsonl")]).expect_code(0);
    assert!(ended.stdout.is_empty(), "{}", ended.stdout);
    assert_eq!(parse(&std::fs::read_to_string(file("a.jsonl")).unwrap()).len(), 3);
    let ended = count(&["-o", &file("b.jsonl")]).expect_code(0);
    assert!(ended.stdout.contains("software CPU 0 config=0"), "the table is printed beside: {}", ended.stdout);
    assert_eq!(parse(&std::fs::read_to_string(file("b.jsonl")).unwrap()).len(), 3);
    let ended = count(&["-x;"]).expect_code(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("run;time;verb;"), "{}", ended.stdout);
    assert!(lines[1].contains(";config=0;1;") && lines[1].contains(";software;pmu;;0;"), "{}", lines[1]);
    // What holds data is not replaced without being told to.
    let again = count(&["-j", "-o", &file("a.jsonl")]).expect_code(2);
    assert!(again.stderr.contains("--overwrite"), "{}", again.stderr);
    let shown = pciescope(&["report", &file("a.jsonl")]).expect_code(0);
    assert!(shown.stdout.starts_with("Counters over 0.0") && shown.stdout.contains("2 intervals"), "{}", shown.stdout);
}

#[test]
fn the_counters_of_recorded_machines_are_listed() {
    let ended = tree("rasdes_pmu", "--list").expect_code(0);
    assert!(ended.stdout.contains("dwc_rootport_") && ended.stdout.contains("PCIe root port"), "{}", ended.stdout);
    let ended = tree("ali_drw-7.3", "--list").expect_code(0);
    assert!(ended.stdout.contains("ali_drw_") && ended.stdout.contains("CPU "), "{}", ended.stdout);
    assert!(tree("ali_drw-7.3", "").expect_code(2).stderr.contains("recorded tree"));
}

#[test]
fn refusals_say_what_is_wrong_and_what_to_do() {
    let empty = folder("stat-empty");
    std::fs::create_dir(empty.join("sys")).unwrap();
    let nothing = pciescope(&["--root", empty.to_str().unwrap(), "stat"]).expect_code(2);
    for text in ["no counter of PCIe ports or DRAM channels", "hint: ", "rasdes_pmu"] {
        assert!(nothing.stderr.contains(text), "{text:?} is missing in {}", nothing.stderr);
    }
    for (line, texts) in [
        ("-e dwc_rootport_13018/no_such/", ["no event or parameter \"no_such\"", "events/"]),
        ("-e dwc_rootport_13018/decode_error/", ["no event or parameter \"decode_error\"", "hint: "]),
        ("-e dwc_rootport_1/L0/", ["dwc_rootport_1: no PMU", "dwc_rootport_13018"]),
        ("--metric no_such", ["no_such: none of the chosen PMUs", "bandwidth"]),
        ("-e cycles:u", ["cycles:u", "PMU/EVENT/"]),
        ("-e no_such", ["no_such: no PMU", "--list"]),
        (
            "no_such a.job",
            ["no_such: neither a PCI address, nor a device or PMU of this machine, nor a program", "-- ./fio"],
        ),
        ("-I 0", ["'0'", "1 ms"]),
        ("-n 0", ["'0'", "hint: "]),
        ("-r 3", ["CMD", "hint: "]),
        ("-x ab", ["'ab'", "one character"]),
        ("-j -x,", ["cannot be used with", "hint: "]),
        ("0000:02:00.0", ["0000:02:00.0: no such PCI function", "hint: "]),
    ] {
        let ended = tree("dwc_rootport-7.3", line).expect_code(2);
        for text in texts {
            assert!(ended.stderr.contains(text), "{line}: {text:?} is missing in {}", ended.stderr);
        }
        assert!(ended.stdout.is_empty(), "{line}: {}", ended.stdout);
    }
}

/// The PMUs of arm64's cores and of the two kinds of hybrid x86-64 have a file `cpus`.
#[test]
fn pmus_of_cores_are_not_taken_for_pmus_outside_of_them() {
    let root = folder("stat-cores");
    for pmu in ["armv8_pmuv3_0", "cpu_atom"] {
        let at = root.join("sys/bus/event_source/devices").join(pmu);
        std::fs::create_dir_all(at.join("events")).unwrap();
        for (file, text) in [("type", "10\n"), ("cpus", "0-3\n"), ("events/cpu_cycles", "config=0x11\n")] {
            std::fs::write(at.join(file), text).unwrap();
        }
    }
    let root = root.to_str().unwrap();
    let list = pciescope(&["--root", root, "stat", "--list"]).expect_code(2);
    assert_eq!(list.stdout, "\nother PMUs of this machine, of CPUs and processes: armv8_pmuv3_0, cpu_atom\n");
    let ended = pciescope(&["--root", root, "stat", "-e", "cpu_cycles"]).expect_code(2);
    for text in ["an event of the CPUs' cores (armv8_pmuv3_0)", "hint: `perf stat -e cpu_cycles` counts it"] {
        assert!(ended.stderr.contains(text), "{text:?} is missing in {}", ended.stderr);
    }
}

/// A machine of files: a root port, a disk below it with what is stacked on it, and a function of which nothing is counted.
struct Machine(std::path::PathBuf);

impl Machine {
    fn new(name: &str) -> Machine {
        let machine = Machine(folder(name));
        let (port, disk) = ("pci0000:00/0000:00:02.0", "pci0000:00/0000:00:02.0/0000:02:00.0");
        for (function, class) in [(port, "0x060400"), (disk, "0x010802"), ("pci0000:00/0000:00:1f.0", "0x060100")] {
            let at = format!("sys/devices/{function}");
            for (file, text) in [("vendor", "0x1234"), ("device", "0x5c10"), ("class", class), ("resource", "")] {
                machine.put(&format!("{at}/{file}"), text);
            }
            let bdf = function.rsplit('/').next().unwrap();
            machine.link(&format!("sys/bus/pci/devices/{bdf}"), &format!("../../../devices/{function}"));
        }
        for file in ["current_link_speed", "max_link_speed"] {
            machine.put(&format!("sys/devices/{port}/{file}"), "8.0 GT/s PCIe");
        }
        for file in ["current_link_width", "max_link_width"] {
            machine.put(&format!("sys/devices/{port}/{file}"), "4");
        }
        let namespace = format!("{disk}/nvme/nvme0/nvme0n1");
        machine.link("sys/class/block/nvme0n1", &format!("../../devices/{namespace}"));
        machine.link("sys/class/block/dm-0", "../../devices/virtual/block/dm-0");
        for severity in ["correctable", "nonfatal", "fatal"] {
            machine.put(&format!("sys/devices/{disk}/aer_dev_{severity}"), "RxErr 0\nTOTAL_ERR 0");
        }
        machine.move_data(0);
        machine
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    /// The disk has read so many MiB, and what is stacked on it too.
    fn move_data(&self, mib: u64) {
        let stat = format!("1 0 {} 0 1 0 8 0 0 0 0", mib * 2048);
        for place in ["pci0000:00/0000:00:02.0/0000:02:00.0/nvme/nvme0/nvme0n1", "virtual/block/dm-0"] {
            self.put(&format!("sys/devices/{place}/stat"), &stat);
        }
    }

    fn stat(&self, line: &str) -> Ended {
        let mut args = vec!["--root", self.0.to_str().unwrap(), "stat"];
        args.extend(line.split_whitespace());
        pciescope(&args)
    }
}

/// Without counters of hardware the kernel's account is shown, to the byte, with the port's sum.
#[test]
fn a_machine_without_counters_shows_what_the_kernel_counted() {
    let machine = Machine::new("stat-account");
    let (work, file) = (machine.0.join("work"), machine.0.join("run.jsonl"));
    let stat = machine.0.join("sys/class/block/nvme0n1/stat");
    std::fs::write(&work, format!("echo '1 0 6144 0 1 0 9 0 0 0 0' > {}\n", stat.display())).unwrap();
    let line = format!("-o {} -- sh {}", file.display(), work.display());
    let ended = machine.stat(&line).expect_code(0);
    for text in ["Kernel accounting", "lower bound", ">=", "0000:00:02.0", " 02:00.0 ", "1 function below a port"] {
        assert!(ended.stderr.contains(text), "{text:?} is missing in {}", ended.stderr);
    }
    let records = parse(&std::fs::read_to_string(&file).unwrap());
    let of = |bdf: &str| {
        let is_it = |record: &&pciescope_core::Record| {
            record.instance.is_some() && record.device.as_ref().and_then(|d| d.bdf) == bdf.parse().ok()
        };
        records.iter().find(is_it).unwrap_or_else(|| panic!("no record of {bdf}"))
    };
    for (bdf, scope) in [("0000:00:02.0", "port"), ("0000:02:00.0", "function")] {
        let record = of(bdf);
        let instance = record.instance.as_ref().unwrap();
        assert_eq!((instance.scope.as_str(), instance.source.as_deref()), (scope, Some("kernel accounting")));
        assert_eq!(instance.pmu.as_deref(), Some(format!("kernel_{bdf}").as_str()));
        let bytes = |name: &str| (record.metrics[name].value, record.metrics[name].at_least);
        assert_eq!((bytes("rx_bytes"), bytes("tx_bytes")), ((3.0 * 1048576.0, true), (512.0, true)), "{bdf}");
        assert_eq!((record.metrics["aer_errors"].value, record.metrics["aer_errors"].at_least), (0.0, false));
    }
    assert!(of("0000:00:02.0").metrics.contains_key("rx_link_share"), "the port has a link");
    assert!(!of("0000:02:00.0").metrics.contains_key("rx_link_share"), "the disk's link is not known");
    let counted = records.iter().filter(|record| record.instance.is_some()).count();
    assert_eq!(counted, 2, "a function of which nothing is counted has no record");
    // The recording reads like any other.
    let shown = pciescope(&["report", file.to_str().unwrap()]).expect_code(0);
    assert!(shown.stdout.contains("lower bound") && !shown.stdout.contains("reached its end"), "{}", shown.stdout);
    let page = pciescope(&["top", "--replay", file.to_str().unwrap(), "--once", "--ascii"]).expect_code(0);
    assert!(page.stdout.contains("kernel accounting, lower bound"), "{}", page.stdout);
    assert!(page.stdout.lines().any(|line| line.contains("0000:02:00.0") && line.contains('>')), "{}", page.stdout);
    let lines = machine.stat("-x, --duration 20ms").expect_code(0).stdout;
    assert!(lines.lines().nth(1).unwrap().contains(",port,kernel accounting,,0,"), "{lines}");
}

#[test]
fn places_metrics_and_sources_choose_accounts_too() {
    let machine = Machine::new("stat-account-choice");
    let names = |line: &str| -> Vec<String> {
        let records = machine.stat(&format!("{line} -j --duration 20ms")).expect_code(0).records();
        records.iter().filter_map(|record| record.instance.as_ref()?.pmu.clone()).collect()
    };
    assert_eq!(names("0000:02:00.0"), ["kernel_0000:00:02.0", "kernel_0000:02:00.0"]);
    assert_eq!(names("kernel_0000:02:*"), ["kernel_0000:02:00.0"]);
    assert_eq!(names("--metric errors --source kernel"), ["kernel_0000:00:02.0", "kernel_0000:02:00.0"]);
    assert_eq!(names("-e kernel_0000:02:00.0/disk_rx_bytes/"), ["kernel_0000:02:00.0"]);
    let list = machine.stat("--list").expect_code(0).stdout;
    assert!(list.contains("0000:02:00.0  nvme0n1, error reports"), "{list}");
    for (line, text) in [
        ("--source hardware", "no counter of PCIe ports or DRAM channels"),
        ("0000:00:1f.0", "0000:00:1f.0: no counter counts"),
        ("--metric states", "states: none of the chosen PMUs"),
        ("--source nobody", "'nobody'"),
    ] {
        let ended = machine.stat(line).expect_code(2);
        assert!(ended.stderr.contains(text), "{line}: {}", ended.stderr);
    }
}

#[test]
fn warm_up_runs_are_not_counted() {
    let folder = folder("stat-warmup");
    let log = folder.join("log");
    let command = format!("echo run >> {}", log.display());
    let line = ["stat", "--backend", "fake", "--warmup", "2", "-r", "3", "--", "sh", "-c", &command];
    let ended = pciescope(&line).expect_code(0);
    for words in ["3 runs of the command", "SYNTHETIC: made up by the fake backend"] {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count(), 5);
    let failed = pciescope(&["stat", "--backend", "fake", "--warmup", "1", "--", "sh", "-c", "exit 7"]).expect_code(7);
    assert!(failed.stderr.contains("warm-up") && failed.stdout.is_empty(), "{}", failed.stderr);
}

/// The synthetic machine has all kinds of counters, and every verb that counts takes it.
#[test]
fn a_synthetic_machine_has_traffic_on_both_sources() {
    let temporary = folder("synthetic-machines");
    let run = |line: &str| {
        let mut command = std::process::Command::new(crate::common::PROGRAM);
        command.args(line.split_whitespace()).env("TMPDIR", &temporary).stdin(std::process::Stdio::null());
        Ended::of(command.output().unwrap())
    };
    let records = run("stat --backend fake -I 100 --intervals 3 -j").expect_code(0).records();
    let environment = records[0].environment.as_ref().unwrap();
    assert_eq!(environment.product.as_deref(), Some("synthetic machine"));
    let counted: Vec<_> = records.iter().filter(|record| record.instance.is_some()).collect();
    assert!(counted.iter().all(|record| record.method.as_ref().unwrap().backend == "fake"));
    let port = |source: Option<&str>| {
        let is_it = |record: &&&pciescope_core::Record| {
            let instance = record.instance.as_ref().unwrap();
            record.interval.unwrap().start_ns > 0
                && instance.scope == "port"
                && instance.source.as_deref() == source
                && record.device.as_ref().and_then(|device| device.bdf) == "0000:00:02.0".parse().ok()
        };
        counted.iter().find(is_it).unwrap_or_else(|| panic!("no port of {source:?}"))
    };
    let (hardware, kernel) = (port(None), port(Some("kernel accounting")));
    for name in ["rx_bytes", "tx_bytes"] {
        let ratio = hardware.metrics[name].value / kernel.metrics[name].value;
        assert!((1.0..1.1).contains(&ratio), "{name}: {ratio}");
        assert!(kernel.metrics[name].at_least && !hardware.metrics[name].at_least);
    }
    assert!((1.0..100.0).contains(&hardware.metrics["rx_link_share"].value), "{:?}", hardware.metrics);
    assert!(counted.iter().any(|record| record.metrics.contains_key("read_bytes_per_s")));
    let sick =
        counted.iter().any(|record| record.metrics.get("layer2_errors").is_some_and(|errors| errors.value >= 0.0));
    assert!(sick, "no port has error counters");
    let usual = run("stat --backend fake --duration 50ms").expect_code(0).stdout;
    assert!(usual.lines().all(|line| line.chars().count() <= 80), "wider than 80 columns: {usual}");
    let answer = usual.lines().take_while(|line| !line.is_empty()).count();
    assert!((2..=6).contains(&answer), "the answer has {answer} lines: {usual}");
    let states = run("stat --backend fake --metric states --duration 50ms").expect_code(0).stdout;
    assert!(states.contains(" tx_rx_l0s") && states.contains("97.00"), "{states}");
    let list = run("stat --backend fake --list").expect_code(0).stdout;
    assert!(list.contains("dwc_rootport_10") && list.contains("nvme0n1, 4 interrupt vectors"), "{list}");
    let page = run("top --backend fake -b -n 2 -I 100 --ascii -w 160").expect_code(0).stdout;
    for text in ["SYNTHETIC", "0000:81:00.0", "kernel", "DRAM"] {
        assert!(page.contains(text), "{text:?} is missing in {page}");
    }
    let refused = run("stat --backend vfio").expect_code(2).stderr;
    assert!(refused.contains("auto") && refused.contains("fake"), "{refused}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "folders of synthetic machines are left");
}

#[test]
fn a_function_that_cannot_be_understood_is_named_once() {
    let machine = Machine::new("stat-odd");
    machine.put("sys/bus/pci/devices/0000:00:09.0/vendor", "none\n");
    let first = machine.stat("-j --duration 20ms").expect_code(0).records().remove(0);
    let odd: Vec<_> = first.warnings.iter().filter(|warning| warning.text.contains("0000:00:09.0")).collect();
    assert!(matches!(odd[..], [one] if one.code == "not-counted" && one.text.contains("left out")), "{odd:?}");
}
