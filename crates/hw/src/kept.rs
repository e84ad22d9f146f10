//! What is to be put back is on disk before it is changed, so that it can be put back however the program ends.
//!
//! `bind` has a file for each function, `tune` one for the machine: lines of JSON, the first of which says whose they are. A
//! process that works with a file holds its lock.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use pciescope_core::Bdf;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::{Error, Root, express, pci};

/// Extended capability: Device Serial Number (7.9.3).
const EXT_SERIAL: u16 = 0x0003;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// No file of ours is longer.
const LONGEST: u64 = 16 << 20;

/// The function that was changed, by whom and when. It begins the first line of each file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Version of this file's form: 1.
    pub version: u32,
    /// The boot in which it was; a reboot puts registers and files of the kernel back.
    #[serde(default)]
    pub boot_id: String,
    /// The process.
    pub pid: u32,
    /// The function.
    pub bdf: Bdf,
    /// Its vendor ID.
    pub vendor: u16,
    /// Its device ID.
    pub device: u16,
    /// Its Device Serial Number in hexadecimal, where it has one.
    pub serial: Option<String>,
}

impl Owner {
    /// The function as it is now, in this boot and process.
    pub(crate) fn now(root: &Root, bdf: Bdf) -> Result<Owner, Error> {
        let config = Config::load(root, bdf);
        // A device that was removed meanwhile answers all-ones.
        let long = |at| config.long(at).filter(|long| *long != u32::MAX);
        let serial = express::extended(&config, EXT_SERIAL)
            .and_then(|at| Some(format!("{:08x}{:08x}", long(at + 8)?, long(at + 4)?)));
        Ok(Owner {
            version: 1,
            boot_id: root.text(BOOT_ID).unwrap_or_default(),
            pid: std::process::id(),
            bdf,
            vendor: pci::id(root, bdf, "vendor")? as u16,
            device: pci::id(root, bdf, "device")? as u16,
            serial,
        })
    }

    /// Whether it was in this boot.
    pub(crate) fn is_of_this_boot(&self, root: &Root) -> bool {
        root.text(BOOT_ID).unwrap_or_default() == self.boot_id
    }

    /// Why the function that is there now is not this one; `None` where it is.
    pub(crate) fn replaced(&self, root: &Root) -> Option<String> {
        match Owner::now(root, self.bdf) {
            Err(_) => Some("it was removed meanwhile".to_owned()),
            // A device that does not answer shows no serial number.
            Ok(now)
                if (now.vendor, now.device) == (self.vendor, self.device)
                    && (now.serial == self.serial || now.serial.is_none() || self.serial.is_none()) =>
            {
                None
            }
            Ok(now) => {
                let serial = now.serial.map(|serial| format!(", serial number {serial}")).unwrap_or_default();
                Some(format!("another device ({:04x}:{:04x}{serial}) is in its place", now.vendor, now.device))
            }
        }
    }
}

/// A file, open and locked; the lock ends with the process, however it ends.
#[derive(Debug)]
pub(crate) struct KeptFile {
    file: File,
    path: PathBuf,
}

impl KeptFile {
    /// Opens and locks it; gives it unlocked, on the right, where another process has the lock.
    pub(crate) fn open(path: PathBuf, options: &mut OpenOptions) -> io::Result<Result<KeptFile, File>> {
        // What is written here is what is believed later: nothing that another user put there is followed.
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        loop {
            let file = options.open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Err(file)),
                other => other?,
            }
            // Whoever held the lock before may have deleted the file: then ours is one that nobody sees.
            let is_same = match (file.metadata(), path.metadata()) {
                (Ok(ours), Ok(there)) => ours.ino() == there.ino() && ours.dev() == there.dev(),
                _ => false,
            };
            if is_same {
                return Ok(Ok(KeptFile { file, path }));
            }
        }
    }

    /// What it holds.
    pub(crate) fn text(&self) -> Option<String> {
        text(&self.file)
    }

    /// Adds a line, and waits until it is on the medium.
    pub(crate) fn line(&self, what: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_string(what).expect("only strings and numbers") + "\n";
        let written = (&self.file).write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|source| Error::write(&self.path, text.trim_end(), source))
    }

    /// Makes it empty.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        let cleared = self.file.set_len(0).and_then(|()| (&self.file).rewind());
        cleared.map_err(|source| Error::write(&self.path, "", source))
    }

    /// Deletes it: everything is put back, or named.
    pub(crate) fn delete(self) -> Result<(), Error> {
        match std::fs::remove_file(&self.path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::write(&self.path, "", source)),
            _ => Ok(()),
        }
    }
}

/// What such a file holds; `None` for what is none of ours.
pub(crate) fn text(mut file: &File) -> Option<String> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(LONGEST).read_to_string(&mut text).ok().map(|_| text)
}
