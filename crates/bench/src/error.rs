//! Why an experiment ends without figures, and what a record says of it.

use pciescope_core::text::chain;
use std::io;

use pciescope_core::record::Failure;

/// Why an experiment could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The probe refused or failed before anything was measured.
    #[error(transparent)]
    Probe(#[from] pciescope_hw::Error),
    /// There is nothing to count, or it cannot be counted.
    #[error(transparent)]
    Counters(#[from] crate::counters::Error),
    /// The workload beside the counters failed.
    #[error(transparent)]
    Workload(#[from] crate::workload::Error),
    /// The command could not be started.
    #[error("cannot start {command}")]
    Command {
        /// The command's name.
        command: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A record could not be written; what was written before stands.
    #[error("cannot write the records")]
    Sink {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Raw samples could not be written.
    #[error("cannot write the raw samples")]
    Raw {
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What to do where records find no room. Every verb that writes them has the long option; the short one means
/// something else in `readout`.
pub(crate) const FULL: &str = "free some space, or write to another place with --output";

impl Error {
    /// What the user can do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Probe(err) => err.hint(),
            Error::Counters(err) => err.hint(),
            Error::Workload(err) => err.hint(),
            Error::Sink { source } | Error::Raw { source } if source.kind() == io::ErrorKind::StorageFull => {
                Some(FULL.to_owned())
            }
            _ => None,
        }
    }
}

/// What a record says of a probe's refusal.
pub(crate) fn refusal(err: &pciescope_hw::Error) -> Failure {
    if let pciescope_hw::Error::Lost(failure) = err {
        return failure.clone();
    }
    Failure::refused(chain(err), err.hint())
}
