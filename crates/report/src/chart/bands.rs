//! States over time: a row of bands for each thing, with marks.

use super::{LABELS_BESIDE, LIMIT, LINE, RULE, colour, legend, middle_cut, number, steps};
use crate::drawing::{Anchor, BLACK, CHARACTER, Drawing, GREY, Shape};

/// A row.
#[derive(Debug, Clone, Default)]
pub struct BandRow {
    pub label: String,
    /// From and to in seconds, the series, and the state in words.
    pub bands: Vec<(f64, f64, usize, String)>,
    /// Moments in seconds, in words.
    pub marks: Vec<(f64, String)>,
    /// The figure behind its end.
    pub figure: String,
}

/// Rows over seconds from 0.
#[derive(Debug, Clone, Default)]
pub struct Bands {
    pub end_s: f64,
    pub rows: Vec<BandRow>,
    /// Names of the series; an empty one is not in the legend.
    pub series: Vec<String>,
    /// What a mark stands for, where there are any.
    pub mark: Option<String>,
}

/// Units of the time axis: seconds, and in words.
const UNITS: [(f64, &str); 4] = [(1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "days")];

impl Bands {
    pub(super) fn drawing(&self, width: f64) -> Option<Drawing> {
        const HEIGHT: f64 = 16.0;
        if self.rows.is_empty() || !(self.end_s.is_finite() && self.end_s > 0.0) {
            return None;
        }
        let is_beside = width >= LABELS_BESIDE;
        let widest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0) as f64 * CHARACTER;
        let labels = widest(&mut self.rows.iter().map(|row| row.label.chars().count()));
        let left = if is_beside { labels.min(width * 0.4) + 10.0 } else { 2.0 };
        let right = width - widest(&mut self.rows.iter().map(|row| row.figure.chars().count())) - 14.0;
        let (unit, word) = UNITS.into_iter().rev().find(|(unit, _)| self.end_s >= 2.0 * unit).unwrap_or(UNITS[0]);
        let x = |second: f64| left + (second / self.end_s).clamp(0.0, 1.0) * (right - left);
        let row_height = if is_beside { LINE + 6.0 } else { 2.0 * LINE + 4.0 };
        let (top, bottom) = (6.0, 6.0 + self.rows.len() as f64 * row_height + 4.0);
        let mut d = Drawing { width, height: 0.0, shapes: Vec::new() };
        let mut free = f64::NEG_INFINITY;
        let wanted = ((right - left) / 70.0).clamp(2.0, 8.0) as usize;
        for step in steps(self.end_s / unit, wanted).into_iter().filter(|step| step * unit <= self.end_s * 1.0001) {
            d.line([(x(step * unit), top), (x(step * unit), bottom)], 1.0, RULE, None);
            let words = number(step);
            let half = words.len() as f64 * CHARACTER / 2.0 + 4.0;
            if x(step * unit) - half >= free {
                d.word(x(step * unit), bottom + 12.0, Anchor::Middle, false, GREY, words);
                free = x(step * unit) + half;
            }
        }
        d.word(right, bottom + 30.0, Anchor::End, false, GREY, word.to_owned());
        for (place, row) in self.rows.iter().enumerate() {
            let mut y = top + place as f64 * row_height + 4.0;
            if is_beside {
                let label = middle_cut(&row.label, ((left - 10.0) / CHARACTER) as usize);
                d.word(left - 8.0, y + HEIGHT / 2.0, Anchor::End, false, BLACK, label);
            } else {
                let label = middle_cut(&row.label, (width / CHARACTER) as usize);
                d.word(left, y + HEIGHT / 2.0, Anchor::Start, false, BLACK, label);
                y += LINE;
            }
            for (from, to, series, words) in &row.bands {
                let w = (x(*to) - x(*from)).max(1.0);
                let (fill, title) = (colour(*series), Some(words.clone()));
                d.shapes.push(Shape::Rect { x: x(*from), y, w, h: HEIGHT, fill, title });
            }
            for (at, words) in &row.marks {
                d.line([(x(*at), y - 3.0), (x(*at), y + HEIGHT + 3.0)], 2.0, LIMIT, Some(words.clone()));
            }
            d.word(right + 8.0, y + HEIGHT / 2.0, Anchor::Start, false, BLACK, row.figure.clone());
        }
        let names: Vec<&str> = self.series.iter().map(String::as_str).collect();
        d.height = legend(&mut d, left, bottom + 48.0, &names, self.mark.as_deref());
        Some(d)
    }
}
