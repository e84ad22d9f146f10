//! `pciescope convert`: what does not depend on how fast the machine is.

use std::process::{Command, Stdio};

use crate::common::{Ended, PROGRAM, folder, parse, run};
use pciescope_core::{Plan, Record, convert};

/// Small and short: the figures mean nothing, and none is looked at.
const QUICK: &str = "convert --samples 2000 --duration 0";

fn quick(options: &str) -> Ended {
    run(&format!("{QUICK} {options}"))
}

fn value(record: &Record, name: &str) -> f64 {
    record.metrics.get(name).unwrap_or_else(|| panic!("{name} is missing: {record:?}")).value
}

#[test]
fn every_kernel_is_exact_with_every_instruction_set_and_way_to_store() {
    let records = quick("--isa all --store cached,streaming -j").expect_code(0).records();
    let Some(Plan::Convert(plan)) = &records[0].plan else { panic!("{:?}", records[0]) };
    assert_eq!(records[0].test, "environment");
    assert!(plan.isas.iter().any(|isa| isa == "scalar"), "{plan:?}");
    let rows = &records[1..];
    assert_eq!(rows.len(), plan.kernels.len() * plan.isas.len() * plan.stores.len());
    for row in rows {
        let kernel = row.kernel.as_ref().unwrap();
        assert_eq!((row.test.as_str(), row.run.as_str()), (convert::TEST, records[0].run.as_str()));
        assert_eq!((value(row, "largest_error"), value(row, "wrong")), (0.0, 0.0), "{kernel:?}");
        let values = 2000 / kernel.decimation;
        assert_eq!(value(row, "values"), values as f64);
        assert_eq!(value(row, "checked"), (65_536 + values) as f64, "{kernel:?}");
    }
    let isas: Vec<&str> = rows.iter().map(|row| row.kernel.as_ref().unwrap().isa.as_str()).collect();
    assert!(plan.isas.iter().all(|isa| isas.contains(&isa.as_str())), "{isas:?}");
}

#[test]
fn figures_can_be_computed_again_from_the_record() {
    for row in &quick("--kernels u16-cast-f64,i16-scale-f32-d10 -j").expect_code(0).records()[1..] {
        let (read, written) = match row.kernel.as_ref().unwrap().decimation {
            1 => (4000.0, 16_000.0),
            _ => (4000.0, 800.0),
        };
        assert_eq!((value(row, "bytes_read"), value(row, "bytes_written")), (read, written));
        assert_eq!(value(row, "bytes_moved"), read + written);
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        assert!(near(value(row, "rate"), (read + written) / value(row, "duration") * 1e9));
        assert!(near(value(row, "samples_per_s"), 2000.0 / value(row, "duration") * 1e9));
        assert!(near(value(row, "of_ceiling"), value(row, "rate") / value(row, "ceiling") * 100.0));
        let timed = row.histograms["duration"].count() * value(row, "batch") as u64;
        assert_eq!(timed, value(row, "passes") as u64);
        assert_eq!(row.metrics["largest_error"].unit, "ulp");
        assert!(row.cpu.is_some(), "one thread is held on a CPU");
    }
}

/// 33 samples apart, each sample costs a line of the cache.
#[test]
fn a_wide_decimation_counts_lines() {
    let records = quick("--decimation-factor 100 --kernels u16-cast-f32-d100 -j").expect_code(0).records();
    assert_eq!((value(&records[1], "bytes_read"), value(&records[1], "bytes_written")), (20.0 * 64.0, 80.0));
}

#[test]
fn the_table_has_a_column_for_each_size_and_a_row_for_each_kernel() {
    let line = "convert --samples 2000,4000,2000 --duration 0 --kernels *-cast-f32 --threads 2";
    let ended = run(line).expect_code(0);
    assert_eq!(ended.stdout.matches(": GB/s").count(), 2, "{}", ended.stdout);
    assert_eq!(ended.stdout.lines().filter(|line| line.starts_with("u16-cast-f32 ")).count(), 1, "{}", ended.stdout);
    let ended =
        run("convert --all --samples 2000,4000,2000 --duration 0 --kernels *-cast-f32 --threads 2").expect_code(0);
    let blocks: Vec<&str> = ended.stdout.lines().filter(|line| line.ends_with(" samples")).collect();
    assert_eq!(blocks, ["2,000 samples", "4,000 samples"], "{}", ended.stdout);
    assert_eq!(ended.stdout.lines().filter(|line| line.starts_with("u16-cast-f32 ")).count(), 2, "{}", ended.stdout);
    assert!(!ended.stdout.contains("WRONG"), "{}", ended.stdout);
}

