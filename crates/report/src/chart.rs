//! Charts as lines, rectangles and words: what the page, SVG and PNG have in common. `chart/curves.rs` has those of
//! durations, `chart/times.rs` and `chart/bands.rs` those over time, `chart/forest.rs` changes with their intervals.
//!
//! Values that are negative or not a number are not drawn; their table says that they are not known.

mod bands;
mod curves;
mod forest;
mod times;

pub use self::bands::{BandRow, Bands};
pub use self::curves::{Curve, Curves, Span, Spans};
pub use self::forest::{Forest, ForestRow};
pub use self::times::{Times, TimesLine};

use crate::drawing::{Anchor, BLACK, CHARACTER, Drawing, GREY, Shape};

/// Width of a chart on a page or in a picture, in pixels at a scale of 1.
pub const WIDE: f64 = 760.0;
/// Width of the same chart where it is the first of a page, and there is room.
pub const FULL: f64 = 1000.0;
/// Width of the same chart on a telephone.
pub const NARROW: f64 = 360.0;
/// Below this width the label of a bar stands above it.
const LABELS_BESIDE: f64 = 500.0;

/// A chart of any kind.
#[derive(Debug, Clone)]
pub enum Chart {
    /// Rates over sizes.
    Lines(Lines),
    /// Amounts.
    Bars(Bars),
    /// Where durations lie, one line for each measurement.
    Spans(Spans),
    /// Histograms, or their tails, over each other.
    Curves(Curves),
    /// Rates over time.
    Times(Times),
    /// States over time.
    Bands(Bands),
    /// Changes with their intervals.
    Forest(Forest),
}

impl Chart {
    /// The chart, so many pixels wide; `None` where there is nothing to draw.
    pub fn drawing(&self, width: f64) -> Option<Drawing> {
        match self {
            Chart::Lines(chart) => chart.drawing(width),
            Chart::Bars(chart) => chart.drawing(width),
            Chart::Spans(chart) => chart.drawing(width),
            Chart::Curves(chart) => chart.drawing(width),
            Chart::Times(chart) => chart.drawing(width),
            Chart::Bands(chart) => chart.drawing(width),
            Chart::Forest(chart) => chart.drawing(width),
        }
    }
}
/// Lines that hold no figure.
pub const RULE: [u8; 3] = [217, 220, 227];
/// Behind words.
pub const BOX: [u8; 3] = [236, 238, 243];
/// A limit that is drawn over figures.
pub const LIMIT: [u8; 3] = [27, 29, 35];
/// Colours of the parts. Most people can tell them apart, also in grey; the page has others for dark mode.
pub const SERIES: [[u8; 3]; 8] = [
    [31, 95, 191],
    [214, 121, 18],
    [26, 138, 90],
    [180, 35, 90],
    [111, 75, 184],
    [15, 138, 156],
    [138, 122, 20],
    [124, 132, 148],
];
/// Height of an entry of the legend, and of a word with room around it.
const LINE: f64 = 18.0;

/// The colour of a series.
pub(crate) fn colour(place: usize) -> [u8; 3] {
    SERIES[place % SERIES.len()]
}

/// Whether a value can be drawn.
fn is_drawable(value: f64) -> bool {
    value.is_finite() && (value == 0.0 || (1e-30..1e30).contains(&value))
}

/// A point of a line: where, how high, from and to which value the single devices spread, and in words.
#[derive(Debug, Clone)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    pub spread: Option<(f64, f64)>,
    pub words: String,
}

/// Lines over a logarithmic axis of sizes.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    /// What is upwards, with its unit.
    pub up: String,
    /// What is across, with its unit.
    pub across: String,
    pub lines: Vec<(String, Vec<Point>)>,
}

/// Horizontal bars of stacked parts, one below the other.
#[derive(Debug, Clone, Default)]
pub struct Bars {
    /// What is across, with its unit.
    pub across: String,
    /// Names of the parts' series; empty if one colour is enough.
    pub series: Vec<String>,
    pub bars: Vec<Bar>,
    /// What a mark across a bar stands for, where there are any.
    pub mark: Option<String>,
}

/// One bar.
#[derive(Debug, Clone, Default)]
pub struct Bar {
    pub label: String,
    /// Series, value, and the part in words.
    pub parts: Vec<(usize, f64, String)>,
    /// A limit or another figure beside it.
    pub mark: Option<(f64, String)>,
    /// The figure behind its end.
    pub figure: String,
}

