//! Links over time: samples until the plan or the user ends it, a record for each change, and one for each link at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pciescope_core::change::{Cause, Subject, TEST};
use pciescope_core::record::{Below, Instance, Interval, Method, Metric, Record};
use pciescope_core::sink::Unwritten;
use pciescope_core::text::{span, word};
use pciescope_core::{Bdf, Environment, Function, Identity, Plan, Sink, Warning, WatchPlan, once, warning};
use pciescope_hw::wait::{Woken, now_ns};
use pciescope_hw::watch::{Fixed, Former, Links, Sample, Seen, Total, Tracker};

use crate::counters::Host;
use crate::error::Error;
use crate::journal::Journal;
use crate::on::{Commands, Variables};

/// What a watch is to do.
#[derive(Debug, Default)]
pub struct WatchTask {
    /// What to watch, how often and how long.
    pub plan: WatchPlan,
    /// The machine.
    pub environment: Environment,
    /// What the user calls the run.
    pub label: Option<String>,
    /// The `backend` of its records: `sysfs` or `fake`.
    pub backend: &'static str,
    /// What a reader must know beforehand, such as what cannot be seen without privilege.
    pub warnings: Option<Warning>,
    /// How links ran when they were last watched.
    pub former: BTreeMap<Bdf, Former>,
    /// What runs at changes, by the names of [`events`].
    pub commands: Option<Commands>,
}

/// What came of a watch.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    /// Links that were watched.
    pub links: usize,
    /// What all of them could have carried more in their best state, in bytes.
    pub lost_bytes: f64,
}

/// Samples that the kernel's events call for are this far apart at least, in nanoseconds. The first one comes at once, and
/// each event has its own time.
const TOLD_NS: u64 = 100_000_000;

/// Watches until the plan or the host ends it.
///
/// # Errors
/// [`Error::Sink`]. Records that a full disk does not take ([`Unwritten`]) are kept and folded with later ones of the same
/// kind. Any other failure ends the watch.
pub fn run(links: &mut dyn Links, task: WatchTask, host: &mut dyn Host, sink: &mut dyn Sink) -> Result<Outcome, Error> {
    let plan = Plan::Watch(task.plan.clone());
    run_judged(links, task, ("watch", plan), host, sink, None)
}

/// What looks on while links are watched.
pub(crate) trait Judge {
    /// Looks at a sample; whether the watch goes on.
    fn look(&mut self, sample: &Sample) -> bool;
    /// What it says at the end.
    fn record(&mut self) -> Record;
}

/// The same under a verb's name and plan, until its judge ends it.
pub(crate) fn run_judged(
    links: &mut dyn Links,
    task: WatchTask,
    (verb, whole): (&str, Plan),
    host: &mut dyn Host,
    sink: &mut dyn Sink,
    mut judge: Option<&mut dyn Judge>,
) -> Result<Outcome, Error> {
    let WatchTask { plan, environment, label, backend, warnings, former, mut commands } = task;
    let method =
        Method { backend: backend.to_owned(), emulated: environment.hypervisor.is_some(), ..Method::default() };
    let command = if let Plan::Soak(soak) = &whole { soak.command.first().cloned() } else { None };
    let mut journal = Journal::new(Identity::new(verb, label), sink);
    journal.put(Record::first(environment, whole, warnings.into_iter().collect()))?;
    host.begin().map_err(|source| Error::Command { command: command.unwrap_or_default(), source })?;
    let known: BTreeSet<Bdf> = former.keys().copied().collect();
    let (mut tracker, mut folded) = (Tracker::after(former), Folded { room: BURST, ..Folded::default() });
    let start = now_ns();
    let (mut at_ns, mut told_ns, mut woken) = (0, 0, Woken::Time);
    loop {
        let sample = links.sample(at_ns);
        let goes_on = judge.as_mut().is_none_or(|judge| judge.look(&sample));
        let all = tracker.next(sample);
        for seen in all.iter().filter(|_| commands.is_some()) {
            let is_known = seen.fixed.as_ref().is_some_and(|fixed| known.contains(&fixed.bdf()));
            commands.iter().for_each(|commands| commands.happened(&events_of(seen, is_known), variables(seen)));
        }
        folded.warn(commands.as_ref());
        folded.put(all, tracker.elapsed_ns(), &mut journal, &method)?;
        if !goes_on {
            break;
        }
        if plan.clear_lbms {
            tracker.cleared(&links.clear_lbms());
        }
        if woken != Woken::Event {
            if plan.duration_ns.is_some_and(|end| at_ns >= end) {
                break;
            }
            // Absolute times: a late sample does not push the next one back, and times that have passed are left out.
            let passed = tracker.elapsed_ns() / plan.interval_ns.max(1);
            at_ns = (passed + 1) * plan.interval_ns;
            at_ns = plan.duration_ns.map_or(at_ns, |end| at_ns.min(end));
        }
        woken = until(start + links.real_ns(at_ns), host, &mut journal)?;
        match woken {
            Woken::Event => {
                std::thread::sleep(Duration::from_nanos((told_ns + TOLD_NS).saturating_sub(now_ns())));
                told_ns = now_ns();
            }
            Woken::Time => {}
            _ => break,
        }
    }
    commands.as_mut().map(Commands::finish);
    folded.warn(commands.as_ref());
    folded.room = BURST;
    folded.put(Vec::new(), tracker.elapsed_ns(), &mut journal, &method)?;
    let mut outcome = Outcome::default();
    for total in tracker.totals() {
        outcome.links += 1;
        outcome.lost_bytes += total.lost_bytes;
        journal.put(of_link(total, &tracker, &method))?;
    }
    if let Some(judge) = judge {
        journal.put(Record { method: Some(method), ..judge.record() })?;
    }
    journal.finish()?;
    Ok(outcome)
}

