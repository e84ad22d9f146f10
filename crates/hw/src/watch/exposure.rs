//! What a link sent while its ends could report errors, and in how much of it they did: what a bound on its bit error ratio
//! stands on. docs/soak.md, "What is counted".

use std::collections::BTreeMap;
use std::sync::Arc;

use pciescope_core::Bdf;

use super::cause::{self, LinkRate};
use super::tracker::state;
use super::{End, Fixed, Moment, Sample, bits};

/// Bits and errors of a link since the first sample.
///
/// The time from a sample to the next is an interval. An end keeps one bit of status for each kind of error until the kernel has
/// read it, so two errors may count as one: a bound takes intervals with an error, and the bits of those without.
#[derive(Debug, Clone, Default)]
pub struct Exposure {
    link: Option<Bdf>,
    /// Whether the errors of the port, and of the function below it, are seen.
    is_seen: [bool; 2],
    last: Option<(Moment, BTreeMap<Bdf, End>)>,
    /// The function that has the link, and the one below it.
    pub ends: [Option<Arc<Fixed>>; 2],
    /// Bits of all lanes towards ends that count errors, idle symbols and encoding among them.
    pub bits: f64,
    /// Those of intervals without an error.
    pub clear_bits: f64,
    /// Intervals that count, and intervals with an error.
    pub intervals: [u64; 2],
    /// Errors of port and function below, by [`super::BIT_ERRORS`]: a lower limit.
    pub errors: [[u64; 3]; 2],
    /// How long the time was that does not count, by its reason, in nanoseconds.
    pub uncounted_ns: BTreeMap<&'static str, u64>,
    /// What the link sent towards ends that count in the last interval, in bits per second; 0 where that is not known.
    pub bits_per_s: f64,
}

impl Exposure {
    /// Of the link of a function; whether the errors of its port and of the function below are seen.
    pub fn new(link: Bdf, is_seen: [bool; 2]) -> Exposure {
        Exposure { link: Some(link), is_seen, ..Exposure::default() }
    }

    /// Errors of both ends.
    pub fn all_errors(&self) -> u64 {
        self.errors.iter().flatten().sum()
    }

    /// Adds the time since the sample before; whether counters beside AER counted an error in it.
    pub fn next(&mut self, sample: &Sample, mut is_hit: bool) {
        let Some(link) = self.link else { return };
        let below = |end: &&End| end.fixed.function.path.last() == Some(&link);
        let now = [sample.functions.get(&link), sample.functions.values().find(below)];
        for (kept, now) in self.ends.iter_mut().zip(now) {
            *kept = now.map(|end| Arc::clone(&end.fixed)).or(kept.take());
        }
        let present = now.iter().flatten().map(|end| (end.fixed.bdf(), (*end).clone())).collect();
        let Some((at, before)) = self.last.replace((sample.at, present)) else { return };
        let step_ns = sample.at.monotonic_ns.saturating_sub(at.monotonic_ns);
        let slept_ns = sample.at.boot_ns.saturating_sub(at.boot_ns).saturating_sub(step_ns);
        let (mut has_fallen, mut is_unread) = (false, false);
        for ((end, errors), _) in now.iter().zip(&mut self.errors).zip(self.is_seen).filter(|(_, is_seen)| *is_seen) {
            let Some(end) = end else { continue };
            let counts = before.get(&end.fixed.bdf()).and_then(|before| before.bit_errors).zip(end.bit_errors);
            let Some((before, now)) = counts else {
                is_unread = true;
                continue;
            };
            for (errors, (before, now)) in errors.iter_mut().zip(before.into_iter().zip(now)) {
                is_hit |= now > before;
                has_fallen |= now < before;
                *errors += now.saturating_sub(before);
            }
        }
        let rate = match has_fallen {
            true => Err("a counter of errors fell"),
            false if is_unread => Err("errors could not be read"),
            false if slept_ns > super::tracker::SLEPT_NS => Err("the machine slept"),
            false => steady(&before, now, link),
        };
        self.intervals[1] += u64::from(is_hit);
        let rate = rate.inspect_err(|why| *self.uncounted_ns.entry(why).or_default() += step_ns);
        self.bits_per_s = rate.map_or(0.0, |(gts, lanes)| {
            let directions = self.is_seen.iter().filter(|is_seen| **is_seen).count();
            gts * 1e9 * f64::from(lanes) * directions as f64
        });
        let bits = self.bits_per_s * step_ns as f64 / 1e9;
        self.intervals[0] += u64::from(rate.is_ok());
        self.bits += bits;
        self.clear_bits += if is_hit { 0.0 } else { bits };
    }
}

