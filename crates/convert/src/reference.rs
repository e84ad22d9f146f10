//! The definition of right: one word at a time, in integers.
//!
//! The exact value is
//!
//! | operation | exact value of a word with integer `x` |
//! |---|---|
//! | Cast | `x` |
//! | Scale | `x * factor + offset`, factor and offset taken as the exact numbers that the two `f64` stand for |
//! | Unsigned, Signed | `q / 2^n`, `q` the integer in the low `m + n` bits |
//! | Degrees | `q / 2^n * DEGREES`, [`DEGREES`] taken as the exact number that the `f64` stands for |
//!
//! and the result is that value rounded once to the type of the output: to nearest, ties to even, beyond the largest
//! finite number to infinity, with subnormal numbers. A zero has the sign that the fused multiply-add of IEEE 754
//! gives it. So the error is at most 0.5 ULP.

use crate::operation::{Operation, Sample};

/// 180/pi as the nearest `f64`: 57.29577951308232.
pub const DEGREES: f64 = 57.295_779_513_082_32;

/// The word converted to `f32`. The operation must be one that [`Conversion::new`](crate::Conversion::new) takes.
pub fn to_f32(word: u16, sample: Sample, operation: Operation) -> f32 {
    let (x, factor, offset) = terms(word, sample, operation);
    scaled_to_f32(x, factor, offset)
}

/// The word converted to `f64`. The operation must be one that [`Conversion::new`](crate::Conversion::new) takes.
pub fn to_f64(word: u16, sample: Sample, operation: Operation) -> f64 {
    let (x, factor, offset) = terms(word, sample, operation);
    match Exact::scaled(x, factor, offset) {
        Some(exact) => f64::from_bits(exact.round(53, -1074)),
        None => zero(x, factor, offset),
    }
}

/// Integer, factor and offset of an operation.
fn terms(word: u16, sample: Sample, operation: Operation) -> (i32, f64, f64) {
    // Exact: a power of two only changes the exponent, and n is at most 16.
    let fraction = |n: u8| (-f64::from(n)).exp2();
    match operation {
        Operation::Cast => (sample.integer(word), 1.0, 0.0),
        Operation::Scale { factor, offset } => (sample.integer(word), factor, offset),
        Operation::Unsigned { m, n } => (low_bits(word, m + n, false), fraction(n), 0.0),
        Operation::Signed { m, n } => (low_bits(word, m + n, true), fraction(n), 0.0),
        Operation::Degrees { m, n } => (low_bits(word, m + n, true), DEGREES * fraction(n), 0.0),
    }
}

/// The low bits of a word as an integer.
fn low_bits(word: u16, bits: u8, is_signed: bool) -> i32 {
    let unsigned = i32::from(word) & ((1 << bits) - 1);
    if is_signed && unsigned >= 1 << (bits - 1) { unsigned - (1 << bits) } else { unsigned }
}

/// The zero of an exact sum that is zero.
fn zero(x: i32, factor: f64, offset: f64) -> f64 {
    let product_is_negative = (x < 0) != factor.is_sign_negative();
    let is_zero = x == 0 || factor == 0.0;
    if is_zero && product_is_negative && offset.is_sign_negative() { -0.0 } else { 0.0 }
}

/// A number other than zero: `magnitude * 2^exponent`. The lowest bit stands for itself and for everything below it that
/// was not zero; it lies far below what any rounding keeps.
struct Exact {
    is_negative: bool,
    magnitude: u128,
    exponent: i32,
}

/// A finite `f64` as `mantissa * 2^exponent`, the mantissa of 53 bits, or 0.
fn parts(value: f64) -> (i128, i32) {
    let bits = value.to_bits();
    let field = ((bits >> 52) & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    let (mantissa, exponent) = if field == 0 { (fraction, -1074) } else { (fraction | 1 << 52, field - 1075) };
    if mantissa == 0 {
        return (0, 0);
    }
    let up = mantissa.leading_zeros() - 11;
    let mantissa = i128::from(mantissa << up);
    (if value.is_sign_negative() { -mantissa } else { mantissa }, exponent - up as i32)
}

impl Exact {
    /// `x * factor + offset`, or nothing if that is zero.
    fn scaled(x: i32, factor: f64, offset: f64) -> Option<Exact> {
        let (mantissa, product_exponent) = parts(factor);
        let product = i128::from(x) * mantissa;
        let (offset, offset_exponent) = parts(offset);
        if product == 0 || offset == 0 {
            return Exact::signed(product + offset, if product == 0 { offset_exponent } else { product_exponent });
        }
        // |product| is 2^52 to 2^69, |offset| 2^52 to 2^53. The term with the larger exponent goes left as far as 126
        // bits allow. What the other one then loses is gone in one bit; but then the first has 2^109 or more and the
        // second less than 2^69, so that they cannot cancel, and more than 100 bits stay above that one.
        let (high, high_exponent, low, low_exponent, room) = if product_exponent >= offset_exponent {
            (product, product_exponent, offset, offset_exponent, 57)
        } else {
            (offset, offset_exponent, product, product_exponent, 73)
        };
        let distance = high_exponent - low_exponent;
        let left = distance.min(room);
        let right = (distance - left).min(127);
        let kept = low >> right;
        let is_lost = kept << right != low;
        // One more bit at the bottom for what was lost: the floor and a bit are between the same neighbours.
        let sum = ((high << left) + kept) << 1 | i128::from(is_lost);
        Exact::signed(sum, high_exponent - left - 1)
    }

    fn signed(value: i128, exponent: i32) -> Option<Exact> {
        (value != 0).then(|| Exact { is_negative: value < 0, magnitude: value.unsigned_abs(), exponent })
    }

    /// The bits of the nearest number of a binary format with `precision` bits, whose smallest number is
    /// 2^`smallest`: 24 and -149 for `f32`, 53 and -1074 for `f64`.
    fn round(&self, precision: u32, smallest: i32) -> u64 {
        let length = (128 - self.magnitude.leading_zeros()) as i32;
        // The unit of the last place.
        let unit = (self.exponent + length - precision as i32).max(smallest);
        let right = unit - self.exponent;
        let kept = if right <= 0 {
            (self.magnitude << -right) as u64
        } else if right > 127 {
            // Below half of the smallest number: the magnitude has at most 127 bits.
            0
        } else {
            let down = (self.magnitude >> right) as u64;
            let rest = self.magnitude & ((1 << right) - 1);
            let half = 1 << (right - 1);
            down + u64::from(rest > half || (rest == half && down & 1 == 1))
        };
        // Mantissa and exponent in one: a carry out of the mantissa raises the exponent, a subnormal one has exponent 0.
        let hidden = 1u64 << (precision - 1);
        let width = if precision == 24 { 32 } else { 64 };
        let infinity = ((1u64 << (width - precision)) - 1) << (precision - 1);
        let field = (unit - smallest) as u64;
        let bits = if kept < hidden { kept } else { kept + field.saturating_mul(hidden).min(infinity) };
        bits.min(infinity) | u64::from(self.is_negative) << (width - 1)
    }
}

/// `x * factor + offset` rounded once, for kernels that are in doubt.
pub(crate) fn scaled_to_f32(x: i32, factor: f64, offset: f64) -> f32 {
    match Exact::scaled(x, factor, offset) {
        Some(exact) => f32::from_bits(exact.round(24, -149) as u32),
        None => zero(x, factor, offset) as f32,
    }
}
