//! Rows and groups as records.

use pciescope_core::warning;
use std::collections::BTreeMap;

use pciescope_core::plan::Plan;
use pciescope_core::readout::{SUMMARY, TEST};
use pciescope_core::record::{Interval, Warning};
use pciescope_core::{Access, Bdf, Failure, Function, Identity, Link, Method, Metric, Record, Sink, Stream, Work};
use pciescope_hw::ceiling;

use super::group::{Outcome, Task};
use super::plan::{Group, Source};
use super::row::{Active, Row};
use crate::error::Error;
use crate::journal::{Journal, Summary};
use pciescope_core::text::chain;

/// The run and the group that records describe.
pub(super) struct Context<'s> {
    pub task: &'s Task<'s>,
    pub group: &'s Group,
    pub number: u32,
}

impl<'s> Context<'s> {
    /// The device at this place of the group.
    fn source(&self, place: usize) -> Option<&'s Source> {
        self.task.devices.get(*self.group.devices.get(place)?)
    }
}

/// Writes the rows and summaries of groups.
pub(super) struct Writer<'w>(Journal<'w>);

impl<'w> Writer<'w> {
    /// Writes the record of the environment too.
    pub fn begin(sink: &'w mut dyn Sink, task: &Task<'_>) -> Result<Self, Error> {
        let mut journal = Journal::new(Identity::new("readout", task.label.clone()), sink);
        let plan = task.groups.first().map(|group| task.options.stated(&group.plan)).unwrap_or_default();
        journal.put(Record::first(task.environment.clone(), Plan::Readout(plan), task.warnings.clone()))?;
        Ok(Writer(journal))
    }

    /// Writes the rows of a group and its summary.
    pub fn group(&mut self, context: &Context<'_>, outcome: Outcome) -> Result<(), Error> {
        let Outcome { taken, origin_ns, active, metrics, profile } = outcome;
        let mut total = summary(context);
        total.metrics = metrics;
        let (mut speed, mut end_ns) = (0.0, 0);
        for (place, taken) in taken.into_iter().enumerate() {
            let Some(source) = context.source(place) else { continue };
            let mut rows = taken.rows;
            if taken.failure.as_ref().is_some_and(|(at, _)| *at >= rows.len()) {
                rows.push(Row { function: Work::Readout.row_name().to_owned(), is_reading: true, ..Row::default() });
            }
            let failed = taken.failure.map(|(at, failure)| (at.min(rows.len() - 1), failure));
            let active_speed = active.speed(place);
            speed += mean_speed(&rows).unwrap_or(0.0);
            for (at, row) in rows.iter().enumerate() {
                let mut record = record(context, source, row, origin_ns);
                record.error = failed.as_ref().filter(|(failed, _)| *failed == at).map(|(_, failure)| failure.clone());
                if let Some(speed) = active_speed.filter(|_| row.is_reading && at == 0) {
                    record.metrics.insert("active_speed".to_owned(), Metric::of(speed, "bytes/s"));
                }
                end_ns = end_ns.max(row.end_ns);
                self.judge(context, source, row);
                self.0.put(record)?;
            }
        }
        total.interval = Some(Interval { start_ns: 0, end_ns: end_ns.saturating_sub(origin_ns) });
        if speed > 0.0 {
            total.metrics.insert("speed".to_owned(), Metric::of(speed, "bytes/s"));
        }
        if active.ns > 0 {
            let speed = active.bytes.iter().sum::<f64>() / active.ns as f64 * 1e9;
            total.metrics.insert("active_speed".to_owned(), Metric::of(speed, "bytes/s"));
            total.metrics.insert("active".to_owned(), Metric::ns(active.ns as f64));
            total.warnings.extend(shared_links(context, &active));
        }
        match profile {
            None => {}
            Some(Ok(profile)) => {
                total.metrics.insert("hot_spot_samples".to_owned(), Metric::count(profile.samples));
                total.hot_spots = profile.spots;
                total.method =
                    Some(Method { backend: profile.kind.to_owned(), notes: profile.notes, ..Method::default() });
            }
            Some(Err(err)) => total.warnings.push(warning::NO_HOT_SPOTS.hinted(
                format!("the functions in which the time went cannot be found out: {}", chain(&err)),
                err.hint().unwrap_or_else(|| "the figures stand without them".to_owned()),
            )),
        }
        self.0.put(total)
    }

