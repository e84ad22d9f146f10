//! A soak: the bound on the bit error ratio of a link, what it stands on, and what was not counted.

use pciescope_core::Record;
use pciescope_core::soak::{Detector, LinkEnd, Soak, SoakEnd, TEST as SOAK};
use pciescope_core::text::span;

use super::conclusions::{Conclusions, Place};
use super::{Fact, Facts};
use crate::layout::{Left, Right, Rows};
use crate::links::name;
use crate::model::{Section, metric};
use crate::style::{Tone, paint};
use crate::text::{clean, counted, thousands};

pub(crate) const TEST: &str = SOAK;

pub(super) fn facts(section: &Section) -> Facts {
    let record = section.records[section.records.len() - 1];
    let time = record.interval.map_or(0, |interval| interval.end_ns);
    let mut facts = Facts::of(section, &format!("{} soaked for {}", name(record), span(time)));
    let Some(soak) = &record.soak else { return facts };
    if let Some((bound, seen)) = parts(record) {
        facts.lines.extend([paint(tone(record, soak), &bound), seen]);
    }
    facts.lines.extend(soak.below.map(|below| format!("asked for: below {below:e}: {}", soak.ended.name())));
    facts.lines.extend(soak.proof.as_ref().map(|proof| format!("the proof: {}", clean(proof))));
    facts.lines.extend(beside(record, soak));
    let blind = soak.ends.iter().filter_map(|end| Some(format!("{}: {}", end.bdf, end.blind_by.as_ref()?)));
    let uncounted = soak.uncounted.iter().map(|why| format!("not counted: {why}"));
    let of_end = blind.map(|why| format!("one end only, not that of {why}"));
    facts.lines.extend(of_end.chain(uncounted).map(|line| paint(Tone::Doubt, &clean(&line))));
    facts.tiles = tiles(record, soak);
    facts.mark_section(section);
    let count = |(end, word): &(&LinkEnd, &str), kind: &str| {
        let count = metric(record, &format!("{word}_{kind}")).filter(|_| end.blind_by.is_none());
        count.map_or("not seen".to_owned(), |count| thousands(count as u64))
    };
    facts.table = Some(Rows::of(&ends(soak)).columns(&[
        ("End", 12, Left, &|(end, _)| end.bdf.to_string()),
        ("Receiver errors", 15, Right, &|end| count(end, "receiver_errors")),
        ("Bad TLPs", 8, Right, &|end| count(end, "bad_tlps")),
        ("Bad DLLPs", 9, Right, &|end| count(end, "bad_dllps")),
    ]));
    let range = metric(record, "bit_error_ratio_low").zip(metric(record, "bit_error_ratio_high"));
    facts.below = range.map(|(low, high)| {
        format!("95 % interval: {} to {}; an interval with several errors counts as one", down(low), up(high))
    });
    facts
}

/// What a soak says, the answer first: `bit error ratio below 9.0e-16 with 95 % confidence (detector proven)`, and what it
/// stands on: `no error in 4.1e15 bits`.
fn parts(record: &Record) -> Option<(String, String)> {
    let soak = record.soak.as_ref()?;
    let value = |name: &str| metric(record, name).unwrap_or(0.0);
    let (errors, hits) = (value("bit_errors") as usize, value("intervals_with_errors"));
    let of = |what: &str| {
        let [hits, all] = [hits, value("intervals")].map(|count| thousands(count as u64));
        format!("{what} in {hits} of {all} intervals,")
    };
    let seen = match errors {
        0 if hits > 0.0 => of("errors that AER did not count"),
        0 => "no error".to_owned(),
        _ => of(&counted(errors, "error")),
    };
    let bound = match (soak.detector, metric(record, "bit_error_ratio_below")) {
        (Detector::Blind, _) => "no bound: the detector is blind".to_owned(),
        (_, None) => "no bound: no interval without an error was counted".to_owned(),
        (detector, Some(ratio)) => {
            format!("bit error ratio below {} with 95 % confidence (detector {})", up(ratio), detector.name())
        }
    };
    Some((bound, format!("{seen} in {} bits{}", down(value("lane_bits")), payload(record))))
}

/// The ends, each with what its figures are named by.
fn ends(soak: &Soak) -> Vec<(&LinkEnd, &'static str)> {
    soak.ends.iter().zip(["port", "device"]).collect()
}

/// What counters of the ends counted beside AER: `0000:00:01.0 counted beside AER: retry_tlp 3, sync_header_error 2 (lane 1)`.
fn beside(record: &Record, soak: &Soak) -> Vec<String> {
    let has = |word: &str| metric(record, &format!("{word}_layer2_errors")).is_some();
    let ends: Vec<_> = ends(soak).into_iter().filter(|(_, word)| has(word)).collect();
    let view = if ends.len() < soak.ends.len() { ", at one end only" } else { "" };
    let of_end = ends.iter().map(|(end, _)| {
        let own = soak.events.iter().filter(|event| event.bdf == end.bdf).map(|event| {
            let least = if event.at_least { " or more" } else { "" };
            let lane = event.lane.map(|lane| format!(" (lane {lane})")).unwrap_or_default();
            format!("{} {}{least}{lane}", event.event, thousands(event.count))
        });
        let all: Vec<String> = own.collect();
        let all = if all.is_empty() { "nothing".to_owned() } else { all.join(", ") };
        clean(&format!("{} counted beside AER{view}: {all}", end.bdf))
    });
    of_end.collect()
}

