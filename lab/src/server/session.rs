//! One connection: it takes the client's messages, lets the model answer them, and waits as long as the model says.

use std::fs::File;
use std::io::{self, IoSliceMut, Write};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_FLAGS_PCI, VFIO_DEVICE_FLAGS_RESET, VFIO_IRQ_INFO_AUTOMASKED, VFIO_IRQ_INFO_EVENTFD,
    VFIO_IRQ_INFO_MASKABLE, VFIO_PCI_BAR5_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_INTX_IRQ_INDEX,
    VFIO_PCI_MSI_IRQ_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};

use super::timer::wait_until;
use super::wire::{FDS_MAX, Fields, HEADER_BYTES, Header, MESSAGE_MAX, Request, TRANSFER_MAX, seal};
use super::work::GuestBus;
use super::{Shared, lock, read, write};
use crate::device::config::CONFIG_BYTES;
use crate::device::{Layout, Message};

/// How long the next message is waited for without sleeping: a guest in a measuring loop sends it in this time, and
/// a read then costs one wake-up less.
const LISTEN_SPIN: Duration = Duration::from_micros(50);
const DMA_MAP_WRITE: u32 = 1 << 1;
const DMA_UNMAP_ALL: u32 = 1 << 2;
const IRQ_SET_DATA_BOOL: u32 = 1 << 1;

/// Serves one client until it leaves or breaks the protocol.
pub(super) fn serve(stream: &UnixStream, shared: &Shared) -> io::Result<()> {
    let mut session = Session {
        stream,
        shared,
        layout: shared.device().layout(),
        outbox: Vec::new(),
        reply: Vec::with_capacity(MESSAGE_MAX),
    };
    let ended = session.run();
    write(&shared.memory).clear();
    lock(&shared.wires).disconnect();
    shared.drop_messages(&mut **shared.device());
    ended
}

struct Session<'a> {
    stream: &'a UnixStream,
    shared: &'a Shared,
    layout: Layout,
    /// Messages of the access that is being answered.
    outbox: Vec<Message>,
    reply: Vec<u8>,
}

/// Bytes that arrived and are not taken yet, and the file descriptors that came with them.
struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    fds: Vec<OwnedFd>,
}

impl Inbox {
    fn new() -> Self {
        Inbox { bytes: vec![0; 2 * MESSAGE_MAX], start: 0, end: 0, fds: Vec::new() }
    }

