//! The name of an output behind all links, and its opening. A run as root follows only links that root made: what
//! another user put at an output would choose the file that is made or replaced. The same holds for a second name of a
//! file (a hard link), and a pipe of another user would hand the results over.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::cmd::Refusal;

/// As many links as the kernel follows.
const MOST_LINKS: u32 = 40;
/// How long a pipe may be without a reader: the shell may start it after this program.
const READER_COMES: Duration = Duration::from_secs(2);

/// An output's folder and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Real {
    /// The folder; empty is the current one.
    folder: PathBuf,
    name: OsString,
    /// Whether a link of /proc is on the way. The kernel follows these to open files, not to names.
    through_proc: bool,
}

impl Real {
    /// Follows the links of `path`, whether a file is there or not.
    ///
    /// # Errors
    /// As root, a link that another user made; too many links; a path that can only be a folder.
    pub fn of(path: &Path) -> io::Result<Real> {
        let is_folder = || io::Error::from(io::ErrorKind::IsADirectory);
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(is_folder());
        }
        let (at, through_proc) = follow(path)?;
        let name = at.file_name().ok_or_else(is_folder)?.to_owned();
        Ok(Real { folder: at.parent().unwrap_or(Path::new("")).to_owned(), name, through_proc })
    }

    /// The whole name.
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// The name in its folder.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Another name in the same folder.
    pub fn beside(&self, name: OsString) -> Real {
        Real { name, ..self.clone() }
    }

    /// Whether this is a link of /proc to an open file: no other file can be put in its place.
    pub fn is_open_file(&self) -> bool {
        self.through_proc && fs::symlink_metadata(self.path()).is_ok_and(|meta| meta.is_symlink())
    }

    /// Opens the folder, to which later names are relative: it may be moved meanwhile.
    ///
    /// # Errors
    /// Where there is none.
    pub fn open_folder(&self) -> io::Result<File> {
        let folder = if self.folder.as_os_str().is_empty() { Path::new(".") } else { &self.folder };
        self.open_path(folder, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// Opens the file to write; `flags` say more. A pipe gets a moment for its reader.
    ///
    /// # Errors
    /// Where it cannot be opened; a pipe that nobody reads; a link that was put there since the name was found. As root, what
    /// another user put there: a pipe, or a second name of a file.
    pub fn open(&self, flags: OFlags) -> io::Result<File> {
        // What is refused stays as it is.
        let file = self.open_to_write(flags - OFlags::TRUNC)?;
        self.refuse_planted(&file)?;
        if flags.contains(OFlags::TRUNC) && file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// Whether the file may be written: nothing is.
    ///
    /// # Errors
    /// Where it may not.
    pub fn may_be_written(&self) -> io::Result<()> {
        self.open_to_write(OFlags::APPEND).map(drop)
    }

    /// As root, refuses a pipe of another user, and a file with several names where others can make one.
    fn refuse_planted(&self, file: &File) -> io::Result<()> {
        if !rustix::process::geteuid().is_root() || self.through_proc {
            return Ok(());
        }
        let (meta, path) = (file.metadata()?, self.path());
        let text = if meta.file_type().is_fifo() && !is_of_root(meta.uid()) {
            format!("{} is a pipe that user {} made, and a run as root writes to none", path.display(), meta.uid())
        } else if meta.is_file() && meta.nlink() > 1 && self.is_open_to_others()? {
            let text = "has several names (hard links) in a folder of others, and a run as root writes to no such file";
            format!("{} {text}", path.display())
        } else {
            return Ok(());
        };
        Err(io::Error::other(Refusal::new(text, "give another name")))
    }

    /// Whether other users can make names in its folder.
    fn is_open_to_others(&self) -> io::Result<bool> {
        let folder = self.open_folder()?.metadata()?;
        Ok(!is_of_root(folder.uid()) || folder.mode() & 0o022 != 0)
    }

    fn open_to_write(&self, flags: OFlags) -> io::Result<File> {
        let path = self.path();
        // Without NONBLOCK a pipe that nobody reads holds the program for ever.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | flags;
        let begin = Instant::now();
        let file = loop {
            match self.open_path(&path, flags) {
                Err(err) if Errno::from_io_error(&err) == Some(Errno::NXIO) && is_pipe(&path) => {
                    if begin.elapsed() > READER_COMES {
                        let text = "nobody reads this pipe";
                        return Err(io::Error::other(Refusal::new(text, "start the program that reads it first")));
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                other => break other?,
            }
        };
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
        Ok(file)
    }

    fn open_path(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC;
        let mode = match flags.contains(OFlags::CREATE) {
            true => Mode::from_raw_mode(0o666),
            false => Mode::empty(),
        };
        if self.through_proc {
            return Ok(rustix::fs::open(path, flags, mode)?.into());
        }
        // The links are followed already: one on the way was put there since.
        let opened = rustix::fs::openat2(CWD, path, flags, mode, ResolveFlags::NO_SYMLINKS);
        let opened = match opened {
            // A kernel before 5.6, or a container that forbids it.
            Err(Errno::NOSYS | Errno::PERM) => rustix::fs::open(path, flags | OFlags::NOFOLLOW, mode),
            other => other,
        };
        Ok(opened?.into())
    }
}

/// Makes a folder for outputs and those above it, as far as they are missing, and gives its name behind all links.
///
/// # Errors
/// As [`Real::of`], but for a path that can only be a folder; where a folder cannot be made.
pub fn make_folder(path: &Path) -> io::Result<PathBuf> {
    let (mut folder, _) = follow(path)?;
    if folder.as_os_str().is_empty() {
        folder.push(".");
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The name behind the links of `path`, and whether a link of /proc is on the way. As root, a link that another user made is
/// an error.
fn follow(path: &Path) -> io::Result<(PathBuf, bool)> {
    let is_root = rustix::process::geteuid().is_root();
    let mut left: VecDeque<OsString> = parts(path).collect();
    let (mut at, mut links, mut through_proc) = (PathBuf::new(), 0, false);
    while let Some(part) = left.pop_front() {
        let here = at.join(&part);
        let Some(meta) = fs::symlink_metadata(&here).ok().filter(fs::Metadata::is_symlink) else {
            at = here;
            continue;
        };
        // A link of /proc leads where this process, or root, lets it lead.
        let in_proc = is_proc(&at);
        if is_root && !in_proc && !is_of_root(meta.uid()) {
            return Err(io::Error::other(not_ours(&here, meta.uid())));
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        if in_proc {
            (at, through_proc) = (here, true);
            continue;
        }
        let behind = fs::read_link(&here)?;
        for part in parts(&behind).collect::<Vec<_>>().into_iter().rev() {
            left.push_front(part);
        }
    }
    Ok((at, through_proc))
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

/// The parts of a path without those that lead nowhere.
fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter(|part| *part != Component::CurDir).map(|part| part.as_os_str().to_owned())
}

fn is_proc(folder: &Path) -> bool {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    rustix::fs::statfs(folder).is_ok_and(|about| about.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

fn is_pipe(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.file_type().is_fifo())
}

fn not_ours(link: &Path, user: u32) -> Refusal {
    Refusal::new(
        format!(
            "{} is a link that user {user} made, and a run as root follows no link of another user",
            link.display()
        ),
        "name the file itself, or remove the link",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

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
            assert_eq!(Real::of(&root.join(name)).unwrap().path(), root.join(real), "{name}");
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
        let root = folder.path().canonicalize().unwrap();
        for name in ["own", "theirs"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        let (file, inside) = (Real::of(&root.join("theirs/x")).unwrap(), Real::of(&root.join("theirs/d/x")).unwrap());
        symlink("../own/x", root.join("theirs/x")).unwrap();
        symlink("../own", root.join("theirs/d")).unwrap();
        for real in [file, inside] {
            assert_eq!(real.open(OFlags::CREATE).unwrap_err().raw_os_error(), Some(40), "{real:?}");
        }
        assert_eq!(fs::read_dir(root.join("own")).unwrap().count(), 0);
    }
}
