//! rasdes_pmu on the counter board: what perf reads of it is what the board counted, event by event, and what goes
//! wrong with the hardware neither loses nor invents a count. docs/pmu.md, docs/spec/counter-board.md.

use std::time::{Duration, Instant};

use crate::support::rasdes::{Rig, Session};
use crate::support::settle;
use crate::{say, shim};
use pciescope_core::Bdf;
use pciescope_lab::device::CounterBoard;
use pciescope_lab::device::rasdes::Shape;
use pciescope_lab::device::traffic::Traffic;
use pciescope_lab::vm::{Attachment, Builder, GuestDevice, Kernel, RootPort};
use serde_json::Value;

/// A port of x4, on which most of it happens, and its PMU.
const PORT: &str = "0000:00:01.0";
const PMU: &str = "dwc_rootport_8";
/// A second one.
const OTHER: &str = "0000:00:02.0";
const OTHER_PMU: &str = "dwc_rootport_10";
/// One of x16 on a bus of its own, on the second NUMA node.
const WIDE: &str = "0000:b0:00.0";
const WIDE_PMU: &str = "dwc_rootport_b000";
/// One with an endpoint below, and the endpoint.
const ABOVE: &str = "0000:00:03.0";
const ENDPOINT: &str = "0000:03:00.0";

/// Event codes by group, as docs/pmu.md has them.
const EVENTS: [&[u64]; 8] = [
    &[0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a],
    &[0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0c, 0x0d],
    &[0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07],
    &[0x00, 0x01, 0x02, 0x03, 0x04, 0x05],
    &[0x00, 0x01],
    &[0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d],
    &[0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06],
    &[
        0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11,
        0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19,
    ],
];

const TX_PAYLOAD: u64 = 0x20;
const RX_PAYLOAD: u64 = 0x21;
const LCRC_ERROR: u64 = 0x201;
const TX_MEMORY_WRITE: u64 = 0x700;

/// Waits much longer than the driver's poll: whatever is in use was looked at, on a busy host too. Where accesses are slow,
/// as on a kernel that looks for faults, the driver leaves a second between two polls.
fn let_poll(rig: &Rig) {
    std::thread::sleep(Duration::from_millis(if is_slow(rig) { 2500 } else { 700 }));
}

fn is_slow(rig: &Rig) -> bool {
    ["-kasan", "-kcsan"].iter().any(|kind| rig.vm.release().ends_with(kind))
}

fn counter(event: u64) -> u64 {
    1 << 16 | event
}

fn on_lane(event: u64, lane: u64) -> u64 {
    lane << 20 | counter(event)
}

fn is_per_lane(event: u64) -> bool {
    matches!(event >> 8, 0 | 4)
}

/// Every event of a port, lane by lane.
fn all_events(lanes: u64) -> Vec<(u64, u64)> {
    let events = (0..8u64).flat_map(|group| EVENTS[group as usize].iter().map(move |code| group << 8 | code));
    events.flat_map(|event| (0..if is_per_lane(event) { lanes } else { 1 }).map(move |lane| (event, lane))).collect()
}

fn ports() -> Vec<RootPort> {
    let port = |address: &str, width, node| RootPort { address: address.parse().unwrap(), generation: 5, width, node };
    vec![port(PORT, 4, None), port(OTHER, 4, None), port(ABOVE, 4, None), port(WIDE, 16, Some(1))]
}

fn board() -> CounterBoard {
    let bdf = |address: &str| address.parse::<Bdf>().unwrap();
    let ids = (0x1ded, 0x8000);
    [PORT, OTHER, ABOVE]
        .into_iter()
        .fold(CounterBoard::new(Traffic::new()), |board, port| board.function(bdf(port), ids, Shape::default()))
        .function(bdf(WIDE), ids, Shape { width: 16, ..Shape::default() })
        .function(bdf(ENDPOINT), (0x1ded, 0x8001), Shape::default())
}

pub fn boot(kernel: Kernel, more: impl FnOnce(Builder) -> Builder) -> Rig {
    let machine = |builder: Builder| {
        builder.root_ports(ports()).numa_nodes(2).device(
            "below",
            GuestDevice::E1000e,
            Attachment::Port(ABOVE.parse().unwrap()),
        )
    };
    let rig = Rig::boot(kernel, board(), |builder| more(machine(builder)));
    assert_eq!(rig.vm.address_of("below").unwrap(), ENDPOINT);
    rig
}

