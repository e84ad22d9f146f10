//! `pciescope compare` as a user and CI drive it, on runs that the fake backend made.

use std::path::{Path, PathBuf};

use crate::common::{Ended, PROGRAM, folder, pciescope, run};

/// A run of the fake backend in a file of its own.
fn made(folder: &Path, name: &str, backend: &str, more: &str) -> String {
    let path = folder.join(name);
    let line = format!("latency mmio --backend fake:{backend} --count 2k {more} -o {}", path.display());
    run(&line).expect_code(0);
    path.display().to_string()
}

fn summary(ended: &Ended) -> serde_json::Value {
    serde_json::from_str(ended.stdout.lines().next().unwrap()).unwrap()
}

/// Whether any cell says that something changed.
fn has_alarm(ended: &Ended) -> bool {
    let summary = summary(ended);
    let counts = ["groups", "cells"].map(|part| summary[part].as_object().unwrap().clone());
    counts.iter().flat_map(|counts| counts.keys()).any(|verdict| !["same", "unclear"].contains(&verdict.as_str()))
}

/// 200 pairs of 21 runs whose values differ by their seed only. The comparison promises at most 5 in 100; more than 20 of
/// 200 would come once in a thousand times, and the margin leaves room for none.
#[test]
fn pairs_of_equal_runs_raise_no_alarm_and_a_shift_of_5_percent_does() {
    let folder = folder("compare-pairs");
    let runs: Vec<String> = (1..=21)
        .map(|seed| made(&folder, &format!("{seed}.jsonl"), &format!("seed={seed},cpus=2,nodes=1"), ""))
        .collect();
    let pairs = (0..runs.len()).flat_map(|a| (a + 1..runs.len()).map(move |b| (a, b))).take(200);
    let alarms = pairs.filter(|&(a, b)| {
        let ended = pciescope(&["compare", &runs[a], &runs[b], "--json"]).expect_code(0);
        has_alarm(&ended)
    });
    assert_eq!(alarms.count(), 0);
    // 24 ns on 480 are 5 %.
    for (seed, run) in runs.iter().enumerate().skip(1).take(10) {
        let slower = made(&folder, "slower.jsonl", &format!("seed={},cpus=2,nodes=1,delay=24ns", 100 + seed), "");
        let ended = pciescope(&["compare", run, &slower]).expect_code(0);
        assert!(ended.stdout.contains("\n  SLOWER: 0000:03:00.0 mmio-read"), "{}", ended.stdout);
        std::fs::remove_file(slower).unwrap();
    }
}

#[test]
fn figures_that_were_made_up_are_marked_in_every_text() {
    let folder = folder("compare-synthetic");
    let [a, b] = ["a", "b"].map(|name| made(&folder, name, "cpus=2,nodes=1", &format!("--label {name}")));
    for args in [&[][..], &["--all"], &["--json"]] {
        let ended = pciescope(&[&["compare", &a, &b], args].concat()).expect_code(0);
        assert!(ended.stdout.contains("SYNTHETIC: made up by the fake backend"), "{args:?}: {}", ended.stdout);
    }
    for line in ["list 0000:03:00.0 --backend fake", "stat --list --backend fake"] {
        assert!(run(line).expect_code(0).stdout.starts_with("SYNTHETIC: "), "{line}");
    }
}

#[test]
fn a_verified_counter_is_held_by_its_ratio() {
    let folder = folder("compare-verify");
    let made = |name: &str, run: u64, count: f64| {
        let comparison = pciescope_core::Comparison {
            workload: "reading".to_owned(),
            counter: "dwc_rootport_10/rx/".to_owned(),
            workload_bytes: 16e9,
            count,
            bytes_per_count: 16.0,
            parts: 1.0,
            running: 1.0,
            tolerance_percent: Some(0.25),
            ..Default::default()
        };
        let record = pciescope_core::Record { schema: 1, run: format!("{run:016x}"), ..comparison.to_record() };
        let path = folder.join(name);
        std::fs::write(&path, serde_json::to_string(&record).unwrap() + "\n").unwrap();
        path.display().to_string()
    };
    let (a, b, c) = (made("a", 1, 1e9), made("b", 2, 1.001e9), made("c", 3, 9.5e8));
    let same = pciescope(&["compare", &a, &b, "--fail-if", "ratio < 0.99"]).expect_code(0);
    assert!(same.stdout.contains("SAME: verify reading: dwc_rootport_10/rx/ ratio"), "{}", same.stdout);
    let less = pciescope(&["compare", &a, &c, "--fail-if", "ratio < 0.99"]).expect_code(1);
    assert!(
        less.stdout.contains("LESS: verify reading: dwc_rootport_10/rx/ ratio: the figure -5.0 %"),
        "{}",
        less.stdout
    );
}

