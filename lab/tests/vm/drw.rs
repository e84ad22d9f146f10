//! drw_pmu tells the truth: on the lab's sub-channels, perf's counts are the board's to the event - at the seed's
//! rates, through wraps, beside other sessions, in groups, over CPUs that go and devices that are taken away.

use std::time::{Duration, Instant};

use crate::say;
use crate::support::counters::{Counters, Reading, Truth};
use crate::support::settle;

/// The seed's counts, as `experiment sub-channel hif_wr hif_rd hif_rmw cycle`.
const SEED: &str = include_str!("support/drw_seed.txt");
/// The runs of the seed: reads and writes on each die.
const EXPERIMENTS: [&str; 4] = ["c0m0-rd", "c1m1-rd", "c0m0-fwr", "c1m1-fwr"];
/// Reads on one die, writes on the other.
const READS_AND_WRITES: [&str; 2] = ["c0m0-rd", "c1m1-fwr"];
const SUB: &str = "21000";
/// Shares its interrupt line with SUB.
const SISTER: &str = "21080";
/// On the other die, whose CPUs can go offline.
const FAR: &str = "40021000";
/// As many events as there are common counters; none of them implies another.
const SIXTEEN: [&str; 16] = [
    "hif_hi_pri_rd",
    "dfi_wr_data_cycles",
    "dfi_rd_data_cycles",
    "hpr_xact_when_critical",
    "op_is_activate",
    "op_is_rd_or_wr",
    "op_is_rd_activate",
    "op_is_rd",
    "op_is_wr",
    "op_is_mwr",
    "op_is_precharge",
    "precharge_for_rdwr",
    "rdwr_transitions",
    "write_combine",
    "selfref_mode_rk3",
    "tsz_vio",
];
const CYCLES_PER_SECOND: f64 = 500e6;

/// A part of a test, and what it is called.
type Step = (&'static str, fn(&Counters));

/// What depends on the kernel's perf: tried on every one.
pub fn perf_counts_what_the_sub_channels_counted(rig: &Counters) {
    let tests: [Step; 12] = [
        ("sysfs", what_the_pmus_show),
        ("reads and writes", |rig| the_seeds_experiments(rig, "", &READS_AND_WRITES)),
        ("wraps", every_counter_wraps),
        ("sessions", sessions_do_not_disturb_each_other),
        ("groups", groups_are_counted_together),
        ("turns", more_events_than_counters_take_turns),
        ("intervals", intervals_add_up),
        ("torn", the_cycle_counter_is_not_torn),
        ("refusals", what_does_not_exist_is_refused),
        ("CPUs", cpus_go_and_come_back),
        ("shared lines", lines_are_shared),
        ("taken away", a_sub_channel_is_taken_away_while_its_line_fires),
    ];
    for (what, test) in tests {
        let begin = Instant::now();
        test(rig);
        say!("{:6.2} s  {what}", begin.elapsed().as_secs_f64());
    }
    rig.check_log();
}

/// With `naming=seed limit=hold poll_ms=50`.
pub fn the_seeds_own_command_lines_work(rig: &Counters) {
    the_seeds_experiments(rig, "perf_", &EXPERIMENTS);
    counters_that_are_known_to_hold_lose_nothing(rig);
}

pub fn neither_load_nor_the_hardwares_ways_lose_a_count(rig: &Counters) {
    wraps_beside_readers(rig);
    // Before the driver sets counters back.
    a_late_status_bit_is_no_second_wrap(rig);
    counters_that_hold_are_noticed(rig);
    the_whole_board_goes_and_comes_back(rig);
}

/// With alibaba_uncore_drw_pmu.
pub fn the_in_tree_driver_counts_the_same(rig: &Counters) {
    the_seeds_experiments(rig, "", &READS_AND_WRITES);
    // Ours gets none of them then, and says so.
    let said = "dmesg | grep -c 'drw_pmu: 16 sub-channels stay with another driver' || true";
    let before = rig.must(said);
    rig.must("modprobe drw_pmu");
    assert_eq!((before.as_str(), rig.must(said).as_str()), ("0", "1"));
    rig.must("rmmod drw_pmu");
}

/// Waits until so many counters of a sub-channel are counting.
fn counting(rig: &Counters, sub: &str, counters: usize) {
    rig.wait_for(&format!("{counters} counters of {sub} are enabled"), || {
        (rig.truth().enabled(sub) == counters).then_some(())
    });
}

/// Waits until an interrupt was answered.
fn answered(rig: &Counters, sub: &str) {
    rig.wait_for(&format!("the interrupt of {sub} is answered"), || (!rig.truth().is_asserted(sub)).then_some(()));
}

/// Cycles are the board's, but for the moments in which the PMU ran before and after the event: it slept so long, by
/// the guest's clock. (The time that perf gives itself is no measure: the kernel's scheduler clock may go wrong here.)
fn cycles_equal(rig: &Counters, reading: &Reading, before: &Truth, truth: &Truth, seconds: f64) {
    let all = truth.gained(before, rig.sub_of(reading), "cycles");
    let (counted, at_least) = (reading.counted(), seconds * CYCLES_PER_SECOND * 0.9);
    assert!(counted <= all, "{}: {counted} of {all} cycles", reading.event);
    assert!(counted as f64 >= at_least, "{}: {counted} cycles, at least {at_least:.0}", reading.event);
}

fn what_the_pmus_show(rig: &Counters) {
    let shown = rig.must("cd /sys/bus/event_source/devices; ls -d ali_drw_*");
    let mut names: Vec<&str> = shown.lines().collect();
    let mut expected: Vec<String> = SEED
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("ali_drw_{}", line.split(' ').nth(1).unwrap()))
        .collect();
    expected.sort();
    expected.dedup();
    names.sort_unstable();
    assert_eq!(names, expected);
    let file = |sub: &str, file: &str| rig.must(&format!("cat /sys/bus/event_source/devices/ali_drw_{sub}/{file}"));
    assert_eq!(file(SUB, "identifier"), "ali_drw_pmu");
    assert_eq!(file(SUB, "format/event"), "config:0-7");
    assert_eq!(file(SUB, "events/hif_rd"), "event=0x02");
    assert_eq!(file(SUB, "events/cycle"), "event=0x80");
    assert_eq!((file(SUB, "die").as_str(), file(FAR, "die").as_str()), ("0", "1"));
    let count = "ls /sys/bus/event_source/devices/ali_drw_21000/events | grep -vc '\\.'";
    assert_eq!(rig.must(count), "53");
}

