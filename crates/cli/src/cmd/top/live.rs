//! Records of this machine: one thread reads the counters, another the functions every few seconds.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use pciescope_bench::counters::{self, Choice, Task};
use pciescope_core::Failure;
use pciescope_core::plan::StatPlan;
use pciescope_hw::{Root, environment, pci};

use super::Input;
use super::worker::{Sending, Worker};
use crate::cmd::{hint_of, recorded};

/// The machine's functions are read this often: links that retrain, drivers that change.
const REFRESH: Duration = Duration::from_secs(10);
/// What the recorder has kept is read after so many of these times.
const RECORDED: u32 = 30;

/// An error as the screen shows it.
pub fn failure(err: &anyhow::Error) -> Failure {
    Failure::refused(format!("{err:#}"), err.chain().find_map(hint_of))
}

/// Counts in a thread. Intervals that find no room in `events` are counted in `skipped`: the count does not wait.
///
/// # Errors
/// When no thread can be started.
pub fn count(
    root: &Root,
    choice: Choice,
    interval_ns: u64,
    events: SyncSender<Input>,
    skipped: Arc<AtomicU64>,
) -> io::Result<Worker> {
    let root = root.clone();
    let plan = StatPlan { interval_ns: Some(interval_ns), ..StatPlan::default() };
    Worker::start("counters", move |mut quit| {
        let task = Task { choice, plan, environment: environment::read(&root), label: None };
        let mut sink = Sending { events, skipped };
        let ended = match counters::measure(&root, task, &mut quit, &mut sink) {
            Ok(summary) => summary.failures.last().filter(|_| !quit.is_set()).cloned(),
            Err(err) => Some(failure(&err.into())),
        };
        if let Some(ended) = ended {
            let _ = sink.events.send(Input::NotCounted(ended));
        }
    })
}

/// Reads the machine's functions every few seconds, and when asked to, until the asking end is dropped.
///
/// # Errors
/// When no thread can be started.
pub fn watch_functions(root: &Root, asked: Receiver<()>, events: SyncSender<Input>) -> io::Result<()> {
    let root = root.clone();
    let work = move || {
        let mut before = Vec::new();
        for round in 1.. {
            if matches!(asked.recv_timeout(REFRESH), Err(RecvTimeoutError::Disconnected)) {
                return;
            }
            if round % RECORDED == 0 && events.send(Input::Watched(recorded::read(&root))).is_err() {
                return;
            }
            let functions = pci::functions(&root).all;
            if functions != before {
                before.clone_from(&functions);
                if events.send(Input::Functions(functions)).is_err() {
                    return;
                }
            }
        }
    };
    thread::Builder::new().name("functions".to_owned()).spawn(work).map(drop)
}
