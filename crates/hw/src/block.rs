//! Disks: which one a path lies on, the way over PCIe to it, and whether it holds something.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use pciescope_core::Bdf;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::bind::in_use;
use crate::{Error, Root, pci};

const BLOCK: &str = "/sys/class/block";
const NUMBERS: &str = "/sys/dev/block";

/// A disk or partition, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// As the kernel names it: `nvme0n1`, `sda2`, `dm-0`.
    pub name: String,
    /// The functions on the way to it, from the root port down to the controller; empty where it is not on PCI. Of a disk
    /// that is stacked on several, the way to the first.
    pub way: Vec<Bdf>,
    /// Whether the path is the disk itself, not a file on it.
    pub is_whole: bool,
}

impl Disk {
    /// The disk that a block device is, or that a file or folder lies on.
    ///
    /// # Errors
    /// [`Error::Read`] where the path is not there, or lies on no disk (tmpfs, a network).
    pub fn of(root: &Root, path: &Path) -> Result<Disk, Error> {
        let fail = |source| Error::Read { path: path.to_owned(), source };
        let meta = std::fs::metadata(path).map_err(fail)?;
        let is_whole = meta.file_type().is_block_device();
        let number = if is_whole { meta.rdev() } else { meta.dev() };
        let (major, minor) = (libc::major(number), libc::minor(number));
        Disk::by_number(root, major, minor, is_whole)
            .ok_or_else(|| fail(io::Error::other(format!("it lies on no disk (device {major}:{minor})"))))
    }

    fn by_number(root: &Root, major: u32, minor: u32, is_whole: bool) -> Option<Disk> {
        let name = root.link_name(format!("{NUMBERS}/{major}:{minor}"))?;
        let way = way(root, &name);
        Some(Disk { name, way, is_whole })
    }

    /// Reasons not to write to the disk itself: file systems, swap, partitions, what is stacked on it.
    pub fn holds(&self, root: &Root) -> Vec<String> {
        let mut reasons: Vec<String> = in_use::of_disk(root, &self.name).into_iter().map(|each| each.why).collect();
        let folder = PathBuf::from(BLOCK).join(&self.name);
        let is_part = |name: &String| root.exists(folder.join(name).join("partition"));
        let parts: Vec<String> = root.names(&folder).into_iter().filter(is_part).collect();
        if !parts.is_empty() {
            reasons.push(format!("{} has partitions: {}", self.name, parts.join(", ")));
        }
        reasons
    }
}

/// How much of a disk is read to find out whether it is blank: every file system, LVM and LUKS begins in here.
const HEAD: u64 = 1 << 20;

/// What is not blank about a disk or file: of a disk its first MiB is looked at, of a file all of it that takes space.
/// `None` if it holds nothing but zeros, as an empty file does, and one that `truncate` or `fallocate` made.
///
/// # Errors
/// [`Error::Read`].
pub fn contents(path: &Path) -> Result<Option<String>, Error> {
    let read = || {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Ok((!is_zero(&file, 0, HEAD)?).then(|| "its first MiB is not blank".to_owned()));
        }
        let mut at = 0;
        while let Some((from, to)) = next_data(&file, at)? {
            if !is_zero(&file, from, to)? {
                return Ok(Some("it is not blank".to_owned()));
            }
            at = to;
        }
        Ok(None)
    };
    read().map_err(|source| Error::Read { path: path.to_owned(), source })
}

/// The next part of a file from `at` on that takes space, and where it ends.
fn next_data(file: &File, at: u64) -> io::Result<Option<(u64, u64)>> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(from) => Ok(Some((from, seek(file, SeekFrom::Hole(from))?))),
        // There is none.
        Err(Errno::NXIO) => Ok(None),
        // A file system that does not know: all of it.
        Err(Errno::INVAL | Errno::NOTSUP) => Ok(Some((at, u64::MAX)).filter(|_| at < u64::MAX)),
        Err(err) => Err(err.into()),
    }
}

/// Whether there are only zeros between two places, or up to the end.
fn is_zero(file: &File, from: u64, to: u64) -> io::Result<bool> {
    let (mut at, mut buffer) = (from, vec![0; HEAD as usize]);
    while at < to {
        let wanted = buffer.len().min(usize::try_from(to - at).unwrap_or(usize::MAX));
        let part = match file.read_at(&mut buffer[..wanted], at) {
            Ok(0) => break,
            Ok(bytes) => &buffer[..bytes],
            Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
            Err(err) => return Err(err),
        };
        if part.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += part.len() as u64;
    }
    Ok(true)
}

/// Stacks (LVM on LUKS on RAID) are no deeper than this.
const DEEPEST: usize = 8;

fn way(root: &Root, name: &str) -> Vec<Bdf> {
    ways(root, &Path::new(BLOCK).join(name), 0).into_iter().next().unwrap_or_default()
}

