//! Durations: histograms or tails over each other, and a line for each of many measurements.

use pciescope_core::Histogram;

use super::{LABELS_BESIDE, LIMIT, LINE, RULE, colour, is_drawable, legend, middle_cut, number, steps};
use crate::bins::{RESOLUTIONS, bins, edge_ns};
use crate::drawing::{Anchor, BLACK, CHARACTER, Drawing, GREY, Shape};
use crate::text::{duration, thousands};

/// The upper edge of a chart.
const TOP: f64 = 22.0;
/// Height of a chart between its upper edge and its axis.
const HEIGHT: f64 = 190.0;
/// Room for what lies beyond the axis' end.
const BEYOND: f64 = 44.0;
/// The axis is cut only if the slowest sample takes so many times as long as its end.
const FAR_BEYOND: f64 = 1.2;
/// The tail is drawn down to one sample in so many decades.
const MOST_DECADES: i32 = 12;

/// A histogram with its name.
#[derive(Debug, Clone)]
pub struct Curve {
    /// What stands in the legend.
    pub name: String,
    /// Its samples.
    pub histogram: Histogram,
}

/// Histograms over each other on a logarithmic axis of durations, each as shares of its own samples.
#[derive(Debug, Clone, Default)]
pub struct Curves {
    /// The histograms; empty ones are left out.
    pub lines: Vec<Curve>,
    /// Durations to compare with, in nanoseconds.
    pub marks: Vec<(String, f64)>,
    /// Whether the share of the samples that took longer is shown, on a logarithmic axis, in place of the histogram.
    pub is_tail: bool,
    /// Of each line its median in nanoseconds; empty if none are drawn.
    pub medians: Vec<f64>,
    /// Whether the axis ends at p99.9 of the slowest line. What lies beyond stands in bars of their own at the axis' end.
    pub is_cut: bool,
}

/// Where the durations of one measurement lie, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct Span {
    /// What was measured.
    pub label: String,
    /// The fastest sample.
    pub min: f64,
    /// The median.
    pub median: f64,
    /// The 99th percentile, where the samples support it.
    pub p99: Option<f64>,
    /// The slowest sample.
    pub max: f64,
    /// The figure behind it.
    pub figure: String,
    /// More of it, behind the figure, or below it where that is narrow; may be empty.
    pub more: String,
}

/// Measurements below each other on one logarithmic axis of durations.
#[derive(Debug, Clone, Default)]
pub struct Spans {
    /// The measurements, from the top.
    pub rows: Vec<Span>,
}

/// A logarithmic axis of durations.
struct Axis {
    low: f64,
    high: f64,
    left: f64,
    right: f64,
}

impl Axis {
    /// From `low` to `high` nanoseconds with a little room at both ends; at least a tenth of the value wide.
    fn new(low: f64, high: f64, left: f64, right: f64) -> Axis {
        let low = low.max(1e-3);
        let high = high.max(low * 1.1);
        let pad = (high / low).powf(0.02);
        Axis { low: low / pad, high: high * pad, left, right }
    }

    fn x(&self, ns: f64) -> f64 {
        let share = (ns.max(1e-3) / self.low).ln() / (self.high / self.low).ln();
        self.left + share.clamp(0.0, 1.0) * (self.right - self.left)
    }

    /// Rules, and words below them as close as they stay apart.
    fn draw(&self, d: &mut Drawing, top: f64, bottom: f64) {
        let mut free = f64::NEG_INFINITY;
        for tick in ticks(self.low, self.high) {
            let (x, words) = (self.x(tick), time(tick));
            let half = words.chars().count() as f64 * CHARACTER / 2.0 + 3.0;
            d.line([(x, top), (x, bottom + 4.0)], 1.0, RULE, None);
            let middle = x.clamp(half, d.width - half);
            if middle - half >= free {
                d.word(middle, bottom + 13.0, Anchor::Middle, false, GREY, words);
                free = middle + half;
            }
        }
    }
}

