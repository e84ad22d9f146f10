//! An NVMe disk whose every byte is counted. Its contract is docs/spec/lab-disk.md, which cites the NVM Express Base
//! Specification 1.4; the numbers of sections and figures in here are of that.

mod admin;
mod dma;
mod features;
mod identify;
mod io;
mod ledger;
mod pipe;
mod queue;
mod settings;
mod store;
mod wire;

use std::collections::VecDeque;

use serde_json::Value;

pub use store::{Fill, pattern};

use self::dma::{Dma, PAGE};
use self::features::Features;
use self::identify::Who;
use self::io::Transfer;
use self::ledger::Ledger;
use self::pipe::Pipe;
use self::queue::{CompletionQueue, SubmissionQueue};
use self::settings::Order;
use self::store::Store;
use super::bus::{Bus, Delivery, Message};
use super::command::CommandError;
use super::config::{ConfigSpace, Identity, Link};
use super::traffic::PortTraffic;
use super::{DeviceModel, Layout, Wait, read_dwords};

const VENDOR: u16 = 0x1234;
const SUBSYSTEM_VENDOR: u16 = 0x1234;
const IDENTITY: Identity = Identity {
    vendor: VENDOR,
    device: 0x5c10,
    subsystem_vendor: SUBSYSTEM_VENDOR,
    subsystem: 0x0001,
    class: 0x01_0802,
    revision: 0x01,
};
/// NVMe 1.4.
const VERSION: u32 = 0x0001_0400;

const BAR0_BYTES: u64 = 16 << 10;
/// Messages: the admin queue and the I/O queues.
const VECTORS: u16 = 16;
/// Pairs of I/O queues.
const IO_QUEUES: u16 = 15;
/// Entries of a queue at most.
const QUEUE_ENTRIES: u16 = 1024;
/// Bytes of a block.
const BLOCK_BYTES: u64 = 512;
/// The only namespace.
const NAMESPACE: u32 = 1;
/// Stands for all namespaces.
const NAMESPACE_ALL: u32 = 0xffff_ffff;
/// Bytes of the medium unless set otherwise.
const CAPACITY: u64 = 8 << 30;

// Registers (figure 68).
const CAP: u64 = 0x00;
const CAP_HIGH: u64 = 0x04;
const VS: u64 = 0x08;
const INTMS: u64 = 0x0c;
const INTMC: u64 = 0x10;
const CC: u64 = 0x14;
const CSTS: u64 = 0x1c;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ASQ_HIGH: u64 = 0x2c;
const ACQ: u64 = 0x30;
const ACQ_HIGH: u64 = 0x34;
const DOORBELLS: u64 = 0x1000;

/// Entries of a queue less 1; queues are contiguous; ready within 10 s; doorbells side by side; the NVM command set;
/// pages of 4 KiB only.
const CAP_VALUE: u64 = (QUEUE_ENTRIES as u64 - 1) | 1 << 16 | 20 << 24 | 1 << 37;
const CC_ENABLE: u32 = 1;
/// Command set, page size and arbitration: only 0 is served.
const CC_CHOICES: u32 = 0x3ff0;
const CC_SHUTDOWN: u32 = 3 << 14;
/// What can be written: the above and the sizes of queue entries.
const CC_WRITABLE: u32 = 0x00ff_fff1;
const CSTS_READY: u32 = 1;
const CSTS_FATAL: u32 = 1 << 1;
const CSTS_SHUTDOWN: u32 = 3 << 2;
const CSTS_SHUTDOWN_COMPLETE: u32 = 2 << 2;
const AQA_WRITABLE: u32 = 0x0fff_0fff;

// Asynchronous events (figures 146 and 147): errors, to be read from log 01h.
const EVENT_INVALID_REGISTER: u32 = 0x01 << 16;
const EVENT_INVALID_VALUE: u32 = 0x01 << 16 | 0x01 << 8;

/// The model of the disk.
#[derive(Debug)]
pub struct NvmeDisk {
    config: ConfigSpace,
    port: PortTraffic,
    who: Who,
    store: Store,
    ledger: Ledger,

    pipe: Pipe,
    fail_every: Option<u64>,
    /// Reads and writes since `fail` was set.
    passed: u64,
    is_removed: bool,

