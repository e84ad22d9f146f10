//! A BAR mapped through the `resourceN` file of sysfs: no driver, no module, no interrupts. Beside a driver it reads the
//! register that is known to be harmless, and nothing else.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use pciescope_core::record::Failure;
use pciescope_core::{Bar, Bdf, Function, MmioPlan, MmioTest};

use super::register::{self, Access, Window};
use super::sys::{self, Mapping};
use super::{Probe, Sampled, Slice, Watch, failure, sysfs};
use crate::config::Config;
use crate::registers::{self, SafeRegister};
use crate::{Error, Root};

/// Where the command register is in configuration space, and its bit for the decoding of memory BARs.
const COMMAND: u64 = 4;
const MEMORY_SPACE: u16 = 2;

/// A function without a driver, memory decoding on while this lives; or one whose driver goes on.
#[derive(Debug)]
pub struct Resource {
    bdf: Bdf,
    folder: PathBuf,
    config: File,
    /// What configuration space said when the function was opened.
    said: Config,
    bars: Vec<Bar>,
    emulated: bool,
    /// The command register, if `enable` was 0 before: both are put back.
    former_command: Option<[u8; 2]>,
    beside: Option<Beside>,
    window: Option<(u8, Window)>,
    /// Configuration space of the port above.
    above: Option<File>,
}

/// A driver that goes on while a register is read, and the register: the only access beside it.
#[derive(Debug, Clone)]
struct Beside {
    driver: String,
    register: SafeRegister,
}

impl Beside {
    /// The driver of a function and its harmless register; `None` without either.
    fn of(root: &Root, function: &Function, bdf: Bdf) -> Option<Self> {
        Some(Beside { driver: driver(root, bdf)?, register: registers::safe_target(function)? })
    }

    /// Why nothing may be read: the device sleeps, may fall asleep, or is another machine's. A read that nobody answers is
    /// an abort on some machines, so what is not known counts as a reason.
    fn refusal_of_all(&self, root: &Root, bdf: Bdf) -> Option<String> {
        let folder = folder(root, bdf);
        let said = |file: &str| {
            let text = std::fs::read_to_string(folder.join(file));
            text.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
        };
        let command = Config::load(root, bdf).word(COMMAND as usize).unwrap_or(0);
        let why = if self.driver.contains("vfio") {
            "a guest or a program may have the function".to_owned()
        } else if said("enable") == "0" || command & MEMORY_SPACE == 0 {
            "the function does not decode its BARs".to_owned()
        } else if said("power_state") != "D0" {
            format!("the function's power state is {}", said("power_state"))
        } else if said("power/control") != "on" {
            let on = folder.join("power/control");
            format!("the function may fall asleep: `echo on > {}` keeps it awake", on.display())
        } else {
            return None;
        };
        Some(format!("the driver {} holds the BARs, and {why}", self.driver))
    }

    /// Why an access is refused; `None` where it is a read of the register.
    fn refusal(&self, access: &Access) -> Option<String> {
        let Beside { driver, register } = self;
        let is_within =
            (access.bar, access.offset) == (register.bar, register.offset) && access.width <= register.width;
        (access.is_write || !is_within).then(|| {
            let (name, place) = (register.name, register.in_bar());
            format!("the driver {driver} holds the BARs: beside it only {name} may be read, at {place}")
        })
    }
}

/// The folder of a function in sysfs.
pub fn folder(root: &Root, bdf: Bdf) -> PathBuf {
    root.path(format!("/sys/bus/pci/devices/{bdf}"))
}

/// The driver that holds a function now.
pub fn driver(root: &Root, bdf: Bdf) -> Option<String> {
    let link = std::fs::read_link(folder(root, bdf).join("driver")).ok()?;
    Some(link.file_name()?.to_str()?.to_owned())
}

/// Whether the kernel is locked down.
pub fn is_locked_down(root: &Root) -> bool {
    root.read("/sys/kernel/security/lockdown").is_ok_and(|text| !text.contains("[none]"))
}

/// Why `auto` does not take this backend: the kernel refuses to map, or may; `None` if nothing is known against it.
pub fn refusal(root: &Root, bdf: Bdf) -> Option<String> {
    // Lockdown is named first: it remains when the driver is gone.
    if is_locked_down(root) {
        return Some("the kernel is locked down (Secure Boot) and forbids mapping BARs".to_owned());
    }
    let driver = driver(root, bdf)?;
    Some(format!("the driver {driver} holds the BARs; most kernels then forbid mapping them"))
}

