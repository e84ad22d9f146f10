//! The intervals of one counting instance, folded into columns while a file is read: a recording of days then needs the
//! memory of its counters and not of its length.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::{Metric, Record};

/// The most points of a figure's course that are kept. In a longer recording a point is the mean of 2, 4, 8 or more
/// intervals.
pub const MOST_POINTS: usize = 4096;

/// All intervals of one counting instance in a run. Sums, means and extremes are those of all intervals.
#[derive(Debug, Clone)]
pub struct Recording {
    count: usize,
    seconds: f64,
    span_ns: (u64, u64),
    times: [String; 2],
    last: BTreeMap<String, Metric>,
    per_point: usize,
    points: Vec<Point>,
    columns: BTreeMap<String, Column>,
}

/// An interval, or the mean of several neighbours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Its end, in nanoseconds since the run's beginning.
    pub end_ns: u64,
    /// Its length in seconds; of several intervals the mean.
    pub seconds: f64,
    /// Number of intervals.
    pub count: usize,
}

/// One figure over all intervals.
#[derive(Debug, Clone)]
struct Column {
    unit: String,
    total: Total,
    /// A value for each point, NaN where none is known; the last ones may be missing.
    values: Vec<f64>,
    /// Number of values that the last one is the mean of.
    known: usize,
}

/// One figure over one or more intervals.
#[derive(Debug, Clone, Copy)]
pub struct Total {
    /// Values, and those among them that are not finite, are scaled, or are only known from below.
    pub count: usize,
    /// Values that are not finite.
    pub not_finite: usize,
    /// Values that are scaled to the whole time.
    pub scaled: usize,
    /// Values that are lower bounds.
    pub bounds: usize,
    /// The sum of the finite values.
    pub finite: f64,
    /// The smallest and the largest finite value; NaN without any.
    pub range: (f64, f64),
    /// The finite values times their seconds, and these seconds.
    pub weighted: (f64, f64),
    /// The seconds of all values, and those in which their counters ran.
    pub seconds: (f64, f64),
    /// The least share of the time in which the counter ran, of the scaled values.
    pub least: Option<f64>,
}

impl Default for Total {
    fn default() -> Self {
        Total {
            count: 0,
            not_finite: 0,
            scaled: 0,
            bounds: 0,
            finite: 0.0,
            range: (f64::NAN, f64::NAN),
            weighted: (0.0, 0.0),
            seconds: (0.0, 0.0),
            least: None,
        }
    }
}

impl Total {
    /// A figure of one interval.
    pub fn of(metric: &Metric, seconds: f64) -> Self {
        let (value, is_finite) = (metric.value, metric.value.is_finite());
        Total {
            count: 1,
            not_finite: usize::from(!is_finite),
            scaled: usize::from(metric.running.is_some()),
            bounds: usize::from(metric.at_least),
            finite: if is_finite { value } else { 0.0 },
            range: if is_finite { (value, value) } else { (f64::NAN, f64::NAN) },
            weighted: if is_finite { (value * seconds, seconds) } else { (0.0, 0.0) },
            seconds: (seconds, metric.running.unwrap_or(1.0) * seconds),
            least: metric.running,
        }
    }

    /// Adds the same figure over other intervals.
    pub fn add(&mut self, other: &Total) {
        self.count += other.count;
        self.not_finite += other.not_finite;
        self.scaled += other.scaled;
        self.bounds += other.bounds;
        self.finite += other.finite;
        self.range = (self.range.0.min(other.range.0), self.range.1.max(other.range.1));
        self.weighted = (self.weighted.0 + other.weighted.0, self.weighted.1 + other.weighted.1);
        self.seconds = (self.seconds.0 + other.seconds.0, self.seconds.1 + other.seconds.1);
        self.least = self.least.into_iter().chain(other.least).reduce(f64::min);
    }

    /// The number of finite values.
    pub fn known(&self) -> usize {
        self.count - self.not_finite
    }

    /// The sum of all values; NaN if one is not finite.
    pub fn sum(&self) -> f64 {
        if self.not_finite > 0 { f64::NAN } else { self.finite }
    }

    /// The largest finite value.
    pub fn most(&self) -> Option<f64> {
        (self.known() > 0).then_some(self.range.1)
    }

    /// The figure as one: amounts (`is_amount`) added up, anything else as the mean over the time. The mean of equal values
    /// is exactly that value.
    pub fn metric(&self, unit: &str, is_amount: bool) -> Metric {
        let value = match self.weighted {
            _ if self.not_finite > 0 => f64::NAN,
            _ if is_amount => self.finite,
            (sum, seconds) if self.range.0 < self.range.1 && seconds > 0.0 => sum / seconds,
            _ => self.range.0,
        };
        let running = match self.seconds {
            _ if self.scaled == 0 => None,
            (seconds, ran) if self.count > 1 && seconds > 0.0 => Some(ran / seconds),
            _ => self.least,
        };
        Metric { value, unit: unit.to_owned(), running, at_least: self.bounds > 0 }
    }
}

