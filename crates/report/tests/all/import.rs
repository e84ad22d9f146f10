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

#[test]
fn the_end_of_an_interval_is_no_figure_of_the_table() {
    let text = "     1.000123456            123      cycles\n     2.000234567            456      cycles\n";
    let records = imported(text.as_bytes(), Some(Format::PerfStat)).unwrap().records;
    assert_eq!(records.len(), 2);
    let text = table::render(&records, &table::Options::default());
    assert!(text.contains("cycles") && !text.contains("interval_end_ns"), "{text}");
    let text = pciescope_report::print::terminal::render(&records);
    assert!(text.contains("cycles") && !text.contains("interval_end_ns"), "{text}");
    // Nor is it compared.
    assert_eq!(pciescope_report::compare::names(&records, &records), ["cycles"]);
}

/// Splits lines and fields as the standard library does: slow and plain.
fn naive(text: &str) -> BTreeMap<(u32, u32), (Vec<u64>, Vec<u64>)> {
    let mut all: BTreeMap<_, (Vec<u64>, Vec<u64>)> = BTreeMap::new();
    let last = text.lines().count();
    for (number, line) in text.lines().enumerate() {
        let fields: Option<Vec<u64>> = line.split_ascii_whitespace().map(|f| f.parse().ok()).collect();
        if let Some([_, trigger, ack, cpu, irq]) = fields.as_deref() {
            let pair = (*cpu as u32, *irq as u32);
            // A line that may have lost digits adds to what is known, and nothing new.
            if number + 1 == last && !text.ends_with('\n') && !all.contains_key(&pair) {
                continue;
            }
            let cell = all.entry(pair).or_default();
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
        lines in proptest::collection::vec((any::<u32>(), 0u64..200_000, 0u64..3_000_000_000, 0u32..5, 60u32..64), 2..800),
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
            text.len(),
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
                500 3600000000001 1 0 69\n600 1 1 9000 69\n700 1 1 0 99999999999\n800 1.5 2 0 69\n\n900 1800 1000 1 69\n";
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
    assert!(error.hint().unwrap().contains("import --help"));
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
    let format = Some(Format::Interrupt);
    assert_eq!(imported(log(65_536).as_bytes(), format).unwrap().records.len(), 65_536);
    // Both in one part, and in several that have fewer each.
    for text in [log(65_537), log(65_537) + &"1 500 600 0 0\n".repeat(900_000), log(400_000)] {
        let refused = imported(text.as_bytes(), format).unwrap_err();
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

#[test]
fn of_several_results_of_one_workload_none_is_chosen() {
    let perf = " Performance counter stats for 'system wide':\n\n  40160751  ali_drw_21000/perf_hif_rd/\n\n\
                1.0 seconds time elapsed\n";
    let results = "$ ./bw_mem 40960M rd\n40960.00 20507.82\n$ ./bw_mem 40960M rd\n40960.00 19000.00\n";
    let refused = imported(format!("{results}{perf}").as_bytes(), None).unwrap_err();
    assert!(refused.to_string().contains("the text holds 2 results of bw_mem"), "{refused}");
}

fn perf_stat(text: &str) -> Vec<pciescope_core::Record> {
    imported(text.as_bytes(), Some(Format::PerfStat)).unwrap_or_else(|err| panic!("{err}: {text}")).records
}

#[test]
fn a_summary_behind_intervals_counts_nothing_twice() {
    let separated = "1.000000001,10,,cycles,1,100.00,,\n2.000000001,20,,cycles,1,100.00,,\n30,,cycles,1,100.00,,\n";
    let columns = "     1.000000001   10  cycles\n     2.000000001   20  cycles\n
 Performance counter stats for 'sleep 2':\n\n   30  cycles\n   2.001 seconds time elapsed\n";
    for text in [separated, columns] {
        let values: Vec<f64> = perf_stat(text).iter().map(|record| record.metrics["cycles"].value).collect();
        assert_eq!(values, [10.0, 20.0], "{text}");
    }
    // What the intervals do not have is no summary of them.
    assert_eq!(perf_stat("1.000000001,10,,cycles,1,100.00,,\n30,,other,1,100.00,,\n").len(), 2);
    // The same of a workload beside.
    let event = "dwc_rootport_10/rx_pcie_tlp_data_payload/";
    let count = 1u64 << 25;
    let text = format!(
        "1.000000001,{count},,{event},1,100.00,,\n2.000000001,{count},,{event},1,100.00,,\n{},,{event},1,100.00,,\n\
         READ: bw=1MiB/s, io=64MiB (67MB), run=2000-2000msec\n",
        2 * count
    );
    let records = perf_stat(&text);
    let compared: Vec<f64> = records.iter().filter_map(|r| Some(r.metrics.get("count")?.value)).collect();
    assert_eq!(compared, [2.0 * count as f64], "{:?}", records.last());
}

#[test]
fn records_of_perf_say_how_long_they_counted() {
    let spans = |text: &str| -> Vec<Option<(u64, u64)>> {
        perf_stat(text).iter().map(|record| record.interval.map(|one| (one.start_ns, one.end_ns))).collect()
    };
    let table = " Performance counter stats for 'x':\n\n   30  cycles\n\n   2.001234567 seconds time elapsed\n";
    assert_eq!(spans(table), [Some((0, 2_001_234_567))]);
    let intervals =
        "1.000000001,CPU0,1,,a,1,100.00,,\n1.000000001,CPU1,1,,a,1,100.00,,\n2.500000001,CPU0,1,,a,1,100.00,,\n";
    let (first, second) = (Some((0, 1_000_000_001)), Some((1_000_000_001, 2_500_000_001)));
    assert_eq!(spans(intervals), [first, first, second]);
    assert_eq!(spans("1234,,cycles,1000000,100.00,1.187,GHz"), [None]);
}

#[test]
fn terms_of_an_event_are_no_fields() {
    for (line, name) in [
        ("1234,,cpu/event=0x3c,umask=0x00/,1000000,50.00,,", "cpu/event=0x3c,umask=0x00/"),
        ("1234,,cpu/event=0x3c,umask=0x00,inv/u,1000000,50.00,,", "cpu/event=0x3c,umask=0x00,inv/u"),
        ("1.000000001,CPU3,1234,,p/a=1,b=2/,grp,1000000,50.00,1.0,K/sec", "p/a=1,b=2/ in grp"),
        ("1234,,cycles,user.slice/x,1000000,50.00,1.0,K/sec", "cycles in user.slice/x"),
    ] {
        let record = perf_stat(line).remove(0);
        assert_eq!(record.metrics[name].value, 1234.0, "{line}: {:?}", record.metrics);
        assert!(record.warnings.iter().any(|w| w.text.contains(" 50 % of the time")), "{line}: {:?}", record.warnings);
    }
}

/// fio 2 calls 2^20 bytes an MB.
#[test]
fn sizes_of_fio_2_are_binary() {
    use pciescope_report::import::workload::{Amount, parse};
    let text = "test: (g=0): rw=randread, bs=64K-64K/64K-64K/64K-64K, ioengine=libaio, iodepth=64\n\
                test: (groupid=0, jobs=1): err= 0: pid=4711: Mon Mar  1 10:00:00 2021\n\
                \x20    issued    : total=r=49209/w=7/d=0, short=r=0/w=0/d=0, drop=r=0/w=0/d=0\n\
                \x20  READ: io=3075.6MB, aggrb=3917KB/s, minb=3917KB/s, maxb=3917KB/s, mint=803952msec, maxt=803952msec\n";
    let alone: String = text.lines().filter(|line| !line.contains("issued")).map(|line| format!("{line}\n")).collect();
    let bytes = |text: &str| match parse(text).traffic[0].amount {
        Amount::Bytes { exact, printed: None, seconds: [seconds, _], .. } if (seconds - 803.952).abs() < 1e-9 => exact,
        other => panic!("{other:?}"),
    };
    assert_eq!((bytes(text), bytes(&alone)), (49_209.0 * 65_536.0, 3075.6 * 1024.0 * 1024.0));
}

/// With `--status-interval` each report holds what was moved until then.
#[test]
fn several_reports_of_one_fio_are_refused() {
    let report = |pid: u32, moved: u32| {
        format!(
            "test: (groupid=0, jobs=1): err= 0: pid={pid}: Mon Mar  1 10:00:00 2021\n\
             \x20  READ: bw=1MiB/s (1MB/s), 1MiB/s-1MiB/s, io={moved}MiB (1MB), run=1000-1000msec\n"
        )
    };
    let counted = "16777216,,dwc_rootport_10/rx_pcie_tlp_data_payload/,1,100.00,,\n";
    perf_stat(&format!("{counted}{}{}", report(1, 1), report(2, 1)));
    let twice = format!("{counted}{}{}{}", report(1, 1), report(2, 1), report(1, 2));
    let err = imported(twice.as_bytes(), Some(Format::PerfStat)).unwrap_err();
    assert!(matches!(&err, Error::Twice { .. }) && err.to_string().contains("--status-interval"), "{err}");
}
