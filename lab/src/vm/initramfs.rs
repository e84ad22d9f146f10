//! The initramfs of a guest kernel: busybox, the init scripts, and the modules that reach the host's folders. It holds
//! nothing of a single run, so it is made once per kernel and kept; a run's own files are put behind it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use cpio::newc;
use tempfile::NamedTempFile;

use super::LabError;
use super::arch::Arch;
use super::root::{Root, cache_dir, source_dir};

/// What the guest needs before it can reach the host's folders: the transport and the file system.
const MODULES: [&str; 3] = ["virtio_pci", "9pnet_virtio", "9p"];

/// The driver of QEMU's virtio-iommu. No function behind one gets a driver before it.
pub(super) const VIRTIO_IOMMU: &str = "virtio_iommu";

/// Programs of the root folder that the guest finds under their own names.
const TOOLS: &str = "sh bash lspci setpci setpriv strace fio perf stress-ng script kmod lsmod modinfo rmmod taskset chrt \
                     fallocate";

/// Scripts of `lab/guest` and where they go.
const SCRIPTS: [(&str, &str); 6] = [
    ("init", "init"),
    ("agent", "lib/lab/agent"),
    ("command", "lib/lab/command"),
    ("tool", "lib/lab/tool"),
    ("modprobe", "sbin/modprobe"),
    ("poweroff", "lib/lab/poweroff"),
];

/// Inode numbers from here on are those of a run's files.
const FIRST_OF_RUN: u32 = 1 << 20;

/// What a person types to end the guest. QEMU is told not to reboot.
const ENDINGS: [&str; 3] = ["poweroff", "halt", "reboot"];

const FOLDERS: &str = "bin dev etc host initmodules lab lib lib/lab lib/pciescope proc root run sbin sys tmp usr \
                       usr/bin usr/sbin usr/share";

/// The initramfs for a kernel release, made if it is not in the cache; with the driver of the virtio-iommu where the machine
/// has one.
pub(super) fn build(root: &Root, release: &str, has_virtio_iommu: bool) -> Result<PathBuf, LabError> {
    let scripts = read_scripts(root.arch())?;
    let iommu = has_virtio_iommu.then_some(VIRTIO_IOMMU);
    let modules: Vec<&str> = MODULES[..1].iter().copied().chain(iommu).chain(MODULES[1..].iter().copied()).collect();
    let mut hash = DefaultHasher::new();
    (release, root.stamp(), &scripts, &modules, TOOLS, FOLDERS, env!("CARGO_PKG_VERSION")).hash(&mut hash);
    let folder = cache_dir()?.join("initramfs");
    let path = folder.join(format!("{release}-{:016x}.cpio", hash.finish()));
    if path.exists() {
        return Ok(path);
    }
    fs::create_dir_all(&folder).map_err(LabError::file("create", &folder))?;
    let mut archive = Archive::default();
    fill(&mut archive, root, release, &scripts, &modules)?;
    // Whoever finds the file finds it whole: two runs, and two guests of one run, may make it at once.
    let mut partial = NamedTempFile::new_in(&folder).map_err(LabError::file("create a file in", &folder))?;
    partial.write_all(&archive.finish()?).map_err(LabError::file("write", &path))?;
    partial.persist(&path).map_err(|err| LabError::file("write", &path)(err.error))?;
    Ok(path)
}

