//! Which backend measures, and why the others do not.

use std::error::Error as _;
use std::fmt;
use std::str::FromStr;

use pciescope_core::{Bdf, Function, IrqSource};

use super::Probe;
use super::fake::{Fake, Options};
use super::kmod::{self, Kmod};
use super::resource::{self, Resource};
use super::sysfs::Sysfs;
use super::vfio::{self, Vfio};
use crate::{Error, Root};

/// What the user asked for with `--backend`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Backend {
    /// The first that can: the module, VFIO, the sysfs resource file, sysfs configuration space.
    #[default]
    Auto,
    /// The kernel module pcilat.
    Kmod,
    /// VFIO from user space.
    Vfio,
    /// The BAR mapped through sysfs.
    Resource,
    /// Configuration space read through sysfs.
    Sysfs,
    /// A synthetic device.
    Fake(Options),
}

impl Backend {
    /// Whether the machine itself is synthetic too.
    pub fn is_fake(&self) -> bool {
        matches!(self, Backend::Fake(_))
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(match text {
            "auto" => Backend::Auto,
            "kmod" => Backend::Kmod,
            "vfio" => Backend::Vfio,
            "resource" => Backend::Resource,
            "sysfs" => Backend::Sysfs,
            "fake" => Backend::Fake(Options::default()),
            _ => match text.strip_prefix("fake:") {
                Some(options) => Backend::Fake(options.parse()?),
                None => {
                    return Err(Error::Backend { text: text.to_owned(), why: "there is none of this name".to_owned() });
                }
            },
        })
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options;
        f.pad(match self {
            Backend::Auto => "auto",
            Backend::Kmod => "kmod",
            Backend::Vfio => "vfio",
            Backend::Resource => "resource",
            Backend::Sysfs => "sysfs",
            Backend::Fake(o) if *o == Options::default() => "fake",
            Backend::Fake(o) => {
                options = format!("fake:{o}");
                &options
            }
        })
    }
}

/// What a probe is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Timed register accesses.
    Mmio,
    /// Timed configuration reads.
    Path,
    /// Timed interrupts from this source.
    Irq(IrqSource),
    /// Single register accesses.
    Registers,
}

impl Need {
    /// What follows "cannot" in a refusal.
    pub fn what(self) -> &'static str {
        match self {
            Need::Mmio => "time register accesses",
            Need::Path => "time configuration reads",
            Need::Irq(IrqSource::Hardware) => "time interrupts that the device sends",
            Need::Irq(IrqSource::Retrigger) => "time interrupts that the interrupt controller repeats",
            Need::Irq(IrqSource::Inject) => "time interrupts that the kernel injects",
            Need::Irq(IrqSource::Loopback) => "time VFIO's own eventfd trigger",
            Need::Registers => "read and write registers",
        }
    }
}

/// A probe that is ready, and how it was chosen.
pub struct Opened {
    /// The probe.
    pub probe: Box<dyn Probe>,
    /// Why this backend, in words.
    pub why: String,
    /// The backends that were tried before, with the reason of each.
    pub refused: Vec<(&'static str, String)>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("probe", &self.probe.backend())
            .field("why", &self.why)
            .field("refused", &self.refused)
            .finish()
    }
}

