//! The DMA engines: one towards the host's memory, one from there. Registers 0x200 to 0x205 and 0x210 to 0x215.
//!
//! Data moves gradually as the time of a transfer passes, in steps that end on page boundaries of the host's memory. So
//! it is cut into the same TLPs as in a single transfer.

use super::memory::CardMemory;
use crate::device::bus::Bus;
use crate::device::traffic::PortTraffic;
use crate::device::upstream::{Direction, Member};

/// A transfer is brought up to date when so many bytes more have come ...
const STEP_MAX: u64 = 512 << 10;
/// ... less towards the end, so that little is left to be copied when its time is up ...
const STEP_MIN: u64 = 32 << 10;
/// ... and this often where others share the link.
const LOOK_NS: u64 = 500_000;
/// Bytes that are made and copied at a time.
const PIECE: usize = 256 << 10;
const PAGE: u64 = 4096;

/// How a transfer is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With the running bit cleared and an interrupt.
    Done,
    /// With the running bit cleared only.
    Silent,
    /// Never: the running bit stays.
    Never,
}

/// A transfer under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) host: u64,
    pub(super) card: u64,
    /// Bytes asked for.
    pub(super) len: u64,
    /// Bytes after which it ends.
    pub(super) limit: u64,
    pub(super) end: End,
    pub(super) begun_ns: u64,
    /// Whether it may write the card's memory.
    pub(super) reaches_card: bool,
    /// Bytes whose time has passed ...
    progress: f64,
    /// ... by then, ...
    last_ns: u64,
    /// ... and the rate that it had then, in bytes per second; 0 before the first look and while it stands still.
    rate: f64,
    /// Bytes that were copied.
    pub(super) moved: u64,
}

/// A transfer that ended, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) transfer: Transfer,
    pub(super) at_ns: u64,
}

/// What a step needs of the board.
pub(super) struct Around<'a> {
    pub(super) bus: &'a mut dyn Bus,
    pub(super) memory: &'a mut CardMemory,
    pub(super) port: &'a PortTraffic,
    /// Bytes that went to host addresses where no memory is.
    pub(super) unmapped: &'a mut u64,
    pub(super) is_swapped: bool,
    /// Card addresses beyond the memory's end begin anew.
    pub(super) wraps: bool,
}

/// One engine.
#[derive(Debug)]
pub(super) struct Engine {
    direction: Direction,
    pub(super) transfer: Option<Transfer>,
    member: Option<Member>,
    scratch: Vec<u8>,
}

impl Engine {
    pub(super) fn new(direction: Direction, member: Option<Member>) -> Self {
        Engine { direction, transfer: None, member, scratch: Vec::new() }
    }

    pub(super) fn is_running(&self) -> bool {
        self.transfer.is_some()
    }

    /// A transfer begins at `now_ns`, which may have passed; it could have `wire` bytes per second of its own link, of which
    /// `efficiency` is data.
    pub(super) fn start(&mut self, transfer: Transfer, wire: f64, efficiency: f64) {
        self.transfer = Some(transfer);
        self.set_rate(wire, efficiency);
    }

    /// The rate from the last look on.
    fn set_rate(&mut self, wire: f64, efficiency: f64) {
        let Some(transfer) = &mut self.transfer else { return };
        let wire = match &self.member {
            Some(member) => {
                member.begin(self.direction, wire);
                member.rate(self.direction)
            }
            None => wire,
        };
        transfer.rate = wire * efficiency;
    }

    /// Ends a transfer where it is, without an interrupt.
    pub(super) fn abort(&mut self) -> Option<Transfer> {
        if let Some(member) = &self.member {
            member.end(self.direction);
        }
        self.transfer.take()
    }

    /// The transfer stands still: the function may not master the bus, or does not answer.
    pub(super) fn stand_still(&mut self, now_ns: u64) {
        if let Some(transfer) = &mut self.transfer {
            transfer.last_ns = transfer.last_ns.max(now_ns);
            transfer.rate = 0.0;
            if let Some(member) = &self.member {
                member.end(self.direction);
            }
        }
    }

