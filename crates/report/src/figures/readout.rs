//! The figures of a readout, each a chart with its table: rate against size and boards, time by stage, CPU time by
//! wait mode, and where that time went.

use std::collections::BTreeSet;

use pciescope_core::{HotSpot, once};

use super::{Figure, drawn_few};
use crate::chart::{Bar, Bars, Chart, Lines, Point, number};
use crate::layout::{Align, Columns, Left, Right, Rows};
use crate::model::Section;
use crate::readout::{Functions, Group, MOST_SPOTS, READS, Row, STAGES, cell, groups, megabytes, millions};
use crate::text::{clean, counted};

/// The figures of a section.
pub(super) fn of(section: &Section) -> Vec<Figure> {
    let all = [rate_against_size, rate_against_boards, rate_by_row, conversions, stages, cpu, hot_spots];
    let groups = groups(section);
    all.iter().filter_map(|figure| figure(&groups)).collect()
}

/// A column: its head, width and side.
type Head = (&'static str, usize, Align);

/// Columns of the devices' rates.
const MEAN: Head = ("Mean(MB/s)", 10, Right);
const MIN: Head = ("Min(MB/s)", 9, Right);
const MAX: Head = ("Max(MB/s)", 9, Right);
const SUM: Head = ("Sum(MB/s)", 9, Right);

/// The groups of one measurement of a sweep, or all where there was no such sweep.
fn swept<'g, 'r>(groups: &'g [Group<'r>], sweep: &str) -> Vec<&'g Group<'r>> {
    let own: Vec<&Group> = groups.iter().filter(|group| group.sweep() == Some(sweep)).collect();
    if own.is_empty() { groups.iter().collect() } else { own }
}

/// Mean, smallest, largest and sum in MB/s.
fn rate_cells(rates: &[(&str, f64)], sum: Option<f64>) -> [String; 4] {
    let ends = ends_of(rates);
    [mean_of(rates), ends.map(|ends| ends.0), ends.map(|ends| ends.1), sum].map(|rate| millions(rate, 1))
}

fn mean_of(values: &[(&str, f64)]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().map(|value| value.1).sum::<f64>() / values.len() as f64)
}

fn ends_of(values: &[(&str, f64)]) -> Option<(f64, f64)> {
    values.iter().fold(None, |ends, (_, v)| Some(ends.map_or((*v, *v), |(a, b): (f64, f64)| (a.min(*v), b.max(*v)))))
}

fn rate_against_size(groups: &[Group]) -> Option<Figure> {
    let mut sets: Vec<(String, Vec<(&Group, f64)>)> = Vec::new();
    for group in swept(groups, "size") {
        let (Some(size), false) = (group.size(), group.rates().is_empty()) else { continue };
        let name = group.set();
        match sets.iter_mut().find(|set| set.0 == name) {
            Some(set) => set.1.push((group, size)),
            None => sets.push((name, vec![(group, size)])),
        }
    }
    sets.retain(|set| set.1.iter().any(|point| point.1 != set.1[0].1));
    if sets.is_empty() {
        return None;
    }
    let mut table =
        Columns::new(&[("Devices", 12, Left), ("Size(MB)", 8, Right), ("Dur(ms)", 8, Right), MEAN, MIN, MAX, SUM]);
    let mut lines = Vec::new();
    for (name, mut points) in sets {
        points.sort_by(|a, b| a.1.total_cmp(&b.1));
        let mut line = Vec::new();
        for (group, size) in points {
            let rates = group.rates();
            let (mean, ends) = (mean_of(&rates), ends_of(&rates));
            let durations: Vec<f64> = group.reading().filter_map(|row| row.metric("duration")).collect();
            let duration = durations.iter().sum::<f64>() / durations.len() as f64;
            let time = millions((!durations.is_empty()).then_some(duration), 3);
            let cells = [name.clone(), millions(Some(size), 1), time];
            table.row(cells.into_iter().chain(rate_cells(&rates, group.sum())).collect());
            if let Some(mean) = mean {
                let words = format!("{name}, {}: {} MB/s per device", megabytes(Some(size)), millions(Some(mean), 1));
                let spread = ends.map(|(a, b)| (a / 1e6, b / 1e6)).filter(|_| rates.len() > 1);
                line.push(Point { x: size / 1e6, y: mean / 1e6, spread, words });
            }
        }
        lines.push((name, line));
    }
    let chart = Lines { up: "MB/s per device".to_owned(), across: "size of a repeat, MB".to_owned(), lines };
    Some(Figure {
        heading: "Rate against size".to_owned(),
        note: "The mean of the devices that were read together; a bar goes from the slowest to the fastest.".to_owned(),
        chart: Some(Chart::Lines(chart)),
        table,
        is_digest: true,
    })
}