/// Opens `function` with a backend that can do what is needed.
///
/// Nothing is bound or unbound here: that is the caller's decision (`bind`).
///
/// # Errors
/// The refusal of the backend that was asked for; with [`Backend::Auto`], [`Error::NoBackend`] with all reasons.
pub fn open(root: &Root, function: &Function, backend: &Backend, need: Need) -> Result<Opened, Error> {
    if let Backend::Fake(options) = backend {
        return Ok(Opened { probe: Box::new(Fake::open(options)?), why: ASKED_FOR.to_owned(), refused: Vec::new() });
    }
    let bdf = function.bdf.ok_or_else(|| Error::Backend {
        text: backend.to_string(),
        why: format!("{} has no address", function.name),
    })?;
    if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.backend() == *backend) {
        if !kind.can(need) {
            let why = "it has no such test".to_owned();
            return Err(Error::Unsupported { bdf, backend: kind.name(), what: need.what(), why });
        }
        let probe = kind.open(root, function, bdf)?;
        return Ok(Opened { probe, why: ASKED_FOR.to_owned(), refused: Vec::new() });
    }
    let mut refused = Vec::new();
    for kind in Kind::ALL {
        let opened = match kind.fits(root, bdf, need) {
            Ok(why) => kind.open(root, function, bdf).map(|probe| (probe, why)).map_err(|error| with_cause(&error)),
            Err(why) => Err(why),
        };
        match opened {
            Ok((probe, why)) => return Ok(Opened { probe, why, refused }),
            Err(why) => refused.push((kind.name(), why)),
        }
    }
    let driver = match need {
        Need::Irq(IrqSource::Loopback) => "vfio-pci",
        Need::Irq(IrqSource::Retrigger | IrqSource::Inject) => "pcilat",
        _ if resource::is_locked_down(root) => "vfio-pci",
        _ => "pcilat",
    };
    let hint = Some(format!("`pciescope bind {bdf} --driver {driver}` hands it over; `unbind` gives it back"));
    Err(Error::NoBackend { bdf, what: need.what(), reasons: refused, hint })
}

const ASKED_FOR: &str = "it was asked for";

/// The backends of real machines, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Kmod,
    Vfio,
    Resource,
    Sysfs,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Kmod, Kind::Vfio, Kind::Resource, Kind::Sysfs];

    fn name(self) -> &'static str {
        match self {
            Kind::Kmod => "kmod",
            Kind::Vfio => "vfio",
            Kind::Resource => "resource",
            Kind::Sysfs => "sysfs",
        }
    }

    fn backend(self) -> Backend {
        match self {
            Kind::Kmod => Backend::Kmod,
            Kind::Vfio => Backend::Vfio,
            Kind::Resource => Backend::Resource,
            Kind::Sysfs => Backend::Sysfs,
        }
    }

    /// Whether the backend has this test at all.
    fn can(self, need: Need) -> bool {
        match (self, need) {
            (Kind::Kmod, Need::Irq(IrqSource::Loopback)) => false,
            (Kind::Kmod, _) => true,
            (Kind::Vfio, Need::Path | Need::Irq(IrqSource::Retrigger | IrqSource::Inject)) => false,
            (Kind::Vfio, _) => true,
            (Kind::Resource, _) => matches!(need, Need::Mmio | Need::Registers),
            (Kind::Sysfs, _) => need == Need::Path,
        }
    }

    /// Why the backend fits this function as it is bound now, or why it does not.
    fn fits(self, root: &Root, bdf: Bdf, need: Need) -> Result<String, String> {
        if !self.can(need) {
            return Err(format!("it cannot {}", need.what()));
        }
        let driver = resource::driver(root, bdf);
        let held = match &driver {
            Some(driver) => format!("the function is bound to {driver}"),
            None => "the function is bound to no driver".to_owned(),
        };
        match self {
            Kind::Kmod if driver.as_deref() != Some("pcilat") => Err(held),
            Kind::Kmod if !kmod::node(root, bdf).exists() => Err("the module made no node for it".to_owned()),
            Kind::Vfio if !driver.as_deref().is_some_and(|name| name.contains("vfio")) => Err(held),
            Kind::Vfio if vfio::group_of(root, bdf).is_none() => Err("the function has no IOMMU group".to_owned()),
            Kind::Kmod | Kind::Vfio => Ok(held),
            Kind::Resource => match resource::refusal(root, bdf) {
                Some(why) => Err(why),
                None => Ok("no driver holds the function, and the kernel is not locked down".to_owned()),
            },
            Kind::Sysfs => Ok("reading configuration space through sysfs needs no driver; it is coarse".to_owned()),
        }
    }

    fn open(self, root: &Root, function: &Function, bdf: Bdf) -> Result<Box<dyn Probe>, Error> {
        Ok(match self {
            Kind::Kmod => Box::new(Kmod::open(root, function, bdf)?),
            Kind::Vfio => Box::new(Vfio::open(root, function, bdf)?),
            Kind::Resource => Box::new(Resource::open(root, function, bdf)?),
            Kind::Sysfs => Box::new(Sysfs::open(root, function, bdf)?),
        })
    }
}

