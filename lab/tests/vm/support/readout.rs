//! `pciescope readout` in a guest with digitizers: its rows as records and as a person sees them, and what the boards' ledgers
//! gained meanwhile.

use std::collections::BTreeMap;

use pciescope_core::Record;
use pciescope_core::readout::{SUMMARY, TEST};
use pciescope_lab::vm::{Output, Running};
use serde_json::Value;

use crate::support::PATIENCE;
use crate::support::digitizers::Digitizers;
use crate::support::guest::Guest;
use crate::support::harness::work;

/// Its records in the guest.
const RECORDS: &str = "/tmp/readout.jsonl";

/// What `pciescope readout` did.
pub struct Run {
    pub output: Output,
    pub records: Vec<Record>,
}

/// A row of the table: function, device, and size, start, end, duration and speed as printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Printed {
    pub function: String,
    pub device: String,
    pub figures: [f64; 5],
}

/// Runs `pciescope readout ARGS`, which has to end with this status.
pub fn readout(vm: &Guest, status: i32, args: &str) -> Run {
    let _work = work();
    start(vm, args).end(status)
}

/// A run that is under way.
pub struct Reading<'vm> {
    vm: &'vm Guest,
    running: Running<'vm>,
    args: String,
}

/// Starts `pciescope readout ARGS`.
pub fn start<'vm>(vm: &'vm Guest, args: &str) -> Reading<'vm> {
    let script = format!("rm -f {RECORDS}; exec pciescope readout {args} --output {RECORDS}");
    let running = vm.start(&script);
    Reading { vm, running, args: args.to_owned() }
}

impl Reading<'_> {
    /// Whether it has not ended.
    pub fn is_alive(&self) -> bool {
        self.running.status().is_none()
    }

    /// Ctrl-C.
    pub fn interrupt(&self) {
        self.running.signal("INT").unwrap_or_else(|err| panic!("the lab failed: {err}"));
    }

    /// Waits for its end, which has to be with this status.
    pub fn end(self, status: i32) -> Run {
        let output = self.running.wait_within(PATIENCE).unwrap_or_else(|err| panic!("{}: no end: {err}", self.args));
        assert_eq!(output.status, status, "readout {}\n{}\n{}", self.args, output.stdout, output.stderr);
        let text = String::from_utf8(self.vm.pull_file(RECORDS).unwrap_or_default()).expect("records are UTF-8");
        let records = crate::support::records::parse(&text);
        Run { output, records }
    }
}

impl Run {
    /// The rows.
    pub fn rows(&self) -> Vec<&Record> {
        self.records.iter().filter(|record| record.test == TEST).collect()
    }

    /// The only row of a device and a function.
    pub fn row(&self, path: &str, function: &str) -> &Record {
        let is_it = |record: &&&Record| {
            record.stream.as_ref().is_some_and(|stream| stream.path == path && stream.function == function)
        };
        let rows = self.rows();
        let found: Vec<_> = rows.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{path}, {function}: {} rows\n{}", found.len(), self.output.stdout);
        found[0]
    }

    /// The only group's record.
    pub fn summary(&self) -> &Record {
        let all: Vec<_> = self.records.iter().filter(|record| record.test == SUMMARY).collect();
        assert_eq!(all.len(), 1, "summaries");
        all[0]
    }

    /// The code of the error that a device's row carries.
    pub fn error(&self, path: &str) -> Option<&str> {
        let of_it = |record: &&&Record| record.stream.as_ref().is_some_and(|stream| stream.path == path);
        let rows = self.rows();
        rows.iter().filter(of_it).find_map(|record| record.error.as_ref()).map(|error| error.code.as_str())
    }

    /// No record has a warning with this code.
    pub fn is_without(&self, code: &str) {
        let warnings = self.records.iter().flat_map(|record| &record.warnings);
        let found: Vec<_> = warnings.filter(|warning| warning.code == code).collect();
        assert!(found.is_empty(), "{found:?}");
    }

