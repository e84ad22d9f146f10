//! Compares counters with workloads that report their own traffic.
//!
//! The code of `stat` ([`crate::counters`]) reads the counters, so this verifies its pieces, doubts and figures. A
//! counter starts before the workload and stops after it has ended. Bytes are compared with bytes, not rates with
//! rates, so that no time window has to be chosen. Other traffic before the workload is shown as the idle rate and is
//! not subtracted.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use pciescope_core::plan::StatPlan;
use pciescope_core::{Comparison, Warning};
use pciescope_hw::Root;
use pciescope_hw::wait::{Woken, now_ns};

use crate::Error;
use crate::counters::{self, Choice, Host, Quantity, Session};
use crate::workload::{self, IsStopped, Moved};

/// Which side of a workload a counter sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What comes from the device or out of memory.
    Read,
    /// What goes to the device or into memory.
    Write,
}

/// What is compared with one side of a workload: a rate of the catalogue in bytes per second, added up over panels.
#[derive(Debug, Clone)]
pub struct Counter {
    /// As tables show it.
    pub name: String,
    /// The traffic that it counts.
    pub side: Side,
    /// The metric, such as `rx_bytes_per_s`.
    pub metric: &'static str,
    /// What one count is, in bytes; of several events, of the first.
    pub bytes_per_count: f64,
    /// The panels, by their places in the choice.
    pub panels: Vec<usize>,
}

impl Counter {
    /// The counter of one panel, named by its events as perf writes them. `None` where the panel lacks one of them.
    pub fn of_panel(choice: &Choice, number: usize, side: Side, metric: &'static str) -> Option<Self> {
        let (panel, instrument) = (&choice.panels[number], &choice.instruments[number]);
        let resolved = panel.metrics.iter().find(|resolved| resolved.metric.name == metric)?;
        let quantity = |event: &String| panel.quantities.iter().find(|quantity| quantity.name == *event);
        let quantities = resolved.events.iter().map(quantity).collect::<Option<Vec<_>>>()?;
        let parts: Vec<&(usize, f64)> = quantities.iter().flat_map(|quantity| &quantity.parts).collect();
        let names: Vec<String> = parts.iter().map(|part| instrument.counters[part.0].event.to_string()).collect();
        let bytes_per_count = parts.first()?.1;
        Some(Counter { name: names.join("+"), side, metric, bytes_per_count, panels: vec![number] })
    }
}

/// How to go about it.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// The error that is allowed, in percent.
    pub tolerance_percent: f64,
    /// Whether the run shall end.
    pub is_stopped: IsStopped<'a>,
}

/// A counter beside a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Verified {
    /// What was compared.
    pub row: Comparison,
    /// What moved before the workload, in bytes per second; `None` where the counter did not run then.
    pub idle_bytes_per_s: Option<f64>,
    /// Doubts about the count.
    pub warnings: Vec<Warning>,
}

/// How long the counters are watched before each workload.
const IDLE: Duration = Duration::from_millis(500);
/// So often a watch without a workload looks whether the run shall end.
const TICK: Duration = Duration::from_millis(20);

/// Open counters that were watched while nothing of ours ran.
pub struct Experiment<'a> {
    root: &'a Root,
    choice: &'a Choice,
    counters: &'a [Counter],
    options: Options<'a>,
    session: Session,
    idle_bytes_per_s: Vec<Option<f64>>,
}

impl<'a> Experiment<'a> {
    /// Opens the counters of a choice and watches them for half a second.
    ///
    /// # Errors
    /// [`Error::Counters`] with the first reason why one of them cannot be opened.
    pub fn open(
        root: &'a Root,
        choice: &'a Choice,
        counters: &'a [Counter],
        options: Options<'a>,
    ) -> Result<Self, Error> {
        let session = Session::open(root, choice.instruments.clone())?;
        if let Some(refusal) = session.refusals().next() {
            return Err(counters::Error::no_figure(refusal).into());
        }
        let mut all = Experiment { root, choice, counters, options, session, idle_bytes_per_s: Vec::new() };
        all.watch(IDLE)?;
        let rate = |counter| all.figure(counter).ok().map(|figure| figure.value / figure.seconds);
        all.idle_bytes_per_s = counters.iter().map(rate).collect();
        Ok(all)
    }

