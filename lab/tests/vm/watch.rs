//! `watch` on links that change as the device's side says: what was planted is found, with its cause, and nothing else is.
//! docs/watch.md.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pciescope_core::change::{Cause, Source, Subject};
use pciescope_core::{Bdf, Change, Record};
use pciescope_lab::device::CounterBoard;
use pciescope_lab::device::rasdes::Shape;
use pciescope_lab::device::traffic::Traffic;
use pciescope_lab::vm::{Attachment, GuestDevice, Kernel, RootPort, Vm, seed_machine};
use serde_json::json;

use crate::say;
use crate::support::guest::Guest;
use crate::support::{Endpoint, PATIENCE, program, records};

/// Time between samples, and how long a state lasts at least: more than two of them, on a busy host too.
const INTERVAL: &str = "250ms";
const HOLD: Duration = Duration::from_millis(1100);
/// A state of the fast script: less than half of the time between samples.
const FAST: Duration = Duration::from_millis(100);
/// Links that have a device below; the others are empty. Below the last one is the switch, where there is one.
const CARDS: [&str; 4] = ["0000:10:03.0", "0000:30:01.0", "0000:80:02.0", "0000:b0:00.0"];

/// Bits of the dword of Link Control and Link Status (PCIe 6.0, 7.5.3.7 and 7.5.3.8).
const LINK: u32 = 0xc3ff_0003;
const LBMS: u32 = 0x4000_0000;
const LABS: u32 = 0x8000_0000;
/// Both enable bits of bandwidth notifications.
const NOTIFIES: u32 = 0x0c00;
/// Presence Detect State and Attention Indicator of the slot's (7.5.3.10, 7.5.3.11).
const CARD: u32 = 0x0040_0000;
const SLOT: u32 = 0x0040_04c0;

/// How a link's registers are.
#[derive(Clone, Copy, PartialEq)]
struct Registers {
    code: u32,
    width: u32,
    target: u32,
    bits: u32,
    slot: u32,
    /// DPC Status: whether containment was triggered.
    contained: u32,
}

const SPEEDS: [&str; 6] = ["", "2.5", "5", "8", "16", "32"];

impl Registers {
    fn words(&self) -> String {
        match self.width {
            0 => "no link".to_owned(),
            width => format!("{} GT/s x{width}", SPEEDS[self.code as usize]),
        }
    }

    /// Shows them at a port, those that are done first by software and people first.
    fn show(&self, board: &Endpoint, port: &str) {
        board.tell(&format!("port {port} dpc {}", self.contained));
        board.tell(&format!("port {port} express 0x30 {} 0xf", self.target));
        board.tell(&format!("port {port} express 0x18 {} {SLOT}", self.slot));
        self.show_link(board, port);
    }

    fn show_link(&self, board: &Endpoint, port: &str) {
        let link = (self.code | self.width << 4) << 16 | self.bits;
        board.tell(&format!("port {port} express 0x10 {link} {LINK}"));
    }
}

/// A change that was planted: what, to what, and why.
type Planted = (Subject, String, Cause);

/// What is done to a link by turns; each begins with clear bits.
const KINDS: [&str; 9] = ["lbms", "labs", "target", "lanes", "silent", "between", "aspm", "unplug", "dpc"];

/// The next state of a link and the changes that it is.
fn next(kind: &str, now: Registers, random: &mut impl FnMut(u32) -> u32) -> (Registers, Vec<Planted>) {
    // Never the lowest speed: an empty port shows it.
    let lower = if now.code > 3 { now.code - 1 } else { 5 };
    let is_better = lower > now.code;
    let link = |to: Registers, cause| (to, vec![(Subject::Link, to.words(), cause)]);
    match kind {
        "lbms" => {
            let cause = if is_better { Cause::Software } else { Cause::Reliability };
            link(Registers { code: lower, bits: LBMS, ..now }, cause)
        }
        "lanes" => {
            let width = if now.width > 1 { now.width / 2 } else { 4 };
            let cause = if width > now.width { Cause::Software } else { Cause::Reliability };
            link(Registers { width, bits: LBMS, ..now }, cause)
        }
        "labs" => link(Registers { code: lower, bits: LABS, ..now }, Cause::Autonomous),
        "target" => {
            let code = 3 + (now.target - 3 + 1 + random(2)) % 3;
            let to = Registers { code, target: code, bits: LBMS, ..now };
            // A target that is what runs already retrains nothing.
            if code == now.code { (now, Vec::new()) } else { link(to, Cause::Software) }
        }
        "silent" => link(Registers { code: lower, ..now }, Cause::Unknown),
        "between" => (Registers { bits: LBMS, ..now }, vec![(Subject::Link, now.words(), Cause::Unknown)]),
        "aspm" => {
            let bits = 1 + random(3);
            let word = ["", "L0s", "L1", "L0s L1"][bits as usize];
            (Registers { bits, ..now }, vec![(Subject::Aspm, word.to_owned(), Cause::Software)])
        }
        "unplug" => {
            let to = Registers { width: 0, code: 0, slot: 0, ..now };
            let slot = (Subject::Slot, "empty".to_owned(), Cause::HotPlug);
            (to, vec![slot, (Subject::Link, to.words(), Cause::HotPlug)])
        }
        "dpc" => {
            let to = Registers { width: 0, code: 0, contained: 1, ..now };
            let triggered = (Subject::Containment, "triggered".to_owned(), Cause::Containment);
            (to, vec![triggered, (Subject::Link, to.words(), Cause::Containment)])
        }
        other => unreachable!("{other}"),
    }
}

