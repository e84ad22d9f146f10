//! Everything that is doubtful, and what to do about it.

use ratatui::style::Style;

use super::Pen;
use crate::state::State;
use crate::text::{clean, wrap};

/// Draws the warnings of the records.
pub fn draw(pen: &mut Pen<'_>, state: &State) {
    let columns = pen.width();
    let mut lines: Vec<(String, Style)> = Vec::new();
    for source in &state.model.live.sources {
        if let Some((_, failure)) = &source.failure {
            let hint = failure.hint.as_deref().unwrap_or("");
            add(&mut lines, columns, (&failure.code, &failure.text, hint), pen.theme.bad());
        }
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