/// Runs of the seed, with its own events and at its rates.
fn the_seeds_experiments(rig: &Counters, prefix: &str, experiments: &[&str]) {
    let lines: Vec<Vec<&str>> =
        SEED.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(' ').collect()).collect();
    for experiment in experiments {
        let subs: Vec<&Vec<&str>> = lines.iter().filter(|words| words[0] == *experiment).collect();
        assert_eq!(subs.len(), 8);
        let names = ["hif_wr", "hif_rd", "hif_rmw", "cycle"];
        let mut args = String::new();
        for words in &subs {
            for (name, rate) in names.iter().zip(&words[2..5]) {
                rig.tell(&format!("dram {} rate {name} {rate}", words[1]));
            }
            let prefixed = names.map(|name| format!("{prefix}{name}"));
            let prefixed: Vec<&str> = prefixed.iter().map(String::as_str).collect();
            args += &format!("-e {} ", rig.events(words[1], &prefixed));
        }
        settle(experiment, || {
            let before = rig.truth();
            let read = rig.perf(&format!("{args} -- sleep 1"));
            let truth = rig.truth();
            assert_eq!(read.len(), 32);
            rig.equals(&read, &before, &truth);
            for (of_sub, words) in read.chunks(4).zip(&subs) {
                cycles_equal(rig, &of_sub[3], &before, &truth, 1.0);
                let seconds = of_sub[3].counted() as f64 / CYCLES_PER_SECOND;
                for (reading, expected) in of_sub.iter().zip(&words[2..5]) {
                    // perf starts one after the other: a busy machine may put a pause between.
                    let rate = expected.parse::<f64>().unwrap();
                    let per_second = reading.counted() as f64 / seconds;
                    if (per_second - rate).abs() > rate * 0.03 + 10.0 {
                        return Err(format!("{}: {per_second:.0} per second, the seed has {rate}", reading.event));
                    }
                }
            }
            Ok(())
        });
        subs.iter().for_each(|words| {
            names[..3].iter().for_each(|name| drop(rig.tell(&format!("dram {} rate {name} 0", words[1]))))
        });
    }
}

