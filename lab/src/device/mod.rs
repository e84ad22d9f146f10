//! The models of devices: they compute what the registers do.
//!
//! A model does no input or output, starts no thread and reads no clock. Its caller passes in time, accesses and
//! commands, and it answers with values, waits and messages. `crate::server` and `crate::control` connect it to the
//! guest and the tests.

pub mod board;
pub mod bus;
pub mod command;
pub mod config;
pub mod delay;
pub mod drw;
pub mod endpoint;
mod express;
pub mod faults;
pub mod ledger;
pub mod nvme;
pub mod rasdes;
pub mod sis8300;
#[cfg(test)]
mod test;
pub mod traffic;
pub mod upstream;
mod words;

pub use board::CounterBoard;
pub use bus::{Bus, Delivery, DmaError, Message};
pub use endpoint::LatencyEndpoint;
pub use nvme::NvmeDisk;
pub use sis8300::Sis8300;
pub use upstream::Upstream;

use serde_json::Value;

/// What a device looks like from its slot: fixed for its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of each BAR; 0 where there is none, also for the upper half of a 64-bit one.
    pub bars: [u64; 6],
    /// Whether it has an INTx pin.
    pub intx: bool,
    /// MSI vectors that it can send.
    pub msi: u16,
    /// MSI-X vectors that it can send.
    pub msix: u16,
}

/// Nanoseconds for which the completion of an access is held back.
pub type Wait = u64;

/// A PCIe function at register level.
///
/// # Guarantees that an implementation gives
/// - No argument makes it panic: what the guest gets wrong is answered as hardware would.
/// - A read fills all of `to`.
/// - Accesses to registers allocate nothing, but for the ledger's first sight of an offset.
pub trait DeviceModel: Send {
    /// The regions and vectors to offer.
    fn layout(&self) -> Layout;

    /// Reads configuration space (4096 bytes); bytes past the end are all-ones.
    fn config_read(&mut self, offset: u64, to: &mut [u8]) -> Wait;

    /// Writes configuration space; read-only bits stay as they are.
    fn config_write(&mut self, offset: u64, from: &[u8]) -> Wait;

    /// Reads a BAR at `now_ns` on the device's clock (nanoseconds since it was made).
    fn bar_read(&mut self, now_ns: u64, bar: u8, offset: u64, to: &mut [u8]) -> Wait;

    /// Writes a BAR; the messages and transfers that follow from it go through `bus`.
    fn bar_write(&mut self, now_ns: u64, bar: u8, offset: u64, from: &[u8], bus: &mut dyn Bus) -> Wait;

    /// Whether a message may merge with one of its vector that the client has not taken yet. Where a message only says
    /// "look", as with queues in memory, the one before serves as well; by default each is seen by itself.
    fn merges_messages(&self) -> bool {
        false
    }

    /// A message that went through [`Bus::send`] is due: may it go out?
    fn may_deliver(&mut self, message: &Message) -> Delivery;

    /// The message was sent (`true`), or there was no vector to send it on.
    fn delivered(&mut self, message: &Message, sent: bool);

    /// Whether the device no longer answers, as after a surprise removal.
    fn is_gone(&self) -> bool {
        false
    }

    /// The level of the INTx pin.
    fn intx(&self) -> bool {
        false
    }

    /// A function-level reset. Settings made by [`DeviceModel::command`] and the ledger stay.
    fn reset(&mut self);

    /// When the device next does something by itself, on its own clock (nanoseconds since it was made); a time that has
    /// passed means at once. `None`: only accesses and commands move it. Asked after every access, command and
    /// [`DeviceModel::work`].
    fn next_work(&self) -> Option<u64> {
        None
    }

    /// Does what [`DeviceModel::next_work`] announced, at `now_ns` on the device's clock. It may come late, or early where
    /// an access changed the time in between. [`DeviceModel::bar_read`] has no bus: a model that has a message to send after
    /// a read announces work for now.
    fn work(&mut self, _now_ns: u64, _bus: &mut dyn Bus) {}

    /// The device's clock stands at `now_ns`; told before a command, which may begin or end something steady.
    fn set_clock(&mut self, _now_ns: u64) {}

    /// Carries out one line of the control socket.
    ///
    /// # Errors
    /// What was wrong with the command, in one line.
    fn command(&mut self, line: &str) -> Result<Value, command::CommandError>;
}

/// Calls `each` with the registers that an access covers, until `end`: the register's offset, which of its bytes comes first,
/// which byte of the access that is, and how many bytes.
fn for_each_dword(offset: u64, len: usize, end: u64, mut each: impl FnMut(u64, usize, usize, usize)) {
    let mut done = 0;
    while done < len {
        let Some(at) = offset.checked_add(done as u64).filter(|at| *at < end) else { return };
        let skip = (at % 4) as usize;
        let part = (4 - skip).min(len - done);
        each(at - skip as u64, skip, done, part);
        done += part;
    }
}

/// Fills `to` with the bytes of the registers from `offset` to `end`; bytes past it stay.
fn read_dwords(offset: u64, to: &mut [u8], end: u64, mut read: impl FnMut(u64) -> u32) {
    for_each_dword(offset, to.len(), end, |register, skip, at, len| {
        to[at..at + len].copy_from_slice(&read(register).to_le_bytes()[skip..skip + len]);
    });
}
