//! What a counter counted over an interval, and how wrong that can be.
//!
//! perf scales with one factor over the whole run: a load that begins late or ends early is scaled as if it had lasted
//! for the whole run. Here an interval is read in pieces, and each piece is scaled by its own factor. So only changes
//! within a piece are estimated.

use pciescope_hw::perf::{Delta, Doubt};

/// What a counter did over an interval, which may have been read in several pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tally {
    /// Counted, scaled piece by piece where it did not run all the time, up to the last piece in which it ran.
    scaled: f64,
    /// Time since that piece, in nanoseconds: the next piece in which it runs stands for it.
    waiting_ns: u64,
    /// For how long it was to count, in nanoseconds.
    enabled_ns: u64,
    /// For how long it did, in nanoseconds.
    running_ns: u64,
    /// The last value read, for events that are a state and not a sum.
    pub last: u64,
    /// What was wrong with a piece of it.
    doubt: Option<Doubt>,
    /// Whether a counter of the hardware reached its end, so that more may have happened.
    pub at_least: bool,
    rates: Rates,
}

impl Tally {
    /// The share of the time in which it ran, where it did not run all of it.
    pub fn running(&self) -> Option<f64> {
        (self.running_ns < self.enabled_ns).then(|| self.running_ns as f64 / self.enabled_ns as f64)
    }

    /// Counted over the whole time: as read where it ran all the time, else scaled piece by piece. `None` where it never
    /// ran or is in doubt.
    pub fn count(&self) -> Option<f64> {
        // Time at the end without a turn is judged by the last piece with one.
        self.doubt().is_none().then_some(self.scaled + self.rates.last * self.waiting_ns as f64)
    }

    /// By how much [`Tally::count`] may be wrong either way: three standard deviations, by how much the rate varies between
    /// neighbouring pieces, and the whole guess of those pieces between which it jumps. 0 where it ran all the time; `None`
    /// where there are too few pieces (fewer than 4) to tell.
    pub fn bound(&self) -> Option<f64> {
        if self.running().is_none() { Some(0.0) } else { self.rates.bound(self.waiting_ns as f64) }
    }

    /// What is wrong with it: then there is no figure.
    pub fn doubt(&self) -> Option<Doubt> {
        match self.doubt {
            Some(doubt) => Some(doubt),
            None if self.enabled_ns == 0 => Some(Doubt::NotEnabled),
            None if self.running_ns == 0 => Some(Doubt::NeverRan),
            None => None,
        }
    }

    /// For how long it was to count, in seconds.
    pub fn seconds(&self) -> f64 {
        self.enabled_ns as f64 / 1e9
    }

    /// Adds a piece: what happened between two readings.
    pub fn add(&mut self, piece: Delta, last: u64) {
        self.enabled_ns += piece.enabled_ns;
        self.running_ns += piece.running_ns;
        self.last = last;
        match piece.doubt {
            None => {
                let unseen_ns = (self.waiting_ns + piece.enabled_ns).saturating_sub(piece.running_ns) as f64;
                let rate = piece.value as f64 / piece.running_ns as f64;
                self.scaled += piece.value as f64 + rate * unseen_ns;
                self.rates.add(rate, unseen_ns);
                self.waiting_ns = 0;
            }
            Some(Doubt::NeverRan) => self.waiting_ns += piece.enabled_ns,
            Some(Doubt::NotEnabled) => {}
            doubt => self.doubt = doubt,
        }
    }
}

/// A rate that changes by more than this share of the highest so far jumps: the load begins or ends.
const JUMP: f64 = 0.5;
/// Standard deviations of the bound.
const DEVIATIONS: f64 = 3.0;

/// How the rate changed between pieces in which the counter ran. The bound is computed from this.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Rates {
    /// How many pieces.
    pieces: u32,
    /// Counts per nanosecond in the last piece.
    last: f64,
    /// The highest rate of a piece.
    highest: f64,
    /// Nanoseconds of the last piece in which the counter did not run.
    unseen_ns: f64,
    /// The sum of the squares of these times, over all pieces.
    unseen_squares: f64,
    /// The sum of the squares of the changes that are no jumps, and how many they are.
    squares: f64,
    steps: u32,
    /// What was counted or missed at jumps at the most.
    jumps: f64,
    /// The last change, where it was a jump.
    last_jump: f64,
}

