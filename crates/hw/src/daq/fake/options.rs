//! What `fake:digitizer?...` can be told.

use std::str::FromStr;

use crate::synthetic::key::options;

options! {
    /// A synthetic board and its faults. Every field has its key in [`KEYS`]; 0 means off unless said otherwise.
    struct Options {
        /// Which board.
        model: Model = Model::L2, "model=l|l2|ku" "the board (l2)"
            |part| match part.value {
            Some("l") => Model::L,
            Some("l2") => Model::L2,
            Some("ku") => Model::Ku,
            _ => return part.refuse(": model is l, l2 or ku"),
        };
        /// Physical slot.
        slot: u8 = 6, "slot=N" "its slot (6)" |part| part.number(1, 31)? as u8;
        /// Register 0x01.
        serial: u32 = 1, "serial=N" "its serial number (1)" |part| part.number(0, 65535)? as u32;
        /// Of the samples.
        seed: u64 = 1, "seed=N" "of its samples (1)" |part| part.number(0, u64::MAX)?;
        /// Bytes of card memory.
        memory: u64 = 2 << 30, "memory=MiB" "card memory (2048)" |part| part.number(1, 2048)? << 20;
        /// Bytes per second of a DMA; 0: no time.
        rate: u64 = RATE_UNSET, "rate=MB/s" "of a DMA (what its link carries; 0: no time)"
            |part| part.number(0, 100_000)? * 1_000_000;
        /// Bytes of one DMA.
        chunk: u64 = 4 << 20, "chunk=KiB" "of one DMA (4096)" |part| part.number(4, 65536)? << 10;
        /// Programming of one DMA, in nanoseconds.
        setup_ns: u64 = 2_000, "setup=US" "time to program a DMA (2)" |part| part.number(0, 1_000_000)? * 1000;
        /// Triggers per second on the backplane.
        trigger_hz: u64 = 1000, "trigger=HZ" "of the backplane (1000)" |part| part.number(1, 1_000_000)?;
        /// The acquisition of this number never ends.
        hang: u64 = 0, "hang=N" "the Nth acquisition never ends" |part| part.count()?;
        /// This DMA, counted from 1, does not end in time.
        timeout: u64 = 0, "timeout=N" "the Nth DMA does not end in time" |part| part.count()?;
        /// This DMA stops before its end.
        short: u64 = 0, "short=N" "the Nth DMA stops before its end" |part| part.count()?;
        /// After this number of DMAs the board is gone.
        gone_after: u64 = 0, "gone-after=N" "the board is gone after N DMAs" |part| part.count()?;
        /// This DMA brings one wrong byte.
        wrong: u64 = 0, "wrong=N" "the Nth DMA brings a wrong byte" |part| part.count()?;
        /// Every nth end of an acquisition comes without its interrupt.
        lose: u64 = 0, "lose=N" "every Nth acquisition ends without its interrupt" |part| part.count()?;
        /// Opening is refused.
        refuse: bool = false, "refuse" "opening is refused" |part| part.flag()?;
        /// Another file acquires.
        busy: bool = false, "busy" "another file acquires" |part| part.flag()?;
    }
}

pciescope_core::named! {
    /// A board of the family.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Model {
        /// SIS8300-L.
        L => "SIS8300-L",
        /// SIS8300-L2.
        L2 => "SIS8300-L2",
        /// SIS8300-KU.
        Ku => "SIS8300-KU",
    }
    /// As About::model has it.
    fn name
}

/// The model's own rate stands in for it once all is read.
const RATE_UNSET: u64 = u64::MAX;

impl FromStr for Options {
    type Err = String;

    /// Commas or `&` separate the parts.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut options = Options::default();
        for part in text.split([',', '&']).filter(|part| !part.is_empty()) {
            options.set(part)?;
        }
        if options.rate == RATE_UNSET {
            // Payload that Gen1 x4 and Gen3 x4 carry with 256 bytes to a packet.
            options.rate = if options.model == Model::Ku { 3_644_000_000 } else { 925_000_000 };
        }
        Ok(options)
    }
}

impl Model {
    /// PCI device number.
    pub fn device(self) -> u16 {
        if self == Model::Ku { 0x0024 } else { 0x0019 }
    }

    /// GT/s of its four lanes.
    pub fn speed_gts(self) -> f64 {
        if self == Model::Ku { 8.0 } else { 2.5 }
    }

    /// Lengths of acquisitions are multiples of so many samples.
    pub fn block_samples(self) -> u64 {
        if self == Model::Ku { 32 } else { 16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_changes_something() {
        let plain: Options = "".parse().unwrap();
        for (key, _) in KEYS {
            let text = match key.split_once('=') {
                Some(("model", _)) => "model=ku".to_owned(),
                Some((name, _)) => format!("{name}=5"),
                None => key.to_owned(),
            };
            assert_ne!(text.parse::<Options>().unwrap(), plain, "{text} changed nothing");
        }
    }

    #[test]
    fn says_which_part_is_wrong() {
        for (bad, part) in [
            ("seed=1,nonsense", "\"nonsense\" is not one of"),
            ("slot=0", "1 to 31"),
            ("model=x", "l, l2 or ku"),
            ("refuse=1", "takes no value"),
            ("lose", "takes a number"),
        ] {
            let text = bad.parse::<Options>().unwrap_err();
            assert!(text.contains(part), "{bad}: {text}");
        }
    }
}
