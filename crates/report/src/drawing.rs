//! Rectangles, lines and words: what SVG and PNG have in common.

use std::fmt::Write;

use crate::text::{clean, escape};

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
    /// The elements of its shapes as SVG; `colour` gives the attribute that colours an element's `fill` or `stroke`.
    pub(crate) fn push_svg(&self, svg: &mut String, colour: &dyn Fn([u8; 3], &str) -> String) {
        let titled = |title: &Option<String>| {
            title.as_ref().map(|t| format!("<title>{}</title>", escape(&clean(t)))).unwrap_or_default()
        };
        for shape in &self.shapes {
            // Writing to a String cannot fail.
            let _ = match shape {
                Shape::Rect { x, y, w, h, fill, title } => {
                    let (fill, title) = (colour(*fill, "fill"), titled(title));
                    writeln!(
                        svg,
                        "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{w:.2}\" height=\"{h:.2}\" {fill}>{title}</rect>"
                    )
                }
                Shape::Line { from, to, thickness, fill, title } if from == to => {
                    let (x1, y1) = from;
                    let (fill, title, r) = (colour(*fill, "fill"), titled(title), thickness / 2.0);
                    writeln!(svg, "<circle cx=\"{x1:.2}\" cy=\"{y1:.2}\" r=\"{r:.2}\" {fill}>{title}</circle>")
                }
                Shape::Line { from: (x1, y1), to: (x2, y2), thickness, fill, title } => {
                    let (stroke, title) = (colour(*fill, "stroke"), titled(title));
                    writeln!(
                        svg,
                        "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" stroke-width=\"{thickness}\" \
                         {stroke}>{title}</line>"
                    )
                }
                Shape::Path { points, thickness, fill, title } => {
                    let (stroke, title) = (colour(*fill, "stroke"), titled(title));
                    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
                    writeln!(
                        svg,
                        "<polyline points=\"{}\" fill=\"none\" stroke-width=\"{thickness}\" {stroke}>{title}</polyline>",
                        points.join(" ")
                    )
                }
                Shape::Text { x, y, anchor, is_large, fill, text } => {
                    let anchor = match anchor {
                        Anchor::Start => "start",
                        Anchor::Middle => "middle",
                        Anchor::End => "end",
                    };
                    let size = if *is_large { " font-size=\"15\" font-weight=\"bold\"" } else { "" };
                    // 0.35 em below the middle line is the baseline; dominant-baseline is not known everywhere.
                    let y = y + if *is_large { 5.2 } else { 4.1 };
                    let fill = colour(*fill, "fill");
                    let text = escape(&clean(text));
                    writeln!(svg, "<text x=\"{x:.2}\" y=\"{y:.2}\" text-anchor=\"{anchor}\" {fill}{size}>{text}</text>")
                }
            };
        }
    }
}
