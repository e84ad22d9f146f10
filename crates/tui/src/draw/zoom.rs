//! One port or function with everything that is known of it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pciescope_catalogue::is_state;
use pciescope_core::WatchedLink;
use pciescope_core::live::Source;
use pciescope_core::text::{first_of, span};
use ratatui::style::Style;

use super::ports::{link_text, state_name, states};
use super::{Pen, cell, share};
use crate::bars;
use crate::state::{RowId, State};
use crate::text::{clean, fit, percent, short, wrap};
use crate::theme::Theme;
use crate::tree;

/// What counts for a row.
fn source_of(state: &State, id: RowId) -> Option<&Source> {
    let source = state.model.live.sources.iter().enumerate().find(|(place, source)| match id {
        RowId::Source(one) => one == *place,
        RowId::Function(bdf) => {
            (source.is_port() || source.is_function()) && source.port.as_ref().and_then(|port| port.bdf) == Some(bdf)
        }
    });
    source.map(|(_, source)| source)
}

/// Draws the charts of a row and its name, over all lines of the pen.
pub fn charts(pen: &mut Pen<'_>, state: &State, id: RowId) {
    let (Some(source), span) = (source_of(state, id), state.shown().unwrap_or(0)) else { return };
    title(pen, state, id, Some(source));
    let rows = ((pen.height() - 2) / 2).saturating_sub(1).min(12);
    for (place, named) in [("Rx", "rx"), ("Tx", "tx")].into_iter().enumerate() {
        chart(&mut pen.part(2 + place as u16 * (rows + 1), rows + 1), state, span, source, named, rows);
    }
}

/// Draws what the row is about.
pub fn draw(pen: &mut Pen<'_>, state: &State, id: RowId) {
    let span = state.shown().unwrap_or(0);
    let source = source_of(state, id);
    let y = title(pen, state, id, source);
    let Some(source) = source else {
        let height = pen.height().saturating_sub(y);
        return details(&mut pen.part(y, height), state, span, id, None);
    };
    let y = match source.failure(span) {
        Some(failure) => {
            let text = format!("nothing counts any more: {} [{}]", clean(&failure.text), clean(&failure.code));
            pen.put(0, y, pen.width(), &text, pen.theme.bad());
            y + 1
        }
        None => y,
    };
    // The charts of both directions share evenly what 8 lines of details leave.
    let rows = (pen.height().saturating_sub(y + 8) / 2).saturating_sub(1).min(8);
    let mut y = y;
    for (title, direction) in [("Rx", "rx"), ("Tx", "tx")] {
        y += chart(&mut pen.part(y, rows + 1), state, span, source, (title, direction), rows);
    }
    let height = pen.height().saturating_sub(y);
    details(&mut pen.part(y, height), state, span, id, Some(source));
}

/// Name and link; gives the lines used.
fn title(pen: &mut Pen<'_>, state: &State, id: RowId, source: Option<&Source>) -> u16 {
    let function = match id {
        RowId::Function(bdf) => state.model.functions().get(&bdf),
        RowId::Source(_) => None,
    };
    let function = function.or_else(|| source.and_then(|source| source.port.as_ref()));
    let name = match (id, source) {
        (RowId::Function(bdf), _) => bdf.to_string(),
        (_, Some(source)) => tree::name(source),
        _ => "?".to_owned(),
    };
    let x = pen.put(0, 0, pen.width(), &clean(&name), pen.theme.title()) + 1;
    let Some(function) = function else { return 1 };
    let what = format!("{} [{:04x}:{:04x}]", clean(&function.name), function.vendor, function.device);
    pen.put(x, 0, pen.width(), &what, Style::new());
    let mut parts = Vec::new();
    let (link, is_bad) = link_text(state, function, 40);
    if let Some(full) = function.link {
        // A word says that no speed is known.
        parts.push(match link.starts_with(|first: char| first.is_ascii_digit()) {
            true => format!("link {link} GT/s (this end {} x{})", short(full.max_speed_gts), full.max_width),
            false => format!("link {link}"),
        });
        if let Some(mps) = full.mps_bytes {
            parts.push(format!("MPS {mps}"));
        }
        if let Some(mrrs) = full.mrrs_bytes {
            parts.push(format!("MRRS {mrrs}"));
        }
    }
    parts.extend(first_of(&function.devices));
    parts.push(format!("driver {}", function.driver.as_deref().map_or_else(|| "none".to_owned(), clean)));
    if let Some(node) = function.node.or(source.and_then(|source| source.node)) {
        parts.push(format!("node {node}"));
    }
    if let Some(pmu) = source.and_then(|source| source.pmu.as_deref()) {
        parts.push(format!("by {}", clean(pmu)));
    }
    pen.put(0, 1, pen.width(), &parts.join(", "), if is_bad { pen.theme.bad() } else { Style::new() });
    2
}

