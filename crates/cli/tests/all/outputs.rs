//! Outputs that are links or pipes.

use crate::common::{Ended, PROGRAM, folder, names, parse, pciescope};

fn demo() -> String {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/records/demo.jsonl").display().to_string()
}

/// What another user put at an output is not followed as root: the user chooses neither which file is made nor which is
/// replaced.
#[test]
fn root_follows_no_link_of_another_user() {
    use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};
    const NOBODY: Option<u32> = Some(65534);
    let folder = folder("planted");
    if std::fs::metadata(&folder).unwrap().uid() != 0 {
        eprintln!("skipped: only root can make a link of another user");
        return;
    }
    let (own, theirs) = (folder.join("own"), folder.join("theirs"));
    std::fs::create_dir(&own).unwrap();
    std::fs::create_dir(&theirs).unwrap();
    chown(&theirs, NOBODY, NOBODY).unwrap();
    let (new, old, log) = (own.join("new"), own.join("old.html"), folder.join("log"));
    std::fs::write(&old, "precious\n").unwrap();
    std::fs::write(&log, "100 1500 900 0 69\n200 1700 950 1 69\n").unwrap();
    let plant = |name: &str, to: &std::path::Path| {
        let link = theirs.join(name);
        symlink(to, &link).unwrap();
        lchown(&link, NOBODY, NOBODY).unwrap();
        link.display().to_string()
    };
    let at = |name: &str| folder.join(name).display().to_string();
    let (to_new, to_old, to_own) = (plant("new", &new), plant("old.html", &old), plant("folder", &own));
    // A link of root's own to one of another user leads as far.
    symlink(theirs.join("new"), at("chain")).unwrap();
    let in_folder = format!("{to_own}/inside");
    let (log, demo) = (log.to_str().unwrap(), demo());
    let measure = ["latency", "mmio", "--backend", "fake", "--count", "10"];
    for line in [
        [&measure[..], &["-o", &to_new]].concat(),
        [&measure[..], &["-o", &to_old, "--overwrite"]].concat(),
        [&measure[..], &["-o", &at("chain")]].concat(),
        [&measure[..], &["-o", &in_folder]].concat(),
        [&measure[..], &["-o", &at("good"), "--raw", &to_new]].concat(),
        vec!["report", &demo, "-o", &to_old, "--overwrite"],
        vec!["report", &demo, "-o", &format!("{to_own}/page.html")],
        vec!["report", &demo, "-o", &format!("{to_own}/figures.csv")],
        vec!["import", log, "-o", &to_old, "--overwrite"],
        vec!["man", "--dir", &to_own],
        vec!["man", "--dir", &format!("{to_own}/made/")],
        vec!["lab", "demo", "--dir", &format!("{to_own}/made")],
    ] {
        let ended = pciescope(&line).expect_code(2);
        let is_told = ended.stderr.contains("is a link that user 65534 made") && ended.stderr.contains("\nhint: ");
        assert!(is_told, "{line:?}: {}", ended.stderr);
        assert_eq!(names(&own), ["old.html"], "{line:?}");
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "precious\n", "{line:?}");
    }
    // To replace the name leaves the file.
    let page = theirs.join("page.html");
    std::fs::hard_link(&old, &page).unwrap();
    let (records, manual) = (theirs.join("records.jsonl"), theirs.join("pciescope.1"));
    [&records, &manual].into_iter().for_each(|second| std::fs::hard_link(&old, second).unwrap());
    for (line, output, begin) in [
        (vec!["report", &demo, "-o", page.to_str().unwrap()], &page, "<!DOCTYPE html>"),
        ([&measure[..], &["--overwrite", "-o", records.to_str().unwrap()]].concat(), &records, "{\"schema\":"),
        (vec!["man", "--dir", theirs.to_str().unwrap()], &manual, ".ie"),
    ] {
        pciescope(&line).expect_code(0);
        assert!(std::fs::read_to_string(output).unwrap().starts_with(begin), "{line:?}");
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "precious\n", "{line:?}");
    }
    // The folder of another user takes a file, and links of root's own lead where they led.
    symlink(&own, at("to-own")).unwrap();
    symlink("to-own/made", at("made")).unwrap();
    for output in [format!("{}/plain", theirs.display()), at("made")] {
        pciescope(&[&measure[..], &["-o", &output]].concat()).expect_code(0);
        assert_eq!(parse(&std::fs::read_to_string(output).unwrap()).len(), 9);
    }
    assert_eq!(names(&own), ["made", "old.html"]);
    for output in [format!("{}/a/b/", theirs.display()), at("to-own/pages")] {
        pciescope(&["man", "--dir", &output]).expect_code(0);
        assert!(std::fs::exists(format!("{output}/pciescope.1")).unwrap(), "{output}");
    }
    symlink("own/old.html", at("old.html")).unwrap();
    pciescope(&["report", &demo, "-o", &at("old.html")]).expect_code(0);
    assert!(std::fs::read_to_string(&old).unwrap().starts_with("<!DOCTYPE html>"));
    assert!(std::fs::symlink_metadata(at("old.html")).unwrap().is_symlink());
}

#[test]
fn a_pipe_without_a_reader_is_refused_and_does_not_hang() {
    let folder = folder("no-reader");
    let pipe = folder.join("pipe.csv").display().to_string();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for line in [
        vec!["latency", "mmio", "--backend", "fake", "--count", "10", "-o", &pipe],
        vec!["report", &demo(), "-o", &pipe],
    ] {
        // Without the refusal the program waits for ever; `timeout` ends it then with another exit code.
        let ended = std::process::Command::new("timeout").arg("60").arg(PROGRAM).args(&line).output().unwrap();
        let ended = Ended::of(ended).expect_code(2);
        assert!(ended.stderr.contains("nobody reads this pipe\nhint: "), "{}", ended.stderr);
    }
    // A reader that is a little late is waited for.
    let reader = std::process::Command::new("sh")
        .args(["-c", &format!("sleep 0.3; cat {pipe}")])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let ended = pciescope(&["latency", "mmio", "--backend", "fake", "--count", "10", "-o", &pipe]);
    let read = Ended::of(reader.wait_with_output().unwrap());
    ended.expect_code(0);
    assert_eq!(read.records().len(), 9);
    // The standard output can be named, also if it is a pipe or a file without a name.
    for output in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let line = ["latency", "mmio", "--backend", "fake", "--count", "10", "-o", output];
        let ended = pciescope(&line).expect_code(0);
        assert!(
            ended.stdout.contains("\n{\"schema\":") || ended.stdout.starts_with("{\"schema\":"),
            "{}",
            ended.stdout
        );
        let gone = std::fs::File::create(folder.join("gone")).unwrap();
        std::fs::remove_file(folder.join("gone")).unwrap();
        let status = std::process::Command::new(PROGRAM).args(line).stdout(gone).status().unwrap();
        assert!(status.success(), "{output}");
    }
}

#[test]
fn a_name_in_an_error_moves_no_cursor() {
    let ended = pciescope(&["report", "no\u{1b}[31mfile\u{9b}2J"]).expect_code(2);
    assert!(ended.stderr.contains("no\u{fffd}[31mfile\u{fffd}2J"), "{}", ended.stderr);
    assert!(ended.stderr.chars().all(|c| c == '\n' || !c.is_control()), "{:?}", ended.stderr);
}