    /// Counts for a time, or until the run shall end.
    ///
    /// # Errors
    /// There is none from the watch itself; see [`Experiment::run`].
    pub fn watch(&mut self, time: Duration) -> Result<(), Error> {
        let is_stopped = self.options.is_stopped;
        let wait = || {
            let begin = Instant::now();
            while begin.elapsed() < time && !is_stopped() {
                thread::sleep(TICK.min(time));
            }
            Ok(Moved::default())
        };
        self.count_beside(wait).map(drop)
    }

    /// Counts while a workload runs, and compares each counter with the bytes that the workload moved. Counters of a
    /// direction in which it moved nothing are left out.
    ///
    /// # Errors
    /// [`Error::Workload`]; [`Error::Counters`] for a counter without a figure.
    pub fn run(
        mut self,
        name: &str,
        load: impl FnOnce() -> Result<Moved, workload::Error> + Send,
    ) -> Result<Vec<Verified>, Error> {
        let moved = self.count_beside(load)?;
        let mut all = Vec::new();
        for (counter, idle) in self.counters.iter().zip(&self.idle_bytes_per_s) {
            let (bytes, way) = match counter.side {
                Side::Read => (moved.read_bytes, "read"),
                Side::Write => (moved.written_bytes, "write"),
            };
            if bytes > 0 {
                let load = (format!("{name} {way}"), bytes as f64, moved.ns as f64 / 1e9);
                all.push(self.compare(counter, self.figure(counter)?, load, *idle));
            }
        }
        Ok(all)
    }

    /// Compares the counts of the last watch with a rate in one direction, in bytes per second. The name says which
    /// direction.
    ///
    /// # Errors
    /// [`Error::Counters`] for a counter without a figure.
    pub fn compare_rate(&self, name: &str, side: Side, bytes_per_s: f64) -> Result<Vec<Verified>, Error> {
        let mut all = Vec::new();
        for (counter, idle) in self.counters.iter().zip(&self.idle_bytes_per_s).filter(|(one, _)| one.side == side) {
            let figure = self.figure(counter)?;
            let load = (name.to_owned(), bytes_per_s * figure.seconds, figure.seconds);
            let mut verified = self.compare(counter, figure, load, *idle);
            (verified.row.prints_rate, verified.row.printed_bytes) = (true, Some(bytes_per_s));
            all.push(verified);
        }
        Ok(all)
    }

    /// Counts from before a workload starts until after it has ended.
    fn count_beside(&mut self, load: impl FnOnce() -> Result<Moved, workload::Error> + Send) -> Result<Moved, Error> {
        let (ended, end) = mpsc::channel();
        thread::scope(|scope| {
            let begin = || drop(scope.spawn(move || ended.send(load())));
            let mut host = Load { begin: Some(begin), end, moved: None };
            counters::count(self.root, &StatPlan::default(), &mut self.session, &mut host, &mut |_, _| Ok(()))?;
            // Counters that are gone end the count before the workload.
            let moved = host.moved.or_else(|| host.end.recv().ok());
            // A workload that panicked sends nothing, and the scope panics in its place.
            Ok(moved.transpose()?.unwrap_or_default())
        })
    }

    /// What a counter counted, in bytes.
    fn figure(&self, counter: &Counter) -> Result<Quantity, counters::Error> {
        let mut sum = Quantity::ZERO;
        for number in &counter.panels {
            if let Some(error) = self.session.gone(*number) {
                return Err(counters::Error::no_figure(error));
            }
            let amount = counters::amount(&self.choice.panels[*number], counter.metric, self.session.tallies(*number));
            let Some(amount) = amount else {
                let doubt = counters::doubts(&self.session, *number).into_iter().next();
                let unknown = || (format!("{}: it has no figure", counter.name), None);
                let (why, hint) = doubt.map_or_else(unknown, |doubt| (doubt.text, Some(doubt.hint)));
                return Err(counters::Error::NoFigure { why, hint });
            };
            sum = sum.plus(amount);
        }
        Ok(sum)
    }

    /// A counter beside a workload: its name and direction, bytes, and seconds.
    fn compare(&self, counter: &Counter, figure: Quantity, load: (String, f64, f64), idle: Option<f64>) -> Verified {
        let doubted = counter.panels.iter().filter(|_| figure.at_least);
        Verified {
            row: row(counter, figure, load, self.options.tolerance_percent),
            idle_bytes_per_s: idle,
            warnings: doubted.flat_map(|number| counters::doubts(&self.session, *number)).collect(),
        }
    }
}

