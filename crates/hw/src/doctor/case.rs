//! What checks look at, and what they write into.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pciescope_core::{Bdf, Environment, Evidence, Finding, Function, Severity, WatchedLink};

use super::{Counted, Readings};
use crate::config::Config;
use crate::express::{self, Express};
use crate::{Root, pci};

/// What to do where privilege is lacking.
pub(super) const AS_ROOT: &str = "run it as root (sudo pciescope doctor)";

/// The experiment that tells whether settings help, behind a cure; `of` is the function.
pub(super) fn tried(cure: &str, of: impl std::fmt::Display, tries: &str) -> String {
    format!("{cure}; whether that helps: pciescope tune {of} {tries}")
}

/// What to do where a file of procfs is missing.
pub(super) const WITH_PROC: &str = "run it where /proc is mounted";

/// Longest value that is kept as evidence, in characters.
const LONGEST_VALUE: usize = 160;

/// The machine, and its functions with their configuration spaces, read once.
pub struct Machine<'a> {
    /// The tree of the machine.
    pub root: &'a Root,
    /// What [`crate::environment::read`] says of it.
    pub environment: &'a Environment,
    /// An earlier reading of counts that may grow, and its age; `None` without `--watch`.
    pub earlier: Option<(&'a Readings, Duration)>,
    /// What hardware and the kernel counted at the ports that both count; `None` without `--watch`.
    pub counted: Option<Vec<Counted>>,
    /// What a recorder saw of links; empty where there is none.
    pub watched: BTreeMap<Bdf, WatchedLink>,
    functions: BTreeMap<Bdf, Known>,
}

/// Who sets a machine up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetUpBy {
    /// A hypervisor.
    Guest,
    /// A device tree.
    Board,
    /// Firmware with a setup of its own.
    Computer,
}

struct Known {
    function: Function,
    config: Config,
}

impl<'a> Machine<'a> {
    /// A machine with these functions; those that a check asks about must have the bridges above them here too.
    pub fn new(root: &'a Root, environment: &'a Environment, functions: Vec<Function>) -> Self {
        let known = |function: Function| {
            let bdf = function.bdf?;
            Some((bdf, Known { config: Config::load(root, bdf), function }))
        };
        Machine {
            root,
            environment,
            earlier: None,
            counted: None,
            watched: BTreeMap::new(),
            functions: functions.into_iter().filter_map(known).collect(),
        }
    }

    /// A function.
    pub fn function(&self, bdf: Bdf) -> Option<&Function> {
        self.functions.get(&bdf).map(|known| &known.function)
    }

    /// All functions, by address.
    pub fn functions(&self) -> impl Iterator<Item = (Bdf, &Function)> {
        self.functions.iter().map(|(bdf, known)| (*bdf, &known.function))
    }

    /// Where the user sets up what the firmware sets up, in words that follow `in`.
    pub(super) fn setup(&self) -> &'static str {
        match self.set_up_by() {
            SetUpBy::Guest => "the hypervisor's settings of this guest",
            SetUpBy::Board => "the board's device tree or firmware",
            SetUpBy::Computer => "the firmware setup",
        }
    }

    /// The first thing to do about a bad contact.
    pub(super) fn reseat(&self) -> &'static str {
        match self.set_up_by() {
            SetUpBy::Guest => "look at the device on the host",
            _ => "reseat the card, if it sits in a slot",
        }
    }

    pub(super) fn set_up_by(&self) -> SetUpBy {
        let has_tree = ["/proc/device-tree", "/sys/firmware/devicetree"].iter().any(|path| self.root.exists(path));
        match self.environment.hypervisor {
            Some(_) => SetUpBy::Guest,
            None if has_tree && !self.root.exists("/sys/class/dmi/id/sys_vendor") => SetUpBy::Board,
            None => SetUpBy::Computer,
        }
    }

    /// The text of a file: without it the check does not apply, and it cannot look where it may not read it.
    pub(super) fn file(&self, path: impl AsRef<Path>) -> Result<String, Unseen> {
        let path = path.as_ref();
        match std::fs::read_to_string(self.root.path(path)) {
            Ok(text) => Ok(text.trim_end().to_owned()),
            Err(why) if why.kind() == ErrorKind::NotFound => not_applicable(format!("there is no {}", path.display())),
            Err(why) => not_checked(format!("{}: {why}", path.display()), AS_ROOT),
        }
    }

    /// A file as evidence; an unreadable one as an empty value.
    pub(super) fn seen(&self, path: &str) -> Evidence {
        seen(path, &self.root.text(path).unwrap_or_default())
    }
}

