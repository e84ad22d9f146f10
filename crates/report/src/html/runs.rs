//! Runs side by side: a row for each device, test and statistic, a column for each run.
//!
//! Figures are each run's own. Differences and verdicts are those of `compare`, over the CPUs that both runs have.

use pciescope_core::Record;
use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::Histogram;

use super::{charts, first, safe};
use crate::chart::{Chart, Curves};
use crate::compare::cells::{Side, SideCell};
use crate::compare::{self, Cell, CellKey, Shift, Verdict, medians};
use crate::model::{self, Host};
use crate::text::{clean, duration};

/// More columns than this no one compares by eye.
const MOST_COLUMNS: usize = 12;
/// More rows than this no one reads.
const MOST_ROWS: usize = 300;
/// Upper limit of the histograms that are drawn over each other, each with its tail.
const MOST_CHARTS: usize = 6;
/// The statistics of a histogram: name as `compare` has it, words, percentile.
const STATISTICS: [(&str, &str, Option<f64>); 4] = [
    ("p50", "median", Some(50.0)),
    ("p99", "p99", Some(99.0)),
    ("p99.9", "p99.9", Some(99.9)),
    ("max", "slowest", None),
];

/// Runs that stand in one column: those of one label, or a single one without.
struct RunColumn<'r> {
    title: String,
    host: String,
    records: Vec<&'r Record>,
    runs: BTreeSet<String>,
}

fn columns<'r>(records: &'r [Record], hosts: &[Host]) -> Vec<RunColumn<'r>> {
    let mut columns: Vec<RunColumn> = Vec::new();
    let mut places: BTreeMap<(Option<usize>, Option<&str>, &str), usize> = BTreeMap::new();
    // A run may have its label in some of its records only.
    let labels: BTreeMap<&str, &str> = records.iter().filter_map(|r| Some((&*r.run, r.label.as_deref()?))).collect();
    for record in records {
        let label = labels.get(&*record.run).copied();
        let host = model::host_of(hosts, &record.run);
        let run = if label.is_some() { "" } else { &*record.run };
        let place = *places.entry((host, label, run)).or_insert_with(|| {
            columns.push(RunColumn {
                title: label.map_or_else(|| record.time.clone(), str::to_owned),
                host: host.map_or_else(|| "machine not described".to_owned(), |host| hosts[host].name.clone()),
                records: Vec::new(),
                runs: BTreeSet::new(),
            });
            columns.len() - 1
        });
        columns[place].records.push(record);
        columns[place].runs.insert(record.run.to_string());
    }
    columns
}

/// The table, or nothing where no two runs measured the same.
pub fn write(records: &[Record], hosts: &[Host]) -> String {
    // Most files have one run.
    if records.windows(2).all(|pair| pair[0].run == pair[1].run) {
        return String::new();
    }
    let all = columns(records, hosts);
    let sides: Vec<BTreeMap<CellKey, Together>> =
        all.iter().map(|column| together(&Side::of(&column.records, false))).collect();
    let mut count: BTreeMap<&CellKey, usize> = BTreeMap::new();
    for key in sides.iter().flat_map(BTreeMap::keys) {
        *count.entry(key).or_default() += 1;
    }
    let common: Vec<&CellKey> = count.iter().filter(|(_, n)| **n > 1).map(|(key, _)| *key).collect();
    let shown: Vec<usize> =
        (0..all.len()).filter(|place| common.iter().any(|key| sides[*place].contains_key(*key))).collect();
    if common.is_empty() || shown.len() < 2 {
        return String::new();
    }
    // What the same runs have stands in one table: no row is full of gaps.
    let mut groups: Vec<(Vec<usize>, Vec<&CellKey>)> = Vec::new();
    for key in common {
        let own: Vec<usize> = shown.iter().copied().filter(|place| sides[*place].contains_key(key)).collect();
        match groups.iter_mut().find(|group| group.0 == own) {
            Some(group) => group.1.push(key),
            None => groups.push((own, vec![key])),
        }
    }
    let mut page = String::from("<section class=\"card\">\n<h2>Runs side by side</h2>\n");
    page += &format!(
        "<p class=\"line\">Differences are against the first column, over the CPUs that both have. Bold: beyond noise \
         (95 %, over {:.0} % of change), as <code>pciescope compare</code> judges it; plain: within noise, or too little data to tell.</p>\n",
        compare::Criteria::default().margin * 100.0
    );
    let mut judged: BTreeMap<(usize, usize), Vec<Cell>> = BTreeMap::new();
    let (mut rows, mut drawn) = (0, 0);
    for (own, keys) in &groups {
        let left_out = own.len().saturating_sub(MOST_COLUMNS);
        if left_out > 0 {
            page += &format!("<p class=\"line\">The first {MOST_COLUMNS} of {} runs.</p>\n", own.len());
        }
        let own = &own[..own.len() - left_out];
        for key in keys.iter().filter(|key| key.is_histogram) {
            if drawn < MOST_CHARTS && overlay(&mut page, key, own, &all, &sides) {
                drawn += 1;
            }
        }
        for place in &own[1..] {
            judged.entry((own[0], *place)).or_insert_with(|| {
                let sides = [own[0], *place].map(|place| &all[place].records[..]);
                let judgement = compare::judge(sides[0], sides[1], &compare::Criteria::default());
                // Of many CPUs and vectors the groups alone are shown.
                judgement.overall().cloned().collect()
            });
        }
        let judgements: Vec<_> = own.iter().map(|place| judged.get(&(own[0], *place))).collect();
        page.push_str("<div class=\"scroll\"><table class=\"runs\">\n<thead><tr><th scope=\"col\" class=\"left\">Device, test, target</th><th scope=\"col\" class=\"left\">Statistic</th>");
        for place in own {
            page += &head(&all[*place]);
        }
        page.push_str("</tr></thead>\n<tbody>\n");
        for key in keys {
            rows += write_key(&mut page, key, own, &sides, &judgements, MOST_ROWS.saturating_sub(rows));
        }
        page.push_str("</tbody></table></div>\n");
        if rows >= MOST_ROWS {
            page.push_str("<p class=\"line\">More rows are left out: <code>pciescope compare</code> has all.</p>\n");
            break;
        }
    }
    page.push_str("</section>\n");
    page
}

