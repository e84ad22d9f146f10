//! The tables of the seed, from what its tool printed (tests/transcripts/readout-*): read, checked by the tool's own
//! arithmetic, and printed again to the byte.

use std::io::Write;
use std::path::PathBuf;

use pciescope_core::{Access, Identity, Plan, Record, WaitMode, readout};
use pciescope_report::import::{self, Format, Imported};
use pciescope_report::{Error, html, table};

const TABLES: [&str; 5] = [
    "readout-1-speed",
    "readout-2-size-300000",
    "readout-3-size-840000",
    "readout-4-size-3000000",
    "readout-5-conversion",
];

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts").join(name).with_extension("txt")
}

fn identity() -> Identity {
    Identity {
        run: "00000000000000c1".to_owned(),
        verb: "import".to_owned(),
        label: None,
        time: Some("2026-11-21T10:00:00Z".to_owned()),
    }
}

fn imported(name: &str) -> Imported {
    let log = import::read(&path(name), None, &identity()).unwrap();
    assert_eq!((log.format, log.malformed), (Format::Threads, 0), "{name}");
    log
}

fn of_text(text: &str, format: Option<Format>) -> Result<Imported, Error> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    import::read(file.path(), format, &identity())
}

fn rows(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.trim_start().starts_with("func_") && line.contains(',')).collect()
}

fn is_row(record: &&Record) -> bool {
    record.test == readout::TEST
}

fn metric(record: &Record, name: &str) -> f64 {
    record.metrics[name].value
}

#[test]
fn the_rows_of_every_table_are_printed_again_to_the_byte() {
    let mut count = 0;
    for name in TABLES {
        let (text, log) = (text(name), imported(name));
        let shown = table::render(&log.records, &table::Options::default());
        assert_eq!(rows(&shown), rows(&text), "{name}");
        count += rows(&text).len();
        let head = text.lines().find(|line| line.contains("size [MB]")).unwrap();
        assert!(shown.lines().any(|line| line == head), "{name}: {head:?} is missing in\n{shown}");
    }
    assert_eq!(count, 68, "as many rows as the seed has");
}

#[test]
fn the_parameters_of_a_run_are_printed_again_to_the_byte() {
    for name in &TABLES[1..4] {
        let text = text(name);
        let block = text.split_once("Parameters:").unwrap().1.split_once("\n\n").unwrap().0;
        let shown = table::render(&imported(name).records, &table::Options::default());
        assert!(shown.contains(&format!("Parameters:{block}\n\n")), "{name}: {block}\n{shown}");
    }
    // The six of the profiled runs, with and without the interrupt.
    let text = text("readout-6-cpu");
    let shown = table::render(&imported("readout-6-cpu").records, &table::Options::default());
    let blocks: Vec<&str> = text.split("Parameters:").skip(1).map(|part| part.split_once("\n\n").unwrap().0).collect();
    assert_eq!(blocks.len(), 6);
    for block in blocks {
        assert!(shown.contains(&format!("Parameters:{block}\n\n")), "{block}\n{shown}");
    }
}

/// dur = (end - start) / N and speed = bytes N / (end - start), as far as figures of one decimal can say.
#[test]
fn the_arithmetic_of_every_row_holds_within_its_rounding() {
    let mut deviations: Vec<String> = Vec::new();
    let mut largest: f64 = 0.0;
    for name in TABLES {
        for record in imported(name).records.iter().filter(is_row) {
            let interval = record.interval.unwrap();
            let elapsed_ms = (interval.end_ns - interval.start_ns) as f64 / 1e6;
            let (repeats, bytes) = (30.0, metric(record, "size"));
            let (duration, speed) = (elapsed_ms / repeats, bytes * repeats / elapsed_ms / 1e3);
            let printed = (metric(record, "duration") / 1e6, metric(record, "speed") / 1e6);
            let is_right = (duration - printed.0).abs() <= 0.05 + 0.1 / repeats + 1e-9
                && (speed - printed.1).abs() <= 0.05 + speed * 0.1 / (elapsed_ms - 0.1) + 1e-9;
            largest = largest.max((speed / printed.1 - 1.0).abs() * 100.0);
            let stream = record.stream.as_ref().unwrap();
            if !is_right {
                deviations
                    .push(format!("{name} {} {}: {duration:.3} ms {speed:.1} MB/s", stream.function, stream.path));
            }
            assert!(record.warnings.is_empty(), "{name}: {:?}", record.warnings);
        }
    }
    // Every one of the 68 rows holds; none need be listed.
    assert_eq!(deviations, [""; 0]);
    // One decimal of a short run is worth as much: the widest is func_dec by 10, 41 ms in all.
    assert!((0.1..0.3).contains(&largest), "{largest} %");
}