fn rate_against_boards(groups: &[Group]) -> Option<Figure> {
    let readings: Vec<&Group> = swept(groups, "boards")
        .into_iter()
        .filter(|group| !group.rates().is_empty() && group.size().is_some())
        .collect();
    // Sets of devices can be compared where they read as much: the size that most sets have.
    let sets_of = |size: f64| {
        readings
            .iter()
            .filter(|group| group.size() == Some(size))
            .map(|group| group.set())
            .collect::<BTreeSet<_>>()
            .len()
    };
    let size = readings.iter().filter_map(|group| group.size()).max_by_key(|size| (sets_of(*size), *size as u64))?;
    if sets_of(size) < 2 {
        return None;
    }
    let shown: Vec<&Group> = readings.into_iter().filter(|group| group.size() == Some(size)).collect();
    let mut paths: Vec<&str> = shown.iter().flat_map(|group| group.rates()).map(|rate| rate.0).collect();
    paths.sort_unstable();
    paths.dedup();
    let mut table = Columns::new(&[
        ("Devices", 12, Left),
        MEAN,
        MIN,
        MAX,
        SUM,
        ("Active(MB/s)", 12, Right),
        ("Ceiling(MB/s)", 13, Right),
    ]);
    let mut bars = Vec::new();
    for group in &shown {
        let rates = group.rates();
        let name = group.set();
        let others = [group.metric("active_speed"), group.ceiling()].map(|rate| millions(rate, 1));
        let own = [name.clone()].into_iter().chain(rate_cells(&rates, group.sum()));
        table.row(own.chain(others).collect());
        let part = |(path, rate): &(&str, f64)| {
            let place = paths.iter().position(|known| known == path).unwrap_or(0);
            (place, rate / 1e6, format!("{}: {:.1} MB/s", clean(path), rate / 1e6))
        };
        bars.push(Bar {
            label: short(&name),
            parts: rates.iter().map(part).collect(),
            mark: group.ceiling().map(|c| (c / 1e6, format!("ceiling: {:.1} MB/s", c / 1e6))),
            figure: millions(group.sum(), 1),
        });
    }
    table.drop_empty();
    let mark = bars.iter().any(|bar| bar.mark.is_some()).then(|| "what the links can carry".to_owned());
    let series = paths.iter().map(|path| clean(path)).collect();
    let chart = Bars { across: "MB/s".to_owned(), series, bars, mark };
    let (chart, note) = drawn_few(
        chart,
        "One part per device. Devices that end early leave more to the others: the sum of the means is not what \
               all of them had at once; that is Active, where it was measured.",
    );
    Some(Figure {
        heading: format!("Rate against boards, {}", megabytes(Some(size))),
        note,
        chart,
        table,
        is_digest: true,
    })
}

/// A label without what can be left out beside a bar.
fn short(label: &str) -> String {
    label.replace("(/dev/", "(")
}

