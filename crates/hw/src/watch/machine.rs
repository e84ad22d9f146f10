//! Samples of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirEntryExt, FileExt, OpenOptionsExt};
use std::sync::Arc;

use pciescope_core::{Bdf, Function};
use rustix::time::{ClockId, clock_gettime};

use super::events::{Events, KernelEvent, What};
use super::files::{Files, Opener};
use super::proof::WRITES;
use super::uevents::Uevents;
use super::{BIT_ERRORS, End, Fixed, Links, Moment, Refused, Sample, bits};
use crate::express::{self, Express, PortType};
use crate::inventory::{CORRECTABLE, FATAL, NONFATAL};
use crate::{Root, environment, link, nodes, pci};

/// Extended capability: Downstream Port Containment (7.9.14).
const EXT_CONTAINMENT: u16 = 0x001d;

/// This machine, or a recorded tree of one.
#[derive(Debug)]
pub struct LiveLinks {
    root: Root,
    /// Only these and the ports above them; all where it is empty.
    only: BTreeSet<Bdf>,
    /// The functions that are listed, each with a number that another one at its address does not have.
    listed: BTreeMap<Bdf, u64>,
    known: BTreeMap<Bdf, Known>,
    /// Which functions sleep, of this sample: a port does not fall asleep while one below is awake.
    power: BTreeMap<Bdf, Power>,
    /// The same of the sample before.
    power_before: BTreeMap<Bdf, Power>,
    /// Errors as they were last read; none of a function without counts.
    errors: BTreeMap<Bdf, Option<Errors>>,
    /// Whether this sample reads them.
    reads_errors: bool,
    /// Whether this sample reads again what the kernel tells of when it changes: which functions and drivers there are.
    reads_all: bool,
    /// When it last did so by the clock, in nanoseconds of the monotonic one.
    read_all_ns: Option<u64>,
    files: Files,
    log: Option<Log>,
    events: io::Result<Events>,
    uevents: Option<Uevents>,
    is_guest: bool,
    /// Dwords of configuration space that were read since the last sample.
    reads_between: u64,
}

/// What a function's power management says.
#[derive(Debug, Clone)]
struct Power {
    is_active: bool,
    is_asleep: bool,
    /// Its state, such as `D0`.
    state: Option<String>,
}

/// Errors by their severity, and those of bits, where the kernel has all of their names.
type Errors = ([u64; 3], Option<[u64; 3]>);

/// What the kernel tells of when it changes is read then, and so often, in nanoseconds.
const ALL_EVERY_NS: u64 = 30_000_000_000;

/// What is looked up once for a function.
#[derive(Debug, Clone, Default)]
struct Known {
    fixed: Arc<Fixed>,
    driver: Option<String>,
    /// Its link registers as they were last read.
    link: Option<u32>,
    /// Offsets in configuration space; `None` until the function was seen awake.
    offsets: Option<Offsets>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Offsets {
    /// Of the PCI Express capability; `None` without one, and without privilege.
    express: Option<u64>,
    has_slot: bool,
    has_link_2: bool,
    containment: Option<u64>,
}

impl Known {
    /// Whether the kernel looks at LBMS: its service has a driver, or its interrupts are on.
    fn is_used_by_kernel(&self) -> bool {
        self.fixed.is_cleared || self.link.is_some_and(|link| link & bits::NOTIFIES != 0)
    }

