//! The admin commands. NVM Express Base Specification 1.4, section 5.

use crate::device::bus::Bus;

use super::NvmeDisk;
use super::dma::PAGE;
use super::identify::{AERL, IDENTIFY_BYTES, log_page, namespaces};
use super::queue::{CompletionQueue, SubmissionQueue};
use super::wire::{Completion, NvmeCommand, Status};
use super::{IO_QUEUES, NAMESPACE, NAMESPACE_ALL, QUEUE_ENTRIES, VECTORS};

const DELETE_SUBMISSION_QUEUE: u8 = 0x00;
const CREATE_SUBMISSION_QUEUE: u8 = 0x01;
const GET_LOG_PAGE: u8 = 0x02;
const DELETE_COMPLETION_QUEUE: u8 = 0x04;
const CREATE_COMPLETION_QUEUE: u8 = 0x05;
const IDENTIFY: u8 = 0x06;
const ABORT: u8 = 0x08;
const SET_FEATURES: u8 = 0x09;
const GET_FEATURES: u8 = 0x0a;
const ASYNCHRONOUS_EVENT: u8 = 0x0c;

/// Physically contiguous, of Create I/O Queue.
const CONTIGUOUS: u32 = 1;
const INTERRUPTS: u32 = 1 << 1;
/// Result of Abort: the command was not aborted.
const NOT_ABORTED: u32 = 1;
/// Events that wait for a request; more are dropped.
const EVENTS_MAX: usize = 8;

impl NvmeDisk {
    /// Carries out an admin command. `None`: it is answered later.
    pub(super) fn admin(&mut self, command: &NvmeCommand, bus: &mut dyn Bus) -> Option<Result<u32, Status>> {
        if command.flags != 0 {
            return Some(Err(Status::INVALID_FIELD));
        }
        if command.opcode == ASYNCHRONOUS_EVENT {
            if self.event_requests.len() > usize::from(AERL) {
                return Some(Err(Status::EVENT_REQUEST_LIMIT));
            }
            self.event_requests.push_back(command.id);
            return None;
        }
        Some(match command.opcode {
            IDENTIFY => self.identify(command, bus),
            GET_LOG_PAGE => self.get_log_page(command, bus),
            GET_FEATURES => self.features.get(command),
            SET_FEATURES => {
                let has_io_queues = self.submissions[1..].iter().any(Option::is_some)
                    || self.completions[1..].iter().any(Option::is_some);
                self.features.set(command, has_io_queues)
            }
            CREATE_COMPLETION_QUEUE => self.create_completion_queue(command),
            CREATE_SUBMISSION_QUEUE => self.create_submission_queue(command),
            DELETE_COMPLETION_QUEUE => self.delete_completion_queue(command),
            DELETE_SUBMISSION_QUEUE => self.delete_submission_queue(command, bus),
            ABORT => Ok(self.abort(command, bus)),
            _ => Err(Status::INVALID_OPCODE),
        })
    }

    fn identify(&mut self, command: &NvmeCommand, bus: &mut dyn Bus) -> Result<u32, Status> {
        let namespace = command.namespace;
        let is_ours = |page: Vec<u8>| if namespace == NAMESPACE { Ok(page) } else { Err(Status::INVALID_NAMESPACE) };
        let page = match command.dword(10) & 0xff {
            0x00 if namespace == NAMESPACE_ALL => self.who.namespace(),
            // A namespace that could be but is not active reads as zeros; numbers beyond NN are invalid.
            0x00 => is_ours(self.who.namespace())?,
            0x01 => self.who.controller(),
            0x02 if namespace >= 0xffff_fffe => return Err(Status::INVALID_NAMESPACE),
            0x02 => namespaces(namespace),
            0x03 => is_ours(self.who.descriptors())?,
            _ => return Err(Status::INVALID_FIELD),
        };
        self.answer_with(command, &page[..IDENTIFY_BYTES], bus)
    }

    fn get_log_page(&mut self, command: &NvmeCommand, bus: &mut dyn Bus) -> Result<u32, Status> {
        if !matches!(command.namespace, 0 | NAMESPACE | NAMESPACE_ALL) {
            return Err(Status::INVALID_NAMESPACE);
        }
        let len = (u64::from(command.dword(11) & 0xffff) << 16 | u64::from(command.dword(10) >> 16)) * 4 + 4;
        let offset = u64::from(command.dword(13)) << 32 | u64::from(command.dword(12));
        let page = log_page(command.dword(10) as u8, &self.ledger).ok_or(Status::INVALID_LOG_PAGE)?;
        if offset % 4 != 0 || offset > page.len() as u64 || len > PAGE {
            return Err(Status::INVALID_FIELD);
        }
        let mut page = page[offset as usize..].to_vec();
        // What lies beyond the log's end is undefined.
        page.resize(len as usize, 0);
        self.answer_with(command, &page, bus)
    }

    /// Writes what a command returns into the guest's memory.
    fn answer_with(&mut self, command: &NvmeCommand, page: &[u8], bus: &mut dyn Bus) -> Result<u32, Status> {
        let mut dma = self.dma(bus);
        let ranges = dma.ranges(command.prp1, command.prp2, page.len() as u64)?;
        dma.scatter(&ranges, page)?;
        self.ledger.admin_bytes += page.len() as u64;
        Ok(0)
    }