/// All 16 counters at once, each past its end several times.
fn every_counter_wraps(rig: &Counters) {
    let before = rig.truth();
    let perf = rig.perf_start("wraps", &format!("-e {}", rig.events(SUB, &SIXTEEN)));
    counting(rig, SUB, 16);
    // At once as many as go between an interrupt's cause and its handler at the most; and one more than the half.
    for n in [3_000_000_000_u64, 1, 1 << 31, (1 << 31) - 1, 3_500_000_000, 7] {
        for (number, event) in SIXTEEN.iter().enumerate() {
            rig.tell(&format!("dram {SUB} add {event} {}", n + number as u64));
        }
        answered(rig, SUB);
    }
    let read = perf.end();
    let truth = rig.truth();
    rig.equals(&read, &before, &truth);
    assert_eq!(read.len(), 16);
    let counters: Vec<String> =
        SIXTEEN.iter().flat_map(|event| truth.by_counter(&before, SUB, event).into_keys()).collect();
    let mut sorted: Vec<u8> = counters.iter().map(|counter| counter.parse().unwrap()).collect();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..16).collect::<Vec<u8>>(), "each has an event of its own");
    assert!(read.iter().all(|reading| reading.counted() > 2 << 32), "{read:?}");
    assert!(truth.gained(&before, SUB, "overflows") >= 32);
}

/// Counters that pass their end by themselves, while two processes read them all the time: interrupt, read and stop meet in
/// every order. Each passes it every 5 s at most: a busy machine may let the guest stand still for a second.
fn wraps_beside_readers(rig: &Counters) {
    let codes = [
        (0x04, "hif_hi_pri_rd"),
        (0x07, "dfi_wr_data_cycles"),
        (0x08, "dfi_rd_data_cycles"),
        (0x0c, "op_is_activate"),
        (0x0d, "op_is_rd_or_wr"),
        (0x0f, "op_is_rd"),
    ];
    for (number, (_, event)) in codes.iter().enumerate() {
        rig.tell(&format!("dram {SUB} rate {event} {}", (1_u64 << 32) / 5 - number as u64 * 43_456_789));
    }
    let pmu = rig.pmu(SUB);
    let session = |name: &str| {
        let script = format!(
            "{{ for code in 0x04 0x07 0x08 0x0c 0x0d 0x0f; do echo open {pmu} $code; done; \
             until [ -e /tmp/enough ]; do for n in 0 1 2 3 4 5; do echo read $n; done; sleep 0.02; done; \
             for n in 0 1 2 3 4 5; do echo disable $n; echo read $n; done; }} | /lib/pciescope/perf_events >/tmp/{name}.out"
        );
        rig.vm.start(&script)
    };
    rig.must("rm -f /tmp/enough");
    let before = rig.truth();
    let sessions = [session("first"), session("second")];
    rig.wait_for("each counter passes its end", || (rig.truth().gained(&before, SUB, "overflows") >= 12).then_some(()));
    rig.must("touch /tmp/enough");
    let ended = sessions.iter().map(|session| session.wait().unwrap_or_else(|err| panic!("the lab failed: {err}")));
    ended.for_each(|output| assert!(output.is_success(), "{}", output.stderr));
    let truth = rig.truth();
    let outputs = ["first", "second"].map(|name| rig.read(&format!("/tmp/{name}.out")));
    for (number, (code, event)) in codes.iter().enumerate() {
        let last = outputs.each_ref().map(|output| {
            // The events were disabled and read, one after the other.
            let line = output.lines().rev().nth(2 * (5 - number)).unwrap_or_else(|| panic!("no answer: {output}"));
            line.split(' ').next().unwrap().parse::<u64>().unwrap_or_else(|_| panic!("{line}"))
        });
        let mut counted: Vec<u64> = truth.by_counter(&before, SUB, event).into_values().collect();
        let mut read = last.to_vec();
        counted.sort_unstable();
        read.sort_unstable();
        assert_eq!(read, counted, "event {code:#x}");
        rig.tell(&format!("dram {SUB} rate {event} 0"));
    }
}

/// Two sessions with the same event, one of which begins later and ends earlier.
fn sessions_do_not_disturb_each_other(rig: &Counters) {
    rig.tell(&format!("dram {SUB} rate hif_rd 40159522"));
    rig.tell(&format!("dram {SUB} rate hif_wr 11960"));
    let before = rig.truth();
    let long = rig.perf_start("long", &format!("-e {}", rig.events(SUB, &["hif_rd", "hif_rmw", "cycle"])));
    counting(rig, SUB, 2);
    rig.tell(&format!("dram {SUB} add hif_rmw 1000"));
    let short = rig.perf_start("short", &format!("-e {}", rig.events(SUB, &["hif_rd", "hif_wr"])));
    counting(rig, SUB, 4);
    std::thread::sleep(Duration::from_millis(300));
    let short = short.end();
    counting(rig, SUB, 2);
    rig.tell(&format!("dram {SUB} add hif_rmw 234"));
    std::thread::sleep(Duration::from_millis(300));
    let long = long.end();
    let truth = rig.truth();
    let mut counted: Vec<u64> = truth.by_counter(&before, SUB, "hif_rd").into_values().collect();
    counted.sort_unstable();
    assert_eq!(counted, [short[0].counted(), long[0].counted()], "each in a counter of its own");
    assert_eq!(short[1].counted(), truth.counted(&before, SUB, "hif_wr"));
    assert_eq!((long[1].counted(), truth.counted(&before, SUB, "hif_rmw")), (1234, 1234));
    cycles_equal(rig, &long[2], &before, &truth, 0.6);
    assert_eq!(truth.gained(&before, SUB, "resets"), 0, "no session resets what another counts");
    let of_control = ["starts", "stops"].map(|field| truth.gained(&before, SUB, field));
    assert_eq!(of_control, [1, 1], "the first one starts the PMU, the last one stops it, and nobody between");
    assert_eq!(truth.0["dram"][SUB]["running"], false);
    rig.tell(&format!("dram {SUB} rate hif_rd 0"));
    rig.tell(&format!("dram {SUB} rate hif_wr 0"));
}