    fn pending(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Waits for more. `false`: the client has left.
    fn receive(&mut self, stream: &UnixStream) -> io::Result<bool> {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let listen_until = Instant::now() + LISTEN_SPIN;
        loop {
            let flags = if Instant::now() < listen_until { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut room = [IoSliceMut::new(&mut self.bytes[self.end..])];
            match recvmsg(stream, &mut room, &mut ancillary, flags | RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => {
                    for message in ancillary.drain() {
                        if let RecvAncillaryMessage::ScmRights(fds) = message {
                            self.fds.extend(fds);
                        }
                    }
                    self.end += received.bytes;
                    return Ok(received.bytes > 0);
                }
                Err(Errno::AGAIN | Errno::INTR) => std::hint::spin_loop(),
                Err(err) => return Err(err.into()),
            }
        }
    }
}

impl Session<'_> {
    fn run(&mut self) -> io::Result<()> {
        let malformed = |_| io::Error::from(io::ErrorKind::InvalidData);
        let mut inbox = Inbox::new();
        while inbox.receive(self.stream)? {
            while let Some(header) = Header::parse(inbox.pending()).map_err(malformed)? {
                if inbox.pending().len() < header.size {
                    break;
                }
                // The kernel ends a receive with the message that carries descriptors: they belong to the last one.
                let is_last = inbox.pending().len() == header.size;
                let fds = if is_last { std::mem::take(&mut inbox.fds) } else { Vec::new() };
                let body = &inbox.bytes[inbox.start + HEADER_BYTES..inbox.start + header.size];
                self.answer(&header, body, fds)?;
                inbox.start += header.size;
            }
        }
        Ok(())
    }

    /// Answers one message; one write, since each wakes the client.
    fn answer(&mut self, header: &Header, body: &[u8], fds: Vec<OwnedFd>) -> io::Result<()> {
        let mut reply = std::mem::take(&mut self.reply);
        header.begin_reply(&mut reply);
        let done = match header.command() {
            Some(command) => self.carry_out(command, body, fds, &mut reply),
            None => Err(Errno::OPNOTSUPP),
        };
        if let Err(errno) = done {
            header.refuse(errno.raw_os_error(), &mut reply);
        }
        seal(&mut reply);
        let sent = if header.wants_reply() { (&mut &*self.stream).write_all(&reply) } else { Ok(()) };
        self.reply = reply;
        sent
    }

    fn carry_out(
        &mut self,
        command: Request,
        body: &[u8],
        fds: Vec<OwnedFd>,
        reply: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let fields = Fields(body);
        match command {
            Request::RegionRead => return self.read_region(fields, reply),
            Request::RegionWrite => return self.write_region(fields, reply),
            Request::Version => return greet(fields, reply),
            Request::DmaMap => return self.map(fields, fds),
            Request::DmaUnmap => {
                self.unmap(fields);
                reply.extend_from_slice(body);
            }
            Request::DeviceInfo => {
                let flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET;
                put(reply, &[16, flags, VFIO_PCI_NUM_REGIONS, VFIO_PCI_NUM_IRQS]);
            }
            Request::RegionInfo => return self.show_region(fields, reply),
            Request::IrqInfo => return self.show_irq(fields, reply),
            Request::SetIrqs => return self.set_irqs(fields, fds),
            Request::Reset => {
                let mut device = self.shared.device();
                device.reset();
                self.shared.drop_messages(&mut **device);
                self.shared.announce(&**device);
            }
        }
        Ok(())
    }

    fn read_region(&mut self, mut fields: Fields<'_>, reply: &mut Vec<u8>) -> Result<(), Errno> {
        let arrived = Instant::now();
        let (offset, region, count) = (fields.u64(), fields.u32(), fields.u32());
        if count > TRANSFER_MAX || region >= VFIO_PCI_NUM_REGIONS {
            return Err(Errno::INVAL);
        }
        reply.extend_from_slice(&offset.to_le_bytes());
        put(reply, &[region, count]);
        let data = reply.len();
        reply.resize(data + count as usize, 0xff);
        let wait = {
            let mut device = self.shared.device();
            let wait = match bar_of(region) {
                Some(bar) => device.bar_read(self.shared.clock(arrived), bar, offset, &mut reply[data..]),
                None if region == VFIO_PCI_CONFIG_REGION_INDEX => device.config_read(offset, &mut reply[data..]),
                None => 0,
            };
            self.shared.announce(&**device);
            wait
        };
        hold(arrived, wait);
        Ok(())
    }

    fn write_region(&mut self, mut fields: Fields<'_>, reply: &mut Vec<u8>) -> Result<(), Errno> {
        let arrived = Instant::now();
        let (offset, region, count) = (fields.u64(), fields.u32(), fields.u32());
        let data = fields.rest();
        if count as usize != data.len() || region >= VFIO_PCI_NUM_REGIONS {
            return Err(Errno::INVAL);
        }
        let wait = {
            let mut device = self.shared.device();
            let wait = match bar_of(region) {
                Some(bar) => {
                    let mut bus = GuestBus { memory: &read(&self.shared.memory), outbox: &mut self.outbox };
                    device.bar_write(self.shared.clock(arrived), bar, offset, data, &mut bus)
                }
                None if region == VFIO_PCI_CONFIG_REGION_INDEX => device.config_write(offset, data),
                None => 0,
            };
            self.shared.post(&mut **device, arrived, &mut self.outbox);
            self.shared.announce(&**device);
            wait
        };
        hold(arrived, wait);
        reply.extend_from_slice(&offset.to_le_bytes());
        put(reply, &[region, count]);
        Ok(())
    }

    fn map(&mut self, mut fields: Fields<'_>, fds: Vec<OwnedFd>) -> Result<(), Errno> {
        let (_argsz, flags) = (fields.u32(), fields.u32());
        let (offset, address, size) = (fields.u64(), fields.u64(), fields.u64());
        // Without a file, the guest's memory is private to the client; a transfer there will find it unmapped.
        let Some(fd) = fds.into_iter().next() else { return Ok(()) };
        write(&self.shared.memory).map(address, size, offset, fd.into(), flags & DMA_MAP_WRITE != 0)
    }

    fn unmap(&mut self, mut fields: Fields<'_>) {
        let (_argsz, flags) = (fields.u32(), fields.u32());
        if flags & DMA_UNMAP_ALL != 0 {
            write(&self.shared.memory).clear();
        } else {
            let (address, size) = (fields.u64(), fields.u64());
            write(&self.shared.memory).unmap(address, size);
        }
    }

    fn show_region(&self, mut fields: Fields<'_>, reply: &mut Vec<u8>) -> Result<(), Errno> {
        let (_argsz, _flags, index) = (fields.u32(), fields.u32(), fields.u32());
        if index >= VFIO_PCI_NUM_REGIONS {
            return Err(Errno::INVAL);
        }
        let size = match bar_of(index) {
            Some(bar) => self.layout.bars[usize::from(bar)],
            None if index == VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_BYTES as u64,
            None => 0,
        };
        let flags = if size > 0 { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE } else { 0 };
        put(reply, &[size_of::<vfio_region_info>() as u32, flags, index, 0]);
        reply.extend_from_slice(&size.to_le_bytes());
        reply.extend_from_slice(&0u64.to_le_bytes());
        Ok(())
    }

    fn show_irq(&self, mut fields: Fields<'_>, reply: &mut Vec<u8>) -> Result<(), Errno> {
        let (_argsz, _flags, index) = (fields.u32(), fields.u32(), fields.u32());
        let (count, flags) = match index {
            VFIO_PCI_INTX_IRQ_INDEX => {
                let flags = VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_MASKABLE | VFIO_IRQ_INFO_AUTOMASKED;
                (self.layout.intx.into(), flags)
            }
            VFIO_PCI_MSI_IRQ_INDEX => (self.layout.msi.into(), VFIO_IRQ_INFO_EVENTFD),
            VFIO_PCI_MSIX_IRQ_INDEX => (self.layout.msix.into(), VFIO_IRQ_INFO_EVENTFD),
            _ if index < VFIO_PCI_NUM_IRQS => (0u32, 0),
            _ => return Err(Errno::INVAL),
        };
        put(reply, &[16, flags, index, count]);
        Ok(())
    }

    fn set_irqs(&mut self, mut fields: Fields<'_>, fds: Vec<OwnedFd>) -> Result<(), Errno> {
        let (_argsz, flags, index) = (fields.u32(), fields.u32(), fields.u32());
        let (start, count) = (fields.u32(), fields.u32());
        if flags & IRQ_SET_DATA_BOOL != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let fds = fds.into_iter().map(File::from).collect();
        let is_unmasked = lock(&self.shared.wires).set(index, flags, start, count, fds)?;
        if is_unmasked {
            // The level may have stayed high.
            let device = self.shared.device();
            lock(&self.shared.wires).raise_intx(device.intx());
        }
        Ok(())
    }
}

/// The number of a BAR's region, if it is one.
fn bar_of(region: u32) -> Option<u8> {
    u8::try_from(region).ok().filter(|bar| u32::from(*bar) <= VFIO_PCI_BAR5_REGION_INDEX)
}

fn hold(arrived: Instant, wait_ns: u64) {
    if wait_ns > 0 {
        wait_until(arrived + Duration::from_nanos(wait_ns));
    }
}

fn put(reply: &mut Vec<u8>, values: &[u32]) {
    values.iter().for_each(|value| reply.extend_from_slice(&value.to_le_bytes()));
}

/// Agrees on the protocol's version. The client's capabilities do not matter to what is served here.
fn greet(mut fields: Fields<'_>, reply: &mut Vec<u8>) -> Result<(), Errno> {
    if fields.u16() != 0 {
        return Err(Errno::INVAL);
    }
    let capabilities = format!(r#"{{"capabilities":{{"max_msg_fds":{FDS_MAX},"max_data_xfer_size":{TRANSFER_MAX}}}}}"#);
    // 0.0: QEMU refuses a server whose minor version is above its own.
    reply.extend_from_slice(&[0; 4]);
    reply.extend_from_slice(capabilities.as_bytes());
    reply.push(0);
    Ok(())
}
