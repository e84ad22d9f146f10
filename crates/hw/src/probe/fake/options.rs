//! What `--backend fake:...` can be told.

use std::str::FromStr;

use crate::Error;
use crate::synthetic::key::KeyValue;

/// The synthetic machine and its faults. Every field has its key in [`KEYS`]; 0 means off unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Seed of all values.
    pub seed: u64,
    /// The machine's name, if there are several synthetic machines. Each has its own values, and only the faults that
    /// options ask for.
    pub host: Option<String>,
    /// CPUs of the machine, 1 to 4096; two threads share a core from 4 CPUs up.
    pub cpus: u32,
    /// NUMA nodes, 1 to 64; the device stands at node 0.
    pub nodes: u32,
    /// MSI-X vectors of the device, 0 to 2048.
    pub vectors: u16,
    /// Functions from the root port to the device, 1 to 8.
    pub hops: u16,
    /// Added to every access, in nanoseconds.
    pub delay_ns: u64,
    /// Added between an interrupt's trigger and its message, in nanoseconds.
    pub irq_delay_ns: u64,
    /// Step of the clock in picoseconds; 385 (a 2.6 GHz counter) by default.
    pub quantum_ps: u64,
    /// After this number of reads every read is all-ones.
    pub ones_after: u64,
    /// After this number of samples the device is gone.
    pub remove_after: u64,
    /// After this number of samples the driver is unbound.
    pub unbind_after: u64,
    /// Every nth interrupt is not sent.
    pub lose: u64,
    /// Every nth interrupt is sent twice.
    pub double: u64,
    /// Every nth interrupt lands on another CPU.
    pub wrong_cpu: u64,
    /// This CPU is offline.
    pub offline: Option<u32>,
    /// This CPU (besides node distance) is slower by 2 us.
    pub outlier: Option<u32>,
    /// So many raw samples are overwritten before they are read.
    pub raw_lost: u64,
    /// Real time that a sample takes, in nanoseconds.
    pub slow_ns: u64,
    /// After this number of samples the device never answers again; 0 is never.
    pub hang_after: u64,
    /// After this number of samples the program is killed; 0 is never.
    pub die_after: u64,
    /// A link is slower than both of its ends can do.
    pub downtrained: bool,
    /// A link repairs errors all the time.
    pub replays: bool,
    /// Opening is refused.
    pub refuse: bool,
    /// The function is reported as an emulated one.
    pub emulated: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seed: 1,
            host: None,
            cpus: 8,
            nodes: 2,
            vectors: 8,
            hops: 4,
            delay_ns: 0,
            irq_delay_ns: 0,
            quantum_ps: 385,
            ones_after: 0,
            remove_after: 0,
            unbind_after: 0,
            lose: 0,
            double: 0,
            wrong_cpu: 0,
            offline: None,
            outlier: None,
            raw_lost: 0,
            slow_ns: 0,
            hang_after: 0,
            die_after: 0,
            downtrained: false,
            replays: false,
            refuse: false,
            emulated: false,
        }
    }
}

/// The keys with what they do, for help texts.
pub const KEYS: [(&str, &str); 25] = [
    ("seed=N", "another set of values"),
    ("host=NAME", "this machine of many, without fault"),
    ("cpus=N", "CPUs of the machine (8)"),
    ("nodes=N", "NUMA nodes (2)"),
    ("vectors=N", "MSI-X vectors (8)"),
    ("hops=N", "functions from the root port to the device (4)"),
    ("delay=T", "added to every access"),
    ("irq-delay=T", "added between trigger and message"),
    ("quantum=T", "step of the clock (385ps)"),
    ("ones-after=N", "all-ones after N reads"),
    ("remove-after=N", "the device is gone after N samples"),
    ("unbind-after=N", "the driver is unbound after N samples"),
    ("lose=N", "every Nth interrupt is lost"),
    ("double=N", "every Nth interrupt comes twice"),
    ("wrong-cpu=N", "every Nth interrupt lands on another CPU"),
    ("offline=CPU", "this CPU is offline"),
    ("outlier=CPU", "this CPU is slower by 2 us"),
    ("raw-lost=N", "N raw samples are overwritten"),
    ("slow[=T]", "a sample takes this real time (1ms)"),
    ("hang-after=N", "no answer after N samples"),
    ("die-after=N", "the program is killed after N samples"),
    ("downtrained", "a link is slower than it can be"),
    ("replays", "a link repairs errors"),
    ("refuse", "opening is refused"),
    ("emulated", "the device is labelled emulated"),
];

