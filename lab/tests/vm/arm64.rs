//! The condensed pass on arm64: one guest in which each module is loaded, one experiment of each seed is made, the
//! conversions are compared and the package of the program is installed. The other suites run there too
//! (`make vm-test ARCH=arm64`).

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use pciescope_core::{Bdf, Record};
use pciescope_lab::Served;
use pciescope_lab::device::traffic::Traffic;
use pciescope_lab::device::{CounterBoard, LatencyEndpoint};
use pciescope_lab::vm::digitizers::Crate;
use pciescope_lab::vm::{Attachment, GuestDevice, Kernel, Vm};

use crate::say;
use crate::shim;
use crate::support::counters::Counters;
use crate::support::guest::Guest;
use crate::support::{Endpoint, PATIENCE, looks, merged, program, records, seen, total, vector};

/// The root port of the digitizer, its PMU, and the port of the latency endpoint.
const PORT: &str = "0000:00:02.0";
const PMU: &str = "dwc_rootport_10";
const ENDPOINT_PORT: &str = "0000:10:00.0";
const EDU_PORT: &str = "0000:10:01.0";
/// The step of the guest's counter: a server's, and so coarse that the program has to say so.
const HZ: u64 = 25_000_000;
const COUNT: u64 = 200;
const CPUS: u64 = 4;

pub fn every_module_and_an_experiment_of_each_seed() {
    on(Kernel::V6_12);
}

pub fn with_pages_of_16_kib() {
    on(Kernel::V6_12Pages16k);
}

fn on(kernel: Kernel) {
    let traffic = Traffic::new();
    let seed = Crate { traffic: traffic.clone(), ..Crate::seed(1) };
    let (name, digitizer, place) = seed.behind_ports(&[PORT.parse::<Bdf>().unwrap()]).remove(0);
    let folder = tempfile::tempdir().unwrap();
    let digitizer = Served::spawn(digitizer, folder.path(), &name).unwrap();
    let endpoint = Endpoint::serve(LatencyEndpoint::default(), "lab0");
    let board = Endpoint::serve(CounterBoard::seed_machine(traffic).with_pin(), "board");
    let port = |text: &str| Attachment::Port(text.parse().unwrap());
    let vm = Guest::boot(
        Vm::builder()
            .kernel(kernel)
            .seed_machine()
            .acpi_table("drw")
            .served("board", &board.served, Attachment::RootBus)
            .served("lab0", &endpoint.served, port(ENDPOINT_PORT))
            .served(&name, &digitizer, place)
            .device("edu0", GuestDevice::Edu, port(EDU_PORT))
            .module("pcilat")
            .module("sis8300")
            .program(program())
            .qemu_args(["-cpu", &format!("max,pauth-impdef=on,cntfrq={HZ}")]),
    );
    let mut rig = Counters::of(vm, board);
    rig.must("modprobe pciescope_lab acpi=1 && modprobe drw_pmu && modprobe rasdes_pmu");
    rig.list_pmus();
    let bound = rig.must("cd /sys/bus/platform/drivers/drw_pmu; ls -d ARMHD700:* BABA5000:* | wc -l");
    assert_eq!(bound, "16", "sub-channels that ACPI declares");
    say!("the modules are loaded");
    facts(&rig);
    registers(&rig, &endpoint);
    configuration_reads(&rig);
    interrupts(&rig, &endpoint);
    if kernel == Kernel::V6_12Pages16k {
        let page = rig.must("grep -m 1 KernelPageSize /proc/self/smaps");
        assert!(page.ends_with(" 16 kB"), "{page}");
        a_bar_of_a_quarter_page(&rig, &endpoint);
    }
    say!("latencies are the endpoint's");
    // Its root port has no slot number, so the node is named by the address.
    let node = rig.must("ls /dev/sis8300-*");
    samples(&rig, &node);
    conversions(&rig);
    say!("samples and conversions are exact");
    package(&rig);
    say!("the package works");
    channels(&rig, false);
    ports(&rig, &node);
    say!("counters are the board's");
    if shim::has_in_tree_drivers(kernel) {
        rig.must("rmmod drw_pmu && rmmod rasdes_pmu && modprobe alibaba_uncore_drw_pmu && modprobe dwc_pcie_pmu");
        rig.list_pmus();
        channels(&rig, true);
        the_kernels_driver_counts_a_port(&rig, &node);
    }
    rig.finish(&[
        "dwc_pcie_pmu",
        "alibaba_uncore_drw_pmu",
        "drw_pmu",
        "rasdes_pmu",
        "pciescope_lab",
        "sis8300",
        "pcilat",
    ]);
}

