//! The state to restore, a file for each function.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use pciescope_core::Bdf;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::kept::{self, KeptFile, Owner};
use crate::{Error, Root};

/// Where the state files lie; gone after a reboot, as the bindings are.
pub const FOLDER: &str = "/run/pciescope/bind";

/// A function as it was before it was handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The function and the process, because another card may be there when the state is restored.
    #[serde(flatten)]
    pub owner: Owner,
    /// The driver that it was handed to.
    pub driver: String,
    /// The driver it had; `None` where it had none.
    pub former_driver: Option<String>,
    /// The `driver_override` it had; `None` where it was empty.
    pub former_override: Option<String>,
    /// The `power/control` it had: `auto` or `on`; `None` where there is none.
    pub former_power: Option<String>,
}

/// Opens the state file of a function, or creates it where that is wanted.
pub(super) fn open(root: &Root, bdf: Bdf, is_new: bool) -> Result<KeptFile, Error> {
    let (folder, path) = (root.path(FOLDER), root.path(place(bdf)));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(is_new).truncate(false).mode(0o644);
    if is_new {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&folder);
        made.map_err(|source| Error::write(&folder, "", source))?;
    }
    refuse_open_folder(root)?;
    match KeptFile::open(path.clone(), &mut options) {
        Ok(Ok(file)) => Ok(file),
        Ok(Err(file)) => Err(Error::Held(bdf, kept::text(&file).and_then(parse).map(|state| state.owner.pid))),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Err(Error::NotBound(bdf)),
        Err(source) => Err(Error::write(&path, "", source)),
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

/// What a file holds; `None` for an empty or torn one, whose writer died before it changed anything.
pub(super) fn parse(text: String) -> Option<State> {
    serde_json::from_str(&text).ok()
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
    parse(root.text(place(bdf))?)
}
