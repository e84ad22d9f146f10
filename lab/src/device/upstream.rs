//! The link that several boards share on their way to the root port, such as that of a crate's switch.
//!
//! Its wire bytes are divided among the current transfers: none takes more than its own link can carry, and the others
//! share the rest in equal parts (max-min fairness). Different threads, each with its own clock, serve the boards, so
//! the link keeps no time: a transfer asks for its rate when it checks its progress. Between two checks it uses the
//! mean of the rates at both; docs/spec/sis8300.md, "Shared links", states the resulting error.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Framing, sequence number and LCRC of a TLP, and the header of a completion or of a request with a 32-bit address.
const HEADER_32: u32 = 20;
/// The same of a request with a 64-bit address.
const HEADER_64: u32 = 24;
/// The read completion boundary, where the root port cuts completions.
const RCB: u32 = 64;

/// Bytes per second that the TLPs of a link take in one direction: its lanes' rate less encoding and SKP ordered sets. Unknown
/// generations count as the nearest known one.
pub fn wire_rate(generation: u8, width: u8) -> f64 {
    // GT/s and the part of the bits that carries TLPs; flits have 236 of 256 bytes for them.
    let (transfers, part) = match generation {
        0 | 1 => (2.5e9, 0.8 * (1.0 - 4.0 / 1538.0)),
        2 => (5e9, 0.8 * (1.0 - 4.0 / 1538.0)),
        3 => (8e9, 128.0 / 130.0 * (1.0 - 4.0 / 1538.0)),
        4 => (16e9, 128.0 / 130.0 * (1.0 - 4.0 / 1538.0)),
        5 => (32e9, 128.0 / 130.0 * (1.0 - 4.0 / 1538.0)),
        _ => (64e9, 236.0 / 256.0),
    };
    transfers * part * f64::from(width) / 8.0
}

/// The part of the wire bytes that is payload when memory at `address` is written in TLPs of `payload` bytes.
pub fn write_efficiency(address: u64, payload: u32) -> f64 {
    let header = if address >> 32 == 0 { HEADER_32 } else { HEADER_64 };
    f64::from(payload) / f64::from(payload + header)
}

/// The part of the wire bytes that is payload when memory is read and completions are cut at the read completion boundary.
pub fn read_efficiency(payload: u32) -> f64 {
    let chunk = payload.min(RCB);
    f64::from(chunk) / f64::from(chunk + HEADER_32)
}

/// Which way data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the board to memory.
    Up,
    /// From memory to the board.
    Down,
}

/// A joint link. Clones are the same link.
#[derive(Clone, Debug)]
pub struct Upstream {
    shared: Arc<Mutex<Joint>>,
}

#[derive(Debug)]
struct Joint {
    /// Wire bytes per second in each direction.
    rate: f64,
    members: u32,
    /// By direction and member: what each could take by itself.
    flows: [BTreeMap<u32, f64>; 2],
}

impl Upstream {
    /// A link of this generation (1 to 6) and width (lanes).
    pub fn new(generation: u8, width: u8) -> Self {
        let joint = Joint { rate: wire_rate(generation, width), members: 0, flows: Default::default() };
        Upstream { shared: Arc::new(Mutex::new(joint)) }
    }

    /// One more board behind the link.
    pub fn join(&self) -> Member {
        let mut joint = self.lock();
        joint.members += 1;
        Member { upstream: self.clone(), number: joint.members }
    }

    /// Transfers that are under way in a direction.
    pub fn active(&self, direction: Direction) -> usize {
        self.lock().flows[direction as usize].len()
    }

    /// A thread that panicked left at worst a transfer that never ends.
    fn lock(&self) -> MutexGuard<'_, Joint> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A board's place behind a joint link.
#[derive(Debug)]
pub struct Member {
    upstream: Upstream,
    number: u32,
}

impl Member {
    /// A transfer begins, or goes on, that could take `own` wire bytes per second by itself.
    pub fn begin(&self, direction: Direction, own: f64) {
        self.upstream.lock().flows[direction as usize].insert(self.number, own);
    }

