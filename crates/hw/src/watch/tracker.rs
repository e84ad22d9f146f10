//! The changes between samples, and what each link lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pciescope_core::Bdf;
use pciescope_core::change::{Cause, Change, Source, Subject};

use super::cause::{self, Hint, LinkRate, Pair, rate};
use super::events::{INTERRUPT, RETRAIN};
use super::words::{aspm, could, driver, errors, of_words, power, slot, triggered, words};
use super::{End, Fixed, KernelEvent, Moment, Sample, Told, What, bits};
use crate::link::SPEEDS;

/// A change, or a state at the start.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Of which function; `None` for a gap.
    pub fixed: Option<Arc<Fixed>>,
    /// The function below, where it is the link of a port.
    pub below: Option<Arc<Fixed>>,
    /// What changed.
    pub change: Change,
    /// When the state before began, and when it ended, in nanoseconds since the first sample.
    pub lasted: (u64, u64),
    /// What the link carries less than the best state seen, in bytes per second; `None` for what is no link.
    pub lost_bytes_per_s: Option<f64>,
    /// Errors that the port and the function below had reported at the last change and now.
    pub errors: [Option<(u64, u64)>; 2],
}

/// What a link came to over the whole time.
#[derive(Debug, Clone, Default)]
pub struct Total {
    /// The function that has the link.
    pub fixed: Arc<Fixed>,
    /// The last one below it, where that is a port.
    pub below: Option<Arc<Fixed>>,
    /// Changes of speed and width, those between two samples among them.
    pub changes: u64,
    /// Time under watch, in nanoseconds.
    pub watched_ns: u64,
    /// Time slower or narrower than the best state seen, power saving left out, in nanoseconds.
    pub below_ns: u64,
    /// What it could have carried meanwhile, in bytes.
    pub lost_bytes: f64,
    /// Time in which a change that came back between two samples would have left no trace, in nanoseconds.
    pub blind_ns: u64,
    /// Time in which the function or the one below slept, in nanoseconds.
    pub asleep_ns: u64,
    /// Errors that both ends reported meanwhile.
    pub errors: u64,
    /// Why changes may have been missed.
    pub blind_by: Option<&'static str>,
}

/// How a link ran when it was last watched.
#[derive(Debug, Clone)]
pub struct Former {
    /// Its state, as [`Change::to`] has it.
    pub state: String,
    /// The function below it.
    pub below: Option<String>,
    /// When that was, and what was since.
    pub evidence: String,
}

/// Compares each sample with the one before.
#[derive(Debug, Default)]
pub struct Tracker {
    /// How links ran when they were last watched. One that is slower or narrower when it is first seen has changed.
    former: BTreeMap<Bdf, Former>,
    start: Option<Moment>,
    last: Moment,
    /// The functions as they were last seen; what could not be read now is as it was.
    ends: BTreeMap<Bdf, End>,
    links: BTreeMap<Bdf, Track>,
    /// When each state began, in nanoseconds since the first sample.
    since: BTreeMap<(Bdf, Subject), u64>,
    /// When the kernel's log last said of a function that it holds its link.
    held: BTreeMap<Bdf, u64>,
    /// Dwords of configuration space that were read.
    pub reads: u64,
    /// How often all links were read.
    pub samples: u64,
}

/// All functions before and now.
type Ends<'e> = (&'e BTreeMap<Bdf, End>, &'e BTreeMap<Bdf, End>);

/// What changed of a function: what, from, to, cause, evidence.
type Found = (Subject, String, String, Option<Cause>, Vec<String>);

/// From what was seen last to a sample, or to what the kernel told before it.
#[derive(Clone, Copy)]
struct Step<'e> {
    /// In nanoseconds since the first sample.
    now_ns: u64,
    is_gap: bool,
    has_log: bool,
    heard: &'e Told,
    /// What the kernel told of the function.
    told: Option<&'e KernelEvent>,
}

/// A link under watch.
#[derive(Debug, Default)]
struct Track {
    total: Total,
    /// When it was last looked at.
    at_ns: u64,
    /// When the kernel last told of its link, and why it did.
    told: Option<(u64, u32)>,
    state: Option<LinkRate>,
    best: f64,
    is_loss: bool,
    /// Errors of both ends at the last change, and at the last sample.
    errors: [Option<u64>; 2],
    counts: [Option<u64>; 2],
    /// What was done to it last, and when.
    hint: Option<(u64, Hint)>,
    was_blind: bool,
}

/// So long a hint stands for a change of the link, in nanoseconds: the longest time that a device has to be ready again after
/// its link was down is a second (6.6.1), and a sample may be late.
const HINT_NS: u64 = 5_000_000_000;

/// A retraining that the kernel tells of twice: by itself, and by the interrupt that it raises.
const TWICE_NS: u64 = 100_000_000;

/// A clock that goes on differs from one that stands still by more than this when the machine slept, in nanoseconds.
pub(super) const SLEPT_NS: u64 = 100_000_000;

impl Tracker {
    /// A tracker that knows how links ran before.
    pub fn after(former: BTreeMap<Bdf, Former>) -> Tracker {
        Tracker { former, ..Tracker::default() }
    }

