//! `tune` on devices whose speed follows a law that the lab's models know: what is found is what was planted. docs/tune.md.

use std::ops::RangeInclusive;

use pciescope_core::tune::{Effect, Tune, Verdict};
use pciescope_lab::Served;
use pciescope_lab::device::traffic::Traffic;
use pciescope_lab::device::upstream::write_efficiency;
use pciescope_lab::device::{CounterBoard, LatencyEndpoint};
use pciescope_lab::vm::digitizers::Crate;
use pciescope_lab::vm::{Attachment, Kernel};

use crate::say;
use crate::support::counters::Counters;
use crate::support::{Endpoint, PATIENCE, RECORDS, Rig, program, records, settle};

/// A port of the board, whose link gets L1 by the overlay.
const PORT: &str = "0000:30:01.0";
/// What the device lets each read wait, and more where the link leaves the slow state.
const READ_NS: u64 = 500_000;
const EXIT_NS: u64 = 500_000;
/// The most that QEMU and the guest add to a read, in the median.
const BESIDE_NS: u64 = 100_000;

/// Each read waits until its link has left L1, or L0s; the other state takes no time. The truth is the device's own: by
/// its ledger reads waited READ_NS, and EXIT_NS more with the state on. What comes beside both is within BESIDE_NS.
pub fn leaving_a_state_of_aspm_costs_what_the_device_waited() {
    let board = Endpoint::serve(CounterBoard::seed_machine(Traffic::new()), "board");
    let rig = Rig::boot_model(
        LatencyEndpoint::default(),
        Kernel::V6_12,
        Attachment::Port(PORT.parse().unwrap()),
        |builder| {
            let builder = builder.cpus(2).seed_machine().served("board", &board.served, Attachment::RootBus);
            builder.module("pciescope_lab").module("pcilat")
        },
    );
    board.tell(&format!("port {PORT} express 0x0c 0xc00 0xc00"));
    rig.tell("aspm-exit l1 0");
    rig.tell("aspm-exit l0s 0");
    rig.tell(&format!("read-delay fixed {READ_NS}"));
    // Linux looks at what an end of a link can do when it finds the function, and leaves ASPM off as the firmware does.
    let own = format!("/sys/bus/pci/devices/{}", rig.bdf);
    rig.must(&format!(
        "echo 1 >/sys/bus/pci/devices/{PORT}/remove; echo 1 >/sys/bus/pci/rescan
        echo powersave >/sys/module/pcie_aspm/parameters/policy"
    ));
    let state = || rig.must(&format!("grep -H . {own}/link/*_aspm | sed s,.*/,,; setpci -s {} CAP_EXP+10.w", rig.bdf));
    let found = state();
    assert_eq!(found, "l0s_aspm:1\nl1_aspm:1\n0003", "both ends have both states, and the function has them on");
    let percent = |beside_ns| -100.0 * EXIT_NS as f64 / (READ_NS + EXIT_NS + beside_ns) as f64;
    let truth = percent(0)..=percent(BESIDE_NS);
    for (slow, quick) in [("l1", "l0s"), ("l0s", "l1")] {
        rig.tell(&format!("aspm-exit {slow} {EXIT_NS}"));
        rig.tell(&format!("aspm-exit {quick} 0"));
        settle(slow, || one_helps(&rig, slow, quick, &truth));
        assert_eq!(state(), found);
    }
    rig.check_log();
}

