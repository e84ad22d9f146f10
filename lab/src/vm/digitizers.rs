//! The crate of digitizers: the boards of the seed, behind one switch, at the slots that they had there.

use std::str::FromStr;

use pciescope_core::Bdf;

use super::Attachment;
use crate::device::config::Link;
use crate::device::sis8300::{Model, Sis8300};
use crate::device::traffic::Traffic;
use crate::device::upstream::Upstream;

/// The boards of the seed's crate: physical slot and model, in the order in which a smaller crate takes them. Slot 3 held the
/// KU; which of the others were L and which L2 is not known.
pub const SEED_BOARDS: [(u16, Model); 6] =
    [(6, Model::L2), (7, Model::L2), (8, Model::L2), (9, Model::L2), (4, Model::L), (3, Model::Ku)];
/// The root port that the switch is behind where the machine has no other device.
const SWITCH_PORT: Bdf = Bdf { domain: 0, bus: 0, device: 4, function: 0 };

/// Generation and lanes of a link, such as `3x4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Generation, 1 to 6.
    pub generation: u8,
    /// Lanes: 1, 2, 4, 8, 16 or 32.
    pub width: u8,
}

impl Lanes {
    fn link(self) -> Link {
        Link {
            generation: self.generation,
            width: self.width,
            max_generation: self.generation,
            max_width: self.width,
            max_payload: 1,
        }
    }
}

impl FromStr for Lanes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} is no link: generation (1 to 6) x lanes (1, 2, 4, 8, 16 or 32), like 3x4");
        let (generation, width) = text.split_once('x').ok_or_else(wrong)?;
        let generation = generation.parse().ok().filter(|generation| (1..=6).contains(generation)).ok_or_else(wrong)?;
        let width = width.parse().ok().filter(|width| matches!(width, 1 | 2 | 4 | 8 | 16 | 32)).ok_or_else(wrong)?;
        Ok(Lanes { generation, width })
    }
}

impl std::fmt::Display for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.generation, self.width)
    }
}

/// A crate of digitizers to be.
#[derive(Clone, Debug)]
pub struct Crate {
    /// Physical slot and model of each board.
    pub boards: Vec<(u16, Model)>,
    /// The link of an L or L2.
    pub link: Lanes,
    /// The link of a KU.
    pub ku_link: Lanes,
    /// The link that the switch shares among them.
    pub upstream: Lanes,
    /// Whether the boards can send messages; else they interrupt by their pins.
    pub has_msi: bool,
    /// Pulses of each board's trigger generator, in 1/1000 Hz; 0: none.
    pub trigger_millihertz: u64,
    /// Seed of all samples.
    pub seed: u64,
    /// Where the boards enter what they move.
    pub traffic: Traffic,
}

impl Crate {
    /// The first `count` boards of the seed's crate, 6 at most. Every link has a quarter of the lanes that the crate had: the
    /// lab moves bytes by copying them, on few cores. Triggers come at 14 Hz.
    pub fn seed(count: usize) -> Self {
        let mut boards = SEED_BOARDS[..count.min(SEED_BOARDS.len())].to_vec();
        boards.sort_by_key(|(slot, _)| *slot);
        Crate {
            boards,
            link: Lanes { generation: 1, width: 1 },
            ku_link: Lanes { generation: 3, width: 1 },
            upstream: Lanes { generation: 2, width: 2 },
            has_msi: true,
            trigger_millihertz: 14_000,
            seed: 1,
            traffic: Traffic::new(),
        }
    }

    /// The name of the board at a slot: of its device, and of its control socket.
    pub fn name(slot: u16) -> String {
        format!("sis8300-{slot}")
    }

    /// The boards behind one switch, by name, with their places; their serial numbers are their slots'.
    pub fn behind_switch(&self) -> Vec<(String, Sis8300, Attachment)> {
        let upstream = Upstream::new(self.upstream.generation, self.upstream.width);
        let place = |slot| (SWITCH_PORT, Attachment::SwitchSlot(slot));
        let boards = self.boards.iter().map(|(slot, model)| (*slot, *model, place(*slot)));
        boards.map(|(slot, model, place)| self.board(slot, model, Some(&upstream), place)).collect()
    }

    /// The boards behind root ports of their own, in this order; boards beyond the ports are left out.
    pub fn behind_ports(&self, ports: &[Bdf]) -> Vec<(String, Sis8300, Attachment)> {
        let boards = self.boards.iter().zip(ports);
        boards.map(|((slot, model), port)| self.board(*slot, *model, None, (*port, Attachment::Port(*port)))).collect()
    }

    fn board(
        &self,
        slot: u16,
        model: Model,
        upstream: Option<&Upstream>,
        (port, place): (Bdf, Attachment),
    ) -> (String, Sis8300, Attachment) {
        let link = if model == Model::Ku { self.ku_link } else { self.link };
        let mut board = Sis8300::new(model, &link.link(), self.traffic.port(port))
            .with_seed(self.seed)
            .with_serial(slot)
            .with_trigger(self.trigger_millihertz);
        if let Some(upstream) = upstream {
            board = board.with_upstream(upstream);
        }
        if !self.has_msi {
            board = board.without_msi();
        }
        (Crate::name(slot), board, place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_has_its_boards_where_they_were() {
        let slots = |count| Crate::seed(count).boards.iter().map(|(slot, _)| *slot).collect::<Vec<_>>();
        assert_eq!(slots(6), [3, 4, 6, 7, 8, 9]);
        assert_eq!(slots(5), [4, 6, 7, 8, 9]);
        assert_eq!(slots(1), [6]);
        let boards = Crate::seed(6).behind_switch();
        assert_eq!((boards[0].0.as_str(), boards[0].2), ("sis8300-3", Attachment::SwitchSlot(3)));
    }

    #[test]
    fn links_are_read_as_they_are_written() {
        assert_eq!("3x16".parse(), Ok(Lanes { generation: 3, width: 16 }));
        assert_eq!(Lanes { generation: 2, width: 4 }.to_string().parse(), Ok(Lanes { generation: 2, width: 4 }));
        for wrong in ["", "3", "x4", "3x", "0x4", "7x4", "3x3", "3x64", "gen3x4", "3x4 "] {
            assert!(wrong.parse::<Lanes>().is_err(), "{wrong:?}");
        }
    }
}
