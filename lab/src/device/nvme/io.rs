//! The work of the disk: it takes commands, moves their bytes at the set rate, and completes them. NVM Express Base
//! Specification 1.4, sections 4, 6 and 7.2.

use crate::device::bus::{Bus, Message};

use super::dma::{Dma, PAGE};
use super::identify::MDTS;
use super::ledger::Kind;
use super::wire::{CQE_BYTES, Completion, NvmeCommand, SQE_BYTES, Status};
use super::{BLOCK_BYTES, CSTS_FATAL, NAMESPACE, NAMESPACE_ALL, NvmeDisk};

const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const WRITE_ZEROES: u8 = 0x08;

/// Commands that the disk holds at a time; the others stay in their queues.
const TRANSFERS_MAX: usize = 1024;
/// So many bytes are moved before others get at the device.
const TURN_BYTES: u64 = 1 << 20;
/// So many commands are taken before others get at the device.
const TURN_COMMANDS: usize = 64;

/// A command that waits for the pipe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) queue: u16,
    pub(super) command: NvmeCommand,
    kind: Kind,
    /// When the guest told of it, on the device's clock.
    arrived_ns: u64,
    /// What it moves over the pipe.
    bytes: u64,
    /// How it ends, as far as that is known before its data has moved.
    verdict: Result<(), Status>,
}

impl NvmeDisk {
    /// When there is something to do.
    pub(super) fn due_ns(&self) -> Option<u64> {
        if !self.is_working() {
            return None;
        }
        let is_room = |queue: &super::queue::CompletionQueue| !queue.waiting.is_empty() && !queue.is_full();
        let can_report = !self.events.is_empty() && !self.event_requests.is_empty();
        let can_take = (0..self.submissions.len()).any(|id| self.can_take(id));
        if can_take || can_report || self.unmasked != 0 || self.completions.iter().flatten().any(is_room) {
            return Some(0);
        }
        self.transfers.front().map(|t| self.pipe.end_ns(t.arrived_ns, t.bytes))
    }

    pub(super) fn work_at(&mut self, now_ns: u64, bus: &mut dyn Bus) {
        if !self.is_working() {
            return;
        }
        self.resend(bus);
        self.write_waiting(bus);
        self.report_events(bus);
        self.take_commands(bus);
        self.finish_transfers(now_ns, bus);
    }

    /// Whether there is a command in a queue that can be taken now.
    fn can_take(&self, id: usize) -> bool {
        let Some(queue) = &self.submissions[id] else { return false };
        // Where the guest takes no completions, no more are made.
        let completions = self.completions[usize::from(queue.completions)].as_ref();
        let is_open = completions.is_some_and(|completions| completions.waiting.is_empty());
        !queue.is_empty() && is_open && (id == 0 || self.transfers.len() < TRANSFERS_MAX)
    }

    /// Takes commands from all queues in turn.
    fn take_commands(&mut self, bus: &mut dyn Bus) {
        let mut taken = 0;
        while taken < TURN_COMMANDS && self.is_working() {
            let before = taken;
            for id in 0..self.submissions.len() {
                if self.is_working() && self.can_take(id) {
                    self.take(id, bus);
                    taken += 1;
                }
            }
            if taken == before {
                return;
            }
        }
    }

