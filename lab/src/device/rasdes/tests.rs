use proptest::prelude::*;

use super::super::traffic::Traffic;
use super::*;

mod command;
mod list;
mod time;
mod viewport;

/// Where the block lies.
const BLOCK: u64 = 0x300;
const CONTROL: u64 = 0x08;
const DATA: u64 = 0x0c;
const TBA: u64 = 0x10;
const TBA_LOW: u64 = 0x14;
const TBA_HIGH: u64 = 0x18;

const CLEAR_ONE: u32 = 1;
const CLEAR_ALL: u32 = 3;
const OFF: u32 = 1 << 2;
const ON: u32 = 3 << 2;
const ALL_OFF: u32 = 5 << 2;
const ALL_ON: u32 = 7 << 2;

/// A block with a clock that stands still unless told.
struct Block {
    bank: RasdesBank,
    port: PortTraffic,
    now: u64,
}

impl Block {
    fn new() -> Self {
        let port = Traffic::new().port("0000:00:02.0".parse().unwrap());
        Block { bank: RasdesBank::new(port.clone(), Shape::default()), port, now: 0 }
    }

    fn page(&mut self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.bank.read(self.now, offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn read(&mut self, offset: u64) -> u32 {
        self.page(BLOCK + offset)
    }

    fn write(&mut self, offset: u64, value: u32) {
        self.bank.write(self.now, BLOCK + offset, &value.to_le_bytes());
    }

    /// Carries out the words after `port PORT`.
    fn ctl(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        self.bank.command(self.now, &words).unwrap();
    }

    fn pick(&mut self, event: u32, lane: u32, command: u32) {
        self.write(CONTROL, event << 16 | lane << 8 | command);
    }

    fn value(&mut self, event: u32, lane: u32) -> u32 {
        self.pick(event, lane, 0);
        self.read(DATA)
    }

    fn is_on(&mut self, event: u32, lane: u32) -> bool {
        self.pick(event, lane, 0);
        self.read(CONTROL) & 0x80 != 0
    }

    /// Both halves as a driver reads them: high until it stays.
    fn tba(&mut self) -> u64 {
        let mut high = self.read(TBA_HIGH);
        for _ in 0..8 {
            let low = self.read(TBA_LOW);
            let again = self.read(TBA_HIGH);
            if again == high {
                return u64::from(high) << 32 | u64::from(low);
            }
            high = again;
        }
        panic!("the high half never stays");
    }

    /// Starts a manual measurement.
    fn start(&mut self, report: u32) {
        self.write(TBA, report << 24 | 1);
    }

    fn stop(&mut self) {
        let control = self.read(TBA);
        self.write(TBA, control & !1);
    }

    fn ledger(&mut self) -> Value {
        self.bank.advance(self.now);
        self.bank.ledger()
    }
}
