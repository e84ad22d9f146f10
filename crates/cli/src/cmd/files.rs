//! Files for results. An output never overwrites an input of the command, two outputs are never the same file, and an
//! old file stays until the new one is complete.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use tempfile::TempPath;

use super::Refusal;

/// As many links as the kernel follows.
const MOST_LINKS: u32 = 40;
/// How long a pipe may be without a reader: the shell may start it after this program.
const READER_COMES: Duration = Duration::from_secs(2);

/// A file that is open for results.
#[derive(Debug)]
pub struct Opened {
    /// What is written to.
    pub file: File,
    /// Where it is.
    pub place: Destination,
}

/// Where a file grows, and the name that it gets when it is whole. What is not kept is removed.
#[derive(Debug)]
pub struct Destination {
    path: PathBuf,
    /// What it is called while it grows; `None` where it grows in its place: a new file of records, the standard output, a
    /// device, a pipe, or one in a folder that takes no other file.
    part: Option<TempPath>,
    /// The old file, whose lock tells other runs that this one will replace it.
    old: Option<File>,
}

impl Destination {
    /// The name that the file gets, behind all links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the file in the place of the old one.
    ///
    /// # Errors
    /// When it cannot be renamed: the old one stays.
    pub fn keep(&mut self) -> io::Result<()> {
        if let Some(part) = self.part.take() {
            part.persist(&self.path)?;
        }
        self.old = None;
        Ok(())
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
    let Real { path, .. } = Real::of(path).ok()?;
    Some((folder_of(&path).canonicalize().ok()?, path.file_name().map(OsStr::to_owned)?))
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
    if !is_full(&real.path) {
        return Ok(Opened { file, place: Destination { path: real.path, part: None, old: None } });
    }
    if !overwrite {
        refuse_to_replace(path)?;
    }
    let mut opened = replacement(path).with_context(failed)?;
    opened.place.old = Some(file);
    Ok(opened)
}

/// Writes a whole file, which replaces the file at `path` when it is complete.
///
/// # Errors
/// A file that cannot be written, or one that may not be replaced.
pub fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let write = || {
        let Opened { mut file, mut place } = replacement(path)?;
        io::Write::write_all(&mut file, bytes)?;
        place.keep()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Creates a file beside `path`, which replaces the file at `path` when it is complete. A device or pipe is written through.
///
/// # Errors
/// A file that cannot be created, or one that may not be replaced.
pub fn replacement(path: &Path) -> io::Result<Opened> {
    let real = Real::of(path)?;
    let meta = real.path.metadata().ok();
    let in_place = || real.open(OFlags::CREATE | OFlags::TRUNC).map(|file| (file, None));
    let (file, part) = if real.through_proc || meta.as_ref().is_some_and(|meta| !meta.is_file()) {
        in_place()?
    } else {
        if meta.is_some() {
            // A file that may not be written may not be replaced either.
            real.open(OFlags::APPEND)?;
        }
        let name = real.path.file_name().unwrap_or_default().to_string_lossy();
        let grown = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            .suffix(".part")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder_of(&real.path));
        match grown {
            Ok(grown) => {
                let (file, part) = grown.into_parts();
                (file, Some(part))
            }
            Err(err) if takes_no_file(&err) => in_place()?,
            Err(err) => return Err(err),
        }
    };
    if let Some(old) = meta.filter(|_| part.is_some()) {
        // Whose it was and who may read it stays, as far as the system lets us.
        let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
        let _ = file.set_permissions(old.permissions());
    }
    Ok(Opened { file, place: Destination { path: real.path, part, old: None } })
}

/// Whether the folder takes no further file, or none of so long a name, where the old file may still be written.
fn takes_no_file(err: &io::Error) -> bool {
    let number = err.raw_os_error().map(Errno::from_raw_os_error);
    matches!(number, Some(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NAMETOOLONG))
}

/// Makes a folder for outputs and those above it, as far as they are missing, and gives its name behind all links.
///
/// # Errors
/// As root, a link that another user made; where a folder cannot be made.
pub fn make_folder(path: &Path) -> io::Result<PathBuf> {
    let (folder, _) = follow(path)?;
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The name of an output behind all links. A run as root follows only links that root made: what another user put at an
/// output would choose the file that is made or replaced.
#[derive(Debug)]
struct Real {
    path: PathBuf,
    /// Whether a link of /proc is on the way. The kernel follows these to open files, not to names.
    through_proc: bool,
}

impl Real {
    /// Follows the links of `path`, whether a file is there or not.
    ///
    /// # Errors
    /// As root, a link that another user made; too many links; a path that can only be a folder.
    fn of(path: &Path) -> io::Result<Real> {
        let (real, through_proc) = follow(path)?;
        match path.as_os_str().as_bytes().ends_with(b"/") || real.file_name().is_none() {
            true => Err(io::ErrorKind::IsADirectory.into()),
            false => Ok(Real { path: real, through_proc }),
        }
    }

    /// Opens the file to write; `flags` say more. A pipe gets a moment for its reader.
    ///
    /// # Errors
    /// Where it cannot be opened; a pipe that nobody reads; a link that was put there since the name was found.
    fn open(&self, flags: OFlags) -> io::Result<File> {
        let links = if self.through_proc { OFlags::empty() } else { OFlags::NOFOLLOW };
        // Without NONBLOCK a pipe that nobody reads holds the program for ever.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | links | flags;
        let begin = Instant::now();
        let file = loop {
            match rustix::fs::open(&self.path, flags, Mode::from_raw_mode(0o666)) {
                Err(Errno::NXIO) if self.path.metadata().is_ok_and(|meta| meta.file_type().is_fifo()) => {
                    if begin.elapsed() > READER_COMES {
                        let text = "nobody reads this pipe";
                        return Err(io::Error::other(Refusal::new(text, "start the program that reads it first")));
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                other => break File::from(other?),
            }
        };
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
        Ok(file)
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// The whole name behind the links of `path`, and whether a link of /proc is on the way. As root, a link that another user
/// made is an error.
fn follow(path: &Path) -> io::Result<(PathBuf, bool)> {
    let is_root = rustix::process::geteuid().is_root();
    let whole = std::path::absolute(path)?;
    let mut left: VecDeque<OsString> = whole.iter().map(OsStr::to_owned).collect();
    let (mut at, mut links) = (PathBuf::new(), 0);
    while let Some(part) = left.pop_front() {
        let here = at.join(&part);
        let Some(meta) = fs::symlink_metadata(&here).ok().filter(Metadata::is_symlink) else {
            at = here;
            continue;
        };
        // A link of /proc leads where this process, or root, lets it lead.
        if rustix::fs::statfs(&at).is_ok_and(|about| about.f_type == rustix::fs::PROC_SUPER_MAGIC) {
            return Ok((here.join(left.iter().collect::<PathBuf>()), true));
        }
        if is_root && !is_of_root(meta.uid()) {
            let (link, user) = (here.display(), meta.uid());
            let text =
                format!("{link} is a link that user {user} made, and a run as root follows no link of another user");
            return Err(io::Error::other(Refusal::new(text, "name the file itself, or remove the link")));
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        for part in fs::read_link(&here)?.iter().rev() {
            left.push_front(part.to_owned());
        }
    }
    Ok((at, false))
}

/// Whether a file of this owner is root's. In a container that maps some users only, the machine's root is shown as nobody,
/// as the others are that it does not map; root of the container has no rights over their files.
fn is_of_root(owner: u32) -> bool {
    const NOBODY: u32 = 65534;
    owner == 0 || (owner == NOBODY && maps_some(&fs::read_to_string("/proc/self/uid_map").unwrap_or_default()))
}

/// Whether a map of users (user_namespaces(7)) leaves some out.
fn maps_some(map: &str) -> bool {
    let has_all = |line: &str| line.split_ascii_whitespace().nth(2) == Some("4294967295");
    !map.is_empty() && !map.lines().any(has_all)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;
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

    #[test]
    fn links_are_followed_to_the_name_that_a_file_gets() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        symlink("a/b", root.join("short")).unwrap();
        symlink("../new", root.join("a/b/up")).unwrap();
        symlink(root.join("a/b/up"), root.join("whole")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        for (name, real) in [("short/up", "a/b/../new"), ("whole", "a/b/../new"), ("./short/./x", "a/b/x"), ("x", "x")]
        {
            assert_eq!(Real::of(&root.join(name)).unwrap().path, root.join(real), "{name}");
        }
        assert_eq!(Real::of(&root.join("loop")).unwrap_err().raw_os_error(), Some(40));
        for name in ["a/..", "a/", "."] {
            assert!(Real::of(&root.join(name)).and_then(|real| real.open(OFlags::CREATE)).is_err(), "{name}");
        }
    }

    #[test]
    fn a_container_that_maps_some_users_is_known() {
        for (map, is_some) in [
            ("         0          0 4294967295\n", false),
            ("         0       1000          1\n", true),
            ("         0       1000          1\n         1     100000      65536\n", true),
            ("", false),
        ] {
            assert_eq!(maps_some(map), is_some, "{map}");
        }
    }

    #[test]
    fn a_link_that_was_put_there_since_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("own")).unwrap();
        let real = Real::of(&folder.path().join("x")).unwrap();
        symlink("own/x", folder.path().join("x")).unwrap();
        assert_eq!(real.open(OFlags::CREATE).unwrap_err().raw_os_error(), Some(40));
        assert_eq!(fs::read_dir(folder.path().join("own")).unwrap().count(), 0);
    }
}
