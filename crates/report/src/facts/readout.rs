//! Readouts: the rate compared with what the link can carry, whether the data is right, and losses; a row for each
//! device and function, or for each group of a campaign.

use std::collections::BTreeSet;

use pciescope_core::{Record, readout};

use super::conclusions::{Conclusions, Place, labelled, largest, quoted};
use super::rules::{FAST, SLOW, UNSTEADY};
use super::{Fact, Facts};
use crate::layout::{Columns, Left, Right, Rows};
use crate::losses;
use crate::model::{LossCount, Section, metric};
use crate::readout::{Functions, Group, Row, cell, groups, megabytes, millions};
use crate::style::{Tone, paint};
use crate::text::{clean, counted, cut, duration, figure, rate as rate_of, thousands};

/// The most rows of the table.
const MOST_ROWS: usize = 40;

pub(super) fn facts(section: &Section) -> Facts {
    let groups = groups(section);
    let functions = Functions::of(&groups);
    let rows: Vec<(&Group, Row)> =
        groups.iter().flat_map(|group| group.rows.iter().map(move |row| (group, *row))).collect();
    let mut facts = Facts::of(section, &heading(&groups));
    if let Some(words) = rate(&groups) {
        facts.lines.push(words);
    }
    facts.lines.extend(latency(&rows));
    facts.lines.push(state(&rows, section));
    if let Some(words) = limit(&rows, section) {
        facts.lines.push(words);
    }
    facts.mark_section(section);
    facts.tiles = tiles(section, &groups);
    let is_sweep = groups.iter().any(|group| group.sweep().is_some());
    facts.table = Some(if is_sweep { campaign(&groups, &functions) } else { table(&functions, &rows) });
    let left = if is_sweep { 0 } else { rows.len().saturating_sub(MOST_ROWS) };
    facts.below = (left > 0).then(|| format!("{} more; --all shows every one", counted(left, "row")));
    facts
}

fn tiles(section: &Section, groups: &[Group]) -> Vec<Fact> {
    let with_rate = groups.iter().filter_map(|group| Some((group, group.sum()?)));
    let Some((best, sum)) = with_rate.max_by(|a, b| a.1.total_cmp(&b.1)) else { return Vec::new() };
    let slowest = best.rates().iter().map(|rate| rate.1).reduce(f64::min).map_or("-".to_owned(), rate_of);
    let devices = best.devices();
    let together = if devices == 1 { "" } else { " together" };
    let (share, ceiling) = match best.ceiling().filter(|ceiling| *ceiling > 0.0) {
        Some(ceiling) => (format!("{:.1} %", sum / ceiling * 100.0), rate_of(ceiling)),
        None => ("-".to_owned(), "ceiling not known".to_owned()),
    };
    vec![
        Fact::plain("Rate", rate_of(sum), counted(devices, "device") + together),
        Fact::plain("Slowest device", slowest, "of these"),
        Fact::plain("Of the ceiling", share, ceiling),
        Fact::losses("Wrong bytes", section.losses("wrong"), "of those compared"),
        Fact::losses("Lost", losses::total([section]), "interrupts, transfers"),
    ]
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
            let stream = group.stream();
            let block = stream.piece_bytes.map(|bytes| format!(", block {}", kibibytes(bytes)));
            let depth = stream.depth.map(|depth| format!(", depth {depth}"));
            let how = block.unwrap_or_default() + &depth.unwrap_or_default();
            let times = thousands(repeats as u64);
            format!(
                "Readout of {who}{by}{how}: {} {times} {}",
                megabytes(group.size()),
                if repeats == 1.0 { "time" } else { "times" }
            )
        }
        groups => format!("Readout of {who}: {} groups of measurements", groups.len()),
    }
}

/// A power of two in the unit that fio writes it in.
fn kibibytes(bytes: u64) -> String {
    match bytes {
        bytes if bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes if bytes % 1024 == 0 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    }
}

