//! The readings of a run and the records made of them.

use pciescope_core::warning;
use std::collections::BTreeMap;
use std::io;

use pciescope_core::plan::{Plan, StatPlan};
use pciescope_core::record::{Failure, Instance, Interval, Method, Record, Warning};
use pciescope_core::{Environment, Identity, Sink};
use pciescope_hw::wait::{Woken, now_ns};
use pciescope_hw::{Root, inventory};

use super::figures::{self, Quantity};
use super::panel::Panel;
use super::selection::Choice;
use super::session::Session;
use super::warnings;
use crate::error::Error;
use crate::journal::{Journal, Summary};
use pciescope_core::text::chain;

/// The `test` field of the records of counters.
pub const TEST: &str = "counters";

/// Without an interval, counters that take turns are read so often, in nanoseconds, and each piece is scaled by its own share.
const PIECE_NS: u64 = 100_000_000;
/// So often [`Session::refresh`] is called, in nanoseconds.
const REFRESH_NS: u64 = 1_000_000_000;
/// So often links, drivers and the functions below ports are read again, in nanoseconds.
const LINKS_NS: u64 = 10_000_000_000;

/// What a run of counters is to do.
#[derive(Debug)]
pub struct Task {
    /// What to count.
    pub choice: Choice,
    /// For how long and how often; its `events` are filled in.
    pub plan: StatPlan,
    /// The machine as it is now.
    pub environment: Environment,
    /// What the user calls the run.
    pub label: Option<String>,
}

/// What a run needs from its caller: it starts the command, and waits.
pub trait Host {
    /// Called once when everything counts: starts the command, if there is one.
    ///
    /// # Errors
    /// Why it cannot be started; the run is over then.
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Waits until a time of CLOCK_MONOTONIC. Anything but [`Woken::Time`] ends the run.
    ///
    /// # Errors
    /// When waiting is not possible.
    fn until(&mut self, deadline_ns: Option<u64>) -> io::Result<Woken>;
}

/// Counts until the plan, the command or the user ends the run, and writes a record for every instrument and interval.
///
/// # Errors
/// [`Error::Counters`] where nothing can be opened, with the first reason; [`Error::Command`]; [`Error::Sink`].
pub fn measure(root: &Root, task: Task, host: &mut dyn Host, sink: &mut dyn Sink) -> Result<Summary, Error> {
    let Task { choice, mut plan, environment, label } = task;
    let Choice { instruments, panels, absent } = choice;
    let mut session = Session::open(root, instruments)?;
    if !session.is_open() {
        return Err(nothing_opened(&session, &panels).into());
    }
    plan.events = session.events().map(ToString::to_string).collect();
    let mut journal = Journal::new(Identity::new("stat", label), sink);
    let mut writer = RecordWriter::new(panels, &session, &environment);
    let mut warnings = absent;
    warnings.append(&mut warnings::not_counted(&writer.panels, &session));
    warnings.append(&mut warnings::left_out(root, &session));
    warnings.extend(warnings::odd_functions(root));
    journal.put(Record::first(environment, Plan::Stat(plan.clone()), warnings))?;
    if plan.interval_ns.is_some() {
        session.follow_cpus();
    }
    let outcome = count(root, &plan, &mut session, host, &mut |session, interval| {
        writer.refresh(root, session, interval);
        writer.put(&mut journal, session, interval)
    });
    session.stop();
    outcome?;
    if !session.is_alive() {
        journal.summary.failures.push(Failure {
            code: "removed".to_owned(),
            text: "no counter is left: all PMUs are gone".to_owned(),
            hint: None,
        });
    }
    journal.finish()
}