    /// Writes Link Status (7.5.3.8): bits of 1 are cleared where they can be, all others stay.
    fn write_link_status(&self, root: &Root, cleared: u16) -> io::Result<()> {
        let at = self.offsets.and_then(|offsets| offsets.express).ok_or(io::ErrorKind::Unsupported)?;
        let path = root.path(pci::folder(self.fixed.bdf()).join("config"));
        File::options().write(true).open(path)?.write_all_at(&cleared.to_le_bytes(), at + 0x12)
    }
}

/// The first kernel that counts and clears LBMS itself, also where its service has no driver.
const CLEARED_SINCE: (u32, u32) = (6, 13);

impl LiveLinks {
    /// The machine; of its functions those named with the ports above them, or all if none is.
    pub fn new(root: &Root, named: &[Bdf]) -> LiveLinks {
        let mut only: BTreeSet<Bdf> = named.iter().copied().collect();
        only.extend(named.iter().flat_map(|bdf| pci::path(root, *bdf)));
        LiveLinks {
            root: root.clone(),
            only,
            listed: BTreeMap::new(),
            known: BTreeMap::new(),
            power: BTreeMap::new(),
            power_before: BTreeMap::new(),
            errors: BTreeMap::new(),
            reads_errors: true,
            reads_all: true,
            read_all_ns: None,
            files: Files::default(),
            log: Log::open(root),
            events: if root.is_live() { Events::open(root) } else { Err(io::ErrorKind::Unsupported.into()) },
            uevents: Uevents::open(root),
            is_guest: environment::hypervisor(root).is_some(),
            reads_between: 0,
        }
    }

    /// Reads registers and the kernel's log through files that `opener` opens.
    pub fn with_opener(mut self, mut opener: Box<dyn Opener>) -> LiveLinks {
        self.log = opener.open(None).and_then(Log::of).or(self.log);
        self.files.opener = Some(opener);
        self
    }

    /// Whether registers cannot be read: the configuration space of a function that is awake ends after 64 bytes.
    pub fn is_blind(&mut self) -> bool {
        let Some(first) = pci::addresses(&self.root).into_iter().next() else { return false };
        let path = pci::path(&self.root, first);
        !self.is_asleep(first, &path) && self.files.config(&self.root, first).limit().is_some()
    }

    /// Whether LBMS may be cleared: nobody else uses it, and registers can be written. Reads a sample.
    ///
    /// # Errors
    /// Why it may not, and what to do about it.
    pub fn may_clear_lbms(&mut self) -> Result<(), Refused> {
        let refused = |why: String, hint: &str| Err((format!("LBMS is not cleared: {why}"), hint.to_owned()));
        let release = self.root.text("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if version >= CLEARED_SINCE {
            let hint = "leave --clear-lbms out; from Linux 7.0 on the kernel tells what it clears";
            return refused(format!("Linux {release} counts and clears it itself"), hint);
        }
        self.read();
        let of_ports = |known: &&Known| known.fixed.leads_down && known.link.is_some();
        let mut ports = self.known.values().filter(of_ports);
        if let Some(used) = ports.clone().find(|port| port.is_used_by_kernel()) {
            let why = format!("the kernel uses it at {} (bandwidth notifications)", used.fixed.bdf());
            return refused(why, "name functions below other ports, or leave --clear-lbms out");
        }
        let Some(port) = ports.next() else { return refused("no port shows its registers".to_owned(), WRITES) };
        // To write 0 changes no bit of Link Status.
        match port.write_link_status(&self.root, 0) {
            Ok(()) => Ok(()),
            Err(err) => refused(format!("cannot write registers of {}: {err}", port.fixed.bdf()), WRITES),
        }
    }

    /// Whether a function sleeps, or a bridge above it: to read its registers would wake them.
    fn is_asleep(&mut self, bdf: Bdf, path: &[Bdf]) -> bool {
        let (root, files, power) = (&self.root, &mut self.files, &mut self.power);
        let (before, reads_all) = (&self.power_before, self.reads_all);
        let mut look = |bdf: Bdf| {
            let status = files.text(root, bdf, "power/runtime_status");
            let is_active = status.as_deref() == Some("active");
            // One that stays active keeps its state.
            let kept = before.get(&bdf).filter(|before| is_active && before.is_active && !reads_all);
            let state = kept.map_or_else(|| files.text(root, bdf, "power_state"), |before| before.state.clone());
            let is_suspended = matches!(status.as_deref(), Some("suspended" | "suspending" | "resuming"));
            Power { is_active, is_asleep: is_suspended || state.as_deref() == Some("D3cold"), state }
        };
        let own = look(bdf);
        let is_own = own.is_asleep;
        power.insert(bdf, own);
        let mut is = |bdf: Bdf| power.entry(bdf).or_insert_with(|| look(bdf)).is_asleep;
        is_own || path.iter().any(|above| is(*above))
    }

