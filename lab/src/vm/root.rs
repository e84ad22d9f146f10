//! The root folder that `lab/setup-root` makes: QEMU, guest kernels, the guest's tools.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::{env, fmt, fs};

use super::LabError;
use super::arch::Arch;

pciescope_core::named! {
    /// A guest kernel: the newest of one Debian suite; the oldest comes first.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
    pub enum Kernel {
        /// Debian bullseye's, for x86-64, where `lab/setup-kernel` has added it.
        V5_10 => "5.10",
        /// Debian bookworm's.
        V6_1 => "6.1",
        /// Debian trixie's.
        #[default]
        V6_12 => "6.12",
        /// Debian trixie's with pages of 16 KiB, for arm64, where `lab/setup-kernel` has added it.
        V6_12Pages16k => "6.12-16k",
        /// The newest in trixie-backports.
        Newest => "newest",
    }
    /// As it is typed.
    fn name
}

impl Kernel {
    fn suite(self) -> &'static str {
        match self {
            Kernel::V5_10 => "bullseye",
            Kernel::V6_1 => "bookworm",
            Kernel::V6_12 => "trixie",
            Kernel::V6_12Pages16k => "trixie-16k",
            Kernel::Newest => "trixie-backports",
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kernel {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        Kernel::ALL.into_iter().find(|kernel| kernel.name() == text).ok_or_else(|| {
            let names = Kernel::ALL.map(Kernel::name).join(", ");
            LabError::Refused(format!("{text}: no such guest kernel ({names})"))
        })
    }
}

/// The lab's root folder.
#[derive(Debug, Clone)]
pub struct Root {
    arch: Arch,
    /// The guest's kernels and tools.
    path: PathBuf,
    /// What runs here: for an x86-64 guest the same folder.
    host: PathBuf,
}

/// The architecture of this machine.
const HOST: Arch = Arch::Amd64;
const KERNELS: &str = "usr/share/pciescope/kernels";
const STAMP: &str = ".pciescope-lab";
const ALLOCATOR: &str = "libjemalloc.so.2";

impl Root {
    /// The root folder of `PCIESCOPE_LAB_ROOT`, else `pciescope/lab-root` in the user's cache folder; the one of another
    /// architecture lies beside it, with `-arm64` behind its name.
    ///
    /// # Errors
    /// [`LabError::NoRoot`] when it is missing or incomplete.
    pub fn find(arch: Arch) -> Result<Root, LabError> {
        let host = match env::var_os("PCIESCOPE_LAB_ROOT") {
            Some(path) => PathBuf::from(path),
            None => cache_dir()?.join("lab-root"),
        };
        let path = beside(&host, arch);
        let needed = [
            (&host, [STAMP, HOST.loader(), HOST.qemu(), KERNELS]),
            (&path, [STAMP, arch.loader(), arch.qemu(), KERNELS]),
        ];
        for (folder, files) in needed {
            if let Some(missing) = files.into_iter().find(|file| folder.join(file).symlink_metadata().is_err()) {
                return Err(LabError::NoRoot(folder.clone(), missing.into()));
            }
        }
        Ok(Root { arch, path, host })
    }

    /// The architecture of its guests.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Release of a guest kernel, such as `6.12.107+deb13-amd64`.
    ///
    /// # Errors
    /// The folder's list of kernels cannot be read or lacks this one.
    pub fn release(&self, kernel: Kernel) -> Result<String, LabError> {
        let list = self.path.join(KERNELS);
        let text = fs::read_to_string(&list).map_err(LabError::file("read", &list))?;
        text.lines()
            .filter_map(|line| line.split_once(' '))
            .find(|(suite, _)| *suite == kernel.suite())
            .map(|(_, release)| release.to_owned())
            .ok_or(LabError::NoRoot(self.path.clone(), format!("kernel {kernel}").into()))
    }

    /// The kernel of a release, as an ELF file: QEMU enters it directly, and the guest need not unpack it.
    pub fn image(&self, release: &str) -> PathBuf {
        let boot = self.path.join("boot");
        let unpacked = boot.join(format!("vmlinux-{release}"));
        if unpacked.exists() { unpacked } else { boot.join(format!("vmlinuz-{release}")) }
    }

    /// How often a release's timer ticks, in hertz (CONFIG_HZ); `None` where its configuration is not in the folder.
    pub fn tick_rate(&self, release: &str) -> Option<u64> {
        [self.path.join("boot").join(format!("config-{release}")), self.modules(release).join("config")]
            .iter()
            .find_map(|path| fs::read_to_string(path).ok())?
            .lines()
            .find_map(|line| line.strip_prefix("CONFIG_HZ=")?.parse().ok())
            .filter(|rate| *rate > 0)
    }

    /// The folder of a release's own modules.
    pub fn modules(&self, release: &str) -> PathBuf {
        self.path.join("usr/lib/modules").join(release)
    }

    /// What identifies this folder's contents: the hash of the recipe it was made by.
    pub fn stamp(&self) -> String {
        fs::read_to_string(self.path.join(STAMP)).unwrap_or_default()
    }

    /// A command that runs one of the folder's programs for this machine with the folder's own libraries, without chroot.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.loader();
        command.arg(self.host.join(program));
        command
    }

