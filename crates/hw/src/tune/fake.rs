//! The knobs of the synthetic machine: files like those of a real one, and a law by which they change a figure.

use std::fs;
use std::io;

use pciescope_core::{Bdf, CpuList};

use crate::config::Config;
use crate::express::Express;
use crate::{Root, pci};

/// Device Control of the device: relaxed ordering, payload of 256 bytes, no snoop, read requests of 512 bytes.
const DEVICE_CONTROL: u16 = 0x0010 | 0x0020 | 0x0800 | 0x2000;

/// Gives a function of a machine of files the registers and files that knobs are found in.
///
/// # Errors
/// Files that cannot be written.
pub fn make(root: &Root, bdf: Bdf) -> io::Result<()> {
    let put = |path: &str, text: &[u8]| {
        let path = root.path(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)
    };
    let own = pci::folder(bdf).display().to_string();
    let mut config = vec![0u8; 4096];
    let mut word = |at: usize, value: u16| config[at..at + 2].copy_from_slice(&value.to_le_bytes());
    word(0x00, pci::id(root, bdf, "vendor").unwrap_or_default() as u16);
    word(0x02, pci::id(root, bdf, "device").unwrap_or_default() as u16);
    // A list of capabilities with one entry: PCI Express, version 2, an endpoint.
    word(0x06, 0x0010);
    word(0x34, 0x0040);
    word(0x40, 0x0010);
    word(0x42, 0x0002);
    // Payloads up to 512 bytes.
    word(0x44, 0x0002);
    word(0x48, DEVICE_CONTROL);
    // A serial number (7.9.3), the only extended capability.
    word(0x100, 0x0003);
    word(0x102, 0x0001);
    word(0x104, 0x00fe);
    put(&format!("{own}/config"), &config)?;
    // The ports above take the same payloads.
    config[0x42] = 0x42;
    for port in pci::way(root, pci::folder(bdf)).iter().filter(|port| **port != bdf) {
        put(&pci::folder(*port).join("config").display().to_string(), &config)?;
    }
    put(&format!("{own}/link/l0s_aspm"), b"0\n")?;
    put(&format!("{own}/link/l1_aspm"), b"1\n")?;
    for irq in root.names(format!("{own}/msi_irqs")) {
        put(&format!("/proc/irq/{irq}/smp_affinity_list"), b"0\n")?;
    }
    for cpu in
        root.text("/sys/devices/system/cpu/online").and_then(|text| text.parse().ok()).iter().flat_map(CpuList::iter)
    {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq");
        put(&format!("{folder}/scaling_governor"), b"powersave\n")?;
        put(&format!("{folder}/scaling_available_governors"), b"performance powersave\n")?;
    }
    for disk in crate::nodes::names(root, bdf) {
        let queue = format!("/sys/class/block/{disk}/queue");
        put(&format!("{queue}/scheduler"), b"[none] mq-deadline\n")?;
        put(&format!("{queue}/nr_requests"), b"1023\n")?;
    }
    put("/proc/sys/kernel/random/boot_id", b"5e3d0c3e-0000-4000-8000-000000000000\n")
}

/// What the registers of a function add to the logarithm of a rate: read requests of 4096 bytes 3 %, those of 128 bytes
/// -4 %, relaxed ordering switched off -5 %; everything else nothing.
pub fn law(root: &Root, bdf: Bdf) -> f64 {
    let config = Config::load(root, bdf);
    let requests = match config.mrrs_bytes() {
        Some(4096) => 1.03,
        Some(128) => 0.96,
        _ => 1.0,
    };
    let is_reordered = Express::of(&config).is_some_and(|express| express.device_control() & 0x0010 != 0);
    f64::ln(requests * if is_reordered { 1.0 } else { 0.95 })
}