fn until(deadline_ns: u64, host: &mut dyn Host, journal: &mut Journal<'_>) -> Result<Woken, Error> {
    loop {
        match host.until(Some(deadline_ns)).map_err(sink_error)? {
            Woken::Moved => journal.renew()?,
            woken => return Ok(woken),
        }
    }
}

fn sink_error(source: std::io::Error) -> Error {
    Error::Sink { source }
}

/// So many records of changes are written as they come, and so many a second after that. Faster ones are folded.
const BURST: f64 = 2000.0;
const RECORDS_PER_S: f64 = 20.0;

/// Changes that wait to be written. Usually none does.
#[derive(Default)]
struct Folded {
    /// One for each thing that changed, in the order in which they came.
    waiting: Vec<Seen>,
    /// What went wrong with commands, each once.
    warnings: Vec<Warning>,
    /// How many records may be written now, and when that was so, in nanoseconds.
    room: f64,
    at_ns: u64,
}

impl Folded {
    fn add(&mut self, seen: Seen) {
        let key = |seen: &Seen| (seen.change.of, seen.fixed.as_ref().map(|fixed| fixed.bdf()));
        let Some(first) = self.waiting.iter_mut().find(|first| key(first) == key(&seen)) else {
            return self.waiting.push(seen);
        };
        first.change.fold(seen.change);
        first.lasted.1 = seen.lasted.1;
        first.lost_bytes_per_s = seen.lost_bytes_per_s.or(first.lost_bytes_per_s);
        for (end, later) in first.errors.iter_mut().zip(seen.errors) {
            *end = end.zip(later).map(|((before, _), (_, now))| (before, now)).or(later);
        }
    }

