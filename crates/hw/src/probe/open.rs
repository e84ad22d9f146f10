//! Chooses the backend that measures, and says why the others cannot.

use crate::config::Config;
use pciescope_core::text::chain;
use std::fmt;
use std::str::FromStr;

use pciescope_core::{Bdf, Function, IrqSource};
use serde::Serialize;

use super::Probe;
use super::fake::{Fake, Options};
use super::kmod::{self, Kmod};
use super::resource::{self, Resource};
use super::sysfs::Sysfs;
use super::vfio::Vfio;
use crate::bind::in_use::{in_use, in_words};
use crate::bind::{Driver, group_mates};
use crate::{Error, Root, pci};

/// What the user asked for with `--backend`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Backend {
    /// The first of [`Kind::ALL`] that can.
    #[default]
    Auto,
    /// This one.
    Real(Kind),
    /// A synthetic device.
    Fake(Options),
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let real = || Kind::ALL.into_iter().find(|kind| kind.name() == text).map(Backend::Real);
        match (text, text.strip_prefix("fake:")) {
            ("auto", _) => Ok(Backend::Auto),
            ("fake", _) => Ok(Backend::Fake(Options::default())),
            (_, Some(options)) => Ok(Backend::Fake(options.parse()?)),
            _ => real().ok_or_else(|| {
                let why = "there is none of this name".to_owned();
                Error::Backend { text: text.to_owned(), why }
            }),
        }
    }
}

/// What a probe must be able to do.
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

    /// The driver that lets one of the backends do it on this machine; `None` where that needs no driver.
    pub fn driver(self, root: &Root) -> Option<Driver> {
        match self {
            Need::Irq(IrqSource::Loopback) => Some(Driver::VfioPci),
            Need::Irq(IrqSource::Retrigger | IrqSource::Inject) => Some(Driver::Pcilat),
            _ if Driver::Pcilat.is_loaded(root) => Some(Driver::Pcilat),
            // VFIO has no timed configuration reads; sysfs has them with every driver.
            Need::Path => None,
            _ if Driver::VfioPci.is_loaded(root) || resource::is_locked_down(root) => Some(Driver::VfioPci),
            _ => Some(Driver::Pcilat),
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
    let asked_for = |probe| Opened { probe, why: "it was asked for".to_owned(), refused: Vec::new() };
    let bdf = || {
        let why = "the function has no address".to_owned();
        function.bdf.ok_or_else(|| Error::Backend { text: function.name.clone(), why })
    };
    match backend {
        Backend::Fake(options) => Ok(asked_for(Box::new(Fake::open(options)?))),
        Backend::Real(kind) if !kind.can(need) => {
            let why = "it has no such test".to_owned();
            Err(Error::Unsupported { bdf: bdf()?, backend: kind.name(), what: need.what(), why })
        }
        Backend::Real(kind) => kind.open(root, function, bdf()?).map(asked_for),
        Backend::Auto => first_that_can(root, function, bdf()?, need),
    }
}

fn first_that_can(root: &Root, function: &Function, bdf: Bdf, need: Need) -> Result<Opened, Error> {
    let mut refused = Vec::new();
    for kind in Kind::ALL {
        let opened = match kind.judge(root, function) {
            _ if !kind.can(need) => Err(format!("it cannot {}", need.what())),
            Verdict::Ready(why) => {
                kind.open(root, function, bdf).map(|probe| (probe, why)).map_err(|error| chain(&error))
            }
            Verdict::Needs(_) => {
                Err(format!("the function is bound to {}", function.driver.as_deref().unwrap_or("no driver")))
            }
            Verdict::Never(why) => Err(why),
        };
        match opened {
            Ok((probe, why)) => return Ok(Opened { probe, why, refused }),
            Err(why) => refused.push((kind.name(), why)),
        }
    }
    let driver = need.driver(root).unwrap_or(Driver::Pcilat);
    let uses = in_use(root, function);
    let has_no_iommu = driver == Driver::VfioPci && crate::environment::iommus(root).is_empty();
    let hint = if has_no_iommu {
        "vfio-pci could, but needs an IOMMU: switch it on (intel_iommu=on), boot, `modprobe vfio-pci`, add --bind"
            .to_owned()
    } else if uses.is_empty() {
        format!("add --bind to hand it over for this run (for many runs: `pciescope bind {bdf} --driver {driver}`)")
    } else {
        format!("it is in use ({}): stop that first, then add --bind", in_words(&uses))
    };
    Err(Error::NoBackend { bdf, what: need.what(), reasons: refused, hint: Some(hint) })
}

/// Whether a backend can measure one function, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Availability {
    /// The backend's name: `kmod`, `vfio`, `resource`, `sysfs`.
    pub backend: &'static str,
    /// Whether it could measure, with the right privilege and after the binding that `why` names.
    pub usable: bool,
    /// What it can do or what it needs, or why it cannot.
    pub why: String,
}