/// Numbers below a limit, always the same of a seed.
fn random_of(seed: u64) -> impl FnMut(u32) -> u32 {
    let mut state = seed;
    move |below: u32| {
        // Knuth's MMIX generator.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % below
    }
}

/// Plants changes at all ports for so many rounds, and gives what was planted, by port.
fn plant(vm: &Guest, board: &Endpoint, ports: &[String], rounds: usize, seed: u64) -> BTreeMap<String, Vec<Planted>> {
    let mut random = random_of(seed);
    let mut links: BTreeMap<&str, Registers> = ports.iter().map(|port| (port.as_str(), at_start())).collect();
    let mut planted: BTreeMap<String, Vec<Planted>> = BTreeMap::new();
    let mut errors: BTreeMap<&str, u32> = BTreeMap::new();
    for round in 0..rounds {
        for (number, port) in ports.iter().enumerate() {
            let now = links[port.as_str()];
            let kind = KINDS[(number + round + random(3) as usize) % KINDS.len()];
            let (to, changes) = next(kind, now, &mut random);
            to.show(board, port);
            links.insert(port, to);
            planted.entry(port.clone()).or_default().extend(changes);
        }
        std::thread::sleep(HOLD);
        // Somebody clears the bits, sets ASPM off and puts the card back.
        for port in ports {
            let now = links[port.as_str()];
            let mut to = Registers { bits: 0, ..now };
            let changes = planted.entry(port.clone()).or_default();
            if now.bits & 3 != 0 {
                changes.push((Subject::Aspm, "off".to_owned(), Cause::Software));
            }
            if now.width == 0 {
                to = Registers { target: now.target, ..at_start() };
                let (of, word, cause) = match now.contained {
                    0 => (Subject::Slot, "card", Cause::HotPlug),
                    _ => (Subject::Containment, "not triggered", Cause::Containment),
                };
                changes.push((of, word.to_owned(), cause));
                changes.push((Subject::Link, to.words(), cause));
            }
            to.show(board, port);
            links.insert(port, to);
            // An error, of ports at which nothing else happens now. Its interrupt has the kernel look for LBMS too.
            if now.bits & 3 == 0 && now.width != 0 && random(3) == 0 {
                crate::soak::error(vm, port);
                // Of errors below one root port at the same time the kernel looks at five functions.
                if port.starts_with("0000:b2") {
                    std::thread::sleep(Duration::from_millis(30));
                }
                let count = errors.entry(port).or_default();
                *count += 1;
                changes.push((Subject::Errors, format!("{count} correctable"), Cause::Unknown));
            }
        }
        std::thread::sleep(HOLD);
    }
    planted
}

/// Plants five changes of each link in rounds that are too fast for the recorder, and gives the states of each round. Hardware
/// sets LBMS or LABS each time. Only when all is quiet the bits are cleared; ASPM marks the end of a round.
fn plant_fast(board: &Endpoint, ports: &[String], rounds: usize, seed: u64) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut random = random_of(seed);
    let mut links: Vec<Registers> = vec![at_start(); ports.len()];
    let mut states: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for _ in 0..rounds {
        for (port, now) in ports.iter().zip(&links) {
            states.entry(port.clone()).or_default().push(vec![now.words()]);
        }
        for _ in 0..5 {
            for (port, now) in ports.iter().zip(&mut links) {
                let kind = ["lbms", "labs", "lanes", "between"][random(4) as usize];
                let (to, _) = next(kind, *now, &mut random);
                *now = Registers { bits: now.bits | to.bits, ..to };
                now.show_link(board, port);
                states.entry(port.clone()).or_default().last_mut().unwrap().push(now.words());
            }
            std::thread::sleep(FAST);
        }
        for bits in [None, Some(1), Some(0)] {
            for (port, now) in ports.iter().zip(&mut links) {
                now.bits = bits.unwrap_or(now.bits);
                now.show_link(board, port);
            }
            std::thread::sleep(HOLD);
        }
    }
    states
}