/// The ways to what a link of sysfs shows, such as `/sys/class/block/dm-0`, each from the root port down: of what is stacked
/// on others (device mapper, RAID, a bond, a VLAN) the ways to those. None to what is not on PCI.
pub(crate) fn ways(root: &Root, link: &Path, depth: usize) -> Vec<Vec<Bdf>> {
    let own = pci::way(root, link);
    if !own.is_empty() {
        return vec![own];
    }
    if depth == DEEPEST {
        return Vec::new();
    }
    let slaves = root.names(link.join("slaves"));
    let mut beneath: Vec<PathBuf> = slaves.into_iter().map(|name| Path::new(BLOCK).join(name)).collect();
    // An interface has links to those beneath it.
    beneath.extend(root.names(link).into_iter().filter(|name| name.starts_with("lower_")).map(|name| link.join(name)));
    // An NVMe namespace with several ways to it lies below its subsystem, beside links to the controllers.
    if let Ok(target) = std::fs::read_link(root.path(link)) {
        let is_one = |part: &&str| {
            part.strip_prefix("nvme-subsys").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        };
        if let Some(subsystem) = target.iter().filter_map(|part| part.to_str()).find(is_one) {
            let folder = Path::new("/sys/class/nvme-subsystem").join(subsystem);
            beneath.extend(root.names(&folder).into_iter().map(|name| folder.join(name)));
        }
    }
    beneath.iter().flat_map(|link| ways(root, link, depth + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::Tree;

    fn tree() -> Tree {
        let tree = Tree::new();
        let link = |from: &str, to: &str| tree.link(from, to);
        let pci = "sys/devices/pci0000:00/0000:00:02.0/0000:04:00.0";
        tree.put(format!("{pci}/nvme/nvme0/nvme0n1/nvme0n1p1/partition"), "1");
        tree.folder("sys/devices/virtual/block/dm-0/slaves/nvme0n1p1");
        link("sys/class/block/nvme0n1", &format!("../../../{pci}/nvme/nvme0/nvme0n1"));
        link("sys/class/block/nvme0n1p1", &format!("../../../{pci}/nvme/nvme0/nvme0n1/nvme0n1p1"));
        link("sys/class/block/dm-0", "../../devices/virtual/block/dm-0");
        link("sys/class/block/nvme1n1", "../../devices/virtual/nvme-subsystem/nvme-subsys1/nvme1n1");
        link(
            "sys/class/nvme-subsystem/nvme-subsys1/nvme1",
            "../../../devices/pci0000:10/0000:10:03.0/0000:14:00.0/nvme/nvme1",
        );
        for (number, name) in [("259:0", "nvme0n1"), ("254:0", "dm-0"), ("259:3", "nvme1n1"), ("7:0", "loop0")] {
            link(&format!("sys/dev/block/{number}"), &format!("../../devices/{name}"));
        }
        tree
    }

    fn bdfs(list: &[&str]) -> Vec<Bdf> {
        list.iter().map(|bdf| bdf.parse().unwrap()).collect()
    }

    #[test]
    fn a_disk_knows_its_way_from_the_root_port() {
        let root = tree();
        let way = |major, minor| Disk::by_number(&root, major, minor, true).unwrap().way;
        assert_eq!(way(259, 0), bdfs(&["0000:00:02.0", "0000:04:00.0"]));
        // Stacked, with several ways, and on no bus.
        assert_eq!(way(254, 0), bdfs(&["0000:00:02.0", "0000:04:00.0"]));
        assert_eq!(way(259, 3), bdfs(&["0000:10:03.0", "0000:14:00.0"]));
        assert_eq!(way(7, 0), []);
        assert_eq!(Disk::by_number(&root, 1, 1, true), None);
    }

    #[test]
    fn a_disk_with_partitions_is_not_empty() {
        let root = tree();
        let disk = Disk::by_number(&root, 259, 0, true).unwrap();
        assert_eq!(disk.holds(&root), ["nvme0n1 has partitions: nvme0n1p1"]);
        let other = Disk::by_number(&root, 259, 3, true).unwrap();
        assert_eq!(other.holds(&root), Vec::<String>::new());
    }

    #[test]
    fn a_file_with_a_single_byte_anywhere_is_not_blank() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let is_blank = || contents(file.path()).unwrap().is_none();
        assert!(is_blank());
        // What truncate, fallocate and dd of zeros make: a hole, space without data, and zeros.
        file.as_file().set_len(8 * HEAD).unwrap();
        assert!(is_blank());
        if let Err(err) = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 2 * HEAD) {
            assert_eq!(err, Errno::NOTSUP);
        }
        assert!(is_blank());
        file.as_file().write_all_at(&vec![0; 2 * HEAD as usize], 4 * HEAD).unwrap();
        assert!(is_blank());
        for at in [0, HEAD - 1, HEAD, 2 * HEAD, 6 * HEAD - 1, 7 * HEAD + 1, 8 * HEAD - 1] {
            file.as_file().write_all_at(&[1], at).unwrap();
            assert!(!is_blank(), "{at}");
            file.as_file().write_all_at(&[0], at).unwrap();
            assert!(is_blank(), "{at}");
        }
        assert!(contents(Path::new("/nonexistent")).is_err());
        // No file: its beginning counts.
        assert_eq!(contents(Path::new("/dev/zero")).unwrap(), None);
        assert!(contents(Path::new("/dev/urandom")).unwrap().is_some_and(|why| why.contains("first MiB")));
    }

    #[test]
    fn a_path_on_no_disk_is_refused() {
        let root = tree();
        let refused = Disk::of(&root, Path::new("/proc/self/stat")).unwrap_err();
        assert!(refused.to_string().contains("/proc/self/stat"), "{refused}");
        assert!(Disk::of(&root, Path::new("/nonexistent")).is_err());
    }
}
