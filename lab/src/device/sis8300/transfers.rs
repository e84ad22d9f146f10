//! What the engines do to the board as a whole: registers, the ledger, interrupts. docs/spec/sis8300.md, "DMA".

use super::engine::{Around, End, Ended, Engine, Transfer};
use super::interrupts::Source;
use super::settings::{PastEnd, Restart, Unit};
use super::{DMA_ALIGN, Sis8300, registers, take};
use crate::device::bus::Bus;
use crate::device::upstream::{Direction, read_efficiency, wire_rate, write_efficiency};

impl Sis8300 {
    /// Whether the engines may move data.
    pub(super) fn can_move(&self) -> bool {
        !self.faults.is_gone() && self.config.is_bus_master()
    }

    /// Wire bytes per second and the part that is data, for a transfer to or from this host address.
    pub(super) fn rate(&self, direction: Direction, host: u64) -> (f64, f64) {
        let (payload, read_request) = self.config.transfer_sizes();
        let wire = wire_rate(self.link.generation, self.link.width) / self.settings.slowness as f64;
        match direction {
            Direction::Up => (wire, write_efficiency(host, payload)),
            Direction::Down => {
                let efficiency = read_efficiency(payload);
                let outstanding = f64::from(self.words[registers::WRITE_OUTSTANDING] & 0x3f);
                let asked = outstanding * f64::from(read_request) / (self.settings.round_trip_ns as f64 / 1e9);
                (wire.min(asked / efficiency), efficiency)
            }
        }
    }

    /// Starts the transfer towards the host that the registers describe.
    pub(super) fn start_read(&mut self, at_ns: u64) {
        let words = &self.words;
        let host = u64::from(words[registers::READ_HOST_HIGH]) << 32 | u64::from(words[registers::READ_HOST]);
        let (card, len) = (words[registers::READ_CARD].into(), words[registers::READ_LENGTH].into());
        self.start_transfer(Direction::Up, host, card, len, at_ns);
    }

    pub(super) fn start_write(&mut self, at_ns: u64) {
        let words = &self.words;
        let host = u64::from(words[registers::WRITE_HOST_HIGH]) << 32 | u64::from(words[registers::WRITE_HOST]);
        let (card, len) = (words[registers::WRITE_CARD].into(), words[registers::WRITE_LENGTH].into());
        if !u64::is_power_of_two(len) {
            self.books.violation(format!("DMA write of {len:#x} bytes, which is no power of two"));
        }
        self.start_transfer(Direction::Down, host, card, len, at_ns);
    }

    pub(super) fn start_transfer(&mut self, direction: Direction, host: u64, card: u64, len: u64, at_ns: u64) {
        let (unit, name) = match direction {
            Direction::Up => (Unit::DmaRead, "DMA read"),
            Direction::Down => (Unit::DmaWrite, "DMA write"),
        };
        let engine = self.engine(direction);
        if engine.is_running() {
            self.books.violation(format!("{name} started while one runs"));
            if self.settings.restart == Restart::Ignore {
                self.books.dma[unit as usize].ignored += 1;
                return;
            }
            self.abort(direction, at_ns);
        }
        let (mut card, mut len) = (card, len);
        if card % DMA_ALIGN != 0 || len % DMA_ALIGN != 0 || len == 0 {
            self.books.violation(format!("{name} of {len:#x} bytes at card address {card:#x}"));
        }
        if self.settings.is_aligned {
            (card, len) = (card & !(DMA_ALIGN - 1), len & !(DMA_ALIGN - 1));
        }
        let mut transfer = Transfer::new(host, card, len, at_ns);
        transfer.reaches_card = direction == Direction::Up || self.words[registers::MEMORY_TEST] & 1 != 0;
        if card.saturating_add(len) > self.memory.size() {
            self.books.violation(format!("{name} of {len:#x} bytes at card address {card:#x}: past the memory's end"));
            if self.settings.past_end == PastEnd::Stop {
                transfer.limit = self.memory.size().saturating_sub(card);
            }
        }
        let books = &mut self.books.dma[unit as usize];
        books.started += 1;
        if take(&mut self.settings.hangs[unit as usize]) {
            // It stands still half way.
            (transfer.end, transfer.limit) = (End::Never, (transfer.limit / 2) & !(DMA_ALIGN - 1));
            books.hung += 1;
        } else if let Some(short) = self.settings.shorts[unit as usize].as_mut().filter(|short| short.left > 0) {
            short.left -= 1;
            transfer.limit = transfer.limit.min(short.after);
            transfer.end = if short.is_done { End::Done } else { End::Silent };
            books.short += 1;
        }
        let (wire, efficiency) = self.rate(direction, host);
        let can_move = self.can_move();
        let engine = self.engine(direction);
        engine.start(transfer, wire, efficiency);
        if !can_move {
            engine.stand_still(at_ns);
        }
    }

