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
    #[error("{}: a socket's path has at most 107 bytes, this one has {}", .0.display(), .0.as_os_str().len())]
    SocketPathLength(PathBuf),
    /// A thread of the server could not be started.
    #[error("cannot start the thread {0}")]
    Thread(String, #[source] io::Error),
    /// The device refused a command of the control socket.
    #[error("the device refused `{command}`: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// The device's words.
        reason: String,
    },
    /// The control socket answered with something that is not JSON of the agreed form.
    #[error("{}: `{}` is not an answer of a control socket", .0.display(), .1)]
    Answer(PathBuf, String),
}

impl Error {
    pub(crate) fn socket(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Socket { action, path, source }
    }
}
