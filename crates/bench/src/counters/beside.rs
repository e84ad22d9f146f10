//! What hardware and the kernel counted at the same ports in the same time, for `doctor`.

use std::collections::BTreeMap;

use pciescope_core::{Bdf, Record};
use pciescope_hw::doctor::Counted;

use super::run::TEST;

/// The ports that hardware counts, with what the kernel counted there, from the records of a run. Intervals are added up.
pub fn beside(records: &[Record]) -> Vec<Counted> {
    let mut ports: BTreeMap<Bdf, Counted> = BTreeMap::new();
    let counts = |record: &&Record| record.test == TEST && record.error.is_none();
    let is_port = |record: &&Record| record.instance.as_ref().is_some_and(|instance| instance.scope == "port");
    let all = || records.iter().filter(counts).filter(is_port);
    let bytes = |record: &Record| {
        ["rx_bytes", "tx_bytes"]
            .map(|name| record.metrics.get(name).map(|metric| metric.value).filter(|v| v.is_finite()))
    };
    let is_account = |record: &Record| record.instance.as_ref().is_some_and(|instance| instance.is_accounting());
    for record in all().filter(|record| !is_account(record)) {
        let (Some(bdf), [Some(rx), Some(tx)]) = (record.device.as_ref().and_then(|port| port.bdf), bytes(record))
        else {
            continue;
        };
        let seconds = record.interval.map_or(0.0, |interval| interval.seconds());
        let one = ports.entry(bdf).or_insert(Counted { bdf, seconds: 0.0, hardware: [0.0; 2], kernel: [0.0; 2] });
        one.seconds += seconds;
        one.hardware = [one.hardware[0] + rx, one.hardware[1] + tx];
    }
    for record in all().filter(|record| is_account(record)) {
        let bdf = record.device.as_ref().and_then(|port| port.bdf);
        let Some(one) = bdf.and_then(|bdf| ports.get_mut(&bdf)) else { continue };
        for (sum, bytes) in one.kernel.iter_mut().zip(bytes(record)) {
            *sum += bytes.unwrap_or(0.0);
        }
    }
    ports.into_values().collect()
}
