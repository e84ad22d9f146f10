//! The experiments of the seeds, in the lab: fio on a virtual disk behind a root port, and bw_mem beside synthetic DRAM
//! traffic, with `perf`, `pciescope import` and `pciescope verify`. The truth is the ledger of the bytes that the devices moved.

use crate::say;
use crate::support;
use crate::support::counters::Counters;
use crate::support::{Endpoint, PATIENCE, program, settle};
use pciescope_core::{Bdf, Comparison, Record};
use pciescope_lab::device::NvmeDisk;
use pciescope_lab::device::config::Link;
use pciescope_lab::device::traffic::Traffic;
use pciescope_lab::vm::{Attachment, Kernel, Output};

/// The seed's port: `pcie_bdf_200`.
const PORT: &str = "0000:00:02.0";
const MIB: u64 = 1 << 20;

/// The seed's machine with a disk behind its port.
struct Rig {
    // Dropped in this order: the guest goes before its devices.
    counters: Counters,
    disk: Endpoint,
    /// The disk in the guest.
    node: String,
}

impl Rig {
    fn boot(kernel: Kernel, module: &str) -> Rig {
        let (traffic, port) = (Traffic::new(), PORT.parse::<Bdf>().unwrap());
        let disk = Endpoint::serve(NvmeDisk::new(&Link::default(), traffic.port(port)), "disk");
        let counters = Counters::boot_on(traffic, kernel, module, |builder| {
            builder.served("disk", &disk.served, Attachment::Port(port)).module("nvme").program(program())
        });
        counters.wait_for("the disk is there", || counters.run("ls /dev/nvme?n1").is_success().then_some(()));
        let node = counters.must("ls /dev/nvme?n1");
        Rig { counters, disk, node }
    }

    /// Lets a report run for so long before perf gives the port's engine to the next. An access to configuration space goes through
    /// QEMU to the board and back, up to a thousand times slower than on hardware, and perf counts switching over as run.
    fn take_turns_of(&self, pmu: &str, ms: u32) {
        self.counters.must(&format!("echo {ms} >/sys/bus/event_source/devices/{pmu}/perf_event_mux_interval_ms"));
    }

    /// Payload of the port so far: received and sent, in bytes.
    fn payload(&self) -> [u64; 2] {
        let truth = self.counters.truth();
        ["rx_payload", "tx_payload"].map(|way| truth.0["ports"][PORT][way].as_u64().unwrap())
    }

    /// fio's arguments as the seed has them, with less to do.
    fn fio(&self, more: &str) -> String {
        format!(
            "fio --filename={} -iodepth=64 -ioengine=libaio --direct=1 --bs=1m --numjobs=4 --group_reporting --name=test {more}",
            self.node
        )
    }

    /// Runs perf with a command and `pciescope import` on what both printed; gives the comparisons, and what the port moved meanwhile.
    fn transcribe(&self, events: &str, command: &str) -> (Vec<Comparison>, [u64; 2]) {
        let before = self.payload();
        self.counters.must(&format!("perf stat -a {events} -o /tmp/perf.txt -- {command} >/tmp/load.txt 2>&1"));
        let after = self.payload();
        self.counters.must("cat /tmp/load.txt /tmp/perf.txt >/tmp/both.txt");
        let records = self.records(&self.counters.run("pciescope import /tmp/both.txt --json"), 0);
        let rows: Vec<Comparison> = records.iter().filter_map(Comparison::from_record).collect();
        assert!(!rows.is_empty(), "{}", self.counters.read("/tmp/both.txt"));
        (rows, [after[0] - before[0], after[1] - before[1]])
    }

    fn records(&self, output: &Output, status: i32) -> Vec<Record> {
        assert_eq!(output.status, status, "{}\n{}", output.stdout, output.stderr);
        support::records::parse(&output.stdout)
    }

    fn finish(self, modules: &[&str]) {
        self.counters.finish(modules);
        drop(self.disk);
    }
}

/// Counts of 16 bytes against the ledger: a measurement begins between two counts, so one may be missing.
fn equal(what: &str, count: f64, bytes: u64) {
    let units = bytes / 16;
    assert!(
        count as u64 <= units && count as u64 + 1 >= units,
        "{what}: {count} counts of 16 bytes, the port moved {bytes} bytes"
    );
}

/// What both seeds did, in one guest.
pub fn the_seeds_experiments_with_ports_and_dram() {
    let mut rig = Rig::boot(Kernel::V6_12, "rasdes_pmu naming=seed");
    the_five_experiments_with_a_port(&rig);
    say!("the five experiments with a port");
    rig.counters.load("drw_pmu");
    verify_dram_compares_rates(&rig);
    rig.finish(&["drw_pmu", "pciescope_lab"]);
}