impl Resource {
    /// Opens a function, and turns its memory decoding on if no driver holds it. Beside a driver, reads of the register
    /// that is known to be harmless are possible if the kernel permits the mapping.
    ///
    /// # Errors
    /// [`Error::Unsupported`] under lockdown, and with a driver where no register is known; [`Error::Read`],
    /// [`Error::Write`] for sysfs.
    pub fn open(root: &Root, function: &Function, bdf: Bdf) -> Result<Self, Error> {
        let beside = Beside::of(root, function, bdf).filter(|_| !is_locked_down(root));
        let why = beside.as_ref().map_or_else(|| refusal(root, bdf), |beside| beside.refusal_of_all(root, bdf));
        if let Some(why) = why {
            return Err(Error::Unsupported { bdf, backend: "resource", what: "map a BAR", why });
        }
        let folder = folder(root, bdf);
        let path = folder.join("config");
        let config = File::open(&path).map_err(|source| Error::Read { path, source })?;
        let said = Config::load(root, bdf);
        if let Some(bar) = function.bars.iter().find(|bar| is_lost(&folder, &config, &said, bar)) {
            let why = format!("BAR{} has lost its address, as by a reset that nobody announced", bar.number);
            let why = format!("{why}: remove the function, then rescan");
            return Err(Error::Unsupported { bdf, backend: "resource", what: "map a BAR", why });
        }
        let enable = folder.join("enable");
        let before = std::fs::read_to_string(&enable).map_err(|source| Error::Read { path: enable.clone(), source })?;
        let mut former_command = None;
        // A driver decides itself whether its device is enabled.
        if before.trim() == "0" && beside.is_none() {
            let mut command = [0; 2];
            let read = config.read_exact_at(&mut command, COMMAND);
            read.map_err(|source| Error::Read { path: folder.join("config"), source })?;
            write(&enable, "1")?;
            former_command = Some(command);
        }
        Ok(Resource {
            bdf,
            folder,
            config,
            said,
            bars: function.bars.clone(),
            emulated: function.emulated.is_some(),
            former_command,
            beside,
            window: None,
            above: sysfs::above(root, function),
        })
    }

    /// The mapped page that holds a place, for an access that is permitted there.
    fn window(&mut self, bar: u8, offset: u64, width: u8, is_write: bool) -> Result<&Window, Error> {
        let found = self.bars.iter().find(|b| b.number == bar);
        let Some(found) = found.filter(|b| b.is_memory) else {
            let why = "the device has no such memory BAR".to_owned();
            return Err(Error::Plan { bdf: self.bdf, field: "BAR", value: bar.to_string(), why });
        };
        register::check(self.bdf, bar, offset, width, found.size_bytes)?;
        let access = Access { backend: "resource", bdf: self.bdf, bar, offset, width, is_write };
        if let Some(why) = self.beside.as_ref().and_then(|beside| beside.refusal(&access)) {
            let what = if is_write { "write" } else { "read" };
            return Err(Error::Unsupported { bdf: self.bdf, backend: "resource", what, why });
        }
        access.check_msix(&self.said)?;
        let fits = self.window.as_ref().is_some_and(|(number, window)| *number == bar && window.holds(offset, width));
        if !fits {
            // One page, because a BAR can have many GiB.
            let page = sys::page_bytes();
            let from = offset / page * page;
            let len = page.min(found.size_bytes.next_multiple_of(page) - from);
            let skipped = if found.size_bytes < page { start(&self.folder, bar)? % page } else { 0 };
            self.window = None;
            self.window = Some((bar, Window::new(self.map(bar, from, len as usize)?, from).skipping(skipped)));
        }
        Ok(&self.window.as_ref().expect("just made").1)
    }

    fn map(&self, bar: u8, from: u64, len: usize) -> Result<Mapping, Error> {
        let path = self.folder.join(format!("resource{bar}"));
        let mapped =
            OpenOptions::new().read(true).write(true).open(&path).and_then(|f| Mapping::new(&f, from, len, true));
        mapped.map_err(|source| {
            let hint = match source.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => {
                    "it needs root and a kernel that is not locked down; --backend vfio works with Secure Boot"
                }
                Some(libc::EINVAL) => {
                    "a driver holds this BAR (IO_STRICT_DEVMEM); unbind it or use --backend kmod or vfio"
                }
                _ => "use --backend kmod or vfio",
            };
            Error::call(self.bdf, "resource", format!("map {}", path.display()), source, Some(hint))
        })
    }
}

