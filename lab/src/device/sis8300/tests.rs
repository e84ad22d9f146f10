//! A board as a driver sees it, without Linux: a memory that the test holds, time that the test makes. What samples are
//! expected, the test computes itself from docs/spec/sis8300.md.

use serde_json::json;

use super::*;
use crate::device::test::TestBus;
use crate::device::traffic::{PortTotals, Traffic};

mod acquire;
mod dma;
mod faults;

/// Bytes of the machine's memory.
const MEMORY: usize = 8 << 20;

/// The page's formula, written out: sample `i` of a channel of an acquisition.
fn sample(seed: u64, serial: u64, acquisition: u64, channel: u64, i: u64) -> u16 {
    fn mix(mut x: u64) -> u64 {
        x ^= x >> 32;
        x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
        x ^= x >> 32;
        x
    }
    let key = mix(mix(mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_add(serial))
        .wrapping_add(acquisition * 16 + channel));
    let word = mix(key.wrapping_add((i / 4).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    (word >> (16 * (i % 4))) as u16
}

/// `count` samples from `first` on, as bytes.
fn samples_of(seed: u64, serial: u64, acquisition: u64, channel: u64, first: u64, count: u64) -> Vec<u8> {
    (first..first + count).flat_map(|i| sample(seed, serial, acquisition, channel, i).to_le_bytes()).collect()
}

struct Driver {
    board: Sis8300,
    machine: TestBus,
    traffic: Traffic,
    now: u64,
}

impl Driver {
    fn with(model: Model, more: impl FnOnce(Sis8300) -> Sis8300) -> Driver {
        let traffic = Traffic::new();
        let port = traffic.port("0000:00:04.0".parse().unwrap());
        let board = more(Sis8300::new(model, &model.link(), port));
        let machine = TestBus::new(MEMORY);
        let mut driver = Driver { board, machine, traffic, now: 1_000 };
        driver.board.config_write(4, &[6, 0]);
        driver
    }

    fn new(model: Model) -> Driver {
        Driver::with(model, |board| board)
    }

    /// What the root port has seen.
    fn port(&self) -> PortTotals {
        self.traffic.port("0000:00:04.0".parse().unwrap()).totals()
    }

    fn read(&mut self, word: u64) -> u32 {
        let mut bytes = [0; 4];
        self.board.bar_read(self.now, 0, word * 4, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn write(&mut self, word: u64, value: u32) {
        self.board.bar_write(self.now, 0, word * 4, &value.to_le_bytes(), &mut self.machine);
    }

    fn writes(&mut self, all: &[(u64, u32)]) {
        all.iter().for_each(|(word, value)| self.write(*word, *value));
    }

    /// Writes to a chip behind a serial port, and waits until it is shifted out.
    fn shift(&mut self, word: u64, value: u32) {
        self.write(word, value);
        self.now += 2_000;
    }

    fn tells(&mut self, commands: &[&str]) {
        commands.iter().for_each(|command| drop(self.tell(command)));
    }

    fn tell(&mut self, command: &str) -> Value {
        self.board.set_clock(self.now);
        self.board.command(command).unwrap_or_else(|err| panic!("{err}"))
    }

    fn ledger(&mut self) -> Value {
        self.tell("ledger")
    }

    /// Lets time pass up to `at`, with the board called whenever it wants to be.
    fn run_until(&mut self, at: u64) {
        while let Some(due) = self.board.next_work().filter(|due| *due <= at) {
            self.now = self.now.max(due);
            self.board.work(self.now, &mut self.machine);
        }
        self.now = self.now.max(at);
    }

    /// Lets time pass until the board wants nothing any more.
    fn run(&mut self) {
        while let Some(due) = self.board.next_work() {
            self.now = self.now.max(due);
            self.board.work(self.now, &mut self.machine);
        }
    }

    /// As drivers set a board up: the internal clock by 3, samples of all the channels one behind the other.
    fn set_up(&mut self, channels: u32, blocks: u32, trigger: u32) {
        self.write(0x40, 0xf);
        for (register, value) in [(0x56, 0x01), (0x57, 0x00), (0x5a, 0x01)] {
            for chip in [0, 1] {
                self.write(0x41, 1 << 30 | chip << 24 | register << 8 | value);
                self.now += 2_000;
                assert_eq!(self.read(0x41) >> 31, 0);
            }
        }
        self.write(0x11, !channels & 0x3ff | trigger);
        let mut next = 0;
        for channel in 0..10 {
            self.write(0x120 + channel, next);
            next += if channels >> channel & 1 != 0 { blocks } else { 0 };
        }
        self.write(0x12a, blocks - 1);
    }

    fn start_dma(&mut self, host: u64, card: u32, len: u32) {
        self.writes(&[(0x200, host as u32), (0x201, (host >> 32) as u32), (0x202, card), (0x203, len), (0x204, 1)]);
    }

    /// Reads card memory by DMA and gives how long it took.
    fn dma(&mut self, host: u64, card: u32, len: u32) -> u64 {
        let start = self.now;
        self.start_dma(host, card, len);
        self.run();
        assert_eq!(self.read(0x204), 0);
        self.now - start
    }

    fn memory(&self, at: usize, len: usize) -> &[u8] {
        &self.machine.memory[at..at + len]
    }
}

#[test]
fn each_model_says_who_it_is() {
    for (model, device, class, id, bytes) in [
        (Model::Sis8300, 0x0018, 0x07_8000, 0x8300_1400, 1u64 << 30),
        (Model::L, 0x0019, 0xff_0000, 0x8301_1002, 2 << 30),
        (Model::L2, 0x0019, 0xff_0000, 0x8302_1809, 2 << 30),
        (Model::Ku, 0x0024, 0x07_0000, 0x8303_1001, 2 << 30),
    ] {
        let mut driver = Driver::with(model, |board| board.with_serial(321));
        let mut config = [0; 0x80];
        driver.board.config_read(0, &mut config);
        let dword = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| config[at + i]));
        assert_eq!(dword(0), device << 16 | 0x1796);
        assert_eq!(dword(8) >> 8, class);
        assert_eq!(dword(0x2c), device << 16 | 0x1796);
        assert_eq!(config[0x60], 0x10, "the PCI Express capability lies where drivers look for it");
        let generation = if model == Model::Ku { 3 } else { 1 };
        assert_eq!(config[0x72], 4 << 4 | generation, "its link status too");
        assert_eq!((driver.read(0x00), driver.read(0x01)), (id, 321));
        assert_eq!(driver.board.memory_bytes(), bytes);
        let ready = if model == Model::Sis8300 { 0 } else { 0x80 };
        assert_eq!(driver.read(0x10), ready);
        assert_eq!(driver.read(0x07), if model == Model::Ku { 0x044 } else { 0 });
        driver.board.config_write(0x10, &[0xff; 4]);
        driver.board.config_read(0x10, &mut config[..4]);
        assert_eq!(config[..4], [0x00, 0xc0, 0xff, 0xff], "16 KiB of 32-bit memory");
    }
}

#[test]
fn without_msi_the_capability_is_not_there_and_the_others_stay() {
    let mut board = Driver::with(Model::L, Sis8300::without_msi).board;
    let mut config = [0; 0x80];
    board.config_read(0, &mut config);
    assert_eq!((config[0x34], config[0x41], config[0x60]), (0x40, 0x60, 0x10));
    assert_eq!((board.layout().msi, board.layout().intx), (0, true));
    assert_eq!(Driver::new(Model::L).board.layout().msi, 1);
}

#[test]
fn chips_behind_the_serial_ports_keep_what_they_get() {
    let mut driver = Driver::new(Model::L2);
    driver.write(0x41, 1 << 30 | 1 << 24 | 0x45 << 8 | 0x1d);
    assert_eq!(driver.read(0x41) >> 31, 1, "busy while it is shifted out");
    driver.now += 2_000;
    driver.shift(0x41, 1 << 30 | 1 << 23 | 1 << 24 | 0x45 << 8);
    assert_eq!(driver.read(0x41), 0x1d);
    driver.shift(0x41, 1 << 30 | 1 << 23 | 0x45 << 8);
    assert_eq!(driver.read(0x41) & 0xff, 0, "the other chip has registers of its own");
    for (register, value) in [(0x14, 0x40), (0x16, 0x00), (0xff, 0x01)] {
        driver.shift(0x48, 4 << 24 | register << 8 | value);
    }
    driver.shift(0x48, 4 << 24 | 1 << 23 | 0x14 << 8);
    assert_eq!(driver.read(0x48), 4 << 24 | 0x40);
    driver.writes(&[(0x48, 0x15 << 8), (0x48, 0x16 << 8)]);
    assert_eq!(driver.ledger()["violations"], json!(["0x48 <- 0x1600 while it is busy"]));
}

#[test]
fn the_key_registers_set_and_clear_and_the_master_reset_clears_all() {
    let mut driver = Driver::new(Model::L);
    driver.writes(&[(0x04, 3), (0x04, 2 << 16)]);
    assert_eq!(driver.read(0x04), 1);
    driver.writes(&[(0x220, 0xc003), (0x220, 0x4000 << 16)]);
    assert_eq!(driver.read(0x220), 0x8003);
    driver.write(0x450, 0x1234_5678);
    assert_eq!(driver.read(0x450), 0x1234_5678);
    driver.write(0xff, 1);
    assert_eq!([0x04, 0x220, 0x450, 0x215].map(|word| driver.read(word)), [0, 0, 0, 0x10]);
    let mut narrow = [0; 2];
    driver.board.bar_read(driver.now, 0, 0, &mut narrow);
    assert_eq!(narrow, [0xff; 2], "only whole words are answered");
    assert_eq!(driver.ledger()["refused"], 1);
}
