//! Disks: `/sys/class/block/*/stat` (Documentation/block/stat.rst), in sectors of 512 bytes for every disk.
//!
//! A disk counts where its device lies below a PCI function: NVMe, SCSI, ATA, USB, virtio. Of a multipath NVMe namespace these are
//! its hidden paths (`nvme0c1n1`), one for each controller; the namespace itself lies on no bus. Neither do loop, device mapper,
//! md and zram: what goes through them is counted at the disk beneath. Partitions are parts of a disk.

use std::collections::BTreeSet;

use pciescope_core::Bdf;

use super::{Count, Item, LeftOut, Look, Ways, at, number, read};
use crate::Root;

const BLOCK: &str = "/sys/class/block";
const SECTOR_BYTES: u64 = 512;
/// Where `stat` has the sectors read and written, from 0.
const FIELDS: [(usize, Count); 2] = [(2, Count::DiskRx), (6, Count::DiskTx)];

/// Lists the disks; `ports` are the functions whose RDMA ports are counted.
pub(super) fn look(root: &Root, ways: &mut Ways, ports: &BTreeSet<Bdf>, look: &mut Look) {
    for place in ways.of_folder(root, BLOCK) {
        let Some(function) = place.way.last() else { continue };
        if root.exists(at(BLOCK, &place, "partition")) {
            continue;
        }
        // A disk over a network: FCoE lies below the interface, SRP and iSER below the adapter.
        let is_over_net = place.target.iter().any(|part| part == "net" || part == "infiniband");
        let why = if is_over_net || ports.contains(function) {
            Some("its data goes over a port that is counted")
        } else if root.number(at(BLOCK, &place, "queue/iostats")) == Some(0) {
            Some("queue/iostats is 0: the kernel does not count it")
        } else {
            None
        };
        if let Some(why) = why {
            look.left_out.push(LeftOut { name: place.name, way: place.way, why });
            continue;
        }
        // One that is gone meanwhile is no disk any more.
        let Ok((inode, text)) = read(root, at(BLOCK, &place, "stat")) else { continue };
        let fields: Vec<&str> = text.split_whitespace().collect();
        for (field, count) in FIELDS {
            let value = number(fields.get(field).copied().unwrap_or_default());
            look.items.push(Item { one: SECTOR_BYTES, ..Item::of(&place, count, inode, value) });
        }
    }
}
