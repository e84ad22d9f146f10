//! Bars and histories made of characters.

use crate::theme::Theme;

const PARTS: [char; 8] =
    ['\u{258f}', '\u{258e}', '\u{258d}', '\u{258c}', '\u{258b}', '\u{258a}', '\u{2589}', '\u{2588}'];
const LEVELS: [char; 8] =
    ['\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}'];
const LEVELS_ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// A bar of `columns` that is full at 100 %, as its filled and its empty part. A share above 0 fills one step at least. A
/// share that is not known or not a number leaves the bar empty.
pub fn bar(theme: Theme, percent: Option<f64>, columns: u16) -> (String, String) {
    let share = percent.filter(|p| p.is_finite()).unwrap_or(0.0).clamp(0.0, 100.0) / 100.0;
    let (steps, empty) = if theme.has_unicode { (8, '\u{b7}') } else { (1, '.') };
    let total = usize::from(columns) * steps;
    let mut filled = (share * total as f64).round() as usize;
    if share > 0.0 {
        filled = filled.clamp(1, total.max(1));
    }
    let mut text = String::new();
    if theme.has_unicode {
        text.extend(std::iter::repeat_n(PARTS[7], filled / 8));
        if filled % 8 > 0 {
            text.push(PARTS[filled % 8 - 1]);
        }
    } else {
        text.extend(std::iter::repeat_n('#', filled));
    }
    let used = text.chars().count();
    let text: String = text.chars().take(usize::from(columns)).collect();
    (text, std::iter::repeat_n(empty, usize::from(columns).saturating_sub(used)).collect())
}

/// A value as one character, from nothing to `most`.
pub fn level(theme: Theme, value: f64, most: f64) -> char {
    let levels = if theme.has_unicode { LEVELS } else { LEVELS_ASCII };
    if !value.is_finite() {
        return '?';
    }
    if most <= 0.0 || !most.is_finite() || value <= 0.0 {
        return levels[0];
    }
    levels[((value / most * 7.0).round() as usize).clamp(1, 7)]
}

/// The last `columns` values as one line, the newest at the right; a blank stands for no value. The largest has full
/// height.
pub fn history(theme: Theme, values: &[Option<f64>], columns: u16) -> String {
    let columns = usize::from(columns);
    let shown = &values[values.len().saturating_sub(columns)..];
    let most = largest(shown);
    let blanks = std::iter::repeat_n(' ', columns - shown.len());
    blanks.chain(shown.iter().map(|value| value.map_or(' ', |value| level(theme, value, most)))).collect()
}

/// The largest number among values; 0 where there is none.
pub fn largest(values: &[Option<f64>]) -> f64 {
    values.iter().flatten().copied().filter(|value| value.is_finite()).fold(0.0, f64::max)
}

/// The last `columns` values as a chart of `rows` lines from the top down, full at `most`.
pub fn chart(theme: Theme, values: &[Option<f64>], most: f64, columns: u16, rows: u16) -> Vec<String> {
    let (columns, rows) = (usize::from(columns), usize::from(rows));
    let shown = &values[values.len().saturating_sub(columns)..];
    let steps = if theme.has_unicode { 8 } else { 1 };
    let height = |value: f64| {
        if !value.is_finite() || most <= 0.0 || !most.is_finite() || value <= 0.0 {
            return 0;
        }
        ((value / most * (rows * steps) as f64).round() as usize).clamp(1, rows * steps)
    };
    let cell = |value: Option<f64>, from_bottom: usize| {
        let Some(value) = value else { return ' ' };
        let filled = height(value).saturating_sub(from_bottom * steps);
        match filled.min(steps) {
            0 if from_bottom == 0 => LEVELS_OF_NOTHING[usize::from(theme.has_unicode)],
            0 => ' ',
            _ if !theme.has_unicode => '#',
            n => LEVELS[n - 1],
        }
    };
    (0..rows)
        .rev()
        .map(|row| {
            let blanks = std::iter::repeat_n(' ', columns - shown.len());
            blanks.chain(shown.iter().map(|value| cell(*value, row))).collect()
        })
        .collect()
}

/// The bottom line of a chart at a value of 0.
const LEVELS_OF_NOTHING: [char; 2] = ['_', '\u{2581}'];

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: Theme = Theme { has_unicode: true, has_colour: true };
    const PLAIN: Theme = Theme { has_unicode: false, has_colour: false };

    fn joined(theme: Theme, percent: Option<f64>, columns: u16) -> String {
        let (filled, empty) = bar(theme, percent, columns);
        filled + &empty
    }

    #[test]
    fn a_bar_has_its_width_whatever_the_figure() {
        for percent in [None, Some(f64::NAN), Some(-1.0), Some(0.0), Some(0.001), Some(50.0), Some(100.0), Some(1e300)]
        {
            for columns in [0, 1, 7] {
                for theme in [BLOCKS, PLAIN] {
                    assert_eq!(joined(theme, percent, columns).chars().count(), usize::from(columns), "{percent:?}");
                }
            }
        }
        assert_eq!(joined(PLAIN, Some(50.0), 6), "###...");
        assert_eq!(joined(PLAIN, Some(0.01), 6), "#.....", "what is not nothing shows");
        assert_eq!(joined(BLOCKS, Some(50.0), 3), "\u{2588}\u{258c}\u{b7}");
    }

    #[test]
    fn a_history_keeps_the_newest_and_its_gaps() {
        let values = [Some(9.0), Some(0.0), None, Some(4.0), Some(8.0)];
        assert_eq!(history(PLAIN, &values, 4), "_ =#");
        assert_eq!(history(PLAIN, &values, 7), "  #_ -*");
        assert_eq!(history(PLAIN, &[Some(f64::NAN), Some(1.0)], 2), "?#");
    }

    #[test]
    fn a_chart_fills_from_below() {
        let lines = chart(PLAIN, &[Some(0.0), Some(1.0), Some(2.0)], 2.0, 4, 2);
        assert_eq!(lines, ["   #", " _##"]);
    }
}