/// The rows of runs that were no sweep: each device and function.
fn rate_by_row(groups: &[Group]) -> Option<Figure> {
    let rows: Vec<(&Group, Row)> = groups
        .iter()
        .filter(|group| group.sweep().is_none())
        .flat_map(|group| group.rows.iter().map(move |row| (group, *row)))
        .filter(|(_, row)| row.stream.cycle.is_none())
        .collect();
    let differs = rows.iter().any(|(group, _)| group.devices() != rows[0].0.devices());
    let sizes_differ = rows.iter().any(|(_, row)| row.size() != rows[0].1.size());
    let ceiling = |row: &Row| row.metric("ceiling").filter(|_| row.is_reading());
    let table = Rows::of(&rows).columns(&[
        ("Device", 14, Left, &|(_, row)| row.device()),
        ("Function", 15, Left, &|(_, row)| row.function()),
        ("Devices", 7, Right, &|(group, _)| if differs { group.devices().to_string() } else { "-".to_owned() }),
        ("Size(MB)", 8, Right, &|(_, row)| millions(row.size(), 1)),
        ("Speed(MB/s)", 11, Right, &|(_, row)| millions(row.metric("speed"), 1)),
        ("Ceiling(MB/s)", 13, Right, &|(_, row)| millions(ceiling(row), 1)),
    ]);
    let mut bars = Vec::new();
    let functions: BTreeSet<String> = rows.iter().map(|(_, row)| row.function()).collect();
    for (group, row) in &rows {
        let Some(speed) = row.metric("speed") else { continue };
        let label = if functions.len() > 1 { format!("{} {}", row.device(), row.function()) } else { row.device() };
        let label = if differs { format!("{label}, 1 of {}", group.devices()) } else { label };
        let label = if sizes_differ { format!("{label}, {}", megabytes(row.size())) } else { label };
        let words = format!("{label}: {} MB/s", millions(Some(speed), 1));
        bars.push(Bar {
            label,
            parts: vec![(usize::from(!row.is_reading()), speed / 1e6, words)],
            mark: ceiling(row).map(|c| (c / 1e6, format!("ceiling: {:.1} MB/s", c / 1e6))),
            figure: millions(Some(speed), 1),
        });
    }
    let table = table.without_empty();
    let converts = functions.iter().any(|function| function != READS) && functions.contains(READS);
    let names = if converts { vec!["readout".to_owned(), "conversion".to_owned()] } else { Vec::new() };
    let mark = bars.iter().any(|bar| bar.mark.is_some()).then(|| "what the link can carry".to_owned());
    let chart = Bars { across: "MB/s of raw samples".to_owned(), series: names, bars, mark };
    let (chart, note) = drawn_few(chart, "");
    (!rows.is_empty()).then(|| Figure { heading: "Rate by device".to_owned(), note, chart, table, is_digest: false })
}

/// The functions of a sweep against each other: how long each takes, as the mean over its devices.
fn conversions(groups: &[Group]) -> Option<Figure> {
    let mut table = Columns::new(&[
        ("Function", 15, Left),
        ("Conversion", 10, Left),
        ("Devices", 12, Left),
        ("Size(MB)", 8, Right),
        ("Dur(ms)", 8, Right),
        MEAN,
        MIN,
        MAX,
        SUM,
    ]);
    let mut bars = Vec::new();
    for group in groups.iter().filter(|group| group.sweep() == Some("function")) {
        let named = group.rows.iter().map(|row| (row.stream.function_name(), row.stream.conversion.as_deref()));
        let mut names = once(named);
        // Each conversion reads before; the reading is shown where there is nothing else.
        if names.len() > 1 {
            names.retain(|name| name.0 != READS);
        }
        for (function, conversion) in names {
            let is_it =
                |row: &&Row| row.stream.function_name() == function && row.stream.conversion.as_deref() == conversion;
            let values = |name: &str| -> Vec<(&str, f64)> {
                group.rows.iter().filter(is_it).filter_map(|row| Some((function.as_str(), row.metric(name)?))).collect()
            };
            let (durations, speeds) = (values("duration"), values("speed"));
            let duration = mean_of(&durations);
            let function = clean(&function);
            let conversion = conversion.map_or("-".to_owned(), clean);
            let (size, time) = (millions(group.size(), 1), millions(duration, 3));
            let cells = [function.clone(), conversion.clone(), group.set(), size, time];
            let sum = (!speeds.is_empty()).then(|| speeds.iter().map(|speed| speed.1).sum());
            table.row(cells.into_iter().chain(rate_cells(&speeds, sum)).collect());
            let Some(duration) = duration else { continue };
            let label = if conversion == "-" { function } else { format!("{function}, {conversion}") };
            let words = format!("{label}: {} ms", millions(Some(duration), 3));
            let figure = number(duration / 1e6);
            bars.push(Bar { label, parts: vec![(4, duration / 1e6, words)], mark: None, figure });
        }
    }
    if table.rows().is_empty() {
        return None;
    }
    table.drop_empty();
    let chart = Bars { across: "ms for a repeat".to_owned(), bars, ..Bars::default() };
    let (chart, note) =
        drawn_few(chart, "The mean over the devices. Rates count the raw samples, whatever was made of them.");
    Some(Figure { heading: "Time by function".to_owned(), note, chart, table, is_digest: true })
}