impl Recording {
    fn of(first: &Record) -> Self {
        let mut recording = Recording {
            count: 0,
            seconds: 0.0,
            span_ns: (u64::MAX, 0),
            times: [first.time.clone(), first.time.clone()],
            last: BTreeMap::new(),
            per_point: 1,
            points: Vec::new(),
            columns: BTreeMap::new(),
        };
        recording.take(first);
        recording
    }

    fn take(&mut self, next: &Record) {
        let interval = next.interval.unwrap_or_default();
        let seconds = interval.seconds();
        self.put(Point { end_ns: interval.end_ns, seconds, count: 1 });
        self.span_ns = (self.span_ns.0.min(interval.start_ns), self.span_ns.1.max(interval.end_ns));
        self.seconds += seconds;
        self.count += 1;
        let place = self.points.len() - 1;
        for (name, metric) in &next.metrics {
            if let Some(column) = self.columns.get_mut(name) {
                column.add(metric, seconds, place);
                continue;
            }
            let mut column =
                Column { unit: metric.unit.clone(), total: Total::default(), values: Vec::new(), known: 0 };
            column.add(metric, seconds, place);
            self.columns.insert(name.clone(), column);
        }
    }

    /// Adds an interval to the course.
    fn put(&mut self, point: Point) {
        if let Some(last) = self.points.last_mut().filter(|last| last.count < self.per_point) {
            let count = last.count + 1;
            let seconds = last.seconds + (point.seconds - last.seconds) / count as f64;
            *last = Point { seconds, count, ..point };
            return;
        }
        if self.points.len() == MOST_POINTS {
            let mean = |pair: &[Point]| Point {
                seconds: (pair[0].seconds + pair[1].seconds) / 2.0,
                count: pair[0].count + pair[1].count,
                ..pair[1]
            };
            self.points = self.points.chunks_exact(2).map(mean).collect();
            self.columns.values_mut().for_each(Column::halve);
            self.per_point *= 2;
        }
        self.points.push(point);
    }
}

impl Column {
    fn add(&mut self, metric: &Metric, seconds: f64, place: usize) {
        self.total.add(&Total::of(metric, seconds));
        if self.values.len() <= place {
            self.values.resize(place + 1, f64::NAN);
            self.known = 0;
        }
        if metric.value.is_finite() {
            self.known += 1;
            let last = &mut self.values[place];
            *last = if self.known == 1 { metric.value } else { *last + (metric.value - *last) / self.known as f64 };
        }
    }

    /// Makes one value of each two neighbours.
    fn halve(&mut self) {
        self.values.resize(MOST_POINTS, f64::NAN);
        let mean = |pair: &[f64]| match (pair[0].is_nan(), pair[1].is_nan()) {
            (true, _) => pair[1],
            (false, true) => pair[0],
            (false, false) => pair[0] / 2.0 + pair[1] / 2.0,
        };
        self.values = self.values.chunks_exact(2).map(mean).collect();
    }
}

/// What readers ask of a record, whether it is one interval or a whole [`Recording`].
impl Record {
    /// Adds a later interval of the same counting instance.
    pub fn fold(&mut self, next: Record) {
        let mut recording = self.recording.take().unwrap_or_else(|| Box::new(Recording::of(self)));
        recording.take(&next);
        let [first, last] = &mut recording.times;
        if next.time < *first {
            *first = next.time;
        } else if next.time > *last {
            *last = next.time;
        }
        recording.last = next.metrics;
        self.recording = Some(recording);
    }

    /// The number of records that it stands for.
    pub fn count(&self) -> usize {
        self.recording.as_ref().map_or(1, |recording| recording.count)
    }

    /// When the first and the last of its records were completed.
    pub fn times(&self) -> [&str; 2] {
        match &self.recording {
            Some(recording) => recording.times.each_ref().map(String::as_str),
            None => [&self.time, &self.time],
        }
    }

    /// The length of its intervals together.
    pub fn seconds(&self) -> f64 {
        match &self.recording {
            Some(recording) => recording.seconds,
            None => self.interval.map_or(0.0, |interval| interval.seconds()),
        }
    }

