//! `pciescope soak` as a user has it: the bound, when it ends, its exit codes, its records, and what it refuses.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use pciescope_core::soak::{Detector, SoakEnd};

use crate::common::{PROGRAM, folder, pciescope, run};

#[test]
fn the_bound_stands_first_and_ends_the_soak() {
    let ended = run("soak nvme0n1 --backend fake --below 1e-13").expect_code(0);
    let first: Vec<&str> = ended.stdout.lines().take(4).map(str::trim).collect();
    let expected = [
        "0000:00:02.0 (nvme0n1) soaked for 2 min 25 s",
        "bit error ratio below 1.0e-13 with 95 % confidence (detector not proven)",
        "no error in 3.7e13 bits",
        "asked for: below 1e-13: the bound is reached",
    ];
    assert_eq!(first, expected, "{}", ended.stdout);
    // 40f64.ln() / 1e-13 bits at 2.56e11 in a second, from the second sample on.
    assert!(ended.stderr.contains("the bound needs 2 min 23 s, if no error comes"), "{}", ended.stderr);
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
}

#[test]
fn errors_and_time_that_does_not_count_are_named() {
    let ended = run("soak 00:02.0 --backend fake --duration 1h --json").expect_code(1);
    let records = ended.records();
    let record = records.last().unwrap();
    let figure = |name: &str| record.metrics[name].value;
    // The script has 15 errors of the port in two samples, and three changes of the link.
    assert_eq!((figure("bit_errors"), figure("intervals_with_errors"), figure("uncounted_ns")), (15.0, 2.0, 3e9));
    // An interval with errors, of two, is the one before the link changed.
    let bits = 2.0 * 4.0 * 1e9 * (1199.0 * 32.0 + 1799.0 * 8.0 + 59.0 * 16.0 + 540.0 * 32.0);
    assert!((figure("lane_bits") / bits - 1.0).abs() < 1e-9, "{} {bits}", figure("lane_bits"));
    let soak = record.soak.as_ref().unwrap();
    assert_eq!((soak.detector, soak.ended), (Detector::NotProven, SoakEnd::Over));
    assert!(records.iter().any(|one| one.change.is_some()), "the changes of the link are recorded too");
}

#[test]
fn limits_decide_the_exit_code() {
    for (limits, code, said) in [
        (&["bit_errors > 15"][..], 0, ""),
        (&["bit_errors > 14", "bit_error_ratio_below >= 1"], 1, "exceeded: 'bit_errors > 14'\n"),
        (&["intervals_with_errors >= 2", "uncounted_ns > 2s"], 1, "'intervals_with_errors >= 2', 'uncounted_ns > 2s'"),
        (&["lane_bits < 1e15"], 1, "exceeded"),
        (&["bit_errors > +1"], 2, "nothing to be compared with"),
        (&["bit_errors > 1GB/s"], 2, "a limit of a soak is of one of lane_bits"),
        (&["median > 1ns"], 2, "a limit of a soak is of one of lane_bits"),
    ] {
        let line = ["soak", "00:02.0", "--backend", "fake", "--duration", "1h"];
        let limits = limits.iter().flat_map(|limit| ["--fail-if", limit]);
        let ended = pciescope(&line.into_iter().chain(limits).collect::<Vec<_>>()).expect_code(code);
        assert!(ended.stderr.contains(said) && ended.stderr.is_empty() == said.is_empty(), "{}", ended.stderr);
    }
}

#[test]
fn a_bound_that_the_time_does_not_allow_is_told_at_once() {
    let ended = run("soak 00:02.0 --backend fake --below 1e-15 --duration 1h --json").expect_code(2);
    assert!(ended.stderr.contains("the bound needs 4 h 0 min"), "{}", ended.stderr);
    assert_eq!(ended.records().last().unwrap().soak.as_ref().unwrap().ended, SoakEnd::OutOfReach);
}

#[test]
fn its_records_become_a_page_and_the_load_decides_the_end() {
    let at = folder("soak-records");
    let file = at.join("soak.jsonl");
    let file = file.to_str().unwrap();
    pciescope(&["soak", "00:02.0", "--backend", "fake", "-q", "-o", file, "--", "sleep", "0.3"]).expect_code(0);
    pciescope(&["soak", "00:02.0", "--backend", "fake", "--", "sh", "-c", "exit 7"]).expect_code(7);
    let page = at.join("soak.html");
    pciescope(&["report", file, "-o", page.to_str().unwrap()]).expect_code(0);
    let page = fs::read_to_string(page).unwrap();
    for word in ["Bit error ratio", "95 % confidence", "not proven", "Errors of a link, with a bound"] {
        assert!(page.contains(word), "{word} is not in the page");
    }
}

#[test]
fn what_cannot_be_soaked_is_refused() {
    for (line, why) in [
        ("soak 00:02.0 --backend fake --below 2", "above 0 and below 1"),
        ("soak 00:02.0 --backend fake --prove", "cannot be made on a synthetic machine"),
        ("soak 0000:7f:1f.7", "no such PCI function"),
        ("soak nvme0n1 --backend fake --load readout", "a synthetic machine takes no load"),
    ] {
        let ended = run(line).expect_code(2);
        assert!(ended.stderr.contains(why) && ended.stderr.contains("hint: "), "{line}: {}", ended.stderr);
    }
}

#[test]
fn a_run_that_is_killed_at_any_moment_leaves_whole_lines() {
    let at = folder("soak-killed");
    let file = at.join("soak.jsonl");
    let mut lines = 0;
    for round in 0..200u64 {
        let _ = fs::remove_file(&file);
        let mut child = Command::new(PROGRAM)
            .args(["soak", "00:02.0", "--backend", "fake", "-I", "10s", "-j", "--overwrite", "-o"])
            .arg(&file)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // From before the first line on; every second time there is one, however busy this machine is.
        while round % 2 == 1 && !fs::read_to_string(&file).is_ok_and(|text| text.contains('\n')) {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(round * 7_919 % 60_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let text = fs::read_to_string(&file).unwrap_or_default();
        // What stands behind the last end of a line was being written.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let records = whole.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect(line));
        lines += records.count();
    }
    assert!(lines >= 100, "{lines} lines");
}