#[test]
fn the_file_of_records_makes_the_same_table() {
    let file = folder("convert").join("run.jsonl");
    let path = file.to_str().unwrap();
    let ended = quick(&format!("--kernels i16-* -o {path} --label small")).expect_code(0);
    assert_eq!(parse(&std::fs::read_to_string(&file).unwrap())[1].label.as_deref(), Some("small"));
    let report = run(&format!("report {path}")).expect_code(0).stdout;
    assert_eq!(report, ended.stdout);
    let again = quick(&format!("--kernels i16-* -o {path}")).expect_code(2);
    assert!(again.stderr.contains("exists"), "{}", again.stderr);
}

#[test]
fn the_list_names_what_can_be_chosen() {
    let list = run("convert --list --decimation-factor 7").expect_code(0).stdout;
    for word in ["u16-cast-f32 ", "i16-degrees-f64 ", "u16-scale-f32-d7 ", "Instruction sets: scalar", "streaming"] {
        assert!(list.contains(word), "{word} is missing:\n{list}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_a_hint() {
    for (options, text, hint) in [
        ("--kernels u8-cast-f32", "no kernel is called u8-cast-f32", "--list"),
        ("--kernels *-d3", "no kernel is called *-d3", "--list"),
        ("--samples 1000", "fewer than 1024 samples", "--help"),
        ("--isa mmx", "names no instruction set", "--help"),
        ("--store warm", "invalid value 'warm'", "--help"),
        ("--decimation-factor 1", "1 is not in 2..=1024", "--help"),
        ("--threads 2 --cpus 0", "--cpus holds one thread", "leave out one"),
        ("--cpus 8000 --kernels u16-cast-f32", "CPU 8000 is not online", "online"),
        ("--samples 18446744073709551615 --kernels u16-cast-f32", "cannot allocate 36893488147419103", "--samples"),
        ("--samples 100000000000G", "largest count", "--help"),
    ] {
        let ended = quick(options).expect_code(2);
        assert!(ended.stdout.is_empty(), "{options}: {}", ended.stdout);
        assert!(ended.stderr.contains(text) && ended.stderr.contains(hint), "{options}: {}", ended.stderr);
    }
}

#[test]
fn the_environment_chooses_the_instruction_set() {
    let with = |isa: &str| {
        let mut command = Command::new(PROGRAM);
        command.args("convert --samples 2000 --duration 0 --kernels u16-cast-f32 -j".split(' '));
        Ended::of(command.env("PCIESCOPE_ISA", isa).stdin(Stdio::null()).output().unwrap())
    };
    let records = with("scalar").expect_code(0).records();
    assert_eq!(records[1].kernel.as_ref().unwrap().isa, "scalar");
    let refused = with("none").expect_code(2);
    assert!(refused.stderr.contains("\"none\" names no instruction set"), "{}", refused.stderr);
}

#[test]
fn the_ceiling_has_as_many_threads_as_the_kernel() {
    // A thread of the kernel writes 128 KiB at least: 64 KiB are the work of one, 781 KiB that of six.
    for (samples, threads) in [(16_384, 1), (200_000, 6)] {
        let line = format!("convert --threads 8 --samples {samples} --kernels u16-cast-f32 --duration 0 -j");
        let records = run(&line).expect_code(0).records();
        let Some(Plan::Convert(plan)) = &records[0].plan else { panic!("{:?}", records[0]) };
        assert_eq!((plan.threads, records[1].kernel.as_ref().unwrap().threads), (8, threads), "{samples} samples");
        // Eight threads for the ceiling alone took hundreds of times as long as the kernel.
        let share = value(&records[1], "of_ceiling");
        assert!(samples > 16_384 || share < 1000.0, "{samples} samples: {share} %");
    }
    let line = "convert --threads 8 --samples 16384,200k --kernels u16-cast-f32 --duration 0";
    let shown = run(line).expect_code(0).stdout;
    assert!(shown.contains("1 kernel, 1 to 6 threads"), "{shown}");
}

#[test]
fn threads_that_cannot_be_created_end_the_run_by_an_error() {
    // Stacks of 64 MiB in an address space that has room for some of them.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 1000000; exec timeout -s KILL 60 \"$@\"", "sh", PROGRAM, "convert"]);
    command.args(["--threads", "31", "--samples", "1M", "--kernels", "u16-cast-f32", "--duration", "0"]);
    let ended = Ended::of(command.env("RUST_MIN_STACK", (64 << 20).to_string()).output().unwrap()).expect_code(2);
    assert!(ended.stderr.contains("cannot start ") && ended.stderr.contains(" of 30 threads"), "{}", ended.stderr);
    assert!(ended.stderr.contains("hint: ") && ended.stderr.contains("pids.max"), "{}", ended.stderr);
}
