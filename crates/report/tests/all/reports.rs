//! What public reports and their neighbours hold of perf, workloads and histograms (tests/transcripts/reports.txt): the figures
//! are those of the text, also when other output stands around them; or the refusal says why.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use pciescope_core::{Comparison, Identity};
use pciescope_report::Error;
use pciescope_report::import::{self, Imported};

/// A folder with the texts, which stand in one file: `=== NAME` before each, with `without an end` where the last line has none.
fn folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reports");
        std::fs::create_dir_all(&folder).unwrap();
        let all = include_str!("../../../../tests/transcripts/reports.txt").strip_suffix('\n').unwrap();
        for text in all.split("\n=== ") {
            let (name, text) = text.trim_start_matches("=== ").split_once('\n').unwrap();
            let (name, end) = name.strip_suffix(" without an end").map_or((name, "\n"), |name| (name, ""));
            std::fs::write(folder.join(name), text.to_owned() + end).unwrap();
        }
        folder
    });
    &FOLDER
}

fn read(path: &Path, workload: Option<&str>) -> Result<Imported, Error> {
    let workload = workload.map(|name| folder().join(name));
    import::read_beside(path, None, &Identity::new("import", None), workload.as_deref())
}

/// Every event by its place, added up over intervals; each comparison's error in percent.
fn figures(log: &Imported) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for record in &log.records {
        if let Some(row) = Comparison::from_record(record) {
            let error = (row.error_percent().unwrap() * 1000.0).round() / 1000.0;
            all.insert(format!("{}: {}", row.workload, row.counter), error);
            continue;
        }
        let cpu = record.cpu.as_ref().map(|cpu| format!("CPU{} ", cpu.cpu));
        let name = record.target.as_ref().and_then(|target| Some(format!("{} ", target.name.as_ref()?)));
        let place = cpu.or(name).unwrap_or_default();
        for (event, metric) in record.metrics.iter().filter(|(event, _)| *event != "interval_end_ns") {
            *all.entry(format!("{place}{event}")).or_insert(0.0) += metric.value;
        }
    }
    all
}

/// The text; how many figures it has; of these some, worked out by hand from the text.
type Known<'a> = (&'a str, usize, &'a [(&'a str, f64)]);

const RX: &str = "dwc_rootport_10/rx_pcie_tlp_data_payload/";