/// Writes an initramfs with a run's files behind those of `base` to `folder`. The guest's kernel unpacks them in a fraction
/// of the seconds that copying them from a shared folder takes. Files belong to root and keep their modes.
pub(super) fn with_files(base: &Path, files: &BTreeMap<String, PathBuf>, folder: &Path) -> Result<PathBuf, LabError> {
    let mut archive = Archive { bytes: fs::read(base).map_err(LabError::file("read", base))?, inode: FIRST_OF_RUN };
    // The kernel looks for the next archive at a multiple of four bytes, behind zeros.
    archive.bytes.resize(archive.bytes.len().next_multiple_of(4), 0);
    let mut folders = BTreeSet::new();
    for (place, host) in files {
        let place = place.trim_start_matches('/');
        for (end, _) in place.match_indices('/') {
            if folders.insert(&place[..end]) {
                archive.folder(&place[..end])?;
            }
        }
        let contents = fs::read(host).map_err(LabError::file("read", host))?;
        let mode = fs::metadata(host).map_err(LabError::file("read", host))?.permissions().mode();
        archive.add(place, 0o100_000 | mode & 0o7777, &contents)?;
    }
    let path = folder.join("initrd");
    fs::write(&path, archive.finish()?).map_err(LabError::file("write", &path))?;
    Ok(path)
}

/// The guest's scripts, with what depends on the architecture.
fn read_scripts(arch: Arch) -> Result<Vec<(&'static str, Vec<u8>)>, LabError> {
    let guest = source_dir()?.join("guest");
    SCRIPTS
        .iter()
        .map(|(name, place)| {
            let path = guest.join(name);
            let text = fs::read_to_string(&path).map_err(LabError::file("read", path))?;
            let text = text.replace("@LOADER@", &format!("/lab/{}", arch.loader()));
            let text = text.replace("@LIBRARIES@", &format!("/lab/{}", arch.libraries()));
            Ok((*place, text.replace("@PORT@", arch.serial_ports()[1]).into_bytes()))
        })
        .collect()
}

fn fill(
    archive: &mut Archive,
    root: &Root,
    release: &str,
    scripts: &[(&str, Vec<u8>)],
    modules: &[&str],
) -> Result<(), LabError> {
    for folder in FOLDERS.split(' ') {
        archive.folder(folder)?;
    }
    let busybox = root.path().join("usr/bin/busybox");
    archive.file("bin/busybox", &fs::read(&busybox).map_err(LabError::file("read", busybox))?)?;
    let list = root
        .command("usr/bin/busybox")
        .arg("--list")
        .output()
        .map_err(LabError::file("start", root.path().join("usr/bin/busybox")))?;
    // modprobe and what comes from the root folder must not be hidden by busybox's own.
    let hidden: HashSet<&str> = TOOLS.split(' ').chain(["modprobe", "busybox"]).chain(ENDINGS).collect();
    for applet in String::from_utf8_lossy(&list.stdout).lines().filter(|applet| !hidden.contains(applet)) {
        archive.link(&format!("bin/{applet}"), "/bin/busybox")?;
    }
    for tool in TOOLS.split(' ') {
        archive.link(&format!("usr/bin/{tool}"), "/lib/lab/tool")?;
    }
    // Debian's busybox runs its own applets whatever PATH says: a shell that does not must read the commands.
    archive.link("bin/sh", "/lib/lab/tool")?;
    for ending in ENDINGS {
        archive.link(&format!("bin/{ending}"), "/lib/lab/poweroff")?;
    }
    if root.arch() != Arch::Amd64 {
        // Programs find the libraries of the root folder by themselves.
        for path in [root.arch().loader(), root.arch().libraries()] {
            let name = path.rsplit('/').next().unwrap_or_default();
            archive.link(&format!("lib/{name}"), &format!("/lab/{path}"))?;
        }
    }
    archive.link("usr/bin/modprobe", "/sbin/modprobe")?;
    archive.link("lib/modules", "/lab/usr/lib/modules")?;
    archive.link("usr/share/misc", "/lab/usr/share/misc")?;
    archive.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")?;
    archive.file("etc/group", b"root:x:0:\n")?;
    for (place, text) in scripts {
        archive.file(place, text)?;
    }
    for (index, module) in resolve(&root.modules(release), modules)?.iter().enumerate() {
        let name = module.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = name.split(".ko").next().unwrap_or_default();
        archive.file(&format!("initmodules/{index:02}-{name}.ko"), &read_module(root, module)?)?;
    }
    Ok(())
}

