//! Readouts: the parameter block and the seven columns of the tool that the seed used, then what that tool does not show.

use pciescope_core::{HotSpot, Record, once};

use super::{Block, Page, header, summary};
use crate::figures;
use crate::layout::{Align, Columns, Left, Right, Rows, ends, wrap};
use crate::model::{EMULATED_READOUT, Section};
use crate::readout::{Functions, Group, MOST_SPOTS, Row, STAGES, cell, groups, megabytes, millions, parameters};
use crate::text::{clean, device_name, thousands};

/// What was read, by whom and where it is plugged in.
pub(super) fn heading(out: &mut Page, section: &Section) {
    header::title(out, section, EMULATED_READOUT);
    for (number, line) in devices(section).iter().enumerate() {
        out.line(&format!("{} {line}", if number == 0 { "Device:" } else { "       " }));
    }
    let notes = section.records.iter().filter_map(|record| record.method.as_ref()).flat_map(|method| &method.notes);
    for (number, note) in once(notes).into_iter().enumerate() {
        let label = if number == 0 { "Method: " } else { "        " };
        wrap(&clean(note), 80, label, "        ").iter().for_each(|line| out.line(line));
    }
}

/// The devices, each once: path, model, how it was read, and its place on the bus.
fn devices(section: &Section) -> Vec<String> {
    let mut lines: Vec<(String, String)> = Vec::new();
    for row in section.records.iter().map(|record| Row::new(record)).filter(|row| !row.stream.path.is_empty()) {
        if lines.iter().any(|line| line.0 == row.device()) {
            continue;
        }
        let mut parts: Vec<String> = Vec::new();
        parts.extend(row.stream.model.as_deref().or(Some(&row.stream.kind)).filter(|text| !text.is_empty()).map(clean));
        if let Some(function) = &row.record.device {
            parts.push(device_name(row.record));
            parts.extend(function.link_words());
        }
        if !row.stream.access.is_empty() {
            parts.push(format!("by {}", clean(&row.stream.access)));
        }
        lines.push((row.device(), parts.join(", ")));
    }
    let widest = lines.iter().map(|line| line.0.chars().count()).max().unwrap_or(0);
    lines.into_iter().map(|(path, words)| format!("{path:<widest$}  {words}").trim_end().to_owned()).collect()
}

pub(super) fn write(out: &mut Page, section: &Section) {
    let groups = groups(section);
    let functions = Functions::of(&groups);
    // The measurements of a sweep one after the other; what was no sweep, group by group.
    let mut rest = groups.as_slice();
    while let Some(first) = rest.first() {
        let alike = |group: &Group| first.sweep().is_some() && group.sweep() == first.sweep();
        let count = rest.iter().take_while(|group| alike(group)).count().max(1);
        let (part, after) = rest.split_at(count);
        match first.sweep() {
            Some(sweep) => out.heading(&sweep_title(sweep)),
            None => out.line(""),
        }
        for line in parameters(part, section.plan) {
            out.blocks.push(Block::Fixed(line));
        }
        for group in part {
            one_group(out, &functions, group);
        }
        rest = after;
    }
    for figure in figures::of(section).into_iter().filter(|figure| figure.is_digest) {
        out.heading(&figure.heading);
        out.table(figure.table);
    }
    let rows: Vec<(&Group, Row)> = groups.iter().flat_map(|g| g.rows.iter().map(move |row| (g, *row))).collect();
    spread(out, &functions, &rows);
    stages(out, &functions, &rows);
    cost(out, &functions, &rows);
    losses(out, &rows, section);
}

/// The groups as the tool of the seed prints each of its runs.
pub(super) fn as_the_tool(out: &mut Page, section: &Section) {
    for group in &groups(section) {
        for line in parameters(std::slice::from_ref(group), section.plan) {
            out.fixed(&line);
        }
        out.line("");
        out.table(rows(&group.rows));
        let has_cycles = group.rows.iter().any(|row| row.stream.cycle.is_some());
        if let Some(cpu) = group.metric("cpu").filter(|_| has_cycles) {
            out.line(&format!("CPU utilization was : {:.3}", cpu / 100.0));
        }
    }
}

fn sweep_title(sweep: &str) -> String {
    match sweep {
        "boards" => "PCIe transfer speed against boards".to_owned(),
        "size" => "PCIe transfer time against data size".to_owned(),
        "function" => "Data conversion".to_owned(),
        "cpu" => "CPU utilization".to_owned(),
        other => clean(other),
    }
}

/// The rows as the tool prints them, and what belongs to all of them.
fn one_group(out: &mut Page, functions: &Functions, group: &Group) {
    if group.sweep().is_some() {
        let wait = group.stream().wait.as_deref().map(|wait| format!(", {}", clean(wait))).unwrap_or_default();
        let (set, size, work) = (group.set(), megabytes(group.size()), group.work(functions));
        out.heading(&format!("{set}, {work}, {size}{wait}"));
    } else if !group.rows.is_empty() {
        out.line("");
    }
    if !group.rows.is_empty() {
        out.table(rows(&group.rows));
    }
    together(out, group);
}

