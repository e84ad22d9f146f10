//! Counters by what counted: each with its intervals joined.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pciescope_catalogue::{is_mean, is_state};
use pciescope_core::recording::Total;
use pciescope_core::{Bdf, Instance, Metric, Record, traffic};

use crate::layout::{Columns, Left, Right, Rows};
use crate::text::{clean, figure, first_of, rate};

/// An instance over all its intervals.
pub(crate) struct Row<'r> {
    /// The first of its records.
    pub(crate) record: &'r Record,
    pub(crate) records: Vec<&'r Record>,
    pub(crate) instance: &'r Instance,
    pub(crate) metrics: BTreeMap<&'r str, Metric>,
    /// Each figure over all intervals, with its unit.
    totals: BTreeMap<&'r str, (&'r str, Total)>,
    pub(crate) seconds: f64,
    pub(crate) intervals: usize,
    /// Whether another row has the same PMU on another node: the name alone does not tell them apart.
    shows_node: bool,
}

/// What tells rows apart: all that a row is, in any run.
pub(crate) type Id = (String, Option<String>, Option<String>, Option<u32>, Option<u32>, Option<Bdf>, Option<u32>);

/// The instances of records, each with its intervals joined; ports by their addresses, others as they come.
pub(crate) fn rows<'r>(records: &[&'r Record]) -> Vec<Row<'r>> {
    let mut rows: Vec<Row> = Vec::new();
    // What lies below a port may change while it is counted, and does not make another one of it.
    let mut places = HashMap::new();
    for record in records {
        let Some(instance) = record.instance.as_ref() else { continue };
        let cpu = record.cpu.as_ref().map(|cpu| cpu.cpu);
        let bdf = record.device.as_ref().and_then(|device| device.bdf);
        let Instance { scope, source, pmu, node, parts, .. } = instance;
        let place = *places.entry((scope, source, pmu, *node, *parts, bdf, cpu)).or_insert_with(|| {
            rows.push(Row {
                record,
                records: Vec::new(),
                instance,
                metrics: BTreeMap::new(),
                totals: BTreeMap::new(),
                seconds: 0.0,
                intervals: 0,
                shows_node: false,
            });
            rows.len() - 1
        });
        let row = &mut rows[place];
        row.instance = instance;
        row.records.push(record);
        for (name, unit, total) in record.totals() {
            row.totals.entry(name).or_insert((unit, Total::default())).1.add(&total);
        }
        row.seconds += record.seconds();
        row.intervals += record.count();
    }
    for row in &mut rows {
        let metric =
            |(name, (unit, total)): (&&'r str, &(&str, Total))| (*name, total.metric(unit, is_amount(name, unit)));
        row.metrics = row.totals.iter().map(metric).collect();
    }
    rows.sort_by_key(|row| (row.bdf().is_none(), row.bdf()));
    let mut nodes: BTreeMap<(&str, &str), BTreeSet<Option<u32>>> = BTreeMap::new();
    let named = |row: &Row<'r>| Some((row.instance.scope.as_str(), row.instance.pmu.as_deref()?));
    for row in rows.iter().filter(|row| row.bdf().is_none()) {
        if let Some(name) = named(row) {
            nodes.entry(name).or_default().insert(row.instance.node);
        }
    }
    for row in &mut rows {
        row.shows_node = row.bdf().is_none() && named(row).is_some_and(|name| nodes[&name].len() > 1);
    }
    rows
}

/// Whether a figure is an amount, which is added up; anything else is the mean over time.
pub(crate) fn is_amount(name: &str, unit: &str) -> bool {
    !unit.contains('/') && unit != "%" && !is_mean(name)
}

