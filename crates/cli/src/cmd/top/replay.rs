//! Records of a file, or of the standard input, at the speed at which they were recorded.

use std::io::{BufRead, stdin};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use pciescope_core::Record;
use pciescope_report::{Error, bounded, jsonl};

use super::Input;

/// A writer at the other end of a pipe writes an interval at once: after this time it is whole.
const WHOLE: Duration = Duration::from_millis(100);
/// More records of one interval than any machine has.
const MOST: usize = 10_000;
/// The longest wait between two intervals, also if the records have a longer one.
const LONGEST: Duration = Duration::from_secs(3600);

/// What the user wants of a replay.
#[derive(Debug, Clone, Copy)]
pub enum Command {
    /// Stop or go on.
    Pause(bool),
    /// One interval more.
    Step,
    /// A factor: 2 is twice as fast as recorded.
    Speed(f64),
}

/// Why a replay ended before the end of its file.
#[derive(Debug, Clone)]
pub enum Flaw {
    /// The last line has no end: a killed run leaves one, and it is left out.
    Torn(String),
    /// Something that is no record, or cannot be read.
    Bad(String),
}

impl Flaw {
    /// What is wrong.
    pub fn text(&self) -> &str {
        match self {
            Flaw::Torn(text) | Flaw::Bad(text) => text,
        }
    }
}

/// A record, or what stands where one should.
type Read = Result<Record, Flaw>;

/// The name of a file of records in messages.
pub fn name(path: &Path) -> &Path {
    if path == Path::new("-") { Path::new("(standard input)") } else { path }
}

/// Starts to replay; without a speed intervals come as fast as they are taken.
///
/// # Errors
/// A file that cannot be read or does not begin with a record.
pub fn start(path: &Path, speed: Option<f64>, events: SyncSender<Input>) -> anyhow::Result<Sender<Command>> {
    let (records, taken) = sync_channel(1024);
    if path == Path::new("-") {
        thread::Builder::new()
            .name("reader".to_owned())
            .spawn(move || read(stdin().lock(), name(Path::new("-")), 1, &records))?;
    } else {
        let fail = |source| Error::Read { path: path.to_owned(), source };
        let mut input = jsonl::open(path)?;
        // Anything but a file of records is refused before the screen is taken.
        let mut first = Vec::new();
        bounded::line(&mut input, &mut first).map_err(fail)?;
        if first.is_empty() {
            return Err(Error::NoRecord { path: path.to_owned() }.into());
        }
        let first = jsonl::parse_line(&first, path, 1)?;
        let path = PathBuf::from(path);
        thread::Builder::new().name("reader".to_owned()).spawn(move || {
            if records.send(Ok(first)).is_ok() {
                read(input, &path, 2, &records);
            }
        })?;
    }
    let (commands, asked) = channel();
    thread::Builder::new().name("replay".to_owned()).spawn(move || play(&taken, &asked, speed, &events))?;
    Ok(commands)
}

/// Reads lines to the end; a bad one ends it, with what is wrong.
fn read(mut input: impl BufRead, path: &Path, first: usize, records: &SyncSender<Read>) {
    let mut line = Vec::new();
    for number in first.. {
        line.clear();
        let taken = match bounded::line(&mut input, &mut line) {
            Ok(0) => return,
            Ok(_) if line.iter().all(u8::is_ascii_whitespace) => continue,
            Ok(_) => jsonl::parse_line(&line, path, number).map_err(|err| match &err {
                Error::BadRecord { .. } if line.last() != Some(&b'\n') => Flaw::Torn(format!(
                    "{}:{number}: the last record is unfinished and was left out (the run was killed?)",
                    path.display()
                )),
                _ => Flaw::Bad(format!("{:#}", anyhow::Error::from(err))),
            }),
            Err(source) => Err(Flaw::Bad(format!("{}: {source}", path.display()))),
        };
        let is_bad = taken.is_err();
        if records.send(taken).is_err() || is_bad {
            return;
        }
    }
}