impl Lines {
    fn drawing(&self, width: f64) -> Option<Drawing> {
        let points =
            || self.lines.iter().flat_map(|line| &line.1).filter(|p| is_drawable(p.x) && p.x > 0.0 && is_drawable(p.y));
        let (low, high) = points().map(|p| p.x).fold((f64::INFINITY, 0.0f64), |(a, b), x| (a.min(x), b.max(x)));
        let most =
            points().map(|p| p.spread.map_or(p.y, |s| s.1.max(p.y))).filter(|y| is_drawable(*y)).fold(0.0, f64::max);
        if !(low.is_finite() && most > 0.0) {
            return None;
        }
        let steps = steps(most, 5);
        let widest = steps.iter().map(|s| number(*s).len()).max().unwrap_or(1);
        let (left, right) = (widest as f64 * CHARACTER + 14.0, width - 24.0);
        let (top, bottom) = (28.0, 268.0);
        let top_value = steps.last().copied().unwrap_or(most);
        let y = |value: f64| bottom - value / top_value * (bottom - top);
        // A single size stands in the middle.
        let range = if high > low { (low.ln(), high.ln()) } else { (low.ln() - 1.0, low.ln() + 1.0) };
        let x = |value: f64| left + 20.0 + (value.ln() - range.0) / (range.1 - range.0) * (right - left - 40.0);
        let mut d = Drawing { width, height: 0.0, shapes: Vec::new() };
        d.word(0.0, 10.0, Anchor::Start, false, GREY, self.up.clone());
        for step in &steps {
            d.line([(left, y(*step)), (right, y(*step))], 1.0, RULE, None);
            d.word(left - 6.0, y(*step), Anchor::End, false, GREY, number(*step));
        }
        let mut sizes: Vec<f64> = points().map(|p| p.x).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        let mut free = f64::NEG_INFINITY;
        for size in sizes {
            let words = number(size);
            let half = words.len() as f64 * CHARACTER / 2.0 + 4.0;
            if x(size) - half >= free {
                d.line([(x(size), bottom), (x(size), bottom + 4.0)], 1.0, GREY, None);
                d.word(x(size), bottom + 13.0, Anchor::Middle, false, GREY, words);
                free = x(size) + half;
            }
        }
        d.word(right, bottom + 31.0, Anchor::End, false, GREY, self.across.clone());
        for (place, (_, points)) in self.lines.iter().enumerate() {
            let fill = colour(place);
            let drawn: Vec<&Point> =
                points.iter().filter(|p| is_drawable(p.x) && p.x > 0.0 && is_drawable(p.y)).collect();
            for pair in drawn.windows(2) {
                d.line([(x(pair[0].x), y(pair[0].y)), (x(pair[1].x), y(pair[1].y))], 2.0, fill, None);
            }
            for point in drawn {
                if let Some((from, to)) = point.spread.filter(|s| is_drawable(s.0) && is_drawable(s.1)) {
                    d.line([(x(point.x), y(from)), (x(point.x), y(to.min(top_value)))], 1.2, fill, None);
                }
                let at = (x(point.x), y(point.y));
                d.line([at, at], 8.0, fill, Some(point.words.clone()));
            }
        }
        let names: Vec<&str> = self.lines.iter().map(|line| line.0.as_str()).collect();
        let end = legend(&mut d, left, bottom + 48.0, &names, None);
        d.height = end;
        Some(d)
    }
}