/// `pciescope lab run --arch arm64`, as a person types it: what the guest prints is printed, and its exit code is the program's.
pub fn the_programs_own_lab_boots_it() {
    let words = "uname -m; pciescope latency mmio 0000:01:00.0 --backend kmod --bind --count 100 -j; exit 7";
    let lab = ["lab", "run", "--arch", "arm64", "--endpoints", "1", "--bare", "--device-control"];
    let ended = Command::new(program())
        .args(lab)
        .args(["ep0 read-delay fixed 200us", "--", "sh", "-c", words])
        // Else the variable would say the same.
        .env_remove("PCIESCOPE_LAB_ARCH")
        .output()
        .expect("the program of the tests runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert_eq!(ended.status.code(), Some(7), "{stdout}\n{stderr}");
    let records = stdout.strip_prefix("aarch64\n").unwrap_or_else(|| panic!("no guest of arm64:\n{stdout}\n{stderr}"));
    let all = records::parse(records);
    let latency = merged(&of(&all, "mmio-read"), "latency");
    assert_eq!(latency.count(), 100 * CPUS);
    assert!(latency.min_ns().unwrap() >= 200e3, "the injected delay is missing: {latency:?}");
}

/// vfio on QEMU's own devices: those of another process get no memory behind QEMU's SMMUv3. What the device holds says
/// whether the program reached it.
pub fn vfio_measures_behind_an_smmu() {
    let devices = [("edu0", GuestDevice::Edu), ("igb0", GuestDevice::Igb), ("nvme0", GuestDevice::Nvme)];
    let plain = Vm::builder().iommu(true).module("vfio-pci").program(program());
    let vm = Guest::boot(
        devices.iter().fold(plain, |vm, (name, device)| vm.device(*name, device.clone(), Attachment::RootPort)),
    );
    let list = vm.must("pciescope list");
    assert!(list.contains("IOMMU    Arm SMMUv3"), "{list}");
    let edu = vm.address("edu0");
    let reg = |words: &str| vm.must(&format!("pciescope reg {words} --backend vfio --bind"));
    // QEMU's docs/specs/edu.rst: an identification, and a register that answers with the complement of what it was given.
    assert!(reg(&format!("read {edu} 0:0")).contains("0x010000ed"));
    reg(&format!("write {edu} 0:4 0x12345678"));
    let answer = reg(&format!("read {edu} 0:4"));
    assert!(answer.contains("0xedcba987"), "{answer}");
    for (name, _) in devices {
        let bdf = vm.address(name);
        let vfio = format!("{bdf} --backend vfio --bind --count {COUNT}");
        let all = records_of(&vm, &format!("latency mmio {vfio}"));
        let reads = of(&all, "mmio-read");
        assert_eq!(merged(&reads, "latency").count(), COUNT * CPUS, "{name}");
        assert!(reads.iter().all(|record| record.method.as_ref().unwrap().backend == "vfio"), "{name}");
        let all = records_of(&vm, &format!("latency irq {vfio} --vectors 0 --timeout 10s"));
        let interrupts: Vec<&Record> = all.iter().filter(|record| record.test.starts_with("irq-")).collect();
        let triggers = total(&interrupts, "triggers");
        assert!(triggers >= COUNT * CPUS && triggers % (COUNT * CPUS) == 0, "{name}: {triggers}");
        assert_eq!(total(&interrupts, "handled"), triggers, "{name}");
        assert_eq!(total(&interrupts, "lost") + total(&interrupts, "wrong_cpu"), 0, "{name}");
        // It had no driver before.
        vm.must(&format!("[ ! -e /sys/bus/pci/devices/{bdf}/driver ]"));
        say!("{name} is measured through vfio");
    }
    let log = vm.must("dmesg");
    assert!(!log.contains("arm-smmu-v3 arm-smmu-v3.0.auto: event"), "the SMMU met a fault:\n{log}");
    vm.finish(&[]);
}

/// Runs the program, and gives the records it wrote.
fn records_of(rig: &Guest, args: &str) -> Vec<Record> {
    let output = rig.run_within(&format!("pciescope {args} -j"), PATIENCE);
    assert_eq!(output.status, 0, "{args}\n{}\n{}", output.stdout, output.stderr);
    records::parse(&output.stdout)
}

fn of<'r>(records: &'r [Record], test: &str) -> Vec<&'r Record> {
    let all: Vec<_> = records.iter().filter(|record| record.test == test).collect();
    assert!(!all.is_empty(), "no record of {test}");
    all
}