/// One direction: a line with bar and figure, and a chart below it if there is room.
fn chart(
    pen: &mut Pen<'_>,
    state: &State,
    span: u64,
    source: &Source,
    (title, direction): (&str, &str),
    rows: u16,
) -> u16 {
    let columns = pen.width();
    let name = format!("{direction}_bytes_per_s");
    let figure = source.figure(&name, span);
    let ceiling = source.value("link_bytes_per_s", span).filter(|ceiling| ceiling.is_finite() && *ceiling > 0.0);
    let values = state.model.live.history(span, |number| source.value(&name, number));
    let x = pen.put(0, 0, columns, &format!("{title} {:>6} B/s ", cell(figure)), pen.theme.title());
    let bar = (columns / 4).min(30);
    pen.bar(x, 0, bar, source.share(direction, span));
    let x = pen.put(x + bar + 1, 0, columns, &format!("{:>5}", share(source.share(direction, span))), Style::new()) + 1;
    let most = bars::largest(&values);
    let of = ceiling.map_or_else(String::new, |ceiling| format!(" of {} B/s", short(ceiling)));
    let note = format!("{of}; largest shown {}", short(most));
    let x = pen.put(x, 0, columns, note.trim_start_matches("; "), pen.theme.quiet()) + 1;
    if rows == 0 {
        let room = columns.saturating_sub(x).min(60);
        if room >= 8 {
            pen.put(x, 0, room, &bars::history(pen.theme, &values, room), pen.theme.history());
        }
        return 1;
    }
    // The chart reaches up to the ceiling only if the figures come near it: a quiet link would be a flat line.
    let top = ceiling.filter(|ceiling| most > ceiling / 4.0).unwrap_or(most);
    for (y, line) in bars::chart(pen.theme, &values, top, columns, rows).iter().enumerate() {
        pen.put(0, y as u16 + 1, columns, line, pen.theme.history());
    }
    rows + 1
}

fn details(pen: &mut Pen<'_>, state: &State, span: u64, id: RowId, source: Option<&Source>) {
    let theme = pen.theme;
    let columns = pen.width();
    let mut lines: Vec<(String, Style)> = Vec::new();
    if let Some(source) = source {
        let states: Vec<String> = states(source, span)
            .iter()
            .map(|(name, value)| format!("{} {}", state_name(name), percent(*value)))
            .collect();
        let states = if states.is_empty() { "not counted (--metric states)".to_owned() } else { states.join("  ") };
        lines.push((format!("States  {states}"), Style::new()));
        lines.push(errors(source, span, theme));
        let seen: Vec<String> = source
            .error_counts(span)
            .into_iter()
            .map(|(name, figure)| format!("{name} {}", cell(Some(figure))))
            .collect();
        if !seen.is_empty() {
            let text = format!("        seen by {}", seen.join(", "));
            lines.extend(wrap(&text, columns).into_iter().map(|line| (line, Style::new())));
        }
    }
    let of_row = match id {
        RowId::Function(bdf) => Some(bdf),
        RowId::Source(_) => source.and_then(|source| source.port.as_ref()?.bdf),
    };
    if let Some(link) = of_row.and_then(|bdf| state.model.watched(bdf)) {
        lines.extend(changes(link).iter().flat_map(|text| wrap(text, columns)).map(|line| (line, Style::new())));
    }
    if let RowId::Function(bdf) = id {
        let below = state.model.functions().values().filter(|one| one.path.contains(&bdf));
        for function in below {
            let address = function.bdf.map(|bdf| bdf.to_string()).unwrap_or_default();
            let (link, is_bad) = link_text(state, function, 14);
            let driver = function.driver.as_deref().map_or_else(|| "no driver".to_owned(), clean);
            let driver = first_of(&function.devices).map_or(driver.clone(), |name| format!("{name} {driver}"));
            let node = function.node.map_or_else(String::new, |node| format!(" node {node}"));
            let line = format!("Below   {address} {link} {}{node} {}", fit(&driver, 20), clean(&function.name));
            lines.push((line, if is_bad { theme.bad() } else { Style::new() }));
        }
    }
    if let Some(source) = source {
        for warning in &source.warnings {
            for line in wrap(&format!("{}: {}", clean(&warning.code), clean(&warning.text)), columns) {
                lines.push((line, theme.doubtful()));
            }
        }
        let shown = ["rx_bytes_per_s", "tx_bytes_per_s", "rx_link_share", "tx_link_share", "link_bytes_per_s"];
        let mut figures = source.figures(span);
        figures.sort_by_key(|(.., figure)| figure.value == 0.0);
        for (name, unit, figure) in figures {
            if shown.contains(&name) || is_state(name) {
                continue;
            }
            let unit = if unit == "1" { "" } else { unit };
            let line = format!("{:>8} {:<8} {}", cell(Some(figure)), fit(&clean(unit), 8), clean(name));
            lines.push((line, if figure.value == 0.0 { theme.quiet() } else { Style::new() }));
        }
    }
    if lines.is_empty() {
        lines.push(("nothing counts for this function".to_owned(), theme.quiet()));
    }
    pen.lines(&lines, state.scroll);
}

/// The last change of a link, and those of 7 days by cause.
fn changes(link: &WatchedLink) -> Option<String> {
    let at = UNIX_EPOCH + Duration::from_secs(link.changed_s?);
    let since = SystemTime::now().duration_since(at).unwrap_or_default();
    let causes: Vec<String> = link.causes.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
    let last = format!("Changed {} ago: {}", span(since.as_nanos() as u64), clean(&link.last));
    Some(format!("{last}; in 7 days {}", causes.join(", ")))
}

fn errors(source: &Source, span: u64, theme: Theme) -> (String, Style) {
    let errors = source.errors(span);
    let mut line = format!("Errors  {} since the beginning", cell(errors));
    for (title, name) in [("NAK", "naks"), ("retries", "retries"), ("recoveries", "recoveries")] {
        if let Some(figure) = source.figure(name, span) {
            line += &format!(", {title} {}", cell(Some(figure)));
        }
    }
    let is_bad = errors.is_some_and(|errors| errors.value > 0.0);
    (line, if is_bad { theme.bad() } else { Style::new() })
}
