//! Where a knob is set: bits of a register, or a file of the kernel. A value here is as the machine has it (`raw`).

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pciescope_core::Bdf;
use serde::{Deserialize, Serialize};

use super::ethtool::EthtoolBlock;
use crate::{Error, Root, bind, nodes, pci};

/// A place that holds a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingPlace {
    /// Some bits of a 16-bit register in configuration space.
    Register {
        /// The function.
        bdf: Bdf,
        /// The register's offset.
        at: u16,
        /// Its bits; no other bit is changed.
        mask: u16,
    },
    /// A file of the kernel, by its absolute path.
    File(PathBuf),
    /// The affinity of a vector: a list of CPUs as it was found, and the one of them that it was on. x86 and arm64 send it to one
    /// CPU, and leave it where it is when a new list has that. So, as long as others are tried, as found is that CPU alone.
    Vector {
        /// The file of the list.
        file: PathBuf,
        /// The list.
        list: String,
        /// The CPU.
        cpu: String,
    },
    /// A value that the driver of a network interface has.
    Ethtool {
        /// The interface.
        interface: String,
        /// What it is set with.
        block: EthtoolBlock,
        /// Which word of that.
        word: usize,
    },
    /// Places that hold the same value, written one after the other.
    All(Vec<SettingPlace>),
    /// A place that is written while no driver has these functions.
    WithoutDriver {
        /// The functions.
        functions: Vec<Bdf>,
        /// The place.
        place: Box<SettingPlace>,
    },
    /// The driver of a function, or `none`.
    Driver(Bdf),
    /// The file of PM QoS: a value holds as long as the file is open. Only shown when read.
    Held(PathBuf),
    /// The CPUs of the workload, which are this program's own matter.
    Workload,
}

impl SettingPlace {
    /// The value now: of a register its bits in hexadecimal, of a file its text, and of a choice in brackets the chosen
    /// one.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn read(&self, root: &Root) -> Result<String, Error> {
        match self {
            SettingPlace::Register { bdf, at, mask } => Ok(hex(word(root, *bdf, *at)? & mask)),
            SettingPlace::File(path) => Ok(chosen(root.read(path)?.lines().next().unwrap_or_default()).to_owned()),
            SettingPlace::Vector { file, list, cpu } => {
                let now = SettingPlace::File(file.clone()).read(root)?;
                Ok(if now == *cpu { list.clone() } else { now })
            }
            SettingPlace::Ethtool { interface, block, word } => {
                let words =
                    block.get(root, interface).map_err(|source| Error::Read { path: self.path(root), source })?;
                Ok(words[*word].to_string())
            }
            SettingPlace::All(places) => {
                let mut all = places.iter().map(|place| place.read(root)).collect::<Result<Vec<_>, Error>>()?;
                all.dedup();
                Ok(all.join(AND))
            }
            SettingPlace::WithoutDriver { place, .. } => place.read(root),
            SettingPlace::Driver(bdf) => Ok(pci::driver(root, *bdf).unwrap_or_else(|| NO_DRIVER.to_owned())),
            SettingPlace::Held(path) => {
                let path = root.path(path);
                let bytes = std::fs::read(&path).map_err(|source| Error::Read { path, source })?;
                let value = bytes.first_chunk::<4>().map_or(0, |bytes| i32::from_le_bytes(*bytes));
                Ok(if value == DEFAULT_QOS_US { NO_LIMIT.to_owned() } else { value.to_string() })
            }
            SettingPlace::Workload => Ok(String::new()),
        }
    }

    /// Writes a value, and reads it back.
    ///
    /// # Errors
    /// [`Error::Write`], also where the machine took another value; [`Error::Read`].
    pub fn write(&self, root: &Root, raw: &str) -> Result<(), Error> {
        match self {
            SettingPlace::Register { bdf, at, mask } => {
                let path = root.path(pci::folder(*bdf).join("config"));
                let bits = u16::from_str_radix(raw.trim_start_matches("0x"), 16).unwrap_or_default() & mask;
                let now = word(root, *bdf, *at)?;
                let file = OpenOptions::new().write(true).open(&path);
                let put = file.and_then(|file| file.write_all_at(&(now & !mask | bits).to_le_bytes(), u64::from(*at)));
                put.map_err(|source| Error::write(&path, raw, source))?;
            }
            SettingPlace::File(path) => {
                let path = root.path(path);
                let put = OpenOptions::new().write(true).open(&path).and_then(|mut file| {
                    // In one piece, so that a kill leaves the one or the other. Files of a recorded machine keep what was behind.
                    let text = format!("{raw}\n");
                    file.write_all(text.as_bytes())?;
                    if root.is_live() { Ok(()) } else { file.set_len(text.len() as u64) }
                });
                put.map_err(|source| Error::write(&path, raw, source))?;
            }
            SettingPlace::Vector { file, list, cpu } => {
                let is_found = raw == list;
                SettingPlace::File(file.clone()).write(root, if is_found { cpu } else { raw })?;
                // Without interrupt remapping it moves at its next interrupt, and does not where a list comes before that.
                let moved = || root.text(file.with_file_name(EFFECTIVE)).is_none_or(|now| now == *cpu);
                (0..20).take_while(|_| is_found && !moved()).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
                return Ok(());
            }
            SettingPlace::Ethtool { interface, block, word } => {
                let put = block.get(root, interface).and_then(|mut words| {
                    words[*word] = raw.parse().unwrap_or_default();
                    block.set(root, interface, words)
                });
                put.map_err(|source| Error::write(&self.path(root), raw, source))?;
            }
            SettingPlace::All(places) => places.iter().try_for_each(|place| place.write(root, raw))?,
            SettingPlace::WithoutDriver { functions, place } => {
                let drivers = functions.iter().map(|bdf| SettingPlace::Driver(*bdf));
                let drivers =
                    drivers.map(|driver| Ok((driver.read(root)?, driver))).collect::<Result<Vec<_>, Error>>()?;
                let names: Vec<Vec<String>> = functions.iter().map(|bdf| nodes::names(root, *bdf)).collect();
                let off = drivers.iter().try_for_each(|(_, driver)| driver.write(root, NO_DRIVER));
                let put = off.and_then(|()| place.write(root, raw));
                // Whatever came of it, each function gets its driver again.
                let on = drivers.iter().map(|(former, driver)| driver.write(root, former));
                on.fold(put, |all, one| all.and(one))?;
                functions.iter().zip(names).for_each(|(bdf, names)| wait_for_nodes(root, *bdf, |now| *now == names));
            }
            SettingPlace::Driver(_) if self.read(root)? == raw => {}
            SettingPlace::Driver(bdf) => {
                bind::set_driver(root, *bdf, Some(raw).filter(|driver| *driver != NO_DRIVER))?;
            }
            SettingPlace::Held(_) | SettingPlace::Workload => return Ok(()),
        }
        match self.read(root)? {
            now if now == raw => Ok(()),
            now => Err(Error::write(&self.path(root), raw, io::Error::other(format!("it holds {now} afterwards")))),
        }
    }

    /// The file that is written, for errors.
    pub fn path(&self, root: &Root) -> PathBuf {
        match self {
            SettingPlace::Register { bdf, .. } => root.path(pci::folder(*bdf).join("config")),
            SettingPlace::File(path) | SettingPlace::Held(path) | SettingPlace::Vector { file: path, .. } => {
                root.path(path)
            }
            SettingPlace::Ethtool { interface, .. } => root.path(Path::new("/sys/class/net").join(interface)),
            SettingPlace::All(places) => places.last().map(|place| place.path(root)).unwrap_or_default(),
            SettingPlace::WithoutDriver { place, .. } => place.path(root),
            SettingPlace::Driver(bdf) => root.path(pci::folder(*bdf).join("driver")),
            SettingPlace::Workload => PathBuf::new(),
        }
    }

    /// Where a vector has its list.
    pub(super) fn list(&self) -> Option<SettingPlace> {
        if let SettingPlace::Vector { file, .. } = self { Some(SettingPlace::File(file.clone())) } else { None }
    }

    /// Whether it is the machine's own, whichever device is in it.
    pub fn is_of_machine(&self) -> bool {
        const MACHINE: [&str; 3] = ["/sys/devices/system", "/sys/module", "/sys/kernel/mm"];
        matches!(self, SettingPlace::File(path) if MACHINE.iter().any(|folder| path.starts_with(folder)))
    }

    /// Whether this process may write it.
    pub fn is_writable(&self, root: &Root) -> bool {
        let is = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
        match self {
            SettingPlace::Workload => true,
            SettingPlace::All(places) => places.iter().all(|place| place.is_writable(root)),
            SettingPlace::WithoutDriver { place, .. } => place.is_writable(root),
            // CAP_NET_ADMIN.
            SettingPlace::Ethtool { .. } => !root.is_live() || rustix::process::geteuid().is_root(),
            _ => is(&self.path(root)),
        }
    }
}

