//! A BAR mapped through the `resourceN` file of sysfs: no driver, no module, no interrupts.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use pciescope_core::record::Failure;
use pciescope_core::{Bdf, Function, MmioPlan};

use super::register::{self, Window};
use super::sys::{self, Mapping};
use super::{Portion, Probe, Taken, Watch, failure};
use crate::{Error, Root};

/// A function without a driver, memory decoding on while this lives.
#[derive(Debug)]
pub struct Resource {
    bdf: Bdf,
    folder: PathBuf,
    config: File,
    bars: Vec<pciescope_core::Bar>,
    emulated: bool,
    /// Whether `enable` was 0 before: it is put back.
    was_disabled: bool,
    window: Option<(u8, Window)>,
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

/// Why the kernel refuses to map; `None` if nothing is known against it.
pub fn refusal(root: &Root, bdf: Bdf) -> Option<String> {
    // Lockdown is named first: it remains when the driver is gone.
    if is_locked_down(root) {
        return Some("the kernel is locked down (Secure Boot) and forbids mapping BARs".to_owned());
    }
    let driver = driver(root, bdf)?;
    Some(format!("the driver {driver} holds the BARs; most kernels then forbid mapping them"))
}

impl Resource {
    /// Opens a function that no driver holds, and turns its memory decoding on.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with a driver or under lockdown; [`Error::Read`], [`Error::Write`] for sysfs.
    pub fn open(root: &Root, function: &Function, bdf: Bdf) -> Result<Self, Error> {
        if let Some(why) = refusal(root, bdf) {
            return Err(Error::Unsupported { bdf, backend: "resource", what: "map a BAR", why });
        }
        let folder = folder(root, bdf);
        let path = folder.join("config");
        let config = File::open(&path).map_err(|source| Error::Read { path, source })?;
        let enable = folder.join("enable");
        let before = std::fs::read_to_string(&enable).map_err(|source| Error::Read { path: enable.clone(), source })?;
        let was_disabled = before.trim() == "0";
        if was_disabled {
            write(&enable, "1")?;
        }
        Ok(Resource {
            bdf,
            folder,
            config,
            bars: function.bars.clone(),
            emulated: function.emulated.is_some(),
            was_disabled,
            window: None,
        })
    }

    fn window(&mut self, bar: u8, offset: u64, width: u8) -> Result<&Window, Error> {
        let found = self.bars.iter().find(|b| b.number == bar);
        let Some(found) = found.filter(|b| b.is_memory) else {
            let why = "the device has no such memory BAR".to_owned();
            return Err(Error::Plan { bdf: self.bdf, field: "BAR", value: bar.to_string(), why });
        };
        register::check(self.bdf, bar, offset, width, found.size_bytes)?;
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
            Error::Call {
                bdf: self.bdf,
                backend: "resource",
                what: format!("map {}", path.display()),
                source,
                hint: Some(hint.to_owned()),
            }
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

/// Why a device does not answer configuration reads; `None` where it does.
pub fn presence(config: &File, bdf: Bdf) -> Option<Failure> {
    let mut id = [0; 4];
    match config.read_at(&mut id, 0) {
        Ok(4) if id != [0xff; 4] => None,
        _ => Some(failure::removed(bdf)),
    }
}

fn write(path: &Path, value: &str) -> Result<(), Error> {
    std::fs::write(path, value).map_err(|source| Error::Write {
        path: path.to_owned(),
        value: value.to_owned(),
        source,
    })
}

impl Drop for Resource {
    fn drop(&mut self) {
        self.window = None;
        if self.was_disabled {
            // A device that was removed has no such file any more.
            let _ = write(&self.folder.join("enable"), "0");
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

    fn mmio(&mut self, plan: &MmioPlan, portion: &Portion, watch: &dyn Watch) -> Result<Taken, Error> {
        let (bdf, what) = (self.bdf, ("resource", self.emulated));
        let path = self.folder.join("config");
        let config = self.config.try_clone().map_err(|source| Error::Read { path, source })?;
        let window = self.window(plan.bar, plan.offset, plan.width)?;
        window.measure(what, plan, portion, &|| presence(&config, bdf), watch)
    }

    fn read(&mut self, bar: u8, offset: u64, width: u8) -> Result<u64, Error> {
        Ok(self.window(bar, offset, width)?.read(offset, width))
    }

    fn write(&mut self, bar: u8, offset: u64, width: u8, value: u64) -> Result<(), Error> {
        self.window(bar, offset, width)?.write(offset, width, value);
        Ok(())
    }
}
