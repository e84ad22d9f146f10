//! What the kernel itself has counted of each PCI function: bytes of disks, network interfaces and RDMA ports, interrupts and
//! error reports. Reads files of sysfs and procfs that every user may read. docs/accounting.md says what the figures mean.
//!
//! Each source is a file of this folder: it lists [`Item`]s, which are counters with the functions that their data
//! passes. [`Accounts`] takes differences and adds them up for each of these functions. [`pmu`] shows a function's
//! account as a PMU, so that all code that reads counters can read it too.
//!
//! The bytes are a lower bound of a function's payload: they do not include descriptors, peer-to-peer traffic and
//! drivers in user space. So only certain bytes are counted: if a counter is new, fell, or has an impossible value,
//! counting starts again from its present value.

mod block;
mod errors;
mod interrupts;
mod net;
mod pmu;
mod rdma;

use pciescope_core::warning;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Read};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pciescope_core::Bdf;

use crate::{Root, pci};

pub use pmu::{pmus, present};

/// What is counted of a function and of all functions below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Count {
    /// Bytes from device to host, of all sources.
    Rx,
    /// Bytes from host to device, of all sources.
    Tx,
    /// Bytes that disks read.
    DiskRx,
    /// Bytes that disks wrote.
    DiskTx,
    /// Bytes that network interfaces received.
    NetRx,
    /// Bytes that network interfaces sent.
    NetTx,
    /// Bytes that RDMA ports received.
    RdmaRx,
    /// Bytes that RDMA ports sent.
    RdmaTx,
    /// Message-signalled interrupts of all vectors.
    Interrupts,
    /// Errors that the hardware corrected (AER).
    Correctable,
    /// Errors that lost a transaction (AER).
    Nonfatal,
    /// Errors that lost the link (AER).
    Fatal,
    /// Interrupts of one vector, by Linux's number for it; not of functions below.
    Vector(u32),
}

impl Count {
    /// The sum that it is a part of.
    fn sum(self) -> Option<Count> {
        match self {
            Count::DiskRx | Count::NetRx | Count::RdmaRx => Some(Count::Rx),
            Count::DiskTx | Count::NetTx | Count::RdmaTx => Some(Count::Tx),
            Count::Vector(_) => Some(Count::Interrupts),
            _ => None,
        }
    }
}

/// A counter of the kernel, as it was read.
#[derive(Debug)]
struct Item {
    /// What it is of: `nvme0n1`, `eth0`, `mlx5_0/1`, `interrupt 45`.
    name: String,
    /// The functions that its data passes, from the root port down; never empty.
    way: Arc<[Bdf]>,
    count: Count,
    /// The inode of its file: a new inode is a new counter, even with the same name.
    inode: u64,
    /// What it shows, or why it cannot be read.
    value: Result<u64, String>,
    /// What one count is: bytes, or 1.
    one: u64,
    /// How many values it has before it begins at 0 again; `None` where it never does.
    wraps_at: Option<u64>,
}

impl Item {
    /// A counter of what lies at a place, with that one's name. It counts by 1 and never begins anew.
    fn of(place: &LinkTarget, count: Count, inode: u64, value: Result<u64, String>) -> Item {
        Item { name: place.name.clone(), way: place.way.clone(), count, inode, value, one: 1, wraps_at: None }
    }
}

/// What a source has in addition to its items: the devices that it leaves out, so that nothing is counted twice or
/// invented.
#[derive(Debug)]
struct LeftOut {
    name: String,
    way: Arc<[Bdf]>,
    why: &'static str,
}

/// One look at all sources.
#[derive(Debug, Default)]
struct Look {
    items: Vec<Item>,
    /// The error messages that each root port got.
    messages: Vec<Item>,
    left_out: Vec<LeftOut>,
}

impl Look {
    fn take(root: &Root, ways: &mut Ways) -> Look {
        let mut look = Look::default();
        ways.begin();
        let functions = ways.of_folder(root, "/sys/bus/pci/devices");
        let ports = rdma::look(root, ways, &mut look);
        net::look(root, ways, &ports, &mut look);
        block::look(root, ways, &ports, &mut look);
        interrupts::look(root, &functions, &mut look);
        errors::look(root, &functions, &mut look);
        look
    }
}

/// Where things lie, kept from look to look: a link of sysfs leads to the same place for as long as it exists. A link is known
/// by its inode and path.
#[derive(Debug, Default)]
struct Ways {
    known: HashMap<(u64, String), LinkTarget>,
    /// Those of the look before.
    before: HashMap<(u64, String), LinkTarget>,
}

/// Where a link of sysfs leads.
#[derive(Debug, Clone)]
struct LinkTarget {
    name: String,
    /// As the link has it.
    target: Arc<Path>,
    /// The functions on the way there; empty where it lies on no PCI bus.
    way: Arc<[Bdf]>,
}

