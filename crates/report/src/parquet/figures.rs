//! The table of figures: one row per histogram, metric and hot spot, as in the CSV, with types, and with all buckets of a
//! histogram as a list.

use pciescope_core::histogram::Bucket;
use pciescope_core::{Histogram, HotSpot, Metric, Record, Stream};

use super::table::Get::{Bool, Decimal, List, Number, Text, Time, Whole};
use super::table::{Column, Leaf, Rows, micros, positive, text};
use crate::model;

/// A row: a figure of a record.
#[derive(Clone, Copy)]
pub struct Row<'r> {
    /// The record's place among all, from 0.
    number: u64,
    record: &'r Record,
    figure: Figure<'r>,
}

#[derive(Clone, Copy)]
pub enum Figure<'r> {
    Histogram(&'r str, &'r Histogram),
    Metric(&'r str, &'r Metric),
    HotSpot(&'r HotSpot),
    /// A record that has an error and no figures.
    Nothing,
}

impl<'r> Row<'r> {
    fn histogram(&self) -> Option<&'r Histogram> {
        match self.figure {
            Figure::Histogram(_, histogram) => Some(histogram),
            _ => None,
        }
    }
    fn metric(&self) -> Option<&'r Metric> {
        match self.figure {
            Figure::Metric(_, metric) => Some(metric),
            _ => None,
        }
    }
    fn stream(&self) -> Option<&'r Stream> {
        self.record.stream.as_ref()
    }
    fn percentile(&self, percent: f64) -> Option<f64> {
        self.histogram()?.percentile_ns(percent)
    }
}

/// The rows of the record at `number`, in the order of the CSV.
fn rows(number: u64, record: &Record) -> Vec<Row<'_>> {
    let row = |figure| Row { number, record, figure };
    let mut rows: Vec<Row> = Vec::new();
    rows.extend(record.histograms.iter().map(|(name, histogram)| row(Figure::Histogram(name, histogram))));
    rows.extend(record.metrics.iter().map(|(name, metric)| row(Figure::Metric(name, metric))));
    rows.extend(record.hot_spots.iter().map(|spot| row(Figure::HotSpot(spot))));
    if rows.is_empty() && record.error.is_some() {
        rows.push(row(Figure::Nothing));
    }
    rows
}

/// The table.
pub struct Figures;

impl Rows for Figures {
    type Row<'r> = Row<'r>;

