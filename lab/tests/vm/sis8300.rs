//! The driver of the digitizers on the virtual boards: every sample in every mode, the link's rate, both ways to wait, the ESS
//! driver's interface. What the boards stored is computed anew in the guest from the formula of docs/spec/sis8300.md; what they
//! did is in their ledgers.

use std::time::Instant;

use crate::say;
use crate::support::digitizers::{Board, Digitizers};
use crate::support::drive::{drive, start, start_after};
use crate::support::{is_arm64, settle};
use pciescope_lab::device::sis8300::Model;
use pciescope_lab::vm::Kernel;
use pciescope_lab::vm::digitizers::Crate;
use serde_json::Value;

/// The root port that all boards are behind.
const PORT: &str = "0000:00:04.0";

/// Boots with L2, L and KU at slots 6, 4 and 3.
fn boot(kernel: Kernel, boards: &mut Crate) -> Digitizers {
    boards.boards = vec![(3, Model::Ku), (4, Model::L), (6, Model::L2)];
    Digitizers::boot_crate(kernel, boards, |builder| builder.module("sis8300"))
}

fn ends_without_a_violation(rig: Digitizers) {
    for board in &rig.boards {
        assert_eq!(board.count("/violations_total"), 0, "{}: {}", board.name, board.ledger()["violations"]);
        assert_eq!(board.count("/unmapped_bytes"), 0, "{}", board.name);
    }
    rig.finish();
}

/// One of the programs that try the whole interface by themselves.
fn passes(rig: &Digitizers, board: &Board, program: &str, arguments: &str) {
    let output = rig.run(&format!("/lib/pciescope/{program} {} {arguments}", board.node()));
    let failed: Vec<&str> = output.stdout.lines().filter(|line| line.starts_with("not ok")).collect();
    assert!(output.is_success() && failed.is_empty(), "{program} of {}: {failed:#?}{}", board.name, output.stderr);
    let planned = output.stdout.lines().find_map(|line| line.strip_prefix("1..")).expect("a plan");
    let ran = output.stdout.lines().filter(|line| line.starts_with("ok ")).count();
    assert_eq!(planned.parse(), Ok(ran), "{}", output.stdout);
}

/// Reads of odd places and lengths, of what no acquisition has reached.
const ODD_READS: [&str; 9] = [
    "pread 0x10000000 16",
    "pread 0x10000010 16",
    "pread 0x10000030 32",
    "pread 0x100003f0 4112",
    "pread 0x10fffff0 65552",
    "pread 0x11000010 524304",
    "pread 0x12000020 4194320",
    "pread 0x13000070 12582896",
    "pread 0x7ffc0000 262144",
];

pub fn every_sample_is_the_boards_in_every_mode() {
    let mut boards = Crate::seed(0);
    // 4 MiB then take 9.6 ms, on arm64 twice as long: an interrupt's way through a translated guest is little beside it.
    let generation = if is_arm64() { 1 } else { 2 };
    boards.ku_link.generation = generation;
    let rig = boot(Kernel::V6_12, &mut boards);
    let begin = clock(&rig);
    nodes_are_named_by_slots(&rig);
    for slot in [6, 3, 4] {
        let board = rig.board(slot);
        passes(&rig, board, "sis8300_check", "1 0");
        odd_reads(&rig, board);
    }
    for slot in [6, 3] {
        let board = rig.board(slot);
        masks_and_pretrigger(&rig, board);
        rings(&rig, board);
        waits_agree(&rig, board);
        the_ess_way(&rig, board);
    }
    signals_end_a_call_and_nothing_else(&rig, rig.board(6));
    several_openers(&rig, rig.board(6));
    a_reader_does_not_wait_for_the_end_of_a_write(&rig, rig.board(6));
    for (slot, generation) in [(6, 1), (3, generation)] {
        settle("the link's rate", || {
            the_links_rate(&rig, &boards, rig.board(slot), generation, clock_rate(&rig, begin))
        });
    }
    passes(&rig, rig.board(4), "sis8300_abuse", "5 4000");
    ends_without_a_violation(rig);
}

