//! A storm of calls on all modules at once, from several processes, steered by what code they reach (kmod/selftest/storm.c).
//! Drivers, devices and a CPU are taken away meanwhile. The kernel's log says nothing, and each module works as before.
//!
//! The truth is the kernel's log and, in the end, the devices' ledgers. `PCIESCOPE_STORM_SECONDS` says for how long (20),
//! `PCIESCOPE_STORM_SEED` with which random numbers. With `PCIESCOPE_STORM_KEEP=FILE` it begins with the sequences of FILE, if
//! there is one, and writes there those that reached new code; `PCIESCOPE_STORM_SECONDS=0` drops those that reach nothing new.

use std::path::PathBuf;
use std::time::Duration;

use crate::say;
use crate::support::digitizers::Digitizers;
use crate::support::drive::drive;
use crate::support::{Endpoint, PATIENCE, lab_failed, seen};
use pciescope_lab::device::{CounterBoard, LatencyEndpoint};
use pciescope_lab::vm::digitizers::Crate;
use pciescope_lab::vm::{Attachment, Kernel};
use serde_json::Value;

/// Sequences that each reach something that the others do not.
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../kmod/selftest/storm.corpus");
const SLOT: u16 = 6;
/// Two of each; the last root port is taken away and brought back.
const PMUS: [&str; 4] = ["ali_drw_21000", "ali_drw_40021000", "dwc_rootport_1000", "dwc_rootport_3008"];
const CPUS: u64 = 4;
/// Who drives what, and the nodes.
const BOUND: &str = "ls -d /sys/bus/pci/drivers/*/0000:* /sys/bus/platform/drivers/drw_pmu/ali* /dev/sis8300-* /dev/pcilat/* \
    /sys/bus/event_source/devices/*; cat /sys/devices/system/cpu/online";
/// What it may take beyond its time: the last calls, and all of a corpus where the time is 0.
const REPLAY: Duration = Duration::from_secs(600);

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

pub fn a_storm_of_calls_leaves_all_modules_as_they_were() {
    // The guest is to be dropped first.
    let seed = Crate::seed(1);
    let counters = Endpoint::serve(CounterBoard::seed_machine(seed.traffic.clone()), "board");
    let endpoint = Endpoint::serve(LatencyEndpoint::default(), "lab0");
    let rig = Digitizers::boot_boards(Kernel::V6_12, seed.behind_switch(), |builder| {
        let builder = builder.seed_machine().memory_mib(1536);
        let builder = builder.served("board", &counters.served, Attachment::RootBus);
        let builder = builder.served("lab0", &endpoint.served, Attachment::RootPort);
        let modules = ["pciescope_lab", "drw_pmu", "rasdes_pmu", "sis8300", "pcilat ring_records=4096"];
        modules.into_iter().fold(builder, |builder, module| builder.module(module))
    });
    let lab0 = rig.vm.address("lab0");
    rig.must(&format!(
        "echo pcilat >/sys/bus/pci/devices/{lab0}/driver_override; echo {lab0} >/sys/bus/pci/drivers_probe"
    ));
    counters.tell("dram all rate hif_rd 40159522");
    let before = rig.must(BOUND);
    storm(&rig, &lab0);
    counters.tell("dram all rate hif_rd 0");
    assert_eq!(rig.must(BOUND), before, "something did not come back");
    rig.check_log();

    pcilat_measures(&rig, &endpoint, &lab0);
    the_digitizer_reads(&rig);
    the_pmus_count(&rig, &counters);
    a_removed_pmu_goes_while_a_run_lasts(&rig, &lab0);
    rig.vm.finish(&["sis8300", "pcilat", "drw_pmu", "rasdes_pmu", "pciescope_lab"]);
}

fn storm(rig: &Digitizers, lab0: &str) {
    let (seconds, seed) = (number("PCIESCOPE_STORM_SECONDS", 20), number("PCIESCOPE_STORM_SEED", 3));
    let keep = std::env::var_os("PCIESCOPE_STORM_KEEP").map(PathBuf::from);
    let corpus = keep.clone().unwrap_or_else(|| CORPUS.into());
    let corpus = std::fs::read(corpus).unwrap_or_default();
    rig.vm.push_file("/tmp/corpus", &corpus).unwrap_or_else(|err| lab_failed(err));
    say!("{seconds} s, seed {seed}, {} sequences", corpus.iter().filter(|byte| **byte == b'\n').count());
    let board = rig.board(SLOT);
    let pmus = PMUS.map(|pmu| format!(" pmu={pmu}")).concat();
    let command = format!(
        "/lib/pciescope/storm {seconds} {seed} /tmp/corpus pcilat={lab0} sis8300={},{} cpu=1{pmus}",
        board.node(),
        rig.address(SLOT)
    );
    let output = rig.run_within(&command, Duration::from_secs(seconds) + REPLAY);
    if let Some(keep) = keep {
        let kept = rig.vm.pull_file("/tmp/corpus").unwrap_or_else(|err| lab_failed(err));
        std::fs::write(&keep, kept).unwrap_or_else(|err| panic!("cannot write {}: {err}", keep.display()));
    }
    say!("{}", output.stdout.trim());
    assert!(output.is_success(), "{}{}\n{}", output.stdout, output.stderr, rig.must("dmesg | tail -50"));
    let did: Value = serde_json::from_str(&output.stdout).unwrap();
    assert!(did["sequences"].as_u64() > Some(seconds) && did["calls"].as_u64() > Some(10 * seconds), "{did}");
}

