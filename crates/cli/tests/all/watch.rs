//! `pciescope watch` as a user has it: changes as they come, the answer at the end, the records, and what they become.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pciescope_core::change::{Cause, Subject};

use crate::common::{Ended, PROGRAM, folder, names, parse, pciescope, run};
use crate::endings::heard;

#[test]
fn changes_come_with_cause_and_loss_and_the_answer_stands_at_the_end() {
    let ended = run("watch --backend fake --duration 1h -I 2s").expect_code(1);
    let text = &ended.stdout;
    let lines = |word: &str| text.lines().filter(|line| line.contains(word)).count();
    assert_eq!(
        lines("link 32 GT/s x4 -> 8 GT/s x4: reliability (LBMS was set); 11.82 GB/s less than at best"),
        1,
        "{text}"
    );
    assert_eq!(lines("runs at 16 GT/s x4 (both ends can 32 GT/s x4)"), 1, "{text}");
    let answer = &text[text.find("5 links over 1 h 0 min: 7 changes").unwrap_or_else(|| panic!("{text}"))..];
    let first: Vec<&str> = answer.lines().skip(1).take(2).map(str::trim).collect();
    let lost = [
        "0000:00:02.0 (nvme0n1) lost 21.74 TB in 31 min 0 s",
        "worst at 0:20:00: 32 GT/s x4 -> 8 GT/s x4 (reliability)",
    ];
    assert_eq!(first, lost, "{answer}");
    assert!(answer.contains("SYNTHETIC"), "{answer}");
    assert!(answer.lines().all(|line| line.chars().count() <= 80), "{answer}");
}

#[test]
fn a_bit_that_is_cleared_leaves_no_time_unseen() {
    let unseen = |more: &str| {
        let ended = run(&format!("watch --backend fake --duration 1h -j {more}")).expect_code(1);
        let records = ended.records();
        let is_disk = |bdf: pciescope_core::Bdf| bdf.to_string() == "0000:00:02.0";
        let of_disk = records.iter().filter(|one| one.device.as_ref().and_then(|one| one.bdf).is_some_and(is_disk));
        let unseen: f64 = of_disk.filter_map(|one| one.metrics.get("unseen_ns")).map(|metric| metric.value).sum();
        (unseen, ended.stdout.contains("\"clear_lbms\":true"))
    };
    // LBMS is set after 20 minutes, and nobody else clears it.
    assert_eq!((unseen(""), unseen("--clear-lbms")), ((2400e9, false), (0.0, true)));
}

#[test]
fn its_records_become_a_page_and_a_picture_with_a_timeline() {
    let at = folder("watch-records");
    let file = at.join("links.jsonl");
    let file = file.to_str().unwrap();
    let ended = pciescope(&["watch", "--backend", "fake", "--duration", "1h", "-o", file, "-j"]).expect_code(1);
    let records = ended.records();
    let of = |what: Subject, cause: Cause| {
        let changes = records.iter().filter_map(|one| one.change.as_ref());
        changes.filter(|change| change.of == what && change.cause == Some(cause)).count()
    };
    assert_eq!((of(Subject::Link, Cause::Reliability), of(Subject::Presence, Cause::HotPlug)), (1, 4));
    assert_eq!(fs::read_to_string(file).unwrap(), ended.stdout, "the file has what was printed");
    let page = at.join("links.html");
    pciescope(&["report", file, "-o", page.to_str().unwrap()]).expect_code(0);
    let page = fs::read_to_string(page).unwrap();
    for word in ["Links over time", "best state seen", "below it", "power saving", "lost 21.", "reseat the card"] {
        assert!(page.contains(word), "{word} is not in the page");
    }
    let picture = at.join("links.png");
    pciescope(&["report", file, "-o", picture.to_str().unwrap()]).expect_code(0);
    assert!(fs::metadata(picture).unwrap().len() > 4000);
    let text = pciescope(&["report", file, "--all"]).expect_code(0).stdout;
    assert!(text.contains("Below best") && text.contains("Changes\n-------"), "{text}");
}