/// A duration on an axis: few digits, and its unit.
fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 999.5 => (ns, "ns"),
        ns if ns < 999.5e3 => (ns / 1e3, "us"),
        ns if ns < 999.5e6 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", number(value))
}

/// Round values between two durations: some in each decade, or evenly spaced where the range is narrow.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    for digits in [&[1.0][..], &[1.0, 3.0], &[1.0, 2.0, 5.0]] {
        let of_decade = |decade: i32| digits.iter().map(move |digit| digit * 10f64.powi(decade));
        let found: Vec<f64> =
            decades.clone().flat_map(of_decade).filter(|value| (low..=high).contains(value)).collect();
        if found.len() >= 4 {
            let every = found.len().div_ceil(9);
            return found.into_iter().step_by(every).collect();
        }
    }
    let rough = (high - low) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * power).into_iter().find(|step| *step >= rough).unwrap_or(rough);
    let first = (low / step).ceil();
    (0..12).map(|n| (first + f64::from(n)) * step).take_while(|value| *value <= high).collect()
}

impl Curves {
    /// The lines that are drawn, and their axis.
    fn axis(&self, width: f64) -> Option<(Vec<&Curve>, Axis)> {
        let lines: Vec<&Curve> = self.lines.iter().filter(|line| !line.histogram.is_empty()).collect();
        let ends = lines.iter().filter_map(|line| Some((line.histogram.min_ns()?, line.histogram.max_ns()?)));
        let (mut low, mut high) = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        // A mark just outside is worth the room; one far away stands in the text only.
        for (_, ns) in self.marks.iter().filter(|mark| is_drawable(mark.1) && mark.1 > 0.0) {
            low = if *ns < low && *ns > low / 3.0 { *ns } else { low };
            high = if *ns > high && *ns < high * 3.0 { *ns } else { high };
        }
        let Some(end) = self.end_ns(&lines).filter(|end| *end < high) else {
            return Some((lines, Axis::new(low, high, 58.0, width - 14.0)));
        };
        Some((lines, Axis::new(low, end, 58.0, width - 14.0 - BEYOND)))
    }

    /// Where the axis ends, if some samples lie far beyond.
    fn end_ns(&self, lines: &[&Curve]) -> Option<f64> {
        let last = |line: &&Curve| line.histogram.percentile_ns(99.9).or_else(|| line.histogram.max_ns());
        let end = lines.iter().filter_map(last).reduce(f64::max).filter(|_| self.is_cut)?;
        lines.iter().filter_map(|line| line.histogram.max_ns()).any(|max| max > end * FAR_BEYOND).then_some(end)
    }

    /// What lies beyond the axis' end, in words; `None` where it has all samples.
    pub fn beyond(&self) -> Option<String> {
        let (lines, axis) = self.axis(super::WIDE)?;
        self.end_ns(&lines)?;
        let words = lines.iter().map(|line| {
            let share = beyond(line, axis.high) * 100.0;
            let most = line.histogram.max_ns().map_or_else(String::new, |max| format!(" (up to {})", time(max)));
            format!("{} % of {}{most}", number(share), line.name)
        });
        Some(format!("The axis ends at p99.9. Beyond it lie {}.", words.collect::<Vec<_>>().join(" and ")))
    }

    /// Where the chart is in its drawing, for what a script draws over it: lowest and highest duration in ns; left, right,
    /// top and bottom in pixels; decades of a tail's shares, 0 of a histogram.
    pub fn place(&self, width: f64) -> Option<String> {
        let (lines, axis) = self.axis(width)?;
        let decades = if self.is_tail { decades(&lines) } else { 0 };
        let Axis { low, high, left, right } = axis;
        Some(format!("{low} {high} {left} {right} {TOP} {} {decades}", TOP + HEIGHT))
    }

