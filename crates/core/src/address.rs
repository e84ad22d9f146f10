//! The address of a PCI function.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

/// Domain, bus, device and function of a PCI function; printed as `0000:02:00.0`, as `lspci -D` does.
///
/// The domain has up to 32 bits: Linux numbers the domains behind Intel VMD from 0x10000.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bdf {
    /// PCI domain (segment), 0 on most machines.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number, 0 to 31.
    pub device: u8,
    /// Function number, 0 to 7.
    pub function: u8,
}

impl Bdf {
    /// Device and function in one byte, as the kernel's `devfn`.
    pub fn devfn(self) -> u8 {
        self.device << 3 | self.function
    }
}

impl fmt::Display for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function);
        f.pad(&text)
    }
}

impl FromStr for Bdf {
    type Err = Error;

    /// Parses `DDDD:BB:DD.F` or, with domain 0, `BB:DD.F`.
    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).ok_or_else(|| Error::Bdf { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<Bdf> {
    let (rest, function) = text.rsplit_once('.')?;
    let mut parts = rest.rsplit(':');
    let device = hex(parts.next()?, 2)?;
    let bus = hex(parts.next()?, 2)?;
    let domain = match parts.next() {
        Some(domain) => hex(domain, 8)?,
        None => 0,
    };
    let function = hex(function, 1)?;
    if parts.next().is_some() || device > 31 || function > 7 {
        return None;
    }
    Some(Bdf { domain, bus: bus as u8, device: device as u8, function: function as u8 })
}

/// At most `digits` hexadecimal digits and nothing else (`from_str_radix` alone would take a sign).
fn hex(text: &str, digits: usize) -> Option<u32> {
    if text.is_empty() || text.len() > digits || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(text, 16).ok()
}

impl TryFrom<String> for Bdf {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Bdf> for String {
    fn from(bdf: Bdf) -> Self {
        bdf.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_forms_and_prints_the_long_one() {
        assert_eq!("1a:00.3".parse::<Bdf>().unwrap().to_string(), "0000:1a:00.3");
        assert_eq!("10000:e1:1f.7".parse::<Bdf>().unwrap().to_string(), "10000:e1:1f.7");
        assert_eq!("0000:02:01.0".parse::<Bdf>().unwrap().devfn(), 8);
    }

    #[test]
    fn refuses_everything_else() {
        for bad in [
            "",
            "02:00",
            "02.0",
            "02:20.0",
            "02:00.8",
            "0000:02:00.0.0",
            "x:02:00.0",
            "+2:00.0",
            "0:0:02:00.0",
            " 02:00.0",
        ] {
            assert!(bad.parse::<Bdf>().is_err(), "{bad:?} was taken");
        }
    }
}
