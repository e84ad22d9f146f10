//! Serves a [`Device`] to a vfio-user client, which in the lab is QEMU's `vfio-user-pci`.
//!
//! Three threads per device: one answers the client, one sends delayed messages, one answers the control socket.

mod irq;
mod memory;
mod timer;

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use serde_json::Value;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_AUTOMASKED, VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_MASKABLE, VFIO_PCI_BAR5_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_INTX_IRQ_INDEX, VFIO_PCI_MSI_IRQ_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion};

use crate::control;
use crate::device::command::CommandError;
use crate::device::{Bus, Device, DmaError, Layout, Message};
use crate::error::Error;
use irq::Wires;
use memory::Memory;
use timer::{Due, Queue, wait_until};

/// How long the end of the service waits for its threads: one whose client stays connected ends with that client.
const PATIENCE: Duration = Duration::from_millis(300);
/// Bytes of configuration space.
const CONFIG_BYTES: u64 = 4096;
/// Unix sockets have this many bytes for a path, the closing zero excluded.
const SOCKET_PATH_MAX: usize = 107;
/// The longest read or write that is passed to a model; the bus has none longer than 8 bytes.
const ACCESS_MAX: usize = 4096;
/// The second of two messages waits until the client took the first, this long at a time ...
const PUT_OFF: Duration = Duration::from_micros(50);
/// ... and so often: then it goes out, and merges with the first.
const PUT_OFF_MAX: u32 = 400;

/// A lock that a panicked thread held is still good: models are left consistent after each access.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the threads of one device share.
pub(crate) struct Shared {
    device: Mutex<Box<dyn Device>>,
    wires: Mutex<Wires>,
    queue: Queue,
    made: Instant,
    stopping: AtomicBool,
}

