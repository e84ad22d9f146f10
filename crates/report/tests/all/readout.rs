//! Records of readouts against their tables, lines of CSV, page and pictures: tests/records/readout*.
//! `UPDATE_GOLDEN=1 cargo test -p pciescope-report --test all readout::` after a wanted change; then read the diff.

use std::path::Path;

use pciescope_core::{HotSpot, Interval, Metric, Record, Stream, readout};
use pciescope_report::print::terminal;
use pciescope_report::{csv, html, png, svg, table};
use proptest::prelude::*;

use crate::sample::{self as latency, readout as sample};

fn check(name: &str, got: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/records").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, got).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    if let Some((n, (w, g))) = want.lines().zip(got.lines()).enumerate().find(|(_, (w, g))| w != g) {
        panic!("{name}:{}: want {w:?}\n got {g:?}", n + 1);
    }
    assert_eq!(want.lines().count(), got.lines().count(), "{name} has another length");
}

#[test]
fn the_table_of_a_run() {
    check("readout.txt", &table::render(&sample::run(), &table::Options::default()));
}

#[test]
fn the_tables_of_a_sweep() {
    check("readout-sweep.txt", &table::render(&sample::sweep(), &table::Options::default()));
}

#[test]
fn the_fields_of_a_run() {
    check("readout.csv", &csv::render(&sample::run()));
}

#[test]
fn the_picture_of_a_sweep() {
    check("readout-sweep.svg", &svg::render(&sample::sweep()));
}

/// What stands in the page's tables, with their figures.
fn cells(page: &str) -> Vec<String> {
    let parts =
        page.split("<td").skip(1).filter_map(|part| Some(part.split_once('>')?.1.split_once("</td>")?.0.to_owned()));
    parts.collect()
}

#[test]
fn a_terminal_of_80_columns_shows_all_but_the_tools_own_rows() {
    let text = table::render(&sample::run(), &table::Options::default());
    for line in text.lines() {
        let is_row = line.contains(",  /dev/") || line.contains("func, ");
        assert!(line.chars().count() <= if is_row { 117 } else { 80 }, "{line}");
    }
    assert!(text.lines().any(|line| line.chars().count() == 117), "the rows are as wide as the tool's");
}

#[test]
fn the_page_has_the_figures_and_their_data() {
    let records = sample::sweep();
    let page = html::render(&records);
    for heading in [
        "Rate against size",
        "Rate against boards, 60.0 MB",
        "Time by function",
        "Time of a repeat by stage, in us per MB",
        "CPU time by wait mode",
        "Hot spots",
    ] {
        assert!(page.contains(&format!("<h3>{heading}</h3>")), "{heading}");
    }
    // Each is drawn again for telephones, and the one on the first screen for its whole width.
    assert_eq!(page.matches("<svg class=\"wide\"").count(), 5, "each but the hot spots has a chart");
    assert!(page.contains("<title>Readout of /dev/sis8300-4 and 5 more</title>"));
    let cells = cells(&page);
    for record in &records {
        let stream = record.stream.as_ref();
        if let (Some(speed), Some("boards")) =
            (record.metrics.get("speed"), stream.and_then(|stream| stream.sweep.as_deref()))
        {
            let speed = format!("{:.1}", speed.value / 1e6);
            assert!(cells.contains(&speed), "{speed} stands in no table");
        }
        for spot in record.hot_spots.iter().take(5) {
            assert!(cells.iter().any(|cell| cell.ends_with(&spot.symbol)), "{}", spot.symbol);
        }
    }
    // A mark per board set: what its links carry.
    let section = page.split("id=\"s0\"").nth(1).unwrap();
    let wide: String =
        section.split("<svg class=\"wide\"").skip(1).map(|svg| svg.split("</svg>").next().unwrap()).collect();
    assert_eq!(wide.matches("<title>ceiling: ").count(), 4);
    assert!(page.contains("<title>/dev/sis8300-3: 928.6 MB/s</title>"), "each board has its part");
}