#[test]
fn what_ran_together_is_one_group() {
    let sizes = |name| {
        let log = imported(name);
        let mut sizes: Vec<usize> = Vec::new();
        for record in log.records.iter().filter(is_row) {
            let stream = record.stream.as_ref().unwrap();
            sizes.resize(sizes.len().max(stream.group as usize + 1), 0);
            sizes[stream.group as usize] += 1;
            assert_eq!(metric(record, "repeats"), 30.0, "{name}");
        }
        sizes
    };
    assert_eq!(sizes("readout-1-speed"), [1, 1, 5, 6]);
    assert_eq!(sizes("readout-3-size-840000"), [5]);
    assert_eq!(sizes("readout-5-conversion"), [5; 8]);
    let log = imported("readout-3-size-840000");
    let stream = log.records[0].stream.as_ref().unwrap();
    assert_eq!((stream.samples, stream.devices, metric(&log.records[0], "size")), (840_000, 5, 1_680_000.0));
    let Some(Plan::Readout(plan)) = &log.records[0].plan else { panic!("no plan") };
    assert_eq!((plan.samples, plan.repeats, plan.devices.len()), (840_000, 30, 5));
}

#[test]
fn sums_are_those_of_the_seeds_rates() {
    let shown = table::render(&imported("readout-1-speed").records, &table::Options::default());
    for words in ["Sum of 5 devices: 2897.9 MB/s", "Sum of 6 devices: 3580.2 MB/s"] {
        assert!(shown.contains(words), "{words}\n{shown}");
    }
}

#[test]
fn profiles_and_remarks_belong_to_the_run_above_them() {
    let log = imported("readout-6-cpu");
    assert!(log.records.iter().all(|record| record.test == readout::SUMMARY));
    let got: Vec<_> = log
        .records
        .iter()
        .map(|record| {
            let (stream, first) = (record.stream.as_ref().unwrap(), &record.hot_spots[0]);
            let top = metric(record, "cpu_top");
            (stream.devices, stream.samples, stream.wait, top, first.symbol.as_str(), first.percent)
        })
        .collect();
    let (msr, copy, convert) = ("native_write_msr_safe", "copy_user_enhanced_fast_string", "func_umn2double");
    assert_eq!(
        got[..4],
        [
            (1, 300_000, Some(WaitMode::Poll), 17.0, msr, 15.82),
            (1, 300_000, Some(WaitMode::Interrupt), 4.0, copy, 45.91),
            (5, 3_000_000, Some(WaitMode::Poll), 100.0, copy, 41.04),
            (5, 3_000_000, Some(WaitMode::Interrupt), 44.0, copy, 78.40),
        ]
    );
    assert_eq!(got.last(), Some(&(5, 300_000, Some(WaitMode::Poll), 111.0, convert, 37.79)));
    let second = &log.records[1].hot_spots[2];
    assert_eq!(
        (second.object.as_str(), second.symbol.as_str(), second.is_kernel),
        ("[sis8300drv]", "sis8300_ioctl", true)
    );
    let Some(Plan::Readout(plan)) = &log.records[1].plan else { panic!("no plan") };
    assert_eq!((plan.cycles, plan.wait), (100, WaitMode::Interrupt));
    let page = html::render(&log.records);
    assert!(
        page.contains("<h3>CPU time by wait mode</h3>") && page.contains("func_readout, 0.6 MB, 1 device, interrupt")
    );
    assert!(page.contains("<h3>Hot spots</h3>") && page.contains("[.] do_lookup_x"));
}