    /// The beginning of the first and the end of the last interval, in nanoseconds since the run's beginning.
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        match &self.recording {
            Some(recording) => Some(recording.span_ns),
            None => self.interval.map(|interval| (interval.start_ns, interval.end_ns)),
        }
    }

    /// Each figure over all intervals: name, unit, total; ascending by name.
    pub fn totals(&self) -> impl Iterator<Item = (&str, &str, Total)> {
        let seconds = self.interval.map_or(0.0, |interval| interval.seconds());
        let own = self.metrics.iter().filter(|_| self.recording.is_none());
        let own = own.map(move |(name, metric)| (name.as_str(), metric.unit.as_str(), Total::of(metric, seconds)));
        let columns = self.recording.iter().flat_map(|recording| &recording.columns);
        own.chain(columns.map(|(name, column)| (name.as_str(), column.unit.as_str(), column.total)))
    }

    /// The figure of this name over all intervals.
    pub fn total(&self, name: &str) -> Option<Total> {
        match &self.recording {
            Some(recording) => Some(recording.columns.get(name)?.total),
            None => Some(Total::of(self.metrics.get(name)?, self.seconds())),
        }
    }

    /// The figures of the last interval.
    pub fn last_metrics(&self) -> &BTreeMap<String, Metric> {
        self.recording.as_ref().map_or(&self.metrics, |recording| &recording.last)
    }

    /// Each interval, or several as one.
    pub fn points(&self) -> Cow<'_, [Point]> {
        match &self.recording {
            Some(recording) => Cow::Borrowed(&recording.points),
            None => {
                let interval = self.interval.unwrap_or_default();
                Cow::Owned(vec![Point { end_ns: interval.end_ns, seconds: interval.seconds(), count: 1 }])
            }
        }
    }

    /// The number of intervals that a point stands for.
    pub fn per_point(&self) -> usize {
        self.recording.as_ref().map_or(1, |recording| recording.per_point)
    }

    /// The value of a figure at a point, where one is known.
    pub fn value_at(&self, name: &str, point: usize) -> Option<f64> {
        let value = match &self.recording {
            Some(recording) => *recording.columns.get(name)?.values.get(point)?,
            None => self.metrics.get(name)?.value,
        };
        Some(value).filter(|value| value.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interval;

    /// An interval of a second with its number as the figure; none in every seventh.
    fn interval(number: usize) -> Record {
        let start_ns = number as u64 * 1_000_000_000;
        let metric = |unit: &str| Metric::of(if number % 7 == 3 { f64::NAN } else { number as f64 }, unit);
        Record {
            time: format!("2026-01-01T{:05}", number),
            interval: Some(Interval { start_ns, end_ns: start_ns + 1_000_000_000 }),
            metrics: [("bytes".to_owned(), metric("bytes"))].into(),
            ..Record::default()
        }
    }

    fn folded(count: usize) -> Record {
        let mut first = interval(0);
        (1..count).for_each(|number| first.fold(interval(number)));
        first
    }

    #[test]
    fn nothing_is_lost_of_few_intervals() {
        let (all, each) = (folded(100), (0..100).map(interval).collect::<Vec<_>>());
        assert_eq!((all.count(), all.seconds(), all.span_ns()), (100, 100.0, Some((0, 100_000_000_000))));
        assert_eq!(all.times(), ["2026-01-01T00000", "2026-01-01T00099"]);
        let mut total = Total::default();
        for (place, one) in each.iter().enumerate() {
            total.add(&one.total("bytes").unwrap());
            assert_eq!(all.points()[place], one.points()[0]);
            assert_eq!(all.value_at("bytes", place), one.value_at("bytes", 0), "{place}");
        }
        assert_eq!(format!("{:?}", all.total("bytes").unwrap()), format!("{total:?}"));
        assert_eq!((total.not_finite, total.most(), total.sum().is_nan()), (14, Some(99.0), true));
        assert_eq!(all.last_metrics()["bytes"].value, 99.0);
    }

    #[test]
    fn many_intervals_become_means_of_neighbours() {
        let all = folded(3 * MOST_POINTS);
        assert_eq!((all.per_point(), all.count()), (4, 3 * MOST_POINTS));
        let points = all.points();
        assert_eq!(points.len(), 3 * MOST_POINTS / 4);
        assert!(points.iter().all(|point| point.count == 4 && point.seconds == 1.0));
        // 8, 9, 11: 10 has no figure.
        let value = all.value_at("bytes", 2).unwrap();
        assert!((value - 9.5).abs() <= 0.5, "{value}");
        assert_eq!(all.total("bytes").unwrap().most(), Some((3 * MOST_POINTS - 1) as f64));
    }

    #[test]
    fn amounts_are_sums_and_anything_else_means_over_time() {
        let mut total = Total::of(&Metric::of(1.0, "bytes/s"), 1.0);
        total.add(&Total::of(&Metric { running: Some(0.5), at_least: true, ..Metric::of(4.0, "bytes/s") }, 2.0));
        let (sum, mean) = (total.metric("bytes", true), total.metric("bytes/s", false));
        assert_eq!((sum.value, mean.value, mean.at_least), (5.0, 3.0, true));
        assert!((mean.running.unwrap() - 2.0 / 3.0).abs() < 1e-12);
        // A tenth of a second has no exact number.
        let mut equal = Total::of(&Metric::of(0.7, "%"), 0.1);
        equal.add(&Total::of(&Metric::of(0.7, "%"), 0.3));
        assert_eq!(equal.metric("%", false).value, 0.7);
    }
}
