//! Counters without a table of their own, by name.

use pciescope_core::live::Source;
use ratatui::style::Style;

use super::{Pen, cell};
use crate::state::State;
use crate::text::{clean, fit};
use crate::tree;

/// A line for each figure of the sources that are neither port nor channel.
pub fn lines(state: &State) -> Vec<(String, Style)> {
    let span = state.shown().unwrap_or(0);
    let is_other =
        |source: &&Source| !source.is_port() && !source.is_function() && !source.is_channel() && !source.is_sum();
    let words: Vec<String> = state.filter.split_whitespace().map(str::to_lowercase).collect();
    let mut lines: Vec<(String, Style)> = Vec::new();
    for source in state.model.live.sources.iter().filter(is_other) {
        let name = fit(&clean(&tree::full_name(&state.model, source)), 26);
        if let Some(failure) = source.failure(span) {
            lines.push((format!("{:>7} {:<8} {name} {}", "-", "", clean(&failure.code)), state.theme.bad()));
        }
        for (what, unit, figure) in source.figures(span) {
            let line = format!("{:>7} {:<8} {name} {}", cell(Some(figure)), fit(&clean(unit), 8), clean(what));
            let text = line.to_lowercase();
            if words.iter().all(|word| text.contains(word.as_str())) {
                lines.push((line, Style::new()));
            }
        }
    }
    lines
}

/// Draws them.
pub fn draw(pen: &mut Pen<'_>, state: &State) {
    let lines = lines(state);
    if lines.is_empty() {
        let text = "no other counter is read; `pciescope stat -e` reads one by name, and its records can be replayed";
        pen.put(0, 0, pen.width(), text, pen.theme.quiet());
        return;
    }
    let style = pen.theme.columns();
    pen.paint(0, style);
    pen.put(0, 0, pen.width(), &format!("{:>7} {:<8} COUNTER", "VALUE", "UNIT"), style);
    let height = pen.height().saturating_sub(1);
    pen.part(1, height).lines(&lines, state.scroll);
}
