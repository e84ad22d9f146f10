//! Sleep, resets, D3 and PCIe errors under each driver, idle and in the middle of what it does: it works again or fails with
//! its named error, and what is counted before and after is right. docs/lab.md has the table.

use std::time::Duration;

use pciescope_core::Bdf;
use pciescope_lab::device::rasdes::Shape;
use pciescope_lab::device::traffic::Traffic;
use pciescope_lab::device::{CounterBoard, LatencyEndpoint};
use pciescope_lab::vm::{Attachment, Builder, GuestDevice, Kernel, RootPort};
use serde_json::json;

use crate::support::digitizers::{Board, Digitizers};
use crate::support::drive::{drive, start};
use crate::support::guest::Guest;
use crate::support::rasdes::Session;
use crate::support::{Endpoint, Measured, PATIENCE, Rig, is_arm64, looks, merged, seen, total, vector};
use crate::{say, sis8300_faults};

/// The port above the latency endpoint, its PMU, and the port above QEMU's igb. Gen2: QEMU never shows that a faster link is
/// up again after a reset, and Linux waits for that.
const PORT: &str = "0000:00:02.0";
const PMU: &str = "dwc_rootport_10";
const IGB_PORT: &str = "0000:00:03.0";
/// The only sub-channel, and its PMU.
const SUB: &str = "21000";
const SUB_PMU: &str = "ali_drw_21000";

/// TX memory writes, of 32 bits, LCRC errors, of 8 bits, and the payload of time-based analysis.
const TX_WRITE: u64 = 1 << 16 | 0x700;
const LCRC: u64 = 1 << 16 | 0x201;
const RX_PAYLOAD: u64 = 0x21;
const HIF_RD: u64 = 0x02;
const CYCLE: u64 = 0x80;

/// Uncorrectable and fatal: Data Link Protocol Error. Uncorrectable, not fatal: Completion Timeout.
const FATAL: u32 = 1 << 4;
const NOT_FATAL: u32 = 1 << 14;

/// What a guest needs to come back from a sleep, and to say on its console that it sleeps.
pub fn that_sleeps(builder: Builder) -> Builder {
    builder.module("pciescope_awake").cmdline("no_console_suspend")
}

/// An arm64 guest has a clock that wakes it, where a DeviceTree describes it.
fn that_wakes(builder: Builder) -> Builder {
    if is_arm64() { builder.device_tree() } else { builder }
}

/// Puts the guest to sleep down to a level of pm_test, does something while it sleeps, and waits until it is awake; whether
/// it slept.
fn sleep_to(vm: &Guest, level: &str, meanwhile: impl FnOnce()) -> bool {
    // Time for what is to happen meanwhile.
    let seconds = if size_of_val(&meanwhile) == 0 { 1 } else { 3 };
    let mark = vm.console_mark();
    let running = vm.start(&format!(
        "echo {seconds} >/sys/module/suspend/parameters/pm_test_delay && echo {level} >/sys/power/pm_test
         echo freeze >/sys/power/state"
    ));
    let sleeps = vm.wait_for("the guest sleeps, or does not want to", || {
        let console = vm.console_since(mark).unwrap_or_default();
        let has_ended = running.status().is_some();
        (has_ended || console.contains("suspend debug: Waiting")).then_some(!has_ended)
    });
    if sleeps {
        meanwhile();
    }
    let output = running.wait_within(PATIENCE).unwrap_or_else(|err| panic!("the guest does not come back: {err}"));
    assert_eq!(output.is_success(), sleeps, "{}", output.stderr);
    sleeps
}

/// All devices are asleep, in D3hot, with their interrupts off.
fn sleep(vm: &Guest, meanwhile: impl FnOnce()) {
    assert!(sleep_to(vm, "platform", meanwhile), "the system did not sleep: {}", vm.must("dmesg | tail -20"));
}

/// Injects an uncorrectable error of a function, as its root port would report it.
fn inject(vm: &Guest, address: &str, error: u32) {
    let bdf: Bdf = address.parse().expect("an address");
    let mut record = vec![bdf.bus, bdf.device, bdf.function, 0];
    for word in [error, 0, 0, 0, 0, 0, bdf.domain] {
        record.extend(word.to_le_bytes());
    }
    let text: String = record.iter().map(|byte| format!("\\{byte:03o}")).collect();
    vm.must(&format!("modprobe aer_inject; printf '{text}' >/dev/aer_inject"));
}

