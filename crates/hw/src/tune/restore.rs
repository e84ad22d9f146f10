//! What is changed is on disk before it is changed, so that it can be put back however the program ends.
//!
//! One file for the machine: its first line says whose knobs they are, each further one what is about to be written. Lines
//! are only added, each is synced, and a torn last one is of a change that was not made. The lock of the file is held by
//! the one experiment that may run at a time.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pciescope_core::Bdf;
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::place::SettingPlace;
use crate::bind::state::open_locked;
use crate::config::Config;
use crate::{Error, Root, express, pci};

/// Where the file lies, unless `--state-dir` says otherwise.
pub const FOLDER: &str = "/var/lib/pciescope/restore";
const FILE: &str = "tune.jsonl";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// No file of ours is longer.
const LONGEST: u64 = 16 << 20;
/// Extended capability: Device Serial Number (7.9.3).
const EXT_SERIAL: u16 = 0x0003;

/// Whose knobs were changed, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Version of this file's form: 1.
    pub version: u32,
    /// The boot in which it was; a reboot puts registers and files of the kernel back.
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
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Parse`].
    pub fn now(root: &Root, bdf: Bdf) -> Result<Owner, Error> {
        let config = Config::load(root, bdf);
        let serial = express::extended(&config, EXT_SERIAL)
            .and_then(|at| Some(format!("{:08x}{:08x}", config.long(at + 8)?, config.long(at + 4)?)));
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

    fn is_of_this_boot(&self, root: &Root) -> bool {
        root.text(BOOT_ID).unwrap_or_default() == self.boot_id
    }

    /// Why the function that is there now is not this one; `None` where it is.
    fn replaced(&self, root: &Root) -> Option<String> {
        match Owner::now(root, self.bdf) {
            Err(_) => Some("the function is not there any more".to_owned()),
            Ok(now) if (now.vendor, now.device, &now.serial) == (self.vendor, self.device, &self.serial) => None,
            Ok(now) => {
                let serial = now.serial.map(|serial| format!(", serial number {serial}")).unwrap_or_default();
                Some(format!("another device ({:04x}:{:04x}{serial}) is in its place", now.vendor, now.device))
            }
        }
    }
}

/// A change that was about to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedChange {
    /// The knob's name.
    pub knob: String,
    /// Where.
    pub place: SettingPlace,
    /// What it held.
    pub former: String,
    /// What was to be written; `None` for what changes along with another place.
    pub written: Option<String>,
}

/// The file, open and locked; the lock ends with the process, however it ends.
#[derive(Debug)]
pub struct RestoreLog {
    file: File,
    path: PathBuf,
    /// What was changed so far.
    pub entries: Vec<NotedChange>,
}

/// The folder of the file.
pub fn folder(root: &Root, given: Option<&Path>) -> PathBuf {
    given.map_or_else(|| root.path(FOLDER), Path::to_owned)
}

impl RestoreLog {
    /// Creates the file for an experiment.
    ///
    /// # Errors
    /// [`Error::Held`] by another experiment; [`Error::Write`], also where the folder is not this user's own.
    pub fn create(folder: &Path, owner: &Owner) -> Result<RestoreLog, Error> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|source| Error::write(folder, "", source))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let log = RestoreLog::open(folder, &mut options)?
            .ok_or_else(|| Error::write(folder, "", io::Error::from(io::ErrorKind::NotFound)))?;
        let fail = |source| Error::write(&log.path, "", source);
        if log.file.metadata().map_err(fail)?.len() > 0 {
            let why = "what an earlier experiment changed is not put back yet: `pciescope unbind --restore`";
            return Err(fail(io::Error::other(why)));
        }
        log.line(owner)?;
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|source| Error::write(folder, "", source))?;
        Ok(log)
    }

    /// Opens and locks the file; `None` where there is none.
    fn open(folder: &Path, options: &mut OpenOptions) -> Result<Option<RestoreLog>, Error> {
        let path = folder.join(FILE);
        if let Some(why) = refusal(folder) {
            return Err(Error::write(folder, "", io::Error::new(io::ErrorKind::PermissionDenied, why)));
        }
        // A workload that was just being started holds the lock a moment longer than a killed program.
        for _ in 0..50 {
            match open_locked(&path, options) {
                Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(source) => return Err(Error::write(&path, "", source)),
                Ok(Ok(file)) => return Ok(Some(RestoreLog { file, path, entries: Vec::new() })),
                Ok(Err(_)) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        let pid = File::open(&path).ok().and_then(|file| Some(parse(&file)?.0.pid));
        Err(Error::TuneRuns(path, pid))
    }

    /// Notes a change that is about to be made, once.
    ///
    /// # Errors
    /// [`Error::Write`]: then the change may not be made.
    pub fn note(&mut self, entry: NotedChange) -> Result<(), Error> {
        if self.entries.contains(&entry) {
            return Ok(());
        }
        self.line(&entry)?;
        self.entries.push(entry);
        Ok(())
    }

    fn line(&self, what: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_string(what).expect("only strings and numbers") + "\n";
        let written = (&self.file).write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|source| Error::write(&self.path, text.trim_end(), source))
    }

    /// Deletes the file: everything is put back, or named.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn delete(self) -> Result<(), Error> {
        match std::fs::remove_file(&self.path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::write(&self.path, "", source)),
            _ => Ok(()),
        }
    }
}

/// Why what lies in this folder is not believed: others can write there, or a link leads to it. `None` where it is fine or
/// is not there.
fn refusal(folder: &Path) -> Option<&'static str> {
    let meta = folder.symlink_metadata().ok()?;
    match () {
        () if !meta.is_dir() => Some("it is a link or a file, and no link is followed here"),
        () if meta.mode() & 0o077 != 0 || meta.uid() != geteuid().as_raw() => {
            Some("it is not this user's alone: make it root's own with mode 700")
        }
        () => None,
    }
}

fn parse(mut file: &File) -> Option<(Owner, Vec<NotedChange>)> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    let mut lines = text.lines();
    let owner = serde_json::from_str(lines.next()?).ok()?;
    // A torn line is of a change that was not made.
    Some((owner, lines.map_while(|line| serde_json::from_str(line).ok()).collect()))
}

/// What an experiment left that was killed, as a sentence; `None` where there is nothing, where one runs, and where this user
/// may not look.
pub fn left(root: &Root, folder: &Path) -> Option<String> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(folder.join(FILE)).ok()?;
    // An experiment that runs has the lock; others who only look do not keep each other out.
    flock(&file, FlockOperation::NonBlockingLockShared).ok()?;
    let (owner, entries) = parse(&file).filter(|(_, entries)| !entries.is_empty() && refusal(folder).is_none())?;
    let mut knobs: Vec<&str> = entries.iter().map(|entry| &*entry.knob).collect();
    knobs.sort_unstable();
    knobs.dedup();
    let when = if owner.is_of_this_boot(root) { "" } else { ", before the last boot" };
    let (bdf, pid, knobs) = (owner.bdf, owner.pid, knobs.join(", "));
    Some(format!("{bdf}: `tune` was killed (process {pid}{when}), and what it set may still be set: {knobs}"))
}

/// What was put back, and what not: each place in a sentence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PutBack {
    /// What is as it was before.
    pub restored: Vec<String>,
    /// What was left as it is, because somebody else set it or another device is there.
    pub left: Vec<String>,
}

/// Puts back what an experiment left that was killed, or lost its power. `None` where nothing is left.
///
/// # Errors
/// [`Error::TuneRuns`] while an experiment runs; what the kernel answered: then the file stays, and this can be tried
/// again.
pub fn restore(root: &Root, folder: &Path) -> Result<Option<(Owner, PutBack)>, Error> {
    let Some(log) = RestoreLog::open(folder, OpenOptions::new().read(true).write(true))? else { return Ok(None) };
    let Some((owner, entries)) = parse(&log.file) else {
        log.delete()?;
        return Ok(None);
    };
    let put = put_back(root, &owner, &entries)?;
    log.delete()?;
    Ok(Some((owner, put)))
}

/// Puts every place back that still holds what was written there, the last one first. Others are named.
///
/// # Errors
/// What the kernel answered; the other places are put back nevertheless.
pub(super) fn put_back(root: &Root, owner: &Owner, entries: &[NotedChange]) -> Result<PutBack, Error> {
    let is_rebooted = !owner.is_of_this_boot(root);
    let (mut put, mut failure, mut seen) = (PutBack::default(), None, Vec::new());
    let replaced = owner.replaced(root);
    // What changes along with a place comes after it.
    let (main, along): (Vec<&NotedChange>, Vec<&NotedChange>) =
        entries.iter().rev().partition(|entry| entry.written.is_some());
    let mut left_knobs: Vec<&str> = Vec::new();
    for entry in main.into_iter().chain(along) {
        if seen.contains(&&entry.place) {
            continue;
        }
        seen.push(&entry.place);
        let name = format!("{} ({})", entry.knob, entry.place.path(root).display());
        let is_ours = |now: &String| {
            entries.iter().any(|one| one.place == entry.place && one.written.as_ref() == Some(now))
                || entry.written.is_none() && !left_knobs.contains(&&*entry.knob)
        };
        let of_function = replaced.as_ref().filter(|_| !entry.place.is_of_machine());
        let line = match (of_function, entry.place.read(root)) {
            (Some(why), _) => Err(format!("{why}; not touched, it was {}", entry.former)),
            (_, Ok(now)) if now == entry.former => Ok(is_rebooted.then(|| format!("the reboot put it back to {now}"))),
            (_, Ok(now)) if is_rebooted => {
                Err(format!("the reboot did not put it back: it holds {now}, it was {}; not touched", entry.former))
            }
            (_, Ok(now)) if is_ours(&now) => match entry.place.write(root, &entry.former) {
                Ok(()) => Ok(Some(format!("put back from {now} to {}", entry.former))),
                Err(error) => {
                    failure.get_or_insert(error);
                    continue;
                }
            },
            (_, Ok(now)) => {
                Err(format!("somebody else set it to {now} meanwhile; not touched, it was {}", entry.former))
            }
            (_, Err(error)) => Err(format!("{}; it was {}", pciescope_core::text::chain(&error), entry.former)),
        };
        match line {
            Ok(line) => put.restored.extend(line.map(|line| format!("{name}: {line}"))),
            Err(line) => {
                left_knobs.push(&entry.knob);
                put.left.push(format!("{name}: {line}"));
            }
        }
    }
    failure.map_or(Ok(put), Err)
}
