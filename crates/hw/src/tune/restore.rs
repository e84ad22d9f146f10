//! The file of what an experiment changes: behind its first line each has what is about to be written. Lines are only added, each
//! is synced, and a torn last one is of a change that was not made. The one experiment that may run at a time holds its lock.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::place::{AND, SettingPlace, wait_for_nodes};
use crate::kept::{self, KeptFile, Owner};
use crate::{Error, Root};

/// Where the file lies, unless `--state-dir` says otherwise.
pub const FOLDER: &str = "/var/lib/pciescope/restore";
const FILE: &str = "tune.jsonl";

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

/// The file of an experiment.
#[derive(Debug)]
pub struct RestoreLog {
    pub(super) file: KeptFile,
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
        if log.file.text().is_none_or(|text| !text.is_empty()) {
            let why = "what an earlier experiment changed is not put back yet: `pciescope unbind --restore`";
            return Err(Error::write(&folder.join(FILE), "", io::Error::other(why)));
        }
        log.file.line(owner)?;
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
            match KeptFile::open(path.clone(), options) {
                Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(source) => return Err(Error::write(&path, "", source)),
                Ok(Ok(file)) => return Ok(Some(RestoreLog { file, entries: Vec::new() })),
                Ok(Err(_)) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        let pid = File::open(&path).ok().and_then(|file| Some(parse(&kept::text(&file)?)?.0.pid));
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
        self.file.line(&entry)?;
        self.entries.push(entry);
        Ok(())
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

fn parse(text: &str) -> Option<(Owner, Vec<NotedChange>)> {
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
    let (owner, entries) =
        parse(&kept::text(&file)?).filter(|(_, entries)| !entries.is_empty() && refusal(folder).is_none())?;
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
    let Some((owner, entries)) = log.file.text().and_then(|text| parse(&text)) else {
        log.file.delete()?;
        return Ok(None);
    };
    let put = put_back_of(root, &owner, &entries)?;
    log.file.delete()?;
    Ok(Some((owner, put)))
}

/// As [`put_back`], where another device may be in its place, or a reboot may have come.
pub(super) fn put_back_of(root: &Root, owner: &Owner, entries: &[NotedChange]) -> Result<PutBack, Error> {
    let entries: Vec<&NotedChange> = entries.iter().collect();
    put_back(root, &entries, owner.replaced(root).as_ref(), !owner.is_of_this_boot(root))
}

/// Puts every place back that still holds what was written there, the last one first. Others are named.
///
/// # Errors
/// What the kernel answered; the other places are put back nevertheless.
pub(super) fn put_back(
    root: &Root,
    entries: &[&NotedChange],
    replaced: Option<&String>,
    is_rebooted: bool,
) -> Result<PutBack, Error> {
    let (mut put, mut failure, mut seen) = (PutBack::default(), None, Vec::new());
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
        let wrote: Vec<&str> =
            entries.iter().filter(|one| one.place == entry.place).filter_map(|one| one.written.as_deref()).collect();
        let is_ours = |now: &String| match entry.written {
            // Of several registers a kill may have come between two.
            Some(_) => now.split(AND).all(|part| part == entry.former || wrote.contains(&part)),
            None => !left_knobs.contains(&&*entry.knob),
        };
        let of_function = replaced.filter(|_| !entry.place.is_of_machine());
        let line = match (of_function, entry.place.read(root)) {
            (Some(why), _) => Err(format!("{why}; not touched, it was {}", entry.former)),
            (_, Ok(now)) if now == entry.former => Ok(is_rebooted.then(|| format!("the reboot put it back to {now}"))),
            (_, Ok(now)) if is_rebooted => {
                Err(format!("the reboot did not put it back: it holds {now}, it was {}; not touched", entry.former))
            }
            (_, Ok(now)) if is_ours(&now) => match entry.place.write(root, &entry.former) {
                Ok(()) => {
                    if let SettingPlace::Driver(bdf) = entry.place {
                        wait_for_nodes(root, bdf, |names| !names.is_empty());
                    }
                    Ok(Some(format!("put back from {now} to {}", entry.former)))
                }
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
                let line = format!("{name}: {line}");
                if !put.left.contains(&line) {
                    put.left.push(line);
                }
            }
        }
    }
    failure.map_or(Ok(put), Err)
}