    pub(super) fn drawing(&self, width: f64) -> Option<Drawing> {
        let (lines, axis) = self.axis(width)?;
        let (top, bottom) = (TOP, TOP + HEIGHT);
        let mut d = Drawing { width, height: 0.0, shapes: Vec::new() };
        let up = if self.is_tail { "samples that took longer" } else { "share of the samples" };
        d.word(0.0, 8.0, Anchor::Start, false, GREY, up.to_owned());
        axis.draw(&mut d, top, bottom);
        if self.is_tail {
            tails(&mut d, &axis, &lines, (top, bottom));
        } else {
            // The names of the medians stand above the lines.
            let head = if self.medians.is_empty() { 0.0 } else { 50.0 };
            histograms(&mut d, &axis, &lines, (top + head, bottom), width, self.end_ns(&lines).is_some());
        }
        medians(&mut d, &axis, &lines, &self.medians, (top, bottom));
        d.line([(axis.left, bottom), (axis.right, bottom)], 1.0, RULE, None);
        for (row, (words, ns)) in self.marks.iter().filter(|mark| (axis.low..=axis.high).contains(&mark.1)).enumerate()
        {
            let (x, y) = (axis.x(*ns), top + 8.0 + 14.0 * row as f64);
            let is_right = x > (axis.left + axis.right) / 2.0;
            d.line([(x, top), (x, bottom)], 1.2, LIMIT, Some(words.clone()));
            let (x, anchor) = if is_right { (x - 5.0, Anchor::End) } else { (x + 5.0, Anchor::Start) };
            d.word(x, y, anchor, false, BLACK, words.clone());
        }
        let names: Vec<&str> =
            if lines.len() > 1 { lines.iter().map(|line| line.name.as_str()).collect() } else { Vec::new() };
        d.height = legend(&mut d, axis.left, bottom + 36.0, &names, None);
        Some(d)
    }
}

/// The share of the samples that took longer.
fn beyond(line: &Curve, ns: f64) -> f64 {
    let slow = line.histogram.buckets().filter(|bucket| bucket.low_ps as f64 / 1e3 >= ns);
    slow.map(|bucket| bucket.count).sum::<u64>() as f64 / line.histogram.count().max(1) as f64
}

/// A mark for each median with its name, and the distance of the second from the first.
fn medians(d: &mut Drawing, axis: &Axis, lines: &[&Curve], medians: &[f64], (top, bottom): (f64, f64)) {
    let mut row = top + 8.0;
    for (place, (line, median)) in lines.iter().zip(medians).enumerate() {
        let x = axis.x(*median);
        d.line([(x, top), (x, bottom)], 1.6, colour(place), None);
        let name = middle_cut(&line.name, 24);
        let words = format!("{name}: median {}", duration(*median));
        let wide = words.chars().count() as f64 * CHARACTER;
        // The first stands before its mark where there is room, so that both are in one line.
        let is_before = place == 0 && medians.get(1).is_none_or(|next| next >= median) && x - wide - 6.0 > axis.left;
        let (at, anchor) = match is_before {
            true => (x - 6.0, Anchor::End),
            false => ((x + 6.0).min(d.width - wide), Anchor::Start),
        };
        d.word(at, row, anchor, false, BLACK, words);
        row += if is_before { 0.0 } else { 16.0 };
    }
    if let ([one, other], true) = (medians, lines.len() == 2) {
        let ends = [axis.x(*one), axis.x(*other)];
        d.line(ends.map(|x| (x, row)), 1.6, LIMIT, None);
        let sign = if other < one { "-" } else { "+" };
        let words = format!("{sign}{} ({:+.1} %)", duration((other - one).abs()), (other / one - 1.0) * 100.0);
        let wide = words.chars().count() as f64 * CHARACTER;
        d.word((ends[0].max(ends[1]) + 6.0).min(d.width - wide), row, Anchor::Start, true, BLACK, words);
    }
}

