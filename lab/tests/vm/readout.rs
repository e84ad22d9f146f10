//! `pciescope readout` on the crate of virtual digitizers: every byte is the board's, no byte is lost or counted twice, what a
//! person sees is what the records say, and the seed's campaign comes out in its shape.

use std::collections::BTreeMap;
use std::process::Command;

use crate::say;
use crate::support;
use crate::support::digitizers::Digitizers;
use crate::support::readout::{Books, count, nodes, number, readout, start};
use crate::support::{PATIENCE, program, settle};
use pciescope_core::readout::SUMMARY;
use pciescope_core::{Plan, Record, Stream};
use pciescope_lab::vm::Kernel;

const SLOTS: [u16; 6] = [3, 4, 6, 7, 8, 9];
/// Of the boards' trigger generator: 14 Hz.
const PERIOD_NS: f64 = 1e9 / 14.0;

fn node(slot: u16) -> String {
    format!("/dev/sis8300-{slot}")
}

pub fn what_is_read_is_what_the_boards_hold() {
    let rig = Digitizers::boot(Kernel::V6_12, 6, |builder| builder.program(program()));
    six_boards_at_once(&rig);
    for slot in [6, 3] {
        polling_and_interrupt_give_the_same(&rig, slot);
    }
    a_slow_consumer_takes_later_triggers(&rig);
    every_function_has_its_rows(&rig);
    say!("every function has its rows");
    the_campaign_has_the_seeds_tables(&rig);
    say!("the campaign has the seed's tables");
    the_seeds_own_command_lines_work(&rig);
    say!("the seed's own command lines work");
    a_pattern_is_written(&rig);
    what_goes_wrong_is_said_of_the_board_that_it_happened_to(&rig);
    rig.finish();
}

/// Bytes compared and right, bytes in the record and bytes that the device moved are the same, by read and by ring, and where
/// nothing is a multiple of anything.
fn six_boards_at_once(rig: &Digitizers) {
    for (access, samples) in [("read", 300_000u64), ("ring", 300_000), ("read", 40_001), ("ring", 40_001)] {
        let before = Books::of(rig);
        let all = nodes(rig);
        let run = readout(&rig.vm, 0, &format!("{all} -S {samples} -N 3 -B {access} --check lab --check-all"));
        let after = Books::of(rig);
        let bytes = samples.next_multiple_of(16) * 2;
        // The engine moves whole 64 bytes. What a ring handed over is read once more after the timed window.
        let moved = bytes.next_multiple_of(64) * if access == "ring" { 4 } else { 3 };
        assert_eq!(run.rows().len(), 6);
        for slot in SLOTS {
            let row = run.row(&node(slot), "func_readout");
            let [size, verified, wrong, repeats] =
                ["size", "verified", "wrong", "repeats"].map(|name| count(row, name));
            assert_eq!((size, repeats, verified, wrong), (bytes, 3, 3 * bytes, 0), "{access}, slot {slot}");
            assert_eq!(
                after.gained(&before, slot, "/dma_read/bytes"),
                moved,
                "{access}, slot {slot}, {samples} samples"
            );
            let stream = row.stream.as_ref().unwrap();
            assert_eq!((stream.access.as_str(), stream.devices, stream.samples), (access, 6, bytes / 2));
        }
        let summary = run.summary();
        let speeds: f64 = run.rows().iter().map(|row| number(row, "speed")).sum();
        assert!((number(summary, "speed") / speeds - 1.0).abs() < 1e-9);
        assert!(run.output.stdout.starts_with("Readout of 6 devices by "), "{}", run.output.stdout);
        run.is_without("above-ceiling");
    }
}

