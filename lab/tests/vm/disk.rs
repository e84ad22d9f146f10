//! The virtual disk under Linux's own nvme driver and fio: the data is right, the rate is kept, the ledger has every
//! byte, and what goes wrong looks to the guest as it does with hardware.

use std::ops::Deref;
use std::time::Instant;

use pciescope_core::Bdf;
use pciescope_lab::Served;
use pciescope_lab::device::NvmeDisk;
use pciescope_lab::device::config::Link;
use pciescope_lab::device::nvme::{Fill, pattern};
use pciescope_lab::device::traffic::{PortTotals, Traffic};
use pciescope_lab::vm::{Attachment, Builder, Kernel, Output, Running};
use serde_json::Value;

use crate::say;
use crate::support::guest::Guest;
use crate::support::{PATIENCE, is_arm64};

const CAPACITY: u64 = 8 << 30;
const MIB: u64 = 1 << 20;

/// A disk that this process serves, and what the guest calls it.
struct Disk<'g> {
    served: &'g Served,
    traffic: Traffic,
    port: Bdf,
    seed: u64,
    /// `nvme0`.
    controller: String,
    /// `/dev/nvme0n1`.
    node: String,
    bdf: String,
}

/// What was counted up to a moment.
struct State {
    ledger: Value,
    port: PortTotals,
}

impl Disk<'_> {
    fn tell(&self, command: &str) -> Value {
        self.served.ask(command).unwrap_or_else(|err| panic!("{command}: {err}"))
    }

    fn state(&self) -> State {
        State { ledger: self.tell("ledger"), port: self.traffic.port(self.port).totals() }
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            say!("the ledger of {}: {}", self.bdf, self.served.ask("ledger").unwrap_or_default());
        }
    }
}

impl State {
    /// How much a field of the ledger, such as `commands/read`, grew since `before`.
    fn since(&self, before: &State, field: &str) -> u64 {
        let value = |state: &State| state.ledger.pointer(&format!("/{field}")).and_then(Value::as_u64).unwrap();
        value(self) - value(before)
    }

    /// Every byte at the port is one of a kind that the disk knows, to the byte.
    fn check_port(&self, before: &State) {
        let port = self.port.since(&before.port);
        let sum = |fields: [&str; 4]| fields.iter().map(|field| self.since(before, field)).sum::<u64>();
        assert_eq!(port.rx_payload, sum(["data_read_bytes", "cqe_bytes", "admin_bytes", "mmio_read_bytes"]), "rx");
        assert_eq!(port.tx_payload, sum(["data_written_bytes", "sqe_bytes", "prp_bytes", "mmio_write_bytes"]), "tx");
        let commands: u64 = ["admin", "read", "write", "flush", "write_zeroes", "other"]
            .iter()
            .map(|kind| self.since(before, &format!("commands/{kind}")))
            .sum();
        assert_eq!(self.since(before, "sqe_bytes"), 64 * commands);
        assert_eq!(self.since(before, "cqe_bytes"), 16 * self.since(before, "completions"));
        assert_eq!(self.since(before, "mmio_write_bytes"), 4 * self.since(before, "mmio_writes"));
    }
}

/// Two disks that this process serves; the guest that has them is to be dropped first.
pub struct Disks {
    served: Vec<(Served, Bdf, u64)>,
    traffic: Traffic,
    _folder: tempfile::TempDir,
}

impl Disks {
    pub fn serve() -> Disks {
        let (folder, traffic) = (tempfile::tempdir().unwrap(), Traffic::new());
        let serve = |serial: u32| {
            let seed = 0x5eed + u64::from(serial);
            let port: Bdf = format!("0000:00:{:02x}.0", 2 + serial).parse().unwrap();
            let disk = NvmeDisk::new(&Link::default(), traffic.port(port));
            let disk = disk.with_capacity(CAPACITY).with_fill(Fill::Pattern(seed)).with_serial(serial);
            (Served::spawn(disk, folder.path(), &format!("disk{serial}")).unwrap(), port, seed)
        };
        Disks { served: [0, 1].map(serve).into(), traffic, _folder: folder }
    }

