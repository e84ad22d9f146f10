//! Events at a steady rate, in whole numbers: after any time, split into any steps, their number is the one that the
//! rate gives.

const NANOS: u128 = 1_000_000_000;

/// Events at a rate, with the part of the next one that has already passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    per_second: u64,
    /// Of the next event, in units of 10^-9 of it: always less than a whole one.
    begun: u64,
}

impl Pace {
    /// The first event comes a whole interval from now.
    pub fn new(per_second: u64) -> Self {
        Pace { per_second, begun: 0 }
    }

    fn passed(&self, ns: u64) -> u128 {
        u128::from(self.begun) + u128::from(self.per_second) * u128::from(ns)
    }

    /// How many events the next `ns` nanoseconds hold.
    pub fn events_in(&self, ns: u64) -> u64 {
        u64::try_from(self.passed(ns) / NANOS).unwrap_or(u64::MAX)
    }

    /// Lets `ns` nanoseconds pass and tells how many events that were.
    pub fn pass(&mut self, ns: u64) -> u64 {
        let events = self.events_in(ns);
        self.begun = (self.passed(ns) % NANOS) as u64;
        events
    }

    /// Nanoseconds until `events` more (at least 1) have happened; `None` if that is never.
    pub fn until(&self, events: u64) -> Option<u64> {
        let missing = (u128::from(events) * NANOS).saturating_sub(u128::from(self.begun));
        let ns = missing.checked_add(u128::from(self.per_second).checked_sub(1)?)? / u128::from(self.per_second);
        u64::try_from(ns).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_second_holds_as_many_as_the_rate_says() {
        for rate in [0, 1, 3, 40_159_522, 500_000_000, 999_999_999, 1_000_000_001, 123_456_789_012] {
            assert_eq!(Pace::new(rate).pass(1_000_000_000), rate);
        }
    }

    #[test]
    fn nothing_happens_at_rate_0() {
        assert_eq!((Pace::new(0).pass(u64::MAX), Pace::new(0).until(1)), (0, None));
    }

    proptest! {
        #[test]
        fn steps_of_any_length_lose_nothing(rate in 0..10_000_000_000u64, steps in prop::collection::vec(0..3_000_000_000u64, 0..40)) {
            let mut pace = Pace::new(rate);
            let events: u128 = steps.iter().map(|ns| u128::from(pace.pass(*ns))).sum();
            let ns: u128 = steps.iter().map(|ns| u128::from(*ns)).sum();
            prop_assert_eq!(events, u128::from(rate) * ns / NANOS);
        }

        #[test]
        fn the_time_of_an_event_is_exact(rate in 1..10_000_000_000u64, before in 0..3_000_000_000u64, events in 1..10_000_000_000u64) {
            let mut pace = Pace::new(rate);
            pace.pass(before);
            let ns = pace.until(events).unwrap();
            prop_assert!(pace.events_in(ns) >= events);
            prop_assert!(ns == 0 || pace.events_in(ns - 1) < events);
        }
    }
}
