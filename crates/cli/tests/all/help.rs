//! Help and version: every verb explains itself with examples.

use crate::common::{pciescope, run};

const COMMANDS: [&str; 30] = [
    "list",
    "latency",
    "latency mmio",
    "latency path",
    "latency irq",
    "stat",
    "verify",
    "verify pcie",
    "verify dram",
    "verify readout",
    "readout",
    "convert",
    "reg",
    "reg read",
    "reg write",
    "reg log",
    "bind",
    "unbind",
    "report",
    "import",
    "lab",
    "lab run",
    "lab shell",
    "lab ctl",
    "lab demo",
    "top",
    "serve",
    "doctor",
    "compare",
    "completions",
];

#[test]
fn every_verb_has_help_with_examples() {
    for command in COMMANDS {
        let help = run(&format!("{command} --help")).expect_code(0);
        assert!(help.stdout.contains("Usage: pciescope"), "{command}: {}", help.stdout);
        assert!(help.stdout.contains("Examples:\n  pciescope "), "{command} has no examples:\n{}", help.stdout);
        assert!(help.stderr.is_empty(), "{command}: {}", help.stderr);
        // The text of an option is on its line or, indented, on the next line.
        let lines: Vec<&str> = help.stdout.lines().take_while(|line| *line != "Examples:").collect();
        for (place, line) in lines.iter().enumerate().filter(|(_, line)| line.trim_start().starts_with("--")) {
            let is_alone = !line.trim_start().contains("  ");
            assert!(!is_alone || lines[place + 1].starts_with("          "), "{command}: no text for {line}");
        }
    }
}

#[test]
fn the_top_level_help_names_every_verb_and_exit_code() {
    let help = run("--help").expect_code(0).stdout;
    for verb in ["list", "latency", "stat", "convert", "reg", "bind", "unbind", "report", "import", "lab"] {
        assert!(help.contains(&format!("\n  {verb} ")), "{verb} is missing:\n{help}");
    }
    for code in ["0 ", "1 ", "2 ", "128+N", "141"] {
        assert!(help.contains(&format!("\n  {code}")), "exit code {code} is missing:\n{help}");
    }
}

/// The kernel names the nodes of the text records after the whole address (docs/uapi.md).
#[test]
fn the_example_of_import_names_a_node_that_exists() {
    let help = run("import --help").expect_code(0).stdout;
    assert!(help.contains("/dev/pcilatdriver/0000:1a:00.0/interrupt"), "{help}");
}

#[test]
fn version_is_that_of_the_package() {
    assert_eq!(run("--version").expect_code(0).stdout, concat!("pciescope ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn a_verb_of_verbs_without_one_shows_the_help_and_fails() {
    let ended = pciescope(&["latency"]).expect_code(2);
    assert!(ended.stdout.is_empty() && ended.stderr.contains("Usage: pciescope latency"), "{ended:?}");
}

#[test]
fn an_unknown_verb_is_refused_in_our_own_words() {
    let ended = run("measure").expect_code(2);
    assert!(ended.stderr.starts_with("pciescope: unrecognized subcommand 'measure'"), "{}", ended.stderr);
}