#[rustfmt::skip]
const FIGURES: &[Known<'_>] = &[
    ("01-per-socket-table.txt", 4, &[("S0 uncore_m2pcie_1/event=0x1/", 25_002_440_000.0), ("S1 uncore_m2pcie_1/event=0x33,umask=0x04/", 5_999_927_000.0)]),
    ("02-per-socket-interval.txt", 4, &[("S0 uncore_m2pcie_1/event=0x1/", 4263.0), ("S1 uncore_m2pcie_1/event=0x14,umask=0x01/", 1_853_466_402_699.0)]),
    ("03-per-socket.csv", 4, &[("S1 uncore_m2pcie_1/event=0x1/", 25_002_410_000.0)]),
    ("04-json.txt", 3, &[("task-clock", 1_397_967.0), ("cycles", 1_419_380.0)]),
    ("05-json-dwc-interval.txt", 1, &[(RX, 536_870_912.0)]),
    ("06-sep-apostrophe.csv", 2, &[("CPU39 cycles", 635_310.0), ("CPU40 cycles", 610_000.0)]),
    ("07-interval-default-metrics.txt", 6, &[("instructions", 1_302_117_002.0), ("branches", 260_423_400.0)]),
    ("08-interval-default-metrics.csv", 4, &[("cpu-clock", 16_011_120_000.0)]),
    ("09-fio-stonewall-groups.txt", 4, &[("fio read: dwc_rootport_10/rx_pcie_tlp_data_payload/", 0.001)]),
    ("12-imc-mib-interval.txt", 2, &[("uncore_imc/data_reads/", 262_144.03 * 1_048_576.0)]),
    ("13-A-imc.txt", 2, &[("CPU0 uncore_imc_free_running_0/uncore_imc_free_running,data_total/", 1_646_264.32)]),
    ("14-not-counted-unit.txt", 2, &[("duration_time", 1_001_515_088.0)]),
    ("15-cgroup-root.txt", 7, &[("cycles in /", 848_608_137.0), ("cycles in user.slice", 48_608_137.0)]),
    ("16-hybrid.txt", 3, &[("cpu_core/cycles/", 32_412_007.0)]),
    ("17-perf-iostat-dd.txt", 16, &[("0000:17 Inbound Read", 352_552.0 * 1_048_576.0), ("0000:00 Outbound Write", 3.0 * 1_048_576.0)]),
    ("18-iostat-I.txt", 8, &[("0000:17 Inbound Write", 43.0 * 1_048_576.0)]),
    ("19-iostat.csv", 8, &[("0000:17 Outbound Write", 21.0 * 1_048_576.0)]),
    ("20-dd-beside-perf.txt", 1, &[(RX, 2_013_300_000.0)]),
    ("21-dd-last-line-beside-perf.txt", 1, &[(RX, 2_013_300_000.0)]),
    ("22-perf-4x-task-clock-msec.txt", 6, &[("task-clock", 995_943_403.0), ("page-faults", 68.0)]),
    ("23-perf-3x-scaled.txt", 5, &[("LLC-misses", 5_000_000.0), ("task-clock", 4_713_879_241.0)]),
    ("24-perf-old-scaled-from.txt", 4, &[("cycles", 2_066_201_729.0), ("task-clock", 956_474_238.0)]),
    ("26-fio31-issued-rwt.txt", 2, &[("fio read: dwc_rootport_10/rx_pcie_tlp_data_payload/", 0.001)]),
    ("27-fio-wrapped-mail.txt", 2, &[("fio read: dwc_rootport_10/rx_pcie_tlp_data_payload/", 0.004)]),
    ("28-imc-merged-bw_mem.txt", 3, &[("bw_mem rd: uncore_imc/cas_count_read/", 0.011)]),
    ("32-per-node.txt", 2, &[("N1 ali_drw_21000/hif_rd/", 9751.0)]),
    ("33-per-thread.txt", 2, &[("fio-4463 cycles", 218_957_037.0)]),
    ("34-process-id.txt", 2, &[("instructions", 378_646_182_579.0)]),
    ("35-imc-channels-bw_mem.txt", 13, &[("bw_mem rd: uncore_imc, sum of 6 PMUs", 0.011)]),
    ("39-ldms-dd-unc.txt", 4, &[("unc_m_cas_count.rd", 28.47 * 1_048_576.0)]),
    ("44-csv-summary.csv", 1, &[("cycles", 4_842_580.0)]),
    ("45-interval-clear.txt", 1, &[("cycles", 4_842_580.0)]),
    ("49-perf-r3-fio.txt", 2, &[("fio read: dwc_rootport_10/rx_pcie_tlp_data_payload/", 0.005)]),
    ("50-fio-then-csv.txt", 2, &[("fio read: dwc_rootport_10/rx_pcie_tlp_data_payload/", 0.005)]),
    ("52-nmi-hint.txt", 0, &[]),
    ("57-nvidia-loc-rem.txt", 3, &[("fio read: nvidia_pcie_pmu_0/wr_bytes_loc+wr_bytes_rem/", 0.001)]),
    ("58-hisi-flux.txt", 3, &[("fio read: hisi_pcie0_core1/rx_mwr_flux+rx_cpl_flux,port=0xffff/", 0.005)]),
    ("59-dwc-docname.txt", 2, &[("fio read: dwc_rootport_13018/Rx_PCIe_TLP_Data_Payload/", 0.007)]),
    ("60-fio-kb_base-1000.txt", 2, &[("fio read: dwc_rootport_10/rx_pcie_tlp_data_payload/", 0.007)]),
    ("61-perf61-I-per-socket.csv", 4, &[("S0 context-switches", 48.0), ("S0 cpu-clock", 402_840_000.0)]),
    ("62-perf61-dd.txt", 4, &[("page-faults", 328.0)]),
    ("63-perf61-json-interval.txt", 2, &[("task-clock", 402_489_031.0), ("page-faults", 67.0)]),
    ("64-perf61-per-socket.txt", 4, &[("S0 page-faults", 63.0)]),
    ("65-perf61-per-thread.txt", 0, &[]),
];

