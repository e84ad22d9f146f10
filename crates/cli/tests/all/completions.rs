//! The completions, in the shells themselves where they are installed.

use crate::common::{folder, pciescope, run};

use std::process::{Command, Stdio};

/// The completions of a shell.
fn script(shell: &str) -> String {
    run(&format!("completions {shell}")).expect_code(0).stdout
}

/// What bash offers for the last word, as after the tabulator key.
fn offered(words: &[&str]) -> Vec<String> {
    let program = r#"
        eval "$1"; shift
        [[ $(complete -p pciescope) =~ -F\ ([^ ]+) ]]
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
        "${BASH_REMATCH[1]}" pciescope "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let output = Command::new("bash")
        .args(["--norc", "-c", program, "bash", &script("bash"), "pciescope"])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("the tests of this project need bash");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.is_empty(), "{words:?}: {said}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_verbs_and_those_below_them() {
    assert_eq!(offered(&["lat"]), ["latency"]);
    assert_eq!(offered(&["latency", "mm"]), ["mmio"]);
    assert_eq!(offered(&["lab", "sh"]), ["shell"]);
    let all = offered(&[""]);
    for verb in ["list", "stat", "readout", "top", "serve", "doctor", "compare", "report", "completions"] {
        assert!(all.contains(&verb.to_owned()), "{verb} is not in {all:?}");
    }
}

#[test]
fn bash_completes_options_and_values() {
    assert_eq!(offered(&["latency", "mmio", "--accept"]), ["--accept-side-effects"]);
    assert_eq!(offered(&["latency", "mmio", "--test", "write"]), ["write", "write-read"]);
    assert!(offered(&["stat", "-"]).contains(&"-I".to_owned()));
    assert_eq!(offered(&["completions", "f"]), ["fish"]);
}

#[test]
fn what_the_help_hides_is_not_offered() {
    assert!(!offered(&[""]).contains(&"man".to_owned()), "the verb that writes manual pages is for packagers");
    assert!(!offered(&["stat", "-"]).contains(&"--root".to_owned()));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = run(&format!("completions {shell}")).expect_code(0).stdout;
        assert!(text.contains("latency") && !text.contains("--root"), "{shell}");
    }
}

#[test]
fn zsh_and_fish_take_their_completions_and_fish_offers_them() {
    let folder = folder("completions");
    for shell in ["zsh", "fish"] {
        let file = folder.join(shell);
        std::fs::write(&file, script(shell)).unwrap();
        let Ok(output) = Command::new(shell).arg("-n").arg(&file).stdin(Stdio::null()).output() else { continue };
        assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let source = format!("source '{}'; complete -C 'pciescope latency mm'", folder.join("fish").display());
    let fish = Command::new("fish").args(["--no-config", "-c", &source]).env("HOME", &folder).output();
    if let Ok(output) = fish {
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.starts_with("mmio\t"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn an_unknown_shell_is_refused_with_those_that_there_are() {
    let ended = pciescope(&["completions", "tcsh"]).expect_code(2);
    assert!(ended.stderr.contains("tcsh") && ended.stderr.contains("powershell"), "{}", ended.stderr);
}