    /// What changed since the sample before; of the first sample the states.
    pub fn next(&mut self, mut sample: Sample) -> Vec<Seen> {
        let start = *self.start.get_or_insert(sample.at);
        let is_first = self.last == Moment::default();
        let now_ns = sample.at.boot_ns.saturating_sub(start.boot_ns);
        let before_ns = self.last.boot_ns.saturating_sub(start.boot_ns);
        let mut seen = Vec::new();
        let slept_ns = (sample.at.boot_ns.saturating_sub(self.last.boot_ns))
            .saturating_sub(sample.at.monotonic_ns.saturating_sub(self.last.monotonic_ns));
        let is_gap = !is_first && slept_ns > SLEPT_NS;
        if is_gap {
            seen.push(gap((before_ns, now_ns), slept_ns));
        }
        self.reads += sample.reads;
        self.samples += 1 + u64::from(sample.is_again);
        self.last = sample.at;
        let mut ends: BTreeMap<Bdf, End> = sample.functions;
        for (bdf, now) in &mut ends {
            // What cannot be read now is as it was, of the same function.
            if let Some(before) = self.ends.get(bdf).filter(|before| before.fixed == now.fixed) {
                now.link = now.link.filter(|link| link & bits::TRAINING == 0).or(before.link);
                now.slot = now.slot.or(before.slot);
                now.link_2 = now.link_2.or(before.link_2);
                now.containment = now.containment.or(before.containment);
                now.shown = now.shown.or(before.shown);
            }
        }
        let mut old = std::mem::take(&mut self.ends);
        let has_log = sample.held.is_some();
        self.held.extend(sample.held.into_iter().flatten().map(|bdf| (bdf, now_ns)));
        self.held.retain(|_, at| now_ns - *at <= HINT_NS);
        for event in &mut sample.told.events {
            let boot_ns = event.at_ns + sample.at.boot_ns.saturating_sub(sample.at.monotonic_ns);
            event.at_ns = boot_ns.saturating_sub(start.boot_ns).clamp(before_ns.min(now_ns), now_ns);
        }
        let heard = &sample.told;
        let step = Step { now_ns, is_gap, has_log, heard, told: None };
        for event in heard.events.iter().filter(|event| event.what != What::Error) {
            let both = old.get(&event.bdf).zip(ends.get(&event.bdf));
            let Some((before, now)) = both.filter(|(a, b)| a.fixed == b.fixed) else { continue };
            // The port as the event shows it; all others are left for later.
            let shown = event.shown(before, now);
            let step = Step { now_ns: event.at_ns, told: Some(event), ..step };
            let now = ends.insert(event.bdf, shown.clone());
            self.function(event.bdf, (&old, &ends), step, &mut seen);
            self.link(event.bdf, (&old, &ends), step, &mut seen);
            old.insert(event.bdf, shown);
            ends.extend(now.map(|now| (event.bdf, now)));
        }
        if !is_first {
            let all: BTreeSet<Bdf> = old.keys().chain(ends.keys()).copied().collect();
            for bdf in all {
                let told = heard.events.iter().rfind(|event| event.bdf == bdf && event.what == What::Error);
                self.function(bdf, (&old, &ends), Step { told, ..step }, &mut seen);
            }
        }
        for bdf in ends.keys() {
            self.link(*bdf, (&old, &ends), step, &mut seen);
        }
        self.ends = ends;
        seen
    }

    /// What [`super::Links::clear_lbms`] cleared after the last sample: set again, it tells of another change.
    pub fn cleared(&mut self, ports: &[Bdf]) {
        for (_, end) in self.ends.iter_mut().filter(|(bdf, _)| ports.contains(bdf)) {
            end.link = end.link.map(|link| link & !bits::MANAGED);
        }
    }

    /// What each link came to.
    pub fn totals(&self) -> impl Iterator<Item = &Total> {
        self.links.values().map(|track| &track.total)
    }

    /// When the last sample was taken, in nanoseconds since the first.
    pub fn elapsed_ns(&self) -> u64 {
        self.start.map_or(0, |start| self.last.boot_ns.saturating_sub(start.boot_ns))
    }

    /// The first function right below a port.
    fn below(ends: &BTreeMap<Bdf, End>, port: Bdf) -> Option<&End> {
        ends.values().find(|end| end.fixed.function.path.last() == Some(&port))
    }