/// All 17 counters in one group, which is started and stopped at one moment.
fn groups_are_counted_together(rig: &Counters) {
    let rate = 40_159_522_u64;
    SIXTEEN.iter().for_each(|event| drop(rig.tell(&format!("dram {SUB} rate {event} {rate}"))));
    let mut names = SIXTEEN.to_vec();
    names.push("cycle");
    let before = rig.truth();
    let read = rig.perf(&format!("-e {} -- sleep 0.5", rig.group(SUB, &names)));
    let truth = rig.truth();
    assert_eq!(read.len(), 17);
    rig.equals(&read, &before, &truth);
    let first = read[0].counted();
    for reading in &read[..16] {
        // The rates began one after the other: each may be an event ahead.
        assert!(reading.counted().abs_diff(first) <= 1, "{}: {} beside {first}", reading.event, reading.counted());
    }
    cycles_equal(rig, &read[16], &before, &truth, 0.5);
    let expected = read[16].counted() as f64 / CYCLES_PER_SECOND * rate as f64;
    assert!((first as f64 - expected).abs() <= 2.0, "{first} events in {} cycles", read[16].counted());
    SIXTEEN.iter().for_each(|event| drop(rig.tell(&format!("dram {SUB} rate {event} 0"))));
    // One more than there are counters can never run.
    names.push("hif_rd");
    let refused = rig.perf(&format!("-e {} -- sleep 0.1", rig.group(SUB, &names)));
    assert!(refused.iter().all(|reading| reading.count.is_none()), "{refused:?}");
}

/// 20 events share 16 counters: what perf says of each is what was counted while it had one.
fn more_events_than_counters_take_turns(rig: &Counters) {
    let mut names = SIXTEEN.to_vec();
    names.extend(["war_hazard", "raw_hazard", "chi_txreq", "chi_rxdat"]);
    names.iter().for_each(|event| drop(rig.tell(&format!("dram {SUB} rate {event} 1000003"))));
    let before = rig.truth();
    let read = rig.perf(&format!("--no-scale -e {} -- sleep 1", rig.events(SUB, &names)));
    let truth = rig.truth();
    assert_eq!(read.len(), 20);
    rig.equals(&read, &before, &truth);
    assert!(read.iter().any(|reading| reading.percent < 99.0), "nobody had to wait: {read:?}");
    assert!(read.iter().all(|reading| reading.counted() > 0), "one had no turn: {read:?}");
    names.iter().for_each(|event| drop(rig.tell(&format!("dram {SUB} rate {event} 0"))));
}

/// `perf stat -I`: reading disturbs nothing, and the intervals are the whole.
fn intervals_add_up(rig: &Counters) {
    let before = rig.truth();
    let perf = rig.perf_start("intervals", &format!("-I 100 -e {}", rig.events(SUB, &["hif_wr", "op_is_rd"])));
    counting(rig, SUB, 2);
    for n in 0..10_u64 {
        rig.tell(&format!("dram {SUB} add hif_wr {}", 2_000_000_000 + n));
        rig.tell(&format!("dram {SUB} add op_is_rd {n}"));
        std::thread::sleep(Duration::from_millis(60));
        answered(rig, SUB);
    }
    std::thread::sleep(Duration::from_secs(1));
    let read = perf.end();
    let truth = rig.truth();
    assert!(read.len() >= 10, "{read:?}");
    for (event, all) in [("hif_wr", 20_000_000_045), ("op_is_rd", 45)] {
        let of_event = read.iter().filter(|reading| reading.name() == event);
        let sum: u64 = of_event.clone().map(Reading::counted).sum();
        assert_eq!((sum, truth.counted(&before, SUB, event)), (all, all), "{event}");
        assert!(of_event.filter(|reading| reading.counted() > 0).count() > 1, "all of {event} in one interval");
    }
}

