//! The records that outputs keep in memory while they read a file. Data that records share is kept once, and intervals
//! of counters are joined while they are read. So the memory depends on the number of devices, CPUs and targets in a
//! file, and little on its length.
//!
//! docs/record.md ("How long a file may be") states the bounds; crates/cli/tests/all/memory.rs tests them.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::ops::Deref;
use std::rc::Rc;

use pciescope_core::{
    Checked, Comparison, Cpu, Environment, Failure, Finding, Function, Histogram, HotSpot, Instance, Interval, Kernel,
    Method, Metric, Plan, Record, Stream, Target, Warning, comparison,
};

pub(crate) use self::series::{Joined, Series, is_amount, join};

mod series;

/// A record, or all records of one counting instance in a run that differ in their intervals and figures alone.
///
/// A long file has many, so this is small: what most records of a run have in common is in [`Head`].
#[derive(Debug, Clone)]
pub struct Kept {
    head: Rc<Head>,
    pub(crate) time: Rc<str>,
    pub(crate) target: Option<Rc<Target>>,
    pub(crate) cpu: Option<Rc<Cpu>>,
    pub(crate) interval: Option<Interval>,
    pub(crate) histograms: Histograms,
    pub(crate) metrics: Figures,
    /// All of them, the first counted, where there are several.
    pub(crate) series: Option<Box<Series>>,
    /// Its place among all records, from 0.
    pub(crate) at: u64,
}

/// What neighbouring records have in common. The fields are as in [`Record`]; of several records they are those of the first.
#[derive(Debug)]
pub struct Head {
    /// Names the run.
    pub run: Rc<str>,
    pub(crate) verb: Rc<str>,
    /// What the user calls the run.
    pub label: Option<Rc<str>>,
    pub(crate) test: Rc<str>,
    pub(crate) device: Option<Rc<Function>>,
    pub(crate) instance: Option<Rc<Instance>>,
    pub(crate) stream: Option<Rc<Stream>>,
    pub(crate) kernel: Option<Rc<Kernel>>,
    pub(crate) hot_spots: Vec<HotSpot>,
    pub(crate) method: Option<Rc<Method>>,
    pub(crate) environment: Option<Rc<Environment>>,
    pub(crate) plan: Option<Rc<Plan>>,
    pub(crate) warnings: Option<Rc<Vec<Warning>>>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) checks: Vec<Checked>,
    pub(crate) error: Option<Rc<Failure>>,
    schema: u32,
}

impl Deref for Kept {
    type Target = Head;
    fn deref(&self) -> &Head {
        &self.head
    }
}

impl Head {
    /// Whether both are the same. Their parts are shared, so equal parts are the same ones; if a pool forgot one, the two
    /// are only kept twice.
    fn is_same(&self, other: &Head) -> bool {
        fn same<T: ?Sized>(a: &Option<Rc<T>>, b: &Option<Rc<T>>) -> bool {
            a.as_ref().map(Rc::as_ptr).map(<*const T>::cast::<()>)
                == b.as_ref().map(Rc::as_ptr).map(<*const T>::cast::<()>)
        }
        let has_lists =
            |head: &Head| !(head.hot_spots.is_empty() && head.findings.is_empty() && head.checks.is_empty());
        same(&self.instance, &other.instance)
            && same(&self.device, &other.device)
            && same(&self.stream, &other.stream)
            && same(&self.kernel, &other.kernel)
            && same(&self.method, &other.method)
            && same(&self.warnings, &other.warnings)
            && same(&self.error, &other.error)
            && same(&self.environment, &other.environment)
            && same(&self.plan, &other.plan)
            && Rc::ptr_eq(&self.test, &other.test)
            && Rc::ptr_eq(&self.run, &other.run)
            && Rc::ptr_eq(&self.verb, &other.verb)
            && same(&self.label, &other.label)
            && self.schema == other.schema
            && !has_lists(self)
            && !has_lists(other)
    }
}