    /// Figures that fail the run.
    fn judge(&mut self, context: &Context<'_>, source: &Source, row: &Row) {
        let place = format!("{}: {}", source.path.display(), row.function);
        if let Some(wrong) = &row.finding.first {
            let text = format!("{place}: {} bytes are wrong, the first {wrong}", row.finding.wrong);
            self.0.summary.failed_checks.push(text);
        }
        let floor = context.task.options.min_bytes_per_s.filter(|_| row.is_reading);
        if let (Some(floor), Some(speed)) = (floor, row.speed()) {
            if speed < floor {
                let (speed, floor) = (speed / 1e6, floor / 1e6);
                self.0.summary.failed_checks.push(format!("{place}: {speed:.1} MB/s, less than {floor:.1} MB/s"));
            }
        }
    }

    pub fn finish(mut self, is_stopped: bool) -> Result<Summary, Error> {
        if is_stopped && !self.0.summary.failures.iter().any(Failure::is_interrupted) {
            self.0.interrupted(SUMMARY)?;
        }
        self.0.finish()
    }
}

/// The summary of a group, still without its figures.
fn summary(context: &Context<'_>) -> Record {
    let plan = &context.group.plan;
    Record {
        test: SUMMARY.to_owned(),
        stream: Some(Stream {
            access: plan.access.name().to_owned(),
            wait: (plan.cycles > 0).then(|| plan.wait.name().to_owned()),
            samples: plan.samples,
            devices: context.group.devices.len() as u32,
            sweep: context.group.sweep.map(str::to_owned),
            group: context.number,
            ..Stream::default()
        }),
        plan: Some(Plan::Readout(context.task.options.stated(plan))),
        ..Record::default()
    }
}

/// The speed of a device's first function, over all its cycles.
fn mean_speed(rows: &[Row]) -> Option<f64> {
    let first = rows.iter().find(|row| row.is_reading)?;
    let same = || rows.iter().filter(|row| row.function == first.function);
    let bytes: f64 = same().map(|row| row.bytes as f64 * row.repeats as f64).sum();
    let ns: u64 = same().map(|row| row.busy_ns).sum();
    (ns > 0).then(|| bytes / ns as f64 * 1e9)
}

/// Links that carry several devices: what all moved in the time in which all were read must fit.
fn shared_links(context: &Context<'_>, active: &Active) -> Vec<Warning> {
    let mut links: BTreeMap<Bdf, (Link, f64, u32)> = BTreeMap::new();
    for place in 0..context.group.devices.len() {
        let (Some(source), Some(speed)) = (context.source(place), active.speed(place)) else { continue };
        for (bdf, link) in way(source) {
            let entry = links.entry(bdf).or_insert((link, 0.0, 0));
            entry.1 += speed;
            entry.2 += 1;
        }
    }
    let above = links.into_iter().filter(|(_, (_, _, devices))| *devices > 1);
    above
        .filter_map(|(bdf, (link, speed, devices))| {
            let ceiling = ceiling::payload_bytes_per_s(&link).filter(|ceiling| speed > *ceiling)?;
            Some(above_ceiling(&format!("{devices} devices below {bdf}"), speed, ceiling))
        })
        .collect()
}

fn above_ceiling(who: &str, speed: f64, ceiling: f64) -> Warning {
    let (speed, ceiling) = (speed / 1e6, ceiling / 1e6);
    warning::ABOVE_CEILING.warn(format!(
        "{who}: {speed:.1} MB/s cannot have come over a link that carries {ceiling:.1} MB/s: the figure is invalid"
    ))
}

