//! Reading the kernel's file trees, real or recorded.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Error;
use crate::synthetic::Synthetic;

/// Where `/sys`, `/proc`, `/dev` and `/run` are looked for: `/` on a live machine, a folder for a recorded tree or a synthetic
/// machine.
#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
    machine: Option<Arc<Synthetic>>,
    /// Whether the machine's serial number may be read.
    pub shows_serial: bool,
}

impl Default for Root {
    fn default() -> Self {
        Root::at("/")
    }
}

impl Root {
    /// A tree below `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Root { path: path.into(), machine: None, shows_serial: false }
    }

    /// A synthetic machine; its files go with the last of these.
    pub(crate) fn synthetic(machine: Arc<Synthetic>) -> Self {
        Root { machine: Some(Arc::clone(&machine)), ..Root::at(machine.path()) }
    }

    /// The synthetic machine that this is.
    pub fn machine(&self) -> Option<&Arc<Synthetic>> {
        self.machine.as_ref()
    }

    /// The place of an absolute path such as `/sys/bus/pci/devices` in this tree.
    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.path.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    /// Whether this is the machine's own tree, not a recorded one.
    pub fn is_live(&self) -> bool {
        self.path == Path::new("/")
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

    /// The text of a file as [`Root::read`] gives it; `None` where it is missing, unreadable or empty.
    pub fn text(&self, absolute: impl AsRef<Path>) -> Option<String> {
        self.read(absolute).ok().filter(|text| !text.is_empty())
    }

    /// A file with one number, decimal or with `0x`; `None` where there is none.
    pub fn number(&self, absolute: impl AsRef<Path>) -> Option<u64> {
        let text = self.text(absolute)?;
        match text.trim().strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.trim().parse().ok(),
        }
    }

    /// The last part of the target of a symbolic link, such as the driver's name; `None` if there is no link.
    pub fn link_name(&self, absolute: impl AsRef<Path>) -> Option<String> {
        let target = std::fs::read_link(self.path(absolute)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// The names in a folder, sorted; empty where there is no such folder.
    pub fn names(&self, absolute: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(absolute)) else { return Vec::new() };
        let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The inode number of a folder, links followed; `None` if there is no such folder. sysfs never uses an inode
    /// number twice (64 bits, since Linux 5.5). So the number shows whether a device went away and came back.
    pub fn inode(&self, absolute: impl AsRef<Path>) -> Option<u64> {
        std::fs::metadata(self.path(absolute)).ok().map(|metadata| metadata.ino())
    }

    /// Whether there is such a file, folder or link.
    pub fn exists(&self, absolute: impl AsRef<Path>) -> bool {
        self.path(absolute).symlink_metadata().is_ok()
    }
}