/// What the program says of the machine: nothing that can be known is unknown.
fn facts(rig: &Counters) {
    let list = rig.must("pciescope list");
    for part in ["aarch64", "QEMU", "GICv3, ITS", "2 nodes", "node 1   CPUs 2-3"] {
        assert!(list.contains(part), "{part:?} is missing:\n{list}");
    }
    assert!(!list.contains("implementer") && !list.contains("machine  unknown"), "{list}");
    let doctor = rig.run_within("pciescope doctor --all", PATIENCE);
    assert!(doctor.stdout.contains("the machine calls itself QEMU") && doctor.status <= 1, "{doctor:?}");
    // The architecture's counter is the right clock here, so nothing is said of it.
    assert!(!doctor.stdout.contains("clocksource"), "{}", doctor.stdout);
}

fn has_warning(record: &Record, code: &str) -> bool {
    record.warnings.iter().any(|warning| warning.code == code)
}

/// A delay is recovered, every read is the device's, and the clock is said for what it is.
fn registers(rig: &Counters, endpoint: &Endpoint) {
    let bdf = rig.address("lab0");
    endpoint.tell("reset");
    endpoint.tell("read-delay fixed 200us");
    let all = records_of(rig, &format!("latency mmio {bdf} --bind --count {COUNT}"));
    let reads = of(&all, "mmio-read");
    endpoint.tell("read-delay none");
    let latency = merged(&reads, "latency");
    assert_eq!(latency.count(), COUNT * CPUS);
    assert_eq!(seen(&endpoint.ledger(), "reads", 0, 0, 4), COUNT * CPUS + looks(&reads));
    let (least, median) = (latency.min_ns().unwrap(), latency.median_ns().unwrap());
    assert!(least >= 200e3 && median < 2e6, "{least} ns, median {median} ns");
    let method = reads[0].method.as_ref().unwrap();
    assert_eq!((method.clock.as_str(), method.clock_hz, method.quantum_ns), ("cntvct", HZ, 1e9 / HZ as f64));
    assert!(reads.iter().all(|record| !has_warning(record, "coarse-clock")), "a step of 40 ns in {median} ns");
    // A device of QEMU's own answers in a microsecond or two.
    let all = records_of(rig, &format!("latency mmio {} --bind --count {COUNT}", rig.address("edu0")));
    for record in of(&all, "mmio-read") {
        let median = record.histograms["latency"].median_ns().unwrap();
        assert_eq!(has_warning(record, "coarse-clock"), 1e9 / HZ as f64 / median > 0.005, "{median} ns");
    }
}

/// Off x86 the kernel reads configuration space for one CPU at a time, which is said where several ask at once.
fn configuration_reads(rig: &Counters) {
    let bdf = rig.address("lab0");
    for (options, is_serial) in [("", false), (" --order concurrent", true)] {
        let all = records_of(rig, &format!("latency path {bdf} --bind --count 50{options}"));
        let reads = of(&all, "config-read");
        assert_eq!(merged(&reads, "latency").count() % (50 * CPUS), 0, "{options}");
        assert!(reads.iter().all(|record| has_warning(record, "serialized") == is_serial), "{options}: {reads:#?}");
    }
}