impl Row<'_> {
    /// The function that it counts at; `None` for what is no port.
    pub(crate) fn bdf(&self) -> Option<Bdf> {
        self.record.device.as_ref()?.bdf
    }

    /// What tells it apart from others.
    pub(crate) fn id(&self) -> Id {
        let Instance { scope, source, pmu, node, parts, .. } = self.instance;
        let cpu = self.record.cpu.as_ref().map(|cpu| cpu.cpu);
        (scope.clone(), source.clone(), pmu.clone(), *node, *parts, self.bdf(), cpu)
    }

    /// A figure as a cell: `-` where there is none, `>=` before one that may be larger.
    pub(crate) fn cell(&self, name: &str, show: impl Fn(f64) -> String) -> String {
        match self.metrics.get(name) {
            Some(metric) if metric.at_least => format!(">={}", show(metric.value)),
            Some(metric) => show(metric.value),
            None => "-".to_owned(),
        }
    }

    pub(crate) fn mega(&self, name: &str) -> String {
        self.cell(name, |value| format!("{:.2}", value / 1e6))
    }

    pub(crate) fn percent(&self, name: &str) -> String {
        self.cell(name, |value| format!("{value:.1}"))
    }

    /// Errors of the link, each event once.
    pub(crate) fn errors(&self) -> String {
        let errors = traffic::errors(|name| self.metrics.get(name).map(|metric| metric.value));
        let mut known = traffic::error_counters(None).filter_map(|name| self.metrics.get(name));
        let at_least = if known.any(|metric| metric.at_least) { ">=" } else { "" };
        errors.map_or_else(|| "-".to_owned(), |errors| format!("{at_least}{}", figure(errors)))
    }

    /// The largest of those that are there, as a cell.
    pub(crate) fn most_of(&self, names: &[&str]) -> String {
        let known = names.iter().filter(|name| self.metrics.contains_key(**name));
        let most = known.max_by(|a, b| self.metrics[**a].value.total_cmp(&self.metrics[**b].value));
        most.map_or_else(|| "-".to_owned(), |name| self.cell(name, figure))
    }

    /// The smallest share of time in which the counters of these figures ran.
    pub(crate) fn running_cell<'n>(&self, names: impl Iterator<Item = &'n str>) -> String {
        let shares = names.filter_map(|name| self.metrics.get(name)?.running);
        shares.reduce(f64::min).map_or_else(|| "-".to_owned(), |share| format!("{:.1}", share * 100.0))
    }

    /// The mean of a rate over the time in which it is known.
    pub(crate) fn mean(&self, name: &str) -> Option<f64> {
        let (sum, time) = self.totals.get(name)?.1.weighted;
        (time > 0.0).then(|| sum / time)
    }

    /// The largest of an interval.
    pub(crate) fn most(&self, name: &str) -> Option<f64> {
        self.totals.get(name)?.1.most()
    }

    /// The sum over the intervals.
    pub(crate) fn sum(&self, name: &str) -> Option<f64> {
        let total = self.totals.get(name)?.1;
        (total.known() > 0).then_some(total.finite)
    }

    /// The least share of the time in which the counters of these figures ran; `None` where that was all of it.
    pub(crate) fn running(&self, names: &[&str]) -> Option<f64> {
        let shares = names.iter().filter_map(|name| self.totals.get(name)?.1.least);
        shares.filter(|share| *share < 1.0).reduce(f64::min)
    }

    pub(crate) fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.metrics.contains_key(*name))
    }

    /// The names of the function's devices, else its driver, else its own name.
    pub(crate) fn called(&self) -> String {
        let Some(device) = self.record.device.as_ref() else { return "-".to_owned() };
        let words = || clean(device.driver.as_deref().unwrap_or(&device.name));
        first_of(&device.devices).unwrap_or_else(words)
    }

    /// The function that it counts at, else its name.
    fn place(&self) -> String {
        self.bdf().map_or_else(|| self.name(), |bdf| bdf.to_string())
    }

    pub(crate) fn name(&self) -> String {
        let instance = self.instance;
        let node = instance.node.map_or_else(String::new, |node| format!(" {node}"));
        let on_node =
            instance.node.filter(|_| self.shows_node).map_or_else(String::new, |node| format!(" node {node}"));
        // Instances of one PMU that nothing else tells apart.
        let cpu = self.record.cpu.as_ref().map_or_else(String::new, |cpu| format!(" CPU {}", cpu.cpu));
        match (instance.scope.as_str(), &instance.pmu) {
            ("port" | "function", _) => match self.record.device.as_ref().and_then(|device| device.bdf) {
                Some(bdf) => bdf.to_string(),
                None => clean(instance.pmu.as_deref().unwrap_or("?")),
            },
            (scope, None) => format!("{}{node}", clean(scope)),
            (_, Some(pmu)) => clean(pmu) + &on_node + &cpu,
        }
    }
}

