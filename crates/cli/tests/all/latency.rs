//! What a measurement yields, on the fake backend: every option in the records, values where they are known.

use std::collections::BTreeSet;

use crate::common::{folder, parse, pciescope, run};
use pciescope_core::plan::Plan;
use pciescope_core::{Order, Record, Warning};

/// The records of a test, without the environment's.
fn measured(line: &str) -> Vec<Record> {
    let mut records = run(line).expect_code(0).records();
    let first = records.remove(0);
    assert_eq!(first.test, "environment");
    assert!(first.environment.is_some() && first.plan.is_some() && first.device.is_some());
    for record in &records {
        assert_eq!((record.schema, &record.run), (pciescope_core::record::SCHEMA, &first.run));
        assert!(record.environment.is_none() && record.plan.is_none());
        assert!(record.device.is_some() && record.method.is_some() && record.error.is_none(), "{record:?}");
    }
    records
}

fn plan(line: &str) -> Plan {
    run(line).expect_code(0).records()[0].plan.clone().unwrap()
}

#[test]
fn one_record_per_cpu_with_everything_a_reader_needs() {
    let records = measured("latency mmio --backend fake --count 2k --json");
    let cpus: Vec<u32> = records.iter().map(|record| record.cpu.as_ref().unwrap().cpu).collect();
    assert_eq!(cpus, [0, 1, 2, 3, 4, 5, 6, 7]);
    for record in &records {
        assert_eq!(record.test, "mmio-read");
        let target = record.target.as_ref().unwrap();
        assert_eq!((target.bar, target.offset, target.width), (Some(0), Some(0), Some(4)));
        assert_eq!(target.name.as_deref(), Some("ID"));
        assert_eq!(record.histograms["latency"].count(), 2000);
        assert!(record.histograms["calibration"].count() > 0);
        let method = record.method.as_ref().unwrap();
        assert_eq!((method.backend.as_str(), method.order.as_str(), method.batch), ("fake", "interleaved", 1));
        // 4 bytes over Gen3 x4: 11 ns of serialisation and 2 links of 4 ns.
        let wire = record.metrics["floor_wire_ns"].value;
        assert!((wire - 19.2).abs() < 0.3, "{wire}");
        assert_eq!(record.metrics["best_published_ns"].value, 560.0);
        assert_eq!(record.metrics["check_reads"].value, 2.0);
        assert_eq!(record.metrics["rounds"].value, 5.0);
        let parent = record.metrics["parent_config_rtt_ns"].value;
        assert!((395.0..520.0).contains(&parent), "{parent}");
    }
    let median = |cpu: usize| records[cpu].histograms["latency"].median_ns().unwrap();
    assert!(median(4) > median(0) + 80.0, "node 1 is 95 ns farther");
}

#[test]
fn the_backend_may_be_named_with_its_address() {
    assert_eq!(measured("latency mmio 03:00.0 --backend fake --count 10 --json").len(), 8);
}

#[test]
fn slow_samples_have_a_cause_and_the_answer_says_what_to_mend() {
    let records = measured("latency mmio --backend fake --cpus 1,2 --why=10 --above 2us --json");
    for record in &records {
        let why = record.why.as_ref().unwrap();
        let (count, above) = (why.slowest.len(), why.slowest.iter().filter(|sample| sample.value_ns > 2000.0).count());
        assert_eq!(count, above.max(10), "{why:?}");
        assert_eq!(Some(why.slowest[0].value_ns), record.histograms["latency"].max_ns());
        assert!(why.slowest.is_sorted_by(|one, next| one.value_ns >= next.value_ns));
        let by_cause = record.metrics.iter().filter(|(name, _)| name.starts_with("above_"));
        assert_eq!(by_cause.map(|(_, count)| count.value).sum::<f64>(), above as f64);
        assert!(why.events > 0 && why.events_lost == 0 && why.missing.is_empty(), "{why:?}");
        for sample in &why.slowest {
            let share: f64 = sample.parts.iter().map(|part| part.ns).sum();
            assert!((share - (sample.value_ns - why.typical_ns)).abs() < 0.1 * sample.value_ns, "{sample:?}");
        }
    }
    let text = run("latency irq --backend fake --cpus 1 --vectors 0 --why=20").expect_code(0).stdout;
    assert!(text.contains("why: of the ") && text.contains("mend first: ") && text.contains("Whose"), "{text}");
}