/// The text, the workload beside it if it is the text's neighbour, words of the refusal.
#[rustfmt::skip]
const REFUSED: &[(&str, Option<&str>, &str)] = &[
    ("25-indian-locale.txt", None, ":5: \"5,47,18,32,553"),
    ("30-dcperf-dup-scf.csv", None, ":4: nvidia_scf_pmu_0/cycles/ was counted before"),
    ("31-no-merge.csv", None, ":2: uncore_imc/cas_count_read/ was counted before"),
    ("36-cyclictest-hist-4cpu.txt", None, ":2: this is a histogram of cyclictest"),
    ("37-rtla-timerlat-hist-2cpu.txt", None, "histogram of rtla timerlat"),
    ("38-rtla-timerlat-hist-1cpu-user.txt", None, "histogram of rtla timerlat"),
    ("66-cyclictest-2.4-t4-h60.txt", None, "histogram of cyclictest"),
    ("40-pcie-lat-output.txt", None, "is not a log that pciescope can import"),
    ("51-perf-messages.txt", None, "is not a log that pciescope can import"),
    ("53-avocado-prefix.txt", None, ":5: \"12:06:53 DEBUG| [stderr]\" stands before"),
    ("55-turbostat-irq-smi.txt", None, ":2: "),
    ("67-pcm-pcie.txt", None, "is not a log that pciescope can import"),
    ("perf-dwc-for-10-11.txt", Some("11-fio-terse.txt"), ":1: fio's terse line is cut"),
    ("perf-imc-for-41-43.txt", Some("42-bw_mem-cp.txt"), ":2: bw_mem cp moves data both ways"),
    ("perf-imc-for-41-43.txt", Some("43-stream.txt"), "holds neither a report of fio nor a line of bw_mem"),
];

#[test]
fn the_figures_are_those_of_the_text() {
    for (name, count, some) in FIGURES {
        let log = read(&folder().join(name), None).unwrap_or_else(|err| panic!("{name}: {err}"));
        let all = figures(&log);
        assert_eq!((all.len(), log.malformed), (*count, 0), "{name}: {all:#?}");
        for (figure, value) in *some {
            let got = all.get(*figure).unwrap_or_else(|| panic!("{name}: no {figure} in {all:#?}"));
            assert!((got - value).abs() <= value.abs() * 1e-12, "{name}: {figure} is {got}");
        }
    }
    for (workload, errors) in [("10-fio.json", [0.028, 0.129].as_slice()), ("41-bw_mem-below-1MB.txt", &[0.011])] {
        let beside = if errors.len() > 1 { "perf-dwc-for-10-11.txt" } else { "perf-imc-for-41-43.txt" };
        let log = read(&folder().join(beside), Some(workload)).unwrap();
        let all: Vec<f64> =
            figures(&log).into_iter().filter(|(name, _)| name.contains(": ")).map(|one| one.1).collect();
        assert_eq!(all, errors, "{workload}");
    }
}

#[test]
fn a_refusal_says_why_and_its_hint_does_not_lead_back() {
    for (name, workload, words) in REFUSED {
        let refused = read(&folder().join(name), *workload).unwrap_err();
        assert!(refused.to_string().contains(words), "{name}: {refused}");
        let named = ["interrupt", "iomem"].map(|format| format!("--format {format}"));
        let hint = refused.hint().unwrap_or_default();
        assert!(!hint.contains("let the log's beginning decide"), "{name}: {hint}");
        assert!(!hint.contains("--format") || named.iter().all(|named| hint.contains(named)), "{name}: {hint}");
    }
    // A log that is cut within its last number does not name an interrupt that no other line has.
    let log = read(&folder().join("68-interrupt-cut-in-last-number.txt"), None).unwrap();
    assert_eq!((log.records.len(), log.samples, log.malformed), (1, 2, 1));
    assert!(log.records[0].warnings[0].text.contains(":4: the last line has no end"));
}

