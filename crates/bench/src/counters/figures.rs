//! Turns counts into figures: quantities in their units, and the metrics that the catalogue computes from them.

use std::collections::BTreeMap;

use pciescope_catalogue::Input;
use pciescope_core::{Metric, joined};
use pciescope_hw::ceiling;

use super::panel::{Panel, ResolvedMetric};
use super::tally::Tally;

/// A quantity over an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity {
    /// In the quantity's unit.
    pub value: f64,
    /// The time that it is of, in seconds.
    pub seconds: f64,
    /// The share of the time in which its counters ran, where it was not all.
    pub running: Option<f64>,
    /// The largest error in either direction ([`Tally::bound`]), in the quantity's unit; `None` if it is not known.
    pub bound: Option<f64>,
    /// Whether more may have happened.
    pub at_least: bool,
}

impl Quantity {
    /// Nothing in no time: where a sum begins.
    pub const ZERO: Quantity = Quantity { value: 0.0, seconds: 0.0, running: None, bound: Some(0.0), at_least: false };

    /// The sum of two figures: as certain as the less certain of them, and bounds add up, as they may err the same way.
    pub fn plus(self, other: Quantity) -> Quantity {
        Quantity {
            value: self.value + other.value,
            seconds: self.seconds.max(other.seconds),
            running: joined(self.running, other.running, f64::min),
            bound: self.bound.zip(other.bound).map(|(one, other)| one + other),
            at_least: self.at_least || other.at_least,
        }
    }

    /// What a counter counted, each count worth `one`.
    fn of(tally: &Tally, one: f64, is_state: bool) -> Option<Quantity> {
        let count = tally.count()?;
        Some(Quantity {
            value: one * if is_state { tally.last as f64 } else { count },
            seconds: tally.seconds(),
            running: tally.running(),
            bound: tally.bound().map(|bound| bound * one),
            at_least: tally.at_least,
        })
    }
}

/// What the quantities of a panel came to, in the order of [`Panel::quantities`]; `None` where there is no figure.
pub fn quantities(panel: &Panel, tallies: &[Tally], into: &mut Vec<Option<Quantity>>) {
    into.clear();
    into.extend(panel.quantities.iter().map(|quantity| {
        let mut parts =
            quantity.parts.iter().map(|(place, one)| Quantity::of(&tallies[*place], *one, quantity.is_state));
        let sum = parts.try_fold(Quantity::ZERO, |sum, part| part.map(|part| sum.plus(part)))?;
        Some(Quantity { at_least: sum.at_least || quantity.is_least, ..sum })
    }));
}

/// Puts quantities and metrics of a panel into a record's metrics. What has no figure is taken out.
pub fn put(panel: &Panel, figures: &[Option<Quantity>], into: &mut BTreeMap<String, Metric>) {
    for (quantity, figure) in panel.quantities.iter().zip(figures) {
        set(into, &quantity.name, &quantity.unit, *figure);
    }
    for resolved in &panel.metrics {
        set(into, &resolved.metric.name, &resolved.unit, metric(panel, resolved, figures, None));
    }
    // A function of which the kernel counts nothing has no record, and needs no ceiling.
    let is_counted = panel.source.is_none() || figures.iter().any(Option::is_some);
    if matches!(panel.scope, "port" | "function") && panel.kind.is_some() && is_counted {
        let ceiling = ceiling(panel).map(|value| Quantity { value, ..Quantity::ZERO });
        set(into, "link_bytes_per_s", "bytes/s", ceiling);
    }
}

/// What a rate of a panel came to in all of the interval, such as the bytes of `rx_bytes_per_s`. `None` where there is no figure.
pub fn amount(panel: &Panel, name: &str, tallies: &[Tally]) -> Option<Quantity> {
    let mut figures = Vec::new();
    quantities(panel, tallies, &mut figures);
    let resolved = panel.metrics.iter().find(|resolved| resolved.metric.name == name)?;
    metric(panel, resolved, &figures, Some(1.0))
}

/// What a metric of a panel came to, from the figures of its quantities. A rate with `seconds` of 1 is the amount.
fn metric(
    panel: &Panel,
    resolved: &ResolvedMetric,
    figures: &[Option<Quantity>],
    seconds: Option<f64>,
) -> Option<Quantity> {
    let place = |name: &str| panel.quantities.iter().position(|quantity| quantity.name == name);
    let parts = resolved.events.iter().filter_map(|name| figures[place(name)?]);
    let about = parts.fold(Quantity::ZERO, Quantity::plus);
    let link = panel.function.as_ref().and_then(|port| port.link.as_ref());
    let value = resolved.metric.value(&|name| match name {
        "seconds" => Input::Value(seconds.unwrap_or(about.seconds)),
        "link_bytes_per_s" => ceiling(panel).into(),
        "link_lanes" => link.map(|link| f64::from(link.width)).into(),
        name => match place(name) {
            Some(place) => figures[place].map(|figure| figure.value).into(),
            None if panel.missing.iter().any(|(missing, _)| missing == name) => Input::Absent,
            None => panel.constants.get(name).copied().into(),
        },
    })?;
    Some(Quantity { value, ..about })
}

/// The payload that the port's link can carry one way, in bytes per second.
fn ceiling(panel: &Panel) -> Option<f64> {
    ceiling::payload_bytes_per_s(panel.function.as_ref()?.link.as_ref()?)
}

/// Sets or removes a metric; one that is there already is changed in place.
fn set(into: &mut BTreeMap<String, Metric>, name: &str, unit: &str, figure: Option<Quantity>) {
    let Some(Quantity { value, running, at_least, .. }) = figure else {
        into.remove(name);
        return;
    };
    match into.get_mut(name) {
        Some(metric) => (metric.value, metric.running, metric.at_least) = (value, running, at_least),
        None => {
            into.insert(name.to_owned(), Metric { value, unit: unit.to_owned(), running, at_least });
        }
    }
}