/// The tool of the seed is a link to the program. It takes the seed's lines, here with fewer cycles, and the boards' ledgers
/// have what it read.
fn the_seeds_own_command_lines_work(rig: &Digitizers) {
    let tool = "/tmp/sis8300drv_threads";
    rig.must(&format!("ln -s /usr/bin/pciescope {tool}"));
    let (samples, cycles) = (300_000, 3);
    // Options, a parameter that is printed for them, and rows of the readout.
    for (boards, options, parameter, rows) in [
        (&[6u16, 7, 4, 8, 9][..], "-N 3", " access          0", 5),
        (&[9], "-l 3", " loop            3", 3),
        (&[9], "-l 3 -i", " daq_intr        1", 3),
        (&[9], "-l 3 -A 5", " function        5", 3),
        (&[9], "-l 3 -A5", " function        5", 3),
        (&[9], "-N 3 -A 99", " function        99", 1),
        (&[9], "-N 3 -B 1", " access          1", 1),
    ] {
        let nodes: Vec<String> = boards.iter().copied().map(node).collect();
        let before = Books::of(rig);
        let ended = rig.run_within(&format!("{tool} {} -S {samples} {options}", nodes.join(" ")), PATIENCE);
        let after = Books::of(rig);
        assert!(ended.is_success(), "{options}: {ended:?}");
        assert!(ended.stdout.starts_with("Parameters:\n"), "{options}: {}", ended.stdout);
        assert!(ended.stdout.lines().any(|line| line == parameter), "{options}: {}", ended.stdout);
        let printed = ended.stdout.lines().filter(|line| line.trim_start().starts_with("func_readout,")).count();
        assert_eq!(printed, rows, "{options}: {}", ended.stdout);
        for slot in boards {
            let moved = after.gained(&before, *slot, "/dma_read/bytes");
            assert_eq!(moved, cycles * samples * 2, "{options}, slot {slot}");
        }
    }
}

/// Triggered acquisitions at 14 Hz: as many as were asked for, every sample right, in the time that the device's clock says;
/// polling costs reads of the status register and CPU time, the interrupt does not.
fn polling_and_interrupt_give_the_same(rig: &Digitizers, slot: u16) {
    let cycles = 10;
    let measure = |more: &str| {
        let before = Books::of(rig);
        let run = readout(&rig.vm, 0, &format!("{} -S 30000 -l {cycles} --check lab --check-all {more}", node(slot)));
        let after = Books::of(rig);
        let gained = |path: &str| after.gained(&before, slot, path);
        let row = run.row(&node(slot), "func_readout").clone();
        assert_eq!((count(&row, "cycles"), count(&row, "repeats")), (cycles, cycles));
        assert_eq!((count(&row, "verified"), count(&row, "wrong")), (cycles * 60_000, 0), "slot {slot} {more}");
        assert_eq!((gained("/acquisitions/begun"), gained("/acquisitions/ended")), (cycles, cycles));
        assert_eq!(gained("/triggers/taken"), cycles);
        assert_eq!(gained("/dma_read/bytes"), cycles * 60_032, "60000 in whole 64 bytes");
        // From the first acquisition to the last, by the device's clock: whole periods.
        let last = after.at(slot, "/acquisitions/last").as_array().unwrap();
        let of_run = &last[last.len() - cycles as usize..];
        assert!(of_run.iter().all(|one| one["trigger"] == "mlvds"), "{of_run:?}");
        let begun = |place: usize| of_run[place]["begun_ns"].as_u64().unwrap();
        let device_ns = (begun(cycles as usize - 1) - begun(0)) as f64;
        let periods = device_ns / PERIOD_NS;
        assert!((periods - periods.round()).abs() < 0.001 && periods > 8.9, "{periods} periods");
        let interval = row.interval.as_ref().unwrap();
        let seen_ns = (interval.end_ns - interval.start_ns) as f64;
        assert!((seen_ns - device_ns).abs() < PERIOD_NS, "{seen_ns} ns, by the device {device_ns}");
        let acquire_ns = number(&row, "acquire");
        assert!(acquire_ns < device_ns / 9.0 * 1.5, "armed for {acquire_ns} ns each");
        (row, gained("/status_reads"))
    };
    settle("polling costs CPU time", || {
        let ((polling, polled), (interrupt, looked)) = (measure(""), measure("-i"));
        let waits = [&polling, &interrupt].map(|row| row.stream.as_ref().unwrap().wait.clone().unwrap());
        assert_eq!(waits, ["poll", "interrupt"]);
        let polls = count(&polling, "polls");
        assert!(polls <= polled && polls + 10 * cycles >= polled, "{polls} polls, the device saw {polled} reads");
        assert!(looked <= 10 * cycles, "{looked} reads of the status register with interrupts");
        let cpu = [&polling, &interrupt].map(|row| number(row, "cpu_user") + number(row, "cpu_system"));
        say!("slot {slot}: status reads {polled} and {looked}, CPU {:.1} and {:.1} ms", cpu[0] / 1e6, cpu[1] / 1e6);
        if polled < 5 * looked || cpu[0] < cpu[1] * 1.2 {
            return Err(format!("{polled} and {looked} reads, {} and {} ns of CPU time", cpu[0], cpu[1]));
        }
        Ok(())
    });
}

