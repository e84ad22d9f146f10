//! The right answer of a test: what a device received and did. The model itself counts it, and the guest cannot change
//! it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::bus::{Bus, DmaError, Message};

/// At most so many different (BAR, offset, width) are told apart: a guest cannot fill the host's memory.
const PLACES_MAX: usize = 65_536;
/// At most so many different delays are told apart.
const CHOSEN_MAX: usize = 64;

/// Accesses by place.
#[derive(Clone, Debug, Default)]
pub struct Accesses {
    places: BTreeMap<(u8, u64, u8), u64>,
    /// Accesses of places beyond the limit of places.
    unlisted: u64,
    total: u64,
}

impl Accesses {
    /// Counts one access of `width` bytes.
    pub fn count(&mut self, bar: u8, offset: u64, width: u8) {
        self.total += 1;
        if let Some(count) = self.places.get_mut(&(bar, offset, width)) {
            *count += 1;
        } else if self.places.len() < PLACES_MAX {
            self.places.insert((bar, offset, width), 1);
        } else {
            self.unlisted += 1;
        }
    }

    /// All accesses.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many of one place and width.
    pub fn at(&self, bar: u8, offset: u64, width: u8) -> u64 {
        self.places.get(&(bar, offset, width)).copied().unwrap_or(0)
    }

    fn to_json(&self) -> Value {
        let place = |(&(bar, offset, width), &count): (&(u8, u64, u8), &u64)| json!({"bar": bar, "offset": offset, "width": width, "count": count});
        self.places.iter().map(place).collect()
    }
}

/// The delays that were applied, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    count: u64,
    sum: u64,
    each: BTreeMap<u64, u64>,
    /// More different delays than are told apart.
    is_crowded: bool,
}

impl Chosen {
    /// Counts one delay.
    pub fn count(&mut self, time_ns: u64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(time_ns);
        if let Some(count) = self.each.get_mut(&time_ns) {
            *count += 1;
        } else if self.each.len() < CHOSEN_MAX {
            self.each.insert(time_ns, 1);
        } else {
            self.is_crowded = true;
        }
    }

    fn to_json(&self) -> Value {
        let mut fields = Map::new();
        fields.insert("count".to_owned(), self.count.into());
        fields.insert("sum".to_owned(), self.sum.into());
        if !self.is_crowded {
            fields.insert("chosen".to_owned(), self.each.iter().map(|(time, count)| json!([time, count])).collect());
        }
        Value::Object(fields)
    }
}

/// One vector's interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorCounts {
    /// Times it was raised.
    pub triggers: u64,
    /// Messages that went out, second ones included.
    pub sent: u64,
    /// Messages kept back by `irq-lose`.
    pub lost: u64,
    /// Messages that went out a second time by `irq-double`.
    pub doubled: u64,
    /// Triggers while the vector was not enabled.
    pub masked: u64,
    /// Messages for which the guest had set up no vector, or which a reset or removal overtook.
    pub undelivered: u64,
}

impl VectorCounts {
    /// A message of this vector went out, or found no vector.
    pub fn settle(&mut self, message: &Message, sent: bool) {
        if sent {
            self.sent += 1;
            self.doubled += u64::from(message.is_copy);
        } else if !message.is_copy {
            self.undelivered += 1;
        }
    }

    /// Messages whose time has not come yet.
    pub fn pending(&self) -> u64 {
        (self.triggers + self.doubled).saturating_sub(self.sent + self.lost + self.masked + self.undelivered)
    }
}

/// Everything that is counted for one device.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Reads that the device answered.
    pub reads: Accesses,
    /// Writes that the device took.
    pub writes: Accesses,
    /// Delays of reads.
    pub read_delay: Chosen,
    /// Delays of writes.
    pub write_delay: Chosen,
    /// Delays between triggers and their messages.
    pub irq_delay: Chosen,
    /// What reads waited for a link that slept.
    pub aspm_exit: Chosen,
    /// By vector.
    pub irq: Vec<VectorCounts>,
    /// Reads answered with all-ones because the device had gone.
    pub all_ones_reads: u64,
    /// Writes dropped because the device had gone.
    pub dropped_writes: u64,
    /// Accesses of a size, alignment or place that no register can have.
    pub refused: u64,
    /// Reads of configuration space.
    pub config_reads: u64,
    /// Writes of configuration space.
    pub config_writes: u64,
    /// Bytes that the device read from the guest's memory.
    pub dma_read_bytes: u64,
    /// Bytes that the device wrote to the guest's memory.
    pub dma_write_bytes: u64,
    /// Function resets.
    pub resets: u64,
}

impl Ledger {
    /// A ledger for a device with `vectors` vectors.
    pub fn new(vectors: usize) -> Self {
        Ledger { irq: vec![VectorCounts::default(); vectors], ..Ledger::default() }
    }

    /// Reads guest memory through `bus` and counts the bytes.
    ///
    /// # Errors
    /// As [`Bus::read_memory`]; nothing is counted then.
    pub fn read_memory(&mut self, bus: &mut dyn Bus, address: u64, to: &mut [u8]) -> Result<(), DmaError> {
        bus.read_memory(address, to)?;
        self.dma_read_bytes += to.len() as u64;
        Ok(())
    }