/// Percentiles of the single reads, as fio's clat.
fn latency(rows: &[(&Group, Row)]) -> Option<String> {
    let mut all = pciescope_core::Histogram::default();
    rows.iter().filter_map(|(_, row)| row.record.histograms.get("read")).for_each(|reads| all.merge(reads));
    let parts: Vec<String> = [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9)]
        .into_iter()
        .filter_map(|(name, percent)| Some(format!("{name} {}", duration(all.percentile_ns(percent)?))))
        .collect();
    (!parts.is_empty()).then(|| format!("{} of a block: {}", counted(all.count() as usize, "read"), parts.join(", ")))
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
        if cv > UNSTEADY.limit { paint(Tone::Doubt, &words) } else { words }
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
    match losses::painted(section.loss_counts()) {
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
    } else if is_real && share >= FAST.limit {
        format!("{}: {words}", paint(Tone::Good, "good"))
    } else if is_real && share < SLOW.limit {
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

pub(super) fn conclude(out: &mut Conclusions, number: usize, section: &Section) {
    let place = Place::Section(number);
    let rows: Vec<&Record> = section.records.iter().copied().filter(|record| &*record.test == readout::TEST).collect();
    let device = |record: &Record| labelled(&quoted(record.stream.as_ref().map_or("", |stream| &stream.path)), record);
    let (verified, wrong) = (section.sum("verified"), section.sum("wrong"));
    if let Some((_, record)) = largest(&rows, "wrong").filter(|(most, _)| *most > 0.0) {
        let of = verified.unwrap_or_default() + wrong.unwrap_or_default();
        let count = wrong.unwrap_or_default();
        out.doubt(
            0,
            place,
            format!("{} of {} compared bytes are wrong, most from {}.", figure(count), figure(of), device(record)),
        );
        out.advise(
            1,
            place,
            format!("{}: do not use these data before the wrong bytes are explained.", device(record)),
        );
    } else if let Some(verified) = verified.filter(|verified| *verified > 0.0) {
        out.good(
            number,
            format!("All {} that were compared are right, from {}.", megabytes(Some(verified)), who_reads(&rows)),
        );
    } else if verified.is_some() {
        out.doubt(
            5,
            place,
            format!("{}: no byte was compared, so nothing is known of their being right.", who_reads(&rows)),
        );
    }
    for LossCount { loss, sum, .. } in section.loss_counts().iter().filter(|count| count.sum > 0.0) {
        let most = largest(&rows, loss.name);
        let from = most.map(|(_, record)| format!(", most at {}", device(record))).unwrap_or_default();
        let rank = if loss.is_failure() { 2 } else { 5 };
        out.doubt(rank, place, format!("Readout: {} {}{from}.", figure(*sum), loss.words));
    }
    if losses::total([section]) == Some((0.0, true)) {
        out.good(number, format!("Readout of {}: no interrupt, transfer or acquisition was lost.", who_reads(&rows)));
    }
    if section.records.iter().any(|record| crate::model::is_emulated(record)) {
        return;
    }
    ceilings(out, number, &rows, &device);
    if let Some((cv, record)) = largest(&rows, "cv").filter(|(cv, _)| *cv > UNSTEADY.limit) {
        out.doubt(
            5,
            place,
            format!(
                "{}: repeats vary by {cv:.1} % (standard deviation; up to {} % is steady).",
                device(record),
                UNSTEADY.limit
            ),
        );
    }
}

/// Rates of reading against the links' ceilings.
fn ceilings(out: &mut Conclusions, number: usize, rows: &[&Record], device: &dyn Fn(&Record) -> String) {
    let shares: Vec<(f64, &Record)> =
        rows.iter().filter_map(|record| Some((metric(record, "of_ceiling")?, *record))).collect();
    let low = shares.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let (Some((low, slowest)), Some((high, fastest))) = (low, shares.iter().max_by(|a, b| a.0.total_cmp(&b.0))) else {
        return;
    };
    let rate =
        |record: &Record| metric(record, "speed").map(|speed| format!("{:.1} MB/s, ", speed / 1e6)).unwrap_or_default();
    let place = Place::Section(number);
    if *high > 100.0 {
        out.doubt(
            0,
            place,
            format!("{}: {}{high:.1} % of its link's ceiling: invalid.", device(fastest), rate(fastest)),
        );
    }
    if *low < SLOW.limit {
        out.doubt(
            5,
            place,
            format!(
                "{}: {}{low:.1} % of its link's ceiling, the least; below {} % something else limits.",
                device(slowest),
                rate(slowest),
                SLOW.limit
            ),
        );
    } else if *low >= FAST.limit && *high <= 100.0 {
        out.good(
            number,
            format!(
                "Every readout reaches {} % of its link's ceiling or more; the least is {}: {}{low:.1} %.",
                FAST.limit,
                device(slowest),
                rate(slowest)
            ),
        );
    }
}

fn who_reads(rows: &[&Record]) -> String {
    let paths: BTreeSet<&str> = rows.iter().filter_map(|record| Some(record.stream.as_ref()?.path.as_str())).collect();
    match (paths.first(), paths.len()) {
        (Some(one), 1) => quoted(one),
        (Some(one), count) => format!("{} and {} more", quoted(one), count - 1),
        (None, _) => "the device".to_owned(),
    }
}
