//! `report` and `import` driven as a user does.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Ended, PROGRAM, folder, pciescope, run};

fn demo() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/records/demo.jsonl").display().to_string()
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

#[test]
fn prints_the_answers_by_default_and_every_table_with_all() {
    let shown = pciescope(&["report", &demo()]).expect_code(0);
    assert!(
        shown.stdout.starts_with("Register reads of") && !shown.stdout.contains("Per CPU+IRQ Latency"),
        "{}",
        shown.stdout
    );
    let shown = pciescope(&["report", &demo(), "--all"]).expect_code(0);
    assert!(shown.stdout.starts_with("What is good\n"), "{}", shown.stdout);
    assert!(shown.stdout.contains("Per CPU+IRQ Latency"), "{}", shown.stdout);
    assert!(shown.stderr.is_empty(), "{}", shown.stderr);
}

#[test]
fn writes_what_the_extension_says() {
    let folder = folder("report-outputs");
    let outputs = ["r.html", "r.svg", "r.png", "r.csv", "r.txt", "r.jsonl", "r.md"].map(|name| path(&folder, name));
    let mut args = vec!["report".to_owned(), demo()];
    args.extend(outputs.iter().flat_map(|output| ["-o".to_owned(), output.clone()]));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ended = pciescope(&args).expect_code(0);
    assert!(ended.stdout.is_empty(), "{}", ended.stdout);
    for (output, start) in outputs.iter().zip([
        &b"<!DOCTYPE html>"[..],
        b"<svg ",
        b"\x89PNG",
        b"run,time,verb",
        b"What is good",
        b"{\"schema\":1",
        b"### ",
    ]) {
        let bytes = fs::read(output).unwrap();
        assert!(bytes.starts_with(start), "{output}: {:?}", &bytes[..20]);
    }
    assert_eq!(fs::read(&outputs[5]).unwrap(), fs::read(demo()).unwrap());
    let ended = pciescope(&["report", &demo(), "--csv", "--table"]).expect_code(0);
    assert!(ended.stdout.contains("run,time,verb") && ended.stdout.contains("Register reads of"));
}

#[test]
fn a_picture_of_counters_shows_them_and_one_of_nothing_is_refused() {
    let folder = folder("report-pictures");
    let counters = path(&folder, "c.jsonl");
    run(&format!("stat --backend fake -I 10 -n 2 -j -o {counters}")).expect_code(0);
    let (svg, png) = (path(&folder, "c.svg"), path(&folder, "c.png"));
    pciescope(&["report", &counters, "-o", &svg, "-o", &png]).expect_code(0);
    let picture = fs::read_to_string(&svg).unwrap();
    assert!(picture.contains("PCIe") && picture.contains("GB/s"), "{picture}");
    assert!(fs::metadata(&png).unwrap().len() > 5_000);
    let empty = path(&folder, "empty.jsonl");
    fs::write(&empty, "{\"schema\":1,\"run\":\"1\",\"time\":\"\",\"verb\":\"stat\",\"test\":\"environment\"}\n")
        .unwrap();
    let (svg, page) = (path(&folder, "e.svg"), path(&folder, "e.html"));
    let ended = pciescope(&["report", &empty, "-o", &svg]).expect_code(2);
    assert!(ended.stderr.contains("nothing that a picture shows"), "{}", ended.stderr);
    assert!(fs::metadata(&svg).is_err(), "no picture that only says so is left");
    pciescope(&["report", &empty, "-o", &page]).expect_code(0);
}

#[test]
fn refuses_what_it_cannot_read_or_write() {
    let folder = folder("report-refusals");
    let (bad, newer, copy) = (path(&folder, "bad.jsonl"), path(&folder, "newer.jsonl"), path(&folder, "copy.jsonl"));
    fs::write(&bad, "100 200 300 0 69\n").unwrap();
    fs::write(&newer, "{\"schema\":99}\n").unwrap();
    fs::copy(demo(), &copy).unwrap();
    for (args, words) in [
        (vec!["report", "no/such.jsonl"], "cannot read no/such.jsonl: No such file"),
        (vec!["report", &bad], "bad.jsonl:1: not a record"),
        (vec!["report", &bad], "hint: a record file holds one JSON record a line"),
        (vec!["report", &newer], "newer.jsonl:1: the record has schema 99; this pciescope reads schema 1"),
        (vec!["report", &copy, "-o", "report.pdf"], "report.pdf: the extension says nothing"),
        (vec!["report", &copy, "-o", &copy], "would be overwritten"),
        (vec!["report", &copy, "-o", "no/such/r.html"], "cannot write no/such/r.html: No such file"),
        (vec!["report"], "required arguments were not provided"),
    ] {
        let ended = pciescope(&args).expect_code(2);
        assert!(ended.stderr.contains(words), "{args:?}: {}", ended.stderr);
    }
    assert_eq!(fs::read(&copy).unwrap(), fs::read(demo()).unwrap());
}

