//! Network interfaces: `/sys/class/net/*/statistics` (Documentation/ABI/testing/sysfs-class-net-statistics), in bytes.
//!
//! An interface counts where its device lies below a PCI function. Bonds, bridges, VLANs, tunnels and veth lie on no bus: what goes
//! through them is counted at the interface beneath.

use std::collections::BTreeSet;

use pciescope_core::Bdf;

use super::{Count, Item, LeftOut, Look, Ways, at, number, read};
use crate::Root;

const NET: &str = "/sys/class/net";
const FILES: [(&str, Count); 2] = [("statistics/rx_bytes", Count::NetRx), ("statistics/tx_bytes", Count::NetTx)];

// include/uapi/linux/if_arp.h: interfaces that show a copy of what another one carries, and IP over InfiniBand.
const ARPHRD_INFINIBAND: u64 = 32;
const ARPHRD_MONITOR: std::ops::RangeInclusive<u64> = 801..=803;

/// Lists the interfaces; `ports` are the functions whose RDMA ports are counted.
pub(super) fn look(root: &Root, ways: &mut Ways, ports: &BTreeSet<Bdf>, look: &mut Look) {
    for place in ways.of_folder(root, NET) {
        let Some(function) = place.way.last() else { continue };
        let of = root.number(at(NET, &place, "type")).unwrap_or_default();
        let why = if root.text(at(NET, &place, "phys_switch_id")).is_some() {
            // Representors stand for what a virtual function carries, the uplink for all that the wire does.
            Some("it is a port of a switch in the device: it counts what never comes to the host")
        } else if ARPHRD_MONITOR.contains(&of) {
            Some("it shows copies of what another interface carries")
        } else if of == ARPHRD_INFINIBAND && ports.contains(function) {
            Some("the RDMA port counts it")
        } else {
            None
        };
        if let Some(why) = why {
            look.left_out.push(LeftOut { name: place.name, way: place.way, why });
            continue;
        }
        for (file, count) in FILES {
            let Ok((inode, text)) = read(root, at(NET, &place, file)) else { continue };
            look.items.push(Item::of(&place, count, inode, number(&text)));
        }
    }
}
