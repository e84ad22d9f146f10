//! What a counter that ran for a part of the time says about the whole of it, and how wrong that can be.
//!
//! perf scales with one factor over the whole run: a load that begins late or breaks off is scaled as if it had lasted. Here
//! the run is cut into the intervals between readings, and each is scaled by its own factor, so that only what changes within an
//! interval is guessed.

/// A counter's state at one moment, as perf gives it: all three only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// Counted so far, while it ran.
    pub value: u64,
    /// For how long it was to count, in nanoseconds.
    pub enabled_ns: u64,
    /// For how long it did, in nanoseconds.
    pub running_ns: u64,
}

/// What the samples of a run say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The count over the whole time; exact where [`Estimate::running`] is 1.
    pub count: f64,
    /// The share of the time in which it was counted, 0 to 1.
    pub running: f64,
    /// The count may be wrong by so much either way: three standard deviations by how much the rate varies between
    /// neighbouring intervals, and the whole guess of those intervals in which it jumps. `None` where there are too few
    /// intervals (fewer than 4) to tell; 0 where the count is exact.
    pub bound: Option<f64>,
}

/// An interval between readings in which the counter ran at least once.
struct Interval {
    /// Counts per nanosecond while it ran.
    rate: f64,
    /// Nanoseconds in which it did not run.
    unseen_ns: f64,
}

/// A rate changes by more than this share of the run's highest: the load begins or ends.
const JUMP: f64 = 0.5;
/// Standard deviations of the bound.
const DEVIATIONS: f64 = 3.0;

/// Makes the estimate from a run's samples in the order of time, the first taken when the counter was started.
/// `None` where the counter never ran, or has gone backwards.
pub fn estimate(samples: &[Sample]) -> Option<Estimate> {
    let (first, last) = (samples.first()?, samples.last()?);
    let enabled = last.enabled_ns.checked_sub(first.enabled_ns).filter(|ns| *ns > 0)?;
    let running = last.running_ns.checked_sub(first.running_ns).filter(|ns| *ns > 0)?;
    let value = last.value.checked_sub(first.value)?;
    if running >= enabled {
        return Some(Estimate { count: value as f64, running: 1.0, bound: Some(0.0) });
    }
    let intervals = intervals(samples)?;
    let count = value as f64 + intervals.iter().map(|interval| interval.rate * interval.unseen_ns).sum::<f64>();
    Some(Estimate { count, running: running as f64 / enabled as f64, bound: bound(&intervals) })
}

/// The intervals between samples. One in which the counter never ran is joined to the next, and at the end to the one
/// before.
fn intervals(samples: &[Sample]) -> Option<Vec<Interval>> {
    let mut all: Vec<Interval> = Vec::new();
    let mut from = samples[0];
    for sample in &samples[1..] {
        let running = sample.running_ns.checked_sub(from.running_ns)?;
        let enabled = sample.enabled_ns.checked_sub(from.enabled_ns)?;
        let value = sample.value.checked_sub(from.value)?;
        if running > 0 {
            let unseen_ns = enabled.saturating_sub(running) as f64;
            all.push(Interval { rate: value as f64 / running as f64, unseen_ns });
            from = *sample;
        }
    }
    let end = samples[samples.len() - 1].enabled_ns.checked_sub(from.enabled_ns)?;
    if let Some(last) = all.last_mut() {
        last.unseen_ns += end as f64;
    }
    Some(all)
}

