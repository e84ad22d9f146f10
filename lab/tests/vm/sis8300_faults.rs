//! What goes wrong with the virtual digitizers: each fault gives its named error, nothing wrong is handed over, and the next
//! acquisition and the next read work.

use std::time::Duration;

use crate::digitizer_crate;
use crate::power;
use crate::say;
use crate::support;
use crate::support::digitizers::{Board, Digitizers};
use crate::support::drive::{Answers, drive, start};
use crate::support::{seen, settle};
use pciescope_lab::vm::Kernel;
use pciescope_lab::vm::digitizers::Crate;
use serde_json::{Value, json};

/// Front line 3: no trigger comes.
const NEVER: &str = "setup samples=4096 trigger=3 lines=8";
const PARAMETERS: &str = "/sys/module/sis8300/parameters";

/// The next acquisition and the next read, whatever came before.
pub fn works(rig: &Digitizers, board: &Board) {
    settle(&format!("{} works", board.name), || {
        let lines = ["setup samples=4096", "arm", "wait 5000", "pread 0 81920", "pread 0x70000010 600000", "stats"];
        let answers = drive(rig, board, &lines);
        answers.all_well();
        assert_eq!((answers.number("stats", "timeouts"), answers.number("stats", "short")), (0, 0), "{}", board.name);
        // On a busy machine an interrupt may come so late that it passes for lost.
        match answers.number("stats", "lost") {
            0 => Ok(()),
            lost => Err(format!("{lost} interrupts were late")),
        }
    });
}

/// Nothing works, by `errno`, but what needs no board.
fn is_gone(answers: &Answers, lines: &[&str]) {
    for line in lines {
        let answer = answers.all(line).pop().unwrap_or_else(|| panic!("`{line}` in {answers:#?}"));
        assert_eq!(answer["errno"], "ENODEV", "{line}");
    }
}

fn in_log(rig: &Digitizers, board: &Board, text: &str) -> u64 {
    let address = rig.address(board.slot);
    rig.must(&format!("dmesg | grep -c '{address}: {text}' || true")).parse().unwrap()
}

pub fn each_fault_gets_its_error_and_the_next_one_works() {
    let seed = Crate::seed(6);
    let rig =
        Digitizers::boot_crate(Kernel::V6_12, &seed, |builder| power::that_sleeps(builder.program(support::program())));
    digitizer_crate::six_boards_sit_at_the_seeds_slots(&rig, &seed);
    rig.must("modprobe sis8300");
    rig.must(&format!("echo 150 >{PARAMETERS}/dma_timeout_ms"));
    for slot in [6, 3] {
        let board = rig.board(slot);
        works(&rig, board);
        lost_interrupts_are_found(&rig, board);
        a_short_dma_is_an_error(&rig, board);
        a_dma_that_never_ends(&rig, board);
        an_acquisition_that_never_ends(&rig, board);
        a_ring_ends_by_its_error(&rig, board);
        interrupts_without_a_reason(&rig, board);
        a_write_is_not_sent_nowhere_by_others(&rig, board);
        no_samples_are_swapped_by_others(&rig, board);
        firmware_without_the_interrupt_misses_no_trigger(&rig, board);
        a_reset_puts_it_out_of_use(&rig, board);
    }
    all_ones_last_until_it_is_bound_anew(&rig, rig.board(7));
    a_board_that_dies_in_its_recovery_is_no_bus_master(&rig, rig.board(7));
    no_late_dma_reaches_freed_memory(&rig, rig.board(7));
    power::digitizers_sleep_and_recover(&rig, rig.board(6), rig.board(4));
    taken_away_in_the_middle_of_a_dma(&rig, rig.board(8));
    unplugged_while_it_is_used(&rig);
    rig.must("rmmod sis8300");
    digitizer_crate::a_board_can_be_unplugged_and_another_stays(&rig);
    rig.finish();
}

