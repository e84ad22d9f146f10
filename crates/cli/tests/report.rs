//! `report` and `import` driven as a user does.

mod common;
use std::fs;
use std::path::Path;

use common::{folder, pciescope};

fn demo() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/records/demo.jsonl").display().to_string()
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

#[test]
fn prints_the_tables_by_default() {
    let shown = pciescope(&["report", &demo()]).expect_code(0);
    assert!(shown.stdout.contains("Per CPU+IRQ Latency"), "{}", shown.stdout);
    assert!(shown.stderr.is_empty(), "{}", shown.stderr);
}

#[test]
fn writes_what_the_extension_says() {
    let folder = folder("report-outputs");
    let outputs = ["r.html", "r.svg", "r.png", "r.csv", "r.txt", "r.jsonl"].map(|name| path(&folder, name));
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
        b"Machine: ",
        b"{\"schema\":1",
    ]) {
        let bytes = fs::read(output).unwrap();
        assert!(bytes.starts_with(start), "{output}: {:?}", &bytes[..20]);
    }
    assert_eq!(fs::read(&outputs[5]).unwrap(), fs::read(demo()).unwrap());
    let (png, svg) = (path(&folder, "a"), path(&folder, "b"));
    let ended = pciescope(&["report", &demo(), "--png", &png, "--svg", &svg, "--csv", "-", "--table"]).expect_code(0);
    assert!(ended.stdout.contains("run,time,verb") && ended.stdout.contains("Machine: "));
    assert!(fs::read(png).unwrap().starts_with(b"\x89PNG") && fs::read(svg).unwrap().starts_with(b"<svg "));
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
        (vec!["report", &newer], "newer.jsonl:1: the record has schema 99; this pciescope reads up to 1"),
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

#[test]
fn an_unfinished_last_record_is_told_and_left_out() {
    let folder = folder("report-unfinished");
    let cut = path(&folder, "cut.jsonl");
    let whole = fs::read(demo()).unwrap();
    fs::write(&cut, &whole[..whole.len() - 30]).unwrap();
    let ended = pciescope(&["report", &cut]).expect_code(0);
    assert!(ended.stderr.contains("the last record is unfinished"), "{}", ended.stderr);
    assert!(ended.stdout.contains("Per CPU+IRQ Latency"));
}

#[test]
fn imports_a_log_to_records_that_report_takes() {
    let folder = folder("import");
    let (log, out) = (path(&folder, "irq.log"), path(&folder, "run.jsonl"));
    fs::write(&log, "# pcilat\n100 1500 900 0 69\n200 1700 950 1 69\n").unwrap();
    let shown = pciescope(&["import", &log, "-o", &out]).expect_code(0);
    assert!(shown.stdout.contains("c1/i69") && shown.stdout.contains("Total samples: 2"), "{}", shown.stdout);
    let report = pciescope(&["report", &out]).expect_code(0);
    assert_eq!(report.stdout, shown.stdout);
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
    assert!(ended.stdout.contains("1 malformed lines") && ended.stdout.contains("irq.log:2: \"200 1700\" is not 5"));
    assert!(ended.stderr.contains("1 of 2 lines taken"), "{}", ended.stderr);
    let ended = pciescope(&["import", &log, "--format", "iomem"]).expect_code(2);
    assert!(ended.stderr.contains("holds no line of format iomem"), "{}", ended.stderr);
    let ended = pciescope(&["import", "no/such"]).expect_code(2);
    assert!(ended.stderr.contains("cannot read no/such: No such file"), "{}", ended.stderr);
}
