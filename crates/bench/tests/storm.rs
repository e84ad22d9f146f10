//! A thousand changes a second for ten minutes, in a process of its own: what the recorder holds in memory, and that each change
//! is counted.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use pciescope_bench::counters::Host;
use pciescope_bench::watch::{WatchTask, run};
use pciescope_core::change::Subject;
use pciescope_core::{Bdf, Function, Record, Sink, WatchPlan};
use pciescope_hw::wait::Woken;
use pciescope_hw::watch::{End, Fixed, Links, Moment, Sample};

const PORTS: u8 = 40;
const STEP_NS: u64 = 40_000_000;
const STEPS: u64 = 10 * 60 * 25;

/// Forty links whose speed changes in each sample, 25 times a second.
struct Storm(BTreeMap<Bdf, End>);

impl Links for Storm {
    fn sample(&mut self, planned_ns: u64) -> Sample {
        let at = Moment { monotonic_ns: planned_ns + 1, boot_ns: planned_ns + 1 };
        let code = 3 + (planned_ns / STEP_NS % 2) as u32;
        self.0.values_mut().for_each(|end| end.link = Some((4 << 4 | code) << 16));
        Sample { at, functions: self.0.clone(), held: Some(Vec::new()), ..Sample::default() }
    }
    fn real_ns(&self, _ns: u64) -> u64 {
        0
    }
}

struct Fast;
impl Host for Fast {
    fn until(&mut self, _deadline_ns: Option<u64>) -> io::Result<Woken> {
        Ok(Woken::Time)
    }
}

/// Counts records of links and the changes that they stand for, as they would stand in a file.
#[derive(Default)]
struct Counted {
    records: u64,
    bytes: usize,
    changes: u64,
    totals: f64,
}

impl Sink for Counted {
    fn put(&mut self, record: &Record) -> io::Result<()> {
        self.bytes += serde_json::to_string(record)?.len() + 1;
        let change = record.change.as_ref().filter(|change| !change.is_start() && change.of == Subject::Link);
        self.records += u64::from(change.is_some());
        self.changes += change.map_or(0, |change| change.times);
        self.totals += record.metrics.get("changes").map_or(0.0, |metric| metric.value);
        Ok(())
    }
}

#[test]
fn a_thousand_changes_a_second_are_folded_with_counts_and_take_little_memory() {
    let port = |bus| {
        let bdf = Bdf { domain: 0, bus, device: 0, function: 0 };
        let function = Function { bdf: Some(bdf), class: 0x06_04_00, ..Function::default() };
        let fixed = Fixed { inode: u64::from(bus) + 1, function, leads_down: true, has_link: true, ..Fixed::default() };
        (bdf, End { fixed: Arc::new(fixed), ..End::default() })
    };
    let plan = WatchPlan { interval_ns: STEP_NS, duration_ns: Some(STEPS * STEP_NS), ..WatchPlan::default() };
    let task = WatchTask { plan, backend: "fake", ..WatchTask::default() };
    let mut sink = Counted::default();
    run(&mut Storm((0..PORTS).map(port).collect()), task, &mut Fast, &mut sink).unwrap();
    let planted = STEPS * u64::from(PORTS);
    assert_eq!((sink.changes, sink.totals), (planted, planted as f64), "nothing is lost silently");
    // The first 2,000 as they come, and 20 a second.
    assert!((10_000..15_000).contains(&sink.records), "{} records", sink.records);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    println!("{planted} changes: {} records, {} bytes, at most {kib} KiB", sink.records, sink.bytes);
    assert!(kib < 64 << 10, "{kib} KiB");
}