#[test]
fn a_page_of_latencies_knows_nothing_of_readouts() {
    let latencies = latency::whole(&latency::Shape { cpus: 2, vectors: 1, samples: 20, emulated: false });
    let page = html::render(&latencies);
    for word in ["readout", "Readout"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn latencies_and_readouts_share_a_page() {
    let mut records = latency::whole(&latency::Shape { cpus: 2, vectors: 1, samples: 20, emulated: true });
    let alone = html::render(&records);
    records.extend(sample::run());
    let page = html::render(&records);
    assert!(page.contains("class=\"map\"") && page.contains("class=\"drawn\""));
    assert!(page.contains("PCIe latency of") && page.contains("; readout of /dev/sis8300-3 and 5 more</title>"));
    // The latencies' sections are what they were.
    let section = |page: &str| {
        page.split("<section class=\"card\" id=\"s0\">").nth(1).unwrap().split("</section>").next().unwrap().to_owned()
    };
    assert_eq!(section(&page), section(&alone));
    assert!(svg::render(&records).contains("Rate by device"));
    let text = table::render(&records, &table::Options::default());
    assert!(text.contains("Per-BAR IOMem Read Latency") && text.contains("func_sca,  /dev/sis8300-9"), "{text}");
}

#[test]
fn what_is_doubtful_is_said() {
    let mut records = sample::run();
    for record in &mut records {
        let Some(stream) = record.stream.as_ref().filter(|stream| stream.path.ends_with('3')) else { continue };
        if stream.function == "func_readout" {
            record.metrics.insert("of_ceiling".to_owned(), Metric::of(104.2, "%"));
            record.metrics.insert("wrong".to_owned(), Metric::of(1024.0, "bytes"));
            record.metrics.insert("lost_interrupts".to_owned(), Metric::of(2.0, "1"));
        }
    }
    let text = table::render(&records, &table::Options::default());
    for words in ["104.2 INVALID", "WRONG DATA: 1,024 bytes are not", "Losses: 2 lost interrupts"] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    assert!(!text.contains("none wrong"));
    let said = terminal::render(&records);
    assert!(said.contains("WRONG DATA: 1,024 bytes") && said.contains("invalid: 104.2 %"), "{said}");
    let good = table::render(&sample::run(), &table::Options::default());
    assert!(!good.contains("INVALID") && !good.contains("WRONG") && good.contains("Losses: none"));
}

#[test]
fn each_cycle_has_its_row_and_number() {
    let mut records = sample::run();
    records.retain(|record| record.stream.as_ref().is_some_and(|stream| stream.path.ends_with('4')));
    records.retain(|record| record.stream.as_ref().unwrap().function == "func_readout");
    let one = records[0].clone();
    records = (0..3)
        .map(|cycle| {
            let mut record = one.clone();
            record.stream.as_mut().unwrap().cycle = Some(cycle);
            record
        })
        .collect();
    let text = table::render(&records, &table::Options::default());
    assert_eq!(text.matches("func_readout,  /dev/sis8300-4").count(), 3);
    assert!(text.contains("Cycle") && !text.contains("Sum of"), "{text}");
}

#[test]
fn thousands_of_cycles_are_shown_in_seconds() {
    let mut records = Vec::new();
    for cycle in 0..300 {
        for mut record in sample::run() {
            if let Some(stream) = &mut record.stream {
                stream.cycle = Some(cycle);
            }
            if record.test == readout::TEST {
                records.push(record);
            }
        }
    }
    let start = std::time::Instant::now();
    let text = table::render(&records, &table::Options { all: true });
    let page = html::render(&records);
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    assert_eq!(text.matches("func_sca,  /dev/sis8300-9").count(), 300);
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
}

/// The cells of the rows of seven columns: they stand between their head and an empty line.
fn columns(text: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        is_inside &= !line.is_empty();
        if is_inside {
            // A path may hold a comma; figures do not.
            rows.push(line.rsplitn(6, ", ").map(|cell| cell.trim().to_owned()).collect());
        }
        is_inside |= line.contains("dur [ms],");
    }
    rows
}

#[test]
fn what_is_not_known_is_a_dash() {
    let bare = Record {
        test: readout::TEST.to_owned(),
        metrics: [("cycles".to_owned(), Metric::count(1))].into(),
        ..Record::default()
    };
    let text = table::render(std::slice::from_ref(&bare), &table::Options::default());
    assert_eq!(columns(&text), [["-", "-", "-", "-", "-", "-,               -"]]);
    let spots = Record {
        test: readout::SUMMARY.to_owned(),
        hot_spots: vec![HotSpot { percent: 50.0, symbol: "f".to_owned(), ..HotSpot::default() }],
        ..Record::default()
    };
    assert!(table::render(&[spots], &table::Options::default()).contains("50.00%"));
}

const NAMES: [&str; 29] = [
    "size",
    "repeats",
    "cycles",
    "duration",
    "speed",
    "cv",
    "setup",
    "dma",
    "wakeup",
    "copy",
    "convert",
    "acquire",
    "polls",
    "cpu_user",
    "cpu_system",
    "cpu_per_gb",
    "verified",
    "wrong",
    "ceiling",
    "of_ceiling",
    "active_speed",
    "lost_interrupts",
    "timeouts",
    "short_dmas",
    "stalls",
    "stall",
    "cpu",
    "cpu_top",
    "active",
];

fn any_record() -> impl Strategy<Value = Record> {
    let value = prop_oneof![
        4 => 0.0..1e12,
        1 => prop::sample::select(vec![0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE]),
    ];
    let metrics = prop::collection::btree_map(prop::sample::select(NAMES.to_vec()), value, 0..30);
    let word = |words: &'static [&'static str]| prop::sample::select(words.to_vec());
    let stream = (
        word(&["", "/dev/sis8300-3", "/dev/sis8300-4", "/tmp/a, b\u{1b}[31m<img src=x>"]),
        word(&["", "func_readout", "func_sca", "func_umn2double", "func_sca+fused", "</td>"]),
        prop::option::of(word(&["SIS8300-L2", "SIS8300-KU, serial 5", "<b>disk"])),
        prop::option::of(word(&["size", "boards", "function", "cpu", "other"])),
        prop::option::of(word(&["poll", "interrupt"])),
        prop_oneof![Just(0), Just(300_000), any::<u64>()],
        (0..4u32, 0..7u32, prop::option::of(any::<u64>())),
    );
    let stream = stream.prop_map(|(path, function, model, sweep, wait, samples, (group, devices, cycle))| Stream {
        path: path.to_owned(),
        function: function.to_owned(),
        model: model.map(str::to_owned),
        sweep: sweep.map(str::to_owned),
        wait: wait.map(str::to_owned),
        samples,
        group,
        devices,
        cycle,
        ..Stream::default()
    });
    let interval = prop::option::of((any::<u64>(), any::<u64>()));
    (any::<bool>(), metrics, prop::option::of(stream), interval).prop_map(|(is_summary, metrics, stream, interval)| {
        Record {
            test: if is_summary { readout::SUMMARY } else { readout::TEST }.to_owned(),
            metrics: metrics.into_iter().map(|(name, value)| (name.to_owned(), Metric::of(value, "1"))).collect(),
            stream,
            interval: interval.map(|(start_ns, end_ns)| Interval { start_ns, end_ns }),
            hot_spots: vec![HotSpot { symbol: "</script>".to_owned(), ..HotSpot::default() }],
            ..Record::default()
        }
    })
}