/// CSV, Parquet and JSON lines grow while records are read: a mistake far down leaves neither half a file nor harms an old one.
#[test]
fn a_mistake_in_the_records_leaves_what_was_there() {
    let folder = folder("report-growing");
    let bad = path(&folder, "bad.jsonl");
    fs::write(&bad, [fs::read(demo()).unwrap().as_slice(), b"{\"schema\":1}\n"].concat()).unwrap();
    let names = ["r.csv", "r.parquet", "r.runs.parquet", "r.findings.parquet", "all.jsonl"];
    let outputs = names.map(|name| path(&folder, name));
    fs::write(&outputs[0], "old").unwrap();
    let report = |input: &str| {
        let mut args = vec!["report", input];
        args.extend(outputs.iter().flat_map(|output| ["-o", output.as_str()]));
        pciescope(&args)
    };
    let there = || {
        let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert!(report(&bad).expect_code(2).stderr.contains("bad.jsonl:55: not a record"));
    assert_eq!(fs::read(&outputs[0]).unwrap(), b"old");
    assert_eq!(there(), ["bad.jsonl", "r.csv"], "nothing half done");
    report(&demo()).expect_code(0);
    assert!(fs::read(&outputs[0]).unwrap().starts_with(b"run,time,verb"));
    assert_eq!(fs::read(&outputs[4]).unwrap(), fs::read(demo()).unwrap());
    for table in &outputs[1..4] {
        let bytes = fs::read(table).unwrap();
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"), "{table}");
    }
    assert_eq!(there().len(), 6, "{:?}", there());
    // A link stays one, and a pipe is written to and not replaced.
    let (link, pipe) = (path(&folder, "link.csv"), path(&folder, "pipe.csv"));
    std::os::unix::fs::symlink("r.csv", &link).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::write(&outputs[0], "old").unwrap();
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    pciescope(&["report", &demo(), "-o", &link, "-o", &pipe]).expect_code(0);
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&fs::symlink_metadata(&pipe).unwrap().file_type()), "a pipe still");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "a link still");
    let written = fs::read(&outputs[0]).unwrap();
    assert!(written.len() > 1000 && reader.join().unwrap() == written);
}

#[test]
fn a_full_disk_leaves_the_old_report_and_two_outputs_are_two_files() {
    let folder = folder("report-full");
    let names = ["r.html", "r.png", "r.svg", "r.txt", "r.md", "r.csv", "r.parquet"].map(|name| path(&folder, name));
    for name in &names {
        fs::write(name, "old").unwrap();
        // A limit on the size of files stands for a full disk.
        let line = format!("trap '' XFSZ; ulimit -f 1; exec {} report {} -o {name}", PROGRAM, demo());
        let ended = Command::new("sh").args(["-c", &line]).output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert_eq!(fs::read_to_string(name).unwrap(), "old", "{name}");
        let ended = pciescope(&["report", &demo(), "-o", name, "-o", name]).expect_code(2);
        assert!(ended.stderr.contains("two outputs would go to this one file"), "{}", ended.stderr);
    }
    let new = path(&folder, "new.csv");
    let ended = pciescope(&["report", &demo(), "-o", &new, "-o", &new]).expect_code(2);
    assert!(ended.stderr.contains("two outputs would go to this one file"), "{}", ended.stderr);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), names.len(), "no part is left");
}

#[test]
fn an_unfinished_last_record_is_told_and_left_out() {
    let folder = folder("report-unfinished");
    let cut = path(&folder, "cut.jsonl");
    let whole = fs::read(demo()).unwrap();
    fs::write(&cut, &whole[..whole.len() - 30]).unwrap();
    let ended = pciescope(&["report", &cut]).expect_code(0);
    assert!(ended.stderr.contains("the last record is unfinished"), "{}", ended.stderr);
    assert!(ended.stdout.contains("Interrupts of"), "{}", ended.stdout);
}

#[test]
fn imports_a_log_to_records_that_report_takes() {
    let folder = folder("import");
    let (log, out) = (path(&folder, "irq.log"), path(&folder, "run.jsonl"));
    fs::write(&log, "# pcilat\n100 1500 900 0 69\n200 1700 950 1 69\n").unwrap();
    let shown = pciescope(&["import", &log, "-o", &out]).expect_code(0);
    assert!(shown.stdout.starts_with("Interrupts of an unnamed device: 2 samples from 2 CPUs\n"), "{}", shown.stdout);
    let report = pciescope(&["report", &out]).expect_code(0);
    assert_eq!(report.stdout, shown.stdout);
    // The same through a pipe, behind the byte order mark of another system's editor.
    let line = r#"{ printf '\357\273\277'; cat "$1"; } | "$0" import -"#;
    let piped = Command::new("sh").args(["-c", line, PROGRAM, &log]).output().unwrap();
    assert_eq!(Ended::of(piped).expect_code(0).stdout, shown.stdout);
    let all = pciescope(&["import", &log, "--all"]).expect_code(0);
    assert!(all.stdout.contains("c1/i69") && all.stdout.contains("Total samples: 2"), "{}", all.stdout);
    // Records are not replaced silently; files that are made from them are.
    let copy = path(&folder, "copy.jsonl");
    pciescope(&["report", &out, "-o", &copy]).expect_code(0);
    assert!(pciescope(&["report", &out, "-o", &copy]).expect_code(2).stderr.contains("--overwrite"));
    pciescope(&["report", &out, "-o", &copy, "--overwrite"]).expect_code(0);
    let records = pciescope(&["import", &log, "--json", "--format", "interrupt"]).expect_code(0).records();
    assert_eq!((records.len(), records[0].verb.as_str(), records[0].run.len()), (2, "import", 16));
    assert!(pciescope(&["import", &log, "--csv"]).expect_code(0).stdout.starts_with("run,time,verb"));
    let named = pciescope(&["import", &log, "--label", "old kernel", "--json"]).expect_code(0).records();
    assert!(named.iter().all(|record| record.label.as_deref() == Some("old kernel")));
    let again = pciescope(&["import", &log, "-o", &out]).expect_code(2);
    assert!(again.stderr.contains("exists"), "{}", again.stderr);
}

