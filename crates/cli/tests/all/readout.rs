//! `pciescope readout` on files and on synthetic boards: the seed's columns and arithmetic, what is refused, and what is
//! found wrong.

use std::path::{Path, PathBuf};

use crate::common::{Ended, PROGRAM, folder, parse, pciescope, run};
use pciescope_core::Record;
use pciescope_core::plan::Plan;

/// A file of so many samples, each with its number in it.
fn file(folder: &Path, samples: usize) -> PathBuf {
    let bytes: Vec<u8> = (0..samples).flat_map(|number| (number as u16).to_le_bytes()).collect();
    let path = folder.join("data.raw");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A file that holds the pattern of function 100.
fn pattern(folder: &Path, bytes: usize, wrong: Option<usize>) -> PathBuf {
    let mut data: Vec<u8> = (0..bytes).map(|number| (number % 127) as u8).collect();
    if let Some(place) = wrong {
        data[place] ^= 0x40;
    }
    let path = folder.join(if wrong.is_some() { "wrong.raw" } else { "pattern.raw" });
    std::fs::write(&path, data).unwrap();
    path
}

/// The rows among records.
fn rows(records: &[Record]) -> Vec<&Record> {
    records.iter().filter(|record| record.test == "readout").collect()
}

fn summaries(records: &[Record]) -> Vec<&Record> {
    records.iter().filter(|record| record.test == "readout-summary").collect()
}

fn metric(record: &Record, name: &str) -> f64 {
    record.metrics.get(name).unwrap_or_else(|| panic!("no {name} in {record:?}")).value
}

fn function(record: &Record) -> &str {
    &record.stream.as_ref().unwrap().function
}

/// What sis8300drv_threads computes, and the record must too.
#[track_caller]
fn arithmetic_holds(record: &Record, repeats: u64) {
    let interval = record.interval.unwrap();
    let took = (interval.end_ns - interval.start_ns) as f64;
    let (size, duration) = (metric(record, "size"), metric(record, "duration"));
    assert_eq!(metric(record, "repeats"), repeats as f64);
    // The stamps of a row's first and last repeat lie a call of the clock from those of the repeats.
    assert!((duration * repeats as f64 - took).abs() < took * 0.01 + 50_000.0, "{duration} x {repeats}, {took}");
    let speed = metric(record, "speed");
    assert!((speed - size / duration * 1e9).abs() < speed * 1e-9, "{speed}, {size}, {duration}");
}

#[test]
fn a_row_has_the_seeds_columns_and_arithmetic() {
    let folder = folder("readout-columns");
    let path = file(&folder, 100_000);
    let path = path.to_str().unwrap();
    let ended = pciescope(&["readout", path, "-S", "99_990", "-N", "7", "-A", "99", "-j"]).expect_code(0);
    let records = ended.records();
    let rows = rows(&records);
    let names: Vec<&str> = rows.iter().map(|row| function(row)).collect();
    // The seed's function 99 in its order, and the two of the tool's first version behind it.
    assert_eq!(
        names,
        [
            "func_readout",
            "func_decsca",
            "func_dec",
            "func_sca",
            "func_no_decsca",
            "func_smn2double",
            "func_umn2double",
            "func_smn2float",
            "func_umn2float"
        ]
    );
    for (before, row) in rows.iter().zip(rows.iter().skip(1)) {
        assert!(row.interval.unwrap().start_ns >= before.interval.unwrap().end_ns, "a thread's rows follow each other");
    }
    for row in rows {
        arithmetic_holds(row, 7);
        // Rounded up to 16 samples; raw bytes for conversions too.
        assert_eq!((row.stream.as_ref().unwrap().samples, metric(row, "size")), (100_000, 200_000.0));
        assert_eq!(row.histograms["duration"].count(), 7);
    }
    let table = pciescope(&["readout", path, "-S", "1000", "-N", "2", "-A", "sca", "--all"]).expect_code(0).stdout;
    let header = table.lines().find(|line| line.contains("size [MB]")).unwrap();
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    assert_eq!(columns, ["func", "dev", "size [MB]", "start [ms]", "end [ms]", "dur [ms]", "speed [MB/s]"]);
    assert!(table.contains(" nsamples        1008\n"), "{table}");
}

#[test]
fn every_way_of_reading_a_file_finds_the_same_data() {
    let folder = folder("readout-ways");
    let path = pattern(&folder, 8 << 20, None);
    let path = path.to_str().unwrap();
    for way in ["read", "mmap", "1", "direct", "io_uring"] {
        for more in ["", " --block 64k", " --block 64k --check-all", " -A 5 --fuse", " -A 2 -f 7"] {
            let ended = run(&format!("readout {path} -S 4M -N 3 -B {way} --check pattern -j{more}"));
            let may_lack = matches!(way, "direct" | "io_uring");
            let lacks = ["Invalid argument", "Operation not supported"].iter().any(|why| ended.stderr.contains(why));
            if may_lack && lacks {
                // A file system without direct I/O, or a kernel without io_uring, says so.
                assert_eq!(ended.code, 2);
                continue;
            }
            let records = ended.expect_code(0).records();
            let first = *rows(&records).first().unwrap();
            assert!(metric(first, "verified") >= 8e6, "{way}{more}: {first:?}");
            assert_eq!(metric(first, "wrong"), 0.0);
            assert_eq!(metric(first, "repeats"), 3.0, "{way}{more}");
        }
    }
}

#[test]
fn what_was_not_compared_is_not_said_to_have_been() {
    let folder = folder("readout-unchecked");
    let path = file(&folder, 65_536);
    for (more, is_compared) in [("--check none", false), ("--check same", true)] {
        let records = run(&format!("readout {} -S 64k -N 2 --check-all -j {more}", path.display())).records();
        let row = rows(&records)[0];
        let said = row.method.as_ref().unwrap().notes.iter().any(|note| note.contains("compared"));
        assert_eq!((said, row.metrics.contains_key("verified")), (is_compared, is_compared), "{row:?}");
    }
}

#[test]
fn the_time_of_comparing_is_on_neither_side_of_the_cpu_figure() {
    let folder = folder("readout-cpu");
    let path = pattern(&folder, 64 << 20, None);
    let records = run(&format!("readout {} -S 32M --check pattern -j", path.display())).records();
    let (row, summary) = (rows(&records)[0], summaries(&records)[0]);
    let of_rows = (metric(row, "cpu_user") + metric(row, "cpu_system")) / row.interval.unwrap().end_ns as f64 * 100.0;
    // Comparing takes about as long as reading: with its time in it, the figure would be about half.
    assert!(metric(summary, "cpu_top") > 0.8 * of_rows, "{} of {of_rows} %", metric(summary, "cpu_top"));
}

#[test]
fn wrong_data_is_found_and_named() {
    let folder = folder("readout-wrong");
    let path = pattern(&folder, 1 << 20, Some(70_001));
    for more in ["", "--block 4096", "--block 4096 --check-all", "-B mmap"] {
        let ended = run(&format!("readout {} -S 500k --check pattern {more}", path.display())).expect_code(1);
        assert!(ended.stderr.contains("1 bytes are wrong, the first at byte 0x11171"), "{more}: {}", ended.stderr);
        assert!(ended.stdout.contains("wrong-data"), "{}", ended.stdout);
    }
    // Behind what is read it is nobody's business.
    run(&format!("readout {} -S 32k --check pattern", path.display())).expect_code(0);
    let board = run("readout fake:digitizer?wrong=2 -S 64k -N 2 --check lab -j").expect_code(1);
    assert_eq!(metric(rows(&board.records())[0], "wrong"), 1.0);
}

#[test]
fn a_slow_device_fails_only_where_that_was_asked_for() {
    let folder = folder("readout-rate");
    let path = file(&folder, 65_536);
    let slow = run(&format!("readout {} -S 64k --min-rate 1e9", path.display())).expect_code(1);
    assert!(slow.stderr.contains("less than 1000000000.0 MB/s"), "{}", slow.stderr);
    run(&format!("readout {} -S 64k --min-rate 0.001", path.display())).expect_code(0);
}

#[test]
fn boards_acquire_read_and_convert_every_sample_right() {
    for way in ["read", "ring"] {
        for wait in ["", " -i"] {
            let line = format!(
                "readout fake:digitizer?slot=4,serial=44 fake:digitizer?model=ku -S 30000 -N 2 -l 3 -A 5 \
                 -B {way}{wait} --channels 0-3,9 --check lab -j"
            );
            let records = run(&line).expect_code(0).records();
            let rows = rows(&records);
            let names: Vec<&str> = rows.iter().map(|row| function(row)).collect();
            // In the order of the devices, whoever came first.
            assert_eq!(names, ["func_readout", "func_umn2double", "func_readout", "func_umn2double"], "{line}");
            for row in rows.iter().filter(|row| function(row) == "func_readout") {
                assert_eq!((metric(row, "cycles"), metric(row, "repeats")), (3.0, 6.0));
                // Each cycle's last reading.
                assert_eq!((metric(row, "verified"), metric(row, "wrong")), (3.0 * 60_000.0, 0.0), "{line}");
                assert_eq!(row.histograms["acquire"].count(), 3);
                let stream = row.stream.as_ref().unwrap();
                assert_eq!(stream.wait.as_deref(), Some(if wait.is_empty() { "poll" } else { "interrupt" }));
                assert_eq!(stream.access, way);
            }
            let summary = summaries(&records)[0];
            let sum: f64 =
                rows.iter().filter(|row| function(row) == "func_readout").map(|row| metric(row, "speed")).sum();
            assert!((metric(summary, "speed") - sum).abs() < sum * 1e-6);
            assert!(metric(summary, "cpu_top") > 0.0);
        }
    }
}

#[test]
fn each_cycle_has_a_row_where_that_is_asked_for() {
    let records = run("readout fake:digitizer -S 16k -N 4 -l 5 -A 3,4 --each -j").expect_code(0).records();
    let rows = rows(&records);
    assert_eq!(rows.len(), 5 * 3);
    for (place, row) in rows.iter().enumerate() {
        assert_eq!(row.stream.as_ref().unwrap().cycle, Some(place as u64 / 3));
        arithmetic_holds(row, 4);
    }
}

#[test]
fn one_device_that_fails_does_not_stop_the_others() {
    let line = "readout fake:digitizer?slot=3,gone-after=2 fake:digitizer?slot=4 -S 32k -N 8 -A 4 -j";
    let ended = run(line).expect_code(2);
    let records = ended.records();
    let rows = rows(&records);
    let failed: Vec<_> = rows.iter().filter(|row| row.error.is_some()).collect();
    assert_eq!(failed.len(), 1, "{rows:?}");
    assert_eq!(failed[0].error.as_ref().unwrap().code, "removed");
    // What came before stands.
    assert!(metric(failed[0], "repeats") < 8.0);
    let good: Vec<_> = rows.iter().filter(|row| row.stream.as_ref().unwrap().path.contains("slot=4")).collect();
    assert_eq!(good.len(), 2);
    assert!(good.iter().all(|row| row.error.is_none() && metric(row, "repeats") == 8.0), "{good:?}");
    assert!(ended.stderr.contains("fake:digitizer?slot=3"), "{}", ended.stderr);
}

#[test]
fn a_thread_that_cannot_be_created_fails_its_device_alone() {
    // Stacks of 64 MiB in an address space that has room for some of them.
    let devices = (1..=31).map(|slot| format!("fake:digitizer?slot={slot},rate=0"));
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -v 1500000; exec timeout -s KILL 60 \"$@\"", "sh", PROGRAM, "readout"]);
    command.args(devices).args(["-S", "4k", "-N", "1", "-j"]).env("RUST_MIN_STACK", (64 << 20).to_string());
    let records = Ended::of(command.output().unwrap()).expect_code(2).records();
    let (failed, good): (Vec<_>, Vec<_>) = rows(&records).into_iter().partition(|row| row.error.is_some());
    assert!(!failed.is_empty() && !good.is_empty(), "{} failed, {} did not", failed.len(), good.len());
    let error = failed[0].error.as_ref().unwrap();
    assert!(error.code == "refused" && error.text.contains("thread"), "{error:?}");
    assert!(error.hint.as_ref().unwrap().contains("pids.max"), "{error:?}");
}