fn row(counter: &Counter, figure: Quantity, load: (String, f64, f64), tolerance_percent: f64) -> Comparison {
    let (workload, workload_bytes, workload_s) = load;
    Comparison {
        workload,
        counter: counter.name.clone(),
        workload_bytes,
        workload_s,
        count: figure.value / counter.bytes_per_count,
        bytes_per_count: counter.bytes_per_count,
        parts: 1.0,
        counter_s: figure.seconds,
        running: figure.running.unwrap_or(1.0),
        bound_percent: figure.bound.filter(|_| figure.running.is_some()).map(|bound| bound / workload_bytes * 100.0),
        tolerance_percent: Some(tolerance_percent),
        ..Comparison::default()
    }
}

/// A workload in a thread of its own: counting ends with it.
struct Load<B> {
    begin: Option<B>,
    end: Receiver<Result<Moved, workload::Error>>,
    moved: Option<Result<Moved, workload::Error>>,
}

impl<B: FnOnce()> Host for Load<B> {
    fn begin(&mut self) -> io::Result<()> {
        if let Some(begin) = self.begin.take() {
            begin();
        }
        Ok(())
    }

    fn until(&mut self, deadline_ns: Option<u64>) -> io::Result<Woken> {
        let rest = deadline_ns.map_or(u64::MAX, |deadline| deadline.saturating_sub(now_ns()));
        match self.end.recv_timeout(Duration::from_nanos(rest)) {
            Err(RecvTimeoutError::Timeout) => return Ok(Woken::Time),
            ended => self.moved = ended.ok(),
        }
        Ok(Woken::Child)
    }
}

#[cfg(test)]
mod tests {
    use pciescope_catalogue::Catalogue;
    use pciescope_hw::perf;

    use super::*;
    use crate::counters::{Counted, Instrument, Panel, ResolvedMetric};

    const OPTIONS: Options<'_> = Options { tolerance_percent: 1.0, is_stopped: &|| false };

    fn counter(name: &str, side: Side) -> Counter {
        let metric = if side == Side::Read { "rx_bytes_per_s" } else { "tx_bytes_per_s" };
        Counter { name: name.to_owned(), side, metric, bytes_per_count: 16.0, panels: vec![0] }
    }

    fn load(bytes: f64) -> (String, f64, f64) {
        ("fio read".to_owned(), bytes, 0.5)
    }

    #[test]
    fn a_counter_that_ran_all_the_time_has_no_bound() {
        let figure = Quantity { value: 16_160.0, seconds: 0.7, ..Quantity::ZERO };
        let row = row(&counter("port/rx/", Side::Read), figure, load(16_000.0), 1.0);
        assert_eq!((row.counter.as_str(), row.workload.as_str()), ("port/rx/", "fio read"));
        assert_eq!((row.workload_bytes, row.bytes_per_count, row.running), (16_000.0, 16.0, 1.0));
        assert_eq!((row.count, row.bound_percent, row.counter_s, row.workload_s), (1010.0, None, 0.7, 0.5));
        assert_eq!(row.is_right(), Some(true));
    }

    #[test]
    fn a_scaled_counter_has_its_share_and_bound() {
        let figure = Quantity { value: 16_000.0, running: Some(0.5), bound: Some(320.0), ..Quantity::ZERO };
        let scaled = row(&counter("port/rx/", Side::Read), figure, load(16_000.0), 1.0);
        assert_eq!((scaled.running, scaled.bound_percent, scaled.allowed_percent()), (0.5, Some(2.0), Some(2.0)));
        let unknown = row(&counter("port/rx/", Side::Read), Quantity { bound: None, ..figure }, load(16_000.0), 1.0);
        assert_eq!((unknown.bound_percent, unknown.allowed_percent()), (None, Some(1.0)));
    }

    #[test]
    fn a_wrong_counter_is_wrong() {
        let figure = Quantity { value: 16_000.0, ..Quantity::ZERO };
        assert_eq!(row(&counter("port/rx/", Side::Read), figure, load(1e9), 1.0).is_right(), Some(false));
    }

