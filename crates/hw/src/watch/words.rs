//! States in words, as records have them.

use super::cause::LinkRate;
use super::{End, bits};

/// `16 GT/s x4`, `no link`.
pub(super) fn words((speed, width): LinkRate) -> String {
    if width == 0 { "no link".to_owned() } else { format!("{speed} GT/s x{width}") }
}

/// The state that [`words`] wrote.
pub(super) fn of_words(words: &str) -> Option<LinkRate> {
    let (speed, width) = words.split_once(" GT/s x")?;
    Some((speed.parse().ok()?, width.parse().ok()?))
}

/// That a link runs below what both of its ends can do.
pub(super) fn could(end: &End, below: Option<&End>, (speed, width): LinkRate) -> Option<String> {
    let (own, other) = (end.fixed.most?, below?.fixed.most?);
    let most = (own.0.min(other.0), own.1.min(other.1));
    (width > 0 && (speed < most.0 || width < most.1)).then(|| format!("both ends can {}", words(most)))
}

/// The power state, and whether the kernel lets it sleep.
pub(super) fn power(end: &End) -> Option<String> {
    match (&end.power, end.is_asleep) {
        (Some(state), true) => Some(format!("asleep in {state}")),
        (None, true) => Some("asleep".to_owned()),
        (state, false) => state.clone(),
    }
}

/// The bound driver.
pub(super) fn driver(end: &End) -> Option<String> {
    Some(end.driver.clone().unwrap_or_else(|| "none".to_owned()))
}

/// The ASPM states that are on.
pub(super) fn aspm(end: &End) -> Option<String> {
    let words = ["off", "L0s", "L1", "L0s L1"];
    Some(words[(end.link? & bits::ASPM) as usize].to_owned())
}

/// What is in the slot, and its indicators.
pub(super) fn slot(end: &End) -> Option<String> {
    let slot = end.slot?;
    let card = if slot & bits::CARD != 0 { "card" } else { "empty" };
    let power = if slot & bits::POWER_OFF == 0 { "" } else { ", power off" };
    let attention = match (slot & bits::ATTENTION) >> 6 {
        1 => ", attention on",
        2 => ", attention blinking",
        _ => "",
    };
    Some(format!("{card}{power}{attention}"))
}

/// Whether containment was triggered.
pub(super) fn triggered(end: &End) -> Option<String> {
    let word = if end.containment? & bits::TRIGGERED != 0 { "triggered" } else { "not triggered" };
    Some(word.to_owned())
}

/// Errors that it reported.
pub(super) fn errors(end: &End) -> Option<String> {
    let counts = end.errors?.into_iter().zip(["correctable", "nonfatal", "fatal"]);
    let words: Vec<String> =
        counts.filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    Some(if words.is_empty() { "none".to_owned() } else { words.join(", ") })
}
