//! Records of this machine: one thread reads the counters, another the functions every few seconds.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pciescope_bench::counters::{self, Choice, Host, Task};
use pciescope_core::plan::StatPlan;
use pciescope_core::{Failure, Record, Sink};
use pciescope_hw::wait::{Waiter, Woken};
use pciescope_hw::{Root, environment, pci};

use super::Event;
use crate::cmd::hint_of;

/// The machine's functions are read this often: links that retrain, drivers that change.
const REFRESH: Duration = Duration::from_secs(10);

/// An error as the screen shows it.
pub fn failure(err: &anyhow::Error) -> Failure {
    Failure { code: "refused".to_owned(), text: format!("{err:#}"), hint: err.chain().find_map(hint_of) }
}

/// Counters that are read by a thread until this is dropped.
pub struct Counting {
    thread: Option<JoinHandle<()>>,
    quit: Arc<AtomicBool>,
    /// Closing it ends a wait.
    stop: Option<UnixStream>,
}

impl Counting {
    /// Starts to count. Intervals that find no room in `events` are counted in `skipped`: the count does not wait.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        root: &Root,
        choice: Choice,
        interval_ns: u64,
        events: SyncSender<Event>,
        skipped: Arc<AtomicU64>,
    ) -> io::Result<Counting> {
        let (stop, ended) = UnixStream::pair()?;
        let quit = Arc::new(AtomicBool::new(false));
        let ours = Arc::clone(&quit);
        let root = root.clone();
        let plan = StatPlan { interval_ns: Some(interval_ns), ..StatPlan::default() };
        let work = move || {
            let task = Task { choice, plan, environment: environment::read(&root), label: None };
            let mut waiter = Waiter::default();
            waiter.watch_signals(OwnedFd::from(ended));
            let mut sink = Sending { events: events.clone(), skipped };
            let mut until = Until { waiter, quit: ours };
            let ended = match counters::measure(&root, task, &mut until, &mut sink) {
                Ok(summary) => summary.failures.last().filter(|_| !until.quit.load(Ordering::Relaxed)).cloned(),
                Err(err) => Some(failure(&err.into())),
            };
            if let Some(ended) = ended {
                let _ = events.send(Event::NotCounted(ended));
            }
        };
        let thread = thread::Builder::new().name("counters".to_owned()).spawn(work)?;
        Ok(Counting { thread: Some(thread), quit, stop: Some(stop) })
    }

    /// Whether the thread came to an end by a panic.
    pub fn has_panicked(&mut self) -> bool {
        let is_over = self.thread.as_ref().is_some_and(JoinHandle::is_finished);
        is_over && self.thread.take().is_some_and(|thread| thread.join().is_err())
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.quit.store(true, Ordering::Relaxed);
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until a time, or until the other end of a pair of sockets is closed.
struct Until {
    waiter: Waiter,
    quit: Arc<AtomicBool>,
}

impl Host for Until {
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn until(&mut self, deadline_ns: Option<u64>) -> io::Result<Woken> {
        // The main thread handles signals.
        loop {
            match self.waiter.until(deadline_ns)? {
                Woken::Signal if !self.quit.load(Ordering::Relaxed) => {}
                other => return Ok(other),
            }
        }
    }
}

/// Sends records on without ever waiting.
struct Sending {
    events: SyncSender<Event>,
    skipped: Arc<AtomicU64>,
}

impl Sink for Sending {
    fn put(&mut self, record: &Record) -> io::Result<()> {
        self.put_all(std::slice::from_ref(record))
    }

    fn put_all(&mut self, records: &[Record]) -> io::Result<()> {
        if self.events.try_send(Event::Records(records.to_vec())).is_err() {
            self.skipped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Reads the machine's functions every few seconds, and when asked to, until the asking end is dropped.
///
/// # Errors
/// When no thread can be started.
pub fn watch_functions(root: &Root, asked: Receiver<()>, events: SyncSender<Event>) -> io::Result<()> {
    let root = root.clone();
    let work = move || {
        let mut before = Vec::new();
        while !matches!(asked.recv_timeout(REFRESH), Err(RecvTimeoutError::Disconnected)) {
            // Keep the last list while the machine cannot be read.
            let Ok(functions) = pci::functions(&root) else { continue };
            if functions != before {
                before.clone_from(&functions);
                if events.send(Event::Functions(functions)).is_err() {
                    return;
                }
            }
        }
    };
    thread::Builder::new().name("functions".to_owned()).spawn(work).map(drop)
}