/// Every backend, and whether it can measure a function; the best first. Nothing is opened or changed.
pub fn backends(root: &Root, function: &Function) -> Vec<Availability> {
    let config = function.bdf.map(|bdf| Config::load(root, bdf)).unwrap_or_default();
    let judged = Kind::ALL.into_iter().map(|kind| {
        let (usable, why) = match kind.judge(root, function) {
            _ if config.is_gone() && !config.is_asleep() => (false, "it does not answer".to_owned()),
            Verdict::Ready(why) => (true, why),
            Verdict::Needs(driver) if driver.is_loaded(root) => (true, format!("after it is bound to {driver}")),
            Verdict::Needs(driver) => (false, format!("the driver {driver} is not loaded")),
            Verdict::Never(why) => (false, why),
        };
        Availability { backend: kind.name(), usable, why }
    });
    judged.collect()
}

pciescope_core::named! {
    /// The backends of real machines, in the order in which they are tried.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Kind {
        /// The kernel module pcilat.
        Kmod => "kmod",
        /// VFIO from user space.
        Vfio => "vfio",
        /// The BAR mapped through sysfs.
        Resource => "resource",
        /// Configuration space read through sysfs.
        Sysfs => "sysfs",
    }
    /// The name on the command line and in records.
    fn name
}

/// Whether a backend can measure a function as it is now.
enum Verdict {
    /// It can, for this reason.
    Ready(String),
    /// It could if the function were bound to this driver.
    Needs(Driver),
    /// It cannot, for this reason.
    Never(String),
}