/// Where the time of a repeat goes: the mean over the devices of a group.
fn stages(groups: &[Group]) -> Option<Figure> {
    struct Stage {
        label: Vec<String>,
        size: Option<f64>,
        /// Sum and count of the rows' repeats, then of each of their stages.
        sums: [(f64, u32); STAGES.len() + 1],
    }
    let names = Functions::of(groups);
    let mut all: Vec<Stage> = Vec::new();
    let sets: Vec<String> = groups.iter().map(Group::set).collect();
    for (set, row) in groups.iter().zip(&sets).flat_map(|(group, set)| group.rows.iter().map(move |row| (set, row))) {
        let wait = row.stream.wait.as_deref().map_or("-".to_owned(), clean);
        let label = vec![names.name(row), megabytes(row.size()), set.clone(), wait];
        let place = all.iter().position(|stage| stage.label == label).unwrap_or_else(|| {
            all.push(Stage { label, size: row.size(), sums: Default::default() });
            all.len() - 1
        });
        for (sum, name) in all[place].sums.iter_mut().zip(["duration"].into_iter().chain(STAGES.map(|stage| stage.0))) {
            if let Some(value) = row.metric(name) {
                *sum = (sum.0 + value, sum.1 + 1);
            }
        }
    }
    let mean = |(sum, count): (f64, u32)| (count > 0).then(|| sum / f64::from(count));
    all.retain(|stage| stage.sums[1..].iter().any(|sum| sum.1 > 0));
    // Where only conversions are known, their own figure has them.
    let has_transfers = all.iter().any(|stage| stage.sums[1..STAGES.len()].iter().any(|sum| sum.1 > 0));
    if !has_transfers && groups.iter().any(|group| group.sweep() == Some("function")) {
        return None;
    }
    let first = all.first()?;
    // Sizes that differ are compared by the time of a megabyte.
    let per_megabyte = all.iter().any(|stage| stage.size != first.size);
    let unit = |stage: &Stage| match (per_megabyte, stage.size) {
        (false, _) => Some(1e6),
        (true, Some(size)) if size > 0.0 => Some(1e3 * size / 1e6),
        _ => None,
    };
    let word = if per_megabyte { "us per MB" } else { "ms" };
    // What all have in common need not stand before every bar.
    let differs = |place: usize| all.iter().any(|stage| stage.label[place] != first.label[place]);
    let wanted: Vec<usize> = (0..4).filter(|place| *place == 0 || differs(*place)).collect();
    let mut table = Columns::new(&[
        ("Function", 15, Left),
        ("Size", 8, Right),
        ("Devices", 12, Left),
        ("Wait", 4, Left),
        ("Repeat", 8, Right),
        ("Setup", 6, Right),
        ("DMA", 8, Right),
        ("Wake-up", 7, Right),
        ("Copy", 8, Right),
        ("Convert", 8, Right),
        ("Rest", 7, Right),
    ]);
    let (mut bars, mut has_overlap) = (Vec::new(), false);
    for stage in &all {
        let Some(unit) = unit(stage) else { continue };
        let duration = mean(stage.sums[0]);
        let parts = stage.sums[1..].iter().map(|sum| mean(*sum));
        let known: f64 = parts.clone().flatten().sum();
        let rest = duration.map(|duration| duration - known).filter(|rest| *rest > 0.0);
        let decimals = if per_megabyte { 1 } else { 3 };
        let shown = |value: Option<f64>| cell(value.map(|value| value / unit), decimals);
        let mut cells: Vec<String> = stage
            .label
            .iter()
            .enumerate()
            .map(|(n, words)| if wanted.contains(&n) { words.clone() } else { "-".to_owned() })
            .collect();
        cells.push(shown(duration));
        cells.extend(parts.clone().map(shown));
        cells.push(shown(rest));
        table.row(cells);
        let named = STAGES.iter().map(|(_, words)| *words).chain(["rest"]);
        let values = parts.chain([rest]);
        let parts = named.zip(values).enumerate().filter_map(|(place, (words, value))| {
            let value = value? / unit;
            // The last colour is grey.
            let place = if place == STAGES.len() { 7 } else { place };
            Some((place, value, format!("{words}: {value:.3} {word}")))
        });
        // The figure at a bar's end is the bar's: stages that overlap reach beyond the repeat, which is a mark then.
        let overlapped = duration.filter(|duration| known > duration * 1.005).map(|duration| duration / unit);
        has_overlap |= overlapped.is_some();
        bars.push(Bar {
            label: short(
                &wanted.iter().map(|n| &*stage.label[*n]).filter(|w| *w != "-").collect::<Vec<_>>().join(", "),
            ),
            parts: parts.collect(),
            mark: overlapped.map(|repeat| (repeat, format!("the repeat: {repeat:.3} {word}"))),
            figure: number((known + rest.unwrap_or(0.0)) / unit),
        });
    }
    table.drop_empty();
    let mut series: Vec<String> = STAGES.iter().map(|(_, words)| (*words).to_owned()).collect();
    series.extend(["", "", "rest"].map(str::to_owned));
    let used: BTreeSet<usize> = bars.iter().flat_map(|bar| &bar.parts).map(|part| part.0).collect();
    for (place, name) in series.iter_mut().enumerate() {
        if !used.contains(&place) {
            name.clear();
        }
    }
    let mark = has_overlap.then(|| "the repeat: its stages overlap".to_owned());
    let chart = Bars { across: word.to_owned(), series, bars, mark };
    let (chart, note) = drawn_few(
        chart,
        "Means over the devices, and over groups that differ in nothing shown. Stages that overlap are longer together than the repeat, which is marked then.",
    );
    Some(Figure {
        heading: format!("Time of a repeat by stage, in {word}"),
        note,
        chart,
        table,
        is_digest: groups.iter().any(|group| group.sweep().is_some()),
    })
}

