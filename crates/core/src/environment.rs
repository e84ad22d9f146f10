//! The machine as it was during a run: every hidden variable that moves a latency.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{Bdf, Cpu};

/// What a reader must know of a machine to judge its figures. `None` means that it could not be found out.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Version of pciescope that measured.
    pub tool: String,
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`: `x86_64`, `aarch64`.
    pub machine: String,
    /// Vendor and product of the machine (DMI), where readable.
    pub product: Option<String>,
    /// Which machine it is.
    pub host: Option<Host>,
    /// Version of the machine's firmware (BIOS, UEFI).
    pub bios_version: Option<String>,
    /// Its date, as the firmware writes it.
    pub bios_date: Option<String>,
    /// Firmware of devices, where their drivers show it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub firmware: Vec<Firmware>,
    /// Names of the slots that hold a device.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub slots: Vec<Slot>,
    /// CPU model in words.
    pub cpu_model: Option<String>,
    /// All online CPUs with their places.
    pub cpus: Vec<Cpu>,
    /// Which boot of the machine it is, as the kernel names it.
    pub boot_id: Option<String>,
    /// Kernel command line.
    pub cmdline: Option<String>,
    /// Clock source of the kernel (`tsc`, `arch_sys_counter`, `hpet`).
    pub clocksource: Option<String>,
    /// Frequency governors in use, each once.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub governors: Vec<String>,
    /// Idle states that are enabled on CPU 0, shallow to deep.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub idle_states: Vec<String>,
    /// ASPM policy of the kernel.
    pub aspm_policy: Option<String>,
    /// Kernel lockdown: `none`, `integrity`, `confidentiality`.
    pub lockdown: Option<String>,
    /// Whether any IOMMU translates: the number of IOMMU groups.
    pub iommu_groups: u32,
    /// Why the machine is taken for a guest; `None` where it looks like bare metal.
    pub hypervisor: Option<String>,
    /// Time stolen by the hypervisor during the run, in nanoseconds, all CPUs.
    pub steal_ns: Option<u64>,
}

impl Environment {
    /// The product of a machine that the fake backend makes up.
    pub const SYNTHETIC: &str = "synthetic machine";

    /// Whether the fake backend makes the machine up.
    pub fn is_synthetic(&self) -> bool {
        self.product.as_deref() == Some(Self::SYNTHETIC)
    }
}

/// A machine among others.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// Its host name.
    pub name: String,
    /// Stays until the system is installed again. It is computed from the machine-id, in one direction only.
    pub id: Option<String>,
    /// Its serial number, where the user asked for it (`--serial`).
    pub serial: Option<String>,
}

/// The firmware of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Firmware {
    /// The function.
    pub bdf: Bdf,
    /// Its version in the maker's words.
    pub version: String,
}

/// A slot, by the function in it or the port above it, as the machine's firmware says. At least one name is there.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Slot {
    /// The function.
    pub bdf: Bdf,
    /// The kernel's name (`/sys/bus/pci/slots`).
    pub name: Option<String>,
    /// What is printed beside the slot (SMBIOS, type 9), which only root may read.
    pub designation: Option<String>,
}