/// A carry between the two halves, in every reading: an error of it would be 2^32 cycles, 8.6 seconds.
fn the_cycle_counter_is_not_torn(rig: &Counters) {
    rig.tell(&format!("dram {SUB} torn on"));
    let before = rig.truth();
    let read = rig.perf(&format!("-I 50 --interval-count 10 -e {}", rig.events(SUB, &["cycle"])));
    let truth = rig.truth();
    rig.tell(&format!("dram {SUB} torn off"));
    let all = truth.gained(&before, SUB, "cycles");
    assert!(all > 5 << 32, "no carry was forced: {all}");
    // A jump ahead by whole carries is time that has passed for the counter; one back would be a count near 2^56.
    assert!(read.iter().all(|reading| reading.counted() < 1 << 48), "{read:?}");
    let sum: u64 = read.iter().map(Reading::counted).sum();
    assert!(sum <= all, "{sum} of {all} cycles");
    // The last reading may come before a last carry, which no one saw.
    assert!(all - sum <= (2 << 32) + (CYCLES_PER_SECOND * 0.5) as u64, "{sum} of {all} cycles");
}

/// Should hardware's counters stop at their end: the driver, which expects them to go on, sees it at the first time, says
/// for which event something got lost, and keeps them away from their end from then on.
fn counters_that_hold_are_noticed(rig: &Counters) {
    let saturated = || rig.must(&format!("cat /sys/bus/event_source/devices/{}/saturated", rig.pmu(SUB)));
    assert_eq!(saturated(), "");
    rig.tell("dram all limit hold");
    let before = rig.truth();
    let perf = rig.perf_start("held", &format!("-e {}", rig.events(SUB, &["op_is_rd", "op_is_wr"])));
    counting(rig, SUB, 2);
    rig.tell(&format!("dram {SUB} add op_is_rd 4294967305"));
    answered(rig, SUB);
    // The line is low before the counter has left its end; what comes in between, hardware loses.
    set_back(rig);
    for _ in 0..3 {
        for event in ["op_is_rd", "op_is_wr"] {
            rig.tell(&format!("dram {SUB} add {event} 2000000000"));
        }
        set_back(rig);
    }
    let read = perf.end();
    let truth = rig.truth();
    rig.tell("dram all limit wrap");
    assert_eq!(truth.counted(&before, SUB, "op_is_rd"), 4_294_967_305 + 6_000_000_000);
    assert_eq!(read[0].counted(), u64::from(u32::MAX) + 6_000_000_000, "all but what hardware itself lost");
    assert_eq!(saturated(), "0x0f 1");
    rig.equals(&read[1..], &before, &truth);
    assert_eq!(truth.gained(&before, SUB, "overflows"), 1);
}

/// Should hardware's status bits come later than the counters wrap: the driver sees a lower value before the bit, and the bit
/// afterwards. That is one wrap, also if the bit comes when another event has the counter.
fn a_late_status_bit_is_no_second_wrap(rig: &Counters) {
    let late = || rig.truth().0["dram"][SUB]["late"].as_u64().expect("the ledger counts late bits");
    // perf reads ten times a second, and each reading asks for the status once or twice.
    let events = || format!("-I 100 -e {}", rig.events(SUB, &["op_is_rd", "op_is_wr"]));
    let add = |event: &str, n: u64| {
        rig.tell(&format!("dram {SUB} add {event} {n}"));
        // One reading at least.
        std::thread::sleep(Duration::from_millis(500));
    };
    let equals = |what: &str, read: &[Reading], before: &Truth| {
        let truth = rig.truth();
        for event in ["op_is_rd", "op_is_wr"] {
            let sum: u64 = read.iter().filter(|reading| reading.name() == event).map(Reading::counted).sum();
            assert_eq!(sum, truth.counted(before, SUB, event), "{what}: {event}");
        }
    };
    rig.tell(&format!("dram {SUB} lag 4"));
    let before = rig.truth();
    let perf = rig.perf_start("late", &events());
    counting(rig, SUB, 2);
    for _ in 0..3 {
        add("op_is_rd", 3_000_000_000);
        add("op_is_wr", 2_500_000_000);
        rig.wait_for("the late bits come", || (late() == 0).then_some(()));
        answered(rig, SUB);
    }
    let read = perf.end();
    equals("while it counts", &read, &before);
    assert!(rig.truth().gained(&before, SUB, "overflows") >= 3);

    // More reads than this session makes.
    rig.tell(&format!("dram {SUB} lag 100000"));
    let before = rig.truth();
    let perf = rig.perf_start("late", &events());
    counting(rig, SUB, 2);
    for event in ["op_is_rd", "op_is_wr", "op_is_rd", "op_is_wr"] {
        add(event, 3_000_000_000);
    }
    let read = perf.end();
    equals("before the bits", &read, &before);
    assert_eq!(late(), 2, "the bits have not come");
    let before = rig.truth();
    let perf = rig.perf_start("late", &events());
    counting(rig, SUB, 2);
    rig.tell(&format!("dram {SUB} lag 0"));
    answered(rig, SUB);
    add("op_is_rd", 1_000);
    let read = perf.end();
    equals("an event that did not wrap", &read, &before);
    // And a wrap is counted again.
    let before = rig.truth();
    let perf = rig.perf_start("late", &events());
    counting(rig, SUB, 2);
    for _ in 0..4 {
        add("op_is_rd", 3_000_000_000);
        answered(rig, SUB);
    }
    let read = perf.end();
    equals("afterwards", &read, &before);
}

