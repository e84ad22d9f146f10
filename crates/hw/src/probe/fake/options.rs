//! What `--backend fake:...` can be told.

use std::str::FromStr;

use crate::Error;
use crate::synthetic::key::options;

options! {
    /// The synthetic machine and its faults. Every field has its key in [`KEYS`]; 0 means off unless said otherwise.
    struct Options {
        /// Seed of all values.
        seed: u64 = 1, "seed=N" "another set of values" |part| part.number(0, u64::MAX)?;
        /// The machine's name, if there are several synthetic machines. Each has its own values, and only the faults that
        /// options ask for.
        host: Option<String> = None, "host=NAME" "this machine of many, without fault"
            |part| Some(part.word("a name")?.to_owned());
        /// CPUs of the machine, 1 to 4096; two threads share a core from 4 CPUs up.
        cpus: u32 = 8, "cpus=N" "CPUs of the machine (8)" |part| part.number(1, 4096)? as u32;
        /// NUMA nodes, 1 to 64; the device stands at node 0.
        nodes: u32 = 2, "nodes=N" "NUMA nodes (2)" |part| part.number(1, 64)? as u32;
        /// MSI-X vectors of the device, 0 to 2048.
        vectors: u16 = 8, "vectors=N" "MSI-X vectors (8)" |part| part.number(0, 2048)? as u16;
        /// Functions from the root port to the device, 1 to 8.
        hops: u16 = 4, "hops=N" "functions from the root port to the device (4)" |part| part.number(1, 8)? as u16;
        /// Added to every access, in nanoseconds.
        delay_ns: u64 = 0, "delay=T" "added to every access" |part| part.ps()? / 1000;
        /// Added between an interrupt's trigger and its message, in nanoseconds.
        irq_delay_ns: u64 = 0, "irq-delay=T" "added between trigger and message" |part| part.ps()? / 1000;
        /// Step of the clock in picoseconds; 385 (a 2.6 GHz counter) by default.
        quantum_ps: u64 = 385, "quantum=T" "step of the clock (385ps)" |part| part.ps()?.max(1);
        /// After this number of reads every read is all-ones.
        ones_after: u64 = 0, "ones-after=N" "all-ones after N reads" |part| part.count()?;
        /// After this number of samples the device is gone.
        remove_after: u64 = 0, "remove-after=N" "the device is gone after N samples" |part| part.count()?;
        /// After this number of samples the driver is unbound.
        unbind_after: u64 = 0, "unbind-after=N" "the driver is unbound after N samples" |part| part.count()?;
        /// Every nth interrupt is not sent.
        lose: u64 = 0, "lose=N" "every Nth interrupt is lost" |part| part.count()?;
        /// Every nth interrupt is sent twice.
        double: u64 = 0, "double=N" "every Nth interrupt comes twice" |part| part.count()?;
        /// Every nth interrupt lands on another CPU.
        wrong_cpu: u64 = 0, "wrong-cpu=N" "every Nth interrupt lands on another CPU" |part| part.count()?;
        /// This CPU is offline.
        offline: Option<u32> = None, "offline=CPU" "this CPU is offline" |part| Some(part.number(0, 8191)? as u32);
        /// This CPU (besides node distance) is slower by 2 us.
        outlier: Option<u32> = None, "outlier=CPU" "this CPU is slower by 2 us" |part| Some(part.number(0, 8191)? as u32);
        /// So many raw samples are overwritten before they are read.
        raw_lost: u64 = 0, "raw-lost=N" "N raw samples are overwritten" |part| part.count()?;
        /// Real time that a sample takes, in nanoseconds.
        slow_ns: u64 = 0, "slow[=T]" "a sample takes this real time (1ms)"
            |part| if part.value.is_some() { part.ps()? / 1000 } else { 1_000_000 };
        /// After this number of samples the device never answers again; 0 is never.
        hang_after: u64 = 0, "hang-after=N" "no answer after N samples" |part| part.count()?;
        /// After this number of samples the program is killed; 0 is never.
        die_after: u64 = 0, "die-after=N" "the program is killed after N samples" |part| part.count()?;
        /// A link is slower than both of its ends can do.
        downtrained: bool = false, "downtrained" "a link is slower than it can be" |part| part.flag()?;
        /// A link repairs errors all the time.
        replays: bool = false, "replays" "a link repairs errors" |part| part.flag()?;
        /// Opening is refused.
        refuse: bool = false, "refuse" "opening is refused" |part| part.flag()?;
        /// The function is reported as an emulated one.
        emulated: bool = false, "emulated" "the device is labelled emulated" |part| part.flag()?;
    }
}

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
