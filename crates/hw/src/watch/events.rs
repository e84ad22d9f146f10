//! What the kernel tells of links by itself: its tracepoints, and its messages about functions that come and go.

use std::io;
use std::os::fd::OwnedFd;

use pciescope_core::Bdf;
use rustix::event::epoll;

use super::{End, bits};
use crate::perf::{Format, Hits, Tracepoints};
use crate::{Root, topology};

/// Each CPU's ring has this many bytes: some hundred hits.
const RING: usize = 16 << 10;
/// More than a record of a ring has, and what stands in it before the hit.
const LONGEST: usize = 256;
const BEFORE: usize = 20;

/// What a tracepoint told.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelEvent {
    /// When, on CLOCK_MONOTONIC, in nanoseconds.
    pub at_ns: u64,
    /// Of which function.
    pub bdf: Bdf,
    /// What.
    pub what: What,
}

/// What a tracepoint can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// `pci:pcie_link_event`: why the kernel looked at the link of a port, and Link Status.
    Link {
        /// The kernel's number of it.
        reason: u32,
        /// Link Status (7.5.3.8).
        status: u16,
    },
    /// `pci:pci_hp_event`: what happened to the slot of a port.
    Slot(u32),
    /// `ras:aer_event`: the function reported an error.
    Error,
}

/// Reasons of `pcie_link_event` (the kernel's enum pcie_link_change_reason).
const REASONS: [&str; 5] =
    ["retrain", "enumeration", "bandwidth notification enabled", "bandwidth interrupt", "hot-plug"];
pub(super) const RETRAIN: u32 = 0;
pub(super) const ENUMERATION: u32 = 1;
pub(super) const INTERRUPT: u32 = 3;
pub(super) const HOT_PLUG: u32 = 4;

/// Events of `pci_hp_event` (the kernel's enum pci_hotplug_event).
const SLOT_EVENTS: [&str; 4] = ["LINK_UP", "LINK_DOWN", "CARD_PRESENT", "CARD_NOT_PRESENT"];

impl KernelEvent {
    /// It in words: `pcie_link_event: bandwidth interrupt`.
    pub(super) fn words(&self) -> String {
        let name =
            |names: &[&str], code: u32| names.get(code as usize).map_or(code.to_string(), |name| name.to_string());
        match self.what {
            What::Link { reason, .. } => format!("pcie_link_event: {}", name(&REASONS, reason)),
            What::Slot(event) => format!("pci_hp_event: {}", name(&SLOT_EVENTS, event)),
            What::Error => "aer_event".to_owned(),
        }
    }

    /// Why the kernel looked at the link.
    pub(super) fn reason(&self) -> Option<u32> {
        match self.what {
            What::Link { reason, .. } => Some(reason),
            What::Slot(0) => Some(HOT_PLUG),
            _ => None,
        }
    }

    /// The port as it was when this happened: as it is now, with the link and the card that the event tells of.
    pub(super) fn shown(&self, before: &End, now: &End) -> End {
        let mut end = End { link: before.link, ..now.clone() };
        let status = |status: u32| now.link.or(before.link).map(|link| link & 0xffff | status << 16);
        match self.what {
            What::Link { status: told, .. } => end.link = status(told.into()),
            What::Slot(0) => end.link = now.link.or(before.link),
            What::Slot(1) => end.link = status(0),
            What::Slot(2) => end.slot = before.slot.map(|slot| slot | bits::CARD),
            What::Slot(3) => end.slot = before.slot.map(|slot| slot & !bits::CARD),
            What::Slot(_) | What::Error => {}
        }
        // While it trains, nothing of it holds.
        end.link = end.link.filter(|link| link & bits::TRAINING == 0).or(before.link);
        end
    }
}

const ERRORS: &str = "ras/aer_event";

/// The tracepoints, each with the fields that are read of it; the first one is a function's address.
const POINTS: [(&str, &[&str]); 3] = [
    ("pci/pcie_link_event", &["port_name", "reason", "cur_bus_speed", "width", "link_status"]),
    ("pci/pci_hp_event", &["port_name", "event"]),
    (ERRORS, &["dev_name"]),
];

/// A tracepoint of this kernel: its place in [`POINTS`], and where its fields are.
type Tracepoint = (usize, Format);

/// What a hit tells; `None` where it cannot be understood.
fn event((place, format): &Tracepoint, at_ns: u64, raw: &[u8]) -> Option<KernelEvent> {
    let word = |field: usize| format.number(raw, field).map(|word| word as u32);
    let bdf = format.text(raw, 0)?.parse().ok()?;
    let what = match place {
        0 => {
            // The kernel counts PCIe speeds from 0x14 (2.5 GT/s).
            let code = word(2)?.checked_sub(0x13).filter(|code| *code < 16).unwrap_or(0);
            let status = word(4)? & !0x3ff | code | (word(3)? & 0x3f) << 4;
            What::Link { reason: word(1)?, status: status as u16 }
        }
        1 => What::Slot(word(1)?),
        _ => What::Error,
    };
    Some(KernelEvent { at_ns, bdf, what })
}

/// What the kernel told since the last sample.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// By time.
    pub events: Vec<KernelEvent>,
    /// How many found no room.
    pub lost: u64,
    /// Whether it would tell of every bandwidth notification of a port.
    pub has_links: bool,
}

impl Told {
    /// Whether an error was among it, or may have been.
    pub(super) fn has_error(&self) -> bool {
        self.lost > 0 || self.events.iter().any(|event| event.what == What::Error)
    }

    /// Adds what was told after it.
    pub(super) fn add(&mut self, later: Told) {
        self.events.extend(later.events);
        self.lost += later.lost;
        self.has_links |= later.has_links;
    }
}