    /// Everything of a function but its link.
    fn function(&mut self, bdf: Bdf, (old, new): Ends, step: Step, seen: &mut Vec<Seen>) {
        let (before, now) = (old.get(&bdf), new.get(&bdf));
        let mut found: Vec<Found> = Vec::new();
        match (before, now) {
            (before, now) if before == now => return,
            (Some(before), Some(now)) if before.fixed == now.fixed => {
                let mut put = |of, from: Option<String>, to: Option<String>, cause, evidence: Vec<String>| {
                    if let (Some(from), Some(to)) = (from, to) {
                        if from != to {
                            found.push((of, from, to, cause, evidence));
                        }
                    }
                };
                let of_power = if before.is_asleep == now.is_asleep { Cause::Unknown } else { Cause::PowerSaving };
                put(Subject::Power, power(before), power(now), Some(of_power), Vec::new());
                put(Subject::Driver, driver(before), driver(now), Some(Cause::Driver), Vec::new());
                put(Subject::Aspm, aspm(before), aspm(now), Some(Cause::Software), Vec::new());
                let evidence = cause::of_slot(before, now);
                let of_slot = if evidence.is_some() { Cause::HotPlug } else { Cause::Software };
                put(Subject::Slot, slot(before), slot(now), Some(of_slot), evidence.into_iter().collect());
                put(Subject::Containment, triggered(before), triggered(now), Some(Cause::Containment), Vec::new());
                let is_reset = before.errors.zip(now.errors).is_some_and(|(a, b)| (0..3).any(|n| b[n] < a[n]));
                let reset = is_reset.then(|| "a counter fell: it was cleared, or wrapped".to_owned());
                put(Subject::Errors, errors(before), errors(now), None, reset.into_iter().collect());
            }
            _ => {
                let port = before.or(now).and_then(|end| end.fixed.function.path.last()).copied();
                let ports = port.and_then(|port| old.get(&port).zip(new.get(&port)));
                let evidence = ports.and_then(|(before, now)| cause::of_slot(before, now));
                let contained = ports.is_some_and(|(_, now)| now.containment.is_some_and(|dpc| dpc & 1 != 0));
                let slot_ns = port.and_then(|port| self.since.get(&(port, Subject::Slot)));
                let (cause, evidence) = match evidence {
                    Some(evidence) => (Cause::HotPlug, vec![evidence]),
                    None if slot_ns.is_some_and(|at| step.now_ns - at <= HINT_NS) => {
                        (Cause::HotPlug, vec!["its slot changed before".to_owned()])
                    }
                    None if contained => (Cause::Containment, vec!["DPC triggered".to_owned()]),
                    None => (Cause::Enumeration, vec!["its slot did not change".to_owned()]),
                };
                let word = |end: Option<&End>| if end.is_some() { "present" } else { "absent" }.to_owned();
                found.push((Subject::Presence, word(before), word(now), Some(cause), evidence));
            }
        }
        let Some(fixed) = now.or(before).map(|end| Arc::clone(&end.fixed)) else { return };
        for (of, from, to, cause, mut evidence) in found {
            let is_register = matches!(of, Subject::Aspm | Subject::Slot | Subject::Containment);
            let is_told = |event: &&KernelEvent| match event.what {
                What::Slot(event) => of == Subject::Slot && event > 1,
                What::Error => of == Subject::Errors,
                What::Link { .. } => false,
            };
            let told = step.told.filter(is_told);
            evidence.splice(0..0, told.map(KernelEvent::words));
            let now_ns = told.map_or(step.now_ns, |event| event.at_ns);
            let since = self.since.insert((bdf, of), now_ns).unwrap_or(0);
            let sampled = if is_register { Source::Registers } else { Source::Sysfs };
            let source = told.map_or(sampled, |_| Source::Tracepoint);
            let change = Change { cause, evidence, ..Change::new(of, Some(from), to, source) };
            let (fixed, lasted) = (Some(Arc::clone(&fixed)), (since, now_ns));
            seen.push(Seen { fixed, change, below: None, lasted, lost_bytes_per_s: None, errors: [None; 2] });
        }
    }

