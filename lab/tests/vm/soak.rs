//! `soak` on a link whose errors QEMU makes: the counts are those that were made, the bound follows from them, and a detector
//! that misses some is called blind. docs/soak.md.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pciescope_core::Record;
use pciescope_core::soak::{Detector, Soak, SoakEnd};
use pciescope_lab::device::CounterBoard;
use pciescope_lab::device::traffic::Traffic;
use pciescope_lab::vm::{Attachment, GuestDevice, Kernel, Vm};
use serde_json::json;

use crate::say;
use crate::support::guest::Guest;
use crate::support::{Endpoint, PATIENCE, program, records};

/// A port of the board at 32 GT/s x4, and the network card below it.
const PORT: &str = "0000:30:01.0";
const LANES: u32 = 4 << 20 | 5 << 16;
const LINK: u32 = 0x03ff_0000;

/// Has QEMU set a status of AER and report it to the root port: a bad TLP, seen by a port of the board or a device by its name.
pub fn error(vm: &Guest, seer: &str) {
    let name = seer.strip_prefix("0000:").map_or(seer.to_owned(), |port| format!("port-{}", port.replace(':', "-")));
    let command = format!("pcie_aer_inject_error {name} BAD_TLP");
    let said = vm.qmp("human-monitor-command", json!({ "command-line": command }));
    let said = said.unwrap_or_else(|err| panic!("the lab failed: {err}"));
    assert!(said.as_str().is_some_and(|said| said.starts_with("OK")), "the lab failed: {command}: {said}");
}

struct Bench {
    vm: Guest,
    board: Endpoint,
    card: String,
}

impl Bench {
    fn boot() -> Bench {
        let board = Endpoint::serve(CounterBoard::seed_machine(Traffic::new()), "board");
        let vm = Guest::boot(
            Vm::builder()
                .kernel(Kernel::V6_12)
                .seed_machine()
                .served("board", &board.served, Attachment::RootBus)
                .device(
                    "card",
                    GuestDevice::Other("x3130-upstream".to_owned()),
                    Attachment::Port(PORT.parse().unwrap()),
                )
                .module("pciescope_lab")
                .program(program()),
        );
        let card = vm.address("card");
        board.tell(&format!("port {PORT} express 0x10 {LANES} {LINK}"));
        Bench { vm, board, card }
    }

    /// Soaks while something is done, which is told whether the soak still runs.
    fn soak(&self, status: i32, args: &str, meanwhile: impl FnOnce()) -> Answer {
        self.vm.must("rm -f /tmp/soak.jsonl");
        let running = self.vm.start(&format!("exec pciescope soak {} -I 250ms {args} -j >/tmp/soak.jsonl", self.card));
        meanwhile();
        let output = running.wait_within(PATIENCE).unwrap_or_else(|err| panic!("it does not end: {err}"));
        assert_eq!(output.status, status, "{args}: {}", output.stderr);
        let mut records = records::parse(&self.vm.read("/tmp/soak.jsonl"));
        Answer { record: records.pop().filter(|one| one.soak.is_some()), stderr: output.stderr }
    }

    fn has_begun(&self) {
        self.vm.wait_until("the first sample", "grep -q '\"of\":\"link\"' /tmp/soak.jsonl");
    }

    /// Errors that the port's block was told to make, in what it sends and receives.
    fn told(&self) -> [u64; 2] {
        let ledger = self.board.ledger();
        ["tx", "rx"].map(|way| ledger["ports"][PORT]["injected"][way].as_u64().unwrap())
    }

    /// Has QEMU show the errors that the block makes, where both ends of a link would: a wrong TLP at its receiver. Every
    /// `nth` error is hidden.
    fn show_errors(&self, is_over: &AtomicBool, nth: u64) {
        let mut shown = self.told();
        while !is_over.load(Ordering::Relaxed) {
            let told = self.told();
            for (end, device) in ["card", PORT].into_iter().enumerate() {
                for number in shown[end] + 1..=told[end] {
                    if number % nth != 0 {
                        error(&self.vm, device);
                    }
                }
            }
            shown = told;
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Soaks with `--prove`, while every `nth` error that the block makes is hidden.
    fn prove(&self, status: i32, nth: u64) -> Answer {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| self.show_errors(&is_over, nth));
            // A failure too ends the thread, for which the scope waits.
            let _end = End(&is_over);
            self.soak(status, "--prove --below 1e-11", || ())
        })
    }
}

struct End<'o>(&'o AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Answer {
    record: Option<Record>,
    stderr: String,
}

impl Answer {
    fn soak(&self) -> &Soak {
        self.record.as_ref().and_then(|one| one.soak.as_ref()).unwrap_or_else(|| panic!("no record: {}", self.stderr))
    }
    fn figure(&self, name: &str) -> Option<f64> {
        self.record.as_ref().and_then(|one| one.metrics.get(name)).map(|metric| metric.value)
    }
}

