//! Interrupts by vector: the numbers that sysfs lists below a function (`msi_irqs`), and the line `intr` of `/proc/stat`
//! (Documentation/filesystems/proc.rst), which has the sum over all CPUs for each number. `/proc/interrupts` has the same by
//! CPU, and takes long on many.
//!
//! An interrupt line (INTx) may be shared, so nothing tells how often a function raised it: it is left out.

use std::os::unix::fs::DirEntryExt;

use super::{Count, Item, LinkTarget, Look};
use crate::Root;

const DEVICES: &str = "/sys/bus/pci/devices";
/// The kernel keeps these counts in 32 bits.
const WRAPS_AT: u64 = 1 << 32;

pub(super) fn look(root: &Root, functions: &[LinkTarget], look: &mut Look) {
    let Some(text) = root.text("/proc/stat") else { return };
    let Some(line) = text.lines().find_map(|line| line.strip_prefix("intr ")) else { return };
    // The sum of all comes first.
    let counts: Vec<&str> = line.split_whitespace().skip(1).collect();
    for place in functions {
        if place.way.is_empty() {
            continue;
        }
        let Ok(entries) = std::fs::read_dir(root.path(format!("{DEVICES}/{}/msi_irqs", place.name))) else { continue };
        for entry in entries.flatten() {
            let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let Some(value) = counts.get(number as usize).and_then(|count| count.parse().ok()) else { continue };
            let item = Item::of(place, Count::Vector(number), entry.ino(), Ok(value));
            look.items.push(Item { name: format!("interrupt {number}"), wraps_at: Some(WRAPS_AT), ..item });
        }
    }
}
