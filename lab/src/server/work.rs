//! The work that a device does by itself, such as DMA: the thread that runs it on time, and its access to the guest.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use super::memory::GuestMemory;
use super::timer::sleep_precisely;
use super::{Shared, lock, read};
use crate::device::{Bus, DeviceModel, DmaError, Message};

/// Stands for "nothing to do".
const NEVER: u64 = u64::MAX;

/// When the device is next to be called, on its clock.
#[derive(Debug)]
pub(super) struct Agenda {
    due: Mutex<u64>,
    changed: Condvar,
    /// What `due` holds, to be read without the lock: most accesses change nothing.
    known: AtomicU64,
    /// Threads that wait for the device. The worker lets them pass: between two pieces of work it would otherwise have the
    /// lock again before they wake.
    waiting: AtomicUsize,
}

impl Default for Agenda {
    fn default() -> Self {
        Agenda {
            due: Mutex::new(NEVER),
            changed: Condvar::new(),
            known: AtomicU64::new(NEVER),
            waiting: AtomicUsize::new(0),
        }
    }
}

impl Agenda {
    /// Takes over a new time. The caller holds the device's lock.
    fn set(&self, due: Option<u64>) {
        let due = due.unwrap_or(NEVER);
        if self.known.load(SeqCst) == due {
            return;
        }
        *lock(&self.due) = due;
        self.known.store(due, SeqCst);
        self.changed.notify_one();
    }

    /// Has the worker look whether the server stops.
    pub(super) fn wake(&self) {
        // With the lock, so that it comes neither before the worker's wait nor between its look and its wait.
        let due = lock(&self.due);
        self.changed.notify_all();
        drop(due);
    }
}

impl Shared {
    /// The device, for everyone but the worker.
    pub(super) fn device(&self) -> MutexGuard<'_, Box<dyn DeviceModel>> {
        if let Ok(device) = self.device.try_lock() {
            return device;
        }
        self.agenda.waiting.fetch_add(1, SeqCst);
        let device = lock(&self.device);
        self.agenda.waiting.fetch_sub(1, SeqCst);
        device
    }

    /// Looks when the device is next to be called. Belongs behind everything that was done to it, under the same lock.
    pub(super) fn announce(&self, device: &dyn DeviceModel) {
        self.agenda.set(device.next_work());
    }

    /// Calls the device whenever it has something to do, until the server stops.
    pub(super) fn work(&self) {
        sleep_precisely();
        let mut outbox = Vec::new();
        while self.wait_for_work() {
            while self.agenda.waiting.load(SeqCst) > 0 {
                thread::yield_now();
            }
            let mut device = lock(&self.device);
            let now = Instant::now();
            device.work(self.clock(now), &mut GuestBus { memory: &read(&self.memory), outbox: &mut outbox });
            self.post(&mut **device, now, &mut outbox);
            self.announce(&**device);
        }
    }

    /// Sleeps until the device is due. `false`: the server stops.
    fn wait_for_work(&self) -> bool {
        let mut due = lock(&self.agenda.due);
        loop {
            if self.is_stopping() {
                return false;
            }
            let now = self.clock(Instant::now());
            let poisoned = std::sync::PoisonError::into_inner;
            due = match *due {
                NEVER => self.agenda.changed.wait(due).unwrap_or_else(poisoned),
                time if time <= now => return true,
                time => {
                    let left = Duration::from_nanos(time - now);
                    self.agenda.changed.wait_timeout(due, left).unwrap_or_else(|err| err.into_inner()).0
                }
            };
        }
    }
}

/// The model's way out while it answers a write or works.
pub(super) struct GuestBus<'a> {
    pub(super) memory: &'a GuestMemory,
    pub(super) outbox: &'a mut Vec<Message>,
}

impl Bus for GuestBus<'_> {
    fn send(&mut self, message: Message) {
        self.outbox.push(message);
    }
    fn read_memory(&mut self, address: u64, to: &mut [u8]) -> Result<(), DmaError> {
        self.memory.read(address, to)
    }
    fn write_memory(&mut self, address: u64, from: &[u8]) -> Result<(), DmaError> {
        self.memory.write(address, from)
    }
}