/// Whether this kernel has a module, also one that is built in, by the name that modprobe gives it.
pub(super) fn has_module(root: &Root, release: &str, name: &str) -> Result<bool, LabError> {
    for list in ["modules.dep", "modules.builtin"] {
        let path = root.modules(release).join(list);
        let listed = fs::read_to_string(&path).map_err(LabError::file("read", path))?;
        if listed.lines().filter_map(|line| line.split(':').next()).any(|path| stem(path) == name) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Modules and all they depend on, in the order of loading. Those built into the kernel are left out.
fn resolve(folder: &Path, names: &[&str]) -> Result<Vec<PathBuf>, LabError> {
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).map_err(LabError::file("read", path))
    };
    let (dependencies, builtin) = (read("modules.dep")?, read("modules.builtin")?);
    let mut order: Vec<PathBuf> = Vec::new();
    for name in names {
        if builtin.lines().any(|line| stem(line) == *name) {
            continue;
        }
        let (module, needs) = dependencies
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(path, _)| stem(path) == *name)
            .ok_or_else(|| {
                let hint = format!("the kernel has no module {name}; lab/setup-root --remove and make setup");
                LabError::Missing(folder.join(name), hint)
            })?;
        // modules.dep names the nearest dependency first.
        for path in needs.split_whitespace().rev().chain([module]) {
            let path = folder.join(path);
            if !order.contains(&path) {
                order.push(path);
            }
        }
    }
    Ok(order)
}

/// Name of the module in a path such as `kernel/fs/9p/9p.ko.xz`, as modprobe spells it.
fn stem(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

fn read_module(root: &Root, path: &Path) -> Result<Vec<u8>, LabError> {
    if path.extension().is_none_or(|extension| extension != "xz") {
        return fs::read(path).map_err(LabError::file("read", path));
    }
    let output = root.command("usr/bin/xz").arg("-dc").arg(path).output().map_err(LabError::file("read", path))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(LabError::Program(format!("xz -dc {}", path.display()), reason))
    }
}

/// A cpio archive of the form the kernel unpacks. Not compressed: unpacking costs the guest more than reading.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, contents: &[u8]) -> Result<(), LabError> {
        self.inode += 1;
        let size = u32::try_from(contents.len())
            .map_err(|_| LabError::Refused(format!("{name} is too large for an initramfs")))?;
        let mut writer = newc::Builder::new(name).ino(self.inode).mode(mode).nlink(1).write(&mut self.bytes, size);
        writer.write_all(contents).and_then(|()| writer.finish().map(drop)).map_err(LabError::file("write", name))
    }

    fn folder(&mut self, name: &str) -> Result<(), LabError> {
        self.add(name, 0o040_755, b"")
    }

    fn file(&mut self, name: &str, contents: &[u8]) -> Result<(), LabError> {
        self.add(name, 0o100_755, contents)
    }

    fn link(&mut self, name: &str, target: &str) -> Result<(), LabError> {
        self.add(name, 0o120_777, target.as_bytes())
    }

    fn finish(self) -> Result<Vec<u8>, LabError> {
        newc::trailer(self.bytes).map_err(|source: io::Error| LabError::File {
            action: "write",
            path: "initramfs".into(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_loaded_after_what_they_need_and_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join("modules.dep"),
            "kernel/a-top.ko.xz: kernel/middle.ko.xz kernel/base.ko.xz\nkernel/b.ko: kernel/base.ko.xz\n",
        )
        .unwrap();
        fs::write(dir.path().join("modules.builtin"), "kernel/drivers/virtio/virtio_pci.ko\n").unwrap();
        let order = resolve(dir.path(), &["virtio_pci", "a_top", "b"]).unwrap();
        let names: Vec<_> = order.iter().map(|path| stem(&path.to_string_lossy())).collect();
        assert_eq!(names, ["base", "middle", "a_top", "b"]);
        assert!(matches!(resolve(dir.path(), &["absent"]), Err(LabError::Missing { .. })));
    }
}