    fn take(&mut self, id: usize, bus: &mut dyn Bus) {
        let Some(queue) = &mut self.submissions[id] else { return };
        let (address, arrived_ns, completions) = (queue.next_address(), queue.rung_ns, queue.completions);
        queue.advance();
        let mut entry = [0; SQE_BYTES];
        if self.dma(bus).read(address, &mut entry).is_err() {
            self.fail(format!("submission queue {id}: the entry at {address:#x} cannot be read"));
            return;
        }
        self.ledger.sqe_bytes += SQE_BYTES as u64;
        let command = NvmeCommand::parse(&entry);
        if id == 0 {
            self.ledger.count(Kind::Admin);
            if let Some(done) = self.admin(&command, bus) {
                let (result, status) = done.map_or_else(|status| (0, status), |result| (result, Status::SUCCESS));
                self.complete(completions, Completion { result, queue: 0, id: command.id, status }, bus);
            }
            return;
        }
        let (kind, verdict) = self.judge(&command);
        self.ledger.count(kind);
        let bytes = match (kind, verdict) {
            (Kind::Read | Kind::Write, Ok(())) => command.blocks() * BLOCK_BYTES,
            _ => 0,
        };
        self.transfers.push_back(Transfer { queue: id as u16, command, kind, arrived_ns, bytes, verdict });
    }

    /// What a command is, and whether it can be carried out.
    fn judge(&mut self, command: &NvmeCommand) -> (Kind, Result<(), Status>) {
        let kind = match command.opcode {
            FLUSH => Kind::Flush,
            WRITE => Kind::Write,
            READ => Kind::Read,
            WRITE_ZEROES => Kind::WriteZeroes,
            _ => return (Kind::Other, Err(Status::INVALID_OPCODE)),
        };
        if command.flags != 0 {
            return (kind, Err(Status::INVALID_FIELD));
        }
        if command.namespace != NAMESPACE && !(kind == Kind::Flush && command.namespace == NAMESPACE_ALL) {
            return (kind, Err(Status::INVALID_NAMESPACE));
        }
        if kind == Kind::Flush {
            return (kind, Ok(()));
        }
        let end = command.first_block().checked_add(command.blocks());
        if end.is_none_or(|end| end > self.who.blocks) {
            return (kind, Err(Status::LBA_OUT_OF_RANGE));
        }
        if kind == Kind::WriteZeroes {
            return (kind, Ok(()));
        }
        if command.blocks() * BLOCK_BYTES > PAGE << MDTS {
            return (kind, Err(Status::INVALID_FIELD));
        }
        if let Some(every) = self.fail_every {
            self.passed += 1;
            if self.passed % every == 0 {
                self.ledger.media_errors += 1;
                let is_read = kind == Kind::Read;
                let status = if is_read { Status::UNRECOVERED_READ_ERROR } else { Status::WRITE_FAULT };
                return (kind, Err(status));
            }
        }
        (kind, Ok(()))
    }

    /// Completes the commands whose time has come, as many as fit into one turn.
    fn finish_transfers(&mut self, now_ns: u64, bus: &mut dyn Bus) {
        let mut moved = 0;
        while let Some(transfer) = self.transfers.front().copied() {
            if moved >= TURN_BYTES
                || !self.is_working()
                || self.pipe.end_ns(transfer.arrived_ns, transfer.bytes) > now_ns
            {
                return;
            }
            self.transfers.pop_front();
            self.ledger.busy_ns += self.pipe.pass(transfer.arrived_ns, transfer.bytes);
            moved += transfer.bytes + SQE_BYTES as u64;
            let status =
                transfer.verdict.and_then(|()| self.carry_out(&transfer, bus)).err().unwrap_or(Status::SUCCESS);
            let Some(queue) = &self.submissions[usize::from(transfer.queue)] else { continue };
            let (completions, id) = (queue.completions, transfer.command.id);
            self.complete(completions, Completion { result: 0, queue: transfer.queue, id, status }, bus);
        }
    }

