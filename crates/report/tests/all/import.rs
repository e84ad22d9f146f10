//! Imports against a naive parser of the same text, and against logs that are broken in every way.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use pciescope_core::{Histogram, Identity, outcome};
use pciescope_report::import::{self, Format, Imported};
use pciescope_report::{Error, table};
use proptest::prelude::*;

fn identity() -> Identity {
    Identity {
        run: "00000000000000c1".to_owned(),
        verb: "import".to_owned(),
        label: None,
        time: Some("2026-11-21T10:00:00Z".to_owned()),
    }
}

fn imported(text: &[u8], format: Option<Format>) -> Result<Imported, Error> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text).unwrap();
    import::read(file.path(), format, &identity())
}

/// Splits lines and fields as the standard library does: slow and plain.
fn naive(text: &str) -> BTreeMap<(u32, u32), (Vec<u64>, Vec<u64>)> {
    let mut all: BTreeMap<_, (Vec<u64>, Vec<u64>)> = BTreeMap::new();
    for line in text.lines() {
        let fields: Option<Vec<u64>> = line.split_ascii_whitespace().map(|f| f.parse().ok()).collect();
        if let Some([_, trigger, ack, cpu, irq]) = fields.as_deref() {
            let cell = all.entry((*cpu as u32, *irq as u32)).or_default();
            cell.0.push(*trigger);
            cell.1.push(*ack);
        }
    }
    all
}

fn check_against_naive(text: &str) {
    let log = imported(text.as_bytes(), Some(Format::Interrupt)).unwrap();
    let want = naive(text);
    assert_eq!(log.records.len(), want.len());
    for (record, ((cpu, irq), (trigger, ack))) in log.records.iter().zip(&want) {
        assert_eq!((record.cpu.as_ref().unwrap().cpu, record.target.as_ref().unwrap().irq), (*cpu, Some(*irq)));
        for (name, values) in [(outcome::TRIGGER_TO_HANDLER, trigger), (outcome::ENTRY_TO_ACK, ack)] {
            let (got, want) = (&record.histograms[name], Histogram::of_ns(values.iter().copied()).unwrap());
            assert!(got.buckets().eq(want.buckets()));
            assert_eq!((got.min_ns(), got.mean_ns(), got.max_ns()), (want.min_ns(), want.mean_ns(), want.max_ns()));
        }
    }
}

proptest! {
    #[test]
    fn agrees_with_a_naive_parser(
        lines in proptest::collection::vec((any::<u32>(), 0u64..200_000, 0u64..3_000_000_000, 0u32..5, 60u32..64), 1..800),
        gap in "[ \t]{1,3}", end in prop_oneof!["\n", "\r\n", " \n"], last in any::<bool>(),
    ) {
        let mut text = String::from("Interrupt Latency Data (n samples)\n# comment\n\n");
        for (at, trigger, ack, cpu, irq) in &lines {
            text += &[at.to_string(), trigger.to_string(), ack.to_string(), cpu.to_string(), irq.to_string()].join(&gap);
            text += &end;
        }
        if last { text.truncate(text.trim_end().len()); }
        check_against_naive(&text);
    }
}

#[test]
fn a_log_of_many_blocks_is_cut_at_line_ends() {
    // Over 12 MB: several threads, and lines across every border of a block.
    let mut text = String::new();
    let mut n = 1u64;
    while text.len() < 13_000_000 {
        n = n.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        text += &format!(
            "{} {} {} {} {}\n",
            n >> 20,
            (n >> 40) % 50_000,
            (n >> 30) % 3000,
            (n >> 50) % 3,
            69 + (n >> 55) % 2
        );
    }
    check_against_naive(&text);
    let lines = text.lines().count() as u64;
    let log = imported(text.as_bytes(), None).unwrap();
    assert_eq!((log.format, log.lines, log.samples, log.malformed), (Format::Interrupt, lines, lines, 0));
    // The line number of a bad line counts from the file's start, whichever thread read it.
    let bad = text.len() / 4 * 3;
    let at = bad + text[bad..].find('\n').unwrap() + 1;
    let number = text[..at].lines().count() + 1;
    text.insert_str(at, "12 34 oops\n");
    let log = imported(text.as_bytes(), None).unwrap();
    assert_eq!(log.malformed, 1);
    let warning = &log.records[0].warnings[0].text;
    assert!(warning.ends_with(&format!(":{number}: \"12 34 oops\" is not 5 whole numbers")), "{warning}");
}

#[test]
fn headers_are_passed_over_and_bad_lines_named() {
    let text = "Interrupt Latency Data (3 samples)\nEnabled: 1\nFormat: handler_entry_ns ...\n\
                100 1500 900 0 69\n200 1600\n300 1700 950 1 70 5\n-5 1 1 0 69\n400 99999999999999999999 1 0 69\n\
                500 3600000000001 1 0 69\n600 1 1 9000 69\n700 1 1 0 99999999999\n800 1.5 2 0 69\n\n900 1800 1000 1 69";
    let log = imported(text.as_bytes(), None).unwrap();
    assert_eq!((log.lines, log.samples, log.words, log.malformed), (14, 2, 4, 8));
    let warning = &log.records[0].warnings[0];
    assert_eq!(warning.code, "malformed-lines");
    for words in [
        "8 lines were not taken",
        ":5: \"200 1600\" is not 5",
        ":6: ",
        ":7: \"-5 1 1 0 69\"",
        ":9: 3600000000001 ns is longer",
    ] {
        assert!(warning.text.contains(words), "{words}: {}", warning.text);
    }
    assert_eq!(log.records[0].metrics["malformed_lines"].value, 8.0);
    let h = &log.records[1].histograms[outcome::TRIGGER_TO_HANDLER];
    assert_eq!((h.max_ns(), h.max_at_ns), (Some(1800.0), Some(800)));
}

