//! `tune` on devices whose speed follows a law that the lab's models know: what is found is what was planted. docs/tune.md.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use pciescope_core::tune::{Effect, Tune, Verdict};
use pciescope_lab::Served;
use pciescope_lab::device::config::Link;
use pciescope_lab::device::traffic::Traffic;
use pciescope_lab::device::upstream::write_efficiency;
use pciescope_lab::device::{CounterBoard, LatencyEndpoint, NvmeDisk};
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
    let tune = measured.expect(0, "tune")[0].tune.clone().unwrap();
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
        "exec pciescope tune {bdf} --try mrrs=4096,256 --score rate:max --duration 10s -j >/tmp/harm.jsonl -- sh -c '{look}'"
    ));
    while running.status().is_none() {
        if fs::read_to_string(&now).is_ok_and(|control| control.starts_with('5')) {
            rig.board.tell(&format!("port {PORT} event 0x207 3"));
        }
        sleep(Duration::from_millis(20));
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
    fs::write(rig.vm.share().join("moves.pl"), MOVES).unwrap();
    let perl = "/tmp/perl -I/lab/usr/lib/x86_64-linux-gnu/perl-base /host/moves.pl";
    let before = state();
    let law = |knob: &str, moves: &str, percent: f64, own: f64| {
        let line = format!("{bdf} --try {knob} --score rate:max --least 3 --duration 80s -- {perl} {moves}");
        settle(knob, || agrees(&tune(&rig, &line).effects[0], Verdict::Helps, percent, own));
    };
    let payload = (write_efficiency(0, 256) / write_efficiency(0, 128) - 1.0) * 100.0;
    law("mps=256", &format!("read {node} 262144"), payload, 0.5);
    law("mrrs=1024", &format!("write {node} 32768"), 100.0, 6.0);
    replays_are_harm(&rig, &bdf);
    assert_eq!(state(), before);
    rig.vm.check_log();
}

/// Says what is set; then reads 4 KiB of the lab's disk twice, and prints the milliseconds of the quicker read.
const READ: &str = r#"#!/bin/sh
disk() { dd if=/dev/nvme0n1 of=/dev/null bs=4k iflag=direct count=1 2>/dev/null; }
until disk; do sleep 0.01; done
set -- $1/iommu_group/type $1/msi_irqs/*
read -r kind <$1
read -r cpu </proc/irq/${2##*/}/effective_affinity_list
echo "$$ $kind $cpu" >/host/ask
until read -r told </host/told && [ "$told" = "$$ $kind $cpu" ]; do :; done
least=9999
for time in 1 2; do
	read -r _ _ _ before _ </sys/block/nvme0n1/stat
	disk
	read -r _ _ _ after _ </sys/block/nvme0n1/stat
	[ $((after - before)) -ge $least ] || least=$((after - before))
done
echo "$$ done" >/host/ask
echo $least
"#;

/// How long a read takes, in milliseconds, by the type of the IOMMU group and the CPU of the vector.
type ReadLaw = fn(&str, &str) -> u64;

/// Sets the disk's rate by what the workload says, and answers. `Some` at the end.
fn set_rate(disk: &Endpoint, share: &Path, law: ReadLaw, last: &mut String) -> Option<()> {
    let asked = fs::read_to_string(share.join("ask")).ok().filter(|asked| asked.ends_with('\n') && asked != last)?;
    match asked.split_whitespace().collect::<Vec<_>>()[..] {
        [_, kind, cpu] => disk.tell(&format!("rate {}", 4_096_000 / law(kind, cpu))),
        [_, "done"] => disk.tell("rate none"),
        ["over"] => return Some(()),
        _ => panic!("the workload said {asked:?}"),
    };
    fs::write(share.join("told"), &asked).unwrap();
    *last = asked;
    None
}

/// The group's type, or the CPU of the vector, decides how long the disk's reads take: the test sets its rate by it.
pub fn an_iommu_and_a_vectors_cpu_cost_what_the_disk_adds() {
    let disk = NvmeDisk::new(&Link::default(), Traffic::new().port("0000:00:02.0".parse().unwrap()));
    let disk = Endpoint::serve(disk, "disk0");
    // Without interrupt remapping the disk has one vector, whose CPU the kernel lets us choose.
    let rig = Rig::boot_with(Kernel::V6_12, |builder| {
        let builder = builder.cpus(2).iommu(true).cmdline("intremap=off").module("nvme");
        builder.served("disk0", &disk.served, Attachment::RootPort)
    });
    let bdf = rig.vm.address("disk0");
    let folder = format!("/sys/bus/pci/devices/{bdf}");
    fs::write(rig.vm.share().join("read.sh"), READ).unwrap();
    fs::write(rig.vm.share().join("told"), "").unwrap();
    let there = "until [ -b /dev/nvme0n1 ]; do sleep 0.1; done";
    // The vector is on CPU 0, and may be on both.
    rig.must(&format!(
        "{there}; cd /sys/bus/pci/drivers/nvme; echo {bdf} >unbind
        echo identity >{folder}/iommu_group/type; echo {bdf} >bind; {there}
        list=/proc/irq/$(ls {folder}/msi_irqs)/smp_affinity_list
        echo 0 >$list; dd if=/dev/nvme0n1 of=/dev/null bs=4k iflag=direct count=9 2>/dev/null; echo 0-1 >$list"
    ));
    let state = || {
        rig.must(&format!(
            "cat {folder}/iommu_group/type /proc/irq/$(ls {folder}/msi_irqs)/smp_affinity_list; readlink {folder}/driver"
        ))
    };
    let (found, share) = (state(), rig.vm.share());
    let try_law = |tries: &str, law: ReadLaw, planted: &[f64], beside: f64| {
        let (mut last, _) = (String::new(), fs::remove_file(share.join("ask")));
        let options = format!("--try {tries} --score ms:min --least 8 --duration 60s -o {RECORDS} --overwrite");
        let running = rig.vm.start(&format!(
            "pciescope tune {bdf} {options} -- sh /host/read.sh {folder}
            status=$?; echo over >/host/ask; exit $status"
        ));
        rig.wait_for("the end of the experiment", || set_rate(&disk, &share, law, &mut last));
        let measured = rig.end(&running, RECORDS, PATIENCE);
        assert_eq!(state(), found);
        let effects = &measured.expect(0, "tune")[0].tune.as_ref().unwrap().effects;
        assert_eq!(effects.len(), planted.len());
        for (effect, percent) in effects.iter().zip(planted) {
            let verdict = if *percent > 0.0 { Verdict::Hurts } else { Verdict::NoDifference };
            agrees(effect, verdict, *percent, beside)?;
            assert_eq!(effect.blocks_failed, 0, "{effect:?}");
            say!("{tries}, {percent} % planted: {:?} in {}", effect.change, effect.comparisons);
        }
        Ok(())
    };
    let by_type: ReadLaw = |kind, _| match kind {
        "DMA" => 36,
        "DMA-FQ" => 30,
        _ => 24,
    };
    let by_cpu: ReadLaw = |_, cpu| if cpu == "1" { 30 } else { 24 };
    settle("a vector's CPU", || try_law("irq-cpu=1", by_cpu, &[25.0], 0.0));
    settle("a vector's CPU that is all the same", || try_law("irq-cpu=1", |_, _| 24, &[0.0], 0.0));
    // QEMU itself takes up to a millisecond to map a page and to unmap it.
    settle("an IOMMU", || try_law("iommu=DMA,DMA-FQ", by_type, &[50.0, 25.0], 4.0));
    rig.check_log();
}