/// What workloads and shells print beside perf; none of it is a count.
const BESIDE: &[&str] = &[
    "$ ./a.out --size 4096\n",
    "100+0 records in\n100+0 records out\n104857600 bytes (105 MB, 100 MiB) copied, 0.00248895 s, 42.1 GB/s\n",
    "t: (g=0): rw=randread, bs=(R) 64.0KiB-64.0KiB, (W) 64.0KiB-64.0KiB, (T) 64.0KiB-64.0KiB, ioengine=libaio, iodepth=32\n\
     fio-3.28\nStarting 1 process\n\nt: (groupid=0, jobs=1): err= 0: pid=77: Mon Mar  3 10:00:00 2025\n  read: IOPS=8171, BW=511MiB/s \
     (536MB/s)(1024MiB/2005msec)\n    clat percentiles (usec):\n     |  1.00th=[   12],  5.00th=[   14]\n     issued rwts: total=16384,0,0,0 \
     short=0,0,0,0 dropped=0,0,0,0\n\nRun status group 0 (all jobs):\n   READ: bw=511MiB/s (536MB/s), 511MiB/s-511MiB/s \
     (536MB/s-536MB/s), io=1024MiB (1074MB), run=2005-2005msec\n",
    "$ ./bw_mem 2048M rd\n2048.00 101234.56\n",
    "PING host (10.0.0.1) 56(84) bytes of data.\n10 packets transmitted, 10 received, 0% packet loss, time 9013ms\n10 packets transmitted\n",
    "Copy:          101234.5     0.015942     0.015805     0.016112\nreal\t0m1.003s\nuser\t0m0.002s\n",
    "{\n  \"fio version\" : \"fio-3.28\",\n  \"jobs\" : [ { \"read\" : { \"io_bytes\" : 536870912, \"runtime\" : 10 } } ]\n}\n",
    "3;fio-3.7;bio;0;0;28709340;159349;500;180166\n",
];

/// Imports a text; its figures without comparisons, or why it was refused.
fn figures_of(text: &str) -> Result<(BTreeMap<String, f64>, u64), String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let log = read(file.path(), None).map_err(|err| err.to_string())?;
    let mut all = figures(&log);
    all.retain(|name, _| !name.starts_with("fio ") && !name.starts_with("bw_mem "));
    Ok((all, log.malformed))
}