    fn warn(&mut self, commands: Option<&Commands>) {
        for warning in commands.into_iter().flat_map(Commands::warnings) {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }

    /// Writes changes, one record each. While there is no room on the disk, or too many come, they wait, folded.
    fn put(&mut self, seen: Vec<Seen>, now_ns: u64, journal: &mut Journal<'_>, method: &Method) -> Result<(), Error> {
        let more = now_ns.saturating_sub(self.at_ns) as f64 / 1e9 * RECORDS_PER_S;
        (self.room, self.at_ns) = ((self.room + more).min(BURST), now_ns);
        let is_full = |count: usize| count as f64 > self.room && self.room < BURST;
        if is_full(self.waiting.len() + seen.len()) {
            let is_full = is_full(self.waiting.len());
            seen.into_iter().for_each(|seen| self.add(seen));
            return if is_full { Ok(()) } else { self.put(Vec::new(), now_ns, journal, method) };
        }
        if self.waiting.is_empty() {
            self.waiting = seen;
        } else {
            seen.into_iter().for_each(|seen| self.add(seen));
        }
        let mut records: Vec<Record> = self.waiting.iter().map(|seen| of_change(seen, method)).collect();
        if !self.warnings.is_empty() {
            let warnings = self.warnings.clone();
            records.push(Record { test: TEST.to_owned(), method: Some(method.clone()), warnings, ..Record::default() });
        }
        if records.is_empty() {
            return Ok(());
        }
        match journal.put_all(&mut records) {
            Err(Error::Sink { source }) if source.get_ref().is_some_and(|why| why.is::<Unwritten>()) => {
                std::mem::take(&mut self.waiting).into_iter().for_each(|seen| self.add(seen));
                Ok(())
            }
            written => {
                self.waiting.clear();
                self.warnings.clear();
                self.room -= records.len() as f64;
                written
            }
        }
    }
}

/// The record of a function, or of the machine, and of what is below it, without figures.
fn of_function(fixed: Option<&Arc<Fixed>>, under: Option<&Arc<Fixed>>, time: (u64, u64), method: &Method) -> Record {
    Record {
        test: TEST.to_owned(),
        device: fixed.map(|fixed| fixed.function.clone()),
        instance: under.map(|under| below(under)),
        interval: Some(Interval { start_ns: time.0, end_ns: time.1 }),
        method: Some(method.clone()),
        ..Record::default()
    }
}

fn of_change(seen: &Seen, method: &Method) -> Record {
    let mut record = of_function(seen.fixed.as_ref(), seen.below.as_ref(), seen.lasted, method);
    record.change = Some(seen.change.clone());
    if let Some(lost) = seen.lost_bytes_per_s {
        record.metrics.insert("lost_bytes_per_s".to_owned(), Metric::of(lost, "bytes/s"));
    }
    for (end, errors) in ["port", "device"].iter().zip(seen.errors) {
        let Some((before, now)) = errors else { continue };
        record.metrics.insert(format!("{end}_errors_before"), Metric::count(before));
        record.metrics.insert(format!("{end}_errors"), Metric::count(now));
    }
    record
}

/// What commands can run at: any change, a link that carries less than at best, what changed, and causes.
pub fn events() -> Vec<&'static str> {
    let named = Subject::ALL.map(Subject::name).into_iter().chain(Cause::ALL.map(Cause::name));
    once(["any", "lost"].into_iter().chain(named))
}

/// The events that it is. A state at the start is one where it was not known, and is below what both ends can do.
fn events_of(seen: &Seen, is_known: bool) -> Vec<&'static str> {
    let change = &seen.change;
    if change.is_start() && (is_known || change.evidence.is_empty()) {
        return Vec::new();
    }
    let is_lost = change.is_start() || seen.lost_bytes_per_s.is_some_and(|lost| lost > 0.0);
    let lost = (is_lost && change.cause != Some(Cause::PowerSaving)).then_some("lost");
    ["any", change.of.name()].into_iter().chain(change.cause.map(Cause::name)).chain(lost).collect()
}

/// What a command is told of it: all of them each time, as a variable may come from outside too.
fn variables(seen: &Seen) -> Variables {
    let mut record = Record::default();
    Identity::default().mark(&mut record, SystemTime::now());
    let bdf = |fixed: &Option<Arc<Fixed>>| fixed.as_ref().map_or_else(String::new, |fixed| fixed.bdf().to_string());
    let named = [&seen.fixed, &seen.below].into_iter().flatten().find_map(|fixed| fixed.function.devices.first());
    let change = &seen.change;
    Variables::from([
        ("PCIESCOPE_TIME", record.time),
        ("PCIESCOPE_FUNCTION", bdf(&seen.fixed)),
        ("PCIESCOPE_BELOW", bdf(&seen.below)),
        ("PCIESCOPE_DEVICE", named.map_or_else(String::new, |name| word(name))),
        ("PCIESCOPE_SUBJECT", change.of.name().to_owned()),
        ("PCIESCOPE_FROM", change.from.clone().unwrap_or_default()),
        ("PCIESCOPE_TO", change.to.clone()),
        ("PCIESCOPE_CAUSE", change.cause.map_or("", Cause::name).to_owned()),
        ("PCIESCOPE_EVIDENCE", change.evidence.join(", ")),
        ("PCIESCOPE_LOST_BYTES_PER_S", seen.lost_bytes_per_s.map_or_else(String::new, |lost| format!("{lost:.0}"))),
    ])
}