/// As [`inject`], and waits until Linux has got over it.
fn recovered(vm: &Guest, address: &str, error: u32) {
    let count = || vm.must("dmesg | grep -c 'device recovery successful' || true");
    let before = count();
    inject(vm, address, error);
    vm.wait_for("the recovery", || (count() != before).then_some(()));
}

pub fn sleep_resets_and_errors_on_6_12() {
    let rig = Machine::boot(Kernel::V6_12);
    rig.counts_leave_the_sleep_out();
    say!("counts leave the sleep out");
    rig.a_sleep_ends_runs();
    rig.a_real_sleep_ends();
    say!("it sleeps and wakes");
    rig.resets_end_runs();
    say!("resets end runs");
    rig.nobody_measures_what_does_not_answer();
    say!("D3 and untold resets are noticed");
    rig.errors_end_runs_or_do_not();
    say!("errors are recovered from");
    rig.finish();
}

pub fn sleep_on_the_oldest_kernel() {
    short(Kernel::V6_1);
}

pub fn sleep_on_the_newest_kernel() {
    short(Kernel::Newest);
}

fn short(kernel: Kernel) {
    let rig = Machine::boot(kernel);
    rig.counts_leave_the_sleep_out();
    rig.a_sleep_ends_runs();
    rig.errors_end_runs_or_do_not();
    rig.finish();
}

/// A guest with all drivers but that of the digitizers.
struct Machine {
    // Dropped in this order.
    rig: Rig,
    board: Endpoint,
    igb: String,
    is_short: bool,
}

impl Machine {
    fn boot(kernel: Kernel) -> Machine {
        let bdf = |address: &str| address.parse::<Bdf>().unwrap();
        let port = |address| RootPort { address: bdf(address), generation: 2, width: 4, node: None };
        let board = CounterBoard::new(Traffic::new())
            .function(bdf(PORT), (0x1ded, 0x8000), Shape::default())
            .sub_channel(0x2100_0000, 0, 0);
        let board = Endpoint::serve(board, "board");
        let endpoint = LatencyEndpoint::default();
        let rig = Rig::boot_model(endpoint, kernel, Attachment::Port(bdf(PORT)), |builder| {
            that_wakes(that_sleeps(builder))
                .root_ports([port(PORT), port(IGB_PORT)])
                .served("board", &board.served, Attachment::RootBus)
                .device("igb0", GuestDevice::Igb, Attachment::Port(bdf(IGB_PORT)))
                .module("pciescope_lab")
                .module("rasdes_pmu")
                .module("drw_pmu")
                .module("pcilat")
        });
        let igb = rig.address("igb0");
        rig.must(&format!("pciescope bind {} --driver pcilat && pciescope bind {igb} --driver pcilat", rig.bdf));
        Machine { rig, board, igb, is_short: kernel != Kernel::V6_12 }
    }

    fn finish(self) {
        self.rig.must(&format!("pciescope unbind {} && pciescope unbind {}", self.rig.bdf, self.igb));
        self.rig.must("rmmod rasdes_pmu && rmmod drw_pmu && rmmod pciescope_lab && rmmod pcilat");
        self.rig.finish();
    }

    /// The board counts these, as far as it is on.
    fn happen(&self, writes: u64, errors: u64, payload: u64, reads: u64) {
        for line in [
            format!("port {PORT} event 0x700 {writes}"),
            format!("port {PORT} event 0x201 {errors}"),
            format!("port {PORT} traffic rx {payload}"),
            format!("dram {SUB} add hif_rd {reads}"),
        ] {
            self.board.tell(&line);
        }
    }