fn lost_interrupts_are_found(rig: &Digitizers, board: &Board) {
    for kind in ["", " event"] {
        board.tell(&format!("lose dma 1{kind}"));
        let answers = drive(rig, board, &["pread 0x10000000 1048576", "stats"]);
        answers.all_well();
        // More only where the machine is so busy that others are late.
        assert!(answers.number("stats", "lost") >= 1);
        // It is looked for after 20 ms and once more.
        let longest = answers.number("stats", "dma_ns_max");
        assert!((20_000_000..500_000_000).contains(&longest), "{longest} ns");

        board.tell(&format!("lose daq 1{kind}"));
        let lines = ["setup samples=4096", "arm", "wait 5000", "pread 0 81920", "stats"];
        let answers = drive(rig, board, &lines);
        answers.all_well();
        assert_eq!(answers.number("wait", "lost"), 1);
        assert!(answers.number("wait", "ns") < 500_000_000);

        // Who polls misses nothing.
        board.tell(&format!("lose daq 1{kind}"));
        let lines = ["setup samples=4096", "arm", "wait 5000 poll=1 us=50", "pread 0 81920", "stats"];
        let answers = drive(rig, board, &lines);
        answers.all_well();
        assert_eq!(answers.number("wait", "lost"), 0);
    }
    assert_eq!(board.count("/interrupts/dma/lost"), 2);
    assert_eq!(board.count("/interrupts/daq/lost"), 4);
    works(rig, board);
}

/// Without the memory's test mode what is written goes nowhere, and nobody is told.
fn a_write_is_not_sent_nowhere_by_others(rig: &Digitizers, board: &Board) {
    let mut lines = vec!["stats"];
    lines.resize(10, "pwrite 0x10000000 65536");
    lines.push("pread 0x10000000 65536");
    let writing = start(rig, board, &lines);
    writing.wait_for(rig, "stats");
    let others = drive(rig, board, &["reg-write 0x230 0"; 200]);
    let busy = others.all("reg-write").iter().filter(|answer| answer["errno"] == "EBUSY").count();
    assert!(busy > 0, "{others:#?}");
    writing.end().all_well();
    drive(rig, board, &["reg-write 0x230 0"]).all_well();
}

/// Register 0x205 swaps the bytes of what is read: not while others read, and not for whoever comes later.
fn no_samples_are_swapped_by_others(rig: &Digitizers, board: &Board) {
    let mut lines = vec!["stats"];
    lines.resize(20, "pread 0x11000000 4194304");
    let reading = start(rig, board, &lines);
    reading.wait_for(rig, "stats");
    let others = drive(rig, board, &["reg-write 0x205 0"; 200]);
    let busy = others.all("reg-write").iter().filter(|answer| answer["errno"] == "EBUSY").count();
    assert!(busy > 0, "{others:#?}");
    reading.end().all_well();
    drive(rig, board, &["reg-write 0x205 1"]).all_well();
    bind_anew(rig, board);
    works(rig, board);
}

/// The driver looks for the end every millisecond, also after a DMA, which it looks after every 20 ms. So a triggered ring
/// makes its passes as with the interrupt, to one of the triggers, which come every 5 ms.
fn firmware_without_the_interrupt_misses_no_trigger(rig: &Digitizers, board: &Board) {
    let passes_apart = |done: &str| {
        board.tell(&format!("set daq-done {done}"));
        let passes = "ring-start triggered=1 bytes=20480 passes=30 timeout=5000";
        drive(rig, board, &["setup samples=1024 trigger=2 lines=1", "ring-setup 3 65536", "map", passes, "drain"])
            .all_right();
        let ledger = board.ledger();
        let last = ledger["acquisitions"]["last"].as_array().expect("acquisitions");
        let begun: Vec<u64> = last.iter().rev().take(9).map(|of| of["begun_ns"].as_u64().expect("a time")).collect();
        let mut apart: Vec<u64> = begun.windows(2).map(|pair| pair[0] - pair[1]).collect();
        apart.sort_unstable();
        apart[apart.len() / 2]
    };
    board.tell("trigger rate 200");
    settle("passes of a triggered ring", || {
        let [with, without] = ["after-flush", "none"].map(passes_apart);
        say!("{}: passes are {with} ns apart, without the interrupt {without}", board.name);
        if without < with + 9_000_000 { Ok(()) } else { Err(format!("{without} ns instead of {with}")) }
    });
    board.tell("set daq-done after-flush");
    board.tell("trigger rate 14");
    bind_anew(rig, board);
}

