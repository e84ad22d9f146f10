//! The interrupt log of the original pcilat driver, and of ours: five whole numbers a line.

use std::collections::BTreeMap;

use pciescope_core::{Histogram, Record, Target, outcome};

use super::lines::LogLine;

/// `handler_entry_ns trigger_to_handler_ns entry_to_ack_ns cpu irq`.
pub fn meaning([at_ns, trigger_to_handler_ns, entry_to_ack_ns, cpu, irq]: [u64; 5]) -> LogLine<2> {
    LogLine { at_ns, cpu, target: irq, last_target: u32::MAX, values_ns: [trigger_to_handler_ns, entry_to_ack_ns] }
}

/// The record of one CPU and interrupt. The log does not say what triggered, so neither does the test's name.
pub fn record(irq: u32, [trigger_to_handler, entry_to_ack]: [Histogram; 2]) -> Record {
    Record {
        test: "irq-import".to_owned(),
        target: Some(Target { irq: Some(irq), ..Target::default() }),
        histograms: BTreeMap::from([
            (outcome::TRIGGER_TO_HANDLER.to_owned(), trigger_to_handler),
            (outcome::ENTRY_TO_ACK.to_owned(), entry_to_ack),
        ]),
        ..Record::default()
    }
}
