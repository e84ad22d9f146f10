//! Which backend measures, and why the others do not.

use std::fmt;
use std::str::FromStr;

use pciescope_core::{Bdf, Function, IrqSource};

use super::Probe;
use super::fake::{Fake, Options};
use super::kmod::Kmod;
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
    let bdf = function.bdf.unwrap_or(Bdf { domain: 0, bus: 0, device: 0, function: 0 });
    let asked = |probe: Box<dyn Probe>| Opened { probe, why: "asked for".to_owned(), refused: Vec::new() };
    match backend {
        Backend::Fake(options) => Ok(asked(Box::new(Fake::open(options)?))),
        Backend::Kmod => Ok(asked(Box::new(Kmod::open(root, function, bdf)?))),
        other => {
            let _ = need;
            Err(Error::Backend { text: other.to_string(), why: "it is not built yet".to_owned() })
        }
    }
}
