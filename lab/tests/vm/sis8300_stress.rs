//! Everything at once on six digitizers: processes that open, read, arm, ring, map and are killed; boards that are unbound, bound,
//! taken away and plugged in again. Those who read all the while get every sample right, the kernel's log has no line but the
//! expected ones, no memory is lost, and the module can be unloaded. And a ring at full rate with a slow consumer loses nothing.
//!
//! `PCIESCOPE_STRESS_SECONDS` says for how long (6), `PCIESCOPE_RING_SECONDS` for how long the ring (4),
//! `PCIESCOPE_STRESS_SEED` with which random numbers.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::say;
use crate::support::PATIENCE;
use crate::support::digitizers::{Board, Digitizers};
use crate::support::drive::{drive, start};
use pciescope_lab::vm::{Kernel, Running, without_reports_of_others};

/// Who is left in peace: somebody reads a ring of one, and acquires on the other, from begin to end.
const HELD: [u16; 2] = [6, 3];
/// Unbound and bound in the guest, by hand.
const UNBOUND: [u16; 2] = [4, 7];
/// Answers all-ones, or is taken away, and comes back.
const LOST: u16 = 8;
/// Unplugged and plugged in, as by a person.
const PLUGGED: u16 = 9;
/// What may be lost per cycle of a board's binding, in KiB: a chunk is 4096.
const LEAK_MAX_KIB: i64 = 8192;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

pub fn a_ring_at_full_rate_and_everything_at_random_lose_nothing() {
    let (seconds, seed) = (number("PCIESCOPE_STRESS_SECONDS", 6), number("PCIESCOPE_STRESS_SEED", 3));
    say!("{seconds} s, seed {seed}");
    let rig = Digitizers::boot(Kernel::V6_12, 6, |builder| builder);
    a_ring_at_full_rate_loses_nothing(&rig);
    // A first cycle: what is allocated once and kept is there before.
    everything(&rig, 5, seed);
    rig.must("rmmod sis8300");
    let before = available_kib(&rig);
    rig.must("modprobe sis8300");
    let cycles = everything(&rig, seconds, seed + 100);
    rig.must("rmmod sis8300");
    let after = available_kib(&rig);
    say!("{before} KiB available before, {after} after {cycles} bindings");
    assert!(before - after < LEAK_MAX_KIB, "{} KiB are gone after {cycles} bindings", before - after);
    check_log(&rig);
    rig.finish();
}

/// With the free pages that a CPU keeps for itself: MemAvailable leaves them out, and since 6.7 they may be many.
fn available_kib(rig: &Digitizers) -> i64 {
    rig.must("sync; echo 3 >/proc/sys/vm/drop_caches; sleep 1; echo 3 >/proc/sys/vm/drop_caches");
    let of_cpus = rig.must("awk '$1 == \"count:\" { n += $2 } END { print 4 * n }' /proc/zoneinfo");
    let available = rig.must("awk '/MemAvailable/ { print $2 }' /proc/meminfo");
    say!("{available} KiB available, {of_cpus} KiB free on CPUs' lists");
    available.parse::<i64>().unwrap() + of_cpus.parse::<i64>().unwrap()
}

/// What the kernel may say: that boards come, go, and were lost; ports and slots as they are used.
const EXPECTED: [&str; 11] = [
    "sis8300-[0-9]*: module 0x",
    "enabling device (",
    "Slot([0-9-]*): ",
    "pci 0000:",
    "pcieport 0000:",
    "pci_bus 0000:",
    "hrtimer: interrupt took",
    "drop_caches",
    "ACPI: .* Enabled at IRQ",
    "taint",
    // A module that counts its lines (`make sanitize`).
    "version magic: 0x[0-9a-f]*$",
];
/// Of a message that comes after its vector was freed. Hardware keeps messages before the answers to later reads; in the lab they
/// take another way through QEMU, and one may be overtaken by the unbinding.
const OF_LATE_MESSAGES: [&str; 6] = [
    "irq [0-9]*, desc: .* depth: 1, count: 0, unhandled: 0",
    "->handle_irq(): .*handle_bad_irq",
    "->irq_data.chip(): .*no_irq_chip",
    "->action(): 0000000000000000",
    " IRQ[A-Z_]* set$",
    "unexpected IRQ trap at vector",
];
/// And of the board that is lost at any moment, also between two registers of one DMA.
const OF_THE_LOST: [&str; 6] = [
    "does not answer (all-ones): out of use until it is bound anew",
    "not bound: module id 0xffffffff is no SIS8300",
    "the interrupt of a DMA was lost",
    "DMA of 0x[0-9a-f]* bytes from 0x[0-9a-f]* stopped at 0x[0-9a-f]*$",
    "no interrupt at the end of acquisition [0-9]*$",
    "a DMA hung: the board was reset",
];