    cc: u32,
    csts: u32,
    aqa: u32,
    asq: u64,
    acq: u64,
    /// Vectors that INTMS masked, by bit.
    masked: u32,
    /// Vectors that INTMC unmasked since the last work.
    unmasked: u32,
    /// Vectors with a message that has not gone out.
    in_flight: u32,
    /// By identifier; 0 is the admin queue.
    submissions: Vec<Option<SubmissionQueue>>,
    completions: Vec<Option<CompletionQueue>>,
    transfers: VecDeque<Transfer>,
    features: Features,
    /// Asynchronous Event Requests that wait, by command identifier.
    event_requests: VecDeque<u16>,
    /// Events that nobody has asked for yet.
    events: VecDeque<u32>,
}

impl NvmeDisk {
    /// A disk of 8 GiB on a link of this kind, which enters what it moves into the account of its root port. Nothing was
    /// written: it reads as zeros.
    pub fn new(link: &Link, port: PortTraffic) -> Self {
        let config = ConfigSpace::new(&IDENTITY, false)
            .with_bar64(0, BAR0_BYTES, false)
            .with_power_management()
            .with_msi(VECTORS)
            .with_pcie_endpoint(link);
        let mut disk = NvmeDisk {
            config,
            port,
            who: Who { serial: 1, blocks: CAPACITY / BLOCK_BYTES },
            store: Store::new(CAPACITY, Fill::Zeros),
            ledger: Ledger::default(),
            pipe: Pipe::default(),
            fail_every: None,
            passed: 0,
            is_removed: false,
            cc: 0,
            csts: 0,
            aqa: 0,
            asq: 0,
            acq: 0,
            masked: 0,
            unmasked: 0,
            in_flight: 0,
            submissions: Vec::new(),
            completions: Vec::new(),
            transfers: VecDeque::new(),
            features: Features::default(),
            event_requests: VecDeque::new(),
            events: VecDeque::new(),
        };
        disk.disable();
        disk.tell_link();
        disk
    }

    /// With another size, in bytes; what does not fill a block is cut off. Blocks take memory once they are written.
    pub fn with_capacity(mut self, bytes: u64) -> Self {
        self.who.blocks = bytes / BLOCK_BYTES;
        self.store = Store::new(self.who.blocks * BLOCK_BYTES, self.store.fill());
        self
    }

    /// With other content in what was never written.
    pub fn with_fill(mut self, fill: Fill) -> Self {
        self.store = Store::new(self.store.size(), fill);
        self
    }

    /// With another serial number. Disks of one guest must differ in it.
    pub fn with_serial(mut self, serial: u32) -> Self {
        self.who.serial = serial;
        self
    }

    fn dma<'a>(&'a mut self, bus: &'a mut dyn Bus) -> Dma<'a> {
        Dma { bus, port: &self.port, ledger: &mut self.ledger }
    }

    /// Whether the controller takes commands.
    fn is_working(&self) -> bool {
        !self.is_removed && self.config.is_bus_master() && self.csts & (CSTS_READY | CSTS_FATAL) == CSTS_READY
    }

    /// Tells the ledger how TLPs are cut now.
    fn tell_link(&self) {
        let (payload, read_request) = self.config.transfer_sizes();
        self.port.set_link(payload, read_request);
    }

    /// The state of a controller that is not enabled; the admin queue's registers stay (section 7.3.2).
    fn disable(&mut self) {
        self.csts = 0;
        self.masked = 0;
        self.unmasked = 0;
        self.submissions = std::iter::repeat_with(|| None).take(usize::from(IO_QUEUES) + 1).collect();
        self.completions = std::iter::repeat_with(|| None).take(usize::from(IO_QUEUES) + 1).collect();
        self.transfers.clear();
        self.features = Features::default();
        self.event_requests.clear();
        self.events.clear();
    }

