//! Which counters see a workload's traffic, by the catalogue.

use pciescope_bench::verify::{Counter, PerfCounter, Side};
use pciescope_catalogue::{Catalogue, Input, Kind, Metric, SysfsUnit};
use pciescope_core::Bdf;
use pciescope_hw::Root;
use pciescope_hw::perf::{self, Event, Pmu};

/// Bytes that a PMU can count, one way: the events to be added up, and the bytes of a count.
pub struct ByteEvents {
    /// All with one factor.
    pub events: Vec<Event>,
    /// Bytes per count.
    pub bytes_per_count: f64,
}

/// The kind of a PMU.
pub fn kind_of(pmu: &Pmu) -> Option<&'static Kind> {
    let events: Vec<&String> = pmu.events.keys().collect();
    Catalogue::builtin().find(&pmu.name, pmu.identifier.as_deref(), &events)
}

/// The root port that a PMU counts for.
pub fn port_of(pmu: &Pmu) -> Option<Bdf> {
    pmu.bdf.or_else(|| kind_of(pmu)?.bdf(&pmu.name))
}

/// The events behind a rate in bytes per second, such as `rx_bytes_per_s`; `None` where the PMU does not have them, or where the rate is
/// more than their sum over the time.
pub fn bytes_of(pmu: &Pmu, metric: &str) -> Option<ByteEvents> {
    let kind = kind_of(pmu)?;
    let metric = kind.metric(metric).filter(|metric| is_sum(metric))?;
    let (names, formats): (Vec<&String>, Vec<&String>) = (pmu.events.keys().collect(), pmu.formats.keys().collect());
    let mut all = ByteEvents { events: Vec::new(), bytes_per_count: 0.0 };
    for name in metric.events() {
        let known = kind.events.get(&name)?;
        // What stands side by side is added up: reads of both sub-channels, for example.
        for terms in known.terms(&names, &formats)? {
            let event = pmu.event(&terms).ok()?;
            let said = event.scale.map(|scale| SysfsUnit { scale, unit: event.unit.as_deref() });
            let bytes = known.value(1.0, said)? * known.unit.factor;
            if !all.events.is_empty() && bytes != all.bytes_per_count {
                return None;
            }
            all.bytes_per_count = bytes;
            all.events.push(event);
        }
    }
    (!all.events.is_empty()).then_some(all)
}

/// Whether a rate is the sum of its events over the seconds.
fn is_sum(metric: &Metric) -> bool {
    let events = metric.events();
    let value = metric.value(&|name| match name {
        "seconds" => Input::Value(2.0),
        name if events.contains(name) => Input::Value(8.0),
        _ => Input::Unknown,
    });
    value == Some(events.len() as f64 * 4.0)
}

/// Opens what one or more PMUs count one way as one counter.
///
/// # Errors
/// As the kernel refuses.
pub fn open(
    root: &Root,
    name: String,
    side: Side,
    parts: &[(&Pmu, ByteEvents)],
) -> Result<Box<dyn Counter>, perf::Error> {
    let events: Vec<(&Pmu, Event)> =
        parts.iter().flat_map(|(pmu, bytes)| bytes.events.iter().map(move |event| (*pmu, event.clone()))).collect();
    let bytes_per_count = parts.first().map_or(1.0, |part| part.1.bytes_per_count);
    Ok(Box::new(PerfCounter::open(root, name, side, bytes_per_count, &events)?))
}