/// How a link ran all the time between two samples; why that is not known.
fn steady(before: &BTreeMap<Bdf, End>, [port, below]: [Option<&End>; 2], link: Bdf) -> Result<LinkRate, &'static str> {
    let (Some(old), Some(port)) = (before.get(&link), port) else { return Err("the port was not there") };
    let Some(below) = below.or((!port.fixed.leads_down).then_some(port)) else {
        return Err("no function was below the port");
    };
    let same = |now: &End| before.get(&now.fixed.bdf()).is_some_and(|old| old.fixed == now.fixed);
    if !same(port) || !same(below) {
        return Err("the function came or went");
    }
    if [old, port, below].iter().any(|end| end.is_asleep) {
        return Err("an end slept");
    }
    let (Some(link), Some(own)) = (port.link, below.link) else { return Err("the registers could not be read") };
    let states = (state(old, false), state(port, false));
    let is_marked = [bits::MANAGED, bits::AUTONOMOUS].into_iter().any(|bit| cause::is_new((old, port), bit));
    match states {
        _ if link & bits::TRAINING != 0 => Err("the link was training"),
        (Some(before), Some(now)) if before != now || is_marked => Err("the link changed"),
        (_, Some((_, 0))) => Err("there was no link"),
        _ if (link | own | old.link.unwrap_or(0)) & bits::ASPM != 0 => Err("ASPM was on: the link may have rested"),
        (Some(_), Some(now)) => Ok(now),
        _ => Err("the registers could not be read"),
    }
}

#[cfg(test)]
mod tests {
    use pciescope_core::Function;

    use super::*;

    const PORT: Bdf = Bdf { domain: 0, bus: 0, device: 1, function: 0 };
    const CARD: Bdf = Bdf { bus: 1, device: 0, ..PORT };
    const SECOND: u64 = 1_000_000_000;
    /// Both directions of a link at 16 GT/s on 4 lanes.
    const BITS_PER_S: f64 = 2.0 * 16e9 * 4.0;

    fn ends() -> [End; 2] {
        let fixed = |bdf, class, path| {
            let function = Function { bdf: Some(bdf), class, path, ..Function::default() };
            Arc::new(Fixed { inode: 1, function, leads_down: bdf == PORT, has_link: bdf == PORT, ..Fixed::default() })
        };
        let end = |fixed| End { fixed, link: Some(0x0044_0000), bit_errors: Some([0; 3]), ..End::default() };
        [end(fixed(PORT, 0x06_04_00, Vec::new())), end(fixed(CARD, 0x01_08_02, vec![PORT]))]
    }

    fn sample(second: u64, slept: u64, ends: &[End]) -> Sample {
        let functions = ends.iter().map(|end| (end.fixed.bdf(), end.clone())).collect();
        let at = Moment { monotonic_ns: second * SECOND, boot_ns: (second + slept) * SECOND };
        Sample { at, functions, ..Sample::default() }
    }

    /// What three seconds come to, of which the second has something done to the ends; the machine sleeps so long in it.
    fn after(slept: u64, is_seen: [bool; 2], happens: impl FnOnce(&mut [End; 2])) -> Exposure {
        let (before, mut now) = (ends(), ends());
        happens(&mut now);
        let mut exposure = Exposure::new(PORT, is_seen);
        exposure.next(&sample(1, 0, &before), false);
        exposure.next(&sample(2, 0, &before), false);
        exposure.next(&sample(3, slept, &now), false);
        exposure.next(&sample(4, slept, &now), false);
        exposure
    }