#[test]
fn the_log_of_register_reads_is_told_by_its_four_numbers() {
    let text = "IOMem Read Latency Data\n100 812 0 3\n200 900 1 3\n300 850 0 0\n400 850 0 6\n";
    let log = imported(text.as_bytes(), None).unwrap();
    assert_eq!((log.format, log.samples, log.malformed, log.records.len()), (Format::Iomem, 3, 1, 3));
    let shown = table::render(&log.records, &table::Options::default());
    for words in [
        "Total samples: 3",
        "c0/b3",
        "Per-BAR IOMem Read Latency",
        "1 malformed lines",
        "6 is no BAR number from 0 to 5",
    ] {
        assert!(shown.contains(words), "{words}\n{shown}");
    }
}

#[test]
fn a_line_without_end_neither_fills_memory_nor_ends_the_log() {
    let mut text = b"100 1500 900 0 69\n".to_vec();
    text.resize(text.len() + 3_000_000, b'7');
    text.extend(b"\n200 1500 900 0 69\n");
    let log = imported(&text, None).unwrap();
    assert_eq!((log.samples, log.malformed, log.lines), (2, 1, 3));
}

#[test]
fn any_bytes_are_survived() {
    let mut n = 1u64;
    let mut bytes = Vec::new();
    for _ in 0..200_000 {
        n = n.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        bytes.push(b"0123456789 \n\t-x,.#<\xff"[(n >> 33) as usize % 20]);
    }
    for format in [Format::Interrupt, Format::Iomem, Format::PerfStat] {
        if let Ok(log) = imported(&bytes, Some(format)) {
            assert!(log.samples > 0);
        }
    }
}

#[test]
fn what_is_no_log_is_refused() {
    let refused = |text: &str, format| imported(text.as_bytes(), format).unwrap_err();
    assert!(matches!(refused("hello\nworld\n", None), Error::UnknownFormat { .. }));
    assert!(matches!(refused("", None), Error::UnknownFormat { .. }));
    assert!(matches!(refused("1 2 3\n", None), Error::UnknownFormat { .. }));
    let error = refused("100 812 0 3\n", Some(Format::Interrupt));
    assert!(error.to_string().contains("\"100 812 0 3\" is not 5 whole numbers"), "{error}");
    assert!(error.hint().unwrap().contains("--format"));
    assert!(matches!(import::read(Path::new("no/such"), None, &identity()), Err(Error::Read { .. })));
    assert!(matches!(import::read(Path::new("."), None, &identity()), Err(Error::Read { .. })));
}

#[test]
fn the_text_of_perf_stat_becomes_figures() {
    let text = " Performance counter stats for 'sleep 1':\n\n  1,234,567      cycles     #    1.187 GHz    (83.31%)\n\n  1.001234567 seconds time elapsed\n";
    let log = imported(text.as_bytes(), None).unwrap();
    assert_eq!((log.format, log.samples), (Format::PerfStat, 1));
    let shown = table::render(&log.records, &table::Options::default());
    assert!(shown.contains("1234567  1") && shown.contains("[multiplexed]"), "{shown}");
}

#[test]
fn a_byte_order_mark_costs_no_sample() {
    let log = imported(b"\xef\xbb\xbf1 500 0 0\n2 600 0 0\n", None).unwrap();
    assert_eq!((log.format, log.samples, log.malformed, log.words), (Format::Iomem, 2, 0, 0));
}

#[test]
fn a_log_of_more_cells_than_the_bound_is_refused() {
    let log = |cells: u32| (0..cells).map(|cell| format!("1 500 600 {} {}\n", cell % 7, cell / 7)).collect::<String>();
    assert_eq!(imported(log(65_536).as_bytes(), None).unwrap().records.len(), 65_536);
    // Both in one part, and in several that have fewer each.
    for text in [log(65_537), log(65_537) + &"1 500 600 0 0\n".repeat(900_000), log(400_000)] {
        let refused = imported(text.as_bytes(), None).unwrap_err();
        assert!(refused.to_string().contains("more than 65536 pairs"), "{refused}");
    }
}

#[test]
fn a_rate_without_the_time_elapsed_is_not_compared() {
    let perf = " Performance counter stats for 'system wide':\n\n  40160751  ali_drw_21000/perf_hif_rd/\n\n";
    let bw_mem = "$ ./bw_mem 40960M rd\n40960.00 20507.82\n";
    let log = imported(format!("{bw_mem}{perf}").as_bytes(), None).unwrap();
    assert_eq!((log.records.len(), log.records[0].warnings[0].code.as_str()), (1, "no-elapsed"));
    let [mut perf_file, mut workload] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
    perf_file.write_all(perf.as_bytes()).unwrap();
    workload.write_all(bw_mem.as_bytes()).unwrap();
    let refused = import::read_beside(perf_file.path(), None, &identity(), Some(workload.path())).unwrap_err();
    assert!(matches!(refused, Error::NoElapsed { .. }), "{refused}");
}
