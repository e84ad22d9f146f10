//! The manual pages: one for each verb that the help shows, with what the help says, and right in the eyes of man.

use crate::common::{folder, pciescope, run};

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pciescope_support::tools::{is_there, skip};

/// The pages by name (`pciescope-latency-mmio`), written into a folder of the test's own.
fn pages(test: &str) -> (PathBuf, BTreeMap<String, String>) {
    let folder = folder(test);
    let ended = pciescope(&["man", "--dir", folder.to_str().unwrap(), "--date", "2026-11-22"]).expect_code(0);
    assert!(ended.stdout.is_empty() && ended.stderr.is_empty(), "{ended:?}");
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let pages = files.map(|file| {
        assert_eq!(file.extension().unwrap(), "1", "{}", file.display());
        (file.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&file).unwrap())
    });
    let pages = pages.collect();
    (folder, pages)
}

/// What the help of `verb` lists below `heading`: the first words of the lines that stand out least.
fn listed(help: &str, heading: &str) -> Vec<String> {
    let block = help.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.is_empty());
    let names = block.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

/// Every verb that the help shows, from the top down, as `latency mmio`.
fn verbs() -> Vec<String> {
    fn below(verb: &str, found: &mut Vec<String>) {
        let help = run(&format!("{verb} --help")).expect_code(0).stdout;
        for name in listed(&help, "Commands:").into_iter().filter(|name| name != "help") {
            let name = format!("{verb} {name}").trim().to_owned();
            found.push(name.clone());
            below(&name, found);
        }
    }
    let mut found = Vec::new();
    below("", &mut found);
    assert!(found.iter().any(|verb| verb == "latency mmio"), "{found:?}");
    found
}

fn page_of(verb: &str) -> String {
    format!("pciescope {verb}").trim().replace(' ', "-")
}

#[test]
fn every_verb_that_the_help_shows_has_a_page_and_no_other_has() {
    let (_, pages) = pages("man-pages");
    let verbs = verbs();
    let wanted: BTreeSet<String> = verbs.iter().map(|verb| page_of(verb)).chain([page_of("")]).collect();
    assert_eq!(pages.keys().cloned().collect::<BTreeSet<_>>(), wanted);
}

#[test]
fn a_page_holds_the_options_and_examples_of_the_help() {
    let (_, pages) = pages("man-options");
    for verb in verbs().into_iter().chain([String::new()]) {
        let page = pages[&page_of(&verb)].replace("\\-", "-").replace("\\(aq", "'").replace("\\*(Aq", "'");
        let page = page.replace("\\e", "\\").replace("\\(ti", "~").replace("\\(ga", "`").replace("\\(ha", "^");
        let help = run(&format!("{verb} --help")).expect_code(0).stdout;
        let words = help.lines().filter(|line| line.trim_start().starts_with('-')).flat_map(str::split_whitespace);
        let options = words
            .map(|word| word.trim_matches(',').split(['=', '[']).next().unwrap_or_default())
            .filter(|word| word.starts_with("--") && word.len() > 2);
        let mut count = 0;
        for option in options.map(|option| option.trim_end_matches(['.', ':', '`'])) {
            assert!(page.contains(&format!("\\fB{option}\\fR")), "{verb}: no {option} in its page:\n{page}");
            count += 1;
        }
        assert!(count >= 2, "{verb}: {help}");
        let examples = help.lines().skip_while(|line| *line != "Examples:").skip(1);
        let examples: Vec<&str> = examples.take_while(|line| line.starts_with("  ")).map(|line| &line[2..]).collect();
        for example in &examples {
            assert!(page.contains(&format!("\n{example}\n")), "{verb}: no example {example:?} in its page:\n{page}");
        }
        assert_eq!(page.contains("\n.SH EXAMPLES\n"), !examples.is_empty(), "{verb}");
    }
}

#[test]
fn pages_name_the_exit_codes_and_only_pages_that_exist() {
    let (_, pages) = pages("man-references");
    for (name, page) in &pages {
        for code in ["0", "1", "2", "128+N", "141"] {
            assert!(page.contains(&format!("\n.B {code}\n")), "{name}: no exit code {code}:\n{page}");
        }
        let ours = page.split("\\fB").skip(1).filter_map(|rest| rest.split_once("\\fR(1)")).map(|(name, _)| name);
        for other in ours.map(|name| name.replace("\\-", "-")).filter(|name| name.starts_with("pciescope")) {
            assert!(pages.contains_key(&other), "{name} refers to {other}, which is no page");
            assert_ne!(&other, name);
        }
    }
    assert!(pages["pciescope-latency-mmio"].contains("\\fBpciescope\\-latency\\-irq\\fR(1)"));
}

#[test]
fn the_same_program_and_date_write_the_same_bytes() {
    assert_eq!(pages("man-once").1, pages("man-twice").1);
}

#[test]
fn a_folder_that_cannot_be_written_and_a_wrong_date_are_refused() {
    let ended = run("man --dir /proc/nowhere").expect_code(2);
    assert!(ended.stderr.starts_with("pciescope: cannot make the folder /proc/nowhere"), "{}", ended.stderr);
    for date in ["22.11.2026", "2026-11-2x", "2026-1-22"] {
        run(&format!("man --dir /proc/nowhere --date {date}"))
            .expect_code(2)
            .stderr
            .find("write a date as")
            .unwrap_or_else(|| panic!("{date} was taken"));
    }
}

/// Runs a checker on all pages; `None` if it is not installed.
fn complaints(program: &str, args: &[&str], folder: &Path) -> Option<String> {
    if !is_there(program) {
        return None;
    }
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let output = Command::new(program).args(args).args(files).stdin(Stdio::null()).output().unwrap();
    Some((String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout)).into_owned())
}

#[test]
fn groff_has_nothing_to_warn_of() {
    let (folder, _) = pages("man-groff");
    // -z: no output but the warnings.
    if let Some(said) = complaints("groff", &["-ww", "-z", "-man", "-Tutf8", "-rLL=80n"], &folder) {
        assert_eq!(said, "");
    }
}

#[test]
fn mandoc_has_nothing_to_warn_of() {
    let (folder, _) = pages("man-mandoc");
    if let Some(said) = complaints("mandoc", &["-Tlint", "-Wwarning"], &folder) {
        assert_eq!(said, "");
    }
}

#[test]
fn apropos_finds_every_page_by_its_name_line() {
    let (folder, pages) = pages("man-lexgrog");
    let Some(said) = complaints("lexgrog", &[], &folder) else { return };
    assert_eq!(said.lines().count(), pages.len(), "{said}");
    for name in pages.keys() {
        assert!(said.contains(&format!("{name}.1: \"{name} - ")), "{name}: {said}");
    }
}

#[test]
fn man_shows_a_page_as_it_is_meant() {
    let (folder, _) = pages("man-shown");
    let page = folder.join("pciescope-unbind.1");
    if !is_there("man") {
        return;
    }
    let output = Command::new("man")
        .args(["-E", "ascii", "-l"])
        .arg(&page)
        .env("MANWIDTH", "100")
        .env("MAN_KEEP_FORMATTING", "")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    // A man that was left out of a minimal system says so, and with success.
    if text.contains("minimized") {
        skip("man is that of a minimal system");
        return;
    }
    assert!(text.contains("SYNOPSIS\n       pciescope unbind [OPTIONS]"), "{text}");
    assert!(text.contains("\n       pciescope unbind --restore   all functions, also those of a killed run"), "{text}");
}
