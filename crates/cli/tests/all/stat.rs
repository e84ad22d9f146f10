//! `pciescope stat` without hardware: the kernel's own clock stands in for a counter, recorded trees for machines.

use std::path::Path;

use crate::common::{Ended, folder, parse, pciescope, run};

/// The kernel's clock as an event: it is counted wherever counting is allowed.
const CLOCK: &str = "software/config=0/";

fn tree(name: &str, line: &str) -> Ended {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sysfs/pmu").join(name);
    let mut args = vec!["--root", root.to_str().unwrap(), "stat"];
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
        assert!(ended.stderr.contains("software config=0"), "{}", ended.stderr);
    }
    let ended = pciescope(&["stat", "-e", CLOCK, "--", "echo", "hello"]).expect_code(0);
    assert_eq!(ended.stdout, "hello\n");
    let ended = pciescope(&["stat", "-e", CLOCK, "--", "/no/such/program"]).expect_code(2);
    assert!(ended.stderr.contains("cannot start /no/such/program"), "{}", ended.stderr);
}

#[test]
fn intervals_follow_each_other_and_each_is_a_record() {
    if !can_count() {
        return;
    }
    let ended = run(&format!("stat -e {CLOCK} -I 100 --count 3 -j --label here")).expect_code(0);
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
fn records_and_fields_go_to_the_file_that_was_named() {
    if !can_count() {
        return;
    }
    let at = folder("stat-files");
    let file = |name: &str| at.join(name).to_str().unwrap().to_owned();
    let count = |more: &[&str]| pciescope(&[&["stat", "-e", CLOCK, "-I", "10", "--count", "2"], more].concat());
    let ended = count(&["-j", "-o", &file("a.jsonl")]).expect_code(0);
    assert!(ended.stdout.is_empty(), "{}", ended.stdout);
    assert_eq!(parse(&std::fs::read_to_string(file("a.jsonl")).unwrap()).len(), 3);
    let ended = count(&["-o", &file("b.jsonl")]).expect_code(0);
    assert!(ended.stdout.contains("software config=0"), "the table is printed beside: {}", ended.stdout);
    assert_eq!(parse(&std::fs::read_to_string(file("b.jsonl")).unwrap()).len(), 3);
    let ended = count(&["-x;"]).expect_code(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("run;time;verb;"), "{}", ended.stdout);
    assert!(lines[1].contains(";config=0;1;") && lines[1].contains(";software;pmu;0;"), "{}", lines[1]);
    // What holds data is not replaced without being told to.
    let again = count(&["-j", "-o", &file("a.jsonl")]).expect_code(2);
    assert!(again.stderr.contains("--overwrite"), "{}", again.stderr);
    let shown = pciescope(&["report", &file("a.jsonl")]).expect_code(0);
    assert!(
        shown.stdout.contains("== Hardware counters ==") && shown.stdout.contains("in 2 intervals"),
        "{}",
        shown.stdout
    );
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
    let nothing = pciescope(&["--root", empty.to_str().unwrap(), "stat"]).expect_code(2);
    for text in ["no counter of PCIe ports or DRAM channels", "hint: ", "rasdes_pmu"] {
        assert!(nothing.stderr.contains(text), "{text:?} is missing in {}", nothing.stderr);
    }
    for (line, texts) in [
        ("-e dwc_rootport_13018/no_such/", ["no event or parameter \"no_such\"", "events/"]),
        ("-e dwc_rootport_13018/decode_error/", ["no event or parameter \"decode_error\"", "hint: "]),
        ("-e dwc_rootport_1/L0/", ["dwc_rootport_1: no PMU", "dwc_rootport_13018"]),
        ("--metric no_such", ["no_such: none of the chosen PMUs", "bandwidth"]),
        ("-e cycles", ["'cycles'", "PMU/EVENT/"]),
        ("-I 0", ["'0'", "1 ms"]),
        ("--count 3", ["--interval", "hint: "]),
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
