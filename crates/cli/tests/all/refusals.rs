//! Bad input: one line that says who, what, which value and why, and a hint where the user can mend it.

use crate::common::{folder, names, parse, pciescope, run};

/// Command line, and what its refusal must say.
const REFUSALS: &[(&str, &[&str])] = &[
    // The device.
    ("latency mmio", &["pciescope: no device was named", "hint: ", "pciescope list"]),
    ("latency mmio 02:00", &["\"02:00\" is not a PCI address", "0000:02:00.0"]),
    ("latency mmio 0000:02:20.0", &["\"0000:02:20.0\" is not a PCI address"]),
    (
        "latency mmio 0000:02:00.0 --backend fake",
        &["0000:02:00.0: the fake backend has no such function", "hint: its device is 0000:03:00.0"],
    ),
    ("latency mmio fffe:ff:1f.7", &["fffe:ff:1f.7: no such PCI function", "hint: `pciescope list`"]),
    ("latency path fffe:ff:1f.7", &["fffe:ff:1f.7: no such PCI function"]),
    ("latency irq fffe:ff:1f.7", &["fffe:ff:1f.7: no such PCI function"]),
    ("reg read fffe:ff:1f.7 0:0", &["fffe:ff:1f.7: no such PCI function"]),
    // The backend.
    ("latency mmio --backend magic", &["'magic'", "is not a backend", "kmod"]),
    ("latency mmio --backend fake:nonsense", &["\"nonsense\" is not one of", "seed"]),
    ("latency mmio --backend fake:cpus=0", &["cpus takes a number from 1 to 4096"]),
    ("latency mmio --backend fake:refuse", &["0000:03:00.0: the fake backend cannot be opened"]),
    ("latency irq --backend fake:vectors=0", &["0000:03:00.0", "no interrupt vector"]),
    // CPUs.
    ("latency mmio --backend fake --cpus 0-3,x", &["'0-3,x'", "\"x\" is not a CPU number"]),
    ("latency mmio --backend fake --cpus 3-1", &["\"3-1\" runs backwards"]),
    ("latency mmio --backend fake --cpus 9000", &["9000"]),
    ("latency mmio --backend fake --cpus 6-9", &["CPU 8-9 is not online", "hint: the online CPUs are 0-7"]),
    ("latency mmio --backend fake --cpus node:7", &["node 7 has no online CPU", "hint: the nodes", "0, 1"]),
    ("latency mmio --backend fake --cpus node:x", &["\"x\" is not the number of a node"]),
    ("latency irq --backend fake --trigger-cpu 99", &["CPU 99 is not online", "hint: "]),
    ("latency irq --backend fake --trigger-cpu=-1", &["'-1'"]),
    // The target.
    ("latency mmio --backend fake --bar 6", &["6 is not in 0..=5"]),
    (
        "latency mmio --backend fake --bar 1 --offset 0 --accept-side-effects",
        &["no memory BAR1", "hint: its memory BARs are 0, 2"],
    ),
    ("latency mmio --backend fake --bar 2", &["no register of BAR2 is known to be safe", "hint: ", "--offset"]),
    (
        "latency mmio --backend fake --offset 0x10000",
        &["0000:03:00.0: offset 0x10000 lies outside BAR0 (0x10000 bytes)"],
    ),
    ("latency mmio --backend fake --offset 0xfffe", &["lies outside BAR0"]),
    ("latency mmio --backend fake --offset 0xffffffffffffffff", &["lies outside BAR0"]),
    ("latency mmio --backend fake --offset 0x1002", &["offset 0x1002 is not a multiple of the width of 4 bytes"]),
    ("latency mmio --backend fake --offset 0x1004 --width 8", &["not a multiple of the width of 8"]),
    ("latency mmio --backend fake --offset 0x20", &["bytes at BAR0+0x20 does is not known", "--accept-side-effects"]),
    ("latency mmio --backend fake --offset 0x20 --width 8", &["bytes at BAR0+0x20 does is not known"]),
    ("latency mmio --backend fake --offset 0x24", &["bytes at BAR0+0x24 does is not known"]),
    ("latency mmio --backend fake --offset 0x22 --width 2", &["bytes at BAR0+0x22 does is not known"]),
    ("latency mmio --backend fake --offset 0x10000000000000000", &["at most 64 bits"]),
    ("latency mmio --backend fake --offset=-4", &["'-4'"]),
    ("latency mmio --backend fake --width 3", &["'3'", "1, 2, 4 or 8 bytes"]),
    ("latency mmio --backend fake --width 16", &["1, 2, 4 or 8 bytes"]),
    (
        "latency mmio --backend fake --test write --offset 0x100 --accept-side-effects",
        &["a write test changes a register", "hint: ", "--value"],
    ),
    (
        "latency mmio --backend fake --test write --offset 0x100 --value 1",
        &["a write test changes a register", "--accept-side-effects"],
    ),
    (
        "latency mmio --backend fake --test write --value 0x100000000",
        &["0x100000000 does not fit into 4 bytes", "hint: "],
    ),
    ("latency mmio --backend fake --test poke", &["'poke'", "write-read"]),
    // How much and how.
    ("latency mmio --backend fake --count 0", &["'0'", "at least 1"]),
    ("latency mmio --backend fake --count=-1", &["'-1'"]),
    ("latency mmio --backend fake --count 1e6", &["'1e6'", "10k"]),
    ("latency mmio --backend fake --count 99999999999G", &["largest count"]),
    ("latency mmio --backend fake --duration 10x", &["'10x'", "200ns"]),
    ("latency mmio --backend fake --duration=-1s", &["'-1s'"]),
    ("latency mmio --backend fake --gap 5s", &["the longest gap is 4294967295 ns"]),
    ("latency mmio --backend fake --accesses 0", &["'0'", "accesses"]),
    ("latency mmio --backend fake --order random", &["'random'", "interleaved"]),
    ("latency mmio --backend fake --order interleaved:0", &["\"0\" is not a number of rounds"]),
    ("latency mmio --backend fake --label=", &["--label"]),
    ("latency mmio --backend fake --json --csv", &["cannot be used with"]),
    ("latency mmio --backend fake -o /nonexistent/dir/file", &["cannot create /nonexistent/dir/file", "No such file"]),
    ("latency mmio --backend fake --raw /nonexistent/dir/file", &["cannot create /nonexistent/dir/file"]),
    ("latency path --backend fake --offset 0x101", &["configuration offset 0x101", "multiple of 4", "hint: "]),
    ("latency path --backend fake --offset 0x1000", &["configuration offset 0x1000", "0xffc"]),
    (
        "latency irq --backend fake --vectors 0-8",
        &["0000:03:00.0: has no interrupt vector 8", "hint: its vectors are 0-7"],
    ),
    ("latency irq --backend fake --vectors x", &["\"x\" is not a vector number up to 2047"]),
    ("latency irq --backend fake --vectors 2048", &["\"2048\" is not a vector number up to 2047"]),
    ("latency irq --backend fake --vectors=", &["--vectors"]),
    ("latency irq --backend fake --timeout 0", &["'0'", "--timeout", "shortest"]),
    ("latency irq --backend fake --order concurrent", &["'concurrent'", "one CPU at a time handles interrupts"]),
    ("latency irq --backend fake --raised-by magic", &["'magic'", "retrigger"]),
    // Readouts.
    (
        "readout fake:digitizer -S 18446744073709551615",
        &["-S 18446744073709551615: more than 2 TiB", "hint: take fewer"],
    ),
    // Single registers.
    ("reg read 0000:03:00.0 0 --backend fake", &["'0'", "BAR:OFFSET"]),
    ("reg read 0000:03:00.0 7:0 --backend fake", &["\"7\" is not a BAR number from 0 to 5"]),
    ("reg read 0000:03:00.0 1:0 --backend fake", &["no memory BAR1", "hint: its memory BARs are 0, 2"]),
    ("reg read 0000:03:00.0 0:0xfffd --backend fake", &["lies outside BAR0"]),
    ("reg read 0000:03:00.0 0:2 --backend fake", &["offset 0x2 is not a multiple"]),
    ("reg read 0000:03:00.0 0:0 --width 3 --backend fake", &["1, 2, 4 or 8 bytes"]),
    ("reg write 0000:03:00.0 0:8 --backend fake", &["VALUE"]),
    ("reg write 0000:03:00.0 0:8 0x100 --width 1 --backend fake", &["0x100 does not fit into 1 bytes", "hint: "]),
    ("reg write 0000:03:00.0 0:8 -1 --backend fake", &["-1"]),
    // Words that are none of ours.
    ("xyz", &["unrecognized subcommand 'xyz'", "\nhint: `pciescope --help`\n"]),
    ("latencies", &["unrecognized subcommand 'latencies'", "\nhint: a similar subcommand exists: 'latency'\n"]),
    ("latency mmio --backend fake --cout 5", &["'--cout'", "\nhint: a similar argument exists: '--count'\n"]),
    ("latency mmio --backend fake --test rea", &["[possible values: read, write, write-read]", "\nhint: "]),
    ("--verbose latency mmio --backend fake --zzz", &["'--zzz' found", "\nhint: `pciescope latency mmio --help`\n"]),
    ("reg write 0000:03:00.0 0:8", &["were not provided: <VALUE>\n", "\nhint: `pciescope reg write --help`\n"]),
    ("list --show-cpus=yes", &["'yes'", "\nhint: `pciescope list --help`\n"]),
    // The lab.
    ("lab run", &["COMMAND"]),
    ("lab run --kernel 5.4 -- true", &["5.4: no such guest kernel"]),
    ("lab run --guest-cpus 0 -- true", &["0 is not in 1..=64"]),
    ("lab run --module x --no-module -- true", &["cannot be used with"]),
    (
        "lab run --arch arm64 --kernel 6.1 --iommu --endpoints 1 -- true",
        &["--iommu with --kernel 6.1", "virtio-iommu", "hint: take another --kernel"],
    ),
    // Lists and trees have one form.
    ("stat --list -j", &["'--list' cannot be used with", "--json"]),
    ("stat --list --csv", &["'--list' cannot be used with", "--csv"]),
    ("stat --list -I 1s", &["'--list' cannot be used with", "--interval"]),
    ("stat --list -e rx", &["'--list' cannot be used with", "--event"]),
    ("list --tree -j", &["'--tree' cannot be used with", "--json"]),
    ("list --tree --show-cpus", &["'--tree' cannot be used with", "--show-cpus"]),
    ("list --tree --all", &["'--tree' cannot be used with", "--all"]),
    ("doctor --list --only smt", &["'--list' cannot be used with", "--only"]),
    ("doctor --list --skip smt", &["'--list' cannot be used with", "--skip"]),
    // Only the machine is chosen there.
    ("stat --backend kmod", &["'kmod'", "it is auto (this machine) or fake (a synthetic one)"]),
    ("list --backend kmod", &["it is auto (this machine) or fake (a synthetic one)"]),
    ("doctor --backend kmod", &["it is auto (this machine) or fake (a synthetic one)"]),
    (
        "stat --backend fake -- /nonexist/prog",
        &[
            "pciescope: cannot start /nonexist/prog: No such file or directory (os error 2)\n",
            "hint: give a command that the shell would find",
        ],
    ),
    (
        "stat --backend fake --warmup 1 -- /nonexist/prog",
        &[
            "pciescope: cannot start /nonexist/prog: No such file or directory (os error 2)\n",
            "hint: give a command that the shell would find",
        ],
    ),
    ("lab ctl", &["SOCKET"]),
    ("reg log fffe:ff:1f.7", &["fffe:ff:1f.7: has no log", "hint: ", "pciescope bind"]),
];