/// Where reading and converting take longer than the trigger's period, triggers go by: the device says how many, and the times
/// of the record show it; every acquisition that was taken is whole and right.
fn a_slow_consumer_takes_later_triggers(rig: &Digitizers) {
    let (slot, cycles) = (7, 4);
    rig.board(slot).tell("trigger rate 50");
    let before = Books::of(rig);
    let run = readout(&rig.vm, 0, &format!("{} -S 1M -l {cycles} -i -B ring -A 6 --check lab --check-all", node(slot)));
    let after = Books::of(rig);
    rig.board(slot).tell("trigger rate 14");
    let gained = |path: &str| after.gained(&before, slot, path);
    let row = run.row(&node(slot), "func_readout");
    assert_eq!(count(row, "verified"), cycles * count(row, "size"));
    assert_eq!((gained("/triggers/taken"), gained("/acquisitions/ended")), (cycles, cycles));
    let last = after.at(slot, "/acquisitions/last").as_array().unwrap();
    let of_run = &last[last.len() - cycles as usize..];
    let begun = |place: usize| of_run[place]["begun_ns"].as_u64().unwrap();
    let between = ((begun(cycles as usize - 1) - begun(0)) as f64 / 20e6).round() as u64;
    let missed = between - (cycles - 1);
    assert!(missed > 0, "it was not slow");
    assert!(gained("/triggers/missed") >= missed, "the device missed {}", gained("/triggers/missed"));
    let interval = row.interval.as_ref().unwrap();
    let seen = (interval.end_ns - interval.start_ns) as f64 / 20e6;
    assert!(seen > (cycles + missed) as f64 - 2.0, "{seen} periods by the record, {missed} missed by the device");
}

/// Each function has the rows that the seed's tool has, in its order, and their figures add up.
fn every_function_has_its_rows(rig: &Digitizers) {
    let conversions: [(&str, &[&str]); 10] = [
        ("0", &[]),
        ("1", &["func_decsca"]),
        ("2", &["func_dec"]),
        ("3", &["func_sca"]),
        ("4", &["func_no_decsca"]),
        ("5", &["func_umn2double"]),
        ("6", &["func_smn2double"]),
        ("7", &["func_umn2float"]),
        ("8", &["func_smn2float"]),
        (
            "99",
            &[
                "func_decsca",
                "func_dec",
                "func_sca",
                "func_no_decsca",
                "func_smn2double",
                "func_umn2double",
                "func_smn2float",
                "func_umn2float",
            ],
        ),
    ];
    for (function, names) in conversions {
        let args = format!(
            "{} {} --all -S 100000 -N 4 -A {function} -f 3 --decimation-offset 5 -F 0.5 -O 1",
            node(4),
            node(9)
        );
        let run = readout(&rig.vm, 0, &args);
        run.adds_up(4.0);
        let mut wanted = Vec::new();
        for slot in [4, 9] {
            wanted.push(("func_readout".to_owned(), node(slot)));
            wanted.extend(names.iter().map(|name| ((*name).to_owned(), node(slot))));
        }
        let printed: Vec<_> = run.printed().into_iter().map(|row| (row.function, row.device)).collect();
        assert_eq!(printed, wanted, "-A {function}");
        for name in names {
            let row = run.row(&node(9), name);
            let words = row.stream.as_ref().unwrap().conversion.clone().unwrap();
            let is_double = name.ends_with("double");
            assert!(words.contains(if is_double { "f64" } else { "f32" }), "{name}: {words}");
            let parts: &[&str] = match *name {
                "func_decsca" => &["f=3", "o=5", "F=0.5", "O=1"],
                "func_dec" => &["f=3", "o=5"],
                "func_sca" => &["F=0.5", "O=1"],
                "func_no_decsca" => &["cast"],
                name if name.starts_with("func_u") => &["Q1.15"],
                _ => &["Q3.13"],
            };
            assert!(parts.iter().all(|part| words.contains(part)), "{name}: {words}");
            // Its size is that of the raw input, whatever part of it was touched.
            assert_eq!((count(row, "size"), count(row, "repeats")), (200_000, 4));
            assert!(number(row, "convert") > 0.0 && !row.metrics.contains_key("of_ceiling"));
        }
    }
}

