//! What the suites on virtual hardware share: a guest with the latency endpoint, the program in it, and its records.
//!
//! A failure of the lab panics with "the lab failed"; what the program says is judged by the tests alone, against
//! the endpoint's ledger.
#![allow(dead_code, reason = "each suite uses its own part")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pciescope_core::{Histogram, Record};
use pciescope_lab::Served;
use pciescope_lab::device::LatencyEndpoint;
use pciescope_lab::vm::{Builder, Device, Kernel, Output, Place, Vm};
use serde_json::Value;

/// The program that is measured with, built beside this test.
pub fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let program =
        test.parent().and_then(|deps| deps.parent()).expect("tests lie in target/PROFILE/deps").join("pciescope");
    assert!(
        program.exists(),
        "there is no {}: run `make vm-test`, or build the program in this profile",
        program.display()
    );
    program
}

/// A guest with one latency endpoint behind a root port, `pciescope` and the modules.
pub struct Rig {
    // Dropped in this order: the guest goes before its device.
    pub vm: Vm,
    pub endpoint: Served,
    /// Address of the endpoint in the guest.
    pub bdf: String,
    _folder: tempfile::TempDir,
}

/// What the program did.
pub struct Measured {
    pub output: Output,
    pub records: Vec<Record>,
}

impl Rig {
    /// Boots with the module loaded.
    pub fn boot(kernel: Kernel) -> Rig {
        Rig::boot_with(kernel, |builder| builder.module("pcilat"))
    }

    /// Boots a machine of one's own around the endpoint.
    pub fn boot_with(kernel: Kernel, more: impl FnOnce(Builder) -> Builder) -> Rig {
        Rig::boot_at(kernel, Place::RootPort, more)
    }

    /// As [`Rig::boot_with`], with the endpoint's place.
    pub fn boot_at(kernel: Kernel, place: Place, more: impl FnOnce(Builder) -> Builder) -> Rig {
        Rig::boot_endpoint(LatencyEndpoint::default(), kernel, place, more)
    }

    /// As [`Rig::boot`], with an endpoint that has no MSI-X.
    pub fn boot_unpluggable(kernel: Kernel) -> Rig {
        let endpoint = LatencyEndpoint::without_msix(&Default::default());
        Rig::boot_endpoint(endpoint, kernel, Place::RootPort, |builder| builder.module("pcilat"))
    }

    fn boot_endpoint(
        endpoint: LatencyEndpoint,
        kernel: Kernel,
        place: Place,
        more: impl FnOnce(Builder) -> Builder,
    ) -> Rig {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let endpoint =
            Served::spawn(endpoint, folder.path(), "lab0").unwrap_or_else(|err| panic!("the lab failed: {err}"));
        let builder = Vm::builder().kernel(kernel).served("lab0", &endpoint, place).program(program());
        let vm = more(builder).boot().unwrap_or_else(|err| {
            panic!("the lab failed: {err}\nhint: {}", err.hint().unwrap_or("see the serial log"))
        });
        eprintln!("{kernel} ({}) booted in {:.1} s", vm.release(), vm.boot_time().as_secs_f64());
        let bdf = address(&vm, "lab0");
        Rig { vm, endpoint, bdf, _folder: folder }
    }

    /// Tells the endpoint something over its control socket, as a person would with `pciescope lab ctl`.
    pub fn tell(&self, command: &str) -> Value {
        self.endpoint.ask(command).unwrap_or_else(|err| panic!("the lab failed: {command}: {err}"))
    }

    /// What the endpoint saw: the truth.
    pub fn ledger(&self) -> Value {
        self.tell("ledger")
    }

    /// Runs `pciescope ARGS` in the guest and reads the records it wrote.
    pub fn pciescope(&self, args: &str) -> Measured {
        self.sh(&format!("pciescope {args} -o /tmp/records.jsonl --overwrite >/tmp/table.txt"))
    }

    /// Runs a script that leaves records in /tmp/records.jsonl.
    pub fn sh(&self, script: &str) -> Measured {
        let output = self
            .vm
            .run_within(&format!("rm -f /tmp/records.jsonl; {script}"), Duration::from_secs(150))
            .unwrap_or_else(|err| panic!("the lab failed: {err}"));
        Measured { records: self.records(), output }
    }

