//! The trigger generator: pulses on lines at a steady rate, without jitter on the device's clock, and single ones.

use std::collections::VecDeque;

/// What the pulses are seen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lines {
    /// Backplane lines, by bit.
    pub(super) mlvds: u8,
    /// Front inputs, by bit.
    pub(super) front: u8,
    /// Whether the channels' signals cross their thresholds with it.
    pub(super) has_signal: bool,
}

/// A pulse is this long.
pub(super) const PULSE_NS: u64 = 10_000;
const PS_PER_S: u128 = 1_000_000_000_000;

/// The generator.
#[derive(Clone, Debug)]
pub(super) struct Generator {
    pub(super) lines: Lines,
    /// Pulses in 1000 s; 0: none.
    millihertz: u64,
    /// The steady pulses begin one period after this.
    since_ns: u64,
    /// Single pulses to come, in order.
    shots: VecDeque<u64>,
    /// Up to here pulses were counted.
    counted_ns: u64,
    pub(super) seen: u64,
}

impl Default for Generator {
    fn default() -> Self {
        Generator {
            lines: Lines { mlvds: 1, front: 1, has_signal: true },
            millihertz: 0,
            since_ns: 0,
            shots: VecDeque::new(),
            counted_ns: 0,
            seen: 0,
        }
    }
}

impl Generator {
    /// Steady pulses from one period after `now_ns` on.
    pub(super) fn set_rate(&mut self, millihertz: u64, now_ns: u64) {
        (self.millihertz, self.since_ns) = (millihertz, now_ns);
    }

    pub(super) fn millihertz(&self) -> u64 {
        self.millihertz
    }

    /// One pulse.
    pub(super) fn shoot(&mut self, at_ns: u64) {
        let at = self.shots.partition_point(|shot| *shot <= at_ns);
        self.shots.insert(at, at_ns);
    }

    /// When steady pulse `number`, from 1, rises.
    fn pulse_ns(&self, number: u64) -> u64 {
        let period = u128::from(number) * PS_PER_S / u128::from(self.millihertz.max(1));
        self.since_ns.saturating_add(u64::try_from(period).unwrap_or(u64::MAX))
    }

    /// Steady pulses that rose at or before `at_ns`.
    fn pulses_until(&self, at_ns: u64) -> u64 {
        let Some(passed) = at_ns.checked_sub(self.since_ns).filter(|_| self.millihertz > 0) else { return 0 };
        // The first that is later, less one: pulse times are rounded down.
        let mut number = (u128::from(passed) * u128::from(self.millihertz) / PS_PER_S) as u64;
        while self.pulse_ns(number + 1) <= at_ns {
            number += 1;
        }
        number
    }

    /// When the next pulse rises that does so after `after_ns`.
    pub(super) fn next_ns(&self, after_ns: u64) -> Option<u64> {
        let steady = (self.millihertz > 0).then(|| self.pulse_ns(self.pulses_until(after_ns) + 1));
        let shot = self.shots.iter().copied().find(|shot| *shot > after_ns);
        steady.into_iter().chain(shot).min()
    }

    /// Counts the pulses that rose until `at_ns`, and tells how many were new.
    pub(super) fn count_until(&mut self, at_ns: u64) -> u64 {
        if at_ns <= self.counted_ns {
            return 0;
        }
        let steady = self.pulses_until(at_ns) - self.pulses_until(self.counted_ns.max(self.since_ns));
        let until = |at_ns: u64| self.shots.partition_point(|shot| *shot <= at_ns);
        let new = steady + (until(at_ns) - until(self.counted_ns)) as u64;
        // Their falling edges are still to come.
        let over = until(at_ns.saturating_sub(PULSE_NS));
        self.shots.drain(..over);
        self.counted_ns = at_ns;
        self.seen += new;
        new
    }

    /// Whether the lines are high.
    pub(super) fn is_high(&self, now_ns: u64) -> bool {
        let steady = self.pulses_until(now_ns);
        steady > 0 && now_ns - self.pulse_ns(steady) < PULSE_NS
            || self.shots.iter().any(|shot| now_ns.checked_sub(*shot).is_some_and(|passed| passed < PULSE_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_pulses_do_not_drift() {
        let mut generator = Generator::default();
        assert_eq!(generator.next_ns(0), None);
        generator.set_rate(14_000, 1_000);
        let mut at = 1_000;
        for number in 1..=140u64 {
            at = generator.next_ns(at).unwrap();
            assert_eq!(at, 1_000 + number * 1_000_000_000 / 14);
        }
        assert_eq!(generator.count_until(at - 1), 139);
        assert_eq!(generator.count_until(at), 1);
        assert_eq!(generator.count_until(at), 0);
        assert!(generator.is_high(at) && !generator.is_high(at + PULSE_NS));
        assert_eq!(generator.seen, 140);
    }

    #[test]
    fn single_pulses_come_beside_steady_ones() {
        let mut generator = Generator::default();
        generator.shoot(500);
        generator.shoot(300);
        assert_eq!(
            (generator.next_ns(0), generator.next_ns(300), generator.next_ns(500)),
            (Some(300), Some(500), None)
        );
        assert_eq!(generator.count_until(400), 1);
        generator.set_rate(1_000_000_000, 400);
        assert_eq!(generator.next_ns(400), Some(500));
        assert_eq!(generator.count_until(2_400), 3, "the single one, and two steady ones");
    }
}