/// Function 100 writes when it was allowed to, and what it wrote is what is read.
fn a_pattern_is_written(rig: &Digitizers) {
    let slot = 8;
    let before = Books::of(rig);
    let refused = readout(&rig.vm, 2, &format!("{} -S 100000 -A 100", node(slot)));
    assert!(refused.output.stderr.contains("--overwrite-memory"), "{}", refused.output.stderr);
    assert_eq!(Books::of(rig).gained(&before, slot, "/dma_write/bytes"), 0);
    let run = readout(&rig.vm, 0, &format!("{} --all -S 100000 -N 3 -A 100 --overwrite-memory", node(slot)));
    run.adds_up(3.0);
    assert_eq!(run.rows().len(), 1);
    assert_eq!(count(run.row(&node(slot), "func_writepatt"), "size"), 200_000);
    assert_eq!(Books::of(rig).gained(&before, slot, "/dma_write/bytes"), 600_000, "N writes");
    for access in ["read", "ring"] {
        let args = format!("{} -S 100000 -B {access} --check pattern --check-all -N 2", node(slot));
        let run = readout(&rig.vm, 0, &args);
        assert_eq!(count(run.row(&node(slot), "func_readout"), "verified"), 400_000);
    }
    // Behind what was written the pattern ends, at the byte that is named.
    let wrong = readout(&rig.vm, 1, &format!("{} -S 100016 --check pattern", node(slot)));
    let row = wrong.row(&node(slot), "func_readout");
    let [right, bad] = ["verified", "wrong"].map(|name| count(row, name));
    assert!(right >= 200_000 && bad > 0 && right + bad == 200_032, "{right} right, {bad} wrong");
    let first = wrong.output.stderr.split("at byte 0x").nth(1).and_then(|text| text.split(' ').next()).unwrap();
    let first = u64::from_str_radix(first, 16).unwrap();
    assert!((200_000..200_004).contains(&first), "the first wrong byte is {first}");
}