/// Histograms by name, ascending.
#[derive(Debug, Clone)]
pub(crate) struct Histograms {
    names: Rc<[Box<str>]>,
    of: Box<[Histogram]>,
}

impl Histograms {
    /// The histogram of this name.
    pub fn get(&self, name: &str) -> Option<&Histogram> {
        self.iter().find(|one| one.0 == name).map(|one| one.1)
    }
    /// All of them with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Histogram)> {
        self.names.iter().map(|name| &**name).zip(&self.of)
    }
    /// Their names.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|one| one.0)
    }
    /// The histograms alone.
    pub fn values(&self) -> impl Iterator<Item = &Histogram> {
        self.iter().map(|one| one.1)
    }
    /// Whether there is one of this name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}

/// Names and units of figures, ascending by name.
pub(crate) type Names = [(Box<str>, Box<str>)];

/// Single figures by name.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    names: Rc<Names>,
    values: Box<[f64]>,
    /// Of each, where any has one.
    marks: Option<Box<[Mark]>>,
}

/// `running` and `at_least` of a figure.
type Mark = (Option<f64>, bool);

/// A single figure: [`Metric`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figure<'k> {
    pub value: f64,
    pub unit: &'k str,
    pub running: Option<f64>,
    pub at_least: bool,
}

impl<'k> Figure<'k> {
    /// The figure as outputs keep it.
    pub fn of(metric: &'k Metric) -> Self {
        Figure { value: metric.value, unit: &metric.unit, running: metric.running, at_least: metric.at_least }
    }

    /// The figure as a record has it.
    pub fn to_metric(self) -> Metric {
        Metric { value: self.value, unit: self.unit.to_owned(), running: self.running, at_least: self.at_least }
    }
}

impl Figures {
    fn at(&self, place: usize) -> Figure<'_> {
        let (running, at_least) = self.marks.as_ref().map_or((None, false), |marks| marks[place]);
        Figure { value: self.values[place], unit: &self.names[place].1, running, at_least }
    }
    /// The figure of this name.
    pub fn get(&self, name: &str) -> Option<Figure<'_>> {
        self.names.binary_search_by(|known| (*known.0).cmp(name)).ok().map(|place| self.at(place))
    }
    /// All of them with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Figure<'_>)> {
        self.names.iter().enumerate().map(|(place, known)| (&*known.0, self.at(place)))
    }
    /// The figures alone.
    pub fn values(&self) -> impl Iterator<Item = Figure<'_>> {
        self.iter().map(|one| one.1)
    }
    /// Whether there is one of this name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

impl Kept {
    /// How many records it stands for.
    pub fn count(&self) -> usize {
        self.series.as_ref().map_or(1, |series| series.count())
    }

    /// When the first and the last of its records were completed, by their texts.
    pub(crate) fn times(&self) -> [&str; 2] {
        self.series.as_ref().map_or([&*self.time, &*self.time], |series| series.times())
    }

    /// The largest finite value of a figure, and which record has it: of equal ones the last.
    pub(crate) fn most(&self, name: &str) -> Option<(f64, u64)> {
        match &self.series {
            Some(series) => series.figure(name)?.most,
            None => {
                Some((self.metrics.get(name).map(|figure| figure.value).filter(|value| value.is_finite())?, self.at))
            }
        }
    }

    /// How many figures it has in all, and what is to be said of them.
    pub(crate) fn marks(&self) -> Marks {
        match &self.series {
            Some(series) => series.marks(),
            None => self.metrics.values().fold(Marks::default(), |mut marks, figure| {
                marks.add(&figure, self.at);
                marks
            }),
        }
    }

    /// The figures of its last record, and that record's place.
    pub(crate) fn last(&self) -> (&Figures, u64) {
        self.series.as_ref().map_or((&self.metrics, self.at), |series| series.last())
    }