fn histograms(d: &mut Drawing, axis: &Axis, lines: &[&Curve], (top, bottom): (f64, f64), width: f64, is_cut: bool) {
    // As fine as the pixels: bins of six of them at least.
    let octaves = (axis.high / axis.low).log2();
    let room = (axis.right - axis.left) / 6.0;
    let fits = |per_octave: &u32| f64::from(*per_octave) * octaves <= room;
    let per_octave = RESOLUTIONS.into_iter().find(fits).unwrap_or(RESOLUTIONS[RESOLUTIONS.len() - 1]);
    let shares: Vec<Vec<(f64, f64, f64)>> = lines
        .iter()
        .map(|line| {
            let count = line.histogram.count().max(1) as f64;
            let bins = bins(&line.histogram, per_octave).into_iter();
            let edges = bins.map(|(bin, n)| (edge_ns(bin, per_octave), edge_ns(bin + 1, per_octave), n as f64 / count));
            edges.filter(|bin| !is_cut || bin.0 < axis.high).collect()
        })
        .collect();
    let most = shares.iter().flatten().map(|bin| bin.2).fold(0.0, f64::max).max(1e-12);
    let y = |share: f64| bottom - share / most * (bottom - top);
    for percent in steps(most * 100.0, 3).into_iter().filter(|percent| *percent > 0.0 && *percent <= most * 100.0) {
        let y = y(percent / 100.0);
        d.line([(axis.left - 3.0, y), (axis.left, y)], 1.0, GREY, None);
        d.word(axis.left - 6.0, y, Anchor::End, false, GREY, format!("{} %", number(percent)));
    }
    if is_cut {
        let w = ((BEYOND - 12.0) / lines.len() as f64).min(12.0);
        d.word(d.width, bottom + 13.0, Anchor::End, false, GREY, "beyond".to_owned());
        for (place, line) in lines.iter().enumerate() {
            let (share, x) = (beyond(line, axis.high), axis.right + 14.0 + place as f64 * w);
            let h = if share > 0.0 { (share / most * (bottom - top)).clamp(1.5, bottom - top) } else { 0.0 };
            let title = Some(format!("{}: {} % beyond", line.name, number(share * 100.0)));
            d.shapes.push(Shape::Rect { x, y: bottom - h, w: w - 2.0, h, fill: colour(place), title });
        }
    }
    if let ([one], [line]) = (shares.as_slice(), lines) {
        for (low, high, share) in one {
            let (x, w) = (axis.x(*low), (axis.x(*high) - axis.x(*low)).max(1.0));
            // A bin with a single sample stays visible: the tail is why one looks.
            let h = (bottom - y(*share)).max(1.5);
            let n = (share * line.histogram.count() as f64).round() as u64;
            let title = Some(format!("{} to {}: {} samples", time(*low), time(*high), thousands(n)));
            d.shapes.push(Shape::Rect { x, y: bottom - h, w, h, fill: colour(0), title });
        }
        return;
    }
    let thickness = if width < LABELS_BESIDE { 1.6 } else { 2.0 };
    for (place, (bins, line)) in shares.iter().zip(lines).enumerate() {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (low, high, share) in bins {
            let (x0, x1, y) = (axis.x(*low), axis.x(*high), y(*share).min(bottom - 1.5));
            if points.last().is_none_or(|last| (last.0 - x0).abs() > 0.01) {
                points.extend(points.last().map(|last| (last.0, bottom)));
                points.push((x0, bottom));
            }
            points.extend([(x0, y), (x1, y)]);
        }
        points.extend(points.last().map(|last| (last.0, bottom)));
        d.path(points, thickness, colour(place), Some(line.name.clone()));
    }
}

/// Enough that one sample of the longest line is still seen.
fn decades(lines: &[&Curve]) -> i32 {
    let most = lines.iter().map(|line| line.histogram.count()).max().unwrap_or(1).max(10) as f64;
    (most.log10().ceil() as i32).clamp(1, MOST_DECADES)
}