/// The links from the root port down to a device, by the function at the lower end of each.
fn way(source: &Source) -> impl Iterator<Item = (Bdf, Link)> + '_ {
    let is_on_it = source.about.function.is_some();
    // Root port, upstream port, downstream port, endpoint: the pair inside a switch has no link.
    let pairs = source.about.way.chunks_exact(2).filter(move |_| is_on_it);
    let count = source.about.way.len() / 2;
    // A guest's switch is its hypervisor's, so the link that it shows carries no data.
    let real = pairs.enumerate().filter(move |(place, pair)| place + 1 == count || pair[1].emulated.is_none());
    real.filter_map(|(_, pair)| Some((pair[1].bdf?, pair[1].link?)))
}

/// What must be said of a rate at which a file or disk was read through the page cache; `None` where it was not.
fn page_cache(source: &Source, access: Access, speed: f64) -> Option<Warning> {
    let about = &source.about;
    let is_cached = matches!(access, Access::Read | Access::Mmap) && matches!(about.kind, "file" | "block");
    if !is_cached || about.function.is_some() {
        return None;
    }
    let links = about.way.iter().filter_map(|function| function.link);
    let carries = links.filter_map(|link| ceiling::payload_bytes_per_s(&link)).min_by(f64::total_cmp);
    let (path, rate) = (source.path.display(), speed / 1e6);
    let text = match carries.filter(|carries| speed > *carries) {
        Some(carries) => {
            let carries = carries / 1e6;
            format!(
                "{path}: {rate:.0} MB/s is more than its link carries ({carries:.0} MB/s): the bytes came from the page cache"
            )
        }
        None => format!("{path}: read through the page cache: the rate may be that of memory, not of the device"),
    };
    let hint = "read past the page cache, with -B direct or -B io_uring".to_owned();
    Some(warning::PAGE_CACHE.hinted(text, hint))
}

/// What a link of the way can carry at most, in bytes per second: the slowest of them.
fn ceiling(source: &Source) -> Option<f64> {
    way(source).filter_map(|(_, link)| ceiling::payload_bytes_per_s(&link)).min_by(f64::total_cmp)
}

fn record(context: &Context<'_>, source: &Source, row: &Row, origin_ns: u64) -> Record {
    let (about, plan) = (&source.about, &context.group.plan);
    let mut record = Record {
        test: TEST.to_owned(),
        device: about.function.clone(),
        stream: Some(Stream {
            path: source.path.display().to_string(),
            kind: about.kind.to_owned(),
            model: about.model.clone(),
            access: plan.access.name().to_owned(),
            wait: (plan.cycles > 0).then(|| plan.wait.name().to_owned()),
            function: row.function.clone(),
            is_fused: row.is_fused,
            samples: plan.samples,
            piece_bytes: (row.piece_bytes > 0).then_some(row.piece_bytes as u64),
            depth: about.depth.filter(|_| row.is_reading),
            check: row.check.map(|check| check.to_string()),
            cycle: row.cycle,
            conversion: row.conversion.clone(),
            devices: context.group.devices.len() as u32,
            sweep: context.group.sweep.map(str::to_owned),
            group: context.number,
        }),
        method: Some(method(context, source, row)),
        metrics: metrics(row),
        ..Record::default()
    };
    let environment = &context.task.environment;
    let only = source.cpus.as_ref().filter(|cpus| cpus.len() == 1).and_then(|cpus| cpus.iter().next());
    record.cpu = only.and_then(|number| environment.cpus.iter().find(|cpu| cpu.cpu == number).cloned());
    if row.repeats > 0 {
        record.interval = Some(Interval {
            start_ns: row.start_ns.saturating_sub(origin_ns),
            end_ns: row.end_ns.saturating_sub(origin_ns),
        });
    }
    for (name, histogram) in [("duration", &row.durations), ("acquire", &row.acquire), ("read", &row.reads)] {
        if histogram.count() > 1 {
            record.histograms.insert(name.to_owned(), histogram.clone());
        }
    }
    if let (true, Some(ceiling), Some(speed)) = (row.is_reading, ceiling(source), row.speed()) {
        record.metrics.insert("ceiling".to_owned(), Metric::of(ceiling, "bytes/s"));
        record.metrics.insert("of_ceiling".to_owned(), Metric::of(speed / ceiling * 100.0, "%"));
        if speed > ceiling {
            record.warnings.push(above_ceiling(&source.path.display().to_string(), speed, ceiling));
        }
    }
    if let (true, Some(speed)) = (row.is_reading, row.speed()) {
        record.warnings.extend(page_cache(source, plan.access, speed));
    }
    if let Some(wrong) = &row.finding.first {
        record.warnings.push(warning::WRONG_DATA.warn(format!(
            "{}: {} bytes are wrong, the first {wrong}",
            source.path.display(),
            row.finding.wrong
        )));
    }
    record
}