/// Waits until the driver has looked: it sets a counter in its upper half back.
fn set_back(rig: &Counters) {
    rig.wait_for("the driver keeps its counters away from their end", || {
        let values = &rig.truth().0["dram"][SUB]["values"];
        values.as_object()?.values().all(|value| value.as_u64() < Some(1 << 31)).then_some(())
    });
}

/// As before, with a driver that was told.
fn counters_that_are_known_to_hold_lose_nothing(rig: &Counters) {
    rig.tell("dram all limit hold");
    let before = rig.truth();
    let perf = rig.perf_start("known", &format!("-e {}", rig.events(SUB, &["hif_rd", "hif_wr"])));
    counting(rig, SUB, 2);
    for _ in 0..6 {
        rig.tell(&format!("dram {SUB} add hif_rd 2000000000"));
        rig.tell(&format!("dram {SUB} add hif_wr 1000000000"));
        set_back(rig);
    }
    let read = perf.end();
    let truth = rig.truth();
    rig.tell("dram all limit wrap");
    rig.equals(&read, &before, &truth);
    assert_eq!((read[0].counted(), read[1].counted()), (12_000_000_000, 6_000_000_000));
    assert_eq!(truth.gained(&before, SUB, "overflows"), 0);
}

/// Every number that is no event, and ways of counting that this hardware does not have.
fn what_does_not_exist_is_refused(rig: &Counters) {
    let log = || rig.log_lines();
    let before = log();
    let shown = rig.must(&format!("cat /sys/bus/event_source/devices/{}/events/*", rig.pmu(SUB)));
    let code = |line: &str| line.split_once("=0x").and_then(|(_, hex)| u64::from_str_radix(hex, 16).ok());
    let known: Vec<u64> = shown.lines().filter_map(code).collect();
    assert_eq!(known.len(), 53, "{shown}");
    let opened = rig.open(SUB, (0..256).map(|code| format!("{code:#x}")));
    for (code, answer) in opened.iter().enumerate() {
        if known.contains(&(code as u64)) {
            assert!(answer.parse::<u32>().is_ok(), "{code:#x}: {answer}");
        } else {
            assert_eq!(answer, "EINVAL", "{code:#x}");
        }
    }
    let raw = ["0x102", "0x100000002", "0x8000000000000002", "0x182"].map(str::to_owned);
    assert_eq!(rig.open(SUB, raw), ["EINVAL"; 4]);
    // For EOPNOTSUPP, perf advises to count.
    let attributes =
        [("config1=1", "EINVAL"), ("config2=1", "EINVAL"), ("period=1000", "EOPNOTSUPP"), ("task", "EINVAL")];
    for (attribute, refusal) in attributes {
        assert_eq!(rig.open(&format!("{SUB}:{attribute}"), ["0x02".to_owned()]), [refusal], "{attribute}");
    }
    // perf's own way of asking for the same, once: it takes perf ten seconds to find out, and the kernel's answer stands above.
    if rig.release().starts_with("6.12") {
        let sampled = rig.run(&format!("perf record -o /dev/null -a -c 1000 -e {}/hif_rd/ -- true", rig.pmu(SUB)));
        assert!(!sampled.is_success() && sampled.stderr.contains("perf stat"), "{}", sampled.stderr);
    }
    // A user's mistake is no news to the kernel's log.
    assert_eq!(log(), before, "{}", rig.must("dmesg | tail"));
    assert_eq!(rig.truth().enabled(SUB), 0);
}

