//! What settings did: the answer in a sentence, how to keep what helps, and a table; or the knobs as they are.

use pciescope_core::text::span;
use pciescope_core::tune::{Effect, Knob, TEST as TUNE, Tune, Verdict};
use pciescope_core::{Plan, TunePlan};

use super::conclusions::{Conclusions, Place};
use super::{Fact, Facts};
use crate::effects::{change, effect_columns, what};
use crate::layout::{Columns, Left, Rows};
use crate::links::name;
use crate::model::Section;
use crate::style::{Tone, paint};
use crate::text::{clean, counted};

pub(crate) const TEST: &str = TUNE;

/// Settings of one verdict that the answer names.
const MOST_NAMED: usize = 3;
/// In this order the verdicts are told.
const TOLD: [Verdict; 5] = [Verdict::Helps, Verdict::Hurts, Verdict::Harmful, Verdict::NoDifference, Verdict::Refused];

pub(super) fn facts(section: &Section) -> Facts {
    let record = section.records[section.records.len() - 1];
    let Some(tune) = &record.tune else { return Facts::of(section, &name(record)) };
    if tune.effects.is_empty() {
        let mut facts = Facts::of(section, &format!("{}: what can be set", name(record)));
        facts.mark_section(section);
        (facts.more, facts.table) = (Some(knob_columns(&tune.knobs)), Some(risk_columns(&tune.knobs)));
        return facts;
    }
    let plan = plan(section);
    let time = span(record.interval.map_or(0, |interval| interval.end_ns));
    let figure = plan.map_or("figure", |plan| &plan.figure);
    let mut facts = Facts::of(section, &format!("{}: settings by {}, for {time}", name(record), clean(figure)));
    facts.lines.push(paint(tone(tune), &answer(tune, plan)));
    if let Some(best) = &tune.best {
        let all: Vec<String> = best.settings.iter().map(|one| format!("{} {}", one.knob, one.value)).collect();
        let said = match best.verdict {
            Verdict::Helps => format!("{}, confirmed", change(best.change)),
            Verdict::Undecided => "not confirmed in the time given".to_owned(),
            other => format!("not confirmed: {}", other.name()),
        };
        facts.lines.push(format!("together ({}): {said}", clean(&all.join(", "))));
    }
    let helping = tune.effects.iter().filter(|effect| effect.verdict == Verdict::Helps);
    for one in helping.flat_map(|effect| &effect.settings) {
        facts.lines.push(format!("to keep {} {}: {}", clean(&one.knob), clean(&one.value), clean(&one.permanent)));
    }
    let whys = tune.effects.iter().filter_map(|effect| Some(format!("{}: {}", what(effect), effect.why.as_ref()?)));
    let notes = tune.notes.iter().map(|note| format!("not as before: {note}"));
    facts.lines.extend(whys.chain(notes).map(|line| paint(Tone::Doubt, &clean(&line))));
    facts.tiles = tiles(tune, figure);
    facts.mark_section(section);
    let (effects, prices) = effect_columns(tune);
    (facts.more, facts.table) = (Some(effects), Some(prices));
    let least = plan.map_or(1.0, |plan| plan.least_percent);
    facts.below = Some(format!("intervals: 99 % of experiments have all of them right; least that matters: {least} %"));
    facts
}

fn plan<'s>(section: &Section<'s>) -> Option<&'s TunePlan> {
    match section.plan {
        Some(Plan::Tune(plan)) => Some(plan),
        _ => None,
    }
}