/// The histograms of the runs over each other, and their tails; returns whether there was anything to draw.
fn overlay(
    page: &mut String,
    key: &CellKey,
    own: &[usize],
    all: &[RunColumn],
    sides: &[BTreeMap<CellKey, Together>],
) -> bool {
    let named = own.iter().map(|place| {
        let histogram = sides[*place].get(key).map(|own| own.histogram.clone()).unwrap_or_default();
        (all[*place].title.clone(), histogram)
    });
    let lines = first::overlaid(named.filter(|(_, histogram)| !histogram.is_empty()).collect());
    if lines.len() < 2 {
        return false;
    }
    let title = key.with(&key.figure.replace('_', " "), true).title();
    page.push_str("<div class=\"pair\">\n");
    for is_tail in [false, true] {
        let curves = Curves { lines: lines.clone(), is_tail, is_cut: !is_tail, ..Curves::default() };
        let chart = Chart::Curves(curves);
        let what = if is_tail { "tail" } else { "histogram" };
        charts::write_half(page, &format!("{title}: {what}"), &chart);
    }
    page.push_str("</div>\n");
    true
}

fn head(column: &RunColumn) -> String {
    let mut times: Vec<&str> = column.records.iter().flat_map(|r| r.times()).filter(|time| !time.is_empty()).collect();
    times.sort_unstable();
    let runs = if column.runs.len() > 1 { format!("<br>{} runs", column.runs.len()) } else { String::new() };
    format!(
        "<th scope=\"col\">{}<br><span class=\"soft\">{}<br>{}{runs}</span></th>",
        safe(&column.title),
        safe(&column.host),
        safe(times.first().copied().unwrap_or("time not known"))
    )
}

/// A group of a side's cells as `compare` takes them together.
struct Together<'r> {
    cell: SideCell<'r>,
    /// The samples of all CPUs and vectors.
    histogram: Histogram,
    /// Of histograms, in nanoseconds.
    median: Option<f64>,
    cpus: BTreeSet<u32>,
}

/// What a side has, by the keys of groups.
fn together<'r>(side: &Side<'r>) -> BTreeMap<CellKey, Together<'r>> {
    let mut all = BTreeMap::new();
    for figure in &side.figures {
        let cells = side.cells(*figure);
        let mut groups: BTreeMap<CellKey, (Vec<&SideCell>, BTreeSet<u32>)> = BTreeMap::new();
        for (key, cell) in &cells {
            let (members, cpus) = groups.entry(key.merged()).or_default();
            members.push(cell);
            cpus.extend(key.cpu);
        }
        all.extend(groups.into_iter().map(|(key, (members, cpus))| {
            let cell = SideCell::together(members.iter().copied());
            let mut histogram = Histogram::default();
            cell.runs.iter().flat_map(|run| &run.samples).for_each(|samples| histogram.merge(samples.histogram));
            let median = medians::of_cells(&members).or_else(|| histogram.median_ns());
            (key, Together { cell, histogram, median, cpus })
        }));
    }
    all
}