    /// The function as it is now; `None` where it went away meanwhile.
    fn end(&mut self, bdf: Bdf, inode: u64, reads: &mut u64) -> Option<End> {
        let kept = self.known.remove(&bdf).filter(|known| known.fixed.inode == inode);
        if kept.is_none() {
            self.files.forget(bdf);
            self.errors.remove(&bdf);
        }
        let mut known = kept.or_else(|| self.look_up(bdf, inode))?;
        let end = self.end_of(bdf, &mut known, reads);
        self.known.insert(bdf, known);
        Some(end)
    }

    fn end_of(&mut self, bdf: Bdf, known: &mut Known, reads: &mut u64) -> End {
        if self.reads_all {
            known.driver = pci::driver(&self.root, bdf);
        }
        let is_asleep = self.is_asleep(bdf, &known.fixed.function.path);
        if !is_asleep && known.offsets.is_none() {
            self.look_into(bdf, known);
        }
        let errors = self.errors(bdf);
        let mut end = End {
            driver: known.driver.clone(),
            power: self.power.get(&bdf).and_then(|power| power.state.clone()).filter(|state| state.starts_with('D')),
            is_asleep,
            errors: errors.map(|(all, _)| all),
            bit_errors: errors.and_then(|(_, of_bits)| of_bits),
            fixed: known.fixed.clone(),
            ..End::default()
        };
        let offsets = known.offsets.filter(|_| !is_asleep).unwrap_or_default();
        let mut dword = |at: u64| {
            let mut bytes = [0; 4];
            self.files.exact(&self.root, bdf, "config", at, &mut bytes)?;
            *reads += 1;
            // All-ones is no answer.
            Some(u32::from_le_bytes(bytes)).filter(|dword| *dword != u32::MAX)
        };
        if let Some(at) = offsets.express {
            end.link = dword(at + 0x10);
            if end.fixed.leads_down && end.link.is_some() {
                end.slot = if offsets.has_slot { dword(at + 0x18) } else { None };
                // What the link is told to have matters when it changes.
                let is_new = known.link != end.link || self.reads_all;
                let link_2 = (offsets.has_link_2 && is_new).then(|| dword(at + 0x30)).flatten();
                end.link_2 = link_2.map(|dword| dword as u16);
                end.containment = offsets.containment.and_then(|at| dword(at + 8)).map(|dword| dword as u16);
            }
        } else if !is_asleep && end.fixed.has_link {
            end.shown = self.shown(bdf);
        }
        known.link = end.link;
        end
    }

    /// What sysfs tells without privilege.
    fn shown(&mut self, bdf: Bdf) -> Option<(f64, u8)> {
        let speed = self.files.text(&self.root, bdf, "current_link_speed")?;
        let width = self.files.text(&self.root, bdf, "current_link_width")?;
        Some((link::parse_speed(&speed)?, width.parse().ok()?))
    }

    /// Errors as they are now: the kernel writes three pages of text to say so, unless it told of none meanwhile.
    fn errors(&mut self, bdf: Bdf) -> Option<Errors> {
        if let Some(known) = self.errors.get(&bdf).filter(|_| !self.reads_errors) {
            return *known;
        }
        let now = self.errors_now(bdf);
        self.errors.insert(bdf, now);
        now
    }

