//! Error reports: `aer_dev_correctable` and its like (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats).

use super::{Count, Item, LinkTarget, Look};
use crate::inventory::{CORRECTABLE, FATAL, MESSAGES, NONFATAL, error_counts};
use crate::{Root, pci};

const FILES: [(&str, Count); 3] =
    [(CORRECTABLE, Count::Correctable), (NONFATAL, Count::Nonfatal), (FATAL, Count::Fatal)];

pub(super) fn look(root: &Root, functions: &[LinkTarget], look: &mut Look) {
    // Before what the functions counted, so that no message is in the one and not yet in the other.
    for place in functions.iter().filter(|place| place.way.len() == 1) {
        for ((_, count), file) in FILES.iter().zip(MESSAGES) {
            let got = root.number(pci::folder(place.way[0]).join(file));
            look.messages.extend(got.map(|got| Item::of(place, *count, 0, Ok(got))));
        }
    }
    for place in functions {
        let Some(bdf) = place.way.last().copied() else { continue };
        let Some(inode) = root.inode(pci::folder(bdf)) else { continue };
        for (file, count) in FILES {
            let Some(counts) = error_counts(root, bdf, file) else { continue };
            let value = counts.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
            look.items.push(Item { name: file.to_owned(), ..Item::of(place, count, inode, Ok(value)) });
        }
    }
}