    fn counts_leave_the_sleep_out(&self) {
        let session = Session::start(&self.rig, "sleep");
        let mut opened = session.open_all(PMU, &[TX_WRITE, LCRC, RX_PAYLOAD]);
        opened.push(session.open(SUB_PMU, HIF_RD));
        // Past the half of 32 bits: a lower value afterwards must not look like a wrap.
        self.happen(3_000_000_000, 200, 3_200_000_000, 3_000_000_000);
        sleep(&self.rig, || {
            // The power goes: registers are at power-on, and nothing counts.
            self.board.tell("reset");
            self.happen(1_000, 10, 16_000, 1_000);
        });
        assert_eq!(session.values(&opened), [3_000_000_000, 200, 3_200_000_000, 3_000_000_000]);
        self.happen(7, 8, 1_600, 9);
        assert_eq!(session.values(&opened), [3_000_000_007, 208, 3_200_001_600, 3_000_000_009]);
        // The power stays, but what comes meanwhile is still left out.
        sleep(&self.rig, || self.happen(1_000, 10, 16_000, 1_000));
        assert_eq!(session.values(&opened), [3_000_000_007, 208, 3_200_001_600, 3_000_000_009]);
        self.happen(70, 3, 160, 90);
        assert_eq!(session.values(&opened), [3_000_000_077, 211, 3_200_001_760, 3_000_000_099]);
        // Past 2^32 by the interrupt or by the poll: the line works again.
        self.board.tell(&format!("dram {SUB} add hif_rd {}", 1u64 << 32));
        assert_eq!(session.value(opened[3]), 3_000_000_099 + (1 << 32));
        let is_answered = || (self.board.ledger()["dram"][SUB]["asserted"] != json!(true)).then_some(());
        self.rig.wait_for("the interrupt is answered", is_answered);
        // A reset that nobody tells of: what came before was counted, and counting goes on.
        self.board.tell(&format!("dram {SUB} power-cycle"));
        let counted = 3_000_000_099 + (1 << 32);
        assert_eq!(session.value(opened[3]), counted);
        let is_counting = || self.board.ledger()["dram"][SUB]["enabled"].as_object().is_some_and(|on| !on.is_empty());
        self.rig.wait_for("the sub-channel counts again", || is_counting().then_some(()));
        self.happen(0, 0, 0, 11);
        assert_eq!(session.value(opened[3]), counted + 11);
        session.end();
        // With cycles alone all selectors are 0: only the cycles themselves can tell.
        let session = Session::start(&self.rig, "cycles");
        let cycles = session.open(SUB_PMU, CYCLE);
        self.rig.wait_for("cycles are counted", || (session.value(cycles) > 0).then_some(()));
        self.board.tell(&format!("dram {SUB} power-cycle"));
        let before = session.value(cycles);
        self.rig.wait_for("cycles are counted again", || (session.value(cycles) > before).then_some(()));
        session.end();
        // A reset just before its counter stops: what came before stays, and nothing is added.
        let session = Session::start(&self.rig, "stopped");
        let reads = session.open(SUB_PMU, HIF_RD);
        self.happen(0, 0, 0, 1000);
        assert_eq!(session.value(reads), 1000);
        self.board.tell(&format!("dram {SUB} power-cycle"));
        session.do_to("disable", &[reads]);
        assert_eq!(session.value(reads), 1000);
        session.end();
        let ledger = self.board.ledger();
        let violations = &ledger["ports"][PORT]["violations"];
        assert!(violations.as_array().is_none_or(Vec::is_empty), "{violations}");
        assert_eq!(ledger["dram"][SUB]["running"], false, "nobody counts");
    }

    /// Both kinds on one kernel; the others show that theirs is no different.
    fn runs(&self) -> Vec<String> {
        let bdf = &self.rig.bdf;
        let all = [
            format!("latency mmio {bdf} --count 20M"),
            format!("latency irq {bdf} --vectors 0 --count 20M --raised-by hardware --timeout 300ms"),
        ];
        all.into_iter().skip(usize::from(self.is_short)).collect()
    }

    /// Begins a run, disturbs it once the device sees it, and waits for its end.
    fn disturb(&self, run: &str, disturbance: impl FnOnce()) -> Measured {
        const FILE: &str = "/tmp/power.jsonl";
        self.rig.tell("reset");
        let running = self.rig.start(run, FILE);
        self.rig.wait_for("the run has begun", || {
            let ledger = self.rig.ledger();
            let is_irq = run.starts_with("latency irq");
            let n = if is_irq { vector(&ledger, 0, "triggers") } else { seen(&ledger, "reads", 0, 0, 4) };
            assert!(running.status().is_none(), "{run}: {:?}", running.wait());
            (n >= 500).then_some(())
        });
        disturbance();
        self.rig.end(&running, FILE, PATIENCE)
    }

    /// The run ended by `reset`, and what it measured before stands.
    fn ends_by_reset(&self, run: &str, disturbance: impl FnOnce()) {
        let ended = self.disturb(run, disturbance);
        assert_eq!((ended.output.status, ended.failure()), (2, Some("reset")), "{run}: {}", ended.output.stderr);
        let name = if run.starts_with("latency irq") { "trigger_to_handler" } else { "latency" };
        let records: Vec<_> = ended.records.iter().collect();
        assert!(merged(&records, name).count() >= 100, "{run}: what was measured stands");
    }