    /// The link of a function that has one.
    fn link(&mut self, bdf: Bdf, (old, new): Ends, step: Step, seen: &mut Vec<Seen>) {
        let Step { now_ns, is_gap, told, .. } = step;
        let Some(now) = new.get(&bdf).filter(|end| end.fixed.has_link) else { return };
        let below = Self::below(new, bdf).filter(|_| now.fixed.leads_down);
        let state = state(now, below.is_none());
        let counts = [Some(now), below].map(|end| end.and_then(|end| end.errors).map(|errors| errors.iter().sum()));
        let sampled = if now.link.is_some() { Source::Registers } else { Source::Sysfs };
        let source = told.map_or(sampled, |_| Source::Tracepoint);
        let is_known = old.get(&bdf).is_some_and(|before| before.fixed == now.fixed);
        if !is_known || !self.links.contains_key(&bdf) {
            let Some(state) = state else { return };
            let mut evidence: Vec<String> = could(now, below, state).into_iter().collect();
            let mut cause = None;
            let better = self.former.remove(&bdf).and_then(|former| {
                let best = of_words(&former.state).filter(|best| rate(*best) > rate(state))?;
                // Another card may be slower.
                below.is_none_or(|below| Some(&below.fixed.function.name) == former.below.as_ref()).then_some(())?;
                let is_idle = below.is_some_and(cause::is_display) && best.1 == state.1;
                cause = Some(if is_idle { Cause::PowerSaving } else { Cause::Unknown });
                evidence.push(former.evidence);
                Some(best)
            });
            let lost_bytes_per_s = better.map(|best| rate(best) - rate(state));
            let below = below.map(|below| Arc::clone(&below.fixed));
            let (fixed, changes) = (Arc::clone(&now.fixed), u64::from(better.is_some()));
            let track = Track {
                total: Total { fixed: fixed.clone(), below: below.clone(), changes, ..Total::default() },
                state: Some(state),
                at_ns: now_ns,
                best: rate(better.unwrap_or(state)),
                is_loss: cause == Some(Cause::Unknown),
                errors: counts,
                counts,
                ..Track::default()
            };
            let change = Change::new(Subject::Link, better.map(words), words(state), source);
            let (change, lasted) = (Change { cause, evidence, ..change }, (now_ns, now_ns));
            let errors = counts.map(|count| count.map(|count| (count, count)));
            seen.push(Seen { fixed: Some(fixed), change, below, lasted, lost_bytes_per_s, errors });
            self.since.insert((bdf, Subject::Link), now_ns);
            self.links.insert(bdf, track);
            return;
        }
        let (Some(before), Some(track)) = (old.get(&bdf), self.links.get_mut(&bdf)) else { return };
        // While the machine slept nobody used a link.
        let step_ns = if is_gap { 0 } else { now_ns - track.at_ns.min(now_ns) };
        track.at_ns = now_ns;
        let total = &mut track.total;
        total.fixed = Arc::clone(&now.fixed);
        total.below = below.map(|below| Arc::clone(&below.fixed)).or(total.below.take());
        total.watched_ns += step_ns;
        let both = track.counts.iter().zip(&counts).filter_map(|(before, now)| (*before).zip(*now));
        total.errors += both.map(|(before, now)| now.saturating_sub(before)).sum::<u64>();
        track.counts = counts;
        let is_asleep = now.is_asleep || below.is_some_and(|below| below.is_asleep);
        if is_asleep {
            total.asleep_ns += step_ns;
        }
        let lost = |best: f64, state: LinkRate| (best - rate(state)).max(0.0);
        let is_lost = |before: &LinkRate| track.is_loss && !is_asleep && lost(track.best, *before) > 0.0;
        if let Some(before) = track.state.filter(is_lost) {
            total.below_ns += step_ns;
            total.lost_bytes += lost(track.best, before) * step_ns as f64 / 1e9;
        }
        let blind = blind(before, step.heard);
        if let Some(why) = blind {
            total.blind_ns += step_ns;
            total.blind_by = Some(why);
            track.was_blind = true;
        }
        let is_named = |bdf: &Bdf| self.held.contains_key(bdf);
        let is_held = step.has_log.then(|| is_named(&bdf) || below.is_some_and(|below| is_named(&below.fixed.bdf())));
        track.hint = cause::hint((before, now), is_held)
            .map(|hint| (now_ns, hint))
            .or(track.hint.take().filter(|(at, _)| now_ns - at <= HINT_NS));
        let (Some(was), Some(state)) = (track.state, state) else { return };
        let below_before = Self::below(old, bdf).filter(|_| now.fixed.leads_down);
        let reason = told.and_then(KernelEvent::reason);
        let pair = Pair { ends: (before, now), states: (was, state), below: (below_before, below), reason };
        // The kernel tells of a retraining, and of the interrupt that this raises.
        let is_told = reason.is_some_and(|reason| {
            let last = track.told.replace((now_ns, reason)).filter(|(at, _)| now_ns - *at <= TWICE_NS);
            let is_twice = last.is_some_and(|(_, last)| last != reason && last + reason == RETRAIN + INTERRUPT);
            matches!(reason, RETRAIN | INTERRUPT) && !is_twice
        });
        let is_between = was == state
            && !is_gap
            && (is_told || [bits::MANAGED, bits::AUTONOMOUS].into_iter().any(|bit| cause::is_new(pair.ends, bit)));
        if was == state && !is_between {
            return;
        }
        let (cause, mut evidence) = match is_between {
            true => cause::between(&pair),
            false if is_gap => (Cause::Unknown, vec!["the machine slept in between".to_owned()]),
            false => cause::of_link(&pair, track.hint.take().map(|(_, hint)| hint)),
        };
        total.changes += 1;
        evidence.splice(0..0, told.map(KernelEvent::words));
        if is_between {
            evidence.push("it changed and came back between two samples".to_owned());
        }
        track.best = if cause == Cause::HotPlug { rate(state) } else { track.best.max(rate(state)) };
        if !is_between {
            track.is_loss = cause != Cause::PowerSaving;
        }
        let errors = [0, 1].map(|end| track.errors[end].zip(counts[end]));
        let since = self.since.insert((bdf, Subject::Link), now_ns).unwrap_or(0);
        let may_have_missed = std::mem::take(&mut track.was_blind);
        let change = Change::new(Subject::Link, Some(words(was)), words(state), source);
        let change = Change { cause: Some(cause), evidence, may_have_missed, ..change };
        (track.state, track.errors) = (Some(state), counts);
        let (lost_bytes_per_s, lasted) = (Some(lost(track.best, state)), (since, now_ns));
        let (fixed, below) = (Some(Arc::clone(&now.fixed)), track.total.below.clone());
        seen.push(Seen { fixed, below, change, lasted, lost_bytes_per_s, errors });
    }
}

fn gap(lasted: (u64, u64), slept_ns: u64) -> Seen {
    let to = format!("awake, after {:.1} s of sleep", slept_ns as f64 / 1e9);
    let change = Change::new(Subject::Gap, Some("awake".to_owned()), to, Source::Clock);
    let change = Change { may_have_missed: true, ..change };
    Seen { fixed: None, below: None, change, lasted, lost_bytes_per_s: None, errors: [None; 2] }
}

/// Why a change that comes back before the next sample would leave no trace; `None` where it would.
fn blind(before: &End, heard: &Told) -> Option<&'static str> {
    let is_cleared = before.fixed.is_cleared;
    match before.link {
        _ if before.is_asleep => None,
        None => Some("the registers cannot be read"),
        Some(_) if heard.lost > 0 => Some("the kernel's events overflowed"),
        // The kernel tells of each interrupt for which it clears a bit.
        Some(link) if is_cleared && heard.has_links && link & bits::NOTIFIES == bits::NOTIFIES => None,
        Some(_) if is_cleared => Some("the kernel clears LBMS"),
        Some(link) if link & (bits::MANAGED | bits::AUTONOMOUS) != 0 => Some("LBMS or LABS is set already"),
        Some(_) => None,
    }
}

