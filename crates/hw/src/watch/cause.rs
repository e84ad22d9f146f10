//! Why a link changed, by what registers and the kernel's log say. docs/watch.md has the rules as a table.

use pciescope_core::change::Cause;

use super::events::{ENUMERATION, HOT_PLUG, INTERRUPT, RETRAIN};
use super::{End, bits};
use crate::ceiling;
use crate::link::SPEEDS;

/// Speed in GT/s and lanes of a link; 0 lanes is no link.
pub(super) type LinkRate = (f64, u8);

/// A link before and now.
pub(super) struct Pair<'e> {
    /// The end that has the link: a port, or a function whose port is not seen.
    pub ends: (&'e End, &'e End),
    pub states: (LinkRate, LinkRate),
    /// The function below the port.
    pub below: (Option<&'e End>, Option<&'e End>),
    /// Why the kernel looked at the link, where it told of it.
    pub reason: Option<u32>,
}

impl Pair<'_> {
    /// What the kernel itself did. An interrupt tells that hardware did something.
    fn done(&self) -> Option<(Cause, Vec<String>)> {
        let cause = match self.reason? {
            RETRAIN => Cause::Software,
            ENUMERATION => Cause::Enumeration,
            _ => return None,
        };
        Some((cause, Vec::new()))
    }

    /// Whether LABS and LBMS are newly set, and whether an end reported errors.
    fn signs(&self) -> (bool, bool, bool) {
        let sum = |end: Option<&End>| end.and_then(|end| end.errors).map_or(0, |errors| errors.iter().sum::<u64>());
        let before = sum(Some(self.ends.0)) + sum(self.below.0);
        let has_errors = sum(Some(self.ends.1)) + sum(self.below.1) > before;
        (is_new(self.ends, bits::AUTONOMOUS), is_new(self.ends, bits::MANAGED), has_errors)
    }
}

/// Bits of a function's dword of link registers.
fn has(end: &End, bit: u32) -> bool {
    end.link.is_some_and(|link| link & bit != 0)
}

/// A bit that is set now, and was not before.
pub(super) fn is_new((before, now): (&End, &End), bit: u32) -> bool {
    before.link.is_some() && has(now, bit) && !has(before, bit)
}

/// The speed of Target Link Speed in GT/s.
fn target(end: &End) -> Option<f64> {
    SPEEDS.get(usize::from(end.link_2? & 0xf).checked_sub(1)?).copied()
}

/// What tells that software set something: the values of a field before and now.
fn differs<T: PartialEq + ToString>(before: Option<T>, now: Option<T>, what: &str) -> Option<String> {
    let (before, now) = (before?, now?);
    (before != now).then(|| format!("{what} {} -> {}", before.to_string(), now.to_string()))
}

/// Bytes per second; 0 for no link.
pub(super) fn rate((speed, width): LinkRate) -> f64 {
    ceiling::wire_bytes_per_s(speed, width).unwrap_or(0.0)
}

/// Whether it is a display, which lowers its link's speed while it is idle.
pub(super) fn is_display(end: &End) -> bool {
    end.fixed.function.class >> 16 == 0x03
}

/// What was done to a link, by registers that may change some samples before the link does.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hint {
    cause: Cause,
    evidence: Vec<String>,
    /// The speed that the link was told to have, in GT/s.
    target: Option<f64>,
}

/// What was done between two samples; `is_held` says whether the kernel's log has it that it holds the link.
pub(super) fn hint((before, now): (&End, &End), is_held: Option<bool>) -> Option<Hint> {
    let of = |cause, text: String| Some(Hint { cause, evidence: vec![text], target: None });
    let is_triggered = |end: &End| end.containment.is_some_and(|status| status & bits::TRIGGERED != 0);
    if is_triggered(now) != is_triggered(before) {
        let word = if is_triggered(now) { "triggered" } else { "released" };
        return of(Cause::Containment, format!("DPC {word}"));
    }
    if let Some(evidence) = of_slot(before, now) {
        return of(Cause::HotPlug, evidence);
    }
    let is_disabled = |end: &End| Some(u8::from(has(end, bits::DISABLED)));
    if let Some(evidence) = differs(is_disabled(before), is_disabled(now), "Link Disable") {
        return of(Cause::Software, evidence);
    }
    let evidence = differs(target(before), target(now), "Target Link Speed")?;
    let (cause, more) = match is_held {
        _ if target(now) != Some(SPEEDS[0]) => (Cause::Software, None),
        Some(true) => (Cause::KernelHold, Some("the kernel's log says so")),
        Some(false) => (Cause::Software, None),
        None => (Cause::Unknown, Some("the kernel's log cannot be read")),
    };
    let evidence = std::iter::once(evidence).chain(more.map(str::to_owned)).collect();
    Some(Hint { cause, evidence, target: target(now) })
}