    /// Puts each behind a root port of its own.
    pub fn add_to(&self, builder: Builder) -> Builder {
        let builder = builder.module("nvme").cmdline("nvme_core.io_timeout=3");
        let disks = self.served.iter().enumerate();
        disks.fold(builder, |builder, (serial, (served, ..))| {
            builder.served(format!("disk{serial}"), served, Attachment::RootPort)
        })
    }
}

/// A guest and its disks.
struct Rig<'g> {
    vm: &'g Guest,
    disks: Vec<Disk<'g>>,
    /// The guest's clock, in seconds, at a moment of this machine's.
    clock: (f64, Instant),
}

impl Deref for Rig<'_> {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        self.vm
    }
}

impl<'g> Rig<'g> {
    fn of(vm: &'g Guest, disks: &'g Disks) -> Rig<'g> {
        let find = |(serial, (served, port, seed)): (usize, &'g (Served, Bdf, u64))| {
            let bdf = vm.address(&format!("disk{serial}"));
            // Linux numbers controllers in the order in which they become ready.
            let find = format!("until ls -d /sys/bus/pci/devices/{bdf}/nvme/nvme*/nvme*n1; do sleep 0.1; done");
            let path = vm.must(&find);
            let parts: Vec<&str> = path.trim().rsplit('/').collect();
            let (node, controller) = (format!("/dev/{}", parts[0]), parts[1].to_owned());
            Disk { served, traffic: disks.traffic.clone(), port: *port, seed: *seed, controller, node, bdf }
        };
        let disks = disks.served.iter().enumerate().map(find).collect();
        Rig { vm, disks, clock: uptime(vm) }
    }

    /// How fast the guest's clock runs, by this machine's. A guest that boots while the machine is busy may take the wrong
    /// frequency for its time stamp counter, and its seconds are then too short or too long.
    fn clock_rate(&self) -> f64 {
        let (uptime, at) = uptime(self.vm);
        let rate = (uptime - self.clock.0) / at.duration_since(self.clock.1).as_secs_f64();
        // What the reading itself costs is of this size.
        if (rate - 1.0).abs() < 0.02 { 1.0 } else { rate }
    }

    /// Runs fio on a disk and gives its report of each job.
    fn jobs(&self, disk: &Disk<'_>, options: &str) -> Vec<Value> {
        let output = self.run_within(&fio(disk, options), PATIENCE);
        assert_eq!(output.status, 0, "fio {options}: {}\n{}", output.stdout, output.stderr);
        report(&output)
    }

    /// As [`Rig::jobs`], for one job.
    fn fio(&self, disk: &Disk<'_>, options: &str) -> Value {
        self.jobs(disk, options).remove(0)
    }

    /// What lies on a disk, as the guest sees it.
    fn content(&self, disk: &Disk<'_>, offset: u64, len: u64) -> Vec<u8> {
        self.must(&format!(
            "dd if={} of=/tmp/content bs=4k iflag=direct skip={} count={} 2>/dev/null",
            disk.node,
            offset / 4096,
            len / 4096
        ));
        self.vm.pull_file("/tmp/content").unwrap()
    }

    /// Waits until the disk moves data for whoever is under way.
    fn wait_for_data(&self, disk: &Disk<'_>, running: &Running<'_>) {
        let (before, end) = (disk.state(), Instant::now() + self.vm.patience(PATIENCE));
        let moved =
            |state: &State| state.since(&before, "data_read_bytes") + state.since(&before, "data_written_bytes");
        while moved(&disk.state()) < 8 * MIB {
            assert!(Instant::now() < end && running.status().is_none(), "no data moves: {:?}", running.wait());
        }
    }
}

/// What the guest's clock says, in seconds, and when: in the middle of the fastest of some readings.
fn uptime(vm: &Guest) -> (f64, Instant) {
    let reading = || {
        let begin = Instant::now();
        let text = vm.must("cat /proc/uptime");
        let took = begin.elapsed();
        (took, text.split_whitespace().next().unwrap().parse().unwrap(), begin + took / 2)
    };
    let (_, uptime, at) = (0..5).map(|_| reading()).min_by_key(|(took, ..)| *took).unwrap();
    (uptime, at)
}

