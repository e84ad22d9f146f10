//! Whether errors of a link are seen: by what the registers of its ends allow, and by making some and looking.
//! docs/soak.md, "The proof".

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pciescope_core::Bdf;
use pciescope_core::soak::Detector;

use super::{BIT_ERRORS, Refused};
use crate::bind::in_use::{in_use, in_words};
use crate::config::Config;
use crate::express::{self, EXT_AER, EXT_VENDOR, Express};
use crate::inventory::CORRECTABLE;
use crate::{Root, pci};

/// So many errors are made towards each end.
pub const ROUNDS: u64 = 8;
/// The longest time until an error has to be seen: its interrupt, and the kernel that reads the status.
const SEEN_WITHIN: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_millis(5);

/// Errors of bits in AER's Correctable Error Status and Mask (7.8.4.5): receiver error, bad TLP, bad DLLP.
const OF_BITS: u32 = 1 | 1 << 6 | 1 << 7;
const BAD_TLP: u32 = 1 << 6;

/// What the proof came to.
#[derive(Debug, Clone)]
pub struct Proof {
    /// What it says of the counters.
    pub detector: Detector,
    /// How it was tried, and what was seen.
    pub words: String,
}

/// Why errors of an end are not seen; `None` where registers and kernel let them through.
pub fn blind(root: &Root, bdf: Bdf) -> Option<String> {
    if !root.exists(pci::folder(bdf).join(CORRECTABLE)) {
        return Some("the kernel does not count its errors: no AER, or the firmware keeps it".to_owned());
    }
    let config = Config::load(root, bdf);
    let (Some(express), Some(aer)) = (Express::of(&config), express::extended(&config, EXT_AER)) else {
        return Some(config.limit().unwrap_or_else(|| "it has no AER".to_owned()));
    };
    let masked = config.long(aer + 0x14).unwrap_or(u32::MAX) & OF_BITS;
    let top = pci::path(root, bdf).first().copied().unwrap_or(bdf);
    let of_root = Config::load(root, top);
    let command = express::extended(&of_root, EXT_AER).and_then(|at| of_root.long(at + 0x2c)).unwrap_or(0);
    if express.device_control() & 1 == 0 {
        Some("it reports no correctable errors (Device Control, bit 0)".to_owned())
    } else if masked != 0 {
        Some(format!("errors of bits are masked (Correctable Error Mask {masked:#x})"))
    } else if command & 1 == 0 {
        Some(format!("{top} raises no interrupt for correctable errors (Root Error Command, bit 0)"))
    } else {
        None
    }
}

/// Makes errors towards each end, one at a time, and looks whether each is counted. `below` are all functions
/// below the port, the next one first.
/// Only correctable errors are made; what was written is put back.
///
/// # Errors
/// Why none can be made, and what to do about it. When `is_stopped` ended it.
pub fn prove(
    root: &Root,
    port: Bdf,
    below: &[Bdf],
    ends: &[Bdf],
    is_stopped: &dyn Fn() -> bool,
) -> Result<Proof, Refused> {
    let Maker { make, detector, how, hint } = match block(&Config::load(root, port)) {
        Some(at) => Block::open(root, port, at as u64, below)?.maker(),
        None => told(root)?,
    };
    for bdf in ends {
        for round in 1..=ROUNDS {
            let before = count(root, *bdf);
            make(*bdf).map_err(|err| (format!("cannot make an error at {bdf}: {err}"), hint.to_owned()))?;
            let end = Instant::now() + SEEN_WITHIN;
            while count(root, *bdf) == before {
                if is_stopped() {
                    return Err(("stopped before the counters were proven".to_owned(), String::new()));
                }
                if Instant::now() >= end {
                    let words = format!("{bdf} did not count error {round} of {ROUNDS} {how}");
                    return Ok(Proof { detector: Detector::Blind, words });
                }
                std::thread::sleep(TICK);
            }
        }
    }
    Ok(Proof { detector, words: format!("{} errors {how}, each was counted", ROUNDS * ends.len() as u64) })
}