#[test]
fn a_sample_above_a_limit_runs_a_command_and_ends_the_run() {
    let folder = folder("why-alarm");
    let out = folder.join("out");
    let alarm = format!("above:2us=echo $PCIESCOPE_CAUSE $PCIESCOPE_NS >>{}", out.display());
    let words =
        ["latency", "mmio", "--backend", "fake", "--cpus", "1,2", "--why", "--stop-above", "2us", "-j", "--on", &alarm];
    let ended = pciescope(&words).expect_code(1);
    let failures: Vec<_> = ended.records().into_iter().filter_map(|record| record.error).collect();
    assert!(failures.iter().all(|failure| failure.is_too_slow()) && !failures.is_empty(), "{failures:?}");
    let said = std::fs::read_to_string(out).unwrap();
    assert!(said.split_whitespace().last().is_some_and(|ns| ns.parse::<u64>().unwrap() > 2000), "{said}");
    for bad in ["above:2us", "above:x=true", "below:1us=true"] {
        run(&format!("latency mmio --backend fake --why --on {bad}")).expect_code(2);
    }
}

#[test]
fn an_injected_delay_is_in_the_median() {
    let median = |line: &str| measured(line)[0].histograms["latency"].median_ns().unwrap();
    let plain = median("latency mmio --backend fake --cpus 0 --count 1k --json");
    let delayed = median("latency mmio --backend fake:delay=20us --cpus 0 --count 1k --json");
    let off = (delayed - plain - 20_000.0).abs();
    assert!(off < 20_000.0 * 0.02, "{plain} {delayed}");
}

#[test]
fn every_option_reaches_the_plan() {
    let Plan::Mmio(plan) = plan(
        "latency mmio --backend fake --json --bar 2 --offset 0x1000 --width 8 --count 2k --duration 10s --gap 1us \
         --accesses 3 --order interleaved:4 --cpus 1,3 --ones-ok",
    ) else {
        panic!("not a register plan")
    };
    assert_eq!((plan.bar, plan.offset, plan.width), (2, 0x1000, 8));
    assert_eq!((plan.count, plan.duration_ns, plan.gap_ns, plan.batch), (2000, 10_000_000_000, 1000, 3));
    assert_eq!(plan.order, Order::Interleaved { rounds: 4 });
    assert_eq!(plan.cpus.to_string(), "1,3");
    assert!(plan.ones_ok && !plan.raw);
}

#[test]
fn every_option_of_interrupts_and_paths_reaches_the_plan() {
    let Plan::Irq(irq) = plan(
        "latency irq --backend fake --json --vectors 1,3-4 --raised-by hardware --period 1ms --timeout 5ms \
         --trigger-cpu 2 --cpus node:1 --count 7 --duration 3s --order interleaved:4",
    ) else {
        panic!("not an interrupt plan")
    };
    assert_eq!(irq.vectors, [1, 3, 4]);
    assert_eq!((irq.interval_ns, irq.timeout_ns, irq.trigger_cpu, irq.count), (1_000_000, 5_000_000, Some(2), 7));
    assert_eq!(irq.cpus.to_string(), "4-7");
    assert_eq!((irq.duration_ns, irq.order), (3_000_000_000, Order::Interleaved { rounds: 4 }));
    let Plan::Path(path) =
        plan("latency path --backend fake --json --offset 0x140 --count 5 --gap 2us --order sequential --cpus local")
    else {
        panic!("not a path plan")
    };
    assert_eq!((path.offset, path.count, path.gap_ns, path.order), (0x140, 5, 2000, Order::Sequential));
    assert_eq!(path.cpus.to_string(), "0-3");
}

#[test]
fn a_label_is_in_every_record_and_above_the_table() {
    for verb in ["mmio", "path", "irq"] {
        let line = ["latency", verb, "--backend", "fake", "--count", "10", "--label", "after the BIOS update"];
        let records = pciescope(&[&line[..], &["--json"]].concat()).expect_code(0).records();
        assert!(records.iter().all(|record| record.label.as_deref() == Some("after the BIOS update")), "{verb}");
        let table = pciescope(&line).expect_code(0).stdout;
        assert!(table.lines().next().unwrap().contains("[after the BIOS update]"), "{verb}: {table}");
    }
    assert!(run("latency mmio --backend fake --count 10 --json").records().iter().all(|record| record.label.is_none()));
}

#[test]
fn orders_change_the_way_and_not_the_amount() {
    for order in ["sequential", "interleaved", "interleaved:7", "concurrent"] {
        let records = measured(&format!("latency mmio --backend fake --count 101 --json --order {order}"));
        assert_eq!(records.len(), 8, "{order}");
        for record in records {
            assert_eq!(record.histograms["latency"].count(), 101, "{order}");
            assert_eq!(record.method.unwrap().order, order.split(':').next().unwrap());
        }
    }
}