/// No line since the module was first loaded but the expected ones.
fn check_log(rig: &Digitizers) {
    let lost = rig.address(LOST);
    let of_the_lost = OF_THE_LOST.map(|pattern| format!("sis8300 {lost}: {pattern}"));
    let patterns = EXPECTED.into_iter().chain(OF_LATE_MESSAGES).map(str::to_owned).chain(of_the_lost);
    let log = rig.must("dmesg | sed -n '/sis8300/,$p'");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, without_reports_of_others(&log).join("\n")).unwrap();
    let mut grep = Command::new("grep");
    grep.arg("-v").args(patterns.flat_map(|pattern| ["-e".to_owned(), pattern])).arg(file.path());
    // grep exits with 1 where no line is left.
    let others = grep.output().unwrap();
    assert!(
        others.status.code() == Some(1),
        "unexpected lines of the kernel's log:\n{}",
        String::from_utf8_lossy(&others.stdout)
    );
}

/// Binds and unbinds, at random, until the time is over; prints how often.
fn unbinder(rig: &Digitizers, seconds: u64) -> Running<'_> {
    let addresses: Vec<String> = UNBOUND.map(|slot| rig.address(slot)).into();
    let script = format!(
        "cd /sys/bus/pci/drivers/sis8300; end=$(($(date +%s) + {seconds})); n=0
         while [ $(date +%s) -lt $end ]; do
             for a in {}; do echo $a >unbind; sleep 0.0$((RANDOM % 100)); echo $a >bind; n=$((n + 1)); done
             sleep 0.$((RANDOM % 4))
         done; echo $n",
        addresses.join(" ")
    );
    start_in(rig, &format!("bash -c '{script}' || exit"))
}

fn start_in<'a>(rig: &'a Digitizers, script: &str) -> Running<'a> {
    rig.vm.start(script)
}

/// A board is lost at random moments, and found again: how often.
fn lose_and_find(rig: &Digitizers, board: &Board, round: u64) {
    let address = rig.address(board.slot);
    if round % 2 == 0 {
        board.tell("all-ones on");
        std::thread::sleep(Duration::from_millis(100 + 37 * (round % 7)));
        board.tell("all-ones off");
        rig.must(&format!("cd /sys/bus/pci/drivers/sis8300; echo {address} >unbind; echo {address} >bind"));
    } else {
        board.tell("remove");
        std::thread::sleep(Duration::from_millis(100 + 37 * (round % 7)));
        rig.must(&format!("echo 1 >/sys/bus/pci/devices/{address}/remove"));
        board.tell("reset");
        rig.must("echo 1 >/sys/bus/pci/rescan");
    }
}

fn unplug_and_plug(rig: &Digitizers, board: &Board) {
    rig.vm.unplug(&board.name).unwrap_or_else(|err| panic!("the lab failed: {err}"));
    rig.vm.plug(&board.name, &board.served.device_socket);
    rig.wait_for("its node", || rig.run(&format!("test -c {}", board.node())).is_success().then_some(()));
}