/// Somebody resets the function: its registers are at power-on again, and nobody is to go on as if they were not.
fn a_reset_puts_it_out_of_use(rig: &Digitizers, board: &Board) {
    let waiting = start(rig, board, &[NEVER, "arm", "wait 60000"]);
    waiting.wait_for(rig, "arm");
    rig.must(&format!("echo 1 >/sys/bus/pci/devices/{}/reset", rig.address(board.slot)));
    is_gone(&waiting.end(), &["wait"]);
    assert_eq!(drive(rig, board, &[]).errno("open"), "ENODEV");
    assert_eq!(in_log(rig, board, "reset: out of use"), 1, "it is said once");
    bind_anew(rig, board);
    works(rig, board);
}

fn a_short_dma_is_an_error(rig: &Digitizers, board: &Board) {
    let said = in_log(rig, board, "DMA of 0x");
    for kind in ["", " silent"] {
        board.tell(&format!("short dma 1 after 65536{kind}"));
        let lines = ["pread 0x10000000 1048576", "stats reset=1", "pread 0x10000000 1048592", "stats reset=0"];
        let answers = drive(rig, board, &lines);
        answers.all_right();
        assert_eq!(answers.errno("pread 0x10000000 1048576"), "EIO");
        assert_eq!(answers.number("stats reset=1", "short"), 1);
        assert_eq!(answers.errno("pread 0x10000000 1048592"), "");
        assert_eq!(answers.number("stats reset=0", "short"), 0);
    }
    assert_eq!(board.count("/dma_read/short"), 2);
    assert_eq!(in_log(rig, board, "DMA of 0x"), said + 2, "the log says it");
    works(rig, board);
}

const KEEP: &str = "setup samples=4096 clock=6 divider=0";

fn a_dma_that_never_ends(rig: &Digitizers, board: &Board) {
    // The setup of before is there after the board was reset, also a clock that was kept.
    board.tell("hang dma 1");
    let lines = [
        "setup samples=8192 channels=0x3f trigger=2 lines=1",
        "setup samples=8192 channels=0x3f trigger=2 lines=1 clock=6 divider=0",
        "pread 0x10000000 1048576",
        "stats reset=1",
        "pread 0x10000000 1048592",
        "arm",
        "wait 5000",
        "pread 0 98304",
    ];
    let answers = drive(rig, board, &lines);
    answers.all_right();
    assert_eq!(answers.errno("pread 0x10000000 1048576"), "ETIMEDOUT");
    let waited = answers.number("pread 0x10000000 1048576", "ns");
    assert!((150_000_000..3_000_000_000).contains(&waited), "{waited} ns");
    assert!(answers.number("stats reset=1", "timeouts") >= 1);
    for line in ["pread 0x10000000 1048592", "arm", "wait", "pread 0 98304"] {
        assert_eq!(answers.errno(line), "", "{line}");
    }
    assert_eq!(board.count("/dma_read/hung"), 1);
    assert_eq!(in_log(rig, board, "a DMA hung"), 1);
    works(rig, board);
    // A clock that this driver has not set cannot be set again: nobody samples with another one unknowingly.
    bind_anew(rig, board);
    board.tell("hang dma 1");
    let lines =
        [KEEP, "pread 0x10000000 1048576", "arm", KEEP, "setup samples=4096", "arm", "wait 5000", "pread 0 81920"];
    let answers = drive(rig, board, &lines);
    let errnos = |words| answers.all(words).iter().map(|answer| answer["errno"].clone()).collect::<Vec<_>>();
    assert_eq!(errnos(KEEP), ["", "EIO"]);
    assert_eq!(errnos("arm"), ["EIO", ""]);
    for line in ["setup samples=4096", "wait 5000", "pread 0 81920"] {
        assert_eq!(errnos(line).last().unwrap(), "", "{line}");
    }
    works(rig, board);
}

