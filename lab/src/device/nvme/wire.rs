//! The entries of the queues: commands, completions and their status. NVM Express Base Specification 1.4, section 4.

/// Bytes of a submission queue entry.
pub(super) const SQE_BYTES: usize = 64;
/// Bytes of a completion queue entry.
pub(super) const CQE_BYTES: usize = 16;

/// A command, as it lies in a submission queue (figure 105).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NvmeCommand {
    pub(super) opcode: u8,
    /// Fused operation and kind of data pointer: anything but 0 is not served.
    pub(super) flags: u8,
    pub(super) id: u16,
    pub(super) namespace: u32,
    pub(super) prp1: u64,
    pub(super) prp2: u64,
    /// Command Dwords 10 to 15.
    pub(super) dwords: [u32; 6],
}

impl NvmeCommand {
    pub(super) fn parse(entry: &[u8; SQE_BYTES]) -> NvmeCommand {
        let dword = |n: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| entry[4 * n + i]));
        let qword = |n: usize| u64::from(dword(n)) | u64::from(dword(n + 1)) << 32;
        NvmeCommand {
            opcode: entry[0],
            flags: entry[1],
            id: u16::from_le_bytes([entry[2], entry[3]]),
            namespace: dword(1),
            prp1: qword(6),
            prp2: qword(8),
            dwords: [10, 11, 12, 13, 14, 15].map(dword),
        }
    }

    /// Command Dword `n`, 10 to 15.
    pub(super) fn dword(&self, n: usize) -> u32 {
        self.dwords[n - 10]
    }

    /// First block of a command that reads or writes.
    pub(super) fn first_block(&self) -> u64 {
        u64::from(self.dword(10)) | u64::from(self.dword(11)) << 32
    }

    /// Blocks of a command that reads or writes.
    pub(super) fn blocks(&self) -> u64 {
        u64::from(self.dword(12) & 0xffff) + 1
    }
}

/// How a command ended (section 4.6.1): status code in bits 7:0, its type in bits 10:8, and in bit 14 "do not retry". It is
/// the completion's status field without the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Status(pub(super) u16);

const DO_NOT_RETRY: u16 = 1 << 14;

impl Status {
    pub(super) const SUCCESS: Status = Status(0);
    pub(super) const INVALID_OPCODE: Status = Status(0x001 | DO_NOT_RETRY);
    pub(super) const INVALID_FIELD: Status = Status(0x002 | DO_NOT_RETRY);
    pub(super) const DATA_TRANSFER_ERROR: Status = Status(0x004);
    pub(super) const ABORT_REQUESTED: Status = Status(0x007);
    pub(super) const ABORTED_SQ_DELETION: Status = Status(0x008);
    pub(super) const INVALID_NAMESPACE: Status = Status(0x00b | DO_NOT_RETRY);
    pub(super) const COMMAND_SEQUENCE_ERROR: Status = Status(0x00c | DO_NOT_RETRY);
    pub(super) const PRP_OFFSET_INVALID: Status = Status(0x013 | DO_NOT_RETRY);
    pub(super) const LBA_OUT_OF_RANGE: Status = Status(0x080 | DO_NOT_RETRY);
    pub(super) const COMPLETION_QUEUE_INVALID: Status = Status(0x100 | DO_NOT_RETRY);
    pub(super) const INVALID_QUEUE_ID: Status = Status(0x101 | DO_NOT_RETRY);
    pub(super) const INVALID_QUEUE_SIZE: Status = Status(0x102 | DO_NOT_RETRY);
    pub(super) const EVENT_REQUEST_LIMIT: Status = Status(0x105 | DO_NOT_RETRY);
    pub(super) const INVALID_VECTOR: Status = Status(0x108 | DO_NOT_RETRY);
    pub(super) const INVALID_LOG_PAGE: Status = Status(0x109 | DO_NOT_RETRY);
    pub(super) const INVALID_QUEUE_DELETION: Status = Status(0x10c | DO_NOT_RETRY);
    pub(super) const FEATURE_NOT_SAVEABLE: Status = Status(0x10d | DO_NOT_RETRY);
    pub(super) const WRITE_FAULT: Status = Status(0x280 | DO_NOT_RETRY);
    pub(super) const UNRECOVERED_READ_ERROR: Status = Status(0x281 | DO_NOT_RETRY);

    /// Type and code, without "do not retry".
    pub(super) fn code(self) -> u16 {
        self.0 & 0x7ff
    }
}

/// What a command leaves in its completion queue (figure 122), but for head and phase, which are those of the moment
/// when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) result: u32,
    pub(super) queue: u16,
    pub(super) id: u16,
    pub(super) status: Status,
}

impl Completion {
    pub(super) fn to_bytes(self, head: u16, phase: bool) -> [u8; CQE_BYTES] {
        let mut entry = [0; CQE_BYTES];
        entry[..4].copy_from_slice(&self.result.to_le_bytes());
        entry[8..10].copy_from_slice(&head.to_le_bytes());
        entry[10..12].copy_from_slice(&self.queue.to_le_bytes());
        entry[12..14].copy_from_slice(&self.id.to_le_bytes());
        entry[14..].copy_from_slice(&(self.status.0 << 1 | u16::from(phase)).to_le_bytes());
        entry
    }
}
