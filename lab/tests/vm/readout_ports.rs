//! Readouts against what the links and root ports say: the rate is the virtual link's, and the payload counter has every byte
//! that was read of a digitizer or a disk.

use crate::say;
use crate::support;
use crate::support::counters::Counters;
use crate::support::digitizers::Digitizers;
use crate::support::readout::{Books, count, nodes, number, readout};
use crate::support::{Endpoint, PATIENCE, program, sanitize, settle};
use pciescope_core::{Bdf, Comparison};
use pciescope_lab::Served;
use pciescope_lab::device::NvmeDisk;
use pciescope_lab::device::config::Link;
use pciescope_lab::device::nvme::Fill;
use pciescope_lab::device::traffic::Traffic;
use pciescope_lab::device::upstream::{wire_rate, write_efficiency};
use pciescope_lab::vm::digitizers::Crate;
use pciescope_lab::vm::{Attachment, Kernel, Output};

/// Root ports of the seed's machine.
const PORT: &str = "0000:00:02.0";
const DISK_PORT: &str = "0000:30:00.0";
/// One DMA of the driver.
const CHUNK: f64 = (4 << 20) as f64;

/// Payload that a link carries to the host, in bytes per second: below 4 GiB, with the payload size of the lab's guests.
fn payload_rate(generation: u8, width: u8) -> f64 {
    wire_rate(generation, width) * write_efficiency(0, 128)
}

/// An L2 and a KU alone, and six boards behind one link: slow ones, so that an emulated guest keeps up.
pub fn the_rates_are_those_of_the_links() {
    let mut seed = Crate::seed(6);
    (seed.ku_link, seed.upstream) = ("2x1".parse().unwrap(), "2x1".parse().unwrap());
    let rig = Digitizers::boot_crate(Kernel::V6_12, &seed, |builder| builder.program(program()).module("sis8300"));
    // Reads by whole chunks, one DMA each.
    rig.must("echo 1 >/sys/module/sis8300/parameters/serial");
    for (slot, link) in [(6, payload_rate(1, 1)), (3, payload_rate(2, 1))] {
        let node = format!("/dev/sis8300-{slot}");
        for access in ["read", "ring --block 4M"] {
            settle("the rate of a DMA", || the_rate_of_a_dma(&rig, slot, access, link));
        }
        settle("the rate of a ring", || {
            let run = readout(&rig.vm, 0, &format!("{node} -S 2097152 -N 48 -B ring --block 4M --check none"));
            run.is_without("above-ceiling");
            let row = run.row(&node, "func_readout");
            let speed = number(row, "speed");
            assert!(speed < link * 1.005, "{speed} B/s over a link of {link}");
            // The engine waits for the interrupt between two DMAs, 0.3 ms and more in an emulated guest. Repeats that a busy host held up are no matter of the link's: at least a quarter are not.
            let quick = CHUNK / row.histograms["duration"].percentile_ns(25.0).unwrap() * 1e9;
            let [speed, quick, link] = [speed, quick, link].map(|rate| rate / 1e6);
            say!("slot {slot}: ring at {speed:.1} MB/s, a quarter at {quick:.1} and more, the link has {link:.1}");
            if (quick / link - 1.0).abs() > 0.1 { Err(format!("slot {slot}: {quick} of {link} MB/s")) } else { Ok(()) }
        });
    }
    if sanitize::has_kasan() {
        say!("six boards are left out: with KASAN the guest is slower than their joint link");
        return rig.finish();
    }
    let joint = payload_rate(2, 1);
    settle("the joint link", || {
        let run = readout(&rig.vm, 0, &format!("{} -S 2097152 -N 32 -B ring --block 4M --check none", nodes(&rig)));
        run.is_without("above-ceiling");
        let summary = run.summary();
        let active = number(summary, "active_speed");
        let sum: f64 = run.rows().iter().map(|row| number(row, "active_speed")).sum();
        assert!((sum / active - 1.0).abs() < 1e-6, "{sum} and {active}");
        say!("six boards: {:.1} MB/s while all were read, the link has {:.1}", active / 1e6, joint / 1e6);
        // At both ends of the time a DMA counts by its part, as if it had moved evenly: of many DMAs that is little.
        if (active / joint - 1.0).abs() > 0.07 { Err(format!("{active} of {joint} B/s")) } else { Ok(()) }
    });
    rig.finish();
}

