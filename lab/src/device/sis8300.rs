//! The Struck SIS8300 digitizers: L, L2, KU and the first one. Their contract is docs/spec/sis8300.md; registers are named here by
//! the word numbers of the manuals, which are byte offsets divided by 4.

mod acquisition;
mod clock;
mod engine;
mod interrupts;
mod ledger;
mod memory;
mod model;
mod registers;
mod samples;
mod sampling;
mod settings;
mod transfers;
mod trigger;

use serde_json::Value;

use self::acquisition::{Phase, Sampler};
use self::clock::ClockTree;
use self::engine::Engine;
use self::interrupts::{Interrupts, Source};
use self::ledger::Books;
use self::memory::CardMemory;
pub use self::model::Model;
use self::settings::{Order, Settings};
use self::trigger::Generator;
use super::bus::{Bus, Delivery, Message};
use super::command::{Command, CommandError};
use super::config::{ConfigSpace, Identity, Link};
use super::faults::Faults;
use super::ledger::Ledger;
use super::traffic::PortTraffic;
use super::upstream::{Direction, Upstream};
use super::{DeviceModel, Layout, Wait};

/// Channels of a board.
pub const CHANNELS: usize = 10;

const VENDOR: u16 = 0x1796;
const BAR0_BYTES: u64 = 16 << 10;
/// Where the PCI Express capability lies: drivers know it.
const PCIE_AT: usize = 0x60;
/// Card addresses and lengths of DMA are multiples of this.
const DMA_ALIGN: u64 = 64;
/// What of each channel the FIFO still holds when sampling ends, in bytes.
const FIFO_BYTES: u64 = 1024;

/// The model of a board.
#[derive(Debug)]
pub struct Sis8300 {
    model: Model,
    link: Link,
    has_msi: bool,
    seed: u64,
    serial: u16,
    upstream: Option<Upstream>,

    config: ConfigSpace,
    port: PortTraffic,
    faults: Faults,
    ledger: Ledger,
    books: Books,
    settings: Settings,

    /// Registers that only keep what was written, by word.
    words: Box<[u32]>,
    clock: ClockTree,
    sampler: Sampler,
    generator: Generator,
    interrupts: Interrupts,
    memory: CardMemory,
    read_engine: Engine,
    write_engine: Engine,
    /// Acquisitions that began since the board was made.
    acquisitions: u64,
    now_ns: u64,
}

impl Sis8300 {
    /// A board on a link of this kind, which enters what it moves into the account of its root port. It has MSI, seed 1 and
    /// serial number 1; nothing triggers it.
    pub fn new(model: Model, link: &Link, port: PortTraffic) -> Self {
        let mut board = Sis8300 {
            model,
            link: *link,
            has_msi: true,
            seed: 1,
            serial: 1,
            upstream: None,
            config: build_config(model, link, true),
            port,
            faults: Faults::default(),
            ledger: Ledger::new(1),
            books: Books::default(),
            settings: Settings::default(),
            words: vec![0; (BAR0_BYTES / 4) as usize].into_boxed_slice(),
            clock: ClockTree::default(),
            sampler: Sampler::new(model),
            generator: Generator::default(),
            interrupts: Interrupts::default(),
            memory: CardMemory::new(0, 0),
            read_engine: Engine::new(Direction::Up, None),
            write_engine: Engine::new(Direction::Down, None),
            acquisitions: 0,
            now_ns: 0,
        };
        board.power_on_words();
        board.fresh_memory();
        board.tell_link();
        board
    }