    /// No transfer is under way in this direction.
    pub fn end(&self, direction: Direction) {
        self.upstream.lock().flows[direction as usize].remove(&self.number);
    }

    /// Wire bytes per second that the transfer has now; 0 where none is under way.
    pub fn rate(&self, direction: Direction) -> f64 {
        self.upstream.lock().share(direction, self.number)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.end(Direction::Up);
        self.end(Direction::Down);
    }
}

impl Joint {
    fn share(&self, direction: Direction, number: u32) -> f64 {
        let flows = &self.flows[direction as usize];
        let Some(&own) = flows.get(&number) else { return 0.0 };
        let mut rates: Vec<f64> = flows.values().copied().collect();
        rates.sort_by(f64::total_cmp);
        let (mut left, mut others) = (self.rate, rates.len() as f64);
        for rate in rates {
            let fair = left / others;
            if rate > fair {
                // From here on all are held back alike.
                return own.min(fair);
            }
            left -= rate;
            others -= 1.0;
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < expected * 1e-9, "{value} is not {expected}");
    }

    #[test]
    fn the_payload_rates_are_those_of_the_ceilings() {
        // MB/s: MWr with 20 and 24 bytes about the payload, by generation, width and payload.
        for (generation, width, payload, near32, near64) in [
            (1, 1, 128, 216.0, 210.0),
            (1, 4, 256, 925.0, 912.0),
            (2, 4, 128, 1725.0, 1680.0),
            (3, 4, 128, 3397.0, 3308.0),
            (5, 16, 512, 60489.0, 60037.0),
        ] {
            let rate = |address| (wire_rate(generation, width) * write_efficiency(address, payload) / 1e6).round();
            assert_eq!((rate(0xffff_ffff), rate(1 << 32)), (near32, near64), "Gen{generation} x{width}");
        }
        assert_eq!((wire_rate(1, 4) * read_efficiency(256) / 1e6).round(), 760.0);
        near(wire_rate(6, 4), 64e9 * 4.0 / 8.0 * 236.0 / 256.0);
    }

    #[test]
    fn a_transfer_alone_has_its_own_rate_or_the_links() {
        let upstream = Upstream::new(1, 2);
        let member = upstream.join();
        assert_eq!(member.rate(Direction::Up), 0.0);
        member.begin(Direction::Up, 100e6);
        near(member.rate(Direction::Up), 100e6);
        member.begin(Direction::Up, 900e6);
        near(member.rate(Direction::Up), wire_rate(1, 2));
        assert_eq!(member.rate(Direction::Down), 0.0, "the directions are apart");
        member.end(Direction::Up);
        assert_eq!(upstream.active(Direction::Up), 0);
    }

    #[test]
    fn what_small_ones_leave_the_others_share() {
        let upstream = Upstream::new(1, 4);
        let total = wire_rate(1, 4);
        let members: Vec<Member> = (0..3).map(|_| upstream.join()).collect();
        for (member, own) in members.iter().zip([100e6, 2e9, 3e9]) {
            member.begin(Direction::Up, own);
        }
        near(members[0].rate(Direction::Up), 100e6);
        for member in &members[1..] {
            near(member.rate(Direction::Up), (total - 100e6) / 2.0);
        }
        members[2].end(Direction::Up);
        near(members[1].rate(Direction::Up), total - 100e6);
    }

    #[test]
    fn a_board_that_is_gone_leaves_its_share() {
        let upstream = Upstream::new(1, 1);
        let (one, two) = (upstream.join(), upstream.join());
        one.begin(Direction::Up, 1e9);
        two.begin(Direction::Up, 1e9);
        near(one.rate(Direction::Up), wire_rate(1, 1) / 2.0);
        drop(two);
        near(one.rate(Direction::Up), wire_rate(1, 1));
    }
}