impl Ways {
    /// Begins a look: what it does not find is forgotten with the next one.
    fn begin(&mut self) {
        self.before = std::mem::take(&mut self.known);
    }

    /// The links in a folder with where they lead, by name.
    fn of_folder(&mut self, root: &Root, folder: &str) -> Vec<LinkTarget> {
        let Ok(entries) = std::fs::read_dir(root.path(folder)) else { return Vec::new() };
        let mut all: Vec<LinkTarget> = Vec::new();
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let key = (entry.ino(), format!("{folder}/{name}"));
            let place = self.before.remove(&key).unwrap_or_else(|| {
                let target = std::fs::read_link(root.path(&key.1)).unwrap_or_default();
                LinkTarget { name, way: pci::way(root, &key.1).into(), target: target.into() }
            });
            all.push(place.clone());
            self.known.insert(key, place);
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }
}

/// A file's inode and text. One that is gone, or answers with an error, has none.
fn read(root: &Root, path: impl AsRef<Path>) -> io::Result<(u64, String)> {
    let mut file = std::fs::File::open(root.path(path))?;
    let inode = file.metadata()?.ino();
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok((inode, text))
}

/// A number of a file; what is not a plain decimal number of 64 bits is refused with what stood there.
fn number(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if is_plain => Ok(number),
        _ => Err(format!("{:?} is no count", text.chars().take(40).collect::<String>())),
    }
}

/// Something that is doubtful about an account, worth a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// The function that the counter belongs to.
    pub bdf: Bdf,
    /// [`warning::COUNTER_RESET`] or [`warning::NOT_COUNTED`].
    pub kind: &'static warning::Kind,
    /// Which counter, and what is wrong with it.
    pub text: String,
}

/// A counter at the last reading.
#[derive(Debug)]
struct Last {
    value: u64,
    way: Arc<[Bdf]>,
}

/// The accounts of all functions, over time.
#[derive(Debug)]
pub struct Accounts {
    root: Root,
    ways: Ways,
    last: HashMap<(u64, Count), Last>,
    /// What was counted of each function since the first reading.
    sums: HashMap<(Bdf, Count), u64>,
    /// What each function had a counter for at the last reading, and at the one before.
    counted: BTreeSet<(Bdf, Count)>,
    counted_before: BTreeSet<(Bdf, Count)>,
    /// The error messages of each root port at the first reading, and how many no function counted since.
    messages: HashMap<(Bdf, Count), (u64, u64)>,
    doubts: Vec<Doubt>,
    /// Counters that could not be read: said once, until they can be read again.
    mute: BTreeSet<(String, Count)>,
}

/// No counter of a machine gets there in its life: a value from here on is all-ones, or a negative number.
const IMPOSSIBLE: u64 = 1 << 63;
/// Nor does any count so much between two readings.
const TOO_MUCH: u64 = 1 << 60;

impl Accounts {
    /// Takes the first reading: everything is counted from here.
    pub fn open(root: &Root) -> Accounts {
        let mut accounts = Accounts {
            root: root.clone(),
            ways: Ways::default(),
            last: HashMap::new(),
            sums: HashMap::new(),
            counted: BTreeSet::new(),
            counted_before: BTreeSet::new(),
            messages: HashMap::new(),
            doubts: Vec::new(),
            mute: BTreeSet::new(),
        };
        accounts.read();
        accounts
    }

    /// Reads everything once.
    pub fn read(&mut self) {
        let look = Look::take(&self.root, &mut self.ways);
        let mut last = HashMap::with_capacity(look.items.len());
        let mut counted = BTreeSet::new();
        for item in look.items {
            let key = (item.inode, item.count);
            let value = match &item.value {
                Ok(value) if *value < IMPOSSIBLE => *value,
                Ok(value) => {
                    self.doubt_once(&item, &warning::NOT_COUNTED, format!("it shows {value}, which cannot be"));
                    continue;
                }
                Err(why) => {
                    self.doubt_once(&item, &warning::NOT_COUNTED, why.clone());
                    continue;
                }
            };
            if !self.mute.is_empty() {
                self.mute.remove(&(item.name.clone(), item.count));
            }
            for bdf in item.way.iter() {
                counted.insert((*bdf, item.count));
                counted.extend(item.count.sum().map(|sum| (*bdf, sum)));
            }
            // One that was not there before begins with what it shows: it may have counted long before.
            if let Some(before) = self.last.get(&key).filter(|before| before.way == item.way).map(|last| last.value) {
                match difference(before, value, item.wraps_at).and_then(|counts| counts.checked_mul(item.one)) {
                    Some(amount) if amount < TOO_MUCH => self.add(&item, amount),
                    _ => self.doubt(&item, &warning::COUNTER_RESET, format!("it went from {before} to {value}")),
                }
            }
            last.insert(key, Last { value, way: item.way });
        }
        for item in look.messages {
            counted.insert((item.way[0], item.count));
            self.add_unclaimed(&item);
        }
        self.last = last;
        self.counted_before = std::mem::replace(&mut self.counted, counted);
    }

