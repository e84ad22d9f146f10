//! Get Features and Set Features. NVM Express Base Specification 1.4, section 5.21.1.

use std::collections::BTreeMap;

use super::VECTORS;
use super::identify::queue_counts;
use super::wire::{NvmeCommand, Status};

const ARBITRATION: u8 = 0x01;
const POWER_MANAGEMENT: u8 = 0x02;
const TEMPERATURE_THRESHOLD: u8 = 0x04;
const ERROR_RECOVERY: u8 = 0x05;
const VOLATILE_WRITE_CACHE: u8 = 0x06;
const NUMBER_OF_QUEUES: u8 = 0x07;
const INTERRUPT_COALESCING: u8 = 0x08;
const INTERRUPT_VECTOR: u8 = 0x09;
const WRITE_ATOMICITY: u8 = 0x0a;
const ASYNCHRONOUS_EVENTS: u8 = 0x0b;

/// Select of Get Features: the value in use, that after a reset, that which is saved, what can be done with it.
const SELECT_CURRENT: u32 = 0;
const SELECT_CAPABILITIES: u32 = 3;
/// The value can be changed.
const CHANGEABLE: u32 = 1 << 2;
const SAVE: u32 = 1 << 31;
/// Kelvin of the upper threshold after reset.
const THRESHOLD_KELVIN: u32 = 343;

/// What the guest set, by feature and which of its values; all others are as after a reset. None changes what the disk does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Features(BTreeMap<(u8, u32), u32>);

/// Of a feature that is numbers: which of them the command means, and what that one is after a reset.
fn value_after_reset(command: &NvmeCommand) -> Result<(u32, u32), Status> {
    let (id, word) = (command.dword(10) as u8, command.dword(11));
    let vector = word & 0xffff;
    match id {
        ARBITRATION | POWER_MANAGEMENT | ERROR_RECOVERY => Ok((0, 0)),
        INTERRUPT_COALESCING | WRITE_ATOMICITY | ASYNCHRONOUS_EVENTS => Ok((0, 0)),
        VOLATILE_WRITE_CACHE => Ok((0, 1)),
        // THSEL: over or under; TMPSEL: only the composite temperature.
        TEMPERATURE_THRESHOLD if word >> 16 & 0x3f == 0 => Ok((0, THRESHOLD_KELVIN)),
        TEMPERATURE_THRESHOLD if word >> 16 & 0x3f == 0x10 => Ok((1, 0)),
        INTERRUPT_VECTOR if vector < VECTORS.into() => Ok((vector, vector)),
        _ => Err(Status::INVALID_FIELD),
    }
}

impl Features {
    pub(super) fn get(&self, command: &NvmeCommand) -> Result<u32, Status> {
        let (id, select) = (command.dword(10) as u8, command.dword(10) >> 8 & 7);
        if id == NUMBER_OF_QUEUES {
            return match select {
                SELECT_CAPABILITIES => Ok(CHANGEABLE),
                select if select < SELECT_CAPABILITIES => Ok(queue_counts()),
                _ => Err(Status::INVALID_FIELD),
            };
        }
        let (which, after_reset) = value_after_reset(command)?;
        match select {
            SELECT_CURRENT => Ok(self.0.get(&(id, which)).copied().unwrap_or(after_reset)),
            SELECT_CAPABILITIES => Ok(CHANGEABLE),
            // Nothing is saved: both are the value after reset.
            1 | 2 => Ok(after_reset),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// `has_io_queues`: the number of queues can no longer be agreed on.
    pub(super) fn set(&mut self, command: &NvmeCommand, has_io_queues: bool) -> Result<u32, Status> {
        let (id, word) = (command.dword(10) as u8, command.dword(11));
        if command.dword(10) & SAVE != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        if id == NUMBER_OF_QUEUES {
            // 65536 queues is what must not be asked for.
            return match word {
                _ if has_io_queues => Err(Status::COMMAND_SEQUENCE_ERROR),
                _ if word & 0xffff == 0xffff || word >> 16 == 0xffff => Err(Status::INVALID_FIELD),
                _ => Ok(queue_counts()),
            };
        }
        if id == POWER_MANAGEMENT && word & 0x1f != 0 {
            // There is one power state.
            return Err(Status::INVALID_FIELD);
        }
        self.0.insert((id, value_after_reset(command)?.0), word);
        Ok(0)
    }
}
