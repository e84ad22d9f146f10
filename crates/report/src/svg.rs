//! Heat maps and charts as SVG: text that any browser or editor shows, with the value of a cell on hovering.

use pciescope_core::Record;
use std::fmt::Write;

use crate::drawing::{Anchor, Drawing, Shape};
use crate::print::picture;
use crate::text::{clean, escape};

/// The heat maps and charts of these records, one below the other.
pub fn render(records: &[Record]) -> String {
    let drawing = picture::of(records);
    let (w, h) = (drawing.width.ceil(), drawing.height.ceil());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', monospace\" font-size=\"11.6\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    shapes(&mut svg, &drawing, &|fill, name| format!("{name}=\"{}\"", hex(fill)));
    svg + "</svg>\n"
}

/// The shapes of a drawing; `colour` gives the attribute that colours an element's `fill` or `stroke`.
pub(crate) fn shapes(svg: &mut String, drawing: &Drawing, colour: &dyn Fn([u8; 3], &str) -> String) {
    let titled = |title: &Option<String>| {
        title.as_ref().map(|t| format!("<title>{}</title>", escape(&clean(t)))).unwrap_or_default()
    };
    for shape in &drawing.shapes {
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

fn hex([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}