/// The function below a port.
pub(crate) fn below(fixed: &Fixed) -> Instance {
    let Function { name, driver, devices, .. } = fixed.function.clone();
    Instance {
        scope: "port".to_owned(),
        below: vec![Below { bdf: fixed.bdf(), name, driver, devices }],
        ..Instance::default()
    }
}

/// What a link came to.
fn of_link(total: &Total, tracker: &Tracker, method: &Method) -> Record {
    let Total { fixed, watched_ns, blind_ns, changes, errors, lost_bytes, .. } = total;
    let all_ns = tracker.elapsed_ns();
    let mut record = of_function(Some(fixed), total.below.as_ref(), (0, all_ns), method);
    let seconds = *watched_ns as f64 / 1e9;
    let per_day = |count: u64| Metric::of(count as f64 / seconds * 86400.0, "1/day");
    let ns = |ns: u64| Metric::ns(ns as f64);
    let rates = [
        ("changes_per_day", per_day(*changes)),
        ("link_errors_per_day", per_day(*errors)),
        ("mean_lost_bytes_per_s", Metric::of(lost_bytes / seconds, "bytes/s")),
        ("config_reads_per_s", Metric::of(tracker.reads as f64 / (all_ns as f64 / 1e9), "1/s")),
    ];
    let sums = [
        ("changes", Metric::count(*changes)),
        ("samples", Metric::count(tracker.samples)),
        ("watched_ns", ns(*watched_ns)),
        ("below_best_ns", ns(total.below_ns)),
        ("lost_bytes", Metric::of(*lost_bytes, "bytes")),
        ("unseen_ns", ns(*blind_ns)),
        ("asleep_ns", ns(total.asleep_ns)),
        ("link_errors", Metric::count(*errors)),
    ];
    let rates = rates.into_iter().filter(|_| seconds > 0.0);
    record.metrics = sums.into_iter().chain(rates).map(|(name, metric)| (name.to_owned(), metric)).collect();
    // Links of which all the time is unseen for one reason are one warning.
    let time = match blind_ns == watched_ns {
        true => "all the time".to_owned(),
        false => format!("{}: for {} of {}", fixed.bdf(), span(*blind_ns), span(*watched_ns)),
    };
    let missed = "a change of the link that came back before the next sample left no trace";
    let warnings = total.blind_by.map(|why| warning::CHANGES_MISSED.warn(format!("{time} {missed}: {why}")));
    Record { warnings: warnings.into_iter().collect(), ..record }
}

#[cfg(test)]
mod tests {
    use std::io;

    use pciescope_hw::synthetic::Synthetic;
    use pciescope_hw::watch::Script;

    use super::*;

    /// Waits for nothing: the script's time passes as fast as it can be sampled.
    struct Fast;
    impl Host for Fast {
        fn until(&mut self, _deadline_ns: Option<u64>) -> io::Result<Woken> {
            Ok(Woken::Time)
        }
    }

    const SECOND: u64 = 1_000_000_000;

    fn watch(options: &str, seconds: u64, sink: &mut dyn Sink) {
        let options = options.parse().unwrap();
        let root = Synthetic::root(&options).unwrap();
        let mut links = Script::synthetic(&root, &options, &[]);
        let plan = WatchPlan { interval_ns: SECOND, duration_ns: Some(seconds * SECOND), ..WatchPlan::default() };
        let task = WatchTask { plan, backend: "fake", ..WatchTask::default() };
        run(&mut links, task, &mut Fast, sink).unwrap();
    }

    #[test]
    fn a_day_of_nothing_gives_no_change() {
        let mut records = Vec::new();
        watch("host=quiet", 86_400, &mut records);
        let changes: Vec<&Record> =
            records.iter().filter(|one| one.change.as_ref().is_some_and(|change| !change.is_start())).collect();
        assert!(changes.is_empty(), "{changes:?}");
        let links: Vec<&Record> = records.iter().filter(|one| one.metrics.contains_key("changes")).collect();
        assert_eq!(links.len(), 5, "one for each port");
        assert!(links.iter().all(|one| one.metrics["changes"].value == 0.0 && one.warnings.is_empty()), "{links:?}");
    }