    #[test]
    fn errors_count_once_for_an_interval_and_take_its_bits() {
        let none = after(0, [true; 2], |_| ());
        assert_eq!((none.bits, none.clear_bits, none.intervals), (3.0 * BITS_PER_S, 3.0 * BITS_PER_S, [3, 0]));
        let both = after(0, [true; 2], |[port, card]| {
            port.bit_errors = Some([0, 2, 0]);
            card.bit_errors = Some([0, 0, 5]);
        });
        assert_eq!((both.bits, both.clear_bits, both.intervals), (3.0 * BITS_PER_S, 2.0 * BITS_PER_S, [3, 1]));
        assert_eq!((both.errors, both.all_errors()), ([[0, 2, 0], [0, 0, 5]], 7));
        // What another counter counted is an error of the interval too, and none of AER.
        let mut beside = after(0, [true; 2], |_| ());
        beside.next(&sample(5, 0, &ends()), true);
        assert_eq!((beside.clear_bits, beside.intervals, beside.all_errors()), (3.0 * BITS_PER_S, [4, 1], 0));
        // Of one end half of the bits count, and nothing of the other end's errors.
        let one = after(0, [true, false], |[_, card]| card.bit_errors = Some([9; 3]));
        assert_eq!((one.bits, one.clear_bits, one.all_errors()), (1.5 * BITS_PER_S, 1.5 * BITS_PER_S, 0));
    }

    #[test]
    fn time_in_which_errors_or_bits_are_not_known_does_not_count() {
        type Happens = fn(&mut [End; 2]);
        let cases: [(&str, u64, Happens, u64); 9] = [
            // With ASPM on in the third second, neither that one nor the one before is known.
            ("ASPM", 0, |[_, card]| card.link = Some(0x0044_0002), 2),
            ("slept", 0, |[_, card]| card.is_asleep = true, 2),
            ("changed", 0, |[port, _]| port.link = Some(0x0043_0000), 1),
            ("changed", 0, |[port, _]| port.link = Some(0x4044_0000), 1),
            ("no link", 0, |[port, _]| port.link = Some(0x0000_0000), 2),
            ("errors", 0, |[port, _]| port.bit_errors = None, 2),
            ("registers", 0, |[port, _]| port.link = None, 2),
            ("machine slept", 100, |_| (), 1),
            ("came or went", 0, |[_, card]| card.fixed = Arc::new(Fixed { inode: 2, ..Fixed::clone(&card.fixed) }), 1),
        ];
        for (why, slept, happens, seconds) in cases {
            let exposure = after(slept, [true; 2], happens);
            let uncounted: u64 = exposure.uncounted_ns.values().sum();
            assert_eq!(uncounted, seconds * SECOND, "{why}: {:?}", exposure.uncounted_ns);
            assert_eq!(exposure.intervals[0], 3 - seconds, "{why}");
            assert!(exposure.uncounted_ns.keys().any(|said| said.contains(why)), "{why}: {:?}", exposure.uncounted_ns);
        }
    }

    #[test]
    fn a_counter_that_another_agent_cleared_is_named() {
        let mut exposure = Exposure::new(PORT, [true; 2]);
        for (second, count) in [5, 7, 1, 2].into_iter().enumerate() {
            let mut ends = ends();
            ends[0].bit_errors = Some([count, 0, 0]);
            exposure.next(&sample(second as u64 + 1, 0, &ends), false);
        }
        assert_eq!(exposure.uncounted_ns, BTreeMap::from([("a counter of errors fell", SECOND)]));
        assert_eq!((exposure.all_errors(), exposure.intervals), (3, [2, 2]));
    }
}