pub fn boards_that_share_a_pin_are_told_apart_on_the_oldest_kernel() {
    let mut boards = Crate::seed(0);
    boards.has_msi = false;
    // Four slots apart: the same pin of the switch.
    boards.boards = vec![(3, Model::Ku), (4, Model::L), (5, Model::L2), (6, Model::L2), (7, Model::L2)];
    let rig = Digitizers::boot_crate(Kernel::V6_1, &boards, |builder| builder.module("sis8300"));
    let lines = rig.must("grep 1796 /proc/interrupts; for d in /sys/bus/pci/drivers/sis8300/0*; do cat $d/irq; done");
    let mut irqs: Vec<&str> = lines.lines().collect();
    irqs.sort_unstable();
    irqs.dedup();
    assert!(irqs.len() < rig.boards.len(), "no line is shared: {irqs:?}");
    short_set(&rig, false);
    ends_without_a_violation(rig);
}

pub fn on_5_10_it_reads_the_same() {
    reads_the_same(Kernel::V5_10);
}

pub fn the_newest_kernel_reads_the_same() {
    reads_the_same(Kernel::Newest);
}

fn reads_the_same(kernel: Kernel) {
    let rig = boot(kernel, &mut Crate::seed(0));
    short_set(&rig, true);
    a_memory_cgroup_may_map_a_ring(&rig);
    passes(&rig, rig.board(6), "sis8300_abuse", "7 2000");
    ends_without_a_violation(rig);
}

/// Before 5.11 pages that are charged to a cgroup cannot be mapped (kmod/common/compat.h).
fn a_memory_cgroup_may_map_a_ring(rig: &Digitizers) {
    rig.must(
        "mkdir /tmp/cgroup && mount -t cgroup2 none /tmp/cgroup && echo +memory >/tmp/cgroup/cgroup.subtree_control && \
         mkdir /tmp/cgroup/ours",
    );
    let lines = ["ring-setup 3 262144", "map", "unmap", "ring-setup 0 0"];
    start_after(rig, rig.board(6), "echo $$ >/tmp/cgroup/ours/cgroup.procs || exit", &lines).end().all_well();
}

/// All boards at once.
fn short_set(rig: &Digitizers, has_messages: bool) {
    passes(rig, rig.board(6), "sis8300_check", "1 0");
    let lines: Vec<&str> = ["setup samples=49152 trigger=2 lines=1", "ring-setup 3 262144", "map"]
        .into_iter()
        .chain(["ring-start triggered=1 bytes=983040 passes=5 timeout=5000", "drain", "unmap", "ring-setup 0 0"])
        .chain(["setup samples=49152", "arm", "wait 5000", "pread 0 983040"])
        .chain(ODD_READS)
        .chain(["stats"])
        .collect();
    let running: Vec<_> = rig.boards.iter().map(|board| start(rig, board, &lines)).collect();
    for (driving, board) in running.into_iter().zip(&rig.boards) {
        let answers = driving.end();
        answers.all_right();
        assert_eq!(answers.number("open", "flags") & 1, u64::from(has_messages), "{}", board.name);
        assert_eq!(answers.number("drain", "buffers"), 5 * 4, "{}", board.name);
        assert_eq!(answers.errno("drain"), "ENODATA");
        // Late ones pass for lost on a busy machine.
        let (late, dmas) = (answers.number("stats", "lost"), answers.number("stats", "dmas"));
        assert!(late * 10 <= dmas, "{}: {late} interrupts of {dmas} did not come", board.name);
        assert_eq!(answers.number("stats", "acquisitions"), 6);
    }
}

fn nodes_are_named_by_slots(rig: &Digitizers) {
    let nodes: Vec<String> = rig.boards.iter().map(Board::node).collect();
    assert_eq!(rig.must("ls /dev/sis8300-* | sort").lines().collect::<Vec<_>>(), nodes);
    for board in &rig.boards {
        let answers = drive(rig, board, &[]);
        assert_eq!(answers.number("open", "serial"), u64::from(board.slot));
        assert_eq!(answers.number("open", "module_id"), board.count("/module_id"));
        assert_eq!(answers.number("open", "block"), if board.slot == 3 { 32 } else { 16 });
    }
}

