//! Files for results. An output never overwrites an input of the command, two outputs are never the same file, and an
//! old file stays until the new one is complete.

mod real;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{AtFlags, FlockOperation, OFlags, flock};
use rustix::io::Errno;

use self::real::Real;
pub use self::real::make_folder;
use super::Refusal;

/// A file that is open for results.
#[derive(Debug)]
pub struct Opened {
    /// What is written to.
    pub file: File,
    /// Where it is.
    pub place: Place,
}

/// Where a file grows, and the name that it gets when it is whole. What is not kept is removed.
#[derive(Debug)]
pub struct Place {
    /// The name that was asked for; for a link, that of the file behind it.
    path: PathBuf,
    /// What it is called while it grows, so that a mistake leaves what was there before; `None` where it grows in its
    /// place: a new file, the standard output, a device, a pipe, or one in a folder that takes no other file.
    part: Option<Part>,
    /// The old file, whose lock tells other runs that this one will replace it.
    old: Option<File>,
}

/// Two names in a folder.
#[derive(Debug)]
struct Part {
    folder: File,
    grows: OsString,
    whole: OsString,
}

impl Part {
    fn keep(&self) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.folder, &self.grows, &self.folder, &self.whole)?)
    }

    fn remove(&self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.folder, &self.grows, AtFlags::empty())?)
    }
}

impl Opened {
    fn in_place(file: File, real: &Real) -> Self {
        Opened { file, place: Place { path: real.path(), part: None, old: None } }
    }
}

impl Place {
    /// The name that was asked for.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the file in the place of the old one.
    ///
    /// # Errors
    /// When it cannot be renamed: the old one stays.
    pub fn keep(&mut self) -> io::Result<()> {
        if let Some(part) = &self.part {
            part.keep()?;
        }
        self.part = None;
        self.old = None;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // The file is of no use; an error from removing it changes nothing.
            let _ = part.remove();
        }
    }
}

/// Refuses outputs of a command that are one of its inputs or of each other, by whatever names: links count. `-` is the
/// standard input among the inputs, and no file among the outputs.
///
/// # Errors
/// The [`Refusal`].
pub fn refuse_same(outputs: &[&Path], inputs: &[&Path]) -> Result<(), Refusal> {
    let files: Vec<&Path> = outputs.iter().copied().filter(|path| *path != Path::new("-")).collect();
    for (number, output) in files.iter().enumerate() {
        let input = |input: &&&Path| match **input == Path::new("-") {
            true => is_same(output, Path::new("/dev/stdin")),
            false => is_same(output, input),
        };
        if inputs.iter().any(|path| input(&path)) {
            let text = format!("{} is one of the files to be read and would be overwritten", output.display());
            return Err(Refusal::new(text, "give the output another name"));
        }
        if files[..number].iter().any(|other| is_same(output, other)) {
            let text = format!("{}: two outputs would go to this one file", output.display());
            return Err(Refusal::new(text, "give each output its own name"));
        }
    }
    Ok(())
}

/// Whether two names are of one file or device that would be spoilt. Terminals and /dev/null take what comes.
fn is_same(one: &Path, other: &Path) -> bool {
    match (one.metadata(), other.metadata()) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()) && is_spoilt(one, &a),
        // Neither is there yet: what counts is where they would be.
        (Err(_), Err(_)) => new_place(one).is_some_and(|place| new_place(other) == Some(place)),
        _ => false,
    }
}

/// Whether to write to it changes what is read from it.
fn is_spoilt(path: &Path, meta: &Metadata) -> bool {
    let kind = meta.file_type();
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let takes_all = ["/dev/pts", "/dev/tty", "/dev/console", "/dev/null"];
    let is_device = kind.is_char_device() && !takes_all.iter().any(|name| whole.starts_with(name));
    kind.is_file() || kind.is_block_device() || is_device
}

/// The folder without links, and the name in it, of a file that is not there.
fn new_place(path: &Path) -> Option<(PathBuf, OsString)> {
    let path = Real::of(path).ok()?.path();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some((folder.canonicalize().ok()?, path.file_name().map(OsStr::to_owned)?))
}

/// Refuses a file that holds something.
///
/// # Errors
/// The [`Refusal`].
pub fn refuse_to_replace(path: &Path) -> Result<(), Refusal> {
    match is_full(path) {
        true => {
            Err(Refusal::new(format!("{} exists", path.display()), "give another name, or replace it with --overwrite"))
        }
        false => Ok(()),
    }
}