    /// The next runs have every read and every interrupt, by the device's account.
    fn works(&self) {
        self.rig.tell("reset");
        let reads = self.rig.pciescope(&format!("latency mmio {} --cpus 0-1 --count 500", self.rig.bdf));
        let reads = reads.expect(0, "mmio-read");
        assert_eq!(merged(&reads, "latency").count(), 1000);
        assert_eq!(seen(&self.rig.ledger(), "reads", 0, 0, 4), 1000 + looks(&reads));
        let run = format!("latency irq {} --cpus 0-1 --vectors 0-1 --count 50 --raised-by hardware", self.rig.bdf);
        let irqs = self.rig.pciescope(&run);
        let irqs = irqs.expect(0, "irq-hardware");
        assert_eq!(total(&irqs, "handled"), 200);
        let sent: u64 = [0, 1].map(|number| vector(&self.rig.ledger(), number, "sent")).iter().sum();
        assert_eq!(sent, 200 + total(&irqs, "warmup_triggers"));
        let irqs = self.rig.pciescope(&format!("latency irq {} --cpus 0-1 --count 20 --raised-by hardware", self.igb));
        let irqs = irqs.expect(0, "irq-hardware");
        assert_eq!(total(&irqs, "handled"), 20 * irqs.len() as u64, "igb");
    }

    fn a_sleep_ends_runs(&self) {
        for run in self.runs() {
            // Tasks are frozen first, and devices are not asked if one refuses; then the whole way.
            if !self.is_short {
                self.ends_by_reset(&run, || assert!(sleep_to(&self.rig, "freezer", || ())));
            }
            self.ends_by_reset(&run, || sleep(&self.rig, || ()));
        }
        self.works();
    }

    /// Not only a test of it: the CPUs idle until something wakes them. On x86 that is the power button: QEMU's clock raises
    /// ACPI's event only at the end of another kind of sleep.
    fn a_real_sleep_ends(&self) {
        const SLEEP: &str = "echo freeze >/sys/power/state";
        self.rig.must("echo none >/sys/power/pm_test");
        if is_arm64() {
            for run in self.runs() {
                self.ends_by_reset(&run, || {
                    self.slept(&format!("echo +3 >/sys/class/rtc/rtc0/wakealarm && {SLEEP}"), || ())
                });
            }
        } else {
            self.rig.must("modprobe button");
            self.slept(SLEEP, || {
                self.rig.qmp("system_powerdown", json!({})).unwrap_or_else(|err| panic!("the lab failed: {err}"));
            });
        }
        self.works();
    }

    /// The command puts the guest to sleep, for at least a second; `wake` may wake it after that.
    fn slept(&self, command: &str, wake: impl FnOnce()) {
        let mark = self.rig.console_mark();
        let running = self.rig.vm.start(command);
        self.rig.wait_for("the guest sleeps", || {
            assert!(running.status().is_none(), "it does not sleep: {:?}", running.wait());
            let console = self.rig.console_since(mark).unwrap_or_default();
            console.contains("remaining freezable tasks completed").then_some(())
        });
        std::thread::sleep(Duration::from_secs(1));
        assert!(running.status().is_none(), "it did not sleep");
        wake();
        let output =
            running.wait_within(Duration::from_secs(20)).unwrap_or_else(|err| panic!("the guest does not wake: {err}"));
        assert!(output.is_success(), "{}", output.stderr);
    }

    /// The port of which counters are open is above what is reset: its counts are right before, meanwhile and after.
    fn resets_end_runs(&self) {
        let session = Session::start(&self.rig, "resets");
        let opened = session.open_all(PMU, &[TX_WRITE, LCRC, RX_PAYLOAD]);
        self.happen(100, 20, 1_600, 0);
        let by = |bdf: &str, method: &str| {
            let folder = format!("/sys/bus/pci/devices/{bdf}");
            self.rig.must(&format!("echo {method} >{folder}/reset_method && echo 1 >{folder}/reset"));
        };
        for (run, method) in self.runs().iter().zip(["bus", "flr"]) {
            self.ends_by_reset(run, || {
                by(&self.rig.bdf, method);
                self.happen(1, 1, 16, 0);
            });
        }
        self.happen(10, 3, 160, 0);
        assert_eq!(session.values(&opened), [112, 25, 1_792]);
        session.end();
        let run = format!("latency irq {} --cpus 0-1 --count 20M --raised-by hardware --timeout 1s", self.igb);
        let running = self.rig.start(&run, "/tmp/igb.jsonl");
        self.rig.wait_until("the run has begun", "ls -l /proc/$(pidof pciescope)/fd | grep -q /dev/pcilat/ && sleep 1");
        by(&self.igb, "bus");
        let ended = self.rig.end(&running, "/tmp/igb.jsonl", PATIENCE);
        assert_eq!((ended.output.status, ended.failure()), (2, Some("reset")), "igb: {}", ended.output.stderr);
        self.works();
    }

