//! Get Features and Set Features. NVM Express Base Specification 1.4, section 5.21.1.

use super::VECTORS;
use super::identify::queue_counts;
use super::wire::{Command, Status};

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

/// What the guest set; all are as after a reset unless it did. None of them changes what the disk does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Features {
    arbitration: u32,
    power: u32,
    over_temperature: u32,
    under_temperature: u32,
    error_recovery: u32,
    write_cache: u32,
    coalescing: u32,
    vectors: [u32; VECTORS as usize],
    atomicity: u32,
    events: u32,
}

impl Default for Features {
    fn default() -> Self {
        Features {
            arbitration: 0,
            power: 0,
            over_temperature: THRESHOLD_KELVIN,
            under_temperature: 0,
            error_recovery: 0,
            write_cache: 1,
            coalescing: 0,
            vectors: std::array::from_fn(|vector| vector as u32),
            atomicity: 0,
            events: 0,
        }
    }
}

impl Features {
    /// The value in use, of those that are one number.
    fn value(&mut self, command: &Command) -> Result<&mut u32, Status> {
        let (id, word) = (command.dword(10) as u8, command.dword(11));
        Ok(match id {
            ARBITRATION => &mut self.arbitration,
            POWER_MANAGEMENT => &mut self.power,
            // THSEL: over or under; TMPSEL: only the composite temperature.
            TEMPERATURE_THRESHOLD if word >> 16 & 0xf == 0 && word >> 20 & 3 == 0 => &mut self.over_temperature,
            TEMPERATURE_THRESHOLD if word >> 16 & 0xf == 0 && word >> 20 & 3 == 1 => &mut self.under_temperature,
            ERROR_RECOVERY => &mut self.error_recovery,
            VOLATILE_WRITE_CACHE => &mut self.write_cache,
            INTERRUPT_COALESCING => &mut self.coalescing,
            INTERRUPT_VECTOR => self.vectors.get_mut((word & 0xffff) as usize).ok_or(Status::INVALID_FIELD)?,
            WRITE_ATOMICITY => &mut self.atomicity,
            ASYNCHRONOUS_EVENTS => &mut self.events,
            _ => return Err(Status::INVALID_FIELD),
        })
    }

    pub(super) fn get(&mut self, command: &Command) -> Result<u32, Status> {
        let (id, select) = (command.dword(10) as u8, command.dword(10) >> 8 & 7);
        if id == NUMBER_OF_QUEUES {
            return match select {
                SELECT_CAPABILITIES => Ok(CHANGEABLE),
                select if select < SELECT_CAPABILITIES => Ok(queue_counts()),
                _ => Err(Status::INVALID_FIELD),
            };
        }
        let current = *self.value(command)?;
        match select {
            SELECT_CURRENT => Ok(current),
            SELECT_CAPABILITIES => Ok(CHANGEABLE),
            // Nothing is saved: both are the value after reset.
            1 | 2 => Features::default().value(command).map(|value| *value),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// `has_io_queues`: the number of queues can no longer be agreed on.
    pub(super) fn set(&mut self, command: &Command, has_io_queues: bool) -> Result<u32, Status> {
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
        *self.value(command)? = word;
        Ok(0)
    }
}
