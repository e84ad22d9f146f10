//! The state to restore. It is on disk before anything is changed, and locked while a process works with it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pciescope_core::Bdf;
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::{Error, Root};

/// Where the state files lie; gone after a reboot, as the bindings are.
pub const FOLDER: &str = "/run/pciescope/bind";

/// A function as it was before it was handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Version of this file's form: 1.
    pub version: u32,
    /// The function.
    pub bdf: Bdf,
    /// Its vendor ID, because another card may be there when the state is restored.
    pub vendor: u16,
    /// Its device ID.
    pub device: u16,
    /// The driver that it was handed to.
    pub driver: String,
    /// The driver it had; `None` where it had none.
    pub former_driver: Option<String>,
    /// The `driver_override` it had; `None` where it was empty.
    pub former_override: Option<String>,
    /// The `power/control` it had: `auto` or `on`; `None` where there is none.
    pub former_power: Option<String>,
    /// The process that handed it over.
    pub pid: u32,
}

/// The state file of one function, open and locked; the lock ends with the process, however it ends.
#[derive(Debug)]
pub(super) struct StateFile {
    file: File,
    path: PathBuf,
}

impl StateFile {
    /// Creates the file, or opens one that is there.
    pub(super) fn create(root: &Root, bdf: Bdf) -> Result<StateFile, Error> {
        let folder = root.path(FOLDER);
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&folder);
        made.map_err(|source| Error::write(&folder, "", source))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o644);
        StateFile::open(root, bdf, &mut options)
    }

    /// Opens the file of a function that was handed over.
    pub(super) fn existing(root: &Root, bdf: Bdf) -> Result<StateFile, Error> {
        StateFile::open(root, bdf, OpenOptions::new().read(true).write(true))
    }

    fn open(root: &Root, bdf: Bdf, options: &mut OpenOptions) -> Result<StateFile, Error> {
        let path = root.path(place(bdf));
        refuse_open_folder(root)?;
        let fail = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => Error::NotBound(bdf),
            _ => Error::write(&path, "", source),
        };
        match open_locked(&path, options).map_err(fail)? {
            Ok(file) => Ok(StateFile { file, path }),
            Err(file) => Err(Error::Held(bdf, parse(&file).map(|state| state.pid))),
        }
    }

    /// What the file holds; `None` for an empty or torn one, whose writer died before it changed anything.
    pub(super) fn load(&self) -> Option<State> {
        parse(&self.file)
    }

    /// Writes the state and waits until it is on the medium.
    pub(super) fn store(&self, state: &State) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(state).expect("a state has only strings and numbers") + "\n";
        let write = || {
            self.file.set_len(0)?;
            (&self.file).write_all(text.as_bytes())?;
            self.file.sync_data()
        };
        write().map_err(|source| Error::Write { path: self.path.clone(), value: text.clone(), source })
    }

    /// Deletes the file; then it is as if the function had never been handed over.
    pub(super) fn delete(self) -> Result<(), Error> {
        match std::fs::remove_file(&self.path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::write(&self.path, "", source)),
            _ => Ok(()),
        }
    }
}

/// Opens and locks a file; gives it unlocked, on the right, where another process has the lock.
///
/// # Errors
/// As open(2) and flock(2).
pub(crate) fn open_locked(path: &Path, options: &mut OpenOptions) -> io::Result<Result<File, File>> {
    // What is written here is what is believed later: nothing that another user put there is followed.
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    loop {
        let file = options.open(path)?;
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
            return Ok(Ok(file));
        }
    }
}

/// Refuses a folder that others can write to: they could say what is put back.
fn refuse_open_folder(root: &Root) -> Result<(), Error> {
    let path = root.path(FOLDER);
    match path.metadata() {
        Ok(meta) if meta.mode() & 0o022 != 0 || (geteuid().is_root() && meta.uid() != 0) => {
            let why = "other users can write there: remove the folder, or make it root's own with mode 755";
            Err(Error::write(&path, "", io::Error::new(io::ErrorKind::PermissionDenied, why)))
        }
        _ => Ok(()),
    }
}

/// No state is longer.
const LONGEST: u64 = 64 << 10;

fn parse(mut file: &File) -> Option<State> {
    let mut text = String::new();
    io::Seek::rewind(&mut file).ok()?;
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    let state = serde_json::from_str(&text).ok();
    io::Seek::rewind(&mut file).ok()?;
    state
}

fn place(bdf: Bdf) -> PathBuf {
    PathBuf::from(FOLDER).join(format!("{bdf}.json"))
}

/// The functions that have a state file, by address.
pub(super) fn bound(root: &Root) -> Result<Vec<Bdf>, Error> {
    let path = root.path(FOLDER);
    let entries = match std::fs::read_dir(&path) {
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        // A folder that may not be looked into is not an empty one.
        Err(source) => return Err(Error::Read { path, source }),
        Ok(entries) => entries,
    };
    let parse = |name: String| name.strip_suffix(".json")?.parse().ok();
    let mut all: Vec<Bdf> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter_map(parse).collect();
    all.sort();
    Ok(all)
}

/// The state of a function that is handed over at present, without taking the lock.
pub fn state(root: &Root, bdf: Bdf) -> Option<State> {
    serde_json::from_str(&root.text(place(bdf))?).ok()
}