    #[test]
    fn an_hour_of_the_script_gives_its_changes_with_cause_and_loss() {
        let mut records = Vec::new();
        watch("seed=1", 3600, &mut records);
        let seen: Vec<(u64, String, String, Cause, f64)> = records
            .iter()
            .filter_map(|record| {
                let change = record.change.as_ref().filter(|one| !one.is_start() && one.of == Subject::Link)?;
                let lost = record.metrics["lost_bytes_per_s"].value;
                let at = record.interval?.end_ns / SECOND;
                Some((at, record.device.as_ref()?.bdf?.to_string(), change.to.clone(), change.cause?, lost))
            })
            .collect();
        let gpu = "0000:80:02.0";
        let (disk, slot) = ("0000:00:02.0", "0000:80:01.0");
        let lanes = |speed: f64, lanes: u8| pciescope_hw::ceiling::wire_bytes_per_s(speed, lanes).unwrap();
        let expected = [
            (600, gpu, "2.5 GT/s x16", Cause::PowerSaving, lanes(32.0, 16) - lanes(2.5, 16)),
            (900, gpu, "32 GT/s x16", Cause::PowerSaving, 0.0),
            (1200, disk, "8 GT/s x4", Cause::Reliability, lanes(32.0, 4) - lanes(8.0, 4)),
            (2000, slot, "no link", Cause::HotPlug, 0.0),
            (2120, slot, "32 GT/s x16", Cause::HotPlug, 0.0),
            (3000, disk, "16 GT/s x4", Cause::Software, lanes(32.0, 4) - lanes(16.0, 4)),
            (3060, disk, "32 GT/s x4", Cause::Software, 0.0),
        ];
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(at, port, to, cause, lost)| (at, port.to_owned(), to.to_owned(), cause, lost))
            .collect();
        assert_eq!(seen, expected);
        let total = |bdf: &str, name: &str| {
            let is = |one: &&Record| {
                one.metrics.contains_key("changes") && one.device.as_ref().unwrap().bdf == bdf.parse().ok()
            };
            records.iter().find(is).unwrap().metrics[name].value
        };
        // 1,800 s at a quarter, 60 s at half.
        let lost = 1800.0 * (lanes(32.0, 4) - lanes(8.0, 4)) + 60.0 * (lanes(32.0, 4) - lanes(16.0, 4));
        assert!((total(disk, "lost_bytes") / lost - 1.0).abs() < 1e-9, "{} {lost}", total(disk, "lost_bytes"));
        assert_eq!(total(disk, "below_best_ns"), 1860e9);
        // An idle GPU and an empty slot lose nothing.
        assert_eq!((total(gpu, "lost_bytes"), total(slot, "lost_bytes")), (0.0, 0.0));
        assert_eq!(total(disk, "link_errors"), 15.0);
    }

    /// A disk that is full for a time.
    struct Full {
        records: Vec<Record>,
        calls: u32,
        full: std::ops::Range<u32>,
    }
    impl Sink for Full {
        fn put(&mut self, record: &Record) -> io::Result<()> {
            self.records.push(record.clone());
            Ok(())
        }
        fn put_all(&mut self, records: &[Record]) -> io::Result<()> {
            self.calls += 1;
            if self.full.contains(&self.calls) {
                return Err(Unwritten::of(io::ErrorKind::StorageFull.into()));
            }
            records.iter().try_for_each(|record| self.put(record))
        }
    }

    #[test]
    fn what_finds_no_room_is_folded_and_counted() {
        let links = |full| {
            let mut sink = Full { records: Vec::new(), calls: 0, full };
            watch("seed=1", 3590, &mut sink);
            let all = sink.records.into_iter().filter_map(|record| record.change);
            all.filter(|change| !change.is_start()).collect::<Vec<_>>()
        };
        let (all, fewer) = (links(0..0), links(4..1500));
        assert!(fewer.len() < all.len(), "{} of {}", fewer.len(), all.len());
        let times = |changes: &[pciescope_core::Change]| changes.iter().map(|change| change.times).sum::<u64>();
        assert_eq!(times(&fewer), times(&all));
    }
}
