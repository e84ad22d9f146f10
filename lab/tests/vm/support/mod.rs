//! What the suites on virtual hardware share: a guest with the latency endpoint, the program in it, and its records.
//!
//! A failure of the lab panics with "the lab failed"; what the program says is judged by the tests alone, against
//! the endpoint's ledger.

pub mod counters;
pub mod digitizers;
pub mod drive;
pub mod guest;
pub mod harness;
pub mod rasdes;
pub mod readout;
pub mod records;
pub mod sanitize;

use std::cell::RefCell;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use pciescope_core::{Histogram, Record};
use pciescope_lab::Served;
use pciescope_lab::device::{DeviceModel as Model, LatencyEndpoint};
use pciescope_lab::vm::{Arch, Attachment, Builder, Kernel, Output, Running, Vm};
use serde_json::Value;

use crate::say;
use guest::Guest;
use harness::quiet;

/// How long a test waits for what has to happen before it says that it does not. A host that is a guest itself may stand
/// still for many seconds; no test measures by this.
pub const PATIENCE: Duration = Duration::from_secs(150);

/// Where records of a run lie in the guest: on this side of the shared folder, so that reading them costs no command.
pub const RECORDS: &str = "/host/records.jsonl";

/// How much of a ledger a failing test shows, in characters.
const LEDGER_SHOWN: usize = 4000;

/// Ends a test because of the lab itself.
pub fn lab_failed(err: impl std::fmt::Display) -> ! {
    panic!("the lab failed: {err}")
}

/// Whether the guests are arm64's.
pub fn is_arm64() -> bool {
    Arch::chosen().is_ok_and(|arch| arch == Arch::Arm64)
}

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

/// A device that this process serves. A test that panics shows its ledger.
pub struct Endpoint {
    pub name: &'static str,
    pub served: Served,
    _folder: tempfile::TempDir,
}

impl Endpoint {
    /// Serves a model under a name; the guest that has it is to be dropped first.
    pub fn serve(model: impl Model + 'static, name: &'static str) -> Endpoint {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let served = Served::spawn(model, folder.path(), name).unwrap_or_else(|err| lab_failed(err));
        Endpoint { name, served, _folder: folder }
    }

    /// Tells the endpoint something over its control socket, as a person would with `pciescope lab ctl`.
    pub fn tell(&self, command: &str) -> Value {
        self.served.ask(command).unwrap_or_else(|err| panic!("the lab failed: {command}: {err}"))
    }

    /// What the endpoint saw: the truth.
    pub fn ledger(&self) -> Value {
        self.tell("ledger")
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let ledger = self.served.ask("ledger").map_or_else(|err| err.to_string(), |ledger| ledger.to_string());
            // The board's has hundreds of lines; its beginning is enough to see what it is about.
            let shown: String = ledger.chars().take(LEDGER_SHOWN).collect();
            say!("the ledger of {}: {shown}", self.name);
        }
    }
}

/// What the program last did. A test that panics shows it.
#[derive(Default)]
struct Last(RefCell<String>);

impl Drop for Last {
    fn drop(&mut self) {
        let text = self.0.take();
        if std::thread::panicking() && !text.is_empty() {
            say!("{text}");
        }
    }
}

/// A guest with one latency endpoint behind a root port, `pciescope` and the modules.
pub struct Rig {
    // Dropped in this order: the guest goes before its device.
    pub vm: Guest,
    pub endpoint: Endpoint,
    /// Address of the endpoint in the guest.
    pub bdf: String,
    last: Last,
}

/// What the program did.
pub struct Measured {
    pub output: Output,
    pub records: Vec<Record>,
}

impl Deref for Rig {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        &self.vm
    }
}

impl Rig {
    /// As [`Rig::boot_at`], with a model of one's own.
    pub fn boot_model(
        model: LatencyEndpoint,
        kernel: Kernel,
        place: Attachment,
        more: impl FnOnce(Builder) -> Builder,
    ) -> Rig {
        Rig::boot_endpoint(model, kernel, place, more)
    }

    /// Boots a machine of one's own around the endpoint.
    pub fn boot_with(kernel: Kernel, more: impl FnOnce(Builder) -> Builder) -> Rig {
        Rig::boot_at(kernel, Attachment::RootPort, more)
    }

    /// As [`Rig::boot_with`], with the endpoint's place.
    pub fn boot_at(kernel: Kernel, place: Attachment, more: impl FnOnce(Builder) -> Builder) -> Rig {
        Rig::boot_endpoint(LatencyEndpoint::default(), kernel, place, more)
    }

    /// With the module loaded, and an endpoint that has no MSI-X.
    pub fn boot_unpluggable(kernel: Kernel, more: impl FnOnce(Builder) -> Builder) -> Rig {
        let endpoint = LatencyEndpoint::without_msix(&Default::default());
        Rig::boot_endpoint(endpoint, kernel, Attachment::RootPort, |builder| more(builder.module("pcilat")))
    }

    fn boot_endpoint(
        endpoint: LatencyEndpoint,
        kernel: Kernel,
        place: Attachment,
        more: impl FnOnce(Builder) -> Builder,
    ) -> Rig {
        let endpoint = Endpoint::serve(endpoint, "lab0");
        let builder = Vm::builder().kernel(kernel).served("lab0", &endpoint.served, place).program(program());
        let vm = Guest::boot(more(builder));
        let bdf = vm.address("lab0");
        Rig { vm, endpoint, bdf, last: Last::default() }
    }

