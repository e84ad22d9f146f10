//! Charts as SVG that takes the page's colours, each with its table below: once for wide views and once for telephones.

use pciescope_core::once;

use crate::chart::{BOX, Chart, Curves, FULL, LIMIT, NARROW, RULE, SERIES, WIDE};
use crate::drawing::{BLACK, Drawing, GREY};
use crate::figures::Figure;
use crate::model::{self, Kind, Section};
use crate::readout::groups;

/// The style of charts.
pub const CSS: &str = include_str!("charts.css");

/// Whether a section is of a readout.
pub fn is_readout(section: &Section) -> bool {
    model::kind(section.test()) == Kind::Readout
}

/// The devices of the sections that are readouts, each once.
pub fn devices<'r>(sections: &[Section<'r>]) -> Vec<&'r str> {
    let readouts = sections.iter().filter(|section| is_readout(section));
    once(readouts.flat_map(groups).flat_map(|group| group.paths()))
}

/// The figures of a section, each with its table.
pub fn figures(page: &mut String, figures: &[Figure]) {
    for figure in figures {
        *page += &format!("<figure class=\"drawn\">\n<h3>{}</h3>\n", super::safe(&figure.heading));
        if let Some(chart) = &figure.chart {
            widths(page, chart, &figure.heading, &[(WIDE, "wide"), (NARROW, "narrow")]);
        }
        super::write_table(page, &figure.table);
        if !figure.note.is_empty() {
            *page += &format!("<figcaption>{}</figcaption>\n", super::safe(&figure.note));
        }
        page.push_str("</figure>\n");
    }
}

/// A chart alone, with what one must know to read it. Its heading is that of a part of the page.
pub fn write(page: &mut String, heading: &str, chart: &Chart, note: &str) {
    *page += &format!("<figure class=\"drawn\">\n<h2>{}</h2>\n", super::safe(heading));
    widths(page, chart, heading, &[(FULL, "full"), (WIDE, "middle"), (NARROW, "narrow")]);
    if !note.is_empty() {
        *page += &format!("<figcaption>{}</figcaption>\n", super::safe(note));
    }
    page.push_str("</figure>\n");
}

/// A chart that has another one beside it.
pub fn write_half(page: &mut String, heading: &str, chart: &Chart) {
    *page += &format!("<figure class=\"drawn\">\n<h3>{}</h3>\n", super::safe(heading));
    widths(page, chart, heading, &[(HALF, "wide"), (NARROW, "narrow")]);
    page.push_str("</figure>\n");
}

/// The same for one that the script draws a cell over.
pub fn write_below_cell(page: &mut String, heading: &str, curves: Curves) {
    let Some(place) = curves.place(HALF) else { return };
    *page += &format!("<figure class=\"drawn\" data-axis=\"{place}\">\n<h4>{}</h4>\n", super::safe(heading));
    if let Some(drawing) = Chart::Curves(curves).drawing(HALF) {
        draw(page, &drawing, heading, "both");
    }
    page.push_str("</figure>\n");
}

/// Width of a chart that has another one beside it.
const HALF: f64 = 560.0;

/// The style sheet shows the one that fits.
fn widths(page: &mut String, chart: &Chart, name: &str, widths: &[(f64, &str)]) {
    for (width, class) in widths {
        if let Some(drawing) = chart.drawing(*width) {
            draw(page, &drawing, name, class);
        }
    }
}

/// A drawing as an element of the page.
pub fn draw(page: &mut String, drawing: &Drawing, name: &str, class_name: &str) {
    let (w, h) = (drawing.width.ceil(), drawing.height.ceil());
    *page += &format!(
        "<svg class=\"{class_name}\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" role=\"img\" aria-label=\"{}\">\n",
        super::safe(name)
    );
    drawing.push_svg(page, &class);
    page.push_str("</svg>\n");
}

/// Colours are the style sheet's, so that they follow dark and light.
fn class(colour: [u8; 3], attribute: &str) -> String {
    let name = match SERIES.iter().position(|known| *known == colour) {
        Some(place) => place.to_string(),
        None if colour == RULE => "rule".to_owned(),
        None if colour == LIMIT => "limit".to_owned(),
        None if colour == BOX => "box".to_owned(),
        None if colour == GREY => "soft".to_owned(),
        None => {
            debug_assert_eq!(colour, BLACK);
            "ink".to_owned()
        }
    };
    format!("class=\"{attribute}-{name}\"")
}
