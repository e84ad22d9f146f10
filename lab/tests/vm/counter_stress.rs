//! Everything at once, on both drivers: sessions that come and go, CPUs, devices and ports that are taken away and
//! brought back, in several processes, with traffic. Those who count all the while miss nothing and invent nothing,
//! the kernel's log says nothing, and the modules can be unloaded in the end.
//!
//! `PCIESCOPE_STRESS_SECONDS` says for how long on each kernel, `PCIESCOPE_STRESS_SEED` with which random numbers.

use std::time::{Duration, Instant};

use crate::say;
use crate::support::PATIENCE;
use crate::support::counters::{Counters, Truth};
use pciescope_lab::vm::Running;
use serde_json::Value;

/// Sub-channels and ports that somebody counts on from begin to end. They stay; nothing else on them does.
const HELD_SUBS: [&str; 2] = ["21000", "40021000"];
const HELD_PORTS: [(&str, &str); 2] = [("0000:10:00.0", "dwc_rootport_1000"), ("0000:b0:00.0", "dwc_rootport_b000")];
/// Taken away by their places among the sub-channels; the first shares its interrupt line with a held one.
const TAKEN_SUBS: [usize; 3] = [1, 2, 10];
const TAKEN_PORTS: [&str; 3] = ["0000:30:00.0", "0000:30:01.0", "0000:80:02.0"];

/// Steady, and counted by nobody else: the board's `counted` is the session's.
const HIF_RD: u64 = 0x02;
/// Happens now and then, past 32 bits, and others count it too: what happened is the session's.
const OP_IS_RD: u64 = 0x0f;
/// The same of a port, without what payload brings along: an event that only the session counts, one that others count
/// too, and payload.
const PORT_EVENTS: [u64; 2] = [0x70c, 0x700];
const RX_PAYLOAD: u64 = 0x21;
/// How long somebody knocks at PMUs that come and go, in seconds, on 6.1, which an open PMU without its device crashed within
/// that time, and on other kernels, which bear it.
const KNOCKING: [u64; 2] = [10, 5];
/// How often an event is asked for with random attributes: at least, and for each second of the stress.
const ATTEMPTS: [u64; 2] = [5_000, 700];

/// With drw_pmu and rasdes_pmu loaded.
pub fn who_counts_all_the_while_misses_nothing(rig: &Counters) {
    let seconds = number("PCIESCOPE_STRESS_SECONDS", 5);
    let seed = number("PCIESCOPE_STRESS_SEED", 3);
    say!("stress for {seconds} s, seed {seed}");
    let said = what_drivers_said(rig);
    let [least, each_second] = ATTEMPTS;
    hostile_attributes_get_an_errno(rig, (seconds * each_second).max(least), seed);
    let [on_6_1, elsewhere] = KNOCKING;
    let knocking = if rig.release().starts_with("6.1.") { on_6_1 } else { elsewhere };
    nobody_gets_in_while_a_pmu_comes_or_goes(rig, (seconds / 6).max(knocking), seed);
    everything_at_once(rig, seconds, seed);
    rig.check_log();
    assert_eq!(what_drivers_said(rig), said, "users' doings are no news");
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn what_drivers_said(rig: &Counters) -> String {
    rig.must("dmesg | grep -E 'drw_pmu|rasdes_pmu|ali_drw_[0-9]|dwc_rootport|pciescope_lab' || true")
}

fn hostile_attributes_get_an_errno(rig: &Counters, times: u64, seed: u64) {
    let before = rig.log_lines();
    let answer: Value = serde_json::from_str(&rig.must(&format!("/lib/pciescope/pmu_abuse {seed} {times}"))).unwrap();
    say!("pmu_abuse: {answer}");
    assert!(answer["opened"].as_u64() > Some(100) && answer["refused"].as_u64() > Some(1000), "{answer}");
    assert_eq!(rig.log_lines(), before, "{}", rig.must("dmesg | tail -5"));
    for sub in HELD_SUBS {
        assert_eq!(rig.truth().enabled(sub), 0, "{sub} is left counting");
    }
}

/// A program that knows a PMU's number need not wait for it: perf gives the number away before the PMU is complete.
fn nobody_gets_in_while_a_pmu_comes_or_goes(rig: &Counters, seconds: u64, seed: u64) {
    let [_, port, _] = TAKEN_PORTS;
    let pmus = format!("ali_drw_40023000:{HIF_RD} dwc_rootport_3008:{RX_PAYLOAD}");
    let knockers = (0..2).map(|n| format!("knock {} {seconds} {pmus}", seed + n));
    let comings = [
        format!("disturb {} {seconds} drw:{}", seed + 2, drw_devices(rig)[TAKEN_SUBS[2]]),
        format!("disturb {} {seconds} port:{port}", seed + 3),
    ];
    let running: Vec<_> = knockers.chain(comings).map(|args| start(rig, &args)).collect();
    let did: Vec<Value> = running.into_iter().flat_map(|running| ended(running, PATIENCE)).collect();
    say!("knocking: {}", did.iter().map(Value::to_string).collect::<Vec<_>>().join(" "));
    for line in &did {
        let all = ["opened", "refused", "taken"].map(|key| line[key].as_u64());
        assert!(all.iter().flatten().all(|n| *n > 0), "nothing was open, closed or taken: {line}");
    }
    rig.check_log();
}

/// The sub-channels' devices, by their places.
fn drw_devices(rig: &Counters) -> Vec<String> {
    let devices = rig.must("cd /sys/bus/platform/devices; ls -d ali_drw_pmu.* | sort -t. -k2 -n");
    devices.lines().map(str::to_owned).collect()
}

fn start<'a>(rig: &'a Counters, args: &str) -> Running<'a> {
    let script = format!("exec /lib/pciescope/counter_stress {args}");
    rig.vm.start(&script)
}