#[test]
fn cycles_utilization_and_other_words_are_understood() {
    let log = of_text(
        "Parameters:\n function        3\n access          1\n nsamples        16\n nbytes_raw      32 b (0.0 MB)\n\
         nbytes          64 b (0.0 MB)\n nreads          1\n dec_offset      0\n dec_factor      1\n scale_offset    0.5\n\
         scale_factor    2.0\n loop            2\n daq_intr        0\n ndevices        1\n\n\
                    func,             dev,       size [MB],      start [ms],        end [ms],        dur [ms],    speed [MB/s]\n\
            func_readout,  /dev/sis8300-9,             0.0,             1.0,             1.0,             0.0,             inf\n\
            func_readout,  /dev/sis8300-9,             0.0,             1.0,             1.2,             0.2,             0.2\n\
            func_readout,  /dev/sis8300-9,             0.0,            71.0,            71.2,             0.2,             0.2\n\
         CPU utilization was : 0.117 (46.8 %)\nall threads ended..\n",
        None,
    )
    .unwrap();
    assert_eq!((log.malformed, log.records.len()), (1, 3));
    let cycles: Vec<_> = log.records[..2].iter().map(|r| r.stream.as_ref().unwrap().cycle).collect();
    assert_eq!(cycles, [Some(0), Some(1)]);
    let stream = log.records[0].stream.as_ref().unwrap();
    assert_eq!((stream.access, stream.wait, stream.samples), (Some(Access::Mmap), Some(WaitMode::Poll), 16));
    assert!((metric(&log.records[2], "cpu") - 11.7).abs() < 1e-9);
    let shown = table::render(&log.records, &table::Options::default());
    assert!(shown.contains("CPU utilization was : 0.117"), "{shown}");
    assert!(shown.contains("has not five figures"), "{shown}");
}

#[test]
fn the_whole_seed_in_one_log_makes_one_page() {
    let whole: String = TABLES.iter().map(|name| text(name)).collect::<String>() + &text("readout-6-cpu");
    let log = of_text(&whole, None).unwrap();
    let shown = table::render(&log.records, &table::Options::default());
    assert_eq!(rows(&shown), rows(&whole));
    let page = html::render(&log.records);
    for heading in ["Rate against size", "Rate against boards, 60.0 MB", "CPU time by wait mode", "Hot spots"] {
        assert!(page.contains(&format!("<h3>{heading}</h3>")), "{heading}");
    }
    // Not all bars have room, and that is said.
    assert!(page.contains("The chart shows the first 48 of 68 bars; the table has all."));
}

#[test]
fn a_row_that_contradicts_itself_is_named() {
    let text = text("readout-2-size-300000").replace("           480.5", "           960.5");
    let log = of_text(&text, None).unwrap();
    let warnings: Vec<_> = log.records.iter().flat_map(|record| &record.warnings).collect();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].code, "inconsistent-row");
    assert!(
        warnings[0].text.contains("func_readout /dev/sis8300-7: 30 repeats from 0.5 to 38 ms"),
        "{}",
        warnings[0].text
    );
}

#[test]
fn what_the_tool_did_not_print_is_refused() {
    let refused = of_text("Parameters:\n function 0\nwords\n", Some(Format::Threads)).unwrap_err();
    assert!(matches!(refused, Error::NoSample { format: "sis8300-threads", .. }), "{refused}");
    assert!(matches!(of_text("Parameters:\nx 1\n", None), Err(Error::UnknownFormat { .. })));
    // Others' tables with commas are not taken for it.
    assert!(matches!(of_text("func_a, b, c\n", None), Err(Error::UnknownFormat { .. })));
}

#[test]
fn broken_text_is_survived() {
    let whole: String = TABLES.iter().map(|name| text(name)).collect::<String>() + &text("readout-6-cpu");
    let mut n = 7u64;
    for _ in 0..300 {
        let mut bytes = whole.clone().into_bytes();
        for _ in 0..40 {
            n = n.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = (n >> 20) as usize % bytes.len();
            bytes[at] = b"0123456789 \n,.-%:~\xff"[(n >> 50) as usize % 19];
        }
        let cut = (n >> 30) as usize % bytes.len();
        let text = String::from_utf8_lossy(&bytes[..cut]);
        if let Ok(log) = of_text(&text, Some(Format::Threads)) {
            table::render(&log.records, &table::Options { all: true });
        }
    }
}