/// The address of a BAR.
fn start(folder: &Path, bar: u8) -> Result<u64, Error> {
    let path = folder.join("resource");
    let text = std::fs::read_to_string(&path).map_err(|source| Error::Read { path: path.clone(), source })?;
    let line = text.lines().nth(bar.into()).unwrap_or_default().to_owned();
    let first = line.split_whitespace().next().unwrap_or_default().trim_start_matches("0x");
    u64::from_str_radix(first, 16).map_err(|_| Error::Parse { path, text: line, what: "start, end and flags" })
}

/// The address that a memory BAR has in configuration space (PCIe 6.0, 7.5.1.2.1).
fn address(config: &File, bar: &Bar) -> Option<u64> {
    let mut bytes = [0; 8];
    let len = if bar.is_64bit { 8 } else { 4 };
    config.read_exact_at(&mut bytes[..len], 0x10 + 4 * u64::from(bar.number)).ok()?;
    Some(u64::from_le_bytes(bytes) & !0xf)
}

/// Whether a BAR has no address although the kernel gave it one: then reads go to nobody, and are answered fast. The BARs of a
/// virtual function read 0, and so do those of Enhanced Allocation.
fn is_lost(folder: &Path, config: &File, said: &Config, bar: &Bar) -> bool {
    const ENHANCED_ALLOCATION: u8 = 0x14;
    let is_elsewhere = folder.join("physfn").exists() || said.capability(ENHANCED_ALLOCATION).is_some();
    let is_given = bar.is_memory && start(folder, bar.number).is_ok_and(|start| start > 0);
    is_given && !is_elsewhere && address(config, bar) == Some(0)
}

/// Why a device does not answer configuration reads; `None` where it does.
pub fn presence(config: &File, bdf: Bdf) -> Option<Failure> {
    let mut id = [0; 4];
    match config.read_at(&mut id, 0) {
        Ok(4) if id != [0xff; 4] => None,
        _ => Some(failure::removed(bdf)),
    }
}

fn write(path: &Path, value: &str) -> Result<(), Error> {
    std::fs::write(path, value).map_err(|source| Error::write(path, value, source))
}

impl Drop for Resource {
    fn drop(&mut self) {
        self.window = None;
        if let Some(command) = self.former_command {
            // A device that was removed has no such files any more. Disabling leaves memory decoding on and turns bus mastering
            // off, also where firmware had turned it on, so the register follows.
            let _ = write(&self.folder.join("enable"), "0");
            let config = OpenOptions::new().write(true).open(self.folder.join("config"));
            let _ = config.and_then(|config| config.write_all_at(&command, COMMAND));
        }
    }
}