/// The rows of one cell; returns how many.
fn write_key(
    page: &mut String,
    key: &CellKey,
    shown: &[usize],
    sides: &[BTreeMap<CellKey, Together>],
    judged: &[Option<&Vec<Cell>>],
    room: usize,
) -> usize {
    let owns: Vec<Option<&Together>> = shown.iter().map(|place| sides[*place].get(key)).collect();
    let statistics: Vec<(&str, &str, Option<f64>)> =
        if key.is_histogram { STATISTICS.to_vec() } else { vec![("value", "", None)] };
    let mut rows = 0;
    for (name, words, percentile) in statistics.into_iter().take(room) {
        let values: Vec<Option<f64>> = owns.iter().map(|own| value((*own)?, key, percentile)).collect();
        let is_quiet = key.is_loss() && values.iter().flatten().all(|value| *value == 0.0);
        if is_quiet || values.iter().flatten().count() < 2 {
            continue;
        }
        let title = if words.is_empty() {
            clean(&key.figure)
        } else {
            format!("{} {words}", clean(&key.figure).replace('_', " "))
        };
        let place = key.with("", false).title();
        *page += &format!("<tr><td class=\"left\">{}</td><td class=\"left\">{}</td>", safe(&place), safe(&title));
        for (column, value) in values.iter().enumerate() {
            let Some(value) = value else {
                page.push_str("<td>-</td>");
                continue;
            };
            let unit = owns[column].as_ref().map_or("", |own| own.cell.unit);
            let text = safe(&compare::value(if key.is_histogram { "ns" } else { unit }, *value));
            let has_same_cpus = owns[0].as_ref().map(|own| &own.cpus) == owns[column].as_ref().map(|own| &own.cpus);
            let difference = difference(key, name, judged[column], (values[0], *value), has_same_cpus);
            *page += &format!("<td>{text}{difference}</td>");
        }
        page.push_str("</tr>\n");
        rows += 1;
    }
    rows
}

fn value(own: &Together, key: &CellKey, percentile: Option<f64>) -> Option<f64> {
    let value = match (key.is_histogram, percentile) {
        (true, Some(50.0)) => own.median,
        (true, Some(percentile)) => own.histogram.percentile_ns(percentile),
        (true, None) => own.histogram.max_ns(),
        (false, _) if key.is_loss() => Some(own.cell.runs.iter().map(|run| run.values.sum).sum()),
        (false, _) => own.cell.mean(),
    };
    value.filter(|value| value.is_finite())
}

/// The difference against the first column: the one that was judged, over common CPUs, or the plain one.
fn difference(
    key: &CellKey,
    name: &str,
    groups: Option<&Vec<Cell>>,
    (first, value): (Option<f64>, f64),
    has_same_cpus: bool,
) -> String {
    let (Some(groups), Some(first)) = (groups, first) else { return String::new() };
    let cell = groups.iter().find(|cell| cell.key.merged() == *key);
    if cell.is_some_and(|cell| cell.verdict == Verdict::Incomparable) {
        return "<br><span class=\"soft\">not comparable</span>".to_owned();
    }
    let shift: Option<&Shift> = cell.and_then(|cell| cell.shifts.iter().find(|shift| shift.name == name));
    let change = match shift {
        Some(shift) => shift.change,
        None => (first != 0.0).then(|| value / first - 1.0),
    };
    let Some(change) = change.filter(|change| change.is_finite()) else { return String::new() };
    let percent = format!("{:+.1} %", change * 100.0);
    let mut note = String::new();
    // If the sides have different CPUs, or a CPU of one side has too few samples, the compared figures differ from those
    // in this table.
    let is_other = |a: f64, b: f64| (a - b).abs() > 0.005 * b.abs();
    if let Some(shift) =
        shift.filter(|shift| key.is_histogram && (is_other(shift.a, first) || is_other(shift.b, value)))
    {
        let what = if has_same_cpus { "all samples" } else { "common CPUs" };
        note = format!("<br><span class=\"soft\">{what}: {} to {}</span>", duration(shift.a), duration(shift.b));
    }
    match shift.map(|shift| shift.verdict) {
        Some(verdict) if verdict.is_alarm() => {
            let class = match verdict {
                Verdict::Slower => "worse",
                Verdict::Faster => "better",
                _ => "moved",
            };
            format!("{note}<br><strong class=\"{class}\">{percent} {}</strong>", verdict.word())
        }
        Some(verdict) => format!("{note}<br><span class=\"soft\">{percent} {}</span>", verdict.word()),
        None => format!("<br><span class=\"soft\">{percent}</span>"),
    }
}
