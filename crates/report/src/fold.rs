//! Folds the intervals of a recording while they are read, so that the memory of a long `stat -I` depends on the number of
//! its counters and not on its length. All other records are kept as they are.
//!
//! docs/record.md ("How long a file may be") states the bounds; crates/cli/tests/all/memory.rs tests them.

use std::collections::HashMap;

use pciescope_core::Record;

/// Takes records one by one.
#[derive(Debug, Default)]
pub struct Folder {
    records: Vec<Record>,
    /// Indices of the records that intervals may belong to, the newest last.
    known: HashMap<Counter, Vec<usize>>,
}

/// Run, PMU (or scope), node and CPU of a counting instance.
type Counter = (String, String, Option<u32>, Option<u32>);

/// The number of earlier records of its counter that an interval is compared with: more are there only if a device changed
/// more often.
const PREDECESSORS: usize = 8;

impl Folder {
    /// Takes the next record.
    pub fn add(&mut self, record: Record) {
        let Some(counter) = counter(&record) else { return self.records.push(record) };
        let known = self.known.entry(counter).or_default();
        match known.iter().rev().take(PREDECESSORS).find(|place| is_same(&self.records[**place], &record)) {
            Some(place) => self.records[*place].fold(record),
            None => {
                known.push(self.records.len());
                self.records.push(record);
            }
        }
    }

    /// All records, in the order of the first of each counter.
    pub fn finish(self) -> Vec<Record> {
        self.records
    }
}

/// The counter of an interval of which there is nothing else to say; `None` of any other record.
fn counter(record: &Record) -> Option<Counter> {
    let instance = record.instance.as_ref()?;
    let is_interval = record.test == "counters"
        && record.interval.is_some()
        && record.histograms.is_empty()
        && record.stream.is_none()
        && record.kernel.is_none()
        && record.environment.is_none()
        && record.plan.is_none()
        && record.warnings.is_empty()
        && record.error.is_none()
        && record.hot_spots.is_empty()
        && record.findings.is_empty()
        && record.checks.is_empty()
        && record.recording.is_none();
    let pmu = instance.pmu.as_ref().unwrap_or(&instance.scope);
    is_interval.then(|| (record.run.clone(), pmu.clone(), instance.node, record.cpu.as_ref().map(|cpu| cpu.cpu)))
}

/// Whether two intervals differ in their time and figures alone.
fn is_same(one: &Record, next: &Record) -> bool {
    one.run == next.run
        && one.verb == next.verb
        && one.test == next.test
        && one.schema == next.schema
        && one.label == next.label
        && one.instance == next.instance
        && one.device == next.device
        && one.method == next.method
        && one.cpu == next.cpu
        && one.target == next.target
}

#[cfg(test)]
mod tests {
    use super::*;
    use pciescope_core::{Instance, Interval, Warning};

    fn interval(pmu: &str, second: u64) -> Record {
        Record {
            test: "counters".to_owned(),
            instance: Some(Instance { pmu: Some(pmu.to_owned()), ..Instance::default() }),
            interval: Some(Interval { start_ns: second, end_ns: second + 1 }),
            ..Record::default()
        }
    }

    #[test]
    fn only_intervals_of_one_counter_are_folded() {
        let mut folder = Folder::default();
        let warning = Warning { code: "a".to_owned(), text: String::new(), hint: String::new() };
        let renamed = Record { label: Some("other".to_owned()), ..interval("a", 3) };
        let warned = Record { warnings: vec![warning], ..interval("a", 4) };
        let latency = || Record { test: "mmio-read".to_owned(), ..Record::default() };
        for record in [interval("a", 1), interval("b", 1), interval("a", 2), renamed, warned, latency(), latency()] {
            folder.add(record);
        }
        let counts: Vec<usize> = folder.finish().iter().map(Record::count).collect();
        assert_eq!(counts, [2, 1, 1, 1, 1, 1]);
    }
}