    /// The table's rows of seven columns; rows without figures are left out.
    pub fn printed(&self) -> Vec<Printed> {
        let columns = |line: &str| -> Option<Printed> {
            let words: Vec<&str> = line.split(',').map(str::trim).collect();
            let [function, device, figures @ ..] = words.as_slice() else { return None };
            let figures: Vec<f64> = figures.iter().filter_map(|word| word.parse().ok()).collect();
            let figures = figures.try_into().ok()?;
            Some(Printed { function: (*function).to_owned(), device: (*device).to_owned(), figures })
        };
        self.output.stdout.lines().filter(|line| line.trim_start().starts_with("func_")).filter_map(columns).collect()
    }

    /// The arithmetic of the seed's tool, on the columns as printed, as far as one decimal goes, and on the records exactly. A
    /// device's rows follow each other. The columns are there with `--all`.
    pub fn adds_up(&self, repeats: f64) {
        let (printed, rows) = (self.printed(), self.rows());
        assert_eq!(printed.len(), rows.len(), "a row for each record:\n{}", self.output.stdout);
        let mut ends: BTreeMap<&str, f64> = BTreeMap::new();
        for (row, record) in printed.iter().zip(rows) {
            let [size, start, end, duration, speed] = row.figures;
            let bytes = number(record, "size");
            assert!((size - bytes / 1e6).abs() <= 0.051, "{row:?}");
            assert!((end - start - duration * repeats).abs() <= 0.051 * (repeats + 2.0), "{row:?}");
            let [low, high] = [duration - 0.051, duration + 0.051].map(|ms| bytes / 1000.0 / ms);
            // Of less than 0.1 ms the rounded duration tells nothing.
            assert!(duration < 0.1 || (speed - 0.051 <= low && speed + 0.051 >= high), "{row:?}: {low} to {high}");
            let [ns, rate] = ["duration", "speed"].map(|name| number(record, name));
            assert!((rate * ns / 1e9 - bytes).abs() < 1.0, "{rate} B/s for {ns} ns are not {bytes} bytes");
            assert!(
                (duration - ns / 1e6).abs() <= 0.051 && (speed - rate / 1e6).abs() <= 0.051,
                "{row:?}: {ns} {rate}"
            );
            let interval = record.interval.as_ref().expect("a row has begun and ended");
            let times = [interval.start_ns, interval.end_ns].map(|ns| ns as f64 / 1e6);
            assert!((start - times[0]).abs() <= 0.051 && (end - times[1]).abs() <= 0.051, "{row:?}: {times:?}");
            let stream = record.stream.as_ref().expect("a row has a stream");
            assert_eq!((&row.function, &row.device), (&stream.function_name(), &stream.path));
            let before = ends.insert(&stream.path, end).unwrap_or(0.0);
            assert!(start >= before - 0.051, "{row:?} begins before {before}");
        }
    }
}

/// A figure of a record.
pub fn number(record: &Record, name: &str) -> f64 {
    let metric = record.metrics.get(name);
    metric.unwrap_or_else(|| panic!("{:?} has no {name}: {:?}", record.stream, record.metrics.keys())).value
}

/// A count of a record.
pub fn count(record: &Record, name: &str) -> u64 {
    number(record, name) as u64
}

/// What the boards' ledgers say at one moment.
pub struct Books(BTreeMap<u16, Value>);

impl Books {
    /// Asks all boards.
    pub fn of(rig: &Digitizers) -> Books {
        Books(rig.boards.iter().map(|board| (board.slot, board.ledger())).collect())
    }

    /// What a number of a board, such as `/dma_read/bytes`, gained since then.
    pub fn gained(&self, before: &Books, slot: u16, path: &str) -> u64 {
        self.number(slot, path) - before.number(slot, path)
    }

    /// A number of a board.
    pub fn number(&self, slot: u16, path: &str) -> u64 {
        let found = self.0[&slot].pointer(path).and_then(Value::as_u64);
        found.unwrap_or_else(|| panic!("the ledger of {slot} has no number at {path}"))
    }

    /// The part of a board's ledger.
    pub fn at(&self, slot: u16, path: &str) -> &Value {
        self.0[&slot].pointer(path).unwrap_or_else(|| panic!("the ledger of {slot} has no {path}"))
    }
}

/// All nodes, in the order of the slots.
pub fn nodes(rig: &Digitizers) -> String {
    rig.boards.iter().map(|board| board.node()).collect::<Vec<_>>().join(" ")
}
