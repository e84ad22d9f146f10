//! Rates over time, as the intervals of a run have them.

use super::{LINE, RULE, colour, is_drawable, legend, number, steps};
use crate::drawing::{Anchor, CHARACTER, Drawing, GREY};

/// A line.
#[derive(Debug, Clone, Default)]
pub struct TimesLine {
    /// What stands in the legend.
    pub name: String,
    /// Seconds since the beginning, and the value in the chart's unit; `None` where it is not known.
    pub points: Vec<(f64, Option<f64>)>,
}

/// Lines over seconds, from 0 upwards.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// What is upwards, with its unit.
    pub up: String,
    /// The lines.
    pub lines: Vec<TimesLine>,
    /// The axis reaches at least so far, so that next to nothing does not fill the chart.
    pub least: f64,
}

impl Times {
    pub(super) fn drawing(&self, width: f64) -> Option<Drawing> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let known = || points().filter_map(|point| point.1).filter(|value| is_drawable(*value));
        let end = points().map(|point| point.0).filter(|second| second.is_finite()).fold(0.0, f64::max);
        let most = known().fold(self.least, f64::max);
        if !(end > 0.0 && most > 0.0) || known().next().is_none() {
            return None;
        }
        let ups = steps(most, 4);
        let top_value = ups.last().copied().unwrap_or(most);
        let widest = ups.iter().map(|step| number(*step).len()).max().unwrap_or(1);
        let (left, right) = (widest as f64 * CHARACTER + 14.0, width - 14.0);
        let (top, bottom) = (28.0, 178.0);
        let y = |value: f64| bottom - value / top_value * (bottom - top);
        let x = |second: f64| left + second / end * (right - left);
        let mut d = Drawing { width, height: 0.0, shapes: Vec::new() };
        d.word(0.0, 10.0, Anchor::Start, false, GREY, self.up.clone());
        for step in &ups {
            d.line([(left, y(*step)), (right, y(*step))], 1.0, RULE, None);
            d.word(left - 6.0, y(*step), Anchor::End, false, GREY, number(*step));
        }
        let mut free = f64::NEG_INFINITY;
        for second in steps(end, ((right - left) / 80.0).clamp(2.0, 8.0) as usize) {
            let words = format!("{} s", number(second));
            let half = words.len() as f64 * CHARACTER / 2.0 + 4.0;
            if second > end * 1.0001 || x(second) - half < free || x(second) + half > width + 4.0 {
                continue;
            }
            d.line([(x(second), bottom), (x(second), bottom + 4.0)], 1.0, GREY, None);
            d.word(x(second), bottom + 13.0, Anchor::Middle, false, GREY, words);
            free = x(second) + half;
        }
        for (place, line) in self.lines.iter().enumerate() {
            for run in runs(&line.points) {
                let drawn: Vec<(f64, f64)> = run.iter().map(|(second, value)| (x(*second), y(*value))).collect();
                match drawn.as_slice() {
                    // A lone figure is a dot.
                    [one] => d.line([*one, *one], 5.0, colour(place), Some(line.name.clone())),
                    _ => d.path(drawn, 1.8, colour(place), Some(line.name.clone())),
                }
            }
        }
        let names: Vec<&str> = self.lines.iter().map(|line| line.name.as_str()).collect();
        d.height = legend(&mut d, left, bottom + LINE + 18.0, &names, None);
        Some(d)
    }
}

/// Points that follow each other without a gap: where no figure is known, and where far more time passed than usual, the
/// line is broken.
fn runs(points: &[(f64, Option<f64>)]) -> Vec<Vec<(f64, f64)>> {
    let mut steps: Vec<f64> = points.windows(2).map(|pair| pair[1].0 - pair[0].0).filter(|step| *step > 0.0).collect();
    steps.sort_by(f64::total_cmp);
    let usual = steps.get(steps.len() / 2).copied().unwrap_or(f64::INFINITY);
    let mut runs: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut before: Option<f64> = None;
    for (second, value) in points {
        let Some(value) = value.filter(|value| is_drawable(*value)) else {
            before = None;
            continue;
        };
        match (before, runs.last_mut()) {
            (Some(last), Some(run)) if *second >= last && second - last <= 2.5 * usual => run.push((*second, value)),
            _ => runs.push(vec![(*second, value)]),
        }
        before = Some(*second);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_broken_where_figures_are_missing() {
        let point = |second: f64, value: f64| (second, Some(value));
        let points = [point(1.0, 1.0), point(2.0, 2.0), (3.0, None), point(4.0, 3.0), point(5.0, 1.0), point(9.0, 1.0)];
        let lengths: Vec<usize> = runs(&points).iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 2, 1]);
    }

    #[test]
    fn next_to_nothing_does_not_fill_the_chart() {
        let line =
            |value: f64| TimesLine { name: "a".to_owned(), points: vec![(1.0, Some(value)), (2.0, Some(value))] };
        let height = |value: f64| {
            let chart = Times { lines: vec![line(value)], least: 1.0, ..Times::default() };
            let shapes = chart.drawing(760.0).unwrap().shapes;
            let found = shapes.iter().find_map(|shape| match shape {
                crate::drawing::Shape::Path { points, .. } => Some(178.0 - points[0].1),
                _ => None,
            });
            found.unwrap()
        };
        assert!(height(1e-6) < 1.0 && height(2.0) > 100.0, "{} {}", height(1e-6), height(2.0));
        assert!(Times::default().drawing(760.0).is_none());
    }
}