#[test]
fn limits_decide_the_exit_code() {
    let folder = folder("compare-limits");
    let (a, b) = (made(&folder, "a", "seed=1", ""), made(&folder, "b", "seed=2,delay=100ns", ""));
    let limit = |limit: &str| pciescope(&["compare", &a, &b, "--fail-if", limit]);
    let failed = limit("median > +10%").expect_code(1);
    assert!(failed.stdout.contains("EXCEEDED: --fail-if 'median > +10%'"), "{}", failed.stdout);
    assert!(failed.stderr.contains("exceeded: 'median > +10%'"), "{}", failed.stderr);
    assert!(limit("median > +50%").expect_code(0).stdout.contains("held: --fail-if"));
    limit("loss > 0").expect_code(0);
    limit("median > 560ns").expect_code(1);
    let undecided = limit("p99.99 > +10%").expect_code(2);
    assert!(undecided.stderr.contains("10/(1-p) samples"), "{}", undecided.stderr);
    let unknown = limit("sped < -5%").expect_code(2);
    assert!(unknown.stderr.contains("these have: mean, median,"), "{}", unknown.stderr);
    let bad = limit("p99 > 10%").expect_code(2);
    assert!(bad.stderr.contains("write +10%"), "{}", bad.stderr);
    pciescope(&["compare", &a, &b, "--fail-if", "p99 > +50%", "--fail-if", "median > +10%"]).expect_code(1);
    let strict = ["compare", &a, &b, "--strict", "--fail-if", "median > +15%"];
    pciescope(&strict).expect_code(1);
}

/// The device of B dies: what a limit speaks of was measured in A alone.
#[test]
fn a_limit_on_what_b_did_not_measure_is_no_success() {
    let folder = folder("compare-dead");
    let (a, b) = (made(&folder, "a", "seed=1,cpus=2,nodes=1", ""), made(&folder, "b", "seed=2,cpus=2,nodes=1", ""));
    let dead = folder.join("dead").display().to_string();
    let lines: Vec<String> = std::fs::read_to_string(&b)
        .unwrap()
        .lines()
        .map(|line| {
            let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
            if record["cpu"]["cpu"] == 1 {
                let record = record.as_object_mut().unwrap();
                record.remove("histograms");
                record.remove("metrics");
                record.insert("error".to_owned(), serde_json::json!({"code": "gone", "text": "all-ones"}));
            }
            record.to_string() + "\n"
        })
        .collect();
    std::fs::write(&dead, lines.concat()).unwrap();
    let ended = pciescope(&["compare", &a, &dead, "--fail-if", "median > +50%"]).expect_code(2);
    assert!(ended.stderr.contains("'median > +50%': not measured in B: 0000:03:00.0 mmio-read"), "{}", ended.stderr);
    assert!(ended.stdout.contains("UNDECIDED: --fail-if"), "{}", ended.stdout);
    pciescope(&["compare", &a, &dead]).expect_code(0);
    let fewer = made(&folder, "fewer", "seed=3,cpus=2,nodes=1", "--cpus 0");
    pciescope(&["compare", &a, &fewer, "--fail-if", "median > +50%"]).expect_code(0);
}