    /// The warnings.
    pub(crate) fn warnings(&self) -> &[Warning] {
        self.warnings.as_ref().map_or(&[], |warnings| warnings)
    }

    /// The (first) record as it stood in the file, without its histograms.
    pub fn to_record(&self) -> Record {
        let text = |text: &Rc<str>| text.to_string();
        fn own<T: Clone>(shared: &Option<Rc<T>>) -> Option<T> {
            shared.as_deref().cloned()
        }
        Record {
            schema: self.schema,
            run: text(&self.run),
            time: self.time.to_string(),
            verb: text(&self.verb),
            label: self.label.as_ref().map(text),
            test: text(&self.test),
            device: own(&self.device),
            target: own(&self.target),
            cpu: own(&self.cpu),
            instance: own(&self.instance),
            stream: own(&self.stream),
            kernel: own(&self.kernel),
            hot_spots: self.hot_spots.clone(),
            interval: self.interval,
            method: own(&self.method),
            histograms: Default::default(),
            metrics: self.metrics.iter().map(|(name, figure)| (name.to_owned(), figure.to_metric())).collect(),
            environment: own(&self.environment),
            plan: own(&self.plan),
            warnings: self.warnings().to_vec(),
            findings: self.findings.clone(),
            checks: self.checks.clone(),
            error: own(&self.error),
        }
    }

    /// The comparison that it holds; `None` if it holds none.
    pub(crate) fn comparison(&self) -> Option<Comparison> {
        (*self.test == *comparison::TEST).then(|| Comparison::from_record(&self.to_record())).flatten()
    }

    /// Whether another record is one more interval of the same.
    fn is_next(&self, other: &Kept) -> bool {
        fn same<T: PartialEq + ?Sized>(a: &Option<Rc<T>>, b: &Option<Rc<T>>) -> bool {
            match (a, b) {
                (Some(a), Some(b)) => Rc::ptr_eq(a, b) || a == b,
                (a, b) => a.is_none() && b.is_none(),
            }
        }
        let has_same_head = Rc::ptr_eq(&self.head, &other.head)
            || self.run == other.run
                && self.verb == other.verb
                && self.test == other.test
                && self.schema == other.schema
                && same(&self.label, &other.label)
                && same(&self.instance, &other.instance)
                && same(&self.device, &other.device)
                && same(&self.method, &other.method);
        has_same_head && same(&self.cpu, &other.cpu) && same(&self.target, &other.target)
    }

    /// Whether it can be joined with others: an interval of a counter, of which there is nothing else to say.
    fn is_interval(&self) -> bool {
        &*self.test == "counters"
            && self.instance.is_some()
            && self.interval.is_some()
            && self.histograms.is_empty()
            && self.stream.is_none()
            && self.kernel.is_none()
            && self.environment.is_none()
            && self.plan.is_none()
            && self.warnings.is_none()
            && self.error.is_none()
            && self.hot_spots.is_empty()
            && self.findings.is_empty()
            && self.checks.is_empty()
    }
}

/// Remarks on counted figures that do not depend on their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks {
    /// Figures.
    pub count: usize,
    /// Those that are not finite.
    pub not_finite: usize,
    /// Those that are scaled.
    pub scaled: usize,
    /// Those that are only known from below.
    pub at_least: usize,
    /// The least share of the time that counters ran, and the first record that has it.
    pub least: Option<(f64, u64)>,
}

impl Marks {
    fn add(&mut self, figure: &Figure, at: u64) {
        self.count += 1;
        self.not_finite += usize::from(!figure.value.is_finite());
        self.at_least += usize::from(figure.at_least);
        if let Some(running) = figure.running {
            self.scaled += 1;
            if self.least.is_none_or(|least| running.total_cmp(&least.0).is_lt()) {
                self.least = Some((running, at));
            }
        }
    }
}

