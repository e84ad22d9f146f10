//! The register window, by the word numbers of the manuals. docs/spec/sis8300.md, "Registers".

use super::acquisition::{BLOCK_SAMPLES, Phase};
use super::settings::BusyBlocks;
use super::{CHANNELS, Direction, Model, Sis8300};

const MODULE_ID: usize = 0x00;
const SERIAL: usize = 0x01;
const USER_CONTROL: usize = 0x04;
const OPTIONS: usize = 0x05;
const PCIE_STATUS: usize = 0x07;
const ACQUISITION: usize = 0x10;
const SAMPLE_CONTROL: usize = 0x11;
const MLVDS: usize = 0x12;
const FRONT: usize = 0x13;
const CLOCK_MUX: usize = 0x40;
const CLOCK_SPI: usize = 0x41;
const ADC_SPI: usize = 0x48;
const MASTER_RESET: usize = 0xff;
const TRIGGER_SETUP: usize = 0x100;
const TRIGGER_SETUP_LAST: usize = 0x109;
const START: usize = 0x120;
const START_LAST: usize = 0x129;
const LENGTH: usize = 0x12a;
const PRETRIGGER: usize = 0x12b;
pub(super) const READ_HOST: usize = 0x200;
pub(super) const READ_HOST_HIGH: usize = 0x201;
pub(super) const READ_CARD: usize = 0x202;
pub(super) const READ_LENGTH: usize = 0x203;
const READ_CONTROL: usize = 0x204;
pub(super) const READ_SWAP: usize = 0x205;
pub(super) const WRITE_HOST: usize = 0x210;
pub(super) const WRITE_HOST_HIGH: usize = 0x211;
pub(super) const WRITE_CARD: usize = 0x212;
pub(super) const WRITE_LENGTH: usize = 0x213;
const WRITE_CONTROL: usize = 0x214;
pub(super) const WRITE_OUTSTANDING: usize = 0x215;
pub(super) const CHAIN: usize = 0x216;
const IRQ_ENABLE: usize = 0x220;
const IRQ_STATUS: usize = 0x221;
const IRQ_CLEAR: usize = 0x222;
const IRQ_REFRESH: usize = 0x223;
pub(super) const MEMORY_TEST: usize = 0x230;
/// The model's own firmware: acquisitions that began, and who says so.
const LAB_ACQUISITIONS: usize = 0x4fe;
const LAB_MARK: usize = 0x4ff;
const LAB_MARK_VALUE: u32 = 0x5c1e_8300;

/// The memory is initialised.
const DDR_READY: u32 = 1 << 7;

impl Sis8300 {
    pub(super) fn read_word(&mut self, now_ns: u64, word: usize) -> u32 {
        match word {
            MODULE_ID => self.module_id(),
            SERIAL => self.serial.into(),
            OPTIONS => self.options(),
            PCIE_STATUS if self.model == Model::Ku => self.pcie_status(),
            ACQUISITION => {
                let ready = if self.model == Model::Sis8300 { 0 } else { DDR_READY };
                self.sampler.status() | ready
            }
            SAMPLE_CONTROL => self.sampler.control,
            MLVDS => self.sampler.mlvds & 0xffff_ff00 | self.level(now_ns, self.generator.lines.mlvds),
            FRONT => self.sampler.front & 0x001f_ff00 | self.level(now_ns, self.generator.lines.front),
            CLOCK_MUX => self.clock.mux,
            CLOCK_SPI => self.clock.read_spi(now_ns),
            ADC_SPI => self.clock.read_converter(now_ns),
            TRIGGER_SETUP..=TRIGGER_SETUP_LAST => self.sampler.triggers[word - TRIGGER_SETUP],
            START..=START_LAST => self.actual_block(now_ns, word - START),
            LENGTH => self.sampler.length,
            PRETRIGGER => self.sampler.pretrigger,
            READ_CONTROL => self.read_engine.is_running().into(),
            WRITE_CONTROL => self.write_engine.is_running().into(),
            IRQ_ENABLE => self.interrupts.enable,
            IRQ_STATUS => self.interrupts.read_status(),
            LAB_ACQUISITIONS => self.acquisitions as u32,
            LAB_MARK => LAB_MARK_VALUE,
            _ => self.words.get(word).copied().unwrap_or(0),
        }
    }