fn fio(disk: &Disk<'_>, options: &str) -> String {
    format!("fio --name=t --filename={} --ioengine=libaio --direct=1 --output-format=json {options}", disk.node)
}

fn report(output: &Output) -> Vec<Value> {
    let start = output.stdout.find('{').unwrap_or_else(|| panic!("no JSON from fio: {output:?}"));
    let report: Value = serde_json::from_str(&output.stdout[start..]).unwrap();
    report["jobs"].as_array().unwrap().clone()
}

fn number(job: &Value, pointer: &str) -> u64 {
    job.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {pointer} in {job}"))
}

/// What was never written is the pattern; what fio writes it finds again, and so does the ledger.
fn the_data_is_right_and_counted(rig: &Rig<'_>, disk: &Disk<'_>) {
    let offset = 5 * (1 << 30) + 12 * 4096;
    let expected: Vec<u8> =
        (offset..offset + MIB).step_by(8).flat_map(|at| pattern(disk.seed, at).to_le_bytes()).collect();
    assert!(rig.content(disk, offset, MIB) == expected, "the pattern");

    // Whole pages, one PRP each: no list, and no neighbours in one command, so that the sums are known from what fio says
    // alone.
    let merges = format!("/sys/block/{}/queue/nomerges", disk.node.trim_start_matches("/dev/"));
    rig.must(&format!("echo 2 >{merges}"));
    let before = disk.state();
    let job =
        rig.fio(disk, "--rw=randrw --bs=4k --size=4m --iodepth=16 --verify=crc32c --verify_fatal=1 --do_verify=0");
    let after = disk.state();
    let (reads, writes) = (number(&job, "/read/total_ios"), number(&job, "/write/total_ios"));
    assert!(reads > 100 && writes > 100, "{job}");
    assert_eq!((after.since(&before, "commands/read"), after.since(&before, "commands/write")), (reads, writes));
    assert_eq!(after.since(&before, "data_read_bytes"), 4096 * reads);
    assert_eq!(after.since(&before, "data_written_bytes"), 4096 * writes);
    assert_eq!((after.since(&before, "prp_bytes"), after.since(&before, "errors_total")), (0, 0));
    let (port, doorbells) = (after.port.since(&before.port), after.since(&before, "doorbells"));
    assert_eq!(port.rx_payload, 4096 * reads + 16 * (reads + writes));
    assert_eq!(port.tx_payload, 4096 * writes + 64 * (reads + writes) + 4 * doorbells);
    let (payload, read_request) = disk.traffic.port(disk.port).link();
    assert_eq!(port.rx_mwr, 4096 / u64::from(payload) * reads + reads + writes);
    assert_eq!(port.rx_mrd, 4096 / u64::from(read_request) * writes + reads + writes);
    after.check_port(&before);

    rig.must(&format!("echo 0 >{merges}"));

    // Large ones, with lists, on all the depth there is; verified by another process.
    let pass = "--rw=write --bs=1m --size=64m --iodepth=64 --verify=crc32c --verify_fatal=1";
    let before = disk.state();
    let job = rig.fio(disk, &format!("{pass} --do_verify=0"));
    let between = disk.state();
    assert_eq!(number(&job, "/write/io_bytes"), 64 * MIB);
    assert_eq!(between.since(&before, "data_written_bytes"), 64 * MIB);
    assert_eq!(between.since(&before, "data_read_bytes"), 0);
    assert!(between.since(&before, "prp_bytes") > 0);
    between.check_port(&before);
    let job = rig.fio(disk, &format!("{pass} --verify_only"));
    let after = disk.state();
    assert_eq!(number(&job, "/read/io_bytes"), 64 * MIB);
    assert_eq!(after.since(&between, "data_read_bytes"), 64 * MIB);
    assert_eq!(after.since(&between, "data_written_bytes"), 0);
    after.check_port(&between);
    // Zeros, by the command for them.
    let before = disk.state();
    rig.must(&format!("fallocate --zero-range --offset {MIB} --length {MIB} {}", disk.node));
    assert!(disk.state().since(&before, "commands/write_zeroes") > 0);
    assert!(rig.content(disk, MIB, MIB).iter().all(|byte| *byte == 0), "zeros");
}