    fn enable(&mut self) {
        self.ledger.enables += 1;
        let (submissions, completions) = ((self.aqa & 0xfff) as u16 + 1, (self.aqa >> 16 & 0xfff) as u16 + 1);
        if self.cc & CC_CHOICES != 0 || submissions < 2 || completions < 2 {
            self.fail(format!("enabled with CC {:#x} and AQA {:#x}", self.cc, self.aqa));
            return;
        }
        self.submissions[0] = Some(SubmissionQueue::new(self.asq, submissions, 0));
        self.completions[0] = Some(CompletionQueue::new(self.acq, completions, Some(0)));
        self.csts = CSTS_READY;
    }

    /// Everything the guest can change, but for configuration space and the medium.
    fn reset_controller(&mut self) {
        (self.cc, self.aqa, self.asq, self.acq) = (0, 0, 0, 0);
        self.disable();
    }

    fn read_dword(&self, offset: u64) -> u32 {
        match offset {
            CAP => CAP_VALUE as u32,
            CAP_HIGH => (CAP_VALUE >> 32) as u32,
            VS => VERSION,
            INTMS | INTMC => self.masked,
            CC => self.cc,
            CSTS => self.csts,
            AQA => self.aqa,
            ASQ => self.asq as u32,
            ASQ_HIGH => (self.asq >> 32) as u32,
            ACQ => self.acq as u32,
            ACQ_HIGH => (self.acq >> 32) as u32,
            _ => 0,
        }
    }

    fn write_dword(&mut self, now_ns: u64, offset: u64, value: u32) {
        let low = |old: u64| old & !0xffff_ffff | u64::from(value & !(PAGE as u32 - 1));
        let high = |old: u64| old & 0xffff_ffff | u64::from(value) << 32;
        match offset {
            INTMS => self.masked |= value,
            INTMC => {
                self.unmasked |= self.masked & value;
                self.masked &= !value;
            }
            CC => self.control(value & CC_WRITABLE),
            AQA => self.aqa = value & AQA_WRITABLE,
            ASQ => self.asq = low(self.asq),
            ASQ_HIGH => self.asq = high(self.asq),
            ACQ => self.acq = low(self.acq),
            ACQ_HIGH => self.acq = high(self.acq),
            DOORBELLS..BAR0_BYTES => self.ring(now_ns, offset - DOORBELLS, value),
            _ => {}
        }
    }

    /// A write of CC (section 3.1.5).
    fn control(&mut self, value: u32) {
        let before = std::mem::replace(&mut self.cc, value);
        match (before & CC_ENABLE != 0, value & CC_ENABLE != 0) {
            (false, true) => self.enable(),
            (true, false) => self.disable(),
            _ => {}
        }
        if value & CC_SHUTDOWN == 0 {
            self.csts &= !CSTS_SHUTDOWN;
        } else {
            // The medium keeps everything at once: there is nothing to wait for.
            self.csts = self.csts & !CSTS_SHUTDOWN | CSTS_SHUTDOWN_COMPLETE;
        }
    }

    /// A write of a doorbell (section 3.1.24).
    fn ring(&mut self, now_ns: u64, offset: u64, value: u32) {
        if self.csts & CSTS_READY == 0 {
            return;
        }
        self.ledger.doorbells += 1;
        let (id, is_completion) = ((offset / 8) as usize, offset & 4 != 0);
        let is_known = if is_completion {
            self.completions.get_mut(id).and_then(Option::as_mut).map(|queue| queue.ring(value))
        } else {
            self.submissions.get_mut(id).and_then(Option::as_mut).map(|queue| queue.ring(value, now_ns))
        };
        if is_known != Some(true) {
            let kind = if is_completion { "completion" } else { "submission" };
            self.ledger.violation(format!("doorbell of {kind} queue {id}: {value:#x}"));
            self.event(if is_known.is_none() { EVENT_INVALID_REGISTER } else { EVENT_INVALID_VALUE });
        }
    }

    /// Whether the function decodes the access: 4 or 8 bytes, aligned, inside BAR 0, with memory enabled.
    fn decodes(&self, bar: u8, offset: u64, width: usize) -> bool {
        bar == 0 && self.config.decodes(BAR0_BYTES, offset, width)
    }
}

impl DeviceModel for NvmeDisk {
    fn layout(&self) -> Layout {
        Layout { bars: [BAR0_BYTES, 0, 0, 0, 0, 0], intx: false, msi: VECTORS, msix: 0 }
    }

