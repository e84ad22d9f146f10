//! A thread that works until it is dropped.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};

use pciescope_bench::counters::Host;
use pciescope_core::{Record, Sink};
use pciescope_hw::probe::Watch;
use pciescope_hw::wait::{Waiter, Woken};

use super::Input;

/// The thread. Dropping this ends its wait, asks it to end, and joins it.
pub struct Worker {
    thread: Option<JoinHandle<()>>,
    quit: Arc<AtomicBool>,
    /// Closing it ends a wait.
    wake: Option<UnixStream>,
}

impl Worker {
    /// Starts `work`, which has to end soon after [`Quit::is_set`].
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(name: &str, work: impl FnOnce(Quit) + Send + 'static) -> io::Result<Worker> {
        let (wake, woken) = UnixStream::pair()?;
        let quit = Arc::new(AtomicBool::new(false));
        let mut waiter = Waiter::default();
        waiter.watch_signals(OwnedFd::from(woken));
        let theirs = Quit { quit: Arc::clone(&quit), waiter };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || work(theirs))?;
        Ok(Worker { thread: Some(thread), quit, wake: Some(wake) })
    }

    /// Whether the thread ended by a panic.
    pub fn has_panicked(&mut self) -> bool {
        let is_over = self.thread.as_ref().is_some_and(JoinHandle::is_finished);
        is_over && self.thread.take().is_some_and(|thread| thread.join().is_err())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.quit.store(true, Ordering::Relaxed);
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The wish that a worker ends, and its waits until then.
pub struct Quit {
    quit: Arc<AtomicBool>,
    waiter: Waiter,
}

impl Quit {
    /// Whether the worker is to end.
    pub fn is_set(&self) -> bool {
        self.quit.load(Ordering::Relaxed)
    }
}

impl Host for Quit {
    fn until(&mut self, deadline_ns: Option<u64>) -> io::Result<Woken> {
        // The main thread handles signals.
        loop {
            match self.waiter.until(deadline_ns)? {
                Woken::Signal if !self.is_set() => {}
                other => return Ok(other),
            }
        }
    }
}

impl Watch for Quit {
    fn progress(&self, _done: u64, _total: u64) {}

    fn is_stopped(&self) -> bool {
        self.is_set()
    }
}

/// Passes on records and never waits: records for which there is no room are left out, and counted in `skipped`.
pub struct Sending {
    pub events: SyncSender<Input>,
    pub skipped: Arc<AtomicU64>,
}

impl Sink for Sending {
    fn put(&mut self, record: &Record) -> io::Result<()> {
        self.put_all(std::slice::from_ref(record))
    }

    fn put_all(&mut self, records: &[Record]) -> io::Result<()> {
        if self.events.try_send(Input::Records(records.to_vec())).is_err() {
            self.skipped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}
