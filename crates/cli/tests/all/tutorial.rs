//! docs/tutorial.md: every command in it is run, in its order and in one folder, as a reader would.
//!
//! A block of `console` holds commands behind `$ ` and what they print. A line of output must come again, in the same
//! order; figures may differ, since machines do, and `[...]` stands for lines that are left out. `# exit N` behind a
//! command is its exit status, else 0. What only a real machine prints stands in a block of `text`, which is not compared.

use std::path::Path;
use std::process::Command;

use crate::common::{PROGRAM, folder};

/// A command of the tutorial.
#[derive(Debug, Default)]
struct Step {
    line: usize,
    command: String,
    status: i32,
    output: Vec<String>,
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_inside = false;
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            is_inside = line == "```console";
        } else if let (true, Some(typed)) = (is_inside, line.strip_prefix("$ ")) {
            let (command, status) = typed.split_once("# exit ").unwrap_or((typed, "0"));
            let (command, status) = (command.trim().to_owned(), status.trim().parse().unwrap());
            steps.push(Step { line: number + 1, command, status, output: Vec::new() });
        } else if is_inside && line != "[...]" {
            steps.last_mut().expect("a block begins with a command").output.push(line.to_owned());
        }
    }
    steps
}

/// What stays of a line when figures and the space between words are left out.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for word in line.split_whitespace() {
        let figure = word.trim_matches(|c: char| c.is_ascii_digit() || "+-.,%:~".contains(c));
        shape.push_str(if figure.is_empty() { "#" } else { figure });
        shape.push(' ');
    }
    shape
}

#[test]
fn every_command_of_the_tutorial_does_what_it_says() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorial.md")).unwrap();
    let (steps, folder) = (steps(&text), folder("tutorial"));
    assert!(steps.len() >= 10, "the tutorial has ten steps");
    let programs = Path::new(PROGRAM).parent().unwrap().display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    for step in steps {
        let mut shell = Command::new("sh");
        shell.args(["-c", &step.command]).current_dir(&folder).env("PATH", &path).env_remove("CLICOLOR_FORCE");
        let ended = shell.output().unwrap();
        let printed = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
        let place = format!("docs/tutorial.md:{}: {}", step.line, step.command);
        assert_eq!(ended.status.code(), Some(step.status), "{place}\n{printed}");
        let mut lines = printed.lines().map(shape);
        for line in &step.output {
            assert!(lines.any(|printed| printed == shape(line)), "{place}\nno line such as: {line}\n{printed}");
        }
    }
}
