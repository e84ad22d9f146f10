//! The intervals of one counting instance, joined while they are read. Sums, means and extremes are those of all
//! intervals. For charts at most [`MOST_POINTS`] points are kept.

use std::rc::Rc;

use pciescope_catalogue::is_mean;
use pciescope_core::Metric;

use super::{Figure, Figures, Kept, Marks};

/// So many points are kept of a figure's course. Of more intervals a point is the mean of 2, 4, 8 and so on.
pub const MOST_POINTS: usize = 4096;

/// The intervals of one instance.
#[derive(Debug, Clone)]
pub struct Series {
    count: usize,
    seconds: f64,
    span: (u64, u64),
    times: [Rc<str>; 2],
    last: (Figures, u64),
    marks: Marks,
    /// Intervals of a point, and those of the last point.
    per: usize,
    filled: usize,
    points: Vec<Point>,
    /// Ascending by name.
    figures: Vec<(Box<str>, Joined)>,
}

/// An interval, or several.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// Its end, in nanoseconds since the run's beginning.
    pub end_ns: u64,
    /// Its length in seconds; of several intervals the mean.
    pub length: f64,
    /// The place of its (last) record among all.
    pub at: u64,
}

/// One figure of all intervals.
#[derive(Debug, Clone)]
pub struct Joined {
    /// Amounts added up, anything else as the mean over the time in which it was there.
    pub metric: Metric,
    /// That time, in seconds.
    pub seconds: f64,
    /// The sum of all values, and of those that are finite.
    pub sum: f64,
    pub finite: (f64, usize),
    /// Values that are not finite.
    pub not_finite: usize,
    /// The smallest and the largest value.
    pub range: (f64, f64),
    /// The largest finite value and the record that has it: of equal ones the last.
    pub most: Option<(f64, u64)>,
    /// Finite values times the seconds of their intervals, and these seconds.
    pub weighted: (f64, f64),
    /// The least share of the time in which its counters ran, where that was not all.
    pub running: Option<f64>,
    /// A value for each point, NaN where none is known; at the end some may be missing.
    values: Vec<f64>,
    /// How many values the last one is the mean of.
    known: usize,
}

impl Series {
    /// The series of a first interval.
    pub fn of(first: &Kept) -> Self {
        let mut series = Series {
            count: 0,
            seconds: 0.0,
            span: (u64::MAX, 0),
            times: [first.time.clone(), first.time.clone()],
            last: (first.metrics.clone(), first.at),
            marks: Marks::default(),
            per: 1,
            filled: 1,
            points: Vec::new(),
            figures: Vec::new(),
        };
        series.take(first);
        series
    }

    /// Adds the next interval.
    pub fn add(&mut self, next: Kept) {
        self.take(&next);
        if next.time < self.times[0] {
            self.times[0] = next.time;
        } else if next.time > self.times[1] {
            self.times[1] = next.time;
        }
        self.last = (next.metrics, next.at);
    }

    fn take(&mut self, next: &Kept) {
        let Some(interval) = next.interval else { return };
        let point = Point { end_ns: interval.end_ns, length: interval.seconds(), at: next.at };
        self.put(point);
        self.span = (self.span.0.min(interval.start_ns), self.span.1.max(interval.end_ns));
        for (at, (name, figure)) in next.metrics.iter().enumerate() {
            self.marks.add(&figure, next.at);
            // Mostly all have the same names.
            let place = match self.figures.get(at) {
                Some(known) if *known.0 == *name => Ok(at),
                _ => self.figures.binary_search_by(|known| (*known.0).cmp(name)),
            };
            match place {
                Ok(place) => {
                    let joined = &mut self.figures[place].1;
                    join(name, &mut joined.metric, joined.seconds, &figure, point.length);
                    joined.add(&figure, point, self.points.len() - 1);
                }
                Err(place) => {
                    let mut joined = Joined::of(&figure);
                    joined.add(&figure, point, self.points.len() - 1);
                    self.figures.insert(place, (name.into(), joined));
                }
            }
        }
        self.seconds += point.length;
        self.count += 1;
    }

    /// Adds to the course.
    fn put(&mut self, point: Point) {
        match self.points.last_mut() {
            Some(last) if self.filled < self.per => {
                self.filled += 1;
                let length = last.length + (point.length - last.length) / self.filled as f64;
                *last = Point { length, ..point };
                return;
            }
            _ => {}
        }
        if self.points.len() == MOST_POINTS {
            let count = self.points.len();
            self.points = self
                .points
                .chunks_exact(2)
                .map(|pair| Point { length: (pair[0].length + pair[1].length) / 2.0, ..pair[1] })
                .collect();
            self.figures.iter_mut().for_each(|figure| figure.1.halve(count));
            self.per *= 2;
        }
        self.points.push(point);
        self.filled = 1;
    }

