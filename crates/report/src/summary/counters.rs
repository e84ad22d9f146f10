//! Conclusions from counters, alone and compared with known traffic.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pciescope_core::comparison::Comparison;
use pciescope_core::recording::Total;
use pciescope_core::{Bdf, Instance, Record, traffic};

use super::verdict::{Conclusions, Place, are, labelled, largest, name_of, quoted};
use crate::model::{self, Section};
use crate::text::{counted, figure};

/// Above which share of a ceiling, in percent, little is left.
const BUSY: f64 = 90.0;

pub(super) fn verify(out: &mut Conclusions, number: usize, section: &Section) {
    let place = Place::Section(number);
    let rows: Vec<Comparison> = section.records.iter().filter_map(|record| Comparison::from_record(record)).collect();
    let (mut right, mut open) = (Vec::new(), 0);
    for row in &rows {
        let error = row.error_percent();
        match (row.is_right(), error) {
            (Some(true), Some(error)) => right.push((error, row)),
            (Some(false), error) => {
                let off =
                    error.map_or("has no traffic to compare with".to_owned(), |error| format!("is {error:+.3} % off"));
                let allowed = row.allowed_percent().unwrap_or_default();
                let (workload, counter) = (quoted(&row.workload), quoted(&row.counter));
                out.doubt(2, place, format!("{workload}: {counter} {off}; {allowed:.3} % is allowed."));
                let text = if row.is_scaled() {
                    format!(
                        "Count {counter} with fewer events at once: it ran for {:.0} % of the time.",
                        row.running * 100.0
                    )
                } else {
                    format!("Do not rely on {counter} before `pciescope verify` agrees with it.")
                };
                out.advise(3, place, text);
            }
            _ => open += 1,
        }
    }
    if let Some((error, row)) = right.iter().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs())) {
        let what = format!("{}: {}", quoted(&row.workload), quoted(&row.counter));
        let of = if right.len() == rows.len() { String::new() } else { format!(" of {}", rows.len()) };
        out.good(
            number,
            format!(
                "{}{of} of a counter with known traffic within what is allowed; the largest error is {error:+.3} % ({what}; {:.3} % allowed).",
                counted(right.len(), "comparison"),
                row.allowed_percent().unwrap_or_default()
            ),
        );
    }
    if open > 0 {
        out.doubt(
            5,
            place,
            format!("{} of a counter with known traffic without a tolerance: no verdict.", counted(open, "comparison")),
        );
    }
}

pub(super) fn counters(out: &mut Conclusions, number: usize, section: &Section) {
    let place = Place::Section(number);
    let name = |record: &Record| {
        let device = record.device.as_ref().map(name_of);
        let instance = record.instance.as_ref();
        let name = device.or_else(|| instance?.pmu.as_deref().map(quoted)).or_else(|| Some(quoted(&instance?.scope)));
        labelled(&name.unwrap_or_else(|| "counter".to_owned()), record)
    };
    // All figures of each record together.
    let all = |record: &Record| {
        record.totals().fold(Total::default(), |mut all, (.., total)| {
            all.add(&total);
            all
        })
    };
    let totals: Vec<(Total, &Record)> = section.records.iter().map(|record| (all(record), *record)).collect();
    let shares = totals.iter().filter_map(|(total, record)| Some((total.least?, *record)));
    let total: usize = totals.iter().map(|one| one.0.count).sum();
    // Of equal ones the first in the file.
    match shares.min_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((least, record)) => {
            let scaled: usize = totals.iter().map(|one| one.0.scaled).sum();
            out.doubt(
                4,
                place,
                format!(
                    "{scaled} of {total} counted figures are scaled: the counters ran for a part of the time, {} for {:.1} %, the least.",
                    name(record),
                    least * 100.0
                ),
            );
            out.advise(
                5,
                place,
                "Count fewer events at once: what is scaled misses what happened while it did not run.".to_owned(),
            );
        }
        None if total > 0 => {
            out.good(number, format!("{} counted for the whole time, none is scaled.", are(total, "figure", "is")))
        }
        None => {}
    }
    let is_account = |record: &Record| record.instance.as_ref().is_some_and(Instance::is_accounting);
    let limits: usize = totals.iter().filter(|(_, record)| !is_account(record)).map(|one| one.0.bounds).sum();
    if limits > 0 {
        out.doubt(
            3,
            place,
            format!("{} only known from below: a counter reached its end.", are(limits, "counted figure", "is")),
        );
        out.advise(5, place, "Read counters more often (a shorter -I): some reached their end.".to_owned());
    }
    errors(out, number, section, &name);
    for (what, names) in
        [("link's ceiling", ["rx_link_share", "tx_link_share"]), ("DRAM peak", ["peak_share", "peak_share"])]
    {
        let busiest =
            names.iter().filter_map(|name| largest(&section.records, name)).max_by(|a, b| a.0.total_cmp(&b.0));
        let Some((share, record)) = busiest else { continue };
        let words = format!("{} uses {share:.1} % of its {what}, the most of all", name(record));
        if share > 100.0 {
            out.doubt(0, place, format!("{words}: more than it can carry, invalid."));
        } else if share > BUSY {
            out.doubt(5, place, format!("{words}: above {BUSY:.0} % little is left."));
        } else {
            out.good(number, format!("{words}; up to {BUSY:.0} % is good."));
        }
    }
}