/// Through the ITS, to the CPU that was asked for, and without a difference that means nothing here.
fn interrupts(rig: &Counters, endpoint: &Endpoint) {
    endpoint.tell("reset");
    let run =
        format!("latency irq {} --bind --vectors 0-1 --count 50 --raised-by both --timeout 2s", rig.address("lab0"));
    let all = records_of(rig, &run);
    let hardware = of(&all, "irq-hardware");
    assert_eq!(total(&hardware, "handled"), 2 * 50 * CPUS);
    assert_eq!(total(&hardware, "lost") + total(&hardware, "extra") + total(&hardware, "wrong_cpu"), 0);
    let sent = [0, 1].map(|number| vector(&endpoint.ledger(), number, "sent")).iter().sum::<u64>();
    assert_eq!(sent, 2 * 50 * CPUS + total(&hardware, "warmup_triggers"));
    for record in hardware {
        assert!(has_warning(record, "control-differs") && !record.metrics.contains_key("hardware_minus_control_ns"));
    }
    assert_eq!(total(&of(&all, "irq-retrigger"), "handled"), 2 * 50 * CPUS);
}

/// The resource file maps whole pages; every read reaches the register of the BAR.
fn a_bar_of_a_quarter_page(rig: &Counters, endpoint: &Endpoint) {
    endpoint.tell("reset");
    let target = "--bar 4 --offset 0x800 --width 4 --accept-side-effects";
    let run = format!("latency mmio {} --backend resource {target} --count 50", rig.address("lab0"));
    let all = records_of(rig, &run);
    let reads = of(&all, "mmio-read");
    assert_eq!(seen(&endpoint.ledger(), "reads", 4, 0x800, 4), 50 * CPUS + looks(&reads));
}

/// DRAM: perf's counts are the board's to the event, on both dies, and past 32 bits by the interrupt that ACPI declares.
/// The kernel's own driver takes the interrupt, and loses 2^32 of a session that nobody reads (docs/spec/drw.md).
fn channels(rig: &Counters, is_the_kernels: bool) {
    let subs = ["21000", "40021000"];
    for sub in subs {
        // So few that a counter does not wrap by them.
        rig.tell(&format!("dram {sub} rate hif_rd 4015952"));
        rig.tell(&format!("dram {sub} rate hif_wr 1000003"));
    }
    let events = subs.map(|sub| rig.events(sub, &["hif_rd", "hif_wr"])).join(" -e ");
    let interrupts = || -> u64 {
        let line = "/drw|ARMHD700|BABA5000/ { for (i = 2; i <= 5; i++) n += $i } END { print n }";
        rig.must(&format!("awk '{line}' /proc/interrupts")).parse().unwrap()
    };
    let (before, raised) = (rig.truth(), interrupts());
    let perf = rig.perf_start("beside", &format!("-e {events} sleep 1000"));
    for sub in subs {
        rig.wait_for("perf counts", || (rig.truth().enabled(sub) > 0).then_some(()));
        rig.tell(&format!("dram {sub} add hif_rd 4294967396"));
        rig.wait_for("the interrupt is answered", || (!rig.truth().is_asserted(sub)).then_some(()));
    }
    let read = perf.end();
    assert_eq!(read.len(), 4);
    let truth = rig.truth();
    for reading in &read {
        let happened = truth.counted(&before, rig.sub_of(reading), reading.name());
        let lost = if is_the_kernels && reading.name() == "hif_rd" { 1 << 32 } else { 0 };
        assert_eq!(reading.counted(), happened - lost, "{}", reading.event);
    }
    assert!(interrupts() > raised, "no interrupt came to the driver");
    subs.iter().for_each(|sub| {
        ["hif_rd", "hif_wr"].iter().for_each(|event| drop(rig.tell(&format!("dram {sub} rate {event} 0"))))
    });
}

/// Root ports: what was read of the digitizer is what its port counted, and all ports and channels can be counted at once.
fn ports(rig: &Counters, node: &str) {
    let received = || rig.truth().0["ports"][PORT]["rx_payload"].as_u64().unwrap();
    let before = received();
    let all = records_of(rig, &format!("verify readout {node} -S 300000 --duration 2s"));
    let rows: Vec<_> = all.iter().filter_map(pciescope_core::Comparison::from_record).collect();
    let (row, moved) = (&rows[0], (received() - before) as f64);
    assert!(row.workload_bytes > 1e6 && row.workload_bytes <= moved && row.counter_bytes() <= moved, "{row:?}");
    assert!((0.0..0.1).contains(&row.error_percent().unwrap()), "{row:?}");
    let all = records_of(rig, "stat --duration 2s");
    let scope = |scope: &str| {
        all.iter().filter(|r| r.instance.as_ref().is_some_and(|i| i.scope == scope && !i.is_accounting())).count()
    };
    assert_eq!((scope("port"), scope("channel")), (18, 16));
}

