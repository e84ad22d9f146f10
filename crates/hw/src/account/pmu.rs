//! A function's account as a PMU: named, with events in perf's syntax, at a function. Its counts come from
//! [`Accounts`](super::Accounts), not from perf.

use std::collections::{BTreeMap, BTreeSet};

use pciescope_core::{Bdf, CpuList};

use super::Count;
use crate::perf::{By, Config, Field, Named, Pmu};
use crate::{Root, pci};

/// The beginning of the names; the function's address follows.
const PREFIX: &str = "kernel_";
/// The parameters of an event: what is counted, and of which interrupt.
const FORMATS: [(&str, &str); 2] = [("count", "config:0-7"), ("irq", "config:32-63")];
/// The events, by their number in `count`.
const EVENTS: [(&str, Count); 12] = [
    ("rx_bytes", Count::Rx),
    ("tx_bytes", Count::Tx),
    ("disk_rx_bytes", Count::DiskRx),
    ("disk_tx_bytes", Count::DiskTx),
    ("net_rx_bytes", Count::NetRx),
    ("net_tx_bytes", Count::NetTx),
    ("rdma_rx_bytes", Count::RdmaRx),
    ("rdma_tx_bytes", Count::RdmaTx),
    ("interrupts", Count::Interrupts),
    ("correctable_errors", Count::Correctable),
    ("nonfatal_errors", Count::Nonfatal),
    ("fatal_errors", Count::Fatal),
];
/// The number in `count` of an interrupt by its `irq`.
const VECTOR: u64 = 0x20;

/// The accounts of all functions, by address. Each has all events, also those for which the kernel has no counter now: a disk
/// may come later.
pub fn pmus(root: &Root) -> Vec<Pmu> {
    let formats: BTreeMap<String, Field> =
        FORMATS.iter().filter_map(|(name, bits)| Some(((*name).to_owned(), Field::parse(bits)?))).collect();
    let named = |terms: String| Named { terms, ..Named::default() };
    let events: BTreeMap<String, Named> =
        EVENTS.iter().enumerate().map(|(at, (name, _))| ((*name).to_owned(), named(format!("count={at}")))).collect();
    let of = |bdf: Bdf| {
        let vectors = root.names(pci::folder(bdf).join("msi_irqs"));
        let vectors = vectors.iter().filter_map(|name| name.parse::<u32>().ok());
        let mut events = events.clone();
        events.extend(vectors.map(|irq| (format!("irq_{irq}"), named(format!("count={VECTOR},irq={irq}")))));
        Pmu {
            name: format!("{PREFIX}{bdf}"),
            by: By::Kernel,
            number: 0,
            cpus: CpuList::default(),
            cores: CpuList::default(),
            identifier: None,
            formats: formats.clone(),
            events,
            bdf: Some(bdf),
            die: None,
        }
    };
    pci::addresses(root).into_iter().map(of).collect()
}

/// The accounts of all functions by the names of [`pmus`], each with the inode of its function's folder.
pub fn present(root: &Root) -> BTreeSet<(String, u64)> {
    let inode = |bdf: Bdf| Some((format!("{PREFIX}{bdf}"), root.inode(pci::folder(bdf))?));
    pci::addresses(root).into_iter().filter_map(inode).collect()
}

impl Count {
    /// What an event of [`pmus`] counts; `None` for one that there is not.
    pub fn of(config: Config) -> Option<Count> {
        let (count, irq) = (config.0[0] & 0xff, (config.0[0] >> 32) as u32);
        if count == VECTOR {
            return Some(Count::Vector(irq));
        }
        EVENTS.get(usize::try_from(count).ok()?).map(|(_, count)| *count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::Tree;

    /// The tree that the catalogue's file is checked against has exactly what is here.
    #[test]
    fn the_catalogues_tree_is_what_is_offered() {
        let tree = pciescope_support::tree::pmu("kernel");
        let recorded = crate::perf::named(&Root::at(tree.path()), "kernel_0000:02:00.0").unwrap();
        let offered = pmus(&Tree::of(&[("sys/bus/pci/devices/0000:02:00.0/msi_irqs/45", "msix\n")]));
        assert_eq!(offered.len(), 1);
        assert_eq!(offered[0].name, recorded.name);
        assert_eq!((&offered[0].formats, &offered[0].events), (&recorded.formats, &recorded.events));
    }

    #[test]
    fn an_event_stands_for_what_it_is_named_after() {
        let pmu = pmus(&Tree::of(&[("sys/bus/pci/devices/0000:02:00.0/msi_irqs/7", "")])).remove(0);
        for (name, count) in EVENTS {
            assert_eq!(Count::of(pmu.event(name).unwrap().config), Some(count), "{name}");
        }
        assert_eq!(Count::of(pmu.event("irq_7").unwrap().config), Some(Count::Vector(7)));
        assert_eq!(Count::of(pmu.event("count=0x1f").unwrap().config), None);
    }
}
