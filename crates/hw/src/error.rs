//! What can go wrong between us and the hardware.

use std::io;
use std::path::{Path, PathBuf};

use pciescope_core::Bdf;
use pciescope_core::record::Failure;

/// The most characters of a foreign file that a message shows.
const MOST_SHOWN: usize = 160;

/// A text in quotation marks, its end cut off if it is long.
fn short(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?} ...", &text[..end]),
    }
}

/// A refusal or failure, with all its facts; [`Error::hint`] says what the user can do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of sysfs, procfs or /dev could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file of sysfs, procfs or /dev could not be written.
    #[error("cannot write {value:?} to {}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// What was to be written.
        value: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file holds something that is not understood.
    #[error("{}: {} is not {what}", path.display(), short(text))]
    Parse {
        /// Which file.
        path: PathBuf,
        /// What it holds.
        text: String,
        /// What was expected.
        what: &'static str,
    },
    /// There is no such PCI function.
    #[error("{0}: no such PCI function")]
    NoSuchFunction(Bdf),
    /// No PCI function has a device of this name.
    #[error("{0}: no PCI function, and no disk, network interface or other device of one")]
    NoSuchName(String),
    /// What is named lies on several functions.
    #[error("{name}: lies on several PCI functions: {}", functions.iter().map(Bdf::to_string).collect::<Vec<_>>().join(", "))]
    Ambiguous {
        /// The name.
        name: String,
        /// Its functions.
        functions: Vec<Bdf>,
    },
    /// A function that has no node of its own, or several.
    #[error("{name}: {}", if nodes.is_empty() { "has no node below /dev".to_owned() } else { format!("has several nodes: {}", nodes.join(", ")) })]
    NoNode {
        /// The function or device, as it was named.
        name: String,
        /// Its nodes.
        nodes: Vec<String>,
    },
    /// An offset outside a BAR.
    #[error("{bdf}: offset {offset:#x} lies outside BAR{bar} ({len:#x} bytes)")]
    OutsideBar {
        /// The function.
        bdf: Bdf,
        /// Its BAR.
        bar: u8,
        /// The offset asked for.
        offset: u64,
        /// The BAR's length in bytes.
        len: u64,
    },
    /// A text that names no backend, or an option that the fake backend does not have.
    #[error("{text:?} is not a backend: {why}")]
    Backend {
        /// What was given.
        text: String,
        /// Which part of it is wrong.
        why: String,
    },
    /// No backend can do what was asked.
    #[error("{bdf}: no backend can {what} ({})", reasons.iter().map(|(name, why)| format!("{name}: {why}")).collect::<Vec<_>>().join("; "))]
    NoBackend {
        /// The function.
        bdf: Bdf,
        /// What was asked.
        what: &'static str,
        /// Each backend with its reason.
        reasons: Vec<(&'static str, String)>,
        /// What the user can do.
        hint: Option<String>,
    },
    /// A plan that cannot be carried out on this machine or device.
    #[error("{bdf}: {field} {value}: {why}")]
    Plan {
        /// The function.
        bdf: Bdf,
        /// Which field of the plan.
        field: &'static str,
        /// Its value.
        value: String,
        /// Why it cannot be.
        why: String,
    },
    /// A system call on a device failed.
    #[error("{bdf}: the {backend} backend could not {what}")]
    Call {
        /// The function.
        bdf: Bdf,
        /// The backend's name.
        backend: &'static str,
        /// What it was about to do.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
        /// What the user can do, where it is known.
        hint: Option<String>,
    },
    /// The device does not answer: what ends a run that is under way too.
    #[error("{}", .0.text)]
    Lost(Failure),
    /// Handing a function to a driver would harm.
    #[error("{bdf}: not handed to {driver}: {why}")]
    Refused {
        /// The function.
        bdf: Bdf,
        /// The driver asked for.
        driver: &'static str,
        /// Why not.
        why: String,
        /// What the user can do, where there is something.
        hint: Option<String>,
    },
    /// A driver is not loaded.
    #[error("{0}: the driver {1} is not loaded")]
    NoDriver(Bdf, &'static str),
    /// A function has been handed over before.
    #[error("{0}: pciescope has handed it to {1} already")]
    BoundAlready(Bdf, String),
    /// A function was not handed over.
    #[error("{0}: pciescope has not handed it to a driver")]
    NotBound(Bdf),
    /// Another process, whose number may be known, works with a function.
    #[error("{0}: another pciescope{who} works with it", who = .1.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    Held(Bdf, Option<u32>),
    /// Another experiment of `tune` runs on this machine; its process may be known.
    #[error("{}: another pciescope tune{who} runs on this machine", .0.display(), who = .1.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    TuneRuns(PathBuf, Option<u32>),
    /// Somebody else has changed a knob during an experiment.
    #[error("{bdf}: somebody else has changed {knob} from {expected} to {now} meanwhile; it is left so")]
    Meanwhile {
        /// The function.
        bdf: Bdf,
        /// The knob.
        knob: String,
        /// What it was set to.
        expected: String,
        /// What it is set to.
        now: String,
    },
    /// The kernel took the request, but the function is not with the driver.
    #[error("{bdf}: the driver {driver} did not take it; it has {}", now.as_deref().unwrap_or("no driver"))]
    NotTaken {
        /// The function.
        bdf: Bdf,
        /// The driver that should have it.
        driver: String,
        /// The driver that it has instead.
        now: Option<String>,
    },
    /// A backend cannot do what was asked.
    #[error("{bdf}: the {backend} backend cannot {what}: {why}")]
    Unsupported {
        /// The function.
        bdf: Bdf,
        /// The backend's name.
        backend: &'static str,
        /// What was asked.
        what: &'static str,
        /// Why it cannot.
        why: String,
    },
    /// A system call on a source of data failed.
    #[error("{}: cannot {what}", path.display())]
    Source {
        /// The node or file.
        path: PathBuf,
        /// What it was to do.
        what: String,
        /// Why it did not.
        #[source]
        source: io::Error,
        /// What the user can do, where it is known.
        hint: Option<String>,
    },
    /// A source of data ends before the last byte that was asked for.
    #[error("{}: it ends after {got} of the {want} bytes from {at:#x}", path.display())]
    Ended {
        /// The node or file.
        path: PathBuf,
        /// The address of the first byte.
        at: u64,
        /// How many there were.
        got: u64,
        /// How many were asked for.
        want: u64,
    },
    /// A source of data cannot do what was asked, in itself or in the way it is read.
    #[error("{}: it cannot {what}: {why}", path.display())]
    Lacks {
        /// The node or file.
        path: PathBuf,
        /// What was asked.
        what: String,
        /// Why it cannot.
        why: String,
        /// What the user can do, where it is known.
        hint: Option<String>,
    },
    /// A hardware counter could not be opened or read.
    #[error(transparent)]
    Counter(#[from] crate::perf::Error),
}

impl Error {
    pub(crate) fn call(
        bdf: Bdf,
        backend: &'static str,
        what: impl Into<String>,
        source: io::Error,
        hint: Option<&str>,
    ) -> Error {
        Error::Call { bdf, backend, what: what.into(), source, hint: hint.map(str::to_owned) }
    }

    pub(crate) fn unsupported(bdf: Bdf, backend: &'static str, what: &'static str, why: impl Into<String>) -> Error {
        Error::Unsupported { bdf, backend, what, why: why.into() }
    }

    pub(crate) fn lacks(
        path: &Path,
        what: impl Into<String>,
        why: impl Into<String>,
        hint: impl Into<String>,
    ) -> Error {
        Error::Lacks { path: path.to_owned(), what: what.into(), why: why.into(), hint: Some(hint.into()) }
    }

    pub(crate) fn write(path: &Path, value: &str, source: io::Error) -> Error {
        Error::Write { path: path.to_owned(), value: value.to_owned(), source }
    }

    /// What the user can do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Counter(error) => error.hint(),
            Error::NoSuchFunction { .. } | Error::NoSuchName { .. } => {
                Some("`pciescope list` shows the functions of this machine and their devices".to_owned())
            }
            Error::Ambiguous { .. } => Some("give the address of one of them".to_owned()),
            Error::NoNode { .. } => Some("give the node itself, such as /dev/nvme0n1".to_owned()),
            Error::Backend { .. } => {
                Some("the backends are auto, kmod, vfio, resource, sysfs and fake[:OPTION,...]".to_owned())
            }
            Error::Refused { hint, .. }
            | Error::NoBackend { hint, .. }
            | Error::Call { hint, .. }
            | Error::Source { hint, .. }
            | Error::Lacks { hint, .. } => hint.clone(),
            Error::Lost(failure) => failure.hint.clone(),
            Error::Ended { .. } => Some("ask for fewer bytes, or for other addresses".to_owned()),
            Error::Unsupported { backend: "resource", .. } => {
                Some("the vfio backend can, with Secure Boot too: --backend vfio --bind".to_owned())
            }
            Error::NoDriver(_, "pcilat") => Some(
                "`modprobe pcilat` loads it (package pciescope-dkms); in the sources, `make kmod` builds it for insmod"
                    .to_owned(),
            ),
            Error::NoDriver(_, driver) => Some(format!("`modprobe {driver}` loads it")),
            Error::BoundAlready(bdf, _) => Some(format!("`pciescope unbind {bdf}` gives it back")),
            Error::NotBound { .. } => {
                Some("`pciescope unbind` without an address shows what is handed over".to_owned())
            }
            Error::Held { .. } | Error::TuneRuns { .. } => Some("wait for it, or end it".to_owned()),
            Error::Meanwhile { .. } => {
                Some("stop what sets it, such as irqbalance or tuned, or try other knobs".to_owned())
            }
            Error::NotTaken { .. } => Some("the kernel log (dmesg) has the driver's reason".to_owned()),
            Error::Write { source, .. } | Error::Read { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Some("this needs root".to_owned())
            }
            _ => None,
        }
    }
}