/// Sections 4.1 to 4.4 of the seed, under its own names, from perf's text to the table.
fn the_five_experiments_with_a_port(rig: &Rig) {
    let (rx, tx) = ("-e pcie_bdf_200/Rx_PCIe_TLP_Data_Payload/", "-e pcie_bdf_200/Tx_PCIe_TLP_Data_Payload/");

    let (rows, moved) = rig.transcribe(rx, &rig.fio("--rw=read --size=64m"));
    assert_eq!((rows.len(), rows[0].bytes_per_count, rows[0].running), (1, 16.0, 1.0));
    assert_eq!(rows[0].workload_bytes, (4 * 64 * MIB) as f64, "by the requests that fio issued");
    equal("read", rows[0].count, moved[0]);
    let error = rows[0].error_percent().unwrap();
    assert!((0.0..0.01).contains(&error), "only completion entries come on top: {error} %");

    past_32_bits(rig, rx);

    let (rows, moved) = rig.transcribe(rx, &rig.fio("--rw=read --time_based=1 --runtime=3"));
    equal("timed read", rows[0].count, moved[0]);
    let (rows, moved) = rig.transcribe(tx, &rig.fio("--rw=write --time_based=1 --runtime=3"));
    assert_eq!(rows[0].workload, "fio write");
    equal("timed write", rows[0].count, moved[1]);

    // Requests of 64 KiB take 0.3 ms each at this rate: the load is steady beside perf's turns.
    rig.disk.tell("rate 200MB");
    rig.take_turns_of("pcie_bdf_200", 200);
    settle("read and write by turns", || {
        let (rows, moved) =
            rig.transcribe(&format!("{rx} {tx}"), &rig.fio("--rw=readwrite --time_based=1 --runtime=6 --bs=64k"));
        assert_eq!(rows.len(), 2);
        for (row, bytes) in rows.iter().zip(moved) {
            if !(0.3..0.7).contains(&row.running) {
                return Err(format!("{}: {} of its time", row.counter, row.running));
            }
            // perf's own scaling, by one factor over the whole run: how good it is depends on how evenly this machine
            // lets the guest run.
            let off = (row.count * 16.0 / bytes as f64 - 1.0) * 100.0;
            say!("{}: running {:.1} %, {off:+.2} % off the ledger", row.counter, row.running * 100.0);
            if off.abs() > 10.0 {
                return Err(format!("{}: {off:.2} % off the ledger's {bytes} bytes", row.counter));
            }
        }
        Ok(())
    });
}

/// The counter is brought near 2^32 by synthetic payload, and fio carries it across.
fn past_32_bits(rig: &Rig, event: &str) {
    let before = rig.payload();
    let (hold, fio) = (rig.counters.hold(), rig.fio("--rw=read --size=64m"));
    let perf = rig.counters.perf_start("edge", &format!("{event} -- sh -c \"{hold}; exec {fio} >/dev/null\""));
    rig.counters.wait_for("perf counts", || rig.counters.has_begun().then_some(()));
    let short = (1u64 << 32) - 1_000_000;
    rig.counters.tell(&format!("port {PORT} traffic rx {}", short * 16));
    rig.counters.let_go();
    let read = perf.wait();
    let bytes = rig.payload()[0] - before[0];
    assert!(read[0].counted() > 1 << 32, "{read:?}");
    equal("read past 2^32", read[0].counted() as f64, bytes);
}