#[test]
fn an_import_that_lost_lines_says_so_and_fails_the_check() {
    let folder = folder("import-malformed");
    let log = path(&folder, "irq.log");
    fs::write(&log, "100 1500 900 0 69\n200 1700\n").unwrap();
    let ended = pciescope(&["import", &log]).expect_code(1);
    // The path decides where lines of 80 columns break.
    let words = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("1 malformed lines") && words.contains("irq.log:2: \"200 1700\" is not 5"), "{words}");
    assert!(ended.stderr.contains("1 of 2 lines taken"), "{}", ended.stderr);
    let ended = pciescope(&["import", &log, "--format", "iomem"]).expect_code(2);
    assert!(ended.stderr.contains("holds no line of format iomem"), "{}", ended.stderr);
    let ended = pciescope(&["import", "no/such"]).expect_code(2);
    assert!(ended.stderr.contains("cannot read no/such: No such file"), "{}", ended.stderr);
}

#[test]
fn figures_of_another_locale_are_refused_with_the_way_out() {
    let folder = folder("import-locale");
    let log = path(&folder, "perf.txt");
    let table = " Performance counter stats for 'sleep 1':\n\n           167,98 msec task-clock\n           14.901      page-faults\n";
    fs::write(&log, table).unwrap();
    let ended = pciescope(&["import", &log]).expect_code(2);
    assert!(ended.stderr.contains("\nhint: LC_ALL=C"), "{}", ended.stderr);
}

/// Any text of five numbers a line could be a log of interrupts.
#[test]
fn an_import_says_when_only_numbers_told_what_the_log_is() {
    let folder = folder("import-numbers");
    let log = path(&folder, "numbers");
    let notes = |text: &str, more: &[&str]| {
        fs::write(&log, text).unwrap();
        pciescope(&[&["import", &log], more].concat()).expect_code(0).stderr
    };
    let guessed = notes("100 1500 900 0 69\n", &[]);
    assert!(
        guessed.contains("read as interrupt, because its lines are five whole numbers\nhint: --format"),
        "{guessed}"
    );
    assert!(notes("100 1500 0 2\n", &[]).contains("read as iomem, because its lines are four whole numbers"));
    assert_eq!(notes("# pcilat\n100 1500 900 0 69\n", &[]), "");
    assert_eq!(notes("100 1500 900 0 69\n", &["--format", "interrupt"]), "");
}

/// A shell's *.jsonl names the runs and the file of all of them that an earlier report wrote.
#[test]
fn a_record_that_comes_again_in_another_file_counts_once() {
    let folder = folder("report-again");
    let [run_a, run_b] = ["a.jsonl", "b.jsonl"].map(|name| {
        let file = path(&folder, name);
        let seed = if name == "a.jsonl" { 1 } else { 2 };
        run(&format!("latency mmio --backend fake:seed={seed} --count 100 --cpus 0-1 -o {file}")).expect_code(0);
        file
    });
    let all = path(&folder, "all.jsonl");
    run(&format!("report {run_a} {run_b} -o {all}")).expect_code(0);
    let (once, again) = (run(&format!("report {run_a} {run_b}")), run(&format!("report {run_a} {run_b} {all}")));
    assert_eq!(once.expect_code(0).stdout, again.stdout);
    let told = format!("pciescope: {all}: 6 records of an earlier file came again and were left out\n");
    assert_eq!(again.stderr, told);
    let twice = run(&format!("report {run_a} {run_a} --csv")).expect_code(0);
    assert_eq!(twice.stdout, run(&format!("report {run_a} --csv")).expect_code(0).stdout);
    assert!(twice.stderr.contains("3 records of an earlier file came again"), "{}", twice.stderr);
    // Equal sides are equal sides, and a copy on one of them is no second run.
    let copy = path(&folder, "copy.jsonl");
    fs::copy(&run_a, &copy).unwrap();
    let plain = run(&format!("compare --base {run_a} --new {run_b} -j")).expect_code(0);
    let copied = run(&format!("compare --base {run_a},{copy} --new {run_b} -j")).expect_code(0);
    assert_eq!(plain.stdout, copied.stdout);
    assert!(copied.stderr.contains("copy.jsonl: 3 records of an earlier file"), "{}", copied.stderr);
}