fn is_full(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0)
}

/// Creates a file for data that cannot be measured again. A new file is written directly, so that its data stays
/// however the run ends. A file with contents is replaced only if `overwrite` is set; then the new one is written
/// beside it until it is complete. Devices, pipes and empty files are used directly. The file is locked: a second run
/// with the same file is refused.
///
/// # Errors
/// A file that holds something, that another run writes to, or that cannot be created.
pub fn create(path: &Path, overwrite: bool) -> anyhow::Result<Opened> {
    if !overwrite {
        refuse_to_replace(path)?;
    }
    let failed = || format!("cannot create {}", path.display());
    let real = Real::of(path).with_context(failed)?;
    let file = real.open(OFlags::CREATE).with_context(failed)?;
    // Devices take what comes, and so does a file system without locks.
    let is_file = file.metadata().with_context(failed)?.is_file();
    if is_file && flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        let text = format!("{}: another run is writing to it", path.display());
        return Err(Refusal::new(text, "give another name, or wait until that ends").into());
    }
    // Another run may have written to it, and have ended, before this one had the lock.
    if !is_full(&real.path()) {
        return Ok(Opened::in_place(file, &real));
    }
    if !overwrite {
        refuse_to_replace(path)?;
    }
    let mut opened = beside_real(real).with_context(failed)?;
    opened.place.old = Some(file);
    Ok(opened)
}

/// Creates a file, or empties the one that is there.
///
/// # Errors
/// A file that cannot be created.
pub fn truncated(path: &Path) -> io::Result<File> {
    Real::of(path)?.open(OFlags::CREATE | OFlags::TRUNC)
}

/// Creates a file beside `path`, which replaces the file at `path` when it is complete.
///
/// # Errors
/// A file that cannot be created, or one that may not be replaced.
pub fn beside(path: &Path) -> io::Result<Opened> {
    beside_real(Real::of(path)?)
}

fn beside_real(real: Real) -> io::Result<Opened> {
    let in_place = || Ok(Opened::in_place(real.open(OFlags::CREATE | OFlags::TRUNC)?, &real));
    let meta = real.path().metadata().ok();
    if meta.as_ref().is_some_and(|meta| !meta.is_file()) || real.is_open_file() {
        return in_place();
    }
    if meta.is_some() {
        // A file that may not be written may not be replaced either; for a link, the file behind it counts.
        real.may_be_written()?;
    }
    let name = format!(".{}.{}.part", real.name().to_string_lossy(), std::process::id());
    let grows = real.beside(name.into());
    let part = Part { folder: real.open_folder()?, grows: grows.name().to_owned(), whole: real.name().to_owned() };
    let create = || grows.open(OFlags::CREATE | OFlags::EXCL);
    let grown = create().or_else(|err| match err.kind() {
        // What a killed run of the same number left.
        io::ErrorKind::AlreadyExists => part.remove().and_then(|()| create()),
        _ => Err(err),
    });
    let file = match grown {
        Ok(file) => file,
        Err(err) => {
            let is_folder = matches!(err.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem);
            return match is_folder || Errno::from_io_error(&err) == Some(Errno::NAMETOOLONG) {
                true => in_place(),
                false => Err(err),
            };
        }
    };
    if let Some(old) = meta {
        // Whose it was and who may read it stays, as far as the system lets us.
        let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
        let _ = file.set_permissions(old.permissions());
    }
    Ok(Opened { file, place: Place { path: real.path(), part: Some(part), old: None } })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::thread;

    use super::*;

    /// Two runs at once, many times: one of them gets the file, whether it is new or to be replaced.
    #[test]
    fn one_of_two_gets_a_file() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..2000 {
            let (path, overwrite) = (folder.path().join(number.to_string()), number % 2 == 1);
            if overwrite {
                fs::write(&path, "old").unwrap();
            }
            let writes = || match create(&path, overwrite) {
                Ok(mut opened) => {
                    opened.file.write_all(b"new").unwrap();
                    // A place that is kept frees the file for the next run.
                    Some(opened)
                }
                Err(_) => None,
            };
            let both = thread::scope(|scope| [scope.spawn(writes), scope.spawn(writes)].map(|run| run.join().unwrap()));
            let [one, other] = both;
            assert!(one.is_some() != other.is_some(), "{number}: {one:?} {other:?}");
            one.or(other).unwrap().place.keep().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        }
    }
}