#[test]
fn each_fault_has_its_name_and_keeps_what_was_measured() {
    for (fault, code) in [("short=3", "stopped-short"), ("timeout=3", "timeout"), ("hang=2", "timeout")] {
        let line = format!("readout fake:digitizer?{fault} -S 32k -N 1 -l 4 -i --timeout 50ms -j");
        let records = run(&line).expect_code(2).records();
        let failed = rows(&records)[0];
        let error = failed.error.as_ref().unwrap_or_else(|| panic!("{fault}: {failed:?}"));
        assert_eq!(error.code, code, "{fault}: {error:?}");
        assert!(metric(failed, "repeats") >= 1.0, "{fault}: {failed:?}");
    }
    let records = run("readout fake:digitizer?lose=2 -S 32k -N 1 -l 4 -i -j").expect_code(1).records();
    assert_eq!(metric(rows(&records)[0], "lost_interrupts"), 2.0);
}

/// The program waits half a second at a time, so that Ctrl-C can end it; the acquisition takes 0.4 ms longer.
#[test]
fn polls_are_those_of_the_whole_acquisition() {
    let line = "readout --backend fake:memory=16,rate=0 -S 3910000 -l 2 --each --trigger now --channels 0 --divider 32 \
                --timeout 3s -j";
    let records = run(line).expect_code(0).records();
    for row in rows(&records) {
        let (polls, waited) = (metric(row, "polls"), metric(row, "acquire"));
        assert!(waited >= 5e8 && polls >= 50.0, "{polls} polls in {waited} ns");
    }
}

