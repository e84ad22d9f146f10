//! Links over time: samples of what functions, links and slots are like, and the changes between them.
//!
//! [`Links`] gives samples, and what the kernel told in between: [`LiveLinks`] reads this machine, [`Script`] plays one. [`Tracker`] compares each sample with the
//! one before and says what changed and why. Nothing here wakes a device, and but for [`Links::clear_lbms`] nothing writes a register.

mod cause;
mod events;
mod exposure;
mod files;
mod machine;
pub mod proof;
mod script;
mod tracker;
mod uevents;
mod words;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use pciescope_core::{Bdf, Function};

pub use events::{KernelEvent, Told, What};
pub use exposure::Exposure;
pub use files::Opener;
pub use machine::LiveLinks;
pub use script::{Script, ScriptEvent};
pub use tracker::{Former, Seen, Total, Tracker};

/// What a watch looks at: this machine, or a script.
pub trait Links {
    /// How everything is now. `planned_ns` is the moment that was planned for it, in nanoseconds since the first sample: a
    /// script shows that one.
    fn sample(&mut self, planned_ns: u64) -> Sample;

    /// Becomes readable when the kernel tells of something before the next sample is due.
    fn ready(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Why the kernel does not tell of links by itself, although it is new enough (7.0).
    fn without_events(&self) -> Option<String> {
        None
    }

    /// Clears Link Bandwidth Management Status of the ports at which the last sample showed it. Gives the ports that do not
    /// show it any more.
    fn clear_lbms(&mut self) -> Vec<Bdf> {
        Vec::new()
    }

    /// How long a time under watch takes in reality, in nanoseconds.
    fn real_ns(&self, ns: u64) -> u64 {
        ns
    }
}

/// When a sample was taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment {
    /// CLOCK_MONOTONIC, in nanoseconds: it stands still while the machine sleeps.
    pub monotonic_ns: u64,
    /// CLOCK_BOOTTIME, in nanoseconds: it goes on.
    pub boot_ns: u64,
}

/// How everything is at a moment.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// When.
    pub at: Moment,
    /// The functions, by address.
    pub functions: BTreeMap<Bdf, End>,
    /// Functions of which the kernel's log said since the last sample that it holds their link at 2.5 GT/s. `None` where
    /// the log cannot be read.
    pub held: Option<Vec<Bdf>>,
    /// What the kernel told since the last sample.
    pub told: Told,
    /// How many times a dword of configuration space was read for it.
    pub reads: u64,
    /// Whether it was read twice, as the kernel told of a change meanwhile.
    pub is_again: bool,
}

/// A function at a moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct End {
    /// What does not change as long as it is there.
    pub fixed: Arc<Fixed>,
    /// The bound driver.
    pub driver: Option<String>,
    /// The power state as sysfs shows it, such as `D0`.
    pub power: Option<String>,
    /// Whether it sleeps, or a bridge above it: then no register was read.
    pub is_asleep: bool,
    /// Errors that it reported: correctable, nonfatal, fatal; `None` where the kernel keeps no account.
    pub errors: Option<[u64; 3]>,
    /// Of the correctable ones those that come from wrong bits: [`BIT_ERRORS`].
    pub bit_errors: Option<[u64; 3]>,
    /// Link Control in the lower half, Link Status in the upper one (7.5.3.7, 7.5.3.8).
    pub link: Option<u32>,
    /// Slot Control and Slot Status (7.5.3.10, 7.5.3.11) of a port with a slot.
    pub slot: Option<u32>,
    /// Link Control 2 (7.5.3.19).
    pub link_2: Option<u16>,
    /// DPC Status (7.9.14.4).
    pub containment: Option<u16>,
    /// Speed in GT/s and lanes as sysfs shows them, where registers cannot be read.
    pub shown: Option<(f64, u8)>,
}

/// The errors that a wrong bit makes (PCIe 6.0, 7.8.4.5), by the kernel's names: at the receiver, in the CRC of a TLP, and in
/// that of a DLLP.
pub const BIT_ERRORS: [&str; 3] = ["RxErr", "BadTLP", "BadDLLP"];

/// What does not change of a function as long as it is there. Two are equal if they are of one function.
#[derive(Debug, Clone, Default)]
pub struct Fixed {
    /// Another function at the same address has another number here.
    pub inode: u64,
    /// Address, class, name and the names of its devices; no registers.
    pub function: Function,
    /// Whether its link leads down: a root port, or a downstream port of a switch.
    pub leads_down: bool,
    /// Whether it has a link at all. That of a function below a port that is seen belongs to the port.
    pub has_link: bool,
    /// Highest speed in GT/s and most lanes; `None` where they cannot be read.
    pub most: Option<(f64, u8)>,
    /// Whether the port says that its data link layer is up (Link Capabilities, bit 20) and may be believed.
    pub reports_active: bool,
    /// Whether the kernel clears Link Bandwidth Management Status itself (its port service of bandwidth control).
    pub is_cleared: bool,
}

impl PartialEq for Fixed {
    fn eq(&self, other: &Fixed) -> bool {
        self.inode == other.inode
    }
}

/// A refusal, and what to do about it.
pub type Refused = (String, String);

impl Fixed {
    /// The function's address.
    ///
    /// # Panics
    /// Never for what [`LiveLinks`] and [`Script`] make: they give each its address.
    pub fn bdf(&self) -> Bdf {
        self.function.bdf.expect("a watched function has its address")
    }
}

/// Bits of Link Control, Link Status and Slot Status, in the dwords of [`End`].
pub(crate) mod bits {
    pub const ASPM: u32 = 0b11;
    pub const DISABLED: u32 = 1 << 4;
    /// Both interrupts that tell of a bandwidth notification.
    pub const NOTIFIES: u32 = 0b11 << 10;
    pub const TRAINING: u32 = 1 << (16 + 11);
    pub const ACTIVE: u32 = 1 << (16 + 13);
    /// Link Bandwidth Management Status, and Link Autonomous Bandwidth Status.
    pub const MANAGED: u32 = 1 << (16 + 14);
    pub const AUTONOMOUS: u32 = 1 << (16 + 15);
    pub const ATTENTION: u32 = 0b11 << 6;
    pub const POWER_OFF: u32 = 1 << 10;
    pub const CARD: u32 = 1 << (16 + 6);
    /// The trigger of downstream port containment.
    pub const TRIGGERED: u16 = 1;
}
