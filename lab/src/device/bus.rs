//! What a device does on its own: send messages, and read and write the guest's memory.

use thiserror::Error;

/// One message-signalled interrupt, or one edge of the INTx pin where the guest chose that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Vector as the device counts them.
    pub vector: u16,
    /// Nanoseconds from the access that caused it to its sending.
    pub delay_ns: u64,
    /// The second sending of a doubled message.
    pub is_copy: bool,
}

/// What becomes of a message that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It goes out.
    Now,
    /// It waits a little more.
    Later,
    /// It is dropped: the device was removed since, or is no bus master.
    Never,
}

/// A transfer that the guest's memory map does not allow.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DmaError {
    /// Not all of the range is mapped for the device.
    #[error("DMA of {len:#x} bytes at {address:#x}: not mapped")]
    Unmapped {
        /// First byte, as the device addresses it.
        address: u64,
        /// Bytes.
        len: usize,
    },
    /// The range is mapped for reading only.
    #[error("DMA of {len:#x} bytes at {address:#x}: mapped read-only")]
    ReadOnly {
        /// First byte, as the device addresses it.
        address: u64,
        /// Bytes.
        len: usize,
    },
}

/// The way from a device to the rest of the machine.
pub trait Bus {
    /// Queues a message; it goes out `delay_ns` after the access that is being answered.
    fn send(&mut self, message: Message);

    /// Reads guest memory.
    ///
    /// # Errors
    /// The range is not mapped; `to` may be filled in part.
    fn read_memory(&mut self, address: u64, to: &mut [u8]) -> Result<(), DmaError>;

    /// Writes guest memory.
    ///
    /// # Errors
    /// The range is not mapped or mapped read-only; nothing is written then.
    fn write_memory(&mut self, address: u64, from: &[u8]) -> Result<(), DmaError>;
}