    /// The kernel's clock as the Rx payload of a port: a byte a nanosecond. `None` where counting is not allowed.
    fn clock(root: &Root) -> Option<Choice> {
        let kind = Catalogue::builtin().kind("dwc_rootport").unwrap();
        let pmu = perf::named(root, "software").ok()?;
        let event = pmu.event("config=0").unwrap();
        perf::Group::open(root, &pmu, 0, std::slice::from_ref(&event)).ok()?;
        let counters = vec![counters::Counter { event, most_per_s: None }];
        let metric = |name: &str| {
            let metric = kind.metric(name).unwrap();
            let (events, unit) = (metric.events().into_iter().collect(), metric.unit.text.clone());
            ResolvedMetric { metric, events, unit }
        };
        let quantity = |name: &str| Counted {
            name: name.to_owned(),
            unit: "bytes".to_owned(),
            parts: vec![(0, 1.0)],
            is_state: false,
            is_least: false,
        };
        let panel = Panel {
            kind: Some(kind),
            quantities: vec![quantity("rx_bytes")],
            metrics: vec![metric("rx_bytes_per_s"), metric("tx_bytes_per_s")],
            ..Panel::default()
        };
        let instruments = vec![Instrument { pmu, cpu: 0, counters }];
        Some(Choice { instruments, panels: vec![panel], absent: Vec::new() })
    }

    #[test]
    fn each_counter_is_held_against_its_side_from_before_the_workload_to_after_it() {
        let root = Root::default();
        let Some(choice) = clock(&root) else { return };
        let rx = Counter::of_panel(&choice, 0, Side::Read, "rx_bytes_per_s").unwrap();
        assert_eq!((rx.name.as_str(), rx.bytes_per_count), ("software/config=0/", 1.0));
        assert!(Counter::of_panel(&choice, 0, Side::Write, "tx_bytes_per_s").is_none(), "it counts no Tx");
        let counters = [rx, counter("port/tx/", Side::Write)];
        let experiment = Experiment::open(&root, &choice, &counters, OPTIONS).unwrap();
        let idle = experiment.idle_bytes_per_s[0].unwrap();
        assert!((0.99e9..1.01e9).contains(&idle), "{idle}");
        let work = || {
            let begin = Instant::now();
            thread::sleep(Duration::from_millis(150));
            Ok(Moved { read_bytes: begin.elapsed().as_nanos() as u64, written_bytes: 0, ns: 1 })
        };
        let all = experiment.run("fio", work).unwrap();
        assert_eq!(all.len(), 1, "nothing was written, so the Tx counter says nothing");
        let row = &all[0].row;
        assert_eq!((row.workload.as_str(), row.running, row.bound_percent), ("fio read", 1.0, None));
        assert!(row.error_percent().is_some_and(|error| (0.0..20.0).contains(&error)), "{row:?}");
        assert!((row.count / 1e9 - row.counter_s).abs() < 0.01, "the idle time is not in it: {row:?}");
    }

    #[test]
    fn a_rate_is_held_against_the_last_watch() {
        let root = Root::default();
        let Some(choice) = clock(&root) else { return };
        let counters = [Counter::of_panel(&choice, 0, Side::Read, "rx_bytes_per_s").unwrap()];
        let mut experiment = Experiment::open(&root, &choice, &counters, OPTIONS).unwrap();
        experiment.watch(Duration::from_millis(30)).unwrap();
        let all = experiment.compare_rate("bw_mem rd", Side::Read, 1e9).unwrap();
        let row = &all[0].row;
        assert_eq!((row.workload.as_str(), row.printed_bytes, row.prints_rate), ("bw_mem rd", Some(1e9), true));
        assert!(row.error_percent().is_some_and(|error| error.abs() < 1.0), "{row:?}");
        assert!((0.03..0.5).contains(&row.counter_s), "the idle time is not in it: {row:?}");
        assert!(experiment.compare_rate("bw_mem fwr", Side::Write, 1e9).unwrap().is_empty());
    }

    #[test]
    fn a_counter_without_a_figure_is_no_zero_and_a_workload_that_fails_says_so() {
        let root = Root::default();
        let Some(choice) = clock(&root) else { return };
        let counters = [Counter::of_panel(&choice, 0, Side::Read, "rx_bytes_per_s").unwrap()];
        let open = || Experiment::open(&root, &choice, &counters, OPTIONS).unwrap();
        let mut experiment = open();
        experiment.session.begin_interval();
        let refused = experiment.compare_rate("bw_mem rd", Side::Read, 1e9).unwrap_err();
        assert_eq!(refused.to_string(), "software/config=0/: it was not counted at all: its CPU or its PMU went away");
        let failed = workload::Error::Report { program: "fio".to_owned(), why: "nothing".to_owned() };
        let failed = open().run("fio", || Err(failed)).unwrap_err();
        assert!(matches!(failed, Error::Workload(_)) && failed.to_string().contains("nothing"), "{failed}");
    }
}