/// Each decade down is one more nine.
fn tails(d: &mut Drawing, axis: &Axis, lines: &[&Curve], (top, bottom): (f64, f64)) {
    let decades = decades(lines);
    let y = |share: f64| (top - share.log10() / f64::from(decades) * (bottom - top)).min(bottom);
    for decade in (0..=decades).step_by(if decades > 6 { 2 } else { 1 }) {
        let share = 10f64.powi(-decade);
        let words = if decade > 5 { format!("1e-{} %", decade - 2) } else { format!("{} %", number(share * 100.0)) };
        d.line([(axis.left, y(share)), (axis.right, y(share))], 1.0, RULE, None);
        d.word(axis.left - 6.0, y(share), Anchor::End, false, GREY, words);
    }
    for (place, line) in lines.iter().enumerate() {
        let count = line.histogram.count() as f64;
        let mut left = line.histogram.count();
        let mut points = vec![(axis.left, y(1.0))];
        for (bin, n) in bins(&line.histogram, RESOLUTIONS[1]) {
            let x = axis.x(edge_ns(bin + 1, RESOLUTIONS[1]));
            left = left.saturating_sub(n);
            points.push((x, points[points.len() - 1].1));
            points.push((x, if left > 0 { y(left as f64 / count) } else { bottom }));
        }
        d.path(points, 2.0, colour(place), Some(line.name.clone()));
    }
}