    /// Behind the kernel's back: the device is there, and its registers are not.
    fn nobody_measures_what_does_not_answer(&self) {
        let bdf = &self.rig.bdf;
        for run in self.runs() {
            self.ends_by_reset(&run, || drop(self.rig.must(&format!("setpci -s {bdf} CAP_PM+4.w=3:3"))));
            let refused = self.rig.pciescope(&format!("latency mmio {bdf} --count 100"));
            assert_eq!((refused.output.status, refused.failure()), (2, Some("reset")), "{}", refused.output.stderr);
            for (node, command) in [("devreg", "0x4"), ("interrupt", "1")] {
                let refused = self.rig.run(&format!("echo {command} | dd of=/sys/class/pcilat/{bdf}/pcilat_{node}"));
                assert!(refused.status != 0 && refused.stderr.contains("Operation canceled"), "{node}: {refused:?}");
            }
            self.rig.must(&format!("setpci -s {bdf} CAP_PM+4.w=0:3"));
        }
        self.works();
        let irqs = &self.runs()[1];
        let reset = format!(
            "setpci -s {PORT} BRIDGE_CONTROL=40:40; sleep 0.01; setpci -s {PORT} BRIDGE_CONTROL=0:40; sleep 0.1"
        );
        self.ends_by_reset(irqs, || drop(self.rig.must(&reset)));
        let refused = self.rig.pciescope(&format!("latency mmio {bdf} --count 100"));
        assert_eq!((refused.output.status, refused.failure()), (2, Some("reset")), "{}", refused.output.stderr);
        // Its addresses are gone: the kernel has to find it anew.
        self.rig.must(&format!(
            "echo 1 >/sys/bus/pci/devices/{bdf}/remove; echo 1 >/sys/bus/pci/rescan
             echo pcilat >/sys/bus/pci/devices/{bdf}/driver_override; echo {bdf} >/sys/bus/pci/drivers_probe"
        ));
        self.works();
    }

    fn errors_end_runs_or_do_not(&self) {
        let session = Session::start(&self.rig, "errors");
        let mut opened = session.open_all(PMU, &[TX_WRITE, LCRC, RX_PAYLOAD]);
        opened.push(session.open(SUB_PMU, HIF_RD));
        self.happen(100, 20, 1_600, 40);
        for run in self.runs() {
            // A fatal error resets all that is behind the port.
            let resets = || self.rig.ledger()["resets"].as_u64().unwrap_or(0);
            let mut before = 0;
            self.ends_by_reset(&run, || {
                before = resets();
                recovered(&self.rig, PORT, FATAL);
            });
            assert!(resets() > before, "the link was not reset");
        }
        self.works();
        // igb reports one that does not break its link: nobody need stop.
        let run = format!("latency irq {} --cpus 0 --vectors 0 --count 20M --raised-by hardware", self.igb);
        let running = self.rig.start(&run, "/tmp/igb.jsonl");
        self.rig.wait_until("the run has begun", "ls -l /proc/$(pidof pciescope)/fd | grep -q /dev/pcilat/");
        recovered(&self.rig, &self.igb, NOT_FATAL);
        running.signal("INT").unwrap_or_else(|err| panic!("the lab failed: {err}"));
        let ended = self.rig.end(&running, "/tmp/igb.jsonl", PATIENCE);
        assert_eq!(ended.failure(), Some("interrupted"), "{}", ended.output.stderr);
        let records = ended.of("irq-hardware");
        assert!(total(&records, "handled") >= 100 && total(&records, "lost") == 0, "all were answered");
        // What is on the port's near side counts on.
        self.happen(1, 2, 160, 3);
        assert_eq!(session.values(&opened), [101, 22, 1_760, 43]);
    }
}

/// Front line 3: no trigger comes.
const NEVER: &str = "setup samples=4096 trigger=3 lines=8";