/// How a link runs; `None` where nothing tells.
pub(super) fn state(end: &End, is_empty: bool) -> Option<LinkRate> {
    let Some(link) = end.link else { return end.shown };
    let code = (link >> 16 & 0xf) as usize;
    let speed = code.checked_sub(1).and_then(|place| SPEEDS.get(place)).copied().unwrap_or(0.0);
    let width = (link >> 20 & 0x3f) as u8;
    let is_down = link & bits::DISABLED != 0
        || end.fixed.reports_active && link & bits::ACTIVE == 0
        // A port that does not say whether its link is up shows the lowest speed without one.
        || link & bits::ACTIVE == 0 && is_empty && end.fixed.leads_down && speed == SPEEDS[0];
    Some(if is_down || speed == 0.0 || width == 0 { (0.0, 0) } else { (speed, width) })
}

#[cfg(test)]
mod tests {
    use pciescope_core::Function;

    use super::*;

    const PORT: Bdf = Bdf { domain: 0, bus: 0, device: 1, function: 0 };
    const CARD: Bdf = Bdf { bus: 1, device: 0, ..PORT };
    const SECOND: u64 = 1_000_000_000;

    fn status(code: u32, width: u32) -> u32 {
        (code | width << 4) << 16
    }

    /// A port at 16 GT/s x4 with a card.
    fn ends(class: u32) -> (End, End) {
        let function = |bdf, class, path| Function { bdf: Some(bdf), class, path, ..Function::default() };
        let port = Fixed {
            inode: 1,
            function: function(PORT, 0x06_04_00, Vec::new()),
            leads_down: true,
            has_link: true,
            most: Some((16.0, 4)),
            ..Fixed::default()
        };
        let card = Fixed { inode: 2, function: function(CARD, class, vec![PORT]), ..Fixed::default() };
        let port = End {
            fixed: Arc::new(port),
            link: Some(status(4, 4)),
            slot: Some(bits::CARD),
            link_2: Some(4),
            containment: Some(0),
            errors: Some([0; 3]),
            power: Some("D0".to_owned()),
            ..End::default()
        };
        let card = End { fixed: Arc::new(card), link: Some(status(4, 4)), errors: Some([0; 3]), ..End::default() };
        (port, card)
    }

    fn sample(seconds: u64, port: &End, card: Option<&End>) -> Sample {
        let at = Moment { monotonic_ns: (seconds + 1) * SECOND, boot_ns: (seconds + 1) * SECOND };
        let functions = [(PORT, Some(port)), (CARD, card)];
        let functions = functions.into_iter().filter_map(|(bdf, end)| Some((bdf, end?.clone()))).collect();
        Sample { at, functions, held: Some(Vec::new()), reads: 5, ..Sample::default() }
    }

    /// The link's changes after some samples, a second apart.
    fn changes(samples: Vec<Sample>) -> Vec<(String, Cause)> {
        let mut tracker = Tracker::default();
        let all = samples.into_iter().flat_map(|sample| tracker.next(sample)).map(|seen| seen.change);
        let links = all.filter(|change| change.of == Subject::Link && !change.is_start());
        links.map(|change| (change.to, change.cause.unwrap())).collect()
    }

    type Doing = fn(&mut End, &mut End);

    #[test]
    fn each_cause_is_told_by_what_hardware_and_kernel_leave() {
        let nvme = 0x01_08_02;
        let gpu = 0x03_00_00;
        let cases: [(&str, u32, Doing, &str, Cause); 11] = [
            ("LBMS", nvme, |port, _| port.link = Some(status(3, 4) | bits::MANAGED), "8 GT/s x4", Cause::Reliability),
            ("lanes", nvme, |port, _| port.link = Some(status(4, 1) | bits::MANAGED), "16 GT/s x1", Cause::Reliability),
            (
                "LABS",
                nvme,
                |port, _| port.link = Some(status(1, 4) | bits::AUTONOMOUS),
                "2.5 GT/s x4",
                Cause::Autonomous,
            ),
            (
                "both",
                nvme,
                |port, _| port.link = Some(status(3, 4) | bits::MANAGED | bits::AUTONOMOUS),
                "8 GT/s x4",
                Cause::Unknown,
            ),
            ("nothing", nvme, |port, _| port.link = Some(status(3, 4)), "8 GT/s x4", Cause::Unknown),
            (
                "target",
                nvme,
                |port, _| {
                    port.link_2 = Some(2);
                    port.link = Some(status(2, 4) | bits::MANAGED);
                },
                "5 GT/s x4",
                Cause::Software,
            ),
            ("disable", nvme, |port, _| port.link = Some(status(4, 4) | bits::DISABLED), "no link", Cause::Software),
            (
                "DPC",
                nvme,
                |port, _| {
                    port.containment = Some(1);
                    port.link = Some(0);
                },
                "no link",
                Cause::Containment,
            ),
            (
                "card",
                nvme,
                |port, _| {
                    port.slot = Some(0);
                    port.link = Some(0);
                },
                "no link",
                Cause::HotPlug,
            ),
            (
                "idle GPU",
                gpu,
                |port, _| port.link = Some(status(1, 4) | bits::MANAGED),
                "2.5 GT/s x4",
                Cause::PowerSaving,
            ),
            (
                "GPU with errors",
                gpu,
                |port, card| {
                    port.link = Some(status(1, 4) | bits::MANAGED);
                    card.errors = Some([7, 0, 0]);
                },
                "2.5 GT/s x4",
                Cause::Reliability,
            ),
        ];
        for (name, class, happens, to, cause) in cases {
            let (port, card) = ends(class);
            let (mut after, mut card_after) = (port.clone(), card.clone());
            happens(&mut after, &mut card_after);
            let seen = changes(vec![sample(0, &port, Some(&card)), sample(1, &after, Some(&card_after))]);
            assert_eq!(seen, [(to.to_owned(), cause)], "{name}");
        }
    }