/// A short text; its counts, its comparisons' errors in percent and how many lines were not taken; words of a warning.
#[test]
fn one_rule_for_each_kind_of_line() {
    const TABLE: &str = "Performance counter stats for x:\n";
    let rx = |count: u64| format!(" {count} {RX}\n");
    let imc = |channels: &[u32]| {
        channels.iter().map(|n| format!(" 28,610.23 MiB uncore_imc_{n}/cas_count_read/\n")).collect::<String>()
    };
    let (bw_mem, second) = ("$ ./bw_mem 2048M rd\n2048.00 60000.00\n", " 1.0 seconds time elapsed\n");
    let json = "{ \"fio version\" : \"fio-3.28\", \"jobs\" : [ { \"read\" : { \"io_bytes\" : 536870912 } } ] }\n";
    let reports = |count: u32| {
        (0..count).map(|pid| format!("t: (groupid=0, jobs=1): err= 0: pid={pid}: x\nRun status group 0 (all jobs):\n READ: bw=1MiB/s, io=1024MiB (1074MB), run=2000-2000msec\n")).collect::<String>()
    };
    let mean = format!("Performance counter stats for x (3 runs):\n 1,073,800,000 {RX} ( +- 0.02% )\n");
    let nvidia = |event: &str| format!(" 1073741824 nvidia_pcie_pmu_0/{event}/\n");
    #[rustfmt::skip]
    let texts: Vec<(String, usize, &[f64], u64, &str)> = vec![
        (format!("{bw_mem}{TABLE}{}{second}", imc(&[0, 1])), 2, &[0.0], 0, ""),
        (format!("{bw_mem}{TABLE}{} <not counted> MiB uncore_imc_2/cas_count_read/\n{second}", imc(&[0, 1])), 2, &[], 0, "uncore_imc_2/cas_count_read/ was not counted all the time"),
        (format!("{}{mean}", reports(3)), 1, &[0.005], 0, ""),
        (format!("{}{mean}", reports(2)), 1, &[], 0, "the mean of 3 runs, and the text has 2 reports of fio read"),
        (format!("{}{TABLE}{}", reports(1), nvidia("wr_bytes_loc")), 1, &[], 0, "only wr_bytes_loc was counted"),
        (format!("{json}{TABLE}{}", rx(536_870_912)), 1, &[0.0], 0, ""),
        (format!("{json}{TABLE} 30 page-faults\n"), 1, &[], 0, "no counted event sees the traffic of fio read"),
        (format!("{TABLE}{} READ: bw=1MiB/s,\n\n", rx(1)), 1, &[], 0, "the line READ: of fio is cut"),
        (format!("{TABLE}{}t: (groupid=0, jobs=1): err= 0: pid=1: x\n", rx(1)), 1, &[], 0, "no line READ: or WRITE:"),
        (format!("10 packets transmitted\n{TABLE} 30 page-faults\n"), 1, &[], 1, "\"10 packets transmitted\" is no counter"),
        (format!("   30      page-faults\n{TABLE} 30 page-faults\n"), 1, &[], 1, "stands outside the table of perf"),
        (format!("104857600 bytes (105 MB, 100 MiB) copied, 0.1 s, 1 GB/s\n{TABLE} 30 page-faults\n"), 1, &[], 0, ""),
        (format!("{TABLE} 5,000,000 LLC-misses # 1 % ( +- 0.15% ) [33.41%]\n"), 1, &[], 0, "33.41 % of the time"),
        ("0.1,S0,2,31,,context-switches,201100406,100.00,154.153,/sec\n".to_owned(), 1, &[], 0, ""),
        ("0.5,31,,context-switches,201100406,100.00,154.153,/sec\n0.5,,,,,,1.29,stalled cycles per insn\n".to_owned(), 1, &[], 0, ""),
        ("#           time  insn per cycle\n     1.001018715            0.50\n     1.001018715 10 cycles\n".to_owned(), 1, &[], 0, ""),
    ];
    for (text, count, errors, malformed, words) in texts {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &text).unwrap();
        let log = read(file.path(), None).unwrap_or_else(|err| panic!("{err}\n{text}"));
        let (compared, counts): (Vec<_>, Vec<_>) = figures(&log).into_iter().partition(|(name, _)| name.contains(": "));
        let compared: Vec<f64> = compared.into_iter().map(|one| one.1).collect();
        let got = (counts.len(), &*compared, log.malformed);
        let warnings: Vec<&str> =
            log.records.iter().flat_map(|record| &record.warnings).map(|one| one.text.as_str()).collect();
        assert_eq!(got, (count, errors, malformed), "{text}\n{counts:?}\n{warnings:?}");
        let is_right =
            if words.is_empty() { warnings.is_empty() } else { warnings.iter().any(|text| text.contains(words)) };
        assert!(is_right, "{text}\n{warnings:?}");
    }
}

/// Breaks lines that are wider, as a terminal does.
fn folded(text: &str, width: usize) -> String {
    let lines = text.lines().map(|line| {
        let letters: Vec<char> = line.chars().collect();
        letters.chunks(width).map(String::from_iter).collect::<Vec<_>>().join("\n") + "\n"
    });
    lines.collect()
}

/// Breaks wide lines at blanks, as mail does.
fn wrapped(text: &str, width: usize) -> String {
    let mut all = String::new();
    for mut line in text.lines() {
        while let Some((at, _)) = line.char_indices().nth(width) {
            let Some(end) = line[..at].trim_end().rfind(' ') else { break };
            all += &format!("{}\n", &line[..=end]);
            line = &line[end + 1..];
        }
        all += &format!("{line}\n");
    }
    all
}

