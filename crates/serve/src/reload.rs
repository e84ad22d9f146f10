//! The configuration in force. Requests make the server compare its files again, so that a renewed certificate or another
//! password needs no restart. Files that cannot be used change nothing; the log says so.

use pciescope_core::text::chain;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Config;

/// The files are compared no more often than this, however many requests come.
const REFRESH: Duration = Duration::from_secs(1);

/// The configuration in force.
pub(crate) struct Current {
    held: Mutex<Held>,
    /// Takes a line for the log.
    note: fn(&str),
}

struct Held {
    config: Arc<Config>,
    refreshed: Instant,
    /// Why the files, as they are now, are not in force.
    failure: Option<String>,
}

impl Current {
    /// A configuration that was just read.
    pub(crate) fn new(config: Config, note: fn(&str)) -> Self {
        let held = Held { config: Arc::new(config), refreshed: Instant::now(), failure: None };
        Current { held: Mutex::new(held), note }
    }

    /// The configuration, at most a second older than its files.
    pub(crate) fn config(&self) -> Arc<Config> {
        let mut held = self.held();
        if held.refreshed.elapsed() >= REFRESH {
            held.refresh(self.note);
            held.refreshed = Instant::now();
        }
        Arc::clone(&held.config)
    }

    /// Whether the files could not be used when they were last compared.
    pub(crate) fn is_stale(&self) -> bool {
        self.held().failure.is_some()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn refresh(&mut self, note: fn(&str)) {
        if self.config.files.are_as_read() {
            if self.failure.take().is_some() {
                note("the configuration's files are again as they were");
            }
            return;
        }
        match self.config.load_again() {
            Ok(config) => {
                note("the configuration's files changed, and were read again");
                config
                    .warnings
                    .iter()
                    .filter(|warning| !self.config.warnings.contains(warning))
                    .for_each(|warning| note(warning));
                self.config = Arc::new(config);
                self.failure = None;
            }
            Err(error) => {
                let text = format!("{}; what was read before stays in force", chain(&error));
                if self.failure.as_ref() != Some(&text) {
                    note(&text);
                    self.failure = Some(text);
                }
            }
        }
    }
}