#[test]
fn several_files_and_labels_make_sides() {
    let folder = folder("compare-sides");
    let file = |name: &str, backend: &str, label: &str| made(&folder, name, backend, &format!("--label {label}"));
    let a = [file("a1", "seed=1", "before"), file("a2", "seed=2", "before")];
    let b = [file("b1", "seed=3,delay=50ns", "after"), file("b2", "seed=4,delay=50ns", "after")];
    let ended = pciescope(&["compare", "--base", &a.join(","), "--new", &b.join(","), "-j"]).expect_code(0);
    assert_eq!(summary(&ended)["runs"], serde_json::json!({"a": 2, "b": 2}));
    assert!(has_alarm(&ended));
    let both = folder.join("both");
    let text: String = a.iter().chain(&b).map(|path| std::fs::read_to_string(path).unwrap()).collect();
    std::fs::write(&both, text).unwrap();
    let both = both.display().to_string();
    let labelled = pciescope(&["compare", &both, "--by", "label"]).expect_code(0);
    assert!(labelled.stdout.starts_with("A: label before (2 runs)"), "{}", labelled.stdout);
    let turned = pciescope(&["compare", &both, "--by", "label", "--pick", "after,before"]).expect_code(0);
    assert!(turned.stdout.contains("FASTER: "), "{}", turned.stdout);
    let many = pciescope(&["compare", &both, "--by", "run"]).expect_code(2);
    assert!(many.stderr.contains("--pick A,B"), "{}", many.stderr);
    let none = pciescope(&["compare", &both, "--by", "label", "--pick", "before,never"]).expect_code(2);
    assert!(none.stderr.contains("no record has the label \"never\""), "{}", none.stderr);
    let same = pciescope(&["compare", &both, "--by", "label", "--pick", "after,after"]).expect_code(2);
    assert!(same.stderr.contains("A and B are the same: both are the label \"after\"\nhint: "), "{}", same.stderr);
    pciescope(&["compare", &both]).expect_code(2);
}

#[test]
fn different_cpus_are_named_and_no_common_cell_is_refused() {
    let folder = folder("compare-cpus");
    let (a, b) = (made(&folder, "a", "seed=1", "--cpus 0-2"), made(&folder, "b", "seed=2", "--cpus 1-3"));
    let ended = pciescope(&["compare", &a, &b, "--all"]).expect_code(0).stdout;
    assert!(ended.contains("Only in A, not compared: ") && ended.contains("on CPUs 0"), "{ended}");
    assert!(ended.contains("(2 cells together)"), "{ended}");
    let other = folder.join("other").display().to_string();
    run(&format!("latency irq --backend fake --count 100 -o {other}")).expect_code(0);
    let refused = pciescope(&["compare", &a, &other]).expect_code(2);
    assert!(refused.stderr.contains("nothing in common") && refused.stderr.contains("\nhint: "), "{}", refused.stderr);
    assert!(refused.stdout.is_empty());
}

#[test]
fn doubts_stand_before_the_figures_and_incomparable_ones_are_refused() {
    let folder = folder("compare-doubts");
    let (a, b) = (made(&folder, "a", "seed=1", ""), made(&folder, "b", "seed=1", "--accesses 4"));
    let ended = pciescope(&["compare", &a, &b]).expect_code(2);
    assert!(ended.stdout.contains("accesses per sample: A 1; B 4"), "{}", ended.stdout);
    assert!(ended.stdout.contains("INCOMPARABLE: ") && ended.stderr.contains("--anyway"), "{}", ended.stderr);
    pciescope(&["compare", &a, &b, "--anyway"]).expect_code(0);
    let same = pciescope(&["compare", &a, &a]).expect_code(0);
    assert!(same.stderr.contains("is on both sides"), "{}", same.stderr);
}

#[test]
fn the_standard_input_is_one_side() {
    let folder = folder("compare-stdin");
    let a = made(&folder, "a", "seed=1", "");
    let ended = std::process::Command::new(PROGRAM)
        .args(["compare", &a, "-"])
        .stdin(std::fs::File::open(PathBuf::from(&a)).unwrap())
        .output()
        .unwrap();
    Ended::of(ended).expect_code(0);
    let refused = pciescope(&["compare", "-", "-"]).expect_code(2);
    assert!(refused.stderr.contains("read once only"), "{}", refused.stderr);
}
