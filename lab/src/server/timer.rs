//! Waiting for points in time, and the thread that sends delayed messages.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
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

/// A message and when it goes out.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) at: Instant,
    pub(super) message: Message,
    /// How often it was put off because the one before was not taken yet.
    pub(super) put_off: u32,
    sequence: u64,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// Messages that wait, earliest first; equal times keep their order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: Mutex<BinaryHeap<Reverse<Due>>>,
    changed: Condvar,
    /// Counts changes, so that a spinning thread sees them without the lock.
    version: AtomicU64,
}

impl Queue {
    pub(super) fn push(&self, at: Instant, message: Message, put_off: u32) {
        let mut heap = lock(&self.heap);
        let sequence = self.version.fetch_add(1, Relaxed);
        heap.push(Reverse(Due { at, message, put_off, sequence }));
        drop(heap);
        self.changed.notify_one();
    }

    /// Empties the queue; the messages will never be sent.
    pub(super) fn clear(&self) -> Vec<Message> {
        let gone = lock(&self.heap).drain().map(|Reverse(due)| due.message).collect();
        self.wake();
        gone
    }

    pub(super) fn wake(&self) {
        self.version.fetch_add(1, Relaxed);
        self.changed.notify_one();
    }

    /// Waits for the next message to be due, or for something to change (`None`).
    pub(super) fn next(&self) -> Option<Due> {
        let mut heap = lock(&self.heap);
        let version = self.version.load(Relaxed);
        let Some(Reverse(first)) = heap.peek() else {
            // The bound is for a wake-up between the caller's look at its flags and this wait.
            let wait = self.changed.wait_timeout(heap, Duration::from_millis(100));
            drop(wait);
            return None;
        };
        let at = first.at;
        let left = at.saturating_duration_since(Instant::now());
        if left > SPIN {
            let wait = self.changed.wait_timeout(heap, left - SPIN);
            drop(wait);
            return None;
        }
        if !left.is_zero() {
            drop(heap);
            while Instant::now() < at {
                if self.version.load(Relaxed) != version {
                    return None;
                }
                std::hint::spin_loop();
            }
            heap = lock(&self.heap);
        }
        let is_due = heap.peek().is_some_and(|Reverse(due)| due.at <= Instant::now());
        if is_due { heap.pop().map(|Reverse(due)| due) } else { None }
    }
}