    /// The records in /tmp/records.jsonl; a broken last line of a killed run is left out.
    pub fn records(&self) -> Vec<Record> {
        let text = self.vm.pull_file("/tmp/records.jsonl").unwrap_or_default();
        let text = String::from_utf8(text).expect("records are UTF-8");
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Runs a script in the guest that has to succeed, and gives its standard output.
    pub fn must(&self, script: &str) -> String {
        self.vm.must(script).unwrap_or_else(|err| panic!("the lab failed: {err}")).stdout
    }

    /// The driver that holds the endpoint, `none` if none does.
    pub fn driver(&self) -> String {
        self.must(&format!(
            "d=/sys/bus/pci/devices/{}/driver; [ -e $d ] && basename $(readlink $d) || echo none",
            self.bdf
        ))
        .trim()
        .to_owned()
    }

    /// Waits until something is true in the guest.
    pub fn wait_until(&self, what: &str, script: &str) {
        let end = Instant::now() + Duration::from_secs(30);
        while !self.vm.run(script).unwrap_or_else(|err| panic!("the lab failed: {err}")).is_success() {
            assert!(Instant::now() < end, "{what} did not happen within 30 s: {script}");
        }
    }

    /// Ends the test: the module can be unloaded, the kernel's log is clean, the guest switches off.
    pub fn finish(self) {
        self.must("if [ -d /sys/module/pcilat ]; then rmmod pcilat; fi");
        if let Err(faults) = self.vm.check_kernel_log() {
            panic!("{faults}");
        }
        self.vm.poweroff().unwrap_or_else(|err| panic!("the lab failed: {err}"));
    }
}

/// The address of a machine's device in the guest.
pub fn address(vm: &Vm, name: &str) -> String {
    vm.address_of(name).unwrap_or_else(|err| panic!("the lab failed: {err}"))
}

/// An endpoint's neighbour, such as `("edu0", Device::Edu)`, behind a root port of its own.
pub fn beside(builder: Builder, devices: &[(&str, Device)]) -> Builder {
    devices.iter().fold(builder, |builder, (name, device)| builder.device(*name, device.clone(), Place::RootPort))
}

impl Measured {
    /// Checks the exit status and gives the records of the test.
    pub fn expect(&self, status: i32, test: &str) -> Vec<&Record> {
        assert_eq!(self.output.status, status, "standard error: {}", self.output.stderr);
        let records = self.of(test);
        assert!(!records.is_empty(), "no record of {test}; standard error: {}", self.output.stderr);
        records
    }

    /// The records of a test.
    pub fn of(&self, test: &str) -> Vec<&Record> {
        self.records.iter().filter(|record| record.test == test).collect()
    }

    /// The code of the failure that the records carry.
    pub fn failure(&self) -> Option<&str> {
        self.records.iter().find_map(|record| record.error.as_ref()).map(|error| error.code.as_str())
    }
}

/// All samples of a histogram over the records.
pub fn merged(records: &[&Record], name: &str) -> Histogram {
    let mut all = Histogram::default();
    for record in records {
        if let Some(histogram) = record.histograms.get(name) {
            all.merge(histogram);
        }
    }
    all
}

/// The sum of a figure over the records.
pub fn total(records: &[&Record], metric: &str) -> u64 {
    records.iter().filter_map(|record| record.metrics.get(metric)).map(|metric| metric.value as u64).sum()
}

/// How often the ledger saw accesses of one kind (`reads` or `writes`) at a place; `width` 0 counts all widths.
pub fn seen(ledger: &Value, kind: &str, bar: u64, offset: u64, width: u64) -> u64 {
    let entries = ledger[kind].as_array().expect("the ledger lists accesses");
    entries
        .iter()
        .filter(|entry| entry["bar"] == bar && entry["offset"] == offset && (width == 0 || entry["width"] == width))
        .map(|entry| entry["count"].as_u64().unwrap_or(0))
        .sum()
}

/// A field of the ledger's line of a vector.
pub fn vector(ledger: &Value, number: u64, field: &str) -> u64 {
    let entries = ledger["irq"].as_array().expect("the ledger lists vectors");
    entries.iter().find(|entry| entry["vector"] == number).map_or(0, |entry| entry[field].as_u64().unwrap_or(0))
}
