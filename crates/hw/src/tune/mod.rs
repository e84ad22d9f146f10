//! The knobs of a device and its machine: what each is set to, what it may be set to, and how it is put back.
//!
//! A knob is a row of the table in [`table`]: a function finds it on a machine, and says why it is not changed. [`place`]
//! reads and writes it (`ethtool` what drivers of interfaces set), [`restore`] has what is on disk before a change,
//! [`session`] changes and puts back.

mod ethtool;
pub mod fake;
mod place;
pub mod restore;
mod session;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pciescope_core::tune::{Knob, Setting};
use pciescope_core::{Bdf, CpuList, Function};

use self::place::{AND, SettingPlace, hex};
pub use self::session::TuneSession;
pub use self::table::{knobs, names};
use crate::inventory::{CORRECTABLE, FATAL, NONFATAL, error_counts};
use crate::{Root, pci};

/// How a value stands in its place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Coding {
    /// Bytes, as 128 times two to the power of the field whose lowest bit this is.
    Size(u16),
    /// `on` or `off`, as these bits.
    Bits(u16),
    /// `on` or `off`, as 1 or 0.
    Digit,
    /// As it is typed.
    #[default]
    Text,
}

/// Which values a knob takes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Domain {
    /// One of these.
    OneOf(Vec<String>),
    /// A list of some of these CPUs.
    Cpus(CpuList),
    /// A number within these bounds.
    Within(u64, u64),
}

impl Default for Domain {
    fn default() -> Self {
        Domain::OneOf(Vec::new())
    }
}

/// A knob that was found on this machine.
#[derive(Debug, Clone, Default)]
pub struct FoundKnob {
    /// What is said of it.
    pub knob: Knob,
    /// The values that `--try all` sets against the present one.
    pub tries: Vec<String>,
    /// Whether it disturbs the device, so that only who names it tries it.
    pub is_by_name: bool,
    places: Vec<SettingPlace>,
    /// What changes along with it, and is put back after it.
    along: Vec<SettingPlace>,
    coding: Coding,
    domain: Domain,
    /// With VALUE and RAW in the place of the value.
    permanent: String,
}

impl FoundKnob {
    /// Why it is not changed: never, or not without `shared`. `None` where it may be.
    pub fn refusal(&self, shared: bool) -> Option<String> {
        let knob = &self.knob;
        knob.refused.clone().or_else(|| {
            let what = knob.shared.as_ref().filter(|_| !shared)?;
            Some(format!("it also changes {what}: --shared allows that"))
        })
    }

    /// Why a value is refused; `None` where it is one of the knob's.
    pub fn refuses(&self, value: &str) -> Option<String> {
        let is_in = match &self.domain {
            Domain::OneOf(all) => all.iter().any(|one| one == value),
            Domain::Cpus(all) => {
                value.parse::<CpuList>().is_ok_and(|cpus| !cpus.is_empty() && cpus.minus(all).is_empty())
            }
            Domain::Within(low, high) => value.parse().is_ok_and(|number: u64| (*low..=*high).contains(&number)),
        };
        (!is_in).then(|| format!("{value} is none of its values: {}", self.knob.range))
    }

    /// What a setting of it is.
    pub fn setting(&self, value: &str) -> Setting {
        Setting {
            knob: self.knob.name.clone(),
            value: value.to_owned(),
            present: self.knob.value.clone().unwrap_or_default(),
            permanent: self.permanent.replace("VALUE", value).replace("RAW", self.raw(value).trim_start_matches("0x")),
        }
    }

    fn raw(&self, value: &str) -> String {
        match self.coding {
            Coding::Size(lowest) => {
                let code = value.parse::<u16>().map_or(0, |bytes| bytes.max(128).ilog2() as u16 - 7);
                hex(code * lowest)
            }
            Coding::Bits(bits) => hex(if value == "on" { bits } else { 0 }),
            Coding::Digit => if value == "on" { "1" } else { "0" }.to_owned(),
            Coding::Text => value.to_owned(),
        }
    }

    /// A value from how it stands in its place.
    fn value(&self, raw: &str) -> String {
        if raw.contains(AND) {
            return raw.split(AND).map(|one| self.value(one)).collect::<Vec<_>>().join(AND);
        }
        let bits = || u16::from_str_radix(raw.trim_start_matches("0x"), 16).unwrap_or_default();
        let is_on = match self.coding {
            Coding::Size(lowest) => return (128u32 << (bits() / lowest)).to_string(),
            Coding::Bits(_) => bits() != 0,
            Coding::Digit => raw == "1",
            Coding::Text => return raw.to_owned(),
        };
        if is_on { "on" } else { "off" }.to_owned()
    }
}

/// Where errors are counted that tell that a setting does harm: at the function and all ports above it, and by its drivers.
#[derive(Debug, Clone, Default)]
pub struct ErrorPlaces {
    functions: Vec<Bdf>,
    /// Names for readers, and the files.
    files: Vec<(String, PathBuf)>,
}

/// What drivers count of each network interface and of each port of RDMA: files of numbers, below the function's folder of such.
/// Of an interface the two hold all others but what found no room (Documentation/networking/statistics.rst).
const COUNTED: [(&str, &str, &[&str]); 2] = [
    ("/sys/class/net", "statistics", &["rx_errors", "tx_errors"]),
    ("/sys/class/infiniband", "ports/1/counters", &["symbol_error", "port_rcv_errors", "local_link_integrity_errors"]),
];

impl ErrorPlaces {
    /// Those of a function.
    pub fn of(root: &Root, function: &Function) -> ErrorPlaces {
        let functions: Vec<Bdf> = function.path.iter().copied().chain(function.bdf).collect();
        let mut files = Vec::new();
        for (class, folder, names) in COUNTED {
            for device in root.names(class) {
                if pci::way(root, Path::new(class).join(&device)).last() == function.bdf.as_ref() {
                    let file = |name: &&str| {
                        (format!("{device} {name}"), Path::new(class).join(&device).join(folder).join(name))
                    };
                    files.extend(names.iter().map(file));
                }
            }
        }
        ErrorPlaces { functions, files }
    }

    /// All counts that are not 0, by place and name; AER's have the kernel's names, such as `BadTLP` or, of replays, `Rollover`.
    pub fn counts(&self, root: &Root) -> BTreeMap<String, u64> {
        let mut all: BTreeMap<String, u64> =
            self.files.iter().filter_map(|(name, file)| Some((name.clone(), root.number(file)?))).collect();
        for bdf in &self.functions {
            let counts = [CORRECTABLE, NONFATAL, FATAL].into_iter().filter_map(|file| error_counts(root, *bdf, file));
            counts.flatten().for_each(|(name, count)| *all.entry(format!("{bdf} {name}")).or_default() += count);
        }
        all
    }
}