/// Reading without an end, each where it is refused and not when memory ends.
const ENDLESS: &[(&str, &str)] = &[
    ("report /dev/zero", "/dev/zero:1: a line is longer than 64 MiB"),
    ("compare /dev/zero /dev/null", "/dev/zero:1: a line is longer than 64 MiB"),
    ("top --replay /dev/zero --once", "/dev/zero: a line is longer than 64 MiB"),
    ("serve --replay /dev/zero", "/dev/zero:1: a line is longer than 64 MiB"),
    ("import --format perf-stat /dev/zero", "/dev/zero: the text is longer than 256 MiB"),
    ("import --format sis8300-threads /dev/zero", "/dev/zero: the text is longer than 256 MiB"),
    (
        "import --workload /dev/zero ../../tests/transcripts/pcie-1-read.txt",
        "/dev/zero: the text is longer than 256 MiB",
    ),
    ("doctor --silence-file /dev/zero", "/dev/zero: the text is longer than 256 MiB"),
];

#[test]
fn every_reader_has_a_bound() {
    for (line, words) in ENDLESS {
        let ended = run(line).expect_code(2);
        assert!(ended.stderr.contains(words) && is_one_refusal(&ended.stderr), "{line}: {}", ended.stderr);
    }
}

/// One line that says what is wrong, and at most one that says what to do.
fn is_one_refusal(stderr: &str) -> bool {
    let mut lines = stderr.lines();
    lines.next().is_some_and(|line| line.starts_with("pciescope: "))
        && lines.next().is_none_or(|line| line.starts_with("hint: "))
        && lines.next().is_none()
}

