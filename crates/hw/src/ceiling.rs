//! How much payload a link can carry in one direction: the figure that "% of the link" is a part of.
//!
//! docs/method.md, "The link's ceiling", has the derivation. It is an upper limit: no payload exceeds it, and a real
//! stream stays some percent below.

use pciescope_core::Link;

/// The shortest header of a TLP with payload: a completion, or a write to a 32-bit address, in bytes.
const HEADER_BYTES: f64 = 12.0;
/// Sequence number, link CRC and framing of a TLP outside flit mode, in bytes: 2 + 4 + 2 with 8b/10b, 4 + 4 in the STP
/// token and the CRC with 128b/130b.
const LINK_BYTES: f64 = 8.0;
/// A flit, and the part of it that TLPs share; the rest is data link layer, CRC and error correction, in bytes.
const FLIT_BYTES: f64 = 256.0;
const FLIT_TLP_BYTES: f64 = 236.0;

/// The payload that a link can carry in one direction as it is now, in bytes per second. Where the maximum payload size is
/// not known, headers are left out and the limit is higher than it could be. `None` for a link that is
/// down or nominal.
pub fn payload_bytes_per_s(link: &Link) -> Option<f64> {
    if link.is_nominal {
        return None;
    }
    let per_tlp = if is_flit(link.speed_gts) { HEADER_BYTES } else { HEADER_BYTES + LINK_BYTES };
    let share = link.mps_bytes.map_or(1.0, |mps| f64::from(mps) / (f64::from(mps) + per_tlp));
    Some(wire_bytes_per_s(link.speed_gts, link.width)? * share)
}

/// The bytes of TLPs, framing included, that a link of `speed_gts` and `lanes` can carry in one direction per second.
/// `None` for a link that is down.
pub fn wire_bytes_per_s(speed_gts: f64, lanes: u8) -> Option<f64> {
    if speed_gts <= 0.0 || lanes == 0 {
        return None;
    }
    let coding = match speed_gts {
        s if s <= 5.0 => 8.0 / 10.0,
        s if s <= 32.0 => 128.0 / 130.0,
        _ => FLIT_TLP_BYTES / FLIT_BYTES,
    };
    Some(speed_gts * 1e9 / 8.0 * coding * f64::from(lanes))
}

/// 64 GT/s and more are only defined with flits.
fn is_flit(speed_gts: f64) -> bool {
    speed_gts > 32.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(speed_gts: f64, width: u8, mps_bytes: Option<u16>) -> Link {
        Link { speed_gts, width, mps_bytes, ..Link::default() }
    }

    #[test]
    fn ceilings_worked_out_by_hand() {
        // 2.5 GT/s x1: 250 MB/s of symbols, 128 of 148 bytes are payload.
        // 8 GT/s x8: 7876.9 MB/s, 256 of 276. 32 GT/s x4: 15753.8 MB/s, 512 of 532. 64 GT/s x4: 29500, 512 of 524.
        for (speed, lanes, mps, expected) in [
            (2.5, 1, 128, 216.216e6),
            (5.0, 2, 256, 927.536e6),
            (8.0, 8, 256, 7306.132e6),
            (32.0, 4, 512, 15_161.596e6),
            (64.0, 4, 512, 28_824.427e6),
        ] {
            let got = payload_bytes_per_s(&link(speed, lanes, Some(mps))).unwrap();
            assert!((got - expected).abs() < 500.0, "{speed} GT/s x{lanes}, {mps} bytes: {got}");
        }
    }

    #[test]
    fn a_payload_size_that_is_not_known_leaves_headers_out() {
        assert_eq!(payload_bytes_per_s(&link(2.5, 4, None)), Some(1e9));
    }

    #[test]
    fn a_link_that_is_down_has_no_ceiling() {
        assert_eq!(payload_bytes_per_s(&link(0.0, 4, Some(256))), None);
        assert_eq!(payload_bytes_per_s(&link(8.0, 0, Some(256))), None);
    }
}
