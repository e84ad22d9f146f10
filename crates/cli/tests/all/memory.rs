//! How much memory `report` and `compare` need for long files (docs/record.md, "How long a file may be").

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ended, PROGRAM, folder};

/// The size of each file, in bytes.
const SIZE: usize = 32 << 20;
/// The memory for the program's own code and libraries, in KiB.
const PROGRAM_KIB: u64 = 56 << 10;
/// The memory for intervals, which are folded while they are read: half of their text.
const INTERVALS_KIB: u64 = PROGRAM_KIB + (SIZE as u64 >> 11);
/// The memory for latencies: four times their text.
const LATENCIES_KIB: u64 = PROGRAM_KIB + ((4 * SIZE as u64) >> 10);

/// Runs the program where it gets no more memory than `kib`.
#[track_caller]
fn limited(kib: u64, words: &str) -> Ended {
    let shell = format!("ulimit -v {kib}; exec {PROGRAM} {words}");
    let output = Command::new("sh").args(["-c", &shell]).output().expect("there is a shell");
    Ended::of(output).expect_code(0)
}

/// Writes a file of lines until it has [`SIZE`] bytes; gives its name and how many there are.
fn file(folder: &Path, name: &str, line: impl Fn(&mut String, usize)) -> (PathBuf, usize) {
    let (mut text, mut count) = (String::new(), 0);
    while text.len() < SIZE {
        line(&mut text, count);
        text.push('\n');
        count += 1;
    }
    let path = folder.join(name);
    fs::write(&path, text).expect("the folder can be written");
    (path, count)
}

/// The three answers that are not written while the records are read. Returns what `report` prints.
fn all(kib: u64, folder: &Path, file: &Path) -> String {
    let (file, page) = (file.display(), folder.join("page.html"));
    limited(kib, &format!("report {file} -o {}", page.display()));
    assert!(fs::metadata(page).expect("the page was written").len() < 8 << 20);
    limited(kib * 2 - PROGRAM_KIB, &format!("compare {file} {file}"));
    limited(kib, &format!("report {file}")).stdout
}

#[test]
fn days_of_intervals_are_folded_as_they_are_read() {
    let folder = folder("memory-intervals");
    let (path, lines) = file(&folder, "run.jsonl", |text, number| {
        let (second, port) = (1 + number / 8, number % 8);
        let _ = write!(
            text,
            "{{\"schema\":1,\"run\":\"00000000000000c1\",\"time\":\"2026-01-01T00:00:00Z\",\"verb\":\"stat\",\
             \"test\":\"counters\",\"device\":{{\"bdf\":\"0000:00:{port:02x}.0\",\"vendor\":4660,\"device\":1,\
             \"subsystem_vendor\":0,\"subsystem_device\":0,\"class\":394240,\"name\":\"port\",\"bars\":[],\"path\":[],\
             \"msix_vectors\":0,\"msi_vectors\":0}},\"instance\":{{\"scope\":\"port\",\"pmu\":\"p{port}\"}},\
             \"interval\":{{\"start_ns\":{second}000000000,\"end_ns\":{}000000000}},\"metrics\":{{",
            second + 1
        );
        for name in ["rx_bytes", "tx_bytes"] {
            let value = 1_000_000 + (number * 7919) % 1000;
            let _ = write!(text, "\"{name}\":{{\"value\":{value}.0,\"unit\":\"bytes\"}},");
            let _ = write!(text, "\"{name}_per_s\":{{\"value\":{value}.0,\"unit\":\"bytes/s\"}},");
        }
        text.push_str("\"naks\":{\"value\":0.0,\"unit\":\"1\"}}}");
    });
    let shown = all(INTERVALS_KIB, &folder, &path);
    // The last second may have some of the ports only.
    assert!(shown.contains(" intervals") && shown.contains("8 ports"), "{shown}");
    let page = fs::read_to_string(folder.join("page.html")).expect("the page was written");
    let per = (lines / 8).div_ceil(4096).next_power_of_two();
    assert!(per > 1 && page.contains(&format!("A point is the mean of {per} intervals")), "{per}");
}