    fn loader(&self) -> Command {
        let mut command = Command::new(self.host.join(HOST.loader()));
        command.arg("--library-path").arg(self.host.join(HOST.libraries()));
        command
    }

    /// QEMU, told where its modules and firmware are. It has an allocator of its own: QEMU tells that of the C library to
    /// return memory to the system at each change of a device's windows, which takes a tenth of a boot.
    pub fn qemu(&self) -> Command {
        let libraries = self.host.join(HOST.libraries());
        let mut command = self.loader();
        command.arg("--preload").arg(libraries.join(ALLOCATOR)).arg(self.path.join(self.arch.qemu()));
        command.env("QEMU_MODULE_DIR", libraries.join("qemu"));
        for firmware in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(self.host.join(firmware));
        }
        command
    }

    /// The UEFI firmware of arm64 guests, which brings ACPI.
    pub fn firmware(&self) -> PathBuf {
        self.path.join("usr/share/qemu-efi-aarch64/QEMU_EFI.fd")
    }
}

/// The root folder of an architecture's guests, beside the one of this machine. A slash at the end of that one's name is
/// not a part of it.
fn beside(host: &Path, arch: Arch) -> PathBuf {
    let mut path = host.components().collect::<PathBuf>().into_os_string();
    path.push(arch.suffix());
    path.into()
}

/// The folder of this user's cache that is the project's.
///
/// # Errors
/// Neither `XDG_CACHE_HOME` nor `HOME` is set.
pub(super) fn cache_dir() -> Result<PathBuf, LabError> {
    env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .map(|cache| cache.join("pciescope"))
        .ok_or_else(|| LabError::Refused("neither XDG_CACHE_HOME nor HOME is set: no place for the lab's files".into()))
}

/// The `lab` folder of the source tree: `PCIESCOPE_LAB_DIR`, else where this program was built.
///
/// # Errors
/// [`LabError::Missing`] when there is none.
pub(super) fn source_dir() -> Result<PathBuf, LabError> {
    let path = env::var_os("PCIESCOPE_LAB_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let probe = path.join("guest/init");
    if probe.exists() { Ok(path) } else { Err(LabError::Missing(probe, "it is part of the source tree".into())) }
}

/// The folder of our modules for a kernel release: `PCIESCOPE_LAB_MODULES`, else `target/lab/modules` of the tree.
pub(super) fn own_modules(release: &str) -> Result<PathBuf, LabError> {
    let base = match env::var_os("PCIESCOPE_LAB_MODULES") {
        Some(path) => PathBuf::from(path),
        None => source_dir()?.join("../target/lab/modules"),
    };
    Ok(base.join(release))
}

/// A program of ours that was built for another architecture, in the profile of `PCIESCOPE_LAB_PROFILE`, else `release`.
///
/// # Errors
/// [`LabError::NotBuilt`] when it was not.
pub(super) fn own_program(arch: Arch, name: &str) -> Result<PathBuf, LabError> {
    let profile = env::var_os("PCIESCOPE_LAB_PROFILE").unwrap_or_else(|| "release".into());
    let target = target_dir(&source_dir()?, env::var_os("CARGO_TARGET_DIR"));
    let path = target.join(arch.triple()).join(profile).join(name);
    if path.exists() { Ok(path) } else { Err(LabError::NotBuilt(path, arch)) }
}

/// Where cargo builds: the folder of `CARGO_TARGET_DIR`, taken from the source tree as `make` does, else `target` there.
fn target_dir(lab: &Path, chosen: Option<OsString>) -> PathBuf {
    lab.join("..").join(chosen.filter(|path| !path.is_empty()).unwrap_or_else(|| "target".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_read_back_as_they_are_written() {
        for kernel in Kernel::ALL {
            assert_eq!(kernel.to_string().parse::<Kernel>().unwrap(), kernel);
        }
        assert!("6.11".parse::<Kernel>().unwrap_err().to_string().starts_with("6.11: no such guest kernel"));
    }
    #[test]
    fn a_slash_behind_the_root_folder_changes_nothing() {
        for name in ["/cache/lab-root", "/cache/lab-root/", "/cache/lab-root//"] {
            assert_eq!(beside(Path::new(name), Arch::Arm64).as_os_str(), "/cache/lab-root-arm64", "{name}");
            assert_eq!(beside(Path::new(name), Arch::Amd64).as_os_str(), "/cache/lab-root", "{name}");
        }
    }

    #[test]
    fn programs_are_looked_for_where_cargo_builds() {
        let target = |chosen: Option<&str>| target_dir(Path::new("/tree/lab"), chosen.map(OsString::from));
        assert_eq!(target(None), Path::new("/tree/lab/../target"));
        assert_eq!(target(Some("")), Path::new("/tree/lab/../target"));
        assert_eq!(target(Some("/var/build")), Path::new("/var/build"));
        assert_eq!(target(Some("build")), Path::new("/tree/lab/../build"));
    }

    #[test]
    fn a_program_that_is_not_built_says_how_to_build_it() {
        let missing = own_program(Arch::Arm64, "pciescope-that-nobody-builds").unwrap_err();
        assert!(missing.to_string().ends_with("/pciescope-that-nobody-builds is not built"), "{missing}");
        assert!(missing.hint().unwrap().contains("make build ARCH=arm64"));
    }
}
