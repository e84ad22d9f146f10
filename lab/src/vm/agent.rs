//! The host's end of the command channel.
//!
//! A command is a script in the folder that both sides share; its number goes over a serial port of its own, and "done NUMBER STATUS"
//! comes back when it has ended. Output is written to the shared folder as it comes, so what a guest that dies has said
//! is not lost.
//!
//! The channel is a plain serial port, because it needs no driver that a test could break, and adds no PCI function to
//! the machine that is measured.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;
use std::{fs, thread};

use super::LabError;

/// What the guest's agent has said so far.
#[derive(Debug, Default)]
struct Heard {
    is_ready: bool,
    ended: HashMap<u32, i32>,
}

#[derive(Debug, Default)]
struct Shared {
    heard: Mutex<Heard>,
    news: Condvar,
}

impl Shared {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The command channel of one guest.
#[derive(Debug)]
pub(super) struct Agent {
    port: Mutex<UnixStream>,
    shared: Arc<Shared>,
    folder: PathBuf,
    next: Mutex<u32>,
}

impl Agent {
    /// Connects to the port; `folder` is the host's side of the shared folder.
    pub fn connect(socket: &Path, folder: &Path) -> Result<Agent, LabError> {
        let failed = || LabError::file("reach the guest's port", socket);
        let port = UnixStream::connect(socket).map_err(failed())?;
        let shared = Arc::new(Shared::default());
        let reader = port.try_clone().map_err(failed())?;
        thread::Builder::new()
            .name("lab agent".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || listen(reader, &shared)
            })
            .map_err(failed())?;
        Ok(Agent { port: Mutex::new(port), shared, folder: folder.join("cmd"), next: Mutex::new(1) })
    }

    /// Starts a script in the guest and returns its number.
    pub fn start(&self, script: &str) -> Result<u32, LabError> {
        let number = {
            let mut next = self.next.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            *next += 1;
            *next - 1
        };
        let path = self.path(number, "sh");
        // The process id of the session, for signals; then the script itself.
        fs::write(&path, format!("echo $$ >/host/cmd/{number}.pid\n{script}\n"))
            .map_err(LabError::file("write", &path))?;
        let mut port = self.port.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        port.write_all(format!("{number}\n").as_bytes())
            .map_err(LabError::file("write to the guest's port for", &path))?;
        Ok(number)
    }

    /// Whether the guest has said that it is ready; waits at most `tick` for news.
    pub fn is_ready(&self, tick: Duration) -> bool {
        self.wait(tick, |heard| heard.is_ready.then_some(())).is_some()
    }

    /// The exit status of a command that has ended; waits at most `tick` for news.
    pub fn status(&self, number: u32, tick: Duration) -> Option<i32> {
        self.wait(tick, |heard| heard.ended.get(&number).copied())
    }

    fn wait<T>(&self, tick: Duration, answer: impl Fn(&Heard) -> Option<T>) -> Option<T> {
        let heard = self.shared.heard();
        if let Some(answer) = answer(&heard) {
            return Some(answer);
        }
        match self.shared.news.wait_timeout(heard, tick) {
            Ok((heard, _)) => answer(&heard),
            Err(_) => None,
        }
    }

    /// A command's file: `sh`, `out`, `err` or `pid`.
    pub fn path(&self, number: u32, kind: &str) -> PathBuf {
        self.folder.join(format!("{number}.{kind}"))
    }
}

/// Notes what the guest says until the port closes.
fn listen(port: UnixStream, shared: &Shared) {
    for line in BufReader::new(port).lines().map_while(Result::ok) {
        let mut words = line.split_whitespace();
        let mut heard = shared.heard();
        match (words.next(), words.next(), words.next()) {
            (Some("ready"), None, None) => heard.is_ready = true,
            (Some("done"), Some(number), Some(status)) => {
                if let (Ok(number), Ok(status)) = (number.parse(), status.parse()) {
                    heard.ended.insert(number, status);
                }
            }
            // Only the agent writes here; anything else is left to the timeout of whoever waits.
            _ => {}
        }
        shared.news.notify_all();
    }
}