/// The kernel's events.
#[derive(Debug)]
pub(super) struct Events {
    points: Vec<Tracepoint>,
    open: Tracepoints,
    /// Readable when something was told.
    pub ready: OwnedFd,
}

impl Events {
    /// Opens all that this kernel has.
    pub fn open(root: &Root) -> io::Result<Events> {
        let all = POINTS.iter().enumerate();
        let points: Vec<Tracepoint> =
            all.filter_map(|(place, (name, fields))| Some((place, Format::find(root, name, fields)?))).collect();
        if points.is_empty() {
            return Err(io::Error::other("tracefs has none of them"));
        }
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let ids: Vec<u64> = points.iter().map(|(_, format)| format.id).collect();
        let cpus = topology::online(root).map_err(io::Error::other)?;
        let open = Tracepoints::open(&ids, &cpus, RING, Some(&ready)).map_err(|(_, error)| error)?;
        Ok(Events { open, points, ready })
    }

    /// Whether it tells of every error that the kernel counts.
    pub fn has_errors(&self) -> bool {
        self.points.iter().any(|(place, _)| POINTS[*place].0 == ERRORS)
    }

    /// What was told since the last time.
    pub fn take(&mut self) -> Told {
        let Hits { hits, lost } = self.open.take();
        Told { has_links: self.points[0].0 == 0, ..told(&self.points, &hits, lost) }
    }
}

/// The events that these bytes are. What cannot be understood is lost.
fn told(points: &[Tracepoint], hits: &[(u64, Vec<u8>)], lost: u64) -> Told {
    let told = |(at_ns, raw): &(u64, Vec<u8>)| {
        // The number of the tracepoint stands first (common_type).
        let id: u64 = u16::from_ne_bytes(raw.get(..2)?.try_into().ok()?).into();
        event(points.iter().find(|(_, format)| format.id == id)?, *at_ns, raw)
    };
    let events: Vec<KernelEvent> = hits.iter().filter_map(told).collect();
    // A ring tells of a loss only with the next hit: until then so many hits say that one of them may have been full.
    let is_full = hits.iter().map(|(_, raw)| raw.len() + BEFORE).sum::<usize>() + LONGEST > RING;
    Told { lost: lost + (hits.len() - events.len()) as u64 + u64::from(is_full), events, has_links: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of kernel 7.3.4, without the lines behind the fields.
    const LINK: &str = "name: pcie_link_event\nID: 1292\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:__data_loc char[] port_name;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int type;\toffset:12;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int reason;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int cur_bus_speed;\toffset:20;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int max_bus_speed;\toffset:24;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int width;\toffset:28;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int flit_mode;\toffset:32;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int link_status;\toffset:36;\tsize:4;\tsigned:0;\n";
    const SLOT: &str = "name: pci_hp_event\nID: 1293\nformat:\n\
        \tfield:__data_loc char[] port_name;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:__data_loc char[] slot;\toffset:12;\tsize:4;\tsigned:0;\n\
        \tfield:int event;\toffset:16;\tsize:4;\tsigned:1;\n";
    const ERROR: &str = "name: aer_event\nID: 1457\nformat:\n\
        \tfield:__data_loc char[] dev_name;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:u32 status;\toffset:12;\tsize:4;\tsigned:0;\n";

    /// Recorded there while QEMU plugged a card in: CARD_PRESENT, and the link that came up at 2.5 GT/s x1.
    const RECORDED: [&str; 2] = [
        "0d0500014900000014000d002100020002000000303030303a30303a30352e3000300000",
        "0c0500014900000028000d00040000000400000014000000170000000100000000000000002000003030303\
         03a30303a30352e300000000000000000",
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    fn points() -> Vec<Tracepoint> {
        [LINK, SLOT, ERROR]
            .iter()
            .enumerate()
            .map(|(place, text)| (place, Format::parse(text, POINTS[place].1).unwrap()))
            .collect()
    }

    #[test]
    fn recorded_bytes_are_the_events_that_the_kernel_told() {
        let hits: Vec<_> = RECORDED.iter().zip([5, 6]).map(|(hex, at_ns)| (at_ns, bytes(hex))).collect();
        let told = told(&points(), &hits, 0);
        let bdf = "0000:00:05.0".parse().unwrap();
        let card = KernelEvent { at_ns: 5, bdf, what: What::Slot(2) };
        // DLLLA, one lane, 2.5 GT/s.
        let link = KernelEvent { at_ns: 6, bdf, what: What::Link { reason: HOT_PLUG, status: 0x2011 } };
        assert_eq!((told.events, told.lost), (vec![card.clone(), link.clone()], 0));
        assert_eq!(card.words(), "pci_hp_event: CARD_PRESENT");
        assert_eq!(link.words(), "pcie_link_event: hot-plug");
    }

    #[test]
    fn what_cannot_be_understood_is_counted_as_lost() {
        let good = bytes(RECORDED[0]);
        let cut = good[..20].to_vec();
        let mut strange = good.clone();
        strange[0] = 0x0e;
        let mut nowhere = good.clone();
        nowhere[24] = b'x';
        let hits = [cut, strange, nowhere, Vec::new(), good].map(|raw| (1, raw));
        let told = told(&points(), &hits, 3);
        assert_eq!((told.events.len(), told.lost), (1, 7));
        let many = |count| super::told(&points(), &vec![(1, bytes(RECORDED[0])); count], 0).lost;
        assert_eq!([1, 250, 290].map(many), [0, 0, 1], "56 bytes each of 16 KiB");
        assert!(Format::parse(SLOT, POINTS[0].1).is_none() && Format::parse("ID: x", POINTS[1].1).is_none());
    }
}