/// The seed's workload: four processes, each with 64 reads of 1 MiB under way.
const SEED_WORKLOAD: &str = "--bs=1m --iodepth=64 --numjobs=4 --size=2g --time_based=1";

/// The seed's rate, in bytes per second; a machine that is busy with other work may not reach it, but one of the lower
/// ones. Nothing makes the disk too fast.
const RATES: [u64; 3] = [542_000_000, 542_000_000, 150_000_000];

fn the_rate_is_kept(rig: &Rig<'_>, disk: &Disk<'_>, direction: &str, seconds: u64) {
    let mut idle = 0.0;
    for rate in RATES {
        disk.tell(&format!("rate {}MB", rate / 1_000_000));
        let before = disk.state();
        let jobs = rig.jobs(disk, &format!("{SEED_WORKLOAD} --rw={direction} --runtime={seconds}"));
        let after = disk.state();
        let sum = |pointer| jobs.iter().map(|job| number(job, pointer)).sum::<u64>();
        let (read, written) = (sum("/read/io_bytes"), sum("/write/io_bytes"));
        assert_eq!(after.since(&before, "data_read_bytes"), read);
        assert_eq!(after.since(&before, "data_written_bytes"), written);
        assert!(direction == "read" || written > 0, "{jobs:?}");
        after.check_port(&before);

        // The jobs do not start at the same time: from the first start to the last end.
        let start = |job| number(job, "/job_start");
        let end = |job| start(job) + number(job, "/read/runtime").max(number(job, "/write/runtime"));
        let milliseconds = jobs.iter().map(end).max().unwrap() - jobs.iter().map(start).min().unwrap();
        let clock = rig.clock_rate();
        let measured = (read + written) as f64 * 1e3 / milliseconds as f64 * clock;
        let error = measured / rate as f64 - 1.0;
        say!(
            "{direction}: {:.1} MB/s of {:.1} MB/s: {:+.2} % (the guest's clock runs at {clock:.3})",
            measured / 1e6,
            rate as f64 / 1e6,
            100.0 * error
        );
        assert!(error < 0.02, "{measured} B/s instead of {rate} B/s over {milliseconds} ms");
        // By the disk's own clock, which is this machine's.
        let busy_ns = after.since(&before, "busy_ns");
        let own = (read + written) as f64 * 1e9 / busy_ns as f64;
        assert!((own / rate as f64 - 1.0).abs() < 1e-4, "{own} B/s instead of {rate} B/s over {busy_ns} ns");
        if error > -0.02 {
            disk.tell("rate none");
            return;
        }
        idle = 1.0 - busy_ns as f64 / 1e6 / (milliseconds as f64 / clock);
    }
    // The guest had too little of this machine to keep the disk busy; that is the whole difference.
    assert!(idle > 0.02, "the disk was idle for {:.1} % of the time only", 100.0 * idle);
    say!("none of the rates {RATES:?} B/s was reached: the machine is busy");
    disk.tell("rate none");
}

/// A media error reaches the program that read, and only that.
fn media_errors_are_io_errors(rig: &Rig<'_>, disk: &Disk<'_>) {
    disk.tell("fail every 3");
    let before = disk.state();
    let script = format!(
        "for n in 1 2 3 4 5 6 7; do dd if={} of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null && echo good || echo bad; done",
        disk.node
    );
    let output = rig.run(&script);
    disk.tell("fail none");
    let words: Vec<&str> = output.stdout.split_whitespace().collect();
    assert_eq!(words, ["good", "good", "bad", "good", "good", "bad", "good"]);
    let after = disk.state();
    assert_eq!((after.since(&before, "media_errors"), after.since(&before, "errors_total")), (2, 2));
    assert_eq!(after.since(&before, "data_read_bytes"), 5 * 4096, "what failed moved nothing");
    after.check_port(&before);
}