/// The seven columns. Where names are no longer than the tool's columns, a line is the tool's to the byte.
pub(crate) fn rows(rows: &[Row]) -> Columns {
    let start = |row: &Row| row.interval().map(|interval| interval.start_ns as f64);
    let end = |row: &Row| row.interval().map(|interval| interval.end_ns as f64);
    let columns = Rows::of(rows).columns(&[
        ("func", 15, Right, &|row| row.function()),
        ("dev", 15, Right, &|row| row.device()),
        ("size [MB]", 15, Right, &|row| millions(row.size(), 1)),
        ("start [ms]", 15, Right, &|row| millions(start(row), 1)),
        ("end [ms]", 15, Right, &|row| millions(end(row), 1)),
        ("dur [ms]", 15, Right, &|row| millions(row.metric("duration"), 1)),
        ("speed [MB/s]", 15, Right, &|row| millions(row.metric("speed"), 1)),
    ]);
    columns.with_between(", ")
}

/// What a group's devices did together: their rates added up, CPU time, and where it went.
fn together(out: &mut Page, group: &Group) {
    let devices = group.rates().len();
    let mut lines = Vec::new();
    if let Some(sum) = group.sum().filter(|_| devices > 1) {
        let active = group.metric("active_speed").map(|active| {
            let time = group.metric("active").map(|ns| format!(" for {:.1} ms", ns / 1e6)).unwrap_or_default();
            format!("; {:.1} MB/s while all were reading{time}", active / 1e6)
        });
        lines.push(format!("Sum of {devices} devices: {:.1} MB/s{}", sum / 1e6, active.unwrap_or_default()));
    }
    let top = group.metric("cpu_top").map(|top| format!("{top:.1} % of one CPU by the process"));
    match (group.metric("cpu"), top) {
        (Some(cpu), top) => {
            let top = top.map(|top| format!(" ({top})")).unwrap_or_default();
            lines.push(format!("CPU utilization was : {:.3}{top}", cpu / 100.0));
        }
        (None, Some(top)) => lines.push(format!("CPU time: {top}")),
        (None, None) => {}
    }
    if !lines.is_empty() {
        out.line("");
    }
    for line in lines {
        out.line(&line);
    }
    let profiled = group.summary.iter().chain(&group.rows).find(|row| !row.record.hot_spots.is_empty());
    if let Some(row) = profiled {
        let samples = row.metric("hot_spot_samples").map(|n| format!(", of {} samples", thousands(n as u64)));
        out.line("");
        out.line(&format!("Most of the time went into{}:", samples.unwrap_or_default()));
        hot_spots(out, row.record);
    }
}

/// The lines of a profile, the largest parts first.
fn hot_spots(out: &mut Page, record: &Record) {
    let most = if out.options.all { usize::MAX } else { MOST_SPOTS };
    let spots: Vec<&HotSpot> = record.hot_spots.iter().take(most).collect();
    let object = |spot: &HotSpot| clean(&spot.object);
    let widest = spots.iter().map(|spot| object(spot).chars().count()).max().unwrap_or(0);
    for spot in spots {
        let kind = if spot.is_kernel { 'k' } else { '.' };
        out.blocks.push(Block::Fixed(format!(
            "{:>7.2}%  {:<widest$}  [{kind}] {}",
            spot.percent,
            object(spot),
            clean(&spot.symbol)
        )));
    }
}

/// What tells a row of the tables below from others.
fn names(functions: &Functions, group: &Group, row: &Row) -> Vec<String> {
    vec![
        row.device(),
        functions.name(row),
        group.devices().to_string(),
        millions(row.size(), 1),
        row.stream.wait.as_deref().map_or("-".to_owned(), clean),
        row.stream.cycle.map_or("-".to_owned(), |cycle| cycle.to_string()),
    ]
}

const NAMES: [(&str, usize, Align); 6] = [
    ("Device", 14, Left),
    ("Function", 15, Left),
    ("Devs", 4, Right),
    ("MB", 4, Right),
    ("Wait", 4, Left),
    ("Cycle", 5, Right),
];

/// A table with the names of the rows and more columns; not written where none of those has a figure.
fn detail(
    out: &mut Page,
    functions: &Functions,
    title: &str,
    rows: &[(&Group, Row)],
    heads: &[(&str, usize)],
    cells: impl Fn(&Row) -> Vec<String>,
) {
    let known: Vec<(&Group, Row)> =
        rows.iter().copied().filter(|(_, row)| cells(row).iter().any(|cell| cell != "-")).collect();
    if known.is_empty() {
        return;
    }
    let heads: Vec<(&str, usize, Align)> =
        NAMES.into_iter().chain(heads.iter().map(|(head, width)| (*head, *width, Right))).collect();
    let mut columns = Columns::new(&heads);
    let all: Vec<Vec<String>> = known.iter().map(|(group, row)| names(functions, group, row)).collect();
    // Device and function stand always; what else all have in common is left out.
    let is_shown: Vec<bool> = (0..NAMES.len()).map(|n| n < 2 || all.iter().any(|one| one[n] != all[0][n])).collect();
    let shown = ends(&known, out.most(), |(_, row)| row.metric("duration").unwrap_or(f64::INFINITY));
    for &place in &shown {
        let own = all[place].iter().zip(&is_shown);
        let mut line: Vec<String> =
            own.map(|(name, shown)| if *shown { name.clone() } else { "-".to_owned() }).collect();
        line.extend(cells(&known[place].1));
        columns.row(line);
    }
    columns.drop_empty();
    out.heading(title);
    out.table(columns);
    summary::left_out(out, known.len(), shown.len());
}

