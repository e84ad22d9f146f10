//! What can go wrong with the guest and its machine: the lab's failures, never a test's.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use super::arch::Arch;

/// Exit code of `pciescope lab run` when the lab failed, not the command in the guest (EX_UNAVAILABLE of sysexits.h).
pub const LAB_FAILED: u8 = 69;

/// A failure of the lab: the question that was put to the guest has no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// The root folder with QEMU and the guest kernels is not there, or lacks what is named second.
    #[error("the lab's root folder {} is missing or incomplete: no {}", .0.display(), .1.display())]
    NoRoot(PathBuf, PathBuf),
    /// A file that comes from the source tree (guest scripts, built modules) is not there; how it is made.
    #[error("{} is missing: {}", .0.display(), .1)]
    Missing(PathBuf, String),
    /// A program of ours is not built for the guest's architecture.
    #[error("{} is not built", .0.display())]
    NotBuilt(PathBuf, Arch),
    /// A file of the host could not be read, written or started.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried: `read`, `write`, `start`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A program of the host that the runner needs failed; its last words.
    #[error("{0} failed: {1}")]
    Program(String, String),
    /// QEMU has ended while the guest was needed.
    #[error("the guest ended ({status}) while {doing}{}", at(log.as_deref()))]
    Ended {
        /// What was waited for.
        doing: String,
        /// QEMU's exit status and its last words.
        status: String,
        /// The serial log.
        log: Option<PathBuf>,
    },
    /// The guest did not do in time what it was asked to.
    #[error("no answer from the guest within {:.1} s, the time that it had left, while {doing}{}", waited.as_secs_f64(), at(log.as_deref()))]
    Timeout {
        /// What was waited for.
        doing: String,
        /// How long.
        waited: Duration,
        /// The serial log.
        log: Option<PathBuf>,
    },
    /// A QEMU monitor command was refused, in QEMU's words.
    #[error("QEMU refused {0}: {1}")]
    Monitor(String, String),
    /// The builder cannot make what was asked for.
    #[error("{0}")]
    Refused(String),
    /// A command that prepares the guest failed in it.
    #[error("`{command}` failed in the guest with status {status}: {stderr}")]
    Setup {
        /// The command.
        command: String,
        /// Its exit status.
        status: i32,
        /// What it said.
        stderr: String,
    },
    /// A virtual device could not be served or controlled.
    #[error(transparent)]
    Device(#[from] crate::Error),
}

fn at(log: Option<&Path>) -> String {
    log.map(|path| format!("; its serial log is {}", path.display())).unwrap_or_default()
}

impl LabError {
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> LabError {
        let path = path.into();
        move |source| LabError::File { action, path, source }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            LabError::NoRoot(root, _) if root.to_string_lossy().ends_with(Arch::Arm64.suffix()) => {
                Some("tools/setup lab arm64 (PCIESCOPE_LAB_ROOT names another root folder, to which -arm64 is added)")
            }
            LabError::NoRoot { .. } => Some("make setup (PCIESCOPE_LAB_ROOT names another root folder)"),
            LabError::NotBuilt(_, Arch::Arm64) => {
                Some("make build ARCH=arm64 (CARGO_TARGET_DIR has to be the same for the build and for the lab)")
            }
            LabError::NotBuilt(_, Arch::Amd64) => {
                Some("make build (CARGO_TARGET_DIR has to be the same for the build and for the lab)")
            }
            LabError::Missing { .. } => Some(
                "the lab needs the source tree: run it from there, or set PCIESCOPE_LAB_DIR to the tree's lab folder",
            ),
            LabError::Timeout { .. } => Some("is the machine busy? PCIESCOPE_LAB_PATIENCE=3 triples every wait"),
            _ => None,
        }
    }
}