/// Exit code 2, the text and a hint, and nothing on the standard output.
#[track_caller]
fn refused(line: &str, text: &str) -> Ended {
    let ended = run(line).expect_code(2);
    assert!(ended.stderr.contains(text), "{line}: {}", ended.stderr);
    assert!(ended.stderr.contains("\nhint: "), "{line}: {}", ended.stderr);
    assert!(ended.stdout.is_empty(), "{line}: {}", ended.stdout);
    ended
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = folder("readout-refused");
    let file = file(&folder, 1000);
    let file = file.display();
    refused("readout", "DEV");
    refused("readout /nonexistent", "/nonexistent");
    refused(&format!("readout {file} -S 1001"), "it holds 2000 bytes");
    refused(&format!("readout {file} -S 0"), "--samples");
    refused(&format!("readout {file} -S 100 -r 0"), "--repeat");
    refused(&format!("readout {file} -S 100 --decimation-factor 0"), "--decimation-factor");
    refused(&format!("readout {file} -S 100 --decimation-offset 112 -A 2"), "--decimation-offset 112");
    // 112 samples are read.
    refused(
        &format!("readout {file} -S 100 -f 113 -A 2"),
        "--decimation-factor 113: of 112 samples none would be left",
    );
    refused(
        &format!("readout {file} -S 100 -f 12 --decimation-offset 101 -A 2"),
        "--decimation-factor 12: of 11 samples",
    );
    // The option of the seed's tool would name a file here.
    refused(&format!("readout {file} -S 100 -o 112 -A 2"), "--decimation-offset 112");
    assert!(!Path::new("112").exists(), "a refused command left its file");
    refused(&format!("readout {file} -S 100 -A 9"), "there is no such function");
    refused(&format!("readout {file} -S 100 -B 7"), "--access");
    refused(&format!("readout {file} -S 100 -B ring"), "ring");
    refused(&format!("readout {file} -S 100 --scale-factor x"), "--scale-factor");
    refused(&format!("readout {file} -S 100 -l 3"), "-l is for digitizers");
    refused(&format!("readout {file} -S 100 --fuse"), "--fuse");
    refused(&format!("readout {file} -S 100 --block 100"), "--block");
    refused(&format!("readout {file} -S 100 --cpus 8000"), "CPU 8000 is not online");
    refused(&format!("readout {file} -S 100 --node 500"), "node 500");
    refused(&format!("readout {file} -S 100 --sweep -A 3"), "--sweep");
    refused(&format!("readout {file} -S 100 --check crc"), "--check");
    refused("readout fake:digitizer?refuse -S 100", "fake:digitizer");
    refused("readout fake:digitizer -S 100 -l 1 --channels 10", "--channels");
    // An option that would do nothing is not accepted silently.
    for idle in ["-i", "--each", "--channels 0", "--divider 4", "--trigger now", "--timeout 2s"] {
        refused(&format!("readout fake:digitizer -S 100 {idle}"), "acquisitions");
    }
    for idle in ["-f 3", "--decimation-offset 3"] {
        refused(&format!("readout fake:digitizer --sweep {idle}"), "--sweep");
    }
}

