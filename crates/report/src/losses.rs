//! What a section lost, by the table of [`pciescope_core::loss`].

use pciescope_core::loss::{LOSSES, Loss, Of};

use crate::model::Section;
use crate::style::{Tone, paint};
use crate::text::thousands;

/// What stands in place of losses of which no count is a number.
pub(crate) const UNKNOWN: &str = "losses not known";

/// A count of a section.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LossCount {
    pub loss: &'static Loss,
    /// The sum of the records that know theirs.
    pub sum: f64,
    /// Whether all do: a loss that is no number, or below 0, is not known.
    pub is_known: bool,
}

/// The losses of a section that any of its records counts. Wrong data are not among them: outputs set these against
/// the data that were compared.
pub(crate) fn of<'s>(section: &'s Section) -> &'s [LossCount] {
    let counted = |loss: &'static Loss| {
        let (sum, is_known) = section.losses(loss.name)?;
        Some(LossCount { loss, sum, is_known })
    };
    let all = || LOSSES.iter().filter(|loss| loss.of != Of::Data).filter_map(counted).collect();
    section.asked.losses.get_or_init(all)
}

/// The sum of what is lost or wrong, and whether all of it is known; `None` where nothing was counted.
pub(crate) fn total<'s>(sections: impl IntoIterator<Item = &'s Section<'s>>) -> Option<(f64, bool)> {
    sum(&sections.into_iter().flat_map(of).copied().collect::<Vec<_>>())
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