    fn create_completion_queue(&mut self, command: &NvmeCommand) -> Result<u32, Status> {
        let (id, entries) = queue_of(command);
        let (flags, vector) = (command.dword(11) & 0xffff, (command.dword(11) >> 16) as u16);
        if id == 0 || id > IO_QUEUES || self.completions[usize::from(id)].is_some() {
            return Err(Status::INVALID_QUEUE_ID);
        }
        let base = contiguous(command, entries, flags)?;
        let vector = (flags & INTERRUPTS != 0).then_some(vector);
        if vector.is_some_and(|vector| vector >= VECTORS) {
            return Err(Status::INVALID_VECTOR);
        }
        self.completions[usize::from(id)] = Some(CompletionQueue::new(base, entries as u16, vector));
        Ok(0)
    }

    fn create_submission_queue(&mut self, command: &NvmeCommand) -> Result<u32, Status> {
        let (id, entries) = queue_of(command);
        let completions = (command.dword(11) >> 16) as u16;
        if id == 0 || id > IO_QUEUES || self.submissions[usize::from(id)].is_some() {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if completions == 0 || completions > IO_QUEUES || self.completions[usize::from(completions)].is_none() {
            return Err(Status::COMPLETION_QUEUE_INVALID);
        }
        let base = contiguous(command, entries, command.dword(11) & 0xffff)?;
        self.submissions[usize::from(id)] = Some(SubmissionQueue::new(base, entries as u16, completions));
        Ok(0)
    }

    fn delete_completion_queue(&mut self, command: &NvmeCommand) -> Result<u32, Status> {
        let id = command.dword(10) as u16;
        if id == 0 || self.completions.get(usize::from(id)).is_none_or(Option::is_none) {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if self.submissions.iter().flatten().any(|queue| queue.completions == id) {
            return Err(Status::INVALID_QUEUE_DELETION);
        }
        self.completions[usize::from(id)] = None;
        Ok(0)
    }

    /// Commands that are under way are answered before the deletion is.
    fn delete_submission_queue(&mut self, command: &NvmeCommand, bus: &mut dyn Bus) -> Result<u32, Status> {
        let id = command.dword(10) as u16;
        let queue = self.submissions.get(usize::from(id)).and_then(Option::as_ref);
        let Some(completions) = queue.filter(|_| id != 0).map(|queue| queue.completions) else {
            return Err(Status::INVALID_QUEUE_ID);
        };
        let (aborted, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.transfers).into_iter().partition(|transfer| transfer.queue == id);
        self.transfers = kept.into();
        for transfer in aborted {
            let status = Status::ABORTED_SQ_DELETION;
            self.complete(completions, Completion { result: 0, queue: id, id: transfer.command.id, status }, bus);
        }
        self.submissions[usize::from(id)] = None;
        Ok(0)
    }

    /// A command that waits for the pipe can be aborted; any other is done already.
    fn abort(&mut self, command: &NvmeCommand, bus: &mut dyn Bus) -> u32 {
        let (queue, id) = (command.dword(10) as u16, (command.dword(10) >> 16) as u16);
        let found = self.transfers.iter().position(|t| t.queue == queue && t.command.id == id);
        let completions = self.submissions.get(usize::from(queue)).and_then(Option::as_ref).map(|q| q.completions);
        let (Some(at), Some(completions)) = (found, completions) else { return NOT_ABORTED };
        self.transfers.remove(at);
        let status = Status::ABORT_REQUESTED;
        self.complete(completions, Completion { result: 0, queue, id, status }, bus);
        0
    }

    /// An event that the guest hears of if it asked (section 5.2): type in bits 2:0, information in 15:8, log in 23:16.
    pub(super) fn event(&mut self, event: u32) {
        if self.events.len() < EVENTS_MAX && !self.events.contains(&event) {
            self.events.push_back(event);
        }
    }

    /// Answers requests for events that there are.
    pub(super) fn report_events(&mut self, bus: &mut dyn Bus) {
        while !self.events.is_empty() && !self.event_requests.is_empty() {
            let (Some(result), Some(id)) = (self.events.pop_front(), self.event_requests.pop_front()) else { return };
            self.complete(0, Completion { result, queue: 0, id, status: Status::SUCCESS }, bus);
        }
    }
}

/// Identifier and number of entries of Create I/O Queue.
fn queue_of(command: &NvmeCommand) -> (u16, u32) {
    (command.dword(10) as u16, (command.dword(10) >> 16) + 1)
}

/// Where a queue lies, if it is one that is served.
fn contiguous(command: &NvmeCommand, entries: u32, flags: u32) -> Result<u64, Status> {
    if !(2..=u32::from(QUEUE_ENTRIES)).contains(&entries) {
        return Err(Status::INVALID_QUEUE_SIZE);
    }
    if flags & CONTIGUOUS == 0 {
        return Err(Status::INVALID_FIELD);
    }
    if command.prp1 % PAGE != 0 {
        return Err(Status::PRP_OFFSET_INVALID);
    }
    Ok(command.prp1)
}