    /// When it must be brought up to date again.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let transfer = self.transfer.as_ref()?;
        if transfer.is_stuck() {
            return None;
        }
        if transfer.rate <= 0.0 {
            return Some(0);
        }
        let left = transfer.limit - transfer.moved;
        let target =
            if left <= STEP_MIN { transfer.limit } else { transfer.moved + (left / 2).clamp(STEP_MIN, STEP_MAX) };
        let at = transfer.at_ns(target);
        Some(if self.member.is_some() { at.min(transfer.last_ns.saturating_add(LOOK_NS)) } else { at })
    }

    /// Brings the transfer up to `now_ns`: copies what has come, and answers it when it is over.
    pub(super) fn step(&mut self, now_ns: u64, wire: f64, efficiency: f64, around: &mut Around<'_>) -> Option<Ended> {
        let before = self.transfer?;
        if before.is_stuck() {
            return None;
        }
        self.set_rate(wire, efficiency);
        let transfer = self.transfer.as_mut()?;
        // What stood still goes on from now.
        let passed = if before.rate > 0.0 { now_ns.saturating_sub(before.last_ns) } else { 0 };
        let rate = (before.rate + transfer.rate) / 2.0;
        transfer.progress = (before.progress + rate * passed as f64 / 1e9).min(transfer.limit as f64);
        transfer.last_ns = transfer.last_ns.max(now_ns);
        let is_over = transfer.progress + 1e-3 >= transfer.limit as f64;
        let due = if is_over { transfer.limit } else { transfer.whole_pages() };
        let mut transfer = *transfer;
        self.copy(&mut transfer, due, around);
        self.transfer = Some(transfer);
        if !is_over {
            return None;
        }
        if transfer.is_stuck() {
            self.stand_still(now_ns);
            return None;
        }
        self.abort();
        let left = (transfer.limit as f64 - before.progress).max(0.0);
        let at_ns = if before.rate > 0.0 && rate > 0.0 {
            now_ns.min(before.last_ns.saturating_add((left / rate * 1e9).ceil() as u64))
        } else {
            now_ns
        };
        Some(Ended { transfer, at_ns })
    }

    fn copy(&mut self, transfer: &mut Transfer, due: u64, around: &mut Around<'_>) {
        if self.scratch.is_empty() {
            self.scratch = vec![0; PIECE];
        }
        while transfer.moved < due {
            let host = transfer.host.wrapping_add(transfer.moved);
            let mut card = transfer.card.saturating_add(transfer.moved);
            // Pieces end on pages too.
            let mut len = (due - transfer.moved).min(PIECE as u64 - host % PAGE);
            if around.wraps {
                card %= around.memory.size();
                len = len.min(around.memory.size() - card);
            }
            let bytes = &mut self.scratch[..len as usize];
            let done = match self.direction {
                Direction::Up => {
                    around.memory.read(card, bytes);
                    swap(bytes, around.is_swapped);
                    around.port.dma_write(host, len);
                    around.bus.write_memory(host, bytes)
                }
                Direction::Down => {
                    around.port.dma_read(host, len);
                    let done = around.bus.read_memory(host, bytes);
                    if done.is_err() {
                        // A completion without data: the engine stores what hardware shows then.
                        bytes.fill(0xff);
                    }
                    if transfer.reaches_card {
                        around.memory.write(card, bytes);
                    }
                    done
                }
            };
            if done.is_err() {
                *around.unmapped += len;
            }
            transfer.moved += len;
        }
    }
}

/// The other order of the two bytes of each sample.
fn swap(bytes: &mut [u8], is_swapped: bool) {
    if is_swapped {
        bytes.chunks_exact_mut(2).for_each(|sample| sample.swap(0, 1));
    }
}

impl Transfer {
    pub(super) fn new(host: u64, card: u64, len: u64, begun_ns: u64) -> Self {
        Transfer {
            host,
            card,
            len,
            limit: len,
            end: End::Done,
            begun_ns,
            reaches_card: true,
            progress: 0.0,
            last_ns: begun_ns,
            rate: 0.0,
            moved: 0,
        }
    }

    /// Whether it came to where it hangs.
    fn is_stuck(&self) -> bool {
        self.moved == self.limit && self.end == End::Never
    }

    /// When `bytes` will have come at the current rate.
    fn at_ns(&self, bytes: u64) -> u64 {
        let left = (bytes as f64 - self.progress).max(0.0);
        self.last_ns.saturating_add((left / self.rate * 1e9).ceil() as u64)
    }

    /// Bytes that have come, up to the last end of a page.
    fn whole_pages(&self) -> u64 {
        let come = self.progress as u64;
        let part = self.host.wrapping_add(come) % PAGE;
        come.saturating_sub(part).max(self.moved)
    }
}