impl FromStr for Options {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut o = Options::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            o.set(part).map_err(|why| Error::Backend { text: format!("fake:{text}"), why })?;
        }
        if o.nodes > o.cpus {
            let why = format!("{} nodes need at least as many CPUs, not {}", o.nodes, o.cpus);
            return Err(Error::Backend { text: format!("fake:{text}"), why });
        }
        Ok(o)
    }
}

impl Options {
    fn set(&mut self, part: &str) -> Result<(), String> {
        let part = KeyValue::of(part);
        match part.key {
            "seed" => self.seed = part.number(0, u64::MAX)?,
            "host" => self.host = Some(part.word("a name")?.to_owned()),
            "cpus" => self.cpus = part.number(1, 4096)? as u32,
            "nodes" => self.nodes = part.number(1, 64)? as u32,
            "vectors" => self.vectors = part.number(0, 2048)? as u16,
            "hops" => self.hops = part.number(1, 8)? as u16,
            "delay" => self.delay_ns = part.ps()? / 1000,
            "irq-delay" => self.irq_delay_ns = part.ps()? / 1000,
            "quantum" => self.quantum_ps = part.ps()?.max(1),
            "ones-after" => self.ones_after = part.count()?,
            "remove-after" => self.remove_after = part.count()?,
            "unbind-after" => self.unbind_after = part.count()?,
            "lose" => self.lose = part.count()?,
            "double" => self.double = part.count()?,
            "wrong-cpu" => self.wrong_cpu = part.count()?,
            "offline" => self.offline = Some(part.number(0, 8191)? as u32),
            "outlier" => self.outlier = Some(part.number(0, 8191)? as u32),
            "raw-lost" => self.raw_lost = part.count()?,
            "slow" => self.slow_ns = if part.value.is_some() { part.ps()? / 1000 } else { 1_000_000 },
            "hang-after" => self.hang_after = part.count()?,
            "die-after" => self.die_after = part.count()?,
            "downtrained" => self.downtrained = part.flag()?,
            "replays" => self.replays = part.flag()?,
            "refuse" => self.refuse = part.flag()?,
            "emulated" => self.emulated = part.flag()?,
            _ => part.unknown(&KEYS)?,
        }
        Ok(())
    }

    /// A number that makes the values of this machine different from those of other machines: 0 for the one without a
    /// name.
    pub fn salt(&self) -> u64 {
        self.host.as_deref().map_or(0, hash)
    }
}

/// FNV-1a: the same in every build, unlike the standard library's hashes.
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_changes_something_of_its_own() {
        let (mut text, mut seen) = (Vec::new(), Vec::new());
        for (key, _) in KEYS {
            let one = match key.split_once('=') {
                Some((name, "T")) => format!("{name}=3us"),
                Some((name, _)) if name.ends_with("slow[") => "slow".to_owned(),
                Some((name, _)) => format!("{name}=3"),
                None => key.to_owned(),
            };
            let options: Options = one.parse().unwrap();
            assert_ne!(options, Options::default(), "{one} changed nothing");
            assert!(!seen.contains(&options), "{one} changes what another does");
            seen.push(options);
            text.push(one);
        }
        let all: Options = text.join(",").parse().unwrap();
        assert_eq!((all.delay_ns, all.quantum_ps, all.slow_ns), (3_000, 3_000_000, 1_000_000));
    }

    #[test]
    fn says_which_option_is_wrong() {
        for (bad, part) in [
            ("seed=1,nonsense", "\"nonsense\" is not one of"),
            ("cpus=0", "1 to 4096"),
            ("cpus=2,nodes=3", "3 nodes"),
            ("lose=0", "lose"),
            ("delay=5parsec", "whole number"),
            ("delay=us", "whole number"),
            ("delay=2000000000s", "an hour"),
            ("refuse=1", "takes no value"),
            ("lose", "takes a number"),
            ("host=", "takes a name"),
        ] {
            let text = bad.parse::<Options>().unwrap_err().to_string();
            assert!(text.contains(part), "{bad}: {text}");
        }
    }
}