#[test]
fn a_duration_without_a_count_ends_by_time_and_gives_every_cpu_its_share() {
    let records = measured("latency mmio --backend fake --duration 8ms --json");
    let counts: Vec<u64> = records.iter().map(|record| record.histograms["latency"].count()).collect();
    // 1 ms each at half a microsecond a sample.
    assert_eq!(counts.len(), 8);
    assert!(counts.iter().all(|count| (1500..2200).contains(count)), "{counts:?}");
}

#[test]
fn write_tests_default_to_the_scratch_register_of_the_lab() {
    for (test, name) in [("write", "mmio-write"), ("write-read", "mmio-write-read")] {
        let records = measured(&format!("latency mmio --backend fake --count 100 --json --test {test}"));
        assert_eq!(records[0].test, name);
        assert_eq!(records[0].target.as_ref().unwrap().offset, Some(8));
    }
    // A posted write has no floor on the wire, and its register is not read beforehand.
    let write = &measured("latency mmio --backend fake --count 100 --json --test write")[0];
    assert!(!write.metrics.contains_key("floor_wire_ns"));
    assert_eq!(write.metrics["check_reads"].value, 0.0);
}

#[test]
fn side_effects_can_be_accepted() {
    let line = "latency mmio --backend fake --count 100 --json --offset 0x20 --accept-side-effects";
    let records = run(line).expect_code(0).records();
    // EVENTS counts its own reads, so two of them differ: that is said.
    assert!(records[1].warnings.iter().any(|warning| warning.code == "unstable-register"), "{:?}", records[1]);
    let line = "latency mmio --backend fake --count 10 --json --test write --bar 2 --offset 0x10 --value 7 --accept-side-effects";
    let Plan::Mmio(plan) = plan(line) else { panic!() };
    assert_eq!((plan.bar, plan.offset, plan.value), (2, 0x10, 7));
}

#[test]
fn a_coarse_clock_is_a_warning_that_names_the_batch() {
    let records = measured("latency mmio --backend fake:quantum=41667ps --count 1k --cpus 0 --json");
    let warning = coarse_clock(&records[0]).unwrap();
    assert!(warning.text.contains("41.7 ns") && warning.hint.contains("--accesses"), "{warning:?}");
    let line = "latency mmio --backend fake:quantum=41667ps --count 1k --cpus 0 --accesses 64 --json";
    assert!(coarse_clock(&measured(line)[0]).is_none());
}

#[test]
fn samples_shorter_than_the_step_of_the_clock_also_get_the_warning() {
    for (accesses, hint) in [(1, "--accesses 256;"), (2, "--accesses 512;")] {
        let test = format!("--test write --accesses {accesses}");
        let line = format!("latency mmio --backend fake:quantum=200ns --count 1k --cpus 0 --json {test}");
        let record = &measured(&line)[0];
        assert_eq!(record.histograms["latency"].median_ns(), Some(0.0), "{test}");
        let warning = coarse_clock(record).unwrap_or_else(|| panic!("{test}: no warning"));
        assert!(warning.text.contains("200.0 ns") && warning.hint.contains(hint), "{test}: {warning:?}");
    }
}

#[test]
fn the_warning_of_a_coarse_clock_names_only_options_that_the_test_has() {
    for test in ["irq", "path"] {
        let records = measured(&format!("latency {test} --backend fake:quantum=40ns --cpus 0 --count 1k --json"));
        let warnings: Vec<_> = records.iter().filter_map(coarse_clock).collect();
        assert!(!warnings.is_empty(), "{test}");
        assert!(warnings.iter().all(|warning| !warning.hint.contains("--accesses")), "{test}: {warnings:?}");
    }
}

fn coarse_clock(record: &Record) -> Option<&Warning> {
    record.warnings.iter().find(|warning| warning.code == "coarse-clock")
}

#[test]
fn an_emulated_device_is_labelled_in_every_record() {
    let line = "latency mmio --backend fake:emulated --count 10 --json";
    assert!(measured(line).iter().all(|record| record.method.as_ref().unwrap().emulated));
}