#[test]
fn every_refusal_says_what_is_wrong_and_measures_nothing() {
    let mut wrong = Vec::new();
    for (line, texts) in REFUSALS {
        let ended = pciescope(&line.split_whitespace().collect::<Vec<_>>());
        let missing: Vec<_> = texts.iter().filter(|text| !ended.stderr.contains(**text)).collect();
        if ended.code != 2 || !missing.is_empty() || !is_one_refusal(&ended.stderr) || !ended.stdout.is_empty() {
            wrong.push(format!("{line}\n  misses {missing:?} in {ended:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_file_that_holds_something_is_not_replaced_in_silence() {
    let path = folder("exists").join("run.jsonl");
    std::fs::write(&path, "precious\n").unwrap();
    let path = path.to_str().unwrap();
    for option in ["-o", "--raw"] {
        let line = ["latency", "mmio", "--backend", "fake", "--count", "10", option, path];
        let ended = pciescope(&line).expect_code(2);
        assert!(ended.stderr.contains("run.jsonl exists\nhint: "), "{}", ended.stderr);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "precious\n");
    }
    let line = ["latency", "mmio", "--backend", "fake", "--count", "10", "-o", path, "--overwrite"];
    pciescope(&line).expect_code(0);
    assert_eq!(parse(&std::fs::read_to_string(path).unwrap()).len(), 9);
}

#[test]
fn what_a_verb_reads_is_not_written_over_by_whatever_name() {
    let folder = folder("own-input");
    let at = |name: &str| folder.join(name).display().to_string();
    let (log, link, hard) = (at("log.txt"), at("link.txt"), at("hard.txt"));
    let text = "100 1500 900 0 69\n200 1700 950 1 69\n";
    std::fs::write(&log, text).unwrap();
    std::os::unix::fs::symlink("log.txt", &link).unwrap();
    std::fs::hard_link(&log, &hard).unwrap();
    for output in [&log, &link, &hard] {
        for line in [
            vec!["import", &log, "-o", output, "--overwrite"],
            vec!["import", "/dev/null", "--workload", &log, "-o", output, "--overwrite"],
            vec!["readout", &log, "-S", "16", "-o", output, "--overwrite"],
        ] {
            let ended = pciescope(&line).expect_code(2);
            assert!(ended.stderr.contains("would be overwritten\nhint: "), "{line:?}: {}", ended.stderr);
            assert_eq!(std::fs::read_to_string(&log).unwrap(), text, "{line:?}");
        }
    }
    assert_eq!(names(&folder), ["hard.txt", "link.txt", "log.txt"]);
    std::fs::write(&log, "# none\n").unwrap();
    let line = ["doctor", "--silence-file", &log, "-o", &hard, "--overwrite"];
    assert!(pciescope(&line).expect_code(2).stderr.contains("would be overwritten"));
}

#[test]
fn a_command_that_is_refused_leaves_the_old_file() {
    let folder = folder("refused-overwrite");
    let path = folder.join("good.jsonl");
    let path = path.to_str().unwrap();
    std::fs::write(path, "precious\n").unwrap();
    for line in [
        "import /nonexistent",
        "doctor 0000:ff:1f.7",
        "readout /nonexistent -S 16",
        "latency irq --backend fake:vectors=0",
        "latency mmio --backend fake:refuse",
        "latency mmio --backend fake:ones-after=1",
    ] {
        let words = line.split(' ').chain(["-o", path, "--overwrite"]).collect::<Vec<_>>();
        pciescope(&words).expect_code(2);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "precious\n", "{line}");
        assert_eq!(names(&folder), ["good.jsonl"], "{line}");
    }
    // What was measured before the device went is kept, in a file whose mode stays.
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let line = ["latency", "mmio", "--backend", "fake:remove-after=50,hops=1", "-o", path, "--overwrite"];
    pciescope(&line).expect_code(2);
    let records = parse(&std::fs::read_to_string(path).unwrap());
    assert!(records.iter().any(|record| record.histograms.get("latency").is_some_and(|one| one.count() > 0)));
    assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(names(&folder), ["good.jsonl"]);
    let line = ["stat", "--backend", "fake", "-I", "10", "-n", "2", "--csv", "-o", path, "--overwrite"];
    pciescope(&line).expect_code(0);
    assert!(std::fs::read_to_string(path).unwrap().starts_with("run,time,verb"));
}

#[test]
fn two_outputs_of_a_command_are_two_files() {
    let folder = folder("same-outputs");
    let at = |name: &str| folder.join(name).display().to_string();
    let (new, dotted, link, old) = (at("new"), at("./new"), at("link"), at("old"));
    std::os::unix::fs::symlink("new", &link).unwrap();
    std::fs::write(&old, "precious\n").unwrap();
    for (file, raw) in [(&new, &new), (&new, &dotted), (&new, &link), (&link, &new), (&old, &old)] {
        let line = ["latency", "mmio", "--backend", "fake", "--count", "10", "--overwrite", "-o", file, "--raw", raw];
        let ended = pciescope(&line).expect_code(2);
        assert!(ended.stderr.contains("two outputs would go to this one file\nhint: "), "{}", ended.stderr);
    }
    assert_eq!(names(&folder), ["link", "old"], "nothing was opened");
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "precious\n");
    // An output that is refused keeps the other from being made.
    pciescope(&["latency", "mmio", "--backend", "fake", "-o", &new, "--raw", &old]).expect_code(2);
    assert_eq!(names(&folder), ["link", "old"]);
    pciescope(&["latency", "mmio", "--backend", "fake", "--count", "10", "-o", "/dev/null", "--raw", "/dev/null"])
        .expect_code(0);
}

#[test]
fn of_two_processes_one_writes_a_file() {
    let folder = folder("two-writers");
    for number in 0..10 {
        let path = folder.join(format!("{number}.jsonl"));
        let begin = || {
            let mut command = std::process::Command::new(crate::common::PROGRAM);
            command.args(["latency", "mmio", "--backend", "fake:hops=1,cpus=2", "--count", "10", "-o"]).arg(&path);
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap()
        };
        let both = [begin(), begin()].map(|child| child.wait_with_output().unwrap());
        let refused: Vec<_> = both.iter().filter(|output| !output.status.success()).collect();
        assert_eq!(refused.len(), 1, "{both:?}");
        let words = String::from_utf8_lossy(&refused[0].stderr);
        assert!(words.contains("exists") || words.contains("is writing to it"), "{words}");
        assert_eq!(parse(&std::fs::read_to_string(&path).unwrap()).len(), 3);
    }
    // An empty file that somebody made beforehand is taken.
    let path = folder.join("made.jsonl");
    std::fs::write(&path, "").unwrap();
    pciescope(&["latency", "mmio", "--backend", "fake", "--count", "10", "-o", path.to_str().unwrap()]).expect_code(0);
}