#[test]
fn a_quiet_machine_gives_exit_code_0_and_one_without_links_2() {
    let ended = run("watch --backend fake:host=quiet --duration 10min").expect_code(0);
    assert!(
        ended.stdout.starts_with("5 links over 10 min 0 s: 0 changes\n  no link lost bandwidth"),
        "{}",
        ended.stdout
    );
    let empty = folder("watch-empty");
    fs::create_dir(empty.join("sys")).unwrap();
    let ended = pciescope(&["--root", empty.to_str().unwrap(), "watch", "--duration", "1ms"]).expect_code(2);
    assert!(ended.stderr.contains("no link to watch") && ended.stderr.contains("hint: "), "{}", ended.stderr);
    let ended = run("watch 0000:7f:1f.7 --duration 1ms").expect_code(2);
    assert!(ended.stderr.contains("0000:7f:1f.7"), "{}", ended.stderr);
}

/// Starts the program; its output can be read when it has ended.
fn start(args: &[&str]) -> Child {
    let mut command = heard(PROGRAM);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn commands_run_at_their_events_and_their_failures_are_records() {
    let at = folder("watch-on");
    let (file, out) = (at.join("links.jsonl"), at.join("out"));
    let command = |event: &str| {
        let words =
            "$PCIESCOPE_EVENT $PCIESCOPE_FUNCTION $PCIESCOPE_DEVICE $PCIESCOPE_CAUSE $PCIESCOPE_FROM-$PCIESCOPE_TO";
        format!("{event}=echo {words}: $PCIESCOPE_LOST_BYTES_PER_S >>{}; cat", out.display())
    };
    let common = ["watch", "--backend", "fake", "--duration", "1h", "-o", file.to_str().unwrap()];
    let rules = [command("reliability"), command("lost"), "slot=echo told; exit 3".to_owned(), command("gap")];
    let rules: Vec<&str> = rules.iter().flat_map(|rule| ["--on", rule.as_str()]).collect();
    let ended = pciescope(&[&common[..], &rules].concat()).expect_code(1);
    let mut told: Vec<String> = fs::read_to_string(&out).unwrap().lines().map(str::to_owned).collect();
    told.sort();
    // The link that came up below what both ends can do was the first that lost.
    let expected = [
        "lost 0000:00:03.0 nvme1n1 -16 GT/s x4:",
        "reliability 0000:00:02.0 nvme0n1 reliability 32 GT/s x4-8 GT/s x4: 11815384615",
    ];
    assert_eq!(told, expected);
    let failed = "--on slot: the command failed: exit status: 3";
    assert_eq!(ended.stderr, format!("told\npciescope: {failed}\n"), "{}", ended.stderr);
    assert!(ended.stdout.contains(failed) && !ended.stdout.contains("told"), "{}", ended.stdout);
    let records = parse(&fs::read_to_string(&file).unwrap());
    let warned = |text: &str| {
        let mut all = records.iter().flat_map(|one| &one.warnings);
        all.any(|one| one.text == text && one.code.starts_with("command"))
    };
    assert!(warned(failed) && warned("--on lost: events without a command of their own: 2"), "{records:?}");
    let help = run("watch --help").stdout.replace('\n', " ");
    let refused = run("watch --on lots=true").expect_code(2).stderr;
    let events = refused.split("events: ").nth(1).unwrap().lines().next().unwrap();
    for event in events.split(", ") {
        assert!(help.contains(&format!(" {event}")), "{event} is not in the help");
    }
}

#[test]
fn a_rotation_loses_no_record_and_doubles_none() {
    let at = folder("watch-rotation");
    let file = at.join("links.jsonl");
    let name = file.to_str().unwrap();
    // A pipe that nobody reads would hold it up. By itself it ends after four minutes.
    let shown = folder("watch-rotation-shown").join("out");
    let mut command = heard(PROGRAM);
    command
        .args(["watch", "--backend", "fake", "-I", "2s", "--duration", "100h", "-j", "-o", name])
        .stdin(Stdio::null());
    let mut child = command.stdout(fs::File::create(&shown).unwrap()).spawn().unwrap();
    for number in 0..4 {
        wait_until("the file grows", || {
            file.metadata().is_ok_and(|is| is.len() > if number == 0 { 5000 } else { 700 })
        });
        fs::rename(&file, at.join(format!("links.{number}"))).unwrap();
        signal(&child, "-HUP");
        wait_until("the file is there again", || file.exists());
        // The file is where it was, and goes on.
        signal(&child, "-HUP");
    }
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let shown = fs::read_to_string(shown).unwrap();
    let files: Vec<String> = names(&at);
    assert_eq!(files.len(), 5);
    let texts: Vec<String> = files.iter().map(|file| fs::read_to_string(at.join(file)).unwrap()).collect();
    assert!(texts.iter().all(|text| !parse(text).is_empty()), "{files:?}");
    assert!(texts.concat() == shown, "{:?}", texts.iter().map(|text| text.lines().count()).collect::<Vec<_>>());
    // Without a file it ends the program, as it does others.
    let child = start(&["watch", "--backend", "fake", "-j", "--duration", "10h"]);
    std::thread::sleep(Duration::from_millis(500));
    signal(&child, "-HUP");
    Ended::of(child.wait_with_output().unwrap()).expect_code(129);
}

/// A port with a disk, as they look without root.
fn tree(root: &Path) {
    let devices = root.join("sys/bus/pci/devices");
    fs::create_dir_all(&devices).unwrap();
    for (bdf, place, class) in [
        ("0000:00:01.0", "pci0000:00/0000:00:01.0", "0x060400"),
        ("0000:01:00.0", "pci0000:00/0000:00:01.0/0000:01:00.0", "0x010802"),
    ] {
        let real = root.join("sys/devices").join(place);
        fs::create_dir_all(&real).unwrap();
        symlink(Path::new("../../../devices").join(place), devices.join(bdf)).unwrap();
        for (file, text) in [("vendor", "0x8086"), ("device", "0x1234"), ("class", class), ("power_state", "D0")] {
            fs::write(real.join(file), text).unwrap();
        }
        for word in ["current", "max"] {
            fs::write(real.join(format!("{word}_link_speed")), "16.0 GT/s PCIe").unwrap();
            fs::write(real.join(format!("{word}_link_width")), "4").unwrap();
        }
        fs::write(real.join("config"), [0; 64]).unwrap();
    }
    fs::create_dir_all(root.join("proc/sys/kernel/random")).unwrap();
    fs::write(root.join("proc/sys/kernel/random/boot_id"), "first").unwrap();
}

#[test]
fn a_link_that_is_slower_than_before_the_recorder_was_killed_is_an_event() {
    let root = folder("watch-restart");
    tree(&root);
    let (ring, out) = (root.join("ring"), root.join("out"));
    let words =
        [root.to_str().unwrap(), ring.to_str().unwrap(), &format!("lost=echo $PCIESCOPE_FROM >>{}", out.display())];
    let with = |more: &[&str]| {
        let args = ["--root", words[0], "watch", "-I", "10ms", "--ring", words[1], "--on", words[2]];
        start(&[&args[..], more].concat())
    };
    let last = || names(&ring).last().map(|name| ring.join(name));
    let has_link = || last().is_some_and(|path| fs::read_to_string(path).unwrap().contains("\"of\":\"link\""));
    let mut child = with(&[]);
    wait_until("the first state is written", || ring.exists() && has_link());
    assert!(Ended::of(with(&[]).wait_with_output().unwrap()).expect_code(2).stderr.contains("another run"));
    child.kill().unwrap();
    child.wait().unwrap();
    let port = root.join("sys/bus/pci/devices/0000:00:01.0");
    fs::write(port.join("current_link_speed"), "8.0 GT/s PCIe").unwrap();
    fs::write(root.join("proc/sys/kernel/random/boot_id"), "second").unwrap();
    let again = || Ended::of(with(&["--duration", "50ms"]).wait_with_output().unwrap());
    let text = again().expect_code(1).stdout;
    let line = text.lines().next().unwrap();
    for words in [
        "link 16 GT/s x4 -> 8 GT/s x4: unknown (both ends can 16 GT/s x4, since the last run (last record 20",
        "Z), and the machine was started again); 3.94 GB/s less than at best",
    ] {
        assert!(line.contains(words), "{line}");
    }
    // Now it is known: the next run says no more than how the link runs.
    assert!(again().expect_code(0).stdout.contains("runs at 8 GT/s x4 (both ends can 16 GT/s x4)\n"));
    assert_eq!(fs::read_to_string(&out).unwrap(), "16 GT/s x4\n");
    let files = names(&ring);
    assert_eq!(files.len(), 3, "{files:?}");
    for file in &files {
        pciescope(&["report", ring.join(file).to_str().unwrap()]).expect_code(0);
    }
}