fn bound(intervals: &[Interval]) -> Option<f64> {
    if intervals.len() < 4 {
        return None;
    }
    let highest = intervals.iter().map(|interval| interval.rate).fold(0.0, f64::max);
    let is_jump = |step: f64| step.abs() > JUMP * highest;
    let (mut squares, mut steps, mut jumps) = (0.0, 0.0, 0.0);
    for pair in intervals.windows(2) {
        let step = pair[1].rate - pair[0].rate;
        if is_jump(step) {
            // The load began or ended in one of the two; how long it ran in there is not known.
            jumps += step.abs() * pair[0].unseen_ns.max(pair[1].unseen_ns);
        } else {
            squares += step * step;
            steps += 1.0;
        }
    }
    // Half the mean square of the steps is the variance of one interval (von Neumann), slow drift left out. The seen part
    // of an interval misses its mean by no more than that, and so does the unseen part.
    let variance = if steps > 0.0 { squares / steps / 2.0 } else { 0.0 };
    let unseen: f64 = intervals.iter().map(|interval| interval.unseen_ns * interval.unseen_ns).sum();
    Some(DEVIATIONS * (2.0 * variance * unseen).sqrt() + jumps)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter that runs in every second slot of 4 ms and is read every 52 ms, against a load of `rate(ms)` counts per ms.
    fn multiplexed(ms: u64, rate: impl Fn(u64) -> f64) -> (Vec<Sample>, f64) {
        let (mut truth, mut value, mut running) = (0.0, 0.0, 0u64);
        let mut samples = vec![Sample::default()];
        for now in 0..ms {
            truth += rate(now);
            if (now / 4) % 2 == 0 {
                value += rate(now);
                running += 1;
            }
            if (now + 1) % 52 == 0 || now + 1 == ms {
                let (enabled_ns, running_ns) = ((now + 1) * 1_000_000, running * 1_000_000);
                samples.push(Sample { value: value as u64, enabled_ns, running_ns });
            }
        }
        (samples, truth)
    }

    fn noise(now: u64) -> f64 {
        let mixed = (now / 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ mixed >> 31) % 1000) as f64 / 1000.0
    }

    #[test]
    fn a_counter_that_always_ran_is_exact() {
        let samples = [
            Sample { value: 5, enabled_ns: 10, running_ns: 10 },
            Sample { value: 105, enabled_ns: 1010, running_ns: 1010 },
        ];
        assert_eq!(estimate(&samples), Some(Estimate { count: 100.0, running: 1.0, bound: Some(0.0) }));
    }

    #[test]
    fn a_steady_load_lies_within_its_bound_and_within_one_percent() {
        for amplitude in [0.0, 0.1, 0.5] {
            let (samples, truth) = multiplexed(20_000, |now| 1000.0 * (1.0 + amplitude * (noise(now) - 0.5)));
            let estimate = estimate(&samples).unwrap();
            let (error, bound) = ((estimate.count - truth).abs(), estimate.bound.unwrap());
            assert!((estimate.running - 0.5).abs() < 0.01);
            assert!(error <= bound + truth * 1e-6, "amplitude {amplitude}: off by {error}, bound {bound}");
            assert!(bound < truth * 0.01, "amplitude {amplitude}: the bound {bound} of {truth} says nothing");
        }
    }

    #[test]
    fn a_load_that_begins_late_and_ends_early_lies_within_its_bound() {
        for (begin, end) in [(1_003, 17_777), (7_001, 7_950), (0, 20_000), (333, 19_999)] {
            let (samples, truth) =
                multiplexed(20_000, |now| if (begin..end).contains(&now) { 900.0 + 200.0 * noise(now) } else { 0.0 });
            let estimate = estimate(&samples).unwrap();
            let error = (estimate.count - truth).abs();
            assert!(error <= estimate.bound.unwrap() + 1.0, "{begin} to {end}: {error} beyond {estimate:?}");
        }
    }

    #[test]
    fn the_bound_is_no_matter_of_course() {
        // A load in step with the rotation: every second slot only. No reading of the counter shows it; scaling is off by a half.
        let (samples, truth) = multiplexed(20_000, |now| if (now / 4) % 2 == 0 { 1000.0 } else { 0.0 });
        let estimate = estimate(&samples).unwrap();
        assert!((estimate.count - truth).abs() > estimate.bound.unwrap());
    }

    #[test]
    fn drift_is_followed_where_one_factor_would_not() {
        // It runs more at the end, where the rate is higher.
        let mut samples = vec![Sample::default()];
        let mut last = Sample::default();
        let mut truth = 0;
        for step in 1..=100u64 {
            let (enabled, running) = (50_000_000, if step <= 50 { 10_000_000 } else { 40_000_000 });
            let rate = if step <= 50 { 1 } else { 5 };
            truth += rate * enabled / 1000;
            last = Sample {
                value: last.value + rate * running / 1000,
                enabled_ns: last.enabled_ns + enabled,
                running_ns: last.running_ns + running,
            };
            samples.push(last);
        }
        let got = estimate(&samples).unwrap().count;
        let one_factor = last.value as f64 * last.enabled_ns as f64 / last.running_ns as f64;
        assert!((got - truth as f64).abs() < truth as f64 * 1e-9, "{got} for {truth}");
        assert!((one_factor - truth as f64).abs() > truth as f64 * 0.2);
    }

    #[test]
    fn a_counter_that_never_ran_or_went_backwards_says_nothing() {
        let at = |value, running_ns| Sample { value, enabled_ns: 10 * running_ns + 1, running_ns };
        assert_eq!(estimate(&[]), None);
        assert_eq!(estimate(&[at(0, 0), Sample { value: 0, enabled_ns: 100, running_ns: 0 }]), None);
        assert_eq!(estimate(&[at(9, 0), at(5, 10)]), None);
        assert_eq!(estimate(&[at(0, 0), at(9, 10), at(5, 20), at(30, 30)]), None);
    }

    #[test]
    fn an_interval_without_a_run_joins_its_neighbour() {
        let at = |value, enabled_ns, running_ns| Sample { value, enabled_ns, running_ns };
        let samples = [at(0, 0, 0), at(10, 10, 5), at(10, 20, 5), at(20, 30, 10), at(20, 40, 10)];
        let estimate = estimate(&samples).unwrap();
        assert_eq!((estimate.count, estimate.bound), (80.0, None));
    }
}
