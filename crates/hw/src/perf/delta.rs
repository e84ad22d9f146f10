//! The difference of two readings of a counter, and whether it is plausible.

use super::Reading;
use pciescope_core::warning;

pciescope_core::named! {
    /// What is wrong with a difference of two readings. A doubtful count is shown as none, never as a number.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Doubt {
        /// The count went backwards: somebody reset it.
        Backwards => "the count went backwards: something else reset it",
        /// More was counted than the hardware can do, or than a counter holds: it was reset, or torn while it was read.
        Impossible => "the count is more than the hardware can have counted: it was reset or misread",
        /// It never ran: something else held the hardware all the time.
        NeverRan => "it never ran: something else held the hardware",
        /// It was never to run: the event was taken from its CPU or PMU.
        NotEnabled => "it was not counted at all: its CPU or its PMU went away",
    }
    /// In words, for the text of a warning.
    fn text
}

impl Doubt {
    /// What a record warns of.
    pub fn kind(self) -> &'static warning::Kind {
        match self {
            Doubt::Backwards | Doubt::Impossible => &warning::COUNTER_RESET,
            Doubt::NeverRan | Doubt::NotEnabled => &warning::NOT_COUNTED,
        }
    }
}

/// What was counted between two readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delta {
    /// Counted while it ran; without meaning where there is a doubt.
    pub value: u64,
    /// For how long it was to count, in nanoseconds.
    pub enabled_ns: u64,
    /// For how long it did, in nanoseconds.
    pub running_ns: u64,
    /// What is wrong with it.
    pub doubt: Option<Doubt>,
}

/// Differences from here on are negative ones: no counter of ours gets there in a lifetime.
const NEGATIVE: u64 = 1 << 63;
/// How much of a time may be counted beyond `most`: what was buffered before it began, in nanoseconds.
const SLACK_NS: f64 = 1e6;

impl Delta {
    /// From one reading to a later one. `most` is how many the hardware can count per second, where that is known.
    pub fn between(before: Reading, after: Reading, most: Option<f64>) -> Self {
        let (enabled_ns, running_ns) =
            (after.enabled_ns.saturating_sub(before.enabled_ns), after.running_ns.saturating_sub(before.running_ns));
        let value = after.value.wrapping_sub(before.value);
        let limit = most.map(|most| most * (running_ns as f64 + SLACK_NS) / 1e9);
        let doubt = if enabled_ns == 0 {
            Some(Doubt::NotEnabled)
        } else if running_ns == 0 {
            Some(Doubt::NeverRan)
        } else if after.value >= NEGATIVE {
            Some(Doubt::Impossible)
        } else if after.value < before.value {
            Some(Doubt::Backwards)
        } else if limit.is_some_and(|limit| value as f64 > limit) {
            Some(Doubt::Impossible)
        } else {
            None
        };
        Delta { value, enabled_ns, running_ns, doubt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(value: u64, enabled_ns: u64, running_ns: u64) -> Reading {
        Reading { value, enabled_ns, running_ns }
    }

    #[test]
    fn a_difference_has_what_was_counted_and_for_how_long() {
        let delta = Delta::between(at(5, 100, 100), at(105, 1100, 500), None);
        assert_eq!((delta.value, delta.enabled_ns, delta.running_ns, delta.doubt), (100, 1000, 400, None));
    }

    #[test]
    fn what_cannot_be_is_a_doubt_() {
        let second = 1_000_000_000;
        for (before, after, most, doubt) in [
            (at(10, 0, 0), at(9, 10, 10), None, Doubt::Backwards),
            (at(0, 0, 0), at(u64::MAX, 10, 10), None, Doubt::Impossible),
            (at(0, 0, 0), at(1 << 63, 10, 10), None, Doubt::Impossible),
            (at(0, 0, 0), at(5, 10, 0), None, Doubt::NeverRan),
            (at(0, 7, 7), at(0, 7, 7), None, Doubt::NotEnabled),
            // The in-tree driver of a DRAM channel after another session reset it: almost 2^32 in a second.
            (at(1000, 0, 0), at((1 << 32) - 1, second, second), Some(1e9), Doubt::Impossible),
        ] {
            let delta = Delta::between(before, after, most);
            assert_eq!(delta.doubt, Some(doubt), "{before:?} {after:?}");
        }
    }

    #[test]
    fn what_the_hardware_can_do_is_no_doubt() {
        let second = 1_000_000_000;
        let delta = Delta::between(at(0, 0, 0), at(1_000_000_000, second, second), Some(1e9));
        assert_eq!((delta.value, delta.doubt), (1_000_000_000, None));
    }
}
