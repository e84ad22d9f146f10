//! The figures of readouts: charts drawn here as SVG that takes the page's colours, each with its table below.

use crate::chart::{LIMIT, RULE, SERIES};
use crate::drawing::{BLACK, Drawing, GREY};
use crate::model::{self, Kind, Section};
use crate::readout::{figures, groups};
use crate::svg;

/// The style of charts, for pages that have any.
pub const CSS: &str = include_str!("readout.css");

/// Whether a section is of a readout.
pub fn is_readout(section: &Section) -> bool {
    model::kind(section.test()) == Kind::Readout
}

/// The devices of the sections that are readouts, each once.
pub fn devices<'r>(sections: &[Section<'r>]) -> Vec<&'r str> {
    let mut paths: Vec<&str> = Vec::new();
    for section in sections.iter().filter(|section| is_readout(section)) {
        for path in groups(section).iter().flat_map(|group| group.paths()) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    paths
}

/// The figures of a section.
pub fn write(page: &mut String, section: &Section) {
    for figure in figures::of(section) {
        *page += &format!("<figure class=\"drawn\">\n<h3>{}</h3>\n", super::safe(&figure.heading));
        if let Some(chart) = &figure.chart {
            draw(page, chart, &figure.heading);
        }
        super::write_table(page, &figure.table);
        if !figure.note.is_empty() {
            *page += &format!("<figcaption>{}</figcaption>\n", super::safe(&figure.note));
        }
        page.push_str("</figure>\n");
    }
}

fn draw(page: &mut String, chart: &Drawing, name: &str) {
    let (w, h) = (chart.width.ceil(), chart.height.ceil());
    *page += &format!(
        "<div class=\"scroll\"><svg viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" role=\"img\" aria-label=\"{}\">\n",
        super::safe(name)
    );
    svg::shapes(page, chart, &class);
    page.push_str("</svg></div>\n");
}

/// Colours are the style sheet's, so that they follow dark and light.
fn class(colour: [u8; 3], attribute: &str) -> String {
    let name = match SERIES.iter().position(|known| *known == colour) {
        Some(place) => place.to_string(),
        None if colour == RULE => "rule".to_owned(),
        None if colour == LIMIT => "limit".to_owned(),
        None if colour == GREY => "soft".to_owned(),
        None => {
            debug_assert_eq!(colour, BLACK);
            "ink".to_owned()
        }
    };
    format!("class=\"{attribute}-{name}\"")
}