/// Waits for a process that has to succeed, and gives the lines that it wrote.
fn ended(running: Running<'_>, wait: Duration) -> Vec<Value> {
    let output = running.wait_within(wait).unwrap_or_else(|err| panic!("it did not end: {err}"));
    assert!(output.is_success(), "{}{}", output.stdout, output.stderr);
    output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What is disturbed and by how many; the order is that of their starts.
fn disturbers<'a>(rig: &'a Counters, seconds: u64, seed: u64) -> Vec<Running<'a>> {
    let spared = format!("{HIF_RD:#x} {:#x}", 1 << 16 | PORT_EVENTS[0]);
    let devices = drw_devices(rig);
    let subs: String = TAKEN_SUBS.map(|place| format!(" drw:{}", devices[place])).concat();
    let ports: String = TAKEN_PORTS.map(|port| format!(" port:{port}")).concat();
    let sessions = (0..3).map(|n| format!("come-and-go {} {seconds} {spared}", seed + n));
    let others = [
        format!("disturb {} {seconds} cpu:1 cpu:2 cpu:3", seed + 3),
        format!("disturb {} {seconds}{subs}", seed + 4),
        format!("disturb {} {seconds}{ports}", seed + 5),
    ];
    sessions.chain(others).map(|args| start(rig, &args)).collect()
}

/// What has happened to those who are held, as this side brought it about.
#[derive(Default)]
struct Happened {
    reads: [u64; 2],
    port_events: [[u64; 2]; 2],
    payload: [u64; 2],
}

impl Happened {
    /// A little of everything, of another size each time, past the end of 32 bits now and then.
    fn more(&mut self, rig: &Counters, round: u64) {
        for (at, sub) in HELD_SUBS.into_iter().enumerate() {
            let n = if round % 4 == 0 { 3_000_000_000 + round } else { 1_000 + round };
            rig.tell(&format!("dram {sub} add op_is_rd {n}"));
            self.reads[at] += n;
        }
        for (at, (port, _)) in HELD_PORTS.into_iter().enumerate() {
            for (counted, code) in self.port_events[at].iter_mut().zip(PORT_EVENTS) {
                rig.tell(&format!("port {port} event {code:#05x} {}", 100_003 + round));
                *counted += 100_003 + round;
            }
            rig.tell(&format!("port {port} traffic rx {}", 16 * (1_000 + round)));
            self.payload[at] += 16 * (1_000 + round);
        }
        // The interrupt is answered before it comes again.
        for sub in HELD_SUBS {
            rig.wait_for("an interrupt is answered", || (!rig.truth().is_asserted(sub)).then_some(()));
        }
    }
}