    /// Moves a command's data.
    fn carry_out(&mut self, transfer: &Transfer, bus: &mut dyn Bus) -> Result<(), Status> {
        let command = &transfer.command;
        let (mut offset, len) = (command.first_block().wrapping_mul(BLOCK_BYTES), command.blocks() * BLOCK_BYTES);
        match transfer.kind {
            Kind::Read | Kind::Write => {}
            Kind::WriteZeroes => {
                self.store.write_zeros(offset, len);
                return Ok(());
            }
            _ => return Ok(()),
        }
        let (store, port, ledger) = (&mut self.store, &self.port, &mut self.ledger);
        let mut dma = Dma { bus, port, ledger };
        for range in dma.ranges(command.prp1, command.prp2, len)? {
            let mut at = range.address;
            let failed = |_| Status::DATA_TRANSFER_ERROR;
            // Straight between the medium and the guest's memory; the TLPs are those of the whole range.
            let done = if transfer.kind == Kind::Read {
                store.read(offset, range.len, |part| {
                    dma.bus.write_memory(at, part).map_err(failed)?;
                    at += part.len() as u64;
                    Ok(())
                })
            } else {
                store.write(offset, range.len, |part| {
                    dma.bus.read_memory(at, part).map_err(failed)?;
                    at += part.len() as u64;
                    Ok(())
                })
            };
            let moved = at - range.address;
            if transfer.kind == Kind::Read {
                dma.ledger.data_read_bytes += moved;
                dma.entered_write(range.address, moved);
            } else {
                dma.ledger.data_written_bytes += moved;
                dma.entered_read(range.address, moved);
            }
            done?;
            offset += range.len;
        }
        Ok(())
    }

    /// Puts a completion into its queue, or lets it wait for room there.
    pub(super) fn complete(&mut self, id: u16, completion: Completion, bus: &mut dyn Bus) {
        self.ledger.count_status(completion.status);
        let Some(queue) = &mut self.completions[usize::from(id)] else { return };
        queue.waiting.push_back(completion);
        self.write_completions(usize::from(id), bus);
    }

    /// Writes what waited and has room now.
    fn write_waiting(&mut self, bus: &mut dyn Bus) {
        for id in 0..self.completions.len() {
            self.write_completions(id, bus);
        }
    }

    fn write_completions(&mut self, id: usize, bus: &mut dyn Bus) {
        let mut written = None;
        while self.is_working() {
            let Some(queue) = &mut self.completions[id] else { return };
            let Some(completion) = queue.waiting.front().copied().filter(|_| !queue.is_full()) else { break };
            let (address, phase) = queue.next();
            let submissions = self.submissions.get(usize::from(completion.queue)).and_then(Option::as_ref);
            let head = submissions.map_or(0, |submissions| submissions.head);
            if self.dma(bus).write(address, &completion.to_bytes(head, phase)).is_err() {
                self.fail(format!("completion queue {id}: the entry at {address:#x} cannot be written"));
                return;
            }
            self.ledger.cqe_bytes += CQE_BYTES as u64;
            if let Some(queue) = &mut self.completions[id] {
                queue.waiting.pop_front();
                queue.advance();
                written = queue.vector;
            }
        }
        if let Some(vector) = written {
            self.interrupt(vector, bus);
        }
    }

    /// Sends a vector's message, unless it is masked or the one before has not gone out yet.
    fn interrupt(&mut self, vector: u16, bus: &mut dyn Bus) {
        let bit = 1 << vector;
        if self.masked & bit == 0 && self.in_flight & bit == 0 {
            self.in_flight |= bit;
            self.ledger.interrupts.raised += 1;
            bus.send(Message { vector, delay_ns: 0, is_copy: false });
        }
    }

    /// Vectors that were unmasked and have something to say send again (section 7.5.1).
    fn resend(&mut self, bus: &mut dyn Bus) {
        let unmasked = std::mem::take(&mut self.unmasked);
        for vector in (0..super::VECTORS).filter(|vector| unmasked & 1 << vector != 0) {
            let mut queues = self.completions.iter().flatten();
            if queues.any(|queue| queue.vector == Some(vector) && queue.is_pending()) {
                self.interrupt(vector, bus);
            }
        }
    }

    /// The controller cannot go on: fatal status, until it is reset.
    pub(super) fn fail(&mut self, why: String) {
        self.csts |= CSTS_FATAL;
        self.ledger.violation(why);
    }
}
