//! A state as a screen: head lines, the view, the foot line. Each view is a file.

mod counters;
mod dram;
mod help;
mod ports;
mod warnings;
mod zoom;

use pciescope_core::live::{Figure, Source};
use pciescope_core::text::ascii;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::bars;
use crate::state::{Origin, RowId, State, View};
use crate::text::{clean, clock, fit, percent, period, short, width, wrap};
use crate::theme::Theme;

/// The smallest screen that is drawn: columns and lines.
const LEAST: (u16, u16) = (30, 6);

/// Charts of the chosen row need so many lines.
const LEAST_CHART: u16 = 10;

/// A part of the screen to write to. Places count from its upper left corner; text outside is dropped.
pub(crate) struct Pen<'b> {
    buffer: &'b mut Buffer,
    area: Rect,
    pub theme: Theme,
}

impl Pen<'_> {
    pub fn width(&self) -> u16 {
        self.area.width
    }

    pub fn height(&self) -> u16 {
        self.area.height
    }

    /// The lines from `from` on, `lines` of them, as a pen of their own.
    pub fn part(&mut self, from: u16, lines: u16) -> Pen<'_> {
        let from = from.min(self.area.height);
        let lines = lines.min(self.area.height - from);
        let area = Rect::new(self.area.x, self.area.y + from, self.area.width, lines);
        Pen { buffer: self.buffer, area, theme: self.theme }
    }

    /// Puts text into at most `columns` and gives the column behind it.
    pub fn put(&mut self, x: u16, y: u16, columns: u16, text: &str, style: Style) -> u16 {
        let columns = columns.min(self.area.width.saturating_sub(x));
        if y >= self.area.height || columns == 0 {
            return x;
        }
        let text = if self.theme.has_unicode { fit(text, columns) } else { fit(&ascii(text), columns) };
        self.buffer.set_stringn(self.area.x + x, self.area.y + y, &text, usize::from(columns), style);
        x + width(&text).min(columns)
    }

    /// Puts text at the right end of `columns`.
    pub fn put_right(&mut self, x: u16, y: u16, columns: u16, text: &str, style: Style) {
        let used = width(text).min(columns);
        self.put(x + columns - used, y, used, text, style);
    }

    /// Puts a bar.
    pub fn bar(&mut self, x: u16, y: u16, columns: u16, percent: Option<f64>) {
        let (filled, empty) = bars::bar(self.theme, percent, columns);
        let end = self.put(x, y, columns, &filled, self.theme.bar(percent.unwrap_or(0.0)));
        self.put(end, y, (x + columns).saturating_sub(end), &empty, self.theme.quiet());
    }

    /// Gives a line a style on top of what stands there.
    pub fn paint(&mut self, y: u16, style: Style) {
        if y < self.area.height {
            self.buffer.set_style(Rect::new(self.area.x, self.area.y + y, self.area.width, 1), style);
        }
    }

    /// Texts in lines, from `scroll` on; says how many are left out.
    pub fn lines(&mut self, lines: &[(String, Style)], scroll: u16) {
        let height = usize::from(self.area.height);
        let scroll = usize::from(scroll).min(lines.len().saturating_sub(height));
        for (y, (text, style)) in lines.iter().skip(scroll).take(height).enumerate() {
            self.put(0, y as u16, self.area.width, text, *style);
        }
        let below = lines.len().saturating_sub(scroll + height);
        if below > 0 && height > 0 {
            let more = format!(" {} more, PgDn ", below + 1);
            let columns = self.area.width;
            self.put(0, self.area.height - 1, columns, &" ".repeat(usize::from(columns)), Style::new());
            self.put(0, self.area.height - 1, columns, &more, self.theme.quiet());
        }
    }
}

/// Draws the screen.
pub fn draw(frame: &mut Frame, state: &State) {
    let area = frame.area();
    let mut pen = Pen { buffer: frame.buffer_mut(), area, theme: state.theme };
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("too small: {}x{}, needs {}x{}", area.width, area.height, LEAST.0, LEAST.1);
        for (y, line) in wrap(&text, area.width).iter().enumerate() {
            pen.put(0, y as u16, area.width, line, Style::new());
        }
        return;
    }
    let head = head(&mut pen, state);
    let lines = area.height - head - 1;
    view(&mut pen.part(head, lines), state, true);
    foot(&mut pen.part(area.height - 1, 1), state);
}

