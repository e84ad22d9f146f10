//! Counts that may grow during `--watch`.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use pciescope_core::Bdf;

use crate::config::Config;
use crate::express::Express;
use crate::inventory::{self, CORRECTABLE, error_counts};
use crate::{Root, pci, usage};

/// One reading of the counts.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    /// The correctable errors of each function by the kernel's names, without what is 0.
    pub correctable: BTreeMap<Bdf, BTreeMap<String, u64>>,
    /// Link Status of each port whose link leads down, where it can be read.
    pub link_status: BTreeMap<Bdf, u16>,
    /// Device Status of each function, where it can be read.
    pub device_status: BTreeMap<Bdf, u16>,
    /// The correctable error messages that each root port got.
    pub messages: BTreeMap<Bdf, u64>,
    /// System management interrupts of CPU 0; `None` where they cannot be read.
    pub smi: Option<u64>,
    /// Where the time of all CPUs went; `None` where it cannot be read.
    pub cpu_time: Option<usage::CpuTime>,
}

impl Readings {
    /// Reads the counts of these functions and of the machine.
    pub fn take(root: &Root, functions: &[Bdf]) -> Self {
        let counts = |bdf: &Bdf| Some((*bdf, error_counts(root, *bdf, CORRECTABLE)?));
        let configs: Vec<(Bdf, Config)> = functions.iter().map(|bdf| (*bdf, Config::load(root, *bdf))).collect();
        let express = || configs.iter().filter_map(|(bdf, config)| Some((*bdf, Express::of(config)?)));
        let ports = express().filter(|(_, express)| express.leads_down());
        let messages = |bdf: &Bdf| Some((*bdf, root.number(pci::folder(*bdf).join(inventory::MESSAGES[0]))?));
        Readings {
            correctable: functions.iter().filter_map(counts).collect(),
            link_status: ports.map(|(bdf, express)| (bdf, express.link_status())).collect(),
            device_status: express().map(|(bdf, express)| (bdf, express.device_status())).collect(),
            messages: functions.iter().filter_map(messages).collect(),
            smi: smi(root).ok(),
            cpu_time: usage::CpuTime::load(root).ok(),
        }
    }
}

/// MSR_SMI_COUNT of Intel's CPUs (Software Developer's Manual, volume 4): system management interrupts since reset.
const MSR_SMI_COUNT: u64 = 0x34;
/// Where the kernel shows the model-specific registers of CPU 0.
pub const MSR: &str = "/dev/cpu/0/msr";

/// System management interrupts since reset.
pub fn smi(root: &Root) -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open(root.path(MSR))?.read_exact_at(&mut bytes, MSR_SMI_COUNT)?;
    Ok(u64::from_le_bytes(bytes) & 0xffff_ffff)
}
