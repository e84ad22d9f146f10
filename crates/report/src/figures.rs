//! Figures of a section: charts, each with its table. What has heat maps has only those of its slowest samples.

mod convert;
pub(crate) mod counters;
mod readout;
mod tune;
mod verify;
mod watch;
mod why;

use pciescope_core::{change, comparison, convert as conversion, tune as tuning};

use crate::chart::{Bars, Chart, WIDE};
use crate::drawing::Drawing;
use crate::layout::Columns;
use crate::model::{self, Kind, Section};
use crate::text::clean;

/// No chart has more bars: the table below has them all.
const MOST_BARS: usize = 48;

/// A chart and its figures.
pub(crate) struct Figure {
    pub heading: String,
    /// How to read it.
    pub note: String,
    /// `None` where it has a table only.
    pub chart: Option<Chart>,
    pub table: Columns,
    /// Whether the terminal shows the table: the others only repeat rows that it has shown.
    pub is_digest: bool,
}

/// The figures of a section, the most important first.
pub(crate) fn of(section: &Section) -> Vec<Figure> {
    match model::kind(section.test()) {
        Kind::Readout => readout::of(section),
        Kind::Mmio | Kind::Path | Kind::Irq => why::of(section),
        Kind::Counters => counters::of(section),
        Kind::Verify if section.test() == comparison::TEST => verify::of(section),
        Kind::Other if section.test() == conversion::TEST => convert::of(section),
        Kind::Other if section.test() == change::TEST => watch::of(section),
        Kind::Other if section.test() == tuning::TEST => tune::of(section),
        _ => Vec::new(),
    }
}

/// The charts of a section with their titles, for a picture.
pub(crate) fn drawn(section: &Section) -> Vec<(String, Drawing)> {
    let emulated = if section.is_emulated() { " - EMULATED" } else { "" };
    let synthetic = if section.is_synthetic() { " - SYNTHETIC" } else { "" };
    let label = section.first().label.as_ref().map(|label| format!(" ({})", clean(label))).unwrap_or_default();
    let title = |heading: &str| format!("{heading}{label}{emulated}{synthetic}");
    of(section).into_iter().filter_map(|figure| Some((title(&figure.heading), figure.chart?.drawing(WIDE)?))).collect()
}

/// A chart of not too many bars; the note says where some are left out.
pub(crate) fn drawn_few(chart: Bars, note: &str) -> (Option<Chart>, String) {
    let (chart, left_out) = drawn_first(chart, "; the table has all");
    (chart, format!("{left_out}{note}").trim_end().to_owned())
}

/// The same, and a sentence on what is left out: that it is the case, and `where_else` it stands.
pub(crate) fn drawn_first(mut chart: Bars, where_else: &str) -> (Option<Chart>, String) {
    let count = chart.bars.len();
    chart.bars.truncate(MOST_BARS);
    let left_out = if count > MOST_BARS {
        format!("The chart shows the first {MOST_BARS} of {count} bars{where_else}. ")
    } else {
        String::new()
    };
    (Some(Chart::Bars(chart)), left_out)
}
