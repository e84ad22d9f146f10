//! Records of tests that have no table of their own: their histograms and figures by name.

use super::{Page, summary};
use crate::facts::figures_by_name;
use crate::model::Section;
use crate::text::clean;

pub fn write(out: &mut Page, section: &Section) {
    let mut names: Vec<&String> = section.records.iter().flat_map(|r| r.histograms.keys()).collect();
    names.sort();
    names.dedup();
    let rows: Vec<_> = names.into_iter().map(|name| (clean(name), section.merged(name))).collect();
    summary::table(out, "Histograms", &rows);
    if let Some(columns) = figures_by_name(section) {
        out.heading("Figures");
        out.table(columns);
    }
}