fn count(root: &Root, bdf: Bdf) -> u64 {
    let text = root.text(pci::folder(bdf).join(CORRECTABLE)).unwrap_or_default();
    let own = text.lines().filter(|line| BIT_ERRORS.iter().any(|name| line.starts_with(name)));
    own.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

/// What makes an error that an end has to count; what it proves, how in words, and what to look at where it fails.
struct Maker {
    make: Box<dyn Fn(Bdf) -> io::Result<()>>,
    detector: Detector,
    how: &'static str,
    hint: &'static str,
}

/// The block RAS D.E.S. of a port (docs/spec/rasdes.md, "Error injection").
struct Block {
    port: Bdf,
    file: File,
    at: u64,
    below: Option<PathBuf>,
}

/// EINJ_ENABLE and EINJ0, from the block on.
const EINJ_ENABLE: u64 = 0x30;
const EINJ0: u64 = 0x34;
/// Types of EINJ0: a wrong LCRC in a TLP that is received, and in one that is sent; and one error.
const WRONG_RECEIVED: u32 = 8 << 8 | 1;
const WRONG_SENT: u32 = 1;

/// What forbids to write registers.
pub(super) const WRITES: &str = "run it as root; lockdown (Secure Boot) forbids to write registers";

impl Block {
    fn open(root: &Root, port: Bdf, at: u64, below: &[Bdf]) -> Result<Block, Refused> {
        let functions = below.iter().filter_map(|bdf| Some((*bdf, pci::function(root, *bdf).ok()?)));
        for (bdf, function) in functions.filter(|(_, function)| !pci::is_bridge(function.class)) {
            let uses = in_use(root, &function);
            if !uses.is_empty() {
                let why = format!("{bdf} is in use ({}): errors on its link would disturb it", in_words(&uses));
                return Err((why, format!("stop what uses it, or `pciescope bind {bdf}`, or go without --prove")));
            }
        }
        let config = |bdf| root.path(pci::folder(bdf).join("config"));
        let below = below.first().copied().map(config);
        let block = File::options().read(true).write(true).open(config(port)).and_then(|file| {
            let block = Block { port, file, at, below };
            // What a killed run may have left on.
            block.write(EINJ_ENABLE, 0).map(|()| block)
        });
        block.map_err(|err| (format!("cannot write registers of {port}: {err}"), WRITES.to_owned()))
    }
    fn read(&self, offset: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, self.at + offset)?;
        Ok(u32::from_le_bytes(bytes))
    }
    fn write(&self, offset: u64, value: u32) -> io::Result<()> {
        self.file.write_all_at(&value.to_le_bytes(), self.at + offset)
    }
    fn make(&self, end: Bdf) -> io::Result<()> {
        self.write(EINJ0, if end == self.port { WRONG_RECEIVED } else { WRONG_SENT })?;
        self.write(EINJ_ENABLE, 1)?;
        // A TLP for it to go into: a read of the Vendor ID, and its completion.
        if let Some(below) = &self.below {
            File::open(below)?.read_exact_at(&mut [0; 4], 0)?;
        }
        Ok(())
    }
    fn maker(self) -> Maker {
        let how = "made on the link by RAS D.E.S.";
        Maker { make: Box::new(move |end| self.make(end)), detector: Detector::Proven, how, hint: WRITES }
    }
}

impl Drop for Block {
    /// Nothing is left switched on. A count runs out by itself, so that a killed run leaves one error at most.
    fn drop(&mut self) {
        let put = self.write(EINJ_ENABLE, 0).and_then(|()| self.write(EINJ0, 0));
        let now = put.and_then(|()| self.read(EINJ_ENABLE));
        if !matches!(now, Ok(0)) {
            eprintln!("pciescope: warning: error injection of the port may still be on (EINJ_ENABLE {now:x?})");
        }
    }
}

/// The offset of a block RAS D.E.S.
fn block(config: &Config) -> Option<usize> {
    const VENDORS: [u16; 7] = [0x1ded, 0x1def, 0x17cb, 0x0720, 0x1d87, 0x144d, 0x20fa];
    const ID_AND_REVISION: u32 = 0x0004_0002;
    let mut vendor = express::extended_all(config).filter(|(id, _)| *id == EXT_VENDOR).map(|(_, at)| at);
    let is_known = config.word(0).is_some_and(|vendor| VENDORS.contains(&vendor));
    vendor
        .find(|at| config.long(at + 4).is_some_and(|header| header & 0x000f_ffff == ID_AND_REVISION))
        .filter(|_| is_known)
}

/// The kernel's own injection: it shows the status to its AER driver as if a function had set it.
fn told(root: &Root) -> Result<Maker, Refused> {
    let file = File::options().write(true).open(root.path("/dev/aer_inject")).map_err(|err| {
        let why = format!("no error can be made: the port has no RAS D.E.S., and /dev/aer_inject: {err}");
        (why, "`modprobe aer_inject`, a module of the kernel, proves the path from the kernel on".to_owned())
    })?;
    let make = move |bdf: Bdf| {
        // struct aer_error_inj (drivers/pci/pcie/aer_inject.c): bus, device, function; status; header log; domain.
        let mut told = [0; 32];
        told[..3].copy_from_slice(&[bdf.bus, bdf.device, bdf.function]);
        told[8..12].copy_from_slice(&BAD_TLP.to_ne_bytes());
        told[28..].copy_from_slice(&bdf.domain.to_ne_bytes());
        io::Write::write_all(&mut &file, &told)
    };
    let hint = "the root port needs the kernel's AER service: /sys/bus/pci_express/drivers/aer";
    Ok(Maker { make: Box::new(make), detector: Detector::PathProven, how: "told to the kernel by aer_inject", hint })
}