/// Of each link every change is found, or one of its interval is, or the record behind it says that some may have been missed.
fn a_script_faster_than_samples_leaves_nothing_unsaid(
    vm: &Guest,
    board: &Endpoint,
    ports: &[String],
    rounds: usize,
    seed: u64,
) {
    ports.iter().for_each(|port| at_start().show(board, port));
    let mut planted = BTreeMap::new();
    let records = watch(vm, &format!("-I {INTERVAL}"), || planted = plant_fast(board, ports, rounds, seed));
    let (mut all, mut found_ones) = (0, 0);
    for port in ports {
        let found: Vec<Change> = found(&records, port).into_iter().map(|(_, change, _)| change).collect();
        let groups: Vec<&[Change]> = found.split(|one| one.of == Subject::Aspm && one.to == "L0s").collect();
        let states = &planted[port];
        assert_eq!(groups.len(), states.len() + 1, "{port}: {found:#?}");
        let own = records.iter().filter(|one| one.device.as_ref().and_then(|device| device.bdf) == port.parse().ok());
        let unseen = own.filter_map(|one| one.metrics.get("unseen_ns")).any(|metric| metric.value > 0.0);
        // Whether changes behind the last record may be missing.
        let mut is_behind = false;
        for (round, (group, states)) in groups.iter().zip(states).enumerate() {
            let links: Vec<&Change> = group.iter().filter(|one| one.of == Subject::Link).collect();
            assert!(!links.is_empty(), "{port}: nothing of round {round}");
            let mut at = 0;
            for (number, change) in links.iter().enumerate() {
                let later = states.iter().skip(at + 1).position(|state| *state == change.to);
                let skipped = later.unwrap_or_else(|| panic!("{port}: invented in round {round}: {change:?}"));
                // The first one is of the interval itself: all bits were clear.
                let is_missing = is_behind || number > 0 && skipped > 0;
                assert!(!is_missing || change.may_have_missed || change.is_between(), "{port}: {round} {change:?}");
                (at, is_behind) = (at + 1 + skipped, false);
            }
            assert_eq!(Some(&links[links.len() - 1].to), states.last(), "{port}: the last state of round {round}");
            is_behind = at + 1 < states.len();
            all += states.len() - 1;
            found_ones += links.len();
        }
        assert!(!is_behind || unseen, "{port}: nothing says that changes behind the last one may be missing");
    }
    say!("fast: {found_ones} of {all} changes are found, and all others stand in intervals that are marked");
    assert!(found_ones < all, "the script was not too fast");
}

fn at_start() -> Registers {
    Registers { code: 5, width: 4, target: 5, bits: 0, slot: CARD, contained: 0 }
}

/// What was found at a port, in the order of time; of one sample in that of the subjects.
fn found(records: &[Record], port: &str) -> Vec<(Planted, Change, u64)> {
    let own = records.iter().filter(|one| one.device.as_ref().and_then(|device| device.bdf) == port.parse().ok());
    let changes = own.filter_map(|one| Some((one.change.clone()?, one.interval?.end_ns)));
    let of = [Subject::Link, Subject::Aspm, Subject::Slot, Subject::Containment, Subject::Errors];
    let changes = changes.filter(|(change, _)| !change.is_start() && of.contains(&change.of));
    changes
        .map(|(change, at)| ((change.of, change.to.clone(), change.cause.unwrap_or(Cause::Unknown)), change, at))
        .collect()
}

/// Downstream ports of the switch below the last root port.
const DOWNSTREAM: u8 = 22;

/// The seed's machine with the board; with a switch, its 18 root ports and the 22 ports of that are 40 links.
fn machine(kernel: Kernel, has_switch: bool) -> (Guest, Endpoint, Vec<String>) {
    let count = if has_switch { DOWNSTREAM } else { 0 };
    let below: Vec<Bdf> = (0..count).map(|device| Bdf { domain: 0, bus: 0xb2, device, function: 0 }).collect();
    let board = CounterBoard::seed_machine(Traffic::new());
    let board = below.iter().fold(board, |board, port| board.function(*port, (0x104c, 0x8233), Shape::default()));
    let board = Endpoint::serve(board, "board");
    let mut builder = Vm::builder()
        .kernel(kernel)
        .seed_machine()
        .served("board", &board.served, Attachment::RootBus)
        .module("pciescope_lab")
        .program(program());
    for (number, port) in CARDS.iter().enumerate() {
        let (name, device) = match has_switch && number + 1 == CARDS.len() {
            true => ("switch".to_owned(), GuestDevice::Other("x3130-upstream".to_owned())),
            false => (format!("edu{number}"), GuestDevice::Edu),
        };
        builder = builder.device(name, device, Attachment::Port(port.parse().unwrap()));
    }
    for Bdf { bus, device, .. } in &below {
        let id = format!("port-{bus:02x}-{device:02x}.0");
        let port = format!("xio3130-downstream,id={id},bus=switch,chassis=100,slot={device},addr={device:#x}");
        builder = builder.qemu_args(["-device".to_owned(), port]);
    }
    let vm = Guest::boot(builder);
    // QEMU's switch has links of no lanes; what the kernel keeps of them it reads when it scans.
    for port in &below {
        for (offset, value, mask) in [(0xc, 0x45, 0x3ff), (0x2c, 0x3e, 0xfe)] {
            board.tell(&format!("port {port} express {offset:#x} {value:#x} {mask:#x}"));
        }
    }
    if has_switch {
        vm.must("cd /sys/bus/pci/devices; for port in 0000:b2:*; do echo 1 >$port/remove; done; echo 1 >0000:b1:00.0/rescan");
        let links = vm.must("cat /sys/bus/pci/devices/0000:b2:*/max_link_speed | grep -c '^32'");
        assert_eq!(links, DOWNSTREAM.to_string(), "the lab failed: the switch has too few links");
    }
    // Messages of errors on the console would hold up the errors behind them.
    vm.must("dmesg -n 1");
    let ports = seed_machine().into_iter().map(|port| port.address).chain(below);
    let ports: Vec<String> = ports.map(|port| port.to_string()).collect();
    for port in &ports {
        at_start().show(&board, port);
    }
    (vm, board, ports)
}

