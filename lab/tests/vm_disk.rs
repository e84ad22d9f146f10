//! The virtual disk under Linux's own nvme driver and fio: the data is right, the rate is kept, the ledger has every
//! byte, and what goes wrong looks to the guest as with hardware.

#![allow(clippy::unwrap_used, reason = "a test may panic; its helpers are tests too")]

use std::time::{Duration, Instant};

use pciescope_core::Bdf;
use pciescope_lab::Served;
use pciescope_lab::device::nvme::{Fill, pattern};
use pciescope_lab::device::traffic::{PortTotals, Traffic};
use pciescope_lab::device::{NvmeDisk, config::Link};
use pciescope_lab::vm::{Builder, Kernel, Output, Place, Vm};
use serde_json::Value;

const SEED: u64 = 0x5eed;
const CAPACITY: u64 = 8 << 30;

/// A guest with one disk behind a root port.
struct Rig {
    // Dropped in this order: the guest goes before its device.
    vm: Vm,
    served: Served,
    traffic: Traffic,
    port: Bdf,
    _folder: tempfile::TempDir,
}

impl Rig {
    fn boot(kernel: Kernel, more: impl FnOnce(Builder) -> Builder) -> Rig {
        let (folder, traffic) = (tempfile::tempdir().unwrap(), Traffic::new());
        let port: Bdf = "0000:00:02.0".parse().unwrap();
        let disk = NvmeDisk::new(&Link::default(), traffic.port(port)).with_capacity(CAPACITY).with_fill(Fill::Pattern(SEED));
        let served = Served::spawn(disk, folder.path(), "disk0").unwrap();
        let builder = Vm::builder().kernel(kernel).served("disk0", &served, Place::RootPort).module("nvme");
        let vm = more(builder).boot().unwrap_or_else(|err| {
            panic!("the lab failed: {err}\nhint: {}", err.hint().unwrap_or("see the serial log"))
        });
        eprintln!("{kernel} ({}) booted in {:.1} s", vm.release(), vm.boot_time().as_secs_f64());
        let rig = Rig { vm, served, traffic, port, _folder: folder };
        rig.wait_for("the disk", "test -b /dev/nvme0n1");
        rig
    }

    fn tell(&self, command: &str) -> Value {
        self.served.ask(command).unwrap_or_else(|err| panic!("{command}: {err}"))
    }

    fn totals(&self) -> PortTotals {
        self.traffic.port(self.port).totals()
    }

    fn must(&self, script: &str) -> String {
        self.vm.must(script).unwrap_or_else(|err| panic!("the lab failed: {err}\n{}", self.tell("ledger"))).stdout
    }

    fn run(&self, script: &str) -> Output {
        self.vm.run_within(script, Duration::from_secs(60)).unwrap_or_else(|err| panic!("the lab failed: {err}"))
    }

    fn wait_for(&self, what: &str, script: &str) {
        let end = Instant::now() + Duration::from_secs(30);
        while !self.vm.run(script).unwrap().is_success() {
            assert!(Instant::now() < end, "{what} did not come within 30 s: {script}\n{}", self.tell("ledger"));
        }
    }
}

#[test]
fn probe() {
    for kernel in Kernel::ALL {
        let rig = Rig::boot(kernel, |builder| builder);
        println!("{}", rig.must("dmesg | grep -i nvme; cat /proc/interrupts | grep nvme; cat /sys/block/nvme0n1/queue/max_hw_sectors_kb /sys/block/nvme0n1/queue/max_sectors_kb"));
        let o = rig.run("time dd if=/dev/nvme0n1 of=/dev/null bs=1M count=2048 iflag=direct; fio --name=t --filename=/dev/nvme0n1 --rw=read --bs=1m --size=512m --iodepth=64 --ioengine=libaio --direct=1 --numjobs=4 --group_reporting");
        println!("{} {}", o.stdout, o.stderr);
        println!("{}", rig.tell("ledger"));
        println!("{:?} {}", rig.totals(), pattern(1,0));
        rig.vm.check_kernel_log().unwrap();
        rig.vm.poweroff().unwrap();
    }
}