/// The links of a section, each with its errors, where it counts any. What hardware and the kernel counted at one port are
/// not added: the kernel's account counts where hardware found nothing. An account of a port has what the functions below
/// it reported.
pub(crate) fn link_errors<'r>(section: &Section<'r>) -> Vec<(&'r Record, f64)> {
    let bdf = |record: &Record| record.device.as_ref().and_then(|device| device.bdf);
    let is_function = |record: &Record| record.instance.as_ref().is_some_and(|instance| instance.scope == "function");
    let hardware = model::hardware_ports(section.records.iter().copied());
    let ports: BTreeSet<Bdf> =
        section.records.iter().copied().filter(|record| !is_function(record)).filter_map(bdf).collect();
    let mut links: Vec<(&Record, [BTreeMap<&str, f64>; 2])> = Vec::new();
    let mut places = HashMap::new();
    for record in section.records.iter().copied() {
        let path = record.device.as_ref().map_or(&[][..], |device| &device.path);
        if is_function(record) && path.iter().any(|above| ports.contains(above)) {
            continue;
        }
        let finite = |name: &str| record.total(name).filter(|total| total.known() > 0).map(|total| total.finite);
        let pmu =
            record.instance.as_ref().map(|instance| (&instance.pmu, instance.node)).filter(|_| bdf(record).is_none());
        let place = *places.entry((bdf(record), pmu, record.label.as_deref())).or_insert_with(|| {
            links.push((record, Default::default()));
            links.len() - 1
        });
        let known = &mut links[place].1[usize::from(hardware.is_second(model::counted_by(record)))];
        for name in traffic::error_counters(None) {
            if let Some(count) = finite(name) {
                *known.entry(name).or_default() += count;
            }
        }
    }
    let count = |sums: [BTreeMap<&str, f64>; 2]| {
        let [first, second] = sums.map(|counts| traffic::errors(|name| counts.get(name).copied()));
        first.filter(|count| *count != 0.0).or(second).or(first)
    };
    links.into_iter().filter_map(|(record, sums)| Some((record, count(sums)?))).collect()
}

/// Errors of links.
fn errors(out: &mut Conclusions, number: usize, section: &Section, name: &dyn Fn(&Record) -> String) {
    let links = link_errors(section);
    let ports: BTreeMap<String, f64> = links.iter().fold(BTreeMap::new(), |mut ports, (record, count)| {
        *ports.entry(name(record)).or_default() += count;
        ports
    });
    for (port, count) in ports.iter().filter(|(_, count)| **count > 0.0) {
        out.doubt(3, Place::Section(number), format!("{port}: {} link errors were counted.", figure(*count)));
        out.advise(
            4,
            Place::Section(number),
            format!("{port}: look at the link below it, slot, riser and cable: it repeats or loses packets."),
        );
    }
    if !ports.is_empty() && ports.values().all(|count| *count == 0.0) {
        out.good(number, format!("No link error was counted at {}.", counted(ports.len(), "port")));
    }
}