fn rates(rig: &Counters, is_on: bool) {
    let on = u64::from(is_on);
    rig.tell(&format!("dram all rate hif_rd {}", on * 40_159_522));
    rig.tell(&format!("dram all rate hif_wr {}", on * 11_960));
    for port in TAKEN_PORTS {
        rig.tell(&format!("port {port} rate rx {}", on * 3_000_000_007));
    }
}

fn everything_at_once(rig: &Counters, seconds: u64, seed: u64) {
    let subs = HELD_SUBS.map(|sub| format!("ali_drw_{sub}:{HIF_RD:#x} ali_drw_{sub}:{OP_IS_RD:#x}"));
    let [own, shared] = PORT_EVENTS.map(|event| 1 << 16 | event);
    let ports = HELD_PORTS.map(|(_, pmu)| format!("{pmu}:{own:#x} {pmu}:{shared:#x} {pmu}:{RX_PAYLOAD:#x}"));
    let before = rig.truth();
    let held = start(rig, &format!("hold {} {}", subs.join(" "), ports.join(" ")));
    rig.wait_for("the sessions are open", || {
        assert!(held.status().is_none(), "{}", held.stdout());
        held.stdout().contains("ready").then_some(())
    });
    rates(rig, true);
    let disturbers = disturbers(rig, seconds, seed);
    let mut happened = Happened::default();
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut round = 0;
    while Instant::now() < end {
        round += 1;
        // Surprise removal: all-ones from what may not even be there.
        let port = TAKEN_PORTS[round as usize % 3];
        rig.tell(&format!("port {port} gone"));
        happened.more(rig, round);
        rig.tell(&format!("port {port} back"));
        std::thread::sleep(Duration::from_millis(20));
    }
    // Whoever is slow may finish its step; a machine of one's own would be quicker.
    let did: Vec<Value> = disturbers.into_iter().flat_map(|running| ended(running, PATIENCE)).collect();
    say!("{round} rounds beside {}", did.iter().map(Value::to_string).collect::<Vec<_>>().join(" "));
    // How often depends on the host; each has to have done something.
    for line in &did {
        assert!(line["opened"].as_u64().or(line["taken"].as_u64()) > Some(0), "nothing was disturbed: {line}");
    }
    rates(rig, false);
    happened.more(rig, round + 1);
    held.signal("INT").unwrap_or_else(|err| panic!("the lab failed: {err}"));
    let lines = ended(held, PATIENCE);
    compare(&lines, &before, &rig.truth(), &happened);
    for sub in HELD_SUBS {
        assert_eq!(rig.truth().enabled(sub), 0, "{sub} is left counting");
        assert_eq!(rig.truth().0["dram"][sub]["running"], false, "{sub} is left running");
    }
}

fn compare(lines: &[Value], before: &Truth, truth: &Truth, happened: &Happened) {
    let closed = |pmu: &str, config: u64| {
        let line = lines.iter().find(|line| line["close"] == pmu && line["config"] == config);
        let line = line.unwrap_or_else(|| panic!("{pmu} {config:#x} was not closed: {lines:?}"));
        assert_eq!(line["enabled_ns"], line["running_ns"], "pinned events always count: {line}");
        line["count"].as_u64().unwrap()
    };
    for (at, sub) in HELD_SUBS.into_iter().enumerate() {
        let pmu = format!("ali_drw_{sub}");
        let steady = truth.counted(before, sub, "hif_rd");
        assert!(steady > 10_000_000, "{sub}: {steady}");
        assert_eq!(closed(&pmu, HIF_RD), steady, "{pmu} hif_rd");
        assert_eq!(truth.happened(before, sub, "op_is_rd"), happened.reads[at]);
        assert_eq!(closed(&pmu, OP_IS_RD), happened.reads[at], "{pmu} op_is_rd");
    }
    for (at, (port, pmu)) in HELD_PORTS.into_iter().enumerate() {
        for (n, code) in happened.port_events[at].into_iter().zip(PORT_EVENTS) {
            assert_eq!(closed(pmu, 1 << 16 | code), n, "{pmu} {code:#x}");
        }
        assert_eq!(closed(pmu, RX_PAYLOAD), happened.payload[at], "{pmu} payload");
        let violations = &truth.0["ports"][port]["violations"];
        assert!(violations.as_array().is_none_or(Vec::is_empty), "{port}: {violations}");
    }
}
