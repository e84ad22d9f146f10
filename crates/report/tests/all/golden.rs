//! Records in tests/records against what each output makes of them. After a wanted change:
//! `UPDATE_GOLDEN=1 cargo test -p pciescope-report --test all golden::`, then read the diff.

use std::path::{Path, PathBuf};

use pciescope_core::Record;
use pciescope_report::{csv, jsonl, png, svg, table};

use crate::sample;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/records")
}

fn records(name: &str) -> Vec<Record> {
    let contents = jsonl::read_records(&folder().join(name)).unwrap();
    assert!(contents.remarks.is_empty());
    contents.records
}

fn check(name: &str, got: &str) {
    let path = folder().join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, got).unwrap();
        return;
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    if let Some((n, (w, g))) = want.lines().zip(got.lines()).enumerate().find(|(_, (w, g))| w != g) {
        panic!("{name}:{}: want {w:?}\n got {g:?}", n + 1);
    }
    assert_eq!(want.lines().count(), got.lines().count(), "{name} has another length");
}

#[test]
fn the_table_of_a_whole_run() {
    check("demo.txt", &table::render(&records("demo.jsonl"), &table::Options::default()));
}

#[test]
fn the_csv_of_a_whole_run() {
    check("demo.csv", &csv::render(&records("demo.jsonl")));
}

#[test]
fn the_fixture_is_what_the_generator_makes() {
    let shape = sample::Shape { cpus: 4, vectors: 4, samples: 1000, emulated: true };
    let mut writer = jsonl::Writer::new(Vec::new());
    for record in sample::whole(&shape) {
        pciescope_core::Sink::put(&mut writer, &record).unwrap();
    }
    check("demo.jsonl", &String::from_utf8(writer.into_inner()).unwrap());
}

#[test]
fn the_csv_has_as_many_fields_in_every_line_as_in_its_header() {
    for records in [records("demo.jsonl"), sample::hostile()] {
        let text = csv::render(&records);
        let mut reader = ::csv::Reader::from_reader(text.as_bytes());
        assert_eq!(reader.headers().unwrap().len(), csv::columns().count());
        assert!(reader.records().all(|line| line.is_ok()), "{text}");
    }
    assert_eq!(csv::render(&[]).trim_end(), csv::columns().map(|column| column.name).collect::<Vec<_>>().join(","));
}

#[test]
fn hostile_names_cannot_steer_a_terminal() {
    let text = table::render(&sample::hostile(), &table::Options { all: true });
    assert!(text.contains("<script>alert(1)</script>"), "the name is shown as it is");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "a control character came through");
    assert!(!text.contains('\u{202e}'));
}

#[test]
fn a_wide_machine_shows_its_ends_and_says_so() {
    let shape = sample::Shape { cpus: 512, vectors: 1, samples: 20, emulated: false };
    let records = sample::mmio(&mut sample::Random(1), &shape, "1");
    let text = table::render(&records, &table::Options::default());
    assert!(text.lines().count() < 200, "{} lines", text.lines().count());
    assert!(text.contains("(the 10 fastest and 10 slowest of 512 rows by median; --all shows every row)"));
    let all = table::render(&records, &table::Options { all: true });
    assert!(all.lines().count() > 512 * 3, "{} lines", all.lines().count());
    assert!(!all.contains("fastest and"));
}

#[test]
fn figures_of_an_emulator_are_labelled_and_others_are_not() {
    let text = |emulated| {
        let shape = sample::Shape { cpus: 2, vectors: 1, samples: 20, emulated };
        table::render(&sample::whole(&shape), &table::Options::default())
    };
    assert_eq!(text(true).matches("EMULATED: figures are exits to the emulator, not PCIe").count(), 4);
    assert!(!text(false).contains("EMULATED"));
}

#[test]
fn no_line_of_a_table_is_wider_than_100_columns() {
    let shape = sample::Shape { cpus: 8, vectors: 4, samples: 100, emulated: false };
    for line in table::render(&sample::whole(&shape), &table::Options::default()).lines() {
        // Warnings and errors are sentences; they are not broken, so that they can be searched for.
        let is_notice = line.starts_with("warning: ") || line.starts_with("error: ");
        assert!(is_notice || line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn the_heat_maps_of_a_whole_run() {
    check("demo.svg", &svg::render(&records("demo.jsonl")));
}

/// Records as the fake backend makes them, of a run with a name.
fn made_up() -> Vec<Record> {
    let mut records = records("demo.jsonl");
    records.retain(|record| record.test == "config-read");
    for record in &mut records {
        record.label = Some("before & after".to_owned());
        record.method.as_mut().unwrap().backend = "fake".to_owned();
    }
    records
}

#[test]
fn the_heat_maps_of_synthetic_figures_say_so_and_carry_the_label() {
    let svg = svg::render(&made_up());
    check("synthetic.svg", &svg);
    for words in ["SYNTHETIC, made up by the fake backend", "EMULATED, not PCIe", "(before &amp; after)</text>"] {
        assert!(svg.contains(words), "{words:?} is missing");
    }
    assert!(!svg::render(&records("demo.jsonl")).contains("SYNTHETIC"));
}

#[test]
fn a_png_shows_the_words_of_the_svg() {
    // The picture is made of the same drawing; each word more must change its pixels.
    let named = made_up();
    let mut unnamed = named.clone();
    unnamed.iter_mut().for_each(|record| record.label = None);
    let mut measured = unnamed.clone();
    measured.iter_mut().for_each(|record| record.method.as_mut().unwrap().backend = "kmod".to_owned());
    let [named, unnamed, measured] = [named, unnamed, measured].map(|records| png::render(&records).unwrap());
    assert!(named != unnamed && unnamed != measured);
}

#[test]
fn the_page_about_records_names_every_metric() {
    let page = std::fs::read_to_string(folder().join("../../docs/record.md")).unwrap();
    for record in records("demo.jsonl") {
        for name in record.histograms.keys().chain(record.metrics.keys()).chain([&record.test]) {
            assert!(page.contains(&format!("`{name}`")), "{name} is not explained");
        }
    }
}
