//! Machines that exist, and the kinds of fault that they showed, as facts: tests/machines/*.facts. What is said of them
//! must be right, whichever verb says it. docs/doctor.md, "Trees", has the format.

use std::path::Path;
use std::process::Command;

use crate::common::{Ended, PROGRAM};
use pciescope_core::{Finding, Severity};
use pciescope_support::facts::{Machine, machines};

/// The program on a tree; lines are as wide as they need to be.
fn run(root: &Path, line: &str) -> Ended {
    let mut command = Command::new(PROGRAM);
    command.arg("--root").arg(root).args(line.split_whitespace()).env("COLUMNS", "2000");
    Ended::of(command.output().unwrap())
}

/// `note link-speed 0000:01:00.0: text; effect; do: cure`.
fn line(finding: &Finding) -> String {
    let severity = format!("{:?}", finding.severity).to_lowercase();
    let at = finding.bdf.map(|bdf| format!(" {bdf}")).unwrap_or_default();
    format!("{severity} {}{at}: {}; {}; do: {}", finding.check, finding.text, finding.consequence, finding.remedy)
}

/// What is wrong with what the program says of a machine.
fn wrong(machine: &Machine) -> Vec<String> {
    let root = machine.tree.unpack();
    let root = root.path();
    let findings: Vec<Finding> =
        run(root, "doctor -j").records().into_iter().flat_map(|record| record.findings).collect();
    let lines: Vec<String> = findings.iter().map(line).collect();
    let listed = run(root, "list").stdout;
    let row = |bdf: &str| listed.lines().find(|line| line.starts_with(bdf)).unwrap_or_default().to_owned();
    let is_said = |claim: &str| {
        let (verb, text) = claim.split_once(": ").unwrap();
        let ended = run(root, verb);
        assert!(ended.code < 2, "{}: {verb}: {}", machine.name, ended.stderr);
        (ended.stdout + &ended.stderr).contains(text)
    };
    let is_quiet = |what: &str| match what.split_once('@') {
        _ if what == "all" => findings.iter().all(|one| one.severity == Severity::Note),
        Some((check, bdf)) => {
            !findings.iter().any(|one| one.check == check && one.bdf.is_some_and(|own| own.to_string() == bdf))
        }
        None => !findings.iter().any(|one| one.check == what),
    };
    let holds = |(word, rest): &(String, String)| match word.as_str() {
        "finds" => {
            let (subject, text) = rest.split_once(": ").unwrap_or((rest, ""));
            lines.iter().any(|line| line.starts_with(&format!("{subject}: ")) && line.contains(text))
        }
        "quiet" => rest.split_whitespace().all(is_quiet),
        "list" | "unlisted" => {
            let (bdf, text) = rest.split_once(' ').unwrap();
            let row = row(bdf);
            !row.is_empty() && row.contains(text) == (word == "list")
        }
        word => is_said(rest) == (word == "shows"),
    };
    let wrong = machine.claims.iter().filter(|claim| !holds(claim));
    let wrong: Vec<String> = wrong.map(|(word, rest)| format!("{}: {word}: {rest}", machine.name)).collect();
    if wrong.is_empty() { wrong } else { [wrong, lines, vec![listed]].concat() }
}

fn all_is_said_right(file: &str, count: usize) {
    let machines = machines(file);
    assert_eq!(machines.len(), count);
    assert!(machines.iter().all(|machine| !machine.claims.is_empty()));
    let wrong: Vec<String> = machines.iter().flat_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_said_of_machines_that_exist() {
    all_is_said_right("reports", 29);
}

#[test]
fn what_is_said_of_their_kinds_of_fault_and_of_what_looks_alike() {
    all_is_said_right("kinds", 17);
}
