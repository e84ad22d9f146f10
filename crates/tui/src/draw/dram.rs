//! DRAM: a line for each die with its channels as levels, or a line for each channel.

use std::collections::BTreeMap;
use std::ops::Add;

use pciescope_core::joined;
use pciescope_core::live::{Figure, Source};
use ratatui::style::Style;

use super::{Pen, cell, share};
use crate::bars;
use crate::model::Model;
use crate::state::State;
use crate::text::{clean, width};
use crate::tree;

/// The channels of a die, and the die's own record where there is one.
struct Die<'m> {
    node: Option<u32>,
    sum: Option<&'m Source>,
    channels: Vec<&'m Source>,
}

fn dies(model: &Model) -> Vec<Die<'_>> {
    let mut dies: BTreeMap<Option<u32>, Die<'_>> = BTreeMap::new();
    for source in model.live.sources.iter().filter(|source| source.is_channel()) {
        let die = Die { node: source.node, sum: None, channels: Vec::new() };
        dies.entry(source.node).or_insert(die).channels.push(source);
    }
    // With a single die the sum of all channels is its sum.
    let is_single = dies.len() == 1;
    for source in model.live.sources.iter().filter(|source| source.is_sum()) {
        let is_its = |die: &Die<'_>| {
            (source.scope == "die" && die.node == source.node) || (source.scope == "total" && is_single)
        };
        for die in dies.values_mut().filter(|die| is_its(die)) {
            die.sum = Some(source);
        }
    }
    dies.into_values().collect()
}

impl Die<'_> {
    /// A figure of the die: its record's, else the sum of its channels'.
    fn figure(&self, name: &str, span: u64) -> Option<Figure> {
        let stated = self.sum.and_then(|sum| sum.figure(name, span));
        stated.or_else(|| {
            let figures = self.channels.iter().filter_map(|channel| channel.figure(name, span));
            figures.reduce(Figure::plus)
        })
    }

    /// The share of what the die can carry: its record's, else the mean of its channels'.
    fn share(&self, span: u64) -> Option<f64> {
        let stated = self.sum.and_then(|sum| sum.value("peak_share", span));
        stated.or_else(|| {
            let shares: Vec<f64> =
                self.channels.iter().filter_map(|channel| channel.value("peak_share", span)).collect();
            (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
        })
    }

    fn name(&self) -> String {
        self.node.map_or_else(|| "all".to_owned(), |node| format!("die {node}"))
    }
}

/// Reads and writes of a channel together.
fn total(source: &Source, span: u64) -> Option<f64> {
    let rate = |name| source.value(name, span);
    let both = || joined(rate("read_bytes_per_s"), rate("write_bytes_per_s"), f64::add);
    rate("total_bytes_per_s").or_else(both)
}

/// How many of `room` lines the summary uses; 0 without channels of memory.
pub fn wanted(state: &State, room: u16) -> u16 {
    let dies = dies(&state.model);
    if dies.is_empty() {
        return 0;
    }
    let channels: usize = dies.iter().map(|die| die.channels.len()).sum();
    let long = u16::try_from(dies.len() + channels + 1).unwrap_or(u16::MAX);
    let short = u16::try_from(dies.len() + 1).unwrap_or(u16::MAX);
    if long <= room { long } else { short.min(room) }
}

/// The dies, with a line for each channel where there is room for all.
pub fn summary(pen: &mut Pen<'_>, state: &State) {
    let dies = dies(&state.model);
    let channels: usize = dies.iter().map(|die| die.channels.len()).sum();
    let is_long = usize::from(pen.height()) > dies.len() + channels;
    table(pen, state, &dies, is_long, 0);
}

/// All channels by die.
pub fn draw(pen: &mut Pen<'_>, state: &State) {
    let dies = dies(&state.model);
    if dies.is_empty() {
        pen.put(
            0,
            0,
            pen.width(),
            "no DRAM channel is counted here (`pciescope stat --list` shows what can be)",
            pen.theme.quiet(),
        );
        return;
    }
    table(pen, state, &dies, true, state.scroll);
}

/// Places of the columns.
struct Columns {
    name: u16,
    bar: u16,
    /// Levels of a die's channels, or nothing.
    levels: u16,
    history: u16,
}

fn columns(width: u16, most_channels: usize, is_long: bool) -> Columns {
    let name = if is_long { 18.min(width / 3) } else { 8 };
    let mut left = width.saturating_sub(name + 2 + 7 + 7 + 6);
    let bar = if left >= 40 { 14 } else { left.min(8) };
    left = left.saturating_sub(bar + 1);
    let levels = if is_long || usize::from(left) < most_channels.min(8) {
        0
    } else {
        left.min(u16::try_from(most_channels).unwrap_or(u16::MAX)).min(32)
    };
    left = left.saturating_sub(if levels > 0 { levels + 1 } else { 0 });
    Columns { name, bar, levels, history: if left >= 8 { left.min(60) } else { 0 } }
}

