//! The rows of runs, which all of their records make together.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use pciescope_core::{Ended, Record};

use super::{Item, Row, origin};

/// What the records of a run add up to.
#[derive(Debug, Default)]
pub struct Totals {
    /// Run, verb, label, environment and plan: of the first record that has them.
    head: Record,
    pub(super) first_time: String,
    pub(super) last_time: String,
    pub(super) records: u64,
    pub(super) last_record: u64,
    pub(super) errors: u64,
    /// Of each record a number, by what it is of and how many such ones the run had before: copies of a run have the same.
    pub(super) record_ids: Vec<u64>,
    seen: HashMap<u64, u64>,
    file: Arc<str>,
    pub(super) origins: BTreeSet<&'static str>,
    /// By the checks of `doctor` that looked (`None`: a record of another verb), the devices that they looked at; the
    /// machine is an empty text.
    pub(super) checked: BTreeMap<Option<Vec<String>>, BTreeSet<String>>,
}

/// The runs of each file, in the order of their first records.
#[derive(Debug, Default)]
pub struct Gathered {
    all: Vec<Totals>,
    numbers: HashMap<(Arc<str>, String), usize>,
}

impl Gathered {
    /// Takes a record of a file, which has this number among all: only what is of its run is kept.
    pub fn put(&mut self, number: u64, record: &Record, file: &Arc<str>) {
        let place = *self.numbers.entry((Arc::clone(file), record.run.clone())).or_insert_with(|| {
            let (run, verb, file) = (record.run.clone(), record.verb.clone(), Arc::clone(file));
            self.all.push(Totals { head: Record { run, verb, ..Record::default() }, file, ..Totals::default() });
            self.all.len() - 1
        });
        let run = &mut self.all[place];
        run.records += 1;
        run.last_record = number;
        run.errors += u64::from(record.error.is_some());
        let id = id(record, 0);
        let before = run.seen.entry(id).or_default();
        run.record_ids.push(if *before == 0 { id } else { self::id(record, *before) });
        *before += 1;
        // A run may have its label in some of its records only; the plan of a readout's group is not the run's.
        run.head.label = run.head.label.take().or_else(|| record.label.clone());
        run.head.environment = run.head.environment.take().or_else(|| record.environment.clone());
        run.head.plan = run.head.plan.take().or_else(|| record.plan.clone());
        run.origins.extend(origin(record));
        let device = record.device.as_ref().and_then(|device| device.bdf).map(|bdf| bdf.to_string());
        let looked = |ended: Ended| matches!(ended, Ended::Fine | Ended::Found);
        let mut checks: Vec<String> =
            record.checks.iter().filter(|each| looked(each.ended)).map(|each| each.check.clone()).collect();
        checks.sort_unstable();
        let checks = (record.test == "doctor").then_some(checks);
        if checks.as_ref().is_none_or(|checks| !checks.is_empty()) {
            run.checked.entry(checks).or_default().insert(device.unwrap_or_default());
        }
        if let Some(time) = micros(&record.time) {
            let is_new = |known: &str, is_beyond: fn(&i64, &i64) -> bool| {
                micros(known).is_none_or(|known| is_beyond(&time, &known))
            };
            if is_new(&run.first_time, i64::lt) {
                run.first_time.clone_from(&record.time);
            }
            if is_new(&run.last_time, i64::gt) {
                run.last_time.clone_from(&record.time);
            }
        }
    }

    /// Their rows.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let row = |(number, totals)| (number as u64, totals);
        let rows = self.all.iter().enumerate().map(row);
        rows.map(|(number, totals): (u64, &Totals)| {
            let (record, file) = (&totals.head, &*totals.file);
            Row { number, record, file, item: Item::Totals(totals) }
        })
        .collect()
    }
}

/// FNV-1a of what a record is of: the same in each copy, by each version of the program.
fn id(record: &Record, before: u64) -> u64 {
    let (device, cpu) = (record.device.as_ref().and_then(|device| device.bdf), record.cpu.as_ref().map(|cpu| cpu.cpu));
    let group = record.stream.as_ref().map(|stream| stream.group);
    let of = (before, &record.time, &record.test, device, cpu, &record.target, group);
    let text = serde_json::to_vec(&of).unwrap_or_default();
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// `2026-11-21T09:00:00.125Z` as microseconds since 1970, also with `+01:00` in place of `Z`; `None` for anything else.
pub fn micros(time: &str) -> Option<i64> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = time.get(from..to).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
        digits.parse().ok()
    };
    let is_at = |at: usize, sign: u8| time.as_bytes().get(at) == Some(&sign);
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    let rest = time.get(19..).filter(|_| marks.iter().all(|(at, sign)| is_at(*at, *sign)))?;
    let (rest, zone_min) = match (rest.strip_suffix('Z'), time.len().checked_sub(6)) {
        (Some(rest), _) => (rest, 0),
        (None, Some(at @ 19..)) if is_at(at + 3, b':') => {
            let minutes = number(at + 1, at + 3)? * 60 + number(at + 4, at + 6)?;
            let sign = if is_at(at, b'+') { 1 } else { -i64::from(is_at(at, b'-')) };
            (time.get(19..at).filter(|_| sign != 0 && minutes < 24 * 60)?, sign * minutes)
        }
        _ => return None,
    };
    let fraction = match rest.strip_prefix('.') {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
            format!("{:0<6}", digits).get(..6)?.parse::<i64>().ok()?
        }
        None if rest.is_empty() => 0,
        _ => return None,
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days from 1970 of the Gregorian calendar, years beginning in March so that the leap day is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day
            - 719_469;
    Some(((days * 24 + hour) * 60 + minute - zone_min) * 60_000_000 + second * 1_000_000 + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_microseconds_since_1970() {
        for (time, want) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-11-21T09:00:00.125Z", Some(1_795_251_600_125_000)),
            ("2024-02-29T23:59:59.999999999Z", Some(1_709_251_199_999_999)),
            ("2000-03-01T00:00:00Z", Some(951_868_800_000_000)),
            ("1969-12-31T23:59:59Z", Some(-1_000_000)),
            ("2026-11-21T10:00:00.125+01:00", Some(1_795_251_600_125_000)),
            ("1969-12-31T23:29:59-00:30", Some(-1_000_000)),
            ("2026-11-21T10:00:00+24:00", None),
            ("2026-11-21T10:00:00 01:00", None),
            ("2026-13-21T09:00:00Z", None),
            ("2026-11-21 09:00:00Z", None),
            ("", None),
            ("9999999999999999999Z", None),
            ("2026-11-21T09:00:00.\u{e9}Z", None),
        ] {
            assert_eq!(micros(time), want, "{time}");
        }
    }
}
