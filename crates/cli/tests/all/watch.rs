//! `pciescope watch` as a user has it: changes as they come, the answer at the end, the records, and what they become.

use pciescope_core::change::{Cause, Subject};

use crate::common::{folder, pciescope, run};

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
    assert_eq!(std::fs::read_to_string(file).unwrap(), ended.stdout, "the file has what was printed");
    let page = at.join("links.html");
    pciescope(&["report", file, "-o", page.to_str().unwrap()]).expect_code(0);
    let page = std::fs::read_to_string(page).unwrap();
    for word in ["Links over time", "best state seen", "below it", "power saving", "lost 21.", "reseat the card"] {
        assert!(page.contains(word), "{word} is not in the page");
    }
    let picture = at.join("links.png");
    pciescope(&["report", file, "-o", picture.to_str().unwrap()]).expect_code(0);
    assert!(std::fs::metadata(picture).unwrap().len() > 4000);
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
    std::fs::create_dir(empty.join("sys")).unwrap();
    let ended = pciescope(&["--root", empty.to_str().unwrap(), "watch", "--duration", "1ms"]).expect_code(2);
    assert!(ended.stderr.contains("no link to watch") && ended.stderr.contains("hint: "), "{}", ended.stderr);
    let ended = run("watch 0000:7f:1f.7 --duration 1ms").expect_code(2);
    assert!(ended.stderr.contains("0000:7f:1f.7"), "{}", ended.stderr);
}