    /// Adds an amount to a function and to all above it.
    fn add(&mut self, item: &Item, amount: u64) {
        let own = item.way.last();
        for bdf in item.way.iter() {
            // Vectors are told apart at their function only.
            let is_own = !matches!(item.count, Count::Vector(_)) || own == Some(bdf);
            for count in is_own.then_some(item.count).into_iter().chain(item.count.sum()) {
                let sum = self.sums.entry((*bdf, count)).or_default();
                *sum = sum.saturating_add(amount);
            }
        }
    }

    /// Adds to a root port the messages that it got and no function below it counted.
    fn add_unclaimed(&mut self, item: &Item) {
        let (key, got) = ((item.way[0], item.count), *item.value.as_ref().unwrap_or(&0));
        let (first, unclaimed) = *self.messages.entry(key).or_insert((got, 0));
        let counted = self.sums.get(&key).map_or(0, |sum| sum.saturating_sub(unclaimed));
        let more = got.saturating_sub(first).saturating_sub(counted).saturating_sub(unclaimed);
        if more > 0 {
            self.messages.insert(key, (first, unclaimed + more));
            self.add(item, more);
        }
    }

    fn doubt(&mut self, item: &Item, kind: &'static warning::Kind, what: String) {
        let Some(bdf) = item.way.last() else { return };
        let text = format!("{bdf}: {}: {what}", item.name);
        self.doubts.push(Doubt { bdf: *bdf, kind, text });
    }

    fn doubt_once(&mut self, item: &Item, kind: &'static warning::Kind, what: String) {
        if self.mute.insert((item.name.clone(), item.count)) {
            self.doubt(item, kind, what);
        }
    }

    /// What was counted of a function, and of all below it, since the beginning: bytes, interrupts or errors. `None` where the
    /// kernel has no such counter for it now and had none at the reading before.
    pub fn value(&self, bdf: Bdf, count: Count) -> Option<u64> {
        let key = (bdf, count);
        let is_counted = self.counted.contains(&key) || self.counted_before.contains(&key);
        is_counted.then(|| self.sums.get(&key).copied().unwrap_or(0))
    }

    /// What was doubtful since the last call.
    pub fn take_doubts(&mut self) -> Vec<Doubt> {
        std::mem::take(&mut self.doubts)
    }
}

/// What a counter counted from one value to a later one; `None` where it went backwards. One that wraps may have begun at 0
/// again, but not gone through half of its values.
fn difference(before: u64, after: u64, wraps_at: Option<u64>) -> Option<u64> {
    match (after.checked_sub(before), wraps_at) {
        (Some(counts), _) => Some(counts),
        (None, Some(end)) if before < end => Some(end - before + after).filter(|counts| *counts < end / 2),
        (None, _) => None,
    }
}

/// What the kernel counts of each function now, by function: names of disks, interfaces and ports, and how many vectors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// Disks, network interfaces and RDMA ports whose bytes are counted.
    pub devices: Vec<String>,
    /// Interrupt vectors.
    pub vectors: usize,
    /// Whether the kernel counts its error reports.
    pub has_errors: bool,
    /// Devices that are left out, each with the reason.
    pub left_out: Vec<(String, &'static str)>,
}

/// What the kernel counts of each function now. Functions without anything are left out.
pub fn sources(root: &Root) -> BTreeMap<Bdf, Sources> {
    let look = Look::take(root, &mut Ways::default());
    let mut all: BTreeMap<Bdf, Sources> = BTreeMap::new();
    for item in look.items {
        let Some(bdf) = item.way.last() else { continue };
        let sources = all.entry(*bdf).or_default();
        match item.count {
            Count::Vector(_) => sources.vectors += 1,
            Count::Correctable | Count::Nonfatal | Count::Fatal => sources.has_errors = true,
            _ if sources.devices.contains(&item.name) => {}
            _ => sources.devices.push(item.name),
        }
    }
    for LeftOut { name, way, why } in look.left_out {
        if let Some(bdf) = way.last() {
            all.entry(*bdf).or_default().left_out.push((name, why));
        }
    }
    all
}

/// A file below a place of a class.
fn at(class: &str, place: &LinkTarget, file: &str) -> PathBuf {
    PathBuf::from(class).join(&place.name).join(file)
}

#[cfg(test)]
mod tests;