impl Shared {
    fn new(device: Box<dyn Device>) -> Self {
        let layout = device.layout();
        Shared {
            device: Mutex::new(device),
            wires: Mutex::new(Wires::new(&layout)),
            queue: Queue::default(),
            made: Instant::now(),
            stopping: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Carries out one command of the control socket.
    pub(crate) fn command(&self, line: &str) -> Result<Value, CommandError> {
        let mut device = lock(&self.device);
        if line.split_whitespace().eq(["reset"]) {
            // Messages of before belong to the ledger of before.
            self.drop_messages(&mut **device);
        }
        let answer = device.command(line)?;
        if device.is_gone() {
            self.drop_messages(&mut **device);
        }
        Ok(answer)
    }

    fn drop_messages(&self, device: &mut dyn Device) {
        for message in self.queue.clear() {
            device.delivered(&message, false);
        }
    }

    /// Sends a message now, and tells the model what came of it.
    fn deliver(&self, device: &mut dyn Device, message: &Message) {
        let sent = device.may_deliver(message) && lock(&self.wires).send(message.vector, device.intx());
        device.delivered(message, sent);
    }

    /// Sends messages as they become due, until the server stops.
    fn send_delayed(&self) {
        while !self.is_stopping() {
            let Some(Due { message, put_off, .. }) = self.queue.next() else { continue };
            if message.is_copy && put_off < PUT_OFF_MAX && lock(&self.wires).is_pending(message.vector) {
                self.queue.push(Instant::now() + PUT_OFF, message, put_off + 1);
                continue;
            }
            self.deliver(&mut **lock(&self.device), &message);
        }
    }

    /// Answers clients, one after the other, until the server stops.
    fn serve(&self, server: &Server) {
        let mut session = Session { shared: self, memory: Memory::default(), outbox: Vec::new() };
        while !self.is_stopping() {
            // The library panics on a malformed greeting; that ends the connection, not the device.
            let ended = catch_unwind(AssertUnwindSafe(|| server.run(&mut session)));
            session.disconnect();
            if !matches!(ended, Ok(Ok(()))) && !self.is_stopping() {
                // Where accepting fails again and again, do not spin.
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// One client's view: its memory and the messages of the access that is being answered.
struct Session<'a> {
    shared: &'a Shared,
    memory: Memory,
    outbox: Vec<Message>,
}

impl Session<'_> {
    fn disconnect(&mut self) {
        self.memory.clear();
        lock(&self.shared.wires).disconnect();
        self.shared.drop_messages(&mut **lock(&self.shared.device));
    }

    /// Sends or queues what the model put into the outbox.
    fn post(&mut self, device: &mut dyn Device, arrived: Instant) {
        for message in self.outbox.drain(..) {
            if message.delay_ns == 0 {
                self.shared.deliver(device, &message);
            } else {
                self.shared.queue.push(arrived + Duration::from_nanos(message.delay_ns), message, 0);
            }
        }
    }

    /// The level of INTx may have gone up other than by a message: the client unmasked it.
    fn look_at_intx(&self) {
        let device = lock(&self.shared.device);
        lock(&self.shared.wires).raise_intx(device.intx());
    }
}

/// The model's way out while it answers a write.
struct SessionBus<'a> {
    memory: &'a Memory,
    outbox: &'a mut Vec<Message>,
}

impl Bus for SessionBus<'_> {
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

/// The number of a BAR's region, if it is one.
fn bar_of(region: u32) -> Option<u8> {
    u8::try_from(region).ok().filter(|bar| u32::from(*bar) <= VFIO_PCI_BAR5_REGION_INDEX)
}

impl ServerBackend for Session<'_> {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let arrived = Instant::now();
        data.fill(0xff);
        if data.len() > ACCESS_MAX {
            return Ok(());
        }
        let wait = {
            let mut device = lock(&self.shared.device);
            match bar_of(region) {
                Some(bar) => device.bar_read(nanos(arrived - self.shared.made), bar, offset, data),
                None if region == VFIO_PCI_CONFIG_REGION_INDEX => device.config_read(offset, data),
                None => 0,
            }
        };
        if wait > 0 {
            wait_until(arrived + Duration::from_nanos(wait));
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        let arrived = Instant::now();
        if data.len() > ACCESS_MAX {
            return Ok(());
        }
        let shared = self.shared;
        let wait = {
            let mut device = lock(&shared.device);
            let wait = match bar_of(region) {
                Some(bar) => {
                    let mut bus = SessionBus { memory: &self.memory, outbox: &mut self.outbox };
                    device.bar_write(nanos(arrived - shared.made), bar, offset, data, &mut bus)
                }
                None if region == VFIO_PCI_CONFIG_REGION_INDEX => device.config_write(offset, data),
                None => 0,
            };
            self.post(&mut **device, arrived);
            wait
        };
        if wait > 0 {
            wait_until(arrived + Duration::from_nanos(wait));
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        // Without a file, the guest's memory is private to the client; a transfer there will find it unmapped.
        let Some(file) = fd else { return Ok(()) };
        let is_writable = flags.contains(DmaMapFlags::WRITE);
        self.memory.map(address, size, offset, file, is_writable).map_err(io::Error::other)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            self.memory.clear();
        } else {
            self.memory.unmap(address, size);
        }
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        let mut device = lock(&self.shared.device);
        device.reset();
        self.shared.drop_messages(&mut **device);
        Ok(())
    }

    fn set_irqs(&mut self, index: u32, flags: u32, start: u32, count: u32, fds: Vec<File>) -> io::Result<()> {
        let unmasked = lock(&self.shared.wires).set(index, flags, start, count, fds)?;
        if unmasked {
            self.look_at_intx();
        }
        Ok(())
    }
}

fn nanos(duration: Duration) -> u64 {
    // 584 years of nanoseconds fit.
    duration.as_nanos() as u64
}

fn regions(layout: &Layout) -> Vec<ServerRegion> {
    let region = |index: u32| {
        let size = match bar_of(index) {
            Some(bar) => layout.bars[usize::from(bar)],
            None if index == VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_BYTES,
            None => 0,
        };
        let flags = if size > 0 { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE } else { 0 };
        let region_info =
            vfio_region_info { argsz: size_of::<vfio_region_info>() as u32, index, flags, size, ..Default::default() };
        ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
    };
    (0..VFIO_PCI_NUM_REGIONS).map(region).collect()
}

fn irqs(layout: &Layout) -> Vec<IrqInfo> {
    let irq = |index: u32| {
        let (count, flags) = match index {
            VFIO_PCI_INTX_IRQ_INDEX => {
                (layout.intx.into(), VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_MASKABLE | VFIO_IRQ_INFO_AUTOMASKED)
            }
            VFIO_PCI_MSI_IRQ_INDEX => (layout.msi.into(), VFIO_IRQ_INFO_EVENTFD),
            VFIO_PCI_MSIX_IRQ_INDEX => (layout.msix.into(), VFIO_IRQ_INFO_EVENTFD),
            _ => (0, 0),
        };
        IrqInfo { index, flags, count }
    };
    (0..VFIO_PCI_NUM_IRQS).map(irq).collect()
}

/// A device that is being served. Dropping it ends the service and takes its sockets away.
///
/// A client that is still connected keeps its thread, and the device, until it leaves.
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

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("stopping", &self.stopping).finish_non_exhaustive()
    }
}

