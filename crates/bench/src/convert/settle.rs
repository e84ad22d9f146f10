//! Times the passes of a kernel until their median no longer changes.

use std::time::{Duration, Instant};

use pciescope_core::Histogram;
use pciescope_hw::memory::ratio;

/// What a pass does with the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The conversion.
    Kernel,
    /// The loop that only moves bytes.
    Ceiling(ratio::Store),
}

/// The least time between two stamps: the clock's own cost and step are then below a thousandth.
const BATCH: Duration = Duration::from_micros(50);
/// Fewer stamped batches say nothing about a median.
const FEWEST: usize = 15;
/// The median counts as stable when its bounds (95 %, by order) are no farther from it than this share.
const STILL: f64 = 0.005;
/// Stamped batches of a row at most: a row in the cache is not measured a hundred thousand times.
const MOST: usize = 4000;

/// Durations of passes, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settled {
    /// Each stamped batch's mean pass, ascending.
    sorted_ns: Vec<f64>,
    /// Passes between two stamps.
    pub batch: usize,
}

impl Settled {
    fn add(&mut self, ns: f64) {
        let place = self.sorted_ns.partition_point(|known| *known < ns);
        self.sorted_ns.insert(place, ns);
    }

    /// Passes that were timed.
    pub fn passes(&self) -> usize {
        self.sorted_ns.len() * self.batch
    }

    fn quantile(&self, share: f64) -> f64 {
        let last = self.sorted_ns.len().saturating_sub(1);
        self.sorted_ns.get((last as f64 * share).round() as usize).copied().unwrap_or(0.0)
    }

    /// The median; 0 where nothing was timed.
    pub fn median_ns(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Distance of the quartiles over the median, in percent.
    pub fn spread_percent(&self) -> f64 {
        match self.median_ns() {
            0.0 => 0.0,
            median => (self.quantile(0.75) - self.quantile(0.25)) / median * 100.0,
        }
    }

    /// Every stamped batch's mean pass.
    pub fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::default();
        for ns in &self.sorted_ns {
            // A pass of over two hours is longer than any bucket; the median shows it anyway.
            let _ = histogram.record_ps((ns * 1e3) as u64, 1);
        }
        histogram
    }

    /// Whether the median is stable: its bounds at 95 %, which are the values a standard deviation of ranks away.
    fn is_still(&self) -> bool {
        let count = self.sorted_ns.len();
        if count < FEWEST {
            return false;
        }
        let away = 0.98 / (count as f64).sqrt();
        let (low, high) = (self.quantile((0.5 - away).max(0.0)), self.quantile((0.5 + away).min(1.0)));
        high - low <= 2.0 * STILL * self.median_ns()
    }
}

/// How many passes stand between two stamps: by how long one takes.
fn batch(pass: &mut dyn FnMut(Which), which: Which) -> usize {
    let mut passes = 1;
    loop {
        let begun = Instant::now();
        (0..passes).for_each(|_| pass(which));
        if begun.elapsed() >= BATCH || passes >= 1 << 20 {
            return passes;
        }
        passes *= 2;
    }
}

fn timed(pass: &mut dyn FnMut(Which), which: Which, passes: usize) -> f64 {
    let begun = Instant::now();
    (0..passes).for_each(|_| pass(which));
    begun.elapsed().as_nanos() as f64 / passes as f64
}

/// The way to store that makes the ceiling higher, by the best of a few turns: a disturbance only makes a turn slower.
pub fn faster(pass: &mut dyn FnMut(Which)) -> ratio::Store {
    let stores = [ratio::Store::Streaming, ratio::Store::Cached];
    let passes = stores.map(|store| batch(pass, Which::Ceiling(store)));
    let mut best = [f64::INFINITY; 2];
    for _ in 0..7 {
        for (place, store) in stores.into_iter().enumerate() {
            best[place] = best[place].min(timed(pass, Which::Ceiling(store), passes[place]));
        }
    }
    if best[1] < best[0] { stores[1] } else { stores[0] }
}

/// Runs passes of the kernel and of the ceiling in turn until both medians no longer change, or `duration` is over, or
/// the user ends it. Each has at least [`FEWEST`] passes, also after `duration`. The first turn warms up and is left
/// out.
pub fn settle(
    duration: Duration,
    ceiling: Option<ratio::Store>,
    is_stopped: &dyn Fn() -> bool,
    pass: &mut dyn FnMut(Which),
) -> (Settled, Option<Settled>) {
    let mut turns: Vec<(Which, Settled)> = std::iter::once(Which::Kernel)
        .chain(ceiling.map(Which::Ceiling))
        .map(|which| (which, Settled { batch: batch(pass, which), ..Settled::default() }))
        .collect();
    let begun = Instant::now();
    for turn in 0..MOST {
        let is_over = turn >= FEWEST && begun.elapsed() >= duration;
        if is_stopped() || is_over || turns.iter().all(|(_, settled)| settled.is_still()) {
            break;
        }
        for (which, settled) in &mut turns {
            settled.add(timed(pass, *which, settled.batch));
        }
    }
    let mut settled = turns.into_iter().map(|(_, settled)| settled);
    (settled.next().unwrap_or_default(), settled.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Settled {
        let mut settled = Settled { batch: 1, ..Settled::default() };
        values.iter().for_each(|ns| settled.add(*ns));
        settled
    }

    #[test]
    fn the_median_and_its_spread_are_by_order() {
        let settled = of(&[7.0, 1.0, 4.0, 2.0, 6.0]);
        assert_eq!((settled.median_ns(), settled.spread_percent(), settled.passes()), (4.0, 100.0, 5));
        assert_eq!(settled.histogram().count(), 5);
        assert_eq!(Settled::default().median_ns(), 0.0);
    }

    #[test]
    fn a_median_stands_still_when_its_neighbours_are_near() {
        assert!(!of(&[100.0; 14]).is_still(), "too few");
        assert!(of(&[100.0; 15]).is_still());
        let wide: Vec<f64> = (0..100).map(|number| 100.0 + f64::from(number)).collect();
        assert!(!of(&wide).is_still());
        // A tail does not move it.
        let tail: Vec<f64> = (0..100).map(|number| if number < 70 { 100.0 } else { 900.0 }).collect();
        assert!(of(&tail).is_still());
    }

    #[test]
    fn the_quicker_way_to_store_is_found_though_it_was_disturbed() {
        for quick in [ratio::Store::Streaming, ratio::Store::Cached] {
            let mut calls = 0;
            let mut pass = |which| {
                calls += 1;
                let is_disturbed = calls % 8 < 4;
                let takes = if which == Which::Ceiling(quick) && !is_disturbed { 1 } else { 20 };
                std::thread::sleep(BATCH * takes);
            };
            assert_eq!(faster(&mut pass), quick);
        }
    }

    #[test]
    fn both_take_turns_and_a_stop_ends_it() {
        let mut order = Vec::new();
        let store = ratio::Store::Cached;
        let mut pass = |which| {
            order.push(which);
            std::thread::sleep(BATCH);
        };
        let (kernel, ceiling) = settle(Duration::ZERO, Some(store), &|| false, &mut pass);
        assert_eq!((kernel.passes(), ceiling.unwrap().passes()), (FEWEST, FEWEST));
        assert!(order.chunks(2).all(|pair| pair == [Which::Kernel, Which::Ceiling(store)]), "{order:?}");
        let (kernel, ceiling) = settle(Duration::MAX, None, &|| true, &mut |_| std::thread::sleep(BATCH));
        assert_eq!((kernel.passes(), ceiling), (0, None));
    }
}
