//! Effects of settings, in words and tables.

use pciescope_core::tune::{Difference, Effect, Setting, Tune};

use crate::layout::{Columns, Left, Right, Rows};
use crate::text::{clean, thousands};

/// A wider interval tells nothing, in percent.
const FARTHEST_PERCENT: f64 = 1000.0;

/// A setting: `mrrs 4096`.
pub(crate) fn what(effect: &Effect) -> String {
    let all: Vec<String> = effect.settings.iter().map(|one| format!("{} {}", one.knob, one.value)).collect();
    all.join(", ")
}

/// `+11 % (9 to 13)`; from 10 % on in whole percent.
pub(crate) fn change(difference: Option<Difference>) -> String {
    let Some(Difference { percent, low_percent, high_percent }) = difference else { return "-".to_owned() };
    // Nothing is known that may be anything.
    if high_percent - low_percent > FARTHEST_PERCENT {
        return "not known".to_owned();
    }
    let digits = usize::from(percent.abs() < 10.0);
    // No -0.0.
    let text = |value: f64, sign: &str| {
        let value = (value * 10.0).round() / 10.0 + 0.0;
        if sign.is_empty() { format!("{value:.digits$}") } else { format!("{value:+.digits$}") }
    };
    format!("{} % ({} to {})", text(percent, "+"), text(low_percent, ""), text(high_percent, ""))
}

/// All effects, and whether each is that of the settings together.
pub(crate) fn rows(tune: &Tune) -> Vec<(&Effect, bool)> {
    let together = tune.best.iter().map(|best| (best, true));
    tune.effects.iter().map(|effect| (effect, false)).chain(together).collect()
}

/// The effects, and their prices.
pub(crate) fn effect_columns(tune: &Tune) -> (Columns, Columns) {
    let rows = rows(tune);
    let joined = |effect: &Effect, of: fn(&Setting) -> &String| {
        let all: Vec<&str> = effect.settings.iter().map(|one| of(one).as_str()).collect();
        clean(&all.join(", "))
    };
    let count = |count: u64| if count == 0 { "-".to_owned() } else { thousands(count) };
    let knob = |row: &(&Effect, bool)| if row.1 { "together".to_owned() } else { joined(row.0, |one| &one.knob) };
    let value = |row: &(&Effect, bool)| if row.1 { what(row.0) } else { joined(row.0, |one| &one.value) };
    let effects = Rows::of(rows.clone()).columns(&[
        ("Knob", 12, Left, &knob),
        ("Set to", 6, Left, &value),
        ("Answer", 10, Left, &|(effect, _)| effect.verdict.name().to_owned()),
        ("Change", 20, Left, &|(effect, _)| change(effect.change)),
        ("Compared", 8, Right, &|(effect, _)| thousands(effect.comparisons)),
    ]);
    let prices = Rows::of(rows).columns(&[
        ("Knob", 12, Left, &knob),
        ("Set to", 6, Left, &value),
        ("Was", 4, Left, &|(effect, together)| match together {
            true => "-".to_owned(),
            false => joined(effect, |one| &one.present),
        }),
        ("p99", 20, Left, &|(effect, _)| change(effect.prices.get("p99").copied())),
        ("CPU time", 20, Left, &|(effect, _)| change(effect.prices.get("cpu").copied())),
        ("Failed", 6, Right, &|(effect, _)| count(effect.blocks_failed)),
        ("Errors", 6, Right, &|(effect, _)| count(effect.errors)),
    ]);
    (effects, prices.without_empty())
}