fn cpu(groups: &[Group]) -> Option<Figure> {
    let mut table = Columns::new(&[
        ("Work", 15, Left),
        ("Size(MB)", 8, Right),
        ("Devices", 7, Right),
        ("Wait", 9, Left),
        ("User(%)", 7, Right),
        ("System(%)", 9, Right),
        ("Top(%)", 6, Right),
        ("CPU(s/GB)", 9, Right),
        ("All CPUs(%)", 11, Right),
        ("Most time in", 12, Left),
    ]);
    let mut bars = Vec::new();
    let (mut has_parts, mut has_wait) = (false, false);
    let names = Functions::of(groups);
    for group in swept(groups, "cpu") {
        let (user, system) = group.cpu_percent();
        let (top, all) = (group.metric("cpu_top"), group.metric("cpu"));
        if [user, system, top, all].iter().all(Option::is_none) {
            continue;
        }
        let wait = group.stream().wait.as_deref().map_or("-".to_owned(), clean);
        let spot = group.summary.iter().flat_map(|summary| &summary.record.hot_spots).next();
        let time = |row: &Row| Some(row.metric("cpu_user").unwrap_or(0.0) + row.metric("cpu_system")?);
        let raw = |row: &Row| Some(row.size()? * row.metric("repeats")?);
        let cost: Option<(f64, f64)> =
            group.rows.iter().map(|row| Some((time(row)?, raw(row)?))).collect::<Option<Vec<_>>>().and_then(|rows| {
                // Rows that convert take what the row before them read: it is the same gigabyte.
                let read =
                    group.rows.iter().zip(&rows).filter(|(row, _)| row.is_reading()).map(|(_, r)| r.1).sum::<f64>();
                (read > 0.0).then(|| (rows.iter().map(|row| row.0).sum(), read))
            });
        let work = group.work(&names);
        table.row(vec![
            work.clone(),
            millions(group.size(), 1),
            group.devices().to_string(),
            wait.clone(),
            cell(user, 1),
            cell(system, 1),
            cell(top, 1),
            cell(cost.map(|(ns, bytes)| ns / bytes), 3),
            cell(all, 1),
            spot.map_or("-".to_owned(), |spot| format!("{} {:.1} %", clean(&spot.symbol), spot.percent)),
        ]);
        has_wait |= wait != "-";
        let wait = if wait == "-" { String::new() } else { format!(", {wait}") };
        let devices = counted(group.devices(), "device");
        let label = format!("{work}, {}, {devices}{wait}", megabytes(group.size()));
        let own = user.iter().chain(&system).copied().reduce(|a, b| a + b);
        let figure = own.or(top).or(all);
        let parts = match (user, system) {
            (None, None) => top.map(|top| (0, top, format!("CPU time: {top:.1} %"))).into_iter().collect(),
            (user, system) => {
                has_parts = true;
                let part =
                    |place, words: &str, value: Option<f64>| Some((place, value?, format!("{words}: {:.1} %", value?)));
                [part(0, "user", user), part(1, "system", system)].into_iter().flatten().collect()
            }
        };
        bars.push(Bar { label, parts, mark: None, figure: cell(figure, 1) });
    }
    if table.rows().is_empty() {
        return None;
    }
    table.drop_empty();
    let series = if has_parts { vec!["user".to_owned(), "system".to_owned()] } else { Vec::new() };
    let chart = Bars { across: "% of one CPU".to_owned(), series, bars, mark: None };
    let (chart, note) = drawn_few(
        chart,
        "100 % is one logical CPU. User and system are the reading threads' own; Top is the whole process, as top \
               shows it; All CPUs is the busy share of the machine.",
    );
    Some(Figure {
        heading: if has_wait { "CPU time by wait mode" } else { "CPU time" }.to_owned(),
        note,
        chart,
        table,
        is_digest: groups.len() > 1,
    })
}