fn spread(out: &mut Page, functions: &Functions, rows: &[(&Group, Row)]) {
    let heads = [("Repeats", 7), ("Median", 8), ("P99", 8), ("Max", 8), ("CV(%)", 6)];
    detail(out, functions, "Spread of the repeats, in ms", rows, &heads, |row| {
        let h = row.record.histograms.get("duration");
        vec![
            cell(row.metric("repeats"), 0),
            millions(h.and_then(|h| h.median_ns()), 3),
            millions(h.and_then(|h| h.percentile_ns(99.0)), 3),
            millions(h.and_then(|h| h.max_ns()), 3),
            cell(row.metric("cv"), 2),
        ]
    });
}

fn stages(out: &mut Page, functions: &Functions, rows: &[(&Group, Row)]) {
    let heads = [("Setup", 5), ("DMA", 6), ("Wakeup", 6), ("Copy", 5), ("Convert", 7), ("Acquire", 7)];
    detail(out, functions, "Stages of a repeat, in ms; acquisition per cycle", rows, &heads, |row| {
        STAGES.iter().map(|stage| stage.0).chain(["acquire"]).map(|name| millions(row.metric(name), 3)).collect()
    });
}

fn cost(out: &mut Page, functions: &Functions, rows: &[(&Group, Row)]) {
    let heads = [("User", 6), ("Sys", 6), ("s/GB", 5), ("Verified", 8), ("Wrong", 5), ("Polls", 5)];
    detail(
        out,
        functions,
        "CPU time of the row, in ms; data verified, in MB, and wrong, in bytes",
        rows,
        &heads,
        |row| {
            vec![
                millions(row.metric("cpu_user"), 1),
                millions(row.metric("cpu_system"), 1),
                cell(row.metric("cpu_per_gb"), 3),
                millions(row.metric("verified"), 1),
                row.metric("wrong").map_or("-".to_owned(), |wrong| thousands(wrong as u64)),
                row.metric("polls").map_or("-".to_owned(), |polls| thousands(polls as u64)),
            ]
        },
    );
    let heads = [("Speed", 8), ("Active", 8), ("Ceiling", 8), ("Of it(%)", 8)];
    let limited: Vec<(&Group, Row)> = rows
        .iter()
        .copied()
        .filter(|(_, row)| ["ceiling", "of_ceiling", "active_speed"].iter().any(|name| row.metric(name).is_some()))
        .collect();
    let has_ceiling = limited.iter().any(|(_, row)| row.metric("ceiling").is_some());
    let title = match has_ceiling {
        true => "Rate against what the link can carry, in MB/s",
        false => "Rate while all devices were read, in MB/s",
    };
    detail(out, functions, title, &limited, &heads, |row| {
        let share = row.metric("of_ceiling");
        let invalid = if share.is_some_and(|share| share > 100.0) { " INVALID" } else { "" };
        vec![
            millions(row.metric("speed"), 1),
            millions(row.metric("active_speed"), 1),
            millions(row.metric("ceiling"), 1),
            format!("{}{invalid}", cell(share, 1)),
        ]
    });
    if limited.iter().any(|(_, row)| row.metric("of_ceiling").is_some_and(|share| share > 100.0)) {
        out.line("INVALID: faster than the link can be; the clock, the size or the ceiling is wrong.");
    }
}

/// Wrong data and losses.
fn losses(out: &mut Page, rows: &[(&Group, Row)], section: &Section) {
    let sum = |name: &str| {
        let values: Vec<f64> = rows.iter().filter_map(|(_, row)| row.metric(name)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>()).filter(|sum| sum.is_finite())
    };
    let verified = sum("verified");
    let wrong = sum("wrong");
    if verified.is_some() || wrong.is_some() {
        out.line("");
        let compared = format!("{} compared and right", megabytes(Some(verified.unwrap_or(0.0))));
        match wrong.filter(|wrong| *wrong > 0.0) {
            Some(wrong) => out
                .line(&format!("WRONG DATA: {} bytes are not what was expected; {compared}.", thousands(wrong as u64))),
            None => out.line(&format!("Data: {compared}, none wrong.")),
        }
    }
    let stalled =
        sum("stall").filter(|ns| *ns > 0.0).map(|ns| format!(" ({:.1} ms stalled)", ns / 1e6)).unwrap_or_default();
    header::lost(out, section, "", &stalled);
}