/// Watches while something is done, and gives the records.
fn watch(vm: &Guest, args: &str, meanwhile: impl FnOnce()) -> Vec<Record> {
    vm.must("rm -f /tmp/watch.jsonl");
    let running = vm.start(&format!("exec pciescope watch {args} -j >/tmp/watch.jsonl"));
    vm.wait_until("the first sample", "grep -q '\"config_reads\\|\"of\":\"link\"' /tmp/watch.jsonl");
    meanwhile();
    running.signal("INT").unwrap_or_else(|err| panic!("the lab failed: {err}"));
    let output = running.wait_within(PATIENCE).unwrap_or_else(|err| panic!("it does not end: {err}"));
    assert_eq!(output.status, 130, "{}", output.stderr);
    records::parse(&vm.read("/tmp/watch.jsonl"))
}

pub fn planted_changes_are_found_with_their_causes_on_6_12() {
    let (vm, board, ports) = machine(Kernel::V6_12, false);
    every_change_is_found(&vm, &board, &ports, 6, 12);
    a_script_faster_than_samples_leaves_nothing_unsaid(&vm, &board, &ports, 2, 13);
    nothing_is_woken_or_written(&vm, &board, &ports);
    a_full_disk_loses_no_change(&vm, &board);
    a_recorder_without_rights_finds_causes_by_its_helper(&vm, &board);
    a_bit_that_is_cleared_tells_of_each_change(&vm, &board);
    vm.check_log();
}

/// The whole table, alone on the machine: `make prove-links`.
fn every_planted_change_of_forty_links_is_found(kernel: Kernel, seed: u64) {
    let (vm, board, ports) = machine(kernel, true);
    every_change_is_found(&vm, &board, &ports, 20, seed);
    a_script_faster_than_samples_leaves_nothing_unsaid(&vm, &board, &ports, 10, seed + 10);
    nothing_is_woken_or_written(&vm, &board, &ports);
    if kernel != Kernel::Newest {
        a_bit_that_is_cleared_tells_of_each_change(&vm, &board);
    }
    vm.check_log();
}

pub fn every_planted_change_of_forty_links_is_found_on_6_1() {
    every_planted_change_of_forty_links_is_found(Kernel::V6_1, 1);
}

pub fn every_planted_change_of_forty_links_is_found_on_6_12() {
    every_planted_change_of_forty_links_is_found(Kernel::V6_12, 2);
}

pub fn every_planted_change_of_forty_links_is_found_on_the_newest_kernel() {
    every_planted_change_of_forty_links_is_found(Kernel::Newest, 3);
}

fn every_change_is_found(vm: &Guest, board: &Endpoint, ports: &[String], rounds: usize, seed: u64) {
    let mut planted = BTreeMap::new();
    let records = watch(vm, &format!("-I {INTERVAL}"), || planted = plant(vm, board, ports, rounds, seed));
    let (mut right, mut wrong, mut named) = (0, Vec::new(), 0);
    for port in ports {
        let mut seen: Vec<Planted> = found(&records, port).into_iter().map(|(planted, ..)| planted).collect();
        let mut expected = planted.get(port).cloned().unwrap_or_default();
        // When the kernel counts an error is its own affair.
        seen.sort_by_key(|(of, ..)| *of == Subject::Errors);
        expected.sort_by_key(|(of, ..)| *of == Subject::Errors);
        // Every change is found, in its order, and none is invented.
        let without_causes =
            |all: &[Planted]| -> Vec<(Subject, String)> { all.iter().map(|(of, to, _)| (*of, to.clone())).collect() };
        assert_eq!(without_causes(&seen), without_causes(&expected), "{port}");
        for (got, want) in seen.iter().zip(&expected) {
            named += usize::from(want.2 != Cause::Unknown);
            if got.2 == want.2 {
                right += 1;
            } else {
                wrong.push(format!("{port}: {got:?} instead of {:?}", want.2));
            }
        }
    }
    say!("{right} of {} changes have their cause, {named} of them can have one", right + wrong.len());
    // A sample may fall between two registers: a hundredth, and at least one, as by chance in so few.
    assert!(wrong.len() <= 1 + right / 100, "{wrong:#?}");
    assert!(right > rounds * ports.len() / 2, "only {right} changes were planted");
}