fn an_acquisition_that_never_ends(rig: &Digitizers, board: &Board) {
    board.tell("hang daq 2");
    let lines = [
        "setup samples=4096",
        "arm",
        "wait 120",
        "wait 60 poll=1 us=500",
        "disarm",
        // Armed anew over what hangs.
        "arm",
        "arm",
        "wait 5000",
        "pread 0 81920",
    ];
    let answers = drive(rig, board, &lines);
    answers.all_right();
    assert_eq!(answers.errno("wait 120"), "ETIMEDOUT");
    assert_eq!(answers.errno("wait 60"), "ETIMEDOUT");
    assert_eq!(answers.errno("disarm"), "");
    assert_eq!(answers.errno("wait 5000"), "");
    assert_eq!(board.count("/acquisitions/hung"), 2);
    works(rig, board);
}

fn a_ring_ends_by_its_error(rig: &Digitizers, board: &Board) {
    let hung = in_log(rig, board, "a DMA hung");
    for (fault, start_line, error) in [
        ("short dma 1 after 64", "ring-start bytes=655360 at=0x20000000", "EIO"),
        ("hang dma 1", "ring-start bytes=655360 at=0x20000000", "ETIMEDOUT"),
        ("hang daq 1", "ring-start triggered=1 bytes=81920 timeout=200", "ETIMEDOUT"),
    ] {
        board.tell(fault);
        let lines = [
            "setup samples=4096",
            "ring-setup 4 65536",
            "map",
            start_line,
            "drain",
            "next 100",
            "poll 0",
            "touch",
            "ring-start bytes=655360 at=0x21000000 passes=1",
            "drain ms=20000",
            "unmap",
            "pread 0x22000000 65536",
        ];
        let answers = drive(rig, board, &lines);
        answers.all_right();
        let drains = answers.all("drain");
        assert_eq!(drains[0]["errno"], error, "{fault}");
        assert_eq!(answers.errno("next"), error, "it stays until the next start");
        assert_eq!((answers.number("poll", "err"), answers.number("poll", "in")), (1, 1));
        assert_eq!((&drains[1]["errno"], &drains[1]["bytes"]), (&json!("ENODATA"), &json!(655_360)), "after {fault}");
    }
    assert_eq!(in_log(rig, board, "a DMA hung"), hung + 1);
    // Lost interrupts cost time and nothing else.
    board.tell("lose dma 2");
    let lines = [
        "setup samples=4096",
        "ring-setup 4 65536",
        "map",
        "ring-start bytes=655360 at=0x20000000 passes=3",
        "drain",
        "stats",
    ];
    let answers = drive(rig, board, &lines);
    answers.all_right();
    assert_eq!(answers.number("drain", "buffers"), 30);
    assert!(answers.number("stats", "lost") >= 2);
    works(rig, board);
}

fn interrupts_without_a_reason(rig: &Digitizers, board: &Board) {
    let reading = start(rig, board, &["read-on 0x10000000 1048576 20", "stats"]);
    for _ in 0..10 {
        board.tell("spurious 3");
        std::thread::sleep(Duration::from_millis(10));
    }
    let answers = reading.end();
    answers.all_well();
    assert_eq!(answers.number("stats", "dma_bytes"), 20 << 20);
    works(rig, board);
}

