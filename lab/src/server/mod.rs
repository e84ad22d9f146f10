//! Serves a [`DeviceModel`] to a vfio-user client, which in the lab is QEMU's `vfio-user-pci`.
//!
//! Each device has four threads: one answers the client, one sends delayed messages, one runs the device's own work,
//! one answers the control socket.

mod irq;
mod memory;
mod session;
mod timer;
mod wire;
mod work;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use serde_json::Value;

use crate::control;
use crate::device::command::CommandError;
use crate::device::{Delivery, DeviceModel, Message};
use crate::error::Error;
use irq::Wires;
use memory::GuestMemory;
use timer::Queue;
use work::Agenda;

/// Unix sockets have this many bytes for a path, the closing zero excluded.
const SOCKET_PATH_MAX: usize = 107;
/// A message waits until the client took the one before of its vector, and as long as the model wants, this long at
/// a time ...
const PUT_OFF: Duration = Duration::from_micros(50);
/// ... and so often: then it goes out, and merges with that one.
const PUT_OFF_MAX: u32 = 400;

/// A lock that a panicked thread held is still good: models are left consistent after each access.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// What the threads of one device share. Locks are taken in the order of the fields.
pub(crate) struct Shared {
    device: Mutex<Box<dyn DeviceModel>>,
    /// Locked while the device transfers: a range that the client takes away is in use by nobody once it has its answer.
    memory: RwLock<GuestMemory>,
    wires: Mutex<Wires>,
    queue: Queue,
    agenda: Agenda,
    made: Instant,
    stopping: AtomicBool,
    /// The client that is being served.
    client: Mutex<Option<UnixStream>>,
}