/// Sums that overflow and figures next to nothing, as random records brought them up.
#[test]
fn sums_beyond_any_figure_are_not_shown() {
    let record = |metric: &str, value: f64, samples: u64| Record {
        test: readout::TEST.to_owned(),
        stream: Some(Stream { samples, ..Stream::default() }),
        metrics: [(metric.to_owned(), Metric::of(value, "ns")), ("stalls".to_owned(), Metric::of(0.0, "1"))].into(),
        ..Record::default()
    };
    let records = [record("stall", f64::MAX, 0), record("stall", f64::MAX, 0)];
    let text = table::render(&records, &table::Options { all: true });
    assert!(text.contains("Losses: none") && !text.contains("inf"), "{text}");
    let picture = svg::render(&[record("setup", 0.0, 0), record("setup", f64::MIN_POSITIVE, 1 << 59)]);
    assert!(!picture.contains("inf") && !picture.contains("NaN"), "{picture}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn any_records_are_shown_and_nothing_is_invented(records in prop::collection::vec(any_record(), 1..12)) {
        let text = table::render(&records, &table::Options { all: true });
        // One row of the seven columns per record, with a dash for each figure that it has not.
        let wanted: Vec<&Record> = records.iter().filter(|record| record.test == readout::TEST).collect();
        let shown = columns(&text);
        prop_assert_eq!(shown.len(), wanted.len(), "{}", text);
        let is_known = |record: &Record, name: &str| record.metrics.get(name).is_some_and(|m| m.value.is_finite());
        for name in ["duration", "speed"] {
            let place = if name == "speed" { 0 } else { 1 };
            let known = wanted.iter().filter(|record| is_known(record, name)).count();
            let figures = shown.iter().filter(|row| row[place] != "-").count();
            prop_assert_eq!(figures, known, "{}: {}", name, text);
        }
        prop_assert!(!text.contains("NaN") && !text.contains("inf"), "{}", text);
        let page = html::render(&records);
        let is_harmless = !page.contains("<img") && !page.contains("<b>disk") && !page.contains('\u{1b}');
        prop_assert!(is_harmless, "markup came through");
        prop_assert_eq!(page.matches("<script").count(), 2);
        let picture = svg::render(&records);
        prop_assert!(!picture.contains("NaN") && !picture.contains("inf,") && !picture.contains("=\"inf"), "{}", picture);
        csv::render(&records);
        terminal::render(&records);
    }
}

proptest! {
    // Pixels are many.
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn any_records_can_be_painted(records in prop::collection::vec(any_record(), 1..12)) {
        prop_assert!(png::render(&records).unwrap().len() > 100);
    }
}

#[test]
fn the_page_about_records_names_every_metric() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/record.md")).unwrap();
    let of_readouts = page.split("## Readouts").nth(1).unwrap().split("\n## ").next().unwrap();
    for name in NAMES {
        assert!(of_readouts.contains(&format!("`{name}`")), "{name} is not explained");
    }
}