/// The campaign in small: the seed's four tables have their rows, and the page its figures.
fn the_campaign_has_the_seeds_tables(rig: &Digitizers) {
    let file = "/tmp/campaign.jsonl";
    let args = "--sweep --sweep-sizes 10000,28000,100000 -N 2 --sweep-cycles 3";
    let command = format!("pciescope readout {} {args} --output {file}", nodes(rig));
    let before = Books::of(rig);
    let output = rig.vm.run_within(&command, PATIENCE);
    let after = Books::of(rig);
    assert_eq!(output.status, 0, "{}\n{}", output.stdout, output.stderr);
    let text = rig.vm.pull_file(file).unwrap();
    let records = support::records::parse(std::str::from_utf8(&text).unwrap());
    let streams: Vec<&Stream> = records.iter().filter_map(|record| record.stream.as_ref()).collect();
    let summaries: Vec<&Record> = records.iter().filter(|record| record.test == SUMMARY).collect();
    let of = |part: &str| summaries.iter().filter(|record| sweep(record) == part).copied().collect::<Vec<_>>();

    // 7.1: one of each kind, all L and L2, all.
    let devices =
        |records: &[&Record]| records.iter().map(|record| record.stream.as_ref().unwrap().devices).collect::<Vec<_>>();
    assert_eq!(devices(&of("boards")), [1, 1, 5, 6]);
    let alone: Vec<&str> = streams
        .iter()
        .filter(|stream| stream.sweep.as_deref() == Some("boards") && stream.devices == 1 && !stream.path.is_empty())
        .map(|stream| stream.model.as_deref().unwrap().split(' ').next().unwrap())
        .collect();
    assert!(alone.contains(&"SIS8300-KU") && alone.iter().any(|model| model.starts_with("SIS8300-L")), "{alone:?}");
    // 7.2: three sizes of five boards. 7.3: eight conversions and decimation by 10.
    let sizes: Vec<u64> = of("size").iter().map(|record| record.stream.as_ref().unwrap().samples).collect();
    assert_eq!((sizes, devices(&of("size"))), (vec![10_000, 28_000, 100_000], vec![5; 3]));
    let mut functions: BTreeMap<(String, u64), usize> = BTreeMap::new();
    for record in records.iter().filter(|record| sweep(record) == "function" && record.test != SUMMARY) {
        let stream = record.stream.as_ref().unwrap();
        let factor = if stream.conversion.as_deref().unwrap_or_default().contains("f=10") { 10 } else { 1 };
        *functions.entry((stream.function.clone(), factor)).or_default() += 1;
    }
    assert_eq!(functions.len(), 10, "{functions:?}");
    for ((function, _), rows) in &functions {
        assert_eq!(*rows, if function == "func_readout" { 45 } else { 5 }, "{function}");
    }
    // 7.4: two sizes, one and five boards, two functions, two ways to wait.
    assert_eq!(of("cpu").len(), 16);
    let mut polls: BTreeMap<&str, f64> = BTreeMap::new();
    for record in records.iter().filter(|record| sweep(record) == "cpu") {
        let stream = record.stream.as_ref().unwrap();
        let wait = stream.wait.as_deref().unwrap();
        if record.test == SUMMARY {
            let Some(Plan::Readout(plan)) = &record.plan else { panic!("a summary has its plan") };
            assert_eq!((plan.cycles, plan.repeats), (3, 1));
            assert!(number(record, "cpu_top") > 0.0);
        } else if stream.function == "func_readout" {
            assert_eq!(count(record, "cycles"), 3);
            *polls.entry(wait).or_default() += record.metrics.get("polls").map_or(0.0, |polls| polls.value);
        }
    }
    assert!(polls["poll"] > 2.0 * polls["interrupt"].max(1.0), "{polls:?}");
    let acquired: u64 = SLOTS.iter().map(|slot| after.gained(&before, *slot, "/acquisitions/ended")).sum();
    assert_eq!(acquired, 4 * 2 * (1 + 5) * 3, "acquisitions of one and of five boards");
    assert!(records.iter().all(|record| record.error.is_none()));
    let above: Vec<_> =
        records.iter().flat_map(|record| &record.warnings).filter(|w| w.code == "above-ceiling").collect();
    assert!(above.is_empty(), "{above:?}");

    // The page, on this machine.
    let folder = tempfile::tempdir().unwrap();
    let [jsonl, html] = ["campaign.jsonl", "campaign.html"].map(|name| folder.path().join(name));
    std::fs::write(&jsonl, text).unwrap();
    let report = Command::new(program()).arg("report").arg(&jsonl).arg("-o").arg(&html).output().unwrap();
    assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
    let page = std::fs::read_to_string(&html).unwrap();
    for heading in ["Rate against size", "Rate against boards"] {
        assert!(page.contains(heading), "the page has no {heading}");
    }
    assert!(page.matches("<svg").count() >= 4, "{} pictures", page.matches("<svg").count());
}

fn sweep(record: &Record) -> &str {
    record.stream.as_ref().and_then(|stream| stream.sweep.as_deref()).unwrap_or_default()
}