/// Binds a board anew by its driver's files.
pub fn bind_anew(rig: &Digitizers, board: &Board) {
    let address = rig.address(board.slot);
    rig.must(&format!("cd /sys/bus/pci/drivers/sis8300; echo {address} >unbind; echo {address} >bind"));
    rig.must(&format!("test -c {}", board.node()));
}

fn all_ones_last_until_it_is_bound_anew(rig: &Digitizers, board: &Board) {
    const AFTER: [&str; 8] = [
        "pread 0x10000000 64",
        "pwrite 0x10000000 64",
        "arm",
        "setup samples=64",
        "reg-read 0",
        "ring-setup 2 4096",
        "ess-wait 100 0",
        "wait 100",
    ];
    let lines =
        [&["setup samples=4096", "arm", "wait 5000", "stats reset=1", "read-on 0x10000000 4194304 0"][..], &AFTER]
            .concat();
    let lines = [&lines[..], &["poll 100", "stats reset=0"]].concat();
    let reading = start(rig, board, &lines);
    reading.wait_for(rig, "stats reset=1");
    let before = board.count("/dma_read/bytes");
    rig.wait_for("reading", || (board.count("/dma_read/bytes") > before + (8 << 20)).then_some(()));
    board.tell("all-ones on");
    let answers = reading.end();
    answers.all_right();
    is_gone(&answers, &["read-on"]);
    is_gone(&answers, &AFTER[..7]);
    assert_eq!(answers.number("poll", "hup"), 1);
    assert_eq!(in_log(rig, board, "does not answer"), 1, "it is said once");
    // A board that answers again is not trusted.
    board.tell("all-ones off");
    let answers = drive(rig, board, &[]);
    assert_eq!(answers.errno("open"), "ENODEV");
    bind_anew(rig, board);
    works(rig, board);
}

/// The recovery from a hang takes the bus master bit away and gives it back at its end: not to a board that was given up
/// meanwhile, whose engines may still run.
fn a_board_that_dies_in_its_recovery_is_no_bus_master(rig: &Digitizers, board: &Board) {
    /// How long the recovery waits for its first answer. The register that resets the board.
    const WAIT: Duration = Duration::from_secs(2);
    const RESET: u64 = 4 * 0xff;
    settle("a board dies in its recovery", || {
        let (hung, before) = (board.count("/dma_read/hung"), seen(&board.ledger(), "writes", 0, RESET, 4));
        let looking = start(rig, board, &[NEVER, "arm", "wait 60000 poll=1 us=100"]);
        looking.wait_for(rig, "arm");
        board.tell("hang dma 1");
        let reading = start(rig, board, &["pread 0x10000000 1048576"]);
        rig.wait_for("the DMA hangs", || (board.count("/dma_read/hung") > hung).then_some(()));
        board.tell(&format!("read-delay fixed {}ms", WAIT.as_millis()));
        // The recovery waits for the answer to its first read, and the one who looks waits for his turn.
        let mut looks = board.count("/dma_status_reads");
        rig.wait_for("the recovery", || {
            let ledger = board.ledger();
            let now = ledger["dma_status_reads"].as_u64().expect("the ledger counts them");
            let is_reset = seen(&ledger, "writes", 0, RESET, 4) > before;
            looks = if is_reset { looks } else { now };
            (is_reset && now > looks).then_some(())
        });
        // The recovery's second read, and two by which the other one finds that nobody answers, get all-ones, in any order.
        // Then the board answers, and its engines rest.
        board.tell("read-delay none");
        board.tell("all-ones next 3");
        let answers = looking.end();
        reading.end();
        std::thread::sleep(WAIT);
        let command = rig.must(&format!("setpci -s {} COMMAND", rig.address(board.slot)));
        bind_anew(rig, board);
        if answers.errno("wait") != "ENODEV" {
            return Err("the recovery read all-ones three times".to_owned());
        }
        let is_master = u16::from_str_radix(&command, 16).unwrap() & 4 != 0;
        assert!(!is_master, "the command register is {command}");
        Ok(())
    });
    works(rig, board);
}

