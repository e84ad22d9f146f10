//! `pciescope stat` on the counter board: what it says is what the board's ledger has, of single events to the count, and
//! what perf says of the same events at the same time.

#![allow(clippy::unwrap_used, reason = "a test may panic; its helpers are tests too")]

mod support;

use std::time::{Duration, Instant};

use pciescope_core::{Metric, Record};
use pciescope_lab::vm::{Device, Kernel, Place};
use support::counters::{Counters, Truth};
use support::{program, settle};

/// A root port of the seed's machine with a device below, and its PMU.
const PORT: &str = "0000:00:02.0";
const PMU: &str = "dwc_rootport_10";
/// One that is taken away.
const VICTIM: &str = "0000:80:03.0";
const VICTIM_PMU: &str = "dwc_rootport_8018";
/// A sub-channel of each die.
const SUB: &str = "21000";
const FAR_SUB: &str = "40023080";

struct Rig(Counters);

/// The records of one `pciescope stat`.
struct Counted(Vec<Record>);

impl Rig {
    /// Starts `pciescope stat ARGS` with a command that lasts until it is told to end, and waits until it counts.
    fn stat(&self, args: &str, meanwhile: impl FnOnce()) -> Counted {
        self.0.must("rm -f /tmp/go /tmp/stop");
        let wait = "sh -c 'touch /tmp/go; until [ -e /tmp/stop ]; do sleep 0.05; done'";
        let script = format!("exec pciescope stat {args} -j -o /tmp/stat.jsonl --overwrite -- {wait}");
        let running = self.0.vm.start(&script).unwrap();
        self.0.wait_for("pciescope stat counts", || {
            if let Some(status) = running.status() {
                panic!("pciescope stat {args} ended with {status}: {}", running.wait().unwrap().stderr);
            }
            self.0.run("test -e /tmp/go").is_success().then_some(())
        });
        meanwhile();
        self.0.must("touch /tmp/stop");
        let output = running.wait().unwrap();
        assert_eq!(output.status, 0, "pciescope stat {args}: {}", output.stderr);
        self.records()
    }

    /// Waits until the port's payload is counted.
    fn counts(&self) {
        let is_running = || self.0.truth().0["ports"][PORT]["tba"]["running"] == true;
        self.0.wait_for("pciescope stat counts", || is_running().then_some(()));
    }

    fn records(&self) -> Counted {
        let text = self.0.read("/tmp/stat.jsonl");
        Counted(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }
}

impl Counted {
    /// The records of a PMU.
    fn of(&self, pmu: &str) -> impl Iterator<Item = &Record> {
        self.0.iter().filter(move |record| record.instance.as_ref().is_some_and(|i| i.pmu.as_deref() == Some(pmu)))
    }

    /// A figure of the only record of a PMU.
    fn metric(&self, pmu: &str, name: &str) -> Metric {
        let all: Vec<_> = self.of(pmu).collect();
        assert_eq!(all.len(), 1, "{pmu}: {} records", all.len());
        all[0].metrics.get(name).unwrap_or_else(|| panic!("{pmu} has no {name}: {:?}", all[0])).clone()
    }

    /// The sum of a figure over all intervals.
    fn sum(&self, pmu: &str, name: &str) -> f64 {
        self.of(pmu).filter_map(|record| record.metrics.get(name)).map(|metric| metric.value).sum()
    }

