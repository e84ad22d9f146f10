//! Rectangles, lines and words: what SVG and PNG have in common.

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
    /// A straight line with round ends: of no length, a dot.
    Line {
        /// Where it begins.
        from: (f64, f64),
        /// Where it ends.
        to: (f64, f64),
        /// How thick it is.
        thickness: f64,
        /// Colour.
        fill: [u8; 3],
        /// What it stands for.
        title: Option<String>,
    },
    /// A line through many points.
    Path {
        /// The points.
        points: Vec<(f64, f64)>,
        /// How thick it is.
        thickness: f64,
        /// Colour.
        fill: [u8; 3],
        /// What it stands for.
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

/// The width of a character of the small monospaced font.
pub const CHARACTER: f64 = 7.0;
/// Words.
pub const BLACK: [u8; 3] = [20, 20, 24];
/// Words about words.
pub const GREY: [u8; 3] = [100, 100, 108];
impl Drawing {
    /// Another drawing within this one, which grows by `margin` around it.
    pub(crate) fn add(&mut self, other: Drawing, left: f64, top: f64, margin: f64) {
        self.width = self.width.max(left + other.width + margin);
        self.height = self.height.max(top + other.height + margin);
        self.shapes.extend(other.shapes.into_iter().map(|shape| match shape {
            Shape::Rect { x, y, w, h, fill, title } => Shape::Rect { x: x + left, y: y + top, w, h, fill, title },
            Shape::Line { from, to, thickness, fill, title } => {
                let moved = |(x, y)| (x + left, y + top);
                Shape::Line { from: moved(from), to: moved(to), thickness, fill, title }
            }
            Shape::Path { points, thickness, fill, title } => {
                let points = points.into_iter().map(|(x, y)| (x + left, y + top)).collect();
                Shape::Path { points, thickness, fill, title }
            }
            Shape::Text { x, y, anchor, is_large, fill, text } => {
                Shape::Text { x: x + left, y: y + top, anchor, is_large, fill, text }
            }
        }));
    }
    /// A line; of no length, a dot.
    pub(crate) fn line(&mut self, ends: [(f64, f64); 2], thickness: f64, fill: [u8; 3], title: Option<String>) {
        self.shapes.push(Shape::Line { from: ends[0], to: ends[1], thickness, fill, title });
    }
    pub(crate) fn path(&mut self, points: Vec<(f64, f64)>, thickness: f64, fill: [u8; 3], title: Option<String>) {
        self.shapes.push(Shape::Path { points, thickness, fill, title });
    }
    pub(crate) fn word(&mut self, x: f64, y: f64, anchor: Anchor, is_large: bool, fill: [u8; 3], text: String) {
        self.shapes.push(Shape::Text { x, y, anchor, is_large, fill, text });
    }
}