/// Bits that both directions of the link send in a second: 32 GT/s on 4 lanes.
const BITS_PER_S: f64 = 2.0 * 32e9 * 4.0;

pub fn errors_that_the_device_made_are_counted_and_bounded() {
    let bench = Bench::boot();
    errors_are_counted_at_the_end_that_saw_them(&bench);
    say!("counted");
    bench.vm.must("modprobe rasdes_pmu");
    payload_of_tlps_is_what_passed_the_port(&bench);
    say!("payload");
    what_the_port_counts_beside_aer_is_shown_and_takes_its_interval(&bench);
    say!("beside AER");
    bench.vm.must("modprobe -r rasdes_pmu");
    it_ends_at_the_bound_or_where_that_is_out_of_reach(&bench);
    say!("ended");
    what_cannot_be_counted_has_no_bound(&bench);
    say!("not counted");
    the_detector_is_proven_or_blind(&bench);
    bench.vm.check_log();
}

fn errors_are_counted_at_the_end_that_saw_them(bench: &Bench) {
    let answer = bench.soak(1, "--duration 5s", || {
        bench.has_begun();
        for device in ["card", PORT, PORT] {
            std::thread::sleep(Duration::from_millis(700));
            error(&bench.vm, device);
        }
    });
    let figure = |name| answer.figure(name).unwrap_or_else(|| panic!("no {name}: {}", answer.stderr));
    assert_eq!([figure("port_bad_tlps"), figure("device_bad_tlps"), figure("bit_errors")], [2.0, 1.0, 3.0]);
    // Without their driver there are no other counters.
    assert_eq!(["tlp_payload_bits", "port_retries"].map(|name| answer.figure(name)), [None, None]);
    let (bits, clear, hits) = (figure("lane_bits"), figure("clear_lane_bits"), figure("intervals_with_errors"));
    // The guest's clock says how long it took; an error more than 500 ms after another has an interval of its own.
    let seconds = answer.record.as_ref().unwrap().interval.unwrap().end_ns as f64 / 1e9;
    assert!((bits / (seconds * BITS_PER_S) - 1.0).abs() < 0.01, "{bits} bits in {seconds} s");
    assert!(hits == 3.0 && clear < bits && clear > bits * 0.6, "{clear} of {bits} bits, {hits} intervals");
    // 3 errors: the expected number of which 3 or fewer come in a share of 5 % / 20.
    let c = figure("bit_error_ratio_below") * clear;
    let few: f64 = (-c).exp() * (1.0 + c + c * c / 2.0 + c * c * c / 6.0);
    assert!((few / (0.05 / 20.0) - 1.0).abs() < 1e-3, "{c}");
}

/// What the counters of the port give.
fn payload_of_tlps_is_what_passed_the_port(bench: &Bench) {
    let rate = |rx: u64, tx: u64| {
        bench.board.tell(&format!("port {PORT} rate rx {rx}"));
        bench.board.tell(&format!("port {PORT} rate tx {tx}"));
    };
    rate(200_000_000, 50_000_000);
    let answer = bench.soak(0, "--duration 5s", || ());
    rate(0, 0);
    let seconds = answer.record.as_ref().unwrap().interval.unwrap().end_ns as f64 / 1e9;
    let (bits, expected) = (answer.figure("tlp_payload_bits").expect("a counter"), 8.0 * 250e6 * seconds);
    say!("{bits:.4e} bits of payload instead of {expected:.4e}");
    assert!((bits / expected - 1.0).abs() < 0.05, "{bits} instead of {expected}");
}

/// Replays, DLLPs and lanes by RAS D.E.S. of the port; the card has no such counter, and AER sees nothing of it.
fn what_the_port_counts_beside_aer_is_shown_and_takes_its_interval(bench: &Bench) {
    // Bad DLLPs, replays, and wrong sync headers of a lane; by the catalogue's names, and as the board has them.
    let planted =
        [("bad_dllp", "0x202", None, 2), ("retry_tlp", "0x207", None, 3), ("sync_header_error", "0x005", Some(2), 5)];
    let counted = |code: &str, lane: Option<u8>| {
        let name = lane.map_or(code.to_owned(), |lane| format!("{code}.{lane}"));
        bench.board.ledger()["ports"][PORT]["events"][name]["counted"].as_u64().unwrap_or(0)
    };
    let before = planted.map(|(_, code, lane, _)| counted(code, lane));
    let answer = bench.soak(1, "--duration 4s", || {
        bench.has_begun();
        std::thread::sleep(Duration::from_millis(700));
        for (_, code, lane, times) in planted {
            let lane = lane.map(|lane| format!(" lane {lane}")).unwrap_or_default();
            bench.board.tell(&format!("port {PORT} event {code} {times}{lane}"));
        }
    });
    let mut seen: Vec<(String, Option<u8>, u64)> =
        answer.soak().events.iter().map(|one| (one.event.clone(), one.lane, one.count)).collect();
    seen.sort();
    let of_board = planted.iter().zip(before).map(|((name, code, lane, times), before)| {
        assert_eq!(counted(code, *lane) - before, *times, "the lab failed: {name}");
        ((*name).to_owned(), *lane, *times)
    });
    assert_eq!(seen, of_board.collect::<Vec<_>>(), "{:?}", answer.soak().events);
    let figure = |name| answer.figure(name);
    let names =
        ["port_layer1_errors", "port_layer2_errors", "port_naks", "port_retries", "device_retries", "bit_errors"];
    assert_eq!(names.map(figure), [Some(5.0), Some(2.0), Some(0.0), Some(3.0), None, Some(0.0)]);
    let hits = figure("intervals_with_errors").unwrap();
    // They happen one behind another, so a sample may come in between.
    assert!((1.0..=2.0).contains(&hits), "{hits} intervals");
    assert!(figure("clear_lane_bits").unwrap() < figure("lane_bits").unwrap() - 0.2 * BITS_PER_S * hits);
    bench.vm.must("pciescope report /tmp/soak.jsonl | grep -q 'counted beside AER, at one end only: .*retry_tlp 3'");
    let quiet = bench.soak(0, "--duration 2s", || ());
    assert_eq!((quiet.soak().events.len(), quiet.figure("port_retries")), (0, Some(0.0)));
}