/// Reads the counters of a session until the plan or the host ends it. Calls `put` at the end of each interval.
///
/// # Errors
/// [`Error::Command`] where the host cannot begin; what `put` fails with.
pub(crate) fn count(
    root: &Root,
    plan: &StatPlan,
    session: &mut Session,
    host: &mut dyn Host,
    put: &mut dyn FnMut(&Session, Interval) -> Result<(), Error>,
) -> Result<(), Error> {
    let fail = |source| Error::Command { command: plan.command.first().cloned().unwrap_or_default(), source };
    session.start(root);
    let start = now_ns();
    host.begin().map_err(fail)?;
    let end = plan.duration_ns.map(|ns| start.saturating_add(ns));
    let mut interval = Interval::default();
    let mut next = plan.interval_ns.map(|ns| start.saturating_add(ns));
    let mut written = 0;
    let (mut piece, mut refresh) = (start + PIECE_NS, start + REFRESH_NS);
    loop {
        let deadline = [next, end, (plan.interval_ns.is_none_or(|ns| ns > PIECE_NS)).then_some(piece)];
        let woken = host.until(deadline.into_iter().flatten().min()).map_err(|source| Error::Sink { source })?;
        session.read();
        let now = now_ns();
        if now >= piece {
            piece = now + if session.is_multiplexed() { PIECE_NS } else { REFRESH_NS };
        }
        let is_over = woken != Woken::Time || end.is_some_and(|end| now >= end) || !session.is_alive();
        let is_due = next.is_some_and(|next| now >= next);
        // Also between readings: a port that went and came back may be opened anew only when its old events are closed.
        if now >= refresh || is_over {
            session.refresh(root);
            refresh = now + REFRESH_NS;
        }
        if !is_due && !is_over {
            continue;
        }
        interval.end_ns = now - start;
        put(session, interval)?;
        written += 1;
        if is_over || plan.count.is_some_and(|count| written >= count) {
            return Ok(());
        }
        session.begin_interval();
        interval.start_ns = interval.end_ns;
        // Absolute times: a late reading does not push the next one back, and times that have passed are left out.
        if let (Some(due), Some(step)) = (next, plan.interval_ns) {
            next = Some(due + step * ((now - due) / step + 1));
        }
    }
}

/// The first reason why nothing could be opened.
fn nothing_opened(session: &Session, panels: &[Panel]) -> super::Error {
    match session.refusals().next() {
        Some(error) => super::Error::no_figure(error),
        None => {
            let missing = panels.iter().flat_map(|panel| &panel.missing).next();
            let why = missing.map(|(name, why)| format!("{name}: {why}")).unwrap_or_default();
            super::Error::NoFigure { why, hint: None }
        }
    }
}

/// Records that are made once and filled in at every interval.
struct RecordWriter {
    panels: Vec<Panel>,
    /// One record for each instrument, then one for each sum.
    records: Vec<Record>,
    sums: Vec<Sum>,
    figures: Vec<Vec<Option<Quantity>>>,
    /// Instruments whose end was written.
    ended: Vec<bool>,
    /// Instruments of which it was said that their counters took turns.
    warned: Vec<bool>,
    /// When links and drivers are read again, since the run's start, in nanoseconds.
    links_ns: u64,
    batch: Vec<Record>,
}

/// Channels that are added up.
struct Sum {
    /// A panel that stands for all: they are of one kind.
    panel: Panel,
    members: Vec<usize>,
}

impl RecordWriter {
    fn new(panels: Vec<Panel>, session: &Session, environment: &Environment) -> Self {
        let method = |backend: &str| Method {
            backend: backend.to_owned(),
            emulated: environment.hypervisor.is_some(),
            ..Method::default()
        };
        let record = |instance: Instance, function| Record {
            test: TEST.to_owned(),
            device: function,
            interval: Some(Interval::default()),
            method: Some(method(match (session.is_synthetic(), &instance.source) {
                (true, _) => "fake",
                (false, Some(_)) => "kernel",
                (false, None) => "perf",
            })),
            instance: Some(instance),
            ..Record::default()
        };
        let mut records: Vec<Record> = panels
            .iter()
            .zip(session.instruments())
            .map(|(panel, instrument)| {
                let instance = Instance {
                    scope: panel.scope.to_owned(),
                    source: panel.source.map(str::to_owned),
                    pmu: Some(instrument.pmu.name.clone()),
                    node: panel.node,
                    parts: None,
                    below: panel.below.clone(),
                };
                Record { cpu: panel.cpu.clone(), ..record(instance, panel.function.clone()) }
            })
            .collect();
        let sums = sums(&panels);
        for (scope, sum) in &sums {
            let node = sum.panel.node.filter(|_| *scope == "die");
            let parts = u32::try_from(sum.members.len()).ok();
            records.push(record(Instance { scope: (*scope).to_owned(), node, parts, ..Instance::default() }, None));
        }
        RecordWriter {
            figures: panels.iter().map(|_| Vec::new()).collect(),
            ended: vec![false; panels.len()],
            warned: vec![false; panels.len()],
            panels,
            records,
            sums: sums.into_iter().map(|(_, sum)| sum).collect(),
            links_ns: LINKS_NS,
            batch: Vec::new(),
        }
    }

