//! The completions, in the shells themselves where they are installed.

use crate::common::{PROGRAM, folder, pciescope, run};
use crate::list::unpack;
use crate::top::Tmux;

use std::path::Path;
use std::process::{Command, Stdio};

/// The completions of a shell.
fn script(shell: &str) -> String {
    run(&format!("completions {shell}")).expect_code(0).stdout
}

/// What bash offers for the last word, as after the tabulator key: what it would put behind the last colon.
fn offered(words: &[&str]) -> Vec<String> {
    let program = r#"
        eval "$1"; program=$2; shift 2
        [[ $(complete -p pciescope) =~ -F\ ([^ ]+) ]]
        COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
        "${BASH_REMATCH[1]}" "$program"
        [ ${#COMPREPLY[@]} = 0 ] || printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let output = Command::new("bash")
        .args(["--norc", "-c", program, "bash", &script("bash"), PROGRAM, "pciescope"])
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
}

/// What bash offers on a machine of tests/sysfs.
fn offered_on(root: &Path, line: &str) -> Vec<String> {
    let words = ["--root", root.to_str().unwrap()].into_iter().chain(line.split(' '));
    offered(&words.collect::<Vec<_>>())
}

#[test]
fn functions_are_offered_by_address_and_by_name() {
    let tree = unpack("server-2s");
    let on = |line: &str| offered_on(tree.path(), line);
    assert_eq!(on("list 0000:4"), ["4a:02.0", "4a:04.0", "4b:00.0", "4c:00.0", "4c:00.1"]);
    assert_eq!(on("bind 0000:17:00."), ["00.0", "00.1"]);
    assert_eq!(on("latency path 4c"), ["4c:00.0", "4c:00.1"]);
    assert_eq!(on("top --measure en"), ["ens2f0", "ens2f1"]);
    // Neither the partition nor the volume on top of several disks.
    assert_eq!(on("readout nv"), ["nvme0n1"]);
    // A second function too; behind an option that takes a value, and behind one that takes none.
    assert_eq!(on("list --backend auto --all 0000:9b:00.0 ens2f0"), ["ens2f0"]);
    // What is no function is no file either, and a file is the shell's to complete.
    std::fs::write(tree.path().join("zz"), "").unwrap();
    assert_eq!(on("list zz"), Vec::<String>::new());
}

#[test]
fn checks_metrics_kernels_and_backends_are_offered() {
    let tree = unpack("server-2s");
    let on = |line: &str| offered_on(tree.path(), line);
    assert_eq!(on("doctor --only link-w"), ["link-width"]);
    assert_eq!(on("doctor --skip aspm,link-s"), ["aspm,link-speed"]);
    assert_eq!(on("doctor --silence smi"), ["smi"]);
    assert_eq!(on("stat --metric rx_b"), ["rx_bytes_per_s"]);
    assert_eq!(on("stat --metric states,vec"), ["states,vectors"]);
    assert_eq!(on("convert --kernels i16-cast-f"), ["i16-cast-f32", "i16-cast-f64"]);
    // Only what the verb takes.
    assert_eq!(on("list --backend "), ["auto", "fake"]);
    assert_eq!(on("latency mmio --backend "), ["auto", "fake", "kmod", "vfio", "resource", "sysfs"]);
    assert_eq!(on("latency mmio --backend=f"), ["fake"]);
}

#[test]
fn pmus_of_the_catalogue_and_their_metrics_are_offered() {
    let root = folder("completion-pmus");
    let pmus = root.join("sys/bus/event_source/devices");
    for (pmu, event) in
        [("dwc_rootport_8010", "rx_memory_read"), ("dwc_rootport_8008", "rx_memory_write"), ("cpu", "cycles")]
    {
        std::fs::create_dir_all(pmus.join(pmu).join("events")).unwrap();
        std::fs::write(pmus.join(pmu).join("events").join(event), "event=1\n").unwrap();
    }
    assert_eq!(offered_on(&root, "stat d"), ["dwc_rootport_8008", "dwc_rootport_8010"]);
    assert_eq!(offered_on(&root, "stat c"), Vec::<String>::new());
    let all = offered_on(&root, "stat --metric ");
    assert_eq!(all.iter().filter(|name| *name == "rx_bytes_per_s").count(), 1, "{all:?}");
    assert!(all.contains(&"l0_share".to_owned()), "{all:?}");
}

/// The file completions are asked for by the exit code.
#[test]
fn a_file_is_left_to_the_shell() {
    for line in ["latency path -o ", "report ", "lab ctl /tmp/", "stat -- ec", "readout /dev/"] {
        let words = ["complete", "--", "pciescope"].into_iter().chain(line.split(' '));
        let ended = pciescope(&words.collect::<Vec<_>>()).expect_code(1);
        assert_eq!((ended.stdout, ended.stderr), (String::new(), String::new()), "{line}");
    }
}

/// The shells themselves, with the tabulator key; zsh and fish where they are installed.
#[test]
fn the_tabulator_key_completes_in_each_shell() {
    let tree = unpack("server-2s");
    let here = |shell: &str| Command::new(shell).arg("--version").stdin(Stdio::null()).output().is_ok();
    for (shell, typed) in
        [("bash", "exec bash --norc"), ("zsh", "exec zsh -f"), ("fish", "HOME=$PWD exec fish --no-config")]
    {
        if !here(shell) {
            continue;
        }
        std::fs::write(tree.path().join("completions"), script(shell)).unwrap();
        let Some(tmux) = Tmux::start(&format!("complete-{shell}"), 120, 40) else { return };
        let bin = Path::new(PROGRAM).parent().unwrap().display();
        tmux.keys(&[&format!("cd '{}'; PATH='{bin}':$PATH {typed}", tree.path().display()), "Enter"]);
        if shell == "zsh" {
            tmux.keys(&["autoload -U compinit; compinit -D", "Enter"]);
        }
        tmux.keys(&["source ./completions && echo be'gun'", "Enter"]);
        tmux.wait_for("begun");
        for (begun, wanted) in [
            ("list 0000:4b:", "list 0000:4b:00.0"),
            ("list --root . nvm", "list --root . nvme0n1"),
            ("--root=. doctor --only link-w", "doctor --only link-width"),
            ("latency mmio --backend=f", "--backend=fake"),
            ("latency path -o compl", "-o completions"),
        ] {
            let begun = if begun.contains("--root") { begun.to_owned() } else { format!("--root . {begun}") };
            tmux.keys(&[&format!("pciescope {begun}"), "Tab"]);
            tmux.wait_for(wanted);
            tmux.keys(&["C-u"]);
        }
    }
}

#[test]
fn an_unknown_shell_is_refused_with_those_that_there_are() {
    let ended = pciescope(&["completions", "tcsh"]).expect_code(2);
    assert!(ended.stderr.contains("tcsh") && ended.stderr.contains("fish"), "{}", ended.stderr);
}
