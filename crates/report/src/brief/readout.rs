//! Readouts: the rate compared with what the link can carry, whether the data is right, and losses; a row for each
//! device and function, or for each group of a campaign.

use std::collections::BTreeSet;

use super::{Answer, headed, label_unreal};
use crate::losses;
use crate::model::Section;
use crate::readout::{Functions, Group, Row, cell, groups, megabytes, millions};
use crate::style::{Tone, paint};
use crate::summary::{FAST, SLOW, UNSTEADY};
use crate::table::layout::{Columns, Left, Right, Rows};
use crate::text::{clean, counted, cut, thousands};

/// The most rows of the table.
const MOST_ROWS: usize = 40;

pub(super) fn answer(section: &Section) -> Answer {
    let groups = groups(section);
    let functions = Functions::of(&groups);
    let rows: Vec<(&Group, Row)> =
        groups.iter().flat_map(|group| group.rows.iter().map(move |row| (group, *row))).collect();
    let mut answer = Answer::new(&headed(section, &heading(&groups)));
    if let Some(words) = rate(&groups) {
        answer.line(words);
    }
    answer.line(state(&rows, section));
    if let Some(words) = limit(&rows, section) {
        answer.line(words);
    }
    label_unreal(&mut answer, section);
    let is_sweep = groups.iter().any(|group| group.sweep().is_some());
    answer.table = Some(if is_sweep { campaign(&groups, &functions) } else { table(&functions, &rows) });
    let left = if is_sweep { 0 } else { rows.len().saturating_sub(MOST_ROWS) };
    answer.below = (left > 0).then(|| format!("{} more; --all shows every one", counted(left, "row")));
    answer
}

fn heading(groups: &[Group]) -> String {
    let paths: BTreeSet<&str> = groups.iter().flat_map(Group::paths).collect();
    let who = match (paths.first(), paths.len()) {
        (Some(one), 1) => clean(one),
        (_, count) => counted(count, "device"),
    };
    match groups {
        [group] => {
            let access = &group.stream().access;
            let by = if access.is_empty() { String::new() } else { format!(" by {}", clean(access)) };
            let repeats = group.rows.iter().find_map(|row| row.metric("repeats")).unwrap_or(1.0);
            format!("Readout of {who}{by}: {} of {}", counted(repeats as usize, "read"), megabytes(group.size()))
        }
        groups => format!("Readout of {who}: {} groups of measurements", groups.len()),
    }
}

/// The rate of the group with the most devices, with what it says of the single ones.
fn rate(groups: &[Group]) -> Option<String> {
    let with_rate = groups.iter().filter_map(|group| Some((group, group.sum()?)));
    let (group, sum) = with_rate.max_by(|a, b| a.0.rates().len().cmp(&b.0.rates().len()).then(a.1.total_cmp(&b.1)))?;
    let rates = group.rates();
    let (low, high) = rates.iter().fold((f64::INFINITY, 0.0f64), |(a, b), rate| (a.min(rate.1), b.max(rate.1)));
    let cv = group
        .reading()
        .filter_map(|row| row.metric("cv"))
        .fold(None, |most: Option<f64>, cv| Some(most.map_or(cv, |most| most.max(cv))));
    let cv = cv.map(|cv| {
        let words = format!("repeats vary by {cv:.1} %");
        if cv > UNSTEADY { paint(Tone::Doubt, &words) } else { words }
    });
    let each = if rates.len() > 1 {
        format!(" in all, {:.1} to {:.1} MB/s each", low / 1e6, high / 1e6)
    } else {
        let time = group.reading().find_map(|row| row.metric("duration"));
        time.map(|ns| format!(", {:.2} ms each", ns / 1e6)).unwrap_or_default()
    };
    let cv = cv.map(|cv| format!("; {cv}")).unwrap_or_default();
    Some(format!("{:.1} MB/s{each}{cv}", sum / 1e6))
}