pub(crate) const PORT: [&str; 4] = ["rx_bytes_per_s", "tx_bytes_per_s", "rx_link_share", "tx_link_share"];
pub(crate) const ERRORS: [&str; 4] = ["layer1_errors", "layer2_errors", "layer3_errors", "aer_errors"];
/// What [`ERRORS`] of the kernel's account are made of.
const REPORTS: [&str; 3] = ["correctable_errors", "nonfatal_errors", "fatal_errors"];
pub(crate) const INTERRUPTS: [&str; 2] = ["interrupts", "interrupts_per_s"];
pub(crate) const RETRIES: [&str; 2] = ["naks", "retries"];
pub(crate) const CHANNEL: [&str; 5] =
    ["read_bytes_per_s", "write_bytes_per_s", "total_bytes_per_s", "peak_share", "cycles_per_s"];
/// What the tables' figures are made of.
const PARTS: [&str; 7] =
    ["rx_bytes", "tx_bytes", "read_bytes", "write_bytes", "cycles", "link_bytes_per_s", "peak_bytes_per_s"];

/// The shares of time that links were in each state; `None` where nobody counted them.
pub(crate) fn states(rows: &[Row]) -> Option<Columns> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.record.device.is_some()).collect();
    let mut names: Vec<&str> =
        rows.iter().flat_map(|row| row.metrics.keys().copied()).filter(|name| is_state(name)).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return None;
    }
    let titles: Vec<String> = names.iter().map(|name| name.trim_end_matches("_share").to_owned()).collect();
    let mut heads = vec![("Port", 12, Left)];
    heads.extend(titles.iter().map(|title| (title.as_str(), 6, Right)));
    heads.push(("Run(%)", 6, Right));
    let mut columns = Columns::new(&heads);
    for row in rows.iter().filter(|row| row.has_any(&names)) {
        let mut cells = vec![row.name()];
        cells.extend(names.iter().map(|name| row.cell(name, |value| format!("{value:.2}"))));
        cells.push(row.running_cell(names.iter().copied()));
        columns.row(cells);
    }
    columns.drop_empty();
    Some(columns)
}

/// What no other table shows, by name; `None` where there is nothing.
pub(crate) fn others(rows: &[Row]) -> Option<Columns> {
    let shown: [&[&str]; 7] = [&PORT, &ERRORS, &RETRIES, &REPORTS, &INTERRUPTS, &CHANNEL, &PARTS];
    let is_shown = |name: &str| name == "recoveries" || shown.iter().any(|names| names.contains(&name));
    let is_other = |row: &Row, name: &str, metric: &Metric| {
        // Errors by kind are many and mostly 0; those that happened are named.
        let has_errors = row.has_any(&ERRORS);
        let has_states = row.metrics.keys().any(|name| is_state(name));
        let is_quiet =
            (has_errors && metric.unit == "1" && metric.value == 0.0) || (has_states && metric.unit == "cycles");
        // The table of states has those of links only.
        let is_link = row.record.device.is_some();
        let is_shown = is_shown(name) || (is_link && is_state(name));
        (row.instance.scope == "pmu" || !is_shown) && !is_quiet
    };
    let figures = rows.iter().flat_map(|row| row.metrics.iter().map(move |(name, metric)| (row, *name, metric)));
    let columns = Rows::of(figures.filter(|(row, name, metric)| is_other(row, name, metric))).columns(&[
        ("Value", 16, Right, &|(row, name, _)| row.cell(name, figure)),
        ("Unit", 7, Left, &|(.., metric)| clean(&metric.unit)),
        ("Per s", 14, Right, &|(row, name, metric)| {
            let per_s = is_amount(name, &metric.unit) && row.seconds > 0.0;
            match metric.unit.as_str() {
                _ if !per_s => "-".to_owned(),
                "bytes" => rate(metric.value / row.seconds),
                _ => format!("{:.1}", metric.value / row.seconds),
            }
        }),
        ("Run(%)", 6, Right, &|(row, name, _)| row.running_cell(std::iter::once(*name))),
        ("What", 4, Left, &|(row, name, _)| format!("{} {}", row.place(), clean(name))),
    ]);
    (!columns.rows().is_empty()).then(|| columns.without_empty())
}