impl Rates {
    fn add(&mut self, rate: f64, unseen_ns: f64) {
        let step = (rate - self.last).abs();
        self.highest = self.highest.max(rate);
        self.last_jump = 0.0;
        if self.pieces > 0 && step > JUMP * self.highest {
            // The load began or ended in one of the two pieces; how long it ran in there is not known.
            self.jumps += step * unseen_ns.max(self.unseen_ns);
            self.last_jump = step;
        } else if self.pieces > 0 {
            self.squares += step * step;
            self.steps += 1;
        }
        self.pieces += 1;
        (self.last, self.unseen_ns) = (rate, unseen_ns);
        self.unseen_squares += unseen_ns * unseen_ns;
    }

    /// `waiting_ns` belongs to the last piece, and the counter did not run in it.
    fn bound(&self, waiting_ns: f64) -> Option<f64> {
        if self.pieces < 4 {
            return None;
        }
        // Half the mean square of the changes is the variance of one piece (von Neumann), slow drift left out. The seen part
        // of a piece misses its mean by no more than that, and so does the unseen part.
        let variance = if self.steps > 0 { self.squares / f64::from(self.steps) / 2.0 } else { 0.0 };
        let unseen_squares = self.unseen_squares + waiting_ns * (waiting_ns + 2.0 * self.unseen_ns);
        Some(DEVIATIONS * (2.0 * variance * unseen_squares).sqrt() + self.jumps + self.last_jump * waiting_ns)
    }
}

#[cfg(test)]
mod tests {
    use pciescope_hw::perf::Reading;

    use super::*;

    fn piece(value: u64, enabled: u64, running: u64) -> Delta {
        Delta::between(Reading::default(), Reading { value, enabled_ns: enabled, running_ns: running }, None)
    }

    /// A tally of pieces, each with what was counted, and the times in which it was to count and did.
    fn tally(pieces: &[(u64, u64, u64)]) -> Tally {
        let mut tally = Tally::default();
        pieces.iter().for_each(|(value, enabled, running)| tally.add(piece(*value, *enabled, *running), 0));
        tally
    }

    #[test]
    fn pieces_are_scaled_each_by_its_own_share() {
        // A load that ran in the first half only: one factor over all would say 4/3 of it.
        let tally = tally(&[(1000, 100, 50), (0, 100, 100)]);
        assert_eq!((tally.count(), tally.running()), (Some(2000.0), Some(0.75)));
    }

    #[test]
    fn a_counter_that_always_ran_is_exact() {
        let tally = tally(&[(7, 1000, 1000), (93, 1000, 1000)]);
        assert_eq!((tally.count(), tally.running(), tally.bound()), (Some(100.0), None, Some(0.0)));
    }

    #[test]
    fn a_piece_without_a_turn_is_judged_by_its_neighbour() {
        let at_the_end = tally(&[(10, 100, 100), (0, 100, 0)]);
        assert_eq!((at_the_end.count(), at_the_end.running()), (Some(20.0), Some(0.5)));
        let between = tally(&[(10, 10, 5), (0, 10, 0), (10, 10, 5), (0, 10, 0)]);
        assert_eq!((between.count(), between.bound()), (Some(80.0), None));
        let never = tally(&[(0, 100, 0)]);
        assert_eq!((never.count(), never.doubt()), (None, Some(Doubt::NeverRan)));
        assert_eq!(Tally::default().doubt(), Some(Doubt::NotEnabled));
    }

    #[test]
    fn one_reset_spoils_the_whole_interval() {
        let mut tally = tally(&[(10, 100, 100)]);
        let before = Reading { value: 10, enabled_ns: 100, running_ns: 100 };
        tally.add(Delta::between(before, Reading { value: 3, enabled_ns: 200, running_ns: 200 }, None), 3);
        assert_eq!((tally.count(), tally.doubt()), (None, Some(Doubt::Backwards)));
    }

