//! Heat maps as rectangles and words: what SVG and PNG have in common.

use crate::heat::{HeatMap, colour, ink, share};
use crate::text::duration;

/// Which end of a word its position is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Its left end.
    Start,
    /// Its middle.
    Middle,
    /// Its right end.
    End,
}

/// Something to draw. Lengths are pixels at a scale of 1; y grows downwards.
#[derive(Debug)]
pub enum Shape {
    /// A filled rectangle with an optional word that appears on hovering.
    Rect {
        /// Left edge.
        x: f64,
        /// Upper edge.
        y: f64,
        /// Width.
        w: f64,
        /// Height.
        h: f64,
        /// Colour.
        fill: [u8; 3],
        /// What the rectangle stands for.
        title: Option<String>,
    },
    /// A word whose middle line is at `y`.
    Text {
        /// Position.
        x: f64,
        /// Middle line.
        y: f64,
        /// Which end `x` is.
        anchor: Anchor,
        /// Whether it is a heading.
        is_large: bool,
        /// Colour.
        fill: [u8; 3],
        /// The word.
        text: String,
    },
}

/// A picture.
#[derive(Debug)]
pub struct Drawing {
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
    /// What it shows, in the order of drawing.
    pub shapes: Vec<Shape>,
}

const MARGIN: f64 = 16.0;
/// The width of a character of the small monospaced font.
pub const CHARACTER: f64 = 7.0;
const BLACK: [u8; 3] = [20, 20, 24];
const GREY: [u8; 3] = [100, 100, 108];
const NO_VALUE: [u8; 3] = [225, 225, 228];
/// Room for the grid itself.
const GRID_WIDTH: f64 = 1000.0;

/// The maps one below the other, on white.
pub fn heat_maps(maps: &[HeatMap]) -> Drawing {
    let mut drawing = Drawing { width: 0.0, height: MARGIN, shapes: Vec::new() };
    for map in maps {
        one(&mut drawing, map);
    }
    if maps.is_empty() {
        drawing.word(MARGIN, MARGIN + 8.0, Anchor::Start, false, GREY, "no record has latencies".to_owned());
        drawing.height += 2.0 * MARGIN;
        drawing.width = 300.0;
    }
    drawing
}

fn one(d: &mut Drawing, map: &HeatMap) {
    let top = d.height;
    d.word(MARGIN, top + 8.0, Anchor::Start, true, BLACK, map.title.clone());
    d.word(MARGIN, top + 28.0, Anchor::Start, false, GREY, map.subtitle.clone());
    let longest = map.targets.iter().map(|t| t.chars().count()).max().unwrap_or(0);
    let left = MARGIN + (longest as f64 + 1.0) * CHARACTER;
    let cell_w = (GRID_WIDTH / map.cpus.len() as f64).clamp(1.0, 84.0);
    let cell_h = (600.0 / map.targets.len() as f64).clamp(4.0, 26.0);
    let grid_top = top + 44.0;
    // Thousands of cells touch; few have a gap, so that neighbours of one colour stay apart.
    let gap = if cell_w >= 8.0 && cell_h >= 8.0 { 1.0 } else { 0.0 };
    let range = map.range().unwrap_or((1.0, 1.0));
    for (row, values) in map.values.iter().enumerate() {
        let y = grid_top + row as f64 * cell_h;
        if cell_h >= 12.0 || row % (12.0 / cell_h).ceil() as usize == 0 {
            d.word(left - CHARACTER, y + cell_h / 2.0, Anchor::End, false, BLACK, map.targets[row].clone());
        }
        for (column, value) in values.iter().enumerate() {
            let x = left + column as f64 * cell_w;
            let fill = value.map_or(NO_VALUE, |v| colour(share(v, range)));
            let words = value.map_or("not measured".to_owned(), duration);
            let title = format!("CPU {} {}: {words}", map.cpus[column], map.targets[row]);
            d.shapes.push(Shape::Rect { x, y, w: cell_w - gap, h: cell_h - gap, fill, title: Some(title) });
            if let Some(text) = value.map(duration).filter(|t| (t.chars().count() as f64 + 0.5) * CHARACTER <= cell_w) {
                if cell_h >= 14.0 {
                    d.word(x + (cell_w - gap) / 2.0, y + (cell_h - gap) / 2.0, Anchor::Middle, false, ink(fill), text);
                }
            }
        }
    }
    let bottom = grid_top + map.targets.len() as f64 * cell_h;
    // CPU numbers as close as they stay apart.
    let widest = map.cpus.last().map_or(1, |c| c.to_string().len());
    let every = ((widest as f64 + 1.5) * CHARACTER / cell_w).ceil().max(1.0) as usize;
    for (column, cpu) in map.cpus.iter().enumerate().step_by(every) {
        d.word(left + (column as f64 + 0.5) * cell_w, bottom + 10.0, Anchor::Middle, false, BLACK, cpu.to_string());
    }
    d.word(left - CHARACTER, bottom + 10.0, Anchor::End, false, GREY, "CPU".to_owned());
    scale(d, map, left, bottom + 26.0);
    let right = left + map.cpus.len() as f64 * cell_w;
    let words = [(&map.title, 9.0), (&map.subtitle, CHARACTER)];
    let words = words.iter().map(|(t, c)| MARGIN + t.chars().count() as f64 * c).fold(0.0, f64::max);
    d.width = d.width.max(right.max(words).max(left + 340.0) + MARGIN);
    d.height = bottom + 26.0 + 36.0 + MARGIN;
}

fn scale(d: &mut Drawing, map: &HeatMap, left: f64, top: f64) {
    let Some((low, high)) = map.range() else { return };
    const STEPS: usize = 64;
    for step in 0..STEPS {
        let fill = colour(step as f64 / (STEPS - 1) as f64);
        d.shapes.push(Shape::Rect { x: left + 90.0 + step as f64 * 2.0, y: top, w: 2.0, h: 12.0, fill, title: None });
    }
    d.word(left + 84.0, top + 6.0, Anchor::End, false, BLACK, duration(low));
    d.word(left + 96.0 + 2.0 * STEPS as f64, top + 6.0, Anchor::Start, false, BLACK, duration(high));
}

impl Drawing {
    fn word(&mut self, x: f64, y: f64, anchor: Anchor, is_large: bool, fill: [u8; 3], text: String) {
        self.shapes.push(Shape::Text { x, y, anchor, is_large, fill, text });
    }
}