/// The engine goes on with its last DMA when the board answers again: not into memory that was given back.
fn no_late_dma_reaches_freed_memory(rig: &Digitizers, board: &Board) {
    let lines = [
        "setup samples=4096",
        "ring-setup 8 1048576",
        "map",
        "ring-start at=0x20000000 bytes=0x10000000",
        "drain ms=60000",
        "touch",
    ];
    settle("a DMA is under way when the board is lost", || {
        let ring = start(rig, board, &lines);
        let before = board.count("/dma_read/bytes");
        rig.wait_for("the ring", || (board.count("/dma_read/bytes") > before + (8 << 20)).then_some(()));
        board.tell("all-ones on");
        let answers = ring.end();
        answers.all_right();
        assert_eq!(answers.errno("drain"), "ENODEV");
        assert_eq!(answers.errno("touch"), "", "what is mapped stays");
        let ledger = board.ledger();
        let count = |what: &str| ledger["dma_read"][what].as_u64().unwrap();
        let under_way = count("started") - count("ended") - count("aborted");
        board.tell("all-ones off");
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(board.count("/dma_read/bytes"), count("bytes"), "the engine went on");
        bind_anew(rig, board);
        works(rig, board);
        // Where the ring waited for its reader just then, nothing was shown.
        if under_way == 1 { Ok(()) } else { Err(format!("{under_way} were")) }
    });
}

fn taken_away_in_the_middle_of_a_dma(rig: &Digitizers, board: &Board) {
    let reading = start(rig, board, &["stats", "read-on 0x10000000 4194304 0", "pread 0 64"]);
    reading.wait_for(rig, "stats");
    let waiting = start(rig, board, &[NEVER, "arm", "wait 60000"]);
    waiting.wait_for(rig, "arm");
    let before = board.count("/dma_read/bytes");
    rig.wait_for("reading", || (board.count("/dma_read/bytes") > before + (8 << 20)).then_some(()));
    board.tell("remove");
    let answers = reading.end();
    answers.all_right();
    is_gone(&answers, &["read-on", "pread 0 64"]);
    is_gone(&waiting.end(), &["wait"]);
    // Linux forgets it, and finds it again when it is back.
    let address = rig.address(board.slot);
    rig.must(&format!("echo 1 >/sys/bus/pci/devices/{address}/remove"));
    assert_eq!(rig.run(&format!("test -e {}", board.node())).status, 1);
    board.tell("reset");
    rig.must("echo 1 >/sys/bus/pci/rescan");
    rig.must(&format!("test -c {}", board.node()));
    works(rig, board);
}