/// The bits of TLPs, where a counter gave them.
fn payload(record: &Record) -> String {
    metric(record, "tlp_payload_bits")
        .map_or_else(String::new, |bits| format!(", {} of them payload of TLPs", down(bits)))
}

/// Both in one sentence.
pub fn sentence(record: &Record) -> String {
    parts(record).map(|(bound, seen)| format!("{bound}: {seen}")).unwrap_or_default()
}

fn tone(record: &Record, soak: &Soak) -> Tone {
    let has_errors = metric(record, "intervals_with_errors") > Some(0.0);
    match soak.ended {
        SoakEnd::Reached => Tone::Good,
        SoakEnd::Blind => Tone::Bad,
        _ if metric(record, "bit_error_ratio_below").is_none() => Tone::Doubt,
        _ if has_errors => Tone::Bad,
        _ if soak.below.is_some() => Tone::Doubt,
        _ => Tone::Good,
    }
}

/// A ratio with two digits, rounded up: a bound promises no more than it may. The last digits of a double are no part of it.
fn up(ratio: f64) -> String {
    digits(ratio * (1.0 - 1e-12), f64::ceil)
}

fn down(value: f64) -> String {
    digits(value * (1.0 + 1e-12), f64::floor)
}

fn digits(value: f64, round: fn(f64) -> f64) -> String {
    if value <= 0.0 {
        return "0".to_owned();
    }
    let step = 10f64.powi(value.log10().floor() as i32 - 1);
    format!("{:.1e}", round(value / step) * step)
}

fn tiles(record: &Record, soak: &Soak) -> Vec<Fact> {
    let value = |name: &str| metric(record, name).unwrap_or(0.0);
    let bound = metric(record, "bit_error_ratio_below").map_or("none".to_owned(), |ratio| format!("< {}", up(ratio)));
    let errors = value("bit_errors");
    let of_errors = if errors > 0.0 { Tone::Bad } else { Tone::Good };
    vec![
        Fact { tone: tone(record, soak), ..Fact::plain("Bit error ratio", bound, "95 % confidence".to_owned()) },
        Fact {
            tone: of_errors,
            ..Fact::plain(
                "Errors",
                thousands(errors as u64),
                format!("in {} intervals", thousands(value("intervals") as u64)),
            )
        },
        Fact::plain("Bits", down(value("lane_bits")), format!("of all lanes, idle symbols too{}", payload(record))),
        Fact::plain(
            "Detector",
            soak.detector.name().to_owned(),
            counted(soak.ends.iter().filter(|end| end.blind_by.is_none()).count(), "end"),
        ),
    ]
}

pub(super) fn conclude(out: &mut Conclusions, number: usize, section: &Section) {
    for record in &section.records {
        let Some(soak) = &record.soak else { continue };
        let text = format!("{}: {}.", name(record), sentence(record));
        match tone(record, soak) {
            Tone::Good => out.good(number, text),
            _ => out.doubt(1, Place::Section(number), text),
        }
    }
}

#[cfg(test)]
mod tests {
    use pciescope_core::soak::CountedEvent;

    use super::*;

    #[test]
    fn what_an_end_counts_beside_aer_is_named_by_end_and_lane() {
        let bdf: Vec<pciescope_core::Bdf> = ["0000:00:01.0", "0000:01:00.0"].map(|bdf| bdf.parse().unwrap()).into();
        let event = |event: &str, lane, count, at_least| CountedEvent {
            bdf: bdf[0],
            event: event.to_owned(),
            lane,
            count,
            at_least,
        };
        let soak = Soak {
            detector: Detector::NotProven,
            proof: None,
            ends: bdf.iter().map(|bdf| LinkEnd { bdf: *bdf, blind_by: None }).collect(),
            below: None,
            ended: SoakEnd::Over,
            uncounted: Vec::new(),
            events: vec![event("retry_tlp", None, 1200, false), event("sync_header_error", Some(2), 15, true)],
        };
        let mut record = Record::default();
        assert!(beside(&record, &soak).is_empty(), "no end has counters");
        let has = |record: &mut Record, end: &str| {
            record.metrics.insert(format!("{end}_layer2_errors"), pciescope_core::Metric::count(0));
        };
        has(&mut record, "port");
        let counted = "retry_tlp 1,200, sync_header_error 15 or more (lane 2)";
        assert_eq!(beside(&record, &soak), [format!("0000:00:01.0 counted beside AER, at one end only: {counted}")]);
        has(&mut record, "device");
        let both = [
            "0000:00:01.0 counted beside AER: ".to_owned() + counted,
            "0000:01:00.0 counted beside AER: nothing".into(),
        ];
        assert_eq!(beside(&record, &soak), both);
        // No bit error by AER, and still not a soak without an error.
        record.soak = Some(Box::new(soak));
        record.metrics.insert("intervals_with_errors".to_owned(), pciescope_core::Metric::count(1));
        assert!(
            parts(&record).unwrap().1.starts_with("errors that AER did not count in 1 of "),
            "{:?}",
            parts(&record)
        );
    }

    #[test]
    fn a_bound_is_rounded_up_and_its_bits_down() {
        assert_eq!(
            (up(7.31e-16), up(7.3e-16), down(4.19e15), down(4.1e15)),
            ("7.4e-16".into(), "7.3e-16".into(), "4.1e15".into(), "4.1e15".into())
        );
        assert_eq!((up(9.99e-16), down(0.0)), ("1.0e-15".into(), "0".into()));
    }
}