/// At most 5 configuration reads for a port and sample. The kernel's events, such as late ones of an earlier script, call for
/// samples between.
fn costs(records: &[Record]) {
    let totals: Vec<&Record> = records.iter().filter(|one| one.metrics.contains_key("changes")).collect();
    let (first, links) = (totals[0], totals.len() as f64);
    let value = |name: &str| first.metrics[name].value;
    let (reads, samples) = (value("config_reads_per_s") * interval(first), value("samples"));
    assert!(reads > 0.0 && reads <= 5.0 * links * samples, "{reads} reads in {samples} samples of {links} links");
}

/// Seconds of a record.
fn interval(record: &Record) -> f64 {
    let interval = record.interval.as_ref().expect("a total has its time");
    (interval.end_ns - interval.start_ns) as f64 / 1e9
}

/// A watch clears no bit, and wakes no device.
fn nothing_is_woken_or_written(vm: &Guest, board: &Endpoint, ports: &[String]) {
    let port = CARDS[0];
    assert!(ports.iter().any(|one| one == port));
    board.tell(&format!("port {port} express 0x10 {LBMS} {LBMS}"));
    let status = || vm.must(&format!("setpci -s {port} CAP_EXP+12.w"));
    let (before, device) = (status(), vm.address("edu0"));
    // No driver: the kernel suspends it when it may.
    vm.must(&format!("echo auto >/sys/bus/pci/devices/{device}/power/control"));
    vm.wait_until(
        "the device sleeps",
        &format!("grep -q suspended /sys/bus/pci/devices/{device}/power/runtime_status"),
    );
    let active = || vm.must(&format!("cat /sys/bus/pci/devices/{device}/power/runtime_active_time"));
    let was_active = active();
    let records = watch(vm, &format!("-I {INTERVAL}"), || std::thread::sleep(Duration::from_secs(5)));
    assert_eq!(active(), was_active, "a watch woke {device}");
    assert_eq!(status(), before, "a watch cleared a bit");
    let asleep = records.iter().filter_map(|one| one.metrics.get("asleep_ns")).any(|metric| metric.value > 0.0);
    assert!(asleep, "no record says that a function sleeps");
    costs(&records);
    let is_start = |one: &Record| one.change.as_ref().is_none_or(Change::is_start);
    assert!(records.iter().all(is_start), "{:#?}", records.iter().find(|one| !is_start(one)));
    // It says for which link a change could have been missed, and why: all links where the kernel clears the bits.
    let missed = records.iter().flat_map(|one| &one.warnings).filter(|one| one.code == "changes-missed");
    let whys: Vec<&str> = missed.map(|one| one.text.as_str()).collect();
    let services = vm.must("ls -d /sys/bus/pci/devices/*/*:pcie010/driver 2>/dev/null | wc -l");
    let (count, why) = match services.parse().unwrap() {
        0 => (1, "set already"),
        services => (services, "clears"),
    };
    assert!(whys.len() == count && whys.iter().all(|text| text.contains(why)), "{whys:#?}");
    vm.must(&format!("echo on >/sys/bus/pci/devices/{device}/power/control"));
}