/// `dwc_pcie_pmu` counts what the board says that its port received while a digitizer was read.
fn the_kernels_driver_counts_a_port(rig: &Counters, node: &str) {
    let received = || rig.truth().0["ports"][PORT]["rx_payload"].as_u64().unwrap() as f64;
    let before = received();
    let read = rig.perf(&format!("-e {PMU}/eventid=0x21,type=0x0/ /lib/pciescope/sis8300_check {node} 1 0"));
    let (counted, moved) = (read[0].count.unwrap() as f64, received() - before);
    assert!(moved > 1e6 && counted <= moved && counted > 0.99 * moved, "{counted} of {moved} bytes");
}

/// Every sample is the board's, by the formula.
fn samples(rig: &Counters, node: &str) {
    let check = rig.run_within(&format!("/lib/pciescope/sis8300_check {node} 1 0"), PATIENCE);
    assert!(check.is_success(), "{}\n{}", check.stdout, check.stderr);
}

/// NEON and plain code give the reference's numbers for all 65,536 samples.
fn conversions(rig: &Counters) {
    let all = records_of(rig, "convert --isa all --samples 16384 --duration 1ms");
    let rows: Vec<&Record> = all.iter().filter(|record| record.metrics.contains_key("wrong")).collect();
    assert!(rows.len() >= 10, "{} rows", rows.len());
    let sum = |name: &str| rows.iter().map(|record| record.metrics[name].value).sum::<f64>();
    assert_eq!((sum("wrong"), sum("largest_error")), (0.0, 0.0));
    assert!(serde_json::to_string(&all).unwrap().contains("neon"), "no kernel of NEON ran");
}

/// dpkg installs the package of the program, of the folder `PCIESCOPE_LAB_PACKAGES`. What it brought runs and is unchanged.
fn package(rig: &Counters) {
    let folder = std::env::var_os("PCIESCOPE_LAB_PACKAGES").map(PathBuf::from);
    let folder = folder.expect("PCIESCOPE_LAB_PACKAGES names the folder of the arm64 packages: run `make arm64-test`");
    let is_the_programs = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("pciescope_") && name.ends_with("_arm64.deb")
    };
    let files = fs::read_dir(&folder).unwrap_or_else(|err| panic!("{}: {err}", folder.display()));
    let package = files.map(|file| file.unwrap().path()).find(is_the_programs);
    let package = package.unwrap_or_else(|| panic!("no pciescope_*_arm64.deb in {}", folder.display()));
    fs::copy(package, rig.share().join("pciescope.deb")).unwrap();
    let root = "/tmp/installed";
    // Maintainer scripts run in the root: it needs a shell.
    rig.must(&format!(
        "mkdir -p {root}/bin {root}/var/lib/dpkg/info {root}/var/lib/dpkg/updates && touch {root}/var/lib/dpkg/status && \
         cp /lab/bin/busybox {root}/bin/sh"
    ));
    // By its path: busybox has one of this name.
    let dpkg = format!("PATH=/lab/usr/bin:$PATH /lab/usr/bin/dpkg --root={root} --force-bad-path --log=/dev/null");
    // The C library that it depends on is the guest's.
    rig.must(&format!("{dpkg} --force-depends -i /host/pciescope.deb"));
    assert_eq!(rig.must(&format!("{dpkg} --verify pciescope")), "");
    let program = format!("{root}/usr/bin/pciescope");
    assert_eq!(rig.must(&format!("{program} --version")), concat!("pciescope ", env!("CARGO_PKG_VERSION")));
    let measured = rig.must(&format!("{program} latency mmio --backend fake --count 1000 -j"));
    // The synthetic machine has eight CPUs.
    assert_eq!(merged(&of(&records::parse(&measured), "mmio-read"), "latency").count(), 1000 * 8);
    rig.must(&format!("zcat {root}/usr/share/man/man1/pciescope-stat.1.gz | grep -q pciescope"));
    rig.must(&format!("{dpkg} -r pciescope && [ ! -e {program} ]"));
}
