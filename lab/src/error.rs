//! Failures of the lab itself, in contrast to failures of what is tested in it.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A failure of the lab.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A socket could not be made or reached.
    #[error("cannot {action} the socket {}", path.display())]
    Socket {
        /// What was tried: `listen on`, `reach`, `read from`, `write to`.
        action: &'static str,
        /// Path of the socket.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The path of a socket is longer than Unix allows.
    #[error("{}: a socket's path has at most 107 bytes, this one has {}", path.display(), path.as_os_str().len())]
    SocketPathLength {
        /// The path.
        path: PathBuf,
    },
    /// A thread of the server could not be started.
    #[error("cannot start the thread {name}")]
    Thread {
        /// Name of the thread.
        name: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The device refused a command of the control socket.
    #[error("the device refused `{command}`: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// The device's words.
        reason: String,
    },
    /// The control socket answered with something that is not JSON of the agreed form.
    #[error("{}: `{answer}` is not an answer of a control socket", path.display())]
    Answer {
        /// Path of the socket.
        path: PathBuf,
        /// What came.
        answer: String,
    },
}

impl Error {
    pub(crate) fn socket(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Socket { action, path, source }
    }
}