#[test]
fn memory_is_only_overwritten_when_that_is_said_and_never_a_files() {
    let folder = folder("readout-write");
    let file = file(&folder, 1000);
    let before = std::fs::read(&file).unwrap();
    refused("readout fake:digitizer -S 1k -A 100", "--overwrite-memory");
    refused(&format!("readout {} -S 100 -A 100 --overwrite-memory", file.display()), "digitizers only");
    refused("readout fake:digitizer -S 1k -A 0,100 --overwrite-memory", "by itself");
    refused("readout fake:digitizer -S 1k -A 100 --overwrite-memory --check pattern", "nothing is compared");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    let records = run("readout fake:digitizer -S 1k -N 3 -A writepatt --overwrite-memory -j").expect_code(0).records();
    let rows = rows(&records);
    assert_eq!((rows.len(), function(rows[0])), (1, "func_writepatt"));
    arithmetic_holds(rows[0], 3);
}

#[test]
fn a_campaign_has_the_seeds_measurements_each_in_its_group() {
    let devices = "fake:digitizer?model=ku,slot=3 fake:digitizer?slot=4 fake:digitizer?model=l,slot=6";
    let line = format!("readout {devices} --sweep --sweep-sizes 1600,3200 --sweep-cycles 2 -N 2 -j");
    let records = run(&line).expect_code(0).records();
    let summaries = summaries(&records);
    let of = |kind: &str| {
        summaries.iter().filter(|record| record.stream.as_ref().unwrap().sweep.as_deref() == Some(kind)).count()
    };
    // One board, one KU, two L, all; two sizes; nine conversions; two works, two sizes, one and two boards, two waits.
    assert_eq!((of("boards"), of("size"), of("function"), of("cpu")), (4, 2, 9, 16));
    for (number, summary) in summaries.iter().enumerate() {
        let stream = summary.stream.as_ref().unwrap();
        assert_eq!(stream.group, number as u32);
        let of_group = |row: &&&Record| row.stream.as_ref().unwrap().group == number as u32;
        let all = rows(&records);
        let of_group: Vec<_> = all.iter().filter(of_group).collect();
        let Some(Plan::Readout(plan)) = &summary.plan else { panic!("no plan in {summary:?}") };
        assert_eq!(plan.devices.len(), stream.devices as usize);
        let rows_each = if plan.functions == [0] { 1 } else { 2 };
        assert_eq!(of_group.len(), plan.devices.len() * rows_each, "{plan:?}");
    }
    // A campaign that was stopped or printed is one of records that can be read again.
    let table = run(&line.replace(" -j", "")).expect_code(0).stdout;
    assert!(table.contains("smn2double"), "{table}");
}