    #[test]
    fn what_was_done_may_come_some_samples_before_the_link_changes() {
        let (port, card) = ends(0x01_08_02);
        let told = End { link_2: Some(1), ..port.clone() };
        let slow = End { link: Some(status(1, 4)), ..told.clone() };
        let narrow = End { link: Some(status(1, 2) | bits::MANAGED), ..told.clone() };
        let at = |seconds, port| sample(seconds, port, Some(&card));
        let software = [("2.5 GT/s x4".to_owned(), Cause::Software)];
        assert_eq!(changes(vec![at(0, &port), at(1, &told), at(3, &slow)]), software);
        // Too long before, and another change than was told.
        assert_eq!(changes(vec![at(0, &port), at(1, &told), at(9, &slow)])[0].1, Cause::Unknown);
        assert_eq!(changes(vec![at(0, &port), at(1, &told), at(3, &narrow)])[0].1, Cause::Reliability);
        // The kernel's hold, as its log has it.
        let held = Sample { held: Some(vec![CARD]), ..at(1, &told) };
        assert_eq!(changes(vec![at(0, &port), held, at(2, &slow)])[0].1, Cause::KernelHold);
        let blind = |sample| Sample { held: None, ..sample };
        assert_eq!(changes(vec![at(0, &port), blind(at(1, &told)), blind(at(2, &slow))])[0].1, Cause::Unknown);
    }

    #[test]
    fn a_change_that_came_back_is_seen_where_the_bits_were_clear() {
        let (port, card) = ends(0x01_08_02);
        let marked = End { link: Some(status(4, 4) | bits::MANAGED), ..port.clone() };
        let mut tracker = Tracker::default();
        tracker.next(sample(0, &port, Some(&card)));
        let seen = tracker.next(sample(1, &marked, Some(&card)));
        assert!(seen.len() == 1 && seen[0].change.is_between(), "{seen:?}");
        // From now on such a change leaves no trace, and the output says so.
        assert!(tracker.next(sample(4, &marked, Some(&card))).is_empty());
        let total = tracker.totals().next().unwrap();
        assert_eq!((total.changes, total.blind_ns, total.watched_ns), (1, 3 * SECOND, 4 * SECOND));
        // Where the bit is cleared, each one leaves its trace.
        tracker.cleared(&[PORT]);
        let seen = tracker.next(sample(5, &marked, Some(&card)));
        assert!(seen.len() == 1 && seen[0].change.is_between(), "{seen:?}");
        let total = tracker.totals().next().unwrap();
        assert_eq!((total.changes, total.blind_ns), (2, 3 * SECOND));
    }

    #[test]
    fn nothing_is_invented_over_a_sleep_of_the_machine_or_of_a_device() {
        let (port, card) = ends(0x01_08_02);
        let mut tracker = Tracker::default();
        tracker.next(sample(0, &port, Some(&card)));
        let marked = End { link: Some(status(4, 4) | bits::MANAGED), ..port.clone() };
        let mut later = sample(1, &marked, Some(&card));
        later.at.boot_ns += 3600 * SECOND;
        let seen = tracker.next(later.clone());
        assert_eq!(seen.iter().map(|seen| seen.change.of).collect::<Vec<_>>(), [Subject::Gap], "{seen:?}");
        assert_eq!(tracker.totals().next().unwrap().watched_ns, 0, "a sleep is no time under watch");
        // A device that sleeps shows no register: its state stays as it was last seen.
        let asleep = End { is_asleep: true, link: None, power: Some("D3cold".to_owned()), ..card.clone() };
        let mut next = sample(2, &marked, Some(&asleep));
        next.at.boot_ns += 3600 * SECOND;
        let seen = tracker.next(next);
        assert!(seen.iter().all(|seen| seen.change.of == Subject::Power), "{seen:?}");
    }

    #[test]
    fn a_link_that_comes_up_slower_than_it_last_was_has_changed() {
        let first = |class, was: &str, below: Option<&str>, is_empty: bool| {
            let (port, card) = ends(class);
            let port = End { link: Some(status(if is_empty { 1 } else { 3 }, 4)), ..port };
            let former = Former { state: was.to_owned(), below: below.map(str::to_owned), evidence: "then".to_owned() };
            let mut tracker = Tracker::after(BTreeMap::from([(PORT, former)]));
            let seen = tracker.next(sample(0, &port, (!is_empty).then_some(&card))).remove(0);
            tracker.next(sample(2, &port, (!is_empty).then_some(&card)));
            let lost = tracker.totals().next().unwrap().lost_bytes;
            (seen.change.from, seen.change.to, seen.change.cause, seen.lost_bytes_per_s, lost)
        };
        let (was, now) = ("16 GT/s x4".to_owned(), "8 GT/s x4".to_owned());
        let less = rate((16.0, 4)) - rate((8.0, 4));
        let (nvme, gpu) = (0x01_08_02, 0x03_00_00);
        let lower = (Some(was.clone()), now.clone(), Some(Cause::Unknown), Some(less), 2.0 * less);
        assert_eq!(first(nvme, &was, Some(""), false), lower);
        // Another card, the same state, and one that was no link say nothing.
        for (was, below) in [(&was, Some("other")), (&was, None), (&now, Some("")), (&"no link".to_owned(), Some(""))] {
            assert_eq!(first(nvme, was, below, false), (None, now.clone(), None, None, 0.0), "{was} {below:?}");
        }
        // A display that is idle, and a card that is gone.
        assert_eq!(first(gpu, &was, Some(""), false).2, Some(Cause::PowerSaving));
        assert_eq!(first(nvme, &was, Some(""), true).1, "no link");
        assert_eq!(first(nvme, &was, Some(""), true).0, Some(was));
    }