impl Shared {
    fn new(device: Box<dyn DeviceModel>) -> Self {
        let layout = device.layout();
        Shared {
            device: Mutex::new(device),
            memory: RwLock::default(),
            wires: Mutex::new(Wires::new(&layout)),
            queue: Queue::default(),
            agenda: Agenda::default(),
            made: Instant::now(),
            stopping: AtomicBool::new(false),
            client: Mutex::new(None),
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Carries out one command of the control socket.
    pub(crate) fn command(&self, line: &str) -> Result<Value, CommandError> {
        let mut device = self.device();
        if line.split_whitespace().eq(["reset"]) {
            // Messages of before belong to the ledger of before.
            self.drop_messages(&mut **device);
        }
        device.set_clock(self.clock(Instant::now()));
        let answer = device.command(line)?;
        if device.is_gone() {
            self.drop_messages(&mut **device);
        }
        self.announce(&**device);
        Ok(answer)
    }

    fn drop_messages(&self, device: &mut dyn DeviceModel) {
        for message in self.queue.clear() {
            device.delivered(&message, false);
        }
    }

    /// The device's clock.
    fn clock(&self, now: Instant) -> u64 {
        // 584 years of nanoseconds fit.
        (now - self.made).as_nanos() as u64
    }

    /// Sends or queues what the model put into the outbox while it answered something that came at `arrived`.
    fn post(&self, device: &mut dyn DeviceModel, arrived: Instant, outbox: &mut Vec<Message>) {
        for message in outbox.drain(..) {
            self.send_at(device, arrived + Duration::from_nanos(message.delay_ns), message);
        }
    }

    /// Sends a message at `due`, which is now if that has passed.
    fn send_at(&self, device: &mut dyn DeviceModel, due: Instant, message: Message) {
        let is_due = message.delay_ns == 0;
        if is_due && (device.merges_messages() || !lock(&self.wires).is_pending(message.vector)) {
            self.deliver(device, &message);
        } else {
            self.queue.push(due, message, 0);
        }
    }

    /// Sends a message now, and tells the model what came of it.
    fn deliver(&self, device: &mut dyn DeviceModel, message: &Message) {
        let is_sent =
            device.may_deliver(message) != Delivery::Never && lock(&self.wires).send(message.vector, device.intx());
        device.delivered(message, is_sent);
    }

    /// Sends messages as they become due, until the server stops.
    fn send_delayed(&self) {
        timer::sleep_precisely();
        while !self.is_stopping() {
            let Some((message, put_off)) = self.queue.next() else { continue };
            let mut device = self.device();
            let is_early =
                lock(&self.wires).is_pending(message.vector) || device.may_deliver(&message) == Delivery::Later;
            if is_early && put_off < PUT_OFF_MAX {
                self.queue.push(Instant::now() + PUT_OFF, message, put_off + 1);
            } else {
                self.deliver(&mut **device, &message);
            }
        }
    }

    /// Answers clients, one after the other, until the server stops.
    fn serve(&self, listener: &UnixListener) {
        timer::sleep_precisely();
        while !self.is_stopping() {
            let Ok((stream, _)) = listener.accept() else {
                // Where accepting fails again and again, do not spin.
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            *lock(&self.client) = stream.try_clone().ok();
            if !self.is_stopping() {
                // How a client left makes no difference to the next one.
                let _ = session::serve(&stream, self);
            }
            *lock(&self.client) = None;
        }
    }

    fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.queue.wake();
        self.agenda.wake();
        if let Some(client) = &*lock(&self.client) {
            // One that has left already needs no goodbye.
            let _ = client.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// A device that is being served. Dropping it ends the service, a client's connection included, and takes its
/// sockets away.
#[derive(Debug)]
pub struct Served {
    /// Socket for QEMU: `-device {"driver":"vfio-user-pci","socket":{"type":"unix","path":"..."}}`.
    pub device_socket: PathBuf,
    /// Socket for [`control::ask`].
    pub control_socket: PathBuf,
    shared: Arc<Shared>,
    listeners: [OwnedFd; 2],
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("stopping", &self.stopping).finish_non_exhaustive()
    }
}

impl Served {
    /// Serves `device` on `FOLDER/NAME.sock`, and its control on `FOLDER/NAME.ctl`. Files of these names that are
    /// left over are replaced. Both sockets answer when this returns.
    ///
    /// # Errors
    /// A socket cannot be made (its path may be too long), or a thread cannot be started.
    pub fn spawn(device: impl DeviceModel + 'static, folder: &Path, name: &str) -> Result<Served, Error> {
        let device_socket = folder.join(format!("{name}.sock"));
        let control_socket = folder.join(format!("{name}.ctl"));
        let shared = Arc::new(Shared::new(Box::new(device)));

        let device_listener = listen(&device_socket)?;
        let control_listener = listen(&control_socket)?;
        let duplicate = |listener: &UnixListener, path: &Path| {
            listener.try_clone().map(OwnedFd::from).map_err(Error::socket("listen on", path))
        };
        let listeners = [duplicate(&device_listener, &device_socket)?, duplicate(&control_listener, &control_socket)?];

        let mut served = Served { device_socket, control_socket, shared, listeners, threads: Vec::new() };
        served.start(&format!("{name}-device"), move |shared| shared.serve(&device_listener))?;
        served.start(&format!("{name}-timer"), |shared| shared.send_delayed())?;
        served.start(&format!("{name}-work"), |shared| shared.work())?;
        served.start(&format!("{name}-control"), move |shared| control::serve(&control_listener, shared))?;
        Ok(served)
    }

    fn start(&mut self, name: &str, run: impl FnOnce(&Arc<Shared>) + Send + 'static) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared));
        self.threads.push(thread.map_err(|source| Error::Thread(name.to_owned(), source))?);
        Ok(())
    }

    /// Carries out a command of the control socket without going through the socket.
    ///
    /// # Errors
    /// [`Error::Refused`] with the device's words.
    pub fn ask(&self, command: &str) -> Result<Value, Error> {
        let refused = |err: CommandError| Error::Refused { command: command.to_owned(), reason: err.to_string() };
        self.shared.command(command).map_err(refused)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shared.stop();
        for listener in &self.listeners {
            // Wakes the thread that accepts; nothing to do where it is gone already.
            let _ = shutdown(listener, Shutdown::Both);
        }
        let _ = std::fs::remove_file(&self.device_socket);
        let _ = std::fs::remove_file(&self.control_socket);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

fn listen(path: &Path) -> Result<UnixListener, Error> {
    if path.as_os_str().len() > SOCKET_PATH_MAX {
        return Err(Error::SocketPathLength(path.to_path_buf()));
    }
    match std::fs::remove_file(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(Error::socket("listen on", path)(err)),
        _ => {}
    }
    UnixListener::bind(path).map_err(Error::socket("listen on", path))
}