/// A name, and what is tested.
type Step = (&'static str, fn(&Rig));

/// Says what was tested, and how long it took.
struct Steps(Instant);

impl Steps {
    fn step(&mut self, what: &str) {
        say!("{:6.2} s  {what}", self.0.elapsed().as_secs_f64());
        self.0 = Instant::now();
    }
}

fn event(rig: &Rig, port: &str, event: u64, n: u64) {
    rig.tell(&format!("port {port} event {event:#05x} {n}"));
}

/// A number of the ledger; what never happened is not there.
fn counted(ledger: &Value, port: &str, event: u64, lane: u64) -> u64 {
    let name = if is_per_lane(event) { format!("{event:#05x}.{lane}") } else { format!("{event:#05x}") };
    ledger["ports"][port]["events"][name]["counted"].as_u64().unwrap_or(0)
}

/// What a report has counted since the board began, in its units.
fn report(ledger: &Value, port: &str, code: u64) -> u64 {
    ledger["ports"][port]["tba"]["reports"][format!("{code:#04x}")]["counted"].as_u64().unwrap_or(0)
}

pub fn on_6_12_every_count_is_the_boards() {
    let rig = boot(Kernel::V6_12, |builder| builder.module("rasdes_pmu"));
    let mut steps = Steps(Instant::now());
    let tests: [Step; 26] = [
        ("names", sysfs_shows_what_the_page_says),
        ("every event", every_event_counts_what_happened_and_no_other),
        ("lanes", lanes_of_a_wide_port_count_apart),
        ("start and stop", only_what_happens_while_an_event_is_enabled_counts),
        ("saturating", saturated_counters_say_at_least),
        ("refusals", what_does_not_exist_is_refused),
        ("groups", groups_are_judged_as_a_whole),
        ("multiplexed", different_reports_take_turns),
        ("absent", an_event_that_the_hardware_lacks_is_refused),
        ("wrap", counters_wrap_at_32_bits),
        ("payload", payload_counts_past_32_bits),
        ("torn", torn_halves_are_noticed),
        ("mute", data_without_an_answer_are_no_count),
        ("narrow", narrow_data_wrap),
        ("stop", hold_and_zero_lose_nothing),
        ("reports", time_in_states_and_the_clock),
        ("agent", another_agent_does_not_harm),
        ("firmware", what_firmware_enabled_stays_on),
        ("gone", all_ones_are_not_counted),
        ("sessions", two_sessions_do_not_disturb_each_other),
        ("disturbed", what_others_clear_is_put_right),
        ("perf", perf_reads_groups_and_intervals),
        ("cpu", events_survive_their_cpu),
        ("busy", a_busy_machine_loses_nothing),
        ("removal", a_removed_port_keeps_its_counts),
        ("discovery", only_the_right_capability_is_taken),
    ];
    for (what, test) in tests {
        test(&rig);
        rig.tell("reset");
        steps.step(what);
    }
    with_other_parameters(&rig);
    steps.step("parameters");
    if shim::has_in_tree_drivers(Kernel::V6_12) {
        the_in_tree_driver_reads_the_same(&rig);
        steps.step("in-tree");
    }
    rig.finish();
}

pub fn on_5_10_counts_are_the_boards() {
    seeds_names_and_ours(Kernel::V5_10);
}

pub fn on_the_oldest_kernel_the_seeds_names_count() {
    seeds_names_and_ours(Kernel::V6_1);
}

fn seeds_names_and_ours(kernel: Kernel) {
    let rig = boot(kernel, |builder| builder.module("rasdes_pmu naming=seed"));
    the_seeds_names_and_units(&rig);
    rig.tell("reset");
    rig.must("rmmod rasdes_pmu && modprobe rasdes_pmu");
    short(&rig);
    rig.must("rmmod rasdes_pmu");
    rig.finish();
}

pub fn on_the_newest_kernel_counts_are_the_boards() {
    let rig = boot(Kernel::Newest, |builder| builder.module("rasdes_pmu"));
    short(&rig);
    rig.must("rmmod rasdes_pmu");
    if shim::has_in_tree_drivers(Kernel::Newest) {
        the_in_tree_driver_reads_the_same(&rig);
    }
    rig.finish();
}

/// What may differ from kernel to kernel: perf's side.
fn short(rig: &Rig) {
    let tests: [fn(&Rig); 7] = [
        every_event_counts_what_happened_and_no_other,
        what_does_not_exist_is_refused,
        groups_are_judged_as_a_whole,
        payload_counts_past_32_bits,
        perf_reads_groups_and_intervals,
        events_survive_their_cpu,
        a_removed_port_keeps_its_counts,
    ];
    for test in tests {
        test(rig);
        rig.tell("reset");
    }
}

fn sysfs_shows_what_the_page_says(rig: &Rig) {
    let pmus = rig.must("cd /sys/bus/event_source/devices; echo dwc_*");
    assert_eq!(pmus, format!("{OTHER_PMU} dwc_rootport_18 {PMU} {WIDE_PMU}"));
    let expected = [
        ("identifier", "dwc_rasdes_r4"),
        ("bdf", PORT),
        ("saturated", ""),
        ("disturbed", ""),
        ("format/type", "config:16-19"),
        ("format/eventid", "config:0-15"),
        ("format/lane", "config:20-27"),
        ("events/rx_pcie_tlp_data_payload", "eventid=0x21,type=0x0"),
        ("events/rx_pcie_tlp_data_payload.unit", "B"),
        ("events/rx_pcie_tlp_data_payload.scale", "1"),
        ("events/L1_AUX", "eventid=0x8,type=0x0"),
        ("events/ebuf_overflow", "eventid=0x0,type=0x1,lane=?"),
        ("events/lcrc_error", "eventid=0x201,type=0x1"),
        ("events/tx_memory_write", "eventid=0x700,type=0x1"),
    ];
    for (file, text) in expected {
        assert_eq!(rig.pmu_file(PMU, file), text, "{file}");
    }
    // 14 reports and every event, once; and what belongs to the payload.
    let names = rig.must(&format!("ls /sys/bus/event_source/devices/{PMU}/events | wc -l"));
    assert_eq!(names.parse::<usize>().unwrap(), 14 + all_events(1).len() + 8);
    assert!(!rig.succeeds("rmmod rasdes_pmu && modprobe rasdes_pmu naming=other"));
    assert!(!rig.succeeds("modprobe rasdes_pmu poll_ms=0"));
    assert!(!rig.succeeds("modprobe rasdes_pmu tba_bits=31"));
    rig.must("modprobe rasdes_pmu");
}

fn every_event_counts_what_happened_and_no_other(rig: &Rig) {
    let session = Session::start(rig, "all");
    let all = all_events(4);
    let configs: Vec<u64> = all.iter().map(|(event, lane)| on_lane(*event, *lane)).collect();
    let opened = session.open_all(PMU, &configs);
    // A number of its own for each, as far as 4 bits go.
    let n = |index: usize, event: u64| match event >> 8 {
        0 | 4 => 1 + index as u64 % 14,
        1..=3 => 20 + index as u64,
        _ => 1_000_003 * (index as u64 + 1),
    };
    for half in [0, 1] {
        for (index, (event, lane)) in all.iter().enumerate().filter(|(index, _)| index % 2 == half) {
            let lane = if is_per_lane(*event) { format!(" lane {lane}") } else { String::new() };
            rig.tell(&format!("port {PORT} event {event:#05x} {}{lane}", n(index, *event)));
        }
        for (index, value) in session.values(&opened).into_iter().enumerate() {
            let expected = if index % 2 <= half { n(index, all[index].0) } else { 0 };
            assert_eq!(value, expected, "{:#05x} on lane {}", all[index].0, all[index].1);
        }
    }
    let ledger = rig.ledger();
    for ((event, lane), value) in all.iter().zip(session.values(&opened)) {
        assert_eq!(value, counted(&ledger, PORT, *event, *lane), "{event:#05x} on lane {lane}");
    }
    assert_eq!(ledger["ports"][OTHER]["events"].as_object().unwrap().len(), 0);
}

fn lanes_of_a_wide_port_count_apart(rig: &Rig) {
    let session = Session::start(rig, "lanes");
    let configs: Vec<u64> = (0..16).map(|lane| on_lane(0x002, lane)).collect();
    let opened = session.open_all(WIDE_PMU, &configs);
    for lane in 0..16 {
        if lane != 7 {
            rig.tell(&format!("port {WIDE} event 0x002 {} lane {lane}", if lane == 0 { 15 } else { lane }));
        }
    }
    let values = session.values(&opened);
    assert_eq!(values, [15, 1, 2, 3, 4, 5, 6, 0, 8, 9, 10, 11, 12, 13, 14, 15]);
    // Lanes that the link does not have.
    assert_eq!(session.try_open(WIDE_PMU, on_lane(0x002, 16), None).unwrap_err(), "EINVAL");
    assert_eq!(session.try_open(PMU, on_lane(0x002, 4), None).unwrap_err(), "EINVAL");
}

fn only_what_happens_while_an_event_is_enabled_counts(rig: &Rig) {
    let session = Session::start(rig, "startstop");
    event(rig, PORT, TX_MEMORY_WRITE, 5);
    event(rig, PORT, LCRC_ERROR, 5);
    let opened = session.open_all(PMU, &[counter(TX_MEMORY_WRITE), counter(LCRC_ERROR), RX_PAYLOAD]);
    for round in 1..=3 {
        event(rig, PORT, TX_MEMORY_WRITE, 7);
        event(rig, PORT, LCRC_ERROR, 70);
        rig.tell(&format!("port {PORT} traffic rx 1600"));
        session.do_to("disable", &opened);
        event(rig, PORT, TX_MEMORY_WRITE, 1000);
        event(rig, PORT, LCRC_ERROR, 100);
        rig.tell(&format!("port {PORT} traffic rx 160000"));
        assert_eq!(session.values(&opened), [7 * round, 70 * round, 1600 * round]);
        session.do_to("enable", &opened);
    }
    session.do_to("reset", &[opened[0]]);
    event(rig, PORT, TX_MEMORY_WRITE, 2);
    assert_eq!(session.value(opened[0]), 2);
    session.end();
    // Nobody needs it: the hardware's counter is off.
    event(rig, PORT, TX_MEMORY_WRITE, 1);
    let before = counted(&rig.ledger(), PORT, TX_MEMORY_WRITE, 0);
    event(rig, PORT, TX_MEMORY_WRITE, 1);
    assert_eq!(counted(&rig.ledger(), PORT, TX_MEMORY_WRITE, 0), before);
}

fn saturated_counters_say_at_least(rig: &Rig) {
    let session = Session::start(rig, "saturated");
    let opened = session.open_all(PMU, &[counter(LCRC_ERROR), on_lane(0x000, 3), on_lane(0x401, 1)]);
    // With room made in between, nothing is lost.
    for round in 1..=3 {
        event(rig, PORT, LCRC_ERROR, 200);
        rig.tell(&format!("port {PORT} event 0x000 10 lane 3"));
        if round == 1 {
            // Nobody reads: the driver looks by itself.
            let_poll(rig);
        } else {
            assert_eq!(session.values(&opened), [200 * round, 10 * round, 0]);
        }
    }
    assert_eq!(rig.pmu_file(PMU, "saturated"), "");
    event(rig, PORT, LCRC_ERROR, 1000);
    rig.tell(&format!("port {PORT} event 0x401 40 lane 1"));
    assert_eq!(session.values(&opened), [600 + 255, 30, 15]);
    assert_eq!(rig.pmu_file(PMU, "saturated"), "0x201 0 1\n0x401 1 1");
    let ledger = rig.ledger();
    assert_eq!(counted(&ledger, PORT, LCRC_ERROR, 0), 1600);
    assert_eq!(ledger["ports"][PORT]["events"]["0x201"]["lost"], 745);
    // A counter left at its end by an earlier session has room for the next.
    session.end();
    rig.tell(&format!("port {PORT} set {LCRC_ERROR:#05x} 255"));
    let session = Session::start(rig, "saturated");
    let again = session.open(PMU, counter(LCRC_ERROR));
    event(rig, PORT, LCRC_ERROR, 3);
    assert_eq!(session.value(again), 3);
    assert_eq!(rig.pmu_file(PMU, "saturated"), "0x201 0 1\n0x401 1 1", "no event's count was touched");
}

fn what_does_not_exist_is_refused(rig: &Rig) {
    let session = Session::start(rig, "refused");
    let refused = [
        ("a bit of no field", 1 << 28),
        ("a high bit", 1 << 63 | RX_PAYLOAD),
        ("a type of neither kind", 2 << 16),
        ("a report that does not exist", 0x0a),
        ("a report beyond the last", 0x24),
        ("a report's number with more bits", 0x120),
        ("a lane of a report", 1 << 20 | RX_PAYLOAD),
        ("a lane of a common event", on_lane(TX_MEMORY_WRITE, 1)),
        ("an event that does not exist", counter(0x10b)),
        ("an event beyond the last", counter(0x71a)),
        ("a group that does not exist", counter(0x800)),
        ("an alias of 0x700", counter(0x1700)),
    ];
    for (what, config) in refused {
        assert_eq!(session.try_open(PMU, config, None).unwrap_err(), "EINVAL", "{what}");
    }
    for (more, refusal) in [
        ("config1=1", "EINVAL"),
        ("config2=1", "EINVAL"),
        ("period=1000", "EOPNOTSUPP"),
        ("exclude_user", "EINVAL"),
        ("task", "EINVAL"),
    ] {
        let answer = session.try_open(&format!("{PMU}:{more}"), counter(TX_MEMORY_WRITE), None);
        assert_eq!(answer.unwrap_err(), refusal, "{more}");
    }
    // The reports without a name have a number.
    session.open_all(PMU, &[0x10, 0x18]);
}

fn groups_are_judged_as_a_whole(rig: &Rig) {
    let session = Session::start(rig, "groups");
    let join = |leader, config| session.try_open(PMU, config, Some(leader));
    let leader = session.open(PMU, RX_PAYLOAD);
    let sibling = join(leader, counter(LCRC_ERROR)).unwrap();
    let lane = join(leader, on_lane(0x003, 2)).unwrap();
    let same = join(leader, RX_PAYLOAD).unwrap();
    assert_eq!(join(leader, TX_PAYLOAD).unwrap_err(), "EINVAL");
    assert_eq!(session.try_open(OTHER_PMU, counter(LCRC_ERROR), Some(leader)).unwrap_err(), "EINVAL");
    event(rig, PORT, LCRC_ERROR, 9);
    rig.tell(&format!("port {PORT} event 0x003 4 lane 2"));
    rig.tell(&format!("port {PORT} traffic rx 4096"));
    assert_eq!(session.values(&[leader, sibling, lane, same]), [4096, 9, 4, 4096]);
    // Two reports of which none leads, and a leader of the kernel's own.
    let leader = session.open(PMU, counter(TX_MEMORY_WRITE));
    join(leader, TX_PAYLOAD).unwrap();
    assert_eq!(join(leader, RX_PAYLOAD).unwrap_err(), "EINVAL");
    let software = session.open("software", 0);
    let first = join(software, RX_PAYLOAD).unwrap();
    assert_eq!(join(software, 0x03).unwrap_err(), "EINVAL");
    session.do_to("close", &[first]);
}

fn different_reports_take_turns(rig: &Rig) {
    settle("two reports by turns", || two_reports_take_turns(rig));
}

/// An event that takes turns counts what its report counted in them, less what comes while the engine is switched: that
/// is the more, the later the guest comes to it.
fn two_reports_take_turns(rig: &Rig) -> Result<(), String> {
    let codes = [RX_PAYLOAD, TX_PAYLOAD];
    let session = Session::start(rig, "turns");
    let before = rig.ledger();
    // Of different size, so that neither is taken for the other.
    rig.tell(&format!("port {PORT} rate rx 16000000000"));
    rig.tell(&format!("port {PORT} rate tx 160000000"));
    let opened = session.open_all(PMU, &codes);
    std::thread::sleep(Duration::from_millis(500));
    session.do_to("disable", &opened);
    let truth = rig.ledger();
    let readings = session.readings(&opened);
    session.end();
    assert_eq!(truth["ports"][PORT]["violations"], serde_json::json!([]));
    for (reading, code) in readings.into_iter().zip(codes) {
        let share = reading.running_ns as f64 / reading.enabled_ns as f64;
        let counted = 16 * (report(&truth, PORT, code) - report(&before, PORT, code));
        assert!(reading.value <= counted, "{code:#x}: {reading:?}, the board counted {counted}");
        if !(0.2..0.8).contains(&share) || reading.value * 2 < counted {
            return Err(format!("{code:#x}: {reading:?}, the board counted {counted}"));
        }
    }
    Ok(())
}

fn an_event_that_the_hardware_lacks_is_refused(rig: &Rig) {
    let session = Session::start(rig, "absent");
    rig.tell(&format!("port {PORT} absent 0x201,0x009"));
    for config in [counter(LCRC_ERROR), on_lane(0x009, 2)] {
        assert_eq!(session.try_open(PMU, config, None).unwrap_err(), "EOPNOTSUPP");
    }
    session.open(PMU, counter(0x202));
    session.open(OTHER_PMU, counter(LCRC_ERROR));
    rig.tell(&format!("port {PORT} absent none"));
    session.open(PMU, counter(LCRC_ERROR));
}

fn counters_wrap_at_32_bits(rig: &Rig) {
    let session = Session::start(rig, "wrap");
    let events = [0x500, 0x606, TX_MEMORY_WRITE];
    for event in events {
        rig.tell(&format!("port {PORT} set {event:#05x} 0xfffffff0"));
    }
    let opened = session.open_all(PMU, &events.map(counter));
    assert_eq!(session.values(&opened), [0, 0, 0]);
    for (number, code) in (1u64..).zip(events) {
        event(rig, PORT, code, 15);
        assert_eq!(session.value(opened[number as usize - 1]), 15, "the last value before the edge");
        event(rig, PORT, code, number);
    }
    assert_eq!(session.values(&opened), [16, 17, 18]);
    // Often enough that they pass the edge more than once, without anyone reading them.
    for _ in 0..3 {
        event(rig, PORT, TX_MEMORY_WRITE, 2_000_000_000);
        let_poll(rig);
    }
    assert_eq!(session.value(opened[2]), 6_000_000_018);
}

fn payload_counts_past_32_bits(rig: &Rig) {
    let session = Session::start(rig, "payload");
    let before = rig.ledger();
    let rx = session.open_all(PMU, &[RX_PAYLOAD, RX_PAYLOAD]);
    // More than 2^32 units at once; then bytes that make a unit only together.
    rig.tell(&format!("port {PORT} traffic rx 100000000000"));
    rig.tell(&format!("port {PORT} traffic tx 4096"));
    assert_eq!(session.values(&rx), [100_000_000_000; 2]);
    rig.tell(&format!("port {PORT} traffic rx 7"));
    assert_eq!(session.value(rx[0]), 100_000_000_000);
    rig.tell(&format!("port {PORT} traffic rx 9"));
    assert_eq!(session.values(&rx), [100_000_000_016; 2]);
    let units = report(&rig.ledger(), PORT, RX_PAYLOAD) - report(&before, PORT, RX_PAYLOAD);
    assert_eq!(units * 16, 100_000_000_016);
    session.do_to("close", &rx);
    let tx = session.open(PMU, TX_PAYLOAD);
    rig.tell(&format!("port {PORT} traffic tx 4608000000"));
    rig.tell(&format!("port {PORT} traffic rx 4096"));
    assert_eq!(session.value(tx), 4_608_000_000);
}

fn torn_halves_are_noticed(rig: &Rig) {
    let session = Session::start(rig, "torn");
    let rx = session.open(PMU, RX_PAYLOAD);
    rig.tell(&format!("port {PORT} torn on"));
    // The first look at each shows the carry between the halves.
    for round in 1..=4u64 {
        rig.tell(&format!("port {PORT} tba-set {:#x}", (round << 32) - 2));
        let before = session.value(rx);
        rig.tell(&format!("port {PORT} traffic rx 64"));
        let after = session.value(rx);
        // What shows after a half was read may be read only next time.
        let again = session.value(rx);
        assert_eq!(again - before, 64, "{before} {after} {again}");
        assert!(after == again || after == before, "{before} {after} {again}");
    }
}

/// The function is away while its data are read, and back when the control word is.
fn data_without_an_answer_are_no_count(rig: &Rig) {
    let session = Session::start(rig, "mute");
    let writes = session.open(PMU, counter(TX_MEMORY_WRITE));
    let before = session.value(writes);
    rig.tell(&format!("port {PORT} mute 1"));
    assert_eq!(session.value(writes), before, "all-ones are no count");
    event(rig, PORT, TX_MEMORY_WRITE, 7);
    assert_eq!(session.value(writes), before + 7);
    session.do_to("close", &[writes]);
    // High, low, and high again.
    let payload = session.open(PMU, RX_PAYLOAD);
    for reads in 1..=3u64 {
        let before = session.value(payload);
        rig.tell(&format!("port {PORT} mute {reads}"));
        // The first reading tells: all-ones would wrap back to the right count with the next one.
        assert_eq!(session.value(payload), before, "{reads} reads had no answer");
        rig.tell(&format!("port {PORT} traffic rx 4096"));
        assert_eq!(session.value(payload), before + 4096, "after {reads} reads had no answer");
    }
}

fn narrow_data_wrap(rig: &Rig) {
    let session = Session::start(rig, "narrow");
    rig.tell(&format!("port {PORT} width 32"));
    let rx = session.open(PMU, RX_PAYLOAD);
    // Past the edge without anyone reading.
    for _ in 0..3 {
        rig.tell(&format!("port {PORT} traffic rx 30000000000"));
        let_poll(rig);
    }
    for round in 4..=6 {
        rig.tell(&format!("port {PORT} traffic rx 30000000000"));
        assert_eq!(session.value(rx), 30_000_000_000 * round);
    }
    session.do_to("close", &[rx]);
    rig.tell(&format!("port {PORT} width 40"));
    let rx = session.open(PMU, RX_PAYLOAD);
    rig.tell(&format!("port {PORT} tba-set 0xfffffffff0"));
    let before = session.value(rx);
    rig.tell(&format!("port {PORT} traffic rx 1600"));
    assert_eq!(session.value(rx) - before, 1600);
}

fn hold_and_zero_lose_nothing(rig: &Rig) {
    for stop in ["hold", "zero"] {
        rig.tell(&format!("port {PORT} stop {stop}"));
        let session = Session::start(rig, stop);
        let rx = session.open(PMU, RX_PAYLOAD);
        for round in 1..=3 {
            rig.tell(&format!("port {PORT} traffic rx 16000"));
            session.do_to("disable", &[rx]);
            assert_eq!(session.value(rx), 16_000 * round, "{stop}");
            session.do_to("enable", &[rx]);
        }
        session.end();
        // Nor does a measurement begin with what the last one left.
        let session = Session::start(rig, stop);
        assert_eq!(session.value(session.open(PMU, RX_PAYLOAD)), 0, "{stop}");
    }
}

fn time_in_states_and_the_clock(rig: &Rig) {
    rig.tell(&format!("port {PORT} states L0=50,L1_AUX=30,TX_RX_L0S=20"));
    // Shares of 100 ms, in cycles of 1 ns, of the auxiliary clock of 40 ns.
    for (code, least, most) in [(0x03, 45_000_000, u64::MAX), (0x08, 600_000, 20_000_000), (0x09, 15_000_000, u64::MAX)]
    {
        settle(&format!("report {code:#04x}"), || {
            let session = Session::start(rig, "states");
            let before = report(&rig.ledger(), PORT, code);
            let event = session.open(PMU, code);
            std::thread::sleep(Duration::from_millis(100));
            session.do_to("disable", &[event]);
            let (value, truth) = (session.value(event), report(&rig.ledger(), PORT, code) - before);
            session.end();
            // The board counts from the start of the measurement to its stop, perf between the looks within.
            assert!(value <= truth, "{code:#04x}: {value} of {truth}");
            let is_whole = value as f64 >= 0.8 * truth as f64 && (least..most).contains(&value);
            if is_whole { Ok(()) } else { Err(format!("{value} of {truth}; from {least} to {most} are expected")) }
        });
    }
    let session = Session::start(rig, "clock");
    let cycle = session.open(PMU, 0x00);
    assert_eq!(session.values(&[cycle, cycle]), [1000, 1000], "a value, no sum");
    rig.tell(&format!("port {PORT} link 3 4"));
    assert_eq!(session.value(cycle), 2000);
    session.do_to("disable", &[cycle]);
    assert_eq!(session.value(cycle), 2000);
}

fn another_agent_does_not_harm(rig: &Rig) {
    let session = Session::start(rig, "agent");
    let opened = session.open_all(PMU, &[counter(TX_MEMORY_WRITE), counter(LCRC_ERROR), on_lane(0x001, 1)]);
    let before = rig.ledger()["ports"][PORT]["viewport_moves"].as_u64().unwrap();
    rig.tell(&format!("port {PORT} agent every 2"));
    for round in 1..=5 {
        event(rig, PORT, TX_MEMORY_WRITE, 1000);
        event(rig, PORT, LCRC_ERROR, 11);
        rig.tell(&format!("port {PORT} event 0x001 2 lane 1"));
        assert_eq!(session.values(&opened), [1000 * round, 11 * round, 2 * round]);
    }
    assert!(rig.ledger()["ports"][PORT]["viewport_moves"].as_u64().unwrap() > before + 5);
    // Never a moment for us: nothing is counted rather than something else, and nothing is lost by that.
    rig.tell(&format!("port {PORT} agent every 1"));
    event(rig, PORT, TX_MEMORY_WRITE, 500);
    let_poll(rig);
    assert_eq!(session.values(&opened), [5000, 55, 10]);
    assert_eq!(session.try_open(PMU, counter(0x202), None).unwrap_err(), "EBUSY");
    // What starts now begins when the viewport can be had again.
    session.do_to("disable", &[opened[1]]);
    session.do_to("enable", &[opened[1]]);
    rig.tell(&format!("port {PORT} agent off"));
    let_poll(rig);
    event(rig, PORT, LCRC_ERROR, 4);
    assert_eq!(session.values(&opened), [5500, 59, 10]);
    assert_eq!(rig.pmu_file(PMU, "disturbed"), "");
}

fn what_firmware_enabled_stays_on(rig: &Rig) {
    rig.tell(&format!("port {PORT} firmware 0x700,0x201"));
    rig.tell(&format!("port {PORT} event 0x700 100"));
    let session = Session::start(rig, "firmware");
    let opened = session.open_all(PMU, &[counter(TX_MEMORY_WRITE), counter(0x701), counter(LCRC_ERROR)]);
    for code in [TX_MEMORY_WRITE, 0x701, LCRC_ERROR] {
        event(rig, PORT, code, 3);
    }
    assert_eq!(session.values(&opened), [3, 3, 3]);
    session.end();
    let before = rig.ledger();
    for (code, is_on) in [(TX_MEMORY_WRITE, true), (0x701, false), (LCRC_ERROR, true)] {
        event(rig, PORT, code, 1);
        let more = counted(&rig.ledger(), PORT, code, 0) - counted(&before, PORT, code, 0);
        assert_eq!(more, u64::from(is_on), "{code:#05x}");
    }
}

fn all_ones_are_not_counted(rig: &Rig) {
    let session = Session::start(rig, "gone");
    let configs = [counter(TX_MEMORY_WRITE), counter(LCRC_ERROR), RX_PAYLOAD];
    let opened = session.open_all(PMU, &configs);
    let happen = || {
        event(rig, PORT, TX_MEMORY_WRITE, 5);
        event(rig, PORT, LCRC_ERROR, 6);
        rig.tell(&format!("port {PORT} traffic rx 1600"));
    };
    happen();
    assert_eq!(session.values(&opened), [5, 6, 1600]);
    rig.tell(&format!("port {PORT} gone"));
    let_poll(rig);
    assert_eq!(session.values(&opened), [5, 6, 1600]);
    for config in configs {
        assert_eq!(session.try_open(PMU, config, None).unwrap_err(), "ENODEV");
    }
    rig.tell(&format!("port {PORT} back"));
    happen();
    assert_eq!(session.values(&opened), [10, 12, 3200]);
    session.end();
    // All that starts and stops while it is gone counts nothing.
    let session = Session::start(rig, "gone");
    let opened = session.open_all(PMU, &configs);
    rig.tell(&format!("port {PORT} gone"));
    session.do_to("disable", &opened);
    session.do_to("enable", &opened);
    assert_eq!(session.values(&opened), [0, 0, 0]);
    rig.tell(&format!("port {PORT} back"));
    let_poll(rig);
    happen();
    assert_eq!(session.values(&opened), [5, 6, 1600]);
}

fn two_sessions_do_not_disturb_each_other(rig: &Rig) {
    let first = Session::start(rig, "first");
    let second = Session::start(rig, "second");
    let configs = [counter(TX_MEMORY_WRITE), counter(LCRC_ERROR), RX_PAYLOAD];
    let happen = |n| {
        event(rig, PORT, TX_MEMORY_WRITE, n);
        event(rig, PORT, LCRC_ERROR, n);
        rig.tell(&format!("port {PORT} traffic rx {}", 16 * n));
    };
    let early = first.open_all(PMU, &configs);
    happen(100);
    let late = second.open_all(PMU, &configs);
    happen(90);
    assert_eq!(first.values(&early), [190, 190, 16 * 190]);
    assert_eq!(second.values(&late), [90, 90, 16 * 90]);
    first.end();
    happen(80);
    happen(70);
    assert_eq!(second.values(&late), [240, 240, 16 * 240]);
}

fn what_others_clear_is_put_right(rig: &Rig) {
    let session = Session::start(rig, "disturbed");
    let opened = session.open_all(PMU, &[counter(TX_MEMORY_WRITE), RX_PAYLOAD]);
    event(rig, PORT, TX_MEMORY_WRITE, 1000);
    rig.tell(&format!("port {PORT} traffic rx 1600"));
    assert_eq!(session.values(&opened), [1000, 1600]);
    // Cleared, disabled, and the engine given another report.
    rig.must(&format!("setpci -s {PORT} 308.l=07000001"));
    event(rig, PORT, TX_MEMORY_WRITE, 3);
    assert_eq!(session.values(&opened), [1003, 1600]);
    assert_eq!(rig.pmu_file(PMU, "disturbed"), "0x700 0 1");
    rig.must(&format!("setpci -s {PORT} 308.l=07000004 310.l=20000000 310.l=20000001"));
    assert_eq!(session.values(&opened), [1003, 1600]);
    event(rig, PORT, TX_MEMORY_WRITE, 4);
    rig.tell(&format!("port {PORT} traffic rx 3200"));
    assert_eq!(session.values(&opened), [1007, 4800]);
    assert_eq!(rig.pmu_file(PMU, "disturbed"), "time-based 0 1\n0x700 0 2");
    // What was cleared and disabled has not wrapped, also past the half of 32 bits.
    const LARGE: u64 = 3 << 30;
    event(rig, PORT, TX_MEMORY_WRITE, LARGE);
    assert_eq!(session.values(&opened), [1007 + LARGE, 4800]);
    rig.must(&format!("setpci -s {PORT} 308.l=07000005"));
    assert_eq!(session.values(&opened), [1007 + LARGE, 4800]);
    event(rig, PORT, TX_MEMORY_WRITE, 5);
    assert_eq!(session.values(&opened), [1012 + LARGE, 4800]);
    assert_eq!(rig.pmu_file(PMU, "disturbed"), "time-based 0 1\n0x700 0 3");
    session.end();
    rig.must("rmmod rasdes_pmu; modprobe rasdes_pmu");
}

fn perf_reads_groups_and_intervals(rig: &Rig) {
    let terms: Vec<String> = ["rx_pcie_tlp_data_payload", "tx_memory_write", "ebuf_underrun,lane=2"]
        .map(|event| format!("{PMU}/{event}/"))
        .into();
    let happen = |times: u64| {
        for _ in 0..times {
            rig.tell(&format!("port {PORT} traffic rx 1000000"));
            event(rig, PORT, TX_MEMORY_WRITE, 50);
            rig.tell(&format!("port {PORT} event 0x001 1 lane 2"));
        }
    };
    for list in [terms.join(","), format!("'{{{}}}'", terms.join(","))] {
        let lines = rig.perf_stat(&format!("-a -e {list}"), || happen(5));
        let values: Vec<_> = lines.iter().map(|line| line.count).collect();
        assert_eq!(values, [Some(5_000_000), Some(250), Some(5)], "{lines:?}");
        assert!(lines.iter().all(|line| line.percent == 100.0), "{lines:?}");
        assert_eq!(lines[0].unit, "B");
    }
    let lines = rig.perf_stat(&format!("-a -I 100 -e {}", terms.join(",")), || {
        for _ in 0..4 {
            happen(1);
            std::thread::sleep(Duration::from_millis(150));
        }
    });
    let sum = |name: &str| -> u64 {
        lines.iter().filter(|line| line.event.contains(name)).filter_map(|line| line.count).sum()
    };
    assert_eq!([sum("payload"), sum("tx_memory_write"), sum("underrun")], [4_000_000, 200, 4], "{lines:?}");
    assert!(lines.iter().filter(|line| line.count.is_some_and(|value| value > 0)).count() > 5, "{lines:?}");
}

fn set_online(rig: &Rig, cpu: &str, is_online: bool) {
    rig.must(&format!("echo {} >/sys/devices/system/cpu/cpu{cpu}/online", u8::from(is_online)));
}

fn events_survive_their_cpu(rig: &Rig) {
    let session = Session::start(rig, "cpu");
    let opened = session.open_all(WIDE_PMU, &[counter(TX_MEMORY_WRITE), RX_PAYLOAD, counter(LCRC_ERROR)]);
    let happen = || {
        event(rig, WIDE, TX_MEMORY_WRITE, 10);
        event(rig, WIDE, LCRC_ERROR, 10);
        rig.tell(&format!("port {WIDE} traffic rx 160"));
    };
    happen();
    // Of the port's node, then of the other, and back as soon as there is one of its own.
    let moves = [("2", false, "3"), ("3", false, "0"), ("3", true, "3"), ("2", true, "3")];
    assert_eq!(rig.pmu_file(WIDE_PMU, "cpumask"), "2");
    for (round, (cpu, is_online, expected)) in (2..).zip(moves) {
        set_online(rig, cpu, is_online);
        assert_eq!(rig.pmu_file(WIDE_PMU, "cpumask"), expected);
        happen();
        assert_eq!(session.values(&opened), [10 * round, 160 * round, 10 * round]);
    }
    session.end();
    set_online(rig, "3", false);
    set_online(rig, "3", true);
}

/// Under traffic, with perf rearranging its events all the time: what is enabled from quiet to quiet misses nothing.
fn a_busy_machine_loses_nothing(rig: &Rig) {
    let session = Session::start(rig, "busy");
    // Fewer errors than make the driver clear a counter: what it may lose then is another matter.
    let codes = [TX_MEMORY_WRITE, 0x70b, 0x207];
    let before = rig.ledger();
    let mut opened = session.open_all(WIDE_PMU, &codes.map(counter));
    opened.push(session.open(WIDE_PMU, RX_PAYLOAD));
    let others = rig
        .vm
        .start(&format!(
            "while [ ! -e /tmp/quiet ]; do \
                 perf stat -a -e {WIDE_PMU}/tx_memory_write/,{WIDE_PMU}/rx_pcie_tlp_data_payload/,{WIDE_PMU}/retry_tlp/ true; \
             done 2>/dev/null"
        ));
    rig.tell(&format!("port {WIDE} rate rx 3000000007"));
    for round in 0..6 {
        set_online(rig, &rig.pmu_file(WIDE_PMU, "cpumask"), false);
        for _ in 0..20 {
            event(rig, WIDE, TX_MEMORY_WRITE, 100_003);
            event(rig, WIDE, 0x207, 1);
            std::thread::sleep(Duration::from_millis(2));
        }
        let moved = session.value(opened[3]);
        assert!(moved > 0, "round {round}");
        rig.must("for cpu in 2 3; do echo 1 >/sys/devices/system/cpu/cpu$cpu/online; done");
    }
    rig.tell(&format!("port {WIDE} rate rx 0"));
    rig.must("touch /tmp/quiet");
    assert!(others.wait().unwrap().is_success());
    let truth = rig.ledger();
    let gained = |code| counted(&truth, WIDE, code, 0) - counted(&before, WIDE, code, 0);
    let payload = 16 * (report(&truth, WIDE, RX_PAYLOAD) - report(&before, WIDE, RX_PAYLOAD));
    let [writes, received, retries] = codes.map(gained);
    assert_eq!((writes, retries), (6 * 20 * 100_003, 120));
    assert!(received > 1_000_000 && payload > 1_000_000_000, "{received} {payload}");
    assert_eq!(session.values(&opened), [writes, received, retries, payload]);
    assert_eq!(rig.pmu_file(WIDE_PMU, "disturbed"), "");
    session.end();
    rig.must("rm /tmp/quiet");
}

fn a_removed_port_keeps_its_counts(rig: &Rig) {
    let folder = format!("/sys/bus/event_source/devices/{PMU}");
    let remove = format!("echo 1 >/sys/bus/pci/devices/{PORT}/remove");
    let session = Session::start(rig, "removed");
    let opened = session.open_all(PMU, &[counter(TX_MEMORY_WRITE), counter(LCRC_ERROR), RX_PAYLOAD]);
    event(rig, PORT, TX_MEMORY_WRITE, 10);
    event(rig, PORT, LCRC_ERROR, 11);
    rig.tell(&format!("port {PORT} traffic rx 160"));
    assert_eq!(session.values(&opened), [10, 11, 160]);
    rig.must(&remove);
    assert_eq!(session.values(&opened), [10, 11, 160]);
    assert_eq!(session.try_open(PMU, counter(TX_MEMORY_WRITE), None).unwrap_err(), "ENODEV");
    session.do_to("disable", &[opened[0]]);
    session.do_to("enable", &[opened[0]]);
    // The function is there again while the old events are: they count on, and new ones can be opened.
    event(rig, PORT, TX_MEMORY_WRITE, 1000);
    rig.must("echo 1 >/sys/bus/pci/rescan");
    assert_eq!(session.values(&opened), [10, 11, 160]);
    let new = session.open(PMU, counter(TX_MEMORY_WRITE));
    event(rig, PORT, TX_MEMORY_WRITE, 12);
    event(rig, PORT, LCRC_ERROR, 1);
    rig.tell(&format!("port {PORT} traffic rx 320"));
    assert_eq!(session.values(&opened), [22, 12, 480]);
    assert_eq!(session.value(new), 12);
    session.end();
    // Without events it goes at once. Until then perf's timer may come once more, which keeps no other PMU from being polled.
    rig.must(&format!("echo 8000 >{folder}/perf_event_mux_interval_ms"));
    let session = Session::start(rig, "beside");
    let beside = session.open(WIDE_PMU, counter(LCRC_ERROR));
    rig.must(&remove);
    let rounds = if is_slow(rig) { 2 } else { 6 };
    for _ in 0..rounds {
        event(rig, WIDE, LCRC_ERROR, 200);
        let_poll(rig);
    }
    assert!(rig.succeeds(&format!("test -e {folder}")), "perf's timer was not waited for");
    assert_eq!(session.value(beside), rounds * 200);
    session.end();
    rig.wait_until("the end of the PMU", &format!("! test -e {folder}"));
    rig.must("echo 1 >/sys/bus/pci/rescan");
    rig.wait_until("the new PMU", &format!("test -e {folder}"));
    // Nor does a PMU that waits for its events keep the module longer than they do.
    let session = Session::start(rig, "removed");
    session.open(PMU, counter(TX_MEMORY_WRITE));
    rig.must(&remove);
    assert!(!rig.succeeds("rmmod rasdes_pmu 2>/dev/null"), "an event is open");
    session.end();
    rig.must("rmmod rasdes_pmu && modprobe rasdes_pmu && echo 1 >/sys/bus/pci/rescan");
    rig.wait_until("the new PMU", &format!("test -e {folder}"));
}

fn only_the_right_capability_is_taken(rig: &Rig) {
    let scan = |settings: &[&str]| {
        rig.must(&format!("echo 1 >/sys/bus/pci/devices/{OTHER}/remove"));
        rig.wait_until("the end of the PMU", &format!("! test -e /sys/bus/event_source/devices/{OTHER_PMU}"));
        rig.tell("reset");
        for setting in settings {
            rig.tell(&format!("port {OTHER} vsec {setting}"));
        }
        rig.must("echo 1 >/sys/bus/pci/rescan");
        rig.succeeds(&format!("test -e /sys/bus/event_source/devices/{OTHER_PMU}"))
    };
    assert!(scan(&["foreign-first on", "loop on"]));
    assert!(!scan(&["rev 3"]));
    assert!(!scan(&["rev 5", "loop on"]));
    assert!(!scan(&["id 3", "foreign-first on", "loop on"]));
    assert!(scan(&["loop on"]));
    assert!(scan(&[]));
}

fn with_other_parameters(rig: &Rig) {
    rig.must("rmmod rasdes_pmu && modprobe rasdes_pmu variant=old narrow=wrap endpoints=1 tba_bits=32 poll_ms=20");
    assert_eq!(rig.pmu_file(PMU, "events/L1_AUX"), "eventid=0x9,type=0x0");
    assert_eq!(rig.pmu_file(PMU, "events/TX_RX_L0S"), "eventid=0x8,type=0x0");
    rig.tell("port all limit wrap");
    rig.tell(&format!("port {PORT} width 32"));
    let session = Session::start(rig, "wrap");
    let opened = session.open_all(PMU, &[counter(LCRC_ERROR), on_lane(0x002, 1), RX_PAYLOAD]);
    for round in 1..=4 {
        event(rig, PORT, LCRC_ERROR, 200);
        rig.tell(&format!("port {PORT} event 0x002 15 lane 1"));
        // More than half of the range: known to be 32 bits.
        rig.tell(&format!("port {PORT} traffic rx 60000000000"));
        assert_eq!(session.values(&opened), [200 * round, 15 * round, 60_000_000_000 * round]);
    }
    assert_eq!(rig.pmu_file(PMU, "saturated"), "");
    let endpoint = session.open("dwc_endpoint_300", counter(LCRC_ERROR));
    event(rig, ENDPOINT, LCRC_ERROR, 3);
    assert_eq!(session.value(endpoint), 3);
    session.end();
    rig.tell("reset");
    rig.must("rmmod rasdes_pmu && modprobe rasdes_pmu naming=seed");
    the_seeds_names_and_units(rig);
    rig.tell("reset");
    rig.must("rmmod rasdes_pmu");
}

/// The seed's own command lines, in its own spelling.
fn the_seeds_names_and_units(rig: &Rig) {
    let pmus = rig.must("cd /sys/bus/event_source/devices; echo pcie_bdf_*");
    assert_eq!(pmus, "pcie_bdf_100 pcie_bdf_200 pcie_bdf_300 pcie_bdf_b00000");
    assert_eq!(rig.pmu_file("pcie_bdf_200", "events/Rx_PCIe_TLP_Data_Payload"), "eventid=0x21,type=0x1");
    assert_eq!(rig.pmu_file("pcie_bdf_200", "events/rx_pcie_tlp_data_payload"), "eventid=0x21,type=0x1");
    assert!(!rig.succeeds("ls /sys/bus/event_source/devices/pcie_bdf_200/events | grep -q unit"));
    let lines = rig.perf_stat("-a -e pcie_bdf_200/Rx_PCIe_TLP_Data_Payload/", || {
        rig.tell(&format!("port {OTHER} traffic rx 8590566912"));
    });
    assert_eq!(lines[0].count, Some(536_910_432), "the seed's first experiment, in units of 16 bytes: {lines:?}");
    let session = Session::start(rig, "seed");
    let opened = session.open_all("pcie_bdf_200", &[1 << 16 | RX_PAYLOAD, 2 << 16 | TX_MEMORY_WRITE]);
    assert_eq!(session.try_open("pcie_bdf_200", RX_PAYLOAD, None).unwrap_err(), "EINVAL");
    assert_eq!(session.try_open("pcie_bdf_200", 3 << 16, None).unwrap_err(), "EINVAL");
    event(rig, OTHER, TX_MEMORY_WRITE, 5);
    rig.tell(&format!("port {OTHER} traffic rx 160"));
    assert_eq!(session.values(&opened), [10, 5]);
}

/// The peer on the same hardware: what the kernel's own driver reads, ours does too.
fn the_in_tree_driver_reads_the_same(rig: &Rig) {
    rig.must("modprobe dwc_pcie_pmu");
    // Two drivers at one viewport count nonsense: the ports are left alone, whatever our PMUs would be called.
    for naming in ["upstream", "seed"] {
        rig.must(&format!("modprobe rasdes_pmu naming={naming}"));
        assert!(!rig.succeeds("ls /sys/bus/event_source/devices/*/saturated"), "naming={naming}");
        rig.must("rmmod rasdes_pmu");
    }
    let happen = || {
        event(rig, PORT, TX_MEMORY_WRITE, 1234);
        rig.tell(&format!("port {PORT} traffic rx 1600000"));
    };
    let read = |event: &str| {
        let lines = rig.perf_stat(&format!("-a -e {PMU}/{event}/"), happen);
        lines[0].count.unwrap()
    };
    let events = ["eventid=0x21,type=0x0", "eventid=0x700,type=0x1,lane=0"];
    let theirs = events.map(read);
    rig.must("rmmod dwc_pcie_pmu && modprobe rasdes_pmu");
    let ours = events.map(read);
    assert_eq!(ours, [1_600_000, 1234]);
    assert_eq!(theirs[0], ours[0]);
    // 6.12 writes the code that enables an event counter to the field that clears: it never counts.
    let is_known = rig.vm.release().starts_with("6.12") && theirs[1] == 0;
    assert!(is_known || theirs[1] == ours[1], "{theirs:?}");
    rig.must("rmmod rasdes_pmu");
}
