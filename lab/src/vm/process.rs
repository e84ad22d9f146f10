//! QEMU as a child process that never outlives its owner.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::LabError;

/// How often the watching thread looks.
const TICK: Duration = Duration::from_millis(10);

/// A running QEMU. A separate thread starts it and waits for it. QEMU ends with the thread that started it
/// (`-run-with exit-with-parent`), so the caller's thread must not start it.
#[derive(Debug)]
pub(super) struct Process {
    kill: Arc<AtomicBool>,
    stop: Arc<AtomicUsize>,
    status: Arc<Mutex<Option<ExitStatus>>>,
    id: u32,
    watcher: Option<JoinHandle<()>>,
    errors: std::path::PathBuf,
}

impl Process {
    /// Starts `command`; its standard error goes to `errors`.
    /// A signal's number in `stop` ends it.
    pub fn start(
        mut command: Command,
        errors: &Path,
        interactive: bool,
        stop: &Arc<AtomicUsize>,
    ) -> Result<Process, LabError> {
        let file = fs::File::create(errors).map_err(LabError::file("create", errors))?;
        command.args(["-run-with", "exit-with-parent=on"]).stderr(file);
        if !interactive {
            command.stdin(Stdio::null()).stdout(Stdio::null());
        }
        let kill = Arc::new(AtomicBool::new(false));
        let status = Arc::new(Mutex::new(None));
        let (sender, started) = mpsc::channel();
        let watcher = thread::Builder::new()
            .name("qemu".into())
            .spawn({
                let (kill, status, stop) = (Arc::clone(&kill), Arc::clone(&status), Arc::clone(stop));
                move || {
                    let child = command.spawn();
                    let id = child.as_ref().map(Child::id);
                    // The other side waits for this message before it does anything else.
                    let _ = sender.send(id.map_err(|error| std::io::Error::new(error.kind(), error.to_string())));
                    if let Ok(child) = child {
                        let ended = watch(child, &kill, &stop);
                        *status.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = ended;
                    }
                }
            })
            .map_err(LabError::file("start a thread for", "qemu-system-x86_64"))?;
        match started.recv() {
            Ok(Ok(id)) => {
                let (stop, errors) = (Arc::clone(stop), errors.to_owned());
                Ok(Process { kill, stop, status, id, watcher: Some(watcher), errors })
            }
            Ok(Err(source)) => Err(LabError::file("start", "qemu-system-x86_64")(source)),
            Err(_) => Err(LabError::Refused("the thread of QEMU ended before it started".into())),
        }
    }

    /// The number of QEMU's process.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// How QEMU ended and what it said last, or `None` while it lives.
    pub fn ended(&self) -> Option<String> {
        if self.watcher.as_ref().is_some_and(|watcher| !watcher.is_finished()) {
            return None;
        }
        let status = *self.status.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut words = String::new();
        // What cannot be read is left out of a message that is about something else.
        let _ = fs::File::open(&self.errors).and_then(|mut file| file.read_to_string(&mut words));
        let last = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let status = status.map_or_else(|| "killed".to_owned(), |status| format!("QEMU's {status}"));
        Some(if last.is_empty() { status } else { format!("{status}: {last}") })
    }

    /// Whether a signal has asked for its end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }

    /// Waits for QEMU to end by itself; whether it did.
    pub fn wait(&self, wait: Duration) -> bool {
        let end = Instant::now() + wait;
        while self.ended().is_none() {
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(TICK);
        }
        true
    }

    /// Ends QEMU now.
    pub fn kill(&mut self) {
        self.kill.store(true, Ordering::Release);
        if let Some(watcher) = self.watcher.take() {
            // It panics nowhere; were it to, QEMU would be gone with it.
            let _ = watcher.join();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn watch(mut child: Child, kill: &AtomicBool, stop: &AtomicUsize) -> Option<ExitStatus> {
    let is_over = || kill.load(Ordering::Acquire) || stop.load(Ordering::Relaxed) != 0;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if !is_over() => thread::sleep(TICK),
            _ => {
                let _ = child.kill();
                return child.wait().ok();
            }
        }
    }
}