    #[test]
    fn a_counter_that_falls_is_named() {
        let (port, card) = ends(0x01_08_02);
        let more = End { errors: Some([5, 0, 1]), ..card.clone() };
        let fewer = End { errors: Some([1, 0, 1]), ..card.clone() };
        let mut tracker = Tracker::default();
        let all = [&card, &more, &fewer].into_iter().enumerate();
        let seen: Vec<Change> = all
            .flat_map(|(second, card)| tracker.next(sample(second as u64, &port, Some(card))))
            .map(|seen| seen.change)
            .filter(|change| change.of == Subject::Errors)
            .collect();
        assert_eq!(seen[0].to, "5 correctable, 1 fatal");
        assert!(seen[0].evidence.is_empty() && seen[1].evidence[0].contains("fell"), "{seen:?}");
        // Only what came more is counted.
        assert_eq!(tracker.totals().next().unwrap().errors, 6);
    }

    /// A sample with what the kernel told before it, at these milliseconds after the first sample.
    fn told(sample: Sample, events: &[(u64, What)]) -> Sample {
        let at_ns = |ms: &u64| SECOND + ms * 1_000_000;
        let events = events.iter().map(|(ms, what)| KernelEvent { at_ns: at_ns(ms), bdf: PORT, what: *what }).collect();
        Sample { told: Told { events, lost: 0, has_links: true }, ..sample }
    }

    fn link_event(reason: u32, code: u32, bits: u32) -> What {
        What::Link { reason, status: ((status(code, 4) | bits) >> 16) as u16 }
    }

    /// When in milliseconds, what, cause and the first evidence of what the kernel told of.
    fn by_events(seen: &[Seen]) -> Vec<(u64, &str, Cause, &str)> {
        let told = seen.iter().filter(|seen| seen.change.source == Source::Tracepoint);
        told.map(|Seen { change, lasted, .. }| {
            (lasted.1 / 1_000_000, change.to.as_str(), change.cause.unwrap(), change.evidence[0].as_str())
        })
        .collect()
    }

    #[test]
    fn what_the_kernel_tells_has_its_own_time_and_cause_and_is_counted_once() {
        let (port, card) = ends(0x01_08_02);
        let mut tracker = Tracker::default();
        tracker.next(sample(0, &port, Some(&card)));
        let worse = End { errors: Some([9, 0, 0]), ..card.clone() };
        let events = [
            (100, link_event(2, 4, 0)),
            (200, link_event(3, 3, bits::AUTONOMOUS)),
            (300, link_event(3, 4, bits::MANAGED)),
            (400, link_event(3, 4, 0)),
            // A retraining, and the interrupt that it raises.
            (500, link_event(0, 2, 0)),
            (510, link_event(3, 2, 0)),
            (700, link_event(9, 4, 0)),
        ];
        let seen = tracker.next(told(sample(1, &port, Some(&card)), &events));
        let interrupt = "pcie_link_event: bandwidth interrupt";
        let expected = [
            (200, "8 GT/s x4", Cause::Autonomous, interrupt),
            (300, "16 GT/s x4", Cause::Software, interrupt),
            (400, "16 GT/s x4", Cause::Unknown, interrupt),
            (500, "5 GT/s x4", Cause::Software, "pcie_link_event: retrain"),
            (700, "16 GT/s x4", Cause::Unknown, "pcie_link_event: 9"),
        ];
        assert_eq!(by_events(&seen), expected);
        assert_eq!(seen.len(), 5, "the registers show nothing else: {seen:#?}");
        assert!(seen[2].change.is_between() && seen.iter().filter(|seen| seen.change.is_between()).count() == 1);
        // Worse, with errors; LBMS was cleared before it could be read.
        let slow = End { link: Some(status(1, 4)), ..port.clone() };
        let seen = tracker.next(told(sample(2, &slow, Some(&worse)), &[(1500, link_event(3, 1, 0))]));
        assert_eq!(by_events(&seen), [(1500, "2.5 GT/s x4", Cause::Reliability, interrupt)]);
        // 0.1 s at 8 GT/s, 0.2 s at 5, 0.5 s at 2.5.
        let total = tracker.totals().next().unwrap();
        assert_eq!((total.changes, total.below_ns, total.watched_ns), (6, 800_000_000, 2 * SECOND));
    }