    pub(super) fn engine(&mut self, direction: Direction) -> &mut Engine {
        match direction {
            Direction::Up => &mut self.read_engine,
            Direction::Down => &mut self.write_engine,
        }
    }

    /// Ends a transfer without an interrupt.
    pub(super) fn abort(&mut self, direction: Direction, at_ns: u64) {
        if let Some(transfer) = self.engine(direction).abort() {
            let unit = direction as usize;
            self.books.dma[unit].aborted += 1;
            self.advance_card(direction, &transfer);
            self.books.dma_ended(direction, &transfer, at_ns, "aborted");
        }
    }

    /// The source of a read has moved on by what was read.
    pub(super) fn advance_card(&mut self, direction: Direction, transfer: &Transfer) {
        if direction == Direction::Up {
            self.words[registers::READ_CARD] = (transfer.card.wrapping_add(transfer.moved)) as u32;
        }
    }

    /// Where the board does not answer or may not master the bus, no time passes for transfers.
    pub(super) fn stand_still(&mut self) {
        if !self.can_move() {
            self.read_engine.stand_still(self.now_ns);
            self.write_engine.stand_still(self.now_ns);
        }
    }

    /// Brings the transfers up to `now_ns`.
    pub(super) fn move_data(&mut self, now_ns: u64, bus: &mut dyn Bus) {
        for direction in [Direction::Up, Direction::Down] {
            let Some(transfer) = self.engine(direction).transfer else { continue };
            if !self.can_move() {
                self.engine(direction).stand_still(now_ns);
                continue;
            }
            let (wire, efficiency) = self.rate(direction, transfer.host);
            let mut around = Around {
                bus: &mut *bus,
                memory: &mut self.memory,
                port: &self.port,
                unmapped: &mut self.books.unmapped_bytes,
                is_swapped: self.words[registers::READ_SWAP] & 1 != 0,
                wraps: self.settings.past_end == PastEnd::Wrap,
            };
            let engine = match direction {
                Direction::Up => &mut self.read_engine,
                Direction::Down => &mut self.write_engine,
            };
            let ended = engine.step(now_ns, wire, efficiency, &mut around);
            let moved = ended.map_or_else(|| engine.transfer.map_or(0, |now| now.moved), |ended| ended.transfer.moved);
            let moved = moved - transfer.moved;
            self.books.dma[direction as usize].bytes += moved;
            match direction {
                Direction::Up => self.ledger.dma_write_bytes += moved,
                Direction::Down => self.ledger.dma_read_bytes += moved,
            }
            if let Some(ended) = ended {
                self.transfer_ended(direction, &ended, now_ns);
            }
        }
    }

    pub(super) fn transfer_ended(&mut self, direction: Direction, ended: &Ended, now_ns: u64) {
        let transfer = &ended.transfer;
        let books = &mut self.books.dma[direction as usize];
        books.ended += 1;
        books.busy_ns += ended.at_ns.saturating_sub(transfer.begun_ns);
        let late_ns = now_ns.saturating_sub(ended.at_ns);
        books.late_ns += late_ns;
        books.late_max_ns = books.late_max_ns.max(late_ns);
        self.advance_card(direction, transfer);
        let is_done = transfer.end == End::Done;
        self.books.dma_ended(direction, transfer, ended.at_ns, if is_done { "done" } else { "silent" });
        if is_done {
            self.raise(if direction == Direction::Up { Source::DmaRead } else { Source::DmaWrite });
        }
    }
}