/// On a host that stands still, blocks lack samples or the answer stays undecided; anything else wrong ends the test.
fn one_helps(rig: &Rig, slow: &str, quick: &str, truth: &RangeInclusive<f64>) -> Result<(), String> {
    let ledger = || {
        let ledger = rig.ledger();
        let exits = ledger["aspm_exit_ns"]["chosen"].as_array().unwrap().clone();
        let of =
            |time_ns: u64| exits.iter().find(|exit| exit[0] == time_ns).map_or(0, |exit| exit[1].as_u64().unwrap());
        assert!(exits.iter().all(|exit| exit[0] == 0 || exit[0] == EXIT_NS), "{exits:?}");
        [of(0), of(EXIT_NS), ledger["read_delay_ns"]["count"].as_u64().unwrap()]
    };
    let before = ledger();
    let measured = rig.sh(&format!(
        "pciescope tune {} --bind --try aspm-{slow}=off --try aspm-{quick}=off --duration 10s -o {RECORDS} --overwrite",
        rig.bdf
    ));
    let tune = measured.of("tune")[0].tune.clone().unwrap();
    let has_no_figure = |why: &Option<String>| why.as_ref().is_some_and(|why| why.contains("no figure"));
    if measured.output.status != 0 && tune.effects.iter().any(|effect| has_no_figure(&effect.why)) {
        return Err(format!("{:?}", tune.effects));
    }
    measured.expect(0, "tune");
    let after = ledger();
    let [without, with, reads] = [0, 1, 2].map(|at| after[at] - before[at]);
    say!("{slow}: {with} of {reads} reads waited for it, {truth:?} %: {:?}", tune.effects);
    assert!(without > 0 && with > 0 && with + without == reads, "{without} and {with} of {reads}");
    let [helps, nothing] = tune.effects.as_slice() else { panic!("{:?}", tune.effects) };
    if helps.verdict == Verdict::Undecided {
        return Err(format!("{helps:?}"));
    }
    assert_eq!(helps.verdict, Verdict::Helps, "{helps:?}");
    let change = helps.change.unwrap();
    assert!(change.low_percent <= *truth.end() && change.high_percent >= *truth.start(), "{change:?}: {truth:?}");
    assert!(matches!(nothing.verdict, Verdict::NoDifference | Verdict::Undecided), "{nothing:?}");
    assert!(nothing.comparisons > 0 && tune.notes.is_empty(), "{tune:?}");
    let best = tune.best.unwrap();
    assert_eq!(best.settings, helps.settings, "{best:?}");
    Ok(())
}

/// What `tune` says of a function in a guest that needs no endpoint.
fn tune(rig: &Counters, options: &str) -> Tune {
    let line = format!("pciescope tune {options}");
    let (line, command) = line.split_once(" -- ").unwrap();
    let output = rig.vm.run_within(&format!("{line} -o {RECORDS} --overwrite -- {command}"), PATIENCE);
    assert_eq!(output.status, 0, "{options}: {}{}", output.stdout, output.stderr);
    let tune = records::parse(&rig.vm.read(RECORDS)).into_iter().find_map(|record| record.tune).unwrap();
    let effects = tune.effects.iter().map(|effect| (effect.verdict, effect.comparisons, effect.change));
    say!("{options}: {:?}, {:?}", effects.collect::<Vec<_>>(), tune.notes);
    *tune
}

/// The one effect is what a law says, in percent, give or take what the driver itself needs. What is measured on a busy host
/// may stay undecided.
fn agrees(effect: &Effect, verdict: Verdict, percent: f64, own: f64) -> Result<(), String> {
    if effect.verdict == Verdict::Undecided {
        return Err(format!("{effect:?}"));
    }
    let change = effect.change.unwrap();
    assert_eq!(effect.verdict, verdict, "{effect:?}");
    let held = change.low_percent - own..=change.high_percent + own;
    assert!(held.contains(&percent), "{percent} % is planted: {effect:?}");
    Ok(())
}