    /// Reads links, drivers and devices again from time to time: the records of the interval have them as they are now. Those of
    /// the first interval have them as they were at the start.
    fn refresh(&mut self, root: &Root, session: &Session, interval: Interval) {
        if interval.start_ns == 0 || interval.end_ns < self.links_ns {
            return;
        }
        self.links_ns = interval.end_ns + LINKS_NS;
        let endpoints = inventory::endpoints(root);
        let records = self.records.iter_mut();
        for ((panel, record), instrument) in self.panels.iter_mut().zip(records).zip(session.instruments()) {
            if panel.refresh(root, &endpoints, instrument) {
                record.device.clone_from(&panel.function);
                if let Some(instance) = &mut record.instance {
                    instance.below.clone_from(&panel.below);
                }
            }
        }
    }

    /// Writes the records of an interval.
    fn put(&mut self, journal: &mut Journal<'_>, session: &Session, interval: Interval) -> Result<(), Error> {
        for number in 0..self.panels.len() {
            self.fill(session, number);
        }
        for number in 0..self.sums.len() {
            self.fill_sum(number);
        }
        for record in &mut self.records {
            record.interval = Some(interval);
        }
        // Those that have something to say, without copying the others.
        let is_silent = |place: usize| {
            let record = &self.records[place];
            let is_empty = record.metrics.is_empty() && record.error.is_none() && record.warnings.is_empty();
            self.ended.get(place).copied().unwrap_or(false)
                || (is_empty && record.instance.as_ref().is_some_and(Instance::is_accounting))
        };
        self.batch.clear();
        if (0..self.records.len()).any(is_silent) {
            let others = self.records.iter().enumerate().filter(|(place, _)| !is_silent(*place));
            self.batch.extend(others.map(|(_, record)| record.clone()));
            journal.put_all(&mut self.batch)?;
        } else {
            journal.put_all(&mut self.records)?;
        }
        for (place, ended) in self.ended.iter_mut().enumerate() {
            *ended |= self.records[place].error.is_some();
        }
        Ok(())
    }

    /// Fills in the record of an instrument.
    fn fill(&mut self, session: &Session, number: usize) {
        let (panel, record) = (&self.panels[number], &mut self.records[number]);
        record.warnings.clear();
        if let Some(error) = session.gone(number) {
            if record.error.is_none() {
                record.error = Some(Failure { code: error.code().to_owned(), text: chain(error), hint: error.hint() });
            }
            record.metrics.clear();
            self.figures[number].clear();
            return;
        }
        let tallies = session.tallies(number);
        figures::quantities(panel, tallies, &mut self.figures[number]);
        figures::put(panel, &self.figures[number], &mut record.metrics);
        record.warnings = warnings::doubts(session, number);
        if !self.warned[number] && self.figures[number].iter().flatten().any(is_rough) {
            self.warned[number] = true;
            record.warnings.push(warning::MULTIPLEXED.hinted(
                format!(
                    "counters took turns on the same hardware: scaled figures may be off by more than {:.0} %",
                    ROUGH * 100.0
                ),
                "count fewer at once for exact figures, for example one direction by -e, or over longer intervals",
            ));
        }
    }

    /// Fills in the record of a sum, from the figures of its members.
    fn fill_sum(&mut self, number: usize) {
        let sum = &self.sums[number];
        let (figures, warnings) = sum.figures(&self.panels, &self.figures);
        let record = &mut self.records[self.panels.len() + number];
        figures::put(&sum.panel, &figures, &mut record.metrics);
        record.warnings = warnings;
    }
}

impl Sum {
    /// The sums of the members' figures, in the order of the panel's quantities. A sum without one of its members would be a
    /// number that looks like all of them, so there is none, and a warning.
    fn figures(&self, panels: &[Panel], figures: &[Vec<Option<Quantity>>]) -> (Vec<Option<Quantity>>, Vec<Warning>) {
        let figure = |member: usize, name: &str| {
            let place = panels[member].quantities.iter().position(|quantity| quantity.name == name)?;
            *figures[member].get(place)?
        };
        let mut lacks: Vec<(&str, usize)> = Vec::new();
        let sums = self.panel.quantities.iter().map(|quantity| {
            let members = self.members.iter().filter_map(|member| figure(*member, &quantity.name));
            let known = members.clone().count();
            if known > 0 && known < self.members.len() {
                lacks.push((&quantity.name, self.members.len() - known));
            }
            members.reduce(Quantity::plus).filter(|_| known == self.members.len())
        });
        let sums = sums.collect();
        (sums, incomplete(&lacks, self.members.len()).into_iter().collect())
    }
}

