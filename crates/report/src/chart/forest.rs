//! Changes with their intervals, one below the other, left and right of zero.

use pciescope_core::tune::Verdict;

use super::{BOX, LABELS_BESIDE, LIMIT, LINE, RULE, colour, is_drawable, middle_cut, number, steps};
use crate::drawing::{Anchor, BLACK, CHARACTER, Drawing, GREY, Shape};

/// A row.
#[derive(Debug, Clone)]
pub struct ForestRow {
    pub label: String,
    /// The value and the ends of its interval; `None` where nothing is known.
    pub values: Option<[f64; 3]>,
    /// It has a colour and a sign.
    pub verdict: Verdict,
    /// The answer in words.
    pub figure: String,
}

/// Rows on one axis.
#[derive(Debug, Clone, Default)]
pub struct Forest {
    /// What is across, with its unit.
    pub across: String,
    /// Up to this value on both sides nothing matters.
    pub least: f64,
    pub rows: Vec<ForestRow>,
}

/// Colour and strokes of a verdict's sign: who does not see colours sees these.
fn sign(verdict: Verdict) -> (usize, &'static [[(f64, f64); 2]]) {
    match verdict {
        Verdict::Helps => (0, &[[(0.0, 0.0), (0.0, 0.0)]]),
        Verdict::Hurts | Verdict::Harmful => (3, &[[(-5.0, -5.0), (5.0, 5.0)], [(-5.0, 5.0), (5.0, -5.0)]]),
        Verdict::NoDifference => (7, &[[(0.0, -6.0), (0.0, 6.0)]]),
        Verdict::Undecided | Verdict::Refused => (7, &[[(-5.0, -5.0), (-5.0, 5.0)], [(5.0, -5.0), (5.0, 5.0)]]),
    }
}