    /// [`Endpoint::tell`] of the endpoint that every rig has.
    pub fn tell(&self, command: &str) -> Value {
        self.endpoint.tell(command)
    }

    /// [`Endpoint::ledger`] of the endpoint that every rig has.
    pub fn ledger(&self) -> Value {
        self.endpoint.ledger()
    }

    /// Keeps what a command did for the case that the test panics.
    fn remember(&self, command: &str, output: &Output) {
        *self.last.0.borrow_mut() = format!(
            "the last command: {command}\nits exit status: {}\nits standard error:\n{}",
            output.status, output.stderr
        );
    }

    /// Runs `pciescope ARGS` in the guest and reads the records it wrote.
    pub fn pciescope(&self, args: &str) -> Measured {
        self.sh(&format!("pciescope {args} -o {RECORDS} --overwrite >/tmp/table.txt"))
    }

    /// Runs a script that leaves records in [`RECORDS`].
    pub fn sh(&self, script: &str) -> Measured {
        let output = self.run_within(&format!("rm -f {RECORDS}; {script}"), PATIENCE);
        self.remember(script, &output);
        Measured { records: self.records(RECORDS), output }
    }

    /// Starts `pciescope ARGS`, whose records go to `file`, and does not wait.
    pub fn start(&self, args: &str, file: &str) -> Running<'_> {
        // One command: a place that is timed may hold up the second of two.
        let script = format!("rm -f {file}; exec pciescope {args} -o {file} --overwrite >{file}.table");
        self.vm.start(&script)
    }

    /// Waits for the end of what [`Rig::start`] began.
    pub fn end(&self, running: &Running<'_>, file: &str, within: Duration) -> Measured {
        let output = running.wait_within(within).unwrap_or_else(|err| panic!("the run did not end: {err}"));
        self.remember(file, &output);
        Measured { records: self.records(file), output }
    }

    /// The records in a file of the guest; the last line of a killed run, which has no end, is left out.
    pub fn records(&self, file: &str) -> Vec<Record> {
        let text = self.vm.pull_file(file).unwrap_or_default();
        let text = String::from_utf8(text).expect("records are UTF-8");
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(records::of_line).collect()
    }

    /// The driver that holds the endpoint, `none` if none does.
    pub fn driver(&self) -> String {
        self.must(&format!(
            "d=/sys/bus/pci/devices/{}/driver; [ -e $d ] && basename $(readlink $d) || echo none",
            self.bdf
        ))
    }

    /// [`Guest::finish`], without the module.
    pub fn finish(self) {
        self.vm.finish(&["pcilat"]);
    }
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

/// The sum of a figure over the records. A figure that no record has is not 0.
pub fn total(records: &[&Record], metric: &str) -> u64 {
    let values: Vec<u64> =
        records.iter().filter_map(|record| record.metrics.get(metric)).map(|metric| metric.value as u64).collect();
    assert!(!values.is_empty(), "none of {} records has the figure {metric}", records.len());
    values.iter().sum()
}

/// Accesses to the register before the run, by which the program judges it: they stand in every record.
pub fn looks(records: &[&Record]) -> u64 {
    records[0].metrics.get("check_reads").expect("a record counts the looks at its register").value as u64
}

/// Tries a comparison of durations until it comes out: another program's burst on this machine may spoil one. From the second
/// attempt on, the other tests hold still meanwhile ([`quiet`]). Between two attempts the test waits, each time longer, so that
/// a burst of a minute passes; after the last one it fails. What a device counts, and what no burst can make shorter, is not
/// compared in here.
pub fn settle(what: &str, mut attempt: impl FnMut() -> Result<(), String>) {
    let mut last = attempt();
    for pause in [0, 1, 5, 15, 30, 60].map(Duration::from_secs) {
        let Err(why) = last else { return };
        say!("{what}: once more after {pause:?}: {why}");
        std::thread::sleep(pause);
        last = quiet(&mut attempt);
    }
    if let Err(why) = last {
        panic!("{what}: {why}");
    }
}

/// How far apart the figures of one run lie: from the 10th to the 90th percentile.
pub fn spread(histogram: &Histogram) -> f64 {
    let percentile = |percent| histogram.percentile_ns(percent).expect("a run has samples");
    percentile(90.0) - percentile(10.0)
}

/// Whether the median moved by what was injected: within 5 % of it, plus the spread of the run without.
pub fn moved(what: &str, from: &Histogram, to: &Histogram, by_ns: f64) -> Result<(), String> {
    let (before, after) = (from.median_ns().expect("samples"), to.median_ns().expect("samples"));
    let (got, allowed) = (after - before, by_ns * 0.05 + spread(from));
    if (got - by_ns).abs() <= allowed {
        return Ok(());
    }
    Err(format!(
        "{what} moved by {got:.0} ns from {before:.0} to {after:.0} ns; {by_ns:.0} ns were added, {allowed:.0} are allowed"
    ))
}

/// Whether the median stayed where it was while `not_ns` were injected elsewhere: within 5 % of that, plus the spread.
pub fn stayed(what: &str, from: &Histogram, to: &Histogram, not_ns: f64) -> Result<(), String> {
    let (before, after) = (from.median_ns().expect("samples"), to.median_ns().expect("samples"));
    let (got, allowed) = ((after - before).abs(), (not_ns * 0.05 + spread(from)).min(not_ns * 0.5));
    if got <= allowed {
        return Ok(());
    }
    Err(format!("{what} moved by {got:.0} ns from {before:.0} to {after:.0} ns; {allowed:.0} are allowed"))
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