/// A value and where it stood; a long one is cut.
pub(super) fn seen(source: &str, value: &str) -> Evidence {
    let mut short: String = value.chars().take(LONGEST_VALUE).collect();
    if short.len() < value.len() {
        short.push_str(" ...");
    }
    Evidence { source: source.to_owned(), value: short }
}

/// One function of a machine.
pub struct Case<'a> {
    /// Its machine.
    pub machine: &'a Machine<'a>,
    /// Its address.
    pub bdf: Bdf,
    /// The function.
    pub function: &'a Function,
    pub(super) config: &'a Config,
}

impl<'a> Case<'a> {
    /// A function of a machine; `None` where the machine does not have it.
    pub fn of(machine: &'a Machine<'a>, bdf: Bdf) -> Option<Self> {
        let known = machine.functions.get(&bdf)?;
        Some(Case { machine, bdf, function: &known.function, config: &known.config })
    }

    /// The bridges above that are known, from the root port down.
    pub(super) fn above(&self) -> impl DoubleEndedIterator<Item = Case<'a>> {
        self.function.path.iter().filter_map(|bdf| Case::of(self.machine, *bdf))
    }

    /// The bridge right above.
    pub(super) fn parent(&self) -> Option<Case<'a>> {
        Case::of(self.machine, *self.function.path.last()?)
    }

    /// The functions below the same root port, or the function alone where none is above it.
    pub(super) fn family(&self) -> impl Iterator<Item = Case<'a>> + '_ {
        let top = self.function.path.first().copied().unwrap_or(self.bdf);
        let is_in = move |(bdf, function): &(Bdf, &Function)| *bdf == top || function.path.first() == Some(&top);
        self.machine.functions().filter(is_in).filter_map(|(bdf, _)| Case::of(self.machine, bdf))
    }

    /// The functions right below a bridge.
    pub(super) fn children(&self) -> impl Iterator<Item = Case<'a>> + '_ {
        let is_child = |function: &Function| function.path.last() == Some(&self.bdf);
        self.machine
            .functions()
            .filter(move |(_, function)| is_child(function))
            .filter_map(|(bdf, _)| Case::of(self.machine, bdf))
    }

    pub(super) fn is_bridge(&self) -> bool {
        self.function.is_bridge()
    }

    /// Whether it is a virtual function, several fields of which are reserved: those of its physical function hold.
    pub(super) fn is_virtual(&self) -> bool {
        self.machine.root.exists(self.path("physfn"))
    }

    pub(super) fn path(&self, file: &str) -> PathBuf {
        pci::folder(self.bdf).join(file)
    }

    pub(super) fn text(&self, file: &str) -> Option<String> {
        self.machine.root.text(self.path(file))
    }

    /// A file of its folder as evidence.
    pub(super) fn seen(&self, file: &str) -> Evidence {
        let path = self.path(file);
        seen(&path.to_string_lossy(), &self.machine.root.text(&path).unwrap_or_default())
    }

    /// A register of its configuration space as evidence.
    pub(super) fn register(&self, name: &str, at: usize, value: impl std::fmt::LowerHex) -> Evidence {
        Evidence {
            source: format!("configuration space of {}, {at:#x} ({name})", self.bdf),
            value: format!("{value:#06x}"),
        }
    }

    /// Its PCI Express capability.
    pub(super) fn express(&self) -> Result<Express<'a>, Unseen> {
        self.readable()?;
        self.express_if_readable().map_or_else(|| not_applicable("it has no PCI Express capability"), Ok)
    }

    /// Its PCI Express capability; `None` where there is none or it cannot be read.
    pub(super) fn express_if_readable(&self) -> Option<Express<'a>> {
        Express::of(self.config)
    }

    /// The offset of an extended capability of a PCI Express function, called `name`.
    pub(super) fn extended(&self, id: u16, name: &str) -> Result<usize, Unseen> {
        self.express()?;
        if !self.config.has_extended() {
            return not_checked(
                "only the first 256 bytes of configuration space can be read",
                "boot without pci=nommconf and pci=conf1; in a guest, give it a PCI Express machine",
            );
        }
        let at = express::extended(self.config, id);
        at.map_or_else(|| not_applicable(format!("it has no capability {name}")), Ok)
    }

    /// Whether the capabilities in its configuration space can be read.
    pub(super) fn readable(&self) -> Result<(), Unseen> {
        match self.config.limit() {
            Some(why) if self.config.is_asleep() => not_checked(why, "look again while it is in use; see power-state"),
            Some(why) if self.config.is_gone() => not_checked(why, "see not-answering"),
            Some(why) => not_checked(why, AS_ROOT),
            None => Ok(()),
        }
    }

    /// Not for bridges.
    pub(super) fn not_a_bridge(&self) -> Result<(), Unseen> {
        if self.is_bridge() { not_applicable("it is a bridge") } else { Ok(()) }
    }

    /// Not for virtual functions, the fields of which are reserved.
    pub(super) fn not_virtual(&self) -> Result<(), Unseen> {
        if self.is_virtual() { not_applicable("it is a virtual function") } else { Ok(()) }
    }

    /// Its driver.
    pub(super) fn driver(&self) -> Result<&'a str, Unseen> {
        self.function.driver.as_deref().map_or_else(|| not_applicable("no driver is bound"), Ok)
    }

    /// A file of its folder that has to be there and be readable.
    pub(super) fn file(&self, file: &str) -> Result<String, Unseen> {
        self.machine.file(self.path(file))
    }

    /// The bridge right above, which has to be there.
    pub(super) fn port(&self) -> Result<Case<'a>, Unseen> {
        self.parent().map_or_else(|| not_applicable("no bridge is above it"), Ok)
    }
}