impl Probe for Resource {
    fn backend(&self) -> &'static str {
        "resource"
    }

    fn bdf(&self) -> Bdf {
        self.bdf
    }

    fn mmio(&mut self, plan: &MmioPlan, slice: &Slice, watch: &dyn Watch) -> Result<Sampled, Error> {
        let (bdf, what) = (self.bdf, ("resource", self.emulated));
        let path = self.folder.join("config");
        let config = self.config.try_clone().map_err(|source| Error::Read { path, source })?;
        let bar = self.bars.iter().find(|bar| bar.number == plan.bar).cloned().unwrap_or_default();
        let at = address(&config, &bar);
        let above = self.above.as_ref().and_then(|above| above.try_clone().ok());
        let window = self.window(plan.bar, plan.offset, plan.width, plan.test != MmioTest::Read)?;
        let moved = || (address(&config, &bar) != at).then(|| failure::reset(bdf));
        window.measure(what, plan, slice, above.as_ref(), &|| presence(&config, bdf).or_else(moved), watch)
    }

    fn read(&mut self, bar: u8, offset: u64, width: u8) -> Result<u64, Error> {
        Ok(self.window(bar, offset, width, false)?.read(offset, width))
    }

    fn write(&mut self, bar: u8, offset: u64, width: u8, value: u64) -> Result<(), Error> {
        self.window(bar, offset, width, true)?.write(offset, width, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::test::{Silent, Tree};

    #[test]
    fn the_msix_table_is_left_alone() {
        let (root, bdf) = (Tree::new(), "0000:01:00.0".parse().unwrap());
        let folder = folder(&root, bdf);
        root.folder(crate::pci::folder(bdf));
        // MSI-X at 0x40 with 16 vectors, the table at BAR4:0, the pending bits at BAR4:0x800.
        let mut config = vec![0; 256];
        config[..4].copy_from_slice(&[0x34, 0x12, 0x0e, 0x5c]);
        (config[0x06], config[0x34]) = (0x10, 0x40);
        config[0x40..0x4c].copy_from_slice(&[0x11, 0, 15, 0, 4, 0, 0, 0, 4, 8, 0, 0]);
        std::fs::write(folder.join("config"), &config).unwrap();
        std::fs::write(folder.join("enable"), "1\n").unwrap();
        std::fs::write(folder.join("resource4"), vec![0x5a; 0x10000]).unwrap();
        let bar = Bar { number: 4, size_bytes: 0x10000, is_memory: true, ..Bar::default() };
        let function = Function { bars: vec![bar], ..Function::default() };
        let mut probe = Resource::open(&root, &function, bdf).unwrap();
        let told = |error: Error| error.source().unwrap().to_string();
        assert_eq!(probe.read(4, 0, 4).unwrap(), 0x5a5a_5a5a);
        assert!(told(probe.read(4, 0, 2).unwrap_err()).contains("MSI-X"));
        assert!(told(probe.write(4, 0x804, 4, 1).unwrap_err()).contains("MSI-X"));
        probe.write(4, 0x100, 4, 1).unwrap();
        let cpus: pciescope_core::CpuList = [sys::current_cpu()].into_iter().collect();
        let slice = Slice { cpus, count: 5, duration_ns: 0 };
        let reads = MmioPlan::reads(bdf, 4, 0x8, 4);
        probe.mmio(&reads, &slice, &Silent).unwrap();
        for refused in [
            MmioPlan { width: 1, ..reads.clone() },
            MmioPlan { test: MmioTest::Write, ..reads.clone() },
            MmioPlan { test: MmioTest::WriteRead, ..reads },
        ] {
            assert!(told(probe.mmio(&refused, &slice, &Silent).unwrap_err()).contains("MSI-X"), "{refused:?}");
        }
        drop(probe);
        let left = std::fs::read(folder.join("resource4")).unwrap();
        assert!(left[..0x100].iter().chain(&left[0x104..]).all(|&byte| byte == 0x5a), "something was written");
    }

    #[test]
    fn a_bar_without_its_address_is_not_measured() {
        let bdf: Bdf = "0000:01:00.0".parse().unwrap();
        let bar = Bar { number: 2, size_bytes: 0x1000, is_memory: true, is_64bit: true, ..Bar::default() };
        let function = Function { bars: vec![bar], ..Function::default() };
        // The BAR's two registers, the first capability, whether it is a virtual function, and whether it is measured.
        for (low, high, capability, is_virtual, is_measured) in [
            (0xfe00_000c_u32, 0_u32, 0x05, false, true),
            // At 4 GiB the lower half has flags alone.
            (0x0000_000c, 1, 0x05, false, true),
            (0x0000_000c, 0, 0x05, false, false),
            (0x0000_0000, 0, 0x14, false, true),
            (0x0000_0000, 0, 0x05, true, true),
        ] {
            let root = Tree::new();
            let at = crate::pci::folder(bdf);
            let mut config = vec![0; 256];
            (config[0x06], config[0x34], config[0x40]) = (0x10, 0x40, capability);
            config[0x18..0x1c].copy_from_slice(&low.to_le_bytes());
            config[0x1c..0x20].copy_from_slice(&high.to_le_bytes());
            root.put(at.join("config"), &config);
            root.put(at.join("enable"), "1\n");
            root.put(at.join("resource2"), vec![1; 0x1000]);
            root.put(at.join("resource"), "0x0 0x0 0x0\n0x0 0x0 0x0\n0x00000001fe000000 0x1fe000fff 0x14220c\n");
            if is_virtual {
                root.link(at.join("physfn"), "../0000:01:00.1");
                root.folder("/sys/bus/pci/devices/0000:01:00.1");
            }
            let opened = Resource::open(&root, &function, bdf);
            assert_eq!(opened.is_ok(), is_measured, "{low:#x} {high:#x}: {opened:?}");
            let Ok(mut probe) = opened else { continue };
            // A reset during the run.
            let cpus: pciescope_core::CpuList = [sys::current_cpu()].into_iter().collect();
            let slice = Slice { cpus, count: 0, duration_ns: 60_000_000_000 };
            let plan = MmioPlan::reads(bdf, 2, 0x8, 4);
            let lost = std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    let config = OpenOptions::new().write(true).open(root.path(at.join("config"))).unwrap();
                    config.write_all_at(&0xf_0000_000c_u64.to_le_bytes(), 0x18).unwrap();
                });
                probe.mmio(&plan, &slice, &Silent).unwrap().failure
            });
            assert_eq!(lost.map(|failure| failure.code), Some("reset".to_owned()), "{low:#x} {high:#x}");
        }
    }

    #[test]
    fn beside_a_driver_it_reads_the_harmless_register_and_nothing_else() {
        let (root, bdf) = (Tree::new(), "0000:01:00.0".parse().unwrap());
        let folder = crate::pci::folder(bdf);
        let write = |file: &str, text: &[u8]| root.put(folder.join(file), text);
        root.link(folder.join("driver"), "../../drivers/nvidia");
        for (file, text) in [("enable", "1"), ("power_state", "D0"), ("power/control", "on")] {
            write(file, text.as_bytes());
        }
        let mut config = vec![0xde, 0x10, 0x35, 0x23, 0x06, 0x04];
        config.resize(256, 0);
        write("config", &config);
        write("resource0", &[0x5a; 0x1000]);
        let bar = Bar { number: 0, size_bytes: 0x1000, is_memory: true, ..Bar::default() };
        let gpu = Function { vendor: 0x10de, device: 0x2335, class: 0x03_0200, bars: vec![bar], ..Function::default() };
        let open = |function: &Function| Resource::open(&root, function, bdf);
        let told = |error: Error| format!("{error}: {}", error.source().map(ToString::to_string).unwrap_or_default());

        let mut probe = open(&gpu).unwrap();
        assert_eq!(probe.read(0, 0, 4).unwrap(), 0x5a5a_5a5a);
        for refused in [probe.read(0, 4, 4), probe.read(0, 0, 8), probe.write(0, 0, 4, 1).map(|()| 0)] {
            let why = told(refused.unwrap_err());
            assert!(why.contains("only PMC_BOOT_0 may be read, at BAR0+0x0"), "{why}");
        }
        drop(probe);
        let read = |file: &str| std::fs::read(root.path(folder.join(file))).unwrap();
        assert_eq!(read("resource0"), vec![0x5a; 0x1000]);
        assert_eq!(read("config"), config, "the driver's device was changed");
        // Another vendor's has no such register; a device that sleeps, or may, is not read.
        let why = told(open(&Function { vendor: 0x1002, ..gpu.clone() }).unwrap_err());
        assert!(why.contains("the driver nvidia holds the BARs"), "{why}");
        for (file, awake, asleep, reason) in [
            ("power_state", "D0", "D3hot", "power state is D3hot"),
            ("enable", "1", "0", "does not decode its BARs"),
            ("power/control", "on", "auto", "may fall asleep: `echo on > "),
        ] {
            write(file, asleep.as_bytes());
            let why = told(open(&gpu).unwrap_err());
            assert!(why.contains(reason), "{why}");
            write(file, awake.as_bytes());
        }
        std::fs::remove_file(root.path(folder.join("power_state"))).unwrap();
        assert!(told(open(&gpu).unwrap_err()).contains("power state is unknown"), "Linux before 5.11");
        write("power_state", b"D0");
        let mut off = config.clone();
        off[4] = 0x04;
        write("config", &off);
        assert!(told(open(&gpu).unwrap_err()).contains("does not decode"), "memory space off");
        write("config", &config);
        open(&gpu).unwrap();
        std::fs::remove_file(root.path(folder.join("driver"))).unwrap();
        root.link(folder.join("driver"), "../../drivers/vfio-pci");
        assert!(told(open(&gpu).unwrap_err()).contains("a guest or a program may have"), "vfio");
        // Lockdown comes first.
        root.put("/sys/kernel/security/lockdown", "none [integrity]\n");
        assert!(told(open(&gpu).unwrap_err()).contains("locked down"));
    }

    #[test]
    fn the_command_register_is_put_back() {
        let (root, bdf) = (Tree::new(), "0000:01:00.0".parse().unwrap());
        let folder = folder(&root, bdf);
        root.folder(crate::pci::folder(bdf));
        let config = |command: u16| {
            let mut bytes = vec![0x86, 0x80, 0xd3, 0x10];
            bytes.extend(command.to_le_bytes());
            bytes.resize(64, 0);
            bytes
        };
        // The kernel's pci_disable_device leaves memory decoding on, and clears bus mastering, which firmware may have set.
        // Where another user had enabled the device, the register is not ours to change.
        for (enable, left, expected) in [("0\n", 0x0002, 0x0004), ("1\n", 0x0006, 0x0006)] {
            std::fs::write(folder.join("enable"), enable).unwrap();
            std::fs::write(folder.join("config"), config(0x0004)).unwrap();
            let open = Resource::open(&root, &Function::default(), bdf).unwrap();
            std::fs::write(folder.join("config"), config(left)).unwrap();
            drop(open);
            assert_eq!(std::fs::read(folder.join("config")).unwrap(), config(expected), "enable was {enable:?}");
        }
    }
}