/// Takes records one by one and keeps them.
#[derive(Debug, Default)]
pub struct Keeper {
    kept: Vec<Kept>,
    count: u64,
    /// Places of what intervals may belong to, the newest last.
    places: HashMap<Place, Vec<usize>>,
    heads: Pool<Head>,
    texts: Pool<str>,
    times: Pool<str>,
    devices: Pool<Function>,
    targets: Set<Target>,
    cpus: Set<Cpu>,
    instances: Pool<Instance>,
    streams: Pool<Stream>,
    kernels: Pool<Kernel>,
    methods: Pool<Method>,
    environments: Pool<Environment>,
    plans: Pool<Plan>,
    warnings: Pool<Vec<Warning>>,
    errors: Pool<Failure>,
    names: Pool<Names>,
    histograms: Pool<[Box<str>]>,
}

/// What to look for an interval's predecessors by: run, PMU, node and CPU.
type Place = (Rc<str>, Option<Box<str>>, Option<u32>, Option<u32>);

/// An interval is compared with so many predecessors of its place: more are there only if a device changed so often.
const PREDECESSORS: usize = 8;

impl Keeper {
    /// Keeps a record.
    pub fn add(&mut self, record: Record) {
        let one = self.shared(record);
        self.count += 1;
        if !one.is_interval() {
            return self.kept.push(one);
        }
        let instance = one.instance.as_deref();
        let pmu = instance.and_then(|instance| instance.pmu.as_deref().or(Some(&*instance.scope))).map(Box::from);
        let node = instance.and_then(|instance| instance.node);
        let places = self.places.entry((one.run.clone(), pmu, node, one.cpu.as_ref().map(|cpu| cpu.cpu))).or_default();
        let known = places.iter().rev().take(PREDECESSORS).find(|place| self.kept[**place].is_next(&one));
        match known {
            Some(place) => {
                let first = &mut self.kept[*place];
                let mut series = first.series.take().unwrap_or_else(|| Box::new(Series::of(first)));
                series.add(one);
                first.series = Some(series);
            }
            None => {
                places.push(self.kept.len());
                self.kept.push(one);
            }
        }
    }

    /// All that was kept, in the order of the first records.
    pub fn finish(self) -> Vec<Kept> {
        self.kept
    }

    /// A record that shares what it can with those before.
    fn shared(&mut self, record: Record) -> Kept {
        let texts = &mut self.texts;
        let mut text = |text: String| texts.share(|known| *known == *text, || Rc::from(&*text));
        let (run, verb, test) = (text(record.run), text(record.verb), text(record.test));
        let label = record.label.map(&mut text);
        let time = self.times.share(|known| *known == *record.time, || Rc::from(&*record.time));
        let is_same = |known: &[Box<str>]| known.iter().map(|name| &**name).eq(record.histograms.keys());
        let histogram_names =
            self.histograms.share(is_same, || record.histograms.keys().map(|name| Box::from(&**name)).collect());
        let is_same = |known: &Names| {
            let metrics = record.metrics.iter().map(|(name, metric)| (name.as_str(), metric.unit.as_str()));
            known.iter().map(|(name, unit)| (&**name, &**unit)).eq(metrics)
        };
        let names = self.names.share(is_same, || {
            record.metrics.iter().map(|(name, metric)| (Box::from(&**name), Box::from(&*metric.unit))).collect()
        });
        let is_marked = record.metrics.values().any(|metric| metric.running.is_some() || metric.at_least);
        let marks = || record.metrics.values().map(|metric| (metric.running, metric.at_least)).collect();
        let values = record.metrics.values().map(|metric| metric.value).collect();
        let head = Head {
            run,
            verb,
            label,
            test,
            device: self.devices.maybe(record.device),
            instance: self.instances.maybe(record.instance),
            stream: self.streams.maybe(record.stream),
            kernel: self.kernels.maybe(record.kernel),
            hot_spots: record.hot_spots,
            method: self.methods.maybe(record.method),
            environment: self.environments.maybe(record.environment),
            plan: self.plans.maybe(record.plan),
            warnings: self.warnings.maybe(Some(record.warnings).filter(|warnings| !warnings.is_empty())),
            findings: record.findings,
            checks: record.checks,
            error: self.errors.maybe(record.error),
            schema: record.schema,
        };
        let head = match self.heads.find(|known| known.is_same(&head)) {
            Some(known) => known,
            None => self.heads.put(Rc::new(head)),
        };
        Kept {
            head,
            time,
            target: record.target.map(|target| self.targets.share(target)),
            cpu: record.cpu.map(|cpu| self.cpus.share(cpu)),
            interval: record.interval,
            histograms: Histograms { names: histogram_names, of: record.histograms.into_values().collect() },
            metrics: Figures { names, values, marks: is_marked.then(marks) },
            series: None,
            at: self.count,
        }
    }
}

