//! RDMA ports: `/sys/class/infiniband/*/ports/*/counters` (Documentation/ABI/stable/sysfs-class-infiniband), in words of 4
//! bytes, transport headers included.

use std::collections::BTreeSet;

use pciescope_core::Bdf;

use super::{Count, Item, LeftOut, Look, Ways, at, number, read};
use crate::{Root, pci};

const CLASS: &str = "/sys/class/infiniband";
const FILES: [(&str, Count); 2] =
    [("counters/port_rcv_data", Count::RdmaRx), ("counters/port_xmit_data", Count::RdmaTx)];
/// One count is so many bytes.
const WORD_BYTES: u64 = 4;
/// Adapters without the extended counters have 32 bits that stay at their end.
const STUCK: u64 = 0xffff_ffff;

/// Lists the ports, and gives the functions whose ports are counted.
pub(super) fn look(root: &Root, ways: &mut Ways, look: &mut Look) -> BTreeSet<Bdf> {
    let mut counted = BTreeSet::new();
    for place in ways.of_folder(root, CLASS) {
        let Some(function) = place.way.last() else { continue };
        // mlx5 counts packets of RDMA alone (drivers/infiniband/hw/mlx5/mad.c). Other drivers may count what their network
        // interface counts as well.
        let is_apart = pci::driver(root, *function).is_some_and(|driver| driver == "mlx5_core");
        for port in root.names(at(CLASS, &place, "ports")) {
            let name = format!("{}/{port}", place.name);
            let is_ethernet = root
                .text(at(CLASS, &place, &format!("ports/{port}/link_layer")))
                .is_some_and(|layer| layer == "Ethernet");
            // Further ports of an adapter on Ethernet stand for virtual functions.
            let why = match is_ethernet {
                true if !is_apart => Some("its driver may count the network interface's bytes too"),
                true if port != "1" => Some("it stands for another function"),
                _ => None,
            };
            if let Some(why) = why {
                look.left_out.push(LeftOut { name, way: place.way.clone(), why });
                continue;
            }
            for (file, count) in FILES {
                let Ok((inode, text)) = read(root, at(CLASS, &place, &format!("ports/{port}/{file}"))) else {
                    continue;
                };
                counted.insert(*function);
                let value = number(&text).and_then(|value| match value {
                    STUCK => Err("it stands at the end of its 32 bits".to_owned()),
                    value => Ok(value),
                });
                let item = Item::of(&place, count, inode, value);
                look.items.push(Item { name: name.clone(), one: WORD_BYTES, ..item });
            }
        }
    }
    counted
}