fn view(pen: &mut Pen<'_>, state: &State, has_chart: bool) {
    if state.is_help {
        return help::draw(pen, state);
    }
    if let Some(id) = state.zoom {
        return zoom::draw(pen, state, id);
    }
    match state.view {
        View::Overview => overview(pen, state, has_chart),
        View::Links => ports::draw(pen, state, true),
        View::Dram => dram::draw(pen, state),
        View::Counters => counters::draw(pen, state),
        View::Warnings => warnings::draw(pen, state),
    }
}

/// The tree, and below it as much of the channels as there is room for. The chosen row's charts fill what is free between.
fn overview(pen: &mut Pen<'_>, state: &State, has_chart: bool) {
    let tree = tree_lines(state, pen.height());
    let lines = pen.height() - tree;
    ports::draw(&mut pen.part(0, tree), state, false);
    let (rows, chosen) = state.rows();
    let used = u16::try_from(rows.len()).unwrap_or(u16::MAX).saturating_add(2).min(tree);
    if let Some(row) = rows.get(chosen).filter(|_| has_chart && tree - used >= LEAST_CHART) {
        zoom::charts(&mut pen.part(used, tree - used), state, row.id);
    }
    dram::summary(&mut pen.part(tree, lines), state);
}

/// How many of these lines of the overview the tree has.
fn tree_lines(state: &State, height: u16) -> u16 {
    let (rows, _) = state.rows();
    let wanted = u16::try_from(rows.len()).unwrap_or(u16::MAX).saturating_add(1);
    let room = height.saturating_sub(wanted);
    // If both want more than there is, the tree gets two thirds.
    height - dram::wanted(state, room.max(height / 3))
}

/// The row of the tree that stands in line `y` of a terminal of that many columns and lines.
pub(crate) fn row_at(state: &State, (columns, lines): (u16, u16), y: u16) -> Option<RowId> {
    let is_tree = matches!(state.view, View::Overview | View::Links) && state.zoom.is_none() && !state.is_help;
    if !is_tree || columns < LEAST.0 || lines < LEAST.1 {
        return None;
    }
    let area = Rect::new(0, 0, columns, lines);
    let head = head(&mut Pen { buffer: &mut Buffer::empty(area), area, theme: state.theme }, state);
    let height = lines - head - 1;
    let height = if state.view == View::Overview { tree_lines(state, height) } else { height };
    // The first line has the columns' names.
    let line = y.checked_sub(head + 1).filter(|line| line + 1 < height)?;
    let window = ports::window(state, height - 1);
    window.rows.get(window.first + usize::from(line)).map(|row| row.id)
}

/// The state as text of `columns`, as many lines as it needs but at most `most`: for pipes and scripts.
pub fn page(state: &State, columns: u16, most: u16) -> String {
    let lines = |rows: usize| u16::try_from(rows).unwrap_or(u16::MAX).clamp(LEAST.1, most.max(LEAST.1));
    let rows = state.rows().0.len() + state.model.live.sources.len() + state.model.probes.len() + 12;
    let mut text = on_paper(state.theme, columns, lines(rows), |pen| {
        let head = head(pen, state);
        let rest = pen.height() - head;
        view(&mut pen.part(head, rest), state, false);
    });
    let others = counters::lines(state);
    if !others.is_empty() {
        text += &on_paper(state.theme, columns, lines(others.len() + 1), |pen| counters::draw(pen, state));
    }
    text
}

