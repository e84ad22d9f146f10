//! A guest for the tests of the models: memory from address 0 on, and what was sent to it.

use super::{Bus, DmaError, Message};

#[derive(Default)]
pub struct TestBus {
    pub memory: Vec<u8>,
    pub messages: Vec<Message>,
}

impl TestBus {
    pub fn new(memory: usize) -> TestBus {
        TestBus { memory: vec![0; memory], messages: Vec::new() }
    }

    /// The vectors of all messages.
    pub fn vectors(&self) -> Vec<u16> {
        self.messages.iter().map(|message| message.vector).collect()
    }

    fn bytes(&mut self, address: u64, len: usize) -> Result<&mut [u8], DmaError> {
        let unmapped = DmaError::Unmapped { address, len };
        let at = usize::try_from(address).map_err(|_| unmapped)?;
        self.memory.get_mut(at..at.saturating_add(len)).ok_or(unmapped)
    }
}

impl Bus for TestBus {
    fn send(&mut self, message: Message) {
        self.messages.push(message);
    }
    fn read_memory(&mut self, address: u64, to: &mut [u8]) -> Result<(), DmaError> {
        to.copy_from_slice(self.bytes(address, to.len())?);
        Ok(())
    }
    fn write_memory(&mut self, address: u64, from: &[u8]) -> Result<(), DmaError> {
        self.bytes(address, from.len())?.copy_from_slice(from);
        Ok(())
    }
}