#[test]
fn output_around_the_figures_changes_none() {
    let (mut same, mut refused) = (0, 0);
    let mut check = |name: &str, text: &str, whole: &BTreeMap<String, f64>, may_lose: bool| match figures_of(text) {
        Ok((all, malformed)) => {
            let is_part = may_lose && malformed > 0 && all.iter().all(|(name, value)| whole.get(name) == Some(value));
            assert!(all == *whole || is_part, "{name}:\n{text}\n{all:#?}\nbut {whole:#?}");
            same += 1;
        }
        Err(why) => {
            let names_line = why.split(':').any(|part| part.parse::<u64>().is_ok());
            let is_none_whole = may_lose && why.contains("is not a log");
            assert!(names_line || is_none_whole, "{name}: {why}\n{text}");
            refused += 1;
        }
    };
    for (name, ..) in FIGURES {
        let text = std::fs::read_to_string(folder().join(name)).unwrap();
        let (whole, _) = figures_of(&text).unwrap();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        for beside in BESIDE {
            check(name, &format!("{beside}{text}"), &whole, false);
            check(name, &format!("{}\n{beside}", text.trim_end()), &whole, false);
            for at in [lines.len() / 3, lines.len() / 2, lines.len() * 2 / 3] {
                check(name, &[&lines[..at], &[*beside], &lines[at..]].concat().concat(), &whole, false);
            }
        }
        check(name, &text.replace('\n', "\r\n"), &whole, false);
        let coloured = text
            .replace("payload", "\u{1b}[01;31m\u{1b}[Kpayload\u{1b}[m\u{1b}[K")
            .replace("cycles", "\u{1b}[1mcycles\u{1b}[0m");
        check(name, &coloured, &whole, false);
        for width in [60, 66, 72, 80, 100, 132] {
            check(name, &folded(&text, width), &whole, true);
            check(name, &wrapped(&text, width), &whole, true);
        }
    }
    assert!(same > 10 * refused, "{same} the same, {refused} refused");
}