fn method(context: &Context<'_>, source: &Source, row: &Row) -> Method {
    let options = &context.task.options;
    let mut notes = source.about.notes.clone();
    if row.is_reading && options.is_all_checked && row.finding.right + row.finding.wrong > 0 {
        let is_in_pieces = options.piece.is_some() || options.is_fused || context.group.plan.access == Access::Ring;
        notes.push(match is_in_pieces {
            true => "Every piece was compared as it came; the time for that is in the duration.".to_owned(),
            false => "Every repeat was compared; the time for that is left out of the duration.".to_owned(),
        });
    }
    if let Some(asked) =
        options.piece.filter(|asked| row.piece_bytes > 0 && (*asked).min(row.bytes as usize) > row.piece_bytes)
    {
        notes.push(format!("Pieces of {asked} bytes were asked for; at most {} came at a time.", row.piece_bytes));
    }
    Method {
        backend: source.about.kind.to_owned(),
        clock: "monotonic".to_owned(),
        clock_hz: 1_000_000_000,
        quantum_ns: 1.0,
        batch: 1,
        order: "concurrent".to_owned(),
        emulated: source.about.function.as_ref().is_some_and(|function: &Function| function.emulated.is_some()),
        notes,
        ..Method::default()
    }
}

/// The figures of a row, by the names of [`pciescope_core::readout`].
fn metrics(row: &Row) -> BTreeMap<String, Metric> {
    let mut all = BTreeMap::new();
    let mut put = |name: &str, value: Option<f64>, unit: &str| {
        all.extend(value.filter(|value| value.is_finite()).map(|value| (name.to_owned(), Metric::of(value, unit))));
    };
    let repeats = row.repeats as f64;
    let of_repeat = |ns: u64| (row.repeats > 0).then_some(ns as f64 / repeats);
    put("size", (row.bytes > 0).then_some(row.bytes as f64), "bytes");
    put("repeats", Some(repeats), "1");
    put("cycles", Some(row.cycles as f64), "1");
    put("duration", row.duration_ns(), "ns");
    put("speed", row.speed(), "bytes/s");
    put("cv", row.cv_percent(), "%");
    put("convert", row.convert_ns.and_then(of_repeat), "ns");
    put("acquire", row.acquire.mean_ns(), "ns");
    put("polls", row.polls.map(|polls| polls as f64), "1");
    if let Some(costs) = &row.costs {
        put("setup", of_repeat(costs.setup_ns), "ns");
        put("dma", of_repeat(costs.dma_ns), "ns");
        put("wakeup", of_repeat(costs.wakeup_ns), "ns");
        put("copy", of_repeat(costs.copy_ns), "ns");
        put("lost_interrupts", Some(costs.lost_interrupts as f64), "1");
        put("timeouts", Some(costs.timeouts as f64), "1");
        put("short_dmas", Some(costs.short_dmas as f64), "1");
        put("stalls", Some(costs.stalls as f64), "1");
        put("stall", Some(costs.stall_ns as f64), "ns");
    }
    if let Some((user_ns, system_ns)) = row.cpu_ns {
        put("cpu_user", Some(user_ns as f64), "ns");
        put("cpu_system", Some(system_ns as f64), "ns");
        let gb = row.bytes as f64 * repeats / 1e9;
        put("cpu_per_gb", (gb > 0.0).then(|| (user_ns + system_ns) as f64 / 1e9 / gb), "s/GB");
    }
    if row.finding.right + row.finding.wrong > 0 {
        put("verified", Some(row.finding.right as f64), "bytes");
        put("wrong", Some(row.finding.wrong as f64), "bytes");
    }
    all
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pciescope_core::{Environment, ReadoutPlan};
    use pciescope_hw::Root;
    use pciescope_hw::daq::{self, About, Options, Trigger};

    use super::*;
    use crate::readout::{Board, ReadoutOptions};

    const BRIDGE: u32 = 0x06_0400;

    fn function(bdf: &str, class: u32, speed_gts: f64) -> Function {
        let link = Link { speed_gts, width: 4, mps_bytes: Some(256), ..Link::default() };
        Function { bdf: bdf.parse().ok(), class, link: Some(link), ..Function::default() }
    }

    /// A board of 8 GT/s behind a switch of 2.5 GT/s.
    fn source(bdf: &str, emulated: Option<&str>) -> Source {
        let board = function(bdf, 0x11_8000, 8.0);
        let mut way = vec![
            function("0000:00:01.0", BRIDGE, 2.5),
            function("0000:01:00.0", BRIDGE, 2.5),
            function("0000:02:00.0", BRIDGE, 8.0),
            board.clone(),
        ];
        way.iter_mut().for_each(|function| function.emulated = emulated.map(str::to_owned));
        let about = About { function: Some(board), way, ..About::default() };
        Source { path: bdf.into(), about, is_digitizer: true, cpus: None, node: None }
    }

    fn with_context(see: impl FnOnce(&Context<'_>)) {
        let open = |path: &Path, options: &Options| daq::open(&Root::at("/"), path, options);
        let task = Task {
            devices: vec![source("0000:03:00.0", None), source("0000:04:00.0", None)],
            groups: Vec::new(),
            options: ReadoutOptions {
                check: None,
                is_all_checked: false,
                is_each: false,
                is_fused: false,
                piece: None,
                depth: 0,
                board: Board { channels: 1, divider: None, trigger: Trigger::Now },
                timeout_ms: 1,
                hot_spots: None,
                min_bytes_per_s: None,
                isa: None,
            },
            environment: Environment::default(),
            warnings: Vec::new(),
            label: None,
            open: &open,
        };
        let group = Group { sweep: None, devices: vec![0, 1], plan: ReadoutPlan::default() };
        see(&Context { task: &task, group: &group, number: 0 });
    }

    fn row(bytes: u64) -> Row {
        let mut row = Row { is_reading: true, bytes, ..Row::default() };
        row.repeat(0, 0, 1_000_000);
        row.busy_ns = 1_000_000;
        row
    }

    #[test]
    fn a_rate_above_the_slowest_link_is_invalid() {
        // 2.5 GT/s x4 with 256 bytes to a packet: 927.5 MB/s.
        with_context(|context| {
            let of = |bytes| record(context, &context.task.devices[0], &row(bytes), 0);
            assert!(of(927_000).warnings.is_empty());
            assert_eq!(of(928_000).warnings[0].code, "above-ceiling");
            assert!((of(463_768).metrics["of_ceiling"].value - 50.0).abs() < 0.01);
        });
    }

    #[test]
    fn devices_that_share_a_link_must_fit_it_together() {
        with_context(|context| {
            let active = |bytes| Active { ns: 1_000_000, bytes: vec![bytes; 2] };
            assert!(shared_links(context, &active(460_000.0)).is_empty());
            let above = shared_links(context, &active(600_000.0));
            assert!(above.len() == 1 && above[0].text.contains("2 devices below 0000:01:00.0"), "{above:?}");
        });
    }

    #[test]
    fn in_a_guest_the_devices_own_link_counts() {
        let emulated = ceiling(&source("0000:03:00.0", Some("it is a guest"))).unwrap();
        assert!((emulated / 1e6 - 3653.0).abs() < 1.0, "{emulated}");
    }
}