    fn config_read(&mut self, offset: u64, to: &mut [u8]) -> Wait {
        to.fill(0xff);
        if self.is_removed {
            self.ledger.all_ones_reads += 1;
            return 0;
        }
        self.ledger.config_reads += 1;
        self.port.config_read();
        self.config.read(offset, to);
        0
    }

    fn config_write(&mut self, offset: u64, from: &[u8]) -> Wait {
        if self.is_removed {
            self.ledger.dropped_writes += 1;
            return 0;
        }
        self.ledger.config_writes += 1;
        self.port.config_write();
        if self.config.write(offset, from).is_reset {
            self.reset();
        }
        self.tell_link();
        0
    }

    fn bar_read(&mut self, _now_ns: u64, bar: u8, offset: u64, to: &mut [u8]) -> Wait {
        to.fill(0xff);
        if self.is_removed {
            self.ledger.all_ones_reads += 1;
            return 0;
        }
        if !self.decodes(bar, offset, to.len()) {
            self.ledger.refused += 1;
            return 0;
        }
        self.ledger.mmio_reads += 1;
        self.ledger.mmio_read_bytes += to.len() as u64;
        self.port.cpu_read(to.len() as u64);
        read_dwords(offset, to, BAR0_BYTES, |register| self.read_dword(register));
        0
    }

    fn bar_write(&mut self, now_ns: u64, bar: u8, offset: u64, from: &[u8], _bus: &mut dyn Bus) -> Wait {
        if self.is_removed {
            self.ledger.dropped_writes += 1;
            return 0;
        }
        if !self.decodes(bar, offset, from.len()) {
            self.ledger.refused += 1;
            return 0;
        }
        self.ledger.mmio_writes += 1;
        self.ledger.mmio_write_bytes += from.len() as u64;
        self.port.cpu_write(from.len() as u64);
        // Registers are written whole (section 3.1); what is narrower is dropped.
        for (dword, value) in (offset..).step_by(4).zip(from.chunks_exact(4)) {
            self.write_dword(now_ns, dword, u32::from_le_bytes([0, 1, 2, 3].map(|i| value[i])));
        }
        0
    }

    /// A message only says that a queue has news.
    fn merges_messages(&self) -> bool {
        true
    }

    fn may_deliver(&mut self, _message: &Message) -> Delivery {
        if self.is_removed || !self.config.can_interrupt() { Delivery::Never } else { Delivery::Now }
    }

    fn delivered(&mut self, message: &Message, sent: bool) {
        self.in_flight &= !(1 << (message.vector & 31));
        if sent {
            self.ledger.interrupts.sent += 1;
        } else {
            self.ledger.interrupts.undelivered += 1;
        }
    }

    fn is_gone(&self) -> bool {
        self.is_removed
    }

    fn reset(&mut self) {
        self.ledger.resets += 1;
        self.config.reset();
        self.reset_controller();
        self.tell_link();
    }

    fn next_work(&self) -> Option<u64> {
        self.due_ns()
    }

    fn work(&mut self, now_ns: u64, bus: &mut dyn Bus) {
        self.work_at(now_ns, bus);
    }

    fn command(&mut self, line: &str) -> Result<Value, CommandError> {
        match Order::parse(line)? {
            Order::Ledger => {
                let mut ledger = self.ledger.to_json();
                ledger["removed"] = self.is_removed.into();
                ledger["rate"] = self.pipe.rate.map(|rate| rate.get()).into();
                ledger["waiting"] = self.transfers.len().into();
                ledger["stored_bytes"] = self.store.stored().into();
                return Ok(ledger);
            }
            Order::Rate(rate) => self.pipe.set_rate(rate),
            Order::Fail(every) => (self.fail_every, self.passed) = (every.map(|every| every.get()), 0),
            Order::Remove => {
                self.is_removed = true;
                self.reset_controller();
            }
            Order::Reset => {
                if self.is_removed {
                    // It comes back as after power-on, with its medium.
                    self.is_removed = false;
                    self.config.reset();
                    self.tell_link();
                }
                self.pipe.set_rate(None);
                (self.fail_every, self.passed) = (None, 0);
                self.ledger = Ledger::default();
            }
        }
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests;
