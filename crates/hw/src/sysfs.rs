//! Reading the kernel's file trees, real or recorded.

use std::path::{Path, PathBuf};

use crate::Error;

/// Where `/sys`, `/proc`, `/dev` and `/run` are looked for: `/` on a live machine, a folder for a recorded tree.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Root(PathBuf::from("/"))
    }
}

impl Root {
    /// A tree below `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Root(path.into())
    }

    /// The place of an absolute path such as `/sys/bus/pci/devices` in this tree.
    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.0.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    /// The text of a file without the white space at its end.
    ///
    /// # Errors
    /// [`Error::Read`] if it cannot be read.
    pub fn read(&self, absolute: impl AsRef<Path>) -> Result<String, Error> {
        let path = self.path(absolute);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(text.trim_end().to_owned()),
            Err(source) => Err(Error::Read { path, source }),
        }
    }
}
