//! From counts to figures: quantities in their units, and what the catalogue works out from them.

use std::collections::BTreeMap;

use pciescope_catalogue::Input;
use pciescope_core::Metric;
use pciescope_hw::ceiling;

use super::choose::{Panel, Worked};
use super::session::Tally;

/// A quantity over an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// In the quantity's unit.
    pub value: f64,
    /// The time that it is of, in seconds.
    pub seconds: f64,
    /// The share of the time in which its counters ran, where it was not all.
    pub running: Option<f64>,
    /// Whether more may have happened.
    pub at_least: bool,
}

/// The smaller of two shares.
pub fn least(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// What the quantities of a panel came to, in the order of [`Panel::quantities`]; `None` where there is no figure.
pub fn quantities(panel: &Panel, tallies: &[Tally], into: &mut Vec<Option<Figure>>) {
    into.clear();
    for quantity in &panel.quantities {
        let mut sum: Option<Figure> = Some(Figure { value: 0.0, seconds: 0.0, running: None, at_least: false });
        for (place, one) in &quantity.parts {
            let tally = &tallies[*place];
            let count = if quantity.is_state { tally.count().map(|_| tally.last as f64) } else { tally.count() };
            sum = sum.zip(count).map(|(sum, count)| Figure {
                value: sum.value + count * one,
                seconds: sum.seconds.max(tally.seconds()),
                running: least(sum.running, tally.running()),
                at_least: sum.at_least || tally.at_least,
            });
        }
        into.push(sum);
    }
}

/// Puts quantities and metrics of a panel into a record's metrics. What has no figure is taken out.
pub fn put(panel: &Panel, figures: &[Option<Figure>], into: &mut BTreeMap<String, Metric>) {
    for (quantity, figure) in panel.quantities.iter().zip(figures) {
        let value = figure.map(|figure| (figure.value, figure.running, figure.at_least));
        set(into, &quantity.name, &quantity.unit, value);
    }
    let place = |name: &str| panel.quantities.iter().position(|quantity| quantity.name == name);
    let link = panel.function.as_ref().and_then(|port| port.link.as_ref());
    let ceiling = link.and_then(ceiling::payload_bytes_per_s);
    for Worked { metric, events, unit } in &panel.metrics {
        let mut about = Figure { value: 0.0, seconds: 0.0, running: None, at_least: false };
        for figure in events.iter().filter_map(|name| figures[place(name)?]) {
            about.running = least(about.running, figure.running);
            about.at_least |= figure.at_least;
            about.seconds = about.seconds.max(figure.seconds);
        }
        let value = |name: &str| match name {
            "seconds" => Input::Value(about.seconds),
            "link_bytes_per_s" => ceiling.into(),
            "link_lanes" => link.map(|link| f64::from(link.width)).into(),
            name => match place(name) {
                Some(place) => figures[place].map(|figure| figure.value).into(),
                None if panel.missing.iter().any(|(missing, _)| missing == name) => Input::Absent,
                None => panel.constants.get(name).copied().into(),
            },
        };
        let figure = metric.value(&value).map(|value| (value, about.running, about.at_least));
        set(into, &metric.name, unit, figure);
    }
    if panel.scope == "port" && panel.kind.is_some() {
        set(into, "link_bytes_per_s", "bytes/s", ceiling.map(|value| (value, None, false)));
    }
}

/// Sets or removes a metric; one that is there already is changed in place.
fn set(into: &mut BTreeMap<String, Metric>, name: &str, unit: &str, figure: Option<(f64, Option<f64>, bool)>) {
    let Some((value, running, at_least)) = figure else {
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