/// Draws into a buffer and returns its lines without the empty ones, which on a screen move the table of channels to the
/// lower end.
fn on_paper(theme: Theme, columns: u16, lines: u16, draw: impl FnOnce(&mut Pen<'_>)) -> String {
    let area = Rect::new(0, 0, columns.max(LEAST.0), lines);
    let mut buffer = Buffer::empty(area);
    draw(&mut Pen { buffer: &mut buffer, area, theme });
    screen(&buffer).lines().filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

/// A buffer as lines, without blanks at their ends.
fn screen(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let mut line = String::new();
        let mut behind = 0;
        for x in 0..buffer.area.width {
            // The second half of a wide letter is no letter.
            if x < behind {
                continue;
            }
            let symbol = buffer[(x, y)].symbol();
            behind = x + width(symbol).max(1);
            line += symbol;
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The lines at the top: what is shown, its source and time, sums, probes, what is missing. Returns their number.
fn head(pen: &mut Pen<'_>, state: &State) -> u16 {
    let (theme, columns) = (pen.theme, pen.width());
    let when = when(state);
    pen.put_right(0, 0, columns, &when, Style::new());
    let room = columns.saturating_sub(width(&when) + 1);
    let mut x = pen.put(0, 0, room, "pciescope", theme.title()) + 1;
    if let Some(machine) = &state.model.machine {
        x = pen.put(x, 0, room.saturating_sub(x), &clean(machine), Style::new()) + 1;
    }
    if state.model.live.sources.iter().any(|source| source.is_synthetic) {
        x = pen.put(x, 0, room.saturating_sub(x), "SYNTHETIC", theme.doubtful()) + 1;
    } else if state.model.live.sources.iter().any(|source| source.is_emulated) {
        x = pen.put(x, 0, room.saturating_sub(x), "EMULATED", theme.doubtful()) + 1;
    } else if state.model.is_emulated {
        x = pen.put(x, 0, room.saturating_sub(x), "(guest)", theme.doubtful()) + 1;
    }
    if state.model.live.sources.iter().any(Source::is_accounting) {
        let room = room.saturating_sub(x);
        let mut words = ["(> kernel accounting, lower bound)", "(> lower bound)"].into_iter();
        let text = words.find(|words| width(words) <= room).unwrap_or("(>)");
        pen.put(x, 0, room, text, theme.doubtful());
    }
    let mut y = 1;
    if state.shown().is_some() {
        pen.put(0, 1, columns, &sums(state), Style::new());
        y += 1;
    }
    for probe in &state.model.probes {
        if y + 4 < pen.height() {
            probe_line(&mut pen.part(y, 1), probe);
            y += 1;
        }
    }
    for line in no_counters(pen, state) {
        if y + 3 < pen.height() {
            pen.put(0, y, columns, &line, theme.doubtful());
            y += 1;
        }
    }
    y
}

/// The text of a screen on which nothing counts.
fn no_counters(pen: &Pen<'_>, state: &State) -> Vec<String> {
    let columns = pen.width();
    let Some(failure) = &state.model.no_counters else { return Vec::new() };
    let mut lines = wrap(&format!("Nothing counts here: {}", clean(&failure.text)), columns);
    if let Some(hint) = &failure.hint {
        // Word by word: clean() cuts long texts, and our hint must stay whole.
        let hint: Vec<String> = hint.split(' ').map(clean).collect();
        lines.extend(wrap(&format!("hint: {}", hint.join(" ")), columns));
    }
    // Most of the screen belongs to the tree.
    lines.truncate(usize::from((pen.height() / 4).max(4)));
    lines
}

fn when(state: &State) -> String {
    let span = state.shown().and_then(|number| state.model.live.span(number));
    let at = span.map(|span| clock(span.end_ns)).unwrap_or_default();
    let origin = match &state.origin {
        Origin::Live { interval_ns } => format!("every {}", period(*interval_ns)),
        Origin::Replay { name, speed, has_ended } => {
            let speed = if *speed == 1.0 { String::new() } else { format!(" x{speed}") };
            let end = if *has_ended && !state.is_paused() { " END" } else { "" };
            format!("replay {}{speed}{end}", fit(&clean(name), 20))
        }
    };
    let paused = if state.is_paused() { " PAUSED" } else { "" };
    let stale = state.stale_s.map(|seconds| format!(" STALE for {seconds} s")).unwrap_or_default();
    format!("{origin} {at}{paused}{stale}")
}

fn sums(state: &State) -> String {
    let Some(span) = state.shown() else { return String::new() };
    let sources = &state.model.live.sources;
    let ports: Vec<_> = state.model.live.links().collect();
    let channels: Vec<_> = sources.iter().filter(|source| source.is_channel()).collect();
    let sum = |of: &[&Source], name: &str| {
        let sum = of.iter().filter_map(|source| source.figure(name, span)).reduce(Figure::plus);
        cell(sum)
    };
    let mut parts = Vec::new();
    if !ports.is_empty() {
        let (rx, tx) = (sum(&ports, "rx_bytes_per_s"), sum(&ports, "tx_bytes_per_s"));
        // A function on a root bus is no port.
        let (count, of) = (ports.iter().filter(|one| one.is_port()).count(), ports.len());
        let others = if count < of { format!(", {} root bus devices", of - count) } else { String::new() };
        parts.push(format!("PCIe Rx {rx} Tx {tx} B/s, {count} ports{others}"));
    }
    if !channels.is_empty() {
        let (read, write) = (sum(&channels, "read_bytes_per_s"), sum(&channels, "write_bytes_per_s"));
        parts.push(format!("DRAM Rd {read} Wr {write} B/s, {} channels", channels.len()));
    }
    if state.skipped > 0 {
        parts.push(format!("{} intervals not shown", state.skipped));
    }
    parts.join("   ")
}

fn probe_line(pen: &mut Pen<'_>, probe: &crate::model::Probe) {
    let (theme, columns) = (pen.theme, pen.width());
    let name = probe.bdf.map_or_else(|| "?".to_owned(), |bdf| bdf.to_string());
    let x = pen.put(0, 0, columns, &format!("probe {name} "), theme.title());
    if let (Some(failure), None) = (&probe.failure, probe.p50_ns) {
        let who = format!("{name}: ");
        let text = clean(&failure.text);
        let text = text.strip_prefix(&who).unwrap_or(&text);
        let hint = failure.hint.as_deref().map(|hint| format!("; hint: {}", clean(hint))).unwrap_or_default();
        pen.put(x, 0, columns, &format!("not measured: {text}{hint}"), theme.doubtful());
        return;
    }
    let time = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), pciescope_core::text::duration);
    let text = format!("p50 {} p99 {} max {}", time(probe.p50_ns), time(probe.p99_ns), time(probe.max_ns));
    let x = pen.put(x, 0, columns, &text, Style::new()) + 1;
    let slow = probe.slow.as_ref().map(|(at, sample)| {
        // The time of day, of 2026-11-29T12:03:04.000Z.
        let at = at.get(11..19).unwrap_or_default();
        format!("slow {at} {} {} ", time(Some(sample.value_ns)), clean(&sample.words()))
    });
    let x = pen.put(x, 0, columns, &slow.unwrap_or_default(), theme.bad());
    let emulated = if probe.is_emulated { " emulated!" } else { "" };
    let about = format!("({} reads of {} by {}{emulated})", probe.count, clean(&probe.target), clean(&probe.backend));
    let x = pen.put(x, 0, columns, &about, if probe.is_emulated { theme.doubtful() } else { theme.quiet() }) + 1;
    if columns.saturating_sub(x) >= 8 {
        let medians: Vec<Option<f64>> = probe.medians.iter().copied().collect();
        let room = (columns - x).min(40);
        pen.put(x, 0, room, &bars::history(theme, &medians, room), theme.history());
    }
}

fn foot(pen: &mut Pen<'_>, state: &State) {
    let (theme, columns) = (pen.theme, pen.width());
    if state.is_typing {
        let x = pen.put(0, 0, columns, "filter: ", theme.title());
        let x = pen.put(x, 0, columns, &clean(&state.filter), Style::new());
        let x = pen.put(x, 0, columns, " ", theme.cursor());
        pen.put(x + 1, 0, columns, "Enter keep  Esc clear", theme.quiet());
        return;
    }
    if let Some(notice) = &state.notice {
        pen.put(0, 0, columns, &clean(notice), theme.doubtful());
        return;
    }
    let warnings = state.model.live.warnings.len() + warnings::faults(state).len();
    let mut parts = vec!["q quit".to_owned(), "? help".to_owned(), "Tab view".to_owned()];
    parts.push(if state.is_paused() { "p go on  , . step".to_owned() } else { "p pause".to_owned() });
    if state.zoom.is_some() {
        parts.push("Esc back".to_owned());
    } else if matches!(state.view, View::Overview | View::Links) {
        parts.push("Enter zoom".to_owned());
        let turned = if state.is_reversed { " reversed" } else { "" };
        parts.push(format!("s sort: {}{turned}", state.sort.name()));
    }
    match state.filter.is_empty() {
        true => parts.push("/ filter".to_owned()),
        false => parts.insert(2, format!("filter: {} (Esc)", clean(&state.filter))),
    }
    let end = pen.put(0, 0, columns, &parts.join("  "), theme.quiet());
    if warnings > 0 {
        let text = format!("5: {warnings} warning{}", if warnings == 1 { "" } else { "s" });
        if columns.saturating_sub(end) > width(&text) {
            pen.put_right(0, 0, columns, &text, theme.doubtful());
        }
    }
}

/// A figure in few characters: `~` before one that is scaled, `>` before one that may be larger, `-` where there is none.
pub(crate) fn cell(figure: Option<Figure>) -> String {
    match figure {
        None => "-".to_owned(),
        Some(figure) if figure.is_least => format!(">{}", short(figure.value)),
        Some(figure) if figure.running.is_some() => format!("~{}", short(figure.value)),
        Some(figure) => short(figure.value),
    }
}

/// A share in few characters, `-` where there is none.
pub(crate) fn share(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), percent)
}
