//! Waiting for points in time, and the thread that sends delayed messages.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;

use super::lock;
use crate::device::Message;

/// A sleeping thread may come back this much late; what is left after it is spun away. Longer would be surer, and
/// would take a core from the guest more often.
const SPIN: Duration = Duration::from_micros(100);
/// Waits up to this are spun away altogether.
const SPIN_ONLY: Duration = Duration::from_millis(1);

/// Lets the calling thread's sleeps end on time instead of up to 50 us late. Without it they only end later.
pub(super) fn sleep_precisely() {
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

/// Returns at `due` or as shortly after as the machine allows; sleeps only through waits that are long enough to hide it.
pub(super) fn wait_until(due: Instant) {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if left > SPIN_ONLY {
            thread::sleep(left - SPIN_ONLY / 2);
        } else {
            std::hint::spin_loop();
        }
    }
}

/// A message that goes out, and how often it was put off because the one before was not taken yet.
pub(super) type Due = (Message, u32);

/// Messages that wait, earliest first; equal times keep their order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By time, and within it by the order in which they came.
    waiting: Mutex<BTreeMap<(Instant, u64), Due>>,
    changed: Condvar,
    /// Counts changes, so that a spinning thread sees them without the lock.
    version: AtomicU64,
}

impl Queue {
    pub(super) fn push(&self, at: Instant, message: Message, put_off: u32) {
        let mut waiting = lock(&self.waiting);
        waiting.insert((at, self.version.fetch_add(1, Relaxed)), (message, put_off));
        drop(waiting);
        self.changed.notify_one();
    }

    /// Empties the queue; the messages will never be sent.
    pub(super) fn clear(&self) -> Vec<Message> {
        let gone = std::mem::take(&mut *lock(&self.waiting)).into_values().map(|(message, _)| message).collect();
        self.wake();
        gone
    }

    pub(super) fn wake(&self) {
        self.version.fetch_add(1, Relaxed);
        self.changed.notify_one();
    }

    /// Waits for the next message to be due, or for something to change (`None`).
    pub(super) fn next(&self) -> Option<Due> {
        let mut waiting = lock(&self.waiting);
        let version = self.version.load(Relaxed);
        let Some((&(at, _), _)) = waiting.first_key_value() else {
            // The bound is for a wake-up between the caller's look at its flags and this wait.
            drop(self.changed.wait_timeout(waiting, Duration::from_millis(100)));
            return None;
        };
        let left = at.saturating_duration_since(Instant::now());
        if left > SPIN {
            drop(self.changed.wait_timeout(waiting, left - SPIN));
            return None;
        }
        if !left.is_zero() {
            drop(waiting);
            while Instant::now() < at {
                if self.version.load(Relaxed) != version {
                    return None;
                }
                std::hint::spin_loop();
            }
            waiting = lock(&self.waiting);
        }
        let first = waiting.first_entry().filter(|first| first.key().0 <= Instant::now());
        first.map(|first| first.remove())
    }
}