    fn errors_now(&mut self, bdf: Bdf) -> Option<Errors> {
        let mut text = |file| self.files.text(&self.root, bdf, file);
        let texts = [text(CORRECTABLE)?, text(NONFATAL)?, text(FATAL)?];
        let count = |text: &str, name: &str| -> Option<u64> {
            let line = text.lines().rev().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        let [correctable, nonfatal, fatal] = texts.each_ref().map(|text| count(text, "TOTAL_ERR"));
        let [receiver, tlp, dllp] = BIT_ERRORS.map(|name| count(&texts[0], name));
        let of_bits = || Some([receiver?, tlp?, dllp?]);
        Some(([correctable?, nonfatal?, fatal?], of_bits()))
    }

    fn read(&mut self) -> Sample {
        self.power_before = std::mem::take(&mut self.power);
        let reads = std::mem::take(&mut self.reads_between);
        let mut sample = Sample { at: now(), held: self.log.as_mut().map(Log::held), reads, ..Sample::default() };
        if self.reads_all {
            self.list();
        }
        let listed = std::mem::take(&mut self.listed);
        for (&bdf, &inode) in &listed {
            if self.only.is_empty() || self.only.contains(&bdf) {
                // One that goes away meanwhile is missing from the next sample's list.
                if let Some(end) = self.end(bdf, inode, &mut sample.reads) {
                    sample.functions.insert(bdf, end);
                }
            }
        }
        self.listed = listed;
        sample
    }

    /// Looks which functions there are.
    fn list(&mut self) {
        let listed = std::fs::read_dir(self.root.path("/sys/bus/pci/devices")).into_iter().flatten().flatten();
        // By address, so that a port is known before what is below it.
        self.listed =
            listed.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.ino()))).collect();
        let gone: Vec<Bdf> = self.known.keys().filter(|bdf| !self.listed.contains_key(bdf)).copied().collect();
        for bdf in gone {
            self.known.remove(&bdf);
            self.errors.remove(&bdf);
            self.files.forget(bdf);
        }
    }

    /// What files tell of a function without a register.
    fn look_up(&self, bdf: Bdf, inode: u64) -> Option<Known> {
        let id = |file: &str| pci::id(&self.root, bdf, file).ok();
        let (vendor, device, class) = (id("vendor")? as u16, id("device")? as u16, id("class")?);
        let function = Function {
            bdf: Some(bdf),
            vendor,
            device,
            class,
            name: pci::name(vendor, device),
            driver: pci::driver(&self.root, bdf),
            devices: nodes::names(&self.root, bdf),
            path: pci::path(&self.root, bdf),
            ..Function::default()
        };
        let leads_down = pci::is_bridge(class) && function.path.len() % 2 == 0;
        let fixed = Fixed { inode, function, leads_down, ..Fixed::default() };
        let driver = fixed.function.driver.clone();
        Some(Known { fixed: Arc::new(fixed), driver, link: None, offsets: None })
    }

    /// What the registers of a function that is awake tell once.
    fn look_into(&mut self, bdf: Bdf, known: &mut Known) {
        let config = self.files.config(&self.root, bdf);
        let express = Express::of(&config);
        let has_extended = config.has_extended();
        let has_port = known.fixed.function.path.last().is_some_and(|port| self.known.contains_key(port));
        let mut fixed = Fixed::clone(&known.fixed);
        let most = link::shown(&self.root, bdf).map(|link| (link.max_speed_gts, link.max_width));
        fixed.has_link = (fixed.leads_down || !has_port) && most.is_some();
        fixed.most = most;
        fixed.is_cleared = link::is_cleared_by_kernel(&self.root, bdf);
        let mut offsets = Offsets::default();
        // Without a link, as what is built into the root complex, it has no register of one.
        if let Some(express) = express.filter(|express| express.kind() != PortType::Other && most.is_some()) {
            fixed.leads_down = express.leads_down();
            fixed.reports_active = !self.is_guest && express.is_data_link_active().is_some();
            offsets = Offsets {
                express: Some(express.at as u64),
                has_slot: express.has_slot(),
                has_link_2: express.link_control_2().is_some(),
                containment: if has_extended && fixed.leads_down {
                    express::extended(&config, EXT_CONTAINMENT).map(|at| at as u64)
                } else {
                    None
                },
            };
        }
        known.fixed = Arc::new(fixed);
        known.offsets = Some(offsets);
    }
}

