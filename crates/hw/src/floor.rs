//! Lower bounds of a read: the wire's floor, and the best published figure.
//!
//! Serialisation and propagation are exact but small; the logic at both ends takes more than nine tenths of a real
//! round trip. So charts have two lines. The wire's floor shows what a downtrained link costs. The best published
//! figure for the same number of switches shows what a good machine nearly reaches.

use pciescope_core::Function;

/// Framing, sequence number and link CRC of a TLP, in bytes (8b/10b and 128b/130b alike).
const LINK_BYTES: f64 = 8.0;
/// Header of a memory read with a 32-bit address, in bytes; 4 more with a 64-bit address.
const REQUEST_HEADER_BYTES: f64 = 12.0;
/// Header of a completion with data, in bytes.
const COMPLETION_HEADER_BYTES: f64 = 12.0;
/// One way over 0.3 m of board at 7 ps/mm, in nanoseconds.
const PROPAGATION_NS: f64 = 2.0;

/// The best round trip published for an endpoint without a switch, in nanoseconds.
pub const BEST_NS: f64 = 350.0;
/// Where [`BEST_NS`] and the costs of switch and retimer come from.
pub const BEST_SOURCE: &str = "pcie-bench raw data (NFP-6000, Gen3 x8: smallest 360 ns), pcie-lat issue 9 (Xeon Gold 6250: mean 407 ns); \
     PEX88000 105 ns and PEX9700 150 ns each way (Linley 2019)";

/// The wire's floor of a read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WireFloor {
    /// Time to send request and completion over one link, in nanoseconds.
    pub serialisation_ns: f64,
    /// Flight over the board and back, all links, in nanoseconds.
    pub propagation_ns: f64,
}

impl WireFloor {
    /// The whole floor, in nanoseconds.
    pub fn total_ns(self) -> f64 {
        self.serialisation_ns + self.propagation_ns
    }
}

/// The wire's floor of a read of `read_bytes` with a 32-bit address over a link of `speed_gts` and `lanes` and
/// through `switches` (each of which adds another link; cut-through, so the bytes count once). `None` for a
/// link that is down and for 64 GT/s and more, whose flits need another formula.
pub fn wire_floor(speed_gts: f64, lanes: u8, read_bytes: u8, switches: u32) -> Option<WireFloor> {
    let bits_per_byte = bits_per_byte(speed_gts)?;
    if lanes == 0 {
        return None;
    }
    let request = REQUEST_HEADER_BYTES + LINK_BYTES;
    // Data goes in double words.
    let data = f64::from(read_bytes.div_ceil(4)) * 4.0;
    let completion = COMPLETION_HEADER_BYTES + data + LINK_BYTES;
    Some(WireFloor {
        serialisation_ns: (request + completion) * bits_per_byte / (speed_gts * f64::from(lanes)),
        propagation_ns: 2.0 * PROPAGATION_NS * f64::from(1 + switches),
    })
}

/// Bits on the wire for a byte: 8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s.
fn bits_per_byte(speed_gts: f64) -> Option<f64> {
    match speed_gts {
        s if s <= 0.0 => None,
        s if s <= 5.0 => Some(10.0),
        s if s <= 32.0 => Some(8.0 * 130.0 / 128.0),
        _ => None,
    }
}

/// The wire's floor of a read of `read_bytes` by a CPU from a function: that of the slowest link of its path. `None` for a
/// bridge, and for a function whose own link is nominal, or without one.
pub fn of(function: &Function, read_bytes: u8) -> Option<WireFloor> {
    let link = function.link.filter(|link| !link.is_nominal && function.class >> 16 != 0x06)?;
    let slowest = function.path_link.map_or((link.speed_gts, link.width), |link| (link.speed_gts, link.width));
    wire_floor(slowest.0, slowest.1, read_bytes, switches_on(&function.path))
}

/// The best published round trip through so many switches, in nanoseconds: a range, as a switch crossed twice
/// adds 210 ns (Gen4) to 300 ns (Gen3). Source: [`BEST_SOURCE`].
pub fn best_published(switches: u32) -> (f64, f64) {
    let n = f64::from(switches);
    (BEST_NS + 210.0 * n, BEST_NS + 300.0 * n)
}

/// How many switches lie on a path of bridges from the root port down: each has an upstream and a downstream port.
pub fn switches_on(path: &[pciescope_core::Bdf]) -> u32 {
    (path.len().saturating_sub(1) / 2) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialisation_of_four_bytes_is_that_of_the_published_table() {
        // Nanoseconds of request and completion together, with the digits that the published table has.
        for (speed, lanes, expected, digits) in [
            (2.5, 1, 176.0, 0.5),
            (2.5, 4, 44.0, 0.5),
            (5.0, 1, 88.0, 0.5),
            (5.0, 4, 22.0, 0.5),
            (8.0, 1, 45.0, 0.5),
            (8.0, 4, 11.0, 0.5),
            (8.0, 8, 5.6, 0.05),
            (8.0, 16, 2.8, 0.05),
            (16.0, 4, 5.6, 0.05),
            (16.0, 16, 1.4, 0.05),
            (32.0, 4, 2.8, 0.05),
            (32.0, 16, 0.7, 0.05),
        ] {
            let floor = wire_floor(speed, lanes, 4, 0).unwrap();
            assert!(
                (floor.serialisation_ns - expected).abs() <= digits,
                "{speed} GT/s x{lanes}: {} is not {expected}",
                floor.serialisation_ns
            );
            assert_eq!(floor.propagation_ns, 4.0);
        }
    }

    #[test]
    fn eight_bytes_cost_half_a_nanosecond_more_on_gen3_x16_at_most() {
        let four = wire_floor(8.0, 16, 4, 0).unwrap().total_ns();
        let eight = wire_floor(8.0, 16, 8, 0).unwrap().total_ns();
        assert!(eight - four > 0.0 && eight - four <= 0.5, "{}", eight - four);
        assert_eq!(wire_floor(8.0, 16, 1, 0), wire_floor(8.0, 16, 4, 0));
    }

    #[test]
    fn has_no_floor_for_a_link_that_is_down_or_speaks_flits() {
        assert_eq!(wire_floor(8.0, 0, 4, 0), None);
        assert_eq!(wire_floor(0.0, 4, 4, 0), None);
        assert_eq!(wire_floor(64.0, 4, 4, 0), None);
    }

    #[test]
    fn a_switch_adds_its_published_crossing_twice() {
        assert_eq!(best_published(0), (350.0, 350.0));
        assert_eq!(best_published(2), (770.0, 950.0));
        let port = |text: &str| text.parse().unwrap();
        assert_eq!(switches_on(&[]), 0);
        assert_eq!(switches_on(&[port("00:01.0")]), 0);
        assert_eq!(switches_on(&[port("00:01.0"), port("01:00.0"), port("02:00.0")]), 1);
    }
}