impl Spans {
    pub(super) fn drawing(&self, width: f64) -> Option<Drawing> {
        let is_drawn = |row: &&Span| is_drawable(row.median) && row.median > 0.0 && is_drawable(row.max);
        let rows: Vec<&Span> = self.rows.iter().filter(is_drawn).collect();
        let low = rows.iter().map(|row| row.min.max(1e-3)).reduce(f64::min)?;
        let high = rows.iter().map(|row| row.max).reduce(f64::max)?;
        let is_beside = width >= LABELS_BESIDE;
        let widest = |of: &dyn Fn(&Span) -> usize| rows.iter().map(|row| of(row)).max().unwrap_or(0) as f64 * CHARACTER;
        let labels = widest(&|row| row.label.chars().count());
        let left = if is_beside { labels.min(width * 0.38) + 12.0 } else { 4.0 };
        let figure = |row: &Span| match is_beside && !row.more.is_empty() {
            true => format!("{}, {}", row.figure, row.more),
            false => row.figure.clone(),
        };
        let right = width - widest(&|row| figure(row).chars().count()).min(width * 0.4) - 12.0;
        let axis = Axis::new(low, high, left, right);
        let lines = if rows.iter().any(|row| !row.more.is_empty()) { 3.0 } else { 2.0 };
        let height = if is_beside { LINE + 4.0 } else { lines * LINE };
        let (top, bottom) = (6.0, 6.0 + rows.len() as f64 * height + 4.0);
        let mut d = Drawing { width, height: 0.0, shapes: Vec::new() };
        axis.draw(&mut d, top, bottom);
        for (place, row) in rows.iter().enumerate() {
            let mut y = top + (place as f64 + 0.5) * height;
            if is_beside {
                let label = middle_cut(&row.label, ((left - 12.0) / CHARACTER) as usize);
                d.word(left - 8.0, y, Anchor::End, false, BLACK, label);
            } else {
                let label = middle_cut(&row.label, (width / CHARACTER) as usize);
                d.word(left, y - (lines - 1.0) * LINE / 2.0 + 2.0, Anchor::Start, false, BLACK, label);
                d.word(left, y + 2.0, Anchor::Start, false, GREY, row.more.clone());
                y += (lines - 1.0) * LINE / 2.0;
            }
            let fill = colour(0);
            let words = format!("{}: {}", row.label, row.figure);
            let [min, median, max] = [row.min, row.median, row.max].map(|ns| axis.x(ns));
            d.line([(min, y), (max, y)], 1.5, fill, Some(words.clone()));
            d.line([(max, y - 4.0), (max, y + 4.0)], 1.5, fill, None);
            if let Some(p99) = row.p99 {
                let w = (axis.x(p99) - min).max(1.0);
                d.shapes.push(Shape::Rect { x: min, y: y - 4.0, w, h: 8.0, fill, title: Some(words.clone()) });
            }
            d.line([(median, y - 7.0), (median, y + 7.0)], 2.5, LIMIT, Some(words));
            d.word(right + 8.0, y, Anchor::Start, false, BLACK, figure(row));
        }
        d.height = bottom + 26.0;
        Some(d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_a_few_round_ticks_whatever_its_range() {
        for (low, high) in [(180.0, 190.0), (900.0, 1100.0), (1.0, 9.0), (100.0, 70_000.0), (0.5, 3.6e12)] {
            let found = ticks(low, high);
            assert!((2..=12).contains(&found.len()), "{low} to {high}: {found:?}");
            assert!(found.iter().all(|tick| (low..=high).contains(tick)), "{low} to {high}: {found:?}");
        }
    }

    #[test]
    fn every_sample_is_in_the_histogram_and_the_tail_ends_at_the_slowest() {
        let one = |name: &str, values: Vec<u64>| Curve {
            name: name.to_owned(),
            histogram: Histogram::of_ns(values).unwrap(),
        };
        let single = Curves { lines: vec![one("a", vec![100, 100, 200, 5000])], ..Curves::default() };
        let titles: Vec<String> =
            single.drawing(super::super::WIDE).unwrap().shapes.iter().filter_map(bin_of).collect();
        let counted: u64 = titles
            .iter()
            .map(|title| title.split(": ").nth(1).unwrap().split(' ').next().unwrap().parse::<u64>().unwrap())
            .sum();
        assert_eq!(counted, 4, "{titles:?}");
        let two = vec![one("before", vec![100; 50]), one("after", vec![100, 9000])];
        for is_tail in [false, true] {
            let drawing = Curves { lines: two.clone(), is_tail, ..Curves::default() }.drawing(760.0).unwrap();
            let paths = drawing.shapes.iter().filter(|shape| matches!(shape, Shape::Path { .. }));
            assert_eq!(paths.count(), 2, "one line for each run");
        }
        assert!(Curves::default().drawing(760.0).is_none());
    }

    #[test]
    fn what_lies_far_beyond_p99_9_has_a_bar_of_its_own() {
        let line = |name: &str, slow: u64| Curve {
            name: name.to_owned(),
            histogram: Histogram::of_ns((0..10_000).map(|n| if n < 3 { slow } else { 500 + n % 40 })).unwrap(),
        };
        let of = |slow: u64, is_cut| {
            let curves = Curves { lines: vec![line("a", 500), line("b", slow)], is_cut, ..Curves::default() };
            let bars = curves.drawing(760.0).unwrap().shapes.iter().filter_map(beyond_of).collect::<Vec<_>>();
            (curves.beyond(), bars)
        };
        let (words, bars) = of(90_000, true);
        assert_eq!(bars, ["a: 0 % beyond", "b: 0.03 % beyond"]);
        assert!(words.is_some_and(|words| words.contains("0.03 % of b (up to 9")));
        // Nothing is cut off where the slowest sample is near, or where nobody asked.
        assert_eq!((of(550, true), of(90_000, false)), ((None, Vec::new()), (None, Vec::new())));
    }

    fn beyond_of(shape: &Shape) -> Option<String> {
        match shape {
            Shape::Rect { title: Some(title), .. } if title.ends_with("beyond") => Some(title.clone()),
            _ => None,
        }
    }

    fn bin_of(shape: &Shape) -> Option<String> {
        match shape {
            Shape::Rect { title: Some(title), .. } if title.ends_with("samples") => Some(title.clone()),
            _ => None,
        }
    }
}