/// With `--clear-lbms` each change that comes back leaves its trace; without, only the first one does. LABS stays.
fn a_bit_that_is_cleared_tells_of_each_change(vm: &Guest, board: &Endpoint) {
    let port = CARDS[1];
    let status = || u32::from_str_radix(&vm.must(&format!("setpci -s {port} CAP_EXP+12.w")), 16).unwrap() << 16;
    let between = |args: &str, all: &[u32], left: &[u32]| {
        at_start().show(board, port);
        let records = watch(vm, &format!("{port} -I {INTERVAL} {args}"), || {
            for (bits, left) in all.iter().zip(left) {
                Registers { bits: *bits, ..at_start() }.show_link(board, port);
                std::thread::sleep(HOLD);
                assert_eq!(status() & (LBMS | LABS), *left, "{args}: what the port shows then");
            }
        });
        let unseen = records.iter().filter_map(|one| one.metrics.get("unseen_ns")).map(|unseen| unseen.value).sum();
        let found = found(&records, port).into_iter().map(|(_, change, _)| change);
        let found: Vec<bool> = found.inspect(|one| assert!(one.is_between())).map(|one| one.may_have_missed).collect();
        (found, unseen)
    };
    assert_eq!(between("--clear-lbms", &[LBMS; 3], &[0; 3]), (vec![false; 3], 0.0));
    let (found, unseen): (Vec<bool>, f64) = between("", &[LBMS; 3], &[LBMS; 3]);
    assert!(found == [false] && unseen > 2e9, "{found:?}, {unseen} ns unseen");
    // LABS is left alone, and is in the way of others of its kind.
    let (found, unseen) = between("--clear-lbms", &[LBMS | LABS, LBMS | LABS], &[LABS; 2]);
    assert!(found == [false, true] && unseen > 1e9, "{found:?}, {unseen} ns unseen");
    at_start().show(board, port);
    let refused = |by: &str, why: &str| {
        let output = vm.run(&format!("{by} pciescope watch {port} --clear-lbms --duration 1s"));
        assert!(output.status == 2 && output.stderr.contains(why), "{by}: {}", output.stderr);
    };
    refused("setpriv --reuid=65534 --clear-groups", "no port shows its registers");
    board.tell(&format!("port {port} express 0x10 {NOTIFIES} {NOTIFIES}"));
    refused("", "the kernel uses it at 0000:30:01.0");
    board.tell(&format!("port {port} express 0x10 0 {NOTIFIES}"));
}

/// Changes that find no room on the disk wait, and stand folded in the file when there is room again; every line is whole.
fn a_full_disk_loses_no_change(vm: &Guest, board: &Endpoint) {
    let port = CARDS[1];
    let show = |code| Registers { code, ..at_start() }.show(board, port);
    show(5);
    vm.must("mkdir -p /tmp/small && mount -t tmpfs -o size=128k tmpfs /tmp/small");
    let running = vm.start(&format!("exec pciescope watch {port} -I {INTERVAL} -q -o /tmp/small/watch.jsonl"));
    vm.wait_until("the first sample", "grep -q '\"of\":\"link\"' /tmp/small/watch.jsonl");
    let change = |code| {
        show(code);
        std::thread::sleep(HOLD);
    };
    change(4);
    vm.must("! dd if=/dev/zero of=/tmp/small/fill bs=1k count=1000 2>/dev/null");
    // Until its last page is full, the file has room.
    (0..8).for_each(|round| change(3 + round % 3));
    vm.must("rm /tmp/small/fill");
    change(5);
    running.signal("INT").unwrap_or_else(|err| panic!("the lab failed: {err}"));
    let output = running.wait_within(PATIENCE).unwrap_or_else(|err| panic!("it does not end: {err}"));
    assert_eq!(output.status, 130, "{}", output.stderr);
    let records = records::parse(&vm.read("/tmp/small/watch.jsonl"));
    let changes: Vec<Change> = found(&records, port).into_iter().map(|(_, change, _)| change).collect();
    let times: u64 = changes.iter().map(|change| change.times).sum();
    assert_eq!(times, 10, "{changes:#?}");
    assert!(changes.iter().any(|change| change.times > 1), "nothing had to wait: {changes:#?}");
    vm.must("umount /tmp/small");
}