fn hot_spots(groups: &[Group]) -> Option<Figure> {
    let names = Functions::of(groups);
    let spots = groups.iter().flat_map(|group| {
        let known = group.summary.iter().chain(&group.rows).map(|row| &row.record.hot_spots);
        let spots = known.into_iter().find(|spots| !spots.is_empty());
        spots.into_iter().flatten().take(MOST_SPOTS).map(move |spot| (group, spot))
    });
    let kind = |spot: &HotSpot| if spot.is_kernel { "[k]" } else { "[.]" };
    let table = Rows::of(spots).columns(&[
        ("Work", 15, Left, &|(group, _)| group.work(&names)),
        ("Size(MB)", 8, Right, &|(group, _)| millions(group.size(), 1)),
        ("Devices", 7, Right, &|(group, _)| group.devices().to_string()),
        ("Wait", 9, Left, &|(group, _)| group.stream().wait.as_deref().map_or("-".to_owned(), clean)),
        ("Percent", 7, Right, &|(_, spot)| cell(Some(spot.percent), 2)),
        ("Object", 8, Left, &|(_, spot)| clean(&spot.object)),
        ("Symbol", 8, Left, &|(_, spot)| format!("{} {}", kind(spot), clean(&spot.symbol))),
    ]);
    let is_any = !table.rows().is_empty();
    let table = table.without_empty();
    is_any.then(|| Figure {
        heading: "Hot spots".to_owned(),
        note: String::new(),
        chart: None,
        table,
        is_digest: false,
    })
}
