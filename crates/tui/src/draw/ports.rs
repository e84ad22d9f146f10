//! The tree of PCIe: one line for each port with bars, one for each function below it.

use std::ops::Add;

use pciescope_catalogue::is_state;
use pciescope_core::live::{Figure, Source};
use pciescope_core::text::first_of;
use pciescope_core::{Function, LinkState, joined};
use ratatui::style::Style;

use super::{Pen, cell, share};
use crate::bars;
use crate::state::{RowId, State};
use crate::text::{clean, fit, short, width};
use crate::tree::{self, Row};

/// What a column shows.
#[derive(Debug, Clone, PartialEq)]
enum Column {
    Link,
    Rate(&'static str),
    Bar(&'static str),
    Share(&'static str),
    State,
    Errors,
    History,
    /// Counts of an interval: those of the first of these names that has any.
    Count(&'static str),
    /// Errors of a layer of the link in an interval.
    Layer(u8),
    /// A share of the time.
    Time(String),
}

struct Columns {
    name: u16,
    /// Title, columns, what.
    rest: Vec<(String, u16, Column)>,
}

/// The columns that fit; the more important ones go first.
fn columns(state: &State, width: u16, is_links: bool) -> Columns {
    if is_links {
        return link_columns(state, width);
    }
    let name = match width {
        140.. => 36,
        110.. => 26,
        78.. => 19,
        _ => 14,
    };
    let mut rest: Vec<(String, u16, Column)> = Vec::new();
    let mut add = |title: &str, columns: u16, column: Column| rest.push((title.to_owned(), columns, column));
    let bar = match width {
        140.. => 14,
        110.. => 10,
        78.. => (width - 69) / 2,
        _ => 0,
    };
    if width >= 60 {
        add("LINK", 8, Column::Link);
    }
    for (title, direction) in [("RX B/s", "rx"), ("TX B/s", "tx")] {
        add(title, 6, Column::Rate(direction));
        if bar > 0 {
            add("", bar, Column::Bar(direction));
        }
        if width >= 50 {
            add("%", 4, Column::Share(direction));
        }
    }
    if width >= 78 {
        add("STATE%", 7, Column::State);
    }
    if width >= 38 {
        add("ERR", 5, Column::Errors);
    }
    let used: u16 = 1 + name + rest.iter().map(|(_, columns, _)| columns + 1).sum::<u16>();
    let left = width.saturating_sub(used + 1);
    if left >= 8 {
        rest.push(("HISTORY".to_owned(), left.min(60), Column::History));
    }
    Columns { name, rest }
}

/// States of the link that any port has, then errors by layer and retries.
fn link_columns(state: &State, width: u16) -> Columns {
    let ports = state.model.live.sources.iter().filter(|source| source.is_port());
    let mut states: Vec<String> =
        ports.flat_map(|source| source.names().filter(|name| is_state(name)).map(str::to_owned)).collect();
    states.sort();
    states.dedup();
    let mut rest: Vec<(String, u16, Column)> = vec![("LINK".to_owned(), 14, Column::Link)];
    let errors =
        [("ERR", Column::Errors), ("L1", Column::Layer(1)), ("L2", Column::Layer(2)), ("L3", Column::Layer(3))];
    let repairs = [("NAK", "naks"), ("RETRY", "retries"), ("RECOV", "recoveries")];
    let repairs = repairs.map(|(title, name)| (title, Column::Count(name)));
    rest.extend(errors.into_iter().chain(repairs).map(|(title, column)| (title.to_owned(), 5, column)));
    for name in states {
        let title = format!("{}%", clean(name.trim_end_matches("_share")).to_uppercase());
        rest.push((fit(&title, 9), crate::text::width(&title).clamp(5, 9), Column::Time(name)));
    }
    let name = if width >= 100 { 26 } else { 14 };
    let mut room = width.saturating_sub(name + 1);
    rest.retain(|(_, columns, _)| {
        let fits = room > *columns;
        room = if fits { room - columns - 1 } else { 0 };
        fits
    });
    Columns { name, rest }
}

/// Draws the tree.
pub fn draw(pen: &mut Pen<'_>, state: &State, is_links: bool) {
    let Some(lines) = pen.height().checked_sub(1) else { return };
    let span = state.shown().unwrap_or(0);
    let has_counters = state.model.live.sources.iter().any(|source| source.is_port() || source.is_function());
    let columns = columns(state, pen.width(), is_links);
    let Window { rows, chosen, first } = window(state, lines);
    let (shown, all) = (usize::from(lines), rows.len());
    let part = if all > shown { format!(" {}-{}/{all}", first + 1, first + shown) } else { String::new() };
    heading(pen, &columns, has_counters, &part);
    if rows.is_empty() {
        let text = match (state.filter.is_empty(), state.shown()) {
            (false, _) => "nothing has all of these words in its name (Esc clears the filter)",
            (true, None) if state.model.no_counters.is_none() => "waiting for the first interval",
            _ => "no PCIe port in these records",
        };
        pen.put(1, 1, pen.width(), text, pen.theme.quiet());
        return;
    }
    // What stands below an idle port is as quiet as the port.
    let mut is_idle = false;
    for (place, row) in rows.iter().enumerate().take(first + shown) {
        if row.depth == 0 {
            let source = row.source.and_then(|place| state.model.live.sources.get(place));
            is_idle = source.is_some_and(|source| source.failure(span).is_none() && source.is_idle(span));
        }
        let Some(y) = place.checked_sub(first).map(|y| y as u16 + 1) else { continue };
        draw_row(pen, y, state, span, row, &columns, has_counters);
        if is_idle {
            pen.paint(y, pen.theme.quiet());
        }
        if place == chosen {
            let (mark, style) = pen.theme.marker();
            pen.paint(y, pen.theme.selected());
            pen.put(0, y, 1, mark, style);
        }
    }
}

/// The rows, the chosen one, and the first that is shown.
pub(super) struct Window {
    pub rows: Vec<Row>,
    chosen: usize,
    pub first: usize,
}

/// What is seen of the rows in so many lines: the chosen row is kept in the middle, as far as there are rows on both sides.
pub(super) fn window(state: &State, lines: u16) -> Window {
    let (rows, chosen) = state.rows();
    let shown = usize::from(lines);
    let first = chosen.saturating_sub(shown / 2).min(rows.len().saturating_sub(shown));
    Window { rows, chosen, first }
}

fn heading(pen: &mut Pen<'_>, columns: &Columns, has_counters: bool, part: &str) {
    let style = pen.theme.columns();
    pen.paint(0, style);
    if !has_counters {
        let name = columns.name.max(19) + 1;
        pen.put(1, 0, name, &format!("FUNCTION{part}"), style);
        pen.put(name + 1, 0, pen.width(), "LINK, DRIVER, NODE, NAME", style);
        return;
    }
    pen.put(1, 0, columns.name, &format!("PORT{part}"), style);
    let mut x = columns.name + 2;
    for (title, wide, column) in &columns.rest {
        match column {
            Column::Link | Column::State | Column::History => drop(pen.put(x, 0, *wide, title, style)),
            _ => pen.put_right(x, 0, *wide, title, style),
        }
        x += wide + 1;
    }
}

fn draw_row(pen: &mut Pen<'_>, y: u16, state: &State, span: u64, row: &Row, columns: &Columns, has_counters: bool) {
    let source = row.source.and_then(|place| state.model.live.sources.get(place));
    let function = match row.id {
        RowId::Function(bdf) => state.model.functions().get(&bdf),
        RowId::Source(_) => None,
    };
    let function = function.or_else(|| source.and_then(|source| source.port.as_ref()));
    let name = match (row.id, source) {
        (RowId::Function(bdf), _) => bdf.to_string(),
        (RowId::Source(_), Some(source)) => clean(&tree::name(source)),
        (RowId::Source(_), None) => "?".to_owned(),
    };
    let name = format!("{}{name}", branch(pen, row));
    let Some(source) = source else {
        // A function without figures of its own: its line describes it.
        let end = pen.put(1, y, pen.width(), &name, Style::new());
        let from = (columns.name.max(if has_counters { 0 } else { 19 }) + 2).max(end + 1);
        about(pen, from, y, state, function);
        return;
    };
    let end = pen.put(1, y, columns.name, &name, Style::new());
    let driver = || source.port.as_ref()?.driver.as_deref().map(clean).filter(|_| columns.name > 20);
    let room = (columns.name + 1).saturating_sub(end + 1);
    if let Some(words) = called(function, source).or_else(driver).filter(|_| room > 2) {
        pen.put(end + 1, y, room, &fit(&words, room), pen.theme.quiet());
    }
    let mut x = columns.name + 2;
    for (_, wide, column) in &columns.rest {
        draw_cell(pen, (x, y, *wide), state, span, source, function, column);
        x += wide + 1;
    }
    if let Some(failure) = source.failure(span) {
        let text = format!("{}: nothing counts any more", clean(&failure.code));
        // The text covers the columns of rates, which are empty.
        let from = columns.name
            + 2
            + columns.rest.first().filter(|(.., column)| *column == Column::Link).map_or(0, |c| c.1 + 1);
        pen.put(from, y, pen.width(), &" ".repeat(usize::from(pen.width())), Style::new());
        pen.put(from, y, pen.width(), &text, pen.theme.bad());
    }
}

/// What programs call a function, else the first of those below it.
fn called(function: Option<&Function>, source: &Source) -> Option<String> {
    let below = || source.below.iter().find_map(|below| first_of(&below.devices));
    function.and_then(|function| first_of(&function.devices)).or_else(below)
}

/// The lines that lead to a function from its parent.
fn branch(pen: &Pen<'_>, row: &Row) -> String {
    // A deep tree must leave room for the address.
    let indent = "  ".repeat(row.depth.saturating_sub(1).min(6));
    match (row.depth, pen.theme.has_unicode, row.has_next) {
        (0, ..) => String::new(),
        (_, true, true) => format!("{indent}\u{251c} "),
        (_, true, false) => format!("{indent}\u{2514} "),
        (_, false, true) => format!("{indent}| "),
        (_, false, false) => format!("{indent}` "),
    }
}

/// What a function is: link, driver, node, name.
fn about(pen: &mut Pen<'_>, x: u16, y: u16, state: &State, function: Option<&Function>) {
    let Some(function) = function else { return };
    let (link, is_bad) = link_text(state, function, 14);
    let end = pen.put(x, y, pen.width(), &link, if is_bad { pen.theme.bad() } else { Style::new() });
    // Nothing stands in the column of links but a link.
    let mut x = end.max(x + 6) + 1;
    if let Some(name) = first_of(&function.devices) {
        x = pen.put(x, y, pen.width(), &name, Style::new()) + 1;
    }
    let driver = function.driver.as_deref().map(clean).unwrap_or_else(|| "no driver".to_owned());
    let style = if function.driver.is_none() { pen.theme.quiet() } else { Style::new() };
    x = pen.put(x, y, pen.width(), &fit(&driver, 20), style) + 1;
    if let Some(node) = function.node {
        x = pen.put(x, y, pen.width(), &format!("node {node}"), pen.theme.quiet()) + 1;
    }
    pen.put(x, y, pen.width(), &clean(&function.name), pen.theme.quiet());
}

/// A link in at most `columns`: `32 x4`, with `!` and, where there is room, what both ends could do.
pub fn link_text(state: &State, function: &Function, columns: u16) -> (String, bool) {
    let Some((link, better)) = tree::link(&state.model, function) else { return ("-".to_owned(), false) };
    let text = |speed: f64, lanes: u8| format!("{} x{lanes}", speed_text(speed));
    if let Some(word) = function.link_state().and_then(LinkState::word) {
        return (word.to_owned(), false);
    }
    match (link, better) {
        (link, None) => (text(link.speed_gts, link.width), false),
        (link, Some((speed, lanes))) => {
            let short = format!("{}!", text(link.speed_gts, link.width));
            let long = format!("{short}<{}", text(speed, lanes));
            (if width(&long) <= columns { long } else { short }, true)
        }
    }
}

/// A transfer rate as `2.5`, `32` or `64`; `?` for a number that no link has.
fn speed_text(speed: f64) -> String {
    if !(0.1..1000.0).contains(&speed) {
        return "?".to_owned();
    }
    format!("{speed:.1}").trim_end_matches(".0").to_owned()
}

fn draw_cell(
    pen: &mut Pen<'_>,
    (x, y, wide): (u16, u16, u16),
    state: &State,
    span: u64,
    source: &Source,
    function: Option<&Function>,
    column: &Column,
) {
    let theme = pen.theme;
    match column {
        Column::Link => {
            let (text, is_bad) = function.map_or_else(|| ("-".to_owned(), false), |one| link_text(state, one, wide));
            pen.put(x, y, wide, &text, if is_bad { theme.bad() } else { Style::new() });
        }
        Column::Rate(direction) => {
            let text = cell(source.figure(&format!("{direction}_bytes_per_s"), span));
            pen.put_right(x, y, wide, &text, Style::new());
        }
        Column::Bar(direction) => pen.bar(x, y, wide, source.share(direction, span)),
        Column::Share(direction) => pen.put_right(x, y, wide, &share(source.share(direction, span)), Style::new()),
        Column::State => {
            let states = states(source, span);
            let text = states
                .first()
                .map_or_else(|| "-".to_owned(), |(name, value)| format!("{} {}", state_name(name), whole(*value)));
            pen.put(x, y, wide, &text, Style::new());
        }
        Column::Errors => {
            let errors = source.errors(span);
            let style = if errors.is_some_and(|errors| errors.value > 0.0) { theme.bad() } else { Style::new() };
            pen.put_right(x, y, wide, &cell(errors), style);
        }
        Column::Count(_) | Column::Layer(_) => {
            let figure = match column {
                Column::Count(name) => source.figure(name, span),
                Column::Layer(layer) => source.layer_errors(*layer, span),
                _ => None,
            };
            let style = if figure.is_some_and(|figure| figure.value > 0.0) { theme.doubtful() } else { Style::new() };
            pen.put_right(x, y, wide, &cell(figure), style);
        }
        Column::Time(name) => {
            let text = source.figure(name, span).map_or_else(|| "-".to_owned(), time_share);
            pen.put_right(x, y, wide, &text, Style::new());
        }
        Column::History => {
            let rate = |name, number| source.value(name, number);
            let both = |number| joined(rate("rx_bytes_per_s", number), rate("tx_bytes_per_s", number), f64::add);
            let values = state.model.live.history(span, both);
            pen.put(x, y, wide, &bars::history(theme, &values, wide), theme.history());
        }
    }
}

fn time_share(figure: Figure) -> String {
    let mark = if figure.running.is_some() { "~" } else { "" };
    if figure.value.is_finite() && figure.value.abs() < 999.5 {
        format!("{mark}{:.1}", figure.value)
    } else {
        short(figure.value)
    }
}

fn whole(value: f64) -> String {
    if value.is_finite() && value.abs() < 999.5 { format!("{value:.0}") } else { "?".to_owned() }
}

/// The shares of time in states of the link, the largest first.
pub fn states(source: &Source, span: u64) -> Vec<(&str, f64)> {
    let shares = source.figures(span).into_iter().filter(|(name, ..)| is_state(name));
    let mut states: Vec<_> = shares.map(|(name, _, figure)| (name.trim_end_matches("_share"), figure.value)).collect();
    states.sort_by(|one, other| other.1.total_cmp(&one.1));
    states
}

/// A state of the link as people write it: `L0`, `TX_L0s`, `L1.1`.
pub fn state_name(name: &str) -> String {
    match name {
        "l0" => "L0".to_owned(),
        "l1" => "L1".to_owned(),
        "l1_1" => "L1.1".to_owned(),
        "l1_2" => "L1.2".to_owned(),
        "tx_l0s" => "txL0s".to_owned(),
        "rx_l0s" => "rxL0s".to_owned(),
        "tx_rx_l0s" => "L0s".to_owned(),
        "l1_aux" => "L1aux".to_owned(),
        "recovery" => "Recov".to_owned(),
        other => clean(other),
    }
}