fn it_ends_at_the_bound_or_where_that_is_out_of_reach(bench: &Bench) {
    let reached = bench.soak(0, "--below 6e-12", || ());
    assert_eq!(reached.soak().ended, SoakEnd::Reached);
    let below = reached.figure("bit_error_ratio_below").unwrap();
    let before = 40f64.ln() / (reached.figure("lane_bits").unwrap() - 0.5 * BITS_PER_S);
    assert!(below < 6e-12 && before > 6e-12, "{below}, and a moment before {before}");
    let missed = bench.soak(2, "--below 1e-15 --duration 1m", || ());
    assert_eq!((missed.soak().ended, missed.soak().detector), (SoakEnd::OutOfReach, Detector::NotProven));
    // 40f64.ln() / 1e-15 bits take 4 h.
    assert!(missed.stderr.contains("the bound needs 4 h 0 min"), "{}", missed.stderr);
}

fn what_cannot_be_counted_has_no_bound(bench: &Bench) {
    let show = |link: u32| drop(bench.board.tell(&format!("port {PORT} express 0x10 {link} {}", LINK | 3)));
    show(LANES | 2);
    let resting = bench.soak(2, "--duration 2s", || ());
    show(LANES);
    assert!(resting.soak().uncounted.iter().any(|why| why.contains("ASPM")), "{:?}", resting.soak());
    assert_eq!(resting.figure("bit_error_ratio_below"), None);
    // Errors of one end are masked: half of the bits count.
    let mask = |value| drop(bench.vm.must(&format!("setpci -s {} ECAP_AER+14.l={value}:000000c1", bench.card)));
    mask("000000c1");
    let one = bench.soak(0, "--duration 2s", || ());
    mask("00000000");
    let blind: Vec<bool> = one.soak().ends.iter().map(|end| end.blind_by.is_some()).collect();
    assert_eq!(blind, [false, true]);
    let seconds = one.record.as_ref().unwrap().interval.unwrap().end_ns as f64 / 1e9;
    assert!((one.figure("lane_bits").unwrap() / (seconds * BITS_PER_S / 2.0) - 1.0).abs() < 0.01);
}

fn the_detector_is_proven_or_blind(bench: &Bench) {
    let before = bench.told();
    let proven = bench.prove(0, u64::MAX);
    assert_eq!(proven.soak().detector, Detector::Proven, "{:?}", proven.soak());
    say!("proven");
    let told = bench.told();
    assert_eq!([told[0] - before[0], told[1] - before[1]], [8, 8]);
    let blind = bench.prove(2, 2);
    assert_eq!((blind.soak().detector, blind.soak().ended), (Detector::Blind, SoakEnd::Blind));
    assert_eq!(blind.figure("bit_error_ratio_below"), None, "a blind detector bounds nothing");
    // Nothing is left on.
    let einj = bench.vm.must(&format!("setpci -s {PORT} 330.l 334.l"));
    assert_eq!(einj.split_whitespace().collect::<Vec<_>>(), ["00000000", "00000000"]);
    // Without the block the kernel is told of errors.
    bench.board.tell(&format!("port {PORT} vsec id 3"));
    let refused = bench.soak(2, "--prove --duration 1s", || ());
    assert!(refused.record.is_none() && refused.stderr.contains("modprobe aer_inject"), "{}", refused.stderr);
    bench.vm.must("modprobe aer_inject");
    let told = bench.soak(0, "--prove --below 1e-11", || ());
    assert_eq!(told.soak().detector, Detector::PathProven, "{:?}", told.soak());
    say!("{}", told.soak().proof.as_deref().unwrap_or_default());
}