/// An error and what caused it, in one text.
fn with_cause(error: &Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BDF: &str = "0000:01:00.0";

    fn function() -> Function {
        Function { bdf: Some(BDF.parse().unwrap()), ..Function::default() }
    }

    /// A machine with one function.
    fn machine(driver: Option<&str>, lockdown: &str) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let device = root.path(format!("/sys/bus/pci/devices/{BDF}"));
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("config"), [0x34, 0x12, 0x0e, 0x5c]).unwrap();
        std::fs::write(device.join("enable"), "0\n").unwrap();
        std::fs::create_dir_all(root.path("/sys/kernel/security")).unwrap();
        std::fs::write(root.path("/sys/kernel/security/lockdown"), lockdown).unwrap();
        if let Some(driver) = driver {
            std::os::unix::fs::symlink(format!("../../drivers/{driver}"), device.join("driver")).unwrap();
        }
        (folder, root)
    }

    fn auto(root: &Root, need: Need) -> Result<Opened, Error> {
        open(root, &function(), &Backend::Auto, need)
    }

    #[test]
    fn a_backend_is_printed_as_it_is_read() {
        for text in ["auto", "kmod", "vfio", "resource", "sysfs", "fake", "fake:seed=7,cpus=4,slow=1000ns"] {
            assert_eq!(text.parse::<Backend>().unwrap().to_string(), text);
        }
        let error = "kernel".parse::<Backend>().unwrap_err();
        assert!(error.hint().unwrap().contains("kmod, vfio"), "{error}");
        assert!("fake:bogus".parse::<Backend>().unwrap_err().to_string().contains("bogus"));
    }

    #[test]
    fn a_held_function_is_refused_with_every_reason_and_a_way_out() {
        let (_folder, root) = machine(Some("nvme"), "[none] integrity confidentiality\n");
        let error = auto(&root, Need::Mmio).unwrap_err();
        let text = error.to_string();
        for part in
            [BDF, "time register accesses", "kmod: the function is bound to nvme", "vfio:", "resource:", "sysfs:"]
        {
            assert!(text.contains(part), "{part:?} is missing in {text}");
        }
        assert!(error.hint().unwrap().contains("bind 0000:01:00.0 --driver pcilat"));
        let (_folder, locked) = machine(Some("nvme"), "none [integrity] confidentiality\n");
        assert!(auto(&locked, Need::Mmio).unwrap_err().hint().unwrap().contains("--driver vfio-pci"));
    }

    #[test]
    fn a_free_function_is_mapped_unless_the_kernel_is_locked_down() {
        let (_folder, root) = machine(None, "[none] integrity confidentiality\n");
        let opened = auto(&root, Need::Registers).unwrap();
        assert_eq!(opened.probe.backend(), "resource");
        assert_eq!(opened.refused.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["kmod", "vfio"]);
        let enable = root.path(format!("/sys/bus/pci/devices/{BDF}/enable"));
        assert_eq!(std::fs::read_to_string(&enable).unwrap(), "1");
        drop(opened);
        assert_eq!(std::fs::read_to_string(&enable).unwrap(), "0");

        let (_folder, root) = machine(None, "none [integrity] confidentiality\n");
        assert!(auto(&root, Need::Registers).unwrap_err().to_string().contains("resource: the kernel is locked down"));
        let error = open(&root, &function(), &Backend::Resource, Need::Registers).unwrap_err();
        assert!(error.to_string().contains("locked down"), "{error}");
    }

    #[test]
    fn a_path_needs_no_driver_of_ours() {
        let (_folder, root) = machine(Some("nvme"), "none [integrity] confidentiality\n");
        let opened = auto(&root, Need::Path).unwrap();
        assert_eq!(opened.probe.backend(), "sysfs");
        assert!(opened.why.contains("coarse"));
    }

    #[test]
    fn what_a_backend_cannot_do_is_refused_before_the_device_is_touched() {
        let (_folder, root) = machine(None, "");
        let refused = |backend: Backend, need| {
            let error = open(&root, &function(), &backend, need).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        };
        refused(Backend::Sysfs, Need::Mmio);
        refused(Backend::Resource, Need::Path);
        refused(Backend::Vfio, Need::Irq(IrqSource::Retrigger));
        refused(Backend::Kmod, Need::Irq(IrqSource::Loopback));
    }
}
