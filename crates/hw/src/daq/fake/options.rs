//! What `fake:digitizer?...` can be told.

use std::str::FromStr;

use crate::synthetic::key::KeyValue;

/// A synthetic board and its faults. Every field has its key in [`KEYS`]; 0 means off unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Which board.
    pub model: Model,
    /// Physical slot.
    pub slot: u8,
    /// Register 0x01.
    pub serial: u32,
    /// Of the samples.
    pub seed: u64,
    /// Bytes of card memory.
    pub memory: u64,
    /// Bytes per second of a DMA; 0: no time.
    pub rate: u64,
    /// Bytes of one DMA.
    pub chunk: u64,
    /// Programming of one DMA, in nanoseconds.
    pub setup_ns: u64,
    /// Triggers per second on the backplane.
    pub trigger_hz: u64,
    /// The acquisition of this number never ends.
    pub hang: u64,
    /// This DMA, counted from 1, does not end in time.
    pub timeout: u64,
    /// This DMA stops before its end.
    pub short: u64,
    /// After this number of DMAs the board is gone.
    pub gone_after: u64,
    /// This DMA brings one wrong byte.
    pub wrong: u64,
    /// Every nth end of an acquisition comes without its interrupt.
    pub lose: u64,
    /// Opening is refused.
    pub refuse: bool,
    /// Another file acquires.
    pub busy: bool,
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

/// The keys with what they do, for help texts.
pub const KEYS: [(&str, &str); 17] = [
    ("model=l|l2|ku", "the board (l2)"),
    ("slot=N", "its slot (6)"),
    ("serial=N", "its serial number (1)"),
    ("seed=N", "of its samples (1)"),
    ("memory=MiB", "card memory (2048)"),
    ("rate=MB/s", "of a DMA (what its link carries; 0: no time)"),
    ("chunk=KiB", "of one DMA (4096)"),
    ("setup=US", "time to program a DMA (2)"),
    ("trigger=HZ", "of the backplane (1000)"),
    ("hang=N", "the Nth acquisition never ends"),
    ("timeout=N", "the Nth DMA does not end in time"),
    ("short=N", "the Nth DMA stops before its end"),
    ("gone-after=N", "the board is gone after N DMAs"),
    ("wrong=N", "the Nth DMA brings a wrong byte"),
    ("lose=N", "every Nth acquisition ends without its interrupt"),
    ("refuse", "opening is refused"),
    ("busy", "another file acquires"),
];

impl Default for Options {
    fn default() -> Self {
        Options {
            model: Model::L2,
            slot: 6,
            serial: 1,
            seed: 1,
            memory: 2 << 30,
            rate: RATE_UNSET,
            chunk: 4 << 20,
            setup_ns: 2_000,
            trigger_hz: 1000,
            hang: 0,
            timeout: 0,
            short: 0,
            gone_after: 0,
            wrong: 0,
            lose: 0,
            refuse: false,
            busy: false,
        }
    }
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

impl Options {
    fn set(&mut self, part: &str) -> Result<(), String> {
        let part = KeyValue::of(part);
        match part.key {
            "model" => {
                self.model = match part.value {
                    Some("l") => Model::L,
                    Some("l2") => Model::L2,
                    Some("ku") => Model::Ku,
                    _ => return part.refuse(": model is l, l2 or ku"),
                }
            }
            "slot" => self.slot = part.number(1, 31)? as u8,
            "serial" => self.serial = part.number(0, 65535)? as u32,
            "seed" => self.seed = part.number(0, u64::MAX)?,
            "memory" => self.memory = part.number(1, 2048)? << 20,
            "rate" => self.rate = part.number(0, 100_000)? * 1_000_000,
            "chunk" => self.chunk = part.number(4, 65536)? << 10,
            "setup" => self.setup_ns = part.number(0, 1_000_000)? * 1000,
            "trigger" => self.trigger_hz = part.number(1, 1_000_000)?,
            "hang" => self.hang = part.count()?,
            "timeout" => self.timeout = part.count()?,
            "short" => self.short = part.count()?,
            "gone-after" => self.gone_after = part.count()?,
            "wrong" => self.wrong = part.count()?,
            "lose" => self.lose = part.count()?,
            "refuse" => self.refuse = part.flag()?,
            "busy" => self.busy = part.flag()?,
            _ => part.unknown(&KEYS)?,
        }
        Ok(())
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
