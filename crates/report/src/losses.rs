//! What a section lost, by the table of [`pciescope_core::loss`].

use crate::model::{LossCount, Section};
use crate::style::{Tone, paint};
use crate::text::thousands;

/// What stands in place of losses of which no count is a number.
pub(crate) const UNKNOWN: &str = "losses not known";

/// The sum of what is lost or wrong, and whether all of it is known; `None` where nothing was counted.
pub(crate) fn total<'s>(sections: impl IntoIterator<Item = &'s Section<'s>>) -> Option<(f64, bool)> {
    sum(&sections.into_iter().flat_map(Section::loss_counts).copied().collect::<Vec<_>>())
}

fn sum(counts: &[LossCount]) -> Option<(f64, bool)> {
    let failures = counts.iter().filter(|count| count.loss.is_failure());
    failures.map(|count| (count.sum, count.is_known)).reduce(|a, b| (a.0 + b.0, a.1 && b.1))
}

/// What is lost or wrong, or else what is doubtful: `1,200 lost, 3 wrong cpu`. `None` where that is nothing.
pub(crate) fn words(counts: &[LossCount], is_failure: bool) -> Option<String> {
    let counts = counts.iter().filter(|count| count.loss.is_failure() == is_failure && count.sum != 0.0);
    let words: Vec<String> =
        counts.map(|count| format!("{} {}", thousands(count.sum as u64), count.loss.words)).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// The counts for a terminal, each kind in its colour; `None` where nothing was counted.
pub(crate) fn painted(counts: &[LossCount]) -> Option<String> {
    let failed = match (words(counts, true), sum(counts)) {
        (Some(lost), _) => Some(paint(Tone::Bad, &lost)),
        (None, Some((_, true))) => Some(paint(Tone::Good, "nothing lost")),
        (None, Some((_, false))) => Some(paint(Tone::Doubt, UNKNOWN)),
        (None, None) => None,
    };
    let doubtful = words(counts, false).map(|words| paint(Tone::Doubt, &words));
    let parts: Vec<String> = failed.into_iter().chain(doubtful).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