    fn rows(number: u64, record: &Record) -> Vec<Row<'_>> {
        rows(number, record)
    }

    fn weight(row: &Row) -> usize {
        row.histogram().map_or(0, |histogram| histogram.buckets().count())
    }

    fn columns<'r>() -> Vec<Column<Row<'r>>> {
        vec![
            ("record", Whole(64, |row: &Row| Some(row.number))),
            ("run", Text(|row: &Row| Some(row.record.run.clone()))),
            ("time", Time(|row: &Row| micros(&row.record.time))),
            ("verb", Text(|row: &Row| Some(row.record.verb.clone()))),
            ("label", Text(|row: &Row| row.record.label.clone())),
            ("test", Text(|row: &Row| Some(row.record.test.clone()))),
            ("backend", Text(|row: &Row| text(&row.record.method.as_ref()?.backend))),
            (
                "emulated",
                Bool(|row: &Row| Some(model::is_emulation(row.record.method.as_ref(), row.record.device.as_ref()))),
            ),
            ("device", Text(|row: &Row| Some(row.record.device.as_ref()?.bdf?.to_string()))),
            ("device_name", Text(|row: &Row| text(&row.record.device.as_ref()?.name))),
            ("vendor_id", Whole(16, |row: &Row| Some(row.record.device.as_ref()?.vendor.into()))),
            ("device_id", Whole(16, |row: &Row| Some(row.record.device.as_ref()?.device.into()))),
            ("driver", Text(|row: &Row| row.record.device.as_ref()?.driver.clone())),
            ("device_node", Whole(32, |row: &Row| row.record.device.as_ref()?.node.map(u64::from))),
            ("bar", Whole(8, |row: &Row| row.record.target.as_ref()?.bar.map(u64::from))),
            ("offset", Whole(64, |row: &Row| row.record.target.as_ref()?.offset)),
            ("width", Whole(8, |row: &Row| row.record.target.as_ref()?.width.map(u64::from))),
            ("vector", Whole(16, |row: &Row| row.record.target.as_ref()?.vector.map(u64::from))),
            ("irq", Whole(32, |row: &Row| row.record.target.as_ref()?.irq.map(u64::from))),
            ("hop", Whole(16, |row: &Row| row.record.target.as_ref()?.hop.map(u64::from))),
            ("hop_bdf", Text(|row: &Row| Some(row.record.target.as_ref()?.hop_bdf?.to_string()))),
            ("target", Text(|row: &Row| row.record.target.as_ref()?.name.clone())),
            ("cpu", Whole(32, |row: &Row| Some(row.record.cpu.as_ref()?.cpu.into()))),
            ("node", Whole(32, |row: &Row| row.record.cpu.as_ref()?.node.map(u64::from))),
            ("package", Whole(32, |row: &Row| row.record.cpu.as_ref()?.package.map(u64::from))),
            ("l3", Whole(32, |row: &Row| row.record.cpu.as_ref()?.l3.map(u64::from))),
            ("core", Whole(32, |row: &Row| row.record.cpu.as_ref()?.core.map(u64::from))),
            ("thread", Whole(32, |row: &Row| row.record.cpu.as_ref()?.thread.map(u64::from))),
            ("pmu", Text(|row: &Row| row.record.instance.as_ref()?.pmu.clone())),
            ("scope", Text(|row: &Row| text(&row.record.instance.as_ref()?.scope))),
            ("source", Text(|row: &Row| row.record.instance.as_ref()?.source.clone())),
            ("pmu_node", Whole(32, |row: &Row| row.record.instance.as_ref()?.node.map(u64::from))),
            ("start_ns", Whole(64, |row: &Row| Some(row.record.interval?.start_ns))),
            ("end_ns", Whole(64, |row: &Row| Some(row.record.interval?.end_ns))),
            ("path", Text(|row: &Row| text(&row.stream()?.path))),
            ("model", Text(|row: &Row| row.stream()?.model.clone())),
            ("access", Text(|row: &Row| text(&row.stream()?.access))),
            ("wait", Text(|row: &Row| row.stream()?.wait.clone())),
            ("function", Text(|row: &Row| text(&row.stream()?.function))),
            ("is_fused", Bool(|row: &Row| Some(row.stream()?.is_fused))),
            ("conversion", Text(|row: &Row| row.stream()?.conversion.clone())),
            ("samples", Whole(64, |row: &Row| positive(row.stream()?.samples))),
            ("cycle", Whole(64, |row: &Row| row.stream()?.cycle)),
            ("devices", Whole(32, |row: &Row| positive(row.stream()?.devices.into()))),
            ("sweep", Text(|row: &Row| row.stream()?.sweep.clone())),
            ("group", Whole(32, |row: &Row| Some(row.stream()?.group.into()))),
            ("piece_bytes", Whole(64, |row: &Row| row.stream()?.piece_bytes)),
            ("depth", Whole(32, |row: &Row| row.stream()?.depth.map(u64::from))),
            ("check", Text(|row: &Row| row.stream()?.check.clone())),
            ("kernel", Text(|row: &Row| text(&row.record.kernel.as_ref()?.name))),
            ("isa", Text(|row: &Row| text(&row.record.kernel.as_ref()?.isa))),
            ("store", Text(|row: &Row| text(&row.record.kernel.as_ref()?.store))),
            ("threads", Whole(32, |row: &Row| Some(row.record.kernel.as_ref()?.threads.into()))),
            ("error", Text(|row: &Row| Some(row.record.error.as_ref()?.code.clone()))),
            ("error_text", Text(|row: &Row| Some(row.record.error.as_ref()?.text.clone()))),
            ("warnings", Text(|row: &Row| warnings(row.record))),
            ("kind", Text(|row: &Row| Some(kind(row.figure).to_owned()))),
            ("name", Text(name)),
            ("unit", Text(unit)),
            ("value", Number(value)),
            ("running", Number(|row: &Row| row.metric()?.running)),
            ("at_least", Bool(|row: &Row| Some(row.metric()?.at_least))),
            ("count", Whole(64, |row: &Row| Some(row.histogram()?.count()))),
            ("min", Number(|row: &Row| row.histogram()?.min_ns())),
            ("mean", Number(|row: &Row| row.histogram()?.mean_ns())),
            ("p50", Number(|row: &Row| row.percentile(50.0))),
            ("p90", Number(|row: &Row| row.percentile(90.0))),
            ("p95", Number(|row: &Row| row.percentile(95.0))),
            ("p99", Number(|row: &Row| row.percentile(99.0))),
            ("p999", Number(|row: &Row| row.percentile(99.9))),
            ("p9999", Number(|row: &Row| row.percentile(99.99))),
            ("max", Number(|row: &Row| row.histogram()?.max_ns())),
            ("min_at_ns", Whole(64, |row: &Row| row.histogram()?.min_at_ns)),
            ("max_at_ns", Whole(64, |row: &Row| row.histogram()?.max_at_ns)),
            ("sum_ps", Decimal(|row: &Row| Some(row.histogram()?.sum_ps()))),
            (
                "buckets",
                List(vec![
                    ("low_ps", Leaf::Whole(|row: &Row| buckets(row, |bucket| bucket.low_ps))),
                    ("high_ps", Leaf::Whole(|row: &Row| buckets(row, |bucket| bucket.high_ps))),
                    ("count", Leaf::Whole(|row: &Row| buckets(row, |bucket| bucket.count))),
                ]),
            ),
        ]
    }
}

fn buckets(row: &Row, of: fn(Bucket) -> u64) -> Option<Vec<u64>> {
    Some(row.histogram()?.buckets().map(of).collect())
}

fn kind(figure: Figure) -> &'static str {
    match figure {
        Figure::Histogram(..) => "histogram",
        Figure::Metric(..) => "metric",
        Figure::HotSpot(_) => "hot spot",
        Figure::Nothing => "error",
    }
}

fn name(row: &Row) -> Option<String> {
    match row.figure {
        Figure::Histogram(name, _) | Figure::Metric(name, _) => Some(name.to_owned()),
        Figure::HotSpot(spot) => Some(format!("{} {}", spot.object, spot.symbol)),
        Figure::Nothing => None,
    }
}

fn unit(row: &Row) -> Option<String> {
    match row.figure {
        Figure::Histogram(..) => Some("ns".to_owned()),
        Figure::Metric(_, metric) => Some(metric.unit.clone()),
        Figure::HotSpot(_) => Some("%".to_owned()),
        Figure::Nothing => None,
    }
}

fn value(row: &Row) -> Option<f64> {
    match row.figure {
        Figure::Metric(_, metric) => Some(metric.value),
        Figure::HotSpot(spot) => Some(spot.percent),
        Figure::Histogram(..) | Figure::Nothing => None,
    }
}

/// The codes of a record's warnings, each once.
fn warnings(record: &Record) -> Option<String> {
    let mut codes: Vec<&str> = record.warnings.iter().map(|warning| warning.code.as_str()).collect();
    codes.sort_unstable();
    codes.dedup();
    text(&codes.join(" "))
}