    /// Writes guest memory through `bus` and counts the bytes.
    ///
    /// # Errors
    /// As [`Bus::write_memory`]; nothing is counted then.
    pub fn write_memory(&mut self, bus: &mut dyn Bus, address: u64, from: &[u8]) -> Result<(), DmaError> {
        bus.write_memory(address, from)?;
        self.dma_write_bytes += from.len() as u64;
        Ok(())
    }

    /// The ledger as the control socket shows it. Vectors that were never raised are left out.
    pub fn to_json(&self, removed: bool) -> Value {
        let vector = |(vector, irq): (usize, &VectorCounts)| {
            json!({"vector": vector, "triggers": irq.triggers, "sent": irq.sent, "lost": irq.lost,
                   "doubled": irq.doubled, "masked": irq.masked, "undelivered": irq.undelivered,
                   "pending": irq.pending()})
        };
        let raised = self.irq.iter().enumerate().filter(|(_, irq)| irq.triggers > 0);
        json!({
            "reads": self.reads.to_json(), "reads_total": self.reads.total, "reads_unlisted": self.reads.unlisted,
            "writes": self.writes.to_json(), "writes_total": self.writes.total,
            "writes_unlisted": self.writes.unlisted,
            "read_delay_ns": self.read_delay.to_json(), "write_delay_ns": self.write_delay.to_json(),
            "irq_delay_ns": self.irq_delay.to_json(), "aspm_exit_ns": self.aspm_exit.to_json(),
            "irq": raised.map(vector).collect::<Value>(),
            "all_ones_reads": self.all_ones_reads, "dropped_writes": self.dropped_writes, "refused": self.refused,
            "config_reads": self.config_reads, "config_writes": self.config_writes,
            "dma_read_bytes": self.dma_read_bytes, "dma_write_bytes": self.dma_write_bytes,
            "resets": self.resets, "removed": removed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Message;

    /// 16 bytes of memory at address 0x1000.
    struct Sixteen([u8; 16]);

    impl Bus for Sixteen {
        fn send(&mut self, _: Message) {}
        fn read_memory(&mut self, address: u64, to: &mut [u8]) -> Result<(), DmaError> {
            let unmapped = DmaError::Unmapped { address, len: to.len() };
            let at = address.checked_sub(0x1000).ok_or(unmapped)? as usize;
            to.copy_from_slice(self.0.get(at..at + to.len()).ok_or(unmapped)?);
            Ok(())
        }
        fn write_memory(&mut self, address: u64, from: &[u8]) -> Result<(), DmaError> {
            let unmapped = DmaError::Unmapped { address, len: from.len() };
            let at = address.checked_sub(0x1000).ok_or(unmapped)? as usize;
            self.0.get_mut(at..at + from.len()).ok_or(unmapped)?.copy_from_slice(from);
            Ok(())
        }
    }

    #[test]
    fn accesses_are_told_apart_by_bar_offset_and_width() {
        let mut ledger = Ledger::new(0);
        ledger.reads.count(0, 8, 4);
        ledger.reads.count(0, 8, 4);
        ledger.reads.count(0, 8, 8);
        ledger.reads.count(2, 8, 4);
        let shown = ledger.to_json(false);
        assert_eq!(
            shown["reads"],
            json!([{"bar": 0, "offset": 8, "width": 4, "count": 2}, {"bar": 0, "offset": 8, "width": 8, "count": 1},
                   {"bar": 2, "offset": 8, "width": 4, "count": 1}])
        );
        assert_eq!(shown["reads_total"], 4);
        assert_eq!(shown["writes"], json!([]));
    }

    #[test]
    fn places_beyond_the_limit_are_counted_together() {
        let mut accesses = Accesses::default();
        (0..PLACES_MAX as u64 + 10).for_each(|offset| accesses.count(2, offset, 1));
        accesses.count(2, 0, 1);
        assert_eq!((accesses.places.len(), accesses.unlisted), (PLACES_MAX, 10));
        assert_eq!(accesses.total(), PLACES_MAX as u64 + 11);
    }

    #[test]
    fn delays_are_listed_up_to_64_different_ones() {
        let mut chosen = Chosen::default();
        (0..64).chain(0..64).for_each(|time| chosen.count(time));
        assert_eq!(chosen.to_json()["chosen"][63], json!([63, 2]));
        chosen.count(64);
        assert_eq!(chosen.to_json(), json!({"count": 129, "sum": 2 * 2016 + 64}));
    }

    #[test]
    fn only_transfers_that_happened_are_counted() {
        let (mut ledger, mut memory) = (Ledger::new(0), Sixteen([7; 16]));
        assert_eq!(ledger.write_memory(&mut memory, 0x1004, &[1, 2, 3]), Ok(()));
        let mut read = [0; 5];
        assert_eq!(ledger.read_memory(&mut memory, 0x1003, &mut read), Ok(()));
        assert_eq!(read, [7, 1, 2, 3, 7]);
        let outside = DmaError::Unmapped { address: 0x100c, len: 5 };
        assert_eq!(ledger.write_memory(&mut memory, 0x100c, &[0; 5]), Err(outside));
        assert_eq!(ledger.read_memory(&mut memory, 0x100c, &mut read), Err(outside));
        assert_eq!((ledger.dma_read_bytes, ledger.dma_write_bytes), (5, 3));
    }

    #[test]
    fn a_delayed_message_is_pending() {
        let irq = VectorCounts { triggers: 10, sent: 5, lost: 1, doubled: 1, masked: 2, undelivered: 1 };
        assert_eq!(irq.pending(), 2);
    }
}
