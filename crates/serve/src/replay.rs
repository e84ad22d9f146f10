//! The records of a file as intervals, for demonstrations and tests.

use std::time::Duration;

use pciescope_core::Record;

/// Records that were completed at the same time.
#[derive(Debug, Clone)]
pub struct Step {
    /// How long the interval was that they are of; zero for the first record of a run.
    pub lasts: Duration,
    /// The records.
    pub records: Vec<Record>,
}

/// Groups records by run and interval, in their order. Records that count nothing are left out.
pub fn steps(records: impl IntoIterator<Item = Record>) -> Vec<Step> {
    let mut all: Vec<Step> = Vec::new();
    for record in records.into_iter().filter(|record| matches!(record.test.as_str(), "counters" | "environment")) {
        let is_same = |step: &Step| {
            let first = &step.records[0];
            first.run == record.run && first.test == record.test && first.interval == record.interval
        };
        match all.last_mut().filter(|step| is_same(step)) {
            Some(step) => step.records.push(record),
            None => {
                let ns = record.interval.map_or(0, |interval| interval.end_ns.saturating_sub(interval.start_ns));
                all.push(Step { lasts: Duration::from_nanos(ns), records: vec![record] });
            }
        }
    }
    all
}