/// `verify pcie` as a user has it: exit code, table, and errors that are what the ledger says they are.
pub fn verify_pcie_agrees_with_the_ledger_on_the_newest_kernel() {
    let rig = Rig::boot(Kernel::Newest, "rasdes_pmu");
    rig.disk.tell("rate 200MB");
    rig.take_turns_of("dwc_rootport_10", 200);
    let command = format!("pciescope verify pcie {} --write --destroy-data --duration 6s --json -- --bs=64k", rig.node);
    settle("verify pcie", || {
        let before = rig.payload();
        let output = rig.counters.vm.run_within(&command, PATIENCE);
        let after = rig.payload();
        if output.status == 1 {
            return Err(format!("an error exceeds its limit: {}", output.stdout));
        }
        let records = rig.records(&output, 0);
        assert!(records.iter().all(|record| record.verb == "verify pcie" && record.method.as_ref().unwrap().emulated));
        assert_eq!(records[0].device.as_ref().unwrap().bdf, PORT.parse().ok());
        let rows: Vec<Comparison> = records.iter().filter_map(Comparison::from_record).collect();
        let names: Vec<&str> = rows.iter().map(|row| row.workload.as_str()).collect();
        assert_eq!(names, ["fio read", "fio write", "fio read", "fio write"]);
        for row in &rows[..2] {
            // Alone, a counter is exact: what comes on top of fio's data are the queues' entries and lists of pages.
            assert_eq!((row.running, row.bytes_per_count), (1.0, 1.0), "{row:?}");
            let error = row.error_percent().unwrap();
            say!("{}: error {error:+.3} %", row.workload);
            assert!((0.0..0.5).contains(&error), "{row:?}");
        }
        for row in &rows[2..] {
            let (error, bound) = (row.error_percent().unwrap(), row.bound_percent.unwrap());
            say!("{}: running {:.1} %, error {error:+.3} %, bound {bound:.3} %", row.workload, row.running * 100.0);
            // What fio does not know of is no error of the counter: 0.3 % at requests of 64 KiB.
            if row.running > 0.9 || error.abs() > bound + 0.35 {
                return Err(format!("by turns: {error:.3} %, bound {bound:.3} %: {row:?}"));
            }
            // On a machine that runs evenly, 1 %; the bound tells whether this is one.
            if error.abs() > 1.0 && bound < 1.0 {
                return Err(format!("by turns: {error:.3} %, bound {bound:.3} %: {row:?}"));
            }
        }
        // All rows together are no more than the port moved, and little less: the idle times, and what was not fio's.
        let moved: u64 = after.iter().zip(before).map(|(after, before)| after - before).sum();
        let counted: f64 = rows.iter().map(Comparison::counter_bytes).sum();
        // While fio reads, Tx carries its commands, which nobody counts then.
        assert!(counted <= moved as f64 * 1.01 && counted >= moved as f64 * 0.9, "{counted} of {moved}");
        Ok(())
    });

    // What holds something is not written to: fio's blocks here, with no partition and nothing mounted.
    let before = rig.payload();
    let refused = rig.counters.run(&format!("pciescope verify pcie {} --write", rig.node));
    assert_eq!(refused.status, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("not blank") && refused.stderr.contains("--destroy-data"), "{}", refused.stderr);
    assert!(rig.payload()[1] - before[1] < MIB, "it still wrote to the disk");
    // A wrong counter is found: bytes that fio does not know of.
    let before = rig.payload();
    let running = rig.counters.vm.start(&format!("exec pciescope verify pcie {} --duration 3s --json", rig.node));
    rig.counters.wait_for("fio reads", || (rig.payload()[0] > before[0] + 32 * MIB).then_some(()));
    rig.counters.tell(&format!("port {PORT} traffic rx {}", 100 * MIB));
    let output = running.wait().unwrap();
    let records = rig.records(&output, 1);
    let row = Comparison::from_record(&records[0]).unwrap();
    assert!(row.error_percent().unwrap() > 1.0, "{row:?}");
    rig.finish(&["rasdes_pmu", "pciescope_lab"]);
}

/// The seed's method for DRAM: a bw_mem that runs on around a window in which the counters are read.
fn verify_dram_compares_rates(rig: &Rig) {
    let subs = ["21000", "21080", "23000", "23080", "25000", "25080", "27000", "27080"];
    let rate = |event: &str, rate: u64| {
        subs.iter().for_each(|sub| drop(rig.counters.tell(&format!("dram {sub} rate {event} {rate}"))));
    };
    // A stand-in for lmbench's program, with the seed's figures.
    let bw_mem = |test: &str, figure: &str| {
        format!(
            "printf '#!/bin/sh\\nsleep 4\\necho 40960.00 {figure}\\n' >/tmp/bw_mem; chmod +x /tmp/bw_mem; \
                 pciescope verify dram --node 0 --duration 2s --json --with '/tmp/bw_mem 40960M {test}'"
        )
    };
    rate("hif_rd", 40_159_522);
    settle("bw_mem rd", || {
        let output = rig.counters.run(&bw_mem("rd", "20507.82"));
        if output.status == 1 {
            return Err(output.stdout);
        }
        let row = Comparison::from_record(&rig.records(&output, 0)[0]).unwrap();
        assert_eq!((row.workload.as_str(), row.bytes_per_count), ("bw_mem rd", 64.0));
        // 8 * 64 * 40159522 per second against 20507.82 MB/s: 0.26 % more; the two clocks add their noise.
        let error = row.error_percent().unwrap();
        if (error - 0.2626).abs() > 0.5 { Err(format!("{error} %")) } else { Ok(()) }
    });
    let wrong = rig.counters.run(&bw_mem("rd", "10253.91"));
    let row = Comparison::from_record(&rig.records(&wrong, 1)[0]).unwrap();
    assert!((90.0..110.0).contains(&row.error_percent().unwrap()), "{row:?}");
    rate("hif_rd", 0);
    rate("hif_wr", 42_908_156);
    rate("hif_rmw", 489);
    settle("bw_mem fwr", || {
        let output = rig.counters.run(&bw_mem("fwr", "21936.50"));
        if output.status == 1 {
            return Err(output.stdout);
        }
        let error = Comparison::from_record(&rig.records(&output, 0)[0]).unwrap().error_percent().unwrap();
        if (error - 0.1492).abs() > 0.5 { Err(format!("{error} %")) } else { Ok(()) }
    });
    rate("hif_wr", 0);
    rate("hif_rmw", 0);
    // Our own generators, whose traffic the lab cannot see: the counters miss all of it, and that is found.
    let unseen =
        rig.counters.run("pciescope verify dram --node 0 --threads 1 --size 16 --duration 1s --patterns rd,cp --json");
    let rows: Vec<Comparison> = rig.records(&unseen, 1).iter().filter_map(Comparison::from_record).collect();
    assert_eq!(rows.len(), 3, "one way of rd, both of cp");
    assert!(rows.iter().all(|row| row.workload_bytes > 0.0 && row.error_percent().unwrap() < -90.0), "{rows:?}");
}