impl Links for LiveLinks {
    fn sample(&mut self, _planned_ns: u64) -> Sample {
        let now_ns = now().monotonic_ns;
        let is_due = self.read_all_ns.is_none_or(|at| now_ns - at >= ALL_EVERY_NS);
        if is_due {
            self.read_all_ns = Some(now_ns);
        }
        self.reads_all = self.uevents.as_mut().is_none_or(|uevents| uevents.take() || is_due);
        let Ok(events) = &mut self.events else { return self.read() };
        let told = events.take();
        self.reads_errors = !events.has_errors() || told.has_error() || is_due;
        let mut sample = Sample { told, ..self.read() };
        let Ok(events) = &mut self.events else { return sample };
        let later = events.take();
        // What the kernel told of while it was read may have been read before: read all of it after.
        let is_late = |event: &KernelEvent| event.what != What::Error && event.at_ns >= sample.at.monotonic_ns;
        let (has_late, has_error) = (later.events.iter().any(is_late), later.has_error());
        sample.told.add(later);
        if has_late || (has_error && !self.reads_errors) {
            self.reads_errors |= has_error;
            self.reads_all |= has_late;
            let mut again = self.read();
            again.reads += sample.reads;
            again.held.iter_mut().for_each(|held| held.extend(sample.held.take().unwrap_or_default()));
            sample = Sample { told: sample.told, is_again: true, ..again };
        }
        sample
    }

    fn clear_lbms(&mut self) -> Vec<Bdf> {
        let (root, files, reads) = (&self.root, &mut self.files, &mut self.reads_between);
        let cleared = self.known.values_mut().filter_map(|known| {
            let (at, link) = (known.offsets?.express?, known.link?);
            // While a link trains, its sample does not hold. While it is down, kernels from 6.5 on look at the bit to tell
            // whether it fails to train.
            let is_shown = link & (bits::MANAGED | bits::TRAINING) == bits::MANAGED && known.fixed.leads_down;
            let is_up = link & bits::ACTIVE != 0 || !known.fixed.reports_active;
            if !is_shown || !is_up || known.is_used_by_kernel() {
                return None;
            }
            known.write_link_status(root, (bits::MANAGED >> 16) as u16).ok()?;
            let mut dword = [0; 4];
            files.exact(root, known.fixed.bdf(), "config", at + 0x10, &mut dword)?;
            *reads += 1;
            known.link = Some(link & !bits::MANAGED | u32::from_le_bytes(dword) & bits::MANAGED);
            (known.link? & bits::MANAGED == 0).then_some(known.fixed.bdf())
        });
        cleared.collect()
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref().ok().map(|events| events.ready.as_fd())
    }

    fn without_events(&self) -> Option<String> {
        let release = self.root.text("/proc/sys/kernel/osrelease")?;
        let is_new = self.root.is_live() && release.split('.').next()?.parse::<u32>().ok()? >= 7;
        self.events.as_ref().err().filter(|_| is_new).map(ToString::to_string)
    }
}

fn now() -> Moment {
    let ns = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    Moment { monotonic_ns: ns(ClockId::Monotonic), boot_ns: ns(ClockId::Boottime) }
}

/// The kernel's log from now on.
#[derive(Debug)]
struct Log(File);

/// What the kernel says of a link that it holds at 2.5 GT/s (drivers/pci/quirks.c, pcie_failed_link_retrain).
const HELD: &str = "retraining non-functional downstream link at 2.5GT/s";

impl Log {
    fn open(root: &Root) -> Option<Log> {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        Log::of(options.open(root.path("/dev/kmsg")).ok()?)
    }

    fn of(mut file: File) -> Option<Log> {
        file.seek(SeekFrom::End(0)).ok()?;
        Some(Log(file))
    }

    /// The functions that it named since the last call.
    fn held(&mut self) -> Vec<Bdf> {
        let mut held = Vec::new();
        // One message each time; messages that were overwritten are an error once (EPIPE).
        let mut message = [0; 8192];
        loop {
            match self.0.read(&mut message) {
                Ok(0) => break,
                Ok(read) => held.extend(held_by(&String::from_utf8_lossy(&message[..read]))),
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => break,
            }
        }
        held
    }
}