/// Gives how often boards were bound.
fn everything(rig: &Digitizers, seconds: u64, seed: u64) -> u64 {
    let until = Instant::now() + Duration::from_secs(seconds);
    let ms = seconds * 1000;
    let [ringing, acquiring] = HELD.map(|slot| rig.board(slot));
    let ring = start(
        rig,
        ringing,
        &[
            "ring-setup 4 1048576",
            "map",
            "ring-start at=0x20000000 bytes=0x10000000",
            &format!("drain ms={ms} timeout=30000"),
            "ring-stop",
            "drain",
            "stats",
        ],
    );
    let acquire = start(
        rig,
        acquiring,
        &[
            "setup samples=49152 trigger=2 lines=1",
            "ring-setup 3 524288",
            "map",
            "ring-start triggered=1 bytes=983040 timeout=30000",
            &format!("drain ms={ms} timeout=30000"),
            "ring-stop",
        ],
    );
    let nodes: Vec<String> = rig.boards.iter().filter(|board| !HELD.contains(&board.slot)).map(Board::node).collect();
    let users = start_in(rig, &format!("exec /lib/pciescope/sis8300_stress {seconds} {seed} {}", nodes.join(" ")));
    let unbinder = unbinder(rig, seconds);
    let (lost, plugged) = (rig.board(LOST), rig.board(PLUGGED));
    let mut rounds = 0;
    std::thread::scope(|scope| {
        let plugger = scope.spawn(|| {
            let mut rounds = 0;
            // Six seconds each.
            while Instant::now() + Duration::from_secs(4) < until {
                unplug_and_plug(rig, plugged);
                rounds += 1;
            }
            rounds
        });
        while Instant::now() < until {
            lose_and_find(rig, lost, rounds);
            rounds += 1;
            std::thread::sleep(Duration::from_millis(200));
        }
        rounds += plugger.join().expect("the thread that plugs has not panicked");
    });
    let ended = |running: Running<'_>, what: &str| {
        let output = running.wait_within(PATIENCE).unwrap_or_else(|err| {
            panic!("{what}: it did not end: {err}: {}", rig.must("cat /proc/*/stack 2>/dev/null | tail -50"))
        });
        assert!(output.is_success(), "{what}: {}{}", output.stdout, output.stderr);
        output.stdout.trim().to_owned()
    };
    say!("{}", ended(users, "users"));
    let bound: u64 = ended(unbinder, "unbinding").parse().unwrap();
    assert!(bound > 0 && rounds > 0);

    let answers = ring.end();
    answers.all_right();
    assert!(
        answers.all("drain").iter().all(|drain| drain["errno"] == "" || drain["errno"] == "ENODATA"),
        "{answers:#?}"
    );
    assert!(answers.all("drain")[0]["buffers"].as_u64() > Some(10 * seconds), "{answers:#?}");
    assert_eq!((answers.number("stats", "timeouts"), answers.number("stats", "short")), (0, 0));
    let answers = acquire.end();
    answers.all_right();
    assert_eq!(answers.errno("drain"), "");
    say!("{} acquisitions by ring beside {bound} bindings and {rounds} losses", answers.number("drain", "passes"));
    for board in &rig.boards {
        // Whatever was done to it, it works.
        let lines = ["setup samples=4096", "arm", "wait 5000", "pread 0 81920", "pread 0x68000010 600000"];
        drive(rig, board, &lines).all_well();
    }
    bound + rounds
}

/// The engine goes as fast as the link does; the consumer looks at each sample, and rests. What cannot be taken is not read: the
/// engine waits, and says how often and how long.
fn a_ring_at_full_rate_loses_nothing(rig: &Digitizers) {
    let seconds = number("PCIESCOPE_RING_SECONDS", 4);
    let board = rig.board(6);
    for (what, us) in [("quick", 0), ("slow", 25_000)] {
        let before = board.ledger();
        let answers = drive(
            rig,
            board,
            &[
                "ring-setup 8 1048576",
                "map",
                "ring-start at=0x10000000 bytes=0x60000000",
                &format!("drain ms={} us={us} timeout=30000", seconds * 500),
                "ring-stop",
                "drain",
                "next 100",
                "unmap",
                "stats",
            ],
        );
        answers.all_right();
        let after = board.ledger();
        let sum = |field: &str| answers.all("drain").iter().map(|drain| drain[field].as_u64().unwrap()).sum::<u64>();
        let since = |path: &str| {
            after.pointer(path).unwrap().as_u64().unwrap() - before.pointer(path).unwrap().as_u64().unwrap()
        };
        // Each byte that the board moved was handed over, in order, and was right.
        assert_eq!(since("/dma_read/bytes"), sum("bytes"));
        assert_eq!(since("/dma_read/ended"), sum("buffers"));
        assert_eq!(answers.number("stats", "user_bytes"), sum("bytes"));
        assert_eq!(answers.errno("next"), "ENODATA");
        let (stalls, stall_ns) = (answers.number("stats", "stalls"), answers.number("stats", "stall_ns"));
        let span = answers.all("drain")[0]["ns"].as_u64().unwrap();
        let busy = since("/dma_read/busy_ns");
        say!(
            "{what}: {} MB in {:.1} s, {stalls} stalls of {:.2} s in all, the engine was busy for {:.2} s",
            sum("bytes") / 1_000_000,
            span as f64 / 1e9,
            stall_ns as f64 / 1e9,
            busy as f64 / 1e9
        );
        assert!(sum("buffers") > 10 * seconds / 2, "{answers:#?}");
        if us > 0 {
            // No more than one buffer each 25 ms can be taken, and one takes 5 ms.
            assert!(stalls > 5 && stall_ns > span / 4, "the engine did not wait: {answers:#?}");
            assert!(stall_ns < span + span / 10, "{answers:#?}");
        }
    }
}
