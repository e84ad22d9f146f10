//! What the recorder has kept of links: the files of its ring, for `doctor` and `serve`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use pciescope_core::change::{Cause, Subject};
use pciescope_core::text::rate;
use pciescope_core::{Bdf, Record, WatchedLink};
use pciescope_hw::Root;
use pciescope_hw::doctor::RECORDED;
use pciescope_report::jsonl;
use rustix::fs::{FlockOperation, flock};

/// So far back it looks.
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// A link while its records are read.
#[derive(Default)]
struct Track {
    sum: WatchedLink,
    run: String,
    /// When it last changed, and when in its run, in nanoseconds: a file begins with states of the one before.
    at: Option<(SystemTime, u64)>,
    lost_bytes_per_s: f64,
    worst: f64,
}

impl Track {
    /// Adds what the state lost until now.
    fn until(&mut self, now: SystemTime, begin: SystemTime) {
        let since = self.at.map_or(now, |(at, _)| at.max(begin));
        self.sum.lost_bytes += self.lost_bytes_per_s * now.duration_since(since).unwrap_or_default().as_secs_f64();
    }

    fn add(&mut self, record: &Record, at: SystemTime, begin: SystemTime) {
        let (Some(change), Some(interval)) = (&record.change, record.interval) else { return };
        if self.at.is_some_and(|last| last >= (at, interval.end_ns)) {
            return;
        }
        // Of the time between two runs nothing is known.
        if self.run == record.run {
            self.until(at, begin);
        }
        self.run.clone_from(&record.run);
        self.at = Some((at, interval.end_ns));
        let lost = record.metrics.get("lost_bytes_per_s").map_or(0.0, |metric| metric.value);
        self.lost_bytes_per_s = if change.cause == Some(Cause::PowerSaving) { 0.0 } else { lost };
        let is_unasked = change.cause.is_some_and(|cause| Cause::UNASKED.contains(&cause));
        if at < begin || change.is_start() && self.lost_bytes_per_s == 0.0 {
            return;
        }
        let from = change.from.as_ref().map(|from| format!("{from} -> ")).unwrap_or_default();
        let words = format!("{from}{} ({})", change.to, change.cause.map_or("unknown", Cause::name));
        if !change.is_start() {
            self.sum.last.clone_from(&words);
            self.sum.changed_s = at.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs());
        }
        if let Some(cause) = change.cause {
            *self.sum.causes.entry(cause.name()).or_default() += change.times;
        }
        if (is_unasked || self.lost_bytes_per_s > 0.0)
            && (self.sum.worst.is_empty() || self.lost_bytes_per_s > self.worst)
        {
            self.worst = self.lost_bytes_per_s;
            let less =
                if self.worst > 0.0 { format!(", {} less than at best", rate(self.worst)) } else { String::new() };
            self.sum.worst = format!("{}: {words}{less}", record.time);
        }
    }
}

/// What it has kept of the last 7 days, by link; of a recorded tree until its last record.
pub fn read(root: &Root) -> BTreeMap<Bdf, WatchedLink> {
    let folder = root.path(RECORDED);
    let listed = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = listed.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
    paths.sort();
    let (mut records, mut last) = (Vec::new(), SystemTime::UNIX_EPOCH);
    let take = |_: &_, record: Record| {
        if let Ok(at) = humantime::parse_rfc3339(&record.time) {
            last = last.max(at);
            records.extend(
                record.change.as_ref().is_some_and(|change| change.of == Subject::Link).then_some((at, record)),
            );
        }
        Ok::<(), Infallible>(())
    };
    let Ok(()) = jsonl::each_readable(&paths, take, |_| Ok(()));
    // Who writes has the folder locked: then the last states hold until now.
    let is_written = File::open(&folder).is_ok_and(|open| flock(&open, FlockOperation::NonBlockingLockShared).is_err());
    let now = if is_written { SystemTime::now() } else { last };
    let begin = if root.is_live() { SystemTime::now() } else { last } - WEEK;
    let mut links: BTreeMap<Bdf, Track> = BTreeMap::new();
    for (at, record) in &records {
        if let Some(bdf) = record.device.as_ref().and_then(|device| device.bdf) {
            links.entry(bdf).or_default().add(record, *at, begin);
        }
    }
    links.values_mut().for_each(|link| link.until(now, begin));
    links.into_iter().map(|(bdf, link)| (bdf, link.sum)).collect()
}