fn pcilat_measures(rig: &Digitizers, endpoint: &Endpoint, lab0: &str) {
    let node = format!("/sys/class/pcilat/{lab0}/pcilat_iomem");
    endpoint.tell("reset");
    rig.must(&format!("echo clear >{node}; echo 'run 0 100 0' >{node}"));
    assert_eq!(seen(&endpoint.ledger(), "reads", 0, 0, 4), 100 * CPUS);
    assert!(rig.must(&format!("cat {node}")).contains(&format!("count={}", 100 * CPUS)));
}

/// A user may have set how samples' bytes stand and what they are. The board is made new before.
fn the_digitizer_reads(rig: &Digitizers) {
    let (board, address) = (rig.board(SLOT), rig.address(SLOT));
    rig.must(&format!("echo {address} >/sys/bus/pci/drivers/sis8300/unbind"));
    board.tell("reset");
    rig.must(&format!("echo {address} >/sys/bus/pci/drivers/sis8300/bind"));
    drive(rig, board, &["setup samples=4096", "arm", "wait 5000", "pread 0 81920", "pread 0x68000010 600000"])
        .all_well();
    assert!(board.count("/dma_read/bytes") >= 81920 + 600_000);
}

/// A run keeps a CPU busy for minutes. What waits for every task that runs (synchronize_rcu_tasks()) waits for its turns only.
fn a_removed_pmu_goes_while_a_run_lasts(rig: &Digitizers, lab0: &str) {
    let (pmu, port) = ("dwc_rootport_3008", "0000:30:01.0");
    let held = rig.vm.start(&format!("exec /lib/pciescope/counter_stress hold {pmu}:0x1070c"));
    rig.wait_for("the event is open", || {
        assert!(held.status().is_none(), "{}", held.stdout());
        held.stdout().contains("ready").then_some(())
    });
    let run = rig.vm.start(&format!("echo 'run 0 1000000000 0' >/sys/class/pcilat/{lab0}/pcilat_iomem"));
    rig.wait_until("the run has begun", "pidof pcilat/0 >/dev/null || ps | grep -q '[p]cilat/0'");
    rig.must(&format!("echo 1 >/sys/bus/pci/devices/{port}/remove; test -e /sys/bus/event_source/devices/{pmu}"));
    held.signal("INT").unwrap_or_else(|err| lab_failed(err));
    let output = held.wait_within(PATIENCE).unwrap_or_else(|err| panic!("it did not end: {err}"));
    assert!(output.is_success(), "{}{}", output.stdout, output.stderr);
    rig.wait_until("the PMU goes", &format!("! test -e /sys/bus/event_source/devices/{pmu}"));
    assert!(run.status().is_none(), "the run ended: {run:?}");
    run.signal("TERM").unwrap_or_else(|err| lab_failed(err));
    let _ = run.wait_within(PATIENCE).unwrap_or_else(|err| panic!("the run does not end: {err}"));
    rig.must("echo 1 >/sys/bus/pci/rescan");
    rig.wait_until("the PMU is back", &format!("test -e /sys/bus/event_source/devices/{pmu}"));
}

/// An event of each PMU, of which as many happen as are told.
fn the_pmus_count(rig: &Digitizers, counters: &Endpoint) {
    let held = rig.vm.start("exec /lib/pciescope/counter_stress hold ali_drw_40021000:0x0f dwc_rootport_1000:0x1070c");
    rig.wait_for("the events are open", || {
        assert!(held.status().is_none(), "{}", held.stdout());
        held.stdout().contains("ready").then_some(())
    });
    counters.tell("dram 40021000 add op_is_rd 12345");
    counters.tell("port 0000:10:00.0 event 0x70c 54321");
    held.signal("INT").unwrap_or_else(|err| lab_failed(err));
    let output = held.wait_within(PATIENCE).unwrap_or_else(|err| panic!("it did not end: {err}"));
    assert!(output.is_success(), "{}{}", output.stdout, output.stderr);
    let lines = output.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let counted: Vec<_> = lines.filter(|line| line["close"].is_string()).map(|line| line["count"].clone()).collect();
    assert_eq!(counted, [12345, 54321]);
}