/// Each with the copy beside the next DMA, and one after the other.
fn odd_reads(rig: &Digitizers, board: &Board) {
    for serial in [0, 1] {
        rig.must(&format!("echo {serial} >/sys/module/sis8300/parameters/serial"));
        let before = board.count("/dma_read/bytes");
        let more = ["seek 0x20000010 0", "read 48", "read 1048592", "read 16", "stats"];
        let answers = drive(rig, board, &[&ODD_READS[..], &more].concat());
        answers.all_well();
        let bytes: u64 = answers
            .0
            .iter()
            .filter(|answer| !answer["bad"].is_null())
            .map(|answer| answer["ret"].as_u64().unwrap())
            .sum();
        assert_eq!(answers.number("stats", "user_bytes"), bytes);
        assert_eq!(board.count("/dma_read/bytes") - before, answers.number("stats", "dma_bytes"));
        // No more than the blocks at both ends are moved beyond what was asked for.
        let moved = answers.number("stats", "dma_bytes");
        assert!(moved >= bytes && moved - bytes < 128 * 12, "{moved} for {bytes}");
        let chunk = answers.number("open", "chunk");
        assert!(chunk >= 1 << 20, "memory for chunks was short: {chunk}");
        let dmas = answers.number("stats", "dmas");
        if serial == 1 {
            // Long ones in chunks, others in one.
            assert!(dmas <= 12 + 16 * (1 << 20) / chunk + 4, "{dmas} DMAs");
        } else {
            assert!(dmas >= 12 + 8 + 4, "{dmas} DMAs: nothing goes side by side");
        }
    }
    rig.must("echo 0 >/sys/module/sis8300/parameters/serial");
}

fn masks_and_pretrigger(rig: &Digitizers, board: &Board) {
    let answers = drive(
        rig,
        board,
        &[
            "setup channels=0x155 samples=4096 pretrigger=2046 trigger=2 lines=1",
            "arm",
            "wait 5000",
            "pread 0 40960",
            "pread 8192 16",
            "pread 8176 32",
            "setup channels=0x200 samples=33 divider=2",
            "arm",
            "wait 5000",
            "pread 0 96",
            "setup channels=0x3ff samples=100000 trigger=3 lines=1 divider=32",
            "arm",
            "wait 5000",
            "pread 0 2000000",
        ],
    );
    answers.all_well();
    let ledger = board.ledger();
    let last = ledger["acquisitions"]["last"].as_array().unwrap();
    let [first, second, third] = &last[last.len() - 3..] else { panic!("three acquisitions") };
    let block = if board.slot == 3 { 32 } else { 16 };
    for (acquired, channels, samples, pretrigger) in [
        (first, 0x155, 4096u64, 2046),
        (second, 0x200, 33u64.next_multiple_of(block), 0),
        (third, 0x3ff, 100_000u64.next_multiple_of(block), 0),
    ] {
        assert_eq!(acquired["channels"], channels, "{acquired}");
        assert_eq!(acquired["samples"], samples, "{acquired}");
        assert_eq!(acquired["stored"], samples, "{acquired}");
        assert_eq!(acquired["pretrigger"], pretrigger, "{acquired}");
        assert_eq!(acquired["complete"], true, "{acquired}");
    }
    // 250 MHz by 32: 100,000 samples take 12.8 ms of the board's time.
    let took = third["end_ns"].as_u64().unwrap() - third["begun_ns"].as_u64().unwrap();
    let expected = 100_000u64.next_multiple_of(block) * 128;
    assert!(took.abs_diff(expected) < expected / 1000, "{took} ns, not {expected}");
}

fn rings(rig: &Digitizers, board: &Board) {
    let before = board.ledger();
    let answers = drive(
        rig,
        board,
        &[
            "setup samples=49152",
            "arm",
            "wait 5000",
            "ring-setup 4 65536",
            "map",
            "ring-start bytes=983040 passes=7",
            "drain",
            "touch",
            "unmap",
            // The last buffer of a pass is short; the consumer is slow.
            "ring-setup 2 131008",
            "map",
            "ring-start at=64 bytes=982976 passes=2",
            "drain us=3000",
            "unmap",
            // Stopped with buffers that nobody has asked for: they can still be had.
            "ring-setup 8 65536",
            "map",
            "ring-start bytes=983040",
            "drain most=20",
            "sleep 20",
            "ring-stop",
            "drain",
            "unmap",
            "stats reset=1",
            "setup samples=49152 trigger=2 lines=1",
            "ring-setup 3 524288",
            "map",
            "ring-start triggered=1 bytes=983040 passes=6 timeout=5000",
            "drain",
            "pread 0 983040",
        ],
    );
    answers.all_right();
    let errors: Vec<&Value> =
        answers.0.iter().filter(|answer| answer["errno"] != "" && answer["errno"] != "ENODATA").collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let drains: Vec<(u64, u64)> = answers
        .0
        .iter()
        .filter(|answer| !answer["buffers"].is_null())
        .map(|answer| (answer["buffers"].as_u64().unwrap(), answer["bytes"].as_u64().unwrap()))
        .collect();
    assert_eq!(drains[0], (7 * 15, 7 * 983_040));
    assert_eq!(drains[1], (2 * 8, 2 * 982_976));
    assert_eq!(drains[2].0, 20);
    assert!(drains[3].0 > 0 && drains[3].0 <= 8, "{drains:?}");
    assert_eq!(drains[4], (6 * 2, 6 * 983_040));
    // All that was moved was handed over.
    let moved = board.count("/dma_read/bytes") - number(&before, "/dma_read/bytes");
    let handed: u64 = drains.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(moved, handed + 983_040);
    assert!(answers.number("stats reset=1", "stalls") > 0, "two buffers and a slow consumer must stall");
    // Each pass has a trigger of its own, which come at 14 Hz.
    let ledger = board.ledger();
    let last = ledger["acquisitions"]["last"].as_array().unwrap();
    let begun: Vec<u64> = last[last.len() - 6..].iter().map(|acquired| number(acquired, "/begun_ns")).collect();
    assert!(begun.windows(2).all(|pair| pair[1] - pair[0] > 71_000_000), "{begun:?}");
    let triggered = answers.all("drain").pop().unwrap();
    assert_eq!(triggered["passes"], 6, "{triggered}");
}