/// A reset under load: the driver starts over, and every program gets its data.
fn a_reset_under_load_loses_nothing(rig: &Rig<'_>, disk: &Disk<'_>) {
    disk.tell("rate 500MB");
    let before = disk.state();
    let load = rig.start(&fio(disk, "--rw=read --bs=128k --iodepth=32 --size=256m"));
    rig.wait_for_data(disk, &load);
    rig.must(&format!("echo 1 >/sys/class/nvme/{}/reset_controller", disk.controller));
    let output = load.wait().unwrap();
    disk.tell("rate none");
    assert_eq!(output.status, 0, "{}", output.stderr);
    let job = &report(&output)[0];
    assert_eq!((number(job, "/read/io_bytes"), number(job, "/error")), (256 * MIB, 0));
    let after = disk.state();
    assert_eq!(after.since(&before, "enables"), 1);
    assert!(after.since(&before, "data_read_bytes") >= 256 * MIB, "what the reset cut off was read again");
    after.check_port(&before);
}

/// The first disk is unplugged while it is written to (a read beyond the end of what is now an empty disk would be no
/// error), the second falls silent while it is read from.
fn removal_under_load_is_an_io_error(rig: &Rig<'_>) {
    let [unplugged, silent] = &rig.disks[..] else { panic!("two disks") };
    let loads = [(unplugged, "write"), (silent, "read")].map(|(disk, direction)| {
        disk.tell("rate 200MB");
        let load = rig.start(&fio(disk, &format!("--rw={direction} --bs=128k --iodepth=16 --size=4g")));
        rig.wait_for_data(disk, &load);
        load
    });
    silent.tell("remove");
    rig.unplug("disk0").unwrap_or_else(|err| panic!("the lab failed: {err}"));
    for (load, disk) in loads.iter().zip([unplugged, silent]) {
        let output = load.wait_within(PATIENCE).unwrap_or_else(|err| panic!("fio goes on: {err}"));
        // Broken off by a signal it would have ended above 128.
        assert!((1..128).contains(&output.status), "{}: {output:?}", disk.bdf);
        assert!(output.stderr.contains("rror"), "{output:?}");
    }
    assert!(silent.tell("ledger")["all_ones_reads"].as_u64().unwrap() > 0);
    assert_eq!(rig.run(&format!("test -e /sys/bus/pci/devices/{}", unplugged.bdf)).status, 1);
}

/// Tries both disks of a guest; in the end one is unplugged and the other is silent.
pub fn the_kernels_driver_works_with_them(vm: &Guest, disks: &Disks, kernel: Kernel) {
    let (rig, start) = (Rig::of(vm, disks), Instant::now());
    // With interrupt remapping, or arm64's ITS, there is a queue for each of the four CPUs, each with its vector, otherwise
    // one.
    let queues = if has_remapping(kernel) || is_arm64() { 4 } else { 1 };
    let made = rig.must(&format!("cat /sys/class/nvme/{}/queue_count", rig.disks[0].controller));
    assert_eq!(made.trim(), (queues + 1).to_string(), "I/O queues and the admin queue");
    let disk = &rig.disks[0];
    let step = |what: &str| say!("{:5.1} s: {what}", start.elapsed().as_secs_f64());
    the_data_is_right_and_counted(&rig, disk);
    step("the data is right");
    // With one queue and with four.
    if !matches!(kernel, Kernel::V5_10 | Kernel::V6_1) {
        the_rate_is_kept(&rig, disk, if queues == 1 { "readwrite" } else { "read" }, 3);
        step("the rate is kept");
    }
    media_errors_are_io_errors(&rig, disk);
    a_reset_under_load_loses_nothing(&rig, disk);
    step("errors and a reset");
    removal_under_load_is_an_io_error(&rig);
    step("removal");
}

/// Whether the guest of a kernel gets interrupt remapping.
pub fn has_remapping(kernel: Kernel) -> bool {
    kernel == Kernel::Newest
}