impl Forest {
    pub(super) fn drawing(&self, width: f64) -> Option<Drawing> {
        let known = |row: &ForestRow| row.values.filter(|values| values.iter().all(|value| is_drawable(value.abs())));
        let farthest = |is_open: bool| {
            let rows = self.rows.iter().filter(|row| is_open == (row.verdict == Verdict::Undecided));
            rows.filter_map(known).flatten().map(f64::abs).fold(0.0, f64::max)
        };
        // What is open may be anything: it widens the axis only where nothing else has a place there.
        let most = [farthest(false), farthest(true)].into_iter().find(|most| *most > 0.0)?.max(2.0 * self.least);
        let is_beside = width >= LABELS_BESIDE;
        let widest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0) as f64 * CHARACTER;
        let labels = widest(&mut self.rows.iter().map(|row| row.label.chars().count())).min(width * 0.3);
        let figures = widest(&mut self.rows.iter().map(|row| row.figure.chars().count())).min(width * 0.4);
        let (left, right) = if is_beside { (labels + 20.0, width - figures - 20.0) } else { (14.0, width - 14.0) };
        let (middle, half) = ((left + right) / 2.0, (right - left) / 2.0);
        let steps = steps(most, (half / 60.0).clamp(1.0, 4.0) as usize);
        let end = steps.last().copied().unwrap_or(most);
        let x = |value: f64| middle + (value / end).clamp(-1.0, 1.0) * half;
        let row_height = if is_beside { LINE + 6.0 } else { 2.0 * LINE + 4.0 };
        let (top, bottom) = (6.0, 6.0 + self.rows.len() as f64 * row_height + 4.0);
        let mut d = Drawing { width, height: bottom + 40.0, shapes: Vec::new() };
        let (from, w, title) = (x(-self.least), x(self.least) - x(-self.least), Some("too small to matter".to_owned()));
        d.shapes.push(Shape::Rect { x: from, y: top, w, h: bottom - top, fill: BOX, title });
        for value in steps.iter().rev().map(|step| -step).chain(steps.iter().skip(1).copied()) {
            d.line([(x(value), top), (x(value), bottom)], 1.0, RULE, None);
            let words = format!("{}{}", if value < 0.0 { "-" } else { "" }, number(value.abs()));
            d.word(x(value), bottom + 12.0, Anchor::Middle, false, GREY, words);
        }
        d.word(right, bottom + 30.0, Anchor::End, false, GREY, self.across.clone());
        for (place, row) in self.rows.iter().enumerate() {
            let mut y = top + place as f64 * row_height + LINE / 2.0 + 4.0;
            let label = |room: f64| middle_cut(&row.label, (room / CHARACTER) as usize);
            if is_beside {
                d.word(left - 16.0, y, Anchor::End, false, BLACK, label(labels));
                d.word(right + 14.0, y, Anchor::Start, false, BLACK, row.figure.clone());
            } else {
                let room = width - (row.figure.chars().count() as f64 + 2.0) * CHARACTER;
                d.word(2.0, y, Anchor::Start, false, BLACK, label(room));
                d.word(width - 2.0, y, Anchor::End, false, BLACK, row.figure.clone());
                y += LINE;
            }
            // Not through the words of a telephone's rows.
            d.line([(middle, y - 12.0), (middle, y + 12.0)], 1.5, LIMIT, None);
            let Some([value, low, high]) = known(row) else { continue };
            let (series, strokes) = sign(row.verdict);
            let (fill, title) = (colour(series), format!("{}: {}", row.label, row.figure));
            d.line([(x(low), y), (x(high), y)], 2.5, fill, Some(title));
            // An end beyond the axis has an arrow.
            for (value, back) in [(low, 6.0), (high, -6.0)].into_iter().filter(|(value, _)| value.abs() > end) {
                d.path(vec![(x(value) + back, y - 5.0), (x(value), y), (x(value) + back, y + 5.0)], 2.0, fill, None);
            }
            for ends in strokes {
                let thickness = if ends[0] == ends[1] { 10.0 } else { 2.5 };
                d.line(ends.map(|(dx, dy)| (x(value) + dx, y + dy)), thickness, fill, None);
            }
        }
        Some(d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(verdict: Verdict, values: [f64; 3]) -> ForestRow {
        ForestRow { label: "mrrs 4096".to_owned(), values: Some(values), verdict, figure: "said".to_owned() }
    }

    #[test]
    fn zero_is_in_the_middle_and_what_is_open_does_not_widen_the_axis() {
        let rows = vec![
            row(Verdict::Helps, [-4.0, -5.0, -3.0]),
            row(Verdict::Hurts, [4.0, 3.0, 5.0]),
            row(Verdict::Undecided, [0.0, -700.0, 700.0]),
        ];
        let of = |verdict: usize, rows: &[ForestRow]| {
            let drawn = Forest { least: 1.0, rows: rows.to_vec(), ..Forest::default() }.drawing(760.0).unwrap().shapes;
            let line = |shape: &Shape| match shape {
                Shape::Line { from, to, title: Some(_), .. } => Some((from.0, to.0)),
                _ => None,
            };
            drawn.iter().filter_map(line).nth(verdict).unwrap()
        };
        let (helps, hurts, open) = (of(0, &rows), of(1, &rows), of(2, &rows));
        let middle = (open.0 + open.1) / 2.0;
        assert!(helps.1 < middle && hurts.0 > middle, "{helps:?} {hurts:?} {middle}");
        assert!((helps.0 - middle + hurts.1 - middle).abs() < 1e-6, "both sides have one scale");
        assert!((helps.1 - helps.0) * 8.0 > open.1 - open.0, "700 % is cut at the axis: {helps:?} {open:?}");
        // Alone it has the axis to itself; and nothing known is no chart.
        let alone = of(0, &rows[2..]);
        assert!(alone.1 - alone.0 > 300.0 && alone.0 > open.0 - 1.0, "{alone:?}");
        let nothing = ForestRow { values: None, ..rows[0].clone() };
        assert!(Forest { rows: vec![nothing], ..Forest::default() }.drawing(760.0).is_none());
    }

    #[test]
    fn each_answer_has_a_sign_of_its_own_shape() {
        let strokes =
            [Verdict::Helps, Verdict::Hurts, Verdict::NoDifference, Verdict::Undecided].map(|one| sign(one).1);
        let differ = |one: usize, other: usize| strokes[one] != strokes[other];
        assert!((0..4).all(|one| (0..one).all(|other| differ(one, other))));
    }
}