#[test]
fn large_histograms_of_many_cpus_and_vectors() {
    let folder = folder("memory-histograms");
    let buckets: Vec<String> = (1000..2000).map(|n| format!("[{},{}]", n * 1024, 1 + n % 90)).collect();
    let count: u64 = (1000..2000).map(|n| 1 + n % 90).sum();
    let latency = format!(
        "{{\"count\":{count},\"sum_ps\":\"70000000000\",\"min_ps\":1024000,\"max_ps\":2046976,\"buckets\":[{}]}}",
        buckets.join(",")
    );
    let (path, lines) = file(&folder, "run.jsonl", |text, number| {
        let _ = write!(
            text,
            "{{\"schema\":1,\"run\":\"00000000000000c2\",\"time\":\"2026-01-01T00:00:00Z\",\"verb\":\"latency irq\",\
             \"test\":\"irq-hardware\",\"target\":{{\"vector\":{}}},\"cpu\":{{\"cpu\":{}}},\
             \"histograms\":{{\"trigger_to_handler\":{latency}}},\
             \"metrics\":{{\"lost\":{{\"value\":0.0,\"unit\":\"1\"}}}}}}",
            number / 64,
            number % 64
        );
    });
    let shown = all(LATENCIES_KIB, &folder, &path);
    let samples = pciescope_report::text::thousands(lines as u64 * count);
    assert!(shown.contains(&samples), "{samples}: {shown}");
}

/// Each record has three small histograms and many counts; there are many cells, and in each of them several runs.
#[test]
fn small_histograms_of_many_cpus_vectors_and_runs() {
    /// CPUs and vectors of a run.
    const OF_RUN: (usize, usize) = (40, 64);
    let folder = folder("memory-irq");
    let histogram = |low_ps: u64, buckets: u64| {
        let list: Vec<String> = (0..buckets).map(|n| format!("[{},{}]", low_ps + n * 1024, 20 + n)).collect();
        let count: u64 = (0..buckets).map(|n| 20 + n).sum();
        format!(
            "{{\"count\":{count},\"sum_ps\":\"{}\",\"min_ps\":{low_ps},\"max_ps\":{},\"buckets\":[{}]}}",
            count * low_ps,
            low_ps + buckets * 1024,
            list.join(",")
        )
    };
    let device = "{\"bdf\":\"0000:3b:00.0\",\"vendor\":4660,\"device\":1,\"subsystem_vendor\":0,\"subsystem_device\":0,\
                  \"class\":394240,\"name\":\"a device\",\"bars\":[],\"path\":[],\"msix_vectors\":64,\"msi_vectors\":0}";
    let histograms = format!(
        "\"calibration\":{},\"entry_to_ack\":{},\"trigger_to_handler\":{}",
        histogram(16 << 10, 3),
        histogram(1 << 20, 60),
        histogram(1100 << 10, 60)
    );
    let counts = ["extra", "handled", "late", "lost", "merged", "missed", "samples_lost", "triggers", "wrong_cpu"]
        .map(|name| {
            let count = if ["handled", "triggers"].contains(&name) { 1000 } else { 0 };
            format!("\"{name}\":{{\"value\":{count}.0,\"unit\":\"1\"}}")
        })
        .join(",");
    let (path, lines) = file(&folder, "run.jsonl", |text, number| {
        let (run, second) = (number / (OF_RUN.0 * OF_RUN.1), number / 50);
        let _ = write!(
            text,
            "{{\"schema\":1,\"run\":\"{run:016x}\",\"time\":\"2026-01-01T00:{:02}:{:02}Z\",\"verb\":\"latency irq\",\
             \"test\":\"irq-hardware\",\"device\":{device},\"target\":{{\"vector\":{vector},\"irq\":{}}},\
             \"cpu\":{{\"cpu\":{}}},\"histograms\":{{{histograms}}},\"metrics\":{{{counts}}}}}",
            second / 60,
            second % 60,
            100 + number % OF_RUN.1,
            number / OF_RUN.1 % OF_RUN.0,
            vector = number % OF_RUN.1,
        );
    });
    assert!(lines > 3 * OF_RUN.0 * OF_RUN.1, "{lines} records are several runs");
    let shown = all(LATENCIES_KIB, &folder, &path);
    assert!(shown.contains("irq-hardware") || shown.contains("nterrupt"), "{shown}");
}