impl Hint {
    /// Whether it can be why a link changed so: a link that was told its speed has it, and other hints are of links that
    /// come or go.
    fn explains(&self, (before, now): (LinkRate, LinkRate)) -> bool {
        match self.target {
            Some(target) => now.0 == target && now.1 == before.1,
            None => (before.1 == 0) != (now.1 == 0),
        }
    }
}

/// The cause of a change of speed or width, and the evidence. `hint` is the last one, if it is not old.
pub(super) fn of_link(pair: &Pair, hint: Option<Hint>) -> (Cause, Vec<String>) {
    let (before, now) = pair.ends;
    // The kernel calls it a hot-plug too when a link comes back by itself. An emulated port has a link without a card.
    let may_be_new = pair.reason == Some(HOT_PLUG) || pair.below.0.is_none();
    let is_plugged = |hint: &Hint| may_be_new && hint.cause == Cause::HotPlug;
    if let Some(hint) = hint.filter(|hint| hint.explains(pair.states) || is_plugged(hint)) {
        return (hint.cause, hint.evidence);
    }
    let sleeps = |end: Option<&End>| end.is_some_and(|end| end.is_asleep);
    let ((_, lanes_before), (_, lanes)) = pair.states;
    if sleeps(pair.below.0) != sleeps(pair.below.1) && (lanes == 0) != (lanes_before == 0) {
        let word = if sleeps(pair.below.1) { "asleep" } else { "awake" };
        return said(Cause::PowerSaving, &format!("the function below is {word}"));
    }
    if let Some(done) = pair.done() {
        return done;
    }
    let (is_autonomous, is_managed, has_errors) = pair.signs();
    if lanes == lanes_before && !has_errors && pair.below.1.is_some_and(is_display) {
        return said(Cause::PowerSaving, "a display, the same lanes, no error");
    }
    let is_better = rate(pair.states.1) > rate(pair.states.0);
    match (is_autonomous, is_managed) {
        (true, false) => said(Cause::Autonomous, "LABS was set"),
        // Hardware retrains to mend a link only downwards; the other reason for this bit is Retrain Link.
        (false, true) if is_better => said(Cause::Software, "LBMS was set, and the link became better"),
        (false, true) => said(Cause::Reliability, "LBMS was set"),
        (true, true) if has_errors => said(Cause::Reliability, "LBMS and LABS were set, with errors"),
        (true, true) => said(Cause::Unknown, "LBMS and LABS were both set"),
        _ if pair.reason == Some(INTERRUPT) && !is_better && has_errors => {
            said(Cause::Reliability, "an end reported errors")
        }
        _ if now.fixed.is_cleared => said(Cause::Unknown, "the kernel clears LBMS"),
        _ if has(before, bits::MANAGED | bits::AUTONOMOUS) => said(Cause::Unknown, "LBMS or LABS was set before"),
        _ => (Cause::Unknown, Vec::new()),
    }
}

/// The cause of a change that came back between two samples.
pub(super) fn between(pair: &Pair) -> (Cause, Vec<String>) {
    pair.done().unwrap_or_else(|| match pair.signs() {
        (true, false, _) => said(Cause::Autonomous, "LABS was set"),
        (false, true, true) => said(Cause::Reliability, "LBMS was set, with errors"),
        (true, true, _) => said(Cause::Unknown, "LBMS and LABS were set"),
        (false, true, false) => said(Cause::Unknown, "LBMS was set"),
        (false, false, true) => said(Cause::Reliability, "an end reported errors"),
        (false, false, false) => said(Cause::Unknown, "the kernel clears LBMS"),
    })
}

/// A cause, and the one thing that tells.
fn said(cause: Cause, text: &str) -> (Cause, Vec<String>) {
    (cause, vec![text.to_owned()])
}

/// What a slot tells of a card that came or went.
pub(super) fn of_slot(before: &End, now: &End) -> Option<String> {
    let card = |end: &End| end.slot.map(|slot| u8::from(slot & bits::CARD != 0));
    let power = |end: &End| end.slot.map(|slot| if slot & bits::POWER_OFF == 0 { "on" } else { "off" });
    let of_card = differs(card(before), card(now), "Presence Detect");
    of_card.or_else(|| differs(power(before), power(now), "slot power"))
}