/// The CPU that a vector is on, beside the file of its list.
pub(super) const EFFECTIVE: &str = "effective_affinity_list";

pub(super) const NO_DRIVER: &str = "none";

/// Between what several places hold that do not agree: while they are written, or for good.
pub(super) const AND: &str = " and ";

/// The disks and interfaces of a function come a moment after its driver.
pub(super) fn wait_for_nodes(root: &Root, bdf: Bdf, is_there: impl Fn(&Vec<String>) -> bool) {
    let begun = Instant::now();
    while !is_there(&nodes::names(root, bdf)) && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What nobody has limited (PM_QOS_CPU_LATENCY_DEFAULT_VALUE), and the word for it.
const DEFAULT_QOS_US: i32 = 2_000_000_000;
pub(super) const NO_LIMIT: &str = "no limit";

/// Bits as they are written down.
pub(super) fn hex(bits: u16) -> String {
    format!("{bits:#06x}")
}

/// Two bytes of configuration space.
fn word(root: &Root, bdf: Bdf, at: u16) -> Result<u16, Error> {
    let path = root.path(pci::folder(bdf).join("config"));
    let mut bytes = [0; 2];
    let read = std::fs::File::open(&path).and_then(|file| file.read_exact_at(&mut bytes, u64::from(at)));
    match (read, u16::from_le_bytes(bytes)) {
        (Err(source), _) => Err(Error::Read { path, source }),
        // Reserved bits of Device Control make no register that is all ones; this is a function that does not answer.
        (Ok(()), 0xffff) => Err(Error::Read { path, source: io::Error::other("it reads all-ones: asleep or gone") }),
        (Ok(()), word) => Ok(word),
    }
}

/// `kyber` of `none [kyber] bfq`; a text without brackets as it is.
fn chosen(text: &str) -> &str {
    text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(text.trim(), |(one, _)| one)
}

/// All choices of such a text.
pub(super) fn choices(text: &str) -> Vec<String> {
    text.split_whitespace().map(|word| word.trim_matches(['[', ']']).to_owned()).collect()
}