fn number(ledger: &Value, path: &str) -> u64 {
    ledger.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {path}"))
}

/// The same data by interrupt and by polling, and what they cost the board.
fn waits_agree(rig: &Digitizers, board: &Board) {
    // Slowly: where the host is busy, half a second may pass between a trigger and the next line.
    board.tell("trigger rate 1");
    for (wait, pause_us) in [("wait 5000", None), ("wait 5000 poll=1 us=500", Some(500)), ("wait 5000 poll=1", Some(0))]
    {
        // The second is armed as the trigger has just come: it waits for a whole period.
        let lines =
            ["setup samples=49152 trigger=2 lines=1", "arm", "wait 4000", "reg-read 0", "arm", wait, "pread 0 983040"];
        let before = board.ledger();
        let answers = drive(rig, board, &lines);
        answers.all_well();
        let after = board.ledger();
        let looks = number(&after, "/status_reads") - number(&before, "/status_reads");
        let (polls, waited) = (answers.number("wait 5000", "polls"), answers.number("wait 5000", "ns"));
        say!("{}: {wait}: {looks} reads of 0x10, {polls} polls in {:.1} ms", board.name, waited as f64 / 1e6);
        assert!(waited > 60_000_000, "{waited} ns until the next trigger at 1 Hz");
        // Beside those of polling: until the board is at rest before each arming, at the interrupts, and one each 20 ms.
        let others = 16 + (waited + answers.number("wait 4000", "ns")) / 20_000_000;
        match pause_us {
            None => {
                assert_eq!(polls, 0);
                assert!(looks <= others, "{looks} reads of the status while waiting by interrupt");
            }
            Some(us) => {
                assert!(polls > 10 && (us == 0 || polls <= 2 + waited / (us * 1000)), "{polls} polls in {waited} ns");
                assert!(looks >= polls && looks - polls <= others, "{looks} reads of the status, {polls} polls");
            }
        }
    }
    board.tell("trigger rate 14");
}

