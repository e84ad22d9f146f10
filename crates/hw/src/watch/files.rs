//! Files of sysfs that are read again and again: kept open, as opening one costs more than reading it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::fs::File;
use std::os::unix::fs::FileExt;

use pciescope_core::Bdf;

use crate::config::Config;
use crate::{Root, pci};

/// The most files that are kept open; a process may usually have 1024.
const MOST: usize = 800;

/// Opens what this process may not: whether a file of sysfs may be read is decided when it is opened.
pub trait Opener: Debug {
    /// The configuration space of a function, or of no function the kernel's log, to be read.
    fn open(&mut self, of: Option<Bdf>) -> Option<File>;
}

/// Open files, by function and name.
#[derive(Debug, Default)]
pub(super) struct Files {
    open: HashMap<(Bdf, &'static str), File>,
    pub opener: Option<Box<dyn Opener>>,
}

impl Files {
    /// Bytes of a file from an offset; `None` where it cannot be read to the end of `to`, or is not there.
    pub fn exact(&mut self, root: &Root, bdf: Bdf, name: &'static str, at: u64, to: &mut [u8]) -> Option<()> {
        self.with(root, bdf, name, |file| file.read_exact_at(to, at).ok())
    }

    /// The text of a file, without the white space at its end.
    pub fn text(&mut self, root: &Root, bdf: Bdf, name: &'static str) -> Option<String> {
        let mut bytes = [0; 4096];
        let read = self.with(root, bdf, name, |file| file.read_at(&mut bytes, 0).ok())?;
        Some(std::str::from_utf8(&bytes[..read]).ok()?.trim_end().to_owned())
    }

    /// Configuration space as far as it can be read.
    pub fn config(&mut self, root: &Root, bdf: Bdf) -> Config {
        let mut bytes = [0; 4096];
        let read = self.with(root, bdf, "config", |file| file.read_at(&mut bytes, 0).ok());
        Config::parse(&bytes[..read.unwrap_or(0)])
    }

    /// Closes those of a function that is gone.
    pub fn forget(&mut self, bdf: Bdf) {
        self.open.retain(|(of, _), _| *of != bdf);
    }

    fn with<T>(
        &mut self,
        root: &Root,
        bdf: Bdf,
        name: &'static str,
        read: impl FnOnce(&File) -> Option<T>,
    ) -> Option<T> {
        if let Some(file) = self.open.get(&(bdf, name)) {
            return read(file);
        }
        let opener = self.opener.as_mut().filter(|_| name == "config");
        let opened = opener.and_then(|opener| opener.open(Some(bdf)));
        let file = opened.or_else(|| File::open(root.path(pci::folder(bdf).join(name))).ok())?;
        let read = read(&file);
        // The files of a recorded tree may be replaced.
        if root.is_live() && self.open.len() < MOST {
            self.open.insert((bdf, name), file);
        }
        read
    }
}