    /// With another seed of its samples.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self.fresh_memory();
        self
    }

    /// With another serial number (register 0x01), which the samples depend on.
    pub fn with_serial(mut self, serial: u16) -> Self {
        self.serial = serial;
        self.fresh_memory();
        self
    }

    /// Without MSI: it interrupts by its pin only.
    pub fn without_msi(mut self) -> Self {
        self.has_msi = false;
        self.config = build_config(self.model, &self.link, false);
        self
    }

    /// Behind a link that it shares with others.
    pub fn with_upstream(mut self, upstream: &Upstream) -> Self {
        self.upstream = Some(upstream.clone());
        self.read_engine = Engine::new(Direction::Up, Some(upstream.join()));
        self.write_engine = Engine::new(Direction::Down, Some(upstream.join()));
        self
    }

    /// With pulses of the trigger generator at this rate, in 1/1000 Hz; 0: none.
    pub fn with_trigger(mut self, millihertz: u64) -> Self {
        self.generator.set_rate(millihertz, self.now_ns);
        self
    }

    /// Bytes of the card's memory.
    pub fn memory_bytes(&self) -> u64 {
        match self.model {
            Model::Sis8300 if self.options() & 1 << 8 == 0 => 512 << 20,
            Model::Sis8300 => 1 << 30,
            _ => 2 << 30,
        }
    }

    fn options(&self) -> u32 {
        self.settings.options.unwrap_or(self.model.options())
    }

    fn fresh_memory(&mut self) {
        self.memory = CardMemory::new(self.memory_bytes(), samples::key(self.seed, self.serial, 0, 0));
    }

    /// Tells the ledger how TLPs are cut now.
    fn tell_link(&self) {
        let (payload, read_request) = self.config.transfer_sizes();
        self.port.set_link(payload, read_request);
    }

    fn raise(&mut self, source: Source) {
        self.interrupts.raise(source, self.settings.latch, self.settings.rule);
    }

    /// Sends what the interrupt logic has to send.
    fn send_messages(&mut self, bus: &mut dyn Bus) {
        for _ in 0..std::mem::take(&mut self.interrupts.pending) {
            self.ledger.irq[0].triggers += 1;
            self.faults.send(0, &mut self.ledger, bus);
        }
    }

    /// All registers as after power-on; what the sample logic and the engines do ends. The memory stays.
    fn reset_registers(&mut self) {
        let now_ns = self.now_ns;
        self.stop_sampling(now_ns);
        self.sampler = Sampler::new(self.model);
        self.abort(Direction::Up, now_ns);
        self.abort(Direction::Down, now_ns);
        self.interrupts.reset();
        self.clock = ClockTree::default();
        self.power_on_words();
    }

    fn power_on_words(&mut self) {
        self.words.fill(0);
        self.words[registers::WRITE_OUTSTANDING] = 0x10;
    }

    /// The board was taken away: what it did ends, and the memory's content is gone.
    fn remove(&mut self) {
        self.reset_registers();
        self.sampler.phase = Phase::Idle;
        self.fresh_memory();
    }

    fn decodes(&self, bar: u8, offset: u64, width: usize) -> bool {
        bar == 0 && width >= 4 && self.config.decodes(BAR0_BYTES, offset, width)
    }

    /// Carries out a command; `Some`: its answer.
    fn set(&mut self, order: Order) -> Option<Value> {
        let now_ns = self.now_ns;
        match order {
            Order::Common(Command::Ledger) => return Some(self.to_json()),
            Order::Common(Command::Reset) => {
                if self.faults.is_removed() {
                    self.config.reset();
                    self.tell_link();
                }
                self.stand_still();
                self.faults = Faults::default();
                self.ledger = Ledger::new(1);
                self.books = Books::default();
                self.settings = Settings::default();
                self.interrupts.forget();
                self.generator.seen = 0;
            }
            Order::Common(Command::Remove) => {
                self.remove();
                self.faults.remove();
            }
            Order::Common(Command::Faults(faults)) => {
                self.stand_still();
                self.faults = *faults;
            }
            Order::Common(Command::Link(_)) => {}
            Order::PowerCycle => {
                self.reset_registers();
                self.sampler.phase = Phase::Idle;
            }
            Order::TriggerRate(millihertz) => self.generator.set_rate(millihertz, now_ns),
            Order::TriggerShots(count, gap_ns) => {
                for number in 0..count.min(1_000_000) {
                    self.generator.shoot(now_ns.saturating_add(1).saturating_add(number.saturating_mul(gap_ns)));
                }
            }
            Order::Set(settings, lines) => (self.settings, self.generator.lines) = (settings, lines),
            Order::Serial(serial) => {
                self.serial = serial;
                self.fresh_memory();
            }
            Order::Lose { source, count, is_event } => self.interrupts.lose(source, count, is_event),
            Order::Spurious(count) => (0..count.min(1000)).for_each(|_| self.interrupts.raise_spurious()),
            Order::User => self.raise(Source::User),
        }
        None
    }
}

/// Takes one of what is left.
fn take(left: &mut u64) -> bool {
    let is_any = *left > 0;
    *left -= u64::from(is_any);
    is_any
}

