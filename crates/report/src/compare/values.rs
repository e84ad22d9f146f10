//! The values that a record has of a figure, and how sure the record says they are.

use std::collections::BTreeMap;

use pciescope_core::comparison::Comparison;
use pciescope_core::recording::Point;
use pciescope_core::{Histogram, Record, convert, outcome, readout};

use super::ALPHA;
use super::cells::Cells;
use super::dist::CORRELATION;
use super::interval::quantile;
use super::key::{CellKey, RATIO, is_compared, is_loss};
use crate::counters::is_amount;
use crate::model::{self, Kind};

/// A value of a figure at a point of time.
pub struct Value<'r> {
    /// In `unit`.
    pub value: f64,
    /// The unit of the value: sums of intervals become rates.
    pub unit: &'r str,
    /// The number of values that it stands for.
    pub count: usize,
    /// The weight of all of them together.
    pub weight: f64,
    /// When the point ended, in nanoseconds since the run's beginning.
    pub end_ns: u64,
    /// As in [`super::cells::Run`], as is `error`.
    pub exposure: f64,
    /// Relative standard error of the value.
    pub error: f64,
}

impl<'r> Value<'r> {
    /// Of a counter beside a workload only the ratio is compared: the moved bytes, and with them the count, differ from run
    /// to run.
    pub fn of_ratio(record: &Record) -> Option<Self> {
        let known = Comparison::from_record(record).filter(|_| model::kind(&record.test) == Kind::Verify)?;
        let value = known.counter_bytes() / known.workload_bytes;
        // The allowed error is taken as an interval of 95 %.
        let error = known.allowed_percent().unwrap_or(0.0) / 100.0 / 1.96;
        Some(Value { value, unit: "1", count: 1, weight: 1.0, end_ns: 0, exposure: 0.0, error })
    }

    /// The value of a metric at a point.
    fn at(record: &'r Record, name: &str, unit: &'r str, value: f64, point: &Point) -> Self {
        // Intervals may differ in length: sums become rates, and a longer interval counts for more.
        let is_timed = is_counted(&record.test) && point.seconds > 0.0 && !is_loss(name);
        let rate = rate_of(unit).filter(|_| is_timed && is_amount(name, unit) && name != "interval_end_ns");
        let together = point.count as f64 * if is_timed { point.seconds } else { 1.0 };
        let exposure = match record.metrics.get("triggers") {
            _ if is_timed || point.count > 1 => together,
            Some(triggers) => triggers.value,
            None => measured(record).map(|(_, histogram)| histogram.count()).max().unwrap_or(0) as f64,
        };
        Value {
            value: if rate.is_some() { value / point.seconds } else { value },
            unit: rate.unwrap_or(unit),
            count: point.count,
            weight: together,
            end_ns: point.end_ns,
            exposure: if exposure.is_finite() && exposure > 0.0 { exposure } else { 1.0 },
            error: own_error(record, name),
        }
    }

    /// The values of a metric at all points where one is known; none of a metric that is not compared.
    pub fn all_of(record: &'r Record, name: &'r str) -> Vec<Self> {
        if model::kind(&record.test) == Kind::Verify {
            return Value::of_ratio(record).filter(|_| name == RATIO).into_iter().collect();
        }
        if record.total(name).is_none() || !is_compared(record, name) {
            return Vec::new();
        }
        let unit = record.totals().find(|total| total.0 == name).map_or("", |total| total.1);
        let points = record.points();
        let points = points.iter().enumerate();
        points
            .filter_map(|(at, point)| Some(Value::at(record, name, unit, record.value_at(name, at)?, point)))
            .collect()
    }
}

/// Whether a test counts over a time.
fn is_counted(test: &str) -> bool {
    model::kind(test) == Kind::Counters || test == "perf-stat"
}

/// The unit of a sum divided by its time.
fn rate_of(unit: &str) -> Option<&'static str> {
    Some(match unit {
        "1" => "1/s",
        "bytes" => "bytes/s",
        "cycles" => "cycles/s",
        "ns" => "ns/s",
        "Joules" => "Joules/s",
        _ => return None,
    })
}

/// How much of a rate's unit one event is, where a figure is a rate of events: 1 of counts, and of bytes the largest
/// payload of a packet.
pub fn grain(key: &CellKey, unit: &str) -> Option<f64> {
    match unit {
        "1/s" if is_counted(&key.test) => Some(1.0),
        "bytes/s" if is_counted(&key.test) => Some(4096.0),
        _ => None,
    }
}