impl Bars {
    fn drawing(&self, width: f64) -> Option<Drawing> {
        const HEIGHT: f64 = 16.0;
        let length = |bar: &Bar| bar.parts.iter().map(|part| part.1).filter(|value| is_drawable(*value)).sum::<f64>();
        let mark = |bar: &Bar| bar.mark.as_ref().map(|mark| mark.0).filter(|value| is_drawable(*value));
        let most = self.bars.iter().map(|bar| length(bar).max(mark(bar).unwrap_or(0.0))).fold(0.0, f64::max);
        if !(is_drawable(most) && most > 0.0) {
            return None;
        }
        let is_beside = width >= LABELS_BESIDE;
        let widest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0) as f64 * CHARACTER;
        let labels = widest(&mut self.bars.iter().map(|bar| bar.label.chars().count()));
        let left = if is_beside { labels.min(width * 0.5) + 10.0 } else { 2.0 };
        let right = width - widest(&mut self.bars.iter().map(|bar| bar.figure.chars().count())).min(width * 0.3) - 12.0;
        let steps = steps(most, ((right - left) / 70.0).clamp(2.0, 6.0) as usize);
        let top_value = steps.last().copied().unwrap_or(most);
        let x = |value: f64| left + value / top_value * (right - left);
        let row = if is_beside { LINE + 6.0 } else { 2.0 * LINE + 4.0 };
        let (top, bottom) = (6.0, 6.0 + self.bars.len() as f64 * row + 4.0);
        let mut d = Drawing { width, height: 0.0, shapes: Vec::new() };
        let mut free = f64::NEG_INFINITY;
        for step in &steps {
            d.line([(x(*step), top), (x(*step), bottom)], 1.0, RULE, None);
            let words = number(*step);
            let half = words.len() as f64 * CHARACTER / 2.0 + 4.0;
            if x(*step) - half >= free {
                d.word(x(*step), bottom + 12.0, Anchor::Middle, false, GREY, words);
                free = x(*step) + half;
            }
        }
        d.word(right, bottom + 30.0, Anchor::End, false, GREY, self.across.clone());
        for (place, bar) in self.bars.iter().enumerate() {
            let mut y = top + place as f64 * row + 4.0;
            if is_beside {
                let label = middle_cut(&bar.label, ((left - 10.0) / CHARACTER) as usize);
                d.word(left - 8.0, y + HEIGHT / 2.0, Anchor::End, false, BLACK, label);
            } else {
                let label = middle_cut(&bar.label, (width / CHARACTER) as usize);
                d.word(left, y + HEIGHT / 2.0, Anchor::Start, false, BLACK, label);
                y += LINE;
            }
            let mut from = 0.0;
            for (series, value, words) in bar.parts.iter().filter(|part| is_drawable(part.1) && part.1 > 0.0) {
                let (x0, x1) = (x(from), x(from + value));
                let w = (x1 - x0).max(0.5);
                d.shapes.push(Shape::Rect {
                    x: x0,
                    y,
                    w,
                    h: HEIGHT,
                    fill: colour(*series),
                    title: Some(words.clone()),
                });
                from += value;
            }
            if let (Some(at), Some((_, words))) = (mark(bar), &bar.mark) {
                d.line([(x(at), y - 3.0), (x(at), y + HEIGHT + 3.0)], 2.5, LIMIT, Some(words.clone()));
            }
            // Behind the bar, unless the mark stands there.
            let wide = (bar.figure.chars().count() as f64 + 1.0) * CHARACTER;
            let bar_end = x(length(bar)) + 8.0;
            let end = match mark(bar).map(x) {
                Some(at) if at > bar_end - 12.0 && at < bar_end + wide => at + 8.0,
                _ => bar_end,
            };
            d.word(end, y + HEIGHT / 2.0, Anchor::Start, false, BLACK, bar.figure.clone());
        }
        let names: Vec<&str> = self.series.iter().map(String::as_str).collect();
        d.height = legend(&mut d, left, bottom + 48.0, &names, self.mark.as_deref());
        Some(d)
    }
}

/// The names of the colours, as many in a line as fit; returns where it ends.
fn legend(d: &mut Drawing, left: f64, top: f64, names: &[&str], mark: Option<&str>) -> f64 {
    if names.iter().all(|name| name.is_empty()) && mark.is_none() {
        return top - 8.0;
    }
    let (mut x, mut y) = (left, top);
    let entries =
        names.iter().enumerate().map(|(place, name)| (Some(colour(place)), *name)).filter(|entry| !entry.1.is_empty());
    for (fill, name) in entries.chain(mark.map(|name| (None, name))) {
        let name = middle_cut(name, (((d.width - left - 16.0) / CHARACTER) as usize).clamp(8, 60));
        let w = 16.0 + (name.chars().count() as f64 + 2.0) * CHARACTER;
        if x > left && x + w - 2.0 * CHARACTER > d.width {
            (x, y) = (left, y + LINE);
        }
        match fill {
            Some(fill) => d.shapes.push(Shape::Rect { x, y: y - 5.0, w: 11.0, h: 11.0, fill, title: None }),
            None => d.line([(x + 5.0, y - 7.0), (x + 5.0, y + 7.0)], 2.5, LIMIT, None),
        }
        d.word(x + 16.0, y, Anchor::Start, false, BLACK, name);
        x += w;
    }
    y + LINE
}