/// The digitizers' part, in their guest with the driver loaded.
pub fn digitizers_sleep_and_recover(rig: &Digitizers, board: &Board, other: &Board) {
    let port = |board: &Board| {
        let path = rig.must(&format!("readlink -f /sys/bus/pci/devices/{}", rig.address(board.slot)));
        path.rsplit('/').nth(1).expect("a board is behind a port").to_owned()
    };
    a_board_sleeps_only_at_rest(rig, board);
    say!("a board sleeps");
    let address = rig.address(board.slot);
    let folder = format!("/sys/bus/pci/devices/{address}");
    let port = port(board);
    // A report that breaks no link: the readout goes on.
    let reading = start(rig, board, &["read-on 0x30000000 1048576 60", "stats"]);
    let before = board.count("/dma_read/bytes");
    rig.wait_for("reading", || (board.count("/dma_read/bytes") > before + (4 << 20)).then_some(()));
    recovered(rig, &port, NOT_FATAL);
    let answers = reading.end();
    answers.all_well();
    assert_eq!(answers.number("stats", "dma_bytes"), 60 << 20);
    say!("an error that is not fatal stops nothing");
    let bridge = format!("setpci -s {port} BRIDGE_CONTROL");
    let ways: [(&str, String, &str); 4] = [
        ("a bus reset", format!("echo bus >{folder}/reset_method && echo 1 >{folder}/reset"), "true"),
        ("D3", format!("setpci -s {address} CAP_PM+4.w=3:3"), &format!("setpci -s {address} CAP_PM+4.w=0:3")),
        ("a fatal error", String::new(), "true"),
        (
            "a reset that nobody told of",
            format!("{bridge}=40:40; sleep 0.01; {bridge}=0:40; sleep 0.1"),
            // Its addresses are gone: the kernel has to find it anew.
            &format!("echo 1 >{folder}/remove; echo 1 >/sys/bus/pci/rescan"),
        ),
    ];
    for (way, disturb, undo) in ways {
        let reading = start(rig, board, &["read-on 0x30000000 1048576 0", "stats"]);
        let beside = start(rig, other, &["read-on 0x30000000 1048576 20", "stats"]);
        let before = board.count("/dma_read/bytes");
        rig.wait_for("reading", || (board.count("/dma_read/bytes") > before + (4 << 20)).then_some(()));
        if disturb.is_empty() {
            recovered(rig, &port, FATAL)
        } else {
            drop(rig.must(&disturb))
        }
        let answers = reading.end();
        answers.all_right();
        // QEMU answers 0 for what has no address any more, where hardware has all-ones: that is a short DMA.
        let is_short = disturb.contains("setpci") && answers.errno("read-on") == "EIO";
        let is_error = answers.errno("read-on") == "ENODEV" || is_short;
        assert!(is_error, "{way}: {}", answers.errno("read-on"));
        rig.must(undo);
        sis8300_faults::bind_anew(rig, board);
        sis8300_faults::works(rig, board);
        let answers = beside.end();
        answers.all_well();
        assert_eq!(answers.number("stats", "dma_bytes"), 20 << 20, "{way}: the board beside it");
        say!("{way} is got over");
    }
}

fn a_board_sleeps_only_at_rest(rig: &Digitizers, board: &Board) {
    // At rest, and the power goes: the board is set up anew by the next arming.
    let before = drive(rig, board, &["setup samples=4096", "arm", "wait 5000", "pread 0 81920"]);
    before.all_well();
    sleep(rig, || drop(board.tell("power-cycle")));
    sis8300_faults::works(rig, board);
    // Armed, or with a ring: it refuses, and all goes on.
    let ring = start(
        rig,
        board,
        &[
            "setup samples=4096",
            "ring-setup 4 1048576",
            "map",
            "ring-start at=0x20000000 bytes=0x8000000 passes=3",
            "drain ms=60000",
            "stats",
        ],
    );
    ring.wait_for(rig, "ring-start");
    assert!(!sleep_to(rig, "platform", || ()), "it slept with a ring");
    let answers = ring.end();
    answers.all_right();
    assert_eq!((answers.errno("drain"), answers.number("drain", "bytes")), ("ENODATA", 3 * 0x800_0000));
    let waiting = start(rig, board, &[NEVER, "arm", "wait 60000", "disarm"]);
    waiting.wait_for(rig, "arm");
    assert!(!sleep_to(rig, "platform", || ()), "it slept while it was armed");
    let answers = waiting.end();
    // Tasks are frozen by what looks like a signal; the acquisition is still armed.
    assert_eq!((answers.errno("wait"), answers.errno("disarm")), ("EINTR", ""));
    sis8300_faults::works(rig, board);
}