/// The port sends TLPs again while read requests are large, which AER does not tell; its RAS D.E.S. does.
fn replays_are_harm(rig: &Counters, bdf: &str) {
    let now = rig.vm.share().join("now");
    let look = format!("setpci -s {bdf} CAP_EXP+8.w >/host/now; sleep 0.2; rm /host/now; sleep 0.1; echo 100");
    let running = rig.vm.start(&format!(
        "exec pciescope tune {bdf} --try mrrs=4096,256 --score rate:max --duration 8s -j >/tmp/harm.jsonl -- sh -c '{look}'"
    ));
    while running.status().is_none() {
        if std::fs::read_to_string(&now).is_ok_and(|control| control.starts_with('5')) {
            rig.board.tell(&format!("port {PORT} event 0x207 3"));
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let output = running.wait_within(PATIENCE).unwrap();
    let tune = records::parse(&rig.vm.read("/tmp/harm.jsonl")).into_iter().find_map(|record| record.tune).unwrap();
    say!("{:?}", tune.effects);
    let [harmful, other] = tune.effects.as_slice() else { panic!("{:?}", tune.effects) };
    assert_eq!((output.status, harmful.verdict, other.errors), (1, Verdict::Harmful, 0));
    assert!(other.comparisons > 0 && other.verdict != Verdict::Harmful, "{other:?}");
    assert!(harmful.why.as_ref().unwrap().starts_with(&format!("new errors: {PORT} retry_tlp ")), "{harmful:?}");
}

/// Moves data between a digitizer's memory and the guest's three times, and prints the best rate in bytes per second by the
/// guest's monotonic clock: a host that is busy elsewhere makes some slower.
const MOVES: &str = r#"use strict;
my ($direction, $node, $bytes) = @ARGV;
sub now { my $time = pack("qq", 0, 0); syscall(228, 1, $time); my ($s, $ns) = unpack("qq", $time); $s + $ns / 1e9 }
open(my $file, $direction eq "read" ? "<" : "+<", $node) or die;
my ($data, $best) = ("x" x $bytes, 0);
for (1..3) {
    my $begun = now();
    ($direction eq "read" ? sysread($file, $data, $bytes) : syswrite($file, $data, $bytes)) == $bytes or die;
    my $rate = $bytes / (now() - $begun);
    $best = $rate if $rate > $best;
}
print $best;
"#;

/// A digitizer sends packets as large as its Device Control says, and so many read requests are on their way. What it moves
/// follows by the specification's formula, and its own clock paces it.
pub fn payload_and_read_requests_of_a_digitizer_have_their_law() {
    let folder = tempfile::tempdir().unwrap();
    let mut seed = Crate::seed(1);
    seed.traffic = Traffic::new();
    let (name, model, place) = seed.behind_ports(&[PORT.parse().unwrap()]).remove(0);
    let board = Served::spawn(model, folder.path(), &name).unwrap();
    let rig = Counters::boot_on(seed.traffic.clone(), Kernel::V6_12, "rasdes_pmu", |builder| {
        builder.served(&name, &board, place).module("sis8300").program(program())
    });
    let node = rig.must("ls /dev/sis8300-*");
    let bdf = rig.vm.address(&name);
    let driver = format!("/sys/bus/pci/devices/{bdf}/driver");
    let state = || rig.must(&format!("setpci -s {PORT} CAP_EXP+8.w; setpci -s {bdf} CAP_EXP+8.w; readlink {driver}"));
    // QEMU's ports take 128 bytes; this one takes 256 from now on, as the board does.
    rig.board.tell(&format!("port {PORT} express 0x04 1 7"));
    rig.board.tell(&format!("port {PORT} express 0x08 0 0xe0"));
    // 12 MB/s, and 1 MB/s of read requests: the driver's own part is small.
    for command in ["set slowness 20", "set round-trip 1ms"] {
        board.ask(command).unwrap();
    }
    rig.must("echo 65536 >/sys/module/sis8300/parameters/write_bytes; ln -s /lib/lab/tool /tmp/perl");
    std::fs::write(rig.vm.share().join("moves.pl"), MOVES).unwrap();
    let perl = "/tmp/perl -I/lab/usr/lib/x86_64-linux-gnu/perl-base /host/moves.pl";
    let before = state();
    let law = |knob: &str, moves: &str, percent: f64, own: f64| {
        let line = format!("{bdf} --try {knob} --score rate:max --least 3 --duration 40s -- {perl} {moves}");
        settle(knob, || agrees(&tune(&rig, &line).effects[0], Verdict::Helps, percent, own));
    };
    let payload = (write_efficiency(0, 256) / write_efficiency(0, 128) - 1.0) * 100.0;
    law("mps=256", &format!("read {node} 262144"), payload, 0.5);
    law("mrrs=1024", &format!("write {node} 32768"), 100.0, 6.0);
    replays_are_harm(&rig, &bdf);
    assert_eq!(state(), before);
    rig.vm.check_log();
}