    /// A counter that runs in every second slot of 4 ms and is read every 52 ms, against a load of `rate(ms)` counts per ms. Gives
    /// its tally and the truth.
    fn multiplexed(ms: u64, rate: impl Fn(u64) -> f64) -> (Tally, f64) {
        let (mut truth, mut value, mut running) = (0.0, 0.0, 0u64);
        let (mut tally, mut before) = (Tally::default(), Reading::default());
        for now in 0..ms {
            truth += rate(now);
            if (now / 4) % 2 == 0 {
                value += rate(now);
                running += 1;
            }
            if (now + 1) % 52 == 0 || now + 1 == ms {
                let (enabled_ns, running_ns) = ((now + 1) * 1_000_000, running * 1_000_000);
                let after = Reading { value: value as u64, enabled_ns, running_ns };
                tally.add(Delta::between(before, after, None), after.value);
                before = after;
            }
        }
        (tally, truth)
    }

    fn noise(now: u64) -> f64 {
        let mixed = (now / 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ mixed >> 31) % 1000) as f64 / 1000.0
    }

    #[test]
    fn a_steady_load_lies_within_its_bound_and_within_one_percent() {
        for amplitude in [0.0, 0.1, 0.5] {
            let (tally, truth) = multiplexed(20_000, |now| 1000.0 * (1.0 + amplitude * (noise(now) - 0.5)));
            let (error, bound) = ((tally.count().unwrap() - truth).abs(), tally.bound().unwrap());
            assert!((tally.running().unwrap() - 0.5).abs() < 0.01);
            assert!(error <= bound + truth * 1e-6, "amplitude {amplitude}: off by {error}, bound {bound}");
            assert!(bound < truth * 0.01, "amplitude {amplitude}: the bound {bound} of {truth} says nothing");
        }
    }

    #[test]
    fn a_load_that_begins_late_and_ends_early_lies_within_its_bound() {
        for (begin, end) in [(1_003, 17_777), (7_001, 7_950), (0, 20_000), (333, 19_999)] {
            let (tally, truth) =
                multiplexed(20_000, |now| if (begin..end).contains(&now) { 900.0 + 200.0 * noise(now) } else { 0.0 });
            let (error, bound) = ((tally.count().unwrap() - truth).abs(), tally.bound().unwrap());
            assert!(error <= bound + 1.0, "{begin} to {end}: {error} beyond {bound}: {tally:?}");
        }
    }

    #[test]
    fn a_load_in_step_with_the_turns_is_not_bounded() {
        // It runs in every second slot only. No reading of the counter shows it; scaling is off by a half.
        let (tally, truth) = multiplexed(20_000, |now| if (now / 4) % 2 == 0 { 1000.0 } else { 0.0 });
        assert!((tally.count().unwrap() - truth).abs() > tally.bound().unwrap());
    }

    #[test]
    fn the_bound_covers_time_at_the_end_without_a_turn() {
        let steady = [(100, 10, 5), (100, 10, 5), (100, 10, 5), (110, 10, 5)];
        let bound = |more: &[(u64, u64, u64)]| tally(&[&steady[..], more].concat()).bound().unwrap();
        assert!(bound(&[(0, 10, 0)]) > bound(&[]));
        let jump = |more: &[(u64, u64, u64)]| bound(&[&[(5, 10, 5)][..], more].concat());
        assert!(jump(&[(0, 10, 0)]) >= jump(&[]) + 10.0 * 21.0, "the load may have gone on");
    }

    #[test]
    fn drift_is_followed_where_one_factor_would_not() {
        // It runs more at the end, where the rate is higher.
        let mut pieces = Vec::new();
        let (mut truth, mut value, mut times) = (0, 0, (0, 0));
        for step in 1..=100u64 {
            let (enabled, running) = (50_000_000, if step <= 50 { 10_000_000 } else { 40_000_000 });
            let rate = if step <= 50 { 1 } else { 5 };
            pieces.push((rate * running / 1000, enabled, running));
            truth += rate * enabled / 1000;
            value += rate * running / 1000;
            times = (times.0 + enabled, times.1 + running);
        }
        let got = tally(&pieces).count().unwrap();
        let one_factor = value as f64 * times.0 as f64 / times.1 as f64;
        assert!((got - truth as f64).abs() < truth as f64 * 1e-9, "{got} for {truth}");
        assert!((one_factor - truth as f64).abs() > truth as f64 * 0.2);
    }
}