/// The function of a message about a held link: `pci 0000:02:00.0: broken device, retraining ...`.
fn held_by(message: &str) -> Option<Bdf> {
    let (before, _) = message.split_once(HELD)?;
    before.split([' ', ';']).find_map(|word| word.trim_end_matches(':').parse().ok())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use rustix::fs::inotify;

    use super::*;

    #[test]
    fn a_held_link_is_named_by_the_kernel() {
        let text =
            "4,711,12345,-;pci 0000:02:00.0: broken device, retraining non-functional downstream link at 2.5GT/s\n";
        assert_eq!(held_by(text), "0000:02:00.0".parse().ok());
        assert_eq!(held_by("4,711,12345,-;pci 0000:02:00.0: enabling device (0000 -> 0002)"), None);
    }

    const PORT: &str = "0000:00:01.0";
    const CARD: &str = "0000:01:00.0";

    /// Writes a file of a function in a tree.
    fn put(root: &Path, bdf: &str, file: &str, content: impl AsRef<[u8]>) {
        let path = root.join("sys/bus/pci/devices").join(bdf).join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A port at 16 GT/s x4 with its capability at 0x40, and a disk below it.
    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        for (bdf, place, class) in
            [(PORT, "pci0000:00/0000:00:01.0", "0x060400"), (CARD, "pci0000:00/0000:00:01.0/0000:01:00.0", "0x010802")]
        {
            fs::create_dir_all(root.join("sys/devices").join(place)).unwrap();
            fs::create_dir_all(root.join("sys/bus/pci/devices")).unwrap();
            symlink(Path::new("../../../devices").join(place), root.join("sys/bus/pci/devices").join(bdf)).unwrap();
            for (file, text) in [("vendor", "0x8086"), ("device", "0x1234"), ("class", class), ("power_state", "D0")] {
                put(root, bdf, file, text);
            }
            put(root, bdf, "power/runtime_status", "active");
            for word in ["current", "max"] {
                put(root, bdf, &format!("{word}_link_speed"), "16.0 GT/s PCIe");
                put(root, bdf, &format!("{word}_link_width"), "4");
            }
            let mut config = [0; 256];
            (config[0x06], config[0x34], config[0x40]) = (0x10, 0x40, 0x10);
            // A root port with a slot, or an endpoint; version 2.
            config[0x42..0x44].copy_from_slice(&(if bdf == PORT { 0x0142u16 } else { 2 }).to_le_bytes());
            config[0x52..0x54].copy_from_slice(&0x4044u16.to_le_bytes());
            config[0x70] = 4;
            put(root, bdf, "config", config);
        }
        tree
    }

    #[test]
    fn registers_of_a_port_and_its_card_take_four_reads() {
        let tree = tree();
        let mut machine = LiveLinks::new(&Root::at(tree.path()), &[]);
        let sample = machine.sample(0);
        let port = &sample.functions[&PORT.parse().unwrap()];
        assert!(
            port.fixed.leads_down && port.fixed.has_link && !sample.functions[&CARD.parse().unwrap()].fixed.has_link
        );
        assert_eq!((port.link, port.link_2, port.slot), (Some(0x4044_0000), Some(4), Some(0)));
        assert_eq!((sample.reads, port.shown), (4, None));
        // Without root the file ends after 64 bytes: sysfs has speed and width.
        for bdf in [PORT, CARD] {
            put(tree.path(), bdf, "config", [0; 64]);
        }
        let sample = LiveLinks::new(&Root::at(tree.path()), &[]).sample(0);
        let port = &sample.functions[&PORT.parse().unwrap()];
        assert_eq!((port.link, port.shown, sample.reads), (None, Some((16.0, 4)), 0));
    }

    #[test]
    fn lbms_is_cleared_where_nobody_else_uses_it() {
        type Prepare = fn(&Path);
        let word = |root: &Path| {
            let config = fs::read(root.join("sys/bus/pci/devices").join(PORT).join("config")).unwrap();
            u16::from_le_bytes([config[0x52], config[0x53]])
        };
        let show = |root: &Path, status: u16, control: u16| {
            let path = root.join("sys/bus/pci/devices").join(PORT).join("config");
            let mut config = fs::read(&path).unwrap();
            config[0x50..0x52].copy_from_slice(&control.to_le_bytes());
            config[0x52..0x54].copy_from_slice(&status.to_le_bytes());
            fs::write(path, config).unwrap();
        };
        let refusals: [(&str, Prepare); 3] = [
            ("Linux 6.13.1-amd64 counts and clears it", |root| {
                fs::create_dir_all(root.join("proc/sys/kernel")).unwrap();
                fs::write(root.join("proc/sys/kernel/osrelease"), "6.13.1-amd64").unwrap();
            }),
            ("the kernel uses it at 0000:00:01.0", |root| put(root, PORT, "0000:00:01.0:pcie010/driver", "")),
            ("no port shows its registers", |root| put(root, PORT, "config", [0; 64])),
        ];
        for (why, prepare) in refusals {
            let tree = tree();
            prepare(tree.path());
            let refused = LiveLinks::new(&Root::at(tree.path()), &[]).may_clear_lbms().unwrap_err();
            assert!(refused.0.contains(why) && !refused.1.is_empty(), "{refused:?}");
        }
        let tree = tree();
        let root = tree.path();
        for notifies in [1 << 10, 1 << 11] {
            show(root, 0x4044, notifies);
            assert!(LiveLinks::new(&Root::at(root), &[]).may_clear_lbms().is_err());
        }
        // A file keeps what is written; a register would show what it showed without the bit.
        show(root, 0x4044, 0);
        LiveLinks::new(&Root::at(root), &[]).may_clear_lbms().unwrap();
        assert_eq!(word(root), 0);
        // LABS stays. While the link trains, or where the kernel uses the bit, nothing is written.
        for (status, control, written) in
            [(0xc044, 0, 0x4000), (0x8044, 0, 0x8044), (0xc844, 0, 0xc844), (0xc044, 1 << 10, 0xc044)]
        {
            show(root, status, control);
            let mut machine = LiveLinks::new(&Root::at(root), &[]);
            machine.sample(0);
            assert_eq!((machine.clear_lbms(), word(root)), (Vec::new(), written), "{status:#x} {control:#x}");
        }
    }

    /// Opens files of another tree, whose configuration space is whole.
    #[derive(Debug)]
    struct Other(std::path::PathBuf);
    impl Opener for Other {
        fn open(&mut self, of: Option<Bdf>) -> Option<File> {
            File::open(self.0.join("sys/bus/pci/devices").join(of?.to_string()).join("config")).ok()
        }
    }

    #[test]
    fn registers_are_read_through_files_that_another_opened() {
        let (own, other) = (tree(), tree());
        for bdf in [PORT, CARD] {
            put(own.path(), bdf, "config", [0; 64]);
        }
        let machine = || LiveLinks::new(&Root::at(own.path()), &[]);
        let link = |mut machine: LiveLinks| machine.sample(0).functions[&PORT.parse().unwrap()].link;
        assert!(machine().is_blind() && link(machine()).is_none());
        let with = |folder: &Path| machine().with_opener(Box::new(Other(folder.to_owned())));
        assert!(!with(other.path()).is_blind());
        assert_eq!(link(with(other.path())), Some(0x4044_0000));
        // Where the other opens nothing, it reads what it may itself.
        assert!(with(Path::new("/nowhere")).is_blind() && link(with(Path::new("/nowhere"))).is_none());
    }

    #[test]
    fn nothing_of_a_function_that_sleeps_is_opened() {
        let tree = tree();
        let watched = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        for file in ["config", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width"] {
            let path = tree.path().join("sys/bus/pci/devices").join(CARD).join(file);
            inotify::add_watch(&watched, path, inotify::WatchFlags::OPEN).unwrap();
        }
        let opened = || rustix::io::read(&watched, &mut [0; 4096]).unwrap_or(0) > 0;
        let sample = || {
            let mut machine = LiveLinks::new(&Root::at(tree.path()), &[]);
            machine.sample(0);
            machine.sample(0).functions[&CARD.parse().unwrap()].is_asleep
        };
        // By its own state, by one that changes, by D3cold, and by that of the port above.
        for (bdf, file, asleep, awake) in [
            (CARD, "power/runtime_status", "suspended", "active"),
            (CARD, "power/runtime_status", "resuming", "active"),
            (CARD, "power_state", "D3cold", "D0"),
            (PORT, "power/runtime_status", "suspended", "active"),
        ] {
            put(tree.path(), bdf, file, asleep);
            assert!(sample() && !opened(), "{bdf} {file} {asleep}: it was opened");
            put(tree.path(), bdf, file, awake);
            assert!(!sample() && opened(), "{bdf} {file} {awake}: it was not opened");
        }
    }
}
