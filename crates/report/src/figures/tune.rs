//! What settings did: a row for each, with its interval, beside zero.

use pciescope_core::Plan;
use pciescope_core::tune::Goal;

use super::{Figure, MOST_BARS};
use crate::chart::{Chart, Forest, ForestRow};
use crate::effects::{change, effect_columns, rows, what};
use crate::model::Section;
use crate::text::clean;

/// The effects in the order of their table.
pub fn of(section: &Section) -> Vec<Figure> {
    let tune = section.records.last().and_then(|record| record.tune.as_ref()).filter(|tune| !tune.effects.is_empty());
    let (Some(tune), Some(Plan::Tune(plan))) = (tune, section.plan) else { return Vec::new() };
    let row = |(effect, is_together): (&pciescope_core::tune::Effect, bool)| ForestRow {
        label: clean(&format!("{}{}", if is_together { "together: " } else { "" }, what(effect))),
        values: effect.change.map(|change| [change.percent, change.low_percent, change.high_percent]),
        verdict: effect.verdict,
        figure: format!("{} {}", effect.verdict.name(), change(effect.change)),
    };
    let (better, least) = (if plan.goal == Goal::Max { "more" } else { "less" }, plan.least_percent);
    let chart = Forest {
        across: format!("change of {} in %, {better} is better", clean(&plan.figure)),
        least,
        rows: rows(tune).into_iter().take(MOST_BARS).map(row).collect(),
    };
    let signs = "Dot: helps; cross: hurts; upright line: no difference; two lines: undecided.";
    vec![Figure {
        heading: "What the settings did".to_owned(),
        note: format!("{signs} Within the grey zone, {least} %, a change is too small to matter."),
        chart: Some(Chart::Forest(chart)),
        table: effect_columns(tune).0,
        is_digest: false,
    }]
}
