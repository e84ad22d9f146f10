//! Heat maps and charts as SVG: text that any browser or editor shows, with the value of a cell on hovering.

use pciescope_core::Record;

use crate::print::picture;

/// The heat maps and charts of these records, one below the other.
pub fn render(records: &[Record]) -> String {
    let drawing = picture::of(records);
    let (w, h) = (drawing.width.ceil(), drawing.height.ceil());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', monospace\" font-size=\"11.6\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    drawing.push_svg(&mut svg, &|fill, name| format!("{name}=\"{}\"", hex(fill)));
    svg + "</svg>\n"
}

fn hex([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}