/// Values of which each is kept once. Outputs keep as many of them anyway.
#[derive(Debug)]
struct Set<T>(HashSet<Rc<T>>);

impl<T> Default for Set<T> {
    fn default() -> Self {
        Set(HashSet::new())
    }
}

impl<T: Eq + Hash> Set<T> {
    fn share(&mut self, one: T) -> Rc<T> {
        if let Some(known) = self.0.get(&one) {
            return Rc::clone(known);
        }
        let new = Rc::new(one);
        self.0.insert(Rc::clone(&new));
        new
    }
}

/// The newest values that records may share.
#[derive(Debug)]
struct Pool<T: ?Sized>(Vec<Rc<T>>);

/// So many are remembered.
const POOL: usize = 64;

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Pool(Vec::new())
    }
}

impl<T: ?Sized> Pool<T> {
    fn share(&mut self, is_same: impl Fn(&T) -> bool, new: impl FnOnce() -> Rc<T>) -> Rc<T> {
        self.find(is_same).unwrap_or_else(|| self.put(new()))
    }

    fn find(&mut self, is_same: impl Fn(&T) -> bool) -> Option<Rc<T>> {
        let place = self.0.iter().position(|known| is_same(known))?;
        Some(self.first(place))
    }

    /// Makes the one at a place the newest.
    fn first(&mut self, place: usize) -> Rc<T> {
        self.0[..=place].rotate_right(1);
        Rc::clone(&self.0[0])
    }

    fn put(&mut self, one: Rc<T>) -> Rc<T> {
        self.0.truncate(POOL - 1);
        self.0.insert(0, Rc::clone(&one));
        one
    }
}

impl<T: PartialEq> Pool<T> {
    fn maybe(&mut self, one: Option<T>) -> Option<Rc<T>> {
        let one = one?;
        Some(self.find(|known| *known == one).unwrap_or_else(|| self.put(Rc::new(one))))
    }
}

/// Records that are or can be kept: what outputs are made of.
pub trait Keep {
    /// Them as they are kept.
    fn kept(&self) -> Cow<'_, [Kept]>;
}

impl Keep for [Record] {
    fn kept(&self) -> Cow<'_, [Kept]> {
        let mut keeper = Keeper::default();
        self.iter().for_each(|record| keeper.add(record.clone()));
        Cow::Owned(keeper.finish())
    }
}

impl Keep for Vec<Record> {
    fn kept(&self) -> Cow<'_, [Kept]> {
        self.as_slice().kept()
    }
}

impl<const N: usize> Keep for [Record; N] {
    fn kept(&self) -> Cow<'_, [Kept]> {
        self.as_slice().kept()
    }
}

impl Keep for [Kept] {
    fn kept(&self) -> Cow<'_, [Kept]> {
        Cow::Borrowed(self)
    }
}

impl Keep for Vec<Kept> {
    fn kept(&self) -> Cow<'_, [Kept]> {
        Cow::Borrowed(self)
    }
}