fn the_ess_way(rig: &Digitizers, board: &Board) {
    let mut lines = vec!["setup samples=1024".to_owned(), "reg-read 0".to_owned(), "reg-write 0x10 4".to_owned()];
    // As the ESS library sets up ten channels of 1024 samples.
    lines.extend((0..10).map(|channel| format!("reg-write {:#x} {}", 0x120 + channel, channel * 64)));
    lines.extend(
        [
            "reg-write 0x11 0",
            "reg-write 0x12a 63",
            "reg-write 0x12b 0",
            "reg-write 0x10 1",
            "sleep 200",
            // The end came before the wait.
            "ess-wait 3000 0",
            "pread 0 20480",
            // And it is told once.
            "ess-wait 60 0",
            // External trigger at backplane line 0.
            "reg-write 0x12 0x100",
            "reg-write 0x11 0x800",
            "reg-write 0x10 2",
            "ess-wait 5000 0",
            "pread 0 20480",
            "reg-read 0x120",
            "seek 0 2",
            "seek 8 0",
            "seek 64 0",
            "read 64",
            "seek 0 1",
            "read 8",
            "reg-read 0x10",
            "ess-wait 8000 1",
        ]
        .map(str::to_owned),
    );
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let driving = start(rig, board, &lines);
    driving.wait_for(rig, "reg-read 0x10");
    board.tell("interrupt user");
    let answers = driving.end();
    answers.all_right();
    assert_eq!(answers.number("reg-read 0", "data"), board.count("/module_id"));
    assert_eq!(answers.number("ess-wait 3000", "status"), 0, "the end between arm and wait was lost");
    assert!(answers.number("ess-wait 3000", "ns") < 100_000_000, "it waited for what had ended");
    assert_eq!(answers.number("ess-wait 60", "status"), 2);
    assert_eq!(answers.number("ess-wait 5000", "status"), 0);
    assert_eq!(answers.number("ess-wait 8000", "status"), 0, "the user interrupt");
    // The address after the last block.
    assert_eq!(answers.number("reg-read 0x120", "data"), 64);
    assert_eq!(answers.number("seek 0 2", "ret"), 2 << 30);
    assert_eq!(answers.errno("seek 8"), "EINVAL");
    assert_eq!(answers.number("seek 0 1", "ret"), 128, "read() moves the position");
    assert_eq!(answers.errno("read 8"), "EINVAL");

    // Who waits for ever is released by another.
    let waiting = start(rig, board, &["stats", "ess-wait 0 0"]);
    waiting.wait_for(rig, "stats");
    std::thread::sleep(std::time::Duration::from_millis(300));
    drive(rig, board, &["ess-release 0 0"]).all_well();
    assert_eq!(waiting.end().number("ess-wait", "status"), 1);
}

/// 131,072 DMAs of 64 bytes take many seconds; a read in between takes its turn.
fn a_reader_does_not_wait_for_the_end_of_a_write(rig: &Digitizers, board: &Board) {
    let written = board.count("/dma_write/bytes");
    let writing = start(rig, board, &["pwrite 0x70000000 8388608", "pread 0x70000000 8388608"]);
    rig.wait_for("the write has begun", || (board.count("/dma_write/bytes") > written).then_some(()));
    drive(rig, board, &["pread 0x10000000 65536"]).all_well();
    let so_far = writing.so_far();
    assert!(so_far.all("pwrite").is_empty(), "the read came after the write: {so_far:#?}");
    writing.end().all_well();
    assert_eq!(board.count("/dma_write/bytes"), written + 8_388_608);
}

fn signals_end_a_call_and_nothing_else(rig: &Digitizers, board: &Board) {
    let answers = drive(
        rig,
        board,
        &[
            // Front line 3: no trigger comes.
            "setup samples=4096 trigger=3 lines=8",
            "arm",
            "alarm 150",
            "wait 5000",
            "disarm",
            "alarm 150",
            "pread 0x30000000 0x8000000",
            "pread 0x30000000 0x100000",
        ],
    );
    assert_eq!(answers.errno("wait"), "EINTR");
    let read = answers.one("pread 0x30000000 0x8000000");
    let got = read["ret"].as_u64().unwrap();
    assert!(got > 0 && got < 0x800_0000 && got % 16 == 0 && read["bad"] == 0, "{read}");
    assert_eq!(answers.number("pread 0x30000000 0x100000", "ret"), 0x10_0000);
    // The engine was not left running.
    assert_eq!(number(&board.ledger(), "/dma_read/started"), number(&board.ledger(), "/dma_read/ended"));
}

fn several_openers(rig: &Digitizers, board: &Board) {
    let answers = drive(
        rig,
        board,
        &[
            "setup samples=4096 trigger=3 lines=8",
            "arm",
            "open 1",
            "setup samples=64",
            "disarm",
            "pread 0x30000000 4096",
            "use 0",
            "close 0",
            "use 1",
            "setup samples=2048",
            "arm",
            "wait 5000",
        ],
    );
    assert_eq!(answers.errno("setup samples=64"), "EBUSY");
    assert_eq!(answers.errno("disarm"), "EBUSY");
    assert_eq!(answers.errno("setup samples=2048"), "", "closing lets the board go");
    assert_eq!(answers.errno("wait"), "");
    // Each gets its own bytes, however many read at once.
    let readers: Vec<_> = [0x3000_0000u64, 0x3100_0010, 0x3200_0020, 0x3300_0030]
        .map(|at| start(rig, board, &[&format!("read-on {at} 3000000 6"), "stats"]))
        .into();
    for reader in readers {
        let answers = reader.end();
        answers.all_well();
        assert_eq!(answers.number("read-on", "bytes"), 18_000_000);
        assert_eq!(answers.number("stats", "user_bytes"), 18_000_000);
    }
}