    /// How many intervals.
    pub fn count(&self) -> usize {
        self.count
    }
    /// Their length together.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }
    /// The beginning of the first and the end of the last, in nanoseconds since the run's.
    pub fn span_ns(&self) -> (u64, u64) {
        self.span
    }
    /// When the first and the last were completed.
    pub fn times(&self) -> [&str; 2] {
        self.times.each_ref().map(|time| &**time)
    }
    /// The figures of the last interval, and the place of its record.
    pub fn last(&self) -> (&Figures, u64) {
        (&self.last.0, self.last.1)
    }
    /// What is to be said of all figures.
    pub fn marks(&self) -> Marks {
        self.marks.clone()
    }
    /// How many intervals a point stands for.
    pub fn per_point(&self) -> usize {
        self.per
    }
    /// The course: each interval, or several as one.
    pub fn points(&self) -> &[Point] {
        &self.points
    }
    /// How many intervals the point at a place stands for.
    pub fn weight(&self, place: usize) -> usize {
        if place + 1 < self.points.len() { self.per } else { self.filled }
    }
    /// Figures by name, ascending.
    pub fn figures(&self) -> impl Iterator<Item = (&str, &Joined)> {
        self.figures.iter().map(|(name, joined)| (&**name, joined))
    }
    /// The figure of this name.
    pub fn figure(&self, name: &str) -> Option<&Joined> {
        let place = self.figures.binary_search_by(|known| (*known.0).cmp(name)).ok()?;
        Some(&self.figures[place].1)
    }
}

impl Joined {
    fn of(first: &Figure) -> Self {
        Joined {
            metric: first.to_metric(),
            seconds: 0.0,
            sum: 0.0,
            finite: (0.0, 0),
            not_finite: 0,
            range: (first.value, first.value),
            most: None,
            weighted: (0.0, 0.0),
            running: None,
            values: Vec::new(),
            known: 0,
        }
    }

    fn add(&mut self, figure: &Figure, point: Point, place: usize) {
        let value = figure.value;
        self.seconds += point.length;
        self.sum += value;
        self.range = (self.range.0.min(value), self.range.1.max(value));
        if let Some(running) = figure.running.filter(|running| *running < 1.0) {
            self.running = Some(self.running.map_or(running, |least| least.min(running)));
        }
        if value.is_finite() {
            self.finite = (self.finite.0 + value, self.finite.1 + 1);
            self.weighted = (self.weighted.0 + value * point.length, self.weighted.1 + point.length);
            if self.most.is_none_or(|most| value.total_cmp(&most.0).is_ge()) {
                self.most = Some((value, point.at));
            }
        } else {
            self.not_finite += 1;
        }
        if self.values.len() <= place {
            self.values.resize(place, f64::NAN);
            self.values.push(f64::NAN);
            self.known = 0;
        }
        if value.is_finite() {
            self.known += 1;
            let last = &mut self.values[place];
            *last = if self.known == 1 { value } else { *last + (value - *last) / self.known as f64 };
        }
    }

    /// Makes one of two neighbours each, of `count` points.
    fn halve(&mut self, count: usize) {
        self.values.resize(count, f64::NAN);
        let mean = |a: f64, b: f64| match (a.is_nan(), b.is_nan()) {
            (true, _) => b,
            (false, true) => a,
            (false, false) => a / 2.0 + b / 2.0,
        };
        self.values = self.values.chunks_exact(2).map(|pair| mean(pair[0], pair[1])).collect();
    }

    /// The value at a point, where one is known.
    pub fn value(&self, place: usize) -> Option<f64> {
        self.values.get(place).copied().filter(|value| value.is_finite())
    }
}

/// Amounts are added up, anything else is the mean over time.
pub fn is_amount(name: &str, unit: &str) -> bool {
    !unit.contains('/') && unit != "%" && !is_mean(name)
}

/// Joins a figure of `seconds` to one of the seconds `before`.
pub fn join(name: &str, sum: &mut Metric, before: f64, figure: &Figure, seconds: f64) {
    if is_amount(name, &sum.unit) {
        sum.value += figure.value;
    } else if before + seconds > 0.0 {
        sum.value = (sum.value * before + figure.value * seconds) / (before + seconds);
    }
    let share = |running: Option<f64>| running.unwrap_or(1.0);
    if (sum.running.is_some() || figure.running.is_some()) && before + seconds > 0.0 {
        sum.running = Some((share(sum.running) * before + share(figure.running) * seconds) / (before + seconds));
    }
    sum.at_least |= figure.at_least;
}
