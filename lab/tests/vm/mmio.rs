//! Register and path latency on virtual hardware: injected delays are recovered, and the device's own count of accesses
//! equals the samples.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use crate::support::{Endpoint, PATIENCE, Rig, looks, merged, moved, seen, settle, stayed, total};
use crate::{say, support};
use pciescope_core::{Histogram, Record};
use pciescope_lab::device::LatencyEndpoint;
use pciescope_lab::vm::{Attachment, GuestDevice, Kernel};

/// Samples per CPU.
const COUNT: u64 = 1500;
/// CPUs of the guest.
const CPUS: u64 = 4;

/// What a backend needs of the machine: its name, and what the program is told.
fn backends(rig: &Rig) -> [(&'static str, String); 3] {
    let bdf = &rig.bdf;
    [
        ("kmod", format!("latency mmio {bdf} --backend kmod --bind")),
        ("vfio", format!("latency mmio {bdf} --backend vfio --bind")),
        ("resource", format!("latency mmio {bdf} --backend resource")),
    ]
}

/// By every backend, and the device counts the samples.
pub fn injected_delays_are_recovered(rig: &Rig) {
    for (backend, command) in backends(rig) {
        settle(backend, || delays_are_recovered(rig, backend, &command));
        assert_eq!(rig.driver(), "none", "{backend}: the device was not given back");
    }
}

/// Fixed delays and a mix of two; an error is a duration that this machine's other work may have spoilt.
fn delays_are_recovered(rig: &Rig, backend: &str, command: &str) -> Result<(), String> {
    let undelayed = measure(rig, backend, command, "none");
    let mut fast = undelayed.clone();
    for fixed_us in [50.0, 20.0] {
        let injected = fixed_us * 1e3;
        let all = measure(rig, backend, command, &format!("fixed {fixed_us}us"));
        assert!(all.min_ns().unwrap() >= injected, "{backend}: a sample of {:?} ns beats its delay", all.min_ns());
        let least = all.min_ns().unwrap();
        let most = injected * 1.05 + undelayed.median_ns().unwrap();
        if least > most {
            return Err(format!("the fastest sample took {least} ns; {most} ns are allowed"));
        }
        near("median", all.median_ns().unwrap(), injected, &undelayed)?;
        fast = all;
    }
    // 30 % of the reads take 200 us, the rest 20 us: so far apart that little else on this machine fills the gap.
    let all = measure(rig, backend, command, "two-peak 20us 200us 300 7");
    let ledger = rig.ledger();
    let slow = chosen(&ledger, 200_000);
    let dealt = slow as f64 / (slow + chosen(&ledger, 20_000)) as f64;
    let above = |all: &Histogram| (all.count() - all.count_up_to_ns(200e3)) as f64 / all.count() as f64;
    // No slow read can look fast (1 %: the looks before the run, and the width of a bucket).
    let got = above(&all);
    assert!(got > dealt - 0.01, "{backend}: {got:.3} of the samples are slow, {dealt:.3} of the delays");
    // A fast one looks slow as often as it does where all are fast, just before or just after.
    let after = measure(rig, backend, command, "fixed 20us");
    let most = dealt + (1.0 - dealt) * above(&fast).max(above(&after)) + 0.03;
    if got > most {
        return Err(format!("{got:.3} of the samples are slow, {dealt:.3} of the delays; {most:.3} are allowed"));
    }
    // The middle of each peak, at the share that the device says it has dealt out.
    near("lower peak", all.percentile_ns(50.0 * (1.0 - dealt)).unwrap(), 20e3, &undelayed)?;
    near("upper peak", all.percentile_ns(100.0 - 50.0 * dealt).unwrap(), 200e3, &undelayed)
}

/// Measures the ID register with a delay, and holds the samples against the device's count.
fn measure(rig: &Rig, backend: &str, command: &str, delay: &str) -> Histogram {
    rig.tell("reset");
    rig.tell(&format!("read-delay {delay}"));
    let measured = rig.pciescope(&format!("{command} --count {COUNT}"));
    let records = measured.expect(0, "mmio-read");
    let ledger = rig.ledger();
    rig.tell("read-delay none");
    let all = merged(&records, "latency");
    assert_eq!(all.count(), COUNT * CPUS, "{backend}, {delay}");
    assert_eq!(total(&records, "samples_lost"), 0, "{backend}, {delay}");
    let accesses = COUNT * CPUS + looks(&records);
    assert_eq!(seen(&ledger, "reads", 0, 0, 4), accesses, "{backend}, {delay}: the device's count differs");
    for record in records {
        let method = record.method.as_ref().expect("a record says how it was made");
        assert_eq!(method.backend, backend);
        assert!(method.emulated, "a device of the lab is labelled");
        assert!(
            record.histograms["calibration"].count() >= 1000,
            "{backend}: the empty pair is calibrated on every CPU"
        );
    }
    all
}

/// Within 5 % of what was injected, plus what nine of ten accesses take without. Their median is not enough where the
/// host itself is a guest: the emulator's thread, which sleeps through the delay, wakes up the later the longer that was.
fn near(what: &str, got_ns: f64, injected_ns: f64, undelayed: &Histogram) -> Result<(), String> {
    let undelayed_ns = undelayed.percentile_ns(90.0).expect("a run has samples");
    let (low, high) = (injected_ns * 0.95, injected_ns * 1.05 + undelayed_ns);
    if (low..=high).contains(&got_ns) {
        return Ok(());
    }
    Err(format!("{what} {got_ns} ns is not within {low} to {high} ns"))
}

/// How often the device dealt out a delay.
fn chosen(ledger: &serde_json::Value, delay_ns: u64) -> u64 {
    let pairs = ledger["read_delay_ns"]["chosen"].as_array().expect("two delays are listed");
    pairs.iter().find(|pair| pair[0] == delay_ns).map_or(0, |pair| pair[1].as_u64().unwrap_or(0))
}

/// The device's counts are those of the samples.
pub fn reads_writes_and_read_backs_of_every_width_are_counted(rig: &Rig, kernel: Kernel) {
    {
        rig.must(&format!("pciescope bind {} --driver pcilat", rig.bdf));
        let latency = |more: &str| {
            rig.tell("reset");
            rig.pciescope(&format!("latency mmio {} {more}", rig.bdf))
        };
        for width in [1, 2, 4, 8] {
            let read = latency(&format!("--bar 0 --offset 0x1008 --width {width} --accept-side-effects --count 300"));
            let records = read.expect(0, "mmio-read");
            assert_eq!(merged(&records, "latency").count(), 300 * CPUS, "{kernel}, width {width}");
            // QEMU may split an access of 8 bytes into two of 4 (docs/spec/latency-endpoint.md).
            let accesses = seen(&rig.ledger(), "reads", 0, 0x1008, 0);
            assert_eq!(accesses, 300 * CPUS + looks(&records), "{kernel}, width {width}");
        }
        let written = latency("--test write --offset 8 --width 4 --value 0x5a --count 400");
        assert_eq!(merged(&written.expect(0, "mmio-write"), "latency").count(), 400 * CPUS);
        assert_eq!(seen(&rig.ledger(), "writes", 0, 8, 4), 400 * CPUS, "{kernel}");
        let both = latency("--test write-read --offset 8 --width 4 --value 0x5a --count 400");
        let records = both.expect(0, "mmio-write-read");
        assert_eq!(seen(&rig.ledger(), "writes", 0, 8, 4), 400 * CPUS, "{kernel}");
        assert_eq!(seen(&rig.ledger(), "reads", 0, 8, 4), 400 * CPUS + looks(&records), "{kernel}");
        // A batch of accesses between two stamps: the samples stay, the accesses multiply.
        let batched = latency("--accesses 5 --count 100");
        let records = batched.expect(0, "mmio-read");
        assert_eq!(merged(&records, "latency").count(), 100 * CPUS, "{kernel}");
        assert_eq!(seen(&rig.ledger(), "reads", 0, 0, 4), 5 * 100 * CPUS + looks(&records), "{kernel}");
        // All-ones that are expected do not cut a batch short: the sample would be a fifth of the time.
        let ones = latency("--test write-read --offset 8 --width 4 --value 0xffffffff --accesses 5 --count 100");
        let records = ones.expect(0, "mmio-write-read");
        assert_eq!(seen(&rig.ledger(), "writes", 0, 8, 4), 5 * 100 * CPUS, "{kernel}");
        assert_eq!(seen(&rig.ledger(), "reads", 0, 8, 4), 5 * 100 * CPUS + looks(&records), "{kernel}");
        if kernel == Kernel::V6_12 {
            a_turn_wakes_one_worker(rig);
        }
        rig.must(&format!("pciescope unbind {}", rig.bdf));
        assert_eq!(rig.driver(), "none");
    }
}

/// While one CPU measures, the others sleep: a worker goes to sleep once for each of its turns. Woken at every turn, each
/// would do so once for each turn of every CPU.
fn a_turn_wakes_one_worker(rig: &Rig) {
    /// Reads of one turn.
    const TURN: u64 = 20;
    let turns = || seen(&rig.ledger(), "reads", 0, 0, 4) / TURN;
    // Of all workers together.
    let sleeps = || -> u64 {
        let tasks = "grep -ls '^pcilat/' /proc/[0-9]*/comm | sed 's/comm$/status/'";
        let text = rig.must(&format!("cat $({tasks}) | grep '^voluntary_ctxt_switches'"));
        assert_eq!(text.lines().count() as u64, CPUS, "a worker for each CPU: {text}");
        text.lines().map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
    };
    rig.tell("reset");
    let running = rig.vm.start(&format!("exec /lib/pciescope/pcilat_turns {} {TURN}", rig.bdf));
    let at_least = |least: u64| {
        assert!(running.status().is_none(), "the run has ended: {:?}", running.wait());
        (turns() >= least).then_some(())
    };
    rig.vm.wait_for("turns", || at_least(20));
    let (turns_before, sleeps_before) = (turns(), sleeps());
    rig.vm.wait_for("more turns", || at_least(turns_before + 400));
    let (turns, sleeps) = (turns() - turns_before, sleeps() - sleeps_before);
    running.signal("KILL").unwrap_or_else(|err| panic!("the lab failed: {err}"));
    running.wait().map(drop).unwrap_or_else(|err| panic!("the run does not end: {err}"));
    say!("{turns} turns on {CPUS} CPUs, {sleeps} times a worker went to sleep");
    assert!(sleeps * 2 >= turns && sleeps * 2 <= turns * 3, "{sleeps} times in {turns} turns");
}

/// Raw records that the module's ring holds: what all CPUs measure within a second or two.
const RING: u64 = 1 << 16;
/// Bytes of the largest BAR here: more than 32 bits of address, and nothing that a host must really have.
const BIG: u64 = 8 << 30;

pub fn a_machine_of_several_devices_is_measured_without_loss_hop_by_hop_and_side_by_side() {
    let second = Endpoint::serve(LatencyEndpoint::default(), "lab1");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("big");
    // Without extended capabilities, of which QEMU would answer the first by itself.
    let model = LatencyEndpoint::without_serial_number(&Default::default());
    let rig = Rig::boot_model(model, Kernel::V6_12, Attachment::Switch, |builder| {
        builder
            .module(format!("pcilat ring_records={RING}"))
            .served("lab1", &second.served, Attachment::RootPort)
            .device("big0", GuestDevice::Other("ivshmem-plain,memdev=big".into()), Attachment::RootPort)
            .qemu_args(["-object".into(), {
                format!("memory-backend-file,id=big,size={BIG},share=on,mem-path={}", file.display())
            }])
    });
    more_samples_than_the_ring_holds_are_taken_without_loss(&rig);
    the_path_is_read_hop_by_hop_and_a_delay_shows_at_its_hop(&rig);
    two_devices_are_measured_at_once(&rig, &second);
    a_register_at_the_end_of_a_large_bar_is_the_one_that_is_meant(&rig, &file);
    rig.finish();
}

/// On four CPUs at once: the program empties the ring of raw records while the run fills it again.
fn more_samples_than_the_ring_holds_are_taken_without_loss(rig: &Rig) {
    const EACH: u64 = RING * 3 / 8;
    rig.tell("reset");
    let run = format!("latency mmio {} --bind --order concurrent --count {EACH} --raw /tmp/raw.csv", rig.bdf);
    let measured = rig.pciescope(&run);
    let records = measured.expect(0, "mmio-read");
    assert_eq!(merged(&records, "latency").count(), EACH * CPUS);
    assert_eq!(total(&records, "samples_lost"), 0);
    assert_eq!(seen(&rig.ledger(), "reads", 0, 0, 4), EACH * CPUS + looks(&records));
    // The raw samples: a header and one line each.
    assert_eq!(rig.must("wc -l </tmp/raw.csv; rm /tmp/raw.csv"), (EACH * CPUS + 1).to_string());
}

fn the_path_is_read_hop_by_hop_and_a_delay_shows_at_its_hop(rig: &Rig) {
    let bridges = rig.must(&format!("readlink -f /sys/bus/pci/devices/{} | tr / '\n' | grep '^0000:'", rig.bdf));
    let bridges: Vec<&str> = bridges.lines().collect();
    assert_eq!(bridges.len(), 4, "root port, upstream port, downstream port, endpoint");
    for (backend, options) in [("kmod", "--backend kmod --bind"), ("sysfs", "--backend sysfs")] {
        settle(backend, || {
            let undelayed = hops(rig, backend, options, &bridges, "none");
            let delayed = hops(rig, backend, options, &bridges, "fixed 300us");
            let end = bridges.len() - 1;
            let least = delayed[end].min_ns().unwrap();
            assert!(least >= 300e3, "{backend}: a read of {least} ns beats its delay");
            moved("the endpoint's hop", &undelayed[end], &delayed[end], 300e3)?;
            (0..end).try_for_each(|hop| stayed(bridges[hop], &undelayed[hop], &delayed[hop], 300e3))
        });
    }
}

/// Reads every hop while the endpoint delays its answers in configuration space.
fn hops(rig: &Rig, backend: &str, options: &str, bridges: &[&str], delay: &str) -> Vec<Histogram> {
    rig.tell("reset");
    rig.tell(&format!("config-delay {delay}"));
    let before = rig.ledger()["config_reads"].as_u64().unwrap();
    let measured = rig.pciescope(&format!("latency path {} {options} --count 400", rig.bdf));
    let reads = rig.ledger()["config_reads"].as_u64().unwrap() - before;
    rig.tell("config-delay none");
    let records = measured.expect(0, "config-read");
    // The kernel itself reads configuration space when a driver comes and goes.
    assert!(reads >= 400 * CPUS, "{backend}: the device saw {reads} configuration reads");
    assert_eq!(total(&records, "samples_lost"), 0, "{backend}");
    let of_hop = |(hop, bridge): (usize, &&str)| {
        let is_hop = |record: &&&Record| record.target.as_ref().and_then(|t| t.hop) == Some(hop as u16);
        let of_hop: Vec<_> = records.iter().filter(is_hop).copied().collect();
        let all = merged(&of_hop, "latency");
        assert_eq!(all.count(), 400 * CPUS, "{backend}, hop {hop}");
        let seen = of_hop[0].target.as_ref().and_then(|t| t.hop_bdf).map(|bdf| bdf.to_string());
        assert_eq!(seen.as_deref(), Some(*bridge), "{backend}, hop {hop}");
        all
    };
    bridges.iter().enumerate().map(of_hop).collect()
}

/// Two endpoints bound to the module, with runs at the same time: each device counts its own, and no figure of one is
/// in the other's record.
fn two_devices_are_measured_at_once(rig: &Rig, second: &Endpoint) {
    let other = rig.vm.address(second.name);
    for bdf in [&rig.bdf, &other] {
        rig.must(&format!("pciescope bind {bdf} --driver pcilat"));
    }
    rig.must(&format!("test -c /dev/pcilat/{}; test -c /dev/pcilat/{other}", rig.bdf));
    // misc has 128 numbers for all drivers on 6.1.
    rig.must("grep -q ' pcilat$' /proc/devices && ! ls /sys/class/misc | grep pcilat");
    for first in ["mmio", "irq"] {
        rig.tell("reset");
        second.tell("reset");
        second.tell("read-delay fixed 100us");
        // Triggers 5 ms apart, so that the shorter of the two takes seconds.
        let args = match first {
            "mmio" => format!("latency mmio {} --count 20k", rig.bdf),
            _ => format!(
                "latency irq {} --vectors 0-1 --count 100 --period 5ms --timeout 2s --raised-by hardware",
                rig.bdf
            ),
        };
        let files = ["/tmp/first.jsonl", "/tmp/second.jsonl"];
        let runs = [rig.start(&args, files[0]), rig.start(&format!("latency mmio {other} --count 6k"), files[1])];
        // Both have begun, and neither has ended.
        let end = Instant::now() + rig.patience(PATIENCE);
        let begun = |ledger: &serde_json::Value| {
            seen(ledger, "reads", 0, 0, 4) > 100 || support::vector(ledger, 0, "triggers") > 10
        };
        while !(begun(&rig.ledger()) && begun(&second.ledger())) {
            assert!(runs.iter().all(|run| run.status().is_none()), "{first}: one ended before the other began");
            assert!(Instant::now() < end, "{first}: the runs did not begin: {} {}", rig.ledger(), second.ledger());
        }
        assert!(runs.iter().all(|run| run.status().is_none()), "{first}: one ended before the other began");
        let [one, two] = [0, 1].map(|n| rig.end(&runs[n], files[n], PATIENCE));
        let records = two.expect(0, "mmio-read");
        let all = merged(&records, "latency");
        assert_eq!(all.count(), 6000 * CPUS);
        assert!(all.min_ns().unwrap() >= 100e3, "{first}: a sample of the other device");
        assert_eq!(seen(&second.ledger(), "reads", 0, 0, 4), 6000 * CPUS + looks(&records), "beside {first}");
        assert_eq!(support::vector(&second.ledger(), 0, "triggers"), 0);
        if first == "mmio" {
            let records = one.expect(0, "mmio-read");
            let all = merged(&records, "latency");
            assert_eq!(all.count(), 20_000 * CPUS);
            assert!(all.min_ns().unwrap() < 100e3, "every sample has the other device's delay");
            assert_eq!(seen(&rig.ledger(), "reads", 0, 0, 4), 20_000 * CPUS + looks(&records));
            continue;
        }
        assert!([0, 1].contains(&one.output.status), "{}", one.output.stderr);
        let records = one.of("irq-hardware");
        let raised = total(&records, "triggers") + total(&records, "warmup_triggers");
        let ledger = rig.ledger();
        assert_eq!(support::vector(&ledger, 0, "triggers") + support::vector(&ledger, 1, "triggers"), raised);
        assert_eq!(total(&records, "handled"), total(&records, "triggers"));
        assert_eq!(total(&records, "wrong_cpu") + total(&records, "lost") + total(&records, "extra"), 0);
    }
    for bdf in [&rig.bdf, &other] {
        rig.must(&format!("pciescope unbind {bdf}"));
    }
}

/// Shared memory of 8 GiB, whose last bytes this side sees in a file.
fn a_register_at_the_end_of_a_large_bar_is_the_one_that_is_meant(rig: &Rig, file: &Path) {
    let bdf = rig.vm.address("big0");
    let last = BIG - 8;
    let target = format!("--bar 2 --offset {last:#x} --width 8 --accept-side-effects");
    let file = File::options().read(true).write(true).open(file).unwrap();
    let read = rig.pciescope(&format!("latency mmio {bdf} --bind --backend kmod {target} --count 100"));
    assert_eq!(merged(&read.expect(0, "mmio-read"), "latency").count(), 100 * CPUS);
    let write = format!("--test write {target} --value 0x1122334455667788");
    rig.pciescope(&format!("latency mmio {bdf} --bind --backend kmod {write} --count 100")).expect(0, "mmio-write");
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, last).unwrap();
    assert_eq!(u64::from_le_bytes(bytes), 0x1122_3344_5566_7788);
    // What is there now is all-ones, and that is what the module must see.
    file.write_all_at(&[0xff; 8], last).unwrap();
    let ones = rig.pciescope(&format!("latency mmio {bdf} --bind --backend kmod {target} --count 100"));
    assert_eq!(ones.output.status, 2, "{}", ones.output.stderr);
    let beyond = format!("--bar 2 --offset {BIG:#x} --width 8 --accept-side-effects");
    let refused = rig.pciescope(&format!("latency mmio {bdf} --bind --backend kmod {beyond} --count 100"));
    assert_eq!(refused.output.status, 2);
    assert!(refused.output.stderr.contains("outside"), "{}", refused.output.stderr);
}