/// Whether the data is right, and what was lost.
fn state(rows: &[(&Group, Row)], section: &Section) -> String {
    let sum = |name: &str| rows.iter().filter_map(|(_, row)| row.metric(name)).reduce(|a, b| a + b);
    let data = match (sum("verified"), sum("wrong")) {
        (_, Some(wrong)) if wrong > 0.0 => paint(Tone::Bad, &format!("WRONG DATA: {} bytes", thousands(wrong as u64))),
        (Some(verified), _) if verified > 0.0 => {
            format!("{} compared and {}", megabytes(Some(verified)), paint(Tone::Good, "right"))
        }
        _ => "no data was compared".to_owned(),
    };
    match losses::painted(&losses::of(section)) {
        Some(lost) => format!("{data}; {lost}"),
        None => data,
    }
}

/// The verdict against what the slowest link carries.
fn limit(rows: &[(&Group, Row)], section: &Section) -> Option<String> {
    let shares = rows.iter().filter_map(|(_, row)| Some((row.metric("of_ceiling")?, row)));
    let (share, row) = shares.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let most = rows.iter().filter_map(|(_, row)| row.metric("of_ceiling")).fold(0.0, f64::max);
    let link = row.metric("ceiling").map(|rate| format!(" of {:.0} MB/s", rate / 1e6)).unwrap_or_default();
    let words = format!("{share:.1} %{link} that the link carries");
    let is_real = !section.is_emulated() && !section.is_synthetic();
    Some(if is_real && most > 100.0 {
        paint(Tone::Bad, &format!("invalid: {most:.1} % of what the link carries"))
    } else if is_real && share >= FAST {
        format!("{}: {words}", paint(Tone::Good, "good"))
    } else if is_real && share < SLOW {
        format!("{}: {words}: something else limits", paint(Tone::Doubt, "slow"))
    } else {
        words
    })
}

fn table(functions: &Functions, rows: &[(&Group, Row)]) -> Columns {
    let columns = Rows::of(rows.iter().take(MOST_ROWS).map(|(_, row)| row)).columns(&[
        ("Device", 14, Left, &|row| cut(&row.device(), 20)),
        ("Function", 12, Left, &|row| functions.name(row).trim_start_matches("func_").to_owned()),
        ("Cycle", 5, Right, &|row| row.stream.cycle.map_or("-".to_owned(), |cycle| cycle.to_string())),
        ("Each(ms)", 8, Right, &|row| millions(row.metric("duration"), 3)),
        ("P99(ms)", 7, Right, &|row| {
            let repeats = row.record.histograms.get("duration");
            millions(repeats.and_then(|repeats| repeats.percentile_ns(99.0)), 3)
        }),
        ("MB/s", 8, Right, &|row| millions(row.metric("speed"), 1)),
        ("CV(%)", 5, Right, &|row| cell(row.metric("cv"), 1)),
        ("CPU(s/GB)", 9, Right, &|row| cell(row.metric("cpu_per_gb"), 3)),
        ("Wrong", 5, Right, &|row| row.metric("wrong").map_or("-".to_owned(), |wrong| thousands(wrong as u64))),
    ]);
    columns.without_empty()
}

/// A row for each group of a campaign.
fn campaign(groups: &[Group], functions: &Functions) -> Columns {
    let rate = |group: &Group| group.sum().or_else(|| group.rows.iter().find_map(|row| row.metric("speed")));
    let columns = Rows::of(groups).columns(&[
        ("Part", 8, Left, &|group| group.sweep().map_or("-".to_owned(), clean)),
        ("Devices", 16, Left, &|group| cut(&group.set(), 24)),
        ("Function", 12, Left, &|group| cut(group.work(functions).trim_start_matches("func_"), 14)),
        ("Wait", 4, Left, &|group| group.stream().wait.as_deref().map_or("-".to_owned(), clean)),
        ("MB", 5, Right, &|group| millions(group.size(), 1)),
        ("MB/s", 8, Right, &|group| millions(rate(group), 1)),
        ("CPU(%)", 6, Right, &|group| cell(group.metric("cpu_top").or(group.metric("cpu")), 1)),
    ]);
    columns.without_empty()
}