    #[test]
    fn a_card_comes_and_goes_and_errors_are_told_of() {
        let (port, card) = ends(0x01_08_02);
        let with = |end: &End| Arc::new(Fixed { reports_active: true, ..Fixed::clone(&end.fixed) });
        let up = status(4, 4) | bits::ACTIVE;
        let port = End { fixed: with(&port), link: Some(up), ..port };
        let mut tracker = Tracker::default();
        tracker.next(sample(0, &port, Some(&card)));
        let events = [
            (100, What::Slot(1)),
            (101, What::Slot(3)),
            (500, What::Slot(2)),
            (501, What::Slot(0)),
            (600, link_event(4, 4, bits::ACTIVE)),
        ];
        let again = Fixed { inode: 3, ..Fixed::clone(&card.fixed) };
        let card = End { fixed: Arc::new(again), ..card };
        let seen = tracker.next(told(sample(1, &port, Some(&card)), &events));
        let expected = [
            (100, "no link", Cause::Unknown, "pci_hp_event: LINK_DOWN"),
            (101, "empty", Cause::HotPlug, "pci_hp_event: CARD_NOT_PRESENT"),
            (500, "card", Cause::HotPlug, "pci_hp_event: CARD_PRESENT"),
            (501, "16 GT/s x4", Cause::HotPlug, "pci_hp_event: LINK_UP"),
        ];
        assert_eq!(by_events(&seen), expected);
        let others: Vec<_> = seen.iter().filter(|seen| seen.change.source != Source::Tracepoint).collect();
        assert!(others.len() == 1 && others[0].change.cause == Some(Cause::HotPlug), "{others:#?}");
        // A link that falls and comes back by itself is no hot-plug: what it lost is not forgotten.
        let narrow = End { link: Some(up & !(0x3f << 20) | 1 << 20), ..port.clone() };
        let alone = What::Link { reason: 4, status: (narrow.link.unwrap() >> 16) as u16 };
        let seen = tracker.next(told(sample(9, &narrow, Some(&card)), &[(8000, What::Slot(1)), (8900, alone)]));
        let causes: Vec<_> = by_events(&seen).into_iter().map(|(_, to, cause, _)| (to, cause)).collect();
        assert_eq!(causes, [("no link", Cause::Unknown), ("16 GT/s x1", Cause::Unknown)]);
        assert!(seen[1].lost_bytes_per_s.unwrap() > 0.0, "{seen:#?}");
        let failing = End { errors: Some([1, 0, 0]), ..card.clone() };
        let mut next = told(sample(10, &narrow, Some(&failing)), &[(9300, What::Error)]);
        next.told.events[0].bdf = CARD;
        let seen = tracker.next(next);
        assert_eq!((seen.len(), seen[0].change.source, seen[0].lasted.1), (1, Source::Tracepoint, 9_300_000_000));
    }

    #[test]
    fn a_hot_plug_that_the_kernel_tells_of_is_one_where_the_slot_changed() {
        let (port, card) = ends(0x01_08_02);
        let narrow = |port: &End| End { link: Some(status(4, 1)), ..port.clone() };
        let event = What::Link { reason: 4, status: (status(4, 1) >> 16) as u16 };
        let cause = |before: &End, after: &End| {
            let mut tracker = Tracker::default();
            tracker.next(sample(0, before, Some(&card)));
            by_events(&tracker.next(told(sample(1, after, Some(&card)), &[(500, event)])))[0].2
        };
        // An emulated port shows a link without a card.
        assert_eq!(cause(&End { slot: Some(0), ..port.clone() }, &narrow(&port)), Cause::HotPlug);
        assert_eq!(cause(&port, &narrow(&port)), Cause::Unknown);
        assert_eq!(cause(&port, &End { link_2: Some(1), ..narrow(&port) }), Cause::Unknown);
        // A sample sees the link before the kernel tells of it, and before it knows the card.
        let plugged = |below: Option<&End>| {
            let samples = [End { slot: Some(0), ..port.clone() }, port.clone(), narrow(&port)];
            let at = [0, 1, 2].map(|seconds| sample(seconds, &samples[seconds as usize], below));
            changes(at.into())[0].1
        };
        assert_eq!((plugged(None), plugged(Some(&card))), (Cause::HotPlug, Cause::Unknown));
    }

    #[test]
    fn a_port_that_is_told_of_is_not_blind_but_for_what_found_no_room() {
        let (port, card) = ends(0x01_08_02);
        let cleared = Fixed { is_cleared: true, ..Fixed::clone(&port.fixed) };
        let silent = End { fixed: Arc::new(cleared), ..port };
        let heard = End { link: silent.link.map(|link| link | bits::NOTIFIES), ..silent.clone() };
        let blind = |port: &End, has_links, lost| {
            let mut tracker = Tracker::default();
            let mut all = [0, 1, 2].map(|second| sample(second, port, Some(&card)));
            // Of a port that nobody knows, and of one that is gone.
            all[1].told.events = vec![KernelEvent { at_ns: 0, bdf: Bdf { bus: 9, ..PORT }, what: link_event(3, 1, 0) }];
            all.iter_mut().for_each(|sample| sample.told.has_links = has_links);
            all[1].told.lost = lost;
            let slow = End { link: port.link.map(|link| link & 0xffff | status(3, 4)), ..port.clone() };
            all[2].functions.insert(PORT, slow);
            let seen = all.into_iter().flat_map(|sample| tracker.next(sample)).last().unwrap();
            let total = tracker.totals().next().unwrap();
            (total.blind_by, total.blind_ns / SECOND, total.changes, seen.change.may_have_missed)
        };
        assert_eq!(blind(&heard, true, 0), (None, 0, 1, false));
        assert_eq!(blind(&heard, true, 7), (Some("the kernel's events overflowed"), 1, 1, true));
        assert_eq!(blind(&silent, true, 0), (Some("the kernel clears LBMS"), 2, 1, true));
        assert_eq!(blind(&heard, false, 0), (Some("the kernel clears LBMS"), 2, 1, true));
    }
}
