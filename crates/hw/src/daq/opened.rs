//! A node or file that was opened: what it is, where it is, and plain reads and writes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pciescope_core::{Bdf, Function};

use super::{About, Options};
use crate::block::Disk;
use crate::{Error, Root, pci};

/// An open file with what is known about it.
#[derive(Debug)]
pub struct Opened {
    pub file: File,
    pub about: About,
    /// Whether reads go on from where the last one ended, because it cannot seek.
    is_sequential: bool,
}

impl Opened {
    /// Opens it for reading, or for both.
    pub fn open(root: &Root, path: &Path, options: &Options) -> Result<Self, Error> {
        Opened::open_with(root, path, options, 0)
    }

    /// As [`Opened::open`], with more flags of open(2).
    pub fn open_with(root: &Root, path: &Path, options: &Options, flags: libc::c_int) -> Result<Self, Error> {
        let fail = |what: &str, source| failed(path, what.to_owned(), source);
        let meta = std::fs::metadata(path).map_err(|err| fail("open it", err))?;
        let kind = meta.file_type();
        if kind.is_dir() || kind.is_socket() {
            return Err(fail(
                "open it",
                io::Error::from_raw_os_error(if kind.is_dir() { libc::EISDIR } else { libc::ENXIO }),
            ));
        }
        let mut about = About { path: path.to_owned(), access: options.access, align: 1, ..About::default() };
        let mut exclusive = 0;
        if kind.is_block_device() {
            about.kind = "block";
            let disk = Disk::of(root, path).ok();
            about.model = disk.as_ref().and_then(|disk| disk_model(root, &disk.name));
            about.way = functions(root, &disk.as_ref().map(|disk| disk.way.clone()).unwrap_or_default());
            if options.is_writable {
                refuse_disk_in_use(root, path, disk.as_ref())?;
                // Of a block device: fails while the kernel uses it, and keeps it from doing so.
                exclusive = libc::O_EXCL;
            }
        } else if kind.is_file() {
            about.kind = "file";
            about.way = functions(root, &Disk::of(root, path).map(|disk| disk.way).unwrap_or_default());
        } else {
            about.kind = "char";
            about.way = functions(root, &way_of_char(root, meta.rdev()));
        }
        let file = OpenOptions::new()
            .read(true)
            .write(options.is_writable)
            .custom_flags(flags | exclusive | libc::O_NOCTTY)
            .open(path)
            .map_err(|err| fail("open it", err))?;
        let mut opened = Opened { file, about, is_sequential: false };
        opened.is_sequential = (&opened.file).stream_position().is_err();
        opened.about.bytes = match opened.about.kind {
            "file" => Some(meta.len()),
            "block" => Some((&opened.file).seek(SeekFrom::End(0)).map_err(|err| fail("tell its size", err))?),
            _ => None,
        };
        if opened.about.kind == "char" {
            opened.about.function = opened.about.way.last().cloned();
        }
        if opened.is_sequential {
            opened.about.notes.push("It cannot seek: every read goes on where the last one ended.".to_owned());
        }
        Ok(opened)
    }

    /// Where it is, for messages.
    pub fn path(&self) -> &Path {
        &self.about.path
    }

    /// Reads go on where the last one ended.
    pub fn is_sequential(&self) -> bool {
        self.is_sequential
    }

    /// Fills `to` from address `at`: short reads go on, and an end before is an error.
    pub fn fill(&mut self, at: u64, to: &mut [u8]) -> Result<(), Error> {
        self.fill_at_least(at, to, to.len())
    }