/// At most `most` characters of a text, with a mark in its middle where some are left out: beginning and end tell labels
/// apart.
pub(crate) fn middle_cut(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(2);
    let (front, back) = (kept.div_ceil(2), kept / 2);
    let front: String = text.chars().take(front).collect();
    format!("{front}..{}", text.chars().skip(count - back).collect::<String>())
}

/// Round values from 0 to the first that is not below `most`, about as many as wanted.
fn steps(most: f64, wanted: usize) -> Vec<f64> {
    let rough = most / wanted as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|s| s * power).into_iter().find(|s| *s >= rough * 0.999).unwrap_or(rough);
    let count = (most / step - 1e-9).ceil().max(1.0) as usize;
    (0..=count.min(20)).map(|n| n as f64 * step).collect()
}

/// A number in as few characters as three significant digits need.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor();
    if !(-4.0..9.0).contains(&magnitude) {
        return format!("{value:.2e}");
    }
    let decimals = (2.0 - magnitude).clamp(0.0, 6.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_steps_that_reach_the_largest_value() {
        assert_eq!(steps(583.3, 5), [0.0, 200.0, 400.0, 600.0]);
        assert_eq!(steps(1.0, 5), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        for most in [1e-9, 0.3, 7.0, 99.99, 100.0, 1e12] {
            let steps = steps(most, 6);
            assert!(steps[steps.len() - 1] >= most * 0.999 && steps.len() <= 8, "{most}: {steps:?}");
        }
    }

    #[test]
    fn numbers_are_short() {
        for (value, want) in
            [(0.0, "0"), (0.6, "0.6"), (1.68, "1.68"), (60.0, "60"), (1249.2, "1249"), (2.5e12, "2.50e12")]
        {
            assert_eq!(number(value), want);
        }
    }

    #[test]
    fn what_is_no_number_is_not_drawn() {
        let bar = |value: f64| Bar { parts: vec![(0, value, String::new())], ..Bar::default() };
        for value in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300] {
            assert!(Bars { bars: vec![bar(value)], ..Bars::default() }.drawing(WIDE).is_none(), "{value}");
            let point = Point { x: value, y: 1.0, spread: None, words: String::new() };
            let lines = Lines { lines: vec![(String::new(), vec![point])], ..Lines::default() };
            assert!(lines.drawing(WIDE).is_none(), "{value}");
        }
        let two = Bars { bars: vec![bar(f64::NAN), bar(1.0)], ..Bars::default() }.drawing(WIDE).unwrap();
        let rects = two.shapes.iter().filter(|shape| matches!(shape, Shape::Rect { .. })).count();
        assert_eq!(rects, 1);
    }

    #[test]
    fn labels_that_differ_at_either_end_stay_apart() {
        let long = |first: &str, last: &str| format!("{first}, 30.0 MB, 6 devices of the same kind, {last}");
        let labels = [long("readout", "poll"), long("readout", "event"), long("convert", "poll")];
        let cut: Vec<String> = labels.iter().map(|label| middle_cut(label, 20)).collect();
        assert!(cut[0] != cut[1] && cut[0] != cut[2] && cut[1] != cut[2], "{cut:?}");
        assert!(cut.iter().all(|label| label.chars().count() == 20), "{cut:?}");
        assert_eq!(middle_cut("short", 20), "short");
    }

    #[test]
    fn on_a_telephone_the_label_stands_above_its_bar() {
        let bar = Bar { label: "a label".to_owned(), parts: vec![(0, 1.0, String::new())], ..Bar::default() };
        let chart = Chart::Bars(Bars { bars: vec![bar], ..Bars::default() });
        let places = |width: f64| {
            let drawing = chart.drawing(width).unwrap();
            let label = drawing.shapes.iter().find_map(|shape| match shape {
                Shape::Text { y, text, .. } if text == "a label" => Some(*y),
                _ => None,
            });
            let bar = drawing.shapes.iter().find_map(|shape| match shape {
                Shape::Rect { y, w, .. } => Some((*y, *w)),
                _ => None,
            });
            (label.unwrap(), bar.unwrap())
        };
        let (wide, narrow) = (places(WIDE), places(NARROW));
        assert!(wide.0 > wide.1.0, "beside");
        assert!(narrow.0 < narrow.1.0 && narrow.1.1 > NARROW * 0.8, "above, and the bar has the width: {narrow:?}");
    }
}
