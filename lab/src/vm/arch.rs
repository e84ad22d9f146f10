//! The processor architecture of a guest: what differs between x86-64 and arm64 in the lab stands here.

use std::str::FromStr;
use std::{env, fmt};

use super::LabError;

pciescope_core::named! {
    /// The architecture of a guest, by Debian's names.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Arch {
        /// x86-64: QEMU's machine `q35`.
        #[default]
        Amd64 => "amd64",
        /// 64-bit Arm: QEMU's machine `virt` with GICv3, ITS and, where it is asked for, an IOMMU.
        Arm64 => "arm64",
    }
    /// Debian's name for it.
    fn name
}

impl Arch {
    /// The architecture of `PCIESCOPE_LAB_ARCH` (`amd64` or `arm64`); x86-64 where it is not set.
    ///
    /// # Errors
    /// The variable holds another word.
    pub fn chosen() -> Result<Arch, LabError> {
        match env::var("PCIESCOPE_LAB_ARCH") {
            Ok(text) if !text.is_empty() => text
                .parse()
                .map_err(|_| LabError::Refused(format!("PCIESCOPE_LAB_ARCH={text}: neither amd64 nor arm64"))),
            _ => Ok(Arch::default()),
        }
    }

    fn pick<T>(self, amd64: T, arm64: T) -> T {
        match self {
            Arch::Amd64 => amd64,
            Arch::Arm64 => arm64,
        }
    }

    /// The compiler's name for programs of this architecture.
    pub fn triple(self) -> &'static str {
        self.pick("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
    }

    /// Ending of the name of its root folder.
    pub(super) fn suffix(self) -> &'static str {
        self.pick("", "-arm64")
    }

    /// The loader in a Debian tree.
    pub(super) fn loader(self) -> &'static str {
        self.pick("lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1")
    }

    /// The libraries in a Debian tree.
    pub(super) fn libraries(self) -> &'static str {
        self.pick("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu")
    }

    /// QEMU in the root folder.
    pub(super) fn qemu(self) -> &'static str {
        self.pick("usr/bin/qemu-system-x86_64", "host/usr/bin/qemu-system-aarch64")
    }

    /// The guest's first and second serial port: the console and the agent's.
    pub(super) fn serial_ports(self) -> [&'static str; 2] {
        self.pick(["ttyS0", "ttyS1"], ["ttyAMA0", "ttyAMA1"])
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Arch {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        Arch::ALL
            .into_iter()
            .find(|arch| arch.name() == text)
            .ok_or_else(|| LabError::Refused(format!("{text}: no such architecture (amd64, arm64)")))
    }
}