/// A host that is busy elsewhere delays an end, and nothing makes it early: the quickest DMA is the link's.
fn the_rate_of_a_dma(rig: &Digitizers, slot: u16, access: &str, link: f64) -> Result<(), String> {
    let before = Books::of(rig);
    let args = format!("/dev/sis8300-{slot} -S 2097152 -B {access} --check none --trigger now -l 24 --each");
    let run = readout(&rig.vm, 0, &args);
    run.is_without("above-ceiling");
    assert_eq!(Books::of(rig).gained(&before, slot, "/dma_read/bytes"), 24 * (4 << 20));
    let rates: Vec<f64> = run.rows().iter().map(|row| CHUNK / number(row, "dma") * 1e9).collect();
    assert_eq!(rates.len(), 24);
    let best = rates.iter().copied().fold(0.0, f64::max);
    say!("slot {slot}, {access}: DMA at {:.1} MB/s, the link has {:.1}", best / 1e6, link / 1e6);
    assert!(best < link * 1.005, "{best} B/s over a link of {link}");
    for row in run.rows() {
        let [ceiling, of_it, speed] = ["ceiling", "of_ceiling", "speed"].map(|name| number(row, name));
        assert!((ceiling / link - 1.0).abs() < 0.005, "ceiling {ceiling}, link {link}");
        assert!((of_it - speed / ceiling * 100.0).abs() < 1e-6 && speed < ceiling);
    }
    if best < link * 0.97 { Err(format!("slot {slot}, {access}: {best} of {link} B/s")) } else { Ok(()) }
}

struct Ports {
    // Dropped in this order: the guest goes before its devices.
    counters: Counters,
    board: Served,
    disk: Endpoint,
    node: String,
    _folder: tempfile::TempDir,
}

impl Ports {
    fn boot() -> Ports {
        let folder = tempfile::tempdir().unwrap();
        let mut seed = Crate::seed(1);
        let [port, disk_port]: [Bdf; 2] = [PORT, DISK_PORT].map(|port| port.parse().unwrap());
        let (name, model, place) = seed_board(&mut seed, port);
        let board = Served::spawn(model, folder.path(), &name).unwrap();
        let disk = NvmeDisk::new(&Link::default(), seed.traffic.port(disk_port)).with_fill(Fill::Pattern(7));
        let disk = Endpoint::serve(disk, "disk");
        let counters = Counters::boot_on(seed.traffic.clone(), Kernel::V6_12, "rasdes_pmu", |builder| {
            let builder = builder.served(&name, &board, place).module("sis8300");
            builder.served("disk", &disk.served, Attachment::Port(disk_port)).module("nvme").program(program())
        });
        counters.wait_for("the disk is there", || counters.run("ls /dev/nvme?n1").is_success().then_some(()));
        let node = counters.must("ls /dev/sis8300-*");
        Ports { counters, board, disk, node, _folder: folder }
    }

    /// What came through a port, in bytes.
    fn received(&self, port: &str) -> u64 {
        self.counters.truth().0["ports"][port]["rx_payload"].as_u64().unwrap()
    }

    fn verify(&self, args: &str) -> (Output, Vec<Comparison>) {
        let command = format!("pciescope verify readout {args} --json");
        let output = self.counters.vm.run_within(&command, PATIENCE);
        let rows = comparisons(&output);
        (output, rows)
    }
}

fn seed_board(seed: &mut Crate, port: Bdf) -> (String, pciescope_lab::device::Sis8300, Attachment) {
    seed.traffic = Traffic::new();
    seed.behind_ports(&[port]).remove(0)
}

fn comparisons(output: &Output) -> Vec<Comparison> {
    support::records::parse(&output.stdout).iter().filter_map(Comparison::from_record).collect()
}