#[test]
fn records_go_to_a_file_beside_the_table() {
    let folder = folder("readout-file");
    let (data, out) = (file(&folder, 4096), folder.join("run.jsonl"));
    let (data, out) = (data.to_str().unwrap(), out.to_str().unwrap());
    let ended = pciescope(&[
        "readout",
        data,
        "-S",
        "4k",
        "--decimation-offset",
        "16",
        "-O",
        "-1.5",
        "-A",
        "1",
        "-o",
        out,
        "--label",
        "x",
        "--all",
    ]);
    let table = ended.expect_code(0).stdout;
    assert!(table.contains(" dec_offset      16\n") && table.contains(" scale_offset    -1.500000\n"), "{table}");
    let records = parse(&std::fs::read_to_string(out).unwrap());
    assert_eq!(records.len(), 4);
    assert!(records.iter().all(|record| record.label.as_deref() == Some("x") && record.verb == "readout"));
    refused(&format!("readout {data} -S 4k --output {out}"), "exists");
}

#[test]
fn ctrl_c_leaves_what_was_measured() {
    use std::process::{Command, Stdio};
    // Whoever started the tests may have them ignore the signal.
    let child = Command::new("env")
        .args(["--default-signal=INT", PROGRAM])
        .args(["readout", "fake:digitizer", "fake:digitizer?slot=7", "-S", "64k", "-l", "1000000", "-j"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let ended = Ended::of(child.wait_with_output().unwrap());
    assert_eq!(ended.code, 130, "{}", ended.stderr);
    let records = ended.records();
    for row in rows(&records) {
        assert_eq!(row.error.as_ref().unwrap().code, "interrupted");
        assert!(metric(row, "cycles") >= 1.0);
    }
    assert_eq!(rows(&records).len(), 2);
}

#[test]
fn a_synthetic_board_is_a_backend_as_everywhere() {
    let records = run("readout --backend fake:model=ku,rate=0 -S 32k -r 2 -j").expect_code(0).records();
    assert!(rows(&records)[0].stream.as_ref().unwrap().model.as_deref().unwrap().contains("SIS8300-KU"));
    refused("readout", "required");
    refused("readout /dev/null --backend fake", "cannot be used with");
    refused("readout --backend kmod", "fake[:OPTION,...]");
}

#[test]
fn what_is_read_through_the_page_cache_says_so() {
    let file = folder("page-cache").join("data");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let ended = run(&format!("readout {} -B read -S 64k -r 2", file.display())).expect_code(0);
    assert!(ended.stdout.contains("[page-cache]") && ended.stdout.contains("-B direct"), "{}", ended.stdout);
    assert!(ended.stdout.starts_with("Readout of "), "{}", ended.stdout);
    assert!(
        ended.stdout.lines().skip(1).all(|line| line.chars().count() <= 80 || line.contains('/')),
        "{}",
        ended.stdout
    );
}

#[test]
fn a_file_is_read_past_the_page_cache_for_a_second_unless_the_user_says_how_much() {
    let file = folder("usual").join("data");
    std::fs::write(&file, vec![7; 4 << 20]).unwrap();
    let records = run(&format!("readout {} -j", file.display())).expect_code(0).records();
    let row = records.iter().find(|record| record.test == "readout").unwrap();
    let stream = row.stream.as_ref().unwrap();
    // Not every file system has O_DIRECT.
    assert!(["direct", "read"].contains(&stream.access.as_str()), "{stream:?}");
    assert!((stream.samples, stream.piece_bytes) == (2 << 20, Some(1 << 20)), "{stream:?}");
    assert!(row.seconds() >= 1.0, "{row:?}");
    let repeats = row.metrics["repeats"].value;
    assert_eq!(row.histograms["read"].count() as f64, repeats * 4.0);
    let once = run(&format!("readout {} -S 64k -j", file.display())).expect_code(0).records();
    assert_eq!(once.iter().find(|record| record.test == "readout").unwrap().metrics["repeats"].value, 1.0);
}

#[test]
fn by_the_name_of_the_seeds_tool_it_takes_its_options_and_prints_what_it_prints() {
    let link = folder("threads").join("sis8300drv_threads");
    std::os::unix::fs::symlink(PROGRAM, &link).unwrap();
    let tool = |line: &str| {
        let output = std::process::Command::new(&link).args(line.split_whitespace()).output().unwrap();
        Ended::of(output)
    };
    let ended = tool("fake:digitizer -S 0x640 -N 2 -o 1 -f 2 -A 2").expect_code(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines[..4], ["Parameters:", " function        2", " access          0", " nsamples        1600"]);
    assert_eq!(lines[7..9], [" dec_offset      1", " dec_factor      2"]);
    assert_eq!(lines[11..13], [" ndevices        1", ""]);
    let head = "           func,             dev,       size [MB],      start [ms],        end [ms],        dur [ms],    speed [MB/s]";
    assert_eq!(lines[13], head);
    assert!(lines[14].starts_with("   func_readout,") && lines[15].starts_with("       func_dec,"), "{}", ended.stdout);
    assert_eq!(lines.len(), 16, "{}", ended.stdout);
    // What reads the tool's output reads this.
    let log = link.with_file_name("log.txt");
    std::fs::write(&log, &ended.stdout).unwrap();
    let records = run(&format!("import {} -j", log.display())).expect_code(0).records();
    assert_eq!(rows(&records).len(), 2);
    let cycles = tool("fake:digitizer?rate=20 -S 1000000 -l 2 -i").expect_code(0).stdout;
    assert!(
        cycles.contains(" loop            2\n daq_intr        1\n") && cycles.contains("CPU utilization was : "),
        "{cycles}"
    );
    assert_eq!(cycles.matches("func_readout,").count(), 2, "each acquisition has its row: {cycles}");
    let ended = tool("fake:digitizer -S 0x640 -A 2 -f 1601").expect_code(2);
    assert!(ended.stderr.contains("of 1600 samples none would be left"), "{}", ended.stderr);
    assert!(tool("fake:digitizer -B 2").expect_code(2).stderr.contains("2 is not in 0..=1"));
    assert!(tool("-h").expect_code(0).stdout.contains("Usage: sis8300drv_threads device(s) [args..]"));
}