/// Texts of other programs in their layouts, with figures of our own.
const OTHERS: &[&str] = &[
    "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n 1  0      0 812345  20480 912345    0    0     5    12  110  210  3  1 95  1  0\n",
    "Linux 6.12.1 (host) \t03/03/25 \t_x86_64_\t(8 CPU)\n\nDevice             tps    kB_read/s    kB_wrtn/s    kB_read    kB_wrtn\nnvme0n1          12.50       100.00        20.00     100000      20000\n",
    "12:00:01 AM  CPU    %usr   %nice    %sys   %idle\n12:00:02 AM    0    1.00    0.00    2.00   97.00\n",
    "Core\tCPU\tAvg_MHz\tIRQ\n0\t0\t1200\t20345\n1\t1\t1300\t19345\n",
    "Core CPU IRQ SMI\n0 0 20345 0\n1 1 19345 0\n2 2 18345 3\n",
    "           CPU0       CPU1\n  24:     123456          0  PCI-MSI 524288-edge  nvme0q0\n NMI:         12         13\n",
    "MemTotal:       16384000 kB\nMemFree:         8192000 kB\n",
    "cpu  1234 0 567 89012 34 0 5 0 0 0\ncpu0 617 0 283 44506 17 0 2 0 0 0\nctxt 123456\n",
    "Inter-|   Receive   |  Transmit\n face |bytes packets errs drop|bytes packets errs drop\n  eth0: 1234567 8901 0 0 7654321 1098 0 0\n",
    "   8       0 nvme0n1 1234 56 78901 234 5678 90 12345 678 0 901 1234\n",
    "NIC statistics:\n     rx_packets: 123456\n     tx_packets: 654321\n     rx_errors: 0\n",
    "                           node0           node1\nnuma_hit                12345678        87654321\nnuma_miss                      0               0\n",
    "Filesystem     1K-blocks     Used Available Use% Mounted on\n/dev/nvme0n1p2 102400000 51200000  51200000  50% /\n",
    "total 24\n-rw-r--r-- 1 root root 4096 Mar  3 10:00 a.txt\n-rw-r--r-- 1 root root 8192 Mar  3 10:01 b.txt\n",
    "  10   20  300 a.txt\n  11   21  310 b.txt\n  21   41  610 total\n",
    "0000000 0000 0000 0000 0000 0000 0000 0000 0000\n0000020 0001 0002 0003 0004 0005 0006 0007 0008\n",
    "[    0.000000] Linux version 6.12.1\n[    1.234567] pci 0000:00:1c.0: PCI bridge to [bus 01]\n",
    "01:00.0 Non-Volatile memory controller: Vendor Device (rev 01)\n\tLnkSta: Speed 8GT/s, Width x4\n",
    "PING host (10.0.0.1) 56(84) bytes of data.\n64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=0.123 ms\n\n1 packets transmitted, 1 received, 0% packet loss, time 0ms\nrtt min/avg/max/mdev = 0.123/0.123/0.123/0.000 ms\n",
    "[ ID] Interval           Transfer     Bitrate\n[  5]   0.00-1.00   sec  1.10 GBytes  9.41 Gbits/sec\n",
    "Recv   Send    Send\nSocket Socket  Message  Elapsed\n131072  16384  16384    10.00    9412.34\n",
    " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n 65536      5000             11500.12            11499.98\t\t   0.184000\n",
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]\n 2       1000          0.75           3.21         0.80\n",
    "# gpu   pwr gtemp   sm   mem\n# Idx     W     C    %     %\n    0    25    40    0     1\n    0    26    41    5     2\n",
    "% time     seconds  usecs/call     calls    errors syscall\n------ ----------- ----------- --------- --------- ----------------\n 60.00    0.001200           1      1200           read\n",
    "real\t0m1.234s\nuser\t0m0.123s\nsys\t0m0.045s\n",
    "0.00049 1.234\n0.00098 1.235\n0.00195 1.240\n",
    "Inject\tLatency\tBandwidth\nDelay\t(ns)\tMB/sec\n==========================\n 00000\t250.12\t  95123.4\n",
    "# Samples: 1K of event 'cycles'\n# Event count (approx.): 123456789\n#\n    15.82%  a.out    [kernel.kallsyms]  [k] copy_user\n",
    "a.out  1234 [001] 12345.678901:     250000 cycles:  ffffffff81000000 f (kernel)\n",
    "# Running 'mem/memcpy' benchmark:\n# function 'default'\n# Copying 1MB bytes ...\n\n      12.345678 GB/sec\n",
    "T: 0 ( 1234) P:80 I:1000 C:  10000 Min:      2 Act:    3 Avg:    3 Max:      25\n",
    "000000 000012\t000013\t000014\t000015\n000001 000002\t000003\t000004\t000005\n",
    "1 5123 4870 5010 4999\n2 4301 4520 4400 4410\n3 500 540 530 521\n",
    "10 20 30 40\n7 3 9 1\n8 2 6 4\n5 1 2 3\n",
    "1 1 4 9 16\n2 1 8 27 64\n3 1 16 81 256\n",
    "time,a,b,c\n1,2,3,4\n2,3,4,5\n",
    "lat (usec)   : 2=0.01%, 4=12.34%, 10=85.00%, 20=2.50%\n  READ: bw=1MiB/s (1MB/s), 1MiB/s-1MiB/s (1MB/s-1MB/s), io=64MiB (67MB), run=2000-2000msec\n",
    "1920+0 records in\n1920+0 records out\n2013265920 bytes (2.0 GB, 1.9 GiB) copied, 1.01234 s, 2.0 GB/s\n",
    "HWLAT: 12345\n# tracer: hwlat\n#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n           <...>-1729    [001] d....  678.473449: #1  inner/outer(us): 11/11\n",
];

#[test]
fn texts_of_other_programs_give_no_record() {
    for text in OTHERS {
        let imported = figures_of(text);
        assert!(imported.is_err(), "{text}\n{imported:?}");
    }
}
