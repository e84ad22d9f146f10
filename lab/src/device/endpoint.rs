//! The latency endpoint. Its contract is docs/spec/latency-endpoint.md.

use serde_json::Value;

use super::bus::{Bus, Delivery, Message};
use super::command::{Command, CommandError};
use super::config::{ConfigSpace, Identity, Link};
use super::faults::Faults;
use super::ledger::Ledger;
use super::{DeviceModel, Layout, Wait, for_each_dword, read_dwords};

const IDENTITY: Identity = Identity {
    vendor: 0x1234,
    device: 0x5c0e,
    subsystem_vendor: 0x1234,
    subsystem: 0x0001,
    class: 0xff_0000,
    revision: 0x01,
};
const SERIAL_NUMBER: u64 = 0x5c0e_1a7e_0000_0001;

const BAR0_BYTES: u64 = 64 << 10;
const BAR2_BYTES: u64 = 1 << 20;
const BAR4_BYTES: u64 = 4 << 10;
const VECTORS: usize = 16;
const MSI_VECTORS: u16 = 8;
const MSIX_TABLE: u32 = 0x000;
const MSIX_PENDING: u32 = 0x800;
const MSIX_TABLE_BYTES: usize = 16 * VECTORS;

const ID: u64 = 0x000;
const VERSION: u64 = 0x004;
const SCRATCH: u64 = 0x008;
const READS: u64 = 0x010;
const WRITES: u64 = 0x018;
const EVENTS: u64 = 0x020;
const NEVER: u64 = 0x024;
const CLOCK: u64 = 0x028;
const IRQ_ENABLE: u64 = 0x030;
const IRQ_CAUSE: u64 = 0x034;
const IRQ_ACK: u64 = 0x038;
const IRQ_LAST: u64 = 0x03c;
const TRIGGER: u64 = 0x080;
const TRIGGERS: u64 = 0x100;
const SENT: u64 = 0x180;
const PATTERN: u64 = 0x1000;

const ID_VALUE: u32 = 0x5c0e_1a7e;
const VERSION_VALUE: u32 = 1;

/// What a function reset clears.
#[derive(Clone, Debug, Default)]
struct Registers {
    scratch: u64,
    reads: u64,
    writes: u64,
    event_reads: u16,
    is_scratch_written: bool,
    irq_enable: u32,
    irq_cause: u32,
    irq_last: u32,
    triggers: [u64; VECTORS],
    sent: [u64; VECTORS],
}

/// The model of the latency endpoint.
#[derive(Clone, Debug)]
pub struct LatencyEndpoint {
    config: ConfigSpace,
    link: Link,
    has_msix: bool,
    has_pin: bool,
    registers: Registers,
    memory: Vec<u8>,
    /// BAR 4. Behind QEMU the guest sees no more of it than the pending bits: QEMU keeps the MSI-X table itself.
    msix: Vec<u8>,
    faults: Faults,
    ledger: Ledger,
}

impl Default for LatencyEndpoint {
    fn default() -> Self {
        LatencyEndpoint::new(&Link::default())
    }
}

impl LatencyEndpoint {
    /// An endpoint on a link of this kind.
    pub fn new(link: &Link) -> Self {
        LatencyEndpoint::build(link, true, true, true)
    }

    /// An endpoint that can do MSI but not MSI-X, and so has no BAR 4. QEMU up to 11.1 at least aborts when a
    /// vfio-user device with MSI-X is unplugged: this one can be.
    pub fn without_msix(link: &Link) -> Self {
        LatencyEndpoint::build(link, false, true, true)
    }

    /// An endpoint whose extended configuration space holds zeros. QEMU answers for the first extended capability of
    /// any vfio-user device by itself: the reads of this one's offset 0x100 reach the model.
    pub fn without_serial_number(link: &Link) -> Self {
        LatencyEndpoint::build(link, true, false, true)
    }

    /// An endpoint without an INTx pin: Linux does not ask the firmware which interrupt that is.
    pub fn without_pin(link: &Link) -> Self {
        LatencyEndpoint::build(link, true, true, false)
    }

    fn build(link: &Link, has_msix: bool, has_serial_number: bool, has_pin: bool) -> Self {
        let mut config = ConfigSpace::new(&IDENTITY, has_pin)
            .with_bar64(0, BAR0_BYTES, false)
            .with_bar64(2, BAR2_BYTES, true)
            .with_power_management()
            .with_msi(MSI_VECTORS);
        if has_msix {
            config = config.with_bar64(4, BAR4_BYTES, false).with_msix(VECTORS as u16, 4, MSIX_TABLE, MSIX_PENDING);
        }
        config = config.with_pcie_endpoint(link);
        if has_serial_number {
            config = config.with_serial_number(SERIAL_NUMBER);
        }
        let mut endpoint = LatencyEndpoint {
            config,
            link: *link,
            has_msix,
            has_pin,
            registers: Registers::default(),
            memory: vec![0; BAR2_BYTES as usize],
            msix: vec![0; BAR4_BYTES as usize],
            faults: Faults::default(),
            ledger: Ledger::new(VECTORS),
        };
        endpoint.reset_msix();
        endpoint
    }