/// What goes wrong with one board is that board's: wrong data, no trigger, an engine that hangs or stops short, a board that is
/// pulled; and Ctrl-C leaves what was measured, and no board armed.
fn what_goes_wrong_is_said_of_the_board_that_it_happened_to(rig: &Digitizers) {
    let run = readout(&rig.vm, 1, &format!("{} --check lab:2 -S 30000", node(6)));
    let row = run.row(&node(6), "func_readout");
    assert!(count(row, "wrong") > 59_000 && count(row, "wrong") + count(row, "verified") == 60_000);
    assert!(run.output.stderr.contains("the first at byte 0x0 "), "{}", run.output.stderr);
    assert!(row.warnings.iter().any(|warning| warning.code == "wrong-data"), "{:?}", row.warnings);

    // No trigger: a time-out, and the board is not left armed.
    rig.board(6).tell("trigger rate off");
    let run = readout(&rig.vm, 2, &format!("{} {} -S 30000 -l 2 --timeout 1s", node(6), node(7)));
    assert_eq!((run.error(&node(6)), run.error(&node(7))), (Some("timeout"), None));
    assert_eq!(count(run.row(&node(7), "func_readout"), "cycles"), 2);
    assert_eq!(Books::of(rig).at(6, "/phase"), "idle");
    rig.board(6).tell("trigger rate 14");

    for (fault, code) in [("hang dma", "timeout"), ("short dma 1 after 8192", "stopped-short")] {
        for access in ["read", "ring"] {
            rig.board(7).tell(fault);
            let run = readout(&rig.vm, 2, &format!("{} {} -S 300000 -N 4 -B {access}", node(6), node(7)));
            assert_eq!((run.error(&node(6)), run.error(&node(7))), (None, Some(code)), "{fault}, {access}");
            assert_eq!(count(run.row(&node(6), "func_readout"), "repeats"), 4);
            // The next one works.
            let run = readout(&rig.vm, 0, &format!("{} -S 300000 -l 1 -B {access} --check lab", node(7)));
            assert_eq!(count(run.row(&node(7), "func_readout"), "verified"), 600_000);
        }
    }
    ctrl_c_keeps_what_was_measured(rig);

    // Pulled in the middle: its row ends with an error, the others go on.
    let before = Books::of(rig);
    let run = start(&rig.vm, &format!("{} -S 300000 -N 60", nodes(rig)));
    rig.wait_for("slot 8 is read", || {
        assert!(run.is_alive(), "it ended too early");
        (Books::of(rig).gained(&before, 8, "/dma_read/bytes") > 1_200_000).then_some(())
    });
    rig.board(8).tell("remove");
    let run = run.end(2);
    for slot in [6, 7, 9] {
        let row = run.row(&node(slot), "func_readout");
        assert!(row.error.is_none() && count(row, "repeats") == 60, "slot {slot}: {:?}", row.error);
    }
    assert_eq!(run.error(&node(8)), Some("removed"));
    let repeats = count(run.row(&node(8), "func_readout"), "repeats");
    assert!((1..60).contains(&repeats), "{repeats}");
    let run = readout(&rig.vm, 2, &format!("{} -S 30000", node(8)));
    assert!(run.output.stderr.contains(&node(8)), "{}", run.output.stderr);
}

fn ctrl_c_keeps_what_was_measured(rig: &Digitizers) {
    for (more, path) in [
        ("-l 5000 -i", "/acquisitions/ended"),
        ("-l 5000", "/acquisitions/ended"),
        ("-N 100000 -B ring", "/dma_read/ended"),
    ] {
        let before = Books::of(rig);
        let run = start(&rig.vm, &format!("{} {} -S 30000 {more} --check none", node(6), node(9)));
        rig.wait_for("six were read", || {
            assert!(run.is_alive(), "{more}: it ended by itself");
            let all_have = [6, 9].iter().all(|slot| Books::of(rig).gained(&before, *slot, path) >= 6);
            all_have.then_some(())
        });
        run.interrupt();
        let run = run.end(130);
        let after = Books::of(rig);
        for slot in [6, 9] {
            let row = run.row(&node(slot), "func_readout");
            let (repeats, moved) = (count(row, "repeats"), after.gained(&before, slot, "/dma_read/bytes"));
            assert!(repeats >= 4 && repeats * 60_000 <= moved, "{more}: {repeats} repeats, {moved} bytes");
            assert_eq!(run.error(&node(slot)), Some("interrupted"), "{more}");
            assert_eq!(after.at(slot, "/phase"), "idle", "{more}: slot {slot} was left armed");
            if more.starts_with("-l") {
                let ended = after.gained(&before, slot, "/acquisitions/ended");
                assert!(repeats == ended || repeats + 1 == ended, "{repeats} read, {ended} ended");
            }
        }
    }
    readout(&rig.vm, 0, &format!("{} {} -S 30000 -l 2 -i --check lab --check-all", node(6), node(9)));
}