impl Served {
    /// Serves `device` on `FOLDER/NAME.sock`, and its control on `FOLDER/NAME.ctl`. Files of these names that are
    /// left over are replaced. Both sockets answer when this returns.
    ///
    /// # Errors
    /// A socket cannot be made (its path may be too long), or a thread cannot be started.
    pub fn spawn(device: impl Device + 'static, folder: &Path, name: &str) -> Result<Served, Error> {
        let device_socket = folder.join(format!("{name}.sock"));
        let control_socket = folder.join(format!("{name}.ctl"));
        let layout = device.layout();
        let shared = Arc::new(Shared::new(Box::new(device)));

        let device_listener = listen(&device_socket)?;
        let control_listener = listen(&control_socket)?;
        let duplicate = |listener: &UnixListener, path: &Path| {
            listener.try_clone().map(OwnedFd::from).map_err(Error::socket("listen on", path))
        };
        let listeners = [duplicate(&device_listener, &device_socket)?, duplicate(&control_listener, &control_socket)?];
        let server = Server::from_owned_fd(device_listener.into(), true, irqs(&layout), regions(&layout));

        let mut served = Served { device_socket, control_socket, shared, listeners, threads: Vec::new() };
        served.start(&format!("{name}-device"), move |shared| shared.serve(&server))?;
        served.start(&format!("{name}-timer"), |shared| shared.send_delayed())?;
        served.start(&format!("{name}-control"), move |shared| control::serve(&control_listener, shared))?;
        Ok(served)
    }

    fn start(&mut self, name: &str, run: impl FnOnce(&Arc<Shared>) + Send + 'static) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared));
        self.threads.push(thread.map_err(|source| Error::Thread { name: name.to_owned(), source })?);
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
        self.shared.stopping.store(true, SeqCst);
        self.shared.queue.wake();
        for listener in &self.listeners {
            // Wakes the thread that accepts; nothing to do where it is gone already.
            let _ = shutdown(listener, Shutdown::Both);
        }
        let _ = std::fs::remove_file(&self.device_socket);
        let _ = std::fs::remove_file(&self.control_socket);
        let patience = Instant::now() + PATIENCE;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < patience {
                thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                // A thread that panicked has said so already.
                let _ = thread.join();
            }
        }
    }
}

fn listen(path: &Path) -> Result<UnixListener, Error> {
    if path.as_os_str().len() > SOCKET_PATH_MAX {
        return Err(Error::SocketPathLength { path: path.to_path_buf() });
    }
    match std::fs::remove_file(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(Error::socket("listen on", path)(err)),
        _ => {}
    }
    UnixListener::bind(path).map_err(Error::socket("listen on", path))
}
