//! Everything that is doubtful, and what to do about it.

use ratatui::style::Style;

use super::{Pen, cell};
use crate::state::State;
use crate::text::{clean, short, wrap};
use crate::tree;

/// What is wrong with the machine: links that are slower than both of their ends, and errors of links.
pub fn faults(state: &State) -> Vec<(&'static str, String)> {
    let span = state.shown().unwrap_or(0);
    let functions = state.model.functions().values();
    // The lower end of a link speaks for both.
    let links = functions.filter(|one| one.path.len() % 2 == 1).filter_map(|one| {
        let (link, better) = tree::link(&state.model, one)?;
        let ((speed, lanes), bdf) = (better?, one.bdf?);
        let now = format!("{} GT/s x{}", short(link.speed_gts), link.width);
        Some(("link", format!("{bdf}: its link runs at {now}, and both ends can do {} GT/s x{lanes}", short(speed))))
    });
    let errors = state.model.live.links().filter_map(|source| {
        let sum = source.errors(span).filter(|sum| sum.value > 0.0)?;
        let name =
            source.port.as_ref().and_then(|port| port.bdf).map_or_else(|| tree::name(source), |bdf| bdf.to_string());
        let seen = source.error_counts(span).into_iter().map(|(name, figure)| format!("{name} {}", cell(Some(figure))));
        let seen = seen.collect::<Vec<_>>().join(", ");
        Some(("errors", format!("{name}: {} since the beginning, seen by {seen}", cell(Some(sum)))))
    });
    links.chain(errors).collect()
}

/// Draws the faults of the machine and the warnings of the records.
pub fn draw(pen: &mut Pen<'_>, state: &State) {
    let columns = pen.width();
    let mut lines: Vec<(String, Style)> = Vec::new();
    for source in &state.model.live.sources {
        if let Some((_, failure)) = &source.failure {
            let hint = failure.hint.as_deref().unwrap_or("");
            add(&mut lines, columns, (&failure.code, &failure.text, hint), pen.theme.bad());
        }
    }
    for (code, text) in faults(state) {
        add(&mut lines, columns, (code, &text, ""), pen.theme.bad());
    }
    for warning in &state.model.live.warnings {
        add(&mut lines, columns, (&warning.code, &warning.text, &warning.hint), pen.theme.doubtful());
    }
    if state.model.passed_over > 0 {
        let text = format!("{} records belong to no live view and are skipped", state.model.passed_over);
        lines.extend(wrap(&text, columns).into_iter().map(|line| (line, pen.theme.quiet())));
    }
    if lines.is_empty() {
        lines.push(("nothing is doubtful".to_owned(), pen.theme.quiet()));
    }
    pen.lines(&lines, state.scroll);
}

fn add(lines: &mut Vec<(String, Style)>, columns: u16, (code, text, hint): (&str, &str, &str), style: Style) {
    lines.extend(wrap(&format!("{}: {}", clean(code), clean(text)), columns).into_iter().map(|line| (line, style)));
    if !hint.is_empty() {
        let hint = wrap(&format!("hint: {}", clean(hint)), columns.saturating_sub(2));
        lines.extend(hint.into_iter().map(|line| (format!("  {line}"), Style::new())));
    }
}
