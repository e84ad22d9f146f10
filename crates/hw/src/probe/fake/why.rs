//! What the CPUs of the synthetic machine did during its slow samples.

use std::collections::BTreeMap;
use std::sync::Arc;

use pciescope_core::outcome::{Sample, SampleKind};
use pciescope_core::why::Cause;

use super::mix;
use crate::why::{Mark, Nest, Seen};

/// Causes of slow samples; the last one leaves no trace on the CPU.
const CAUSES: [Option<(Nest, Cause, &str)>; 5] = [
    Some((Nest::Vector, Cause::Timer, "local_timer")),
    Some((Nest::Handler, Cause::Interrupt, "nvme1q3 (IRQ 77)")),
    Some((Nest::Softirq, Cause::Softirq, "RCU")),
    Some((Nest::Vector, Cause::Ipi, "call_function")),
    None,
];

/// The evidence of these samples. Those that took a twentieth more than a typical one have a cause each.
pub(super) fn seen(samples: &[Sample], hz: u64) -> Option<Arc<Seen>> {
    let mut values: BTreeMap<(u32, u16), Vec<u64>> = BTreeMap::new();
    let is_own = |kind| matches!(kind, SampleKind::Latency | SampleKind::TriggerToHandler);
    let own = || samples.iter().filter(|sample| is_own(sample.kind));
    for sample in own() {
        values.entry((sample.cpu, sample.index)).or_default().push(sample.value_ps);
    }
    for values in values.values_mut() {
        values.sort_unstable();
    }
    let mut marks: BTreeMap<u32, Vec<(u64, Mark)>> = BTreeMap::new();
    for sample in own() {
        let sorted = &values[&(sample.cpu, sample.index)];
        let typical = sorted[sorted.len() / 2];
        let marks = marks.entry(sample.cpu).or_default();
        let cause = CAUSES[(mix(sample.at_ns ^ u64::from(sample.cpu)) % CAUSES.len() as u64) as usize];
        if let (Some((nest, cause, name)), true) = (cause, sample.value_ps > typical / 20 * 21) {
            let end = sample.at_ns + sample.value_ps / 1000;
            marks.push((end - (sample.value_ps - typical) / 1000, Mark::Begin(nest, cause, name.to_owned())));
            marks.push((end, Mark::End(nest)));
        }
    }
    Some(Arc::new(Seen::made(marks, samples.last()?.at_ns + 1_000_000_000, hz)))
}