/// The CPU that counts goes offline: counting goes on elsewhere, and new sessions open there.
fn cpus_go_and_come_back(rig: &Counters) {
    let mask = |sub: &str| rig.must(&format!("cat /sys/bus/event_source/devices/{}/cpumask", rig.pmu(sub)));
    let from = mask(FAR);
    assert_ne!(from, "0", "the first CPU cannot go offline; the far die's sub-channels count on its own CPUs");
    let interrupt_of = |sub: &str| {
        rig.must(&format!(
            "cat /proc/irq/$(grep {} /proc/interrupts | cut -d: -f1 | tr -d ' ')/smp_affinity_list",
            rig.pmu(sub)
        ))
    };
    assert_eq!(interrupt_of(FAR), from);
    let online = |cpu: &str, on: u8| drop(rig.must(&format!("echo {on} >/sys/devices/system/cpu/cpu{cpu}/online")));
    rig.tell(&format!("dram {FAR} rate hif_rd 40071063"));
    let before = rig.truth();
    let perf = rig.perf_start("hotplug", &format!("-e {}", rig.events(FAR, &["hif_rd", "op_is_wr", "cycle"])));
    counting(rig, FAR, 2);
    rig.tell(&format!("dram {FAR} add op_is_wr 1"));
    online(&from, 0);
    let to = mask(FAR);
    assert_ne!(from, to);
    assert_eq!(interrupt_of(FAR), to, "the interrupt is where the counts are read");
    assert_eq!(rig.must(&format!("cat /sys/devices/system/cpu/cpu{to}/online 2>/dev/null || echo 1")), "1");
    rig.tell(&format!("dram {FAR} add op_is_wr 10"));
    counting(rig, FAR, 2);
    // A session of its own, at once, where the mask says.
    rig.tell(&format!("dram {FAR} rate hif_rmw 1000"));
    let other = rig.perf(&format!("-e {} -- sleep 0.3", rig.events(FAR, &["hif_rmw"])));
    rig.equals(&other, &before, &rig.truth());
    // An overflow finds its way to the new CPU.
    rig.tell(&format!("dram {FAR} add op_is_wr 3000000000"));
    answered(rig, FAR);
    online(&from, 1);
    rig.tell(&format!("dram {FAR} add op_is_wr 3000000000"));
    answered(rig, FAR);
    let read = perf.end();
    let truth = rig.truth();
    assert_eq!(read[1].counted(), 6_000_000_011);
    rig.equals(&read[..2], &before, &truth);
    rig.tell(&format!("dram {FAR} rate hif_rd 0"));
    rig.tell(&format!("dram {FAR} rate hif_rmw 0"));
    let after = rig.perf(&format!("-e {} -- sleep 0.2", rig.events(FAR, &["cycle"])));
    assert!(after[0].counted() > 0);
}

/// Two sub-channels and a foreign source on one line, all of them at once, again and again.
fn lines_are_shared(rig: &Counters) {
    let handled = || rig.must("cat /sys/module/pciescope_lab/parameters/foreign_handled").parse::<u64>().unwrap();
    let foreign_before = handled();
    let before = rig.truth();
    let args = [SUB, SISTER].map(|sub| format!("-e {}", rig.events(sub, &["hif_rd", "op_is_rd"]))).join(" ");
    let perf = rig.perf_start("lines", &args);
    counting(rig, SUB, 2);
    counting(rig, SISTER, 2);
    // With one event behind it, each of these passes the end once, wherever the driver had the counter begin.
    let full = u32::MAX;
    let counters = [(SUB, "hif_rd"), (SISTER, "hif_rd"), (SISTER, "op_is_rd")];
    counters.iter().for_each(|(sub, event)| drop(rig.tell(&format!("dram {sub} add {event} 10"))));
    for n in 1..=5_u64 {
        rig.tell(&format!("dram {SUB} add hif_rd {full}"));
        rig.tell(&format!("dram {SISTER} add hif_rd {full}"));
        rig.tell("foreign 0");
        rig.tell(&format!("dram {SISTER} add op_is_rd {full}"));
        rig.wait_for("the foreign source is handled", || (handled() == foreign_before + n).then_some(()));
        answered(rig, SUB);
        answered(rig, SISTER);
    }
    // Nobody counts here, so the driver has no part in this one.
    rig.tell("foreign 5");
    rig.wait_for("the foreign source of an idle line is handled", || (handled() == foreign_before + 6).then_some(()));
    let read = perf.end();
    let truth = rig.truth();
    rig.equals(&read, &before, &truth);
    assert!(truth.gained(&before, SUB, "overflows") >= 5 && truth.gained(&before, SISTER, "overflows") >= 10);
    // A line that nobody answers is switched off by the kernel, and says so.
    assert_eq!(rig.must("dmesg | grep -c 'nobody cared' || true"), "0");
}

