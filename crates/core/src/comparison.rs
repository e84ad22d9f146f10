//! A counter's figure beside that of a workload whose traffic is known.

use std::collections::BTreeMap;

use crate::{Metric, Record, Target};

/// The `test` field of the record of a [`Comparison`].
pub const TEST: &str = "verify";

/// What a workload moved by its own report, and what a counter counted of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Comparison {
    /// The workload and the direction: `fio read`, `bw_mem fwr`.
    pub workload: String,
    /// The counter, as `perf` writes it, or what its counts were summed over.
    pub counter: String,
    /// What the workload moved, in bytes, as exactly as it says it.
    pub workload_bytes: f64,
    /// What the workload prints, in bytes, where it rounds: fio's `8192MiB (8590MB)` are 8590e6. Where it prints a
    /// rate, as bw_mem does, that of a second.
    pub printed_bytes: Option<f64>,
    /// What the counter says, scaled to the whole time where it ran for a part of it.
    pub count: f64,
    /// Whether the workload prints a rate and no amount.
    pub prints_rate: bool,
    /// Bytes per count.
    pub bytes_per_count: f64,
    /// The counter saw one of so many equal parts: 8 for one sub-channel of a die of 8, else 1.
    pub parts: f64,
    /// How long the workload ran, in seconds; 0 where it is not known.
    pub workload_s: f64,
    /// How long the counter was on, in seconds; 0 where it is not known.
    pub counter_s: f64,
    /// The share of its time in which the counter ran, above 0 to 1; 1 is exact.
    pub running: f64,
    /// By how much both figures may be off because of the digits they are printed with, in percent of the workload's
    /// figure; `None` where three decimals do not show it.
    pub rounding_percent: Option<f64>,
    /// The error that a share below 1 explains, in percent of the workload's figure.
    pub bound_percent: Option<f64>,
    /// The error up to which the counter counts as right, in percent of the workload's figure.
    pub tolerance_percent: Option<f64>,
}

impl Comparison {
    /// What the counter says, in bytes.
    pub fn counter_bytes(&self) -> f64 {
        self.count * self.bytes_per_count * self.parts
    }

    /// By how much the counter says more (less, where negative) than the workload, in percent of the workload's
    /// figure. `None` where the workload moved nothing.
    pub fn error_percent(&self) -> Option<f64> {
        let is_known = self.workload_bytes > 0.0 && self.counter_bytes().is_finite();
        is_known.then(|| (self.counter_bytes() - self.workload_bytes) / self.workload_bytes * 100.0)
    }

    /// Whether the counter ran for a part of the time only and was scaled.
    pub fn is_scaled(&self) -> bool {
        self.running < 0.999_999
    }

    /// The error up to which the counter counts as right: the tolerance, or the bound of a scaled figure where that
    /// is wider. `None` where nothing was said.
    pub fn allowed_percent(&self) -> Option<f64> {
        let bound = self.bound_percent.filter(|_| self.is_scaled());
        crate::joined(self.tolerance_percent, bound, f64::max)
    }

    /// Whether the error lies in what is allowed; `None` where no limit was given. Without a workload there is no
    /// agreement.
    pub fn is_right(&self) -> Option<bool> {
        let allowed = self.allowed_percent()?;
        Some(self.error_percent().is_some_and(|error| error.abs() <= allowed))
    }

    /// The record of this comparison, without run, time, verb and device.
    pub fn to_record(&self) -> Record {
        let mut metrics = BTreeMap::new();
        let mut put = |name: &str, value: Option<f64>, unit: &str| {
            if let Some(value) = value.filter(|value| value.is_finite()) {
                metrics.insert(name.to_owned(), Metric::of(value, unit));
            }
        };
        let known = |seconds: f64| (seconds > 0.0).then_some(seconds * 1e9);
        put("workload_bytes", Some(self.workload_bytes), "bytes");
        put("workload_printed_bytes", self.printed_bytes, "bytes");
        put("counter_bytes", Some(self.counter_bytes()), "bytes");
        put("count", Some(self.count), "1");
        put("bytes_per_count", Some(self.bytes_per_count), "bytes");
        put("parts", Some(self.parts), "1");
        put("prints_rate", self.prints_rate.then_some(1.0), "1");
        put("workload_ns", known(self.workload_s), "ns");
        put("counter_ns", known(self.counter_s), "ns");
        put("error", self.error_percent(), "%");
        put("running", Some(self.running * 100.0), "%");
        put("rounding", self.rounding_percent, "%");
        put("error_bound", self.bound_percent, "%");
        put("tolerance", self.tolerance_percent, "%");
        let name = format!("{}: {}", self.workload, self.counter);
        let target = Some(Target { name: Some(name), ..Target::default() });
        Record { test: TEST.to_owned(), target, metrics, ..Record::default() }
    }

    /// The comparison that a record holds; `None` if it holds none.
    pub fn from_record(record: &Record) -> Option<Self> {
        if record.test != TEST {
            return None;
        }
        let metric = |name: &str| record.metrics.get(name).map(|metric| metric.value);
        let (workload, counter) = record.target.as_ref()?.name.as_deref()?.split_once(": ")?;
        Some(Comparison {
            workload: workload.to_owned(),
            counter: counter.to_owned(),
            workload_bytes: metric("workload_bytes")?,
            printed_bytes: metric("workload_printed_bytes"),
            count: metric("count")?,
            prints_rate: metric("prints_rate").is_some(),
            bytes_per_count: metric("bytes_per_count")?,
            parts: metric("parts").unwrap_or(1.0),
            workload_s: metric("workload_ns").unwrap_or(0.0) / 1e9,
            counter_s: metric("counter_ns").unwrap_or(0.0) / 1e9,
            running: metric("running")? / 100.0,
            rounding_percent: metric("rounding"),
            bound_percent: metric("error_bound"),
            tolerance_percent: metric("tolerance"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison() -> Comparison {
        Comparison {
            workload: "fio read".to_owned(),
            counter: "pcie_bdf_200/Rx_PCIe_TLP_Data_Payload/".to_owned(),
            workload_bytes: 1000.0,
            printed_bytes: Some(1010.0),
            count: 31.09375,
            prints_rate: true,
            bytes_per_count: 16.0,
            parts: 2.0,
            workload_s: 2.0,
            counter_s: 2.5,
            running: 0.5,
            rounding_percent: Some(0.125),
            bound_percent: Some(0.75),
            tolerance_percent: Some(0.25),
        }
    }

    #[test]
    fn the_error_is_signed_and_relative_to_the_workload() {
        assert_eq!(comparison().error_percent(), Some(-0.5));
        assert_eq!(Comparison { workload_bytes: 0.0, ..comparison() }.error_percent(), None);
    }

    #[test]
    fn only_a_scaled_figure_may_use_its_bound() {
        assert_eq!(comparison().is_right(), Some(true));
        assert_eq!(Comparison { running: 1.0, ..comparison() }.is_right(), Some(false));
        assert_eq!(Comparison { bound_percent: None, ..comparison() }.is_right(), Some(false));
        assert_eq!(Comparison { bound_percent: None, tolerance_percent: None, ..comparison() }.is_right(), None);
        assert_eq!(Comparison { workload_bytes: 0.0, ..comparison() }.is_right(), Some(false));
    }

    #[test]
    fn a_record_holds_all_of_it() {
        let record = comparison().to_record();
        assert_eq!(Comparison::from_record(&record), Some(comparison()));
        assert_eq!(Comparison::from_record(&Record { test: "mmio-read".to_owned(), ..record }), None);
    }
}