/// `verify readout` agrees with the ledger; a counter that is wrong is found; a disk's bytes are all its own.
pub fn the_ports_have_every_byte() {
    let rig = Ports::boot();
    for access in ["read", "ring"] {
        let before = rig.received(PORT);
        let (output, rows) = rig.verify(&format!("{} -S 300000 -B {access} --duration 3s", rig.node));
        let moved = rig.received(PORT) - before;
        assert_eq!(output.status, 0, "{}\n{}", output.stdout, output.stderr);
        let row = &rows[0];
        assert_eq!(rows.len(), 1);
        let (read, counted) = (row.workload_bytes, row.counter_bytes());
        say!("{access}: read {read} bytes, counted {counted}, the port moved {moved}");
        assert!(read > 1e6 && counted <= moved as f64 && read <= moved as f64);
        // Before and after it counts, the program looks at the board.
        assert!(counted > moved as f64 - 100_000.0, "{counted} of {moved}");
        // Beside the data come the answers to register reads, 4 bytes each.
        assert!((0.0..0.1).contains(&row.error_percent().unwrap()), "{row:?}");
    }
    // Bytes that nobody read.
    let command = format!("pciescope verify readout {} -S 300000 --duration 4s --json", rig.node);
    let read_before = ledger(&rig.board, "/dma_read/bytes");
    let running = rig.counters.vm.start(&command);
    rig.counters
        .wait_for("it reads", || (ledger(&rig.board, "/dma_read/bytes") > read_before + 6_000_000).then_some(()));
    rig.counters.tell(&format!("port {PORT} traffic rx {}", 100 << 20));
    let output = running.wait().unwrap();
    assert_eq!(output.status, 1, "{}\n{}", output.stdout, output.stderr);
    assert!(comparisons(&output)[0].error_percent().unwrap() > 1.0);
    disks_are_read_in_every_way(&rig);
    rig.counters.must("rmmod sis8300");
    rig.counters.finish(&["rasdes_pmu", "pciescope_lab"]);
}

fn ledger(board: &Served, path: &str) -> u64 {
    board.ask("ledger").unwrap().pointer(path).and_then(serde_json::Value::as_u64).unwrap()
}

/// A block device: by each access, what was compared is what the record has, and the disk moved it as often as it had to.
fn disks_are_read_in_every_way(rig: &Ports) {
    let vm = &rig.counters.vm;
    let disk = rig.counters.must("ls /dev/nvme?n1");
    let bytes = 4_000_000;
    for (access, options) in [("read", ""), ("direct", ""), ("io_uring", "--block 256k"), ("mmap", "--block 64k")] {
        rig.counters.must("echo 3 >/proc/sys/vm/drop_caches");
        let data = || rig.disk.ledger()["data_read_bytes"].as_u64().unwrap();
        let (before, at_port) = (data(), rig.received(DISK_PORT));
        let run = readout(vm, 0, &format!("{disk} -S 2000000 -N 3 -B {access} {options} --check same --check-all"));
        let (moved, came) = (data() - before, rig.received(DISK_PORT) - at_port);
        let row = run.row(&disk, "func_readout");
        let [size, verified, wrong] = ["size", "verified", "wrong"].map(|name| count(row, name));
        assert!(size >= bytes && size < bytes + 8192, "{size}");
        assert_eq!((verified, wrong), (3 * size, 0), "{access}");
        let stream = row.stream.as_ref().unwrap();
        assert_eq!((stream.kind.as_str(), stream.access.as_str()), ("block", access));
        assert!(came >= moved, "{came} bytes at the port, {moved} of them data");
        say!("{access}: {moved} bytes of data for 3 readings of {size}");
        if matches!(access, "direct" | "io_uring") {
            // Each reading comes from the disk, and those to compare with.
            assert!(moved >= 4 * size && moved <= 7 * size, "{access}: {moved} bytes for readings of {size}");
            assert!(number(row, "of_ceiling") < 100.0);
        } else {
            // The page cache has them after the first; the kernel reads ahead.
            assert!(moved >= size && moved < 2 * size, "{access}: {moved} bytes for readings of {size}");
            assert!(!row.metrics.contains_key("of_ceiling"), "a page cache has no link");
        }
        run.is_without("above-ceiling");
    }
    let refused = readout(vm, 2, &format!("{disk} -S 2000000 -A 100 --overwrite-memory"));
    assert!(refused.output.stderr.contains("digitizers only"), "{}", refused.output.stderr);
}