/// The shim's device is taken away with all that hangs on it, while every line fires.
fn the_whole_board_goes_and_comes_back(rig: &Counters) {
    // Every sub-channel passes its end 20 times a second.
    rig.tell(&format!("dram all rate hif_rd {}", 20_u64 << 32));
    let perf = rig.perf_start("removed", &format!("-e {}", rig.events(SUB, &["hif_rd", "cycle"])));
    counting(rig, SUB, 1);
    let address = rig.vm.address(rig.board.name);
    rig.must(&format!("echo 1 >/sys/bus/pci/devices/{address}/remove"));
    let pmus = || rig.must("ls /sys/bus/event_source/devices | grep ali_drw || true");
    rig.wait_for("the PMUs that nobody uses are gone", || (pmus() == rig.pmu(SUB)).then_some(()));
    assert_eq!(rig.open(SUB, ["0x02".to_owned()]), ["ENODEV"]);
    assert_eq!(rig.truth().enabled(SUB), 0);
    assert!(perf.is_alive());
    rig.tell("dram all rate hif_rd 1000003");
    rig.must("echo 1 >/sys/bus/pci/rescan");
    // Who counted before counts on.
    counting(rig, SUB, 1);
    perf.end();
    let before = rig.truth();
    let read = rig.perf(&format!("-e {} -- sleep 0.3", rig.events(SUB, &["hif_rd"])));
    rig.equals(&read, &before, &rig.truth());
    rig.tell("dram all rate hif_rd 0");
}

/// Unbinding and binding while the line of the device fires all the time, beside one on the same line that goes on.
fn a_sub_channel_is_taken_away_while_its_line_fires(rig: &Counters) {
    // The first two sub-channels' devices, in the order in which the shim made them.
    let devices = rig.must("cd /sys/bus/platform/devices; ls -d ali_drw_pmu.* | sort -t. -k2 -n | head -2");
    let devices: Vec<&str> = devices.lines().collect();
    let driver = rig.must(&format!("readlink -f /sys/bus/platform/devices/{}/driver", devices[0]));
    let before = rig.truth();
    let beside = rig.perf_start("beside", &format!("-e {}", rig.events(SISTER, &["hif_rd", "op_is_rd"])));
    counting(rig, SISTER, 2);
    rig.tell(&format!("dram {SISTER} rate hif_rd 40159522"));
    // 2^31 a hundred times a second.
    rig.tell(&format!("dram {SUB} rate hif_rd {}", 100 * (1_u64 << 31)));
    for round in 0..10 {
        let perf = rig.perf_start("taken", &format!("-e {}", rig.events(SUB, &["hif_rd", "cycle"])));
        counting(rig, SUB, 1);
        rig.tell("foreign 0");
        rig.must(&format!("echo {} >{driver}/unbind", devices[0]));
        assert_eq!(rig.open(SUB, ["0x02".to_owned()]), ["ENODEV"], "round {round}");
        assert_eq!(rig.truth().enabled(SUB), 0, "the hardware is left counting");
        assert!(!rig.truth().is_asserted(SUB), "the line is left high");
        rig.tell(&format!("dram {SISTER} add op_is_rd 3000000000"));
        answered(rig, SISTER);
        perf.end();
        rig.must(&format!("echo {} >{driver}/bind", devices[0]));
    }
    rig.tell(&format!("dram {SUB} rate hif_rd 0"));
    assert!(beside.is_alive());
    let read = beside.end();
    rig.equals(&read, &before, &rig.truth());
    assert_eq!(read[1].counted(), 30_000_000_000);
    rig.tell(&format!("dram {SISTER} rate hif_rd 0"));
    // Who counts while a sub-channel goes and comes back counts all but what comes meanwhile.
    let before = rig.truth();
    rig.tell(&format!("dram {SUB} rate hif_rd 1000"));
    let perf = rig.perf_start("back", &format!("-e {}", rig.events(SUB, &["hif_rd", "cycle"])));
    counting(rig, SUB, 1);
    rig.must(&format!("cd {driver} && echo {0} >unbind && sleep 0.3 && echo {0} >bind", devices[0]));
    counting(rig, SUB, 1);
    std::thread::sleep(Duration::from_millis(300));
    let read = perf.end();
    let truth = rig.truth();
    rig.equals(&read, &before, &truth);
    assert!(truth.counted(&before, SUB, "hif_rd") < truth.happened(&before, SUB, "hif_rd"));
    cycles_equal(rig, &read[1], &before, &truth, 0.3);
    rig.tell(&format!("dram {SUB} rate hif_rd 0"));
}
