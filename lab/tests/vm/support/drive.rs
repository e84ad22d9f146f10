//! Digitizers told line by line what to do, by kmod/selftest/sis8300_drive.c in the guest, which compares what it reads with the
//! samples that the board's numbers say.

use std::fmt::Write;

use pciescope_lab::vm::Running;
use serde_json::Value;

use super::PATIENCE;
use super::digitizers::{Board, Digitizers};

/// The seed of all samples.
const SEED: u64 = 1;

/// What became of each line.
#[derive(Debug)]
pub struct Answers(pub Vec<Value>);

impl Answers {
    fn parse(text: &str) -> Answers {
        let lines = text.lines().filter(|line| line.starts_with('{') && line.ends_with('}'));
        Answers(lines.map(|line| serde_json::from_str(line).unwrap_or_else(|err| panic!("{line:?}: {err}"))).collect())
    }

    /// The answers to lines that begin with these words.
    pub fn all(&self, words: &str) -> Vec<&Value> {
        let begins = |answer: &&Value| {
            let rest = answer["line"].as_str().and_then(|line| line.strip_prefix(words));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        self.0.iter().filter(begins).collect()
    }

    /// The only answer to a line that begins with these words.
    pub fn one(&self, words: &str) -> &Value {
        let all = self.all(words);
        assert_eq!(all.len(), 1, "`{words}` in {self:#?}");
        all[0]
    }

    /// A number of the only answer to a line that begins with these words.
    pub fn number(&self, words: &str, field: &str) -> u64 {
        let answer = self.one(words);
        answer[field].as_u64().unwrap_or_else(|| panic!("{answer} has no number {field}"))
    }

    /// The error of the only line that begins with these words; empty: none.
    pub fn errno(&self, words: &str) -> &str {
        self.one(words)["errno"].as_str().expect("an answer has it")
    }

    /// No line failed, and no sample was another than the board's.
    pub fn all_well(&self) -> &Answers {
        for answer in &self.0 {
            assert_eq!(answer["errno"], "", "{answer}");
        }
        self.all_right()
    }

    /// No sample was another than the board's, and no read came back short, whatever failed.
    pub fn all_right(&self) -> &Answers {
        assert!(!self.0.is_empty(), "nothing was answered");
        for answer in &self.0 {
            for field in ["bad", "gaps", "odd"] {
                assert_eq!(answer[field].as_u64().unwrap_or(0), 0, "{field}: {answer}");
            }
            let words: Vec<&str> = answer["line"].as_str().unwrap_or_default().split(' ').collect();
            let wanted = match words[..] {
                ["read", bytes] | ["pread" | "pwrite", _, bytes] => parse(bytes),
                _ => continue,
            };
            let got = answer["ret"].as_i64().expect("an answer has it");
            assert!(got < 0 || got as u64 == wanted, "{answer}");
        }
        self
    }
}

fn parse(number: &str) -> u64 {
    let parsed = match number.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => number.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("{number:?} is no number"))
}

/// A script that is under way.
pub struct Driving<'a> {
    running: Running<'a>,
}

impl Driving<'_> {
    /// The answers so far.
    pub fn so_far(&self) -> Answers {
        Answers::parse(&self.running.stdout())
    }

    /// Waits for the answer to a line that begins with these words.
    pub fn wait_for(&self, rig: &Digitizers, words: &str) {
        rig.wait_for(&format!("the answer to `{words}`"), || {
            let is_there = !self.so_far().all(words).is_empty();
            assert!(is_there || self.running.status().is_none(), "it ended before `{words}`: {:#?}", self.so_far());
            is_there.then_some(())
        });
    }

    /// Waits for the end.
    pub fn end(self) -> Answers {
        let output = self.running.wait_within(PATIENCE).unwrap_or_else(|err| panic!("it did not end: {err}"));
        assert!(output.is_success(), "exit status {}: {}{}", output.status, output.stdout, output.stderr);
        Answers::parse(&output.stdout)
    }
}

/// Starts lines on a board's node.
pub fn start<'a>(rig: &'a Digitizers, board: &Board, lines: &[&str]) -> Driving<'a> {
    start_after(rig, board, "", lines)
}

/// As [`start`], in a shell that runs a command before.
pub fn start_after<'a>(rig: &'a Digitizers, board: &Board, first: &str, lines: &[&str]) -> Driving<'a> {
    let next = board.count("/acquisitions/number") + 1;
    let mut script =
        format!("{first}\nexec /lib/pciescope/sis8300_drive {} {SEED} <<'END'\nacq {next}\n", board.node());
    lines.iter().for_each(|line| writeln!(script, "{line}").expect("a string takes all"));
    script.push_str("END\n");
    Driving { running: rig.vm.start(&script) }
}

/// Carries out lines on a board's node.
pub fn drive(rig: &Digitizers, board: &Board, lines: &[&str]) -> Answers {
    start(rig, board, lines).end()
}
