//! Decimal numbers from bytes, eight digits at a time.
//!
//! A log of ten million lines holds a third of a gigabyte of digits; `str::parse` on split fields takes longer than
//! reading the file.

/// The most digits a number may have: every number of 19 digits fits 64 bits.
const MOST_DIGITS: usize = 19;

/// The number that starts at `at` and the place after it; `None` where there is no digit or there are more than 19.
#[inline(always)]
pub fn parse(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut value = 0u64;
    let mut place = at;
    while let Some(eight) = bytes.get(place..place + 8).and_then(eight_digits) {
        value = value.wrapping_mul(100_000_000).wrapping_add(eight);
        place += 8;
        // Two steps of eight leave room for three digits; a third would overflow unseen.
        if place - at > MOST_DIGITS - 3 {
            return None;
        }
    }
    while let Some(digit) = bytes.get(place).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        place += 1;
    }
    (place > at && place - at <= MOST_DIGITS).then_some((value, place))
}

/// The number that eight ASCII digits make, `None` if one of them is not a digit. All eight bytes are handled in one
/// word: pairs are joined to two digits, then to four, then to eight.
#[inline(always)]
fn eight_digits(bytes: &[u8]) -> Option<u64> {
    let word = u64::from_le_bytes(bytes.try_into().ok()?);
    // A digit is 0x30 to 0x39: its high half is 3, also after adding 6.
    let high =
        (word & 0xf0f0_f0f0_f0f0_f0f0) | ((word.wrapping_add(0x0606_0606_0606_0606) & 0xf0f0_f0f0_f0f0_f0f0) >> 4);
    if high != 0x3333_3333_3333_3333 {
        return None;
    }
    let word = word & 0x0f0f_0f0f_0f0f_0f0f;
    let word = word.wrapping_mul(10).wrapping_add(word >> 8) & 0x00ff_00ff_00ff_00ff;
    let word = word.wrapping_mul(100).wrapping_add(word >> 16) & 0x0000_ffff_0000_ffff;
    Some(word.wrapping_mul(10_000).wrapping_add(word >> 32) & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_up_to_nineteen_digits() {
        assert_eq!(parse(b"0", 0), Some((0, 1)));
        assert_eq!(parse(b"x12345678 ", 1), Some((12_345_678, 9)));
        assert_eq!(parse(b"1234567890123456789\n", 0), Some((1_234_567_890_123_456_789, 19)));
        assert_eq!(parse(b"9999999999999999999", 0), Some((9_999_999_999_999_999_999, 19)));
        for bad in
            ["", "x", "-1", "+1", " 1", "12345678901234567890", "123456789012345678901234", "1234567890123456789012345"]
        {
            assert_eq!(parse(bad.as_bytes(), 0), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_standard_library(n in 0u64..10_000_000_000_000_000_000, rest in "[^0-9]{0,12}") {
            let text = format!("{n}{rest}");
            prop_assert_eq!(parse(text.as_bytes(), 0), Some((n, n.to_string().len())));
        }

        #[test]
        fn takes_exactly_the_digits(bytes in proptest::collection::vec(prop_oneof![b'0'..=b'9', any::<u8>()], 0..40)) {
            let digits = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
            let want = std::str::from_utf8(&bytes[..digits]).ok().filter(|d| d.len() <= 19).and_then(|d| d.parse().ok());
            prop_assert_eq!(parse(&bytes, 0), want.map(|v: u64| (v, digits)));
        }
    }
}