/// The run and the end of its interval; a record without one belongs to the next interval.
fn key(record: &Record) -> Option<(&str, u64)> {
    record.interval.filter(|_| record.instance.is_some()).map(|interval| (record.run.as_str(), interval.end_ns))
}

/// The records of one interval, with what stands before it.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    key: Option<(String, u64)>,
}

impl Batch {
    /// Takes a record, or gives back one of the next interval.
    fn take(&mut self, record: Record) -> Option<Record> {
        let other = key(&record).map(|(run, end)| (run.to_owned(), end));
        if self.records.len() >= MOST || (self.key.is_some() && other.is_some() && self.key != other) {
            return Some(record);
        }
        self.key = self.key.take().or(other);
        self.records.push(record);
        None
    }
}

/// Sends interval after interval, each when it is due.
fn play(taken: &Receiver<Read>, asked: &Receiver<Command>, speed: Option<f64>, events: &SyncSender<Input>) {
    let mut left: Option<Record> = None;
    let mut clock = Clock { speed, is_paused: false, due: Instant::now(), last: None };
    loop {
        let mut batch = Batch::default();
        let mut end: Option<Option<Flaw>> = None;
        if let Some(record) = left.take() {
            batch.take(record);
        }
        while left.is_none() && end.is_none() {
            let next = match batch.records.is_empty() {
                true => taken.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => taken.recv_timeout(WHOLE),
            };
            match next {
                Ok(Ok(record)) => left = batch.take(record),
                Ok(Err(flaw)) => end = Some(Some(flaw)),
                Err(RecvTimeoutError::Disconnected) => end = Some(None),
                // The first record of a run comes long before the first interval, and is worth showing.
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        if !batch.records.is_empty()
            && (!clock.wait(&batch, asked) || events.send(Input::Records(batch.records)).is_err())
        {
            return;
        }
        if let Some(flaw) = end {
            let _ = events.send(Input::Ended(flaw));
            return;
        }
    }
}

/// When the next interval is due.
struct Clock {
    /// `None`: at once.
    speed: Option<f64>,
    is_paused: bool,
    due: Instant,
    last: Option<(String, u64)>,
}

impl Clock {
    /// Waits until an interval is due, doing what the user asks meanwhile; `false` when nobody is left to see it.
    fn wait(&mut self, batch: &Batch, asked: &Receiver<Command>) -> bool {
        let Some(speed) = self.speed else { return true };
        let gap = match (&self.last, &batch.key) {
            (Some((run, end)), Some((same, next))) if run == same => Duration::from_nanos(next.saturating_sub(*end)),
            (Some(_), Some(_)) => Duration::from_secs(1),
            _ => Duration::ZERO,
        };
        self.last = batch.key.clone().or_else(|| self.last.take());
        let gap = gap.as_secs_f64() / speed;
        self.due += Duration::try_from_secs_f64(gap).unwrap_or(LONGEST).min(LONGEST);
        loop {
            let now = Instant::now();
            let command = match self.is_paused {
                true => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => asked.recv_timeout(self.due.saturating_duration_since(now)),
            };
            match command {
                Ok(Command::Pause(is_paused)) => {
                    self.is_paused = is_paused;
                    self.due = Instant::now();
                }
                Ok(Command::Step) => return true,
                Ok(Command::Speed(new)) => {
                    let rest = self.due.saturating_duration_since(Instant::now()).as_secs_f64();
                    let rest = rest * self.speed.unwrap_or(1.0) / new;
                    self.due = Instant::now() + Duration::try_from_secs_f64(rest).unwrap_or(LONGEST).min(LONGEST);
                    self.speed = Some(new);
                }
                Err(RecvTimeoutError::Timeout) => {
                    // Late intervals are not caught up with.
                    self.due = self.due.max(Instant::now());
                    return true;
                }
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }
}