/// Cards that QEMU plugs in are told of by the kernel, each at its time, with a minute between samples.
pub fn plugged_cards_are_told_of_by_the_newest_kernel() {
    let ports = [5, 6].map(|device| RootPort {
        address: Bdf { domain: 0, bus: 0, device, function: 0 },
        generation: 4,
        width: 4,
        node: None,
    });
    let vm = Guest::boot(
        Vm::builder()
            .kernel(Kernel::Newest)
            .root_ports(ports)
            // Not by ACPI, of which the kernel tells nothing.
            .cmdline("pcie_ports=native")
            .qemu_args(["-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"])
            .program(program()),
    );
    let mut plugged = Vec::new();
    let records = watch(&vm, "-I 1min", || {
        for (number, port) in ports.iter().enumerate() {
            let card = json!({"driver": "e1000e", "id": format!("nic{number}"), "bus": port.name(), "romfile": ""});
            let before = Instant::now();
            vm.qmp("device_add", card).unwrap_or_else(|err| panic!("the lab failed: {err}"));
            plugged.push((before, Instant::now()));
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    let seen = ports.map(|port| found(&records, &port.address.to_string()));
    for seen in &seen {
        let told = seen.iter().filter(|(_, change, _)| change.source == Source::Tracepoint);
        let told: Vec<_> =
            told.map(|((_, to, cause), change, _)| (to.as_str(), *cause, &*change.evidence[0])).collect();
        // The kernel sets the clocks of both ends (ASPM), and retrains the link for it.
        let retrain = ("2.5 GT/s x1", Cause::Software, "pcie_link_event: retrain");
        assert_eq!(told[0], ("card, power off", Cause::HotPlug, "pci_hp_event: CARD_PRESENT"), "{seen:#?}");
        assert_eq!(told.last(), Some(&retrain), "{seen:#?}");
        // A sample between the two events may see the link first.
        let links = seen.iter().filter(|((of, ..), ..)| *of == Subject::Link);
        let links: Vec<_> = links.map(|((_, to, cause), ..)| (to.as_str(), *cause)).collect();
        assert_eq!(links, [("2.5 GT/s x1", Cause::HotPlug), ("2.5 GT/s x1", Cause::Software)], "{seen:#?}");
    }
    apart(&plugged, &[seen[0][0].clone(), seen[1][0].clone()]);
    vm.check_log();
}

/// As its service runs it: a helper with two rights opens registers and the kernel's log, and the recorder has no right.
fn a_recorder_without_rights_finds_causes_by_its_helper(vm: &Guest, board: &Endpoint) {
    let port = CARDS[2];
    at_start().show(board, port);
    vm.must("mkdir -p /run /tmp/own && chown 65534:65534 /tmp/own && rm -f /tmp/watch.jsonl");
    vm.must("sysctl -q -w kernel.dmesg_restrict=1 && ln -s /lib/lab/tool /tmp/perl");
    // As systemd does for a socket with Accept=yes.
    let accept = "$l = IO::Socket::UNIX->new(Local => q(/run/pciescope-watch.sock), Listen => 1) or die; \
                  chmod 0666, q(/run/pciescope-watch.sock); $c = $l->accept; open STDIN, q(+<&), $c; \
                  exec qw(pciescope watch --registers-helper)";
    let perl = "/tmp/perl -I/lab/usr/lib/x86_64-linux-gnu/perl-base";
    let rights = "--bounding-set=-all,+sys_admin,+syslog --inh-caps=-all --no-new-privs";
    let helper = vm.start(&format!("exec setpriv {rights} {perl} -MIO::Socket::UNIX -e '{accept}'"));
    vm.wait_until("the helper's socket", "test -S /run/pciescope-watch.sock");
    let unprivileged = "setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs pciescope watch";
    let running = vm.start(&format!(
        "exec {unprivileged} {port} -I {INTERVAL} -j --on 'reliability=id -u >/tmp/own/uid' >/tmp/watch.jsonl"
    ));
    vm.wait_until("the first sample", "grep -q '\"of\":\"link\"' /tmp/watch.jsonl");
    Registers { code: 4, bits: LBMS, ..at_start() }.show(board, port);
    vm.wait_until("its command", "test -s /tmp/own/uid");
    assert_eq!(vm.must("cat /tmp/own/uid"), "65534", "who runs the commands");
    let opened = "for pid in $(pidof pciescope); do ls -l /proc/$pid/fd; done | grep -c 'config$\\|kmsg$'";
    assert!(vm.must(opened).parse::<u32>().unwrap() >= 2, "it has no files of the helper");
    running.signal("INT").unwrap_or_else(|err| panic!("the lab failed: {err}"));
    let output = running.wait_within(PATIENCE).unwrap_or_else(|err| panic!("it does not end: {err}"));
    assert_eq!(output.status, 130, "{}", output.stderr);
    let output = helper.wait_within(PATIENCE).unwrap_or_else(|err| panic!("the helper does not end: {err}"));
    assert_eq!(output.status, 0, "{}", output.stderr);
    let records = records::parse(&vm.read("/tmp/watch.jsonl"));
    let seen: Vec<Planted> = found(&records, port).into_iter().map(|(planted, ..)| planted).collect();
    assert_eq!(seen, [(Subject::Link, "16 GT/s x4".to_owned(), Cause::Reliability)]);
    let unseen = |records: &[Record]| records.iter().flat_map(|one| &one.warnings).any(|one| one.code == "not-checked");
    assert!(!unseen(&records), "{records:#?}");
    // Without the helper it says what it cannot see, and goes on.
    vm.must(&format!("rm /run/pciescope-watch.sock; {unprivileged} {port} --duration 1s -j >/tmp/watch.jsonl"));
    let records = records::parse(&vm.read("/tmp/watch.jsonl"));
    assert!(unseen(&records) && records.iter().any(|one| one.metrics.contains_key("changes")), "{records:#?}");
}

/// A bandwidth notification of the board: LBMS is set, the port raises its interrupt, and the kernel clears the bit and tells of
/// it. One that leaves the link as it was is not missed either.
pub fn bandwidth_notifications_are_told_by_the_newest_kernel() {
    let (vm, board, _) = machine(Kernel::Newest, false);
    let port = CARDS[0];
    // QEMU's ports keep no bit that switches notifications on: the board shows both.
    let show = |code: u32, bits: u32| {
        let link = (code | 4 << 4) << 16 | bits | NOTIFIES;
        board.tell(&format!("port {port} express 0x10 {link} {}", LINK | NOTIFIES));
    };
    show(5, 0);
    let irqs = vm.must(&format!("ls /sys/bus/pci/devices/{port}/msi_irqs"));
    let interrupt = || {
        for irq in irqs.split_whitespace() {
            vm.must(&format!("echo {irq} >/sys/module/pciescope_lab/parameters/interrupt"));
        }
    };
    let mut told = Vec::new();
    let records = watch(&vm, &format!("{port} -I 1min"), || {
        for code in [4, 5, 5] {
            show(code, LBMS);
            let before = Instant::now();
            interrupt();
            told.push((before, Instant::now()));
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    let seen = found(&records, port);
    let states: Vec<&str> = seen.iter().map(|((_, to, _), ..)| to.as_str()).collect();
    assert_eq!(states, ["16 GT/s x4", "32 GT/s x4", "32 GT/s x4"], "{seen:#?}");
    for (number, (_, change, _)) in seen.iter().enumerate() {
        assert_eq!(change.source, Source::Tracepoint, "{change:#?}");
        assert_eq!(change.evidence[0], "pcie_link_event: bandwidth interrupt", "{change:#?}");
        assert_eq!((change.is_between(), change.may_have_missed), (number == 2, false), "{change:#?}");
    }
    apart(&told, &seen);
    // The recorder is held up until errors fill the kernel's ring: a change that comes back then leaves no trace but the loss.
    let records = watch(&vm, &format!("{port} -I 1min"), || {
        vm.must("kill -STOP $(pidof pciescope)");
        (0..1000).for_each(|_| crate::soak::error(&vm, port));
        for code in [4, 5] {
            show(code, LBMS);
            interrupt();
        }
        vm.must("kill -CONT $(pidof pciescope)");
        vm.wait_until("the errors", "grep -q '\"of\":\"errors\"' /tmp/watch.jsonl");
    });
    let links = found(&records, port).into_iter().filter(|((of, ..), ..)| *of == Subject::Link);
    assert_eq!(links.count(), 0, "the kernel told of it");
    let mut missed = records.iter().flat_map(|one| &one.warnings).filter(|one| one.code == "changes-missed");
    assert!(missed.any(|one| one.text.contains("the kernel's events overflowed")), "{:#?}", records.last());
    let refused = vm.run(&format!("pciescope watch {port} --clear-lbms --duration 1s"));
    assert!(refused.status == 2 && refused.stderr.contains("counts and clears it itself"), "{}", refused.stderr);
    vm.check_log();
}

/// Between the first two changes is as much time as between what was done; a guest without KVM is late by some milliseconds.
fn apart(done: &[(Instant, Instant)], seen: &[(Planted, Change, u64)]) {
    let took = Duration::from_nanos(seen[1].2 - seen[0].2);
    let (least, most, late) = (done[1].0 - done[0].1, done[1].1 - done[0].0, Duration::from_millis(100));
    say!("{took:?} between two changes, {least:?} to {most:?} between what was done");
    assert!(took + late > least && took < most + late, "{took:?} is not {least:?} to {most:?}");
}

/// Twenty minutes in which nothing happens: no change, no device woken, and what it costs. For `make prove-links`. QEMU's
/// ports have no power management: only the device sleeps. The board does not answer for them: a read of its costs a hundred
/// times what one of QEMU's does.
pub fn twenty_minutes_of_nothing_wake_nothing_and_cost_little() {
    let (vm, _board, _) = machine(Kernel::V6_12, true);
    vm.must("for module in rasdes_pmu drw_pmu pciescope_lab; do ! test -d /sys/module/$module || rmmod $module; done");
    let device = vm.address("edu0");
    let power = format!("/sys/bus/pci/devices/{device}/power");
    vm.must(&format!("echo auto >{power}/control"));
    vm.wait_until("the device sleeps", &format!("grep -q suspended {power}/runtime_status"));
    let active = || vm.must(&format!("cat {power}/runtime_active_time"));
    let was_active = active();
    let mut cost = String::new();
    let records = watch(&vm, "-I 1s", || {
        std::thread::sleep(Duration::from_secs(1200));
        cost = vm.must("pid=$(pidof pciescope); awk '{print $14 + $15}' /proc/$pid/stat; awk '/VmHWM/ {print $2}' /proc/$pid/status");
    });
    assert_eq!(active(), was_active, "a watch woke {device}");
    let changes: Vec<&Record> =
        records.iter().filter(|one| one.change.as_ref().is_some_and(|change| !change.is_start())).collect();
    assert!(changes.is_empty(), "{changes:#?}");
    let cost: Vec<f64> = cost.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let percent = cost[0] / 100.0 / 1200.0 * 100.0;
    say!("{percent:.2} % of a CPU of a guest without KVM, {:.1} MB at most", cost[1] / 1024.0);
    assert!(percent < 1.0 && cost[1] < 64.0 * 1024.0, "{percent} %, {} KiB", cost[1]);
    vm.check_log();
}