    pub(super) fn write_word(&mut self, now_ns: u64, word: usize, value: u32) {
        self.check_busy(word, value);
        match word {
            USER_CONTROL => {
                let register = &mut self.words[word];
                *register = (*register | value & 0x3) & !(value >> 16);
            }
            ACQUISITION => self.control_sampling(now_ns, value),
            SAMPLE_CONTROL => self.sampler.control = value & 0xfff,
            MLVDS => self.sampler.mlvds = value,
            FRONT => self.sampler.front = value & 0x001f_ff00,
            CLOCK_MUX => self.clock.mux = value & 0xf3f,
            CLOCK_SPI => {
                let is_taken = self.clock.write_spi(now_ns, value);
                self.check_taken(is_taken, word, value);
            }
            ADC_SPI => {
                let is_taken = self.clock.write_converter(now_ns, value);
                self.check_taken(is_taken, word, value);
            }
            MASTER_RESET if value & 1 != 0 => self.reset_registers(),
            TRIGGER_SETUP..=TRIGGER_SETUP_LAST => self.sampler.triggers[word - TRIGGER_SETUP] = value & 0x07ff_1f1f,
            START..=START_LAST => {
                if self.model == Model::Ku && value & 1 != 0 {
                    self.books.violation(format!("{word:#x} <- {value:#x}: the KU stores from even blocks on"));
                }
                self.sampler.write_start(word - START, value);
            }
            LENGTH => self.sampler.length = value & 0x03ff_ffff,
            PRETRIGGER => {
                if value > 2046 {
                    self.books.violation(format!("pre-trigger of {value} samples"));
                }
                self.sampler.pretrigger = value & 0xfff;
            }
            READ_CONTROL if value & 1 != 0 => self.start_read(now_ns),
            WRITE_CONTROL if value & 1 != 0 => self.start_write(now_ns),
            READ_CONTROL if self.settings.has_stop => self.abort(Direction::Up, now_ns),
            WRITE_CONTROL if self.settings.has_stop => self.abort(Direction::Down, now_ns),
            IRQ_ENABLE => self.interrupts.write_enable(value),
            IRQ_CLEAR => self.interrupts.clear(value),
            IRQ_REFRESH => self.interrupts.refresh(),
            READ_HOST..=READ_LENGTH | WRITE_HOST..=WRITE_LENGTH | 0x400..0x4fe => self.words[word] = value,
            READ_SWAP | CHAIN | MEMORY_TEST => self.words[word] = value & 1,
            WRITE_OUTSTANDING => self.words[word] = value & 0x3f,
            0x500..0x1000 if self.model == Model::Ku => self.words[word] = value,
            // What is not modelled keeps what was written: no busy bit ever stays.
            0x02 | 0x06 | 0x14..=0x19 | 0x20 | 0x42..=0x47 | 0x49 | 0x4a | 0x4e | 0x4f => {
                self.words[word] = value & 0x7fff_ffff;
            }
            0x110..=0x119 | 0x12c..=0x12f | 0x231 => self.words[word] = value,
            _ => {}
        }
    }

    /// Register 0x00.
    pub(super) fn module_id(&self) -> u32 {
        self.settings.module_id.unwrap_or(self.model.module_id())
    }

    /// KU: width, speed and largest payload of the link.
    fn pcie_status(&self) -> u32 {
        let (payload, _) = self.config.transfer_sizes();
        let speed = match self.link.generation {
            0 | 1 => 1,
            2 => 2,
            _ => 4,
        };
        u32::from(self.link.width & 0xf) | speed << 4 | (payload / 128).trailing_zeros() << 8
    }

    /// Input lines that the generator drives, as they are.
    fn level(&self, now_ns: u64, lines: u8) -> u32 {
        if self.generator.is_high(now_ns) { lines.into() } else { 0 }
    }

    fn actual_block(&self, now_ns: u64, channel: usize) -> u32 {
        let actual = self.sampler.actual[channel];
        let Phase::Sampling(run) = self.sampler.phase else { return actual };
        match self.settings.busy_blocks {
            BusyBlocks::Start => actual,
            BusyBlocks::Ones => u32::MAX,
            BusyBlocks::Progress => {
                let samples = self.clock.samples_in(now_ns.saturating_sub(run.begun_ns), &self.settings.clocks);
                let stored =
                    if run.channels >> channel & 1 != 0 { (samples / BLOCK_SAMPLES).min(run.blocks) } else { 0 };
                actual.wrapping_add(stored as u32)
            }
        }
    }

    /// Notes a write that a busy serial port lost.
    fn check_taken(&mut self, is_taken: bool, word: usize, value: u32) {
        if !is_taken {
            self.books.violation(format!("{word:#x} <- {value:#x} while it is busy"));
        }
    }

    /// Notes writes that the manuals forbid.
    fn check_busy(&mut self, word: usize, value: u32) {
        let is_sampling = matches!(self.sampler.phase, Phase::Sampling(_));
        let is_of_sampling = matches!(word, SAMPLE_CONTROL | CLOCK_MUX | START..=PRETRIGGER);
        let is_of_read = self.read_engine.is_running() && matches!(word, READ_HOST..=READ_LENGTH | READ_SWAP);
        let is_of_write = self.write_engine.is_running() && matches!(word, WRITE_HOST..=WRITE_LENGTH);
        if is_sampling && is_of_sampling || is_of_read || is_of_write {
            let what = if is_sampling && is_of_sampling { "sampling" } else { "a DMA runs" };
            self.books.violation(format!("{word:#x} <- {value:#x} while {what}"));
        }
    }
}

const _: () = assert!(START_LAST - START + 1 == CHANNELS);
