//! The register models of the lab under any driver: the first byte chooses the device, then every operation has a byte of
//! what, an offset of three bytes and a value of eight. Memory of the guest is what the input says, again and again.

use pciescope_lab::device::bus::{Bus, DmaError, Message};
use pciescope_lab::device::config::Link;
use pciescope_lab::device::endpoint::LatencyEndpoint;
use pciescope_lab::device::nvme::NvmeDisk;
use pciescope_lab::device::sis8300::{Model, Sis8300};
use pciescope_lab::device::traffic::Traffic;
use pciescope_lab::device::{Delivery, DeviceModel};

struct Memory<'a> {
    bytes: &'a [u8],
    sent: Vec<Message>,
    transferred: usize,
}

/// More than this a single input may not move.
const MOST: usize = 64 << 20;

impl Bus for Memory<'_> {
    fn send(&mut self, message: Message) {
        if self.sent.len() < 1024 {
            self.sent.push(message);
        }
    }

    fn read_memory(&mut self, address: u64, to: &mut [u8]) -> Result<(), DmaError> {
        self.transferred += to.len();
        if self.transferred > MOST || address >> 48 != 0 {
            return Err(DmaError::Unmapped { address, len: to.len() });
        }
        let from = address as usize % self.bytes.len().max(1);
        to.iter_mut().zip(self.bytes.iter().cycle().skip(from)).for_each(|(to, from)| *to = *from);
        Ok(())
    }

    fn write_memory(&mut self, address: u64, from: &[u8]) -> Result<(), DmaError> {
        self.transferred += from.len();
        match self.transferred > MOST || address >> 48 != 0 {
            true => Err(DmaError::Unmapped { address, len: from.len() }),
            false => Ok(()),
        }
    }
}

fn device(kind: u8) -> Box<dyn DeviceModel> {
    let (traffic, link) = (Traffic::new(), Link::default());
    let port = traffic.port("0000:00:02.0".parse().expect("an address"));
    match kind % 6 {
        0 => Box::new(LatencyEndpoint::new(&link)),
        1 => Box::new(NvmeDisk::new(&link, port)),
        2 => Box::new(Sis8300::new(Model::Sis8300, &link, port)),
        3 => Box::new(Sis8300::new(Model::L, &link, port)),
        4 => Box::new(Sis8300::new(Model::L2, &link, port)),
        _ => Box::new(Sis8300::new(Model::Ku, &link, port)),
    }
}

pub fn run(data: &[u8]) {
    let Some((kind, operations)) = data.split_first() else { return };
    let mut device = device(*kind);
    let mut bus = Memory { bytes: operations, sent: Vec::new(), transferred: 0 };
    let mut now_ns = 0;
    let _ = device.layout();
    // A bus master whose memory decodes.
    device.config_write(4, &0x6u16.to_le_bytes());
    for one in operations.chunks_exact(12).take(512) {
        let place = u64::from(u32::from_le_bytes([one[1], one[2], one[3], 0]));
        let (bar, offset) = (one[0] >> 3 & 3, place & 0xf_ffff);
        let width = 1 << (one[0] >> 5 & 3);
        let value = &one[4..4 + width];
        let mut read = [0; 8];
        now_ns += 1000;
        match one[0] & 7 {
            0 => drop(device.config_read(offset & 0xfff, &mut read[..width])),
            1 => drop(device.config_write(offset & 0xfff, value)),
            2 => drop(device.bar_read(now_ns, bar, offset, &mut read[..width])),
            3..=5 => drop(device.bar_write(now_ns, bar, offset, value, &mut bus)),
            6 => device.reset(),
            _ => now_ns += u64::from(u32::from_le_bytes([one[4], one[5], one[6], one[7]])),
        }
        for message in std::mem::take(&mut bus.sent) {
            if device.may_deliver(&message) == Delivery::Now {
                device.delivered(&message, true);
            }
        }
        for _ in 0..16 {
            match device.next_work() {
                Some(due) if due <= now_ns => device.work(now_ns, &mut bus),
                _ => break,
            }
        }
        let _ = (device.intx(), device.is_gone());
    }
}