/// The guest's clock, in seconds, at a moment of this machine's.
fn clock(rig: &Digitizers) -> (f64, Instant) {
    let begin = Instant::now();
    let uptime = rig.must("cat /proc/uptime");
    (uptime.split(' ').next().unwrap().parse().unwrap(), begin + begin.elapsed() / 2)
}

/// How fast the guest's clock runs by this machine's since a moment: a guest that boots on a busy machine may take a wrong
/// frequency for its time stamp counter.
fn clock_rate(rig: &Digitizers, begin: (f64, Instant)) -> f64 {
    let end = clock(rig);
    let rate = (end.0 - begin.0) / (end.1 - begin.1).as_secs_f64();
    // What the readings themselves cost is of this size.
    if (rate - 1.0).abs() < 0.01 { 1.0 } else { rate }
}

/// The driver's times of DMAs, from the start bit to the interrupt, with nothing subtracted, are what the link takes. What other
/// programs of this machine do to the guest only makes them longer: the quickest quarter is compared.
fn the_links_rate(rig: &Digitizers, boards: &Crate, board: &Board, generation: u8, clock: f64) -> Result<(), String> {
    const BYTES: u64 = 128 << 20;
    const BUFFER: u64 = 4 << 20;
    let port = boards.traffic.port(PORT.parse().unwrap());
    let (payload, _) = port.link();
    // Transfers per second, and bits of TLPs among them, less SKP ordered sets; a header of 20 bytes for each payload.
    let (transfers, coding) = if generation < 3 { (2.5e9 * f64::from(generation), 0.8) } else { (8e9, 128.0 / 130.0) };
    let wire = transfers * coding * (1.0 - 4.0 / 1538.0) / 8.0;
    let expected = wire * f64::from(payload) / f64::from(payload + 20);

    let reads = || rig.boards.iter().map(|board| board.count("/reads_total")).sum::<u64>();
    let (before, ledger, reads_before) = (port.totals(), board.ledger(), reads());
    let ring = [
        &format!("ring-setup 3 {BUFFER}"),
        "map",
        "stats reset=1",
        &format!("ring-start at=0x40100000 bytes={BYTES} passes=1"),
        "drain look=0",
        "stats reset=0",
    ];
    let answers = drive(rig, board, &ring);
    answers.all_right();
    let (after, ledger_after) = (port.totals().since(&before), board.ledger());
    // What the root port counted is what was read, to the byte, and the values of registers.
    let moved = number(&ledger_after, "/dma_read/bytes") - number(&ledger, "/dma_read/bytes");
    assert_eq!((moved, answers.number("drain", "bytes")), (BYTES, BYTES));
    assert_eq!(after.rx_payload, BYTES + 4 * (reads() - reads_before));
    assert_eq!(answers.number("stats reset=0", "dma_bytes"), BYTES);
    assert_eq!(answers.number("stats reset=0", "dma_ns"), answers.number("drain", "dma_ns"));

    let rate = |bytes: u64, ns: u64| bytes as f64 / (ns as f64 / 1e9) * clock;
    let by_driver = ["dma_min", "dma_p25", "dma_p50"].map(|field| rate(BUFFER, answers.number("drain", field)));
    let all = rate(BYTES, answers.number("drain", "dma_ns"));
    let busy = number(&ledger_after, "/dma_read/busy_ns") - number(&ledger, "/dma_read/busy_ns");
    let model = BYTES as f64 / (busy as f64 / 1e9);
    say!(
        "{}: MB/s by the driver: {:.1} at most, {:.1} quarter, {:.1} median, {:.1} all; {:.1} by the board, {:.1} by its link \
         ({payload} byte payloads); clock {clock:.3}",
        board.name,
        by_driver[0] / 1e6,
        by_driver[1] / 1e6,
        by_driver[2] / 1e6,
        all / 1e6,
        model / 1e6,
        expected / 1e6
    );
    assert!((model / expected - 1.0).abs() < 0.002, "the board moved {model}, its link {expected} bytes per second");
    // A clock that is 1 % off passes for right.
    assert!(by_driver[0] < expected * 1.02, "no DMA is quicker than the link");
    if (by_driver[1] / expected - 1.0).abs() < 0.03 {
        return Ok(());
    }
    Err(format!("{}: {:.0} bytes per second, the link's are {expected:.0}", board.name, by_driver[1]))
}