fn build_config(model: Model, link: &Link, has_msi: bool) -> ConfigSpace {
    let (vendor, device) = (VENDOR, model.device());
    let (subsystem_vendor, subsystem) = (vendor, device);
    let identity = Identity { vendor, device, subsystem_vendor, subsystem, class: model.class(), revision: 0 };
    let mut config = ConfigSpace::new(&identity, true).with_bar32(0, BAR0_BYTES as u32).with_power_management();
    if has_msi {
        config = config.with_msi(1);
    }
    config.with_next_capability_at(PCIE_AT).with_pcie_endpoint(link).without_function_reset()
}

impl DeviceModel for Sis8300 {
    fn layout(&self) -> Layout {
        Layout { bars: [BAR0_BYTES, 0, 0, 0, 0, 0], intx: true, msi: self.has_msi.into(), msix: 0 }
    }

    fn config_read(&mut self, offset: u64, to: &mut [u8]) -> Wait {
        to.fill(0xff);
        let Some(wait) = self.faults.admit_config() else {
            self.ledger.all_ones_reads += 1;
            return 0;
        };
        self.ledger.config_reads += 1;
        self.port.config_read();
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
        self.port.config_write();
        // Before and after: what stood still goes on from its next look.
        self.stand_still();
        let _ = self.config.write(offset, from);
        self.stand_still();
        self.tell_link();
        wait
    }

    fn bar_read(&mut self, now_ns: u64, bar: u8, offset: u64, to: &mut [u8]) -> Wait {
        to.fill(0xff);
        if !self.decodes(bar, offset, to.len()) {
            self.ledger.refused += 1;
            return 0;
        }
        let Some(wait) = self.faults.admit_read(true, &mut self.ledger) else { return 0 };
        self.advance(now_ns);
        self.ledger.reads.count(bar, offset, to.len() as u8);
        self.port.cpu_read(to.len() as u64);
        for (value, at) in to.chunks_exact_mut(4).zip((offset..).step_by(4)) {
            value.copy_from_slice(&self.read_word(now_ns, (at / 4) as usize).to_le_bytes());
        }
        wait
    }

    fn bar_write(&mut self, now_ns: u64, bar: u8, offset: u64, from: &[u8], bus: &mut dyn Bus) -> Wait {
        if !self.decodes(bar, offset, from.len()) {
            self.ledger.refused += 1;
            return 0;
        }
        let Some(wait) = self.faults.admit_write(&mut self.ledger) else { return 0 };
        self.advance(now_ns);
        self.ledger.writes.count(bar, offset, from.len() as u8);
        self.port.cpu_write(from.len() as u64);
        for (value, at) in from.chunks_exact(4).zip((offset..).step_by(4)) {
            let value = u32::from_le_bytes([0, 1, 2, 3].map(|i| value[i]));
            self.write_word(now_ns, (at / 4) as usize, value);
        }
        self.send_messages(bus);
        wait
    }

    fn may_deliver(&mut self, _message: &Message) -> Delivery {
        if self.faults.is_gone() || !self.config.can_interrupt() { Delivery::Never } else { Delivery::Now }
    }

    fn delivered(&mut self, message: &Message, sent: bool) {
        self.ledger.irq[0].settle(message, sent);
    }

    fn is_gone(&self) -> bool {
        self.faults.is_gone()
    }

    fn intx(&self) -> bool {
        !self.faults.is_gone() && !self.config.has_messages() && self.config.can_interrupt() && self.interrupts.level()
    }

    fn reset(&mut self) {
        self.ledger.resets += 1;
        self.config.reset();
        self.reset_registers();
        self.sampler.phase = Phase::Idle;
        self.tell_link();
    }

    fn next_work(&self) -> Option<u64> {
        if self.faults.is_gone() {
            return None;
        }
        if self.interrupts.pending > 0 {
            return Some(0);
        }
        let engines = [&self.read_engine, &self.write_engine].into_iter().filter(|_| self.config.is_bus_master());
        engines.filter_map(Engine::next_ns).chain(self.next_event()).min()
    }

    fn work(&mut self, now_ns: u64, bus: &mut dyn Bus) {
        if self.faults.is_gone() {
            return;
        }
        self.advance(now_ns);
        self.move_data(now_ns, bus);
        self.send_messages(bus);
    }

    fn set_clock(&mut self, now_ns: u64) {
        self.advance(now_ns);
    }

    fn command(&mut self, line: &str) -> Result<Value, CommandError> {
        let order = Order::parse(line, &self.faults, self.settings, self.generator.lines)?;
        Ok(self.set(order).unwrap_or(Value::Null))
    }
}

#[cfg(test)]
mod tests;