/// The histograms of a record but those that say something about the way of measuring.
fn measured(record: &Record) -> impl Iterator<Item = (&str, &Histogram)> {
    let all = record.histograms.iter().map(|(name, histogram)| (name.as_str(), histogram));
    all.filter(|(name, _)| *name != outcome::CALIBRATION && *name != "ceiling")
}

/// The histograms of a record that are compared.
pub fn histograms(record: &Record) -> impl Iterator<Item = (&str, &Histogram)> {
    let is_ratio = model::kind(&record.test) == Kind::Verify;
    measured(record).filter(move |(_, histogram)| !is_ratio && !histogram.is_empty())
}

/// A metric that is above `least`, or is it.
fn metric(record: &Record, name: &str, least: f64) -> Option<f64> {
    record.metrics.get(name).map(|metric| metric.value).filter(|value| value.is_finite() && *value >= least)
}

/// The design effect that a record states, and its degrees of freedom.
pub fn stated_effect(record: &Record) -> Option<(f64, f64)> {
    let (effect, batches) =
        (metric(record, outcome::DESIGN_EFFECT, 0.0)?, metric(record, outcome::DESIGN_BATCHES, 0.0)?);
    (batches >= 3.0).then_some((effect, batches - 1.0))
}

/// The relative standard error of a figure by the medians of its rounds: from their range, as control charts do.
pub fn error_of_rounds(record: &Record) -> Option<f64> {
    /// Expected range of so many normal values in standard deviations, from 2 on.
    const RANGE: [f64; 9] = [1.128, 1.693, 2.059, 2.326, 2.534, 2.704, 2.847, 2.970, 3.078];
    let of = |name| metric(record, name, f64::MIN_POSITIVE);
    let (rounds, middle) = (of("rounds")?, of("round_median_ns")?);
    let range = of("round_median_max_ns")? - of("round_median_min_ns")?;
    let expected = *RANGE.get((rounds as usize).checked_sub(2)?.min(RANGE.len() - 1))?;
    Some((range / expected / rounds.sqrt() / middle).max(0.0))
}

/// The relative standard error of a figure that is itself a mean of repeats or a median of passes; 0 if its record does
/// not say it.
fn own_error(record: &Record, name: &str) -> f64 {
    // The distance of the quartiles is 1.349 standard deviations, and a median's error 1.253 of a mean's.
    let (spread, count, factor) = match (&*record.test, name) {
        (readout::TEST, "speed" | "duration" | "active_speed") => ("cv", "repeats", 1.0),
        (convert::TEST, "rate" | "samples_per_s" | "of_ceiling" | "duration") => ("spread", "passes", 1.253 / 1.349),
        _ => return 0.0,
    };
    let of = |name| metric(record, name, f64::MIN_POSITIVE);
    of(spread)
        .zip(of(count))
        .map_or(0.0, |(spread, count)| spread * factor / 100.0 * (CORRELATION / count).sqrt().min(1.0))
}

/// Sets how many samples of each cell count as one. A few rounds of one CPU estimate their effect badly, and those of all
/// CPUs of a run well: the mean of all counts, larger by what so many rounds can be wrong (an interval from it is to be as
/// wide as Student's), and a CPU's own where that is larger still.
pub fn set_effects(cells: &mut Cells) {
    let mut sums: BTreeMap<(&str, CellKey), (f64, f64)> = BTreeMap::new();
    for (key, cell) in cells.iter() {
        for run in &cell.runs {
            for (effect, freedom) in run.samples.iter().filter_map(|samples| samples.stated) {
                let sum = sums.entry((run.name, key.merged())).or_default();
                *sum = (sum.0 + effect * freedom, sum.1 + freedom);
            }
        }
    }
    if sums.is_empty() {
        return;
    }
    let student = |freedom: f64| quantile(ALPHA, freedom);
    for (key, cell) in cells {
        let group = key.merged();
        for run in &mut cell.runs {
            let Some((sum, freedom)) = sums.get(&(run.name, group.clone())) else { continue };
            let mean = sum / freedom * (student(*freedom) / student(f64::INFINITY)).powi(2);
            for samples in &mut run.samples {
                let stated = samples.stated.map_or(0.0, |(effect, _)| effect);
                samples.effect = CORRELATION.max(mean).max(stated);
            }
        }
    }
}