#[test]
fn interrupts_are_measured_twice_and_the_difference_is_given() {
    let records = measured("latency irq --backend fake --cpus 0,4 --vectors 0-2 --count 100 --json");
    let keys: BTreeSet<_> = records
        .iter()
        .map(|r| (r.test.as_str(), r.cpu.as_ref().unwrap().cpu, r.target.as_ref().unwrap().vector.unwrap()))
        .collect();
    assert_eq!((records.len(), keys.len()), (12, 12));
    for record in records.iter().filter(|record| record.test == "irq-hardware") {
        let own = record.histograms["trigger_to_handler"].median_ns().unwrap();
        let control = record.metrics["control_median_ns"].value;
        let difference = record.metrics["hardware_minus_control_ns"].value;
        assert!((own - control - difference).abs() < 1e-6);
        // 1100 ns and the CPU's distance against 420 ns.
        assert!((650.0..820.0).contains(&difference), "{difference}");
        assert!(record.metrics["mmio_read_median_ns"].value > 400.0);
        assert_eq!(record.metrics["triggers"].value, 100.0);
        assert_eq!(record.histograms["entry_to_ack"].count(), 100);
    }
}

#[test]
fn interrupts_of_rounds_add_up_and_show_the_spread_of_the_rounds() {
    let line = "latency irq --backend fake --cpus 0,4 --vectors 0-1 --count 103 --json";
    let records = measured(&format!("{line} --order interleaved:10"));
    let sequential = measured(line);
    let keys = |records: &[Record]| -> Vec<_> {
        let key = |r: &Record| (r.test.clone(), r.cpu.as_ref().unwrap().cpu, r.target.as_ref().unwrap().vector);
        records.iter().map(key).collect()
    };
    assert_eq!((records.len(), keys(&records)), (8, keys(&sequential)));
    for record in &records {
        let metric = |name: &str| record.metrics[name].value;
        assert_eq!((metric("triggers"), record.histograms["trigger_to_handler"].count()), (103.0, 103));
        assert_eq!((metric("rounds"), metric("design_batches")), (10.0, 10.0));
        let [low, middle, high] = ["round_median_min_ns", "round_median_ns", "round_median_max_ns"].map(metric);
        assert!(low <= middle && middle <= high, "{record:?}");
        assert_eq!(record.method.as_ref().unwrap().order, "interleaved");
        assert_eq!(record.metrics.contains_key("hardware_minus_control_ns"), record.test == "irq-hardware");
    }
    assert!(sequential.iter().all(|record| !record.metrics.contains_key("rounds")));
}

#[test]
fn a_time_for_interrupts_is_shared_by_cpus_vectors_and_both_sources() {
    // 2 CPUs, 2 vectors, 2 sources: 1 ms each, in which about 600 interrupts of the device find room.
    let records = measured("latency irq --backend fake --cpus 0,4 --vectors 0-1 --duration 8ms --json");
    assert_eq!(records.len(), 8);
    for record in &records {
        let triggers = record.metrics["triggers"].value;
        let expected = if record.test == "irq-hardware" { 500.0..700.0 } else { 900.0..1200.0 };
        assert!(expected.contains(&triggers) && record.error.is_none(), "{triggers}: {record:?}");
    }
    let few = measured("latency irq --backend fake --cpus 0 --vectors 0 --duration 8ms --count 5 --json");
    assert!(few.iter().all(|record| record.metrics["triggers"].value == 5.0), "{few:?}");
}

#[test]
fn interrupts_say_how_neighbours_depend_on_each_other() {
    for raw in ["", " --raw /dev/null"] {
        let line = format!("latency irq --backend fake --cpus 0,4 --vectors 0-1 --count 100 --json{raw}");
        let records = measured(&line);
        assert_eq!(records.len(), 8);
        for record in &records {
            let metric = |name: &str| record.metrics[name].value;
            assert!(metric("design_effect") > 0.0 && metric("design_batches") == 10.0, "{raw}: {record:?}");
        }
    }
    // Reads of one CPU after the other have no rounds: only raw samples say it.
    for (raw, batches) in [("", None), (" --raw /dev/null", Some(10.0))] {
        let records =
            measured(&format!("latency mmio --backend fake --cpus 0,4 --order sequential --count 100 --json{raw}"));
        assert_eq!(records.len(), 2);
        for record in &records {
            assert_eq!(record.metrics.get("design_batches").map(|metric| metric.value), batches, "{raw}: {record:?}");
        }
    }
    let few = measured("latency irq --backend fake --cpus 0 --vectors 0 --count 2 --json");
    assert!(few.iter().all(|record| !record.metrics.contains_key("design_effect")));
    // Samples that nobody asked for are not missed.
    let line = "latency irq --backend fake:raw-lost=5 --cpus 0 --vectors 0 --count 100 --json";
    assert!(measured(line).iter().all(|record| !record.metrics.contains_key("raw_samples_lost")));
}