/// What keeps a check from looking at its subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unseen {
    /// There is nothing of the kind that the check looks at.
    NotApplicable {
        /// What there is not.
        why: String,
    },
    /// It exists, or may exist, and the check cannot read it.
    NotChecked {
        /// Why not.
        why: String,
        /// What the user can do so that it is.
        remedy: String,
    },
}

/// The result of a check for one subject: what it found (nothing if all is well), or why it did not look. A finding is
/// valid even if the check could look only at a part.
pub type Verdict = Result<Vec<Found>, Unseen>;

/// The check looked, and all is well.
pub(super) fn fine() -> Verdict {
    Ok(Vec::new())
}

/// The check found something.
pub(super) fn found(found: Found<impl Into<String>, impl Into<String>, impl Into<String>>) -> Verdict {
    let Found { severity, text, evidence, consequence, remedy } = found;
    Ok(vec![Found { severity, text: text.into(), evidence, consequence: consequence.into(), remedy: remedy.into() }])
}

/// There is nothing here that the check could look at.
pub(super) fn not_applicable<T>(why: impl Into<String>) -> Result<T, Unseen> {
    Err(Unseen::NotApplicable { why: why.into() })
}

/// The check could not look.
pub(super) fn not_checked<T>(why: impl Into<String>, remedy: impl Into<String>) -> Result<T, Unseen> {
    Err(Unseen::NotChecked { why: why.into(), remedy: remedy.into() })
}

/// What a check found; the registry adds its name and subject.
#[derive(Debug, Clone)]
pub struct Found<T = String, C = String, R = String> {
    /// How much it matters.
    pub severity: Severity,
    /// What was found, in one sentence.
    pub text: T,
    /// What was read where.
    pub evidence: Vec<Evidence>,
    /// What it does to performance or to a measurement.
    pub consequence: C,
    /// What to do about it.
    pub remedy: R,
}

impl Found {
    /// The finding of a check about its subject; `None` for the machine.
    pub fn by(self, check: &str, bdf: Option<Bdf>) -> Finding {
        Finding {
            check: check.to_owned(),
            severity: self.severity,
            bdf,
            text: self.text,
            evidence: self.evidence,
            consequence: self.consequence,
            remedy: self.remedy,
            silenced: false,
        }
    }
}