    /// As [`Opened::fill`], but an end after `least` bytes is none.
    pub fn fill_at_least(&mut self, at: u64, to: &mut [u8], least: usize) -> Result<(), Error> {
        self.check(at, to.len() as u64)?;
        let mut got = 0;
        while got < least {
            match self.read_some(at + got as u64, &mut to[got..]) {
                Ok(0) => return Err(self.ended(at, got as u64, least as u64)),
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // With O_DIRECT: what is left after a short read does not begin at a block, because the file ends there.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) && got > 0 => {
                    return Err(self.ended(at, got as u64, least as u64));
                }
                Err(error) => {
                    let at = at + got as u64;
                    return Err(self.failed(format!("read {} bytes from {at:#x}", to.len() - got), error));
                }
            }
        }
        Ok(())
    }

    /// One read. A device that says only now that it cannot seek reads on from then on.
    pub fn read_some(&mut self, at: u64, to: &mut [u8]) -> io::Result<usize> {
        if !self.is_sequential {
            match self.file.read_at(to, at) {
                Err(error) if error.raw_os_error() == Some(libc::ESPIPE) => self.is_sequential = true,
                done => return done,
            }
        }
        (&self.file).read(to)
    }

    /// Writes all of `from` to address `at`.
    pub fn put(&mut self, at: u64, from: &[u8]) -> Result<(), Error> {
        self.check(at, from.len() as u64)?;
        let mut done = 0;
        while done < from.len() {
            let (at, rest) = (at + done as u64, &from[done..]);
            let written = if self.is_sequential { (&self.file).write(rest) } else { self.file.write_at(rest, at) };
            match written {
                Ok(0) => return Err(self.ended(at, 0, rest.len() as u64)),
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(format!("write {} bytes to {at:#x}", rest.len()), error)),
            }
        }
        Ok(())
    }

    /// Refuses addresses that no file can have, and any but 0 where there is no seeking.
    pub fn check(&self, at: u64, len: u64) -> Result<(), Error> {
        if at.checked_add(len).is_none_or(|end| end > i64::MAX as u64) {
            return Err(
                self.failed(format!("read {len} bytes from {at:#x}"), io::Error::from_raw_os_error(libc::EOVERFLOW))
            );
        }
        Ok(())
    }

    /// Refuses a beginning other than 0 where there is no seeking.
    pub fn check_start(&self, at: u64, len: u64) -> Result<(), Error> {
        self.check(at, len)?;
        if self.is_sequential && at != 0 {
            let why = "it cannot seek".to_owned();
            return Err(self.lacks(format!("be read from {at:#x}"), why, Some("read from address 0".to_owned())));
        }
        Ok(())
    }

    /// The error of a system call on it.
    pub fn failed(&self, what: String, source: io::Error) -> Error {
        failed(self.path(), what, source)
    }

    /// The error of an end before the last byte.
    pub fn ended(&self, at: u64, got: u64, want: u64) -> Error {
        Error::Ended { path: self.path().to_owned(), at, got, want }
    }

    /// The error for something that it cannot do.
    pub fn lacks(&self, what: String, why: String, hint: Option<String>) -> Error {
        Error::Lacks { path: self.path().to_owned(), what, why, hint }
    }
}

/// The error of a system call, with the hint that its errno deserves.
pub fn failed(path: &Path, what: String, source: io::Error) -> Error {
    let hint = match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Some(format!(
            "`ls -l {}` shows who may open it: join the group of the node, let a udev rule set a group, or run as root",
            path.display()
        )),
        Some(libc::ENODEV | libc::ENXIO) => {
            Some("the device or its driver is gone: `pciescope list` and dmesg tell more".to_owned())
        }
        Some(libc::ENOENT) => Some("`pciescope list` shows the functions, `ls /dev` the nodes that exist".to_owned()),
        Some(libc::EBUSY) => Some("another file holds it: `fuser -v` names the process".to_owned()),
        Some(libc::EOPNOTSUPP) => Some("this board or its firmware lacks it".to_owned()),
        Some(libc::ENODATA) => Some("set the acquisition up and arm it first".to_owned()),
        Some(libc::ETIMEDOUT) => Some("is it triggered and clocked? dmesg has what the driver says".to_owned()),
        Some(libc::EIO) => Some("the device stopped before the end; dmesg has what the driver says".to_owned()),
        _ => None,
    };
    Error::Source { path: path.to_owned(), what, source, hint }
}

/// An end within a read or stream, counted from its beginning.
pub fn of_stream(error: Error, at: u64, bytes: u64) -> Error {
    match error {
        Error::Ended { path, at: piece, got, .. } => {
            Error::Ended { path, at, got: (piece + got).saturating_sub(at), want: bytes }
        }
        other => other,
    }
}

/// Data on a disk is worth more than a benchmark.
fn refuse_disk_in_use(root: &Root, path: &Path, disk: Option<&Disk>) -> Result<(), Error> {
    let reasons = disk.map(|disk| disk.holds(root)).unwrap_or_default();
    if reasons.is_empty() {
        return Ok(());
    }
    Err(Error::lacks(path, "be written to", reasons.join("; "), "give a disk without data"))
}

/// The functions of a way that can be read.
fn functions(root: &Root, way: &[Bdf]) -> Vec<Function> {
    way.iter().filter_map(|bdf| pci::function(root, *bdf).ok()).collect()
}

/// What the disk says it is; of a partition, what its disk says.
fn disk_model(root: &Root, name: &str) -> Option<String> {
    let folder = PathBuf::from("/sys/class/block").join(name);
    ["device/model", "../device/model"].iter().find_map(|file| {
        let target = std::fs::canonicalize(root.path(&folder)).ok()?;
        let text = std::fs::read_to_string(target.join(file)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    })
}

/// The functions from the root port down to the one whose driver made a character device.
fn way_of_char(root: &Root, number: u64) -> Vec<Bdf> {
    let (major, minor) = (libc::major(number), libc::minor(number));
    pci::way(root, format!("/sys/dev/char/{major}:{minor}"))
}