    /// What was counted so far.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Shows the link as told, or as it was made.
    fn set_link(&mut self, to: Option<(u8, u8)>) -> Result<(), CommandError> {
        let (generation, width) = to.unwrap_or((self.link.generation, self.link.width));
        let too_much = |number: u8, expected| Err(CommandError::wrong("link", &number.to_string(), expected));
        if generation > self.link.max_generation {
            return too_much(generation, "a generation that the device can do");
        }
        if width > self.link.max_width {
            return too_much(width, "a number of lanes that the device has");
        }
        self.config.show_link(generation, width);
        Ok(())
    }

    fn reset_registers(&mut self) {
        self.registers = Registers::default();
        self.memory.fill(0);
    }

    /// Every vector of the table is masked after reset.
    fn reset_msix(&mut self) {
        self.msix.fill(0);
        self.msix[..MSIX_TABLE_BYTES].chunks_exact_mut(16).for_each(|entry| entry[12] = 1);
    }

    /// Whether the function decodes the access: 1, 2, 4 or 8 bytes, aligned, inside one of its BARs, and memory
    /// enabled in the command register.
    fn decodes(&self, bar: u8, offset: u64, width: usize) -> bool {
        let size = self.layout().bars.get(usize::from(bar)).copied().unwrap_or(0);
        self.config.decodes(size, offset, width)
    }

    fn read_dword(&mut self, now_ns: u64, offset: u64) -> u32 {
        let registers = &mut self.registers;
        let half = |value: u64| (value >> (8 * (offset & 4))) as u32;
        let indexed = |base: u64| ((offset - base) / 8) as usize;
        match offset {
            ID => ID_VALUE,
            VERSION => VERSION_VALUE,
            _ if offset & !7 == SCRATCH => half(registers.scratch),
            _ if offset & !7 == READS => half(registers.reads),
            _ if offset & !7 == WRITES => half(registers.writes),
            EVENTS => {
                registers.event_reads = registers.event_reads.wrapping_add(1);
                let written = std::mem::take(&mut registers.is_scratch_written);
                u32::from(registers.event_reads) << 16 | u32::from(written)
            }
            _ if offset & !7 == CLOCK => half(now_ns),
            IRQ_ENABLE => registers.irq_enable,
            IRQ_CAUSE => registers.irq_cause,
            IRQ_LAST => registers.irq_last,
            TRIGGERS..SENT => half(registers.triggers[indexed(TRIGGERS)]),
            SENT..0x200 => half(registers.sent[indexed(SENT)]),
            PATTERN..0x2000 => u32::from_le_bytes([0, 1, 2, 3].map(|i| ((offset + i) ^ (offset + i) >> 8) as u8)),
            _ => 0,
        }
    }

    fn write_registers(&mut self, offset: u64, from: &[u8], bus: &mut dyn Bus) {
        for_each_dword(offset, from.len(), BAR0_BYTES, |register, skip, at, len| {
            let (mut value, mut mask) = ([0; 4], [0; 4]);
            value[skip..skip + len].copy_from_slice(&from[at..at + len]);
            mask[skip..skip + len].fill(0xff);
            self.write_dword(register, u32::from_le_bytes(value), u32::from_le_bytes(mask), bus);
        });
    }

    /// Writes the bytes of a register that `mask` covers; `value` is 0 elsewhere.
    fn write_dword(&mut self, offset: u64, value: u32, mask: u32, bus: &mut dyn Bus) {
        let registers = &mut self.registers;
        match offset {
            _ if offset & !7 == SCRATCH => {
                let shift = 8 * (offset & 4);
                registers.scratch = registers.scratch & !(u64::from(mask) << shift) | u64::from(value) << shift;
                registers.is_scratch_written = true;
            }
            IRQ_ENABLE => {
                registers.irq_enable = (registers.irq_enable & !mask | value) & ((1 << VECTORS) - 1);
            }
            IRQ_ACK => registers.irq_cause &= !value,
            TRIGGER..0x0c0 => self.raise(((offset - TRIGGER) / 4) as usize, bus),
            _ => {}
        }
    }

    fn raise(&mut self, vector: usize, bus: &mut dyn Bus) {
        self.registers.triggers[vector] += 1;
        self.registers.irq_cause |= 1 << vector;
        self.registers.irq_last = vector as u32;
        self.ledger.irq[vector].triggers += 1;
        if self.registers.irq_enable & 1 << vector == 0 {
            self.ledger.irq[vector].masked += 1;
        } else {
            self.faults.send(vector as u16, &mut self.ledger, bus);
        }
    }

    /// BAR 4: memory in the table, zero elsewhere. No delays, and no part of the counts in READS and WRITES.
    fn write_msix(&mut self, offset: usize, from: &[u8]) {
        if offset + from.len() <= MSIX_TABLE_BYTES {
            self.msix[offset..offset + from.len()].copy_from_slice(from);
        }
    }
}