    /// The record of a sum of channels.
    fn total(&self) -> &Record {
        let is_total = |record: &&Record| record.instance.as_ref().is_some_and(|i| i.scope == "total");
        self.0.iter().find(is_total).unwrap_or_else(|| panic!("there is no record of the total"))
    }
}

/// What a port's event counter counted between two looks.
fn events(before: &Truth, after: &Truth, event: &str) -> u64 {
    let of = |truth: &Truth| truth.0["ports"][PORT]["events"][event]["counted"].as_u64().unwrap_or(0);
    of(after) - of(before)
}

/// The bytes that a port's payload report counted between two looks.
fn payload(before: &Truth, after: &Truth, report: &str) -> u64 {
    let of = |truth: &Truth| truth.0["ports"][PORT]["tba"]["reports"][report]["counted"].as_u64().unwrap_or(0);
    16 * (of(after) - of(before))
}

struct Steps(Instant);

impl Steps {
    fn step(&mut self, what: &str) {
        eprintln!("{:6.2} s  {what}", self.0.elapsed().as_secs_f64());
        self.0 = Instant::now();
    }
}

#[test]
fn what_stat_says_is_what_the_board_counted() {
    let mut steps = Steps(Instant::now());
    let rig = Rig(Counters::boot(Kernel::V6_12, "rasdes_pmu", |builder| {
        let below = Place::Port(PORT.parse().unwrap());
        builder.module("drw_pmu").program(program()).device("below", Device::E1000e, below)
    }));

    steps.step("what can be counted is listed");
    let list = rig.0.must("pciescope stat --list");
    assert_eq!(list.lines().filter(|line| line.starts_with("dwc_rootport_")).count(), 18, "{list}");
    assert_eq!(list.lines().filter(|line| line.starts_with("ali_drw_")).count(), 16, "{list}");

    // A turn of perf's usual 4 ms is little against what the emulator takes to begin a measurement.
    rig.0.must(&format!("echo 40 > /sys/bus/event_source/devices/{PMU}/perf_event_mux_interval_ms"));

    steps.step("single events, and perf beside");
    single_events(&rig);
    steps.step("the usual figures");
    usual(&rig);
    steps.step("intervals add up");
    intervals(&rig);
    steps.step("exit codes");
    exit_codes(&rig);
    steps.step("states");
    states(&rig);
    steps.step("a counter at its end");
    saturated(&rig);
    steps.step("a port that is taken away");
    removed(&rig);
    steps.step("the end");
    rig.0.finish(&["rasdes_pmu", "drw_pmu"]);
}

/// To the count, under perf's own names; perf counts the same at the same time and says the same.
fn single_events(rig: &Rig) {
    let names = [
        format!("{PMU}/rx_pcie_tlp_data_payload/"),
        format!("{PMU}/lcrc_error/"),
        format!("{PMU}/rx_memory_write/"),
        format!("{}/hif_rd/", rig.0.pmu(SUB)),
        format!("{}/cycle/", rig.0.pmu(FAR_SUB)),
        format!("{}/hif_wr/", rig.0.pmu(FAR_SUB)),
    ];
    let perf = rig.0.perf_start("beside", &format!("-e {} sleep 1000", names.join(" -e ")));
    rig.0.wait_for("perf counts", || (rig.0.truth().enabled(FAR_SUB) > 0).then_some(()));
    let before = rig.0.truth();
    let counted = rig.stat(&format!("-e {}", names.join(",")), || {
        rig.0.tell(&format!("port {PORT} traffic rx 5000000000"));
        rig.0.tell(&format!("port {PORT} event 0x201 100"));
        rig.0.tell(&format!("dram {SUB} add hif_rd 4294967396"));
        rig.0.tell(&format!("dram {FAR_SUB} add hif_wr 77"));
    });
    let read = perf.end();
    let truth = rig.0.truth();
    let value = |pmu: &str, name: &str| counted.metric(pmu, name).value as u64;
    let rx = value(PMU, "rx_pcie_tlp_data_payload");
    assert_eq!(rx, 5_000_000_000, "payload in bytes");
    assert_eq!(rx, payload(&before, &truth, "0x21"));
    assert_eq!((value(PMU, "lcrc_error"), events(&before, &truth, "0x201")), (100, 100));
    assert_eq!(value(PMU, "rx_memory_write"), events(&before, &truth, "0x70b"));
    assert_eq!(value(rig.0.pmu(SUB), "hif_rd"), 4_294_967_396, "past 32 bits");
    assert_eq!(value(rig.0.pmu(FAR_SUB), "hif_wr"), 77);
    for metric in ["rx_pcie_tlp_data_payload", "lcrc_error"] {
        assert_eq!(counted.metric(PMU, metric).running, None, "{metric} is exact");
    }
    for reading in read.iter().filter(|reading| reading.name() != "cycle") {
        assert_eq!(reading.counted(), value(reading.pmu(), reading.name()), "perf's {}", reading.event);
    }
}

/// Rates, shares of the ceiling, errors by layer, channels with their sums, and the devices below.
fn usual(rig: &Rig) {
    rig.0.tell(&format!("port {PORT} rate rx 300000000"));
    rig.0.tell(&format!("port {PORT} rate tx 100000000"));
    settle("a steady load, both directions by turns", || {
        let before = rig.0.truth();
        let counted = rig.stat("", || {
            rig.0.tell(&format!("dram {SUB} add hif_rd 1000"));
            rig.0.tell(&format!("dram {SUB} add hif_rmw 10"));
            rig.0.tell(&format!("dram {FAR_SUB} add hif_wr 500"));
            rig.0.tell(&format!("port {PORT} event 0x205 3"));
            std::thread::sleep(Duration::from_secs(4));
        });
        let truth = rig.0.truth();
        let total = counted.total();
        assert_eq!(total.metrics["read_bytes"].value, 64_000.0);
        assert_eq!(total.metrics["write_bytes"].value, 64.0 * 510.0);
        assert_eq!(total.instance.as_ref().unwrap().parts, Some(16));
        let dies = counted.0.iter().filter(|record| record.instance.as_ref().is_some_and(|i| i.scope == "die"));
        let of_dies: Vec<_> =
            dies.map(|r| (r.instance.as_ref().unwrap().node, r.metrics["write_bytes"].value)).collect();
        assert_eq!(of_dies, [(Some(0), 640.0), (Some(1), 32_000.0)]);
        assert_eq!(counted.metric(PMU, "naks").value, events(&before, &truth, "0x205") as f64);
        let port = counted.of(PMU).next().unwrap();
        assert_eq!(port.device.as_ref().unwrap().bdf.unwrap().to_string(), PORT);
        assert_eq!(port.instance.as_ref().unwrap().below.len(), 1, "the network card");
        assert!(port.metrics["naks"].running.is_none(), "errors need not wait for the payload");
        for (name, rate) in [("rx_bytes_per_s", 300e6), ("tx_bytes_per_s", 100e6)] {
            let metric = &port.metrics[name];
            let running = metric.running.unwrap_or(1.0);
            if !(0.3..0.7).contains(&running) {
                return Err(format!("{name}: ran for {running}"));
            }
            let off = (metric.value / rate - 1.0).abs() * 100.0;
            eprintln!("         {name}: {off:.3} % off, ran for {running:.3}");
            if off > 5.0 {
                return Err(format!("{name}: {off} % off"));
            }
        }
        Ok(())
    });
    rig.0.tell(&format!("port {PORT} rate rx 0"));
    rig.0.tell(&format!("port {PORT} rate tx 0"));
}

/// Nothing is lost between two intervals, and they follow each other without a gap.
fn intervals(rig: &Rig) {
    let args = format!("-I 50 -e {PMU}/rx_pcie_tlp_data_payload/,{}/hif_rd/", rig.0.pmu(SUB));
    let counted = rig.stat(&args, || {
        for _ in 0..20 {
            rig.0.tell(&format!("port {PORT} traffic rx 1000000"));
            rig.0.tell(&format!("dram {SUB} add hif_rd 1000"));
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert_eq!(counted.sum(PMU, "rx_pcie_tlp_data_payload"), 20e6);
    assert_eq!(counted.sum(rig.0.pmu(SUB), "hif_rd"), 20e3);
    let times: Vec<_> = counted.of(PMU).map(|record| record.interval.unwrap()).collect();
    assert!(times.len() > 3, "{} intervals", times.len());
    assert!(times.windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns), "{times:?}");
    let counted = rig.0.must("pciescope stat -I 20 --count 3 -j ali_drw_21000 | grep -c '\"scope\":\"channel\"'");
    assert_eq!(counted, "3");
}

/// The command's exit code is ours, and its signal is 128 more; Ctrl-C shows what was counted.
fn exit_codes(rig: &Rig) {
    assert_eq!(rig.0.run(&format!("pciescope stat {PMU} -- sh -c 'exit 7'")).status, 7);
    assert_eq!(rig.0.run(&format!("pciescope stat {PMU} -- sh -c 'kill -9 $$'")).status, 137);
    let missing = rig.0.run(&format!("pciescope stat {PMU} -- /no/such/program"));
    assert!(missing.status == 2 && missing.stderr.contains("/no/such/program"), "{missing:?}");
    let running = rig.0.vm.start(&format!("exec pciescope stat {PMU}")).unwrap();
    rig.counts();
    running.signal("INT").unwrap();
    let output = running.wait().unwrap();
    assert_eq!(output.status, 130, "{}", output.stderr);
    assert!(output.stdout.contains(PORT), "{}", output.stdout);
    // Ctrl-C goes on to the command, and its end is waited for.
    rig.0.must("rm -f /tmp/go");
    let script = format!(
        "exec pciescope stat {PMU} -- sh -c 'trap \"exit 5\" INT; touch /tmp/go; while :; do sleep 0.05; done'"
    );
    let running = rig.0.vm.start(&script).unwrap();
    rig.0.wait_for("the command runs", || rig.0.run("test -e /tmp/go").is_success().then_some(()));
    running.signal("INT").unwrap();
    assert_eq!(running.wait().unwrap().status, 5);
    let none = rig.0.run("pciescope stat no_such_pmu");
    assert!(none.status == 2 && none.stderr.contains("no_such_pmu"), "{none:?}");
}

/// Shares of time against what the board was told: each state by itself, and by turns, which is as coarse as the turns.
fn states(rig: &Rig) {
    rig.0.tell(&format!("port {PORT} states L0=70,L1=20,TX_L0S=10"));
    let told = [("l0_share", 70.0), ("l1_share", 20.0), ("tx_l0s_share", 10.0)];
    let share_of = |metrics: &str, name: &str| {
        let counted = rig.stat(&format!("--metric {metrics} {PORT}"), || std::thread::sleep(Duration::from_secs(1)));
        let metric = counted.metric(PMU, name);
        eprintln!("         {name}: {:.3} {}, ran for {:.3}", metric.value, metric.unit, metric.running.unwrap_or(1.0));
        assert_eq!(metric.unit, "%");
        metric
    };
    for (name, share) in told {
        settle("the share of time in a state", || {
            let metric = share_of(name, name);
            assert_eq!(metric.running, None, "nothing takes turns");
            if (metric.value - share).abs() < 1.0 { Ok(()) } else { Err(format!("{name}: {} %", metric.value)) }
        });
    }
    let all = told.map(|(name, _)| name).join(",");
    settle("shares of time by turns", || {
        let metric = share_of(&all, "l0_share");
        assert!(metric.running.is_some_and(|share| share < 0.6), "three take turns: {metric:?}");
        if (metric.value - 70.0).abs() < 20.0 { Ok(()) } else { Err(format!("l0_share: {} %", metric.value)) }
    });
    rig.0.tell(&format!("port {PORT} states L0=100"));
}

/// A counter of 8 bits that reached its end before the driver came to it.
fn saturated(rig: &Rig) {
    let before = rig.0.truth();
    let counted = rig.stat(&format!("-e {PMU}/lcrc_error/,{PMU}/bad_tlp/"), || {
        rig.0.tell(&format!("port {PORT} event 0x201 5000"));
        rig.0.tell(&format!("port {PORT} event 0x200 5"));
    });
    let lcrc = counted.metric(PMU, "lcrc_error");
    let truth = rig.0.truth();
    let gained = |what: &str| {
        let of = |truth: &Truth| truth.0["ports"][PORT]["events"]["0x201"][what].as_u64().unwrap();
        of(&truth) - of(&before)
    };
    assert_eq!(gained("happened"), 5000);
    assert!(gained("lost") > 0 && lcrc.at_least, "{lcrc:?}");
    assert_eq!(lcrc.value, (gained("happened") - gained("lost")) as f64, "what the counter had room for");
    let bad = counted.metric(PMU, "bad_tlp");
    assert!(!bad.at_least && bad.value == 5.0, "{bad:?}");
    let record = counted.of(PMU).next().unwrap();
    assert!(record.warnings.iter().any(|warning| warning.code == "saturated"), "{:?}", record.warnings);
}

/// One port's end is an error of that port; the others go on and their counts are whole.
fn removed(rig: &Rig) {
    let script = format!("exec pciescope stat -I 100 -j -o /tmp/stat.jsonl --overwrite {PMU} {VICTIM_PMU}");
    let running = rig.0.vm.start(&script).unwrap();
    rig.counts();
    rig.0.must(&format!("echo 1 > /sys/bus/pci/devices/{VICTIM}/remove"));
    rig.0.tell(&format!("port {PORT} event 0x205 9"));
    rig.0.must("sleep 3");
    running.signal("INT").unwrap();
    let output = running.wait().unwrap();
    assert_eq!(output.status, 2, "{}", output.stderr);
    assert!(output.stderr.contains(VICTIM_PMU), "{}", output.stderr);
    let counted = rig.records();
    let errors: Vec<_> = counted.of(VICTIM_PMU).filter_map(|record| record.error.as_ref()).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].code, "removed");
    assert!(counted.of(PMU).count() > counted.of(VICTIM_PMU).count(), "the other goes on");
    assert_eq!(counted.sum(PMU, "rx_nak_dllp"), 9.0);
}