/// The quantities of a sum of which some of its `parts` have no figure; each with how many.
fn incomplete(lacks: &[(&str, usize)], parts: usize) -> Option<Warning> {
    let most = lacks.iter().map(|(_, without)| *without).max()?;
    let names: Vec<&str> = lacks.iter().map(|(name, _)| *name).collect();
    Some(warning::NOT_COUNTED.hinted(
        format!("{}: no sum, because {most} of the {parts} parts have no figure", names.join(", ")),
        "the records of the parts and the first record of the run say why",
    ))
}

/// Up to this share of a figure, what its counters may have missed while others had their turn does not matter.
const ROUGH: f64 = 0.02;

/// Whether a figure was scaled, and may be wrong by more than [`ROUGH`], or by nobody knows how much. Of nothing nothing was
/// missed.
fn is_rough(figure: &Quantity) -> bool {
    figure.running.is_some() && figure.value > 0.0 && figure.bound.is_none_or(|bound| bound > ROUGH * figure.value)
}

/// The sums of channels: one per die where there are several, and one of all. Clocks are not added up.
fn sums(panels: &[Panel]) -> Vec<(&'static str, Sum)> {
    let mut dies: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
    for (number, panel) in panels.iter().enumerate().filter(|(_, panel)| panel.scope == "channel") {
        dies.entry(panel.node).or_default().push(number);
    }
    let all: Vec<usize> = dies.values().flatten().copied().collect();
    let summed = |members: Vec<usize>| {
        let mut panel = panels[members[0]].clone();
        // The sum of clocks is no clock; peak and share are right by the sum of cycles.
        panel.metrics.retain(|resolved| resolved.metric.name != "cycles_per_s");
        Sum { panel, members }
    };
    let mut sums = Vec::new();
    if dies.len() > 1 {
        sums.extend(dies.into_values().map(|members| ("die", summed(members))));
    }
    if all.len() > 1 {
        sums.push(("total", summed(all)));
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_has_no_figure_of_which_a_channel_has_none() {
        let tree = pciescope_support::tree::pmu("ali_drw-7.3");
        let choice = super::super::choose(&Root::at(tree.path()), &super::super::Wanted::default()).unwrap();
        let panels = vec![choice.panels[0].clone(); 3];
        let (_, sum) = sums(&panels).pop().unwrap();
        assert_eq!(sum.members, [0, 1, 2]);
        let one = Some(Quantity { value: 1.0, seconds: 1.0, ..Quantity::ZERO });
        let mut figures: Vec<Vec<_>> = panels.iter().map(|panel| vec![one; panel.quantities.len()]).collect();
        let (whole, warnings) = sum.figures(&panels, &figures);
        assert!(whole.iter().all(|figure| figure.unwrap().value == sum.members.len() as f64), "{whole:?}");
        assert_eq!(warnings, []);
        let lacking = *sum.members.last().unwrap();
        // One quantity in doubt, then the whole PMU gone, then all of them.
        figures[lacking][0] = None;
        let (partial, warnings) = sum.figures(&panels, &figures);
        assert_eq!(partial[0], None);
        assert_eq!(partial[1..], whole[1..]);
        assert_eq!((warnings.len(), warnings[0].code.as_str()), (1, "not-counted"));
        assert!(warnings[0].text.contains(&sum.panel.quantities[0].name), "{warnings:?}");
        figures[lacking].clear();
        let (none, warnings) = sum.figures(&panels, &figures);
        assert!(none.iter().all(Option::is_none) && warnings.len() == 1, "{none:?} {warnings:?}");
        figures.iter_mut().for_each(Vec::clear);
        assert_eq!(sum.figures(&panels, &figures).1, [], "the channels' own records say why");
    }

    #[test]
    fn turns_matter_where_the_figure_may_be_wrong() {
        let exact = Quantity { value: 100.0, seconds: 1.0, ..Quantity::ZERO };
        let scaled = |bound| Quantity { running: Some(0.5), bound, ..exact };
        for (figure, matters) in [
            (exact, false),
            (scaled(Some(1.0)), false),
            (scaled(Some(3.0)), true),
            (scaled(None), true),
            (Quantity { value: 0.0, ..scaled(None) }, false),
        ] {
            assert_eq!(is_rough(&figure), matters, "{figure:?}");
        }
    }
}