#[test]
fn a_single_source_is_measured_alone() {
    for source in ["hardware", "retrigger", "inject", "loopback"] {
        let line = format!("latency irq --backend fake --cpus 0 --count 10 --json --raised-by {source}");
        let tests: BTreeSet<String> = measured(&line).into_iter().map(|record| record.test).collect();
        assert_eq!(tests, BTreeSet::from([format!("irq-{source}")]));
    }
}

#[test]
fn a_path_has_a_record_per_cpu_and_hop() {
    let records = measured("latency path --backend fake:hops=3 --cpus 0,1 --count 50 --json");
    let keys: Vec<_> =
        records.iter().map(|r| (r.cpu.as_ref().unwrap().cpu, r.target.as_ref().unwrap().hop.unwrap())).collect();
    assert_eq!(keys, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
    assert_eq!(records[2].target.as_ref().unwrap().hop_bdf.unwrap().to_string(), "0000:02:00.0");
    assert!(records.iter().all(|record| record.histograms["latency"].count() == 50));
}

#[test]
fn the_same_options_print_the_same_bytes() {
    for form in ["--json", "--csv", ""] {
        let line = format!("latency mmio --backend fake:seed=7 --count 500 {form}");
        let (one, two) = (run(&line).expect_code(0), run(&line).expect_code(0));
        assert_eq!(one.stdout, two.stdout);
        assert_eq!(one.stderr, "", "{form}");
    }
    assert_ne!(
        run("latency mmio --backend fake:seed=7 --count 500").stdout,
        run("latency mmio --backend fake:seed=8 --count 500").stdout
    );
}

#[test]
fn a_path_of_one_hop_is_one() {
    let text = run("latency path --count 100 --backend fake:hops=1").expect_code(0).stdout;
    assert!(text.starts_with("Configuration reads to 0000:00:01.0, 1 hop: "), "{text}");
}

#[test]
fn the_answer_comes_first_and_fits_the_terminal() {
    for (verb, answer) in [
        ("mmio --count 1k", "Register reads of 0000:03:00.0 BAR0+0x0: 16,000 samples from 16 CPUs\n"),
        // With so many there is a column more.
        ("mmio --count 100k", "Register reads of 0000:03:00.0 BAR0+0x0: 1,600,000 samples from 16 CPUs\n"),
        ("path --count 1k", "Configuration reads to 0000:03:00.0, 4 hops: 64,000 samples from 16 CPUs\n"),
        ("irq --count 1k", "Interrupts of 0000:03:00.0: 128,000 triggers, 128,000 handled\n"),
    ] {
        let text = run(&format!("latency {verb} --backend fake:cpus=16")).expect_code(0).stdout;
        assert!(text.starts_with(answer), "{text}");
        let blank = text.lines().position(str::is_empty).unwrap();
        assert!(blank <= 5, "{blank} lines before the table:\n{text}");
        for word in ["median ", "p99 ", "worst ", "nothing lost", "fastest CPU 0", "slowest CPU "] {
            assert!(text.lines().take(blank).any(|line| line.contains(word)), "{word:?} is missing in\n{text}");
        }
        assert!(text.lines().skip(1).all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.lines().count() <= 24, "{} lines", text.lines().count());
        assert!(!text.contains('\x1b'), "colours in a pipe");
    }
}

#[test]
fn the_tables_name_device_method_and_every_cpu() {
    let table = run("latency mmio --backend fake:cpus=3,nodes=1 --count 1k --all").expect_code(0).stdout;
    for text in ["0000:03:00.0", "1234:5c0e", "BAR0", "ID", "backend fake", "Calibration", "wire's floor", "3,000"] {
        assert!(table.contains(text), "{text:?} is missing in\n{table}");
    }
    assert!(table.lines().all(|line| line.trim_end() == line));
    let emulated = run("latency mmio --backend fake:emulated --count 1k --all").expect_code(0).stdout;
    assert!(emulated.to_lowercase().contains("emulated"), "{emulated}");
}

#[test]
fn csv_has_one_header_and_as_many_fields_in_every_line() {
    let text = run("latency mmio --backend fake --count 100 --csv").expect_code(0).stdout;
    let width = text.lines().next().unwrap().split(',').count();
    assert!(text.starts_with("run,time,verb,test,backend,"), "{text}");
    assert!(text.lines().count() > 16);
    // The fake's texts hold no comma.
    assert!(text.lines().all(|line| line.split(',').count() == width), "{text}");
    assert_eq!(text.matches("run,time").count(), 1);
}

#[test]
fn a_file_gets_the_records_whatever_is_printed() {
    let folder = folder("both");
    for form in ["", "--json", "--csv"] {
        let path = folder.join(format!("run{form}.jsonl"));
        let mut line = vec!["latency", "mmio", "--backend", "fake", "--count", "50", "-o", path.to_str().unwrap()];
        line.extend((!form.is_empty()).then_some(form));
        let ended = pciescope(&line).expect_code(0);
        let records = parse(&std::fs::read_to_string(&path).unwrap());
        assert_eq!(records.len(), 9, "{form}");
        if form == "--json" {
            assert_eq!(ended.stdout, std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn raw_samples_are_all_there_in_the_order_of_time() {
    let path = folder("raw").join("raw.csv");
    let line = ["latency", "mmio", "--backend", "fake", "--count", "300", "--raw", path.to_str().unwrap(), "--json"];
    let records = pciescope(&line).expect_code(0).records();
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("at_ns,value_ps,cpu,index,kind"));
    let samples: Vec<(u64, u64, u32)> = lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            assert_eq!(fields[3..], ["0", "latency"]);
            (fields[0].parse().unwrap(), fields[1].parse().unwrap(), fields[2].parse().unwrap())
        })
        .collect();
    assert_eq!(samples.len(), 2400);
    for record in &records[1..] {
        let cpu = record.cpu.as_ref().unwrap().cpu;
        let sum: u64 = samples.iter().filter(|sample| sample.2 == cpu).map(|sample| sample.1).sum();
        let mean_ns = sum as f64 / 300.0 / 1e3;
        assert!((record.histograms["latency"].mean_ns().unwrap() - mean_ns).abs() < 1e-6);
    }
}

#[test]
fn verbose_says_which_backend_and_warnings_beside_records() {
    let ended = run("latency mmio -v --backend fake:quantum=41667ps --count 100 --cpus 0 --json").expect_code(0);
    assert!(ended.stderr.contains("0000:03:00.0: by fake: it was asked for"), "{}", ended.stderr);
    assert!(ended.stderr.contains("warning: the clock's step"), "{}", ended.stderr);
    ended.records();
}

/// docs/method.md: a median needs 10 samples.
#[test]
fn fewer_than_ten_samples_have_no_median() {
    let file = folder("few").join("run.jsonl");
    let file = file.display();
    let shown = run(&format!("latency mmio --backend fake --count 5 --cpus 0-3 -o {file}")).expect_code(0).stdout;
    assert!(shown.contains("\n  median ") && !shown.contains("Median(us)"), "20 samples have one, 5 do not: {shown}");
    let told = run(&format!("report {file} --all")).expect_code(0).stdout;
    assert!(told.contains("Total samples: 20\n"), "{told}");
    for text in [&shown, &told] {
        assert!(!text.contains("fastest"), "{text}");
    }
    let path = run("latency path --backend fake --count 9 --cpus 0").expect_code(0).stdout;
    let irq = run("latency irq --backend fake --count 1 --cpus 0").expect_code(0).stdout;
    let one = run("latency mmio --backend fake --count 9 --cpus 0").expect_code(0).stdout;
    for text in [&one, &path, &irq] {
        assert!(!text.to_lowercase().contains("median") && text.contains("worst "), "{text}");
    }
    let ten = run("latency mmio --backend fake --count 10 --cpus 0").expect_code(0).stdout;
    assert!(ten.contains("\n  median ") && ten.contains("Median(us)"), "{ten}");
}

#[test]
fn all_tables_have_the_names_of_the_short_one() {
    let heads = |line: &str| -> BTreeSet<String> {
        let text = run(line).expect_code(0).stdout;
        let heads = text.split_whitespace().filter(|word| word.ends_with("(us)") || word.ends_with("(%)"));
        heads.map(str::to_owned).collect()
    };
    for test in ["mmio", "irq", "path"] {
        let line = format!("latency {test} --backend fake --count 100");
        let (short, all) = (heads(&line), heads(&format!("{line} --all")));
        assert!(short.is_subset(&all), "{test}: {short:?}, {all:?}");
        for other in ["Avg(us)", "P50(us)", "Max(us)", "vsBest%"] {
            assert!(!all.contains(other), "{test}: {other} in {all:?}");
        }
    }
}
