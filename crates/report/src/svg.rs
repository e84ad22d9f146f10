//! Heat maps as SVG: text that any browser or editor shows, with the value of a cell on hovering.

use std::fmt::Write;

use pciescope_core::Record;

use crate::drawing::{Anchor, Drawing, Shape, heat_maps};
use crate::heat;
use crate::text::{clean, escape};

/// The heat maps of these records, one below the other.
pub fn render(records: &[Record]) -> String {
    of(&heat_maps(&heat::heat_maps(records)))
}

fn of(drawing: &Drawing) -> String {
    let (w, h) = (drawing.width.ceil(), drawing.height.ceil());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', monospace\" font-size=\"11.6\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for shape in &drawing.shapes {
        // Writing to a String cannot fail.
        let _ = match shape {
            Shape::Rect { x, y, w, h, fill, title } => {
                let title = title.as_ref().map(|t| format!("<title>{}</title>", escape(&clean(t)))).unwrap_or_default();
                writeln!(
                    svg,
                    "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{w:.2}\" height=\"{h:.2}\" fill=\"{}\">{title}</rect>",
                    hex(*fill)
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
                let fill = hex(*fill);
                let text = escape(&clean(text));
                writeln!(
                    svg,
                    "<text x=\"{x:.2}\" y=\"{y:.2}\" text-anchor=\"{anchor}\" fill=\"{fill}\"{size}>{text}</text>"
                )
            }
        };
    }
    svg + "</svg>\n"
}

fn hex([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}