impl Kind {
    /// The driver that it works through, if it does.
    pub fn driver(self) -> Option<Driver> {
        match self {
            Kind::Kmod => Some(Driver::Pcilat),
            Kind::Vfio => Some(Driver::VfioPci),
            Kind::Resource | Kind::Sysfs => None,
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

    /// Judges from sysfs alone, without opening anything.
    fn judge(self, root: &Root, function: &Function) -> Verdict {
        let never = |why: &str| Verdict::Never(why.to_owned());
        let Some(bdf) = function.bdf else { return never("the function has no address") };
        if self != Kind::Sysfs && function.class >> 16 == 0x06 {
            return never("bridges are measured as hops of a path only");
        }
        let driver = function.driver.as_deref().unwrap_or_default();
        let bound = || Verdict::Ready(format!("the function is bound to {driver}"));
        match self {
            Kind::Kmod if driver != Driver::Pcilat.name() => Verdict::Needs(Driver::Pcilat),
            Kind::Kmod if !kmod::node(root, bdf).exists() => never("the module made no node for it"),
            Kind::Kmod => bound(),
            Kind::Vfio => {
                let Some(group) = function.iommu_group else {
                    let may_come = pci::is_grouped_by_probe(root) && driver != Driver::VfioPci.name();
                    return if may_come {
                        Verdict::Needs(Driver::VfioPci)
                    } else {
                        never("the function is in no IOMMU group")
                    };
                };
                // Also the drivers of vendors, such as mlx5-vfio-pci.
                if driver.contains("vfio") {
                    return bound();
                }
                match group_mates(root, bdf, group) {
                    mates if mates.is_empty() => Verdict::Needs(Driver::VfioPci),
                    mates => Verdict::Never(format!("IOMMU group {group} also holds {}", mates.join(", "))),
                }
            }
            Kind::Resource if !function.bars.iter().any(|bar| bar.is_memory) => never("the function has no memory BAR"),
            Kind::Resource => match resource::refusal(root, bdf) {
                Some(why) => Verdict::Never(why),
                None => Verdict::Ready("reads and writes from user space: no driver holds the BARs".to_owned()),
            },
            Kind::Sysfs if root.exists(pci::folder(bdf).join("config")) => {
                Verdict::Ready("configuration reads along the path, coarse".to_owned())
            }
            Kind::Sysfs => never("there is no file `config`"),
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

#[cfg(test)]
mod tests {
    use pciescope_core::Bar;

    use super::*;
    use crate::test::Tree;

    const BDF: &str = "0000:01:00.0";

    /// The function as it is now.
    fn function(root: &Root) -> Function {
        let bdf = BDF.parse().unwrap();
        let memory = Bar { number: 0, size_bytes: 4096, is_memory: true, is_64bit: false, is_prefetchable: false };
        let driver = resource::driver(root, bdf);
        Function { bdf: Some(bdf), class: 0x01_0802, driver, bars: vec![memory], ..Function::default() }
    }

    /// A machine with one function.
    fn machine(driver: Option<&str>, lockdown: &str) -> Tree {
        let device = format!("/sys/bus/pci/devices/{BDF}");
        let tree = Tree::of(&[("/sys/kernel/security/lockdown", lockdown), (&format!("{device}/enable"), "0\n")]);
        tree.put(format!("{device}/config"), [0x34, 0x12, 0x0e, 0x5c, 0, 0, 0, 0]);
        if let Some(driver) = driver {
            tree.link(format!("{device}/driver"), format!("../../drivers/{driver}"));
        }
        tree
    }

    fn auto(root: &Root, need: Need) -> Result<Opened, Error> {
        open(root, &function(root), &Backend::Auto, need)
    }

    #[test]
    fn a_backend_is_read_by_its_name() {
        let read = |text: &str| text.parse::<Backend>().unwrap();
        assert_eq!(read("auto"), Backend::Auto);
        for kind in Kind::ALL {
            assert_eq!(read(kind.name()), Backend::Real(kind));
        }
        assert_eq!(read("fake"), Backend::Fake(Options::default()));
        assert_eq!(read("fake:seed=7"), Backend::Fake(Options { seed: 7, ..Options::default() }));
        let error = "kernel".parse::<Backend>().unwrap_err();
        assert!(error.hint().unwrap().contains("kmod, vfio"), "{error}");
        assert!("fake:bogus".parse::<Backend>().unwrap_err().to_string().contains("bogus"));
    }

    #[test]
    fn a_held_function_is_refused_with_every_reason_and_a_way_out() {
        let root = machine(Some("nvme"), "[none] integrity confidentiality\n");
        let error = auto(&root, Need::Mmio).unwrap_err();
        let text = error.to_string();
        for part in
            [BDF, "time register accesses", "kmod: the function is bound to nvme", "vfio:", "resource:", "sysfs:"]
        {
            assert!(text.contains(part), "{part:?} is missing in {text}");
        }
        assert!(error.hint().unwrap().contains("bind 0000:01:00.0 --driver pcilat"));
        let locked = machine(Some("nvme"), "none [integrity] confidentiality\n");
        assert!(auto(&locked, Need::Mmio).unwrap_err().hint().unwrap().contains("needs an IOMMU"));
        locked.folder("/sys/class/iommu/dmar0");
        assert!(auto(&locked, Need::Mmio).unwrap_err().hint().unwrap().contains("--driver vfio-pci"));
    }

    #[test]
    fn a_free_function_is_mapped_unless_the_kernel_is_locked_down() {
        let root = machine(None, "[none] integrity confidentiality\n");
        let opened = auto(&root, Need::Registers).unwrap();
        assert_eq!(opened.probe.backend(), "resource");
        assert_eq!(opened.refused.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["kmod", "vfio"]);
        let enable = root.path(format!("/sys/bus/pci/devices/{BDF}/enable"));
        assert_eq!(std::fs::read_to_string(&enable).unwrap(), "1");
        drop(opened);
        assert_eq!(std::fs::read_to_string(&enable).unwrap(), "0");

        let root = machine(None, "none [integrity] confidentiality\n");
        assert!(auto(&root, Need::Registers).unwrap_err().to_string().contains("resource: the kernel is locked down"));
        let error = open(&root, &function(&root), &Backend::Real(Kind::Resource), Need::Registers).unwrap_err();
        assert!(error.to_string().contains("locked down"), "{error}");
    }

    #[test]
    fn a_path_needs_no_driver_of_ours() {
        let root = machine(Some("nvme"), "none [integrity] confidentiality\n");
        let opened = auto(&root, Need::Path).unwrap();
        assert_eq!(opened.probe.backend(), "sysfs");
        assert!(opened.why.contains("coarse"));
    }

    #[test]
    fn what_a_backend_cannot_do_is_refused_before_the_device_is_touched() {
        let root = machine(None, "");
        let refused = |kind, need| {
            let error = open(&root, &function(&root), &Backend::Real(kind), need).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        };
        refused(Kind::Sysfs, Need::Mmio);
        refused(Kind::Resource, Need::Path);
        refused(Kind::Vfio, Need::Irq(IrqSource::Retrigger));
        refused(Kind::Kmod, Need::Irq(IrqSource::Loopback));
    }
}