impl DeviceModel for LatencyEndpoint {
    fn layout(&self) -> Layout {
        let (bar4, msix) = if self.has_msix { (BAR4_BYTES, VECTORS as u16) } else { (0, 0) };
        Layout { bars: [BAR0_BYTES, 0, BAR2_BYTES, 0, bar4, 0], intx: self.has_pin, msi: MSI_VECTORS, msix }
    }

    fn config_read(&mut self, offset: u64, to: &mut [u8]) -> Wait {
        to.fill(0xff);
        let Some(wait) = self.faults.admit_config() else {
            self.ledger.all_ones_reads += 1;
            return 0;
        };
        self.ledger.config_reads += 1;
        let level = self.intx();
        self.config.show_intx(level);
        self.config.read(offset, to);
        wait
    }

    fn config_write(&mut self, offset: u64, from: &[u8]) -> Wait {
        let Some(wait) = self.faults.admit_config() else {
            self.ledger.dropped_writes += 1;
            return 0;
        };
        self.ledger.config_writes += 1;
        if self.config.write(offset, from).is_reset {
            self.reset();
        }
        wait
    }

    fn bar_read(&mut self, now_ns: u64, bar: u8, offset: u64, to: &mut [u8]) -> Wait {
        to.fill(0xff);
        if !self.decodes(bar, offset, to.len()) {
            self.ledger.refused += 1;
            return 0;
        }
        if bar == 4 {
            if self.faults.is_gone() {
                self.ledger.all_ones_reads += 1;
                return 0;
            }
            self.ledger.reads.count(bar, offset, to.len() as u8);
            to.copy_from_slice(&self.msix[offset as usize..offset as usize + to.len()]);
            return 0;
        }
        let is_answered = bar != 0 || offset & !3 != NEVER && !(to.len() == 8 && offset + 4 == NEVER);
        let Some(wait) = self.faults.admit_read(is_answered, &mut self.ledger) else { return 0 };
        self.registers.reads += 1;
        self.ledger.reads.count(bar, offset, to.len() as u8);
        match bar {
            0 if is_answered => read_dwords(offset, to, BAR0_BYTES, |register| self.read_dword(now_ns, register)),
            2 => to.copy_from_slice(&self.memory[offset as usize..offset as usize + to.len()]),
            _ => {}
        }
        let asleep = if is_answered { self.config.aspm_control() } else { 0 };
        wait + self.faults.leave_aspm(asleep, &mut self.ledger)
    }

    fn bar_write(&mut self, _now_ns: u64, bar: u8, offset: u64, from: &[u8], bus: &mut dyn Bus) -> Wait {
        if !self.decodes(bar, offset, from.len()) {
            self.ledger.refused += 1;
            return 0;
        }
        if bar == 4 {
            if self.faults.is_gone() {
                self.ledger.dropped_writes += 1;
                return 0;
            }
            self.ledger.writes.count(bar, offset, from.len() as u8);
            self.write_msix(offset as usize, from);
            return 0;
        }
        let Some(wait) = self.faults.admit_write(&mut self.ledger) else { return 0 };
        self.registers.writes += 1;
        self.ledger.writes.count(bar, offset, from.len() as u8);
        if bar == 0 {
            self.write_registers(offset, from, bus);
        } else {
            self.memory[offset as usize..offset as usize + from.len()].copy_from_slice(from);
        }
        wait
    }

    fn may_deliver(&mut self, message: &Message) -> Delivery {
        if self.faults.is_gone() || !self.config.can_interrupt() {
            Delivery::Never
        } else if message.is_copy && self.registers.irq_cause >> message.vector & 1 != 0 {
            // Sent before the first was handled, it would merge with that in the guest's interrupt controller.
            Delivery::Later
        } else {
            Delivery::Now
        }
    }

    fn delivered(&mut self, message: &Message, sent: bool) {
        let vector = usize::from(message.vector);
        let (Some(irq), Some(count)) = (self.ledger.irq.get_mut(vector), self.registers.sent.get_mut(vector)) else {
            return;
        };
        irq.settle(message, sent);
        *count += u64::from(sent);
    }

    fn is_gone(&self) -> bool {
        self.faults.is_gone()
    }

    fn intx(&self) -> bool {
        self.has_pin && !self.faults.is_gone() && self.registers.irq_cause & self.registers.irq_enable != 0
    }

    fn reset(&mut self) {
        self.ledger.resets += 1;
        self.config.reset();
        self.reset_msix();
        self.reset_registers();
    }

    fn command(&mut self, line: &str) -> Result<Value, CommandError> {
        match Command::parse(line, &self.faults)? {
            Command::Ledger => return Ok(self.ledger.to_json(self.faults.is_removed())),
            Command::Reset => {
                // The guest's configuration stays: it goes on using the device.
                self.faults = Faults::default();
                self.ledger = Ledger::new(VECTORS);
                self.reset_registers();
                self.set_link(None)?;
                self.config.show_aspm(0);
            }
            Command::Link(to) => self.set_link(to)?,
            Command::Remove => self.faults.remove(),
            Command::Faults(faults) => {
                self.config.show_aspm(faults.aspm_support());
                self.faults = *faults;
            }
        }
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests;