/// One board is unplugged with a ring and its mapping in use, one with a reader and with somebody who waits, one
/// with a writer.
fn unplugged_while_it_is_used(rig: &Digitizers) {
    let (ringing, read, written) = (rig.board(9), rig.board(4), rig.board(8));
    let before = written.count("/dma_write/bytes");
    let writing = start(rig, written, &["pwrite 0x50000000 1048576"; 1000]);
    rig.wait_for("writing", || (written.count("/dma_write/bytes") > before + (2 << 20)).then_some(()));
    let ring = start(
        rig,
        ringing,
        &[
            "setup samples=4096",
            "ring-setup 4 262144",
            "map",
            "ring-start at=0x20000000 bytes=0x10000000",
            "drain ms=90000",
            "touch",
            "next 100",
            "ring-start bytes=4096",
            "ring-stop",
            "unmap",
            "stats",
        ],
    );
    let reading = start(rig, read, &["read-on 0x10000000 4194304 0", "stats"]);
    let waiting = start(rig, read, &[NEVER, "arm", "wait 60000", "arm", "disarm"]);
    let ess = start(rig, read, &["stats", "ess-wait 0 0"]);
    waiting.wait_for(rig, "arm");
    ess.wait_for(rig, "stats");
    rig.wait_for("the ring", || (ringing.count("/dma_read/bytes") > 16 << 20).then_some(()));
    // Its attention button, and then those of the others: five seconds pass once.
    for board in [ringing, written] {
        rig.vm.qmp("device_del", json!({ "id": board.name })).unwrap_or_else(|err| panic!("the lab failed: {err}"));
    }
    rig.vm.unplug(&read.name).unwrap_or_else(|err| panic!("the lab failed: {err}"));

    let answers = ring.end();
    answers.all_right();
    is_gone(&answers, &["drain", "next", "ring-start bytes=4096"]);
    assert!(answers.number("drain", "buffers") > 20);
    assert_eq!(answers.errno("touch"), "", "what is mapped stays");
    assert_eq!(answers.errno("stats"), "");
    let answers = reading.end();
    answers.all_right();
    is_gone(&answers, &["read-on"]);
    // The one under way says how much is in the board's memory; the next one fails.
    let answers = writing.end();
    is_gone(&answers, &["pwrite"]);
    let refused = answers.all("pwrite").into_iter().find(|answer| answer["errno"] != "").map(|answer| &answer["errno"]);
    assert_eq!(refused, Some(&json!("ENODEV")));
    let done = |answer: &Value| answer["ret"].as_u64().unwrap_or(0);
    let said: u64 = answers.all("pwrite").into_iter().map(done).sum();
    let moved = written.count("/dma_write/bytes") - before;
    assert!(said > 2 << 20 && (said..=said + (1 << 20)).contains(&moved), "{said} bytes of {moved}");
    is_gone(&waiting.end(), &["wait"]);
    assert_eq!(ess.end().number("ess-wait", "status"), 1, "released");
    for board in [ringing, read, written] {
        rig.wait_for("the node goes", || (rig.run(&format!("test -e {}", board.node())).status == 1).then_some(()));
    }

    // Plugged in again, they have their names again.
    for board in [ringing, written] {
        rig.vm.plug(&board.name, &board.served.device_socket);
        rig.wait_for("its node", || rig.run(&format!("test -c {}", board.node())).is_success().then_some(()));
        works(rig, board);
    }
}

/// Where the line is shared, a board that answers again after it was given up must not hold it up for the others.
pub fn on_the_newest_kernel_a_board_given_up_leaves_the_line_to_others() {
    let mut boards = Crate::seed(0);
    boards.has_msi = false;
    boards.boards = [3, 4, 6, 7, 8].map(|slot| (slot, pciescope_lab::device::sis8300::Model::L2)).into();
    let rig = Digitizers::boot_crate(Kernel::Newest, &boards, |builder| builder.module("sis8300"));
    let board = rig.board(3);
    let address = rig.address(3);
    let shared = rig.must(&format!("grep {address} /proc/interrupts"));
    assert!(shared.contains(','), "the line is not shared: {shared}");
    let reading = start(&rig, board, &["read-on 0x10000000 4194304 0"]);
    let before = board.count("/dma_read/bytes");
    rig.wait_for("reading", || (board.count("/dma_read/bytes") > before + (4 << 20)).then_some(()));
    board.tell("all-ones on");
    is_gone(&reading.end(), &["read-on"]);
    board.tell("all-ones off");
    // Its DMA ends, its status is kept, its pin would go up, and nobody lets it down.
    std::thread::sleep(Duration::from_millis(500));
    let interrupts = || -> u64 {
        let columns = "{ for (i = 2; i <= 5; i++) n += $i } END { print n }";
        rig.must(&format!("grep {address} /proc/interrupts | awk '{columns}'")).parse().unwrap()
    };
    let before = interrupts();
    std::thread::sleep(Duration::from_millis(500));
    let more = interrupts() - before;
    assert!(more < 100, "{more} interrupts in half a second: {}", rig.must("cat /proc/interrupts"));
    for board in &rig.boards[1..] {
        works(&rig, board);
    }
    bind_anew(&rig, board);
    works(&rig, board);
    rig.finish();
}