/// `mrrs 4096: rate +11 % (9 to 13); aspm-l1 off: no difference above 1 %; the rest undecided`.
fn answer(tune: &Tune, plan: Option<&TunePlan>) -> String {
    let (figure, least) = plan.map_or(("", 1.0), |plan| (&plan.figure, plan.least_percent));
    let mut parts: Vec<String> = Vec::new();
    for verdict in TOLD {
        let of = tune.effects.iter().filter(|effect| effect.verdict == verdict);
        let (named, others): (Vec<_>, Vec<_>) = of.enumerate().partition(|(place, _)| *place < MOST_NAMED);
        let said = |effect: &Effect| match verdict {
            Verdict::Helps => format!("{figure} {}", change(effect.change)),
            Verdict::Hurts => format!("hurts: {figure} {}", change(effect.change)),
            Verdict::NoDifference => format!("no difference above {least} %"),
            other => other.name().to_owned(),
        };
        parts.extend(named.iter().map(|(_, effect)| clean(&format!("{}: {}", what(effect), said(effect)))));
        let more = others.first().map(|(_, first)| (others.len(), first));
        parts.extend(more.map(|(count, first)| match verdict {
            Verdict::NoDifference => format!("{}: {}", counted(count, "other"), said(first)),
            verdict => format!("{}: {}", counted(count, "other"), verdict.name()),
        }));
    }
    let undecided = tune.effects.iter().filter(|effect| effect.verdict == Verdict::Undecided).count();
    match undecided {
        0 => {}
        _ if parts.is_empty() => parts.push("undecided after the time given".to_owned()),
        _ => parts.push("the rest undecided".to_owned()),
    }
    parts.join("; ")
}

fn tone(tune: &Tune) -> Tone {
    let is = |verdict: Verdict| tune.effects.iter().any(|effect| effect.verdict == verdict);
    match () {
        () if is(Verdict::Harmful) || !tune.notes.is_empty() => Tone::Bad,
        () if is(Verdict::Helps) => Tone::Good,
        () if is(Verdict::Undecided) => Tone::Doubt,
        () => Tone::Plain,
    }
}

fn knob_columns(knobs: &[Knob]) -> Columns {
    Rows::of(knobs).columns(&[
        ("Knob", 16, Left, &|knob| knob.name.clone()),
        ("Now", 8, Left, &|knob| knob.value.as_deref().map_or("-".to_owned(), clean)),
        ("Values", 12, Left, &|knob| clean(&knob.range)),
        ("Put back", 8, Left, &|knob| knob.put_back.clone()),
        ("Set by", 8, Left, &|knob| clean(&knob.set_by)),
    ])
}

fn risk_columns(knobs: &[Knob]) -> Columns {
    Rows::of(knobs).columns(&[
        ("Knob", 16, Left, &|knob| knob.name.clone()),
        ("Risk, or why it is not changed", 8, Left, &|knob| {
            let shared = knob.shared.as_ref().map(|what| format!("; also of {what} (--shared)"));
            let risk = || format!("{}{}", knob.risk, shared.unwrap_or_default());
            clean(&knob.refused.as_ref().map_or_else(risk, |why| format!("not changed: {why}")))
        }),
    ])
}

fn tiles(tune: &Tune, figure: &str) -> Vec<Fact> {
    let count = |verdict: Verdict| tune.effects.iter().filter(|effect| effect.verdict == verdict).count();
    let best = tune.best.as_ref().filter(|best| best.verdict == Verdict::Helps);
    let note = best.map_or("nothing that helps is confirmed".to_owned(), what);
    let best = best.and_then(|best| best.change).map_or("none".to_owned(), |one| format!("{:+.1} %", one.percent));
    vec![
        Fact { tone: tone(tune), ..Fact::plain("Best together", best, format!("{}: {note}", clean(figure))) },
        Fact::plain(
            "Settings tried",
            tune.effects.len().to_string(),
            counted(count(Verdict::Helps), "setting") + " helping",
        ),
        Fact::plain("Undecided", count(Verdict::Undecided).to_string(), "after the time given".to_owned()),
    ]
}

pub(super) fn conclude(out: &mut Conclusions, number: usize, section: &Section) {
    for record in &section.records {
        let Some(tune) = record.tune.as_ref().filter(|tune| !tune.effects.is_empty()) else { continue };
        let text = format!("{}: {}.", name(record), answer(tune, plan(section)));
        match tone(tune) {
            Tone::Good | Tone::Plain => out.good(number, text),
            _ => out.doubt(1, Place::Section(number), text),
        }
    }
}
