//! The register read log of pcilat: four whole numbers a line. The original does not document their order. We chose
//! this order; docs/record.md describes it, and our module prints it.

use std::collections::BTreeMap;

use pciescope_core::{Histogram, Record, Target, outcome};

use super::lines::LogLine;

/// A function has BARs 0 to 5.
const LAST_BAR: u32 = 5;

/// `timestamp_ns latency_ns cpu bar`.
pub fn meaning([at_ns, latency_ns, cpu, bar]: [u64; 4]) -> LogLine<1> {
    LogLine { at_ns, cpu, target: bar, last_target: LAST_BAR, values_ns: [latency_ns] }
}

/// The record of one CPU and BAR.
pub fn record(bar: u32, [latency]: [Histogram; 1]) -> Record {
    Record {
        test: "mmio-read".to_owned(),
        target: Some(Target { bar: u8::try_from(bar).ok(), ..Target::default() }),
        histograms: BTreeMap::from([(outcome::LATENCY.to_owned(), latency)]),
        ..Record::default()
    }
}
