//! What a link sent while its ends could report errors, and in how much of it they did: what a bound on its bit error ratio
//! stands on. docs/soak.md, "What is counted".

use std::collections::BTreeMap;
use std::sync::Arc;

use pciescope_core::Bdf;

use super::cause::{self, LinkRate};
use super::tracker::{state, words};
use super::{End, Fixed, Moment, Sample, bits};

/// Bits and errors of a link since the first sample.
///
/// The time from a sample to the next is an interval. An end keeps one bit of status for each kind of error until the kernel has
/// read it, so two errors may count as one: a bound takes intervals with an error, and the bits of those without.
#[derive(Debug, Clone)]
pub struct Exposure {
    link: Bdf,
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
    /// How the link ran in the last interval, and what it then sent towards ends that count, in bits per second.
    pub rate: (String, f64),
}

impl Exposure {
    /// Of the link of a function; whether the errors of its port and of the function below are seen.
    pub fn new(link: Bdf, is_seen: [bool; 2]) -> Exposure {
        Exposure {
            link,
            is_seen,
            last: None,
            ends: [None, None],
            bits: 0.0,
            clear_bits: 0.0,
            intervals: [0; 2],
            errors: [[0; 3]; 2],
            uncounted_ns: BTreeMap::new(),
            rate: (String::new(), 0.0),
        }
    }

    /// Errors of both ends.
    pub fn all_errors(&self) -> u64 {
        self.errors.iter().flatten().sum()
    }

    /// Adds the time since the sample before.
    pub fn next(&mut self, sample: &Sample) {
        let below = |end: &&End| end.fixed.function.path.last() == Some(&self.link);
        let now = [sample.functions.get(&self.link), sample.functions.values().find(below)];
        for (kept, now) in self.ends.iter_mut().zip(now) {
            *kept = now.map(|end| Arc::clone(&end.fixed)).or(kept.take());
        }
        let present = now.iter().flatten().map(|end| (end.fixed.bdf(), (*end).clone())).collect();
        let Some((at, before)) = self.last.replace((sample.at, present)) else { return };
        let step_ns = sample.at.monotonic_ns.saturating_sub(at.monotonic_ns);
        let slept_ns = sample.at.boot_ns.saturating_sub(at.boot_ns).saturating_sub(step_ns);
        let mut is_hit = false;
        let mut has_fallen = false;
        for ((end, errors), _) in now.iter().zip(&mut self.errors).zip(self.is_seen).filter(|(_, is_seen)| *is_seen) {
            let Some(end) = end else { continue };
            let counts = before.get(&end.fixed.bdf()).and_then(|before| before.bit_errors).zip(end.bit_errors);
            let Some((before, now)) = counts else { continue };
            for (errors, (before, now)) in errors.iter_mut().zip(before.into_iter().zip(now)) {
                is_hit |= now > before;
                has_fallen |= now < before;
                *errors += now.saturating_sub(before);
            }
        }
        let rate = match has_fallen {
            true => Err("a counter of errors fell"),
            false if slept_ns > super::tracker::SLEPT_NS => Err("the machine slept"),
            false => steady(&before, now, self.link),
        };
        self.intervals[1] += u64::from(is_hit);
        match rate {
            Err(why) => {
                self.rate = (why.to_owned(), 0.0);
                *self.uncounted_ns.entry(why).or_default() += step_ns;
            }
            Ok(rate) => {
                let directions = self.is_seen.iter().filter(|is_seen| **is_seen).count() as f64;
                let bits_per_s = rate.0 * 1e9 * f64::from(rate.1) * directions;
                self.rate = (words(rate), bits_per_s);
                self.intervals[0] += 1;
                self.bits += bits_per_s * step_ns as f64 / 1e9;
                self.clear_bits += if is_hit { 0.0 } else { bits_per_s * step_ns as f64 / 1e9 };
            }
        }
    }
}

/// How a link ran all the time between two samples; why that is not known.
fn steady(before: &BTreeMap<Bdf, End>, [port, below]: [Option<&End>; 2], link: Bdf) -> Result<LinkRate, &'static str> {
    let (Some(old), Some(port)) = (before.get(&link), port) else { return Err("the port was not there") };
    let Some(below) = below.or((!port.fixed.leads_down).then_some(port)) else {
        return Err("no function was below the port");
    };
    let same = |now: &End| before.get(&now.fixed.bdf()).is_some_and(|old| old.fixed.inode == now.fixed.inode);
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