fn table(pen: &mut Pen<'_>, state: &State, dies: &[Die<'_>], is_long: bool, scroll: u16) {
    let Some(lines) = pen.height().checked_sub(1) else { return };
    let span = state.shown().unwrap_or(0);
    let most = dies.iter().map(|die| die.channels.len()).max().unwrap_or(0);
    let columns = columns(pen.width(), most, is_long);
    let mut rows: Vec<(&Die<'_>, Option<&Source>)> = Vec::new();
    for die in dies {
        rows.push((die, None));
        if is_long {
            rows.extend(die.channels.iter().map(|channel| (die, Some(*channel))));
        }
    }
    let scroll = usize::from(scroll).min(rows.len().saturating_sub(usize::from(lines)));
    let part = match rows.len() > usize::from(lines) {
        true => format!(" {}-{}/{}", scroll + 1, scroll + usize::from(lines), rows.len()),
        false => String::new(),
    };
    heading(pen, &columns, &part);
    for (y, (die, channel)) in rows.iter().skip(scroll).take(usize::from(lines)).enumerate() {
        let y = y as u16 + 1;
        match channel {
            Some(channel) => draw_channel(pen, y, state, span, channel, &columns),
            None => draw_die(pen, y, state, span, die, &columns),
        }
    }
}

fn heading(pen: &mut Pen<'_>, columns: &Columns, part: &str) {
    let style = pen.theme.columns();
    pen.paint(0, style);
    let title = format!("DRAM{part}");
    let title = if width(&title) <= columns.name { &title } else { "DRAM" };
    pen.put(1, 0, columns.name, title, style);
    let mut x = columns.name + 2;
    for (title, wide) in [("READ", 6), ("WRITE", 6)] {
        pen.put_right(x, 0, wide, title, style);
        x += wide + 1;
    }
    pen.put(x, 0, columns.bar, "OF PEAK", style);
    x += columns.bar + 1 + 5 + 1;
    if columns.levels > 0 {
        pen.put(x, 0, columns.levels, "CHANNELS", style);
        x += columns.levels + 1;
    }
    pen.put(x, 0, columns.history, "HISTORY", style);
}

fn draw_die(pen: &mut Pen<'_>, y: u16, state: &State, span: u64, die: &Die<'_>, columns: &Columns) {
    let title = pen.theme.title();
    pen.put(1, y, columns.name, &die.name(), title);
    let figure = |name: &str| cell(die.figure(name, span));
    let x = rates(pen, y, columns, &figure("read_bytes_per_s"), &figure("write_bytes_per_s"), die.share(span));
    let levels = |span: u64| -> String {
        let shares: Vec<Option<f64>> = die.channels.iter().map(|channel| channel.value("peak_share", span)).collect();
        let totals: Vec<Option<f64>> = die.channels.iter().map(|channel| total(channel, span)).collect();
        // The scale is the peak if it is known, else the busiest channel.
        let (values, most) = if shares.iter().any(Option::is_some) {
            (shares, 100.0)
        } else {
            let most = bars::largest(&totals);
            (totals, most)
        };
        values.iter().map(|value| value.map_or(' ', |value| bars::level(pen.theme, value, most))).collect()
    };
    let levels = levels(span);
    let mut x = x;
    if columns.levels > 0 {
        pen.put(x, y, columns.levels, &levels, pen.theme.bar(0.0));
        x += columns.levels + 1;
    }
    let both = |number: u64| {
        let known: Vec<f64> = die.channels.iter().filter_map(|channel| total(channel, number)).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    };
    past(pen, x, y, columns, state.model.live.history(span, both));
}

fn draw_channel(pen: &mut Pen<'_>, y: u16, state: &State, span: u64, channel: &Source, columns: &Columns) {
    pen.put(2, y, columns.name - 1, &clean(&tree::name(channel)), Style::new());
    if let Some(failure) = channel.failure(span) {
        let text = format!("{}: nothing counts any more", clean(&failure.code));
        pen.put(columns.name + 2, y, pen.width(), &text, pen.theme.bad());
        return;
    }
    let figure = |name: &str| cell(channel.figure(name, span));
    let share = channel.value("peak_share", span);
    let x = rates(pen, y, columns, &figure("read_bytes_per_s"), &figure("write_bytes_per_s"), share);
    past(pen, x, y, columns, state.model.live.history(span, |number| total(channel, number)));
}

/// Reads, writes and the share of the peak; gives the next column.
fn rates(pen: &mut Pen<'_>, y: u16, columns: &Columns, read: &str, write: &str, of_peak: Option<f64>) -> u16 {
    let x = columns.name + 2;
    pen.put_right(x, y, 6, read, Style::new());
    pen.put_right(x + 7, y, 6, write, Style::new());
    pen.bar(x + 14, y, columns.bar, of_peak);
    let x = x + 14 + columns.bar + 1;
    pen.put_right(x, y, 5, &share(of_peak), Style::new());
    x + 6
}

fn past(pen: &mut Pen<'_>, x: u16, y: u16, columns: &Columns, values: Vec<Option<f64>>) {
    let text = bars::history(pen.theme, &values, columns.history);
    pen.put(x, y, columns.history, &text, pen.theme.history());
}
